/* vplan devices: what vplan knows of cards, and what runs here. */
#include "cli/cli.h"
#include "cli/devices_fit.h"
#include "cli/names.h"
#include "cli/rows.h"
#include "cli/screen.h"

#include "base/child.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"

#include <stdio.h>

/* A figure for people: "19.5 TFLOP/s"; "-" where the device has none. */
static const char *figure_text(const vp_device *d, vp_device_figure figure, char *buf,
                               size_t buf_size)
{
    static const char *const units[] = {
        [VP_FIGURE_FP32] = "TFLOP/s",   [VP_FIGURE_TF32] = "TFLOP/s",
        [VP_FIGURE_BF16] = "TFLOP/s",   [VP_FIGURE_FP16] = "TFLOP/s",
        [VP_FIGURE_FP8] = "TFLOP/s",    [VP_FIGURE_INT8] = "TOP/s",
        [VP_FIGURE_MEMORY] = "GB/s",    [VP_FIGURE_HOST_LINK] = "GB/s",
        [VP_FIGURE_PEER_LINK] = "GB/s", [VP_FIGURE_HOST_UPDATE] = "GB/s"};
    const double rates[] = {[VP_FIGURE_MEMORY]      = d->memory_bytes_per_s,
                            [VP_FIGURE_FP32]        = d->fp32_flop_per_s,
                            [VP_FIGURE_TF32]        = d->tf32_flop_per_s,
                            [VP_FIGURE_BF16]        = d->bf16_flop_per_s,
                            [VP_FIGURE_FP16]        = d->fp16_flop_per_s,
                            [VP_FIGURE_FP8]         = d->fp8_flop_per_s,
                            [VP_FIGURE_INT8]        = d->int8_op_per_s,
                            [VP_FIGURE_HOST_LINK]   = d->host_link_bytes_per_s,
                            [VP_FIGURE_PEER_LINK]   = d->peer_link_bytes_per_s,
                            [VP_FIGURE_HOST_UPDATE] = d->host_update_bytes_per_s};

    if (figure == VP_FIGURE_USABLE || figure == VP_FIGURE_OUTSIDE)
        return vp_size_text(figure == VP_FIGURE_USABLE ? d->usable_bytes : d->outside_bytes, buf,
                            buf_size);
    if (figure == VP_FIGURE_CACHE)
        return d->l2_bytes ? vp_size_text(d->l2_bytes, buf, buf_size)
                           : (snprintf(buf, buf_size, "-"), buf);
    if (figure == VP_FIGURE_CAPABILITY)
        snprintf(buf, buf_size, d->compute_capability ? "%d.%d" : "-", d->compute_capability / 10,
                 d->compute_capability % 10);
    else if (figure == VP_FIGURE_MULTIPROCESSORS)
        snprintf(buf, buf_size, d->multiprocessors ? "%d" : "-", d->multiprocessors);
    else if (rates[figure] > 0 && rates[figure] < 1e12 && units[figure][0] == 'T')
        snprintf(buf, buf_size, "%.1f G%s", rates[figure] / 1e9, units[figure] + 1);
    else if (rates[figure] > 0)
        snprintf(buf, buf_size, "%.*f %s", units[figure][0] != 'G',
                 rates[figure] / (units[figure][0] == 'G' ? 1e9 : 1e12), units[figure]);
    else
        snprintf(buf, buf_size, "-");
    return buf;
}

static void print_row(const vp_device *d)
{
    const double rates[] = {d->fp32_flop_per_s, d->bf16_flop_per_s, d->fp16_flop_per_s,
                            d->fp8_flop_per_s};

    printf("%-18s %-8s %6.2f %5.0f", d->name, d->alias, (double)d->usable_bytes / (double)VP_GIB,
           d->memory_bytes_per_s / 1e9);
    for (int i = 0; i < 4; i++)
        if (rates[i] > 0)
            printf(" %6.*f", rates[i] < 1e15, rates[i] / 1e12);
        else
            printf(" %6s", "-");
    if (d->host_link_bytes_per_s > 0)
        printf(" %4.0f", d->host_link_bytes_per_s / 1e9);
    else
        printf(" %4s", "-");
    if (d->compute_capability)
        printf(" %2d.%d\n", d->compute_capability / 10, d->compute_capability % 10);
    else
        printf(" %4s\n", "-");
}

