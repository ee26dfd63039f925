#include "runtime/runtime_internal.h"

#include <assert.h>
#include <string.h>

static const unsigned char poisons[VP_N_REPLICAS] = {0xa5, 0x5a};

/* Buffers in the order of key, and for each step where its own begin. */
static void group_by(const vp_expansion *x, const int64_t *key, int64_t *order, int64_t *first)
{
    for (int64_t i = 0; i < x->n_buffers; i++)
        if (x->first_step[i] >= 0) {
            assert(key[i] >= x->first_step[i] && key[i] <= x->last_step[i] &&
                   x->last_step[i] < x->n_steps);
            first[key[i] + 1]++;
        }
    for (int64_t s = 0; s < x->n_steps; s++)
        first[s + 1] += first[s];
    for (int64_t i = x->n_buffers - 1; i >= 0; i--) /* fill each group from its end */
        if (x->first_step[i] >= 0)
            order[--first[key[i] + 1]] = i;
    /* first[s + 1] now is where group s begins */
}

vp_status vp_verifier_new(vp_runtime *rt, vp_err *err)
{
    vp_arena    *a  = rt->scratch;
    vp_verifier *v  = vp_arena_alloc(a, sizeof *v);
    vp_status    st = VP_OK;

    assert(rt->n_arenas == VP_N_REPLICAS && !rt->verifier);
    VP_TRY_ALLOC(err, v);
    VP_TRY(vp_expansion_make(a, rt->plan, rt->bucket, rt->bucket->n_micro_steps, &v->x, err));
    v->born_at    = vp_arena_array(a, v->x.n_buffers, sizeof(int64_t));
    v->dies_at    = vp_arena_array(a, v->x.n_buffers, sizeof(int64_t));
    v->born_first = vp_arena_array(a, v->x.n_steps + 2, sizeof(int64_t));
    v->dies_first = vp_arena_array(a, v->x.n_steps + 2, sizeof(int64_t));
    for (int m = 0; m < VP_N_MEMORIES; m++)
        v->touched[m] = vp_arena_array(a, rt->arena[0][m].n_bytes, 1);
    VP_TRY_ALLOC(err, !vp_arena_failed(a));
    for (int64_t i = 0; i < v->x.n_buffers; i++)
        v->n_alive += v->x.first_step[i] >= 0;
    group_by(&v->x, v->x.first_step, v->born_at, v->born_first);
    group_by(&v->x, v->x.last_step, v->dies_at, v->dies_first);
    assert(v->born_first[1] == 0 && v->dies_first[1] == 0); /* the first group begins the list */
    rt->verifier = v;
out:
    return st;
}

void vp_verifier_poison_all(vp_runtime *rt)
{
    for (int r = 0; r < VP_N_REPLICAS; r++)
        for (int m = 0; m < VP_N_MEMORIES; m++)
            if (rt->arena[r][m].base)
                memset(rt->arena[r][m].base, poisons[r], (size_t)rt->arena[r][m].n_bytes);
}

/* Buffers of a group: group s is [first[s + 1], first[s + 2]), the last one ends with the list. */
static int64_t group_end(const vp_verifier *v, const int64_t *first, int64_t s)
{
    assert(s >= 0 && s < v->x.n_steps && first[s + 1] <= v->n_alive);
    return s + 1 < v->x.n_steps ? first[s + 2] : v->n_alive;
}

vp_status vp_verifier_before(vp_runtime *rt, int64_t idx, vp_err *err)
{
    const vp_verifier *v   = rt->verifier;
    int64_t            end = group_end(v, v->born_first, idx);

    for (int64_t i = v->born_first[idx + 1]; i < end; i++) {
        const vp_expanded_buffer *b = &v->x.buffers[v->born_at[i]];
        assert(v->x.first_step[v->born_at[i]] == idx);
        if (b->persistent)
            continue;
        for (int r = 0; r < VP_N_REPLICAS; r++)
            for (int64_t k = 0; k < b->bytes; k++)
                if (rt->arena[r][b->memory].base[b->offset_bytes + k] != poisons[r])
                    return VP_FAIL(
                        err, VP_ERR_INTERNAL,
                        "byte %lld of %s was written while it was dead (found at step %lld)",
                        (long long)k, b->name, (long long)idx);
    }
    return VP_OK;
}

static void note_written(vp_runtime *rt, const vp_expanded_buffer *b)
{
    vp_verifier *v = rt->verifier;

    assert(b->offset_bytes >= 0 && b->offset_bytes + b->bytes <= rt->arena[0][b->memory].n_bytes);
    for (int64_t k = b->offset_bytes; k < b->offset_bytes + b->bytes; k++) {
        bool written = rt->arena[0][b->memory].base[k] != poisons[0] ||
                       rt->arena[1][b->memory].base[k] != poisons[1];
        v->touched[b->memory][k] |= written;
        v->never_written_bytes += !written;
    }
}

vp_status vp_verifier_after(vp_runtime *rt, int64_t idx, vp_err *err)
{
    vp_verifier *v   = rt->verifier;
    int64_t      end = group_end(v, v->dies_first, idx);

    (void)err;
    for (int64_t i = v->dies_first[idx + 1]; i < end; i++) {
        const vp_expanded_buffer *b = &v->x.buffers[v->dies_at[i]];
        assert(v->x.last_step[v->dies_at[i]] == idx);
        note_written(rt, b);
        if (!b->persistent)
            for (int r = 0; r < VP_N_REPLICAS; r++)
                memset(rt->arena[r][b->memory].base + b->offset_bytes, poisons[r],
                       (size_t)b->bytes);
    }
    return VP_OK;
}

vp_status vp_verifier_finish(vp_runtime *rt, vp_err *err)
{
    for (int64_t i = 0; i < rt->n_params; i++) {
        const unsigned char *a = rt->params[i].data, *b = vp_runtime_replica(rt, 1, a);
        if (memcmp(a, b,
                   (size_t)(rt->params[i].param->n_elements *
                            vp_dtype_bytes(rt->params[i].dtype))) != 0)
            return VP_FAIL(err, VP_ERR_INTERNAL,
                           "parameter %s depends on memory that nothing wrote", rt->params[i].name);
    }
    return VP_OK;
}
