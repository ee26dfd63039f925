/* cli/plan_trainer_json.c: a trainer's plan as a file of settings, which is its JSON too. */
#include "cli/plan_trainer_answer.h"

#include "cli/calibration.h"
#include "cli/padding.h"
#include "cli/plan_trainer_changes.h"
#include "cli/words.h"

#include "trainers/files/emit.h"
#include "trainers/fit/choose.h"
#include "trainers/hf/hf_versions.h"

typedef vp_plan_trainer_answer answer;

/* By the trainer's own names: those of its first file. */
static vp_status own_settings(const answer *a, const vp_settings *s, json_t **out,
                              json_t **versions, vp_err *err)
{
    vp_emitted  e = {0};
    const char *key;
    json_t     *value;
    vp_status   st = VP_OK;

    *out = NULL;
    VP_TRY(vp_emit(a->arena, a->request.target, s, "", &e, err));
    json_object_foreach (e.settings, key, value) {
        *out = json_incref(value);
        break;
    }
    if (versions) { /* of the files, and of what bytes were counted with besides */
        *versions = json_incref(e.versions);
        VP_TRY_ALLOC(err, json_object_update_missing(*versions, a->chosen.versions) == 0);
    }
out:
    vp_emitted_release(&e);
    return st;
}

/* Files may be for libraries that the step was not recorded with. */
static void say_other_versions(const answer *a, const char *recorded, json_t *list)
{
    const char *library;
    json_t     *version;

    json_object_foreach (a->versions, library, version)
        if (vp_hf_is_other_version(recorded, library, json_string_value(version)))
            json_array_append_new(
                list, json_sprintf("files are for %s=%s, with which this step was not recorded: "
                                   "bytes are of the libraries that are named",
                                   library, json_string_value(version)));
}

static json_t *assumptions_json(const answer *a)
{
    const vp_chosen *c       = &a->chosen;
    const vp_choice *b       = c->best ? c->best : c->least;
    json_t          *list    = json_array();
    vp_text          refused = {0};
    char             padding[160];

    json_array_append_new(list, json_sprintf("libraries: %s", b->bytes->versions));
    say_other_versions(a, b->bytes->versions, list);
    for (int i = 0; i < b->bytes->n_assumptions; i++)
        json_array_append_new(list, json_string(b->bytes->assumptions[i]));
    if (b->bytes->why)
        json_array_append_new(list, json_string(b->bytes->why));
    if (*vp_padding_text_if_seen(b->bytes->high_bytes, a->padded_bytes, padding, sizeof padding))
        json_array_append_new(list, json_string(padding));
    if (a->model->is_priced_only)
        json_array_append_new(list, json_string("seconds: those of the products, attention and "
                                                "norms of such blocks; vplan runs no such model"));
    if (a->precision_why)
        json_array_append_new(list, json_string(a->precision_why));
    if (*a->calibration.card)
        json_array_append_new(list,
                              vp_calibration_said(&a->calibration, a->calibration_path, false));
    json_array_append_new(list,
                          json_sprintf("interval: -%.0f to +%.0f %% of the reserved bytes; %s",
                                       100 * b->bytes->low, 100 * b->bytes->high, b->bytes->basis));
    json_array_append_new(
        list, json_sprintf("seconds: %s, with the kernels that transformers launches in place of "
                           "vplan's; they rank settings and are no measurement",
                           a->profile ? "the profile's" : "the card's stated rates"));
    vp_text_printf(&refused, "not compared, for such steps were not recorded: ");
    for (int i = 0; i < c->n_refusals; i++)
        vp_text_printf(&refused, "%s%s", i ? "; " : "", c->refusals[i]);
    if (c->n_refusals && !refused.failed)
        json_array_append_new(list, json_string(refused.data));
    vp_text_release(&refused);
    return list;
}

static json_t *interval_json(const vp_fit_bytes *b)
{
    return json_pack("{s:I, s:I, s:f}", "low_bytes", (json_int_t)b->low_bytes, "high_bytes",
                     (json_int_t)b->high_bytes, "probability", VP_LANGUAGE_PROBABILITY);
}

/* A setting that is listed, or null for none. */
static vp_status choice_json(const answer *a, const vp_choice *c, json_t **out, vp_err *err)
{
    json_t   *own;
    vp_status st = VP_OK;

    if (!c) {
        *out = json_null();
        goto out;
    }
    VP_TRY(own_settings(a, &c->settings, &own, NULL, err));
    *out = json_pack("{s:o, s:o, s:I, s:o, s:f, s:b, s:b}", "settings", own, "common",
                     vp_settings_common_json(&c->settings), "device_bytes",
                     (json_int_t)c->bytes->device_bytes, "interval", interval_json(c->bytes),
                     "step_time_s", c->seconds, "fits", (int)c->fits, "tight", (int)c->is_tight);
    VP_TRY_ALLOC(err, *out);
out:
    return st;
}

static vp_status alternatives_json(const answer *a, json_t **out, vp_err *err)
{
    json_t   *list = json_array(), *one;
    vp_status st   = VP_OK;

    for (int i = 0; i < a->chosen.n_alternatives; i++) {
        VP_TRY(choice_json(a, a->chosen.alternatives[i], &one, err));
        json_array_append_new(list, one);
    }
    VP_TRY_ALLOC(err, list);
    *out = list;
out:
    if (st != VP_OK)
        json_decref(list);
    return st;
}

