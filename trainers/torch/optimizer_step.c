#include "trainers/torch/optimizer_internal.h"

#include "base/checked.h"
#include "base/options.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a step works through the parameters (torch/optim/adam.py, sgd.py). */
typedef enum form {
    FORM_IN_PLACE,  /* one kernel, or in place: nothing besides the states                  */
    FORM_FOREACH,   /* adam: the denominators of all parameters, sqrt(v), freed at the end  */
    FORM_KEEPING,   /* schedulefree: those of one group live on while the next is stepped    */
    FORM_TWICE,     /* adagrad: these, then as many quotients                                */
    FORM_LOOP,      /* adam: sqrt(v), then its quotient; the last quotient lives on
                      while those of the next parameter are made                           */
    FORM_FACTORED,  /* transformers' Adafactor: step_factored()                             */
    FORM_COMPILED,  /* torchao's: step_compiled()                                            */
    FORM_MUON,      /* PyTorch's, and its AdamW of what is no matrix                         */
    FORM_GROK,      /* step_grok()                                                           */
    FORM_FUSED,     /* within backward: optimizer_backward.c                                 */
    FORM_PROJECTED, /* vp_optimizer_step_projected()                                            */
    FORM_MOVING     /* vp_optimizer_step_moving()                                               */
} form;

/* What a state is made of; WIDE to MIXED_8BIT: bitsandbytes' optimizers. */
typedef enum state_form {
    STATE_LIKE,           /* like the parameter            */
    STATE_WIDE,           /* fp32 whatever the parameter is */
    STATE_8BIT,           /* a byte, and a scale for 256 of them; fp32 of small parameters */
    STATE_MIXED,          /* AdEMAMix, fp32: two of the three are one tensor                */
    STATE_MIXED_8BIT,     /* the same in 8 bits, scales first                               */
    STATE_FACTORED,       /* fp32 of rows and of columns; of vectors of each element; a norm */
    STATE_FACTORED_EARLY, /* fp32 of rows and of columns, made with the optimizer        */
    STATE_EARLY,          /* like the parameter, made with the optimizer                     */
    STATE_CODED,          /* torchao: of each a byte, a scale for 256 of them, its map of codes */
    STATE_CODED_4BIT,     /* the same with half a byte                                       */
    STATE_STABLE,         /* StableAdamW by Triton: like the parameter; epsilon, what rounding
                         lost of 16-bit ones, a sum of squares                           */
    STATE_FACTORED_LOW,   /* as FACTORED, of a projected matrix, and its projection           */
    STATE_MUON,           /* of a matrix one like it, of others two                          */
    STATE_PROJECTED_8BIT, /* as PROJECTED, in 8 bits                                         */
    STATE_PROJECTED       /* of a matrix two of low rank, its projection, a norm; of others two */
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
    {"adagrad", 1, false, FORM_TWICE, STATE_EARLY, false},
    {"adafactor", 1, false, FORM_FACTORED, STATE_FACTORED, false},
    {"adamw_bnb_32bit", 2, false, FORM_IN_PLACE, STATE_WIDE, false},
    {"adamw_8bit", 2, false, FORM_IN_PLACE, STATE_8BIT, false},
    {"adamw_bnb_8bit", 2, false, FORM_IN_PLACE, STATE_8BIT, false},
    {"paged_adamw_32bit", 2, false, FORM_IN_PLACE, STATE_WIDE, true},
    {"paged_adamw_8bit", 2, false, FORM_IN_PLACE, STATE_8BIT, true},
    {"lion_32bit", 1, false, FORM_IN_PLACE, STATE_WIDE, false},
    {"lion_8bit", 1, false, FORM_IN_PLACE, STATE_8BIT, false},
    {"paged_lion_32bit", 1, false, FORM_IN_PLACE, STATE_WIDE, true},
    {"paged_lion_8bit", 1, false, FORM_IN_PLACE, STATE_8BIT, true},
    {"ademamix", 3, false, FORM_IN_PLACE, STATE_MIXED, false},
    {"ademamix_8bit", 3, false, FORM_IN_PLACE, STATE_MIXED_8BIT, false},
    {"paged_ademamix_32bit", 3, false, FORM_IN_PLACE, STATE_MIXED, true},
    {"paged_ademamix_8bit", 3, false, FORM_IN_PLACE, STATE_MIXED_8BIT, true},
    {"rmsprop_bnb", 1, false, FORM_IN_PLACE, STATE_WIDE, false},
    {"rmsprop_bnb_32bit", 1, false, FORM_IN_PLACE, STATE_WIDE, false},
    {"rmsprop_bnb_8bit", 1, false, FORM_IN_PLACE, STATE_8BIT, false},
    {"schedule_free_adamw", 2, false, FORM_KEEPING, STATE_LIKE, false},
    {"schedule_free_radam", 2, false, FORM_KEEPING, STATE_LIKE, false},
    {"schedule_free_sgd", 1, false, FORM_IN_PLACE, STATE_LIKE, false},
    {"stable_adamw", 2, false, FORM_IN_PLACE, STATE_STABLE, false},
    {"adamw_torch_8bit", 2, false, FORM_COMPILED, STATE_CODED, false},
    {"adamw_torch_4bit", 2, false, FORM_COMPILED, STATE_CODED_4BIT, false},
    {"muon", 2, false, FORM_MUON, STATE_MUON, false},
    {"galore_adamw", 2, false, FORM_PROJECTED, STATE_PROJECTED, false},
    {"galore_adamw_8bit", 2, false, FORM_MOVING, STATE_PROJECTED_8BIT, false},
    {"galore_adafactor", 1, false, FORM_FACTORED, STATE_FACTORED_LOW, false},
    {"galore_adamw_layerwise", 2, false, FORM_FUSED, STATE_PROJECTED, false},
    {"apollo_adamw", 2, false, FORM_PROJECTED, STATE_PROJECTED, false},
    {"apollo_adamw_layerwise", 2, false, FORM_FUSED, STATE_PROJECTED, false},
    {"grokadamw", 0, false, FORM_GROK, STATE_LIKE, false}, /* states are in host memory */
    {"lomo", 0, false, FORM_FUSED, STATE_LIKE, false},
    {"adalomo", 1, false, FORM_FUSED, STATE_FACTORED_EARLY, false},
};

