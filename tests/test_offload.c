/* Offload: what lies in the host's memory comes to the device through windows. The plan must pass the
 * checker, its two arenas must be as high as predicted, and it must train the same bits as the plan
 * that has everything on the device, however copies are delayed. */
#include "lora_test.h"
#include "offload_test.h"

#include "planner/lowered_store.h"
#include "planner/lowering/lower.h"
#include "planner/space.h"
#include "planner/streamed_space.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Plans that were trained here, and what of theirs was in host memory: all of the long run must be many. */
static struct counts {
    int plans, moved, streamed, states, adapted;
} trained_with;

static void count(const vp_scenario *s, bool moved)
{
    trained_with.plans++;
    trained_with.moved += moved;
    trained_with.streamed += s->offload.blocks;
    trained_with.states += s->offload.states > 0;
    trained_with.adapted += s->recipe.lora.rank > 0;
}

static void states_in_host_memory_train_the_same_bits(void **state)
{
    rng r     = {29};
    int n     = (long_run() ? 6 : 1) * 2 * VP_N_OPTIMIZERS * n_precisions();
    int moved = 0, streamed = 0;

    (void)state;
    for (int i = 0; i < n; i++) {
        char        config[800], what[96];
        vp_scenario s     = scenario_of(&r, i);
        vp_model   *model = model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        vp_recompute kind = (vp_recompute)pick(&r, 3);
        vp_plan     *plain = plan_of(model, s, kind), *plan;
        trained      want  = train(plain, 3, 1, false);

        s.offload.states = 1 + pick(&r, model->graph.n_instances);
        s.offload.blocks = i % 2 && vp_may_stream(&model->graph);
        streamed += s.offload.blocks;
        snprintf(what, sizeof what, "model %d, %s, %s, %lld instances%s", i,
                 vp_optimizer_name(s.recipe.optimizer), vp_precision_name(s.recipe.precision),
                 (long long)s.offload.states, s.offload.blocks ? ", streamed" : "");
        plan = plan_of(model, s, kind);
        OK(vp_plan_check(plan, what, err));
        assert_true(plan->host_peak_bytes >= 0 && plain->host_peak_bytes == 0);
        moved += plan->host_peak_bytes > 0;
        count(&s, false);
        trains_like(plan, &want, what);
        free(want.params);
        vp_plan_free(plain);
        vp_plan_free(plan);
        vp_model_free(model);
    }
    assert_true(moved * 3 >= n * 2 && streamed * 4 >= n);
}

/* Of eight streamed blocks some stand alike in the chain but for their slots, and some in one slot too: each is
 * updated in its own. */
static void blocks_of_every_slot_train_the_same_bits(void **state)
{
    vp_model *model =
        tiny_model(&(tiny){.n_embd = 24, .n_layer = 8, .n_head = 3, .vocab = 61}, 0.0);
    vp_scenario s = {.seq = 32, .global_batch = 4, .micro_batch = 2, .recipe = vp_recipe_default()};
    vp_plan    *plan = plan_of(model, s, VP_RECOMPUTE_NONE);
    trained     want = train(plan, 3, 1, false);

    (void)state;
    vp_plan_free(plan);
    s.offload.blocks = true;
    s.offload.states = model->graph.n_instances;
    plan             = plan_of(model, s, VP_RECOMPUTE_NONE);
    OK(vp_plan_check(plan, "plan", err));
    trains_like(plan, &want, "eight streamed blocks");
    free(want.params);
    vp_plan_free(plan);
    vp_model_free(model);
}

/* Ops of a block whose outputs backward reads. */
static uint64_t movable_ops(const vp_model *model, const vp_scenario *s)
{
    vp_arena     *arena = vp_arena_new();
    vp_lower_opts opts  = {
         .symbols = {s->micro_batch, s->seq, 1, 1}, .span_idx = {1, 2, 3, 4}, .angles_idx = 5};
    vp_lowered l   = {0};
    uint64_t   ops = 0;

    OK(vp_lower(arena, &model->graph, vp_block_template(&model->graph),
                vp_semantics_of(&s->recipe, s->attention), &opts, &l, err));
    for (int64_t b = 0; b < l.program.n_buffers; b++)
        ops |= l.makers[b] ? UINT64_C(1) << (l.makers[b] - 1) : 0;
    vp_arena_free(arena);
    return ops;
}

/* Blocks in runs that recompute and move any ops each, through one or two slots. */
static void move_at_random(rng *r, const vp_model *model, vp_scenario *s)
{
    int64_t  left = model->graph.n_instances - 2;
    uint64_t may  = movable_ops(model, s);

    s->offload.n_slots     = 1 + (int)pick(r, VP_MAX_ACTIVATION_SLOTS);
    s->offload.activations = may & (pick(r, 3) ? UINT64_MAX : (uint64_t)pick(r, INT64_MAX));
    if (!s->offload.activations)
        s->offload.activations = may;
    s->n_runs = 0;
    while (left > 0) {
        int64_t      here = 1 + pick(r, left);
        vp_block_run run  = {.recompute = pick(r, 3) ? (uint64_t)pick(r, INT64_MAX) : 0,
                             .n_blocks  = here,
                             .segment   = 1};
        run.recompute &= vp_recompute_set(model, VP_RECOMPUTE_FULL);
        run.offload =
            s->offload.activations & (pick(r, 3) ? UINT64_MAX : (uint64_t)pick(r, INT64_MAX));
        s->runs[s->n_runs++] = run;
        left -= here;
    }
}

