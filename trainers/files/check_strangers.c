/* trainers/files/check_strangers.c: keys that no table of the file's dialect knows: what was meant, and what becomes of them. */
#include "base/options.h"
#include "base/text.h"
#include "trainers/files/check_internal.h"

#include <ctype.h>
#include <string.h>

/* Of a file with more strangers than that the others get no "did you mean". */
enum { MAX_NAMES = 1200, MAX_NAMED = 1000 };

/* The names that may stand in a section: for "did you mean". Returns how many. */
static int names_of(vp_checked *c, const vp_checked_file *file, const char *path,
                    const char **names)
{
    size_t n_path = strlen(path);
    int    n      = 0;

    for (const vp_dialect *d = file->dialect; d; d = d->base) {
        const char *version = vp_file_version(c, file, d);
        for (int i = 0; i < d->n_keys && n < MAX_NAMES; i++) {
            const char *name = d->keys[i].path;
            if (strncmp(name, path, n_path) != 0 || (n_path && name[n_path] != '.'))
                continue;
            name += n_path + (n_path > 0);
            /* also what is gone: it is told when it is written right */
            if (!strchr(name, '.') && vp_version_within(version, d->keys[i].since, NULL))
                names[n++] = name;
        }
        for (int i = 0; i < d->n_sections; i++) {
            if (strcmp(d->sections[i].path, path) != 0)
                continue;
            for (const char *p = d->sections[i].known; p && *p && n < MAX_NAMES;) {
                size_t m    = strcspn(p, " :");
                char  *name = vp_arena_alloc(c->arena, m + 1);
                if (!name)
                    return n;
                memcpy(name, p, m);
                names[n++] = name;
                p += strcspn(p, " ");
                p += *p == ' ';
            }
        }
    }
    return n;
}

const char *vp_check_known_at(const vp_checked_file *file, const char *section, const char *name)
{
    const char *at = NULL;

    for (const vp_dialect *d = file->dialect; d && !at; d = d->base)
        for (int i = 0; i < d->n_sections && !at; i++)
            if (strcmp(d->sections[i].path, section) == 0)
                at = vp_listed(d->sections[i].known, name);
    return at;
}

const char *vp_check_home_of(vp_checked *c, const vp_checked_file *file, const char *section,
                             const char *name)
{
    const char *home = NULL;

    if (!strchr(name, '_') || name[0] == '_' || strlen(name) < 6)
        return NULL;
    for (const vp_dialect *d = file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_sections; i++) {
            const char *path = d->sections[i].path;
            const char *full = path[0] ? vp_arena_printf(c->arena, "%s.%s", path, name) : name;
            if (strcmp(path, section) == 0 || !full ||
                !(vp_check_known_at(file, path, name) || vp_file_key(c, file, full, NULL)))
                continue;
            if (home && strcmp(home, path) != 0)
                return NULL;
            home = path;
        }
    return home;
}

/* Whether strangers of a section are arguments that somebody's own function takes, whatever they are called. */
static bool is_parameter(const vp_checked_file *file, const vp_section *s)
{
    return s->strangers == VP_STRANGERS_KEPT && s->path[0] && file->dialect->base == NULL;
}

bool vp_check_is_call(const vp_checked_file *file)
{
    return file->is_part && file->doc->call && !file->doc->program;
}

/* The class's name, of the call that a part of a script is. */
static const char *call_of(const vp_checked_file *file)
{
    const char *dot = strrchr(file->doc->call, '.');

    return dot ? dot + 1 : file->doc->call;
}

/* data_path2 beside data_path: another one of its kind, of a script's own. */
static bool is_numbered(const char *key, const char *near)
{
    size_t n = strlen(near);

    return strncmp(key, near, n) == 0 && isdigit((unsigned char)key[n]) &&
           strspn(key + n, "0123456789") == strlen(key + n);
}

/* Whether strangers of a section are options of a command's. */
static bool is_option(const vp_checked_file *file, const vp_section *s)
{
    return !s->path[0] && file->doc->format == VP_FORMAT_FLAGS;
}

/* Whether a program of the library's own reads it, which refuses what it does not know. */
static bool is_refused(const vp_checked *c, const vp_checked_file *file)
{
    const char *by = file->dialect->refused_by;

    if (file->dialect->refuses && vp_check_is_run(file))
        return true;
    if (by && file->doc->format == VP_FORMAT_FLAGS)
        return vp_check_is_program(by, file->doc);
    for (int f = 0; by && f < c->n_files; f++) {
        const vp_document *command = c->files[f].doc;
        const vp_value    *config  = command && command->format == VP_FORMAT_FLAGS && command->root
                                         ? vp_value_member(command->root, "config")
                                         : NULL;
        if (config && config->kind == VP_VALUE_STRING &&
            strncmp(command->program ? command->program : "", by, strcspn(by, " ") + 1) == 0 &&
            strcmp(config->text, file->name) == 0)
            return true;
    }
    return false;
}

