/* tuner/tune.h: measure on this machine, plan with what was measured, run the best, return the best tested.
 *     vp_tune_opts opts = { .max_trials = 3 };
 *     VP_TRY(vp_tune(&request, &opts, &result, err));
 *     vp_tune_result_release(&result);
 *
 * 1. Every kernel call of every plan in the space is timed once by `vplan-run --profile` in a child.
 * 2. The space is planned with these times.
 * 3. The max_trials fastest plans that fit, and each preset that fits, train a few steps on drawn tokens, each in a
 *    child of its own with a time limit; a trial that dies is a verdict, not an end.
 * 4. The fastest that was run is the answer: a plan nobody ran is never returned. */
#ifndef VP_TUNER_TUNE_H
#define VP_TUNER_TUNE_H

#include "planner/planner.h"

typedef enum vp_verdict {
    VP_VERDICT_OK,
    VP_VERDICT_OOM_HOST,     /* killed by the kernel, or memory could not be had                */
    VP_VERDICT_TIMEOUT,
    VP_VERDICT_CRASH,        /* ended by a signal, or without an answer                         */
    VP_VERDICT_NAN,          /* training diverged                                                */
    VP_VERDICT_WRONG_RESULT, /* executed memory other than planned                               */
    VP_VERDICT_DOES_NOT_FIT, /* a preset that was not run                                        */
    VP_N_VERDICTS
} vp_verdict;

const char *vp_verdict_name(vp_verdict v);

typedef struct vp_trial {
    int64_t      id;                /* 1, 2, ...                                 */
    const char  *preset;            /* its name when it is one, else NULL        */
    vp_candidate candidate;
    vp_verdict   verdict;
    int64_t      executed_bytes;    /* of the arena; 0 unless VP_VERDICT_OK      */
    double       measured_s;        /* median step but the first; 0 unless ok    */
    char         evidence[256];     /* what the child said last, else ""         */
} vp_trial;

typedef struct vp_tune_opts {
    int64_t max_trials;             /* plans to run beside the presets           */
    double  profile_s;              /* most time for step 1; 0: 120              */
    void  (*note)(const char *text); /* progress for people, or NULL              */
} vp_tune_opts;

typedef struct vp_tune_result {
    vp_profile    *profile;         /* measured here                             */
    vp_plan_answer answer;          /* of planning with it; candidates by time   */
    vp_trial      *trials;
    int64_t        n_trials;
    const vp_trial *best;           /* NULL: no trial succeeded                  */
    const vp_trial *best_preset;    /* NULL: none ran                            */
    const char    *stopped_because;
} vp_tune_result;

/* VP_OK: trials were run, or nothing fits (answer.n_candidates 0). VP_ERR_DEVICE: vplan-run is missing or cannot profile.
 * Release the result in any case. */
vp_status vp_tune(const vp_plan_request *request, const vp_tune_opts *opts, vp_tune_result *result, vp_err *err);
void      vp_tune_result_release(vp_tune_result *result);

#endif
