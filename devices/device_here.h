/* devices/device_here.h: the GPU of this machine, asked through its driver's NVML library and not
 * otherwise touched.
 *     VP_TRY(vp_device_here(&device, &free_bytes, &found, err)); */
#ifndef VP_DEVICES_DEVICE_HERE_H
#define VP_DEVICES_DEVICE_HERE_H

#include "base/err.h"
#include "devices/devices.h"

#include <stdbool.h>

/* The first card that CUDA_VISIBLE_DEVICES leaves, as our table knows it, and what is free on it
 * now. *found is false where there is no NVML or no card. VP_ERR_DEVICE: there is one, and the
 * table does not have it. */
vp_status vp_device_here(vp_device *device, int64_t *free_bytes, bool *found, vp_err *err);

#endif
