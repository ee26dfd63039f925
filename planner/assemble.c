#include "planner/assemble.h"

#include "core/checked.h"
#include "core/text.h"
#include "core/workspace.h"
#include "planner/library.h"
#include "planner/lower.h"
#include "planner/process.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const recompute_names[] = {"none", "attention", "mlp", "full"};

const char *vp_recompute_name(vp_recompute r)
{
    return recompute_names[r];
}

vp_recompute vp_recompute_by_name(const char *name)
{
    int r = 0;
    while (r < VP_N_RECOMPUTES && strcmp(recompute_names[r], name) != 0)
        r++;
    return (vp_recompute)r;
}

static const char *const attention_names[] = {"flash", "math"};

const char *vp_attention_name(vp_attention_kind a)
{
    return attention_names[a];
}

vp_attention_kind vp_attention_by_name(const char *name)
{
    int a = 0;
    while (a < VP_N_ATTENTIONS && strcmp(attention_names[a], name) != 0)
        a++;
    return (vp_attention_kind)a;
}

/* The first fixed buffers; token types, lengths, angles, scratch and workspace follow where there are any. */
enum { CONTROL, TOKENS, LABELS, MAX_FIXED = 7 + VP_MAX_ROPES };

typedef struct assembly {
    const vp_model    *model;
    vp_graph           graph;        /* the model's, blocks grouped as the scenario says */
    const vp_scenario *scenario;
    vp_cost           *cost;
    vp_arena          *arena;
    vp_lowered        *lowered;      /* the distinct programs                  */
    int               *template_of;  /* each one's template                    */
    uint64_t          *recompute_of; /* and what it recomputes                 */
    int64_t            n_programs;
    int64_t           *program_of;   /* per instance                           */
    int64_t          (*held_bytes)[VP_N_HOLDINGS]; /* per template: of each holding, parameters aligned */
    vp_plan_fixed      fixed[MAX_FIXED];
    int                n_fixed, types, lengths, angles, scratch, workspace; /* indices; -1: none */
    int64_t           *norm_height;  /* per program: what its gradients' norm reaches from the base, 0 without workspaces */
    int64_t            holding_base[VP_N_HOLDINGS], stack_base;
    vp_figures         figures;
    bool               has_algorithm; /* some step has one */
} assembly;

const vp_semantics *vp_semantics_of(vp_precision precision, vp_attention_kind attention)
{
    bool math = attention == VP_ATTENTION_MATH;

    if (vp_precision_dtype(precision) == VP_DTYPE_F32)
        return math ? &vp_semantics_vplan_fp32_math : &vp_semantics_vplan_fp32;
    return math ? &vp_semantics_vplan_bf16_math : &vp_semantics_vplan_bf16;
}

/* Ops behind the last one of a half only finish the block's output: nobody reads what they make again. */
uint64_t vp_recompute_set(const vp_model *model, vp_recompute kind)
{
    const vp_template *block = &model->graph.templates[vp_block_template(&model->graph)];
    uint64_t           set   = 0;
    int                last  = (int)block->n_ops - 1;

    while (last > 0 && block->ops[last].part == VP_PART_NONE)
        last--;
    for (int i = 0; i <= last; i++)
        if (kind == VP_RECOMPUTE_FULL || (kind == VP_RECOMPUTE_ATTENTION && block->ops[i].part == VP_PART_ATTENTION)
            || (kind == VP_RECOMPUTE_MLP && block->ops[i].part == VP_PART_MLP))
            set |= UINT64_C(1) << i;
    return set;
}

void vp_scenario_set_all(vp_scenario *s, const vp_model *model, uint64_t recompute)
{
    s->n_runs  = 1;
    s->runs[0] = (vp_block_run){recompute, model->graph.n_instances - 2, 1};
}

const char *vp_scenario_recompute_name(const vp_scenario *s, const vp_model *model)
{
    for (int kind = 0; s->n_runs == 1 && s->runs[0].segment == 1 && kind < VP_N_RECOMPUTES; kind++)
        if (vp_recompute_set(model, (vp_recompute)kind) == s->runs[0].recompute)
            return recompute_names[kind];
    return "mixed";
}

int64_t vp_max_segment(const vp_model *model)
{
    if (model->graph.windows_vary) /* blocks of a segment could not each have theirs */
        return 1;
    return 64 / model->graph.templates[vp_block_template(&model->graph)].n_ops;
}

