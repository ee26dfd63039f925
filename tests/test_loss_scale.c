/* The loss scale of fp16-mixed in the kernels that know of it: by torch.amp.GradScaler's rule, worked
 * by hand; and what a skipped step leaves. */
#include "tests/optimizer_test.h"

#include <float.h>

/* ---- the scale ---- */

/* One step whose gradients have this sum of squares. */
static void end_step(vp_scaled_control *c, double sumsq, double clip_norm)
{
    vp_kernel_call call = {.kernel     = VP_K_CLIP_SCALE,
                           .dtype      = VP_DTYPE_F32,
                           .operand    = {[VP_CLIP_SCALE_CONTROL] = c},
                           .clip_reals = {.clip_norm = clip_norm}};

    c->control.grad_sumsq = sumsq;
    run(&call);
}

static void the_scale_is_halved_by_a_skip_and_doubled_by_clean_steps(void **state)
{
    /* an interval of 3: clean clean skip clean clean clean clean skip(NaN): the third clean step in a
     * row doubles, a skip begins the count anew */
    static const struct {
        double sumsq, scale, clean, skipped, skips;
    } steps[] = {{1, 8, 1, 0, 0}, {1, 8, 2, 0, 0}, {INFINITY, 4, 0, 1, 1}, {1, 4, 1, 1, 0},
                 {1, 4, 2, 1, 0}, {1, 8, 0, 1, 0}, {1, 8, 1, 1, 0},        {NAN, 4, 0, 2, 1}};
    vp_scaled_control c = {.control = {.growth_interval = 3}, .loss_scale = 8};

    (void)state;
    for (int i = 0; i < COUNT(steps); i++) {
        end_step(&c, steps[i].sumsq, 0);
        assert_true(c.loss_scale == steps[i].scale && c.clean_steps == steps[i].clean);
        assert_true(c.skipped_steps == steps[i].skipped && c.skips == steps[i].skips);
    }
}

static void the_scale_grows_while_a_float_holds_it(void **state)
{
    vp_scaled_control c = {.control = {.growth_interval = 1}, .loss_scale = 0x1p126};

    (void)state;
    end_step(&c, 1, 0);
    assert_true(c.loss_scale == 0x1p127);
    end_step(&c, 1, 0); /* 2^128 is more than FLT_MAX */
    assert_true(c.loss_scale == 0x1p127 && c.clean_steps == 0);
    assert_true(c.loss_scale < (double)FLT_MAX);
}

/* Gradients of 1024 times the loss whose squares sum to (3 * 1024)^2: the true norm is 3. */
static void norm_and_clipping_are_the_true_gradients(void **state)
{
    vp_scaled_control c = {.control = {.growth_interval = 9}, .loss_scale = 1024};

    (void)state;
    end_step(&c, 9.0 * 1024 * 1024, 0);
    assert_true(c.control.grad_norm == 3.0 && c.control.grad_scale == 1.0 / 1024);
    end_step(&c, 9.0 * 1024 * 1024, 6.0);
    assert_true(c.control.grad_norm == 3.0 && c.control.grad_scale == 1.0 / 1024);
    end_step(&c, 9.0 * 1024 * 1024, 1.5);
    assert_true(fabs(c.control.grad_scale * 1024 * (3.0 + 1e-6) - 1.5) < 1e-12);
}

static void without_a_scale_nothing_behind_the_control_block_is_touched(void **state)
{
    vp_scaled_control c = {.loss_scale = 7, .clean_steps = 7, .skipped_steps = 7, .skips = 7};

    (void)state;
    end_step(&c, INFINITY, 1.0);
    assert_true(c.control.grad_norm == INFINITY && c.control.grad_scale == 0.0);
    assert_true(c.loss_scale == 7 && c.clean_steps == 7 && c.skipped_steps == 7 && c.skips == 7);
}

/* ---- updates ---- */

/* A call of every rule, its control block one that scales. */
static opt_call scaled_call(vp_kernel k, int form, int kind, vp_scaled_control *control)
{
    opt_case c = {.kernel = k};
    opt_call o;

    set_form(&c, form);
    if (vp_kernel_info_of(k)->kind == VP_KERNEL_UPDATE)
        c.states = (vp_states_ints){.count = 4099, .decay = 1, .state = kind};
    else
        c.adafactor = (vp_adafactor_ints){
            .rows = 33, .cols = 257, .decay = 1, .factored = k == VP_K_ADAFACTOR};
    o        = opt_new(&c, 3, 0);
    *control = (vp_scaled_control){
        .control = *(const vp_control *)o.call.operand[vp_kernel_operand(k, "control")]};
    control->control.growth_interval                = 2000;
    control->loss_scale                             = 65536;
    o.call.operand[vp_kernel_operand(k, "control")] = control;
    return o;
}

