/* planner/space.h: the scenarios that a request leaves free, each as an integer program.
 *     VP_TRY(vp_space_list(&request, NULL, &answer, &cost, err));
 *
 * What the blocks of a scenario can do depends on its micro-batch and semantics only, what lies
 * outside them also on the loss chunk and the optimizer: each is worked out once. */
#ifndef VP_PLANNER_SPACE_H
#define VP_PLANNER_SPACE_H

#include "planner/planner.h"

/* How far the micro-batches of a number format go. */
typedef enum vp_space_extent {
    VP_SPACE_LEAST, /* as far as one may need the least                    */
    VP_SPACE_FIT,   /* so, where none fits the budget; else all            */
    VP_SPACE_ALL
} vp_space_extent;

/* Scenarios, libraries and integer programs, in place of those that the answer has; like: as for
 * vp_planner_least(). answer->cut: the extent left some out.
 *
 * Left out of all are micro-batches that cannot fit: that need a quarter more than the budget and
 * the device have, and more than twice what the smallest needs in all. */
vp_status vp_space_list(const vp_plan_request *request, const vp_plan_answer *like,
                        vp_plan_answer *answer, vp_cost *cost, vp_space_extent extent, vp_err *err);

/* More chunks beside those that were listed: between two neighbours, of settings that are else alike, where a plan might
 * take less than best_ns, if it took no longer than the larger chunk does and needed no more than the
 * smaller one; in the middle, so that again and again all are tried that may pay. *n_left: how many settings may
 * still be added; 0 ends it. New scenarios follow those that there are. */
vp_status vp_space_refine(const vp_plan_request *request, vp_plan_answer *answer, vp_cost *cost,
                          int64_t best_ns, int64_t *n_left, vp_err *err);

/* The scenarios of the micro-batches next to one that are left out because they are many, of its recipe and attention. */
vp_status vp_space_add_near(const vp_plan_request *request, vp_plan_answer *answer, vp_cost *cost,
                            const vp_scenario *like, vp_err *err);

/* Whether host memory, of it what may be pinned, and the drive have room for what these figures hold there. */
bool vp_has_room(const vp_plan_request *request, const vp_figures *figures);

/* Fewest bytes above an integer program's base that the blocks and the head need, and counts that
 * need no more, found in last[n_blocks + 1]; both NULL: the bytes alone. */
int64_t vp_space_least_bytes(const vp_ilp *ilp, int64_t *counts, int64_t *last);

/* Bytes that these do not undercut, told at once. */
int64_t vp_space_bytes_bound(const vp_ilp *ilp);

#endif
