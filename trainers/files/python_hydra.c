/* trainers/files/python_hydra.c: `@hydra.main(config_path="conf", config_name="config")` above a function: the settings that it is handed,
 * put together as Hydra does it of 1.1 to 1.3 (hydra/_internal/defaults_list.py, config_loader_impl.py): each file's list of defaults in its
 * order, its own keys where _self_ stands or last, a group's file under the group's name or its @package, then what the command sets. */
#include "trainers/files/python_configs.h"

#include <stdio.h>
#include <string.h>

enum { MAX_FILES = 64, MAX_NESTED = 8, MAX_PATH = 400 };

typedef struct composer {
    const vp_python_reader *r;
    const char             *folder; /* config_path */
    int                     line;   /* of the script */
    vp_document            *made;
    vp_value               *choices; /* "override /group: option" of any file, a map */
    int                     n_files;
    bool                    is_omega;
} composer;

static const char *print(const composer *x, const char *fmt, const char *a, const char *b)
{
    return vp_arena_printf(x->made->arena, fmt, a, b);
}

/* ---- one tree into another ---- */

static void put(composer *x, vp_value *map, const vp_value *m, const vp_document *from);

static void put_members(composer *x, vp_value *map, const vp_value *from, const vp_document *doc)
{
    for (const vp_value *m = from->first; map && m; m = m->next)
        if (!(from == doc->root && strcmp(m->key, "defaults") == 0))
            put(x, map, m, doc);
}

static void put(composer *x, vp_value *map, const vp_value *m, const vp_document *from)
{
    vp_value *own   = m->key ? vp_value_member(map, m->key) : NULL;
    bool      joins = own && own->kind == VP_VALUE_MAP && m->kind == VP_VALUE_MAP;

    if (!own)
        own = vp_value_add(x->made, map, m->key);
    if (!own)
        return; /* no memory, or too many: the caller sees the former */
    if (!joins) {
        const vp_value was = *own;
        *own               = *m;
        own->key = was.key, own->next = was.next;
        own->source = from->name, own->source_line = m->line;
        own->first = own->last = NULL, own->n_children = 0, own->index = NULL;
    }
    for (const vp_value *k = m->kind >= VP_VALUE_LIST ? m->first : NULL; k; k = k->next)
        put(x, own, k, from);
}

/* What stands at a package is not known: a file is not there, or nobody says which. What comes later is known, beside it. */
static void forget(composer *x, const char *package)
{
    vp_value *v   = package[0] ? vp_value_make(x->made, package) : x->made->root;
    vp_value *own = NULL;

    if (!v)
        return;
    v->kind = VP_VALUE_MAP, v->text = NULL, v->first = v->last = NULL;
    v->n_children = 0, v->index = NULL;
    own = vp_value_add(x->made, v, VP_PYTHON_UNKNOWN);
    if (own)
        own->kind = VP_VALUE_STRING, own->text = "???";
}

/* ---- the list of defaults ---- */

static void take_file(composer *x, const char *file, const char *package, int depth);

/* What the command says of a group; NULL: nothing. */
static const vp_value *said(const composer *x, const char *group)
{
    const vp_document *command = x->r->doc->command;
    const vp_value    *all     = command ? command->overrides : NULL;

    return all ? vp_value_member(all, group) : NULL;
}

/* - model: llama, - override /model: llama, - optional /model@pkg: llama */
static void take_group(composer *x, const char *key, const vp_value *option, const char *group,
                       int depth)
{
    bool        is_override = strncmp(key, "override ", 9) == 0;
    vp_arena   *arena       = x->made->arena;
    const char *name, *whole;

    key += is_override || strncmp(key, "optional ", 9) == 0 ? 9 : 0;
    key += strspn(key, " ");
    int n         = (int)strcspn(key, "@");
    name          = key[0] == '/' ? vp_arena_printf(arena, "%.*s", n - 1, key + 1)
                    : group[0]    ? vp_arena_printf(arena, "%s/%.*s", group, n, key)
                                  : vp_arena_printf(arena, "%.*s", n, key);
    char *package = vp_arena_strdup(arena, key[n] ? key + n + 1 : name ? name : "");
    whole         = name ? print(x, "%s%s", name, key + n) : NULL;
    if (!name || !package || !whole)
        return; /* no memory: the arena stays failed */
    for (char *p = package; !key[n] && *p; p++)
        *p = *p == '/' ? '.' : *p;
    if (is_override) {
        vp_value *v = vp_value_add(x->made, x->choices, whole);
        if (v)
            v->kind = option->kind, v->text = option->text;
        return;
    }
    const vp_value *chosen = said(x, whole);
    if (!chosen)
        chosen = vp_value_member(x->choices, whole);
    option = chosen ? chosen : option;
    if (option->kind == VP_VALUE_NULL ||
        (option->text && (strcmp(option->text, "null") == 0 || !option->text[0])))
        return;
    if (option->kind == VP_VALUE_LIST) {
        for (const vp_value *m = option->first; m; m = m->next)
            if (m->text)
                take_file(x, print(x, "%s/%s", name, m->text), package, depth);
        return;
    }
    if (!option->text || strchr(option->text, '$') || strcmp(option->text, "???") == 0)
        forget(x, package);
    else
        take_file(x, print(x, "%s/%s", name, option->text), package, depth);
}

static void take_self(composer *x, const vp_document *doc, const char *package)
{
    const char *own       = doc->package ? doc->package : package;
    bool        is_global = strcmp(own, "_global_") == 0 || !own[0];
    vp_value   *map       = is_global ? x->made->root : vp_value_make(x->made, own);

    if (map && map->kind == VP_VALUE_NULL)
        map->kind = VP_VALUE_MAP;
    if (map && map->kind == VP_VALUE_MAP)
        put_members(x, map, doc->root, doc);
}

