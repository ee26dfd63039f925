/* runtime/run_options.h: the options of a training run, as `vplan run` and vplan-run both take them.
 * vplan reads them to refuse what is wrong and passes them on as they were typed; it links this
 * table and nothing else of runtime/. */
#ifndef VP_RUNTIME_RUN_OPTIONS_H
#define VP_RUNTIME_RUN_OPTIONS_H

#include "base/options.h"

typedef struct vp_run_args {
    const char *data, *init, *adapters, *save_initial, *save, *save_merged, *save_profile, *backend;
    int64_t     steps, seed, threads; /* seed -1: the recipe's; threads 0: the backend's choice */
    bool        verify, eager, force, quiet, unsigned_too, hash;
} vp_run_args;

extern const vp_option_set vp_run_options;

#endif
