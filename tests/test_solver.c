/* The integer program of planner/solve/problem.h: vplan-solve and the chain program against brute
 * force over all sequences of strategies; problems as documents. */
#include "tests/solver_test.h"

/* ---- counts, orders, the DP ---- */

static void the_rows_of_counts_are_their_best_order_to_the_byte(void **state)
{
    example e;

    (void)state;
    for (uint64_t seed = 1; seed <= (uint64_t)n_cases(400); seed++) {
        make_example(&e, seed);
        for (int64_t i = 0; i < e.p.n_ilps; i++) {
            const vp_ilp *g      = &e.ilps[i];
            int64_t       n_most = 1, n[MAX_N];

            for (int64_t j = 0; j < g->n_blocks; j++)
                n_most *= g->n_items;
            if (n_most > 20000)
                continue;
            memset(work.least_bytes, 0x7f, sizeof work.least_bytes);
            brute_ilp(&e.p, i);
            work.with_orders = true;
            all_sequences(&work, g->n_blocks, g->end_bytes, g->const_ns);
            for (int64_t code = 0; code < (int64_t)1 << (3 * g->n_items); code++) {
                int64_t cost, want = g->const_ns;

                if (work.least_bytes[code] == 0x7f7f7f7f7f7f7f7f)
                    continue;
                for (int64_t s = 0; s < g->n_items; s++) {
                    n[s] = code >> (3 * s) & 7;
                    want += n[s] * g->items[s].cost_ns;
                }
                e.p.budget_bytes = g->base_bytes + work.least_bytes[code];
                if (!vp_ilp_evaluate(&e.p, i, n, &cost) || cost != want)
                    fail_with(&e.p, "cost at the least budget", seed, cost, want);
                e.p.budget_bytes--;
                if (vp_ilp_evaluate(&e.p, i, n, &cost))
                    fail_with(&e.p, "fits one byte below the least budget", seed, code, 0);
            }
        }
    }
}

static void counts_that_are_no_plan_are_refused(void **state)
{
    vp_item_row    items[] = {{.k_bytes = 1, .beta_bytes = 5, .cost_ns = 7},
                              {.k_bytes = 2, .beta_bytes = 3, .cost_ns = 4}};
    vp_ilp         g       = {.n_blocks   = 3,
                              .base_bytes = 10,
                              .end_bytes  = 4,
                              .const_ns   = 100,
                              .items      = items,
                              .n_items    = 2};
    vp_ilp_problem p       = {.budget_bytes = 19, .ilps = &g, .n_ilps = 1};
    int64_t        cost    = 0;

    (void)state;
    /* 10 + 1 + 2 * 2 + 4 = 19 at the end; 10 + 1 + 5 = 16 and 10 + 5 + 3 = 18 at the levels; 100
     * + 7 + 2 * 4 */
    assert_true(vp_ilp_evaluate(&p, 0, (int64_t[]){1, 2}, &cost));
    assert_int_equal(cost, 115);
    p.budget_bytes = 18;
    assert_false(vp_ilp_evaluate(&p, 0, (int64_t[]){1, 2}, &cost));
    p.budget_bytes = 1000;
    assert_false(vp_ilp_evaluate(&p, 0, (int64_t[]){1, 1}, &cost));
    assert_false(vp_ilp_evaluate(&p, 0, (int64_t[]){2, 2}, &cost));
    assert_false(vp_ilp_evaluate(&p, 0, (int64_t[]){4, -1}, &cost));
    assert_false(vp_ilp_evaluate(&p, 0, (int64_t[]){INT64_MAX, INT64_MIN}, &cost));
    assert_false(vp_ilp_evaluate(&p, 1, (int64_t[]){1, 2}, &cost));
    assert_false(vp_ilp_evaluate(&p, -1, (int64_t[]){1, 2}, &cost));
}