/* The program of an instance: one for each template and set of recomputed ops. */
static int64_t program_for(assembly *a, int template_idx, uint64_t recompute)
{
    int64_t p = 0;

    while (p < a->n_programs && (a->template_of[p] != template_idx || a->recompute_of[p] != recompute))
        p++;
    if (p == a->n_programs) {
        a->template_of[p]  = template_idx;
        a->recompute_of[p] = recompute;
        a->n_programs++;
    }
    return p;
}

static vp_status lower_programs(assembly *a, vp_err *err)
{
    const vp_graph    *g = &a->graph;
    const vp_scenario *s = a->scenario;
    vp_grouping        groups[VP_MAX_RUNS];
    int64_t            run = 0, left = s->runs[0].n_blocks;
    vp_status          st = VP_OK;

    for (int i = 0; i < s->n_runs; i++)
        groups[i] = (vp_grouping){s->runs[i].n_blocks, s->runs[i].segment};
    a->graph        = vp_graph_grouped(a->arena, &a->model->graph, groups, s->n_runs);
    VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
    a->lowered      = vp_arena_array(a->arena, s->n_runs + 2, sizeof *a->lowered);
    a->template_of  = vp_arena_array(a->arena, s->n_runs + 2, sizeof *a->template_of);
    a->recompute_of = vp_arena_array(a->arena, s->n_runs + 2, sizeof *a->recompute_of);
    a->program_of   = vp_arena_array(a->arena, g->n_instances, sizeof *a->program_of);
    VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
    for (int64_t i = 0; i < g->n_instances; i++) {
        bool block = i > 0 && i < g->n_instances - 1;
        while (block && left == 0)
            left = s->runs[++run].n_blocks;
        a->program_of[i] = program_for(a, g->instances[i].template_idx, block ? s->runs[run].recompute : 0);
        left -= block ? s->runs[run].segment : 0;
    }
    assert(left == 0 && run == s->n_runs - 1);
    for (int64_t p = 0; p < a->n_programs; p++) {
        vp_lower_opts opts = {.symbols = {s->micro_batch, s->seq, 1, 1}, .recompute = a->recompute_of[p], .chunk_rows = s->loss_chunk, .sm = a->cost->device->compute_capability,
                              .control_idx = CONTROL, .angles_idx = a->angles};
        opts.span_idx[g->tokens_span] = TOKENS;
        opts.span_idx[g->labels_span] = LABELS;
        if (g->types_span >= 0)
            opts.span_idx[g->types_span] = a->types;
        if (g->lengths_span >= 0)
            opts.span_idx[g->lengths_span] = a->lengths;
        VP_TRY(vp_lower(a->arena, g, a->template_of[p], vp_semantics_of(s->recipe.precision, s->attention), &opts, &a->lowered[p], err));
    }
out:
    return st;
}

/* ---- the optimizer's steps, from the template's own parameters ---- */

static vp_step norm_step(const vp_plan_param *p, int64_t idx)
{
    return (vp_step){.kernel = VP_K_GRAD_SUMSQ, .dtype = VP_DTYPE_F32, .name = p->name, .ints = {p->n_elements},
                     .args = {{.space = VP_SPACE_GRAD, .idx = idx}, {.space = VP_SPACE_FIXED, .idx = CONTROL}}};
}

static vp_step clip_step(const vp_recipe *recipe)
{
    return (vp_step){.kernel = VP_K_CLIP_SCALE, .dtype = VP_DTYPE_F32, .name = "clip", .args = {{.space = VP_SPACE_FIXED, .idx = CONTROL}},
                     .reals = {recipe->clip_norm}};
}

/* Each operand of the update by its name. */
static vp_arg update_arg(const assembly *a, const vp_operand_info *operand, const vp_recipe *recipe, const vp_plan_param *p, int64_t idx)
{
    static const struct {
        const char *name;
        vp_space    space;
        vp_holding  holding;
    } known[] = {{"p", VP_SPACE_PARAM, VP_HOLD_PARAM}, {"g", VP_SPACE_GRAD, VP_HOLD_GRAD}, {"master", VP_SPACE_MASTER, VP_HOLD_MASTER},
                 {"m", VP_SPACE_STATE0, VP_HOLD_STATE0}, {"v", VP_SPACE_STATE1, VP_HOLD_STATE1}, {"row", VP_SPACE_STATE0, VP_HOLD_STATE0},
                 {"col", VP_SPACE_STATE1, VP_HOLD_STATE1}};

    if (strcmp(operand->name, "control") == 0)
        return (vp_arg){.space = VP_SPACE_FIXED, .idx = CONTROL};
    if (strcmp(operand->name, "scratch") == 0)
        return (vp_arg){.space = VP_SPACE_FIXED, .idx = a->scratch};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (strcmp(known[k].name, operand->name) == 0)
            return vp_plan_param_bytes(recipe, p, known[k].holding) > 0 ? (vp_arg){.space = known[k].space, .idx = idx}
                                                                         : (vp_arg){.space = VP_SPACE_NONE};
    assert(!"an operand of an update that is none of the known ones");
    return (vp_arg){0};
}

