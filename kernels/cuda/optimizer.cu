/* kernels/cuda/optimizer.cu: the optimizers that update each element by itself: AdamW, SGD with and without momentum, Lion.
 *
 * The rules are those of kernels/cpu/optimizer.c: scalars in double from the control block and the recipe, rounded to float once;
 * elements in float; the gradient scaled by control.grad_scale as it is read. g is fp32 (count); p, master and the states are in the forms of
 * optimizer_state.h. One pass, an element is read and written once: adamw moves 28 bytes of each in fp32, 30 in bf16 with a master,
 * 16 in bf16 with bf16 states or in fp32 with 8-bit ones; momentum and lion 20 in fp32, sgd 12. */
#include "kernels/cuda/optimizer_state.h"

/* One call, as the kernel takes it. */
template <typename P> struct update {
    vp_param<P>          p;
    const float         *g;
    vp_state             m, v;
    const vp_control    *control;
    vp_optimizer_numbers numbers;
    vp_rng_stream        rng;
    int64_t              count;
    bool                 decays, aligned;
};

struct scalars {
    float    grad_scale, lr, decay, keep; /* keep: 1 - lr decay */
    float    momentum;
    float    b1, one_minus_b1, b2, one_minus_b2, step_size, inv_sqrt_correction, eps;
    uint32_t key[2];
};

/* beta^t by squaring, t being whole: 2 log2 t products, where pow() is some hundred fp64 operations, and every block needs it. */
static __device__ double power(double beta, double t)
{
    double y = 1.0;

    for (uint64_t n = (uint64_t)t; n > 0; n /= 2, beta *= beta)
        if (n % 2 != 0)
            y *= beta;
    return y;
}

template <typename P> static __device__ void make_scalars(const update<P> &u, scalars *k)
{
    vp_device_rng rng = vp_rng_now(u.rng, u.control);
    double        lr = u.control->lr, t = u.control->step;

    k->grad_scale          = (float)u.control->grad_scale;
    k->lr                  = (float)lr;
    k->decay               = u.decays ? (float)u.numbers.weight_decay : 0.0f;
    k->keep                = (float)(u.decays ? 1.0 - lr * u.numbers.weight_decay : 1.0);
    k->momentum            = (float)u.numbers.momentum;
    k->b1                  = (float)u.numbers.beta1;
    k->one_minus_b1        = (float)(1.0 - u.numbers.beta1);
    k->b2                  = (float)u.numbers.beta2;
    k->one_minus_b2        = (float)(1.0 - u.numbers.beta2);
    k->step_size           = (float)(lr / (1.0 - power(u.numbers.beta1, t)));
    k->inv_sqrt_correction = (float)(1.0 / sqrt(1.0 - power(u.numbers.beta2, t)));
    k->eps                 = (float)u.numbers.eps;
    k->key[0]              = rng.key[0];
    k->key[1]              = rng.key[1];
}

/* ---- the rules, for one element ---- */

/* Loshchilov, Hutter 2019, arXiv:1711.05101, as torch.optim.AdamW orders it. */
static __device__ inline void adamw(const scalars &k, float g, float *p, float *m, float *v)
{
    *m = vp_product_sum(k.b1, *m, k.one_minus_b1, g);
    *v = vp_product_sum(k.b2, *v, k.one_minus_b2, g * g);
    *p = vp_product_sum(k.keep, *p, -k.step_size, *m / vp_product_sum(sqrtf(*v), k.inv_sqrt_correction, k.eps));
}

/* torch.optim.SGD's coupled decay. */
static __device__ inline void sgd(const scalars &k, float g, float *p)
{
    *p = vp_product_sum(-k.lr, vp_product_sum(k.decay, *p, g), *p);
}

/* torch.optim.SGD with momentum, dampening 0, nesterov off. */
static __device__ inline void momentum(const scalars &k, float g, float *p, float *m)
{
    *m = vp_product_sum(k.momentum, *m, vp_product_sum(k.decay, *p, g));
    *p = vp_product_sum(-k.lr, *m, *p);
}

/* Chen et al. 2023, arXiv:2302.06675, algorithm 2. The sign of zero is zero; of a NaN it is NaN, so that it is seen in p. */
static __device__ inline void lion(const scalars &k, float g, float *p, float *m)
{
    float c    = vp_product_sum(k.b1, *m, k.one_minus_b1, g);
    float sign = c < 0.0f ? -1.0f : c > 0.0f ? 1.0f : c;

    *m = vp_product_sum(k.b2, *m, k.one_minus_b2, g);
    *p = vp_product_sum(k.keep, *p, -k.lr, sign);
}

/* ---- over a parameter ---- */

template <int RULE> struct states_of {
    enum { N = RULE == VP_K_ADAMW ? 2 : RULE == VP_K_SGD ? 0 : 1 };
};

