/* Optimizers in every form that parameters and states are kept in: what is kept in fewer bits is
 * the fp32 result, rounded as kernels/cpu/update.h says. */
#include "tests/optimizer_test.h"

/* ---- what is kept in fewer bits is the fp32 result, rounded as update.h says ---- */

/* The nearest value of the map, and how far it is; v above zero may not take zero. */
static double distance_to_nearest(const vp_dynamic8 *map, double x)
{
    double least = INFINITY;

    for (int i = !map->is_signed && x > 0.0 ? 1 : 0; i < 256; i++)
        least = fmin(least, fabs((double)map->value[i] - x));
    return least;
}

static void expect_state(const opt_case *c, const opt_call *o, int i)
{
    const char  *name      = vp_kernel_info_of(c->kernel)->operands[i].name;
    bool         is_signed = !is_positive(c->kernel, i);
    const void  *state     = o->call.operand[i];
    const float *exact     = o->twin.operand[i];

    for (int64_t e = 0; e < o->n[i]; e++) {
        float x = state_value(state_kind(c), state, o->n[i], is_signed, e);

        if (state_kind(c) == VP_STATE_F32) {
            assert_memory_equal(&x, &exact[e], sizeof x);
        } else if (state_kind(c) == VP_STATE_BF16) {
            uint16_t expected = stochastic_bf16(exact[e], draw(&c->rng, is_signed ? 1 : 2, e));
            if (((const uint16_t *)state)[e] != expected)
                fail_msg("%s[%lld]: %.9g, expected %.9g", name, (long long)e, (double)x,
                         (double)bf16_value(expected));
        } else {
            const vp_dynamic8 *map   = vp_cpu_dynamic8(is_signed);
            int64_t            first = e - e % VP_STATE_BLOCK,
                    end              = vp_min_i64(o->n[i], first + VP_STATE_BLOCK);
            float  scale             = scales_of(o->call.operand[i], o->n[i])[e / VP_STATE_BLOCK];
            double part              = (double)exact[e] / (double)scale, distance;
            float  greatest          = 0.0f;

            for (int64_t j = first; e == first && j < end; j++)
                greatest = fmaxf(greatest, fabsf(exact[j]));
            if (e == first)
                assert_memory_equal(&scale, &greatest, sizeof scale);
            /* nearest, but for the rounding of a slope times x, 128 u, of the width of a part */
            distance = fabs((double)map->value[((const uint8_t *)state)[e]] - part);
            if (!(distance <= distance_to_nearest(map, part) + 256.0 * u * fabs(part)))
                fail_msg("%s[%lld]: %.9g of the scale became %.9g", name, (long long)e, part,
                         (double)x / (double)scale);
        }
    }
}

static void check_forms(const opt_case *c)
{
    const vp_kernel_info *info   = vp_kernel_info_of(c->kernel);
    int                   master = vp_kernel_operand(c->kernel, "master");
    opt_call              o;
    const float          *exact;

    if (!call_is_chosen())
        return;
    o     = opt_new(c, 2, 0);
    exact = c->master ? o.twin.operand[master] : o.twin.operand[OPT_P];
    run(&o.call);
    run(&o.twin);
    if (c->master)
        assert_memory_equal(o.call.operand[master], exact, (size_t)o.bytes[master]);
    for (int64_t e = 0; e < o.n[0]; e++) {
        uint16_t expected;
        if (c->dtype == VP_DTYPE_F32) {
            assert_memory_equal((float *)o.call.operand[OPT_P] + e, &exact[e], sizeof exact[e]);
            continue;
        }
        expected = c->dtype == VP_DTYPE_F16 ? nearest_fp16(exact[e])
                   : c->master              ? nearest_bf16(exact[e])
                                            : stochastic_bf16(exact[e], draw(&c->rng, 0, e));
        if (((uint16_t *)o.call.operand[OPT_P])[e] != expected)
            fail_msg("%s p[%lld]: %04x, expected %04x", info->name, (long long)e,
                     ((uint16_t *)o.call.operand[OPT_P])[e], expected);
    }
    for (int64_t e = 0; e < o.n[OPT_G]; e++) /* not written */
        assert_true((c->dtype == VP_DTYPE_BF16_GRADS
                         ? bf16_value(((const uint16_t *)o.call.operand[OPT_G])[e])
                         : ((const float *)o.call.operand[OPT_G])[e]) ==
                    ((const float *)o.twin.operand[OPT_G])[e]);
    for (int i = OPT_G + 1; i < info->n_operands; i++)
        if (o.call.operand[i] && i != master && info->operands[i].elem != VP_AS_CONTROL &&
            info->operands[i].access == VP_UPDATE)
            expect_state(c, &o, i);
    opt_release(&o);
}

