/* trainers/files/edit_diff.c: the lines in which two texts of a file differ. */
#include "trainers/files/edit.h"

#include <string.h>

enum { LOOK_AHEAD = 40 };

static const char *line_after(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

static bool same_line(const char *a, const char *b)
{
    size_t n = strcspn(a, "\n");

    return n == strcspn(b, "\n") && memcmp(a, b, n) == 0;
}

/* How many lines of `in` come before one that is `line`; LOOK_AHEAD: none of those near. */
static int lines_before(const char *in, const char *line)
{
    for (int i = 0; i < LOOK_AHEAD && *in; i++, in = line_after(in))
        if (same_line(in, line))
            return i;
    return LOOK_AHEAD;
}

static const char *show(vp_text *out, char sign, const char *line, int number)
{
    vp_text_printf(out, "%5d %c %.*s\n", number, sign, (int)strcspn(line, "\n"), line);
    return line_after(line);
}

void vp_edits_diff(const char *name, const char *before, const char *after, vp_text *out)
{
    int line = 1;

    vp_text_printf(out, "%s\n", name);
    while (*before || *after) {
        if (*before && *after && same_line(before, after)) {
            before = line_after(before);
            after  = line_after(after);
            line++;
            continue;
        }
        int gone = *after ? lines_before(before, after) : LOOK_AHEAD;
        int come = *before ? lines_before(after, before) : LOOK_AHEAD;
        if (*before && (!*after || gone <= come)) {
            before = show(out, '-', before, line);
            line++;
            if (gone == LOOK_AHEAD && *after)
                after = show(out, '+', after, line - 1);
        } else {
            after = show(out, '+', after, line);
        }
    }
}
