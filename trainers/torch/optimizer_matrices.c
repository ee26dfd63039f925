#include "trainers/torch/optimizer_internal.h"

#include "base/checked.h"
#include "devices/svd_workspace.h"

enum { NEWTON_SCHULZ_STEPS = 5, BF16_BYTES = 2, F32_BYTES = 4 };

/* The tensors that a step's names in Python mean: who is given to a name lets go what it meant before, and what it means when the
 * loop ends is there while the next parameter is stepped. */
typedef struct names {
    vp_ledger_block gradient, denominator, update, factor, scaled, norm, limiter;
} names;

static vp_status set(vp_optimizer_step *o, vp_ledger_block *name, int64_t bytes, vp_err *err)
{
    vp_ledger_block made = {0};
    vp_status       st;

    st = vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, bytes, &made, err);
    vp_ledger_free(o->ledger, name);
    *name = made;
    return st;
}

static void drop(vp_optimizer_step *o, vp_ledger_block *name)
{
    vp_ledger_free(o->ledger, name);
}

/* A state that is made anew: what it was goes. */
static void replace(vp_optimizer_step *o, vp_ledger_block *state, int64_t bytes,
                    vp_ledger_block *made)
{
    if (state->block)
        o->state_bytes -= bytes;
    vp_ledger_free(o->ledger, state);
    *state = *made;
    *made  = (vp_ledger_block){0};
}

static void drop_names(vp_optimizer_step *o, names *v)
{
    drop(o, &v->gradient);
    drop(o, &v->denominator);
    drop(o, &v->update);
    drop(o, &v->factor);
    drop(o, &v->scaled);
    drop(o, &v->norm);
    drop(o, &v->limiter);
}

/* ---- Muon ---- */

/* _zeropower_via_newtonschulz() of torch 2.11: in bf16, of the matrix that lies. What it is given is its own where it is bf16. */
static vp_status orthogonalise(vp_optimizer_step *o, const vp_trained *t, vp_ledger_block *update,
                               vp_err *err)
{
    int64_t         n     = vp_trained_elements(t);
    int64_t         side  = vp_min_i64(t->columns, n / t->columns);
    int64_t         bytes = BF16_BYTES * n, square = BF16_BYTES * side * side;
    vp_ledger_block matrix = {0}, norm = {0}, gram = {0}, polynomial = {0};
    vp_status       st = VP_OK;

    if (t->element_bytes != BF16_BYTES)
        VP_TRY(set(o, &matrix, bytes, err));
    VP_TRY(set(o, &norm, BF16_BYTES, err));
    VP_TRY(set(o, &norm, BF16_BYTES, err)); /* no less than epsilon */
    drop(o, &norm);
    for (int i = 0; i < NEWTON_SCHULZ_STEPS; i++) {
        VP_TRY(set(o, &gram, square, err));
        VP_TRY(set(o, &polynomial, square, err));
        VP_TRY(set(o, &matrix, bytes, err));
    }
    drop(o, &gram);
    drop(o, &polynomial);
    drop(o, update);
    *update = matrix;
    matrix  = (vp_ledger_block){0};
out:
    drop(o, &matrix);
    drop(o, &norm);
    drop(o, &gram);
    drop(o, &polynomial);
    return st;
}

vp_status vp_optimizer_step_muon(vp_optimizer_step *o, range of, vp_err *err)
{
    vp_ledger_block update = {0};
    vp_status       st     = VP_OK;

    for (int64_t i = of.first; i < of.end; i++) {
        VP_TRY(set(o, &update, o->trained[i].bytes, err));
        VP_TRY(orthogonalise(o, &o->trained[i], &update, err));
    }
out:
    drop(o, &update);
    return st;
}

/* ---- what is projected ---- */

/* Whether the columns are projected, (rows, rank) being left; else the rows. Of std it is the shorter side that the projection has. */
static bool projects_columns(const vp_optimizer_step *o, const vp_trained *t)
{
    bool is_tall = vp_trained_elements(t) / t->columns >= t->columns;

    switch (o->settings.projection) {
    case VP_PROJECT_STD:
        return is_tall;
    case VP_PROJECT_REVERSE:
        return !is_tall;
    case VP_PROJECT_LEFT:
        return false;
    case VP_PROJECT_RIGHT:
        break;
    }
    return true;
}

static int64_t shorter_side(const vp_trained *t)
{
    return vp_min_i64(t->columns, vp_trained_elements(t) / t->columns);
}

/* A decomposition has no more vectors than the matrix has rows or columns; random ones are as many as asked for. */
static int64_t rank_of(const vp_optimizer_step *o, const vp_trained *t)
{
    int64_t rank = o->settings.rank;

    return o->settings.by_svd ? vp_min_i64(rank, shorter_side(t)) : rank;
}

