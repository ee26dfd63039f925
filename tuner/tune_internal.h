/* tuner/tune_internal.h: one call of vp_tune(), in parts. Each file owns its part; the others see
 * it const, or change it by the owner's calls. A file calls those below it in this list:
 *
 *     tune.c       the loop
 *     run_off.c    vp_run_off    who races
 *     trial.c      vp_trials     what ran, each with its row of the study
 *     threads.c                  how many threads, before anything is measured
 *     planning.c   vp_planning   the profile, and the plans made with it
 *     measure.c, decisions.c     keep nothing
 *     session.c    vp_session    what is asked, who runs here, the study: set once */
#ifndef VP_TUNER_INTERNAL_H
#define VP_TUNER_INTERNAL_H

#include "base/child.h"
#include "base/text.h"
#include "tuner/study.h"
#include "tuner/tune.h"

enum { VP_ENOUGH_RUNS = 2 }; /* of the best and what is near it */

static const double VP_WORTH_IT = 0.01; /* a plan that promises less is not run         */
/* of a corrected profile, typically, as ln(measured / predicted) */
static const double VP_MODEL_OFF = 0.05;

/* ---- session.c ---- */

typedef struct vp_session {
    const vp_tune_opts    *opts;
    const vp_plan_request *request; /* as asked, but for the device, which is vp_planning's */
    vp_arena              *arena;   /* of the result                                        */
    vp_study              *study;
    int64_t                request_id; /* of the study                  */
    char                   runner[1100];
    char                   backend[200], build[17]; /* what it says it runs on; its hash */
    int                    n_threads;               /* that its kernels take */
    int64_t                free_bytes;              /* of the device, before anything ran  */
    char                   doing[200];              /* for who waits while a child runs    */
    double                 doing_since_s;
} vp_session;

/* Who runs here, with as many threads as the environment says; s->opts, request and study are
 * there. Then which request of the study this is. */
vp_status vp_session_find_runner(vp_session *s, vp_err *err);
vp_status vp_session_find_request(vp_session *s, vp_err *err);

/* Threads of the most trials that the study has of this request, with whatever threads; 0: it has
 * none. */
