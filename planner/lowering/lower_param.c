#include "planner/lowering/lower_param.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

typedef struct at {
    const vp_semantics  *semantics;
    const vp_param      *param;
    int64_t              idx;
    const vp_param_opts *opts;
    vp_update_shape      shape;
} at;

/* An argument of the parameter's own that it may lack. */
static vp_arg held(const at *x, vp_space space, vp_region region)
{
    assert(x->param); /* clipping has no parameter of its own */
    bool has = vp_plan_param_bytes(x->opts->recipe, x->param, region) > 0;

    return has ? (vp_arg){.space = space, .idx = x->idx} : (vp_arg){.space = VP_SPACE_NONE};
}

static vp_arg argument(const at *x, vp_ref ref)
{
    switch (ref) {
    case VP_REF_PARAM:
        return held(x, VP_SPACE_PARAM, VP_REGION_PARAM);
    case VP_REF_GRAD:
        return held(x, VP_SPACE_GRAD, VP_REGION_GRAD);
    case VP_REF_MASTER:
        return held(x, VP_SPACE_MASTER, VP_REGION_MASTER);
    case VP_REF_STATE0:
        return held(x, VP_SPACE_STATE0, VP_REGION_STATE0);
    case VP_REF_STATE1:
        return held(x, VP_SPACE_STATE1, VP_REGION_STATE1);
    case VP_REF_SCRATCH:
        return (vp_arg){.space = VP_SPACE_FIXED, .idx = x->opts->scratch_idx};
    case VP_REF_CONTROL:
        return (vp_arg){.space = VP_SPACE_FIXED, .idx = x->opts->control_idx};
    default:
        assert(!"a row of a parameter names something of a block");
        return (vp_arg){.space = VP_SPACE_NONE};
    }
}

/* Of a block's parameter the same, however blocks are grouped. */
static int random_stream(const at *x)
{
    int64_t in_block = x->idx - x->param->index_offset * x->opts->params_per_block;

    assert(in_block >= 0 && in_block < 256 - VP_UPDATE_RNG_FIRST);
    return (int)(x->param->index_offset << 8) + VP_UPDATE_RNG_FIRST + (int)in_block;
}

/* A kernel's attributes, each by its name; there is no default. */
static void set_attributes(const at *x, vp_step *s)
{
    const vp_kernel_info *info = vp_kernel_info_of(s->kernel);
    const struct {
        const char *name;
        double      value;
    } reals[] = {{"clip_norm", x->opts->recipe->clip_norm}};

    vp_update_attributes(x->opts->recipe->optimizer, &x->shape, s->kernel, s->ints);
    for (int i = 0; i < info->n_reals; i++) {
        size_t k = 0;
        while (k < sizeof reals / sizeof *reals && strcmp(reals[k].name, info->reals[i]) != 0)
            k++;
        assert(k < sizeof reals / sizeof *reals);
        s->reals[i] = reals[k].value;
    }
}

static const vp_sem_param_row *find_row(const at *x, vp_param_phase phase)
{
    const vp_semantics *s = x->semantics;

    if (phase == VP_PHASE_UPDATE)
        return vp_semantics_update(s, vp_optimizer_kernel(x->opts->recipe->optimizer, &x->shape));
    while (s->base && !s->norm)
        s = s->base;
    return phase == VP_PHASE_NORM ? s->norm : s->clip;
}

static vp_dtype local_dtype(const at *x, const vp_sem_local *local)
{
    switch (local->dtype) {
    case VP_RULE_F32:
        return VP_DTYPE_F32;
    case VP_RULE_BF16:
        return VP_DTYPE_BF16;
    case VP_RULE_U8:
        return VP_DTYPE_U8;
    case VP_RULE_SAME: /* as the parameter */
        return x->semantics->param;
    case VP_RULE_COMPUTE:
        return vp_dtype_of_operands(x->semantics->compute);
    case VP_RULE_PROMOTE:
        break;
    }
    assert(!"a rule that means nothing for a parameter");
    return VP_DTYPE_NONE;
}

static void add_operand(const at *x, const vp_sem_param_row *row, vp_ref ref, vp_access access,
                        vp_param_steps *out, int k)
{
    int n = out->n;

    assert(n < VP_SEM_MAX_STEPS && k < VP_MAX_OPERANDS);
    out->access[n][k] = access;
    out->local[n][k]  = -1;
    if (ref >= VP_REF_L0 && ref <= VP_REF_L7) {
        int                 i     = (int)(ref - VP_REF_L0);
        const vp_sem_local *local = &row->locals[i];
        vp_dtype            dtype = local_dtype(x, local);
        assert(local->like == VP_REF_PARAM && !local->per_key && local->cast_of == VP_REF_NONE);
        out->local[n][k] = i;
        out->locals[i]   = (vp_param_local){local->name, dtype,
                                            vp_mul(x->param->n_elements, vp_dtype_bytes(dtype))};
    } else {
        out->steps[n].args[k] = argument(x, ref);
    }
}

bool vp_lower_param(const vp_semantics *semantics, vp_param_phase phase, const vp_param *param,
                    int64_t idx, const vp_param_opts *opts, vp_param_steps *out)
{
    at                      x = {.semantics = semantics, .param = param, .idx = idx, .opts = opts};
    const vp_sem_param_row *row;

    assert(opts->recipe && (param || phase == VP_PHASE_CLIP));
    out->n = 0;
    if (param)
        x.shape = vp_plan_param_shape(param);
    row = find_row(&x, phase);
    if (!row)
        return false;
    for (int s = 0; s < VP_SEM_MAX_STEPS && !vp_sem_step_is_end(&row->steps[s]); s++) {
        const vp_sem_step *sem  = &row->steps[s];
        vp_step           *step = &out->steps[out->n];
        int                n    = vp_sem_step_n_operands(sem);

        *step = (vp_step){.kernel = sem->kernel, .name = param ? param->name : "clip"};
        for (int k = 0; k < n; k++)
            add_operand(&x, row, sem->operands[k], vp_sem_step_access(sem, k), out, k);
        out->n_operands[out->n] = n;
        out->micro_ops[out->n]  = sem->name;
        if (sem->kernel != VP_N_KERNELS) {
            step->dtype = vp_kernel_dtype(sem->kernel, semantics->compute,
                                          vp_gradients_dtype(x.opts->recipe->gradients));
            set_attributes(&x, step);
            if (vp_kernel_info_of(sem->kernel)->random)
                step->rng_id = random_stream(&x);
        }
        out->n++;
    }
    return true;
}
