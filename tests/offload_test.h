/* tests/offload_test.h: plans that use host memory, against the plan that does not.
 *     vp_scenario s = scenario_of(&r, i);
 *     trained want = train(plain, 3, 1, false);
 *     trains_like(plan, &want, "what it is");       same bits, however copies are delayed
 * Whatever fails stops the test. */
#ifndef VP_TESTS_OFFLOAD_TEST_H
#define VP_TESTS_OFFLOAD_TEST_H

#include "plan_test.h"

#include "kernels/cpu/cpu_internal.h"
#include "plan/simulate.h"
#include "planner/planner.h"
#include "report/timeline.h"

#include <math.h>

static inline void same_bits(const trained *a, const trained *b, const char *what)
{
    assert_int_equal(a->n_params, b->n_params);
    if (memcmp(a->params, b->params, (size_t)a->n_params * sizeof *a->params) != 0 ||
        memcmp(&a->last.loss, &b->last.loss, sizeof a->last.loss) != 0)
        fail_msg("%s: other bits", what);
}

static inline vp_scenario scenario_of(rng *r, int i)
{
    vp_scenario s = {
        .recipe = vp_recipe_default(), .seq = 24, .global_batch = 4, .micro_batch = 1 + pick(r, 2)};

    s.recipe.precision  = (vp_precision)(i % n_precisions());
    s.recipe.loss_scale = 16; /* no step is skipped, which would touch and change nothing */
    if (vp_precision_takes(s.recipe.precision, VP_GRADIENTS_BF16))
        s.recipe.gradients = (vp_gradients)(i / 3 % VP_N_GRADIENTS);
    vp_recipe_set_optimizer(&s.recipe, (vp_optimizer)(i / 2 % VP_N_OPTIMIZERS));
    return s;
}

/* Trained with copies as they come, and in three other orders; once in two arenas of different poison,
 * where every byte of the device's that a buffer covers must have been written. */
static inline void trains_like(const vp_plan *plan, const trained *want, const char *what)
{
    for (int seed = 0; seed < 4; seed++) {
        vp_cpu_streams_stress((uint64_t)seed); /* the environment is read once */
        trained got = train(plan, 3, 1, seed == 1);
        same_bits(want, &got, what);
        assert_int_equal(got.memory.of[VP_MEMORY_HOST_PINNED].executed_bytes +
                             got.memory.of[VP_MEMORY_HOST].executed_bytes,
                         plan->host_peak_bytes);
        assert_int_equal(got.memory.of[VP_MEMORY_HOST].executed_bytes,
                         vp_plan_memory_bytes(plan, VP_MEMORY_HOST));
        assert_int_equal(got.memory.of[VP_MEMORY_DEVICE].executed_bytes, plan->peak_bytes);
        if (seed == 1 && (got.memory.of[VP_MEMORY_DEVICE].touched_bytes !=
                              plan->peak_bytes - got.memory.padding_bytes ||
                          got.memory.never_written_bytes != 0))
            fail_msg("%s: touched %lld of %lld bytes, %lld are padding, %lld never written", what,
                     (long long)got.memory.of[VP_MEMORY_DEVICE].touched_bytes,
                     (long long)plan->peak_bytes, (long long)got.memory.padding_bytes,
                     (long long)got.memory.never_written_bytes);
        free(got.params);
    }
    vp_cpu_streams_stress(0);
}

/* Its file says all of it. */
static inline void survives_its_file(const vp_plan *plan)
{
    json_t      *json = vp_plan_to_json(plan), *other;
    char        *text = json ? json_dumps(json, 0) : NULL;
    vp_json_doc *doc;
    vp_plan     *again;

    assert_non_null(text);
    OK(vp_json_parse("plan", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    OK(vp_plan_from_json(&root, &again, err));
    same_steps(plan, again);
    other = vp_plan_to_json(again);
    assert_true(json_equal(json, other));
    vp_plan_free(again);
    vp_json_doc_free(doc);
    json_decref(json);
    json_decref(other);
    free(text);
}

/* What is drawn is what is simulated: over all columns each stream works as long, and kernels wait as
 * long; and no more is alive than the arena holds. */
static inline void timeline_adds_up(const vp_plan *plan)
{
    enum { N = 64 };
    vp_arena   *arena = vp_arena_new();
    vp_timeline t;
    double      waited = 0;

    OK(vp_timeline_make(arena, plan, N, &t, err));
    assert_true(plan->buckets[0].n_micro_steps <= VP_SIMULATED_MICRO_STEPS);
    for (int s = 0; s < VP_N_STREAMS; s++) {
        double busy = 0;
        for (int c = 0; c < N; c++)
            busy += t.busy[s][c] * t.end_s / N;
        assert_true(fabs(busy - t.step.busy_s[s]) <= 1e-6 * t.end_s);
    }
    for (int c = 0; c < N; c++)
        waited += t.waited[c] * t.end_s / N;
    assert_true(fabs(waited - t.step.waited_s) <= 1e-6 * t.end_s);
    assert_true(t.most_bytes > 0 && t.most_bytes <= plan->peak_bytes);
    vp_arena_free(arena);
}

static inline vp_plan_request request_for(const vp_model *model, const vp_device *device)
{
    return (vp_plan_request){.model        = model,
                             .device       = device,
                             .recipe       = vp_recipe_default(),
                             .seq          = 32,
                             .global_batch = 4,
                             .budget_bytes = INT64_MAX / 4,
                             .recompute    = VP_RECOMPUTE_ANY,
                             .loss_chunk   = VP_CHUNK_ANY,
                             .offload      = VP_OFFLOAD_ANY,
                             .gap          = 1e-5,
                             .no_proof     = true};
}

#endif
