#include "planner/changes.h"

#include "base/beside.h"
#include "base/checked.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/outline_store.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is looked for, and in what: the request with nothing free in its recipe. */
typedef struct finder {
    vp_plan_request       r;
    const vp_plan_answer *like; /* libraries that serve other recipes of it; NULL: none */
    vp_change             from;
    /* were free: no change of theirs helps */
    bool any_precision, any_gradients, any_optimizer;
} finder;

/* Requests planned at most: each takes milliseconds to tenths of a second. */
enum { MAX_PLANNED = 24 };

/* Some of the changes, one after the other; with others beside or before it. */
typedef struct trail {
    const finder *f;
    atomic_bool  *is_idle;                  /* NULL, or no more of these are wanted */
    int64_t       n_before, n_taken_before; /* that count here, too */
    /* what was planned, and which of it fits */
    struct tried {
        vp_change change;
        bool      taken;
    } tried[MAX_PLANNED];
    int64_t n, n_taken;
} trail;

/* Whether what no scenario of one recipe can do without leaves room in the budget: parameters,
 * gradients, optimizer state, the batch; and whether recipe and model can have what is pinned. */
static vp_status has_room(const vp_plan_request *r, bool *room, vp_err *err)
{
    vp_cost     cost = {.device = r->device, .profile = r->profile};
    vp_scenario s    = {.recipe       = r->recipe,
                        .seq          = r->seq,
                        .micro_batch  = r->global_batch,
                        .global_batch = r->global_batch,
                        .attention =
                         r->attention == VP_ATTENTION_ANY ? VP_ATTENTION_FLASH : r->attention};
    vp_figures  figures;
    vp_offload  levels[VP_MAX_OFFLOAD_LEVELS] = {{0}};
    vp_status   st                            = VP_OK;

    const int n_levels = vp_request_offloads(r, levels);
    *room              = n_levels > 0;
    if (n_levels == 0 || r->any_precision || r->any_gradients || r->any_optimizer)
        return VP_OK;
    s.offload = levels[n_levels - 1];
    vp_scenario_set_all(&s, r->model, 0);
    VP_TRY(vp_assemble_figures(r->model, &s, &cost, &figures, err));
    *room = figures.stack_base_bytes <= vp_device_arena_bytes(r->device, r->budget_bytes);
out:
    return st;
}

/* What is free in recipe and attention as the leanest plan has it: one way to look in where all
 * would take many times as long. */
static void narrow_to_leanest(vp_plan_request *r, const vp_plan_answer *a)
{
    const vp_scenario *least = &a->least.scenario;

    if (r->any_precision)
        r->recipe.precision = least->recipe.precision;
    if (r->any_gradients)
        r->recipe.gradients = least->recipe.gradients;
    if (r->any_optimizer && least->recipe.optimizer != r->recipe.optimizer)
        vp_recipe_set_optimizer(&r->recipe, least->recipe.optimizer);
    if (r->attention == VP_ATTENTION_ANY)
        r->attention = least->attention;
    r->any_precision = r->any_gradients = r->any_optimizer = false;
}

static bool is_at_end(const trail *t)
{
    return t->n_before + t->n == MAX_PLANNED || t->n_taken_before + t->n_taken == VP_MAX_CHANGES;
}

/* Plan one change; it is taken if it fits. *answer: zero, or what was planned, for the caller to release. */
static vp_status try_answer(trail *t, const vp_change *change, const vp_plan_request *changed,
                            const vp_plan_answer *like, vp_plan_answer *answer, bool *taken,
                            vp_err *err)
{
    int64_t   least_bytes;
    bool      room;
    vp_status st = VP_OK;

    *answer = (vp_plan_answer){0};
    *taken  = false;
    if (is_at_end(t) || (t->is_idle && atomic_load(t->is_idle)))
        return VP_OK;
    VP_TRY(has_room(changed, &room, err));
    if (!room)
        return VP_OK;
    VP_TRY(vp_planner_least_answer(changed, like, answer, err));
    least_bytes                         = answer->least_budget_bytes;
    *taken                              = least_bytes > 0 && least_bytes <= changed->budget_bytes;
    t->tried[t->n]                      = (struct tried){.change = *change, .taken = *taken};
    t->tried[t->n++].change.needs_bytes = least_bytes;
    t->n_taken += *taken;
out:
    return st;
}

