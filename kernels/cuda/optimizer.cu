/* kernels/cuda/optimizer.cu: the optimizers that update each element by itself: AdamW, SGD with and
 * without momentum, Lion.
 *
 * The rules are those of kernels/cpu/optimizer.c: scalars in double from the control block and the
 * recipe, rounded to float once; elements in float; the gradient scaled by control.grad_scale as it
 * is read. g is fp32 or bf16 (count); p, master and the states are in the forms of optimizer_state.h. One
 * pass, an element is read and written once: adamw moves 28 bytes of each in fp32, 30 in bf16 with
 * a master, 16 in bf16 with bf16 states or in fp32 with 8-bit ones; momentum and lion 20 in fp32,
 * sgd 12.
 *
 * One launch is for many parameters, of which a block works on one: a model has some hundred,
 * most of them so small that starting their launches would take longer than the work. What an
 * element becomes does not depend on what else is in its launch. */
#include "kernels/cuda/optimizer_state.h"
#include "kernels/power.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(vp_cuda_updates) <= 4096, "a kernel's parameters");

struct scalars {
    float    grad_scale, lr, decay, keep; /* keep: 1 - lr decay */
    float    momentum;
    float    b1, one_minus_b1, b2, one_minus_b2, step_size, inv_sqrt_correction, eps;
    uint32_t key[2];
};

/* Warps side by side: AdamW's two corrections are chains of products in double, the random key one of
 * whole numbers. Other rules have no corrections. */
template <int RULE>
static __device__ void make_scalars(const vp_cuda_updates &all, const vp_cuda_update &u, scalars *k)
{
    const double lr = all.control->lr, t = VP_UPDATE_NUMBER(all.control);

    if (threadIdx.x == 0) {
        k->grad_scale = (float)all.control->grad_scale;
        k->lr         = (float)lr;
        k->decay      = u.decays ? (float)all.numbers.weight_decay : 0.0f;
        k->keep =
            (float)(u.decays ? __dadd_rn(1.0, -__dmul_rn(lr, all.numbers.weight_decay)) : 1.0);
        k->momentum     = (float)all.numbers.momentum;
        k->b1           = (float)all.numbers.beta1;
        k->one_minus_b1 = (float)(1.0 - all.numbers.beta1);
        k->b2           = (float)all.numbers.beta2;
        k->one_minus_b2 = (float)(1.0 - all.numbers.beta2);
        k->eps          = (float)all.numbers.eps;
    } else if (threadIdx.x == VP_WARP) {
        const vp_rng_stream stream = {all.rng_seed, all.rng_step, u.rng_op, 0, 0};
        vp_device_rng       rng    = vp_rng_now(stream, all.control);

        k->key[0] = rng.key[0];
        k->key[1] = rng.key[1];
    } else if (RULE == VP_K_ADAMW && threadIdx.x == 2 * VP_WARP) {
        k->step_size = (float)(lr / (1.0 - vp_power(all.numbers.beta1, t)));
    } else if (RULE == VP_K_ADAMW && threadIdx.x == 3 * VP_WARP) {
        k->inv_sqrt_correction = (float)(1.0 / sqrt(1.0 - vp_power(all.numbers.beta2, t)));
    }
}

/* ---- the rules, for one element ---- */

