/* Optimizers: against float64 and PyTorch, many at once, and bit against bit. */
#include "tests/optimizer_test.h"

/* ---- fp32 against float64 ---- */

/* p, g, m in [-1, 1], v in [0.1, 1.1], lr 0.01, step 3. States: three roundings of terms of size
 * 1. AdamW: |m| / sqrt(v) is at most 1 / sqrt(0.095) = 3.3, m's error counts the same way, both
 * times lr / (1 - 0.9^3) = 0.037: 0.12 of a few u, and p's own two or three roundings: 4 u.
 * Adafactor: the square of a rounded g doubles its error, so a state, a mean of squares of up to
 * 1600, has 2.5 u of itself; u has eight roundings, some 5 u of itself, times lr: less than 1 u. */
static const double elementwise_tolerance = 4.0 * 0x1p-24;

/* Roundings of the elements of X, |X| = 1, are u in norm at most; the iteration raises the
 * smallest singular values by 3.4445^5 = 485, and these with them. Its own sums of l products, l
 * u / 3 as a random walk at most, are as much again at each of five steps: below l u for sums
 * near one. p takes 0.01 * 0.2 sqrt(l) of it, l the longer side. */
static double muon_tolerance(int64_t rows, int64_t cols)
{
    double l = (double)vp_max_i64(rows, cols);
    return 4.0 * u + 0.002 * sqrt(l) * (485.0 + l) * u;
}

static void check_against_float64(const opt_case *c, double tolerance)
{
    const vp_kernel_info *info = vp_kernel_info_of(c->kernel);
    opt_call              o;

    if (!call_is_chosen())
        return;
    o = opt_new(c, 1, 0);
    run(&o.call);
    vp_reference_run(&o.reference);
    for (int i = 0; i < info->n_operands; i++)
        for (int64_t e = 0; o.call.operand[i] && e < o.n[i]; e++) {
            double x, y;
            if (info->operands[i].elem == VP_AS_CONTROL || info->operands[i].access == VP_WRITE)
                continue;
            x = (double)((float *)o.call.operand[i])[e];
            y = ((double *)o.reference.operand[i])[e];
            if (!(fabs(x - y) <= tolerance * (1.0 + fabs(y))))
                fail_msg("%s of %lld x %lld x %lld, %s[%lld]: %.9g, reference %.9g, off by %.3g",
                         info->name, (long long)c->ints[0], (long long)c->ints[1],
                         (long long)c->ints[2], info->operands[i].name, (long long)e, x, y,
                         fabs(x - y));
        }
    opt_release(&o);
}

static void elementwise_optimizers_agree_with_float64(void **state)
{
    int64_t counts[] = {1, 17, 255, 257, 16385};

    (void)state;
    for (int k = 0; k < COUNT(element_updates); k++)
        for (int i = 0; i < COUNT(counts); i++)
            for (int variant = 0; variant < 4; variant++)
                check_against_float64(
                    &(opt_case){.kernel = element_updates[k],
                                .dtype  = VP_DTYPE_F32,
                                .update = {.count = counts[i], .decay = variant & 1},
                                .master = (variant & 2) != 0},
                    elementwise_tolerance);
}

/* rows, cols: one off the 32 rows of a work item, the 256 of a piece, the 128 columns of a sum;
 * wide, high, square, one. */
static void adafactor_agrees_with_float64(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(matrices); s++)
        for (int variant = 0; variant < 8; variant++) {
            /* states in [0.1, 1.1]: rms(u) is near 0.5 with gradients of 0.75 (no clipping), and
             * above 1 with 40 */
            opt_case c = {.kernel     = VP_K_ADAFACTOR,
                          .dtype      = VP_DTYPE_F32,
                          .adafactor  = {.rows     = matrices[s][0],
                                         .cols     = matrices[s][1],
                                         .decay    = variant & 1,
                                         .factored = (variant & 2) != 0},
                          .master     = (variant & 1) != 0,
                          .grad_scale = variant & 4 ? 40.0 : 0.0};
            check_against_float64(&c, elementwise_tolerance);
        }
}

static void muon_agrees_with_float64(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(matrices); s++)
        for (int decay = 0; decay < 2; decay++)
            check_against_float64(
                &(opt_case){
                    .kernel = VP_K_MUON,
                    .dtype  = VP_DTYPE_F32,
                    .muon   = {.rows = matrices[s][0], .cols = matrices[s][1], .decay = decay},
                    .master = decay != 0},
                muon_tolerance(matrices[s][0], matrices[s][1]));
}

