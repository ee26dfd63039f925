/* tests/optimizer_test.h: one call of an optimizer: how parameters and states are kept, and the same
 * in fp32 and in double. */
#ifndef VP_TESTS_OPTIMIZER_TEST_H
#define VP_TESTS_OPTIMIZER_TEST_H

#include "tests/base_test.h"
#include "tests/call_test.h"

#include "kernels/backend.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/philox.h"

/* Its inline loops are marked `omp simd`, and tests are compiled without OpenMP. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#include "kernels/cpu/dynamic8.h"
#pragma GCC diagnostic pop

#include "base/checked.h"

#include <math.h>
#include <sys/mman.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static const double u = 0x1p-24; /* float's unit roundoff */

/* Those of each element by itself, and all. */
static const vp_kernel element_updates[] = {
#define VP_EACH_UPDATE(NAME, name) VP_K_##NAME,
#include "plan/kernels.def"
};
static const vp_kernel all_updates[] = {
#define VP_EACH_UPDATE(NAME, name) VP_K_##NAME,
#include "plan/kernels.def"
    VP_K_ADAFACTOR, VP_K_MUON};

/* In how many ways its states may be kept: an update without any has one. */
static inline int last_state_kind(vp_kernel k)
{
    return vp_kernel_int(k, "state") < 0 ? VP_STATE_F32 : VP_STATE_BLOCK8;
}

static const vp_optimizer_numbers numbers = {
    .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.9};
static const vp_control control_of_step_3 = {.lr = 0.01, .step = 3, .grad_scale = 0.75};

static inline void run(const vp_kernel_call *call)
{
    vp_err err = {0};
    CHECK_OK(call_try(call, &err));
}

/* ---- memory that ends at a page nobody may touch, and begins behind bytes that nobody may
 * change ---- */

enum { PAGE = 4096, BEFORE = 64, FILL = 0xa5 };

typedef struct guarded {
    char   *map, *at;
    int64_t map_bytes;
} guarded;

/* shift: so many times 64 bytes before the page instead. */
static inline guarded guarded_new(int64_t bytes, int shift)
{
    guarded m = {.map_bytes = vp_round_up(bytes + BEFORE + 64 * shift, PAGE) + PAGE};

    m.map =
        mmap(NULL, (size_t)m.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m.map != MAP_FAILED);
    assert_int_equal(mprotect(m.map + m.map_bytes - PAGE, PAGE, PROT_NONE), 0);
    m.at = m.map + m.map_bytes - PAGE - 64 * shift - bytes;
    memset(m.map, FILL, (size_t)(m.map_bytes - PAGE));
    return m;
}

static inline void guarded_release(guarded *m, int64_t bytes)
{
    if (!m->map)
        return;
    for (char *p = m->map; p < m->map + m->map_bytes - PAGE; p++)
        if (p < m->at || p >= m->at + bytes)
            assert_int_equal((unsigned char)*p, FILL);
    munmap(m->map, (size_t)m->map_bytes);
}

/* ---- one call: how it is kept, and the same in fp32 ---- */

/* The first two operands of every optimizer: tests/test_op.c. */
enum { OPT_P = VP_ADAMW_P, OPT_G = VP_ADAMW_G };

typedef struct opt_case {
    vp_kernel kernel;
    vp_dtype  dtype;
    VP_NAMED_INTS;
    bool          master;
    double        grad_scale; /* 0: that of control_of_step_3 */
    vp_rng_stream rng;
} opt_case;

typedef struct opt_call {
    vp_kernel_call call, twin; /* as kept; everything fp32, same values, same master or none */
    vp_kernel_call reference;  /* everything double                                         */
    int64_t        n[VP_MAX_OPERANDS], bytes[VP_MAX_OPERANDS];
    guarded        memory[VP_MAX_OPERANDS], twin_memory[VP_MAX_OPERANDS];
} opt_call;

static uint64_t random_state;

static double uniform(void) /* in [0, 1) */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

static inline double normal(void)
{
    return sqrt(-2.0 * log(uniform() + 0x1p-54)) * cos(2.0 * acos(-1.0) * uniform());
}

static inline float bf16_value(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float    y;

    memcpy(&y, &bits, sizeof y);
    return y;
}

