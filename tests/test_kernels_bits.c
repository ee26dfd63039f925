/* The numerics contract: what a plan may choose moves no bit. Each call is made once plainly, then again
 * in every way a plan or a machine may make it, and all written operands are compared with memcmp. */
#include "tests/kernel_test.h"

#include "kernels/cpu/cpu_internal.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Row kernels have rows beyond two tiles and a tail; widths are multiples of nothing; shapes are large
 * enough for several work items, so that threads have something to disagree about. */
static const kt_case cases[] = {
    {.kernel = VP_K_EMBEDDING_FWD, .ints = {700, 131, 50, 128}},
    {.kernel = VP_K_EMBEDDING_BWD, .ints = {700, 300, 50, 128}},
    {.kernel = VP_K_LAYERNORM_FWD, .ints = {700, 131}, .reals = {1e-5}},
    {.kernel = VP_K_LAYERNORM_BWD, .ints = {700, 300}},
    {.kernel = VP_K_LAYERNORM_BWD, .ints = {700, 131}, .accumulate = true, .absent = {[5] = true}},
    {.kernel = VP_K_LINEAR_FWD, .ints = {700, 203, 1001, VP_WEIGHT_IN_OUT}},
    {.kernel = VP_K_LINEAR_FWD, .ints = {700, 203, 1001, VP_WEIGHT_OUT_IN}, .absent = {[2] = true}},
    {.kernel = VP_K_LINEAR_FWD, .ints = {515, 40, 41, VP_WEIGHT_OUT_IN}},
    {.kernel = VP_K_LINEAR_FWD, .ints = {257, 769, 1, VP_WEIGHT_IN_OUT}},
    /* k beyond what a BLAS takes in one piece */
    {.kernel = VP_K_LINEAR_FWD, .ints = {513, 1536, 800, VP_WEIGHT_IN_OUT}},
    {.kernel = VP_K_LINEAR_BWD_INPUT, .ints = {513, 300, 1600, VP_WEIGHT_OUT_IN}},
    {.kernel = VP_K_LINEAR_BWD_INPUT, .ints = {700, 1001, 203, VP_WEIGHT_IN_OUT}},
    {.kernel = VP_K_LINEAR_BWD_INPUT, .ints = {700, 401, 203, VP_WEIGHT_OUT_IN}, .accumulate = true},
    {.kernel = VP_K_LINEAR_BWD_WEIGHT, .ints = {700, 401, 523, VP_WEIGHT_IN_OUT}},
    {.kernel = VP_K_LINEAR_BWD_WEIGHT, .ints = {700, 401, 523, VP_WEIGHT_OUT_IN}, .accumulate = true},
    {.kernel = VP_K_LINEAR_BWD_WEIGHT, .ints = {769, 40, 41, VP_WEIGHT_OUT_IN}, .absent = {[3] = true}},
    {.kernel = VP_K_ATTENTION_FWD, .ints = {3, 203, 6, 3, 40}, .reals = {0.15, 0.0}},
    {.kernel = VP_K_ATTENTION_FWD, .ints = {3, 131, 4, 4, 16}, .reals = {0.25, 0.2},
     .rng = {.seed = 5, .step = 1, .op = 2, .first_sample = 7}},
    {.kernel = VP_K_ATTENTION_BWD, .ints = {3, 203, 6, 3, 40}, .reals = {0.15, 0.0}},
    {.kernel = VP_K_ATTENTION_BWD, .ints = {3, 131, 4, 4, 16}, .reals = {0.25, 0.2},
     .rng = {.seed = 5, .step = 1, .op = 2, .first_sample = 7}},
    {.kernel = VP_K_GELU_TANH_FWD, .ints = {50003}},
    {.kernel = VP_K_GELU_TANH_BWD, .ints = {50003}},
    {.kernel = VP_K_ADD, .ints = {50003}},
    {.kernel = VP_K_DROPOUT, .ints = {3, 20001}, .reals = {0.2},
     .rng = {.seed = 5, .step = 1, .op = 2, .first_sample = 7}},
    {.kernel = VP_K_CROSS_ENTROPY, .ints = {600, 1031}},
    {.kernel = VP_K_LOSS_SUM, .ints = {700}},
    {.kernel = VP_K_COPY, .ints = {50003}},
    {.kernel = VP_K_ZERO, .ints = {50003}},
    {.kernel = VP_K_GRAD_SUMSQ, .ints = {700003}},
    {.kernel = VP_K_CLIP_SCALE, .reals = {1.0}},
    {.kernel = VP_K_ADAMW, .ints = {50003, 1}},
    {.kernel = VP_K_SGD, .ints = {50003, 1}},
};

