/* Random plans of random small models of every family, precision and optimizer: the arena is the
 * one predicted, to the byte; nothing outside living buffers is touched; every plan of a recipe
 * trains the same bits. */
#include "plan_test.h"

#include "plan/workspace.h"
#include "planner/itemise.h"

#include <math.h>

enum { N_PLANS = 312, N_PAIRS = 78 };

/* Sequences long enough that chunks of 256 tokens divide the micro-batch. */
static vp_scenario random_scenario(rng *r, int turn)
{
    vp_scenario s = {.recipe = vp_recipe_default(), .seq = 3 + pick(r, 40)};

    s.global_batch = 1 + pick(r, 6);
    if (turn % 4 == 0) { /* chunks */
        s.seq          = 140 + pick(r, 100);
        s.global_batch = 2 * (2 + pick(r, 2));
        s.loss_chunk   = VP_TILE_TOKENS * (1 + pick(r, 2));
    }
    if (turn % 4 == 1) /* accumulation */
        s.global_batch = 2 * (1 + pick(r, 3));
    do
        s.micro_batch = 1 + pick(r, s.global_batch);
    while ((s.global_batch % s.micro_batch && turn % 2) ||
           (turn % 4 == 1 && s.micro_batch == s.global_batch) ||
           (turn % 4 == 0 && s.micro_batch * s.seq <= s.loss_chunk));
    s.recipe.seed = 1 + pick(r, 1000);
    if (pick(r, 2) == 0)
        vp_recipe_set_optimizer(&s.recipe, (vp_optimizer)pick(r, VP_N_OPTIMIZERS));
    s.recipe.precision  = (vp_precision)pick(r, n_precisions());
    s.recipe.loss_scale = 16; /* no step is skipped, which would touch and change nothing */
    if (vp_precision_takes(s.recipe.precision, VP_GRADIENTS_BF16))
        s.recipe.gradients = (vp_gradients)pick(r, VP_N_GRADIENTS);
    s.attention = pick(r, 3) == 0 ? VP_ATTENTION_MATH : VP_ATTENTION_FLASH;
    if (pick(r, 4) == 0)
        s.recipe.dropout = 0.1;
    return s;
}

/* Whether some block of the plan recomputes something: its backward holds a forward kernel. */
static bool recomputes(const vp_plan *plan)
{
    for (int64_t p = 0; p < plan->buckets[0].n_programs - 1; p++)
        for (int64_t i = 0; i < plan->buckets[0].programs[p].n_steps[VP_PASS_BACKWARD]; i++) {
            vp_kernel k = plan->buckets[0].programs[p].steps[VP_PASS_BACKWARD][i].kernel;
            if (k == VP_K_LINEAR_FWD || k == VP_K_LINEAR_ADD_FWD)
                return true;
        }
    return false;
}

static void check_items(const vp_plan *plan)
{
    vp_arena   *arena = vp_arena_new();
    vp_itemised it;
    int64_t     sum = 0, highest = 0;

    OK(vp_itemise(arena, plan, &plan->buckets[0], &it, err));
    for (int64_t i = 0; i < it.n_items; i++)
        sum += it.items[i].bytes;
    for (int p = 0; p < VP_N_PHASES; p++)
        highest = vp_max_i64(highest, it.phases[p].peak_bytes);
    assert_int_equal(sum, plan->peak_bytes);
    assert_int_equal(highest, plan->peak_bytes);
    vp_arena_free(arena);
}

