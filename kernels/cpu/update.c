/* kernels/cpu/update.c: see update.h. */
#include "kernels/cpu/update.h"

#include "base/checked.h"

#include <assert.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "random halves are taken as memory has them");

enum { PER_BLOCK = 8, SUM_TILE = 16384, SUM_TILES_AT_ONCE = 512 };

void vp_update_draw(vp_philox_key key, uint64_t use, int64_t first, int64_t n, uint16_t *random)
{
    uint32_t word[4 * (VP_UPDATE_PIECE / PER_BLOCK + 1)];
    int64_t  skip = first % PER_BLOCK;

    assert(first >= 0 && n > 0 && n <= VP_UPDATE_PIECE);
    vp_philox_blocks(key, use, (uint64_t)(first / PER_BLOCK), vp_ceil_div(skip + n, PER_BLOCK),
                     word);
    memcpy(random, (const char *)word + 2 * skip, 2 * (size_t)n);
}

vp_param vp_param_of(const vp_kernel_call *call, void *param, float *master)
{
    vp_param p = {.exact = master, .dtype = call->dtype, .key = vp_philox_key_of(&call->rng)};

    assert(param && (const void *)master != param);
    assert(call->dtype != VP_DTYPE_F16 || master); /* its steps are too coarse for an update */
    if (call->dtype != VP_DTYPE_F32)
        p.half = param;
    else if (master)
        p.copy = param;
    else
        p.exact = param;
    return p;
}

vp_state vp_state_of(const vp_kernel_call *call, void *operand, vp_state_kind kind, int64_t n,
                     bool is_signed)
{
    vp_state s = {.kind = kind,
                  .key  = vp_philox_key_of(&call->rng),
                  .use  = is_signed ? VP_DRAW_FIRST_STATE : VP_DRAW_SECOND_STATE};

    assert(operand && n > 0);
    switch (kind) {
    case VP_STATE_F32:
        s.f32 = operand;
        break;
    case VP_STATE_BF16:
        s.bf16 = operand;
        break;
    case VP_STATE_BLOCK8:
        s.code  = operand;
        s.scale = (float *)(s.code + vp_round_up(n, 4));
        s.map   = vp_cpu_dynamic8(is_signed);
        break;
    case VP_N_STATE_KINDS:
        assert(!"no such kind of state");
    }
    return s;
}

double vp_update_sum(double start, int64_t n_tiles, double (*of)(const void *context, int64_t tile),
                     const void *context)
{
    assert(n_tiles >= 0);
    for (int64_t first = 0; first < n_tiles; first += SUM_TILES_AT_ONCE) {
        double  sum[SUM_TILES_AT_ONCE];
        int64_t n = vp_min_i64(SUM_TILES_AT_ONCE, n_tiles - first);

#pragma omp parallel for schedule(static) num_threads(vp_cpu_threads()) if (n > 1)
        for (int64_t t = 0; t < n; t++)
            sum[t] = of(context, first + t);
        for (int64_t t = 0; t < n; t++)
            start += sum[t];
    }
    return start;
}

typedef float  vp_f4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double vp_d4 __attribute__((vector_size(32)));

/* In 16 double lanes. */
VP_ALWAYS_INLINE void sum_squares(const float *x, int64_t n, double *out)
{
    vp_d4   lane[4] = {{0}, {0}, {0}, {0}};
    vp_d4   s;
    int64_t i = 0;
    double  total;

    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 4; l++) {
            vp_d4 d = __builtin_convertvector(*(const vp_f4 *)(x + i + 4 * l), vp_d4);
            lane[l] += d * d;
        }
    s     = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    total = (s[0] + s[2]) + (s[1] + s[3]);
    for (; i < n; i++)
        total += (double)x[i] * (double)x[i];
    *out = total;
}

typedef struct span_of {
    vp_grad x;
    int64_t n;
} span_of;

/* A bf16 tile a piece at a time. */
VP_PER_ISA(sum_squares_of, (const vp_grad *x, int64_t first, int64_t n, double *out),
           (x, first, n, out))
{
    int64_t length = x->f32 ? n : VP_UPDATE_PIECE;
    double  part;

    *out = 0.0;
    for (int64_t i = first; i < first + n; i += length) {
        float   scratch[VP_UPDATE_PIECE];
        int64_t len = first + n - i < length ? first + n - i : length;

        sum_squares(vp_grad_load(x, i, len, scratch), len, &part);
        *out += part;
    }
}

static double squares_of_tile(const void *context, int64_t tile)
{
    const span_of *c   = context;
    double         sum = 0.0;

    sum_squares_of(&c->x, tile * SUM_TILE, vp_min_i64(SUM_TILE, c->n - tile * SUM_TILE), &sum);
    return sum;
}

double vp_update_sum_squares(double start, vp_grad x, int64_t n)
{
    return vp_update_sum(start, vp_ceil_div(n, SUM_TILE), squares_of_tile, &(span_of){x, n});
}
