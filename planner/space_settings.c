#include "planner/space_settings.h"

#include "base/beside.h"
#include "base/checked.h"
#include "base/units.h"
#include "planner/moved_space.h"

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

/* ---- what a setting needs ---- */

/* What a scenario needs at least, whatever its blocks do. */
static int64_t least_outside_blocks(const vp_plan_request *r, const vp_figures *f)
{
    return vp_device_bytes(
        r->device,
        vp_add(f->stack_base_bytes, vp_max_i64(f->first_height_bytes,
                                               vp_add(f->first_kept_bytes, f->last_height_bytes))));
}

vp_ilp vp_setting_ilp(const vp_plan_request *r, const vp_figures *f, const vp_blocks *b, bool alone)
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

/* so_far: of other settings; what is no less than both of its figures is not told exactly. */
static least_need least_of(const vp_plan_request *r, const vp_setting *s, int64_t n_recipes,
                           const least_need *so_far)
{
    const int64_t kept_bytes = s->figures[0].first_kept_bytes;
    const vp_ilp  p          = vp_setting_ilp(r, &s->figures[0], s->blocks, s->offload.blocks);
    least_need    least      = {.stack_bytes = vp_add(kept_bytes, vp_space_bytes_bound(&p))};
    int64_t       base_bytes = INT64_MAX;

    for (int64_t i = 0; i < n_recipes; i++)
        base_bytes = vp_min_i64(base_bytes, s->figures[i].stack_base_bytes);
    if (least.stack_bytes < so_far->stack_bytes ||
        vp_device_bytes(r->device, vp_add(base_bytes, least.stack_bytes)) < so_far->device_bytes)
        least.stack_bytes = vp_add(kept_bytes, vp_space_least_bytes(&p, NULL, NULL));
    for (int i = 0; i < s->blocks->n_moved; i++)
        if (s->blocks->moved_libraries[i].n)
            least.stack_bytes =
                vp_min_i64(least.stack_bytes,
                           vp_add(kept_bytes, least_above(&s->blocks->moved_libraries[i],
                                                          r->model->graph.n_instances - 2,
                                                          s->figures[0].last_height_bytes)));
    least.device_bytes = vp_device_bytes(r->device, vp_add(base_bytes, least.stack_bytes));
    return least;
}

void vp_setting_scenario(const vp_plan_request *r, const vp_setting *s, const vp_recipe *recipe,
                         vp_attention_kind attention, vp_scenario *out)
{
    *out = (vp_scenario){.recipe         = *recipe,
                         .seq            = r->seq,
                         .global_batch   = r->global_batch,
                         .micro_batch    = s->micro_batch,
                         .loss_chunk     = s->loss_chunk,
                         .attention      = attention,
                         .offload        = s->offload,
                         .updates_at_end = r->updates == VP_UPDATES_END};
    vp_scenario_set_all(out, r->model, vp_pinned_set(r));
}

/* All that a setting's chunks have in common. timed: as for vp_frame_make(). */
static vp_status frame_of(const vp_plan_request *r, vp_cost *cost, const vp_recipes *from,
                          vp_attention_kind attention, const vp_setting *s, bool timed,
                          vp_frame **out, vp_err *err)
{
    vp_scenario x;

    vp_setting_scenario(r, s, &from->of[0], attention, &x);
    return vp_frame_make(r->model, &x, from->of, from->n, timed, cost, out, err);
}

