/* plan/profile.h: what kernels cost on one device, and what lies there outside an arena, measured.
 *     VP_TRY(vp_profile_read("cpu.json", &profile, err));
 *     double s = vp_profile_seconds(profile, VP_K_LINEAR_FWD, VP_DTYPE_F32, ints, 0, &measured);
 *     // < 0: not measured
 *
 * Made by `vplan-run --profile`, read by the planner: the only way back from hardware to plans. */
#ifndef VP_PLAN_PROFILE_H
#define VP_PLAN_PROFILE_H

#include "base/err.h"
#include "base/json.h"
#include "plan/link_rates.h"
#include "plan/op.h"
#include "plan/overhead.h"

typedef struct vp_profile_row {
    vp_kernel kernel;
    vp_dtype  dtype;
    VP_NAMED_INTS;
    uint32_t     lacks;     /* vp_kernel_lacks() */
    double       seconds;   /* median of repeated calls */
    vp_algorithm algorithm; /* with which; unset where the backend has no choice */
} vp_profile_row;

typedef struct vp_profile {
    char device[64];
    /* library, instruction set, threads; on a card device, driver and libraries with their
     * versions */
    char            backend[200];
    vp_overhead     outside;                 /* with that backend; maybe not measured */
    vp_link_rates   link;                    /* to the host; maybe not measured       */
    double          host_update_bytes_per_s; /* of an update that the host makes; 0: not measured */
    vp_profile_row *rows;
    int64_t         n_rows, cap_rows;
} vp_profile;

vp_profile *vp_profile_new(void);
void        vp_profile_free(vp_profile *profile);
vp_profile *vp_profile_copy(const vp_profile *profile); /* NULL: out of memory */

/* Append a row (any seconds; a second row of the same call replaces the first). False: out of
 * memory. */
bool vp_profile_add(vp_profile *profile, const vp_profile_row *row);

/* Seconds of a call that lacks these operands (vp_kernel_lacks(); other bits are ignored): measured; else the nearest measured call of the kernel in that dtype scaled
 * by floating-point operations (GEMM, attention) or bytes moved (all others), "nearest" in the
 * ratio of that work. *measured says which. Negative when the kernel was never measured in that
 * dtype. */
double vp_profile_seconds(const vp_profile *profile, vp_kernel kernel, vp_dtype dtype,
                          const int64_t *ints, uint32_t lacks, bool *measured);

/* The algorithm a call was measured with; unset where it was not, or had none. */
vp_algorithm vp_profile_algorithm(const vp_profile *profile, vp_kernel kernel, vp_dtype dtype,
                                  const int64_t *ints, uint32_t lacks);

/* The key "algorithm" of a call in a profile or plan; unset where it is absent. VP_ERR_INPUT: no
 * algorithm, or the kernel has none. */
vp_status vp_algorithm_read(const vp_json_node *call, vp_kernel kernel, vp_algorithm *out,
                            vp_err *err);

/* A kernel's whole numbers in a call's object, each within its own limits and `most`; a 0 that files leave out is left out. */
vp_status vp_ints_read(const vp_json_node *call, vp_kernel kernel, int64_t most, int64_t *ints,
                       vp_err *err);
void      vp_ints_write(json_t *call, vp_kernel kernel, const int64_t *ints);

/* The key "without" of a call in a profile or a run's results: names of the operands it lacks; left
 * out where it lacks none. VP_ERR_INPUT: no such operand. False: out of memory. */
vp_status vp_lacks_read(const vp_json_node *call, vp_kernel kernel, vp_dtype dtype, uint32_t *lacks,
                        vp_err *err);
bool      vp_lacks_write(json_t *call, vp_kernel kernel, uint32_t lacks);

vp_status vp_profile_read(const char *path, vp_profile **out, vp_err *err);
vp_status vp_profile_from_json(const vp_json_node *root, vp_profile **out, vp_err *err);
json_t   *vp_profile_to_json(const vp_profile *profile);
vp_status vp_profile_write(const vp_profile *profile, const char *path, bool overwrite,
                           vp_err *err);

#endif
