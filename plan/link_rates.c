#include "plan/link_rates.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const double  most_bytes_per_s = 1e15, most_s = 1e6;
static const int64_t most_bytes = INT64_C(1) << 50;

double vp_link_rates_least(const vp_link_rates *x)
{
    assert(x->together_bytes_per_s >= 0);
    return fmin(fmin(x->to_device_bytes_per_s, x->from_device_bytes_per_s),
                x->together_bytes_per_s);
}

json_t *vp_link_rates_to_json(const vp_link_rates *x)
{
    if (vp_link_rates_least(x) <= 0)
        return json_null();
    json_t *j =
        json_pack("{s:s, s:f, s:f, s:f, s:I, s:f}", "device", x->device, "to_device_bytes_per_s",
                  x->to_device_bytes_per_s, "from_device_bytes_per_s", x->from_device_bytes_per_s,
                  "together_bytes_per_s", x->together_bytes_per_s, "pinned_bytes",
                  (json_int_t)x->pinned_bytes, "pinning_s", x->pinning_s);
    if (j && x->kernels_lost_s_per_byte > 0 &&
        json_object_set_new(j, "kernels_lost_s_per_byte", json_real(x->kernels_lost_s_per_byte)) !=
            0) {
        json_decref(j);
        j = NULL;
    }
    return j;
}

vp_status vp_link_rates_from_json(const vp_json_node *node, vp_link_rates *out, vp_err *err)
{
    static const char *const keys[] = {"device",
                                       "to_device_bytes_per_s",
                                       "from_device_bytes_per_s",
                                       "together_bytes_per_s",
                                       "pinned_bytes",
                                       "pinning_s",
                                       "kernels_lost_s_per_byte",
                                       NULL};
    vp_link_rates            x      = {.pinned_bytes = 0};
    const char              *text;
    vp_status                st = VP_OK;

    *out = x;
    VP_TRY(vp_json_only_keys(node, keys, err));
    VP_TRY(vp_json_string(node, "device", &text, err));
    if (!text[0] || strlen(text) >= sizeof x.device)
        VP_TRY(vp_json_fail(node, "device", err, "must be the name of a device, of 1 to %zu bytes",
                            sizeof x.device - 1));
    strcpy(x.device, text);
    /* a byte a second: a rate of nothing would make a copy endless */
    VP_TRY(vp_json_real(node, keys[1], 1, most_bytes_per_s, &x.to_device_bytes_per_s, err));
    VP_TRY(vp_json_real(node, keys[2], 1, most_bytes_per_s, &x.from_device_bytes_per_s, err));
    VP_TRY(vp_json_real(node, keys[3], 1, most_bytes_per_s, &x.together_bytes_per_s, err));
    VP_TRY(vp_json_int(node, keys[4], 0, most_bytes, &x.pinned_bytes, err));
    VP_TRY(vp_json_real(node, keys[5], 0, most_s, &x.pinning_s, err));
    if (vp_json_has(node, keys[6])) /* a second a byte: as the slowest rate */
        VP_TRY(vp_json_real(node, keys[6], 0, 1, &x.kernels_lost_s_per_byte, err));
    *out = x;
out:
    return st;
}
