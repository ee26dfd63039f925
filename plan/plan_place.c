/* plan/plan_place.c: where in a plan's file something stands. */
#include "plan/plan_internal.h"

#include <stdarg.h>
#include <stdio.h>

vp_place_in_file vp_place_of(const char *fmt, ...)
{
    vp_place_in_file p;
    va_list          ap;

    va_start(ap, fmt);
    vsnprintf(p.field, sizeof p.field, fmt, ap);
    va_end(ap);
    return p;
}

vp_place_in_file vp_place_of_program(const vp_plan *plan, const vp_bucket *bucket,
                                     const vp_program *p, const char *member, int64_t idx)
{
    return vp_place_of("buckets[%d].programs[%d].%s[%lld]", (int)(bucket - plan->buckets),
                       (int)(p - bucket->programs), member, (long long)idx);
}

static vp_place_in_file place_of_step(const vp_plan *plan, const vp_bucket *bucket,
                                      const vp_program *p, const vp_step *s)
{
    static const char *const names[VP_N_PASSES] = {"forward", "backward",     "norm",
                                                   "update",  "last_forward", "last_backward"};

    for (int pass = 0; pass < VP_N_PASSES; pass++)
        if (s >= p->steps[pass] && s < p->steps[pass] + p->n_steps[pass])
            return vp_place_of_program(plan, bucket, p, names[pass], s - p->steps[pass]);
    return vp_place_of("buckets");
}

vp_status vp_place_in_step(vp_status st, const vp_plan *plan, const vp_bucket *bucket,
                           const vp_program *p, const vp_step *s, vp_err *err)
{
    if (st == VP_ERR_INPUT && err && !err->field[0])
        snprintf(err->field, sizeof err->field, "%s", place_of_step(plan, bucket, p, s).field);
    return st;
}