static void the_chain_program_finds_the_optimum(void **state)
{
    example e;

    (void)state;
    for (uint64_t seed = 1; seed <= (uint64_t)n_cases(2000); seed++) {
        make_example(&e, seed);
        for (int64_t i = 0; i < e.p.n_ilps; i++) {
            int64_t want = brute_ilp(&e.p, i), n[MAX_N], cost = -1, again = -1;
            bool found = vp_dp_solve(&e.ilps[i], e.p.budget_bytes, INT64_MAX, 1000000, n, &cost) ==
                         VP_DP_FOUND;

            if (found != (want < INT64_MAX) || (found && cost != want))
                fail_with(&e.p, "DP", seed, cost, want);
            if (found && (!vp_ilp_evaluate(&e.p, i, n, &again) || again != cost))
                fail_with(&e.p, "the DP's counts", seed, again, cost);
            if (found && vp_dp_solve(&e.ilps[i], e.p.budget_bytes, INT64_MAX, 0, n, &cost) !=
                             VP_DP_TOO_LARGE)
                fail_with(&e.p, "the DP without states", seed, cost, INT64_MAX);
        }
    }
}

/* ---- the solver ---- */

static void the_solver_brute_force_and_the_dp_agree_to_the_nanosecond(void **state)
{
    example e;
    int     n_infeasible = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= (uint64_t)n_cases(2000); seed++) {
        int64_t want, cost = -1, dp = INT64_MAX;
        answer  a;

        make_example(&e, seed);
        want = brute_problem(&e.p);
        for (int64_t i = 0; i < e.p.n_ilps; i++) {
            int64_t n[MAX_N], ns;

            if (vp_dp_solve(&e.ilps[i], e.p.budget_bytes, INT64_MAX, 1000000, n, &ns) ==
                    VP_DP_FOUND &&
                ns < dp)
                dp = ns;
        }
        if (dp != want)
            fail_with(&e.p, "DP", seed, dp, want);
        solve(&e.p, &a);
        if (a.s.found != (want < INT64_MAX))
            fail_with(&e.p, "found", seed, a.s.found, want < INT64_MAX);
        if (!vp_certificate_proves(&e.p, a.s.certificate, a.s.cutoff_ns))
            fail_with(&e.p, "certificate refused at its cutoff", seed, a.s.cutoff_ns, want);
        if (a.s.found) {
            if (!vp_ilp_evaluate(&e.p, a.s.ilp_idx, a.s.counts, &cost) || cost != want)
                fail_with(&e.p, "cost of the solution", seed, cost, want);
            if (a.s.cutoff_ns != want)
                fail_with(&e.p, "cutoff", seed, a.s.cutoff_ns, want);
            if (vp_certificate_proves(&e.p, a.s.certificate, want + 1))
                fail_with(&e.p, "certificate accepted above the optimum", seed, want + 1, want);
        } else {
            /* Infeasible: the cutoff is above whatever counts of any integer program could cost. */
            for (int64_t i = 0; i < e.p.n_ilps; i++)
                for (int64_t s = 0; s < e.ilps[i].n_items; s++)
                    assert_true(a.s.cutoff_ns >
                                e.ilps[i].const_ns + e.ilps[i].n_blocks * e.items[i][s].cost_ns);
            n_infeasible++;
        }
        release(&a);
    }
    assert_in_range(n_infeasible, 5, n_cases(2000) / 2); /* the examples are of both kinds */
}

static void a_gap_and_an_upper_bound_are_kept(void **state)
{
    example e;

    (void)state;
    for (uint64_t seed = 100001; seed <= 100000 + (uint64_t)n_cases(300); seed++) {
        int64_t want, cost = -1;
        answer  a;

        make_example(&e, seed);
        want    = brute_problem(&e.p);
        e.p.gap = below(2) ? 0.1 : 0.01;
        if (want < INT64_MAX && below(2))
            e.p.upper_ns = want + below(3) * (1 + want / 50);
        solve(&e.p, &a);
        if (!vp_certificate_proves(&e.p, a.s.certificate, a.s.cutoff_ns))
            fail_with(&e.p, "certificate refused at its cutoff", seed, a.s.cutoff_ns, want);
        if (want < INT64_MAX) {
            cost = e.p.upper_ns;
            if (a.s.found && (!vp_ilp_evaluate(&e.p, a.s.ilp_idx, a.s.counts, &cost) ||
                              cost >= e.p.upper_ns || cost < want))
                fail_with(&e.p, "cost of the solution", seed, cost, want);
            if (!a.s.found && e.p.upper_ns == INT64_MAX)
                fail_with(&e.p, "nothing found", seed, 0, 1);
            if (a.s.cutoff_ns > want || (double)a.s.cutoff_ns < (double)cost * (1 - e.p.gap) - 1)
                fail_with(&e.p, "cutoff", seed, a.s.cutoff_ns, want);
        }
        release(&a);
    }
}