static void parameters_and_states_are_the_fp32_result_rounded_once(void **state)
{
    int64_t counts[] = {1, 9, 255, 257, 4099, 16389};

    (void)state;
    for (int form = 0; form < N_FORMS; form++)
        for (int k = 0; k < COUNT(all_updates); k++) {
            opt_case c          = {.kernel = all_updates[k]};
            bool     by_element = vp_kernel_info_of(c.kernel)->kind == VP_KERNEL_UPDATE;

            set_form(&c, form);
            for (int i = 0; by_element && i < COUNT(counts); i++)
                for (int kind = VP_STATE_F32; kind <= last_state_kind(c.kernel); kind++) {
                    c.states = (vp_states_ints){.count = counts[i], .decay = 1, .state = kind};
                    check_forms(&c);
                }
            for (int i = 0; !by_element && i < COUNT(matrices); i++)
                for (int factored = 0; factored < (all_updates[k] == VP_K_ADAFACTOR ? 2 : 1);
                     factored++) {
                    c.adafactor = (vp_adafactor_ints){.rows     = matrices[i][0],
                                                      .cols     = matrices[i][1],
                                                      .decay    = 1,
                                                      .factored = factored};
                    check_forms(&c);
                }
        }
}

/* ---- stochastic rounding ---- */

/* sgd with gradient 0 and no decay: p stays, but for its rounding from an fp32 of 16 zero bits:
 * nothing to round. */
static void what_is_a_bf16_already_stays(void **state)
{
    opt_case c = {.kernel = VP_K_SGD,
                  .dtype  = VP_DTYPE_BF16,
                  .update = {.count = 4099, .decay = 0},
                  .rng    = stream};
    opt_call o = opt_new(&c, 5, 0);
    uint16_t before[4099];

    (void)state;
    memset(o.call.operand[OPT_G], 0, (size_t)o.bytes[OPT_G]);
    memcpy(before, o.call.operand[OPT_P], sizeof before);
    run(&o.call);
    assert_memory_equal(o.call.operand[OPT_P], before, sizeof before);
    opt_release(&o);
}

/* p = 1, g = -s / 128 and lr 1: exactly 1 + s / 128, and 1/128 is the distance of bf16 from 1
 * on. Each of N elements becomes 1 or 1 + 1/128, the second with probability s: a binomial of
 * standard deviation sqrt(N s (1 - s)) <= sqrt(N) / 2. Five of them, 2560 of 2^20, fail once in
 * 1.7 million. Neighbours are independent: both up s^2 N times, within 5 sqrt(3 N) / 2 (each
 * pair shares an element with two others, so its variance is at most 3 times s^2 N / 4). */
static void rounding_is_unbiased_and_neighbours_are_independent(void **state)
{
    enum { N = 1 << 20 };
    double shares[] = {0.001, 0.25, 0.5, 0.7, 0.999};

    (void)state;
    for (int s = 0; s < COUNT(shares); s++)
        for (uint32_t step = 0; step < 2; step++) {
            opt_case  c = {.kernel     = VP_K_SGD,
                           .dtype      = VP_DTYPE_BF16,
                           .update     = {.count = N, .decay = 0},
                           .grad_scale = 1.0,
                           .rng        = {.seed = 11, .op = 3}};
            opt_call  o = opt_new(&c, 1, 0);
            uint16_t *p = o.call.operand[OPT_P];
            float    *g = o.call.operand[OPT_G];
            /* lr 2^-7 is exact, and so is g: what is cut off is a whole number of 2^-16 of the
             * distance */
            double  share = floor(shares[s] * 65536.0) / 65536.0;
            int64_t n_up = 0, n_pairs = 0;

            ((vp_control *)o.call.operand[VP_SGD_CONTROL])->lr = 0x1p-7;
            set_step(&o, step);
            for (int64_t i = 0; i < N; i++) {
                p[i] = 0x3f80; /* 1 */
                g[i] = (float)-share;
            }
            run(&o.call);
            for (int64_t i = 0; i < N; i++) {
                assert_true(p[i] == 0x3f80 || p[i] == 0x3f81);
                n_up += p[i] == 0x3f81;
                n_pairs += i > 0 && p[i] == 0x3f81 && p[i - 1] == 0x3f81;
            }
            assert_true(fabs((double)n_up - share * N) <= 2560.0);
            assert_true(fabs((double)n_pairs - share * share * N) <= 5.0 * sqrt(3.0 * N) / 2.0);
            opt_release(&o);
        }
}

