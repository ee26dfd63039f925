/* The planner's promises on small models: exact among everything enumerable, never slower than a
 * preset, never over budget, never slower with more budget. */
#include "plan_test.h"
#include "planner/lowering/lower.h"

#include <math.h>

#include "planner/changes.h"
#include "planner/frontier.h"
#include "planner/itemise.h"
#include "planner/outline_store.h"
#include "planner/reprice.h"
#include "report/curve_svg.h"

static const vp_device cpu = {.name               = "cpu",
                              .is_cpu             = true,
                              .fp32_flop_per_s    = 1e11,
                              .memory_bytes_per_s = 1e10,
                              .usable_bytes       = INT64_MAX};

static vp_plan_request request_for(const vp_model *model, int64_t seq, int64_t batch)
{
    return (vp_plan_request){.model        = model,
                             .device       = &cpu,
                             .recipe       = vp_recipe_default(),
                             .seq          = seq,
                             .global_batch = batch,
                             .budget_bytes = INT64_MAX / 4,
                             .recompute    = VP_RECOMPUTE_ANY,
                             .loss_chunk   = VP_CHUNK_ANY,
                             .gap          = 1e-5,
                             .no_proof     = true};
}

static int64_t n_mixed; /* sequences of segments and other items */

/* Every assignment of library strategies to blocks in every scenario, each lowered and laid out
 * whole; the chain is put in descending beta, as the planner does (tests/test_solver.c shows by
 * brute force over orders that none is lower). best_s: out, the fastest step within each of the n
 * budgets, negative where nothing fits. */
static void brute_force(const vp_plan_request *r, const vp_plan_answer *a, const int64_t *budgets,
                        int n, double *best_s)
{
    int64_t n_blocks = r->model->graph.n_instances - 2;
    vp_cost cost     = {.device = r->device};

    for (int k = 0; k < n; k++)
        best_s[k] = -1;

    for (int64_t s = 0; s < a->n_scenarios; s++) {
        const vp_library *lib   = a->libraries[s];
        int64_t           n_all = 1;
        for (int64_t b = 0; b < n_blocks; b++)
            n_all *= lib->n;
        for (int64_t code = 0; code < n_all; code++) {
            vp_scenario x    = listed_scenario(a->scenarios[s]);
            int64_t     last = 0, rest = code;
            bool        descending = true;
            x.n_runs               = 0;
            int64_t left           = n_blocks;
            while (left > 0) {
                int64_t pick_idx = rest % lib->n, m = lib->strategies[pick_idx].segment;
                rest /= lib->n;
                descending &= x.n_runs == 0 || pick_idx >= last;
                last = pick_idx;
                left -= m;
                x.runs[x.n_runs++] = (vp_block_run){lib->strategies[pick_idx].recompute, m, m, 0};
            }
            /* each sequence once, without more after it */
            if (!descending || left < 0 || rest > 0)
                continue;
            n_mixed += x.runs[0].segment > 1 && x.runs[0].segment < n_blocks;
            vp_figures f;
            OK(vp_assemble_figures(r->model, &x, &cost, &f, err));
            for (int k = 0; k < n; k++)
                if (f.device_bytes <= budgets[k] && (best_s[k] < 0 || f.step_time_s < best_s[k]))
                    best_s[k] = f.step_time_s;
        }
    }
}

static void the_plan_is_the_best_of_all_that_can_be_enumerated(void **state)
{
    rng r = {2718};

    (void)state;
    for (int turn = 0; turn < 6; turn++) {
        int64_t         heads   = 1 + pick(&r, 3);
        vp_model       *model   = tiny_model(&(tiny){.n_embd  = 16 * heads,
                                                     .n_layer = turn % 3 == 2 ? 4 : 1 + turn % 2,
                                                     .n_head  = heads,
                                                     .vocab   = 40 + pick(&r, 60)},
                                             0);
        vp_plan_request request = request_for(model, 24 + pick(&r, 40), 2);
        vp_plan_answer  a;
        /* every other turn one with something outside the arena, which it gives in pieces */
        vp_device card = cpu;
        if (turn % 2) {
            card.outside_bytes = 100001;
            card.granule_bytes = 4096;
            request.device     = &card;
        }
        /* four blocks, with segments of two and three: one micro-batch and chunk */
        bool deep = model->graph.n_instances > 4;
        if (deep) {
            request.micro_batch = 2;
            request.loss_chunk  = 0;
        }
        OK(vp_planner_run(&request, &a, err));
        int64_t budgets[4], least = a.least_budget_bytes,
                            most = a.candidates[0].figures.device_bytes;
        double best_s[4];
        for (int k = 0; k < 4; k++)
            budgets[k] = least + (most - least) * k / 3;
        brute_force(&request, &a, budgets, 4, best_s);
        vp_plan_answer_release(&a);
        for (int k = 0; k < 4; k++) {
            request.budget_bytes = budgets[k];
            OK(vp_planner_run(&request, &a, err));
            assert_true(a.n_candidates > 0);
            assert_true(a.candidates[0].figures.step_time_s == best_s[k]);
            assert_true(a.candidates[0].figures.device_bytes <= request.budget_bytes);
            assert_true(turn % 2 == 0 ||
                        (a.candidates[0].figures.device_bytes - 100001) % 4096 == 0);
            vp_plan_answer_release(&a);
        }
        vp_model_free(model);
    }
    assert_true(n_mixed > 0);
}

