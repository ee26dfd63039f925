/* The table of kernels: that nothing is missing, and what its rules say, worked by hand. A kernel
 * without a CPU kernel or a reference does not link; what else can be forgotten is named here. */
#include "base_test.h"

#include "plan/op.h"
#include "plan/recipe.h"
#include "plan/workspace.h"
#include "planner/lowering/semantics.h"

#include "base/checked.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static const char *name_of(int k)
{
    return vp_kernel_info_of((vp_kernel)k)->name;
}

/* ---- names ---- */

static void every_kernel_operand_and_attribute_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int k = 0; k < VP_N_KERNELS; k++) {
        const vp_kernel_info *x = vp_kernel_info_of((vp_kernel)k);

        assert_int_equal(vp_kernel_by_name(x->name), k);
        assert_true(x->n_operands < VP_MAX_OPERANDS); /* and room for the workspace */
        for (int i = 0; i < x->n_operands; i++)
            if (vp_kernel_operand((vp_kernel)k, x->operands[i].name) != i)
                fail_msg("%s has two operands %s", x->name, x->operands[i].name);
        for (int i = 0; i < x->n_ints; i++) {
            if (vp_kernel_int((vp_kernel)k, x->ints[i].name) != i)
                fail_msg("%s has two attributes %s", x->name, x->ints[i].name);
            assert_true(x->ints[i].min >= 0 && x->ints[i].min <= x->ints[i].max);
        }
    }
    assert_int_equal(vp_kernel_by_name("none of them"), VP_N_KERNELS);
}

static void attributes_lie_where_their_names_say(void **state)
{
    union {
        VP_NAMED_INTS;
    } x = {.ints = {11, 12, 13, 14, 15, 16, 17, 18, 19}};

    (void)state;
    /* in the order of plan files: batch seq heads kv_heads head_dim layout causal window probs */
    assert_true(x.attention.batch == 11 && x.attention.seq == 12 && x.attention.heads == 13);
    assert_true(x.attention.kv_heads == 14 && x.attention.head_dim == 15);
    assert_true(x.attention.layout == 16 && x.attention.causal == 17);
    assert_true(x.attention.window == 18 && x.attention.probs == 19);
    assert_int_equal(x.linear.layout, x.ints[vp_kernel_int(VP_K_LINEAR_FWD, "layout")]);
    assert_ptr_equal(vp_linear_ints_of(x.ints), x.ints);
    /* sets that begin as another */
    assert_true(x.embedding.rows == x.embedding_bwd.rows &&
                x.embedding.cols == x.embedding_bwd.cols);
    assert_true(x.embedding.vocab == x.embedding_bwd.vocab &&
                x.embedding.seq == x.embedding_bwd.seq);
    assert_true(x.embedding.position_offset == x.embedding_bwd.position_offset);
    assert_true(x.embedding.skip_padding == x.embedding_bwd.skip_padding);
    assert_true(x.update.count == x.states.count && x.update.decay == x.states.decay);
    assert_true(x.cross_entropy.rows == x.token_rows.rows);
    assert_true(x.linear.rows == x.linear_add.rows && x.linear.in == x.linear_add.in);
    assert_true(x.linear.out == x.linear_add.out && x.linear.layout == x.linear_add.layout);
}

/* ---- who calls a kernel, and with what ---- */

static const vp_semantics *const semantics[] = {
    &vp_semantics_vplan_fp32,       &vp_semantics_vplan_fp32_math,
    &vp_semantics_vplan_tf32,       &vp_semantics_vplan_tf32_math,
    &vp_semantics_vplan_bf16,       &vp_semantics_vplan_bf16_math,
    &vp_semantics_vplan_bf16_grads, &vp_semantics_vplan_bf16_grads_math,
    &vp_semantics_vplan_fp16,       &vp_semantics_vplan_fp16_math};

