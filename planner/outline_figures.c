/* planner/outline_figures.c: what outlines tell of their sets at the micro-batch scaled to. */
#include "base/checked.h"
#include "planner/outline_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int64_t bytes_of(const vp_outlines *o, const sketched_buffer *b)
{
    assert(b->kind < o->n_kinds && o->kinds[b->kind].bytes[b->operand] >= 0);
    return o->kinds[b->kind].bytes[b->operand];
}

static int64_t aligned_bytes_of(const vp_outlines *o, const sketched_buffer *b)
{
    return o->kinds[b->kind].aligned_bytes[b->operand];
}

static bool is_alive(const sketched_buffer *b, int pass, int64_t step)
{
    return b->first[pass] >= 0 && b->first[pass] <= step && step <= b->last[pass];
}

/* Whether it lies elsewhere. */
static bool is_moved(const sketched_buffer *b, uint64_t offload)
{
    return b->maker && (offload >> (b->maker - 1) & 1);
}

static int64_t kept_bytes(const vp_outlines *o, const outline *x, uint64_t offload)
{
    int64_t sum = 0;

    for (int32_t b = 0; b < x->n_kept; b++)
        if (!is_moved(&x->buffers[b], offload))
            sum = vp_add(sum, aligned_bytes_of(o, &x->buffers[b]));
    return sum;
}

/* What lies in one place while a set's block is run: its input, what it keeps, its output. */
static bool is_fixed(const outline *x, int32_t b)
{
    return b < x->n_kept || (x->has_out && b == x->n_buffers - 1);
}

/* What is alive at a step, in multiples of VP_ALIGN_BYTES. */
typedef struct load {
    int64_t sum, smallest; /* of what is not fixed                              */
    int64_t room, end;     /* gaps below what is fixed that hold some of it; above all that is */
    int64_t slack;         /* so far below such a multiple the highest may end  */
} load;

static void put_fixed(load *l, const vp_outlines *o, const sketched_buffer *b, int64_t at)
{
    l->room += at - l->end >= l->smallest ? at - l->end : 0;
    l->end   = vp_add(at, aligned_bytes_of(o, b));
    l->slack = vp_max_i64(l->slack, aligned_bytes_of(o, b) - bytes_of(o, b));
}

static void put_free(load *l, const vp_outlines *o, const sketched_buffer *b)
{
    const int64_t bytes = aligned_bytes_of(o, b);

    l->sum      = vp_add(l->sum, bytes);
    l->smallest = vp_min_i64(l->smallest, bytes);
    l->slack    = vp_max_i64(l->slack, bytes - bytes_of(o, b));
}

/* The least height of a pass at one step, by the first bound of vp_pack_least(): the transients alive
 * share the gaps between the kept buffers, those too small for any of them left out, and the space
 * above. */
static int64_t least_at(const vp_outlines *o, const outline *x, uint64_t offload, int pass,
                        int64_t step)
{
    load    l  = {.smallest = INT64_MAX};
    int64_t at = 0;

    for (int32_t b = x->n_kept; b < x->n_buffers - x->has_out; b++)
        if (is_alive(&x->buffers[b], pass, step))
            put_free(&l, o, &x->buffers[b]);
    for (int32_t b = 0; b < x->n_kept; b++) {
        if (is_moved(&x->buffers[b], offload))
            continue;
        if (is_alive(&x->buffers[b], pass, step))
            put_fixed(&l, o, &x->buffers[b], at);
        at = vp_add(at, aligned_bytes_of(o, &x->buffers[b]));
    }
    if (x->has_out && is_alive(&x->buffers[x->n_buffers - 1], pass, step))
        put_fixed(&l, o, &x->buffers[x->n_buffers - 1], at);
    return vp_overflowed(l.sum) || vp_overflowed(l.end)
               ? VP_OVERFLOW
               : vp_add(l.end, vp_max_i64(0, l.sum - l.room)) - l.slack;
}

/* Buffers of a pass as items to pack, in items[n_buffers]: all, or those alive at a step alone. Returns how many. */
static int64_t list_items(const vp_outlines *o, const outline *x, uint64_t offload, int pass,
                          int64_t step, vp_pack_item *items)
{
    int64_t n = 0, at = 0;

    for (int32_t b = 0; b < x->n_buffers; b++) {
        const sketched_buffer *s = &x->buffers[b];
        if (is_moved(s, offload))
            continue;
        if (step < 0 ? s->first[pass] >= 0 : is_alive(s, pass, step))
            items[n++] = (vp_pack_item){.bytes  = bytes_of(o, s),
                                        .first  = step < 0 ? s->first[pass] : 0,
                                        .last   = step < 0 ? s->last[pass] : 0,
                                        .fixed  = is_fixed(x, b),
                                        .offset = is_fixed(x, b) ? at : 0};
        at = vp_add(at, b < x->n_kept ? aligned_bytes_of(o, s) : 0);
    }
    return n;
}