static kt_operands operands_of(const kt_case *c, int shift)
{
    kt_operands o = kt_operands_new(c, 11, shift);

    vp_backend_cpu()->set_threads(2);
    kt_run_forward_first(&o, false);
    return o;
}

static void expect_same_operands(const kt_operands *a, const kt_operands *b, const char *how, int64_t n)
{
    const vp_kernel_info *info = vp_kernel_info_of(a->call.kernel);

    for (int i = 0; i < info->n_operands; i++)
        if (a->call.operand[i] &&
            memcmp(a->call.operand[i], b->call.operand[i], (size_t)a->bytes[i]) != 0)
            fail_msg("%s: %s differs with %s %lld", info->name, info->operands[i].name, how,
                     (long long)n);
}

static void threads_move_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(cases); i++) {
        kt_operands one = operands_of(&cases[i], 0);

        vp_backend_cpu()->set_threads(1);
        kt_run(&one.call);
        for (int n = 2; n <= 4; n++) {
            kt_operands many = operands_of(&cases[i], 0);

            vp_backend_cpu()->set_threads(n);
            kt_run(&many.call);
            expect_same_operands(&one, &many, "threads", n);
            kt_operands_release(&many);
        }
        kt_operands_release(&one);
    }
}

static void the_place_of_a_buffer_moves_no_bit(void **state)
{
    int shifts[] = {1, 2, 3, 5};

    (void)state;
    for (int i = 0; i < COUNT(cases); i++) {
        kt_operands here = operands_of(&cases[i], 0);

        vp_backend_cpu()->set_threads(2);
        kt_run(&here.call);
        for (int s = 0; s < COUNT(shifts); s++) {
            kt_operands there = operands_of(&cases[i], shifts[s]);

            vp_backend_cpu()->set_threads(2);
            kt_run(&there.call);
            expect_same_operands(&here, &there, "an offset of 64 times", shifts[s]);
            kt_operands_release(&there);
        }
        kt_operands_release(&here);
    }
}

static void a_repeated_call_moves_no_bit(void **state)
{
    (void)state;
    vp_backend_cpu()->set_threads(4);
    for (int i = 0; i < COUNT(cases); i++)
        for (int again = 0; again < 3; again++) {
            kt_operands a = operands_of(&cases[i], 0), b = operands_of(&cases[i], 0);

            vp_backend_cpu()->set_threads(4);
            kt_run(&a.call);
            kt_run(&b.call);
            expect_same_operands(&a, &b, "repetition", again);
            kt_operands_release(&a);
            kt_operands_release(&b);
        }
}

/* Our own loops; OpenBLAS chooses its kernels itself and keeps to its choice. */
static void the_instruction_set_of_our_loops_moves_no_bit(void **state)
{
    (void)state;
    vp_backend_cpu()->set_threads(2);
    for (int i = 0; i < COUNT(cases); i++) {
        kt_operands best = operands_of(&cases[i], 0);

        kt_run(&best.call);
        for (vp_cpu_isa isa = VP_CPU_BASELINE; isa <= VP_CPU_AVX2; isa++) {
            kt_operands less = operands_of(&cases[i], 0);

            vp_cpu_isa_limit(isa);
            kt_run(&less.call);
            vp_cpu_isa_limit(VP_CPU_AVX512);
            expect_same_operands(&best, &less, "instruction set", (int64_t)isa);
            kt_operands_release(&less);
        }
        kt_operands_release(&best);
    }
}

