/* The planner's space, asked in other ways: no pin gives more than freedom, and the figures that
 * the search works with are those of lowered programs. */
#include "plan_test.h"
#include "planner/lowering/lower.h"
#include "planner/outline.h"

#include <math.h>

static const vp_device cpu = {.name               = "cpu",
                              .is_cpu             = true,
                              .fp32_flop_per_s    = 1e11,
                              .memory_bytes_per_s = 1e10,
                              .usable_bytes       = INT64_MAX};
/* kernels with workspaces, and a roofline whose two sides are near */
static const vp_device card = {.name               = "card",
                               .compute_capability = 90,
                               .bf16               = true,
                               .fp32_flop_per_s    = 2e11,
                               .bf16_flop_per_s    = 4e12,
                               .memory_bytes_per_s = 1e11,
                               .outside_bytes      = 1 << 20,
                               .usable_bytes       = INT64_MAX};

static vp_plan_request request_for(const vp_model *model, const vp_device *device, int64_t seq,
                                   int64_t batch)
{
    return (vp_plan_request){.model        = model,
                             .device       = device,
                             .recipe       = vp_recipe_default(),
                             .seq          = seq,
                             .global_batch = batch,
                             .budget_bytes = INT64_MAX / 4,
                             .recompute    = VP_RECOMPUTE_ANY,
                             .loss_chunk   = VP_CHUNK_ANY,
                             .gap          = 1e-5,
                             .no_proof     = true};
}

/* gpt2 has few sets of ops to choose from, a llama 1,024 */
static vp_model *random_model(rng *r, bool llama)
{
    char text[400];
    int  heads = 1 + (int)pick(r, 4);

    if (!llama)
        return tiny_model(&(tiny){.n_embd  = 16 * heads,
                                  .n_layer = 2 + pick(r, 7),
                                  .n_head  = heads,
                                  .vocab   = 50 + pick(r, 400)},
                          0);
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"llama\", \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
        "\"num_key_value_heads\": 1, \"intermediate_size\": %d, \"vocab_size\": 90, \"max_position_embeddings\": 512}",
        32 * heads, 2 + (int)pick(r, 4), heads, 64 + 32 * (int)pick(r, 5));
    return model_of(text, 0);
}

/* ---- pins ---- */

static double best_s(const vp_plan_request *r, int64_t *least_bytes)
{
    vp_plan_answer a;
    double         s;

    OK(vp_planner_run(r, &a, err));
    s            = a.n_candidates ? a.candidates[0].figures.step_time_s : INFINITY;
    *least_bytes = a.least_budget_bytes;
    vp_plan_answer_release(&a);
    return s;
}

/* Pin k of a request; false: there is none. The last eight are micro-batches. */
static bool pin(vp_plan_request *r, int k)
{
    if (k < VP_N_RECOMPUTES)
        r->recompute = (vp_recompute)k;
    else if (k == VP_N_RECOMPUTES)
        r->loss_chunk = 0;
    else if (k == VP_N_RECOMPUTES + 1)
        r->loss_chunk = 256;
    else
        r->micro_batch = k - VP_N_RECOMPUTES - 1;
    return !r->micro_batch ||
           (r->micro_batch <= r->global_batch && r->global_batch % r->micro_batch == 0);
}

enum { N_PINS = VP_N_RECOMPUTES + 2 + 8 };

static void no_pin_beats_a_free_plan(void **state)
{
    rng r        = {20261};
    int n_pinned = 0;

    (void)state;
    for (int turn = 0; turn < 200; turn++) {
        bool            llama = turn % 20 == 19;
        vp_model       *model = random_model(&r, llama);
        vp_plan_request request =
            request_for(model, turn % 2 ? &card : &cpu, 16 + pick(&r, 200), 1 + pick(&r, 8));
        vp_recipe_set_optimizer(&request.recipe, (vp_optimizer)pick(&r, VP_N_OPTIMIZERS));
        request.recipe.precision = (vp_precision)pick(&r, n_precisions());
        request.attention        = (vp_attention_kind)pick(&r, VP_N_ATTENTIONS + 1);
        int64_t least, most, least_free;
        best_s(&request, &least);
        most                 = least + least / (1 + pick(&r, 8));
        request.budget_bytes = least + pick(&r, most - least + 1);
        double free_s        = best_s(&request, &least_free);
        assert_true(isfinite(free_s) && least_free == least);
        for (int k = 0; k < N_PINS; k++) {
            vp_plan_request pinned = request;
            int64_t         least_pinned;
            /* micro-batches matter most; of the others some */
            if (!pin(&pinned, k) || (pick(&r, 4) && (llama || k < VP_N_RECOMPUTES + 2)))
                continue;
            double pinned_s = best_s(&pinned, &least_pinned);
            n_pinned++;
            if (pinned_s < free_s || (least_pinned && least_pinned < least))
                fail_msg("turn %d, pin %d: %.9f s with it, %.9f s without; least %lld and %lld",
                         turn, k, pinned_s, free_s, (long long)least_pinned, (long long)least);
        }
        vp_model_free(model);
    }
    assert_true(n_pinned > 400);
}

