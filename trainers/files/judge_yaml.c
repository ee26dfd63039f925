/* trainers/files/judge_yaml.c: what the trainer's own reader of YAML refuses and libyaml takes. */
#include "trainers/files/check_internal.h"

void vp_judge_yaml(vp_judged *x)
{
    vp_value at = {.kind = VP_VALUE_NULL, .line = x->file->doc->tab_line};

    /* jsonargparse reads by libyaml too */
    if (!at.line || x->file->dialect == &vp_dialect_lightning ||
        x->file->dialect == &vp_dialect_litgpt)
        return;
    vp_find(x->c, x->file, VP_ERROR, &at, "", "spaces",
            "a tab outside of a value: PyYAML, by which the trainer reads, ends with an error");
}