/* The plan that is known may be a preset that stands in no integer program, or of one that its own
 * bound has closed: slower than any counts of those that are left, of which none fits. That, too,
 * is proved to the end: boxes without a solution are, so far as it takes. */
static void a_known_plan_slower_than_all_counts_is_proved_all_the_same(void **state)
{
    example e;
    int     n_proved = 0;

    (void)state;
    for (uint64_t seed = 150001; seed <= 150000 + (uint64_t)n_cases(200); seed++) {
        int64_t low = 0, high, dearest = 0;
        answer  a;

        make_example(&e, seed);
        high = e.p.budget_bytes;
        while (brute_problem(&e.p) < INT64_MAX && low + 1 < high) { /* a byte less than the least */
            e.p.budget_bytes = low + (high - low) / 2;
            if (brute_problem(&e.p) < INT64_MAX) {
                high = e.p.budget_bytes;
            } else {
                low              = e.p.budget_bytes;
                e.p.budget_bytes = high;
            }
        }
        e.p.budget_bytes = high - 1;
        if (brute_problem(&e.p) < INT64_MAX)
            continue;
        for (int i = 0; i < e.p.n_ilps; i++)
            for (int s = 0; s < e.ilps[i].n_items; s++)
                dearest =
                    dearest > e.ilps[i].items[s].cost_ns ? dearest : e.ilps[i].items[s].cost_ns;
        e.p.gap      = 1e-5;
        e.p.upper_ns = e.ilps[0].const_ns + 20 * MAX_L * (dearest + 1);
        if (e.p.upper_ns >= 1 << 30) /* a row broken by a byte: 2^60 units are 2^30 ns */
            continue;
        n_proved++;
        solve(&e.p, &a);
        if (a.s.found || !vp_certificate_proves(&e.p, a.s.certificate, a.s.cutoff_ns) ||
            (double)a.s.cutoff_ns < (double)e.p.upper_ns * (1 - e.p.gap) - 1)
            fail_with(&e.p, "cutoff", seed, a.s.cutoff_ns, e.p.upper_ns);
        release(&a);
    }
    assert_true(n_proved > n_cases(200) / 4);
}

/* Limits end the search anywhere; what was proved until then is proved, and the same input gives
 * the same bytes. */
static void a_search_cut_by_its_limits_still_proves_what_it_says(void **state)
{
    example e;

    (void)state;
    for (uint64_t seed = 200001; seed <= 200000 + (uint64_t)n_cases(300); seed++) {
        int64_t want, cost;
        answer  a, b;

        make_example(&e, seed);
        want           = brute_problem(&e.p);
        e.p.max_nodes  = below(2) ? below(6) : 100000;
        e.p.max_pivots = e.p.max_nodes < 6 ? 10000000 : below(12);
        solve(&e.p, &a);
        solve(&e.p, &b);
        if (a.s.n_nodes > e.p.max_nodes)
            fail_with(&e.p, "nodes", seed, a.s.n_nodes, e.p.max_nodes);
        if (!vp_certificate_proves(&e.p, a.s.certificate, a.s.cutoff_ns) || a.s.cutoff_ns > want)
            fail_with(&e.p, "certificate at its cutoff", seed, a.s.cutoff_ns, want);
        if (a.s.found && (!vp_ilp_evaluate(&e.p, a.s.ilp_idx, a.s.counts, &cost) || cost < want))
            fail_with(&e.p, "cost of the solution", seed, cost, want);
        if (a.run.n_out != b.run.n_out || memcmp(a.run.out, b.run.out, a.run.n_out))
            fail_with(&e.p, "two runs, two answers", seed, 0, 0);
        release(&a);
        release(&b);
    }
}

