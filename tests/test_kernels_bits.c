/* The numerics contract: what a plan may choose moves no bit. Each call is made once plainly,
 * then again in every way a plan or a machine may make it, and all written operands are compared
 * with memcmp. */
#include "tests/kernel_test.h"

#include "kernels/cpu/cpu_internal.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Row kernels have rows beyond two tiles and a tail; widths are multiples of nothing; shapes are
 * large enough for several work items, so that threads have something to disagree about.
 * Attention, rope and the optimizers beyond AdamW and SGD are compared in files of their own. */
static const kt_case in_fp32[] = {
    {.kernel          = VP_K_ATTENTION_FWD,
     .attention       = {.batch    = 3,
                         .seq      = 203,
                         .heads    = 6,
                         .kv_heads = 3,
                         .head_dim = 40,
                         .layout   = VP_QKV_PACKED,
                         .causal   = 1},
     .attention_reals = {.scale = 0.15}},
    {.kernel          = VP_K_ATTENTION_FWD,
     .attention       = {.batch    = 3,
                         .seq      = 131,
                         .heads    = 4,
                         .kv_heads = 4,
                         .head_dim = 16,
                         .layout   = VP_QKV_PACKED,
                         .causal   = 1},
     .attention_reals = {.scale = 0.25, .p = 0.2},
     .rng             = {.seed = 5, .step = 1, .op = 2, .first_sample = 7}},
    {.kernel          = VP_K_ATTENTION_BWD,
     .attention       = {.batch    = 3,
                         .seq      = 203,
                         .heads    = 6,
                         .kv_heads = 3,
                         .head_dim = 40,
                         .layout   = VP_QKV_PACKED,
                         .causal   = 1},
     .attention_reals = {.scale = 0.15}},
    {.kernel          = VP_K_ATTENTION_BWD,
     .attention       = {.batch    = 3,
                         .seq      = 131,
                         .heads    = 4,
                         .kv_heads = 4,
                         .head_dim = 16,
                         .layout   = VP_QKV_PACKED,
                         .causal   = 1},
     .attention_reals = {.scale = 0.25, .p = 0.2},
     .rng             = {.seed = 5, .step = 1, .op = 2, .first_sample = 7}},
    {.kernel = VP_K_LOSS_SUM, .token_rows = {.rows = 700}},
    {.kernel = VP_K_ZERO, .elements = {.count = 50003}},
    {.kernel = VP_K_GRAD_SUMSQ, .elements = {.count = 700003}},
    {.kernel = VP_K_GRAD_SUMSQ, .dtype = VP_DTYPE_BF16_GRADS, .elements = {.count = 700003}},
    {.kernel = VP_K_ZERO, .dtype = VP_DTYPE_BF16_GRADS, .elements = {.count = 50003}},
    {.kernel = VP_K_GRAD_ADD, .elements = {.count = 50003}},
    {.kernel     = VP_K_GRAD_ADD,
     .dtype      = VP_DTYPE_BF16_GRADS,
     .elements   = {.count = 50003},
     .accumulate = true},
    {.kernel = VP_K_LINEAR_BWD_WEIGHT,
     .dtype  = VP_DTYPE_BF16_GRADS,
     .linear = {.rows = 200, .in = 401, .out = 523, .layout = VP_WEIGHT_OUT_IN}},
    {.kernel = VP_K_ADAMW,
     .dtype  = VP_DTYPE_BF16_GRADS,
     .states = {.count = 50003, .decay = 1, .state = VP_STATE_F32}},
    {.kernel = VP_K_CLIP_SCALE, .clip_reals = {.clip_norm = 1.0}},
    {.kernel = VP_K_ADAMW,
     .states = {.count = 50003, .decay = 1, .state = VP_STATE_F32},
     .absent = {[VP_ADAMW_MASTER] = true}},
    {.kernel = VP_K_SGD,
     .update = {.count = 50003, .decay = 1},
     .absent = {[VP_SGD_MASTER] = true}},
};

