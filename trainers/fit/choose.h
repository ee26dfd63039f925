/* trainers/fit/choose.h: the fastest settings that a trainer can be told and that fit.
 *     vp_choose_request r = {.job = job, .target = target, .seq = 1024, .global_batch = 32, ...};
 *     VP_TRY(vp_choose(arena, &r, &chosen, err));
 *     chosen.best                                       NULL: nothing fits
 *
 * Every micro-batch that divides the global batch, times every word of the language's axes that is
 * neither pinned nor unknown to the trainer's files. All of them are priced; bytes are worked out from
 * the fastest on, until one fits with the upper end of its interval: the slower ones cannot be the
 * answer. Where one is too large, so are larger micro-batches of the same words; where the slowest setting is too large
 * as well, so that perhaps none fits, the largest that is not is found by halving. What is too large is not worked out to its end. Ties go to the language's order. */
#ifndef VP_TRAINERS_FIT_CHOOSE_H
#define VP_TRAINERS_FIT_CHOOSE_H

#include "trainers/fit/sayable.h"
#include "trainers/fit/settings_bytes.h"

typedef enum vp_choose_wanted {
    VP_CHOOSE_ALL,  /* the best, and all that is to be said beside it */
    VP_CHOOSE_BEST, /* alone, and no reasons */
    VP_CHOOSE_ANY,  /* likewise one that fits, not the fastest */
    VP_CHOOSE_KNOWN /* whether there is an answer, whichever: nothing is sized */
} vp_choose_wanted;

typedef struct vp_choose_request {
    vp_fit_job       job;
    const vp_target *target;
    vp_sayable      *sayable;  /* or NULL */
    const json_t    *versions; /* {library: version}; NULL: as recorded */
    const char      *model_name;
    int64_t          seq, global_batch, world, budget_bytes;
    int64_t          micro_batch;           /* 0: free */
    const char      *pinned[VP_N_SETTINGS]; /* NULL: as its axis says; "any": all its words */
    vp_choose_wanted wanted;
    bool
        first_by_code; /* the first layers alone too where not files but code says that they are recomputed */
    /* or NULL: what was chosen of the same space and budget, in the same arena; its bytes are not worked out again */
    const struct vp_chosen *known;
    /* of VP_CHOOSE_ALL, or NULL: called when nothing fits, before it is worked out what needs least */
    vp_status (*nothing_fits)(const struct vp_choose_request *request, vp_err *err);
    /* likewise: called when that is known, before it is asked whether what is listed is tight */
    vp_status (*least_is_known)(const struct vp_choose_request *request, int64_t least_bytes,
                                vp_err *err);
    void *user;
} vp_choose_request;

typedef struct vp_choice {
    vp_settings settings;
    double      seconds;
    int64_t     order; /* among equals */
    bool        sized, fits;
    bool        is_tight; /* of what is listed and does not fit: vp_fit_tightly() */
    int64_t     n_returns;
    bool        out;          /* its step was not recorded */
    int64_t     beyond_bytes; /* where it is not sized: it needs more than that; 0: not known */
    int64_t
            needed_bytes; /* it needs more than that by what was found of another setting of the allocator; 0: not known */
    int64_t variant, micro_batch;
    bool *
        is_priced; /* of what recomputes all: the first layers alone, by their number; NULL: none */
    vp_fit_bytes *bytes; /* the search's arena's; NULL: nobody asked for them */
} vp_choice;

enum { VP_MAX_ALTERNATIVES = 5, VP_MAX_REFUSALS = 8, VP_MAX_DIVISORS = 256 };

typedef struct vp_chosen {
    vp_choice *all; /* from the fastest on */
    int64_t    n;
    int64_t    n_sized, n_refused;
    /* of VP_CHOOSE_ALL: settings that the trainer can be told and that are not known to be unrecorded, all of which there are to compare;
     * whose seconds were worked out, which all others lie between; whose steps were played, as far as it took */
    int64_t          n_space, n_priced, n_played;
    const vp_choice *best;   /* NULL: nothing fits */
    const vp_choice *least;  /* where nothing fits: what needs least; NULL: nothing was sized */
    const vp_choice *richer; /* what one more GiB would buy; NULL: nothing */
    const vp_choice *alternatives[VP_MAX_ALTERNATIVES];
    int              n_alternatives;
    /* words whose steps were not recorded; or why there is none at all */
    const char *refusals[VP_MAX_REFUSALS], *refused_first;
    int         n_refusals;
    json_t     *versions; /* {library: version} that the settings are for */
} vp_chosen;

void vp_chosen_release(vp_chosen *chosen);

/* The micro-batch, where one is given, divides the samples of a card. VP_ERR_INPUT: the trainer cannot be told a pinned word; no setting of the space was recorded. */
vp_status vp_choose(vp_arena *arena, const vp_choose_request *request, vp_chosen *out, vp_err *err);

/* Of what was chosen (known, of the same arena), the fastest alone, found by halving, that recomputes the first layers where the user's code says so; best is NULL where nothing that fits is faster by
 * them, the trainer's files say them, or they cannot be told. VP_ERR_NOMEM only. */
vp_status vp_choose_with_first(vp_arena *arena, const vp_choose_request *request,
                               const vp_chosen *known, vp_chosen *out, vp_err *err);

/* The same where nobody said a precision: request->pinned has the one that is best for the card. Where the trainer cannot be told
 * that, or no such step was recorded, the next one that can be answered is pinned in its place, and *why_other says so (the
 * arena's; NULL: the best one stays). Where none can be answered, the reason is not a precision that nobody gave. */
vp_status vp_choose_any_precision(vp_arena *arena, vp_choose_request *request, vp_chosen *out,
                                  const char **why_other, vp_err *err);

/* The fastest alone, with all of Liger's kernels in place of the loss that is asked for; best is NULL where none fits, the trainer has no
 * switch for them, they are not of the family, or no such step was recorded. VP_ERR_NOMEM only. */
vp_status vp_choose_with_liger(vp_arena *arena, const vp_choose_request *request, vp_chosen *out,
                               vp_err *err);

#endif
