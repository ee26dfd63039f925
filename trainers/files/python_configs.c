/* trainers/files/python_configs.c: a name is followed to the call that reads a file, and its attributes and keys are looked up there. */
#include "trainers/files/python_configs.h"

#include "trainers/files/script_values.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LETTERS = 200 };

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_one_of(const vp_piece *p, const char *const *list)
{
    for (; *list; list++)
        if (vp_piece_is(p, *list))
            return true;
    return false;
}

/* ---- which file ---- */

static bool ends_as_settings(const char *at, const char *end)
{
    static const char *const ends[] = {".yaml", ".yml", ".json", ".toml"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        ptrdiff_t n = (ptrdiff_t)strlen(ends[i]);
        if (end - at > n && memcmp(end - n, ends[i], (size_t)n) == 0)
            return true;
    }
    return false;
}

/* The only text in quotes that names a settings file: Path(__file__).parent / "config.yaml"; NULL. */
static const char *quoted_in(const vp_python_reader *r, const vp_piece *p)
{
    const char *found = NULL;
    int         line  = 0;

    for (const char *at = p->at; at < p->end;) {
        if (*at != '"' && *at != '\'') {
            at++;
            continue;
        }
        const char *behind = vp_piece_behind_string(at, p->end, &line);
        if (behind - at > 2 && ends_as_settings(at + 1, behind - 1) &&
            !memchr(at + 1, '{', (size_t)(behind - at - 2))) {
            if (found)
                return NULL;
            found = vp_arena_printf(r->doc->arena, "%.*s", (int)(behind - at - 2), at + 1);
        }
        at = behind;
    }
    return found;
}

/* What `with open(path) as f:` has in its brackets, of the last before a line; at NULL: there is none. */
static vp_piece opened_as(const vp_python_reader *r, const vp_piece *name)
{
    vp_piece found = {NULL, NULL, 0};
    int      line  = 1;

    for (const char *at = r->begin; at < r->end && line <= name->line; at++) {
        line += *at == '\n';
        if (*at != '(' || at - r->begin < 4 || memcmp(at - 4, "open", 4) != 0)
            continue;
        vp_piece    inner = {at + 1, r->end, line};
        const char *close = vp_piece_find(&inner, ")"), *as = close ? close + 1 : NULL;
        if (!close)
            continue;
        while (as < r->end && *as == ' ')
            as++;
        if (r->end - as > name->end - name->at + 3 && strncmp(as, "as ", 3) == 0 &&
            memcmp(as + 3, name->at, (size_t)(name->end - name->at)) == 0 &&
            !is_letter(as[3 + (name->end - name->at)]))
            found = (vp_piece){at + 1, close, line};
    }
    return found;
}

/* The path that a piece of the text says, as the command has it; NULL: nobody knows. */
static const char *path_of(const vp_python_reader *r, vp_piece p, int depth)
{
    vp_python_reader own   = *r;
    vp_value         v     = {.key = "", .line = p.line};
    vp_piece         first = {NULL, NULL, 0};
    bool             ok;

    p = vp_piece_trim(p);
    if (!p.at || p.at >= p.end || depth > VP_NAMES_MAX_DEPTH)
        return NULL;
    const char *open = p.at;
    while (open < p.end && (is_letter(*open) || *open == '.'))
        open++;
    bool is_call = open < p.end && *open == '(' && open > p.at;
    if (is_call) { /* open(path), Path(path).open(), f.read(): what it is of */
        vp_piece    inner = {open + 1, p.end, p.line};
        const char *close = vp_piece_find(&inner, ")");
        inner.end         = close ? close : p.end;
        vp_piece rest = inner, dot = {p.at, memchr(p.at, '.', (size_t)(open - p.at)), p.line};
        if (vp_piece_next(&rest, &first)) {
            const char *path = path_of(r, first, depth + 1);
            if (path)
                return path;
        } else if (dot.end) {
            return path_of(r, dot, depth + 1);
        }
        return quoted_in(r, &p);
    }
    own.line = p.line;
    if (vp_names_read_piece(&own, &p, &v, true, &ok) == VP_OK && ok) {
        if (v.option && strcmp(v.option_type, VP_OPTION_PARAMETER) != 0 && r->doc->command)
            vp_script_value_given(r->doc->command, &v);
        if (!v.call && v.kind == VP_VALUE_STRING && v.quoted)
            return v.text;
    }
    if (open == p.end) {
        first = opened_as(r, &p);
        return first.at && vp_piece_next(&first, &p) ? path_of(r, p, depth + 1) : NULL;
    }
    return quoted_in(r, &p);
}

