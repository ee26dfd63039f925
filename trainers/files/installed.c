#include "trainers/files/installed.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/text.h"
#include "trainers/files/target.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LIST_BYTES = 1 << 20, NAME_BYTES = 64, VERSION_BYTES = 32 };

/* PyPA's "Names and normalization": Flash_Attn is flash-attn. False: it is longer than any that is known. */
static bool normalise(const char *text, size_t n, char *name)
{
    if (n >= NAME_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        name[i] = (char)(strchr("_.", text[i]) ? '-' : tolower((unsigned char)text[i]));
    name[n] = '\0';
    return true;
}

static vp_status take(json_t *versions, const char *text, size_t n_name, const char *version,
                      vp_err *err)
{
    char        name[NAME_BYTES];
    const char *nearest;
    size_t      n  = vp_version_length(version);
    vp_status   st = VP_OK;

    if (!n || n >= VERSION_BYTES || !normalise(text, n_name, name) ||
        !vp_library_is_known(name, &nearest))
        return VP_OK;
    const char *other = json_string_value(json_object_get(versions, name));
    if (other && (strlen(other) != n || strncmp(other, version, n) != 0))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s has both %s and %.*s: say which, as --versions %s=%s",
                       name, other, (int)n, version, name, other));
    VP_TRY_ALLOC(err, json_object_set_new(versions, name, json_stringn(version, n)) == 0);
out:
    return st;
}

/* ---- a folder ---- */

/* ".../torch-2.15.0.dist-info": in names of such folders no name has a hyphen. */
static vp_status take_folder(json_t *versions, const char *path, vp_err *err)
{
    const char *name = strrchr(path, '/') + 1;
    size_t      n    = strcspn(name, "-");

    return name[n] ? take(versions, name, n, name + n + 1, err) : VP_OK;
}

/* python: "python3.12" where somebody named that one, else "python3*". */
static vp_status read_folder(const char *path, const char *python, json_t *versions, vp_err *err)
{
    static const char *const places[] = {"%s/*.dist-info", "%s/lib/%s/site-packages/*.dist-info",
                                         "%s/lib/%s/dist-packages/*.dist-info",
                                         "%s/Lib/site-packages/*.dist-info"};
    vp_status                st       = VP_OK;

    for (size_t i = 0; i < sizeof places / sizeof *places && st == VP_OK; i++) {
        char   pattern[4096];
        glob_t found;
        if (snprintf(pattern, sizeof pattern, places[i], path, python) >= (int)sizeof pattern ||
            glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t j = 0; j < found.gl_pathc && st == VP_OK; j++)
            st = take_folder(versions, found.gl_pathv[j], err);
        globfree(&found);
    }
    return st;
}

/* ---- a file ---- */

/* Of these two every step is made; which of them a range or an address gives is not known. */
static vp_status refuse_unpinned(const char *line, size_t n_name, vp_err *err)
{
    char name[NAME_BYTES], pin[80], shown[128];

    if (!normalise(line, n_name, name) ||
        (strcmp(name, "torch") != 0 && strcmp(name, "transformers") != 0))
        return VP_OK;
    snprintf(pin, sizeof pin, "%.*s", (int)strcspn(line, "\r\n"), line);
    return VP_FAIL(err, VP_ERR_INPUT,
                   "no version of %s is pinned by \"%s\"; say which, as --versions %s=..., or name "
                   "the environment",
                   name, vp_text_escape(pin, shown, sizeof shown), name);
}

/* "torch==2.11.0+cu130 ; ...", "peft[test]==0.21.2"; any other line says nothing of a version. */
static vp_status take_line(json_t *versions, const char *line, vp_err *err)
{
    const char *name = line + strspn(line, " \t");
    size_t      n    = strcspn(name, " \t[=<>!~;@#\r\n");
    const char *at   = name + n;

    if (*at == '[')
        at += strcspn(at, "]\n") + (at[strcspn(at, "]\n")] == ']');
    at += strspn(at, " \t");
    if (!n)
        return VP_OK;
    if (strncmp(at, "==", 2) != 0)
        return refuse_unpinned(name, n, err);
    at += 2;
    at += *at == '=';
    at += strspn(at, " \tv");
    if (!vp_version_length(at) || strncmp(at + vp_version_length(at), ".*", 2) == 0)
        return refuse_unpinned(name, n, err); /* "==2.*"; a line that goes on behind "\\" */
    return take(versions, name, n, at, err);
}

static vp_status read_list(const char *path, json_t *versions, vp_err *err)
{
    char     *text = NULL;
    int64_t   n_bytes;
    vp_status st = VP_OK;

    VP_TRY(vp_file_read(path, LIST_BYTES, &text, &n_bytes, err));
    const char *first = strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? text + 3 : text; /* a BOM */
    for (const char *line = first; *line;) {
        VP_TRY(take_line(versions, line, err));
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
out:
    free(text);
    return st;
}

/* ---- either ---- */

/* The environment of ".venv/bin/python3": ".venv"; else NULL. */
static const char *environment_of(vp_arena *arena, const char *path)
{
    const char *bin = strstr(path, "bin/python");

    while (bin && strstr(bin + 1, "bin/python"))
        bin = strstr(bin + 1, "bin/python");
    if (!bin || (bin != path && bin[-1] != '/') || strchr(bin + strlen("bin/"), '/'))
        return NULL;
    return bin == path ? "." : vp_arena_printf(arena, "%.*s", (int)(bin - path), path);
}

vp_status vp_installed_read(const char *path, json_t **out, vp_err *err)
{
    vp_arena   *arena = vp_arena_new();
    const char *home  = arena ? environment_of(arena, path) : NULL;
    const char *bin   = home ? strrchr(path, '/') + 1 : "";
    struct stat s;
    vp_status   st = VP_OK;

    *out = json_object();
    VP_TRY_ALLOC(err, arena && *out);
    home = home ? home : path;
    if (stat(home, &s) != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--versions wants NAME=VERSION, like transformers=5.17, or the path of a "
                       "Python environment or of a list of requirements, and there is no %s",
                       path));
    VP_TRY(S_ISDIR(s.st_mode) ? read_folder(home, strchr(bin, '.') ? bin : "python3*", *out, err)
                              : read_list(home, *out, err));
    if (!json_object_size(*out))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s: %s", path,
                       S_ISDIR(s.st_mode)
                           ? "no environment that has torch, transformers or another library that "
                             "vplan knows"
                           : "pins no version of a library that vplan knows, as torch==2.11.0"));
out:
    if (st != VP_OK) {
        json_decref(*out);
        *out = NULL;
    }
    vp_arena_free(arena);
    return st;
}
