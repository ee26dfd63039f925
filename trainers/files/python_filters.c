/* trainers/files/python_filters.c: of the many things that a comprehension may be those that leave members out by their key, or where they
 * are None. */
#include "trainers/files/python_filters.h"

#include "trainers/files/python_names_internal.h"

#include <string.h>

typedef struct filter {
    vp_piece key, value, of; /* their names, and the dictionary's */
    vp_piece without;        /* a text in quotes; at NULL: no key is left out */
    bool     no_none;
    bool     by_class; /* what the called class lacks */
} filter;

/* A piece's two sides of a word or sign; false: it has none. */
static bool cut(const vp_piece *p, const char *at, size_t n, vp_piece *before, vp_piece *behind)
{
    if (!at)
        return false;
    *before = vp_piece_trim((vp_piece){p->at, at, p->line});
    *behind = vp_piece_trim((vp_piece){at + n, p->end, p->line});
    return before->at < before->end && behind->at < behind->end;
}

static bool is_quoted(const vp_piece *p)
{
    return p->end - p->at > 2 && strchr("\"'", *p->at) && p->end[-1] == *p->at &&
           !memchr(p->at + 1, *p->at, (size_t)(p->end - p->at - 2));
}

/* inspect.signature(SFTConfig.__init__).parameters, or a name for it. */
static bool is_of_class(const vp_python_reader *r, const vp_piece *p, bool by_name)
{
    static const char *const signs[] = {"parameters", "signature(", "__dataclass_fields__",
                                        "fields("};
    const vp_scan           *s       = r->names->scan;

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (memmem(p->at, (size_t)(p->end - p->at), signs[i], strlen(signs[i])))
            return true;
    for (int i = 0; by_name && i < s->n_values; i++)
        if (s->values[i].value.at && vp_piece_same(&s->values[i].name, p))
            return is_of_class(r, &s->values[i].value, false);
    return false;
}

static bool take_condition(const vp_python_reader *r, filter *f, const vp_piece *p)
{
    vp_piece before, behind;

    if (cut(p, vp_piece_word(p, "in"), 2, &before, &behind)) {
        f->by_class = vp_piece_same(&before, &f->key) && is_of_class(r, &behind, true);
        return f->by_class;
    }

    if (cut(p, vp_piece_word(p, "is not"), 6, &before, &behind)) {
        f->no_none = vp_piece_same(&before, &f->value) && vp_piece_is(&behind, "None");
        return f->no_none;
    }
    if (!cut(p, vp_piece_word(p, "!="), 2, &before, &behind) || !is_quoted(&behind))
        return false;
    f->without = (vp_piece){behind.at + 1, behind.end - 1, behind.line};
    return vp_piece_same(&before, &f->key);
}

static bool take(const vp_python_reader *r, filter *f, const vp_piece *inner)
{
    static const char items[] = ".items()";
    vp_piece          pair, rest, names, of, condition, key, value;

    if (!cut(inner, vp_piece_word(inner, "for"), 3, &pair, &rest) ||
        !cut(&pair, vp_piece_find(&pair, ":"), 1, &f->key, &f->value) ||
        !cut(&rest, vp_piece_word(&rest, "in"), 2, &names, &of) ||
        !cut(&names, vp_piece_find(&names, ","), 1, &key, &value) ||
        !vp_piece_same(&key, &f->key) || !vp_piece_same(&value, &f->value))
        return false;
    f->of = of;
    if (cut(&of, vp_piece_word(&of, "if"), 2, &f->of, &condition) &&
        !take_condition(r, f, &condition))
        return false;
    ptrdiff_t n = (ptrdiff_t)sizeof items - 1;
    if (f->of.end - f->of.at <= n || memcmp(f->of.end - n, items, (size_t)n) != 0)
        return false;
    f->of.end -= n;
    return true;
}

vp_status vp_python_read_filter(vp_python_reader *r, vp_value *v, bool *is_one)
{
    vp_piece    inner = {r->at + 1, r->end, r->line};
    const char *close = r->at < r->end && *r->at == '{' ? vp_piece_find(&inner, "}") : NULL;
    filter      f     = {.no_none = false};
    vp_value    known = {.key = "", .line = r->line};
    bool        ok    = false;
    vp_status   st    = VP_OK;

    *is_one   = false;
    inner.end = close;
    if (!close || !r->names || !take(r, &f, &inner))
        return VP_OK;
    VP_TRY(vp_names_read_piece(r, &f.of, &known, true, &ok));
    if (!ok || known.kind != VP_VALUE_MAP || known.call)
        goto out;
    v->kind = VP_VALUE_MAP, v->call = NULL, v->first = v->last = NULL, v->n_children = 0;
    for (const vp_value *m = known.first; m; m = m->next)
        if (!(f.no_none && m->kind == VP_VALUE_NULL) &&
            !(f.without.at && vp_piece_is(&f.without, m->key)))
            VP_TRY(vp_python_put(r, v, m, true));
    for (vp_value *m = f.by_class ? v->first : NULL; m; m = m->next)
        m->is_offered = true;
    *is_one = true;
    for (; r->at <= close; r->at++)
        if (*r->at == '\n')
            r->line++, r->line_start = r->at + 1;
out:
    return st;
}
