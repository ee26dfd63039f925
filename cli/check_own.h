/* cli/check_own.h: what to type where an option of a script's own trains what no file says. */
#ifndef VP_CLI_CHECK_OWN_H
#define VP_CLI_CHECK_OWN_H

#include "cli/check_fit.h"

/* The estimate of the adapters that its name means, as far as the options say them, and the dry run that plays the script. */
void vp_check_own_print(const vp_check_fit *x, const vp_checked *c, const vp_command_line *line);

#endif