static void predicted_is_executed_and_touched_to_the_byte(void **state)
{
    rng r           = {20261121};
    int n_recompute = 0, n_chunked = 0, n_accumulated = 0,
        n     = (long_run() ? 5 * N_PLANS : N_PLANS) / test_part();
    bool here = test_backend()->host_memory; /* what a device touches is not seen from here */

    (void)state;
    for (int i = 0; i < n; i++) {
        char        config[800];
        vp_scenario s = random_scenario(&r, i);
        vp_model   *model =
            model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), s.recipe.dropout);
        vp_plan *plan = random_plan(&r, model, s);
        trained  x    = train(plan, 2, 1 + i % 2, true);
        if (x.memory.of[VP_MEMORY_DEVICE].executed_bytes != plan->peak_bytes ||
            (here && (x.memory.of[VP_MEMORY_DEVICE].touched_bytes !=
                          plan->peak_bytes - x.memory.padding_bytes ||
                      x.memory.never_written_bytes != 0)))
            fail_msg(
                "plan %d (%s, %s, %s, %s attention): predicted %lld, executed %lld, touched %lld, padding %lld, never written %lld",
                i, config, vp_precision_name(s.recipe.precision),
                vp_optimizer_name(s.recipe.optimizer), vp_attention_name(s.attention),
                (long long)plan->peak_bytes,
                (long long)x.memory.of[VP_MEMORY_DEVICE].executed_bytes,
                (long long)x.memory.of[VP_MEMORY_DEVICE].touched_bytes,
                (long long)x.memory.padding_bytes, (long long)x.memory.never_written_bytes);
        check_items(plan);
        n_recompute += recomputes(plan);
        n_chunked += s.loss_chunk && s.loss_chunk < s.micro_batch * s.seq;
        n_accumulated += s.micro_batch < s.global_batch;
        free(x.params);
        vp_plan_free(plan);
        vp_model_free(model);
    }
    print_message("%d plans: %d with recompute, %d with chunks, %d with accumulation\n", n,
                  n_recompute, n_chunked, n_accumulated);
    assert_true(n_recompute >= n / 8 && n_chunked >= n / 8 && n_accumulated >= n / 8);
}

/* What the runtime would bind: the largest offset + bytes of any operand of any call. */
static vp_status bind(const vp_expanded_step *x, void *ctx, vp_err *err)
{
    int64_t *end = ctx;

    (void)err;
    for (int k = 0; k < x->n_operands; k++)
        if (x->operands[k].buffer >= 0)
            *end = vp_max_i64(*end, x->operands[k].offset_bytes +
                                        vp_step_operand_bytes(x->step, x->ints, k));
    return VP_OK;
}

/* Too large to run here: every call of the step is resolved as the runtime resolves it. */
static void seventy_billion_parameters_bind_what_was_predicted(void **state)
{
    vp_model *model;

    (void)state;
    OK(vp_model_open("llama-3.1-70b", &(vp_model_opts){0}, &model, err));
    for (int turn = 0; turn < 8; turn++) {
        vp_scenario s      = {.recipe       = vp_recipe_default(),
                              .seq          = 4096,
                              .global_batch = 4,
                              .micro_batch  = turn % 2 ? 1 : 4,
                              .loss_chunk   = turn % 4 < 2 ? 0 : 1024,
                              .attention    = turn == 5 ? VP_ATTENTION_MATH : VP_ATTENTION_FLASH};
        s.recipe.precision = (vp_precision)(turn % n_precisions());
        vp_recipe_set_optimizer(&s.recipe, (vp_optimizer)turn);
        vp_plan *plan = plan_of(model, s, (vp_recompute)(turn % VP_N_RECOMPUTES));
        int64_t  end  = 0;
        OK(vp_expand(plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, bind, &end, err));
        assert_int_equal(end, plan->peak_bytes);
        check_items(plan);
        vp_plan_free(plan);
    }
    vp_model_free(model);
}

/* Where the workspaces of the norm's steps lie. */
typedef struct norm_places {
    int64_t end[400], begin[400], n;
} norm_places;

static vp_status note_norm(const vp_expanded_step *x, void *ctx, vp_err *err)
{
    norm_places *at = ctx;
    int64_t      k  = vp_kernel_info_of(VP_K_GRAD_SUMSQ)->n_operands;

    (void)err;
    if (x->step->kernel != VP_K_GRAD_SUMSQ)
        return VP_OK;
    assert_true(x->n_operands == k + 1 && at->n < 400);
    at->begin[at->n] = x->operands[k].offset_bytes;
    at->end[at->n]   = x->operands[k].offset_bytes + x->step->workspace_bytes;
    assert_true(x->operands[k].offset_bytes % VP_ALIGN_BYTES == 0 &&
                x->step->workspace_bytes ==
                    8 * vp_ceil_div(x->step->elements.count, VP_SUMSQ_PIECE));
    at->n++;
    return VP_OK;
}

