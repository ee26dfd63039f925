#include "trainers/files/python_formats.h"

#include "trainers/files/python_adapters.h"
#include "trainers/files/python_calls.h"

#include <ctype.h>
#include <string.h>

static const char *const formats[][2] = {
    {"bfloat16", "bfloat16"}, {"float16", "float16"}, {"half", "float16"},  {"float32", "float32"},
    {"float", "float32"},     {"float64", "float64"}, {"double", "float64"}};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* A word of Python, "torch.float16", within a text; NULL: it is not there. */
static const char *format_in(const char *at, const char *end)
{
    static const char torch[] = "torch.";

    for (; (at = memmem(at, (size_t)(end - at), torch, sizeof torch - 1)) != NULL; at++) {
        const char *word = at + sizeof torch - 1;
        size_t      n    = 0;
        while (word + n < end && is_letter(word[n]))
            n++;
        for (int i = 0; i < N_FORMATS; i++)
            if (strlen(formats[i][0]) == n && memcmp(word, formats[i][0], n) == 0)
                return formats[i][1];
    }
    return NULL;
}

/* Behind the bracket that closes the one at `at`. */
static const char *behind_bracket(const char *at, const char *end)
{
    int depth = 0;

    for (; at < end; at++) {
        depth += strchr("([{", *at) ? 1 : strchr(")]}", *at) ? -1 : 0;
        if (depth == 0)
            return at + 1;
    }
    return end;
}

/* Of .to("cuda").half().eval(): the last format; NULL: none is said. */
static const char *format_of_chain(const char *at, const char *end)
{
    const char *said = NULL;

    while (at < end && *at == '.') {
        const char *name = at + 1, *open = name, *close;
        while (open < end && is_letter(*open))
            open++;
        if (open == end || *open != '(')
            break;
        close    = behind_bracket(open, end);
        size_t n = (size_t)(open - name);
        if (n == 2 && memcmp(name, "to", 2) == 0) {
            const char *one = format_in(open, close);
            said            = one ? one : said;
        }
        for (int i = 0; i < N_FORMATS && close == open + 2; i++)
            if (strlen(formats[i][0]) == n && memcmp(name, formats[i][0], n) == 0)
                said = formats[i][1];
        at = close;
    }
    return said;
}

/* Whether the statement makes a trainer, as far as its letters say. */
static bool makes_trainer(const vp_python_reader *r, const char *from)
{
    const char *p = from, *call = NULL;

    if (strncmp(from, "class ", 6) == 0 || strncmp(from, "def ", 4) == 0)
        return false;
    while ((call = vp_python_next_call(r, from, &p)) && !vp_python_trains_model(call))
        ;
    return call != NULL;
}

vp_status vp_python_note_format(vp_python_reader *r, const char *from, int line)
{
    if (r->at > from && makes_trainer(r, from))
        r->trains_line = line;
    for (vp_document *part = r->doc->parts; part; part = part->next) {
        size_t n = part->variable && vp_python_loads_model(part->call) ? strlen(part->variable) : 0;
        if (!n || r->at - from <= (ptrdiff_t)n || memcmp(from, part->variable, n) != 0 ||
            !strchr(". =", from[n]) || r->trains_line > part->root->line)
            continue;
        const char *call = from;
        if (from[n] != '.') /* behind the sign */
            call = memmem(from + n, (size_t)(r->at - from) - n, part->variable, n);
        const char *said = call ? format_of_chain(call + n, r->at) : NULL;
        if (!said)
            continue;
        vp_value *v = vp_value_add(part, part->root, "dtype");
        if (!v)
            return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
        v->kind = VP_VALUE_STRING, v->quoted = true, v->text = said, v->line = line;
        if (r->may_run)
            vp_python_be_unread(v);
    }
    return VP_OK;
}

bool vp_python_is_reloaded(const vp_python_reader *r, const vp_value *v)
{
    if (!r->trains_line || !vp_python_loads_model(v->call))
        return false;
    for (const vp_document *part = r->doc->parts; part; part = part->next)
        if (vp_python_loads_model(part->call) && part->root->line < r->trains_line)
            return true;
    return false;
}
