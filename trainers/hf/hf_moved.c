#include "trainers/hf/hf_moved.h"

#include <stdlib.h>

struct vp_hf_moved {
    vp_recorded_watch watch;
    vp_ledger_block **weights, **gradients; /* of each parameter */
    int64_t          *parameter;            /* of each gradient, in the order of backward */
};

static vp_status made(void *user, int64_t i, vp_ledger_block *block, vp_err *err)
{
    vp_hf_moved *m = user;

    (void)err;
    m->gradients[m->parameter[i]] = block;
    return VP_OK;
}

static vp_status no_layer(void *user, const char *phase, int64_t i, vp_err *err)
{
    (void)user, (void)phase, (void)i, (void)err;
    return VP_OK;
}

static vp_status nothing_of(int64_t bytes, vp_err *err)
{
    return VP_FAIL(err, VP_ERR_INPUT, "a tensor of %lld bytes is of no parameter of this step",
                   (long long)bytes);
}

static vp_status find_weights(vp_hf_moved *m, vp_recorded *step, const vp_trained *list, int64_t n,
                              vp_err *err)
{
    vp_recorded_weight *weights   = NULL;
    int64_t             n_weights = 0;
    vp_status           st        = VP_OK;

    VP_TRY(vp_recorded_weights(step, VP_WEIGHTS_TRAINED, &weights, &n_weights, err));
    for (int64_t k = 0; k < n_weights; k++) {
        int64_t i = 0;
        while (i < n && (m->weights[i] || list[i].bytes != weights[k].bytes))
            i++;
        if (i == n)
            VP_TRY(nothing_of(weights[k].bytes, err));
        m->weights[i] = vp_recorded_weight_block(step, &weights[k]);
    }
out:
    free(weights);
    return st;
}

static vp_status find_gradients(vp_hf_moved *m, const vp_recorded *step, const vp_trained *list,
                                int64_t n, vp_err *err)
{
    int64_t  *bytes = NULL, n_gradients = 0;
    bool     *is_found = calloc((size_t)n + 1, sizeof *is_found);
    vp_status st       = VP_OK;

    VP_TRY_ALLOC(err, is_found);
    VP_TRY(vp_recorded_gradients(step, &bytes, &n_gradients, err));
    m->parameter = calloc((size_t)n_gradients + 1, sizeof *m->parameter);
    VP_TRY_ALLOC(err, m->parameter);
    for (int64_t k = 0; k < n_gradients; k++) {
        int64_t i = n - 1;
        while (i >= 0 && (is_found[i] || list[i].bytes != bytes[k]))
            i--;
        if (i < 0)
            VP_TRY(nothing_of(bytes[k], err));
        is_found[i]     = true;
        m->parameter[k] = i;
    }
out:
    free(bytes);
    free(is_found);
    return st;
}

vp_status vp_hf_moved_new(vp_recorded *step, vp_optimizer_step *optimizer, const char *name,
                          const vp_trained *list, int64_t n, vp_hf_moved **out, vp_err *err)
{
    vp_hf_moved *m  = NULL;
    vp_status    st = VP_OK;

    *out = NULL;
    if (!vp_optimizer_step_moves(name))
        return VP_OK;
    m = calloc(1, sizeof *m);
    VP_TRY_ALLOC(err, m);
    m->weights   = calloc((size_t)n + 1, sizeof(vp_ledger_block *));
    m->gradients = calloc((size_t)n + 1, sizeof(vp_ledger_block *));
    VP_TRY_ALLOC(err, m->weights && m->gradients);
    VP_TRY(find_weights(m, step, list, n, err));
    VP_TRY(find_gradients(m, step, list, n, err));
    m->watch = (vp_recorded_watch){.user = m, .layer = no_layer, .gradient = made};
    vp_recorded_watched(step, &m->watch);
    vp_optimizer_step_at(optimizer, m->weights, m->gradients);
    *out = m;
    m    = NULL;
out:
    vp_hf_moved_free(m);
    return st;
}

void vp_hf_moved_free(vp_hf_moved *m)
{
    if (!m)
        return;
    free(m->weights);
    free(m->gradients);
    free(m->parameter);
    free(m);
}
