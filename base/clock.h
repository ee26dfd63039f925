/* base/clock.h: how long something took.
 *     double start_s = vp_now_s();
 *     ...
 *     double took_s = vp_now_s() - start_s; */
#ifndef VP_BASE_CLOCK_H
#define VP_BASE_CLOCK_H

#include <time.h>

/* Seconds since some moment, on a clock that nobody sets back. */
static inline double vp_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
