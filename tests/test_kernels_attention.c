/* Attention and rotary embedding: against float64, against finite differences, to the bit, and inside their operands. */
#include "tests/call_test.h"
#include "tests/core_test.h"

#include "core/checked.h"
#include "kernels/backend.h"
#include "kernels/cpu/bf16_span.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/gemm_bf16.h"

#include <math.h>
#include <sys/mman.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

enum { Q, K, V, LENGTHS, Y, LSE, PROBS };                                        /* of attention_fwd */
enum { B_DY, B_Q, B_K, B_V, B_LENGTHS, B_Y, B_LSE, B_PROBS, B_DQ, B_DK, B_DV };  /* of attention_bwd */

/* ---- operands ---- */

/* Memory between two pages that may not be touched, filled with a pattern: what a kernel reads or writes beyond an operand
 * either faults or shows when it is released. */
typedef struct guarded {
    unsigned char *map, *p;
    size_t         map_bytes, bytes;
} guarded;

enum { PAGE = 4096, PATTERN = 0xa5, AT_END = -1 };

/* shift: times 64 bytes behind the first page; AT_END: the last byte is the last that may be touched. */
static guarded guarded_new(int64_t bytes, int shift)
{
    guarded g = {.bytes = (size_t)bytes, .map_bytes = ((size_t)bytes + PAGE - 1) / PAGE * PAGE + 3 * PAGE};

    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    memset(g.map, PATTERN, g.map_bytes);
    assert_int_equal(mprotect(g.map, PAGE, PROT_NONE), 0);
    assert_int_equal(mprotect(g.map + g.map_bytes - PAGE, PAGE, PROT_NONE), 0);
    g.p = shift == AT_END ? g.map + g.map_bytes - PAGE - bytes : g.map + PAGE + 64 * shift;
    return g;
}

static void guarded_release(guarded *g)
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

static uint64_t draw_state;

static double draw(void) /* uniform in [-1, 1) */
{
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    draw_state ^= draw_state << 17;
    return (double)(draw_state >> 11) * 0x1p-52 - 1.0;
}

static bool is_bf16(const operands *o, int i)
{
    return vp_kernel_info_of(o->call.kernel)->operands[i].elem == VP_AS_CALL && o->call.dtype == VP_DTYPE_BF16;
}

static double get(const operands *o, int i, int64_t e)
{
    return is_bf16(o, i) ? (double)vp_bf16_to_f32(((const uint16_t *)o->call.operand[i])[e])
                         : (double)((const float *)o->call.operand[i])[e];
}

/* x, rounded to what the operand can hold, on both sides. */
static void set(operands *o, int i, int64_t e, double x)
{
    if (is_bf16(o, i))
        ((uint16_t *)o->call.operand[i])[e] = vp_bf16_from_f32((float)x);
    else
        ((float *)o->call.operand[i])[e] = (float)x;
    ((double *)o->reference.operand[i])[e] = get(o, i, e);
}

/* The call's operands: inputs drawn by seed and name, so that forward and backward have the same q; outputs NaN: reading
 * them would show. present: which of the optional ones. */
static operands operands_new(const vp_kernel_call *call, const bool *present, uint64_t seed, int shift)
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

static void operands_release(operands *o)
{
    for (int i = 0; i < VP_MAX_OPERANDS; i++) {
        guarded_release(&o->place[i]);
        free(o->reference.operand[i]);
    }
}

static void run(const vp_kernel_call *call)
{
    vp_err err = {0};
    CHECK_OK(call_try(call, &err));
}

