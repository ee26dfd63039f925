#include "planner/process.h"

#include "base/checked.h"
#include "base/units.h"

#include <assert.h>

/* Outside the arena, in bytes resident: the program and its libraries, OpenMP's and OpenBLAS's
 * buffers for the fixed GEMM tiles, stacks. Measured as VmHWM - executed arena on gpt2-tiny
 * (arenas of 12 and 79 MiB) and gpt2 (1.9 and 2.1 GiB), one and two threads, Debian 12, OpenBLAS
 * 0.3.21: 6.1 to 7.1 MiB. More threads add about 0.6 MiB each. */
static const int64_t OUTSIDE_ARENA_BYTES = 7 * VP_MIB;

/* The plan in memory, per step of its programs: rows of the file and their expansion. Generous. */
enum { PLAN_STEP_BYTES = 1024 };

int64_t vp_process_bytes(const vp_plan *plan)
{
    int64_t n_steps = 0, ids = vp_mul(vp_plan_tokens(plan), 2 * (int64_t)sizeof(int32_t));

    assert(plan->n_buckets >= 1);
    for (int64_t i = 0; i < plan->buckets[0].n_programs; i++)
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            n_steps += plan->buckets[0].programs[i].n_steps[pass];
    return vp_add(vp_add(vp_add(plan->peak_bytes, plan->host_peak_bytes), OUTSIDE_ARENA_BYTES),
                  vp_add(ids, n_steps * PLAN_STEP_BYTES));
}
