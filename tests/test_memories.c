/* Host memory, pinned memory and a local drive as budgets of their own: what lies where, by hand; what no
 * plan may exceed; that the free plan is the fastest of all that keep to them; and that what lies on a
 * drive is counted and never executed. */
#include "offload_test.h"

/* A CPU whose copies take as long as its kernels, nearly. */
static const vp_device behind_a_link = {.name                  = "cpu",
                                        .is_cpu                = true,
                                        .fp32_flop_per_s       = 1e12,
                                        .memory_bytes_per_s    = 1e12,
                                        .host_link_bytes_per_s = 2e9,
                                        .usable_bytes          = INT64_MAX / 4};

static vp_plan_request request_of(const vp_model *model, const vp_device *device)
{
    vp_plan_request r = request_for(model, device);

    r.seq          = 24;
    r.host_bytes   = INT64_C(1) << 40;
    r.budget_bytes = INT64_C(1) << 30;
    return r;
}

/* Bytes of `each` bytes for every element of the model's parameters, each parameter's at a multiple of
 * VP_ALIGN_BYTES but what follows the last. */
static int64_t by_hand(const vp_model *model, int64_t each)
{
    const vp_graph *g     = &model->graph;
    int64_t         bytes = 0, padding = 0;

    for (int64_t i = 0; i < g->n_instances; i++) {
        const vp_template *t = &g->templates[g->instances[i].template_idx];
        for (int64_t k = 0; k < t->n_params; k++) {
            int64_t whole = each * t->params[k].n_elements;
            padding       = vp_round_up(whole, VP_ALIGN_BYTES) - whole;
            bytes += whole + padding;
        }
    }
    return bytes - padding;
}

/* Three of fp32, one behind the other: master weights and AdamW's states. */
static int64_t states_by_hand(const vp_model *model)
{
    return 2 * vp_round_up(by_hand(model, 4), VP_ALIGN_BYTES) + by_hand(model, 4);
}

static const tiny small = {.n_layer = 3, .n_embd = 24, .n_head = 2, .vocab = 61, .n_positions = 64};

static vp_scenario scenario_with(vp_offload offload)
{
    vp_scenario s = {.recipe       = vp_recipe_default(),
                     .seq          = 24,
                     .global_batch = 4,
                     .micro_batch  = 2,
                     .offload      = offload};

    s.recipe.precision = VP_PREC_BF16_MIXED;
    return s;
}

/* What the host updates need not be pinned; what a copy reads or writes must be. */
static void each_thing_lies_where_it_must(void **state)
{
    vp_model     *model = tiny_model(&small, 0.0);
    const int64_t n     = model->graph.n_instances;
    const struct {
        vp_offload offload;
        bool       pageable, drive; /* where master weights and states lie; neither: pinned */
    } cases[] = {{{.states = n}, false, false},
                 {{.states = n, .blocks = true}, false, false},
                 {{.states = n, .host_step = true}, true, false},
                 {{.states = n, .host_step = true, .blocks = true}, true, false},
                 {{.states = n, .nvme = true}, false, true},
                 {{.states = n, .nvme = true, .blocks = true}, false, true}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vp_plan *plan     = plan_of(model, scenario_with(cases[i].offload), VP_RECOMPUTE_NONE);
        int64_t  pageable = vp_plan_memory_bytes(plan, VP_MEMORY_HOST),
                pinned    = vp_plan_memory_bytes(plan, VP_MEMORY_HOST_PINNED),
                drive     = vp_plan_memory_bytes(plan, VP_MEMORY_NVME);
        OK(vp_plan_check(plan, "plan", err));
        assert_int_equal(pageable, cases[i].pageable ? states_by_hand(model) : 0);
        assert_int_equal(drive, cases[i].drive ? states_by_hand(model) : 0);
        assert_int_equal(pageable + pinned, plan->host_peak_bytes);
        if (!cases[i].pageable && !cases[i].drive && !cases[i].offload.blocks)
            assert_int_equal(pinned, states_by_hand(model));
        if (cases[i].drive && !cases[i].offload.blocks)
            assert_int_equal(pinned, 0);
        survives_its_file(plan);
        vp_plan_free(plan);
    }
    vp_model_free(model);
}

