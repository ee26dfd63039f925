#include "planner/assemble.h"

#include "base/checked.h"
#include "planner/planner_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What an instance's program depends on. */
typedef struct program_key {
    int             template_idx;
    uint64_t        recompute, offload;
    bool            host_states;
    vp_stream_place stream;
    vp_slot_place   slot;
} program_key;

static bool is_slot_place(const vp_slot_place *a, const vp_slot_place *b)
{
    return a->slot == b->slot && a->has_before == b->has_before && a->stays == b->stays &&
           a->recompute_before == b->recompute_before && a->offload_before == b->offload_before;
}

/* A program of its own for each template, set of recomputed ops, of offloaded ones, place of its
 * states and place in a chain that is streamed or has slots. */
static bool is_for(const vp_assembly *a, int64_t p, const program_key *key)
{
    return a->template_of[p] == key->template_idx && a->recompute_of[p] == key->recompute &&
           a->offload_of[p] == key->offload && a->host_states[p] == key->host_states &&
           vp_is_stream_place(&a->stream_place[p], &key->stream) &&
           is_slot_place(&a->slot_place[p], &key->slot);
}

static int64_t program_for(vp_assembly *a, const program_key *key)
{
    int64_t p = 0;

    while (p < a->n_programs && !is_for(a, p, key))
        p++;
    if (p == a->n_programs) {
        a->template_of[p]  = key->template_idx;
        a->recompute_of[p] = key->recompute;
        a->offload_of[p]   = key->offload;
        a->host_states[p]  = key->host_states;
        a->stream_place[p] = key->stream;
        a->slot_place[p]   = key->slot;
        a->n_programs++;
    }
    return p;
}

static program_key key_of(const vp_assembly *a, int64_t i)
{
    const vp_graph    *g   = &a->graph;
    const vp_scenario *s   = a->scenario;
    program_key        key = {.template_idx = g->instances[i].template_idx,
                              .host_states  = i < s->offload.states,
                              .stream       = vp_stream_place_of(s, g->n_instances, i),
                              .slot         = vp_slot_place_of(s, g->n_instances, i)};

    if (i > 0 && i < g->n_instances - 1) {
        key.recompute = vp_run_of(s, i)->recompute;
        key.offload   = vp_run_of(s, i)->offload;
    }
    return key;
}

/* Programs there may be: of each run those at its places in the chain, and beside its neighbours. */
static int64_t most_programs(const vp_scenario *s, int64_t n_instances)
{
    int64_t places = (s->offload.blocks ? VP_N_SLOTS : 1) * (s->offload.activations ? 4 : 1);
    int64_t runs   = s->n_runs + (s->offload.blocks ? 4 : 3);

    return vp_min_i64(n_instances + 1, runs * places);
}

/* As another one was lowered, with passes of its own. */
static bool copy_lowered(vp_arena *arena, const vp_lowered *from, vp_lowered *to)
{
    *to = *from;
    for (int pass = 0; pass < VP_N_PASSES; pass++) {
        vp_program *p  = &to->program;
        p->steps[pass] = vp_arena_room(arena, p->n_steps[pass] + 1, sizeof *p->steps[pass]);
        if (p->steps[pass] && p->n_steps[pass])
            memcpy(p->steps[pass], from->program.steps[pass],
                   (size_t)p->n_steps[pass] * sizeof *p->steps[pass]);
    }
    return !vp_arena_failed(arena);
}

/* The program before p that was lowered from the same template and set; -1: none. */
static int64_t lowered_alike(const vp_assembly *a, int64_t p)
{
    for (int64_t k = 0; k < p; k++)
        if (a->template_of[k] == a->template_of[p] && a->recompute_of[k] == a->recompute_of[p] &&
            a->offload_of[k] == a->offload_of[p])
            return k;
    return -1;
}