/* ---- chunking: ints[0] (rows, samples, elements) cut into calls one after the other ---- */

static int64_t bytes_at(const kt_case *c, int operand, int64_t n)
{
    kt_case part = *c;

    part.ints[0] = n;
    return vp_kernel_operand_bytes(c->kernel, part.ints, operand);
}

static bool is_cut(const kt_case *c, int operand)
{
    return bytes_at(c, operand, 2) != bytes_at(c, operand, 1);
}

/* The same call as several of at most `chunk`. What a chunk does not own it accumulates into. */
static void run_in_chunks(const kt_case *c, const kt_operands *o, int64_t chunk)
{
    const vp_kernel_info *info = vp_kernel_info_of(c->kernel);

    for (int64_t first = 0; first < c->ints[0]; first += chunk) {
        vp_kernel_call part = o->call;

        part.ints[0] = vp_min_i64(chunk, c->ints[0] - first);
        part.rng.first_sample += first;
        for (int i = 0; i < info->n_operands; i++) {
            if (part.operand[i] && is_cut(c, i))
                part.operand[i] = (char *)part.operand[i] + bytes_at(c, i, first);
            else if (info->operands[i].access == VP_ACCUMULATE && first > 0)
                part.accumulate = true;
        }
        kt_run(&part);
    }
}

static void chunks_of_whole_tiles_move_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(cases); i++) {
        bool        by_sample = vp_kernel_info_of(cases[i].kernel)->random;
        bool        is_sumsq  = cases[i].kernel == VP_K_GRAD_SUMSQ;
        int64_t     unit      = by_sample ? 1 : is_sumsq ? 16384 * 8 : VP_TILE_TOKENS;
        kt_operands whole     = operands_of(&cases[i], 0);

        if (cases[i].kernel == VP_K_CLIP_SCALE) {
            kt_operands_release(&whole);
            continue;
        }
        vp_backend_cpu()->set_threads(2);
        kt_run(&whole.call);
        for (int n_units = 1; n_units <= 2; n_units++) {
            kt_operands parts = operands_of(&cases[i], 0);

            vp_backend_cpu()->set_threads(3);
            run_in_chunks(&cases[i], &parts, n_units * unit);
            expect_same_operands(&whole, &parts, "chunks of", n_units * unit);
            kt_operands_release(&parts);
        }
        kt_operands_release(&whole);
    }
}

/* A micro-batch split is chunks with, in between, everything else of the step: the accumulators are
 * put elsewhere and brought back. */
static void micro_batches_of_whole_tiles_move_no_bit(void **state)
{
    kt_case whole_case = {.kernel = VP_K_LINEAR_BWD_WEIGHT, .ints = {1024, 200, 300, VP_WEIGHT_IN_OUT}};
    kt_case part_case  = whole_case;

    (void)state;
    for (int n_parts = 2; n_parts <= 4; n_parts += 2) {
        kt_operands    whole = operands_of(&whole_case, 0), parts;
        kt_operands    place[4];
        int64_t        rows = 1024 / n_parts;

        part_case.ints[0] = rows;
        kt_run(&whole.call);
        parts = operands_of(&whole_case, 0);
        for (int m = 0; m < n_parts; m++) {
            place[m] = kt_operands_new(&part_case, 1, m);
            memcpy(place[m].call.operand[0], (char *)parts.call.operand[0] + m * place[m].bytes[0],
                   (size_t)place[m].bytes[0]);
            memcpy(place[m].call.operand[1], (char *)parts.call.operand[1] + m * place[m].bytes[1],
                   (size_t)place[m].bytes[1]);
            place[m].call.accumulate = m > 0;
            for (int i = 2; m > 0 && i < 4; i++)
                memcpy(place[m].call.operand[i], place[m - 1].call.operand[i], (size_t)place[m].bytes[i]);
            kt_run(&place[m].call);
        }
        for (int i = 2; i < 4; i++)
            assert_memory_equal(whole.call.operand[i], place[n_parts - 1].call.operand[i],
                                (size_t)whole.bytes[i]);
        for (int m = 0; m < n_parts; m++)
            kt_operands_release(&place[m]);
        kt_operands_release(&whole);
        kt_operands_release(&parts);
    }
}

