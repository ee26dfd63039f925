/* trainers/torch/eager_seconds.h: seconds of a training step of transformers' modules as PyTorch runs
 * them eagerly, without a card.
 *     vp_eager_step step = {.model = m, .device = &card, .precision = "bf16", .batch = 4, ...};
 *     VP_TRY(vp_eager_seconds(&step, &seconds, err));
 *
 * The same lowered steps that a plan is priced by (planner/lowering/cost.h, with the profile where
 * there is one), where each of vplan's kernels stands for the kernels that transformers launches in its
 * place: more of them, and more bytes. The card runs beside the host, which issues one operator after
 * the other; the slower of the two counts. Assumed: it ranks settings, it is no measurement. */
#ifndef VP_TRAINERS_TORCH_EAGER_SECONDS_H
#define VP_TRAINERS_TORCH_EAGER_SECONDS_H

#include "models/model.h"
#include "planner/lowering/cost.h"

/* Micro-steps that were priced before: of many settings few differ in them. Zeroed by the caller. */
enum { VP_EAGER_PRICES = 1024 };
typedef struct vp_eager_prices {
    struct vp_eager_price {
        int64_t batch, seq;
        int     kind; /* what else of the settings its seconds depend on */
        double  card_s, host_s, again_card_s,
            again_host_s; /* again: all blocks, forward once more */
    } at[VP_EAGER_PRICES];
    int n;
} vp_eager_prices;

typedef struct vp_eager_step {
    const vp_model   *model;
    const vp_device  *device;
    const vp_profile *profile;   /* or NULL */
    const char       *precision; /* fp32, bf16-mixed, bf16-amp, bf16, fp16-mixed, fp16-amp, fp16 */
    const char       *attention; /* eager and sdpa:math keep the matrix; others do not */
    const char       *optimizer; /* by transformers' word; another is priced as the costliest */
    bool              clips;
    bool    frozen; /* the weights do not train, adapters do: no products for their gradients */
    int64_t batch, seq, accumulation;
    int64_t n_recomputed;    /* blocks that run forward again in backward */
    int64_t n_trained;       /* parameters */
    vp_eager_prices *prices; /* of this model, device and profile; or NULL */
} vp_eager_step;

/* VP_ERR_INPUT: sizes beyond 64 bits. */
vp_status vp_eager_seconds(const vp_eager_step *step, double *out, vp_err *err);

#endif
