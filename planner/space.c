#include "planner/space.h"

#include "base/checked.h"
#include "base/units.h"
#include "planner/moved_space.h"
#include "planner/outline.h"

#include <assert.h>
#include <string.h>

/* Micro-batches times levels of offload beyond which fewer sizes of chunks are offered for each. */
enum { MANY_SETTINGS = 64 };

/* The number of chunks to try after n: every one up to 16, then 1/8 more; where there are many settings
 * twice as many. */
static int64_t more_chunks(int64_t n, bool coarse)
{
    return n < 2 ? 2 : coarse ? 2 * n : n + vp_max_i64(1, n / 8);
}

/* The next chunk to try after `chunk`; -1 begins and ends. All at once comes first (0), then as many
 * chunks as there may be, fewest first: of sizes that make as many chunks the smallest, which needs
 * the fewest bytes. */
static int64_t next_chunk(const vp_plan_request *r, int64_t chunk, int64_t n_tokens, bool coarse)
{
    assert(chunk >= -1 && n_tokens > 0);
    if (r->loss_chunk >= 0)
        return chunk == -1 &&
                       (r->loss_chunk == 0 || vp_ceil_div(n_tokens, r->loss_chunk) <= VP_MAX_CHUNKS)
                   ? r->loss_chunk
                   : -1;
    if (chunk == -1 && r->loss_chunk == VP_CHUNK_ANY)
        return 0;
    if (n_tokens <= VP_TILE_TOKENS) /* one chunk, where it must be one */
        return chunk == -1 ? VP_TILE_TOKENS : -1;
    for (int64_t n = more_chunks(chunk > 0 ? vp_ceil_div(n_tokens, chunk) : 1, coarse);
         chunk != VP_TILE_TOKENS && n <= VP_MAX_CHUNKS; n = more_chunks(n, coarse)) {
        int64_t next = vp_round_up(vp_ceil_div(n_tokens, n), VP_TILE_TOKENS);
        if (chunk <= 0 || next < chunk)
            return next;
    }
    return -1;
}

/* The smallest chunk that next_chunk() comes to; -1: there is none. */
static int64_t smallest_chunk(const vp_plan_request *r, int64_t n_tokens, bool coarse)
{
    int64_t chunk = -1, next;

    while ((next = next_chunk(r, chunk, n_tokens, coarse)) >= 0)
        chunk = next;
    return chunk;
}

uint64_t vp_pinned_set(const vp_plan_request *r)
{
    return r->recompute == VP_RECOMPUTE_ANY ? 0 : vp_recompute_set(r->model, r->recompute);
}

/* ---- blocks ---- */

static vp_blocks *find_blocks(const vp_plan_answer *a, int64_t micro, const vp_semantics *semantics)
{
    for (int64_t i = 0; a && i < a->n_blocks; i++)
        if (a->blocks[i]->micro_batch == micro && a->blocks[i]->semantics == semantics)
            return a->blocks[i];
    return NULL;
}

/* Items of an integer program: the cost of one block, or segment, over all micro-steps. */
static vp_item_row *make_items(vp_arena *arena, const vp_library *lib, int64_t n_full)
{
    vp_item_row *items = vp_arena_array(arena, lib->n, sizeof *items);

    assert(lib->n >= 1 && n_full >= 1);
    for (int64_t s = 0; items && s < lib->n; s++)
        items[s] = (vp_item_row){
            .k_bytes    = lib->strategies[s].kept_bytes,
            .beta_bytes = lib->strategies[s].height_bytes - lib->strategies[s].kept_bytes,
            .cost_ns    = lib->strategies[s].ns * n_full + lib->strategies[s].last_ns,
            .n_more     = lib->strategies[s].segment - 1};
    return items;
}

/* Whether blocks may move activations: all micro-steps are alike then. */
static bool may_move(const vp_plan_request *r, int64_t micro)
{
    return r->host_bytes > 0 && !r->n_segments && vp_request_moves(r) &&
           r->global_batch % micro == 0;
}

/* The libraries of blocks that may move activations. */
static vp_status make_moved(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                            int64_t micro, const vp_semantics *semantics, vp_outlines **outlines,
                            vp_blocks *b, vp_err *err)
{
    const uint64_t  set   = vp_pinned_set(r);
    const uint64_t *only  = r->recompute == VP_RECOMPUTE_ANY ? NULL : &set;
    bool            alike = false;
    vp_status       st    = VP_OK;

    if (*outlines)
        VP_TRY(vp_outlines_scale(*outlines, micro, cost, &alike, err));
    if (!alike) {
        vp_outlines_free(*outlines);
        *outlines = NULL;
        VP_TRY(vp_outlines_make(r->model, r->seq, micro, semantics, cost, outlines, err));
    }
    vp_library_outputs(*outlines, r->model, cost, &b->outputs);
    vp_moved_choices(&b->outputs, set, b->moved, &b->n_moved);
    for (int i = 0; i < b->n_moved; i++)
        VP_TRY(vp_library_of_moved(a->arena, *outlines, &b->alone, only, b->moved[i], &b->outputs,
                                   &b->moved_libraries[i], err));
out:
    return st;
}

