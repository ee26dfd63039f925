/* bf16 products: every class of kernels against float64, and what the header says about bits.
 * Operands end (or begin) where the mapped memory does, and gaps between their rows are NaN, so
 * that reading anything else shows. */
#include "tests/base_test.h"

#include "kernels/backend.h"
#include "kernels/cpu/bf16_span.h"
#include "kernels/cpu/gemm_bf16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* ---- memory that ends where it ends ---- */

typedef struct guarded {
    char  *map;
    size_t map_bytes;
    void  *p;
} guarded;

/* bytes between two pages without access: up to the second, or from the first on. */
static guarded guarded_new(size_t bytes, bool to_the_end)
{
    size_t  page = (size_t)sysconf(_SC_PAGESIZE), inside = (bytes + page - 1) / page * page;
    guarded g = {.map_bytes = inside + 2 * page};

    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(g.map + page + inside, page, PROT_NONE), 0);
    g.p = g.map + page + (to_the_end ? inside - bytes : 0);
    return g;
}

static void guarded_release(guarded *g)
{
    munmap(g->map, g->map_bytes);
}

/* ---- a problem and its answer ---- */

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint16_t random_bf16(void) /* in (-1, 1) */
{
    return vp_bf16_from_f32((float)((double)(random_bits() >> 11) * 0x1p-52 - 1.0));
}

typedef struct problem {
    int64_t   m, n, k;
    uint16_t *a, *b, *bias; /* a[m][k], b[k][n] */
    float    *start;        /* what C holds before: bf16 values */
    double   *sum, *size;   /* A B, and |A| |B|, in float64: products of bf16 are exact there */
} problem;

static problem problem_new(int64_t m, int64_t n, int64_t k, bool with_answer)
{
    problem p = {.m = m, .n = n, .k = k};

    p.a     = calloc((size_t)(m * k + 1), sizeof *p.a);
    p.b     = calloc((size_t)(k * n + 1), sizeof *p.b);
    p.bias  = calloc((size_t)n, sizeof *p.bias);
    p.start = calloc((size_t)(m * n), sizeof *p.start);
    assert_true(p.a && p.b && p.bias && p.start);
    for (int64_t i = 0; i < m * k; i++)
        p.a[i] = random_bf16();
    for (int64_t i = 0; i < k * n; i++)
        p.b[i] = random_bf16();
    for (int64_t i = 0; i < n; i++)
        p.bias[i] = random_bf16();
    for (int64_t i = 0; i < m * n; i++)
        p.start[i] = vp_bf16_to_f32(random_bf16());
    if (!with_answer)
        return p;
    p.sum  = calloc((size_t)(m * n), sizeof *p.sum);
    p.size = calloc((size_t)(m * n), sizeof *p.size);
    assert_true(p.sum && p.size);
    for (int64_t r = 0; r < m; r++)
        for (int64_t i = 0; i < k; i++) {
            double x = (double)vp_bf16_to_f32(p.a[r * k + i]);
            for (int64_t c = 0; c < n; c++) {
                double product = x * (double)vp_bf16_to_f32(p.b[i * n + c]);
                p.sum[r * n + c] += product;
                p.size[r * n + c] += fabs(product);
            }
        }
    return p;
}

static void problem_release(problem *p)
{
    free(p->a);
    free(p->b);
    free(p->bias);
    free(p->start);
    free(p->sum);
    free(p->size);
}

/* How a call stores its operands, and what it starts from. */
typedef struct form {
    bool    a_transposed, b_transposed, c_f32, add, bias;
    int64_t gap; /* of every ld beyond its row */
    /* operands end at the end of mapped memory; else they begin at its beginning */
    bool to_the_end;
    bool alone; /* vp_cpu_gemm_bf16_call() */
} form;

