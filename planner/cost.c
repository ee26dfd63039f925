#include "planner/cost.h"

#include <math.h>

/* A kernel launch on a GPU, or an OpenMP region here: 4 us (ocannl#488 gives 2.6 to 6.4 us for a CUDA launch). */
static const double LAUNCH_S = 4e-6;

static double raw_seconds(vp_cost *cost, vp_kernel kernel, const int64_t *ints)
{
    if (cost->profile) {
        bool   measured;
        double s = vp_profile_seconds(cost->profile, kernel, ints, &measured);
        if (!measured)
            cost->all_measured = false;
        if (s >= 0)
            return s;
    }
    cost->all_measured = false;
    double compute_s   = vp_kernel_flop(kernel, ints) / cost->device->fp32_flop_per_s;
    double memory_s    = vp_kernel_bytes_moved(kernel, ints) / cost->device->memory_bytes_per_s;
    return (compute_s > memory_s ? compute_s : memory_s) + LAUNCH_S;
}

double vp_cost_seconds(vp_cost *cost, vp_kernel kernel, const int64_t *ints)
{
    return round(raw_seconds(cost, kernel, ints) * 1e9) * 1e-9;
}
