/* trainers/hf/hf_lengths.h: how long the sequences of a recorded step are: what the request asks for, what a picture or a sound makes.
 *     VP_TRY(vp_hf_choose_lengths(model, request, &sizes, out, &is_resized, err)); */
#ifndef VP_TRAINERS_HF_LENGTHS_H
#define VP_TRAINERS_HF_LENGTHS_H

#include "trainers/hf/hf_estimate.h"
#include "trainers/hf/hf_sizes.h"

/* Whether a sample is a sound: its spectrum has as many frames as the config says, and --seq is of the text that is written. */
bool vp_hf_hears(const vp_hf_sizes *sizes);

/* out: its task is known; seq, positions and assumptions are filled. sizes: the sequence of targets is. is_resized: pictures have another
 * size than the config says. VP_ERR_USAGE: the model takes no such length. */
vp_status vp_hf_choose_lengths(const vp_model *model, const vp_hf_request *request,
                               vp_hf_sizes *sizes, vp_hf_estimate *out, bool *is_resized,
                               vp_err *err);

#endif
