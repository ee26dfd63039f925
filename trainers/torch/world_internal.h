/* trainers/torch/world_internal.h: what the ways of sharing a step have in common. */
#ifndef VP_TRAINERS_TORCH_WORLD_INTERNAL_H
#define VP_TRAINERS_TORCH_WORLD_INTERNAL_H

#include "trainers/torch/world.h"

/* Weights that are gathered and reduced together: a layer; behind the layers the input's table, the head with
 * the last norm, and what is left. */
typedef struct vp_world_unit {
    int64_t first, n; /* weights in vp_world.order */
    bool    is_whole; /* gathered */
} vp_world_unit;

typedef struct vp_world_weight {
    int64_t         place;          /* among those trained, in the order of loading; -1: frozen */
    int64_t         elements, part; /* part: of rank 0, with its padding */
    int64_t         computed, kept; /* bytes of an element: as it is computed with, as it is kept */
    int64_t         packed; /* weights in an element: one, or four of NF4 in one of 16 bits */
    vp_ledger_block shard, whole;
    int64_t         first_rank, last_rank,
        owned;                 /* that own parts of it under ZeRO 1 and 2; rank 0 of its elements */
    vp_recorded_weight loaded; /* whole, by the recorded step, where that has_quantised ones */
} vp_world_weight;

typedef struct vp_world_form vp_world_form;

struct vp_world {
    vp_world_opts        opts;
    const vp_world_form *form;
    vp_recorded         *step;
    vp_ledger           *ledger;
    vp_recorded_watch    watch;
    vp_world_weight     *weights; /* unit by unit */
    int64_t             *places;  /* of what is trained, in the order of loading: in weights */
    int64_t              n_weights, n_elements, most_elements; /* of all; of the largest */
    int64_t              most_gathered; /* by ZeRO 3, elements of the largest */
    vp_world_unit       *units;
    int64_t              n_layers, n_units, embed, head, rest; /* units; those may be empty */
    bool                 has_frozen; /* weights that are cut like those that are trained */
    bool has_quantised; /* likewise; then what is frozen was loaded whole, by the recorded step */
    int64_t          *gradients; /* bytes, in the order of backward */
    int64_t           n_gradients, first_of_layers, of_layer;
    vp_ledger_block **made;    /* gradients that are there */
    vp_ledger_block  *reduced; /* of each unit, or of each bucket */
    vp_ledger_block  *kept;    /* of each layer VP_WORLD_KEPT (vp_world_opts.kept_bytes) */
    vp_ledger_block   gathered, pending, input, buffers[8];
    int64_t           next; /* unit whose gathered weights are pending, or -1 */
    int64_t          *trained, n_trained;
    int64_t           pinned_bytes, host_elements;
    int64_t           filled, done; /* of the bucket so far; of the buckets before it */
    int64_t           back_unit, back,
        back_end; /* ZeRO 3's layer in backward; its weight in use, and the first that was; -1: none */
    vp_ledger_block *large;                         /* a gradient beyond the bucket's size */
    bool             is_backward, reduces, is_told; /* of a gradient in this pass */
    bool             is_traced, is_measured;        /* how weights are used is known */
    bool             adds_up; /* gradients of an earlier micro-step are there */
    int64_t          first_rank, last_rank,
        most_owned; /* the same of what is in the bucket of ZeRO 1 or 2; of a weight */
    int                    n_steps;
    struct vp_zero3_fetch *fetch; /* ZeRO 3's, or NULL */
};

struct vp_world_form {
    const char *name;
    bool        is_flat;    /* what the optimizer works on: fp32 elements of all weights, joined */
    bool        replicates; /* rank 0 keeps all weights, as the recording does */
    bool        keeps_frozen; /* those that are not trained */
    bool        cuts_frozen, cuts_quantised;
    bool        casts_adapters; /* itself, each while it is used: autocast has nothing to copy */
    bool        keeps_reduced;  /* what was reduced outlives the step */
    bool        syncs_each;     /* vp_world_syncs_each() */
    bool        loses_each;     /* vp_world_loses_each(), with what it offloads */
    bool by_layers; /* layer() is told of those of a first backward pass too, not of gradients */
    const char *offloads; /* words of --offload that it takes */
    vp_status (*load)(vp_world *w, vp_err *err);
    vp_status (*begin)(vp_world *w, vp_err *err);
    vp_status (*layer)(vp_world *w, int64_t i, vp_err *err);
    vp_status (*logits)(vp_world *w, vp_err *err); /* their gradient is there */
    vp_status (*gradient)(vp_world *w, int64_t i, vp_ledger_block *block, vp_err *err);
    vp_status (*end)(vp_world *w, vp_err *err);
    vp_status (*returned)(vp_world *w, vp_err *err); /* vp_world_returned() */
    vp_status (*step)(vp_world *w, vp_err *err);
    vp_status (*stepped)(vp_world *w, vp_err *err);
};

extern const vp_world_form vp_world_ddp, vp_world_fsdp1, vp_world_fsdp2, vp_world_zero1,
    vp_world_zero2, vp_world_zero3;

/* The trained weight that was loaded behind so many others; there is none that is frozen. */
vp_world_weight *vp_world_weight_at(vp_world *w, int64_t place);

/* The unit of gradient i: layers are done from the last to the first. */
int64_t vp_world_unit_of_gradient(const vp_world *w, int64_t i);

/* Gradients from the one to the other, without it: of a layer its own; of another unit some of them are. */
typedef struct vp_world_range {
    int64_t from, to;
} vp_world_range;
vp_world_range vp_world_gradients_of(const vp_world *w, int64_t u);

/* The trained weight that gradient i is of: of equal sizes those loaded last come first. NULL: none of that size. */
vp_world_weight *vp_world_weight_of_gradient(vp_world *w, int64_t i);

/* What the recorded step loaded of it goes. */
void vp_world_drop_loaded(vp_world *w, const vp_world_weight *x);

/* This rank pins so many bytes of host memory. */
void vp_world_pin(vp_world *w, int64_t bytes);

/* What *out held goes, and so many bytes take its place. */
vp_status vp_world_take(vp_world *w, vp_owner owner, int64_t bytes, vp_ledger_block *out,
                        vp_err *err);

/* DeepSpeed's: elements of a bucket; which of the world's buffers is what; the wide gradients go. */
enum { VP_ZERO_BUCKET = 500000000 };
enum {
    VP_ZERO_WEIGHTS,
    VP_ZERO_MASTER,
    VP_ZERO_REDUCED,
    VP_ZERO_WIDE,
    VP_ZERO_ADDED,        /* what is added to the reduced ones */
    VP_ZERO_MORE_WEIGHTS, /* of the second group */
    VP_ZERO_MORE_MASTER
};
vp_status vp_world_zero_stepped(vp_world *w, vp_err *err);

/* The optimizer's group of a trained weight: the second one has norms and biases, where there are two. */
enum { VP_ZERO_GROUPS = 2 };
int vp_world_zero_group(const vp_world *w, int64_t place);

#endif
