#include "trainers/hf/hf_fused.h"

#include <stdlib.h>
#include <string.h>

/* A gradient that was made: its block is the recorded step's. */
typedef struct gradient {
    vp_ledger_block *block;
    int64_t          bytes;
} gradient;

struct vp_hf_fused {
    vp_optimizer_step *optimizer;
    vp_recorded_watch  watch;
    int64_t           *bytes, n; /* of gradients in the order of backward */
    gradient          *waiting, last;
    int64_t            n_waiting;
    bool               lags; /* LOMO's hook on a gradient updates what had one before */
    bool               ties; /* the head's table is the input's: its gradient is whole at the end */
    gradient           table;
};

static vp_status update(vp_hf_fused *f, gradient *g, vp_err *err)
{
    gradient of = *g;

    *g = (gradient){0};
    return of.block ? vp_optimizer_backward_update(f->optimizer, of.bytes, of.block, err) : VP_OK;
}

/* The gradient is complete: hooks on its parameter run. */
static vp_status hook(vp_hf_fused *f, gradient *g, vp_err *err)
{
    vp_status st = VP_OK;

    if (!f->lags)
        return update(f, g, err);
    VP_TRY(update(f, &f->last, err));
    f->last = *g;
out:
    return st;
}

static vp_status settled(void *user, vp_err *err)
{
    vp_hf_fused *f  = user;
    vp_status    st = VP_OK;

    for (int64_t i = 0; i < f->n_waiting; i++)
        VP_TRY(hook(f, &f->waiting[i], err));
    f->n_waiting = 0;
out:
    return st;
}

static vp_status made(void *user, int64_t i, vp_ledger_block *block, vp_err *err)
{
    vp_hf_fused *f = user;
    gradient     g = {block, f->bytes[i]};

    (void)err;
    if (f->ties && i == 0)
        f->table = g;
    else
        f->waiting[f->n_waiting++] = g;
    return VP_OK;
}

static vp_status no_layer(void *user, const char *phase, int64_t i, vp_err *err)
{
    (void)user, (void)phase, (void)i, (void)err;
    return VP_OK;
}

/* Whether backward begins with the gradient of a table of which there is one alone. */
static bool ties_tables(const vp_hf_fused *f, const vp_recorded *step)
{
    int64_t        n;
    const int64_t *parameters = vp_recorded_parameters(step, &n);
    int64_t        n_such     = 0;

    if (!n || !f->n || !vp_recorded_rows(step, 0) || f->bytes[0] != parameters[0])
        return false;
    for (int64_t i = 0; i < f->n; i++)
        n_such += f->bytes[i] == parameters[0];
    return n_such == 1;
}

vp_status vp_hf_fused_new(vp_recorded *step, vp_optimizer_step *optimizer, const char *name,
                          vp_hf_fused **out, vp_err *err)
{
    vp_hf_fused *f  = NULL;
    vp_status    st = VP_OK;

    *out = NULL;
    if (!vp_optimizer_step_in_backward(name))
        return VP_OK;
    f = calloc(1, sizeof *f);
    VP_TRY_ALLOC(err, f);
    f->optimizer = optimizer;
    f->lags      = strstr(name, "lomo") != NULL;
    VP_TRY(vp_recorded_gradients(step, &f->bytes, &f->n, err));
    f->waiting = calloc((size_t)f->n + 1, sizeof *f->waiting);
    VP_TRY_ALLOC(err, f->waiting);
    f->ties = ties_tables(f, step);
    f->watch =
        (vp_recorded_watch){.user = f, .layer = no_layer, .gradient = made, .settled = settled};
    vp_recorded_watched(step, &f->watch);
    *out = f;
    f    = NULL;
out:
    vp_hf_fused_free(f);
    return st;
}

void vp_hf_fused_free(vp_hf_fused *f)
{
    if (!f)
        return;
    free(f->bytes);
    free(f->waiting);
    free(f);
}

void vp_hf_fused_begin(vp_hf_fused *f)
{
    if (f)
        vp_optimizer_backward_begin(f->optimizer);
}

vp_status vp_hf_fused_end(vp_hf_fused *f, vp_err *err)
{
    vp_status st = VP_OK;

    if (!f)
        return VP_OK;
    VP_TRY(settled(f, err));
    VP_TRY(hook(f, &f->table, err));
    VP_TRY(update(f, &f->last, err));
out:
    return st;
}