/* An element's bits are its own: in a longer call, under another first_sample, beside other
 * states, they are the same; with another seed, step or op, and for m, v and p of one element,
 * they are others. */
static void rounding_depends_on_seed_step_op_and_element_only(void **state)
{
    enum { SHORT = 1000, LONG = 20000 };
    opt_case a    = {.kernel = VP_K_SGD,
                     .dtype  = VP_DTYPE_BF16,
                     .update = {.count = SHORT, .decay = 0},
                     .rng    = stream},
             b[4] = {a, a, a, a};
    uint16_t before[3][SHORT];

    (void)state;
    b[0].rng.first_sample = 99;
    b[1].rng.seed         = 8;
    b[2].rng.step         = 3;
    b[3].rng.op           = 6;
    for (int i = -2; i < 4; i++) {
        opt_case  c = i < 0 ? a : b[i];
        opt_call  o;
        uint16_t *p;
        float    *g;
        int64_t   n_equal = 0;

        c.update.count                                     = i == -1 ? LONG : SHORT;
        o                                                  = opt_new(&c, 1, 0);
        p                                                  = o.call.operand[OPT_P];
        g                                                  = o.call.operand[OPT_G];
        ((vp_control *)o.call.operand[VP_SGD_CONTROL])->lr = 0x1p-7;
        set_step(&o, c.rng.step);
        for (int64_t e = 0; e < c.update.count; e++) {
            p[e] = 0x3f80;
            g[e] = -2.0f / 3.0f; /* a half after grad_scale: up or down as a fair coin */
        }
        run(&o.call);
        if (i == -2)
            memcpy(before[0], p, sizeof before[0]);
        for (int e = 0; e < SHORT; e++)
            n_equal += p[e] == before[0][e];
        if (i <= 0)
            assert_int_equal(n_equal, SHORT);
        else /* fair coins: 500 +- 5 * 16 */
            assert_true(llabs(n_equal - SHORT / 2) < 80);
        opt_release(&o);
    }
    for (int use = 0; use < 3; use++)
        for (int e = 0; e < SHORT; e++)
            before[use][e] = (uint16_t)draw(&stream, (uint64_t)use, e);
    for (int use = 0; use < 3; use++) {
        int64_t n_equal = 0;
        for (int e = 0; e < SHORT; e++)
            n_equal += before[use][e] >> 15 == before[(use + 1) % 3][e] >> 15;
        assert_true(llabs(n_equal - SHORT / 2) < 80);
    }
}

/* bf16 v under beta2 = 0.999. Gradients of size 1 for 1000 steps, then of 0.1 for 3000: v falls
 * from about 0.63 towards 0.01 + 0.63 0.999^3000 = 0.0417. Rounded to nearest it would stay, a
 * decay of 0.1 % being less than half a unit in the last place. Stochastic rounding leaves the
 * mean alone; with a noise of 11 % (update.h) the mean of 1024 is right to 5 * 0.35 %. */
