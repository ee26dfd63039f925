#include "trainers/torch/eager_seconds.h"

#include "base/arena.h"
#include "base/checked.h"
#include "devices/efficiency.h"
#include "planner/lowering/lower.h"

#include <string.h>

static const double OPERATOR_S = VP_OPERATOR_S, LAUNCH_S = VP_LAUNCH_S;

/* What an optimizer's step takes on the host for each tensor that it gathers. Assumed. */
static const double TENSOR_S = 5e-6;

/* Under autocast the values between products are fp32, those of products 16 bits: of the element-wise
 * bytes about half are twice as many. */
static const double AUTOCAST_BYTES = 1.5;

/* What transformers launches where vplan runs one kernel: how many, and how often the kernel's bytes
 * are moved, in 16 bits (with the casts to fp32 and back that modules do) and in fp32. Derived by hand
 * from what the modules of modeling_llama.py, modeling_gpt2.py and loss_utils.py (transformers 5) and
 * PyTorch's derivatives do; held against no run and no measurement: they rank settings. LlamaRMSNorm is
 * seven kernels that move 36 bytes an element where one moves 4. */
static const struct {
    vp_kernel kernel;
    double    launches, bytes_16, bytes_32;
} eager[] = {
    {VP_K_EMBEDDING_FWD, 2, 1, 1}, {VP_K_EMBEDDING_BWD, 2, 1, 1}, {VP_K_LAYERNORM_BWD, 2, 1, 1},
    {VP_K_RMSNORM_FWD, 7, 9, 3.5}, {VP_K_RMSNORM_BWD, 12, 10, 5}, {VP_K_ROPE_FWD, 10, 5, 5},
    {VP_K_ROPE_BWD, 12, 5, 5},     {VP_K_ATTENTION_FWD, 2, 1, 1}, {VP_K_ATTENTION_BWD, 2, 1, 1},
    {VP_K_GLU_FWD, 2, 1.7, 1.7},   {VP_K_GLU_BWD, 3, 1.8, 1.8},   {VP_K_DROPOUT, 1, 1.25, 1.25},
    {VP_K_CROSS_ENTROPY, 8, 9, 3},
};

/* gelu_new is written out: eight kernels forward. */
static const double GELU_LAUNCHES[2] = {8, 15}, GELU_BYTES[2] = {9, 10};

/* Reads and writes of one trained element in an update (torch/optim/adam.py, sgd.py), and of clipping. */
static const struct {
    const char *name;
    double      accesses, launches;
} updates[] = {
    {"adamw_torch_fused", 7, 1},    {"adamw_torch", 20, 8},
    {"adamw_torch_forloop", 20, 0}, {"adamw_8bit", 5, 1},
    {"paged_adamw_8bit", 5, 1},     {"lion_32bit", 5, 1},
    {"sgd_momentum", 6, 3},         {"sgd", 3, 1},
};
static const double UNKNOWN_ACCESSES = 24, CLIP_ACCESSES = 3;

typedef struct clock_pair {
    double card_s, host_s;
} clock_pair;

typedef struct job {
    const vp_eager_step *x;
    vp_arena            *arena;
    vp_device            device; /* its 16-bit rate is that of the precision */
    vp_cost              cost;
    bool                 wide, autocast, gelu_new, math;
} job;

/* Bytes that the eager attention moves for each element of its matrix beside its two products: scaled,
 * masked, softmax in fp32, rounded; and back. */
static const double MATRIX_BYTES[2] = {26, 40}, MATRIX_LAUNCHES[2] = {6, 10};

static bool moves_bytes_only(vp_kernel k)
{
    return k != VP_K_LINEAR_FWD && k != VP_K_LINEAR_BWD_INPUT && k != VP_K_LINEAR_BWD_WEIGHT &&
           k != VP_K_ATTENTION_FWD && k != VP_K_ATTENTION_BWD;
}

