/* runtime/profile_ops.h: time kernel calls, each kind by itself on memory of its own. */
#ifndef VP_RUNTIME_PROFILE_OPS_H
#define VP_RUNTIME_PROFILE_OPS_H

#include "kernels/backend.h"
#include "plan/profile.h"

typedef struct vp_profile_timed {
    int64_t n_rows;        /* the first so many have their seconds           */
    int64_t n_failed;      /* algorithms that could not be run and were left out */
    vp_err  first_failure; /* why the first of them could not                */
} vp_profile_timed;

/* Fill in the seconds of every row: the median of 3 to 9 measurements, fewer once they have taken
 * 0.3 s. On a device a measurement is 2 ms and more of such calls in one recording, one after the
 * other on operands that fill its cache twice, as in a step, where launches are not waited for;
 * on the host one call. Where the backend has several algorithms, all are timed and the fastest is
 * kept in the row. Stops early, with the rows timed so far, when total_s have passed. progress may
 * be NULL. VP_ERR_DEVICE: a call that no algorithm can compute. */
vp_status vp_profile_rows(const vp_backend *backend, vp_profile *profile, double total_s,
                          vp_profile_timed *out, void (*progress)(int64_t done, int64_t n),
                          vp_err           *err);

/* What the host's memory carries a second in the largest of the profile's updates that treat each element
 * by itself, bytes read and written: as the row says, where it is the host's, else timed here by the CPU
 * backend. 0: it has none such. */
vp_status vp_profile_host_update(const vp_profile *profile, bool is_host, double *bytes_per_s,
                                 vp_err *err);

#endif
