/* runtime/measure_overhead.h: what a run took on the device outside its arena, from what the device
 * said at moments of the run.
 *     VP_TRY(vp_memory_note(backend, VP_OVERHEAD_ARENA, plan->peak_bytes, &points, err));
 *     vp_overhead_measure(backend, &points, &outside, &why_not);
 *
 * By the driver's count for this process. A container may hide it: then by what the device has
 * in use more than before this process opened it, which counts other processes too, so that it
 * holds only if they use as much after the device was given back as before it was opened. */
#ifndef VP_RUNTIME_MEASURE_OVERHEAD_H
#define VP_RUNTIME_MEASURE_OVERHEAD_H

#include "kernels/backend.h"
#include "plan/overhead.h"

typedef struct vp_memory_point {
    vp_overhead_phase phase;
    int64_t           arena_bytes; /* allocated then */
    vp_backend_memory memory;
} vp_memory_point;

typedef struct vp_memory_points {
    vp_memory_point at[VP_N_OUTSIDE_PHASES];
    int             n;
} vp_memory_points;

/* Ask the device now. On the CPU device and host are one memory, and nothing is noted. */
vp_status vp_memory_note(const vp_backend *backend, vp_overhead_phase phase, int64_t arena_bytes,
                         vp_memory_points *points, vp_err *err);

/* What the points say; with *why in words where they say nothing. May give the backend back:
 * everything on it is freed, and nothing of it is used afterwards. */
void vp_overhead_measure(const vp_backend *backend, const vp_memory_points *points,
                         vp_overhead *out, const char **why);

#endif