static clock_pair price(job *j, const vp_step *s)
{
    double launches = 1, bytes = 1, card_s;

    if (s->kernel == VP_K_LINEAR_BWD_WEIGHT && j->x->frozen)
        return (clock_pair){0};
    for (size_t i = 0; i < sizeof eager / sizeof *eager; i++)
        if (eager[i].kernel == s->kernel) {
            launches = eager[i].launches;
            bytes    = j->wide ? eager[i].bytes_32 : eager[i].bytes_16;
        }
    if (j->gelu_new && (s->kernel == VP_K_ACTIVATION_FWD || s->kernel == VP_K_ACTIVATION_BWD)) {
        launches = GELU_LAUNCHES[s->kernel == VP_K_ACTIVATION_BWD];
        bytes    = GELU_BYTES[s->kernel == VP_K_ACTIVATION_BWD];
    }
    if (j->autocast && moves_bytes_only(s->kernel))
        bytes *= AUTOCAST_BYTES;
    if (moves_bytes_only(s->kernel) && !j->x->profile)
        bytes *= vp_operator_seconds(&j->device, 1) / vp_moved_seconds(&j->device, 1);
    card_s = vp_cost_step(&j->cost, &j->x->model->graph, s);
    if (j->math && (s->kernel == VP_K_ATTENTION_FWD || s->kernel == VP_K_ATTENTION_BWD)) {
        bool backward = s->kernel == VP_K_ATTENTION_BWD;
        card_s += vp_operator_seconds(&j->device,
                                      MATRIX_BYTES[backward] * (j->wide ? 1.5 : 1) *
                                          (double)s->attention.batch * (double)s->attention.heads *
                                          (double)s->attention.seq * (double)s->attention.seq);
        launches += MATRIX_LAUNCHES[backward];
    }
    return (clock_pair){(card_s > LAUNCH_S ? card_s - LAUNCH_S : 0) * bytes + LAUNCH_S * launches,
                        (OPERATOR_S + LAUNCH_S) * launches};
}

static void add(clock_pair *to, clock_pair from, double times)
{
    to->card_s += times * from.card_s;
    to->host_s += times * from.host_s;
}

/* PyTorch's fused attention takes dropout and padding as it goes; vplan's with them is a slower kernel of its own. */
static void plain_attention(vp_step *s)
{
    if (s->kernel != VP_K_ATTENTION_FWD && s->kernel != VP_K_ATTENTION_BWD)
        return;
    s->attention_reals.p = s->attention_reals.softcap      = 0;
    s->args[vp_kernel_operand(s->kernel, "lengths")].space = VP_SPACE_NONE;
}

/* PyTorch's modules add by a kernel of its own what vplan's product adds. */
static int apart(const vp_step *s, vp_step *out)
{
    out[0] = *s;
    plain_attention(&out[0]);
    if (s->kernel != VP_K_LINEAR_ADD_FWD)
        return 1;
    out[0].kernel = VP_K_LINEAR_FWD;
    out[1]        = (vp_step){.kernel   = VP_K_ADD,
                              .dtype    = s->dtype,
                              .elements = {.count = vp_mul(s->linear.rows, s->linear.out)}};
    return 2;
}

static clock_pair sum(job *j, const vp_program *p, vp_pass pass)
{
    clock_pair total = {0};

    for (int64_t i = 0; i < p->n_steps[pass]; i++) {
        vp_step one[2];
        int     n = apart(&p->steps[pass][i], one);
        for (int k = 0; k < n; k++)
            add(&total, price(j, &one[k]), 1);
    }
    return total;
}

static const vp_semantics *semantics_of(const job *j)
{
    if (j->wide)
        return j->math ? &vp_semantics_vplan_fp32_math : &vp_semantics_vplan_fp32;
    return j->math ? &vp_semantics_vplan_bf16_math : &vp_semantics_vplan_bf16;
}

/* Every instance's forward and backward pass, and once more the blocks' forward. */
static vp_status lower_and_price(job *j, clock_pair *out, clock_pair *again, vp_err *err)
{
    const vp_graph *g  = &j->x->model->graph;
    vp_status       st = VP_OK;

    for (int t = 0; t < g->n_templates; t++) {
        vp_lowered    lowered = {0};
        int64_t       seq     = g->templates[t].seq ? g->templates[t].seq : j->x->seq;
        vp_lower_opts opts    = {.symbols            = {j->x->batch, seq, 1, 1},
                                 .compute_capability = j->device.compute_capability,
                                 .heights            = VP_HEIGHTS_NONE};
        int64_t       n = 0, blocks = 0;
        for (int64_t i = 0; i < g->n_instances; i++) {
            n += g->instances[i].template_idx == t;
            blocks += g->instances[i].template_idx == t && i > 0 && i < g->n_instances - 1;
        }
        if (!n)
            continue;
        for (int s = 0; s < VP_MAX_SPANS; s++)
            opts.span_idx[s] = s;
        VP_TRY(vp_lower(j->arena, g, t, semantics_of(j), &opts, &lowered, err));
        clock_pair forward = sum(j, &lowered.program, VP_PASS_FORWARD);
        add(out, forward, (double)n);
        add(out, sum(j, &lowered.program, VP_PASS_BACKWARD), (double)n);
        add(again, forward, (double)blocks);
    }
out:
    return st;
}

/* What is the same for all settings that differ in none of these. */
static int kind_of(const job *j)
{
    return j->wide | j->autocast << 1 | j->math << 2 | j->x->frozen << 3 |
           (j->device.bf16_flop_per_s != j->x->device->bf16_flop_per_s) << 4;
}

static double share_recomputed(const vp_eager_step *x)
{
    return (double)x->n_recomputed / (double)(x->model->graph.n_instances - 2);
}

