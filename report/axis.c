#include "report/axis.h"

#include <assert.h>
#include <math.h>

static vp_axis ticks(double low, double high, double step)
{
    vp_axis axis = {.first = ceil(low / step) * step, .step = step};

    while (axis.first + axis.n * step <= high * (1 + 1e-12))
        axis.n++;
    return axis;
}

vp_axis vp_axis_of(double low, double high, int about)
{
    assert(high > low && about > 1);
    double rough = (high - low) / about, power = pow(10, floor(log10(rough)));
    double step = rough <= power       ? power
                  : rough <= 2 * power ? 2 * power
                  : rough <= 5 * power ? 5 * power
                                       : 10 * power;

    return ticks(low, high, step);
}

vp_axis vp_axis_of_bytes(double low, double high, int about)
{
    assert(high > low && about > 1);
    return ticks(low, high, exp2(ceil(log2((high - low) / about))));
}