/* Others of transformers' names, and why they are not among these. */
static const struct {
    const char *name, *why;
} refused[] = {
    {"adamw_torch_xla", "it is for TPUs"},
    {"adamw_torch_npu_fused", "it is for Ascend's processors"},
    {"adamw_anyprecision", "it takes torchdistx, an extension of old releases of PyTorch"},
    {"adamw_apex_fused", "transformers 5 has it no more; adamw_torch_fused is PyTorch's own"},
    {"adamw_hf", "transformers 5 has it no more; adamw_torch is PyTorch's own"},
    {"adamw-bf16", "PyTorch's AdamW keeps states in the weights' format: --precision bf16"},
    {"galore_adamw_8bit_layerwise",
     "its loop in backward was not ruled; galore_adamw_layerwise's was"},
    {"galore_adafactor_layerwise",
     "its loop in backward was not ruled; galore_adamw_layerwise's was"},
};

/* bitsandbytes' numbers: optimizer.py. */
enum {
    N_ROWS         = sizeof table / sizeof *table,
    N_STABLE       = 5,
    PROJECTION     = 3, /* of a parameter's states the one behind rows, columns and a norm */
    GROK_STATES    = 3,
    MAP_BYTES      = 1024,
    MAP_4BIT_BYTES = 64,
    LEAST_8BIT     = 4096,   /* elements; smaller parameters have fp32 states */
    LEAST_PAGED    = 100000, /* elements */
    SCALED_BLOCK   = 256,
    FOREACH_CHUNK  = 65536 /* elements (ATen/native/cuda/MultiTensorApply.cuh) */
};

const char *vp_optimizer_step_name(int i)
{
    return i < N_ROWS ? table[i].name : NULL;
}

/* N_ROWS: of none. */
static int row_of(const char *name)
{
    size_t n = vp_optimizer_name_length(name);
    int    i = 0;

    while (i < N_ROWS && (strncmp(table[i].name, name, n) != 0 || table[i].name[n]))
        i++;
    return i;
}

int vp_optimizer_step_states(const char *name)
{
    int row = row_of(name);

    return row < N_ROWS ? table[row].n_states : 0;
}

bool vp_optimizer_step_in_backward(const char *name)
{
    int row = row_of(name);

    return row < N_ROWS && table[row].form == FORM_FUSED;
}

bool vp_optimizer_step_moves(const char *name)
{
    int row = row_of(name);

    return row < N_ROWS && table[row].form == FORM_MOVING;
}

void vp_optimizer_step_at(vp_optimizer_step *o, vp_ledger_block *const *weights,
                          vp_ledger_block *const *gradients)
{
    o->weights   = weights;
    o->gradients = gradients;
}

bool vp_optimizer_step_asks_matrices(const char *name)
{
    int row = row_of(name);

    return row < N_ROWS &&
           (table[row].states == STATE_MUON || table[row].states == STATE_PROJECTED ||
            table[row].states == STATE_FACTORED_LOW || table[row].states == STATE_PROJECTED_8BIT);
}