/* So that a backend may sum many at once. On a card; the CPU has none. The vocabulary makes the
 * embedding's larger than the first block's. */
static void each_gradient_has_a_workspace_of_its_own(void **state)
{
    static const vp_optimizer optimizers[] = {VP_OPT_ADAMW, VP_OPT_ADAFACTOR, VP_OPT_MUON};
    tiny                      t     = {.n_embd = 64, .n_layer = 12, .n_head = 4, .vocab = 60000};
    vp_model                 *model = tiny_model(&t, 0);

    (void)state;
    for (int i = 0; i < 12; i++) {
        vp_scenario s = {
            .recipe = vp_recipe_default(), .seq = 64, .global_batch = 4, .micro_batch = 2};
        vp_device   device = {.name               = "a card",
                              .compute_capability = i % 2 ? 90 : 0,
                              .is_cpu             = i % 2 == 0,
                              .fp32_flop_per_s    = 1e12,
                              .bf16_flop_per_s    = 1e12,
                              .memory_bytes_per_s = 1e11,
                              .usable_bytes       = INT64_MAX};
        vp_cost     cost   = {.device = &device};
        norm_places at     = {.n = 0};
        int64_t     end    = 0;
        vp_plan    *plan;

        vp_recipe_set_optimizer(&s.recipe, optimizers[i / 4]);
        vp_scenario_set_all(
            &s, model, vp_recompute_set(model, i % 4 < 2 ? VP_RECOMPUTE_NONE : VP_RECOMPUTE_FULL));
        OK(vp_assemble(model, &s, &cost, &plan, err));
        OK(vp_expand(plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, bind, &end, err));
        assert_int_equal(end, plan->peak_bytes);
        if (device.compute_capability) {
            OK(vp_expand(plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, note_norm, &at,
                         err));
            assert_int_equal(at.n, 2 + 12 * 12 + 2);
            for (int64_t a = 0; a < at.n; a++)
                for (int64_t b = 0; b < a; b++)
                    assert_true(at.end[a] <= at.begin[b] || at.end[b] <= at.begin[a]);
        }
        for (int64_t p = 0; p < plan->buckets[0].n_programs; p++)
            for (int64_t b = 0; b < plan->buckets[0].programs[p].n_buffers; b++)
                assert_true(device.compute_capability ||
                            plan->buckets[0].programs[p].buffers[b].component != VP_COMP_WORKSPACE);
        vp_plan_free(plan);
    }
    vp_model_free(model);
}

/* The CPU as a device: what is sent and fetched waits for a wait() or a call, then moves as the
 * host's side is by then. */
static struct {
    struct {
        void       *to;
        const void *from;
        int64_t     n_bytes;
    } waiting[16];
    int     n, n_blocks;
    int64_t block_bytes;
    bool    fails;   /* the next call */
    void   *watched; /* of what moved there, the first four bytes the last time */
    int32_t moved;
} late;

static void late_move(void)
{
    for (int i = 0; i < late.n; i++) {
        memcpy(late.waiting[i].to, late.waiting[i].from, (size_t)late.waiting[i].n_bytes);
        if (late.waiting[i].to == late.watched)
            memcpy(&late.moved, late.watched, sizeof late.moved);
    }
    late.n = 0;
}

static vp_status late_copy(void *to, const void *from, int64_t n_bytes, vp_err *err)
{
    (void)err;
    assert_true(late.n < 16);
    late.waiting[late.n].to = to, late.waiting[late.n].from = from,
    late.waiting[late.n++].n_bytes = n_bytes;
    return VP_OK;
}

static vp_status late_run(const vp_kernel_call *call, vp_err *err)
{
    if (late.fails) {
        late.fails = false;
        return VP_FAIL(err, VP_ERR_DEVICE, "a call fails");
    }
    late_move();
    return vp_backend_cpu()->run(call, err);
}

static vp_status late_wait(vp_err *err)
{
    (void)err;
    late_move();
    return VP_OK;
}

