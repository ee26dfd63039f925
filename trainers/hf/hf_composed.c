#include "trainers/hf/hf_composed.h"

#include "base/checked.h"
#include "trainers/hf/hf_asked.h"
#include "trainers/hf/hf_find.h"
#include "trainers/hf/hf_replay.h"
#include "trainers/hf/hf_request.h"
#include "trainers/hf/hf_versions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings as they were recorded more often ---- */

static bool is_padded(const vp_hf_request *q)
{
    return q->padded;
}

static void leave_padding_out(vp_hf_request *q)
{
    q->padded = false;
}

/* Flash attention, where sdpa takes it. */
static bool has_other_attention(const vp_hf_request *q)
{
    return strcmp(q->attention, "sdpa:flash") != 0;
}

static void attend_by_flash(vp_hf_request *q)
{
    q->attention = "sdpa:flash";
}

static bool drops_in_adapters(const vp_hf_request *q)
{
    return vp_hf_has_lora(q) && vp_hf_drops_out(q);
}

static void drop_nothing_in_adapters(vp_hf_request *q)
{
    q->lora.dropout = 0;
}

static bool adapts_some(const vp_hf_request *q)
{
    return vp_hf_has_lora(q) && strcmp(q->lora.targets, "all-linear") != 0;
}

static void adapt_all_linear(vp_hf_request *q)
{
    q->lora.targets = "all-linear";
}

/* With a head that predicts tokens. */
static bool is_by_trl(const vp_hf_request *q)
{
    return vp_hf_is_trl(q) && !vp_hf_is_reward(q);
}

/* DPOTrainer and GRPOTrainer have their own loss over SFTTrainer's head. A pair is two samples to SFTTrainer; what it does not prepare another trainer is not to prepare. */
static void train_by_another(vp_hf_request *q)
{
    if (vp_hf_is_quantised(q) && q->prepare == VP_HF_PREPARE_AS_TRAINER)
        q->prepare = VP_HF_PREPARE_OFF;
    if (vp_hf_is_dpo(q))
        q->batch = vp_mul(q->batch, 2);
    q->trainer       = vp_hf_is_dpo(q) || vp_hf_is_grpo(q) ? "trl" : "hf";
    q->has_reference = false;
    q->target_seq    = q->generates ? q->target_seq : 0;
}

static bool is_unprepared(const vp_hf_request *q)
{
    return vp_hf_is_quantised(q) && !vp_hf_upcasts(q);
}

static void prepare_weights(vp_hf_request *q)
{
    q->prepare = VP_HF_PREPARE_ON;
}

static bool is_on_an_old_card(const vp_hf_request *q)
{
    return q->capability < 80;
}

enum { A_CARD_WITH_FLASH = 90 };

static void use_a_new_card(vp_hf_request *q)
{
    q->capability = A_CARD_WITH_FLASH;
}

static bool has_magnitudes(const vp_hf_request *q)
{
    return q->lora.is_dora;
}

static void adapt_without_magnitudes(vp_hf_request *q)
{
    q->lora.is_dora = false;
}

static bool has_8_bit_weights(const vp_hf_request *q)
{
    return q->load && strcmp(q->load, "int8") == 0;
}

static void load_as_computed(vp_hf_request *q)
{
    q->load = "none";
}

static bool is_packed(const vp_hf_request *q)
{
    return q->packed > 0;
}

static void leave_packing_out(vp_hf_request *q)
{
    q->packed = 0;
}

static const char *usual_precision(const vp_hf_request *q)
{
    return vp_hf_has_adapters(q) ? "bf16-amp" : "bf16-mixed";
}

static bool has_other_precision(const vp_hf_request *q)
{
    return strcmp(q->precision, usual_precision(q)) != 0;
}

static void compute_as_usual(vp_hf_request *q)
{
    q->precision = usual_precision(q);
}

/* Of transformers 5: its models are the newest's, and what torch does otherwise it does in all of them. */
static bool has_another_release(const vp_hf_request *q)
{
    return q->versions && strcmp(vp_hf_usual_checkpoints(q->versions, false), "full") == 0;
}

static void use_the_recorded_release(vp_hf_request *q)
{
    q->versions = NULL;
}

