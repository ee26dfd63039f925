#include "runtime/measure_overhead.h"

#include "base/checked.h"

#include <assert.h>
#include <stdio.h>

vp_status vp_memory_note(const vp_backend *backend, vp_overhead_phase phase, int64_t arena_bytes,
                         vp_memory_points *points, vp_err *err)
{
    if (backend->host_memory)
        return VP_OK;
    assert(points->n < VP_N_OUTSIDE_PHASES);
    assert(arena_bytes >= 0);
    points->at[points->n] = (vp_memory_point){.phase = phase, .arena_bytes = arena_bytes};
    return backend->memory(&points->at[points->n++].memory, err);
}

void vp_overhead_measure(const vp_backend *backend, const vp_memory_points *points,
                         vp_overhead *out, const char **why)
{
    bool    by_process = points->n > 0, by_device = points->n > 0 && backend->close;
    int64_t before_bytes = points->n > 0 ? points->at[0].memory.all_used_before_bytes : -1;

    assert(points->n >= 0 && points->n <= VP_N_OUTSIDE_PHASES);
    *out = (vp_overhead){0};
    *why = NULL;
    for (int i = 0; i < points->n; i++) {
        by_process &= points->at[i].memory.used_bytes >= 0;
        by_device &= points->at[i].memory.all_used_bytes >= 0;
    }
    if (!by_process && (!by_device || before_bytes < 0)) {
        *why = "the driver does not tell what this process uses";
        return;
    }
    if (!by_process && backend->close() != before_bytes) {
        *why = "other processes used another amount of the device afterwards than before";
        return;
    }
    out->measured_by = by_process ? VP_OVERHEAD_BY_PROCESS : VP_OVERHEAD_BY_DEVICE;
    assert(points->n > 0 && (by_process || before_bytes >= 0));
    snprintf(out->device, sizeof out->device, "%s", backend->device);
    for (int i = 0; i < points->n; i++) {
        const vp_memory_point *p = &points->at[i];
        vp_overhead_note(
            out, p->phase,
            (by_process ? p->memory.used_bytes : p->memory.all_used_bytes - before_bytes) -
                vp_round_up(p->arena_bytes, VP_DEVICE_GRANULE_BYTES));
    }
}
