/* trainers/hf/hf_refuse.h: a step that was not recorded, said in a person's words.
 *     if (!program)
 *         VP_TRY(vp_hf_refuse(recording, "llama", key, other_key, "bf16", 0, err));
 * key: words as recordings name their programs, "precision=bf16 attention=eager ...". */
#ifndef VP_TRAINERS_HF_REFUSE_H
#define VP_TRAINERS_HF_REFUSE_H

#include "trainers/hf/hf_estimate.h"
#include "trainers/torch/recording.h"

/* VP_ERR_INPUT: which settings of key are not covered, which are in what was recorded nearest to it.
 * other_key: what would do as well, as the same with tables that are not tied. precision: as it was asked for, or
 * VP_HF_CUT where cards that cut the weights compute with another one. known_seq: a length with which all else is covered; 0: none. */
#define VP_HF_CUT "cut"
vp_status vp_hf_refuse(const vp_recording *recording, const char *family, const char *key,
                       const char *other_key, const char *precision, int64_t known_seq,
                       vp_err *err);

/* Families that have a recording of this kind ("-lora"; "": the plain loop's) beside the file at path, with a program whose key has
 * the word (" eval=1"; "": any): "gpt2, llama", cut at size. */
void vp_hf_list_recorded(const char *path, const char *kind, const char *word, char *buf,
                         size_t size);

/* VP_ERR_INPUT: adapters, TRL's trainers or recomputation beside something with which they do not run, or were not played. */
vp_status vp_hf_check_ways(const vp_model *model, const vp_hf_request *request, vp_err *err);

#endif