/* A plan with states on a drive is the one with them in host memory, but for where they lie. */
static void a_drive_takes_what_host_memory_would(void **state)
{
    vp_model *model = tiny_model(&small, 0.0);

    (void)state;
    for (int blocks = 0; blocks < 2; blocks++)
        for (int64_t n = 1; n <= model->graph.n_instances; n++) {
            vp_offload  offload = {.states = blocks ? model->graph.n_instances : n,
                                   .blocks = blocks};
            vp_plan    *host    = plan_of(model, scenario_with(offload), VP_RECOMPUTE_NONE), *drive;
            vp_runtime *rt      = NULL;
            vp_err      bad     = {0};
            offload.nvme        = true;
            drive               = plan_of(model, scenario_with(offload), VP_RECOMPUTE_NONE);
            OK(vp_plan_check(drive, "drive", err));
            timeline_adds_up(drive);
            assert_int_equal(drive->peak_bytes, host->peak_bytes);
            assert_true(drive->step_time_s == host->step_time_s);
            assert_int_equal(vp_plan_memory_bytes(drive, VP_MEMORY_NVME) +
                                 (blocks ? vp_round_up(drive->host_peak_bytes, VP_ALIGN_BYTES) : 0),
                             host->host_peak_bytes);
            assert_int_equal(
                vp_runtime_new(drive, test_backend(), &(vp_run_opts){.seed = -1}, &rt, &bad),
                VP_ERR_USAGE);
            assert_non_null(strstr(bad.message, "sizes and does not execute"));
            vp_plan_free(host);
            vp_plan_free(drive);
        }
    vp_model_free(model);
}

static void refused(const vp_plan *plan, const char *because)
{
    vp_err bad = {0};

    assert_int_equal(vp_plan_check(plan, "plan", &bad), VP_ERR_INPUT);
    if (!strstr(bad.message, because))
        fail_msg("refused otherwise than because it %s: %s (%s)", because, bad.message, bad.field);
}

/* No copy reaches host memory that is not pinned, and no processor a drive. */
static void the_checker_knows_who_reaches_what(void **state)
{
    vp_model     *model = tiny_model(&small, 0.0);
    const int64_t n     = model->graph.n_instances;
    vp_plan   *plan = plan_of(model, scenario_with((vp_offload){.states = n}), VP_RECOMPUTE_NONE);
    vp_bucket *b    = &plan->buckets[0];
    const int64_t host = plan->host_peak_bytes;

    (void)state;
    for (int64_t i = 0; i < n; i++)
        for (int h = VP_REGION_MASTER; h < VP_N_REGIONS; h++)
            b->instances[i].region_memory[h] = VP_MEMORY_HOST;
    b->pageable_bytes = host;
    refused(plan, "does not copy from host-pinned or nvme to device");
    b->pageable_bytes = host - 1;
    refused(plan, "");
    b->pageable_bytes = 0;
    refused(plan, "");
    vp_plan_free(plan);

    plan = plan_of(model, scenario_with((vp_offload){.states = n, .host_step = true}),
                   VP_RECOMPUTE_NONE);
    b    = &plan->buckets[0];
    for (int64_t i = 0; i < n; i++)
        for (int h = VP_REGION_MASTER; h < VP_N_REGIONS; h++)
            b->instances[i].region_memory[h] = VP_MEMORY_NVME;
    b->nvme_bytes = b->pageable_bytes;
    b->host_peak_bytes -= b->pageable_bytes;
    plan->host_peak_bytes = b->host_peak_bytes;
    b->pageable_bytes     = 0;
    refused(plan, "lies in nvme, where the host does not reach it");
    vp_plan_free(plan);
    vp_model_free(model);
}

/* The best plan, that keeps to all budgets; seconds negative: there is none. */
static double best_s(const vp_plan_request *r, vp_candidate *best)
{
    vp_plan_answer a;
    double         s = -1;

    OK(vp_planner_run(r, &a, err));
    for (int64_t i = 0; i < a.n_candidates; i++) {
        const vp_figures *f = &a.candidates[i].figures;
        assert_true(f->host_bytes <= r->host_bytes && f->nvme_bytes <= r->nvme_bytes);
        assert_true(!r->pinned_bytes || f->host_bytes - f->pageable_bytes <= r->pinned_bytes);
        assert_true(f->device_bytes <= r->budget_bytes);
    }
    if (a.n_candidates) {
        s = a.candidates[0].figures.step_time_s;
        if (best)
            *best = a.candidates[0];
    }
    vp_plan_answer_release(&a);
    return s;
}

