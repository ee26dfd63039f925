/* plan/plan_derive.c: attributes that a plan's steps have no choice in: they follow from the recipe, the
 * parameter table and the batch. A file whose steps say otherwise would train something else than its
 * recipe does, without an operand that is too large or a value that is read before it is written. */
#include "base/checked.h"
#include "plan/plan_internal.h"

#include <string.h>

static bool updates(vp_kernel k)
{
    return vp_kernel_info_of(k)->kind == VP_KERNEL_UPDATE || k == VP_K_ADAFACTOR || k == VP_K_MUON;
}

/* The parameter of the program's own template that an argument is, or what is held for it. */
static const vp_param *param_of(const vp_plan *plan, const vp_program *p, const vp_arg *a,
                                vp_space space)
{
    const vp_plan_template *t = &plan->templates[p->template_idx];

    return a->space == space && a->ahead == 0 && a->idx >= 0 && a->idx < t->n_params
               ? &t->params[a->idx].param
               : NULL;
}

/* An update, or a gradient's part of the norm. Where something is in host memory, parameters may pass
 * in pieces. */
static const char *whole_param(const vp_plan *plan, const vp_step *s, const vp_param *param,
                               bool pieces)
{
    vp_update_shape shape             = vp_plan_param_shape(param);
    int64_t         want[VP_MAX_INTS] = {0};

    if (updates(s->kernel) && s->kernel != vp_optimizer_kernel(plan->recipe.optimizer, &shape))
        return "is not the update of the recipe's optimizer";
    vp_update_attributes(plan->recipe.optimizer, &shape, s->kernel, want);
    for (int i = 0; i < vp_kernel_info_of(s->kernel)->n_ints; i++)
        if (s->ints[i] != want[i] && !(pieces && i == 0 && s->ints[i] < want[i]))
            return "is not what the recipe does with this parameter";
    return NULL;
}

/* As lowering numbers them: a block's parameters in their order, whatever blocks form a segment. */
static int stream_of(const vp_plan *plan, const vp_program *p, const vp_param *param, int64_t idx)
{
    const vp_plan_template *t       = &plan->templates[p->template_idx];
    int64_t                 a_block = 0;

    while (a_block < t->n_params && t->params[a_block].param.index_offset == 0)
        a_block++;
    return (int)((param->index_offset << 8) + VP_UPDATE_RNG_FIRST + idx -
                 param->index_offset * a_block);
}

static const char *update(const vp_plan *plan, const vp_program *p, const vp_step *s, bool pieces)
{
    const vp_param *param      = param_of(plan, p, &s->args[0], VP_SPACE_PARAM);
    int             next_state = VP_SPACE_STATE0;

    if (!param) /* it passes through a window */
        return pieces ? NULL : "updates what is no parameter of this block";
    if (param->frozen)
        return "updates a frozen parameter";
    if (!pieces &&
        (!param_of(plan, p, &s->args[1], VP_SPACE_GRAD) || s->args[1].idx != s->args[0].idx))
        return "takes another gradient than this parameter's";
    for (int k = 2; !pieces && k < vp_kernel_info_of(s->kernel)->n_operands; k++) {
        bool state = s->args[k].space == VP_SPACE_STATE0 || s->args[k].space == VP_SPACE_STATE1;
        if ((state || s->args[k].space == VP_SPACE_MASTER) && s->args[k].idx != s->args[0].idx)
            return "takes what is held for another parameter";
        if (state && (int)s->args[k].space != next_state++)
            return "takes its states in another order";
    }
    if (!pieces && vp_kernel_info_of(s->kernel)->random &&
        s->rng_id != stream_of(plan, p, param, s->args[0].idx))
        return "draws from another parameter's stream";
    return whole_param(plan, s, param, pieces);
}

static const char *linear(const vp_plan *plan, const vp_program *p, const vp_step *s)
{
    bool            back  = s->kernel == VP_K_LINEAR_BWD_WEIGHT;
    const vp_arg   *w     = back                               ? &s->args[VP_LINEAR_BWD_WEIGHT_DW]
                            : s->kernel == VP_K_LINEAR_FWD     ? &s->args[VP_LINEAR_FWD_W]
                            : s->kernel == VP_K_LINEAR_ADD_FWD ? &s->args[VP_LINEAR_ADD_FWD_W]
                                                               : &s->args[VP_LINEAR_BWD_INPUT_W];
    const vp_param *param = param_of(plan, p, w, back ? VP_SPACE_GRAD : VP_SPACE_PARAM);

    if (param && (param->n_elements != vp_mul(s->linear.in, s->linear.out) ||
                  (param->rank == 2 &&
                   param->shape[s->linear.layout == VP_WEIGHT_IN_OUT ? 0 : 1] != s->linear.in)))
        return "has other dimensions than its weight";
    if (param && param->in_out && s->linear.layout != VP_WEIGHT_IN_OUT)
        return "takes its weight as one that lies (out, in)";
    return NULL;
}

