#include "runtime/memory_print.h"

#include "base/units.h"

#include <stdio.h>

json_t *vp_memories_json(const vp_memory_report *m, const char *touched_by)
{
    const vp_memory_use *d    = &m->of[VP_MEMORY_DEVICE];
    json_t              *list = json_array();

    json_array_append_new(
        list,
        json_pack("{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I}", "name", "device",
                  "predicted_bytes", (json_int_t)d->predicted_bytes, "executed_bytes",
                  (json_int_t)d->executed_bytes, "touched_bytes", (json_int_t)d->touched_bytes,
                  "touched_by", touched_by, "resident_bytes", (json_int_t)m->resident_bytes,
                  "padding_bytes", (json_int_t)m->padding_bytes, "never_written_bytes",
                  (json_int_t)m->never_written_bytes, "pinned_bytes", (json_int_t)m->pinned_bytes));
    for (int k = 0; k < VP_N_MEMORIES; k++)
        if (k != VP_MEMORY_DEVICE && m->of[k].predicted_bytes)
            json_array_append_new(
                list, json_pack("{s:s, s:I, s:I, s:I}", "name", vp_memory_name((vp_memory)k),
                                "predicted_bytes", (json_int_t)m->of[k].predicted_bytes,
                                "executed_bytes", (json_int_t)m->of[k].executed_bytes,
                                "touched_bytes", (json_int_t)m->of[k].touched_bytes));
    return list;
}

static void print_arena(const char *label, const vp_memory_use *m, const char *note)
{
    char x[32], y[32];

    printf("%-10s %s predicted, %s executed: %lld bytes off%s\n", label,
           vp_size_text(m->predicted_bytes, x, sizeof x),
           vp_size_text(m->executed_bytes, y, sizeof y),
           (long long)(m->executed_bytes - m->predicted_bytes), note);
}

void vp_memories_print(const vp_memory_report *m, const char *touched_by)
{
    char x[32];

    print_arena("arena", &m->of[VP_MEMORY_DEVICE], "");
    printf("touched    %s by %s; %lld bytes are padding\n",
           vp_size_text(m->of[VP_MEMORY_DEVICE].touched_bytes, x, sizeof x), touched_by,
           (long long)m->padding_bytes);
    for (int k = 0; k < VP_N_MEMORIES; k++)
        if (vp_memory_is_host((vp_memory)k) && m->of[k].predicted_bytes)
            print_arena("host arena", &m->of[k], k == VP_MEMORY_HOST ? ", not pinned" : "");
}