static inline uint16_t cut_to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* fp16's nearest: fractions of 11 digits; numbers here are ordinary and below 65504. */
static inline uint16_t nearest_fp16(float x)
{
    double size = fabs((double)x), unit = ldexp(1.0, (size < 0x1p-14 ? -14 : ilogb(size)) - 10);
    int    n = (int)nearbyint(size / unit), e = size < 0x1p-14 ? 0 : ilogb(size) + 14;

    return (uint16_t)((signbit(x) ? 0x8000 : 0) + (e << 10) + n);
}

static inline float fp16_value(uint16_t x)
{
    int e = x >> 10 & 31, f = x & 1023;

    return (float)((x >> 15 ? -1.0 : 1.0) * (e ? ldexp(1024 + f, e - 25) : ldexp(f, -24)));
}

/* To nearest even, or up with chance (what is cut off) / 2^16; of finite numbers. */
static inline uint16_t nearest_bf16(float x)
{
    uint16_t down = cut_to_bf16(x), up = (uint16_t)(down + 1);
    double   to_down = fabs((double)x - (double)bf16_value(down)),
           to_up     = fabs((double)bf16_value(up) - (double)x);

    return to_down < to_up || (to_down == to_up && down % 2 == 0) ? down : up;
}

static inline uint16_t stochastic_bf16(float x, unsigned random)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits >> 16) + ((bits & 0xffffu) + random > 0xffffu));
}

/* The 16 bits of an element, from single Philox blocks. */
static inline unsigned draw(const vp_rng_stream *rng, uint64_t use, int64_t element)
{
    uint32_t word[4];

    vp_philox(vp_philox_key_of(rng), use, (uint64_t)element / 8, word);
    return word[element % 8 / 2] >> (16 * (element % 2)) & 0xffffu;
}

/* A call that is made in a step of its own has that step in both places: where a recorded call
 * would look, and where any other does. */
static inline void set_step(opt_call *o, uint32_t step)
{
    vp_control *control = o->call.operand[vp_kernel_operand(o->call.kernel, "control")];

    control->step    = step + 1.0;
    o->call.rng.step = step;
}

static inline bool is_operand(vp_kernel k, int i, const char *name)
{
    return strcmp(vp_kernel_info_of(k)->operands[i].name, name) == 0;
}

static inline vp_state_kind state_kind(const opt_case *c)
{
    return vp_kernel_int(c->kernel, "state") >= 0 ? (vp_state_kind)c->states.state : VP_STATE_F32;
}

static inline float *scales_of(void *state, int64_t n)
{
    return (float *)((char *)state + vp_round_up(n, 4));
}

static inline float state_value(vp_state_kind kind, const void *state, int64_t n, bool is_signed,
                                int64_t i)
{
    switch (kind) {
    case VP_STATE_BF16:
        return bf16_value(((const uint16_t *)state)[i]);
    case VP_STATE_BLOCK8: {
        const float *scale = (const float *)((const char *)state + vp_round_up(n, 4));
        return vp_cpu_dynamic8(is_signed)->value[((const uint8_t *)state)[i]] *
               scale[i / VP_STATE_BLOCK];
    }
    default:
        return ((const float *)state)[i];
    }
}

/* A second moment is positive; first moments have a sign. */
static inline bool is_positive(vp_kernel k, int i)
{
    return is_operand(k, i, "v") || is_operand(k, i, "row") || is_operand(k, i, "col");
}

static inline void fill(const opt_case *c, opt_call *o, int i)
{
    const vp_operand_info *info     = &vp_kernel_info_of(c->kernel)->operands[i];
    bool                   positive = is_positive(c->kernel, i);
    void                  *at       = o->call.operand[i];

    for (int64_t e = 0; e < o->n[i]; e++) {
        float x = (float)(positive ? 0.1 + uniform() : 2.0 * uniform() - 1.0);

        if (info->elem == VP_AS_STATE && state_kind(c) == VP_STATE_BLOCK8) {
            if (e % VP_STATE_BLOCK == 0)
                scales_of(at, o->n[i])[e / VP_STATE_BLOCK] = (float)(0.1 + uniform());
            /* values of v from 0.01 of the scale on: see tolerance_of() */
            ((uint8_t *)at)[e] = (uint8_t)(positive ? 64.0 + 192.0 * uniform() : 256.0 * uniform());
            x                  = state_value(VP_STATE_BLOCK8, at, o->n[i], !positive, e);
        } else if (info->elem == VP_AS_CALL && c->dtype == VP_DTYPE_F16) {
            ((uint16_t *)at)[e] = nearest_fp16(x);
            x                   = fp16_value(nearest_fp16(x));
        } else if ((info->elem == VP_AS_CALL && c->dtype != VP_DTYPE_F32) ||
                   (info->elem == VP_AS_GRAD && c->dtype == VP_DTYPE_BF16_GRADS) ||
                   (info->elem == VP_AS_STATE && state_kind(c) == VP_STATE_BF16)) {
            ((uint16_t *)at)[e] = nearest_bf16(x);
            x                   = bf16_value(nearest_bf16(x));
        } else {
            if (info->access == VP_WRITE)
                x = NAN; /* scratch: what is read before it is written shows */
            ((float *)at)[e] = x;
        }
        ((float *)o->twin.operand[i])[e]       = x;
        ((double *)o->reference.operand[i])[e] = (double)x;
    }
}