static json_t *proof_json(const answer *a)
{
    const vp_chosen *c = &a->chosen;

    return json_pack("{s:s, s:o, s:o, s:o, s:s, s:s, s:I, s:I}", "status",
                     c->best ? "optimal" : "infeasible", "gap",
                     c->best ? json_real(0) : json_null(), "bound_s",
                     c->best ? json_real(c->best->seconds) : json_null(), "least_budget_bytes",
                     c->best ? json_null() : json_integer((json_int_t)c->least->bytes->high_bytes),
                     "checked_by", "vplan", "method", "enumeration", "sized",
                     (json_int_t)c->n_sized, "not_recorded", (json_int_t)c->n_refused);
}

static json_t *next_gib_json(const answer *a)
{
    const vp_choice *r = a->chosen.richer;

    if (!r)
        return json_null();
    return json_pack(
        "{s:o, s:I, s:f, s:o}", "common", vp_settings_common_json(&r->settings), "device_bytes",
        (json_int_t)r->bytes->device_bytes, "step_time_s", r->seconds, "saves_seconds",
        a->chosen.best ? json_real(a->chosen.best->seconds - r->seconds) : json_null());
}

/* What is faster and nobody gets unasked, with the option that asks for it; or null. */
static json_t *faster_json(const answer *a, const vp_choice *f, const char *option,
                           const char *value)
{
    const vp_option_change change  = {option, value, value == NULL, false};
    vp_text                command = {0}, words = {0};
    json_t                *out;

    if (!f)
        return json_null();
    vp_changed_command("plan", a->line, NULL, &change, 1, &command);
    vp_text_printf(&words, "%s%s%s", option, value ? " " : "", value ? value : "");
    out = json_pack("{s:s, s:s, s:o, s:I, s:o, s:f}", "option", vp_text_string(&words), "command",
                    vp_text_string(&command), "common", vp_settings_common_json(&f->settings),
                    "device_bytes", (json_int_t)f->bytes->device_bytes, "interval",
                    interval_json(f->bytes), "step_time_s", f->seconds);
    vp_text_release(&command);
    vp_text_release(&words);
    return out;
}

static json_t *faster_first_json(const answer *a)
{
    const vp_choice *f = a->with_first.best;

    return faster_json(a, f, "--recompute", f ? f->settings.value[VP_SETTING_RECOMPUTE] : NULL);
}

/* What -o writes and --json prints. Where nothing fits, the setting that needs least stands apart. */
vp_status vp_plan_trainer_document(const answer *a, json_t **out, vp_err *err)
{
    const vp_choice *b   = a->chosen.best ? a->chosen.best : a->chosen.least;
    json_t          *own = NULL, *versions = NULL, *alternatives = NULL, *least = NULL;
    int64_t          tokens = a->request.global_batch * a->request.seq;
    bool             fits   = a->chosen.best != NULL;
    vp_status        st     = VP_OK;

    VP_TRY(own_settings(a, &b->settings, &own, &versions, err));
    VP_TRY(alternatives_json(a, &alternatives, err));
    VP_TRY(choice_json(a, fits ? NULL : b, &least, err));
    const vp_model *model = a->request.job.model;

    *out = json_pack(
        "{s:i, s:s, s:s, s:O, s:{s:s, s:s, s:o*, s:I, s:I}, s:s, s:I, s:s, s:O, s:o}",
        "schema_version", 1, "kind", "settings", "trainer", a->request.target->name, "versions",
        versions, "model", "name", a->request.model_name, "class", model->class_name, "labels",
        model->n_labels ? json_integer(model->n_labels) : NULL, "params_total",
        (json_int_t)b->bytes->n_params, "params_trainable", (json_int_t)b->bytes->n_trained,
        "device", a->device.name, "budget_bytes", (json_int_t)a->request.budget_bytes, "padding",
        a->request.job.padded ? "mask" : "none", "settings", fits ? own : json_null(), "common",
        fits ? vp_settings_common_json(&b->settings) : json_object());
    VP_TRY_ALLOC(err, *out);
    if (json_object_size(a->versions))
        VP_TRY_ALLOC(err, !json_object_set(*out, "versions_asked", a->versions));
    VP_TRY_ALLOC(
        err,
        json_object_update_new(
            *out,
            json_pack(
                "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:O, s:O, s:o, s:o, s:o, s:o, s:o}",
                "allocated_peak_bytes", vp_json_int_or_null(fits ? b->bytes->allocated_bytes : -1),
                "reserved_peak_bytes", vp_json_int_or_null(fits ? b->bytes->reserved_bytes : -1),
                "device_bytes", vp_json_int_or_null(fits ? b->bytes->device_bytes : -1), "interval",
                fits ? interval_json(b->bytes) : json_null(), "peak_phase",
                fits ? json_string(b->bytes->peak_phase) : json_null(), "step_time_s",
                fits ? json_real(b->seconds) : json_null(), "tokens_per_s",
                fits ? json_real((double)tokens / b->seconds) : json_null(), "compared",
                (json_int_t)a->chosen.n_space, "priced", (json_int_t)a->chosen.n_priced, "played",
                (json_int_t)a->chosen.n_played, "proof", proof_json(a), "least", least,
                "alternatives", alternatives, "next_gib", next_gib_json(a), "faster",
                faster_json(a, a->with_liger.best, "--liger", NULL), "faster_first",
                faster_first_json(a), "assumptions", assumptions_json(a), "changes",
                vp_fit_changes_json(&a->changes, a->line))) == 0);
    if (*a->calibration.card)
        json_object_set_new(*out, "calibration",
                            vp_calibration_json(&a->calibration, a->calibration_path, false));
out:
    json_decref(own);
    json_decref(versions);
    json_decref(least);
    json_decref(alternatives);
    return st;
}
