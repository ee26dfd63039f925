/* The options that commands share, and what to say of words that are none. */
#include "cli/cli.h"
#include "cli/meant.h"
#include "cli/rows.h"

#include "base/file.h"
#include "base/output.h"
#include "planner/assemble.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- words of choices ---- */

const char *vp_word_of_precision(int i)
{
    return i < VP_N_PRECISIONS ? vp_precision_name((vp_precision)i) : NULL;
}

const char *vp_word_of_gradients(int i)
{
    return i < VP_N_GRADIENTS ? vp_gradients_name((vp_gradients)i) : NULL;
}

const char *vp_word_of_optimizer(int i)
{
    return i < VP_N_OPTIMIZERS ? vp_optimizer_name((vp_optimizer)i) : NULL;
}

const char *vp_word_of_attention(int i)
{
    return i < VP_N_ATTENTIONS ? vp_attention_name((vp_attention_kind)i) : NULL;
}

/* "cpu", the names of the table, then its short names. */
const char *vp_word_of_device(int i)
{
    static vp_device card; /* the word lives until the next call */
    int              n = 1;

    if (i == 0)
        return "cpu";
    for (int k = 0; vp_device_at(k, &card); k++)
        if (n++ == i)
            return card.name;
    for (int k = 0; vp_device_at(k, &card); k++)
        if (card.alias[0] && n++ == i)
            return card.alias;
    return NULL;
}

const char *vp_word_of_model(int i)
{
    const vp_zoo_entry *z = vp_zoo_at(i);

    return z ? z->name : NULL;
}

/* ---- rows ---- */

static const vp_option note_rows[] = {
    {.name = "-q",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_cli, quiet),
     .help = "Print no notes on standard error; errors are printed all the same"},
    {.name = "-v",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_cli, verbose),
     .help = "Print on standard error what the answer was made from: which model, device, recorded "
             "step; how much was searched"},
};
const vp_option_set vp_note_options = {VP_ROWS(note_rows)};

/* --json and --help are looked for before all else: main.c. */
static const vp_option common_rows[] = {
    {.name = "--help",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(vp_cli, help),
     .help = "Say this, and stop"},
    {.name    = "--json",
     .kind    = VP_OPTION_FLAG,
     .at      = offsetof(vp_cli, json),
     .help    = "Print one JSON document, also for errors",
     .repeats = true},
};
static const vp_option_set common_options = {"options of every command", VP_ROWS(common_rows)};
static const vp_option_set without_json   = {"options of every command", common_rows, 1};

static const vp_option plan_rows[] = {
    {VP_ROW_SEQ(vp_plan_options, seq),
     .help = "Tokens of a sample; required, but where tune is given a plan or samples are images"},
    {.name    = "--global-batch",
     .kind    = VP_OPTION_COUNT,
     .at      = offsetof(vp_plan_options, global_batch),
     .value   = "N",
     .unit    = "samples",
     .min     = 1,
     .max     = 1000000,
     .help    = "Samples of one optimizer step; required, but where tune is given a plan",
     .example = "32"},
    {VP_ROW_DEVICE(vp_plan_options, device),
     .help      = "A device of vplan devices, cpu, or a device file",
     .otherwise = "the card here, with what is free on it now as the budget; without one cpu"},
    {VP_ROW_BUDGET(vp_plan_options, budget),
     .help      = "The device memory there is, context and libraries included; a share is of what "
                  "is usable",
     .otherwise = "what is usable on the device; on cpu 80 % of what is available now"},
    {VP_ROW_RESERVE(vp_plan_options, reserve)},
    {.name  = "--host-memory",
     .kind  = VP_OPTION_SIZE,
     .at    = offsetof(vp_plan_options, host_bytes),
     .value = "SIZE",
     .help  = "Host memory that may hold what is offloaded: master weights and optimizer states, "
              "the blocks' parameters and gradients, what they keep for their backward",
     .otherwise = "none, and nothing is offloaded",
     .example   = "64GiB"},
    {.name      = "--pinned-memory",
     .kind      = VP_OPTION_SIZE,
     .at        = offsetof(vp_plan_options, pinned_bytes),
     .value     = "SIZE",
     .help      = "Of the host memory, what may be pinned (page-locked): all that copies read and "
                  "write; what the host alone updates, with --offload host-step, need not be",
     .otherwise = "all of --host-memory",
     .example   = "16GiB"},
    VP_ROW_CLASS(vp_plan_options, class_name),
    {.name  = "--lora",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(vp_plan_options, lora),
     .value = "r=R,...",
     .help =
         "Train peft's adapters beside a frozen model: r, alpha, targets=all-linear or modules "
         "joined by +, dropout, rslora; without r 8, without alpha 8, without targets peft's own "
         "for the family",
     .alone     = VP_LORA_USUAL,
     .otherwise = "the whole model is trained",
     .example   = "r=16,targets=all-linear"},
    {.name  = "--recipe",
     .kind  = VP_OPTION_INPUT,
     .at    = offsetof(vp_plan_options, recipe),
     .value = "FILE",
     .help  = "What is trained, as JSON: optimizer and its numbers, clipping, schedule, seed, "
              "dropout, kind of data; see docs/plan-file.md",
     .otherwise =
         "AdamW as documented there, bf16-mixed on a card with bf16, fp16-mixed on one with fp16 only",
     .example = "recipe.json"},
    {.name      = "--profile",
     .kind      = VP_OPTION_INPUT,
     .at        = offsetof(vp_plan_options, profile),
     .value     = "FILE",
     .help      = "Measured seconds of kernel calls, and on a card the bytes that lie outside the "
                  "arena, as vplan tune --save-profile or vplan-run --profile write them; bytes "
                  "of another card are not used",
     .otherwise = "none: times and these bytes are assumed",
     .example   = "profile.json"},
};
const vp_option_set vp_plan_options_set = {"what to plan", VP_ROWS(plan_rows)};

