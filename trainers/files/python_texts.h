/* trainers/files/python_texts.h: texts of Python: strings side by side, f"{a}/{b}", organisation + "/" + name. */
#ifndef VP_TRAINERS_FILES_PYTHON_TEXTS_H
#define VP_TRAINERS_FILES_PYTHON_TEXTS_H

#include "trainers/files/python_reader.h"

/* Whether a string begins here, of whatever prefix that makes a text. */
bool vp_python_at_text(const vp_python_reader *r);

/* A string, and those that stand beside it without a sign: "a" "b" is "ab". Of f"..." what is not known sets unread. */
vp_status vp_python_read_text(vp_python_reader *r, vp_value *v, int depth);

/* v is a value that was read: where it is a text, those that signs + add to it; else nothing happens. */
vp_status vp_python_join_texts(vp_python_reader *r, vp_value *v, int depth);

#endif