/* ---- an output on an input's place ---- */

static void an_output_on_its_inputs_place_moves_no_bit(void **state)
{
    static const struct {
        vp_kernel kernel;
        int       output, input;
    } pairs[] = {
        {VP_K_LAYERNORM_BWD, 6, 0}, {VP_K_LAYERNORM_BWD, 6, 1}, {VP_K_LAYERNORM_BWD, 6, 5},
        {VP_K_GELU_TANH_BWD, 2, 0}, {VP_K_ADD, 2, 0}, {VP_K_ADD, 2, 1}, {VP_K_DROPOUT, 1, 0},
    };

    (void)state;
    for (int i = 0; i < COUNT(cases); i++)
        for (int p = 0; p < COUNT(pairs); p++) {
            kt_operands apart, shared;
            int         out = pairs[p].output, in = pairs[p].input;

            if (cases[i].kernel != pairs[p].kernel || cases[i].absent[in])
                continue;
            apart  = operands_of(&cases[i], 0);
            shared = operands_of(&cases[i], 0);
            vp_backend_cpu()->set_threads(3);
            kt_run(&apart.call);
            shared.call.operand[out] = shared.call.operand[in];
            kt_run(&shared.call);
            for (int k = 0; k < vp_kernel_info_of(cases[i].kernel)->n_operands; k++)
                if (k != in && apart.call.operand[k] &&
                    memcmp(apart.call.operand[k], shared.call.operand[k], (size_t)apart.bytes[k]) != 0)
                    fail_msg("%s: operand %d differs with output %d on input %d",
                             vp_kernel_info_of(cases[i].kernel)->name, k, out, in);
            kt_operands_release(&apart);
            kt_operands_release(&shared);
        }
}

static void threads_move_no_drawn_parameter(void **state)
{
    enum { N = 100003 };
    float *one = malloc(N * sizeof(float)), *many = malloc(N * sizeof(float));

    (void)state;
    assert_true(one && many);
    vp_backend_cpu()->set_threads(1);
    vp_draw_normal(3, "wpe.weight", 0.02, one, N);
    for (int n = 2; n <= 4; n++) {
        vp_backend_cpu()->set_threads(n);
        vp_draw_normal(3, "wpe.weight", 0.02, many, N);
        assert_memory_equal(one, many, N * sizeof(float));
    }
    for (vp_cpu_isa isa = VP_CPU_BASELINE; isa <= VP_CPU_AVX2; isa++) {
        vp_cpu_isa_limit(isa);
        vp_draw_normal(3, "wpe.weight", 0.02, many, N);
        vp_cpu_isa_limit(VP_CPU_AVX512);
        assert_memory_equal(one, many, N * sizeof(float));
    }
    free(one);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_move_no_bit),
        cmocka_unit_test(the_place_of_a_buffer_moves_no_bit),
        cmocka_unit_test(a_repeated_call_moves_no_bit),
        cmocka_unit_test(the_instruction_set_of_our_loops_moves_no_bit),
        cmocka_unit_test(chunks_of_whole_tiles_move_no_bit),
        cmocka_unit_test(micro_batches_of_whole_tiles_move_no_bit),
        cmocka_unit_test(an_output_on_its_inputs_place_moves_no_bit),
        cmocka_unit_test(threads_move_no_drawn_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