static const kt_case in_both[] = {
    {.kernel          = VP_K_EMBEDDING_FWD,
     .embedding       = {.rows = 700, .cols = 131, .vocab = 50, .seq = 128},
     .embedding_reals = {.scale = 1.0}},
    {.kernel          = VP_K_EMBEDDING_FWD,
     .embedding       = {.rows = 700, .cols = 131, .vocab = 50, .seq = 128, .position_offset = 3},
     .embedding_reals = {.scale = 1.0},
     .absent          = {[VP_EMBEDDING_FWD_POSITIONS] = true}},
    {.kernel          = VP_K_EMBEDDING_FWD,
     .embedding       = {.rows = 700, .cols = 131, .vocab = 50, .seq = 128, .position_offset = 2},
     .embedding_reals = {.scale = 7.5}},
    {.kernel          = VP_K_EMBEDDING_BWD,
     .embedding_bwd   = {.rows = 700, .cols = 300, .vocab = 50, .seq = 128},
     .embedding_reals = {.scale = 1.0}},
    {.kernel          = VP_K_EMBEDDING_BWD,
     .embedding_bwd   = {.rows            = 700,
                         .cols            = 300,
                         .vocab           = 50,
                         .seq             = 128,
                         .position_offset = 2,
                         .skip_padding    = 0,
                         .skip_row        = 5},
     .embedding_reals = {.scale = 7.5}},
    {.kernel          = VP_K_EMBEDDING_FWD,
     .embedding       = {.rows            = 700,
                         .cols            = 131,
                         .vocab           = 50,
                         .seq             = 128,
                         .position_offset = 2,
                         .skip_padding    = 1},
     .embedding_reals = {.scale = 1.0}},
    {.kernel          = VP_K_EMBEDDING_BWD,
     .embedding_bwd   = {.rows            = 700,
                         .cols            = 300,
                         .vocab           = 50,
                         .seq             = 128,
                         .position_offset = 2,
                         .skip_padding    = 1,
                         .skip_row        = 5},
     .embedding_reals = {.scale = 7.5}},
    {.kernel     = VP_K_LAYERNORM_FWD,
     .layernorm  = {.rows = 700, .cols = 131},
     .norm_reals = {.eps = 1e-5}},
    {.kernel     = VP_K_LAYERNORM_FWD,
     .layernorm  = {.rows = 700, .cols = 131},
     .norm_reals = {.eps = 1e-5},
     .absent     = {[VP_LAYERNORM_FWD_GAMMA] = true, [VP_LAYERNORM_FWD_BETA] = true}},
    {.kernel = VP_K_LAYERNORM_BWD, .layernorm = {.rows = 700, .cols = 300}},
    {.kernel     = VP_K_LAYERNORM_BWD,
     .layernorm  = {.rows = 700, .cols = 131},
     .accumulate = true,
     .absent     = {[VP_LAYERNORM_BWD_ADD] = true}},
    {.kernel    = VP_K_LAYERNORM_BWD,
     .layernorm = {.rows = 700, .cols = 131},
     .absent    = {[VP_LAYERNORM_BWD_GAMMA]   = true,
                   [VP_LAYERNORM_BWD_D_GAMMA] = true,
                   [VP_LAYERNORM_BWD_D_BETA]  = true}},
    {.kernel     = VP_K_RMSNORM_FWD,
     .rmsnorm    = {.rows = 700, .cols = 131, .groups = 1, .unit_offset = 1},
     .norm_reals = {.eps = 1e-5}},
    {.kernel     = VP_K_RMSNORM_FWD,
     .rmsnorm    = {.rows = 700, .cols = 40, .groups = 3, .unit_offset = 0},
     .norm_reals = {.eps = 1e-5}},
    {.kernel  = VP_K_RMSNORM_BWD,
     .rmsnorm = {.rows = 700, .cols = 300, .groups = 1, .unit_offset = 1}},
    {.kernel     = VP_K_RMSNORM_BWD,
     .rmsnorm    = {.rows = 700, .cols = 40, .groups = 3, .unit_offset = 0},
     .accumulate = true,
     .absent     = {[VP_RMSNORM_BWD_ADD] = true}},
    {.kernel = VP_K_LINEAR_FWD,
     .linear = {.rows = 700, .in = 203, .out = 1001, .layout = VP_WEIGHT_IN_OUT}},
    {.kernel = VP_K_LINEAR_FWD,
     .linear = {.rows = 700, .in = 203, .out = 1001, .layout = VP_WEIGHT_OUT_IN},
     .absent = {[VP_LINEAR_FWD_B] = true}},
    {.kernel = VP_K_LINEAR_FWD,
     .linear = {.rows = 515, .in = 40, .out = 41, .layout = VP_WEIGHT_OUT_IN}},
    {.kernel = VP_K_LINEAR_FWD,
     .linear = {.rows = 257, .in = 769, .out = 1, .layout = VP_WEIGHT_IN_OUT}},
    /* k beyond what a BLAS takes in one piece */
    {.kernel = VP_K_LINEAR_FWD,
     .linear = {.rows = 513, .in = 1536, .out = 800, .layout = VP_WEIGHT_IN_OUT}},
    {.kernel     = VP_K_LINEAR_ADD_FWD,
     .linear_add = {.rows = 700, .in = 203, .out = 1001, .layout = VP_WEIGHT_IN_OUT}},
    {.kernel     = VP_K_LINEAR_ADD_FWD,
     .linear_add = {.rows = 513, .in = 1536, .out = 800, .layout = VP_WEIGHT_OUT_IN},
     .absent     = {[VP_LINEAR_ADD_FWD_B] = true}},
    {.kernel = VP_K_LINEAR_BWD_INPUT,
     .linear = {.rows = 513, .in = 300, .out = 1600, .layout = VP_WEIGHT_OUT_IN}},
    {.kernel = VP_K_LINEAR_BWD_INPUT,
     .linear = {.rows = 700, .in = 1001, .out = 203, .layout = VP_WEIGHT_IN_OUT}},
    {.kernel     = VP_K_LINEAR_BWD_INPUT,
     .linear     = {.rows = 700, .in = 401, .out = 203, .layout = VP_WEIGHT_OUT_IN},
     .accumulate = true},
    {.kernel = VP_K_LINEAR_BWD_WEIGHT,
     .linear = {.rows = 700, .in = 401, .out = 523, .layout = VP_WEIGHT_IN_OUT}},
    {.kernel     = VP_K_LINEAR_BWD_WEIGHT,
     .linear     = {.rows = 700, .in = 401, .out = 523, .layout = VP_WEIGHT_OUT_IN},
     .accumulate = true},
    {.kernel = VP_K_LINEAR_BWD_WEIGHT,
     .linear = {.rows = 769, .in = 40, .out = 41, .layout = VP_WEIGHT_OUT_IN},
     .absent = {[VP_LINEAR_BWD_WEIGHT_DB] = true}},
    {.kernel = VP_K_ACTIVATION_FWD, .activation = {.count = 50003, .act = VP_ACT_GELU_TANH}},
    {.kernel = VP_K_ACTIVATION_FWD, .activation = {.count = 50003, .act = VP_ACT_GELU}},
    {.kernel = VP_K_ACTIVATION_FWD, .activation = {.count = 50003, .act = VP_ACT_RELU}},
    {.kernel = VP_K_ACTIVATION_FWD, .activation = {.count = 50003, .act = VP_ACT_SILU}},
    {.kernel = VP_K_ACTIVATION_FWD, .activation = {.count = 50003, .act = VP_ACT_TANH}},
    {.kernel = VP_K_ACTIVATION_BWD, .activation = {.count = 50003, .act = VP_ACT_GELU_TANH}},
    {.kernel = VP_K_ACTIVATION_BWD, .activation = {.count = 50003, .act = VP_ACT_GELU}},
    {.kernel = VP_K_ACTIVATION_BWD, .activation = {.count = 50003, .act = VP_ACT_RELU}},
    {.kernel = VP_K_ACTIVATION_BWD, .activation = {.count = 50003, .act = VP_ACT_SILU}},
    {.kernel = VP_K_ACTIVATION_BWD, .activation = {.count = 50003, .act = VP_ACT_TANH}},
    {.kernel = VP_K_GLU_FWD, .glu = {.rows = 700, .cols = 131, .act = VP_ACT_SILU, .packed = 0}},
    {.kernel = VP_K_GLU_FWD,
     .glu    = {.rows = 700, .cols = 131, .act = VP_ACT_GELU_TANH, .packed = 1}},
    {.kernel = VP_K_GLU_FWD, .glu = {.rows = 700, .cols = 131, .act = VP_ACT_GELU, .packed = 1}},
    {.kernel = VP_K_GLU_FWD, .glu = {.rows = 700, .cols = 131, .act = VP_ACT_RELU, .packed = 1}},
    {.kernel = VP_K_GLU_BWD, .glu = {.rows = 700, .cols = 131, .act = VP_ACT_SILU, .packed = 0}},
    {.kernel = VP_K_GLU_BWD,
     .glu    = {.rows = 700, .cols = 131, .act = VP_ACT_GELU_TANH, .packed = 1}},
    {.kernel = VP_K_GLU_BWD, .glu = {.rows = 700, .cols = 131, .act = VP_ACT_GELU, .packed = 1}},
    {.kernel = VP_K_GLU_BWD, .glu = {.rows = 700, .cols = 131, .act = VP_ACT_RELU, .packed = 0}},
    {.kernel = VP_K_ROPE_FWD,
     .rope   = {.batch      = 5,
                .seq        = 70,
                .heads      = 6,
                .kv_heads   = 2,
                .head_dim   = 24,
                .rotary_dim = 16,
                .layout     = VP_QKV_PACKED}},
    {.kernel = VP_K_ROPE_BWD,
     .rope   = {.batch      = 5,
                .seq        = 70,
                .heads      = 6,
                .kv_heads   = 0,
                .head_dim   = 24,
                .rotary_dim = 24,
                .layout     = VP_QKV_APART}},
    {.kernel = VP_K_ADD, .elements = {.count = 50003}},
    {.kernel = VP_K_SCALE, .elements = {.count = 50003}, .scale_reals = {.factor = 0.3}},
    {.kernel        = VP_K_DROPOUT,
     .dropout       = {.batch = 3, .count = 20001},
     .dropout_reals = {.p = 0.2},
     .rng           = {.seed = 5, .step = 1, .op = 2, .first_sample = 7}},
    {.kernel = VP_K_CROSS_ENTROPY, .cross_entropy = {.rows = 600, .vocab = 1031}},
    {.kernel              = VP_K_CROSS_ENTROPY,
     .cross_entropy       = {.rows = 600, .vocab = 1031},
     .cross_entropy_reals = {.softcap = 3.0}},
    {.kernel = VP_K_COPY, .elements = {.count = 50003}},
};