static vp_status lower_at(const vp_assembly *a, vp_arena *arena, int64_t p, int64_t n_samples,
                          vp_heights heights, bool brief, vp_lowered *out, vp_err *err)
{
    const vp_graph    *g          = &a->graph;
    const vp_scenario *s          = a->scenario;
    vp_lower_opts      opts       = {.symbols            = {n_samples, s->seq, 1, 1},
                                     .recompute          = a->recompute_of[p],
                                     .offload            = a->offload_of[p],
                                     .chunk_rows         = s->loss_chunk,
                                     .brief              = brief,
                                     .compute_capability = a->cost->device->compute_capability,
                                     .heights            = heights,
                                     .control_idx        = VP_FIXED_CONTROL,
                                     .angles_idx         = a->angles};
    opts.span_idx[g->tokens_span] = VP_FIXED_TOKENS;
    opts.span_idx[g->labels_span] = VP_FIXED_LABELS;
    if (g->types_span >= 0)
        opts.span_idx[g->types_span] = a->types;
    if (g->lengths_span >= 0)
        opts.span_idx[g->lengths_span] = a->lengths;
    return vp_lower(arena, g, a->template_of[p], vp_semantics_of(&s->recipe, s->attention), &opts,
                    out, err);
}

/* A program, with the passes of a smaller last micro-step. */
static vp_status lower_steps(const vp_assembly *a, vp_arena *arena, int64_t p, vp_lowered *out,
                             bool *unlike, vp_err *err)
{
    int64_t    n_last = vp_scenario_last_batch(a->scenario);
    vp_lowered last   = {0};
    bool       alike  = true;
    vp_status  st     = VP_OK;

    VP_TRY(lower_at(a, arena, p, a->scenario->micro_batch, VP_HEIGHTS_PACKED, false, out, err));
    if (n_last) { /* whose buffers lie where the others' lie */
        VP_TRY(lower_at(a, arena, p, n_last, VP_HEIGHTS_NONE, false, &last, err));
        VP_TRY(vp_last_step_add(arena, &last, out, &alike, err));
    }
    *unlike = !alike;
out:
    return st;
}

static vp_lowered_key lowered_key_of(const vp_assembly *a, int64_t p)
{
    const vp_graph    *g    = &a->graph;
    const vp_scenario *s    = a->scenario;
    int                head = g->instances[g->n_instances - 1].template_idx;

    return (vp_lowered_key){.template_idx = a->template_of[p],
                            .micro_batch  = s->micro_batch,
                            .last_batch   = vp_scenario_last_batch(s),
                            .seq          = s->seq,
                            .chunk_rows   = a->template_of[p] == head ? s->loss_chunk : 0,
                            .recompute    = a->recompute_of[p],
                            .offload      = a->offload_of[p],
                            .semantics    = vp_semantics_of(&s->recipe, s->attention)};
}

/* The same, taken from the store, or put there with its seconds. Segments are templates of one
 * assembly: they are not kept. */
static vp_status lower_program(vp_assembly *a, int64_t p, vp_err *err)
{
    bool              lasts = a->template_of[p] < a->model->graph.n_templates, unlike = false;
    vp_lowered_store *store = lasts ? a->cost->store : NULL;
    vp_lowered_key    key   = lowered_key_of(a, p);
    const vp_lowered *known = vp_lowered_store_find(store, &key, &unlike);
    vp_arena         *arena = NULL;
    vp_lowered        made  = {0};
    vp_status         st    = VP_OK;

    if (a->untimed &&
        p == a->program_of[a->graph.n_instances - 1]) { /* each chunk brings its own */
        VP_TRY(lower_at(a, a->arena, p, a->scenario->micro_batch, VP_HEIGHTS_PACKED, true,
                        &a->lowered[p], err));
    } else if (!store) {
        VP_TRY(lower_steps(a, a->arena, p, &a->lowered[p], &unlike, err));
    } else {
        if (!known) {
            VP_TRY_ALLOC(err, arena = vp_arena_new());
            VP_TRY(lower_steps(a, arena, p, &made, &unlike, err));
            vp_price_steps(a, &made.program);
            VP_TRY_ALLOC(err, !vp_arena_failed(arena) &&
                                  vp_lowered_store_put(store, &key, arena, &made, unlike));
            arena = NULL; /* the store's now, and what made points at */
        }
        VP_TRY_ALLOC(err, copy_lowered(a->arena, known ? known : &made, &a->lowered[p]));
    }
    a->unlike[p] = unlike;
out:
    vp_arena_free(arena);
    return st;
}

static void use_store(const vp_assembly *a)
{
    const vp_recipe *r = &a->scenario->recipe;

    vp_lowered_store_use(a->cost->store, &(vp_store_subject){.model      = a->model,
                                                             .device     = a->cost->device,
                                                             .profile    = a->cost->profile,
                                                             .clip_norm  = r->clip_norm,
                                                             .dropout    = r->dropout,
                                                             .loss_scale = r->loss_scale});
    vp_lowered_store_trim(a->cost->store);
}

