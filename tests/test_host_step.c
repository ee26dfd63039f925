/* Updates that the host makes: gradients go to host memory, parameters come back, master weights and
 * states stay there. The plan must pass the checker, its two arenas must be as high as predicted, it must
 * train the same bits as the plan that has everything on the device, however copies are delayed; and
 * the planner takes it where it is faster. */
#include "offload_test.h"

#include "planner/changes.h"

/* A CPU whose copies take so long that all else is next to nothing. */
static const vp_device behind_a_slow_link = {.name                  = "cpu",
                                             .is_cpu                = true,
                                             .fp32_flop_per_s       = 1e12,
                                             .memory_bytes_per_s    = 1e12,
                                             .host_link_bytes_per_s = 1e6,
                                             .usable_bytes          = INT64_MAX / 4};

static struct counts {
    int plans, streamed, moved, clipped, accumulated, shares, smaller_last;
    int precisions[VP_N_PRECISIONS], optimizers[VP_N_OPTIMIZERS];
} trained_with;

/* Those that treat each element by itself, with something that need not come to the device. */
static bool may_step(const vp_model *model, const vp_scenario *s)
{
    const vp_plan_request request = {.model = model, .recipe = s->recipe};

    return vp_request_may_step(&request);
}

static bool steps_on_the_host(const vp_plan *plan)
{
    const vp_bucket *b               = &plan->buckets[0];
    int64_t          n[VP_N_STREAMS] = {0};

    for (int64_t k = 0; k < b->n_programs; k++)
        for (int64_t i = 0; i < b->programs[k].n_steps[VP_PASS_UPDATE]; i++)
            n[b->programs[k].steps[VP_PASS_UPDATE][i].stream]++;
    return n[VP_STREAM_HOST] > 0;
}

/* What is held for the first instances' parameters but gradients and parameters lies in host memory that
 * need not be pinned: no step of the device's touches it, and no copy. */
static vp_status never_on_the_device(const vp_expanded_step *s, void *ctx, vp_err *err)
{
    const vp_expansion *x = ctx;

    (void)err;
    for (int k = 0; k < s->n_operands; k++) {
        int64_t      b = s->operands[k].buffer;
        vp_component c = b < 0 ? VP_N_COMPONENTS : x->buffers[b].component;
        if ((c == VP_COMP_MASTER || c == VP_COMP_OPTIMIZER_STATE) &&
            x->buffers[b].memory != VP_MEMORY_DEVICE) {
            assert_int_equal(s->step->stream, VP_STREAM_HOST);
            assert_int_equal(x->buffers[b].memory, VP_MEMORY_HOST); /* no copy, so not pinned */
        }
    }
    return VP_OK;
}

static void states_stay_in_host_memory(const vp_plan *plan)
{
    vp_arena    *arena = vp_arena_new();
    vp_expansion x;

    OK(vp_expansion_make(arena, plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, &x, err));
    OK(vp_expand(plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, never_on_the_device, &x,
                 err));
    vp_arena_free(arena);
}

/* A plan whose first `states` instances are stepped by the host. */
static void count(const vp_scenario *s, int64_t n_instances)
{
    trained_with.plans++;
    trained_with.streamed += s->offload.blocks;
    trained_with.moved += s->offload.activations != 0;
    trained_with.clipped += s->recipe.clip_norm > 0;
    trained_with.accumulated += s->micro_batch < s->global_batch;
    trained_with.smaller_last += vp_scenario_last_batch(s) > 0;
    trained_with.shares += s->offload.states < n_instances;
    trained_with.precisions[s->recipe.precision]++;
    trained_with.optimizers[s->recipe.optimizer]++;
}

/* Families, precisions, optimizers, widths of gradients, clipping and none, one micro-step and several,
 * the last one smaller; any share of the chain, and with blocks streamed as well. */
