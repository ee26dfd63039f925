/* What PyTorch's optimizers keep, parameter by parameter, by hand. */
#include "tests/base_test.h"

#include "devices/svd_workspace.h"
#include "trainers/torch/optimizer_internal.h"

enum { FP32 = 4 };

/* The first step of one parameter of n elements in fp32, of rows of so many where it is a matrix; of an optimizer that updates in the
 * backward pass that. */
static vp_ledger_phase after_step_on(const vp_symbol_card *card, const char *optimizer, int64_t n,
                                     int64_t width)
{
    vp_ledger_block           gradient = {0};
    vp_ledger                 ledger   = {0};
    vp_caching_allocator_opts options  = {0};
    vp_optimizer_step        *step     = NULL;
    vp_err                    err      = {0};
    vp_trained                trained  = {
                        .bytes = FP32 * n, .element_bytes = FP32, .columns = width, .is_matrix = width > 0};
    vp_ledger_phase phase;

    options.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED;
    CHECK_OK(vp_caching_allocator_new(&options, &ledger.allocator, &err));
    CHECK_OK(vp_optimizer_step_new(optimizer, &trained, 1, &ledger, &step, &err));
    vp_optimizer_step_on(step, card);
    vp_ledger_begin(&ledger, "step");
    CHECK_OK(vp_optimizer_step_begin(step, &err));
    vp_optimizer_backward_begin(step);
    if (vp_optimizer_step_in_backward(optimizer)) {
        CHECK_OK(vp_ledger_alloc(&ledger, VP_OWNER_GRADIENT, trained.bytes, &gradient, &err));
        CHECK_OK(vp_optimizer_backward_update(step, trained.bytes, &gradient, &err));
    }
    CHECK_OK(vp_optimizer_step_play(step, &err));
    vp_ledger_end(&ledger);
    phase = ledger.phases[0];
    vp_optimizer_step_free(step);
    vp_caching_allocator_destroy(ledger.allocator);
    return phase;
}

static vp_ledger_phase after_step(const char *optimizer, int64_t n, int64_t width)
{
    return after_step_on(&(vp_symbol_card){0}, optimizer, n, width);
}

/* Bytes that it leaves allocated. Each request is rounded up to 512 bytes. */
static int64_t left_by(const char *optimizer, int64_t n)
{
    return after_step(optimizer, n, 0).end_bytes;
}

static void states_of_pytorch_are_as_large_as_the_parameter(void **state)
{
    (void)state;
    assert_int_equal(left_by("sgd", 1024), 0);
    assert_int_equal(left_by("sgd_momentum", 1024), 4096);
    assert_int_equal(left_by("adamw_torch", 1024), 2 * 4096);
    assert_int_equal(left_by("adamw_torch_fused", 1024), 2 * 4096 + 512); /* and its counter */
}

/* bitsandbytes: two maps of 1024 bytes; from 4096 elements on a byte of each in both states, and a
 * float for each 256 of them; below two states in fp32. */
static void states_in_8_bits_begin_at_4096_elements(void **state)
{
    (void)state;
    assert_int_equal(left_by("adamw_8bit", 4095), 2 * 1024 + 2 * 16384); /* 16380 */
    assert_int_equal(left_by("adamw_8bit", 4096), 2 * 1024 + 2 * (4096 + 512));
    assert_int_equal(left_by("adamw_8bit", 65536), 2 * 1024 + 2 * (65536 + 4 * 256));
    assert_int_equal(left_by("lion_8bit", 8191), 1024 + 8192 + 512);
}

/* AdEMAMix: two moments and a slow one, three floats; in 8 bits two maps, three bytes, and three floats for each
 * 256 elements. */
static void ademamix_has_three_states(void **state)
{
    (void)state;
    assert_int_equal(left_by("ademamix", 65536), 3 * 4 * 65536);
    assert_int_equal(left_by("ademamix_8bit", 65536), 2 * 1024 + 3 * (65536 + 4 * 256));
    assert_int_equal(left_by("ademamix_8bit", 4095),
                     2 * 1024 + 32768 + 16384); /* 32760 and 16380 */
    assert_int_equal(left_by("paged_ademamix_8bit", 102400), 2 * 1024 + 3584 + 2048);
    assert_int_equal(left_by("rmsprop_bnb_8bit", 65536), 1024 + 65536 + 4 * 256);
}