static bool moves(const vp_plan *plan)
{
    const vp_bucket *bucket = &plan->buckets[0];
    bool             any    = false;

    for (int64_t k = 0; k < bucket->n_programs; k++)
        for (int64_t b = 0; b < bucket->programs[k].n_buffers; b++)
            any |= bucket->programs[k].buffers[b].memory == VP_MEMORY_HOST_PINNED;
    return any;
}

static void activations_in_host_memory_train_the_same_bits(void **state)
{
    rng r     = {41};
    int n     = long_run() ? 800 : 192;
    int moved = 0;

    (void)state;
    for (int i = 0; i < n; i++) {
        char        config[800], what[96];
        vp_scenario s = scenario_of(&r, i);
        vp_model   *model =
            is_decoder(i % N_FAMILIES) && pick(&r, 4) == 0
                  ? random_adapted(&r, i % N_FAMILIES, &s.recipe.lora)
                  : model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        vp_plan *plain = plan_of(model, s, VP_RECOMPUTE_NONE), *plan;
        trained  want  = train(plain, 3, 1, false);

        move_at_random(&r, model, &s);
        s.offload.states = pick(&r, 2) ? pick(&r, model->graph.n_instances + 1) : 0;
        s.offload.blocks = i % 3 == 0 && vp_may_stream(&model->graph);
        snprintf(what, sizeof what, "model %d%s, %d slots, ops %llx, %d runs, %lld instances%s", i,
                 s.recipe.lora.rank ? " with adapters" : "", s.offload.n_slots,
                 (unsigned long long)s.offload.activations, s.n_runs, (long long)s.offload.states,
                 s.offload.blocks ? ", streamed" : "");
        plan = plan_with(model, s, 0);
        OK(vp_plan_check(plan, what, err));
        moved += moves(plan);
        count(&s, moves(plan));
        survives_its_file(plan);
        timeline_adds_up(plan);
        trains_like(plan, &want, what);
        free(want.params);
        vp_plan_free(plain);
        vp_plan_free(plan);
        vp_model_free(model);
    }
    assert_true(moved >= 100); /* the others have a block for each slot at most */
}

static void of_each_kind_of_offload_there_were_many(void **state)
{
    const struct counts *n = &trained_with;

    (void)state;
    if (n->plans < 200 || n->moved < 100 || n->streamed < 60 || n->states < 60 || n->adapted < 20 ||
        (long_run() && n->plans < 300))
        fail_msg(
            "%d plans; %d move activations, %d stream blocks, %d hold states, %d have adapters",
            n->plans, n->moved, n->streamed, n->states, n->adapted);
}

/* A window's worth moves at a time, and both directions move at once: the update takes little longer
 * than the slower direction alone. */
static vp_status add_busy(const vp_expanded_step *s, void *ctx, vp_err *err)
{
    (void)err;
    if (s->pass == VP_PASS_UPDATE)
        ((double *)ctx)[s->step->stream] += s->step->seconds;
    return VP_OK;
}

static vp_status last_update(const vp_expanded_step *s, const vp_simulated_step *when, void *ctx,
                             vp_err *err)
{
    double *span = ctx;

    (void)err;
    if (s->pass == VP_PASS_UPDATE) {
        span[0] = span[0] < 0 ? when->begin_s : span[0];
        span[1] = when->end_s > span[1] ? when->end_s : span[1];
    }
    return VP_OK;
}

static void the_copies_of_an_update_overlap(void **state)
{
    const tiny    t = {.n_layer = 3, .n_embd = 64, .n_head = 4, .vocab = 977, .n_positions = 64};
    vp_model     *model              = tiny_model(&t, 0.0);
    vp_scenario   s                  = {.recipe       = vp_recipe_default(),
                                        .seq          = 16,
                                        .global_batch = 2,
                                        .micro_batch  = 2,
                                        .offload      = {.states = model->graph.n_instances}};
    vp_plan      *plan               = plan_of(model, s, VP_RECOMPUTE_NONE);
    double        busy[VP_N_STREAMS] = {0}, span[2] = {-1, 0};
    vp_simulation simulated;

    (void)state;
    OK(vp_expand(plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, add_busy, busy, err));
    OK(vp_simulate(plan, &plan->buckets[0], last_update, span, &simulated, err));
    assert_true(busy[VP_STREAM_TO_HOST] > 0 && busy[VP_STREAM_TO_DEVICE] > 0);
    assert_true(span[1] - span[0] >= busy[VP_STREAM_TO_DEVICE]);
    assert_true(span[1] - span[0] < 0.8 * (busy[0] + busy[1] + busy[2]));
    vp_plan_free(plan);
    vp_model_free(model);
}

