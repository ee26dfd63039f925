/* plan/recipe.h: what the person wants trained, independent of how. A plan carries a copy and never
 * changes it.
 *     vp_recipe recipe = vp_recipe_default();
 *     VP_TRY(vp_recipe_read("recipe.json", &recipe, err));
 */
#ifndef VP_PLAN_RECIPE_H
#define VP_PLAN_RECIPE_H

#include "base/err.h"
#include "base/json.h"
#include "plan/op.h"

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, word, the kernel that updates, how it keeps its states, the recipe's numbers it goes by
 * beside lr and weight_decay, the names of its states). What each does: below. */
/* clang-format off */
#define VP_OPTIMIZER_TABLE(X) \
    X(ADAMW, "adamw", ADAMW, F32, BETAS | EPS, "exp_avg", "exp_avg_sq") \
    X(ADAMW_BF16, "adamw-bf16", ADAMW, BF16, BETAS | EPS, "exp_avg", "exp_avg_sq") \
    X(ADAMW_8BIT, "adamw-8bit", ADAMW, BLOCK8, BETAS | EPS, "exp_avg", "exp_avg_sq") \
    X(SGD, "sgd", SGD, F32, 0, NULL, NULL) \
    X(SGD_MOMENTUM, "sgd-momentum", MOMENTUM, F32, MOMENTUM, "momentum", NULL) \
    X(LION, "lion", LION, F32, BETAS, "exp_avg", NULL) \
    X(ADAFACTOR, "adafactor", ADAFACTOR, F32, 0, "exp_avg_sq_row", "exp_avg_sq_col") \
    X(MUON, "muon", MUON, F32, MOMENTUM | BETAS | EPS, "momentum", "exp_avg_sq")
/* clang-format on */

typedef enum vp_optimizer {
#define X(name, word, kernel, kept, numbers, state0, state1) VP_OPT_##name,
    VP_OPTIMIZER_TABLE(X) VP_N_OPTIMIZERS
} vp_optimizer;
#undef X

/* fp32; bf16-mixed: parameters and activations bf16, fp32 master weights; bf16: no master, a
 * parameter's update is rounded stochastically; fp16-mixed: parameters and activations fp16, fp32
 * master weights, and the loss scaled as torch.amp.GradScaler does (vp_scaled_control); tf32: fp32
 * but for what products multiply, see VP_DTYPE_TF32. */
typedef enum vp_precision {
    VP_PREC_FP32,
    VP_PREC_BF16_MIXED,
    VP_PREC_BF16,
    VP_PREC_FP16_MIXED,
    VP_PREC_TF32,
    VP_N_PRECISIONS
} vp_precision;

/* Parameters' gradients between backward and update: fp32, or in a precision of bf16 also bf16: what
 * a micro-step sums in fp32 is then rounded once, as it is added. */
typedef enum vp_gradients { VP_GRADIENTS_FP32, VP_GRADIENTS_BF16, VP_N_GRADIENTS } vp_gradients;

typedef enum vp_schedule {
    VP_SCHED_CONSTANT,
    VP_SCHED_LINEAR,
    VP_SCHED_COSINE,
    VP_N_SCHEDULES
} vp_schedule;
typedef enum vp_data_kind {
    VP_DATA_BYTES,
    VP_DATA_TOKENS_U16,
    VP_DATA_TOKENS_I32,
    VP_N_DATA_KINDS
} vp_data_kind;

/* Adapters beside linear layers whose weights, like all others, stay as they are (Hu et al. 2021,
 * arXiv:2106.09685): y = W x + b + s B A drop(x), A (rank, in), B (out, rank). Only A and B are
 * trained. As peft's LoraConfig has it. */
enum { VP_LORA_MAX_TARGETS = 160, VP_LORA_MAX_RANK = 65536 };
typedef struct vp_lora {
    int64_t rank; /* 0: no adapters, all is trained */
    double  alpha, dropout;
    bool    rslora;                       /* s = alpha / sqrt(rank), else alpha / rank */
    char    targets[VP_LORA_MAX_TARGETS]; /* "q_proj+v_proj": modules by name; "all-linear" */
} vp_lora;

double  vp_lora_scale(const vp_lora *lora);
json_t *vp_lora_to_json(const vp_lora *lora); /* as in a recipe's file; NULL: no adapters */

/* Whether a parameter of this name is an adapter's; and whether it is frozen. */
bool vp_lora_is_adapter(const char *param);
bool vp_lora_freezes(const vp_lora *lora, const char *param);

/* What each optimizer does, m and v its states, t the step from 1, g the clipped gradient, d the
 * weight decay:
 *
 *   adamw        decoupled (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2, as PyTorch
 *                orders it); states fp32,
 *                bf16 rounded stochastically (to nearest, v stalls at beta2 0.999), or 8 bits in
 *                blocks of 256
 *                (parameters of fewer than 4096 elements fp32)
 *   sgd          p -= lr (g + d p), PyTorch's coupled decay; sgd-momentum: m = momentum m + g + d
 *                p, p -= lr m
 *   lion         p -= lr (sign(beta1 m + (1 - beta1) g) + d p), m = beta2 m + (1 - beta2) g (Chen
 *                et al. 2023, arXiv:2302.06675)
 *   adafactor    v factored into row and column means for two dimensions, decay 1 - t^-0.8, update
 *                clipped to RMS 1, no momentum,
 *                the recipe's lr (Shazeer and Stern 2018, arXiv:1804.04235, as transformers with
 *                relative_step and
 *                scale_parameter off)
 *   muon         matrices of the blocks: the momentum orthogonalised by five Newton-Schulz steps,
 *                scaled by 0.2 sqrt(max(rows,
 *                cols)) so that one lr serves all (Jordan 2024; Liu et al. 2025, arXiv:2502.16982);
 *                the others: adamw
 *
 * Decay applies to parameters with two or more dimensions. Gradients are the mean over all
 * targets of the global batch, then scaled by min(1, clip_norm / (norm + 1e-6)); clip_norm 0: no
 * clipping. */
