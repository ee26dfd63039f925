/* models/zoo/zoo_internal.h: one table a file, each ended by an entry without a name. */
#ifndef VP_MODELS_ZOO_INTERNAL_H
#define VP_MODELS_ZOO_INTERNAL_H

#include "models/model.h"

/* A config.json as it is written: the text of the argument. */
#define JSON(...) #__VA_ARGS__

extern const vp_zoo_entry vp_zoo_gpt2[], vp_zoo_llama[], vp_zoo_mistral[], vp_zoo_qwen[],
    vp_zoo_gemma[], vp_zoo_phi3[], vp_zoo_olmo2[], vp_zoo_opt[], vp_zoo_gpt_neox[], vp_zoo_bert[],
    vp_zoo_recorded[], vp_zoo_seeing[], vp_zoo_encoders[];

#endif
