/* trainers/files/python_formats.h: what a script casts a model to that it has loaded, before a trainer is given it. */
#ifndef VP_TRAINERS_FILES_PYTHON_FORMATS_H
#define VP_TRAINERS_FILES_PYTHON_FORMATS_H

#include "trainers/files/python_reader.h"

/* Of the statement from..r->at: model.half(), model = model.to("cuda", dtype=torch.bfloat16), of what from_pretrained() gave under that
 * name; and whether a trainer is made. Behind that a cast is of what is saved. */
vp_status vp_python_note_format(vp_python_reader *r, const char *from, int line);

/* Whether a model is loaded behind the trainer, where one was before it. */
bool vp_python_is_reloaded(const vp_python_reader *r, const vp_value *v);

#endif
