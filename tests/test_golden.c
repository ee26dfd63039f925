/* Every family against transformers in float64: tests/golden/README.md says where the numbers
 * are from. VPLAN_GOLDENS names a folder with more of them. Tolerances are the golden's own:
 * loss 1e-6 relative (5e-6 after steps), each gradient within 2e-5 of its largest element,
 * parameters after 3 steps within 2e-5 where the clipped gradient is above 1e-6 and 3e-3
 * elsewhere. */
#include "base/safetensors.h"
#include "plan_test.h"

#include <dirent.h>
#include <math.h>

typedef struct golden {
    char            dir[300];
    vp_model       *model;
    vp_safetensors *expect;
    int64_t         n_samples, seq;
    int32_t        *tokens, *labels, *types, *lengths;
    json_t         *zero_gradient; /* names: zero in exact arithmetic */
    json_t         *outside;       /* names: there, but no part of the loss */
} golden;

static double *expected(const golden *g, const char *name, int64_t *n)
{
    const vp_tensor_info *t = vp_safetensors_find(g->expect, name);
    double               *x;

    assert_non_null(t);
    x = malloc((size_t)t->n_elements * sizeof *x);
    if (t->dtype == VP_ST_F64) {
        OK(vp_safetensors_read(g->expect, t, 0, t->n_elements, x, err));
    } else {
        float *f = malloc((size_t)t->n_elements * sizeof *f);
        OK(vp_safetensors_read_f32(g->expect, t, 0, t->n_elements, f, err));
        for (int64_t i = 0; i < t->n_elements; i++)
            x[i] = f[i];
        free(f);
    }
    *n = t->n_elements;
    return x;
}

/* A tensor of the batch as int32; NULL: not there. */
static int32_t *read_ids(vp_safetensors *batch, const char *name)
{
    const vp_tensor_info *t = vp_safetensors_find(batch, name);
    int64_t              *x;
    int32_t              *ids;

    if (!t)
        return NULL;
    x   = malloc((size_t)t->n_elements * sizeof *x);
    ids = malloc((size_t)t->n_elements * sizeof *ids);
    OK(vp_safetensors_read(batch, t, 0, t->n_elements, x, err));
    for (int64_t i = 0; i < t->n_elements; i++)
        ids[i] = (int32_t)x[i];
    free(x);
    return ids;
}

/* A causal model scores position t against label t + 1; transformers shifts, vplan is given
 * shifted labels. */
static void shift_labels(golden *g)
{
    for (int64_t i = 0; i < g->n_samples * g->seq; i++)
        g->labels[i] = (i + 1) % g->seq ? g->labels[i + 1] : VP_IGNORE_LABEL;
}

/* transformers has one label a sample; here it stands at the first token of the sample, or the
 * last that is no padding. */
static void place_labels(golden *g)
{
    int32_t *placed = malloc((size_t)(g->n_samples * g->seq) * sizeof *placed);
    int64_t  pad    = json_integer_value(json_object_get(g->model->config, "pad_token_id"));

    for (int64_t i = 0; i < g->n_samples; i++) {
        int64_t at = g->model->graph.label_place == VP_LABEL_AT_FIRST ? 0 : g->seq - 1;
        while (at > 0 && g->tokens[i * g->seq + at] == pad)
            at--;
        for (int64_t k = 0; k < g->seq; k++)
            placed[i * g->seq + k] = k == at ? g->labels[i] : VP_IGNORE_LABEL;
    }
    free(g->labels);
    g->labels = placed;
}

/* A mask of ones, then zeros, as lengths. */
static void count_lengths(golden *g, const int32_t *mask)
{
    g->lengths = calloc((size_t)g->n_samples, sizeof *g->lengths);
    for (int64_t i = 0; i < g->n_samples * g->seq; i++) {
        assert_true(mask[i] == 0 || i % g->seq == g->lengths[i / g->seq]);
        g->lengths[i / g->seq] += mask[i];
    }
}

