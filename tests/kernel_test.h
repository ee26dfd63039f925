/* tests/kernel_test.h: kernel calls for tests: shapes in, filled operands and their float64 twins
 * out.
 *     kt_case c = {.kernel = VP_K_ADD, .dtype = VP_DTYPE_BF16, .elements = {.count = 17}};
 *     kt_check(&c, atol, rtol);        backend and reference on the same numbers; see kt_compare()
 * The backend is the one of tests/backend_test.h. */
#ifndef VP_TESTS_KERNEL_TEST_H
#define VP_TESTS_KERNEL_TEST_H

#include "tests/base_test.h"
#include "tests/call_test.h"

#include "base/checked.h"
#include "kernels/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* One call to make: attributes by name, which optional operands are absent. */
typedef struct kt_case {
    vp_kernel kernel;
    vp_dtype  dtype; /* VP_DTYPE_NONE: fp32                                */
    VP_NAMED_INTS;
    VP_NAMED_REALS;
    bool          accumulate;
    vp_rng_stream rng;
    bool          absent[VP_MAX_OPERANDS]; /* beside those that the attributes leave out */
} kt_case;

/* Its operands twice: as the plan has them, and with double for numbers. */
typedef struct kt_operands {
    vp_kernel_call call;
    vp_kernel_call reference;
    int64_t        bytes[VP_MAX_OPERANDS], n[VP_MAX_OPERANDS]; /* as the plan has them; elements */
    /* call.operand[i] may be put elsewhere */
    char  *allocation[VP_MAX_OPERANDS], *place[VP_MAX_OPERANDS];
    size_t allocation_bytes[VP_MAX_OPERANDS];
} kt_operands;

static const vp_optimizer_numbers kt_optimizer = {
    .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.9};

static uint64_t kt_state;

static inline double kt_uniform(void) /* in [0, 1) */
{
    kt_state ^= kt_state << 13;
    kt_state ^= kt_state >> 7;
    kt_state ^= kt_state << 17;
    return (double)(kt_state >> 11) * 0x1p-53;
}

/* ---- bf16 and fp16, without the backend's code ---- */

static inline bool kt_is_half(vp_dtype d)
{
    return d == VP_DTYPE_BF16 || d == VP_DTYPE_F16;
}

/* fp16: a sign, 5 bits of exponent e, 10 of fraction f: (1 + f / 1024) 2^(e - 15), f 2^-24 where e
 * is 0. */
static inline double kt_half_value(vp_dtype d, uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    int      e = x >> 10 & 31, f = x & 1023;
    double   size;
    float    y;

    memcpy(&y, &bits, sizeof y);
    size = e == 31 ? (f ? NAN : INFINITY) : e == 0 ? ldexp(f, -24) : ldexp(1024 + f, e - 25);
    return d == VP_DTYPE_BF16 ? (double)y : x >> 15 ? -size : size;
}

/* To nearest even, from double: x over the distance of its neighbours becomes a whole number. bf16
 * has 8 digits, denormals are not asked for; fp16 has 11, of which those below 2^-24 are not. */
static inline uint16_t kt_half(vp_dtype d, double x)
{
    bool     bf16 = d == VP_DTYPE_BF16, ordinary = isfinite(x) && x != 0.0;
    int      unit = !ordinary ? 0 : bf16 ? ilogb(x) - 7 : (int)fmax(ilogb(x), -14) - 10;
    double   n    = ordinary ? nearbyint(ldexp(x, -unit)) : x;
    float    y    = (float)ldexp(n, unit);
    uint32_t bits, sign = signbit(x) ? 0x8000 : 0;

    memcpy(&bits, &y, sizeof bits);
    if (bf16)
        return (uint16_t)(bits >> 16);
    if (!ordinary || fabs((double)y) >= 65536.0)
        return (uint16_t)(sign | (x == 0.0 ? 0 : isnan(x) ? 0x7e00 : 0x7c00));
    n = fabs(n);
    if (n < 1024.0)
        return (uint16_t)(sign | (uint32_t)n);
    return (uint16_t)(sign | (uint32_t)(ldexp(unit + 24, 10) + n));
}

/* ---- operands ---- */

static inline bool kt_is(const vp_kernel_info *info, int i, const char *name)
{
    return strcmp(info->operands[i].name, name) == 0;
}