static void no_preset_is_faster_and_every_plan_keeps_its_budget(void **state)
{
    rng r = {161};

    (void)state;
    for (int turn = 0; turn < 20; turn++) {
        int64_t   heads = 1 + pick(&r, 4);
        vp_model *model = tiny_model(
            &(tiny){
                .n_embd = 8 * heads, .n_layer = 2 + pick(&r, 10), .n_head = heads, .vocab = 300},
            0);
        vp_plan_request request = request_for(model, 64 + pick(&r, 200), 1 + pick(&r, 6));
        vp_plan_answer  a;
        vp_plan        *plan;
        OK(vp_planner_run(&request, &a, err));
        request.budget_bytes =
            a.least_budget_bytes +
            pick(&r, a.candidates[0].figures.device_bytes - a.least_budget_bytes + 1);
        vp_plan_answer_release(&a);
        OK(vp_planner_run(&request, &a, err));
        for (int64_t p = 0; p < a.n_presets; p++)
            assert_true(!a.presets[p].candidate.fits ||
                        a.candidates[0].figures.step_time_s <=
                            a.presets[p].candidate.figures.step_time_s);
        OK(vp_planner_make(&request, &a, &a.candidates[0], &plan, err));
        OK(vp_plan_check(plan, "plan", err));
        assert_true(plan->peak_bytes <= request.budget_bytes &&
                    plan->peak_bytes == a.candidates[0].figures.peak_bytes);
        assert_true(plan->step_time_s == a.candidates[0].figures.step_time_s);
        vp_plan_free(plan);
        vp_plan_answer_release(&a);
        vp_model_free(model);
    }
}

static void along_a_frontier_more_memory_is_never_slower(void **state)
{
    vp_model *model = tiny_model(&(tiny){.n_embd = 64, .n_layer = 8, .n_head = 4, .vocab = 300}, 0);
    vp_plan_request request = request_for(model, 128, 4);
    vp_plan_answer  a;
    vp_frontier     f;
    vp_report_point points[32];
    vp_text         svg = {0};

    (void)state;
    OK(vp_planner_run(&request, &a, err));
    OK(vp_frontier_trace(&request, &a, &f, err));
    assert_true(f.n >= 8);
    assert_int_equal(f.points[0].budget_bytes, a.least_budget_bytes);
    for (int64_t i = 0; i < f.n; i++) {
        assert_true(f.points[i].peak_bytes <= f.points[i].budget_bytes);
        assert_true(i == 0 || f.points[i].step_time_s <= f.points[i - 1].step_time_s);
        assert_true(i == 0 ||
                    f.points[i].device_bytes > f.points[i - 1].device_bytes); /* distinct */
    }
    assert_true(f.points[f.n - 1].step_time_s < f.points[0].step_time_s);
    for (int64_t i = 0; i < f.n; i++)
        points[i] = (vp_report_point){f.points[i].device_bytes, f.points[i].step_time_s};
    assert_true(vp_report_curve_svg(
        &(vp_report_curve){
            .device = "cpu", .budget_bytes = request.budget_bytes, .points = points, .n = f.n},
        &svg));
    assert_non_null(strstr(svg.data, "</svg>"));
    vp_text_release(&svg);
    vp_frontier_release(&f);
    vp_plan_answer_release(&a);
    vp_model_free(model);
}

/* Whether a change fits, by a search of its own that shares nothing; *least: the bytes it needs. */
static bool would_fit(const vp_plan_request *r, int64_t *least)
{
    OK(vp_planner_least(r, NULL, least, err));
    return *least > 0 && *least <= r->budget_bytes;
}

static void an_infeasible_request_is_told_what_would_fit(void **state)
{
    vp_model *model = tiny_model(&(tiny){.n_embd = 64, .n_layer = 4, .n_head = 4, .vocab = 300}, 0);
    vp_plan_request request = request_for(model, 256, 4);
    vp_plan_answer  a;
    vp_changes      c;

    (void)state;
    request.micro_batch = 4;
    OK(vp_planner_run(&request, &a, err));
    request.budget_bytes = a.least_budget_bytes - 1;
    vp_plan_answer_release(&a);
    OK(vp_planner_run(&request, &a, err));
    assert_int_equal(a.n_candidates, 0);
    assert_int_equal(a.proof, VP_PROOF_INFEASIBLE);
    OK(vp_changes_find(&request, &a, &c, err));
    assert_true(c.n >= 2);
    for (int64_t i = 0; i < c.n; i++)
        assert_true(c.changes[i].budget_bytes || c.changes[i].device[0] ||
                    c.changes[i].needs_bytes <= request.budget_bytes);
    vp_plan_answer_release(&a);
    vp_model_free(model);
}