static void print_device(const vp_device *d)
{
    static const char *const names[] = {
#define X(name, key, text) text,
        VP_DEVICE_FIGURES(X)
#undef X
    };
    char value[48], head[160];

    printf("%s%s%s%s%s%s\n", d->name, d->alias[0] ? " or " : "", d->alias,
           d->product[0] ? " (" : "", d->product, d->product[0] ? ")" : "");
    for (int i = 0; i < VP_N_FIGURES; i++) {
        figure_text(d, i, value, sizeof value);
        snprintf(head, sizeof head, "  %-18s %13s  %-7s", names[i], value,
                 d->sources[i].text[0] ? vp_figure_class_name(d->sources[i].class_) : "");
        vp_screen_entry(44, head, d->sources[i].text);
    }
    printf("  %-18s %13s\n", "computes in",
           d->fp8                  ? "fp32, tf32, fp16, bf16, fp8"
           : vp_device_has_tf32(d) ? "fp32, tf32, fp16, bf16"
           : d->bf16               ? "fp32, fp16, bf16"
           : vp_device_has_fp16(d) ? "fp32, fp16"
                                   : "fp32");
}

static vp_status add(json_t *list, const vp_device *d, vp_err *err)
{
    json_t   *j  = vp_device_json(d);
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, j);
    if (json_array_append_new(list, j))
        VP_TRY(VP_FAIL(err, VP_ERR_NOMEM, "out of host memory"));
out:
    return st;
}

/* ---- what runs here ---- */

/* What vplan-run says of the CUDA backend, asked in a child, since a driver may do anything: its
 * JSON in *here (the caller's), or why there is none. */
static vp_status ask_cuda(json_t **here, char *why, size_t why_size, vp_err *err)
{
    char            program[1100];
    vp_child_result child  = {0};
    json_t         *answer = NULL;
    const char     *message;
    vp_status       st = VP_OK;

    *here = NULL;
    VP_TRY(vp_file_find_program("vplan-run", program, sizeof program, err));
    char         *argv[] = {program, "--describe", "--backend", "cuda", "--json", NULL};
    vp_child_opts opts   = {
          .argv = argv, .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE, .timeout_s = 60};
    VP_TRY(vp_child_run(&opts, &child, err));
    answer  = json_loads(child.out ? child.out : "", 0, NULL);
    message = json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
    if (child.end == VP_CHILD_EXITED && child.exit_code == 0 && json_object_get(answer, "backend"))
        *here = json_incref(answer);
    else if (child.end != VP_CHILD_EXITED)
        snprintf(why, why_size, "asking for it did not end well");
    else
        snprintf(why, why_size, "%s", message ? message : "vplan-run gave no reason");
out:
    json_decref(answer);
    vp_child_result_release(&child);
    return st;
}

/* Which backend a plan for the GPU here would find. */
static vp_status here_json(json_t **out, vp_err *err)
{
    json_t   *cuda      = NULL;
    char      why[1024] = "";
    vp_status st        = VP_OK;

    VP_TRY(ask_cuda(&cuda, why, sizeof why, err));
    *out = json_pack("{s:s, s:O?, s:s*}", "backend", cuda ? "cuda" : "cpu", "cuda", cuda,
                     "why_not_cuda", cuda ? NULL : why);
    VP_TRY_ALLOC(err, *out);
out:
    json_decref(cuda);
    return st;
}

static void print_here(const json_t *here)
{
    const char *why = json_string_value(json_object_get(here, "why_not_cuda"));
    char        shown[2048];

    if (why)
        printf("Here runs the CPU backend. The CUDA backend does not:\n");
    else
        printf("Here runs the CUDA backend:\n");
    if (!why)
        why = json_string_value(json_object_get(json_object_get(here, "cuda"), "description"));
    vp_screen_entry(2, "", vp_text_escape(why, shown, sizeof shown));
}

