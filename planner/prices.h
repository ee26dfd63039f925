/* planner/prices.h: what a little more of each thing that is short would save.
 *     VP_TRY(vp_prices_device(&request, &answer, &prices.device_s, err));
 *     VP_TRY(vp_prices_find(&request, &answer, &prices, err));
 *
 * A price is a finite difference of fastest steps, each found by a search: with one more GiB of device
 * memory, one more GiB of host memory, and one more GB/s of link between the two, the rest as it is. A
 * thing binds where its price is more than nothing. */
#ifndef VP_PLANNER_PRICES_H
#define VP_PLANNER_PRICES_H

#include "planner/planner.h"

typedef struct vp_prices {
    double device_s; /* a step's seconds, of one more GiB                          */
    double host_s;   /* the same of host memory; negative: there is none           */
    double pinned_s; /* of what of it may be pinned; negative: all may             */
    double link_s;   /* of one more GB/s; negative: no host memory, or not known   */
} vp_prices;

/* None but the device's known. */
vp_prices vp_prices_of_device(double device_s);

/* Those of host memory and link, each by a search anew without a proof; the answer is the request's and has a
 * candidate. */
vp_status vp_prices_find(const vp_plan_request *request, const vp_plan_answer *answer,
                         vp_prices *out, vp_err *err);

/* That of the device alone, from the answer's own integer programs. */
vp_status vp_prices_device(const vp_plan_request *request, const vp_plan_answer *answer,
                           double *seconds, vp_err *err);

#endif