/* Loshchilov, Hutter 2019, arXiv:1711.05101, as torch.optim.AdamW orders it. */
static __device__ inline void adamw(const scalars &k, float g, float *p, float *m, float *v)
{
    *m = vp_product_sum(k.b1, *m, k.one_minus_b1, g);
    *v = vp_product_sum(k.b2, *v, k.one_minus_b2, g * g);
    *p = vp_product_sum(k.keep, *p, -k.step_size,
                        *m / vp_product_sum(sqrtf(*v), k.inv_sqrt_correction, k.eps));
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

/* Chen et al. 2023, arXiv:2302.06675, algorithm 2. The sign of zero is zero; of a NaN it is NaN,
 * so that it is seen in p. */
static __device__ inline void lion(const scalars &k, float g, float *p, float *m)
{
    float c    = vp_product_sum(k.b1, *m, k.one_minus_b1, g);
    float sign = c < 0.0f ? -1.0f : c > 0.0f ? 1.0f : c;

    *m = vp_product_sum(k.b2, *m, k.one_minus_b2, g);
    *p = vp_product_sum(k.keep, *p, -k.lr, sign);
}

/* ---- over a parameter ---- */

/* Beside p, g, the master and the control block a rule has its states. */
template <int RULE> constexpr int n_states = -1;
#define VP_EACH_UPDATE(NAME, name) \
    template <> constexpr int n_states<VP_K_##NAME> = VP_N_##NAME##_OPERANDS - 4;
#include "plan/kernels.def"

template <int RULE, typename P, int KIND> struct span_update {
    vp_param<P>        param;
    vp_gradient        gradient;
    vp_state           first, second;
    const scalars     &k;
    const vp_dynamic8 *maps; /* of the first state, of the second: VP_STATE_BLOCK8 only */

    template <bool WHOLE> __device__ inline void operator()(const vp_span<WHOLE> &at) const
    {
        enum { N_STATES = n_states<RULE> };
        float p[VP_LANE_N], g[VP_LANE_N], m[VP_LANE_N], v[VP_LANE_N];

        vp_param_load(param, at, p);
        vp_span_load(gradient, at, g);
        if (N_STATES > 0)
            vp_state_load<KIND>(first, &maps[0], at, m);
        if (N_STATES > 1)
            vp_state_load<KIND>(second, &maps[1], at, v);
#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++) {
            float grad = g[j] * k.grad_scale;

            if constexpr (RULE == VP_K_ADAMW)
                adamw(k, grad, &p[j], &m[j], &v[j]);
            else if constexpr (RULE == VP_K_SGD)
                sgd(k, grad, &p[j]);
            else if constexpr (RULE == VP_K_MOMENTUM)
                momentum(k, grad, &p[j], &m[j]);
            else if constexpr (RULE == VP_K_LION)
                lion(k, grad, &p[j], &m[j]);
            else
                static_assert(RULE < 0, "an update without a rule");
        }
        if (N_STATES > 0)
            vp_state_store<KIND, true>(first, &maps[0], k.key, at, m);
        if (N_STATES > 1)
            vp_state_store<KIND, false>(second, &maps[1], k.key, at, v);
        vp_param_store(param, k.key, at, p);
    }
};

/* Two blocks a multiprocessor are enough, since a lane has 64 to 160 bytes under way: so many
 * registers need not be saved. */
template <int RULE, typename P, int KIND>
static __global__ void __launch_bounds__(VP_BLOCK, 2)
    update_spans(const __grid_constant__ vp_cuda_updates all)
{
    enum { N_MAPS = KIND == VP_STATE_BLOCK8 ? n_states<RULE> : 0 };
    __shared__ scalars     k;
    __shared__ vp_dynamic8 maps[2];
    const int              i = vp_entry_here(all.of, all.n);
    const vp_cuda_update  &u = all.of[i];
    const unsigned         n_blocks =
        (i + 1 < all.n ? all.of[i + 1].first_block : all.n_blocks) - u.first_block;
    const vp_param<P> p        = {static_cast<P *>(u.p), u.master};
    const bool        bf16     = all.dtype == VP_DTYPE_BF16_GRADS;
    const vp_gradient gradient = {bf16 ? nullptr : static_cast<const float *>(u.g),
                                  bf16 ? static_cast<const vp_bf16 *>(u.g) : nullptr};

    if (VP_SKIPS(all.control))
        return;

    make_scalars<RULE>(all, u, &k);
    for (int map = 0; map < N_MAPS; map++)
        vp_dynamic8_load(&maps[map], map == 0);
    __syncthreads();
    vp_each_span(u.count, u.aligned, blockIdx.x - u.first_block, n_blocks,
                 span_update<RULE, P, KIND>{p, gradient, vp_state_of(u.state[0], u.count),
                                            vp_state_of(u.state[1], u.count), k, maps});
}

/* ---- calls become launches ---- */

enum { N_RANGES = 5 };

struct range {
    uintptr_t begin, end;
};

static void ranges_of(const vp_cuda_updates *all, const vp_cuda_update *u, range *r)
{
    const int64_t of_p            = vp_dtype_bytes(all->dtype) * u->count,
                  of_floats       = (int64_t)sizeof(float) * u->count,
                  of_g            = all->dtype == VP_DTYPE_BF16_GRADS ? of_p : of_floats;
    const int64_t of_state        = vp_state_bytes(all->state, u->count),
                  bytes[N_RANGES] = {of_p, of_g, of_floats, of_state, of_state};
    const void *at[N_RANGES]      = {u->p, u->g, u->master, u->state[0], u->state[1]};

    for (int i = 0; i < N_RANGES; i++) {
        r[i].begin = (uintptr_t)at[i];
        r[i].end   = r[i].begin + (at[i] ? (uintptr_t)bytes[i] : 0);
    }
}