/* Also where recipe and attention are free, and other changes are tried as the leanest plan has
 * them. */
static void a_change_fits_what_is_free_in_its_recipe(void **state)
{
    vp_model *model = tiny_model(&(tiny){.n_embd = 64, .n_layer = 4, .n_head = 4, .vocab = 300}, 0);
    vp_plan_request request = request_for(model, 512, 4);
    vp_plan_answer  a;
    vp_changes      c;
    int64_t         least;

    (void)state;
    request.any_precision = request.any_gradients = request.any_optimizer = true;
    request.attention                                                     = VP_ATTENTION_ANY;
    OK(vp_planner_least(&request, NULL, &least, err));
    request.budget_bytes = least - 1;
    OK(vp_planner_run(&request, &a, err));
    assert_int_equal(a.n_candidates, 0);
    OK(vp_changes_find(&request, &a, &c, err));
    assert_true(c.n >= 1 && c.changes[0].seq && !c.changes[0].another_optimizer &&
                !c.changes[0].another_precision);
    request.seq = c.changes[0].seq;
    assert_true(would_fit(&request, &least));
    vp_plan_answer_release(&a);
    vp_model_free(model);
}

/* A Llama whose frozen weights are most of what it takes: with adapters it fits, trained whole in no
 * recipe. */
static void what_trains_whole_in_no_recipe_is_offered_adapters(void **state)
{
    vp_model       *model;
    vp_plan_request request;
    vp_plan_answer  a;
    vp_changes      c;
    int             n_adapted = 0;

    (void)state;
    OK(vp_model_open("smollm2-135m", &(vp_model_opts){0}, &model, err));
    request                  = request_for(model, 64, 1);
    request.recipe.precision = VP_PREC_BF16;
    request.recipe.gradients = VP_GRADIENTS_BF16;
    vp_recipe_set_optimizer(&request.recipe, VP_OPT_ADAMW_8BIT);
    request.budget_bytes = 5 * model->n_params; /* 2 + 2 + 2.03 bytes a parameter are trained */
    OK(vp_planner_run(&request, &a, err));
    assert_int_equal(a.proof, VP_PROOF_INFEASIBLE);
    OK(vp_changes_find(&request, &a, &c, err));
    for (int64_t i = 0; i < c.n; i++) {
        vp_plan_request again = request;
        vp_model       *adapted;
        int64_t         least;
        if (!c.changes[i].lora.rank)
            continue;
        n_adapted++;
        OK(vp_model_open("smollm2-135m", &(vp_model_opts){.lora = &c.changes[i].lora}, &adapted,
                         err));
        again.model       = adapted;
        again.recipe.lora = c.changes[i].lora;
        assert_false(c.changes[i].another_precision || c.changes[i].another_optimizer);
        assert_true(would_fit(&again, &least));
        assert_int_equal(least, c.changes[i].needs_bytes);
        vp_model_free(adapted);
    }
    assert_int_equal(n_adapted, 1);
    vp_plan_answer_release(&a);
    vp_model_free(model);
}

/* The change to this sequence (0: the same) and this recipe, of the same device and model. */
static const vp_change *find_change(const vp_changes *c, const vp_plan_request *asked, int64_t seq,
                                    const vp_recipe *to)
{
    for (int64_t i = 0; i < c->n; i++) {
        const vp_change *x     = &c->changes[i];
        bool             other = x->device[0] || x->model || x->budget_bytes;
        if (!other && x->seq == seq &&
            (x->another_precision ? x->precision : asked->recipe.precision) == to->precision &&
            (x->another_gradients ? x->gradients : asked->recipe.gradients) == to->gradients &&
            (x->another_optimizer ? x->optimizer : asked->recipe.optimizer) == to->optimizer)
            return x;
    }
    return NULL;
}

/* Libraries that are shared and changes that are left out at once give what a search for each
 * gives. */
