/* trainers/hf/hf_find.h: which recorded program a request means, and the sizes of its model.
 *     vp_hf_found found;
 *     VP_TRY(vp_hf_find(model, &request, VP_HF_STEP, &estimate, &found, err));
 *     VP_TRY(vp_recorded_new(found.program, &found.sizes.symbols, ...));
 *     vp_hf_found_release(&found); */
#ifndef VP_TRAINERS_HF_FIND_H
#define VP_TRAINERS_HF_FIND_H

#include "trainers/hf/hf_estimate.h"
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
    int64_t as;   /* libraries: line of vp_recording_also(); -1: the recording's own */
    bool    ties; /* frozen tables are tied, and the untied recording is played */
} vp_hf_found;

/* out: its task, seq, versions and assumptions are filled. VP_ERR_INPUT: what was not recorded, with the nearest that
 * was. Release found in either case. */
vp_status vp_hf_find(const vp_model *model, const vp_hf_request *request, vp_hf_pass pass,
                     vp_hf_estimate *out, vp_hf_found *found, vp_err *err);
void      vp_hf_found_release(vp_hf_found *found);

void vp_hf_assume(vp_hf_estimate *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool vp_hf_has_adapters(const vp_hf_request *request);       /* of any method of peft */
bool vp_hf_has_other_adapters(const vp_hf_request *request); /* one that is not LoRA */
bool vp_hf_has_prefix(const vp_hf_request *request);         /* prefix tuning */
bool vp_hf_freezes(const vp_hf_request *request);            /* parts of a model that is trained */
bool vp_hf_saves_modules(const vp_hf_request *request);      /* whole ones beside adapters */
bool vp_hf_is_plain(const vp_hf_request *request);           /* a plain loop, not Trainer's */
bool vp_hf_is_trl(const vp_hf_request *request);             /* SFTTrainer, DPOTrainer */
bool vp_hf_is_dpo(const vp_hf_request *request);
bool vp_hf_has_liger(const vp_hf_request *request);
bool vp_hf_is_quantised(const vp_hf_request *request);
bool vp_hf_lacks_flash(const vp_hf_request *request); /* its card has none, or it is off */
bool vp_hf_is_shared(
    const vp_hf_request *request); /* by several cards, or as if there were others */

/* Ways that cut the weights compute with 16-bit ones, without autocast. */
const char *vp_hf_computed_precision(const vp_hf_request *request);
const char *vp_hf_meant_precision(const vp_hf_request *request);
/* Adapters are computed with in 16 bits: asked for, or what DeepSpeed and FSDP make of all a model's weights. */
bool vp_hf_halves_adapters(const vp_hf_request *request);
/* Whether peft's prepare_model_for_kbit_training() makes what is not quantised fp32: FSDP's cards, which cut bf16 with what is packed,
 * and SFTTrainer leave it as it was loaded. */
bool vp_hf_upcasts(const vp_hf_request *request);
/* Of an element that the optimizer updates in their place. */
int64_t vp_hf_kept_adapter_bytes(const vp_hf_request *request);

#endif
