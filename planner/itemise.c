#include "planner/itemise.h"

#include "base/checked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIMIZER = 3 }; /* of phase_names */
static const char *const phase_names[VP_N_PHASES] = {"load", "forward", "backward", "optimizer"};

/* Index into phase_names. */
static int phase_of(const vp_expansion *x, int64_t step)
{
    return x->passes[step] == VP_PASS_FORWARD    ? 1
           : x->passes[step] == VP_PASS_BACKWARD ? 2
                                                 : OPTIMIZER;
}

/* Used at all, and of the memory whose peak is looked for. */
static bool is_on_device(const vp_expansion *x, int64_t buffer)
{
    return x->first_step[buffer] >= 0 && x->buffers[buffer].memory == VP_MEMORY_DEVICE;
}

static int64_t end_of(const vp_expanded_buffer *b)
{
    return b->offset_bytes + b->bytes;
}

/* Nothing is kept while the optimizer runs: what it needs above all that persists may lie far
 * apart in the stack's place. Then its bytes count, not the highest end. */
static vp_status lower_optimizer(vp_arena *arena, const vp_expansion *x, vp_itemised *out,
                                 vp_err *err)
{
    int64_t base_bytes = vp_round_up(out->phases[0].peak_bytes, VP_ALIGN_BYTES), live = 0, most = 0;
    int64_t *change = vp_arena_array(arena, x->n_steps + 1, sizeof *change);

    if (!change)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < x->n_buffers; i++)
        if (is_on_device(x, i) && x->buffers[i].offset_bytes >= base_bytes) {
            change[x->first_step[i]] += vp_round_up(x->buffers[i].bytes, VP_ALIGN_BYTES);
            change[x->last_step[i] + 1] -= vp_round_up(x->buffers[i].bytes, VP_ALIGN_BYTES);
        }
    for (int64_t s = 0; s < x->n_steps; s++) {
        live += change[s];
        assert(live >= 0);
        if (phase_of(x, s) == OPTIMIZER)
            most = vp_max_i64(most, live);
    }
    out->phases[OPTIMIZER].peak_bytes =
        vp_min_i64(out->phases[OPTIMIZER].peak_bytes, base_bytes + most);
    return VP_OK;
}

/* Height of each phase: of a buffer alive in steps first..last, its end counts in every phase
 * between. */
static vp_status phase_heights(vp_arena *arena, const vp_expansion *x, bool in_backward,
                               vp_itemised *out, vp_err *err)
{
    /* next[p][s]: first step >= s in phase p. */
    int64_t *next[VP_N_PHASES];

    for (int p = 1; p < VP_N_PHASES; p++) {
        next[p] = vp_arena_array(arena, x->n_steps + 1, sizeof(int64_t));
        if (!next[p])
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        next[p][x->n_steps] = INT64_MAX;
        for (int64_t s = x->n_steps - 1; s >= 0; s--)
            next[p][s] = phase_of(x, s) == p ? s : next[p][s + 1];
    }
    for (int64_t i = 0; i < x->n_buffers; i++) {
        if (!is_on_device(x, i))
            continue;
        if (x->buffers[i].persistent)
            out->phases[0].peak_bytes =
                vp_max_i64(out->phases[0].peak_bytes, end_of(&x->buffers[i]));
        for (int p = 1; p < VP_N_PHASES; p++)
            if (next[p][x->first_step[i]] <= x->last_step[i])
                out->phases[p].peak_bytes =
                    vp_max_i64(out->phases[p].peak_bytes, end_of(&x->buffers[i]));
    }
    return in_backward ? VP_OK : lower_optimizer(arena, x, out, err);
}

/* The step at which the arena is fullest, among those where a buffer reaches its top. */
static vp_status find_peak(vp_arena *arena, const vp_expansion *x, vp_itemised *out, vp_err *err)
{
    int64_t *live = vp_arena_array(arena, x->n_steps + 1, sizeof *live);
    bool    *top  = vp_arena_array(arena, x->n_steps + 1, sizeof *top);
    int64_t  sum = 0, best = -1;

    if (!live || !top)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < x->n_buffers; i++)
        if (is_on_device(x, i))
            out->peak_bytes = vp_max_i64(out->peak_bytes, end_of(&x->buffers[i]));
    for (int64_t i = 0; i < x->n_buffers; i++) {
        if (!is_on_device(x, i))
            continue;
        live[x->first_step[i]] += x->buffers[i].bytes;
        live[x->last_step[i] + 1] -= x->buffers[i].bytes;
        for (int64_t s = x->first_step[i];
             end_of(&x->buffers[i]) == out->peak_bytes && s <= x->last_step[i]; s++)
            top[s] = true;
    }
    for (int64_t s = 0; s < x->n_steps; s++) {
        sum += live[s];
        assert(sum >= 0 && sum <= out->peak_bytes); /* what is alive lies apart, below the peak */
        if (top[s] && sum > best) {
            best           = sum;
            out->peak_step = s;
        }
    }
    return VP_OK;
}

