/* plan/plan_fields.c: fields that several parts of a plan's file have. */
#include "base/checked.h"
#include "plan/plan_internal.h"

#include <string.h>

vp_status vp_field_word(const vp_json_node *node, const char *key, const char *const *names,
                        int *out, vp_err *err)
{
    const char *text;
    vp_status   st = VP_OK;

    VP_TRY(vp_json_string(node, key, &text, err));
    for (*out = 0; names[*out]; ++*out)
        if (strcmp(names[*out], text) == 0)
            return VP_OK;
    st = vp_json_fail(node, key, err, "is none of the words this field has");
out:
    return st;
}

vp_status vp_field_string(vp_plan *plan, const vp_json_node *node, const char *key,
                          const char **out, vp_err *err)
{
    const char *text;
    vp_status   st = VP_OK;

    VP_TRY(vp_json_string(node, key, &text, err));
    *out = vp_arena_strdup(plan->arena, text);
    VP_TRY_ALLOC(err, *out);
out:
    return st;
}

vp_status vp_field_int(const vp_json_node *node, const char *key, int64_t *out, vp_err *err)
{
    *out = -1;
    return vp_json_has(node, key) ? vp_json_int(node, key, 0, INT64_MAX, out, err) : VP_OK;
}

vp_status vp_field_bytes(const vp_json_node *node, const char *key, int64_t most, int64_t *out,
                         vp_err *err)
{
    return vp_json_has(node, key) ? vp_json_int(node, key, 0, most, out, err) : VP_OK;
}

vp_status vp_field_real(const vp_json_node *node, const char *key, double *out, vp_err *err)
{
    *out = -1;
    return vp_json_has(node, key) ? vp_json_real(node, key, 0, 1e30, out, err) : VP_OK;
}

vp_status vp_field_rows(vp_plan *plan, const vp_json_node *node, const char *key, size_t row_size,
                        vp_json_node *array, void **out, int64_t *n, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_json_array(node, key, array, n, err));
    if (*n > VP_PLAN_MAX_ROWS)
        VP_TRY(vp_json_fail(node, key, err, "has more than %d entries", VP_PLAN_MAX_ROWS));
    *out = vp_arena_array(plan->arena, *n, row_size);
    VP_TRY_ALLOC(err, *out);
out:
    return st;
}

vp_status vp_field_memory_named(const char *name, const vp_json_node *node, const char *key,
                                vp_memory *out, vp_err *err)
{
    *out = vp_memory_by_name(name);
    return *out != VP_N_MEMORIES
               ? VP_OK
               : vp_json_fail(node, key, err, "is none of device, host-pinned, host and nvme");
}

vp_status vp_field_memory(const vp_json_node *node, const char *key, vp_memory *out, vp_err *err)
{
    const char *name;
    vp_status   st = VP_OK;

    *out = VP_MEMORY_DEVICE;
    if (!vp_json_has(node, key))
        return VP_OK;
    VP_TRY(vp_json_string(node, key, &name, err));
    return vp_field_memory_named(name, node, key, out, err);
out:
    return st;
}
