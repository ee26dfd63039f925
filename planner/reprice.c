#include "planner/reprice.h"

#include "plan/simulate.h"
#include "planner/lowering/cost.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

typedef struct pricing {
    const char       *path;
    const vp_profile *profile;
    vp_device         device; /* its link, and its host, as the profile measured them */
    bool              all_measured, overlaps;
} pricing;

/* The plan's device, by name: what copies cross and what its host does there. */
static void find_device(const vp_plan *plan, const vp_profile *profile, vp_device *out)
{
    bool found = false;

    for (int i = 0; !found && vp_device_at(i, out); i++)
        found = strcmp(out->name, plan->device) == 0;
    if (!found) {
        *out = (vp_device){.is_cpu = plan->compute_capability == 0};
        snprintf(out->name, sizeof out->name, "%s", plan->device);
    }
    vp_device_calibrate(out, profile);
}

/* What runs beside kernels, by its rate where it was measured; else it stays the plan's. */
static void price_beside(pricing *x, vp_step *s)
{
    vp_device_figure rate =
        s->stream == VP_STREAM_HOST ? VP_FIGURE_HOST_UPDATE : VP_FIGURE_HOST_LINK;
    vp_cost cost = {.device = &x->device};

    x->overlaps = true;
    if (s->kernel == VP_K_COPY_DONE)
        return;
    if (x->device.sources[rate].class_ == VP_CLASS_MEASURED) {
        s->seconds = vp_cost_step(&cost, NULL, s);
        s->lost_s  = vp_cost_lost(&cost, s);
    } else {
        x->all_measured = false;
    }
}

static vp_status look_up(pricing *x, const vp_step *s, const int64_t *ints, double *seconds,
                         vp_err *err)
{
    bool measured;

    assert(s->kernel != VP_K_COPY_START && s->kernel != VP_K_COPY_DONE);
    *seconds =
        vp_profile_seconds(x->profile, s->kernel, s->dtype, ints, vp_step_lacks(s), &measured);
    x->all_measured &= measured;
    if (*seconds < 0)
        return vp_fail(err, VP_ERR_INPUT, x->path, 0, "rows", "no %s in %s, which the plan calls",
                       vp_kernel_info_of(s->kernel)->name, vp_dtype_name(s->dtype));
    return VP_OK;
}

/* Of an attention whose window is its instance's: the mean over the instances that run this
 * program. */
static vp_status price_windows(pricing *x, const vp_bucket *b, const vp_program *p, vp_step *s,
                               vp_err *err)
{
    vp_step   windowed = *s;
    int64_t   n        = 0;
    double    sum_s    = 0, seconds;
    vp_status st       = VP_OK;

    for (int64_t i = 0; i < b->n_instances; i++) {
        if (&b->programs[b->instances[i].program_idx] != p)
            continue;
        windowed.attention.window = b->instances[i].window;
        VP_TRY(look_up(x, s, windowed.ints, &seconds, err));
        sum_s += seconds;
        n++;
    }
    s->seconds = n ? sum_s / (double)n : 0;
out:
    return st;
}

/* One micro-step of a program's instance and what its first one has besides; what comes once an
 * optimizer step. */
static vp_status price_program(pricing *x, const vp_bucket *b, vp_program *p, double *step_s,
                               vp_err *err)
{
    vp_status st = VP_OK;

    *step_s = 0;
    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t i = 0; i < p->n_steps[pass]; i++) {
            vp_step *s    = &p->steps[pass][i];
            bool     host = s->stream == VP_STREAM_HOST && !x->device.is_cpu;
            if (s->kernel == VP_K_COPY_START || s->kernel == VP_K_COPY_DONE || host)
                price_beside(x, s);
            else
                VP_TRY(s->window_of_instance ? price_windows(x, b, p, s, err)
                                             : look_up(x, s, s->ints, &s->seconds, err));
            int64_t n_full = b->n_micro_steps - vp_bucket_ends_smaller(b);
            int64_t times  = pass > VP_PASS_BACKWARD || s->first_only ? 1
                             : s->later_only                          ? n_full - 1
                                                                      : n_full;
            *step_s += s->seconds * (double)times;
        }
out:
    return st;
}

vp_status vp_plan_reprice(vp_plan *plan, const char *path, const vp_profile *profile, vp_err *err)
{
    pricing   x     = {.path = path, .profile = profile, .all_measured = true};
    double    sum_s = 0, step_s;
    vp_status st    = VP_OK;

    find_device(plan, profile, &x.device);
    for (int64_t k = 0; k < plan->n_buckets; k++) {
        vp_bucket *b = &plan->buckets[k];
        for (int64_t i = 0; i < b->n_programs; i++) {
            VP_TRY(price_program(&x, b, &b->programs[i], &step_s, err));
            for (int64_t j = 0; j < b->n_instances; j++)
                sum_s += b->instances[j].program_idx == i ? b->frequency * step_s : 0;
        }
    }
    if (x.overlaps) { /* what overlaps does not add up */
        sum_s = 0;
        for (int64_t k = 0; k < plan->n_buckets; k++) {
            vp_simulation simulated;
            VP_TRY(vp_simulate(plan, &plan->buckets[k], NULL, NULL, &simulated, err));
            sum_s += plan->buckets[k].frequency * simulated.step_s;
        }
    }
    plan->step_time_s = sum_s;
    plan->time_class  = x.all_measured ? "measured" : "assumed";
out:
    return st;
}
