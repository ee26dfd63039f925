/* A certificate of planner/solve/problem.h proves what is true and no more. */
#include "tests/solver_test.h"

/* Any change may leave a proof, but never of more than is true. */
static void a_damaged_certificate_never_proves_more_than_the_optimum(void **state)
{
    int     n_read = 0;
    example e;

    (void)state;
    for (uint64_t seed = 300001; seed <= 300000 + (uint64_t)n_cases(200); seed++) {
        int64_t want;
        size_t  n;
        char   *text;
        answer  a;

        make_example(&e, seed);
        want = brute_problem(&e.p);
        if (want == INT64_MAX)
            continue;
        solve(&e.p, &a);
        text = json_dumps(a.s.certificate, JSON_COMPACT);
        n    = strlen(text);
        for (int round = 0; round < 60; round++) {
            char        *copy = strdup(text);
            size_t       size = n;
            vp_json_doc *doc  = NULL;

            if (round % 6 == 5)
                size = (size_t)below((int64_t)n);
            else
                for (int64_t i = 1 + below(4); i > 0; i--) {
                    char *at = &copy[below((int64_t)n)];

                    *at = *at >= '0' && *at <= '9' && below(8) ? (char)('0' + below(10))
                                                               : "[],-0123"[below(8)];
                }
            if (vp_json_parse("certificate", copy, (int64_t)size, &doc, NULL) == VP_OK) {
                n_read++;
                if (vp_certificate_proves(&e.p, vp_json_root(doc).value, want + 1))
                    fail_with(&e.p, copy, seed, want + 1, want);
            }
            vp_json_doc_free(doc);
            free(copy);
        }
        free(text);
        release(&a);
    }
    assert_true(n_read > n_cases(200));
}

/* The proof of one problem is none of a slightly different one in which there is something
 * cheaper. */
static void a_certificate_of_another_problem_proves_only_what_is_true_of_this(void **state)
{
    int     n_cheaper = 0;
    example e;

    (void)state;
    for (uint64_t seed = 400001; seed <= 400000 + (uint64_t)n_cases(300); seed++) {
        answer a;

        make_example(&e, seed);
        solve(&e.p, &a);
        for (int round = 0; round < 20; round++) {
            example other = e;
            vp_ilp *g     = &other.ilps[below(e.p.n_ilps)];
            int64_t i = g - other.ilps, s = below(g->n_items), now;

            other.p.ilps = other.ilps;
            for (int64_t j = 0; j < e.p.n_ilps; j++)
                other.ilps[j].items = other.items[j];
            switch (below(7)) {
            case 0:
                other.p.budget_bytes += below(other.p.budget_bytes / 4 + 2);
                break;
            case 1:
                other.items[i][s].k_bytes -= below(other.items[i][s].k_bytes + 1);
                break;
            case 2:
                other.items[i][s].cost_ns -= below(other.items[i][s].cost_ns + 1);
                break;
            case 3:
                g->const_ns -= below(g->const_ns + 1);
                break;
            case 4:
                g->end_bytes -= below(g->end_bytes + 1);
                break;
            case 5:
                other.items[i][s].n_more += 1 + below(2);
                break;
            default:
                g->n_blocks = 1 + below(g->n_blocks);
                break;
            }
            now = brute_problem(&other.p);
            if (now >= a.s.cutoff_ns)
                continue;
            n_cheaper++;
            if (vp_certificate_proves(&other.p, a.s.certificate, a.s.cutoff_ns) ||
                vp_certificate_proves(&other.p, a.s.certificate, now + 1))
                fail_with(&other.p, "certificate of another problem", seed, a.s.cutoff_ns, now);
        }
        release(&a);
    }
    assert_true(n_cheaper > n_cases(300));
}

static bool proves(const vp_ilp_problem *p, const char *certificate, int64_t cutoff_ns)
{
    json_t *c  = json_loads(certificate, 0, NULL);
    bool    is = vp_certificate_proves(p, c, cutoff_ns);

    json_decref(c);
    return is;
}

/* Three blocks; keeping (2 bytes, 4 ns) or recomputing (1 byte, 7 ns, 5 bytes above). Room 19 -
 * 10 = 9:
 *     end    n0 + 2 n1 + 4 <= 9        level 0  n0 + 5 <= 9 if n0       level 1  n0 + 2 n1 + 3
 *            <= 9 if n1
 * so n1 <= 2 by the end row, and the optimum is 100 + 7 + 2 * 4 = 115. Cover 10 ns = 10240 /
 * 1024, end 3 ns a byte = 3221225472 / 2^30: reduced costs 7 + 3 - 10 = 0 and 4 + 6 - 10 =
 * 0, bound 100 + 30 - 15 = 115. Without n0 the end row is one byte short: 2000 ns a block,
 * 1000 ns a byte, 4 - 2000 + 2 * 1000 = 4 reduced, bound 100 + 6000 - 5000 = 1100. */
