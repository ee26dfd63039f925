/* trainers/files/python_texts.c: a text of several strings, or with values in it, is known where all of them are. */
#include "trainers/files/python_texts.h"

#include "trainers/files/python_scan.h"
#include "trainers/files/script_values.h"

#include <string.h>

/* How many letters stand before a string's quote; -1: there is no string. *is_formatted: f"{a}/{b}". */
static int prefix_of(const vp_python_reader *r, bool *is_formatted)
{
    int n = 0;

    *is_formatted = false;
    for (; n < 2 && r->end - r->at > n + 1 && strchr("rRfFuU", r->at[n]); n++)
        *is_formatted = *is_formatted || r->at[n] == 'f' || r->at[n] == 'F';
    return r->at + n < r->end && (r->at[n] == '"' || r->at[n] == '\'') ? n : -1;
}

bool vp_python_at_text(const vp_python_reader *r)
{
    bool is_formatted;

    return prefix_of(r, &is_formatted) >= 0;
}

/* A text that one of its parts' option has a say in is that option's. */
static void take_option(vp_value *whole, const vp_value *part)
{
    if (!part->option || whole->option)
        return;
    whole->option         = part->option;
    whole->option_line    = part->option_line;
    whole->option_type    = part->option_type;
    whole->option_letters = part->option_letters;
}

static bool is_of_command(const vp_value *v)
{
    return v->option && strcmp(v->option_type, VP_OPTION_PARAMETER) != 0;
}

/* What stands in the braces of a formatted string: a text or a number that is known; *text NULL: it is not. */
static vp_status read_braces(vp_python_reader *r, vp_piece p, vp_value *whole, int depth,
                             const char **text)
{
    vp_value         v     = {.key = "", .line = r->line};
    vp_python_reader inner = *r;
    vp_err           err   = {0};
    vp_status        st;

    *text    = NULL;
    p        = vp_piece_trim(p);
    inner.at = inner.line_start = p.at;
    inner.end = p.end, inner.in_sum = false, inner.err = &err;
    if (p.at >= p.end || vp_piece_find(&p, ":!"))
        return VP_OK;
    st = vp_python_read_value(&inner, &v, depth + 1);
    if (st == VP_ERR_NOMEM)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    if (st != VP_OK || inner.unread || inner.at < inner.end || v.call)
        return VP_OK;
    if (r->doc->command && is_of_command(&v))
        vp_script_value_given(r->doc->command, &v);
    if (v.call || !v.text || v.kind >= VP_VALUE_LIST || v.kind == VP_VALUE_NULL ||
        (v.kind == VP_VALUE_STRING && !v.quoted))
        return VP_OK;
    if (is_of_command(&v))
        v.option_type = VP_OPTION_SUM;
    take_option(whole, &v);
    *text = v.text;
    return VP_OK;
}

/* The text of f"..." from its first letter to its quote; what is not known in it leaves it unread. */
static vp_status read_formatted(vp_python_reader *r, vp_value *v, const char *from, const char *end,
                                int depth)
{
    const char *text = "", *one, *close;
    vp_status   st   = VP_OK;

    for (const char *p = from; p < end && !r->unread;) {
        size_t n = 0; /* no further than the string goes */
        while (n < (size_t)(end - p) && !strchr("{}\\", p[n]))
            n++;
        bool is_brace = n == 0 && p + 1 < end && p[1] == *p && *p != '\\';
        if (n || is_brace) {
            text = vp_arena_printf(r->doc->arena, "%s%.*s", text, (int)(n ? n : 1), p);
            VP_TRY_ALLOC(r->err, text);
            p += n ? n : 2;
            continue;
        }
        close = *p == '{' ? vp_piece_find(&(vp_piece){p + 1, end, r->line}, "}") : NULL;
        one   = NULL;
        if (close)
            VP_TRY(read_braces(r, (vp_piece){p + 1, close, r->line}, v, depth, &one));
        r->unread = !one;
        if (one)
            VP_TRY_ALLOC(r->err, text = vp_arena_printf(r->doc->arena, "%s%s", text, one));
        p = close ? close + 1 : end;
    }
    v->text = text;
out:
    return st;
}

vp_status vp_python_read_text(vp_python_reader *r, vp_value *v, int depth)
{
    vp_value  own = *v;
    bool      is_formatted;
    int       n  = prefix_of(r, &is_formatted);
    vp_status st = VP_OK;

    for (bool first = true; n >= 0 && !r->unread; first = false) {
        vp_value    one   = {.line = own.line, .column = own.column};
        const char *from  = r->at + n;
        bool        three = r->end - from >= 3 && from[1] == from[0] && from[2] == from[0];
        r->at += is_formatted ? n : n && strchr("uU", *r->at) ? 1 : 0;
        VP_TRY(vp_python_read_string(r, &one));
        if (is_formatted)
            VP_TRY(read_formatted(r, &one, from + (three ? 3 : 1), r->at - (three ? 3 : 1), depth));
        if (first)
            vp_python_be_same(v, &one);
        else
            VP_TRY_ALLOC(r->err,
                         v->text = vp_arena_printf(r->doc->arena, "%s%s", v->text, one.text));
        take_option(v, &one);
        vp_python_reader before = *r;
        vp_python_skip(r, depth > 1);
        n = prefix_of(r, &is_formatted);
        if (n < 0)
            *r = before;
    }
out:
    return st;
}

static bool is_text(const vp_value *v)
{
    return v->kind == VP_VALUE_STRING && v->quoted && !v->call;
}

vp_status vp_python_join_texts(vp_python_reader *r, vp_value *v, int depth)
{
    vp_status st = VP_OK;

    while (!r->unread && is_text(v)) {
        vp_python_reader before = *r;
        vp_value         other  = {.line = v->line, .column = v->column};
        vp_python_skip(r, depth > 1);
        if (r->end - r->at < 2 || *r->at != '+' || r->at[1] == '=') {
            *r = before;
            break;
        }
        r->at++;
        vp_python_skip(r, depth > 1);
        r->in_sum = true;
        st        = vp_python_read_value(r, &other, depth + 1);
        r->in_sum = before.in_sum;
        VP_TRY(st);
        if (r->doc->command && is_of_command(&other))
            vp_script_value_given(r->doc->command, &other);
        if (r->doc->command && is_of_command(v))
            vp_script_value_given(r->doc->command, v);
        if (!is_text(&other) || !is_text(v)) {
            r->unread = true;
            break;
        }
        VP_TRY_ALLOC(r->err, v->text = vp_arena_printf(r->doc->arena, "%s%s", v->text, other.text));
        take_option(v, &other);
        if (is_of_command(v))
            v->option_type = VP_OPTION_SUM;
    }
out:
    return st;
}
