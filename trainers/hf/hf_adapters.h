/* trainers/hf/hf_adapters.h: the modules of a family that peft's adapters can be put on.
 *     VP_TRY(vp_hf_lora_targets("llama", "v_proj+q_proj", buf, sizeof buf, err));     "q_proj+v_proj" */
#ifndef VP_TRAINERS_HF_HF_ADAPTERS_H
#define VP_TRAINERS_HF_HF_ADAPTERS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Modules joined by '+' in the order of the model; "all-linear" where it is all of them. asked NULL:
 * peft's own choice for the family. VP_ERR_INPUT: no such family, no such module of it. */
vp_status vp_hf_lora_targets(const char *family, const char *asked, char *buf, size_t size,
                             vp_err *err);

/* Whether a family surely has no module of that name, whose last part behind dots counts: none that peft could adapt. *nearest: one of its linear
 * layers whose name is nearly that; NULL. */
bool vp_hf_lora_lacks(const char *family, const char *name, const char **nearest);

/* peft's modules_to_save: what of embed_tokens and lm_head is asked for, joined by '+' in that order. VP_ERR_INPUT: other
 * modules, or a family that names them otherwise. */
vp_status vp_hf_lora_saved(const char *family, const char *asked, char *buf, size_t size,
                           vp_err *err);

#endif