static vp_status lower_programs(vp_assembly *a, vp_err *err)
{
    const vp_graph    *g = &a->graph;
    const vp_scenario *s = a->scenario;
    vp_grouping        groups[VP_MAX_RUNS];
    int64_t            n, alike;
    vp_status          st = VP_OK;

    assert(s->n_runs >= 1 && s->n_runs <= VP_MAX_RUNS);
    use_store(a);
    for (int i = 0; i < s->n_runs; i++)
        groups[i] = (vp_grouping){s->runs[i].n_blocks, s->runs[i].segment};
    a->graph = vp_graph_grouped(a->arena, &a->model->graph, groups, s->n_runs);
    VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
    n               = most_programs(s, g->n_instances);
    a->lowered      = vp_arena_array(a->arena, n, sizeof *a->lowered);
    a->template_of  = vp_arena_array(a->arena, n, sizeof *a->template_of);
    a->recompute_of = vp_arena_array(a->arena, n, sizeof *a->recompute_of);
    a->offload_of   = vp_arena_array(a->arena, n, sizeof *a->offload_of);
    a->host_states  = vp_arena_array(a->arena, n, sizeof *a->host_states);
    a->unlike       = vp_arena_array(a->arena, n, sizeof *a->unlike);
    a->slot_place   = vp_arena_array(a->arena, n, sizeof *a->slot_place);
    a->stream_place = vp_arena_array(a->arena, n, sizeof *a->stream_place);
    a->program_of   = vp_arena_array(a->arena, g->n_instances, sizeof *a->program_of);
    VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
    for (int64_t i = 0; i < g->n_instances; i++) {
        program_key key  = key_of(a, i);
        a->program_of[i] = program_for(a, &key);
        assert(a->n_programs <= n);
    }
    for (int64_t p = 0; p < a->n_programs; p++) {
        alike = lowered_alike(a, p);
        if (alike >= 0)
            VP_TRY_ALLOC(err, copy_lowered(a->arena, &a->lowered[alike], &a->lowered[p]));
        else
            VP_TRY(lower_program(a, p, err));
    }
out:
    return st;
}

static vp_status work_out_figures(vp_assembly *a, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t k = 0; k < a->n_programs; k++)
        a->figures.unlike |= a->unlike[k];
    VP_TRY(vp_layout_place(a, err));
    VP_TRY(vp_price(a, err));
out:
    return st;
}

static vp_phase_key phase_key_of(const vp_assembly *a, int64_t p)
{
    const vp_scenario *s = a->scenario;

    return (vp_phase_key){.template_idx = a->template_of[p],
                          .optimizer    = s->recipe.optimizer,
                          .precision    = s->recipe.precision,
                          .gradients    = s->recipe.gradients,
                          .host_states  = a->host_states[p],
                          .host_step    = s->offload.host_step,
                          .streamed     = s->offload.blocks,
                          .in_backward  = vp_scenario_updates_in_backward(s),
                          .place        = a->stream_place[p]};
}

/* Segments are templates of one assembly: what follows them is not kept. */
static bool lasts(const vp_assembly *a)
{
    bool all = true;

    for (int64_t p = 0; p < a->n_programs; p++)
        all &= a->template_of[p] < a->model->graph.n_templates;
    return all;
}

/* Where norm and updates of all programs are known, they are done with. */
static vp_status find_phases(vp_assembly *a, vp_err *err)
{
    bool      known = a->cost->store && !a->needs_steps && lasts(a);
    vp_status st    = VP_OK;

    if (!known)
        return VP_OK;
    a->phase_of = vp_arena_array(a->arena, a->n_programs, sizeof *a->phase_of);
    VP_TRY_ALLOC(err, a->phase_of);
    for (int64_t p = 0; known && p < a->n_programs; p++) {
        vp_phase_key key = phase_key_of(a, p);
        a->phase_of[p]   = vp_lowered_store_find_phase(a->cost->store, &key);
        known            = a->phase_of[p];
    }
    if (!known)
        a->phase_of = NULL;
    for (int64_t p = 0; known && p < a->n_programs; p++)
        for (int k = 0; k < VP_N_PHASES; k++)
            a->lowered[p].program.n_steps[VP_PASS_NORM + k] = 0;
out:
    return st;
}