/* rows x cols of bf16, transposed or not, in memory of its own. */
static guarded store_bf16(const uint16_t *x, int64_t rows, int64_t cols, bool transposed,
                          const form *f, int64_t *ld)
{
    int64_t   n_stored = transposed ? cols : rows, width = transposed ? rows : cols;
    guarded   g;
    uint16_t *to;

    *ld = width + f->gap;
    g = guarded_new(n_stored * width == 0 ? 0 : (size_t)((n_stored - 1) * *ld + width) * sizeof *to,
                    f->to_the_end);
    to = g.p;
    for (int64_t r = 0; r < n_stored && width > 0; r++)
        for (int64_t c = 0; c < (r + 1 < n_stored ? *ld : width); c++)
            to[r * *ld + c] = c >= width ? 0x7fc1 : transposed ? x[c * cols + r] : x[r * cols + c];
    return g;
}

/* The product into c[m][n], as floats whatever C is. Calls of at most rows_at_once rows (0:
 * all), and of k_at_once of k (0: all), the later ones adding. */
static void product(const problem *p, const form *f, int64_t rows_at_once, int64_t k_at_once,
                    float *c)
{
    int64_t      lda, ldb, ldc = p->n + f->gap, element = f->c_f32 ? 4 : 2;
    guarded      a     = store_bf16(p->a, p->m, p->k, f->a_transposed, f, &lda);
    guarded      b     = store_bf16(p->b, p->k, p->n, f->b_transposed, f, &ldb);
    guarded      bias  = guarded_new((size_t)p->n * sizeof *p->bias, f->to_the_end);
    size_t       bytes = (size_t)(((p->m - 1) * ldc + p->n) * element);
    guarded      out   = guarded_new(bytes, f->to_the_end);
    uint16_t    *out_b = out.p;
    float       *out_f = out.p;
    vp_gemm_bf16 g     = {
            .n            = p->n,
            .lda          = lda,
            .a_transposed = f->a_transposed,
            .ldb          = ldb,
            .b_transposed = f->b_transposed,
            .ldc          = ldc,
            .c_f32        = f->c_f32,
    };

    memcpy(bias.p, p->bias, (size_t)p->n * sizeof *p->bias);
    memset(out.p, 0xff, bytes); /* NaN in either type */
    for (int64_t r = 0; r < p->m && f->add; r++)
        for (int64_t i = 0; i < p->n; i++) {
            if (f->c_f32)
                out_f[r * ldc + i] = p->start[r * p->n + i];
            else
                out_b[r * ldc + i] = vp_bf16_from_f32(p->start[r * p->n + i]);
        }
    if (rows_at_once == 0)
        rows_at_once = p->m;
    if (k_at_once == 0)
        k_at_once = p->k + 1;
    for (int64_t row = 0; row < p->m; row += rows_at_once)
        for (int64_t k = 0; k == 0 || k < p->k; k += k_at_once) {
            g.m   = p->m - row < rows_at_once ? p->m - row : rows_at_once;
            g.k   = p->k - k < k_at_once ? p->k - k : k_at_once;
            g.a   = (uint16_t *)a.p + (f->a_transposed ? k * lda + row : row * lda + k);
            g.b   = (uint16_t *)b.p + (f->b_transposed ? k : k * ldb);
            g.c   = (char *)out.p + row * ldc * element;
            g.add = f->add || k > 0;
            (f->alone ? vp_cpu_gemm_bf16_call : vp_cpu_gemm_bf16)(&g, f->bias && k == 0 ? bias.p
                                                                                        : NULL);
        }
    for (int64_t r = 0; r < p->m; r++)
        for (int64_t i = 0; i < (r + 1 < p->m ? ldc : p->n); i++) {
            float x = f->c_f32 ? out_f[r * ldc + i] : vp_bf16_to_f32(out_b[r * ldc + i]);

            if (i < p->n)
                c[r * p->n + i] = x;
            else if (f->c_f32 ? !isnan(x) : out_b[r * ldc + i] != 0xffff)
                fail_msg("wrote beyond row %lld of C", (long long)r);
        }
    guarded_release(&a);
    guarded_release(&b);
    guarded_release(&bias);
    guarded_release(&out);
}

/* Every class this machine has, one after the other. */
static bool use_class(vp_gemm_bf16_isa isa)
{
    return vp_cpu_gemm_bf16_limit(isa) == isa;
}

