/* Profiles and prices of calls that may lack an operand: an update with master weights and one
 * without are two calls, to the roofline, to a profile, its file and the study. */
#include "plan_test.h"

#include "devices/efficiency.h"
#include "plan/profile.h"
#include "tuner/correct.h"
#include "tuner/study.h"

#include <math.h>
#include <unistd.h>

enum { N = 1000 };

static const uint32_t no_master = 1u << VP_ADAMW_MASTER;

static vp_profile_row adamw(vp_dtype dtype, uint32_t lacks, double seconds)
{
    return (vp_profile_row){.kernel  = VP_K_ADAMW,
                            .dtype   = dtype,
                            .states  = {.count = N, .decay = 1, .state = VP_STATE_F32},
                            .lacks   = lacks,
                            .seconds = seconds};
}

static double seconds_of(const vp_profile *p, const vp_profile_row *row, bool *measured)
{
    return vp_profile_seconds(p, row->kernel, row->dtype, row->ints, row->lacks, measured);
}

/* An element: p read and written, 2 times 2 bytes in bf16 and 2 times 4 in fp32; g 4; m and v 2
 * times 4 each; a master 2 times 4. An fp32 parameter has none, whatever is said. One control block
 * of 64 bytes. */
static void an_update_moves_what_it_has(void **state)
{
    vp_profile_row x = adamw(VP_DTYPE_BF16, 0, 0);

    (void)state;
    assert_true(vp_kernel_bytes_moved(VP_K_ADAMW, VP_DTYPE_BF16, x.ints, 0) == 32.0 * N + 64);
    assert_true(vp_kernel_bytes_moved(VP_K_ADAMW, VP_DTYPE_BF16, x.ints, no_master) ==
                24.0 * N + 64);
    for (int given = 0; given < 2; given++)
        assert_true(vp_kernel_bytes_moved(VP_K_ADAMW, VP_DTYPE_F32, x.ints,
                                          given ? 0 : no_master) == 28.0 * N + 64);
    assert_int_equal(vp_kernel_lacks(VP_K_ADAMW, VP_DTYPE_BF16, ~0u), no_master);
    assert_int_equal(vp_kernel_lacks(VP_K_ADAMW, VP_DTYPE_F32, ~0u), 0);
    /* every update has one that it may lack, and of the other kernels the weight's gradient a bias's, in any dtype */
    for (int k = 0; k < VP_N_KERNELS; k++) {
        int master  = vp_kernel_operand((vp_kernel)k, "master");
        int of_bias = k == VP_K_LINEAR_BWD_WEIGHT ? VP_LINEAR_BWD_WEIGHT_DB : -1;

        assert_int_equal(vp_kernel_lacks((vp_kernel)k, VP_DTYPE_BF16, ~0u),
                         (master < 0 ? 0 : 1u << master) | (of_bias < 0 ? 0 : 1u << of_bias));
        assert_int_equal(vp_kernel_lacks((vp_kernel)k, VP_DTYPE_F32, ~0u),
                         of_bias < 0 ? 0 : 1u << of_bias);
    }
}

/* 1e10 bytes/s and 4 us a launch are plan_test.h's. */
static void a_plan_pays_for_the_masters_it_has(void **state)
{
    vp_model *model =
        tiny_model(&(tiny){.n_embd = 24, .n_layer = 2, .n_head = 2, .vocab = 601}, 0.0);
    static const double an_element[VP_N_PRECISIONS] = {[VP_PREC_FP32]       = 28,
                                                       [VP_PREC_BF16_MIXED] = 32,
                                                       [VP_PREC_BF16]       = 24,
                                                       [VP_PREC_FP16_MIXED] = 32,
                                                       [VP_PREC_TF32]       = 28};

    (void)state;
    for (int precision = 0; precision < n_precisions(); precision++) {
        vp_scenario s = {
            .recipe = vp_recipe_default(), .seq = 16, .global_batch = 2, .micro_batch = 1};
        int n_updates = 0;

        s.recipe.precision = (vp_precision)precision;
        vp_plan *plan      = plan_of(model, s, VP_RECOMPUTE_NONE);
        for (int64_t i = 0; i < plan->buckets[0].n_programs; i++) {
            const vp_program *p = &plan->buckets[0].programs[i];
            for (int64_t k = 0; k < p->n_steps[VP_PASS_UPDATE]; k++, n_updates++) {
                const vp_step *u = &p->steps[VP_PASS_UPDATE][k];
                double want = (an_element[precision] * (double)u->states.count + 64) / 1e10 + 4e-6;
                if (fabs(u->seconds - want) > 0.51e-9)
                    fail_msg("%s, %lld elements: %.9f s, not %.9f",
                             vp_precision_name((vp_precision)precision), (long long)u->states.count,
                             u->seconds, want);
            }
        }
        assert_true(n_updates >= 12);
        vp_plan_free(plan);
    }
    vp_model_free(model);
}

