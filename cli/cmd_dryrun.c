/* vplan dryrun: the peak of any PyTorch command as its own allocator counts it, with no GPU. */
#include "cli/cli.h"
#include "cli/dryrun_print.h"
#include "cli/names.h"
#include "cli/rows.h"
#include "devices/device_here.h"
#include "dryrun/dryrun_run.h"
#include "dryrun/fake_weights.h"
#include "models/hub_cache.h"
#include "models/model.h"

#include "base/text.h"
#include "base/units.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char default_device[] = "h100-sxm-80gb";

typedef struct arguments {
    const char *device, *ranks, *snapshot, *padding, *value, *cudnn, *fake, *out_dir, *dtype;
    vp_amount   budget;
    int64_t     world, host_bytes, steps, repeat;
    double      timeout_s, select;
    bool        force, time, no_owners;
} arguments;

/* The card that is named; else the one here, with what is free on it now; else the default. */
static vp_status choose_card(const arguments *args, vp_device *device, vp_dryrun_opts *opts,
                             vp_err *err)
{
    int64_t   free_bytes = 0;
    bool      here       = false;
    char      a[64], b[64];
    vp_status st = VP_OK;

    if (!args->device)
        VP_TRY(vp_device_here(device, &free_bytes, &here, err));
    if (!here) {
        VP_TRY(vp_parse_budget(args->device ? args->device : default_device, &args->budget, device,
                               &opts->budget_bytes, err));
    } else {
        opts->budget_bytes = args->budget.bytes || args->budget.share > 0
                                 ? vp_amount_of(&args->budget, free_bytes)
                                 : free_bytes;
        if (opts->budget_bytes > device->usable_bytes)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--budget %s is more than the %s usable on %s",
                           vp_size_text(opts->budget_bytes, a, sizeof a),
                           vp_size_text(device->usable_bytes, b, sizeof b), device->name));
    }
    opts->chosen_by = args->device ? VP_DRYRUN_NAMED : here ? VP_DRYRUN_HERE : VP_DRYRUN_DEFAULT;
out:
    return st;
}

enum { MAX_PLAYED = 64, MAX_WORLD = 1024 };

/* --rank: all, or ranks below --world; a launcher's number of ranks is not known here. */
static vp_status check_ranks(const arguments *args, vp_err *err)
{
    const char *p = args->ranks;
    char       *end;
    int64_t     n = 0;

    if (strcmp(p, "kinds") == 0)
        return args->repeat > 1 ? VP_FAIL(err, VP_ERR_USAGE, "--rank kinds: leave out --repeat")
               : args->snapshot ? VP_FAIL(err, VP_ERR_USAGE, "--rank kinds: leave out --snapshot")
               : args->world < 2 || args->world > MAX_WORLD
                   ? VP_FAIL(err, VP_ERR_USAGE, "--rank kinds: say --world N, 2 to %d", MAX_WORLD)
                   : VP_OK;
    if (strcmp(p, "all") == 0)
        return args->world <= MAX_PLAYED
                   ? VP_OK
                   : VP_FAIL(err, VP_ERR_USAGE, "--rank all: at most %d ranks are run", MAX_PLAYED);
    for (;; p = end + 1) {
        long long rank = strtoll(p, &end, 10);
        if (end == p || rank < 0 || (*end && *end != ',') || ++n > MAX_PLAYED)
            return VP_FAIL(err, VP_ERR_USAGE, "--rank %.100s: numbers from 0, all or kinds",
                           args->ranks);
        for (const char *q = args->ranks; q < p; q += strcspn(q, ",") + 1)
            if (strtoll(q, NULL, 10) == rank)
                return VP_FAIL(err, VP_ERR_USAGE, "--rank %.100s: %lld is given twice", args->ranks,
                               rank);
        if (rank > 0 && args->world > 1 && rank >= args->world)
            return VP_FAIL(err, VP_ERR_USAGE, "--rank %lld of --world %lld: they count from 0",
                           rank, (long long)args->world);
        if (!*end)
            return VP_OK;
    }
}

