#include "planner/process.h"

#include "core/checked.h"
#include "core/units.h"

/* Outside the arena: program, libraries, the plan itself, and OpenBLAS's packing buffers. To be measured. */
int64_t vp_process_bytes(const vp_plan *plan)
{
    return vp_add(plan->peak_bytes, 24 * VP_MIB);
}