static void a_bf16_second_moment_does_not_stall(void **state)
{
    enum { N = 1024 };
    vp_optimizer_numbers slow = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    opt_case             c    = {.kernel     = VP_K_ADAMW,
                                 .dtype      = VP_DTYPE_F32,
                                 .states     = {.count = N, .decay = 0, .state = VP_STATE_BF16},
                                 .grad_scale = 1.0};
    opt_call             o    = opt_new(&c, 1, 0);
    float               *g = o.call.operand[OPT_G], *exact = o.twin.operand[VP_ADAMW_V];
    double               ratio = 0.0;

    (void)state;
    o.call.optimizer = o.twin.optimizer = &slow;
    o.twin.operand[OPT_G]               = g;
    for (int i = VP_ADAMW_M; i <= VP_ADAMW_V; i++) {
        memset(o.call.operand[i], 0, (size_t)o.bytes[i]);
        memset(o.twin.operand[i], 0, 4 * N);
    }
    for (uint32_t t = 0; t < 4000; t++) {
        for (int i = 0; i < N; i++)
            g[i] = (float)(normal() * (t < 1000 ? 1.0 : 0.1));
        set_step(&o, t);
        run(&o.call);
        run(&o.twin);
    }
    for (int i = 0; i < N; i++)
        ratio += (double)state_value(VP_STATE_BF16, o.call.operand[VP_ADAMW_V], N, false, i) /
                 (double)exact[i] / N;
    assert_true(fabs(ratio - 1.0) < 0.0175);
    opt_release(&o);
}

/* ---- 8-bit states ---- */

static void the_8_bit_maps_are_the_published_ones(void **state)
{
    /* By hand. With a sign, decade 0 (to 1e-6) has one part, middle 0.55e-6; decade 1 two,
     * 0.325e-5 and 0.775e-5; decade 6 sixty-four, the first 0.1 + 0.9 / 128, the last 1 - 0.9 /
     * 128. Without, decade 0 has two and decade 6 a hundred and twenty-eight. The same as
     * bitsandbytes' create_dynamic_map(signed) gives, there computed in float: 4 u of
     * difference. */
    static const struct {
        bool   is_signed;
        int    code;
        double value;
    } known[] = {
        {true, 127, 0.0},          {true, 128, 0.55e-6},  {true, 126, -0.55e-6},
        {true, 129, 0.325e-5},     {true, 130, 0.775e-5}, {true, 191, 0.10703125},
        {true, 254, 0.99296875},   {true, 255, 1.0},      {true, 0, -0.99296875},
        {true, 1, -0.97890625},    {false, 0, 0.0},       {false, 1, 0.325e-6},
        {false, 2, 0.775e-6},      {false, 3, 0.2125e-5}, {false, 127, 0.103515625},
        {false, 254, 0.996484375}, {false, 255, 1.0},
    };
    double sum[2] = {0.0}, squares[2] = {0.0};

    (void)state;
    CPU_ONLY();
    for (int i = 0; i < COUNT(known); i++)
        assert_true(fabs((double)vp_cpu_dynamic8(known[i].is_signed)->value[known[i].code] -
                         known[i].value) <= 4.0 * u * fabs(known[i].value));
    for (int is_signed = 0; is_signed < 2; is_signed++)
        for (int i = 0; i < 256; i++) {
            double x = (double)vp_cpu_dynamic8(is_signed != 0)->value[i];
            assert_true(i == 0 || x > (double)vp_cpu_dynamic8(is_signed != 0)->value[i - 1]);
            sum[is_signed] += x;
            squares[is_signed] += x * x;
        }
    /* The middles of n parts of [0.1, 1] sum to 0.55 n, decade k times 10^(k-6): signed all
     * cancels but 1; unsigned 1 + 0.55 sum 2^(k+1) 10^(k-6) = 1 + 0.55 (2e-6 (20^7 - 1) / 19) =
     * 75.1052631 */
    assert_true(fabs(sum[1] - 1.0) < 1e-6 &&
                fabs(sum[0] - (1.0 + 0.55 * 2e-6 * (pow(20.0, 7.0) - 1.0) / 19.0)) < 1e-5);
    assert_true(squares[0] > squares[1] / 2.0);
}

/* The half width of the part that a magnitude lies in: 10^(k-6) 0.45 / n_k in decade k; between
 * two decades the gap is smaller than the upper one's part. Below the least magnitude: up to
 * half of it, or to it where zero is forbidden: 0.325e-6. */
static double coding_error_bound(bool is_signed, double a)
{
    double bound = is_signed ? 0.45e-6 : 0.325e-6;

    for (int k = 0; k < 7; k++)
        if (a >= pow(10.0, k - 7))
            bound = fmax(bound, pow(10.0, k - 6) * 0.45 / (double)(1 << (is_signed ? k : k + 1)));
    return bound + 64.0 * u * a;
}