/* What the operand's elements are: VP_DTYPE_U8 for a blockwise state, VP_DTYPE_NONE for the
 * control block. */
static inline vp_dtype kt_elem(const vp_kernel_call *call, int i)
{
    const vp_kernel_info *info = vp_kernel_info_of(call->kernel);

    switch (info->operands[i].elem) {
    case VP_AS_CALL:
        return vp_dtype_of_operands(call->dtype);
    case VP_AS_GRAD:
        return call->dtype == VP_DTYPE_BF16_GRADS ? VP_DTYPE_BF16 : VP_DTYPE_F32;
    case VP_AS_F32:
        return VP_DTYPE_F32;
    case VP_AS_I32:
        return VP_DTYPE_I32;
    case VP_AS_BYTES:
        return VP_DTYPE_U8;
    case VP_AS_CONTROL:
        return VP_DTYPE_NONE;
    case VP_AS_STATE:
        switch (call->states.state) {
        case VP_STATE_F32:
            return VP_DTYPE_F32;
        case VP_STATE_BF16:
            return VP_DTYPE_BF16;
        default:
            return VP_DTYPE_U8;
        }
    }
    return VP_DTYPE_NONE;
}

/* Whether operand i holds numbers, which have a double each in the reference. */
static inline bool kt_is_float(const vp_kernel_call *call, int i)
{
    return kt_elem(call, i) == VP_DTYPE_F32 || kt_is_half(kt_elem(call, i));
}

/* Element e of numbers of a type. */
static inline double kt_number(vp_dtype elem, const void *x, int64_t e)
{
    return kt_is_half(elem) ? kt_half_value(elem, ((const uint16_t *)x)[e])
                            : (double)((const float *)x)[e];
}

/* Element e of operand i, which holds numbers. */
static inline double kt_get(const vp_kernel_call *call, int i, int64_t e)
{
    return kt_number(kt_elem(call, i), call->operand[i], e);
}

/* Both twins become x as the operand can hold it. */
static inline void kt_set(kt_operands *o, int i, int64_t e, double x)
{
    vp_dtype elem = kt_elem(&o->call, i);

    if (kt_is_half(elem))
        ((uint16_t *)o->call.operand[i])[e] = kt_half(elem, x);
    else
        ((float *)o->call.operand[i])[e] = (float)x;
    ((double *)o->reference.operand[i])[e] = kt_number(elem, o->call.operand[i], e);
}

/* Elements of operand i's rows, where others follow them that nobody reads or writes; else 0. */
static inline int64_t kt_padded_cols(const vp_kernel_call *call, int i)
{
    bool loss = call->kernel == VP_K_CROSS_ENTROPY;

    if (loss ? i == VP_CROSS_ENTROPY_LOGITS && call->cross_entropy.padded
             : vp_kernel_is_product(call->kernel) && call->linear.padded &&
                   (kt_is(vp_kernel_info_of(call->kernel), i, "y") ||
                    kt_is(vp_kernel_info_of(call->kernel), i, "dy")))
        return loss ? call->cross_entropy.vocab : call->linear.out;
    return 0;
}

/* Whether element e of an operand lies behind a row's end; cols: its kt_padded_cols(). */
static inline bool kt_is_behind(int64_t cols, int64_t e)
{
    return cols > 0 && e % vp_row_stride(cols, 1) >= cols;
}

static inline bool kt_is_padding(const vp_kernel_call *call, int i, int64_t e)
{
    return kt_is_behind(kt_padded_cols(call, i), e);
}

/* Whether a call with these attributes has the operand. */
static inline bool kt_has(const kt_case *c, int i)
{
    return !c->absent[i] && vp_kernel_presence(c->kernel, c->ints, i) != VP_NEVER;
}

/* Ids of an operand of integers are below this; lengths 1 to this. */
static inline int64_t kt_below(const kt_case *c)
{
    switch (c->kernel) {
    case VP_K_EMBEDDING_FWD:
    case VP_K_EMBEDDING_BWD:
        return c->embedding.vocab;
    case VP_K_CROSS_ENTROPY:
        return c->cross_entropy.vocab;
    default:
        assert_true(c->kernel == VP_K_ATTENTION_FWD || c->kernel == VP_K_ATTENTION_BWD);
        return c->attention.seq;
    }
}