static void what_would_fit_is_what_a_search_of_its_own_finds(void **state)
{
    rng r      = {31};
    int n_told = 0;

    (void)state;
    for (int turn = 0; turn < N_FAMILIES; turn++) {
        char      text[1024];
        vp_model *model = model_of(random_config(&r, turn % N_FAMILIES, text, sizeof text), 0);
        vp_plan_request request = request_for(model, 512, 1 + pick(&r, 3)), changed;
        vp_plan_answer  a;
        vp_changes      c;
        int64_t         least, leanest;
        request.recipe.precision = (vp_precision)pick(&r, 2);
        OK(vp_planner_least(&request, NULL, &least, err));
        changed     = request;
        changed.seq = 64;
        vp_recipe_set_optimizer(&changed.recipe, VP_OPT_SGD);
        OK(vp_planner_least(&changed, NULL, &leanest, err));
        request.budget_bytes = leanest + (least - leanest) * pick(&r, 100) / 100;
        OK(vp_planner_run(&request, &a, err));
        assert_int_equal(a.proof, VP_PROOF_INFEASIBLE);
        OK(vp_changes_find(&request, &a, &c, err));

        bool told = false, recipe_fits = false;
        for (int64_t seq = 256; seq >= 64; seq /= 2) { /* the longest that fits, and it alone */
            bool here   = find_change(&c, &request, seq, &request.recipe) != NULL;
            changed     = request;
            changed.seq = seq;
            bool fits   = would_fit(&changed, &least);
            if (here && (told || !fits))
                fail_msg("%s: seq %lld is told of %lld bytes, budget %lld", text, (long long)seq,
                         (long long)c.persistent_bytes, (long long)request.budget_bytes);
            told |= fits;
        }
        for (int k = 0; k < 10; k++) { /* 8 bits, and each format with both kinds of states */
            static const int format[] = {0, 1, 0, 1, 0, 1, 2, 2, 2, 0},
                             states[] = {1, 0, 0, 1, 1, 1, 0, 1, 1, 2},
                             grads[]  = {0, 0, 1, 0, 1, 1, 0, 0, 1, 0};
            changed                   = request;
            if (format[k])
                changed.recipe.precision = format[k] == 1 ? VP_PREC_BF16_MIXED : VP_PREC_BF16;
            changed.recipe.gradients = grads[k] ? VP_GRADIENTS_BF16 : VP_GRADIENTS_FP32;
            if (!vp_precision_takes(changed.recipe.precision, changed.recipe.gradients))
                continue;
            if (states[k])
                vp_recipe_set_optimizer(&changed.recipe,
                                        states[k] == 1 ? VP_OPT_ADAMW_8BIT : VP_OPT_SGD);
            const vp_change *change = find_change(&c, &request, 0, &changed.recipe);
            bool             fits   = would_fit(&changed, &least);
            assert_true(!change || fits);
            /* every single one of AdamW's that fits is told; SGD only where none of them does */
            if (k == 0 || (k == 1 && request.recipe.precision == VP_PREC_FP32))
                assert_true(!fits || change || c.n == VP_MAX_CHANGES);
            if (states[k] == 2)
                assert_true(fits && !recipe_fits ? change || c.n == VP_MAX_CHANGES : !change);
            recipe_fits |= fits;
            if (change)
                assert_int_equal(change->needs_bytes, least);
        }
        n_told += c.n > 0;
        vp_plan_answer_release(&a);
        vp_model_free(model);
    }
    assert_true(n_told > N_FAMILIES / 2);
}

/* What is free in optimizer and precision is the fastest of the recipes that converge as the one
 * asked for, each asked for by itself: they share libraries. No other comes out, though SGD is
 * faster than AdamW and bf16 without master weights than with them. */
static void a_free_recipe_is_the_fastest_of_those_that_converge_alike(void **state)
{
    vp_model *model = tiny_model(&(tiny){.n_embd = 64, .n_layer = 4, .n_head = 4, .vocab = 300}, 0);
    vp_plan_request request = request_for(model, 128, 4);
    vp_plan_answer  a;
    double          best_s = INFINITY;

    (void)state;
    request.budget_bytes = 5 << 20;
    for (int k = 0; k < 3 * 2; k++) {
        static const vp_optimizer adamw[] = {VP_OPT_ADAMW, VP_OPT_ADAMW_BF16, VP_OPT_ADAMW_8BIT};
        vp_plan_request           one     = request;
        one.recipe.precision              = k % 2 ? VP_PREC_BF16_MIXED : VP_PREC_FP32;
        if (adamw[k / 2] != one.recipe.optimizer)
            vp_recipe_set_optimizer(&one.recipe, adamw[k / 2]);
        OK(vp_planner_run(&one, &a, err));
        if (a.n_candidates)
            best_s = fmin(best_s, a.candidates[0].figures.step_time_s);
        vp_plan_answer_release(&a);
    }
    request.any_precision = request.any_optimizer = true;
    OK(vp_planner_run(&request, &a, err));
    assert_true(a.n_candidates > 0 && isfinite(best_s));
    assert_true(a.candidates[0].figures.step_time_s == best_s);
    for (int64_t i = 0; i < a.n_presets; i++) /* which are free in it too */
        assert_true(a.presets[i].candidate.scenario.recipe.precision == VP_PREC_BF16_MIXED ||
                    a.presets[i].candidate.scenario.recipe.optimizer != VP_OPT_ADAMW);
    vp_plan_answer_release(&a);
    vp_model_free(model);
}

