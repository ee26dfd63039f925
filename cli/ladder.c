#include "cli/ladder.h"

#include "base/units.h"
#include "cli/cli.h"
#include "cli/paint.h"
#include "cli/screen.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 1024 }; /* as --loss chunked has it */

/* ---- the techniques: each changes the scenario and says true, or finds nothing to change ---- */

static bool accumulate(const vp_ladder_start *at, vp_scenario *s)
{
    (void)at;
    s->micro_batch = 1;
    return s->global_batch > 1;
}

/* The one that the device has, where it has one. */
static bool use_16_bits(const vp_ladder_start *at, vp_scenario *s, vp_precision precision)
{
    vp_precision half = at->has_device ? vp_default_precision(&at->device) : VP_PREC_BF16_MIXED;
    bool         may = vp_precision_dtype(s->recipe.precision) == VP_DTYPE_F32 && half == precision;

    if (may)
        s->recipe.precision = precision;
    return may;
}

static bool use_bf16(const vp_ladder_start *at, vp_scenario *s)
{
    return use_16_bits(at, s, VP_PREC_BF16_MIXED);
}

static bool use_fp16(const vp_ladder_start *at, vp_scenario *s)
{
    return use_16_bits(at, s, VP_PREC_FP16_MIXED);
}

static bool use_16_bit_gradients(const vp_ladder_start *at, vp_scenario *s)
{
    bool may = s->recipe.gradients == VP_GRADIENTS_FP32 &&
               vp_precision_takes(s->recipe.precision, VP_GRADIENTS_BF16);

    (void)at;
    if (may)
        s->recipe.gradients = VP_GRADIENTS_BF16;
    return may;
}

static bool checkpoint(const vp_ladder_start *at, vp_scenario *s)
{
    vp_scenario_set_all(s, at->model, vp_recompute_set(at->model, VP_RECOMPUTE_FULL));
    return true;
}

static bool fuse_attention(const vp_ladder_start *at, vp_scenario *s)
{
    bool may = s->attention == VP_ATTENTION_MATH;

    (void)at;
    s->attention = VP_ATTENTION_FLASH;
    return may;
}

static bool chunk_loss(const vp_ladder_start *at, vp_scenario *s)
{
    bool may = !s->loss_chunk;

    (void)at;
    s->loss_chunk = may ? CHUNK : s->loss_chunk;
    return may;
}

static bool use_8_bit_states(const vp_ladder_start *at, vp_scenario *s)
{
    bool may = s->recipe.optimizer == VP_OPT_ADAMW;

    (void)at;
    if (may)
        vp_recipe_set_optimizer(&s->recipe, VP_OPT_ADAMW_8BIT);
    return may;
}

static bool has_host(const vp_ladder_start *at)
{
    return at->has_device && !at->device.is_cpu && !at->device.unified &&
           at->device.host_link_bytes_per_s > 0;
}

static bool offload_states(const vp_ladder_start *at, vp_scenario *s)
{
    bool may = has_host(at) && (vp_optimizer_n_states(s->recipe.optimizer) > 0 ||
                                vp_precision_has_master(s->recipe.precision));

    if (may)
        s->offload.states = at->model->graph.n_instances;
    return may;
}

static bool offload_parameters(const vp_ladder_start *at, vp_scenario *s)
{
    bool may = offload_states(at, s) && vp_may_stream(&at->model->graph);

    for (int i = 0; i < s->n_runs; i++) /* segments hold several blocks' parameters at once */
        may &= s->runs[i].segment == 1;

    s->offload.blocks = may;
    return may;
}

