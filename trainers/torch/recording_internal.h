/* trainers/torch/recording_internal.h: a recorded program as it was read. recording.c reads it, recorded.c plays it. */
#ifndef VP_TRAINERS_TORCH_RECORDING_INTERNAL_H
#define VP_TRAINERS_TORCH_RECORDING_INTERNAL_H

#include "trainers/torch/recording.h"

#include "base/arena.h"

#include <pthread.h>
#include <stdbool.h>

enum {
    MAX_BYTES       = 64 << 20,
    MAX_PHASES      = 16,
    MAX_SECTIONS    = 7,
    MAX_WORKSPACES  = 8,
    MAX_MADE        = 8, /* gradients of one node of autograd, and more */
    MAX_UNTIED      = 4,
    MAX_ALSO        = 8,
    MAX_LAYERS      = 1 << 20,
    LARGE_WORKSPACE = 8 << 20,
    LARGE_LOOK_UP   = 3072 /* rows; with more of them its gradient is another kernel */
};

typedef struct slot {
    int32_t size;  /* of the recording's expressions */
    char    large; /* only where this look-up has more than 3072 rows, embedding's large kernel */
    /* of TRL's head, the last of several: h its rows, f or g its part of the table; of Liger's loss t: the last tile's, where
     * it is the last repetition; of a tower's attention the first of as many as there are windows (w) or pictures (j) */
    char     tile;
    bool     beside;   /* on a stream of its own */
    bool     in_body;  /* a block for each repetition */
    bool     is_plain; /* no tile's, nothing beside, no weight or gradient: its bytes are all */
    vp_owner owner;
    int      phase, section;
} slot;

/* What a free names: README.md. */
typedef enum rule {
    RULE_ALL,
    RULE_ONE,
    RULE_FIRST,
    RULE_LAST,
    RULE_SAME,
    RULE_BACK,
    RULE_AT,
    RULE_END
} rule;

typedef struct token {
    int32_t slot;
    bool    is_free;
    uint8_t rule; /* of a free */
    int16_t a, b;
} token;

typedef struct section {
    token  *tokens;
    int64_t n, first_slot;
    int     group;     /* of blocks, one repetition each; -1: none, it runs once */
    int64_t irregular; /* blocks that are in the sections beside it */
} section;

typedef struct phase {
    const char *name;
    int64_t     end_slot; /* behind its last one */
    int         n_sections;
    section     sections[MAX_SECTIONS];
} phase;

typedef struct workspace {
    int     phase;
    int64_t after, bytes; /* allocations of the phase before it */
} workspace;

/* Other libraries with which the program is the same but for slots that are not there, and a mask beside its inputs. */
typedef struct also {
    int64_t line; /* of the recording's */
    bool    has_ones;
    int32_t absent[MAX_UNTIED];
    int     n_absent;
} also;

struct vp_recorded_program {
    const char         *key, *text; /* text: its lines */
    uint64_t            hash;       /* of the key */
    int                 line;
    const char         *same; /* the key of the program that it equals, or NULL */
    const vp_recording *recording;
    int64_t             every; /* layers in one block */
    int64_t             rest;  /* layers behind the last block, in the sections beside it */
    phase               phases[MAX_PHASES];
    int                 n_phases, n_workspaces;
    int32_t             untied[MAX_UNTIED]; /* slots that a model with tied tables has not */
    int                 n_untied;
    also                also[MAX_ALSO];
    int                 n_also;
    workspace           workspaces[MAX_WORKSPACES];
    slot               *slots;
    int64_t             n_slots, cap_slots;
};

struct vp_recording {
    pthread_mutex_t lock; /* of what vp_recording_find() reads */
    vp_arena       *arena;
    char           *path, *text;
    const char     *versions;
    const char    **sizes, **parts, **requirements, **fields, **also;
    int64_t n_sizes, cap_sizes, n_parts, cap_parts, n_requirements, cap_requirements, n_fields,
        cap_fields, n_also, cap_also;
    vp_recorded_program **programs;
    int64_t               n_programs, cap_programs;
};

/* One of many that a block stands for. */
typedef struct vp_recorded_more {
    int64_t         place; /* of the block */
    vp_ledger_block block;
} vp_recorded_more;

/* A program for given sizes, while it is played. */
struct vp_recorded {
    const vp_recorded_program *program;
    vp_ledger                 *ledger;
    int64_t          n_blocks[VP_RECORDED_GROUPS + 1], *sizes, *base; /* base: of a slot's blocks */
    int64_t         *sizes_of_last; /* with the rows of the last tile of Liger's loss */
    vp_ledger_block *blocks, workspaces[MAX_WORKSPACES];
    int64_t          n_clear;    /* blocks that are there; behind them nothing was written */
    vp_ledger_block  rows, part; /* of a tile before */
    const also      *as;         /* the program with other libraries, or NULL */
    vp_ledger_block  ones;       /* a mask that these have beside the inputs */
    const vp_symbols *symbols;
    int64_t           n_allocs; /* of the phase so far */
    int64_t           workspace_bytes;
    bool              taken[MAX_WORKSPACES], is_tied, stays;
    int64_t          *parameters, *rows_of_parameter, n_parameters, frozen_bytes, quantised_bytes;
    int64_t           idle_bytes;
    vp_recorded_more *more; /* what stands beside blocks: recorded_more.c */
    int64_t           n_more, cap_more;
    bool             *is_vector, *has_rank; /* of each parameter */
    const vp_recorded_watch *watch;         /* or NULL */
    int64_t          n_gradients, n_told;   /* made in this phase; of which the watch was told */
    vp_ledger_block *made[MAX_MADE];        /* of those between */
    bool             is_freed;              /* anything since the first of them was made */
    vp_ledger_block
            *kept; /* of each of n_kept layers; NULL: they keep nothing but what was recorded */
    int64_t  n_kept, kept_bytes;
    bool     keeps_again;  /* in backward alone */
    bool     is_unsettled; /* gradients were made, and nothing else since */
    bool     is_early;     /* those of the forward pass, of which nobody is told yet */
    int64_t *bytes;        /* of each slot, but of Liger's last tile; NULL before the first phase */
    int64_t  next_workspace; /* allocations of the phase before the next one is taken */
    bool     is_backward, is_in_loss, is_behind_loss; /* of the phase that is played; of its loss */
};

/* Of a tower's attention, which looks at one window or picture after the other: the bytes of the first, whose block is at a place; the
 * others, which come behind it; they go with it. */
int64_t   vp_recorded_first_bytes(const vp_recorded *s, const slot *x, int64_t bytes);
vp_status vp_recorded_take_more(vp_recorded *s, const slot *x, int64_t bytes, int64_t place,
                                vp_err *err);
void      vp_recorded_let_go(vp_recorded *s, int64_t place);

/* Of a name of n characters; -1: no such phase. */
int vp_recorded_phase_named(const vp_recorded_program *p, const char *name, size_t n);

/* How often a section is played; whether a slot is not there at these sizes; rows of a look-up table of this size, or 0; an owner's
 * blocks. */
int64_t vp_recorded_repetitions(const vp_recorded *s, int phase_idx, int section_idx);
bool    vp_recorded_is_absent(const vp_recorded *s, int32_t which);
int64_t vp_recorded_rows_of(const vp_recorded *s, const char *size);
bool    vp_recorded_is_of_rank(const char *size); /* an adapter's */
int64_t vp_recorded_count_slots(const vp_recorded *s, vp_owner owner);

#endif