static void muon_makes_the_singular_values_near_one(void **state)
{
    /* After the update p = -lr 0.2 sqrt(max) X from p = 0. X X' has its eigenvalues in [0.68^2,
     * 1.21^2] for singular values above 0.01 of the norm: a trace of rows times about 1, and no
     * entry of the diagonal beyond 1.47. */
    enum { ROWS = 20, COLS = 50 };
    opt_case c     = {.kernel = VP_K_MUON,
                      .dtype  = VP_DTYPE_F32,
                      .muon   = {.rows = ROWS, .cols = COLS, .decay = 0}};
    opt_call o     = opt_new(&c, 1, 0);
    float   *p     = o.call.operand[OPT_P];
    double   trace = 0.0;

    (void)state;
    memset(p, 0, (size_t)o.bytes[OPT_P]);
    memset(o.call.operand[VP_MUON_M], 0, (size_t)o.bytes[VP_MUON_M]);
    run(&o.call);
    for (int r = 0; r < ROWS; r++) {
        double square = 0.0;
        for (int i = 0; i < COLS; i++)
            square += pow((double)p[r * COLS + i] / (0.01 * 0.2 * sqrt((double)COLS)), 2.0);
        assert_true(square < 1.47);
        trace += square;
    }
    assert_true(trace > ROWS * 0.46 && trace < ROWS * 1.47);
    opt_release(&o);
}

/* ---- bits ---- */

static const opt_case bit_cases[] = {
    {.kernel = VP_K_ADAMW, .states = {.count = 50003, .decay = 1}},
    {.kernel = VP_K_ADAMW, .states = {.count = 50003, .decay = 1, .state = VP_STATE_BF16}},
    {.kernel = VP_K_ADAMW, .states = {.count = 50003, .decay = 1, .state = VP_STATE_BLOCK8}},
    {.kernel = VP_K_SGD, .update = {.count = 50003, .decay = 1}},
    {.kernel = VP_K_MOMENTUM, .states = {.count = 50003, .decay = 1, .state = VP_STATE_BLOCK8}},
    {.kernel = VP_K_LION, .states = {.count = 50003, .decay = 1, .state = VP_STATE_BF16}},
    {.kernel = VP_K_ADAFACTOR, .adafactor = {.rows = 203, .cols = 301, .decay = 1, .factored = 1}},
    {.kernel = VP_K_ADAFACTOR, .adafactor = {.rows = 1, .cols = 50003, .decay = 1, .factored = 0}},
    {.kernel = VP_K_MUON, .muon = {.rows = 301, .cols = 403, .decay = 1}},
    {.kernel = VP_K_MUON, .muon = {.rows = 523, .cols = 203, .decay = 1}},
};

static void expect_same_bits(const opt_call *a, const opt_call *b, const char *how, int64_t n)
{
    const vp_kernel_info *info = vp_kernel_info_of(a->call.kernel);

    for (int i = 0; i < info->n_operands; i++)
        if (a->call.operand[i] &&
            memcmp(a->call.operand[i], b->call.operand[i], (size_t)a->bytes[i]) != 0)
            fail_msg("%s: %s differs with %s %lld", info->name, info->operands[i].name, how,
                     (long long)n);
}

static void threads_places_and_instruction_sets_move_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(bit_cases); i++)
        for (int form = 0; form < N_FORMS; form++) {
            opt_case c = bit_cases[i];
            opt_call one;

            set_form(&c, form);
            one = opt_new(&c, 4, 0);
            vp_backend_cpu()->set_threads(1);
            run(&one.call);
            for (int n = 2; n <= 4; n++) {
                opt_call many = opt_new(&c, 4, n);

                vp_backend_cpu()->set_threads(n);
                run(&many.call);
                expect_same_bits(&one, &many, "threads and places", n);
                opt_release(&many);
            }
            for (vp_cpu_isa isa = VP_CPU_BASELINE; on_cpu() && isa <= VP_CPU_AVX2; isa++) {
                opt_call less = opt_new(&c, 4, 0);

                vp_cpu_isa_limit(isa);
                run(&less.call);
                vp_cpu_isa_limit(VP_CPU_AVX512);
                expect_same_bits(&one, &less, "instruction set", (int64_t)isa);
                opt_release(&less);
            }
            opt_release(&one);
        }
    vp_backend_cpu()->set_threads(2);
}

/* ---- many parameters, and nobody waits in between: a backend may do some of them at once ---- */