static vp_status try_change(trail *t, const vp_change *change, const vp_plan_request *changed,
                            const vp_plan_answer *like, bool *taken, vp_err *err)
{
    vp_plan_answer answer;
    vp_status      st = try_answer(t, change, changed, like, &answer, taken, err);

    vp_plan_answer_release(&answer);
    return st;
}

/* ---- recipes ---- */

/* What a person gives up for memory: levels of a number format, of what an optimizer keeps and of
 * gradients. */
typedef struct recipe_change {
    int          format, states, grads;
    vp_precision precision;
    vp_optimizer optimizer;
    vp_gradients gradients;
} recipe_change;

enum { MAX_RECIPE_CHANGES = 9 };

/* Whether a is one of the changes of b, with others or without. */
static bool is_part_of(const recipe_change *a, const recipe_change *b)
{
    return a->format <= b->format && a->states <= b->states && a->grads <= b->grads;
}

/* The least change first: none at all, then formats by states. */
static int list_recipes(const finder *f, const vp_plan_request *r, recipe_change *out)
{
    static const int order[][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 0},
                                   {0, 1, 1}, {1, 1, 1}, {2, 0, 0}, {2, 1, 0}, {2, 1, 1}};
    bool             bf16       = r->device->bf16 || r->device->is_cpu;
    bool             half       = bf16 || vp_device_has_fp16(r->device);
    int              n          = 0;

    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        recipe_change c = {order[k][0],         order[k][1],         order[k][2],
                           r->recipe.precision, r->recipe.optimizer, r->recipe.gradients};
        bool          can_format =
            c.format == 0 ||
            (!f->any_precision && r->recipe.precision != VP_PREC_BF16 &&
             (c.format == 2 ? bf16
                            : half && vp_precision_dtype(r->recipe.precision) == VP_DTYPE_F32));
        bool can_states =
            c.states == 0 || (!f->any_optimizer && (r->recipe.optimizer == VP_OPT_ADAMW ||
                                                    r->recipe.optimizer == VP_OPT_ADAMW_BF16));
        if (c.format)
            c.precision = c.format == 2 ? VP_PREC_BF16
                          : bf16        ? VP_PREC_BF16_MIXED
                                        : VP_PREC_FP16_MIXED;
        if (c.states)
            c.optimizer = VP_OPT_ADAMW_8BIT;
        if (c.grads)
            c.gradients = VP_GRADIENTS_BF16;
        bool can_grads = c.grads == 0 || (!f->any_gradients && c.gradients != r->recipe.gradients &&
                                          vp_precision_takes(c.precision, c.gradients));
        if (can_format && can_states && can_grads)
            out[n++] = c;
    }
    assert(n <= MAX_RECIPE_CHANGES);
    return n;
}

static void apply_recipe(const recipe_change *c, const vp_plan_request *asked, vp_plan_request *r,
                         vp_change *change)
{
    r->recipe.precision = c->precision;
    r->recipe.gradients = c->gradients;
    if (c->optimizer != r->recipe.optimizer)
        vp_recipe_set_optimizer(&r->recipe, c->optimizer);
    change->another_precision = c->precision != asked->recipe.precision;
    change->another_gradients = c->gradients != asked->recipe.gradients;
    change->another_optimizer = c->optimizer != asked->recipe.optimizer;
    change->precision         = c->precision;
    change->gradients         = c->gradients;
    change->optimizer         = c->optimizer;
}

/* Recipes `from` to `end` of the list for one sequence, device and model: the first `most` that
 * fit and do not add to one that does. Recipe 0 is the asked one. */
