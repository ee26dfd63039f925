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

int64_t vp_moved_sent_bytes(int64_t n_blocks, const vp_outputs *outputs, uint64_t ops, int n_slots)
{
    const int64_t n_sent = vp_max_i64(0, n_blocks - n_slots);
    int64_t       bytes = 0, padding = 0;

    /* each aligned; behind the last one of the last block that sends nothing is */
    for (int op = 0; op < 64; op++)
        if (ops >> op & 1) {
            int64_t aligned = vp_round_up(outputs->bytes[op], VP_ALIGN_BYTES);
            padding         = aligned - outputs->bytes[op];
            bytes           = vp_add(bytes, aligned);
        }
    bytes = vp_mul(bytes, n_sent);
    return n_sent == 0 || vp_overflowed(bytes) ? bytes : bytes - padding;
}

int64_t vp_moved_beside(const vp_figures *held, int64_t bytes)
{
    int64_t sum = vp_add(vp_add(held->host_stack_base_bytes, held->pageable_bytes), bytes);

    if (bytes == 0 || vp_overflowed(held->host_bytes))
        return held->host_bytes;
    return vp_overflowed(sum) ? sum : vp_max_i64(held->host_bytes, sum);
}

/* ---- what no plan undercuts ---- */

/* Nanoseconds of a strategy's backward, and of a pass of a block's copies, over all micro-steps. */
typedef struct bounds {
    const vp_library *lib;
    int64_t           n_micro, n_slots, copies_ns;
    bool              sent;     /* forward takes what the copies to host memory do */
    bool              waits[2]; /* by pass: blocks take what they wait for their one slot */
    /* of the blocks' norms and updates what copies may hide; and what each block's take beside its backward */
    int64_t hidden_ns, block_ns;
    int64_t
        first_only_ns; /* of all blocks, in the first micro-step alone: runs while others are waited for */
    /* what a block's kernels lose to a pass's copies, where their processors make them */
    int64_t lost_ns;
} bounds;

static int64_t kernels_ns(const bounds *b, vp_pass pass, int64_t i)
{
    const vp_strategy *x = &b->lib->strategies[i];

    assert(x->ns >= x->forward_ns);
    return (pass == VP_PASS_FORWARD ? x->forward_ns : x->ns - x->forward_ns) * b->n_micro;
}

static int64_t pass_ns(const bounds *b, vp_pass pass, int64_t i)
{
    return b->waits[pass] ? b->lib->strategies[i].one_slot_ns[pass] * b->n_micro
                          : kernels_ns(b, pass, i) + b->lost_ns;
}

/* What a pass takes less where its blocks are said to take pass_ns(): one of them takes its kernels, or as many as there are
 * slots copy nothing. */
static int64_t lost_ns(const bounds *b, vp_pass pass)
{
    return b->waits[pass] ? vp_library_most_waited(b->lib, pass) * b->n_micro
                          : b->n_slots * b->lost_ns;
}

/* The integer program in which blocks of the strategies from `first` on take what their copies do, and
 * those before them what their kernels do. The former stand last in the chain, so that backward begins with them.
 * False: it would have a cost below zero. */
static bool weigh(const bounds *b, int n_slots, int64_t const_ns, int64_t first, vp_ilp *p)
{
    const int64_t sent_ns = vp_max_i64(0, p->n_blocks - n_slots) * b->copies_ns;
    const bool    fetches = first < p->n_items;
    const bool    hides =
        fetches || b->sent || b->waits[VP_PASS_FORWARD] || b->waits[VP_PASS_BACKWARD];
    int64_t least_ns = INT64_MAX, each_ns;

    p->const_ns = const_ns - (hides ? b->first_only_ns : 0) +
                  (b->sent ? sent_ns : -lost_ns(b, VP_PASS_FORWARD)) -
                  (fetches ? n_slots * b->copies_ns + b->hidden_ns : 0) -
                  (first > 0 ? lost_ns(b, VP_PASS_BACKWARD) : 0);
    /* a constant below zero becomes the blocks': there are as many in every chain */
    each_ns = p->const_ns < 0 ? vp_ceil_div(-p->const_ns, p->n_blocks) : 0;
    p->const_ns += each_ns * p->n_blocks;
    for (int64_t i = 0; i < p->n_items; i++) {
        const vp_strategy *x  = &b->lib->strategies[i];
        int64_t            ns = i >= first ? b->copies_ns : pass_ns(b, VP_PASS_BACKWARD, i);
        if (fetches && i < first)
            ns += b->block_ns;
        p->items[i] =
            (vp_item_row){.k_bytes    = x->kept_bytes,
                          .beta_bytes = x->height_bytes - x->kept_bytes,
                          .cost_ns = ns + (b->sent ? 0 : pass_ns(b, VP_PASS_FORWARD, i)) - each_ns};
        least_ns = vp_min_i64(least_ns, p->items[i].cost_ns);
    }
    return least_ns >= 0;
}

/* The first of the strategies at the list's end whose copies all take longer than their kernels. */
static int64_t first_limited(const bounds *b)
{
    int64_t i = b->lib->n;

    while (i > 0 && b->copies_ns > pass_ns(b, VP_PASS_BACKWARD, i - 1))
        i--;
    return i;
}

bool vp_moved_bound(vp_arena *arena, const vp_library *lib, int n_slots, int64_t n_micro,
                    const vp_figures *f, int64_t arena_bytes, vp_ilp *p)
{
    const int64_t const_ns = p->const_ns;
    bounds        b        = {.lib           = lib,
                              .n_micro       = n_micro,
                              .n_slots       = n_slots,
                              .lost_ns       = lib->strategies[0].lost_ns * n_micro,
                              .copies_ns     = lib->strategies[0].copy_ns * n_micro,
                              .hidden_ns     = f->in_backward_ns,
                              .first_only_ns = f->first_only_ns,
                              .block_ns      = f->least_in_backward_ns};
    const int64_t limited = first_limited(&b), from[] = {lib->n, limited, 0};
    int64_t       first = lib->n, best_ns = -1, ns;
    bool          one_slot, back          = false;

    /* norms and updates of backward run while blocks wait, too */
    one_slot = n_slots == 1 && b.hidden_ns == 0;
    b.waits[VP_PASS_FORWARD] =
        one_slot && vp_library_always_waits(lib, VP_PASS_FORWARD, p->n_blocks);
    b.sent = vp_max_i64(0, p->n_blocks - n_slots) * b.copies_ns >
             p->n_blocks * pass_ns(&b, VP_PASS_FORWARD, 0) - lost_ns(&b, VP_PASS_FORWARD);
    p->n_items = lib->n;
    p->items   = vp_arena_array(arena, lib->n, sizeof *p->items);
    if (!p->items)
        return false;
    for (int waits = 0; waits < (one_slot ? 2 : 1); waits++) {
        b.waits[VP_PASS_BACKWARD] = waits;
        if (waits && vp_library_most_waited(lib, VP_PASS_BACKWARD) == 0)
            continue;
        for (int k = 0; k < (limited < lib->n ? 3 : 1); k++) /* kernels alone: none below zero */
            if (weigh(&b, n_slots, const_ns, from[k], p) && vp_dp_bound(p, arena_bytes, &ns) &&
                ns > best_ns) {
                best_ns = ns;
                first   = from[k];
                back    = waits;
            }
    }
    b.waits[VP_PASS_BACKWARD] = back;
    weigh(&b, n_slots, const_ns, first, p);
    return true;
}
