/* Adapters beside a frozen model: against peft, and the same bits however a plan cuts the step.
 * tests/golden/README.md says where the numbers are from. Tolerances in fp32 are those of the other
 * goldens: losses 1e-6 (5e-6 after steps), gradients 2e-5 of a tensor's largest element, adapters after
 * three steps 2e-5 where the clipped gradient is above 1e-6. */
#include "base/file.h"
#include "base/safetensors.h"
#include "lora_test.h"
#include "models/lora.h"
#include "plan_test.h"

#include <math.h>

static vp_model *adapted_model(const char *text, const vp_lora *lora)
{
    vp_model *model = NULL;

    OK(try_model(text, lora, &model, err));
    return model;
}

static const char LLAMA[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 32, "
    "\"intermediate_size\": 48, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"vocab_size\": 61, \"max_position_embeddings\": 128}";

/* ---- the graph ---- */

/* q 32 x 32, v 16 x 32, rank 4: a block gains 4 (32 + 32) + 4 (32 + 16) = 448 elements. */
static void adapters_stand_beside_the_named_layers_and_all_else_is_frozen(void **state)
{
    vp_lora   l     = lora_of(4, 8, "q_proj+v_proj");
    vp_model *model = adapted_model(LLAMA, &l), *plain = model_of(LLAMA, 0);
    int       n = 0;

    (void)state;
    assert_int_equal(model->n_trained, 3 * 448);
    assert_int_equal(model->n_params, plain->n_params + 3 * 448);
    assert_int_equal(plain->n_trained, plain->n_params);
    for (int64_t t = 0; t < model->graph.n_templates; t++)
        for (int64_t k = 0; k < model->graph.templates[t].n_params; k++) {
            const vp_param *p = &model->graph.templates[t].params[k];
            assert_int_equal(p->frozen, vp_lora_freezes(&l, p->name));
            n += !p->frozen;
        }
    assert_int_equal(n, 4);
    vp_model_free(plain);
    vp_model_free(model);
}

static void a_target_that_names_nothing_and_a_classifier_are_refused(void **state)
{
    vp_lora   l     = lora_of(4, 8, "q_proj+query");
    vp_model *model = NULL;
    vp_err    err   = {0};

    (void)state;
    assert_int_equal(try_model(LLAMA, &l, &model, &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "\"query\"; it has q_proj, k_proj, v_proj, o_proj"));
    l   = lora_of(4, 8, "all-linear");
    err = (vp_err){0};
    assert_int_equal(try_model("{\"model_type\": \"llama\", \"architectures\": "
                               "[\"LlamaForSequenceClassification\"], \"hidden_size\": 32, "
                               "\"intermediate_size\": 48, \"num_hidden_layers\": 3, "
                               "\"num_attention_heads\": 4, \"vocab_size\": 61}",
                               &l, &model, &err),
                     VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "LlamaForSequenceClassification"));
}

/* ---- what a plan holds ---- */

static vp_scenario scenario(const vp_lora *lora, vp_precision precision)
{
    vp_scenario s = {.recipe = vp_recipe_default(), .seq = 24, .global_batch = 4, .micro_batch = 2};

    s.recipe.precision = precision;
    s.recipe.lora      = *lora;
    return s;
}

/* Bytes of all buffers of a component that live from step to step. */
static int64_t held(const vp_plan *plan, vp_region region)
{
    const vp_bucket *b     = &plan->buckets[0];
    int64_t          bytes = 0;

    for (int64_t i = 0; i < b->n_instances; i++) {
        const vp_plan_template *t =
            &plan->templates[b->programs[b->instances[i].program_idx].template_idx];
        for (int64_t k = 0; k < t->n_params; k++)
            bytes += vp_plan_param_bytes(&plan->recipe, &t->params[k].param, region);
    }
    return bytes;
}

/* bf16-mixed: 2 bytes of every parameter; a gradient, a master and two states of 4 bytes each of the 3 x
 * 448 trained elements only. Of a frozen linear there is no product that makes its weight's gradient, of
 * the frozen embedding no backward step at all. */
