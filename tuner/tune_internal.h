/* tuner/tune_internal.h: what one call of vp_tune() knows, and who does what with it: measure.c, trial.c, run_off.c, tune.c. */
#ifndef VP_TUNER_INTERNAL_H
#define VP_TUNER_INTERNAL_H

#include "tuner/study.h"
#include "tuner/tune.h"

enum {
    VP_MAX_CONTENDERS = 6,
    VP_ENOUGH_RUNS    = 2,        /* of the best and what is near it                        */
    VP_MAX_TUNE_JSON  = 4 << 20   /* bytes of what a child prints                           */
};

static const double VP_WORTH_IT  = 0.01; /* a plan that promises less is not run         */
static const double VP_MODEL_OFF = 0.05; /* of a corrected profile, typically, as ln(measured / predicted) */

typedef struct vp_contender {
    int64_t       trial_idx;
    double        expected_s;
    double       *step_s;                    /* of its rounds in the race                                                     */
    int64_t       n_rounds;
    double        behind;                    /* ln of its seconds over the fastest's, when it left the race or the race ended */
    vp_call_time *calls;                     /* in the race, the rounds it did last                                           */
    int64_t       n_calls;
} vp_contender;

typedef struct vp_tuner {
    const vp_plan_request *request;          /* asked, but for the device below */
    const vp_tune_opts    *opts;
    vp_tune_result        *result;
    vp_plan_request        asked;
    vp_device              device;           /* with what lies outside the arena, as soon as it was measured */
    vp_study              *study;
    int64_t                request_id;
    char                   runner[1100];
    char                   backend[200], build[17];
    int64_t                free_bytes;       /* of the device, before anything ran */
    vp_profile            *base;             /* before corrections            */
    int64_t                profile_id;       /* of what plans are made with now; 0: not in the study yet */
    vp_profile_kind        profile_kind;
    bool                   base_is_given;
    vp_preset             *presets;          /* as planned with base          */
    int64_t                n_presets;
    vp_study_trial        *rows;             /* of result->trials, one each   */
    int64_t                cap_trials, cap_rows;
    int64_t                n_beside;         /* trials that are no preset     */
    int64_t                n_near;           /* trials run only because a race may show them faster */
    int64_t                n_planned_for;    /* trials that the answer knows; -1: not all their runs */
    vp_contender           contenders[VP_MAX_CONTENDERS]; /* of which one is the best, in order of what is expected; in a race, of who is left */
    int64_t                n_contenders;
} vp_tuner;

/* What is expected of trials, from what each measured and what the profile, which knows them all, says of it now. */
typedef struct vp_expectation {
    double  off;                 /* median of ln(measured / predicted)        */
    double *step_s;              /* by trial; INFINITY of one that cannot be the best */
} vp_expectation;

void vp_tuner_note(const vp_tuner *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* measure.c: who runs here, and what its kernel calls take. vp_tuner_measure_base() sets t->base: what the study has of this device, backend and
 * build; the calls it lacks are timed now and kept there. */
vp_status vp_tuner_find_runner(vp_tuner *t, vp_err *err);
vp_status vp_tuner_measure_base(vp_tuner *t, const vp_plan_answer *space, vp_err *err);

/* decisions.c: plans as text in a study: one text, one plan. vp_decisions_read() takes precision and optimizer of the request where the text
 * has none; VP_ERR_INPUT for a text that is no plan of the request's model. */
const char *vp_decisions_text(vp_arena *arena, const vp_model *model, const vp_scenario *s);
vp_status   vp_decisions_read(const vp_tuner *t, const char *text, vp_scenario *out, vp_err *err);

/* trial.c: what is known of trials, and running one. vp_tuner_find_trial() is result->n_trials where there is none; vp_tuner_run_trial() runs a
 * candidate that is not in result->trials yet: it is afterwards; vp_tuner_run_again() runs one that is, in a process of its own. The plan as JSON
 * (new reference) is made with the profile of now. */
bool      vp_same_scenario(const vp_scenario *a, const vp_scenario *b);
int64_t   vp_tuner_find_trial(const vp_tune_result *r, const vp_scenario *s);
bool      vp_tuner_tested(const vp_tuner *t, const vp_scenario *s);
bool      vp_tuner_obeys_pins(const vp_plan_request *r, const vp_scenario *s);
vp_status vp_tuner_add_trial(vp_tuner *t, const vp_trial *trial, const vp_study_trial *row, vp_err *err);
vp_status vp_tuner_restore(vp_tuner *t, vp_err *err);
vp_status vp_tuner_plan_json(const vp_tuner *t, const vp_trial *trial, json_t **out, vp_err *err);
vp_status vp_tuner_run_trial(vp_tuner *t, const vp_candidate *candidate, const char *preset, vp_err *err);
vp_status vp_tuner_run_again(vp_tuner *t, int64_t trial_idx, vp_err *err);
/* kernel_calls of a run's JSON, which may be missing: *calls and *n_calls stay as they are then. */
vp_status vp_tuner_read_calls(vp_arena *arena, const vp_json_node *run, vp_call_time **calls, int64_t *n_calls, vp_err *err);

/* run_off.c: what is so near that one run each does not tell it apart. vp_tuner_run_off() lets it race, or run again; *learnt false: all of it was
 * run before. vp_tuner_choose_best() sets result->best and best_preset. */
vp_status vp_tuner_expect(const vp_tuner *t, vp_expectation *e, vp_err *err);
vp_status vp_tuner_run_off(vp_tuner *t, bool *learnt, vp_err *err);
void      vp_tuner_choose_best(const vp_tuner *t);

#endif
