#include "trainers/torch/world_internal.h"
#include "trainers/torch/world_zero3_fetch.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

static const vp_world_form *const forms[] = {&vp_world_ddp,   &vp_world_fsdp1, &vp_world_fsdp2,
                                             &vp_world_zero1, &vp_world_zero2, &vp_world_zero3};

enum { N_FORMS = sizeof forms / sizeof *forms, NF4_IN_A_BYTE = 2 };

static const vp_world_form *form_named(const char *name)
{
    for (int i = 0; i < N_FORMS; i++)
        if (strcmp(forms[i]->name, name) == 0)
            return forms[i];
    return NULL;
}

bool vp_world_replicates(const char *parallel)
{
    const vp_world_form *form = form_named(parallel);

    return form && form->replicates;
}

bool vp_world_joins(const char *parallel)
{
    const vp_world_form *form = form_named(parallel);

    return form && form->is_flat;
}

bool vp_world_adapts(const char *parallel, bool is_quantised)
{
    const vp_world_form *form = form_named(parallel);

    return form && (form->replicates || (is_quantised ? form->cuts_quantised
                                                      : form->keeps_frozen || form->cuts_frozen));
}

bool vp_world_offloads(const char *parallel, const char *offload)
{
    const vp_world_form *form = form_named(parallel);

    return strcmp(offload, "none") == 0 || (form && strstr(form->offloads, offload));
}

bool vp_world_knows_one(const char *parallel, const char *offload)
{
    return strcmp(parallel, "zero2") == 0 ||
           (strcmp(parallel, "zero3") == 0 && strcmp(offload, "params") == 0);
}

const char *vp_world_offloads_one(const char *offload)
{
    return strcmp(offload, "params") == 0 ? "zero3" : "zero2";
}

bool vp_world_loses_each(const char *parallel, const char *offload)
{
    const vp_world_form *form = form_named(parallel);

    return form && form->loses_each && offload && strcmp(offload, "none") != 0;
}

bool vp_world_syncs_each(const char *parallel, const char *offload)
{
    const vp_world_form *form = form_named(parallel);

    return form && form->syncs_each && !vp_world_loses_each(parallel, offload);
}

/* Which unit holds a weight: before the layers the first one is the input's table. With tied tables it is
 * the head's too. */
static int64_t unit_of(const vp_world *w, const vp_recorded_weight *x, int64_t *n_before)
{
    if (x->layer >= 0)
        return x->layer;
    if (x->layer == VP_WEIGHT_BEHIND)
        return w->head;
    return (*n_before)++ > 0 ? w->rest : w->opts.is_tied ? w->head : w->embed;
}

/* Rank 0 has whole rows, where it is known what a row is: of adapters the first of a pair has as many as its rank. */
static int64_t part_of(const vp_recorded_weight *x, int64_t elements, int64_t rows, int64_t ranks)
{
    rows = x->rows ? x->rows : rows;
    return rows && elements % rows == 0 ? vp_ceil_div(rows, ranks) * (elements / rows)
                                        : vp_ceil_div(elements, ranks);
}

static vp_world_weight weight_of(const vp_world *w, const vp_recorded_weight *x, int64_t place)
{
    bool    is_trained = x->owner == VP_OWNER_PARAMETER;
    bool    is_adapter = w->opts.adapter_bytes && is_trained;
    int64_t computed   = is_adapter ? w->opts.adapter_bytes : w->opts.weight_bytes;
    int64_t elements   = x->bytes / computed;
    bool    is_packed  = x->owner == VP_OWNER_QUANTISED;
    int64_t rows       = is_adapter && place % 2 == 0 ? w->opts.adapter_rank : 0;

    return (vp_world_weight){.place    = is_trained ? place : -1,
                             .elements = elements,
                             .loaded   = *x,
                             .part     = part_of(x, elements, rows, w->opts.ranks),
                             .computed = computed,
                             .packed   = is_packed ? NF4_IN_A_BYTE * computed : 1,
                             .kept =
                                 is_adapter ? w->opts.adapter_master_bytes : w->opts.master_bytes};
}

