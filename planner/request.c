#include "planner/request.h"

#include "base/checked.h"

#include <assert.h>
#include <stdlib.h>

/* Micro-steps of which every number is offered, also where that leaves a smaller last one; divisors of the
 * global batch up to which all are. */
enum { MOST_MICRO_STEPS = 16, MOST_DIVISORS = 64 };

/* Micro-batches that are many, and those times what there is of each beyond which fewer are offered: farther apart
 * by so many eighths, the first that leaves few enough or the last. */
enum { MANY_MICRO_BATCHES = 64, MOST_WEIGHT = 720 };
static const int64_t FARTHER_EIGHTHS[] = {2, 4, 8, 24};

bool vp_request_is_pinned(const vp_plan_request *r)
{
    return r->micro_batch || r->recompute != VP_RECOMPUTE_ANY || r->loss_chunk != VP_CHUNK_ANY ||
           (r->host_bytes > 0 && r->offload != VP_OFFLOAD_ANY);
}

int64_t vp_longest_segment(const vp_model *model)
{
    int64_t n_blocks = model->graph.n_instances - 2, m = 6;

    while (m * m < n_blocks)
        m++;
    return vp_max_i64(1, vp_min_i64(vp_min_i64(m, n_blocks - 1), vp_max_segment(model)));
}

int64_t vp_request_segment(const vp_plan_request *r)
{
    return r->n_segments ? (r->model->graph.n_instances - 2) / r->n_segments : 0;
}

bool vp_request_allows_runs(const vp_plan_request *r, const vp_scenario *s)
{
    int64_t  length = r->n_segments ? vp_request_segment(r) : 1;
    uint64_t set    = length > 1                         ? UINT64_MAX
                      : r->recompute == VP_RECOMPUTE_ANY ? 0
                                                         : vp_recompute_set(r->model, r->recompute);

    if (r->recompute == VP_RECOMPUTE_ANY)
        return true;
    for (int i = 0; i < s->n_runs; i++)
        if (s->runs[i].segment != length || s->runs[i].recompute != set)
            return false;
    return true;
}

bool vp_request_allows(const vp_plan_request *r, vp_precision precision, vp_gradients gradients,
                       vp_optimizer optimizer)
{
    vp_dtype dtype        = vp_precision_dtype(precision);
    bool     fp32_weights = dtype == VP_DTYPE_F32 || vp_precision_has_master(precision);
    bool     bf16         = r->device->bf16 || r->device->is_cpu;
    /* fp16 where there is no bf16, which needs no scale and takes the same time */
    bool has_format = dtype == VP_DTYPE_BF16 ? bf16
                      : dtype == VP_DTYPE_F16
                          ? !bf16 && vp_device_has_fp16(r->device)
                          : precision != VP_PREC_TF32 || vp_device_has_tf32(r->device);

    return (precision == r->recipe.precision || (r->any_precision && fp32_weights && has_format)) &&
           vp_precision_takes(precision, gradients) &&
           (gradients == r->recipe.gradients || r->any_gradients) &&
           (optimizer == r->recipe.optimizer ||
            (r->any_optimizer && vp_optimizer_same_rule(optimizer, r->recipe.optimizer))) &&
           (r->updates != VP_UPDATES_BACKWARD || !vp_precision_scales_loss(precision));
}

static vp_recipe another_recipe(const vp_plan_request *r, vp_precision precision,
                                vp_gradients gradients, vp_optimizer optimizer)
{
    vp_recipe recipe = r->recipe;

    recipe.precision = precision;
    recipe.gradients = gradients;
    if (optimizer != recipe.optimizer)
        vp_recipe_set_optimizer(&recipe, optimizer);
    return recipe;
}