/* In the order in which they are tried: what a family changes least comes first. of: whose steps are changed as a llama's. */
static const struct move {
    const char *said;
    enum { OF_COMMON_MASKS, OF_COMMON_ATTENTION, OF_DENSE, OF_LLAMAS, OF_UNCHANGED } of;
    bool (*applies)(const vp_hf_request *q);
    void (*apply)(vp_hf_request *q);
    bool changes_rest; /* weights, gradients or states */
} moves[] = {
    {"release", OF_UNCHANGED, has_another_release, use_the_recorded_release, false},
    {"padding", OF_COMMON_MASKS, is_padded, leave_padding_out, false},
    {"attention", OF_COMMON_ATTENTION, has_other_attention, attend_by_flash, false},
    {"trainer", OF_LLAMAS, is_by_trl, train_by_another, true},
    {"adapters' dropout", OF_DENSE, drops_in_adapters, drop_nothing_in_adapters, false},
    {"card", OF_DENSE, is_on_an_old_card, use_a_new_card, false},
    {"packing", OF_LLAMAS, is_packed, leave_packing_out, false},
    {"DoRA", OF_LLAMAS, has_magnitudes, adapt_without_magnitudes, true},
    {"preparation", OF_LLAMAS, is_unprepared, prepare_weights, true},
    {"8-bit weights", OF_LLAMAS, has_8_bit_weights, load_as_computed, true},
    {"adapters' targets", OF_LLAMAS, adapts_some, adapt_all_linear, true},
    {"precision", OF_LLAMAS, has_other_precision, compute_as_usual, true},
};

enum { N_MOVES = sizeof moves / sizeof *moves, MOST_MOVES = 4 };

/* ---- a model of another family with the same sizes ---- */

/* Most decoders are llamas with something besides; what was not recorded of these is a Qwen's. */
static const char *const siblings[] = {"llama", "qwen2"};

/* Those whose blocks and norms are a llama's, so that what is largest is so at the same instant. Norms behind a block, as OLMo 2 has them, are
 * not, nor is a model with a tower. */
static const char *const llamas[] = {"ernie4_5", "gemma",   "gemma2", "gemma3_text", "glm4",
                                     "granite",  "mistral", "qwen2",  "qwen3",       "smollm3"};

/* Those whose code is the same in transformers 5.17 to 5.24, as far as whole runs with both tell (versions_steps.csv). Gemma 2's is
 * that of eager attention: sdpa is refused there. */
static const char *const unchanged[] = {"ernie4_5", "falcon",   "gemma2",    "gemma3_text", "glm4",
                                        "gpt2",     "gpt_neox", "granite",   "mistral",     "olmo",
                                        "olmo3",    "phi",      "phi3",      "qwen2",       "qwen3",
                                        "smollm3",  "stablelm", "starcoder2"};

#define IS_ONE_OF(list, model) is_one_of(list, sizeof list / sizeof *list, model)

static bool is_one_of(const char *const *families, size_t n, const vp_model *model)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(model->family, families[i]) == 0)
            return true;
    return false;
}

static vp_status set_field(json_t *config, const char *key, json_t *value, vp_err *err)
{
    return json_object_set_new(config, key, value)
               ? VP_FAIL(err, VP_ERR_NOMEM, "out of host memory")
               : VP_OK;
}

/* The sizes by the names that the sibling's class gives them; what it has and the model has not is as its class has it. */
static vp_status write_sizes(vp_hf_sizes *sizes, const vp_recording *of, json_t *config,
                             vp_err *err)
{
    const char *line;
    char        symbol[16], key[64];
    vp_status   st = VP_OK;

    for (int64_t i = 0; (line = vp_recording_field(of, i)); i++) {
        if (sscanf(line, "%15s %63s", symbol, key) != 2 || strpbrk(key, "+*."))
            continue;
        const int64_t *at = vp_symbol_named(&sizes->symbols, symbol);
        int64_t value = strcmp(symbol, "L") == 0 ? vp_add(sizes->n_layers[0], sizes->n_layers[1])
                        : at                     ? *at
                                                 : 0;
        if (strcmp(symbol, "tied") == 0)
            VP_TRY(set_field(config, key, json_boolean(sizes->tied), err));
        else if (strcmp(symbol, "window") == 0)
            VP_TRY(set_field(config, key, json_null(), err));
        else if (value)
            VP_TRY(set_field(config, key, json_integer(value), err));
    }
out:
    return st;
}