static const vp_option pin_rows[] = {
    {VP_ROW_MICRO_BATCH(vp_plan_options, micro_batch),
     .help = "Samples of a micro-batch; divides the global batch", .otherwise = "free"},
    {VP_ROW_RECOMPUTE(vp_plan_options, recompute),
     .help      = "What every block recomputes in backward instead of keeping it; all blocks "
                  "are then alike. segments:N, N of them, of one length, that keep the first "
                  "block's input only. full of a trainer's plan is checkpoints by "
                  "use_reentrant=False, whatever --versions, as estimate's full:non-reentrant, "
                  "which is taken too",
     .otherwise = "free, block by block"},
    {VP_ROW_LOSS(vp_plan_options, loss),
     .help      = "Head and loss over all tokens at once, or N tokens at a time, a multiple of 256",
     .otherwise = "free"},
    {VP_ROW_PRECISION(vp_plan_options, precision), .words = "any",
     .help = "Number formats; any leaves it to the planner, among those that update weights in "
             "fp32 and that the device has",
     .otherwise =
         "the recipe's; without one bf16-mixed on a card with bf16, fp16-mixed on one with fp16 only, else fp32"},
    {VP_ROW_GRADIENTS(vp_plan_options, gradients), .words = "any", .open = true,
     .help      = "Number format of parameters' gradients between backward and update; in bf16, "
                  "beside a precision of bf16, each micro-step's sum is rounded once as it is "
                  "added; any leaves it to the planner",
     .otherwise = "the recipe's, fp32 without one"},
    {VP_ROW_OPTIMIZER(vp_plan_options, optimizer), .words = "any", .open = true,
     .help      = "The optimizer; any leaves it to the planner, among those that differ from "
                  "the recipe's in how they keep their states only",
     .otherwise = "the recipe's"},
    {VP_ROW_ATTENTION(vp_plan_options, attention), .words = "any", .open = true,
     .help = "How attention is computed; math keeps the attention matrix for backward"},
    {.name      = "--offload",
     .kind      = VP_OPTION_CHOICE,
     .at        = offsetof(vp_plan_options, offload),
     .words     = "none|optimizer|params|activations|optimizer+activations|params+activations|"
                  "host-step|params+host-step|host-step+activations|params+host-step+activations",
     .help      = "What lies in host memory: nothing; all master weights and optimizer states; "
                  "these and the blocks' parameters and gradients; what blocks keep for their "
                  "backward. With host-step the host also makes the updates, of adamw, sgd, "
                  "sgd-momentum and lion; on a card only where it is named. Needs --host-memory",
     .otherwise = "as much of it as pays, where there is host memory",
     .example   = "optimizer"},
    {.name  = "--updates",
     .kind  = VP_OPTION_CHOICE,
     .at    = offsetof(vp_plan_options, updates),
     .words = "end|backward",
     .help  = "When parameters are updated: behind the last backward, or each block's in backward, "
              "when its gradients are complete; these then take the bytes of one block's, and the "
              "result has the same bits. In backward only where the recipe does not clip "
              "(clip_norm 0) or scale the loss, in one micro-step, of adamw, sgd, sgd-momentum "
              "and lion",
     .otherwise = "in backward wherever that may be",
     .example   = "end"},
};
const vp_option_set vp_pin_options_set = {
    "pins: choices that you make; the planner makes the others", VP_ROWS(pin_rows)};