vp_status vp_session_known_threads(vp_session *s, int *n, vp_err *err);
void      vp_session_note(const vp_session *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The word that tells a runner without a plan whose kernels are meant, "cuda" behind it; NULL:
 * the CPU's, where its words end. */
char *vp_session_backend_option(const vp_session *s);

/* What is being done, said every few seconds while a child runs. */
void vp_session_doing(vp_session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Run the runner by these words, s->runner the first of them, with input (NULL: none) on its
 * standard input; what it prints is in *child, to be released in any case. Where the end was asked for,
 * it is not run, and was interrupted. */
vp_status vp_session_run(vp_session *s, char *const *argv, const vp_text *input, double timeout_s,
                         vp_child_result *child, vp_err *err);

/* ---- decisions.c: plans as text in a study: one text, one plan ---- */

const char *vp_decisions_text(vp_arena *arena, const vp_model *model, const vp_scenario *s);
/* Precision and optimizer are the request's where the text has none. VP_ERR_INPUT for a text that
 * is no plan of the request's model. */
vp_status vp_decisions_read(const vp_plan_request *request, const char *text, vp_scenario *out,
                            vp_err *err);

/* ---- measure.c: what kernel calls take ---- */

/* What the study has of this device, backend and build, as a new profile; the calls of the space
 * that it lacks are timed now and kept there. *profile_id is 0 where the profile is put together
 * from several of the study's. */
vp_status vp_measure_calls(vp_session *s, const vp_plan_answer *space, vp_profile **out,
                           int64_t *profile_id, vp_err *err);

/* ---- planning.c ---- */

typedef struct vp_planning {
    vp_plan_request request;
    vp_device       device; /* with what lies outside the arena, as soon as it was measured */
    vp_profile     *base;   /* before corrections */
    bool            base_is_given; /* and no trial has contradicted it */
    vp_profile     *profile;       /* that plans are made with now */
    int64_t         profile_id;    /* in the study; 0: not yet */
    vp_profile_kind profile_kind;
    vp_plan_answer  answer;
    vp_preset      *presets; /* as planned with base */
    int64_t         n_presets;
} vp_planning;

/* p->request is asked's, with a device of its own; p stays where it is. */
void vp_planning_begin(vp_planning *p, const vp_plan_request *asked);

/* The base: the given profile, or the calls of the space timed here; and the plans made with it.
 * rows: what ran before. */
vp_status vp_planning_first(vp_planning *p, vp_session *s, const vp_plan_answer *space,
                            const vp_study_trial *rows, int64_t n_rows, vp_err *err);

/* Where a given profile is far off what ran: another base, and its plans. */
vp_status vp_planning_doubt(vp_planning *p, vp_session *s, const vp_plan_answer *space,
                            const vp_study_trial *rows, int64_t n_rows, vp_err *err);

/* The base corrected by what ran, and the plans made with that. */
vp_status vp_planning_again(vp_planning *p, const vp_session *s, const vp_study_trial *rows,
                            int64_t n_rows, bool prove, vp_err *err);

/* The profile of now as a row of the study. */
vp_status vp_planning_keep_profile(vp_planning *p, const vp_session *s, int64_t *id, vp_err *err);

/* What a trial took outside its arena counts from the next planning on. */
void vp_planning_take_outside(vp_planning *p, const vp_overhead *outside);

/* A candidate's plan with the profile of now, a new reference. */
vp_status vp_planning_json(const vp_planning *p, const vp_candidate *candidate, json_t **out,
                           vp_err *err);

/* The result's profile and answer; p has none afterwards. */
void vp_planning_end(vp_planning *p, vp_tune_result *result);

/* ---- threads.c ---- */

/* How many threads what follows runs with, OMP_NUM_THREADS in our environment from now on: those that
 * the study knows to have been chosen, else the fewest of those with which a plan of the space is fastest.
 * As it is on a card, and where the user has said so by that variable. */
vp_status vp_threads_choose(vp_session *s, const vp_planning *planning, const vp_plan_answer *space,
                            vp_tune_result *result, vp_err *err);

/* ---- trial.c ---- */

typedef struct vp_trials {
    vp_trial       *all;
    vp_study_trial *rows; /* one each */
    int64_t         n, cap, cap_rows;
    int64_t         n_beside; /* of this request, those that are no preset */
} vp_trials;

bool vp_same_scenario(const vp_scenario *a, const vp_scenario *b);
bool vp_obeys_pins(const vp_plan_request *r, const vp_scenario *s);

/* The trial of a scenario; trials->n where there is none. */
int64_t vp_trials_find(const vp_trials *trials, const vp_scenario *s);
bool    vp_trials_have(const vp_trials *trials, const vp_scenario *s);

/* What the study has of this request, at the beginning. */
vp_status vp_trials_restore(vp_trials *trials, const vp_session *s, vp_err *err);

/* Run a candidate that has no trial yet; preset NULL: it is none. */
vp_status vp_trials_run(vp_trials *trials, vp_session *s, vp_planning *planning,
                        const vp_candidate *candidate, const char *preset, vp_err *err);
/* Run one once more, in a process of its own. */
vp_status vp_trials_run_again(vp_trials *trials, vp_session *s, vp_planning *planning, int64_t idx,
                              vp_err *err);
/* A preset that does not fit and is not run. */
vp_status vp_trials_add_unfit(vp_trials *trials, const vp_session *s, const vp_preset *preset,
                              vp_err *err);
/* A trial turned out to be a preset. */
void vp_trials_name_preset(vp_trials *trials, const vp_session *s, int64_t idx, const char *preset);
/* Which fit, with what is known now to lie outside the arena. */
void vp_trials_fit(vp_trials *trials, const vp_planning *planning);

/* What a race showed of one: the seconds of each round, and one number for all of them. */
typedef struct vp_race_result {
    const double *step_s;
    int64_t       n_rounds;
    vp_spread     step;
    vp_call_time *calls; /* n_calls 0: not told */
    int64_t       n_calls;
} vp_race_result;
vp_status vp_trials_take_race(vp_trials *trials, const vp_session *s, int64_t idx,
                              const vp_race_result *race, vp_err *err);
/* What an earlier race said, as the last one would have: the machine was over times as slow. */
vp_status vp_trials_carry_over(vp_trials *trials, const vp_session *s, int64_t idx, double over,
                               vp_err *err);

/* kernel_calls of a run's JSON, which may be missing: *calls and *n_calls stay as they are then. */
vp_status vp_read_calls(vp_arena *arena, const vp_json_node *run, vp_call_time **calls,
                        int64_t *n_calls, vp_err *err);

/* ---- run_off.c: what is so near that one run each does not tell it apart ---- */

enum { VP_MAX_CONTENDERS = 6 };

typedef struct vp_contender {
    int64_t trial_idx;
    double  expected_s;
    /* of its rounds in the race */
    double *step_s;
    int64_t n_rounds;
    /* ln of its seconds over the fastest's, when it left the race or the race ended; and its own
     * standard error */
    double behind, scatter;
    /* in the race, the rounds it did last */
    vp_call_time *calls;
    int64_t       n_calls;
} vp_contender;

typedef struct vp_run_off {
    /* of which one is the best, in order of what is expected; in a race, of who is left */
    vp_contender contenders[VP_MAX_CONTENDERS];
    int64_t      n_contenders;
    /* trials of the last race, and how many races there were */
    int64_t last_race[VP_MAX_CONTENDERS], n_last_race, n_races;
} vp_run_off;

/* What is expected of trials, from what each measured and what the profile, which knows them
 * all, says of it now. */
typedef struct vp_expectation {
    double  off;    /* median of ln(measured / predicted)        */
    double *step_s; /* by trial; INFINITY of one that cannot be the best */
} vp_expectation;

vp_status vp_expect(const vp_session *s, const vp_planning *planning, const vp_trials *trials,
                    vp_expectation *e, vp_err *err);

/* Let the nearest race, or run again; *learnt false: all of it was run before. */
vp_status vp_run_off_hold(vp_run_off *o, vp_session *s, vp_planning *planning, vp_trials *trials,
                          bool *learnt, vp_err *err);

/* Best and best preset of the result, which has its trials. */
vp_status vp_run_off_choose(const vp_run_off *o, const vp_session *s, vp_tune_result *r,
                            vp_err *err);

#endif