/* The side that the projection has with the rank, and the side that is left. */
static int64_t projected_side(const vp_optimizer_step *o, const vp_trained *t)
{
    return projects_columns(o, t) ? t->columns : vp_trained_elements(t) / t->columns;
}

static int64_t left_side(const vp_optimizer_step *o, const vp_trained *t)
{
    return vp_trained_elements(t) / projected_side(o, t);
}

/* In fp32 a decomposition's is a view, which keeps all vectors of that side. */
int64_t vp_optimizer_projection_elements(const vp_optimizer_step *o, const vp_trained *t)
{
    bool is_view = o->settings.by_svd && t->element_bytes == F32_BYTES;

    return vp_mul(is_view ? shorter_side(t) : rank_of(o, t), projected_side(o, t));
}

int64_t vp_optimizer_moment_elements(const vp_optimizer_step *o, const vp_trained *t)
{
    return vp_mul(rank_of(o, t), left_side(o, t));
}

/* torch.linalg.svd() of a matrix in fp32 by cuSOLVER's Jacobi method: both sides' vectors, which stay, and the values; a copy, the
 * workspace, whether it converged. Then what galore_torch makes of the other side and drops. */
static vp_status decompose(vp_optimizer_step *o, const vp_trained *t, vp_ledger_block sides[2],
                           vp_err *err)
{
    int64_t         n = vp_trained_elements(t), k = shorter_side(t), rank = rank_of(o, t);
    vp_ledger_block values = {0}, status = {0}, copy = {0}, scratch = {0};
    vp_status       st = VP_OK;

    for (int j = 0; j < 2; j++) {
        int64_t bytes = F32_BYTES * (j ? t->columns : n / t->columns) * k;
        if (t->element_bytes == F32_BYTES && projects_columns(o, t) == (j == 1))
            VP_TRY(vp_optimizer_keep(o, bytes, &sides[j], err));
        else
            VP_TRY(set(o, &sides[j], bytes, err));
    }
    VP_TRY(set(o, &values, F32_BYTES * k, err));
    VP_TRY(set(o, &status, 4, err));
    VP_TRY(set(o, &copy, F32_BYTES * n, err));
    VP_TRY(
        set(o, &scratch, F32_BYTES * vp_svd_workspace_elements(n / t->columns, t->columns), err));
    drop(o, &scratch);
    drop(o, &copy);
    drop(o, &status);
    VP_TRY(set(o, &copy, F32_BYTES * rank * rank, err)); /* a diagonal of the values */
    VP_TRY(set(o, &scratch, F32_BYTES * rank * left_side(o, t), err));
out:
    drop(o, &copy);
    drop(o, &scratch);
    drop(o, &values);
    drop(o, &status);
    return st;
}

/* galore_torch 1.0, GaLoreProjector: vectors of one side, in the format of the gradient, of which a copy in fp32 is there
 * meanwhile. */
static vp_status renew_by_svd(vp_optimizer_step *o, const vp_trained *t, vp_ledger_block *state,
                              vp_err *err)
{
    bool            is_narrow = t->element_bytes < F32_BYTES;
    int64_t         bytes     = t->element_bytes * vp_optimizer_projection_elements(o, t);
    vp_ledger_block copy = {0}, sides[2] = {{0}}, made = {0};
    vp_status       st = VP_OK;

    if (is_narrow)
        VP_TRY(set(o, &copy, F32_BYTES * vp_trained_elements(t), err));
    VP_TRY(decompose(o, t, sides, err));
    if (is_narrow)
        VP_TRY(vp_optimizer_keep(o, bytes, &made, err));
    replace(o, state, bytes, is_narrow ? &made : &sides[projects_columns(o, t)]);
out:
    drop(o, &copy);
    drop(o, &sides[0]);
    drop(o, &sides[1]);
    vp_ledger_free(o->ledger, &made);
    return st;
}

/* apollo_torch 1.0.3, GradientProjector: random numbers in fp32, scaled, in the format of the gradient, of which a copy in fp32 is there meanwhile. */
static vp_status draw_projection(vp_optimizer_step *o, int64_t i, vp_ledger_block *state,
                                 vp_err *err)
{
    const vp_trained *t         = &o->trained[i];
    bool              is_narrow = t->element_bytes < F32_BYTES;
    int64_t           n         = vp_optimizer_projection_elements(o, t);
    vp_ledger_block   copy = {0}, drawn = {0}, made = {0};
    vp_status         st = VP_OK;

    if (is_narrow)
        VP_TRY(set(o, &copy, F32_BYTES * vp_trained_elements(t), err));
    VP_TRY(set(o, &drawn, F32_BYTES * n, err));
    if (is_narrow)
        VP_TRY(set(o, &drawn, F32_BYTES * n, err)); /* scaled */
    VP_TRY(vp_optimizer_keep(o, t->element_bytes * n, &made, err));
    drop(o, &drawn);
    drop(o, &copy);
    replace(o, state, t->element_bytes * n, &made);
out:
    drop(o, &copy);
    drop(o, &drawn);
    vp_ledger_free(o->ledger, &made);
    return st;
}