/* Single blocks, and with them the segments that there may be; or the pinned ones alone. */
static vp_status make_libraries(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                                const vp_semantics *semantics, vp_outlines **outlines, vp_blocks *b,
                                vp_err *err)
{
    const vp_micro_steps steps  = vp_micro_steps_of(r->global_batch, b->micro_batch);
    const int64_t        pinned = vp_request_segment(r), n_full = steps.n_full;
    const vp_library     none = {0};
    vp_status            st   = VP_OK;

    if (r->recompute != VP_RECOMPUTE_ANY)
        VP_TRY(vp_library_of_set(a->arena, r->model, r->seq, steps, semantics, cost,
                                 vp_pinned_set(r), &b->alone, err));
    else
        VP_TRY(vp_library_make(a->arena, r->model, r->seq, steps, semantics, cost, outlines,
                               &b->alone, err));
    b->all = b->alone;
    if (pinned > 1)
        VP_TRY(vp_library_with_segments(a->arena, r->model, r->seq, steps, semantics, cost, &none,
                                        pinned, pinned, &b->all, err));
    else if (r->recompute == VP_RECOMPUTE_ANY && b->alone.n > 0)
        VP_TRY(vp_library_with_segments(a->arena, r->model, r->seq, steps, semantics, cost,
                                        &b->alone, 2, vp_longest_segment(r->model), &b->all, err));
    if (b->alone.n > 0) {
        VP_TRY_ALLOC(err, b->alone_items = make_items(a->arena, &b->alone, n_full));
        VP_TRY_ALLOC(err, b->all_items = make_items(a->arena, &b->all, n_full));
    }
out:
    return st;
}

static vp_status make_blocks(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                             int64_t micro, const vp_semantics *semantics, vp_outlines **outlines,
                             vp_blocks **out, vp_err *err)
{
    vp_blocks *b  = vp_arena_alloc(a->arena, sizeof *b);
    vp_status  st = VP_OK;

    VP_TRY_ALLOC(err, b);
    *b   = (vp_blocks){.micro_batch = micro, .semantics = semantics};
    *out = b;
    VP_TRY(make_libraries(r, a, cost, semantics, outlines, b, err));
    if (may_move(r, micro))
        VP_TRY(make_moved(r, a, cost, micro, semantics, outlines, b, err));
    VP_TRY_ALLOC(err, vp_arena_grow(a->arena, (void **)&a->blocks, a->n_blocks, &a->cap_blocks,
                                    sizeof *a->blocks));
    a->blocks[a->n_blocks++] = b;
out:
    return st;
}

/* ---- settings: micro-batch, loss chunk and offload of one semantics ---- */

typedef struct setting {
    int64_t    micro_batch, loss_chunk;
    vp_offload offload;
    vp_blocks *blocks;
    vp_figures figures[VP_N_OPTIMIZERS]; /* by recipe */
} setting;

typedef struct settings {
    setting *at;
    int64_t  n, cap;
} settings;

/* The recipes of one precision and dtype of gradients: the one asked for, or every optimizer's. */
typedef struct recipes {
    vp_recipe of[VP_N_OPTIMIZERS];
    int64_t   n;
} recipes;

/* What a scenario needs at least, whatever its blocks do. */
static int64_t least_outside_blocks(const vp_plan_request *r, const vp_figures *f)
{
    return vp_device_bytes(
        r->device,
        vp_add(f->stack_base_bytes, vp_max_i64(f->first_height_bytes,
                                               vp_add(f->first_kept_bytes, f->last_height_bytes))));
}

/* Shares of a bound are counted in these. */
enum { WHOLE = 16 };

/* What a pass of n micro-steps of a block takes: its kernels, and a share of what copies that the next
 * block waits for take longer. */
static int64_t pass_ns(int64_t kernels_ns, int64_t copies_ns, int64_t share, int64_t n)
{
    return (kernels_ns + vp_max_i64(0, copies_ns - kernels_ns) * share / WHOLE) * n;
}

static void set_streamed_items(vp_item_row *items, const vp_library *lib, int64_t n_micro,
                               const vp_streamed_figures *f, int64_t share)
{
    for (int64_t i = 0; i < lib->n; i++) {
        int64_t backward_ns = lib->strategies[i].ns - f->forward_ns;
        assert(backward_ns >= 0);
        items[i].cost_ns = pass_ns(f->forward_ns, f->params_ns, WHOLE, n_micro) +
                           pass_ns(backward_ns, vp_streamed_first_ns(f), share, 1) +
                           pass_ns(backward_ns, f->params_ns + f->gradients_ns, share, n_micro - 1);
    }
}

/* What the blocks at the ends of the chain do not wait for: planner/pricing.c's last terms. */
static int64_t unfetched_ns(const vp_library *lib, int64_t n_micro, const vp_streamed_figures *f,
                            int64_t share)
{
    int64_t least_ns = INT64_MAX;

    for (int64_t i = 0; i < lib->n; i++)
        least_ns = vp_min_i64(least_ns, lib->strategies[i].ns - f->forward_ns);
    return (vp_max_i64(0, f->params_ns - f->forward_ns)) * n_micro +
           2 * (pass_ns(least_ns, vp_streamed_first_ns(f), share, 1) - least_ns) +
           pass_ns(least_ns, f->params_ns + f->gradients_ns, share, n_micro - 1) -
           least_ns * (n_micro - 1) + n_micro + 1; /* and what rounding drops */
}

