/* report/timeline.h: one optimizer step over time: kernels, copies in both directions, memory.
 *     VP_TRY(vp_timeline_make(arena, plan, 64, &t, err));         columns of a text
 *     VP_TRY(vp_report_trace(plan, &text, err));                  a trace for ui.perfetto.dev
 *
 * Times are the plan's own, simulated (plan/simulate.h): of many micro-steps those that it walks. */
#ifndef VP_REPORT_TIMELINE_H
#define VP_REPORT_TIMELINE_H

#include "base/text.h"
#include "plan/simulate.h"

typedef struct vp_timeline {
    int64_t n_columns, n_micro_steps; /* micro-steps that are shown */
    double  end_s, hidden_s;          /* of what is shown; what copies take while kernels run */
    /* of each column: the share of it that each stream works, and that kernels wait for copies */
    double *busy[VP_N_STREAMS], *waited;
    /* the most bytes alive in the device's arena */
    int64_t      *alive_bytes, most_bytes;
    vp_simulation step; /* the whole step */
} vp_timeline;

/* Lives in arena. */
vp_status vp_timeline_make(vp_arena *arena, const vp_plan *plan, int64_t n_columns,
                           vp_timeline *out, vp_err *err);

/* Append the trace: a JSON object of trace events, times in microseconds. Names are those of the plan,
 * whatever they are. */
vp_status vp_report_trace(const vp_plan *plan, vp_text *out, vp_err *err);

#endif