enum { MANY = 140 };

/* Calls for MANY parameters of c's form, their operands one behind the other in one block, made
 * in order; each waited for, or all at the end. Every 17th is made twice: the second finds what
 * the first left. Returns the block's bytes, for the caller to free. */
static char *update_many(const opt_case *c, bool one_by_one, int64_t *n_bytes)
{
    const vp_backend *backend = test_backend();
    /* a block of 8-bit states: 256; of threads: 2048 elements */
    int64_t sizes[] = {1, 3, 4, 5, 255, 256, 257, 512, 1023, 2049, 4101};
    int64_t offsets[MANY][VP_MAX_OPERANDS], end = vp_round_up((int64_t)sizeof(vp_control), 64),
                                            next;
    vp_kernel_call calls[MANY];
    vp_err         err     = {0};
    char          *image   = NULL, *arena;
    int            control = vp_kernel_operand(c->kernel, "control");

    for (int i = 0; i < MANY; i++) {
        opt_case form = *c;
        opt_call o;
        uint64_t which = (uint64_t)(i + 1) * 2654435761u >> 7;

        form.update.count = i == 70 ? 40003 : sizes[which % (uint64_t)COUNT(sizes)];
        form.update.decay = i % 3 == 0;
        form.master       = c->master && (c->dtype == VP_DTYPE_F16 || i % 4 != 3);
        form.rng.op       = (uint32_t)i;
        o                 = opt_new(&form, (uint64_t)i, 0);
        calls[i]          = o.call;
        for (int k = 0; k < control; k++) {
            /* some are no place for 16 bytes at a time */
            offsets[i][k] = i % 5 == 0 ? end + 4 : end;
            if (!o.call.operand[k])
                continue;
            next  = vp_round_up(offsets[i][k] + o.bytes[k], 64);
            image = realloc(image, (size_t)next);
            assert_non_null(image);
            memset(image + end, 0, (size_t)(next - end));
            end = next;
            memcpy(image + offsets[i][k], o.call.operand[k], (size_t)o.bytes[k]);
        }
        memcpy(image, o.call.operand[control], sizeof(vp_control));
        opt_release(&o);
    }
    CHECK_OK(backend->alloc(end, (void **)&arena, &err));
    CHECK_OK(backend->upload(arena, image, end, &err));
    for (int i = 0; i < MANY; i++) {
        for (int k = 0; k < control; k++)
            calls[i].operand[k] = calls[i].operand[k] ? arena + offsets[i][k] : NULL;
        calls[i].operand[control] = arena;
        for (int n = 0; n < (i % 17 == 16 ? 2 : 1); n++) {
            CHECK_OK(backend->run(&calls[i], &err));
            if (one_by_one)
                CHECK_OK(backend->wait(&err));
        }
    }
    CHECK_OK(backend->download(image, arena, end, &err));
    backend->release(arena, end);
    call_digest(image, end);
    *n_bytes = end;
    return image;
}

static void many_parameters_have_the_bits_of_one_by_one(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT(element_updates); k++)
        for (int kind = VP_STATE_F32; kind <= last_state_kind(element_updates[k]); kind++)
            for (int form = 0; form < N_FORMS; form++) {
                opt_case c = {.kernel = element_updates[k], .states = {.state = kind}};
                int64_t  n_bytes[2];
                char    *bytes[2];

                if (!call_is_chosen())
                    continue;
                set_form(&c, form);
                for (int way = 0; way < 2; way++)
                    bytes[way] = update_many(&c, way != 0, &n_bytes[way]);
                assert_int_equal(n_bytes[0], n_bytes[1]);
                for (int64_t i = 0; i < n_bytes[0]; i++)
                    if (bytes[0][i] != bytes[1][i])
                        fail_msg("%s, state %d, form %d: byte %lld of %lld differs",
                                 vp_kernel_info_of(c.kernel)->name, kind, form, (long long)i,
                                 (long long)n_bytes[0]);
                free(bytes[0]);
                free(bytes[1]);
            }
}

/* ---- the squares of many gradients, and nobody waits in between ---- */

/* The order that kernels/cuda/grad_norm.cu states, on the host. A float's square is exact in a
 * double, so contraction changes nothing. */
static double tree_of_32(double *x)
{
    for (int lanes = 16; lanes > 0; lanes /= 2)
        for (int i = 0; i < lanes; i++)
            x[i] += x[i + lanes];
    return x[0];
}