static vp_status late_host_alloc(int64_t n_bytes, void **out, vp_err *err)
{
    (void)err;
    *out             = aligned_alloc(VP_ALIGN_BYTES, (size_t)vp_round_up(n_bytes, VP_ALIGN_BYTES));
    late.block_bytes = n_bytes;
    late.n_blocks++;
    return *out ? VP_OK : VP_ERR_NOMEM;
}

static void late_host_release(void *p)
{
    late.n_blocks--;
    free(p);
}

/* Step 1 fails when its batch is on its way: step 2 waits before it writes its own, so that
 * batch 1 arrives whole. */
static void a_batch_on_its_way_is_not_overwritten(void **state)
{
    tiny        t     = {.n_embd = 16, .n_layer = 1, .n_head = 2, .vocab = 50};
    vp_model   *model = tiny_model(&t, 0);
    vp_scenario s = {.recipe = vp_recipe_default(), .seq = 8, .global_batch = 4, .micro_batch = 2};
    vp_run_opts opts = {.n_total_steps = 2, .seed = -1};
    vp_backend  cpu  = *vp_backend_cpu();
    int32_t     tokens[2][32], labels[32];
    vp_step_result result[2];
    vp_plan       *plan;
    vp_runtime    *rt;
    vp_err         bad = {0};

    (void)state;
    if (!test_backend()->host_memory)
        skip();
    cpu.host_memory  = false;
    cpu.host_alloc   = late_host_alloc;
    cpu.host_release = late_host_release;
    cpu.send = cpu.fetch = late_copy;
    cpu.run              = late_run;
    cpu.wait             = late_wait;
    for (int i = 0; i < 32; i++)
        tokens[0][i] = 7, tokens[1][i] = labels[i] = i;
    plan = plan_of(model, s, VP_RECOMPUTE_NONE);
    for (int way = 0; way < 2; way++) { /* as a device, as itself */
        OK(vp_runtime_new(plan, way ? vp_backend_cpu() : &cpu, &opts, &rt, err));
        OK(vp_runtime_draw(rt, err));
        if (way == 0) {
            vp_runtime_param p;
            vp_memory_report memory;

            vp_runtime_param_at(rt, 0, &p);
            late.watched = (char *)p.data -
                           plan->buckets[0].instances[0].region_base_bytes[VP_REGION_PARAM] -
                           plan->templates[0].params[0].offset_bytes[VP_REGION_PARAM] +
                           plan->fixed[plan->tokens_idx].offset_bytes;
            late.fails = true;
            assert_int_equal(vp_runtime_step(rt, &(vp_batch){.tokens = tokens[0], .labels = labels},
                                             &result[way], &bad),
                             VP_ERR_DEVICE);
            assert_true(late.n > 0);
            vp_runtime_memory(rt, &memory);
            /* the control block; 32 tokens, 32 labels: each at a multiple of 256 */
            assert_int_equal(memory.pinned_bytes, 3 * 256);
            assert_true(late.n_blocks == 1 && late.block_bytes == memory.pinned_bytes);
            late.moved = -1;
            late.fails = true;
            assert_int_equal(vp_runtime_step(rt, &(vp_batch){.tokens = tokens[1], .labels = labels},
                                             &result[way], &(vp_err){0}),
                             VP_ERR_DEVICE);
            assert_int_equal(late.moved, 7);
        }
        OK(vp_runtime_step(rt, &(vp_batch){.tokens = tokens[1], .labels = labels}, &result[way],
                           err));
        vp_runtime_free(rt);
    }
    assert_int_equal(late.moved, 0);
    assert_int_equal(late.n_blocks, 0);
    assert_true(result[0].loss == result[1].loss && result[0].grad_norm == result[1].grad_norm);
    vp_plan_free(plan);
    vp_model_free(model);
}

