/* Attention: against float64, against finite differences, to the bit, and inside its operands. */
#include "tests/operands_test.h"

#include "kernels/cpu/gemm_bf16.h"

/* of attention_fwd */
enum {
    Q       = VP_ATTENTION_FWD_Q,
    K       = VP_ATTENTION_FWD_K,
    V       = VP_ATTENTION_FWD_V,
    LENGTHS = VP_ATTENTION_FWD_LENGTHS,
    Y       = VP_ATTENTION_FWD_Y,
    LSE     = VP_ATTENTION_FWD_LSE,
    PROBS   = VP_ATTENTION_FWD_PROBS
};
/* of attention_bwd */
enum {
    B_DY      = VP_ATTENTION_BWD_DY,
    B_Q       = VP_ATTENTION_BWD_Q,
    B_K       = VP_ATTENTION_BWD_K,
    B_V       = VP_ATTENTION_BWD_V,
    B_LENGTHS = VP_ATTENTION_BWD_LENGTHS,
    B_Y       = VP_ATTENTION_BWD_Y,
    B_LSE     = VP_ATTENTION_BWD_LSE,
    B_PROBS   = VP_ATTENTION_BWD_PROBS,
    B_DQ      = VP_ATTENTION_BWD_DQ,
    B_DK      = VP_ATTENTION_BWD_DK,
    B_DV      = VP_ATTENTION_BWD_DV
};

/* Where backward has an operand of forward. */
static int in_backward(int forward)
{
    return vp_kernel_operand(VP_K_ATTENTION_BWD,
                             vp_kernel_info_of(VP_K_ATTENTION_FWD)->operands[forward].name);
}

/* ---- attention ---- */

typedef struct attention {
    VP_NAMED_INTS;
    double   scale, p, softcap; /* scale 0: 1 / sqrt(head_dim) */
    bool     lengths;           /* of the samples: 2/3 of seq, 0, seq, 1 */
    vp_dtype dtype;             /* none: fp32 */
} attention;

static operands attention_operands(const attention *a, vp_kernel kernel, uint64_t seed, int shift)
{
    bool apart = a->attention.layout == VP_QKV_APART, forward = kernel == VP_K_ATTENTION_FWD;
    bool fwd[VP_MAX_OPERANDS] = {
        [K] = apart, [V] = apart, [LENGTHS] = a->lengths, [PROBS] = a->attention.probs != 0};
    bool           bwd[VP_MAX_OPERANDS] = {[B_K]       = apart,
                                           [B_V]       = apart,
                                           [B_LENGTHS] = a->lengths,
                                           [B_PROBS]   = a->attention.probs != 0,
                                           [B_DK]      = apart,
                                           [B_DV]      = apart};
    vp_kernel_call call                 = {
                        .kernel          = kernel,
                        .dtype           = a->dtype ? a->dtype : VP_DTYPE_F32,
                        .attention_reals = {.scale   = a->scale > 0.0 ? a->scale
                                                                      : 1.0 / sqrt((double)a->attention.head_dim),
                                            .p       = a->p,
                                            .softcap = a->softcap},
                        .rng             = {.seed = 7, .step = 2, .op = 5, .first_sample = 3},
    };
    int64_t  seq = a->attention.seq, length[4] = {(2 * seq + 2) / 3, 0, seq, 1};
    bool     plain = a->p == 0.0 && a->softcap == 0.0 && !a->lengths && !a->attention.probs;
    operands o;

    if (!on_cpu() && shift == AT_END && plain && call.dtype != VP_DTYPE_F32)
        shift = 1; /* cuDNN takes operands at multiples of 16 bytes, as those of every plan are */
    memcpy(call.ints, a->ints, sizeof a->ints);
    o = operands_new(&call, forward ? fwd : bwd, seed, shift);
    for (int64_t s = 0; a->lengths && s < a->attention.batch; s++) {
        int i                             = forward ? LENGTHS : B_LENGTHS;
        ((int32_t *)o.call.operand[i])[s] = ((int32_t *)o.reference.operand[i])[s] =
            (int32_t)length[s % 4];
    }
    return o;
}

/* A backward call with the results of its forward on this backend; the reference reads the same
 * y and probs. */
static operands backward_operands(const attention *a, uint64_t seed, int shift)
{
    operands f = attention_operands(a, VP_K_ATTENTION_FWD, seed, 0);
    operands b = attention_operands(a, VP_K_ATTENTION_BWD, seed, shift);

    run(&f.call);
    for (int i = Y; i <= PROBS; i++)
        for (int64_t e = 0; e < f.n[i]; e++)
            set(&b, in_backward(i), e, get(&f, i, e));
    operands_release(&f);
    return b;
}

