/* cli/screen.h: what every screen has in common: 80 columns, a label and its text, the recipe.
 *     vp_screen_recipe(&recipe, VP_ATTENTION_FLASH);
 *     vp_screen_line("proof", "optimal: no plan takes less than %s", time);
 * All of it goes to stdout. */
#ifndef VP_CLI_SCREEN_H
#define VP_CLI_SCREEN_H

#include "plan/simulate.h"
#include "planner/itemise.h"
#include "planner/request.h"

enum { VP_SCREEN_COLUMNS = 80, VP_SCREEN_LABEL = 11 };

/* A label and a text behind it, broken at spaces so that no line is longer than the screen; the
 * lines that follow begin below the text. A label that fills its column has a line of its own. */
void vp_screen_line(const char *label, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same with the text in a column of one's own. */
void vp_screen_entry(int column, const char *head, const char *text);

/* A phase of a training step as --json names it, in words: "backward2" is "backward of step 2", "backward2.3" "backward 3 of step 2".
 * Returns buf. */
const char *vp_screen_phase(const char *name, char *buf, size_t buf_size);

/* A size for a column of this width: as vp_size_text() has it, or, where that is wider, without what is behind the point, in TiB or
 * in PiB. Returns buf. */
const char *vp_screen_size(int64_t bytes, int width, char *buf, size_t buf_size);

/* The answer in one line that a person can repeat, all of it bytes of the device, what lies
 * outside the arena included:
 *     FITS: 18.02 of 23.52 GiB, 5.50 GiB free, 1,552 tokens/s (assumed)
 *     DOES NOT FIT: 24.00 of 23.52 GiB, short by 494.5 MiB
 * speed: NULL, or what stands at the end of the first. */
void vp_screen_answer(int64_t needs_bytes, int64_t budget_bytes, const char *speed);

/* What is trained: "bf16-mixed, adamw-8bit, gradients fp32, attention flash". */
void vp_screen_recipe(const vp_recipe *recipe, vp_attention_kind attention);

/* And what the request left to the planner, among what; nothing where all was said. */
void vp_screen_free(const vp_plan_request *request);

/* A command to paste: what does not fit on a line goes on, behind a backslash, on the next. */
void vp_screen_command(const char *label, const char *command);

/* A field of CSV (RFC 4180), escaped for a terminal first: names come from files. */
void vp_screen_field(const char *text);

/* What a step copies each way, how long kernels wait for it, and what updates its host makes beside them. */
void vp_screen_copies(const vp_simulation *step);

/* How high each phase reaches, with what lies outside the arena. */
void vp_screen_phases(const vp_itemised *itemised, int64_t outside_bytes);

/* Prints of a table's first column, behind two spaces, what does not go into width letters, line by line from comma to comma;
 * returns what is left for the last line, in text. */
char *vp_screen_head(char *text, int width);

#endif
