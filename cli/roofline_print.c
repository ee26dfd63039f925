#include "cli/roofline_print.h"

#include "base/text.h"
#include "base/units.h"
#include "cli/screen.h"

#include <stdio.h>
#include <string.h>

bool vp_plan_device(const vp_plan *plan, vp_device *out)
{
    vp_err err = {0};

    for (int i = 0; vp_device_at(i, out); i++)
        if (strcmp(out->name, plan->device) == 0)
            return true;
    return strcmp(plan->device, "cpu") == 0 && vp_device_open("cpu", out, &err) == VP_OK;
}

static double mfu_of(const vp_plan *plan, const vp_device *device)
{
    vp_plan_roofline r;

    vp_plan_roofline_make(plan, device, &r);
    return r.mfu;
}

const char *vp_mfu_text(const vp_plan *plan, const vp_device *device, char *buf, size_t buf_size)
{
    double mfu = mfu_of(plan, device);

    buf[0] = '\0';
    if (mfu > 0)
        snprintf(buf, buf_size, ", %.0f %% MFU", 100 * mfu);
    return buf;
}

json_t *vp_mfu_json(const vp_plan *plan, const vp_device *device)
{
    double mfu = mfu_of(plan, device);

    return mfu > 0 ? json_real(mfu) : json_null();
}

/* "12.3 T" of any unit. */
static const char *scaled(double value, char *buf, size_t buf_size)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    int                      i          = 0;

    for (; value >= 1000 && i < 6; i++)
        value /= 1000;
    snprintf(buf, buf_size, "%.3g %s", value, prefixes[i]);
    return buf;
}

void vp_roofline_print(const vp_plan *plan, const vp_device *device)
{
    vp_plan_roofline r;
    char             flop[32], bytes[32], time[32], rate[32];

    vp_plan_roofline_make(plan, device, &r);
    printf("%-26s %7s %9s %9s %9s %6s  %s\n", "one step", "calls", "FLOP", "bytes", "time", "share",
           "bound");
    for (int w = 0; w < VP_N_WORKS; w++) {
        const vp_roofline_sum *s = &r.works[w];
        if (!s->n_calls)
            continue;
        printf("%-26s %7lld %9s %8sB %9s %5.1f%%  %s\n", vp_work_name((vp_work)w),
               (long long)s->n_calls, scaled(s->flop, flop, sizeof flop),
               scaled(s->bytes, bytes, sizeof bytes), vp_time_text(s->seconds, time, sizeof time),
               r.seconds > 0 ? 100 * s->seconds / r.seconds : 0, vp_roofline_bound(&r, (vp_work)w));
    }
    printf("\n");
    vp_screen_line("step", "%s (%s)", vp_time_text(plan->step_time_s, time, sizeof time),
                   plan->time_class);
    vp_screen_line("model", "%sFLOP a step, what is computed again not counted",
                   scaled(r.model_flop, flop, sizeof flop));
    if (r.mfu > 0)
        vp_screen_line("MFU", "%.1f %% of %sFLOP/s (%s)", 100 * r.mfu,
                       scaled(r.peak_flop_per_s, rate, sizeof rate), device->name);
    else
        vp_screen_line("MFU", "none: nobody states the peak of %s", device->name);
}

json_t *vp_roofline_json(const vp_plan *plan, const vp_device *device)
{
    vp_plan_roofline r;
    json_t          *list = json_array();

    vp_plan_roofline_make(plan, device, &r);
    for (int w = 0; w < VP_N_WORKS; w++) {
        const vp_roofline_sum *s = &r.works[w];
        if (s->n_calls)
            json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:s}", "work",
                                                  vp_work_name((vp_work)w), "calls",
                                                  (json_int_t)s->n_calls, "flop", s->flop, "bytes",
                                                  s->bytes, "seconds", s->seconds, "share",
                                                  r.seconds > 0 ? s->seconds / r.seconds : 0,
                                                  "bound", vp_roofline_bound(&r, (vp_work)w)));
    }
    return json_pack("{s:i, s:s, s:s, s:f, s:s, s:f, s:o, s:o, s:o}", "schema_version", 1, "model",
                     plan->model_name, "device", device->name, "step_time_s", plan->step_time_s,
                     "time_class", plan->time_class, "model_flop", r.model_flop, "peak_flop_per_s",
                     r.peak_flop_per_s > 0 ? json_real(r.peak_flop_per_s) : json_null(), "mfu",
                     r.mfu > 0 ? json_real(r.mfu) : json_null(), "works", list);
}
