/* The home of GLPK: the linear relaxation of one integer program, solved by its simplex. */
#include "planner/solve/solve_internal.h"

#include "base/checked.h"

#include <assert.h>
#include <glpk.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

/* Rows of every LP, in the certificate's order, but an undecided level's row and a used level's are
 * two rows of which one is free: the matrix is the same at all nodes, only bounds differ, and any
 * node's basis is one of any other.
 *
 *     1            sum m n = L
 *     2            sum k n <= room - end
 *     3 + l        prefix + beta / L * sum of the level's n <= room     (free unless undecided)
 *     3 + nl + l   prefix <= room - beta                                (free unless used)
 *     3 + 2 nl + l sum of the level's n >= 1                            (free unless used)
 *
 * Bytes are in units of a power of two near the largest k, costs are above the least one and in
 * units of a power of two near the largest difference: most coefficients lie between 1e-4 and 2.
 * Three elastic columns, fixed at 0, open only to find the multipliers that prove an LP
 * infeasible: one relaxes every inequality, two the cover row. */
struct vp_lp {
    vp_lp_engine   *engine;
    const vp_chain *chain;
    glp_prob       *prob;
    int             n_items, n_levels, n_rows, n_cols, n_coefficients;
    double          byte_unit, cost_unit;
    int64_t         least_ns;
    vp_lp          *next;
};

struct vp_lp_engine {
    vp_lp  *all;
    bool    broken; /* GLPK gave up inside a call: it may not be called again */
    jmp_buf caller;
};

/* GLPK's only way to report a fault, out of memory included, is to abort; this returns to the
 * call instead. */
static void give_up(void *info)
{
    longjmp(((vp_lp_engine *)info)->caller, 1);
}

/* Before it aborts GLPK switches its messages on again, and they go to standard output. */
static int say_nothing(void *info, const char *message)
{
    (void)info, (void)message;
    return 1;
}

vp_lp_engine *vp_lp_engine_new(int64_t max_memory_bytes)
{
    vp_lp_engine *engine = calloc(1, sizeof *engine);
    int64_t       mib    = max_memory_bytes >> 20;

    if (!engine || glp_init_env() > 1) {
        free(engine);
        return NULL;
    }
    glp_term_out(GLP_OFF);
    glp_term_hook(say_nothing, NULL);
    if (max_memory_bytes)
        glp_mem_limit(mib < 1 ? 1 : mib > 1 << 20 ? 1 << 20 : (int)mib);
    return engine;
}

/* After a fault GLPK's memory is only good for being given back as a whole. */
static void drop_all(vp_lp_engine *engine)
{
    glp_error_hook(NULL, NULL);
    glp_free_env();
    engine->broken = true;
}

void vp_lp_engine_free(vp_lp_engine *engine)
{
    if (!engine)
        return;
    for (vp_lp *lp = engine->all, *next; lp; lp = next) {
        next = lp->next;
        if (!engine->broken)
            glp_delete_prob(lp->prob);
        free(lp);
    }
    if (!engine->broken)
        glp_free_env();
    free(engine);
}

int64_t vp_lp_engine_bytes(const vp_lp_engine *engine)
{
    size_t n_bytes = 0;

    if (!engine->broken)
        glp_mem_usage(NULL, NULL, &n_bytes, NULL);
    return (int64_t)n_bytes;
}

/* ---- the matrix ---- */

static double unit_near(int64_t largest)
{
    return largest > 0 ? ldexp(1, ilogb((double)largest)) : 1;
}

