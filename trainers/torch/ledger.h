/* trainers/torch/ledger.h: PyTorch's caching allocator with an owner for each block, by phases.
 *     vp_ledger_begin(&ledger, "forward");
 *     VP_TRY(vp_ledger_alloc(&ledger, VP_OWNER_ACTIVATION, bytes, &block, err));
 *     vp_ledger_free(&ledger, block);
 *     vp_ledger_end(&ledger);
 *
 * Bytes are those that the allocator counts as allocated, rounding and unsplit rests included, so
 * owners sum to them exactly. */
#ifndef VP_TRAINERS_TORCH_LEDGER_H
#define VP_TRAINERS_TORCH_LEDGER_H

#include "trainers/torch/caching_allocator.h"

/* X(name, letter in a recording, words for people and JSON) */
#define VP_OWNER_TABLE(X) \
    X(PARAMETER, 'P', "parameters") \
    X(FROZEN, 'Z', "frozen_parameters") \
    X(QUANTISED, 'Q', "quantised_parameters") \
    X(BUFFER, 'U', "buffers") \
    X(GRADIENT, 'G', "gradients") \
    X(OPTIMIZER, 'O', "optimizer_state") \
    X(RESIDENT, 'M', "resident_copies") \
    X(ACTIVATION, 'A', "activations") \
    X(CAST, 'C', "autocast_weights") \
    X(LOGITS, 'L', "logits_and_loss") \
    X(TEMPORARY, 'T', "temporaries") \
    X(CACHE, 'K', "kv_cache") \
    X(INPUT, 'I', "batch_input") \
    X(WORKSPACE, 'W', "cublas_workspace") \
    X(MASTER, 'm', "master_parameters") \
    X(GATHERED, 'g', "gathered_parameters") \
    X(BUCKET, 'b', "reduce_buffers")

typedef enum vp_owner {
#define X(name, letter, words) VP_OWNER_##name,
    VP_OWNER_TABLE(X)
#undef X
        VP_N_OWNERS
} vp_owner;

const char *vp_owner_words(vp_owner owner);
/* VP_N_OWNERS: no owner's. */
vp_owner vp_owner_of_letter(char letter);

/* bytes: as allocated; spare of them, in 512s, were asked for by nobody and not worth splitting off. Any setting of the allocator gives
 * what is left of them at least: they are needed. */
typedef struct vp_ledger_block {
    vp_caching_block block;
    uint32_t         owner : 5, spare : 27;
    int64_t          bytes;
} vp_ledger_block;

/* Peaks within a phase, and what is allocated when it ends. */
typedef struct vp_ledger_phase {
    const char *name; /* as long as the ledger's user keeps it */
    int64_t     allocated_bytes, reserved_bytes, end_bytes, end_reserved_bytes;
    int64_t     owners[VP_N_OWNERS]; /* at allocated_bytes; they sum to it */
} vp_ledger_phase;

enum { VP_LEDGER_PHASES = 24, VP_LEDGER_POOLS = 16 };

/* Of one pool of PyTorch's: needed bytes now, and the most since it could last give memory back. */
typedef struct vp_ledger_pool {
    int64_t now, most;
} vp_ledger_pool;

typedef struct vp_ledger {
    vp_caching_allocator *allocator; /* borrowed */
    int64_t               now[VP_N_OWNERS];
    vp_ledger_phase       phases[VP_LEDGER_PHASES];
    int                   n_phases;
    bool                  open;
    int                   stream; /* on which it is allocated; 0: the default one */
    int64_t at_most_needed_bytes; /* more needed_bytes at once are VP_ERR_NO_FIT; 0: no limit */
    int64_t
            at_most_reserved_bytes; /* more set reserves_more, and are VP_ERR_NO_FIT where so many are hardly needed */
    int64_t needed_bytes, most_needed_bytes; /* now; at any time */
    bool    reserves_more;
    bool    is_at_peak; /* of the open phase: its owners are those of now */
    bool counts_alone;  /* nothing else is wanted: the allocator is not asked, phases stay empty */
    /* counted alone: of small and large requests on each stream; the sum of the most, which PyTorch's allocator reserves at least where
     * it gives nothing back, in segments or expandable */
    vp_ledger_pool pools[VP_LEDGER_POOLS];
    int64_t        least_reserved_bytes;
} vp_ledger;

/* Phases follow one another; at most VP_LEDGER_PHASES. */
void vp_ledger_begin(vp_ledger *ledger, const char *phase);
void vp_ledger_end(vp_ledger *ledger);
/* Phase i once more, behind the last: the allocator repeated its events (vp_caching_allocator_repeat()), and reserved nothing. */
void vp_ledger_repeat(vp_ledger *ledger, int i, const char *phase);

/* Nothing is allocated for 0 bytes. VP_ERR_NO_FIT, VP_ERR_INPUT, VP_ERR_NOMEM as the allocator's; VP_ERR_NO_FIT also
 * where more is needed now than at_most_needed_bytes, and counted alone where more must have been reserved by then: *out is allocated then too. */
vp_status vp_ledger_alloc(vp_ledger *ledger, vp_owner owner, int64_t bytes, vp_ledger_block *out,
                          vp_err *err);
/* VP_ERR_NO_FIT: more than at_most_needed_bytes. */
vp_status vp_ledger_refuse_needed(const vp_ledger *ledger, vp_err *err);
/* torch.cuda.empty_cache(). VP_ERR_NOMEM as the allocator's. */
vp_status vp_ledger_empty_cache(vp_ledger *ledger, vp_err *err);
/* Of a block that is not empty. */
void vp_ledger_give_back(vp_ledger *ledger, vp_ledger_block *block);
/* Takes an empty block, and any of a ledger whose allocator is gone (NULL), with all blocks. */
static inline void vp_ledger_free(vp_ledger *ledger, vp_ledger_block *block)
{
    if (block->block)
        vp_ledger_give_back(ledger, block);
}

#endif
