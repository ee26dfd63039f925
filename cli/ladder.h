/* cli/ladder.h: vplan estimate --ladder: the advice that everyone gives, one technique after another,
 * with what each saves here.
 *     VP_TRY(vp_ladder_climb(&start, budget_bytes, &ladder, err));
 *     vp_ladder_print(&ladder);
 * A technique may save nothing, or add bytes: then its row says so. */
#ifndef VP_CLI_LADDER_H
#define VP_CLI_LADDER_H

#include "base/json.h"
#include "planner/assemble.h"

typedef struct vp_ladder_figures {
    int64_t peak_bytes, device_bytes;
    double  step_time_s; /* negative: no device, no time */
} vp_ladder_figures;

typedef struct vp_rung {
    const char       *name;              /* "bf16-mixed" */
    vp_ladder_figures alone, cumulative; /* by itself; with all above it */
    const char       *option;            /* that estimates it, of what stands beside */
} vp_rung;

enum { VP_MAX_BESIDE = 2, VP_MAX_RUNGS = 10 };

/* Where it begins: nothing is saved but what start.scenario already saves; one optimizer step of its
 * global batch. */
typedef struct vp_ladder_start {
    const vp_model *model;
    vp_scenario     scenario;
    vp_device       device;
    bool            has_device; /* else no seconds, and no host to offload to */
} vp_ladder_start;

typedef struct vp_ladder {
    vp_ladder_start start;
    int64_t         budget_bytes; /* -1: none */
    vp_rung         rungs[VP_MAX_RUNGS];
    int             n;
    /* by transformers' Trainer: alone, and at micro-batch 1 with full recompute; no seconds */
    vp_rung beside[VP_MAX_BESIDE];
    int     n_beside;
    int     first_fit; /* the first that fits; -1: none, or no budget */
    /* of the first that fits, else of the last rung */
    vp_scenario reached;
    int64_t     host_bytes; /* that it offloads to */
} vp_ladder;

/* The first rung is the start. A technique that the card or the model has not is left out. */
vp_status vp_ladder_climb(const vp_ladder_start *start, int64_t budget_bytes, vp_ladder *out,
                          vp_err *err);

/* Add what vplan's own step has not, adapters and sharding, as transformers' Trainer takes them;
 * what was not recorded for the family is left out. */
void vp_ladder_beside(vp_ladder *ladder);

/* ladder[] of the JSON document; the answer's first line and the table. */
json_t *vp_ladder_json(const vp_ladder *ladder);
void    vp_ladder_print(const vp_ladder *ladder);

#endif