static void coding_in_8_bits_errs_by_half_a_part_at_most(void **state)
{
    (void)state;
    CPU_ONLY();
    for (int is_signed = 0; is_signed < 2; is_signed++)
        for (int seed = 1; seed <= 400; seed++) {
            const vp_dynamic8 *map = vp_cpu_dynamic8(is_signed != 0);
            float              x[VP_STATE_BLOCK], y[VP_STATE_BLOCK], scale;
            uint8_t            code[VP_STATE_BLOCK];
            double             size = pow(10.0, seed % 60 - 30);
            int64_t            n    = 1 + seed % VP_STATE_BLOCK;

            random_state = (uint64_t)seed * 2654435761u;
            for (int i = 0; i < n; i++) { /* magnitudes over nine decades, zeros among them */
                double a = i % 11 == 10 ? 0.0 : size * pow(10.0, -9.0 * uniform());
                x[i]     = (float)(is_signed && uniform() < 0.5 ? -a : a);
            }
            scale = vp_dynamic8_encode(map, x, n, code);
            vp_dynamic8_decode(map, code, scale, n, y);
            for (int i = 0; i < n; i++) {
                double a = fabs((double)x[i]) / (double)scale;
                assert_true(fabs((double)x[i]) <= (double)scale);
                assert_true(fabs((double)y[i] - (double)x[i]) <=
                            coding_error_bound(is_signed != 0, a) * (double)scale);
                assert_true((x[i] == 0.0f) <= (y[i] == 0.0f));
                assert_true(is_signed || (x[i] > 0.0f) == (y[i] > 0.0f));
                assert_true(is_signed == 0 || x[i] < 0.0f || a < 1.0 || y[i] == x[i]);
            }
        }
}

static void coding_a_value_of_the_map_gives_its_code(void **state)
{
    (void)state;
    CPU_ONLY();
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const vp_dynamic8 *map = vp_cpu_dynamic8(is_signed != 0);
        float              x[256];
        uint8_t            code[256];

        memcpy(x, map->value, sizeof x);
        assert_true(vp_dynamic8_encode(map, x, 256, code) == 1.0f);
        for (int i = 0; i < 256; i++)
            assert_int_equal(code[i], i);
    }
}

static void an_8_bit_block_of_zeros_is_zeros_and_a_nan_is_seen(void **state)
{
    float   x[3] = {0.0f, -0.0f, 0.0f}, y[3];
    uint8_t code[3];
    float   bad[] = {NAN, -NAN, INFINITY, -INFINITY};

    (void)state;
    CPU_ONLY();
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const vp_dynamic8 *map      = vp_cpu_dynamic8(is_signed != 0);
        uint8_t            zeros[3] = {0, 0, 0};

        assert_true(vp_dynamic8_encode(map, x, 3, code) == 0.0f);
        vp_dynamic8_decode(map, code, 0.0f, 3, y);
        assert_true(y[0] == 0.0f && y[1] == 0.0f && y[2] == 0.0f);
        vp_dynamic8_decode(map, zeros, 0.0f, 3, y); /* as a plan's zeroed memory begins */
        assert_true(y[0] == 0.0f && y[1] == 0.0f && y[2] == 0.0f);
        for (int i = 0; i < COUNT(bad); i++) {
            float with[3] = {1.0f, bad[i], 2.0f};
            float scale   = vp_dynamic8_encode(map, with, 3, code);
            vp_dynamic8_decode(map, code, scale, 3, y);
            assert_true(!isfinite(y[1]));
        }
    }
}

/* loss = sum a_i (x_i - c_i)^2 / 2, a over two decades, noise of 0.1 |a| on the gradient, lr
 * falling from 0.05 to 0 as a line, so that all forms come to rest near c. Returns the mean
 * distance of the call's and of the twin's p from c, and of one from the other, over the mean
 * |x_0 - c| = 1. */