static golden open_golden(const char *dir)
{
    golden          g = {0};
    vp_safetensors *batch;
    vp_json_doc    *doc;
    int32_t        *mask;
    char            path[400];

    snprintf(g.dir, sizeof g.dir, "%s", dir);
    OK(vp_model_open(g.dir, &(vp_model_opts){0}, &g.model, err));
    snprintf(path, sizeof path, "%s/golden.json", g.dir);
    OK(vp_json_read(path, VP_JSON_MAX_BYTES, &doc, err));
    g.zero_gradient = json_deep_copy(json_object_get(vp_json_root(doc).value, "zero_gradient"));
    g.outside       = json_deep_copy(json_object_get(vp_json_root(doc).value, "not_in_the_graph"));
    vp_json_doc_free(doc);
    snprintf(path, sizeof path, "%s/expect.safetensors", g.dir);
    OK(vp_safetensors_open(path, &g.expect, err));
    snprintf(path, sizeof path, "%s/batch.safetensors", g.dir);
    OK(vp_safetensors_open(path, &batch, err));
    g.n_samples = vp_safetensors_find(batch, "input_ids")->shape[0];
    g.seq       = vp_safetensors_find(batch, "input_ids")->shape[1];
    g.tokens    = read_ids(batch, "input_ids");
    g.labels    = read_ids(batch, "labels");
    if (g.model->graph.types_span >= 0)
        g.types = read_ids(batch, "token_type_ids");
    mask = read_ids(batch, "attention_mask");
    if (mask && g.model->graph.lengths_span >= 0)
        count_lengths(&g, mask);
    free(mask);
    if (g.model->head == VP_HEAD_SEQUENCE)
        place_labels(&g);
    if (g.model->head == VP_HEAD_NEXT_TOKEN)
        shift_labels(&g);
    vp_safetensors_close(batch);
    return g;
}

static void close_golden(golden *g)
{
    vp_model_free(g->model);
    vp_safetensors_close(g->expect);
    json_decref(g->zero_gradient);
    json_decref(g->outside);
    free(g->tokens);
    free(g->labels);
    free(g->types);
    free(g->lengths);
}

static void check_loss(const golden *g, double loss, int64_t step)
{
    int64_t n;
    double *losses = expected(g, "losses", &n);

    assert_true(fabs(loss - losses[step]) <= (step ? 5e-6 : 1e-6) * losses[step]);
    free(losses);
}

static bool is_in(const json_t *names, const char *name)
{
    size_t  k;
    json_t *entry;

    json_array_foreach (names, k, entry)
        if (strcmp(json_string_value(entry), name) == 0)
            return true;
    return false;
}

/* A key bias without rotation: zero in exact arithmetic, noise divided by noise in AdamW. */
static bool is_zero(const golden *g, const char *name, int64_t i)
{
    int64_t h = g->model->graph.hidden;

    return is_in(g->zero_gradient, name) ||
           (strstr(name, "attn.c_attn.bias") && i >= h && i < 2 * h);
}

/* The name under which transformers saves a parameter. */
static const char *saved_name(const golden *g, const char *prefix, const char *name, char *buf,
                              size_t buf_size)
{
    static const char *const renamed[][2] = {{"lm_head.weight", "embed_out.weight"}};

    snprintf(buf, buf_size, "%s%s", prefix, name);
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed && !vp_safetensors_find(g->expect, buf);
         i++)
        if (strcmp(name, renamed[i][0]) == 0)
            snprintf(buf, buf_size, "%s%s", prefix, renamed[i][1]);
    return buf;
}

static double largest_gradient(const golden *g, const vp_runtime *rt)
{
    double largest = 0;

    for (int64_t k = 0; k < vp_runtime_n_params(rt); k++) {
        vp_runtime_param p;
        char             name[200];
        int64_t          n;
        vp_runtime_param_at(rt, k, &p);
        if (is_in(g->outside, p.name))
            continue;
        double *want = expected(g, saved_name(g, "grad.", p.name, name, sizeof name), &n);
        for (int64_t i = 0; i < n; i++)
            largest = fmax(largest, fabs(want[i]));
        free(want);
    }
    return largest;
}

static void check_gradients(const golden *g, const vp_runtime *rt)
{
    double of_model = largest_gradient(g, rt);

    for (int64_t k = 0; k < vp_runtime_n_params(rt); k++) {
        vp_runtime_param p;
        char             name[200];
        int64_t          n;
        double           largest = 0;
        vp_runtime_param_at(rt, k, &p);
        float *grad = malloc((size_t)p.param->n_elements * sizeof *grad);
        OK(vp_runtime_grad_get(&p, 0, p.param->n_elements, grad, err));
        for (int64_t i = 0; is_in(g->outside, p.name) && i < p.param->n_elements; i++)
            assert_true(grad[i] == 0);
        if (is_in(g->outside, p.name)) {
            free(grad);
            continue;
        }
        double *want = expected(g, saved_name(g, "grad.", p.name, name, sizeof name), &n);
        assert_int_equal(n, p.param->n_elements);
        for (int64_t i = 0; i < n; i++)
            largest = fmax(largest, fabs(want[i]));
        for (int64_t i = 0; i < n; i++) {
            double scale = is_zero(g, p.name, i) ? of_model : largest;
            if (fabs(grad[i] - want[i]) > 2e-5 * scale)
                fail_msg("%s[%lld]: gradient %.9g, expected %.9g, largest %.9g", p.name,
                         (long long)i, (double)grad[i], want[i], scale);
        }
        free(grad);
        free(want);
    }
}