static vp_status try_recipes(trail *t, const vp_change *change, const vp_plan_request *r,
                             const vp_plan_answer *like, int from, int end, int most, int *n_taken,
                             vp_err *err)
{
    recipe_change  list[MAX_RECIPE_CHANGES], taken[MAX_RECIPE_CHANGES];
    vp_plan_answer tried[MAX_RECIPE_CHANGES]; /* the libraries of each serve those behind it */
    int            n = list_recipes(t->f, r, list), n_tried = 0;
    vp_status      st = VP_OK;

    *n_taken = 0;
    for (int k = from; k < n && k < end && *n_taken < most; k++) {
        vp_plan_request changed = *r;
        vp_change       c       = *change;
        bool            adds    = false, fits;
        for (int i = 0; i < *n_taken; i++)
            adds |= is_part_of(&taken[i], &list[k]);
        if (adds)
            continue;
        apply_recipe(&list[k], r, &changed, &c);
        VP_TRY(try_answer(t, &c, &changed, like, &tried[n_tried++], &fits, err));
        if (fits)
            taken[(*n_taken)++] = list[k];
        if (tried[n_tried - 1].arena) /* planned at all */
            like = &tried[n_tried - 1];
    }
out:
    while (n_tried > 0)
        vp_plan_answer_release(&tried[--n_tried]);
    return st;
}

/* ---- host memory ---- */

/* What one sample at once holds, and where. */
static vp_status offload_at_one(const finder *f, const vp_offload *level, vp_figures *out,
                                vp_err *err)
{
    vp_cost     cost = {.device = f->r.device, .profile = f->r.profile};
    vp_scenario s    = {.recipe       = f->r.recipe,
                        .seq          = f->r.seq,
                        .micro_batch  = 1,
                        .global_batch = f->r.global_batch,
                        .attention    = f->r.attention,
                        .offload      = *level};

    vp_scenario_set_all(&s, f->r.model, 0);
    return vp_assemble_figures(f->r.model, &s, &cost, out, err);
}

/* The least that is offloaded with which it fits, and the host memory for all there is of it: more
 * than was given. */
static vp_status try_host(trail *t, vp_err *err)
{
    const finder    *f = t->f;
    const vp_device *d = f->r.device;
    /* or there is nowhere to offload to, or the request says what is to lie there */
    bool fits = d->is_cpu || d->host_link_bytes_per_s <= 0 ||
                (f->r.host_bytes > 0 && f->r.offload != VP_OFFLOAD_ANY);
    vp_status st = VP_OK;

    for (int kind = VP_OFFLOAD_OPTIMIZER; kind < VP_N_OFFLOADS && !fits; kind++) {
        vp_plan_request changed = f->r;
        vp_change       change  = f->from;
        vp_offload      levels[VP_MAX_OFFLOAD_LEVELS];
        vp_figures      figures;

        if (vp_offload_steps((vp_offload_kind)kind)) /* which needs no less of the device */
            continue;
        changed.offload    = (vp_offload_kind)kind;
        changed.host_bytes = INT64_MAX;
        if (vp_request_offloads(&changed, levels) == 0)
            continue;
        VP_TRY(offload_at_one(f, &levels[0], &figures, err));
        changed.offload    = VP_OFFLOAD_ANY;
        changed.host_bytes = change.host_bytes = vp_round_up(figures.host_bytes, VP_GIB);
        if (figures.host_bytes > f->r.host_bytes)
            VP_TRY(try_change(t, &change, &changed, NULL, &fits, err));
    }
out:
    return st;
}

/* As much host memory, all of which may be pinned. */
static vp_status try_pinned(trail *t, vp_err *err)
{
    vp_plan_request changed = t->f->r;
    vp_change       change  = t->f->from;
    bool            fits;

    if (!changed.pinned_bytes)
        return VP_OK;
    changed.pinned_bytes = 0;
    change.frees_pinned  = true;
    return try_change(t, &change, &changed, NULL, &fits, err);
}

/* As much host memory, and master weights and states on a local drive: more of one than was given. */
static vp_status try_drive(trail *t, vp_err *err)
{
    const finder   *f       = t->f;
    vp_plan_request changed = f->r;
    vp_change       change  = f->from;
    vp_offload      levels[VP_MAX_OFFLOAD_LEVELS];
    vp_figures      figures;
    int             n;
    bool            fits;
    vp_status       st = VP_OK;

    changed.on_nvme = true;
    if (f->r.device->is_cpu || f->r.host_bytes <= 0 || f->r.offload == VP_OFFLOAD_NONE ||
        vp_offload_steps(f->r.offload) || (n = vp_request_offloads(&changed, levels)) == 0)
        return VP_OK;
    VP_TRY(offload_at_one(f, &levels[n - 1], &figures, err)); /* with all there is of states */
    changed.nvme_bytes = change.nvme_bytes = vp_round_up(figures.nvme_bytes, VP_GIB);
    if (figures.nvme_bytes > f->r.nvme_bytes)
        VP_TRY(try_change(t, &change, &changed, NULL, &fits, err));
out:
    return st;
}