static double sum_of_threads(double *x, int n_threads)
{
    double warps[32] = {0.0};

    for (int w = 0; w < n_threads / 32; w++)
        warps[w] = tree_of_32(x + 32 * w);
    return tree_of_32(warps);
}

static double ordered_sumsq(const float *g, int64_t count)
{
    int64_t n_pieces       = vp_ceil_div(count, VP_SUMSQ_PIECE);
    double  of_piece[1024] = {0.0}, x[256];

    for (int64_t piece = 0; piece < n_pieces; piece++) {
        int64_t from = piece * VP_SUMSQ_PIECE, end = vp_min_i64(from + VP_SUMSQ_PIECE, count);

        for (int64_t t = 0; t < 256; t++) {
            double sum[4] = {0.0};

            for (int64_t i = from + 4 * t; i < end; i += 1024)
                for (int64_t j = i; j < vp_min_i64(i + 4, end); j++)
                    sum[j - i] += (double)g[j] * (double)g[j];
            x[t] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        }
        of_piece[piece % 1024] += sum_of_threads(x, 256);
    }
    return n_pieces == 1 ? of_piece[0] : sum_of_threads(of_piece, 1024);
}

/* Of 250 gradients; each waited for, or all at the end. Some are called twice, and the second
 * call has the first one's workspace; some begin where 16 bytes at a time cannot be read. */
static void squares_of_many_gradients_are_added_in_the_stated_order(void **state)
{
    enum { N = 250, MOST = 18 * VP_SUMSQ_PIECE };
    const vp_backend *backend = test_backend();
    int64_t sizes[]     = {1, 5, 768, 16384, 16385, 3 * 16384, 40000}, count[N], at[N], sums[N],
            end         = 64;
    double     expected = 2.5;
    vp_control control  = {.grad_sumsq = expected};
    vp_err     err      = {0};
    char      *image, *arena;

    (void)state;
    if (on_cpu())
        skip();
    for (int i = 0; i < N; i++) {
        count[i] = i == 40 ? MOST - 3 : sizes[i * 5 % COUNT(sizes)];
        at[i]    = end + (i % 5 == 0 ? 4 : 0);
        sums[i]  = vp_round_up(at[i] + 4 * count[i], VP_ALIGN_BYTES);
        end      = vp_round_up(sums[i] + 8 * vp_ceil_div(count[i], VP_SUMSQ_PIECE), VP_ALIGN_BYTES);
    }
    image = malloc((size_t)end);
    assert_non_null(image);
    memset(image, FILL, (size_t)end);
    random_state = 88172645463325252u;
    for (int i = 0; i < N; i++) {
        for (int64_t e = 0; e < count[i]; e++)
            ((float *)(void *)(image + at[i]))[e] = (float)normal();
        for (int n = 0; n < (i % 17 == 16 ? 2 : 1); n++)
            expected += ordered_sumsq((const float *)(const void *)(image + at[i]), count[i]);
    }
    CHECK_OK(backend->alloc(end, (void **)&arena, &err));
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        vp_control got;

        memcpy(image, &control, sizeof control);
        CHECK_OK(backend->upload(arena, image, end, &err));
        for (int i = 0; i < N; i++)
            for (int n = 0; n < (i % 17 == 16 ? 2 : 1); n++) {
                vp_kernel_call call = {
                    .kernel  = VP_K_GRAD_SUMSQ,
                    .dtype   = VP_DTYPE_F32,
                    .operand = {[VP_GRAD_SUMSQ_G] = arena + at[i], [VP_GRAD_SUMSQ_CONTROL] = arena},
                    .elements        = {.count = count[i]},
                    .workspace       = arena + sums[i],
                    .workspace_bytes = 8 * vp_ceil_div(count[i], VP_SUMSQ_PIECE)};
                CHECK_OK(backend->run(&call, &err));
                if (one_by_one)
                    CHECK_OK(backend->wait(&err));
            }
        CHECK_OK(backend->download(&got, arena, sizeof got, &err));
        if (got.grad_sumsq != expected)
            fail_msg("%s: %a, expected %a", one_by_one ? "one by one" : "at once", got.grad_sumsq,
                     expected);
    }
    backend->release(arena, end);
    free(image);
}

/* For tests/test_cuda_kernels.sh: the first launch of an update, or of squares, fails. Whatever
 * comes behind the call says so, by the call's name: exit 0. */
