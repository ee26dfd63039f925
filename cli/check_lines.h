/* cli/check_lines.h: the lines to change in people's files, where what they mean does not fit. */
#ifndef VP_CLI_CHECK_LINES_H
#define VP_CLI_CHECK_LINES_H

#include "cli/cli.h"
#include "trainers/fit/mend.h"

/* Added to the list. */
void vp_check_lines_json(const vp_mended *m, json_t *changes);
/* With what each is worth; where nothing helps, that, and how many cards would. */
void vp_check_lines_print(const vp_mended *m);

/* Whether what must change so that the files mean other settings can be changed in this one as it stands. */
bool vp_check_lines_stand(const vp_checked *c, const vp_checked_file *file,
                          const vp_settings *wanted);

#endif