/* The card to pretend and what there is of it. */
static vp_status choose(const arguments *args, vp_device *device, vp_dryrun_opts *opts, vp_err *err)
{
    vp_status st = VP_OK;
    char      a[64], b[64];
    double    value;
    int64_t   context_bytes;

    VP_TRY(choose_card(args, device, opts, err));
    if (device->is_cpu || device->compute_capability < 50 || device->multiprocessors < 1)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--device %s: a dry run pretends a CUDA card, with compute_capability "
                       "and multiprocessors",
                       device->name));
    context_bytes = vp_dryrun_context_of(device).bytes;
    if (opts->budget_bytes <= context_bytes)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--budget %s does not even hold the context and libraries (%s)",
                       vp_size_text(opts->budget_bytes, a, sizeof a),
                       vp_size_text(context_bytes, b, sizeof b)));
    if (args->repeat > 1 && args->snapshot)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--snapshot is of one run: leave out --repeat"));
    if (args->value)
        VP_TRY(vp_real_parse(args->value, "--value", -1e30, 1e30, &value, err));
    VP_TRY(check_ranks(args, err));
    opts->device = device;
    opts->ranks  = args->ranks;
    opts->cudnn  = args->cudnn;
    opts->world  = args->world;
    if (args->snapshot)
        VP_TRY(vp_output_check(args->snapshot, args->force, NULL, 0, err));
    opts->snapshot_path = args->snapshot;
    opts->force         = args->force;
    opts->padding       = args->padding;
    opts->value         = args->value;
    opts->select_frac   = args->select;
    opts->timeout_s     = args->timeout_s;
    opts->host_bytes    = args->host_bytes;
    opts->steps         = args->steps;
    opts->repeat        = args->repeat;
    opts->time          = args->time;
    opts->no_owners     = args->no_owners;
    opts->forks_at      = getenv("VPLAN_FORKS_AT"); /* from the tuner: for this process alone */
    if (opts->forks_at)
        unsetenv("VPLAN_FORKS_AT");
out:
    return st;
}

/* A checkpoint folder of the model that --fake-weights names: a built-in name, a path, or a Hub id
 * in the local cache. */
static vp_status fake_weights(const arguments *args, char *const *python, int *exit_code,
                              vp_err *err)
{
    vp_fake_weights_opts opts = {.config_path = args->fake,
                                 .out_dir     = args->out_dir,
                                 .dtype       = args->dtype,
                                 .force       = args->force,
                                 .python      = python};
    char                 cached[PATH_MAX];
    vp_status            st = VP_OK;

    for (int i = 0; vp_zoo_at(i); i++)
        if (strcmp(vp_zoo_at(i)->name, args->fake) == 0) {
            opts.config_path = NULL;
            opts.config_text = vp_zoo_at(i)->config;
        }
    if (opts.config_path && access(args->fake, F_OK) != 0 && vp_hub_is_id(args->fake)) {
        VP_TRY(vp_hub_find(args->fake, VP_HUB_FOLDER, cached, sizeof cached, err));
        opts.config_path = cached;
    }
    VP_TRY(vp_fake_weights_make(&opts, exit_code, err));
out:
    return st;
}

