/* trainers/files/shell_words.h: what stands in words of a shell and is no variable. */
#ifndef VP_TRAINERS_FILES_SHELL_WORDS_H
#define VP_TRAINERS_FILES_SHELL_WORDS_H

#include "trainers/files/shell.h"

bool vp_shell_is_in(const char *word, const char *const *list);

bool vp_shell_has_options(const vp_shell_command *c);

/* The word from which on a command is text that a shell reads again: behind eval, or behind bash -c. 0: none. */
int64_t vp_shell_text_of(const vp_shell_command *c);

/* Programs that name files and options, or show a command's, and train nothing. */
bool vp_shell_is_no_trainer(const vp_shell_command *c);

/* Letters of $( ), ${ } or ` ` at i of a text, which nobody knows and which stay together; 0: none stands there. */
int64_t vp_shell_unknown_letters(const char *text, int64_t n, int64_t i);

/* What a variable holds; NULL: nobody knows. */
typedef const char *(*vp_shell_lookup)(const void *of, const char *name, size_t n);

/* What stands in $((...)): whole numbers and variables with + - * / % and brackets. false: something else, or too large. */
bool vp_shell_sum(const char *text, size_t n, vp_shell_lookup lookup, const void *of, int64_t *out);

/* What the command of a $(...) prints, where the text says it: nothing of `# a comment`; "." or "./.." of what asks for the
 * folder that the script runs or lies in, pwd or dirname "$0"; how many cards CUDA_VISIBLE_DEVICES names, of what counts
 * them; what expr and bc work out. false: nobody knows. */
bool vp_shell_prints(const char *text, size_t n, vp_shell_lookup lookup, const void *of, char *out,
                     size_t size);

/* The variables that slurm sets, as the script's own #SBATCH lines ask it: assignments, a line each. */
vp_status vp_shell_of_queue(vp_arena *arena, const char *bytes, int64_t n, const char **out,
                            vp_err *err);

#endif