static int expect_failed_launch(const char *kernel, const char *behind)
{
    const vp_backend *b     = test_backend();
    vp_err            err   = {0};
    void             *at[6] = {NULL}, *other = NULL;
    vp_backend_graph *graph = NULL;
    vp_backend_memory memory;
    char              here[64] = {0};
    double            seconds;
    bool              squares = strcmp(kernel, "grad_sumsq") == 0;
    vp_kernel_call    call    = {.kernel    = VP_K_LION,
                                 .dtype     = VP_DTYPE_F32,
                                 .states    = {.count = 16, .decay = 0, .state = VP_STATE_F32},
                                 .optimizer = &numbers};
    vp_kernel_call    sums    = {.kernel          = VP_K_GRAD_SUMSQ,
                                 .dtype           = VP_DTYPE_F32,
                                 .elements        = {.count = 16},
                                 .workspace_bytes = 8};
    vp_kernel_call zero = {.kernel = VP_K_ZERO, .dtype = VP_DTYPE_F32, .elements = {.count = 16}};
    vp_status      st;

    for (int i = 0; i < 6; i++)
        if (b->alloc(64, &at[i], &err) != VP_OK || b->fill(at[i], 0, 64, &err) != VP_OK)
            return 2;
    other                   = at[5];
    zero.operand[VP_ZERO_Y] = at[4];
    call.operand[VP_LION_P] = at[0], call.operand[VP_LION_G] = at[1],
    call.operand[VP_LION_M] = at[2], call.operand[VP_LION_CONTROL] = at[3];
    sums.operand[VP_GRAD_SUMSQ_G] = at[0], sums.operand[VP_GRAD_SUMSQ_CONTROL] = at[3];
    sums.workspace = at[1];
    if (strcmp(behind, "record_end") == 0 && b->record_begin(&err) != VP_OK)
        return 2;
    if (strcmp(behind, "replay") == 0 &&
        (b->record_begin(&err) != VP_OK || b->record_end(&graph, &err) != VP_OK))
        return 2;
    if (b->run(squares ? &sums : &call, &err) != VP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    if (strcmp(behind, "release") == 0) {
        b->release(other, 64); /* has nobody to tell */
        other = NULL;
    }
    call.dtype = strcmp(behind, "another") == 0 ? VP_DTYPE_BF16 : VP_DTYPE_F32;
    st         = strcmp(behind, "upload") == 0         ? b->upload(at[4], here, 64, &err)
                 : strcmp(behind, "download") == 0     ? b->download(here, at[4], 64, &err)
                 : strcmp(behind, "fill") == 0         ? b->fill(at[4], 1, 64, &err)
                 : strcmp(behind, "memory") == 0       ? b->memory(&memory, &err)
                 : strcmp(behind, "run") == 0          ? b->run(&zero, &err)
                 : strcmp(behind, "again") == 0        ? b->run(squares ? &sums : &call, &err)
                 : strcmp(behind, "another") == 0      ? b->run(&call, &err)
                 : strcmp(behind, "time") == 0         ? b->time(&zero, 1, &seconds, &err)
                 : strcmp(behind, "record_begin") == 0 ? b->record_begin(&err)
                 : strcmp(behind, "record_end") == 0   ? b->record_end(&graph, &err)
                 : strcmp(behind, "replay") == 0       ? b->replay(graph, &err)
                 : strcmp(behind, "mark") == 0         ? b->mark(VP_STREAM_COMPUTE, 0, &err)
                 : strcmp(behind, "after") == 0        ? b->after(VP_STREAM_COMPUTE, 0, &err)
                                                       : b->wait(&err);
    fprintf(stderr, "%s\n", err.message);
    b->graph_free(graph);
    for (int i = 0; i < 5; i++)
        b->release(at[i], 64);
    b->release(other, 64);
    if (b->wait(&err) != VP_OK) /* told once, and nothing stays */
        return 3;
    return st == VP_ERR_DEVICE && strstr(err.message, kernel) ? 0 : 1;
}

/* ---- what must be seen, and what cannot be done ---- */

static void a_nan_gradient_reaches_the_parameter(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(bit_cases); i++) {
        opt_case c = bit_cases[i];
        opt_call o;

        set_form(&c, 2);
        o                                    = opt_new(&c, 4, 0);
        ((float *)o.call.operand[OPT_G])[41] = NAN;
        run(&o.call);
        assert_true(isnan(bf16_value(((uint16_t *)o.call.operand[OPT_P])[41])));
        opt_release(&o);
    }
}