static const vp_option card_rows[] = {
    {VP_ROW_DEVICE(arguments, device), .help = "The GPU to simulate",
     .otherwise = "the GPU here, which is asked for its name and its free memory and not used; "
                  "else h100-sxm-80gb"},
    {VP_ROW_BUDGET(arguments, budget),
     .help      = "The device memory there is, context and libraries included; too little ends in "
                  "PyTorch's own error, exit 3",
     .otherwise = "what is usable on the card; what is free now on the one here"},
    {.name    = "--world",
     .kind    = VP_OPTION_COUNT,
     .at      = offsetof(arguments, world),
     .value   = "N",
     .unit    = "processes",
     .min     = 1,
     .help    = "Run as a rank of N; collectives return at once",
     .preset  = "1",
     .example = "8"},
    {.name  = "--rank",
     .kind  = VP_OPTION_TEXT,
     .at    = offsetof(arguments, ranks),
     .value = "R|R1,R2,...|all|kinds",
     .help =
         "Which of the ranks of --world, or of those that a launcher in CMD starts: one or several, each by "
         "itself, the others taken to be equal; all, which meet, and whose collectives are compared; or kinds: the first and the "
         "last, and others as far as these differ",
     .preset  = "0",
     .example = "all"},
    {.name      = "--snapshot",
     .kind      = VP_OPTION_OUTPUT,
     .at        = offsetof(arguments, snapshot),
     .value     = "FILE",
     .help      = "Write a snapshot for PyTorch's memory viewer",
     .otherwise = "none",
     .example   = "snapshot.pickle"},
    {.name    = "--padding",
     .kind    = VP_OPTION_CHOICE,
     .at      = offsetof(arguments, padding),
     .words   = "mask|none",
     .help    = "Whether attention masks that are passed hold padding",
     .preset  = "mask",
     .example = "none"},
    {.name      = "--value",
     .kind      = VP_OPTION_TEXT,
     .at        = offsetof(arguments, value),
     .value     = "X",
     .help      = "What device values are that the script reads as Python floats, a number",
     .otherwise = "0",
     .example   = "0.5"},
    {.name    = "--select",
     .kind    = VP_OPTION_REAL,
     .at      = offsetof(arguments, select),
     .value   = "F",
     .unit    = "a fraction",
     .high    = 1,
     .help    = "How much boolean masks select",
     .preset  = "1",
     .example = "0.15"},
    {.name  = "--cudnn",
     .kind  = VP_OPTION_CHOICE,
     .at    = offsetof(arguments, cudnn),
     .words = "auto|off",
     .help =
         "Who plans convolutions and attention: auto asks the cuDNN that PyTorch would load, without a device; off is PyTorch "
         "without cuDNN",
     .preset  = "auto",
     .example = "off"},
    {.name      = "--host-memory",
     .kind      = VP_OPTION_SIZE,
     .at        = offsetof(arguments, host_bytes),
     .value     = "SIZE",
     .help      = "End CMD when a process of it holds more",
     .otherwise = "end it when the host is nearly full",
     .example   = "16GiB"},
    {.name      = "--timeout",
     .kind      = VP_OPTION_REAL,
     .at        = offsetof(arguments, timeout_s),
     .value     = "SECONDS",
     .unit      = "seconds",
     .help      = "End CMD after this time",
     .otherwise = "none",
     .example   = "600"},
    {.name      = "--steps",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(arguments, steps),
     .value     = "N",
     .unit      = "optimizer steps",
     .min       = 1,
     .max       = 100000,
     .help      = "Run so many; then the data ends, so that what follows training is run too, with "
                  "three batches of each evaluation and without writing checkpoints",
     .otherwise = "as many as CMD does",
     .example   = "3"},
    {.name  = "--repeat",
     .kind  = VP_OPTION_COUNT,
     .at    = offsetof(arguments, repeat),
     .value = "N",
     .unit  = "runs",
     .min   = 1,
     .max   = 1000,
     .help =
         "Run the command so often, its threads held up at other places each time, and say between what its "
         "peaks lie; all else is of the run that reserved most",
     .preset  = "1",
     .example = "10"},
    {.name = "--time",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(arguments, time),
     .help =
         "Record the operators of one more step and say what it takes by the card's rates, derated as plan's "
         "are: where it goes, by class of work and by module"},
    {.name = "--no-owners",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(arguments, no_owners),
     .help = "Do not look for who holds what at the peak, which costs time"},
};
static const vp_option fake_rows[] = {
    {.name    = "--fake-weights",
     .kind    = VP_OPTION_INPUT,
     .at      = offsetof(arguments, fake),
     .value   = "MODEL",
     .suggest = vp_word_of_model,
     .help =
         "Run nothing; write a checkpoint folder of the right names, shapes and dtypes "
         "that takes no disk; of a folder with a model_index.json each model of that pipeline of "
         "diffusers; tokenizers that lie there are copied. PYTHON, which has torch and "
         "transformers, is python3 unless it stands behind --",
     .otherwise = "none",
     .example   = "gpt2"},
    {VP_ROW_OUT(arguments, out_dir, "fake"), .value = "DIR", .help = "The folder to make",
     .otherwise = "none; --fake-weights requires it"},
    {.name      = "--dtype",
     .kind      = VP_OPTION_CHOICE,
     .at        = offsetof(arguments, dtype),
     .words     = "float32|float16|bfloat16",
     .help      = "Of these weights",
     .otherwise = "what the config says",
     .example   = "bfloat16"},
    VP_ROW_FORCE(arguments, force),
};
static const vp_option_set card_options = {"the card and the run", VP_ROWS(card_rows)};
static const vp_option_set fake_options = {"checkpoints without weights", VP_ROWS(fake_rows)};

