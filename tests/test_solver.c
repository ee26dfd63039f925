/* The integer program of planner/problem.h: vplan-solve, the frontier DP and the certificate's checker against brute force over
 * all sequences of strategies. The solver runs as the child process it is: $BUILD/vplan-solve. */
#include "tests/core_test.h"

#include "core/child.h"
#include "planner/problem.h"

#include <stdbool.h>

enum { MAX_L = 7, MAX_N = 6, MAX_P = 3 };

static int n_cases(int quick)
{
#if defined(__SANITIZE_ADDRESS__)
    quick /= 10;   /* the solver starts slowly then */
#endif
    return getenv("VPLAN_LONG") ? 10 * quick : quick;
}

/* ---- random problems ---- */

static uint64_t rng;

static uint64_t next_random(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng * 0x2545F4914F6CDD1DULL;
}

static int64_t below(int64_t n)
{
    return (int64_t)((next_random() >> 20) % (uint64_t)n);
}

typedef struct example {
    vp_ilp_problem p;
    vp_ilp_program programs[MAX_P];
    vp_item_row    items[MAX_P][MAX_N];
} example;

static int by_beta_then_k(const void *a, const void *b)
{
    const vp_item_row *x = a, *y = b;

    if (x->beta_bytes != y->beta_bytes)
        return x->beta_bytes < y->beta_bytes ? 1 : -1;
    return (x->k_bytes > y->k_bytes) - (x->k_bytes < y->k_bytes);
}

/* The peak of the whole sequence, its last block first, by the definition: what is kept below, then the need above. */
static int64_t prepended(const vp_item_row *x, int64_t need_bytes)
{
    return x->k_bytes + (x->beta_bytes > need_bytes ? x->beta_bytes : need_bytes);
}

/* Numbers small enough for ties, or as in a real model; half of the items share their beta with another; keeping more is
 * mostly, but not always, cheaper. The budget lies between what always fits not and what always fits. */
static void make_example(example *e, uint64_t seed)
{
    int64_t unit, ns, low = INT64_MAX, high = 0;

    *e  = (example){0};
    rng = seed * 0x9E3779B97F4A7C15ULL + 1;
    for (int i = 0; i < 4; i++)
        next_random();
    unit            = below(3) ? 1 : 256 * (1 + below(100000));
    ns              = below(3) ? 1 : 1 + below(1000000);
    e->p.programs   = e->programs;
    e->p.n_programs = 1 + below(MAX_P);
    for (int i = 0; i < e->p.n_programs; i++) {
        vp_ilp_program *g = &e->programs[i];

        g->items      = e->items[i];
        g->n_items    = 1 + below(MAX_N);
        g->n_blocks   = 1 + below(MAX_L);
        g->base_bytes = below(4) ? below(30) * unit : 0;
        g->end_bytes  = below(40) * unit;
        g->const_ns   = below(3) ? below(30) * ns : 0;
        for (int64_t s = 0; s < g->n_items; s++) {
            vp_item_row *x = &g->items[s];

            x->k_bytes    = (below(2) ? below(8) : below(40)) * unit + (unit > 1 ? below(3) : 0);
            x->beta_bytes = s && below(2) ? g->items[below(s)].beta_bytes : below(40) * unit;
            x->cost_ns    = below(5) ? (80 - x->k_bytes / unit) * ns + below(20) * ns / 3 : below(60) * ns;
        }
        qsort(g->items, (size_t)g->n_items, sizeof *g->items, by_beta_then_k);
        for (int64_t s = 0; s < g->n_items; s++) {
            int64_t need = g->end_bytes;

            for (int64_t j = 0; j < g->n_blocks; j++)
                need = prepended(&g->items[s], need);
            need += g->base_bytes;
            low  = need < low ? need : low;
            high = need > high ? need : high;
        }
    }
    e->p.budget_bytes     = low - low / 16 + below(high - low + low / 8 + 1);
    e->p.upper_ns         = INT64_MAX;
    e->p.max_nodes        = 100000;
    e->p.max_pivots       = 10000000;
    e->p.max_memory_bytes = (int64_t)1 << 30;
}

/* ---- brute force ---- */

