#include "dryrun/dryrun_internal.h"

#include <stdio.h>
#include <string.h>

static json_int_t reserved_of(const vp_dryrun_result *result)
{
    return json_integer_value(json_object_get(result->document, "reserved_peak_bytes"));
}

/* Widen the interval of a peak, NAME_least_bytes to NAME_most_bytes, by a run's. */
static void widen(json_t *repeats, const char *name, const json_t *document)
{
    char       key[64];
    json_t    *was;
    json_int_t bytes;

    snprintf(key, sizeof key, "%s_peak_bytes", name);
    bytes = json_integer_value(json_object_get(document, key));
    snprintf(key, sizeof key, "%s_least_bytes", name);
    was = json_object_get(repeats, key);
    if (!was || bytes < json_integer_value(was))
        json_object_set_new(repeats, key, json_integer(bytes));
    snprintf(key, sizeof key, "%s_most_bytes", name);
    was = json_object_get(repeats, key);
    if (!was || bytes > json_integer_value(was))
        json_object_set_new(repeats, key, json_integer(bytes));
}

vp_status vp_dryrun_run(const vp_dryrun_opts *opts, vp_dryrun_result *result, vp_err *err)
{
    vp_dryrun_result one;
    json_t          *repeats = json_object();
    int64_t          n       = opts->repeat > 1 ? opts->repeat : 1;
    vp_status        st      = VP_OK;

    result->document  = NULL;
    result->exit_code = 1;
    VP_TRY_ALLOC(err, repeats);
    if (opts->ranks && strcmp(opts->ranks, "kinds") == 0) {
        st = vp_dryrun_run_kinds(opts, result, err);
        goto out;
    }
    for (int64_t i = 0; i < n; i++) {
        VP_TRY(vp_dryrun_run_once(opts, i, &one, NULL, err));
        widen(repeats, "allocated", one.document);
        widen(repeats, "reserved", one.document);
        if (result->document &&
            (one.exit_code == 0 || result->exit_code != 0) && /* one that does not end well stays */
            (result->exit_code != 0 || reserved_of(&one) <= reserved_of(result))) {
            json_decref(one.document);
            continue;
        }
        json_decref(result->document);
        *result = one;
        if (result->exit_code >= 128)
            break; /* interrupted: no further runs */
    }
    if (n > 1) {
        json_object_set_new(repeats, "runs", json_integer((json_int_t)n));
        json_object_set(result->document, "repeats", repeats);
    }
out:
    if (st != VP_OK && result->document) {
        json_decref(result->document);
        result->document = NULL;
    }
    json_decref(repeats);
    return st;
}
