#include "planner/planner.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>


static int by_time(const void *a, const void *b)
{
    const vp_candidate *x = a, *y = b;

    if (x->fits != y->fits)
        return x->fits ? -1 : 1;
    if (x->figures.step_time_s != y->figures.step_time_s)
        return x->figures.step_time_s < y->figures.step_time_s ? -1 : 1;
    if (x->figures.peak_bytes != y->figures.peak_bytes)
        return x->figures.peak_bytes < y->figures.peak_bytes ? -1 : 1;
    if (x->scenario.micro_batch != y->scenario.micro_batch)
        return x->scenario.micro_batch > y->scenario.micro_batch ? -1 : 1;
    if (x->scenario.recompute != y->scenario.recompute)
        return x->scenario.recompute < y->scenario.recompute ? -1 : 1;
    return (x->scenario.loss_chunk > y->scenario.loss_chunk) - (x->scenario.loss_chunk < y->scenario.loss_chunk);
}

/* The next chunk to try after `chunk`; 0 comes first, -1 ends. */
static int64_t next_chunk(const vp_plan_request *r, int64_t chunk, int64_t n_tokens)
{
    if (r->loss_chunk >= 0)
        return chunk == -1 ? r->loss_chunk : -1;
    if (chunk == -1 && r->loss_chunk == VP_CHUNK_ANY)
        return 0;
    int64_t next = chunk <= 0 ? VP_TILE_TOKENS : chunk * 2;
    return next < n_tokens || (next == VP_TILE_TOKENS && r->loss_chunk == VP_CHUNK_CHUNKED) ? next : -1;
}

static vp_status enumerate(const vp_plan_request *r, vp_plan_answer *a, vp_err *err)
{
    vp_cost   cost = {.device = r->device, .profile = r->profile};
    int64_t   cap  = 0;
    vp_status st   = VP_OK;

    for (int64_t micro = 1; micro <= r->global_batch; micro++) {
        if (r->global_batch % micro != 0 || (r->micro_batch && micro != r->micro_batch))
            continue;
        for (int rec = 0; rec < VP_N_RECOMPUTES; rec++) {
            if (r->recompute != VP_RECOMPUTE_ANY && rec != (int)r->recompute)
                continue;
            for (int64_t chunk = next_chunk(r, -1, micro * r->seq); chunk >= 0; chunk = next_chunk(r, chunk, micro * r->seq)) {
                vp_candidate c = {.scenario = {.recipe = r->recipe, .seq = r->seq, .global_batch = r->global_batch, .micro_batch = micro,
                                               .recompute = (vp_recompute)rec, .loss_chunk = chunk}};
                VP_TRY(vp_assemble_figures(r->model, &c.scenario, &cost, &c.figures, err));
                c.fits = c.figures.device_bytes <= r->budget_bytes;
                VP_TRY_ALLOC(err, vp_arena_grow(a->arena, (void **)&a->candidates, a->n_candidates, &cap, sizeof c));
                a->candidates[a->n_candidates++] = c;
                a->n_fit += c.fits;
            }
        }
    }
    qsort(a->candidates, (size_t)a->n_candidates, sizeof *a->candidates, by_time);
    for (int64_t i = 0; i < a->n_candidates; i++)
        if (!a->least || a->candidates[i].figures.device_bytes < a->least_budget_bytes) {
            a->least              = &a->candidates[i];
            a->least_budget_bytes = a->least->figures.device_bytes;
        }
out:
    return st;
}

/* What people set by hand: one recompute switch for the whole model, and the micro-batch that goes with it. */
static vp_status race_presets(const vp_plan_request *r, vp_plan_answer *a, vp_err *err)
{
    vp_status st = VP_OK;

    a->presets = vp_arena_array(a->arena, VP_N_RECOMPUTES, sizeof *a->presets);
    VP_TRY_ALLOC(err, a->presets);
    for (int rec = 0; rec < VP_N_RECOMPUTES; rec++) {
        vp_plan_request preset = *r;
        vp_plan_answer  tried  = {.arena = vp_arena_new()};
        preset.micro_batch     = 0;
        preset.recompute       = (vp_recompute)rec;
        preset.loss_chunk      = 0;
        st                     = tried.arena ? enumerate(&preset, &tried, err) : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        if (st == VP_OK) {
            const vp_candidate *best = tried.n_fit ? &tried.candidates[0] : tried.least;
            a->presets[a->n_presets++] = (vp_preset_result){
                .name = vp_arena_printf(a->arena, "recompute %s, micro-batch %lld", vp_recompute_name((vp_recompute)rec),
                                        (long long)best->scenario.micro_batch),
                .peak_bytes = best->figures.peak_bytes, .step_time_s = best->figures.step_time_s, .fits = best->fits};
        }
        vp_arena_free(tried.arena);
        VP_TRY(st);
    }
    VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
out:
    return st;
}

vp_status vp_planner_run(const vp_plan_request *r, vp_plan_answer *a, vp_err *err)
{
    vp_status st = VP_OK;

    *a = (vp_plan_answer){.arena = vp_arena_new()};
    VP_TRY_ALLOC(err, a->arena);
    if (r->seq > r->model->graph.max_seq)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--seq %lld is longer than the %lld positions of this model", (long long)r->seq,
                       (long long)r->model->graph.max_seq));
    if (r->micro_batch && (r->micro_batch > r->global_batch || r->global_batch % r->micro_batch != 0))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--micro-batch %lld does not divide the global batch %lld", (long long)r->micro_batch,
                       (long long)r->global_batch));
    if (vp_overflowed(vp_mul(vp_mul(r->global_batch, r->seq), 64)))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--global-batch times --seq is more tokens than 64 bits can count"));
    VP_TRY(enumerate(r, a, err));
    VP_TRY(race_presets(r, a, err));
out:
    return st;
}

void vp_plan_answer_release(vp_plan_answer *a)
{
    vp_arena_free(a->arena);
    *a = (vp_plan_answer){0};
}

vp_status vp_planner_make(const vp_plan_request *r, const vp_plan_answer *a, const vp_candidate *c, vp_plan **out, vp_err *err)
{
    vp_cost   cost = {.device = r->device, .profile = r->profile};
    vp_status st   = VP_OK;

    VP_TRY(vp_assemble(r->model, &c->scenario, &cost, out, err));
    vp_plan *plan            = *out;
    if (!cost.all_measured)
        json_array_append_new(plan->assumptions, json_string(r->profile ? "times are partly scaled from other measured shapes"
                              : "times are a roofline of the device's stated rates, not measured"));
    plan->budget_bytes       = r->budget_bytes;
    plan->least_budget_bytes = a->least_budget_bytes;
    plan->n_presets          = a->n_presets;
    plan->presets            = vp_arena_array(plan->arena, a->n_presets, sizeof *plan->presets);
    for (int64_t i = 0; plan->presets && i < a->n_presets; i++) {
        plan->presets[i]      = a->presets[i];
        plan->presets[i].name = vp_arena_strdup(plan->arena, a->presets[i].name);
    }
    VP_TRY_ALLOC(err, !vp_arena_failed(plan->arena));
out:
    if (st != VP_OK) {
        vp_plan_free(*out);
        *out = NULL;
    }
    return st;
}
