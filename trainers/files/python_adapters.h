/* trainers/files/python_adapters.h: what in a script gives a model adapters, and whether it runs. */
#ifndef VP_TRAINERS_FILES_PYTHON_ADAPTERS_H
#define VP_TRAINERS_FILES_PYTHON_ADAPTERS_H

#include "trainers/files/python_reader.h"

/* The next call in a statement, from p on, by its library's name; NULL: none is left. *p moves behind its bracket. */
const char *vp_python_next_call(const vp_python_reader *r, const char *from, const char **p);

/* Of the statement from..r->at: get_peft_model() of peft's and its like; Unsloth's own says by its arguments what it makes. */
vp_status vp_python_note_adapting(vp_python_reader *r, const char *from, int line);

/* Behind the last statement: adapters of which nobody knows whether there are any, or what they are. */
vp_status vp_python_say_adapters(vp_python_reader *r);

#endif