/* The call, with its inputs left as they were. */
static void run_and_keep_inputs(const operands *o)
{
    const vp_kernel_info *info = vp_kernel_info_of(o->call.kernel);
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

/* What rounding to bf16 may move: half of the step 2^(e - 7) between numbers of 2^e .. 2^(e + 1). */
static double half_step(double x)
{
    return x == 0.0 || !isfinite(x) ? 0.0 : ldexp(1.0, ilogb(x) - 8);
}

static double worst[2][2]; /* error beyond the half step over tolerance: fp32 and bf16, forward and backward */

/* Every written element within atol + rtol |x| of the reference; a bf16 one within the half step of its one rounding more. */
static void compare(const operands *o, const char *what, double atol, double rtol)
{
    const vp_kernel_info *info = vp_kernel_info_of(o->call.kernel);

    for (int i = 0; i < info->n_operands; i++)
        for (int64_t e = 0; e < o->n[i] && info->operands[i].access == VP_WRITE; e++) {
            double x = get(o, i, e), y = ((const double *)o->reference.operand[i])[e];
            double bound = atol + rtol * fabs(y);
            double free_of_charge = is_bf16(o, i) ? half_step(fmax(fabs(x), fabs(y))) : 0.0;
            double *most = &worst[is_bf16(o, i)][o->call.kernel == VP_K_ATTENTION_BWD];

            if (x != y && bound > 0.0)
                *most = fmax(*most, (fabs(x - y) - free_of_charge) / bound);
            if (x != y && !(fabs(x - y) <= bound + free_of_charge))
                fail_msg("%s %s, %s[%lld]: %.9g, reference %.9g, off by %.3g of %.3g", info->name, what,
                         info->operands[i].name, (long long)e, x, y, fabs(x - y), bound + free_of_charge);
        }
}

static void expect_same(const operands *a, const operands *b, const char *how, int64_t n)
{
    const vp_kernel_info *info = vp_kernel_info_of(a->call.kernel);

    for (int i = 0; i < info->n_operands; i++)
        if (a->n[i] && info->operands[i].access == VP_WRITE &&
            memcmp(a->call.operand[i], b->call.operand[i], a->place[i].bytes) != 0)
            fail_msg("%s: %s differs with %s %lld", info->name, info->operands[i].name, how, (long long)n);
}

/* ---- attention ---- */

/* Attributes in order: batch seq heads kv_heads head_dim layout causal window probs. */
typedef struct attention {
    int64_t  ints[9];
    double   scale, p, softcap; /* scale 0: 1 / sqrt(head_dim) */
    bool     lengths;           /* of the samples: 2/3 of seq, 0, seq, 1 */
    vp_dtype dtype;             /* none: fp32 */
} attention;

static operands attention_operands(const attention *a, vp_kernel kernel, uint64_t seed, int shift)
{
    bool           apart = a->ints[5] == VP_QKV_APART, forward = kernel == VP_K_ATTENTION_FWD;
    bool           fwd[VP_MAX_OPERANDS] = {[K] = apart, [V] = apart, [LENGTHS] = a->lengths, [PROBS] = a->ints[8] != 0};
    bool           bwd[VP_MAX_OPERANDS] = {[B_K] = apart, [B_V] = apart, [B_LENGTHS] = a->lengths,
                                           [B_PROBS] = a->ints[8] != 0, [B_DK] = apart, [B_DV] = apart};
    vp_kernel_call call = {
        .kernel = kernel, .dtype = a->dtype == VP_DTYPE_BF16 ? VP_DTYPE_BF16 : VP_DTYPE_F32,
        .reals = {a->scale > 0.0 ? a->scale : 1.0 / sqrt((double)a->ints[4]), a->p, a->softcap},
        .rng = {.seed = 7, .step = 2, .op = 5, .first_sample = 3},
    };
    int64_t  seq = a->ints[1], length[4] = {(2 * seq + 2) / 3, 0, seq, 1};
    bool     plain = a->p == 0.0 && a->softcap == 0.0 && !a->lengths && !a->ints[8];
    operands o;

    if (!on_cpu() && shift == AT_END && plain && call.dtype == VP_DTYPE_BF16)
        shift = 1; /* cuDNN takes operands at multiples of 16 bytes, as those of every plan are */
    memcpy(call.ints, a->ints, sizeof a->ints);
    o = operands_new(&call, forward ? fwd : bwd, seed, shift);
    for (int64_t s = 0; a->lengths && s < a->ints[0]; s++) {
        int i = forward ? LENGTHS : B_LENGTHS;
        ((int32_t *)o.call.operand[i])[s] = ((int32_t *)o.reference.operand[i])[s] = (int32_t)length[s % 4];
    }
    return o;
}

/* A backward call with the results of its forward on this backend; the reference reads the same y and probs. */
static operands backward_operands(const attention *a, uint64_t seed, int shift)
{
    operands f = attention_operands(a, VP_K_ATTENTION_FWD, seed, 0);
    operands b = attention_operands(a, VP_K_ATTENTION_BWD, seed, shift);

    run(&f.call);
    for (int i = Y; i <= PROBS; i++)
        for (int64_t e = 0; e < f.n[i]; e++)
            set(&b, i + 1, e, get(&f, i, e));
    operands_release(&f);
    return b;
}

/* u = 2^-24 is float's unit roundoff; inputs are uniform in [-1, 1), with variance 1/3. A sum of k products of two such numbers
 * has variance k/9, so partial sums stay near sqrt(k)/3; k roundings of relative size u, as a random walk (Higham and
 * Mary 2019, SIAM J. Sci. Comput. 41(5)), make an error near u sqrt(k) sqrt(k)/3 = u k / 3. 6 times that is allowed. */
static const double u = 0x1p-24;

static double dot_tolerance(int64_t k)
{
    return 2.0 * u * (double)(k < 8 ? 8 : k);
}

/* Scores are sums of d products; an error of e in a score is a relative error e in a probability, and outputs are means of
 * values of size 1: dot_tolerance(d) carries through with the factors scale <= 1. lse and y add the rounding of exp (1 ulp)
 * and of a sum of seq terms in lanes; a cap c adds 2 u c to a score. Gradients pass two more products and sums of up to seq
 * (times heads per kv head) terms, each smaller than 1 / (1 - p). bf16 differs by one rounding of each result (compare());
 * backward starts from the rounded y and probs on both sides; and by what splitting P and ds leaves out (attention.c), up
 * to 2^-17 = 128 u of terms whose sizes are P and P times a gradient, with both signs: dot_tolerance() bears that. */
/* What cuDNN's attention adds, where it is the backend's: it rounds P, and in backward ds, to bf16 before it multiplies by them, each element by up
 * to r = 2^-9 of itself. Forward: y = sum P v with sum P = 1 and |v| < 1, so r. Backward: ds = P (dP - D) with dP = dy v' of size sqrt(d) / 3 and scale
 * 1 / sqrt(d): terms of up to 5 / 3 P. Sums over queries of P, near 1 / keys each, are up to 1 + ln seq for the first key of a causal
 * call, for each head of the group; n independent errors of r / sqrt(3) add up to its root. Six of those: 6 r 5/3 / sqrt(3) < 8 r. Where heads share a key its
 * gradient is rounded once for each of them: as much again, less than the root of the group times r. */
static double of_cudnn(const attention *a, const operands *o)
{
    vp_call_shape shape = {.sm = test_backend()->sm, .kernel = o->call.kernel, .dtype = o->call.dtype, .ints = o->call.ints,
                           .reals = o->call.reals, .lengths = a->lengths};
    double        group = (double)(a->ints[2] / a->ints[3]);

    if (on_cpu() || vp_cuda_attention_engine(&shape) != VP_ATTENTION_CUDNN)
        return 0.0;
    return o->call.kernel == VP_K_ATTENTION_FWD ? 0x1p-9 : 9.0 * 0x1p-9 * sqrt(group * (1.0 + log((double)a->ints[1])));
}

static void check_attention(const attention *a, const char *what)
{
    double   scale = a->scale > 1.0 ? a->scale : 1.0, keep = 1.0 / (1.0 - a->p);
    double   of_scores = dot_tolerance(a->ints[4]) * scale + 2.0 * u * a->softcap;
    double   tolerance = (of_scores + dot_tolerance(a->ints[1]) / 4.0) * keep;
    operands f, b;

    if (!call_is_chosen())
        return;
    f = attention_operands(a, VP_K_ATTENTION_FWD, 1, AT_END);
    run_and_keep_inputs(&f);
    vp_reference_run(&f.reference);
    compare(&f, what, tolerance + of_cudnn(a, &f), 16.0 * u);
    operands_release(&f);
    b = backward_operands(a, 1, AT_END);
    run_and_keep_inputs(&b);
    vp_reference_run(&b.reference);
    compare(&b, what, 4.0 * tolerance * keep * (double)(a->ints[2] / a->ints[3]) + of_cudnn(a, &b), 16.0 * u);
    operands_release(&b);
}

static void both_dtypes(attention a, const char *what)
{
    a.dtype = VP_DTYPE_F32;
    check_attention(&a, what);
    a.dtype = VP_DTYPE_BF16;
    check_attention(&a, what);
}

/* bf16 without instructions for its products: rows are widened. */
static void widened(attention a, const char *what)
{
    if (!on_cpu())
        return;
    a.dtype = VP_DTYPE_BF16;
    vp_cpu_gemm_bf16_limit(VP_GEMM_BF16_AVX2);
    check_attention(&a, what);
    vp_cpu_gemm_bf16_limit(VP_GEMM_BF16_AMX);
}

/* batch, seq, heads, kv_heads, head_dim: one token, around a tile of 64, three kv heads, a head of 40, of 7, of the most. */
static const int64_t attention_shapes[][5] = {
    {1, 1, 1, 1, 1}, {2, 1, 2, 2, 40}, {1, 63, 2, 1, 16}, {1, 64, 1, 1, 64}, {2, 65, 6, 3, 40},
    {1, 130, 3, 3, 24}, {1, 200, 4, 1, 7}, {1, 129, 1, 1, 128}, {1, 70, 1, 1, 256}, {1, 70, 7, 1, 33},
};

static void attention_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(attention_shapes); s++)
        for (int causal = 0; causal < 2; causal++) {
            attention a = {.ints = {[6] = causal}};

            memcpy(a.ints, attention_shapes[s], sizeof attention_shapes[s]);
            both_dtypes(a, "packed");
            a.p = 0.3;
            both_dtypes(a, "packed with dropout");
            widened(a, "packed with dropout, widened");
            a.p       = 0.0;
            a.ints[5] = VP_QKV_APART;
            both_dtypes(a, "apart");
            widened(a, "apart, widened");
            a.ints[5] = VP_QKV_PER_HEAD;
            a.ints[3] = a.ints[2];
            both_dtypes(a, "per head");
        }
}