static void updates_by_the_host_train_the_same_bits(void **state)
{
    rng r = {57};
    int n = (long_run() ? 12 : 4) * VP_N_OPTIMIZERS * n_precisions();

    (void)state;
    for (int i = 0; i < n; i++) {
        char        config[800], what[128];
        vp_scenario s     = scenario_of(&r, i);
        vp_model   *model = model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);

        s.recipe.clip_norm = i % 3 ? 1.0 : 0.0;
        s.micro_batch      = i % 4 == 3 ? 4 : i % 4 == 2 ? 3 : s.micro_batch;
        if (may_step(model, &s)) {
            vp_recompute kind  = (vp_recompute)pick(&r, 3);
            vp_plan     *plain = plan_of(model, s, kind), *plan;
            trained      want  = train(plain, 3, 1, false);

            s.offload.host_step = true;
            s.offload.states    = 1 + pick(&r, model->graph.n_instances);
            s.offload.blocks = i % 2 && vp_may_stream(&model->graph) && !vp_scenario_last_batch(&s);
            if (s.offload.blocks)
                s.offload.states = model->graph.n_instances;
            snprintf(what, sizeof what, "model %d, %s, %s, gradients %s, %lld instances%s", i,
                     vp_optimizer_name(s.recipe.optimizer), vp_precision_name(s.recipe.precision),
                     vp_gradients_name(s.recipe.gradients), (long long)s.offload.states,
                     s.offload.blocks ? ", streamed" : "");
            plan = plan_of(model, s, kind);
            OK(vp_plan_check(plan, what, err));
            assert_true(steps_on_the_host(plan));
            assert_true(s.offload.blocks || plan->peak_bytes <= plain->peak_bytes);
            states_stay_in_host_memory(plan);
            survives_its_file(plan);
            timeline_adds_up(plan);
            trains_like(plan, &want, what);
            count(&s, model->graph.n_instances);
            free(want.params);
            vp_plan_free(plain);
            vp_plan_free(plan);
        }
        vp_model_free(model);
    }
}

static void of_each_kind_there_were_many(void **state)
{
    const struct counts *n = &trained_with;

    (void)state;
    if (n->plans < 60 || n->streamed < 15 || n->clipped < 30 || n->plans - n->clipped < 15 ||
        n->accumulated < 30 || n->smaller_last < 10 || n->shares < 15)
        fail_msg(
            "%d plans; %d stream blocks, %d clip, %d accumulate, %d have a smaller last micro-step, "
            "%d step a share of the chain",
            n->plans, n->streamed, n->clipped, n->accumulated, n->smaller_last, n->shares);
    for (int p = 0; p < n_precisions(); p++)
        assert_true(n->precisions[p] > 0);
}

/* fp16 whose first gradients are not finite: the host's updates are skipped as the device's are. */
static void a_skipped_step_is_skipped_by_the_host(void **state)
{
    const tiny  t     = {.n_layer = 2, .n_embd = 16, .n_head = 2, .vocab = 61, .n_positions = 64};
    vp_model   *model = tiny_model(&t, 0.0);
    vp_scenario s = {.recipe = vp_recipe_default(), .seq = 16, .global_batch = 2, .micro_batch = 1};

    (void)state;
    s.recipe.precision  = VP_PREC_FP16_MIXED;
    s.recipe.loss_scale = 0x1p40; /* beyond what fp16 holds: 65504 */
    vp_plan *plain      = plan_of(model, s, VP_RECOMPUTE_NONE);
    trained  want       = train(plain, 3, 1, false);
    assert_true(want.last.skipped);
    s.offload     = (vp_offload){.states = model->graph.n_instances, .host_step = true};
    vp_plan *plan = plan_of(model, s, VP_RECOMPUTE_NONE);
    for (int seed = 0; seed < 4; seed++) {
        vp_cpu_streams_stress((uint64_t)seed);
        trained got = train(plan, 3, 1, false);
        same_bits(&want, &got, "skipped");
        assert_true(got.last.skipped);
        free(got.params);
    }
    vp_cpu_streams_stress(0);
    free(want.params);
    vp_plan_free(plain);
    vp_plan_free(plan);
    vp_model_free(model);
}

/* ---- what the checker refuses ---- */

/* The n-th step of the update pass of the program of instance 0 that is of a kernel; NULL: none. */
static vp_step *update_of(const vp_plan *plan, vp_kernel kernel, int n)
{
    vp_program *p = &plan->buckets[0].programs[plan->buckets[0].instances[0].program_idx];

    for (int64_t i = 0; i < p->n_steps[VP_PASS_UPDATE]; i++)
        if (p->steps[VP_PASS_UPDATE][i].kernel == kernel && n-- == 0)
            return &p->steps[VP_PASS_UPDATE][i];
    return NULL;
}

static void is_refused(const vp_plan *plan, const char *why)
{
    vp_err err = {0};

    assert_int_equal(vp_plan_check(plan, "plan", &err), VP_ERR_INPUT);
    if (!strstr(err.message, why))
        fail_msg("refused for \"%s\", not for \"%s\"", err.message, why);
}

