/* tests/operands_test.h: a kernel's operands where a byte beyond them shows, drawn, and beside the
 * same in double for the reference. */
#ifndef VP_TESTS_OPERANDS_TEST_H
#define VP_TESTS_OPERANDS_TEST_H

#include "tests/base_test.h"
#include "tests/call_test.h"

#include "base/checked.h"
#include "kernels/backend.h"
#include "kernels/cpu/bf16_span.h"
#include "kernels/cpu/cpu_internal.h"

#include <math.h>
#include <sys/mman.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Memory between two pages that may not be touched, filled with a pattern: what a kernel reads
 * or writes beyond an operand either faults or shows when it is released. */
typedef struct guarded {
    unsigned char *map, *p;
    size_t         map_bytes, bytes;
} guarded;

enum { PAGE = 4096, PATTERN = 0xa5, AT_END = -1 };

/* shift: times 64 bytes behind the first page; AT_END: the last byte is the last that may be
 * touched. */
static inline guarded guarded_new(int64_t bytes, int shift)
{
    guarded g = {.bytes     = (size_t)bytes,
                 .map_bytes = ((size_t)bytes + PAGE - 1) / PAGE * PAGE + 3 * PAGE};

    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    memset(g.map, PATTERN, g.map_bytes);
    assert_int_equal(mprotect(g.map, PAGE, PROT_NONE), 0);
    assert_int_equal(mprotect(g.map + g.map_bytes - PAGE, PAGE, PROT_NONE), 0);
    g.p = shift == AT_END ? g.map + g.map_bytes - PAGE - bytes : g.map + PAGE + 64 * shift;
    return g;
}

static inline void guarded_release(guarded *g)
{
    if (!g->map)
        return;
    for (unsigned char *c = g->map + PAGE; c < g->map + g->map_bytes - PAGE; c++)
        if ((c < g->p || c >= g->p + g->bytes) && *c != PATTERN)
            fail_msg("byte %td of an operand of %zu was written", c - g->p, g->bytes);
    munmap(g->map, g->map_bytes);
}

typedef struct operands {
    vp_kernel_call call, reference;
    int64_t        n[VP_MAX_OPERANDS]; /* elements; 0: absent */
    guarded        place[VP_MAX_OPERANDS];
} operands;

static const double u = 0x1p-24; /* float's unit roundoff */

static uint64_t draw_state;

static double draw(void) /* uniform in [-1, 1) */
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return (double)(draw_state >> 11) * 0x1p-52 - 1.0;
}

/* Whether an operand's elements have 16 bits. */
static inline bool is_half(const operands *o, int i)
{
    return vp_kernel_info_of(o->call.kernel)->operands[i].elem == VP_AS_CALL &&
           vp_dtype_bytes(vp_dtype_of_operands(o->call.dtype)) == 2;
}

static inline double half_value(vp_dtype d, uint16_t x)
{
    return (double)(d == VP_DTYPE_BF16 ? vp_bf16_to_f32(x) : vp_fp16_to_f32(x));
}

static inline double get(const operands *o, int i, int64_t e)
{
    return is_half(o, i) ? half_value(o->call.dtype, ((const uint16_t *)o->call.operand[i])[e])
                         : (double)((const float *)o->call.operand[i])[e];
}

/* x, rounded to what the operand can hold, on both sides. */
static inline void set(operands *o, int i, int64_t e, double x)
{
    if (is_half(o, i))
        ((uint16_t *)o->call.operand[i])[e] = o->call.dtype == VP_DTYPE_BF16
                                                  ? vp_bf16_from_f32((float)x)
                                                  : vp_fp16_from_f32((float)x);
    else
        ((float *)o->call.operand[i])[e] = (float)x;
    ((double *)o->reference.operand[i])[e] = get(o, i, e);
}

/* The call's operands: inputs drawn by seed and name, so that forward and backward have the same
 * q; outputs NaN: reading them would show. present: which of the optional ones. */