/* ---- against float64 ---- */

/* Between an element's float64 sum and its fp32 one lie at most two roundings for each of k,
 * wherever a class puts them, and one for what it starts from. Each is of a number no larger than
 * size = |start| + |A| |B|, grown by the roundings before it (k < 2^12: by less than 1/1000), and
 * moves it by 2^-24 of itself at most:
 *
 *     |error| <= 1.001 (2 k + 1) 2^-24 size,    and for a bf16 C then 2^-8 |result| more
 *
 * for half a step of its 8 bits. Denormals taken for zeros are below 2^-126, and there are none
 * here. */
static void check_against_float64(const problem *p, const form *f, float *c)
{
    product(p, f, 0, 0, c);
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double start = f->add    ? (double)p->start[i]
                       : f->bias ? (double)vp_bf16_to_f32(p->bias[i % p->n])
                                 : 0.0;
        double want  = start + p->sum[i],
               error = 1.001 * (2.0 * (double)p->k + 1) * 0x1p-24 * (fabs(start) + p->size[i]);

        if (!f->c_f32)
            error += 0x1p-8 * (fabs(want) + error);
        if (!(fabs((double)c[i] - want) <= error))
            fail_msg(
                "%s: %lld x %lld x %lld, A%s B%s, C %s%s%s, gap %lld, [%lld][%lld]: %.9g, float64 %.9g, may be %.3g off",
                vp_cpu_gemm_bf16_class(), (long long)p->m, (long long)p->n, (long long)p->k,
                f->a_transposed ? "'" : "", f->b_transposed ? "'" : "", f->c_f32 ? "fp32" : "bf16",
                f->add ? " added" : "", f->bias ? " with bias" : "", (long long)f->gap,
                (long long)(i / p->n), (long long)(i % p->n), (double)c[i], want, error);
    }
}

/* C, add and bias of a case; every problem meets some, every storage order meets all. */
static const form outputs[] = {
    {.c_f32 = true},
    {.add = true},
    {.bias = true, .gap = 3},
    {.c_f32 = true, .add = true, .gap = 5},
    {.c_f32 = true, .bias = true},
    {.gap = 1},
};

static void every_class_is_close_to_float64(void **state)
{
    static const int64_t sizes[] = {1, 3, 17, 40, 131, 255, 257};
    int                  turn    = 0;

    (void)state;
    vp_backend_cpu()->set_threads(2);
    for (int m = 0; m < COUNT(sizes); m++)
        for (int n = 0; n < COUNT(sizes); n++)
            for (int k = 0; k < COUNT(sizes); k++) {
                problem p = problem_new(sizes[m], sizes[n], sizes[k], true);
                float  *c = malloc((size_t)(p.m * p.n) * sizeof *c);

                assert_non_null(c);
                for (int stored = 0; stored < 4; stored++, turn++) {
                    form f = outputs[turn % COUNT(outputs)];

                    f.a_transposed = stored & 1;
                    f.b_transposed = stored & 2;
                    f.to_the_end   = turn / COUNT(outputs) % 3 > 0;
                    /* waking threads takes longer than these products */
                    f.alone = turn % 5 > 0;
                    for (vp_gemm_bf16_isa isa = VP_GEMM_BF16_BASELINE; isa <= VP_GEMM_BF16_AMX;
                         isa++)
                        if (use_class(isa))
                            check_against_float64(&p, &f, c);
                }
                free(c);
                problem_release(&p);
            }
}

