/* tuner/study_list.h: all that a study holds, for people: what was asked, and what was tried for it.
 *     VP_TRY(vp_study_open_to_read("study.db", &study, err));
 *     VP_TRY(vp_study_list(study, arena, &requests, &n, err));
 * Texts come from the file and are shown with care. */
#ifndef VP_TUNER_STUDY_LIST_H
#define VP_TUNER_STUDY_LIST_H

#include "tuner/study.h"

typedef struct vp_study_entry {
    int64_t     id;
    const char *state, *verdict; /* verdict: "" before it ended */
    const char *preset;          /* its name, or NULL */
    const char *what;            /* a plan's decisions as JSON; a command's words as JSON */
    const char *evidence;
    int64_t     predicted_bytes; /* of a plan */
    int64_t     bytes;           /* executed, or of the device; 0: it did not end well */
    double      predicted_s;     /* of a plan */
    double      measured_s;      /* of a step; 0: it did not end well */
    double      samples_per_s;   /* 0: not known */
    int64_t     n_runs;
} vp_study_entry;

typedef struct vp_study_requested {
    int64_t               id;
    bool                  of_command;
    const char           *model; /* of a command: "" */
    int64_t               seq, global_batch, budget_bytes;
    const char           *device;
    const char           *asked;  /* the command that asked first; "": no command did */
    vp_study_entry       *trials; /* fastest first, then those that did not end well */
    int64_t               n;
    const vp_study_entry *best; /* the first, where it ended well; else NULL */
} vp_study_requested;

/* Everything lives in arena. Requests in the order they were made, of plans first. */
vp_status vp_study_list(vp_study *study, vp_arena *arena, vp_study_requested **out, int64_t *n,
                        vp_err *err);

#endif
