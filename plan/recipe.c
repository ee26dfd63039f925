#include "plan/recipe.h"

#include "base/checked.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const optimizer_names[] = {
#define X(name, word, kernel, kept, numbers, state0, state1) word,
    VP_OPTIMIZER_TABLE(X) NULL};
#undef X
static const char *const precision_names[] = {"fp32",       "bf16-mixed", "bf16",
                                              "fp16-mixed", "tf32",       NULL};
static const char *const gradients_names[] = {"fp32", "bf16", NULL};
static const char *const schedule_names[]  = {"constant", "linear", "cosine", NULL};
static const char *const data_names[]      = {"bytes", "tokens-u16", "tokens-i32", NULL};

vp_recipe vp_recipe_default(void)
{
    return (vp_recipe){
        .optimizer    = VP_OPT_ADAMW,
        .lr           = 1e-3,
        .beta1        = 0.9,
        .beta2        = 0.95,
        .eps          = 1e-8,
        .momentum     = 0.9,
        .weight_decay = 0.1,
        .clip_norm    = 1.0,
        .schedule     = VP_SCHED_CONSTANT,
        .seed         = 1,
        .precision    = VP_PREC_FP32,
        .data_kind    = VP_DATA_BYTES,
        /* torch.amp.GradScaler's */
        .loss_scale      = 65536,
        .growth_interval = 2000,
    };
}

static int index_of(const char *const *names, const char *name)
{
    int i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return i;
}

const char *vp_optimizer_name(vp_optimizer o)
{
    assert(o <= VP_N_OPTIMIZERS); /* behind the last one stands NULL, the end of a list */
    return optimizer_names[o];
}
const char *vp_precision_name(vp_precision p)
{
    assert(p <= VP_N_PRECISIONS);
    return precision_names[p];
}
const char *vp_gradients_name(vp_gradients g)
{
    assert(g <= VP_N_GRADIENTS);
    return gradients_names[g];
}
vp_optimizer vp_optimizer_by_name(const char *name)
{
    return (vp_optimizer)index_of(optimizer_names, name);
}
vp_precision vp_precision_by_name(const char *name)
{
    return (vp_precision)index_of(precision_names, name);
}
vp_gradients vp_gradients_by_name(const char *name)
{
    return (vp_gradients)index_of(gradients_names, name);
}

/* ---- what an optimizer keeps ---- */

vp_dtype vp_precision_dtype(vp_precision p)
{
    assert(p < VP_N_PRECISIONS);
    return p == VP_PREC_FP32 || p == VP_PREC_TF32 ? VP_DTYPE_F32
           : p == VP_PREC_FP16_MIXED              ? VP_DTYPE_F16
                                                  : VP_DTYPE_BF16;
}

vp_dtype vp_precision_compute(vp_precision p)
{
    return p == VP_PREC_TF32 ? VP_DTYPE_TF32 : vp_precision_dtype(p);
}

bool vp_precision_has_master(vp_precision p)
{
    return p == VP_PREC_BF16_MIXED || p == VP_PREC_FP16_MIXED;
}

bool vp_precision_scales_loss(vp_precision p)
{
    return p == VP_PREC_FP16_MIXED;
}

int64_t vp_precision_control_bytes(vp_precision p)
{
    return (int64_t)(vp_precision_scales_loss(p) ? sizeof(vp_scaled_control) : sizeof(vp_control));
}

vp_dtype vp_gradients_dtype(vp_gradients g)
{
    assert(g < VP_N_GRADIENTS);
    return g == VP_GRADIENTS_BF16 ? VP_DTYPE_BF16 : VP_DTYPE_F32;
}

bool vp_precision_takes(vp_precision p, vp_gradients g)
{
    return g == VP_GRADIENTS_FP32 || vp_precision_dtype(p) == vp_gradients_dtype(g);
}

/* Numbers that not every optimizer goes by. */
enum { BETAS = 1, EPS = 2, MOMENTUM = 4, EVERY = 8 };

