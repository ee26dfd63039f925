/* Updates in backward: each instance's parameters are updated when its gradients are complete, and the
 * next instance's gradients lie in the same place. Such a plan must pass the checker, need as many bytes
 * as is worked out by hand, and train the same bits as the one that updates at the end. */
#include "offload_test.h"

#include <math.h>

static const vp_device some_cpu = {.name               = "cpu",
                                   .is_cpu             = true,
                                   .fp32_flop_per_s    = 1e12,
                                   .memory_bytes_per_s = 1e11,
                                   .usable_bytes       = INT64_MAX / 4};

/* One micro-step, and nothing clipped. */
static vp_scenario alone(vp_scenario s)
{
    s.micro_batch      = s.global_batch;
    s.recipe.clip_norm = 0;
    return s;
}

static void updates_in_backward_train_the_same_bits(void **state)
{
    rng r = {91};
    int n = (long_run() ? 12 : 4) * VP_N_OPTIMIZERS * n_precisions(), n_plans = 0;

    (void)state;
    for (int i = 0; i < n; i++) {
        char        config[800], what[128];
        vp_model   *model = model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        vp_scenario s = alone(scenario_of(&r, i)), end = s;
        vp_recompute kind = (vp_recompute)pick(&r, 4);

        end.updates_at_end = true;
        if (vp_scenario_updates_in_backward(&s)) {
            vp_plan *plain = plan_of(model, end, kind), *plan = plan_of(model, s, kind);
            trained  want = train(plain, 3, 1, false);
            snprintf(what, sizeof what, "model %d, %s, %s, gradients %s", i,
                     vp_optimizer_name(s.recipe.optimizer), vp_precision_name(s.recipe.precision),
                     vp_gradients_name(s.recipe.gradients));
            assert_true(plan->updates_in_backward && !plain->updates_in_backward);
            assert_true(plan->peak_bytes < plain->peak_bytes);
            assert_true(fabs(plan->step_time_s / plain->step_time_s - 1) < 1e-9);
            survives_its_file(plan);
            trains_like(plan, &want, what);
            n_plans++;
            free(want.params);
            vp_plan_free(plain);
            vp_plan_free(plan);
        }
        vp_model_free(model);
    }
    if (n_plans < 40)
        fail_msg("%d plans", n_plans);
}

/* Gradients of gpt2, d wide, n blocks, V words, P positions, in fp32 and all multiples of 256 bytes. A
 * block has 12 d^2 + 13 d parameters, of which each begins at such a multiple. Tied: wte is added to by
 * head and embedding, so that wte and wpe stay where they are, 4 (V + P) d; then comes one place for a block
 * or the head's norm, 2 d: the block's. With a head of its own all three lie in one place: the largest of
 * (V + P) d, a block's and the head's V d + 2 d. */
static void gradients_take_the_bytes_of_one_block(void **state)
{
    enum { D = 64, N = 5, V = 128, P = 64 };
    const int64_t block = 4 * (12 * D * D + 13 * D), wte_wpe = 4 * (V + P) * D, norm = 4 * 2 * D,
                  head = 4 * V * D + norm;

    (void)state;
    for (int untied = 0; untied < 2; untied++) {
        const tiny t = {
            .n_embd = D, .n_layer = N, .n_head = 4, .vocab = V, .n_positions = P, .untied = untied};
        vp_model   *model = tiny_model(&t, 0.0);
        vp_scenario s     = alone((vp_scenario){
                .recipe = vp_recipe_default(), .seq = 32, .global_batch = 2, .micro_batch = 2});
        vp_cost     cost  = {.device = &some_cpu};
        vp_figures  in_backward, at_end;

        vp_scenario_set_all(&s, model, 0);
        OK(vp_assemble_figures(model, &s, &cost, &in_backward, err));
        s.updates_at_end = true;
        OK(vp_assemble_figures(model, &s, &cost, &at_end, err));
        int64_t all = wte_wpe + N * block + (untied ? head : norm);
        int64_t one = untied ? block : wte_wpe + block;
        assert_true(block > head && block > wte_wpe);
        assert_int_equal(at_end.stack_base_bytes - in_backward.stack_base_bytes, all - one);
        assert_int_equal(at_end.outside_blocks_ns, in_backward.outside_blocks_ns);
        assert_true(at_end.step_time_s == in_backward.step_time_s);
        vp_model_free(model);
    }
}

/* By rule: never beside clipping, a scaled loss, several micro-steps, an optimizer that treats whole
 * matrices, or what updates fetch from host memory. */
static void rules_say_when(void **state)
{
    vp_scenario s = alone((vp_scenario){.recipe = vp_recipe_default(), .global_batch = 4}), x;

    (void)state;
    assert_true(vp_scenario_updates_in_backward(&s));
    x                  = s;
    x.recipe.clip_norm = 1;
    assert_false(vp_scenario_updates_in_backward(&x));
    x             = s;
    x.micro_batch = 2;
    assert_false(vp_scenario_updates_in_backward(&x));
    x                  = s;
    x.recipe.precision = VP_PREC_FP16_MIXED;
    assert_false(vp_scenario_updates_in_backward(&x));
    x                = s;
    x.offload.states = 1;
    assert_false(vp_scenario_updates_in_backward(&x));
    x.offload.host_step =
        true; /* gradients go to host memory, however many micro-steps there were */
    x.micro_batch = 2;
    assert_true(vp_scenario_updates_in_backward(&x) && !vp_scenario_consumes_gradients(&x));
    x.micro_batch = 3;
    assert_false(vp_scenario_updates_in_backward(&x));
    for (int o = 0; o < VP_N_OPTIMIZERS; o++) {
        x                  = s;
        x.recipe.optimizer = (vp_optimizer)o;
        assert_int_equal(vp_scenario_updates_in_backward(&x),
                         o != VP_OPT_MUON && o != VP_OPT_ADAFACTOR);
    }
}

