#include "cli/paint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char *environment(const char *name)
{
    const char *value = getenv(name);

    return value ? value : "";
}

static int has_colours(void)
{
    const char *term = environment("TERM");

    return isatty(STDOUT_FILENO) && !environment("NO_COLOR")[0] && term[0] &&
           strcmp(term, "dumb") != 0;
}

int vp_paint_is_unicode(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char              *locale  = "";

    for (size_t i = 0; i < sizeof names / sizeof *names && !locale[0]; i++)
        locale = environment(names[i]);
    return isatty(STDOUT_FILENO) && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"));
}

const char *vp_paint(vp_paint_kind kind)
{
    static const char *const escapes[VP_N_PAINTS] = {
        [VP_PAINT_GOOD] = "\033[1;32m",  [VP_PAINT_BAD] = "\033[1;31m", [VP_PAINT_HEAD] = "\033[1m",
        [VP_PAINT_COMMAND] = "\033[36m", [VP_PAINT_BAR] = "\033[34m",
    };

    return has_colours() ? escapes[kind] : "";
}

const char *vp_paint_end(void)
{
    return has_colours() ? "\033[0m" : "";
}

/* The left eighths of a column, U+258F to U+2589. */
static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};

const char *vp_bar(double share, int columns, char *buf, size_t buf_size)
{
    int         steps  = vp_paint_is_unicode() ? 8 : 1;
    const char *full   = steps == 8 ? "█" : "#";
    int         filled = (int)(share * columns * steps + 0.5);

    assert(share >= 0 && share <= 1 && columns > 0);
    assert(buf_size > (size_t)columns * 3 + 3); /* a block character has three bytes */
    if (share > 0 && filled == 0)
        filled = 1;
    buf[0] = '\0';
    for (int i = 0; i < filled / steps; i++)
        strcat(buf, full);
    return strcat(buf, eighths[filled % steps]);
}
