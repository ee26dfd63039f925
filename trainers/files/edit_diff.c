/* trainers/files/edit_diff.c: the lines in which two texts of a file differ. */
#include "trainers/files/edit.h"

#include <stdbool.h>
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

static const char *lines_after(const char *text, int n)
{
    while (n-- > 0 && *text)
        text = line_after(text);
    return text;
}

/* The fewest lines that go and come before both texts have the same line again; of a text that ends the rest. */
static void find_hunk(const char *before, const char *after, int *gone, int *come)
{
    for (int all = 1; all <= LOOK_AHEAD; all++)
        for (*gone = all; *gone >= 0; --*gone) {
            *come         = all - *gone;
            const char *a = lines_after(before, *gone), *b = lines_after(after, *come);
            if (*a && *b ? same_line(a, b) : !*a && !*b)
                return;
        }
    *gone = *before != '\0';
    *come = *after != '\0';
}

static const char *show(vp_text *out, char sign, const char *line, int number)
{
    vp_text_printf(out, "%5d %c %.*s\n", number, sign, (int)strcspn(line, "\n"), line);
    return line_after(line);
}

void vp_edits_diff(const char *name, const char *before, const char *after, vp_text *out)
{
    int line = 1, gone, come;

    vp_text_printf(out, "%s\n", name);
    while (*before || *after) {
        if (*before && *after && same_line(before, after)) {
            before = line_after(before);
            after  = line_after(after);
            line++;
            continue;
        }
        find_hunk(before, after, &gone, &come);
        bool pairs = gone == come; /* each line beside the one that takes its place */
        for (int i = 0; i < gone; i++) {
            before = show(out, '-', before, line++);
            if (pairs)
                after = show(out, '+', after, line - 1);
        }
        for (int i = 0; i < come && !pairs; i++)
            after = show(out, '+', after, gone ? line - 1 : line);
    }
}
