/* cli/meant.h: words that are none here and mean something elsewhere: options, values and commands of
 * other programs, a card without its option. What they are here, for the error that refuses them.
 *     if (vp_option_meant(command, "--batch_size", buf, sizeof buf)) ... "did you mean --micro-batch?" */
#ifndef VP_CLI_MEANT_H
#define VP_CLI_MEANT_H

#include "cli/cli.h"

/* Part of a sentence about an option that the command does not take, however it joins its words; false:
 * nothing is known of it. */
bool vp_option_meant(const vp_command *command, const char *name, char *buf, size_t buf_size);

/* The same of a word too many: a card, or a size. */
bool vp_argument_meant(const vp_command *command, const char *word, char *buf, size_t buf_size);

/* The same of a word in a command's place. */
bool vp_command_meant(const char *word, char *buf, size_t buf_size);

/* Our name of a precision, optimizer or attention that others call so; NULL: of none. */
const char *vp_value_meant(const char *text);

/* Whose step a trainer of this name makes, in a word of estimate's --trainer; NULL: nobody's. */
const char *vp_trainer_meant(const char *text);

#endif
