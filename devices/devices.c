#include "devices/devices.h"

#include "base/checked.h"
#include "base/host_memory.h"
#include "base/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rates are round figures for one server core with AVX2; a profile replaces them. */
static void describe_cpu(vp_device *out)
{
    long           cores  = sysconf(_SC_NPROCESSORS_ONLN);
    vp_host_memory memory = vp_host_memory_now();

    *out = (vp_device){
        .name               = "cpu",
        .product            = "CPU",
        .is_cpu             = true,
        .bf16               = true,
        .usable_bytes       = memory.available_bytes / 10 * 8,
        .fp32_flop_per_s    = 50e9 * (double)(cores > 0 ? cores : 1),
        .memory_bytes_per_s = 10e9,
        .sources            = {
                       [VP_FIGURE_USABLE] = {VP_CLASS_DERIVED, ""},
                       [VP_FIGURE_OUTSIDE] =
                           {VP_CLASS_DERIVED,
                            "the arena is of the process; the whole process is predicted apart"},
                       [VP_FIGURE_FP32] = {VP_CLASS_ASSUMED, "50 GFLOP/s a core, until a profile is measured"},
                       [VP_FIGURE_MEMORY] = {VP_CLASS_ASSUMED, "10 GB/s, until a profile is measured"}}};
    snprintf(out->sources[VP_FIGURE_USABLE].text, sizeof out->sources[VP_FIGURE_USABLE].text,
             "80 %% of %s", memory.source);
}

/* Whether text is the start of a card's name up to a dash, "rtx-" left out or not: "a100" of
 * "a100-sxm-80gb". */
static bool begins_name(const char *name, const char *text)
{
    size_t n = strlen(text);

    if (n == 0)
        return false;
    if (strncmp(name, text, n) == 0 && name[n] == '-')
        return true;
    return strncmp(name, "rtx-", 4) == 0 && strncmp(name + 4, text, n) == 0 && name[4 + n] == '-';
}

vp_status vp_device_open(const char *name, vp_device *out, vp_err *err)
{
    struct stat info;
    char        shown[128];
    vp_device   card;
    vp_text     candidates   = {0};
    int         n_candidates = 0;
    vp_status   st           = VP_OK;

    *out = (vp_device){0};
    if (strcmp(name, "cpu") == 0) {
        describe_cpu(out);
        return VP_OK;
    }
    for (int i = 0; vp_device_at(i, &card); i++) {
        if (strcmp(card.name, name) == 0 || (card.alias[0] && strcmp(card.alias, name) == 0)) {
            *out = card;
            goto out;
        }
        if (begins_name(card.name, name)) {
            *out = card;
            vp_text_printf(&candidates, "%s%s", n_candidates++ ? ", " : "", card.name);
        }
    }
    if (n_candidates == 1)
        goto out;
    *out = (vp_device){0};
    vp_text_escape(name, shown, sizeof shown);
    if (candidates.failed)
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    else if (n_candidates > 1)
        st = VP_FAIL(err, VP_ERR_USAGE, "--device %s means several cards: %s", shown,
                     candidates.data);
    else if (strcmp(name, "-") == 0 || stat(name, &info) == 0)
        st = vp_device_read(name, out, err);
    else
        st =
            VP_FAIL(err, VP_ERR_USAGE,
                    "--device %s: no such device; see vplan devices, or give a device file", shown);
out:
    vp_text_release(&candidates);
    return st;
}

int64_t vp_device_bytes(const vp_device *d, int64_t arena_bytes)
{
    assert(d->granule_bytes >= 0 && d->outside_bytes >= 0);
    return vp_add(d->granule_bytes ? vp_round_up(arena_bytes, d->granule_bytes) : arena_bytes,
                  d->outside_bytes);
}

int64_t vp_device_arena_bytes(const vp_device *d, int64_t budget_bytes)
{
    assert(d->granule_bytes >= 0 && d->outside_bytes >= 0);
    int64_t left_bytes = budget_bytes - d->outside_bytes;

    return d->granule_bytes && left_bytes > 0 ? left_bytes - left_bytes % d->granule_bytes
                                              : left_bytes;
}

static bool is_called(const vp_device *d, const char *name)
{
    return strcmp(name, d->product) == 0 || strcmp(name, d->name) == 0;
}

/* One memory has no link to cross. The CPU's two parts of it have: the threads that copy. */
static void calibrate_link(vp_device *d, const vp_profile *profile)
{
    double            least  = vp_link_rates_least(&profile->link);
    vp_figure_source *source = &d->sources[VP_FIGURE_HOST_LINK];

    if (d->unified || least <= 0 || !is_called(d, profile->link.device))
        return;
    d->host_link_bytes_per_s   = least;
    d->kernels_lost_s_per_byte = profile->link.kernels_lost_s_per_byte;
    source->class_             = VP_CLASS_MEASURED;
    snprintf(source->text, sizeof source->text, "%s", profile->backend);
}

