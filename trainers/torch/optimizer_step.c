#include "trainers/torch/optimizer_step.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* How a step works through the parameters (torch/optim/adam.py, sgd.py). */
typedef enum form {
    FORM_IN_PLACE, /* one kernel, or in place: nothing besides the states                  */
    FORM_FOREACH,  /* adam: the denominators of all parameters, sqrt(v), freed at the end  */
    FORM_LOOP      /* adam: sqrt(v), then its quotient; the last quotient lives on
                      while those of the next parameter are made                           */
} form;

/* What a state is made of (bitsandbytes' optimizers from the third on). */
typedef enum state_form {
    STATE_LIKE, /* like the parameter            */
    STATE_WIDE, /* fp32 whatever the parameter is */
    STATE_8BIT  /* a byte, and a scale for 256 of them; fp32 of small parameters */
} state_form;

static const struct {
    const char *name;
    int         n_states;
    bool        device_step; /* a counter of 4 bytes on the card */
    form        form;
    state_form  states;
    bool
        is_paged; /* states of large parameters are in managed memory, which PyTorch does not count */
} table[] = {
    {"adamw_torch", 2, false, FORM_FOREACH, STATE_LIKE, false},
    {"adamw_torch_fused", 2, true, FORM_IN_PLACE, STATE_LIKE, false},
    {"adamw_torch_forloop", 2, false, FORM_LOOP, STATE_LIKE, false},
    {"sgd", 0, false, FORM_IN_PLACE, STATE_LIKE, false},
    {"sgd_momentum", 1, false, FORM_IN_PLACE, STATE_LIKE, false},
    {"rmsprop", 1, false, FORM_FOREACH, STATE_LIKE, false},
    {"adamw_bnb_32bit", 2, false, FORM_IN_PLACE, STATE_WIDE, false},
    {"adamw_8bit", 2, false, FORM_IN_PLACE, STATE_8BIT, false},
    {"adamw_bnb_8bit", 2, false, FORM_IN_PLACE, STATE_8BIT, false},
    {"paged_adamw_32bit", 2, false, FORM_IN_PLACE, STATE_WIDE, true},
    {"paged_adamw_8bit", 2, false, FORM_IN_PLACE, STATE_8BIT, true},
    {"lion_32bit", 1, false, FORM_IN_PLACE, STATE_WIDE, false},
    {"lion_8bit", 1, false, FORM_IN_PLACE, STATE_8BIT, false},
    {"paged_lion_32bit", 1, false, FORM_IN_PLACE, STATE_WIDE, true},
    {"paged_lion_8bit", 1, false, FORM_IN_PLACE, STATE_8BIT, true},
};

/* MAX_STATES: a counter, two states, two lists of scales. bitsandbytes' numbers: optimizer.py. */
enum {
    N_ROWS        = sizeof table / sizeof *table,
    MAX_STATES    = 5,
    MAX_MAPS      = 2,
    MAP_BYTES     = 1024,
    LEAST_8BIT    = 4096,   /* elements; smaller parameters have fp32 states */
    LEAST_PAGED   = 100000, /* elements */
    SCALED_BLOCK  = 256,
    FOREACH_CHUNK = 65536 /* elements (ATen/native/cuda/MultiTensorApply.cuh) */
};

struct vp_optimizer_step {
    vp_ledger       *ledger;
    int64_t         *bytes, n, element_bytes, n_wide;
    vp_ledger_block *states, *made, maps[MAX_MAPS]; /* states: MAX_STATES of each parameter */
    int              row;
    bool             has_states;
};

const char *vp_optimizer_step_name(int i)
{
    return i < N_ROWS ? table[i].name : NULL;
}

vp_status vp_optimizer_step_new(const char *name, const int64_t *bytes, int64_t n,
                                int64_t element_bytes, vp_ledger *ledger, vp_optimizer_step **out,
                                vp_err *err)
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
    *o = (vp_optimizer_step){.ledger = ledger, .n = n, .element_bytes = element_bytes, .row = row};
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