/* SGD in fp32 holds neither master weights nor states: nothing is in host memory, and no update, however
 * large its parameter (977 x 64), is made in pieces. */
static void an_update_that_fetches_nothing_is_whole(void **state)
{
    const tiny  t     = {.n_layer = 3, .n_embd = 64, .n_head = 4, .vocab = 977, .n_positions = 64};
    vp_model   *model = tiny_model(&t, 0.0);
    vp_scenario s     = {.recipe       = vp_recipe_default(),
                         .seq          = 16,
                         .global_batch = 2,
                         .micro_batch  = 2,
                         .offload      = {.states = model->graph.n_instances}};
    vp_plan    *plan;

    (void)state;
    vp_recipe_set_optimizer(&s.recipe, VP_OPT_SGD);
    plan = plan_of(model, s, VP_RECOMPUTE_NONE);
    OK(vp_plan_check(plan, "plan", err));
    assert_int_equal(plan->host_peak_bytes, 0);
    vp_plan_free(plan);
    vp_model_free(model);
}

/* ---- what the planner makes of it ---- */

/* Host memory makes a plan possible or faster, never slower; no plan takes more of it than there is;
 * where all fits, nothing is moved; with all states moved, no smaller budget is needed than that. */
static void host_memory_is_used_where_it_pays(void **state)
{
    const vp_device card = {.name                  = "card",
                            .compute_capability    = 90,
                            .fp32_flop_per_s       = 1e13,
                            .memory_bytes_per_s    = 1e12,
                            .host_link_bytes_per_s = 2e10,
                            .usable_bytes          = INT64_MAX / 4};
    rng             r    = {31};
    int             used = 0;

    (void)state;
    for (int i = 0; i < N_FAMILIES; i += long_run() ? 1 : 3) {
        char            config[800];
        vp_model       *model = model_of(random_config(&r, i, config, sizeof config), 0.0);
        vp_plan_request with  = request_for(model, &card), without;
        vp_plan_answer  a, b;

        OK(vp_planner_run(&with, &b, err)); /* all fits */
        int64_t least = b.least_budget_bytes;
        assert_true(b.n_candidates > 0);
        with.host_bytes = INT64_C(1) << 40;
        OK(vp_planner_run(&with, &a, err));
        assert_int_equal(a.candidates[0].scenario.offload.states, 0);
        assert_true(a.candidates[0].figures.step_time_s == b.candidates[0].figures.step_time_s);
        assert_true(a.least_budget_bytes < least);
        int64_t least_offloaded = a.least_budget_bytes;
        vp_plan_answer_release(&a);
        vp_plan_answer_release(&b);
        for (int k = 0; k < 4; k++) {
            with.budget_bytes  = least_offloaded + (least + least / 4 - least_offloaded) / 4 * k;
            with.host_bytes    = k == 3 ? 1 + pick(&r, 40000) : INT64_C(1) << 40;
            without            = with;
            without.host_bytes = 0;
            OK(vp_planner_run(&with, &a, err));
            OK(vp_planner_run(&without, &b, err));
            if (k < 3 && a.n_candidates == 0)
                fail_msg("model %d: nothing fits %lld bytes, and %lld should do", i,
                         (long long)with.budget_bytes, (long long)least_offloaded);
            if (b.n_candidates) {
                assert_true(a.n_candidates > 0 && a.candidates[0].figures.step_time_s <=
                                                      b.candidates[0].figures.step_time_s);
            }
            for (int64_t c = 0; c < a.n_candidates; c++) {
                assert_true(a.candidates[c].figures.host_bytes <= with.host_bytes);
                assert_true(a.candidates[c].figures.device_bytes <= with.budget_bytes);
            }
            if (a.n_candidates && a.candidates[0].scenario.offload.states) {
                vp_plan *plan;
                OK(vp_planner_make(&with, &a, &a.candidates[0], &plan, err));
                assert_true(plan->host_peak_bytes == a.candidates[0].figures.host_bytes &&
                            plan->step_time_s == a.candidates[0].figures.step_time_s);
                vp_plan_free(plan);
                used++;
            }
            vp_plan_answer_release(&a);
            vp_plan_answer_release(&b);
        }
        vp_model_free(model);
    }
    assert_true(used >= 5);
}

/* What the integer programs say of a streamed scenario is what a step takes at least: any chain of
 * its strategies, simulated whole, takes no less; and where no copy limits, hardly more. */