/* ---- what reads it ---- */

static bool is_reader(const vp_piece *call)
{
    static const char *const reads[] = {"yaml.safe_load",
                                        "yaml.load",
                                        "yaml.full_load",
                                        "yaml.unsafe_load",
                                        "json.load",
                                        "json.loads",
                                        "toml.load",
                                        "tomllib.load",
                                        "tomli.load",
                                        "OmegaConf.load",
                                        NULL};

    return is_one_of(call, reads);
}

vp_owner vp_names_config_made(const vp_python_reader *r, const vp_piece *call,
                              const vp_piece *brackets, int depth)
{
    static const char *const same[] = {"OmegaConf.create",
                                       "OmegaConf.to_container",
                                       "DictConfig",
                                       "EasyDict",
                                       "edict",
                                       "Box",
                                       "AttrDict",
                                       "DotDict",
                                       "DotMap",
                                       "Munch",
                                       "munchify",
                                       "dict",
                                       "SimpleNamespace",
                                       NULL};
    vp_owner                 none   = {.kind = VP_OWNER_NOTHING};
    vp_piece                 rest = *brackets, first, name = *call;
    const char              *path;

    if (!r->doc->config || !vp_piece_next(&rest, &first))
        return none;
    const char *dot    = memrchr(name.at, '.', (size_t)(name.end - name.at));
    vp_piece    last   = {dot ? dot + 1 : name.at, name.end, name.line};
    bool        is_own = is_one_of(&name, same) || is_one_of(&last, same);
    while (is_own && first.at < first.end && *first.at == '*')
        first.at++;
    if (is_own && vp_piece_is(&name, "dict") && vp_piece_next(&rest, &(vp_piece){0}))
        return none; /* and more beside it */
    if (is_own)
        return vp_names_config_of(r, first, depth + 1);
    if (!is_reader(&name))
        return none;
    path                   = path_of(r, first, depth);
    const vp_document *doc = r->doc->config(r->doc->config_of, path, call->line);
    if (!doc)
        return none;
    return (vp_owner){.kind     = VP_OWNER_CONFIG,
                      .tree     = doc->root,
                      .whole    = doc,
                      .is_omega = vp_piece_is(&name, "OmegaConf.load")};
}

/* ---- its parts ---- */

/* The member of OmegaConf's that `${a.b}` means; v itself where it is none; NULL: what it means no file says. */
static const vp_value *meant_by(const vp_owner *of, const vp_value *v, int depth)
{
    if (!v || v->kind != VP_VALUE_STRING || !v->text)
        return v;
    if (strcmp(v->text, "???") == 0)
        return NULL;
    if (!strstr(v->text, "${"))
        return v;
    size_t n = strlen(v->text);
    if (depth > VP_NAMES_MAX_DEPTH || n < 4 || n > MAX_LETTERS || strncmp(v->text, "${", 2) != 0 ||
        strcspn(v->text, "}") != n - 1 || strchr(v->text, ':'))
        return NULL;
    char path[MAX_LETTERS + 1];
    snprintf(path, sizeof path, "%.*s", (int)(n - 3), v->text + 2);
    return meant_by(of, vp_value_at(of->whole->root, path), depth + 1);
}

static const vp_value *member(const vp_owner *of, const char *key, size_t n)
{
    char name[MAX_LETTERS + 1];

    if (!of->tree || of->tree->kind != VP_VALUE_MAP || n > MAX_LETTERS)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)n, key);
    return vp_value_member(of->tree, name);
}

/* Of Hydra's: part of it stands in a file that is not there. */
static bool has_unknown(const vp_value *v)
{
    return v && v->kind == VP_VALUE_MAP && vp_value_member(v, VP_PYTHON_UNKNOWN);
}

