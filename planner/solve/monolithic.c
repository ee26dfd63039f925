/* The same choice as one integer program, solved whole by GLPK: every block decides for itself,
 * in any order of strategies. */
#include "planner/solve/solve_internal.h"

#include "base/checked.h"
#include "base/clock.h"

#include <glpk.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

/* Columns, all binary: for each integer program p of the problem one z_p (it is the one chosen),
 * then x_{p,i,s} (item s begins at block i, the first in the chain is 0), block by block. Rows:
 *
 *     choose       sum_p z_p = 1
 *     cover p,i    sum of x_{p,j,s} with j <= i < j + m_s, - z_p = 0
 *     peak p,i     sum_{j <= i} sum_s k_s x_{p,j,s} + sum_s beta_s x_{p,i,s} - room_p z_p <= 0
 *                  room = budget - base
 *     end p        sum_j sum_s k_s x_{p,j,s} - (room_p - end_p) z_p <= 0
 *
 * Here a block may use more than the budget leaves above the kept bytes below it in one order and
 * not in another: nothing of the canonical order, of levels or of counts is assumed. z_p stands in
 * each row with what the row allows, so that an integer program not chosen has no blocks: no large
 * constant is needed.
 *
 * Bytes are divided by what divides them all, the room is rounded down to that and is never more
 * than the chain could use, and both are in units of a power of two near the largest: a broken
 * row is mostly broken by far more than GLPK's tolerance. Where it is not, the exact sum tells,
 * the items that break it together get a row that forbids just that, and GLPK starts again.
 * Costs are nanoseconds above the least. */

enum {
    MAX_COLUMNS = 20000,
    MAX_REPAIRS = 200 /* solutions that kept the rows for GLPK only */
};

typedef struct model {
    const vp_ilp_problem *p;
    glp_prob             *prob;
    int                  *columns; /* a row being written, or a column                        */
    double               *values;
    int                  *z;     /* per vp_ilp the number of its z                         */
    int64_t              *items; /* of the solution                                         */
    int64_t               byte_divisor, least_ns, max_pivots, max_nodes;
    int64_t               n_nodes; /* of the branch and bound under way                       */
    double                byte_unit, deadline_s;
    vp_monolithic        *out;
    jmp_buf               caller;
} model;

static int left_ms(const model *m)
{
    double left = (m->deadline_s - vp_now_s()) * 1e3;

    return left < 1 ? 1 : (int)fmin(left, 1e9);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a            = b;
        b            = rest;
    }
    return a;
}

/* ---- the undivided program ---- */

static int x_column(const model *m, int64_t ilp_idx, int64_t block, int64_t item)
{
    return m->z[ilp_idx] + 1 + (int)(block * m->p->ilps[ilp_idx].n_items + item);
}

/* What a block costs at least. */
static int64_t least_item_ns(const vp_ilp *g)
{
    int64_t least = INT64_MAX;

    for (int64_t s = 0; s < g->n_items; s++)
        least = vp_min_i64(least, g->items[s].cost_ns / vp_item_blocks(&g->items[s]));
    return least;
}

/* The smallest cost there could be, what divides all sizes, and their unit. */
static void find_units(model *m)
{
    int64_t largest = 0;

    m->least_ns = INT64_MAX;
    for (int64_t i = 0; i < m->p->n_ilps; i++) {
        const vp_ilp *g = &m->p->ilps[i];

        m->least_ns     = vp_min_i64(m->least_ns, g->const_ns + g->n_blocks * least_item_ns(g));
        m->byte_divisor = common_divisor(m->byte_divisor, g->end_bytes);
        largest         = vp_max_i64(largest, g->end_bytes);
        for (int64_t s = 0; s < g->n_items; s++) {
            m->byte_divisor = common_divisor(common_divisor(m->byte_divisor, g->items[s].k_bytes),
                                             g->items[s].beta_bytes);
            largest = vp_max_i64(largest, vp_max_i64(g->items[s].k_bytes, g->items[s].beta_bytes));
        }
    }
    if (!m->byte_divisor)
        m->byte_divisor = 1;
    largest /= m->byte_divisor;
    m->byte_unit = largest > 0 ? ldexp(1, ilogb((double)largest)) : 1;
}

static double scaled(const model *m, int64_t bytes)
{
    return (double)(bytes / m->byte_divisor) / m->byte_unit;
}

/* What a row of z allows: rounded down, and not more than could ever be used. */
static double scaled_room(const model *m, int64_t room_bytes, int64_t most_bytes)
{
    int64_t room = vp_min_i64(room_bytes, most_bytes);

    if (room < 0) /* division rounds towards zero */
        room -= m->byte_divisor - 1;
    return scaled(m, room);
}