typedef struct vp_recipe {
    vp_optimizer optimizer;
    double       lr, beta1, beta2, eps, weight_decay, momentum;
    double       clip_norm;
    vp_schedule  schedule;
    int64_t      warmup_steps, total_steps; /* total 0: the run's own number of steps */
    double       min_lr_ratio;
    int64_t      seed;
    vp_precision precision;
    vp_gradients gradients;
    double       dropout;
    vp_data_kind data_kind;
    /* fp16-mixed: the first step's loss scale, and after how many clean steps it doubles */
    double  loss_scale;
    int64_t growth_interval;
    vp_lora lora;
} vp_recipe;

vp_recipe vp_recipe_default(void);

/* Another optimizer, with the numbers that are its own by default: momentum (0.9; muon 0.95),
 * lion's beta2 (0.99). */
void vp_recipe_set_optimizer(vp_recipe *recipe, vp_optimizer optimizer);

/* Replace *recipe by the file's; a key left out keeps its default, an unknown one is
 * VP_ERR_INPUT. */
vp_status vp_recipe_read(const char *path, vp_recipe *recipe, vp_err *err);
vp_status vp_recipe_from_json(const vp_json_node *node, vp_recipe *recipe, vp_err *err);
json_t   *vp_recipe_to_json(const vp_recipe *recipe); /* a new reference, or NULL: out of memory */

/* Learning rate of optimizer step `step` (from 0): linear warm-up over warmup_steps to lr, then
 * constant, or falling linearly or as a half cosine to lr * min_lr_ratio at total_steps. n_steps
 * stands in for a total of 0. */
double vp_recipe_lr(const vp_recipe *recipe, int64_t step, int64_t n_steps);

/* Words of the file and the command line. The *_by_name calls return the count for an unknown
 * word. */
const char  *vp_optimizer_name(vp_optimizer o);
const char  *vp_precision_name(vp_precision p);
const char  *vp_gradients_name(vp_gradients g);
vp_optimizer vp_optimizer_by_name(const char *name);
vp_precision vp_precision_by_name(const char *name);
vp_gradients vp_gradients_by_name(const char *name);

/* Whether two optimizers go by one rule and differ in how they keep their states only: adamw,
 * adamw-bf16 and adamw-8bit. */
bool vp_optimizer_same_rule(vp_optimizer a, vp_optimizer b);

/* A precision's dtype of parameters and activations, that of the calls that multiply them, and whether
 * it has master weights. */
vp_dtype vp_precision_dtype(vp_precision p);
vp_dtype vp_precision_compute(vp_precision p);
bool     vp_precision_has_master(vp_precision p);

/* Gradients' dtype, and whether a precision may have them. */
vp_dtype vp_gradients_dtype(vp_gradients g);
bool     vp_precision_takes(vp_precision p, vp_gradients g);

/* Whether the loss is scaled, so that the control block is a vp_scaled_control; its bytes. */
bool    vp_precision_scales_loss(vp_precision p);
int64_t vp_precision_control_bytes(vp_precision p);

/* States an optimizer can have, and what they are called: "exp_avg". */
enum { VP_MAX_STATES = 2 };
int         vp_optimizer_n_states(vp_optimizer o);
const char *vp_optimizer_state_name(vp_optimizer o, int state);

/* A parameter as optimizers see it: a matrix of rows by cols (all but the last dimension, the
 * last one), a vector with rows 1. */
typedef struct vp_update_shape {
    int64_t rows, cols;
    bool    block_matrix; /* weight of a linear inside a block: what Muon orthogonalises */
    bool    decay;        /* has two or more dimensions                                  */
} vp_update_shape;

/* The kernel that updates it, and how its states are stored. */
vp_kernel     vp_optimizer_kernel(vp_optimizer o, const vp_update_shape *s);
vp_state_kind vp_optimizer_state_kind(vp_optimizer o, const vp_update_shape *s);

/* Whether every update of an optimizer treats each element by itself; and whether each parameter's may
 * be made when its own gradient is complete: nothing is clipped by the norm of all, no step skipped. */
bool vp_optimizer_by_element(vp_optimizer o);
bool vp_recipe_updates_alone(const vp_recipe *recipe);

/* The whole-number attributes of kernel k for such a parameter, each by its name: of its own update,
 * or of another kernel that treats parameters. ints holds VP_MAX_INTS. */
void vp_update_attributes(vp_optimizer o, const vp_update_shape *s, vp_kernel k, int64_t *ints);

/* Bytes of a state, 0 where this parameter has none; VP_OVERFLOW beyond 64 bits. */
int64_t vp_optimizer_state_bytes(vp_optimizer o, const vp_update_shape *s, int state);

/* Bytes of working memory the update of this parameter needs, for the time of the update. */
int64_t vp_optimizer_scratch_bytes(vp_optimizer o, const vp_update_shape *s);

#endif