static void a_matrix_beyond_what_blas_can_address_is_an_input_error(void **state)
{
    vp_err         err  = {0};
    vp_kernel_call call = {.kernel = VP_K_MUON,
                           .dtype  = VP_DTYPE_F32,
                           .muon   = {.rows = 1, .cols = 3000000000, .decay = 1}};

    (void)state;
    CPU_ONLY();
    assert_int_equal(vp_backend_cpu()->run(&call, &err), VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "muon"));
}

static void a_zero_gradient_moves_nothing_but_by_decay(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT(all_updates); k++) {
        opt_case c = {.kernel = all_updates[k], .dtype = VP_DTYPE_F32};
        opt_call o;
        float    before[30];

        if (vp_kernel_info_of(c.kernel)->kind == VP_KERNEL_UPDATE)
            c.states = (vp_states_ints){.count = 6, .decay = 0, .state = VP_STATE_F32};
        else
            c.adafactor = (vp_adafactor_ints){.rows = 6, .cols = 5, .decay = 0, .factored = 1};
        o = opt_new(&c, 1, 0);
        memcpy(before, o.call.operand[OPT_P], (size_t)o.bytes[OPT_P]);
        for (int i = 1; i < vp_kernel_info_of(all_updates[k])->n_operands; i++)
            if (o.call.operand[i] && !is_operand(all_updates[k], i, "control"))
                memset(o.call.operand[i], 0, (size_t)o.bytes[i]);
        ((vp_control *)o.call.operand[vp_kernel_operand(all_updates[k], "control")])->step = 1;
        run(&o.call);
        assert_memory_equal(o.call.operand[OPT_P], before, (size_t)o.bytes[OPT_P]);
        opt_release(&o);
    }
}

static void adamw_first_step_moves_by_the_learning_rate(void **state)
{
    /* t = 1, m = v = 0: m_hat = g, v_hat = g^2, so p moves by lr g / (|g| + eps) = lr. With
     * decay 0.1 and lr 0.01: p = 2 * (1 - 0.001) - 0.01 = 1.988 */
    float          p = 2.0f, g = 0.5f, m = 0.0f, v = 0.0f;
    vp_control     control = {.lr = 0.01, .step = 1, .grad_scale = 1};
    vp_kernel_call call    = {.kernel    = VP_K_ADAMW,
                              .dtype     = VP_DTYPE_F32,
                              .operand   = {[VP_ADAMW_P]       = &p,
                                            [VP_ADAMW_G]       = &g,
                                            [VP_ADAMW_M]       = &m,
                                            [VP_ADAMW_V]       = &v,
                                            [VP_ADAMW_MASTER]  = NULL,
                                            [VP_ADAMW_CONTROL] = &control},
                              .states    = {.count = 1, .decay = 1},
                              .optimizer = &numbers};

    (void)state;
    run(&call);
    assert_true(fabs((double)p - 1.988) < 4.0 * u);
}

/* Double sums of floats: n roundings of 2^-53. The last count is beyond the 512 tiles of 16384
 * that are summed at once. */
static void gradient_norm_agrees_with_float64(void **state)
{
    int64_t counts[] = {1, 255, 257, 16385, 100003, 512 * 16384 + 3};

    (void)state;
    for (int i = 0; i < COUNT(counts); i++) {
        guarded        memory  = guarded_new(4 * counts[i], 0);
        float         *g       = (float *)memory.at;
        vp_control     control = {.grad_sumsq = 2.5};
        vp_kernel_call call    = {
               .kernel   = VP_K_GRAD_SUMSQ,
               .dtype    = VP_DTYPE_F32,
               .operand  = {[VP_GRAD_SUMSQ_G] = g, [VP_GRAD_SUMSQ_CONTROL] = &control},
               .elements = {.count = counts[i]}};
        double sum = 2.5;

        random_state = 88172645463325252u;
        for (int64_t e = 0; e < counts[i]; e++) {
            g[e] = (float)(2.0 * uniform() - 1.0);
            sum += (double)g[e] * (double)g[e];
        }
        run(&call);
        assert_true(fabs(control.grad_sumsq - sum) <= 1e-11 * sum);
        guarded_release(&memory, 4 * counts[i]);
    }
}

