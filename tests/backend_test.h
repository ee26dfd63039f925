/* tests/backend_test.h: the backend under test: the CPU's, or the plugin that VPLAN_TEST_BACKEND names. */
#ifndef VP_TESTS_BACKEND_TEST_H
#define VP_TESTS_BACKEND_TEST_H

#include "kernels/backend.h"
#include "runtime/plugin.h"

#include <stdio.h>
#include <stdlib.h>

static inline const vp_backend *test_backend(void)
{
    static const vp_backend *backend;
    const char              *plugin = getenv("VPLAN_TEST_BACKEND");
    vp_err                   err    = {0};

    if (!backend && plugin && vp_backend_plugin(plugin, &backend, &err) != VP_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return backend ? backend : (backend = vp_backend_cpu());
}

#endif