/* file: below the folder, "model/llama". */
static void take_file(composer *x, const char *file, const char *package, int depth)
{
    const char *slash = file ? strrchr(file, '/') : NULL;
    const char *end =
        file && strlen(file) > 5 && strcmp(file + strlen(file) - 5, ".yaml") == 0 ? "" : ".yaml";
    const char *path  = file ? print(x, x->folder[0] ? "%s/%s" : "%s%s", x->folder, file) : NULL;
    const char *whole = path ? print(x, "%s%s", path, end) : NULL;
    const vp_document *doc       = whole && depth < MAX_NESTED && x->n_files++ < MAX_FILES
                                       ? x->r->doc->config(x->r->doc->config_of, whole, x->line)
                                       : NULL;
    bool               is_merged = false;

    if (!doc) {
        forget(x, package);
        return;
    }
    const vp_value *defaults = vp_value_member(doc->root, "defaults");
    char            group[MAX_PATH];
    snprintf(group, sizeof group, "%.*s", slash ? (int)(slash - file) : 0, file);
    for (const vp_value *m = defaults && defaults->kind == VP_VALUE_LIST ? defaults->first : NULL;
         m; m              = m->next) {
        if (m->kind == VP_VALUE_MAP && m->first) {
            take_group(x, m->first->key, m->first, group, depth + 1);
        } else if (m->text && strcmp(m->text, "_self_") == 0) {
            take_self(x, doc, package);
            is_merged = true;
        } else if (m->text && m->kind == VP_VALUE_STRING) {
            take_file(x,
                      m->text[0] == '/' || !group[0] ? m->text + (m->text[0] == '/')
                                                     : print(x, "%s/%s", group, m->text),
                      package, depth + 1);
        }
    }
    if (!is_merged)
        take_self(x, doc, package);
}

/* trainer.args.lr=1e-5, +a=1, ~a of the command; a group's option is none of them. */
static void take_command(composer *x)
{
    const vp_document *command = x->r->doc->command;

    for (const vp_value *m = command && command->overrides ? command->overrides->first : NULL; m;
         m                 = m->next) {
        const char *key = m->key + strspn(m->key, "+");
        vp_value   *at  = vp_value_at(x->made->root, key);
        if (strpbrk(key, "/@~") || (at && at->kind == VP_VALUE_MAP && m->key[0] != '+'))
            continue;
        at = vp_value_make(x->made, key);
        if (!at || at == x->made->root)
            continue;
        const vp_value was = *at;
        *at                = *m;
        at->key = was.key, at->next = was.next, at->source = NULL;
        if (m->text && strpbrk(m->text, "$[{"))
            at->kind = VP_VALUE_STRING, at->text = "???";
    }
}

static vp_document *compose(const vp_python_reader *r, const char *folder, const char *name,
                            int line)
{
    composer x = {.r = r, .folder = folder, .line = line};

    x.choices = vp_arena_alloc(r->doc->arena, sizeof *x.choices);
    if (!x.choices)
        return NULL;
    x.choices->kind = VP_VALUE_MAP;
    for (int i = 0; i < 2; i++) { /* first for what files override of each other's choices */
        x.made = vp_document_new(r->doc->arena, name, VP_FORMAT_YAML);
        if (!x.made)
            return NULL;
        x.n_files = 0;
        take_file(&x, name, "", 0);
    }
    take_command(&x);
    return vp_value_member(x.made->root, VP_PYTHON_UNKNOWN) ? NULL : x.made;
}

/* ---- the decorator ---- */

static const char *text_of(const vp_python_reader *r, const vp_piece *brackets, const char *name,
                           int place)
{
    vp_python_reader own   = *r;
    vp_value         v     = {.key = "", .line = brackets->line};
    vp_piece         given = {NULL, NULL, 0};
    bool             ok    = false;

    if (!vp_names_argument(brackets, &(vp_piece){name, name + strlen(name), 0}, place, &given) ||
        !given.at || vp_names_read_piece(&own, &given, &v, false, &ok) != VP_OK || !ok ||
        v.kind != VP_VALUE_STRING || !v.quoted)
        return NULL;
    return v.text;
}

vp_owner vp_names_config_handed(const vp_python_reader *r, int function)
{
    static const char       sign[] = "hydra.main(";
    const vp_scanned_block *f      = &r->names->scan->blocks[function];
    vp_owner                none   = {.kind = VP_OWNER_NOTHING};
    const char             *at     = NULL;

    if (!r->doc->config || !f->decorated)
        return none;
    if (r->names->handed && r->names->handed_to == function)
        return (vp_owner){.kind     = VP_OWNER_CONFIG,
                          .tree     = r->names->handed->root,
                          .whole    = r->names->handed,
                          .is_omega = true};
    for (const char *p = r->begin; (p = memmem(p, (size_t)(f->name.at - p), sign, sizeof sign - 1));
         p++)
        at = p;
    if (!at)
        return none;
    vp_piece brackets = {at + sizeof sign - 1, f->name.at, f->decorated};
    brackets.end      = vp_piece_find(&brackets, ")");
    /* nothing but decorators between them */
    if (!brackets.end ||
        memmem(brackets.end, (size_t)(f->name.at - brackets.end), "def ", 4) != f->name.at - 4)
        return none;
    const char *name   = text_of(r, &brackets, "config_name", 1);
    const char *folder = text_of(r, &brackets, "config_path", 0);
    if (!name)
        return none;
    r->names->handed    = compose(r, folder ? folder : "", name, f->decorated);
    r->names->handed_to = function;
    return r->names->handed ? vp_names_config_handed(r, function) : none;
}
