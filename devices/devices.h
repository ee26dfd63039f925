/* devices/devices.h: what a device offers: usable bytes rather than the marketing figure, rates by
 * precision and links, for plans made without a measured profile. Each figure says its class and,
 * in words, its source.
 *     VP_TRY(vp_device_open("h200", &device, err));     // name, alias, "cpu", or a path to a JSON
 *     file
 *     VP_TRY(vp_device_supports(&device, VP_NEEDS_BF16, err));
 *     seconds = flop / vp_device_flop_per_s(&device, VP_RATE_BF16); */
#ifndef VP_DEVICES_DEVICES_H
#define VP_DEVICES_DEVICES_H

#include "base/err.h"
#include "plan/profile.h"
#include "plan/recipe.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* X(name, key in JSON, meaning). */
#define VP_DEVICE_FIGURES(X) \
    X(USABLE, "usable_bytes", "usable") \
    X(OUTSIDE, "outside_bytes", "outside any arena") \
    X(MEMORY, "memory_bytes_per_s", "device memory") \
    X(FP32, "fp32_flop_per_s", "fp32") \
    X(TF32, "tf32_flop_per_s", "tf32") \
    X(BF16, "bf16_flop_per_s", "bf16") \
    X(FP16, "fp16_flop_per_s", "fp16") \
    X(FP8, "fp8_flop_per_s", "fp8") \
    X(INT8, "int8_op_per_s", "int8") \
    X(HOST_LINK, "host_link_bytes_per_s", "link to the host") \
    X(PEER_LINK, "peer_link_bytes_per_s", "link to other GPUs") \
    X(HOST_UPDATE, "host_update_bytes_per_s", "updates by host") \
    X(CAPABILITY, "compute_capability", "compute capability") \
    X(MULTIPROCESSORS, "multiprocessors", "multiprocessors") \
    X(CACHE, "l2_bytes", "second-level cache")

typedef enum vp_device_figure {
#define X(name, key, text) VP_FIGURE_##name,
    VP_DEVICE_FIGURES(X)
#undef X
        VP_N_FIGURES
} vp_device_figure;

typedef enum vp_figure_class {
    VP_CLASS_ASSUMED, /* nobody says so: a guess, with its reason       */
    VP_CLASS_DERIVED, /* by a stated rule from a cited figure           */
    VP_CLASS_CITED,   /* as the source says                             */
    VP_CLASS_MEASURED /* on the device itself; in a device file or by a profile */
} vp_figure_class;

typedef struct vp_figure_source {
    vp_figure_class class_;
    char            text[232]; /* "" for a figure that the device has not */
} vp_figure_source;

typedef struct vp_device {
    char name[64];    /* "h200-sxm-141gb" */
    char alias[32];   /* "h200"; "" if none */
    char product[64]; /* what the driver calls it */
    bool is_cpu;
    /* what a process can allocate; cpu: 80 % of what is available now */
    int64_t usable_bytes;
    int64_t outside_bytes; /* context and libraries on the device, outside any arena */
    /* an arena takes whole pieces of this; 0: what that adds is among outside_bytes */
    int64_t granule_bytes;
    double  memory_bytes_per_s;
    /* no tensor cores: what fp32 training does unless tf32 is asked for */
    double fp32_flop_per_s;
    /* this and below: dense, products summed in fp32; 0: the device has it not */
    double tf32_flop_per_s;
    double bf16_flop_per_s, fp16_flop_per_s, fp8_flop_per_s;
    double int8_op_per_s;
    double host_link_bytes_per_s; /* one way, as are peers'; 0: none, or not known */
    /* that kernels lose to each byte of a copy which their processors make; 0: others make it, or not known */
    double kernels_lost_s_per_byte;
    double peer_link_bytes_per_s; /* NVLink, all links together */
    /* what an update that the host makes reads and writes in its memory; 0: not known */
    double           host_update_bytes_per_s;
    int              compute_capability; /* 90 for sm_90; 0: not a CUDA device */
    int              multiprocessors;
    int64_t          l2_bytes;  /* second-level cache; 0: not known, and taken as none */
    bool             bf16, fp8; /* has tensor cores for them */
    bool             unified;   /* device and host share one memory */
    vp_figure_source sources[VP_N_FIGURES];
} vp_device;

/* Card idx of the table into *out; false past the end. "cpu" is not in it. */
bool vp_device_at(int idx, vp_device *out);

/* By name or alias; by what is clear from the start of a name ("h100-nvl"); "cpu": this machine;
 * else a path to a device file. VP_ERR_USAGE when it is none of them or means several cards,
 * which are listed; VP_ERR_INPUT for what the file says. */
vp_status vp_device_open(const char *name, vp_device *out, vp_err *err);

/* A device file, docs/device-file.md, from memory; name stands for it in messages. VP_ERR_INPUT,
 * located. */
vp_status vp_device_parse(const char *name, const char *bytes, int64_t n_bytes, vp_device *out,
                          vp_err *err);

/* The same, read from path; "-" is standard input. */
vp_status vp_device_read(const char *path, vp_device *out, vp_err *err);

/* A device as a device file holds it; NULL when memory ran out. The caller's. */
json_t *vp_device_json(const vp_device *device);

/* What an arena of these bytes takes of a budget: what lies outside it too. VP_OVERFLOW
 * (base/checked.h) beyond 64 bits. */
int64_t vp_device_bytes(const vp_device *device, int64_t arena_bytes);

/* The largest arena within a budget; negative: there is none. */
int64_t vp_device_arena_bytes(const vp_device *device, int64_t budget_bytes);

/* outside_bytes, and the link to the host at the least of its rates, as the profile measured them, where
 * it did and on this device: its product or its name. False: outside_bytes is as it was.
 * And what the profile measured of the host, which is no card's. */
bool vp_device_calibrate(vp_device *device, const vp_profile *profile);

typedef enum vp_device_rate {
    VP_RATE_FP32,
    VP_RATE_TF32,
    VP_RATE_BF16,
    VP_RATE_FP16,
    VP_RATE_FP8,
    VP_RATE_INT8
} vp_device_rate;

/* Peak rate of products of this precision. Where the device has none of its own, that of the
 * next wider it has, at last fp32: what a program does that converts. */
double vp_device_flop_per_s(const vp_device *device, vp_device_rate rate);

typedef enum vp_device_needs {
    VP_NEEDS_BF16 = 1,
    VP_NEEDS_FP8  = 2,
    VP_NEEDS_FP16 = 4,
    /* vplan's own CUDA backend: compute capability 7.5, the oldest that CUDA 13 builds for */
    VP_NEEDS_BACKEND = 8,
    VP_NEEDS_TF32    = 16
} vp_device_needs;

/* Whether vplan's own runtime can compute in fp16 there, and multiply in TF32. */
bool vp_device_has_fp16(const vp_device *device);
bool vp_device_has_tf32(const vp_device *device);

/* What vplan's own runtime needs for a recipe's precision. */
int vp_precision_needs(vp_precision precision);

/* VP_ERR_INPUT with the reason unless the device has all that needs (VP_NEEDS_... or-ed, 0:
 * nothing) asks for. The CPU backend has bf16 and fp16 on every processor, and no TF32. */
vp_status vp_device_supports(const vp_device *device, int needs, vp_err *err);

/* "cited". */
const char *vp_figure_class_name(vp_figure_class class_);

#endif