/* Each optimizer's own family, and a number format only where the device has it. */
static void what_is_free_is_what_converges_alike(void **state)
{
    vp_model *model = tiny_model(&(tiny){.n_embd = 64, .n_layer = 2, .n_head = 4, .vocab = 300}, 0);
    vp_plan_request request = request_for(model, 128, 4);
    vp_recipe       recipes[VP_MAX_RECIPES];
    vp_device       t4;

    (void)state;
    request.any_precision = request.any_optimizer = true;
    assert_int_equal(vp_request_recipes(&request, recipes), 3 * 2);
    assert_int_equal(recipes[0].optimizer, VP_OPT_ADAMW);
    assert_int_equal(recipes[0].precision, VP_PREC_FP32);
    for (int o = VP_OPT_SGD; o < VP_N_OPTIMIZERS; o++) {
        vp_recipe_set_optimizer(&request.recipe, (vp_optimizer)o);
        assert_int_equal(vp_request_recipes(&request, recipes), 2);
        assert_int_equal(recipes[1].optimizer, o);
    }
    request.recipe.precision = VP_PREC_BF16; /* asked for by name */
    assert_int_equal(vp_request_recipes(&request, recipes), 3);
    request.recipe.precision = VP_PREC_FP32;
    OK(vp_device_open("t4", &t4, err));
    request.device = &t4; /* fp16-mixed beside fp32 */
    assert_int_equal(vp_request_recipes(&request, recipes), 2);
    assert_int_equal(recipes[1].precision, VP_PREC_FP16_MIXED);
    request.any_gradients = true; /* none but fp32 stands beside either */
    assert_int_equal(vp_request_recipes(&request, recipes), 2);
    request.device        = &cpu;
    request.any_precision = false;
    for (int p = VP_PREC_BF16_MIXED; p <= VP_PREC_BF16; p++) {
        request.recipe.precision = (vp_precision)p;
        assert_int_equal(vp_request_recipes(&request, recipes), 2);
        assert_int_equal(recipes[0].gradients, VP_GRADIENTS_FP32);
        assert_int_equal(recipes[1].gradients, VP_GRADIENTS_BF16);
    }
    vp_model_free(model);
}

/* Of plans that are slower than the best by a share at most the lean one needs the least: nothing
 * that fits in a thousandth of the budget less is as fast. The best and its proof stay. */
static void the_lean_plan_needs_the_least_within_its_share(void **state)
{
    rng r        = {77};
    int n_leaner = 0;

    (void)state;
    for (int turn = 0; turn < (getenv("VPLAN_LONG") ? 4 : 1) * N_FAMILIES; turn++) {
        static const double shares[] = {0.001, 0.01, 0.05};
        char                text[1024];
        vp_model *model = model_of(random_config(&r, turn % N_FAMILIES, text, sizeof text), 0);
        vp_plan_request request = request_for(model, 256, 4);
        vp_plan_answer  old, a;
        double          slowest_s, less_s;
        int64_t         least;

        OK(vp_planner_least(&request, NULL, &least, err));
        request.budget_bytes = least + least * pick(&r, 100) / 50;
        OK(vp_planner_run(&request, &old, err));
        assert_int_equal(old.lean.figures.device_bytes, old.candidates[0].figures.device_bytes);
        request.within = shares[turn % 3];
        OK(vp_planner_run(&request, &a, err));
        assert_true(a.candidates[0].figures.step_time_s == old.candidates[0].figures.step_time_s);
        assert_true(a.gap == old.gap && a.bound_s == old.bound_s && a.proof == old.proof);
        slowest_s = a.candidates[0].figures.step_time_s * (1 + request.within);
        assert_true(a.lean.figures.step_time_s <= slowest_s);
        assert_true(a.lean.figures.device_bytes <= a.candidates[0].figures.device_bytes);
        n_leaner += a.lean.figures.device_bytes < a.candidates[0].figures.device_bytes;
        OK(vp_planner_at_budget(&request, &a,
                                a.lean.figures.device_bytes - request.budget_bytes / 500, &less_s,
                                NULL, err));
        if (less_s >= 0 && less_s <= slowest_s)
            fail_msg("%s: %lld bytes are not the least within %g", text,
                     (long long)a.lean.figures.device_bytes, request.within);
        vp_plan *plan;
        OK(vp_planner_make(&request, &a, &a.lean, &plan, err));
        assert_int_equal(plan->proof, a.proof);
        assert_int_equal(plan->peak_bytes, a.lean.figures.peak_bytes);
        if (a.lean.figures.step_time_s > a.candidates[0].figures.step_time_s)
            assert_true(plan->fastest_s == a.candidates[0].figures.step_time_s);
        vp_plan_free(plan);
        vp_plan_answer_release(&old);
        vp_plan_answer_release(&a);
        vp_model_free(model);
    }
    assert_true(n_leaner >= N_FAMILIES / 4);
}

