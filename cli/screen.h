/* cli/screen.h: what every screen has in common: 80 columns, a label and its text, the recipe.
 *     vp_screen_recipe(&recipe, VP_ATTENTION_FLASH);
 *     vp_screen_line("proof", "optimal: no plan takes less than %s", time);
 * All of it goes to stdout. */
#ifndef VP_CLI_SCREEN_H
#define VP_CLI_SCREEN_H

#include "planner/request.h"

enum { VP_SCREEN_COLUMNS = 80, VP_SCREEN_LABEL = 11 };

/* A label and a text behind it, broken at spaces so that no line is longer than the screen; the
 * lines that follow begin below the text. A label that fills its column has a line of its own. */
void vp_screen_line(const char *label, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What is trained: "bf16-mixed, adamw-8bit, gradients fp32, attention flash". */
void vp_screen_recipe(const vp_recipe *recipe, vp_attention_kind attention);

/* And what the request left to the planner, among what; nothing where all was said. */
void vp_screen_free(const vp_plan_request *request);

#endif