/* Every way to see keys, with every way to lie, with each of the extras: two samples, one of them of length 0 where there
 * are lengths; 67 tokens are one more than a window and three more than a tile. */
static void masks_layouts_and_extras_agree_with_the_reference(void **state)
{
    static const int64_t windows[] = {0, 1, 5, 66, 500};

    (void)state;
    for (int w = 0; w < COUNT(windows); w++)
        for (int bits = 0; bits < 96; bits++) {
            int       layout = bits % 3;
            attention a      = {
                .ints = {2, 67, 3, layout == VP_QKV_PER_HEAD ? 3 : 1, 5, layout, bits / 3 & 1, windows[w], bits / 6 & 1},
                .lengths = (bits / 12 & 1) != 0, .softcap = bits / 24 & 1 ? 0.4 : 0.0, .p = bits / 48 & 1 ? 0.3 : 0.0,
            };
            char what[128];

            snprintf(what, sizeof what, "layout %d causal %lld window %lld probs %lld lengths %d softcap %g p %g", layout,
                     (long long)a.ints[6], (long long)a.ints[7], (long long)a.ints[8], a.lengths, a.softcap, a.p);
            both_dtypes(a, what);
        }
}

/* Several tiles, so that windows begin and end inside, before and behind them, and whole tiles are skipped. */
static void long_windows_and_lengths_agree_with_the_reference(void **state)
{
    static const int64_t windows[] = {1, 64, 65, 100, 130};

    (void)state;
    for (int w = 0; w < COUNT(windows); w++)
        for (int causal = 0; causal < 2; causal++) {
            attention a = {.ints = {4, 203, 2, 1, 16, VP_QKV_PACKED, causal, windows[w], w % 2}, .lengths = true};

            both_dtypes(a, "of 203 tokens");
            widened(a, "of 203 tokens, widened");
        }
}