static vp_ilp by_hand(vp_item_row items[2])
{
    items[0] = (vp_item_row){.k_bytes = 1, .beta_bytes = 5, .cost_ns = 7};
    items[1] = (vp_item_row){.k_bytes = 2, .beta_bytes = 3, .cost_ns = 4};
    return (vp_ilp){.n_blocks   = 3,
                    .base_bytes = 10,
                    .end_bytes  = 4,
                    .const_ns   = 100,
                    .items      = items,
                    .n_items    = 2};
}

/* Of the problem above. */
static const char *const not_certificates[] = {
    "null",
    "0",
    "[]",
    "{}",
    "[[]]",
    "[null]",
    "[[null]]",
    "[[[]]]",
    "[[0]]",
    "[[[0],[0]]]",
    "[[[0]],[[0]]]",
    "[[[5]]]",
    "[[[-1]]]",
    "[[[true]]]",
    "[[[\"0\"]]]",
    "[[[0.0]]]",
    "[{\"0\":[0]}]",
    "[[[3]]]",
    "[[[3,0]]]", /* the box is not empty           */
    "[[[4,0]]]",
    "[[[4],[4]]]",
    "[[[2,0,0],[4],[0]]]",
    "[[[2,0,0],[0],[4]]]",
    "[[[1,0],[0],[4]]]", /* whole trees only */
    "[[[1,0],[0]]]",
    "[[[1,0]]]",
    "[[[2,0,0],[0]]]",
    "[[[2,0,0]]]",           /* a corner is missing            */
    "[[[1,0],[0],[0],[0]]]", /* something is left over         */
    "[[[1,2],[0],[0]]]",
    "[[[1,-1],[0],[0]]]",
    "[[[1],[0],[0]]]",
    "[[[1,0,0],[0],[0]]]",
    "[[[1,0.0],[0],[0]]]",
    "[[[1,0],[0],[1,0],[0],[0]]]", /* decided twice                  */
    "[[[2,2,0],[0],[0]]]",
    "[[[2,-1,0],[0],[0]]]",
    "[[[2,0],[0],[0]]]",
    "[[[2,0,3],[0],[0]]]",
    "[[[2,0,-1],[0],[0]]]",
    "[[[2,0,0,0],[0],[0]]]",
    "[[[2,0,0.0],[0],[0]]]",
    "[[[2,0,0],[0],[3]]]",
    "[[[2,0,0],[3],[0]]]",
    "[[[0,0]]]",
    "[[[0,[0]]]]",
    "[[[0,[0,0,0]]]]",
    "[[[0,[6,0]]]]",
    "[[[0,[-1,0]]]]",
    "[[[0,[1,0],[0,0]]]]",
    "[[[0,[0,0],[0,0]]]]",
    "[[[0,[0,0.5]]]]",
    "[[[0,[0.0,5]]]]",
    "[[[0,[0,null]]]]",
    "[[[0,null]]]",
    "[[[0,{}]]]",
    "[[[0,[4,0]]]]",
    "[[[1,0],[0,[4,0]],[0]]]",
    "[[[1,0],[0,[2,0]],[0]]]", /* rows that are not there      */
};

static void a_certificate_is_exactly_as_described_or_proves_nothing(void **state)
{
    vp_item_row    items[2];
    vp_ilp         g = by_hand(items);
    vp_ilp_problem p = {.budget_bytes = 19, .ilps = &g, .n_ilps = 1};

    (void)state;
    assert_true(proves(&p, "[[[0,[0,10240],[1,3221225472]]]]", 115));
    assert_false(proves(&p, "[[[0,[0,10240],[1,3221225472]]]]", 116));
    /* 114.999..: whole nanoseconds */
    assert_true(proves(&p, "[[[0,[0,10240],[1,3221225471]]]]", 115));
    assert_true(proves(&p, "[[[0]]]", 100));
    assert_false(proves(&p, "[[[0]]]", 101));
    assert_true(proves(&p, "[[[0,[0,4096]]]]", 112));
    /* a wrong sign counts as 0 */
    assert_true(proves(&p, "[[[0,[0,4096],[1,-5]]]]", 112));
    assert_true(proves(
        &p, "[[[2,0,0],[0,[0,2048000],[1,1073741824000]],[0,[0,10240],[1,3221225472]]]]", 115));
    assert_true(proves(
        &p, "[[[1,0],[0,[0,2048000],[1,1073741824000]],[0,[0,10240],[1,3221225472]]]]", 115));
    assert_true(
        proves(&p, "[[[1,1],[2,1,0],[0,[0,7168]],[3],[0,[0,10240],[1,3221225472],[5,0]]]]", 115));
    assert_true(
        proves(&p, "[[[2,1,1],[0,[0,7168]],[2,1,1],[3],[0,[0,10240],[1,3221225472]]]]", 115));

    for (size_t i = 0; i < sizeof not_certificates / sizeof *not_certificates; i++) {
        if (proves(&p, not_certificates[i], 100))
            print_error("%s\n", not_certificates[i]);
        assert_false(proves(&p, not_certificates[i], 100));
    }
}

