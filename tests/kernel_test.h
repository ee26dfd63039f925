/* tests/kernel_test.h: kernel calls for tests: shapes in, filled operands and their float64 twins out. */
#ifndef VP_TESTS_KERNEL_TEST_H
#define VP_TESTS_KERNEL_TEST_H

#include "tests/core_test.h"

#include "core/checked.h"
#include "kernels/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One call to make: attributes by name, which optional operands are absent. */
typedef struct kt_case {
    vp_kernel     kernel;
    int64_t       ints[VP_MAX_INTS];
    double        reals[VP_MAX_REALS];
    bool          accumulate;
    vp_rng_stream rng;
    bool          absent[VP_MAX_OPERANDS];
} kt_case;

/* Its operands twice: as the plan has them, and with double for float. */
typedef struct kt_operands {
    vp_kernel_call call;
    vp_kernel_call reference;
    int64_t        bytes[VP_MAX_OPERANDS];
    char          *allocation[VP_MAX_OPERANDS];
} kt_operands;

static const vp_optimizer_numbers kt_optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
                                                  .weight_decay = 0.1};

static uint64_t kt_state;

static inline double kt_uniform(void) /* in [0, 1) */
{
    kt_state ^= kt_state << 13;
    kt_state ^= kt_state >> 7;
    kt_state ^= kt_state << 17;
    return (double)(kt_state >> 11) * 0x1p-53;
}

static inline bool kt_is(const vp_kernel_info *info, int i, const char *name)
{
    return strcmp(info->operands[i].name, name) == 0;
}

static inline bool kt_is_float(const vp_kernel_info *info, int i)
{
    return !kt_is(info, i, "tokens") && !kt_is(info, i, "labels") && !kt_is(info, i, "control");
}

static inline void kt_fill(const kt_case *c, kt_operands *o, int i)
{
    const vp_kernel_info *info = vp_kernel_info_of(c->kernel);
    int64_t               n    = o->bytes[i] / 4;
    bool written = info->operands[i].access == VP_WRITE ||
                   (info->operands[i].access == VP_ACCUMULATE && !c->accumulate);
    bool positive = kt_is(info, i, "rstd") || (c->kernel == VP_K_ADAMW && kt_is(info, i, "v"));

    if (kt_is(info, i, "control")) {
        vp_control *control = o->call.operand[i];
        *control = (vp_control){.lr = 0.01, .step = 3, .inv_n_targets = 1.0 / 64, .loss_sum = 1.25,
                                .grad_sumsq = 2.5, .grad_norm = 0.5, .grad_scale = 0.75};
        memcpy(o->reference.operand[i], control, sizeof *control);
        return;
    }
    for (int64_t e = 0; e < n; e++) {
        if (kt_is_float(info, i)) {
            /* What a kernel must not read is a NaN: reading it would show. */
            float x = written ? NAN : (float)(positive ? 0.1 + kt_uniform() : 2.0 * kt_uniform() - 1.0);
            ((float *)o->call.operand[i])[e]       = x;
            ((double *)o->reference.operand[i])[e] = (double)x;
        } else {
            int64_t vocab = c->ints[kt_is(info, i, "tokens") ? 2 : 1];
            int32_t x     = (int32_t)(kt_uniform() * (double)vocab);
            if (kt_is(info, i, "labels") && e % 5 == 3)
                x = VP_IGNORE_LABEL;
            ((int32_t *)o->call.operand[i])[e]      = x;
            ((int32_t *)o->reference.operand[i])[e] = x;
        }
    }
}

/* Operands filled from seed, each `shift` times 64 bytes beyond its allocation's alignment. */
static inline kt_operands kt_operands_new(const kt_case *c, uint64_t seed, int shift)
{
    const vp_kernel_info *info = vp_kernel_info_of(c->kernel);
    kt_operands           o    = {
        .call = {.kernel = c->kernel, .accumulate = c->accumulate, .rng = c->rng,
                 .optimizer = &kt_optimizer},
    };

    memcpy(o.call.ints, c->ints, sizeof c->ints);
    memcpy(o.call.reals, c->reals, sizeof c->reals);
    o.reference = o.call;
    kt_state    = seed * 2654435761u + 88172645463325252u;
    for (int i = 0; i < info->n_operands; i++) {
        int64_t bytes = vp_kernel_operand_bytes(c->kernel, c->ints, i);
        void   *p;

        assert_false(vp_overflowed(bytes));
        if (c->absent[i])
            continue;
        o.bytes[i] = bytes;
        /* Exactly as long as promised, so that a sanitizer sees one byte beyond. */
        assert_int_equal(posix_memalign(&p, 4096, (size_t)(bytes + 64 * shift)), 0);
        o.allocation[i]        = p;
        o.call.operand[i]      = o.allocation[i] + 64 * shift;
        o.reference.operand[i] = calloc((size_t)bytes + 8, 2);
        assert_non_null(o.reference.operand[i]);
        kt_fill(c, &o, i);
    }
    return o;
}

