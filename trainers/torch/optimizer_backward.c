#include "trainers/torch/optimizer_internal.h"

#include <string.h>

/* What an update's names in Python mean while it runs; all goes with its end. */
typedef struct update_names {
    vp_ledger_block gradient, square, sum, update, parameter;
} update_names;

static vp_status make(vp_optimizer_step *o, int64_t elements, vp_ledger_block *out, vp_err *err)
{
    return vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, 4 * elements, out, err);
}

/* lomo_optim 0.1.1: in fp32, of which 16-bit gradients and parameters are copied; AdaLomo's update is made as Adafactor's. */
static vp_status update_lomo(vp_optimizer_step *o, const vp_trained *t, vp_ledger_block *gradient,
                             vp_err *err)
{
    int64_t      n         = vp_trained_elements(t);
    bool         is_narrow = t->element_bytes < 4, adapts = strcmp(o->settings.name, "lomo") != 0;
    update_names v  = {0};
    vp_status    st = VP_OK;

    if (is_narrow) {
        VP_TRY(make(o, n, &v.gradient, err));
        vp_ledger_free(o->ledger, gradient);
    }
    if (adapts) {
        VP_TRY(make(o, n, &v.square, err));
        VP_TRY(make(o, n, &v.sum, err)); /* with epsilon */
        vp_ledger_free(o->ledger, &v.square);
        VP_TRY(make(o, n, &v.update, err));
        vp_ledger_free(o->ledger, &v.sum);
    }
    if (is_narrow)
        VP_TRY(make(o, n, &v.parameter, err));
out:
    vp_ledger_free(o->ledger, gradient);
    vp_ledger_free(o->ledger, &v.gradient);
    vp_ledger_free(o->ledger, &v.square);
    vp_ledger_free(o->ledger, &v.sum);
    vp_ledger_free(o->ledger, &v.update);
    vp_ledger_free(o->ledger, &v.parameter);
    return st;
}

/* Backward goes from the last parameter to the first, so of one size it is the last that was not stepped yet. */
static int64_t parameter_of(vp_optimizer_step *o, int64_t bytes)
{
    for (int64_t i = o->n - 1; i >= 0; i--)
        if (!o->is_stepped[i] && o->trained[i].bytes == bytes)
            return i;
    return -1;
}

void vp_optimizer_backward_begin(vp_optimizer_step *o)
{
    memset(o->is_stepped, 0, (size_t)o->n * sizeof *o->is_stepped);
}

vp_status vp_optimizer_backward_update(vp_optimizer_step *o, int64_t bytes,
                                       vp_ledger_block *gradient, vp_err *err)
{
    int64_t   i  = parameter_of(o, bytes);
    vp_status st = VP_OK;

    if (i < 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "optimizer %s: a gradient of %lld bytes is of no parameter of the recorded "
                       "step",
                       o->settings.name, (long long)bytes);
    o->is_stepped[i] = true;
    if (!o->settings.rank)
        return update_lomo(o, &o->trained[i], gradient, err);
    VP_TRY(vp_optimizer_step_projected(o, (range){i, i + 1}, err));
    vp_ledger_free(o->ledger, gradient);
out:
    return st;
}