/* The budget as it was typed; NULL: it was not. */
static const char *budget_of(const vp_command_line *line)
{
    for (int i = 0; i < line->n_given; i++)
        if (strcmp(line->given[i].option->name, "--budget") == 0)
            return line->given[i].text;
    return NULL;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    static char *const python[] = {"python3", NULL};
    arguments          args     = {0};
    vp_dryrun_opts     opts     = {0};
    vp_dryrun_result   result   = {0};
    vp_device          device;
    vp_command_line    line;
    vp_status          st = VP_OK;

    VP_TRY(
        vp_cli_parse(&vp_cmd_dryrun, argc, argv, cli, (void *[]){&args, &args, cli}, &line, err));
    if (args.fake) {
        if (!args.out_dir)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--fake-weights needs -o DIR, the folder to make"));
        VP_TRY(vp_model_named(cli, &args.fake, err));
        VP_TRY(fake_weights(&args, line.rest && line.rest[0] ? line.rest : python, &cli->exit_code,
                            err));
        goto out;
    }
    if (args.out_dir || args.dtype)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "-o and --dtype belong to --fake-weights"));
    if (!line.rest || !line.rest[0])
        VP_TRY(vp_cli_lacks(&vp_cmd_dryrun,
                            "nothing to run: vplan dryrun [options] -- CMD...: which command?",
                            err));
    opts.command = line.rest;
    VP_TRY(vp_device_named(cli, &args.device, err));
    VP_TRY(choose(&args, &device, &opts, err));
    VP_TRY(vp_dryrun_run(&opts, &result, err));
    cli->exit_code = result.exit_code;
    if (cli->json) {
        st              = vp_print_json(result.document, err);
        result.document = NULL;
        VP_TRY(st);
    } else {
        vp_dryrun_print(result.document);
        vp_dryrun_print_next(result.document, &(vp_dryrun_asked){.device   = args.device,
                                                                 .budget   = budget_of(&line),
                                                                 .snapshot = args.snapshot,
                                                                 .world    = args.world,
                                                                 .time     = args.time,
                                                                 .command  = line.rest});
    }
out:
    if (result.document)
        json_decref(result.document);
    return st;
}

const vp_command vp_cmd_dryrun = {
    .name    = "dryrun",
    .summary = "the peak memory of any PyTorch command, without a GPU",
    .usage   = {"[options] -- CMD...", "--fake-weights MODEL -o DIR [options] [-- PYTHON]"},
    .about =
        {"The peak of an unmodified PyTorch command, without a GPU: what PyTorch's own caching "
         "allocator counts while CMD runs over libraries in CUDA's place that compute nothing. Peaks by phase, "
         "item and owner, and whether they fit. Nothing is computed on a card. Allocated bytes "
         "equal what others measured for LoRA on a T4 and for operators on A100 and H100; what "
         "is reserved may be off by a few segments. What CMD prints goes to standard error.",
         "With --world N --rank all the ranks are processes that meet; their collectives are compared, and "
         "what would hang is an error with both frames.",
         "It knows the CUDA builds of torch from 2.7.0 to 2.15.0 on x86-64 Linux. Other "
         "versions are refused by name, and so are functions of CUDA libraries that are not "
         "modelled, such as cuSOLVER's and cuSPARSE's. A library that links a CUDA runtime of its "
         "own is named and ends the run.",
         "Convolutions and attention take the plans and workspaces of the cuDNN that this PyTorch "
         "would load, 9.8 or newer, which is asked for the card without having it. Its batch "
         "norms, recurrent layers and CTC loss are not known that way: PyTorch's own kernels run in "
         "their place, as they do for everything where there is no such cuDNN, and the answer "
         "says so.",
         "Exit codes: 0 it fits, 3 out of memory, 4 CMD failed or is not supported, 5 no usable "
         "PyTorch, 128+n ended by signal n."},
    .examples   = {"vplan dryrun --device 4090 -- python3 train.py",
                   "vplan dryrun --fake-weights gpt2 -o weights"},
    .sets       = {&card_options, &fake_options, &vp_note_options},
    .argument   = VP_TAKES_NOTHING,
    .takes_rest = true,
    .run        = run,
};
