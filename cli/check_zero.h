/* cli/check_zero.h: what a DeepSpeed file sets otherwise than the steps that are counted have it, in bytes. */
#ifndef VP_CLI_CHECK_ZERO_H
#define VP_CLI_CHECK_ZERO_H

#include "models/model.h"
#include "trainers/files/check.h"

enum { VP_ZERO_LINES = 4 };

typedef struct vp_check_zero {
    int64_t     more_bytes, less_bytes; /* at most, than what is counted */
    const char *lines[VP_ZERO_LINES];   /* which keys, and how much */
    int         n_lines;
} vp_check_zero;

/* Of files that mean no ZeRO all is 0. */
void vp_check_zero_find(vp_arena *arena, const vp_checked *c, const vp_model *model,
                        vp_check_zero *out);

#endif
