/* Solvers that lie, die, hang or never end (tests/solver_stand_ins/): what vplan can take from
 * each. A plan is taken when its own rows fit and at its own cost; a bound when the checker
 * proves it; both in limits of time and size. */
#include "tests/base_test.h"

#include "base/child.h"
#include "planner/solve/problem.h"

#include <stdbool.h>

/* Three micro-batches of six blocks: keep all, keep half, recompute all. */
static vp_item_row items_1[] = {{12000, 90000, 9100000, 0},
                                {31000, 70000, 8003000, 0},
                                {40500, 70000, 7650000, 0},
                                {71300, 41000, 6900000, 0},
                                {90100, 41000, 6450000, 0}};
static vp_item_row items_2[] = {{24000, 180000, 8900000, 0},
                                {62000, 140000, 7803000, 0},
                                {81000, 140000, 7450000, 0},
                                {142600, 82000, 6700000, 0}};
static vp_item_row items_4[] = {
    {48000, 360000, 8800000, 0}, {124000, 280000, 7703000, 0}, {285200, 164000, 6600000, 0}};
static vp_ilp ilps[] = {
    {.n_blocks   = 6,
     .base_bytes = 1000,
     .end_bytes  = 50000,
     .const_ns   = 4000000,
     .items      = items_1,
     .n_items    = 5},
    {.n_blocks   = 6,
     .base_bytes = 1000,
     .end_bytes  = 100000,
     .const_ns   = 3900000,
     .items      = items_2,
     .n_items    = 4},
    {.n_blocks   = 6,
     .base_bytes = 1000,
     .end_bytes  = 200000,
     .const_ns   = 3850000,
     .items      = items_4,
     .n_items    = 3},
};
static const vp_ilp_problem problem = {
    .budget_bytes     = 460000,
    .upper_ns         = INT64_MAX,
    .max_nodes        = 100000,
    .max_pivots       = 1000000,
    .max_memory_bytes = (int64_t)1 << 30,
    .ilps             = ilps,
    .n_ilps           = 3,
};

static int64_t optimum_ns;
static char   *question;

static int prepare(void **state)
{
    json_t *root = vp_ilp_problem_to_json(&problem);

    (void)state;
    question = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    optimum_ns = INT64_MAX;
    for (int64_t i = 0; i < problem.n_ilps; i++) {
        int64_t n[8], ns;

        if (vp_dp_solve(&ilps[i], problem.budget_bytes, INT64_MAX, 1000000, n, &ns) ==
                VP_DP_FOUND &&
            ns < optimum_ns)
            optimum_ns = ns;
    }
    return question && optimum_ns < INT64_MAX ? 0 : -1;
}

static int finish(void **state)
{
    (void)state;
    free(question);
    return 0;
}

typedef struct judgement {
    /* the counts fit; the certificate proves the cutoff it comes with */
    bool         plan, proof;
    int64_t      cost_ns, cutoff_ns;
    size_t       n_out;
    double       seconds;
    vp_child_end end;
} judgement;

/* Run the stand-in and take what can be taken. */
static judgement judge(const char *mode, int64_t byte, double timeout_s)
{
    char        program[4096], env_mode[128], env_solver[4200], env_byte[64];
    const char *build  = getenv("BUILD") ? getenv("BUILD") : "build";
    char *const argv[] = {program, NULL}, *const env[] = {env_mode, env_solver, env_byte, NULL};
    vp_child_opts   opts  = {.argv             = argv,
                             .env_add          = env,
                             .stdin_bytes      = question,
                             .n_stdin_bytes    = strlen(question),
                             .out              = VP_CHILD_CAPTURE,
                             .err              = VP_CHILD_CAPTURE,
                             .max_output_bytes = 4 << 20,
                             .timeout_s        = timeout_s,
                             .grace_s          = 0.2};
    vp_child_result run   = {0};
    vp_json_doc    *doc   = NULL;
    vp_arena       *arena = vp_arena_new();
    vp_ilp_solution s     = {0};
    vp_json_node    root;
    judgement       j   = {0};
    vp_err          err = {0};

    snprintf(program, sizeof program, "%s/tests/solver_stand_in", build);
    snprintf(env_mode, sizeof env_mode, "VPLAN_STAND_IN=%s", mode);
    snprintf(env_solver, sizeof env_solver, "VPLAN_REAL_SOLVER=%s/vplan-solve", build);
    snprintf(env_byte, sizeof env_byte, "VPLAN_STAND_IN_BYTE=%lld", (long long)byte);
    CHECK_OK(vp_child_run(&opts, &run, &err));
    if (run.end == VP_CHILD_EXITED && run.exit_code == 64)
        print_error("%s: %s", mode, run.err);
    /* the stand-in itself failed */
    assert_false(run.end == VP_CHILD_EXITED && run.exit_code == 64);
    j.n_out   = run.n_out;
    j.seconds = run.seconds;
    j.end     = run.end;
    if (run.end == VP_CHILD_EXITED && run.exit_code == 0 && run.n_out_lost == 0 &&
        vp_json_parse("solution", run.out, (int64_t)run.n_out, &doc, NULL) == VP_OK) {
        root = vp_json_root(doc);
        if (vp_ilp_solution_from_json(arena, &root, &problem, &s, &err) == VP_OK) {
            j.plan      = s.found && vp_ilp_evaluate(&problem, s.ilp_idx, s.counts, &j.cost_ns);
            j.cutoff_ns = s.cutoff_ns;
            j.proof     = vp_certificate_proves(&problem, s.certificate, s.cutoff_ns);
        } else {
            assert_int_equal(err.code, VP_ERR_INPUT);
        }
    }
    /* Whatever it was: nothing below the optimum is taken for a plan, and nothing above for
     * proved. */
    if (j.plan)
        assert_true(j.cost_ns >= optimum_ns);
    if (j.proof)
        assert_true(j.cutoff_ns <= optimum_ns);
    json_decref(s.certificate);
    vp_json_doc_free(doc);
    vp_arena_free(arena);
    vp_child_result_release(&run);
    return j;
}

