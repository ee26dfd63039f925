/* trainers/torch/world.h: what the first of several ranks does with a recorded step of one card: the weights
 * it holds, what it gathers and reduces, and when.
 *     vp_world_opts opts = {.parallel = "fsdp2", .ranks = 8, .master_bytes = 4, .weight_bytes = 2};
 *     VP_TRY(vp_world_new(&opts, step, &ledger, &world, err));
 *     VP_TRY(vp_world_load(world, err));                  after the recorded loading, its phase open
 *     VP_TRY(vp_world_begin(world, "forward", true, err));
 *     VP_TRY(vp_recorded_play(step, "forward", err));
 *     VP_TRY(vp_world_end(world, err));
 *
 * Rank 0 has the largest part where one cannot be cut evenly, so no other rank takes more. */
#ifndef VP_TRAINERS_TORCH_WORLD_H
#define VP_TRAINERS_TORCH_WORLD_H

#include "trainers/torch/recording.h"

typedef struct vp_world vp_world;

enum { VP_WORLD_KEPT = 3 };

typedef struct vp_world_opts {
    const char *parallel;     /* "ddp", "fsdp", "fsdp2", "zero1" to "zero3" */
    const char *offload;      /* none, optimizer, params */
    int64_t     ranks;        /* 2 or more */
    int64_t     weight_bytes; /* of an element of a weight that is computed with, as recorded */
    int64_t     master_bytes; /* of an element of a weight that is kept */
    /* the same of adapters, which alone are trained then; 0: there are none. rank: theirs */
    int64_t adapter_bytes, adapter_master_bytes, adapter_rank;
    bool    is_tied;
    bool    is_recomputed; /* layers are computed anew in backward */
    bool    is_reentrant;  /* each in a backward pass of its own; played of adapters under ZeRO 3 */
    bool
        asks_for_head; /* the loss does, for the weight, and the head itself is never run (Liger) */
    bool syncs_each;   /* asked for, and vp_world_syncs_each() */
    /* as Trainer has it: weights are cut as they are made (zero.Init()), or as they are read (FSDP2) */
    bool loads_in_parts;
    bool groups_vectors; /* Trainer's optimizer: norms and biases are a group behind the rest */
    /* ZeRO 3: what a layer keeps for its backward pass that the recorded one lets go (inputs of frozen weights) */
    int64_t kept_bytes[VP_WORLD_KEPT];
    int64_t device_bytes; /* of the card; 0: not known, enough */
    /* DDP's find_unused_parameters, and behind each forward pass what is made of its output then: a cast of it, and of that a clone; of two
     * stacks the first one's states are there beside, and cloned */
    bool    finds_unused;
    int64_t cast_bytes, clone_bytes, states_bytes;
} vp_world_opts;

/* Whether its optimizer works on one tensor of all weights. */
bool vp_world_joins(const char *parallel);
/* Whether rank 0 keeps all weights; whether its step can keep states, or weights too, in host memory. */
bool vp_world_replicates(const char *parallel);
/* Whether what it does with adapters beside frozen weights is known. */
bool vp_world_adapts(const char *parallel, bool is_quantised);
bool vp_world_offloads(const char *parallel, const char *offload);
/* Whether what it does on one card alone is known (tests/golden/trainers/single_worlds.csv). */
bool vp_world_knows_one(const char *parallel, const char *offload);
#define VP_WORLD_KNOWN_OF_ONE \
    "known are zero2 with or without the optimizer in host memory, and zero3 with the weights there"
/* The way that keeps "optimizer" or "params" in host memory on one card alone. */
const char *vp_world_offloads_one(const char *offload);
/* Whether it may reduce the gradients of each micro-batch, or else keeps whole ones until the last: Accelerate's
 * sync_each_batch. Without a choice DeepSpeed does as its stage says; all cards of ddp keep them anyway; FSDP1 with weights in host
 * memory keeps there what the last micro-batch gave alone (torch 2.11, _flat_param.py: no addition of the two). */
bool vp_world_syncs_each(const char *parallel, const char *offload);
/* Whether gradients would be lost so. */
bool vp_world_loses_each(const char *parallel, const char *offload);

/* Takes part in what the step plays from now on; opts are copied, the rest is borrowed. VP_ERR_INPUT: a step
 * whose layers are not told apart. */
vp_status vp_world_new(const vp_world_opts *opts, vp_recorded *step, vp_ledger *ledger,
                       vp_world **out, vp_err *err);
void      vp_world_free(vp_world *world);
/* Without what it has in a ledger, which may be gone. Takes NULL. */
void vp_world_free_copy(vp_world *world);

vp_status vp_world_load(vp_world *world, vp_err *err);

/* Of a world that has loaded: whether another with these opts would have the same of this step then, of which it is known that it
 * loads the same; and that other one, the caller's, as if it had loaded. *out is NULL where it has begun. */
bool      vp_world_loads_the_same(const vp_world *world, const vp_world_opts *opts,
                                  const vp_recorded *step);
vp_status vp_world_copy(const vp_world *world, const vp_world_opts *opts, vp_recorded *step,
                        vp_ledger *ledger, vp_world **out, vp_err *err);

/* Before and after the recorded "forward" or "backward" of a micro-step; reduces: it is the last one of the
 * step. */
vp_status vp_world_begin(vp_world *world, const char *phase, bool reduces, vp_err *err);
vp_status vp_world_end(vp_world *world, vp_err *err);

/* Where there are cast_bytes, behind the recorded "output" of each forward pass: what was cast is gone. */
vp_status vp_world_returned(vp_world *world, vp_err *err);

/* What the optimizer works on, in bytes, and those of an element; n is 0 where it works in host memory. Borrowed. */
const int64_t *vp_world_trained(const vp_world *world, int64_t *n, int64_t *element_bytes);

/* Before and after the optimizer's step. */
vp_status vp_world_step(vp_world *world, vp_err *err);
vp_status vp_world_stepped(vp_world *world, vp_err *err);

/* What NCCL takes of each card outside PyTorch's allocator for one communicator; assumed for every card: 544 and 688 MB on
 * A100s (github.com/NVIDIA/nccl/issues/964). 0: one rank. */
int64_t vp_world_communicator_bytes(int64_t ranks);

/* What the reserved bytes may be off by, as a share of them: more than in 95 of 100 rows of
 * tests/golden/trainers/worlds.csv, or of steps.csv for one rank. Where several streams fetch and free, holes depend
 * on what came before. */
double vp_world_reserved_share(int64_t ranks, const char *parallel);

/* Bytes that a rank sends over the links in one optimizer step of so many micro-steps; weight_bytes: of all weights in the
 * format they are computed with, gradient_bytes likewise; syncs_each: vp_world_opts. */
double vp_world_sent_bytes(const char *parallel, int64_t ranks, double weight_bytes,
                           double gradient_bytes, int64_t micro_steps, bool syncs_each);

/* zero_grad(set_to_none=True). */
void vp_world_drop_gradients(vp_world *world);

/* Of host memory: what this rank pins, in the powers of two that PyTorch rounds it to; and elements whose states the
 * optimizer keeps there. */
void vp_world_host(const vp_world *world, int64_t *pinned_bytes, int64_t *elements);

#endif