static void frozen_weights_have_neither_gradients_nor_masters_nor_states(void **state)
{
    vp_lora          l     = lora_of(4, 8, "q_proj+v_proj");
    vp_model        *model = adapted_model(LLAMA, &l);
    vp_plan         *plan  = plan_of(model, scenario(&l, VP_PREC_BF16_MIXED), VP_RECOMPUTE_NONE);
    const vp_bucket *b     = &plan->buckets[0];
    int              n_weights = 0;

    (void)state;
    assert_int_equal(held(plan, VP_REGION_PARAM), 2 * model->n_params);
    for (int region = VP_REGION_GRAD; region < VP_N_REGIONS; region++)
        assert_int_equal(held(plan, (vp_region)region), 4 * 3 * 448);
    assert_int_equal(b->programs[b->instances[0].program_idx].n_steps[VP_PASS_BACKWARD], 0);
    const vp_program *block = &b->programs[b->instances[1].program_idx];
    for (int64_t i = 0; i < block->n_steps[VP_PASS_BACKWARD]; i++) {
        const vp_step *s = &block->steps[VP_PASS_BACKWARD][i];
        n_weights += s->kernel == VP_K_LINEAR_BWD_WEIGHT;
        if (s->kernel == VP_K_RMSNORM_BWD)
            assert_int_equal(s->args[VP_RMSNORM_BWD_D_GAMMA].space, VP_SPACE_NONE);
    }
    assert_int_equal(n_weights, 4);
    vp_plan_free(plan);
    vp_model_free(model);
}

/* Of 2 x 32 = 64 tokens in fp32 a block whose q and v are adapted keeps: x 32; the norm's output 32 and rstd
 * 1, for A's gradients; q 32 and k 16 turned, v 16, attention's output 32 and 4 log-sum-exps; the sum 32
 * and rstd 1; gate 48 and up 48; h of q 4 and of v 4: 302 floats a token. Trained whole it also keeps what
 * the weights' gradients read, the second norm's output 32 and the product 48; but no h. */
static void what_only_gradients_of_frozen_weights_read_is_not_kept(void **state)
{
    vp_lora     l     = lora_of(4, 8, "q_proj+v_proj");
    vp_model   *model = adapted_model(LLAMA, &l), *whole = model_of(LLAMA, 0);
    vp_scenario s = scenario(&l, VP_PREC_FP32);
    vp_plan    *plan, *other;

    (void)state;
    s.seq         = 32;
    plan          = plan_of(model, s, VP_RECOMPUTE_NONE);
    s.recipe.lora = (vp_lora){0};
    other         = plan_of(whole, s, VP_RECOMPUTE_NONE);
    assert_int_equal(plan->buckets[0].programs[1].kept_bytes, 64 * 4 * 302);
    assert_int_equal(other->buckets[0].programs[1].kept_bytes, 64 * 4 * (302 - 8 + 80));
    vp_plan_free(plan);
    vp_plan_free(other);
    vp_model_free(model);
    vp_model_free(whole);
}

/* ---- against peft ---- */

typedef struct golden {
    char            dir[300];
    vp_lora         lora;
    vp_model       *model;
    vp_safetensors *expect;
    int32_t         tokens[64], labels[64];
} golden;

static void *tensor(const vp_safetensors *file, const char *prefix, const char *name, int64_t *n)
{
    char                  full[300];
    const vp_tensor_info *t;

    snprintf(full, sizeof full, "%s%s", prefix, name);
    t = vp_safetensors_find(file, full);
    if (!t)
        fail_msg("no tensor %s", full);
    *n        = t->n_elements;
    void *out = malloc((size_t)t->n_elements * 8);
    OK(vp_safetensors_read(file, t, 0, t->n_elements, out, err));
    return out;
}

static vp_lora read_lora(const char *dir)
{
    vp_lora      l = {.alpha = 8};
    vp_json_doc *doc;
    char         path[400];
    size_t       k;
    json_t      *module;

    snprintf(path, sizeof path, "%s/golden.json", dir);
    OK(vp_json_read(path, VP_JSON_MAX_BYTES, &doc, err));
    json_t *x = json_object_get(vp_json_root(doc).value, "lora"),
           *t = json_object_get(x, "target_modules");
    l.rank    = json_integer_value(json_object_get(x, "r"));
    l.alpha   = json_number_value(json_object_get(x, "lora_alpha"));
    l.rslora  = json_is_true(json_object_get(x, "use_rslora"));
    snprintf(l.targets, sizeof l.targets, "%s", json_is_string(t) ? json_string_value(t) : "");
    json_array_foreach (t, k, module)
        snprintf(l.targets + strlen(l.targets), sizeof l.targets - strlen(l.targets), "%s%s",
                 k ? "+" : "", json_string_value(module));
    vp_json_doc_free(doc);
    return l;
}

