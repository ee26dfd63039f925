#include "dryrun/dryrun_internal.h"

#include "base/text.h"
#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void vp_dryrun_text_add(json_t *array, const char *fmt, ...)
{
    va_list args;
    char   *text = NULL, shown[2048];

    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) >= 0) {
        json_array_append_new(array, json_string(vp_text_escape(text, shown, sizeof shown)));
        free(text);
    }
    va_end(args);
}

static int64_t item_bytes(const json_t *items, const char *name)
{
    size_t  i;
    json_t *item;

    json_array_foreach (items, i, item)
        if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0)
            return (int64_t)json_integer_value(json_object_get(item, "bytes"));
    return 0;
}

json_t *vp_dryrun_remedies(const vp_json_node *root, const json_t *items)
{
    json_t *out  = json_array();
    int64_t acts = item_bytes(items, "activations"), states = item_bytes(items, "optimizer_state");
    int64_t params = item_bytes(items, "parameters"), temps = item_bytes(items, "temporaries");
    int64_t slack = vp_dryrun_report_int(root, "reserved_peak_bytes") -
                    vp_dryrun_report_int(root, "allocated_peak_bytes");
    char size[64];

    if (acts + temps > 0)
        vp_dryrun_text_add(
            out,
            "a smaller micro-batch or shorter sequences: activations and temporaries are %s at the peak",
            vp_size_text(acts + temps, size, sizeof size));
    if (acts > 0)
        vp_dryrun_text_add(out, "gradient checkpointing: %s of activations at the peak",
                           vp_size_text(acts, size, sizeof size));
    if (states > 0)
        vp_dryrun_text_add(
            out,
            "a smaller optimizer state (8-bit AdamW, Adafactor, or sharding it): %s at the peak",
            vp_size_text(states, size, sizeof size));
    if (params > 0)
        vp_dryrun_text_add(out,
                           "16-bit or quantised weights, or LoRA: parameters are %s at the peak",
                           vp_size_text(params, size, sizeof size));
    if (slack > 64 * VP_MIB)
        vp_dryrun_text_add(
            out,
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: up to %s reserved and not allocated",
            vp_size_text(slack, size, sizeof size));
    return out;
}