/* What was priced, for others. */
static vp_status keep_phases(const vp_assembly *a, vp_err *err)
{
    vp_status st = VP_OK;

    if (!a->cost->store || a->phase_of || !lasts(a))
        return VP_OK;
    for (int64_t p = 0; p < a->n_programs; p++) {
        const vp_phase_key key = phase_key_of(a, p);
        int64_t            ns[VP_N_PHASES];
        if (vp_lowered_store_find_phase(a->cost->store, &key))
            continue;
        vp_price_of_phase(a, p, ns);
        VP_TRY_ALLOC(err, vp_lowered_store_put_phase(a->cost->store, &key, &a->lowered[p].program,
                                                     ns, a->cost->device->is_cpu));
    }
out:
    return st;
}

/* The steps of norm and updates with their copies, unless what they take is known. */
static vp_status finish_phases(vp_assembly *a, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_optimizer_phase_add(a, err));
    VP_TRY(find_phases(a, err));
    for (int64_t k = 0; !a->phase_of && k < a->n_programs; k++)
        if (a->host_states[k])
            VP_TRY(vp_offload_updates(a, k, err));
    if (!a->phase_of && a->scenario->offload.host_step &&
        vp_scenario_updates_in_backward(a->scenario))
        VP_TRY(vp_offload_bring_control(a, err));
out:
    return st;
}

/* What follows lowering: it depends on the optimizer. */
static vp_status finish(vp_assembly *a, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_layout_list_windows(a, err));
    VP_TRY(vp_stream_list_slots(a, err));
    VP_TRY(vp_activations_list_slots(a, err));
    VP_TRY(finish_phases(a, err));
    VP_TRY(vp_activations_move(a, err));
    VP_TRY(vp_stream_add_copies(a, 0, a->phase_of ? VP_PASS_BACKWARD : VP_PASS_UPDATE, err));
    VP_TRY(work_out_figures(a, err));
    VP_TRY(keep_phases(a, err));
out:
    return st;
}

static vp_status work_out(vp_assembly *a, vp_err *err)
{
    vp_status st = VP_OK;

    assert(a->scenario->micro_batch > 0 && a->scenario->micro_batch <= a->scenario->global_batch);
    VP_TRY(vp_layout_list_fixed(a, err));
    VP_TRY(lower_programs(a, err));
    VP_TRY(finish(a, err));
out:
    return st;
}

bool vp_figures_may_fit(const vp_device *device, const vp_figures *f, int64_t budget_bytes)
{
    return vp_add(f->stack_base_bytes, f->first_height_bytes) <=
           vp_device_arena_bytes(device, budget_bytes);
}

vp_status vp_assemble_figures(const vp_model *model, const vp_scenario *scenario, vp_cost *cost,
                              vp_figures *out, vp_err *err)
{
    vp_assembly a  = {.model = model, .scenario = scenario, .cost = cost, .arena = vp_arena_new()};
    vp_status   st = VP_OK;

    VP_TRY_ALLOC(err, a.arena);
    VP_TRY(work_out(&a, err));
    assert(a.figures.device_bytes >= a.figures.peak_bytes &&
           a.figures.peak_bytes >= a.figures.stack_base_bytes);
    *out = a.figures;
out:
    vp_arena_free(a.arena);
    return st;
}

/* ---- frames ---- */

typedef struct framed {
    vp_scenario scenario;
    vp_assembly assembly; /* in an arena of its own */
} framed;

struct vp_frame {
    vp_arena *arena; /* of what no optimizer changes */
    int64_t   n;
    framed    of[VP_N_OPTIMIZERS];
};

/* Programs of their own for what an optimizer adds to them. */
static bool copy_programs(vp_assembly *a)
{
    vp_lowered *copy = vp_arena_array(a->arena, a->n_programs, sizeof *copy);

    for (int64_t k = 0; copy && k < a->n_programs; k++)
        copy_lowered(a->arena, &a->lowered[k], &copy[k]);
    a->lowered = copy;
    return !vp_arena_failed(a->arena);
}

/* The store may drop what was found there while a frame lives: buffers of its own; the rest is not asked for. */
static bool copy_buffers(vp_assembly *a)
{
    for (int64_t k = 0; k < a->n_programs; k++) {
        vp_lowered     *l    = &a->lowered[k];
        vp_plan_buffer *copy = vp_arena_room(a->arena, l->program.n_buffers + 1, sizeof *copy);
        if (copy && l->program.n_buffers)
            memcpy(copy, l->program.buffers, (size_t)l->program.n_buffers * sizeof *copy);
        l->program.buffers = copy;
        l->saved           = NULL;
        l->makers          = NULL;
        l->again           = NULL;
    }
    return !vp_arena_failed(a->arena);
}