/* The costs and constant of a streamed scenario. Backward takes no less than its kernels, nor than what the
 * copies make of it but for what the last block does not fetch, nor than any mean of the two: that
 * whose own bound is the highest. *waiting has what the copies make of it. */
static vp_status bound_streamed(const vp_plan_request *r, const vp_plan_answer *a, const setting *s,
                                const vp_streamed_figures *f, vp_ilp *p, vp_ilp *waiting,
                                vp_err *err)
{
    const vp_library *lib     = &s->blocks->alone;
    const int64_t     n_micro = r->global_batch / s->micro_batch, const_ns = p->const_ns;
    const int64_t     bytes = vp_device_arena_bytes(r->device, r->budget_bytes);
    int64_t           best = 1, best_ns = -1, ns;
    vp_status         st = VP_OK;

    VP_TRY_ALLOC(err, p->items = make_items(a->arena, lib, n_micro));
    *waiting = *p;
    VP_TRY_ALLOC(err, waiting->items = make_items(a->arena, lib, n_micro));
    set_streamed_items(waiting->items, lib, n_micro, f, WHOLE);
    waiting->const_ns -= unfetched_ns(lib, n_micro, f, WHOLE);
    /* never the kernels alone: of plans that these say are alike, those that wait less */
    for (int64_t share = 1; share <= WHOLE; share *= 2) {
        set_streamed_items(p->items, lib, n_micro, f, share);
        p->const_ns = const_ns - unfetched_ns(lib, n_micro, f, share);
        if (vp_dp_bound(p, bytes, &ns) && ns > best_ns) {
            best_ns = ns;
            best    = share;
        }
    }
    set_streamed_items(p->items, lib, n_micro, f, best);
    p->const_ns = const_ns - unfetched_ns(lib, n_micro, f, best);
out:
    return st;
}

/* Of single blocks alone, or with segments. */
static vp_ilp ilp_of(const vp_plan_request *r, const vp_figures *f, const vp_blocks *b, bool alone)
{
    return (vp_ilp){.n_blocks   = r->model->graph.n_instances - 2,
                    .base_bytes = vp_add(f->stack_base_bytes, f->first_kept_bytes),
                    .end_bytes  = f->last_height_bytes,
                    .const_ns   = f->outside_blocks_ns,
                    .n_items    = alone ? b->alone.n : b->all.n,
                    .items      = alone ? b->alone_items : b->all_items};
}

/* What blocks of a library need at least above what lies below them, and the head. */
static int64_t least_above(const vp_library *lib, int64_t n_blocks, int64_t end_bytes)
{
    int64_t kept_bytes = INT64_MAX, beta_bytes = INT64_MAX;

    for (int64_t i = 0; i < lib->n; i++) {
        const vp_strategy *s = &lib->strategies[i];
        kept_bytes           = vp_min_i64(kept_bytes, s->kept_bytes);
        beta_bytes           = vp_min_i64(beta_bytes, s->height_bytes - s->kept_bytes);
    }
    return vp_add(vp_mul(n_blocks, kept_bytes), vp_max_i64(beta_bytes, end_bytes));
}

/* What no plan of this setting undercuts: of the whole arena, and of it the stack. */
typedef struct least_need {
    int64_t device_bytes, stack_bytes;
} least_need;

static least_need least_of(const vp_plan_request *r, const setting *s, int64_t n_recipes)
{
    least_need least      = {INT64_MAX, INT64_MAX};
    int64_t    base_bytes = INT64_MAX;

    for (int64_t i = 0; i < n_recipes; i++)
        base_bytes = vp_min_i64(base_bytes, s->figures[i].stack_base_bytes);
    vp_ilp p = ilp_of(r, &s->figures[0], s->blocks, s->offload.blocks);
    least.stack_bytes =
        vp_add(s->figures[0].first_kept_bytes, vp_space_least_bytes(&p, NULL, NULL));
    for (int i = 0; i < s->blocks->n_moved; i++)
        if (s->blocks->moved_libraries[i].n)
            least.stack_bytes =
                vp_min_i64(least.stack_bytes, vp_add(s->figures[0].first_kept_bytes,
                                                     least_above(&s->blocks->moved_libraries[i],
                                                                 r->model->graph.n_instances - 2,
                                                                 s->figures[0].last_height_bytes)));
    least.device_bytes = vp_device_bytes(r->device, vp_add(base_bytes, least.stack_bytes));
    return least;
}

static vp_status find_figures(const vp_plan_request *r, vp_cost *cost, const recipes *from,
                              vp_attention_kind attention, setting *s, vp_err *err)
{
    vp_scenario x = {.recipe         = from->of[0],
                     .seq            = r->seq,
                     .global_batch   = r->global_batch,
                     .micro_batch    = s->micro_batch,
                     .loss_chunk     = s->loss_chunk,
                     .attention      = attention,
                     .offload        = s->offload,
                     .updates_at_end = r->updates == VP_UPDATES_END};

    vp_scenario_set_all(&x, r->model, vp_pinned_set(r));
    return vp_assemble_figures_each(r->model, &x, from->of, from->n, cost, s->figures, err);
}

