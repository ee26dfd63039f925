#include "trainers/hf/hf_lengths.h"

#include "base/checked.h"
#include "trainers/hf/hf_request.h"
#include "trainers/hf/hf_trl.h"

#include <math.h>
#include <string.h>

bool vp_hf_hears(const vp_hf_sizes *sizes)
{
    return sizes->symbols.at[VP_SYM_c] > 0;
}

/* Convolutions are PyTorch's in recordings. */
static void assume_convolutions(vp_hf_estimate *out)
{
    vp_hf_assume(out, "convolutions: PyTorch's own kernels; cuDNN's have workspaces of their "
                      "own, by the card, which are not counted");
}

/* Of a model that takes square pictures of any size: the tokens of one, whose patches come behind one more. Other pictures than
 * the config's have its positions made larger or smaller. */
static vp_status choose_picture(const vp_hf_request *q, const vp_hf_sizes *sizes,
                                vp_hf_estimate *out, bool *is_resized, vp_err *err)
{
    const int64_t *at        = sizes->symbols.at;
    int64_t        of_config = vp_patches_of(&sizes->symbols) + 1, side = 224 / at[VP_SYM_p];
    int64_t        seq     = q->seq ? q->seq : of_config;
    int64_t        patches = (int64_t)(sqrt((double)seq) + 1e-9);

    out->seq    = seq;
    *is_resized = seq != of_config;
    if (patches < 1 || patches * patches + 1 != seq)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--seq %lld: no square picture makes so many tokens, one for each patch of "
                       "%lld x %lld and one more; one of 224 x 224 makes %lld",
                       (long long)seq, (long long)at[VP_SYM_p], (long long)at[VP_SYM_p],
                       (long long)(side * side + 1));
    if (!q->seq)
        vp_hf_assume(out,
                     "pictures of %lld x %lld, as the config says (image_size); of 224 x 224, as "
                     "many processors cut them, each makes %lld tokens: --seq %lld",
                     (long long)at[VP_SYM_I], (long long)at[VP_SYM_I], (long long)(side * side + 1),
                     (long long)(side * side + 1));
    return VP_OK;
}

/* That the model has so many positions, where they are learnt. */
static vp_status check_positions(const vp_hf_request *q, const vp_hf_estimate *out, vp_err *err)
{
    int64_t more = q->lora.virtual_tokens;

    if (more && out->seq + more > out->positions)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--seq %lld and %lld virtual tokens are more than the %lld positions of "
                       "this model",
                       (long long)out->seq, (long long)more, (long long)out->positions);
    if (out->seq > out->positions)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--seq %lld is longer than the %lld positions of this model",
                       (long long)out->seq, (long long)out->positions);
    return VP_OK;
}

/* The sequence of a text, or the tokens of an image, whose positions are those. */
static vp_status choose_seq(const vp_model *model, const vp_hf_request *q, const vp_hf_sizes *sizes,
                            vp_hf_estimate *out, vp_err *err)
{
    const vp_graph *graph    = &model->graph;
    int64_t         of_image = vp_hf_hears(sizes) ? 0 : sizes->symbols.at[VP_SYM_S];
    int64_t         more     = q->lora.virtual_tokens;
    int64_t         positions =
        graph->max_seq ? graph->max_seq : sizes->symbols.at[VP_SYM_P] - sizes->unused_positions;
    bool is_bound = graph->max_seq ? graph->learns_positions : sizes->learns_positions;

    out->positions = positions;
    out->seq       = of_image ? of_image : q->seq;
    if (of_image && q->seq && q->seq != of_image)
        return VP_FAIL(err, VP_ERR_USAGE, "--seq %lld: an image of this model makes %lld tokens",
                       (long long)q->seq, (long long)of_image);
    if (!out->seq)
        out->seq =
            positions && positions - more < q->default_seq ? positions - more : q->default_seq;
    return positions && is_bound ? check_positions(q, out, err) : VP_OK;
}