enum { LARGE = 64 };

/* A chain whose tree is large: items that trade bytes for time nearly evenly. */
static void make_large(vp_ilp_problem *p, vp_ilp *g, vp_item_row *items)
{
    rng = 12345;
    for (int64_t s = 0; s < LARGE; s++) {
        int64_t a = below(1000), level = below(10);

        items[s] = (vp_item_row){.k_bytes    = 8000000 + 90000 * a + below(2000000),
                                 .beta_bytes = 20000000 + 38000000 * level};
        items[s].cost_ns =
            4000000 + 2 * (1000 - a) * (1000 - a) + 60000 * (9 - level) + below(80000);
    }
    qsort(items, LARGE, sizeof *items, by_beta_then_k);
    *g = (vp_ilp){.n_blocks  = 12,
                  .end_bytes = 50000000,
                  .const_ns  = 20000000,
                  .items     = items,
                  .n_items   = LARGE};
    *p = (vp_ilp_problem){.budget_bytes = 500000000,
                          .upper_ns     = INT64_MAX,
                          .max_nodes    = 3000,
                          .max_pivots   = 1000000,
                          .ilps         = g,
                          .n_ilps       = 1};
}

/* Whether GLPK, the arena or the certificate runs out first: an honest answer or an exit code,
 * never a signal or half an answer. */
static void little_memory_ends_the_search_or_the_program_but_in_order(void **state)
{
    vp_item_row    items[LARGE];
    vp_ilp         g;
    vp_ilp_problem p;
    int            n_answers = 0;

    (void)state;
    make_large(&p, &g, items);
    for (int64_t kib = 64; kib <= 65536; kib += kib / 12) {
        char *const     argv[] = {(char *)(uintptr_t)solver_path(), NULL};
        vp_child_opts   opts   = {.argv             = argv,
                                  .out              = VP_CHILD_CAPTURE,
                                  .err              = VP_CHILD_CAPTURE,
                                  .max_output_bytes = 8 << 20,
                                  .timeout_s        = 300};
        vp_child_result run    = {0};
        vp_json_doc    *doc    = NULL;
        vp_arena       *arena  = vp_arena_new();
        vp_ilp_solution s      = {0};
        vp_json_node    node;
        json_t         *root;
        char           *text;
        vp_err          err = {0};

        p.max_memory_bytes = kib << 10;
        root               = vp_ilp_problem_to_json(&p);
        text               = json_dumps(root, JSON_COMPACT);
        opts.stdin_bytes   = text;
        opts.n_stdin_bytes = strlen(text);
        CHECK_OK(vp_child_run(&opts, &run, &err));
        assert_int_equal(run.end, VP_CHILD_EXITED);
        if (run.exit_code) {
            assert_int_equal(run.n_out, 0);
            assert_non_null(strstr(run.err, "memory"));
        } else {
            CHECK_OK(vp_json_parse("solution", run.out, (int64_t)run.n_out, &doc, &err));
            node = vp_json_root(doc);
            CHECK_OK(vp_ilp_solution_from_json(arena, &node, &p, &s, &err));
            assert_true(vp_certificate_proves(&p, s.certificate, s.cutoff_ns));
            n_answers++;
        }
        json_decref(s.certificate);
        json_decref(root);
        free(text);
        vp_json_doc_free(doc);
        vp_arena_free(arena);
        vp_child_result_release(&run);
    }
    assert_true(n_answers > 5);
}