static void no_streamed_plan_is_faster_than_its_bound(void **state)
{
    rng    r       = {37};
    int    n       = 0;
    double nearest = 1;

    (void)state;
    for (int i = 0; i < (long_run() ? 60 : 12); i++) {
        char      config[800];
        vp_model *model = model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        vp_device card  = {.name                  = "card",
                           .compute_capability    = 90,
                           .fp32_flop_per_s       = 1e10 * (double)(1 + pick(&r, 100)),
                           .memory_bytes_per_s    = 1e10 * (double)(1 + pick(&r, 30)),
                           .host_link_bytes_per_s = 1e8 * (double)(1 + pick(&r, 300)),
                           .usable_bytes          = INT64_MAX / 4};
        vp_plan_request request = request_for(model, &card);
        vp_plan_answer  a;
        vp_cost         cost = {.device = &card};

        if (!vp_may_stream(&model->graph)) {
            vp_model_free(model);
            continue;
        }
        request.host_bytes = INT64_C(1) << 40;
        request.offload    = VP_OFFLOAD_PARAMS;
        OK(vp_planner_run(&request, &a, err));
        for (int64_t k = 0; k < a.n_scenarios; k++) {
            vp_scenario       s   = listed_scenario(a.scenarios[k]);
            const vp_library *lib = a.libraries[k];
            int64_t left = model->graph.n_instances - 2, bound_ns, counts[VP_MAX_ITEMS] = {0};
            vp_ilp_problem p = a.problem;
            vp_figures     f;
            double         over;
            assert_true(s.offload.blocks);
            s.n_runs = 0;
            for (int64_t at = pick(&r, lib->n); left > 0;
                 at += at + 1 < lib->n ? 1 + pick(&r, lib->n - at - 1) : 0) {
                int64_t here = at == lib->n - 1 ? left : 1 + pick(&r, left);
                counts[at] += here;
                s.runs[s.n_runs++] = (vp_block_run){lib->strategies[at].recompute, here, 1, 0};
                left -= here;
            }
            p.budget_bytes = INT64_MAX / 4;
            assert_true(vp_ilp_evaluate(&p, k, counts, &bound_ns));
            OK(vp_assemble_figures(model, &s, &cost, &f, err));
            over = f.step_time_s * 1e9 / (double)bound_ns - 1;
            if (f.step_time_s * 1e9 < (double)bound_ns - 0.5)
                fail_msg("model %d, scenario %d: %.0f ns, and %lld at least", i, (int)k,
                         f.step_time_s * 1e9, (long long)bound_ns);
            nearest = over < nearest ? over : nearest;
            n++;
        }
        vp_plan_answer_release(&a);
        vp_model_free(model);
    }
    assert_true(n > 30 && nearest < 1e-3);
}

/* What the rows of an integer program say that counts need, from persistent bytes to the highest peak. */
static int64_t need_of(const vp_ilp *p, const int64_t *counts)
{
    int64_t kept = 0, need = p->end_bytes;

    for (int64_t i = 0; i < p->n_items; i++) /* descending beta: a level's blocks stand together */
        if (counts[i] > 0) {
            kept += counts[i] * p->items[i].k_bytes;
            need = vp_max_i64(need, kept + p->items[i].beta_bytes);
        }
    return p->base_bytes + vp_max_i64(need, kept + p->end_bytes);
}

/* A gpt2 whose blocks have parameters that nothing reads: their gradients are zeroed in the first micro-step alone,
 * while the rest of a block waits for a slot or for copies. */
enum { N_CROSSED = 12 };

static vp_model *crossed_model(int64_t n_layer)
{
    char config[400];

    snprintf(
        config, sizeof config,
        "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": 32, \"n_layer\": %lld, "
        "\"n_head\": 4, \"vocab_size\": 97, \"n_positions\": 512, \"add_cross_attention\": true}",
        (long long)n_layer);
    return model_of(config, 0.0);
}

/* The same of scenarios that move activations: all blocks the same ones; with and without streamed parameters, on links from
 * far too slow to very fast: no chain of a scenario's strategies, simulated whole, takes less than
 * its integer program says; and needs the bytes that it says, to the byte. */