static const struct {
    const char *name;
    bool (*apply)(const vp_ladder_start *at, vp_scenario *s);
} techniques[] = {
    {"gradient accumulation", accumulate},
    {"bf16-mixed", use_bf16},
    {"fp16-mixed", use_fp16},
    {"recompute full", checkpoint},
    {"attention flash", fuse_attention},
    {"loss in chunks", chunk_loss},
    {"gradients in bf16", use_16_bit_gradients},
    {"8-bit optimizer states", use_8_bit_states},
    {"offload optimizer", offload_states},
    {"offload params", offload_parameters},
};
enum { N_TECHNIQUES = sizeof techniques / sizeof *techniques };

/* ---- climbing ---- */

static vp_status figures_of(const vp_ladder_start *at, const vp_scenario *s, vp_ladder_figures *out,
                            int64_t *host_bytes, vp_err *err)
{
    vp_cost    cost = {.device = &at->device};
    vp_figures f;
    vp_status  st = VP_OK;

    VP_TRY(vp_assemble_figures(at->model, s, &cost, &f, err));
    *host_bytes = f.host_bytes;
    *out = (vp_ladder_figures){f.peak_bytes, f.device_bytes, at->has_device ? f.step_time_s : -1};
out:
    return st;
}

static bool does_fit(const vp_ladder *l, const vp_rung *rung)
{
    return l->budget_bytes >= 0 && rung->cumulative.device_bytes <= l->budget_bytes;
}

static vp_status add_rung(vp_ladder *l, const char *name, const vp_scenario *alone,
                          const vp_scenario *cumulative, vp_err *err)
{
    vp_rung  *rung = &l->rungs[l->n];
    int64_t   host_bytes;
    vp_status st = VP_OK;

    assert(l->n < VP_MAX_RUNGS);
    rung->name = name;
    VP_TRY(figures_of(&l->start, alone, &rung->alone, &host_bytes, err));
    VP_TRY(figures_of(&l->start, cumulative, &rung->cumulative, &host_bytes, err));
    if (l->first_fit < 0) {
        l->reached    = *cumulative;
        l->host_bytes = host_bytes;
        if (does_fit(l, rung))
            l->first_fit = l->n;
    }
    l->n++;
out:
    return st;
}

vp_status vp_ladder_climb(const vp_ladder_start *start, int64_t budget_bytes, vp_ladder *out,
                          vp_err *err)
{
    vp_scenario so_far = start->scenario;
    vp_status   st     = VP_OK;

    *out = (vp_ladder){.start = *start, .budget_bytes = budget_bytes, .first_fit = -1};
    VP_TRY(add_rung(out, "start", &so_far, &so_far, err));
    for (int i = 0; i < N_TECHNIQUES; i++) {
        vp_scenario alone = start->scenario;
        if (!techniques[i].apply(start, &so_far))
            continue;
        techniques[i].apply(start, &alone); /* what stands on another changes nothing alone */
        VP_TRY(add_rung(out, techniques[i].name, &alone, &so_far, err));
    }
out:
    return st;
}

/* ---- answers ---- */

static json_t *figures_json(const vp_ladder_figures *f)
{
    return json_pack("{s:I, s:I, s:o}", "peak_bytes", (json_int_t)f->peak_bytes, "device_bytes",
                     (json_int_t)f->device_bytes, "step_time_s",
                     f->step_time_s >= 0 ? json_real(f->step_time_s) : json_null());
}

static json_t *rung_json(const vp_ladder *l, const vp_rung *rung)
{
    json_t *cumulative = figures_json(&rung->cumulative);

    json_object_set_new(cumulative, "fits",
                        l->budget_bytes >= 0 ? json_boolean(does_fit(l, rung)) : json_null());
    return json_pack("{s:s, s:s, s:o, s:o}", "name", rung->name, "trainer",
                     rung->option ? "hf" : "vplan", "alone", figures_json(&rung->alone),
                     "cumulative", cumulative);
}

json_t *vp_ladder_json(const vp_ladder *l)
{
    json_t *list = json_array();

    for (int i = 0; i < l->n; i++)
        json_array_append_new(list, rung_json(l, &l->rungs[i]));
    for (int i = 0; i < l->n_beside; i++)
        json_array_append_new(list, rung_json(l, &l->beside[i]));
    return list;
}