/* Of a block's parameter the same, however blocks are grouped. */
static int update_stream(const assembly *a, const vp_plan_param *p, int64_t idx)
{
    int64_t per_block = a->model->graph.templates[a->model->graph.instances[1].template_idx].n_params;
    int64_t in_block  = idx - p->index_offset * per_block;

    assert(in_block >= 0 && in_block < 256 - VP_UPDATE_RNG_FIRST);
    return (int)(p->index_offset << 8) + VP_UPDATE_RNG_FIRST + (int)in_block;
}

static vp_step update_step(const assembly *a, const vp_plan_param *p, int64_t idx)
{
    const vp_recipe      *recipe = &a->scenario->recipe;
    vp_update_shape       shape  = vp_plan_param_shape(p);
    vp_kernel             kernel = vp_optimizer_kernel(recipe->optimizer, &shape);
    const vp_kernel_info *info   = vp_kernel_info_of(kernel);
    vp_step               s      = {.kernel = kernel, .dtype = vp_precision_dtype(recipe->precision), .name = p->name, .rng_id = update_stream(a, p, idx)};
    const struct {
        const char *name;
        int64_t     value;
    } numbers[] = {{"count", p->n_elements}, {"rows", shape.rows}, {"cols", shape.cols}, {"decay", p->decay},
                   {"state", vp_optimizer_state_kind(recipe->optimizer, &shape)}, {"factored", shape.rows > 1}};

    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (vp_kernel_int(kernel, numbers[k].name) >= 0)
            s.ints[vp_kernel_int(kernel, numbers[k].name)] = numbers[k].value;
    for (int k = 0; k < info->n_operands; k++)
        s.args[k] = update_arg(a, &info->operands[k], recipe, p, idx);
    return s;
}

/* An update with its workspace. */
static vp_step with_workspace(const assembly *a, vp_step s)
{
    s.workspace_bytes = vp_step_workspace_bytes(a->cost->device->compute_capability, &s);
    if (s.workspace_bytes > 0)
        s.args[vp_kernel_info_of(s.kernel)->n_operands] = (vp_arg){.space = VP_SPACE_FIXED, .idx = a->workspace};
    return s;
}

