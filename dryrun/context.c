#include "base/units.h"
#include "dryrun/dryrun_internal.h"

#include <assert.h>
#include <string.h>

/* What one PyTorch process takes of a card outside its caching allocator: the CUDA context, kernels that
 * were loaded, cuBLAS and cuDNN handles; no communication library. MiB.
 *
 * measured: cudaMemGetInfo's used bytes less memory_reserved(), after a training step, with nothing else on
 * the card.
 * derived: from PyTorch's own out-of-memory messages, "this process has P memory in use. Of the allocated
 * memory A is allocated by PyTorch, and U is reserved by PyTorch but unallocated": P - A - U. The figures are
 * printed with two decimals, in GiB where large, so the result is known to 10 MiB (two such figures) or
 * 15 MiB (three); least and most are the ends. On a T4 the same sum gives 141 +- 10 MiB (GenerateU#10)
 * where 140.875 MiB were measured. */
static const struct {
    const char     *card;
    double          least_mib, most_mib;
    vp_figure_class class_;
    const char     *source;
} contexts[] = {
    {"t4-16gb", 140.875, 140.875, VP_CLASS_MEASURED,
     "Anassbzdd/fitcheck, torch 2.10 and 2.14: 104.875 MiB at start"},
    {"a100-pcie-40gb", 488, 511, VP_CLASS_DERIVED, "CoSeR#10, pico-train#50"},
    {"a100-sxm-40gb", 488, 511, VP_CLASS_DERIVED, "CoSeR#10, pico-train#50"},
    {"a100-pcie-80gb", 493, 527, VP_CLASS_DERIVED, "Control-GIC#6, Keye#11"},
    {"a100-sxm-80gb", 493, 527, VP_CLASS_DERIVED, "Control-GIC#6, Keye#11"},
    {"rtx-4090-24gb", 493, 514, VP_CLASS_DERIVED, "Phidias-Diffusion#8"},
    {"rtx-5090-32gb", 584, 606, VP_CLASS_DERIVED, "Wan2.1#465"},
    {"rtx-6000-ada-48gb", 418, 440, VP_CLASS_DERIVED, "MTVCrafter#21"},
    {"l40-48gb", 496, 517, VP_CLASS_DERIVED, "Qwen3-VL#2097"},
    {"l4-24gb", 220, 251, VP_CLASS_DERIVED, "evo2#190"},
    {"rtx-a4000-16gb", 199, 221, VP_CLASS_DERIVED, "VGGT-Long#6"},
};

enum { N_CONTEXTS = sizeof contexts / sizeof *contexts };

static int64_t mib(double n)
{
    return (int64_t)(n * (double)VP_MIB);
}

vp_dryrun_context vp_dryrun_context_of(const vp_device *device)
{
    const vp_figure_source *said = &device->sources[VP_FIGURE_OUTSIDE];
    vp_dryrun_context       out  = {.least_bytes = device->outside_bytes,
                                    .bytes       = device->outside_bytes,
                                    .class_      = said->class_,
                                    .source      = said->text};

    if (said->class_ != VP_CLASS_ASSUMED)
        return out; /* a device file or a profile knows this very card */
    for (int i = 0; i < N_CONTEXTS; i++) {
        assert(contexts[i].least_mib > 0 && contexts[i].least_mib <= contexts[i].most_mib);
        if (strcmp(contexts[i].card, device->name) == 0)
            return (vp_dryrun_context){.least_bytes = mib(contexts[i].least_mib),
                                       .bytes       = mib(contexts[i].most_mib),
                                       .class_      = contexts[i].class_,
                                       .source      = contexts[i].source};
    }
    for (int i = 0; i < N_CONTEXTS; i++)
        if (mib(contexts[i].least_mib) < out.least_bytes)
            out.least_bytes = mib(contexts[i].least_mib);
    assert(out.least_bytes <= out.bytes);
    return out;
}
