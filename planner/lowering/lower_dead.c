/* planner/lowering/lower_dead.c: steps whose results nobody needs. */
#include "base/checked.h"
#include "planner/lowering/lowering_internal.h"

/* Whether a step writes what is needed, or what lies outside the block. */
static bool is_live(const vp_flow_step *s, const bool *needed)
{
    for (int k = 0; k < s->n_operands; k++)
        if (s->access[k] != VP_READ &&
            (s->value[k] >= 0 ? needed[s->value[k]] : s->step.args[k].space != VP_SPACE_NONE))
            return true;
    return false;
}

/* Steps of a pass whose results nobody needs are left out. needed: of each value, by what comes after
 * the pass; then also by what stays of it. live: zeroed, of each step. */
static void drop_dead(vp_flow *f, vp_pass pass, bool *needed, bool *live)
{
    vp_flow_step *steps  = f->steps[pass];
    int64_t       n_live = 0;

    for (int64_t i = f->n_steps[pass] - 1; i >= 0; i--) {
        live[i] = is_live(&steps[i], needed);
        for (int k = 0; live[i] && k < steps[i].n_operands; k++)
            if (steps[i].value[k] >= 0)
                needed[steps[i].value[k]] = true;
    }
    for (int64_t i = 0; i < f->n_steps[pass]; i++)
        if (live[i])
            steps[n_live++] = steps[i];
    f->n_steps[pass] = n_live;
}

vp_status vp_flow_drop_dead(vp_flow *f, vp_err *err)
{
    int64_t n      = vp_max_i64(f->n_steps[VP_PASS_FORWARD], f->n_steps[VP_PASS_BACKWARD]);
    bool   *needed = vp_arena_array(f->arena, f->n_values + 1, sizeof *needed);
    bool   *live   = vp_arena_array(f->arena, n + 1, sizeof *live);

    if (!needed || !live)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (f->grad_in >= 0)
        needed[f->grad_in] = true;
    drop_dead(f, VP_PASS_BACKWARD, needed, live);
    if (f->out >= 0)
        needed[f->out] = true;
    drop_dead(f, VP_PASS_FORWARD, needed, live);
    return VP_OK;
}