/* One more buffer, the last but the output, which stays the last; its index, or -1: out of memory. */
static int64_t add_buffer(assembly *a, vp_program *p, const vp_plan_buffer *buffer)
{
    int64_t         n    = p->n_buffers, at = n > 0 && p->buffers[n - 1].place == VP_PLACE_OUT ? n - 1 : n;
    vp_plan_buffer *list = vp_arena_array(a->arena, n + 1, sizeof *list);

    if (!list)
        return -1;
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

/* The norm's workspaces of a program, one behind the other in a buffer of its own, so that a backend can sum the squares of many gradients at
 * once. They lie in the stack's place, at_bytes from the instance's base. */
static vp_status add_norm_workspaces(assembly *a, int64_t program_idx, int64_t at_bytes, vp_err *err)
{
    vp_program *p     = &a->lowered[program_idx].program;
    int         sm    = a->cost->device->compute_capability;
    int64_t     bytes = 0, buffer;
    vp_status   st    = VP_OK;

    if (sm == 0 || a->graph.templates[a->template_of[program_idx]].n_params == 0)
        return VP_OK;
    buffer = add_buffer(a, p, &(vp_plan_buffer){.name = "norm workspace", .component = VP_COMP_WORKSPACE, .offset_bytes = at_bytes});
    VP_TRY_ALLOC(err, buffer >= 0);
    for (int64_t i = 0; i < p->n_steps[VP_PASS_NORM]; i++) {
        vp_step *s = &p->steps[VP_PASS_NORM][i];

        s->workspace_bytes = vp_step_workspace_bytes(sm, s);
        if (s->workspace_bytes > 0) { /* clipping has none */
            int64_t at = vp_round_up(bytes, VP_ALIGN_BYTES);
            s->args[vp_kernel_info_of(s->kernel)->n_operands] = (vp_arg){.space = VP_SPACE_BUFFER, .idx = buffer, .offset_bytes = at};
            bytes = vp_add(at, s->workspace_bytes);
        }
    }
    p->buffers[buffer].bytes    = bytes;
    a->norm_height[program_idx] = vp_add(at_bytes, bytes);
out:
    return st;
}

/* Each instance's begin where its predecessor's end, or at its own base: the embedding keeps nothing, so that the first block has its base. Programs
 * have one place for all their instances, that of the first one; where two instances' meet nevertheless, a backend makes them one after the other. */
static vp_status place_norm_workspaces(assembly *a, vp_err *err)
{
    int64_t   end = 0; /* of the instance before, from this one's base */
    bool     *placed = vp_arena_array(a->arena, a->n_programs, sizeof *placed);
    vp_status st = VP_OK;

    a->norm_height = vp_arena_array(a->arena, a->n_programs, sizeof *a->norm_height);
    VP_TRY_ALLOC(err, placed && a->norm_height);
    for (int64_t i = 0; i < a->graph.n_instances; i++) {
        int64_t k = a->program_of[i];

        if (!placed[k])
            VP_TRY(add_norm_workspaces(a, k, vp_round_up(vp_max_i64(0, end), VP_ALIGN_BYTES), err));
        placed[k] = true;
        end       = a->norm_height[k] - a->lowered[k].program.kept_bytes;
    }
out:
    return st;
}

static vp_status add_optimizer(assembly *a, vp_err *err)
{
    const vp_graph  *g      = &a->graph;
    const vp_recipe *recipe = &a->scenario->recipe;
    int              last   = g->instances[g->n_instances - 1].template_idx;
    vp_status        st     = VP_OK;

    for (int64_t i = 0; i < a->n_programs; i++) {
        const vp_template *tmpl = &g->templates[a->template_of[i]];
        vp_program        *p    = &a->lowered[i].program;
        p->steps[VP_PASS_NORM]   = vp_arena_array(a->arena, tmpl->n_params + 1, sizeof(vp_step));
        p->steps[VP_PASS_UPDATE] = vp_arena_array(a->arena, tmpl->n_params, sizeof(vp_step));
        VP_TRY_ALLOC(err, !vp_arena_failed(a->arena));
        for (int64_t k = 0; k < tmpl->n_params; k++) {
            p->steps[VP_PASS_NORM][p->n_steps[VP_PASS_NORM]++]     = norm_step(&tmpl->params[k], k);
            p->steps[VP_PASS_UPDATE][p->n_steps[VP_PASS_UPDATE]++] = with_workspace(a, update_step(a, &tmpl->params[k], k));
        }
        if (a->template_of[i] == last) /* the chain's last instance closes the norm */
            p->steps[VP_PASS_NORM][p->n_steps[VP_PASS_NORM]++] = clip_step(recipe);
    }
    VP_TRY(place_norm_workspaces(a, err));
out:
    return st;
}

/* ---- layout and figures ---- */

static int add_fixed(assembly *a, const char *name, vp_component component, int64_t bytes)
{
    a->fixed[a->n_fixed] = (vp_plan_fixed){.name = name, .component = component, .per_micro_step = component == VP_COMP_BATCH_INPUT, .bytes = bytes};
    return a->n_fixed++;
}

/* What the update of a parameter needs. */
static int64_t update_workspace(const assembly *a, const vp_plan_param *p, int64_t idx)
{
    vp_step update = update_step(a, p, idx);

    return vp_step_workspace_bytes(a->cost->device->compute_capability, &update);
}

/* Which fixed buffers there are: what lowering and the optimizer point to. */
static vp_status list_fixed(assembly *a, vp_err *err)
{
    const vp_graph    *g = &a->model->graph;
    const vp_scenario *s = a->scenario;
    int64_t            ids = vp_mul(vp_mul(s->micro_batch, s->seq), (int64_t)sizeof(int32_t)), scratch = 0, workspace = 0;
    vp_status          st = VP_OK;

    add_fixed(a, "control", VP_COMP_CONTROL, sizeof(vp_control));
    add_fixed(a, "tokens", VP_COMP_BATCH_INPUT, ids);
    add_fixed(a, "labels", VP_COMP_BATCH_INPUT, ids);
    a->types   = g->types_span >= 0 ? add_fixed(a, "token types", VP_COMP_BATCH_INPUT, ids) : -1;
    a->lengths = g->lengths_span >= 0 ? add_fixed(a, "lengths", VP_COMP_BATCH_INPUT, vp_mul(s->micro_batch, (int64_t)sizeof(int32_t))) : -1;
    a->angles  = a->n_fixed;
    for (int r = 0; r < g->n_ropes; r++) {
        int             idx    = add_fixed(a, r ? "angles 2" : "angles", VP_COMP_CONSTANTS, vp_mul(vp_mul(s->seq, g->ropes[r].dim), (int64_t)sizeof(float)));
        vp_plan_angles *angles = &a->fixed[idx].angles;
        angles->n        = g->ropes[r].dim / 2;
        angles->inv_freq = vp_arena_array(a->arena, angles->n, sizeof *angles->inv_freq);
        VP_TRY_ALLOC(err, angles->inv_freq);
        vp_rope_frequencies(&g->ropes[r], s->seq, angles->inv_freq, &angles->scale);
    }
    for (int t = 0; t < g->n_templates; t++)
        for (int64_t k = 0; k < g->templates[t].n_params; k++) {
            vp_update_shape shape = vp_plan_param_shape(&g->templates[t].params[k]);
            int64_t         bytes = vp_optimizer_scratch_bytes(s->recipe.optimizer, &shape);
            scratch   = vp_overflowed(bytes) ? bytes : vp_max_i64(scratch, bytes);
            workspace = vp_max_i64(workspace, update_workspace(a, &g->templates[t].params[k], k));
        }
    a->scratch   = scratch ? add_fixed(a, "scratch", VP_COMP_TEMPORARIES, scratch) : -1;
    a->workspace = workspace ? add_fixed(a, "workspace", VP_COMP_WORKSPACE, workspace) : -1;
out:
    return st;
}

/* One after the other from 0; the optimizer's working memory lies where the stack will begin. */
static int64_t place_fixed(assembly *a)
{
    int64_t at = 0, n_micro = a->scenario->global_batch / a->scenario->micro_batch;

    for (int i = 0; i < a->n_fixed; i++) {
        if (i == a->scratch || i == a->workspace)
            continue;
        a->fixed[i].offset_bytes = at;
        at = vp_round_up(vp_add(at, vp_mul(a->fixed[i].bytes, a->fixed[i].per_micro_step ? n_micro : 1)), VP_ALIGN_BYTES);
    }
    return at;
}

/* Of the optimizer's working memory: scratch, then workspace. */
static int64_t optimizer_height(const assembly *a)
{
    int64_t scratch = a->scratch >= 0 ? a->fixed[a->scratch].bytes : 0;

    return a->workspace < 0 ? scratch : vp_add(vp_round_up(scratch, VP_ALIGN_BYTES), a->fixed[a->workspace].bytes);
}

static int64_t program_height(const assembly *a, int64_t instance_idx)
{
    const vp_lowered *l = &a->lowered[a->program_of[instance_idx]];
    int64_t           height = vp_max_i64(l->height_bytes[VP_PASS_FORWARD], l->height_bytes[VP_PASS_BACKWARD]);

    height = vp_max_i64(height, a->norm_height[a->program_of[instance_idx]]);
    return instance_idx == 0 ? vp_max_i64(height, optimizer_height(a)) : height;
}

static vp_status lay_out(assembly *a, vp_err *err)
{
    const vp_graph    *g = &a->graph;
    const vp_scenario *s = a->scenario;
    int64_t            at = place_fixed(a), prefix = 0, peak;
    vp_status          st = VP_OK;

    a->held_bytes = vp_arena_array(a->arena, g->n_templates, sizeof *a->held_bytes);
    VP_TRY_ALLOC(err, a->held_bytes);
    for (int h = 0; h < VP_N_HOLDINGS; h++) {
        a->holding_base[h] = at;
        for (int t = 0; t < g->n_templates; t++)
            for (int64_t k = 0; k < g->templates[t].n_params; k++)
                a->held_bytes[t][h] = vp_add(a->held_bytes[t][h], vp_round_up(vp_plan_param_bytes(&s->recipe, &g->templates[t].params[k], (vp_holding)h),
                                                                              VP_ALIGN_BYTES));
        for (int64_t i = 0; i < g->n_instances; i++)
            at = vp_add(at, a->held_bytes[g->instances[i].template_idx][h]);
    }
    a->stack_base = peak = at;
    if (a->scratch >= 0)
        a->fixed[a->scratch].offset_bytes = at;
    if (a->workspace >= 0)
        a->fixed[a->workspace].offset_bytes = vp_add(at, optimizer_height(a) - a->fixed[a->workspace].bytes);
    for (int64_t i = 0; i < g->n_instances; i++) {
        peak   = vp_overflowed(peak) ? peak : vp_max_i64(peak, vp_add(vp_add(a->stack_base, prefix), program_height(a, i)));
        prefix = vp_add(prefix, a->lowered[a->program_of[i]].program.kept_bytes);
    }
    a->figures.stack_base_bytes   = a->stack_base;
    a->figures.first_kept_bytes   = a->lowered[a->program_of[0]].program.kept_bytes;
    a->figures.first_height_bytes = program_height(a, 0);
    a->figures.last_height_bytes  = program_height(a, g->n_instances - 1);
    a->figures.peak_bytes         = peak;
    a->figures.device_bytes       = vp_device_bytes(a->cost->device, peak);
    if (vp_overflowed(at) || vp_overflowed(prefix) || vp_overflowed(a->figures.device_bytes))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "this configuration needs more bytes than 64 bits can count"));