/* Inputs are uniform in [-1, 1), with variance 1/3. A sum of
 * k products of two such numbers has variance k/9, so partial sums stay near sqrt(k)/3; k
 * roundings of relative size u, as a random walk (Higham and Mary 2019, SIAM J. Sci. Comput.
 * 41(5)), make an error near u sqrt(k) sqrt(k)/3 = u k / 3. 6 times that is allowed. */
static double dot_tolerance(int64_t k)
{
    return 2.0 * u * (double)(k < 8 ? 8 : k);
}

/* Scores are sums of d products; an error of e in a score is a relative error e in a
 * probability, and outputs are means of values of size 1: dot_tolerance(d) carries through with
 * the factors scale <= 1. lse and y add the rounding of exp (1 ulp) and of a sum of seq terms in
 * lanes; a cap c adds 2 u c to a score. Gradients pass two more products and sums of up to seq
 * (times heads per kv head) terms, each smaller than 1 / (1 - p). bf16 differs by one rounding
 * of each result (compare()); backward starts from the rounded y and probs on both sides; and by
 * what splitting P and ds leaves out (attention.c), up to 2^-17 = 128 u of terms whose sizes are
 * P and P times a gradient, with both signs: dot_tolerance() bears that. */
/* What cuDNN's attention adds, where it is the backend's: it rounds P, and in backward ds, to
 * bf16 before it multiplies by them, each element by up to r = 2^-9 of itself. Forward: y = sum
 * P v with sum P = 1 and |v| < 1, so r. Backward: ds = P (dP - D) with dP = dy v' of size
 * sqrt(d) / 3 and scale 1 / sqrt(d): terms of up to 5 / 3 P. Sums over queries of P, near 1 /
 * keys each, are up to 1 + ln seq for the first key of a causal call, for each head of the
 * group; n independent errors of r / sqrt(3) add up to its root. Six of those: 6 r 5/3 / sqrt(3)
 * < 8 r. Where heads share a key its gradient is rounded once for each of them: as much again,
 * less than the root of the group times r. */
static double of_cudnn(const attention *a, const operands *o)
{
    vp_call_shape shape = {.compute_capability = test_backend()->compute_capability,
                           .kernel             = o->call.kernel,
                           .dtype              = o->call.dtype,
                           .ints               = o->call.ints,
                           .reals              = o->call.reals,
                           .lengths            = a->lengths};
    double        group = (double)(a->attention.heads / a->attention.kv_heads);

    if (on_cpu() || vp_cuda_attention_engine(&shape) != VP_ATTENTION_CUDNN)
        return 0.0;
    return o->call.kernel == VP_K_ATTENTION_FWD
               ? 0x1p-9
               : 9.0 * 0x1p-9 * sqrt(group * (1.0 + log((double)a->attention.seq)));
}

/* What factors of 11 digits add, each off by up to r = 2^-11 of itself. Forward: a score, a sum of d
 * products that scale brings back to size 1, by 2 r, so a probability; P and v by r each: 4 r, once more
 * for good measure. Backward: as cuDNN's, with q, k, dy and v beside P and ds: three times the errors. */
static double of_tf32(const attention *a, const operands *o)
{
    double group = (double)(a->attention.heads / a->attention.kv_heads);

    if (o->call.dtype != VP_DTYPE_TF32)
        return 0.0;
    return o->call.kernel == VP_K_ATTENTION_FWD
               ? 0x8p-11 / (1.0 - a->p)
               : 24.0 * 0x1p-11 * sqrt(group * (1.0 + log((double)a->attention.seq))) /
                     (1.0 - a->p);
}

static void check_attention(const attention *a, const char *what)
{
    double   scale = a->scale > 1.0 ? a->scale : 1.0, keep = 1.0 / (1.0 - a->p);
    double   of_scores = dot_tolerance(a->attention.head_dim) * scale + 2.0 * u * a->softcap;
    double   tolerance = (of_scores + dot_tolerance(a->attention.seq) / 4.0) * keep;
    operands f, b;

    if (!call_is_chosen())
        return;
    f = attention_operands(a, VP_K_ATTENTION_FWD, 1, AT_END);
    run_and_keep_inputs(&f);
    vp_reference_run(&f.reference);
    compare(&f, what, tolerance + of_cudnn(a, &f) + of_tf32(a, &f), 16.0 * u);
    operands_release(&f);
    b = backward_operands(a, 1, AT_END);
    run_and_keep_inputs(&b);
    vp_reference_run(&b.reference);
    compare(&b, what,
            4.0 * tolerance * keep * (double)(a->attention.heads / a->attention.kv_heads) +
                of_cudnn(a, &b) + of_tf32(a, &b),
            16.0 * u);
    operands_release(&b);
}

