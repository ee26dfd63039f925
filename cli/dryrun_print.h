/* cli/dryrun_print.h: the document of `vplan dryrun` for people.
 *     vp_dryrun_print(result.document); */
#ifndef VP_CLI_DRYRUN_PRINT_H
#define VP_CLI_DRYRUN_PRINT_H

#include <jansson.h>

/* Strings in the document are already escaped for a terminal. */
void vp_dryrun_print(const json_t *document);

#endif
