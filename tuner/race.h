/* tuner/race.h: which of several plans is the fastest, from steps that they did in turns.
 *     VP_TRY(vp_race_estimate(step_s, n, n_rounds, seconds, error, scatter, err));
 *
 * A round is a step of each. What disturbs the machine for longer than a round moves all its
 * steps alike, so each step is taken relative to its round, and what disturbs a single step lies
 * outside the middle half of a plan's rounds. */
#ifndef VP_TUNER_RACE_H
#define VP_TUNER_RACE_H

#include "base/err.h"

#include <stdint.h>

/* step_s[n] (n_rounds): seconds, all above 0. seconds (n): of each plan, in logarithms, the
 * middle of the rounds plus the middle of what the plan is off its rounds. A round is the middle
 * of its steps; a middle is the mean of the middle half. error (n): standard error of the
 * logarithm of a plan's seconds over the fastest's, from the quartiles of their rounds' ratios;
 * scatter (n): of a plan's own over its rounds. */
vp_status vp_race_estimate(const double *const *step_s, int64_t n, int64_t n_rounds,
                           double *seconds, double *error, double *scatter, vp_err *err);

#endif