/* Where copies run beside kernels all micro-steps are alike; pinned updates in backward may be there. */
static bool may_offload(const vp_plan_request *r, int64_t micro, const vp_offload *level)
{
    const vp_scenario s = {.recipe       = r->recipe,
                           .global_batch = r->global_batch,
                           .micro_batch  = micro,
                           .offload      = *level};

    return ((!level->blocks && !level->activations) || r->global_batch % micro == 0) &&
           (r->updates != VP_UPDATES_BACKWARD || vp_scenario_updates_in_backward(&s));
}

/* Whether need bytes are far beyond what is there, and what a smaller micro-batch needs. */
static bool is_beyond(const vp_plan_request *r, int64_t need, int64_t least_known)
{
    int64_t most = vp_max_i64(r->device->usable_bytes, r->budget_bytes);

    return most <= INT64_MAX / 4 && least_known > 0 &&
           (vp_overflowed(need) || (need > most + VP_GIB + most / 4 && need / 2 > least_known));
}

/* Whether a micro-batch is far beyond what is there, by its smallest chunk. */
static vp_status is_hopeless(const vp_plan_request *r, vp_cost *cost, const recipes *from,
                             vp_attention_kind attention, int64_t micro, bool coarse,
                             int64_t least_known, bool *hopeless, vp_err *err)
{
    int64_t    chunk                         = smallest_chunk(r, micro * r->seq, coarse);
    setting    s                             = {.micro_batch = micro};
    vp_offload levels[VP_MAX_OFFLOAD_LEVELS] = {{0}};
    int        n_levels                      = vp_request_offloads(r, levels);
    vp_status  st                            = VP_OK;

    *hopeless = false;
    if (!least_known || chunk < 0)
        return VP_OK;
    s.loss_chunk = chunk;
    *hopeless    = true;
    while (n_levels > 0 && !may_offload(r, micro, &levels[n_levels - 1]))
        n_levels--;
    if (n_levels == 0)
        return VP_OK;
    s.offload = levels[n_levels - 1];
    VP_TRY(find_figures(r, cost, from, attention, &s, err));
    for (int64_t i = 0; i < from->n; i++)
        *hopeless &= is_beyond(r, least_outside_blocks(r, &s.figures[i]), least_known);
out:
    return st;
}

/* Whether the head needs no more above what is kept than every way to run a block does: a smaller
 * chunk, which takes longer, saves nothing then. */
static bool is_below_blocks(const recipes *from, const setting *s)
{
    const vp_library *lib        = &s->blocks->all;
    int64_t           beta_bytes = INT64_MAX;
    bool              below      = true;

    for (int64_t i = 0; i < lib->n; i++)
        beta_bytes =
            vp_min_i64(beta_bytes, lib->strategies[i].height_bytes - lib->strategies[i].kept_bytes);
    for (int64_t i = 0; i < from->n; i++)
        below &= s->figures[i].last_height_bytes <= beta_bytes;
    return below;
}

/* Bytes that all blocks but n_slots keep in host memory, where they move these outputs. */
static int64_t sent_bytes(int64_t n_blocks, const vp_outputs *outputs, uint64_t ops, int n_slots)
{
    int64_t bytes = 0;

    for (int op = 0; op < 64; op++)
        bytes = vp_add(bytes, ops >> op & 1 ? outputs->bytes[op] : 0);
    return vp_mul(bytes, vp_max_i64(0, n_blocks - n_slots));
}

/* Host memory of what is held there and of what blocks send, which begins aligned. */
static int64_t beside(int64_t held_bytes, int64_t bytes)
{
    return vp_overflowed(held_bytes) || bytes == 0
               ? held_bytes
               : vp_add(vp_round_up(held_bytes, VP_ALIGN_BYTES), bytes);
}

/* Whether one setting is no worse than another in anything that a plan of either could tell: seconds,
 * bytes of the device, and host memory, unless there is enough for whatever blocks move. */
static bool is_no_worse(const vp_plan_request *r, const setting *a, const setting *b, int64_t n)
{
    int64_t sent  = 0;
    bool    worse = false;

    for (int i = 0; i < a->blocks->n_moved; i++)
        sent = vp_max_i64(sent, sent_bytes(r->model->graph.n_instances - 2, &a->blocks->outputs,
                                           a->blocks->moved[i], 1));
    for (int64_t i = 0; i < n; i++) {
        const vp_figures *x = &a->figures[i], *y = &b->figures[i];
        worse |= x->stack_base_bytes > y->stack_base_bytes ||
                 x->first_kept_bytes > y->first_kept_bytes ||
                 x->first_height_bytes > y->first_height_bytes ||
                 x->last_height_bytes > y->last_height_bytes ||
                 x->outside_blocks_ns > y->outside_blocks_ns || x->step_time_s > y->step_time_s ||
                 (x->host_bytes > y->host_bytes && x->host_bytes > r->host_bytes - sent);
    }
    return !worse;
}

/* Where the host may make updates, a setting in which it does and one in which it does not follow each
 * other: one that is worse in something and better in nothing is not kept. */