static void no_plan_that_moves_activations_undercuts_its_integer_program(void **state)
{
    rng    r = {43};
    int    n = 0, limited = 0;
    double nearest = 1;

    (void)state;
    for (int i = 0; i < (long_run() ? 300 : 32) + N_CROSSED; i++) {
        char       config[800];
        const tiny t       = {.n_layer = 3 + pick(&r, 7), .n_embd = 32, .n_head = 4, .vocab = 97};
        const bool crossed = i < N_CROSSED;
        vp_model  *model =
            crossed ? crossed_model(t.n_layer)
             : i % 2 ? tiny_model(&t, 0.0)
                     : model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        vp_device       card    = {.name               = "card",
                                   .compute_capability = 90,
                                   .fp32_flop_per_s    = 1e10 * (double)(1 + pick(&r, 100)),
                                   .memory_bytes_per_s = 1e10 * (double)(1 + pick(&r, 30)),
                                   .host_link_bytes_per_s = i % 4 ? 1e6 * (double)(1 + pick(&r, 900)) : 1e12,
                                   .kernels_lost_s_per_byte = i % 5 ? 0 : 2e-10 * (double)(1 + i),
                                   .usable_bytes            = INT64_MAX / 4};
        vp_plan_request request = request_for(model, &card);
        vp_plan_answer  a       = {.arena = vp_arena_new()};
        vp_cost         cost    = {.device = &card};

        request.host_bytes   = INT64_C(1) << 40;
        request.offload      = !crossed && i % 3 == 0 && vp_may_stream(&model->graph)
                                   ? VP_OFFLOAD_PARAMS_ACTIVATIONS
                                   : VP_OFFLOAD_ACTIVATIONS;
        request.global_batch = 1 + pick(&r, 6);
        OK(vp_space_list(&request, NULL, &a, &cost, VP_SPACE_ALL, err));
        for (int64_t k = pick(&r, 3); k < a.n_scenarios; k += 1 + pick(&r, 3)) {
            vp_scenario       s   = listed_scenario(a.scenarios[k]);
            const vp_library *lib = a.libraries[k];
            int64_t left = model->graph.n_instances - 2, bound_ns, counts[VP_MAX_ITEMS] = {0};
            vp_ilp_problem p = a.problem;
            vp_figures     f;
            assert_true(s.offload.activations);
            s.n_runs = 0;
            for (int64_t at = pick(&r, lib->n); left > 0;
                 at += at + 1 < lib->n ? 1 + pick(&r, lib->n - at - 1) : 0) {
                int64_t here = at == lib->n - 1 ? left : 1 + pick(&r, left);
                counts[at] += here;
                s.runs[s.n_runs++] = (vp_block_run){lib->strategies[at].recompute, here, 1,
                                                    lib->strategies[at].offload};
                left -= here;
            }
            p.budget_bytes = INT64_MAX / 4;
            assert_true(vp_ilp_evaluate(&p, k, counts, &bound_ns));
            OK(vp_assemble_figures(model, &s, &cost, &f, err));
            double over = f.step_time_s * 1e9 / (double)bound_ns - 1;
            if (f.step_time_s * 1e9 < (double)bound_ns - 0.5)
                fail_msg("model %d, scenario %d: %.0f ns, and %lld at least", i, (int)k,
                         f.step_time_s * 1e9, (long long)bound_ns);
            if (f.peak_bytes !=
                vp_max_i64(need_of(&p.ilps[k], counts), f.stack_base_bytes + f.first_height_bytes))
                fail_msg("model %d, scenario %d: %lld bytes, and its rows say %lld", i, (int)k,
                         (long long)f.peak_bytes, (long long)need_of(&p.ilps[k], counts));
            nearest = over < nearest ? over : nearest;
            limited += over > 0.01;
            n++;
        }
        vp_plan_answer_release(&a);
        vp_model_free(model);
    }
    assert_true(n > 60 && limited > 0 && nearest < 1e-6);
}

/* A random chain of a scenario's strategies, in their order: its counts, and which it begins and ends with. */
static void random_chain(rng *r, const vp_library *lib, int64_t n_blocks, vp_scenario *s,
                         int64_t *counts, int64_t *first, int64_t *last)
{
    *first = *last = pick(r, lib->n);
    s->n_runs      = 0;
    for (int64_t left = n_blocks, at = *first; left > 0;
         at += at + 1 < lib->n ? 1 + pick(r, lib->n - at - 1) : 0) {
        int64_t here = at == lib->n - 1 ? left : 1 + pick(r, left);
        counts[at] += here;
        s->runs[s->n_runs++] =
            (vp_block_run){lib->strategies[at].recompute, here, 1, lib->strategies[at].offload};
        left -= here;
        *last = at;
    }
}

/* What a part says of a chain; -1: the chain is not in it. */
static int64_t said_ns(const vp_ilp_part *x, const int64_t *counts, int64_t first, int64_t last)
{
    vp_ilp_problem p = {.budget_bytes = INT64_MAX / 4, .ilps = (vp_ilp *)&x->ilp, .n_ilps = 1};
    int64_t        here[VP_MAX_ITEMS] = {0}, ns;

    if ((x->first >= 0 && x->first != first) || (x->last >= 0 && x->last != last))
        return -1;
    for (int64_t i = 0; i < x->ilp.n_items; i++)
        here[i] =
            counts[x->skipped + i] - (x->skipped + i == x->first) - (x->skipped + i == x->last);
    return vp_ilp_evaluate(&p, 0, here, &ns) ? ns : -1;
}

/* In parts, by the strategies that chains begin and end with: some part has each chain, and of those that have it
 * one says no more than what a step takes; where no activations move, hardly less. */
