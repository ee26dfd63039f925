/* trainers/files/cells.c: what the cells of a notebook do besides its Python: the commands that they run, the files that they write.
 * Where the Python itself trains that is what is judged, and the others are named. */
#include "trainers/files/check_internal.h"

#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

const vp_written *vp_check_written(const vp_checked *c, const char *path)
{
    const vp_written *alike = NULL;

    while (strncmp(path, "./", 2) == 0)
        path += 2;
    for (int i = 0; i < c->n_files; i++)
        for (const vp_written *w = c->files[i].doc ? c->files[i].doc->written : NULL; w;
             w                   = w->next) {
            const char *own = w->path + (strncmp(w->path, "./", 2) == 0 ? 2 : 0);
            if (strcmp(own, path) == 0)
                return w;
            if (strcmp(last_part(own), last_part(path)) == 0) /* from a folder of %cd */
                alike = w;
        }
    return alike;
}

bool vp_check_runs_written(const vp_checked *c, const vp_document *command)
{
    char path[256];

    for (const char *p = command->program; p && *p; p += strcspn(p, " "), p += *p == ' ') {
        snprintf(path, sizeof path, "%.*s", (int)strcspn(p, " "), p);
        if (strchr(path, '.') && vp_check_written(c, path))
            return true;
    }
    return false;
}

/* {name} and $name of IPython's: what the notebook's Python gave the name; else a variable of the shell's, which nobody knows. */
static vp_status fill(const vp_document *notebook, vp_text *out, vp_err *err)
{
    vp_status st = VP_OK;

    for (const char *p = notebook->commands; *p;) {
        bool        braced = *p == '{';
        const char *name   = p + 1;
        size_t      n      = 0;
        while (isalnum((unsigned char)name[n]) || name[n] == '_')
            n++;
        bool is_one = (braced ? name[n] == '}' : *p == '$') && n && !isdigit((unsigned char)*name);
        if (!is_one) {
            vp_text_append(out, p++, 1);
            continue;
        }
        const char     *key = vp_arena_printf(notebook->arena, "%.*s", (int)n, name);
        const vp_value *v   = key ? vp_value_member(notebook->root, key) : NULL;
        bool is_known       = v && v->text && v->kind < VP_VALUE_LIST && v->kind != VP_VALUE_NULL &&
                        !v->call && !(v->kind == VP_VALUE_STRING && !v->quoted);
        VP_TRY_ALLOC(err, key);
        if (is_known)
            vp_text_append(out, v->text, strlen(v->text));
        else
            vp_text_printf(out, "$%s", key);
        p = name + n + braced;
    }
    VP_TRY_ALLOC(err, !out->failed);
out:
    return st;
}

/* A program that may train: a script of Python's, a trainer's of its own. */
static bool may_train(const vp_checked_file *file)
{
    return file->doc &&
           (file->dialect || (file->doc->program && strstr(file->doc->program, ".py")));
}

/* The last file is taken back, with what was found in it. */
static void take_back(vp_checked *c, int n_files, int64_t n_findings, int n_errors)
{
    memset(&c->files[n_files], 0, sizeof c->files[n_files] * (size_t)(c->n_files - n_files));
    c->n_files    = n_files;
    c->n_findings = n_findings;
    c->n_errors   = n_errors;
}

vp_status vp_check_open_commands(vp_checked *c, int i, const vp_check_opts *opts, vp_err *err)
{
    const vp_document *doc     = c->files[i].doc;
    int                n_files = c->n_files, n_errors = c->n_errors;
    int64_t            n_findings = c->n_findings;
    vp_text            text       = {0};
    vp_status          st         = VP_OK;

    if (!doc || !doc->commands || n_files == VP_CHECK_MAX_FILES)
        return VP_OK;
    VP_TRY(fill(doc, &text, err));
    c->files[n_files].is_commands = true;
    VP_TRY(vp_check_open(c,
                         &(vp_check_input){.path    = c->files[i].name,
                                           .bytes   = vp_text_string(&text),
                                           .n_bytes = (int64_t)text.n_bytes,
                                           .format  = VP_FORMAT_FLAGS},
                         opts, NULL, err));
    const vp_checked_file *own  = &c->files[n_files];
    int                    line = own->doc ? own->doc->root->line : 0;
    /* `llamafactory-cli train args.json` of a dictionary that the Python writes there says nothing more */
    bool reads = own->dialect == c->files[i].dialect && own->doc && !own->doc->root->first;
    bool both  = c->files[i].dialect && own->dialect && !reads;
    if (!may_train(own) || c->files[i].dialect) {
        if (!c->files[i].doc->written && own->doc)
            c->files[i].doc->written = own->doc->written;
        take_back(c, n_files, n_findings, n_errors);
        if (both) {
            vp_find(c, &c->files[i], VP_NOTE, &(vp_value){.kind = VP_VALUE_NULL, .line = line}, "",
                    NULL,
                    "a command that trains, not judged beside the notebook's own Python; behind -- "
                    "it is");
            c->findings[c->n_findings - 1].from = NULL;
        }
        goto out;
    }
    c->files[i].is_spoken_for = true;
    for (int part = i + 1; part < n_files && c->files[part].is_part; part++)
        c->files[part].doc = NULL; /* to try what was trained */
out:
    vp_text_release(&text);
    return st;
}

static bool is_settings(const char *path)
{
    static const char *const ends[] = {".py", ".json", ".yaml", ".yml", ".toml", ".sh"};
    const char              *dot    = strrchr(path, '.');

    for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++)
        if (strcmp(dot, ends[i]) == 0)
            return true;
    return false;
}

vp_status vp_check_open_written(vp_checked *c, const vp_check_opts *opts, vp_err *err)
{
    vp_status st = VP_OK;

    for (int i = 0; i < c->n_files; i++)
        if (c->files[i].dialect || c->files[i].is_written)
            return VP_OK;
    for (int i = 0, n = c->n_files; i < n; i++)
        for (const vp_written *w = c->files[i].doc ? c->files[i].doc->written : NULL; w;
             w                   = w->next) {
            int     n_files = c->n_files, n_errors = c->n_errors;
            int64_t n_findings = c->n_findings;
            if (!is_settings(w->path) || n_files == VP_CHECK_MAX_FILES)
                continue;
            c->files[n_files].is_written = true;
            VP_TRY(vp_check_open(
                c, &(vp_check_input){.path = w->path, .bytes = w->bytes, .n_bytes = w->n_bytes},
                opts, NULL, err));
            if (c->files[n_files].dialect)
                c->files[i].is_spoken_for = true;
            else
                take_back(c, n_files, n_findings, n_errors);
        }
out:
    return st;
}