static void mark(bool *called, const vp_sem_step *steps)
{
    for (int s = 0; s < VP_SEM_MAX_STEPS && !vp_sem_step_is_end(&steps[s]); s++) {
        const vp_kernel_info *x = vp_kernel_info_of(steps[s].kernel);

        called[steps[s].kernel] = true;
        for (int i = 0; i < VP_MAX_OPERANDS; i++) {
            bool given = steps[s].operands[i] != VP_REF_NONE;

            if (i >= x->n_operands ? given : !given && !x->operands[i].optional)
                fail_msg("a row calls %s %s", x->name,
                         given ? "with an operand too many" : x->operands[i].name);
        }
    }
}

static void every_kernel_is_called_by_a_row_or_by_the_plan_itself(void **state)
{
    /* sums of gradients that meet, memory, copies: lower.c and who plans the copies */
    static const vp_kernel own[] = {VP_K_COPY, VP_K_ZERO, VP_K_GRAD_ADD, VP_K_COPY_START,
                                    VP_K_COPY_DONE};
    bool                   called[VP_N_KERNELS] = {false};

    (void)state;
    for (int i = 0; i < COUNT(own); i++)
        called[own[i]] = true;
    for (int s = 0; s < COUNT(semantics); s++) {
        for (int i = 0; i < semantics[s]->n_rows; i++) {
            mark(called, semantics[s]->rows[i].forward);
            mark(called, semantics[s]->rows[i].forward_added);
            mark(called, semantics[s]->rows[i].backward);
        }
        mark(called, semantics[s]->norm->steps);
        mark(called, semantics[s]->clip->steps);
        for (int i = 0; i < semantics[s]->n_updates; i++)
            mark(called, semantics[s]->updates[i].steps);
    }
    for (int k = 0; k < VP_N_KERNELS; k++)
        if (!called[k])
            fail_msg("no row of the semantics calls %s", name_of(k));
}

static void check_attributes(const vp_sem_row *row, const vp_sem_step *steps)
{
    vp_graph_op  op    = {.op      = row->op,
                          .in      = {0, 1, -1, -1},
                          .groups  = 1,
                          .heads   = 2,
                          .param   = {{.used = true}, {.used = true}},
                          .softcap = 0.5};
    vp_sem_shape shape = {.op        = &op,
                          .batch     = 2,
                          .seq       = 3,
                          .rows      = 6,
                          .cols_in   = 8,
                          .cols_out  = 4,
                          .cols_out1 = 2,
                          .ids       = 7};

    for (int s = 0; s < VP_SEM_MAX_STEPS && !vp_sem_step_is_end(&steps[s]); s++) {
        vp_step     call = {.kernel = steps[s].kernel};
        const char *missing;

        shape.step = &steps[s];

        if (!row->attributes)
            fail_msg("the row that calls %s gives it no attributes", name_of(call.kernel));
        missing = vp_sem_attributes(row, &shape, &call);
        if (missing)
            fail_msg("the row that calls %s leaves out its attribute %s", name_of(call.kernel),
                     missing);
        for (int i = vp_kernel_info_of(call.kernel)->n_ints; i < VP_MAX_INTS; i++)
            assert_int_equal(call.ints[i], 0);
    }
}

static void every_row_gives_its_kernels_all_their_attributes(void **state)
{
    (void)state;
    for (int s = 0; s < COUNT(semantics); s++)
        for (int i = 0; i < semantics[s]->n_rows; i++) {
            check_attributes(&semantics[s]->rows[i], semantics[s]->rows[i].forward);
            check_attributes(&semantics[s]->rows[i], semantics[s]->rows[i].forward_added);
            check_attributes(&semantics[s]->rows[i], semantics[s]->rows[i].backward);
        }
}

static void nothing_given(const vp_sem_shape *x, vp_step *call)
{
    (void)x;
    call->linear.rows = call->linear.in = call->linear.layout = 1;
}

static void an_attribute_that_a_row_forgets_is_named(void **state)
{
    vp_sem_row   row   = {.op = VP_OP_LINEAR, .attributes = nothing_given};
    vp_sem_shape shape = {.batch = 1, .seq = 1};
    vp_step      call  = {.kernel = VP_K_LINEAR_FWD};

    (void)state;
    assert_string_equal(vp_sem_attributes(&row, &shape, &call), "out");
}

