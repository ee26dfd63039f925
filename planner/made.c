#include "planner/made.h"

#include "base/beside.h"
#include "planner/assemble.h"

#include <string.h>

struct vp_made {
    const vp_plan_request *r;
    vp_candidate           of;
    vp_cost                cost;
    vp_beside              beside;
    vp_plan               *plan;
    vp_err                 err;
    vp_status              st;
};

static void assemble(void *with)
{
    vp_made *m = with;

    m->st = vp_assemble(m->r->model, &m->of.scenario, &m->cost, &m->plan, &m->err);
}

vp_made *vp_made_offer(vp_arena *arena, const vp_plan_request *r, const vp_candidate *of)
{
    vp_made *m = vp_arena_alloc(arena, sizeof *m);

    if (!m)
        return NULL;
    *m = (vp_made){.r = r, .of = *of, .cost = {.device = r->device, .profile = r->profile}};
    vp_beside_offer(&m->beside, assemble, m);
    return m;
}

vp_status vp_made_take(vp_made *m, const vp_plan_request *r, const vp_candidate *of, vp_cost *cost,
                       vp_plan **out, vp_err *err)
{
    /* which may say of one candidate that it is two: then it is made again */
    const bool is_it = m && m->r == r && memcmp(&m->of, of, sizeof *of) == 0;

    if (!is_it || vp_beside_take_back(&m->beside))
        return vp_assemble(r->model, &of->scenario, cost, out, err);
    vp_beside_finish(&m->beside);
    if (m->st != VP_OK)
        *err = m->err;
    *cost   = m->cost;
    *out    = m->plan;
    m->plan = NULL;
    m->r    = NULL; /* taken once */
    return m->st;
}

void vp_made_drop(vp_made *m)
{
    if (!m || vp_beside_take_back(&m->beside))
        return;
    vp_beside_finish(&m->beside);
    vp_plan_free(m->plan);
}