typedef struct group {
    vp_component component;
    const char  *template_name, *local_name;
    bool         of_blocks;
    int64_t      bytes, count;
} group;

static int by_size(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->component != y->component)
        return x->component < y->component ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : 0;
}

static const char *item_name(vp_arena *arena, const group *g)
{
    const char *what = vp_component_name(g->component);

    if (!g->local_name)
        return g->component == VP_COMP_OPTIMIZER_STATE
                   ? g->template_name[0] ? vp_arena_printf(arena, "%s.%s", what, g->template_name)
                                         : what
                   : what;
    if (g->count > 1)
        return vp_arena_printf(arena, "%s: %s %s (x%lld)", what, g->template_name, g->local_name,
                               (long long)g->count);
    return vp_arena_printf(arena, "%s: %s %s", what, g->template_name, g->local_name);
}

static vp_status list_items(vp_arena *arena, const vp_plan *plan, const vp_bucket *bucket,
                            const vp_expansion *x, vp_itemised *out, vp_err *err)
{
    group    *groups = vp_arena_array(arena, x->n_buffers, sizeof *groups);
    vp_range *gaps;
    int64_t   n = 0, n_gaps, used = 0, padding = 0;
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, groups);
    for (int64_t i = 0; i < x->n_buffers; i++) {
        const vp_expanded_buffer *b     = &x->buffers[i];
        int64_t                   g     = 0;
        const char               *owner = "";
        if (!is_on_device(x, i) || x->first_step[i] > out->peak_step ||
            x->last_step[i] < out->peak_step)
            continue;
        if (b->local_name)
            owner = plan->templates[bucket->programs[bucket->instances[b->instance_idx].program_idx]
                                        .template_idx]
                        .name;
        else if (b->state_name)
            owner = b->state_name;
        while (g < n && (groups[g].component != b->component ||
                         strcmp(groups[g].template_name, owner) != 0 ||
                         (b->local_name ? strcmp(groups[g].local_name, b->local_name) != 0
                                        : groups[g].local_name != NULL)))
            g++;
        if (g == n)
            groups[n++] = (group){.component     = b->component,
                                  .template_name = owner,
                                  .local_name    = b->local_name,
                                  .of_blocks     = b->local_name && b->instance_idx > 0 &&
                                               b->instance_idx < bucket->n_instances - 1};
        groups[g].bytes += b->bytes;
        groups[g].count++;
        used += b->bytes;
    }
    qsort(groups, (size_t)n, sizeof *groups, by_size);
    VP_TRY(vp_expansion_padding(arena, x, VP_MEMORY_DEVICE, out->peak_bytes, &gaps, &n_gaps, err));
    for (int64_t i = 0; i < n_gaps; i++)
        padding += gaps[i].end - gaps[i].begin;
    out->items = vp_arena_array(arena, n + 2, sizeof *out->items);
    VP_TRY_ALLOC(err, out->items);
    for (int64_t i = 0; i < n; i++)
        out->items[out->n_items++] = (vp_item){item_name(arena, &groups[i]), groups[i].component,
                                               groups[i].of_blocks, groups[i].bytes, "exact"};
    assert(used + padding <= out->peak_bytes);
    if (out->peak_bytes - used - padding > 0)
        out->items[out->n_items++] = (vp_item){"free at the peak", VP_COMP_PADDING, false,
                                               out->peak_bytes - used - padding, "exact"};
    if (padding > 0)
        out->items[out->n_items++] = (vp_item){"padding", VP_COMP_PADDING, false, padding, "exact"};
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
out:
    return st;
}

vp_status vp_itemise(vp_arena *arena, const vp_plan *plan, const vp_bucket *bucket,
                     vp_itemised *out, vp_err *err)
{
    const int64_t       n_micro = vp_unrolled_micro_steps(bucket);
    const vp_expansion *x       = &out->x;
    vp_status           st      = VP_OK;

    *out = (vp_itemised){0};
    VP_TRY(vp_expansion_make(arena, plan, bucket, n_micro, &out->x, err));
    for (int p = 0; p < VP_N_PHASES; p++)
        out->phases[p].name = phase_names[p];
    VP_TRY(find_peak(arena, x, out, err));
    assert(out->peak_step < x->n_steps);
    VP_TRY(phase_heights(arena, x, plan->updates_in_backward, out, err));
    VP_TRY(list_items(arena, plan, bucket, x, out, err));
    out->peak_phase = phase_names[phase_of(x, out->peak_step)];
out:
    return st;
}