static void no_chain_undercuts_all_parts_that_it_is_in(void **state)
{
    rng r = {53};
    int n = 0, moved = 0, split = 0, exact = 0, alone = 0;

    (void)state;
    for (int i = 0; i < (long_run() ? 800 : 48); i++) {
        char       config[800];
        const tiny t = {.n_layer = 3 + pick(&r, 9), .n_embd = 32, .n_head = 4, .vocab = 97};
        vp_model  *model =
            i % 2 ? tiny_model(&t, 0.0)
                   : model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        vp_device       card    = {.name               = "card",
                                   .compute_capability = 90,
                                   .fp32_flop_per_s    = 1e10 * (double)(1 + pick(&r, 100)),
                                   .memory_bytes_per_s = 1e10 * (double)(1 + pick(&r, 30)),
                                   .host_link_bytes_per_s = 1e8 * (double)(1 + pick(&r, i % 4 ? 60 : 900)),
                                   .kernels_lost_s_per_byte = i % 5 < 4 ? 0 : 2e-11 * (double)(1 + i),
                                   .usable_bytes            = INT64_MAX / 4};
        vp_plan_request request = request_for(model, &card);
        vp_plan_answer  a       = {.arena = vp_arena_new()};
        vp_cost         cost    = {.device = &card};

        request.host_bytes   = INT64_C(1) << 40;
        request.global_batch = 1 + pick(&r, 6);
        request.offload      = i % 3 == 0 ? VP_OFFLOAD_PARAMS_ACTIVATIONS : VP_OFFLOAD_PARAMS;
        if (i % 2) /* gradients take twice what parameters do on their way */
            request.recipe.precision = VP_PREC_BF16_MIXED;
        if (vp_may_stream(&model->graph))
            OK(vp_space_list(&request, NULL, &a, &cost, VP_SPACE_ALL, err));
        for (int64_t k = 0; k < a.n_scenarios; k += 1 + (i % 3 ? 0 : pick(&r, 9))) {
            vp_scenario       s            = listed_scenario(a.scenarios[k]);
            const vp_library *lib          = a.libraries[k];
            const int64_t     n_blocks     = model->graph.n_instances - 2,
                          n_micro          = request.global_batch / s.micro_batch;
            const int n_slots              = s.offload.activations ? s.offload.n_slots : 0;
            int64_t   counts[VP_MAX_ITEMS] = {0}, first, last, n_parts, n_in = 0, most_ns = -1,
                    least_ns = INT64_MAX;
            vp_ilp_part *parts, *ends = vp_arena_array(a.arena, lib->n, sizeof *ends);
            vp_figures   f;
            random_chain(&r, lib, n_blocks, &s, counts, &first, &last);
            OK(vp_assemble_figures(model, &s, &cost, &f, err));
            /* how a part is bounded depends on the room that there is */
            const int64_t room =
                n_slots > 0 && n % 2 ? need_of(&a.problem.ilps[k], counts) : INT64_MAX / 4;
            OK(vp_streamed_parts(a.arena, &a.problem.ilps[k], lib, &a.scenarios[k]->figures,
                                 n_slots, n_micro, room, &parts, &n_parts, err));
            for (int64_t q = 0; q < n_parts; q++) {
                int64_t ns = said_ns(&parts[q], counts, first, last), n_ends = 0, end_ns = -1;
                if (ns < 0)
                    continue;
                if (vp_streamed_split_last(&parts[q], lib, &a.scenarios[k]->figures, ends, &n_ends))
                    for (int64_t e = 0; e < n_ends; e++)
                        end_ns = vp_max_i64(end_ns, said_ns(&ends[e], counts, first, last));
                assert_true(n_ends == 0 ||
                            end_ns >= ns); /* it is in one of them, which says no less */
                split += n_ends > 0;
                ns       = n_ends > 0 ? end_ns : ns;
                most_ns  = vp_max_i64(most_ns, ns);
                least_ns = vp_min_i64(least_ns, ns);
                n_in++;
            }
            assert_true(n_in > 0);
            if (f.step_time_s * 1e9 < (double)least_ns - 0.5)
                fail_msg("model %d, scenario %d: %.0f ns, and %lld at least", i, (int)k,
                         f.step_time_s * 1e9, (long long)least_ns);
            alone += n_slots == 0 && card.kernels_lost_s_per_byte == 0;
            exact += n_slots == 0 && card.kernels_lost_s_per_byte == 0 &&
                     f.step_time_s * 1e9 < (double)most_ns + 1.5;
            moved += n_slots > 0;
            n++;
        }
        vp_plan_answer_release(&a);
        vp_model_free(model);
    }
    assert_true(moved > 100 && alone > 40 && split >= 2 && exact * 10 >= alone * 9);
}

/* Where a choice is clear, by hand. gpt2 of 6 blocks, width 64, 4 x 64 tokens in one micro-step, a card
 * of 1e9 operations a second: a block's forward is 2 * 12 * 64 * 64 * 256 = 25e6 operations in its
 * linears, 25 ms, and none of its outputs more than 256 KB. Budget: what the least plan needs and half
 * of what the fastest takes more, so that something has to be recomputed or moved.
 *
 *   1 link of 1e12 B/s: a block's copies take 8 us and their starts, 1/1000 of its kernels: all hidden,
 *     so that the step is as fast as one that keeps everything
 *   2 link of 1e4 B/s: the smallest output takes a second, and a whole block is made again in 25 ms
 *   3 the fast link, and all fits: nothing moves
 *   4 the fast link, and not a byte of host memory for a single output: nothing moves
 *
 * In 2 and 4 a slot may still hold what the last block keeps, which nobody copies. */
