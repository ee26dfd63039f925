/* planner/layout.c: where everything lies in the arena: fixed buffers, a region for each kind of thing
 * held for parameters, the activation stack. */
#include "base/checked.h"
#include "planner/planner_internal.h"

#include <assert.h>

int vp_layout_add_fixed(vp_assembly *a, const char *name, vp_component component, int64_t bytes)
{
    assert(a->n_fixed < VP_MAX_FIXED);
    a->fixed[a->n_fixed] = (vp_plan_fixed){.name           = name,
                                           .component      = component,
                                           .per_micro_step = component == VP_COMP_BATCH_INPUT,
                                           .bytes          = bytes};
    return a->n_fixed++;
}

/* What master weights and states in host memory pass through, or gradients and parameters that the host
 * needs for their updates, beside the control block. */
vp_status vp_layout_list_windows(vp_assembly *a, vp_err *err)
{
    static const char *const        moved[VP_N_WINDOW_PARTS]  = {"master", "state 1", "state 2"},
                             *const needed[VP_N_WINDOW_PARTS] = {"parameter", "gradient", ""};
    const bool                      host_step                 = a->scenario->offload.host_step;
    const char *const              *parts                     = host_step ? needed : moved;
    const vp_memory                 memory = host_step ? VP_MEMORY_HOST_PINNED : VP_MEMORY_DEVICE;
    int64_t                         bytes[VP_N_WINDOWS][VP_N_WINDOW_PARTS] = {{0}};
    vp_status                       st                                     = VP_OK;

    a->host_control =
        host_step ? vp_layout_add_fixed(a, "control for the host", VP_COMP_STAGING,
                                        vp_precision_control_bytes(a->scenario->recipe.precision))
                  : -1;
    if (host_step)
        a->fixed[a->host_control].memory = memory;
    if (a->scenario->offload.states > 0)
        vp_offload_window_bytes(a, bytes);
    for (int w = 0; w < VP_N_WINDOWS; w++)
        for (int part = 0; part < VP_N_WINDOW_PARTS; part++) {
            a->windows[w][part] = -1;
            if (bytes[w][part] == 0)
                continue;
            const char *name = vp_arena_printf(a->arena, "%s window %d", parts[part], w + 1);
            VP_TRY_ALLOC(err, name);
            a->windows[w][part] = vp_layout_add_fixed(a, name, VP_COMP_STAGING, bytes[w][part]);
            a->fixed[a->windows[w][part]].memory = memory;
        }
out:
    return st;
}

/* Which fixed buffers there are: what lowering and the optimizer point to. */
vp_status vp_layout_list_fixed(vp_assembly *a, vp_err *err)
{
    const vp_graph    *g = &a->model->graph;
    const vp_scenario *s = a->scenario;
    int64_t ids = vp_mul(vp_mul(s->micro_batch, s->seq), (int64_t)sizeof(int32_t)), scratch = 0,
            workspace = 0;
    vp_status st      = VP_OK;

    vp_layout_add_fixed(a, "control", VP_COMP_CONTROL,
                        vp_precision_control_bytes(a->scenario->recipe.precision));
    vp_layout_add_fixed(a, "tokens", VP_COMP_BATCH_INPUT, ids);
    vp_layout_add_fixed(a, "labels", VP_COMP_BATCH_INPUT, ids);
    assert(a->n_fixed == VP_FIXED_LABELS + 1); /* the first three are where programs look */
    a->types =
        g->types_span >= 0 ? vp_layout_add_fixed(a, "token types", VP_COMP_BATCH_INPUT, ids) : -1;
    a->lengths = g->lengths_span >= 0
                     ? vp_layout_add_fixed(a, "lengths", VP_COMP_BATCH_INPUT,
                                           vp_mul(s->micro_batch, (int64_t)sizeof(int32_t)))
                     : -1;
    a->angles  = a->n_fixed;
    for (int r = 0; r < g->n_ropes; r++) {
        int idx =
            vp_layout_add_fixed(a, r ? "RoPE table 2" : "RoPE table", VP_COMP_CONSTANTS,
                                vp_mul(vp_mul(s->seq, g->ropes[r].dim), (int64_t)sizeof(float)));
        vp_rope_table *angles = &a->fixed[idx].angles;
        angles->n             = g->ropes[r].dim / 2;
        angles->inv_freq      = vp_arena_array(a->arena, angles->n, sizeof *angles->inv_freq);
        VP_TRY_ALLOC(err, angles->inv_freq);
        vp_rope_frequencies(&g->ropes[r], s->seq, angles->inv_freq, &angles->scale);
    }
    for (int t = 0; t < g->n_templates; t++)
        for (int64_t k = 0; k < g->templates[t].n_params; k++) {
            if (g->templates[t].params[k].frozen)
                continue;
            vp_update_shape shape = vp_plan_param_shape(&g->templates[t].params[k]);
            int64_t         bytes = vp_optimizer_scratch_bytes(s->recipe.optimizer, &shape);
            scratch               = vp_overflowed(bytes) ? bytes : vp_max_i64(scratch, bytes);
            workspace             = vp_max_i64(workspace,
                                               vp_optimizer_phase_workspace(a, &g->templates[t].params[k], k));
        }
    a->scratch = scratch ? vp_layout_add_fixed(a, "scratch", VP_COMP_TEMPORARIES, scratch) : -1;
    a->workspace =
        workspace ? vp_layout_add_fixed(a, "workspace", VP_COMP_WORKSPACE, workspace) : -1;
out:
    return st;
}

