/* cli/estimate_answer.h: what `vplan estimate --trainer` answers: the question as the recordings are asked it, what
 * came out, and how it is said.
 *     vp_estimate_answer a = {0};
 *     VP_TRY(vp_estimate_open_device(&options, &a, err));
 *     ...
 *     vp_estimate_print(&a, line, false);
 * estimate_request.c fills the question, estimate_trainer.c finds the answer, estimate_json.c and estimate_print.c
 * say it. */
#ifndef VP_CLI_ESTIMATE_ANSWER_H
#define VP_CLI_ESTIMATE_ANSWER_H

#include "cli/estimate.h"
#include "cli/estimate_lengths.h"
#include "cli/estimate_measured.h"
#include "cli/estimate_remedies.h"
#include "trainers/hf/hf_loader.h"

#include "dryrun/dryrun_run.h"
#include "trainers/hf/hf_estimate.h"

typedef struct vp_estimate_answer {
    vp_model            *model, *second; /* second: that of --resident teacher=MODEL, or NULL */
    vp_device            device;
    vp_hf_request        request;
    vp_hf_estimate       estimate;
    vp_hf_loader_setting loader; /* workers 0: nothing was said of it */
    vp_estimate_lora     lora;
    vp_dryrun_context    context;
    int64_t              budget_bytes;  /* -1: none */
    int64_t              reserve_bytes; /* kept free, not in the budget */
    bool                 has_device, seq_is_default, not_even_least;
    const char          *max; /* what was looked for; NULL: nothing */
    bool                 precision_is_default, batch_is_default, is_tf32;
    bool                 is_tight; /* fits since PyTorch gives back what it caches */
    int64_t              unlimited_allocated_bytes,
        unlimited_reserved_bytes; /* then: on a card that never fills */
    int64_t
        padded_reserved_bytes; /* of batches with padding, where none was assumed; 0: not recorded */
    bool             assumes_no_padding;
    vp_remedy        remedies[VP_REMEDIES];
    int              n_remedies;
    vp_remedy_chain  fitting; /* where has_fitting */
    bool             has_fitting;
    vp_lengths       lengths;
    vp_length_answer of_lengths; /* where there are lengths */
    vp_measured      measured;   /* where measured_in is no NULL */
    const char      *measured_in;
    int64_t          assumed_context_bytes; /* before it was measured */
    vp_calibration   calibration;           /* of this card; its card is "" where there is none */
    char             calibration_path[VP_CALIBRATION_PATH];
    bool             is_kept;       /* what was measured, there */
    char             versions[120]; /* what --versions PATH has */
} vp_estimate_answer;

/* ---- the question (estimate_request.c) ---- */

/* VP_ERR_USAGE, VP_ERR_INPUT: an option that this trainer has not, or whose step was not recorded. */
vp_status vp_estimate_refuse(const vp_estimate_options *o, vp_err *err);

/* The options with what --qlora says, where they do not. */
vp_estimate_options vp_estimate_with_qlora(const vp_estimate_options *given);

/* The card, what may be taken of it, and what the process takes beside the allocator. */
vp_status vp_estimate_open_device(const vp_estimate_options *o, vp_estimate_answer *a, vp_err *err);

/* The model; the caller's, by vp_model_free(). */
vp_status vp_estimate_open_model(const char *name, const vp_estimate_options *o, vp_model **out,
                                 vp_err *err);

/* The second model that --resident names; the caller's, by vp_model_free(). */
vp_status vp_estimate_open_second(const vp_estimate_options *o, vp_estimate_answer *a, vp_err *err);

/* The trainer's own precision; on a card without bf16 the same in fp16, for there Trainer refuses bf16. */
const char *vp_estimate_precision(const vp_estimate_options *o, const vp_estimate_answer *a,
                                  bool quantised);

/* The request, but for adapters and lengths; precision is said. Borrows from o. */
void vp_estimate_fill(const vp_estimate_options *o, vp_estimate_answer *a);

/* ---- the answer (estimate_json.c, estimate_print.c) ---- */

/* On the card: what PyTorch reserves, and the context. */
int64_t vp_estimate_device_bytes(const vp_estimate_answer *a);
bool    vp_estimate_fits(const vp_estimate_answer *a);

/* Whether NCCL's memory is counted by the table, not as it was measured. */
bool vp_estimate_has_communicator(const vp_estimate_answer *a);

/* The same with so many reserved bytes on so many cards. */
int64_t vp_estimate_bytes_with(const vp_estimate_answer *a, int64_t reserved_bytes, int64_t world);

/* Of batches with padding; 0: it was counted or ruled out, or their step was not recorded. */
int64_t vp_estimate_padded_bytes(const vp_estimate_answer *a);

/* The caller's. */
json_t *vp_estimate_interval(const vp_estimate_answer *a);
json_t *vp_estimate_assumptions(const vp_estimate_answer *a);
json_t *vp_estimate_json(const vp_estimate_answer *a);

/* all: every item and phase. */
void vp_estimate_print(const vp_estimate_answer *a, const vp_command_line *line, bool all);

#endif
