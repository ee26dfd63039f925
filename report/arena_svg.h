/* report/arena_svg.h: a plan's arena over one step, as a picture: time to the right, addresses upward,
 * each tensor a rectangle where and while it lies there.
 *     VP_TRY(vp_report_arena(plan, &page, err)); */
#ifndef VP_REPORT_ARENA_SVG_H
#define VP_REPORT_ARENA_SVG_H

#include "base/text.h"
#include "plan/plan.h"

/* Begin the page of a plan: its title, and whether it fits. */
void vp_report_plan_begin(const vp_plan *plan, vp_text *out);

/* Append the picture, a legend, and a table of what is there at the peak: pieces of a page of HTML
 * (report/page.h). Tensors have their name, bytes and life as a title; those too thin to be seen are
 * drawn together as the band of their component. Of many micro-steps the first, one between and the
 * last are drawn. */
vp_status vp_report_arena(const vp_plan *plan, vp_text *out, vp_err *err);

#endif