static vp_status model_of(json_t *config, vp_model **out, vp_err *err)
{
    char        *text = json_dumps(config, JSON_COMPACT);
    vp_json_doc *doc  = NULL;
    vp_status    st   = VP_OK;

    if (!text)
        VP_TRY(VP_FAIL(err, VP_ERR_NOMEM, "out of host memory"));
    VP_TRY(vp_json_parse("sibling", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_model_from_config("sibling", &root, &(vp_model_opts){.config_only = true}, out, err));
out:
    vp_json_doc_free(doc);
    free(text);
    return st;
}

/* sizes: the model's own. */
static vp_status sibling_of(const char *family, vp_hf_sizes *sizes, vp_hf_shelf *shelf,
                            vp_model **out, vp_err *err)
{
    char          name[80], path[4096];
    vp_recording *recording;
    json_t       *config = json_object();
    vp_status     st     = VP_OK;

    snprintf(name, sizeof name, "recordings/%s.rec", family);
    if (!config)
        VP_TRY(VP_FAIL(err, VP_ERR_NOMEM, "out of host memory"));
    if (!vp_hf_shelf_find(shelf, name, path, sizeof path))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s is missing", name));
    VP_TRY(vp_hf_shelf_open(shelf, path, &recording, err));
    VP_TRY(set_field(config, "model_type", json_string(family), err));
    VP_TRY(write_sizes(sizes, recording, config, err));
    VP_TRY(model_of(config, out, err));
out:
    json_decref(config);
    return st;
}

/* ---- the three steps ---- */

typedef struct composition {
    const vp_model      *model;
    const vp_hf_request *asked;
    vp_hf_request        near;          /* of the model */
    vp_hf_request        with, without; /* of the sibling: as asked, and as near */
    char                 task[40];
    int64_t              seq;
    vp_hf_shelf         *shelf;
    vp_model            *sibling;
    unsigned             moved; /* bit i: moves[i] */
} composition;

/* As a request of its own: all bytes, whatever the limit. */
static vp_hf_request unlimited(const vp_hf_request *q, vp_hf_shelf *shelf)
{
    vp_hf_request own = *q;

    own.shelf         = shelf;
    own.terse         = true;
    own.at_most_bytes = 0;
    own.at_most_share = own.least_share = 0;
    own.limit_bytes                     = 0;
    own.counts_needed = own.counts_alone = false;
    return own;
}

/* own: what a step of the model itself tells of it; NULL: not asked. */
static bool is_recorded(const vp_model *model, const vp_hf_request *q, vp_hf_sizes *sizes,
                        composition *own)
{
    vp_hf_estimate e     = {0};
    vp_hf_found    found = {0};
    vp_err         why   = {0};
    bool           is    = vp_hf_find(model, q, VP_HF_STEP, &e, &found, &why) == VP_OK;

    if (is && sizes)
        *sizes = found.sizes;
    if (is && own) {
        memcpy(own->task, e.task, sizeof own->task);
        own->seq = e.seq;
    }
    vp_hf_found_release(&found);
    return is;
}

/* Attention of classes of their own, which neither repeat nor lay out what they are given as transformers' common functions do
 * (5.17, modeling_FAMILY.py). */
static bool attends_its_own_way(const vp_model *model)
{
    static const char *const families[] = {"bloom", "falcon", "gpt_neo", "gptj"};

    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(model->family, families[i]) == 0)
            return true;
    return false;
}

/* What the sibling may show of this model: an expert has no dropout beside its adapters, and products of another kind; beyond a window
 * there is a mask already, which a sibling without one has not. */
static bool may_move(const composition *c, const struct move *m, const vp_hf_sizes *sizes)
{
    bool is_windowed = sizes->window && c->seq >= sizes->window;

    if (sizes->symbols.at[VP_SYM_z]) /* Gated DeltaNet, which no sibling has */
        return false;
    switch (m->of) {
    case OF_COMMON_MASKS:
        return !is_windowed;
    case OF_COMMON_ATTENTION:
        return !is_windowed && !attends_its_own_way(c->model);
    case OF_DENSE:
        return !sizes->symbols.at[VP_SYM_E];
    case OF_LLAMAS:
        return IS_ONE_OF(llamas, c->model);
    case OF_UNCHANGED:
        return IS_ONE_OF(unchanged, c->model);
    }
    return false;
}