template <int RULE, typename P, int KIND> struct span_update {
    const update<P>   &u;
    const scalars     &k;
    const vp_dynamic8 *maps; /* of m, of v: VP_STATE_BLOCK8 only */

    template <bool WHOLE> __device__ inline void operator()(const vp_span<WHOLE> &at) const
    {
        enum { N_STATES = states_of<RULE>::N };
        float p[VP_LANE_N], g[VP_LANE_N], m[VP_LANE_N], v[VP_LANE_N];

        vp_param_load(u.p, at, p);
        vp_span_load(u.g, at, g);
        if (N_STATES > 0)
            vp_state_load<KIND>(u.m, &maps[0], at, m);
        if (N_STATES > 1)
            vp_state_load<KIND>(u.v, &maps[1], at, v);
#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++) {
            float grad = g[j] * k.grad_scale;

            if (RULE == VP_K_ADAMW)
                adamw(k, grad, &p[j], &m[j], &v[j]);
            else if (RULE == VP_K_SGD)
                sgd(k, grad, &p[j]);
            else if (RULE == VP_K_MOMENTUM)
                momentum(k, grad, &p[j], &m[j]);
            else
                lion(k, grad, &p[j], &m[j]);
        }
        if (N_STATES > 0)
            vp_state_store<KIND, true>(u.m, &maps[0], k.key, at, m);
        if (N_STATES > 1)
            vp_state_store<KIND, false>(u.v, &maps[1], k.key, at, v);
        vp_param_store(u.p, k.key, at, p);
    }
};

/* Two blocks a multiprocessor are enough, since a lane has 64 to 160 bytes under way: so many registers need not be saved. */
template <int RULE, typename P, int KIND> static __global__ void __launch_bounds__(VP_BLOCK, 2) update_spans(update<P> u)
{
    enum { N_MAPS = KIND == VP_STATE_BLOCK8 ? states_of<RULE>::N : 0 };
    __shared__ scalars     k;
    __shared__ vp_dynamic8 maps[2];

    if (threadIdx.x == 0)
        make_scalars(u, &k);
    for (int i = 0; i < N_MAPS; i++)
        vp_dynamic8_load(&maps[i], i == 0);
    __syncthreads();
    vp_each_span(u.count, u.aligned, span_update<RULE, P, KIND>{u, k, maps});
}

/* The first state is operand 2, the second 3; count, decay and state the attributes. */
template <typename P> static update<P> update_of(const vp_kernel_call *call, int n_states)
{
    update<P> u;

    u.p       = vp_param_of<P>(call);
    u.g       = static_cast<const float *>(call->operand[1]);
    u.m       = n_states > 0 ? vp_state_of(call->operand[2], call->ints[0]) : vp_state();
    u.v       = n_states > 1 ? vp_state_of(call->operand[3], call->ints[0]) : vp_state();
    u.control = static_cast<const vp_control *>(call->operand[vp_kernel_operand(call->kernel, "control")]);
    u.numbers = *call->optimizer;
    u.rng     = call->rng;
    u.count   = call->ints[0];
    u.decays  = call->ints[1] != 0;
    u.aligned = vp_operands_are_aligned16(call);
    return u;
}

template <int RULE, typename P, int KIND> static cudaError_t launch(const vp_kernel_call *call, cudaStream_t stream)
{
    update<P> u = update_of<P>(call, states_of<RULE>::N);
    return VP_LAUNCH((update_spans<RULE, P, KIND>), vp_span_blocks(u.count), VP_BLOCK, 0, stream, u);
}

template <int RULE, typename P> static cudaError_t launch_kind(const vp_kernel_call *call, cudaStream_t stream)
{
    switch (call->ints[2]) {
    case VP_STATE_F32:
        return launch<RULE, P, VP_STATE_F32>(call, stream);
    case VP_STATE_BF16:
        return launch<RULE, P, VP_STATE_BF16>(call, stream);
    default:
        return launch<RULE, P, VP_STATE_BLOCK8>(call, stream);
    }
}

extern "C" cudaError_t vp_cuda_adamw(const vp_kernel_call *call, cudaStream_t stream)
{
    VP_BY_DTYPE(call->dtype, P, return (launch_kind<VP_K_ADAMW, P>(call, stream)));
}

extern "C" cudaError_t vp_cuda_sgd(const vp_kernel_call *call, cudaStream_t stream)
{
    VP_BY_DTYPE(call->dtype, P, return (launch<VP_K_SGD, P, VP_STATE_F32>(call, stream)));
}

extern "C" cudaError_t vp_cuda_momentum(const vp_kernel_call *call, cudaStream_t stream)
{
    VP_BY_DTYPE(call->dtype, P, return (launch_kind<VP_K_MOMENTUM, P>(call, stream)));
}

extern "C" cudaError_t vp_cuda_lion(const vp_kernel_call *call, cudaStream_t stream)
{
    VP_BY_DTYPE(call->dtype, P, return (launch_kind<VP_K_LION, P>(call, stream)));
}
