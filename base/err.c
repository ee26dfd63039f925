#include "base/err.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int         exit_code;
    const char *id;
} statuses[] = {
#define X(name, exit_code, id, text) {exit_code, id},
    VP_STATUS_TABLE(X)
#undef X
};

int vp_status_exit_code(vp_status st)
{
    assert((unsigned)st < sizeof statuses / sizeof statuses[0]);
    return statuses[st].exit_code;
}

const char *vp_status_id(vp_status st)
{
    assert((unsigned)st < sizeof statuses / sizeof statuses[0]);
    return statuses[st].id;
}

vp_status vp_fail(vp_err *err, vp_status st, const char *file, int line, const char *field,
                  const char *fmt, ...)
{
    va_list ap;

    assert(st != VP_OK && (unsigned)st < sizeof statuses / sizeof statuses[0]);
    if (!err || err->code != VP_OK)
        return st;
    err->code = st;
    err->line = line;
    snprintf(err->file, sizeof err->file, "%s", file ? file : "");
    snprintf(err->field, sizeof err->field, "%s", field ? field : "");
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return st;
}
