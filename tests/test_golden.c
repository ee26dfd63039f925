/* GPT-2 against transformers in float64: tests/golden/README.md says where the numbers are from. Tolerances are the
 * golden's own: loss 1e-6 relative (5e-6 after steps), each gradient within 2e-5 of its largest element, parameters
 * after 3 steps within 2e-5 where the clipped gradient is above 1e-6 and 3e-3 elsewhere. */
#include "core/safetensors.h"
#include "plan_test.h"

#include <math.h>

typedef struct golden {
    char            dir[128];
    vp_model       *model;
    vp_safetensors *expect;
    int64_t         n_samples, seq;
    int32_t        *tokens, *labels;
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

static golden open_golden(const char *name)
{
    golden                g = {0};
    vp_safetensors       *batch;
    const vp_tensor_info *ids, *labels;
    int64_t              *x, *y;
    char                  path[200];

    snprintf(g.dir, sizeof g.dir, "tests/golden/%s", name);
    OK(vp_model_open(g.dir, &(vp_model_opts){0}, &g.model, err));
    snprintf(path, sizeof path, "%s/expect.safetensors", g.dir);
    OK(vp_safetensors_open(path, &g.expect, err));
    snprintf(path, sizeof path, "%s/batch.safetensors", g.dir);
    OK(vp_safetensors_open(path, &batch, err));
    ids         = vp_safetensors_find(batch, "input_ids");
    labels      = vp_safetensors_find(batch, "labels");
    g.n_samples = ids->shape[0];
    g.seq       = ids->shape[1];
    x           = malloc((size_t)ids->n_elements * 8);
    y           = malloc((size_t)ids->n_elements * 8);
    g.tokens    = malloc((size_t)ids->n_elements * 4);
    g.labels    = malloc((size_t)ids->n_elements * 4);
    OK(vp_safetensors_read(batch, ids, 0, ids->n_elements, x, err));
    OK(vp_safetensors_read(batch, labels, 0, labels->n_elements, y, err));
    for (int64_t i = 0; i < ids->n_elements; i++) { /* position t is scored against label t + 1 */
        g.tokens[i] = (int32_t)x[i];
        g.labels[i] = (i + 1) % g.seq ? (int32_t)y[i + 1] : VP_IGNORE_LABEL;
    }
    free(x);
    free(y);
    vp_safetensors_close(batch);
    return g;
}

static void close_golden(golden *g)
{
    vp_model_free(g->model);
    vp_safetensors_close(g->expect);
    free(g->tokens);
    free(g->labels);
}

static void check_loss(const golden *g, double loss, int64_t step)
{
    int64_t n;
    double *losses = expected(g, "losses", &n);

    assert_true(fabs(loss - losses[step]) <= (step ? 5e-6 : 1e-6) * losses[step]);
    free(losses);
}

/* The key bias: zero in exact arithmetic, noise divided by noise in AdamW. */
static bool is_key_bias(const golden *g, const char *name, int64_t i)
{
    int64_t h = g->model->graph.hidden;
    return strstr(name, "attn.c_attn.bias") && i >= h && i < 2 * h;
}

static double largest_gradient(const golden *g, const vp_runtime *rt)
{
    double largest = 0;

    for (int64_t k = 0; k < vp_runtime_n_params(rt); k++) {
        vp_runtime_param p;
        char             name[200];
        int64_t          n;
        vp_runtime_param_at(rt, k, &p);
        snprintf(name, sizeof name, "grad.%s", p.name);
        double *want = expected(g, name, &n);
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
        snprintf(name, sizeof name, "grad.%s", p.name);
        double *want = expected(g, name, &n);
        assert_int_equal(n, p.param->n_elements);
        for (int64_t i = 0; i < n; i++)
            largest = fmax(largest, fabs(want[i]));
        for (int64_t i = 0; i < n; i++) {
            double scale = is_key_bias(g, p.name, i) ? of_model : largest;
            if (fabs(p.grad[i] - want[i]) > 2e-5 * scale)
                fail_msg("%s[%lld]: gradient %.9g, expected %.9g, largest %.9g", p.name, (long long)i, (double)p.grad[i], want[i], scale);
        }
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
        snprintf(name, sizeof name, "step3.%s", p.name);
        double *want = expected(g, name, &n);
        snprintf(name, sizeof name, "grad.%s", p.name);
        double *grad = expected(g, name, &n);
        for (int64_t i = 0; i < n; i++) {
            double tolerance = fabs(grad[i]) * clip > 1e-6 && !is_key_bias(g, p.name, i) ? 2e-5 : 3e-3;
            if (fabs(p.data[i] - want[i]) > tolerance)
                fail_msg("%s[%lld]: %.9g after 3 steps, expected %.9g", p.name, (long long)i, (double)p.data[i], want[i]);
        }
        free(want);
        free(grad);
    }
    free(norms);
}

static void check_golden(const char *name, int64_t micro_batch, vp_recompute recompute)
{
    golden         g    = open_golden(name);
    vp_plan       *plan = plan_of(g.model, (vp_scenario){.recipe = vp_recipe_default(), .seq = g.seq, .global_batch = g.n_samples,
                                                         .micro_batch = micro_batch}, recompute);
    vp_run_opts    opts = {.n_total_steps = 4, .seed = -1};
    vp_step_result r;
    vp_runtime    *rt;
    int64_t        n;
    double        *norms = expected(&g, "grad_norms", &n);

    OK(vp_runtime_new(plan, vp_backend_cpu(), &opts, &rt, err));
    OK(vp_runtime_load(rt, g.dir, err));
    for (int64_t step = 0; step < 3; step++) {
        OK(vp_runtime_step(rt, g.tokens, g.labels, &r, err));
        check_loss(&g, r.loss, step);
        assert_true(fabs(r.grad_norm - norms[step]) <= 1e-5 * norms[step]);
        if (step == 0)
            check_gradients(&g, rt);
    }
    check_parameters(&g, rt);
    OK(vp_runtime_step(rt, g.tokens, g.labels, &r, err));
    check_loss(&g, r.loss, 3);
    free(norms);
    vp_runtime_free(rt);
    vp_plan_free(plan);
    close_golden(&g);
}

static void gpt2_trains_as_transformers_does(void **state)
{
    (void)state;
    check_golden("gpt2", 2, VP_RECOMPUTE_NONE);
}

static void gpt2_with_everything_recomputed_trains_as_transformers_does(void **state)
{
    (void)state;
    check_golden("gpt2", 2, VP_RECOMPUTE_FULL);
}

static void accumulated_micro_steps_weigh_every_target_alike(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= 4; micro *= 2)
        check_golden("gpt2_accumulation", micro, VP_RECOMPUTE_MLP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_trains_as_transformers_does),
        cmocka_unit_test(gpt2_with_everything_recomputed_trains_as_transformers_does),
        cmocka_unit_test(accumulated_micro_steps_weigh_every_target_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
