/* trainers/files/python_names_internal.h: what python_names.c and python_options.c share. */
#ifndef VP_TRAINERS_FILES_PYTHON_NAMES_INTERNAL_H
#define VP_TRAINERS_FILES_PYTHON_NAMES_INTERNAL_H

#include "trainers/files/python_names.h"
#include "trainers/files/python_scan.h"

enum { VP_NAMES_MAX_DEPTH = 8 };

typedef struct vp_python_names {
    vp_scan     *scan;
    vp_value    *options;       /* of its parser, a list of calls; NULL: not read yet */
    int          depth;         /* of names that are followed one by another */
    int          parsers;       /* argparse's; of two nobody sees which has an option */
    bool         reads_configs; /* it has a call that reads settings from a file */
    vp_document *handed; /* what Hydra hands a function of it; NULL: it was not asked for yet */
    int          handed_to;
} vp_python_names;

/* What stands behind a name before its dot. */
typedef struct vp_owner {
    enum { VP_OWNER_NOTHING, VP_OWNER_CLASS, VP_OWNER_OPTIONS, VP_OWNER_CONFIG } kind;
    int class; /* its block */
    vp_piece
         called;  /* of an object of it what it was made with; at NULL: the class itself, or self */
    bool options; /* of HfArgumentParser: its fields are options */
    const vp_value    *tree;     /* of settings that the script reads from a file: what they are */
    const vp_document *whole;    /* and the file */
    bool               is_omega; /* as OmegaConf reads it */
} vp_owner;

/* python_owners.c: that of a name on a line; depth 0. */
vp_owner vp_names_owner(const vp_python_reader *r, const vp_piece *name, int line, int depth);

/* python_configs.c: that of a piece of the text, cfg["a"], where it is settings that a file has. */
vp_owner vp_names_config_of(const vp_python_reader *r, vp_piece p, int depth);

/* HfArgumentParser((A, B)), TrlParser(A): the classes in the brackets. */
bool vp_names_parses_classes(const vp_scanned_call *call, vp_piece *classes);

/* The class whose method a function is; -1: none. */
int vp_names_class_of(const vp_scan *s, int function);

/* The parameter of that name, by its place; -1: none. *otherwise: its default. *annotation: what it is said to be. *is_self: it is a
 * method's first. */
int vp_names_parameter_of(const vp_scan *s, int function, const vp_piece *name, vp_piece *otherwise,
                          vp_piece *annotation, bool *is_self);

/* The value that a piece of the text is; not *ok: it is none that is known. any: calls and lists too. */
vp_status vp_names_read_piece(vp_python_reader *r, const vp_piece *p, vp_value *v, bool any,
                              bool *ok);

/* What else may give the value: an option of this name, or whoever calls a function that has it. */
vp_status vp_names_be_default(vp_python_reader *r, vp_value *v, const vp_piece *name,
                              const char *type, int line);

/* Of a scan's blocks: the innermost function around a line, that around a block for names (-1: none), the only function of a name (-1: none,
 * or two), and whether a call is of one. */
int  vp_names_function_at(const vp_scan *s, int line);
int  vp_names_function_around(const vp_scan *s, int block);
int  vp_names_block_named(const vp_scan *s, const vp_piece *name, bool is_class);
bool vp_names_is_call_of(const vp_scan *s, int function, const vp_scanned_call *call);

/* The place of a function's parameter of that name, a method's own object counted; -1: none. */
int vp_names_parameter(const vp_scan *s, int function, const vp_piece *name, bool *of_method);

/* What a call gives a parameter, by its name or its place; false: it gives more than the text says. */
bool vp_names_argument(const vp_piece *brackets, const vp_piece *name, int place, vp_piece *out);

/* python_options.c: args.NAME of argparse's parser. */
vp_status vp_names_option(vp_python_reader *r, const vp_piece *name, vp_value *v,
                          vp_python_meant *meant);

/* python_options.c: a parameter of a function that is a command of its own (fire's, typer's, click's). annotation, otherwise: as its head
 * has them; at NULL: nothing stands there. */
vp_status vp_names_command_option(vp_python_reader *r, const vp_scanned_block *f,
                                  const vp_piece *name, const vp_piece *annotation,
                                  const vp_piece *otherwise, vp_value *v, bool *ok);

#endif