/* schedulefree's AdamW: two states, and a list of denominators; its SGD: one. StableAdamW: two, and three of a
 * number each. */
static void schedule_free_and_stable_optimizers_step_like_adamw(void **state)
{
    vp_ledger_phase p = after_step("schedule_free_adamw", 1024, 0);

    (void)state;
    assert_int_equal(p.end_bytes, 2 * 4096);
    assert_int_equal(p.allocated_bytes, 3 * 4096);
    assert_int_equal(left_by("schedule_free_sgd", 1024), 4096);
    assert_int_equal(left_by("stable_adamw", 1024), 2 * 4096 + 3 * 512);
}

/* torchao: two states of a byte each, a float for each 256 elements, a map of 256 floats; in the step both are there in fp32, with
 * new scales. No whole blocks: like the parameter. */
static void torchao_has_codes_and_makes_both_states_wide(void **state)
{
    vp_ledger_phase p = after_step("adamw_torch_8bit", 65536, 0);

    (void)state;
    assert_int_equal(p.end_bytes, 2 * (65536 + 4 * 256 + 1024));
    assert_int_equal(p.allocated_bytes, p.end_bytes + 2 * (4 * 65536 + 4 * 256));
    assert_int_equal(left_by("adamw_torch_8bit", 65537), 2 * 262656); /* 262148 */
    assert_int_equal(left_by("adamw_torch_8bit", 2048), 2 * 8192);
}

/* In 4 bits: half a byte each, a map of 16 floats. Both states in fp32, and as numbers of 64 bits before two are a byte; the scales come of
 * twice as many. */
static void torchao_makes_wide_codes_of_4_bits(void **state)
{
    vp_ledger_phase p = after_step("adamw_torch_4bit", 65536, 0);

    (void)state;
    assert_int_equal(p.end_bytes, 2 * (65536 / 2 + 4 * 256 + 512)); /* 64 */
    assert_int_equal(p.allocated_bytes, p.end_bytes + 2 * (4 * 65536 + 8 * 65536 + 4 * 256));
    assert_int_equal(left_by("adamw_torch_4bit", 65537), 2 * 262656);
    assert_int_equal(left_by("adamw_torch_4bit", 2048), 2 * 8192);
}

/* GaLore's Adafactor of 512 x 768: what is left of its rows, 128 x 768, is factored; the projection is a view of all 512 x 512 vectors.
 * What torch made of galore_torch 1.0 with 64 of 512 x 768 was 4 * (64 + 768) of factors, and such a view. */
static void galores_adafactor_factors_what_is_projected(void **state)
{
    vp_ledger_phase p = after_step("galore_adafactor:targets=all-linear", 512 * 768, 768);

    (void)state;
    assert_int_equal(p.end_bytes, 4 * 512 * 512 + 4 * 128 + 4 * 768 + 512);
    p = after_step("galore_adafactor:targets=all-linear,rank=64", 1024 * 512, 512);
    assert_int_equal(p.end_bytes, 4 * 512 * 512 + 4 * 1024 + 512 + 512); /* 4 * 64 */
}

/* galore_torch 1.0 over bitsandbytes 0.50, 1024 x 512 in bf16, rank 64: weight and gradient are others behind the step, the gradient 1024 x 64. Of
 * that there are codes, a scale for 256 and a number; the maps; the projection, 64 x 512. */
