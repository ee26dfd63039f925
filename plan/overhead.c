#include "plan/overhead.h"

#include "base/checked.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *const phase_names[VP_N_OUTSIDE_PHASES + 1] = {"context",    "arena",     "calls",
                                                                 "first step", "last step", NULL};
static const char *const by_names[VP_N_OUTSIDE_BYS]           = {"nobody", "process", "device"};
static const int64_t     max_bytes                            = INT64_C(1) << 50;

const char *vp_overhead_phase_name(vp_overhead_phase phase)
{
    assert(phase < VP_N_OUTSIDE_PHASES);
    return phase_names[phase];
}

const char *vp_overhead_by_name(vp_overhead_by by)
{
    assert(by < VP_N_OUTSIDE_BYS);
    return by_names[by];
}

void vp_overhead_note(vp_overhead *o, vp_overhead_phase phase, int64_t bytes)
{
    assert(phase < VP_N_OUTSIDE_PHASES);
    o->has[phase]      = true;
    o->at_bytes[phase] = vp_max_i64(bytes, 0);
    o->bytes           = vp_max_i64(o->bytes, bytes);
}

void vp_overhead_take(vp_overhead *to, const vp_overhead *from)
{
    if (from->measured_by != VP_OVERHEAD_NOT_MEASURED &&
        (to->measured_by == VP_OVERHEAD_NOT_MEASURED || from->bytes > to->bytes))
        *to = *from;
}

json_t *vp_overhead_to_json(const vp_overhead *o)
{
    json_t *points;

    if (o->measured_by == VP_OVERHEAD_NOT_MEASURED)
        return json_null();
    assert(o->measured_by < VP_N_OUTSIDE_BYS);
    points = json_object();
    for (int i = 0; points && i < VP_N_OUTSIDE_PHASES; i++)
        if (o->has[i])
            json_object_set_new(points, phase_names[i], json_integer((json_int_t)o->at_bytes[i]));
    return json_pack("{s:s, s:s, s:I, s:o}", "device", o->device, "measured_by",
                     by_names[o->measured_by], "bytes", (json_int_t)o->bytes, "points", points);
}

vp_status vp_overhead_from_json(const vp_json_node *node, vp_overhead *o, vp_err *err)
{
    static const char *const keys[] = {"device", "measured_by", "bytes", "points", NULL};
    vp_json_node             points;
    const char              *text;
    int64_t                  bytes, said;
    vp_status                st = VP_OK;

    *o = (vp_overhead){0};
    VP_TRY(vp_json_only_keys(node, keys, err));
    VP_TRY(vp_json_string(node, "device", &text, err));
    if (!text[0] || strlen(text) >= sizeof o->device)
        VP_TRY(vp_json_fail(node, "device", err, "must be the name of a device, of 1 to %zu bytes",
                            sizeof o->device - 1));
    strcpy(o->device, text);
    VP_TRY(vp_json_string(node, "measured_by", &text, err));
    for (int by = VP_OVERHEAD_BY_PROCESS; by < VP_N_OUTSIDE_BYS; by++)
        if (strcmp(text, by_names[by]) == 0)
            o->measured_by = (vp_overhead_by)by;
    if (o->measured_by == VP_OVERHEAD_NOT_MEASURED)
        VP_TRY(vp_json_fail(node, "measured_by", err, "must be \"process\" or \"device\""));
    VP_TRY(vp_json_int(node, "bytes", 0, max_bytes, &said, err));
    VP_TRY(vp_json_object(node, "points", &points, err));
    VP_TRY(vp_json_only_keys(&points, phase_names, err));
    for (int i = 0; i < VP_N_OUTSIDE_PHASES; i++)
        if (vp_json_has(&points, phase_names[i])) {
            VP_TRY(vp_json_int(&points, phase_names[i], 0, max_bytes, &bytes, err));
            vp_overhead_note(o, (vp_overhead_phase)i, bytes);
        }
    if (said != o->bytes)
        VP_TRY(vp_json_fail(node, "bytes", err, "is %lld, the largest of its points %lld",
                            (long long)said, (long long)o->bytes));
out:
    return st;
}