static bool by_chains(const vp_ilp *ilp, int64_t budget_bytes, int64_t cutoff_ns)
{
    int64_t n_states = 1000000;

    return vp_chain_proves(ilp, budget_bytes, cutoff_ns, &n_states);
}

static void what_the_frontier_found_is_found_again_or_proves_nothing(void **state)
{
    vp_item_row    items[2];
    vp_ilp         g[VP_MAX_CHAIN_PROOFS + 1];
    vp_ilp_problem p = {.budget_bytes = 19, .ilps = g, .n_ilps = 1};
    char           all[8 * (VP_MAX_CHAIN_PROOFS + 1)] = "[";
    example        e;

    (void)state;
    g[0] = by_hand(items);
    assert_true(proves(&p, "[[[4]]]", 115)); /* the optimum, as above */
    assert_false(proves(&p, "[[[4]]]", 116));
    assert_true(proves(&p, "[[[4]]]", 100));
    assert_true(proves(&p, "[[[4]]]", INT64_MIN + 1));
    p.budget_bytes = 13; /* nothing fits: all is true of it */
    assert_true(proves(&p, "[[[4]]]", INT64_MAX));
    p.budget_bytes = 9;
    assert_true(proves(&p, "[[[4]]]", INT64_MAX));

    p.budget_bytes = 19;
    for (int i = 0; i <= VP_MAX_CHAIN_PROOFS; i++) {
        g[i]     = g[0];
        p.n_ilps = i + 1;
        strcpy(strrchr(all, i ? ']' : '['), i ? ",[[4]]]" : "[[[4]]]");
        assert_int_equal(proves(&p, all, 115), i < VP_MAX_CHAIN_PROOFS);
    }

    for (uint64_t seed = 500001; seed <= 500000 + (uint64_t)n_cases(2000); seed++) {
        make_example(&e, seed);
        for (int64_t i = 0; i < e.p.n_ilps; i++) {
            int64_t want = brute_ilp(&e.p, i), n[MAX_N], cost = -1;

            if (vp_dp_solve(&e.ilps[i], e.p.budget_bytes, want, 1000000, n, &cost) != VP_DP_NONE)
                fail_with(&e.p, "the frontier finds something cheaper than the optimum", seed, cost,
                          want);
            if (!by_chains(&e.ilps[i], e.p.budget_bytes, want))
                fail_with(&e.p, "the checker sees no proof of the optimum", seed, 0, want);
            if (want == INT64_MAX)
                continue;
            if (by_chains(&e.ilps[i], e.p.budget_bytes, want + 1))
                fail_with(&e.p, "the checker sees a proof of more than the optimum", seed, 0, want);
            if (vp_dp_solve(&e.ilps[i], e.p.budget_bytes, want + 1, 1000000, n, &cost) !=
                    VP_DP_FOUND ||
                cost != want)
                fail_with(&e.p,
                          "the frontier finds nothing below a nanosecond more than the optimum",
                          seed, cost, want);
            if (!vp_dp_bound(&e.ilps[i], e.p.budget_bytes, &cost) || cost > want)
                fail_with(&e.p, "the hull's bound", seed, cost, want);
        }
    }
}

/* Two blocks of 100 bytes each on top of 50 and 7: 257 bytes, and not one less. */
static void the_least_that_a_chain_keeps_is_its_least_budget(void **state)
{
    vp_item_row items[] = {{.k_bytes = 100, .cost_ns = 5}};
    vp_ilp      g       = {.n_blocks   = 2,
                           .items      = items,
                           .n_items    = 1,
                           .base_bytes = 50,
                           .end_bytes  = 7,
                           .const_ns   = 1};
    int64_t     bound_ns;

    (void)state;
    assert_true(vp_dp_bound(&g, 257, &bound_ns));
    assert_int_equal(bound_ns, 11);
    assert_false(vp_dp_bound(&g, 256, &bound_ns));
}

static void multipliers_beyond_126_bits_prove_nothing(void **state)
{
    vp_item_row items[] = {
        {.k_bytes = (int64_t)1 << 46, .beta_bytes = (int64_t)1 << 46, .cost_ns = (int64_t)1 << 45}};
    vp_ilp         g = {.n_blocks = VP_MAX_BLOCKS, .items = items, .n_items = 1};
    vp_ilp_problem p = {.budget_bytes = INT64_MAX, .ilps = &g, .n_ilps = 1};

    (void)state;
    assert_false(proves(
        &p, "[[[0,[0,9223372036854775807],[1,9223372036854775807],[2,9223372036854775807]]]]", 0));
    assert_false(proves(&p, "[[[0,[0,-9223372036854775808],[2,9223372036854775807]]]]", 0));
    p.budget_bytes = INT64_MIN;
    assert_false(proves(&p, "[[[0,[2,9223372036854775807]]]]", 0));
    assert_true(proves(&p, "[[[0]]]", 0));
}

