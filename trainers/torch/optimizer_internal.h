/* trainers/torch/optimizer_internal.h: what the files of optimizers share. */
#ifndef VP_TRAINERS_TORCH_OPTIMIZER_INTERNAL_H
#define VP_TRAINERS_TORCH_OPTIMIZER_INTERNAL_H

#include "base/checked.h"
#include "trainers/torch/optimizer_settings.h"
#include "trainers/torch/optimizer_step.h"

/* MAX_STATES: of two states the codes, the scales and the map. */
enum { MAX_STATES = 6, MAX_MAPS = 2 };

struct vp_optimizer_step {
    vp_ledger            *ledger;
    vp_trained           *trained;
    int64_t               n, n_first;
    bool                  one_by_one, widens_tables;
    vp_optimizer_settings settings;
    vp_symbol_card        card; /* no multiprocessors: sums without scratch */
    /* MAX_STATES of each parameter, two that are made in a step */
    vp_ledger_block        *states, *made, maps[MAX_MAPS];
    int64_t                 state_bytes; /* of those that were made, as asked for; paged ones too */
    int                     row;
    bool                    has_states;
    bool                   *is_stepped; /* of each parameter: in this backward pass */
    vp_ledger_block *const *weights, *const *gradients; /* vp_optimizer_step_at() */
};

/* A list of parameters that is stepped at once: all, or one of Trainer's groups. */
typedef struct range {
    int64_t first, end;
} range;

static inline int64_t vp_trained_elements(const vp_trained *t)
{
    return t->bytes / t->element_bytes;
}

/* A state of the parameter's, or of all of them; it stays. */
static inline vp_status vp_optimizer_keep(vp_optimizer_step *o, int64_t bytes,
                                          vp_ledger_block *state, vp_err *err)
{
    o->state_bytes = vp_add(o->state_bytes, bytes);
    return vp_ledger_alloc(o->ledger, VP_OWNER_OPTIMIZER, bytes, state, err);
}

/* Two states of bitsandbytes of what is stepped, and a number of their norm: in 8 bits, or of few elements in fp32. */
vp_status vp_optimizer_keep_8bit(vp_optimizer_step *optimizer, const vp_trained *trained,
                                 vp_ledger_block *states, vp_err *err);

/* optimizer_matrices.c: steps that work through the parameters one by one, as Python's loops do. Which states there are before a
 * group is stepped is the caller's to make. */
vp_status vp_optimizer_step_muon(vp_optimizer_step *optimizer, range of, vp_err *err);
vp_status vp_optimizer_step_projected(vp_optimizer_step *optimizer, range of, vp_err *err);
vp_status vp_optimizer_step_moving(vp_optimizer_step *optimizer, range of, vp_err *err);
/* GaLore's of parameter i, of low rank where it is a matrix; its projection where it has none. */
vp_status vp_optimizer_keep_projected_8bit(vp_optimizer_step *optimizer, int64_t i, vp_err *err);
/* Of GaLore's Adafactor, which projects a gradient in fp32 whatever the parameter: its projection renewed, in place of gradient, which is
 * no tensor's of this format yet, what is left of it; as which it is then stepped; an update given its full bytes again, and scaled. */
vp_status  vp_optimizer_project_wide(vp_optimizer_step *optimizer, const vp_trained *trained,
                                     vp_ledger_block *projection, vp_ledger_block *gradient,
                                     vp_err *err);
int64_t    vp_optimizer_wide_projection_bytes(const vp_optimizer_step *optimizer,
                                              const vp_trained        *trained);
vp_trained vp_optimizer_projected(const vp_optimizer_step *optimizer, const vp_trained *trained);
vp_status  vp_optimizer_project_back(vp_optimizer_step *optimizer, int64_t bytes,
                                     vp_ledger_block *update, vp_err *err);
/* Elements of the states of a matrix that is projected: the two moments each, and the projection. */
int64_t vp_optimizer_moment_elements(const vp_optimizer_step *optimizer, const vp_trained *trained);
int64_t vp_optimizer_projection_elements(const vp_optimizer_step *optimizer,
                                         const vp_trained        *trained);

#endif
