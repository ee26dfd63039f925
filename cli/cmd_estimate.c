/* vplan estimate: where every byte goes, for one configuration. */
#include "cli/bytes_table.h"
#include "cli/cli.h"
#include "cli/estimate.h"
#include "cli/ladder.h"
#include "cli/meant.h"
#include "cli/names.h"
#include "cli/rows.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/itemise.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

typedef struct estimate {
    vp_model   *model;
    vp_device   device;
    vp_scenario scenario;
    int64_t     budget_bytes; /* -1: none */
    bool        has_device, seq_is_default, micro_batch_is_given;
    const char *max;            /* what was looked for; NULL: nothing */
    bool        not_even_least; /* of that, 1 does not fit */
    vp_cost     cost;
    vp_plan    *plan;
    vp_arena   *arena;
    const char *recompute; /* its word */
    vp_itemised itemised;
    vp_ladder   ladder; /* n 0: not asked for */
} estimate;

enum { DEFAULT_CHUNK = 1024 };

static vp_status set_up(const char *model_name, const vp_estimate_options *o, estimate *e,
                        vp_err *err)
{
    vp_scenario *s          = &e->scenario;
    vp_recompute recompute  = VP_RECOMPUTE_NONE;
    int64_t      n_segments = 0;
    vp_optimizer optimizer;
    vp_status    st = VP_OK;

    *s = (vp_scenario){.recipe      = vp_recipe_default(),
                       .micro_batch = o->micro_batch ? o->micro_batch : 1};
    if (o->optimizer) {
        VP_TRY(vp_parse_optimizer(o->optimizer, false, &optimizer, err));
        vp_recipe_set_optimizer(&s->recipe, optimizer);
    }
    if (o->precision)
        VP_TRY(vp_parse_precision(o->precision, false, o->device, &s->recipe.precision, err));
    if (o->gradients)
        VP_TRY(vp_parse_gradients(o->gradients, false, &s->recipe.gradients, err));
    if (o->attention)
        VP_TRY(vp_parse_attention(o->attention, false, &s->attention, err));
    if (o->recompute)
        VP_TRY(vp_parse_recompute(o->recompute, &recompute, &n_segments, err));
    if (o->loss)
        VP_TRY(vp_parse_loss(o->loss, &s->loss_chunk, err));
    if (s->loss_chunk == VP_CHUNK_CHUNKED)
        s->loss_chunk = DEFAULT_CHUNK;
    e->has_device = o->device != NULL;
    VP_TRY(vp_estimate_budget(o, &e->device, &e->budget_bytes, err));
    if (!o->device)
        VP_TRY(vp_device_open("cpu", &e->device, err));
    if (o->device && !o->precision)
        s->recipe.precision = vp_default_precision(&e->device);
    if (o->device)
        VP_TRY(vp_check_precision(&e->device, s->recipe.precision, err));
    VP_TRY(vp_check_gradients(&s->recipe, err));
    if (o->lora)
        VP_TRY(vp_read_own_lora(o->lora, model_name, &s->recipe.lora, err));
    VP_TRY(vp_model_with_graph(model_name,
                               &(vp_model_opts){.dropout    = s->recipe.dropout,
                                                .class_name = o->class_name,
                                                .lora       = &s->recipe.lora},
                               &e->model, NULL, err));
    vp_scenario_set_all(s, e->model, vp_recompute_set(e->model, recompute));
    if (n_segments && !vp_scenario_set_segments(s, e->model, n_segments))
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "--recompute %s: 2 segments or more, of at most %lld of this model's %lld blocks",
            o->recompute, (long long)vp_max_segment(e->model),
            (long long)e->model->graph.n_instances - 2));
    e->recompute            = n_segments ? o->recompute : vp_scenario_recompute_name(s, e->model);
    e->seq_is_default       = !o->seq;
    e->micro_batch_is_given = o->micro_batch != 0;
    s->seq                  = o->seq                                      ? o->seq
                              : e->model->graph.max_seq < VP_ESTIMATE_SEQ ? e->model->graph.max_seq
                                                                          : VP_ESTIMATE_SEQ;
    if (s->seq > vp_graph_longest(&e->model->graph))
        VP_TRY(vp_say_refusal((vp_refusal){.reason = VP_REFUSED_SEQ,
                                           .asked  = s->seq,
                                           .limit  = e->model->graph.max_seq},
                              err));
    assert(s->seq > 0 && s->micro_batch > 0 && s->loss_chunk >= 0);
    s->global_batch = s->micro_batch;
    e->cost.device  = &e->device;