/* As transformers 4's AdamW has it: the two moments, a denominator, the quotient. */
static vp_status step_moments(vp_optimizer_step *o, int64_t i, int64_t bytes, names *v, vp_err *err)
{
    vp_ledger_block *state = &o->states[i * MAX_STATES];
    vp_status        st    = VP_OK;

    for (int j = 0; j < 2 && !o->has_states; j++)
        VP_TRY(vp_optimizer_keep(o, bytes, &state[j], err));
    VP_TRY(set(o, &v->denominator, bytes, err));
    VP_TRY(set(o, &v->update, bytes, err));
out:
    return st;
}

/* A quotient of norms: one for each row or column that is not projected, or one. */
static vp_status find_factor(vp_optimizer_step *o, const vp_trained *t, names *v, vp_err *err)
{
    int64_t         n    = vp_optimizer_moment_elements(o, t) / o->settings.rank;
    int64_t         each = o->settings.by_tensor ? t->element_bytes : vp_mul(t->element_bytes, n);
    vp_ledger_block of_update = {0}, of_gradient = {0};
    vp_status       st = VP_OK;

    VP_TRY(set(o, &of_update, each, err));
    VP_TRY(set(o, &of_gradient, each, err));
    VP_TRY(set(o, &of_gradient, each, err)); /* with epsilon */
    VP_TRY(set(o, &v->factor, each, err));
out:
    drop(o, &of_update);
    drop(o, &of_gradient);
    return st;
}

/* The norm-growth limiter: in the first step the norm is kept, then it is compared with the one before. */
static vp_status limit_growth(vp_optimizer_step *o, const vp_trained *t, vp_ledger_block *state,
                              names *v, vp_err *err)
{
    int64_t         number = t->element_bytes;
    vp_ledger_block before = {0}, quotient = {0}, kept = {0};
    vp_status       st = VP_OK;

    if (!state->block)
        return vp_optimizer_keep(o, number, state, err);
    VP_TRY(set(o, &v->norm, number, err));
    VP_TRY(set(o, &before, number, err));
    VP_TRY(set(o, &quotient, number, err));
    drop(o, &before);
    VP_TRY(set(o, &v->limiter, number, err));
    drop(o, &quotient);
    VP_TRY(set(o, &v->scaled, t->bytes, err));
    VP_TRY(vp_optimizer_keep(o, number, &kept, err));
    replace(o, state, number, &kept);
out:
    drop(o, &before);
    drop(o, &quotient);
    vp_ledger_free(o->ledger, &kept);
    return st;
}

vp_trained vp_optimizer_projected(const vp_optimizer_step *o, const vp_trained *t)
{
    int64_t n = vp_optimizer_moment_elements(o, t);

    return (vp_trained){.bytes         = vp_mul(F32_BYTES, n),
                        .element_bytes = F32_BYTES,
                        .columns       = projects_columns(o, t) ? rank_of(o, t) : left_side(o, t)};
}

/* As its gradient is projected. */
static vp_trained in_fp32(const vp_trained *t)
{
    return (vp_trained){.bytes         = F32_BYTES * vp_trained_elements(t),
                        .element_bytes = F32_BYTES,
                        .columns       = t->columns};
}

int64_t vp_optimizer_wide_projection_bytes(const vp_optimizer_step *o, const vp_trained *t)
{
    vp_trained wide = in_fp32(t);

    return vp_mul(F32_BYTES, vp_optimizer_projection_elements(o, &wide));
}

vp_status vp_optimizer_project_wide(vp_optimizer_step *o, const vp_trained *t,
                                    vp_ledger_block *projection, vp_ledger_block *gradient,
                                    vp_err *err)
{
    vp_trained wide = in_fp32(t);
    vp_status  st   = VP_OK;

    VP_TRY(renew_by_svd(o, &wide, projection, err));
    VP_TRY(set(o, gradient, vp_optimizer_projected(o, t).bytes, err));
out:
    return st;
}

