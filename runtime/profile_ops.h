/* runtime/profile_ops.h: time kernel calls, each alone on memory of its own. */
#ifndef VP_RUNTIME_PROFILE_OPS_H
#define VP_RUNTIME_PROFILE_OPS_H

#include "kernels/backend.h"
#include "plan/profile.h"

/* Fill in the seconds of every row: one call to warm up, then the median of 3 to 9 calls, fewer
 * once they have taken 0.3 s; where the backend has several algorithms, all are timed and the
 * fastest is kept in the row. Stops early, with the rows timed so far, when total_s have passed;
 * *n_timed says how many. progress may be NULL. */
vp_status vp_profile_rows(const vp_backend *backend, vp_profile *profile, double total_s,
                          int64_t *n_timed, void (*progress)(int64_t done, int64_t n), vp_err *err);

#endif