/* One more optimizer. */
static vp_status add_framed(vp_frame *f, const vp_assembly *all, const vp_recipe *recipe,
                            vp_err *err)
{
    framed   *x  = &f->of[f->n];
    vp_status st = VP_OK;

    x->scenario        = *all->scenario;
    x->scenario.recipe = *recipe;
    x->assembly        = *all;
    vp_assembly *a     = &x->assembly;
    a->scenario        = &x->scenario;
    a->n_fixed         = 0;
    memset(a->fixed, 0, sizeof a->fixed);
    VP_TRY_ALLOC(err, a->arena = vp_arena_new());
    f->n++;
    VP_TRY(vp_layout_list_fixed(a, err));
    /* what the programs point to stands before what an optimizer needs */
    assert(a->types == all->types && a->lengths == all->lengths && a->angles == all->angles);
    VP_TRY_ALLOC(err, copy_programs(a));
    VP_TRY(finish(a, err));
out:
    return st;
}

vp_status vp_frame_make(const vp_model *model, const vp_scenario *scenario,
                        const vp_recipe *recipes, int64_t n, bool timed, vp_cost *cost,
                        vp_frame **out, vp_err *err)
{
    vp_frame   *f   = calloc(1, sizeof *f);
    vp_scenario s   = *scenario;
    vp_assembly all = {.model = model, .scenario = &s, .cost = cost, .untimed = !timed};
    vp_status   st  = VP_OK;

    *out = NULL;
    assert(n >= 1 && n <= VP_N_OPTIMIZERS && !scenario->offload.activations);
    VP_TRY_ALLOC(err, f);
    VP_TRY_ALLOC(err, all.arena = f->arena = vp_arena_new());
    s.recipe = recipes[0];
    VP_TRY(vp_layout_list_fixed(&all, err));
    VP_TRY(lower_programs(&all, err));
    VP_TRY_ALLOC(err, copy_buffers(&all));
    for (int64_t i = 0; i < n; i++) {
        assert(recipes[i].precision == recipes[0].precision &&
               recipes[i].gradients == recipes[0].gradients);
        VP_TRY(add_framed(f, &all, &recipes[i], err));
    }
    *out = f;
    f    = NULL;
out:
    vp_frame_free(f);
    return st;
}

void vp_frame_free(vp_frame *f)
{
    for (int64_t i = 0; f && i < f->n; i++)
        vp_arena_free(f->of[i].assembly.arena);
    if (f)
        vp_arena_free(f->arena);
    free(f);
}

/* What the head takes, told from a part of its chunks where that tells of all. */
static vp_status price_head(const vp_assembly *a, int64_t p, vp_priced_head *out, vp_err *err)
{
    const int64_t  n_last = vp_scenario_last_batch(a->scenario);
    vp_arena      *arena  = vp_arena_new();
    vp_lowered     l = {0}, last = {0};
    vp_priced_head of_last = {0};
    bool           alike   = true;
    vp_status      st      = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(lower_at(a, arena, p, a->scenario->micro_batch, VP_HEIGHTS_PACKED, true, &l, err));
    if (n_last) {
        VP_TRY(lower_at(a, arena, p, n_last, VP_HEIGHTS_NONE, true, &last, err));
        VP_TRY(vp_last_step_add(arena, &last, &l, &alike, err));
    }
    if (l.middle.unsure ||
        (!alike && l.middle.n_times)) { /* two last chunks may stand for others */
        bool unlike;
        l = (vp_lowered){0};
        VP_TRY(lower_steps(a, arena, p, &l, &unlike, err));
        alike = !unlike;
    }
    vp_price_steps(a, &l.program);
    vp_price_steps(a, &last.program);
    vp_price_head(&l, out);
    vp_price_head(&last, &of_last);
    out->unlike                            = !alike;
    out->kernels_ns[VP_PASS_LAST_FORWARD]  = of_last.kernels_ns[VP_PASS_FORWARD];
    out->kernels_ns[VP_PASS_LAST_BACKWARD] = of_last.kernels_ns[VP_PASS_BACKWARD];
out:
    vp_arena_free(arena);
    return st;
}