static void drop_worse(const vp_plan_request *r, settings *list, int64_t n_recipes)
{
    setting *last = &list->at[list->n - 1], *before = last - 1;

    if (list->n < 2 || !last->offload.host_step || before->offload.host_step ||
        before->offload.states != last->offload.states ||
        before->offload.blocks != last->offload.blocks || before->blocks != last->blocks ||
        before->loss_chunk != last->loss_chunk)
        return;
    if (is_no_worse(r, before, last, n_recipes)) {
        list->n--;
    } else if (is_no_worse(r, last, before, n_recipes)) {
        *before = *last;
        list->n--;
    }
}

/* Where settings are many chunks double from one to the next: of all levels, or of those that offload. */
typedef struct coarseness {
    bool all, offloaded;
} coarseness;

/* Whether chunks that double have this one among them. */
static bool is_doubled(const vp_plan_request *r, int64_t chunk, int64_t n_tokens)
{
    int64_t c = next_chunk(r, -1, n_tokens, true);

    while (c >= 0 && c != chunk)
        c = next_chunk(r, c, n_tokens, true);
    return c == chunk;
}

/* One micro-batch and chunk with each level of offload, or with none alone. *low: as is_below_blocks(),
 * of all of them. */
static vp_status list_levels(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                             const recipes *from, vp_attention_kind attention, setting like,
                             bool none_alone, settings *out, bool *low, vp_err *err)
{
    vp_offload levels[VP_MAX_OFFLOAD_LEVELS] = {{0}};
    int        n_levels                      = vp_request_offloads(r, levels);
    vp_status  st                            = VP_OK;

    /* who knows what a measured call takes in smaller chunks; what moves needs less than any block */
    *low = !r->profile && r->host_bytes == 0;
    for (int level = 0; level < n_levels; level++) {
        if (!may_offload(r, like.micro_batch, &levels[level]) ||
            (none_alone && vp_offload_kind_of(&levels[level]) != VP_OFFLOAD_NONE))
            continue;
        VP_TRY_ALLOC(
            err, vp_arena_grow(a->arena, (void **)&out->at, out->n, &out->cap, sizeof *out->at));
        setting *s = &out->at[out->n];
        *s         = like;
        s->offload = levels[level];
        VP_TRY(find_figures(r, cost, from, attention, s, err));
        if (s->figures[0].unlike)
            continue;
        out->n++;
        *low &= is_below_blocks(from, s);
        drop_worse(r, out, from->n);
    }
out:
    return st;
}

/* One micro-batch with each chunk that may pay, and the smallest, which a tuner times. */
static vp_status list_chunks(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                             const recipes *from, vp_attention_kind attention, coarseness coarse,
                             vp_blocks *blocks, settings *out, vp_err *err)
{
    const int64_t n_tokens = blocks->micro_batch * r->seq;
    const int64_t smallest = smallest_chunk(r, n_tokens, coarse.all);
    bool          low;
    vp_status     st = VP_OK;

    for (int64_t chunk = next_chunk(r, -1, n_tokens, coarse.all); chunk >= 0;) {
        bool    none_alone = coarse.offloaded && !is_doubled(r, chunk, n_tokens);
        setting like = {.micro_batch = blocks->micro_batch, .loss_chunk = chunk, .blocks = blocks};
        VP_TRY(list_levels(r, a, cost, from, attention, like, none_alone, out, &low, err));
        chunk = low && chunk != smallest ? smallest : next_chunk(r, chunk, n_tokens, coarse.all);
    }
out:
    return st;
}

/* Takes the needs of a micro-batch's settings, those from `first` on, into *least, the least of all so
 * far; returns whether larger ones are of no use. Of a larger micro-batch every buffer of a program is as
 * large or larger and lives as long, so that its arena has room for the smaller one's. Allowed for is
 * what packing may differ from the best, a sixteenth of the stack, and the batch's padding: a few
 * buffers for each micro-step. */
static bool ends_here(const vp_plan_request *r, vp_space_extent extent, const settings *all,
                      int64_t first, int64_t n_recipes, least_need *least, bool *cut)
{
    least_need here = {INT64_MAX, INT64_MAX};
    int64_t    padding, micro;
    bool       larger_need_more;

    for (int64_t k = first; k < all->n; k++) {
        least_need need   = least_of(r, &all->at[k], n_recipes);
        here.device_bytes = vp_min_i64(here.device_bytes, need.device_bytes);
        here.stack_bytes  = vp_min_i64(here.stack_bytes, need.stack_bytes);
    }
    if (first == all->n)
        return false;
    least->device_bytes = vp_min_i64(least->device_bytes, here.device_bytes);
    least->stack_bytes  = vp_min_i64(least->stack_bytes, here.stack_bytes);
    /* with offload beside kernels only where all micro-steps are alike */
    micro            = all->at[first].micro_batch;
    larger_need_more = r->host_bytes == 0 || r->global_batch % micro == 0;
    padding          = vp_ceil_div(r->global_batch, micro) * (VP_MAX_SPANS + 1) * VP_ALIGN_BYTES;
    if (larger_need_more && extent != VP_SPACE_ALL &&
        (extent == VP_SPACE_LEAST || least->device_bytes > r->budget_bytes) &&
        here.device_bytes > least->device_bytes + least->stack_bytes / 16 + padding) {
        *cut = true;
        return true;
    }
    return larger_need_more && is_beyond(r, here.device_bytes, least->device_bytes);
}

