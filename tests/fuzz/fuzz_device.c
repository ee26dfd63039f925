/* A device file: what is accepted has sane figures, and prices every kernel. */
#include "fuzz.h"

#include "base/json.h"
#include "base/text.h"
#include "devices/devices.h"
#include "planner/lowering/cost.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vp_device device;
    vp_err    err  = {0};
    vp_status st   = vp_device_open(fuzz_file(data, size), &device, &err);
    vp_cost   cost = {.device = &device};

    if (st != VP_OK) {
        fuzz_check_refusal(st, &err);
        return 0;
    }
    fuzz_n_accepted++;
    MUST(!device.is_cpu && device.usable_bytes > 0 && device.outside_bytes >= 0 &&
         device.outside_bytes <= device.usable_bytes);
    MUST(strlen(device.name) < sizeof device.name);
    for (int f = 0; f < VP_N_FIGURES; f++)
        MUST(strlen(device.sources[f].text) < sizeof device.sources[f].text &&
             device.sources[f].class_ <= VP_CLASS_MEASURED);
    json_t   *json = vp_device_json(&device);
    vp_text   text = {0};
    vp_device again;
    MUST(json && vp_json_dump(json, &text));
    MUST(vp_device_parse("again", text.data, (int64_t)text.n_bytes, &again, &err) == VP_OK);
    MUST(again.usable_bytes == device.usable_bytes &&
         again.bf16_flop_per_s == device.bf16_flop_per_s && again.fp8 == device.fp8);
    json_decref(json);
    vp_text_release(&text);
    MUST((vp_device_supports(&device, VP_NEEDS_BF16, NULL) == VP_OK) == device.bf16);
    for (const char *c = device.name; *c; c++)
        MUST((unsigned char)*c >= 0x20 && *c != 0x7f);
    for (int k = 0; k < VP_N_KERNELS; k++) {
        int64_t ints[VP_MAX_INTS];
        for (int i = 0; i < VP_MAX_INTS; i++)
            ints[i] = 1 + i % 2;
        double s = vp_cost_seconds(&cost, (vp_kernel)k, VP_DTYPE_F32, ints, 0);
        MUST(isfinite(s) && (s > 0 || (s == 0 && k == VP_K_COPY_DONE)));
    }
    return 0;
}
