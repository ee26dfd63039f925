#include "runtime/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* name beside the program, in buf. */
static vp_status path_of(const char *name, char *buf, size_t buf_size, vp_err *err)
{
    char    program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char   *slash;

    if (strchr(name, '/')) {
        snprintf(buf, buf_size, "%s", name);
        return VP_OK;
    }
    program[n < 0 ? 0 : n] = '\0';
    slash = strrchr(program, '/');
    if (!slash)
        return VP_FAIL(err, VP_ERR_DEVICE, "%s: /proc/self/exe does not say where this program lies", name);
    slash[1] = '\0';
    if (snprintf(buf, buf_size, "%s%s", program, name) >= (int)buf_size)
        return VP_FAIL(err, VP_ERR_DEVICE, "%s: the path is too long", name);
    return VP_OK;
}

vp_status vp_backend_plugin(const char *name, const vp_backend **out, vp_err *err)
{
    char               path[8192];
    void              *library = NULL;
    vp_backend_open_fn open_backend;
    vp_status          st = VP_OK;

    *out = NULL;
    VP_TRY(path_of(name, path, sizeof path, err));
    if (access(path, F_OK) != 0 && !strchr(name, '/'))
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s is not beside vplan-run: built without the CUDA toolkit, or not installed", name));
    if (access(path, F_OK) != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s is not there", path));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s cannot be loaded: %s", path, dlerror()));
    open_backend = (vp_backend_open_fn)dlsym(library, "vp_backend_open");
    if (!open_backend)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s is not a backend of vplan: it has no vp_backend_open", path));
    VP_TRY(open_backend(VP_BACKEND_API, out, err));
    library = NULL; /* open until the process ends */
out:
    if (library)
        dlclose(library);
    return st;
}