static void expect(const char *mode, bool plan, bool proof)
{
    judgement j = judge(mode, 0, 60);

    if (j.plan != plan || j.proof != proof)
        print_error("%s: plan %d, wanted %d; proof %d, wanted %d\n", mode, j.plan, plan, j.proof,
                    proof);
    assert_int_equal(j.plan, plan);
    assert_int_equal(j.proof, proof);
}

static void an_honest_solver_is_believed(void **state)
{
    judgement j = judge("honest", 0, 60);

    (void)state;
    assert_true(j.plan);
    assert_true(j.proof);
    assert_int_equal(j.cost_ns, optimum_ns);
    assert_int_equal(j.cutoff_ns, optimum_ns);
}

static void a_worse_answer_is_a_plan_without_a_proof(void **state)
{
    judgement j = judge("worse-answer", 0, 60);

    (void)state;
    assert_true(j.plan);
    assert_false(j.proof);
    assert_true(j.cost_ns > optimum_ns);
    assert_int_equal(j.cutoff_ns, j.cost_ns); /* it said it was optimal */
}

static void counts_that_are_no_plan_are_not_taken(void **state)
{
    (void)state;
    expect("too-large-answer", false, true);
    expect("block-missing", false, true);
    expect("block-too-many", false, true);
    expect("negative-count", false, false); /* not even in range */
    expect("huge-count", false, false);
    expect("no-such-program", false, false);
    expect("none-found", false, false);
}

static void a_wrong_proof_proves_nothing_and_the_plan_remains(void **state)
{
    (void)state;
    expect("raised-cutoff", true, false);
    expect("cutoff-of-all-time", true, false);
    expect("doubled-duals", true, false);
    expect("negated-duals", true, false);
    expect("duals-of-other-rows", true, false);
    expect("fractional-duals", true, false);
    expect("huge-duals", true, false);
    expect("missing-corner", true, false);
    expect("corner-called-empty", true, false);
    expect("leaf-left-over", true, false);
    expect("crossed-proofs", true, false);
    expect("no-certificate", true, false);
    expect("nan-duals", true, false);
}

static void what_is_not_a_solution_is_nothing(void **state)
{
    (void)state;
    expect("nan", false, false);
    expect("infinity", false, false);
    expect("number-beyond-64-bits", false, false);
    expect("deep-nesting", false, false);
    expect("unknown-member", false, false);
    expect("twice", false, false);
    expect("silent", false, false);
    expect("garbage", false, false);
    expect("huge-output", false, false);
}

static void a_solver_that_fails_is_nothing_whatever_it_wrote(void **state)
{
    (void)state;
    expect("exits-1", false, false);
    expect("refuses", false, false);
    expect("dies", false, false);
    expect("killed-after-answer", false, false);
    expect("leaves-a-child", false, false);
}

static void one_that_never_ends_is_ended(void **state)
{
    static const char *const modes[] = {"hangs",           "never-reads", "hangs-after-answer",
                                        "ignores-sigterm", "endless",     "endless-stderr"};

    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        judgement j = judge(modes[i], 0, 0.5);

        if (j.plan || j.proof || j.end != VP_CHILD_TIMED_OUT || j.seconds > 20)
            print_error("%s: plan %d, proof %d, end %d, %.1f s\n", modes[i], j.plan, j.proof,
                        (int)j.end, j.seconds);
        assert_false(j.plan || j.proof);
        assert_int_equal(j.end, VP_CHILD_TIMED_OUT);
        assert_true(j.seconds < 20);
        assert_true(j.n_out <= 5 << 20);
    }
}

static void one_that_stops_at_any_byte_is_nothing(void **state)
{
    const int64_t n_bytes = (int64_t)judge("honest", 0, 60).n_out;
    const int64_t step    = getenv("VPLAN_LONG") ? 1 : 1 + n_bytes / 100;

    (void)state;
    /* the last byte is the line feed */
    for (int64_t byte = 0; byte < n_bytes - 1; byte += step) {
        judgement ended = judge("ends-at", byte, 60), died = judge("dies-at", byte, 60);

        assert_false(ended.plan || ended.proof);
        assert_false(died.plan || died.proof);
    }
    for (int64_t byte = 0; byte < n_bytes; byte += 1 + n_bytes / 3) {
        judgement hung = judge("hangs-at", byte, 0.5);

        assert_false(hung.plan || hung.proof);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_solver_is_believed),
        cmocka_unit_test(a_worse_answer_is_a_plan_without_a_proof),
        cmocka_unit_test(counts_that_are_no_plan_are_not_taken),
        cmocka_unit_test(a_wrong_proof_proves_nothing_and_the_plan_remains),
        cmocka_unit_test(what_is_not_a_solution_is_nothing),
        cmocka_unit_test(a_solver_that_fails_is_nothing_whatever_it_wrote),
        cmocka_unit_test(one_that_never_ends_is_ended),
        cmocka_unit_test(one_that_stops_at_any_byte_is_nothing),
    };

    return cmocka_run_group_tests(tests, prepare, finish);
}
