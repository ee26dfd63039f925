/* trainers/files/python_changes.h: what a script makes of its model besides: other sizes than its config's, another vocabulary,
 * torch.compile(). */
#ifndef VP_TRAINERS_FILES_PYTHON_CHANGES_H
#define VP_TRAINERS_FILES_PYTHON_CHANGES_H

#include "trainers/files/python_reader.h"

/* Of a statement, which the reader stands behind. */
vp_status vp_python_note_changes(vp_python_reader *r, const char *from, int line);

#endif
