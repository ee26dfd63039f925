#include "doctor/wordings_internal.h"

#include <stddef.h>

/* Shapes that no row of the other tables knows: whose memory it was is said by the words around. */
const vp_wording vp_wordings_any[] = {
    {.anchor    = "out of memory",
     .class_    = VP_OOM_CLASS_HOST_ALLOC,
     .any_class = true,
     .goes_on   = true},
    {.anchor = "out_of_memory", .class_ = VP_OOM_CLASS_HOST_ALLOC, .any_class = true},
    {.anchor = "outofmemory", .class_ = VP_OOM_CLASS_HOST_ALLOC, .any_class = true},
    {.anchor = "out of device memory", .class_ = VP_OOM_CLASS_DEVICE_SHORTAGE, .any_class = true},
    {.anchor    = "resource_exhausted",
     .with      = "memory|alloc|hbm",
     .framework = "jax/xla",
     .class_    = VP_OOM_CLASS_DEVICE_SHORTAGE,
     .any_class = true},
    {.anchor = "memory exhausted", .class_ = VP_OOM_CLASS_HOST_ALLOC, .any_class = true},
    {.anchor = "not enough memory", .class_ = VP_OOM_CLASS_HOST_ALLOC, .any_class = true},
    {.anchor = "insufficient memory", .class_ = VP_OOM_CLASS_HOST_ALLOC, .any_class = true},
    {.anchor    = "insufficient gpu memory",
     .class_    = VP_OOM_CLASS_DEVICE_SHORTAGE,
     .any_class = true},
    {.anchor = "not enough gpu memory", .class_ = VP_OOM_CLASS_DEVICE_SHORTAGE, .any_class = true},
    {.anchor    = "not enough gpu video memory",
     .class_    = VP_OOM_CLASS_DEVICE_SHORTAGE,
     .any_class = true},
    {.anchor    = "ran out of",
     .with      = "memory",
     .class_    = VP_OOM_CLASS_HOST_ALLOC,
     .any_class = true},
    {.anchor = "memory allocation failed", .class_ = VP_OOM_CLASS_HOST_ALLOC, .any_class = true},
    {.anchor = "memory allocation error", .class_ = VP_OOM_CLASS_HOST_ALLOC, .any_class = true},
    {.anchor    = "failed to allocate",
     .with      = "memory|bytes|byte|kb|mb|gb|kib|mib|gib|buffer",
     .class_    = VP_OOM_CLASS_HOST_ALLOC,
     .any_class = true},
    {.anchor    = "unable to allocate",
     .with      = "memory|bytes|byte|kb|mb|gb|kib|mib|gib|buffer",
     .class_    = VP_OOM_CLASS_HOST_ALLOC,
     .any_class = true},
    {.anchor    = "cannot allocate",
     .with      = "memory|bytes|byte|kb|mb|gb|kib|mib|gib|buffer",
     .class_    = VP_OOM_CLASS_HOST_ALLOC,
     .any_class = true},
    {.anchor    = "can't allocate",
     .with      = "memory|bytes|byte|kb|mb|gb|kib|mib|gib|buffer",
     .class_    = VP_OOM_CLASS_HOST_ALLOC,
     .any_class = true},
    {.anchor    = "could not allocate",
     .with      = "memory|bytes|byte|kb|mb|gb|kib|mib|gib|buffer",
     .class_    = VP_OOM_CLASS_HOST_ALLOC,
     .any_class = true},
    {.anchor    = "couldn't allocate",
     .with      = "memory|bytes|byte|kb|mb|gb|kib|mib|gib|buffer",
     .class_    = VP_OOM_CLASS_HOST_ALLOC,
     .any_class = true},
    {0},
};

const vp_wording *vp_wording_at(int i)
{
    static const vp_wording *const tables[] = {vp_wordings_device, vp_wordings_host,
                                               vp_wordings_not_oom, vp_wordings_any};

    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const vp_wording *w = tables[t]; w->anchor; w++)
            if (i-- == 0)
                return w;
    return NULL;
}

const vp_dated_fragment *vp_dated_fragment_at(int i)
{
    /* by PyTorch's sources of these versions (c10/cuda/CUDACachingAllocator.cpp) */
    static const vp_dated_fragment fragments[] = {
        {"cached)", "pytorch", "1.0", "1.3"},
        {"reserved in total by pytorch", "pytorch", "1.4", "2.0"},
        {"if reserved memory is >>", "pytorch", "1.10", "2.0"},
        {"has a total capacty of", "pytorch", "2.1", "2.1"},
        {"has a total capacity of", "pytorch", "2.2", NULL},
        {"try setting max_split_size_mb", "pytorch", "1.10", "2.1"},
        {"allocated in private pools", "pytorch", "2.4", NULL},
        {"torch.cuda.outofmemoryerror", "pytorch", "1.13", "2.4"},
        {"torch.outofmemoryerror", "pytorch", "2.5", NULL},
        {"torch.acceleratorerror", "pytorch", "2.8", NULL},
        {"try setting pytorch_alloc_conf", "pytorch", "2.9", NULL},
    };

    return i < (int)(sizeof fragments / sizeof *fragments) ? &fragments[i] : NULL;
}