static void galore_in_8_bits_moves_weight_and_gradient(void **state)
{
    enum { N = 1024 * 512, LOW = 1024 * 64 };
    vp_ledger                 ledger  = {0};
    vp_caching_allocator_opts options = {0};
    vp_optimizer_step        *step    = NULL;
    vp_err                    err     = {0};
    vp_trained                trained = {2 * N, 2, 512, true, false};
    vp_ledger_block           weight = {0}, gradient = {0};
    vp_ledger_block          *weights[] = {&weight}, *gradients[] = {&gradient};

    (void)state;
    options.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED;
    CHECK_OK(vp_caching_allocator_new(&options, &ledger.allocator, &err));
    CHECK_OK(vp_optimizer_step_new("galore_adamw_8bit:rank=64,targets=all-linear", &trained, 1,
                                   &ledger, &step, &err));
    vp_optimizer_step_at(step, weights, gradients);
    vp_ledger_begin(&ledger, "step");
    CHECK_OK(vp_ledger_alloc(&ledger, VP_OWNER_PARAMETER, 2 * N, &weight, &err));
    CHECK_OK(vp_ledger_alloc(&ledger, VP_OWNER_GRADIENT, 2 * N, &gradient, &err));
    vp_caching_block before = weight.block;
    CHECK_OK(vp_optimizer_step_play(step, &err));
    vp_ledger_end(&ledger);
    assert_int_not_equal(weight.block, before);
    assert_int_equal(gradient.bytes, 2 * LOW);
    assert_int_equal(ledger.phases[0].end_bytes,
                     2 * N + 2 * LOW + 2 * (LOW + 4 * 256 + 1024) + 512 + 2 * 64 * 512);
    vp_optimizer_step_free(step);
    vp_caching_allocator_destroy(ledger.allocator);
}

/* By transformers' Trainer norms and biases are stepped behind the rest: of 1024 and 256 floats the denominators are
 * never there together, so in the second step, with all four states, 4096 bytes more are the most. */
static void groups_are_stepped_one_after_the_other(void **state)
{
    vp_ledger                 ledger  = {0};
    vp_caching_allocator_opts options = {0};
    vp_optimizer_step        *step    = NULL;
    vp_err                    err     = {0};
    vp_trained                both[]  = {{.bytes = 4096, .element_bytes = FP32},
                                         {.bytes = 1024, .element_bytes = FP32}};

    (void)state;
    options.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED;
    CHECK_OK(vp_caching_allocator_new(&options, &ledger.allocator, &err));
    CHECK_OK(vp_optimizer_step_new("adamw_torch", both, 2, &ledger, &step, &err));
    vp_optimizer_step_group(step, 1);
    for (int i = 0; i < 2; i++) {
        vp_ledger_begin(&ledger, "step");
        CHECK_OK(vp_optimizer_step_play(step, &err));
        vp_ledger_end(&ledger);
    }
    assert_int_equal(ledger.phases[0].allocated_bytes, 3 * 4096);
    assert_int_equal(ledger.phases[1].allocated_bytes, 2 * (4096 + 1024) + 4096);
    vp_optimizer_step_free(step);
    vp_caching_allocator_destroy(ledger.allocator);
}

/* DeepSpeed steps what it has joined part by part: of three the denominators are there one after the other. */
static void joined_weights_are_stepped_one_by_one(void **state)
{
    vp_ledger                 ledger  = {0};
    vp_caching_allocator_opts options = {0};
    vp_optimizer_step        *step    = NULL;
    vp_err                    err     = {0};
    vp_trained                parts[] = {{.bytes = 4096, .element_bytes = FP32},
                                         {.bytes = 4096, .element_bytes = FP32},
                                         {.bytes = 1024, .element_bytes = FP32}};

    (void)state;
    options.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED;
    CHECK_OK(vp_caching_allocator_new(&options, &ledger.allocator, &err));
    CHECK_OK(vp_optimizer_step_new("adamw_torch", parts, 3, &ledger, &step, &err));
    vp_optimizer_step_one_by_one(step);
    for (int i = 0; i < 2; i++) {
        vp_ledger_begin(&ledger, "step");
        CHECK_OK(vp_optimizer_step_play(step, &err));
        vp_ledger_end(&ledger);
    }
    assert_int_equal(ledger.phases[1].allocated_bytes, 2 * (4096 + 4096 + 1024) + 4096);
    vp_optimizer_step_free(step);
    vp_caching_allocator_destroy(ledger.allocator);
}

