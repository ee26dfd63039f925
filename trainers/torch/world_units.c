/* What the ways of sharing a step ask of it. */
#include "trainers/torch/world_internal.h"

#include <assert.h>
#include <string.h>

int64_t vp_world_unit_of_gradient(const vp_world *w, int64_t i)
{
    int64_t end = w->first_of_layers + w->of_layer * w->n_layers;

    return i < w->first_of_layers ? w->head
           : i < end              ? w->n_layers - 1 - (i - w->first_of_layers) / w->of_layer
           : w->opts.is_tied      ? w->head
                                  : w->embed;
}

vp_world_range vp_world_gradients_of(const vp_world *w, int64_t u)
{
    int64_t from = w->first_of_layers + w->of_layer * (w->n_layers - 1 - u);

    return u < w->n_layers ? (vp_world_range){from, from + w->of_layer}
                           : (vp_world_range){0, w->n_gradients};
}

/* In units from one to the other the nth weight from the end that has so many elements. */
static vp_world_weight *weight_from_end(vp_world *w, int64_t from_unit, int64_t to_unit,
                                        int64_t elements, int64_t nth)
{
    const vp_world_unit *last = &w->units[to_unit];

    for (int64_t i = last->first + last->n - 1; i >= w->units[from_unit].first; i--)
        if (w->weights[i].place >= 0 && w->weights[i].elements == elements && nth-- == 0)
            return &w->weights[i];
    return NULL;
}

vp_world_weight *vp_world_weight_of_gradient(vp_world *w, int64_t i)
{
    int64_t layers_end = w->first_of_layers + w->of_layer * w->n_layers, nth = 0;
    int64_t u = vp_world_unit_of_gradient(w, i), n_layers = w->n_layers;
    int64_t each = w->opts.adapter_bytes ? w->opts.adapter_bytes : w->opts.weight_bytes;
    int64_t from = u < n_layers ? i - (i - w->first_of_layers) % w->of_layer : 0;

    for (int64_t k = from; k < i; k++)
        nth += (u < n_layers || k < w->first_of_layers || k >= layers_end) &&
               w->gradients[k] == w->gradients[i];
    return weight_from_end(w, u < n_layers ? u : n_layers, u < n_layers ? u : w->n_units - 1,
                           w->gradients[i] / each, nth);
}

void vp_world_drop_loaded(vp_world *w, const vp_world_weight *x)
{
    if (w->has_quantised && x->place < 0)
        vp_recorded_drop_weight(w->step, &x->loaded);
}

/* CachingHostAllocator: powers of two. */
void vp_world_pin(vp_world *w, int64_t bytes)
{
    int64_t power = 1;

    while (power < bytes)
        power *= 2;
    w->pinned_bytes += bytes ? power : 0;
}

int64_t vp_world_communicator_bytes(int64_t ranks)
{
    return ranks < 2 ? 0 : ranks == 2 ? 544000000 : 688000000;
}

/* Rings: a gather or a reduction to parts sends all but a rank's own part. */
double vp_world_sent_bytes(const char *parallel, int64_t ranks, double weight_bytes,
                           double gradient_bytes, int64_t micro_steps, bool syncs_each)
{
    double others = (double)(ranks - 1) / (double)ranks, n = (double)micro_steps;
    double times = strncmp(parallel, "fsdp", 4) == 0
                       ? 2 * n * weight_bytes + (syncs_each ? n : 1) * gradient_bytes
                   : strcmp(parallel, "zero3") == 0 ? 2 * n * weight_bytes + n * gradient_bytes
                   : strcmp(parallel, "zero2") == 0 ? n * gradient_bytes + weight_bytes
                   : strcmp(parallel, "zero1") == 0 ? gradient_bytes + weight_bytes
                                                    : 2 * gradient_bytes;

    return ranks < 2 ? 0 : others * times;
}

double vp_world_reserved_share(int64_t ranks, const char *parallel)
{
    return ranks < 2                           ? 0.02
           : strcmp(parallel, "ddp") == 0      ? 0.03
           : strncmp(parallel, "fsdp", 4) == 0 ? 0.10
           : strcmp(parallel, "zero3") == 0    ? 0.06
                                               : 0.15;
}

vp_status vp_world_take(vp_world *w, vp_owner owner, int64_t bytes, vp_ledger_block *out,
                        vp_err *err)
{
    vp_ledger_free(w->ledger, out);
    return vp_ledger_alloc(w->ledger, owner, bytes, out, err);
}

vp_status vp_world_zero_stepped(vp_world *w, vp_err *err)
{
    (void)err;
    vp_ledger_free(w->ledger, &w->buffers[VP_ZERO_WIDE]);
    return VP_OK;
}

int vp_world_zero_group(const vp_world *w, int64_t place)
{
    return w->opts.groups_vectors && vp_recorded_is_vector(w->step, place);
}

vp_world_weight *vp_world_weight_at(vp_world *w, int64_t place)
{
    assert(place < w->n_weights);
    vp_world_weight *x = &w->weights[w->places[place]];

    assert(x->place == place);
    return x;
}