/* Unit by unit, in each in the order of loading: counted, then placed. */
static vp_status add_weights(vp_world *w, const vp_recorded_weight *list, int64_t n, vp_err *err)
{
    int64_t *units = calloc((size_t)n + 1, sizeof *units), n_before = 0, place = 0;

    if (!units)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < n; i++) {
        units[i] = unit_of(w, &list[i], &n_before);
        w->units[units[i]].n++;
    }
    for (int64_t u = 0, at = 0; u < w->n_units; u++) {
        w->units[u].first = at;
        at += w->units[u].n;
        w->units[u].n = 0;
    }
    for (int64_t i = 0; i < n; place += list[i++].owner == VP_OWNER_PARAMETER) {
        vp_world_unit *unit                 = &w->units[units[i]];
        w->weights[unit->first + unit->n++] = weight_of(w, &list[i], place);
    }
    free(units);
    return VP_OK;
}

/* In a layer a pair of adapters follows the weight that it is of: the next one whose sizes are theirs. */
static void put_adapters(vp_world *w, const vp_world_unit *unit)
{
    vp_world_weight *x = w->weights + unit->first, pair[2];
    int64_t          r = w->opts.adapter_rank, n_frozen = 0;

    while (n_frozen < unit->n && x[n_frozen].place < 0)
        n_frozen++;
    for (int64_t at = 0, i = n_frozen; i + 1 < unit->n; i += 2) {
        while (at < i && (x[at].place >= 0 || x[at].elements * x[at].packed !=
                                                  x[i].elements / r * (x[i + 1].elements / r)))
            at++;
        if (at == i)
            return;
        pair[0] = x[i];
        pair[1] = x[i + 1];
        memmove(&x[at + 3], &x[at + 1], (size_t)(i - at - 1) * sizeof *x);
        x[at + 1] = pair[0];
        x[at + 2] = pair[1];
        at += 3;
    }
}

/* Where in the order of gradients the layers begin: the last place from which on they repeat. */
static vp_status find_layers(vp_world *w, vp_err *err)
{
    int64_t n = w->of_layer * w->n_layers, from = w->n_gradients - n;

    for (; from >= 0; from--) {
        int64_t i = from;
        while (i + w->of_layer < from + n && w->gradients[i] == w->gradients[i + w->of_layer])
            i++;
        if (i + w->of_layer == from + n)
            break;
    }
    w->first_of_layers = from;
    return from >= 0 ? VP_OK
                     : VP_FAIL(err, VP_ERR_INPUT,
                               "several cards: layers of this recorded step are not all alike");
}

static vp_status allocate(vp_world *w, const vp_recorded_weight *list, int64_t n, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; list && i < n; i++)
        if (list[i].layer >= w->n_layers)
            w->n_layers = list[i].layer + 1;
    w->embed     = w->n_layers;
    w->head      = w->n_layers + 1;
    w->rest      = w->n_layers + 2;
    w->n_units   = w->n_layers + 3;
    w->n_weights = n;
    w->weights   = calloc((size_t)n + 1, sizeof *w->weights);
    w->units     = calloc((size_t)w->n_units, sizeof *w->units);
    w->reduced   = calloc((size_t)(n + w->n_units), sizeof *w->reduced);
    w->kept      = calloc((size_t)(w->n_layers * VP_WORLD_KEPT) + 1, sizeof *w->kept);
    w->trained   = calloc((size_t)n + 1, sizeof *w->trained);
    w->places    = calloc((size_t)n + 1, sizeof *w->places);
    w->made      = calloc((size_t)w->n_gradients + 1, sizeof *w->made);
    VP_TRY_ALLOC(err, w->weights && w->units && w->reduced && w->kept && w->trained && w->places &&
                          w->made);
out:
    return st;
}

static vp_status on_layer(void *user, const char *phase, int64_t i, vp_err *err)
{
    vp_world *w     = user;
    bool      known = strcmp(phase, "forward") == 0 || strcmp(phase, "forward_more") == 0 ||
                 strcmp(phase, "backward_more") == 0 ||
                 ((w->has_frozen || w->form->by_layers) && strcmp(phase, "backward") == 0);

    return known && w->form->layer ? w->form->layer(w, i, err) : VP_OK;
}

static vp_status on_logits(void *user, vp_err *err)
{
    vp_world *w = user;

    return w->form->logits ? w->form->logits(w, err) : VP_OK;
}

static vp_status on_gradient(void *user, int64_t i, vp_ledger_block *block, vp_err *err)
{
    vp_world *w = user;

    w->made[i] = block;
    return w->form->gradient ? w->form->gradient(w, i, block, err) : VP_OK;
}

