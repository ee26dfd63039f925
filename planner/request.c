#include "planner/request.h"

#include "base/checked.h"

bool vp_request_is_pinned(const vp_plan_request *r)
{
    return r->micro_batch || r->recompute != VP_RECOMPUTE_ANY || r->loss_chunk != VP_CHUNK_ANY;
}

/* A pinned chunk that no micro-batch may have. */
static vp_refusal refuse_chunk(const vp_plan_request *r)
{
    int64_t micro  = r->micro_batch ? r->micro_batch : 1;
    int64_t tokens = micro * r->seq;
    int64_t n      = r->loss_chunk > 0 ? vp_ceil_div(tokens, r->loss_chunk) : 1;

    if (n <= VP_MAX_CHUNKS)
        return (vp_refusal){0};
    return (vp_refusal){.reason = VP_REFUSED_LOSS_CHUNK,
                        .asked  = r->loss_chunk,
                        .limit  = vp_round_up(vp_ceil_div(tokens, VP_MAX_CHUNKS), VP_TILE_TOKENS),
                        .micro_batch = micro,
                        .seq         = r->seq,
                        .n_chunks    = n};
}

vp_refusal vp_request_refusal(const vp_plan_request *r)
{
    if (r->seq > r->model->graph.max_seq)
        return (vp_refusal){
            .reason = VP_REFUSED_SEQ, .asked = r->seq, .limit = r->model->graph.max_seq};
    if (r->micro_batch &&
        (r->micro_batch > r->global_batch || r->global_batch % r->micro_batch != 0))
        return (vp_refusal){
            .reason = VP_REFUSED_MICRO_BATCH, .asked = r->micro_batch, .limit = r->global_batch};
    if (vp_overflowed(vp_mul(vp_mul(r->global_batch, r->seq), 64)))
        return (vp_refusal){.reason = VP_REFUSED_TOKENS,
                            .asked  = r->global_batch,
                            .limit  = INT64_MAX / 64 / r->seq};
    return refuse_chunk(r);
}
