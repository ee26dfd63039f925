#include "devices/device_here.h"

#include "base/checked.h"
#include "base/nvml.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* The index CUDA_VISIBLE_DEVICES begins with; 0 when it is not set; -1 when it hides all, or
 * names a card in another way (a UUID), which we do not follow. */
static long visible_index(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    char       *end;
    long        idx;

    if (!text)
        return 0;
    idx = strtol(text, &end, 10);
    return end == text || (*end && *end != ',') || idx < 0 || idx > 1024 ? -1 : idx;
}

static bool known_product(const char *product, vp_device *device)
{
    for (int i = 0; vp_device_at(i, device); i++)
        if (strcmp(device->product, product) == 0)
            return true;
    return false;
}

vp_status vp_device_here(vp_device *device, int64_t *free_bytes, bool *found, vp_err *err)
{
    vp_nvml_card card;
    char         shown[128];
    long         idx = visible_index();
    vp_status    st  = VP_OK;

    *found = false;
    if (idx < 0 || !vp_nvml_card_at((unsigned)idx, &card))
        return VP_OK;
    if (!known_product(card.product, device))
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE,
                       "the GPU here, %s, is not in our table: say --device NAME|FILE",
                       vp_text_escape(card.product, shown, sizeof shown)));
    *free_bytes = vp_min_i64(card.free_bytes, device->usable_bytes);
    *found      = true;
out:
    return st;
}