/* batch and seq of attention and rope, rows of an embedding. */
static const char *batch(const vp_bucket *b, const vp_step *s, int64_t samples)
{
    int64_t of = samples, seq = b->seq;

    if (s->kernel == VP_K_ATTENTION_FWD || s->kernel == VP_K_ATTENTION_BWD) {
        of  = s->attention.batch;
        seq = s->attention.seq;
    } else if (s->kernel == VP_K_ROPE_FWD || s->kernel == VP_K_ROPE_BWD) {
        of  = s->rope.batch;
        seq = s->rope.seq;
    } else if (s->kernel == VP_K_EMBEDDING_FWD || s->kernel == VP_K_EMBEDDING_BWD) {
        of  = s->embedding.rows == vp_mul(samples, b->seq) ? samples : 0;
        seq = s->embedding.seq; /* backward's begin alike */
    }
    return of != samples || seq != b->seq ? "is not of the micro-batch and sequence" : NULL;
}

static bool is_dropout(const vp_plan *plan, double p, bool may_be_none)
{
    return p == plan->recipe.dropout || (may_be_none && p == 0);
}

/* A copy that would bring a frozen parameter other values than it began with. */
static const char *copy(const vp_plan *plan, const vp_program *p, const vp_step *s)
{
    const vp_param *param = param_of(plan, p, &s->args[VP_COPY_START_Y], VP_SPACE_PARAM);

    return param && param->frozen ? "writes a frozen parameter" : NULL;
}

/* What is summed apart from a gradient in bf16 is fp32 in a buffer. */
static const char *dtype(const vp_plan *plan, const vp_step *s)
{
    const vp_kernel_info *info      = vp_kernel_info_of(s->kernel);
    vp_gradients          gradients = plan->recipe.gradients;

    for (int k = 0; k < info->n_operands; k++)
        if (info->operands[k].elem == VP_AS_GRAD && s->args[k].space == VP_SPACE_BUFFER)
            gradients = VP_GRADIENTS_FP32;
    return s->dtype == vp_kernel_dtype(s->kernel, vp_precision_compute(plan->recipe.precision),
                                       vp_gradients_dtype(gradients))
               ? NULL
               : "is in another number format than the recipe's";
}

/* The rows that a step has with a padded end, or without: what a linear makes, its gradient, logits. */
static const vp_arg *rows_of(const vp_step *s, int64_t *padded)
{
    *padded = s->kernel == VP_K_CROSS_ENTROPY ? s->cross_entropy.padded : s->linear.padded;
    switch (s->kernel) {
    case VP_K_LINEAR_FWD:
        return &s->args[VP_LINEAR_FWD_Y];
    case VP_K_LINEAR_ADD_FWD:
        return &s->args[VP_LINEAR_ADD_FWD_Y];
    case VP_K_LINEAR_BWD_INPUT:
        return &s->args[VP_LINEAR_BWD_INPUT_DY];
    case VP_K_LINEAR_BWD_WEIGHT:
        return &s->args[VP_LINEAR_BWD_WEIGHT_DY];
    case VP_K_CROSS_ENTROPY:
        return &s->args[VP_CROSS_ENTROPY_LOGITS];
    default:
        return NULL;
    }
}

/* Who writes rows and who reads them are agreed on where one ends. Padded are logits only: another
 * kernel would take what is between the rows for theirs. */
static const char *rows(const vp_program *p, const vp_step *s)
{
    int64_t       padded, other;
    const vp_arg *mine  = rows_of(s, &padded), *its;
    bool          is_ce = !mine || !padded || s->kernel == VP_K_CROSS_ENTROPY;

    if (!mine || mine->space != VP_SPACE_BUFFER)
        return mine && padded ? "pads rows that are no logits" : NULL;
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t k = 0; k < p->n_steps[pass]; k++) {
            its = rows_of(&p->steps[pass][k], &other);
            if (!its || its->space != VP_SPACE_BUFFER || its->idx != mine->idx)
                continue;
            if (padded != other)
                return "has rows of another length than its neighbour";
            is_ce = is_ce || p->steps[pass][k].kernel == VP_K_CROSS_ENTROPY;
        }
    return is_ce ? NULL : "pads rows that are no logits";
}

