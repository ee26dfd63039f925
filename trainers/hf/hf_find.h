/* trainers/hf/hf_find.h: which recorded program a request means, and the sizes of its model.
 *     vp_hf_found found;
 *     VP_TRY(vp_hf_find(model, &request, VP_HF_STEP, &estimate, &found, err));
 *     VP_TRY(vp_recorded_new(found.program, &found.sizes.symbols, ...));
 *     vp_hf_found_release(&found); */
#ifndef VP_TRAINERS_HF_FIND_H
#define VP_TRAINERS_HF_FIND_H

#include "trainers/hf/hf_request.h"
#include "trainers/hf/hf_sizes.h"

#include <stdbool.h>

/* A training step; a batch of an evaluation between steps; a second model, asked for its logits. */
typedef enum vp_hf_pass { VP_HF_STEP, VP_HF_EVALUATION, VP_HF_SECOND } vp_hf_pass;

typedef struct vp_hf_found {
    vp_recording              *recording;
    bool                       is_borrowed; /* the recording, of the request's shelf */
    const vp_recorded_program *program;
    vp_hf_sizes                sizes;
    bool                       plain; /* a plain loop's recording is played */
    int64_t as;               /* libraries: line of vp_recording_also(); -1: the recording's own */
    bool    ties;             /* frozen tables are tied, and the untied recording is played */
    bool    copies_attention; /* hf_cudnn.h */
} vp_hf_found;

/* out: its task, seq, versions and assumptions are filled. VP_ERR_INPUT: what was not recorded, with the nearest that
 * was. Release found in either case. */
vp_status vp_hf_find(const vp_model *model, const vp_hf_request *request, vp_hf_pass pass,
                     vp_hf_estimate *out, vp_hf_found *found, vp_err *err);
void      vp_hf_found_release(vp_hf_found *found);

#endif
