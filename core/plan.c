#include "core/plan.h"

#include "core/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const component_names[] = {
#define X(name, text) text,
    VP_COMPONENT_TABLE(X)
#undef X
};

const char *vp_component_name(vp_component c)
{
    return component_names[c];
}

vp_component vp_component_by_name(const char *name)
{
    int c = 0;
    while (c < VP_N_COMPONENTS && strcmp(component_names[c], name) != 0)
        c++;
    return (vp_component)c;
}

const char *vp_proof_name(vp_proof_status s)
{
    static const char *const names[] = {"optimal", "gap", "fallback", "infeasible"};
    return names[s];
}

vp_plan *vp_plan_new(void)
{
    vp_plan *plan = calloc(1, sizeof *plan);

    if (plan && !(plan->arena = vp_arena_new())) {
        free(plan);
        return NULL;
    }
    return plan;
}

void vp_plan_free(vp_plan *plan)
{
    if (!plan)
        return;
    json_decref(plan->model_config);
    json_decref(plan->decisions);
    json_decref(plan->settings);
    json_decref(plan->assumptions);
    vp_arena_free(plan->arena);
    free(plan);
}

int64_t vp_plan_tokens(const vp_plan *plan)
{
    return vp_mul(plan->global_batch, plan->buckets[0].seq);
}

vp_phases vp_bucket_phases(const vp_bucket *b)
{
    return (vp_phases){.first  = 1,
                       .middle = vp_max_i64(0, b->n_micro_steps - 2),
                       .last   = b->n_micro_steps > 1 ? 1 : 0};
}

const char *vp_param_full_name(const vp_plan_param *p, int64_t index, char *buf, size_t buf_size)
{
    const char *mark = strstr(p->name, "{}");

    if (mark)
        snprintf(buf, buf_size, "%.*s%lld%s", (int)(mark - p->name), p->name, (long long)(index + p->index_offset), mark + 2);
    else
        snprintf(buf, buf_size, "%s", p->name);
    return buf;
}
