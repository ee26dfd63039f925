/* plan/simulate.h: when each step of a plan begins and ends: one clock for each stream.
 *     VP_TRY(vp_simulate(plan, bucket, NULL, NULL, &simulation, err));
 *
 * A kernel begins when the kernel before it ends. A copy begins when the kernels before its
 * copy_start and the copies before it on its stream have ended; copy_done ends when both the
 * kernel before it and its copy have. Seconds are those of the plan's steps: a copy's are its
 * copy_start's, and a copy_done has none of its own but waiting. An update that the host makes begins
 * when the kernels before it and what the host does before it have ended; kernels go on beside it, and a copy
 * waits for it. On the CPU backend the host is the device: its updates take the kernels' time, and kernels lose a
 * copy's lost_s behind its copy_start, since their processors make it. The step
 * ends when all streams have. Without copies the sum over all steps is what comes out.
 *
 * Of many micro-steps the first VP_SIMULATED_MICRO_STEPS - 1 and the last are walked; those left
 * out take as long as the last middle one that was. That is exact without copies, and where no copy
 * is under way from one micro-step into the next. */
#ifndef VP_PLAN_SIMULATE_H
#define VP_PLAN_SIMULATE_H

#include "plan/expand.h"

enum { VP_SIMULATED_MICRO_STEPS = 8 };

/* Seconds since the optimizer step began, of a copy on its own stream. waited: of a copy_done, how
 * long the compute stream stood still. */
typedef struct vp_simulated_step {
    double begin_s, end_s, waited_s;
} vp_simulated_step;

typedef vp_status (*vp_simulate_fn)(const vp_expanded_step *step, const vp_simulated_step *when,
                                    void *ctx, vp_err *err);

typedef struct vp_simulation {
    double step_s;               /* of one optimizer step */
    double busy_s[VP_N_STREAMS]; /* what each stream works in it */
    double waited_s;             /* what the compute stream stands still for copies */
} vp_simulation;

/* fn, or NULL, sees each step that is walked. VP_ERR_NOMEM; else what fn returns. */
vp_status vp_simulate(const vp_plan *plan, const vp_bucket *bucket, vp_simulate_fn fn, void *ctx,
                      vp_simulation *out, vp_err *err);

/* The same where n_micro_steps are walked: all of the bucket's, or three at least; VP_SIMULATED_MICRO_STEPS
 * at most. */
vp_status vp_simulate_micro_steps(const vp_plan *plan, const vp_bucket *bucket,
                                  int64_t n_micro_steps, vp_simulate_fn fn, void *ctx,
                                  vp_simulation *out, vp_err *err);

/* A pass as a walk needs it, some bytes a step: a chain's passes are walked for every micro-step. False: out
 * of memory. The steps are read here and not later. */
typedef struct vp_timed_step vp_timed_step;

typedef struct vp_timed_pass {
    const vp_timed_step *steps;
    int64_t              n;
} vp_timed_pass;

bool vp_pass_time(vp_arena *arena, const vp_step *steps, int64_t n, bool host_is_device,
                  vp_timed_pass *out);

/* Seconds of a step given pass by pass, in order, for whoever has no plan yet: the passes of a micro-step, of
 * which there are n_micro_steps, the last of them as it is, then the optimizer's. *optimizer_s: what
 * these take. As vp_simulate() has them, to the last bit. */
typedef struct vp_passes {
    const vp_timed_pass *of;
    int64_t              n;
} vp_passes;

typedef struct vp_step_passes {
    vp_passes micro_step, last_micro_step, optimizer;
    int64_t   n_micro_steps;
} vp_step_passes;
double vp_simulate_passes(const vp_step_passes *step, double *optimizer_s);

/* Seconds of steps that stand by themselves: nothing is under way before them or after. */
double vp_simulate_steps(const vp_step *steps, int64_t n, bool host_is_device);

#endif
