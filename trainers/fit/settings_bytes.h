/* trainers/fit/settings_bytes.h: what a trainer's settings take of a card and of time.
 *     vp_fit_job job = {.model = m, .device = &card, .language = language, .context_bytes = c};
 *     VP_TRY(vp_fit_bytes(&job, &settings, &bytes, err));
 *     if (bytes.high_bytes <= budget) ... it fits
 *
 * Bytes come from the recorded steps behind `estimate --trainer`, seconds from eager_seconds.h. */
#ifndef VP_TRAINERS_FIT_SETTINGS_BYTES_H
#define VP_TRAINERS_FIT_SETTINGS_BYTES_H

#include "devices/devices.h"
#include "trainers/files/settings.h"
#include "trainers/fit/language.h"
#include "trainers/hf/hf_estimate.h"
#include "trainers/torch/eager_seconds.h"

typedef struct vp_fit_job {
    const vp_model    *model;
    const vp_device   *device;
    const vp_profile  *profile; /* or NULL */
    const vp_language *language;
    bool               padded;
    bool               packed;   /* several documents fill a sequence, a batch is one row */
    bool               compiles; /* files ask for torch.compile */
    bool               in_bytes; /* frozen weights are held in 8 bits, which no setting says */
    bool
        counts_engine; /* method grpo: vLLM's part of the card is in context_bytes, which no setting says */
    bool          has_reference; /* method grpo: its beta is not 0, which no setting says */
    vp_hf_prepare prepare;       /* as the files say; else as the language's */
    bool          of_files;      /* people's files say it: no advice in options */
    /* what files ask of Liger for sure: "all" of its kernels, its "loss" alone; NULL: no word of it, or as the settings say */
    const char *liger;
    bool        liger_least; /* and some kernels more, up to all */
    const char              *
        versions; /* vp_hf_versions_of(): of steps that were recorded with them; the others, and NULL, of the newest */
    vp_eager_prices *prices;   /* or NULL */
    vp_hf_shelf     *shelf;    /* or NULL */
    int64_t          context_bytes;       /* what the process takes outside PyTorch's allocator */
    int64_t          context_least_bytes; /* of it at least */
    bool             terse; /* nobody reads why a setting has no bytes: that is said in short */
    int64_t
        at_most_bytes; /* of the card: what needs more at its upper end may have no bytes but VP_ERR_NO_FIT; 0: all have */
    bool
        counts_needed; /* of at_most_bytes: only whether any setting of the allocator takes more, as in vp_hf_request */
    bool
        no_seconds; /* of a model without a graph, whose steps are not priced: all its seconds are 0 */
    bool loads_only; /* bytes are those of the loaded model */
    int64_t
        limit_bytes; /* a card of that size, where PyTorch gives back its cache before it is out of memory; 0: a larger one */
} vp_fit_job;

typedef struct vp_fit_bytes {
    int64_t     allocated_bytes, reserved_bytes, device_bytes;
    int64_t     low_bytes, high_bytes; /* of device_bytes */
    double      low, high;             /* of reserved_bytes, as shares of them */
    const char *basis, *why;           /* as the language's, of this step */
    const char *peak_phase;
    int64_t     n_returns; /* with a limit: times a step that the cache is given back */
    int64_t     n_params, n_trained;
    vp_hf_batch batch;
    char        versions[128];
    char        assumptions[VP_HF_ASSUMPTIONS][200];
    int         n_assumptions;
    bool is_too_large_at_rest, is_needed_too_large; /* beside VP_ERR_NO_FIT: as in vp_hf_estimate */
} vp_fit_bytes;

/* The settings are complete. VP_ERR_INPUT: what they mean was not recorded, by name. VP_ERR_NO_FIT: they need more
 * than job->at_most_bytes. */
vp_status vp_fit_bytes_of(const vp_fit_job *job, const vp_settings *s, vp_fit_bytes *out,
                          vp_err *err);

/* What the same settings need at most where batches have padding, whose mask transformers passes on. 0: so they were counted, a batch
 * has one sample or is packed, or the step was not recorded. */
int64_t vp_fit_padded_bytes(const vp_fit_job *job, const vp_settings *s);

/* Whether settings whose upper end is beyond the budget may fit all the same: as predicted, or since PyTorch gives back its
 * cache, *n_returns times a step (0: never, or in the first step only). Nobody should count on it. */
vp_status vp_fit_tightly(const vp_fit_job *job, const vp_settings *s, const vp_fit_bytes *bytes,
                         int64_t budget_bytes, bool *is_tight, int64_t *n_returns, vp_err *err);

/* Of one optimizer step of all processes. n_trained: parameters that train. */
vp_status vp_fit_seconds_of(const vp_fit_job *job, const vp_settings *s, int64_t n_trained,
                            double *out, vp_err *err);

#endif