static void all_dtypes(attention a, const char *what)
{
    for (a.dtype = VP_DTYPE_F32; a.dtype <= VP_DTYPE_F16; a.dtype++)
        check_attention(&a, what);
    a.dtype = VP_DTYPE_TF32;
    if (test_backend()->compute_capability >= VP_TF32_CAPABILITY)
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

/* batch, seq, heads, kv_heads, head_dim: one token, around a tile of 64, three kv heads, a head
 * of 40, of 7, of the most. */
static const int64_t attention_shapes[][5] = {
    {1, 1, 1, 1, 1},    {2, 1, 2, 2, 40},   {1, 63, 2, 1, 16}, {1, 64, 1, 1, 64},
    {2, 65, 6, 3, 40},  {1, 130, 3, 3, 24}, {1, 200, 4, 1, 7}, {1, 129, 1, 1, 128},
    {1, 70, 1, 1, 256}, {1, 70, 7, 1, 33},
};

static void attention_agrees_with_the_reference(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(attention_shapes); s++)
        for (int causal = 0; causal < 2; causal++) {
            attention a = {.attention = {.causal = causal}};

            memcpy(a.ints, attention_shapes[s], sizeof attention_shapes[s]); /* batch to head_dim */
            all_dtypes(a, "packed");
            a.p = 0.3;
            all_dtypes(a, "packed with dropout");
            widened(a, "packed with dropout, widened");
            a.p                = 0.0;
            a.attention.layout = VP_QKV_APART;
            all_dtypes(a, "apart");
            widened(a, "apart, widened");
            a.attention.layout   = VP_QKV_PER_HEAD;
            a.attention.kv_heads = a.attention.heads;
            all_dtypes(a, "per head");
        }
}

/* Every way to see keys, with every way to lie, with each of the extras: two samples, one of
 * them of length 0 where there are lengths; 67 tokens are one more than a window and three more
 * than a tile. */
static void masks_layouts_and_extras_agree_with_the_reference(void **state)
{
    static const int64_t windows[] = {0, 1, 5, 66, 500};

    (void)state;
    for (int w = 0; w < COUNT(windows); w++)
        for (int bits = 0; bits < 96; bits++) {
            int       layout = bits % 3;
            attention a      = {
                     .attention = {.batch    = 2,
                                   .seq      = 67,
                                   .heads    = 3,
                                   .kv_heads = layout == VP_QKV_PER_HEAD ? 3 : 1,
                                   .head_dim = 5,
                                   .layout   = layout,
                                   .causal   = bits / 3 & 1,
                                   .window   = windows[w],
                                   .probs    = bits / 6 & 1},
                     .lengths   = (bits / 12 & 1) != 0,
                     .softcap   = bits / 24 & 1 ? 0.4 : 0.0,
                     .p         = bits / 48 & 1 ? 0.3 : 0.0,
            };
            char what[128];

            snprintf(what, sizeof what,
                     "layout %d causal %lld window %lld probs %lld lengths %d softcap %g p %g",
                     layout, (long long)a.attention.causal, (long long)a.attention.window,
                     (long long)a.attention.probs, a.lengths, a.softcap, a.p);
            all_dtypes(a, what);
        }
}

/* Several tiles, so that windows begin and end inside, before and behind them, and whole tiles
 * are skipped. */
static void long_windows_and_lengths_agree_with_the_reference(void **state)
{
    static const int64_t windows[] = {1, 64, 65, 100, 130};

    (void)state;
    for (int w = 0; w < COUNT(windows); w++)
        for (int causal = 0; causal < 2; causal++) {
            attention a = {.attention = {.batch    = 4,
                                         .seq      = 203,
                                         .heads    = 2,
                                         .kv_heads = 1,
                                         .head_dim = 16,
                                         .layout   = VP_QKV_PACKED,
                                         .causal   = causal,
                                         .window   = windows[w],
                                         .probs    = w % 2},
                           .lengths   = true};

            all_dtypes(a, "of 203 tokens");
            widened(a, "of 203 tokens, widened");
        }
}

