/* trainers/hf/hf_refuse.h: a step that was not recorded, said in a person's words.
 *     if (!program)
 *         VP_TRY(vp_hf_refuse(recording, "llama", key, err));
 * key: words as recordings name their programs, "precision=bf16 attention=eager ...". */
#ifndef VP_TRAINERS_HF_REFUSE_H
#define VP_TRAINERS_HF_REFUSE_H

#include "trainers/torch/recording.h"

/* VP_ERR_INPUT: which settings of key are not covered, which are in what was recorded nearest to it. */
vp_status vp_hf_refuse(const vp_recording *recording, const char *family, const char *key,
                       vp_err *err);

#endif
