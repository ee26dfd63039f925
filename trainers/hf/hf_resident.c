#include "trainers/hf/hf_resident.h"

#include "trainers/hf/hf_find.h"
#include "trainers/hf/hf_step.h"

#include <stdlib.h>
#include <string.h>

typedef struct kind {
    const char *name;
    int         copies; /* of what is trained */
    bool        is_model, keeps_logits, penalises;
    const char *task; /* of the model; NULL: the trained one's */
} kind;

static const kind kinds[] = {
    {"ema", .copies = 1},
    {"mer", .copies = 1},
    {"ewc", .copies = 2, .penalises = true},
    {"reference", .is_model = true},
    {"teacher", .is_model = true, .keeps_logits = true},
    {"reward", .is_model = true, .keeps_logits = true, .task = "seqcls"},
};

struct vp_hf_resident {
    const kind      *kind;
    vp_ledger       *ledger;
    const int64_t   *bytes; /* of what is trained */
    int64_t          n, n_copies;
    vp_ledger_block *copies;      /* n of each */
    vp_ledger_block *differences; /* from the old weights, kept for backward; n */
    vp_ledger_block *gradients;   /* n */
    vp_hf_found      found;
    vp_recorded     *second;
};

static const kind *kind_named(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

bool vp_hf_resident_is(const char *name, bool *is_model)
{
    const kind *k = kind_named(name);

    *is_model = k && k->is_model;
    return k != NULL;
}

static vp_status make_copies(vp_hf_resident *r, vp_err *err)
{
    vp_status st = VP_OK;

    r->copies      = calloc((size_t)(r->n * r->kind->copies + 1), sizeof *r->copies);
    r->differences = calloc((size_t)r->n + 1, sizeof *r->differences);
    r->gradients   = calloc((size_t)r->n + 1, sizeof *r->gradients);
    VP_TRY_ALLOC(err, r->copies);
    VP_TRY_ALLOC(err, r->differences);
    VP_TRY_ALLOC(err, r->gradients);
    for (; r->n_copies < r->n * r->kind->copies; r->n_copies++)
        VP_TRY(vp_ledger_alloc(r->ledger, VP_OWNER_RESIDENT, r->bytes[r->n_copies % r->n],
                               &r->copies[r->n_copies], err));
out:
    return st;
}

/* Its own weights, whole and unquantised, in the format that the trained model computes from. */
static vp_status load_second(vp_hf_resident *r, const vp_model *model, const vp_hf_request *asked,
                             int64_t seq, vp_err *err)
{
    vp_hf_request  q    = *asked;
    vp_hf_estimate e    = {0};
    const char    *name = NULL;
    vp_status      st   = VP_OK;

    q.trainer       = "torch";
    q.recompute     = "none";
    q.lora          = (vp_hf_lora){.targets = "none"};
    q.load          = "none";
    q.freeze        = "none";
    q.frozen_layers = 0;
    q.liger         = "none";
    q.seq           = seq;
    q.task          = r->kind->task ? r->kind->task : q.task;
    VP_TRY(vp_hf_find(asked->second ? asked->second : model, &q, VP_HF_SECOND, &e, &r->found, err));
    VP_TRY(vp_hf_step_new(&r->found, &q, seq, r->ledger, &r->second, err));
    vp_recorded_stays(r->second);
    for (int i = 0; (name = vp_recorded_phase(r->second, i)) && strcmp(name, "inputs") != 0; i++)
        VP_TRY(vp_recorded_play(r->second, name, err));
out:
    return st;
}

vp_status vp_hf_resident_load(const vp_model *model, const vp_hf_request *q,
                              const vp_recorded *step, int64_t seq, vp_ledger *ledger,
                              vp_hf_resident **out, vp_err *err)
{
    vp_hf_resident *r;
    vp_status       st = VP_OK;

    *out = NULL;
    if (!q->resident || strcmp(q->resident, "none") == 0)
        return VP_OK;
    r = *out = calloc(1, sizeof *r);
    VP_TRY_ALLOC(err, r);
    r->ledger = ledger;
    r->kind   = kind_named(q->resident);
    if (!r->kind)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "--resident %s: nothing that stays is called so",
                       q->resident));
    if (r->kind->penalises && q->accumulation > 1)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "--resident %s with --accumulation %lld: how its gradients meet those that "
                       "are accumulated was not recorded",
                       q->resident, (long long)q->accumulation));
    r->bytes = vp_recorded_parameters(step, &r->n);
    VP_TRY(r->kind->is_model ? load_second(r, model, q, seq, err) : make_copies(r, err));