static void the_checker_refuses_what_the_host_cannot_do(void **state)
{
    const tiny  t     = {.n_layer = 2, .n_embd = 16, .n_head = 2, .vocab = 61, .n_positions = 64};
    vp_model   *model = tiny_model(&t, 0.0);
    vp_scenario s = {.recipe = vp_recipe_default(), .seq = 16, .global_batch = 2, .micro_batch = 2};
    s.recipe.precision = VP_PREC_BF16_MIXED;
    s.offload          = (vp_offload){.states = model->graph.n_instances, .host_step = true};
    vp_plan *plan      = plan_of(model, s, VP_RECOMPUTE_NONE);
    vp_step *step, kept;

    (void)state;
    OK(vp_plan_check(plan, "plan", err));

    step         = update_of(plan, VP_K_ADAMW, 0);
    kept         = *step;
    step->stream = VP_STREAM_COMPUTE; /* a kernel of the device's on host memory */
    is_refused(plan, "operand control is not where it must be");
    step->args[VP_ADAMW_CONTROL] = (vp_arg){.space = VP_SPACE_FIXED, .idx = plan->control_idx};
    is_refused(plan, "where no kernel reaches it");
    step->stream = VP_STREAM_TO_HOST;
    is_refused(plan, "only a copy_start stands on a copy's stream");
    *step                        = kept;
    step->args[VP_ADAMW_CONTROL] = (vp_arg){.space = VP_SPACE_FIXED, .idx = plan->control_idx};
    is_refused(plan, "operand control is not where it must be");
    *step                  = kept;
    step->args[VP_ADAMW_G] = (vp_arg){.space = VP_SPACE_GRAD, .idx = 0};
    is_refused(plan, "lies in device, where the host does not reach it");
    *step = kept;

    step         = &plan->buckets[0].programs[0].steps[VP_PASS_NORM][0];
    kept         = *step;
    step->stream = VP_STREAM_HOST; /* the squares of a gradient are no update */
    is_refused(plan, step->kernel == VP_K_GRAD_SUMSQ ? "" : "only updates");
    *step = kept;

    step = update_of(plan, VP_K_COPY_START, 0); /* of the control block */
    kept = *step;
    step->copy_start.count /= 2;
    is_refused(plan, "nobody has brought it the control block");
    *step                           = kept;
    step->args[VP_COPY_START_X].idx = plan->tokens_idx; /* which is as long, or longer */
    is_refused(plan, "operand x is not where it must be");
    *step = kept;

    step  = update_of(plan, VP_K_COPY_DONE, 0); /* the control block may not be there yet */
    kept  = *step;
    *step = *update_of(plan, VP_K_COPY_START, 1);
    is_refused(plan, "");
    *step = kept;
    OK(vp_plan_check(plan, "plan", err));
    vp_plan_free(plan);
    vp_model_free(model);
}

/* ---- what the planner makes of it ---- */

/* The best plan of a request, whose bytes and seconds are those of the plan that is made. */
static vp_candidate best_of(const vp_plan_request *request)
{
    vp_plan_answer a;
    vp_candidate   best;
    vp_plan       *plan;

    OK(vp_planner_run(request, &a, err));
    if (a.n_candidates == 0)
        fail_msg("nothing fits %lld bytes and %lld of the host's", (long long)request->budget_bytes,
                 (long long)request->host_bytes);
    best = a.candidates[0];
    OK(vp_planner_make(request, &a, &a.candidates[0], &plan, err));
    assert_int_equal(plan->host_peak_bytes, best.figures.host_bytes);
    assert_int_equal(steps_on_the_host(plan), best.scenario.offload.host_step);
    vp_plan_free(plan);
    vp_plan_answer_release(&a);
    return best;
}

/* By hand: gpt2 of 6 blocks, N parameters; a backend of 1e12 operations and bytes a second, whose link
 * carries 0.8 of 1e6 B/s each way, so that a copied byte takes 1.25 us and all else next to nothing. All
 * blocks keep everything, and the budget is what the plan needs that has all states in host memory.
 *
 *   1 bf16-mixed, AdamW. Streamed: 12 N bytes come, master and two states, and 12 N go meanwhile. Stepped
 *     by the host: 4 N go, the gradients, and 2 N come. So the host's take 1/3 of the time: it is chosen
 *   2 fp32, AdamW with 8-bit states. Streamed: about 2 N come and 2 N go. Stepped by the host: 8 N go,
 *     gradients and parameters, and 4 N come: four times as long. Streamed is chosen
 *   3 as 1, and all fits: neither
 *   4 as 1, with host memory for the states and not for the host's windows: no slower than streamed
 *   5 as 1, on a card, whose host nobody has measured: only where it is pinned */