static vp_status refuse(const char *name, vp_err *err)
{
    const char *names[N_ROWS];
    char        known[800] = "", shown[80], plain[80];
    size_t      n          = 0;
    int         near;

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        size_t length = strlen(refused[i].name);
        if (strncmp(name, refused[i].name, length) == 0 &&
            (vp_optimizer_name_length(name) == length || refused[i].name[length - 1] == '_'))
            return VP_FAIL(err, VP_ERR_INPUT, "optimizer \"%s\" is not covered: %s",
                           vp_text_escape(name, shown, sizeof shown), refused[i].why);
    }
    snprintf(plain, sizeof plain, "%s", name);
    for (char *at = plain; (at = strchr(at, '-')); at++)
        *at = '_'; /* as transformers writes them */
    for (int i = 0; i < N_ROWS; i++)
        names[i] = table[i].name;
    near = vp_word_nearest(plain, names, N_ROWS);
    if (near >= 0)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "optimizer \"%s\": its step's allocations are not known; did you mean %s?",
                       vp_text_escape(name, shown, sizeof shown), names[near]);
    for (int i = 0; i < N_ROWS && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", table[i].name);
    return VP_FAIL(err, VP_ERR_INPUT,
                   "optimizer \"%s\": its step's allocations are not known; those of %s are",
                   vp_text_escape(name, shown, sizeof shown), known);
}

vp_status vp_optimizer_step_check(const char *name, vp_err *err)
{
    vp_optimizer_settings settings;

    return row_of(name) == N_ROWS ? refuse(name, err)
                                  : vp_optimizer_settings_parse(name, &settings, err);
}

vp_status vp_optimizer_step_new(const char *name, const vp_trained *trained, int64_t n,
                                vp_ledger *ledger, vp_optimizer_step **out, vp_err *err)
{
    vp_optimizer_step *o   = calloc(1, sizeof *o);
    int                row = row_of(name);
    vp_status          st  = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, o);
    if (row == N_ROWS)
        VP_TRY(refuse(name, err));
    *o = (vp_optimizer_step){.ledger = ledger, .n = n, .n_first = n, .row = row};
    VP_TRY(vp_optimizer_settings_parse(name, &o->settings, err));
    o->trained    = malloc((size_t)(n + 1) * sizeof *o->trained);
    o->states     = calloc((size_t)n * MAX_STATES + 1, sizeof *o->states);
    o->made       = calloc(2 * (size_t)n + 1, sizeof *o->made);
    o->is_stepped = calloc((size_t)n + 1, sizeof *o->is_stepped);
    VP_TRY_ALLOC(err, o->trained && o->states && o->made && o->is_stepped);
    memcpy(o->trained, trained, (size_t)n * sizeof *trained);
    *out = o;
    o    = NULL;
out:
    vp_optimizer_step_free(o);
    return st;
}

void vp_optimizer_step_on(vp_optimizer_step *o, const vp_symbol_card *card)
{
    o->card = *card;
}

void vp_optimizer_step_widen_tables(vp_optimizer_step *o)
{
    o->widens_tables = true;
}

void vp_optimizer_step_group(vp_optimizer_step *o, int64_t n_first)
{
    o->n_first = n_first;
}

void vp_optimizer_step_one_by_one(vp_optimizer_step *o)
{
    o->one_by_one = true;
}

/* Scales, maps and what is rounded up are left out, as are states that are made with the optimizer or are no card's. */
int64_t vp_optimizer_step_least_bytes(const vp_optimizer_step *o)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < o->n; i++) {
        const vp_trained *t        = &o->trained[i];
        int64_t           elements = vp_trained_elements(t), each = 0, n = table[o->row].n_states;
        switch (table[o->row].states) {
        case STATE_MUON:
            n    = t->is_matrix ? 1 : 2;
            each = t->bytes;
            break;
        case STATE_PROJECTED:
            each = t->is_matrix ? vp_mul(t->element_bytes, vp_optimizer_moment_elements(o, t))
                                : t->bytes;
            break;
        case STATE_PROJECTED_8BIT:
            each = t->is_matrix ? vp_optimizer_moment_elements(o, t) : elements;
            break;
        case STATE_LIKE:
        case STATE_STABLE:
            each = t->bytes;
            break;
        case STATE_WIDE:
        case STATE_MIXED:
            each = vp_mul(4, elements);
            break;
        case STATE_8BIT:
        case STATE_MIXED_8BIT:
        case STATE_CODED:
            each = elements;
            break;
        case STATE_CODED_4BIT:
            each = elements / 2;
            break;
        case STATE_FACTORED:
        case STATE_FACTORED_EARLY:
        case STATE_FACTORED_LOW:
        case STATE_EARLY:
            break;
        }
        sum = vp_add(sum, vp_mul(table[o->row].is_paged ? 0 : n, each));
    }
    return sum;
}