static void the_mapping_holds_what_was_executed(void **state)
{
    rng r = {7};

    (void)state;
    if (!test_backend()->host_memory)
        skip();
    for (int i = 0; i < 10; i++) {
        tiny        t = {.n_embd = 48, .n_layer = 1 + pick(&r, 4), .n_head = 3, .vocab = 300};
        vp_scenario s = {
            .recipe = vp_recipe_default(), .seq = 100, .global_batch = 4, .micro_batch = 4};
        vp_model *model = tiny_model(&t, 0);
        vp_plan  *plan  = random_plan(&r, model, s);
        trained   x     = train(plan, 1, 1, false);
        int64_t   off   = x.memory.resident_bytes - x.memory.of[VP_MEMORY_DEVICE].executed_bytes;
        assert_true(off < 4096 * x.memory.n_buffers && -off < 4096 * x.memory.n_buffers);
        free(x.params);
        vp_plan_free(plan);
        vp_model_free(model);
    }
}

static void two_plans_of_a_recipe_train_the_same_bits(void **state)
{
    rng r = {4711};

    (void)state;
    for (int i = 0; i < N_PAIRS / test_part(); i++) {
        char        config[800];
        vp_scenario a  = random_scenario(&r, 0), b;
        a.global_batch = 2;
        a.micro_batch  = 2;
        b              = a;
        b.loss_chunk   = VP_TILE_TOKENS * pick(&r, 3);
        /* a device does not cut a product's sum at 256 tokens: kernels/cuda/README.md */
        if (!test_backend()->host_memory)
            b.loss_chunk = a.loss_chunk;
        vp_model *model =
            model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), a.recipe.dropout);
        vp_plan *plan_a = random_plan(&r, model, a), *plan_b = random_plan(&r, model, b);
        trained  x = train(plan_a, 3, 1 + (int)pick(&r, 3), false),
                y  = train(plan_b, 3, 1 + (int)pick(&r, 3), false);
        if (x.n_params != y.n_params ||
            memcmp(x.params, y.params, (size_t)x.n_params * sizeof(float)) != 0)
            fail_msg(
                "pair %d (%s, %s, %s, %s attention): %s / %s, chunk %lld / %lld: parameters differ",
                i, config, vp_precision_name(a.recipe.precision),
                vp_optimizer_name(a.recipe.optimizer), vp_attention_name(a.attention),
                plan_a->buckets[0].programs[1].name, plan_b->buckets[0].programs[1].name,
                (long long)a.loss_chunk, (long long)b.loss_chunk);
        assert_true(x.last.loss == y.last.loss && x.last.grad_norm == y.last.grad_norm);
        free(x.params);
        free(y.params);
        vp_plan_free(plan_a);
        vp_plan_free(plan_b);
        vp_model_free(model);
    }
}

/* TF32 is fp32 but for what is multiplied, which is 2^-11 of it off: the loss of a first step, a mean of
 * many, is 2^-11 of fp32's off at most, and not the same. */
static void tf32_trains_nearly_as_fp32_does(void **state)
{
    tiny      t       = {.n_embd = 48, .n_layer = 2, .n_head = 4, .vocab = 70};
    vp_model *model   = tiny_model(&t, 0.0);
    double    loss[2] = {0};

    (void)state;
    if (n_precisions() <= VP_PREC_TF32)
        skip();
    for (int k = 0; k < 2; k++) {
        vp_scenario s = {
            .recipe = vp_recipe_default(), .seq = 64, .global_batch = 2, .micro_batch = 2};
        s.recipe.precision = k ? VP_PREC_TF32 : VP_PREC_FP32;
        vp_plan *plan      = plan_of(model, s, VP_RECOMPUTE_NONE);
        trained  x         = train(plan, 1, 1, false);
        loss[k]            = x.last.loss;
        free(x.params);
        vp_plan_free(plan);
    }
    assert_true(loss[0] != loss[1] && fabs(loss[1] - loss[0]) <= 0x1p-11 * loss[0]);
    vp_model_free(model);
}

/* Untied, so that no gradient has two kinds of contribution; 256 tokens a sample, so that a
 * micro-batch is whole tiles. */
