#include "planner/lowering/cost.h"

#include <assert.h>
#include <math.h>

/* A kernel launch on a GPU, or an OpenMP region here: 4 us (ocannl#488 gives 2.6 to 6.4 us for a
 * CUDA launch). */
static const double LAUNCH_S = 4e-6;

/* What a link carries of its stated rate: 24 to 28 bytes of headers for each 256 of a PCIe packet, and
 * what flow control costs; 25 to 26 GB/s of 31.5 are usual on PCIe 4.0 x16. */
static const double LINK_SHARE = 0.8;

static double copy_seconds(const vp_cost *cost, int64_t bytes)
{
    const vp_device *d = cost->device;
    /* within one memory a copy reads and writes */
    double rate = d->host_link_bytes_per_s > 0 ? LINK_SHARE * d->host_link_bytes_per_s
                                               : d->memory_bytes_per_s / 2;

    return (double)bytes / rate + LAUNCH_S;
}

static double raw_seconds(vp_cost *cost, vp_kernel kernel, vp_dtype dtype, const int64_t *ints,
                          uint32_t lacks)
{
    if (cost->profile) {
        bool   measured;
        double s = vp_profile_seconds(cost->profile, kernel, dtype, ints, lacks, &measured);
        if (!measured)
            cost->all_measured = false;
        if (s >= 0)
            return s;
    }
    cost->all_measured = false;
    if (kernel == VP_K_COPY_DONE)
        return 0;
    if (kernel == VP_K_COPY_START)
        return copy_seconds(cost, vp_copy_start_ints_of(ints)->count);
    double rate =
        vp_device_flop_per_s(cost->device, dtype == VP_DTYPE_BF16 ? VP_RATE_BF16 : VP_RATE_FP32);
    assert(cost->device->fp32_flop_per_s > 0 && cost->device->memory_bytes_per_s > 0);
    double compute_s =
        vp_kernel_flop(kernel, ints) / (rate > 0 ? rate : cost->device->fp32_flop_per_s);
    double memory_s =
        vp_kernel_bytes_moved(kernel, dtype, ints, lacks) / cost->device->memory_bytes_per_s;
    return (compute_s > memory_s ? compute_s : memory_s) + LAUNCH_S;
}

double vp_cost_seconds(vp_cost *cost, vp_kernel kernel, vp_dtype dtype, const int64_t *ints,
                       uint32_t lacks)
{
    return round(raw_seconds(cost, kernel, dtype, ints, lacks) * 1e9) * 1e-9;
}

double vp_cost_step(vp_cost *cost, const vp_graph *g, const vp_step *step)
{
    vp_step  windowed = *step;
    uint32_t lacks    = vp_step_lacks(step);
    double   sum      = 0;
    int64_t  n        = 0;
    /* chains are long and have few windows: each is priced once where it is among the first */
    struct {
        int64_t window;
        double  seconds;
    } known[8];
    int n_known = 0;

    if (!step->window_of_instance)
        return vp_cost_seconds(cost, step->kernel, step->dtype, step->ints, lacks);
    for (int64_t i = 1; i < g->n_instances - 1; i++, n++) {
        int k = 0;
        while (k < n_known && known[k].window != g->instances[i].window)
            k++;
        windowed.attention.window = g->instances[i].window;
        double seconds            = k < n_known
                                        ? known[k].seconds
                                        : raw_seconds(cost, step->kernel, step->dtype, windowed.ints, lacks);
        if (k == n_known && n_known < (int)(sizeof known / sizeof *known)) {
            known[n_known].window    = windowed.attention.window;
            known[n_known++].seconds = seconds;
        }
        sum += seconds;
    }
    assert(n > 0); /* a chain has blocks */
    return round(sum / (double)n * 1e9) * 1e-9;
}