/* Of a model that takes pictures of any size: the tokens of one, whose sides a processor makes whole tokens of. */
static vp_status choose_side(const vp_hf_request *q, vp_hf_sizes *sizes, vp_hf_estimate *out,
                             vp_err *err)
{
    int64_t *at = sizes->symbols.at, side = at[VP_SYM_ip], window = at[VP_SYM_iw];
    int64_t  wide, high;

    if (!side && q->image_width && !q->loads_only)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--image-size: this model's processor makes one size of every picture");
    if (!side)
        return VP_OK;
    if (!q->image_width)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--images %lld: this model takes pictures of any size: --image-size WxH, in "
                       "pixels as its processor has cut them (1024x768)",
                       (long long)q->images);
    wide          = (q->image_width + side / 2) / side;
    high          = (q->image_height + side / 2) / side;
    wide          = wide ? wide : 1;
    high          = high ? high : 1;
    at[VP_SYM_ih] = high;
    at[VP_SYM_ix] = wide;
    at[VP_SYM_it] = wide * high;
    at[VP_SYM_iv] = at[VP_SYM_it] * at[VP_SYM_ir];
    at[VP_SYM_in] = window ? vp_ceil_div(wide, window) * vp_ceil_div(high, window) : 1;
    vp_hf_assume(out, "pictures of %lld x %lld, whole tokens of %lld x %lld pixels",
                 (long long)(wide * side), (long long)(high * side), (long long)side,
                 (long long)side);
    return VP_OK;
}

/* Whether the sequence has room for the tokens that a sample's pictures make of it. */
static vp_status check_images(const vp_hf_request *q, const vp_hf_sizes *sizes, vp_hf_estimate *out,
                              vp_err *err)
{
    int64_t each = sizes->symbols.at[VP_SYM_it], all = vp_mul(each, q->images);

    assume_convolutions(out);
    vp_hf_assume(out,
                 "%lld picture%s a sample, which make %lld of the %lld tokens of its sequence "
                 "(%lld each)",
                 (long long)q->images, q->images > 1 ? "s" : "", (long long)all,
                 (long long)out->seq, (long long)each);
    if (all < out->seq)
        return VP_OK;
    return VP_FAIL(err, VP_ERR_USAGE,
                   "--images %lld: pictures make %lld tokens each, and a sequence of %lld has no "
                   "room for a text beside them; --seq N counts both",
                   (long long)q->images, (long long)each, (long long)out->seq);
}

/* The text that is written of a sound, and the sound. */
static vp_status choose_heard(const vp_hf_request *q, vp_hf_sizes *sizes, vp_hf_estimate *out,
                              vp_err *err)
{
    int64_t heard = sizes->symbols.at[VP_SYM_S];

    if (q->target_seq && q->target_seq != out->seq)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--target-seq %lld and --seq %lld: of this model both are the tokens that "
                       "are written; what is heard has %lld",
                       (long long)q->target_seq, (long long)out->seq, (long long)heard);
    vp_hf_assume(out,
                 "--seq is the text that is written, tokens of its labels; a sample is heard in "
                 "%lld frames of %lld bands, as the config says, whatever it lasts",
                 (long long)(2 * heard), (long long)sizes->symbols.at[VP_SYM_c]);
    out->heard                  = heard;
    sizes->symbols.at[VP_SYM_D] = out->seq;
    return VP_OK;
}

/* The sequence that is learnt from the other one, where there are two. */
static vp_status choose_target(const vp_hf_request *q, vp_hf_sizes *sizes, vp_hf_estimate *out,
                               vp_err *err)
{
    bool is_written = strcmp(out->task, "seq2seq") == 0;

    if (vp_hf_is_grpo(q))
        return vp_hf_trl_completion(q, out, &sizes->symbols.at[VP_SYM_l], err);
    if (is_written && !q->target_seq)
        vp_hf_assume(out,
                     "the sequence that is written is as long as the one that is read; estimate "
                     "--target-seq N says what another takes");
    if (is_written)
        sizes->symbols.at[VP_SYM_D] = q->target_seq ? q->target_seq : out->seq;
    else if (q->target_seq && !q->generates)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--target-seq is for --task seq2seq and --method grpo, not for %s",
                       out->task);
    return VP_OK;
}

vp_status vp_hf_choose_lengths(const vp_model *model, const vp_hf_request *request,
                               vp_hf_sizes *sizes, vp_hf_estimate *out, bool *is_resized,
                               vp_err *err)
{
    bool      of_images = sizes->symbols.at[VP_SYM_p] > 0, hears = vp_hf_hears(sizes);
    vp_status st = VP_OK;

    if (of_images || hears)
        assume_convolutions(out);
    if (of_images && !sizes->symbols.at[VP_SYM_S])
        VP_TRY(choose_picture(request, sizes, out, is_resized, err));
    else
        VP_TRY(choose_seq(model, request, sizes, out, err));
    if (request->images)
        VP_TRY(choose_side(request, sizes, out, err));
    if (request->images)
        VP_TRY(check_images(request, sizes, out, err));
    VP_TRY(hears ? choose_heard(request, sizes, out, err)
                 : choose_target(request, sizes, out, err));
out:
    return st;
}