vp_owner vp_names_config_part(const vp_owner *of, const char **at, const char *end,
                              bool *is_missing, bool *is_asked, vp_piece *otherwise)
{
    vp_owner    part     = *of;
    const char *p        = *at;
    bool        has_more = has_unknown(of->tree);

    *is_missing = *is_asked = false;
    *otherwise              = (vp_piece){NULL, NULL, 0};
    while (p < end && (*p == '.' || *p == '[') && !*is_missing) {
        const char *key = p + 1, *behind = NULL;
        size_t      n    = 0;
        bool        asks = false;
        if (*p == '[' && key < end && strchr("\"'", *key)) {
            int line = 0;
            behind   = vp_piece_behind_string(key, end, &line);
            n        = (size_t)(behind - key) - 2;
            key++;
            behind = behind < end && *behind == ']' ? behind + 1 : NULL;
        } else if (*p == '.') {
            while (key + n < end && is_letter(key[n]))
                n++;
            behind = key + n;
            if (behind < end && *behind == '(') { /* .get("a", 1) */
                vp_piece    inner = {behind + 1, end, 0}, rest, first;
                const char *close = vp_piece_find(&inner, ")");
                inner.end         = close ? close : end;
                rest              = inner;
                asks =
                    close && n == 3 && memcmp(key, "get", 3) == 0 && vp_piece_next(&rest, &first);
                first = asks ? vp_piece_trim(first) : first;
                behind =
                    asks && first.end - first.at > 1 && strchr("\"'", *first.at) ? close + 1 : NULL;
                if (behind) {
                    key = first.at + 1, n = (size_t)(first.end - first.at) - 2;
                    if (vp_piece_next(&rest, &first))
                        *otherwise = vp_piece_trim(first);
                }
            }
        }
        if (!behind)
            break;
        const vp_value *found = meant_by(&part, member(&part, key, n), 0);
        part.tree             = found;
        has_more              = has_more || has_unknown(found);
        *is_missing           = !found;
        *is_asked             = asks;
        p                     = behind;
        if (found)
            otherwise->at = NULL;
    }
    if (has_more && (!part.tree || part.tree->kind == VP_VALUE_MAP)) /* and nobody knows what */
        *is_missing = true, *is_asked = false;
    *at = p;
    return part;
}

/* A number that OmegaConf's reader sees in what PyYAML takes for a text: 1e-5. */
static void be_number(vp_value *v)
{
    char *end;

    if (v->quoted || !isdigit((unsigned char)*v->text))
        return;
    double real = strtod(v->text, &end);
    if (!*end)
        v->kind = VP_VALUE_REAL, v->real = real;
}

/* The value of a part, on the line that asks for it. */
static vp_status copy_part(vp_python_reader *r, const vp_owner *of, const vp_value *from, int line,
                           int depth, vp_value *v)
{
    const vp_value *known = meant_by(of, from, 0);
    vp_value        own   = *v, *child;
    vp_status       st    = VP_OK;

    if (!known || depth > VP_DOCUMENT_MAX_DEPTH || r->doc->n_values > VP_DOCUMENT_MAX_VALUES / 2) {
        vp_python_be_unread(v);
        return VP_OK;
    }
    *v     = *known;
    v->key = own.key, v->next = own.next, v->column = own.column;
    v->line   = line;
    v->option = NULL;
    if (!known->source)
        v->source = of->whole->name, v->source_line = known->line;
    if (v->kind == VP_VALUE_STRING && of->is_omega)
        be_number(v);
    if (v->kind == VP_VALUE_STRING)
        v->quoted = true;
    if (v->kind == VP_VALUE_NULL)
        v->text = "None";
    if (v->kind < VP_VALUE_LIST)
        return VP_OK;
    v->first = v->last = NULL, v->n_children = 0, v->index = NULL;
    for (const vp_value *m = known->first; m; m = m->next) {
        VP_TRY(vp_python_add(r, v, m->key, &child));
        VP_TRY(copy_part(r, of, m, line, depth + 1, child));
    }
out:
    return st;
}

vp_owner vp_names_config_of(const vp_python_reader *r, vp_piece p, int depth)
{
    vp_owner    none = {.kind = VP_OWNER_NOTHING};
    bool        is_missing, is_asked;
    vp_piece    otherwise;
    const char *at;

    p = vp_piece_trim(p);
    if (!r->doc->config || p.at >= p.end || !is_letter(*p.at) || depth > VP_NAMES_MAX_DEPTH)
        return none;
    vp_piece name = {p.at, p.at, p.line};
    while (name.end < p.end && is_letter(*name.end))
        name.end++;
    at = name.end;
    if (at == p.end || *at == '.' || *at == '[') {
        vp_owner of = vp_names_owner(r, &name, p.line, depth + 1);
        if (of.kind == VP_OWNER_CONFIG) {
            of = vp_names_config_part(&of, &at, p.end, &is_missing, &is_asked, &otherwise);
            return at == p.end && !is_missing ? of : none;
        }
    }
    while (name.end < p.end && (is_letter(*name.end) || *name.end == '.'))
        name.end++;
    if (name.end == p.end || *name.end != '(')
        return none;
    vp_piece    brackets = {name.end + 1, p.end, p.line};
    const char *close    = vp_piece_find(&brackets, ")");
    brackets.end         = close ? close : p.end;
    vp_owner of          = close ? vp_names_config_made(r, &name, &brackets, depth + 1) : none;
    if (of.kind != VP_OWNER_CONFIG)
        return none;
    at = close + 1;
    of = vp_names_config_part(&of, &at, p.end, &is_missing, &is_asked, &otherwise);
    return at == p.end && !is_missing ? of : none;
}