out:
    return st;
}

static void price(assembly *a)
{
    const vp_graph *g = &a->graph;
    int64_t         n_micro = a->scenario->global_batch / a->scenario->micro_batch, total_ns = 0, blocks_ns = 0;

    for (int64_t k = 0; k < a->n_programs; k++) {
        vp_program *p = &a->lowered[k].program;
        int64_t     n = 0, passes_ns = 0, once_ns = 0;
        for (int64_t i = 0; i < g->n_instances; i++)
            n += a->program_of[i] == k;
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            for (int64_t i = 0; i < p->n_steps[pass]; i++) {
                vp_step *s  = &p->steps[pass][i];
                s->seconds  = vp_cost_step(a->cost, &a->model->graph, s);
                if (a->cost->profile)
                    s->algorithm = vp_profile_algorithm(a->cost->profile, s->kernel, s->dtype, s->ints);
                a->has_algorithm |= vp_algorithm_is_set(&s->algorithm);
                int64_t *to = pass <= VP_PASS_BACKWARD && !s->first_only ? &passes_ns : &once_ns;
                *to += llround(s->seconds * 1e9);
            }
        total_ns += n * (passes_ns * n_micro + once_ns);
        if (k != a->program_of[0] && k != a->program_of[g->n_instances - 1])
            blocks_ns += n * passes_ns * n_micro;
    }
    a->figures.step_time_s       = (double)total_ns * 1e-9;
    a->figures.outside_blocks_ns = total_ns - blocks_ns;
}

