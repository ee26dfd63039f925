#include "trainers/hf/hf_estimate.h"

#include "trainers/hf/hf_asked.h"
#include "trainers/hf/hf_attention.h"
#include "trainers/hf/hf_composed.h"
#include "trainers/hf/hf_replay.h"
#include "trainers/hf/hf_request.h"
#include "trainers/torch/world.h"

#include <string.h>

static vp_status replay_or_compose(const vp_model *model, const vp_hf_request *request,
                                   vp_hf_estimate *out, vp_err *err)
{
    vp_hf_request q   = *request;
    vp_err        why = {0};
    vp_status     st;

    if (vp_hf_is_noted_unrecorded(model, request)) {
        *out = (vp_hf_estimate){.is_unrecorded = true};
        return VP_FAIL(err, VP_ERR_INPUT, "%s: no such step was recorded", model->family);
    }
    st = vp_hf_replay(model, request, out, &why);
    if (st != VP_ERR_INPUT || !out->is_unrecorded) {
        if (st != VP_OK)
            *err = why;
        return st;
    }
    if (vp_hf_lacks_sdpa(model->family, q.attention, q.versions))
        q.attention = "eager";
    st = vp_hf_compose(model, &q, &why, out, err);
    if (out->is_unrecorded)
        vp_hf_note_unrecorded(model, request);
    if (st == VP_OK && strcmp(q.attention, request->attention) != 0)
        vp_hf_assume(out, VP_HF_EAGER_ALONE, model->family);
    return st;
}

vp_status vp_hf_estimate_run(const vp_model *model, const vp_hf_request *request,
                             vp_hf_estimate *out, vp_err *err)
{
    vp_status st = replay_or_compose(model, request, out, err);

    if (st == VP_OK && vp_model_is_mxfp4(model->config)) /* transformers 5.17, quantizer_mxfp4.py */
        vp_hf_assume(out, "the files' MXFP4 weights are made 16 bits as they are loaded, "
                          "Mxfp4Config(dequantize=True): as they are they cannot be trained");
    return st;
}

double vp_hf_reserved_share(const vp_hf_request *q)
{
    int64_t ranks =
        vp_hf_is_shared(q) && q->world < 2 ? 2 : q->world; /* one is played like several */
    double share    = vp_world_reserved_share(ranks, q->parallel);
    bool   is_zero3 = vp_hf_is_shared(q) && strcmp(q->parallel, "zero3") == 0;

    if (vp_hf_is_shared(q) && vp_hf_is_quantised(q) && share < VP_HF_QUANTISED_WORLD_SHARE)
        return VP_HF_QUANTISED_WORLD_SHARE;
    if (q->generates) /* by rule: hf_generate.h */
        return share < VP_HF_STAND_IN_SHARE ? VP_HF_STAND_IN_SHARE : share;
    if (is_zero3 && vp_hf_has_adapters(q))
        return VP_HF_ADAPTED_ZERO3_SHARE;
    return vp_hf_is_trl(q) && share < VP_HF_TRL_SHARE ? VP_HF_TRL_SHARE : share;
}