const char *vp_step_contradiction(const vp_plan *plan, const vp_bucket *b, const vp_program *p,
                                  int pass, const vp_step *s)
{
    bool    last    = pass == VP_PASS_LAST_FORWARD || pass == VP_PASS_LAST_BACKWARD;
    int64_t samples = last ? b->last_micro_batch : b->micro_batch;
    bool    pieces  = vp_plan_offloads(plan);

    if (s->first_only && s->kernel != VP_K_ZERO)
        return "runs in the first micro-step only";
    if (s->later_only && s->kernel != VP_K_COPY_START && s->kernel != VP_K_COPY_DONE)
        return "leaves the first micro-step out";
    if (dtype(plan, s))
        return dtype(plan, s);
    if (rows(p, s))
        return rows(p, s);
    if (updates(s->kernel))
        return update(plan, p, s, pieces);
    switch (s->kernel) {
    case VP_K_GRAD_SUMSQ: {
        const vp_param *param = param_of(plan, p, &s->args[VP_GRAD_SUMSQ_G], VP_SPACE_GRAD);
        return param ? whole_param(plan, s, param, pieces) : NULL;
    }
    case VP_K_CLIP_SCALE:
        return s->clip_reals.clip_norm == plan->recipe.clip_norm
                   ? NULL
                   : "clips otherwise than the recipe";
    case VP_K_DROPOUT:
        return is_dropout(plan, s->dropout_reals.p, false) ||
                       (plan->recipe.lora.rank && s->dropout_reals.p == plan->recipe.lora.dropout)
                   ? NULL
                   : "drops another share";
    case VP_K_SCALE:
        return plan->recipe.lora.rank && s->scale_reals.factor == vp_lora_scale(&plan->recipe.lora)
                   ? NULL
                   : "scales otherwise than the recipe";
    case VP_K_COPY_START:
        return copy(plan, p, s);
    case VP_K_LINEAR_FWD:
    case VP_K_LINEAR_ADD_FWD:
    case VP_K_LINEAR_BWD_INPUT:
    case VP_K_LINEAR_BWD_WEIGHT:
        return linear(plan, p, s);
    case VP_K_ATTENTION_FWD:
    case VP_K_ATTENTION_BWD:
        if (!is_dropout(plan, s->attention_reals.p, true))
            return "drops another share";
        return batch(b, s, samples);
    case VP_K_ROPE_FWD:
    case VP_K_ROPE_BWD:
    case VP_K_EMBEDDING_FWD:
    case VP_K_EMBEDDING_BWD:
        return batch(b, s, samples);
    case VP_K_GRAD_ADD: {
        const vp_param *param = param_of(plan, p, &s->args[VP_GRAD_ADD_G], VP_SPACE_GRAD);
        return param && param->n_elements != s->elements.count ? "is not all of its gradient"
                                                               : NULL;
    }
    case VP_K_ZERO:
        return s->args[0].space == VP_SPACE_GRAD && !s->first_only && b->n_micro_steps > 1
                   ? "clears gradients that earlier micro-steps added to"
                   : NULL;
    default:
        return NULL;
    }
}

const char *vp_program_contradiction(const vp_plan *plan, const vp_program *p, int64_t *param_idx)
{
    const vp_plan_template *t = &plan->templates[p->template_idx];

    for (*param_idx = 0; *param_idx < t->n_params; ++*param_idx) {
        const vp_param *param = &t->params[*param_idx].param;
        if (param->frozen != vp_lora_freezes(&plan->recipe.lora, param->name))
            return param->frozen ? "is frozen, and the recipe says that it is trained"
                                 : "is trained, and the recipe says that it is frozen";
    }
    for (*param_idx = 0; !vp_plan_offloads(plan) && *param_idx < t->n_params; ++*param_idx) {
        int n[VP_N_PASSES] = {0}, times = t->params[*param_idx].param.frozen ? 0 : 1;
        for (int pass = VP_PASS_NORM; pass <= VP_PASS_UPDATE; pass++)
            for (int64_t i = 0; i < p->n_steps[pass]; i++) {
                const vp_step *s = &p->steps[pass][i];
                if (s->args[0].idx == *param_idx &&
                    ((pass == VP_PASS_NORM && s->kernel == VP_K_GRAD_SUMSQ &&
                      s->args[VP_GRAD_SUMSQ_G].space == VP_SPACE_GRAD) ||
                     (pass == VP_PASS_UPDATE && updates(s->kernel) &&
                      s->args[0].space == VP_SPACE_PARAM)))
                    n[pass]++;
            }
        if (n[VP_PASS_UPDATE] != times)
            return times ? "is not updated once a step" : "is frozen, and updated";
        if (n[VP_PASS_NORM] != times)
            return "is not once in the gradients' norm";
    }
    return NULL;
}