void vp_optimizer_step_free(vp_optimizer_step *o)
{
    if (!o)
        return;
    bool is_there = o->ledger && o->ledger->allocator;

    for (int64_t i = 0; is_there && o->states && i < o->n * MAX_STATES; i++)
        vp_ledger_free(o->ledger, &o->states[i]);
    for (int64_t i = 0; is_there && o->made && i < 2 * o->n; i++)
        vp_ledger_free(o->ledger, &o->made[i]);
    for (int i = 0; is_there && i < MAX_MAPS; i++)
        vp_ledger_free(o->ledger, &o->maps[i]);
    free(o->trained);
    free(o->states);
    free(o->made);
    free(o->is_stepped);
    free(o);
}

bool vp_optimizer_step_is_small(const vp_trained *t)
{
    return vp_trained_elements(t) < LEAST_8BIT;
}

static bool is_8bit(const vp_optimizer_step *o)
{
    return table[o->row].states == STATE_8BIT || table[o->row].states == STATE_MIXED_8BIT ||
           table[o->row].states == STATE_PROJECTED_8BIT;
}

static bool is_mixed(const vp_optimizer_step *o)
{
    return table[o->row].states == STATE_MIXED || table[o->row].states == STATE_MIXED_8BIT;
}

/* Tensors that hold the states of a parameter. */
static int n_tensors(const vp_optimizer_step *o)
{
    return is_mixed(o) ? 2 : table[o->row].n_states;
}

/* The states of parameter i of bitsandbytes' forms: codes, then scales; AdEMAMix makes the scales first. */
static vp_status make_small_states(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    const vp_trained *t = &o->trained[i];
    int64_t           n = vp_trained_elements(t);
    bool is_8 = is_8bit(o) && !vp_optimizer_step_is_small(t) && !(o->widens_tables && t->is_table);
    vp_ledger_block *state = &o->states[i * MAX_STATES];
    bool             paged = table[o->row].is_paged && n >= LEAST_PAGED;
    vp_status        st    = VP_OK;

    for (int part = 0; part < 2; part++) {
        bool    scales = is_mixed(o) == (part == 0);
        int64_t bytes  = scales ? 4 * vp_ceil_div(n, SCALED_BLOCK) : is_8 ? n : 4 * n;
        for (int j = 0; j < n_tensors(o) && (!scales || is_8); j++) {
            int64_t all = (is_mixed(o) && j == 0 ? 2 : 1) * bytes;
            if (!scales && paged)
                o->state_bytes = vp_add(o->state_bytes, all);
            else
                VP_TRY(vp_optimizer_keep(o, all, state++, err));
        }
    }
out:
    return st;
}

/* The number is there because galore_torch 1.0 hands bitsandbytes its arguments by place, one off: percentile_clipping falls on
 * max_unorm, and block_wise on skip_zeros. */
vp_status vp_optimizer_keep_8bit(vp_optimizer_step *o, const vp_trained *t, vp_ledger_block *state,
                                 vp_err *err)
{
    int64_t   n       = vp_trained_elements(t);
    bool      is_8    = !vp_optimizer_step_is_small(t);
    int64_t   parts[] = {is_8 ? n : 4 * n, is_8 ? 4 * vp_ceil_div(n, SCALED_BLOCK) : 0};
    vp_status st      = VP_OK;

    for (int j = 0; j < 4; j++)
        VP_TRY(vp_optimizer_keep(o, parts[j / 2], state++, err));
    VP_TRY(vp_optimizer_keep(o, 4, state, err));
out:
    return st;
}

/* torchao 0.18: those of small parameters, and of what no whole blocks make, are like the parameter. */
static bool is_coded(const vp_trained *t)
{
    return !vp_optimizer_step_is_small(t) && vp_trained_elements(t) % SCALED_BLOCK == 0;
}

static bool is_4bit(const vp_optimizer_step *o)
{
    return table[o->row].states == STATE_CODED_4BIT;
}

static vp_status make_coded_states(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    int64_t          n       = vp_trained_elements(&o->trained[i]);
    int64_t          bytes[] = {is_4bit(o) ? n / 2 : n, 4 * (n / SCALED_BLOCK),
                       is_4bit(o) ? MAP_4BIT_BYTES : MAP_BYTES};
    vp_ledger_block *state   = &o->states[i * MAX_STATES];
    vp_status        st      = VP_OK;

    for (int j = 0; j < 2 * 3; j++)
        VP_TRY(vp_optimizer_keep(o, bytes[j % 3], state++, err));
out:
    return st;
}

/* Like the parameter, its square of epsilon, the rest of what was rounded where it has 16 bits, and a sum. */
static vp_status make_stable_states(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    const vp_trained *t = &o->trained[i];
    int64_t   bytes[] = {t->bytes, t->bytes, t->element_bytes, t->element_bytes < 4 ? t->bytes : 1,
                         4};
    vp_status st      = VP_OK;

    for (int j = 0; j < N_STABLE; j++)
        VP_TRY(vp_optimizer_keep(o, bytes[j], &o->states[i * MAX_STATES + j], err));
out:
    return st;
}

