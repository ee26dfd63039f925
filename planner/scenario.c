#include "planner/scenario.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

static const char *const recompute_names[] = {"none", "attention", "mlp", "full"};

const char *vp_recompute_name(vp_recompute r)
{
    assert(r < VP_N_RECOMPUTES);
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
    assert(a < VP_N_ATTENTIONS);
    return attention_names[a];
}

vp_attention_kind vp_attention_by_name(const char *name)
{
    int a = 0;
    while (a < VP_N_ATTENTIONS && strcmp(attention_names[a], name) != 0)
        a++;
    return (vp_attention_kind)a;
}

bool vp_scenario_updates_in_backward(const vp_scenario *s)
{
    bool may = s->offload.states == 0 ? vp_scenario_n_micro(s) == 1
                                      : s->offload.host_step && !vp_scenario_last_batch(s);

    return may && !s->updates_at_end && !s->offload.blocks && vp_recipe_updates_alone(&s->recipe);
}

bool vp_scenario_consumes_gradients(const vp_scenario *s)
{
    return vp_scenario_updates_in_backward(s) && s->offload.states == 0;
}

const vp_semantics *vp_semantics_of(const vp_recipe *recipe, vp_attention_kind attention)
{
    assert(attention < VP_N_ATTENTIONS && vp_precision_takes(recipe->precision, recipe->gradients));
    bool math = attention == VP_ATTENTION_MATH;

    if (recipe->gradients == VP_GRADIENTS_BF16)
        return math ? &vp_semantics_vplan_bf16_grads_math : &vp_semantics_vplan_bf16_grads;
    if (recipe->precision == VP_PREC_TF32)
        return math ? &vp_semantics_vplan_tf32_math : &vp_semantics_vplan_tf32;
    if (vp_precision_dtype(recipe->precision) == VP_DTYPE_F32)
        return math ? &vp_semantics_vplan_fp32_math : &vp_semantics_vplan_fp32;
    if (vp_precision_dtype(recipe->precision) == VP_DTYPE_F16)
        return math ? &vp_semantics_vplan_fp16_math : &vp_semantics_vplan_fp16;
    return math ? &vp_semantics_vplan_bf16_math : &vp_semantics_vplan_bf16;
}

static const char *const offload_names[VP_N_OFFLOADS] = {"none",
                                                         "optimizer",
                                                         "host-step",
                                                         "params",
                                                         "params+host-step",
                                                         "activations",
                                                         "optimizer+activations",
                                                         "host-step+activations",
                                                         "params+activations",
                                                         "params+host-step+activations"};

const char *vp_offload_name(vp_offload_kind kind)
{
    return kind < VP_N_OFFLOADS ? offload_names[kind] : "any";
}

static vp_offload_kind kind_of(bool states, bool host_step, bool blocks, bool activations)
{
    int held = blocks      ? VP_OFFLOAD_PARAMS + host_step
               : host_step ? VP_OFFLOAD_HOST_STEP
               : states    ? VP_OFFLOAD_OPTIMIZER
                           : VP_OFFLOAD_NONE;

    return (vp_offload_kind)(held + (activations ? VP_OFFLOAD_ACTIVATIONS : 0));
}

/* Words joined with +, each once; params and host-step hold states, too. */
vp_offload_kind vp_offload_by_name(const char *name)
{
    static const char *const words[]  = {"optimizer", "host-step", "params", "activations"};
    bool                     given[4] = {false};

    if (strcmp(name, "none") == 0)
        return VP_OFFLOAD_NONE;
    for (;;) {
        size_t n = strcspn(name, "+");
        int    i = 0;
        while (i < 4 && (strlen(words[i]) != n || strncmp(words[i], name, n) != 0))
            i++;
        if (i == 4 || given[i])
            return VP_N_OFFLOADS;
        given[i] = true;
        if (!name[n])
            return kind_of(given[0], given[1], given[2], given[3]);
        name += n + 1;
    }
}

bool vp_offload_moves(vp_offload_kind kind)
{
    return kind >= VP_OFFLOAD_ACTIVATIONS && kind < VP_N_OFFLOADS;
}

vp_offload_kind vp_offload_held(vp_offload_kind kind)
{
    return vp_offload_moves(kind) ? (vp_offload_kind)(kind - VP_OFFLOAD_ACTIVATIONS) : kind;
}

bool vp_offload_streams(vp_offload_kind kind)
{
    return vp_offload_held(kind) == VP_OFFLOAD_PARAMS ||
           vp_offload_held(kind) == VP_OFFLOAD_PARAMS_HOST_STEP;
}

