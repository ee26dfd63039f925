/* kernels/cpu/update.h: what optimizer kernels share: parameters and states in the forms they are
 * kept in.
 *     float scratch[VP_UPDATE_PIECE];
 *     float *x = vp_param_load(&p, i, n, scratch);       fp32: in place; else brought to fp32 in
 *     scratch
 *     ... x[j] -= ...
 *     vp_param_store(&p, i, n, x);
 *
 * The arithmetic of an update is fp32 whatever is kept. What is rounded:
 *
 *   a parameter of 16 bits with a    the nearest to the master: bf16, or fp16, which always has one
 *   master
 *   a bf16 parameter without         stochastically: a step of lr is often less than half the
 *   distance of two bf16 numbers,
 *                                    and rounding to nearest would undo it (Zamirai et al. 2020,
 *                                    arXiv:2010.06192)
 *   a bf16 state                     stochastically. v = b2 v + (1 - b2) g^2 moves by less than
 *   half a unit in the last
 *                                    place, 2^-9 to 2^-8 of v, as soon as 1 - b2 does, and then
 *                                    never falls. Measured on normal
 *                                    gradients whose size drops tenfold, after 3000 steps: rounded
 *                                    to nearest, v is 22 times
 *                                    too large at b2 = 0.999 and right to 0.5 % at 0.95;
 *                                    stochastically it has the right mean
 *                                    in both, with a noise of 11 % and 0.8 %
 *   an 8-bit state                   the nearest of its 256 values (dynamic8.h): a decay that all
 *   numbers of a block share passes
 *                                    through its scale, which is fp32, and steps of 0.7 % of the
 *                                    number and more would make
 *                                    stochastic rounding mostly noise. Measured as above on 256
 *                                    sizes of a lognormal: sqrt(v) is
 *                                    off by 5, 7 and 13 % (rms) at b2 = 0.95, 0.99 and 0.999;
 *                                    stochastically 6, 13 and 12 %
 *
 * The update itself uses a state before it is rounded. Random bits are 16 an element, half h =
 * element mod 8 of Philox block element / 8 of the call's stream, little half of a word first;
 * the counter's sample says what they are for. They depend on seed, step, op and element only,
 * so an update of a parameter whose rounding draws is one call. */
#ifndef VP_KERNELS_CPU_UPDATE_H
#define VP_KERNELS_CPU_UPDATE_H

#include "kernels/cpu/bf16_span.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/dynamic8.h"
#include "kernels/cpu/philox.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Elements brought to fp32 at a time: a block of an 8-bit state. */
enum { VP_UPDATE_PIECE = VP_STATE_BLOCK };

/* What random bits are for: the `sample` of their counter. */
enum { VP_DRAW_PARAM, VP_DRAW_FIRST_STATE, VP_DRAW_SECOND_STATE };

/* Bits for elements first .. first + n - 1, n <= VP_UPDATE_PIECE. */
void vp_update_draw(vp_philox_key key, uint64_t use, int64_t first, int64_t n, uint16_t *random);

/* ---- parameters ---- */

typedef struct vp_param {
    /* what the update is made to: p of an fp32 call, or the master; NULL: a bf16 p */
    float *exact;
    /* p of an fp32 call that has a master as well, else NULL */
    float *copy;
    /* p of a call of 16 bits, else NULL; fp16 has a master */
    uint16_t     *half;
    vp_dtype      dtype;
    vp_philox_key key;
} vp_param;

/* param and master: the call's operands. */
vp_param vp_param_of(const vp_kernel_call *call, void *param, float *master);

VP_ALWAYS_INLINE float *vp_param_load(const vp_param *p, int64_t i, int64_t n, float *scratch)
{
    if (p->exact)
        return p->exact + i;
    vp_bf16_widen(p->half + i, scratch, n);
    return scratch;
}

VP_ALWAYS_INLINE void vp_param_store(const vp_param *p, int64_t i, int64_t n, const float *x)
{
    uint16_t random[VP_UPDATE_PIECE];

    if (p->copy)
        memcpy(p->copy + i, x, (size_t)n * sizeof(float));
    if (!p->half)
        return;
    if (p->exact) {
        vp_half_round(x, p->half + i, n, p->dtype);
        return;
    }
    vp_update_draw(p->key, VP_DRAW_PARAM, i, n, random);
    vp_bf16_round_stochastic(x, random, p->half + i, n);
}

/* ---- gradients ---- */

typedef struct vp_grad {
    const float    *f32;  /* NULL: the bf16 */
    const uint16_t *bf16; /* of a call of VP_DTYPE_BF16_GRADS */
} vp_grad;

static inline vp_grad vp_grad_of(const vp_kernel_call *call, const void *operand)
{
    return call->dtype == VP_DTYPE_BF16_GRADS ? (vp_grad){.bf16 = operand}
                                              : (vp_grad){.f32 = operand};
}

VP_ALWAYS_INLINE const float *vp_grad_load(const vp_grad *g, int64_t i, int64_t n, float *scratch)
{
    if (g->f32)
        return g->f32 + i;
    vp_bf16_widen(g->bf16 + i, scratch, n);
    return scratch;
}

/* ---- states ---- */

typedef struct vp_state {
    vp_state_kind      kind;
    float             *f32;   /* VP_STATE_F32                             */
    uint16_t          *bf16;  /* VP_STATE_BF16                            */
    uint8_t           *code;  /* VP_STATE_BLOCK8                          */
    float             *scale; /* of block i / VP_STATE_BLOCK              */
    const vp_dynamic8 *map;
    uint64_t           use;
    vp_philox_key      key;
} vp_state;

/* A state of n elements; is_signed: whether it can be below zero. */
vp_state vp_state_of(const vp_kernel_call *call, void *operand, vp_state_kind kind, int64_t n,
                     bool is_signed);

/* i is a multiple of VP_UPDATE_PIECE, n at most that, and short of it only at the end. */
VP_ALWAYS_INLINE float *vp_state_load(const vp_state *s, int64_t i, int64_t n, float *scratch)
{
    switch (s->kind) {
    case VP_STATE_F32:
        return s->f32 + i;
    case VP_STATE_BF16:
        vp_bf16_widen(s->bf16 + i, scratch, n);
        return scratch;
    default:
        vp_dynamic8_decode(s->map, s->code + i, s->scale[i / VP_STATE_BLOCK], n, scratch);
        return scratch;
    }
}

VP_ALWAYS_INLINE void vp_state_store(const vp_state *s, int64_t i, int64_t n, const float *x)
{
    uint16_t random[VP_UPDATE_PIECE];

    switch (s->kind) {
    case VP_STATE_F32:
        return;
    case VP_STATE_BF16:
        vp_update_draw(s->key, s->use, i, n, random);
        vp_bf16_round_stochastic(x, random, s->bf16 + i, n);
        return;
    default:
        s->scale[i / VP_STATE_BLOCK] = vp_dynamic8_encode(s->map, x, n, s->code + i);
        return;
    }
}

/* ---- sums over a whole parameter ---- */

/* start + of(context, 0) + of(context, 1) + ... in this order, the terms computed by all
 * threads. */
double vp_update_sum(double start, int64_t n_tiles, double (*of)(const void *context, int64_t tile),
                     const void *context);

/* start + sum x[i]^2, in double: tiles of 16384 elements, in order. */
double vp_update_sum_squares(double start, vp_grad x, int64_t n);

#endif