/* What one set of recomputed ops keeps, needs above that and costs. */
static vp_strategy measured(const vp_model *model, uint64_t set, vp_cost *cost)
{
    vp_arena     *arena = vp_arena_new();
    vp_lower_opts opts  = {
         .symbols = {2, 64, 1, 1}, .recompute = set, .span_idx = {1, 2}, .angles_idx = 3};
    vp_lowered  l = {0};
    vp_strategy s = {.recompute = set, .segment = 1};

    OK(vp_lower(arena, &model->graph, 1, &vp_semantics_vplan_fp32, &opts, &l, err));
    s.kept_bytes   = l.program.kept_bytes;
    s.height_bytes = vp_max_i64(l.height_bytes[VP_PASS_FORWARD], l.height_bytes[VP_PASS_BACKWARD]);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < l.program.n_steps[pass]; i++)
            s.ns += llround(vp_cost_step(cost, &model->graph, &l.program.steps[pass][i]) * 1e9);
    vp_arena_free(arena);
    return s;
}

static bool is_no_worse(const vp_strategy *a, const vp_strategy *b)
{
    return a->kept_bytes <= b->kept_bytes &&
           a->height_bytes - a->kept_bytes <= b->height_bytes - b->kept_bytes && a->ns <= b->ns;
}

/* Every one of the 2^n_ops sets, lowered: something in the library is as good, and nothing in it
 * is beaten. */
static void check_library(const vp_model *model, int n_ops, int64_t n_lowered)
{
    vp_device         device   = {.name               = "cpu",
                                  .is_cpu             = true,
                                  .fp32_flop_per_s    = 1e11,
                                  .memory_bytes_per_s = 1e10,
                                  .usable_bytes       = INT64_MAX};
    vp_cost           cost     = {.device = &device};
    vp_arena         *arena    = vp_arena_new();
    vp_outline_store *outlines = vp_outline_store_new(model);
    vp_library        lib;

    OK(vp_library_make(arena, outlines, 64, (vp_micro_steps){2, 1, 0}, &vp_semantics_vplan_fp32,
                       &cost, &lib, err));
    assert_int_equal(lib.n_lowered, n_lowered);
    for (uint64_t set = 0; set < UINT64_C(1) << n_ops; set++) {
        vp_strategy s     = measured(model, set, &cost);
        bool        found = false;
        for (int64_t i = 0; i < lib.n; i++) {
            found |= is_no_worse(&lib.strategies[i], &s);
            if (is_no_worse(&s, &lib.strategies[i]) && !is_no_worse(&lib.strategies[i], &s))
                fail_msg("set %llx beats set %llx of the library", (unsigned long long)set,
                         (unsigned long long)lib.strategies[i].recompute);
        }
        if (!found)
            fail_msg("set %llx is in no way matched by the library", (unsigned long long)set);
    }
    vp_outline_store_free(outlines);
    vp_arena_free(arena);
}

/* GPT-2 has 8 ops to choose from and Llama 13; a projection and the sum behind it, a projection
 * and its rotation, are one choice. */
static void the_library_is_the_whole_front(void **state)
{
    vp_model *gpt2  = tiny_model(&(tiny){.n_embd = 64, .n_layer = 2, .n_head = 4, .vocab = 50}, 0);
    vp_model *llama = model_of(
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"intermediate_size\": 192, \"vocab_size\": 50}",
        0);

    (void)state;
    check_library(gpt2, 8, 128);
    check_library(llama, 13, 1024);
    vp_model_free(gpt2);
    vp_model_free(llama);
}

/* The fold over instances, the simulator over every step, and the packed offsets say the same
 * height. */
static void fold_simulator_and_offsets_agree_on_random_chains(void **state)
{
    rng r = {1000};

    (void)state;
    for (int turn = 0; turn < 1000; turn++) {
        int64_t     heads = 1 + pick(&r, 3);
        vp_model   *model = tiny_model(&(tiny){.n_embd  = heads * (4 + pick(&r, 13)),
                                               .n_layer = 1 + pick(&r, 6),
                                               .n_head  = heads,
                                               .vocab   = 20 + pick(&r, 99)},
                                       0);
        vp_scenario s     = {.recipe       = vp_recipe_default(),
                             .seq          = 5 + pick(&r, 60),
                             .global_batch = 1,
                             .micro_batch  = 1};
        vp_plan    *plan  = random_plan(&r, model, s);
        vp_bucket  *b     = &plan->buckets[0];
        vp_arena   *arena = vp_arena_new();
        int64_t     base = b->instances[0].base_bytes[VP_MEMORY_DEVICE], peak = base;
        vp_itemised it;
        for (int64_t i = 0; i < b->n_instances; i++) {
            const vp_program *p = &b->programs[b->instances[i].program_idx];
            for (int64_t k = 0; k < p->n_buffers; k++)
                peak = vp_max_i64(peak, base + p->buffers[k].offset_bytes + p->buffers[k].bytes);
            base += p->kept_bytes;
        }
        OK(vp_itemise(arena, plan, b, &it, err));
        if (peak != plan->peak_bytes || it.peak_bytes != plan->peak_bytes)
            fail_msg("chain %d: fold %lld, simulated %lld, planned %lld", turn, (long long)peak,
                     (long long)it.peak_bytes, (long long)plan->peak_bytes);
        vp_arena_free(arena);
        vp_plan_free(plan);
        vp_model_free(model);
    }
}