/* Working memory of the optimizer lies where the stack will begin: nothing else is there then. */
static bool is_optimizers(const vp_assembly *a, int fixed_idx)
{
    return fixed_idx == a->scratch || fixed_idx == a->workspace ||
           (a->fixed[fixed_idx].component == VP_COMP_STAGING &&
            a->fixed[fixed_idx].memory == VP_MEMORY_DEVICE &&
            (a->slots < 0 || fixed_idx < a->slots) &&
            (a->activation_slots < 0 || fixed_idx < a->activation_slots));
}

/* Windows of the host's lie where what blocks keep in host memory begins: nothing is kept then, or, in
 * backward, behind them. Returns where they end; 0: there are none. */
static int64_t place_host_windows(vp_assembly *a)
{
    int64_t end = 0;

    for (int i = 0; i < a->n_fixed; i++)
        if (a->fixed[i].memory == VP_MEMORY_HOST_PINNED) {
            a->fixed[i].offset_bytes = vp_round_up(end ? end : a->host_stack_base, VP_ALIGN_BYTES);
            end                      = vp_add(a->fixed[i].offset_bytes, a->fixed[i].bytes);
        }
    return end;
}

vp_bucket vp_layout_bucket(const vp_scenario *s)
{
    int64_t last = vp_scenario_last_batch(s);

    return (vp_bucket){.seq              = s->seq,
                       .frequency        = 1.0,
                       .micro_batch      = s->micro_batch,
                       .n_micro_steps    = vp_scenario_n_micro(s),
                       .last_micro_batch = last ? last : s->micro_batch};
}

/* One after the other from 0. */
static int64_t place_fixed(vp_assembly *a)
{
    const vp_bucket micros = vp_layout_bucket(a->scenario);
    int64_t         at     = 0;

    for (int i = 0; i < a->n_fixed; i++) {
        if (is_optimizers(a, i) || a->fixed[i].memory == VP_MEMORY_HOST_PINNED)
            continue;
        assert(vp_overflowed(at) || at % VP_ALIGN_BYTES == 0);
        a->fixed[i].offset_bytes = at;
        at = vp_round_up(vp_add(at, vp_plan_fixed_total_bytes(&micros, &a->fixed[i])),
                         VP_ALIGN_BYTES);
    }
    return at;
}

