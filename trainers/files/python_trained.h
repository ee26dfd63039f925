/* trainers/files/python_trained.h: which of a script's models its trainer is given, which of its weights the script itself says not to
 * train, and whether adapters that it describes are handed to anybody. */
#ifndef VP_TRAINERS_FILES_PYTHON_TRAINED_H
#define VP_TRAINERS_FILES_PYTHON_TRAINED_H

#include "trainers/files/python_reader.h"
#include "trainers/files/python_scan.h"

/* Before the first statement. */
vp_status vp_python_trained_begin(vp_python_reader *r);

/* Of a statement, which the reader stands behind: the model that it hands to a trainer; the weights whose requires_grad it sets. */
vp_status vp_python_note_trained(vp_python_reader *r, const char *from, int line);
void      vp_python_note_frozen(vp_python_reader *r, const char *from, int line);

/* A piece of the text that does not run, `config` of `config if False else None`: what it names is handed to nobody there. */
void vp_python_decline(vp_python_reader *r, const vp_piece *p);

/* Behind the last one: parts that are of no matter to what is trained go, and what nobody knows is said. */
vp_status vp_python_trained_end(vp_python_reader *r);

#endif