static void every_graph_op_has_a_row(void **state)
{
    (void)state;
    for (int op = 0; op < VP_N_OPS; op++)
        assert_int_equal(vp_semantics_row(&vp_semantics_vplan_fp32, (vp_op)op)->op, op);
}

/* ---- optimizers ---- */

static void updates_have_their_parameter_first_and_its_gradient_second(void **state)
{
    vp_update_shape shape = {.rows = 6, .cols = 8, .block_matrix = true, .decay = true};

    (void)state;
    for (int o = 0; o < VP_N_OPTIMIZERS; o++) {
        vp_kernel             k                 = vp_optimizer_kernel((vp_optimizer)o, &shape);
        const vp_kernel_info *x                 = vp_kernel_info_of(k);
        int64_t               ints[VP_MAX_INTS] = {0};

        assert_string_equal(x->operands[VP_ADAMW_P].name, "p");
        assert_string_equal(x->operands[VP_ADAMW_G].name, "g");
        assert_true(vp_kernel_operand(k, "master") > 0 && vp_kernel_operand(k, "control") > 0);
        if (!vp_semantics_update(&vp_semantics_vplan_fp32, k))
            fail_msg("no row of the semantics updates by %s", x->name);
        vp_update_attributes((vp_optimizer)o, &shape, k, ints); /* asserts that each is known */
        assert_int_equal(vp_kernel_operand_elements(k, ints, VP_ADAMW_P), 48);
    }
}

static void states_are_as_large_as_the_table_says(void **state)
{
    vp_update_shape matrix = {.rows = 100, .cols = 80, .block_matrix = true},
                    vector = {.rows = 1, .cols = 80};

    (void)state;
    /* 8000 elements in fp32, in bf16, and a byte each with a float for each block of 256 */
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_ADAMW, &matrix, 0), 32000);
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_ADAMW_BF16, &matrix, 1), 16000);
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_ADAMW_8BIT, &matrix, 1), 8000 + 4 * 32);
    /* below 4096 elements fp32 */
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_ADAMW_8BIT, &vector, 1), 320);
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_SGD, &matrix, 0), 0);
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_LION, &matrix, 1), 0);
    /* a float for each row, and one for each column; a vector's whole */
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_ADAFACTOR, &matrix, 0), 400);
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_ADAFACTOR, &matrix, 1), 320);
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_ADAFACTOR, &vector, 0), 320);
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_ADAFACTOR, &vector, 1), 0);
    /* Muon: a momentum; what is no matrix of a block is AdamW's. 2 * 8000 + 2 * 80^2 floats */
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_MUON, &matrix, 1), 0);
    assert_int_equal(vp_optimizer_state_bytes(VP_OPT_MUON, &vector, 1), 320);
    assert_int_equal(vp_optimizer_scratch_bytes(VP_OPT_MUON, &matrix), 4 * (16000 + 12800));
    assert_int_equal(vp_optimizer_scratch_bytes(VP_OPT_MUON, &vector), 0);
}

/* ---- rules ---- */

static void every_operand_that_is_there_has_bytes(void **state)
{
    (void)state;
    for (int k = 0; k < VP_N_KERNELS; k++) {
        const vp_kernel_info *x = vp_kernel_info_of((vp_kernel)k);
        union {
            VP_NAMED_INTS;
        } n = {.ints = {0}};

        for (int high = 0; high < 2; high++) {
            for (int i = 0; i < x->n_ints; i++)
                n.ints[i] = high ? vp_min_i64(x->ints[i].max, 2) : x->ints[i].min;
            for (int i = 0; i < x->n_operands; i++) {
                vp_presence there = vp_kernel_presence((vp_kernel)k, n.ints, i);

                if (there != VP_NEVER &&
                    !(vp_kernel_operand_bytes((vp_kernel)k, VP_DTYPE_F32, n.ints, i) > 0))
                    fail_msg("%s: operand %s has no bytes", x->name, x->operands[i].name);
                assert_int_equal(there == VP_ALWAYS || x->operands[i].optional, true);
            }
            assert_true(vp_kernel_flop((vp_kernel)k, n.ints) >= 0);
            assert_int_equal(vp_kernel_bytes_moved((vp_kernel)k, VP_DTYPE_F32, n.ints, 0) > 0,
                             x->n_operands > 0);
        }
    }
}

