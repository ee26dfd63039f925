/* cli/words.h: what the planner says in numbers, said as options of the command line.
 *     VP_TRY(vp_say_refusal(vp_request_refusal(&request), err));
 * The planner itself knows no option (planner/request.h, planner/frontier.h). */
#ifndef VP_CLI_WORDS_H
#define VP_CLI_WORDS_H

#include "base/err.h"
#include "base/options.h"
#include "planner/changes.h"
#include "planner/request.h"

#include <stddef.h>

/* VP_OK where nothing is refused, else VP_ERR_USAGE with the reason. */
vp_status vp_say_refusal(vp_refusal refusal, vp_err *err);

/* VP_ERR_USAGE where there is no scenario of what --offload pins: none has enough host memory for it, or the
 * model cannot have it. */
vp_status vp_say_empty(const vp_plan_request *request, const vp_plan_answer *answer, vp_err *err);

/* What a change gives up: "optimizer states in 8 bits". Returns buf. */
const char *vp_change_text(const vp_change *change, char *buf, size_t buf_size);

/* An option that stands otherwise than it was given. */
typedef struct vp_option_change {
    const char *option;
    const char *value; /* in place of what stood there, or behind the rest; NULL: as it was */
    bool        is_flag, leaves_out;
} vp_option_change;

/* Whether the command line that was read has the option. */
bool vp_is_given(const vp_command_line *line, const char *option);

/* An option that changes how an answer is printed, not what it says: a command to type next leaves it out. */
bool vp_is_of_printing(const char *option);

enum { VP_MAX_CHANGED = 64 };

/* Words behind a command's name; borrowed. */
typedef struct vp_words {
    const char *words[VP_MAX_WORDS + 2 * VP_MAX_GIVEN + 2 * VP_MAX_CHANGED];
    int         n;
} vp_words;

/* The command line that was read, with n changes (at most VP_MAX_CHANGED), as vp_changed_command() has it. */
void vp_changed_words(const vp_command_line *line, const char *model,
                      const vp_option_change *changes, int n, vp_words *out);
/* Words as a command for a shell. */
void vp_quote_words(const char *command, const vp_words *words, vp_text *out);

/* The command line that was read, with n changes, and model in place of its first word where that is not NULL. Quoted for a
 * shell; without --json and -q. */
void vp_changed_command(const char *command, const vp_command_line *line, const char *model,
                        const vp_option_change *changes, int n, vp_text *out);

/* The command line that was read, with the change: what stood there, and the options that differ
 * in its place or behind it. Quoted for a shell; without --json. Nothing where the change is one of the
 * recipe file's, which no option overrules. */
void vp_change_command(const char *command, const vp_command_line *line, const vp_change *change,
                       vp_text *out);

/* Add a text as one word of a POSIX shell. */
void vp_text_quoted(vp_text *out, const char *word);

/* What of an infeasible request takes the room. Returns buf. */
const char *vp_binding_text(const vp_changes *changes, char *buf, size_t buf_size);

/* Add what a run of blocks does, of a plan's or a study's decisions, in plan's words: "recompute ln_1 +
 * mlp.act"; one: of a single block. Texts of the file are escaped. */
void vp_add_run(const json_t *run, bool one, vp_text *out);

#endif
