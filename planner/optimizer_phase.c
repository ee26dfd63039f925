/* planner/optimizer_phase.c: what follows the last backward: the gradients' norm, clipping, updates. */
#include "base/checked.h"
#include "plan/workspace.h"
#include "planner/lowering/lower_param.h"
#include "planner/planner_internal.h"

#include <assert.h>

/* The steps of one parameter in a phase, or of the clipping: one kernel each. */
static vp_step param_step(const vp_assembly *a, vp_param_phase phase, const vp_param *p,
                          int64_t idx)
{
    const vp_scenario *s    = a->scenario;
    const vp_graph    *g    = &a->model->graph;
    vp_param_opts      opts = {.recipe           = &s->recipe,
                               .control_idx      = VP_FIXED_CONTROL,
                               .scratch_idx      = a->scratch,
                               .params_per_block = g->templates[g->instances[1].template_idx].n_params};
    vp_param_steps     steps;
    bool               found =
        vp_lower_param(vp_semantics_of(&s->recipe, s->attention), phase, p, idx, &opts, &steps);

    assert(found && steps.n == 1 && steps.steps[0].kernel != VP_N_KERNELS);
    return steps.steps[0];
}

/* An update with its workspace. */
static vp_step with_workspace(const vp_assembly *a, vp_step s)
{
    s.workspace_bytes = vp_step_workspace_bytes(a->cost->device->compute_capability, &s);
    assert(s.workspace_bytes <= 0 ||
           (a->workspace >= 0 && a->fixed[a->workspace].bytes >= s.workspace_bytes &&
            vp_kernel_info_of(s.kernel)->n_operands < VP_MAX_OPERANDS));
    if (s.workspace_bytes > 0)
        s.args[vp_kernel_info_of(s.kernel)->n_operands] =
            (vp_arg){.space = VP_SPACE_FIXED, .idx = a->workspace};
    return s;
}

/* One more buffer, the last but the output, which stays the last; its index, or -1: out of
 * memory. */
static int64_t add_buffer(vp_assembly *a, vp_program *p, const vp_plan_buffer *buffer)
{
    int64_t n = p->n_buffers, at = n > 0 && p->buffers[n - 1].place == VP_PLACE_OUT ? n - 1 : n;
    vp_plan_buffer *list = vp_arena_array(a->arena, n + 1, sizeof *list);

    if (!list)
        return -1;
    assert(at >= 0 && at <= n);
    for (int64_t i = 0; i < n; i++)
        list[i < at ? i : i + 1] = p->buffers[i];
    list[at]     = *buffer;
    p->buffers   = list;
    p->n_buffers = n + 1;
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++)
            for (int k = 0; k < VP_MAX_OPERANDS; k++) {
                vp_arg *arg = &p->steps[pass][i].args[k];
                arg->idx += arg->space == VP_SPACE_BUFFER && arg->idx >= at;
            }
    return at;
}

/* The norm's workspaces of a program, one behind the other in a buffer of its own, so that a
 * backend can sum the squares of many gradients at once. They lie in the stack's place, at_bytes
 * from the instance's base. */
static vp_status add_norm_workspaces(vp_assembly *a, int64_t program_idx, int64_t at_bytes,
                                     vp_err *err)
{
    vp_program *p                  = &a->lowered[program_idx].program;
    int         compute_capability = a->cost->device->compute_capability;
    int64_t     bytes              = 0, buffer;
    vp_status   st                 = VP_OK;

    if (compute_capability == 0 || p->n_steps[VP_PASS_UPDATE] == 0)
        return VP_OK;
    buffer = add_buffer(a, p,
                        &(vp_plan_buffer){.name         = "norm workspace",
                                          .component    = VP_COMP_WORKSPACE,
                                          .offset_bytes = at_bytes});
    VP_TRY_ALLOC(err, buffer >= 0);
    for (int64_t i = 0; i < p->n_steps[VP_PASS_NORM]; i++) {
        vp_step *s = &p->steps[VP_PASS_NORM][i];

        s->workspace_bytes = vp_step_workspace_bytes(compute_capability, s);
        if (s->workspace_bytes > 0) { /* clipping has none */
            int64_t at = vp_round_up(bytes, VP_ALIGN_BYTES);
            s->args[vp_kernel_info_of(s->kernel)->n_operands] =
                (vp_arg){.space = VP_SPACE_BUFFER, .idx = buffer, .offset_bytes = at};
            bytes = vp_add(at, s->workspace_bytes);
        }
    }
    assert(at_bytes % VP_ALIGN_BYTES == 0 && bytes > 0); /* every gradient has a sum */
    p->buffers[buffer].bytes    = bytes;
    a->norm_height[program_idx] = vp_add(at_bytes, bytes);
out:
    return st;
}

