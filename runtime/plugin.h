/* runtime/plugin.h: backends that live in shared objects.
 *     VP_TRY(vp_backend_plugin("vplan-cuda.so", &backend, err));
 *
 * A plugin is opened by vplan-run alone: a broken driver can then kill a child, not the program
 * people type. It stays open until the process ends. */
#ifndef VP_RUNTIME_PLUGIN_H
#define VP_RUNTIME_PLUGIN_H

#include "kernels/backend.h"

/* A name without '/' is looked for beside the program; libraries it needs where the loader looks, then
 * in the CUDA toolkit, CUDA_HOME or /usr/local/cuda. VP_ERR_DEVICE: it is not there, or cannot
 * be loaded (the loader's sentence), or is of another version, or finds no device (its own
 * sentence). */
vp_status vp_backend_plugin(const char *name, const vp_backend **out, vp_err *err);

#endif