vp_status vp_world_new(const vp_world_opts *opts, vp_recorded *step, vp_ledger *ledger,
                       vp_world **out, vp_err *err)
{
    vp_world           *w    = calloc(1, sizeof *w);
    vp_recorded_weight *list = NULL;
    int64_t             n    = 0;
    vp_status           st   = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, w);
    *w = (vp_world){.opts   = *opts,
                    .form   = form_named(opts->parallel),
                    .step   = step,
                    .ledger = ledger,
                    .next   = -1};
    if (!w->form)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "parallel %s: its sharing of a step is not known here",
                       opts->parallel));
    VP_TRY(vp_recorded_gradients(step, &w->gradients, &w->n_gradients, err));
    if (!w->form->replicates && !vp_recorded_is_regular(step))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "several cards: layers of this recorded step are not all alike"));
    if (!w->form->replicates)
        VP_TRY(vp_recorded_weights(step, w->form->cuts_frozen ? VP_WEIGHTS_ALL : VP_WEIGHTS_TRAINED,
                                   &list, &n, err));
    VP_TRY(allocate(w, list, w->form->replicates ? w->n_gradients : n, err));
    VP_TRY(add_weights(w, list, n, err));
    for (int64_t i = 0; i < n; i++) {
        w->n_elements += w->weights[i].elements;
        w->most_elements = vp_max_i64(w->most_elements, w->weights[i].elements);
    }
    for (int64_t u = 0; u < w->n_layers && opts->adapter_rank; u++)
        put_adapters(w, &w->units[u]);
    for (int64_t i = 0; i < n; i++)
        if (w->weights[i].place >= 0)
            w->places[w->weights[i].place] = i;
    for (int64_t i = 0; i < w->n_weights; i++)
        w->has_frozen |= w->form->cuts_frozen && w->weights[i].place < 0;
    for (int64_t i = 0; i < w->n_weights; i++)
        w->has_quantised |= w->weights[i].packed > 1;
    for (int64_t i = 0; w->n_layers && i < w->units[0].n; i++)
        w->of_layer += w->weights[i].place >= 0;
    if (!w->form->replicates)
        VP_TRY(find_layers(w, err));
    w->watch = (vp_recorded_watch){.user          = w,
                                   .holds_weights = !w->form->replicates,
                                   .holds_frozen  = w->form->cuts_frozen && !w->has_quantised,
                                   .holds_casts   = w->form->casts_adapters && opts->adapter_bytes,
                                   .layer         = on_layer,
                                   .logits        = on_logits,
                                   .gradient      = on_gradient};
    vp_recorded_watched(step, &w->watch);
    *out = w;
    w    = NULL;
out:
    free(list);
    vp_world_free(w);
    return st;
}

static void free_lists(vp_world *w)
{
    vp_zero3_fetch_free(w->fetch);
    free(w->weights);
    free(w->units);
    free(w->gradients);
    free(w->made);
    free(w->reduced);
    free(w->kept);
    free(w->trained);
    free(w->places);
    free(w);
}

void vp_world_free(vp_world *w)
{
    if (!w)
        return;
    for (int64_t i = 0; w->weights && i < w->n_weights; i++) {
        vp_ledger_free(w->ledger, &w->weights[i].shard);
        vp_ledger_free(w->ledger, &w->weights[i].whole);
    }
    for (int64_t i = 0; w->reduced && i < w->n_weights + w->n_units; i++)
        vp_ledger_free(w->ledger, &w->reduced[i]);
    for (int64_t i = 0; w->kept && i < w->n_layers * VP_WORLD_KEPT; i++)
        vp_ledger_free(w->ledger, &w->kept[i]);
    vp_ledger_free(w->ledger, &w->gathered);
    vp_ledger_free(w->ledger, &w->pending);
    vp_ledger_free(w->ledger, &w->input);
    for (size_t i = 0; i < sizeof w->buffers / sizeof *w->buffers; i++)
        vp_ledger_free(w->ledger, &w->buffers[i]);
    free_lists(w);
}

void vp_world_free_copy(vp_world *w)
{
    if (w)
        free_lists(w);
}

vp_status vp_world_load(vp_world *w, vp_err *err)
{
    return w->form->load ? w->form->load(w, err) : VP_OK;
}

/* What of a step is recomputed, and when gradients are reduced, is of no matter to loading. */
static bool are_alike(const vp_world_opts *a, const vp_world_opts *b)
{
    return strcmp(a->parallel, b->parallel) == 0 && strcmp(a->offload, b->offload) == 0 &&
           a->ranks == b->ranks && a->weight_bytes == b->weight_bytes &&
           a->master_bytes == b->master_bytes && a->adapter_bytes == b->adapter_bytes &&
           a->adapter_master_bytes == b->adapter_master_bytes &&
           a->adapter_rank == b->adapter_rank && a->is_tied == b->is_tied &&
           a->loads_in_parts == b->loads_in_parts && a->device_bytes == b->device_bytes &&
           a->finds_unused == b->finds_unused;
}