static void attention_bears_scores_far_from_zero(void **state)
{
    /* scale 200: scores of size 200, probabilities near one-hot; exp of the raw score would
     * overflow. A score's relative error 4u becomes 4u * 200 in a probability and in lse. With a
     * cap of 50 tanh saturates. */
    attention a = {.attention = {.batch    = 1,
                                 .seq      = 150,
                                 .heads    = 2,
                                 .kv_heads = 2,
                                 .head_dim = 32,
                                 .layout   = VP_QKV_PACKED,
                                 .causal   = 1,
                                 .window   = 0,
                                 .probs    = 0},
                   .scale     = 200.0};
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
    /* q = 0: all scores are equal; v one-hot: y[i] is 1 / n at each of the n keys that query i
     * sees. */
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
        attention    a = {.attention = {.batch    = 1,
                                        .seq      = 5,
                                        .heads    = 1,
                                        .kv_heads = 1,
                                        .head_dim = 5,
                                        .layout   = VP_QKV_APART,
                                        .causal   = table[t].causal,
                                        .window   = table[t].window,
                                        .probs    = 1},
                          .lengths   = true};
        operands     f = attention_operands(&a, VP_K_ATTENTION_FWD, 1, 0), b;
        const float *y = f.call.operand[Y], *lse = f.call.operand[LSE],
                    *probs = f.call.operand[PROBS];

        *(int32_t *)f.call.operand[LENGTHS] = table[t].length;
        for (int e = 0; e < 25; e++) {
            set(&f, Q, e, 0.0);
            set(&f, V, e, e % 6 == 0 ? 1.0 : 0.0);
        }
        run(&f.call);
        b                                     = attention_operands(&a, VP_K_ATTENTION_BWD, 1, 0);
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
        attention a     = {.attention = {.batch    = 4,
                                         .seq      = 150,
                                         .heads    = 2,
                                         .kv_heads = 1,
                                         .head_dim = 8,
                                         .layout   = VP_QKV_APART,
                                         .causal   = causal,
                                         .window   = 0,
                                         .probs    = 0},
                           .lengths   = true};
        operands  plain = backward_operands(&a, 1, 0), poisoned = backward_operands(&a, 1, 0);

        for (int64_t s = 0; s < 4; s++)
            for (int64_t e = (((int32_t *)plain.call.operand[B_LENGTHS])[s] + s * 150) * 8;
                 e < (s + 1) * 150 * 8; e++) {
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
    /* One query, two keys, scores 30 and -30 capped at 2: t = 2 tanh(15) = 2 to 1e-12, so P = 1
     * / (1 + e^-4) = 0.98201379 */
    attention a = {.attention = {.batch    = 1,
                                 .seq      = 2,
                                 .heads    = 1,
                                 .kv_heads = 1,
                                 .head_dim = 1,
                                 .layout   = VP_QKV_APART,
                                 .causal   = 0,
                                 .window   = 0,
                                 .probs    = 1},
                   .scale     = 1.0,
                   .softcap   = 2.0};
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
    /* q = k = 0: uniform probabilities; v one-hot of the key's place mod 64 with 64 keys:
     * y[i][c] is M[i][c] / (i + 1), so y shows the mask itself. */
    enum { S = 64, HEADS = 16 };
    attention a   = {.attention = {.batch    = 1,
                                   .seq      = S,
                                   .heads    = HEADS,
                                   .kv_heads = HEADS,
                                   .head_dim = S,
                                   .layout   = VP_QKV_PACKED,
                                   .causal   = 1,
                                   .window   = 0,
                                   .probs    = 0},
                     .p         = 0.25};
    operands  o   = attention_operands(&a, VP_K_ATTENTION_FWD, 1, 0);
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
    operands f = attention_operands(a, VP_K_ATTENTION_FWD, 3, 0),
             b = attention_operands(a, VP_K_ATTENTION_BWD, 3, 0);

    vp_reference_run(&f.reference);
    for (int i = Y; i <= PROBS; i++)
        if (f.n[i])
            memcpy(b.reference.operand[in_backward(i)], f.reference.operand[i],
                   (size_t)f.n[i] * sizeof(double));
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
                fail_msg(
                    "layout %lld causal %lld window %lld, part %d [%lld]: gradient %.9g, difference %.9g",
                    (long long)a->attention.layout, (long long)a->attention.causal,
                    (long long)a->attention.window, part, (long long)i, gradient[i], difference);
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
        attention a = {
            .attention = {.batch    = 2,
                          .seq      = 5,
                          .heads    = 4,
                          .kv_heads = layout == VP_QKV_PER_HEAD ? 4 : 2,
                          .head_dim = 3,
                          .layout   = layout,
                          .causal   = bits / 9 & 1,
                          .window   = window,
                          .probs    = bits / 18 & 1},
            .scale     = 0.6,
            .p         = bits / 36 & 1 ? 0.4 : 0.0,
            .softcap   = bits / 36 & 1 ? 0.7 : 0.0,
            .lengths   = (bits / 72 & 1) != 0,
        };
        check_slopes(&a);
    }
}

