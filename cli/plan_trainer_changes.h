/* cli/plan_trainer_changes.h: what would make a trainer's settings fit, in words and as commands. */
#ifndef VP_CLI_PLAN_TRAINER_CHANGES_H
#define VP_CLI_PLAN_TRAINER_CHANGES_H

#include "base/options.h"
#include "trainers/fit/what_fits.h"

/* "what fits" on the screen: bytes, what is given up, and the command; nothing where nothing was found. */
void vp_print_fit_changes(const vp_fit_changes *changes, const vp_command_line *line);

/* [{change, needs_bytes, step_time_s, command}]. The caller owns it. */
json_t *vp_fit_changes_json(const vp_fit_changes *changes, const vp_command_line *line);

#endif
