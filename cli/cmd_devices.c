#include "cli/cli.h"

#include "core/units.h"

#include <stdio.h>

static json_t *device_json(const vp_device *d)
{
    return json_pack("{s:s, s:o, s:s, s:I, s:I, s:f, s:f, s:i, s:i, s:s, s:s}", "name", d->name, "alias",
                     d->alias[0] ? json_string(d->alias) : json_null(), "product", d->product, "usable_bytes", (json_int_t)d->usable_bytes,
                     "outside_bytes", (json_int_t)d->outside_bytes, "fp32_flop_per_s", d->fp32_flop_per_s, "memory_bytes_per_s",
                     d->memory_bytes_per_s, "compute_capability", d->compute_capability, "multiprocessors", d->multiprocessors,
                     "class", "assumed", "source", d->source);
}

static void print_device(const vp_device *d)
{
    char usable[32];

    printf("%-16s %-7s %10s usable  %6.1f TFLOP/s fp32  %5.0f GB/s  %s\n", d->name, d->alias, vp_size_text(d->usable_bytes, usable, sizeof usable),
           d->fp32_flop_per_s / 1e12, d->memory_bytes_per_s / 1e9, d->source);
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    const char *name = NULL;
    json_t     *list = json_array();
    vp_device   device;
    int         n;
    vp_status   st = VP_OK;

    VP_TRY_ALLOC(err, list);
    VP_TRY(vp_options_parse(argc, argv, NULL, 0, &name, 1, &n, NULL, err));
    for (int i = -1; i < 0 || vp_device_at(i); i++) {
        if (name && i >= 0)
            break;
        if (i < 0)
            VP_TRY(vp_device_open(name ? name : "cpu", &device, err));
        else
            device = *vp_device_at(i);
        json_array_append_new(list, device_json(&device));
        if (!cli->json)
            print_device(&device);
    }
    if (cli->json) {
        st   = vp_print_json(json_pack("{s:i, s:o}", "schema_version", 1, "devices", list), err);
        list = NULL;
    }
out:
    json_decref(list);
    return st;
}

const vp_command vp_cmd_devices = {"devices", "[NAME|FILE] [--json]", "what vplan knows of a device: usable bytes and rates", run};