/* ---- parsing ---- */

static bool hint(const void *command, const char *name, char *buf, size_t buf_size)
{
    return vp_option_meant(command, name, buf, buf_size);
}

static bool word_hint(const void *command, const char *word, char *buf, size_t buf_size)
{
    return vp_argument_meant(command, word, buf, buf_size);
}

int vp_command_sets(const vp_command *command, const vp_option_set *sets[VP_MAX_SETS])
{
    int n = 0;

    for (; command->sets[n]; n++)
        sets[n] = command->sets[n];
    sets[n++] = command->no_json ? &without_json : &common_options;
    return n;
}

vp_status vp_cli_parse(const vp_command *command, int argc, char **argv, vp_cli *cli,
                       void *const *values, vp_command_line *line, vp_err *err)
{
    const vp_option_set *sets[VP_MAX_SETS];
    void                *all[VP_MAX_SETS];
    vp_options_spec      spec = {.sets       = sets,
                                 .n_sets     = vp_command_sets(command, sets),
                                 .max_words  = command->max_words,
                                 .takes_rest = command->takes_rest,
                                 .hint       = hint,
                                 .word_hint  = word_hint,
                                 .hint_ctx   = command};
    vp_status            st   = VP_OK;

    for (int i = 0; i < spec.n_sets; i++)
        all[i] = i + 1 < spec.n_sets ? values[i] : cli;
    VP_TRY(vp_options_parse(&spec, argc, argv, all, line, err));
    if (cli->quiet && cli->verbose)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "-q and -v: fewer notes, or more? Leave one out"));
    if (line->note[0])
        vp_cli_note(cli, "%s", line->note);
out:
    return st;
}

vp_status vp_cli_lacks(const vp_command *command, const char *what, vp_err *err)
{
    return VP_FAIL(err, VP_ERR_USAGE, "%s For example: %s (vplan help %s lists the options)", what,
                   command->examples[0], command->name);
}

static void say(const char *label, const char *fmt, va_list args)
{
    char text[2000];

    vsnprintf(text, sizeof text, fmt, args);
    vp_output_say(label, text);
}

void vp_cli_note(const vp_cli *cli, const char *fmt, ...)
{
    va_list args;

    if (cli->quiet)
        return;
    va_start(args, fmt);
    say("note: ", fmt, args);
    va_end(args);
}

void vp_cli_detail(const vp_cli *cli, const char *fmt, ...)
{
    va_list args;

    if (!cli->verbose)
        return;
    va_start(args, fmt);
    say("detail: ", fmt, args);
    va_end(args);
}

void vp_cli_progress(const char *text)
{
    const char *head = strncmp(text, "  ", 2) == 0 ? "  " : "";

    vp_output_say(head, text + strlen(head));
}

/* ---- files that a command is told to write ---- */

vp_status vp_output_check(const char *path, bool overwrite, const char *const *inputs, int n_inputs,
                          vp_err *err)
{
    vp_file_writer writer;
    struct stat    output, input;
    char           config[1200];
    vp_status      st = VP_OK;

    assert(path && n_inputs >= 0);
    for (int i = 0; i < n_inputs && stat(path, &output) == 0; i++) {
        if (!inputs[i] || stat(inputs[i], &input) != 0)
            continue;
        snprintf(config, sizeof config, "%s/config.json", inputs[i]);
        if (S_ISDIR(input.st_mode) && stat(config, &input) != 0)
            continue;
        if (output.st_dev == input.st_dev && output.st_ino == input.st_ino)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_USAGE, path, 0, NULL,
                              "is an input too; write the answer elsewhere"));
    }
    VP_TRY(vp_file_begin(path, overwrite, &writer, err));
    vp_file_abort(&writer);
out:
    return st;
}
