/* cli/check_class.h: for what the files load the model: a verdict of `vplan check` is of one head. */
#ifndef VP_CLI_CHECK_CLASS_H
#define VP_CLI_CHECK_CLASS_H

#include "models/model.h"
#include "trainers/files/check.h"

/* The class that the files load, a name of the model's family: "BertForSequenceClassification", and how many labels they say (0: they
 * do not). NULL: it is the model's own, or none says another. */
const char *vp_check_class(vp_arena *arena, const vp_checked *c, const vp_model *model,
                           int64_t *n_labels);

/* Why fit is not answered: a script, a command or a key loads the model for something else than what is counted, or trains it
 * in a loop that is no trainer's. NULL: none does, or none says. */
const char *vp_check_other_class(vp_arena *arena, const vp_checked *c, const vp_model *model);

#endif