vp_status vp_setting_figures(const vp_plan_request *r, vp_cost *cost, const vp_recipes *from,
                             vp_attention_kind attention, vp_setting *s, vp_err *err)
{
    vp_frame *frame = NULL;
    vp_status st    = VP_OK;

    VP_TRY(frame_of(r, cost, from, attention, s, false, &frame, err));
    VP_TRY(vp_frame_figures(frame, s->loss_chunk, s->figures, err));
out:
    vp_frame_free(frame);
    return st;
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
static vp_status is_hopeless(const vp_plan_request *r, vp_cost *cost, const vp_recipes *from,
                             vp_attention_kind attention, int64_t micro, bool coarse,
                             int64_t least_known, bool *hopeless, vp_err *err)
{
    int64_t    chunk                         = smallest_chunk(r, micro * r->seq, coarse);
    vp_setting s                             = {.micro_batch = micro};
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
    VP_TRY(vp_setting_figures(r, cost, from, attention, &s, err));
    for (int64_t i = 0; i < from->n; i++)
        *hopeless &= is_beyond(r, least_outside_blocks(r, &s.figures[i]), least_known);
out:
    return st;
}

/* Whether the head needs no more above what is kept than every way to run a block does: a smaller
 * chunk, which takes longer, saves nothing then. */
static bool is_below_blocks(const vp_recipes *from, const vp_setting *s)
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

/* Whether one setting is no worse than another in anything that a plan of either could tell: seconds,
 * bytes of the device, and host memory, unless there is enough for whatever blocks move. */
static bool is_no_worse(const vp_plan_request *r, const vp_setting *a, const vp_setting *b,
                        int64_t n)
{
    int64_t sent  = 0;
    bool    worse = false;

    for (int i = 0; i < a->blocks->n_moved; i++)
        sent = vp_max_i64(sent, vp_moved_sent_bytes(r->model->graph.n_instances - 2,
                                                    &a->blocks->outputs, a->blocks->moved[i], 1));
    for (int64_t i = 0; i < n; i++) {
        const vp_figures *x = &a->figures[i], *y = &b->figures[i];
        const int64_t     x_pinned = x->host_bytes - x->pageable_bytes,
                      y_pinned     = y->host_bytes - y->pageable_bytes;
        worse |= x->stack_base_bytes > y->stack_base_bytes ||
                 x->first_kept_bytes > y->first_kept_bytes ||
                 x->first_height_bytes > y->first_height_bytes ||
                 x->last_height_bytes > y->last_height_bytes ||
                 x->outside_blocks_ns > y->outside_blocks_ns || x->step_time_s > y->step_time_s ||
                 (x->host_bytes > y->host_bytes && x->host_bytes > r->host_bytes - sent) ||
                 (r->pinned_bytes && x_pinned > y_pinned && x_pinned > r->pinned_bytes - sent);
    }
    return !worse;
}

/* Where the host may make updates, a setting in which it does and one in which it does not follow each
 * other: one that is worse in something and better in nothing is not kept. */
static void drop_worse(const vp_plan_request *r, vp_settings *list, int64_t n_recipes)
{
    vp_setting *last = &list->at[list->n - 1], *before = last - 1;

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
 * of all of them. frames: of the micro-batch, by level; NULL: not made yet. */
static vp_status list_levels(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                             const vp_recipes *from, vp_attention_kind attention, vp_setting like,
                             bool none_alone, vp_frame **frames, vp_settings *out, bool *low,
                             vp_err *err)
{
    vp_offload levels[VP_MAX_OFFLOAD_LEVELS] = {{0}};
    int        n_levels                      = vp_request_offloads(r, levels);
    bool       host_steps                    = false; /* for which seconds are compared */
    vp_status  st                            = VP_OK;

    for (int level = 0; level < n_levels; level++)
        host_steps |= levels[level].host_step;
    /* who knows what a measured call takes in smaller chunks; what moves needs less than any block */
    *low = !r->profile && r->host_bytes == 0;
    for (int level = 0; level < n_levels; level++) {
        if (!may_offload(r, like.micro_batch, &levels[level]) ||
            (none_alone && vp_offload_kind_of(&levels[level]) != VP_OFFLOAD_NONE))
            continue;
        VP_TRY_ALLOC(
            err, vp_arena_grow(a->arena, (void **)&out->at, out->n, &out->cap, sizeof *out->at));
        vp_setting *s = &out->at[out->n];
        *s            = like;
        s->offload    = levels[level];
        if (!frames[level])
            VP_TRY(frame_of(r, cost, from, attention, s, host_steps, &frames[level], err));
        VP_TRY(vp_frame_figures(frames[level], s->loss_chunk, s->figures, err));
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
                             const vp_recipes *from, vp_attention_kind attention, coarseness coarse,
                             vp_blocks *blocks, vp_settings *out, vp_err *err)
{
    const int64_t n_tokens                      = blocks->micro_batch * r->seq;
    const int64_t smallest                      = smallest_chunk(r, n_tokens, coarse.all);
    vp_frame     *frames[VP_MAX_OFFLOAD_LEVELS] = {NULL};
    bool          low;
    vp_status     st = VP_OK;

    for (int64_t chunk = next_chunk(r, -1, n_tokens, coarse.all); chunk >= 0;) {
        bool       none_alone = coarse.offloaded && !is_doubled(r, chunk, n_tokens);
        vp_setting like       = {
                  .micro_batch = blocks->micro_batch, .loss_chunk = chunk, .blocks = blocks};
        VP_TRY(list_levels(r, a, cost, from, attention, like, none_alone, frames, out, &low, err));
        chunk = low && chunk != smallest ? smallest : next_chunk(r, chunk, n_tokens, coarse.all);
    }
out:
    for (int level = 0; level < VP_MAX_OFFLOAD_LEVELS; level++)
        vp_frame_free(frames[level]);
    return st;
}

/* Takes the needs of a micro-batch's settings, those from `first` on, into *least, the least of all so
 * far; returns whether larger ones are of no use. Of a larger micro-batch every buffer of a program is as
 * large or larger and lives as long, so that its arena has room for the smaller one's. Allowed for is
 * what packing may differ from the best, a sixteenth of the stack, and the batch's padding: a few
 * buffers for each micro-step. */
static bool ends_here(const vp_plan_request *r, vp_space_extent extent, const vp_settings *all,
                      int64_t first, int64_t n_recipes, least_need *least, bool *cut)
{
    least_need here = {INT64_MAX, INT64_MAX};
    int64_t    padding, micro;
    bool       larger_need_more;

    for (int64_t k = first; k < all->n; k++) {
        least_need need   = least_of(r, &all->at[k], n_recipes, &here);
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

/* ---- the blocks of the next micro-batch, while settings of one are listed ---- */

typedef struct maker {
    const vp_plan_request *r;
    const vp_semantics    *semantics;
    vp_outline_store      *outlines; /* nobody else's meanwhile */
    vp_cost                cost;
    int64_t                micro_batch; /* 0: none was offered */
    vp_beside              beside;
    vp_blocks             *made;
    vp_err                 err;
    vp_status              st;
} maker;

static void make_blocks(void *with)
{
    maker *m = with;

    m->st = vp_blocks_make(m->r, &m->cost, m->micro_batch, m->semantics, m->outlines, &m->made,
                           &m->err);
}

/* Those that an answer, or one that it is like, has already; NULL: none. */
static vp_blocks *find_blocks(const vp_plan_answer *like, const vp_plan_answer *a, int64_t micro,
                              const vp_semantics *semantics)
{
    vp_blocks *b = vp_blocks_find(a, micro, semantics);

    return b ? b : vp_blocks_find(like, micro, semantics);
}

/* The first of some micro-batches that has no blocks yet. */
static void offer_next(maker *m, const vp_plan_answer *like, const vp_plan_answer *a,
                       const int64_t *micros, int64_t n)
{
    int64_t i = 0;

    while (i < n && find_blocks(like, a, micros[i], m->semantics))
        i++;
    if (m->micro_batch || i == n)
        return;
    m->micro_batch = micros[i];
    vp_beside_offer(&m->beside, make_blocks, m);
}

/* Whatever was begun is the answer's; what is wanted is made. */
static vp_status settle(maker *m, vp_plan_answer *a, bool wanted, vp_err *err)
{
    vp_status st = VP_OK;

    if (!m->micro_batch || (!wanted && vp_beside_take_back(&m->beside))) {
        m->micro_batch = 0;
        return VP_OK;
    }
    vp_beside_finish(&m->beside);
    m->micro_batch = 0;
    if (m->st != VP_OK) {
        *err = m->err;
        return m->st;
    }
    VP_TRY(vp_blocks_keep(a, m->made, err));
out:
    return st;
}

static vp_status blocks_of(maker *m, const vp_plan_answer *like, vp_plan_answer *a, int64_t micro,
                           vp_blocks **out, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(settle(m, a, m->micro_batch == micro, err));
    if (!(*out = find_blocks(like, a, micro, m->semantics))) {
        VP_TRY(vp_blocks_make(m->r, &m->cost, micro, m->semantics, m->outlines, &m->made, err));
        *out = m->made;
        VP_TRY(vp_blocks_keep(a, m->made, err));
    }
out:
    return st;
}

vp_status vp_settings_list(const vp_plan_request *r, const vp_plan_answer *like, vp_plan_answer *a,
                           vp_cost *cost, vp_space_extent extent, const vp_recipes *from,
                           vp_attention_kind attention, vp_settings *out, vp_err *err)
{
    vp_outline_store *own = r->outlines ? NULL : vp_outline_store_new(r->model);
    maker             m   = {.r         = r,
                             .semantics = vp_semantics_of(&from->of[0], attention),
                             .outlines  = r->outlines ? r->outlines : own,
                             .cost      = *cost};
    vp_offload        levels[VP_MAX_OFFLOAD_LEVELS];
    least_need        least = {INT64_MAX, INT64_MAX};
    int64_t          *micros, n_micros, n_streamed = 0, n_levels;
    bool              hopeless, many, ends         = false;
    const bool at_once = vp_recipe_updates_alone(&from->of[0]) && r->updates != VP_UPDATES_END;
    vp_status  st      = VP_OK, settled;

    VP_TRY_ALLOC(err, m.outlines);
    vp_outline_store_forget_costs(m.outlines);
    VP_TRY_ALLOC(err, micros = vp_request_micro_batches(r, a->arena, &n_micros, &many));
    n_levels = vp_request_offloads(r, levels);
    for (int i = 0; i < n_levels;
         i++) /* of those with updates by the host about half are dropped */
        n_streamed += !levels[i].host_step;
    const coarseness coarse = {
        .all = many, .offloaded = many || n_micros * vp_max_i64(1, n_streamed) > MANY_SETTINGS};
    for (int64_t i = 0; i < n_micros && !ends; i++) {
        int64_t    first = out->n;
        vp_blocks *b;
        VP_TRY(is_hopeless(r, cost, from, attention, micros[i], coarse.all,
                           first ? least.device_bytes : 0, &hopeless, err));
        if (hopeless)
            continue;
        VP_TRY(blocks_of(&m, like, a, micros[i], &b, err));
        if (b->alone.n == 0) /* a smaller last micro-step would be unlike the others */
            continue;
        /* two micro-batches are looked at in any case, nearly */
        if (i == 0 || extent == VP_SPACE_ALL ||
            (extent == VP_SPACE_FIT && least.device_bytes <= r->budget_bytes))
            offer_next(&m, like, a, micros + i + 1, n_micros - i - 1);
        VP_TRY(list_chunks(r, a, cost, from, attention, coarse, b, out, err));
        ends = ends_here(r, extent, out, first, from->n, &least, &a->cut);
        if (ends && at_once && i < n_micros - 1) { /* one micro-step's gradients may need less */
            i    = n_micros - 2;
            ends = false;
        }
    }
out:
    settled = settle(&m, a, false, st == VP_OK ? err : &(vp_err){0});
    st      = st == VP_OK ? settled : st;
    cost->all_measured &= m.cost.all_measured;
    vp_outline_store_free(own);
    return st;
}

vp_status vp_settings_of(const vp_plan_request *r, vp_plan_answer *a, vp_cost *cost,
                         const vp_recipe *recipe, vp_attention_kind attention, vp_blocks *blocks,
                         vp_settings *out, vp_err *err)
{
    const vp_recipes from = {.of = {*recipe}, .n = 1};

    return list_chunks(r, a, cost, &from, attention, (coarseness){true, true}, blocks, out, err);
}