static vp_status micro_step(job *j, clock_pair *out, vp_err *err)
{
    vp_eager_prices       *known = j->x->prices;
    struct vp_eager_price *p = NULL, mine = {j->x->batch, j->x->seq, kind_of(j), 0, 0, 0, 0};
    clock_pair             all = {0}, again = {0};
    double                 share = share_recomputed(j->x);
    vp_status              st    = VP_OK;

    for (int i = 0; known && !p && i < known->n; i++)
        if (known->at[i].batch == mine.batch && known->at[i].seq == mine.seq &&
            known->at[i].kind == mine.kind)
            p = &known->at[i];
    if (!p) {
        VP_TRY(lower_and_price(j, &all, &again, err));
        p  = known && known->n < VP_EAGER_PRICES ? &known->at[known->n++] : &mine;
        *p = (struct vp_eager_price){mine.batch, mine.seq,     mine.kind,   all.card_s,
                                     all.host_s, again.card_s, again.host_s};
    }
    *out = (clock_pair){p->card_s + share * p->again_card_s, p->host_s + share * p->again_host_s};
out:
    return st;
}

/* Weights are cast for the products of each micro-step, gradients back; sums of gradients over
 * micro-steps are read and written. */
static void add_parameters(job *j, clock_pair *out)
{
    const vp_eager_step *x     = j->x;
    double               bytes = 0, each = j->wide || j->autocast ? 4 : 2;

    /* weights of experts that the products were not priced with: read forward, again and backward; gradients are written */
    bytes += (2 + share_recomputed(x) + (x->frozen ? 0 : 1)) * (j->wide ? 4.0 : 2.0) *
             (double)x->model->n_other_experts;
    if (j->autocast)
        bytes += 6.0 * (double)x->model->n_params + (x->frozen ? 0 : 6.0 * (double)x->n_trained);
    bytes +=
        3 * each * (double)x->n_trained * (double)(x->accumulation - 1) / (double)x->accumulation;
    out->card_s += vp_operator_seconds(&j->device, bytes);
}

static clock_pair update(const job *j)
{
    const vp_eager_step *x        = j->x;
    int64_t              tensors  = 0;
    double               accesses = UNKNOWN_ACCESSES, launches = 0, each;

    for (int64_t i = 0; i < x->model->graph.n_instances; i++)
        tensors += x->model->graph.templates[x->model->graph.instances[i].template_idx].n_params;
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
        if (strcmp(updates[i].name, x->optimizer) == 0) {
            accesses = updates[i].accesses;
            launches = updates[i].launches;
        }
    accesses += x->clips ? CLIP_ACCESSES : 0;
    launches = launches > 0 ? launches + (x->clips ? 2 : 0) : 8.0 * (double)tensors;
    each     = j->wide || (j->autocast && !strstr(x->precision, "-amp")) || x->frozen ? 4 : 2;
    return (clock_pair){vp_operator_seconds(&j->device, accesses * each * (double)x->n_trained) +
                            launches * LAUNCH_S,
                        launches * (OPERATOR_S + LAUNCH_S) + (double)tensors * TENSOR_S};
}

static double slower(clock_pair x)
{
    return x.card_s > x.host_s ? x.card_s : x.host_s;
}

/* As the config says, or else the class (configuration_gpt2.py, _gpt_neo.py, _phi.py of transformers 5). */
static bool has_gelu_new(const vp_model *model)
{
    static const char *const keys[]     = {"activation_function", "hidden_act"};
    static const char *const families[] = {"gpt2", "gpt_neo", "phi"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *act = json_string_value(vp_model_text_field(model, keys[i]));
        if (act)
            return strcmp(act, "gelu_new") == 0;
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i], model->family) == 0)
            return true;
    return false;
}

vp_status vp_eager_seconds(const vp_eager_step *x, double *out, vp_err *err)
{
    job        j     = {.x = x, .device = *x->device, .arena = vp_arena_new()};
    clock_pair micro = {0};
    vp_status  st    = VP_OK;

    *out = -1;
    VP_TRY_ALLOC(err, j.arena);
    j.wide     = strcmp(x->precision, "fp32") == 0;
    j.autocast = strstr(x->precision, "mixed") || strstr(x->precision, "-amp");
    j.math     = strcmp(x->attention, "eager") == 0 || strcmp(x->attention, "sdpa:math") == 0;
    j.gelu_new = has_gelu_new(x->model);
    if (strncmp(x->precision, "fp16", 4) == 0)
        j.device.bf16_flop_per_s = vp_device_flop_per_s(&j.device, VP_RATE_FP16);
    j.cost = (vp_cost){.device = &j.device, .profile = x->profile};
    VP_TRY(micro_step(&j, &micro, err));
    add_parameters(&j, &micro);
    *out = (double)x->accumulation * slower(micro) + slower(update(&j));
out:
    vp_arena_free(j.arena);
    return st;
}
