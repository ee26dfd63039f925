/* trainers/hf/hf_task.h: what a class of transformers learns.
 *     vp_hf_task_of_class("LlamaForSequenceClassification") is "seqcls" */
#ifndef VP_TRAINERS_HF_TASK_H
#define VP_TRAINERS_HF_TASK_H

#include "trainers/hf/hf_estimate.h"

#include <stdbool.h>

/* By its name; NULL: none that was recorded of any family. */
const char *vp_hf_task_of_class(const char *name);
bool        vp_hf_has_classes(const char *task);
/* Whether a head of classes is trained beside adapters, of this task. */
bool vp_hf_trains_head(const vp_hf_request *request, const char *task);
/* That a classifier of sequences has the loss that was recorded: of one class of several, or is_one, the squared error of one value. */
vp_status vp_hf_check_problem(const vp_model *model, const vp_hf_request *request, bool is_one,
                              vp_err *err);
/* That peft takes the adapters beside that head. */
vp_status vp_hf_check_head(const vp_model *model, const vp_hf_request *request, const char *task,
                           vp_err *err);
/* Whether a classifier of samples has no padding token, which the class has none of unless told: it then ends in an error at more than
 * one sample (transformers 5.17, modeling_layers.py: GenericForSequenceClassification). */
bool vp_hf_lacks_padding(const vp_model *model);
/* What TRL does not train. */
vp_status vp_hf_refuse_other_heads(const vp_model *model, const vp_hf_request *request,
                                   vp_err *err);

#endif