bool vp_offload_steps(vp_offload_kind kind)
{
    return vp_offload_held(kind) == VP_OFFLOAD_HOST_STEP ||
           vp_offload_held(kind) == VP_OFFLOAD_PARAMS_HOST_STEP;
}

bool vp_may_stream(const vp_graph *g)
{
    int block = vp_block_template(g);

    int64_t trained = 0, n = block >= 0 ? g->templates[block].n_params : 0;

    for (int64_t k = 0; k < n; k++)
        trained += !g->templates[block].params[k].frozen;
    return block >= 0 && n + 4 * trained <= 5 * VP_MAX_STREAMED &&
           n + trained <= 2 * VP_MAX_STREAMED;
}

vp_offload_kind vp_offload_kind_of(const vp_offload *offload)
{
    return kind_of(offload->states > 0, offload->host_step, offload->blocks,
                   offload->activations != 0);
}

int vp_block_template(const vp_graph *g)
{
    int block = g->n_instances > 2 ? g->instances[1].template_idx : -1;

    for (int64_t i = 1; block >= 0 && i < g->n_instances - 1; i++)
        if (g->instances[i].template_idx != block)
            return -1;
    return block;
}

/* Ops behind the last one of a half only finish the block's output: nobody reads what they make
 * again. */
uint64_t vp_recompute_set(const vp_model *model, vp_recompute kind)
{
    const vp_template *block = &model->graph.templates[vp_block_template(&model->graph)];
    uint64_t           set   = 0;
    int                last  = (int)block->n_ops - 1;

    assert(last >= 0 && last < 64 && kind < VP_N_RECOMPUTES); /* a set is 64 bits */
    while (last > 0 && block->ops[last].part == VP_PART_NONE)
        last--;
    for (int i = 0; i <= last; i++)
        if (kind == VP_RECOMPUTE_FULL ||
            (kind == VP_RECOMPUTE_ATTENTION && block->ops[i].part == VP_PART_ATTENTION) ||
            (kind == VP_RECOMPUTE_MLP && block->ops[i].part == VP_PART_MLP))
            set |= UINT64_C(1) << i;
    return set;
}

int64_t vp_scenario_n_micro(const vp_scenario *s)
{
    assert(s->micro_batch >= 1 && s->micro_batch <= s->global_batch);
    return vp_ceil_div(s->global_batch, s->micro_batch);
}

int64_t vp_scenario_n_full(const vp_scenario *s)
{
    return s->global_batch / s->micro_batch;
}

int64_t vp_scenario_last_batch(const vp_scenario *s)
{
    return s->global_batch % s->micro_batch;
}

void vp_scenario_set_all(vp_scenario *s, const vp_model *model, uint64_t recompute)
{
    assert(model->graph.n_instances >= 3);
    s->n_runs  = 1;
    s->runs[0] = (vp_block_run){
        .recompute = recompute, .n_blocks = model->graph.n_instances - 2, .segment = 1};
}

static vp_block_run segments_of(const vp_model *model, int64_t n, int64_t length)
{
    uint64_t set = length > 1 ? UINT64_MAX : vp_recompute_set(model, VP_RECOMPUTE_FULL);

    return (vp_block_run){.recompute = set, .n_blocks = n * length, .segment = length};
}

bool vp_scenario_set_segments(vp_scenario *s, const vp_model *model, int64_t n)
{
    int64_t n_blocks = model->graph.n_instances - 2;

    if (n < 2 || n > n_blocks || vp_ceil_div(n_blocks, n) > vp_max_segment(model))
        return false;
    int64_t length = n_blocks / n, n_longer = n_blocks % n;

    s->n_runs = 0;
    if (n_longer)
        s->runs[s->n_runs++] = segments_of(model, n_longer, length + 1);
    s->runs[s->n_runs++] = segments_of(model, n - n_longer, length);
    return true;
}

const char *vp_scenario_recompute_name(const vp_scenario *s, const vp_model *model)
{
    for (int kind = 0;
         s->n_runs == 1 && s->runs[0].segment == 1 && !s->runs[0].offload && kind < VP_N_RECOMPUTES;
         kind++)
        if (vp_recompute_set(model, (vp_recompute)kind) == s->runs[0].recompute)
            return recompute_names[kind];
    return "mixed";
}

int64_t vp_max_segment(const vp_model *model)
{
    if (model->graph.windows_vary) /* blocks of a segment could not each have theirs */
        return 1;
    return VP_MAX_SEGMENT;
}
