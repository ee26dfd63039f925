/* trainers/files/python_scan.h: what a script of Python has by name, found before it is read: classes, functions, what is assigned
 * where, and what calls what. Pieces of the text alone: none of them is looked into, and the scan knows no value. */
#ifndef VP_TRAINERS_FILES_PYTHON_SCAN_H
#define VP_TRAINERS_FILES_PYTHON_SCAN_H

#include "base/arena.h"

#include <stdbool.h>

/* A piece of the text, and the line on which it begins; at NULL: none. */
typedef struct vp_piece {
    const char *at, *end;
    int         line;
} vp_piece;

typedef struct vp_scanned_block { /* a class or a function */
    vp_piece name;
    bool     is_class;
    int      line, header_end,
        end;               /* lines: of the name, of the header's colon, of the last statement */
    int      indent, body; /* of its first letter, of its first statement; -1: it has none yet */
    int      above;        /* the block that it stands in; -1: none */
    vp_piece brackets;     /* what stands in those behind its name */
    bool     is_decorated;
    bool     is_mentioned; /* other than by a call */
    int      decorated;  /* the line of the first of what decorates a command of click's; 0: none */
    bool     is_command; /* fire.Fire(train), @app.command(): its parameters are options */
} vp_scanned_block;

typedef struct vp_scanned_value { /* a = value; of `return value` the name is return */
    vp_piece name, value;         /* value.at NULL: a loop, an import, a += 1 */
    int      place; /* of several names that are assigned at once, which; -1: it is alone */
    int      block, indent;
} vp_scanned_value;

typedef struct vp_scanned_call { /* name(brackets), of what the script defines or of a parser's */
    vp_piece name, brackets;
} vp_scanned_call;

enum { VP_SCAN_BLOCKS = 512, VP_SCAN_VALUES = 4096, VP_SCAN_CALLS = 4096 };

typedef struct vp_scan {
    vp_scanned_block *blocks;
    vp_scanned_value *values;
    vp_scanned_call  *calls;
    int               n_blocks, n_values, n_calls;
    bool              is_cut;       /* there is more than the tables hold: nothing is known */
    bool              sets_by_name; /* setattr(): what it sets the text does not say */
} vp_scan;

/* NULL: out of memory. */
vp_scan *vp_python_scan(vp_arena *arena, const char *text, const char *end);

/* Behind the string that begins here, its line ends counted; one that ends with its line or the text ends there. */
const char *vp_piece_behind_string(const char *at, const char *end, int *line);

/* Behind a piece's strings, comments and brackets: to the first of these letters outside all of them; NULL: none. A letter '=' is
 * an assignment's alone. */
const char *vp_piece_find(const vp_piece *p, const char *letters);

/* The first such word or sign outside strings and brackets; NULL: none. */
const char *vp_piece_word(const vp_piece *p, const char *word);

bool     vp_piece_is(const vp_piece *p, const char *word);
bool     vp_piece_same(const vp_piece *a, const vp_piece *b);
vp_piece vp_piece_trim(vp_piece p); /* without spaces, comments and line ends at both ends */

/* The next of several pieces between commas, from *rest; false: there is none. */
bool vp_piece_next(vp_piece *rest, vp_piece *out);

#endif