int vp_request_recipes(const vp_plan_request *r, vp_recipe recipes[VP_MAX_RECIPES])
{
    int n = 0;

    recipes[n++] = r->recipe;
    for (int p = 0; p < VP_N_PRECISIONS; p++)
        for (int g = 0; g < VP_N_GRADIENTS; g++)
            for (int o = 0; o < VP_N_OPTIMIZERS; o++) {
                bool asked = p == (int)r->recipe.precision && g == (int)r->recipe.gradients &&
                             o == (int)r->recipe.optimizer;
                if (!asked &&
                    vp_request_allows(r, (vp_precision)p, (vp_gradients)g, (vp_optimizer)o))
                    recipes[n++] =
                        another_recipe(r, (vp_precision)p, (vp_gradients)g, (vp_optimizer)o);
            }
    return n;
}

bool vp_request_moves(const vp_plan_request *r)
{
    return r->host_bytes > 0 && (r->offload == VP_OFFLOAD_ANY || vp_offload_moves(r->offload));
}

bool vp_request_must_move(const vp_plan_request *r)
{
    return r->host_bytes > 0 && r->offload != VP_OFFLOAD_ANY && vp_offload_moves(r->offload);
}

int64_t vp_request_host_room(const vp_plan_request *r, int64_t pageable_bytes)
{
    int64_t pinned = r->pinned_bytes ? r->pinned_bytes : INT64_MAX;

    assert(pageable_bytes >= 0);
    return pinned > INT64_MAX - pageable_bytes ? r->host_bytes
                                               : vp_min_i64(r->host_bytes, pinned + pageable_bytes);
}

bool vp_request_may_step(const vp_plan_request *r)
{
    const vp_optimizer o = r->recipe.optimizer;

    return vp_optimizer_by_element(o) &&
           (vp_optimizer_n_states(o) > 0 || vp_precision_has_master(r->recipe.precision));
}

/* A level as it streams its states, and as the host makes their updates; what kind pins is left. */
static int add_level(const vp_plan_request *r, vp_offload level, vp_offload *levels, int n)
{
    const bool any = r->offload == VP_OFFLOAD_ANY;

    if (n > 0 && level.states == levels[n - 1].states && level.blocks == levels[n - 1].blocks)
        return n;
    for (int host = 0; host < (r->on_nvme ? 1 : 2); host++) {
        level.host_step = host;
        level.nvme      = r->on_nvme && level.states > 0;
        if (r->updates == VP_UPDATES_BACKWARD && level.states > 0 && !(host && !level.blocks))
            continue;
        if ((host ? vp_request_may_step(r) && level.states > 0 && (!any || r->device->is_cpu)
                  : true) &&
            (any || vp_offload_kind_of(&level) == vp_offload_held(r->offload)))
            levels[n++] = level;
    }
    return n;
}

int vp_request_offloads(const vp_plan_request *r, vp_offload *levels)
{
    const vp_graph *g           = &r->model->graph;
    const bool      any         = r->offload == VP_OFFLOAD_ANY;
    int64_t         n_instances = g->n_instances;
    int             n           = 0;
    enum { EIGHTHS = 8 };

    if (r->host_bytes <= 0) {
        levels[0] = (vp_offload){0};
        return 1;
    }
    for (int i = any ? 0 : EIGHTHS; i <= EIGHTHS; i++)
        n = add_level(r, (vp_offload){.states = n_instances * i / EIGHTHS}, levels, n);
    if (!any && vp_offload_held(r->offload) == VP_OFFLOAD_NONE)
        levels[n++] = (vp_offload){0};
    if (vp_may_stream(g))
        n = add_level(r, (vp_offload){.states = n_instances, .blocks = true}, levels, n);
    assert(n <= VP_MAX_OFFLOAD_LEVELS);
    return n;
}

/* The smallest micro-batch that makes as many micro-steps. */
static int64_t evened(int64_t global_batch, int64_t micro)
{
    return vp_ceil_div(global_batch, vp_ceil_div(global_batch, micro));
}