static bool try_sibling(composition *c, const char *family, vp_hf_sizes *sizes)
{
    vp_err ignored = {0};

    if (strcmp(c->model->family, family) == 0)
        return false;
    vp_model_free(c->sibling);
    c->sibling = NULL;
    return sibling_of(family, sizes, c->shelf, &c->sibling, &ignored) == VP_OK &&
           is_recorded(c->sibling, &c->with, NULL, NULL) &&
           is_recorded(c->sibling, &c->without, NULL, NULL);
}

/* Tries one way: with these settings moved. */
static bool try_with(composition *c, unsigned moved)
{
    vp_hf_sizes sizes;

    c->near = unlimited(c->asked, c->shelf);
    for (int i = 0; i < N_MOVES; i++)
        if (moved >> i & 1)
            moves[i].apply(&c->near);
    if (!is_recorded(c->model, &c->near, &sizes, c))
        return false;
    for (int i = 0; i < N_MOVES; i++)
        if (moved >> i & 1 && !may_move(c, &moves[i], &sizes))
            return false;
    c->moved                  = moved;
    c->without                = c->near;
    c->without.of_usual_sizes = true;
    c->with.task = c->without.task = c->task;
    for (size_t i = 0; i < sizeof siblings / sizeof *siblings; i++)
        if (try_sibling(c, siblings[i], &sizes))
            return true;
    return false;
}

static int bits_of(unsigned set)
{
    int n = 0;

    for (; set; set &= set - 1)
        n++;
    return n;
}

/* As few settings as possible. */
static bool search(composition *c)
{
    unsigned may = 0;

    for (int i = 0; i < N_MOVES; i++)
        may |= moves[i].applies(c->asked) ? 1U << i : 0;
    for (int n = 1; n <= MOST_MOVES; n++)
        for (unsigned moved = 1; moved < 1U << N_MOVES; moved++)
            if (bits_of(moved) == n && !(moved & ~may) && try_with(c, moved))
                return true;
    return false;
}

/* ---- their bytes ---- */

static const vp_ledger_phase *phase_named(const vp_hf_estimate *e, const char *name)
{
    for (int i = 0; i < e->n_phases; i++)
        if (strcmp(e->phases[i].name, name) == 0)
            return &e->phases[i];
    return NULL;
}

/* Peaks of the three may be at other instants of a phase, where an owner has less than the difference: what it lacks is taken from
 * the largest, so that owners still sum to the peak. */
static void settle_owners(vp_ledger_phase *p)
{
    for (int i = 0; i < VP_N_OWNERS; i++) {
        int most = 0;
        if (p->owners[i] >= 0)
            continue;
        for (int j = 1; j < VP_N_OWNERS; j++)
            if (p->owners[j] > p->owners[most])
                most = j;
        p->owners[most] += p->owners[i];
        p->owners[i] = 0;
    }
}

static int64_t median_of_three(int64_t a, int64_t b, int64_t c)
{
    return vp_max_i64(vp_min_i64(a, b), vp_min_i64(vp_max_i64(a, b), c));
}

/* Reserved bytes that are not allocated are holes, which follow from the order of events: as many as the nearest step has, as the
 * sibling has with the settings asked for, or the former and what those add to the sibling's; of these the middle one, which of steps that were
 * recorded, and put together all the same, was nearest most often. */
static int64_t holes_of(int64_t near, int64_t with, int64_t without)
{
    return median_of_three(near, with, near + with - without);
}