/* Whether two calls share a byte: then one has to wait for the other. */
static bool touch(const vp_cuda_updates *all, const vp_cuda_update *a, const vp_cuda_update *b)
{
    range x[N_RANGES], y[N_RANGES];

    ranges_of(all, a, x);
    ranges_of(all, b, y);
    for (int i = 0; i < N_RANGES; i++)
        for (int j = 0; j < N_RANGES; j++)
            if (x[i].begin < y[j].end && y[j].begin < x[i].end)
                return true;
    return false;
}

/* NULL: the kernel has none of this name, or it is absent. */
static void *operand_of(const vp_kernel_call *call, const char *name)
{
    int i = vp_kernel_operand(call->kernel, name);
    return i >= 0 ? call->operand[i] : NULL;
}

/* count, decay and, where there are states, their kind are the attributes. */
extern "C" bool vp_cuda_updates_take(vp_cuda_updates *all, const vp_kernel_call *call)
{
    const vp_state_kind state =
        operand_of(call, "m") ? (vp_state_kind)call->states.state : VP_STATE_F32;
    const vp_control *control = static_cast<const vp_control *>(operand_of(call, "control"));
    vp_cuda_update    u;

    if (all->n == 0) {
        all->n_blocks = 0;
        all->kernel   = call->kernel;
        all->dtype    = call->dtype;
        all->state    = state;
        all->rng_seed = call->rng.seed;
        all->rng_step = call->rng.step;
        all->control  = control;
        all->numbers  = *call->optimizer;
    }
    if (all->n == VP_CUDA_MAX_UPDATES || all->kernel != call->kernel || all->dtype != call->dtype ||
        all->state != state || all->control != control || all->rng_seed != call->rng.seed ||
        all->rng_step != call->rng.step ||
        memcmp(&all->numbers, call->optimizer, sizeof all->numbers) != 0)
        return false;
    u.p           = operand_of(call, "p");
    u.g           = operand_of(call, "g");
    u.state[0]    = operand_of(call, "m");
    u.state[1]    = operand_of(call, "v");
    u.master      = static_cast<float *>(operand_of(call, "master"));
    u.count       = call->update.count;
    u.rng_op      = call->rng.op;
    u.first_block = all->n_blocks;
    u.decays      = call->update.decay != 0;
    u.aligned     = vp_operands_are_aligned16(call);
    assert(u.p && u.g && u.count > 0 && (u.state[0] || !u.state[1]));
    for (int i = 0; i < all->n; i++)
        if (touch(all, &all->of[i], &u))
            return false;
    all->of[all->n++] = u;
    all->n_blocks += vp_span_blocks(u.count);
    return true;
}

template <int RULE, typename P, int KIND>
static cudaError_t launch(const vp_cuda_updates *all, cudaStream_t stream)
{
    return VP_LAUNCH((update_spans<RULE, P, KIND>), all->n_blocks, VP_BLOCK, 0, stream, *all);
}

template <int RULE, typename P>
static cudaError_t launch_state(const vp_cuda_updates *all, cudaStream_t stream)
{
    if constexpr (n_states<RULE> == 0)
        return launch<RULE, P, VP_STATE_F32>(all, stream);
    else
        switch (all->state) {
        case VP_STATE_F32:
            return launch<RULE, P, VP_STATE_F32>(all, stream);
        case VP_STATE_BF16:
            return launch<RULE, P, VP_STATE_BF16>(all, stream);
        case VP_STATE_BLOCK8:
            return launch<RULE, P, VP_STATE_BLOCK8>(all, stream);
        default:
            return cudaErrorInvalidValue;
        }
}

template <typename P>
static cudaError_t launch_rule(const vp_cuda_updates *all, cudaStream_t stream)
{
    switch (all->kernel) {
#define VP_EACH_UPDATE(NAME, name) \
    case VP_K_##NAME: \
        return launch_state<VP_K_##NAME, P>(all, stream);
#include "plan/kernels.def"
    default:
        return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t vp_cuda_updates_launch(vp_cuda_updates *all, cudaStream_t stream)
{
    cudaError_t e;

    VP_BY_DTYPE(all->dtype, P, e = launch_rule<P>(all, stream));
    all->n = 0;
    return e;
}