/* The optimizer's working memory, one behind the other from `at`; returns its height. */
static int64_t place_optimizers(vp_assembly *a, int64_t at)
{
    int64_t height = 0;

    for (int i = 0; i < a->n_fixed; i++)
        if (is_optimizers(a, i)) {
            height                   = vp_round_up(height, VP_ALIGN_BYTES);
            a->fixed[i].offset_bytes = vp_add(at, height);
            height                   = vp_add(height, a->fixed[i].bytes);
        }
    return height;
}

static int64_t program_height(const vp_assembly *a, int64_t instance_idx, int64_t optimizer_height)
{
    assert(a->program_of[instance_idx] < a->n_programs);
    const vp_lowered *l = &a->lowered[a->program_of[instance_idx]];
    int64_t           height =
        vp_max_i64(l->height_bytes[VP_PASS_FORWARD], l->height_bytes[VP_PASS_BACKWARD]);

    height = vp_max_i64(height, a->norm_height[a->program_of[instance_idx]]);
    return instance_idx == 0 ? vp_max_i64(height, optimizer_height) : height;
}

/* From the end of a template's held things to the next multiple of VP_ALIGN_BYTES. */
static int64_t padding_of(const vp_assembly *a, int template_idx, vp_region region)
{
    const vp_template *t = &a->graph.templates[template_idx];

    for (int64_t k = t->n_params - 1; k >= 0; k--) {
        int64_t bytes = vp_plan_param_bytes(&a->scenario->recipe, &t->params[k], region);
        if (bytes > 0)
            return vp_round_up(bytes, VP_ALIGN_BYTES) - bytes;
    }
    return 0;
}

vp_memory vp_region_memory(const vp_scenario *s, int64_t n_instances, int64_t instance_idx,
                           vp_region region)
{
    bool block = instance_idx > 0 && instance_idx < n_instances - 1;
    bool host =
        region >= VP_REGION_MASTER ? instance_idx < s->offload.states : block && s->offload.blocks;

    if (!host)
        return VP_MEMORY_DEVICE;
    if (region < VP_REGION_MASTER)
        return VP_MEMORY_HOST_PINNED;
    return s->offload.nvme        ? VP_MEMORY_NVME
           : s->offload.host_step ? VP_MEMORY_HOST /* no copy goes there */
                                  : VP_MEMORY_HOST_PINNED;
}

int64_t vp_layout_host_bytes(const vp_program *p)
{
    int64_t most = 0;

    for (int64_t b = 0; b < p->n_buffers; b++)
        if (p->buffers[b].memory == VP_MEMORY_HOST_PINNED)
            most = vp_max_i64(most, vp_add(p->buffers[b].offset_bytes, p->buffers[b].bytes));
    return most;
}

bool vp_layout_stays(const vp_assembly *a, int64_t instance_idx, vp_region region)
{
    bool shared = false;

    for (int64_t i = 0; i < a->graph.n_shared; i++)
        shared |= a->graph.shared[i].instance_idx == instance_idx;
    return shared || region != VP_REGION_GRAD || !vp_scenario_consumes_gradients(a->scenario);
}

/* What each template holds in each region, unless that is known: of a frame it is as long as the recipe is. */
static vp_status find_held_bytes(vp_assembly *a, vp_err *err)
{
    const vp_graph *g = &a->graph;

    if (a->held_bytes)
        return VP_OK;
    a->held_bytes = vp_arena_array(a->arena, g->n_templates, sizeof *a->held_bytes);
    if (!a->held_bytes)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int h = 0; h < VP_N_REGIONS; h++)
        for (int t = 0; t < g->n_templates; t++)
            for (int64_t k = 0; k < g->templates[t].n_params; k++)
                a->held_bytes[t][h] = vp_add(
                    a->held_bytes[t][h],
                    vp_round_up(vp_plan_param_bytes(&a->scenario->recipe,
                                                    &g->templates[t].params[k], (vp_region)h),
                                VP_ALIGN_BYTES));
    return VP_OK;
}