static int new_row(model *m, int type, double bound, int n)
{
    int r = glp_add_rows(m->prob, 1);

    glp_set_row_bnds(m->prob, r, type, bound, bound);
    glp_set_mat_row(m->prob, r, n, m->columns, m->values);
    return r;
}

static void put(model *m, int *n, int column, double value)
{
    if (value == 0)
        return;
    m->columns[++*n] = column;
    m->values[*n]    = value;
}

/* Kept bytes of blocks 0 .. last; block `running` adds its beta (-1: none). */
static void bytes_row(model *m, int64_t ilp_idx, int64_t last, int64_t running, int64_t room_bytes)
{
    const vp_ilp *g      = &m->p->ilps[ilp_idx];
    int64_t       most_k = 0, most_beta = 0;
    int           n = 0;

    for (int64_t j = 0; j <= last; j++)
        for (int64_t s = 0; s < g->n_items; s++)
            put(m, &n, x_column(m, ilp_idx, j, s),
                scaled(m, g->items[s].k_bytes) +
                    (j == running ? scaled(m, g->items[s].beta_bytes) : 0));
    for (int64_t s = 0; s < g->n_items; s++) {
        most_k    = vp_max_i64(most_k, g->items[s].k_bytes);
        most_beta = vp_max_i64(most_beta, g->items[s].beta_bytes);
    }
    put(m, &n, m->z[ilp_idx],
        -scaled_room(m, room_bytes, (last + 1) * most_k + (running < 0 ? 0 : most_beta)));
    new_row(m, GLP_UP, 0, n);
}

static void add_columns(model *m, int64_t ilp_idx)
{
    const vp_ilp *g     = &m->p->ilps[ilp_idx];
    const int64_t least = least_item_ns(g);
    const int     first = glp_add_cols(m->prob, (int)(1 + g->n_blocks * g->n_items));

    m->z[ilp_idx] = first;
    for (int j = first; j <= glp_get_num_cols(m->prob); j++)
        glp_set_col_kind(m->prob, j, GLP_BV);
    for (int64_t i = 0; i < g->n_blocks; i++)
        for (int64_t s = 0; s < g->n_items; s++)
            if (i + vp_item_blocks(&g->items[s]) > g->n_blocks)
                glp_set_col_bnds(m->prob, x_column(m, ilp_idx, i, s), GLP_FX, 0, 0);
    glp_set_obj_coef(m->prob, first, (double)(g->const_ns + g->n_blocks * least - m->least_ns));
    for (int64_t i = 0; i < g->n_blocks; i++)
        for (int64_t s = 0; s < g->n_items; s++)
            glp_set_obj_coef(m->prob, x_column(m, ilp_idx, i, s),
                             (double)(g->items[s].cost_ns - vp_item_blocks(&g->items[s]) * least));
}

static void add_rows(model *m, int64_t ilp_idx)
{
    const vp_ilp *g    = &m->p->ilps[ilp_idx];
    const int64_t room = m->p->budget_bytes - g->base_bytes;

    for (int64_t i = 0; i < g->n_blocks; i++) {
        int n = 0;

        for (int64_t s = 0; s < g->n_items; s++)
            for (int64_t j = vp_max_i64(0, i - g->items[s].n_more); j <= i; j++)
                put(m, &n, x_column(m, ilp_idx, j, s), 1);
        put(m, &n, m->z[ilp_idx], -1);
        new_row(m, GLP_FX, 0, n);
    }
    for (int64_t i = 0; i < g->n_blocks; i++)
        bytes_row(m, ilp_idx, i, i, room);
    bytes_row(m, ilp_idx, g->n_blocks - 1, -1, room - g->end_bytes);
}

static void build(model *m)
{
    int n = 0;

    m->prob = glp_create_prob();
    for (int64_t i = 0; i < m->p->n_ilps; i++)
        add_columns(m, i);
    for (int64_t i = 0; i < m->p->n_ilps; i++)
        put(m, &n, m->z[i], 1);
    new_row(m, GLP_FX, 1, n);
    for (int64_t i = 0; i < m->p->n_ilps; i++)
        add_rows(m, i);
    m->out->n_rows = glp_get_num_rows(m->prob);
}

/* ---- the solution ---- */

