/* trainers/fit/choose_internal.h: a search while it goes on; choose_space.c lists what there is to try, choose.c tries it. */
#ifndef VP_TRAINERS_FIT_CHOOSE_INTERNAL_H
#define VP_TRAINERS_FIT_CHOOSE_INTERNAL_H

#include "trainers/fit/choose.h"

/* One way to say everything but the micro-batch. */
typedef struct vp_choose_variant {
    vp_settings settings;
    bool        is_asked, is_told; /* whether the target's files have words for it */
    bool        refused;           /* its step was not recorded */
    int64_t     too_large_from;    /* micro-batch; 0: none is known to be */
    int64_t     like;              /* the first variant that has as much at rest, itself for most */
    int64_t     rest_bytes; /* of the first: what is at rest is more than that; 0: not known */
    int64_t
        first_idx; /* of what recomputes all: the variant of its first layers; 0: none is made yet */
    int64_t round; /* of first layers: they were recorded in multiples of it; 0: not known */
    bool    is_tried, is_hopeless; /* as the leanest of those that recompute otherwise */
} vp_choose_variant;

typedef struct vp_choose_search {
    vp_arena                *arena;
    const vp_choose_request *r;
    vp_chosen               *out;
    vp_choose_variant       *variants;
    int64_t                  n_variants, cap_variants, cap_all;
    int64_t                  n_listed;  /* what is in all from the start: no first layers alone */
    int64_t                  n_trained; /* parameters */
    bool                     something_fits; /* of VP_CHOOSE_ALL: the slowest does */
    const char              *whole; /* of refusals, the one of the first way: a message; NULL */
    vp_err                   first_untold;
    vp_err                  *err;
} vp_choose_search;

/* Every way to say everything but the micro-batch. VP_ERR_INPUT: the trainer can be told none. */
vp_status vp_choose_list_variants(vp_choose_search *x);
/* Each with every micro-batch, and its seconds: x->out->all, from the fastest on; equals keep the language's order. */
vp_status vp_choose_list(vp_choose_search *x);

void vp_choose_sort(vp_chosen *o);

/* The choice of a variant; NULL: there is none. */
vp_choice *vp_choose_of(vp_choose_search *x, int64_t variant_idx, int64_t micro_batch);
/* As far as it was looked at. */
bool vp_choose_is_too_large(const vp_choice *c);
/* Makes room for c->bytes where there is none yet. False: out of memory. */
bool vp_choose_has_bytes(const vp_choose_search *x, vp_choice *c);
/* c->bytes are known. */
void vp_choose_take_bytes(const vp_choose_search *x, vp_choice *c);

/* Where fewer layers that are recomputed, the first ones, are faster, the fastest so that fits is the best; where nothing else fits,
 * one that does by halving. */
vp_status vp_choose_first_layers(vp_choose_search *x);
/* Something fits: likewise what one more GiB would buy, beside what x->out->richer is. */
vp_status vp_choose_richer_first_layers(vp_choose_search *x);

/* Among how many settings that recompute the first layers alone it was searched, and how many of them were priced. */
vp_status vp_choose_count_first(vp_choose_search *x, int64_t *n_space, int64_t *n_priced);

/* Whether the target's files have words for it; asked once. */
bool vp_choose_can_be_told(vp_choose_search *x, vp_choose_variant *v);
/* Whether they differ in these settings at most. */
bool vp_choose_is_same_but(const vp_settings *a, const vp_settings *b, const vp_setting *others,
                           size_t n_others);
/* The arena's. NULL: out of memory. */
const char *vp_choose_count_text(vp_arena *arena, int64_t n);

#endif