static void offload_and_recompute_each_win_where_they_are_faster(void **state)
{
    const tiny      t     = {.n_layer = 6, .n_embd = 64, .n_head = 4, .vocab = 97};
    vp_model       *model = tiny_model(&t, 0.0);
    vp_device       card  = {.name                  = "card",
                             .compute_capability    = 90,
                             .fp32_flop_per_s       = 1e9,
                             .memory_bytes_per_s    = 1e12,
                             .host_link_bytes_per_s = 1e12,
                             .usable_bytes          = INT64_MAX / 4};
    vp_plan_request with  = request_for(model, &card);
    vp_plan_answer  all, a, without;

    (void)state;
    with.seq         = 64;
    with.micro_batch = 4;
    with.loss_chunk  = 0;
    OK(vp_planner_run(&with, &all, err));
    with.host_bytes   = INT64_C(1) << 40;
    with.offload      = VP_OFFLOAD_ANY;
    with.budget_bytes = (all.least_budget_bytes + all.candidates[0].figures.device_bytes) / 2;
    OK(vp_planner_run(&with, &a, err)); /* 1 */
    assert_true(a.candidates[0].scenario.offload.activations != 0);
    assert_true(a.candidates[0].figures.step_time_s == all.candidates[0].figures.step_time_s);
    vp_plan_answer_release(&a);

    with.host_bytes = 0;
    OK(vp_planner_run(&with, &without, err));
    assert_true(without.candidates[0].figures.step_time_s > all.candidates[0].figures.step_time_s);
    with.host_bytes            = INT64_C(1) << 40;
    card.host_link_bytes_per_s = 1e4;
    OK(vp_planner_run(&with, &a, err)); /* 2 */
    assert_int_equal(a.candidates[0].figures.host_bytes, 0);
    assert_true(a.candidates[0].figures.step_time_s <= without.candidates[0].figures.step_time_s);
    vp_plan_answer_release(&a);

    card.host_link_bytes_per_s = 1e12;
    with.budget_bytes          = INT64_MAX / 4;
    OK(vp_planner_run(&with, &a, err)); /* 3 */
    assert_int_equal(a.candidates[0].figures.host_bytes, 0);
    assert_true(a.candidates[0].figures.step_time_s == all.candidates[0].figures.step_time_s);
    vp_plan_answer_release(&a);

    with.budget_bytes = (all.least_budget_bytes + all.candidates[0].figures.device_bytes) / 2;
    with.host_bytes   = 1;
    OK(vp_planner_run(&with, &a, err)); /* 4 */
    assert_int_equal(a.candidates[0].figures.host_bytes, 0);
    assert_true(a.candidates[0].figures.step_time_s <= without.candidates[0].figures.step_time_s);
    vp_plan_answer_release(&a);
    vp_plan_answer_release(&all);
    vp_plan_answer_release(&without);
    vp_model_free(model);
}

static void assert_same_figures(const vp_figures *a, const vp_figures *b)
{
    const int64_t x[] = {a->peak_bytes,
                         a->device_bytes,
                         a->host_bytes,
                         a->host_stack_base_bytes,
                         a->stack_base_bytes,
                         a->first_kept_bytes,
                         a->first_height_bytes,
                         a->last_height_bytes,
                         a->passing_bytes,
                         a->block_passing_bytes,
                         a->outside_blocks_ns,
                         a->in_backward_ns,
                         a->least_in_backward_ns,
                         a->streamed.params_ns,
                         a->streamed.gradients_ns,
                         a->streamed.back_ns,
                         a->streamed.forward_ns,
                         a->streamed.embedding_ns};
    const int64_t y[] = {b->peak_bytes,
                         b->device_bytes,
                         b->host_bytes,
                         b->host_stack_base_bytes,
                         b->stack_base_bytes,
                         b->first_kept_bytes,
                         b->first_height_bytes,
                         b->last_height_bytes,
                         b->passing_bytes,
                         b->block_passing_bytes,
                         b->outside_blocks_ns,
                         b->in_backward_ns,
                         b->least_in_backward_ns,
                         b->streamed.params_ns,
                         b->streamed.gradients_ns,
                         b->streamed.back_ns,
                         b->streamed.forward_ns,
                         b->streamed.embedding_ns};

    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(a->unlike, b->unlike);
    assert_true(a->step_time_s == b->step_time_s);
}