static golden open_golden(const char *name)
{
    golden          g = {.model = NULL};
    vp_safetensors *batch;
    char            path[400];
    int64_t         n, *ids, *labels;

    snprintf(g.dir, sizeof g.dir, "tests/golden/lora/%s", name);
    g.lora = read_lora(g.dir);
    OK(vp_model_open(g.dir, &(vp_model_opts){.lora = &g.lora}, &g.model, err));
    snprintf(path, sizeof path, "%s/expect.safetensors", g.dir);
    OK(vp_safetensors_open(path, &g.expect, err));
    snprintf(path, sizeof path, "%s/batch.safetensors", g.dir);
    OK(vp_safetensors_open(path, &batch, err));
    ids    = tensor(batch, "", "input_ids", &n);
    labels = tensor(batch, "", "labels", &n);
    assert_int_equal(n, 64); /* 2 samples of 32; transformers shifts labels itself */
    for (int64_t i = 0; i < n; i++) {
        g.tokens[i] = (int32_t)ids[i];
        g.labels[i] = (i + 1) % 32 ? (int32_t)labels[i + 1] : VP_IGNORE_LABEL;
    }
    free(ids);
    free(labels);
    vp_safetensors_close(batch);
    return g;
}

static void close_golden(golden *g)
{
    vp_model_free(g->model);
    vp_safetensors_close(g->expect);
}

static void check_gradients(const golden *g, const vp_runtime *rt)
{
    for (int64_t k = 0; k < vp_runtime_n_params(rt); k++) {
        vp_runtime_param p;
        int64_t          n;
        double           largest = 0;
        vp_runtime_param_at(rt, k, &p);
        if (p.param->frozen)
            continue;
        float *want = tensor(g->expect, "grad.", p.name, &n);
        float *grad = malloc((size_t)n * sizeof *grad);
        assert_int_equal(n, p.param->n_elements);
        OK(vp_runtime_grad_get(&p, 0, n, grad, err));
        for (int64_t i = 0; i < n; i++)
            largest = fmax(largest, fabs((double)want[i]));
        for (int64_t i = 0; i < n; i++)
            if (fabs((double)grad[i] - (double)want[i]) > 2e-5 * largest)
                fail_msg("%s[%lld]: gradient %.9g, peft %.9g, largest %.9g", p.name, (long long)i,
                         (double)grad[i], (double)want[i], largest);
        free(want);
        free(grad);
    }
}

static void check_adapters(const golden *g, const vp_runtime *rt, double clip)
{
    for (int64_t k = 0; k < vp_runtime_n_params(rt); k++) {
        vp_runtime_param p;
        int64_t          n;
        vp_runtime_param_at(rt, k, &p);
        if (p.param->frozen)
            continue;
        float *want = tensor(g->expect, "step3.", p.name, &n),
              *grad = tensor(g->expect, "grad.", p.name, &n);
        float *now  = malloc((size_t)n * sizeof *now);
        OK(vp_runtime_param_get(&p, 0, n, now, err));
        for (int64_t i = 0; i < n; i++) {
            double tolerance = fabs((double)grad[i]) * clip > 1e-6 ? 2e-5 : 3e-3;
            if (fabs((double)now[i] - (double)want[i]) > tolerance)
                fail_msg("%s[%lld]: %.9g after 3 steps, peft %.9g", p.name, (long long)i,
                         (double)now[i], (double)want[i]);
        }
        free(want);
        free(grad);
        free(now);
    }
}

static vp_runtime *runtime_of(const golden *g, const vp_plan *plan)
{
    vp_run_opts    opts = {.n_total_steps = 4, .seed = -1};
    vp_load_report loaded;
    vp_runtime    *rt;

    OK(vp_runtime_new(plan, test_backend(), &opts, &rt, err));
    OK(vp_runtime_load(rt, g->dir, &loaded, err));
    assert_true(loaded.n_drawn == 0 && loaded.n_unused == 0);
    return rt;
}