/* ---- sequence, adapters, SGD ---- */

/* as_asked: the asked recipe only, since another fits the whole sequence. */
static vp_status try_sequences(trail *t, bool as_asked, vp_err *err)
{
    const finder *f          = t->f;
    int           most_tried = as_asked ? 1 : MAX_RECIPE_CHANGES, n_taken;
    vp_status     st         = VP_OK;

    for (int64_t seq = f->r.seq / 2; seq >= 64 && seq >= f->r.seq / 8; seq /= 2) {
        vp_plan_request shorter = f->r;
        vp_change       change  = f->from;
        shorter.seq = change.seq = seq;
        VP_TRY(try_recipes(t, &change, &shorter, NULL, 0, most_tried, 1, &n_taken, err));
        if (n_taken)
            break;
    }
out:
    return st;
}

/* The request's model with adapters; NULL: it can have none. */
static vp_status open_adapted(const vp_plan_request *r, const vp_lora *lora, vp_model **out,
                              vp_err *err)
{
    const vp_model *asked = r->model;
    vp_model_opts   opts  = {
           .dropout = r->recipe.dropout, .class_name = asked->class_name, .lora = lora};
    vp_json_doc *doc  = NULL;
    vp_text      text = {0};
    vp_err       why  = {0};
    vp_status    st   = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, vp_json_dump(asked->config, &text));
    VP_TRY(vp_json_parse(asked->name, text.data, (int64_t)text.n_bytes, &doc, err));
    vp_json_node config = vp_json_root(doc);
    st                  = vp_model_from_config(asked->name, &config, &opts, out, &why);
    if (st == VP_ERR_INPUT)
        st = VP_OK;
    else if (st != VP_OK)
        *err = why;
out:
    vp_json_doc_free(doc);
    vp_text_release(&text);
    return st;
}

/* Every change of recipe, with another model, which is borrowed. */
static vp_status try_recipes_with(trail *t, const vp_model *model, vp_change *change,
                                  vp_plan_request *changed, int *n_taken, vp_err *err)
{
    vp_status st = VP_OK;

    changed->model = model;
    VP_TRY_ALLOC(err, changed->outlines = vp_outline_store_new(model));
    VP_TRY(try_recipes(t, change, changed, NULL, 0, MAX_RECIPE_CHANGES, 1, n_taken, err));
out:
    vp_outline_store_free(changed->outlines);
    return st;
}

/* As QLoRA's authors have them: on all linear layers (Dettmers et al. 2023, arXiv:2305.14314). */
static vp_status try_adapters(trail *t, bool *fits, vp_err *err)
{
    const finder   *f       = t->f;
    const vp_lora   usual   = {.rank = 16, .alpha = 32, .targets = "all-linear"};
    vp_plan_request changed = f->r;
    vp_change       change  = f->from;
    vp_model       *model   = NULL;
    int             n_taken = 0;
    vp_status       st      = VP_OK;

    *fits = false;
    if (f->r.recipe.lora.rank)
        return VP_OK;
    VP_TRY(open_adapted(&f->r, &usual, &model, err));
    if (!model)
        goto out;
    changed.recipe.lora = change.lora = usual;
    VP_TRY(try_recipes_with(t, model, &change, &changed, &n_taken, err));
    *fits = n_taken > 0;
out:
    vp_model_free(model);
    return st;
}

static vp_status try_sgd(trail *t, vp_err *err)
{
    const finder       *f     = t->f;
    const recipe_change sgd[] = {
        {0, 2, 0, f->r.recipe.precision, VP_OPT_SGD, f->r.recipe.gradients},
        {2, 2, 0, VP_PREC_BF16, VP_OPT_SGD, f->r.recipe.gradients}};
    bool      bf16 = f->r.device->bf16 || f->r.device->is_cpu, fits = false;
    vp_status st = VP_OK;

    for (int k = 0; k < 1 + bf16 && !fits; k++) {
        vp_plan_request changed = f->r;
        vp_change       change  = f->from;
        apply_recipe(&sgd[k], &f->r, &changed, &change);
        VP_TRY(try_change(t, &change, &changed, f->like, &fits, err));
    }
out:
    return st;
}

