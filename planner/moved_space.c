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

/* And the price of a byte of host memory in these of a nanosecond. */
#define PRICE_UNIT (INT64_C(1) << 20)

/* The shares, and the price. */
typedef struct weights {
    int64_t forward, backward, price;
} weights;

typedef struct bounds {
    const vp_library *lib;
    int64_t          *host_bytes; /* of each strategy in host memory */
    int64_t           host_left;  /* for all blocks                  */
    int64_t           const_ns, arena_bytes;
    /* of each strategy over all micro-steps: kernels, and copies to and from host memory */
    int64_t *forward_ns, *backward_ns, *out_ns, *in_ns;
    int64_t  out_end_ns, in_end_ns; /* copies that no block waits for */
} bounds;

static bool find_bounds(vp_arena *arena, const vp_library *lib, const vp_outputs *outputs,
                        int n_slots, int64_t n_micro, const vp_streamed_figures *s, bounds *b)
{
    int64_t most_ns = 0, most_bytes = 0, later = n_micro - 1, host_left = b->host_left;

    *b = (bounds){.lib         = lib,
                  .const_ns    = b->const_ns,
                  .arena_bytes = b->arena_bytes,
                  .host_bytes  = vp_arena_array(arena, lib->n, sizeof(int64_t)),
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
        for (int op = 0; op < 64; op++)
            if (x->offload >> op & 1)
                b->host_bytes[i] += vp_round_up(outputs->bytes[op], VP_ALIGN_BYTES);
        most_bytes = vp_max_i64(most_bytes, b->host_bytes[i]);
    }
    /* what stays in the slots takes none of it */
    b->host_left = vp_add(host_left, vp_mul(most_bytes, n_slots) + VP_ALIGN_BYTES);
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

static int64_t price_of(int64_t bytes, int64_t price)
{
    return (int64_t)((__int128)bytes * price / PRICE_UNIT);
}

/* The integer program at these weights. */
static void weigh(const bounds *b, weights w, vp_ilp *p)
{
    for (int64_t i = 0; i < b->lib->n; i++) {
        const vp_strategy *x = &b->lib->strategies[i];
        p->items[i]          = (vp_item_row){x->kept_bytes, x->height_bytes - x->kept_bytes,
                                             mean_of(b->forward_ns[i], b->out_ns[i], w.forward) +
                                                 mean_of(b->backward_ns[i], b->in_ns[i], w.backward) +
                                                 price_of(b->host_bytes[i], w.price)};
    }
    p->const_ns = b->const_ns;
    if (w.forward < WHOLE || w.backward < WHOLE || w.price > 0) /* and what rounding may add */
        p->const_ns -= mean_of(0, b->out_end_ns, w.forward) + mean_of(0, b->in_end_ns, w.backward) +
                       (w.price > 0 ? price_of(b->host_left, w.price) : 0) + 3;
}

static int64_t bound_at(const bounds *b, weights w, vp_ilp *p)
{
    int64_t bound_ns;

    weigh(b, w, p);
    return vp_dp_bound(p, b->arena_bytes, &bound_ns) ? bound_ns : INT64_MIN;
}

/* Move one weight, between 0 and `most`, to where the bound is highest: it has one top. */
static void find_top(const bounds *b, weights *w, int64_t *weight, int64_t most, vp_ilp *p)
{
    int64_t low = 0, high = most;

    while (high - low > most / 32 + 1) {
        int64_t left = low + (high - low) * 3 / 8, right = low + (high - low) * 5 / 8, at_left;
        *weight = left;
        at_left = bound_at(b, *w, p);
        *weight = right;
        if (at_left > bound_at(b, *w, p))
            high = right;
        else
            low = left;
    }
    *weight = high == most ? most : low;
}

/* A byte of host memory is worth no more than what the slowest strategy takes beside the fastest, for
 * each byte that is moved. */
static int64_t most_price(const bounds *b)
{
    int64_t least_ns = INT64_MAX, most_ns = 0, bytes = INT64_MAX;

    for (int64_t i = 0; i < b->lib->n; i++) {
        int64_t ns = b->forward_ns[i] + b->backward_ns[i];
        least_ns   = vp_min_i64(least_ns, ns);
        most_ns    = vp_max_i64(most_ns, ns);
        if (b->host_bytes[i] > 0)
            bytes = vp_min_i64(bytes, b->host_bytes[i]);
    }
    return (int64_t)((__int128)(most_ns - least_ns) * PRICE_UNIT / bytes);
}

/* A constant below zero becomes the blocks': there are as many in every chain. False: they cost too
 * little for that. */
static bool make_positive(vp_ilp *p)
{
    int64_t each_ns = p->const_ns < 0 ? vp_ceil_div(-p->const_ns, p->n_blocks) : 0;

    for (int64_t i = 0; i < p->n_items; i++)
        if (p->items[i].cost_ns < each_ns)
            return false;
    for (int64_t i = 0; i < p->n_items; i++)
        p->items[i].cost_ns -= each_ns;
    p->const_ns += each_ns * p->n_blocks;
    return true;
}

bool vp_moved_bound(vp_arena *arena, const vp_library *lib, const vp_outputs *outputs, int n_slots,
                    int64_t n_micro, const vp_figures *f, int64_t arena_bytes, int64_t host_left,
                    vp_ilp *p)
{
    bool    out_limits = false, in_limits = false, host_limits;
    int64_t most_bytes = 0;
    weights w          = {WHOLE, WHOLE, 0};
    bounds  b = {.const_ns = p->const_ns, .arena_bytes = arena_bytes, .host_left = host_left};

    p->n_items = lib->n;
    p->items   = vp_arena_array(arena, lib->n, sizeof *p->items);
    if (!p->items || !find_bounds(arena, lib, outputs, n_slots, n_micro, &f->streamed, &b))
        return false;
    for (int64_t i = 0; i < lib->n; i++) {
        out_limits |= b.out_ns[i] > b.forward_ns[i];
        in_limits |= b.in_ns[i] > b.backward_ns[i];
        most_bytes = vp_max_i64(most_bytes, b.host_bytes[i]);
    }
    host_limits = vp_mul(most_bytes, p->n_blocks) > b.host_left;
    if (out_limits)
        find_top(&b, &w, &w.forward, WHOLE, p);
    if (in_limits)
        find_top(&b, &w, &w.backward, WHOLE, p);
    if (host_limits)
        find_top(&b, &w, &w.price, most_price(&b), p);
    w.price += w.price / 16; /* where the choice is even, what takes less of it */
    weigh(&b, w, p);
    if (!make_positive(p)) {
        w.price = 0;
        weigh(&b, w, p);
    }
    if (!make_positive(p)) /* the kernels' sum alone is never below zero */
        weigh(&b, (weights){WHOLE, WHOLE, 0}, p);
    return true;
}
