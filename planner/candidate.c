#include "base/arena.h"
#include "planner/planner.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Of a candidate what is before its runs, and those that it has. */
static size_t used_bytes(const vp_candidate *c)
{
    assert(c->scenario.n_runs >= 0 && c->scenario.n_runs <= VP_MAX_RUNS);
    return offsetof(vp_candidate, scenario) + offsetof(vp_scenario, runs) +
           (size_t)c->scenario.n_runs * sizeof c->scenario.runs[0];
}

vp_candidate *vp_candidate_keep(vp_arena *arena, const vp_candidate *from)
{
    void *to = vp_arena_room(arena, 1, used_bytes(from));

    return to ? memcpy(to, from, used_bytes(from)) : NULL;
}

void vp_candidate_copy(vp_candidate *to, const vp_candidate *from)
{
    memset(to, 0, sizeof *to);
    memcpy(to, from, used_bytes(from));
}