static void the_host_makes_updates_where_that_is_faster(void **state)
{
    const tiny      t = {.n_layer = 6, .n_embd = 64, .n_head = 4, .vocab = 97, .n_positions = 64};
    vp_model       *model   = tiny_model(&t, 0.0);
    vp_device       here    = behind_a_slow_link;
    vp_plan_request request = request_for(model, &here), free;
    const double    n_s     = (double)model->n_params * 1.25e-6;
    vp_offload      levels[VP_MAX_OFFLOAD_LEVELS];

    (void)state;
    request.micro_batch = 4;
    request.loss_chunk  = 0;
    request.recompute   = VP_RECOMPUTE_NONE;
    request.host_bytes  = INT64_C(1) << 40;
    for (int which = 1; which <= 2; which++) {
        request.recipe = vp_recipe_default();
        if (which == 1)
            request.recipe.precision = VP_PREC_BF16_MIXED;
        else
            vp_recipe_set_optimizer(&request.recipe, VP_OPT_ADAMW_8BIT);
        request.budget_bytes  = INT64_MAX / 4;
        request.offload       = VP_OFFLOAD_OPTIMIZER;
        vp_candidate streamed = best_of(&request);
        request.offload       = VP_OFFLOAD_HOST_STEP;
        vp_candidate stepped  = best_of(&request);
        double       saved    = streamed.figures.step_time_s - stepped.figures.step_time_s;
        double       want     = which == 1 ? (12 - 4) * n_s : (2 - 8) * n_s;
        if (saved / want < 0.8 || saved / want > 1.25)
            fail_msg("case %d: %g s are saved, about %g by hand", which, saved, want);

        free              = request; /* 1, 2 */
        free.offload      = VP_OFFLOAD_ANY;
        free.budget_bytes = vp_max_i64(streamed.figures.device_bytes, stepped.figures.device_bytes);
        vp_candidate best = best_of(&free);
        assert_int_equal(best.scenario.offload.host_step, which == 1);
        assert_true(best.figures.step_time_s <= streamed.figures.step_time_s &&
                    best.figures.step_time_s <= stepped.figures.step_time_s);
        if (which == 2)
            continue;

        free.budget_bytes = INT64_MAX / 4; /* 3 */
        best              = best_of(&free);
        assert_int_equal(best.figures.host_bytes, 0);

        request.host_bytes = streamed.figures.host_bytes; /* 4 */
        assert_true(stepped.figures.host_bytes > request.host_bytes);
        free.host_bytes   = request.host_bytes;
        free.budget_bytes = streamed.figures.device_bytes;
        best              = best_of(&free);
        assert_true(best.scenario.offload.states > 0 &&
                    best.figures.step_time_s <= streamed.figures.step_time_s);
        request.host_bytes = INT64_C(1) << 40;

        here.is_cpu             = false; /* 5 */
        here.compute_capability = 90;
        here.bf16               = true;
        assert_int_equal(vp_request_offloads(&request, levels), 1);
        assert_true(levels[0].host_step);
        for (int i = vp_request_offloads(&free, levels) - 1; i >= 0; i--)
            assert_false(levels[i].host_step);
        here.is_cpu             = true;
        here.compute_capability = 0;
    }
    vp_model_free(model);
}

/* A card of 1e9 operations a second, whose backward of a block takes longer than anything the host does for
 * it. At the end of the step the host's updates of all blocks stand behind each other: bf16-mixed AdamW moves 28
 * bytes of a parameter at least (master and states 12 in and 12 out, the gradient 4) at 40 GB/s. In backward they
 * stand beside kernels, and the step takes its kernels and what is made for the embedding. The planner knows
 * both, to 1e-4 of the step. */
