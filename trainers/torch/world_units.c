/* What the ways of sharing a step ask of it. */
#include "trainers/torch/world_internal.h"

#include <string.h>

int64_t vp_world_unit_of_gradient(const vp_world *w, int64_t i)
{
    int64_t end = w->first_of_layers + w->of_layer * w->n_layers;

    return i < w->first_of_layers ? w->head
           : i < end              ? w->n_layers - 1 - (i - w->first_of_layers) / w->of_layer
           : w->opts.is_tied      ? w->head
                                  : w->embed;
}

/* CachingHostAllocator: powers of two. */
void vp_world_pin(vp_world *w, int64_t bytes)
{
    int64_t power = 1;

    while (power < bytes)
        power *= 2;
    w->pinned_bytes += bytes ? power : 0;
}

void vp_world_drop_made(vp_world *w)
{
    for (int64_t i = 0; i < w->n_gradients; i++)
        if (w->made[i])
            vp_ledger_free(w->ledger, w->made[i]);
    memset(w->made, 0, (size_t)w->n_gradients * sizeof *w->made);
}