static vp_status work_out(assembly *a, vp_err *err)
{
    vp_status st = VP_OK;

    assert(a->scenario->micro_batch > 0 && a->scenario->global_batch % a->scenario->micro_batch == 0);
    VP_TRY(list_fixed(a, err));
    VP_TRY(lower_programs(a, err));
    VP_TRY(add_optimizer(a, err));
    VP_TRY(lay_out(a, err));
    price(a);
out:
    return st;
}

vp_status vp_assemble_figures(const vp_model *model, const vp_scenario *scenario, vp_cost *cost, vp_figures *out, vp_err *err)
{
    assembly  a  = {.model = model, .scenario = scenario, .cost = cost, .arena = vp_arena_new()};
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, a.arena);
    VP_TRY(work_out(&a, err));
    *out = a.figures;
out:
    vp_arena_free(a.arena);
    return st;
}

/* ---- the plan ---- */

static const char *keep(vp_arena *arena, const char *text)
{
    return vp_arena_strdup(arena, text);
}

static vp_status copy_template(assembly *a, vp_plan *plan, int t, vp_err *err)
{
    const vp_template *from = &a->graph.templates[t];
    vp_plan_template  *to   = &plan->templates[t];
    int64_t            at[VP_N_HOLDINGS] = {0};
    vp_status          st   = VP_OK;

    *to = (vp_plan_template){.name = keep(plan->arena, from->name), .n_params = from->n_params,
                             .params = vp_arena_array(plan->arena, from->n_params, sizeof *to->params)};
    VP_TRY_ALLOC(err, to->params);
    for (int64_t k = 0; k < from->n_params; k++) {
        to->params[k]              = from->params[k];
        to->params[k].name         = keep(plan->arena, from->params[k].name);
        for (int h = 0; h < VP_N_HOLDINGS; h++) {
            int64_t bytes = vp_plan_param_bytes(&a->scenario->recipe, &from->params[k], (vp_holding)h);
            to->params[k].offset_bytes[h] = bytes ? at[h] : 0;
            at[h] += vp_round_up(bytes, VP_ALIGN_BYTES);
        }
    }
out:
    return st;
}

/* What a program recomputes, in the names of the model's ops. */
static const char *program_name(assembly *a, vp_arena *arena, int64_t k)
{
    const vp_template *t = &a->graph.templates[a->template_of[k]];
    const char        *name = keep(arena, t->name);

    if (a->template_of[k] >= a->model->graph.n_templates && name) /* a segment */
        return vp_arena_printf(arena, "%s recomputing all", name);
    for (int i = 0, n = 0; name && i < t->n_ops; i++)
        if (a->lowered[k].again >> i & 1)
            name = vp_arena_printf(arena, "%s%s%s", name, n++ ? "," : " recomputing ", t->ops[i].name);
    return name;
}

