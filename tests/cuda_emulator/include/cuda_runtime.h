/* tests/cuda_emulator/include/cuda_runtime.h: what a .cu file of kernels/cuda needs to be compiled
 * as plain C++17 and run on the CPU.
 *
 * A kernel is a function; a launch calls it once for each thread of each block
 * (block_emulator.cpp). The threads of a block are fibers of one operating system thread: they run
 * until they wait for each other. blockIdx and threadIdx are variables that are set at every change
 * of fiber. __shared__ variables are thread-local, so that they all lie together where they can be
 * poisoned before each block.
 *
 * Only integers have atomics here: a sum of floats whose order is open has no place in
 * kernels/cuda. */
#ifndef VP_EMULATOR_CUDA_RUNTIME_H
#define VP_EMULATOR_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <math.h>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __grid_constant__
#define __shared__      static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#ifndef __restrict__
#define __restrict__ __restrict
#endif

/* ---- vectors: size and alignment as on the device, so that a misaligned one traps ---- */

#define VP_EMULATOR_VECTORS(T, name, align2, align4) \
    struct name##2 \
    { \
        T x, y; \
    } \
    __attribute__((aligned(align2))); \
    struct name##4 \
    { \
        T x, y, z, w; \
    } \
    __attribute__((aligned(align4))); \
    static inline name##2 make_##name##2(T x, T y) \
    { \
        return name##2 {x, y}; \
    } \
    static inline name##4 make_##name##4(T x, T y, T z, T w) \
    { \
        return name##4 {x, y, z, w}; \
    }

VP_EMULATOR_VECTORS(float, float, 8, 16)
VP_EMULATOR_VECTORS(int, int, 8, 16)
VP_EMULATOR_VECTORS(unsigned, uint, 8, 16)
VP_EMULATOR_VECTORS(short, short, 4, 8)
VP_EMULATOR_VECTORS(unsigned short, ushort, 4, 8)
VP_EMULATOR_VECTORS(unsigned char, uchar, 2, 4)

struct double2 {
    double x, y;
} __attribute__((aligned(16)));
static inline double2 make_double2(double x, double y)
{
    return double2{x, y};
}

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

extern uint3     threadIdx, blockIdx;
extern dim3      blockDim, gridDim;
static const int warpSize = 32;

/* ---- waiting for each other ----
 *
 * Threads that meet must meet at the same line of the source: where they do not, the launch
 * fails and says which waited where. */

enum vp_emulator_meeting {
    VP_MEET_BLOCK,
    VP_MEET_WARP,
    VP_MEET_SHFL,
    VP_MEET_SHFL_UP,
    VP_MEET_SHFL_DOWN,
    VP_MEET_SHFL_XOR,
    VP_MEET_BALLOT,
    VP_MEET_MMA
};

/* value: what this lane brings; returns what it gets. param: the lane, distance or mask of a
 * shuffle. */
uint64_t vp_emulator_meet(vp_emulator_meeting what, unsigned mask, uint64_t value, int param,
                          int width, const char *file, int line);

static inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    vp_emulator_meet(VP_MEET_BLOCK, 0, 0, 0, 0, file, line);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, const char *file = __builtin_FILE(),
                              int line = __builtin_LINE())
{
    vp_emulator_meet(VP_MEET_WARP, mask, 0, 0, 32, file, line);
}

template <typename T>
static inline T vp_emulator_shuffle(vp_emulator_meeting what, unsigned mask, T x, int param,
                                    int width, const char *file, int line)
{
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "CUDA shuffles 4 and 8 byte numbers");
    uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    bits = vp_emulator_meet(what, mask, bits, param, width, file, line);
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32,
                            const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return vp_emulator_shuffle(VP_MEET_SHFL, mask, x, lane, width, file, line);
}

template <typename T>
static inline T __shfl_up_sync(unsigned mask, T x, unsigned n, int width = 32,
                               const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return vp_emulator_shuffle(VP_MEET_SHFL_UP, mask, x, (int)n, width, file, line);
}