static void add_difference(vp_ledger_phase *p, const vp_ledger_phase *with,
                           const vp_ledger_phase *without)
{
    int64_t holes = holes_of(p->reserved_bytes - p->allocated_bytes,
                             with->reserved_bytes - with->allocated_bytes,
                             without->reserved_bytes - without->allocated_bytes);
    int64_t end_holes =
        holes_of(p->end_reserved_bytes - p->end_bytes, with->end_reserved_bytes - with->end_bytes,
                 without->end_reserved_bytes - without->end_bytes);

    p->allocated_bytes += with->allocated_bytes - without->allocated_bytes;
    p->end_bytes += with->end_bytes - without->end_bytes;
    p->reserved_bytes     = p->allocated_bytes + holes;
    p->end_reserved_bytes = p->end_bytes + end_holes;
    for (int i = 0; i < VP_N_OWNERS; i++)
        p->owners[i] += with->owners[i] - without->owners[i];
    settle_owners(p);
}

/* A run that goes on from a checkpoint is another one. */
static bool is_of_run(const vp_ledger_phase *p)
{
    return strcmp(p->name, "resume") != 0;
}

/* Of the whole run, which is not the largest of its phases' sums: holes of another phase may be filled. */
static void reserve(vp_hf_estimate *out, const vp_hf_estimate *near, const vp_hf_estimate *with,
                    const vp_hf_estimate *without)
{
    vp_ledger_phase *most = &out->phases[0];

    out->reserved_bytes =
        out->allocated_bytes + holes_of(near->reserved_bytes - near->allocated_bytes,
                                        with->reserved_bytes - with->allocated_bytes,
                                        without->reserved_bytes - without->allocated_bytes);
    for (int i = 0; i < out->n_phases; i++) {
        vp_ledger_phase *p = &out->phases[i];
        if (!is_of_run(p))
            continue;
        p->reserved_bytes     = vp_min_i64(p->reserved_bytes, out->reserved_bytes);
        p->end_reserved_bytes = vp_min_i64(p->end_reserved_bytes, p->reserved_bytes);
        most                  = p->reserved_bytes > most->reserved_bytes ? p : most;
    }
    most->reserved_bytes = out->reserved_bytes;
}

/* Sentences of the nearest step that are not of its settings, and those of the settings asked for. */
static void assume(const composition *c, const vp_hf_estimate *near, const vp_hf_estimate *with,
                   const vp_hf_estimate *without, vp_hf_estimate *out)
{
    char   said[120] = "";
    size_t n         = 0;

    for (int i = 0; i < N_MOVES; i++)
        if (c->moved >> i & 1)
            n += (size_t)snprintf(said + n, sizeof said - n, "%s%s", n ? ", " : "", moves[i].said);
    out->n_assumptions = 0;
    vp_hf_assume(out,
                 "not recorded with this %s: put together from the nearest step that was and the "
                 "difference it makes to a %s of the same sizes",
                 said, c->sibling->family);
    for (int i = 0; i < near->n_assumptions; i++) {
        bool is_of_settings = false;
        for (int j = 0; j < without->n_assumptions; j++)
            is_of_settings =
                is_of_settings || strcmp(near->assumptions[i], without->assumptions[j]) == 0;
        if (!is_of_settings)
            vp_hf_assume(out, "%s", near->assumptions[i]);
    }
    for (int i = 0; i < with->n_assumptions; i++)
        vp_hf_assume(out, "%s", with->assumptions[i]);
}

static vp_status sum_up(const composition *c, const vp_hf_estimate *near,
                        const vp_hf_estimate *with, const vp_hf_estimate *without,
                        vp_hf_estimate *out)
{
    *out                 = *near;
    out->allocated_bytes = out->reserved_bytes = 0;
    for (int i = 0; i < near->n_phases; i++) {
        const vp_ledger_phase *more = phase_named(with, near->phases[i].name);
        const vp_ledger_phase *less = phase_named(without, near->phases[i].name);
        if (!more || !less)
            return VP_ERR_INPUT;
        add_difference(&out->phases[i], more, less);
        if (is_of_run(&out->phases[i]) && out->phases[i].allocated_bytes > out->allocated_bytes) {
            out->allocated_bytes = out->phases[i].allocated_bytes;
            out->peak            = i;
        }
    }
    reserve(out, near, with, without);
    out->n_trained += with->n_trained - without->n_trained;
    out->n_params += with->n_params - without->n_params;
    memcpy(out->versions, with->versions, sizeof out->versions);
    out->attention   = attends_its_own_way(c->model) ? near->attention : with->attention;
    out->is_composed = out->stands_in = true;
    assume(c, near, with, without, out);
    return VP_OK;
}