static void others_are_refused_with_their_reason(void **state)
{
    vp_err err = {0};

    (void)state;
    assert_int_equal(vp_optimizer_step_check("galore_adamw_8bit_layerwise", &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "in backward"));
    err = (vp_err){0};
    assert_int_equal(vp_optimizer_step_check("adamw_hf", &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "no more"));
    err = (vp_err){0};
    assert_int_equal(vp_optimizer_step_check("adam", &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "adamw_torch_fused"));
}

/* From 100,000 elements on they are in managed memory. */
static void paged_states_of_large_parameters_are_not_on_the_card(void **state)
{
    (void)state;
    assert_int_equal(left_by("paged_adamw_32bit", 99999), 2 * 782 * 512); /* 399996 */
    assert_int_equal(left_by("paged_adamw_32bit", 100000), 0);
}

/* Adafactor of 96 x 512: 96 floats of rows and 512 of columns, a norm; the square and its sum with epsilon,
 * then the sum and the update, then the update and its scaled copy: two tensors at most. */
static void adafactor_keeps_rows_and_columns(void **state)
{
    vp_ledger_phase p = after_step("adafactor", (int64_t)96 * 512, 512);

    (void)state;
    assert_int_equal(p.end_bytes, 512 + 2048 + 512);
    assert_int_equal(p.allocated_bytes, p.end_bytes + 2 * 4 * 96 * 512);
    assert_int_equal(left_by("adafactor", 1024), 4096 + 512);
}

/* SmolLM2's table on a card of 132 multiprocessors: 49152 rows are summed by 423 thread blocks of 32 x 4 threads and 4 columns each, five
 * beside each other, 4 x 576 x 423 x 128 bytes of parts and 20 of semaphores, beside the square and the sum of a column. */
static void adafactors_sum_over_many_rows_takes_scratch(void **state)
{
    vp_symbol_card  card = {.processors = 132, .threads = 2048};
    int64_t         n    = (int64_t)49152 * 576;
    vp_ledger_phase p    = after_step_on(&card, "adafactor", n, 576);

    (void)state;
    assert_int_equal(p.allocated_bytes, p.end_bytes + 4 * n + 124747776 + 2560 + 512);
    p = after_step("adafactor", n, 576);
    assert_int_equal(p.allocated_bytes, p.end_bytes + 8 * n);
}

/* A state, and two lists of temporaries. */
static void adagrad_takes_the_parameters_twice_while_it_steps(void **state)
{
    vp_ledger_phase p = after_step("adagrad", 1024, 0);

    (void)state;
    assert_int_equal(p.end_bytes, 4096);
    assert_int_equal(p.allocated_bytes, 3 * 4096);
}

/* 256 x 1024, of rank 8: the projection has the 256 rows, the moments the 1024 columns. Of the others two states. In the first step
 * the gradient of low rank, a denominator, a quotient, a factor for each column, what is scaled, and its norm are there at once. */
static void apollo_keeps_moments_of_low_rank_and_a_projection(void **state)
{
    const char     *word = "apollo_adamw:rank=8,targets=all-linear";
    int64_t         low = 4 * 8 * 1024, projection = 4 * 8 * 256;
    vp_ledger_phase p = after_step(word, (int64_t)256 * 1024, 1024);

    (void)state;
    assert_int_equal(p.end_bytes, 2 * low + projection + 512);
    assert_int_equal(p.allocated_bytes, p.end_bytes + 3 * low + 4096 + 4 * 256 * 1024);
    assert_int_equal(left_by(word, 1024), 2 * 4096);
    p = after_step("apollo_adamw:rank=8,proj_type=reverse_std,scale_type=tensor,targets=mlp",
                   (int64_t)256 * 1024, 1024);
    assert_int_equal(p.end_bytes, 2 * projection + low + 512);
}

/* 256 x 1024 in fp32, of rank 8: the moments have the 1024 columns; the projection is a view of all 256 x 256 left vectors. The most
 * is there while the matrix is decomposed: both sides, the values, whether it converged, a copy, and the workspace that cuSOLVER told:
 * 1,049,344 elements (tests/golden/solver/svd_workspaces.csv). */