typedef struct brute {
    const vp_ilp_program *g;
    int64_t               room_bytes;
    int64_t               best_ns;                 /* INT64_MAX: nothing fits */
    int64_t               n[MAX_N];
    int64_t               least_bytes[1 << (3 * MAX_N)]; /* of any order of these counts, three bits each */
    bool                  with_orders;
} brute;

static void all_sequences(brute *b, int64_t left, int64_t need_bytes, int64_t cost_ns)
{
    if (!left) {
        int64_t code = 0;

        if (need_bytes <= b->room_bytes && cost_ns < b->best_ns)
            b->best_ns = cost_ns;
        for (int64_t s = 0; b->with_orders && s < b->g->n_items; s++)
            code |= b->n[s] << (3 * s);
        if (b->with_orders && need_bytes < b->least_bytes[code])
            b->least_bytes[code] = need_bytes;
        return;
    }
    for (int64_t s = 0; s < b->g->n_items; s++) {
        b->n[s]++;
        all_sequences(b, left - 1, prepended(&b->g->items[s], need_bytes), cost_ns + b->g->items[s].cost_ns);
        b->n[s]--;
    }
}

static brute work;

static int64_t brute_program(const vp_ilp_problem *p, int64_t i)
{
    const vp_ilp_program *g = &p->programs[i];

    work.g           = g;
    work.room_bytes  = p->budget_bytes - g->base_bytes;
    work.best_ns     = INT64_MAX;
    work.with_orders = false;
    memset(work.n, 0, sizeof work.n);
    all_sequences(&work, g->n_blocks, g->end_bytes, g->const_ns);
    return work.best_ns;
}

static int64_t brute_problem(const vp_ilp_problem *p)
{
    int64_t best = INT64_MAX;

    for (int64_t i = 0; i < p->n_programs; i++) {
        int64_t ns = brute_program(p, i);

        best = ns < best ? ns : best;
    }
    return best;
}

/* ---- the solver as a child ---- */

static void fail_with(const vp_ilp_problem *p, const char *what, uint64_t seed, int64_t got, int64_t want)
{
    json_t *root = vp_ilp_problem_to_json(p);
    char   *text = json_dumps(root, JSON_COMPACT);

    print_error("seed %llu: %s: %lld, wanted %lld\n%s\n", (unsigned long long)seed, what, (long long)got, (long long)want, text);
    free(text);
    json_decref(root);
    fail();
}

typedef struct answer {
    vp_child_result run;
    vp_json_doc    *doc;
    vp_arena       *arena;
    vp_ilp_solution s;
} answer;

static const char *solver_path(void)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/vplan-solve", getenv("BUILD") ? getenv("BUILD") : "build");
    return path;
}

static void solve(const vp_ilp_problem *p, answer *a)
{
    char *const     argv[] = {(char *)(uintptr_t)solver_path(), NULL};
    json_t         *root   = vp_ilp_problem_to_json(p);
    char           *text   = json_dumps(root, JSON_COMPACT);
    vp_child_opts   opts   = {.argv = argv, .stdin_bytes = text, .n_stdin_bytes = strlen(text), .out = VP_CHILD_CAPTURE,
                              .err = VP_CHILD_CAPTURE, .max_output_bytes = 8 << 20, .timeout_s = 300};
    vp_json_node    node;
    vp_err          err    = {0};

    *a = (answer){0};
    CHECK_OK(vp_child_run(&opts, &a->run, &err));
    if (a->run.end != VP_CHILD_EXITED || a->run.exit_code)
        print_error("%s\n%s", text, a->run.err);
    assert_int_equal(a->run.end, VP_CHILD_EXITED);
    assert_int_equal(a->run.exit_code, 0);
    CHECK_OK(vp_json_parse("solution", a->run.out, (int64_t)a->run.n_out, &a->doc, &err));
    node     = vp_json_root(a->doc);
    a->arena = vp_arena_new();
    CHECK_OK(vp_ilp_solution_from_json(a->arena, &node, p, &a->s, &err));
    free(text);
    json_decref(root);
}

static void release(answer *a)
{
    json_decref(a->s.certificate);
    vp_json_doc_free(a->doc);
    vp_arena_free(a->arena);
    vp_child_result_release(&a->run);
}

/* ---- counts, orders, the DP ---- */