vp_status vp_layout_place(vp_assembly *a, vp_err *err)
{
    const vp_graph    *g                    = &a->graph;
    const vp_scenario *s                    = a->scenario;
    int64_t            end[VP_N_MEMORIES]   = {[VP_MEMORY_DEVICE] = place_fixed(a)};
    int64_t            reach[VP_N_MEMORIES] = {0}; /* as end, without the last padding */
    int64_t   prefix = 0, moved = 0, pinned, peak, optimizers, host_at, windows_end, passing;
    vp_status st = VP_OK;

    VP_TRY(find_held_bytes(a, err));
    for (int h = 0; h < VP_N_REGIONS; h++) {
        for (int m = 0; m < VP_N_MEMORIES; m++)
            a->region_base[m][h] = end[m];
        passing = 0;
        for (int64_t i = 0; i < g->n_instances; i++) {
            int       t     = g->instances[i].template_idx;
            int64_t   bytes = a->held_bytes[t][h];
            vp_memory m     = vp_region_memory(s, g->n_instances, i, (vp_region)h);
            if (!vp_layout_stays(a, i, (vp_region)h)) {
                passing = vp_max_i64(passing, bytes);
                continue;
            }
            end[m] = vp_add(end[m], bytes);
            if (bytes > 0)
                reach[m] = end[m] - (vp_overflowed(end[m]) ? 0 : padding_of(a, t, (vp_region)h));
        }
        end[VP_MEMORY_DEVICE] = vp_add(end[VP_MEMORY_DEVICE], passing);
        if (h == VP_REGION_GRAD) {
            a->figures.passing_bytes = passing;
            a->figures.block_passing_bytes =
                vp_layout_stays(a, 1, VP_REGION_GRAD)
                    ? 0
                    : a->held_bytes[g->instances[1].template_idx][VP_REGION_GRAD];
        }
    }
    a->stack_base = peak = end[VP_MEMORY_DEVICE];
    a->host_stack_base = host_at = end[VP_MEMORY_HOST_PINNED];
    optimizers                   = place_optimizers(a, a->stack_base);
    windows_end                  = place_host_windows(a);
    pinned                       = reach[VP_MEMORY_HOST_PINNED];
    if (vp_scenario_updates_in_backward(s) && windows_end)
        a->host_stack_base = host_at = vp_round_up(windows_end, VP_ALIGN_BYTES);
    for (int64_t i = 0; i < g->n_instances; i++) {
        peak   = vp_overflowed(peak) ? peak
                                     : vp_max_i64(peak, vp_add(vp_add(a->stack_base, prefix),
                                                               program_height(a, i, optimizers)));
        prefix = vp_add(prefix, a->lowered[a->program_of[i]].program.kept_bytes);
        if (i == 0 || a->program_of[i] != a->program_of[i - 1])
            moved = vp_layout_host_bytes(&a->lowered[a->program_of[i]].program);
        pinned  = moved ? vp_add(host_at, moved) : pinned;
        host_at = vp_add(host_at, vp_round_up(moved, VP_ALIGN_BYTES));
    }
    a->figures.stack_base_bytes   = a->stack_base;
    a->figures.first_kept_bytes   = a->lowered[a->program_of[0]].program.kept_bytes;
    a->figures.first_height_bytes = program_height(a, 0, optimizers);
    a->figures.last_height_bytes  = program_height(a, g->n_instances - 1, optimizers);
    a->figures.peak_bytes         = peak;
    a->figures.device_bytes       = vp_device_bytes(a->cost->device, peak);
    a->figures.pageable_bytes     = reach[VP_MEMORY_HOST];
    a->figures.host_bytes = vp_add(vp_max_i64(pinned, windows_end), a->figures.pageable_bytes);
    a->figures.nvme_bytes = reach[VP_MEMORY_NVME];
    a->figures.host_stack_base_bytes = a->host_stack_base;
    if (vp_overflowed(a->stack_base) || vp_overflowed(host_at) || vp_overflowed(prefix) ||
        vp_overflowed(a->figures.device_bytes))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "this configuration needs more bytes than 64 bits can count"));
    assert(peak >= a->stack_base + prefix && a->stack_base % VP_ALIGN_BYTES == 0);
out:
    return st;
}
