/* models/lora.h: adapters beside a model's linear layers, as a graph-to-graph transformation.
 *     VP_TRY(vp_lora_add(model, &recipe.lora, err));
 *
 * Every parameter of the model is frozen, and each linear layer that a target names becomes an op
 * `adapted` (plan/op.h) with two parameters of its own, A and B, named as peft names them:
 * "...q_proj.lora_A.weight". What no gradient needs any more is not in the graph: lowering finds it. */
#ifndef VP_MODELS_LORA_H
#define VP_MODELS_LORA_H

#include "models/model.h"

/* VP_ERR_INPUT: a target that names no linear layer of the model, or a model with another head than
 * a language model's, which peft trains whole. */
vp_status vp_lora_add(vp_model *model, const vp_lora *lora, vp_err *err);

#endif
