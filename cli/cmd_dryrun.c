/* vplan dryrun: the exact peak of any PyTorch command, with no GPU. */
#include "cli/cli.h"
#include "cli/device_here.h"
#include "cli/dryrun_print.h"
#include "cli/dryrun_run.h"

#include "core/text.h"
#include "core/units.h"

#include <stdio.h>
#include <string.h>


static const char default_device[] = "h100-sxm-80gb";

typedef struct arguments {
    const char *device, *snapshot, *padding, *value, *cudnn, *fake, *out_dir, *dtype;
    int64_t     budget_bytes, world, host_bytes;
    double      timeout_s, select;
    bool        force;
} arguments;

/* The card that is named; else the one here, with what is free on it now; else the default. */
static vp_status choose_card(const arguments *args, vp_device *device, vp_dryrun_opts *opts, vp_err *err)
{
    int64_t   free_bytes = 0;
    bool      here = false;
    char      a[64], b[64];
    vp_status st = VP_OK;

    if (!args->device)
        VP_TRY(vp_device_here(device, &free_bytes, &here, err));
    if (!here) {
        VP_TRY(vp_parse_budget(args->device ? args->device : default_device, args->budget_bytes, device,
                               &opts->budget_bytes, err));
    } else {
        opts->budget_bytes = args->budget_bytes ? args->budget_bytes : free_bytes;
        if (opts->budget_bytes > device->usable_bytes)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--budget %s is more than the %s usable on %s",
                           vp_size_text(opts->budget_bytes, a, sizeof a),
                           vp_size_text(device->usable_bytes, b, sizeof b), device->name));
    }
    opts->chosen_by = args->device ? VP_DRYRUN_NAMED : here ? VP_DRYRUN_HERE : VP_DRYRUN_DEFAULT;
out:
    return st;
}

/* The card to pretend and what there is of it. */
static vp_status choose(const arguments *args, vp_device *device, vp_dryrun_opts *opts, vp_err *err)
{
    vp_status st = VP_OK;
    char      a[64], b[64], shown[64];
    double    value;

    if (strcmp(args->cudnn, "auto") && strcmp(args->cudnn, "off"))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--cudnn %s: auto or off",
                       vp_text_escape(args->cudnn, shown, sizeof shown)));
    VP_TRY(choose_card(args, device, opts, err));
    if (device->is_cpu || device->compute_capability < 50 || device->multiprocessors < 1)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--device %s: a dry run pretends a CUDA card, with compute_capability "
                       "and multiprocessors", device->name));
    if (opts->budget_bytes <= device->outside_bytes)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--budget %s does not even hold the context and libraries (%s)",
                       vp_size_text(opts->budget_bytes, a, sizeof a),
                       vp_size_text(device->outside_bytes, b, sizeof b)));
    if (strcmp(args->padding, "mask") && strcmp(args->padding, "none"))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--padding %s: mask or none",
                       vp_text_escape(args->padding, shown, sizeof shown)));
    if (args->select > 1)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--select is a fraction between 0 and 1"));
    if (args->value)
        VP_TRY(vp_real_parse(args->value, "--value", -1e30, 1e30, &value, err));
    opts->device        = device;
    opts->cudnn         = args->cudnn;
    opts->world         = args->world;
    opts->snapshot_path = args->snapshot;
    opts->force         = args->force;
    opts->padding       = args->padding;
    opts->value         = args->value;
    opts->select_frac   = args->select;
    opts->timeout_s     = args->timeout_s;
    opts->host_bytes    = args->host_bytes;
