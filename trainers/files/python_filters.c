/* trainers/files/python_filters.c: of the many things that a comprehension may be those that leave members out by their key, or where they
 * are None. */
#include "trainers/files/python_filters.h"

#include "trainers/files/python_names_internal.h"

#include <string.h>

typedef struct filter {
    vp_piece key, value, of; /* their names, and the dictionary's */
    vp_piece without;        /* a text in quotes; at NULL: no key is left out */
    bool     no_none;
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

static bool take_condition(filter *f, const vp_piece *p)
{
    vp_piece before, behind;

    if (cut(p, vp_piece_word(p, "is not"), 6, &before, &behind)) {
        f->no_none = vp_piece_same(&before, &f->value) && vp_piece_is(&behind, "None");
        return f->no_none;
    }
    if (!cut(p, vp_piece_word(p, "!="), 2, &before, &behind) || !is_quoted(&behind))
        return false;
    f->without = (vp_piece){behind.at + 1, behind.end - 1, behind.line};
    return vp_piece_same(&before, &f->key);
}

static bool take(filter *f, const vp_piece *inner)
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
    if (cut(&of, vp_piece_word(&of, "if"), 2, &f->of, &condition) && !take_condition(f, &condition))
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
    if (!close || !r->names || !take(&f, &inner))
        return VP_OK;
    VP_TRY(vp_names_read_piece(r, &f.of, &known, true, &ok));
    if (!ok || known.kind != VP_VALUE_MAP || known.call)
        goto out;
    v->kind = VP_VALUE_MAP, v->call = NULL, v->first = v->last = NULL, v->n_children = 0;
    for (const vp_value *m = known.first; m; m = m->next)
        if (!(f.no_none && m->kind == VP_VALUE_NULL) &&
            !(f.without.at && vp_piece_is(&f.without, m->key)))
            VP_TRY(vp_python_put(r, v, m, true));
    *is_one = true;
    for (; r->at <= close; r->at++)
        if (*r->at == '\n')
            r->line++, r->line_start = r->at + 1;
out:
    return st;
}