static void check_parameters(const golden *g, const vp_runtime *rt)
{
    int64_t n;
    double *norms = expected(g, "grad_norms", &n);
    double  clip  = fmin(1.0, 1.0 / (norms[0] + 1e-6));

    for (int64_t k = 0; k < vp_runtime_n_params(rt); k++) {
        vp_runtime_param p;
        char             name[200];
        vp_runtime_param_at(rt, k, &p);
        if (is_in(g->outside, p.name))
            continue;
        double *want = expected(g, saved_name(g, "step3.", p.name, name, sizeof name), &n);
        double *grad = expected(g, saved_name(g, "grad.", p.name, name, sizeof name), &n);
        float  *now  = malloc((size_t)n * sizeof *now);
        OK(vp_runtime_param_get(&p, 0, n, now, err));
        for (int64_t i = 0; i < n; i++) {
            double tolerance = fabs(grad[i]) * clip > 1e-6 && !is_zero(g, p.name, i) ? 2e-5 : 3e-3;
            if (fabs(now[i] - want[i]) > tolerance)
                fail_msg("%s[%lld]: %.9g after 3 steps, expected %.9g", p.name, (long long)i,
                         (double)now[i], want[i]);
        }
        free(want);
        free(grad);
        free(now);
    }
    free(norms);
}

static void check_golden(const char *dir, int64_t micro_batch, vp_recompute recompute,
                         vp_attention_kind attention)
{
    golden   g     = open_golden(dir);
    vp_plan *plan  = plan_of(g.model,
                             (vp_scenario){.recipe       = vp_recipe_default(),
                                           .seq          = g.seq,
                                           .global_batch = g.n_samples,
                                           .micro_batch  = micro_batch,
                                           .attention    = attention},
                             recompute);
    vp_batch batch = {
        .tokens = g.tokens, .labels = g.labels, .token_types = g.types, .lengths = g.lengths};
    vp_run_opts    opts = {.n_total_steps = 4, .seed = -1};
    vp_load_report loaded;
    vp_step_result r;
    vp_runtime    *rt;
    int64_t        n;
    double        *norms = expected(&g, "grad_norms", &n);

    OK(vp_runtime_new(plan, test_backend(), &opts, &rt, err));
    OK(vp_runtime_load(rt, g.dir, &loaded, err));
    assert_true(loaded.n_drawn == 0);
    for (int64_t step = 0; step < 3; step++) {
        OK(vp_runtime_step(rt, &batch, &r, err));
        check_loss(&g, r.loss, step);
        assert_true(fabs(r.grad_norm - norms[step]) <= 1e-5 * norms[step]);
        if (step == 0)
            check_gradients(&g, rt);
    }
    check_parameters(&g, rt);
    OK(vp_runtime_step(rt, &batch, &r, err));
    check_loss(&g, r.loss, 3);
    free(norms);
    vp_runtime_free(rt);
    vp_plan_free(plan);
    close_golden(&g);
}

static const char *const folders[] = {"gpt2",
                                      "llama",
                                      "llama_tied_rope3",
                                      "llama_biases",
                                      "llama_yarn",
                                      "mistral_window",
                                      "qwen2",
                                      "qwen2_window",
                                      "qwen3",
                                      "gemma_mqa",
                                      "gemma2",
                                      "phi3_gqa",
                                      "phi3_longrope",
                                      "olmo2_gqa",
                                      "bert",
                                      "bert_untied",
                                      "roberta",
                                      "opt",
                                      "opt_350m",
                                      "gpt_neox",
                                      "gpt_neox_sequential",
                                      "llama_sequence",
                                      "qwen2_tokens",
                                      "bert_sequence",
                                      "roberta_sequence",
                                      "bert_decoder"};

/* Each golden here, and each that VPLAN_GOLDENS holds of a family vplan has. */
static void each_golden(vp_recompute recompute, vp_attention_kind attention)
{
    const char *more = getenv("VPLAN_GOLDENS");
    char        dir[300];

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(dir, sizeof dir, "tests/golden/%s", folders[i]);
        print_message("%s\n", dir);
        check_golden(dir, 2, recompute, attention);
    }
    DIR *d = more ? opendir(more) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        vp_model *model   = NULL;
        vp_err    refused = {0};
        snprintf(dir, sizeof dir, "%s/%s", more, e->d_name);
        if (e->d_name[0] == '.' ||
            vp_model_open(dir, &(vp_model_opts){0}, &model, &refused) != VP_OK)
            continue;
        vp_model_free(model);
        print_message("%s\n", dir);
        check_golden(dir, 1, recompute, attention);
    }
    if (d)
        closedir(d);
}

