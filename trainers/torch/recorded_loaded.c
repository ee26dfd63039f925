#include "trainers/torch/recorded_loaded.h"

#include "trainers/torch/recording_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct vp_recorded_loaded {
    const vp_recorded_program *program;
    vp_caching_allocator      *allocator;
    vp_ledger ledger; /* its allocator and its phase's name are those of the step it was kept of */
    int64_t   n_slots, n_parameters; /* slots of loading, which come first */
    int64_t  *bytes, *base;          /* of each slot */
    vp_ledger_block *blocks;
    int64_t         *parameters, *rows_of_parameter;
    bool            *is_vector, *has_rank;
    int64_t          rows[3], n_blocks[VP_RECORDED_GROUPS];
    int64_t          frozen_bytes, idle_bytes, quantised_bytes;
    bool             stays, holds_weights, holds_frozen;
    vp_world        *world; /* or NULL */
};

static int inputs_of(const vp_recorded_program *p)
{
    return vp_recorded_phase_named(p, "inputs", strlen("inputs"));
}

static int64_t slots_of_loading(const vp_recorded_program *p)
{
    int     inputs = inputs_of(p);
    int64_t n      = 0;

    while (n < p->n_slots && p->slots[n].phase < inputs)
        n++;
    return n;
}

/* Rows of look-up tables, by which a parameter is known as one. */
static void take_rows(const vp_recorded *s, int64_t rows[3])
{
    rows[0] = s->symbols->at[VP_SYM_V];
    rows[1] = s->symbols->at[VP_SYM_P];
    rows[2] = s->symbols->at[VP_SYM_T];
}

/* Copies that are the snapshot's. */
static void *copy_of(const void *from, int64_t n, size_t size)
{
    void *to = malloc(((size_t)n + 1) * size);

    if (to)
        memcpy(to, from, (size_t)n * size);
    return to;
}

static bool can_be_kept(const vp_recorded *s)
{
    int64_t n = slots_of_loading(s->program);

    for (int i = 0; i < s->program->n_workspaces; i++)
        if (s->taken[i])
            return false;
    for (int64_t i = 0; i < n; i++)
        if (s->program->slots[i].tile)
            return false;
    return inputs_of(s->program) > 0 && s->bytes && s->ledger->n_phases == 1;
}

vp_status vp_recorded_loaded_new(const vp_recorded *s, const vp_world *world,
                                 const vp_world_opts *opts, vp_recorded_loaded **out, vp_err *err)
{
    vp_recorded_loaded *l  = NULL;
    vp_status           st = VP_OK;

    *out = NULL;
    if (!can_be_kept(s))
        return VP_OK;
    l = calloc(1, sizeof *l);
    VP_TRY_ALLOC(err, l);
    l->program       = s->program;
    l->ledger        = *s->ledger;
    l->n_slots       = slots_of_loading(s->program);
    l->n_parameters  = s->n_parameters;
    l->frozen_bytes  = s->frozen_bytes;
    l->idle_bytes    = s->idle_bytes;
    l->stays         = s->stays;
    l->holds_weights = s->watch && s->watch->holds_weights;
    l->holds_frozen  = s->watch && s->watch->holds_frozen;
    memcpy(l->n_blocks, s->n_blocks, sizeof l->n_blocks);
    take_rows(s, l->rows);
    l->quantised_bytes = s->quantised_bytes;
    l->bytes           = copy_of(s->bytes, l->n_slots, sizeof *l->bytes);
    l->base            = copy_of(s->base, l->n_slots + 1, sizeof *l->base);
    l->blocks          = copy_of(s->blocks, s->base[l->n_slots], sizeof *l->blocks);
    l->parameters      = copy_of(s->parameters, l->n_parameters, sizeof *l->parameters);
    l->rows_of_parameter =
        copy_of(s->rows_of_parameter, l->n_parameters, sizeof *l->rows_of_parameter);
    l->is_vector = copy_of(s->is_vector, l->n_parameters, sizeof *l->is_vector);
    l->has_rank  = copy_of(s->has_rank, l->n_parameters, sizeof *l->has_rank);
    VP_TRY_ALLOC(err, l->bytes && l->base && l->blocks && l->parameters && l->rows_of_parameter &&
                          l->is_vector && l->has_rank);
    VP_TRY(vp_caching_allocator_copy(s->ledger->allocator, &l->allocator, err));
    if (world)
        VP_TRY(vp_world_copy(world, opts, NULL, NULL, &l->world, err));
    if (world && !l->world)
        goto out;
    *out = l;
    l    = NULL;
out:
    vp_recorded_loaded_free(l);
    return st;
}

void vp_recorded_loaded_free(vp_recorded_loaded *l)
{
    if (!l)
        return;
    vp_caching_allocator_destroy(l->allocator);
    vp_world_free_copy(l->world);
    free(l->bytes);
    free(l->base);
    free(l->blocks);
    free(l->parameters);
    free(l->rows_of_parameter);
    free(l->is_vector);
    free(l->has_rank);
    free(l);
}

static bool is_same_token(const token *a, const token *b)
{
    return a->slot == b->slot && a->is_free == b->is_free && a->rule == b->rule && a->a == b->a &&
           a->b == b->b;
}

