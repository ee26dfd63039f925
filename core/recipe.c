#include "core/recipe.h"

#include <math.h>
#include <string.h>

static const char *const optimizer_names[] = {"adamw", "sgd", NULL};
static const char *const precision_names[] = {"fp32", NULL};
static const char *const schedule_names[]  = {"constant", "linear", "cosine", NULL};
static const char *const data_names[]      = {"bytes", "tokens-u16", "tokens-i32", NULL};

vp_recipe vp_recipe_default(void)
{
    return (vp_recipe){
        .optimizer = VP_OPT_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
        .weight_decay = 0.1, .clip_norm = 1.0, .schedule = VP_SCHED_CONSTANT, .seed = 1,
        .precision = VP_PREC_FP32, .data_kind = VP_DATA_BYTES,
    };
}

static int index_of(const char *const *names, const char *name)
{
    int i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return i;
}

const char *vp_optimizer_name(vp_optimizer o) { return optimizer_names[o]; }
const char *vp_precision_name(vp_precision p) { return precision_names[p]; }
vp_optimizer vp_optimizer_by_name(const char *name) { return (vp_optimizer)index_of(optimizer_names, name); }
vp_precision vp_precision_by_name(const char *name) { return (vp_precision)index_of(precision_names, name); }

int vp_optimizer_n_states(vp_optimizer o)
{
    return o == VP_OPT_ADAMW ? 2 : 0;
}

const char *vp_optimizer_state_name(vp_optimizer o, int state)
{
    (void)o;
    return state == 0 ? "exp_avg" : "exp_avg_sq";
}

/* Optional members: what the file does not say keeps its default. */
static vp_status opt_real(const vp_json_node *node, const char *key, double min, double max, double *out,
                          vp_err *err)
{
    return json_object_get(node->value, key) ? vp_json_real(node, key, min, max, out, err) : VP_OK;
}

static vp_status opt_int(const vp_json_node *node, const char *key, int64_t min, int64_t max,
                         int64_t *out, vp_err *err)
{
    return json_object_get(node->value, key) ? vp_json_int(node, key, min, max, out, err) : VP_OK;
}

static vp_status opt_word(const vp_json_node *node, const char *key, const char *const *names, int *out,
                          vp_err *err)
{
    const char *word;
    vp_status   st = VP_OK;
    vp_text     known = {0};

    if (!json_object_get(node->value, key))
        return VP_OK;
    VP_TRY(vp_json_string(node, key, &word, err));
    *out = index_of(names, word);
    if (!names[*out]) {
        for (int i = 0; names[i]; i++)
            vp_text_printf(&known, "%s%s", i ? ", " : "", names[i]);
        st = vp_json_fail(node, key, err, "not one of %s", known.data);
    }
out:
    vp_text_release(&known);
    return st;
}