static int64_t chunks_of(const vp_scenario *s)
{
    return s->loss_chunk ? vp_ceil_div(s->micro_batch * s->seq, s->loss_chunk) : 1;
}

/* 512 x 256 tokens = 1,024 samples of 128. A plan with that many chunks leaves half of the file
 * it may have to its blocks. */
static void the_loss_stands_in_512_chunks_at_most(void **state)
{
    vp_model *model = tiny_model(&(tiny){.n_embd = 16, .n_layer = 2, .n_head = 2, .vocab = 300}, 0);
    vp_plan_request request = request_for(model, 128, 1024);
    vp_plan_answer  a;
    vp_plan        *plan;
    vp_text         text = {0};
    vp_refusal      refused;

    (void)state;
    request.micro_batch = 1024;
    request.loss_chunk  = 256;
    OK(vp_planner_run(&request, &a, err));
    assert_int_equal(chunks_of(&a.candidates[0].scenario), 512);
    OK(vp_planner_make(&request, &a, &a.candidates[0], &plan, err));
    json_t *j = vp_plan_to_json(plan);
    assert_true(vp_json_dump(j, &text) && (int64_t)text.n_bytes < VP_JSON_MAX_BYTES / 2);
    vp_text_release(&text);
    json_decref(j);
    vp_plan_free(plan);
    vp_plan_answer_release(&a);

    request.global_batch = request.micro_batch = 1025; /* 512.5 chunks */
    refused                                    = vp_request_refusal(&request);
    assert_int_equal(refused.reason, VP_REFUSED_LOSS_CHUNK);
    assert_int_equal(refused.n_chunks, 513);
    assert_int_equal(refused.limit, 512); /* tokens: 257 chunks */

    /* what is free stays within: 4,100 samples are 2,050 tiles, in chunks of 4 they were 513: 410 of
     * 5 */
    request.global_batch = request.micro_batch = 4100;
    for (int pinned = 0; pinned < 2; pinned++) {
        int64_t most       = 0;
        request.loss_chunk = pinned ? VP_CHUNK_CHUNKED : VP_CHUNK_ANY;
        OK(vp_planner_run(&request, &a, err));
        for (int64_t s = 0; s < a.n_scenarios; s++)
            most = vp_max_i64(most, chunks_of(&a.scenarios[s]->scenario));
        assert_int_equal(most, 410);
        vp_plan_answer_release(&a);
    }
    /* a pinned chunk leaves out the micro-batches that it would cut too often: 2,050 and 4,100 */
    request.micro_batch = 0;
    request.loss_chunk  = 256;
    OK(vp_planner_run(&request, &a, err));
    for (int64_t s = 0; s < a.n_scenarios; s++)
        assert_true(a.scenarios[s]->scenario.micro_batch <= 1025 &&
                    chunks_of(&a.scenarios[s]->scenario) <= 512);
    vp_plan_answer_release(&a);
    vp_model_free(model);
}

/* Each call of a plan, with every window that its instances have, at a time drawn for it: 1 to 2
 * ms, so that whole nanoseconds do not matter. */
static vp_profile *drawn_profile(rng *r, const vp_plan *plan)
{
    vp_profile      *profile = vp_profile_new();
    const vp_bucket *b       = &plan->buckets[0];

    for (int64_t i = 0; i < b->n_instances; i++)
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            for (int64_t k = 0; k < b->programs[b->instances[i].program_idx].n_steps[pass]; k++) {
                const vp_step *s = &b->programs[b->instances[i].program_idx].steps[pass][k];
                if (vp_kernel_info_of(s->kernel)->kind == VP_KERNEL_TRANSFER ||
                    (s->stream == VP_STREAM_HOST && plan->compute_capability > 0))
                    continue; /* by rates of their own */
                vp_profile_row row = {.kernel  = s->kernel,
                                      .dtype   = s->dtype,
                                      .seconds = 1e-3 + 1e-6 * (double)pick(r, 1000)};
                row.lacks          = vp_step_lacks(s);
                memcpy(row.ints, s->ints, sizeof row.ints);
                if (s->window_of_instance)
                    row.ints[vp_kernel_int(s->kernel, "window")] = b->instances[i].window;
                assert_true(vp_profile_add(profile, &row));
            }
    return profile;
}

static bool copies(const vp_plan *plan)
{
    const vp_bucket *b = &plan->buckets[0];

    for (int64_t i = 0; i < b->n_programs; i++)
        for (int64_t k = 0; k < b->programs[i].n_steps[VP_PASS_UPDATE]; k++)
            if (b->programs[i].steps[VP_PASS_UPDATE][k].kernel == VP_K_COPY_START)
                return true;
    return false;
}