template <typename T>
static inline T __shfl_down_sync(unsigned mask, T x, unsigned n, int width = 32,
                                 const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return vp_emulator_shuffle(VP_MEET_SHFL_DOWN, mask, x, (int)n, width, file, line);
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32,
                                const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    return vp_emulator_shuffle(VP_MEET_SHFL_XOR, mask, x, with, width, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int yes, const char *file = __builtin_FILE(),
                                     int line = __builtin_LINE())
{
    return (unsigned)vp_emulator_meet(VP_MEET_BALLOT, mask, yes != 0, 0, 32, file, line);
}

static inline int __any_sync(unsigned mask, int yes, const char *file = __builtin_FILE(),
                             int line = __builtin_LINE())
{
    return __ballot_sync(mask, yes, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int yes, const char *file = __builtin_FILE(),
                             int line = __builtin_LINE())
{
    return __ballot_sync(mask, yes, file, line) == mask;
}

/* N times mma.m16n8k8 on TF32 numbers with fp32 sums, n_parts a's one after the other with each b: a lane brings its
 * fragments as PTX lays them out, 2 n of row g of d and 2 n of row g + 8, 4 n_parts of a, 2 n of b. Of a and b the last
 * 13 bits are not seen. Sums run upwards, each addition rounded once. All lanes of a warp. */
void vp_emulator_mma_tf32(int n, int n_parts, float *d_low, float *d_high, const float *a,
                          const float *b, const char *file = __builtin_FILE(),
                          int line = __builtin_LINE());

static inline void __threadfence_block()
{
}
static inline void __threadfence()
{
}

/* ---- atomics on integers: fibers change only where they wait, so a plain operation is one ---- */

#define VP_EMULATOR_ATOMIC(T, name, expression) \
    static inline T name(T *p, T x) \
    { \
        T old = *p; \
        *p    = (expression); \
        return old; \
    }
#define VP_EMULATOR_ATOMICS(T) \
    VP_EMULATOR_ATOMIC(T, atomicAdd, (T)(old + x)) \
    VP_EMULATOR_ATOMIC(T, atomicMin, x < old ? x : old) \
    VP_EMULATOR_ATOMIC(T, atomicMax, x > old ? x : old) \
    VP_EMULATOR_ATOMIC(T, atomicAnd, (T)(old & x)) \
    VP_EMULATOR_ATOMIC(T, atomicOr, (T)(old | x)) \
    VP_EMULATOR_ATOMIC(T, atomicExch, x) \
    static inline T atomicCAS(T *p, T compare, T x) \
    { \
        T old = *p; \
        *p    = old == compare ? x : old; \
        return old; \
    }

VP_EMULATOR_ATOMICS(int)
VP_EMULATOR_ATOMICS(unsigned)
VP_EMULATOR_ATOMICS(unsigned long long)

/* ---- numbers ---- */

template <typename To, typename From> static inline To vp_emulator_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps their number");
    To y;
    std::memcpy(&y, &x, sizeof y);
    return y;
}

static inline unsigned __float_as_uint(float x)
{
    return vp_emulator_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return vp_emulator_bits<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return vp_emulator_bits<float>(x);
}
static inline float __int_as_float(int x)
{
    return vp_emulator_bits<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return vp_emulator_bits<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return vp_emulator_bits<double>(x);
}

/* Rounded on their own, never contracted. */
static inline float __fadd_rn(float x, float y)
{
    return x + y;
}
static inline float __fsub_rn(float x, float y)
{
    return x - y;
}
static inline float __fmul_rn(float x, float y)
{
    return x * y;
}
static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
static inline float __fsqrt_rn(float x)
{
    return std::sqrt(x);
}
static inline float __fmaf_rn(float x, float y, float z)
{
    return std::fma(x, y, z);
}
static inline double __dadd_rn(double x, double y)
{
    return x + y;
}
static inline double __dmul_rn(double x, double y)
{
    return x * y;
}
static inline double __fma_rn(double x, double y, double z)
{
    return std::fma(x, y, z);
}

/* Newer C libraries have functions of these names. */
static inline float vp_emulator_rsqrtf(float x)
{
    return (float)(1.0 / std::sqrt((double)x));
}
static inline double vp_emulator_rsqrt(double x)
{
    return 1.0 / std::sqrt(x);
}
#define rsqrtf vp_emulator_rsqrtf
#define rsqrt  vp_emulator_rsqrt

static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T x)
{
    *p = x;
}