static void fill(vp_lp *lp, int *rows, double *values)
{
    const vp_chain *c    = lp->chain;
    const vp_ilp   *g    = c->g;
    const int       nl   = lp->n_levels;
    const double    room = (double)c->room_bytes / lp->byte_unit;

    glp_add_rows(lp->prob, lp->n_rows);
    glp_add_cols(lp->prob, lp->n_cols);
    glp_set_row_bnds(lp->prob, 1, GLP_FX, (double)g->n_blocks, (double)g->n_blocks);
    glp_set_row_bnds(lp->prob, 2, GLP_UP, 0, room - (double)g->end_bytes / lp->byte_unit);
    for (int s = 0; s < lp->n_items; s++) {
        const vp_item_row *x    = &g->items[s];
        const int          l_of = (int)c->level_of[s];
        const double       k    = (double)x->k_bytes / lp->byte_unit;
        const double       beta = (double)x->beta_bytes / lp->byte_unit / (double)g->n_blocks;
        int                n    = 0;

        rows[++n] = 1, values[n] = (double)vp_item_blocks(x);
        if (x->k_bytes)
            rows[++n] = 2, values[n] = k;
        for (int l = l_of; l < nl; l++) {
            if (l == l_of ? x->k_bytes || x->beta_bytes : x->k_bytes != 0)
                rows[++n] = 3 + l, values[n] = k + (l == l_of ? beta : 0);
            if (x->k_bytes)
                rows[++n] = 3 + nl + l, values[n] = k;
        }
        rows[++n] = 3 + 2 * nl + l_of, values[n] = 1;
        assert(n <= 3 * nl + 3 && n <= lp->n_rows); /* room for rows[1 .. n] */
        glp_set_mat_col(lp->prob, s + 1, n, rows, values);
    }
    for (int r = 2; r <= lp->n_rows; r++)
        rows[r - 1] = r, values[r - 1] = r < 3 + 2 * nl ? -1 : 1;
    glp_set_mat_col(lp->prob, lp->n_items + 1, lp->n_rows - 1, rows, values);
    rows[1]   = 1;
    values[1] = 1;
    glp_set_mat_col(lp->prob, lp->n_items + 2, 1, rows, values);
    values[1] = -1;
    glp_set_mat_col(lp->prob, lp->n_items + 3, 1, rows, values);
}

/* What an item costs above so much a block. */
static int64_t cost_above(const vp_item_row *x, int64_t least_ns)
{
    return x->cost_ns - vp_item_blocks(x) * least_ns;
}

/* Costs, or those of the elastic columns alone; the columns one does not look at are shut. */
static void set_costs(vp_lp *lp, bool elastic)
{
    for (int s = 0; s < lp->n_items; s++)
        glp_set_obj_coef(lp->prob, s + 1,
                         elastic ? 0
                                 : (double)cost_above(&lp->chain->g->items[s], lp->least_ns) /
                                       lp->cost_unit);
    for (int e = lp->n_items + 1; e <= lp->n_cols; e++) {
        glp_set_obj_coef(lp->prob, e, elastic ? 1 : 0);
        glp_set_col_bnds(lp->prob, e, elastic ? GLP_LO : GLP_FX, 0, 0);
    }
}

static bool build(vp_lp *lp, int *rows, double *values)
{
    if (setjmp(lp->engine->caller)) {
        drop_all(lp->engine);
        return false;
    }
    glp_error_hook(give_up, lp->engine);
    lp->prob = glp_create_prob();
    fill(lp, rows, values);
    set_costs(lp, false);
    lp->n_coefficients = glp_get_num_nz(lp->prob);
    glp_error_hook(NULL, NULL);
    return true;
}

