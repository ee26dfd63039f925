/* A device file: what is accepted has sane figures, and prices every kernel. */
#include "fuzz.h"

#include "models/devices.h"
#include "planner/cost.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vp_device device;
    vp_err    err = {0};
    vp_status st  = vp_device_open(fuzz_file(data, size), &device, &err);
    vp_cost   cost = {.device = &device};

    if (st != VP_OK) {
        fuzz_check_refusal(st, &err);
        return 0;
    }
    fuzz_n_accepted++;
    MUST(!device.is_cpu && device.usable_bytes > 0 && device.outside_bytes >= 0 && device.outside_bytes <= device.usable_bytes);
    MUST(strlen(device.name) < sizeof device.name && strlen(device.source) < sizeof device.source);
    for (const char *c = device.name; *c; c++)
        MUST((unsigned char)*c >= 0x20 && *c != 0x7f);
    for (int k = 0; k < VP_N_KERNELS; k++) {
        int64_t ints[VP_MAX_INTS];
        for (int i = 0; i < VP_MAX_INTS; i++)
            ints[i] = 1 + i % 2;
        double s = vp_cost_seconds(&cost, (vp_kernel)k, ints);
        MUST(isfinite(s) && s > 0);
    }
    return 0;
}
