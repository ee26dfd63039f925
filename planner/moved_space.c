#include "planner/moved_space.h"

#include "base/checked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- which outputs ---- */

typedef struct output {
    int    op;
    double worth; /* of its copy's time */
} output;

static int by_worth(const void *a, const void *b)
{
    const output *x = a, *y = b;

    if (x->worth != y->worth)
        return x->worth > y->worth ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

void vp_moved_choices(const vp_outputs *o, uint64_t recompute,
                      uint64_t choices[VP_MAX_MOVED_CHOICES], int *n)
{
    enum { LEAST_SHARE = 32 }; /* what is smaller than this share of the largest stays */
    output   list[64];
    int      n_outputs = 0;
    int64_t  most      = 0;
    uint64_t set       = 0;

    for (int op = 0; op < 64; op++)
        most = vp_max_i64(most, o->bytes[op]);
    for (int op = 0; op < 64; op++)
        if (!(recompute >> op & 1) && o->bytes[op] > 0 && o->bytes[op] >= most / LEAST_SHARE)
            list[n_outputs++] = (output){op, (double)o->again_ns[op] / (double)o->copy_ns[op]};
    qsort(list, (size_t)n_outputs, sizeof *list, by_worth);
    n_outputs = n_outputs < VP_MAX_MOVED ? n_outputs : VP_MAX_MOVED;
    *n        = 0;
    for (int i = 0, taken = 0; i < n_outputs; i++) {
        set |= UINT64_C(1) << list[i].op;
        /* as many choices as there may be, as evenly as that goes, all outputs the last */
        if ((i + 1) * VP_MAX_MOVED_CHOICES / n_outputs > taken) {
            taken           = (i + 1) * VP_MAX_MOVED_CHOICES / n_outputs;
            choices[(*n)++] = set;
        }
    }
    assert(*n <= VP_MAX_MOVED_CHOICES);
}

void vp_moved_add_slots(const vp_device *device, const vp_outputs *o, uint64_t activations,
                        int n_slots, vp_figures *f)
{
    int64_t bytes = 0;

    for (int op = 0; op < 64; op++)
        if (activations >> op & 1)
            bytes = vp_add(bytes, vp_round_up(o->bytes[op], VP_ALIGN_BYTES));
    bytes               = vp_mul(bytes, n_slots);
    f->stack_base_bytes = vp_add(f->stack_base_bytes, bytes);
    f->peak_bytes       = vp_add(f->peak_bytes, bytes);
    f->device_bytes     = vp_device_bytes(device, f->peak_bytes);
}

/* ---- what no plan undercuts ---- */

typedef struct bounds {
    const vp_library *lib;
    /* of each strategy over all micro-steps: forward; kernels of backward; the same where the next block's
     * copies are waited for; all copies that backward waits for */
    int64_t *forward_ns, *kernels_ns, *backward_ns, *fetched_ns;
    int64_t  sent_ns; /* copies of all blocks' activations to host memory   */
    /* what the ends of a chain may not wait for: of forward_ns, of backward_ns and of fetched_ns */
    int64_t unsent_ns, unfetched_ns, end_ns;
} bounds;

static bool find_bounds(vp_arena *arena, const vp_library *lib, int64_t n_blocks, int n_slots,
                        int64_t n_micro, const vp_streamed_figures *s, bounds *b)
{
    const int64_t later = n_micro - 1, both_ns = s->params_ns + s->gradients_ns;
    const int64_t first_ns  = vp_streamed_first_ns(s);
    const int64_t copies_ns = lib->strategies[0].copy_ns;

    *b = (bounds){.lib         = lib,
                  .forward_ns  = vp_arena_array(arena, lib->n, sizeof(int64_t)),
                  .kernels_ns  = vp_arena_array(arena, lib->n, sizeof(int64_t)),
                  .backward_ns = vp_arena_array(arena, lib->n, sizeof(int64_t)),
                  .fetched_ns  = vp_arena_array(arena, lib->n, sizeof(int64_t))};
    if (vp_arena_failed(arena))
        return false;
    for (int64_t i = 0; i < lib->n; i++) {
        const vp_strategy *x           = &lib->strategies[i];
        int64_t            backward_ns = x->ns - x->forward_ns;
        assert(backward_ns >= 0 && x->copy_ns == copies_ns);
        b->forward_ns[i] = vp_max_i64(x->forward_ns, s->params_ns) * n_micro;
        b->kernels_ns[i] = backward_ns * n_micro;
        b->backward_ns[i] =
            vp_max_i64(backward_ns, first_ns) + vp_max_i64(backward_ns, both_ns) * later;
        b->fetched_ns[i] = copies_ns * n_micro + s->params_ns + both_ns * later;
        b->unsent_ns     = vp_max_i64(b->unsent_ns, b->forward_ns[i] - x->forward_ns * n_micro);
        b->unfetched_ns  = vp_max_i64(b->unfetched_ns, b->backward_ns[i] - b->kernels_ns[i] +
                                                           vp_max_i64(0, first_ns - backward_ns));
    }
    b->sent_ns = vp_max_i64(0, n_blocks - n_slots) * copies_ns * n_micro;
    b->end_ns  = n_slots * copies_ns * n_micro + s->params_ns + both_ns * later;
    return true;
}

/* The integer program in which blocks of the strategies from `first` on take what their copies do, and
 * those before them what `others` says: kernels, or also what the next block fetches. The former
 * stand last in the chain, so that backward begins with them. False: it would have a cost below zero. */
static bool weigh(const bounds *b, int64_t const_ns, int64_t first, const int64_t *others,
                  vp_ilp *p)
{
    const bool sent     = b->sent_ns > p->n_blocks * b->forward_ns[0];
    int64_t    least_ns = INT64_MAX, each_ns;

    p->const_ns = const_ns + (sent ? b->sent_ns : -b->unsent_ns) -
                  (others == b->backward_ns ? b->unfetched_ns : 0) -
                  (first < p->n_items ? b->end_ns : 0);
    /* a constant below zero becomes the blocks': there are as many in every chain */
    each_ns = p->const_ns < 0 ? vp_ceil_div(-p->const_ns, p->n_blocks) : 0;
    p->const_ns += each_ns * p->n_blocks;
    for (int64_t i = 0; i < p->n_items; i++) {
        const vp_strategy *x  = &b->lib->strategies[i];
        int64_t            ns = i >= first ? b->fetched_ns[i] : others[i];
        p->items[i]           = (vp_item_row){.k_bytes    = x->kept_bytes,
                                              .beta_bytes = x->height_bytes - x->kept_bytes,
                                              .cost_ns    = ns + (sent ? 0 : b->forward_ns[i]) - each_ns};
        least_ns              = vp_min_i64(least_ns, p->items[i].cost_ns);
    }
    return least_ns >= 0;
}

/* The first of the strategies at the list's end whose copies all take longer than their kernels. */
static int64_t first_limited(const bounds *b)
{
    int64_t i = b->lib->n;

    while (i > 0 && b->fetched_ns[i - 1] > b->backward_ns[i - 1])
        i--;
    return i;
}

bool vp_moved_bound(vp_arena *arena, const vp_library *lib, int n_slots, int64_t n_micro,
                    const vp_figures *f, int64_t arena_bytes, vp_ilp *p)
{
    const int64_t const_ns = p->const_ns;
    int64_t       best_ns  = -1, ns;
    bounds        b;

    p->n_items = lib->n;
    p->items   = vp_arena_array(arena, lib->n, sizeof *p->items);
    if (!p->items || !find_bounds(arena, lib, p->n_blocks, n_slots, n_micro, &f->streamed, &b))
        return false;
    /* kernels alone have no cost below zero */
    const int64_t  from[] = {lib->n, first_limited(&b), 0};
    int64_t        first = lib->n, *others = b.kernels_ns;
    int64_t *const kinds[] = {b.kernels_ns, b.backward_ns};
    for (int k = 0; k < 6; k++)
        if ((k < 2 || from[1] < lib->n) && (k % 2 == 0 || b.unfetched_ns > 0) &&
            weigh(&b, const_ns, from[k / 2], kinds[k % 2], p) && vp_dp_bound(p, arena_bytes, &ns) &&
            ns > best_ns) {
            best_ns = ns;
            first   = from[k / 2];
            others  = kinds[k % 2];
        }
    weigh(&b, const_ns, first, others, p);
    return true;
}
