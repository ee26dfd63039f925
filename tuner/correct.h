/* tuner/correct.h: what trials teach about a profile.
 *     VP_TRY(vp_correct_profile(base, trials, n_trials, &corrected, err));
 *
 * A profile is of calls timed alone; a trial says what they took inside a step. */
#ifndef VP_TUNER_CORRECT_H
#define VP_TUNER_CORRECT_H

#include "tuner/study.h"

/* base, corrected by every trial that has calls. In each trial
 *
 *     seconds of a call = its share of the last step's kernel seconds x the trial's measured step
 *
 * so that what lies between kernels is spread over them, and a last step that was slower than
 * the median counts as the median. A call seen takes the median of its trials. A call not seen
 * takes base x f, where f is the kernel's factor, the least squares of (seen - f base) over the
 * kernel's seen calls, sum(seen base) / sum(base^2); for a kernel never seen the same over all
 * calls. Without any calls it is base as it is. The new profile is the caller's. */
vp_status vp_correct_profile(const vp_profile *base, const vp_study_trial *trials, int64_t n_trials,
                             vp_profile **out, vp_err *err);

/* How far base is off the trials: root mean square of ln(seen / base) over the calls seen,
 * weighted by their time; 0 when no call was seen. A factor of 1.2 everywhere is 0.18. */
double vp_profile_distance(const vp_profile *base, const vp_study_trial *trials, int64_t n_trials);

#endif