static kt_case cases[COUNT(in_fp32) + 3 * COUNT(in_both)];

static int make_cases(void **state)
{
    int n = 0;

    (void)state;
    for (int i = 0; i < COUNT(in_fp32); i++)
        cases[n++] = in_fp32[i];
    for (int i = 0; i < COUNT(in_both); i++)
        for (vp_dtype dtype = VP_DTYPE_F32; dtype <= VP_DTYPE_F16; dtype++) {
            cases[n]         = in_both[i];
            cases[n++].dtype = dtype;
        }
    return 0;
}

static kt_operands operands_of(const kt_case *c, int shift)
{
    kt_operands o = kt_operands_new(c, 11, shift);

    vp_backend_cpu()->set_threads(2);
    kt_run_forward_first(&o, false);
    return o;
}

static void expect_same_operands(const kt_operands *a, const kt_operands *b, const char *how,
                                 int64_t n)
{
    const vp_kernel_info *info = vp_kernel_info_of(a->call.kernel);

    for (int i = 0; i < info->n_operands; i++)
        if (a->call.operand[i] &&
            memcmp(a->call.operand[i], b->call.operand[i], (size_t)a->bytes[i]) != 0)
            fail_msg("%s %s: %s differs with %s %lld", vp_dtype_name(a->call.dtype), info->name,
                     info->operands[i].name, how, (long long)n);
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

/* ---- chunking: the first attribute (rows, samples, elements) cut into calls one after the other ---- */

enum { CUT = 0 };

static int64_t bytes_at(const kt_case *c, int operand, int64_t n)
{
    kt_case part = *c;

    part.ints[CUT] = n;
    return vp_kernel_operand_bytes(c->kernel, c->dtype ? c->dtype : VP_DTYPE_F32, part.ints,
                                   operand);
}

static bool is_cut(const kt_case *c, int operand)
{
    return bytes_at(c, operand, 2) != bytes_at(c, operand, 1);
}

/* The same call as several of at most `chunk`. What a chunk does not own it accumulates into. */
static void run_in_chunks(const kt_case *c, const kt_operands *o, int64_t chunk)
{
    const vp_kernel_info *info = vp_kernel_info_of(c->kernel);

    for (int64_t first = 0; first < c->ints[CUT]; first += chunk) {
        vp_kernel_call part = o->call;

        part.ints[CUT] = vp_min_i64(chunk, c->ints[CUT] - first);
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

/* Updates have theirs in test_kernels_optimizer.c. */
static void every_kernel_has_a_case(void **state)
{
    (void)state;
    for (int k = 0; k < VP_N_KERNELS; k++) {
        bool any = vp_kernel_operand((vp_kernel)k, "master") >= 0 ||
                   vp_kernel_info_of((vp_kernel)k)->kind == VP_KERNEL_TRANSFER;
        for (int i = 0; i < COUNT(cases); i++)
            any |= (int)cases[i].kernel == k;
        if (!any)
            fail_msg("no case of %s", vp_kernel_info_of((vp_kernel)k)->name);
    }
}

static void chunks_of_whole_tiles_move_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT(cases); i++) {
        vp_kernel   kernel    = cases[i].kernel;
        bool        by_sample = vp_kernel_int(kernel, "batch") == CUT;
        bool        is_sumsq  = kernel == VP_K_GRAD_SUMSQ;
        int64_t     unit      = by_sample ? 1 : is_sumsq ? 16384 * 8 : VP_TILE_TOKENS;
        kt_operands whole     = operands_of(&cases[i], 0);

        if (kernel == VP_K_CLIP_SCALE) {
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
static void check_micro_batches(const kt_case *whole_case, int n_parts)
{
    const vp_kernel_info *info      = vp_kernel_info_of(whole_case->kernel);
    kt_case               part_case = *whole_case;
    kt_operands whole = operands_of(whole_case, 0), parts = operands_of(whole_case, 0), place[4];

    part_case.ints[CUT] = whole_case->ints[CUT] / n_parts;
    kt_run(&whole.call);
    for (int m = 0; m < n_parts; m++) {
        place[m]                 = kt_operands_new(&part_case, 1, m);
        place[m].call.accumulate = m > 0;
        for (int i = 0; i < info->n_operands; i++) {
            const char *from = parts.call.operand[i];

            if (is_cut(whole_case, i) && info->operands[i].access == VP_READ)
                memcpy(place[m].call.operand[i], from + m * place[m].bytes[i],
                       (size_t)place[m].bytes[i]);
            else if (info->operands[i].access == VP_READ)
                memcpy(place[m].call.operand[i], from, (size_t)place[m].bytes[i]);
            else if (m > 0 && info->operands[i].access == VP_ACCUMULATE)
                memcpy(place[m].call.operand[i], place[m - 1].call.operand[i],
                       (size_t)place[m].bytes[i]);
        }
        kt_run(&place[m].call);
    }
    for (int i = 0; i < info->n_operands; i++)
        if (info->operands[i].access == VP_ACCUMULATE)
            assert_memory_equal(whole.call.operand[i], place[n_parts - 1].call.operand[i],
                                (size_t)whole.bytes[i]);
    for (int m = 0; m < n_parts; m++)
        kt_operands_release(&place[m]);
    kt_operands_release(&whole);
    kt_operands_release(&parts);
}

static void micro_batches_of_whole_tiles_move_no_bit(void **state)
{
    kt_case whole[] = {
        {.kernel = VP_K_LINEAR_BWD_WEIGHT,
         .linear = {.rows = 1024, .in = 200, .out = 300, .layout = VP_WEIGHT_IN_OUT}},
        {.kernel = VP_K_LAYERNORM_BWD, .layernorm = {.rows = 1024, .cols = 200}},
        {.kernel = VP_K_LAYERNORM_BWD, .layernorm = {.rows = 1024, .cols = 768}},
        {.kernel = VP_K_RMSNORM_BWD, .rmsnorm = {.rows = 1024, .cols = 1280, .groups = 1}},
        {.kernel  = VP_K_RMSNORM_BWD,
         .rmsnorm = {.rows = 1024, .cols = 40, .groups = 3, .unit_offset = 1}},
    };

    (void)state;
    for (int i = 0; i < COUNT(whole); i++)
        for (int n_parts = 2; n_parts <= 4; n_parts += 2)
            for (vp_dtype dtype = VP_DTYPE_F32; dtype <= VP_DTYPE_F16; dtype++) {
                whole[i].dtype = dtype;
                check_micro_batches(&whole[i], n_parts);
            }
}

/* ---- outputs on inputs' places ---- */

/* outputs[k] on inputs[k], k < n. */
static void check_shared(const kt_case *c, int n, const int *outputs, const int *inputs)
{
    kt_operands apart = operands_of(c, 0), shared = operands_of(c, 0);

    vp_backend_cpu()->set_threads(3);
    kt_run(&apart.call);
    for (int k = 0; k < n; k++)
        shared.call.operand[outputs[k]] = shared.call.operand[inputs[k]];
    kt_run(&shared.call);
    for (int i = 0; i < vp_kernel_info_of(c->kernel)->n_operands; i++) {
        bool overwritten = false;

        for (int k = 0; k < n; k++)
            overwritten = overwritten || inputs[k] == i;
        if (!overwritten && apart.call.operand[i] &&
            memcmp(apart.call.operand[i], shared.call.operand[i], (size_t)apart.bytes[i]) != 0)
            fail_msg("%s %s: operand %d differs with output %d on input %d%s",
                     vp_dtype_name(apart.call.dtype), vp_kernel_info_of(c->kernel)->name, i,
                     outputs[0], inputs[0], n > 1 ? " and one more" : "");
    }
    kt_operands_release(&apart);
    kt_operands_release(&shared);
}

static bool may_lie_on(const kt_case *c, int output, int input)
{
    return kt_has(c, output) && kt_has(c, input) && vp_kernel_may_share(c->kernel, output, input) &&
           bytes_at(c, output, c->ints[CUT]) == bytes_at(c, input, c->ints[CUT]);
}

/* Every pair that the op table allows, and every two pairs at once. */
static void an_output_on_its_inputs_place_moves_no_bit(void **state)
{
    int n_checked = 0;

    (void)state;
    for (int i = 0; i < COUNT(cases); i++) {
        const kt_case *c = &cases[i];
        int            n = vp_kernel_info_of(c->kernel)->n_operands;

        for (int a = 0; a < n * n; a++) {
            int outputs[2] = {a / n}, inputs[2] = {a % n};

            if (!may_lie_on(c, outputs[0], inputs[0]))
                continue;
            check_shared(c, 1, outputs, inputs);
            n_checked++;
            for (int b = a + 1; b < n * n; b++) {
                outputs[1] = b / n, inputs[1] = b % n;
                if (outputs[1] == outputs[0] || inputs[1] == inputs[0] ||
                    !may_lie_on(c, outputs[1], inputs[1]))
                    continue;
                check_shared(c, 2, outputs, inputs);
                n_checked++;
            }
        }
    }
    assert_true(n_checked > 60);
}

static void threads_move_no_drawn_parameter(void **state)
{
    enum { N = 100003 };
    float *one = malloc(N * sizeof(float)), *many = malloc(N * sizeof(float));

    (void)state;
    assert_true(one && many);
    vp_backend_cpu()->set_threads(1);
    vp_draw_normal(3, "wpe.weight", 0.02, 0, one, N);
    for (int n = 2; n <= 4; n++) {
        vp_backend_cpu()->set_threads(n);
        vp_draw_normal(3, "wpe.weight", 0.02, 0, many, N);
        assert_memory_equal(one, many, N * sizeof(float));
    }
    for (vp_cpu_isa isa = VP_CPU_BASELINE; isa <= VP_CPU_AVX2; isa++) {
        vp_cpu_isa_limit(isa);
        vp_draw_normal(3, "wpe.weight", 0.02, 0, many, N);
        vp_cpu_isa_limit(VP_CPU_AVX512);
        assert_memory_equal(one, many, N * sizeof(float));
    }
    free(one);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_has_a_case),
        cmocka_unit_test(threads_move_no_bit),
        cmocka_unit_test(the_place_of_a_buffer_moves_no_bit),
        cmocka_unit_test(a_repeated_call_moves_no_bit),
        cmocka_unit_test(the_instruction_set_of_our_loops_moves_no_bit),
        cmocka_unit_test(chunks_of_whole_tiles_move_no_bit),
        cmocka_unit_test(micro_batches_of_whole_tiles_move_no_bit),
        cmocka_unit_test(an_output_on_its_inputs_place_moves_no_bit),
        cmocka_unit_test(threads_move_no_drawn_parameter),
    };
    return cmocka_run_group_tests(tests, make_cases, NULL);
}