static void a_tree_that_stalls_is_closed_by_the_frontier(void **state)
{
    vp_item_row    items[LARGE];
    vp_ilp         g;
    vp_ilp_problem p;
    int64_t        n[LARGE], optimum;
    char          *certificate;
    answer         a;

    (void)state;
    make_large(&p, &g, items);
    p.gap          = 0;
    g.n_blocks     = 16;
    p.budget_bytes = 600000000;
    p.max_nodes    = 20000;
    solve(&p, &a);
    assert_true(vp_dp_solve(&g, p.budget_bytes, INT64_MAX, 10000000, n, &optimum) == VP_DP_FOUND);
    assert_true(a.s.found);
    assert_int_equal(a.s.cutoff_ns, optimum);
    assert_true(a.s.n_nodes < 2000);
    certificate = json_dumps(a.s.certificate, JSON_COMPACT);
    assert_string_equal(certificate, "[[[4]]]");
    assert_true(vp_certificate_proves(&p, a.s.certificate, optimum));
    free(certificate);
    release(&a);
}

/* Thirty integer programs that are equally good need thirty trees: more than a document may hold
 * (base/json.h), and more than the frontier closes. */
static void a_certificate_too_large_to_read_is_one_of_a_lower_cutoff(void **state)
{
    vp_item_row    items[LARGE];
    vp_ilp         g[30];
    vp_ilp_problem p;
    int64_t        n[LARGE], optimum;
    answer         a;

    (void)state;
    make_large(&p, g, items);
    for (int i = 1; i < 30; i++)
        g[i] = g[0];
    p.n_ilps     = 30;
    p.max_nodes  = 100000;
    p.max_pivots = 100000000;
    solve(&p, &a);
    assert_true(a.s.found);
    assert_true(vp_dp_solve(g, p.budget_bytes, INT64_MAX, 10000000, n, &optimum) == VP_DP_FOUND);
    assert_true(a.s.n_nodes > 20000);
    assert_true(a.s.cutoff_ns < optimum);
    assert_true(a.s.cutoff_ns > optimum - optimum / 1000);
    assert_true(vp_certificate_proves(&p, a.s.certificate, a.s.cutoff_ns));
    release(&a);
}

/* At the edges of what a problem may hold multipliers are clipped; what is proved is less then,
 * and still proved. */
static void the_largest_numbers_are_solved_as_far_as_they_can_be(void **state)
{
    vp_item_row items[] = {{(int64_t)1 << 20, (int64_t)1 << 44, (int64_t)1 << 45, 0},
                           {(int64_t)1 << 29, (int64_t)1 << 40, (int64_t)1 << 43, 0},
                           {(int64_t)1 << 28, 0, (int64_t)1 << 44, 0}};
    vp_ilp      g       = {
                   .n_blocks = VP_MAX_BLOCKS, .const_ns = (int64_t)1 << 60, .items = items, .n_items = 3};
    vp_ilp_problem p = {.budget_bytes = (int64_t)1 << 45,
                        .upper_ns     = INT64_MAX,
                        .max_nodes    = 2000,
                        .max_pivots   = 100000,
                        .ilps         = &g,
                        .n_ilps       = 1};
    answer         a;

    (void)state;
    for (int i = 0; i < 22; i++) {
        int64_t cost = INT64_MAX;

        p.budget_bytes      = (int64_t)1 << (56 - i);
        g.n_blocks          = i % 2 ? VP_MAX_BLOCKS : 1;
        items[0].beta_bytes = i < 10 ? (int64_t)1 << 55 : (int64_t)1 << 44;
        items[1].k_bytes    = i < 10 ? (int64_t)1 << 40 : (int64_t)1 << 29;
        solve(&p, &a);
        assert_true(vp_certificate_proves(&p, a.s.certificate, a.s.cutoff_ns));
        if (a.s.found)
            assert_true(vp_ilp_evaluate(&p, a.s.ilp_idx, a.s.counts, &cost));
        assert_true(a.s.cutoff_ns <= cost);
        release(&a);
    }
}

/* ---- documents ---- */