static void micro_batches_of_whole_tiles_train_the_same_bits(void **state)
{
    tiny      t     = {.n_embd = 32, .n_layer = 2, .n_head = 4, .vocab = 70, .untied = true};
    vp_model *model = tiny_model(&t, 0.1);
    trained   first = {0};

    (void)state;
    if (!test_backend()->host_memory)
        skip();
    for (int64_t micro = 4; micro >= 1; micro--) { /* 4, 3 + 1, 2 + 2, 1 + 1 + 1 + 1 */
        vp_scenario s = {
            .recipe = vp_recipe_default(), .seq = 256, .global_batch = 4, .micro_batch = micro};
        s.recipe.dropout = 0.1;
        vp_plan *plan    = plan_of(model, s, VP_RECOMPUTE_NONE);
        trained  x       = train(plan, 2, 2, false);
        if (micro == 4) {
            first = x;
        } else {
            assert_memory_equal(first.params, x.params, (size_t)x.n_params * sizeof(float));
            free(x.params);
        }
        vp_plan_free(plan);
    }
    free(first.params);
    vp_model_free(model);
}

/* The gradients that one step leaves, and their norm before clipping. */
static float *gradients_after_a_step(const vp_plan *plan, double *norm)
{
    int64_t        n = vp_plan_tokens(plan), at = 0;
    int32_t       *tokens = malloc((size_t)n * 4);
    float         *grads  = malloc((size_t)plan->n_params * sizeof *grads);
    vp_step_result result;
    vp_runtime    *rt;

    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(i * 7919 % plan->vocab_size);
    OK(vp_runtime_new(plan, test_backend(), &(vp_run_opts){.n_total_steps = 1, .seed = -1}, &rt,
                      err));
    OK(vp_runtime_draw(rt, err));
    OK(vp_runtime_step(rt, &(vp_batch){.tokens = tokens, .labels = tokens}, &result, err));
    for (int64_t i = 0; i < vp_runtime_n_params(rt); i++) {
        vp_runtime_param p;
        vp_runtime_param_at(rt, i, &p);
        OK(vp_runtime_grad_get(&p, 0, p.param->n_elements, grads + at, err));
        at += p.param->n_elements;
    }
    *norm = result.grad_norm;
    assert_int_equal(at, plan->n_params);
    vp_runtime_free(rt);
    free(tokens);
    return grads;
}

/* To nearest even, from the bits: the distance of two bf16 numbers is 2^16 of a float's. */
static float rounded_to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* In one micro-step a bf16 gradient is the fp32 one rounded, whatever sums it: a product, a norm, a
 * look-up, a loss in chunks; and the norm is that of what was rounded. */
static void a_bf16_gradient_is_the_fp32_one_rounded_once(void **state)
{
    tiny      t     = {.n_embd = 48, .n_layer = 2, .n_head = 4, .vocab = 70, .untied = true};
    vp_model *model = tiny_model(&t, 0.0);

    (void)state;
    if (!test_backend()->host_memory)
        skip(); /* a device does not cut a product's sum at 256 tokens */
    for (int chunked = 0; chunked < 2; chunked++) {
        vp_scenario s = {.recipe       = vp_recipe_default(),
                         .seq          = 300,
                         .global_batch = 2,
                         .micro_batch  = 2,
                         .loss_chunk   = chunked ? VP_TILE_TOKENS : 0};
        double      norm[2], squares = 0.0;
        float      *grads[2];
        s.recipe.precision = VP_PREC_BF16_MIXED;
        for (int g = 0; g < VP_N_GRADIENTS; g++) {
            s.recipe.gradients = (vp_gradients)g;
            vp_plan *plan      = plan_of(model, s, VP_RECOMPUTE_MLP);
            grads[g]           = gradients_after_a_step(plan, &norm[g]);
            vp_plan_free(plan);
        }
        for (int64_t i = 0; i < model->n_params; i++) {
            if (grads[VP_GRADIENTS_BF16][i] != rounded_to_bf16(grads[VP_GRADIENTS_FP32][i]))
                fail_msg("gradient %lld, chunks %d: %.9g, in fp32 %.9g", (long long)i, chunked,
                         (double)grads[VP_GRADIENTS_BF16][i], (double)grads[VP_GRADIENTS_FP32][i]);
            squares += (double)grads[VP_GRADIENTS_BF16][i] * (double)grads[VP_GRADIENTS_BF16][i];
        }
        assert_true(fabs(norm[VP_GRADIENTS_BF16] - sqrt(squares)) <= 1e-12 * sqrt(squares));
        assert_true(norm[VP_GRADIENTS_BF16] != norm[VP_GRADIENTS_FP32]);
        free(grads[0]);
        free(grads[1]);
    }
    vp_model_free(model);
}