static const vp_option rows[] = {
    {.name      = "--fits",
     .kind      = VP_OPTION_TEXT,
     .at        = offsetof(vp_devices_options, model),
     .value     = "MODEL",
     .help      = "The cards on which some plan of this model fits, smallest first, and the least "
                  "that a plan needs there",
     .otherwise = "none: all cards are listed",
     .example   = "llama-3.1-8b",
     .suggest   = vp_word_of_model},
    {VP_ROW_SEQ(vp_devices_options, seq), .help = "Of --fits: tokens of a sample",
     .otherwise = "the smaller of the model's positions and 4096"},
    {.name    = "--global-batch",
     .kind    = VP_OPTION_COUNT,
     .at      = offsetof(vp_devices_options, global_batch),
     .value   = "N",
     .unit    = "samples",
     .min     = 1,
     .max     = 1000000,
     .help    = "Of --fits: samples of one optimizer step",
     .preset  = "1",
     .example = "32"},
    {VP_ROW_MICRO_BATCH(vp_devices_options, micro_batch),
     .help = "Of --fits: samples that go through the model at once", .otherwise = "free"},
    {VP_ROW_PRECISION(vp_devices_options, precision), .help = "Of --fits: number formats",
     .otherwise = "as of vplan plan"},
    {VP_ROW_OPTIMIZER(vp_devices_options, optimizer), .open = true,
     .help = "Of --fits: whose update it is", .otherwise = "adamw"},
};
static const vp_option_set options = {VP_ROWS(rows)};

/* A request needs a model; one of a card is not asked what fits. */
static vp_status check_fits(const vp_devices_options *o, const vp_command_line *line, vp_err *err)
{
    if (o->model && line->n_words)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--fits asks about every card; of one: vplan plan MODEL --device NAME");
    if (!o->model &&
        (o->seq || o->precision || o->optimizer || o->global_batch != 1 || o->micro_batch))
        return VP_FAIL(err, VP_ERR_USAGE, "what is to fit? --fits MODEL says it");
    return VP_OK;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    vp_devices_options o    = {0};
    json_t            *list = json_array(), *here = NULL;
    vp_command_line    line;
    const char        *name;
    vp_device          device;
    vp_status          st = VP_OK;

    VP_TRY_ALLOC(err, list);
    VP_TRY(vp_cli_parse(&vp_cmd_devices, argc, argv, cli, (void *[]){&o}, &line, err));
    VP_TRY(check_fits(&o, &line, err));
    if (o.model) {
        VP_TRY(vp_devices_fit(&o, cli, err));
        goto out;
    }
    name = line.words[0];
    VP_TRY(vp_device_named(cli, &name, err));
    VP_TRY(vp_device_open(name ? name : "cpu", &device, err));
    VP_TRY(add(list, &device, err));
    if (!cli->json && name) {
        print_device(&device);
    } else if (!cli->json) {
        printf("%-18s %-8s %6s %5s %27s %4s %4s\n", "", "", "usable", "mem", "dense TFLOP/s",
               "host", "cc");
        printf("%-18s %-8s %6s %5s %6s %6s %6s %6s %4s\n", "name", "short", "GiB", "GB/s", "fp32",
               "bf16", "fp16", "fp8", "GB/s");
        print_row(&device);
    }
    for (int i = 0; !name && vp_device_at(i, &device); i++) {
        VP_TRY(add(list, &device, err));
        if (!cli->json)
            print_row(&device);
    }
    if (!name)
        VP_TRY(here_json(&here, err));
    if (!cli->json && !name) {
        print_here(here);
        vp_screen_line("next", "vplan devices NAME: every figure with its source; vplan devices "
                               "--fits MODEL: the cards that would do (cc: compute capability)");
    }
    if (cli->json) {
        st = vp_print_json(
            json_pack("{s:i, s:o, s:O*}", "schema_version", 1, "devices", list, "here", here), err);
        list = NULL;
    }
out:
    json_decref(list);
    json_decref(here);
    return st;
}

const vp_command vp_cmd_devices = {
    .name    = "devices",
    .summary = "the built-in GPUs and their sources; --fits MODEL: which would do",
    .usage   = {"[NAME|FILE] [--json]", "--fits MODEL [options]"},
    .about =
        {"The cards that vplan knows, and what runs here; of one card every figure with "
         "its class (cited, derived, assumed) and its source. A short name like h200 or "
         "4090 means one card; one that could mean several, like a100, is an error that "
         "lists them.",
         "A device file describes a card that is not listed; with --json the table's "
         "cards are printed in the same form. The least that is enough is {\"schema_version\": 1, "
         "\"name\": \"...\", \"usable_bytes\": N, \"fp32_flop_per_s\": X, "
         "\"memory_bytes_per_s\": X}; all its keys are in docs/device-file.md."},
    .examples  = {"vplan devices", "vplan devices 4090",
                  "vplan devices --fits llama-3.1-8b --precision bf16-mixed"},
    .sets      = {&options},
    .argument  = VP_TAKES_DEVICE,
    .max_words = 1,
    .run       = run,
};