/* Of each kind: none where one byte less may be pinned than the answer says is least, one with that. */
static void pinned_memory_ends_where_it_is_said_to(void **state)
{
    vp_model       *model   = tiny_model(&small, 0.0);
    vp_plan_request request = request_of(model, &behind_a_link);
    int             n       = 0;

    (void)state;
    for (int kind = VP_OFFLOAD_OPTIMIZER; kind < VP_N_OFFLOADS; kind++) {
        vp_plan_answer a;
        vp_candidate   best;
        int64_t        needs;

        request.offload      = (vp_offload_kind)kind;
        request.pinned_bytes = 1;
        OK(vp_planner_run(&request, &a, err));
        needs = a.nearest.pinned_bytes;
        assert_int_equal(a.n_candidates, 0);
        assert_true(needs > 1 && a.least_host_bytes <= request.host_bytes);
        vp_plan_answer_release(&a);
        request.pinned_bytes = needs - 1;
        assert_true(best_s(&request, NULL) < 0);
        request.pinned_bytes = needs;
        assert_true(best_s(&request, &best) > 0);
        assert_int_equal(best.figures.host_bytes - best.figures.pageable_bytes, needs);
        n += best.figures.pageable_bytes > 0;

        request.host_bytes = request.pinned_bytes =
            1; /* both short: what it lacks least of, all at once */
        OK(vp_planner_run(&request, &a, err));
        assert_int_equal(a.n_candidates, 0);
        request.host_bytes   = a.nearest.host_bytes;
        request.pinned_bytes = a.nearest.pinned_bytes;
        vp_plan_answer_release(&a);
        assert_true(best_s(&request, NULL) > 0);
        request.host_bytes = INT64_C(1) << 40;
    }
    assert_true(n >= 4); /* those whose updates the host makes */
    vp_model_free(model);
}

/* Random budgets of all three: the free plan is no slower than any kind's, more of any is never slower. */
static void no_kind_is_faster_than_the_free_plan(void **state)
{
    rng r = {91};
    int n = long_run() ? 120 : 18, bound = 0, with = 0;

    (void)state;
    for (int i = 0; i < n; i++) {
        char      config[800];
        vp_model *model = model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0);
        vp_device here  = behind_a_link;
        vp_plan_request request = request_of(model, &here), more;
        const int64_t   states  = 12 * model->n_params;
        vp_candidate    best;
        double          free_s, s;

        here.host_link_bytes_per_s = (double)(INT64_C(1) << (18 + pick(&r, 16)));
        request.recipe.precision   = VP_PREC_BF16_MIXED;
        request.global_batch       = 1 + pick(&r, 6);
        request.budget_bytes       = states / 2 + pick(&r, states);
        request.host_bytes         = i % 4 ? 4 * states : 1 + pick(&r, 2 * states);
        request.pinned_bytes       = i % 3 ? states / 16 + pick(&r, states / 2) : 0;
        free_s                     = best_s(&request, &best);
        if (free_s > 0 && request.pinned_bytes) {
            more              = request;
            more.pinned_bytes = 0;
            s                 = best_s(&more, NULL);
            if (s <= 0 || s > free_s * (1 + 1e-9))
                fail_msg("model %d: %g s where all may be pinned, %g s where less", i, s, free_s);
            bound += s < free_s * (1 - 1e-9);
            with += best.figures.pageable_bytes > 0;
        }
        for (int kind = 0; kind < VP_N_OFFLOADS; kind++) {
            more         = request;
            more.offload = (vp_offload_kind)kind;
            if (vp_offload_steps(more.offload) && !vp_request_may_step(&more))
                continue;
            s = best_s(&more, NULL);
            if (s > 0 && (free_s <= 0 || free_s > s * (1 + 1e-9)))
                fail_msg("model %d: %s takes %.9g s, the free plan %.9g s", i,
                         vp_offload_name(more.offload), s, free_s);
        }
        vp_model_free(model);
    }
    print_message("%d bound, %d with host memory that is not pinned\n", bound, with);
    assert_true(bound > 0 && with > 0);
}

/* On a drive all states are, or none: one byte less than they take, and no plan has them there. */
static void a_drive_is_a_budget_of_its_own(void **state)
{
    vp_model       *model   = tiny_model(&small, 0.0);
    vp_plan_request request = request_of(model, &behind_a_link);
    vp_plan_answer  a;
    vp_candidate    best;

    (void)state;
    request.recipe.precision = VP_PREC_BF16_MIXED;
    request.offload          = VP_OFFLOAD_OPTIMIZER;
    request.on_nvme          = true;
    request.host_bytes       = 1; /* nothing of it is needed */
    request.nvme_bytes       = states_by_hand(model) - 1;
    OK(vp_planner_run(&request, &a, err));
    assert_int_equal(a.n_candidates, 0);
    assert_int_equal(a.nearest.nvme_bytes, states_by_hand(model));
    vp_plan_answer_release(&a);
    request.nvme_bytes++;
    assert_true(best_s(&request, &best) > 0);
    assert_int_equal(best.figures.nvme_bytes, states_by_hand(model));
    assert_int_equal(best.figures.host_bytes, 0);
    vp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_thing_lies_where_it_must),
        cmocka_unit_test(a_drive_takes_what_host_memory_would),
        cmocka_unit_test(the_checker_knows_who_reaches_what),
        cmocka_unit_test(pinned_memory_ends_where_it_is_said_to),
        cmocka_unit_test(no_kind_is_faster_than_the_free_plan),
        cmocka_unit_test(a_drive_is_a_budget_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