/* A vocabulary of 61 in rows of 64, on a card: as many bytes, and who reads rows says what who wrote
 * them does. */
static void an_odd_vocabulary_has_padded_rows_on_a_card(void **state)
{
    vp_device   card  = {.name               = "card",
                         .compute_capability = 90,
                         .fp32_flop_per_s    = 1e13,
                         .bf16_flop_per_s    = 1e14,
                         .bf16               = true,
                         .memory_bytes_per_s = 1e12,
                         .usable_bytes       = INT64_MAX};
    vp_cost     cost  = {.device = &card};
    tiny        t     = {.n_embd = 24, .n_layer = 2, .n_head = 3, .vocab = 61};
    vp_model   *model = tiny_model(&t, 0.0);
    vp_scenario s = {.recipe = vp_recipe_default(), .seq = 16, .global_batch = 2, .micro_batch = 2};
    vp_plan    *plan;
    int         n_padded = 0, n_logits = 0;

    (void)state;
    s.recipe.precision = VP_PREC_BF16_MIXED;
    vp_scenario_set_all(&s, model, 0);
    OK(vp_assemble(model, &s, &cost, &plan, err));
    OK(vp_plan_check(plan, "plan", err));
    for (int64_t i = 0; i < plan->buckets[0].n_programs; i++) {
        vp_program *p = &plan->buckets[0].programs[i];
        for (int64_t k = 0; k < p->n_buffers; k++)
            if (strcmp(p->buffers[k].name, "logits") == 0)
                n_logits += p->buffers[k].bytes == 2 * 16 * 64 * 2;
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            for (int64_t k = 0; k < p->n_steps[pass]; k++) {
                vp_step *step = &p->steps[pass][k];
                bool     loss = step->kernel == VP_K_CROSS_ENTROPY;
                vp_err   why  = {0};
                if (!loss && !vp_kernel_is_product(step->kernel))
                    continue;
                int64_t *padded = loss ? &step->cross_entropy.padded : &step->linear.padded;
                n_padded += *padded != 0;
                *padded = !*padded;
                assert_int_equal(vp_plan_check(plan, "plan", &why), VP_ERR_INPUT);
                if (!strstr(why.message, "rows") && !strstr(why.message, "bytes"))
                    fail_msg("%s: %s", step->name, why.message);
                *padded = !*padded;
            }
    }
    assert_int_equal(n_padded, 4); /* the head's three products and the loss */
    assert_int_equal(n_logits, 1);
    vp_plan_free(plan);
    vp_model_free(model);
}

static void a_plan_survives_its_file(void **state)
{
    rng  r      = {99};
    char path[] = "/tmp/vplan-test-plan-XXXXXX";

    (void)state;
    assert_true(mkstemp(path) >= 0);
    for (int i = 0; i < 39; i++) {
        char        config[800];
        vp_scenario s = random_scenario(&r, i);
        vp_model   *model =
            model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), s.recipe.dropout);
        vp_plan *plan = random_plan(&r, model, s), *again;
        OK(vp_plan_write(plan, path, true, err));
        OK(vp_plan_read(path, &again, err));
        same_steps(plan, again);
        json_t *a = vp_plan_to_json(plan), *b = vp_plan_to_json(again);
        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
        vp_plan_free(plan);
        vp_plan_free(again);
        vp_model_free(model);
    }
    remove(path);
}

static size_t file_bytes(const vp_model *model, vp_scenario s)
{
    vp_plan *plan = plan_of(model, s, VP_RECOMPUTE_NONE);
    json_t  *j    = vp_plan_to_json(plan);
    vp_text  text = {0};
    assert_true(vp_json_dump(j, &text));
    size_t n = text.n_bytes;
    vp_text_release(&text);
    json_decref(j);
    vp_plan_free(plan);
    return n;
}

