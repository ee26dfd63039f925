#include "runtime/plugin.h"

#include "base/file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* name beside the program, in buf. */
static vp_status path_of(const char *name, char *buf, size_t buf_size, vp_err *err)
{
    char      folder[4096];
    vp_status st = VP_OK;

    if (strchr(name, '/')) {
        snprintf(buf, buf_size, "%s", name);
        return VP_OK;
    }
    VP_TRY(vp_file_own_folder(folder, sizeof folder, err));
    if (snprintf(buf, buf_size, "%s%s", folder, name) >= (int)buf_size)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s: the path is too long", name));
out:
    return st;
}

/* Where a CUDA toolkit keeps its libraries, below its own folder. */
static const char *const toolkit_folders[] = {"lib64", "lib", "targets/x86_64-linux/lib"};
enum { N_TOOLKIT_FOLDERS = sizeof toolkit_folders / sizeof *toolkit_folders, MAX_MISSING = 8 };

/* Opens a library of this soname from a toolkit; a plugin that needs it then finds it open. */
static bool open_from_toolkit(const char *home, const char *soname)
{
    char path[4096];

    for (int i = 0; home && *home && i < N_TOOLKIT_FOLDERS; i++)
        if (snprintf(path, sizeof path, "%s/%s/%s", home, toolkit_folders[i], soname) <
                (int)sizeof path &&
            dlopen(path, RTLD_NOW | RTLD_LOCAL))
            return true;
    return false;
}

/* A plugin holds no path of the machine that built it. Where the loader's own places lack one of its
 * libraries, a toolkit may have it: CUDA_HOME, else the usual one. glibc begins its sentence with
 * the missing library's name: "libcublasLt.so.13: cannot open shared object file: ...". */
static void *open_plugin(const char *path, char *why, size_t why_size)
{
    for (int i = 0; i < MAX_MISSING; i++) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        char  soname[256];
        if (library)
            return library;
        snprintf(why, why_size, "%s", dlerror());
        snprintf(soname, sizeof soname, "%.*s", (int)strcspn(why, ":"), why);
        if (strchr(soname, '/') || !strstr(why, ": cannot open shared object file"))
            return NULL;
        if (!open_from_toolkit(getenv("CUDA_HOME"), soname) &&
            !open_from_toolkit("/usr/local/cuda", soname))
            return NULL;
    }
    return NULL;
}

vp_status vp_backend_plugin(const char *name, const vp_backend **out, vp_err *err)
{
    char               path[8192], why[600];
    void              *library = NULL;
    vp_backend_open_fn open_backend;
    vp_status          st = VP_OK;

    *out = NULL;
    VP_TRY(path_of(name, path, sizeof path, err));
    if (access(path, F_OK) != 0 && !strchr(name, '/'))
        VP_TRY(VP_FAIL(
            err, VP_ERR_DEVICE,
            "%s is not beside vplan-run: built without the CUDA toolkit, or not installed", name));
    if (access(path, F_OK) != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s is not there", path));
    library = open_plugin(path, why, sizeof why);
    if (!library)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s cannot be loaded: %s", path, why));
    open_backend = (vp_backend_open_fn)dlsym(library, "vp_backend_open");
    if (!open_backend)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE,
                       "%s is not a backend of vplan: it has no vp_backend_open", path));
    VP_TRY(open_backend(VP_BACKEND_API, out, err));
    if ((*out)->api_version != VP_BACKEND_API)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s is of version %d of the interface, not %d", path,
                       (*out)->api_version, VP_BACKEND_API));
    library = NULL; /* open until the process ends */
out:
    if (library)
        dlclose(library);
    return st;
}