static void outputs_lie_on_inputs_only(void **state)
{
    (void)state;
    for (int k = 0; k < VP_N_KERNELS; k++) {
        const vp_kernel_info *x = vp_kernel_info_of((vp_kernel)k);

        for (int out = 0; out < x->n_operands; out++)
            for (int in = 0; in < VP_MAX_OPERANDS; in++)
                if (vp_kernel_may_share((vp_kernel)k, out, in) &&
                    (in >= x->n_operands || x->operands[out].access != VP_WRITE ||
                     x->operands[in].access != VP_READ))
                    fail_msg("%s: %s may lie on operand %d, which is no input", x->name,
                             x->operands[out].name, in);
    }
    assert_true(vp_kernel_may_share(VP_K_LAYERNORM_BWD, VP_LAYERNORM_BWD_DX, VP_LAYERNORM_BWD_ADD));
    assert_false(
        vp_kernel_may_share(VP_K_LAYERNORM_BWD, VP_LAYERNORM_BWD_DX, VP_LAYERNORM_BWD_MEAN));
    assert_false(vp_kernel_may_share(VP_K_LINEAR_FWD, VP_LINEAR_FWD_Y, VP_LINEAR_FWD_X));
}

static void the_rules_of_a_linear_and_an_attention_by_hand(void **state)
{
    union {
        VP_NAMED_INTS;
    } n                = {.linear = {.rows = 600, .in = 5, .out = 7, .layout = VP_WEIGHT_IN_OUT}};
    vp_call_shape call = {.compute_capability = 80,
                          .kernel             = VP_K_LINEAR_BWD_WEIGHT,
                          .dtype              = VP_DTYPE_F32,
                          .ints               = n.ints};

    (void)state;
    assert_int_equal(vp_kernel_operand_bytes(VP_K_LINEAR_BWD_WEIGHT, VP_DTYPE_BF16, n.ints,
                                             VP_LINEAR_BWD_WEIGHT_DW),
                     4 * 5 * 7);
    assert_true(vp_kernel_flop(VP_K_LINEAR_BWD_WEIGHT, n.ints) == 2.0 * 600 * 5 * 7);
    /* bf16: x, dy, then dw and db in fp32, each read and written */
    assert_true(vp_kernel_bytes_moved(VP_K_LINEAR_BWD_WEIGHT, VP_DTYPE_BF16, n.ints, 0) ==
                2.0 * (3000 + 4200) + 2 * 4.0 * (35 + 7));
    /* cuBLASLt's 4 MiB is more than three tiles of seven columns */
    assert_int_equal(vp_workspace_bytes(&call), 4 << 20);
    call.compute_capability = 0;
    assert_int_equal(vp_workspace_bytes(&call), 0);
    n.attention = (vp_attention_ints){.batch    = 2,
                                      .seq      = 10,
                                      .heads    = 4,
                                      .kv_heads = 2,
                                      .head_dim = 8,
                                      .layout   = VP_QKV_PACKED,
                                      .causal   = 1};
    /* a query sees 10 - 10 / 2 = 5 keys on the average, with a window of 4 only 4 - 16 / 20 = 3.2,
     * and 2 * 4 - 1 = 7 where it looks ahead, too; a product of 8 with each, and one of its share */
    assert_float_equal(vp_kernel_flop(VP_K_ATTENTION_FWD, n.ints), 4 * 2 * 4 * 10 * 5 * 8, 1e-9);
    n.attention.window = 4;
    assert_float_equal(vp_kernel_flop(VP_K_ATTENTION_FWD, n.ints), 4 * 2 * 4 * 10 * 3.2 * 8, 1e-9);
    n.attention.causal = 0;
    assert_float_equal(vp_kernel_flop(VP_K_ATTENTION_FWD, n.ints), 4 * 2 * 4 * 10 * 7 * 8, 1e-9);
    n.attention.causal = 1;
    n.attention.window = 0;
    /* a row of 4 + 2 * 2 heads of 8; no k of its own, no matrix kept */
    assert_int_equal(vp_kernel_operand_elements(VP_K_ATTENTION_FWD, n.ints, VP_ATTENTION_FWD_Q),
                     20 * 64);
    assert_int_equal(vp_kernel_presence(VP_K_ATTENTION_FWD, n.ints, VP_ATTENTION_FWD_K), VP_NEVER);
    assert_int_equal(vp_kernel_presence(VP_K_ATTENTION_FWD, n.ints, VP_ATTENTION_FWD_PROBS),
                     VP_NEVER);
    assert_int_equal(vp_kernel_presence(VP_K_ATTENTION_FWD, n.ints, VP_ATTENTION_FWD_LENGTHS),
                     VP_MAYBE);
    n.attention.layout = VP_QKV_APART;
    n.attention.probs  = 1;
    assert_int_equal(vp_kernel_operand_elements(VP_K_ATTENTION_FWD, n.ints, VP_ATTENTION_FWD_Q),
                     20 * 32);
    assert_int_equal(vp_kernel_operand_elements(VP_K_ATTENTION_FWD, n.ints, VP_ATTENTION_FWD_K),
                     20 * 16);
    assert_int_equal(vp_kernel_presence(VP_K_ATTENTION_FWD, n.ints, VP_ATTENTION_FWD_K), VP_ALWAYS);
    assert_int_equal(vp_kernel_operand_elements(VP_K_ATTENTION_FWD, n.ints, VP_ATTENTION_FWD_PROBS),
                     2 * 4 * 10 * 10);
    assert_int_equal(vp_kernel_presence(VP_K_ATTENTION_FWD, n.ints, VP_ATTENTION_FWD_PROBS),
                     VP_ALWAYS);
}

