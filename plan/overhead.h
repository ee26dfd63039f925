/* plan/overhead.h: what a process takes on a device outside its arena: context, modules, library
 * handles, recorded steps. As measured.
 *     VP_TRY(vp_overhead_from_json(&node, &outside, err));
 *     vp_overhead_take(&profile->outside, &outside);              // the larger of two
 *
 * The driver and the libraries that it was measured with stand beside it, in the profile's
 * `backend`: with others it is another figure.
 *
 * CUDA hands out memory in pieces of 2 MiB. What an arena is rounded up by is not in these
 * bytes: it is known beforehand and differs from plan to plan, so that the planner adds it to
 * the arena (vp_device_bytes() in devices/devices.h). */
#ifndef VP_PLAN_OVERHEAD_H
#define VP_PLAN_OVERHEAD_H

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

enum { VP_DEVICE_GRANULE_BYTES = 2 << 20 };

typedef enum vp_overhead_by {
    VP_OVERHEAD_NOT_MEASURED,
    /* the driver's count for this process */
    VP_OVERHEAD_BY_PROCESS,
    /* what the device had in use more than before, nobody else having used more or less of it at
     * the end */
    VP_OVERHEAD_BY_DEVICE,
    VP_N_OUTSIDE_BYS
} vp_overhead_by;

/* When. Libraries are opened with the device; modules are loaded when a kernel first runs; a
 * step is recorded after the first. */
typedef enum vp_overhead_phase {
    VP_OVERHEAD_CONTEXT,
    VP_OVERHEAD_ARENA,
    VP_OVERHEAD_CALLS, /* kernel calls, each timed alone, their memory given back */
    VP_OVERHEAD_FIRST_STEP,
    VP_OVERHEAD_LAST_STEP,
    VP_N_OUTSIDE_PHASES
} vp_overhead_phase;

/* All zeros is one that was not measured. */
typedef struct vp_overhead {
    char           device[64]; /* as the driver calls it, or as vplan does  */
    vp_overhead_by measured_by;
    int64_t        bytes; /* the largest of these                      */
    bool           has[VP_N_OUTSIDE_PHASES];
    int64_t        at_bytes[VP_N_OUTSIDE_PHASES];
} vp_overhead;

const char *vp_overhead_phase_name(vp_overhead_phase phase); /* "first step" */
const char *vp_overhead_by_name(vp_overhead_by by);          /* "process"    */

/* Note a point of it; negative bytes count as 0. */
void vp_overhead_note(vp_overhead *outside, vp_overhead_phase phase, int64_t bytes);

/* to becomes from where from was measured and is larger. */
void vp_overhead_take(vp_overhead *to, const vp_overhead *from);

/* {"device": "NVIDIA L4", "measured_by": "process", "bytes": N, "points": {"context": N, ...}}.
 * A new value, null for one that was not measured; NULL when memory ran out. */
json_t *vp_overhead_to_json(const vp_overhead *outside);
/* VP_ERR_INPUT, located */
vp_status vp_overhead_from_json(const vp_json_node *node, vp_overhead *out, vp_err *err);

#endif
