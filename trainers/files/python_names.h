/* trainers/files/python_names.h: names whose value stands elsewhere in a script of Python: attributes of its classes (Config.lr,
 * cfg.lr of cfg = Config()), parameters of its functions as they are called, options of its own parser (args.lr). What has one
 * value wherever it runs has that; all else has none. */
#ifndef VP_TRAINERS_FILES_PYTHON_NAMES_H
#define VP_TRAINERS_FILES_PYTHON_NAMES_H

#include "trainers/files/python_reader.h"

/* Before a script's first statement: what it has by name. */
vp_status vp_python_names_find(vp_python_reader *r);

typedef enum vp_python_meant {
    VP_PYTHON_NOBODYS, /* no such name: what stands above may have it */
    VP_PYTHON_MEANT,   /* *v is its value */
    VP_PYTHON_HIDDEN   /* it is one of these, and its value is not known */
} vp_python_meant;

/* What a name means on the line that is read; above: what was read under that name last, NULL: nothing. */
vp_status vp_python_names_value(vp_python_reader *r, const char *name, const vp_value *above,
                                vp_value *v, vp_python_meant *meant);

/* v, a call: where it is of a function of the script's own that returns one plain value in any case, or a configuration of packed weights,
 * that is what it is. */
vp_status vp_python_names_returned(vp_python_reader *r, vp_value *v);

/* Whether a call makes an object of the script's own class, or its parser: what it is called with is no trainer's. */
bool vp_python_names_own(const vp_python_reader *r, const char *call);

/* Whether the statement on this line, indented so, stands in a class and in none of its functions. */
bool vp_python_names_in_class(const vp_python_reader *r, int line, int indent);

/* class Distilling(Trainer) on this line: from here on a call of it is one of DistillingTrainer. */
vp_status vp_python_names_class(vp_python_reader *r, int line);

/* class TrainingArguments(transformers.TrainingArguments): optim: str = field(default="adamw_torch"), of a script whose parser reads it: into
 * doc->defaults. Behind the last statement. */
vp_status vp_python_names_defaults(vp_python_reader *r);

/* The line on which the head of a function or class ends that begins on this one; 0: none does. */
int vp_python_names_head(const vp_python_reader *r, int line);

/* Which lines of a script run, as it is read once, and which of its functions by what calls them: those that only lines call
 * which never run do not, either. */
typedef enum vp_python_reach { VP_REACH_RUNS, VP_REACH_MAYBE, VP_REACH_NEVER } vp_python_reach;
typedef struct vp_python_reached {
    unsigned char *lines; /* by number */
    int            n_lines;
    unsigned char *blocks; /* by the scan's */
} vp_python_reached;

/* NULL: out of memory. Of n bytes of text; all runs. */
vp_python_reached *vp_python_reached_new(const vp_python_reader *r);

/* Of the lines the functions; false: as they were. */
bool vp_python_reach_functions(const vp_python_reader *r, vp_python_reached *x);

/* Of the functions around a line the one that runs least. */
vp_python_reach vp_python_reach_of(const vp_python_reader *r, const vp_python_reached *x, int line);

#endif
