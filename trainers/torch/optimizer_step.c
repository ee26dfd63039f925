#include "trainers/torch/optimizer_step.h"

#include <stdlib.h>
#include <string.h>

/* How a step works through the parameters (torch/optim/adam.py, sgd.py). */
typedef enum form {
    FORM_IN_PLACE, /* one kernel, or in place: nothing besides the states                  */
    FORM_FOREACH,  /* adam: the denominators of all parameters, sqrt(v), freed at the end  */
    FORM_LOOP      /* adam: sqrt(v), then its quotient; the last quotient lives on
                      while those of the next parameter are made                           */
} form;

static const struct {
    const char *name;
    int         n_states;    /* tensors like the parameter     */
    bool        device_step; /* a counter of 4 bytes on the card */
    form        form;
} table[] = {
    {"adamw_torch", 2, false, FORM_FOREACH},      {"adamw_torch_fused", 2, true, FORM_IN_PLACE},
    {"adamw_torch_forloop", 2, false, FORM_LOOP}, {"sgd", 0, false, FORM_IN_PLACE},
    {"sgd_momentum", 1, false, FORM_IN_PLACE},
};

enum { N_ROWS = sizeof table / sizeof *table, MAX_STATES = 3 };

struct vp_optimizer_step {
    vp_ledger       *ledger;
    int64_t         *bytes, n;
    vp_ledger_block *states, *made; /* states: MAX_STATES of each parameter */
    int              row;
    bool             has_states;
};

const char *vp_optimizer_step_name(int i)
{
    return i < N_ROWS ? table[i].name : NULL;
}

vp_status vp_optimizer_step_new(const char *name, const int64_t *bytes, int64_t n,
                                vp_ledger *ledger, vp_optimizer_step **out, vp_err *err)
{
    vp_optimizer_step *o   = calloc(1, sizeof *o);
    int                row = 0;
    vp_status          st  = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, o);
    while (row < N_ROWS && strcmp(table[row].name, name) != 0)
        row++;
    if (row == N_ROWS)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "optimizer \"%s\": its step's allocations are not known",
                       name));
    *o        = (vp_optimizer_step){.ledger = ledger, .n = n, .row = row};
    o->bytes  = malloc((size_t)(n + 1) * sizeof *o->bytes);
    o->states = calloc((size_t)n * MAX_STATES + 1, sizeof *o->states);
    o->made   = calloc((size_t)n + 1, sizeof *o->made);
    VP_TRY_ALLOC(err, o->bytes && o->states && o->made);
    memcpy(o->bytes, bytes, (size_t)n * sizeof *bytes);
    *out = o;
    o    = NULL;
out:
    vp_optimizer_step_free(o);
    return st;
}

void vp_optimizer_step_free(vp_optimizer_step *o)
{
    if (!o)
        return;
    for (int64_t i = 0; o->states && i < o->n * MAX_STATES; i++)
        vp_ledger_free(o->ledger, &o->states[i]);
    for (int64_t i = 0; o->made && i < o->n; i++)
        vp_ledger_free(o->ledger, &o->made[i]);
    free(o->bytes);
    free(o->states);
    free(o->made);
    free(o);
}

static vp_status make_states(vp_optimizer_step *o, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < o->n; i++) {
        vp_ledger_block *state = &o->states[i * MAX_STATES];
        if (table[o->row].device_step)
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_OPTIMIZER, 4, state++, err));
        for (int j = 0; j < table[o->row].n_states; j++)
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_OPTIMIZER, o->bytes[i], state++, err));
    }
    o->has_states = true;
out:
    return st;
}

vp_status vp_optimizer_step_play(vp_optimizer_step *o, vp_err *err)
{
    vp_ledger_block root = {0}, *made = o->made;
    vp_status       st = VP_OK;

    if (!o->has_states)
        VP_TRY(make_states(o, err));
    for (int64_t i = 0; i < o->n && table[o->row].form != FORM_IN_PLACE; i++)
        if (table[o->row].form == FORM_FOREACH) {
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, o->bytes[i], &made[i], err));
        } else {
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, o->bytes[i], &root, err));
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, o->bytes[i], &made[i], err));
            vp_ledger_free(o->ledger, &root);
            if (i > 0)
                vp_ledger_free(o->ledger, &made[i - 1]);
        }
out:
    vp_ledger_free(o->ledger, &root);
    for (int64_t i = 0; i < o->n; i++)
        vp_ledger_free(o->ledger, &made[i]);
    return st;
}