/* k beyond a block of all of it; several blocks; a k that is one unit more than a strip's piece. */
static void large_products_are_close_to_float64(void **state)
{
    static const int64_t shapes[][3] = {
        {530, 40, 4700}, {40, 430, 4513}, {35, 1100, 544}, {1100, 40, 288}};

    (void)state;
    vp_backend_cpu()->set_threads(3);
    for (int i = 0; i < COUNT(shapes); i++) {
        problem p = problem_new(shapes[i][0], shapes[i][1], shapes[i][2], true);
        float  *c = malloc((size_t)(p.m * p.n) * sizeof *c);

        assert_non_null(c);
        for (int stored = 0; stored < 4; stored++) {
            form f = outputs[(i + stored) % COUNT(outputs)];

            f.a_transposed = stored & 1;
            f.b_transposed = stored & 2;
            f.to_the_end   = true;
            for (vp_gemm_bf16_isa isa = VP_GEMM_BF16_AVX2; isa <= VP_GEMM_BF16_AMX; isa++)
                if (use_class(isa))
                    check_against_float64(&p, &f, c);
            if (stored == i && use_class(VP_GEMM_BF16_BASELINE))
                check_against_float64(&p, &f, c);
        }
        free(c);
        problem_release(&p);
    }
}

/* ---- bits ---- */

typedef struct bits {
    problem p;
    float  *one, *other;
} bits;

static bits bits_new(int64_t m, int64_t n, int64_t k)
{
    bits b = {.p = problem_new(m, n, k, false)};

    b.one   = malloc((size_t)(m * n) * sizeof *b.one);
    b.other = malloc((size_t)(m * n) * sizeof *b.other);
    assert_true(b.one && b.other);
    return b;
}

static void bits_release(bits *b)
{
    free(b->one);
    free(b->other);
    problem_release(&b->p);
}

static void expect_same(const bits *b, const char *how, int64_t with)
{
    for (int64_t i = 0; i < b->p.m * b->p.n; i++)
        if (memcmp(b->one + i, b->other + i, sizeof *b->one) != 0)
            fail_msg("%s: %lld x %lld x %lld, %s %lld moves [%lld][%lld] from %.9g to %.9g",
                     vp_cpu_gemm_bf16_class(), (long long)b->p.m, (long long)b->p.n,
                     (long long)b->p.k, how, (long long)with, (long long)(i / b->p.n),
                     (long long)(i % b->p.n), (double)b->one[i], (double)b->other[i]);
}

/* The last is longer than a block of all of k. */
static const int64_t bit_shapes[][3] = {
    {515, 131, 544}, {300, 1001, 40}, {257, 1, 769}, {1, 700, 203}, {540, 20, 4608}};

static void for_every_class(const form *f, void (*check)(bits *b, const form *f))
{
    for (int i = 0; i < COUNT(bit_shapes); i++) {
        bits b = bits_new(bit_shapes[i][0], bit_shapes[i][1], bit_shapes[i][2]);

        for (vp_gemm_bf16_isa isa = VP_GEMM_BF16_BASELINE; isa <= VP_GEMM_BF16_AMX; isa++)
            if (use_class(isa)) {
                vp_backend_cpu()->set_threads(1);
                product(&b.p, f, 0, 0, b.one);
                check(&b, f);
            }
        bits_release(&b);
    }
}

static void check_threads(bits *b, const form *f)
{
    static const int n_threads[] = {2, 3, 5};

    for (int i = 0; i < COUNT(n_threads); i++) {
        vp_backend_cpu()->set_threads(n_threads[i]);
        product(&b->p, f, 0, 0, b->other);
        expect_same(b, "threads", n_threads[i]);
    }
    form alone  = *f;
    alone.alone = true;
    product(&b->p, &alone, 0, 0, b->other);
    expect_same(b, "alone with threads", vp_backend_cpu()->threads());
}

static void threads_move_no_bit(void **state)
{
    (void)state;
    for_every_class(&(form){.bias = true}, check_threads);
    for_every_class(&(form){.a_transposed = true, .c_f32 = true, .add = true}, check_threads);
}

static void check_rows(bits *b, const form *f)
{
    static const int64_t rows[] = {512, 256, 101};

    vp_backend_cpu()->set_threads(2);
    for (int i = 0; i < COUNT(rows); i++) {
        product(&b->p, f, rows[i], 0, b->other);
        expect_same(b, "rows at once", rows[i]);
    }
}

static void cutting_rows_anywhere_moves_no_bit(void **state)
{
    (void)state;
    for_every_class(&(form){.bias = true}, check_rows);
    for_every_class(&(form){.b_transposed = true, .add = true}, check_rows);
}