static void is_refused(const vp_plan *plan, const char *why)
{
    vp_err err = {0};

    assert_int_equal(vp_plan_check(plan, "plan", &err), VP_ERR_INPUT);
    if (!strstr(err.message, why))
        fail_msg("refused for \"%s\", not for \"%s\"", err.message, why);
}

static vp_step *first_of(vp_program *p, vp_pass pass, vp_kernel kernel)
{
    for (int64_t i = 0; i < p->n_steps[pass]; i++)
        if (p->steps[pass][i].kernel == kernel)
            return &p->steps[pass][i];
    fail_msg("no %s", vp_kernel_info_of(kernel)->name);
    return NULL;
}

static void the_checker_refuses_what_would_train_otherwise(void **state)
{
    const tiny  t     = {.n_layer = 1, .n_embd = 16, .n_head = 2, .vocab = 61, .n_positions = 64};
    vp_model   *model = tiny_model(&t, 0.0);
    vp_scenario s =
        alone((vp_scenario){.recipe = vp_recipe_default(), .seq = 16, .global_batch = 2});
    vp_plan *plan = plan_of(model, s, VP_RECOMPUTE_NONE), *end;

    (void)state;
    OK(vp_plan_check(plan, "plan", err));
    plan->recipe.clip_norm = 1;
    is_refused(plan, "the recipe clips");
    plan->recipe.clip_norm    = 0;
    plan->updates_in_backward = false; /* gradients of all blocks would lie in one place */
    is_refused(plan, "overlap");
    plan->updates_in_backward = true;

    /* a parameter of the block before the head, whose backward comes behind that update */
    vp_bucket  *b    = &plan->buckets[0];
    vp_program *head = &b->programs[b->instances[b->n_instances - 1].program_idx];
    vp_step    *step = &head->steps[VP_PASS_UPDATE][0], kept = *step;
    step->args[VP_ADAMW_P].ahead = step->args[VP_ADAMW_G].ahead = -1;
    is_refused(plan, "updates what is no parameter of this block");
    *step = kept;

    /* the last norm's weight, as long as the block's first, after the head's updates */
    vp_program *block = &b->programs[b->instances[1].program_idx];
    step              = first_of(block, VP_PASS_BACKWARD, VP_K_LAYERNORM_BWD);
    for (int k = 0; k < vp_step_n_operands(step); k++)
        if (step->args[k].space == VP_SPACE_PARAM)
            step->args[k] = (vp_arg){.space = VP_SPACE_PARAM, .idx = 0, .ahead = 1};
    is_refused(plan, "uses transformer.ln_f.weight after its update");

    s.updates_at_end         = true;
    end                      = plan_of(model, s, VP_RECOMPUTE_NONE);
    end->updates_in_backward = true; /* the head's program ends the norm, and comes first */
    is_refused(end, "adds to the gradients' norm after its end");
    for (int64_t i = 0; i < end->buckets[0].n_programs; i++)
        end->buckets[0].programs[i].n_steps[VP_PASS_NORM] = 0;
    is_refused(end, "is not once in the gradients' norm");
    vp_plan_free(end);
    vp_plan_free(plan);
    vp_model_free(model);
}

/* The least budget of a request that may have one micro-step is that with one, if its gradients weigh more
 * than its activations; no pinned micro-batch beats what is free. */
static void the_planner_takes_one_micro_step_for_its_gradients(void **state)
{
    const tiny      t = {.n_layer = 6, .n_embd = 64, .n_head = 4, .vocab = 97, .n_positions = 64};
    vp_model       *model   = tiny_model(&t, 0.0);
    vp_plan_request request = request_for(model, &some_cpu);
    vp_plan_answer  a;
    int64_t         least[5] = {0};

    (void)state;
    request.recipe.clip_norm = 0;
    request.seq              = 16;
    request.global_batch     = 4;
    for (int micro = 0; micro <= 4; micro++) { /* 0: free */
        if (micro == 3)
            continue;
        request.micro_batch  = micro;
        request.budget_bytes = 1024;
        OK(vp_planner_run(&request, &a, err));
        assert_int_equal(a.n_candidates, 0);
        least[micro] = a.least_budget_bytes;
        vp_plan_answer_release(&a);
    }
    assert_true(least[4] < least[1] && least[4] < least[2]);
    assert_int_equal(least[0], least[4]);
    request.micro_batch  = 0;
    request.budget_bytes = least[0];
    OK(vp_planner_run(&request, &a, err));
    assert_true(a.n_candidates > 0);
    assert_int_equal(a.candidates[0].scenario.micro_batch, 4);
    assert_true(vp_scenario_updates_in_backward(&a.candidates[0].scenario));
    vp_plan_answer_release(&a);
    vp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_in_backward_train_the_same_bits),
        cmocka_unit_test(gradients_take_the_bytes_of_one_block),
        cmocka_unit_test(rules_say_when),
        cmocka_unit_test(the_checker_refuses_what_would_train_otherwise),
        cmocka_unit_test(the_planner_takes_one_micro_step_for_its_gradients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
