#include "planner/roofline.h"

#include <assert.h>
#include <stdlib.h>

/* How often an optimizer step calls it. */
static double times_of(const vp_bucket *b, int pass, const vp_step *s)
{
    if (pass > VP_PASS_BACKWARD || s->first_only)
        return 1;
    return (double)(s->later_only ? b->n_micro_steps - 1 : b->n_micro_steps);
}

static vp_roofline roofline_of(const vp_device *device, const vp_step *s, int64_t window)
{
    vp_step windowed;

    if (!s->window_of_instance)
        return vp_roofline_of(device, s->kernel, s->dtype, s->ints, vp_step_lacks(s));
    windowed                  = *s;
    windowed.attention.window = window;
    return vp_roofline_of(device, s->kernel, s->dtype, windowed.ints, vp_step_lacks(s));
}

static void add_step(vp_plan_roofline *r, const vp_step *s, double times, vp_roofline of)
{
    vp_roofline_sum *sum = &r->works[vp_work_of(s->kernel)];

    sum->n_calls += (int64_t)times;
    sum->flop += times * of.flop;
    sum->bytes += times * of.bytes;
    sum->compute_s += times * of.compute_s;
    sum->memory_s += times * of.memory_s;
    sum->launch_s += times * of.launch_s;
    sum->seconds += times * s->seconds;
    r->seconds += times * s->seconds;
    if (s->kernel == VP_K_LINEAR_BWD_WEIGHT)
        r->model_flop += times * of.flop;
    if (s->kernel == VP_K_LINEAR_BWD_INPUT) /* and the forward, as large */
        r->model_flop += times * 2 * of.flop;
    if (s->kernel == VP_K_ATTENTION_BWD) /* of its five products one is done again: 12 of 10 */
        r->model_flop += times * 1.2 * of.flop;
}

/* Of one instance; known: of its program's steps, as an instance of the same window has them, where *is_known. NULL: no
 * memory for that. */
static void add_instance(vp_plan_roofline *r, const vp_device *device, const vp_bucket *b,
                         const vp_plan_instance *instance, vp_roofline *known, bool is_known)
{
    const vp_program *p  = &b->programs[instance->program_idx];
    int64_t           at = 0;

    for (int pass = 0; pass < VP_N_PASSES; pass++)
        for (int64_t k = 0; k < p->n_steps[pass]; k++, at++) {
            const vp_step    *s = &p->steps[pass][k];
            const vp_roofline of =
                known && is_known ? known[at] : roofline_of(device, s, instance->window);
            if (known)
                known[at] = of;
            add_step(r, s, b->frequency * times_of(b, pass, s), of);
        }
}

/* Most instances have the program of the one before them. */
static void add_bucket(vp_plan_roofline *r, const vp_device *device, const vp_bucket *b)
{
    int64_t      most = 1;
    vp_roofline *known;

    for (int64_t i = 0; i < b->n_programs; i++) {
        int64_t n = 0;
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            n += b->programs[i].n_steps[pass];
        most = n > most ? n : most;
    }
    known = calloc((size_t)most, sizeof *known);
    for (int64_t i = 0; i < b->n_instances; i++)
        add_instance(r, device, b, &b->instances[i], known,
                     i > 0 && b->instances[i - 1].program_idx == b->instances[i].program_idx &&
                         b->instances[i - 1].window == b->instances[i].window);
    free(known);
}

void vp_plan_roofline_make(const vp_plan *plan, const vp_device *device, vp_plan_roofline *out)
{
    vp_device_rate rate = VP_RATE_FP32;

    *out = (vp_plan_roofline){0};
    for (int64_t k = 0; k < plan->n_buckets; k++)
        add_bucket(out, device, &plan->buckets[k]);
    if (device->is_cpu || plan->step_time_s <= 0)
        return;
    switch (vp_precision_compute(plan->recipe.precision)) {
    case VP_DTYPE_BF16:
        rate = VP_RATE_BF16;
        break;
    case VP_DTYPE_F16:
        rate = VP_RATE_FP16;
        break;
    case VP_DTYPE_TF32:
        rate = VP_RATE_TF32;
        break;
    default:
        break;
    }
    out->peak_flop_per_s = vp_device_flop_per_s(device, rate);
    if (out->peak_flop_per_s > 0)
        out->mfu = out->model_flop / (plan->step_time_s * out->peak_flop_per_s);
}

const char *vp_roofline_bound(const vp_plan_roofline *r, vp_work work)
{
    const vp_roofline_sum *s = &r->works[work];

    assert(work < VP_N_WORKS);
    if (s->launch_s > s->compute_s && s->launch_s > s->memory_s)
        return "launch";
    if (work == VP_WORK_COPY)
        return "link";
    return s->compute_s > s->memory_s ? "compute" : "memory";
}