static inline void kt_fill(const kt_case *c, kt_operands *o, int i)
{
    const vp_kernel_info *info    = vp_kernel_info_of(c->kernel);
    bool                  written = info->operands[i].access == VP_WRITE ||
                   (info->operands[i].access == VP_ACCUMULATE && !c->accumulate);
    bool positive = kt_is(info, i, "rstd") || kt_is(info, i, "row") || kt_is(info, i, "col") ||
                    (c->kernel == VP_K_ADAMW && kt_is(info, i, "v"));
    bool    numbers = kt_is_float(&o->call, i);
    int64_t cols    = kt_padded_cols(&o->call, i);

    if (kt_elem(&o->call, i) == VP_DTYPE_NONE) {
        vp_control *control = o->call.operand[i];
        *control            = (vp_control){.lr            = 0.01,
                                           .step          = 3,
                                           .inv_n_targets = 1.0 / 64,
                                           .loss_sum      = 1.25,
                                           .grad_sumsq    = 2.5,
                                           .grad_norm     = 0.5,
                                           .grad_scale    = 0.75};
        memcpy(o->reference.operand[i], control, sizeof *control);
        return;
    }
    /* any codes, scales of size 1; the reference's numbers are the test's affair */
    if (kt_elem(&o->call, i) == VP_DTYPE_U8) {
        uint8_t *code = o->call.operand[i];
        for (int64_t e = 0; e < o->bytes[i]; e++)
            code[e] = (uint8_t)(kt_uniform() * 256.0);
        for (int64_t b = (o->n[i] + 3) / 4 * 4; b < o->bytes[i]; b += 4) {
            float scale = (float)(0.5 + kt_uniform());
            memcpy(code + b, &scale, sizeof scale);
        }
        return;
    }
    for (int64_t e = 0; e < o->n[i]; e++) {
        if (numbers) {
            /* What a kernel must not read is a NaN: reading it would show. */
            kt_set(o, i, e,
                   written || kt_is_behind(cols, e) ? NAN
                   : positive                       ? 0.1 + kt_uniform()
                                                    : 2.0 * kt_uniform() - 1.0);
        } else {
            bool    lengths = kt_is(info, i, "lengths"); /* 1 .. seq; else an id below vocab */
            int32_t x       = (int32_t)(kt_uniform() * (double)kt_below(c)) + (lengths ? 1 : 0);

            if (kt_is(info, i, "labels") && e % 5 == 3)
                x = VP_IGNORE_LABEL;
            ((int32_t *)o->call.operand[i])[e]      = x;
            ((int32_t *)o->reference.operand[i])[e] = x;
        }
    }
}

/* ---- memory that shows what is touched beside it ---- */

#if defined(__SANITIZE_ADDRESS__)
#define KT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KT_SANITIZED 1
#endif
#endif

enum { KT_PAGE = 4096, KT_POISON = 0xff }; /* a NaN wherever it is read as a number */

/* On which side of an operand its 64 times shift bytes are free: behind it, under a sanitizer before. */
#if defined(KT_SANITIZED)
enum { KT_FREE_SIDE = -1 };
#else
enum { KT_FREE_SIDE = 1 };
#endif

/* bytes at a multiple of 64, followed by 64 times shift bytes more and a page that must not be
 * touched, as must the page before all; the rest is poison. Under a sanitizer, which sees each
 * byte: exactly as long as promised. */
static inline void kt_allocate(kt_operands *o, int i, int64_t bytes, int shift)
{
#if defined(KT_SANITIZED)
    void *p;

    assert_int_equal(posix_memalign(&p, KT_PAGE, (size_t)(bytes + 64 * shift)), 0);
    o->allocation[i] = p;
    o->place[i]      = o->allocation[i] + 64 * shift;
#else
    size_t body  = ((size_t)bytes + 63) / 64 * 64 + 64 * (size_t)shift;
    size_t whole = (body + KT_PAGE - 1) / KT_PAGE * KT_PAGE + 2 * KT_PAGE;
    char  *p     = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    memset(p + KT_PAGE, KT_POISON, whole - 2 * KT_PAGE);
    assert_int_equal(mprotect(p, KT_PAGE, PROT_NONE), 0);
    assert_int_equal(mprotect(p + whole - KT_PAGE, KT_PAGE, PROT_NONE), 0);
    o->allocation[i]       = p;
    o->allocation_bytes[i] = whole;
    o->place[i]            = p + whole - KT_PAGE - body;
#endif
    o->call.operand[i] = o->place[i];
}

