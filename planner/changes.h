/* planner/changes.h: why a request does not fit, and what would: each change was planned, the one
 * that costs the person least first.
 *     VP_TRY(vp_changes_find(&request, &answer, &changes, err));
 */
#ifndef VP_PLANNER_CHANGES_H
#define VP_PLANNER_CHANGES_H

#include "planner/planner.h"

/* What is different; all else is as it was asked for. */
typedef struct vp_change {
    bool         frees_pins; /* micro-batch, recompute kind and loss chunk are left free */
    bool         another_precision, another_gradients, another_optimizer;
    vp_precision precision; /* where there is another */
    vp_gradients gradients;
    vp_optimizer optimizer;
    vp_lora      lora;         /* adapters, all else frozen; rank 0: none more than asked for */
    int64_t      host_bytes;   /* of host memory to offload to; 0: the same */
    bool         frees_pinned; /* all of the host memory may be pinned */
    int64_t      nvme_bytes;   /* of a local drive, for master weights and states; 0: the same */
    int64_t      seq;          /* 0: the same sequence */
    int64_t      budget_bytes; /* 0: the same budget, or all of another device */
    char         device[64];   /* a card of the table; "": the same */
    const char  *model;        /* built in; NULL: the same */
    int64_t      needs_bytes;  /* least device_bytes with the change */
} vp_change;

enum { VP_MAX_CHANGES = 8 };

/* In this order, as far as there are such:
 *
 *   pins left free;
 *   on a card without host memory given: as much as master weights and optimizer states take, else these
 *   and the blocks' parameters and gradients; where what may be pinned has a limit of its own, without
 *   that; where there is host memory, a local drive (vp_plan_request.nvme_bytes) for master weights and
 *   states; nothing that is trained changes, time does;
 *   other recipes for the same tokens: 16 bits with fp32 master weights, optimizer states in 8
 *   bits, gradients in 16 bits, combinations, 16 bits without master weights; none that adds to one
 *   that was found;
 *   the longest half, quarter or eighth of the sequence, with the first recipe that fits;
 *   where no other recipe was found: adapters beside the frozen model (rank 16 on all linear layers),
 *   with the first recipe that fits; else SGD;
 *   more of the same device; the smallest card of the table, as it was asked for and, where no
 *   other recipe was found, with the leanest one;
 *   the next smaller built-in model of the family, with the first recipe that fits.
 *
 * Where precision, optimizer or attention are free, changes are tried with those of the plan that
 * needs the fewest bytes. */
typedef struct vp_changes {
    /* parameters, gradients, optimizer states and the batch, which no choice makes smaller; and
     * what the leanest choice needs for activations above them, and outside the arena */
    int64_t   persistent_bytes, activation_bytes, outside_bytes;
    bool      persistent_alone; /* is more than the budget */
    vp_change changes[VP_MAX_CHANGES];
    int64_t   n;
} vp_changes;

vp_status vp_changes_find(const vp_plan_request *request, const vp_plan_answer *answer,
                          vp_changes *out, vp_err *err);

#endif
