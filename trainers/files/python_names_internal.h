/* trainers/files/python_names_internal.h: what python_names.c and python_options.c share. */
#ifndef VP_TRAINERS_FILES_PYTHON_NAMES_INTERNAL_H
#define VP_TRAINERS_FILES_PYTHON_NAMES_INTERNAL_H

#include "trainers/files/python_names.h"
#include "trainers/files/python_scan.h"

enum { VP_NAMES_MAX_DEPTH = 8 };

typedef struct vp_python_names {
    vp_scan  *scan;
    vp_value *options; /* of its parser, a list of calls; NULL: not read yet */
    int       depth;   /* of names that are followed one by another */
    int       parsers; /* argparse's; of two nobody sees which has an option */
} vp_python_names;

/* The value that a piece of the text is; not *ok: it is none that is known. any: calls and lists too. */
vp_status vp_names_read_piece(vp_python_reader *r, const vp_piece *p, vp_value *v, bool any,
                              bool *ok);

/* What else may give the value: an option of this name, or whoever calls a function that has it. */
vp_status vp_names_be_default(vp_python_reader *r, vp_value *v, const vp_piece *name,
                              const char *type, int line);

/* python_options.c: args.NAME of argparse's parser. */
vp_status vp_names_option(vp_python_reader *r, const vp_piece *name, vp_value *v,
                          vp_python_meant *meant);

/* python_options.c: a parameter of a function that is a command of its own (fire's, typer's, click's). annotation, otherwise: as its head
 * has them; at NULL: nothing stands there. */
vp_status vp_names_command_option(vp_python_reader *r, const vp_scanned_block *f,
                                  const vp_piece *name, const vp_piece *annotation,
                                  const vp_piece *otherwise, vp_value *v, bool *ok);

#endif