static bool is_same_section(const section *a, const section *b)
{
    if (a->n != b->n || a->group != b->group || a->irregular != b->irregular)
        return false;
    for (int64_t i = 0; i < a->n; i++)
        if (!is_same_token(&a->tokens[i], &b->tokens[i]))
            return false;
    return true;
}

static bool is_same_slot(const slot *a, const slot *b)
{
    return a->size == b->size && a->tile == b->tile && a->beside == b->beside &&
           a->in_body == b->in_body && a->owner == b->owner;
}

/* The same events: what they load is then only a matter of bytes. */
static bool loads_the_same(const vp_recorded_program *a, const vp_recorded_program *b,
                           int64_t n_slots)
{
    int n_phases = inputs_of(a);

    if (a == b)
        return true;
    if (a->recording != b->recording || a->every != b->every || inputs_of(b) != n_phases ||
        a->rest != b->rest || slots_of_loading(b) != n_slots)
        return false;
    for (int i = 0; i < n_phases; i++) {
        const phase *x = &a->phases[i], *y = &b->phases[i];
        if (strcmp(x->name, y->name) != 0 || x->n_sections != y->n_sections)
            return false;
        for (int k = 0; k < x->n_sections; k++)
            if (!is_same_section(&x->sections[k], &y->sections[k]))
                return false;
    }
    for (int64_t i = 0; i < n_slots; i++)
        if (!is_same_slot(&a->slots[i], &b->slots[i]))
            return false;
    for (int i = 0; i < b->n_workspaces; i++)
        if (b->workspaces[i].phase < n_phases)
            return false;
    return true;
}

/* Who looks on holds the same weights. Of a world that is not there yet the opts say that. */
static bool is_watched_alike(const vp_recorded_loaded *l, const vp_recorded *s)
{
    return l->holds_weights == (s->watch && s->watch->holds_weights) &&
           l->holds_frozen == (s->watch && s->watch->holds_frozen);
}

bool vp_recorded_loaded_suits(const vp_recorded_loaded *l, const vp_recorded *s,
                              const vp_world_opts *opts)
{
    int64_t rows[3];

    take_rows(s, rows);
    return !opts == !l->world && (opts || is_watched_alike(l, s)) && s->bytes &&
           s->n_parameters == 0 && memcmp(rows, l->rows, sizeof rows) == 0 &&
           s->stays == l->stays && memcmp(s->n_blocks, l->n_blocks, sizeof l->n_blocks) == 0 &&
           loads_the_same(l->program, s->program, l->n_slots) &&
           memcmp(s->base, l->base, (size_t)(l->n_slots + 1) * sizeof *l->base) == 0 &&
           memcmp(s->bytes, l->bytes, (size_t)l->n_slots * sizeof *l->bytes) == 0 &&
           (!opts || vp_world_loads_the_same(l->world, opts, s));
}

/* Of the ledger's open phase all but its name. */
static void give_ledger(const vp_recorded_loaded *l, vp_ledger *to, vp_caching_allocator *allocator)
{
    const char *name = to->phases[0].name;

    assert(to->n_phases == 1 && to->open && l->ledger.open);
    to->allocator         = allocator;
    to->phases[0]         = l->ledger.phases[0];
    to->phases[0].name    = name;
    to->is_at_peak        = l->ledger.is_at_peak;
    to->needed_bytes      = l->ledger.needed_bytes;
    to->most_needed_bytes = l->ledger.most_needed_bytes;
    memcpy(to->now, l->ledger.now, sizeof to->now);
}

vp_status vp_recorded_loaded_give(const vp_recorded_loaded *l, vp_recorded *s,
                                  const vp_world_opts *opts, vp_caching_allocator **allocator,
                                  vp_world **world, vp_err *err)
{
    vp_caching_allocator *own  = NULL;
    int64_t               most = s->ledger->at_most_needed_bytes;
    vp_status             st   = VP_OK;

    if (most && l->ledger.most_needed_bytes > most) {
        s->ledger->needed_bytes = l->ledger.most_needed_bytes;
        return vp_ledger_refuse_needed(s->ledger, err);
    }
    if (opts)
        VP_TRY(vp_world_copy(l->world, opts, s, s->ledger, world, err));
    VP_TRY(vp_caching_allocator_copy(l->allocator, &own, err));
    vp_caching_allocator_destroy(*allocator);
    *allocator = own;
    give_ledger(l, s->ledger, own);
    memcpy(s->blocks, l->blocks, (size_t)l->base[l->n_slots] * sizeof *l->blocks);
    s->n_clear = l->base[l->n_slots];
    memcpy(s->parameters, l->parameters, (size_t)l->n_parameters * sizeof *l->parameters);
    memcpy(s->rows_of_parameter, l->rows_of_parameter,
           (size_t)l->n_parameters * sizeof *l->rows_of_parameter);
    memcpy(s->is_vector, l->is_vector, (size_t)l->n_parameters * sizeof *l->is_vector);
    memcpy(s->has_rank, l->has_rank, (size_t)l->n_parameters * sizeof *l->has_rank);
    s->n_parameters    = l->n_parameters;
    s->frozen_bytes    = l->frozen_bytes;
    s->idle_bytes      = l->idle_bytes;
    s->quantised_bytes = l->quantised_bytes;
out:
    return st;
}