static void attention_bears_scores_far_from_zero(void **state)
{
    /* scale 200: scores of size 200, probabilities near one-hot; exp of the raw score would overflow. A
     * score's relative error 4u becomes 4u * 200 in a probability and in lse. With a cap of 50 tanh saturates. */
    attention a = {.ints = {1, 150, 2, 2, 32, VP_QKV_PACKED, 1, 0, 0}, .scale = 200.0};
    operands  f = attention_operands(&a, VP_K_ATTENTION_FWD, 1, 0);

    (void)state;
    run(&f.call);
    vp_reference_run(&f.reference);
    compare(&f, "far from zero", 200.0 * dot_tolerance(32), 8.0 * u);
    operands_release(&f);
    a.softcap = 50.0;
    f         = attention_operands(&a, VP_K_ATTENTION_FWD, 1, 0);
    run(&f.call);
    vp_reference_run(&f.reference);
    compare(&f, "far from zero, capped", 200.0 * dot_tolerance(32), 8.0 * u);
    operands_release(&f);
}

static void a_query_sees_the_keys_the_table_says(void **state)
{
    /* q = 0: all scores are equal; v one-hot: y[i] is 1 / n at each of the n keys that query i sees. */
    static const struct {
        int64_t     causal, window;
        int32_t     length;
        const char *rows[5];
    } table[] = {
        {1, 0, 5, {"#....", "##...", "###..", "####.", "#####"}},
        {1, 2, 5, {"#....", "##...", ".##..", "..##.", "...##"}},
        {0, 0, 5, {"#####", "#####", "#####", "#####", "#####"}},
        {0, 2, 5, {"##...", "###..", ".###.", "..###", "...##"}},
        {0, 0, 3, {"###..", "###..", "###..", "###..", "###.."}},
        {1, 0, 3, {"#....", "##...", "###..", "###..", "###.."}},
        {0, 2, 3, {"##...", "###..", ".##..", "..#..", "....."}},
        {1, 1, 2, {"#....", ".#...", ".....", ".....", "....."}},
    };

    (void)state;
    for (int t = 0; t < COUNT(table); t++) {
        attention    a = {.ints = {1, 5, 1, 1, 5, VP_QKV_APART, table[t].causal, table[t].window, 1}, .lengths = true};
        operands     f = attention_operands(&a, VP_K_ATTENTION_FWD, 1, 0), b;
        const float *y = f.call.operand[Y], *lse = f.call.operand[LSE], *probs = f.call.operand[PROBS];

        *(int32_t *)f.call.operand[LENGTHS] = table[t].length;
        for (int e = 0; e < 25; e++) {
            set(&f, Q, e, 0.0);
            set(&f, V, e, e % 6 == 0 ? 1.0 : 0.0);
        }
        run(&f.call);
        b = attention_operands(&a, VP_K_ATTENTION_BWD, 1, 0);
        *(int32_t *)b.call.operand[B_LENGTHS] = table[t].length;
        for (int e = 0; e < 25; e++) {
            set(&b, B_Y, e, y[e]);
            set(&b, B_PROBS, e, probs[e]);
        }
        for (int i = 0; i < 5; i++)
            set(&b, B_LSE, i, lse[i]);
        run(&b.call);
        for (int i = 0; i < 5; i++) {
            int n = 0;

            for (int j = 0; j < 5; j++)
                n += table[t].rows[i][j] == '#';
            assert_true(n == 0 ? lse[i] == -INFINITY : fabs((double)lse[i] - log(n)) < 4.0 * u);
            for (int j = 0; j < 5; j++) {
                double expected = table[t].rows[i][j] == '#' ? 1.0 / n : 0.0;

                assert_true(fabs((double)y[5 * i + j] - expected) <= 4.0 * u * expected);
                assert_true(fabs((double)probs[5 * i + j] - expected) <= 4.0 * u * expected);
                if (n == 0)
                    assert_true(((float *)b.call.operand[B_DQ])[5 * i + j] == 0.0f);
                if (i >= table[t].length) { /* a key that nobody sees */
                    assert_true(((float *)b.call.operand[B_DK])[5 * i + j] == 0.0f);
                    assert_true(((float *)b.call.operand[B_DV])[5 * i + j] == 0.0f);
                }
            }
        }
        operands_release(&f);
        operands_release(&b);
    }
}

