/* trainers/fit/what_fits.h: what would make a request fit that does not, in a trainer's language; each change was
 * chosen for as vp_choose() does, the one that costs the person least first.
 *     VP_TRY(vp_fit_search_begin(&request, &defaults, &search, err));    when it is known that nothing fits
 *     ... what the leanest setting needs ...                            a thread looks meanwhile
 *     vp_fit_search_least(search, least_bytes);                         and goes on with what hangs on it
 *     VP_TRY(vp_fit_search_end(search, &changes, err));
 *     vp_fit_search_free(search);
 *
 * Each piece of the search works for itself, on the thread or on the caller's; what is found does not depend on which. */
#ifndef VP_TRAINERS_FIT_WHAT_FITS_H
#define VP_TRAINERS_FIT_WHAT_FITS_H

#include "base/units.h"
#include "trainers/fit/choose.h"

/* What is different; all else is as it was asked for. */
typedef struct vp_fit_change {
    bool        frees_pins; /* micro-batch, recompute, attention and loss are left free */
    const char *loss;       /* the word for all of Liger's kernels; NULL: as it was */
    const char *optimizer;  /* NULL: the same; so is the precision */
    const char *precision;
    bool        lora, qlora; /* adapters of rank VP_FIT_RANK are trained in place of the model */
    bool        quantises;   /* the adapters that were asked for, over weights in NF4 */
    const char *offload;     /* optimizer, params: in host memory; NULL: as it was */
    int64_t     world;       /* 0: as many cards */
    int64_t     seq;         /* 0: the same sequence */
    const char *model;   /* a built-in model of the family with fewer parameters; NULL: the same */
    const char *trainer; /* NULL: the same */
    char        device[64]; /* a card of the table; "": the same */
    int64_t     high_bytes; /* of device_bytes, at the upper end of the interval */
    double      seconds;    /* of a step */
} vp_fit_change;

enum { VP_MAX_FIT_CHANGES = 10, VP_FIT_RANK = 16 };

/* In this order, as far as there are such:
 *
 *   pins left free;
 *   Liger's kernels, where the trainer has a switch for them, they are of the family and nobody said a loss;
 *   the whole model trained with optimizer states in 8 bits; else, of several cards, with states in host memory, or weights too;
 *   and where neither does, or host memory does at the price of time, in bf16 without fp32 master weights, else both;
 *   twice as many cards, or as many more as it takes, up to 64;
 *   adapters; of one card states, or weights too, in host memory behind them, by DeepSpeed; where adapters do not fit either, adapters over weights in NF4; where the trainer cannot be told either, in transformers' Trainer;
 *   where adapters were asked for, the same over weights in NF4; where that does not do, with Liger's kernels too;
 *   half, a quarter or an eighth of the sequence;
 *   the smallest card of the table that does;
 *   where none of these does: adapters on the smallest card, the whole model on several larger cards, and the largest
 *   smaller model of the family, as it is and as adapters.
 *
 * What the trainer cannot be told, and steps that were not recorded, are passed over. */
typedef struct vp_fit_changes {
    vp_fit_change changes[VP_MAX_FIT_CHANGES];
    int           n;
} vp_fit_changes;

/* What a request has where nobody says it. */
typedef struct vp_fit_defaults {
    /* what a process takes of a card outside PyTorch's allocator */
    int64_t (*context_bytes)(const vp_device *card);
    /* NULL: the precision was asked for, and stays */
    const char *(*precision)(const vp_device *card, const char *tuning,
                             const vp_language *language);
    vp_amount
        reserve; /* of the request's card, which its budget is without; as much stays free of others */
} vp_fit_defaults;

typedef struct vp_fit_search vp_fit_search;

/* The request is copied; what it points to stays until the search is freed, and its prices are not asked again before. VP_ERR_NOMEM only. */
vp_status vp_fit_search_begin(const vp_choose_request *request, const vp_fit_defaults *defaults,
                              vp_fit_search **out, vp_err *err);

/* least_bytes: what the setting that needs least takes of the request's card. What could be looked for without it is done when this
 * returns; what hangs on it goes on beside. */
void vp_fit_search_least(vp_fit_search *search, int64_t least_bytes);

/* Behind vp_fit_search_least(). VP_ERR_NOMEM only. */
vp_status vp_fit_search_end(vp_fit_search *search, vp_fit_changes *out, vp_err *err);

/* NULL too, and before its end. */
void vp_fit_search_free(vp_fit_search *search);

#endif