static void galore_keeps_all_vectors_of_a_side_in_fp32(void **state)
{
    int64_t n = 256 * 1024, moment = 4 * 8 * 1024, side = 4 * 256 * 256, workspace = 1049344;
    vp_ledger_phase p = after_step("galore_adamw:rank=8,targets=all-linear", n, 1024);

    (void)state;
    assert_int_equal(p.end_bytes, 2 * moment + side);
    assert_int_equal(p.allocated_bytes, side + 4 * n + 1024 + 512 + 4 * n + 4 * workspace);
}

/* What the library itself told without a card (tests/oracles/svd_workspaces.py). */
static void an_svds_workspace_is_what_cusolver_told(void **state)
{
    FILE *f = fopen("tests/golden/solver/svd_workspaces.csv", "r");
    char  line[200];
    int   n_rows = 0;

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        long long rows, columns, elements;
        if (sscanf(line, "%lld,%lld,%lld", &rows, &columns, &elements) != 3)
            continue;
        assert_int_equal(vp_svd_workspace_elements(rows, columns), elements);
        n_rows++;
    }
    fclose(f);
    assert_true(n_rows > 700);
}

/* Nothing stays on the card: three states, the slow gradient scaled and added up. */
static void grokadamw_has_its_states_in_host_memory(void **state)
{
    vp_ledger_phase p = after_step("grokadamw", 65536, 0);

    (void)state;
    assert_int_equal(p.end_bytes, 0);
    assert_int_equal(p.allocated_bytes, 5 * 4 * 65536);
}

/* Of parameters in fp32 and of 16 bits the states are like them. Parameters are written beside their states, and what was read is
 * copied. Others have nothing there. */
static void hosts_hold_states_of_grokadamw_alone(void **state)
{
    enum { N = 65536 };
    static const struct {
        const char *optimizer;
        int64_t     stays, resumes;
    } known[] = {{"grokadamw", 3 * 6 * N, 2 * 4 * 6 * N}, {"adamw_torch", 0, 2 * 6 * N}};
    const vp_trained          trained[] = {{.bytes = 4 * N, .element_bytes = 4, .columns = 1024},
                                           {.bytes = 2 * N, .element_bytes = 2, .columns = 1024}};
    vp_caching_allocator_opts options   = {.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED};

    (void)state;
    for (int i = 0; i < 2; i++) {
        vp_ledger          ledger = {0};
        vp_optimizer_step *step   = NULL;
        vp_err             err    = {0};
        CHECK_OK(vp_caching_allocator_new(&options, &ledger.allocator, &err));
        CHECK_OK(vp_optimizer_step_new(known[i].optimizer, trained, 2, &ledger, &step, &err));
        vp_ledger_begin(&ledger, "step");
        CHECK_OK(vp_optimizer_step_begin(step, &err));
        CHECK_OK(vp_optimizer_step_play(step, &err));
        vp_ledger_end(&ledger);
        assert_int_equal(vp_optimizer_step_host_bytes(step), known[i].stays);
        assert_int_equal(vp_optimizer_step_resume_bytes(step), known[i].resumes);
        vp_optimizer_step_free(step);
        vp_caching_allocator_destroy(ledger.allocator);
    }
}

/* An update in the backward pass, of a gradient of 16 bits: in fp32 the gradient, which goes, and the parameter; AdaLomo besides the
 * square and its sum with epsilon, then the sum and the update. It keeps 4 bytes a row and a column. */