static void keys_beyond_the_length_are_not_read(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        attention a = {.ints = {4, 150, 2, 1, 8, VP_QKV_APART, causal, 0, 0}, .lengths = true};
        operands  plain = backward_operands(&a, 1, 0), poisoned = backward_operands(&a, 1, 0);

        for (int64_t s = 0; s < 4; s++)
            for (int64_t e = (((int32_t *)plain.call.operand[B_LENGTHS])[s] + s * 150) * 8; e < (s + 1) * 150 * 8; e++) {
                set(&poisoned, B_K, e, NAN);
                set(&poisoned, B_V, e, NAN);
            }
        run(&plain.call);
        run(&poisoned.call);
        expect_same(&plain, &poisoned, "NaN beyond lengths, causal", causal);
        operands_release(&plain);
        operands_release(&poisoned);
    }
}

static void a_cap_bounds_the_scores(void **state)
{
    /* One query, two keys, scores 30 and -30 capped at 2: t = 2 tanh(15) = 2 to 1e-12, so P = 1 / (1 + e^-4) = 0.98201379 */
    attention a = {.ints = {1, 2, 1, 1, 1, VP_QKV_APART, 0, 0, 1}, .scale = 1.0, .softcap = 2.0};
    operands  f = attention_operands(&a, VP_K_ATTENTION_FWD, 1, 0);

    (void)state;
    set(&f, Q, 0, 30.0);
    set(&f, K, 0, 1.0);
    set(&f, K, 1, -1.0);
    run(&f.call);
    assert_true(fabs(get(&f, PROBS, 0) - 0.98201379) < 1e-7);
    assert_true(fabs(get(&f, PROBS, 1) - 0.01798621) < 1e-8);
    assert_true(fabs(get(&f, LSE, 0) - (2.0 + log1p(exp(-4.0)))) < 2.0 * u * 2.1);
    operands_release(&f);
}

static void attention_drops_its_share_of_probabilities(void **state)
{
    /* q = k = 0: uniform probabilities; v one-hot of the key's place mod 64 with 64 keys: y[i][c] is
     * M[i][c] / (i + 1), so y shows the mask itself. */
    enum { S = 64, HEADS = 16 };
    attention a = {.ints = {1, S, HEADS, HEADS, S, VP_QKV_PACKED, 1, 0, 0}, .p = 0.25};
    operands  o = attention_operands(&a, VP_K_ATTENTION_FWD, 1, 0);
    float    *qkv = o.call.operand[Q], *y = o.call.operand[Y];
    int64_t   n_dropped = 0, n = HEADS * S * (S + 1) / 2;

    (void)state;
    memset(qkv, 0, o.place[Q].bytes);
    for (int64_t i = 0; i < S; i++)
        for (int64_t h = 0; h < HEADS; h++)
            qkv[i * 3 * HEADS * S + (2 * HEADS + h) * S + i] = 1.0f;
    run(&o.call);
    for (int64_t i = 0; i < S; i++)
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t j = 0; j <= i; j++) {
                double m = (double)y[i * HEADS * S + h * S + j] * (double)(i + 1);
                assert_true(m == 0.0 || fabs(m - 4.0 / 3.0) < 1e-5);
                n_dropped += m == 0.0;
            }
    /* n = 33280: 8320 +- 5 sqrt(n 0.25 0.75) = 395 */
    assert_true(llabs(n_dropped - n / 4) < 395);
    operands_release(&o);
}

/* ---- the reference's backward against finite differences of its forward ----
 *
 * loss = sum of y[i] * dy[i]; d loss / d q[i] by central differences with h = 1e-4 in double: error
 * h^2/6 f''' ~ 1e-9 f''' plus 2^-52 |loss| / h ~ 1e-11. 1e-6 is asked for. */
static double loss_of(const operands *f, const double *weight)
{
    double loss = 0.0;

    vp_reference_run(&f->reference);
    for (int64_t i = 0; i < f->n[Y]; i++)
        loss += ((const double *)f->reference.operand[Y])[i] * weight[i];
    return loss;
}

static void check_slopes(const attention *a)
{
    operands f = attention_operands(a, VP_K_ATTENTION_FWD, 3, 0), b = attention_operands(a, VP_K_ATTENTION_BWD, 3, 0);

    vp_reference_run(&f.reference);
    for (int i = Y; i <= PROBS; i++)
        if (f.n[i])
            memcpy(b.reference.operand[i + 1], f.reference.operand[i], (size_t)f.n[i] * sizeof(double));
    vp_reference_run(&b.reference);
    for (int part = 0; part < 3; part++) {
        double       *x        = f.reference.operand[Q + part];
        const double *gradient = b.reference.operand[B_DQ + part];

        for (int64_t i = 0; i < f.n[Q + part]; i++) {
            double keep = x[i], plus, minus, difference;

            x[i]       = keep + 1e-4;
            plus       = loss_of(&f, b.reference.operand[B_DY]);
            x[i]       = keep - 1e-4;
            minus      = loss_of(&f, b.reference.operand[B_DY]);
            x[i]       = keep;
            difference = (plus - minus) / 2e-4;
            if (!(fabs(difference - gradient[i]) <= 1e-6 * (1.0 + fabs(difference))))
                fail_msg("layout %lld causal %lld window %lld, part %d [%lld]: gradient %.9g, difference %.9g",
                         (long long)a->ints[5], (long long)a->ints[6], (long long)a->ints[7], part, (long long)i,
                         gradient[i], difference);
        }
    }
    operands_release(&f);
    operands_release(&b);
}