/* The checker's chain program stands on levels that descend and on costs of 0 and more: it says so itself,
 * whoever calls it. */
static void a_chain_of_other_items_proves_nothing(void **state)
{
    vp_item_row items[2];
    vp_ilp      g = by_hand(items);

    (void)state;
    assert_true(by_chains(&g, 19, 100));
    items[0].beta_bytes = 2;
    assert_false(by_chains(&g, 19, 100));
    items[0].beta_bytes = 5;
    items[1].cost_ns    = -1;
    assert_false(by_chains(&g, 19, 50));
}

/* A row of <= times a negative number is a row of >=, which no chain need keep: of it a bound as high
 * as one likes would follow, 10^9 ns here. Room 986 for 9 bytes at most: -u (986 - 9) grows with -u. */
static void a_negative_multiplier_proves_nothing(void **state)
{
    static const char *const rows[] = {
        "[[[0,[1,-4611686018427387904]]]]",           /* the end's room       */
        "[[[0,[2,-4611686018427387904]]]]",           /* level 0, undecided   */
        "[[[0,[3,-4611686018427387904]]]]",           /* level 1              */
        "[[[1,0],[0],[0,[2,-4611686018427387904]]]]", /* level 0, in use      */
        "[[[1,1],[0],[0,[3,-4611686018427387904]]]]"};
    vp_item_row    items[2];
    vp_ilp         g = by_hand(items);
    vp_ilp_problem p = {.budget_bytes = 1000, .ilps = &g, .n_ilps = 1};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(proves(&p, rows[i], 100)); /* counts as 0 */
        assert_false(proves(&p, rows[i], 101));
    }
}

/* -u (room x blocks) with products of 128 and of 127 bits, which as 128-bit numbers with a sign are
 * positive again: u = (2^28 - 1) 2^34. Room 2^54 and 4096 blocks: u 2^66 = 2^128 - 2^100, its
 * negative reads 2^100. 4095 blocks: the bits of the factors sum to 128, and 2^128 - 2^116 - 2^100 +
 * 2^88 is left. */
static void a_product_that_wraps_proves_nothing(void **state)
{
    vp_item_row    items[] = {{.k_bytes = 0, .beta_bytes = 0, .cost_ns = 1}};
    vp_ilp         g       = {.items = items, .n_items = 1};
    vp_ilp_problem p       = {.budget_bytes = (int64_t)1 << 54, .ilps = &g, .n_ilps = 1};

    (void)state;
    for (g.n_blocks = 4095; g.n_blocks <= 4096; g.n_blocks++) {
        assert_true(proves(&p, "[[[0]]]", 0));
        assert_false(proves(&p, "[[[0,[2,4611686001247518720]]]]", 0));
    }
}

static void a_tree_deeper_than_the_limit_proves_nothing(void **state)
{
    vp_item_row    items[] = {{.cost_ns = 1}};
    vp_ilp         g       = {.n_blocks = 1, .items = items, .n_items = 1};
    vp_ilp_problem p       = {.ilps = &g, .n_ilps = 1};

    (void)state;
    for (int depth = 4000; depth <= 4200; depth += 200) {
        json_t *tree = json_array(), *all = json_array();

        for (int i = 0; i < depth; i++)
            json_array_append_new(tree, json_pack("[iii]", 2, 0, 0));
        for (int i = 0; i <= depth; i++)
            json_array_append_new(tree, json_pack("[i]", 0));
        json_array_append_new(all, tree);
        assert_int_equal(vp_certificate_proves(&p, all, 0), depth < 4096);
        json_decref(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_certificate_never_proves_more_than_the_optimum),
        cmocka_unit_test(a_certificate_of_another_problem_proves_only_what_is_true_of_this),
        cmocka_unit_test(a_certificate_is_exactly_as_described_or_proves_nothing),
        cmocka_unit_test(what_the_frontier_found_is_found_again_or_proves_nothing),
        cmocka_unit_test(the_least_that_a_chain_keeps_is_its_least_budget),
        cmocka_unit_test(multipliers_beyond_126_bits_prove_nothing),
        cmocka_unit_test(a_chain_of_other_items_proves_nothing),
        cmocka_unit_test(a_negative_multiplier_proves_nothing),
        cmocka_unit_test(a_product_that_wraps_proves_nothing),
        cmocka_unit_test(a_tree_deeper_than_the_limit_proves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
