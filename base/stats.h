/* base/stats.h: what repeated measurements say. */
#ifndef VP_BASE_STATS_H
#define VP_BASE_STATS_H

#include <stdint.h>

/* Both put values (n) in ascending order, so that values[n / 4] is a quartile afterwards; 0 of
 * none. */
/* values[n / 2] */
double vp_median(double *values, int64_t n);
/* the mean without the least and the greatest quarter */
double vp_middle_mean(double *values, int64_t n);

/* Standard error of the middle of values (n), as their quartiles have it: what disturbs a few of
 * them does not count. Sorts them too; 0 of none. */
double vp_middle_error(double *values, int64_t n);

#endif