/* What keys do not say a store asserts: recipes that clip otherwise, other cards and models have their own. */
static void a_store_is_for_one_request(void **state)
{
    const tiny       t     = {.n_layer = 2, .n_embd = 32, .n_head = 4, .vocab = 97};
    vp_model        *model = tiny_model(&t, 0.0), *other = tiny_model(&t, 0.0);
    const vp_device  cards[] = {{.name = "one"}, {.name = "two"}};
    vp_store_subject own     = {.model = model, .device = &cards[0], .clip_norm = 1};
    vp_store_subject x[]     = {own, own, own, own};

    (void)state;
    x[1].clip_norm = 0;
    x[2].device    = &cards[1];
    x[3].model     = other;
    for (int i = 0; i < 4; i++) {
        int   status = 0;
        pid_t child  = fork();
        assert_true(child >= 0);
        if (child == 0) {
            vp_lowered_store *store = vp_lowered_store_new();
            signal(SIGABRT, SIG_DFL);
            if (!freopen("/dev/null", "w", stderr))
                _exit(1);
            vp_lowered_store_use(store, &own);
            vp_lowered_store_use(store, &x[i]);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(i == 0, WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(i > 0, WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
    vp_model_free(model);
    vp_model_free(other);
}

/* A frame takes its head in other chunks: the figures are those of the whole assembled anew, with every optimizer,
 * whatever lies in host memory, where the last micro-step is smaller, and where updates are made in backward. */
static void a_frame_says_what_the_whole_does(void **state)
{
    const tiny       t        = {.n_layer = 4, .n_embd = 32, .n_head = 4, .vocab = 97};
    vp_model        *model    = tiny_model(&t, 0.0);
    vp_device        card     = {.name                  = "card",
                                 .compute_capability    = 90,
                                 .fp32_flop_per_s       = 1e11,
                                 .memory_bytes_per_s    = 1e11,
                                 .host_link_bytes_per_s = 1e9,
                                 .usable_bytes          = INT64_MAX / 4};
    const vp_offload levels[] = {{0},
                                 {.states = 3},
                                 {.states = 6},
                                 {.states = 6, .host_step = true},
                                 {.states = 6, .blocks = true},
                                 {.states = 6, .blocks = true, .host_step = true}};
    const int64_t    chunks[] = {0, 256, 1280}; /* 256: 8 to 24 chunks, of which four are lowered */
    vp_recipe        recipes[] = {vp_recipe_default(), vp_recipe_default()};
    int              n = 0, n_untimed = 0;

    (void)state;
    vp_recipe_set_optimizer(&recipes[1], VP_OPT_LION);
    for (int clip = 0; clip < 2; clip++) { /* a request, of which all has one store */
        vp_cost cost = {.device = &card, .store = vp_lowered_store_new()};
        for (size_t level = 0; level < sizeof levels / sizeof *levels; level++)
            for (int64_t micro = 4; micro <= 12;
                 micro += 4) { /* of 12 samples: the last of 8 is 4 */
                if (12 % micro && levels[level].blocks)
                    continue;
                vp_cost     bare = {.device = &card};
                vp_scenario s    = {
                       .seq = 512, .global_batch = 12, .micro_batch = micro, .offload = levels[level]};
                vp_frame  *frame, *untimed;
                vp_figures framed[2], again[2], whole;
                recipes[0].clip_norm = recipes[1].clip_norm = clip;
                vp_scenario_set_all(&s, model, 0);
                OK(vp_frame_make(model, &s, recipes, 2, true, &cost, &frame, err));
                OK(vp_frame_make(model, &s, recipes, 2, false, &cost, &untimed, err));
                for (int k = 0; k < 3; k++) {
                    OK(vp_frame_figures(frame, chunks[k], framed, err));
                    OK(vp_frame_figures(untimed, chunks[k], again, err));
                    for (int i = 0; i < 2; i++, n++) {
                        vp_scenario one = s;
                        one.recipe      = recipes[i];
                        one.loss_chunk  = chunks[k];
                        OK(vp_assemble_figures(model, &one, &bare, &whole, err));
                        assert_same_figures(&framed[i], &whole);
                        if (again[i].step_time_s < 0) { /* it takes a simulation */
                            assert_true(levels[level].states > 0);
                            again[i].step_time_s = framed[i].step_time_s;
                            n_untimed++;
                        }
                        assert_same_figures(&again[i], &whole);
                        OK(vp_assemble_figures(model, &one, &cost, &again[i], err));
                        assert_same_figures(&again[i], &whole);
                    }
                }
                vp_frame_free(frame);
                vp_frame_free(untimed);
            }
        vp_lowered_store_free(cost.store);
    }
    assert_true(n_untimed > 0 && n_untimed < n);
    assert_int_equal(n, 2 * (4 * 3 + 2 * 2) * 3 * 2);
    vp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_every_slot_train_the_same_bits),
        cmocka_unit_test(states_in_host_memory_train_the_same_bits),
        cmocka_unit_test(activations_in_host_memory_train_the_same_bits),
        cmocka_unit_test(of_each_kind_of_offload_there_were_many),
        cmocka_unit_test(the_copies_of_an_update_overlap),
        cmocka_unit_test(an_update_that_fetches_nothing_is_whole),
        cmocka_unit_test(host_memory_is_used_where_it_pays),
        cmocka_unit_test(no_streamed_plan_is_faster_than_its_bound),
        cmocka_unit_test(no_plan_that_moves_activations_undercuts_its_integer_program),
        cmocka_unit_test(no_chain_undercuts_all_parts_that_it_is_in),
        cmocka_unit_test(a_store_is_for_one_request),
        cmocka_unit_test(a_frame_says_what_the_whole_does),
        cmocka_unit_test(offload_and_recompute_each_win_where_they_are_faster),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