enum { TAKES_OUT = 1, CHANGES = 2 };

/* What a script does to what a name holds: cfg.pop("a") takes something out, cfg["a"] = 1 and its like change it. */
static unsigned done_to(const vp_python_reader *r, const vp_piece *name)
{
    static const char *const changes[] = {".update(", ".setdefault(", ".merge_with(", ".clear("};
    size_t                   n         = (size_t)(name->end - name->at);
    unsigned                 done      = 0;

    for (const char *p = r->begin; (p = memmem(p, (size_t)(r->end - p), name->at, n)); p++) {
        const char *at = p + n, *from = at;
        if ((p > r->begin && (is_letter(p[-1]) || p[-1] == '.')) || at >= r->end || is_letter(*at))
            continue;
        if (p - r->begin > 4 && memcmp(p - 4, "del ", 4) == 0)
            return CHANGES;
        while (at < r->end && (*at == '.' || *at == '[')) {
            if (r->end - at > 5 && memcmp(at, ".pop(", 5) == 0)
                done |= TAKES_OUT;
            for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
                if ((size_t)(r->end - at) > strlen(changes[i]) &&
                    memcmp(at, changes[i], strlen(changes[i])) == 0)
                    return CHANGES;
            const char *close =
                *at == '[' ? vp_piece_find(&(vp_piece){at + 1, r->end, 0}, "]\n") : NULL;
            at = close && *close == ']' ? close + 1 : at + 1;
            while (at < r->end && is_letter(*at))
                at++;
        }
        const char *sign = at;
        while (sign < r->end && strchr(" +-*/|", *sign))
            sign++;
        if (at > from && sign + 1 < r->end && *sign == '=' && sign[1] != '=')
            return CHANGES;
    }
    return done;
}

vp_status vp_python_read_config(vp_python_reader *r, const char *from, int line, vp_value *v,
                                bool *is_one)
{
    vp_piece    name = {from, from, line}, otherwise;
    const char *at;
    bool        is_missing, is_asked, ok;
    vp_status   st = VP_OK;

    *is_one = false;
    if (!r->doc->config || !r->names || !r->names->reads_configs)
        return VP_OK;
    while (name.end < r->end && is_letter(*name.end))
        name.end++;
    at          = name.end;
    vp_owner of = {.kind = VP_OWNER_NOTHING};
    if (at >= r->end || *at != '(')
        of = vp_names_owner(r, &name, line, 0);
    if (of.kind != VP_OWNER_CONFIG) { /* OmegaConf.to_container(cfg.train) */
        while (name.end < r->end && (is_letter(*name.end) || *name.end == '.'))
            name.end++;
        vp_piece    brackets = {name.end + 1, r->end, line};
        const char *close =
            name.end < r->end && *name.end == '(' ? vp_piece_find(&brackets, ")") : NULL;
        brackets.end = close;
        at           = close ? close + 1 : at;
        if (!close || vp_piece_is(&name, "dict") || is_reader(&name))
            return VP_OK;
        of = vp_names_config_made(r, &name, &brackets, 0);
    }
    unsigned done = of.kind == VP_OWNER_CONFIG ? done_to(r, &name) : 0;
    if (of.kind != VP_OWNER_CONFIG || (done & CHANGES))
        return VP_OK;
    of      = vp_names_config_part(&of, &at, r->end, &is_missing, &is_asked, &otherwise);
    *is_one = true;
    if (is_missing && !is_asked) { /* an error when it runs, or of another file */
        v->kind = VP_VALUE_STRING;
        v->text = vp_arena_printf(r->doc->arena, "%.*s", (int)(at - from), from);
        VP_TRY_ALLOC(r->err, v->text);
    } else if (is_missing && otherwise.at) {
        otherwise.line = line;
        VP_TRY(vp_names_read_piece(r, &otherwise, v, false, &ok));
        if (!ok)
            vp_python_be_unread(v);
    } else if (is_missing) {
        v->kind = VP_VALUE_NULL, v->text = "None";
    } else if (done && of.tree->kind == VP_VALUE_MAP) {
        v->kind = VP_VALUE_STRING, v->text = "...";
    } else {
        VP_TRY(copy_part(r, &of, of.tree, line, 0, v));
    }
    r->at = at;
out:
    return st;
}