static inline void kt_free(const kt_operands *o, int i)
{
#if defined(KT_SANITIZED)
    free(o->allocation[i]);
#else
    const char *end        = o->allocation[i] + o->allocation_bytes[i] - KT_PAGE;

    for (const char *p = o->allocation[i] + KT_PAGE; p < end; p++) {
        if (p == o->place[i])
            p += o->bytes[i];
        if (p < end && (unsigned char)*p != KT_POISON)
            fail_msg("%s: wrote %lld bytes from the start of %s, which has %lld",
                     vp_kernel_info_of(o->call.kernel)->name, (long long)(p - o->place[i]),
                     vp_kernel_info_of(o->call.kernel)->operands[i].name, (long long)o->bytes[i]);
    }
    munmap(o->allocation[i], o->allocation_bytes[i]);
#endif
}

/* Operands filled from seed, each so placed that `shift` tells its address modulo 4096. */
static inline kt_operands kt_operands_new(const kt_case *c, uint64_t seed, int shift)
{
    const vp_kernel_info *info = vp_kernel_info_of(c->kernel);
    kt_operands           o    = {
                     .call = {.kernel     = c->kernel,
                              .dtype      = c->dtype ? c->dtype : VP_DTYPE_F32,
                              .accumulate = c->accumulate,
                              .rng        = c->rng,
                              .optimizer  = &kt_optimizer},
    };

    memcpy(o.call.ints, c->ints, sizeof c->ints);
    memcpy(o.call.reals, c->reals, sizeof c->reals);
    o.reference = o.call;
    kt_state    = seed * 2654435761u + 88172645463325252u;
    for (int i = 0; i < info->n_operands; i++) {
        int64_t bytes = vp_kernel_operand_bytes(c->kernel, o.call.dtype, c->ints, i);

        assert_false(vp_overflowed(bytes));
        if (!kt_has(c, i))
            continue;
        o.bytes[i] = bytes;
        o.n[i]     = vp_kernel_operand_elements(c->kernel, c->ints, i);
        kt_allocate(&o, i, bytes, shift);
        o.reference.operand[i] = calloc((size_t)o.n[i] + 8, sizeof(double));
        assert_non_null(o.reference.operand[i]);
        kt_fill(c, &o, i);
    }
    return o;
}

static inline void kt_operands_release(kt_operands *o)
{
    for (int i = 0; i < VP_MAX_OPERANDS; i++) {
        if (o->allocation[i])
            kt_free(o, i);
        free(o->reference.operand[i]);
    }
}

static inline void kt_run(const vp_kernel_call *call)
{
    vp_err err = {0};
    CHECK_OK(call_try(call, &err));
}

/* ---- comparison ---- */

/* The greatest error over its tolerance so far, by kernel and dtype; printed where
 * VPLAN_KT_WORST is set. */
static double kt_worst[VP_N_KERNELS][VP_N_DTYPES];

static inline int kt_print_worst(void **state)
{
    (void)state;
    for (int k = 0; getenv("VPLAN_KT_WORST") && k < VP_N_KERNELS; k++)
        for (int d = 0; d < VP_N_DTYPES; d++)
            if (kt_worst[k][d] > 0.0)
                printf("%-18s %s: worst error %.2f of its tolerance\n",
                       vp_kernel_info_of((vp_kernel)k)->name, vp_dtype_name((vp_dtype)d),
                       kt_worst[k][d]);
    return 0;
}

/* Half the distance between two bf16 numbers near y is at most 2^-8 |y|: 8 significant bits; between
 * two of fp16, which has 11, 2^-11 |y|, and 2^-25 below 2^-14. */
static inline double kt_half_step(vp_dtype d, double y)
{
    return d == VP_DTYPE_BF16 ? 0x1p-8 * y : fmax(0x1p-11 * y, 0x1p-25);
}

/* cuBLASLt rounds a product of 16 bits before it adds what it finds in the result's own place, and for operands or rows at no
 * multiple of 16 bytes before it adds what C holds, or a bias (seen on an H200, cuBLASLt 13.1): within half a step of the
 * product's own, which with a bias and a C below 1 is at most |y| + 2. */