/* A link to the host, and a host's memory, of 1 to 900 MB/s. */
static void measure_beside(rng *r, const char *device, vp_profile *out)
{
    double *const rates[] = {&out->link.to_device_bytes_per_s, &out->link.from_device_bytes_per_s,
                             &out->link.together_bytes_per_s, &out->host_update_bytes_per_s};

    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        *rates[i] = 1e6 * (double)(1 + pick(r, 900));
    out->link.kernels_lost_s_per_byte = 1e-9 * (double)pick(r, 3);
    snprintf(out->link.device, sizeof out->link.device, "%s", device);
}

/* The plan's own check adds up every step of the unrolled program; the planner prices the same
 * configuration by the same profile, on the CPU and on a card, with states in host memory and without. */
static void a_plan_priced_anew_is_the_plan_made_with_that_profile(void **state)
{
    rng r         = {77};
    int n_copying = 0;

    (void)state;
    for (int turn = 0; turn < 130; turn++) {
        char        text[1024];
        vp_model   *model = model_of(random_config(&r, turn % N_FAMILIES, text, sizeof text), 0.0);
        vp_scenario s     = {
                .recipe = vp_recipe_default(), .seq = 40, .micro_batch = 1 + pick(&r, 2), .n_runs = 1};
        vp_plan   *plan, *again;
        vp_err     refused  = {0};
        const bool offloads = turn % 3 == 0;
        vp_device  device   = cpu;
        vp_cost    cost     = {.device = &device};
        s.global_batch      = s.micro_batch * (1 + pick(&r, 5));
        s.recipe.precision  = (vp_precision)pick(&r, 3);
        s.runs[0] =
            (vp_block_run){vp_recompute_set(model, VP_RECOMPUTE_FULL) & (uint64_t)pick(&r, 1 << 20),
                           model->graph.n_instances - 2, 1, 0};
        if (turn % 2)
            OK(vp_device_open("l4", &device, err));
        if (offloads) {
            s.offload.states    = 1 + pick(&r, model->graph.n_instances);
            s.offload.host_step = pick(&r, 2);
        }
        OK(vp_assemble(model, &s, &cost, &plan, err));
        vp_profile *profile = drawn_profile(&r, plan);
        if (offloads && copies(plan)) {
            OK(vp_plan_reprice(plan, "drawn", profile, err)); /* which knows no link */
            assert_string_equal(plan->time_class, "assumed");
            n_copying++;
            measure_beside(&r, device.name, profile);
        }
        cost.profile = profile;
        vp_device_calibrate(&device, profile);
        OK(vp_assemble(model, &s, &cost, &again, err));
        OK(vp_plan_reprice(plan, "drawn", profile, err));
        OK(vp_plan_check(plan, "repriced", err));
        assert_string_equal(plan->time_class, "measured");
        /* The mean over windows is in whole nanoseconds there. */
        if (fabs(plan->step_time_s / again->step_time_s - 1) >
            (strstr(text, "window") ? 1e-6 : 1e-9))
            fail_msg("%s: %.9g s repriced, %.9g s planned", text, plan->step_time_s,
                     again->step_time_s);

        profile->n_rows--; /* the last call: scaled from another of its kernel, or there is none */
        vp_status st = vp_plan_reprice(plan, "drawn", profile, &refused);
        assert_true(st == VP_OK ? strcmp(plan->time_class, "assumed") == 0
                                : st == VP_ERR_INPUT && strcmp(refused.file, "drawn") == 0);
        vp_profile_free(profile);
        vp_plan_free(plan);
        vp_plan_free(again);
        vp_model_free(model);
    }
    assert_true(n_copying >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_the_best_of_all_that_can_be_enumerated),
        cmocka_unit_test(no_preset_is_faster_and_every_plan_keeps_its_budget),
        cmocka_unit_test(along_a_frontier_more_memory_is_never_slower),
        cmocka_unit_test(an_infeasible_request_is_told_what_would_fit),
        cmocka_unit_test(a_change_fits_what_is_free_in_its_recipe),
        cmocka_unit_test(what_trains_whole_in_no_recipe_is_offered_adapters),
        cmocka_unit_test(what_would_fit_is_what_a_search_of_its_own_finds),
        cmocka_unit_test(a_free_recipe_is_the_fastest_of_those_that_converge_alike),
        cmocka_unit_test(what_is_free_is_what_converges_alike),
        cmocka_unit_test(the_lean_plan_needs_the_least_within_its_share),
        cmocka_unit_test(the_library_is_the_whole_front),
        cmocka_unit_test(fold_simulator_and_offsets_agree_on_random_chains),
        cmocka_unit_test(the_loss_stands_in_512_chunks_at_most),
        cmocka_unit_test(a_plan_priced_anew_is_the_plan_made_with_that_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
