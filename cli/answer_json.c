/* Answers as JSON: how one is printed, and the pieces that several commands give. */
#include "cli/cli.h"

#include "base/output.h"

#include <stdio.h>
#include <string.h>

vp_status vp_print_json(json_t *j, vp_err *err)
{
    vp_text   text = {0};
    vp_status st   = VP_OK;

    VP_TRY_ALLOC(err, j && vp_json_dump(j, &text));
    fwrite(text.data, 1, text.n_bytes, stdout);
    VP_TRY(vp_output_end(err));
out:
    vp_text_release(&text);
    json_decref(j);
    return st;
}

const char *vp_overhead_class_text(const vp_plan *plan, char *buf, size_t buf_size)
{
    char shown[300];
    bool assumed = !plan->outside_class || strcmp(plan->outside_class, "assumed") == 0;

    if (assumed || !plan->outside_of || !plan->outside_of[0])
        snprintf(buf, buf_size, "%s", assumed ? "assumed" : plan->outside_class);
    else
        snprintf(buf, buf_size, "%s: %s", plan->outside_class,
                 vp_text_escape(plan->outside_of, shown, sizeof shown));
    return buf;
}

void vp_overhead_to_answer(const vp_plan *plan, json_t *answer)
{
    if (!answer)
        return;
    json_object_set_new(answer, "outside_bytes", json_integer((json_int_t)plan->outside_bytes));
    json_object_set_new(answer, "outside_class",
                        plan->outside_class ? json_string(plan->outside_class) : json_null());
}

json_t *vp_proof_json(const vp_plan *plan)
{
    bool checked = plan->proof == VP_PROOF_OPTIMAL || plan->proof == VP_PROOF_GAP;

    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "status", vp_proof_name(plan->proof), "gap",
                     vp_json_real_or_null(plan->proof_gap), "bound_s",
                     vp_json_real_or_null(plan->bound_s), "least_budget_bytes",
                     vp_json_int_or_null(plan->least_budget_bytes), "checked_by",
                     checked ? json_string("vplan") : json_null());
}

json_t *vp_presets_json(const vp_plan_answer *a)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < a->n_presets; i++) {
        const vp_candidate *c = &a->presets[i].candidate;
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:f, s:b, s:s, s:s, s:s}", "name", a->presets[i].name,
                            "peak_bytes", (json_int_t)c->figures.peak_bytes, "device_bytes",
                            (json_int_t)c->figures.device_bytes, "step_time_s",
                            c->figures.step_time_s, "fits", (int)c->fits, "precision",
                            vp_precision_name(c->scenario.recipe.precision), "gradients",
                            vp_gradients_name(c->scenario.recipe.gradients), "optimizer",
                            vp_optimizer_name(c->scenario.recipe.optimizer)));
    }
    return list;
}

json_t *vp_items_json(const vp_itemised *x)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < x->n_items; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:s}", "name", x->items[i].name, "bytes",
                                        (json_int_t)x->items[i].bytes, "class", x->items[i].class));
    return list;
}

json_t *vp_phases_json(const vp_itemised *x)
{
    json_t *list = json_array();

    for (int p = 0; p < VP_N_PHASES; p++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "name", x->phases[p].name, "peak_bytes",
                                              (json_int_t)x->phases[p].peak_bytes));
    return list;
}