static inline double kt_rounded_before(const vp_kernel_call *call, vp_dtype elem, double y)
{
    bool aligned = !call->accumulate,
         adds    = call->accumulate || call->kernel == VP_K_LINEAR_ADD_FWD ||
                (call->kernel == VP_K_LINEAR_FWD && call->operand[VP_LINEAR_FWD_B]);

    if (!adds || !vp_kernel_is_product(call->kernel) || !kt_is_half(elem) || !test_is_on_card())
        return 0.0;
    for (int i = 0; i < 3; i++)
        aligned = aligned && (i == 0 || call->ints[i] % 8 == 0);
    for (int i = 0; i < vp_kernel_info_of(call->kernel)->n_operands; i++)
        aligned = aligned && (uintptr_t)call->operand[i] % 16 == 0;
    return aligned ? 0.0 : kt_half_step(elem, fabs(y) + 2.0);
}

/* Whether the operand is an input that a forward call wrote: backend and reference then have one
 * each. */
static inline bool kt_is_from_forward(const vp_kernel_call *call, int i)
{
    const vp_kernel_info *info = vp_kernel_info_of(call->kernel);
    bool backward = call->kernel == VP_K_LAYERNORM_BWD || call->kernel == VP_K_RMSNORM_BWD ||
                    call->kernel == VP_K_ATTENTION_BWD;

    return backward && info->operands[i].access == VP_READ &&
           (kt_is(info, i, "mean") || kt_is(info, i, "rstd") || kt_is(info, i, "y") ||
            kt_is(info, i, "lse") || kt_is(info, i, "probs"));
}

/* Every written operand agrees with the reference within e = atol + rtol |y|, where y is the
 * reference's; one of 16 bits within its rounding besides: the backend rounds y + d, |d| <= e, once,
 * so in bf16 it is off by at most e + 2^-8 (|y| + e). Inputs must be untouched. */
static inline void kt_compare(const kt_operands *o, double atol, double rtol)
{
    const vp_kernel_info *info  = vp_kernel_info_of(o->call.kernel);
    double               *worst = &kt_worst[o->call.kernel][o->call.dtype];

    for (int i = 0; i < info->n_operands; i++) {
        const double *y       = o->reference.operand[i];
        vp_dtype      elem    = kt_elem(&o->call, i);
        int64_t       cols    = kt_padded_cols(&o->call, i);
        bool          numbers = kt_is_float(&o->call, i);
        bool read = info->operands[i].access == VP_READ && !kt_is_from_forward(&o->call, i);

        if (!o->call.operand[i])
            continue;
        if (kt_is(info, i, "control")) {
            for (size_t f = 0; f < sizeof(vp_control) / sizeof(double); f++) {
                double a = ((const double *)o->call.operand[i])[f], b = y[f];
                if (!(fabs(a - b) <= atol + rtol * fabs(b)))
                    fail_msg("%s control field %zu: %.17g, reference %.17g", info->name, f, a, b);
            }
            continue;
        }
        for (int64_t e = 0; numbers && e < o->n[i]; e++) {
            double x         = kt_number(elem, o->call.operand[i], e),
                   tolerance = read ? 0.0 : atol + rtol * fabs(y[e]);

            if (kt_is_behind(cols, e) && isnan(x))
                continue;
            if (!read && kt_is_half(elem))
                tolerance += kt_half_step(elem, fabs(y[e]) + tolerance) +
                             kt_rounded_before(&o->call, elem, y[e]);
            if (!(fabs(x - y[e]) <= tolerance))
                fail_msg(
                    "%s %s of %lld x %lld x %lld, %s[%lld]: %.9g, reference %.9g, off by %.3g, allowed %.3g",
                    vp_dtype_name(o->call.dtype), info->name, (long long)o->call.ints[0],
                    (long long)o->call.ints[1], (long long)o->call.ints[2], info->operands[i].name,
                    (long long)e, x, y[e], fabs(x - y[e]), tolerance);
            if (tolerance > 0.0 && fabs(x - y[e]) > *worst * tolerance)
                *worst = fabs(x - y[e]) / tolerance;
        }
    }
}

