/* models/devices.h: what a device offers: usable bytes rather than the marketing figure, and rates for plans made
 * without a measured profile.
 *     VP_TRY(vp_device_open("h200", &device, err));     // name, alias, "cpu", or a path to a JSON file */
#ifndef VP_MODELS_DEVICES_H
#define VP_MODELS_DEVICES_H

#include "core/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct vp_device {
    char    name[64];              /* "h200-sxm-141gb" */
    char    alias[32];             /* "h200"; "" if none */
    char    product[64];           /* what the driver calls it */
    bool    is_cpu;
    int64_t usable_bytes;          /* what a process can allocate; cpu: 80 % of what is available now */
    int64_t outside_bytes;         /* context and libraries on the device, outside any arena */
    double  fp32_flop_per_s;
    double  memory_bytes_per_s;
    int     compute_capability;    /* 90 for sm_90; 0: not a CUDA device */
    int     multiprocessors;
    char    source[200];           /* of the figures */
} vp_device;

/* A device of the table, or NULL past the end. "cpu" is not in it. */
const vp_device *vp_device_at(int idx);

/* By name or alias; "cpu": this machine; else a path to a device file:
 *     {"schema_version": 1, "name": "...", "usable_bytes": N, "outside_bytes": N, "fp32_flop_per_s": X,
 *      "memory_bytes_per_s": X, "compute_capability": 90, "multiprocessors": 132}
 * VP_ERR_USAGE when it is none of them, VP_ERR_INPUT for what the file says. */
vp_status vp_device_open(const char *name, vp_device *out, vp_err *err);

#endif
