/* trainers/files/launch.h: what stands before the script of a command line: the environment, the
 * launcher, and the launcher's options.
 *     PYTORCH_ALLOC_CONF=expandable_segments:True accelerate launch --num_processes 4 train.py --bf16
 *
 * They are a document of their own (vp_document.launch) in the dialect vp_dialect_launch: what a
 * launcher says beats a file, and its options are none of the script's. */
#ifndef VP_TRAINERS_FILES_LAUNCH_H
#define VP_TRAINERS_FILES_LAUNCH_H

#include "trainers/files/document.h"

/* Whether word begins a launcher's options: torchrun, deepspeed, "accelerate launch", "-m
 * torch.distributed.run". before: the word before it; NULL: none. */
bool vp_launch_is_launcher(const char *before, const char *word);

/* Whether word runs another command, by options of its own: srun, mpirun, docker. */
bool vp_launch_is_wrapper(const char *word);

/* Whether word is what a wrapper runs: an interpreter, a script, a trainer's own program. */
bool vp_launch_is_program(const char *word);

/* Whether an option of a launcher's, its name with underscores, takes no value. */
bool vp_launch_is_switch(const char *name);

/* Whether word is NAME=VALUE of a variable that memory or the number of processes depends on. */
bool vp_launch_is_variable(const char *word);

/* Whether the program reads NAME=VALUE behind its file as a change of what the file says: torchtune's recipes and LLaMA-Factory,
 * which give it to OmegaConf. program: the words so far; NULL. */
bool vp_launch_takes_overrides(const char *program);

/* Whether the program's first word, or the last part of its path, is one of these, which NULL ends. */
bool vp_launch_is_begun_by(const char *program, const char *const *names);

/* launch_handed.c: what is the launcher's among the keys of TRL's file goes to doc->launch, and among the words of its command. */
bool      vp_launch_is_handed(const char *key);
vp_status vp_launch_hand_on(vp_document *doc, vp_err *err);
vp_status vp_launch_take_handed(vp_document *command, vp_err *err);

/* Adds to command->launch what its options mean: `processes`, a number or text that nobody knows; `cards`, how many the command sees;
 * and `allocator`. */
vp_status vp_launch_settle(vp_document *command, vp_err *err);

/* The command in a line "# run with: CMD" that emit writes above a file: its words before the script. */
vp_status vp_launch_of_comment(vp_document *doc, const char *bytes, int64_t n, vp_err *err);

/* Whether the n letters of text can be the path of a settings file: no word, no JSON itself, nothing that a
 * shell or another file still has to fill in. */
bool vp_launch_is_path(const char *text, size_t n);

/* Whether a word of a command is such a path, and no assignment: of a variable, or of a script's own override. */
bool vp_launch_is_argument(const char *word, size_t n);

/* Whether one of a command's words, its program's name first, is such a path; NULL: no. */
bool vp_launch_names_file(const char *program);

#endif
