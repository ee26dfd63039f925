#include "cli/device_here.h"

#include "core/text.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* nvml.h: 0 is NVML_SUCCESS everywhere. */
typedef struct memory_info {
    unsigned long long total, free, used;
} memory_info;

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_index)(unsigned, void **);
    int (*name)(void *, char *, unsigned);
    int (*memory)(void *, memory_info *);
} nvml;

static bool nvml_open(nvml *n)
{
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return false;
    n->init     = (int (*)(void))dlsym(n->library, "nvmlInit_v2");
    n->shutdown = (int (*)(void))dlsym(n->library, "nvmlShutdown");
    n->by_index = (int (*)(unsigned, void **))dlsym(n->library, "nvmlDeviceGetHandleByIndex_v2");
    n->name     = (int (*)(void *, char *, unsigned))dlsym(n->library, "nvmlDeviceGetName");
    n->memory   = (int (*)(void *, memory_info *))dlsym(n->library, "nvmlDeviceGetMemoryInfo");
    return n->init && n->shutdown && n->by_index && n->name && n->memory;
}

/* The index CUDA_VISIBLE_DEVICES begins with; 0 when it is not set; -1 when it hides all, or names a card in
 * another way (a UUID), which we do not follow. */
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
    nvml        n = {0};
    memory_info memory = {0};
    void       *card = NULL;
    long        idx = visible_index();
    char        product[96] = "", shown[128];
    bool        started = false;
    vp_status   st = VP_OK;

    *found = false;
    if (idx < 0 || !nvml_open(&n) || n.init() != 0)
        goto out;
    started = true;
    if (n.by_index((unsigned)idx, &card) != 0 || n.name(card, product, sizeof product) != 0 ||
        n.memory(card, &memory) != 0)
        goto out;
    product[sizeof product - 1] = '\0';
    if (!known_product(product, device))
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "the GPU here, %s, is not in our table: say --device NAME|FILE",
                       vp_text_escape(product, shown, sizeof shown)));
    *free_bytes = (int64_t)(memory.free < (unsigned long long)device->usable_bytes
                                ? memory.free : (unsigned long long)device->usable_bytes);
    *found = true;
out:
    if (started)
        n.shutdown();
    if (n.library)
        dlclose(n.library);
    return st;
}