static vp_plan *golden_plan(const golden *g, vp_precision precision, int64_t micro_batch,
                            vp_recompute recompute)
{
    vp_scenario s  = scenario(&g->lora, precision);
    s.seq          = 32;
    s.global_batch = 2;
    s.micro_batch  = micro_batch;
    return plan_of(g->model, s, recompute);
}

static void check_fp32(const char *name, int64_t micro_batch, vp_recompute recompute)
{
    golden         g     = open_golden(name);
    vp_plan       *plan  = golden_plan(&g, VP_PREC_FP32, micro_batch, recompute);
    vp_runtime    *rt    = runtime_of(&g, plan);
    vp_batch       batch = {.tokens = g.tokens, .labels = g.labels};
    vp_step_result r;
    int64_t        n;
    double        *losses = tensor(g.expect, "", "losses", &n),
           *norms         = tensor(g.expect, "", "grad_norms", &n);

    for (int64_t step = 0; step < 4; step++) {
        OK(vp_runtime_step(rt, &batch, &r, err));
        if (fabs(r.loss - losses[step]) > (step ? 5e-6 : 1e-6) * losses[step])
            fail_msg("%s step %lld: loss %.9g, peft %.9g", name, (long long)step, r.loss,
                     losses[step]);
        if (step == 3)
            break;
        assert_true(fabs(r.grad_norm - norms[step]) <= 1e-5 * norms[step]);
        if (step == 0)
            check_gradients(&g, rt);
        if (step == 2)
            check_adapters(&g, rt, fmin(1.0, 1.0 / (norms[0] + 1e-6)));
    }
    free(losses);
    free(norms);
    vp_runtime_free(rt);
    vp_plan_free(plan);
    close_golden(&g);
}

static const char *const names[] = {"llama", "gpt2", "qwen2", "gpt_neox"};
#define COUNT(list) ((int)(sizeof list / sizeof *list))

static void adapters_train_as_pefts_do(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(names); i++) {
        check_fp32(names[i], 2, VP_RECOMPUTE_NONE);
        check_fp32(names[i], 1, VP_RECOMPUTE_FULL);
    }
}

/* Both round each activation to bf16, 2^-9 of it, in other places: torch rounds what comes through the
 * adapters before it is added. Losses, means over 50 tokens, were within 3e-4 of float64, norms within
 * 3e-3, on torch's side (golden.json). */
static void in_bf16_they_train_as_pefts_do_under_autocast(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(names); i++) {
        golden         g     = open_golden(names[i]);
        vp_plan       *plan  = golden_plan(&g, VP_PREC_BF16_MIXED, 2, VP_RECOMPUTE_NONE);
        vp_runtime    *rt    = runtime_of(&g, plan);
        vp_batch       batch = {.tokens = g.tokens, .labels = g.labels};
        vp_step_result r;
        int64_t        n;
        double        *losses = tensor(g.expect, "", "losses_bf16", &n),
               *norms         = tensor(g.expect, "", "grad_norms_bf16", &n);

        for (int64_t step = 0; step < 3; step++) {
            OK(vp_runtime_step(rt, &batch, &r, err));
            if (fabs(r.loss - losses[step]) > 0x1p-10 * losses[step] ||
                fabs(r.grad_norm - norms[step]) > 0x1p-7 * norms[step])
                fail_msg("%s step %lld: loss %.6f, norm %.5f; peft %.6f, %.5f", names[i],
                         (long long)step, r.loss, r.grad_norm, losses[step], norms[step]);
        }
        free(losses);
        free(norms);
        vp_runtime_free(rt);
        vp_plan_free(plan);
        close_golden(&g);
    }
}

/* ---- what is saved ---- */

