/* cli/estimate_measured.h: what a run was seen to take, beside the estimate of it.
 *     VP_TRY(vp_measured_read("seen.txt", &measured, err));
 *     int64_t context_bytes = vp_measured_context(&measured);         -1: not in it
 *     vp_measured_print(&measured, &estimate); */
#ifndef VP_CLI_ESTIMATE_MEASURED_H
#define VP_CLI_ESTIMATE_MEASURED_H

#include "base/err.h"
#include "base/json.h"
#include "cli/calibration.h"
#include "trainers/hf/hf_estimate.h"

#include <stdbool.h>

/* Peaks. X(name in a file, what is off where it grows by other bytes than was estimated) */
#define VP_MEASURED_TABLE(X) \
    X(load, "weights: the dtype they are loaded in, or another model beside them") \
    X(forward, "activations: the attention kernel, a mask, recompute, the batch's real length") \
    X(backward, "the loss's logits, or gradients") \
    X(step, "the optimizer's states, or what its step makes") \
    X(allocated, "what is alive at the peak") \
    X(reserved, "PyTorch's cache: its settings, or batches of other lengths before") \
    X(process, "context and libraries, which are then as measured")

typedef enum vp_measured_name {
#define X(name, words) VP_MEASURED_##name,
    VP_MEASURED_TABLE(X)
#undef X
        VP_N_MEASURED
} vp_measured_name;

typedef struct vp_measured {
    int64_t bytes[VP_N_MEASURED];                                    /* -1: not given */
    char    driver[VP_CALIBRATION_WORD], torch[VP_CALIBRATION_WORD]; /* their versions; "-" */
} vp_measured;

/* Lines "NAME SIZE": load, forward, backward, step (torch.cuda.max_memory_allocated() of each), allocated,
 * reserved, process (nvidia-smi's), and "driver VERSION", "torch VERSION". A size is bytes or has a unit; "#" begins a
 * remark. VP_ERR_INPUT, located. */
vp_status vp_measured_read(const char *path, vp_measured *out, vp_err *err);

/* Of the process what is not PyTorch's; -1 where one of the two was not measured. */
int64_t vp_measured_context(const vp_measured *measured);

/* What is worth keeping of it: the context, and reserved bytes beyond the estimate's where as many are allocated. False:
 * neither was measured, or it is off by more than a cache can be. out->card is left alone. */
bool vp_measured_calibrates(const vp_measured *measured, const vp_hf_estimate *estimate,
                            vp_calibration *out);

/* {"NAME": {estimated_bytes, measured_bytes, off_bytes, class}, ..., "likely": words or null}; for people. */
json_t *vp_measured_json(const vp_measured *measured, const vp_hf_estimate *estimate,
                         int64_t context_bytes);
void    vp_measured_print(const vp_measured *measured, const vp_hf_estimate *estimate,
                          int64_t context_bytes);

#endif
