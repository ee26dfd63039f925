/* report/curve_svg.h: step time over memory, as steps: between two plans more memory buys nothing.
 *     vp_report_curve curve = { .device = "t4-16gb", .budget_bytes = budget, .points = points, .n =
 *     16 };
 *     VP_TRY_ALLOC(err, vp_report_curve_svg(&curve, &picture)); */
#ifndef VP_REPORT_CURVE_SVG_H
#define VP_REPORT_CURVE_SVG_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct vp_report_point {
    int64_t needs_bytes;
    double  step_time_s;
} vp_report_point;

typedef struct vp_report_curve {
    const char            *device;
    int64_t                budget_bytes; /* marked */
    const vp_report_point *points;       /* n >= 1, ascending bytes, step times that never rise */
    int64_t                n;
} vp_report_curve;

/* Append the picture to *out, a whole SVG document that may also stand in a page. Each plan has its
 * figures as a title. False: out of memory. */
bool vp_report_curve_svg(const vp_report_curve *curve, vp_text *out);

#endif