static vp_status list_settings(const vp_plan_request *r, const vp_plan_answer *like,
                               vp_plan_answer *a, vp_cost *cost, vp_space_extent extent,
                               const recipes *from, vp_attention_kind attention, settings *out,
                               vp_err *err)
{
    const vp_semantics *semantics = vp_semantics_of(&from->of[0], attention);
    vp_outlines        *outlines  = NULL;
    vp_offload          levels[VP_MAX_OFFLOAD_LEVELS];
    least_need          least = {INT64_MAX, INT64_MAX};
    int64_t            *micros, n_micros, n_streamed = 0, n_levels;
    bool                hopeless, ends = false;
    const bool at_once = vp_recipe_updates_alone(&from->of[0]) && r->updates != VP_UPDATES_END;
    vp_status  st      = VP_OK;

    VP_TRY_ALLOC(err, micros = vp_request_micro_batches(r, a->arena, &n_micros));
    n_levels = vp_request_offloads(r, levels);
    for (int i = 0; i < n_levels;
         i++) /* of those with updates by the host about half are dropped */
        n_streamed += !levels[i].host_step;
    const coarseness coarse = {.all       = n_micros > MANY_SETTINGS,
                               .offloaded = n_micros * vp_max_i64(1, n_streamed) > MANY_SETTINGS};
    for (int64_t i = 0; i < n_micros && !ends; i++) {
        int64_t first = out->n;
        VP_TRY(is_hopeless(r, cost, from, attention, micros[i], coarse.all,
                           first ? least.device_bytes : 0, &hopeless, err));
        if (hopeless)
            continue;
        vp_blocks *b = find_blocks(a, micros[i], semantics);
        if (!b)
            b = find_blocks(like, micros[i], semantics);
        if (!b)
            VP_TRY(make_blocks(r, a, cost, micros[i], semantics, &outlines, &b, err));
        if (b->alone.n == 0) /* a smaller last micro-step would be unlike the others */
            continue;
        VP_TRY(list_chunks(r, a, cost, from, attention, coarse, b, out, err));
        ends = ends_here(r, extent, out, first, from->n, &least, &a->cut);
        if (ends && at_once && i < n_micros - 1) { /* one micro-step's gradients may need less */
            i    = n_micros - 2;
            ends = false;
        }
    }
out:
    vp_outlines_free(outlines);
    return st;
}

/* ---- scenarios ---- */

/* The hull of a program's items: that of a scenario before it with the same ones, or a new one. */
static const vp_ilp_hull *hull_of(const vp_plan_answer *a, const vp_ilp *ilp)
{
    enum { NEAR = 32 }; /* of one micro-batch they stand near each other */

    for (int64_t i = a->n_scenarios - 1; i >= 0 && i >= a->n_scenarios - NEAR; i--)
        if (a->problem.ilps[i].items == ilp->items)
            return a->problem.ilps[i].hull;
    return vp_ilp_hull_make(a->arena, ilp);
}

/* One more of a candidate, with what blocks can do. */
static vp_status add_scenario(vp_plan_answer *a, vp_candidate *c, const vp_library *library,
                              const vp_ilp *ilp, const vp_ilp *waiting, int64_t *cap, vp_err *err)
{
    int64_t   n  = a->n_scenarios;
    vp_status st = VP_OK;

    VP_TRY_ALLOC(
        err,
        vp_arena_grow(a->arena, (void **)&a->scenarios, n, &cap[0], sizeof *a->scenarios) &&
            vp_arena_grow(a->arena, (void **)&a->libraries, n, &cap[1], sizeof *a->libraries) &&
            vp_arena_grow(a->arena, (void **)&a->problem.ilps, n, &cap[2],
                          sizeof *a->problem.ilps) &&
            vp_arena_grow(a->arena, (void **)&a->waiting, n, &cap[3], sizeof(vp_ilp *)));
    assert(n < cap[0] && n < cap[1] && n < cap[2] && n < cap[3]);
    a->scenarios[n]    = c;
    a->libraries[n]    = library;
    a->problem.ilps[n] = *ilp;
    VP_TRY_ALLOC(err, a->problem.ilps[n].hull = hull_of(a, ilp));
    a->waiting[n] = waiting;
    a->n_scenarios++;
out:
    return st;
}