static int64_t input_bytes(const vp_program *p)
{
    return p->n_buffers > 0 && p->buffers[0].place == VP_PLACE_IN ? p->buffers[0].bytes : 0;
}

/* Each instance's begin where its predecessor's end, or at its own base: the embedding keeps
 * nothing, so that the first block has its base. Programs have one place for all their
 * instances, that of the first one; where two instances' meet nevertheless, a backend makes them
 * one after the other. */
static vp_status place_norm_workspaces(vp_assembly *a, vp_err *err)
{
    int64_t   end         = 0; /* of the instance before, from this one's base */
    bool     *placed      = vp_arena_array(a->arena, a->n_programs, sizeof *placed);
    bool      in_backward = vp_scenario_updates_in_backward(a->scenario);
    vp_status st          = VP_OK;

    a->norm_height = vp_arena_array(a->arena, a->n_programs, sizeof *a->norm_height);
    VP_TRY_ALLOC(err, placed && a->norm_height);
    for (int64_t i = 0; i < a->graph.n_instances; i++) {
        int64_t k = a->program_of[i];

        if (in_backward) /* where the gradient of its input lies, which the next one needs */
            end = input_bytes(&a->lowered[k].program);
        if (!placed[k])
            VP_TRY(add_norm_workspaces(a, k, vp_round_up(vp_max_i64(0, end), VP_ALIGN_BYTES), err));
        placed[k] = true;
        end       = a->norm_height[k] - a->lowered[k].program.kept_bytes;
    }
out:
    return st;
}

vp_status vp_optimizer_phase_add(vp_assembly *a, vp_err *err)
{
    const vp_graph *g           = &a->graph;
    bool            in_backward = vp_scenario_updates_in_backward(a->scenario);
    int             last        = g->instances[in_backward ? 0 : g->n_instances - 1].template_idx;
    vp_status       st          = VP_OK;

    assert(!in_backward ||
           (a->scratch < 0 && a->workspace < 0)); /* which lie in the stack's place */

    for (int64_t i = 0; i < a->n_programs; i++) {
        const vp_template *tmpl  = &g->templates[a->template_of[i]];
        vp_program        *p     = &a->lowered[i].program;
        p->steps[VP_PASS_NORM]   = vp_arena_array(a->arena, tmpl->n_params + 1, sizeof(vp_step));
        p->steps[VP_PASS_UPDATE] = vp_arena_array(a->arena, tmpl->n_params, sizeof(vp_step));
        VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
        for (int64_t k = 0; k < tmpl->n_params; k++) {
            if (tmpl->params[k].frozen)
                continue;
            p->steps[VP_PASS_NORM][p->n_steps[VP_PASS_NORM]++] =
                param_step(a, VP_PHASE_NORM, &tmpl->params[k], k);
            p->steps[VP_PASS_UPDATE][p->n_steps[VP_PASS_UPDATE]++] =
                with_workspace(a, param_step(a, VP_PHASE_UPDATE, &tmpl->params[k], k));
        }
        assert(p->n_steps[VP_PASS_NORM] == p->n_steps[VP_PASS_UPDATE]);
        if (a->template_of[i] == last) /* the last instance of the pass closes the norm */
            p->steps[VP_PASS_NORM][p->n_steps[VP_PASS_NORM]++] =
                param_step(a, VP_PHASE_CLIP, NULL, -1);
    }
    VP_TRY(place_norm_workspaces(a, err));
out:
    return st;
}

vp_step vp_optimizer_phase_update(const vp_assembly *a, const vp_param *p, int64_t idx)
{
    return param_step(a, VP_PHASE_UPDATE, p, idx);
}

int64_t vp_optimizer_phase_workspace(const vp_assembly *a, const vp_param *p, int64_t idx)
{
    vp_step update = param_step(a, VP_PHASE_UPDATE, p, idx);

    return vp_step_workspace_bytes(a->cost->device->compute_capability, &update);
}
