#include "planner/blocks.h"

#include "base/checked.h"
#include "planner/moved_space.h"
#include "planner/outline.h"

#include <assert.h>

uint64_t vp_pinned_set(const vp_plan_request *r)
{
    return r->recompute == VP_RECOMPUTE_ANY ? 0 : vp_recompute_set(r->model, r->recompute);
}

vp_blocks *vp_blocks_find(const vp_plan_answer *a, int64_t micro, const vp_semantics *semantics)
{
    for (; a; a = a->like)
        for (int64_t i = 0; i < a->n_blocks; i++)
            if (a->blocks[i]->micro_batch == micro && a->blocks[i]->semantics == semantics)
                return a->blocks[i];
    return NULL;
}

vp_item_row *vp_items_make(vp_arena *arena, const vp_library *lib, int64_t n_full)
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

bool vp_blocks_may_move(const vp_plan_request *r, int64_t micro)
{
    return r->host_bytes > 0 && !r->n_segments && vp_request_moves(r) &&
           r->global_batch % micro == 0;
}

static bool is_among(const uint64_t *sets, int n, uint64_t set)
{
    int i = 0;

    while (i < n && sets[i] != set)
        i++;
    return i < n;
}

/* The choices of outputs among those that a set leaves, each with the blocks' library; none twice. base:
 * as for vp_library_of_moved(). */
static vp_status add_choices(const vp_outlines *outlines, uint64_t leaves, const vp_library *base,
                             const uint64_t *sets, int n_sets, vp_blocks *b, vp_err *err)
{
    uint64_t  choices[VP_MAX_MOVED_CHOICES];
    int       n;
    vp_status st = VP_OK;

    vp_moved_choices(&b->outputs, leaves, choices, &n);
    for (int i = 0; i < n; i++) {
        if (is_among(b->moved, b->n_moved, choices[i]))
            continue;
        assert(b->n_moved < VP_MAX_MOVED_LIBRARIES);
        b->moved[b->n_moved] = choices[i];
        VP_TRY(vp_library_of_moved(b->arena, outlines, base, sets, n_sets, choices[i], &b->outputs,
                                   &b->moved_libraries[b->n_moved], err));
        b->n_moved++;
    }
out:
    return st;
}

/* The libraries of blocks that may move activations. Where recompute is free: of the choices among all
 * outputs; and, of each recompute kind, blocks of that kind with the choices among what it leaves. */
static vp_status make_moved(const vp_plan_request *r, vp_cost *cost, vp_outline_store *store,
                            vp_blocks *b, vp_err *err)
{
    uint64_t     kinds[VP_N_RECOMPUTES];
    uint64_t     pinned = vp_pinned_set(r);
    vp_outlines *outlines;
    vp_status    st = VP_OK;

    VP_TRY(vp_outline_store_get(store, b->semantics, r->seq, b->micro_batch, cost, &outlines, err));
    vp_library_outputs(outlines, r->model, cost, &b->outputs);
    if (r->recompute != VP_RECOMPUTE_ANY) {
        VP_TRY(add_choices(outlines, pinned, NULL, &pinned, 1, b, err));
        goto out;
    }
    for (int k = 0; k < VP_N_RECOMPUTES; k++)
        kinds[k] = vp_recompute_set(r->model, (vp_recompute)k);
    VP_TRY(add_choices(outlines, 0, &b->alone, kinds, VP_N_RECOMPUTES, b, err));
    for (int k = 0; k < VP_N_RECOMPUTES; k++)
        VP_TRY(add_choices(outlines, kinds[k], NULL, &kinds[k], 1, b, err));
out:
    return st;
}

/* Single blocks, and with them the segments that there may be; or the pinned ones alone. */
static vp_status make_libraries(const vp_plan_request *r, vp_cost *cost, vp_outline_store *outlines,
                                vp_blocks *b, vp_err *err)
{
    const vp_micro_steps steps  = vp_micro_steps_of(r->global_batch, b->micro_batch);
    const int64_t        pinned = vp_request_segment(r), n_full = steps.n_full;
    vp_status            st = VP_OK;

    if (r->recompute != VP_RECOMPUTE_ANY)
        VP_TRY(vp_library_of_set(b->arena, r->model, r->seq, steps, b->semantics, cost,
                                 vp_pinned_set(r), &b->alone, err));
    else
        VP_TRY(
            vp_library_make(b->arena, outlines, r->seq, steps, b->semantics, cost, &b->alone, err));
    b->all = b->alone;
    if (pinned > 1)
        VP_TRY(vp_library_of_segment(b->arena, r->model, r->seq, steps, b->semantics, cost, pinned,
                                     &b->all, err));
    else if (r->recompute == VP_RECOMPUTE_ANY && b->alone.n > 0)
        VP_TRY(vp_library_with_segments(b->arena, outlines, r->seq, steps, b->semantics, cost,
                                        &b->alone, vp_longest_segment(r->model), &b->all, err));
    if (b->alone.n > 0) {
        VP_TRY_ALLOC(err, b->alone_items = vp_items_make(b->arena, &b->alone, n_full));
        VP_TRY_ALLOC(err, b->all_items = vp_items_make(b->arena, &b->all, n_full));
    }
out:
    return st;
}

vp_status vp_blocks_make(const vp_plan_request *r, vp_cost *cost, int64_t micro,
                         const vp_semantics *semantics, vp_outline_store *outlines, vp_blocks **out,
                         vp_err *err)
{
    vp_arena  *arena = vp_arena_new();
    vp_blocks *b     = arena ? vp_arena_alloc(arena, sizeof *b) : NULL;
    vp_status  st    = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, b);
    *b = (vp_blocks){.arena = arena, .micro_batch = micro, .semantics = semantics};
    VP_TRY(make_libraries(r, cost, outlines, b, err));
    if (vp_blocks_may_move(r, micro))
        VP_TRY(make_moved(r, cost, outlines, b, err));
    *out  = b;
    arena = NULL;
out:
    vp_arena_free(arena);
    return st;
}

void vp_blocks_free(vp_blocks *b)
{
    if (b)
        vp_arena_free(b->arena);
}

vp_status vp_blocks_keep(vp_plan_answer *a, vp_blocks *b, vp_err *err)
{
    if (!vp_arena_grow(a->arena, (void **)&a->blocks, a->n_blocks, &a->cap_blocks,
                       sizeof *a->blocks)) {
        vp_blocks_free(b);
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    }
    a->blocks[a->n_blocks++] = b;
    return VP_OK;
}
