#include "cli/prices_print.h"

#include "base/text.h"
#include "base/units.h"
#include "cli/screen.h"

static json_t *seconds_or_null(double s)
{
    return s >= 0 ? json_real(s) : json_null();
}

json_t *vp_prices_json(const vp_prices *p)
{
    json_t *binding = json_array();

    if (p->device_s > 0)
        json_array_append_new(binding, json_string("device"));
    if (p->host_s > 0)
        json_array_append_new(binding, json_string("host"));
    if (p->pinned_s > 0)
        json_array_append_new(binding, json_string("pinned"));
    if (p->link_s > 0)
        json_array_append_new(binding, json_string("link"));
    json_t *j = json_pack("{s:f, s:o, s:o, s:o}", "device_s_per_gib", p->device_s, "host_s_per_gib",
                          seconds_or_null(p->host_s), "link_s_per_gb_per_s",
                          seconds_or_null(p->link_s), "binding", binding);
    if (j && p->pinned_s >= 0)
        json_object_set_new(j, "pinned_s_per_gib", json_real(p->pinned_s));
    return j;
}

void vp_prices_print(const vp_prices *p)
{
    const struct {
        double      seconds; /* negative: none */
        const char *binds, *more;
    } rows[]      = {{p->device_s, "device memory", "one more GiB of the device saves "},
                     {p->host_s, "host memory", " a step, of the host "},
                     {p->pinned_s, "pinned memory", ", of what may be pinned "},
                     {p->link_s, "the link", ", one more GB/s of link "}};
    vp_text binds = {0}, prices = {0};
    char    time[32];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].seconds > 0)
            vp_text_printf(&binds, "%s%s", binds.n_bytes ? ", " : "", rows[i].binds);
        if (rows[i].seconds >= 0)
            vp_text_printf(&prices, "%s%s", rows[i].more,
                           vp_time_text(rows[i].seconds, time, sizeof time));
    }
    vp_screen_line("binding", "%s",
                   binds.n_bytes ? vp_text_string(&binds)
                                 : "nothing: more of none makes it faster");
    vp_screen_line("prices", "%s%s", vp_text_string(&prices), p->host_s >= 0 ? "" : " a step");
    vp_text_release(&binds);
    vp_text_release(&prices);
}