static void a_problem_reads_as_it_was_written(void **state)
{
    int64_t n_shared = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        vp_arena      *arena = vp_arena_new();
        vp_err         err   = {0};
        vp_json_doc   *doc;
        vp_json_node   node;
        vp_ilp_problem back;
        example        e;
        json_t        *root, *again;
        char          *text;

        make_example(&e, seed);
        e.p.gap = 1e-5;
        if (seed % 2) { /* the same items in another place */
            vp_ilp *last  = &e.ilps[e.p.n_ilps - 1];
            last->n_items = e.ilps[0].n_items;
            memmove(last->items, e.ilps[0].items, (size_t)last->n_items * sizeof *last->items);
        }
        root = vp_ilp_problem_to_json(&e.p);
        text = json_dumps(root, JSON_COMPACT);
        CHECK_OK(vp_json_parse("problem", text, (int64_t)strlen(text), &doc, &err));
        node = vp_json_root(doc);
        CHECK_OK(vp_ilp_problem_from_json(arena, &node, &back, &err));
        again = vp_ilp_problem_to_json(&back);
        assert_true(json_equal(root, again));
        for (int64_t i = 0; i < back.n_ilps; i++) {
            const vp_ilp *x = &e.p.ilps[i], *y = &back.ilps[i];
            const json_t *written = json_array_get(json_object_get(root, "programs"), (size_t)i);
            assert_true(x->n_blocks == y->n_blocks && x->n_items == y->n_items &&
                        x->base_bytes == y->base_bytes && x->end_bytes == y->end_bytes &&
                        x->const_ns == y->const_ns);
            assert_memory_equal(x->items, y->items, (size_t)x->n_items * sizeof *x->items);
            n_shared += json_object_get(written, "items_of") != NULL;
        }
        json_decref(root);
        json_decref(again);
        free(text);
        vp_json_doc_free(doc);
        vp_arena_free(arena);
    }
    assert_true(n_shared > 20);
}

static vp_status read_problem(const char *program, vp_err *err)
{
    char           text[2048];
    vp_arena      *arena = vp_arena_new();
    vp_json_doc   *doc   = NULL;
    vp_json_node   node;
    vp_ilp_problem p;
    vp_status      st = VP_OK;

    snprintf(
        text, sizeof text,
        "{\"budget_bytes\":9,\"upper_ns\":9,\"gap\":0,\"max_nodes\":1,\"max_pivots\":1,\"max_memory_bytes\":1,"
        "\"programs\":[%s]}",
        program);
    VP_TRY(vp_json_parse("problem", text, (int64_t)strlen(text), &doc, err));
    node = vp_json_root(doc);
    VP_TRY(vp_ilp_problem_from_json(arena, &node, &p, err));
out:
    vp_json_doc_free(doc);
    vp_arena_free(arena);
    return st;
}

#define PROGRAM_WITH(blocks, k, beta, cost, more) \
    "{\"n_blocks\":" blocks ",\"base_bytes\":0,\"end_bytes\":0,\"const_ns\":0,\"k_bytes\":" k \
    ",\"beta_bytes\":" beta ",\"cost_ns\":" cost more "}"
#define PROGRAM(blocks, k, beta, cost) PROGRAM_WITH(blocks, k, beta, cost, "")
#define SHARED(of, blocks) \
    "{\"base_bytes\":0,\"end_bytes\":0,\"const_ns\":0,\"items_of\":" of ",\"n_blocks\":" blocks "}"
#define SEGMENT(more) PROGRAM_WITH("3", "[1]", "[1]", "[1]", ",\"n_more\":" more)

