#include "cli/cli.h"

#include "base/text.h"
#include "trainers/files/installed.h"
#include "trainers/files/target.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "a=1,b=2" as {a: "1", b: "2"}. */
static vp_status parse(const char *text, json_t **out, vp_err *err)
{
    char        shown[128];
    const char *nearest;
    vp_status   st = VP_OK;

    *out = json_object();
    VP_TRY_ALLOC(err, *out);
    for (const char *p = text; p && *p;) {
        size_t n = strcspn(p, ","), k = strcspn(p, "=");
        char   name[64], version[32];
        if (k == 0 || k >= n || k >= sizeof name || n - k > sizeof version ||
            strspn(p + k + 1, "0123456789.") < n - k - 1 || n - k == 1)
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                           "--versions wants NAME=VERSION, like transformers=5.17, not %s",
                           vp_text_escape(p, shown, sizeof shown)));
        snprintf(name, sizeof name, "%.*s", (int)k, p);
        snprintf(version, sizeof version, "%.*s", (int)(n - k - 1), p + k + 1);
        if (!vp_library_is_known(name, &nearest))
            VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                           nearest ? "--versions: no library %s is known; did you mean %s?"
                                   : "--versions: no library %s is known",
                           vp_text_escape(name, shown, sizeof shown), nearest));
        VP_TRY_ALLOC(err, json_object_set_new(*out, name, json_string(version)) == 0);
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