static vp_status make_states_like(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    vp_ledger_block *state = &o->states[i * MAX_STATES];
    vp_status        st    = VP_OK;

    if (table[o->row].device_step)
        VP_TRY(vp_optimizer_keep(o, 4, state++, err));
    for (int j = 0; j < table[o->row].n_states; j++)
        VP_TRY(vp_optimizer_keep(o, o->trained[i].bytes, state++, err));
out:
    return st;
}

/* As a checkpoint brings them: two moments, the projection, a norm. */
static vp_status make_projected_states(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    const vp_trained *t       = &o->trained[i];
    int64_t           moment  = vp_optimizer_moment_elements(o, t);
    int64_t           parts[] = {moment, moment, vp_optimizer_projection_elements(o, t), 1};
    int               n       = o->settings.by_svd ? 3 : 4; /* APOLLO's norm */
    vp_status         st      = VP_OK;

    for (int j = 0; j < n; j++)
        VP_TRY(vp_optimizer_keep(o, vp_mul(t->element_bytes, parts[j]),
                                 &o->states[i * MAX_STATES + j], err));
out:
    return st;
}

/* Of Adafactor: it has rows, of so many elements; 0: it is none. */
static int64_t factored_width(const vp_trained *t)
{
    int64_t n = vp_trained_elements(t);

    return t->columns && n > t->columns && n % t->columns == 0 ? t->columns : 0;
}

static bool is_low(const vp_optimizer_step *o, int64_t i)
{
    return table[o->row].states == STATE_FACTORED_LOW && o->trained[i].is_matrix;
}

/* What is factored: the parameter, or what a projection leaves of its gradient. */
static vp_trained factored(const vp_optimizer_step *o, int64_t i)
{
    return is_low(o, i) ? vp_optimizer_projected(o, &o->trained[i]) : o->trained[i];
}

/* A matrix is one that its columns divide: rows and columns, then Adafactor's norm of the parameter; of a checkpoint a projection
 * too. */
static vp_status make_factors(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    vp_ledger_block *state = &o->states[i * MAX_STATES], *projection = &state[PROJECTION];
    vp_trained       t = factored(o, i);
    int64_t          n = vp_trained_elements(&t), width = factored_width(&t);
    vp_status        st = VP_OK;

    VP_TRY(vp_optimizer_keep(o, 4 * (width ? n / width : n), state++, err));
    if (width)
        VP_TRY(vp_optimizer_keep(o, 4 * width, state++, err));
    if (table[o->row].states != STATE_FACTORED_EARLY)
        VP_TRY(vp_optimizer_keep(o, 4, state, err));
    if (is_low(o, i) && !projection->block)
        VP_TRY(vp_optimizer_keep(o, vp_optimizer_wide_projection_bytes(o, &o->trained[i]),
                                 projection, err));
out:
    return st;
}

static vp_status make_states_of(vp_optimizer_step *o, int64_t i, vp_err *err)
{
    switch (table[o->row].states) {
    case STATE_LIKE:
    case STATE_EARLY:
        return make_states_like(o, i, err);
    case STATE_FACTORED:
    case STATE_FACTORED_EARLY:
    case STATE_FACTORED_LOW:
        return make_factors(o, i, err);
    case STATE_CODED:
    case STATE_CODED_4BIT:
        return is_coded(&o->trained[i]) ? make_coded_states(o, i, err)
                                        : make_states_like(o, i, err);
    case STATE_STABLE:
        return make_stable_states(o, i, err);
    case STATE_MUON:
        return o->trained[i].is_matrix
                   ? vp_optimizer_keep(o, o->trained[i].bytes, &o->states[i * MAX_STATES], err)
                   : make_states_like(o, i, err);
    case STATE_PROJECTED_8BIT:
        return vp_optimizer_keep_projected_8bit(o, i, err);
    case STATE_PROJECTED:
        return o->trained[i].is_matrix ? make_projected_states(o, i, err)
                                       : make_states_like(o, i, err);
    default:
        return make_small_states(o, i, err);
    }
}

static vp_status make_maps(vp_optimizer_step *o, range of, vp_err *err)
{
    vp_status st = VP_OK;

    for (int j = 0; is_8bit(o) && of.first == 0 && j < n_tensors(o); j++)
        VP_TRY(vp_optimizer_keep(o, MAP_BYTES, &o->maps[j], err));
out:
    return st;
}

static vp_status make_states(vp_optimizer_step *o, range of, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(make_maps(o, of, err));
    for (int64_t i = of.first; i < of.end; i++)
        VP_TRY(make_states_of(o, i, err));
out:
    return st;
}

/* torch.optim.Optimizer.load_state_dict(): of one parameter after the other each state is copied to the card. */
vp_status vp_optimizer_step_resume(vp_optimizer_step *o, vp_err *err)
{
    vp_status st = VP_OK;

    if (!o->has_states)
        VP_TRY(make_states(o, (range){0, o->n}, err));
    o->has_states = true;
out:
    return st;
}