/* ---- the least budget ---- */

/* The least is that of every plan that some budget gets, presets and segments that leave a rest among
 * them: 7 blocks in segments of 3 leave 1, and where the head is the highest only what is kept counts. A
 * byte less, and nothing fits. */
static void no_plan_needs_less_than_the_least_budget(void **state)
{
    int n_rests = 0;

    (void)state;
    for (int layers = 2; layers <= 13; layers++) {
        vp_model *model =
            tiny_model(&(tiny){.n_embd = 64, .n_layer = layers, .n_head = 4, .vocab = 4000}, 0);
        vp_plan_request request = request_for(model, &cpu, 256, 4);
        vp_plan_answer  a;
        double          step_s;
        OK(vp_planner_run(&request, &a, err));
        for (int64_t i = 0; i < a.n_presets; i++)
            assert_true(a.presets[i].candidate.figures.device_bytes >= a.least_budget_bytes);
        for (int64_t i = 0; i < a.n_candidates; i++)
            assert_true(a.candidates[i].figures.device_bytes >= a.least_budget_bytes);
        n_rests += layers % a.least.scenario.runs[0].segment != 0;
        OK(vp_planner_at_budget(&request, &a, a.least_budget_bytes, &step_s, NULL, err));
        assert_true(step_s > 0);
        request.budget_bytes = a.least_budget_bytes - 1;
        vp_plan_answer_release(&a);
        OK(vp_planner_run(&request, &a, err));
        assert_int_equal(a.n_candidates, 0);
        assert_int_equal(a.proof, VP_PROOF_INFEASIBLE);
        vp_plan_answer_release(&a);
        vp_model_free(model);
    }
    assert_true(n_rests > 3);
}

/* Where nothing fits, and where only the least is asked for, larger micro-batches are not looked at: the
 * least is that of the whole space all the same. */
static void what_is_left_out_never_needs_the_least(void **state)
{
    rng r     = {7321};
    int n_cut = 0;

    (void)state;
    for (int turn = 0; turn < 40; turn++) {
        vp_model       *model = random_model(&r, turn % 10 == 9);
        vp_device       own   = card;
        vp_plan_request request;
        vp_plan_answer  a;
        int64_t         all, least, none;
        own.host_link_bytes_per_s = 1e10;
        request = request_for(model, turn % 3 ? &own : &cpu, 1 + pick(&r, 120), 1 + pick(&r, 24));
        request.recipe.precision = (vp_precision)pick(&r, VP_N_PRECISIONS);
        request.any_optimizer    = pick(&r, 4) == 0;
        request.any_precision    = pick(&r, 4) == 0;
        request.attention        = (vp_attention_kind)pick(&r, VP_N_ATTENTIONS + 1);
        request.host_bytes       = turn % 6 == 1 ? 1 << pick(&r, 28) : 0;
        request.offload          = VP_OFFLOAD_ANY;
        best_s(&request, &all);
        OK(vp_planner_least(&request, NULL, &least, err));
        request.budget_bytes = 1;
        best_s(&request, &none);
        OK(vp_planner_run(&request, &a, err));
        n_cut += a.cut;
        vp_plan_answer_release(&a);
        if (least != all || none != all)
            fail_msg("turn %d: %lld, %lld alone, %lld where nothing fits", turn, (long long)all,
                     (long long)least, (long long)none);
        vp_model_free(model);
    }
    if (n_cut <= 12)
        fail_msg("%d of 40 cut", n_cut);
}

