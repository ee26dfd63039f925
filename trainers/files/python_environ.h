/* trainers/files/python_environ.h: os.environ.get("BATCH", "4") in a script of Python: what its command sets, else what the script falls
 * back on. */
#ifndef VP_TRAINERS_FILES_PYTHON_ENVIRON_H
#define VP_TRAINERS_FILES_PYTHON_ENVIRON_H

#include "trainers/files/python_reader.h"

/* v, a call: where it asks the environment, that value; *is_one: it does. A default is an option's by the name "$BATCH". */
vp_status vp_python_take_environ(vp_python_reader *r, vp_value *v, bool *is_one);

/* int(...), float(...), bool(...) of such a value: v, the call, is that. */
vp_status vp_python_convert_environ(vp_python_reader *r, vp_value *v, bool *is_one);

/* v, a call by that name: where it asks for the card, torch.cuda.is_available() or get_device_capability(), what the card that is named
 * answers. */
vp_status vp_python_answer_card(vp_python_reader *r, vp_value *v, const char *name, bool *is_one);

#endif
