/* cli/plan_trainer_answer.h: what `vplan plan --trainer T` found, for the files that print it. */
#ifndef VP_CLI_PLAN_TRAINER_ANSWER_H
#define VP_CLI_PLAN_TRAINER_ANSWER_H

#include "cli/calibration.h"
#include "cli/cli.h"
#include "trainers/fit/what_fits.h"

typedef struct vp_plan_trainer_answer {
    vp_arena         *arena, *liger_arena; /* of what is searched beside */
    vp_model         *model;
    vp_profile       *profile;
    vp_device         device;
    vp_dryrun_context context;
    vp_calibration    calibration; /* of this card; its card is "" where there is none */
    char              calibration_path[VP_CALIBRATION_PATH];
    vp_choose_request request;
    vp_chosen         chosen;
    vp_chosen
                   with_first; /* best: faster than chosen's by recomputing the first layers alone, which code says; or NULL */
    vp_chosen      with_liger; /* best: faster than chosen's with Liger's kernels; or NULL */
    vp_fit_search *search;     /* where nothing fits; so is what it found */
    vp_fit_changes changes;
    int64_t        padded_bytes; /* of chosen's best, as vp_fit_padded_bytes() */
    json_t        *versions;
    const vp_command_line *line;
    const char            *path;
    vp_amount              reserve;        /* of the card, not in the request's budget */
    bool                   free_precision; /* not asked for: the first that can be answered */
    const char            *precision_why;  /* what kept a better one from it; NULL: nothing */
} vp_plan_trainer_answer;

/* What -o writes and --json prints; the caller owns *out. */
vp_status vp_plan_trainer_document(const vp_plan_trainer_answer *answer, json_t **out, vp_err *err);

/* For people; document: the same answer's. */
void vp_plan_trainer_print(const vp_plan_trainer_answer *answer, const json_t *document);

#endif