/* ---- devices ---- */

static int by_size(const void *a, const void *b)
{
    const vp_device *x = a, *y = b;

    if (x->usable_bytes != y->usable_bytes)
        return x->usable_bytes < y->usable_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

enum { MAX_CARDS = 128 };

/* The smallest card that holds the recipe; *at is where to begin, and where it was found. */
static vp_status try_cards(trail *t, const vp_device *cards, int n, const recipe_change *recipe,
                           int *at, vp_err *err)
{
    const finder *f    = t->f;
    bool          fits = false;
    vp_status     st   = VP_OK;

    for (int i = 0; i < n && i < *at && !fits; i++) {
        vp_plan_request changed = f->r;
        vp_change       change  = f->from;
        bool            has_format =
            vp_device_supports(&cards[i], vp_precision_needs(recipe->precision), NULL) == VP_OK;
        if (!has_format || (i && cards[i].usable_bytes == cards[i - 1].usable_bytes))
            continue;
        apply_recipe(recipe, &f->r, &changed, &change);
        changed.device = &cards[i];
        changed.budget_bytes =
            cards[i].usable_bytes - vp_amount_of(&f->r.reserve, cards[i].usable_bytes);
        changed.profile = NULL;
        snprintf(change.device, sizeof change.device, "%s", cards[i].name);
        VP_TRY(try_change(t, &change, &changed, NULL, &fits, err));
        if (fits)
            *at = i;
    }
out:
    return st;
}

static vp_status try_devices(trail *t, bool recipe_found, vp_err *err)
{
    const finder *f     = t->f;
    vp_device    *cards = calloc(MAX_CARDS, sizeof *cards);
    recipe_change list[MAX_RECIPE_CHANGES];
    int           n = 0, at = MAX_CARDS, n_recipes;
    vp_status     st = VP_OK;

    VP_TRY_ALLOC(err, cards);
    while (n < MAX_CARDS && vp_device_at(n, &cards[n]))
        n++;
    qsort(cards, (size_t)n, sizeof *cards, by_size);
    n_recipes = list_recipes(f, &f->r, list);
    VP_TRY(try_cards(t, cards, n, &list[0], &at, err));
    if (!recipe_found && n_recipes > 1)
        VP_TRY(try_cards(t, cards, n, &list[n_recipes - 1], &at, err));
out:
    free(cards);
    return st;
}

/* Of the same device, where the budget was less than there is. */
static vp_status try_budget(trail *t, const vp_plan_answer *a, bool *fits, vp_err *err)
{
    const finder   *f       = t->f;
    vp_plan_request changed = f->r;
    vp_change       change  = f->from;
    const int64_t   usable = f->r.device->usable_bytes, kept = vp_amount_of(&f->r.reserve, usable);
    int64_t         wanted = vp_round_up(vp_add(a->least_budget_bytes, kept), (int64_t)1 << 20);
    vp_status       st     = VP_OK;

    *fits                = false;
    change.budget_bytes  = vp_min_i64(wanted, usable);
    changed.budget_bytes = change.budget_bytes - kept;
    if (a->least_budget_bytes && !f->from.frees_pins &&
        a->least_budget_bytes <= changed.budget_bytes)
        VP_TRY(try_change(t, &change, &changed, a, fits, err));
out:
    return st;
}

/* ---- smaller models ---- */

static int64_t vocabulary(const vp_model *model)
{
    return json_integer_value(json_object_get(model->config, "vocab_size"));
}

/* Letters that two names begin with alike. */
static int alike(const char *a, const char *b)
{
    int n = 0;

    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* What "llama-3.1-8b", "qwen2.5-7b" and "phi-4" say of their generation: 3, 2, 4. 0: nothing, as
 * "llama-65b" and "bert-base-uncased", where a number is a size or there is none. */
static long generation(const char *name)
{
    const char *number = name + strcspn(name, "0123456789");
    size_t      n      = strspn(number, "0123456789.");

    return number[n] == 'b' || number[n] == 'm' ? 0 : strtol(number, NULL, 10);
}

/* The largest built-in model of the family below some size: of the same kind and no older, with the
 * same vocabulary but for its padding (1 %). NULL: none. Of two alike the one named more alike. */
static vp_status next_smaller(const vp_model *like, int64_t below, const vp_zoo_entry **out,
                              int64_t *n_params, vp_err *err)
{
    const vp_zoo_entry *entry;
    vp_model           *model = NULL;
    vp_status           st    = VP_OK;

    *out      = NULL;
    *n_params = 0;
    for (int i = 0; (entry = vp_zoo_at(i)); i++) {
        if (!vp_zoo_has_graph(entry) || strncmp(entry->name, like->name, 3) != 0 ||
            generation(entry->name) < generation(like->name))
            continue;
        VP_TRY(vp_model_open(entry->name, &(vp_model_opts){0}, &model, err));
        int64_t words = vocabulary(like), off = llabs(vocabulary(model) - words);
        bool    family = strcmp(model->family, like->family) == 0 && off <= words / 100;
        bool    better = model->n_params > *n_params ||
                      (model->n_params == *n_params &&
                       alike(entry->name, like->name) > alike((*out)->name, like->name));
        if (family && model->n_params < below && better) {
            *out      = entry;
            *n_params = model->n_params;
        }
        vp_model_free(model);
        model = NULL;
    }
out:
    vp_model_free(model);
    return st;
}

static vp_status try_models(trail *t, vp_err *err)
{
    const finder       *f = t->f;
    const vp_zoo_entry *entry;
    vp_model           *model   = NULL;
    int64_t             below   = f->r.model->n_params;
    int                 n_taken = 0;
    vp_status           st      = VP_OK;

    while (vp_zoo_find(f->r.model->name) && !n_taken) {
        vp_plan_request smaller = f->r;
        vp_change       change  = f->from;
        VP_TRY(next_smaller(f->r.model, below, &entry, &below, err));
        if (!entry)
            break;
        vp_model_opts opts = {.dropout    = f->r.recipe.dropout,
                              .class_name = f->r.model->class_name,
                              .lora       = &f->r.recipe.lora};
        VP_TRY(vp_model_open(entry->name, &opts, &model, err));
        change.model = entry->name;
        if (smaller.seq <= model->graph.max_seq)
            VP_TRY(try_recipes_with(t, model, &change, &smaller, &n_taken, err));
        vp_model_free(model);
        model = NULL;
    }
out:
    vp_model_free(model);
    return st;
}

/* ---- all of them ---- */

/* What the asked model can do: pins left free, host memory, recipes, sequences. */
static vp_status try_model(trail *t, int *n_recipes, vp_err *err)
{
    const finder *f    = t->f;
    bool          fits = false;
    vp_status     st   = VP_OK;

    *n_recipes = 0;
    if (f->from.frees_pins)
        VP_TRY(try_change(t, &f->from, &f->r, NULL, &fits, err));
    VP_TRY(try_host(t, err));
    VP_TRY(try_pinned(t, err));
    VP_TRY(try_drive(t, err));
    VP_TRY(try_recipes(t, &f->from, &f->r, f->like, 1, MAX_RECIPE_CHANGES, MAX_RECIPE_CHANGES,
                       n_recipes, err));
    VP_TRY(try_sequences(t, *n_recipes > 0, err));
out:
    return st;
}

/* More of the device, or another. */
static vp_status try_room(trail *t, const vp_plan_answer *a, bool recipe_found, vp_err *err)
{
    bool      fits = false;
    vp_status st   = VP_OK;

    VP_TRY(try_budget(t, a, &fits, err));
    if (!fits)
        VP_TRY(try_devices(t, recipe_found, err));
out:
    return st;
}

/* Changes of model, which share nothing with the others: they may be tried before it is known that they are wanted. */
typedef struct other_model {
    trail     trail;
    vp_beside beside;
    bool      fits;
    vp_err    err;
    vp_status st;
} other_model;

static void look_at_adapters(void *with)
{
    other_model *o = with;

    o->st = try_adapters(&o->trail, &o->fits, &o->err);
}

static void look_at_models(void *with)
{
    other_model *o = with;

    o->st = try_models(&o->trail, &o->err);
}

/* Where nobody has begun it, here. */
static vp_status settle(other_model *o, void (*look)(void *), const trail *before, vp_err *err)
{
    if (vp_beside_take_back(&o->beside)) {
        o->trail.n_before       = before->n_before + before->n;
        o->trail.n_taken_before = before->n_taken_before + before->n_taken;
        look(o);
    } else {
        vp_beside_finish(&o->beside);
    }
    if (o->st != VP_OK)
        *err = o->err;
    return o->st;
}

/* What was tried after all that stands in *out. */
static void append(const trail *t, vp_changes *out, int64_t *n_planned)
{
    for (int64_t i = 0; i < t->n && *n_planned < MAX_PLANNED && out->n < VP_MAX_CHANGES; i++) {
        ++*n_planned;
        if (t->tried[i].taken)
            out->changes[out->n++] = t->tried[i].change;
    }
}

/* All trails of a request. */
typedef struct trails {
    trail       model, sgd, room;
    other_model adapters, smaller;
    atomic_bool no_adapters, none;
} trails;

static vp_status try_all(const finder *f, trails *t, const vp_plan_answer *a, int *n_recipes,
                         vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(try_model(&t->model, n_recipes, err));
    atomic_store(&t->no_adapters, *n_recipes > 0);
    t->sgd.n_before = t->room.n_before = t->model.n;
    t->sgd.n_taken_before = t->room.n_taken_before = t->model.n_taken;
    VP_TRY(try_room(&t->room, a, *n_recipes > 0, err));
    if (!*n_recipes)
        VP_TRY(settle(&t->adapters, look_at_adapters, &t->model, err));
    if (!*n_recipes && !t->adapters.fits && !f->any_optimizer &&
        f->r.recipe.optimizer != VP_OPT_SGD)
        VP_TRY(try_sgd(&t->sgd, err));
    VP_TRY(settle(&t->smaller, look_at_models, &t->room, err));
out:
    return st;
}

static vp_status find(const finder *f, const vp_plan_answer *a, vp_changes *out, vp_err *err)
{
    trails   *t         = calloc(1, sizeof *t);
    int       n_recipes = 0;
    int64_t   n_planned = 0;
    vp_status st        = VP_OK;

    VP_TRY_ALLOC(err, t);
    t->model.f = t->sgd.f = t->room.f = t->adapters.trail.f = t->smaller.trail.f = f;
    t->adapters.trail.is_idle                                                    = &t->no_adapters;
    t->smaller.trail.is_idle                                                     = &t->none;
    vp_beside_offer(&t->adapters.beside, look_at_adapters, &t->adapters);
    vp_beside_offer(&t->smaller.beside, look_at_models, &t->smaller);
    st = try_all(f, t, a, &n_recipes, err);
    atomic_store(&t->no_adapters, true);
    atomic_store(&t->none, true);
    if (!vp_beside_take_back(&t->adapters.beside))
        vp_beside_finish(&t->adapters.beside);
    if (!vp_beside_take_back(&t->smaller.beside))
        vp_beside_finish(&t->smaller.beside);
    append(&t->model, out, &n_planned);
    if (!n_recipes) {
        append(&t->adapters.trail, out, &n_planned);
        append(&t->sgd, out, &n_planned);
    }
    append(&t->room, out, &n_planned);
    append(&t->smaller.trail, out, &n_planned);
out:
    free(t);
    return st;
}

vp_status vp_changes_find(const vp_plan_request *r, const vp_plan_answer *a, vp_changes *out,
                          vp_err *err)
{
    const vp_figures *least  = &a->least.figures;
    bool              pinned = vp_request_is_pinned(r);
    finder            f      = {.r             = *r,
                                .like          = pinned ? NULL : a,
                                .from          = {.frees_pins = pinned},
                                .any_precision = r->any_precision,
                                .any_gradients = r->any_gradients,
                                .any_optimizer = r->any_optimizer};

    *out            = (vp_changes){.persistent_bytes = least->stack_base_bytes,
                                   .outside_bytes    = least->device_bytes - least->peak_bytes,
                                   .activation_bytes = least->peak_bytes - least->stack_base_bytes,
                                   .persistent_alone = least->stack_base_bytes >
                                                       vp_device_arena_bytes(r->device, r->budget_bytes)};
    f.r.micro_batch = 0;
    f.r.recompute   = VP_RECOMPUTE_ANY;
    f.r.n_segments  = 0;
    f.r.loss_chunk  = VP_CHUNK_ANY;
    if (a->least_budget_bytes)
        narrow_to_leanest(&f.r, a);
    return find(&f, a, out, err);
}