static void every_family_trains_as_transformers_does(void **state)
{
    (void)state;
    each_golden(VP_RECOMPUTE_NONE, VP_ATTENTION_FLASH);
}

static void with_everything_recomputed_it_trains_so_too(void **state)
{
    (void)state;
    each_golden(VP_RECOMPUTE_FULL, VP_ATTENTION_FLASH);
}

static void with_the_attention_matrix_kept_it_trains_so_too(void **state)
{
    (void)state;
    each_golden(VP_RECOMPUTE_MLP, VP_ATTENTION_MATH);
}

static void accumulated_micro_steps_weigh_every_target_alike(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= 4; micro *= 2)
        check_golden("tests/golden/gpt2_accumulation", micro, VP_RECOMPUTE_MLP, VP_ATTENTION_FLASH);
}

/* ---- fp16 with a scaled loss, beside torch.amp ---- */

/* One step against a row of tests/golden/fp16_scaler.json: the scale and whether it was skipped are
 * torch's. Each number is a sum of many that are rounded to fp16, 2^-12 of each on average, in other
 * places than torch rounds: losses within 2^-12, norms, which are fewer and larger terms, 2^-9. */
static void check_scaled_step(const char *name, int64_t step, const json_t *want,
                              const vp_step_result *r)
{
    double loss = json_number_value(json_object_get(want, "loss")),
           norm = json_number_value(json_object_get(want, "grad_norm"));
    bool skip   = json_is_true(json_object_get(want, "skipped"));

    assert_true(isfinite(r->grad_norm) == !r->skipped);
    if (r->loss_scale != json_number_value(json_object_get(want, "scale")) || r->skipped != skip ||
        !(fabs(r->loss - loss) <= 0x1p-12 * loss) ||
        !(skip || fabs(r->grad_norm - norm) <= 0x1p-9 * norm))
        fail_msg("%s step %lld: scale %g, loss %.6f (torch %.6f), norm %.5f (torch %.5f)", name,
                 (long long)step, r->loss_scale, r->loss, loss, r->grad_norm, norm);
}

static void check_scaled(const char *name, const json_t *family, int64_t growth_interval,
                         int64_t micro_batch, vp_recompute recompute)
{
    char           dir[300];
    vp_recipe      recipe = vp_recipe_default();
    vp_run_opts    opts   = {.n_total_steps = 100, .seed = -1};
    vp_load_report loaded;
    vp_step_result r;
    vp_runtime    *rt;
    size_t         step;
    json_t        *want;

    snprintf(dir, sizeof dir, "tests/golden/%s", name);
    golden g               = open_golden(dir);
    recipe.precision       = VP_PREC_FP16_MIXED;
    recipe.loss_scale      = json_number_value(json_object_get(family, "init_scale"));
    recipe.growth_interval = growth_interval;
    vp_plan *plan          = plan_of(g.model,
                                     (vp_scenario){.recipe       = recipe,
                                                   .seq          = g.seq,
                                                   .global_batch = g.n_samples,
                                                   .micro_batch  = micro_batch},
                                     recompute);
    vp_batch batch         = {
                .tokens = g.tokens, .labels = g.labels, .token_types = g.types, .lengths = g.lengths};
    OK(vp_runtime_new(plan, test_backend(), &opts, &rt, err));
    OK(vp_runtime_load(rt, g.dir, &loaded, err));
    json_array_foreach (json_object_get(family, "steps"), step, want) {
        OK(vp_runtime_step(rt, &batch, &r, err));
        check_scaled_step(name, (int64_t)step, want, &r);
    }
    vp_runtime_free(rt);
    vp_plan_free(plan);
    close_golden(&g);
}

static void fp16_scales_its_loss_as_gradscaler_does(void **state)
{
    vp_json_doc *doc;
    json_t      *root, *family;
    const char  *name;

    (void)state;
    OK(vp_json_read("tests/golden/fp16_scaler.json", VP_JSON_MAX_BYTES, &doc, err));
    root             = vp_json_root(doc).value;
    int64_t interval = json_integer_value(json_object_get(root, "growth_interval"));
    assert_true(json_object_size(json_object_get(root, "families")) >= 5);
    json_object_foreach (json_object_get(root, "families"), name, family) {
        check_scaled(name, family, interval, 2, VP_RECOMPUTE_NONE);
        check_scaled(name, family, interval, 1, VP_RECOMPUTE_FULL);
    }
    vp_json_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_trains_as_transformers_does),
        cmocka_unit_test(with_everything_recomputed_it_trains_so_too),
        cmocka_unit_test(with_the_attention_matrix_kept_it_trains_so_too),
        cmocka_unit_test(accumulated_micro_steps_weigh_every_target_alike),
        cmocka_unit_test(fp16_scales_its_loss_as_gradscaler_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