static inline void kt_operands_release(kt_operands *o)
{
    for (int i = 0; i < VP_MAX_OPERANDS; i++) {
        free(o->allocation[i]);
        free(o->reference.operand[i]);
    }
}

static inline void kt_run(const vp_kernel_call *call)
{
    vp_err err = {0};
    CHECK_OK(vp_backend_cpu()->run(call, &err));
}

/* The call on the backend and on the reference; every float operand then agrees within atol + rtol |x|,
 * inputs included: they must be untouched. */
static inline void kt_compare(const kt_operands *o, double atol, double rtol)
{
    const vp_kernel_info *info = vp_kernel_info_of(o->call.kernel);

    for (int i = 0; i < info->n_operands; i++) {
        const float  *x = o->call.operand[i];
        const double *y = o->reference.operand[i];

        if (!x)
            continue;
        if (kt_is(info, i, "control")) {
            for (size_t f = 0; f < sizeof(vp_control) / sizeof(double); f++) {
                double a = ((const double *)o->call.operand[i])[f], b = y[f];
                if (!(fabs(a - b) <= atol + rtol * fabs(b)))
                    fail_msg("%s control field %zu: %.17g, reference %.17g", info->name, f, a, b);
            }
            continue;
        }
        for (int64_t e = 0; kt_is_float(info, i) && e < o->bytes[i] / 4; e++)
            if (!(fabs((double)x[e] - y[e]) <= atol + rtol * fabs(y[e])))
                fail_msg("%s of %lld x %lld x %lld, %s[%lld]: %.9g, reference %.9g, off by %.3g",
                         info->name, (long long)o->call.ints[0], (long long)o->call.ints[1],
                         (long long)o->call.ints[2], info->operands[i].name, (long long)e, (double)x[e],
                         y[e], fabs((double)x[e] - y[e]));
    }
}

/* The forward call whose results a backward call reads, on the same operands; spare holds what the
 * backward does not want. */
static inline vp_kernel_call kt_forward_of(const vp_kernel_call *backward, void *spare)
{
    vp_kernel_call f = *backward;

    if (backward->kernel == VP_K_ATTENTION_BWD) { /* dy qkv y lse d_qkv <- qkv y lse */
        f.kernel = VP_K_ATTENTION_FWD;
        memcpy(f.operand, backward->operand + 1, 3 * sizeof f.operand[0]);
    } else { /* dy x gamma mean rstd <- x gamma beta y mean rstd */
        assert_int_equal(backward->kernel, VP_K_LAYERNORM_BWD);
        f.kernel     = VP_K_LAYERNORM_FWD;
        f.reals[0]   = 1e-5;
        f.operand[0] = backward->operand[1];
        f.operand[1] = f.operand[2] = backward->operand[2];
        f.operand[3] = spare;
        f.operand[4] = backward->operand[3];
        f.operand[5] = backward->operand[4];
    }
    return f;
}

/* Give a backward call the forward's results it reads: the CPU's to the CPU, and, where wanted, the
 * reference's to the reference. */
static inline void kt_run_forward_first(const kt_operands *o, bool reference_too)
{
    vp_kernel k = o->call.kernel;
    void     *spare;

    if (k != VP_K_ATTENTION_BWD && k != VP_K_LAYERNORM_BWD)
        return;
    spare = malloc(2 * (size_t)o->bytes[1] + 64);
    assert_non_null(spare);
    vp_kernel_call f = kt_forward_of(&o->call, spare), r = kt_forward_of(&o->reference, spare);
    kt_run(&f);
    if (reference_too)
        vp_reference_run(&r);
    free(spare);
}

static inline void kt_check(const kt_case *c, double atol, double rtol)
{
    kt_operands o = kt_operands_new(c, 1, 1);

    kt_run_forward_first(&o, true);
    kt_run(&o.call);
    vp_reference_run(&o.reference);
    kt_compare(&o, atol, rtol);
    kt_operands_release(&o);
}

#endif