static float *read_floats(const char *dir, const char *file, const char *name, int64_t *n,
                          vp_st_dtype *dtype)
{
    vp_safetensors *f;
    char            path[400];

    snprintf(path, sizeof path, "%s/%s", dir, file);
    OK(vp_safetensors_open(path, &f, err));
    const vp_tensor_info *t = vp_safetensors_find(f, name);
    assert_non_null(t);
    *n         = t->n_elements;
    *dtype     = t->dtype;
    float *out = malloc((size_t)*n * sizeof *out);
    OK(vp_safetensors_read_f32(f, t, 0, *n, out, err));
    vp_safetensors_close(f);
    return out;
}

/* Three steps, then both folders; the weights of the merged one against peft's merge_and_unload(). */
static void the_merged_model_is_pefts(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(names); i++) {
        golden         g     = open_golden(names[i]);
        vp_plan       *plan  = golden_plan(&g, VP_PREC_FP32, 2, VP_RECOMPUTE_NONE);
        vp_runtime    *rt    = runtime_of(&g, plan);
        vp_batch       batch = {.tokens = g.tokens, .labels = g.labels};
        vp_step_result r;
        vp_st_dtype    dtype;
        int64_t        n, m, n_merged = 0;

        for (int64_t step = 0; step < 3; step++)
            OK(vp_runtime_step(rt, &batch, &r, err));
        OK(vp_runtime_save_merged(rt, "build/test_lora_merged", true, err));
        for (int64_t k = 0; k < vp_safetensors_count(g.expect); k++) {
            const char *name = vp_safetensors_at(g.expect, k)->name;
            if (strncmp(name, "merged.", 7) != 0)
                continue;
            float *want = tensor(g.expect, "", name, &n);
            float *have =
                read_floats("build/test_lora_merged", "model.safetensors", name + 7, &m, &dtype);
            assert_true(n == m && dtype == VP_ST_F32);
            for (int64_t e = 0; e < n; e++)
                if (fabs((double)have[e] - (double)want[e]) > 4e-5)
                    fail_msg("%s %s[%lld]: %.9g, peft %.9g", names[i], name, (long long)e,
                             (double)have[e], (double)want[e]);
            n_merged++;
            free(want);
            free(have);
        }
        assert_true(n_merged >= 4);
        vp_runtime_free(rt);
        vp_plan_free(plan);
        close_golden(&g);
    }
}

/* Adapters are fp32 whatever the base is; a merged model keeps the base's bf16. Loaded again the run goes
 * on with the same adapters, bit for bit; another scale is refused. */
static void saved_adapters_load_again(void **state)
{
    const char    *dir = "build/test_lora_adapters", *to = "build/test_lora_merged";
    golden         g       = open_golden("llama");
    vp_plan       *plan    = golden_plan(&g, VP_PREC_BF16_MIXED, 2, VP_RECOMPUTE_NONE);
    vp_runtime    *rt      = runtime_of(&g, plan);
    vp_batch       batch   = {.tokens = g.tokens, .labels = g.labels};
    vp_err         refused = {0};
    vp_step_result r;
    vp_st_dtype    dtype;
    char           before[65], after[65];
    int64_t        n;

    (void)state;
    OK(vp_runtime_step(rt, &batch, &r, err));
    OK(vp_runtime_save(rt, dir, true, err));
    OK(vp_runtime_save_merged(rt, to, true, err));
    OK(vp_runtime_sha256(rt, before, err));
    vp_runtime_free(rt);
    free(read_floats(dir, "adapter_model.safetensors",
                     "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight", &n, &dtype));
    assert_int_equal(dtype, VP_ST_F32);
    free(read_floats(to, "model.safetensors", "model.layers.1.mlp.down_proj.weight", &n, &dtype));
    assert_int_equal(dtype, VP_ST_BF16);
    rt = runtime_of(&g, plan);
    OK(vp_runtime_load_adapters(rt, dir, err));
    OK(vp_runtime_sha256(rt, after, err));
    assert_string_equal(before, after);
    vp_runtime_free(rt);
    vp_plan_free(plan);
    vp_model_free(g.model);
    g.lora.alpha = 9;
    OK(vp_model_open(g.dir, &(vp_model_opts){.lora = &g.lora}, &g.model, err));
    plan = golden_plan(&g, VP_PREC_FP32, 2, VP_RECOMPUTE_NONE);
    OK(vp_runtime_new(plan, test_backend(), &(vp_run_opts){.n_total_steps = 1, .seed = -1}, &rt,
                      err));
    OK(vp_runtime_draw(rt, err));
    assert_int_equal(vp_runtime_load_adapters(rt, dir, &refused), VP_ERR_INPUT);
    assert_non_null(strstr(refused.message, "scaled by 2, the plan's by 2.25"));
    vp_runtime_free(rt);
    vp_plan_free(plan);
    close_golden(&g);
}

