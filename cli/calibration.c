#include "cli/calibration.h"

#include "base/file.h"
#include "base/text.h"
#include "base/units.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 20, FIELDS = 5 };

static const char HEAD[] =
    "# vplan: what runs on a card took beyond their estimates. A line that is deleted is forgotten.\n"
    "# card\tdriver\ttorch\tcontext_bytes\tcache_bytes\n";

vp_status vp_calibration_path(const char *given, char *out, size_t size, vp_err *err)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int         n = 0;

    out[0] = '\0';
    if (given && strcmp(given, "none") == 0)
        return VP_OK;
    if (given)
        n = snprintf(out, size, "%s", given);
    else if (state && *state)
        n = snprintf(out, size, "%s/vplan/calibration", state);
    else if (home && *home)
        n = snprintf(out, size, "%s/.local/state/vplan/calibration", home);
    return (size_t)n < size ? VP_OK
                            : VP_FAIL(err, VP_ERR_USAGE, "--calibration: the path is too long");
}

static vp_status read_bytes(const char *path, int number, const char *text, int64_t least,
                            int64_t *out, vp_err *err)
{
    char     *end;
    long long n;

    errno = 0;
    n     = strtoll(text, &end, 10);
    if (strcmp(text, "-") == 0)
        n = least;
    else if (errno || end == text || *end || n < 0)
        return VP_FAIL_AT(err, VP_ERR_INPUT, path, number, NULL, "\"%s\" is no count of bytes",
                          text);
    *out = n;
    return VP_OK;
}

/* is_empty: a remark, or nothing. */
static vp_status read_line(const char *path, int number, char *line, vp_calibration *out,
                           bool *is_empty, vp_err *err)
{
    char     *field[FIELDS], *words[] = {out->card, out->driver, out->torch};
    int       n  = 0;
    vp_status st = VP_OK;

    line[strcspn(line, "\r")] = '\0';
    *is_empty                 = !*line || *line == '#';
    if (*is_empty)
        return VP_OK;
    for (char *at = line; at && n < FIELDS; n++) {
        field[n] = at;
        at       = strchr(at, '\t');
        if (at)
            *at++ = '\0';
        if (n + 1 == FIELDS && at)
            n++;
    }
    if (n != FIELDS)
        return VP_FAIL_AT(err, VP_ERR_INPUT, path, number, NULL,
                          "needs five fields with tabs between them: card, driver, torch, "
                          "context_bytes, cache_bytes");
    for (int i = 0; i < 3; i++)
        if (!*field[i] || strlen(field[i]) >= VP_CALIBRATION_WORD)
            return VP_FAIL_AT(err, VP_ERR_INPUT, path, number, NULL,
                              "field %d is empty or longer than %d bytes", i + 1,
                              VP_CALIBRATION_WORD - 1);
    for (int i = 0; i < 3; i++)
        memcpy(words[i], field[i], strlen(field[i]) + 1);
    VP_TRY(read_bytes(path, number, field[3], -1, &out->context_bytes, err));
    VP_TRY(read_bytes(path, number, field[4], 0, &out->cache_bytes, err));
out:
    return st;
}

static vp_status read_text(const char *path, char **text, vp_err *err)
{
    int64_t n;

    *text = NULL;
    if (!*path || access(path, F_OK) != 0)
        return VP_OK;
    return vp_file_read(path, MAX_FILE, text, &n, err);
}

vp_status vp_calibration_find(const char *path, const char *card, vp_calibration *out, vp_err *err)
{
    vp_calibration c;
    char          *text   = NULL, *rest;
    int            number = 0;
    bool           is_empty;
    vp_status      st = VP_OK;

    *out = (vp_calibration){.context_bytes = -1};
    VP_TRY(read_text(path, &text, err));
    for (char *at = text; at; at = rest) {
        rest = strchr(at, '\n');
        if (rest)
            *rest++ = '\0';
        VP_TRY(read_line(path, ++number, at, &c, &is_empty, err));
        if (!is_empty && strcmp(c.card, card) == 0)
            *out = c;
    }
out:
    free(text);
    return st;
}