static int by_size(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The divisors, ascending; returns how many. at NULL: counts. */
static int64_t list_divisors(int64_t g, int64_t *at)
{
    int64_t n = 0, n_small;

    for (int64_t i = 1; i <= g / i; i++)
        n += g % i == 0;
    n_small = n;
    n       = 0;
    for (int64_t i = 1; at && i <= g / i; i++)
        if (g % i == 0)
            at[n++] = i;
    for (int64_t i = n_small - 1; i >= 0; i--)
        if (at && (at[i] == 1 || g / at[i] != at[i]))
            at[n++] = g / at[i];
    return at ? n : 2 * n_small;
}

/* Of very many divisors those of which each is 1/8 more than the one before it; returns how many. */
static int64_t thin_out(int64_t *at, int64_t n)
{
    int64_t kept = 1;

    for (int64_t i = 1; i < n; i++)
        if (i == n - 1 || at[i] - at[kept - 1] >= at[kept - 1] / 8 + (at[kept - 1] % 8 > 0))
            at[kept++] = at[i];
    return kept;
}

/* The divisors, then the others; returns how many. at NULL: room for so many. */
static int64_t list_micro_batches(const vp_plan_request *r, int64_t *at)
{
    const int64_t g = r->global_batch;
    int64_t       n = list_divisors(g, at), x;

    if (at && n > MOST_DIVISORS)
        n = thin_out(at, n);
    for (int64_t steps = 2; steps <= MOST_MICRO_STEPS && steps <= g; steps++, n++)
        if (at)
            at[n] = vp_ceil_div(g, steps);
    for (int64_t unit = 1; unit == 1 || unit <= g / 8; unit *= 2)
        for (int64_t digits = unit == 1 ? 1 : 8; digits < 16 && (x = digits * unit) <= g;
             digits++, n++)
            if (at)
                at[n] = evened(g, x);
    return n;
}

/* Scenarios there are of a micro-batch, roughly, in what there is of one recipe without host memory. */
static int64_t weight_of(const vp_plan_request *r)
{
    vp_recipe     recipes[VP_MAX_RECIPES];
    const int64_t n_attentions = r->attention == VP_ATTENTION_ANY ? VP_N_ATTENTIONS : 1;

    return n_attentions * vp_request_recipes(r, recipes) * (r->host_bytes > 0 ? 4 : 1);
}

/* Whether one is at least so many eighths more than another. */
static bool is_apart(int64_t from, int64_t to, int64_t eighths)
{
    return (to - from) * 8 >= from * eighths;
}

/* Of micro-batches in ascending order those so far apart: divisors of the global batch, which offload needs, then
 * others between them; the first and the last in any case. Returns how many. */
static int64_t spread(const int64_t *at, int64_t n, int64_t global_batch, int64_t eighths,
                      bool *kept)
{
    int64_t last = 0, n_kept = 2;

    for (int64_t i = 0; i < n; i++)
        kept[i] = i == 0 || i == n - 1;
    for (int64_t i = 1; i < n - 1; i++)
        if (global_batch % at[i] == 0 && is_apart(at[last], at[i], eighths)) {
            kept[last = i] = true;
            n_kept++;
        }
    last = 0;
    for (int64_t i = 1; i < n - 1; i++) {
        int64_t next = i + 1;
        if (kept[i]) {
            last = i;
            continue;
        }
        while (!kept[next])
            next++;
        if (is_apart(at[last], at[i], eighths) && is_apart(at[i], at[next], eighths)) {
            kept[last = i] = true;
            n_kept++;
        }
    }
    return n_kept;
}

/* All of them, ascending; returns how many, 0: out of memory. */
static int64_t all_micro_batches(const vp_plan_request *r, vp_arena *arena, int64_t **at)
{
    int64_t most = r->micro_batch ? 1 : list_micro_batches(r, NULL), n = 0;

    if (!(*at = vp_arena_array(arena, most, sizeof **at)))
        return 0;
    if (r->micro_batch)
        (*at)[0] = r->micro_batch;
    else
        most = list_micro_batches(r, *at);
    qsort(*at, (size_t)most, sizeof **at, by_size);
    for (int64_t i = 0; i < most; i++)
        if (i == 0 || (*at)[i] != (*at)[i - 1])
            (*at)[n++] = (*at)[i];
    return n;
}

/* Which of them are offered: where they are many for what there is of each, those farther apart. */
static bool *offered(const vp_plan_request *r, vp_arena *arena, const int64_t *at, int64_t n)
{
    const int64_t weight = weight_of(r);
    bool         *kept   = vp_arena_array(arena, n, sizeof *kept);
    int64_t       n_kept = n;

    for (int64_t i = 0; kept && i < n; i++)
        kept[i] = true;
    for (size_t k = 0; kept && k < sizeof FARTHER_EIGHTHS / sizeof *FARTHER_EIGHTHS &&
                       n_kept * weight > MOST_WEIGHT;
         k++)
        n_kept = spread(at, n, r->global_batch, FARTHER_EIGHTHS[k], kept);
    return kept;
}

int64_t *vp_request_micro_batches(const vp_plan_request *r, vp_arena *arena, int64_t *n, bool *many)
{
    int64_t      *at;
    const int64_t n_all = all_micro_batches(r, arena, &at);
    const bool   *kept  = n_all ? offered(r, arena, at, n_all) : NULL;

    *many = n_all > MANY_MICRO_BATCHES;
    *n    = 0;
    for (int64_t i = 0; kept && i < n_all; i++)
        if (kept[i])
            at[(*n)++] = at[i];
    return kept ? at : NULL;
}

int64_t *vp_request_micro_batches_near(const vp_plan_request *r, vp_arena *arena, int64_t micro,
                                       int64_t *n)
{
    int64_t      *at;
    const int64_t n_all = all_micro_batches(r, arena, &at);
    const bool   *kept  = n_all ? offered(r, arena, at, n_all) : NULL;
    int64_t       first, end;

    *n = 0;
    if (!kept)
        return NULL;
    for (first = n_all; first > 0 && (at[first - 1] >= micro || !kept[first - 1]);)
        first--;
    for (end = 0; end < n_all && (at[end] <= micro || !kept[end]);)
        end++;
    for (int64_t i = first; i < end; i++)
        if (!kept[i])
            at[(*n)++] = at[i];
    return at;
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

static bool may_stand_in_segments(const vp_plan_request *r)
{
    int64_t n = r->n_segments, n_blocks = r->model->graph.n_instances - 2;

    return n >= 2 && n <= n_blocks && n_blocks % n == 0 &&
           n_blocks / n <= vp_longest_segment(r->model);
}

vp_refusal vp_request_refusal(const vp_plan_request *r)
{
    assert(r->seq >= 1 && r->global_batch >= 1); /* options and files have no less */
    if (r->seq > vp_graph_longest(&r->model->graph))
        return (vp_refusal){
            .reason = VP_REFUSED_SEQ, .asked = r->seq, .limit = r->model->graph.max_seq};
    if (r->micro_batch &&
        (r->micro_batch > r->global_batch || r->global_batch % r->micro_batch != 0))
        return (vp_refusal){
            .reason = VP_REFUSED_MICRO_BATCH, .asked = r->micro_batch, .limit = r->global_batch};
    if (r->n_segments && !may_stand_in_segments(r))
        return (vp_refusal){.reason  = VP_REFUSED_SEGMENTS,
                            .asked   = r->n_segments,
                            .limit   = r->model->graph.n_instances - 2,
                            .longest = vp_longest_segment(r->model)};
    if (vp_overflowed(vp_mul(vp_mul(r->global_batch, r->seq), 64)))
        return (vp_refusal){.reason = VP_REFUSED_TOKENS,
                            .asked  = r->global_batch,
                            .limit  = INT64_MAX / 64 / r->seq};
    return refuse_chunk(r);
}
