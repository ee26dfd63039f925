/* trainers/files/script_values.h: a default of a script's own option as a command has it. */
#ifndef VP_TRAINERS_FILES_SCRIPT_VALUES_H
#define VP_TRAINERS_FILES_SCRIPT_VALUES_H

#include "trainers/files/document.h"

/* v is the default of an option (vp_value.option): what the command says in its place, its default where it says nothing, not known
 * where the text does not tell, or may have been told by a letter. */
void vp_script_value_given(const vp_document *command, vp_value *v);

/* v is such a default, or another value: what the option's type makes of it where it is text, as argparse converts that. */
void vp_script_value_default(vp_value *v);

#endif