#define VP_EMULATOR_MIN_MAX(T) \
    static inline T min(T x, T y) \
    { \
        return y < x ? y : x; \
    } \
    static inline T max(T x, T y) \
    { \
        return x < y ? y : x; \
    }

VP_EMULATOR_MIN_MAX(int)
VP_EMULATOR_MIN_MAX(unsigned)
VP_EMULATOR_MIN_MAX(long)
VP_EMULATOR_MIN_MAX(unsigned long)
VP_EMULATOR_MIN_MAX(long long)
VP_EMULATOR_MIN_MAX(unsigned long long)
static inline float min(float x, float y)
{
    return std::fmin(x, y);
}
static inline float max(float x, float y)
{
    return std::fmax(x, y);
}
static inline double min(double x, double y)
{
    return std::fmin(x, y);
}
static inline double max(double x, double y)
{
    return std::fmax(x, y);
}

/* ---- launches ---- */

typedef struct vp_emulator_kernel {
    const void *entry;
    const char *name;
    dim3        grid, block;
    size_t      dynamic_bytes;
} vp_emulator_kernel;

/* thread() is the kernel with its arguments. bad_argument: the first pointer among them that is
 * no device memory, counted from 1. */
cudaError_t vp_emulator_launch(const vp_emulator_kernel *kernel, cudaStream_t stream,
                               const std::function<void()> &thread, int bad_argument,
                               const void *bad_pointer);
void       *vp_emulator_dynamic_shared();

extern "C" bool vp_emulator_is_device(const void *p, size_t n_bytes);

template <typename T> static inline bool vp_emulator_is_host_pointer(T)
{
    return false;
}
template <typename T> static inline bool vp_emulator_is_host_pointer(T *p)
{
    return p && !vp_emulator_is_device((const void *)p, 0);
}
template <typename T> static inline const void *vp_emulator_as_pointer(T)
{
    return nullptr;
}
template <typename T> static inline const void *vp_emulator_as_pointer(T *p)
{
    return (const void *)p;
}

/* Arguments become what the kernel's parameters are now, as in a real launch. */
template <typename... P, typename... A>
static inline cudaError_t vp_emulator_launch_of(void (*entry)(P...), const char *name, dim3 grid,
                                                dim3 block, size_t dynamic_bytes,
                                                cudaStream_t stream, A &&...a)
{
    vp_emulator_kernel kernel = {(const void *)entry, name, grid, block, dynamic_bytes};
    std::tuple<P...>   args(std::forward<A>(a)...);
    int                n = 0, bad = 0;
    const void        *where = nullptr;

    std::apply(
        [&](const auto &...x) {
            ((n++, bad == 0 && vp_emulator_is_host_pointer(x)
                       ? (void)(bad = n, where = vp_emulator_as_pointer(x))
                       : (void)0),
             ...);
        },
        args);
    return vp_emulator_launch(
        &kernel, stream, [entry, args]() { std::apply(entry, args); }, bad, where);
}

#define VP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    vp_emulator_launch_of((kernel), #kernel, (grid), (block), (size_t)(shared_bytes), (stream), \
                          ##__VA_ARGS__)

#define VP_DYNAMIC_SHARED(T, name) T *name = static_cast<T *>(vp_emulator_dynamic_shared())

template <typename T>
static inline cudaError_t cudaFuncSetAttribute(T *entry, enum cudaFuncAttribute attr, int value)
{
    return ::cudaFuncSetAttribute((const void *)entry, attr, value);
}

#endif
