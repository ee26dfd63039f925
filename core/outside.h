/* core/outside.h: what a process takes on a device outside its arena: context, modules, library handles, recorded steps. As measured.
 *     VP_TRY(vp_outside_from_json(&node, &outside, err));
 *     vp_outside_take(&profile->outside, &outside);              // the larger of two
 *
 * The driver and the libraries that it was measured with stand beside it, in the profile's `backend`: with others it is another figure.
 *
 * CUDA hands out memory in pieces of 2 MiB. What an arena is rounded up by is not in these bytes: it is known beforehand and differs from
 * plan to plan, so that the planner adds it to the arena (vp_device_bytes() in models/devices.h). */
#ifndef VP_CORE_OUTSIDE_H
#define VP_CORE_OUTSIDE_H

#include "core/err.h"
#include "core/json.h"

#include <stdbool.h>
#include <stdint.h>

enum { VP_DEVICE_PIECE_BYTES = 2 << 20 };

typedef enum vp_outside_by {
    VP_OUTSIDE_NOT_MEASURED,
    VP_OUTSIDE_BY_PROCESS,  /* the driver's count for this process                                                                  */
    VP_OUTSIDE_BY_DEVICE,   /* what the device had in use more than before, nobody else having used more or less of it at the end   */
    VP_N_OUTSIDE_BYS
} vp_outside_by;

/* When. Libraries are opened with the device; modules are loaded when a kernel first runs; a step is recorded after the first. */
typedef enum vp_outside_phase {
    VP_OUTSIDE_CONTEXT,
    VP_OUTSIDE_ARENA,
    VP_OUTSIDE_CALLS,       /* kernel calls, each timed alone, their memory given back */
    VP_OUTSIDE_FIRST_STEP,
    VP_OUTSIDE_LAST_STEP,
    VP_N_OUTSIDE_PHASES
} vp_outside_phase;

/* All zeros is one that was not measured. */
typedef struct vp_outside {
    char          device[64];                   /* as the driver calls it, or as vplan does  */
    vp_outside_by measured_by;
    int64_t       bytes;                        /* the largest of these                      */
    bool          has[VP_N_OUTSIDE_PHASES];
    int64_t       at_bytes[VP_N_OUTSIDE_PHASES];
} vp_outside;

const char *vp_outside_phase_name(vp_outside_phase phase);  /* "first step" */
const char *vp_outside_by_name(vp_outside_by by);           /* "process"    */

/* Note a point of it; negative bytes count as 0. */
void vp_outside_note(vp_outside *outside, vp_outside_phase phase, int64_t bytes);

/* to becomes from where from was measured and is larger. */
void vp_outside_take(vp_outside *to, const vp_outside *from);

/* {"device": "NVIDIA L4", "measured_by": "process", "bytes": N, "points": {"context": N, ...}}. A new value, null for one that was not
 * measured; NULL when memory ran out. */
json_t   *vp_outside_to_json(const vp_outside *outside);
vp_status vp_outside_from_json(const vp_json_node *node, vp_outside *out, vp_err *err); /* VP_ERR_INPUT, located */

#endif