/* Its arrays already live in the plan's arena: see vp_assemble(). */
static void copy_program(assembly *a, vp_plan *plan, int64_t k)
{
    vp_program *p = &plan->buckets[0].programs[k];

    *p              = a->lowered[k].program;
    p->template_idx = a->template_of[k];
    p->name         = program_name(a, plan->arena, k);
    for (int64_t i = 0; i < p->n_buffers; i++)
        p->buffers[i].name = keep(plan->arena, p->buffers[i].name);
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++)
            p->steps[pass][i].name = keep(plan->arena, p->steps[pass][i].name);
}

static void copy_instances(assembly *a, vp_plan *plan)
{
    const vp_graph *g = &a->graph;
    vp_bucket      *b = &plan->buckets[0];
    int64_t         base = a->stack_base, at[VP_N_HOLDINGS];

    memcpy(at, a->holding_base, sizeof at);

    for (int64_t i = 0; i < g->n_instances; i++) {
        int t = g->instances[i].template_idx;
        b->instances[i] = (vp_plan_instance){.program_idx = a->program_of[i], .index = g->instances[i].index, .chain_idx = g->instances[i].chain_idx,
                                             .window = g->instances[i].window, .base_bytes = base};
        memcpy(b->instances[i].holding_base_bytes, at, sizeof at);
        base += a->lowered[a->program_of[i]].program.kept_bytes;
        for (int h = 0; h < VP_N_HOLDINGS; h++)
            at[h] += a->held_bytes[t][h];
    }
}

/* How the blocks run, in chain order: [{n_blocks, segment, recompute: [op, ...]}]. */
static json_t *blocks_json(assembly *a)
{
    const vp_graph *g    = &a->graph;
    json_t         *list = json_array();

    for (int64_t i = 1; i < g->n_instances - 1;) {
        int64_t            k = a->program_of[i], n = 0;
        const vp_template *t = &g->templates[a->template_of[k]];
        json_t            *ops = json_array();
        for (; i < g->n_instances - 1 && a->program_of[i] == k; i++)
            n++;
        for (int o = 0; o < t->n_ops; o++)
            if (a->lowered[k].again >> o & 1)
                json_array_append_new(ops, json_string(t->ops[o].name));
        int64_t segment = t->n_ops / g->templates[a->model->graph.instances[1].template_idx].n_ops;
        json_array_append_new(list, json_pack("{s:I, s:I, s:o}", "n_blocks", (json_int_t)(n * segment), "segment", (json_int_t)segment, "recompute", ops));
    }
    return list;
}

static json_t *decisions_json(assembly *a)
{
    const vp_scenario *s = a->scenario;

    return json_pack("{s:I, s:I, s:s, s:o, s:I, s:s}", "micro_batch", (json_int_t)s->micro_batch, "n_micro_steps",
                     (json_int_t)(s->global_batch / s->micro_batch), "recompute", vp_scenario_recompute_name(s, a->model), "blocks",
                     blocks_json(a), "loss_chunk_tokens", (json_int_t)s->loss_chunk, "offload", "none");
}

static json_t *settings_json(const vp_scenario *s, const vp_device *device)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:f}", "trainer", "vplan", "device", device->name, "seq", (json_int_t)s->seq,
                     "global_batch", (json_int_t)s->global_batch, "precision", vp_precision_name(s->recipe.precision), "optimizer",
                     vp_optimizer_name(s->recipe.optimizer), "attention", vp_attention_name(s->attention), "dropout", s->recipe.dropout);
}

static json_t *assumptions_json(const vp_model *model, const vp_cost *cost)
{
    const vp_device *device = cost->device;
    json_t          *list   = json_array();
    bool             others = cost->profile && cost->profile->outside.measured_by != VP_OUTSIDE_NOT_MEASURED;
    char             shown[128];

    for (int64_t i = 0; i < model->n_assumptions; i++)
        json_array_append_new(list, json_string(model->assumptions[i]));
    if (!device->is_cpu && device->sources[VP_FIGURE_OUTSIDE].class_ == VP_CLASS_ASSUMED)
        json_array_append_new(list, json_sprintf("outside the arena, on %s: %lld bytes for context and libraries, not measured%s%s", device->name,
                                                 (long long)device->outside_bytes, others ? "; the profile's are of another device, " : "",
                                                 others ? vp_text_escape(cost->profile->outside.device, shown, sizeof shown) : ""));
    return list;
}

