/* trainers/torch/optimizer_step.h: what an optimizer of PyTorch allocates in its step, from the list of
 * parameters alone.
 *     VP_TRY(vp_optimizer_step_new("adamw_torch", bytes, n, 4, &ledger, &optimizer, err));
 *     VP_TRY(vp_optimizer_step_play(optimizer, err));      within an open phase, each step
 *
 * States are made in the first step, one parameter after the other. */
#ifndef VP_TRAINERS_TORCH_OPTIMIZER_STEP_H
#define VP_TRAINERS_TORCH_OPTIMIZER_STEP_H

#include "trainers/torch/ledger.h"
#include "trainers/torch/symbols.h"

#include <stdbool.h>

typedef struct vp_optimizer_step vp_optimizer_step;

/* A trained parameter, or its gradient: all its bytes, those of one element. Adafactor keeps rows and columns of
 * what columns divides; 0: of nothing. is_matrix: of these rows and columns, and the optimizer treats it as one
 * (vp_optimizer_step_asks_matrices()). */
typedef struct vp_trained {
    int64_t bytes, element_bytes, columns;
    bool    is_matrix, is_table; /* is_table: an embedding */
} vp_trained;

/* Name i of those that are known, by transformers' words; NULL past the end. Where a name is asked for, one with what it is told
 * will do (optimizer_settings.h). */
const char *vp_optimizer_step_name(int i);
/* Whether it orthogonalises matrices, or projects them: its parameters come in two groups, and vp_optimizer_step_group() says where
 * the second begins. The first has all matrices, or where it projects none. */
bool vp_optimizer_step_asks_matrices(const char *name);
/* How many states an element has; 0: none, or no such optimizer. */
int vp_optimizer_step_states(const char *name);

/* Whether bitsandbytes keeps its states in fp32, whatever was asked for. */
bool vp_optimizer_step_is_small(const vp_trained *trained);

/* VP_ERR_INPUT, with the names that are known, or why it is not: name is none of them. */
vp_status vp_optimizer_step_check(const char *name, vp_err *err);

/* trained[n]: copied. VP_ERR_INPUT: no such optimizer. */
vp_status vp_optimizer_step_new(const char *name, const vp_trained *trained, int64_t n,
                                vp_ledger *ledger, vp_optimizer_step **out, vp_err *err);
/* Of which card: Adafactor's sums over many rows take scratch by its multiprocessors. None, unless told otherwise. */
void vp_optimizer_step_on(vp_optimizer_step *optimizer, const vp_symbol_card *card);
/* Tables have fp32 states where others have 8 bits, as transformers' Trainer asks bitsandbytes for embeddings. */
void vp_optimizer_step_widen_tables(vp_optimizer_step *optimizer);
/* The first n are a group of their own, stepped before the others: by transformers' Trainer those with
 * weight decay. One group, unless told otherwise. */
void vp_optimizer_step_group(vp_optimizer_step *optimizer, int64_t n);
/* Each in a step of its own: DeepSpeed's joined weights. */
void vp_optimizer_step_one_by_one(vp_optimizer_step *optimizer);
/* What the optimizer allocates when it is made, within an open phase. */
vp_status vp_optimizer_step_begin(vp_optimizer_step *optimizer, vp_err *err);
/* The states come from a checkpoint, behind vp_optimizer_step_begin() and within an open phase. */
vp_status vp_optimizer_step_resume(vp_optimizer_step *optimizer, vp_err *err);
/* Of host memory, in which states stay between steps. */
int64_t vp_optimizer_step_host_bytes(const vp_optimizer_step *optimizer);
/* Of host memory, while they come: a checkpoint's are read whole, and bitsandbytes copies what was read (optimizer.py,
 * load_state_dict). */
int64_t vp_optimizer_step_resume_bytes(const vp_optimizer_step *optimizer);
void    vp_optimizer_step_free(vp_optimizer_step *optimizer);
/* What the first step's states take at least, beside all that is there when it begins. */
int64_t   vp_optimizer_step_least_bytes(const vp_optimizer_step *optimizer);
vp_status vp_optimizer_step_play(vp_optimizer_step *optimizer, vp_err *err);

/* Whether it updates each parameter in the backward pass, when its gradient is there, which then goes: vp_optimizer_step_play() makes
 * nothing. */
bool vp_optimizer_step_in_backward(const char *name);
void vp_optimizer_backward_begin(vp_optimizer_step *optimizer);
/* Of a parameter whose gradient has so many bytes, as asked for. VP_ERR_INPUT: none is left that has. */
vp_status vp_optimizer_backward_update(vp_optimizer_step *optimizer, int64_t bytes,
                                       vp_ledger_block *gradient, vp_err *err);

/* Whether it puts tensors of its own in place of weights and gradients as it steps: weights[n] and gradients[n] are where those of the
 * parameters lie when it does, borrowed. */
bool vp_optimizer_step_moves(const char *name);
void vp_optimizer_step_at(vp_optimizer_step *optimizer, vp_ledger_block *const *weights,
                          vp_ledger_block *const *gradients);

/* torch.nn.utils.clip_grad_norm_() of these gradients, within an open phase. */
vp_status vp_clip_play(const vp_trained *gradients, int64_t n, vp_ledger *ledger, vp_err *err);

#endif