static void check_tokens(bits *b, const form *f)
{
    static const int64_t k[] = {256, 512, 1024, 224};

    vp_backend_cpu()->set_threads(2);
    for (int i = 0; i < COUNT(k); i++) {
        product(&b->p, f, 0, k[i], b->other);
        expect_same(b, "tokens at once", k[i]);
    }
}

static void cutting_a_weight_gradient_at_whole_tiles_moves_no_bit(void **state)
{
    (void)state;
    for_every_class(&(form){.a_transposed = true, .c_f32 = true}, check_tokens);
    for_every_class(&(form){.a_transposed = true, .c_f32 = true, .add = true}, check_tokens);
    for_every_class(&(form){.b_transposed = true, .c_f32 = true, .bias = true}, check_tokens);
}

static void check_storage(bits *b, const form *f)
{
    vp_backend_cpu()->set_threads(2);
    for (int stored = 0; stored < 4; stored++)
        for (int64_t gap = 0; gap < 3; gap++) {
            form other         = *f;
            other.a_transposed = stored & 1;
            other.b_transposed = stored & 2;
            other.gap          = gap;
            other.to_the_end   = gap == 1;
            product(&b->p, &other, 0, 0, b->other);
            expect_same(b, "storage order and gap", stored * 10 + gap);
        }
}

static void storage_order_strides_and_alignment_move_no_bit(void **state)
{
    (void)state;
    for_every_class(&(form){.bias = true}, check_storage);
    for_every_class(&(form){.c_f32 = true, .add = true}, check_storage);
}

static void check_rounded_once(bits *b, const form *f)
{
    static const form forms[] = {{.gap = 0}, {.bias = true}, {.add = true, .a_transposed = true}};
    const int64_t     n_elements = b->p.m * b->p.n;
    float            *sum        = malloc((size_t)n_elements * sizeof *sum);

    (void)f;
    assert_non_null(sum);
    memcpy(sum, b->one, (size_t)n_elements * sizeof *sum);
    vp_backend_cpu()->set_threads(2);
    for (int i = 0; i < COUNT(forms); i++) {
        for (int64_t e = 0; e < n_elements; e++) { /* the fp32 sum, and the scalar function */
            float more = forms[i].bias  ? vp_bf16_to_f32(b->p.bias[e % b->p.n])
                         : forms[i].add ? b->p.start[e]
                                        : 0.0f;
            b->one[e]  = vp_bf16_to_f32(vp_bf16_from_f32(sum[e] + more));
        }
        product(&b->p, &forms[i], 0, 0, b->other);
        expect_same(b, "a bf16 C, case", i);
    }
    free(sum);
}

static void a_bf16_result_is_the_fp32_sum_and_more_rounded_once(void **state)
{
    (void)state;
    for_every_class(&(form){.c_f32 = true}, check_rounded_once);
}

static void avx2_and_avx512_give_the_same_bits(void **state)
{
    bits b = bits_new(131, 257, 700);

    (void)state;
    if (use_class(VP_GEMM_BF16_AVX2)) {
        product(&b.p, &(form){.c_f32 = true}, 0, 0, b.one);
        if (use_class(VP_GEMM_BF16_AVX512)) {
            product(&b.p, &(form){.c_f32 = true}, 0, 0, b.other);
            expect_same(&b, "AVX-512", 0);
        }
    }
    bits_release(&b);
}

/* ---- what is not a number, or not there ---- */