static vp_status replay_three(const composition *c, vp_hf_estimate *out, vp_err *err)
{
    vp_hf_estimate *e  = calloc(3, sizeof *e);
    vp_status       st = VP_OK;

    if (!e)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    VP_TRY(vp_hf_replay(c->model, &c->near, &e[0], err));
    VP_TRY(vp_hf_replay(c->sibling, &c->with, &e[1], err));
    VP_TRY(vp_hf_replay(c->sibling, &c->without, &e[2], err));
    st = sum_up(c, &e[0], &e[1], &e[2], out);
out:
    free(e);
    return st;
}

/* What a search asks of a step: whether it is within its limit, at the upper end of its interval. */
static vp_status judge(const vp_hf_request *q, vp_hf_estimate *e, vp_err *err)
{
    double  share = q->at_most_share > 0 && q->at_most_share < VP_HF_STAND_IN_SHARE
                        ? VP_HF_STAND_IN_SHARE
                        : q->at_most_share;
    double  most  = (double)q->at_most_bytes;
    int64_t bytes = q->counts_alone ? e->allocated_bytes : e->reserved_bytes;

    if (q->limit_bytes && e->reserved_bytes > q->limit_bytes)
        return VP_FAIL(err, VP_ERR_NO_FIT, "more than the card has is reserved");
    if (!q->at_most_bytes || (double)bytes * (1 + share) <= most)
        return VP_OK;
    e->is_needed_too_large = (double)e->allocated_bytes > most;
    return VP_FAIL(err, VP_ERR_NO_FIT, "more than %lld bytes are reserved",
                   (long long)q->at_most_bytes);
}

/* What is at rest, which is the nearest step's, may be too large already: then nothing is played. VP_ERR_NO_FIT: so it is. */
static vp_status weigh_rest(const composition *c, vp_hf_estimate *out, vp_err *err)
{
    vp_hf_request rest = c->near;

    if (!c->asked->at_most_bytes)
        return VP_OK;
    for (int i = 0; i < N_MOVES; i++)
        if (c->moved >> i & 1 && moves[i].changes_rest)
            return VP_OK;
    rest.at_most_bytes = c->asked->at_most_bytes;
    rest.at_most_share = c->asked->at_most_share;
    rest.least_share   = c->asked->least_share;
    rest.rests_only    = true;
    return vp_hf_replay(c->model, &rest, out, err);
}

/* A mask over another length was recorded nearly everywhere: the refusal names it. */
static bool has_an_odd_mask(const vp_hf_request *q)
{
    return q->padded && q->seq % VP_MASKED_BY;
}

static bool may_be_composed(const vp_hf_request *q)
{
    return !vp_hf_is_shared(q) && !q->eval_batch && !q->images && !vp_hf_has_other_adapters(q) &&
           !has_an_odd_mask(q);
}

vp_status vp_hf_compose(const vp_model *model, const vp_hf_request *asked, const vp_err *why,
                        vp_hf_estimate *out, vp_err *err)
{
    vp_hf_shelf  *own = asked->shelf ? NULL : vp_hf_shelf_new();
    composition   c = {.model = model, .asked = asked, .shelf = asked->shelf ? asked->shelf : own};
    vp_hf_request whole   = unlimited(asked, c.shelf);
    vp_err        of_step = {0};
    vp_status     st      = VP_ERR_INPUT;

    if (!own && vp_hf_is_noted(model, &whole, out))
        return judge(asked, out, err);
    c.with                = whole;
    c.with.of_usual_sizes = true;
    out->is_unrecorded    = !(c.shelf && may_be_composed(asked) && search(&c));
    if (!out->is_unrecorded)
        st = weigh_rest(&c, out, &of_step);
    if (st == VP_OK)
        st = replay_three(&c, out, &of_step);
    if (st == VP_OK && !own)
        vp_hf_note(model, &whole, out);
    if (st == VP_OK)
        st = judge(asked, out, err);
    else
        *err = st == VP_ERR_INPUT ? *why : of_step;
    vp_model_free(c.sibling);
    vp_hf_shelf_free(own);
    return st;
}