const char *vp_calibration_card(const vp_device *card, char *buf, size_t size)
{
    return vp_text_escape(card->name, buf, size);
}

vp_status vp_calibration_outside(const char *path, const vp_device *card,
                                 vp_dryrun_context *outside, vp_calibration *out, vp_err *err)
{
    char      name[VP_CALIBRATION_WORD];
    vp_status st = VP_OK;

    *outside = vp_dryrun_context_of(card);
    VP_TRY(vp_calibration_find(path, vp_calibration_card(card, name, sizeof name), out, err));
    if (!*out->card)
        return VP_OK;
    if (out->context_bytes >= 0) {
        outside->bytes = outside->least_bytes = out->context_bytes;
        outside->class_                       = VP_CLASS_MEASURED;
    }
    outside->bytes += out->cache_bytes;
out:
    return st;
}

json_t *vp_calibration_said(const vp_calibration *c, const char *path, bool is_new)
{
    char context[64], cache[64];

    return json_sprintf(
        "%s: context %s, PyTorch's cache %s more, as measured on %s (driver %s, "
        "torch %s); in %s: delete it to forget, or --calibration none",
        is_new ? "kept for later estimates" : "calibration",
        c->context_bytes < 0 ? "as assumed"
                             : vp_size_text(c->context_bytes, context, sizeof context),
        vp_size_text(c->cache_bytes, cache, sizeof cache), c->card, c->driver, c->torch, path);
}

json_t *vp_calibration_json(const vp_calibration *c, const char *path, bool is_new)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:b}", "file", path, "card", c->card, "driver",
                     c->driver, "torch", c->torch, "context_bytes",
                     c->context_bytes < 0 ? json_null() : json_integer(c->context_bytes),
                     "cache_bytes", (json_int_t)c->cache_bytes, "kept", (int)is_new);
}

static void add_line(vp_text *text, const vp_calibration *c)
{
    vp_text_printf(text, "%s\t%s\t%s\t", c->card, c->driver, c->torch);
    if (c->context_bytes < 0)
        vp_text_printf(text, "-");
    else
        vp_text_printf(text, "%lld", (long long)c->context_bytes);
    vp_text_printf(text, "\t%lld\n", (long long)c->cache_bytes);
}

static bool is_of_the_same(const vp_calibration *a, const vp_calibration *b)
{
    return strcmp(a->card, b->card) == 0 && strcmp(a->driver, b->driver) == 0 &&
           strcmp(a->torch, b->torch) == 0;
}

/* All folders that path goes through; what cannot be made is told by who writes the file. */
static void make_folders(const char *path)
{
    char   folder[PATH_MAX];
    vp_err why = {0};

    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        if ((size_t)(at - path) >= sizeof folder)
            return;
        memcpy(folder, path, (size_t)(at - path));
        folder[at - path] = '\0';
        (void)vp_file_make_dir(folder, &why);
    }
}

vp_status vp_calibration_keep(const char *path, const vp_calibration *c, vp_err *err)
{
    vp_calibration old;
    char          *text   = NULL, *rest;
    vp_text        out    = {0};
    int            number = 0;
    bool           is_empty;
    vp_status      st = VP_OK;

    VP_TRY(read_text(path, &text, err));
    if (!text)
        vp_text_printf(&out, "%s", HEAD);
    for (char *at = text; at && *at; at = rest) {
        rest = strchr(at, '\n');
        if (rest)
            *rest++ = '\0';
        size_t begins = out.n_bytes;
        vp_text_printf(&out, "%s\n", at);
        VP_TRY(read_line(path, ++number, at, &old, &is_empty, err));
        if (!is_empty && is_of_the_same(&old, c))
            out.n_bytes = begins;
    }
    add_line(&out, c);
    make_folders(path);
    VP_TRY(vp_file_write(path, vp_text_string(&out), out.n_bytes, true, err));
out:
    free(text);
    vp_text_release(&out);
    return st;
}
