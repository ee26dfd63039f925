#include "models/devices.h"

#include "core/json.h"
#include "core/text.h"
#include "core/units.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Usable bytes: the total PyTorch prints in its out-of-memory message for the card ("GPU 0 has a total capacity of
 * 79.10 GiB"), which is what the driver reports. Rates: the vendor's datasheet. Outside bytes: context and kernels with
 * lazy loading, 287,047,680 B (pytorch#86509) to 426 MiB (unsloth-zoo#1053), rounded up: an assumption until measured. */
#define GIB(x) ((int64_t)((x) * 1073741824.0))
#define OUTSIDE (512 * VP_MIB)

static const vp_device table[] = {
    {"h200-sxm-141gb", "h200", "NVIDIA H200", false, GIB(139.80), OUTSIDE, 67e12, 4.8e12, 90, 132,
     "usable: 143,771 MiB by nvidia-smi less the driver's reserve; rates: NVIDIA H200 datasheet"},
    {"h100-sxm-80gb", "h100", "NVIDIA H100 80GB HBM3", false, GIB(79.10), OUTSIDE, 67e12, 3.35e12, 90, 132,
     "usable: trl#3342; rates: NVIDIA H100 datasheet"},
    {"a100-sxm-80gb", "a100", "NVIDIA A100-SXM4-80GB", false, GIB(79.15), OUTSIDE, 19.5e12, 2.039e12, 80, 108,
     "usable: as PyTorch's out-of-memory message shows it, not cited; rates: NVIDIA A100 datasheet"},
    {"a100-sxm-40gb", "", "NVIDIA A100-SXM4-40GB", false, GIB(39.39), OUTSIDE, 19.5e12, 1.555e12, 80, 108,
     "usable: as PyTorch's out-of-memory message shows it, not cited; rates: NVIDIA A100 datasheet"},
    {"rtx-4090-24gb", "4090", "NVIDIA GeForce RTX 4090", false, 24080 * VP_MIB, OUTSIDE, 82.6e12, 1.008e12, 89, 128,
     "usable: 24,080 MiB as LLM.Q's logs print it; rates: NVIDIA Ada whitepaper"},
    {"rtx-3090-24gb", "3090", "NVIDIA GeForce RTX 3090", false, GIB(23.69), OUTSIDE, 35.6e12, 0.936e12, 86, 82,
     "usable: as PyTorch's out-of-memory message shows it, not cited; rates: NVIDIA Ampere GA102 whitepaper"},
    {"l4-24gb", "l4", "NVIDIA L4", false, GIB(22.03), OUTSIDE, 30.3e12, 0.300e12, 89, 58,
     "usable: as PyTorch's out-of-memory message shows it, not cited; rates: NVIDIA L4 datasheet"},
    {"a10g-24gb", "a10g", "NVIDIA A10G", false, GIB(22.06), OUTSIDE, 31.2e12, 0.600e12, 86, 80,
     "usable: as PyTorch's out-of-memory message shows it, not cited; rates: NVIDIA A10 datasheet"},
    {"t4-16gb", "t4", "Tesla T4", false, GIB(14.75), OUTSIDE, 8.1e12, 0.320e12, 75, 40,
     "usable: unsloth#465; rates: NVIDIA T4 datasheet"},
};

const vp_device *vp_device_at(int idx)
{
    return idx >= 0 && idx < (int)(sizeof table / sizeof *table) ? &table[idx] : NULL;
}

/* MemAvailable of /proc/meminfo, in bytes; 0 where there is none. */
static int64_t available_host_bytes(void)
{
    FILE     *f = fopen("/proc/meminfo", "r");
    char      line[200];
    long long kib = 0;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (int64_t)kib * 1024;
}

/* Rates are round figures for one server core with AVX2; a profile replaces them. */
static void describe_cpu(vp_device *out)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    *out = (vp_device){.name = "cpu", .product = "CPU", .is_cpu = true, .usable_bytes = available_host_bytes() / 10 * 8,
                       .fp32_flop_per_s = 50e9 * (double)(cores > 0 ? cores : 1), .memory_bytes_per_s = 10e9,
                       .source = "usable: 80 % of MemAvailable; rates: assumed, 50 GFLOP/s a core and 10 GB/s"};
}

static vp_status read_device_file(const char *path, vp_device *out, vp_err *err)
{
    static const char *const keys[] = {"schema_version", "name", "usable_bytes", "outside_bytes", "fp32_flop_per_s",
                                       "memory_bytes_per_s", "compute_capability", "multiprocessors", NULL};
    vp_json_doc *doc = NULL;
    const char  *name;
    int64_t      version, capability = 0, multiprocessors = 0;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_read(path, VP_JSON_MAX_BYTES, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_only_keys(&root, keys, err));
    VP_TRY(vp_json_int(&root, "schema_version", 1, 1, &version, err));
    VP_TRY(vp_json_string(&root, "name", &name, err));
    vp_text_escape(name, out->name, sizeof out->name);
    VP_TRY(vp_json_int(&root, "usable_bytes", 1, (int64_t)1 << 50, &out->usable_bytes, err));
    if (vp_json_has(&root, "outside_bytes"))
        VP_TRY(vp_json_int(&root, "outside_bytes", 0, out->usable_bytes, &out->outside_bytes, err));
    VP_TRY(vp_json_real(&root, "fp32_flop_per_s", 1, 1e18, &out->fp32_flop_per_s, err));
    VP_TRY(vp_json_real(&root, "memory_bytes_per_s", 1, 1e18, &out->memory_bytes_per_s, err));
    if (vp_json_has(&root, "compute_capability"))
        VP_TRY(vp_json_int(&root, "compute_capability", 0, 999, &capability, err));
    if (vp_json_has(&root, "multiprocessors"))
        VP_TRY(vp_json_int(&root, "multiprocessors", 0, 100000, &multiprocessors, err));
    out->compute_capability = (int)capability;
    out->multiprocessors    = (int)multiprocessors;
    snprintf(out->source, sizeof out->source, "the file given");
out:
    vp_json_doc_free(doc);
    return st;
}

vp_status vp_device_open(const char *name, vp_device *out, vp_err *err)
{
    struct stat info;
    char        shown[128];

    *out = (vp_device){0};
    if (strcmp(name, "cpu") == 0) {
        describe_cpu(out);
        return VP_OK;
    }
    for (int i = 0; vp_device_at(i); i++)
        if (strcmp(table[i].name, name) == 0 || (table[i].alias[0] && strcmp(table[i].alias, name) == 0)) {
            *out = table[i];
            return VP_OK;
        }
    if (strcmp(name, "-") == 0 || stat(name, &info) == 0)
        return read_device_file(name, out, err);
    return VP_FAIL(err, VP_ERR_USAGE, "--device %s: no such device; see vplan devices, or give a device file",
                   vp_text_escape(name, shown, sizeof shown));
}