out:
    return st;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    static char *const python[] = {"python3", NULL};
    arguments        args   = {.padding = "mask", .cudnn = "auto", .world = 1, .select = 1};
    vp_dryrun_opts   opts   = {0};
    vp_dryrun_result result = {0};
    vp_device        device;
    const char      *nothing[1];
    char           **rest;
    int              n;
    vp_status        st = VP_OK;
    const vp_option  options[] = {
        {"--device", VP_OPTION_TEXT, &args.device},         {"--budget", VP_OPTION_SIZE, &args.budget_bytes},
        {"--world", VP_OPTION_COUNT, &args.world},          {"--snapshot", VP_OPTION_TEXT, &args.snapshot},
        {"--force", VP_OPTION_FLAG, &args.force},           {"--padding", VP_OPTION_TEXT, &args.padding},
        {"--value", VP_OPTION_TEXT, &args.value},           {"--select", VP_OPTION_REAL, &args.select},
        {"--timeout", VP_OPTION_REAL, &args.timeout_s},     {"--fake-weights", VP_OPTION_TEXT, &args.fake},
        {"-o", VP_OPTION_TEXT, &args.out_dir},              {"--dtype", VP_OPTION_TEXT, &args.dtype},
        {"--host-memory", VP_OPTION_SIZE, &args.host_bytes}, {"--cudnn", VP_OPTION_TEXT, &args.cudnn},
    };

    VP_TRY(vp_options_parse(argc, argv, options, sizeof options / sizeof *options, nothing, 0, &n, &rest, err));
    if (args.fake) {
        if (!args.out_dir)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--fake-weights needs -o DIR, the folder to make"));
        VP_TRY(vp_dryrun_fake_weights(args.fake, args.out_dir, args.dtype, args.force,
                                      rest && rest[0] ? rest : python, &cli->exit_code, err));
        goto out;
    }
    if (args.out_dir || args.dtype)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "-o and --dtype belong to --fake-weights"));
    if (!rest || !rest[0])
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "nothing to run: vplan dryrun [options] -- CMD..."));
    opts.command = rest;
    VP_TRY(choose(&args, &device, &opts, err));
    VP_TRY(vp_dryrun_run(&opts, &result, err));
    cli->exit_code = result.exit_code;
    if (cli->json) {
        st = vp_print_json(result.document, err);
        result.document = NULL;
        VP_TRY(st);
    } else {
        vp_dryrun_print(result.document, stdout);
    }
out:
    if (result.document)
        json_decref(result.document);
    return st;
}

const vp_command vp_cmd_dryrun = {
    "dryrun",
    "[--device NAME|FILE] [--budget SIZE] [--world N] [--snapshot FILE] [--force] [--padding mask|none]\n"
    "             [--value X] [--select F] [--cudnn auto|off] [--host-memory SIZE] [--timeout SECONDS] [--json] -- CMD...\n"
    "       vplan dryrun --fake-weights MODEL -o DIR [--dtype float32|float16|bfloat16] [--force] [-- PYTHON]\n"
    "\n"
    "  --device NAME    the card to pretend (default: the GPU here, which is asked what it is and has free, and not\n"
    "                   used; else h100-sxm-80gb)\n"
    "  --budget SIZE    the device memory there is; too little ends in PyTorch's own error, exit 3\n"
    "  --world N        run as rank 0 of N\n"
    "  --snapshot FILE  write a snapshot for PyTorch's memory viewer\n"
    "  --padding none   attention masks that are passed hold no padding (default: they do)\n"
    "  --value X        device values that a script reads as Python floats are X (default 0)\n"
    "  --select F       the fraction that boolean masks select (default 1, the most)\n"
    "  --cudnn off      PyTorch without cuDNN (default: the cuDNN that PyTorch would load is asked, without a device)\n"
    "  --host-memory S  end CMD when a process of it holds more (default: when the host is nearly full)\n"
    "  --fake-weights   write a checkpoint folder of the right names, shapes and dtypes that takes no disk; MODEL is a\n"
    "                   built-in name, a config.json, a folder with one, or a Hub id that the local Hugging Face cache\n"
    "                   holds; PYTHON has torch and transformers (default python3)\n"
    "\n"
    "What CMD prints goes to standard error. Exit codes: 0 fits, 3 out of memory, 4 CMD failed or is not\n"
    "supported, 5 no usable PyTorch, 128+n ended by signal n.",
    "the exact peak of a PyTorch command, with no GPU",
    run,
};
