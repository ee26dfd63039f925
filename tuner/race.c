#include "tuner/race.h"

#include "base/stats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

vp_status vp_race_estimate(const double *const *step_s, int64_t n, int64_t n_rounds,
                           double *seconds, double *error, double *scatter, vp_err *err)
{
    double *round_log = malloc((size_t)(2 * n_rounds + n) * sizeof *round_log),
           *off = round_log + n_rounds, *of_round = off + n_rounds;
    int64_t   fastest = 0;
    vp_status st      = VP_OK;

    assert(n > 0 && n_rounds > 0);
    VP_TRY_ALLOC(err, round_log);
    for (int64_t r = 0; r < n_rounds; r++) {
        for (int64_t i = 0; i < n; i++)
            of_round[i] = log(step_s[i][r]);
        round_log[r] = vp_middle_mean(of_round, n);
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t r = 0; r < n_rounds; r++)
            off[r] = log(step_s[i][r]) - round_log[r];
        seconds[i] = vp_middle_mean(off, n_rounds);
        scatter[i] = vp_middle_error(off, n_rounds);
    }
    double all = vp_middle_mean(round_log, n_rounds);
    for (int64_t i = 0; i < n; i++) {
        seconds[i] = exp(all + seconds[i]);
        if (seconds[i] < seconds[fastest])
            fastest = i;
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t r = 0; r < n_rounds; r++)
            off[r] = log(step_s[i][r] / step_s[fastest][r]);
        error[i] = vp_middle_error(off, n_rounds);
    }
out:
    free(round_log);
    return st;
}
