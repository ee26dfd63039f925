/* cli/estimate_remedies.h: what would make a PyTorch trainer's step smaller, each tried by the
 * estimator. */
#ifndef VP_CLI_ESTIMATE_REMEDIES_H
#define VP_CLI_ESTIMATE_REMEDIES_H

#include "base/beside.h"
#include "cli/estimate_lengths.h"
#include "trainers/hf/hf_estimate.h"

enum { VP_REMEDIES = 14 };

typedef struct vp_remedy {
    char        option[80]; /* as one would type it */
    const char *costs;
    int64_t     reserved_bytes; /* with it */
    int64_t     world;          /* cards, with it */
    bool fits; /* where there is a room; on a card that is full, as PyTorch gives back its cache */
} vp_remedy;

/* What a card has for PyTorch's allocator with as many cards as are asked for (-1: not known, and nothing fits), and whether more
 * cards take NCCL's memory of it. */
typedef struct vp_remedy_room {
    int64_t bytes;
    bool    has_communicator;
} vp_remedy_room;

/* Options that were typed, and so stand beside a change: QLoRA brings its own of the first two unless they are said, Liger's kernels
 * have a loss of their own. */
typedef struct vp_remedy_said {
    bool precision, recompute, loss;
} vp_remedy_said;

struct vp_remedy_search;

/* One change alone, at which either core looks. */
typedef struct vp_remedy_trial {
    const struct vp_remedy_search *search;
    int                            change;                 /* which */
    bool                           means_nothing, is_done; /* here, or on already */
    vp_beside                      beside;
    vp_hf_request request; /* with the change, before anything else is made of it */
    vp_status     status;  /* of the estimate of that */
    int64_t       reserved_bytes, at_most_bytes; /* VP_ERR_NO_FIT: more */
    bool          stands_in;
    vp_remedy     found; /* option "": not one of them */
} vp_remedy_trial;

/* The search for those that are not on already, were recorded and save a thousandth or more. Where samples differ in length
 * (lengths, cut to most tokens; or NULL) each is sized by the batch that decides with it. */
typedef struct vp_remedy_search {
    const vp_model   *model;
    const vp_lengths *lengths;
    int64_t           most;
    vp_hf_request     request;
    int64_t           reserved_bytes; /* of request */
    vp_remedy_room    room;
    vp_remedy_said    said;
    vp_remedy_trial   trials[VP_REMEDIES]; /* by change */
} vp_remedy_search;

/* From now on a second core looks at one change after the other. The search stays where it is until its end. */
void vp_remedies_begin(vp_remedy_search *search);

/* When all are done: what was found, the largest saving first. Returns how many. */
int vp_remedies_end(vp_remedy_search *search, vp_remedy out[VP_REMEDIES]);

/* The least of them together that takes no more than there is room for, and keeps the samples of a step if it can:
 * PyTorch's other allocator, which costs nothing, if that is enough; else smaller micro-batches first, then Liger's kernels, recompute, 8-bit states, smaller frozen weights; where each card has all of
 * it, all cut over the cards there are; of several cards what is in host memory; QLoRA in place of training all, shorter samples; last more cards.
 * The room is for the cards asked for. False: nothing does. */
typedef struct vp_remedy_chain {
    char          options[160]; /* as one would type them */
    vp_hf_request request;
    int64_t       reserved_bytes;
    bool          trains_adapters; /* where the whole model was to be trained */
    bool          only_just; /* a single change; what the estimate may be off by does not fit too */
    bool
        lacks_adapters; /* none were tried: adapters were not recorded beside what else is asked for */
} vp_remedy_chain;

/* For the request, the room and the lengths of this search, which has begun: what it tries alone is tried once. Where samples differ in length, another batch may
 * decide with the change in it, and where that takes more, there is less room to fit into. */
bool vp_remedies_fit(vp_remedy_search *search, vp_remedy_chain *out);

#endif