/* The same as least_at() of whole transients: as vp_pack_least_whole() says. items: scratch. */
static vp_status least_whole_at(const vp_outlines *o, const outline *x, uint64_t offload, int pass,
                                int64_t step, vp_pack_item *items, int64_t *least, vp_err *err)
{
    const int64_t n     = list_items(o, x, offload, pass, step, items);
    int64_t       slack = 0;
    vp_status     st    = VP_OK;

    VP_TRY(vp_pack_least_whole(items, n, VP_ALIGN_BYTES, least, err));
    for (int64_t i = 0; i < n; i++)
        slack = vp_max_i64(slack, vp_round_up(items[i].bytes, VP_ALIGN_BYTES) - items[i].bytes);
    *least -= slack;
out:
    return st;
}

/* Steps of a pass at which something is born, in ascending order, with the bytes of transients alive. */
typedef struct births {
    int32_t  n_born, n_dead; /* of by_first, by_last */
    __int128 bytes;
} births;

static int64_t transient_bytes(const vp_outlines *o, const outline *x, int32_t b)
{
    return is_fixed(x, b) ? 0 : aligned_bytes_of(o, &x->buffers[b]);
}

/* The next; false: there is none. */
static bool next_birth(const vp_outlines *o, const outline *x, int pass, births *s, int32_t *step)
{
    const int32_t *first = x->by_first[pass], *last = x->by_last[pass], n = x->n_in[pass];

    if (s->n_born == n)
        return false;
    *step = x->buffers[first[s->n_born]].first[pass];
    for (; s->n_born < n && x->buffers[first[s->n_born]].first[pass] == *step; s->n_born++)
        s->bytes += transient_bytes(o, x, first[s->n_born]);
    for (; x->buffers[last[s->n_dead]].last[pass] < *step; s->n_dead++)
        s->bytes -= transient_bytes(o, x, last[s->n_dead]);
    return true;
}

/* Over all steps of a pass; *fullest is where, and where it is looked for first: most others have less in
 * all than is needed there. items: NULL, or scratch, and transients are taken whole. */
vp_status vp_outline_least_of_pass(const vp_outlines *o, const outline *x, uint64_t offload,
                                   int pass, vp_pack_item *items, int32_t *fullest, int64_t *most,
                                   vp_err *err)
{
    births    s     = {.n_born = 0};
    __int128  fixed = 0;
    int32_t   step  = *fullest;
    int64_t   need;
    vp_status st = VP_OK;

    for (int32_t b = 0; b < x->n_buffers; b++)
        if (is_fixed(x, b) && !is_moved(&x->buffers[b], offload))
            fixed += aligned_bytes_of(o, &x->buffers[b]);
    *most = -1;
    do { /* the maximum is reached at some birth */
        if (*most >= 0 && fixed + s.bytes <= *most)
            continue;
        if (items)
            VP_TRY(least_whole_at(o, x, offload, pass, step, items, &need, err));
        else
            need = least_at(o, x, offload, pass, step);
        if (need > *most) {
            *most    = need;
            *fullest = step;
        }
    } while (next_birth(o, x, pass, &s, &step));
out:
    return st;
}

/* Of both passes. */
static vp_status least_height(const vp_outlines *o, const outline *x, uint64_t offload,
                              vp_pack_item *items, int64_t *least, vp_err *err)
{
    vp_status st = VP_OK;

    *least = kept_bytes(o, x, offload);
    for (int pass = 0; pass < 2; pass++) {
        int32_t fullest = x->fullest[pass];
        int64_t most;
        VP_TRY(vp_outline_least_of_pass(o, x, offload, pass, items, &fullest, &most, err));
        *least = vp_max_i64(*least, most);
    }
out:
    return st;
}

int64_t vp_outline_ns(const vp_outlines *o, int64_t idx)
{
    assert(idx >= 0 && idx < o->n_sets && o->micro_batch > 0);
    return o->sets[idx].ns;
}

uint64_t vp_outline_set(const vp_outlines *o, int64_t idx)
{
    assert(idx >= 0 && idx < o->n_sets);
    return o->sets[idx].set;
}

