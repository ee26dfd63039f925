/* models/rotary.h: rotary position embeddings in the published scalings, as transformers'
 * modeling_rope_utils.py builds them.
 *     vp_rope_frequencies(&rope, seq, inv_freq, &scale);
 *
 * At position p, pair i of a head (elements i and i + n, n = dim / 2) turns by the angle p *
 * inv_freq[i]; cosines and sines are multiplied by scale. Unscaled, inv_freq[i] = theta^(-2 i /
 * dim) (Su et al. 2021, arXiv:2104.09864). */
#ifndef VP_MODELS_ROTARY_H
#define VP_MODELS_ROTARY_H

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum vp_rope_type {
    VP_ROPE_DEFAULT,
    /* positions divided by factor (Chen et al. 2023, arXiv:2306.15595) */
    VP_ROPE_LINEAR,
    /* theta grows with the sequence beyond max_positions ("NTK-aware") */
    VP_ROPE_DYNAMIC,
    /* Peng et al. 2023, arXiv:2309.00071 */
    VP_ROPE_YARN,
    /* Ding et al. 2024, arXiv:2402.13753: a factor for each pair, one set for short sequences */
    VP_ROPE_LONGROPE,
    /* Llama 3.1: low frequencies divided by factor, a smooth band between */
    VP_ROPE_LLAMA3,
    VP_N_ROPE_TYPES
} vp_rope_type;

enum { VP_MAX_ROPES = 2, VP_ROPE_MAX_PAIRS = 128 };

typedef struct vp_rope {
    vp_rope_type type;
    int64_t      dim; /* rotated dimensions of a head, even                       */
    double       theta;
    double       factor;
    double       attention_factor; /* yarn, longrope; negative: by the type's own rule         */
    double       beta_fast, beta_slow, mscale, mscale_all_dim; /* yarn; mscale 0: none        */
    bool         truncate; /* yarn                                                     */
    double       low_freq_factor, high_freq_factor; /* llama3                      */
    int64_t      original_positions; /* the model's context before scaling                      */
    int64_t      max_positions;
    double       short_factor[VP_ROPE_MAX_PAIRS], long_factor[VP_ROPE_MAX_PAIRS]; /* longrope   */
} vp_rope;

/* inv_freq[dim / 2] for sequences of seq tokens, each rounded to fp32 as transformers holds
 * them. */
void vp_rope_frequencies(const vp_rope *rope, int64_t seq, double *inv_freq, double *scale);

#endif