static void lomo_updates_when_a_gradient_is_there(void **state)
{
    enum { N = 64 * 1024 };
    static const struct {
        const char *optimizer;
        int64_t     states, most;
    } known[] = {{"lomo", 0, 4 * N + 4 * N}, {"adalomo", 512 + 4096, 3 * 4 * N}};
    vp_caching_allocator_opts options = {.device_total_bytes = VP_CACHING_DEVICE_UNLIMITED};
    vp_trained                trained = {.bytes = 2 * N, .element_bytes = 2, .columns = 1024};
    vp_err                    err     = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        vp_ledger          ledger   = {0};
        vp_ledger_block    gradient = {0};
        vp_optimizer_step *step     = NULL;
        CHECK_OK(vp_caching_allocator_new(&options, &ledger.allocator, &err));
        CHECK_OK(vp_optimizer_step_new(known[i].optimizer, &trained, 1, &ledger, &step, &err));
        assert_true(vp_optimizer_step_in_backward(known[i].optimizer));
        vp_ledger_begin(&ledger, "inputs");
        CHECK_OK(vp_optimizer_step_begin(step, &err));
        vp_ledger_end(&ledger);
        vp_ledger_begin(&ledger, "backward");
        vp_optimizer_backward_begin(step);
        CHECK_OK(vp_ledger_alloc(&ledger, VP_OWNER_GRADIENT, 2 * N, &gradient, &err));
        CHECK_OK(vp_optimizer_backward_update(step, 2 * N, &gradient, &err));
        assert_false(gradient.block);
        assert_int_equal(vp_optimizer_backward_update(step, 2 * N, &gradient, &err), VP_ERR_INPUT);
        vp_ledger_end(&ledger);
        vp_ledger_begin(&ledger, "step");
        CHECK_OK(vp_optimizer_step_play(step, &err));
        vp_ledger_end(&ledger);
        assert_int_equal(ledger.phases[1].end_bytes, known[i].states);
        assert_int_equal(ledger.phases[1].allocated_bytes, known[i].states + known[i].most);
        assert_int_equal(ledger.phases[2].allocated_bytes, known[i].states);
        vp_optimizer_step_free(step);
        vp_caching_allocator_destroy(ledger.allocator);
        err = (vp_err){0};
    }
}

/* 256 x 1024 in fp32: one state; the update in fp32, then of 2 bytes an element the matrix and what it becomes, and two squares of
 * the shorter side. */
static void muon_has_one_state_and_works_in_16_bits(void **state)
{
    int64_t         n = 256 * 1024, square = 256 * 256;
    vp_ledger_phase p = after_step("muon", n, 1024);

    (void)state;
    assert_int_equal(p.end_bytes, 4 * n);
    assert_int_equal(p.allocated_bytes, 4 * n + 4 * n + 2 * (2 * n) + 2 * (2 * square));
    p = after_step("muon", 1024, 0); /* AdamW */
    assert_int_equal(p.end_bytes, 2 * 4096);
    assert_int_equal(p.allocated_bytes, 3 * 4096);
}

static void targets_are_parts_of_names_or_patterns(void **state)
{
    const char           *module = "model.layers.3.self_attn.q_proj";
    vp_optimizer_settings s;
    vp_err                err = {0};

    (void)state;
    CHECK_OK(vp_optimizer_settings_parse("apollo_adamw:targets=mlp+attn", &s, &err));
    assert_int_equal(s.rank, 128);
    assert_true(vp_optimizer_projects(&s, module));
    CHECK_OK(vp_optimizer_settings_parse("apollo_adamw:rank=4,targets=.*.attn.*", &s, &err));
    assert_false(vp_optimizer_projects(&s, "attn"));
    assert_true(vp_optimizer_projects(&s, "h.0.attn.c"));
    assert_true(vp_optimizer_projects(&s, module)); /* "_attn.": a point is any letter */
    CHECK_OK(vp_optimizer_settings_parse("apollo_adamw:targets=self_attn.k_proj+mlp", &s, &err));
    assert_false(vp_optimizer_projects(&s, module));
}

