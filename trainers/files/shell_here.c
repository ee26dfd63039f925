/* trainers/files/shell_here.c: files that a script of the shell's writes from its own text: cat > c.yaml <<'EOF', tee c.yaml <<EOF. A
 * text in which variables stand is another file than its letters, and is none. */
#include "trainers/files/document.h"
#include "trainers/files/shell.h"

#include "base/text.h"

#include <ctype.h>
#include <string.h>

typedef struct lines {
    const char *at, *end;
} lines;

static bool next_line(lines *x, const char **from, const char **to)
{
    const char *newline;

    if (x->at >= x->end)
        return false;
    newline = memchr(x->at, '\n', (size_t)(x->end - x->at));
    *from   = x->at;
    *to     = newline ? newline : x->end;
    x->at   = newline ? newline + 1 : x->end;
    return true;
}

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

/* A word at p, without its quotes; NULL: there is none, or its text is not known. *quoted: it has some. */
static const char *take_word(vp_arena *arena, const char *p, const char *end, bool *quoted)
{
    static const char ends[] = " \t<>|;&";
    const char       *from   = skip_blanks(p, end);

    *quoted = from < end && strchr("'\"\\", *from);
    if (*quoted && *from != '\\') {
        const char *close = memchr(from + 1, *from, (size_t)(end - from - 1));
        return close ? vp_arena_printf(arena, "%.*s", (int)(close - from - 1), from + 1) : NULL;
    }
    from += *quoted;
    for (p = from; p < end && !strchr(ends, *p);)
        p++;
    return p > from && !memchr(from, '$', (size_t)(p - from))
               ? vp_arena_printf(arena, "%.*s", (int)(p - from), from)
               : NULL;
}

/* Where the text of a line's here-document goes; NULL: into a program. */
static const char *target_of(vp_arena *arena, const char *from, const char *end, bool *adds)
{
    const char *tee = NULL;
    bool        quoted;

    for (const char *p = from; p < end; p++)
        if (*p == '>' && (p == from || (!isdigit((unsigned char)p[-1]) && p[-1] != '&'))) {
            *adds = p + 1 < end && p[1] == '>';
            return take_word(arena, p + 1 + *adds, end, &quoted);
        }
    for (const char *p = from; (p = memmem(p, (size_t)(end - p), "tee ", 4)) != NULL; p++)
        tee = p + 4;
    if (!tee)
        return NULL;
    tee   = skip_blanks(tee, end);
    *adds = end - tee > 3 && strncmp(tee, "-a ", 3) == 0;
    return take_word(arena, tee + (*adds ? 3 : 0), end, &quoted);
}

static bool has_variable(const char *text)
{
    for (const char *p = text; (p = strpbrk(p, "$`")) != NULL; p++)
        if (*p == '`' || isalpha((unsigned char)p[1]) || strchr("_{(", p[1]))
            return true;
    return false;
}

static vp_status keep(vp_arena *arena, vp_written **list, const char *path, const vp_text *text,
                      bool adds, vp_err *err)
{
    vp_written **end = list;
    vp_status    st  = VP_OK;

    while (*end && strcmp((*end)->path, path) != 0)
        end = &(*end)->next;
    if (!*end) {
        *end = vp_arena_alloc(arena, sizeof **end);
        VP_TRY_ALLOC(err, *end);
        **end = (vp_written){.path = path, .bytes = ""};
    }
    (*end)->bytes = vp_arena_printf(arena, "%s%s", adds ? (*end)->bytes : "", vp_text_string(text));
    VP_TRY_ALLOC(err, (*end)->bytes && !text->failed);
    (*end)->n_bytes = (int64_t)strlen((*end)->bytes);
out:
    return st;
}

vp_status vp_shell_here(vp_arena *arena, const char *bytes, int64_t n, vp_written **out,
                        vp_err *err)
{
    lines       x = {bytes, bytes + n};
    const char *from, *to;
    vp_text     text = {0};
    vp_status   st   = VP_OK;

    while (next_line(&x, &from, &to)) {
        const char *sign = memmem(from, (size_t)(to - from), "<<", 2);
        bool        quoted, adds = false, tabs;
        if (!sign || (to - sign > 2 && sign[2] == '<') || *skip_blanks(from, to) == '#')
            continue;
        tabs               = to - sign > 2 && sign[2] == '-';
        const char *word   = take_word(arena, sign + 2 + tabs, to, &quoted);
        const char *target = target_of(arena, from, to, &adds);
        VP_TRY_ALLOC(err, !vp_arena_failed(arena));
        vp_text_release(&text);
        text = (vp_text){0};
        while (word && next_line(&x, &from, &to)) {
            while (tabs && from < to && *from == '\t')
                from++;
            if ((size_t)(to - from) == strlen(word) && strncmp(from, word, strlen(word)) == 0)
                break;
            vp_text_printf(&text, "%.*s\n", (int)(to - from), from);
        }
        if (word && target && *target && (quoted || !has_variable(vp_text_string(&text))))
            VP_TRY(keep(arena, out, target, &text, adds, err));
    }
out:
    vp_text_release(&text);
    return st;
}