out:
    return st;
}

/* ---- --max ---- */

static vp_status fits_with(estimate *e, int64_t *knob, int64_t value, bool *fits, vp_err *err)
{
    vp_figures figures;
    vp_err     ignored = {0};
    vp_status  st;

    (void)err;
    assert(value > 0 && e->budget_bytes >= 0);
    *knob                    = value;
    e->scenario.global_batch = e->scenario.micro_batch;
    st    = vp_assemble_figures(e->model, &e->scenario, &e->cost, &figures, &ignored);
    *fits = st == VP_OK && figures.device_bytes <= e->budget_bytes;
    return st == VP_ERR_NOMEM ? st : VP_OK; /* more bytes than 64 bits count do not fit */
}

/* The largest value that fits; memory grows with both knobs. 1 where even that does not fit. */
static vp_status maximise(estimate *e, const char *what, vp_err *err)
{
    bool      batch = strcmp(what, "micro-batch") == 0, fits;
    int64_t  *knob  = batch ? &e->scenario.micro_batch : &e->scenario.seq;
    int64_t   low = 1, high = batch ? (int64_t)1 << 40 : e->model->graph.max_seq;
    vp_status st = VP_OK;

    if (batch ? e->micro_batch_is_given : !e->seq_is_default)
        VP_TRY(
            VP_FAIL(err, VP_ERR_USAGE,
                    "--max %s looks for the largest %s, and --%s gives one: leave one of them out",
                    what, what, what));
    if (e->budget_bytes < 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--max needs a --budget or a --device to fit into"));
    while (low < high) { /* low fits, or is 1; above high nothing does */
        int64_t middle = low + (high - low + 1) / 2;
        if (batch && middle > 4 * low)
            middle = 4 * low; /* grow from below: the cost of a try grows with it */
        assert(middle > low && middle <= high); /* so it ends */
        VP_TRY(fits_with(e, knob, middle, &fits, err));
        if (fits)
            low = middle;
        else
            high = middle - 1;
    }
    VP_TRY(fits_with(e, knob, low, &fits, err));
    e->max            = what;
    e->not_even_least = !fits;
    e->seq_is_default &= batch; /* looked for, not assumed */
out:
    return st;
}

/* ---- --ladder ---- */

/* From the bottom: what was not said is what saves nothing. --micro-batch is then the batch that is
 * wanted of a step, to be accumulated. */
static vp_status climb(estimate *e, const vp_estimate_options *o, vp_err *err)
{
    vp_ladder_start start = {.model = e->model, .device = e->device, .has_device = e->has_device};
    vp_status       st    = VP_OK;

    if (o->max)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--max and --ladder are two answers: one at a time"));
    if (!o->precision && vp_precision_takes(VP_PREC_FP32, e->scenario.recipe.gradients))
        e->scenario.recipe.precision = VP_PREC_FP32;
    if (!o->attention)
        e->scenario.attention = VP_ATTENTION_MATH;
    start.scenario = e->scenario;
    VP_TRY(vp_ladder_climb(&start, e->budget_bytes, &e->ladder, err));
    vp_ladder_beside(&e->ladder);
out:
    return st;
}

/* ---- answers ---- */

static bool does_fit(const estimate *e)
{
    return e->budget_bytes < 0 || e->plan->peak_bytes + e->plan->outside_bytes <= e->budget_bytes;
}

static json_t *answer_json(const estimate *e)
{
    const vp_scenario *s           = &e->scenario;
    json_t            *assumptions = json_deep_copy(e->plan->assumptions);
    json_t *settings = json_pack("{s:o, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:I}", "device",
                                 e->has_device ? json_string(e->device.name) : json_null(), "seq",
                                 (json_int_t)s->seq, "micro_batch", (json_int_t)s->micro_batch,
                                 "precision", vp_precision_name(s->recipe.precision), "gradients",
                                 vp_gradients_name(s->recipe.gradients), "optimizer",
                                 vp_optimizer_name(s->recipe.optimizer), "attention",
                                 vp_attention_name(s->attention), "recompute", e->recompute,
                                 "loss_chunk_tokens", (json_int_t)s->loss_chunk);

    if (e->seq_is_default)
        json_array_append_new(
            assumptions,
            json_sprintf("--seq not given: %lld, the smaller of the model's positions and %d",
                         (long long)s->seq, VP_ESTIMATE_SEQ));
    if (e->max)
        json_object_set_new(settings, "max", json_string(e->max));
    json_t *j =
        json_pack("{s:i, s:s, s:{s:s, s:I, s:I}, s:o, s:o, s:o, s:I, s:s, s:I, s:o, s:o, s:o}",
                  "schema_version", 1, "trainer", "vplan", "model", "name", e->model->name,
                  "params_total", (json_int_t)e->model->n_params, "params_trainable",
                  (json_int_t)e->model->n_trained, "settings", settings, "assumptions", assumptions,
                  "budget_bytes", vp_json_int_or_null(e->budget_bytes), "peak_bytes",
                  (json_int_t)e->plan->peak_bytes, "peak_phase", e->itemised.peak_phase,
                  "device_bytes", (json_int_t)(e->plan->peak_bytes + e->plan->outside_bytes),
                  "fits", e->budget_bytes < 0 ? json_null() : json_boolean(does_fit(e)), "items",
                  vp_items_json(&e->itemised), "phases", vp_phases_json(&e->itemised));
    vp_overhead_to_answer(e->plan, j);
    if (j && e->ladder.n)
        json_object_set_new(j, "ladder", vp_ladder_json(&e->ladder));
    return j;
}

/* Those of the names that were given, as they were: "--device 4090 --precision bf16-mixed". */
static void add_options(const vp_command_line *line, const char *const *names, vp_text *out)
{
    for (int i = 0; i < line->n_given; i++)
        for (int k = 0; names[k]; k++)
            if (strcmp(line->given[i].option->name, names[k]) == 0) {
                vp_text_printf(out, " %s ", names[k]);
                vp_text_quoted(out, line->given[i].text);
            }
}

/* A plan of the same, or the cards that would do. */
static void print_next(const estimate *e, const vp_command_line *line)
{
    static const char *const of_plan[]    = {"--device",    "--budget",    "--reserve",
                                             "--class",     "--precision", "--gradients",
                                             "--optimizer", "--attention", NULL};
    static const char *const of_devices[] = {"--precision", "--optimizer", "--micro-batch", NULL};
    bool                     has_card     = e->budget_bytes >= 0;
    vp_text                  command      = {0};

    vp_text_printf(&command, has_card ? "vplan plan " : "vplan devices --fits ");
    vp_text_quoted(&command, line->words[0]);
    add_options(line, has_card ? of_plan : of_devices, &command);
    vp_text_printf(&command, " --seq %lld --global-batch %lld", (long long)e->scenario.seq,
                   (long long)e->scenario.micro_batch);
    if (!command.failed)
        vp_screen_command("next", command.data);
    vp_text_release(&command);
}

static bool is_said(const vp_amount *amount)
{
    return amount->bytes || amount->share > 0;
}

/* A plan with the recipe of the first rung that fits, else of the last. */
static void print_ladder_next(const estimate *e, const vp_estimate_options *o, const char *model)
{
    const vp_scenario *s       = &e->ladder.reached;
    vp_text            command = {0};

    vp_text_printf(&command, e->has_device ? "vplan plan " : "vplan devices --fits ");
    vp_text_quoted(&command, model);
    if (e->has_device) {
        vp_text_printf(&command, " --device ");
        vp_text_quoted(&command, o->device);
    }
    vp_text_printf(&command, " --seq %lld --global-batch %lld --precision %s --optimizer %s",
                   (long long)s->seq, (long long)s->global_batch,
                   vp_precision_name(s->recipe.precision), vp_optimizer_name(s->recipe.optimizer));
    if (s->recipe.gradients != VP_GRADIENTS_FP32)
        vp_text_printf(&command, " --gradients %s", vp_gradients_name(s->recipe.gradients));
    if (e->has_device && (is_said(&o->budget) || is_said(&o->reserve)))
        vp_text_printf(&command, " --budget %lld", (long long)e->budget_bytes);
    if (e->ladder.host_bytes)
        vp_text_printf(&command, " --host-memory %lldGiB",
                       (long long)vp_ceil_div(e->ladder.host_bytes, VP_GIB));
    if (!command.failed)
        vp_screen_command("next", command.data);
    vp_text_release(&command);
}

/* The same step in Trainer takes other bytes, and people mean that one as often. */
static void print_both(const estimate *e, const char *model_name, const vp_estimate_options *given)
{
    vp_estimate_options o = *given;
    int64_t             of_trainer;
    char                a[64];

    o.precision   = vp_precision_name(e->scenario.recipe.precision);
    o.micro_batch = e->scenario.micro_batch;
    o.seq         = e->scenario.seq;
    if (!vp_estimate_beside(model_name, &o, &of_trainer))
        return;
    vp_screen_line("by vplan", "%s in its own runtime: what follows is about it",
                   vp_size_text(e->plan->peak_bytes + e->plan->outside_bytes, a, sizeof a));
    vp_screen_line("by Trainer", "%s in transformers' Trainer, same settings: --trainer hf",
                   vp_size_text(of_trainer, a, sizeof a));
}

static void print_answer(const estimate *e, const vp_command_line *line, const char *model_name,
                         const vp_estimate_options *o)
{
    const vp_scenario *s = &e->scenario;
    char               a[64], class[400];
    vp_text            scenario    = {0};
    int64_t            needs_bytes = e->plan->peak_bytes + e->plan->outside_bytes;

    if (e->budget_bytes >= 0)
        vp_screen_answer(needs_bytes, e->budget_bytes, NULL);
    else
        printf("NEEDS %s; --device or --budget says whether that fits\n",
               vp_size_text(needs_bytes, a, sizeof a));
    if (e->not_even_least)
        printf("           not even %s\n",
               strcmp(e->max, "seq") == 0 ? "--seq 1: a single token" : "--micro-batch 1");
    if (e->max && !e->not_even_least)
        vp_screen_line("largest", "--%s %lld%s", e->max,
                       (long long)(strcmp(e->max, "seq") == 0 ? s->seq : s->micro_batch),
                       s->seq == e->model->graph.max_seq && strcmp(e->max, "seq") == 0
                           ? ", all positions of the model"
                           : "");
    if (o->trainer_is_default)
        print_both(e, model_name, o);
    vp_screen_line("model", "%s, %s parameters, trainer vplan%s%s", e->model->name,
                   vp_count_text(e->model->n_params, a, sizeof a), e->has_device ? ", on " : "",
                   e->has_device ? e->device.name : "");
    vp_screen_recipe(&s->recipe, s->attention);
    vp_scenario_text(&scenario, e->model, s);
    vp_screen_line("setting", "sequence %lld, %s", (long long)s->seq, vp_text_string(&scenario));
    vp_text_release(&scenario);
    if (is_said(&o->reserve))
        vp_screen_line(
            "reserve", "%s kept free",
            vp_size_text(vp_amount_of(&o->reserve, e->device.usable_bytes), a, sizeof a));
    printf("\n");
    vp_screen_bytes(e->plan, &e->itemised, o->all);
    printf("\n");
    /* what is assumed stands below */
    if (e->plan->outside_bytes && strcmp(e->plan->outside_class, "assumed") != 0)
        vp_screen_line("outside", "%s outside the arena, %s",
                       vp_size_text(e->plan->outside_bytes, a, sizeof a),
                       vp_overhead_class_text(e->plan, class, sizeof class));
    vp_screen_per_param(e->plan, &e->itemised);
    vp_screen_phases(&e->itemised, e->plan->outside_bytes);
    if (e->seq_is_default)
        vp_screen_line("assumed", "--seq not given: the smaller of the model's positions and %d",
                       VP_ESTIMATE_SEQ);
    for (size_t i = 0; i < json_array_size(e->plan->assumptions); i++)
        vp_screen_line("assumed", "%s", json_string_value(json_array_get(e->plan->assumptions, i)));
    print_next(e, line);
}

static const vp_option rows[] = {
    {VP_ROW_DEVICE(vp_estimate_options, device),
     .help      = "A device of vplan devices, cpu, or a device file",
     .otherwise = "none; without --budget too nothing is said about fitting"},
    {VP_ROW_BUDGET(vp_estimate_options, budget),
     .help      = "The device memory there is, context and libraries included",
     .otherwise = "what is usable on the device"},
    {VP_ROW_RESERVE(vp_estimate_options, reserve)},
    {VP_ROW_SEQ(vp_estimate_options, seq), .help = "Tokens of a sample",
     .otherwise = "the smaller of the model's positions and 4096"},
    {VP_ROW_MICRO_BATCH(vp_estimate_options, micro_batch), .help = "Samples at once",
     .otherwise = "1; 8 with --trainer hf or trl, their own"},
    VP_ROW_CLASS(vp_estimate_options, class_name),
    {VP_ROW_PRECISION(vp_estimate_options, precision),
     .help      = "Number formats: bf16-mixed and fp16-mixed have fp32 master weights, bf16 rounds "
                  "updates stochastically instead, fp16-mixed scales the loss, tf32 is fp32 whose "
                  "products are TF32; of PyTorch trainers bf16-mixed and fp16-mixed are fp32 "
                  "weights under autocast (bf16=True), bf16-amp and fp16-amp 16-bit ones under it, "
                  "bf16 and fp16 16-bit ones without",
     .otherwise = "bf16-mixed on a card with bf16, fp16-mixed on one with fp16 only, else fp32"},
    {VP_ROW_GRADIENTS(vp_estimate_options, gradients), .open = true,
     .help = "Number format of parameters' gradients between backward and update; bf16, beside a "
             "precision of bf16, halves them and rounds each micro-step's sum as it is added",
     .otherwise = "fp32"},
    {VP_ROW_OPTIMIZER(vp_estimate_options, optimizer), .open = true,
     .help =
         "The optimizer, whose states are counted; adamw-bf16 and adamw-8bit are AdamW with states in bf16 and in 8 bits; "
         "of PyTorch trainers those of transformers' optim: adamw_torch, adamw_torch_fused, "
         "adamw_8bit, paged_adamw_8bit, adafactor, lion_8bit and others, with what optim_args says behind "
         "a colon, and as targets what optim_target_modules says: "
         "galore_adamw:rank=128,targets=all-linear, apollo_adamw:targets=attn+mlp; of a plain loop muon too",
     .otherwise = "adamw; adamw_torch_fused with --trainer hf or trl, adamw_torch with torch"},
    {VP_ROW_ATTENTION(vp_estimate_options, attention), .open = true,
     .help = "How attention is computed; math keeps the attention matrix for backward; of PyTorch "
             "trainers also eager, sdpa, sdpa:flash|efficient|math (one of its kernels), and "
             "flash2, the package flash-attn's"},
    {.name      = "--loss",
     .kind      = VP_OPTION_CHOICE,
     .at        = offsetof(vp_estimate_options, loss),
     .words     = "full|chunked|chunked:N|liger",
     .open      = true,
     .help      = "Head and loss over all tokens at once, or N tokens at a time, a multiple of "
                  "256; chunked is 1024; liger is Liger's, with --trainer hf",
     .example   = "chunked:512",
     .otherwise = "full"},
    {VP_ROW_RECOMPUTE(vp_estimate_options, recompute),
     .help      = "What each block recomputes in backward instead of keeping it; full keeps a "
                  "block's input only, segments:N the inputs of N segments of blocks; of PyTorch "
                  "trainers none, full (gradient checkpointing), full:reentrant, the same by "
                  "use_reentrant=True (full is that where --versions has transformers 4, and "
                  "full:non-reentrant is not), every:N, the first of each N layers, or first:N, "
                  "the first N layers",
     .otherwise = "none; full with --qlora"},
    {.name      = "--max",
     .kind      = VP_OPTION_CHOICE,
     .at        = offsetof(vp_estimate_options, max),
     .words     = "micro-batch|seq",
     .help      = "The largest micro-batch or sequence that fits; needs a device or a budget",
     .otherwise = "none",
     .example   = "micro-batch"},
    VP_ROW_ALL(vp_estimate_options, all),
    {.name = "--ladder",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_estimate_options, ladder),
     .help = "What each technique that saves memory does here, one after another and by itself: "
             "accumulation, 16 bits, recompute, fused attention, loss in chunks, 8-bit states, "
             "offload; from fp32 and math attention, where nothing else is said. Beside them LoRA, "
             "and ZeRO-3 over 8 cards, as Trainer takes them. --micro-batch is "
             "the batch of a step. Exit code 3: even with all of it nothing fits"},
    {.name  = "--trainer",
     .kind  = VP_OPTION_CHOICE,
     .at    = offsetof(vp_estimate_options, trainer),
     .words = "vplan|torch|hf|trl",
     .meant = vp_trainer_meant,
     .help  = "Whose training step it is: vplan's own, transformers' modules in a plain loop of "
              "PyTorch, or those with transformers' Trainer or TRL's SFTTrainer",
     .otherwise =
         "vplan; with an option that only PyTorch's trainers have hf, with --method or --packing trl",
     .example = "hf"},
};
static const vp_option_set options = {VP_ROWS(rows)};

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    vp_estimate_options o = {0};
    estimate            e = {0};
    vp_command_line     line;
    const char         *name;
    vp_status           st = VP_OK;

    VP_TRY(vp_cli_parse(&vp_cmd_estimate, argc, argv, cli, (void *[]){&o, &o, cli}, &line, err));
    name = line.words[0];
    if (!name)
        VP_TRY(vp_cli_lacks(&vp_cmd_estimate, "vplan estimate MODEL: which model?", err));
    VP_TRY(vp_device_named(cli, &o.device, err));
    VP_TRY(vp_model_named(cli, &name, err));
    o.trainer_is_default = !o.trainer;
    if (!o.trainer && !cli->json && vp_estimate_is_only_recorded(name, &o)) {
        vp_cli_note(cli, "vplan itself does not run this family: by transformers' Trainer, as with "
                         "--trainer hf");
        o.trainer = "hf";
    }
    if (!o.trainer)
        o.trainer = vp_estimate_trainer_meant(&o);
    if (strcmp(o.trainer, "vplan") != 0) {
        VP_TRY(vp_estimate_trainer(&line, name, &o, cli, err));
        goto out;
    }
    VP_TRY(vp_estimate_only_vplan(&o, err));
    VP_TRY(set_up(name, &o, &e, err));
    if (o.ladder)
        VP_TRY(climb(&e, &o, err));
    if (o.max)
        VP_TRY(maximise(&e, o.max, err));
    VP_TRY(vp_assemble(e.model, &e.scenario, &e.cost, &e.plan, err));
    e.arena = vp_arena_new();
    VP_TRY_ALLOC(err, e.arena);
    VP_TRY(vp_itemise(e.arena, e.plan, &e.plan->buckets[0], &e.itemised, err));
    if (cli->json)
        VP_TRY(vp_print_json(answer_json(&e), err));
    else if (o.ladder)
        vp_ladder_print(&e.ladder);
    else
        print_answer(&e, &line, name, &o);
    if (o.ladder && !cli->json)
        print_ladder_next(&e, &o, line.words[0]);
    cli->exit_code = does_fit(&e) || e.ladder.first_fit > 0 ? 0 : 3;
out:
    vp_arena_free(e.arena);
    vp_plan_free(e.plan);
    vp_model_free(e.model);
    return st;
}

const vp_command vp_cmd_estimate = {
    .name      = "estimate",
    .summary   = "whether a training step fits, and where every byte goes",
    .usage     = {"MODEL [options]"},
    .about     = {"Where every byte is at the peak of one configuration, how high each phase "
                      "reaches, and whether it fits.",
                  "MODEL is a built-in name (vplan models), a config.json of any name, a folder that "
                      "holds one, or a Hub id that the local Hugging Face cache holds."},
    .examples  = {"vplan estimate qwen2.5-7b --qlora --device 4090",
                  "vplan estimate gpt2-xl --device 4090 --seq 1024 --recompute full",
                  "vplan estimate llama-3.1-8b --device h200 --precision bf16-mixed --max seq"},
    .sets      = {&options, &vp_estimate_trainer_options, &vp_note_options},
    .argument  = VP_TAKES_MODEL,
    .max_words = 1,
    .run       = run,
};
