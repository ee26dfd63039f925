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

void vp_moved_choices(const vp_outputs *o, uint64_t choices[VP_MAX_MOVED_CHOICES], int *n)
{
    enum { LEAST_SHARE = 32 }; /* what is smaller than this share of the largest stays */
    output   list[64];
    int      n_outputs = 0;
    int64_t  most      = 0;
    uint64_t set       = 0;

    for (int op = 0; op < 64; op++)
        most = vp_max_i64(most, o->bytes[op]);
    for (int op = 0; op < 64; op++)
        if (o->bytes[op] > 0 && o->bytes[op] >= most / LEAST_SHARE)
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

/* Shares are counted in these: 1 the kernels alone, 0 the copies alone. */
enum { WHOLE = 1024 };

typedef struct bounds {
    const vp_library *lib;
    /* of each strategy over all micro-steps: kernels, and copies to and from host memory */
    int64_t *forward_ns, *backward_ns, *out_ns, *in_ns;
    int64_t  out_end_ns, in_end_ns; /* copies that no block waits for */
} bounds;

static bool find_bounds(vp_arena *arena, const vp_library *lib, int n_slots, int64_t n_micro,
                        const vp_streamed_figures *s, bounds *b)
{
    int64_t most_ns = 0, later = n_micro - 1;

    *b = (bounds){.lib         = lib,
                  .forward_ns  = vp_arena_array(arena, lib->n, sizeof(int64_t)),
                  .backward_ns = vp_arena_array(arena, lib->n, sizeof(int64_t)),
                  .out_ns      = vp_arena_array(arena, lib->n, sizeof(int64_t)),
                  .in_ns       = vp_arena_array(arena, lib->n, sizeof(int64_t))};
    if (vp_arena_failed(arena))
        return false;
    for (int64_t i = 0; i < lib->n; i++) {
        const vp_strategy *x        = &lib->strategies[i];
        int64_t            backward = x->ns - x->forward_ns, both = s->params_ns + s->gradients_ns;
        assert(backward >= 0);
        b->forward_ns[i]  = vp_max_i64(x->forward_ns, s->params_ns) * n_micro;
        b->backward_ns[i] = vp_max_i64(backward, s->params_ns) + vp_max_i64(backward, both) * later;
        b->out_ns[i]      = x->copy_ns * n_micro;
        b->in_ns[i]       = (x->copy_ns + s->params_ns) * n_micro + s->gradients_ns * later;
        most_ns           = vp_max_i64(most_ns, x->copy_ns);
    }
    /* what stays in the slots; and of streamed blocks what embedding and head fetch and see off,
     * which the other bound counts beside their kernels */
    b->out_end_ns = (most_ns * n_slots + s->params_ns) * n_micro;
    b->in_end_ns  = (most_ns * n_slots + 4 * (s->params_ns + s->gradients_ns)) * n_micro;
    return true;
}

static int64_t mean_of(int64_t kernels_ns, int64_t copies_ns, int64_t share)
{
    return (int64_t)(((__int128)kernels_ns * share + (__int128)copies_ns * (WHOLE - share)) /
                     WHOLE);
}

/* The integer program at these shares of forward and backward. */
static void set_shares(const bounds *b, int64_t const_ns, int64_t forward, int64_t backward,
                       vp_ilp *p)
{
    for (int64_t i = 0; i < b->lib->n; i++) {
        const vp_strategy *x = &b->lib->strategies[i];
        p->items[i]          = (vp_item_row){x->kept_bytes, x->height_bytes - x->kept_bytes,
                                             mean_of(b->forward_ns[i], b->out_ns[i], forward) +
                                                 mean_of(b->backward_ns[i], b->in_ns[i], backward)};
    }
    p->const_ns =
        const_ns - mean_of(0, b->out_end_ns, forward) - mean_of(0, b->in_end_ns, backward) - 2;
}

static int64_t bound_at(const bounds *b, int64_t const_ns, int64_t arena_bytes, int64_t forward,
                        int64_t backward, vp_ilp *p)
{
    int64_t bound_ns;

    set_shares(b, const_ns, forward, backward, p);
    return vp_dp_bound(p, arena_bytes, &bound_ns) ? bound_ns : INT64_MIN;
}

/* The share of one pass at which the bound is highest: it has one top. */
static int64_t best_share(const bounds *b, int64_t const_ns, int64_t arena_bytes, bool of_forward,
                          int64_t other, vp_ilp *p)
{
    int64_t low = 0, high = WHOLE;

    while (high - low > 8) {
        int64_t left = low + (high - low) * 3 / 8, right = low + (high - low) * 5 / 8;
        int64_t at_left  = bound_at(b, const_ns, arena_bytes, of_forward ? left : other,
                                   of_forward ? other : left, p);
        int64_t at_right = bound_at(b, const_ns, arena_bytes, of_forward ? right : other,
                                    of_forward ? other : right, p);
        if (at_left > at_right)
            high = right;
        else
            low = left;
    }
    return high == WHOLE ? WHOLE : low;
}

bool vp_moved_bound(vp_arena *arena, const vp_library *lib, int n_slots, int64_t n_micro,
                    const vp_figures *f, int64_t arena_bytes, vp_ilp *p)
{
    const int64_t const_ns   = p->const_ns;
    bool          out_limits = false, in_limits = false;
    int64_t       forward = WHOLE, backward = WHOLE;
    bounds        b;

    p->n_items = lib->n;
    p->items   = vp_arena_array(arena, lib->n, sizeof *p->items);
    if (!p->items || !find_bounds(arena, lib, n_slots, n_micro, &f->streamed, &b))
        return false;
    for (int64_t i = 0; i < lib->n; i++) {
        out_limits |= b.out_ns[i] > b.forward_ns[i];
        in_limits |= b.in_ns[i] > b.backward_ns[i];
    }
    for (int round = 0; round < 2; round++) {
        if (out_limits)
            forward = best_share(&b, const_ns, arena_bytes, true, backward, p);
        if (in_limits)
            backward = best_share(&b, const_ns, arena_bytes, false, forward, p);
    }
    set_shares(&b, const_ns, forward, backward, p);
    if (forward == WHOLE && backward == WHOLE)
        p->const_ns = const_ns;
    return true;
}
