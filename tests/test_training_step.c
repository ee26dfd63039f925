/* One lowering, two consumers: the program of a whole training step is, for vplan's own semantics,
 * exactly what a plan executes; and for a second meaning, PyTorch's eager GPT-2 with AdamW, it has
 * the bytes that PyTorch asked for. */
#include "plan_test.h"

#include "tests/lowering/eager_gpt2.h"
#include "tests/lowering/torch_replay.h"
#include "tests/lowering/training_step.h"

/* ---- what is true of every program ---- */

static void check_lives(const vp_training_step *s)
{
    bool *alive = calloc((size_t)s->n_values + 1, sizeof *alive);

    for (int64_t v = 0; v < s->n_values; v++)
        alive[v] = s->values[v].born_op < 0;
    for (int64_t o = 0, e = 0; o < s->n_ops; o++) {
        for (; e < s->n_events && s->events[e].op == o && s->events[e].birth; e++) {
            assert_false(alive[s->events[e].value]);
            alive[s->events[e].value] = true;
        }
        for (int k = 0; k < s->ops[o].n_operands; k++)
            assert_true(s->ops[o].value[k] < 0 || alive[s->ops[o].value[k]]);
        for (; e < s->n_events && s->events[e].op == o; e++) {
            assert_false(s->events[e].birth);
            assert_true(alive[s->events[e].value]);
            alive[s->events[e].value] = false;
        }
    }
    for (int64_t v = 0; v < s->n_values; v++)
        assert_true(s->values[v].died_op < 0 ||
                    (!alive[v] && s->values[v].died_op >= s->values[v].born_op));
    free(alive);
}

/* ---- vplan's own ---- */

typedef struct comparison {
    const vp_training_step *step;
    int64_t                 n;
} comparison;

static vp_status compare_step(const vp_expanded_step *x, void *ctx, vp_err *err)
{
    comparison           *c  = ctx;
    const vp_training_op *op = &c->step->ops[c->n];

    (void)err;
    assert_true(c->n < c->step->n_ops);
    if (op->kernel != x->step->kernel || op->instance_idx != x->instance_idx ||
        op->micro_step != x->micro_step)
        fail_msg("step %lld: the plan has %s of instance %lld, the program %s of %lld",
                 (long long)x->idx, vp_kernel_info_of(x->step->kernel)->name,
                 (long long)x->instance_idx, op->name, (long long)op->instance_idx);
    c->n++;
    return VP_OK;
}

static void a_plan_executes_the_program_of_its_semantics(void **state)
{
    rng r = {20261122};

    (void)state;
    for (int i = 0; i < 6 * N_FAMILIES; i++) {
        char         config[800];
        vp_scenario  s     = {.recipe = vp_recipe_default(), .seq = 130, .micro_batch = 4};
        vp_recompute kind  = (vp_recompute)pick(&r, VP_N_RECOMPUTES);
        vp_arena    *arena = vp_arena_new();
        vp_model *model = model_of(random_config(&r, i % N_FAMILIES, config, sizeof config), 0.0);
        vp_training_step step;
        uint64_t         sets[64] = {0};

        s.global_batch     = s.micro_batch * (1 + pick(&r, 3));
        s.loss_chunk       = pick(&r, 2) ? VP_TILE_TOKENS : 0;
        s.recipe.precision = (vp_precision)pick(&r, n_precisions());
        s.attention        = pick(&r, 2) ? VP_ATTENTION_MATH : VP_ATTENTION_FLASH;
        vp_recipe_set_optimizer(&s.recipe, (vp_optimizer)pick(&r, VP_N_OPTIMIZERS));
        for (int64_t k = 1; k < model->graph.n_instances - 1; k++)
            sets[k] = vp_recompute_set(model, kind);
        vp_plan         *plan = plan_of(model, s, kind);
        vp_training_opts opts = {.symbols       = {s.micro_batch, s.seq, 1, 1},
                                 .n_micro_steps = s.global_batch / s.micro_batch,
                                 .recompute     = sets,
                                 .chunk_rows    = s.loss_chunk,
                                 .recipe        = &s.recipe};
        comparison       c    = {.step = &step};
        OK(vp_lower_training(arena, &model->graph, vp_semantics_of(&s.recipe, s.attention),
                             VP_TRAIN_LATER_STEP, &opts, &step, err));
        check_lives(&step);
        OK(vp_expand(plan, &plan->buckets[0], plan->buckets[0].n_micro_steps, compare_step, &c,
                     err));
        assert_int_equal(c.n, step.n_ops);
        vp_plan_free(plan);
        vp_model_free(model);
        vp_arena_free(arena);
    }
}