static void nan_and_infinity_stay_in_their_row_and_column(void **state)
{
    enum { M = 40, N = 35, K = 70 };

    (void)state;
    for (vp_gemm_bf16_isa isa = VP_GEMM_BF16_BASELINE; isa <= VP_GEMM_BF16_AMX; isa++)
        for (int stored = 0; stored < 4; stored++) {
            bits b = bits_new(M, N, K);
            form f = {.a_transposed = stored & 1, .b_transposed = stored & 2};

            if (use_class(isa)) {
                for (int i = 0; i < M; i++)
                    b.p.a[i * K + 69] = 0x3f80; /* 1: infinity times it is infinity */
                b.p.a[33 * K + 3]  = 0x7f81;    /* a signalling NaN in row 33 */
                b.p.b[69 * N + 34] = 0xff80;    /* -infinity in column 34 */
                product(&b.p, &f, 0, 0, b.one);
                for (int r = 0; r < M; r++)
                    for (int c = 0; c < N; c++) {
                        float x = b.one[r * N + c];
                        if (r == 33 ? !isnan(x) : c == 34 ? !(isinf(x) && x < 0) : !isfinite(x))
                            fail_msg("%s: [%d][%d] is %g", vp_cpu_gemm_bf16_class(), r, c,
                                     (double)x);
                    }
            }
            bits_release(&b);
        }
}

static void an_empty_sum_is_the_bias_or_zero_or_what_was_there(void **state)
{
    static const form forms[] = {
        {.c_f32 = true},
        {.bias = true},
        {.c_f32 = true, .bias = true},
        {.add = true},
        {.c_f32 = true, .add = true},
        {.gap = 2},
    };
    bits b = bits_new(37, 33, 0);

    (void)state;
    for (int i = 0; i < COUNT(forms); i++) {
        product(&b.p, &forms[i], 0, 0, b.one);
        for (int64_t e = 0; e < 37 * 33; e++)
            b.other[e] = forms[i].add    ? b.p.start[e]
                         : forms[i].bias ? vp_bf16_to_f32(b.p.bias[e % 33])
                                         : 0.0f;
        expect_same(&b, "an empty sum, case", i);
    }
    bits_release(&b);
}

static void no_rows_and_no_columns_touch_nothing(void **state)
{
    vp_gemm_bf16 g = {.m = 0, .n = 5, .k = 7};

    (void)state;
    vp_cpu_gemm_bf16(&g, NULL);
    g = (vp_gemm_bf16){.m = 5, .n = 0, .k = 7};
    vp_cpu_gemm_bf16_call(&g, NULL);
}

static void the_class_has_a_name(void **state)
{
    static const char *const names[] = {"baseline", "AVX2+FMA", "AVX-512", "AVX512-BF16",
                                        "AMX-BF16"};

    (void)state;
    for (vp_gemm_bf16_isa isa = VP_GEMM_BF16_BASELINE; isa <= VP_GEMM_BF16_AMX; isa++) {
        if (use_class(isa))
            assert_string_equal(vp_cpu_gemm_bf16_class(), names[isa]);
        else
            printf("not on this machine, so not tested: %s\n", names[isa]);
    }
}

/* ---- conversions ---- */

VP_PER_ISA(widen, (const uint16_t *x, float *y, int64_t n), (x, y, n))
{
    vp_bf16_widen(x, y, n);
}

VP_PER_ISA(to_nearest, (const float *x, uint16_t *y, int64_t n), (x, y, n))
{
    vp_bf16_round(x, y, n);
}

VP_PER_ISA(stochastic, (const float *x, const uint16_t *random, uint16_t *y, int64_t n),
           (x, random, y, n))
{
    vp_bf16_round_stochastic(x, random, y, n);
}

static float float_of(uint32_t x)
{
    float y;

    memcpy(&y, &x, sizeof y);
    return y;
}

/* What rounding must give, from distances: the neighbours are the bits cut off and the next bf16
 * away from zero, which for the greatest is where infinity stands, 2^128. */
static uint16_t nearest(uint32_t x)
{
    uint16_t below = (uint16_t)(x >> 16), above = (uint16_t)(below + 1);
    double   v = fabs((double)float_of(x)), low = fabs((double)vp_bf16_to_f32(below));
    double   high = (above & 0x7fff) == 0x7f80 ? 0x1p128 : fabs((double)vp_bf16_to_f32(above));

    if (v - low == high - v)
        return below % 2 == 0 ? below : above;
    return v - low < high - v ? below : above;
}

