#include "kernels/cuda/cudnn_api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Function pointers from dlsym by way of memcpy: ISO C has no conversion from an object pointer. */
static bool find(vp_cudnn_api *api, const char *name, void *function)
{
    void *p = dlsym(api->library, name);

    memcpy(function, &p, sizeof p);
    return p != NULL;
}

vp_status vp_cudnn_api_open(vp_cudnn_api *out, vp_err *err)
{
    const char  *path = getenv("VPLAN_CUDNN"), *why;
    vp_status    st   = VP_OK;
    vp_cudnn_api api  = {0};
    size_t       i    = 0;
    const struct {
        const char *name;
        void       *function;
    } wanted[] = {
        {"cudnnGetVersion", &api.version},
        {"cudnnGetErrorString", &api.status_text},
        {"cudnnGetLastErrorString", &api.last_error},
        {"cudnnCreate", &api.handle_create},
        {"cudnnDestroy", &api.handle_destroy},
        {"cudnnSetStream", &api.set_stream},
        {"cudnnBackendCreateDescriptor", &api.create},
        {"cudnnBackendDestroyDescriptor", &api.destroy},
        {"cudnnBackendFinalize", &api.finalize},
        {"cudnnBackendSetAttribute", &api.set},
        {"cudnnBackendGetAttribute", &api.get},
        {"cudnnBackendExecute", &api.execute},
    };

    *out = (vp_cudnn_api){0};
    if (!path || !*path)
        path = "libcudnn.so.9";
    api.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!api.library) {
        why = dlerror();
        st  = VP_FAIL(err, VP_ERR_DEVICE,
                      "cuDNN 9 cannot be opened: %s; VPLAN_CUDNN can name its libcudnn.so.9",
                     why ? why : path);
        goto out;
    }
    while (i < sizeof wanted / sizeof wanted[0] && find(&api, wanted[i].name, wanted[i].function))
        i++;
    if (i < sizeof wanted / sizeof wanted[0]) {
        st = VP_FAIL(err, VP_ERR_DEVICE, "%s has no function %s", path, wanted[i].name);
        goto out;
    }
    if (api.version() < VP_CUDNN_OLDEST) {
        st = VP_FAIL(
            err, VP_ERR_DEVICE,
            "cuDNN %zu.%zu.%zu is older than 9.19, the first whose attention is known to repeat its bits",
            api.version() / 10000, api.version() / 100 % 100, api.version() % 100);
        goto out;
    }
    *out        = api;
    api.library = NULL;
out:
    vp_cudnn_api_close(&api);
    return st;
}

void vp_cudnn_api_close(vp_cudnn_api *api)
{
    if (api->library)
        dlclose(api->library);
    *api = (vp_cudnn_api){0};
}

const char *vp_cudnn_last_error(const vp_cudnn_api *api, char *text, size_t size)
{
    text[0] = '\0';
    api->last_error(text, size);
    text[size - 1] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return text;
}

vp_status vp_cudnn_check(const vp_cudnn_api *api, int status, const char *what, vp_err *err)
{
    char said[600];

    if (status == VP_CUDNN_STATUS_SUCCESS)
        return VP_OK;
    vp_cudnn_last_error(api, said, sizeof said);
    return VP_FAIL(err, VP_ERR_DEVICE, "cuDNN: %s: %s%s%s", what, api->status_text(status),
                   *said ? ": " : "", said);
}