static void reference_gradients_are_the_forwards_slopes(void **state)
{
    (void)state;
    CPU_ONLY();
    for (int bits = 0; bits < 144; bits++) {
        int       layout = bits % 3, window = bits / 3 % 3;
        attention a      = {
            .ints = {2, 5, 4, layout == VP_QKV_PER_HEAD ? 4 : 2, 3, layout, bits / 9 & 1, window, bits / 18 & 1},
            .scale = 0.6, .p = bits / 36 & 1 ? 0.4 : 0.0, .softcap = bits / 36 & 1 ? 0.7 : 0.0,
            .lengths = (bits / 72 & 1) != 0,
        };
        check_slopes(&a);
    }
}

/* ---- bits ---- */

/* Several items, several tiles, odd ends. */
static const attention bit_cases[] = {
    {.ints = {3, 203, 6, 3, 40, VP_QKV_PACKED, 1, 0, 0}},
    {.ints = {3, 131, 4, 4, 16, VP_QKV_PACKED, 1, 0, 0}, .p = 0.2},
    {.ints = {1, 203, 14, 2, 64, VP_QKV_APART, 1, 0, 0}},
    {.ints = {4, 150, 4, 2, 24, VP_QKV_PACKED, 0, 0, 0}, .lengths = true},
    {.ints = {2, 203, 4, 4, 24, VP_QKV_PER_HEAD, 1, 70, 0}, .softcap = 0.5},
    {.ints = {2, 203, 4, 2, 24, VP_QKV_APART, 0, 70, 1}, .lengths = true, .p = 0.1},
    {.ints = {1, 190, 6, 2, 33, VP_QKV_PACKED, 1, 0, 1}, .softcap = 0.5},
    {.ints = {1, 700, 2, 1, 64, VP_QKV_PACKED, 1, 0, 0}}, /* in bf16 beyond what fits whole */
};

/* Of each case forward and backward; in fp32, in bf16, in bf16 with widened rows: until the next call of this. */
enum { N_BIT_CASES = 6 * COUNT(bit_cases) };

static operands bit_operands(int which, int shift)
{
    attention a    = bit_cases[which / 6];
    int       kind = which % 3;

    a.dtype = kind == 0 ? VP_DTYPE_F32 : VP_DTYPE_BF16;
    vp_cpu_gemm_bf16_limit(kind == 2 ? VP_GEMM_BF16_AVX2 : VP_GEMM_BF16_AMX);
    vp_backend_cpu()->set_threads(2);
    return which / 3 % 2 ? backward_operands(&a, 5, shift) : attention_operands(&a, VP_K_ATTENTION_FWD, 5, shift);
}

static int all_instructions(void **state)
{
    (void)state;
    vp_cpu_gemm_bf16_limit(VP_GEMM_BF16_AMX);
    vp_backend_cpu()->set_threads(2);
    return 0;
}

/* 1 thread leaves backward whole, some of the others cut it. */
static void threads_move_no_bit(void **state)
{
    (void)state;
    CPU_ONLY();
    for (int i = 0; i < N_BIT_CASES; i++) {
        operands one = bit_operands(i, 0);

        vp_backend_cpu()->set_threads(1);
        run(&one.call);
        for (int n = 2; n <= 7; n++) {
            operands many = bit_operands(i, 0);

            vp_backend_cpu()->set_threads(n);
            run(&many.call);
            expect_same(&one, &many, "threads", n);
            operands_release(&many);
        }
        operands_release(&one);
    }
}

static void place_and_repetition_move_no_bit(void **state)
{
    static const int shifts[] = {0, 1, 2, 3, 5, AT_END};

    (void)state;
    for (int i = 0; i < N_BIT_CASES; i++) {
        operands here;

        if (!call_is_chosen())
            continue;
        here = bit_operands(i, 0);

        run(&here.call);
        for (int s = 0; s < COUNT(shifts); s++) {
            operands there = bit_operands(i, shifts[s]);

            run(&there.call);
            expect_same(&here, &there, "an offset of 64 times", shifts[s]);
            operands_release(&there);
        }
        operands_release(&here);
    }
}

static void the_instruction_set_of_our_loops_moves_no_bit(void **state)
{
    (void)state;
    CPU_ONLY();
    for (int i = 0; i < N_BIT_CASES; i++) {
        operands best = bit_operands(i, 0);

        run(&best.call);
        for (vp_cpu_isa isa = VP_CPU_BASELINE; isa <= VP_CPU_AVX2; isa++) {
            operands less = bit_operands(i, 0);

            vp_cpu_isa_limit(isa);
            run(&less.call);
            vp_cpu_isa_limit(VP_CPU_AVX512);
            expect_same(&best, &less, "instruction set", (int64_t)isa);
            operands_release(&less);
        }
        operands_release(&best);
    }
}