static inline opt_call opt_new(const opt_case *c, uint64_t seed, int shift)
{
    const vp_kernel_info *info   = vp_kernel_info_of(c->kernel);
    int                   master = vp_kernel_operand(c->kernel, "master");
    opt_call              o      = {
                          .call = {.kernel = c->kernel, .dtype = c->dtype, .rng = c->rng, .optimizer = &numbers}};

    memcpy(o.call.ints, c->ints, sizeof c->ints);
    o.twin = o.reference = o.call;
    o.twin.dtype         = VP_DTYPE_F32;
    if (state_kind(c) != VP_STATE_F32)
        o.twin.states.state = VP_STATE_F32;
    random_state = seed * 2654435761u + 88172645463325252u;
    for (int i = 0; i < info->n_operands; i++) {
        if ((i == master && !c->master) || vp_kernel_presence(c->kernel, c->ints, i) == VP_NEVER)
            continue;
        o.n[i]            = vp_kernel_operand_elements(c->kernel, c->ints, i);
        o.bytes[i]        = vp_kernel_operand_bytes(c->kernel, c->dtype, c->ints, i);
        o.memory[i]       = guarded_new(o.bytes[i], shift);
        o.call.operand[i] = o.memory[i].at;
        o.reference.operand[i] =
            malloc((size_t)vp_max_i64(8 * o.n[i], (int64_t)sizeof(vp_control)));
        assert_non_null(o.reference.operand[i]);
        if (info->operands[i].elem == VP_AS_CONTROL) {
            vp_control control = control_of_step_3;
            if (c->grad_scale > 0.0)
                control.grad_scale = c->grad_scale;
            memcpy(o.call.operand[i], &control, sizeof control);
            memcpy(o.reference.operand[i], &control, sizeof control);
            o.twin.operand[i] = o.call.operand[i];
            continue;
        }
        o.twin_memory[i]  = guarded_new(4 * o.n[i], 0);
        o.twin.operand[i] = o.twin_memory[i].at;
        fill(c, &o, i);
    }
    return o;
}

static inline void opt_release(opt_call *o)
{
    for (int i = 0; i < VP_MAX_OPERANDS; i++) {
        guarded_release(&o->memory[i], o->bytes[i]);
        guarded_release(&o->twin_memory[i], 4 * o->n[i]);
        free(o->reference.operand[i]);
    }
}

static const int64_t matrices[][2] = {{1, 1},    {1, 40},   {40, 1},   {3, 5},  {31, 129},
                                      {33, 257}, {65, 127}, {300, 41}, {96, 96}};

static const vp_rng_stream stream = {.seed = 7, .step = 2, .op = 5, .first_sample = 3};

/* fp32; bf16 with a master; bf16 without; fp32 with one; gradients in bf16 too with a master;
 * without; fp16 with one. */
enum { N_FORMS = 7, FORM_FP16 = 6 };

static inline void set_form(opt_case *c, int form)
{
    static const vp_dtype dtypes[N_FORMS] = {VP_DTYPE_F32, VP_DTYPE_BF16,       VP_DTYPE_BF16,
                                             VP_DTYPE_F32, VP_DTYPE_BF16_GRADS, VP_DTYPE_BF16_GRADS,
                                             VP_DTYPE_F16};

    c->dtype  = dtypes[form];
    c->master = form == 1 || form == 3 || form == 4 || form == FORM_FP16;
    c->rng    = stream;
}

#endif