/* The only option that begins so; NULL: there is none, or are several, which argparse refuses. */
static const char *option_that_begins(vp_checked *c, const vp_checked_file *file, const char *key)
{
    const char *names[MAX_NAMES], *only = NULL;
    int         n = names_of(c, file, "", names);

    for (int i = 0; i < n; i++) {
        const char   *version;
        const vp_key *k = vp_file_key(c, file, names[i], &version);
        if (strncmp(names[i], key, strlen(key)) != 0 ||
            (k && !vp_version_within(version, k->since, k->until)))
            continue;
        if (only && strcmp(only, names[i]) != 0)
            return NULL;
        only = names[i];
    }
    return only;
}

void vp_check_complete_options(vp_checked *c, const vp_checked_file *file)
{
    if (!file->dialect || file->doc->format != VP_FORMAT_FLAGS || !is_refused(c, file))
        return;
    for (vp_value *v = file->doc->root->first; v; v = v->next) {
        const char   *version;
        const vp_key *k = vp_file_key(c, file, v->key, &version);
        bool          is_known =
            k ? vp_version_within(version, k->since, k->until)
                       : vp_check_known_at(file, "", v->key) || vp_listed(file->dialect->options, v->key);
        const char *whole = is_known || v->kind == VP_VALUE_MAP || strlen(v->key) < 3
                                ? NULL
                                : option_that_begins(c, file, v->key);
        if (!whole)
            continue;
        vp_find(c, file, VP_NOTE, v, v->key, whole, "is read as %s, the only option that begins so",
                whole);
        v->key                 = whole;
        file->doc->root->index = NULL; /* by the names of before */
    }
}

void vp_check_stranger(vp_checked *c, const vp_checked_file *file, const vp_section *s,
                       const char *path, const vp_value *v, vp_text *own)
{
    const char  *names[MAX_NAMES];
    bool         many        = c->n_findings > MAX_NAMED || own->n_bytes > 64 * (size_t)MAX_NAMED;
    int          n           = many ? 0 : names_of(c, file, s->path, names);
    int          nearest     = vp_word_nearest(v->key, names, n);
    bool         is_argument = !s->path[0] && vp_check_is_argument(c, file, v);
    const char  *near        = nearest >= 0  ? names[nearest]
                               : is_argument ? vp_check_by_words(v->key, names, n)
                                             : NULL;
    size_t       letters     = strlen(v->key);
    vp_strangers fate        = file->doc->is_anothers ? VP_STRANGERS_KEPT
                               : s->unless && vp_value_at(file->doc->root, s->unless) ? VP_STRANGERS_KEPT
                               : is_argument || is_refused(c, file) ? VP_STRANGERS_REFUSED
                                                                    : s->strangers;

    /* among keys of the user's own only what is as good as the same word was meant */
    int most = letters >= 16 && near && strncmp(v->key, near, letters) == 0 ? 3 /* its end is cut */
               : letters >= 12                                              ? 2
               : letters >= 5                                               ? 1
                                                                            : 0;
    if (near && fate == VP_STRANGERS_KEPT && !vp_check_is_run(file) &&
        (vp_listed(s->scripts, v->key) || is_numbered(v->key, near) ||
         vp_word_distance(v->key, near) > most))
        near = NULL;
    const char *home =
        many || vp_listed(s->scripts, v->key) ? NULL : vp_check_home_of(c, file, s->path, v->key);
    if (home && !is_parameter(file, s))
        vp_find(c, file, fate == VP_STRANGERS_REFUSED ? VP_ERROR : VP_WARNING, v, path,
                home[0] ? vp_arena_printf(c->arena, "%s.%s", home, v->key) : v->key,
                fate == VP_STRANGERS_REFUSED
                    ? home[0] ? "is read within %s: here it is refused"
                              : "is read at the top of the file: here it is refused%.0s"
                : home[0] ? "is read within %s: here it does nothing"
                          : "is read at the top of the file: here it does nothing%.0s",
                home);
    else if (fate == VP_STRANGERS_REFUSED && s->unless && v->kind == VP_VALUE_MAP && !near)
        vp_find(c, file, VP_WARNING, v, path, NULL,
                "%s refuses it unless %s, here or on the command line, names a module that has it",
                file->dialect->library, s->unless);
    else if (fate == VP_STRANGERS_REFUSED)
        vp_find(c, file, VP_ERROR, v, path, near,
                (vp_check_is_call(file) && !s->path[0]) || is_argument
                    ? "%s refuses it: no such argument of %s()"
                : is_option(file, s) ? "%s refuses it: no such option%.0s"
                                     : "%s refuses it: no such key in %s",
                file->dialect->library,
                s->path[0]               ? s->path
                : is_argument            ? v->given_to
                : vp_check_is_call(file) ? call_of(file)
                                         : "its file");
    else if (near)
        vp_find(c, file, VP_ERROR, v, path, near,
                fate == VP_STRANGERS_KEPT
                    ? "no key of %s's; unless the script has one of that name it is refused"
                    : "no key of %s's: dropped without a word",
                file->dialect->library);
    else if (fate == VP_STRANGERS_DROPPED)
        vp_find(c, file, VP_WARNING, v, path, NULL, "no key of %s's: dropped without a word",
                file->dialect->library);
    else if (!vp_is_said(file->dialect, path))
        vp_text_printf(own, "%s%s", own->n_bytes ? ", " : "", v->key);
}
