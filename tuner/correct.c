#include "tuner/correct.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seconds of one call in one trial. */
typedef struct observation {
    vp_kernel kernel;
    vp_dtype  dtype;
    int64_t   ints[VP_MAX_INTS];
    uint32_t  lacks;
    double    one_s, all_s;
} observation;

static int by_call_and_time(const void *a, const void *b)
{
    const observation *x = a, *y = b;

    if (x->kernel != y->kernel)
        return x->kernel < y->kernel ? -1 : 1;
    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? -1 : 1;
    for (int k = 0; k < VP_MAX_INTS; k++)
        if (x->ints[k] != y->ints[k])
            return x->ints[k] < y->ints[k] ? -1 : 1;
    if (x->lacks != y->lacks)
        return x->lacks < y->lacks ? -1 : 1;
    return (x->one_s > y->one_s) - (x->one_s < y->one_s);
}

static bool same_call(const observation *x, const observation *y)
{
    return x->kernel == y->kernel && x->dtype == y->dtype && x->lacks == y->lacks &&
           memcmp(x->ints, y->ints, sizeof x->ints) == 0;
}

/* What was seen, a call once: the median of its trials. *out is the caller's. */
static bool observe(const vp_study_trial *trials, int64_t n_trials, observation **out,
                    int64_t *n_out)
{
    int64_t n = 0, n_distinct = 0;

    assert(n_trials == 0 || trials);
    for (int64_t i = 0; i < n_trials; i++)
        n += trials[i].n_calls;
    *n_out         = 0;
    observation *o = calloc((size_t)n + 1, sizeof *o);
    *out           = o;
    if (!o)
        return false;
    n = 0;
    for (int64_t i = 0; i < n_trials; i++) {
        const vp_study_trial *t     = &trials[i];
        double                sum_s = 0;
        for (int64_t k = 0; k < t->n_calls; k++)
            sum_s += t->calls[k].row.seconds;
        for (int64_t k = 0; sum_s > 0 && t->measured_s > 0 && k < t->n_calls; k++) {
            const vp_call_time *c = &t->calls[k];
            o[n].kernel           = c->row.kernel;
            o[n].dtype            = c->row.dtype;
            o[n].lacks            = vp_kernel_lacks(c->row.kernel, c->row.dtype, c->row.lacks);
            memcpy(o[n].ints, c->row.ints, sizeof o[n].ints);
            o[n].all_s = c->row.seconds / sum_s * t->measured_s;
            assert(c->row.kernel < VP_N_KERNELS && c->row.dtype < VP_N_DTYPES);
            o[n].one_s = o[n].all_s / (double)c->n_calls;
            n++;
        }
    }
    qsort(o, (size_t)n, sizeof *o, by_call_and_time);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && same_call(&o[i], &o[end]);)
            end++;
        assert(o[i].one_s <= o[end - 1].one_s); /* of one call they are in order */
        observation *middle = &o[i + (end - i) / 2];
        observation  median = *middle;
        if ((end - i) % 2 == 0)
            median.one_s = 0.5 * (median.one_s + middle[-1].one_s);
        o[n_distinct++] = median;
    }
    assert(n_distinct <= n);
    *n_out = n_distinct;
    return true;
}

vp_status vp_correct_profile(const vp_profile *base, const vp_study_trial *trials, int64_t n_trials,
                             vp_profile **out, vp_err *err)
{
    observation *seen = NULL;
    vp_profile  *p    = vp_profile_new();
    int64_t      n_seen;
    double       products[VP_N_KERNELS + 1] = {0}, squares[VP_N_KERNELS + 1] = {0};
    bool         measured;
    vp_status    st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, p && observe(trials, n_trials, &seen, &n_seen));
    memcpy(p->device, base->device, sizeof p->device);
    memcpy(p->backend, base->backend, sizeof p->backend);
    p->outside                 = base->outside;
    p->link                    = base->link;
    p->host_update_bytes_per_s = base->host_update_bytes_per_s;
    for (int64_t i = 0; i < n_seen; i++) {
        double base_s = vp_profile_seconds(base, seen[i].kernel, seen[i].dtype, seen[i].ints,
                                           seen[i].lacks, &measured);
        if (base_s > 0)
            for (int k = 0; k < 2; k++) {
                products[k ? VP_N_KERNELS : seen[i].kernel] += seen[i].one_s * base_s;
                squares[k ? VP_N_KERNELS : seen[i].kernel] += base_s * base_s;
            }
    }
    for (int64_t i = 0; i < base->n_rows; i++) {
        vp_profile_row row    = base->rows[i];
        int            kernel = squares[row.kernel] > 0 ? (int)row.kernel : VP_N_KERNELS;
        assert(products[kernel] >= 0);
        if (squares[kernel] > 0)
            row.seconds *= products[kernel] / squares[kernel];
        VP_TRY_ALLOC(err, vp_profile_add(p, &row));
    }
    for (int64_t i = 0; i < n_seen; i++) {
        vp_profile_row row = {.kernel  = seen[i].kernel,
                              .dtype   = seen[i].dtype,
                              .lacks   = seen[i].lacks,
                              .seconds = seen[i].one_s};
        memcpy(row.ints, seen[i].ints, sizeof row.ints);
        VP_TRY_ALLOC(err, vp_profile_add(p, &row));
    }
    *out = p;
    p    = NULL;
out:
    free(seen);
    vp_profile_free(p);
    return st;
}

double vp_profile_distance(const vp_profile *base, const vp_study_trial *trials, int64_t n_trials)
{
    observation *seen;
    int64_t      n_seen;
    double       sum = 0, weight = 0;
    bool         measured;

    if (observe(trials, n_trials, &seen, &n_seen))
        for (int64_t i = 0; i < n_seen; i++) {
            double base_s = vp_profile_seconds(base, seen[i].kernel, seen[i].dtype, seen[i].ints,
                                               seen[i].lacks, &measured);
            if (base_s > 0 && seen[i].one_s > 0) {
                double off = log(seen[i].one_s / base_s);
                sum += off * off * seen[i].all_s;
                weight += seen[i].all_s;
            }
        }
    free(seen);
    return weight > 0 ? sqrt(sum / weight) : 0;
}