vp_status vp_recipe_from_json(const vp_json_node *root, vp_recipe *recipe, vp_err *err)
{
    static const char *const keys[] = {"schema_version", "optimizer", "clip_norm", "schedule", "seed",
                                       "precision", "dropout", "data", NULL};
    static const char *const adamw_keys[] = {"name", "lr", "beta1", "beta2", "eps", "weight_decay", NULL};
    static const char *const sgd_keys[] = {"name", "lr", "weight_decay", NULL};
    static const char *const sched_keys[] = {"type", "warmup_steps", "total_steps", "min_lr_ratio", NULL};
    static const char *const data_keys[] = {"kind", "order", NULL};
    vp_recipe    r = vp_recipe_default();
    vp_json_node node;
    int64_t      version = 1;
    int          word;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_only_keys(root, keys, err));
    VP_TRY(vp_json_int(root, "schema_version", 1, 1, &version, err));
    if (json_object_get(root->value, "optimizer")) {
        VP_TRY(vp_json_object(root, "optimizer", &node, err));
        word = VP_OPT_ADAMW;
        VP_TRY(opt_word(&node, "name", optimizer_names, &word, err));
        r.optimizer = (vp_optimizer)word;
        VP_TRY(vp_json_only_keys(&node, r.optimizer == VP_OPT_SGD ? sgd_keys : adamw_keys, err));
        VP_TRY(opt_real(&node, "lr", 0, 1e6, &r.lr, err));
        VP_TRY(opt_real(&node, "beta1", 0, 0.9999999, &r.beta1, err));
        VP_TRY(opt_real(&node, "beta2", 0, 0.9999999, &r.beta2, err));
        VP_TRY(opt_real(&node, "eps", 0, 1, &r.eps, err));
        VP_TRY(opt_real(&node, "weight_decay", 0, 1e6, &r.weight_decay, err));
    }
    VP_TRY(opt_real(root, "clip_norm", 0, 1e30, &r.clip_norm, err));
    if (json_object_get(root->value, "schedule")) {
        VP_TRY(vp_json_object(root, "schedule", &node, err));
        VP_TRY(vp_json_only_keys(&node, sched_keys, err));
        word = VP_SCHED_CONSTANT;
        VP_TRY(opt_word(&node, "type", schedule_names, &word, err));
        r.schedule = (vp_schedule)word;
        VP_TRY(opt_int(&node, "warmup_steps", 0, INT64_C(1000000000000), &r.warmup_steps, err));
        VP_TRY(opt_int(&node, "total_steps", 0, INT64_C(1000000000000), &r.total_steps, err));
        VP_TRY(opt_real(&node, "min_lr_ratio", 0, 1, &r.min_lr_ratio, err));
        if (r.total_steps && r.total_steps < r.warmup_steps)
            VP_TRY(vp_json_fail(&node, "total_steps", err, "less than warmup_steps"));
    }
    VP_TRY(opt_int(root, "seed", 0, INT64_MAX, &r.seed, err));
    word = VP_PREC_FP32;
    VP_TRY(opt_word(root, "precision", precision_names, &word, err));
    r.precision = (vp_precision)word;
    VP_TRY(opt_real(root, "dropout", 0, 0.99, &r.dropout, err));
    if (json_object_get(root->value, "data")) {
        static const char *const orders[] = {"sequential", NULL};
        VP_TRY(vp_json_object(root, "data", &node, err));
        VP_TRY(vp_json_only_keys(&node, data_keys, err));
        word = VP_DATA_BYTES;
        VP_TRY(opt_word(&node, "kind", data_names, &word, err));
        r.data_kind = (vp_data_kind)word;
        word        = 0;
        VP_TRY(opt_word(&node, "order", orders, &word, err));
    }
    *recipe = r;
out:
    return st;
}

vp_status vp_recipe_read(const char *path, vp_recipe *recipe, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_status    st  = VP_OK;

    VP_TRY(vp_json_read(path, VP_JSON_MAX_BYTES, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_recipe_from_json(&root, recipe, err));
out:
    vp_json_doc_free(doc);
    return st;
}

json_t *vp_recipe_to_json(const vp_recipe *r)
{
    json_t *optimizer = json_pack("{s:s, s:f}", "name", vp_optimizer_name(r->optimizer), "lr", r->lr);

    if (optimizer && r->optimizer == VP_OPT_ADAMW) {
        json_object_set_new(optimizer, "beta1", json_real(r->beta1));
        json_object_set_new(optimizer, "beta2", json_real(r->beta2));
        json_object_set_new(optimizer, "eps", json_real(r->eps));
    }
    if (optimizer)
        json_object_set_new(optimizer, "weight_decay", json_real(r->weight_decay));
    return json_pack("{s:i, s:o, s:f, s:{s:s, s:I, s:I, s:f}, s:I, s:s, s:f, s:{s:s, s:s}}",
                     "schema_version", 1, "optimizer", optimizer, "clip_norm", r->clip_norm,
                     "schedule", "type", schedule_names[r->schedule],
                     "warmup_steps", (json_int_t)r->warmup_steps,
                     "total_steps", (json_int_t)r->total_steps, "min_lr_ratio", r->min_lr_ratio,
                     "seed", (json_int_t)r->seed, "precision", vp_precision_name(r->precision),
                     "dropout", r->dropout, "data", "kind", data_names[r->data_kind], "order", "sequential");
}

double vp_recipe_lr(const vp_recipe *r, int64_t step, int64_t n_steps)
{
    const double pi = 3.14159265358979323846;
    int64_t      total = r->total_steps ? r->total_steps : n_steps;

    if (step < r->warmup_steps)
        return r->lr * (double)(step + 1) / (double)r->warmup_steps;
    if (r->schedule == VP_SCHED_CONSTANT || total <= r->warmup_steps)
        return r->lr;
    double done = (double)(step - r->warmup_steps) / (double)(total - r->warmup_steps);
    if (done > 1.0)
        done = 1.0;
    double fall = r->schedule == VP_SCHED_LINEAR ? 1.0 - done : 0.5 * (1.0 + cos(pi * done));
    return r->lr * (r->min_lr_ratio + (1.0 - r->min_lr_ratio) * fall);
}
