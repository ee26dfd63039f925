/* trainers/hf/hf_host.h: what a training run wants of its host's memory while it loads a model, saves a checkpoint and goes on
 * from one, beside Python and its libraries.
 *
 * By rule, from the sources of transformers 5.17 and safetensors 0.8; held against whole runs (tests/golden/trainers/checkpoints.csv). */
#ifndef VP_TRAINERS_HF_HF_HOST_H
#define VP_TRAINERS_HF_HF_HOST_H

#include "trainers/hf/hf_estimate.h"
#include "trainers/torch/optimizer_step.h"
#include "trainers/torch/recording.h"

/* Whether it is known how this trainer saves and goes on: Trainer and TRL's, of one card or of DistributedDataParallel. */
bool vp_hf_knows_checkpoints(const vp_hf_request *request);

/* What config.json says its weights are stored in: "float32", "bfloat16", ...; NULL: nothing. Borrowed of the model. */
const char *vp_hf_stored_format(const vp_model *model);

/* Bytes of one process, anonymous ones (pages of a mapped file are the system's to drop). step: loaded; optimizer: has its
 * states. */
vp_hf_host vp_hf_host_of(const vp_model *model, const vp_hf_request *request,
                         const vp_recorded *step, const vp_optimizer_step *optimizer);

/* What is said of it. */
void vp_hf_host_assume(const vp_hf_request *request, vp_hf_estimate *out);

#endif