static void rounding_is_to_nearest_even_for_every_upper_half(void **state)
{
    static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};

    (void)state;
    for (vp_cpu_isa isa = VP_CPU_BASELINE; isa <= VP_CPU_AVX512; isa++) {
        vp_cpu_isa_limit(isa);
        for (uint32_t upper = 0; upper < 0x10000; upper++) {
            float    x[COUNT(lower)], wide;
            uint16_t y[COUNT(lower)], half = (uint16_t)upper;

            for (int i = 0; i < COUNT(lower); i++)
                x[i] = float_of(upper << 16 | lower[i]);
            to_nearest(x, y, COUNT(lower));
            widen(&half, &wide, 1);
            assert_memory_equal(&wide, &x[0], sizeof wide);
            for (int i = 0; i < COUNT(lower); i++) {
                uint32_t bits_of_x = upper << 16 | lower[i];

                if (isnan(x[i])) /* quiet, its sign and payload kept */
                    assert_int_equal(y[i], upper | 0x40);
                else if (isinf(x[i]))
                    assert_int_equal(y[i], upper);
                else if (y[i] != nearest(bits_of_x))
                    fail_msg("%08x rounds to %04x, not %04x", bits_of_x, nearest(bits_of_x), y[i]);
            }
        }
    }
    vp_cpu_isa_limit(VP_CPU_AVX512);
}

/* Of the 65536 random numbers, as many as the value of what is cut off must round away from
 * zero. */
static void stochastic_rounding_goes_up_as_often_as_it_should(void **state)
{
    enum { N = 0x10000 };
    static const uint32_t values[] = {0x3f800000, 0x3f800001, 0x3f808000, 0xbf81ffff, 0x00000003,
                                      0x00008000, 0x7f7f4000, 0xff7fffff, 0x7f800000, 0xff800000,
                                      0x7f800001, 0x7fffffff, 0x80000000};
    float                *x        = malloc(N * sizeof *x);
    uint16_t             *random = malloc(N * sizeof *random), *y = malloc(N * sizeof *y);

    (void)state;
    assert_true(x && random && y);
    for (vp_cpu_isa isa = VP_CPU_BASELINE; isa <= VP_CPU_AVX512; isa++)
        for (int v = 0; v < COUNT(values); v++) {
            uint16_t upper = (uint16_t)(values[v] >> 16);
            int      n_up  = 0;

            vp_cpu_isa_limit(isa);
            for (int i = 0; i < N; i++) {
                x[i]      = float_of(values[v]);
                random[i] = (uint16_t)i;
            }
            stochastic(x, random, y, N);
            for (int i = 0; i < N; i++) {
                if (isnan(x[i]))
                    assert_int_equal(y[i], upper | 0x40);
                else if (isinf(x[i]))
                    assert_int_equal(y[i], upper);
                else
                    assert_true(y[i] == upper || y[i] == upper + 1);
                n_up += y[i] != upper;
            }
            if (isfinite(x[0]))
                assert_int_equal(n_up, values[v] & 0xffff);
        }
    vp_cpu_isa_limit(VP_CPU_AVX512);
    free(x);
    free(random);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_class_has_a_name),
        cmocka_unit_test(rounding_is_to_nearest_even_for_every_upper_half),
        cmocka_unit_test(stochastic_rounding_goes_up_as_often_as_it_should),
        cmocka_unit_test(every_class_is_close_to_float64),
        cmocka_unit_test(large_products_are_close_to_float64),
        cmocka_unit_test(threads_move_no_bit),
        cmocka_unit_test(cutting_rows_anywhere_moves_no_bit),
        cmocka_unit_test(cutting_a_weight_gradient_at_whole_tiles_moves_no_bit),
        cmocka_unit_test(storage_order_strides_and_alignment_move_no_bit),
        cmocka_unit_test(a_bf16_result_is_the_fp32_sum_and_more_rounded_once),
        cmocka_unit_test(avx2_and_avx512_give_the_same_bits),
        cmocka_unit_test(nan_and_infinity_stay_in_their_row_and_column),
        cmocka_unit_test(an_empty_sum_is_the_bias_or_zero_or_what_was_there),
        cmocka_unit_test(no_rows_and_no_columns_touch_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