/* All divisors of 5,040, which has 60; of 720,720, which has 240, those that are 1/8 apart. */
static void very_many_divisors_are_thinned_out(void **state)
{
    static const int64_t batches[] = {5040, 7560, 720720, 1000000};
    vp_model *model = tiny_model(&(tiny){.n_embd = 16, .n_layer = 2, .n_head = 1, .vocab = 50}, 0);

    (void)state;
    for (size_t k = 0; k < sizeof batches / sizeof *batches; k++) {
        vp_plan_request request = request_for(model, &cpu, 16, batches[k]);
        vp_arena       *arena   = vp_arena_new();
        bool            many;
        int64_t n, *at = vp_request_micro_batches(&request, arena, &n, &many), n_divisors = 0;
        assert_true(at && at[0] == 1 && at[n - 1] == batches[k]);
        for (int64_t i = 0; i < n; i++) {
            n_divisors += batches[k] % at[i] == 0;
            assert_true(i == 0 || at[i] > at[i - 1]);
            /* near each other */
            assert_true(i == 0 || 4 * at[i] <= 5 * at[i - 1] + 4 || at[i] * 16 > batches[k]);
        }
        if (batches[k] != 720720)
            for (int64_t x = 1; x <= batches[k]; x++)
                n_divisors -= batches[k] % x == 0;
        if (batches[k] == 720720 ? n_divisors < 60 || n > 260 : n_divisors != 0)
            fail_msg("%lld: %lld, divisors %lld", (long long)batches[k], (long long)n,
                     (long long)n_divisors);
        vp_arena_free(arena);
    }
    vp_model_free(model);
}

/* 720,720, with all recipes free beside host memory: few micro-batches, the first and the last among them; and those next
 * to each are all that one recipe alone has between its neighbours. */
static void many_micro_batches_are_fewer_where_much_is_free(void **state)
{
    vp_model *model = tiny_model(&(tiny){.n_embd = 16, .n_layer = 2, .n_head = 1, .vocab = 50}, 0);
    vp_plan_request request = request_for(model, &cpu, 16, 720720), free_ = request;
    vp_arena       *arena = vp_arena_new();
    int64_t         n_all, n, n_near, found = 0;
    bool            many;

    (void)state;
    free_.any_precision = free_.any_optimizer = true;
    free_.attention                           = VP_ATTENTION_ANY;
    free_.host_bytes                          = VP_GIB;
    int64_t *all = vp_request_micro_batches(&request, arena, &n_all, &many);
    assert_true(all && many);
    int64_t *at = vp_request_micro_batches(&free_, arena, &n, &many);
    assert_true(at && many && at[0] == 1 && at[n - 1] == 720720 && n < 20);
    for (int64_t i = 0; i < n; i++) {
        int64_t *near = vp_request_micro_batches_near(&free_, arena, at[i], &n_near);
        assert_non_null(near);
        for (int64_t k = 0; k < n_near; k++)
            assert_true((i == 0 || near[k] > at[i - 1]) && (i == n - 1 || near[k] < at[i + 1]) &&
                        near[k] != at[i]);
        found += n_near;
    }
    /* each is next to two that are listed */
    assert_int_equal(found, 2 * (n_all - n));
    vp_request_micro_batches_near(&request, arena, at[1], &n_near);
    assert_int_equal(n_near, 0);
    vp_arena_free(arena);
    vp_model_free(model);
}

/* ---- figures ---- */

static vp_strategy lowered(const vp_model *model, uint64_t set, int64_t seq, int64_t micro,
                           const vp_semantics *semantics, vp_cost *cost, int64_t *least_bytes)
{
    vp_strategy s = {.recompute = set, .segment = 1};

    for (int turn = 0; turn < 2; turn++) {
        vp_arena     *arena = vp_arena_new();
        vp_lower_opts opts  = {.symbols            = {micro, seq, 1, 1},
                               .recompute          = set,
                               .compute_capability = cost->device->compute_capability,
                               .heights    = turn == 0 ? VP_HEIGHTS_LEAST : VP_HEIGHTS_PACKED,
                               .span_idx   = {1, 2},
                               .angles_idx = 3};
        vp_lowered    l     = {0};
        OK(vp_lower(arena, &model->graph, 1, semantics, &opts, &l, err));
        int64_t height =
            vp_max_i64(l.height_bytes[VP_PASS_FORWARD], l.height_bytes[VP_PASS_BACKWARD]);
        if (turn == 0)
            *least_bytes = height;
        s.kept_bytes   = l.program.kept_bytes;
        s.height_bytes = height;
        s.ns           = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t i = 0; i < l.program.n_steps[pass]; i++)
                if (!l.program.steps[pass][i].first_only) /* these are outside the blocks' time */
                    s.ns +=
                        llround(vp_cost_step(cost, &model->graph, &l.program.steps[pass][i]) * 1e9);
        vp_arena_free(arena);
    }
    return s;
}

