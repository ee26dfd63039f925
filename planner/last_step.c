/* planner/last_step.c: the steps of a last micro-step that has fewer samples than the others. They
 * are those of the same template lowered at so many samples, on the buffers of the full one: each
 * uses the first part of what it has there, so that offsets, what is kept and the arena are the
 * full micro-step's. */
#include "planner/planner_internal.h"

#include <assert.h>
#include <string.h>

static bool is_named_alike(const vp_plan_buffer *a, const vp_plan_buffer *b)
{
    return a->place == b->place && (a->name == b->name || !strcmp(a->name, b->name));
}

/* Whether both list buffers of the same names and places in the same order, as they nearly always do. */
static bool are_listed_alike(const vp_program *a, const vp_program *b)
{
    bool alike = a->n_buffers == b->n_buffers;

    for (int64_t i = 0; alike && i < a->n_buffers; i++)
        alike = is_named_alike(&a->buffers[i], &b->buffers[i]);
    return alike;
}

/* The buffer of `in` that was made as x->buffers[idx] was: of the same name and place, as many of
 * these before it, and large enough; -1: there is none. */
static int64_t same_buffer(const vp_program *in, const vp_program *x, int64_t idx,
                           bool listed_alike)
{
    const vp_plan_buffer *b        = &x->buffers[idx];
    int64_t               n_before = 0, k = listed_alike ? idx : 0;

    for (int64_t i = 0; !listed_alike && i < idx; i++)
        n_before += is_named_alike(&x->buffers[i], b);
    for (; !listed_alike && k < in->n_buffers; k++)
        if (is_named_alike(&in->buffers[k], b) && n_before-- == 0)
            break;
    return k < in->n_buffers && in->buffers[k].bytes >= b->bytes &&
                   in->buffers[k].kept == b->kept && in->buffers[k].component == b->component
               ? k
               : -1;
}

/* A pass of x on the buffers of to, whose numbers are at[]. */
static vp_status take_pass(vp_arena *arena, const vp_program *x, vp_program *to, int pass,
                           const int64_t *at, vp_err *err)
{
    int      as   = pass == VP_PASS_FORWARD ? VP_PASS_LAST_FORWARD : VP_PASS_LAST_BACKWARD;
    int64_t  n    = 0;
    vp_step *list = vp_arena_room(arena, x->n_steps[pass] + 1, sizeof *list);

    if (!list)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < x->n_steps[pass]; i++) {
        if (x->steps[pass][i].first_only) /* a micro-step stands before the last */
            continue;
        list[n] = x->steps[pass][i];
        for (int k = 0; k < VP_MAX_OPERANDS; k++)
            if (list[n].args[k].space == VP_SPACE_BUFFER)
                list[n].args[k].idx = at[list[n].args[k].idx];
        n++;
    }
    to->steps[as]   = list;
    to->n_steps[as] = n;
    return VP_OK;
}

vp_status vp_last_step_add(vp_arena *arena, const vp_lowered *last, vp_lowered *to, bool *alike,
                           vp_err *err)
{
    const vp_program *x            = &last->program;
    int64_t          *at           = vp_arena_array(arena, x->n_buffers + 1, sizeof *at);
    const bool        listed_alike = are_listed_alike(x, &to->program);
    vp_status         st           = VP_OK;

    VP_TRY_ALLOC(err, at);
    *alike = true;
    for (int64_t k = 0; k < x->n_buffers; k++)
        *alike &= (at[k] = same_buffer(&to->program, x, k, listed_alike)) >= 0;
    for (int pass = VP_PASS_FORWARD; *alike && pass <= VP_PASS_BACKWARD; pass++)
        VP_TRY(take_pass(arena, x, &to->program, pass, at, err));
out:
    return st;
}
