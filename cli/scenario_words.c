/* A scenario in words: in a line, and on a screen. */
#include "cli/cli.h"
#include "cli/screen.h"

#include <assert.h>
#include <string.h>

/* Names of the ops in mask, " + " between them. */
static void append_ops(vp_text *t, const vp_template *block, uint64_t mask)
{
    for (int i = 0; i < block->n_ops; i++)
        if (mask >> i & 1)
            vp_text_printf(t, "%s%s", mask & (((uint64_t)1 << i) - 1) ? " + " : "",
                           block->ops[i].name);
}

/* The blocks of a run: "9 blocks recompute ln_1 + mlp.act", "22 blocks in segments of 2". */
static void append_run(vp_text *t, const vp_model *model, const vp_block_run *run)
{
    const vp_template *block = &model->graph.templates[vp_block_template(&model->graph)];

    assert(run->n_blocks > 0 && run->segment > 0 && block->n_ops <= 64);
    if (run->segment > 1) {
        vp_text_printf(t, "%lld blocks in segments of %lld", (long long)run->n_blocks,
                       (long long)run->segment);
        return;
    }
    vp_text_printf(t, "%lld block%s ", (long long)run->n_blocks,
                   run->n_blocks == 1 ? " recomputes" : "s recompute");
    if (run->recompute)
        append_ops(t, block, run->recompute);
    else
        vp_text_printf(t, "nothing");
    if (run->offload) {
        vp_text_printf(t, ", move ");
        append_ops(t, block, run->offload);
    }
}

/* Chunks of the loss, and what lies in host memory. */
static void append_rest(vp_text *t, const vp_model *model, const vp_scenario *s)
{
    const char *place = s->offload.nvme ? "on a local drive" : "in host memory";
    char        count[32];

    if (s->loss_chunk)
        vp_text_printf(t, ", loss in chunks of %s tokens",
                       vp_count_text(s->loss_chunk, count, sizeof count));
    else
        vp_text_printf(t, ", loss all at once");
    if (s->offload.blocks)
        vp_text_printf(
            t, ", optimizer states%s%s and the blocks' parameters and gradients in host memory",
            s->offload.nvme ? " " : "", s->offload.nvme ? place : "");
    else if (s->offload.states)
        vp_text_printf(t, ", optimizer states of %lld of the chain's %lld parts %s",
                       (long long)s->offload.states, (long long)model->graph.n_instances, place);
    if (s->offload.host_step)
        vp_text_printf(t, ", stepped there");
    if (vp_scenario_updates_in_backward(s))
        vp_text_printf(t, ", updates in backward");
}

static void append_micro_steps(vp_text *t, const vp_scenario *s)
{
    vp_text_printf(t, "micro-batch %lld, gradient accumulation %lld", (long long)s->micro_batch,
                   (long long)vp_scenario_n_micro(s));
    if (vp_scenario_last_batch(s))
        vp_text_printf(t, ", the last of %lld", (long long)vp_scenario_last_batch(s));
}

void vp_scenario_text(vp_text *t, const vp_model *model, const vp_scenario *s)
{
    const char *kind = vp_scenario_recompute_name(s, model);

    assert(s->n_runs >= 0 && s->n_runs <= VP_MAX_RUNS);
    append_micro_steps(t, s);
    vp_text_printf(t, ", ");
    if (strcmp(kind, "mixed") != 0)
        vp_text_printf(t, "recompute %s", kind);
    for (int i = 0; strcmp(kind, "mixed") == 0 && i < s->n_runs; i++) {
        vp_text_printf(t, "%s", i ? "; " : "");
        append_run(t, model, &s->runs[i]);
    }
    append_rest(t, model, s);
}

void vp_print_scenario(const char *label, const vp_model *model, const vp_scenario *s)
{
    vp_text t     = {0};
    int64_t first = 0;

    if (strcmp(vp_scenario_recompute_name(s, model), "mixed") != 0) {
        vp_scenario_text(&t, model, s);
        vp_screen_line(label, "%s", vp_text_string(&t));
        vp_text_release(&t);
        return;
    }
    append_micro_steps(&t, s);
    append_rest(&t, model, s);
    vp_screen_line(label, "%s", vp_text_string(&t));
    for (int i = 0; i < s->n_runs; i++) {
        vp_text_release(&t);
        vp_text_printf(&t, s->runs[i].n_blocks > 1 ? "%lld to %lld: " : "%lld: ", (long long)first,
                       (long long)(first + s->runs[i].n_blocks - 1));
        append_run(&t, model, &s->runs[i]);
        vp_screen_line(i ? "" : "blocks", "%s", vp_text_string(&t));
        first += s->runs[i].n_blocks;
    }
    vp_text_release(&t);
}
