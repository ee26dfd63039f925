/* cli/estimate_remedies.h: what would make a PyTorch trainer's step smaller, each tried by the
 * estimator. */
#ifndef VP_CLI_ESTIMATE_REMEDIES_H
#define VP_CLI_ESTIMATE_REMEDIES_H

#include "trainers/hf/hf_estimate.h"

enum { VP_REMEDIES = 6 };

typedef struct vp_remedy {
    char        option[48]; /* as one would type it */
    const char *costs;
    int64_t     reserved_bytes; /* with it */
} vp_remedy;

/* Those that are not on already, were recorded and save something, the largest saving first. */
int vp_remedies_find(const vp_model *model, const vp_hf_request *request, int64_t reserved_bytes,
                     vp_remedy out[VP_REMEDIES]);

#endif