static int64_t trained_bytes(const vp_optimizer_step *o)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < o->n; i++)
        sum = vp_add(sum, o->trained[i].bytes);
    return sum;
}

int64_t vp_optimizer_step_host_bytes(const vp_optimizer_step *o)
{
    return table[o->row].form == FORM_GROK ? vp_mul(GROK_STATES, trained_bytes(o)) : 0;
}

/* GrokAdamW keeps its states in its groups, by parameter: these are written beside them, and PyTorch copies groups that it has
 * read. */
int64_t vp_optimizer_step_resume_bytes(const vp_optimizer_step *o)
{
    if (table[o->row].form == FORM_GROK)
        return vp_mul(2, vp_add(trained_bytes(o), vp_optimizer_step_host_bytes(o)));
    switch (table[o->row].states) {
    case STATE_WIDE:
    case STATE_8BIT:
    case STATE_MIXED:
    case STATE_MIXED_8BIT:
    case STATE_PROJECTED_8BIT:
        return vp_mul(2, o->state_bytes);
    default:
        return o->state_bytes;
    }
}

vp_status vp_optimizer_step_begin(vp_optimizer_step *o, vp_err *err)
{
    o->has_states =
        table[o->row].states == STATE_EARLY || table[o->row].states == STATE_FACTORED_EARLY;
    return o->has_states ? make_states(o, (range){0, o->n}, err) : VP_OK;
}

/* Norms of all gradients of one format, at once. */
static vp_status play_norms(const vp_trained *gradients, int64_t n, int64_t element_bytes,
                            vp_ledger *ledger, vp_ledger_block *norms, vp_err *err)
{
    vp_ledger_block scratch = {0};
    int64_t         most = 0, here = 0;
    vp_status       st = VP_OK;

    for (int64_t i = 0; i < n; i++) {
        int64_t chunks = vp_ceil_div(vp_trained_elements(&gradients[i]), FOREACH_CHUNK);
        if (gradients[i].element_bytes != element_bytes)
            continue;
        most = chunks > most ? chunks : most;
        here++;
    }
    VP_TRY(vp_ledger_alloc(ledger, VP_OWNER_TEMPORARY, 4 * here * most, &scratch, err));
    for (int64_t i = 0; i < n; i++)
        if (gradients[i].element_bytes == element_bytes)
            VP_TRY(vp_ledger_alloc(ledger, VP_OWNER_TEMPORARY, element_bytes, &norms[i], err));
out:
    vp_ledger_free(ledger, &scratch);
    return st;
}

/* That of the first one, then those that are like none before; 0: there are no more. */
static int64_t next_format(const vp_trained *list, int64_t n, int64_t before)
{
    for (int64_t i = 0; i < n; i++)
        if (list[i].element_bytes != before && (before == 0 || list[0].element_bytes == before))
            return list[i].element_bytes;
    return 0;
}

vp_status vp_clip_play(const vp_trained *gradients, int64_t n, vp_ledger *ledger, vp_err *err)
{
    vp_ledger_block *norms = calloc((size_t)n + 1, sizeof *norms), scratch = {0};
    int64_t          widest = 0;
    vp_status        st     = VP_OK;

    VP_TRY_ALLOC(err, norms);
    for (int64_t of = 0; (of = next_format(gradients, n, of)) != 0;) {
        VP_TRY(play_norms(gradients, n, of, ledger, norms, err));
        widest = of > widest ? of : widest;
    }
    VP_TRY(vp_ledger_alloc(ledger, VP_OWNER_TEMPORARY, widest * n, &scratch, err));
out:
    vp_ledger_free(ledger, &scratch);
    for (int64_t i = 0; norms && i < n; i++)
        vp_ledger_free(ledger, &norms[i]);
    free(norms);
    return st;
}

/* The mean of the squares by rows, then by columns: what each has while it is made, and the result. */
static vp_status play_means(vp_optimizer_step *o, const vp_trained *t, vp_err *err)
{
    int64_t         width = factored_width(t), rows = width ? vp_trained_elements(t) / width : 0;
    vp_sum_scratch  x       = o->card.processors && width ? vp_scratch_of_sum(width, rows, &o->card)
                                                          : (vp_sum_scratch){0};
    const int64_t   bytes[] = {4 * rows, 4 * width, x.bytes, x.semaphore_bytes};
    vp_ledger_block block[4] = {{0}};
    vp_status       st       = VP_OK;

    for (int i = 0; i < 4; i++) {
        if (bytes[i])
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, bytes[i], &block[i], err));
        if (i == 0) /* added to the state before the other is made */
            vp_ledger_free(o->ledger, &block[0]);
    }
out:
    for (int i = 3; i >= 0; i--)
        vp_ledger_free(o->ledger, &block[i]);
    return st;
}

