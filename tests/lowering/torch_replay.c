#include "tests/lowering/torch_replay.h"

#include <assert.h>
#include <stdlib.h>

struct vp_torch_replay {
    vp_caching_allocator *allocator;
    vp_caching_block     *held; /* of each value that outlives a program */
    int64_t               n_held;
};

vp_status vp_torch_replay_new(vp_caching_allocator *allocator, vp_torch_replay **out, vp_err *err)
{
    vp_status st = VP_OK;

    *out = calloc(1, sizeof **out);
    VP_TRY_ALLOC(err, *out);
    (*out)->allocator = allocator;
out:
    return st;
}

void vp_torch_replay_free(vp_torch_replay *r)
{
    for (int64_t v = 0; r && v < r->n_held; v++)
        vp_caching_allocator_free(r->allocator, r->held[v]);
    if (r)
        free(r->held);
    free(r);
}

static vp_status make_held(vp_torch_replay *r, int64_t n, vp_err *err)
{
    vp_status st = VP_OK;

    assert(!r->held || r->n_held == n); /* programs of one graph, semantics and recipe */
    if (r->held)
        return VP_OK;
    r->held = calloc((size_t)n + 1, sizeof *r->held);
    VP_TRY_ALLOC(err, r->held);
    r->n_held = n;
out:
    return st;
}

/* What the program finds there: batch and constants; what is held was made by programs before. */
static vp_status take_what_is_there(const vp_torch_replay *r, const vp_training_step *p,
                                    vp_caching_block *block, vp_err *err)
{
    vp_status st = VP_OK;

    assert(r->n_held <= p->n_values);
    for (int64_t v = 0; v < p->n_values; v++) {
        block[v] = v < r->n_held ? r->held[v] : 0;
        if (p->values[v].born_op < 0 && p->values[v].bytes > 0 && !block[v])
            VP_TRY(vp_caching_allocator_alloc(r->allocator, 0, p->values[v].bytes, &block[v], err));
    }
out:
    return st;
}

static void note(const vp_torch_replay *r, vp_torch_phase *phase)
{
    const vp_caching_figures *f = vp_caching_allocator_figures(r->allocator);

    phase->allocated_most_bytes = f->allocated_bytes.peak;
    phase->allocated_end_bytes  = f->allocated_bytes.now;
    phase->reserved_end_bytes   = f->reserved_bytes.now;
}

static vp_status play_events(const vp_torch_replay *r, const vp_training_step *p,
                             vp_caching_block *block, vp_torch_phase *phases, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t o = 0, e = 0; o < p->n_ops; o++) {
        vp_training_phase phase = p->ops[o].phase;
        if (o == 0 || p->ops[o - 1].phase != phase)
            vp_caching_allocator_reset_peaks(r->allocator);
        for (; e < p->n_events && p->events[e].op == o; e++) {
            int64_t v = p->events[e].value;

            assert(v >= 0 && v < p->n_values);
            /* a value is born once, and dies after */
            assert(!p->events[e].birth || !block[v]);
            if (p->events[e].birth) {
                VP_TRY(vp_caching_allocator_alloc(r->allocator, 0, p->values[v].bytes, &block[v],
                                                  err));
            } else {
                vp_caching_allocator_free(r->allocator, block[v]);
                block[v] = 0;
            }
        }
        assert(phase < VP_N_TPHASES);
        note(r, &phases[phase]);
    }
out:
    return st;
}

vp_status vp_torch_replay_play(vp_torch_replay *r, const vp_training_step *p,
                               vp_torch_phase *phases, vp_err *err)
{
    vp_caching_block *block = calloc((size_t)p->n_values + 1, sizeof *block);
    vp_status         st    = VP_OK;

    VP_TRY_ALLOC(err, block);
    for (int i = 0; i < VP_N_TPHASES; i++)
        phases[i] = (vp_torch_phase){-1, -1, -1};
    VP_TRY(make_held(r, p->n_held, err));
    VP_TRY(take_what_is_there(r, p, block, err));
    VP_TRY(play_events(r, p, block, phases, err));
out:
    /* also after a failure: what is held is known, the rest given back */
    for (int64_t v = 0; block && r->held && v < p->n_values; v++)
        if (v < r->n_held)
            r->held[v] = block[v];
        else
            vp_caching_allocator_free(r->allocator, block[v]);
    free(block);
    return st;
}