/* Those whose blocks move activations: of each choice of outputs with one slot, and with two. */
static vp_status add_moved(const vp_plan_request *r, vp_plan_answer *a, const setting *s,
                           const vp_candidate *base, const vp_ilp *ilp, int64_t *cap, vp_err *err)
{
    int64_t   arena_bytes = vp_device_arena_bytes(r->device, r->budget_bytes);
    vp_status st          = VP_OK;

    for (int i = 0; i < s->blocks->n_moved; i++)
        for (int n_slots = 1; n_slots <= VP_MAX_ACTIVATION_SLOTS; n_slots++) {
            const vp_library *lib = &s->blocks->moved_libraries[i];
            vp_ilp            p   = *ilp;
            if (lib->n == 0 || beside(base->figures.host_bytes,
                                      sent_bytes(ilp->n_blocks, &s->blocks->outputs,
                                                 s->blocks->moved[i], n_slots)) > r->host_bytes)
                continue;
            vp_candidate *c = vp_arena_alloc(a->arena, sizeof *c);
            VP_TRY_ALLOC(err, c);
            *c                              = *base;
            c->scenario.offload.activations = s->blocks->moved[i];
            c->scenario.offload.n_slots     = n_slots;
            vp_moved_add_slots(r->device, &s->blocks->outputs, s->blocks->moved[i], n_slots,
                               &c->figures);
            p.base_bytes += c->figures.stack_base_bytes - base->figures.stack_base_bytes;
            VP_TRY_ALLOC(err,
                         vp_moved_bound(a->arena, lib, n_slots, r->global_batch / s->micro_batch,
                                        &c->figures, arena_bytes, &p));
            VP_TRY(add_scenario(a, c, lib, &p, NULL, cap, err));
        }
out:
    return st;
}

/* Whether blocks that must move activations keep none but their inputs. */
static bool has_nothing_to_move(const vp_plan_request *r, const vp_blocks *b)
{
    return may_move(r, b->micro_batch) && b->n_moved == 0;
}

/* The least host memory of what blocks may do beside what is held there. */
static int64_t host_need(const vp_plan_request *r, const setting *s, int64_t held_bytes)
{
    const int64_t n_blocks    = r->model->graph.n_instances - 2;
    int64_t       least_bytes = INT64_MAX;

    if (!vp_request_must_move(r) || has_nothing_to_move(r, s->blocks))
        return held_bytes;
    for (int i = 0; i < s->blocks->n_moved; i++)
        for (int n_slots = 1; n_slots <= VP_MAX_ACTIVATION_SLOTS; n_slots++)
            if (s->blocks->moved_libraries[i].n > 0)
                least_bytes = vp_min_i64(least_bytes, sent_bytes(n_blocks, &s->blocks->outputs,
                                                                 s->blocks->moved[i], n_slots));
    return beside(held_bytes, least_bytes);
}

/* Whether activations may move beside this: states of none, half or all of the chain. */
static bool moves_beside(const vp_plan_request *r, const vp_offload *held)
{
    int64_t n = r->model->graph.n_instances;

    return held->states == 0 || held->states == n / 2 || held->states == n;
}

/* What gradients that are used up in backward need more where some segment is of m blocks. */
static int64_t more_passing(const vp_figures *f, int64_t m)
{
    return vp_max_i64(0, vp_mul(m, f->block_passing_bytes) - f->passing_bytes);
}

/* The strategies of at most m blocks. */
static vp_status take_shorter(vp_arena *arena, const vp_library *all, int64_t m, vp_library **out,
                              vp_err *err)
{
    vp_library *lib = vp_arena_alloc(arena, sizeof *lib);
    vp_status   st  = VP_OK;

    VP_TRY_ALLOC(err, lib);
    *lib = (vp_library){.n_lowered  = all->n_lowered,
                        .strategies = vp_arena_array(arena, all->n, sizeof *lib->strategies)};
    VP_TRY_ALLOC(err, lib->strategies);
    for (int64_t i = 0; i < all->n; i++)
        if (all->strategies[i].segment <= m)
            lib->strategies[lib->n++] = all->strategies[i];
    *out = lib;
out:
    return st;
}

/* Blocks in any way: one scenario, or where segments' gradients need more one for each length of the
 * longest that needs more than a shorter one. */
static vp_status add_any(const vp_plan_request *r, vp_plan_answer *a, const setting *s,
                         const vp_candidate *base, int64_t *cap, vp_err *err)
{
    const vp_library *all     = &s->blocks->all;
    int64_t           longest = 1;
    vp_status         st      = VP_OK;

    for (int64_t i = 0; i < all->n; i++)
        longest = vp_max_i64(longest, all->strategies[i].segment);
    for (int64_t m = 1; m <= longest; m++) {
        const int64_t more = more_passing(&base->figures, m);
        vp_library   *lib  = &s->blocks->all;
        vp_candidate *c;
        if (m < longest && more_passing(&base->figures, m + 1) == more)
            continue;
        if (m < longest)
            VP_TRY(take_shorter(a->arena, all, m, &lib, err));
        if (lib->n == 0)
            continue;
        VP_TRY_ALLOC(err, c = vp_arena_alloc(a->arena, sizeof *c));
        *c                          = *base;
        c->figures.stack_base_bytes = vp_add(c->figures.stack_base_bytes, more);
        c->figures.peak_bytes       = vp_add(c->figures.peak_bytes, more);
        c->figures.device_bytes     = vp_device_bytes(r->device, c->figures.peak_bytes);
        vp_ilp p                    = ilp_of(r, &c->figures, s->blocks, false);
        if (lib->n < all->n) {
            p.n_items = lib->n;
            VP_TRY_ALLOC(err,
                         p.items = make_items(a->arena, lib, r->global_batch / s->micro_batch));
        }
        VP_TRY(add_scenario(a, c, lib, &p, NULL, cap, err));
    }
out:
    return st;
}