/* The items GLPK chose. False: not one integer program, or not blocks that items cover once. */
static bool read_items(model *m)
{
    int64_t chosen = -1;

    for (int64_t i = 0; i < m->p->n_ilps; i++)
        if (glp_mip_col_val(m->prob, m->z[i]) > 0.5) {
            if (chosen >= 0)
                return false;
            chosen = i;
        }
    if (chosen < 0)
        return false;
    m->out->ilp_idx   = chosen;
    const vp_ilp *g   = &m->p->ilps[chosen];
    int64_t       end = 0; /* of the items so far */
    for (int64_t i = 0; i < g->n_blocks; i++) {
        m->items[i] = -1;
        for (int64_t s = 0; s < g->n_items; s++)
            if (glp_mip_col_val(m->prob, x_column(m, chosen, i, s)) > 0.5) {
                if (i != end || m->items[i] >= 0)
                    return false;
                m->items[i] = s;
            }
        if (m->items[i] >= 0)
            end = i + vp_item_blocks(&g->items[m->items[i]]);
        if (end <= i)
            return false;
    }
    return end == g->n_blocks;
}

/* The last block of the first row that the items break exactly; -1: none. */
static int64_t broken_at(const model *m)
{
    const vp_ilp *g    = &m->p->ilps[m->out->ilp_idx];
    int64_t       kept = g->base_bytes;

    for (int64_t i = 0; i < g->n_blocks; i++) {
        if (m->items[i] < 0)
            continue;
        kept += g->items[m->items[i]].k_bytes;
        if (kept + g->items[m->items[i]].beta_bytes > m->p->budget_bytes)
            return i;
    }
    return kept + g->end_bytes > m->p->budget_bytes ? g->n_blocks - 1 : -1;
}

/* These items of blocks 0 .. last do not go together. */
static void forbid(model *m, int64_t last)
{
    int n = 0;

    for (int64_t i = 0; i <= last; i++)
        if (m->items[i] >= 0)
            put(m, &n, x_column(m, m->out->ilp_idx, i, m->items[i]), 1);
    new_row(m, GLP_UP, n - 1, n);
}

static void keep_solution(model *m)
{
    const vp_ilp *g = &m->p->ilps[m->out->ilp_idx];

    m->out->found   = true;
    m->out->items   = m->items;
    m->out->cost_ns = g->const_ns;
    for (int64_t i = 0; i < g->n_blocks; i++)
        m->out->cost_ns += m->items[i] >= 0 ? g->items[m->items[i]].cost_ns : 0;
}

/* ---- the search ---- */

/* Work is counted; seconds are only the backstop. */
static void watch(glp_tree *tree, void *info)
{
    model *m = info;
    int    n_all;

    glp_ios_tree_size(tree, NULL, NULL, &n_all);
    if (m->out->n_nodes + n_all > m->max_nodes || glp_get_it_cnt(m->prob) > m->max_pivots)
        glp_ios_terminate(tree);
    m->n_nodes = n_all;
}

static vp_monolithic_end relax(model *m)
{
    glp_smcp parm;

    glp_init_smcp(&parm);
    parm.msg_lev = GLP_MSG_OFF;
    parm.meth    = GLP_DUALP;
    parm.it_lim  = (int)vp_min_i64(m->max_pivots, INT32_MAX);
    parm.tm_lim  = left_ms(m);
    glp_std_basis(m->prob);
    switch (glp_simplex(m->prob, &parm)) {
    case 0:
        break;
    case GLP_EITLIM:
    case GLP_ETMLIM:
        return VP_MONOLITHIC_LIMIT;
    case GLP_ENOPFS:
        return VP_MONOLITHIC_INFEASIBLE;
    default:
        return VP_MONOLITHIC_FAILED;
    }
    switch (glp_get_status(m->prob)) {
    case GLP_OPT:
        return VP_MONOLITHIC_OPTIMAL;
    case GLP_NOFEAS:
        return VP_MONOLITHIC_INFEASIBLE;
    default:
        return VP_MONOLITHIC_FAILED;
    }
}

