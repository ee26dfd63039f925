/* tests/backend_test.h: the backend under test: the CPU's, or the plugin that VPLAN_TEST_BACKEND
 * names. */
#ifndef VP_TESTS_BACKEND_TEST_H
#define VP_TESTS_BACKEND_TEST_H

#include "kernels/backend.h"
#include "runtime/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Whether it is a real GPU, not the CPU nor the emulator's. */
static inline bool test_is_on_card(void)
{
    return test_backend() != vp_backend_cpu() && !strstr(test_backend()->describe(), "Emulated");
}

/* A slow backend runs one of so many random cases: VPLAN_TEST_EVERY, 1 where it is not set. */
static inline int test_part(void)
{
    const char *every = getenv("VPLAN_TEST_EVERY");

    return every && atoi(every) > 0 ? atoi(every) : 1;
}

#endif
