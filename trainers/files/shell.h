/* trainers/files/shell.h: a shell script as the commands that it runs, each a list of words.
 *     vp_shell_command *first;
 *     VP_TRY(vp_shell_read(arena, "train.sh", bytes, n, &first, err));
 *     for (const vp_shell_command *c = first; c; c = c->next) use(c->words, c->n_words);
 *
 * Nothing is executed. A variable is expanded where the text alone says its value: assigned outside
 * of conditions and loops, as text or as an array; of ${A:-b}, where A is not known, b. What is not
 * known stays as it stands there, with its dollar sign, in what it is a part of too. What eval and bash -c
 * are given is read as the commands that it holds. Where no command has an option, the options that
 * variables hold are commands. */
#ifndef VP_TRAINERS_FILES_SHELL_H
#define VP_TRAINERS_FILES_SHELL_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct vp_shell_word {
    char *text;
    bool  quoted; /* a part of it */
    int   line,
        column; /* where its first letter stands: of a variable's words, where it is assigned */
    const int *lines, *columns; /* of every letter; NULL: as its first */
} vp_shell_word;

typedef struct vp_shell_command {
    vp_shell_word           *words;
    int64_t                  n_words, cap_words;
    int                      line;
    bool                     torn; /* options alone, on the line after a command that has some */
    struct vp_shell_command *next;
} vp_shell_command;

enum { VP_SHELL_MAX_BYTES = 4 << 20 }; /* of a script with its variables expanded */

/* Everything lives in the arena. VP_ERR_INPUT: a quote or bracket that does not end, too many bytes. */
vp_status vp_shell_read(vp_arena *arena, const char *name, const char *bytes, int64_t n,
                        vp_shell_command **first, vp_err *err);

/* The files that here-documents write, behind those of *out (document.h). */
struct vp_written;
vp_status vp_shell_here(vp_arena *arena, const char *bytes, int64_t n, struct vp_written **out,
                        vp_err *err);

/* The words of a text in which line ends mean no more than blanks, and nothing is expanded. */
vp_status vp_shell_words(vp_arena *arena, const char *name, const char *bytes, int64_t n,
                         vp_shell_command *out, vp_err *err);

#endif
