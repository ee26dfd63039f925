/* cli/prices_print.h: what binds a plan, and what more of each memory and of the link would save. */
#ifndef VP_CLI_PRICES_PRINT_H
#define VP_CLI_PRICES_PRINT_H

#include "planner/prices.h"

#include <jansson.h>

/* shadow_prices of plan --json; what was not asked for, or is not there, is null, and pinned
 * memory left out where it has no limit of its own. NULL: out of memory. */
json_t *vp_prices_json(const vp_prices *prices);

/* Two lines of the screen, each under its label. */
void vp_prices_print(const vp_prices *prices);

#endif