static void clipping_scales_to_the_bound_and_never_up(void **state)
{
    vp_control     control = {.grad_sumsq = 16.0};
    vp_kernel_call call    = {.kernel     = VP_K_CLIP_SCALE,
                              .dtype      = VP_DTYPE_F32,
                              .operand    = {[VP_CLIP_SCALE_CONTROL] = &control},
                              .clip_reals = {.clip_norm = 1.0}};

    (void)state;
    run(&call); /* norm 4, clip 1: 1 / 4.000001 */
    assert_true(control.grad_norm == 4.0 && control.grad_scale == 1.0 / (4.0 + 1e-6));
    call.clip_reals.clip_norm = 5.0;
    run(&call);
    assert_true(control.grad_scale == 1.0);
    call.clip_reals.clip_norm = 0.0;
    run(&call);
    assert_true(control.grad_scale == 1.0);
    control.grad_sumsq        = NAN;
    call.clip_reals.clip_norm = 1.0;
    run(&call);
    assert_true(isnan(control.grad_norm) && isnan(control.grad_scale));
}

/* ---- PyTorch ---- */

/* Three steps in float64 with torch 2.11.0 and transformers 5.17.0: p_i = (i mod 7 - 3) / 4, g_i at
 * step t (from 0) ((5 i + 3 t) mod 11 - 5) / 8, 12 elements, lr 0.01, weight_decay 0.1. Muon's
 * iteration is bf16 in torch; made float64 for this by the first line.
 *
 *     torch.Tensor.bfloat16 = lambda x: x.double()
 *     def start(shape): return torch.tensor([(i % 7 - 3) / 4 for i in range(12)],
 *     dtype=torch.float64).reshape(shape)
 *     def grad(t, shape): return torch.tensor([((i * 5 + t * 3) % 11 - 5) / 8 for i in range(12)],
 *     dtype=torch.float64).reshape(shape)
 *     p = torch.nn.Parameter(start(shape)); o = make(p)
 *     for t in range(3): p.grad = grad(t, shape); o.step()
 *
 * with make one of, 3x4 and 4x3 being shapes:
 *
 *     AdamW([p], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)      SGD([p], lr=0.01,
 *     weight_decay=0.1[, momentum=0.9])
 *     Adafactor([p], lr=0.01, scale_parameter=False, relative_step=False, weight_decay=0.1)
 *     Muon([p], lr=0.01, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw") */
static const struct {
    vp_kernel kernel;
    VP_NAMED_INTS;
    double p[12];
} torch_results[] = {
    {.kernel = VP_K_ADAMW,
     .states = {.count = 12, .decay = 1, .state = VP_STATE_F32},
     .p = {-0.7229342002053598, -0.5033690351705208, -0.2626636225287019, -0.0004998325646570923,
           0.2413277510344839, 0.5066542923810051, 0.7449227602242724, -0.7318510378930282,
           -0.5210095892270468, -0.2278506503583175, -0.01916956071364776, 0.2740687987946403}},
    {.kernel = VP_K_SGD,
     .update = {.count = 12, .decay = 1},
     .p = {-0.740267243, -0.4959977495, -0.251742006, -0.00749999875, 0.25050574475, 0.494747752,
           0.7527534955, -0.7477597455000001, -0.503490252, -0.24551199475, -0.00124250125,
           0.256735756}},
    {.kernel = VP_K_MOMENTUM,
     .states = {.count = 12, .decay = 1, .state = VP_STATE_F32},
     .p      = {-0.7253848430000001, -0.4980686495, -0.258391206, -0.00761474875, 0.24581269475,
                0.496589152, 0.7500165955000001, -0.7393978455000001, -0.512081652, -0.23519394475,
                -0.00787775125, 0.269009956}},
    {.kernel    = VP_K_ADAFACTOR,
     .adafactor = {.rows = 3, .cols = 4, .decay = 1, .factored = 1},
     .p = {-0.733201957819414, -0.4968486364490499, -0.2546461826948211, -0.0218871534906982,
           0.2517078425583759, 0.4885335584566737, 0.757659567934811, -0.7488857679363073,
           -0.5064191425514021, -0.2363552616533725, -0.0008675781151945491, 0.2676825350491709}},
    {.kernel    = VP_K_ADAFACTOR,
     .adafactor = {.rows = 1, .cols = 12, .decay = 1, .factored = 0},
     .p = {-0.7357573587672933, -0.4980263505992161, -0.251693471344095, -0.01657763788689594,
           0.2524598029472683, 0.4876970800467549, 0.7551873012493435, -0.7500429106861694,
           -0.5126656689761553, -0.2437736692726445, -0.01144592473302369, 0.2612456402327067}},
    {.kernel = VP_K_MUON,
     .muon   = {.rows = 3, .cols = 4, .decay = 1},
     .p      = {-0.742182156814479, -0.4986631225852404, -0.2533998249492392, -0.002034568073497002,
                0.2481933422984457, 0.4974541746103764, 0.7500244693558982, -0.7447280775977406,
                -0.4993948978332529, -0.2460852932075787, 0.0008655516213785998, 0.2563685679112952}},
    {.kernel = VP_K_MUON,
     .muon   = {.rows = 4, .cols = 3, .decay = 1},
     .p      = {-0.7412270226963455, -0.4965971425733714, -0.2517729880692448, -0.00233349674281192,
                0.2500813476157063, 0.4978075447985214, 0.7509172201938452, -0.746217884534484,
                -0.5031086554193417, -0.2458077335377012, 0.0002891525417681703, 0.2567379417567387}},
};