static void the_rows_of_counts_are_their_best_order_to_the_byte(void **state)
{
    example e;

    (void)state;
    for (uint64_t seed = 1; seed <= (uint64_t)n_cases(400); seed++) {
        make_example(&e, seed);
        for (int64_t i = 0; i < e.p.n_programs; i++) {
            const vp_ilp_program *g      = &e.programs[i];
            int64_t               n_most = 1, n[MAX_N];

            for (int64_t j = 0; j < g->n_blocks; j++)
                n_most *= g->n_items;
            if (n_most > 20000)
                continue;
            memset(work.least_bytes, 0x7f, sizeof work.least_bytes);
            brute_program(&e.p, i);
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
    vp_item_row    items[] = {{.k_bytes = 1, .beta_bytes = 5, .cost_ns = 7}, {.k_bytes = 2, .beta_bytes = 3, .cost_ns = 4}};
    vp_ilp_program g       = {.n_blocks = 3, .base_bytes = 10, .end_bytes = 4, .const_ns = 100, .items = items, .n_items = 2};
    vp_ilp_problem p       = {.budget_bytes = 19, .programs = &g, .n_programs = 1};
    int64_t        cost    = 0;

    (void)state;
    /* 10 + 1 + 2 * 2 + 4 = 19 at the end; 10 + 1 + 5 = 16 and 10 + 5 + 3 = 18 at the levels; 100 + 7 + 2 * 4 */
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

static void the_frontier_dp_finds_the_optimum(void **state)
{
    example e;

    (void)state;
    for (uint64_t seed = 1; seed <= (uint64_t)n_cases(2000); seed++) {
        make_example(&e, seed);
        for (int64_t i = 0; i < e.p.n_programs; i++) {
            int64_t want = brute_program(&e.p, i), n[MAX_N], cost = -1, again = -1;
            bool    found = vp_dp_solve(&e.programs[i], e.p.budget_bytes, INT64_MAX, 1000000, n, &cost) == VP_DP_FOUND;

            if (found != (want < INT64_MAX) || (found && cost != want))
                fail_with(&e.p, "DP", seed, cost, want);
            if (found && (!vp_ilp_evaluate(&e.p, i, n, &again) || again != cost))
                fail_with(&e.p, "the DP's counts", seed, again, cost);
            if (found && vp_dp_solve(&e.programs[i], e.p.budget_bytes, INT64_MAX, 0, n, &cost) != VP_DP_TOO_LARGE)
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
        for (int64_t i = 0; i < e.p.n_programs; i++) {
            int64_t n[MAX_N], ns;

            if (vp_dp_solve(&e.programs[i], e.p.budget_bytes, INT64_MAX, 1000000, n, &ns) == VP_DP_FOUND && ns < dp)
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
            if (!vp_ilp_evaluate(&e.p, a.s.program_idx, a.s.counts, &cost) || cost != want)
                fail_with(&e.p, "cost of the solution", seed, cost, want);
            if (a.s.cutoff_ns != want)
                fail_with(&e.p, "cutoff", seed, a.s.cutoff_ns, want);
            if (vp_certificate_proves(&e.p, a.s.certificate, want + 1))
                fail_with(&e.p, "certificate accepted above the optimum", seed, want + 1, want);
        } else {
            /* Infeasible: the cutoff is above whatever counts of any program could cost. */
            for (int64_t i = 0; i < e.p.n_programs; i++)
                for (int64_t s = 0; s < e.programs[i].n_items; s++)
                    assert_true(a.s.cutoff_ns > e.programs[i].const_ns + e.programs[i].n_blocks * e.items[i][s].cost_ns);
            n_infeasible++;
        }
        release(&a);
    }
    assert_in_range(n_infeasible, 5, n_cases(2000) / 2);   /* the examples are of both kinds */
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
            if (a.s.found && (!vp_ilp_evaluate(&e.p, a.s.program_idx, a.s.counts, &cost) || cost >= e.p.upper_ns || cost < want))
                fail_with(&e.p, "cost of the solution", seed, cost, want);
            if (!a.s.found && e.p.upper_ns == INT64_MAX)
                fail_with(&e.p, "nothing found", seed, 0, 1);
            if (a.s.cutoff_ns > want || (double)a.s.cutoff_ns < (double)cost * (1 - e.p.gap) - 1)
                fail_with(&e.p, "cutoff", seed, a.s.cutoff_ns, want);
        }
        release(&a);
    }
}

/* Limits end the search anywhere; what was proved until then is proved, and the same input gives the same bytes. */
static void a_search_cut_by_its_limits_still_proves_what_it_says(void **state)
{
    example e;

    (void)state;
    for (uint64_t seed = 200001; seed <= 200000 + (uint64_t)n_cases(300); seed++) {
        int64_t want, cost;
        answer  a, b;

        make_example(&e, seed);
        want             = brute_problem(&e.p);
        e.p.max_nodes    = below(2) ? below(6) : 100000;
        e.p.max_pivots   = e.p.max_nodes < 6 ? 10000000 : below(12);
        solve(&e.p, &a);
        solve(&e.p, &b);
        if (a.s.n_nodes > e.p.max_nodes)
            fail_with(&e.p, "nodes", seed, a.s.n_nodes, e.p.max_nodes);
        if (!vp_certificate_proves(&e.p, a.s.certificate, a.s.cutoff_ns) || a.s.cutoff_ns > want)
            fail_with(&e.p, "certificate at its cutoff", seed, a.s.cutoff_ns, want);
        if (a.s.found && (!vp_ilp_evaluate(&e.p, a.s.program_idx, a.s.counts, &cost) || cost < want))
            fail_with(&e.p, "cost of the solution", seed, cost, want);
        if (a.run.n_out != b.run.n_out || memcmp(a.run.out, b.run.out, a.run.n_out))
            fail_with(&e.p, "two runs, two answers", seed, 0, 0);
        release(&a);
        release(&b);
    }
}

enum { LARGE = 64 };

/* A chain whose tree is large: items that trade bytes for time nearly evenly. */
static void make_large(vp_ilp_problem *p, vp_ilp_program *g, vp_item_row *items)
{
    rng = 12345;
    for (int64_t s = 0; s < LARGE; s++) {
        int64_t a = below(1000), level = below(10);

        items[s].k_bytes    = 8000000 + 90000 * a + below(2000000);
        items[s].beta_bytes = 20000000 + 38000000 * level;
        items[s].cost_ns    = 4000000 + 2 * (1000 - a) * (1000 - a) + 60000 * (9 - level) + below(80000);
    }
    qsort(items, LARGE, sizeof *items, by_beta_then_k);
    *g = (vp_ilp_program){.n_blocks = 12, .end_bytes = 50000000, .const_ns = 20000000, .items = items, .n_items = LARGE};
    *p = (vp_ilp_problem){.budget_bytes = 500000000, .upper_ns = INT64_MAX, .max_nodes = 3000, .max_pivots = 1000000, .programs = g,
                          .n_programs = 1};
}

/* Whether GLPK, the arena or the certificate runs out first: an honest answer or an exit code, never a signal or half an answer. */
static void little_memory_ends_the_search_or_the_program_but_in_order(void **state)
{
    vp_item_row    items[LARGE];
    vp_ilp_program g;
    vp_ilp_problem p;
    int            n_answers = 0;

    (void)state;
    make_large(&p, &g, items);
    for (int64_t kib = 64; kib <= 65536; kib += kib / 12) {
        char *const     argv[] = {(char *)(uintptr_t)solver_path(), NULL};
        vp_child_opts   opts   = {.argv = argv, .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE, .max_output_bytes = 8 << 20,
                                  .timeout_s = 300};
        vp_child_result run    = {0};
        vp_json_doc    *doc    = NULL;
        vp_arena       *arena  = vp_arena_new();
        vp_ilp_solution s      = {0};
        vp_json_node    node;
        json_t         *root;
        char           *text;
        vp_err          err    = {0};

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
    vp_ilp_program g;
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

/* Thirty programs that are equally good need thirty trees: more than a document may hold (core/json.h), and more than the frontier closes. */
static void a_certificate_too_large_to_read_is_one_of_a_lower_cutoff(void **state)
{
    vp_item_row    items[LARGE];
    vp_ilp_program g[30];
    vp_ilp_problem p;
    int64_t        n[LARGE], optimum;
    answer         a;

    (void)state;
    make_large(&p, g, items);
    for (int i = 1; i < 30; i++)
        g[i] = g[0];
    p.n_programs = 30;
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

/* At the edges of what a problem may hold multipliers are clipped; what is proved is less then, and still proved. */
static void the_largest_numbers_are_solved_as_far_as_they_can_be(void **state)
{
    vp_item_row    items[] = {{(int64_t)1 << 20, (int64_t)1 << 44, (int64_t)1 << 45},
                              {(int64_t)1 << 29, (int64_t)1 << 40, (int64_t)1 << 43},
                              {(int64_t)1 << 28, 0, (int64_t)1 << 44}};
    vp_ilp_program g       = {.n_blocks = VP_MAX_BLOCKS, .const_ns = (int64_t)1 << 60, .items = items, .n_items = 3};
    vp_ilp_problem p       = {.budget_bytes = (int64_t)1 << 45, .upper_ns = INT64_MAX, .max_nodes = 2000, .max_pivots = 100000,
                              .programs = &g, .n_programs = 1};
    answer         a;

    (void)state;
    for (int i = 0; i < 12; i++) {
        int64_t cost = INT64_MAX;

        p.budget_bytes = (int64_t)1 << (46 - i);
        g.n_blocks     = i % 2 ? VP_MAX_BLOCKS : 1;
        solve(&p, &a);
        assert_true(vp_certificate_proves(&p, a.s.certificate, a.s.cutoff_ns));
        if (a.s.found)
            assert_true(vp_ilp_evaluate(&p, a.s.program_idx, a.s.counts, &cost));
        assert_true(a.s.cutoff_ns <= cost);
        release(&a);
    }
}

/* ---- the checker ---- */

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

                    *at = *at >= '0' && *at <= '9' && below(8) ? (char)('0' + below(10)) : "[],-0123"[below(8)];
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

/* The proof of one problem is none of a slightly different one in which there is something cheaper. */
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
            example         other = e;
            vp_ilp_program *g     = &other.programs[below(e.p.n_programs)];
            int64_t         i     = g - other.programs, s = below(g->n_items), now;

            other.p.programs = other.programs;
            for (int64_t j = 0; j < e.p.n_programs; j++)
                other.programs[j].items = other.items[j];
            switch (below(6)) {
            case 0: other.p.budget_bytes += below(other.p.budget_bytes / 4 + 2); break;
            case 1: other.items[i][s].k_bytes -= below(other.items[i][s].k_bytes + 1); break;
            case 2: other.items[i][s].cost_ns -= below(other.items[i][s].cost_ns + 1); break;
            case 3: g->const_ns -= below(g->const_ns + 1); break;
            case 4: g->end_bytes -= below(g->end_bytes + 1); break;
            default: g->n_blocks = 1 + below(g->n_blocks); break;
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

static void a_certificate_is_exactly_as_described_or_proves_nothing(void **state)
{
    /* Three blocks; keeping (2 bytes, 4 ns) or recomputing (1 byte, 7 ns, 5 bytes above). Room 19 - 10 = 9:
     *     end    n0 + 2 n1 + 4 <= 9        level 0  n0 + 5 <= 9 if n0       level 1  n0 + 2 n1 + 3 <= 9 if n1
     * so n1 <= 2 by the end row, and the optimum is 100 + 7 + 2 * 4 = 115. Cover 10 ns = 10240 / 1024, end 3 ns a byte =
     * 3221225472 / 2^30: reduced costs 7 + 3 - 10 = 0 and 4 + 6 - 10 = 0, bound 100 + 30 - 15 = 115. Without n0 the end row
     * is one byte short: 2000 ns a block, 1000 ns a byte, 4 - 2000 + 2 * 1000 = 4 reduced, bound 100 + 6000 - 5000 = 1100. */
    vp_item_row    items[] = {{.k_bytes = 1, .beta_bytes = 5, .cost_ns = 7}, {.k_bytes = 2, .beta_bytes = 3, .cost_ns = 4}};
    vp_ilp_program g       = {.n_blocks = 3, .base_bytes = 10, .end_bytes = 4, .const_ns = 100, .items = items, .n_items = 2};
    vp_ilp_problem p       = {.budget_bytes = 19, .programs = &g, .n_programs = 1};

    (void)state;
    assert_true(proves(&p, "[[[0,[0,10240],[1,3221225472]]]]", 115));
    assert_false(proves(&p, "[[[0,[0,10240],[1,3221225472]]]]", 116));
    assert_true(proves(&p, "[[[0,[0,10240],[1,3221225471]]]]", 115));         /* 114.999..: whole nanoseconds */
    assert_true(proves(&p, "[[[0]]]", 100));
    assert_false(proves(&p, "[[[0]]]", 101));
    assert_true(proves(&p, "[[[0,[0,4096]]]]", 112));
    assert_true(proves(&p, "[[[0,[0,4096],[1,-5]]]]", 112));                  /* a wrong sign counts as 0 */
    assert_true(proves(&p, "[[[2,0,0],[0,[0,2048000],[1,1073741824000]],[0,[0,10240],[1,3221225472]]]]", 115));
    assert_true(proves(&p, "[[[1,0],[0,[0,2048000],[1,1073741824000]],[0,[0,10240],[1,3221225472]]]]", 115));
    assert_true(proves(&p, "[[[1,1],[2,1,0],[0,[0,7168]],[3],[0,[0,10240],[1,3221225472],[5,0]]]]", 115));
    assert_true(proves(&p, "[[[2,1,1],[0,[0,7168]],[2,1,1],[3],[0,[0,10240],[1,3221225472]]]]", 115));

    static const char *const refused[] = {
        "null", "0", "[]", "{}", "[[]]", "[null]", "[[null]]", "[[[]]]", "[[0]]", "[[[0],[0]]]", "[[[0]],[[0]]]", "[[[5]]]", "[[[-1]]]",
        "[[[true]]]", "[[[\"0\"]]]", "[[[0.0]]]", "[{\"0\":[0]}]",
        "[[[3]]]", "[[[3,0]]]",                                              /* the box is not empty           */
        "[[[4,0]]]", "[[[4],[4]]]", "[[[2,0,0],[4],[0]]]", "[[[2,0,0],[0],[4]]]", "[[[1,0],[0],[4]]]",  /* whole programs only */
        "[[[1,0],[0]]]", "[[[1,0]]]", "[[[2,0,0],[0]]]", "[[[2,0,0]]]",      /* a corner is missing            */
        "[[[1,0],[0],[0],[0]]]",                                             /* something is left over         */
        "[[[1,2],[0],[0]]]", "[[[1,-1],[0],[0]]]", "[[[1],[0],[0]]]", "[[[1,0,0],[0],[0]]]", "[[[1,0.0],[0],[0]]]",
        "[[[1,0],[0],[1,0],[0],[0]]]",                                       /* decided twice                  */
        "[[[2,2,0],[0],[0]]]", "[[[2,-1,0],[0],[0]]]", "[[[2,0],[0],[0]]]", "[[[2,0,3],[0],[0]]]", "[[[2,0,-1],[0],[0]]]",
        "[[[2,0,0,0],[0],[0]]]", "[[[2,0,0.0],[0],[0]]]", "[[[2,0,0],[0],[3]]]", "[[[2,0,0],[3],[0]]]",
        "[[[0,0]]]", "[[[0,[0]]]]", "[[[0,[0,0,0]]]]", "[[[0,[6,0]]]]", "[[[0,[-1,0]]]]", "[[[0,[1,0],[0,0]]]]", "[[[0,[0,0],[0,0]]]]",
        "[[[0,[0,0.5]]]]", "[[[0,[0.0,5]]]]", "[[[0,[0,null]]]]", "[[[0,null]]]", "[[[0,{}]]]",
        "[[[0,[4,0]]]]", "[[[1,0],[0,[4,0]],[0]]]", "[[[1,0],[0,[2,0]],[0]]]", /* rows that are not there      */
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (proves(&p, refused[i], 100))
            print_error("%s\n", refused[i]);
        assert_false(proves(&p, refused[i], 100));
    }
}

static void what_the_frontier_found_is_found_again_or_proves_nothing(void **state)
{
    vp_item_row    items[] = {{.k_bytes = 1, .beta_bytes = 5, .cost_ns = 7}, {.k_bytes = 2, .beta_bytes = 3, .cost_ns = 4}};
    vp_ilp_program g[VP_MAX_FRONTIER_PROOFS + 1];
    vp_ilp_problem p = {.budget_bytes = 19, .programs = g, .n_programs = 1};
    char           all[8 * (VP_MAX_FRONTIER_PROOFS + 1)] = "[";
    example        e;

    (void)state;
    g[0] = (vp_ilp_program){.n_blocks = 3, .base_bytes = 10, .end_bytes = 4, .const_ns = 100, .items = items, .n_items = 2};
    assert_true(proves(&p, "[[[4]]]", 115));     /* the optimum, as above */
    assert_false(proves(&p, "[[[4]]]", 116));
    assert_true(proves(&p, "[[[4]]]", 100));
    assert_true(proves(&p, "[[[4]]]", INT64_MIN + 1));
    p.budget_bytes = 13;                          /* nothing fits: all is true of it */
    assert_true(proves(&p, "[[[4]]]", INT64_MAX));
    p.budget_bytes = 9;
    assert_true(proves(&p, "[[[4]]]", INT64_MAX));

    p.budget_bytes = 19;
    for (int i = 0; i <= VP_MAX_FRONTIER_PROOFS; i++) {
        g[i]         = g[0];
        p.n_programs = i + 1;
        strcpy(strrchr(all, i ? ']' : '['), i ? ",[[4]]]" : "[[[4]]]");
        assert_int_equal(proves(&p, all, 115), i < VP_MAX_FRONTIER_PROOFS);
    }

    for (uint64_t seed = 500001; seed <= 500000 + (uint64_t)n_cases(2000); seed++) {
        make_example(&e, seed);
        for (int64_t i = 0; i < e.p.n_programs; i++) {
            int64_t want = brute_program(&e.p, i), n[MAX_N], cost = -1;

            if (vp_dp_solve(&e.programs[i], e.p.budget_bytes, want, 1000000, n, &cost) != VP_DP_NONE)
                fail_with(&e.p, "the frontier finds something cheaper than the optimum", seed, cost, want);
            if (want == INT64_MAX)
                continue;
            if (vp_dp_solve(&e.programs[i], e.p.budget_bytes, want + 1, 1000000, n, &cost) != VP_DP_FOUND || cost != want)
                fail_with(&e.p, "the frontier finds nothing below a nanosecond more than the optimum", seed, cost, want);
            if (!vp_dp_bound(&e.programs[i], e.p.budget_bytes, &cost) || cost > want)
                fail_with(&e.p, "the hull's bound", seed, cost, want);
        }
    }
}

static void multipliers_beyond_126_bits_prove_nothing(void **state)
{
    vp_item_row    items[] = {{.k_bytes = (int64_t)1 << 46, .beta_bytes = (int64_t)1 << 46, .cost_ns = (int64_t)1 << 45}};
    vp_ilp_program g       = {.n_blocks = VP_MAX_BLOCKS, .items = items, .n_items = 1};
    vp_ilp_problem p       = {.budget_bytes = INT64_MAX, .programs = &g, .n_programs = 1};

    (void)state;
    assert_false(proves(&p, "[[[0,[0,9223372036854775807],[1,9223372036854775807],[2,9223372036854775807]]]]", 0));
    assert_false(proves(&p, "[[[0,[0,-9223372036854775808],[2,9223372036854775807]]]]", 0));
    p.budget_bytes = INT64_MIN;
    assert_false(proves(&p, "[[[0,[2,9223372036854775807]]]]", 0));
    assert_true(proves(&p, "[[[0]]]", 0));
}

static void a_tree_deeper_than_the_limit_proves_nothing(void **state)
{
    vp_item_row    items[] = {{.cost_ns = 1}};
    vp_ilp_program g       = {.n_blocks = 1, .items = items, .n_items = 1};
    vp_ilp_problem p       = {.programs = &g, .n_programs = 1};

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

/* ---- documents ---- */

static void a_problem_reads_as_it_was_written(void **state)
{
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
        root    = vp_ilp_problem_to_json(&e.p);
        text    = json_dumps(root, JSON_COMPACT);
        CHECK_OK(vp_json_parse("problem", text, (int64_t)strlen(text), &doc, &err));
        node = vp_json_root(doc);
        CHECK_OK(vp_ilp_problem_from_json(arena, &node, &back, &err));
        again = vp_ilp_problem_to_json(&back);
        assert_true(json_equal(root, again));
        json_decref(root);
        json_decref(again);
        free(text);
        vp_json_doc_free(doc);
        vp_arena_free(arena);
    }
}

static vp_status read_problem(const char *program, vp_err *err)
{
    char           text[2048];
    vp_arena      *arena = vp_arena_new();
    vp_json_doc   *doc   = NULL;
    vp_json_node   node;
    vp_ilp_problem p;
    vp_status      st    = VP_OK;

    snprintf(text, sizeof text, "{\"budget_bytes\":9,\"upper_ns\":9,\"gap\":0,\"max_nodes\":1,\"max_pivots\":1,\"max_memory_bytes\":1,"
                                "\"programs\":[%s]}", program);
    VP_TRY(vp_json_parse("problem", text, (int64_t)strlen(text), &doc, err));
    node = vp_json_root(doc);
    VP_TRY(vp_ilp_problem_from_json(arena, &node, &p, err));
out:
    vp_json_doc_free(doc);
    vp_arena_free(arena);
    return st;
}

#define PROGRAM(blocks, k, beta, cost) \
    "{\"n_blocks\":" blocks ",\"base_bytes\":0,\"end_bytes\":0,\"const_ns\":0,\"k_bytes\":" k ",\"beta_bytes\":" beta ",\"cost_ns\":" cost "}"

static void a_problem_out_of_range_is_refused_where_it_is(void **state)
{
    vp_err err = {0};

    (void)state;
    CHECK_OK(read_problem(PROGRAM("3", "[1,2]", "[5,5]", "[7,4]"), &err));
#define REFUSED(text, field, part) CHECK_FAILS(read_problem(text, &err), VP_ERR_INPUT, "problem", 1, field, part)
    REFUSED(PROGRAM("0", "[1]", "[1]", "[1]"), "programs[0].n_blocks", "between");
    REFUSED(PROGRAM("100001", "[1]", "[1]", "[1]"), "programs[0].n_blocks", "between");
    REFUSED(PROGRAM("3", "[]", "[]", "[]"), "programs[0].k_bytes", "items");
    REFUSED(PROGRAM("3", "[1]", "[1,1]", "[1]"), "programs[0].beta_bytes", "as many");
    REFUSED(PROGRAM("3", "[1]", "[1]", "[1,1]"), "programs[0].cost_ns", "as many");
    REFUSED(PROGRAM("3", "[-1]", "[1]", "[1]"), "programs[0].k_bytes[0]", "between");
    REFUSED(PROGRAM("3", "[1]", "[1]", "[35184372088833]"), "programs[0].cost_ns[0]", "between");
    REFUSED(PROGRAM("3", "[1]", "[1]", "[\"1\"]"), "programs[0].cost_ns[0]", "whole number");
    REFUSED(PROGRAM("3", "[1,2]", "[5,6]", "[7,4]"), "programs[0].beta_bytes", "descending");
    REFUSED(PROGRAM("3", "[2,1]", "[5,5]", "[7,4]"), "programs[0].beta_bytes", "descending");
    REFUSED("{\"n_blocks\":1}", "programs[0].base_bytes", "");
#undef REFUSED
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_that_are_no_plan_are_refused),
        cmocka_unit_test(the_rows_of_counts_are_their_best_order_to_the_byte),
        cmocka_unit_test(the_frontier_dp_finds_the_optimum),
        cmocka_unit_test(the_solver_brute_force_and_the_dp_agree_to_the_nanosecond),
        cmocka_unit_test(a_gap_and_an_upper_bound_are_kept),
        cmocka_unit_test(a_search_cut_by_its_limits_still_proves_what_it_says),
        cmocka_unit_test(the_largest_numbers_are_solved_as_far_as_they_can_be),
        cmocka_unit_test(little_memory_ends_the_search_or_the_program_but_in_order),
        cmocka_unit_test(a_tree_that_stalls_is_closed_by_the_frontier),
        cmocka_unit_test(a_certificate_too_large_to_read_is_one_of_a_lower_cutoff),
        cmocka_unit_test(a_damaged_certificate_never_proves_more_than_the_optimum),
        cmocka_unit_test(a_certificate_of_another_problem_proves_only_what_is_true_of_this),
        cmocka_unit_test(a_certificate_is_exactly_as_described_or_proves_nothing),
        cmocka_unit_test(what_the_frontier_found_is_found_again_or_proves_nothing),
        cmocka_unit_test(multipliers_beyond_126_bits_prove_nothing),
        cmocka_unit_test(a_tree_deeper_than_the_limit_proves_nothing),
        cmocka_unit_test(a_problem_reads_as_it_was_written),
        cmocka_unit_test(a_problem_out_of_range_is_refused_where_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
