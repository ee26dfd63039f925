/* planner/process.h: what the whole vplan-run process will touch on the CPU backend, arena
 * included. */
#ifndef VP_PLANNER_PROCESS_H
#define VP_PLANNER_PROCESS_H

#include "plan/plan.h"

/* Predicted peak resident bytes of `vplan-run PLAN` (VmHWM) with one or two threads; each
 * further thread adds about 0.6 MiB. */
int64_t vp_process_bytes(const vp_plan *plan);

#endif
