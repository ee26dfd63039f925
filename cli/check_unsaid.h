/* cli/check_unsaid.h: what the libraries take of a model where the files do not say it. */
#ifndef VP_CLI_CHECK_UNSAID_H
#define VP_CLI_CHECK_UNSAID_H

#include "cli/check_fit.h"

/* The format of its weights, and which of its layers peft adapts, each with a note. VP_ERR_NOMEM. */
vp_status vp_check_take_unsaid(vp_checked *c, const vp_check_fit_options *o, const vp_model *model,
                               vp_err *err);

#endif
