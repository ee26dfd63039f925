/* dryrun/step_clock.h: when the work of a recorded step begins and ends, on the host, on streams and on what they share.
 *     vp_step_clock *c = vp_step_clock_new();
 *     vp_step_issue(c, host_s);
 *     vp_step_work(c, stream, VP_STEP_CARD, seconds);
 *     vp_step_record(c, stream, event); vp_step_await(c, other, event);
 *     vp_step_times_of(c, &times, err); vp_step_clock_free(c);
 *
 * The host issues one thing after the other. A stream does its work in order, and none before it was issued. The card
 * computes, its link to the host and its link to other cards carry one thing at a time, whatever the stream: work of
 * different streams overlaps where it needs different ones of these. What an event stands for is what its stream had
 * been given when it was recorded; one that was not recorded in this step has happened. */
#ifndef VP_DRYRUN_STEP_CLOCK_H
#define VP_DRYRUN_STEP_CLOCK_H

#include "base/err.h"

#include <stdint.h>

typedef enum vp_step_unit {
    VP_STEP_CARD,
    VP_STEP_HOST_LINK,
    VP_STEP_SENDING,   /* collectives and messages to other cards */
    VP_STEP_RECEIVING, /* messages from others                    */
    VP_N_STEP_UNITS
} vp_step_unit;

typedef struct vp_step_clock vp_step_clock;

typedef struct vp_step_times {
    double step_s;    /* until host and card are done                              */
    double busy_s;    /* something ran                                             */
    double exposed_s; /* only collectives and messages ran: what they add to busy_s */
    double talk_s;    /* collectives and messages in all                           */
} vp_step_times;

/* NULL: no memory. */
vp_step_clock *vp_step_clock_new(void);
void           vp_step_clock_free(vp_step_clock *clock);

void vp_step_issue(vp_step_clock *clock, double host_s);
/* stream, event: numbers from 0 on. */
void vp_step_work(vp_step_clock *clock, int64_t stream, vp_step_unit unit, double seconds);
void vp_step_record(vp_step_clock *clock, int64_t stream, int64_t event);
void vp_step_await(vp_step_clock *clock, int64_t stream, int64_t event);
/* The host waits. */
void vp_step_host_awaits_stream(vp_step_clock *clock, int64_t stream);
void vp_step_host_awaits_event(vp_step_clock *clock, int64_t event);
void vp_step_host_awaits_all(vp_step_clock *clock);

/* VP_ERR_NOMEM: memory ran out here or before. */
vp_status vp_step_times_of(vp_step_clock *clock, vp_step_times *out, vp_err *err);

#endif