static void train_quadratic(vp_state_kind kind, vp_dtype dtype, double out[3])
{
    enum { N = 4096, STEPS = 200 };
    opt_case      c = {.kernel     = VP_K_ADAMW,
                       .dtype      = dtype,
                       .states     = {.count = N, .decay = 0, .state = kind},
                       .grad_scale = 1.0,
                       .rng        = stream};
    opt_call      o = opt_new(&c, 1, 0);
    static double a[N], goal[N], noise[N];

    for (int i = 0; i < N; i++) {
        a[i]    = pow(10.0, -2.0 * uniform());
        goal[i] = ((float *)o.twin.operand[OPT_P])[i] + (uniform() < 0.5 ? -2.0 : 2.0) * uniform();
    }
    for (int i = VP_ADAMW_M; i <= VP_ADAMW_V; i++) {
        memset(o.call.operand[i], 0, (size_t)o.bytes[i]);
        memset(o.twin.operand[i], 0, 4 * N);
    }
    for (int t = 0; t < STEPS; t++) {
        vp_control *control = o.call.operand[VP_ADAMW_CONTROL];

        control->lr = 0.05 * (1.0 - (double)t / STEPS);
        set_step(&o, (uint32_t)t);
        for (int i = 0; i < N; i++)
            noise[i] = 0.1 * a[i] * normal();
        for (int which = 0; which < 2; which++) {
            const vp_kernel_call *call = which ? &o.twin : &o.call;
            for (int i = 0; i < N; i++) {
                double p                           = (double)(call->dtype == VP_DTYPE_BF16
                                                                  ? bf16_value(((uint16_t *)call->operand[OPT_P])[i])
                                                                  : ((float *)call->operand[OPT_P])[i]);
                ((float *)call->operand[OPT_G])[i] = (float)(a[i] * (p - goal[i]) + noise[i]);
            }
            run(call);
        }
    }
    out[0] = out[1] = out[2] = 0.0;
    for (int i = 0; i < N; i++) {
        double p =
            (double)(dtype == VP_DTYPE_BF16 ? bf16_value(((uint16_t *)o.call.operand[OPT_P])[i])
                                            : ((float *)o.call.operand[OPT_P])[i]);
        double q = (double)((float *)o.twin.operand[OPT_P])[i];
        out[0] += fabs(p - goal[i]) / N;
        out[1] += fabs(q - goal[i]) / N;
        out[2] += fabs(p - q) / N;
    }
    opt_release(&o);
}

/* Mean distances, where p has to go 1 and fp32 itself comes to rest 0.013 from its goal. States
 * err by 0.4 % (bf16) or 1 to 7 % (8 bits) of themselves, in directions that change from step to
 * step; what of it is left when lr ends is of the order of the last steps: measured 0.0001 and
 * 0.0009. A bf16 p is known to its distance of 0.008 to 0.016 between 1 and 4: measured 0.006. */
static void fewer_bits_end_a_quadratic_where_fp32_does(void **state)
{
    double d[3];

    (void)state;
    train_quadratic(VP_STATE_F32, VP_DTYPE_F32, d);
    assert_true(d[2] == 0.0);
    train_quadratic(VP_STATE_BF16, VP_DTYPE_F32, d);
    assert_true(d[2] < 0.001 && d[0] < d[1] + 0.001);
    train_quadratic(VP_STATE_BLOCK8, VP_DTYPE_F32, d);
    assert_true(d[2] < 0.004 && d[0] < d[1] + 0.002);
    train_quadratic(VP_STATE_BLOCK8, VP_DTYPE_BF16, d);
    assert_true(d[2] < 0.02 && d[0] < d[1] + 0.005);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_and_states_are_the_fp32_result_rounded_once),
        cmocka_unit_test(what_is_a_bf16_already_stays),
        cmocka_unit_test(rounding_is_unbiased_and_neighbours_are_independent),
        cmocka_unit_test(rounding_depends_on_seed_step_op_and_element_only),
        cmocka_unit_test(a_bf16_second_moment_does_not_stall),
        cmocka_unit_test(the_8_bit_maps_are_the_published_ones),
        cmocka_unit_test(coding_in_8_bits_errs_by_half_a_part_at_most),
        cmocka_unit_test(coding_a_value_of_the_map_gives_its_code),
        cmocka_unit_test(an_8_bit_block_of_zeros_is_zeros_and_a_nan_is_seen),
        cmocka_unit_test(fewer_bits_end_a_quadratic_where_fp32_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
