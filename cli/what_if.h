/* cli/what_if.h: bytes and time of a plan with one thing changed.
 *     VP_TRY(vp_ask_what_if(plan, path, profile, &what_ifs, err));
 * Each recompute kind, for all blocks; and with the blocks as they are in the plan the loss the other
 * way, other micro-batches, number formats and optimizers. What the plan offloads stays offloaded, but
 * activations where all blocks recompute one way. */
#ifndef VP_CLI_WHAT_IF_H
#define VP_CLI_WHAT_IF_H

#include "devices/devices.h"
#include "models/model.h"
#include "plan/plan.h"
#include "plan/profile.h"
#include "planner/scenario.h"

#include <stdbool.h>

/* One configuration near the plan's. */
typedef struct vp_what_if {
    const char *text;         /* what is different: "recompute full" */
    char        command[240]; /* as `vplan estimate` is asked for it; "": it has no words for it */
    int64_t     peak_bytes, device_bytes;
    double      step_time_s; /* of the plan's global batch; negative: not known */
} vp_what_if;

enum { VP_MAX_WHAT_IFS = 10 };

typedef struct vp_what_ifs {
    const vp_plan    *plan;
    const vp_model   *model;
    vp_device         device;
    const vp_profile *profile;
    bool              has_times; /* that can be set beside the plan's */
    vp_scenario       like;      /* the plan's */
    vp_what_if        rows[VP_MAX_WHAT_IFS];
    int               n;
} vp_what_ifs;

/* file: that the plan was read from, for errors. profile, or NULL: that the plan's times are by. Seconds are told where they can be set beside the
 * plan's: on a device of the table, both by a profile or both without. VP_ERR_INPUT for decisions
 * that the model cannot have. */
vp_status vp_ask_what_if(const vp_plan *plan, const char *file, const vp_profile *profile,
                         vp_what_ifs *out, vp_err *err);

#endif