/* ---- the same bits ---- */

static void expect_same(const trained *a, const trained *b, const vp_plan *plan, const char *what)
{
    if (memcmp(a->params, b->params, (size_t)a->n_params * sizeof(float)) != 0)
        fail_msg("%s: other bits", what);
    assert_int_equal(b->memory.of[VP_MEMORY_DEVICE].executed_bytes, plan->peak_bytes);
}

static void recompute_segments_and_chunks_move_no_bit(void **state)
{
    rng r = {77};

    (void)state;
    for (int i = 0; i < (long_run() ? 400 : 3 * N_FAMILIES); i++) {
        vp_lora l;
        char    what[96];
        if (!is_decoder(i % N_FAMILIES))
            continue;
        vp_model   *model  = random_adapted(&r, i % N_FAMILIES, &l);
        vp_scenario s      = scenario(&l, (vp_precision)pick(&r, n_precisions()));
        s.recipe.optimizer = (vp_optimizer)pick(&r, VP_N_OPTIMIZERS);
        if (s.recipe.precision == VP_PREC_BF16_MIXED || s.recipe.precision == VP_PREC_BF16)
            s.recipe.gradients = (vp_gradients)pick(&r, VP_N_GRADIENTS);
        vp_plan *plain = plan_of(model, s, VP_RECOMPUTE_NONE), *other;
        trained  want  = train(plain, 3, 1, false), have;
        s.loss_chunk   = pick(&r, 2) ? 256 : 0;
        other          = random_plan(&r, model, s);
        have           = train(other, 3, 2, i % 4 == 0);
        snprintf(what, sizeof what, "model %d", i);
        expect_same(&want, &have, other, what);
        free(want.params);
        free(have.params);
        vp_plan_free(plain);
        vp_plan_free(other);
        vp_model_free(model);
    }
}

static void offload_moves_no_bit(void **state)
{
    rng r = {78};

    (void)state;
    for (int i = 0; i < (long_run() ? 300 : 2 * N_FAMILIES); i++) {
        vp_lora l;
        char    what[96];
        if (!is_decoder(i % N_FAMILIES))
            continue;
        vp_model   *model = random_adapted(&r, i % N_FAMILIES, &l);
        vp_scenario s     = scenario(&l, (vp_precision)pick(&r, n_precisions()));
        vp_plan    *plain = plan_of(model, s, VP_RECOMPUTE_NONE), *other;
        trained     want  = train(plain, 3, 1, false), have;
        s.offload.blocks  = i % 2 == 0 && vp_may_stream(&model->graph);
        s.offload.states =
            s.offload.blocks ? model->graph.n_instances : 1 + pick(&r, model->graph.n_instances);
        s.offload.host_step = pick(&r, 2);
        other               = plan_of(model, s, VP_RECOMPUTE_FULL);
        have                = train(other, 3, 1, i % 3 == 0);
        snprintf(what, sizeof what, "model %d, states %lld%s%s", i, (long long)s.offload.states,
                 s.offload.blocks ? ", streamed" : "", s.offload.host_step ? ", by the host" : "");
        expect_same(&want, &have, other, what);
        free(want.params);
        free(have.params);
        vp_plan_free(plain);
        vp_plan_free(other);
        vp_model_free(model);
    }
}

