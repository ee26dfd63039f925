/* cli/cmd_plan_trainer.h: `vplan plan MODEL --trainer T`: the fastest settings that another trainer can
 * be told. */
#ifndef VP_CLI_CMD_PLAN_TRAINER_H
#define VP_CLI_CMD_PLAN_TRAINER_H

#include "cli/cli.h"

#include "base/text.h"
#include "models/model.h"

typedef struct vp_plan_trainer_options {
    const char *trainer, *parallel, *padding, *prepare, *method, *versions, *calibration;
    int64_t     eval_batch, completion;
    bool        qlora, syncs_each, liger, vllm;
    int64_t     world;
} vp_plan_trainer_options;

extern const vp_option_set vp_plan_trainer_options_set;

/* The whole answer. path: where the settings are written, or NULL. Sets cli->exit_code: 3 where
 * nothing fits. */
vp_status vp_plan_for_trainer(const char *model_name, const vp_plan_options *o,
                              const vp_plan_trainer_options *t, const vp_command_line *line,
                              const char *path, bool force, vp_cli *cli, vp_err *err);

/* Whether a command that is to be proposed, the words of `vplan plan MODEL --trainer T ...` behind the program's name, would be
 * answered: by a plan, or by what would make one fit. */
bool vp_plan_answers(int argc, char **argv);

/* The same of what such words say. */
bool vp_plan_is_known(const char *model_name, const vp_plan_options *o,
                      const vp_plan_trainer_options *t, const vp_command_line *line);

/* Adapters in place of the whole model, which vplan's own runtime does not train: what transformers'
 * Trainer needs for them on the card, and the command that plans it: LoRA, else over weights in NF4, else with half, a quarter or
 * an eighth of the sequence. needs_bytes 0: they do not fit there, or such a step is not known. */
typedef struct vp_adapters_offer {
    int64_t needs_bytes;
    bool    quantised; /* over weights in NF4 */
    int64_t seq;       /* 0: of as long samples as were asked for */
    vp_text command;
} vp_adapters_offer;
void        vp_offer_adapters(const char *model_name, const vp_plan_options *o,
                              const vp_command_line *line, vp_adapters_offer *out);
const char *vp_adapters_text(const vp_adapters_offer *offer, char *buf, size_t buf_size);

/* VP_ERR_USAGE where an option of theirs was given for vplan's own plan. */
vp_status vp_plan_only_vplan(const vp_plan_trainer_options *t, vp_err *err);

#endif