static void a_deep_model_adds_only_instance_rows_to_the_file(void **state)
{
    vp_scenario s = {.recipe = vp_recipe_default(), .seq = 64, .global_batch = 2, .micro_batch = 1};
    size_t      bytes[3] = {0};
    int64_t     layers[] = {2, 48, 126};

    (void)state;
    for (int i = 0; i < 3; i++) {
        vp_model *model =
            tiny_model(&(tiny){.n_embd = 64, .n_layer = layers[i], .n_head = 4, .vocab = 100}, 0);
        bytes[i] = file_bytes(model, s);
        vp_model_free(model);
    }
    /* An instance row is five keys and nine numbers: under 400 bytes with indentation. */
    assert_true(bytes[1] - bytes[0] < 46 * 400);
    assert_true(bytes[2] < 4u << 20);
    vp_model *wide = tiny_model(
        &(tiny){.n_embd = 64, .n_layer = 126, .n_head = 4, .vocab = 100, .n_positions = 8192}, 0);
    s = (vp_scenario){.recipe       = vp_recipe_default(),
                      .seq          = 8192,
                      .global_batch = 64,
                      .micro_batch  = 16,
                      .loss_chunk   = 256};
    assert_true(file_bytes(wide, s) < 4u << 20); /* 512 chunks of the loss */
    vp_model_free(wide);
}

static void a_budget_of_the_least_fits_and_one_byte_less_does_not(void **state)
{
    rng r = {31};

    (void)state;
    for (int i = 0; i < N_FAMILIES; i++) {
        char            config[800];
        vp_model       *model   = model_of(random_config(&r, i, config, sizeof config), 0);
        vp_device       device  = {.name               = "cpu",
                                   .is_cpu             = true,
                                   .fp32_flop_per_s    = 1e11,
                                   .memory_bytes_per_s = 1e10,
                                   .usable_bytes       = INT64_MAX};
        vp_plan_request request = {.model        = model,
                                   .device       = &device,
                                   .recipe       = vp_recipe_default(),
                                   .seq          = 64,
                                   .global_batch = 4,
                                   .budget_bytes = INT64_MAX,
                                   .recompute    = VP_RECOMPUTE_ANY,
                                   .loss_chunk   = VP_CHUNK_ANY,
                                   .no_proof     = true};
        vp_plan_answer  a;
        OK(vp_planner_run(&request, &a, err));
        request.budget_bytes = a.least_budget_bytes;
        vp_plan_answer_release(&a);
        OK(vp_planner_run(&request, &a, err));
        assert_true(a.n_candidates >= 1);
        double slower = a.candidates[0].figures.step_time_s;
        vp_plan_answer_release(&a);
        request.budget_bytes--;
        OK(vp_planner_run(&request, &a, err));
        assert_int_equal(a.n_candidates, 0);
        vp_plan_answer_release(&a);
        request.budget_bytes = INT64_MAX; /* more budget is never slower */
        OK(vp_planner_run(&request, &a, err));
        assert_true(a.candidates[0].figures.step_time_s <= slower);
        vp_plan_answer_release(&a);
        vp_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predicted_is_executed_and_touched_to_the_byte),
        cmocka_unit_test(seventy_billion_parameters_bind_what_was_predicted),
        cmocka_unit_test(each_gradient_has_a_workspace_of_its_own),
        cmocka_unit_test(a_batch_on_its_way_is_not_overwritten),
        cmocka_unit_test(the_mapping_holds_what_was_executed),
        cmocka_unit_test(two_plans_of_a_recipe_train_the_same_bits),
        cmocka_unit_test(micro_batches_of_whole_tiles_train_the_same_bits),
        cmocka_unit_test(a_bf16_gradient_is_the_fp32_one_rounded_once),
        cmocka_unit_test(tf32_trains_nearly_as_fp32_does),
        cmocka_unit_test(an_odd_vocabulary_has_padded_rows_on_a_card),
        cmocka_unit_test(a_plan_survives_its_file),
        cmocka_unit_test(a_deep_model_adds_only_instance_rows_to_the_file),
        cmocka_unit_test(a_budget_of_the_least_fits_and_one_byte_less_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