static vp_status fill_plan(assembly *a, vp_plan *plan, vp_err *err)
{
    const vp_graph    *g = &a->graph;
    const vp_scenario *s = a->scenario;
    vp_arena          *arena = plan->arena;
    const vp_figure_source *outside = &a->cost->device->sources[VP_FIGURE_OUTSIDE];
    vp_status          st = VP_OK;

    plan->model_name   = keep(arena, a->model->name);
    plan->family       = keep(arena, a->model->family);
    plan->model_config = json_incref(a->model->config);
    plan->n_params     = a->model->n_params;
    plan->vocab_size   = g->vocab_size;
    plan->recipe       = s->recipe;
    plan->device       = keep(arena, a->cost->device->name);
    plan->compute_capability = a->cost->device->compute_capability;
    plan->global_batch = s->global_batch;
    plan->decisions    = decisions_json(a);
    plan->settings     = settings_json(s, a->cost->device);
    plan->assumptions  = assumptions_json(a->model, a->cost);
    plan->n_templates  = g->n_templates;
    plan->templates    = vp_arena_array(arena, g->n_templates, sizeof *plan->templates);
    plan->n_shared     = g->n_shared;
    plan->shared       = vp_arena_array(arena, g->n_shared, sizeof *plan->shared);
    plan->mask_token   = g->mask_token;
    plan->n_token_types = g->n_token_types;
    plan->n_classes     = g->n_classes;
    plan->label_place   = g->label_place;
    plan->n_fixed      = a->n_fixed;
    plan->fixed        = vp_arena_array(arena, a->n_fixed, sizeof *plan->fixed);
    plan->control_idx  = CONTROL;
    plan->tokens_idx   = TOKENS;
    plan->labels_idx   = LABELS;
    plan->types_idx    = a->types;
    plan->lengths_idx  = a->lengths;
    plan->n_buckets    = 1;
    plan->buckets      = vp_arena_array(arena, 1, sizeof *plan->buckets);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena) && plan->decisions && plan->settings && plan->assumptions);
    plan->buckets[0] = (vp_bucket){.seq = s->seq, .frequency = 1.0, .micro_batch = s->micro_batch,
        .n_micro_steps = s->global_batch / s->micro_batch, .n_programs = a->n_programs, .n_instances = g->n_instances,
        .programs = vp_arena_array(arena, a->n_programs, sizeof(vp_program)),
        .instances = vp_arena_array(arena, g->n_instances, sizeof(vp_plan_instance)), .peak_bytes = a->figures.peak_bytes};
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    memcpy(plan->fixed, a->fixed, sizeof *a->fixed * (size_t)a->n_fixed);
    for (int64_t i = 0; i < g->n_shared; i++)
        plan->shared[i] = (vp_plan_shared){g->shared[i].instance_idx, g->shared[i].param_idx};
    for (int t = 0; t < g->n_templates; t++)
        VP_TRY(copy_template(a, plan, t, err));
    for (int64_t k = 0; k < a->n_programs; k++)
        copy_program(a, plan, k);
    copy_instances(a, plan);
    plan->peak_bytes    = a->figures.peak_bytes;
    plan->outside_bytes = a->figures.device_bytes - a->figures.peak_bytes;
    if (!a->cost->device->is_cpu) {
        plan->outside_class = vp_figure_class_name(outside->class_);
        plan->outside_of    = keep(arena, outside->text);
    }
    plan->budget_bytes  = a->figures.device_bytes;
    plan->process_predicted_bytes = a->cost->device->is_cpu ? vp_process_bytes(plan) : -1;
    plan->step_time_s   = a->figures.step_time_s;
    plan->algorithms_of = a->has_algorithm ? keep(arena, a->cost->profile->backend) : NULL;
    plan->time_class    = a->cost->all_measured ? "measured" : "assumed";
    plan->proof         = VP_PROOF_FALLBACK;
    plan->proof_gap     = plan->bound_s = -1;
    plan->least_budget_bytes = -1;
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
out:
    return st;
}

vp_status vp_assemble(const vp_model *model, const vp_scenario *scenario, vp_cost *cost, vp_plan **out, vp_err *err)
{
    vp_plan  *plan = vp_plan_new();
    vp_status st   = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, plan);
    assembly a = {.model = model, .scenario = scenario, .cost = cost, .arena = plan->arena};
    cost->all_measured = true;
    VP_TRY(work_out(&a, err));
    VP_TRY(fill_plan(&a, plan, err));
    VP_TRY(vp_plan_check(plan, model->name, err));
    *out = plan;
    plan = NULL;
out:
    vp_plan_free(plan);
    return st;
}