/* The reference within the rounding of doubles; the kernel within three times one step's
 * tolerance, p being below 1. */
static void three_steps_end_where_pytorch_ends(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(all_updates); i++) {
        bool any = false;
        for (int k = 0; k < COUNT(torch_results); k++)
            any |= torch_results[k].kernel == all_updates[i];
        if (!any && all_updates[i] != VP_K_LION) /* PyTorch has none */
            fail_msg("nobody else's numbers for %s", vp_kernel_info_of(all_updates[i])->name);
    }
    for (int k = 0; k < COUNT(torch_results); k++) {
        opt_case c = {.kernel = torch_results[k].kernel, .dtype = VP_DTYPE_F32, .grad_scale = 1.0};
        opt_call o;
        int      control;

        memcpy(c.ints, torch_results[k].ints, sizeof c.ints);
        o       = opt_new(&c, 1, 0);
        control = vp_kernel_operand(c.kernel, "control");
        for (int t = 0; t < 3; t++) {
            for (int i = 0; i < control; i++)
                for (int e = 0; o.call.operand[i] && e < o.n[i]; e++) {
                    bool   is_scratch = vp_kernel_info_of(c.kernel)->operands[i].access == VP_WRITE;
                    double x          = i == OPT_P   ? (e % 7 - 3) / 4.0
                                        : i == OPT_G ? ((e * 5 + t * 3) % 11 - 5) / 8.0
                                                     : 0.0;
                    if (i != OPT_G && (t > 0 || is_scratch))
                        continue;
                    ((float *)o.call.operand[i])[e]       = (float)x;
                    ((double *)o.reference.operand[i])[e] = x;
                }
            ((vp_control *)o.call.operand[control])->step =
                ((vp_control *)o.reference.operand[control])->step = t + 1;
            run(&o.call);
            vp_reference_run(&o.reference);
        }
        for (int e = 0; e < 12; e++) {
            double x = (double)((float *)o.call.operand[OPT_P])[e],
                   y = ((double *)o.reference.operand[OPT_P])[e], p = torch_results[k].p[e];
            double tolerance =
                3.0 * (c.kernel == VP_K_MUON ? muon_tolerance(4, 3) : elementwise_tolerance);
            if (!(fabs(y - p) <= 1e-13) || !(fabs(x - p) <= tolerance))
                fail_msg("%s, case %d, p[%d]: %.9g, reference %.17g, torch %.17g",
                         vp_kernel_info_of(c.kernel)->name, k, e, x, y, p);
        }
        opt_release(&o);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_optimizers_agree_with_float64),
        cmocka_unit_test(adafactor_agrees_with_float64),
        cmocka_unit_test(muon_agrees_with_float64),
        cmocka_unit_test(muon_makes_the_singular_values_near_one),
        cmocka_unit_test(three_steps_end_where_pytorch_ends),
        cmocka_unit_test(threads_places_and_instruction_sets_move_no_bit),
        cmocka_unit_test(many_parameters_have_the_bits_of_one_by_one),
        cmocka_unit_test(a_nan_gradient_reaches_the_parameter),
        cmocka_unit_test(a_matrix_beyond_what_blas_can_address_is_an_input_error),
        cmocka_unit_test(a_zero_gradient_moves_nothing_but_by_decay),
        cmocka_unit_test(adamw_first_step_moves_by_the_learning_rate),
        cmocka_unit_test(gradient_norm_agrees_with_float64),
        cmocka_unit_test(squares_of_many_gradients_are_added_in_the_stated_order),
        cmocka_unit_test(clipping_scales_to_the_bound_and_never_up),
    };

    if (argc == 4 && strcmp(argv[1], "failed-launch") == 0)
        return expect_failed_launch(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
