/* trainers/files/edit_list.c: members of a list that come or go, beside others that stay as they are written. */
#include "trainers/files/edit_internal.h"
#include "trainers/files/emit.h"

#include <string.h>

/* Whether "a+b" has this member. */
static bool is_among(const char *list, const char *text)
{
    size_t length = strlen(text);

    for (const char *p = list; *p; p += *p == '+') {
        size_t n = strcspn(p, "+");
        if (n == length && memcmp(p, text, n) == 0)
            return true;
        p += n;
    }
    return false;
}

/* The next of the wanted members that the list does not have, from *at on; NULL: none. */
static const char *next_new(const vp_editor *e, const vp_value *list, const char **at)
{
    while (**at) {
        size_t      n    = strcspn(*at, "+");
        const char *name = vp_arena_printf(e->arena, "%.*s", (int)n, *at);
        bool        has  = false;
        *at += n + ((*at)[n] == '+');
        for (const vp_value *m = list->first; m && name; m = m->next)
            has = has || (m->text && strcmp(m->text, name) == 0);
        if (!has)
            return name;
    }
    return NULL;
}

/* From where to where a member's text stands. */
static vp_status member_span(vp_editor *e, const vp_edit *x, const vp_value *m, bool flow,
                             size_t *from, size_t *to)
{
    size_t    n  = m->text ? strlen(m->text) : 0, end;
    vp_status st = VP_OK;

    *from = vp_edit_place(e, m);
    end   = vp_edit_line_end(e, *from);
    if (!n || !vp_edit_value_end(e, *from, end, flow, to))
        VP_TRY(vp_edit_by_hand(e, m->line, x->path, "a member takes several lines"));
    size_t quote = strchr("\"'", e->bytes[*from]) ? 1 : 0;
    if (*to - *from != n + 2 * quote || memcmp(e->bytes + *from + quote, m->text, n) != 0)
        VP_TRY(vp_edit_by_hand(e, m->line, x->path, "a member does not stand there itself"));
out:
    return st;
}

static const char *member_text(const vp_editor *e, const char *name, bool quoted)
{
    vp_value    v    = {.kind = VP_VALUE_STRING, .text = name, .quoted = true};
    vp_text     text = {0};
    const char *kept;

    if (quoted)
        return vp_arena_printf(e->arena, "\"%s\"", name);
    vp_value_write(&v, e->file->doc->format, &text);
    kept = text.failed ? NULL : vp_arena_strdup(e->arena, vp_text_string(&text));
    vp_text_release(&text);
    return kept;
}

/* Whether a member has its line, with the comma behind it, to itself. */
static bool has_own_line(const vp_editor *e, const vp_value *m, size_t from, size_t to)
{
    size_t end = vp_edit_line_end(e, from), behind = vp_edit_skip_spaces(e, to, end);

    if (!vp_edit_is_first(e, from))
        return false;
    if (m->next)
        return m->next->line > m->line && behind < end && e->bytes[behind] == ',';
    return !memchr(e->bytes + to, ']', end - to);
}

/* With its line where it has one to itself, else with a comma beside it. kept: the last one before it that stays; NULL: none. */
static vp_status drop_member(vp_editor *e, const vp_edit *x, const vp_value *m,
                             const vp_value *kept, bool flow)
{
    size_t    from, to, before, after, start;
    vp_status st = VP_OK;

    VP_TRY(member_span(e, x, m, flow, &from, &to));
    start = vp_edit_line_start(e, m->line);
    after = vp_edit_line_end(e, from);
    if (!flow && (e->bytes[start + strspn(e->bytes + start, " \t")] != '-'))
        VP_TRY(vp_edit_by_hand(e, m->line, x->path,
                               "it must go, and its dash stands in another line"));
    if (!flow || (e->file->doc->format == VP_FORMAT_YAML && has_own_line(e, m, from, to)))
        VP_TRY(vp_edit_put(e, start, after - start + (after < e->n_bytes), ""));
    else if (m->next)
        VP_TRY(vp_edit_put(e, from, vp_edit_place(e, m->next) - from, ""));
    else if (kept && member_span(e, x, kept, flow, &start, &before) == VP_OK)
        VP_TRY(vp_edit_put(e, before, to - before, ""));
    else
        VP_TRY(vp_edit_by_hand(e, m->line, x->path, "it must go, and is the last of its list"));
out:
    return st;
}

/* Behind the last one. */
static vp_status append_member(vp_editor *e, const vp_edit *x, const vp_value *last,
                               const char *text, bool flow)
{
    size_t    from, to, dash;
    vp_text   out = {0};
    vp_status st  = VP_OK;

    VP_TRY(member_span(e, x, last, flow, &from, &to));
    if (flow && !vp_edit_is_first(e, from)) {
        vp_text_printf(&out, ", %s", text);
    } else if (flow) {
        vp_text_printf(&out, ",%s%*s%s", e->eol, last->column - 1, "", text);
    } else {
        for (dash = from; dash > 0 && e->bytes[dash - 1] != '-' && e->bytes[dash - 1] != '\n';)
            dash--;
        if (!dash || !vp_edit_is_first(e, dash - 1))
            VP_TRY(vp_edit_by_hand(e, last->line, x->path, "its list stands inside another"));
        size_t at   = vp_edit_line_start(e, last->line);
        bool   open = vp_edit_line_end(e, from) == e->n_bytes;
        vp_text_printf(&out, "%s%.*s%s%s", open ? e->eol : "", (int)(from - at), e->bytes + at,
                       text, open ? "" : e->eol);
        to = open ? e->n_bytes : vp_edit_line_end(e, from) + 1;
    }
    VP_TRY_ALLOC(e->err, !out.failed);
    VP_TRY(vp_edit_put(e, to, 0, vp_arena_strdup(e->arena, out.data)));
out:
    vp_text_release(&out);
    return st;
}

vp_status vp_edit_list(vp_editor *e, const vp_edit *x, bool flow)
{
    const char     *wanted = x->to, *name = next_new(e, x->at, &wanted);
    const vp_value *kept = NULL, *last = x->at->first;
    size_t          from, to;
    vp_status       st = VP_OK;

    for (const vp_value *m = x->at->first; m; m = m->next) {
        last = m;
        if (m->text && is_among(x->to, m->text)) {
            kept = m;
        } else if (name) {
            VP_TRY(member_span(e, x, m, flow, &from, &to));
            VP_TRY(vp_edit_put(e, from, to - from, member_text(e, name, e->bytes[from] == '"')));
            name = next_new(e, x->at, &wanted);
            kept = m;
        } else {
            VP_TRY(drop_member(e, x, m, kept, flow));
        }
    }
    for (; name; name = next_new(e, x->at, &wanted)) {
        VP_TRY(member_span(e, x, last, flow, &from, &to));
        VP_TRY(append_member(e, x, last, member_text(e, name, e->bytes[from] == '"'), flow));
    }
out:
    return st;
}
