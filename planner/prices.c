#include "planner/prices.h"

#include "base/units.h"

#include <assert.h>

/* Seconds that the fastest plan has more than another's; what a search found worse is no price. */
static double saved(const vp_plan_answer *a, double richer_s)
{
    double s = a->candidates[0].figures.step_time_s - richer_s;

    return richer_s >= 0 && s > 0 ? s : 0;
}

vp_status vp_prices_device(const vp_plan_request *r, const vp_plan_answer *a, double *seconds,
                           vp_err *err)
{
    double    richer_s;
    vp_status st = VP_OK;

    assert(a->n_candidates > 0);
    VP_TRY(vp_planner_at_budget(r, a, r->budget_bytes + VP_GIB, &richer_s, NULL, err));
    *seconds = saved(a, richer_s);
out:
    return st;
}

static vp_status search(const vp_plan_request *r, const vp_plan_answer *like, double *seconds,
                        vp_err *err)
{
    vp_plan_request richer = *r;
    vp_plan_answer  a      = {0};
    vp_status       st     = VP_OK;

    richer.no_proof = true;
    richer.within   = 0;
    VP_TRY(vp_planner_run(&richer, &a, err));
    *seconds = saved(like, a.n_candidates ? a.candidates[0].figures.step_time_s : -1);
out:
    vp_plan_answer_release(&a);
    return st;
}

vp_prices vp_prices_of_device(double device_s)
{
    return (vp_prices){.device_s = device_s, .host_s = -1, .pinned_s = -1, .link_s = -1};
}

vp_status vp_prices_find(const vp_plan_request *r, const vp_plan_answer *a, vp_prices *out,
                         vp_err *err)
{
    vp_device       device = *r->device;
    vp_plan_request richer = *r;
    vp_status       st     = VP_OK;

    *out = vp_prices_of_device(out->device_s);
    if (r->host_bytes <= 0)
        return VP_OK;
    richer.host_bytes = r->host_bytes + VP_GIB;
    VP_TRY(search(&richer, a, &out->host_s, err));
    richer.host_bytes = r->host_bytes;
    if (r->pinned_bytes) {
        richer.pinned_bytes = r->pinned_bytes + VP_GIB;
        VP_TRY(search(&richer, a, &out->pinned_s, err));
        richer.pinned_bytes = r->pinned_bytes;
    }
    if (device.host_link_bytes_per_s <= 0)
        return VP_OK;
    richer.device = &device;
    device.host_link_bytes_per_s += 1e9;
    VP_TRY(search(&richer, a, &out->link_s, err));
out:
    return st;
}