static void a_skipped_step_moves_no_bit(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT(all_updates); k++)
        for (int form = 0; form < N_FORMS; form++)
            for (int kind = VP_STATE_F32; kind <= last_state_kind(all_updates[k]); kind++) {
                const vp_kernel_info *info = vp_kernel_info_of(all_updates[k]);
                vp_scaled_control     control;
                opt_call              o = scaled_call(all_updates[k], form, kind, &control);
                void                 *before[VP_MAX_OPERANDS] = {0};

                control.skips = 1;
                for (int i = 0; i < info->n_operands; i++)
                    if (o.call.operand[i] && info->operands[i].access == VP_UPDATE) {
                        before[i] = malloc((size_t)o.bytes[i]);
                        assert_non_null(before[i]);
                        memcpy(before[i], o.call.operand[i], (size_t)o.bytes[i]);
                    }
                memset(o.call.operand[OPT_G], 0xff, 4); /* no number in 16 bits or 32 */
                run(&o.call);
                for (int i = 0; i < info->n_operands; i++)
                    if (before[i]) {
                        assert_memory_equal(before[i], o.call.operand[i], (size_t)o.bytes[i]);
                        free(before[i]);
                    }
                opt_release(&o);
            }
}

/* Step 3 of 5 without a scale, and step 5 of which two were skipped: the same t. */
static void an_optimizer_counts_updates_not_steps(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT(all_updates); k++) {
        const vp_kernel_info *info = vp_kernel_info_of(all_updates[k]);
        vp_scaled_control     control[2];
        opt_call              o[2];

        for (int i = 0; i < 2; i++) {
            o[i] = scaled_call(all_updates[k], FORM_FP16, VP_STATE_F32, &control[i]);
            if (i == 1) {
                control[i].control.step  = 5;
                control[i].skipped_steps = 2;
            }
            run(&o[i].call);
        }
        for (int i = 0; i < info->n_operands; i++)
            if (o[0].call.operand[i] && info->operands[i].access == VP_UPDATE)
                assert_memory_equal(o[0].call.operand[i], o[1].call.operand[i],
                                    (size_t)o[0].bytes[i]);
        opt_release(&o[0]);
        opt_release(&o[1]);
    }
}

/* ---- loss ---- */

/* A power of two moves exponents only. */
static void the_gradient_of_the_loss_is_scaled_and_the_loss_is_not(void **state)
{
    enum {
        ROWS  = 3,
        VOCAB = 36
    }; /* both at multiples of 16 bytes: the order of sums follows that */
    _Alignas(64) float logits[2][ROWS * VOCAB];
    float              row_loss[2][ROWS];
    int32_t            labels[ROWS] = {5, VP_IGNORE_LABEL, 35};
    vp_scaled_control  control[2]   = {
           {.control = {.inv_n_targets = 0.25}},
           {.control = {.inv_n_targets = 0.25, .growth_interval = 2000}, .loss_scale = 1024}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        vp_kernel_call call = {.kernel        = VP_K_CROSS_ENTROPY,
                               .dtype         = VP_DTYPE_F32,
                               .operand       = {[VP_CROSS_ENTROPY_LOGITS]   = logits[i],
                                                 [VP_CROSS_ENTROPY_LABELS]   = labels,
                                                 [VP_CROSS_ENTROPY_CONTROL]  = &control[i],
                                                 [VP_CROSS_ENTROPY_ROW_LOSS] = row_loss[i]},
                               .cross_entropy = {.rows = ROWS, .vocab = VOCAB}};

        random_state = 88172645463325252u;
        for (int e = 0; e < ROWS * VOCAB; e++)
            logits[i][e] = (float)(4.0 * uniform() - 2.0);
        run(&call);
    }
    assert_memory_equal(row_loss[0], row_loss[1], sizeof row_loss[0]);
    for (int e = 0; e < ROWS * VOCAB; e++)
        assert_true(logits[1][e] == 1024.0f * logits[0][e]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scale_is_halved_by_a_skip_and_doubled_by_clean_steps),
        cmocka_unit_test(the_scale_grows_while_a_float_holds_it),
        cmocka_unit_test(norm_and_clipping_are_the_true_gradients),
        cmocka_unit_test(without_a_scale_nothing_behind_the_control_block_is_touched),
        cmocka_unit_test(a_skipped_step_moves_no_bit),
        cmocka_unit_test(an_optimizer_counts_updates_not_steps),
        cmocka_unit_test(the_gradient_of_the_loss_is_scaled_and_the_loss_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