/* ---- a second meaning ---- */

/* GPT-2 of width 48, 3 heads, 2 blocks, 60 tokens, 1024 positions, bf16, dropout 0.1; 2 x 32 tokens. */
static vp_model *eager_gpt2(void)
{
    static const char text[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 48, \"n_layer\": 2, \"n_head\": 3, \"vocab_size\": 60, \"n_positions\": 1024}";
    vp_json_doc *doc;
    vp_model    *model;

    OK(vp_json_parse("hf", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    OK(vp_model_from_config("hf", &root, &(vp_model_opts){.dropout_from_config = true}, &model,
                            err));
    vp_json_doc_free(doc);
    return model;
}

static vp_training_bytes eager(vp_arena *arena, const vp_model *model, vp_training_program program,
                               int64_t n_micro_steps, vp_training_step *step)
{
    vp_recipe         recipe = vp_recipe_default();
    vp_training_opts  opts   = {.symbols       = {2, 32, 1, 1},
                                .n_micro_steps = n_micro_steps,
                                .in_dtype      = VP_DTYPE_BF16,
                                .recipe        = &recipe};
    vp_training_bytes bytes;

    recipe.clip_norm = 0;
    OK(vp_lower_training(arena, &model->graph, &vp_torch_eager_gpt2_bf16, program, &opts, step,
                         err));
    check_lives(step);
    vp_training_count(step, &bytes);
    return bytes;
}

/* What PyTorch 2.11 asked its allocator for, cuBLAS's workspaces aside: tests/oracles/eager_step.py. */
enum {
    PARAMETERS     = 217344, /* 108,672 numbers of 2 bytes                                       */
    BATCH          = 512,    /* ids: 64 of 8 bytes; labels are the same tensor                   */
    LATER_FORWARD  = 1044536,
    LATER_BACKWARD = 869892,
    UPDATE_MOST    = 1087232,
    AFTER_ZERO     = 652544
};

static void an_eager_step_has_the_bytes_that_pytorch_asked_for(void **state)
{
    vp_arena         *arena = vp_arena_new();
    vp_model         *model = eager_gpt2();
    vp_training_step  step;
    vp_training_bytes load  = eager(arena, model, VP_TRAIN_LOAD, 1, &step);
    vp_training_bytes first = eager(arena, model, VP_TRAIN_FIRST_STEP, 1, &step);
    vp_training_bytes later = eager(arena, model, VP_TRAIN_LATER_STEP, 1, &step);
    /* of the batch the program has ids and labels, here one tensor */
    int64_t twice = BATCH, n = 64;

    (void)state;
    assert_int_equal(load.before, 0);
    assert_int_equal(load.end[VP_TPHASE_LOAD], PARAMETERS);
    assert_int_equal(load.most[VP_TPHASE_LOAD], PARAMETERS); /* no gradient before backward */
    assert_int_equal(first.before, PARAMETERS + BATCH + twice);
    assert_int_equal(later.before - twice, AFTER_ZERO);
    /* Saved: 58h + 16 + 4a a token and block (test_lower.c); the embedding's dropout mask h; the
     * last norm's input, output and statistics 4h + 8; the loss's log-softmax 4V. What PyTorch has
     * more: position ids 256, shifted labels 512, the sum of the loss's weights 4, the random states
     * that attention and dropout are given, 48 in all, and the loss, which the loop keeps, 4. */
    assert_int_equal(later.end[VP_TPHASE_FORWARD] - later.before,
                     2 * n * (58 * 48 + 16 + 4 * 3) + n * (48 + 4 * 48 + 8) + n * 4 * 60);
    assert_int_equal(LATER_FORWARD - (later.end[VP_TPHASE_FORWARD] - twice),
                     256 + 512 + 4 + 48 + 4);
    /* the loss is kept by the loop; the program lets it go */
    assert_int_equal(later.end[VP_TPHASE_BACKWARD] - twice, LATER_BACKWARD - 4);
    assert_int_equal(first.end[VP_TPHASE_BACKWARD] - twice, 2 * PARAMETERS + BATCH);
    /* foreach: a denominator for every parameter at once */
    assert_int_equal(later.most[VP_TPHASE_UPDATE] - twice, UPDATE_MOST);
    assert_int_equal(first.most[VP_TPHASE_UPDATE] - twice, UPDATE_MOST);
    assert_int_equal(later.end[VP_TPHASE_ZERO] - twice, AFTER_ZERO);
    assert_int_equal(first.end[VP_TPHASE_ZERO] - twice, AFTER_ZERO);
    vp_model_free(model);
    vp_arena_free(arena);
}

/* Under autocast the parameters are the masters: 108,672 numbers of 4 bytes, and none beside them. */
static void autocast_has_no_masters_beside_its_parameters(void **state)
{
    vp_arena        *arena  = vp_arena_new();
    vp_model        *model  = eager_gpt2();
    vp_recipe        recipe = vp_recipe_default();
    vp_training_opts opts   = {
          .symbols = {2, 32, 1, 1}, .n_micro_steps = 1, .in_dtype = VP_DTYPE_F32, .recipe = &recipe};
    vp_training_step  step;
    vp_training_bytes load;

    (void)state;
    recipe.clip_norm = 0;
    recipe.precision = VP_PREC_BF16_MIXED;
    OK(vp_lower_training(arena, &model->graph, &vp_torch_eager_gpt2_autocast, VP_TRAIN_LOAD, &opts,
                         &step, err));
    vp_training_count(&step, &load);
    assert_int_equal(load.end[VP_TPHASE_LOAD], 2 * PARAMETERS);
    vp_model_free(model);
    vp_arena_free(arena);
}

/* The same programs through PyTorch's allocator, which rounds every block to 512 bytes. Allocated
 * bytes as PyTorch counted them in the same run, cuBLAS's workspaces of 18,087,936 bytes aside; the
 * program's labels are a tensor of their own, 512 bytes more. */
static void replayed_through_pytorchs_allocator_it_has_pytorchs_allocated_bytes(void **state)
{
    static const vp_training_program programs[] = {VP_TRAIN_LOAD, VP_TRAIN_FIRST_STEP,
                                                   VP_TRAIN_LATER_STEP, VP_TRAIN_LATER_STEP};
    const int64_t                    WORKSPACES = 18087936, LABELS = 512;
    vp_arena                        *arena = vp_arena_new();
    vp_model                        *model = eager_gpt2();
    vp_caching_allocator            *allocator;
    vp_caching_allocator_opts        opts = {0};
    vp_torch_replay                 *replay;
    vp_torch_phase                   phases[4][VP_N_TPHASES];

    (void)state;
    OK(vp_caching_allocator_new(&opts, &allocator, err));
    OK(vp_torch_replay_new(allocator, &replay, err));
    for (int i = 0; i < 4; i++) {
        vp_training_step step;
        eager(arena, model, programs[i], 1, &step);
        OK(vp_torch_replay_play(replay, &step, phases[i], err));
    }
    assert_int_equal(phases[0][VP_TPHASE_LOAD].allocated_end_bytes, 224256);
    for (int i = 1; i < 4; i++) {
        const vp_torch_phase *p = phases[i];
        assert_int_equal(p[VP_TPHASE_UPDATE].allocated_most_bytes, 19209728 - WORKSPACES + LABELS);
        assert_int_equal(p[VP_TPHASE_UPDATE].allocated_end_bytes, 18985472 - WORKSPACES + LABELS);
        assert_int_equal(p[VP_TPHASE_ZERO].allocated_end_bytes, 18761216 - WORKSPACES + LABELS);
        /* with the loss, which the loop keeps */
        assert_int_equal(p[VP_TPHASE_BACKWARD].allocated_end_bytes + 512,
                         (i == 1 ? 18537472 : 18985984) - WORKSPACES + LABELS);
    }
    assert_int_equal(phases[3][VP_TPHASE_ZERO].reserved_end_bytes,
                     phases[2][VP_TPHASE_ZERO].reserved_end_bytes);
    vp_torch_replay_free(replay);
    assert_int_equal(vp_caching_allocator_figures(allocator)->allocated_bytes.now, 0);
    vp_caching_allocator_destroy(allocator);
    vp_model_free(model);
    vp_arena_free(arena);
}

/* Of two micro-steps, the second's gradients are made beside the first's, added and freed. */
static void accumulated_gradients_are_made_added_and_freed(void **state)
{
    vp_arena         *arena = vp_arena_new();
    vp_model         *model = eager_gpt2();
    vp_training_step  step;
    vp_training_bytes two   = eager(arena, model, VP_TRAIN_LATER_STEP, 2, &step);
    int64_t           added = 0, n_params = 0;

    (void)state;
    for (int64_t o = 0; o < step.n_ops; o++)
        added +=
            strcmp(step.ops[o].name, "accumulate gradient") == 0 && step.ops[o].micro_step == 1;
    for (int64_t i = 0; i < model->graph.n_instances; i++)
        n_params += model->graph.templates[model->graph.instances[i].template_idx].n_params;
    /* each parameter once, and the tied embedding once more */
    assert_int_equal(added, n_params + 1);
    assert_int_equal(two.end[VP_TPHASE_BACKWARD] - two.before, PARAMETERS);
    vp_model_free(model);
    vp_arena_free(arena);
}

static void evaluation_keeps_nothing(void **state)
{
    vp_arena         *arena = vp_arena_new();
    vp_model         *model = eager_gpt2();
    vp_training_step  step;
    vp_training_bytes b      = eager(arena, model, VP_TRAIN_EVALUATION, 1, &step);
    vp_recipe         recipe = vp_recipe_default();
    vp_training_opts  opts   = {.symbols = {2, 32, 1, 1}, .n_micro_steps = 1, .recipe = &recipe};
    vp_err            err    = {0};

    (void)state;
    assert_int_equal(b.end[VP_TPHASE_ZERO], b.before);
    assert_true(b.most[VP_TPHASE_FORWARD] > b.before);
    /* what a semantics cannot do is an error, not another number */
    assert_int_equal(vp_lower_training(arena, &model->graph, &vp_semantics_vplan_fp32,
                                       VP_TRAIN_EVALUATION, &opts, &step, &err),
                     VP_ERR_INPUT);
    err = (vp_err){0};
    assert_int_equal(vp_lower_training(arena, &model->graph, &vp_torch_eager_gpt2_bf16,
                                       VP_TRAIN_LATER_STEP, &opts, &step, &err),
                     VP_ERR_INPUT); /* clipping */
    err              = (vp_err){0};
    recipe.clip_norm = 0;
    vp_recipe_set_optimizer(&recipe, VP_OPT_LION);
    assert_int_equal(vp_lower_training(arena, &model->graph, &vp_torch_eager_gpt2_bf16,
                                       VP_TRAIN_LATER_STEP, &opts, &step, &err),
                     VP_ERR_INPUT);
    vp_model_free(model);
    vp_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_executes_the_program_of_its_semantics),
        cmocka_unit_test(an_eager_step_has_the_bytes_that_pytorch_asked_for),
        cmocka_unit_test(autocast_has_no_masters_beside_its_parameters),
        cmocka_unit_test(replayed_through_pytorchs_allocator_it_has_pytorchs_allocated_bytes),
        cmocka_unit_test(accumulated_gradients_are_made_added_and_freed),
        cmocka_unit_test(evaluation_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
