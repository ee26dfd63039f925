/* kernels/cuda/cuda_gradient.h: gradients of parameters on the device: fp32, or bf16 in calls of
 * VP_DTYPE_BF16_GRADS.
 *     vp_gradient g = vp_gradient_of(call, call->operand[VP_MUON_G]);
 *     vp_load(g, i)                       one element, a float
 *     vp_load_quad(g, i, x)               four, from an i that is a multiple of 4
 * Which it is, is one branch that all threads of a launch take alike. */
#ifndef VP_KERNELS_CUDA_GRADIENT_H
#define VP_KERNELS_CUDA_GRADIENT_H

#include "kernels/cuda/cuda_kernel.h"

struct vp_gradient {
    const float   *f32; /* one of the two, the other NULL */
    const vp_bf16 *bf16;
};

static inline vp_gradient vp_gradient_of(const vp_kernel_call *call, const void *operand)
{
    vp_gradient g = {nullptr, nullptr};

    if (call->dtype == VP_DTYPE_BF16_GRADS)
        g.bf16 = static_cast<const vp_bf16 *>(operand);
    else
        g.f32 = static_cast<const float *>(operand);
    return g;
}

/* Four elements from an address that is a multiple of their size together. */
static __device__ inline void vp_load_quad(const float *p, float *x)
{
    float4 v = *reinterpret_cast<const float4 *>(p);

    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

template <typename T> static __device__ inline void vp_load_quad(const T *p, float *x)
{
    uint64_t v = *reinterpret_cast<const uint64_t *>(p);

    vp_floats_of<T>((uint32_t)v, x);
    vp_floats_of<T>((uint32_t)(v >> 32), x + 2);
}

static __device__ inline float vp_load(const vp_gradient &g, int64_t i)
{
    return g.bf16 ? vp_load(g.bf16, i) : vp_load(g.f32, i);
}

static __device__ inline void vp_load_quad(const vp_gradient &g, int64_t i, float *x)
{
    if (g.bf16)
        vp_load_quad(g.bf16 + i, x);
    else
        vp_load_quad(g.f32 + i, x);
}

#endif
