#include "dryrun/dryrun_internal.h"

int64_t vp_dryrun_report_int(const vp_json_node *node, const char *key)
{
    int64_t value = 0;

    if (!vp_json_has(node, key) || vp_json_int(node, key, 0, INT64_MAX, &value, NULL) != VP_OK)
        return 0;
    return value;
}

const char *vp_dryrun_report_text(const vp_json_node *node, const char *key)
{
    const char *text = "";

    if (!vp_json_has(node, key) || vp_json_string(node, key, &text, NULL) != VP_OK)
        return "";
    return text;
}

bool vp_dryrun_report_bool(const vp_json_node *node, const char *key)
{
    bool value = false;

    return vp_json_has(node, key) && vp_json_bool(node, key, &value, NULL) == VP_OK && value;
}

bool vp_dryrun_report_object(const vp_json_node *node, const char *key, vp_json_node *out)
{
    return vp_json_has(node, key) && vp_json_object(node, key, out, NULL) == VP_OK;
}