/* One parameter at a time. Of 16 bits, gradient and parameter are copied to fp32, with the states made between; the square
 * of the gradient, the same with its epsilon, then the update, which lives on while those two of the next one are made. GaLore projects
 * the gradient first, and the update back. */
static vp_status step_factored(vp_optimizer_step *o, range of, vp_err *err)
{
    vp_ledger_block square = {0}, sum = {0}, scaled = {0}, gradient = {0}, copy = {0}, update = {0};
    vp_status       st = VP_OK;

    for (int64_t i = of.first; i < of.end; i++) {
        const vp_trained *t         = &o->trained[i];
        vp_trained        low       = factored(o, i);
        int64_t           whole     = 4 * vp_trained_elements(t);
        int64_t           bytes     = 4 * vp_trained_elements(&low);
        bool              is_narrow = t->element_bytes < 4;
        vp_ledger_free(o->ledger, &gradient);
        if (is_narrow)
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, whole, &gradient, err));
        if (is_low(o, i))
            VP_TRY(vp_optimizer_project_wide(o, t, &o->states[i * MAX_STATES + PROJECTION],
                                             &gradient, err));
        if (!o->has_states)
            VP_TRY(make_states_of(o, i, err));
        vp_ledger_free(o->ledger, &copy);
        if (is_narrow)
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, whole, &copy, err));
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, bytes, &square, err));
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, bytes, &sum, err));
        vp_ledger_free(o->ledger, &square);
        vp_ledger_free(o->ledger, &update);
        VP_TRY(play_means(o, &low, err));
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, bytes, &update, err));
        vp_ledger_free(o->ledger, &sum);
        if (is_low(o, i))
            VP_TRY(vp_optimizer_project_back(o, whole, &update, err));
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, whole, &scaled, err));
        vp_ledger_free(o->ledger, &scaled);
    }
out:
    vp_ledger_free(o->ledger, &gradient);
    vp_ledger_free(o->ledger, &copy);
    vp_ledger_free(o->ledger, &square);
    vp_ledger_free(o->ledger, &sum);
    vp_ledger_free(o->ledger, &update);
    vp_ledger_free(o->ledger, &scaled);
    return st;
}

/* One parameter at a time, its states made before its first step. What Inductor makes of torchao's AdamW8bit: new scales
 * of both states, and both in fp32, which new codes are made from; where states have no codes all is in place. Of AdamW4bit the scales
 * come from those of half a block each, and the codes are numbers of 64 bits before two of them are one byte. */
static vp_status step_compiled(vp_optimizer_step *o, range of, vp_err *err)
{
    enum { HALVES = 0, SCALES = 2, WIDE = 4, CODES = 6, N_MADE = 8 };
    vp_ledger_block made[N_MADE] = {{0}};
    vp_status       st           = VP_OK;

    for (int64_t i = of.first; i < of.end; i++) {
        int64_t n = vp_trained_elements(&o->trained[i]), blocks = n / SCALED_BLOCK;
        int64_t bytes[] = {[HALVES] = is_4bit(o) ? 8 * blocks : 0,
                           [SCALES] = 4 * blocks,
                           [WIDE]   = 4 * n,
                           [CODES]  = is_4bit(o) ? 8 * n : 0};
        if (!o->has_states)
            VP_TRY(make_states_of(o, i, err));
        for (int j = 0; j < N_MADE && is_coded(&o->trained[i]); j++) {
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, bytes[j / 2 * 2], &made[j], err));
            if (j >= SCALES && j < WIDE)
                vp_ledger_free(o->ledger, &made[HALVES + j - SCALES]);
        }
        for (int j = 0; j < N_MADE; j++)
            vp_ledger_free(o->ledger, &made[j]);
    }
out:
    for (int j = 0; j < N_MADE; j++)
        vp_ledger_free(o->ledger, &made[j]);
    return st;
}

static void replace(vp_optimizer_step *o, vp_ledger_block *name, vp_ledger_block *made)
{
    vp_ledger_free(o->ledger, name);
    *name = *made;
    *made = (vp_ledger_block){0};
}

/* grokadamw 0.1.2, one parameter at a time: its three states come from host memory, in which they stay; two of them, then the third,
 * take the place of those of the parameter before. It clips, multiplies the slow gradient and adds it up, and takes a root. */