vp_lp *vp_lp_new(vp_lp_engine *engine, const vp_chain *chain)
{
    const vp_ilp *g       = chain->g;
    const size_t  n       = 3 * (size_t)chain->n_levels + 4;
    int64_t       k_bytes = 0, most_ns = 0;
    vp_lp        *lp     = engine->broken ? NULL : calloc(1, sizeof *lp);
    int          *rows   = calloc(n, sizeof *rows);
    double       *values = calloc(n, sizeof *values);
    bool          built  = false;

    if (!lp || !rows || !values)
        goto out;
    *lp = (vp_lp){.engine   = engine,
                  .chain    = chain,
                  .n_items  = (int)g->n_items,
                  .n_levels = (int)chain->n_levels,
                  .n_rows   = 2 + 3 * (int)chain->n_levels,
                  .n_cols   = (int)g->n_items + 3,
                  .least_ns = INT64_MAX};
    for (int64_t s = 0; s < g->n_items; s++) {
        const vp_item_row *x = &g->items[s];

        k_bytes      = vp_max_i64(k_bytes, x->k_bytes);
        lp->least_ns = vp_min_i64(lp->least_ns, x->cost_ns / vp_item_blocks(x));
    }
    for (int64_t s = 0; s < g->n_items; s++)
        most_ns = vp_max_i64(most_ns, cost_above(&g->items[s], lp->least_ns));
    lp->byte_unit = unit_near(k_bytes);
    lp->cost_unit = unit_near(most_ns);
    built         = build(lp, rows, values);
    if (built) {
        lp->next    = engine->all;
        engine->all = lp;
    }
out:
    if (!built) {
        free(lp);
        lp = NULL;
    }
    free(rows);
    free(values);
    return lp;
}

int64_t vp_lp_basis_size(const vp_lp *lp)
{
    return lp->n_rows + lp->n_cols;
}

int64_t vp_lp_size(const vp_lp *lp)
{
    return lp->n_coefficients;
}

/* ---- one node ---- */

static void set_box(vp_lp *lp, const vp_box *box)
{
    const int    nl   = lp->n_levels;
    const double room = (double)lp->chain->room_bytes / lp->byte_unit;

    for (int s = 0; s < lp->n_items; s++)
        glp_set_col_bnds(lp->prob, s + 1, box->lo[s] == box->hi[s] ? GLP_FX : GLP_DB,
                         (double)box->lo[s], (double)box->hi[s]);
    for (int l = 0; l < nl; l++) {
        double beta = (double)lp->chain->g->items[lp->chain->first[l]].beta_bytes / lp->byte_unit;

        glp_set_row_bnds(lp->prob, 3 + l, box->use[l] == VP_LEVEL_UNDECIDED ? GLP_UP : GLP_FR, 0,
                         room);
        glp_set_row_bnds(lp->prob, 3 + nl + l, box->use[l] == VP_LEVEL_USED ? GLP_UP : GLP_FR, 0,
                         room - beta);
        glp_set_row_bnds(lp->prob, 3 + 2 * nl + l, box->use[l] == VP_LEVEL_USED ? GLP_LO : GLP_FR,
                         1, 0);
    }
}

static void set_basis(vp_lp *lp, const vp_box *box, const uint8_t *basis)
{
    const int nl = lp->n_levels;

    if (!basis) {
        glp_std_basis(lp->prob);
        return;
    }
    for (int r = 0; r < lp->n_rows; r++)
        glp_set_row_stat(lp->prob, r + 1, basis[r]);
    for (int j = 0; j < lp->n_cols; j++)
        glp_set_col_stat(lp->prob, j + 1, basis[lp->n_rows + j]);
    /* a level just decided: its new row takes the place of the one that is free now */
    for (int l = 0; l < nl; l++)
        if (box->use[l] == VP_LEVEL_USED && basis[2 + l] != GLP_BS && basis[2 + nl + l] == GLP_BS) {
            glp_set_row_stat(lp->prob, 3 + l, GLP_BS);
            glp_set_row_stat(lp->prob, 3 + nl + l, GLP_NU);
        }
}

