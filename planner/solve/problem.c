#include "planner/solve/problem.h"

#include "base/checked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What a document may hold. Chosen so that no sum below leaves 64 bits: MAX_BLOCKS * MAX_COST_NS
 * + MAX_CONST_NS < 2^63 and, of each item, MAX_KEPT_BYTES + 3 * MAX_BYTES < 2^63. */
#define MAX_BYTES      ((int64_t)1 << 56)
#define MAX_KEPT_BYTES ((int64_t)1 << 62) /* by all blocks, if all were of one item */
#define MAX_COST_NS    ((int64_t)1 << 45) /* nearly ten hours      */
#define MAX_CONST_NS   ((int64_t)1 << 60)
#define MAX_COUNTER    ((int64_t)1 << 50)

_Static_assert(VP_MAX_BLOCKS <= 1 << 17,
               "a sum over the blocks of the largest cost or size stays below 2^63");

/* ---- the problem ---- */

static json_t *column(const vp_ilp *g, size_t offset)
{
    json_t *array = json_array();

    assert(offset + sizeof(int64_t) <= sizeof(vp_item_row));
    for (int64_t s = 0; array && s < g->n_items; s++)
        if (json_array_append_new(
                array, json_integer(*(const int64_t *)((const char *)&g->items[s] + offset)))) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

static bool has_segments(const vp_ilp *g)
{
    bool has = false;

    for (int64_t s = 0; s < g->n_items; s++)
        has |= g->items[s].n_more > 0;
    return has;
}

/* n_more is left out where it is 0 throughout. items_of: a program before it that has the same items; -1: none. */
static json_t *ilp_to_json(const vp_ilp *g, int64_t items_of)
{
    if (items_of >= 0)
        return json_pack("{sI sI sI sI sI}", "n_blocks", (json_int_t)g->n_blocks, "base_bytes",
                         (json_int_t)g->base_bytes, "end_bytes", (json_int_t)g->end_bytes,
                         "const_ns", (json_int_t)g->const_ns, "items_of", (json_int_t)items_of);
    return json_pack("{sI sI sI sI so so so so*}", "n_blocks", (json_int_t)g->n_blocks,
                     "base_bytes", (json_int_t)g->base_bytes, "end_bytes", (json_int_t)g->end_bytes,
                     "const_ns", (json_int_t)g->const_ns, "k_bytes",
                     column(g, offsetof(vp_item_row, k_bytes)), "beta_bytes",
                     column(g, offsetof(vp_item_row, beta_bytes)), "cost_ns",
                     column(g, offsetof(vp_item_row, cost_ns)), "n_more",
                     has_segments(g) ? column(g, offsetof(vp_item_row, n_more)) : NULL);
}

/* Programs whose items stand in the document, by what these are. */
enum { N_BINS = 2 * VP_MAX_ILPS };

static bool has_same_items(const vp_ilp *a, const vp_ilp *b)
{
    return a->n_items == b->n_items &&
           memcmp(a->items, b->items, (size_t)a->n_items * sizeof *a->items) == 0;
}

static uint64_t bin_of(const vp_ilp *g)
{
    uint64_t h = (uint64_t)g->n_items;

    for (int64_t s = 0; s < g->n_items; s++) {
        const vp_item_row *x = &g->items[s];
        h                    = (h ^ (uint64_t)x->k_bytes) * UINT64_C(0x9e3779b97f4a7c15);
        h = (h ^ h >> 32 ^ (uint64_t)x->beta_bytes) * UINT64_C(0x9e3779b97f4a7c15);
        h = (h ^ h >> 32 ^ (uint64_t)x->cost_ns) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return (h ^ h >> 32) % N_BINS;
}

/* The first program with the items of program i; -1: i is the first, and put among the others while there is room. */
static int64_t first_like(const vp_ilp_problem *p, int64_t i, int32_t bins[N_BINS])
{
    uint64_t bin = bin_of(&p->ilps[i]);

    for (; bins[bin]; bin = (bin + 1) % N_BINS)
        if (has_same_items(&p->ilps[bins[bin] - 1], &p->ilps[i]))
            return bins[bin] - 1;
    if (i < VP_MAX_ILPS) /* more are refused */
        bins[bin] = (int32_t)i + 1;
    return -1;
}

json_t *vp_ilp_problem_to_json(const vp_ilp_problem *p)
{
    json_t  *programs = json_array();
    int32_t *bins     = calloc(N_BINS, sizeof *bins);

    for (int64_t i = 0; programs && i < p->n_ilps; i++)
        if (json_array_append_new(programs,
                                  ilp_to_json(&p->ilps[i], bins ? first_like(p, i, bins) : -1))) {
            json_decref(programs);
            programs = NULL;
        }
    free(bins);
    return json_pack("{sI sI sf sI sI sI so}", "budget_bytes", (json_int_t)p->budget_bytes,
                     "upper_ns", (json_int_t)p->upper_ns, "gap", p->gap, "max_nodes",
                     (json_int_t)p->max_nodes, "max_pivots", (json_int_t)p->max_pivots,
                     "max_memory_bytes", (json_int_t)p->max_memory_bytes, "programs", programs);
}

/* Element idx of an array of integers. Thousands of them are read: the located error is only
 * made when it is needed. */
static vp_status integer_at(const vp_json_node *array, int64_t idx, int64_t min, int64_t max,
                            int64_t *out, vp_err *err)
{
    const json_t *value = json_array_get(array->value, (size_t)idx);
    vp_json_node  element;
    vp_status     st = VP_OK;

    if (json_is_integer(value) && json_integer_value(value) >= min &&
        json_integer_value(value) <= max) {
        *out = json_integer_value(value);
        return VP_OK;
    }
    VP_TRY(vp_json_element(array, idx, &element, err));
    VP_TRY(vp_json_as_int(&element, min, max, out, err));
out:
    return st;
}

/* In the order and of the sizes that all that is counted here relies on. */
static vp_status check_item(const vp_json_node *node, const vp_ilp *g, int64_t s, vp_err *err)
{
    const vp_item_row *x = &g->items[s];

    if (x->k_bytes > MAX_KEPT_BYTES / g->n_blocks)
        return vp_json_fail(node, "k_bytes", err,
                            "item %d in every block is more bytes than are counted here", (int)s);
    if (s && (x[-1].beta_bytes < x->beta_bytes ||
              (x[-1].beta_bytes == x->beta_bytes && x[-1].k_bytes > x->k_bytes)))
        return vp_json_fail(node, "beta_bytes", err,
                            "items must be in descending beta, then ascending k; item %d is not",
                            (int)s);
    return VP_OK;
}

static vp_status items_from_json(vp_arena *arena, const vp_json_node *node, vp_ilp *g, vp_err *err)
{
    vp_json_node k, beta, cost, more;
    int64_t      n_beta, n_cost, n_more = -1;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_array(node, "k_bytes", &k, &g->n_items, err));
    VP_TRY(vp_json_array(node, "beta_bytes", &beta, &n_beta, err));
    VP_TRY(vp_json_array(node, "cost_ns", &cost, &n_cost, err));
    if (vp_json_has(node, "n_more"))
        VP_TRY(vp_json_array(node, "n_more", &more, &n_more, err));
    if (g->n_items < 1 || g->n_items > VP_MAX_ITEMS) {
        st = vp_json_fail(node, "k_bytes", err, "must have 1 to %d items", VP_MAX_ITEMS);
        goto out;
    }
    if (n_beta != g->n_items || n_cost != g->n_items || (n_more >= 0 && n_more != g->n_items)) {
        st = vp_json_fail(node,
                          n_beta != g->n_items   ? "beta_bytes"
                          : n_cost != g->n_items ? "cost_ns"
                                                 : "n_more",
                          err, "must have as many items as k_bytes");
        goto out;
    }
    g->items = vp_arena_array(arena, g->n_items, sizeof *g->items);
    VP_TRY_ALLOC(err, g->items);
    for (int64_t s = 0; s < g->n_items; s++) {
        vp_item_row *x = &g->items[s];

        VP_TRY(integer_at(&k, s, 0, MAX_BYTES, &x->k_bytes, err));
        VP_TRY(integer_at(&beta, s, 0, MAX_BYTES, &x->beta_bytes, err));
        VP_TRY(integer_at(&cost, s, 0, MAX_COST_NS, &x->cost_ns, err));
        if (n_more >= 0)
            VP_TRY(integer_at(&more, s, 0, VP_MAX_ITEM_BLOCKS - 1, &x->n_more, err));
        VP_TRY(check_item(node, g, s, err));
    }
out:
    return st;
}

/* Program i of a document; those before it were read. */
static vp_status ilp_from_json(vp_arena *arena, const vp_json_node *node, vp_ilp *ilps, int64_t i,
                               vp_err *err)
{
    static const char *const keys[]   = {"n_blocks", "base_bytes", "end_bytes",
                                         "const_ns", "k_bytes",    "beta_bytes",
                                         "cost_ns",  "n_more",     NULL};
    static const char *const shared[] = {"n_blocks", "base_bytes", "end_bytes",
                                         "const_ns", "items_of",   NULL};
    const bool               shares   = vp_json_has(node, "items_of");
    vp_ilp                  *g        = &ilps[i];
    int64_t                  of;
    vp_status                st = VP_OK;

    VP_TRY(vp_json_only_keys(node, shares ? shared : keys, err));
    VP_TRY(vp_json_int(node, "n_blocks", 1, VP_MAX_BLOCKS, &g->n_blocks, err));
    VP_TRY(vp_json_int(node, "base_bytes", 0, MAX_BYTES, &g->base_bytes, err));
    VP_TRY(vp_json_int(node, "end_bytes", 0, MAX_BYTES, &g->end_bytes, err));
    VP_TRY(vp_json_int(node, "const_ns", 0, MAX_CONST_NS, &g->const_ns, err));
    if (!shares) {
        VP_TRY(items_from_json(arena, node, g, err));
        goto out;
    }
    VP_TRY(vp_json_int(node, "items_of", 0, VP_MAX_ILPS, &of, err));
    if (of >= i) {
        st = vp_json_fail(node, "items_of", err, "must be a program before it");
        goto out;
    }
    g->n_items = ilps[of].n_items;
    g->items   = ilps[of].items;
    for (int64_t s = 0; s < g->n_items; s++)
        VP_TRY(check_item(node, g, s, err));
out:
    return st;
}

vp_status vp_ilp_problem_from_json(vp_arena *arena, const vp_json_node *root, vp_ilp_problem *out,
                                   vp_err *err)
{
    static const char *const keys[] = {"budget_bytes", "upper_ns",         "gap",      "max_nodes",
                                       "max_pivots",   "max_memory_bytes", "programs", NULL};
    vp_ilp_problem           p      = {0};
    vp_json_node             programs, program;
    vp_status                st = VP_OK;

    VP_TRY(vp_json_only_keys(root, keys, err));
    VP_TRY(vp_json_int(root, "budget_bytes", 0, MAX_BYTES, &p.budget_bytes, err));
    VP_TRY(vp_json_int(root, "upper_ns", 0, INT64_MAX, &p.upper_ns, err));
    VP_TRY(vp_json_real(root, "gap", 0, 1, &p.gap, err));
    VP_TRY(vp_json_int(root, "max_nodes", 0, MAX_COUNTER, &p.max_nodes, err));
    VP_TRY(vp_json_int(root, "max_pivots", 0, MAX_COUNTER, &p.max_pivots, err));
    VP_TRY(vp_json_int(root, "max_memory_bytes", 0, MAX_COUNTER, &p.max_memory_bytes, err));
    VP_TRY(vp_json_array(root, "programs", &programs, &p.n_ilps, err));
    if (p.n_ilps > VP_MAX_ILPS) {
        st = vp_json_fail(root, "programs", err, "must have at most %d programs", VP_MAX_ILPS);
        goto out;
    }
    p.ilps = vp_arena_array(arena, p.n_ilps, sizeof *p.ilps);
    VP_TRY_ALLOC(err, p.ilps);
    for (int64_t i = 0; i < p.n_ilps; i++) {
        VP_TRY(vp_json_element(&programs, i, &program, err));
        VP_TRY(ilp_from_json(arena, &program, p.ilps, i, err));
    }
    *out = p;
out:
    return st;
}

/* ---- the solution ---- */

json_t *vp_ilp_solution_to_json(const vp_ilp_solution *s, const vp_ilp_problem *p)
{
    json_t *counts = json_array();
    int64_t n      = s->found ? p->ilps[s->ilp_idx].n_items : 0;

    for (int64_t i = 0; counts && i < n; i++)
        if (json_array_append_new(counts, json_integer(s->counts[i]))) {
            json_decref(counts);
            counts = NULL;
        }
    return json_pack("{sb sI so sI sO sI sI}", "found", s->found, "program_idx",
                     (json_int_t)(s->found ? s->ilp_idx : 0), "counts", counts, "cutoff_ns",
                     (json_int_t)s->cutoff_ns, "certificate", s->certificate, "n_nodes",
                     (json_int_t)s->n_nodes, "n_pivots", (json_int_t)s->n_pivots);
}

vp_status vp_ilp_solution_from_json(vp_arena *arena, const vp_json_node *root,
                                    const vp_ilp_problem *p, vp_ilp_solution *out, vp_err *err)
{
    static const char *const keys[] = {"found",       "program_idx", "counts",   "cutoff_ns",
                                       "certificate", "n_nodes",     "n_pivots", NULL};
    vp_ilp_solution          s      = {0};
    vp_json_node             counts, certificate;
    int64_t                  n, n_trees;
    vp_status                st = VP_OK;

    VP_TRY(vp_json_only_keys(root, keys, err));
    VP_TRY(vp_json_bool(root, "found", &s.found, err));
    VP_TRY(vp_json_int(root, "program_idx", 0, s.found ? p->n_ilps - 1 : 0, &s.ilp_idx, err));
    VP_TRY(vp_json_int(root, "cutoff_ns", INT64_MIN, INT64_MAX, &s.cutoff_ns, err));
    VP_TRY(vp_json_int(root, "n_nodes", 0, MAX_COUNTER, &s.n_nodes, err));
    VP_TRY(vp_json_int(root, "n_pivots", 0, MAX_COUNTER, &s.n_pivots, err));
    VP_TRY(vp_json_array(root, "counts", &counts, &n, err));
    VP_TRY(vp_json_array(root, "certificate", &certificate, &n_trees, err));
    if (n != (s.found ? p->ilps[s.ilp_idx].n_items : 0)) {
        st = vp_json_fail(
            root, "counts", err,
            "must have one count for each item of the program found, and none where none is");
        goto out;
    }
    s.counts = vp_arena_array(arena, n, sizeof *s.counts);
    VP_TRY_ALLOC(err, s.counts);
    for (int64_t i = 0; i < n; i++)
        VP_TRY(integer_at(&counts, i, 0, p->ilps[s.ilp_idx].n_blocks, &s.counts[i], err));
    s.certificate = json_incref(certificate.value);
    *out          = s;
out:
    return st;
}

/* ---- the undivided program's answer ---- */

static const char *const end_names[VP_N_MONOLITHIC_ENDS] = {"optimal", "infeasible", "limit",
                                                            "refused", "failed"};

const char *vp_monolithic_end_name(vp_monolithic_end end)
{
    return end_names[end];
}

json_t *vp_monolithic_to_json(const vp_monolithic *m, const vp_ilp_problem *p)
{
    json_t *items = json_array();
    int64_t n     = m->found ? p->ilps[m->ilp_idx].n_blocks : 0;

    for (int64_t i = 0; items && i < n; i++)
        if (json_array_append_new(items, json_integer(m->items[i]))) {
            json_decref(items);
            items = NULL;
        }
    return json_pack("{ss sb sI so sI sI sI sI}", "status", vp_monolithic_end_name(m->end), "found",
                     m->found, "program_idx", (json_int_t)(m->found ? m->ilp_idx : 0), "items",
                     items, "cost_ns", (json_int_t)m->cost_ns, "n_columns",
                     (json_int_t)m->n_columns, "n_rows", (json_int_t)m->n_rows, "n_nodes",
                     (json_int_t)m->n_nodes);
}

vp_status vp_monolithic_from_json(vp_arena *arena, const vp_json_node *root,
                                  const vp_ilp_problem *p, vp_monolithic *out, vp_err *err)
{
    static const char *const keys[] = {"status",    "found",  "program_idx", "items", "cost_ns",
                                       "n_columns", "n_rows", "n_nodes",     NULL};
    vp_monolithic            m      = {0};
    vp_json_node             items;
    const char              *end;
    int64_t                  n;
    vp_status                st = VP_OK;

    VP_TRY(vp_json_only_keys(root, keys, err));
    VP_TRY(vp_json_string(root, "status", &end, err));
    while (m.end < VP_N_MONOLITHIC_ENDS && strcmp(end, end_names[m.end]))
        m.end++;
    if (m.end == VP_N_MONOLITHIC_ENDS) {
        st = vp_json_fail(root, "status", err,
                          "must be optimal, infeasible, limit, refused or failed");
        goto out;
    }
    VP_TRY(vp_json_bool(root, "found", &m.found, err));
    VP_TRY(vp_json_int(root, "program_idx", 0, m.found ? p->n_ilps - 1 : 0, &m.ilp_idx, err));
    VP_TRY(vp_json_int(root, "cost_ns", 0, INT64_MAX, &m.cost_ns, err));
    VP_TRY(vp_json_int(root, "n_columns", 0, MAX_COUNTER, &m.n_columns, err));
    VP_TRY(vp_json_int(root, "n_rows", 0, MAX_COUNTER, &m.n_rows, err));
    VP_TRY(vp_json_int(root, "n_nodes", 0, MAX_COUNTER, &m.n_nodes, err));
    VP_TRY(vp_json_array(root, "items", &items, &n, err));
    if (n != (m.found ? p->ilps[m.ilp_idx].n_blocks : 0)) {
        st = vp_json_fail(
            root, "items", err,
            "must have one item for each block of the program found, and none where none is");
        goto out;
    }
    m.items = vp_arena_array(arena, n, sizeof *m.items);
    VP_TRY_ALLOC(err, m.items);
    for (int64_t i = 0; i < n; i++)
        VP_TRY(integer_at(&items, i, -1, p->ilps[m.ilp_idx].n_items - 1, &m.items[i], err));
    *out = m;
out:
    return st;
}

/* ---- what counts cost, and whether they fit ---- */

bool vp_ilp_evaluate(const vp_ilp_problem *p, int64_t ilp_idx, const int64_t *counts,
                     int64_t *cost_ns)
{
    const vp_ilp *g;
    int64_t       n_blocks = 0, kept_bytes, total_ns;

    if (ilp_idx < 0 || ilp_idx >= p->n_ilps)
        return false;
    g          = &p->ilps[ilp_idx];
    kept_bytes = g->base_bytes;
    total_ns   = g->const_ns;
    for (int64_t s = 0; s < g->n_items; s++) {
        const vp_item_row *x = &g->items[s];

        if (counts[s] < 0 || counts[s] > g->n_blocks || x->n_more < 0 ||
            (s && x[-1].beta_bytes < x->beta_bytes))
            return false;
        if (!counts[s])
            continue;
        n_blocks   = vp_add(n_blocks, vp_mul(counts[s], vp_item_blocks(x)));
        total_ns   = vp_add(total_ns, vp_mul(x->cost_ns, counts[s]));
        kept_bytes = vp_add(kept_bytes, vp_mul(x->k_bytes, counts[s]));
        /* The last of this item, above all that is kept up to it. The level's row is that
         * of its last used item: the ones before it keep less and need the same beta, so testing
         * each tests the row. */
        if (vp_overflowed(vp_add(kept_bytes, x->beta_bytes)) ||
            vp_add(kept_bytes, x->beta_bytes) > p->budget_bytes)
            return false;
    }
    if (n_blocks != g->n_blocks || vp_overflowed(total_ns))
        return false;
    if (vp_overflowed(vp_add(kept_bytes, g->end_bytes)) ||
        vp_add(kept_bytes, g->end_bytes) > p->budget_bytes)
        return false;
    if (cost_ns)
        *cost_ns = total_ns;
    return true;
}