static void a_profile_knows_both_calls(void **state)
{
    vp_profile    *p = vp_profile_new(), *q = NULL;
    vp_profile_row with = adamw(VP_DTYPE_BF16, 0, 3), without = adamw(VP_DTYPE_BF16, no_master, 2),
                   fp32 = adamw(VP_DTYPE_F32, no_master, 5);
    vp_json_doc *doc;
    vp_text      text = {0};
    bool         measured;

    (void)state;
    assert_non_null(p);
    assert_true(vp_profile_add(p, &with));
    /* without: not measured, and 24 N + 64 of 32 N + 64 bytes; both with the 1 that keeps 0 apart */
    double scaled = seconds_of(p, &without, &measured);
    assert_true(!measured && fabs(scaled - 3 * (24.0 * N + 65) / (32.0 * N + 65)) < 1e-12);
    assert_true(vp_profile_add(p, &without) && vp_profile_add(p, &fp32));
    assert_int_equal(p->n_rows, 3);
    assert_true(vp_profile_add(p, &without)); /* again: in its own row's place */
    assert_int_equal(p->n_rows, 3);
    p->link = (vp_link_rates){.device                  = "a card",
                              .to_device_bytes_per_s   = 3e10,
                              .from_device_bytes_per_s = 2.5e10,
                              .together_bytes_per_s    = 2e10,
                              .kernels_lost_s_per_byte = 3e-11,
                              .pinned_bytes            = 77,
                              .pinning_s               = 0.5};

    json_t *j = vp_profile_to_json(p);
    assert_true(j && vp_json_dump(j, &text));
    OK(vp_json_parse("profile", text.data, (int64_t)text.n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    OK(vp_profile_from_json(&root, &q, err));
    vp_json_doc_free(doc);
    vp_text_release(&text);
    json_decref(j);
    assert_true(strcmp(q->link.device, "a card") == 0 && q->link.to_device_bytes_per_s == 3e10 &&
                q->link.from_device_bytes_per_s == 2.5e10 && q->link.together_bytes_per_s == 2e10 &&
                q->link.kernels_lost_s_per_byte == 3e-11 && q->link.pinned_bytes == 77 &&
                q->link.pinning_s == 0.5 && vp_link_rates_least(&q->link) == 2e10);
    assert_true(seconds_of(q, &with, &measured) == 3 && measured);
    assert_true(seconds_of(q, &without, &measured) == 2 && measured);
    for (int given = 0; given < 2; given++) {
        fp32.lacks = given ? 0 : no_master;
        assert_true(seconds_of(q, &fp32, &measured) == 5 && measured);
    }
    vp_profile_free(p);
    vp_profile_free(q);
}

/* 8 x 16 and 16 x 8 are as much work, and as near to 8 x 8. */
static void of_two_calls_as_near_the_first_is_taken(void **state)
{
    vp_profile_row row = {.kernel  = VP_K_LINEAR_FWD,
                          .dtype   = VP_DTYPE_F32,
                          .linear  = {.rows = 4, .in = 8, .out = 16},
                          .seconds = 2};
    vp_profile    *p   = vp_profile_new();
    bool           measured;

    (void)state;
    assert_true(p && vp_profile_add(p, &row));
    row.linear.in = 16, row.linear.out = 8, row.seconds = 7;
    assert_true(vp_profile_add(p, &row));
    row.linear.in = 8;
    /* 2 x 4 x 8 x 8 and 2 x 4 x 8 x 16 operations, both with the 1 that keeps 0 apart */
    assert_float_equal(seconds_of(p, &row, &measured), 2 * 513.0 / 1025.0, 1e-12);
    assert_false(measured);
    vp_profile_free(p);
}

/* A profile of a version without such calls has the product that each begins with. */
static void a_product_that_adds_is_priced_as_the_product_where_none_was_measured(void **state)
{
    vp_profile_row row = {.kernel  = VP_K_LINEAR_FWD,
                          .dtype   = VP_DTYPE_F32,
                          .linear  = {.rows = 4, .in = 8, .out = 16},
                          .seconds = 2};
    vp_profile    *p   = vp_profile_new();
    bool           measured;

    (void)state;
    assert_true(p && vp_profile_add(p, &row));
    row.kernel = VP_K_LINEAR_ADD_FWD;
    assert_true(seconds_of(p, &row, &measured) == 2 && !measured);
    row.seconds = 3;
    assert_true(vp_profile_add(p, &row));
    assert_true(seconds_of(p, &row, &measured) == 3 && measured);
    vp_profile_free(p);
}

/* Three blocks, two of window 4 and one of window 8: 1, 1 and 2 ns are 1.33, a step of whole
 * nanoseconds 1. */
static void an_attention_of_many_windows_takes_their_mean_in_whole_nanoseconds(void **state)
{
    vp_instance instances[] = {{0}, {.window = 4}, {.window = 8}, {.window = 4}, {0}};
    vp_graph    graph       = {.instances = instances, .n_instances = 5};
    vp_step     step        = {.kernel             = VP_K_ATTENTION_FWD,
                               .dtype              = VP_DTYPE_F32,
                               .window_of_instance = true,
                               .attention = {.batch = 1, .seq = 16, .heads = 2, .kv_heads = 2, .head_dim = 8}};
    vp_profile *p           = vp_profile_new();
    vp_cost     cost        = {.profile = p};

    (void)state;
    assert_non_null(p);
    for (int i = 1; i <= 2; i++) {
        vp_profile_row row   = {.kernel    = step.kernel,
                                .dtype     = step.dtype,
                                .attention = step.attention,
                                .lacks     = vp_step_lacks(&step),
                                .seconds   = i * 1e-9};
        row.attention.window = 4 * i;
        assert_true(vp_profile_add(p, &row));
    }
    assert_true(vp_cost_step(&cost, &graph, &step) == 1e-9);
    vp_profile_free(p);
}

/* With lengths or a softcap a card runs vplan's own attention, not a library's: prices know, profiles do not. */
static void an_attention_that_no_library_takes_is_priced_as_ours(void **state)
{
    vp_device h200;
    vp_step   step = {
          .kernel    = VP_K_ATTENTION_FWD,
          .dtype     = VP_DTYPE_BF16,
          .attention = {.batch = 16, .seq = 512, .heads = 12, .kv_heads = 12, .head_dim = 64}};
    int     lengths = vp_kernel_operand(VP_K_ATTENTION_FWD, "lengths");
    json_t *call    = json_object();
    double  ours, library;

    (void)state;
    OK(vp_device_open("h200", &h200, err));
    assert_int_equal(vp_step_lacks(&step), VP_LACKS_LIBRARY);
    assert_true(call && vp_lacks_write(call, step.kernel, vp_step_lacks(&step)));
    assert_null(json_object_get(call, "without"));
    json_decref(call);
    ours = vp_roofline_of(&h200, step.kernel, step.dtype, step.ints, vp_step_lacks(&step)).seconds;
    step.args[lengths].space = VP_SPACE_NONE;
    assert_int_equal(vp_step_lacks(&step), 0);
    library = vp_roofline_of(&h200, step.kernel, step.dtype, step.ints, 0).seconds;
    assert_true(ours > 4 * library);
    step.attention_reals.softcap = 50;
    assert_int_equal(vp_step_lacks(&step), VP_LACKS_LIBRARY);
    step.dtype = VP_DTYPE_F32; /* ours without being said, at a rate of its own */
    assert_int_equal(vp_step_lacks(&step), 0);
}

static void what_no_call_lacks_is_refused_by_name(void **state)
{
    static const char *const rows[] = {
        "\"kernel\": \"adamw\", \"dtype\": \"bf16\", \"without\": [\"m\"]",
        "\"kernel\": \"adamw\", \"dtype\": \"bf16\", \"without\": [\"master\", \"master\"]",
        "\"kernel\": \"adamw\", \"without\": [\"master\"]"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        char         text[400];
        vp_json_doc *doc;
        vp_profile  *p   = NULL;
        vp_err       bad = {0};

        snprintf(text, sizeof text,
                 "{\"schema_version\": 1, \"device\": \"cpu\", \"backend\": \"b\", \"rows\": [{%s, "
                 "\"count\": 4, \"decay\": 1, \"state\": 0, \"seconds\": 1}]}",
                 rows[i]);
        OK(vp_json_parse("profile", text, (int64_t)strlen(text), &doc, err));
        vp_json_node root = vp_json_root(doc);
        assert_int_equal(vp_profile_from_json(&root, &p, &bad), VP_ERR_INPUT);
        assert_non_null(strstr(bad.field, "without"));
        assert_non_null(strstr(bad.message, "adamw"));
        vp_json_doc_free(doc);
    }
}

static void a_study_keeps_both_calls(void **state)
{
    static const vp_study_request request = {.model        = "m",
                                             .model_sha256 = "0123",
                                             .recipe       = "{}",
                                             .seq          = 8,
                                             .global_batch = 2,
                                             .budget_bytes = 1000,
                                             .device       = "cpu",
                                             .backend      = "b",
                                             .build        = "x",
                                             .asked        = "vplan tune m"};
    char                          path[]  = "/tmp/vplan-profile-XXXXXX";
    vp_study                     *study   = NULL;
    vp_profile                   *p = vp_profile_new(), *q = vp_profile_new();
    vp_profile_row with = adamw(VP_DTYPE_BF16, 0, 3), without = adamw(VP_DTYPE_BF16, no_master, 2);
    int64_t        id;
    bool           measured;
    int            fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && p && q);
    close(fd);
    unlink(path);
    strcpy(p->device, "cpu");
    strcpy(p->backend, "b");
    assert_true(vp_profile_add(p, &with) && vp_profile_add(p, &without));
    OK(vp_study_open(path, &study, err));
    OK(vp_study_request_id(study, &request, &id, err));
    OK(vp_study_add_profile(study, VP_PROFILE_MEASURED, p, "x", &id, err));
    OK(vp_study_measured(study, "cpu", "b", "x", q, err));
    assert_int_equal(q->n_rows, 2);
    assert_true(seconds_of(q, &with, &measured) == 3 && measured);
    assert_true(seconds_of(q, &without, &measured) == 2 && measured);
    vp_study_close(study);
    unlink(path);
    vp_profile_free(p);
    vp_profile_free(q);
}

/* Seen in a trial: 6 s with and 8 s without, of 14. Each replaces its own row. */
static void a_trial_corrects_the_call_that_it_saw(void **state)
{
    vp_profile    *base = vp_profile_new(), *p = NULL;
    vp_profile_row with = adamw(VP_DTYPE_BF16, 0, 3), without = adamw(VP_DTYPE_BF16, no_master, 2);
    vp_call_time   calls[] = {{adamw(VP_DTYPE_BF16, 0, 6), 1},
                              {adamw(VP_DTYPE_BF16, no_master, 8), 2}};
    vp_study_trial trial   = {.measured_s = 14, .calls = calls, .n_calls = 2};
    bool           measured;

    (void)state;
    assert_true(base && vp_profile_add(base, &with) && vp_profile_add(base, &without));
    OK(vp_correct_profile(base, &trial, 1, &p, err));
    assert_true(fabs(seconds_of(p, &with, &measured) - 6) < 1e-12 && measured);
    assert_true(fabs(seconds_of(p, &without, &measured) - 4) < 1e-12 && measured);
    vp_profile_free(base);
    vp_profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_moves_what_it_has),
        cmocka_unit_test(a_plan_pays_for_the_masters_it_has),
        cmocka_unit_test(a_profile_knows_both_calls),
        cmocka_unit_test(of_two_calls_as_near_the_first_is_taken),
        cmocka_unit_test(a_product_that_adds_is_priced_as_the_product_where_none_was_measured),
        cmocka_unit_test(an_attention_of_many_windows_takes_their_mean_in_whole_nanoseconds),
        cmocka_unit_test(an_attention_that_no_library_takes_is_priced_as_ours),
        cmocka_unit_test(what_no_call_lacks_is_refused_by_name),
        cmocka_unit_test(a_study_keeps_both_calls),
        cmocka_unit_test(a_trial_corrects_the_call_that_it_saw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