void vp_optimizer_step_widen(vp_optimizer_step *o, int64_t n)
{
    o->n_wide = n;
}

void vp_optimizer_step_free(vp_optimizer_step *o)
{
    if (!o)
        return;
    for (int64_t i = 0; o->states && i < o->n * MAX_STATES; i++)
        vp_ledger_free(o->ledger, &o->states[i]);
    for (int64_t i = 0; o->made && i < o->n; i++)
        vp_ledger_free(o->ledger, &o->made[i]);
    for (int i = 0; i < MAX_MAPS; i++)
        vp_ledger_free(o->ledger, &o->maps[i]);
    free(o->bytes);
    free(o->states);
    free(o->made);
    free(o);
}

/* The states of parameter i of bitsandbytes' 8-bit forms: codes, then scales. */
static vp_status make_small_states(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    int64_t          n    = o->bytes[i] / o->element_bytes;
    bool             is_8 = table[o->row].states == STATE_8BIT && n >= LEAST_8BIT && i >= o->n_wide;
    int64_t          bytes = is_8 ? n : 4 * n;
    vp_ledger_block *state = &o->states[i * MAX_STATES];
    bool             paged = table[o->row].is_paged && n >= LEAST_PAGED;
    vp_status        st    = VP_OK;

    for (int j = 0; j < table[o->row].n_states && !paged; j++)
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_OPTIMIZER, bytes, state++, err));
    for (int j = 0; j < table[o->row].n_states && is_8; j++)
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_OPTIMIZER, 4 * vp_ceil_div(n, SCALED_BLOCK),
                               state++, err));
out:
    return st;
}

static vp_status make_states_like(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    vp_ledger_block *state = &o->states[i * MAX_STATES];
    vp_status        st    = VP_OK;

    if (table[o->row].device_step)
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_OPTIMIZER, 4, state++, err));
    for (int j = 0; j < table[o->row].n_states; j++)
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_OPTIMIZER, o->bytes[i], state++, err));
out:
    return st;
}

static vp_status make_states(vp_optimizer_step *o, vp_err *err)
{
    vp_status st = VP_OK;

    for (int j = 0; table[o->row].states == STATE_8BIT && j < table[o->row].n_states; j++)
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_OPTIMIZER, MAP_BYTES, &o->maps[j], err));
    for (int64_t i = 0; i < o->n; i++)
        VP_TRY(table[o->row].states == STATE_LIKE ? make_states_like(o, i, err)
                                                  : make_small_states(o, i, err));
    o->has_states = true;
out:
    return st;
}

vp_status vp_clip_play(const int64_t *bytes, int64_t n, int64_t element_bytes, vp_ledger *ledger,
                       vp_err *err)
{
    vp_ledger_block *norms = calloc((size_t)n + 1, sizeof *norms), scratch = {0};
    int64_t          most = 0;
    vp_status        st   = VP_OK;

    VP_TRY_ALLOC(err, norms);
    for (int64_t i = 0; i < n; i++)
        if (vp_ceil_div(bytes[i] / element_bytes, FOREACH_CHUNK) > most)
            most = vp_ceil_div(bytes[i] / element_bytes, FOREACH_CHUNK);
    VP_TRY(vp_ledger_alloc(ledger, VP_OWNER_TEMPORARY, 4 * n * most, &scratch, err));
    for (int64_t i = 0; i < n; i++)
        VP_TRY(vp_ledger_alloc(ledger, VP_OWNER_TEMPORARY, element_bytes, &norms[i], err));
    vp_ledger_free(ledger, &scratch);
    VP_TRY(vp_ledger_alloc(ledger, VP_OWNER_TEMPORARY, element_bytes * n, &scratch, err));
out:
    vp_ledger_free(ledger, &scratch);
    for (int64_t i = 0; norms && i < n; i++)
        vp_ledger_free(ledger, &norms[i]);
    free(norms);
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