static void what_an_optimizer_is_told_is_checked(void **state)
{
    static const struct {
        const char *word, *said;
    } wrong[] = {
        {"apollo_adamw", "optim_target_modules"},
        {"apollo_adamw:targets=mlp,rnk=8", "rnk is none of its keys, which are rank, targets"},
        {"apollo_adamw:targets=mlp,rank=0", "rank"},
        {"apollo_adamw:targets=mlp,proj=svd", "random is"},
        {"apollo_adamw:targets=mlp,proj_type=full", "std, reverse_std, left and right are"},
        {"apollo_adamw:targets=mlp,proj_type=left", "ends with an error"},
        {"apollo_adamw:mlp", "is not KEY=VALUE"},
        {"adamw_torch:rank=8", "is told nothing here"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vp_err err = {0};
        assert_int_not_equal(vp_optimizer_step_check(wrong[i].word, &err), VP_OK);
        if (!strstr(err.message, wrong[i].said))
            fail_msg("%s: %s", wrong[i].word, err.message);
    }
}

/* What a search may rely on before it plays: never more than is left, and of plain states all of it. */
static void the_least_bytes_are_no_more_than_a_step_leaves(void **state)
{
    enum { N = 1 << 17 };
    static const int64_t sizes[] = {1, 4095, 4096, N};
    static const struct {
        const char *optimizer;
        int64_t     bytes;
    } known[]               = {{"sgd", 0},
                               {"adamw_torch", 2 * 4 * N},
                               {"adamw_8bit", 2 * N},
                               {"paged_adamw_8bit", 0},
                               {"ademamix", 3 * 4 * N},
                               {"adafactor", 0}};
    vp_optimizer_step *step = NULL;
    vp_ledger          none = {0};
    vp_err             err  = {0};
    const char        *name;

    (void)state;
    for (int i = 0; (name = vp_optimizer_step_name(i)); i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            char told[120];
            snprintf(told, sizeof told, "%s%s", name,
                     strncmp(name, "apollo_", 7) == 0 || strncmp(name, "galore_", 7) == 0
                         ? ":targets=all-linear"
                         : "");
            vp_trained trained = {.bytes = FP32 * sizes[k], .element_bytes = FP32};
            CHECK_OK(vp_optimizer_step_new(told, &trained, 1, &none, &step, &err));
            assert_true(vp_optimizer_step_least_bytes(step) <= left_by(told, sizes[k]));
            vp_optimizer_step_free(step);
        }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        vp_trained trained = {.bytes = FP32 * (int64_t)N, .element_bytes = FP32};
        CHECK_OK(vp_optimizer_step_new(known[i].optimizer, &trained, 1, &none, &step, &err));
        assert_int_equal(vp_optimizer_step_least_bytes(step), known[i].bytes);
        vp_optimizer_step_free(step);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_of_pytorch_are_as_large_as_the_parameter),
        cmocka_unit_test(states_in_8_bits_begin_at_4096_elements),
        cmocka_unit_test(ademamix_has_three_states),
        cmocka_unit_test(schedule_free_and_stable_optimizers_step_like_adamw),
        cmocka_unit_test(torchao_has_codes_and_makes_both_states_wide),
        cmocka_unit_test(torchao_makes_wide_codes_of_4_bits),
        cmocka_unit_test(galores_adafactor_factors_what_is_projected),
        cmocka_unit_test(galore_in_8_bits_moves_weight_and_gradient),
        cmocka_unit_test(groups_are_stepped_one_after_the_other),
        cmocka_unit_test(joined_weights_are_stepped_one_by_one),
        cmocka_unit_test(others_are_refused_with_their_reason),
        cmocka_unit_test(paged_states_of_large_parameters_are_not_on_the_card),
        cmocka_unit_test(adafactor_keeps_rows_and_columns),
        cmocka_unit_test(adafactors_sum_over_many_rows_takes_scratch),
        cmocka_unit_test(adagrad_takes_the_parameters_twice_while_it_steps),
        cmocka_unit_test(apollo_keeps_moments_of_low_rank_and_a_projection),
        cmocka_unit_test(galore_keeps_all_vectors_of_a_side_in_fp32),
        cmocka_unit_test(an_svds_workspace_is_what_cusolver_told),
        cmocka_unit_test(grokadamw_has_its_states_in_host_memory),
        cmocka_unit_test(hosts_hold_states_of_grokadamw_alone),
        cmocka_unit_test(lomo_updates_when_a_gradient_is_there),
        cmocka_unit_test(muon_has_one_state_and_works_in_16_bits),
        cmocka_unit_test(targets_are_parts_of_names_or_patterns),
        cmocka_unit_test(what_an_optimizer_is_told_is_checked),
        cmocka_unit_test(the_least_bytes_are_no_more_than_a_step_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