/* The bytes that a step on the ladder saves, or adds. */
static const char *change_text(int64_t more, char *buf, size_t buf_size)
{
    char size[32];

    if (more)
        snprintf(buf, buf_size, "%c%s", more > 0 ? '+' : '-',
                 vp_size_text(more > 0 ? more : -more, size, sizeof size));
    else
        snprintf(buf, buf_size, "nothing");
    return buf;
}

static void print_rung(const vp_ladder *l, int i)
{
    const vp_rung *rung = &l->rungs[i], *before = &l->rungs[i ? i - 1 : 0];
    char           alone[48] = "", step[48] = "", needs[32], time[32] = "-";
    int64_t        more = rung->cumulative.device_bytes - before->cumulative.device_bytes;

    if (i) {
        change_text(rung->alone.device_bytes - l->rungs[0].alone.device_bytes, alone, sizeof alone);
        change_text(more, step, sizeof step);
    }
    if (rung->cumulative.step_time_s >= 0)
        vp_time_text(rung->cumulative.step_time_s, time, sizeof time);
    printf("  %-22s %11s %11s %11s %9s%s\n", rung->name, alone, step,
           vp_size_text(rung->cumulative.device_bytes, needs, sizeof needs), time,
           i == l->first_fit ? "  fits"
           : more > 0        ? "  adds"
                             : "");
}

/* What only another trainer does, from its own start. */
static void print_beside(const vp_ladder *l)
{
    char alone[32], least[32];

    if (!l->n_beside)
        return;
    printf("%s%-24s %11s %23s%s%s\n", vp_paint(VP_PAINT_HEAD), "by transformers' Trainer", "alone",
           "micro-batch 1, full", l->budget_bytes >= 0 ? "  fits?" : "", vp_paint_end());
    for (int i = 0; i < l->n_beside; i++) {
        const vp_rung *r = &l->beside[i];
        printf("  %-22s %11s %23s%s\n", r->name,
               vp_size_text(r->alone.device_bytes, alone, sizeof alone),
               vp_size_text(r->cumulative.device_bytes, least, sizeof least),
               does_fit(l, r) ? "   yes" : "");
        printf("    %s\n", r->option);
    }
    printf("\n");
}

void vp_ladder_print(const vp_ladder *l)
{
    const vp_rung *shown = &l->rungs[l->first_fit >= 0 ? l->first_fit : l->n - 1];
    char           size[32];

    if (l->budget_bytes >= 0)
        vp_screen_answer(shown->cumulative.device_bytes, l->budget_bytes, NULL);
    else
        printf("NEEDS %s with all of it; --device or --budget says what fits\n",
               vp_size_text(shown->cumulative.device_bytes, size, sizeof size));
    if (l->first_fit > 0)
        vp_screen_line("fits from", "%s on, with all that stands above it", shown->name);
    if (l->first_fit == 0)
        vp_screen_line("fits from", "the start: nothing has to be saved");
    vp_screen_line("model", "%s%s%s, sequence %lld, global batch %lld", l->start.model->name,
                   l->start.has_device ? " on " : "",
                   l->start.has_device ? l->start.device.name : "",
                   (long long)l->start.scenario.seq, (long long)l->start.scenario.global_batch);
    vp_screen_recipe(&l->start.scenario.recipe, l->start.scenario.attention);
    printf("\n%s%-24s %11s %11s %11s %9s%s\n", vp_paint(VP_PAINT_HEAD), "added one by one",
           "by itself", "in turn", "then needs", "step", vp_paint_end());
    for (int i = 0; i < l->n; i++)
        print_rung(l, i);
    printf("\n");
    print_beside(l);
    if (l->start.has_device)
        vp_screen_line("assumed", "times are a roofline of the device's rates, not measured");
}
