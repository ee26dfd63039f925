/* cli/check_played.h: what to type where no table says what a script's training takes, or a file is missing. */
#ifndef VP_CLI_CHECK_PLAYED_H
#define VP_CLI_CHECK_PLAYED_H

#include "cli/cli.h"
#include "trainers/files/check.h"

/* The dry run of the very command that was given behind --, else of the script of Python that was; false where neither was.
 * label: of the line, "next". */
bool vp_check_played_print(const vp_checked *c, const vp_command_line *line, const char *label);

/* The same where neither was given: of whatever command trains, on the card that was asked about. */
void vp_check_any_print(const vp_command_line *line);

/* The same question with --for, where all that was read is settings and nobody knows whose; false: it is not. */
bool vp_check_whose_print(const vp_checked *c, const vp_command_line *line);

/* The same question with the options that its answer lacks, as `why` names them: "add --model MODEL --device CARD". False: it names none. */
bool vp_check_again_print(const char *why, const vp_command_line *line);

/* The same question with the file that is named and was not read; of one that torchtune brings first the command that writes it. */
void vp_check_missing_print(const vp_checked *c, const vp_command_line *line);

#endif