/* ---- backward calls read what forward ones wrote ---- */

/* The forward call whose results a backward call reads, on the same operands; spare holds what the
 * backward does not want. false: it reads none. */
static inline bool kt_forward_of(const vp_kernel_call *backward, void *spare, vp_kernel_call *f)
{
    void *const *b = backward->operand;

    *f = *backward;
    memset(f->operand, 0, sizeof f->operand);
    switch (backward->kernel) {
    case VP_K_ATTENTION_BWD: /* dy q k v lengths y lse probs ... <- q k v lengths y lse probs */
        f->kernel                            = VP_K_ATTENTION_FWD;
        f->operand[VP_ATTENTION_FWD_Q]       = b[VP_ATTENTION_BWD_Q];
        f->operand[VP_ATTENTION_FWD_K]       = b[VP_ATTENTION_BWD_K];
        f->operand[VP_ATTENTION_FWD_V]       = b[VP_ATTENTION_BWD_V];
        f->operand[VP_ATTENTION_FWD_LENGTHS] = b[VP_ATTENTION_BWD_LENGTHS];
        f->operand[VP_ATTENTION_FWD_Y]       = b[VP_ATTENTION_BWD_Y];
        f->operand[VP_ATTENTION_FWD_LSE]     = b[VP_ATTENTION_BWD_LSE];
        f->operand[VP_ATTENTION_FWD_PROBS]   = b[VP_ATTENTION_BWD_PROBS];
        return true;
    case VP_K_LAYERNORM_BWD:
        f->kernel                          = VP_K_LAYERNORM_FWD;
        f->norm_reals.eps                  = 1e-5;
        f->operand[VP_LAYERNORM_FWD_X]     = b[VP_LAYERNORM_BWD_X];
        f->operand[VP_LAYERNORM_FWD_GAMMA] = b[VP_LAYERNORM_BWD_GAMMA];
        f->operand[VP_LAYERNORM_FWD_Y]     = spare;
        f->operand[VP_LAYERNORM_FWD_MEAN]  = b[VP_LAYERNORM_BWD_MEAN];
        f->operand[VP_LAYERNORM_FWD_RSTD]  = b[VP_LAYERNORM_BWD_RSTD];
        return true;
    case VP_K_RMSNORM_BWD:
        f->kernel                        = VP_K_RMSNORM_FWD;
        f->norm_reals.eps                = 1e-5;
        f->operand[VP_RMSNORM_FWD_X]     = b[VP_RMSNORM_BWD_X];
        f->operand[VP_RMSNORM_FWD_GAMMA] = b[VP_RMSNORM_BWD_GAMMA];
        f->operand[VP_RMSNORM_FWD_Y]     = spare;
        f->operand[VP_RMSNORM_FWD_RSTD]  = b[VP_RMSNORM_BWD_RSTD];
        return true;
    default:
        return false;
    }
}

/* Give a backward call the forward's results it reads: the backend's to the backend, and, where
 * wanted, the reference's to the reference. */
static inline void kt_run_forward_first(const kt_operands *o, bool reference_too)
{
    void          *spare = malloc((size_t)(o->n[1] + 8) * sizeof(double));
    vp_kernel_call f;

    assert_non_null(spare);
    if (kt_forward_of(&o->call, spare, &f)) {
        kt_run(&f);
        kt_forward_of(&o->reference, spare, &f);
        if (reference_too)
            vp_reference_run(&f);
    }
    free(spare);
}

static inline void kt_check(const kt_case *c, double atol, double rtol)
{
    kt_operands o;

    if (!call_is_chosen())
        return;
    o = kt_operands_new(c, 1, 1);
    kt_run_forward_first(&o, true);
    kt_run(&o.call);
    vp_reference_run(&o.reference);
    kt_compare(&o, atol, rtol);
    kt_operands_release(&o);
}

static inline bool kt_has_gradient(vp_kernel k)
{
    for (int i = 0; i < vp_kernel_info_of(k)->n_operands; i++)
        if (vp_kernel_info_of(k)->operands[i].elem == VP_AS_GRAD)
            return true;
    return false;
}