/* The operands of samples first .. first + n. */
static vp_kernel_call samples_of(const operands *o, int64_t first, int64_t n)
{
    vp_kernel_call part = o->call, before = o->call;

    part.ints[0] = n;
    before.ints[0] = first;
    part.rng.first_sample += first;
    for (int i = 0; i < VP_MAX_OPERANDS && first > 0; i++)
        if (part.operand[i])
            part.operand[i] = (char *)part.operand[i] + vp_kernel_operand_bytes(part.kernel, part.dtype, before.ints, i);
    return part;
}

static void chunks_of_samples_move_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < N_BIT_CASES; i++) {
        operands whole;
        int64_t  batch;

        if (!call_is_chosen())
            continue;
        whole = bit_operands(i, 0);
        batch = whole.call.ints[0];

        run(&whole.call);
        for (int64_t chunk = 1; chunk < batch; chunk++) {
            operands parts = bit_operands(i, 0);

            for (int64_t first = 0; first < batch; first += chunk) {
                vp_kernel_call part = samples_of(&parts, first, vp_min_i64(chunk, batch - first));
                run(&part);
            }
            expect_same(&whole, &parts, "chunks of samples", chunk);
            operands_release(&parts);
        }
        operands_release(&whole);
    }
}

/* fp32: probs are what backward would recompute. */
static void keeping_the_attention_matrix_moves_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(bit_cases); i++) {
        attention with = bit_cases[i], without = bit_cases[i];
        operands  fw, fo, bw, bo;

        if (!call_is_chosen())
            continue;
        with.ints[8]    = 1;
        without.ints[8] = 0;
        fw              = attention_operands(&with, VP_K_ATTENTION_FWD, 5, 0);
        fo              = attention_operands(&without, VP_K_ATTENTION_FWD, 5, 0);
        run(&fw.call);
        run(&fo.call);
        assert_memory_equal(fw.call.operand[Y], fo.call.operand[Y], fo.place[Y].bytes);
        assert_memory_equal(fw.call.operand[LSE], fo.call.operand[LSE], fo.place[LSE].bytes);
        bw = backward_operands(&with, 5, 0);
        bo = backward_operands(&without, 5, 0);
        run(&bw.call);
        run(&bo.call);
        expect_same(&bo, &bw, "probs kept, case", i);
        operands_release(&fw);
        operands_release(&fo);
        operands_release(&bw);
        operands_release(&bo);
    }
}

/* ---- rope ---- */

/* batch seq heads kv_heads head_dim rotary_dim layout */
static const int64_t rope_shapes[][7] = {
    {1, 1, 1, 1, 2, 2, VP_QKV_PACKED},       {2, 7, 6, 3, 40, 40, VP_QKV_PACKED},  {2, 7, 6, 3, 40, 10, VP_QKV_PACKED},
    {1, 5, 3, 3, 24, 6, VP_QKV_PER_HEAD},    {2, 3, 4, 4, 16, 16, VP_QKV_PER_HEAD}, {3, 33, 14, 2, 64, 64, VP_QKV_APART},
    {1, 130, 3, 0, 66, 34, VP_QKV_APART},    {1, 2, 1, 1, 700, 620, VP_QKV_PACKED}, {2, 300, 8, 2, 32, 32, VP_QKV_PACKED},
};

static operands rope_operands(int shape, vp_kernel kernel, vp_dtype dtype, int shift)
{
    vp_kernel_call call = {.kernel = kernel, .dtype = dtype};
    operands       o;
    int64_t        n;

    memcpy(call.ints, rope_shapes[shape], sizeof rope_shapes[shape]);
    o = operands_new(&call, NULL, 1, shift);
    n = o.n[1] / 2;
    for (int64_t i = 0; i < n; i++) { /* angles: any */
        double angle = 3.0 * draw();
        set(&o, 1, i, cos(angle));
        set(&o, 1, n + i, sin(angle));
    }
    return o;
}

/* Two products and a sum of numbers below 1: three roundings of at most 2 u each. */
static void rope_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(rope_shapes); s++)
        for (int which = 0; which < 4; which++) {
            vp_kernel kernel = which & 1 ? VP_K_ROPE_BWD : VP_K_ROPE_FWD;
            operands  o      = rope_operands(s, kernel, which & 2 ? VP_DTYPE_BF16 : VP_DTYPE_F32, AT_END);

            run_and_keep_inputs(&o);
            vp_reference_run(&o.reference);
            compare(&o, "rope", 4.0 * u, 0.0);
            operands_release(&o);
        }
}

static void a_quarter_turn_swaps_the_halves(void **state)
{
    /* Head of 6, rotary 4, angles of 90 degrees for the first pair, 0 for the second: (1 2 3 4 5 6) becomes
     * (-3 2 1 4 5 6); backward (3 2 -1 4 5 6). The value head stays. */
    float          x[18] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, angles[4] = {0, 1, 1, 0}, y[18];
    const float    forward[6] = {-3, 2, 1, 4, 5, 6}, backward[6] = {3, 2, -1, 4, 5, 6};
    vp_kernel_call call = {.kernel = VP_K_ROPE_FWD, .dtype = VP_DTYPE_F32, .operand = {x, angles, y},
                           .ints = {1, 1, 1, 1, 6, 4, VP_QKV_PACKED}};

    (void)state;
    run(&call);
    for (int i = 0; i < 18; i++)
        assert_true(y[i] == (i < 12 ? forward[i % 6] : x[i]));
    call.kernel = VP_K_ROPE_BWD;
    run(&call);
    for (int i = 0; i < 18; i++)
        assert_true(y[i] == (i < 12 ? backward[i % 6] : x[i]));
}