void vp_outline_estimate(const vp_outlines *o, int64_t idx, uint64_t offload, vp_strategy *out)
{
    const outline *x = &o->sets[idx];

    assert(idx >= 0 && idx < o->n_sets && o->micro_batch > 0); /* the last scaling succeeded */
    *out = (vp_strategy){.recompute  = x->set,
                         .segment    = 1,
                         .ns         = x->ns,
                         .forward_ns = x->forward_ns,
                         .kept_bytes = kept_bytes(o, x, offload)};
    for (int32_t b = 0; b < x->n_kept; b++)
        if (is_moved(&x->buffers[b], offload))
            out->offload |= UINT64_C(1) << (x->buffers[b].maker - 1);
    for (int pass = 0; pass < 2; pass++)
        out->height_bytes =
            vp_max_i64(out->height_bytes, least_at(o, x, offload, pass, x->fullest[pass]));
    out->height_bytes = vp_max_i64(out->height_bytes, out->kept_bytes);
}

void vp_outline_outputs(const vp_outlines *o, int64_t idx, int64_t bytes[64])
{
    const outline *x = &o->sets[idx];

    memset(bytes, 0, sizeof(int64_t[64]));
    for (int32_t b = 0; b < x->n_kept; b++)
        if (x->buffers[b].maker)
            bytes[x->buffers[b].maker - 1] = bytes_of(o, &x->buffers[b]);
}

bool vp_outline_use_of(const vp_outlines *o, int64_t idx, int pass, int op, vp_outline_use *out)
{
    const outline *x     = &o->sets[idx];
    const int32_t  begin = pass == VP_PASS_FORWARD ? 0 : x->n_forward;
    const int32_t  end   = pass == VP_PASS_FORWARD ? x->n_forward : x->n_kinds;
    int32_t        b     = 0;

    while (b < x->n_kept && x->buffers[b].maker != op + 1)
        b++;
    if (b == x->n_kept || x->buffers[b].first_use[pass] < 0)
        return false;
    const int32_t first = begin + x->buffers[b].first_use[pass];
    const int32_t last  = pass == VP_PASS_FORWARD ? first : begin + x->buffers[b].last[pass];
    assert(first <= last && last < end);
    *out = (vp_outline_use){.first_step = first - begin, .last_step = last - begin};
    for (int32_t i = begin; i < end; i++)
        *(i < first   ? &out->before_ns
          : i <= last ? &out->meanwhile_ns
                      : &out->behind_ns) += o->kinds[x->kinds[i]].ns;
    return true;
}

int64_t vp_outline_forward_ns(const vp_outlines *o, int64_t idx, const char *op)
{
    const outline *x  = &o->sets[idx];
    int64_t        ns = 0;

    for (int32_t i = 0; i < x->n_forward; i++)
        if (o->kinds[x->kinds[i]].step.name == op)
            ns += o->kinds[x->kinds[i]].ns;
    return ns;
}

int64_t vp_outline_least_height(const vp_outlines *o, int64_t idx, uint64_t offload)
{
    int64_t least;

    least_height(o, &o->sets[idx], offload, NULL, &least, NULL); /* packs nothing that could fail */
    return least;
}

vp_status vp_outline_least_whole(const vp_outlines *o, int64_t idx, uint64_t offload,
                                 int64_t *least_bytes, vp_err *err)
{
    const outline *x     = &o->sets[idx];
    vp_pack_item  *items = calloc((size_t)x->n_buffers, sizeof *items);
    vp_status      st    = VP_OK;

    VP_TRY_ALLOC(err, items);
    VP_TRY(least_height(o, x, offload, items, least_bytes, err));
out:
    free(items);
    return st;
}

/* ---- packing ---- */

static vp_status pack(const vp_outlines *o, const outline *x, uint64_t offload,
                      int64_t *height_bytes, vp_err *err)
{
    vp_pack_item *items = calloc((size_t)x->n_buffers, sizeof *items);
    vp_status     st    = VP_OK;

    *height_bytes = 0;
    VP_TRY_ALLOC(err, items);
    for (int pass = 0; pass < 2; pass++) {
        const int64_t n = list_items(o, x, offload, pass, -1, items);
        int64_t       height;
        VP_TRY(vp_pack(items, n, VP_ALIGN_BYTES, &height, err));
        *height_bytes = vp_max_i64(*height_bytes, height);
    }
out:
    free(items);
    return st;
}

/* Sizes beyond which products with lifetimes might leave 64 bits. */
static const int64_t MOST_SCALED = (int64_t)1 << 44;