static inline operands operands_new(const vp_kernel_call *call, const bool *present, uint64_t seed,
                                    int shift)
{
    const vp_kernel_info *info = vp_kernel_info_of(call->kernel);
    operands              o    = {.call = *call, .reference = *call};

    for (int i = 0; i < info->n_operands; i++) {
        int64_t bytes = vp_kernel_operand_bytes(call->kernel, call->dtype, call->ints, i);

        if (info->operands[i].optional && !present[i])
            continue;
        assert_false(vp_overflowed(bytes));
        o.n[i]                 = vp_kernel_operand_elements(call->kernel, call->ints, i);
        o.place[i]             = guarded_new(bytes, shift);
        o.call.operand[i]      = o.place[i].p;
        o.reference.operand[i] = calloc((size_t)o.n[i], sizeof(double));
        assert_non_null(o.reference.operand[i]);
        draw_state = seed * 2654435761u + 88172645463325252u;
        for (const char *c = info->operands[i].name; *c; c++)
            draw_state = (draw_state ^ (uint64_t)*c) * 0x100000001b3u;
        for (int64_t e = 0; e < o.n[i] && info->operands[i].elem != VP_AS_I32; e++)
            set(&o, i, e, info->operands[i].access == VP_WRITE ? NAN : draw());
    }
    return o;
}

static inline void operands_release(operands *o)
{
    for (int i = 0; i < VP_MAX_OPERANDS; i++) {
        guarded_release(&o->place[i]);
        free(o->reference.operand[i]);
    }
}

static inline void run(const vp_kernel_call *call)
{
    vp_err err = {0};
    CHECK_OK(call_try(call, &err));
}

/* The call, with its inputs left as they were. */
static inline void run_and_keep_inputs(const operands *o)
{
    const vp_kernel_info *info                    = vp_kernel_info_of(o->call.kernel);
    void                 *before[VP_MAX_OPERANDS] = {0};

    for (int i = 0; i < info->n_operands; i++)
        if (o->n[i] && info->operands[i].access == VP_READ) {
            before[i] = malloc(o->place[i].bytes);
            assert_non_null(before[i]);
            memcpy(before[i], o->place[i].p, o->place[i].bytes);
        }
    run(&o->call);
    for (int i = 0; i < info->n_operands; i++)
        if (before[i]) {
            assert_memory_equal(before[i], o->place[i].p, o->place[i].bytes);
            free(before[i]);
        }
}

/* What rounding to 16 bits may move: half of the step between numbers of 2^e .. 2^(e + 1), which is
 * 2^(e - 7) in bf16, 2^(e - 10) in fp16 and there 2^-24 at least. */
static inline double half_step(vp_dtype d, double x)
{
    if (!isfinite(x))
        return 0.0;
    if (d == VP_DTYPE_F16)
        return ldexp(1.0, x == 0.0 || ilogb(x) < -14 ? -25 : ilogb(x) - 11);
    return x == 0.0 ? 0.0 : ldexp(1.0, ilogb(x) - 8);
}

/* error beyond the half step over tolerance: fp32 and 16 bits, forward and backward */
static double worst[2][2];

/* Every written element within atol + rtol |x| of the reference; one of 16 bits within the
 * half step of its one rounding more. */
static inline void compare(const operands *o, const char *what, double atol, double rtol)
{
    const vp_kernel_info *info = vp_kernel_info_of(o->call.kernel);

    for (int i = 0; i < info->n_operands; i++)
        for (int64_t e = 0; e < o->n[i] && info->operands[i].access == VP_WRITE; e++) {
            double x = get(o, i, e), y = ((const double *)o->reference.operand[i])[e];
            double bound = atol + rtol * fabs(y);
            double free_of_charge =
                is_half(o, i) ? half_step(o->call.dtype, fmax(fabs(x), fabs(y))) : 0.0;
            double *most = &worst[is_half(o, i)][o->call.kernel == VP_K_ATTENTION_BWD];

            if (x != y && bound > 0.0)
                *most = fmax(*most, (fabs(x - y) - free_of_charge) / bound);
            if (x != y && !(fabs(x - y) <= bound + free_of_charge))
                fail_msg("%s %s, %s[%lld]: %.9g, reference %.9g, off by %.3g of %.3g", info->name,
                         what, info->operands[i].name, (long long)e, x, y, fabs(x - y),
                         bound + free_of_charge);
        }
}

static inline void expect_same(const operands *a, const operands *b, const char *how, int64_t n)
{
    const vp_kernel_info *info = vp_kernel_info_of(a->call.kernel);

    for (int i = 0; i < info->n_operands; i++)
        if (a->n[i] && info->operands[i].access == VP_WRITE &&
            memcmp(a->call.operand[i], b->call.operand[i], a->place[i].bytes) != 0)
            fail_msg("%s: %s differs with %s %lld", info->name, info->operands[i].name, how,
                     (long long)n);
}

static inline int say_worst(void **state)
{
    (void)state;
    print_message(
        "worst error over tolerance: fp32 forward %.2f backward %.2f, 16 bits forward %.2f backward %.2f\n",
        worst[0][0], worst[0][1], worst[1][0], worst[1][1]);
    return 0;
}

#endif
