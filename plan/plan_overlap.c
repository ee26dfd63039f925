/* plan/plan_overlap.c: no two buffers that live at one step overlap. A sweep over the steps: buffers
 * come alive and die in their order, and of those alive only the neighbours of a new one can hit it. */
#include "base/checked.h"
#include "plan/expand.h"
#include "plan/plan_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Counting sort of the buffers that live by key[buffer]. */
static void order_by(const vp_expansion *x, const int64_t *key, int64_t *count, int64_t *order)
{
    memset(count, 0, sizeof *count * (size_t)(x->n_steps + 2));
    for (int64_t i = 0; i < x->n_buffers; i++)
        if (x->first_step[i] >= 0) {
            assert(key[i] >= 0 && key[i] < x->n_steps);
            count[key[i] + 1]++;
        }
    for (int64_t s = 0; s <= x->n_steps; s++)
        count[s + 1] += count[s];
    for (int64_t i = 0; i < x->n_buffers; i++)
        if (x->first_step[i] >= 0)
            order[count[key[i]]++] = i;
}

/* Buffers alive, by the place (rank) of their first byte among all: bit r of level 0 for rank r,
 * and for each 64 bits of a level one above that says whether any of them is set. Neighbours are
 * found in a few steps, however many are alive. */
enum { MAX_LEVELS = 11 };

typedef struct alive {
    uint64_t *level[MAX_LEVELS];
    int       n_levels;
} alive;

/* Room for ranks below n; false: out of memory. */
static bool make_alive(vp_arena *arena, int64_t n, alive *set)
{
    do {
        assert(set->n_levels < MAX_LEVELS); /* 64^11 is more than 64 bits */
        n                           = n / 64 + 1;
        set->level[set->n_levels++] = vp_arena_array(arena, n, sizeof(uint64_t));
    } while (n > 1);
    return !vp_arena_failed(arena);
}

static void come_alive(alive *set, int64_t r)
{
    for (int l = 0; l < set->n_levels; l++, r /= 64)
        set->level[l][r / 64] |= UINT64_C(1) << r % 64;
}

static void die(alive *set, int64_t r)
{
    for (int l = 0; l < set->n_levels && !(set->level[l][r / 64] &= ~(UINT64_C(1) << r % 64)); l++)
        r /= 64;
}

/* The least rank from r on that is alive, -1: none. */
static int64_t alive_from(const alive *set, int64_t r)
{
    for (int l = 0; l < set->n_levels; l++, r = r / 64 + 1) {
        uint64_t found = set->level[l][r / 64] & ~UINT64_C(0) << r % 64;
        if (!found)
            continue;
        for (r = r / 64 * 64 + __builtin_ctzll(found); l > 0; l--)
            r = r * 64 + __builtin_ctzll(set->level[l - 1][r]);
        return r;
    }
    return -1;
}

/* The greatest rank below r that is alive, -1: none. */
static int64_t alive_below(const alive *set, int64_t r)
{
    for (int l = 0; l < set->n_levels; l++, r /= 64) {
        uint64_t found = set->level[l][r / 64] & ~(~UINT64_C(0) << r % 64);
        if (!found)
            continue;
        for (r = r / 64 * 64 + 63 - __builtin_clzll(found); l > 0; l--)
            r = r * 64 + 63 - __builtin_clzll(set->level[l - 1][r]);
        return r;
    }
    return -1;
}

typedef struct beginning {
    vp_memory memory;
    int64_t   offset_bytes, buffer;
} beginning;

static int by_offset(const void *a, const void *b)
{
    const beginning *x = a, *y = b;
    if (x->memory != y->memory)
        return x->memory > y->memory ? 1 : -1;
    return (x->offset_bytes > y->offset_bytes) - (x->offset_bytes < y->offset_bytes);
}

/* Of each buffer the place of its first byte among those of all; equal ones share it. */
static vp_status rank_buffers(vp_arena *arena, const vp_expansion *x, int64_t *rank, vp_err *err)
{
    beginning *order = vp_arena_array(arena, x->n_buffers, sizeof *order);

    if (!order)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < x->n_buffers; i++)
        order[i] = (beginning){x->buffers[i].memory, x->buffers[i].offset_bytes, i};
    qsort(order, (size_t)x->n_buffers, sizeof *order, by_offset);
    for (int64_t i = 0; i < x->n_buffers; i++)
        rank[order[i].buffer] = i > 0 && order[i].memory == order[i - 1].memory &&
                                        order[i].offset_bytes == order[i - 1].offset_bytes
                                    ? rank[order[i - 1].buffer]
                                    : i;
    return VP_OK;
}

vp_status vp_plan_check_overlap(vp_arena *arena, const vp_expansion *x, const char *file,
                                int64_t *peak_bytes, vp_err *err)
{
    int64_t *count  = vp_arena_array(arena, x->n_steps + 2, sizeof *count);
    int64_t *births = vp_arena_array(arena, x->n_buffers, sizeof *births);
    int64_t *deaths = vp_arena_array(arena, x->n_buffers, sizeof *deaths);
    int64_t *rank   = vp_arena_array(arena, x->n_buffers, sizeof *rank);
    /* of each rank: the buffer alive there */
    int64_t  *holder  = vp_arena_array(arena, x->n_buffers, sizeof *holder);
    int64_t   n_alive = 0, b = 0, d = 0;
    alive     set = {0};
    vp_status st  = VP_OK;

    VP_TRY_ALLOC(err, make_alive(arena, x->n_buffers, &set));
    VP_TRY(rank_buffers(arena, x, rank, err));
    order_by(x, x->first_step, count, births);
    order_by(x, x->last_step, count, deaths);
    for (int64_t i = 0; i < x->n_buffers; i++)
        n_alive += x->first_step[i] >= 0;
    memset(peak_bytes, 0, VP_N_MEMORIES * sizeof *peak_bytes);
    for (int64_t s = 0; s < x->n_steps; s++) {
        for (; b < n_alive && x->first_step[births[b]] == s; b++) {
            const vp_expanded_buffer *buf = &x->buffers[births[b]];
            int64_t                   end = buf->offset_bytes + buf->bytes, at = rank[births[b]];
            int64_t                   next = alive_from(&set, at), last = alive_below(&set, at);
            const vp_expanded_buffer *above = next < 0 ? NULL : &x->buffers[holder[next]],
                                     *below = last < 0 ? NULL : &x->buffers[holder[last]];
            const vp_expanded_buffer *hit =
                above && above->memory == buf->memory && above->offset_bytes < end ? above
                : below && below->memory == buf->memory &&
                        below->offset_bytes + below->bytes > buf->offset_bytes
                    ? below
                    : NULL;
            NEED(!hit, "buffers", "%s and %s overlap in step %lld", buf->name, hit->name,
                 (long long)s);
            come_alive(&set, at);
            holder[at]              = births[b];
            peak_bytes[buf->memory] = vp_max_i64(peak_bytes[buf->memory], end);
        }
        for (; d < n_alive && x->last_step[deaths[d]] == s; d++)
            die(&set, rank[deaths[d]]);
    }
    assert(b == n_alive && d == n_alive); /* whatever lives was born and has died */
out:
    return st;
}
