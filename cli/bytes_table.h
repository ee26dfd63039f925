/* cli/bytes_table.h: where the bytes of a plan are at its peak, in a dozen lines or in all of them.
 *     vp_screen_bytes(plan, &itemised, all);
 * The same table in estimate, plan and explain. */
#ifndef VP_CLI_BYTES_TABLE_H
#define VP_CLI_BYTES_TABLE_H

#include "plan/plan.h"
#include "planner/itemise.h"

/* A line a group, with its number format, its share of all and a bar; all: a line a kind of tensor
 * instead. Of activations the format is what blocks compute in: statistics of norms, attention and
 * loss are fp32 in all of them. The lines sum to the device's bytes. */
void vp_screen_bytes(const vp_plan *plan, const vp_itemised *itemised, bool all);

/* "per param  2 weights + 4 gradients + 4 master weights + 8 optimizer states = 18 bytes; ...": what
 * lies on the device for each of the model's parameters, and where people expect 16, why not. */
void vp_screen_per_param(const vp_plan *plan, const vp_itemised *itemised);

#endif
