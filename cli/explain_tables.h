/* cli/explain_tables.h: a plan unrolled over one optimizer step with all its micro-steps, for programs to
 * check: `vplan explain --buffers` and `--program`, as CSV or JSON.
 *     VP_TRY(vp_explain_buffers(arena, plan, cli->json, err)); */
#ifndef VP_CLI_EXPLAIN_TABLES_H
#define VP_CLI_EXPLAIN_TABLES_H

#include "base/arena.h"
#include "plan/plan.h"

#include <stdbool.h>

/* Each buffer: memory, place, bytes, the steps it lives in; what nobody uses is padding. */
vp_status vp_explain_buffers(vp_arena *arena, const vp_plan *plan, bool json, vp_err *err);

/* Each step: what it calls, what it reads and writes, its seconds. */
vp_status vp_explain_program(const vp_plan *plan, bool json, vp_err *err);

#endif
