/* kernels/reference/reference_internal.h: what the files of the reference share. Nothing outside
 * includes it. */
#ifndef VP_KERNELS_REFERENCE_INTERNAL_H
#define VP_KERNELS_REFERENCE_INTERNAL_H

#include "kernels/backend.h"

/* 0 or 1 / (1 - p): whether word `lane` of a Philox block keeps what it decides. */
double vp_reference_mask(const vp_kernel_call *call, double p, int64_t sample, uint64_t block,
                         int lane);

#define VP_RUN(NAME, name) void vp_reference_##name(const vp_kernel_call *call);
#include "plan/kernels.def"

#endif