/* Forward is linear, y = R x: its slope is R', so dy . (R x) = (R' dy) . x for any x and dy. */
static void reference_rope_backward_is_the_transpose_of_forward(void **state)
{
    (void)state;
    CPU_ONLY();
    for (int s = 0; s < COUNT(rope_shapes); s++) {
        operands      f = rope_operands(s, VP_K_ROPE_FWD, VP_DTYPE_F32, 0);
        operands      b = rope_operands(s, VP_K_ROPE_BWD, VP_DTYPE_F32, 0);
        const double *x = f.reference.operand[0], *y = f.reference.operand[2];
        const double *dy = b.reference.operand[0], *dx = b.reference.operand[2];
        double        left = 0.0, right = 0.0;

        memcpy(b.reference.operand[1], f.reference.operand[1], (size_t)f.n[1] * sizeof(double));
        vp_reference_run(&f.reference);
        vp_reference_run(&b.reference);
        for (int64_t i = 0; i < f.n[0]; i++) {
            left += dy[i] * y[i];
            right += dx[i] * x[i];
        }
        assert_true(fabs(left - right) <= 1e-12 * (double)f.n[0]);
        operands_release(&f);
        operands_release(&b);
    }
}

static void nothing_a_plan_may_choose_moves_a_bit_of_rope(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(rope_shapes); s++)
        for (int which = 0; which < 4; which++) {
            vp_kernel kernel = which & 1 ? VP_K_ROPE_BWD : VP_K_ROPE_FWD;
            vp_dtype  dtype  = which & 2 ? VP_DTYPE_BF16 : VP_DTYPE_F32;
            operands  one    = rope_operands(s, kernel, dtype, 0);

            vp_backend_cpu()->set_threads(1);
            run(&one.call);
            for (int way = 0; way < 6; way++) {
                operands other = rope_operands(s, kernel, dtype, way == 5 ? 3 : 0);

                vp_backend_cpu()->set_threads(way == 0 ? 4 : 2);
                if (way == 1 || way == 2)
                    vp_cpu_isa_limit(way == 1 ? VP_CPU_BASELINE : VP_CPU_AVX2);
                if (way == 3) /* in place */
                    other.call.operand[2] = other.call.operand[0];
                if (way == 4) /* a sample after the other */
                    for (int64_t b = 0; b < other.call.ints[0]; b++) {
                        vp_kernel_call part = other.call;
                        int64_t        bytes = (int64_t)other.place[0].bytes / other.call.ints[0];

                        part.ints[0]    = 1;
                        part.operand[0] = (char *)part.operand[0] + b * bytes;
                        part.operand[2] = (char *)part.operand[2] + b * bytes;
                        run(&part);
                    }
                else
                    run(&other.call);
                vp_cpu_isa_limit(VP_CPU_AVX512);
                if (memcmp(one.call.operand[2], other.call.operand[2], one.place[2].bytes) != 0)
                    fail_msg("rope shape %d, kernel and dtype %d: bits differ in way %d", s, which, way);
                operands_release(&other);
            }
            operands_release(&one);
        }
    vp_backend_cpu()->set_threads(2);
}

static int say_worst(void **state)
{
    (void)state;
    print_message("worst error over tolerance: fp32 forward %.2f backward %.2f, bf16 forward %.2f backward %.2f\n",
                  worst[0][0], worst[0][1], worst[1][0], worst[1][1]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees_with_the_reference),
        cmocka_unit_test(masks_layouts_and_extras_agree_with_the_reference),
        cmocka_unit_test(long_windows_and_lengths_agree_with_the_reference),
        cmocka_unit_test(attention_bears_scores_far_from_zero),
        cmocka_unit_test(a_query_sees_the_keys_the_table_says),
        cmocka_unit_test(keys_beyond_the_length_are_not_read),
        cmocka_unit_test(a_cap_bounds_the_scores),
        cmocka_unit_test(attention_drops_its_share_of_probabilities),
        cmocka_unit_test(reference_gradients_are_the_forwards_slopes),
        cmocka_unit_test_teardown(threads_move_no_bit, all_instructions),
        cmocka_unit_test_teardown(place_and_repetition_move_no_bit, all_instructions),
        cmocka_unit_test_teardown(the_instruction_set_of_our_loops_moves_no_bit, all_instructions),
        cmocka_unit_test_teardown(chunks_of_samples_move_no_bit, all_instructions),
        cmocka_unit_test(keeping_the_attention_matrix_moves_no_bit),
        cmocka_unit_test(rope_agrees_with_the_reference),
        cmocka_unit_test(a_quarter_turn_swaps_the_halves),
        cmocka_unit_test(reference_rope_backward_is_the_transpose_of_forward),
        cmocka_unit_test(nothing_a_plan_may_choose_moves_a_bit_of_rope),
    };
    return cmocka_run_group_tests(tests, NULL, say_worst);
}
