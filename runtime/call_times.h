/* runtime/call_times.h: what the calls of one kernel with one shape take in a step, as the median
 * over steps.
 *     VP_TRY(vp_call_times_add(&times, runtime, err));     // after each step that counts
 *     const vp_kernel_time *t = vp_call_times_median(&times);   // times.n of them
 *     vp_call_times_release(&times); */
#ifndef VP_RUNTIME_CALL_TIMES_H
#define VP_RUNTIME_CALL_TIMES_H

#include "plan/profile.h"
#include "runtime/runtime.h"

enum { VP_CALL_TIMES_STEPS = 64 }; /* the last ones are kept */

typedef struct vp_call_times { /* zeroed: none yet */
    vp_kernel_time *at;        /* n, in the order of vp_runtime_kernel_times()  */
    int64_t         n;
    double         *seconds; /* (n, VP_CALL_TIMES_STEPS)                      */
    int64_t         n_steps; /* added since the last vp_call_times_forget()   */
} vp_call_times;

/* The last step of the runtime, which must be the same at each call. VP_ERR_NOMEM. */
vp_status vp_call_times_add(vp_call_times *x, const vp_runtime *rt, vp_err *err);
void      vp_call_times_forget(vp_call_times *x);
/* x->at with the medians as its seconds; 0 of none. */
const vp_kernel_time *vp_call_times_median(vp_call_times *x);
/* After vp_call_times_median(), of a backend of the host: its name, a row for each call that was made, seconds
 * of one, what its memory carries in an update, and its link, measured now. VP_ERR_NOMEM, VP_ERR_DEVICE. */
vp_status vp_call_times_profile(const vp_call_times *x, const vp_backend *backend,
                                vp_profile *profile, vp_err *err);
void      vp_call_times_release(vp_call_times *x);

#endif
