/* cli/frontier_chart.h: what more memory buys, on a screen.
 *     vp_frontier_print(&frontier, budget_bytes); */
#ifndef VP_CLI_FRONTIER_CHART_H
#define VP_CLI_FRONTIER_CHART_H

#include "planner/frontier.h"

/* A chart of steps, memory to the right and time upward, then a row a plan. The plan of the budget is
 * marked. */
void vp_frontier_print(const vp_frontier *frontier, int64_t budget_bytes);

#endif
