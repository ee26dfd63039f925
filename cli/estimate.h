/* cli/estimate.h: what the two halves of `vplan estimate` share: vplan's own training step
 * (cmd_estimate.c) and those of PyTorch trainers (estimate_trainer.c). */
#ifndef VP_CLI_ESTIMATE_H
#define VP_CLI_ESTIMATE_H

#include "cli/cli.h"
#include "trainers/hf/hf_estimate.h"

typedef struct vp_estimate_options {
    const char *trainer, *device, *precision, *gradients, *optimizer, *attention, *loss, *recompute,
        *max, *class_name, *padding, *lengths, *measured, *resident, *versions, *lora, *peft,
        *freeze, *image_size, *load, *prepare, *task, *parallel, *offload, *method, *calibration,
        *alloc_conf;
    vp_amount budget, reserve;
    int64_t seq, target_seq, micro_batch, accumulation, eval_batch, packing, images, world, workers,
        prefetch;
    bool no_pin_memory, keep_output, qlora, liger, compiles, syncs_each, vllm, all, ladder,
        trainer_is_default;
} vp_estimate_options;

/* Where --seq is not said: at most; and SFTConfig's max_length. */
enum { VP_ESTIMATE_SEQ = 4096, VP_ESTIMATE_SFT_SEQ = 1024 };

/* The options that only PyTorch trainers have; fill a vp_estimate_options. */
extern const vp_option_set vp_estimate_trainer_options;

/* What --device, --budget and --reserve leave; -1: nothing is said of it. *device is left where none is named. VP_ERR_USAGE. */
vp_status vp_estimate_budget(const vp_estimate_options *o, vp_device *device, int64_t *budget_bytes,
                             vp_err *err);

/* The whole answer for --trainer torch. */
vp_status vp_estimate_trainer(const vp_command_line *line, const char *model_name,
                              const vp_estimate_options *o, vp_cli *cli, vp_err *err);

/* What transformers' Trainer takes of the card with the settings of vplan's own step, all of which are
 * given: precision, micro_batch, seq. False: it was not recorded, or has no such setting. */
bool vp_estimate_beside(const char *model_name, const vp_estimate_options *o,
                        int64_t *device_bytes);

/* Whether vplan has no graph of the model, and knows how transformers trains it. */
bool vp_estimate_is_only_recorded(const char *model_name, const vp_estimate_options *o);

/* The trainer where none was named: "trl" where an option is given that only TRL's have, else "hf" where one is that only
 * PyTorch's trainers have, else "vplan". */
const char *vp_estimate_trainer_meant(const vp_estimate_options *o);

/* VP_ERR_USAGE where an option of theirs was given for vplan's own step. */
vp_status vp_estimate_only_vplan(const vp_estimate_options *o, vp_err *err);

/* Whether the way in which `world` cards share is known, with "optimizer" or "params" in host memory where that is said; of plan's
 * options too. VP_ERR_USAGE, VP_ERR_INPUT: it is not. */
vp_status vp_estimate_check_parallel(int64_t world, const char *parallel, const char *offload,
                                     vp_err *err);

typedef struct vp_estimate_lora {
    vp_hf_lora lora; /* its targets: canonical; its save: saved */
    double     alpha;
    char       targets[200], canonical[200], save[200], saved[40];
    bool       rslora, has_targets, has_dtype;
} vp_estimate_lora;

/* "r=16,targets=all-linear,..." for a family of models. VP_ERR_USAGE: no such words. VP_ERR_INPUT: no such
 * modules. */
vp_status vp_estimate_read_lora(const char *given, const char *family, vp_estimate_lora *out,
                                vp_err *err);

/* "ia3", "prompt:tokens=20": methods of peft in the place of LoRA. VP_ERR_USAGE: no such words. */
vp_status vp_estimate_read_peft(const char *text, vp_hf_lora *out, vp_err *err);

/* "none", "embeddings", "layers:8": into the request. VP_ERR_USAGE: no such words. */
vp_status vp_estimate_read_freeze(const char *text, vp_hf_request *out, vp_err *err);
/* "1024x768" */
vp_status vp_estimate_read_image(const char *text, vp_hf_request *out, vp_err *err);

/* The same for vplan's own step. VP_ERR_USAGE also for what it has not: DoRA, a dtype apart from the
 * precision's. */
vp_status vp_read_own_lora(const char *text, const char *model_name, vp_lora *out, vp_err *err);

#endif