/* The figures alone of the head in other chunks. */
static vp_status change_priced_head(vp_assembly *a, int64_t head, vp_err *err)
{
    vp_lowered_store *store = a->cost->store;
    vp_lowered_key    key   = lowered_key_of(a, head);
    vp_priced_head   *made;
    vp_status         st = VP_OK;

    a->head = vp_lowered_store_find_head(store, &key);
    if (!a->head) {
        VP_TRY_ALLOC(err, made = vp_arena_alloc(a->arena, sizeof *made));
        VP_TRY(price_head(a, head, made, err));
        VP_TRY_ALLOC(err, !store || vp_lowered_store_put_head(store, &key, made));
        a->head = made;
    }
    a->unlike[head]                     = a->head->unlike;
    a->lowered[head].program.kept_bytes = a->head->kept_bytes;
    memcpy(a->lowered[head].height_bytes, a->head->height_bytes, sizeof a->head->height_bytes);
out:
    return st;
}

/* An assembly as it is, but for its head, which is the last of its programs: forward and backward in other chunks, the
 * updates as they are. */
static vp_status change_head(vp_assembly *a, vp_err *err)
{
    const int64_t     head    = a->n_programs - 1;
    const vp_lowered *lowered = a->lowered;
    const bool       *unlike  = a->unlike;
    vp_status         st      = VP_OK;

    assert(a->program_of[a->graph.n_instances - 1] == head);
    a->lowered = vp_arena_array(a->arena, a->n_programs, sizeof *a->lowered);
    a->unlike  = vp_arena_array(a->arena, a->n_programs, sizeof *a->unlike);
    VP_TRY_ALLOC(err, a->lowered && a->unlike);
    memcpy(a->lowered, lowered, (size_t)a->n_programs * sizeof *lowered);
    memcpy(a->unlike, unlike, (size_t)a->n_programs * sizeof *unlike);
    if (a->untimed)
        return change_priced_head(a, head, err);
    a->lowered[head] = (vp_lowered){0};
    VP_TRY(lower_program(a, head, err));
    VP_TRY(vp_stream_add_copies(a, head, VP_PASS_BACKWARD, err));
    for (int pass = VP_PASS_NORM; pass <= VP_PASS_UPDATE; pass++) {
        a->lowered[head].program.steps[pass]   = lowered[head].program.steps[pass];
        a->lowered[head].program.n_steps[pass] = lowered[head].program.n_steps[pass];
    }
out:
    return st;
}

vp_status vp_frame_figures(const vp_frame *f, int64_t loss_chunk, vp_figures *out, vp_err *err)
{
    vp_arena *arena = NULL;
    vp_status st    = VP_OK;

    vp_lowered_store_trim(f->of[0].assembly.cost->store);
    for (int64_t i = 0; i < f->n; i++) {
        vp_scenario s = f->of[i].scenario;
        vp_assembly a = f->of[i].assembly;
        s.loss_chunk  = loss_chunk;
        a.scenario    = &s;
        a.figures     = (vp_figures){0};
        VP_TRY_ALLOC(err, a.arena = arena = vp_arena_new());
        VP_TRY(change_head(&a, err));
        VP_TRY(work_out_figures(&a, err));
        out[i] = a.figures;
        vp_arena_free(arena);
        arena = NULL;
    }
out:
    vp_arena_free(arena);
    return st;
}

/* ---- whole plans ---- */

vp_status vp_assemble(const vp_model *model, const vp_scenario *scenario, vp_cost *cost,
                      vp_plan **out, vp_err *err)
{
    vp_plan  *plan = vp_plan_new();
    vp_status st   = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, plan);
    vp_assembly a      = {.model       = model,
                          .scenario    = scenario,
                          .cost        = cost,
                          .arena       = plan->arena,
                          .needs_steps = true};
    cost->all_measured = true;
    VP_TRY(work_out(&a, err));
    if (a.figures.unlike)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "a last micro-step of %lld samples has other programs than those of %lld",
                       (long long)vp_scenario_last_batch(scenario),
                       (long long)scenario->micro_batch));
    VP_TRY(vp_plan_of_assembly(&a, plan, err));
    VP_TRY(vp_plan_check(plan, model->name, err));
    *out = plan;
    plan = NULL;
out:
    vp_plan_free(plan);
    return st;
}