vp_status vp_optimizer_project_back(vp_optimizer_step *o, int64_t bytes, vp_ledger_block *update,
                                    vp_err *err)
{
    vp_ledger_block full = {0};
    vp_status       st   = VP_OK;

    VP_TRY(set(o, &full, bytes, err));
    VP_TRY(set(o, update, bytes, err));
out:
    drop(o, &full);
    return st;
}

/* AdamW.step() of galore_torch, APOLLOAdamW.step(). */
static vp_status step_projected(vp_optimizer_step *o, int64_t i, names *v, vp_err *err)
{
    enum { PROJECTION = 2, NORM = 3 };
    const vp_trained *t     = &o->trained[i];
    vp_ledger_block  *state = &o->states[i * MAX_STATES];
    int64_t           bytes = vp_mul(t->element_bytes, vp_optimizer_moment_elements(o, t));
    vp_status         st    = VP_OK;

    VP_TRY(o->settings.by_svd ? renew_by_svd(o, t, &state[PROJECTION], err)
                              : draw_projection(o, i, &state[PROJECTION], err));
    VP_TRY(set(o, &v->gradient, bytes, err));
    VP_TRY(step_moments(o, i, bytes, v, err));
    if (o->settings.by_svd)
        return vp_optimizer_project_back(o, t->bytes, &v->update, err);
    VP_TRY(find_factor(o, t, v, err));
    VP_TRY(set(o, &v->scaled, t->bytes, err));
    VP_TRY(limit_growth(o, t, &state[NORM], v, err));
    drop(o, &v->update); /* is what was scaled */
out:
    return st;
}

vp_status vp_optimizer_step_projected(vp_optimizer_step *o, range of, vp_err *err)
{
    names     v  = {0};
    vp_status st = VP_OK;

    for (int64_t i = of.first; i < of.end; i++) {
        drop(o, &v.gradient);
        VP_TRY(o->trained[i].is_matrix ? step_projected(o, i, &v, err)
                                       : step_moments(o, i, o->trained[i].bytes, &v, err));
    }
out:
    drop_names(o, &v);
    return st;
}

/* ---- GaLore in 8 bits ---- */

enum { PROJECTION_8BIT = 5 };

static int64_t low_bytes(const vp_optimizer_step *o, const vp_trained *t)
{
    return vp_mul(t->element_bytes, vp_optimizer_moment_elements(o, t));
}

vp_status vp_optimizer_keep_projected_8bit(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    const vp_trained *t     = &o->trained[i];
    vp_ledger_block  *state = &o->states[i * MAX_STATES];
    vp_trained        low   = *t;
    vp_status         st    = VP_OK;

    if (t->is_matrix)
        low.bytes = low_bytes(o, t);
    VP_TRY(vp_optimizer_keep_8bit(o, &low, state, err));
    if (t->is_matrix && !state[PROJECTION_8BIT].block)
        VP_TRY(vp_optimizer_keep(o,
                                 vp_mul(t->element_bytes, vp_optimizer_projection_elements(o, t)),
                                 &state[PROJECTION_8BIT], err));
out:
    return st;
}

/* What a name in Python means from now on: something that was made. */
static void give(vp_optimizer_step *o, vp_ledger_block *place, vp_ledger_block *made)
{
    drop(o, place);
    *place = *made;
    *made  = (vp_ledger_block){0};
}

/* AdamW8bit.step() of galore_torch: bitsandbytes steps what is left of the gradient, which stays in the gradient's place; a copy of the
 * weight takes the weight's, as something as small as that gradient had it meanwhile. */
static vp_status step_moving(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    const vp_trained *t   = &o->trained[i];
    vp_ledger_block   low = {0}, saved = {0}, small = {0}, update = {0};
    vp_status         st = VP_OK;

    VP_TRY(renew_by_svd(o, t, &o->states[i * MAX_STATES + PROJECTION_8BIT], err));
    VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_GRADIENT, low_bytes(o, t), &low, err));
    VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_PARAMETER, t->bytes, &saved, err));
    VP_TRY(set(o, &small, low_bytes(o, t), err));
    give(o, o->weights[i], &saved);
    give(o, o->gradients[i], &low);
    if (!o->has_states)
        VP_TRY(vp_optimizer_keep_projected_8bit(o, i, err));
    VP_TRY(vp_optimizer_project_back(o, t->bytes, &update, err));
out:
    drop(o, &low);
    drop(o, &saved);
    drop(o, &update);
    drop(o, &small);
    return st;
}

vp_status vp_optimizer_step_moving(vp_optimizer_step *o, range of, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = of.first; i < of.end; i++)
        if (o->trained[i].is_matrix)
            VP_TRY(step_moving(o, i, err));
        else if (!o->has_states)
            VP_TRY(vp_optimizer_keep_projected_8bit(o, i, err));
out:
    return st;
}