static void a_problem_out_of_range_is_refused_where_it_is(void **state)
{
    vp_err err = {0};

    (void)state;
    CHECK_OK(read_problem(PROGRAM("3", "[1,2]", "[5,5]", "[7,4]"), &err));
#define REFUSED(text, field, part) \
    CHECK_FAILS(read_problem(text, &err), VP_ERR_INPUT, "problem", 1, field, part)
    REFUSED(PROGRAM("0", "[1]", "[1]", "[1]"), "programs[0].n_blocks", "between");
    REFUSED(PROGRAM("100001", "[1]", "[1]", "[1]"), "programs[0].n_blocks", "between");
    REFUSED(PROGRAM("3", "[]", "[]", "[]"), "programs[0].k_bytes", "items");
    REFUSED(PROGRAM("3", "[1]", "[1,1]", "[1]"), "programs[0].beta_bytes", "as many");
    REFUSED(PROGRAM("3", "[1]", "[1]", "[1,1]"), "programs[0].cost_ns", "as many");
    REFUSED(PROGRAM("3", "[-1]", "[1]", "[1]"), "programs[0].k_bytes[0]", "between");
    REFUSED(PROGRAM("3", "[1]", "[1]", "[35184372088833]"), "programs[0].cost_ns[0]", "between");
    REFUSED(PROGRAM("3", "[1]", "[1]", "[\"1\"]"), "programs[0].cost_ns[0]", "whole number");
    REFUSED(PROGRAM("3", "[72057594037927937]", "[1]", "[1]"), "programs[0].k_bytes[0]", "between");
    /* 2^56 a block, 64 times: the most */
    CHECK_OK(read_problem(PROGRAM("64", "[72057594037927936]", "[1]", "[1]"), &err));
    REFUSED(PROGRAM("65", "[72057594037927936]", "[1]", "[1]"), "programs[0].k_bytes",
            "every block");
    REFUSED(PROGRAM("3", "[1,2]", "[5,6]", "[7,4]"), "programs[0].beta_bytes", "descending");
    REFUSED(PROGRAM("3", "[2,1]", "[5,5]", "[7,4]"), "programs[0].beta_bytes", "descending");
    REFUSED("{\"n_blocks\":1}", "programs[0].base_bytes", "");
    CHECK_OK(read_problem(SEGMENT("[127]"), &err));
    REFUSED(SEGMENT("[128]"), "programs[0].n_more[0]", "between");
    REFUSED(SEGMENT("[-1]"), "programs[0].n_more[0]", "between");
    REFUSED(SEGMENT("[]"), "programs[0].n_more", "as many");
    REFUSED(SEGMENT("1"), "programs[0].n_more", "");
    CHECK_OK(read_problem(PROGRAM("3", "[1]", "[1]", "[1]") "," SHARED("0", "3"), &err));
    REFUSED(SHARED("0", "3"), "programs[0].items_of", "before it");
    REFUSED(PROGRAM("3", "[1]", "[1]", "[1]") "," SHARED("1", "3"), "programs[1].items_of",
            "before it");
    REFUSED(PROGRAM("3", "[1]", "[1]", "[1]") "," SHARED("0", "3,\"k_bytes\":[1]"),
            "programs[1].k_bytes", "");
    REFUSED(PROGRAM("64", "[72057594037927936]", "[1]", "[1]") "," SHARED("0", "65"),
            "programs[1].k_bytes", "every block");
#undef REFUSED
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_that_are_no_plan_are_refused),
        cmocka_unit_test(the_rows_of_counts_are_their_best_order_to_the_byte),
        cmocka_unit_test(the_chain_program_finds_the_optimum),
        cmocka_unit_test(the_solver_brute_force_and_the_dp_agree_to_the_nanosecond),
        cmocka_unit_test(a_gap_and_an_upper_bound_are_kept),
        cmocka_unit_test(a_known_plan_slower_than_all_counts_is_proved_all_the_same),
        cmocka_unit_test(a_search_cut_by_its_limits_still_proves_what_it_says),
        cmocka_unit_test(the_largest_numbers_are_solved_as_far_as_they_can_be),
        cmocka_unit_test(little_memory_ends_the_search_or_the_program_but_in_order),
        cmocka_unit_test(a_tree_that_stalls_is_closed_by_the_frontier),
        cmocka_unit_test(a_certificate_too_large_to_read_is_one_of_a_lower_cutoff),
        cmocka_unit_test(a_problem_reads_as_it_was_written),
        cmocka_unit_test(a_problem_out_of_range_is_refused_where_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