/* Branch and bound of GLPK, from the relaxation's basis. */
static vp_monolithic_end branch(model *m)
{
    glp_iocp parm;
    int      rc;

    glp_init_iocp(&parm);
    parm.msg_lev = GLP_MSG_OFF;
    parm.br_tech = GLP_BR_DTH;
    parm.bt_tech = GLP_BT_BLB;
    parm.pp_tech = GLP_PP_NONE;
    parm.tol_obj = 1e-10; /* of nanoseconds above the least: less than one */
    parm.mip_gap = 0;
    parm.tm_lim  = left_ms(m);
    parm.cb_func = watch;
    parm.cb_info = m;
    m->n_nodes   = 0;
    rc           = glp_intopt(m->prob, &parm);
    m->out->n_nodes += m->n_nodes;
    switch (rc) {
    case 0:
    case GLP_EMIPGAP:
        break; /* the gap asked for is 0: also an optimum */
    case GLP_ENOPFS:
        return VP_MONOLITHIC_INFEASIBLE;
    case GLP_ETMLIM:
    case GLP_ESTOP:
        return VP_MONOLITHIC_LIMIT;
    default:
        return VP_MONOLITHIC_FAILED;
    }
    switch (glp_mip_status(m->prob)) {
    case GLP_OPT:
        return VP_MONOLITHIC_OPTIMAL;
    case GLP_NOFEAS:
        return VP_MONOLITHIC_INFEASIBLE;
    case GLP_FEAS:
        return rc == GLP_EMIPGAP ? VP_MONOLITHIC_OPTIMAL : VP_MONOLITHIC_FAILED;
    default:
        return VP_MONOLITHIC_FAILED;
    }
}

static void search(model *m)
{
    for (int repairs = 0;; repairs++) {
        vp_monolithic_end end = relax(m);

        if (end == VP_MONOLITHIC_OPTIMAL)
            end = branch(m);
        m->out->end = end;
        if (end == VP_MONOLITHIC_OPTIMAL ||
            (end == VP_MONOLITHIC_LIMIT && glp_mip_status(m->prob) == GLP_FEAS)) {
            if (!read_items(m)) {
                m->out->end = VP_MONOLITHIC_FAILED;
                return;
            }
            int64_t last = broken_at(m);
            if (last < 0)
                keep_solution(m);
            else if (end == VP_MONOLITHIC_OPTIMAL && repairs < MAX_REPAIRS) {
                forbid(m, last);
                continue;
            } else
                m->out->end = VP_MONOLITHIC_LIMIT;
        }
        return;
    }
}

/* ---- GLPK aborts where others return an error: its hook jumps back here, and GLPK is not
 * called again ---- */

static void give_up(void *info)
{
    longjmp(((model *)info)->caller, 1);
}

static int say_nothing(void *info, const char *message)
{
    (void)info, (void)message;
    return 1;
}

static void run(model *m)
{
    if (setjmp(m->caller)) {
        m->out->end   = VP_MONOLITHIC_FAILED;
        m->out->found = false;
    } else {
        glp_error_hook(give_up, m);
        build(m);
        search(m);
        glp_delete_prob(m->prob);
    }
    glp_error_hook(NULL, NULL);
    glp_free_env();
}

vp_status vp_monolithic_solve(vp_arena *arena, const vp_ilp_problem *p, double max_s,
                              vp_monolithic *out, vp_err *err)
{
    model     m           = {.p          = p,
                             .out        = out,
                             .max_pivots = p->max_pivots,
                             .max_nodes  = p->max_nodes,
                             .deadline_s = vp_now_s() + max_s};
    int64_t   most_blocks = 0, mib = p->max_memory_bytes >> 20;
    vp_status st = VP_OK;

    *out = (vp_monolithic){.end = VP_MONOLITHIC_REFUSED};
    for (int64_t i = 0; i < p->n_ilps; i++) {
        out->n_columns += 1 + p->ilps[i].n_blocks * p->ilps[i].n_items;
        out->n_rows += 1 + 2 * p->ilps[i].n_blocks;
        most_blocks = vp_max_i64(most_blocks, p->ilps[i].n_blocks);
    }
    out->n_rows++;
    if (out->n_columns > MAX_COLUMNS || !p->n_ilps) {
        out->end = p->n_ilps ? VP_MONOLITHIC_REFUSED : VP_MONOLITHIC_INFEASIBLE;
        goto out;
    }
    m.columns = vp_arena_array(arena, out->n_columns + 1, sizeof *m.columns);
    m.values  = vp_arena_array(arena, out->n_columns + 1, sizeof *m.values);
    m.z       = vp_arena_array(arena, p->n_ilps, sizeof *m.z);
    m.items   = vp_arena_array(arena, most_blocks, sizeof *m.items);
    VP_TRY_ALLOC(err, m.columns && m.values && m.z && m.items && glp_init_env() <= 1);
    glp_term_out(GLP_OFF);
    glp_term_hook(say_nothing, NULL);
    if (p->max_memory_bytes)
        glp_mem_limit(mib < 1 ? 1 : mib > 1 << 20 ? 1 << 20 : (int)mib);
    find_units(&m);
    run(&m);
out:
    return st;
}