/* Whether all buffers are as large as they were; or as many times as large, and whole multiples of VP_ALIGN_BYTES then
 * and now: all that packing asks of sizes is which of two sums is larger, so it puts everything as many times as
 * high. */
static bool is_in_proportion(const vp_outlines *o, const outline *x, uint64_t offload,
                             const packed *was)
{
    const int64_t now_0 = bytes_of(o, &x->buffers[0]), was_0 = was->bytes[0];
    bool          same = true, multiple = now_0 > 0 && was_0 > 0;

    for (int32_t b = 0; (same || multiple) && b < x->n_buffers; b++) {
        const int64_t now = bytes_of(o, &x->buffers[b]), then = was->bytes[b];
        if (is_moved(&x->buffers[b], offload))
            continue;
        same &= now == then;
        multiple &= (now | then) % VP_ALIGN_BYTES == 0 && now < MOST_SCALED && then < MOST_SCALED &&
                    (__int128)now * was_0 == (__int128)then * now_0;
    }
    return same || multiple;
}

static bool known_height(const vp_outlines *o, const outline *x, uint64_t offload,
                         int64_t *height_bytes)
{
    const packed *was = x->packed;

    while (was && (was->offload != offload || !is_in_proportion(o, x, offload, was)))
        was = was->next;
    if (!was)
        return false;
    const int64_t of      = vp_max_i64(1, was->bytes[0]),
                  to      = vp_max_i64(1, bytes_of(o, &x->buffers[0]));
    const __int128 scaled = (__int128)was->height_bytes * to;
    assert(scaled % of == 0 && scaled / of <= INT64_MAX);
    *height_bytes = (int64_t)(scaled / of);
    return true;
}

/* Packings remembered of each choice of what lies elsewhere: of the first micro-batches, which most requests look at,
 * and the last one. */
enum { MOST_REMEMBERED = 3 };

static vp_status remember(const vp_outlines *o, outline *x, uint64_t offload, int64_t height_bytes,
                          vp_err *err)
{
    packed   *latest = NULL;
    int       n      = 0;
    vp_status st     = VP_OK;

    for (packed *p = x->packed; p; p = p->next)
        if (p->offload == offload && n++ == 0)
            latest = p;
    if (n < MOST_REMEMBERED) {
        VP_TRY_ALLOC(err,
                     latest = vp_arena_alloc(o->arena, sizeof *latest + (size_t)x->n_buffers *
                                                                            sizeof *latest->bytes));
        latest->offload = offload;
        latest->next    = x->packed;
        x->packed       = latest;
    }
    latest->height_bytes = height_bytes;
    for (int32_t b = 0; b < x->n_buffers; b++)
        latest->bytes[b] = bytes_of(o, &x->buffers[b]);
out:
    return st;
}

static vp_status height_of(const vp_outlines *o, outline *x, uint64_t offload,
                           int64_t *height_bytes, vp_err *err)
{
    vp_status st = VP_OK;

    if (known_height(o, x, offload, height_bytes))
        return VP_OK;
    VP_TRY(pack(o, x, offload, height_bytes, err));
    VP_TRY(remember(o, x, offload, *height_bytes, err));
out:
    return st;
}

bool vp_outline_known_height(const vp_outlines *o, int64_t idx, uint64_t offload,
                             int64_t *height_bytes)
{
    return known_height(o, &o->sets[idx], offload, height_bytes);
}

vp_status vp_outline_pack(const vp_outlines *o, int64_t idx, uint64_t offload,
                          int64_t *height_bytes, vp_err *err)
{
    return height_of(o, &o->sets[idx], offload, height_bytes, err);
}

/* ---- segments ---- */

int64_t vp_outline_segment_ns(const vp_outlines *o, int64_t m)
{
    assert(m >= 2 && m - 2 < o->n_segments && o->micro_batch > 0);
    return o->segments[m - 2].outline.ns;
}

vp_status vp_outline_segment(const vp_outlines *o, int64_t m, vp_strategy *out, vp_err *err)
{
    assert(m >= 2 && m - 2 < o->n_segments && o->micro_batch > 0);
    outline *x = &o->segments[m - 2].outline;
    *out       = (vp_strategy){.recompute  = UINT64_MAX,
                               .segment    = m,
                               .ns         = x->ns,
                               .forward_ns = x->forward_ns,
                               .kept_bytes = kept_bytes(o, x, 0)};
    return height_of(o, x, 0, &out->height_bytes, err);
}
