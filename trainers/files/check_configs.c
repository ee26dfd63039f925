/* trainers/files/check_configs.c: settings files that scripts read by themselves and take by names of their own: config.yaml of
 * `cfg = yaml.safe_load(open("config.yaml"))`. Their keys are the script's, and no trainer's. */
#include "trainers/files/check_internal.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* A file that a script reads so. */
typedef struct vp_check_config {
    const char             *script, *name; /* whose it is, and its own */
    vp_document            *doc;           /* NULL: it is not there, or is none */
    int                     line;          /* of the script */
    struct vp_check_config *next;
} vp_check_config;

static bool is_settings(const char *path)
{
    static const char *const ends[] = {".yaml", ".yml", ".json", ".toml"};

    for (size_t i = 0, n = path ? strlen(path) : 0; n && i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(path + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* Of two paths the one ends as the other is, by whole names. */
static bool is_tail(const char *path, const char *tail)
{
    while (strncmp(tail, "./", 2) == 0 || strncmp(tail, "../", 3) == 0)
        tail += tail[1] == '/' ? 2 : 3;
    size_t n = strlen(path), m = strlen(tail);
    return n >= m && strcmp(path + n - m, tail) == 0 && (n == m || path[n - m - 1] == '/');
}

/* The only file that was given and that path may be, by its end or by its name alone; path NULL: any settings file. NULL: there is none,
 * or there are several. */
static const char *given_as(const vp_checked *c, const char *path, bool by_name)
{
    const char *only = NULL, *slash = path && by_name ? strrchr(path, '/') : NULL;

    for (int i = 0; i < c->n_inputs; i++) {
        const char *own = c->inputs[i].path;
        if (!own || !is_settings(own) || (path && !is_tail(own, slash ? slash + 1 : path)))
            continue;
        if (only)
            return NULL;
        only = own;
    }
    return only;
}

/* The settings file among the words of the command, behind its script, or of its options the only one; those of engines and launchers
 * are none of a script's own. */
static const char *said_by(vp_checked *c, const vp_document *command)
{
    const char *only = NULL;

    for (const char *p = command ? command->program : NULL; p && *p;
         p += strcspn(p, " "), p += *p == ' ') {
        const char *word = vp_arena_printf(c->arena, "%.*s", (int)strcspn(p, " "), p);
        if (word && is_settings(word))
            return word;
    }
    for (const vp_value *v = command ? command->root->first : NULL; v; v = v->next) {
        if (v->kind != VP_VALUE_STRING || !is_settings(v->text) || strstr(v->key, "deepspeed") ||
            strstr(v->key, "accelerate") || strstr(v->key, "fsdp") || strstr(v->key, "data"))
            continue;
        if (only && strcmp(only, v->text) != 0)
            return NULL;
        only = v->text;
    }
    return only;
}

const vp_document *vp_check_config_of(void *of, const char *path, int line)
{
    const vp_check_source *x     = of;
    vp_checked            *c     = x->c;
    vp_check_config      **end   = &c->configs, *made;
    vp_err                 inner = {0};
    const char            *found;

    if (path && !is_settings(path))
        return NULL;
    if (!path)
        path = said_by(c, x->command);
    found = given_as(c, path, false);
    if (!found && path && x->follows)
        found = vp_check_find(c->arena, x->script, path);
    if (!found && path)
        found = given_as(c, path, true);
    if (!found && !path)
        return NULL;
    const char *name = found ? found : path;
    for (; *end; end = &(*end)->next)
        if (strcmp((*end)->name, name) == 0)
            return (*end)->doc;
    *end = made = vp_arena_alloc(c->arena, sizeof *made);
    if (!made)
        return NULL; /* the arena stays failed */
    *made = (vp_check_config){.script = x->script, .name = name, .line = line};
    if (found && vp_document_read(c->arena, found, VP_FORMAT_BY_NAME, &made->doc, &inner) != VP_OK)
        made->doc = NULL;
    return made->doc;
}

void vp_check_say_configs(vp_checked *c)
{
    char shown[256];

    for (const vp_check_config *x = c->configs; x; x = x->next)
        for (int f = 0; f < c->n_files; f++) {
            vp_checked_file *file = &c->files[f];
            if (file->doc && x->doc && strcmp(file->name, x->name) == 0 && !file->is_part) {
                file->dialect = NULL, file->is_spoken_for = true;
                continue;
            }
            if (file->is_part || strcmp(file->name, x->script) != 0)
                continue;
            vp_value at = {.kind = VP_VALUE_NULL, .line = x->line};
            vp_find(c, file, VP_NOTE, &at, "", NULL,
                    x->doc
                        ? "%s is read here: its keys are the script's own, and count where it "
                          "takes them"
                        : "%s, which is read here, is neither here nor beside this file: what it "
                          "says is missing from this answer",
                    vp_text_escape(x->name, shown, sizeof shown));
            c->findings[c->n_findings - 1].from = NULL;
        }
}
