/* trainers/files/python_filters.h: a dictionary that is another one without some of its members. */
#ifndef VP_TRAINERS_FILES_PYTHON_FILTERS_H
#define VP_TRAINERS_FILES_PYTHON_FILTERS_H

#include "trainers/files/python_reader.h"

/* {k: v for k, v in kwargs.items() if v is not None}, where the reader stands: v is that, and the reader goes behind it. *is_one: it is such
 * a one, of a dictionary that is known. */
vp_status vp_python_read_filter(vp_python_reader *r, vp_value *v, bool *is_one);

#endif
