/* trainers/hf/hf_attention.h: which attention transformers' classes have.
 *     if (vp_hf_lacks_sdpa("gemma2", "sdpa", "transformers=5.24"))
 *         ...    eager attention runs where nobody says which, and sdpa is an error
 * Source: _supports_sdpa of the classes in transformers' modeling files, by release, and _check_and_adjust_attn_implementation of
 * modeling_utils.py. */
#ifndef VP_TRAINERS_HF_HF_ATTENTION_H
#define VP_TRAINERS_HF_HF_ATTENTION_H

#include "base/err.h"

#include <stdbool.h>

/* An assumption; the argument is the family. */
#define VP_HF_EAGER_ALONE "attention: transformers has no sdpa for %s, so eager"

/* Whether the attention is sdpa, of any kernel, and the family's class has none. versions: as vp_hf_request has them, or NULL; without
 * transformers' it is the recorded release. */
bool vp_hf_lacks_sdpa(const char *family, const char *attention, const char *versions);

/* VP_ERR_INPUT at the field VP_HF_REFUSED_BY_CARD "attention": loading such a model ends in an error. */
vp_status vp_hf_check_attention(const char *family, const char *attention, const char *versions,
                                vp_err *err);

#endif
