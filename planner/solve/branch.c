/* Best-first branch and bound over all integer programs at once, and the certificate of what it
 * proves. planner/solve/problem.h has the integer program, its rows and the certificate; README.md
 * here says how nodes are chosen; branch_node.c has what is done at one of them. */
#include "planner/solve/branch.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

enum {
    /* below what the checker walks */
    MAX_DEPTH = 2000,
    /* of the certificate as JSON: a document may have 200,000 (base/json.h) */
    MAX_VALUES = 180000,
    /* of one integer program: then the chain program is asked, which closes it */
    STALLED_NODES = 1000
};

/* ---- the heap of open nodes: the lowest bound first ---- */

static bool better(const vp_branch_search *q, int64_t a, int64_t b)
{
    return q->nodes[a].bound_ns != q->nodes[b].bound_ns
               ? q->nodes[a].bound_ns < q->nodes[b].bound_ns
               : a < b;
}

static void swap_heap(vp_branch_search *q, int64_t i, int64_t j)
{
    int64_t t = q->heap[i];

    q->heap[i] = q->heap[j];
    q->heap[j] = t;
}

static bool push(vp_branch_search *q, int64_t id)
{
    int64_t i = q->n_heap;

    if (!vp_arena_grow(q->arena, (void **)&q->heap, q->n_heap, &q->cap_heap, sizeof *q->heap))
        return false;
    assert(id >= 0 && id < q->n_nodes);
    q->heap[q->n_heap++] = id;
    for (; i && better(q, q->heap[i], q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap_heap(q, i, (i - 1) / 2);
    return true;
}

static int64_t pop(vp_branch_search *q)
{
    int64_t id = q->heap[0], i = 0;

    assert(q->n_heap > 0);
    q->heap[0] = q->heap[--q->n_heap];
    for (;;) {
        int64_t least = i;

        for (int64_t j = 2 * i + 1; j <= 2 * i + 2 && j < q->n_heap; j++)
            if (better(q, q->heap[j], q->heap[least]))
                least = j;
        if (least == i)
            return id;
        swap_heap(q, i, least);
        i = least;
    }
}

/* ---- the tree ---- */

static int64_t add_node(vp_branch_search *q, int64_t parent, int64_t ilp)
{
    if (!vp_arena_grow(q->arena, (void **)&q->nodes, q->n_nodes, &q->cap_nodes, sizeof *q->nodes))
        return -1;
    q->nodes[q->n_nodes] = (vp_branch_node){
        .parent = parent, .ilp = ilp, .child = -1, .own_ns = INT64_MIN, .bound_ns = INT64_MIN};
    assert(parent < q->n_nodes && ilp >= 0 && ilp < q->p->n_ilps);
    if (parent >= 0) {
        q->nodes[q->n_nodes].depth    = q->nodes[parent].depth + 1;
        q->nodes[q->n_nodes].bound_ns = q->nodes[parent].bound_ns;
    }
    q->n_bytes += (int64_t)sizeof(vp_branch_node);
    return q->n_nodes++;
}

static bool add_root(vp_branch_search *q, int64_t ilp)
{
    int64_t id = add_node(q, -1, ilp);

    assert(id < 0 || id == ilp); /* the certificate looks for a tree where its number says */
    return id >= 0 && vp_branch_first_bound(q, id) && push(q, id);
}

static bool work_is_left(vp_branch_search *q)
{
    if (q->n_work >= q->p->max_nodes || q->n_pivots >= q->p->max_pivots)
        return false;
    /* A third for the search: the certificate needs memory too, and the arena doubles. */
    return !q->p->max_memory_bytes ||
           q->n_bytes + vp_lp_engine_bytes(q->engine) < q->p->max_memory_bytes / 3;
}

/* An integer program that takes STALLED_NODES nodes is given to the chain program once: it says
 * what the optimum is, or that nothing costs less than the target. */
static void ask_chain_program(vp_branch_search *q, int64_t ilp)
{
    const int64_t upper_ns = vp_branch_target_ns(q);
    int64_t       cost_ns;

    if (q->n_nodes_of[ilp] < STALLED_NODES || q->asked[ilp] || q->n_asked >= VP_MAX_CHAIN_PROOFS)
        return;
    q->asked[ilp] = true;
    q->n_asked++;
    switch (vp_dp_solve(q->chains[ilp].g, q->p->budget_bytes, upper_ns, VP_CHAIN_PROOF_STATES,
                        q->trial, &cost_ns)) {
    case VP_DP_FOUND:
        assert(cost_ns < upper_ns);
        vp_branch_take(q, ilp, q->trial);
        q->chain_ns[ilp] = cost_ns;
        break;
    case VP_DP_NONE:
        q->chain_ns[ilp] = upper_ns;
        break;
    case VP_DP_TOO_LARGE:
        break;
    }
}

/* What is proved of a node, by multipliers or by the chain program. */
static int64_t bound_of(const vp_branch_search *q, int64_t id)
{
    return vp_max_i64(q->nodes[id].bound_ns, q->chain_ns[q->nodes[id].ilp]);
}

/* False when the host has no memory left: what was proved until then stands. */
static bool run(vp_branch_search *q)
{
    while (q->n_heap) {
        int64_t id = pop(q), first;

        if (q->nodes[id].bound_ns >= vp_branch_target_ns(q) || !work_is_left(q))
            return push(q, id);
        ask_chain_program(q, q->nodes[id].ilp);
        if (q->nodes[id].bound_ns < bound_of(q, id)) {
            q->nodes[id].bound_ns = bound_of(q, id);
            if (!push(q, id))
                return false;
            continue;
        }
        if (!q->nodes[id].solved) {
            if (!vp_branch_solve_node(q, id) || !push(q, id))
                return false;
            continue;
        }
        if (q->nodes[id].n_open && !vp_branch_choose_count(q, id))
            return false;
        if (q->nodes[id].kind == VP_SPLIT_NONE || q->nodes[id].depth >= MAX_DEPTH)
            return push(q, id); /* nothing can raise this bound, and it is the lowest */
        if ((first = add_node(q, id, q->nodes[id].ilp)) < 0 ||
            add_node(q, id, q->nodes[id].ilp) < 0)
            return false;
        assert(q->nodes[id].child < 0 && q->n_nodes == first + 2);
        q->nodes[id].child = first;
        for (int64_t child = first; child <= first + 1; child++) {
            if ((work_is_left(q) && !vp_branch_solve_node(q, child)) || !push(q, child))
                return false;
            vp_branch_note_raise(q, child);
        }
    }
    return true;
}

/* ---- the certificate ---- */

/* The lowest bound of the nodes that were not split. */
static int64_t proved_ns(const vp_branch_search *q)
{
    int64_t least = INT64_MAX;

    for (int64_t i = 0; i < q->n_nodes; i++)
        if (q->nodes[i].child < 0)
            least = vp_min_i64(least, bound_of(q, i));
    return least;
}

/* Whether an integer program's tree is cut at its root because the chain program proves the
 * cutoff. */
static bool by_chain_program(const vp_branch_search *q, int64_t id, int64_t cutoff_ns)
{
    return q->nodes[id].parent < 0 && q->nodes[id].own_ns < cutoff_ns &&
           q->chain_ns[q->nodes[id].ilp] >= cutoff_ns;
}

/* JSON values of the subtree at a node, cut where the bound reaches the cutoff. */
static int64_t n_values(const vp_branch_search *q, int64_t id, int64_t cutoff_ns)
{
    const vp_branch_node *x = &q->nodes[id];

    if (x->own_ns == VP_EMPTY_NS || by_chain_program(q, id, cutoff_ns))
        return 2;
    if (x->own_ns >= cutoff_ns || x->child < 0)
        return 2 + 3 * x->n_m;
    return 4 + n_values(q, x->child, cutoff_ns) + n_values(q, x->child + 1, cutoff_ns);
}

static int64_t n_values_all(const vp_branch_search *q, int64_t cutoff_ns)
{
    int64_t n = 1;

    for (int64_t i = 0; i < q->p->n_ilps; i++)
        n += 1 + n_values(q, i, cutoff_ns);
    return n;
}

static bool write_tree(const vp_branch_search *q, int64_t id, int64_t cutoff_ns, json_t *tree)
{
    const vp_branch_node *x = &q->nodes[id];
    json_t               *leaf;

    if (x->own_ns == VP_EMPTY_NS || by_chain_program(q, id, cutoff_ns))
        return !json_array_append_new(tree, json_pack("[i]", x->own_ns == VP_EMPTY_NS ? 3 : 4));
    if (x->own_ns < cutoff_ns && x->child >= 0) {
        json_t *split = x->kind == VP_SPLIT_LEVEL
                            ? json_pack("[iI]", 1, (json_int_t)x->at)
                            : json_pack("[iII]", 2, (json_int_t)x->at, (json_int_t)x->floor);

        return !json_array_append_new(tree, split) && write_tree(q, x->child, cutoff_ns, tree) &&
               write_tree(q, x->child + 1, cutoff_ns, tree);
    }
    leaf = json_pack("[i]", 0);
    for (int64_t i = 0; i < x->n_m; i++)
        if (json_array_append_new(
                leaf, json_pack("[II]", (json_int_t)x->m[i].row, (json_int_t)x->m[i].u))) {
            json_decref(leaf);
            return false;
        }
    return !json_array_append_new(tree, leaf);
}

/* Set the cutoff, lower than what was proved if the certificate would be too large otherwise,
 * and write it. */
static bool write_certificate(const vp_branch_search *q, vp_ilp_solution *out)
{
    int64_t high = vp_min_i64(proved_ns(q), q->best_ns), low;

    high = vp_min_i64(high, q->infeasible_ns);
    if (n_values_all(q, high) > MAX_VALUES) {
        low = high;
        for (int64_t i = 0; i < q->p->n_ilps; i++)
            low = vp_min_i64(low, vp_max_i64(q->nodes[i].own_ns, q->chain_ns[i]));
        while (low + 1 < high) {
            int64_t mid = low + (high - low) / 2;

            if (n_values_all(q, mid) > MAX_VALUES)
                high = mid;
            else
                low = mid;
        }
        high = low;
    }
    assert(high <= q->infeasible_ns && high <= q->best_ns);
    out->cutoff_ns   = high;
    out->certificate = json_array();
    for (int64_t i = 0; out->certificate && i < q->p->n_ilps; i++) {
        json_t *tree = json_array();

        if (json_array_append_new(out->certificate, tree) || !write_tree(q, i, high, tree)) {
            json_decref(out->certificate);
            out->certificate = NULL;
        }
    }
    return out->certificate;
}

/* ---- */

static bool set_chain(vp_arena *arena, const vp_ilp_problem *p, const vp_ilp *g, vp_chain *c)
{
    *c          = (vp_chain){.g = g, .room_bytes = p->budget_bytes - g->base_bytes};
    c->level_of = vp_arena_array(arena, g->n_items, sizeof *c->level_of);
    c->first    = vp_arena_array(arena, g->n_items + 1, sizeof *c->first);
    if (!c->level_of || !c->first)
        return false;
    for (int64_t s = 0; s < g->n_items; s++) {
        if (!s || g->items[s].beta_bytes != g->items[s - 1].beta_bytes)
            c->first[c->n_levels++] = s;
        c->level_of[s] = c->n_levels - 1;
    }
    assert(c->n_levels >= 1 && c->n_levels <= g->n_items);
    c->first[c->n_levels] = g->n_items;
    return true;
}

vp_status vp_branch_solve(vp_arena *arena, const vp_ilp_problem *p, vp_ilp_solution *out,
                          vp_err *err)
{
    const int64_t    rows = 2 + 2 * VP_MAX_ITEMS;
    vp_branch_search q    = {.p = p, .arena = arena, .best_ns = p->upper_ns, .best_ilp = -1};
    vp_status        st   = VP_OK;

    *out     = (vp_ilp_solution){.cutoff_ns = INT64_MIN};
    q.engine = vp_lp_engine_new(p->max_memory_bytes);
    VP_TRY_ALLOC(err, q.engine);
    q.chains     = vp_arena_array(arena, p->n_ilps, sizeof *q.chains);
    q.lps        = vp_arena_array(arena, p->n_ilps, sizeof *q.lps);
    q.n_nodes_of = vp_arena_array(arena, p->n_ilps, sizeof *q.n_nodes_of);
    q.history    = vp_arena_array(arena, p->n_ilps, sizeof *q.history);
    q.chain_ns   = vp_arena_array(arena, p->n_ilps, sizeof *q.chain_ns);
    q.asked      = vp_arena_array(arena, p->n_ilps, sizeof *q.asked);
    q.best       = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.best);
    q.trial      = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.trial);
    q.box.lo     = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.box.lo);
    q.box.hi     = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.box.hi);
    q.box.use    = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.box.use);
    q.x          = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.x);
    q.u          = vp_arena_array(arena, rows, sizeof *q.u);
    q.y          = vp_arena_array(arena, rows, sizeof *q.y);
    q.coef       = vp_arena_array(arena, VP_MAX_ITEMS, sizeof *q.coef);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    for (int64_t i = 0; i < p->n_ilps; i++) {
        const vp_ilp *g    = &p->ilps[i];
        int64_t       most = 0;

        q.chain_ns[i] = INT64_MIN;
        VP_TRY_ALLOC(err, set_chain(arena, p, g, &q.chains[i]));
        for (int64_t s = 0; s < g->n_items; s++)
            most = vp_max_i64(most, g->items[s].cost_ns);
        q.infeasible_ns = vp_max_i64(q.infeasible_ns, g->const_ns + g->n_blocks * most + 1);
    }
    /* what is known already may cost more than any counts of these integer programs: a box without
     * a solution must be proved that far, or it stays open below the target */
    if (p->upper_ns != INT64_MAX)
        q.infeasible_ns = vp_max_i64(q.infeasible_ns, p->upper_ns);
    for (int64_t i = 0; i < p->n_ilps; i++)
        VP_TRY_ALLOC(err, add_root(&q, i));
    run(&q); /* out of memory ends it as a limit does */
    VP_TRY_ALLOC(err, write_certificate(&q, out));
    out->found    = q.best_ilp >= 0;
    out->ilp_idx  = out->found ? q.best_ilp : 0;
    out->counts   = q.best;
    out->n_nodes  = q.n_lps;
    out->n_pivots = q.n_pivots;
out:
    vp_lp_engine_free(q.engine);
    return st;
}