static vp_status step_grok(vp_optimizer_step *o, range of, vp_err *err)
{
    enum { AVERAGE, SQUARE, SLOW };
    vp_ledger_block states[GROK_STATES] = {{0}}, made[GROK_STATES] = {{0}}, scaled = {0}, sum = {0};
    vp_status       st = VP_OK;

    for (int64_t i = of.first; i < of.end; i++) {
        int64_t bytes = o->trained[i].bytes;
        for (int j = 0; j < GROK_STATES; j++) {
            VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_OPTIMIZER, bytes, &made[j], err));
            if (j == AVERAGE)
                continue;
            if (j == SQUARE)
                replace(o, &states[AVERAGE], &made[AVERAGE]);
            replace(o, &states[j], &made[j]);
        }
        VP_TRY(vp_clip_play(&o->trained[i], 1, o->ledger, err));
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, bytes, &scaled, err));
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, bytes, &made[SLOW], err));
        vp_ledger_free(o->ledger, &scaled);
        replace(o, &sum, &made[SLOW]);
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, bytes, &scaled, err)); /* the root */
        vp_ledger_free(o->ledger, &scaled);
    }
out:
    for (int j = 0; j < GROK_STATES; j++) {
        vp_ledger_free(o->ledger, &states[j]);
        vp_ledger_free(o->ledger, &made[j]);
    }
    vp_ledger_free(o->ledger, &scaled);
    vp_ledger_free(o->ledger, &sum);
    return st;
}

/* A list of tensors like the parameters of a format, so many times over; a list goes when all are there. */
static vp_status step_foreach(vp_optimizer_step *o, range of, int64_t n_lists, vp_err *err)
{
    const vp_trained *list = &o->trained[of.first];
    int64_t           n    = of.end - of.first;
    vp_status         st   = VP_OK;

    for (int64_t format = 0; (format = next_format(list, n, format)) != 0;)
        for (int64_t i = 0; i < n_lists * n; i++)
            if (list[i % n].element_bytes == format)
                VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, list[i % n].bytes,
                                       &o->made[n_lists * of.first + i], err));
out:
    return st;
}

static vp_status step_loop(vp_optimizer_step *o, range of, vp_err *err)
{
    vp_ledger_block root = {0}, *made = o->made;
    vp_status       st = VP_OK;

    for (int64_t i = of.first; i < of.end; i++) {
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, o->trained[i].bytes, &root, err));
        VP_TRY(vp_ledger_alloc(o->ledger, VP_OWNER_TEMPORARY, o->trained[i].bytes, &made[i], err));
        vp_ledger_free(o->ledger, &root);
        if (i > of.first)
            vp_ledger_free(o->ledger, &made[i - 1]);
    }
out:
    vp_ledger_free(o->ledger, &root);
    return st;
}

static void drop_made(vp_optimizer_step *o)
{
    for (int64_t i = 0; i < 2 * o->n; i++)
        vp_ledger_free(o->ledger, &o->made[i]);
}

static vp_status play_range(vp_optimizer_step *o, range of, vp_err *err)
{
    form      f  = table[o->row].form;
    vp_status st = VP_OK;

    if (f == FORM_MUON && !o->trained[of.first].is_matrix)
        f = FORM_FOREACH; /* AdamW of the others */
    if (!o->has_states && f == FORM_MOVING)
        VP_TRY(make_maps(o, of, err));
    else if (!o->has_states && f != FORM_FACTORED && f != FORM_COMPILED && f != FORM_PROJECTED)
        VP_TRY(make_states(o, of, err));
    if (f == FORM_MUON)
        VP_TRY(vp_optimizer_step_muon(o, of, err));
    else if (f == FORM_PROJECTED)
        VP_TRY(vp_optimizer_step_projected(o, of, err));
    else if (f == FORM_MOVING)
        VP_TRY(vp_optimizer_step_moving(o, of, err));
    else if (f == FORM_FOREACH || f == FORM_KEEPING || f == FORM_TWICE)
        VP_TRY(step_foreach(o, of, f == FORM_TWICE ? 2 : 1, err));
    else if (f == FORM_LOOP)
        VP_TRY(step_loop(o, of, err));
    else if (f == FORM_FACTORED)
        VP_TRY(step_factored(o, of, err));
    else if (f == FORM_COMPILED)
        VP_TRY(step_compiled(o, of, err));
    else if (f == FORM_GROK)
        VP_TRY(step_grok(o, of, err));
    if (f != FORM_KEEPING)
        drop_made(o);
out:
    return st;
}

/* Adafactor's loop and those of what is projected have the last update of a group still while they step the next one. */
vp_status vp_optimizer_step_play(vp_optimizer_step *o, vp_err *err)
{
    form      f       = table[o->row].form;
    bool      at_once = f == FORM_FACTORED || f == FORM_PROJECTED || f == FORM_MOVING;
    int64_t   n_first = at_once ? o->n : o->n_first;
    vp_status st      = VP_OK;

    for (int64_t from = 0, to; from < o->n && f != FORM_FUSED; from = to) {
        to = o->one_by_one ? from + 1 : from < n_first ? n_first : o->n;
        VP_TRY(play_range(o, (range){from, to}, err));
        if (o->one_by_one)
            drop_made(o);
    }
    o->has_states = true;
out:
    drop_made(o);
    return st;
}
