#include "cli/cli.h"

#include "base/text.h"
#include "trainers/files/installed.h"
#include "trainers/files/target.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One NAME=VERSION of n characters. What is behind the numbers names a build or a release to come: 2.15.0+cu130, 5.25.dev0. */
static vp_status take(const char *text, size_t n, json_t *out, vp_err *err)
{
    char        name[64], version[32], shown[128];
    const char *nearest, *other;
    size_t      k  = strcspn(text, "=");
    size_t      v  = k < n ? vp_version_length(text + k + 1) : 0;
    vp_status   st = VP_OK;

    if (k == 0 || v == 0 || k >= sizeof name || v >= sizeof version ||
        (k + 1 + v < n && (!strchr("+.abr", text[k + 1 + v]) || text[k + 2 + v] == '*')))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--versions wants NAME=VERSION, like transformers=5.17, not %s",
                       vp_text_escape(text, shown, sizeof shown)));
    snprintf(name, sizeof name, "%.*s", (int)k, text);
    snprintf(version, sizeof version, "%.*s", (int)v, text + k + 1);
    if (!vp_library_is_known(name, &nearest))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       nearest ? "--versions: no library %s is known; did you mean %s?"
                               : "--versions: no library %s is known",
                       vp_text_escape(name, shown, sizeof shown), nearest));
    other = json_string_value(json_object_get(out, name));
    if (other && strcmp(other, version) != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--versions: %s is said to be both %s and %s", name,
                       other, version));
    VP_TRY_ALLOC(err, json_object_set_new(out, name, json_string(version)) == 0);
out:
    return st;
}

/* "a=1,b=2" as {a: "1", b: "2"}. */
static vp_status parse(const char *text, json_t **out, vp_err *err)
{
    vp_status st = VP_OK;

    *out = json_object();
    VP_TRY_ALLOC(err, *out);
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, ",");
        VP_TRY(take(p, n, *out, err));
        p += n + (p[n] == ',');
    }
out:
    if (st != VP_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

bool vp_names_versions(const char *text)
{
    return !text || (strchr(text, '=') && access(text, F_OK) != 0);
}

vp_status vp_parse_versions(const char *text, json_t **out, vp_err *err)
{
    return vp_names_versions(text) ? parse(text, out, err) : vp_installed_read(text, out, err);
}
