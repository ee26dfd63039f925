/* tuner/tune.h: measure on this machine, plan with what was measured, run the best, return the best
 * tested.
 *     vp_tune_opts opts = { .max_trials = 6, .study = "study.db" };
 *     VP_TRY(vp_tune(&request, &opts, &result, err));
 *     vp_tune_result_release(&result);
 *
 * 1. Every kernel call of every plan in the space is timed once by `vplan-run --profile` in a
 * child; or request->profile
 *    is where it starts.
 * 2. The space is planned with these times. The best plan trains a few steps on random tokens in a
 * child of its own with a time
 *    limit, then each preset that fits. A trial that dies is a verdict, not an end.
 * 3. A trial says what each kernel call took inside its step: the profile is corrected
 * (tuner/correct.h), and the space planned
 *    again. A given profile that is far off the first trial is not trusted: the calls are timed
 *    here.
 *    What it took on a card outside its arena, the largest of all trials and timed calls, takes the
 *    place of what is assumed.
 * 4. What is expected of a plan that ran lies between its own measurement and what the corrected
 * profile says of it, the nearer to
 *    the profile the more measurements scatter about it. The fastest plan not yet tested is run, as
 *    long as it is predicted to beat
 *    the best expected by 1 % and max_trials were not run; then 3 again. Then three more at most
 *    that lie so near (5 %) that the profile
 *    cannot tell.
 * 5. Up to six that are expected within 10 % of the best, and at least two, race: all alive in one
 * process, a step of each in turns (tuner/race.h), which
 *    tells apart what runs one after the other cannot on a machine that others use too. Who is two
 *    standard errors behind leaves the race; it goes on
 *    until one is left, or 1 % can be told, or 96 rounds or three minutes are over. Where not even
 *    two fit side by side, each runs
 *    once more by itself. The fastest of them is the best. A plan nobody ran is never returned, nor
 *    one that breaks a pin.
 *
 * Everything goes to the study as it happens (tuner/study.h). A finished trial of the same
 * request, or of one that differs in its budget only, is not run again; one whose tuner died is
 * run once more. max_trials counts what the same request has run. */
#ifndef VP_TUNER_TUNE_H
#define VP_TUNER_TUNE_H

#include "planner/planner.h"

#include <signal.h>

typedef enum vp_verdict {
    VP_VERDICT_OK,
    VP_VERDICT_OOM_HOST, /* killed by the kernel for memory, or memory could not be had     */
    VP_VERDICT_TIMEOUT,
    VP_VERDICT_CRASH,        /* ended by a signal, or without an answer                         */
    VP_VERDICT_NAN,          /* training diverged                                                */
    VP_VERDICT_WRONG_RESULT, /* executed memory other than planned                               */
    VP_VERDICT_INTERRUPTED,  /* the tuner died while it ran, twice                               */
    VP_VERDICT_DOES_NOT_FIT, /* a preset that was not run                                        */
    VP_N_VERDICTS
} vp_verdict;

const char *vp_verdict_name(vp_verdict v);

/* A measured time and the standard error of it, relative; 0 s: not measured. */
typedef struct vp_spread {
    double seconds, error;
} vp_spread;

typedef struct vp_trial {
    int64_t      id;        /* of the study; 0: not run                  */
    const char  *preset;    /* its name when it is one, else NULL        */
    vp_candidate candidate; /* figures as predicted before it ran        */
    vp_verdict   verdict;
    bool         from_study;     /* was there already                         */
    int64_t      executed_bytes; /* of the arena; 0 unless VP_VERDICT_OK      */
    /* of a step: what the last race said, else what it took alone; 0 unless ok */
    double    measured_s;
    vp_spread alone; /* median of the steps of its own runs but each first */
    vp_spread raced; /* in the last race; of who left an earlier one, by those that raced in both */
    /* 2 and more: it was near the best, and run again or in the race */
    int64_t     n_runs;
    const char *evidence; /* what the child said last, else ""         */
} vp_trial;

typedef struct vp_tune_opts {
    int64_t     max_trials;         /* plans to run beside the presets           */
    double      profile_s;          /* most time for step 1; 0: 120              */
    const char *study;              /* its file; NULL: of this run only          */
    const char *asked;              /* the command, for who reads the study; or NULL */
    const char *runner;             /* program to run instead of vplan-run, or NULL */
    void (*note)(const char *text); /* progress for people, or NULL         */
    /* set by a signal's handler: end before the next child, as one that comes while a child runs does;
     * or NULL */
    const volatile sig_atomic_t *ended;
} vp_tune_opts;

enum { VP_MAX_THREADS_TRIED = 12 };

typedef struct vp_threads_tried {
    int       threads;
    vp_spread step;
} vp_threads_tried;

typedef struct vp_tune_result {
    /* how many threads the CPU's kernels take here, 0: not looked at; and what others took */
    int              threads;
    vp_threads_tried tried[VP_MAX_THREADS_TRIED];
    int              n_tried; /* 0: they were given, or the study knows */
    vp_arena        *arena;
    vp_profile      *profile; /* measured here, corrected by the trials    */
    vp_plan_answer   answer;  /* of planning with it; candidates by time   */
    vp_trial        *trials;  /* as they were run; presets that do not fit last */
    int64_t          n_trials;
    const vp_trial  *best;        /* NULL: no trial that keeps the pins succeeded */
    const vp_trial  *best_preset; /* NULL: none ran                            */
    const char      *stopped_because;
} vp_tune_result;

/* VP_OK: trials were run, or nothing fits (answer.n_candidates 0). VP_ERR_DEVICE: vplan-run is
 * missing or cannot profile. VP_ERR_STORAGE: the study cannot be used or written.
 * VP_ERR_NO_TRIAL: interrupted; trials has what ran until then. Release the result in any case. */
vp_status vp_tune(const vp_plan_request *request, const vp_tune_opts *opts, vp_tune_result *result,
                  vp_err *err);
void      vp_tune_result_release(vp_tune_result *result);

/* The plan of result->best, which is there, for request; with the proof where the last planning
 * found the same plan best. */
vp_status vp_tune_best_plan(const vp_plan_request *request, const vp_tune_result *result,
                            vp_plan **out, vp_err *err);

#endif
