/* cli/paint.h: what a terminal shows beside letters: colours, and bars.
 *     printf("%sFITS%s", vp_paint(VP_PAINT_GOOD), vp_paint_end());
 *     printf("%s", vp_bar(0.12, 24, buf, sizeof buf));
 *
 * Standard output that is no terminal gets plain ASCII without escapes, so that what stands in a
 * file or a pipe is the same everywhere. On a terminal: colours, unless NO_COLOR is set to
 * anything (no-color.org) or TERM is dumb; block characters where the locale (LC_ALL, LC_CTYPE,
 * LANG, the first that is set) is one of UTF-8, '#' elsewhere. */
#ifndef VP_CLI_PAINT_H
#define VP_CLI_PAINT_H

#include <stddef.h>

typedef enum vp_paint_kind {
    VP_PAINT_GOOD,
    VP_PAINT_BAD,
    VP_PAINT_HEAD,    /* the head of a table */
    VP_PAINT_COMMAND, /* what may be pasted  */
    VP_PAINT_BAR,
    VP_N_PAINTS
} vp_paint_kind;

/* The escape that begins a colour, and the one that ends all; "" where there are no colours. */
const char *vp_paint(vp_paint_kind kind);
const char *vp_paint_end(void);

/* A bar of this share (0 to 1) of so many columns: to an eighth of a column in block characters, to
 * a whole one in '#', at least one for anything above 0. Returns buf. */
const char *vp_bar(double share, int columns, char *buf, size_t buf_size);

/* Whether block characters may be drawn. */
int vp_paint_is_unicode(void);

#endif
