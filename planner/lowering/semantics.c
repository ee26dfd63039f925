#include "planner/lowering/semantics.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

const vp_sem_row *vp_semantics_row(const vp_semantics *s, vp_op op)
{
    for (; s; s = s->base)
        for (int i = 0; i < s->n_rows; i++)
            if (s->rows[i].op == op)
                return &s->rows[i];
    assert(!"a semantics without a row for this op");
    return NULL;
}

static const int64_t UNSET = INT64_MIN + 1; /* neither a value nor VP_OVERFLOW */

const char *vp_sem_attributes(const vp_sem_row *row, const vp_sem_shape *x, vp_step *call)
{
    const vp_kernel_info *info    = vp_kernel_info_of(call->kernel);
    const char           *missing = NULL;

    for (int k = 0; k < VP_MAX_INTS; k++)
        call->ints[k] = UNSET;
    for (int k = 0; k < VP_MAX_REALS; k++)
        call->reals[k] = NAN;
    assert(row->attributes && x->rows >= 0 && x->batch >= 1 && x->seq >= 1);
    row->attributes(x, call);
    for (int k = 0; k < VP_MAX_INTS; k++) {
        if (k < info->n_ints && info->ints[k].if_said && call->ints[k] == UNSET)
            call->ints[k] = 0;
        if (k < info->n_ints && call->ints[k] == UNSET)
            missing = info->ints[k].name;
        if (k >= info->n_ints)
            call->ints[k] = 0; /* of another kernel's set */
    }
    for (int k = 0; k < VP_MAX_REALS; k++) {
        if (k < info->n_reals && isnan(call->reals[k]))
            missing = info->reals[k];
        if (k >= info->n_reals)
            call->reals[k] = 0;
    }
    return missing;
}

const vp_sem_param_row *vp_semantics_update(const vp_semantics *s, vp_kernel update)
{
    for (; s; s = s->base)
        for (int i = 0; i < s->n_updates; i++)
            if (s->updates[i].update == update)
                return &s->updates[i];
    return NULL;
}

vp_access vp_sem_step_access(const vp_sem_step *s, int k)
{
    assert(k >= 0 && k < vp_sem_step_n_operands(s));
    if (s->kernel == VP_N_KERNELS)
        return k < s->n_reads ? VP_READ : VP_WRITE;
    return vp_kernel_info_of(s->kernel)->operands[k].access;
}

int vp_sem_step_n_operands(const vp_sem_step *s)
{
    int n = 0;

    if (s->kernel != VP_N_KERNELS)
        return vp_kernel_info_of(s->kernel)->n_operands;
    while (n < VP_MAX_OPERANDS && s->operands[n] != VP_REF_NONE)
        n++;
    return n;
}

bool vp_sem_step_is_end(const vp_sem_step *s)
{
    return s->operands[0] == VP_REF_NONE;
}
