/* cli/roofline_print.h: where a plan's seconds go, as text and as JSON; the share of the peak. */
#ifndef VP_CLI_ROOFLINE_PRINT_H
#define VP_CLI_ROOFLINE_PRINT_H

#include "planner/roofline.h"

/* The device that a plan names, if it is built in or this machine's CPU; a plan's text opens no
 * file. */
bool vp_plan_device(const vp_plan *plan, vp_device *out);

/* ", 41 % MFU", or nothing where no peak is stated. Returns buf. */
const char *vp_mfu_text(const vp_plan *plan, const vp_device *device, char *buf, size_t buf_size);

/* The same as a number, or null. The caller's. */
json_t *vp_mfu_json(const vp_plan *plan, const vp_device *device);

void    vp_roofline_print(const vp_plan *plan, const vp_device *device);
json_t *vp_roofline_json(const vp_plan *plan, const vp_device *device); /* the caller's */

#endif
