/* planner/assemble.h: one choice made into a whole plan.
 *
 *     memory "device":  control | tokens, labels, ... | angles | parameters | gradients | master
 *                       weights | optimizer states | activation stack
 *
 * Everything below the stack is persistent. Instance i's base in the stack is the sum of the kept
 * bytes of the instances before it, so the arena's height is
 *
 *     peak = persistent + max over i of (sum of kept_j, j < i) + max(forward height_i, backward
 *     height_i)
 *
 * the fold of the instances in chain order. An optimizer that needs working memory has it where
 * the stack begins: nothing else is there while it runs. */
#ifndef VP_PLANNER_ASSEMBLE_H
#define VP_PLANNER_ASSEMBLE_H

#include "models/model.h"
#include "plan/plan.h"
#include "planner/lowering/cost.h"
#include "planner/scenario.h"

/* A checked plan of exactly this scenario, whatever it needs: budget_bytes is set to its
 * device_bytes. The plan is the caller's; device, profile and model are borrowed for the call.
 * VP_ERR_INPUT: more bytes than 64 bits count. */
vp_status vp_assemble(const vp_model *model, const vp_scenario *scenario, vp_cost *cost,
                      vp_plan **out, vp_err *err);

/* The same without building the plan: its peak and step time. Cheap; for search. */
typedef struct vp_streamed_figures {
    int64_t params_ns, gradients_ns; /* of a block's copies to the device                */
    int64_t back_ns;                 /* of its gradients' to host memory                 */
    int64_t forward_ns;              /* of a block's kernels                             */
    /* what a block's kernels lose to these copies, where their processors make them; back_ns is from there on */
    int64_t lost_params_ns, lost_gradients_ns, lost_back_ns;
    int64_t embedding_ns; /* of the embedding's in backward, in the first micro-step */
} vp_streamed_figures;

typedef struct vp_figures {
    /* a smaller last micro-step would have other buffers than the others: there is no such plan */
    bool    unlike;
    int64_t peak_bytes, device_bytes;
    /* of host memory; of that what need not be pinned; and of what is pinned what lies below what blocks keep
     * there, windows of updates that are made behind backward not counted: these lie in its place */
    int64_t host_bytes, pageable_bytes, host_stack_base_bytes;
    int64_t nvme_bytes; /* of a local drive */
    double  step_time_s;
    /* of the parts, for the integer program */
    int64_t stack_base_bytes; /* what lies below the activation stack                    */
    int64_t first_kept_bytes, first_height_bytes, last_height_bytes; /* first and last instance */
    /* of stack_base_bytes the place of gradients that are used up in backward, as large as any
     * instance's; and what a block, or segment, puts there */
    int64_t passing_bytes, block_passing_bytes;
    int64_t outside_blocks_ns; /* of a step, all but the blocks' forward and backward     */
    /* of outside_blocks_ns what blocks' norms and updates take that are made in backward, and of these
     * those of the block whose take least; 0: all are made behind it */
    int64_t in_backward_ns, least_in_backward_ns;
    /* of all blocks' kernels what runs in the first micro-step only, which is among outside_blocks_ns */
    int64_t first_only_ns;
    /* where blocks are streamed: what outside_blocks_ns takes at least but for the block that fetches
     * nothing, see pricing.c */
    vp_streamed_figures streamed;
} vp_figures;
vp_status vp_assemble_figures(const vp_model *model, const vp_scenario *scenario, vp_cost *cost,
                              vp_figures *out, vp_err *err);

/* Whether the chain's first instance fits beside what lies below the stack, which no row of an integer program
 * says. Where it does not, no plan of the scenario does, whatever its blocks do. */
bool vp_figures_may_fit(const vp_device *device, const vp_figures *figures, int64_t budget_bytes);

/* The same for many scenarios that differ in loss chunk, and in the optimizer of up to VP_N_OPTIMIZERS recipes: in place of
 * the scenario's. Chunks change the head alone: all else is lowered, given its updates and priced once.
 *     VP_TRY(vp_frame_make(model, &scenario, recipes, n, timed, &cost, &frame, err));
 *     VP_TRY(vp_frame_figures(frame, 4096, figures, err));     figures[n]
 * timed: step_time_s is wanted also where it takes a simulation; else it is -1 there. Model and cost are borrowed as long as
 * the frame lives, which the caller frees. Blocks move no activations. */
typedef struct vp_frame vp_frame;

vp_status vp_frame_make(const vp_model *model, const vp_scenario *scenario,
                        const vp_recipe *recipes, int64_t n, bool timed, vp_cost *cost,
                        vp_frame **out, vp_err *err);
vp_status vp_frame_figures(const vp_frame *frame, int64_t loss_chunk, vp_figures *out, vp_err *err);
void      vp_frame_free(vp_frame *frame);

#endif