static const struct {
    vp_kernel     kernel;
    vp_state_kind kind;
    unsigned      numbers;
    const char   *states[VP_MAX_STATES];
} optimizers[VP_N_OPTIMIZERS] = {
#define X(name, word, kernel, kept, numbers, state0, state1) \
    [VP_OPT_##name] = {VP_K_##kernel, VP_STATE_##kept, EVERY | (numbers), {state0, state1}},
    VP_OPTIMIZER_TABLE(X)
#undef X
};

/* Fewest elements whose states are worth 8 bits: bitsandbytes' min_8bit_size. */
enum { MIN_8BIT = 4096 };

bool vp_optimizer_same_rule(vp_optimizer a, vp_optimizer b)
{
    return optimizers[a].kernel == optimizers[b].kernel;
}

int vp_optimizer_n_states(vp_optimizer o)
{
    int n = 0;
    while (n < VP_MAX_STATES && optimizers[o].states[n])
        n++;
    return n;
}

const char *vp_optimizer_state_name(vp_optimizer o, int state)
{
    assert(o < VP_N_OPTIMIZERS && state >= 0 && state < VP_MAX_STATES);
    return optimizers[o].states[state];
}

vp_kernel vp_optimizer_kernel(vp_optimizer o, const vp_update_shape *s)
{
    assert(o < VP_N_OPTIMIZERS);
    return o == VP_OPT_MUON && !s->block_matrix ? VP_K_ADAMW : optimizers[o].kernel;
}

bool vp_optimizer_by_element(vp_optimizer o)
{
    const vp_update_shape other = {.rows = 1, .cols = 1}, matrix = {2, 2, .block_matrix = true};

    return vp_kernel_info_of(vp_optimizer_kernel(o, &other))->kind == VP_KERNEL_UPDATE &&
           vp_kernel_info_of(vp_optimizer_kernel(o, &matrix))->kind == VP_KERNEL_UPDATE;
}

bool vp_recipe_updates_alone(const vp_recipe *r)
{
    return !(r->clip_norm > 0) && !vp_precision_scales_loss(r->precision) &&
           vp_optimizer_by_element(r->optimizer);
}

vp_state_kind vp_optimizer_state_kind(vp_optimizer o, const vp_update_shape *s)
{
    assert(o < VP_N_OPTIMIZERS);
    bool small = vp_mul(s->rows, s->cols) < MIN_8BIT;
    return optimizers[o].kind == VP_STATE_BLOCK8 && small ? VP_STATE_F32 : optimizers[o].kind;
}

void vp_update_attributes(vp_optimizer o, const vp_update_shape *s, vp_kernel k, int64_t *ints)
{
    const struct {
        const char *name;
        int64_t     value;
    } known[]                  = {{"count", vp_mul(s->rows, s->cols)},
                                  {"rows", s->rows},
                                  {"cols", s->cols},
                                  {"decay", s->decay},
                                  {"state", vp_optimizer_state_kind(o, s)},
                                  {"factored", s->rows > 1}};
    const vp_kernel_info *info = vp_kernel_info_of(k);

    for (int i = 0; i < info->n_ints; i++) {
        size_t j = 0;
        while (j < sizeof known / sizeof *known && strcmp(known[j].name, info->ints[i].name) != 0)
            j++;
        assert(j < sizeof known / sizeof *known); /* an attribute that nobody knows the value of */
        ints[i] = known[j].value;
    }
}

/* Bytes of what the update has under one of two names; 0 where it has it not. */
static int64_t operand_bytes(vp_optimizer o, const vp_update_shape *s, const char *name,
                             const char *other_name)
{
    vp_kernel k                 = vp_optimizer_kernel(o, s);
    int64_t   ints[VP_MAX_INTS] = {0};
    int       operand           = vp_kernel_operand(k, name);

    if (operand < 0)
        operand = vp_kernel_operand(k, other_name);
    vp_update_attributes(o, s, k, ints);
    if (operand < 0 || vp_kernel_presence(k, ints, operand) == VP_NEVER)
        return 0;
    return vp_kernel_operand_bytes(k, VP_DTYPE_F32, ints, operand);
}

int64_t vp_optimizer_state_bytes(vp_optimizer o, const vp_update_shape *s, int state)
{
    assert(state >= 0 && state < VP_MAX_STATES);
    return state == 0 ? operand_bytes(o, s, "m", "row") : operand_bytes(o, s, "v", "col");
}

int64_t vp_optimizer_scratch_bytes(vp_optimizer o, const vp_update_shape *s)
{
    return operand_bytes(o, s, "scratch", "scratch");
}

/* ---- the file ---- */

/* Optional members: what the file does not say keeps its default. */
static vp_status opt_real(const vp_json_node *node, const char *key, double min, double max,
                          double *out, vp_err *err)
{
    return json_object_get(node->value, key) ? vp_json_real(node, key, min, max, out, err) : VP_OK;
}

static vp_status opt_int(const vp_json_node *node, const char *key, int64_t min, int64_t max,
                         int64_t *out, vp_err *err)
{
    return json_object_get(node->value, key) ? vp_json_int(node, key, min, max, out, err) : VP_OK;
}

static vp_status opt_word(const vp_json_node *node, const char *key, const char *const *names,
                          int *out, vp_err *err)
{
    const char *word;
    vp_status   st    = VP_OK;
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

/* The numbers of optimizers: range, and which of them have it. */
static const struct {
    const char *key;
    size_t      offset;
    double      max;
    unsigned    of;
} numbers[] = {
    {"lr", offsetof(vp_recipe, lr), 1e6, EVERY},
    {"momentum", offsetof(vp_recipe, momentum), 0.9999999, MOMENTUM},
    {"beta1", offsetof(vp_recipe, beta1), 0.9999999, BETAS},
    {"beta2", offsetof(vp_recipe, beta2), 0.9999999, BETAS},
    {"eps", offsetof(vp_recipe, eps), 1, EPS},
    {"weight_decay", offsetof(vp_recipe, weight_decay), 1e6, EVERY},
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

static bool has_number(vp_optimizer o, int k)
{
    return numbers[k].of & optimizers[o].numbers;
}

static double *number_of(vp_recipe *r, int k)
{
    return (double *)(void *)((char *)r + numbers[k].offset);
}

static vp_status read_numbers(const vp_json_node *node, vp_recipe *r, vp_err *err)
{
    const char *keys[N_NUMBERS + 2] = {"name"};
    int         n                   = 1;
    vp_status   st                  = VP_OK;

    for (int k = 0; k < N_NUMBERS; k++)
        if (has_number(r->optimizer, k))
            keys[n++] = numbers[k].key;
    assert(n < N_NUMBERS + 2); /* the last one ends the list */
    VP_TRY(vp_json_only_keys(node, keys, err));
    for (int k = 0; k < N_NUMBERS; k++)
        VP_TRY(opt_real(node, numbers[k].key, 0, numbers[k].max, number_of(r, k), err));
out:
    return st;
}

void vp_recipe_set_optimizer(vp_recipe *r, vp_optimizer o)
{
    r->optimizer = o;
    r->momentum  = o == VP_OPT_MUON ? 0.95 : 0.9;
    if (o == VP_OPT_LION)
        r->beta2 = 0.99;
}

/* A file that names another precision scales nothing. */
static vp_status read_loss_scale(const vp_json_node *root, vp_recipe *r, vp_err *err)
{
    static const char *const keys[] = {"initial", "growth_interval", NULL};
    vp_json_node             node;
    vp_status                st = VP_OK;

    if (!json_object_get(root->value, "loss_scale"))
        return VP_OK;
    VP_TRY(vp_json_object(root, "loss_scale", &node, err));
    VP_TRY(vp_json_only_keys(&node, keys, err));
    VP_TRY(opt_real(&node, "initial", 0x1p-24, 0x1p126, &r->loss_scale, err));
    VP_TRY(opt_int(&node, "growth_interval", 1, INT64_C(1000000000000), &r->growth_interval, err));
    if (json_object_get(root->value, "precision") && !vp_precision_scales_loss(r->precision))
        VP_TRY(vp_json_fail(root, "loss_scale", err, "%s scales no loss: fp16-mixed does",
                            vp_precision_name(r->precision)));
out:
    return st;
}

/* ---- adapters ---- */

double vp_lora_scale(const vp_lora *lora)
{
    assert(lora->rank > 0);
    return lora->alpha / (lora->rslora ? sqrt((double)lora->rank) : (double)lora->rank);
}

bool vp_lora_is_adapter(const char *param)
{
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight"};
    size_t                   n = strlen(param), m = strlen(ends[0]);

    return n > m && (strcmp(param + n - m, ends[0]) == 0 || strcmp(param + n - m, ends[1]) == 0);
}

bool vp_lora_freezes(const vp_lora *lora, const char *param)
{
    return lora->rank > 0 && !vp_lora_is_adapter(param);
}

static vp_status read_lora(const vp_json_node *root, vp_recipe *r, vp_err *err)
{
    static const char *const keys[] = {"r", "alpha", "dropout", "rslora", "targets", NULL};
    vp_json_node             node;
    const char              *targets;
    vp_status                st = VP_OK;

    if (!json_object_get(root->value, "lora"))
        return VP_OK;
    r->lora = (vp_lora){.alpha = 8}; /* LoraConfig's own */
    VP_TRY(vp_json_object(root, "lora", &node, err));
    VP_TRY(vp_json_only_keys(&node, keys, err));
    VP_TRY(vp_json_int(&node, "r", 1, VP_LORA_MAX_RANK, &r->lora.rank, err));
    VP_TRY(opt_real(&node, "alpha", 1e-9, 1e9, &r->lora.alpha, err));
    VP_TRY(opt_real(&node, "dropout", 0, 0.99, &r->lora.dropout, err));
    if (vp_json_has(&node, "rslora"))
        VP_TRY(vp_json_bool(&node, "rslora", &r->lora.rslora, err));
    VP_TRY(vp_json_string(&node, "targets", &targets, err));
    if (!targets[0] || strlen(targets) >= sizeof r->lora.targets)
        VP_TRY(vp_json_fail(&node, "targets", err,
                            "must be 1 to %d characters: module names joined by +, or all-linear",
                            VP_LORA_MAX_TARGETS - 1));
    snprintf(r->lora.targets, sizeof r->lora.targets, "%s", targets);
out:
    return st;
}

json_t *vp_lora_to_json(const vp_lora *l)
{
    return l->rank
               ? json_pack("{s:I, s:f, s:f, s:b, s:s}", "r", (json_int_t)l->rank, "alpha", l->alpha,
                           "dropout", l->dropout, "rslora", (int)l->rslora, "targets", l->targets)
               : NULL;
}

vp_status vp_recipe_from_json(const vp_json_node *root, vp_recipe *recipe, vp_err *err)
{
    static const char *const keys[] = {"schema_version", "optimizer",  "clip_norm", "schedule",
                                       "seed",           "precision",  "gradients", "dropout",
                                       "data",           "loss_scale", "lora",      NULL};
    static const char *const sched_keys[] = {"type", "warmup_steps", "total_steps", "min_lr_ratio",
                                             NULL};
    static const char *const data_keys[]  = {"kind", "order", NULL};
    vp_recipe                r            = vp_recipe_default();
    vp_json_node             node;
    int64_t                  version = 1;
    int                      word;
    vp_status                st = VP_OK;

    VP_TRY(vp_json_only_keys(root, keys, err));
    VP_TRY(vp_json_int(root, "schema_version", 1, 1, &version, err));
    if (json_object_get(root->value, "optimizer")) {
        VP_TRY(vp_json_object(root, "optimizer", &node, err));
        word = VP_OPT_ADAMW;
        VP_TRY(opt_word(&node, "name", optimizer_names, &word, err));
        vp_recipe_set_optimizer(&r, (vp_optimizer)word);
        VP_TRY(read_numbers(&node, &r, err));
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
    word        = VP_GRADIENTS_FP32;
    VP_TRY(opt_word(root, "gradients", gradients_names, &word, err));
    r.gradients = (vp_gradients)word;
    if (!vp_precision_takes(r.precision, r.gradients))
        VP_TRY(vp_json_fail(root, "gradients", err, "not in bf16 where the precision is %s",
                            vp_precision_name(r.precision)));
    VP_TRY(read_loss_scale(root, &r, err));
    VP_TRY(read_lora(root, &r, err));
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
    json_t *optimizer = json_pack("{s:s}", "name", vp_optimizer_name(r->optimizer)), *scale = NULL;

    for (int k = 0; optimizer && k < N_NUMBERS; k++)
        if (has_number(r->optimizer, k))
            json_object_set_new(optimizer, numbers[k].key,
                                json_real(*number_of((vp_recipe *)r, k)));
    if (vp_precision_scales_loss(r->precision))
        scale = json_pack("{s:f, s:I}", "initial", r->loss_scale, "growth_interval",
                          (json_int_t)r->growth_interval);
    return json_pack(
        "{s:i, s:o, s:f, s:{s:s, s:I, s:I, s:f}, s:I, s:s, s:s, s:f, s:{s:s, s:s}, s:o*, s:o*}",
        "schema_version", 1, "optimizer", optimizer, "clip_norm", r->clip_norm, "schedule", "type",
        schedule_names[r->schedule], "warmup_steps", (json_int_t)r->warmup_steps, "total_steps",
        (json_int_t)r->total_steps, "min_lr_ratio", r->min_lr_ratio, "seed", (json_int_t)r->seed,
        "precision", vp_precision_name(r->precision), "gradients", vp_gradients_name(r->gradients),
        "dropout", r->dropout, "data", "kind", data_names[r->data_kind], "order", "sequential",
        "loss_scale", scale, "lora", vp_lora_to_json(&r->lora));
}

double vp_recipe_lr(const vp_recipe *r, int64_t step, int64_t n_steps)
{
    const double pi    = 3.14159265358979323846;
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