bool vp_world_loads_the_same(const vp_world *w, const vp_world_opts *opts, const vp_recorded *step)
{
    int64_t *gradients = NULL, n = 0;
    vp_err   why  = {0};
    bool     same = are_alike(&w->opts, opts) &&
                vp_recorded_gradients(step, &gradients, &n, &why) == VP_OK && n == w->n_gradients &&
                memcmp(gradients, w->gradients, (size_t)n * sizeof *gradients) == 0;

    free(gradients);
    return same;
}

static void *copy_of(const void *from, int64_t n, size_t size)
{
    void *to = malloc(((size_t)n + 1) * size);

    if (to)
        memcpy(to, from, (size_t)n * size);
    return to;
}

vp_status vp_world_copy(const vp_world *from, const vp_world_opts *opts, vp_recorded *step,
                        vp_ledger *ledger, vp_world **out, vp_err *err)
{
    vp_world *w  = NULL;
    vp_status st = VP_OK;

    *out = NULL;
    if (from->fetch || from->large || from->is_backward || from->n_steps)
        return VP_OK;
    w = copy_of(from, 1, sizeof *w);
    VP_TRY_ALLOC(err, w);
    w->opts       = *opts;
    w->step       = step;
    w->ledger     = ledger;
    w->watch.user = w;
    if (step)
        vp_recorded_watched(step, &w->watch);
    w->weights   = copy_of(from->weights, w->n_weights, sizeof *w->weights);
    w->units     = copy_of(from->units, w->n_units, sizeof *w->units);
    w->gradients = copy_of(from->gradients, w->n_gradients, sizeof *w->gradients);
    w->made      = calloc((size_t)w->n_gradients + 1, sizeof *w->made);
    w->reduced   = copy_of(from->reduced, w->n_weights + w->n_units, sizeof *w->reduced);
    w->kept      = calloc((size_t)(from->n_layers * VP_WORLD_KEPT) + 1, sizeof *w->kept);
    w->trained   = copy_of(from->trained, w->n_trained, sizeof *w->trained);
    w->places    = copy_of(from->places, w->n_weights, sizeof *w->places);
    VP_TRY_ALLOC(err, w->weights && w->units && w->gradients && w->made && w->reduced && w->kept &&
                          w->trained && w->places);
    *out = w;
    w    = NULL;
out:
    vp_world_free_copy(w);
    return st;
}

vp_status vp_world_begin(vp_world *w, const char *phase, bool reduces, vp_err *err)
{
    w->is_backward = strcmp(phase, "backward") == 0;
    w->reduces     = reduces;
    return w->form->begin ? w->form->begin(w, err) : VP_OK;
}

vp_status vp_world_end(vp_world *w, vp_err *err)
{
    return w->form->end ? w->form->end(w, err) : VP_OK;
}

vp_status vp_world_returned(vp_world *w, vp_err *err)
{
    return w->form->returned ? w->form->returned(w, err) : VP_OK;
}

const int64_t *vp_world_trained(const vp_world *w, int64_t *n, int64_t *element_bytes)
{
    *n             = w->n_trained;
    *element_bytes = w->form->is_flat        ? 4
                     : w->opts.adapter_bytes ? w->opts.adapter_master_bytes
                                             : w->opts.master_bytes;
    return w->trained;
}

vp_status vp_world_step(vp_world *w, vp_err *err)
{
    return w->form->step ? w->form->step(w, err) : VP_OK;
}

vp_status vp_world_stepped(vp_world *w, vp_err *err)
{
    w->n_steps++;
    return w->form->stepped ? w->form->stepped(w, err) : VP_OK;
}

void vp_world_drop_gradients(vp_world *w)
{
    vp_recorded_drop_gradients(w->step);
    memset(w->made, 0, (size_t)w->n_gradients * sizeof *w->made);
    for (int64_t i = 0; !w->form->keeps_reduced && i < w->n_weights + w->n_units; i++)
        vp_ledger_free(w->ledger, &w->reduced[i]);
}

void vp_world_host(const vp_world *w, int64_t *pinned_bytes, int64_t *elements)
{
    *pinned_bytes = w->pinned_bytes;
    *elements     = w->host_elements;
}