bool vp_device_calibrate(vp_device *d, const vp_profile *profile)
{
    const vp_overhead *o      = &profile->outside;
    vp_figure_source  *source = &d->sources[VP_FIGURE_OUTSIDE];

    calibrate_link(d, profile);
    if (!d->is_cpu && !d->unified && profile->host_update_bytes_per_s > 0) {
        vp_figure_source *host     = &d->sources[VP_FIGURE_HOST_UPDATE];
        d->host_update_bytes_per_s = profile->host_update_bytes_per_s;
        host->class_               = VP_CLASS_MEASURED;
        snprintf(host->text, sizeof host->text, "%s", profile->backend);
    }
    if (d->is_cpu || o->measured_by == VP_OVERHEAD_NOT_MEASURED || !is_called(d, o->device))
        return false;
    assert(o->bytes >= 0);
    d->outside_bytes = o->bytes;
    d->granule_bytes = VP_DEVICE_GRANULE_BYTES;
    source->class_   = VP_CLASS_MEASURED;
    snprintf(source->text, sizeof source->text, "%s", profile->backend);
    return true;
}

double vp_device_flop_per_s(const vp_device *device, vp_device_rate rate)
{
    double own = rate == VP_RATE_FP32   ? device->fp32_flop_per_s
                 : rate == VP_RATE_TF32 ? device->tf32_flop_per_s
                 : rate == VP_RATE_BF16 ? device->bf16_flop_per_s
                 : rate == VP_RATE_FP16 ? device->fp16_flop_per_s
                 : rate == VP_RATE_FP8  ? device->fp8_flop_per_s
                                        : device->int8_op_per_s;

    if (own > 0 || rate == VP_RATE_FP32)
        return own;
    /* bf16 and the rest stand on fp32, which every device has: this ends */
    return vp_device_flop_per_s(device, rate >= VP_RATE_FP8 ? VP_RATE_BF16 : VP_RATE_FP32);
}

static vp_status lacks(const vp_device *d, const char *what, int least, const char *first_cards,
                       vp_err *err)
{
    if (d->is_cpu)
        return VP_FAIL(err, VP_ERR_INPUT, "cpu: the CPU backend has no %s", what);
    if (d->compute_capability == 0)
        return VP_FAIL(err, VP_ERR_INPUT, "%s: its description says nothing of %s (\"%s\": true)",
                       d->name, what, what);
    return VP_FAIL(
        err, VP_ERR_INPUT,
        "%s has no %s tensor cores: its compute capability is %d.%d, and they begin with %d.%d (%s)",
        d->name, what, d->compute_capability / 10, d->compute_capability % 10, least / 10,
        least % 10, first_cards);
}

bool vp_device_has_fp16(const vp_device *d)
{
    return d->is_cpu || d->compute_capability >= 70 ||
           (d->compute_capability == 0 && (d->fp16_flop_per_s > 0 || d->bf16));
}

bool vp_device_has_tf32(const vp_device *d)
{
    return !d->is_cpu && d->compute_capability >= VP_TF32_CAPABILITY;
}

int vp_precision_needs(vp_precision precision)
{
    switch (vp_precision_compute(precision)) {
    case VP_DTYPE_BF16:
        return VP_NEEDS_BACKEND | VP_NEEDS_BF16;
    case VP_DTYPE_F16:
        return VP_NEEDS_BACKEND | VP_NEEDS_FP16;
    case VP_DTYPE_TF32:
        return VP_NEEDS_BACKEND | VP_NEEDS_TF32;
    default:
        return VP_NEEDS_BACKEND;
    }
}

vp_status vp_device_supports(const vp_device *device, int needs, vp_err *err)
{
    int capability = device->compute_capability;

    if ((needs & VP_NEEDS_BACKEND) && !device->is_cpu && capability > 0 && capability < 75)
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "%s has compute capability %d.%d: vplan's own runtime is built with CUDA 13, which begins with 7.5 (Turing: T4, RTX 20)",
            device->name, capability / 10, capability % 10);
    if ((needs & VP_NEEDS_FP16) && !vp_device_has_fp16(device))
        return lacks(device, "fp16", 70, "Volta: V100", err);
    if ((needs & VP_NEEDS_BF16) && !device->bf16 && !device->is_cpu)
        return lacks(device, "bf16", 80, "Ampere: A100, RTX 30", err);
    if ((needs & VP_NEEDS_TF32) && !device->is_cpu && capability == 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "%s: its description has no compute_capability, and tf32 needs 8.0",
                       device->name);
    if ((needs & VP_NEEDS_TF32) && !vp_device_has_tf32(device))
        return lacks(device, "tf32", VP_TF32_CAPABILITY, "Ampere: A100, RTX 30", err);
    if ((needs & VP_NEEDS_FP8) && !device->fp8)
        return lacks(device, "fp8", 89, "Ada: L4, RTX 40", err);
    return VP_OK;
}