/* Blocks in any way, or streamed and alone; and those that move activations. */
static vp_status add_scenarios(const vp_plan_request *r, vp_plan_answer *a, const setting *s,
                               const vp_recipe *recipe, int64_t recipe_idx,
                               vp_attention_kind attention, int64_t *cap, vp_err *err)
{
    vp_candidate *c  = vp_arena_alloc(a->arena, sizeof *c);
    vp_status     st = VP_OK;

    a->least_host_bytes =
        vp_min_i64(a->least_host_bytes, host_need(r, s, s->figures[recipe_idx].host_bytes));
    if (s->figures[recipe_idx].host_bytes > r->host_bytes)
        return VP_OK;
    VP_TRY_ALLOC(err, c);
    *c = (vp_candidate){.scenario = {.recipe         = *recipe,
                                     .seq            = r->seq,
                                     .global_batch   = r->global_batch,
                                     .micro_batch    = s->micro_batch,
                                     .loss_chunk     = s->loss_chunk,
                                     .attention      = attention,
                                     .offload        = s->offload,
                                     .updates_at_end = r->updates == VP_UPDATES_END},
                        .figures  = s->figures[recipe_idx]};
    assert(recipe_idx < VP_N_OPTIMIZERS);
    vp_scenario_set_all(&c->scenario, r->model, vp_pinned_set(r));
    const bool    alone    = s->offload.blocks;
    vp_ilp        p        = ilp_of(r, &c->figures, s->blocks, alone);
    const int64_t const_ns = p.const_ns;
    vp_ilp       *waiting  = NULL;
    if (alone) {
        VP_TRY_ALLOC(err, waiting = vp_arena_alloc(a->arena, sizeof *waiting));
        VP_TRY(bound_streamed(r, a, s, &c->figures.streamed, &p, waiting, err));
    }
    if (!vp_request_must_move(r) || has_nothing_to_move(r, s->blocks)) {
        if (alone)
            VP_TRY(add_scenario(a, c, &s->blocks->alone, &p, waiting, cap, err));
        else
            VP_TRY(add_any(r, a, s, c, cap, err));
    }
    p.const_ns = const_ns;
    if (moves_beside(r, &s->offload))
        VP_TRY(add_moved(r, a, s, c, &p, cap, err));
out:
    return st;
}

static recipes recipes_of(const vp_plan_request *r, vp_precision precision, vp_gradients gradients)
{
    vp_recipe all[VP_MAX_RECIPES];
    int       n   = vp_request_recipes(r, all);
    recipes   out = {.n = 0};

    for (int i = 0; i < n; i++)
        if (all[i].precision == precision && all[i].gradients == gradients)
            out.of[out.n++] = all[i];
    return out;
}

static vp_status list_formats(const vp_plan_request *r, const vp_plan_answer *like,
                              vp_plan_answer *a, vp_cost *cost, vp_space_extent extent,
                              vp_precision precision, vp_gradients gradients, int64_t *cap,
                              vp_err *err)
{
    recipes   from                  = recipes_of(r, precision, gradients);
    settings  list[VP_N_ATTENTIONS] = {{0}};
    vp_status st                    = VP_OK;

    if (from.n == 0)
        return VP_OK;
    for (int kind = 0; kind < VP_N_ATTENTIONS; kind++)
        if (r->attention == VP_ATTENTION_ANY || kind == (int)r->attention)
            VP_TRY(list_settings(r, like, a, cost, extent, &from, (vp_attention_kind)kind,
                                 &list[kind], err));
    for (int64_t i = 0; i < from.n; i++)
        for (int kind = 0; kind < VP_N_ATTENTIONS; kind++)
            for (int64_t k = 0; k < list[kind].n; k++)
                VP_TRY(add_scenarios(r, a, &list[kind].at[k], &from.of[i], i,
                                     (vp_attention_kind)kind, cap, err));
out:
    return st;
}

vp_status vp_space_list(const vp_plan_request *r, const vp_plan_answer *like, vp_plan_answer *a,
                        vp_cost *cost, vp_space_extent extent, vp_err *err)
{
    int64_t   cap[4] = {0};
    vp_status st     = VP_OK;

    a->n_scenarios      = 0;
    a->least_host_bytes = INT64_MAX;
    a->cut              = false;
    a->scenarios        = NULL;
    a->libraries        = NULL;
    a->waiting          = NULL;

    a->problem = (vp_ilp_problem){.budget_bytes = vp_device_arena_bytes(r->device, r->budget_bytes),
                                  .upper_ns     = INT64_MAX,
                                  .gap          = r->gap,
                                  .max_nodes    = 20000,
                                  .max_pivots   = 2000000,
                                  .max_memory_bytes = (int64_t)1 << 30};
    for (int p = 0; p < VP_N_PRECISIONS; p++)
        for (int g = 0; g < VP_N_GRADIENTS; g++)
            VP_TRY(
                list_formats(r, like, a, cost, extent, (vp_precision)p, (vp_gradients)g, cap, err));
    a->problem.n_ilps = a->n_scenarios;
out:
    return st;
}