/* ---- bits ---- */

/* Several items, several tiles, odd ends. */
static const attention bit_cases[] = {
    {.attention = {.batch    = 3,
                   .seq      = 203,
                   .heads    = 6,
                   .kv_heads = 3,
                   .head_dim = 40,
                   .layout   = VP_QKV_PACKED,
                   .causal   = 1,
                   .window   = 0,
                   .probs    = 0}},
    {.attention = {.batch    = 3,
                   .seq      = 131,
                   .heads    = 4,
                   .kv_heads = 4,
                   .head_dim = 16,
                   .layout   = VP_QKV_PACKED,
                   .causal   = 1,
                   .window   = 0,
                   .probs    = 0},
     .p         = 0.2},
    {.attention = {.batch    = 1,
                   .seq      = 203,
                   .heads    = 14,
                   .kv_heads = 2,
                   .head_dim = 64,
                   .layout   = VP_QKV_APART,
                   .causal   = 1,
                   .window   = 0,
                   .probs    = 0}},
    {.attention = {.batch    = 4,
                   .seq      = 150,
                   .heads    = 4,
                   .kv_heads = 2,
                   .head_dim = 24,
                   .layout   = VP_QKV_PACKED,
                   .causal   = 0,
                   .window   = 0,
                   .probs    = 0},
     .lengths   = true},
    {.attention = {.batch    = 2,
                   .seq      = 203,
                   .heads    = 4,
                   .kv_heads = 4,
                   .head_dim = 24,
                   .layout   = VP_QKV_PER_HEAD,
                   .causal   = 1,
                   .window   = 70,
                   .probs    = 0},
     .softcap   = 0.5},
    {.attention = {.batch    = 2,
                   .seq      = 203,
                   .heads    = 4,
                   .kv_heads = 2,
                   .head_dim = 24,
                   .layout   = VP_QKV_APART,
                   .causal   = 0,
                   .window   = 70,
                   .probs    = 1},
     .lengths   = true,
     .p         = 0.1},
    {.attention = {.batch    = 1,
                   .seq      = 190,
                   .heads    = 6,
                   .kv_heads = 2,
                   .head_dim = 33,
                   .layout   = VP_QKV_PACKED,
                   .causal   = 1,
                   .window   = 0,
                   .probs    = 1},
     .softcap   = 0.5},
    {.attention = {.batch    = 1,
                   .seq      = 700,
                   .heads    = 2,
                   .kv_heads = 1,
                   .head_dim = 64,
                   .layout   = VP_QKV_PACKED,
                   .causal   = 1,
                   .window   = 0,
                   .probs    = 0}}, /* in bf16 beyond what fits whole */
};

/* Of each case forward and backward; in fp32, in bf16, in bf16 with widened rows: until the next
 * call of this. */
enum { N_BIT_CASES = 6 * COUNT(bit_cases) };

static operands bit_operands(int which, int shift)
{
    attention a    = bit_cases[which / 6];
    int       kind = which % 3;

    a.dtype = kind == 0 ? VP_DTYPE_F32 : VP_DTYPE_BF16;
    vp_cpu_gemm_bf16_limit(kind == 2 ? VP_GEMM_BF16_AVX2 : VP_GEMM_BF16_AMX);
    vp_backend_cpu()->set_threads(2);
    return which / 3 % 2 ? backward_operands(&a, 5, shift)
                         : attention_operands(&a, VP_K_ATTENTION_FWD, 5, shift);
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

    part.attention.batch   = n;
    before.attention.batch = first;
    part.rng.first_sample += first;
    for (int i = 0; i < VP_MAX_OPERANDS && first > 0; i++)
        if (part.operand[i])
            part.operand[i] = (char *)part.operand[i] +
                              vp_kernel_operand_bytes(part.kernel, part.dtype, before.ints, i);
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
        batch = whole.call.attention.batch;

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
        with.attention.probs    = 1;
        without.attention.probs = 0;
        fw                      = attention_operands(&with, VP_K_ATTENTION_FWD, 5, 0);
        fo                      = attention_operands(&without, VP_K_ATTENTION_FWD, 5, 0);
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
    };
    return cmocka_run_group_tests(tests, NULL, say_worst);
}
