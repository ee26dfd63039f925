/* cli/dryrun_print.h: the document of `vplan dryrun` for people.
 *     vp_dryrun_print(result.document);
 *     vp_dryrun_print_next(result.document, &(vp_dryrun_asked){.command = line.rest}); */
#ifndef VP_CLI_DRYRUN_PRINT_H
#define VP_CLI_DRYRUN_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Strings in the document are already escaped for a terminal. */
void vp_dryrun_print(const json_t *document);

/* What was asked for, as it was typed; NULL or 0: it was not. */
typedef struct vp_dryrun_asked {
    const char  *device, *budget, *snapshot;
    int64_t      world;
    bool         time;
    char *const *command;
} vp_dryrun_asked;

/* What to type next: the tuner where it knows what may change, else where the seconds go or who holds the memory, and at
 * last the command itself. Nothing after a failure, whose reason says what to do. */
void vp_dryrun_print_next(const json_t *document, const vp_dryrun_asked *asked);

#endif
