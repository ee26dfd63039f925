#include "base/stats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double vp_median(double *values, int64_t n)
{
    assert(n >= 0);
    if (n == 0)
        return 0;
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

/* 1.349: the distance of a normal distribution's quartiles; 1.25: what its median scatters more
 * than its mean, and its middle half's mean at most. */
double vp_middle_error(double *values, int64_t n)
{
    if (n == 0)
        return 0;
    vp_median(values, n); /* sorts */
    return 1.25 * (values[(3 * n) / 4] - values[n / 4]) / 1.349 / sqrt((double)n);
}

double vp_middle_mean(double *values, int64_t n)
{
    double  sum  = 0;
    int64_t skip = n / 4;

    assert(n >= 0);
    if (n == 0)
        return 0;
    qsort(values, (size_t)n, sizeof *values, by_value);
    for (int64_t i = skip; i < n - skip; i++)
        sum += values[i];
    assert(n - 2 * skip > 0); /* a quarter at either end leaves something of any n > 0 */
    return sum / (double)(n - 2 * skip);
}
