#include "planner/outline_store.h"

#include <assert.h>
#include <stdlib.h>

/* Semantics kept: a request has as many as precisions and attentions are free in it. */
enum { MOST_KEPT = 16 };

struct vp_outline_store {
    const vp_model     *model;
    const vp_semantics *semantics[MOST_KEPT];
    vp_outlines        *outlines[MOST_KEPT];
    int                 n, next; /* where all places are taken, the next to be used again */
};

vp_outline_store *vp_outline_store_new(const vp_model *model)
{
    vp_outline_store *store = calloc(1, sizeof *store);

    if (store)
        store->model = model;
    return store;
}

void vp_outline_store_free(vp_outline_store *store)
{
    for (int i = 0; store && i < store->n; i++)
        vp_outlines_free(store->outlines[i]);
    free(store);
}

void vp_outline_store_forget_costs(vp_outline_store *store)
{
    for (int i = 0; i < store->n; i++)
        if (store->outlines[i])
            vp_outlines_forget_costs(store->outlines[i]);
}

static int place_of(vp_outline_store *store, const vp_semantics *semantics)
{
    int at = 0;

    while (at < store->n && store->semantics[at] != semantics)
        at++;
    if (at == store->n && store->n < MOST_KEPT) {
        store->n++;
    } else if (at == store->n) {
        at          = store->next;
        store->next = (store->next + 1) % MOST_KEPT;
    }
    if (store->semantics[at] != semantics) {
        vp_outlines_free(store->outlines[at]);
        store->outlines[at]  = NULL;
        store->semantics[at] = semantics;
    }
    return at;
}

vp_status vp_outline_store_get(vp_outline_store *store, const vp_semantics *semantics, int64_t seq,
                               int64_t micro_batch, vp_cost *cost, vp_outlines **out, vp_err *err)
{
    vp_outlines **kept  = &store->outlines[place_of(store, semantics)];
    bool          alike = false;
    vp_status     st    = VP_OK;

    *out = NULL;
    if (*kept)
        VP_TRY(vp_outlines_scale(*kept, seq, micro_batch, cost, &alike, err));
    if (!alike) {
        vp_outlines_free(*kept);
        *kept = NULL;
        VP_TRY(vp_outlines_make(store->model, seq, micro_batch, semantics, cost, kept, err));
    }
    *out = *kept;
    assert(*out);
out:
    return st;
}