/* ---- the CUDA backend ---- */

/* Its table is made from kernels.def for updates only, since the others run in three ways there. */
static void every_kernel_has_a_row_in_the_cuda_backend(void **state)
{
    static const char *const rows[VP_N_KERNELS] = {
#define VP_RUN(NAME, name) [VP_K_##NAME] = "[VP_K_" #NAME "]",
#include "plan/kernels.def"
    };
    FILE  *f = fopen("kernels/cuda/backend_cuda.c", "r");
    char   text[200000];
    size_t n;

    (void)state;
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    assert_true(n > 0 && n < sizeof text - 1);
    text[n] = '\0';
    for (int k = 0; k < VP_N_KERNELS; k++)
        if (rows[k] && vp_kernel_info_of((vp_kernel)k)->kind != VP_KERNEL_UPDATE &&
            !strstr(text, rows[k]))
            fail_msg("the CUDA backend has no row for %s", name_of(k));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_operand_and_attribute_has_a_name_of_its_own),
        cmocka_unit_test(attributes_lie_where_their_names_say),
        cmocka_unit_test(every_kernel_is_called_by_a_row_or_by_the_plan_itself),
        cmocka_unit_test(every_row_gives_its_kernels_all_their_attributes),
        cmocka_unit_test(an_attribute_that_a_row_forgets_is_named),
        cmocka_unit_test(every_graph_op_has_a_row),
        cmocka_unit_test(updates_have_their_parameter_first_and_its_gradient_second),
        cmocka_unit_test(states_are_as_large_as_the_table_says),
        cmocka_unit_test(every_operand_that_is_there_has_bytes),
        cmocka_unit_test(outputs_lie_on_inputs_only),
        cmocka_unit_test(the_rules_of_a_linear_and_an_attention_by_hand),
        cmocka_unit_test(every_kernel_has_a_row_in_the_cuda_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
