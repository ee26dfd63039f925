/* plan/link_rates.h: what the link between a host and its card carries, and what pinning costs, as measured there.
 *     VP_TRY(vp_link_rates_from_json(&node, &link, err));
 *     double bytes_per_s = vp_link_rates_least(&link);   // what a plan's copies are priced by
 *
 * Copies between pinned memory and the card's, of some 32 MiB each: what a plan moves is larger. */
#ifndef VP_PLAN_LINK_RATES_H
#define VP_PLAN_LINK_RATES_H

#include "base/err.h"
#include "base/json.h"

#include <stdint.h>

/* All zeros was not measured. */
typedef struct vp_link_rates {
    char device[64]; /* as the driver calls it */
    /* while the link does nothing else */
    double to_device_bytes_per_s, from_device_bytes_per_s;
    /* each way, while as much goes the other way: of the slower of the two */
    double together_bytes_per_s;
    /* where the processors that run kernels make the copies, too: what kernels take longer for each byte that is
     * copied beside them; 0: not measured, or others make them */
    double kernels_lost_s_per_byte;
    /* what taking so many bytes of pinned memory took */
    int64_t pinned_bytes;
    double  pinning_s;
} vp_link_rates;

/* The least of the three rates, which a copy reaches whatever goes beside it; 0: not measured. */
double vp_link_rates_least(const vp_link_rates *link);

/* docs/profile-file.md, `link`. A new value, null for one that was not measured; NULL when memory ran out. */
json_t *vp_link_rates_to_json(const vp_link_rates *link);
/* VP_ERR_INPUT, located */
vp_status vp_link_rates_from_json(const vp_json_node *node, vp_link_rates *out, vp_err *err);

#endif