static void get_multipliers(vp_lp *lp, const vp_box *box, double cost_unit, double *u)
{
    const int nl = lp->n_levels;

    u[0] = glp_get_row_dual(lp->prob, 1) * cost_unit;
    u[1] = -glp_get_row_dual(lp->prob, 2) * cost_unit / lp->byte_unit;
    for (int l = 0; l < nl; l++) {
        u[2 + l] = u[2 + nl + l] = 0;
        if (box->use[l] == VP_LEVEL_UNDECIDED)
            u[2 + l] = -glp_get_row_dual(lp->prob, 3 + l) * cost_unit / lp->byte_unit /
                       (double)lp->chain->g->n_blocks;
        if (box->use[l] == VP_LEVEL_USED) {
            u[2 + l]      = -glp_get_row_dual(lp->prob, 3 + nl + l) * cost_unit / lp->byte_unit;
            u[2 + nl + l] = glp_get_row_dual(lp->prob, 3 + 2 * nl + l) * cost_unit;
        }
    }
}

/* Pivot; true when the LP's status means something. */
static bool pivot(vp_lp *lp, int method, int64_t max_pivots, int64_t *n_pivots)
{
    const int before = glp_get_it_cnt(lp->prob);
    glp_smcp  parm;
    int       rc;

    if (*n_pivots >= max_pivots)
        return false;
    glp_init_smcp(&parm);
    parm.msg_lev = GLP_MSG_OFF;
    parm.meth    = method;
    parm.it_lim  = max_pivots - *n_pivots > 100000 ? 100000 : (int)(max_pivots - *n_pivots);
    rc           = glp_simplex(lp->prob, &parm);
    *n_pivots += glp_get_it_cnt(lp->prob) - before;
    return rc == 0;
}

static vp_lp_end solve(vp_lp *lp, const vp_box *box, const uint8_t *basis, int64_t max_pivots,
                       vp_lp_answer *out)
{
    int status = GLP_UNDEF;

    set_box(lp, box);
    set_basis(lp, box, basis);
    if (pivot(lp, basis ? GLP_DUALP : GLP_PRIMAL, max_pivots, &out->n_pivots))
        status = glp_get_status(lp->prob);
    /* a basis that has gone bad: once more, from scratch */
    if (status != GLP_OPT && status != GLP_NOFEAS && basis) {
        glp_std_basis(lp->prob);
        if (pivot(lp, GLP_PRIMAL, max_pivots, &out->n_pivots))
            status = glp_get_status(lp->prob);
    }
    if (status == GLP_OPT) {
        for (int s = 0; s < lp->n_items; s++)
            out->x[s] = glp_get_col_prim(lp->prob, s + 1);
        get_multipliers(lp, box, lp->cost_unit, out->u);
        out->u[0] += (double)lp->least_ns;
        for (int r = 0; r < lp->n_rows; r++)
            out->basis[r] = (uint8_t)glp_get_row_stat(lp->prob, r + 1);
        for (int j = 0; j < lp->n_cols; j++)
            out->basis[lp->n_rows + j] = (uint8_t)glp_get_col_stat(lp->prob, j + 1);
        return VP_LP_OPTIMAL;
    }
    if (status != GLP_NOFEAS)
        return VP_LP_UNKNOWN;
    set_costs(lp, true);
    status =
        pivot(lp, GLP_PRIMAL, max_pivots, &out->n_pivots) ? glp_get_status(lp->prob) : GLP_UNDEF;
    get_multipliers(lp, box, 1, out->u);
    set_costs(lp, false);
    return status == GLP_OPT ? VP_LP_INFEASIBLE : VP_LP_UNKNOWN;
}

vp_lp_end vp_lp_solve(vp_lp *lp, const vp_box *box, const uint8_t *basis, int64_t max_pivots,
                      vp_lp_answer *out)
{
    vp_lp_end end;

    assert(out->x && out->u && out->basis);
    out->n_pivots = 0;
    if (lp->engine->broken)
        return VP_LP_UNKNOWN;
    if (setjmp(lp->engine->caller)) {
        drop_all(lp->engine);
        return VP_LP_UNKNOWN;
    }
    glp_error_hook(give_up, lp->engine);
    end = solve(lp, box, basis, max_pivots, out);
    glp_error_hook(NULL, NULL);
    return end;
}