/* Segments of an outline, as lowered there. */
static void check_segments(const vp_outlines *o, const vp_model *model, int64_t seq, int64_t micro,
                           const vp_semantics *semantics, vp_cost *cost)
{
    for (int64_t m = 2; m <= vp_longest_segment(model); m++) {
        vp_library  is;
        vp_strategy said;
        vp_arena   *arena = vp_arena_new();
        OK(vp_outline_segment(o, m, &said, err));
        OK(vp_library_of_segment(arena, model, seq, (vp_micro_steps){micro, 1, 0}, semantics, cost,
                                 m, &is, err));
        assert_int_equal(is.n, 1);
        if (memcmp(&said, &is.strategies[0], sizeof said) != 0 ||
            vp_outline_segment_ns(o, m) != said.ns)
            fail_msg("%lld blocks at micro-batch %lld", (long long)m, (long long)micro);
        vp_arena_free(arena);
    }
}

/* Of every family's block, some sets at some sequences, micro-batches and devices: bytes and nanoseconds
 * as lowered there, no bound above what lowering finds. */
static void outlines_say_what_lowering_says(void **state)
{
    rng       r       = {4711};
    const int many    = 40;
    int       n_alike = 0, n = 0, n_met = 0, n_known = 0;

    (void)state;
    for (int turn = 0; turn < 2 * N_FAMILIES; turn++) {
        char      text[1024];
        vp_model *model  = model_of(random_config(&r, turn % N_FAMILIES, text, sizeof text), 0);
        vp_cost   cost   = {.device = turn < N_FAMILIES ? &cpu : &card};
        vp_recipe recipe = {.precision = (vp_precision)(turn / N_FAMILIES)};
        vp_semantics const *semantics =
            vp_semantics_of(&recipe, (vp_attention_kind)pick(&r, VP_N_ATTENTIONS));
        vp_device    slower = *cost.device;
        vp_cost      other  = {.device = &slower};
        int64_t      seq    = 16 + pick(&r, 100);
        vp_outlines *o;
        OK(vp_outlines_make(model, seq, 1 + pick(&r, 2), semantics, &cost, &o, err));
        slower.memory_bytes_per_s /= 3;
        for (int k = 0; k < 4; k++) {
            /* of multiples of 64 samples every buffer is a multiple of VP_ALIGN_BYTES */
            int64_t  micro  = turn % 2 ? 64 * (1 + pick(&r, 3)) : 1 + pick(&r, 40);
            vp_cost *priced = k < 3 ? &cost : &other;
            bool     alike;
            seq = k < 2 ? seq : 16 + pick(&r, 100);
            if (k == 3)
                vp_outlines_forget_costs(o);
            OK(vp_outlines_scale(o, seq, micro, priced, &alike, err));
            n_alike += alike;
            if (!alike) {
                vp_outlines_free(o);
                OK(vp_outlines_make(model, seq, micro, semantics, priced, &o, err));
            }
            for (int i = 0; i < many; i++) {
                /* some again and again */
                int64_t idx = pick(&r, vp_min_i64(turn % 2 ? 30 : INT64_MAX, vp_outlines_count(o))),
                        height, least, whole;
                vp_strategy said;
                vp_outline_estimate(o, idx, 0, &said);
                n_known += vp_outline_known_height(o, idx, 0, &height);
                OK(vp_outline_pack(o, idx, 0, &height, err));
                OK(vp_outline_least_whole(o, idx, 0, &whole, err));
                n++;
                n_met += vp_round_up(whole, VP_ALIGN_BYTES) == vp_round_up(height, VP_ALIGN_BYTES);
                vp_strategy is =
                    lowered(model, said.recompute, seq, micro, semantics, priced, &least);
                if (said.kept_bytes != is.kept_bytes || said.ns != is.ns ||
                    height != is.height_bytes ||
                    said.height_bytes > vp_outline_least_height(o, idx, 0) ||
                    vp_outline_least_height(o, idx, 0) > whole || whole > height || least > height)
                    fail_msg("%s: set %llx at micro-batch %lld", text,
                             (unsigned long long)said.recompute, (long long)micro);
            }
            check_segments(o, model, seq, micro, semantics, priced);
        }
        vp_outlines_free(o);
        vp_model_free(model);
    }
    assert_true(n_alike > 7 * N_FAMILIES);
    assert_true(n_met > n / 10 * 9);
    if (n_known < n / 10)
        fail_msg("%d of %d heights were known", n_known, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_pin_beats_a_free_plan),
        cmocka_unit_test(no_plan_needs_less_than_the_least_budget),
        cmocka_unit_test(what_is_left_out_never_needs_the_least),
        cmocka_unit_test(very_many_divisors_are_thinned_out),
        cmocka_unit_test(many_micro_batches_are_fewer_where_much_is_free),
        cmocka_unit_test(outlines_say_what_lowering_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
