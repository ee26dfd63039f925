#include "planner/lowering/cost.h"

#include "devices/efficiency.h"

#include <assert.h>
#include <math.h>

static void note(vp_cost *cost, vp_device_figure rate)
{
    cost->all_measured &= cost->device->sources[rate].class_ == VP_CLASS_MEASURED;
}

static double raw_seconds(vp_cost *cost, vp_kernel kernel, vp_dtype dtype, const int64_t *ints,
                          uint32_t lacks)
{
    if (vp_kernel_info_of(kernel)->kind == VP_KERNEL_TRANSFER) {
        note(cost, VP_FIGURE_HOST_LINK);
        return vp_roofline_of(cost->device, kernel, dtype, ints, lacks).seconds;
    }
    if (cost->profile) {
        bool   measured;
        double s = vp_profile_seconds(cost->profile, kernel, dtype, ints, lacks, &measured);
        if (!measured)
            cost->all_measured = false;
        if (s >= 0)
            return s;
    }
    cost->all_measured = false;
    return vp_roofline_of(cost->device, kernel, dtype, ints, lacks).seconds;
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

    if (step->stream == VP_STREAM_HOST && !cost->device->is_cpu) {
        note(cost, VP_FIGURE_HOST_UPDATE); /* a card's profile has the card's updates */
        return round(vp_host_update_seconds(
                         cost->device,
                         vp_kernel_bytes_moved(step->kernel, step->dtype, step->ints, lacks)) *
                     1e9) *
               1e-9;
    }
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

double vp_cost_lost(const vp_cost *cost, const vp_step *step)
{
    const double s_per_byte = cost->device->kernels_lost_s_per_byte;

    return step->kernel == VP_K_COPY_START
               ? round((double)step->copy_start.count * s_per_byte * 1e9) * 1e-9
               : 0;
}