/* Frozen is frozen: after training every weight is what was drawn. */
static void training_leaves_frozen_weights_as_they_are(void **state)
{
    vp_lora     l     = lora_of(4, 8, "all-linear");
    vp_model   *model = adapted_model(LLAMA, &l);
    vp_plan    *plan  = plan_of(model, scenario(&l, VP_PREC_FP32), VP_RECOMPUTE_NONE);
    trained     have  = train(plan, 3, 1, true), want;
    vp_run_opts opts  = {.n_total_steps = 1, .seed = -1};
    vp_runtime *rt;
    int64_t     at = 0, changed = 0;

    (void)state;
    want.params = malloc((size_t)plan->n_params * sizeof(float));
    OK(vp_runtime_new(plan, test_backend(), &opts, &rt, err));
    OK(vp_runtime_draw(rt, err));
    for (int64_t k = 0; k < vp_runtime_n_params(rt); k++) {
        vp_runtime_param p;
        vp_runtime_param_at(rt, k, &p);
        OK(vp_runtime_param_get(&p, 0, p.param->n_elements, want.params, err));
        bool same =
            memcmp(want.params, have.params + at, (size_t)p.param->n_elements * sizeof(float)) == 0;
        assert_true(same == p.param->frozen);
        changed += !same;
        at += p.param->n_elements;
    }
    assert_int_equal(changed, 3 * 14);
    free(want.params);
    free(have.params);
    vp_runtime_free(rt);
    vp_plan_free(plan);
    vp_model_free(model);
}

/* ---- the checker ---- */

static vp_status check_edit(const vp_plan *plan, const char *from, const char *to, vp_err *err)
{
    json_t      *json   = vp_plan_to_json(plan);
    char        *text   = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)), *at;
    vp_json_doc *doc    = NULL;
    vp_plan     *read   = NULL;
    char        *edited = malloc(strlen(text) + strlen(to) + 1);
    vp_status    st     = VP_OK;

    at = strstr(text, from);
    assert_non_null(at);
    sprintf(edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    VP_TRY(vp_json_parse("edited", edited, (int64_t)strlen(edited), &doc, err));
    vp_json_node root = vp_json_root(doc);
    st                = vp_plan_from_json(&root, &read, err);
out:
    vp_plan_free(read);
    vp_json_doc_free(doc);
    free(edited);
    free(text);
    json_decref(json);
    return st;
}

static void a_plan_that_trains_otherwise_than_its_recipe_is_refused(void **state)
{
    static const char *const edits[][3] = {
        {"\"factor\":2.0", "\"factor\":1.5", "scales otherwise than the recipe"},
        {"\"frozen\":true", "\"frozen\":false", "the recipe says that it is frozen"},
        {"\"alpha\":8.0", "\"alpha\":9.0", "scales otherwise than the recipe"},
        {",\"lora\":{\"r\":4,\"alpha\":8.0,\"dropout\":0.0,\"rslora\":false,\"targets\":\"q_proj+v_proj\"}",
         "", "the recipe says that it is trained"},
    };
    vp_lora   l     = lora_of(4, 8, "q_proj+v_proj");
    vp_model *model = adapted_model(LLAMA, &l);
    vp_plan  *plan  = plan_of(model, scenario(&l, VP_PREC_FP32), VP_RECOMPUTE_NONE);

    (void)state;
    OK(check_edit(plan, "\"schema_version\"", "\"schema_version\"", err));
    for (int i = 0; i < COUNT(edits); i++) {
        vp_err err = {0};
        if (check_edit(plan, edits[i][0], edits[i][1], &err) != VP_ERR_INPUT ||
            !strstr(err.message, edits[i][2]))
            fail_msg("%s -> %s: \"%s\"", edits[i][0], edits[i][1], err.message);
    }
    vp_plan_free(plan);
    vp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_stand_beside_the_named_layers_and_all_else_is_frozen),
        cmocka_unit_test(a_target_that_names_nothing_and_a_classifier_are_refused),
        cmocka_unit_test(frozen_weights_have_neither_gradients_nor_masters_nor_states),
        cmocka_unit_test(what_only_gradients_of_frozen_weights_read_is_not_kept),
        cmocka_unit_test(adapters_train_as_pefts_do),
        cmocka_unit_test(in_bf16_they_train_as_pefts_do_under_autocast),
        cmocka_unit_test(the_merged_model_is_pefts),
        cmocka_unit_test(saved_adapters_load_again),
        cmocka_unit_test(recompute_segments_and_chunks_move_no_bit),
        cmocka_unit_test(offload_moves_no_bit),
        cmocka_unit_test(training_leaves_frozen_weights_as_they_are),
        cmocka_unit_test(a_plan_that_trains_otherwise_than_its_recipe_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