out:
    return st;
}

void vp_hf_resident_free(vp_hf_resident *r)
{
    if (!r)
        return;
    for (int64_t i = 0; i < r->n_copies; i++)
        vp_ledger_free(r->ledger, &r->copies[i]);
    for (int64_t i = 0; r->differences && i < r->n; i++)
        vp_ledger_free(r->ledger, &r->differences[i]);
    vp_hf_resident_drop_gradients(r);
    free(r->copies);
    free(r->differences);
    free(r->gradients);
    vp_recorded_free(r->second);
    vp_hf_found_release(&r->found);
    free(r);
}

/* What a line of Python makes and lets go of in turn: a block stays until the next is there. */
static vp_status in_place_of(vp_hf_resident *r, int64_t bytes, vp_ledger_block *block, vp_err *err)
{
    vp_ledger_block next = {0};
    vp_status       st   = vp_ledger_alloc(r->ledger, VP_OWNER_TEMPORARY, bytes, &next, err);

    vp_ledger_free(r->ledger, block);
    *block = next;
    return st;
}

enum { SCALAR = 4 };

/* (fisher * (weight - old) ** 2).sum(): pow() keeps the difference; its square goes when the product is there, the
 * product when it is summed. */
static vp_status penalise(vp_hf_resident *r, vp_err *err)
{
    vp_ledger_block product = {0}, sum = {0};
    vp_status       st = VP_OK;

    for (int64_t i = 0; i < r->n; i++) {
        VP_TRY(
            vp_ledger_alloc(r->ledger, VP_OWNER_ACTIVATION, r->bytes[i], &r->differences[i], err));
        VP_TRY(in_place_of(r, r->bytes[i], &product, err));
        VP_TRY(in_place_of(r, r->bytes[i], &product, err));
        VP_TRY(in_place_of(r, SCALAR, &sum, err));
        vp_ledger_free(r->ledger, &product);
        VP_TRY(in_place_of(r, SCALAR, &sum, err));
    }
out:
    vp_ledger_free(r->ledger, &product);
    vp_ledger_free(r->ledger, &sum);
    return st;
}

vp_status vp_hf_resident_forward(vp_hf_resident *r, vp_err *err)
{
    vp_status st = VP_OK;

    if (r && r->kind->penalises)
        VP_TRY(penalise(r, err));
    if (r && r->second) {
        VP_TRY(vp_recorded_play(r->second, "evaluate", err));
        if (!r->kind->keeps_logits)
            VP_TRY(vp_recorded_play(r->second, "output", err));
    }
out:
    return st;
}

/* The last weight's first. mul() makes its gradient, pow() three tensors that are there at once (one expression of C++,
 * pow_backward() of torch 2.11), of which the last is the weight's gradient; it waits for the model's own to be added to it. */
vp_status vp_hf_resident_backward(vp_hf_resident *r, vp_err *err)
{
    vp_ledger_block of_product = {0}, power = {0}, twice = {0};
    vp_status       st = VP_OK;

    if (!r || !r->kind->penalises)
        return VP_OK;
    for (int64_t i = r->n - 1; i >= 0; i--) {
        VP_TRY(in_place_of(r, r->bytes[i], &of_product, err));
        VP_TRY(in_place_of(r, r->bytes[i], &power, err));
        VP_TRY(in_place_of(r, r->bytes[i], &twice, err));
        VP_TRY(vp_ledger_alloc(r->ledger, VP_OWNER_GRADIENT, r->bytes[i], &r->gradients[i], err));
        vp_ledger_free(r->ledger, &power);
        vp_ledger_free(r->ledger, &twice);
        vp_ledger_free(r->ledger, &of_product);
        vp_ledger_free(r->ledger, &r->differences[i]);
    }
out:
    vp_ledger_free(r->ledger, &power);
    vp_ledger_free(r->ledger, &twice);
    vp_ledger_free(r->ledger, &of_product);
    return st;
}

vp_status vp_hf_resident_backward_ends(vp_hf_resident *r, vp_err *err)
{
    return r && r->kind->keeps_logits ? vp_recorded_play(r->second, "output", err) : VP_OK;
}

bool vp_hf_resident_has_gradients(const vp_hf_resident *r)
{
    return r && r->kind->penalises;
}

void vp_hf_resident_drop_gradients(vp_hf_resident *r)
{
    for (int64_t i = 0; r && r->gradients && i < r->n; i++)
        vp_ledger_free(r->ledger, &r->gradients[i]);
}