/* In fp32, bf16 and fp16, and in bf16 with gradients of parameters in it too. */
static inline void kt_check_all(const kt_case *c, double atol, double rtol)
{
    kt_case d = *c;

    for (d.dtype = VP_DTYPE_F32; d.dtype <= VP_DTYPE_F16; d.dtype++)
        kt_check(&d, atol, rtol);
    d.dtype = VP_DTYPE_BF16_GRADS;
    if (kt_has_gradient(c->kernel))
        kt_check(&d, atol, rtol);
}

/* ---- the reference's backward against finite differences of its forward ----
 *
 * loss = sum of out[i] * weight[i]; d loss / d in[i] by central differences with h = 1e-4 in
 * double: error h^2/6 f''' ~ 1e-9 f''' plus 2^-52 |loss| / h ~ 1e-11. 1e-6 is asked for. */

typedef struct kt_fd_link {
    vp_kernel forward, backward;
    int       out; /* forward's output that carries the loss  */
    int       dy;  /* backward's operand of its gradient      */
    int       n_pairs;
    struct {
        int input, gradient; /* forward's operand, backward's gradient  */
    } pair[3];
    int n_shared;
    int shared[8][2]; /* backward operand <- forward operand     */
} kt_fd_link;

static inline double kt_fd_loss(const vp_kernel_call *forward, int out, const double *weight,
                                int64_t n)
{
    const double *y    = forward->operand[out];
    double        loss = 0.0;

    vp_reference_run(forward);
    for (int64_t i = 0; i < n; i++)
        loss += y[i] * weight[i];
    return loss;
}

/* The attributes of forward_case serve both; an operand absent in one is so in the other.
 * Gradients that add start from zero; an `add` operand is absent. */
static inline void kt_fd_check(const kt_fd_link *link, const kt_case *forward_case)
{
    kt_case     b = *forward_case, f = *forward_case;
    kt_operands bo, fo;

    b.kernel = link->backward;
    f.kernel = link->forward;
    memset(b.absent, 0, sizeof b.absent);
    for (int i = 0; i < link->n_shared; i++)
        b.absent[link->shared[i][0]] = f.absent[link->shared[i][1]];
    for (int i = 0; i < link->n_pairs; i++)
        b.absent[link->pair[i].gradient] = f.absent[link->pair[i].input];
    if (vp_kernel_operand(b.kernel, "add") >= 0)
        b.absent[vp_kernel_operand(b.kernel, "add")] = true;
    fo = kt_operands_new(&f, 3, 0);
    bo = kt_operands_new(&b, 4, 0);
    vp_reference_run(&fo.reference);
    for (int i = 0; i < link->n_shared; i++) {
        int to = link->shared[i][0], from = link->shared[i][1];

        if (fo.reference.operand[from])
            memcpy(bo.reference.operand[to], fo.reference.operand[from],
                   (size_t)bo.n[to] *
                       (kt_is_float(&bo.call, to) ? sizeof(double) : sizeof(int32_t)));
    }
    for (int p = 0; p < link->n_pairs; p++)
        if (bo.reference.operand[link->pair[p].gradient])
            memset(bo.reference.operand[link->pair[p].gradient], 0,
                   (size_t)bo.n[link->pair[p].gradient] * sizeof(double));
    vp_reference_run(&bo.reference);
    for (int p = 0; p < link->n_pairs; p++) {
        double       *x        = fo.reference.operand[link->pair[p].input];
        const double *gradient = bo.reference.operand[link->pair[p].gradient];
        const double *weight   = bo.reference.operand[link->dy];

        for (int64_t i = 0; x && i < fo.n[link->pair[p].input]; i++) {
            double keep = x[i], plus, minus, difference;

            x[i]       = keep + 1e-4;
            plus       = kt_fd_loss(&fo.reference, link->out, weight, fo.n[link->out]);
            x[i]       = keep - 1e-4;
            minus      = kt_fd_loss(&fo.reference, link->out, weight, fo.n[link->out]);
            x[i]       = keep;
            difference = (plus - minus) / 2e-4;
            if (!(fabs(difference - gradient[i]) <= 1e-6 * (1.0 + fabs(difference))))
                fail_msg("%s pair %d [%lld]: gradient %.9g, difference %.9g",
                         vp_kernel_info_of(link->backward)->name, p, (long long)i, gradient[i],
                         difference);
        }
    }
    kt_operands_release(&fo);
    kt_operands_release(&bo);
}

#endif