static void the_hosts_updates_hide_behind_backward(void **state)
{
    const tiny  t     = {.n_layer = 6, .n_embd = 64, .n_head = 4, .vocab = 97, .n_positions = 64};
    vp_model   *model = tiny_model(&t, 0.0);
    vp_device   card  = {.name                  = "card",
                         .compute_capability    = 90,
                         .multiprocessors       = 100,
                         .bf16                  = true,
                         .fp32_flop_per_s       = 1e9,
                         .bf16_flop_per_s       = 1e9,
                         .memory_bytes_per_s    = 1e12,
                         .host_link_bytes_per_s = 1e12,
                         .usable_bytes          = INT64_MAX / 4};
    vp_cost     cost  = {.device = &card};
    vp_scenario s = {.recipe = vp_recipe_default(), .seq = 32, .global_batch = 4, .micro_batch = 4};
    const double blocks_s = 6 * (12.0 * 64 * 64 + 13 * 64) * 28 / 40e9;
    vp_figures   at_end, in_backward;

    (void)state;
    s.recipe.precision = VP_PREC_BF16_MIXED;
    s.recipe.clip_norm = 0;
    s.offload          = (vp_offload){.states = model->graph.n_instances, .host_step = true};
    for (s.micro_batch = 4; s.micro_batch >= 1; s.micro_batch /= 2) {
        vp_scenario_set_all(&s, model, 0);
        s.updates_at_end = true;
        OK(vp_assemble_figures(model, &s, &cost, &at_end, err));
        s.updates_at_end = false;
        assert_true(vp_scenario_updates_in_backward(&s));
        OK(vp_assemble_figures(model, &s, &cost, &in_backward, err));
        assert_true(at_end.step_time_s - in_backward.step_time_s >= blocks_s);
        s.offload = (vp_offload){0}; /* the kernels alone, the device's updates among them */
        vp_figures alone;
        OK(vp_assemble_figures(model, &s, &cost, &alone, err));
        s.offload = (vp_offload){.states = model->graph.n_instances, .host_step = true};
        assert_true(in_backward.step_time_s < alone.step_time_s * (1 + 1e-4));
    }
    vp_model_free(model);
}

/* What is pinned needs more host memory than there is: an answer without a scenario, that says how much
 * would do; so much does, and a byte less does not. */
static void too_little_host_memory_is_said_to_the_byte(void **state)
{
    /* so many blocks that what they keep takes more than the windows of the host's updates */
    const tiny      t = {.n_layer = 9, .n_embd = 24, .n_head = 2, .vocab = 61, .n_positions = 64};
    vp_model       *model   = tiny_model(&t, 0.0);
    vp_device       here    = behind_a_slow_link;
    vp_plan_request request = request_for(model, &here);

    (void)state;
    request.budget_bytes = INT64_C(1) << 30;
    request.seq          = 37; /* nothing is a multiple of what places are aligned to */
    for (int kind = VP_OFFLOAD_OPTIMIZER; kind < VP_N_OFFLOADS; kind++) {
        vp_plan_answer a;
        int64_t        needs;

        request.offload    = (vp_offload_kind)kind;
        request.host_bytes = 1;
        OK(vp_planner_run(&request, &a, err));
        needs = a.least_host_bytes;
        assert_int_equal(a.n_scenarios, 0);
        assert_int_equal(a.n_candidates, 0);
        assert_int_equal(a.proof, VP_PROOF_INFEASIBLE);
        vp_plan_answer_release(&a);

        request.host_bytes = needs - 1;
        OK(vp_planner_run(&request, &a, err));
        assert_int_equal(a.n_scenarios, 0);
        assert_int_equal(a.least_host_bytes, needs);
        vp_plan_answer_release(&a);

        request.host_bytes = needs;
        assert_int_equal(best_of(&request).figures.host_bytes, needs);
    }
    vp_model_free(model);
}

/* A change of recipe or model that cannot have what is pinned is none: SGD without master weights has
 * nothing for the host to step. */
static void no_change_is_offered_that_cannot_have_the_pin(void **state)
{
    const tiny      t = {.n_layer = 2, .n_embd = 16, .n_head = 2, .vocab = 61, .n_positions = 64};
    vp_model       *model   = tiny_model(&t, 0.0);
    vp_device       here    = behind_a_slow_link;
    vp_plan_request request = request_for(model, &here);
    vp_plan_answer  a;
    vp_changes      changes;

    (void)state;
    request.recipe.precision = VP_PREC_BF16_MIXED;
    request.offload          = VP_OFFLOAD_PARAMS_HOST_STEP;
    request.host_bytes       = INT64_C(1) << 40;
    request.budget_bytes     = 16384;
    OK(vp_planner_run(&request, &a, err));
    assert_int_equal(a.n_candidates, 0);
    OK(vp_changes_find(&request, &a, &changes, err));
    for (int64_t i = 0; i < changes.n; i++)
        assert_false(changes.changes[i].another_optimizer &&
                     changes.changes[i].optimizer == VP_OPT_SGD);
    vp_plan_answer_release(&a);
    vp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_by_the_host_train_the_same_bits),
        cmocka_unit_test(of_each_kind_there_were_many),
        cmocka_unit_test(a_skipped_step_is_skipped_by_the_host),
        cmocka_unit_test(the_checker_refuses_what_the_host_cannot_do),
        cmocka_unit_test(the_host_makes_updates_where_that_is_faster),
        cmocka_unit_test(the_hosts_updates_hide_behind_backward),
        cmocka_unit_test(too_little_host_memory_is_said_to_the_byte),
        cmocka_unit_test(no_change_is_offered_that_cannot_have_the_pin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
