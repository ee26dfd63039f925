/* kernels/reference/reference_dropout.c: which elements a random op keeps. */
#include "kernels/reference/reference_internal.h"

#include "kernels/cpu/philox.h"

#include <math.h>

double vp_reference_mask(const vp_kernel_call *call, double p, int64_t sample, uint64_t block,
                         int lane)
{
    uint32_t word[4];

    if (p <= 0.0)
        return 1.0;
    vp_philox(vp_philox_key_of(&call->rng), (uint64_t)(call->rng.first_sample + sample), block,
              word);
    return (double)word[lane] < floor(p * 4294967296.0 + 0.5) ? 0.0 : 1.0 / (1.0 - p);
}

void vp_reference_dropout(const vp_kernel_call *call)
{
    const double *x     = call->operand[VP_DROPOUT_X];
    double       *y     = call->operand[VP_DROPOUT_Y];
    int64_t       count = call->dropout.count;

    for (int64_t sample = 0; sample < call->dropout.batch; sample++)
        for (int64_t i = 0; i < count; i++) {
            double m = vp_reference_mask(call, call->dropout_reals.p, sample, (uint64_t)(i / 4),
                                         (int)(i % 4));
            y[sample * count + i] = m == 0.0 ? 0.0 : x[sample * count + i] * m;
        }
}
