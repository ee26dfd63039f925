/* tuner/study.h: what was tried, in one SQLite file that no crash can spoil.
 *     VP_TRY(vp_study_open("study.db", &study, err));
 *     VP_TRY(vp_study_request_id(study, &request, &request_id, err));
 *     VP_TRY(vp_study_begin(study, request_id, &trial, err));   // on disk before the trial starts
 *     VP_TRY(vp_study_finish(study, &trial, err));              // on disk, all of it or nothing
 *     vp_study_close(study);
 *
 * A trial is a row: `running` from before it starts, `done` when it ended, whatever the verdict.
 * Who opens the study makes rows still running `interrupted`: their tuner is dead, since one that
 * lives holds the lock FILE.lock (of the kernel, so that no dead owner keeps it; its text, pid,
 * boot and start time, is for messages). Each change is one transaction, synced to the disk, with a
 * rollback journal.
 *
 * A file is used only if its application id, its schema version and every statement of its
 * schema are these, and SQLite's quick_check finds it sound. Whatever is wrong with the file is
 * VP_ERR_STORAGE with its path; a file that is not a study of this version is not touched. */
#ifndef VP_TUNER_STUDY_H
#define VP_TUNER_STUDY_H

#include "base/arena.h"
#include "base/err.h"
#include "plan/profile.h"

#include <stdbool.h>
#include <stdint.h>

enum { VP_STUDY_APPLICATION = 0x76707374 /* "vpst" */, VP_STUDY_SCHEMA = 8 };

typedef struct vp_study vp_study;

/* Open, or make where there is no file. path NULL: in this process's memory only,
 * without a file that could be left behind. */
vp_status vp_study_open(const char *path, vp_study **out, vp_err *err);
void      vp_study_close(vp_study *study);

/* To be looked at only, also while a tuner writes to it: nothing is changed, no lock is taken. */
vp_status vp_study_open_to_read(const char *path, vp_study **out, vp_err *err);

/* What trials must share to be comparable. A row is made for a new one. */
typedef struct vp_study_request {
    const char *model;        /* its name, for people                 */
    const char *model_sha256; /* of its config                        */
    const char *recipe;       /* JSON                                 */
    int64_t     seq, global_batch, budget_bytes;
    const char *device, *backend; /* backend: what runs, as it says of itself */
    const char *build;            /* of the program that runs             */
    const char *asked;            /* the command that asked first, for people; "": no command did */
} vp_study_request;

vp_status vp_study_request_id(vp_study *study, const vp_study_request *request, int64_t *id,
                              vp_err *err);

/* Threads of the most finished trials of such a request, whatever its budget and backend's threads;
 * 0: none of them is there. A backend says its threads at the end of its description. */
vp_status vp_study_threads(vp_study *study, const vp_study_request *request, int *threads,
                           vp_err *err);

/* ---- profiles ---- */

typedef enum vp_profile_kind {
    VP_PROFILE_MEASURED,  /* calls timed alone, here          */
    VP_PROFILE_GIVEN,     /* by the user                      */
    VP_PROFILE_CORRECTED, /* put together from the others and from trials */
    VP_N_PROFILE_KINDS
} vp_profile_kind;

vp_status vp_study_add_profile(vp_study *study, vp_profile_kind kind, const vp_profile *profile,
                               const char *build, int64_t *id, vp_err *err);

/* Add to profile what was measured on this device, with this backend (driver and libraries are
 * in it) and build: rows, the link and the host's rate, of which later measurements replace earlier ones, and the bytes
 * outside the arena, the largest of timed calls and of trials of any request. */
vp_status vp_study_measured(vp_study *study, const char *device, const char *backend,
                            const char *build, vp_profile *profile, vp_err *err);

/* ---- trials ---- */

typedef enum vp_trial_state {
    VP_TRIAL_RUNNING,
    VP_TRIAL_DONE,
    VP_TRIAL_INTERRUPTED, /* its tuner died            */
    VP_TRIAL_CANCELLED,   /* its tuner was asked to end */
    VP_N_TRIAL_STATES
} vp_trial_state;

/* Calls of one kernel with one shape in the last step of a trial. */
typedef struct vp_call_time {
    vp_profile_row row; /* seconds: of all of them together */
    int64_t        n_calls;
} vp_call_time;

typedef struct vp_study_trial {
    int64_t        id; /* of the row; from vp_study_begin()    */
    int64_t        request_id;
    vp_trial_state state;
    int64_t        profile_id; /* what it was predicted with           */
    const char    *decisions;  /* JSON; two trials of one text are the same plan */
    const char    *preset;     /* or NULL                              */
    const char    *verdict, *evidence;
    int64_t        predicted_bytes, executed_bytes;
    double         predicted_s, measured_s;
    int64_t        n_runs; /* of the plan; finished again after each */
    double        *step_s; /* of all runs                          */
    int64_t        n_steps;
    vp_call_time  *calls;
    int64_t        n_calls;
    vp_overhead    outside; /* the largest of all runs              */
} vp_study_trial;

vp_status vp_study_begin(vp_study *study, int64_t request_id, vp_study_trial *trial, vp_err *err);
vp_status vp_study_finish(vp_study *study, const vp_study_trial *trial, vp_err *err);
vp_status vp_study_cancel(vp_study *study, int64_t trial_id, vp_err *err);

/* All trials of a request and of those that differ from it in their budget only, by id; they
 * live in arena. A trial is worth the same under any budget its plan fits. */
vp_status vp_study_trials(vp_study *study, vp_arena *arena, int64_t request_id,
                          vp_study_trial **out, int64_t *n, vp_err *err);

#endif
