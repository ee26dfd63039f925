/* tests/solver_test.h: random integer programs, their optimum by brute force, and vplan-solve as
 * the child process it is: $BUILD/vplan-solve. */
#ifndef VP_TESTS_SOLVER_TEST_H
#define VP_TESTS_SOLVER_TEST_H

#include "tests/base_test.h"

#include "base/child.h"
#include "planner/solve/problem.h"

#include <stdbool.h>

enum { MAX_L = 7, MAX_N = 6, MAX_P = 3 };

static inline int n_cases(int quick)
{
#if defined(__SANITIZE_ADDRESS__)
    quick /= 10; /* the solver starts slowly then */
#endif
    return getenv("VPLAN_LONG") ? 10 * quick : quick;
}

/* ---- random problems ---- */

static uint64_t rng;

static inline uint64_t next_random(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng * 0x2545F4914F6CDD1DULL;
}

static inline int64_t below(int64_t n)
{
    return (int64_t)((next_random() >> 20) % (uint64_t)n);
}

typedef struct example {
    vp_ilp_problem p;
    vp_ilp         ilps[MAX_P];
    vp_item_row    items[MAX_P][MAX_N];
} example;

static inline int by_beta_then_k(const void *a, const void *b)
{
    const vp_item_row *x = a, *y = b;

    if (x->beta_bytes != y->beta_bytes)
        return x->beta_bytes < y->beta_bytes ? 1 : -1;
    return (x->k_bytes > y->k_bytes) - (x->k_bytes < y->k_bytes);
}

/* The peak of the whole sequence, its last block first, by the definition: what is kept below,
 * then the need above. */
static inline int64_t prepended(const vp_item_row *x, int64_t need_bytes)
{
    return x->k_bytes + (x->beta_bytes > need_bytes ? x->beta_bytes : need_bytes);
}

/* Numbers small enough for ties, or as in a real model; half of the items share their beta with
 * another; keeping more is mostly, but not always, cheaper. The budget lies between what always
 * fits not and what always fits. */
static inline void make_example(example *e, uint64_t seed)
{
    int64_t unit, ns, low = INT64_MAX, high = 0;
    bool    segments; /* items of several blocks among them */

    *e  = (example){0};
    rng = seed * 0x9E3779B97F4A7C15ULL + 1;
    for (int i = 0; i < 4; i++)
        next_random();
    unit        = below(3) ? 1 : 256 * (1 + below(100000));
    ns          = below(3) ? 1 : 1 + below(1000000);
    segments    = below(2);
    e->p.ilps   = e->ilps;
    e->p.n_ilps = 1 + below(MAX_P);
    for (int i = 0; i < e->p.n_ilps; i++) {
        vp_ilp *g = &e->ilps[i];

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
            x->n_more     = segments && below(2) ? below(4) : 0;
            x->cost_ns =
                below(5) ? (80 - x->k_bytes / unit) * ns + below(20) * ns / 3 : below(60) * ns;
            x->cost_ns *= vp_item_blocks(x);
        }
        if (below(8)) /* else it may be that no chain of them has this length */
            g->items[below(g->n_items)].n_more = 0;
        qsort(g->items, (size_t)g->n_items, sizeof *g->items, by_beta_then_k);
        for (int64_t s = 0; s < g->n_items; s++) {
            int64_t need = g->end_bytes;

            for (int64_t j = 0; j < g->n_blocks; j += vp_item_blocks(&g->items[s]))
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
    const vp_ilp *g;
    int64_t       room_bytes;
    int64_t       best_ns; /* INT64_MAX: nothing fits */
    int64_t       n[MAX_N];
    /* of any order of these counts, three bits each */
    int64_t least_bytes[1 << (3 * MAX_N)];
    bool    with_orders;
} brute;

static inline void all_sequences(brute *b, int64_t left, int64_t need_bytes, int64_t cost_ns)
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
        if (vp_item_blocks(&b->g->items[s]) > left)
            continue;
        b->n[s]++;
        all_sequences(b, left - vp_item_blocks(&b->g->items[s]),
                      prepended(&b->g->items[s], need_bytes), cost_ns + b->g->items[s].cost_ns);
        b->n[s]--;
    }
}

static brute work;

static inline int64_t brute_ilp(const vp_ilp_problem *p, int64_t i)
{
    const vp_ilp *g = &p->ilps[i];

    work.g           = g;
    work.room_bytes  = p->budget_bytes - g->base_bytes;
    work.best_ns     = INT64_MAX;
    work.with_orders = false;
    memset(work.n, 0, sizeof work.n);
    all_sequences(&work, g->n_blocks, g->end_bytes, g->const_ns);
    return work.best_ns;
}

static inline int64_t brute_problem(const vp_ilp_problem *p)
{
    int64_t best = INT64_MAX;

    for (int64_t i = 0; i < p->n_ilps; i++) {
        int64_t ns = brute_ilp(p, i);

        best = ns < best ? ns : best;
    }
    return best;
}

/* ---- the solver as a child ---- */

static inline void fail_with(const vp_ilp_problem *p, const char *what, uint64_t seed, int64_t got,
                             int64_t want)
{
    json_t *root = vp_ilp_problem_to_json(p);
    char   *text = json_dumps(root, JSON_COMPACT);

    print_error("seed %llu: %s: %lld, wanted %lld\n%s\n", (unsigned long long)seed, what,
                (long long)got, (long long)want, text);
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

static inline const char *solver_path(void)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/vplan-solve", getenv("BUILD") ? getenv("BUILD") : "build");
    return path;
}

static inline void solve(const vp_ilp_problem *p, answer *a)
{
    char *const   argv[] = {(char *)(uintptr_t)solver_path(), NULL};
    json_t       *root   = vp_ilp_problem_to_json(p);
    char         *text   = json_dumps(root, JSON_COMPACT);
    vp_child_opts opts   = {.argv             = argv,
                            .stdin_bytes      = text,
                            .n_stdin_bytes    = strlen(text),
                            .out              = VP_CHILD_CAPTURE,
                            .err              = VP_CHILD_CAPTURE,
                            .max_output_bytes = 8 << 20,
                            .timeout_s        = 300};
    vp_json_node  node;
    vp_err        err = {0};

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

static inline void release(answer *a)
{
    json_decref(a->s.certificate);
    vp_json_doc_free(a->doc);
    vp_arena_free(a->arena);
    vp_child_result_release(&a->run);
}

#endif
