/* trainers/fit/mend.h: whether what people's files mean fits, and the lines to change where it does not.
 *     VP_TRY(vp_mend(arena, &checked, &request, &mended, err));
 *     if (mended.why) ... it cannot be said; else mended.fits, mended.now, mended.lines
 *
 * Only what converges alike is changed: micro-batch times accumulation at the same global batch,
 * checkpointing, the allocator. The lines' bytes and seconds are those of making the changes one
 * setting after the other, of those that are left the one that saves most, and so add up. */
#ifndef VP_TRAINERS_FIT_MEND_H
#define VP_TRAINERS_FIT_MEND_H

#include "trainers/files/edit.h"
#include "trainers/fit/choose.h"

typedef struct vp_mended_line {
    vp_edit edit;
    bool    first;         /* of its setting: the others say the same change */
    int64_t saves_bytes;   /* 0 of the others */
    double  costs_seconds; /* a step */
} vp_mended_line;

typedef struct vp_mended {
    const char *why; /* what keeps it from being answered; NULL: nothing */
    int     refused; /* beside why the setting that this card does not run; VP_N_SETTINGS: none */
    bool    fits;
    bool    is_tight; /* where it does not: vp_fit_tightly() */
    int64_t n_returns;
    vp_settings     settings; /* what the files mean, completed */
    vp_fit_bytes    now;
    double          now_s;            /* 0: not known, and nothing is searched */
    int64_t         expandable_bytes; /* with PyTorch's other allocator; -1: said, or not known */
    const char     *other;            /* another precision that the files leave open; NULL: none */
    int64_t         other_bytes;      /* what it needs */
    int64_t         padded_bytes;     /* vp_fit_padded_bytes() */
    vp_chosen       chosen;           /* of the same global batch; n 0: not searched */
    bool            takes_liger;      /* nothing fitted without Liger's kernels */
    int64_t         cards;            /* where nothing fits: so many would; 0: none do */
    const char     *cards_parallel;   /* if they share the work so */
    int64_t         cards_bytes;      /* each, at most */
    vp_mended_line *lines;            /* where it does not fit and something does */
    int64_t         n_lines;
} vp_mended;

/* job, target and budget_bytes of the request are the caller's, as is its seq where the files do not say
 * it; the rest is filled here. vp_mended_release() whatever comes back. */
vp_status vp_mend(vp_arena *arena, const vp_checked *c, vp_choose_request *request, vp_mended *out,
                  vp_err *err);
void      vp_mended_release(vp_mended *mended);

#endif
