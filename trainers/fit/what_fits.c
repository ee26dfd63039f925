#include "trainers/fit/what_fits.h"

#include "trainers/torch/world.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CARDS = 64 };

typedef struct finder {
    vp_arena                *arena;
    const vp_choose_request *request;
    const vp_fit_defaults   *defaults;
    vp_eager_prices         *prices;
    vp_device      *cards; /* that hold more than the one asked for, from the smallest on */
    int             n_cards;
    const vp_model *smaller; /* the model that a change names */
    vp_status       last;    /* what the last search said */
    vp_fit_changes *found;
} finder;

/* r with the change, on this card or on another. VP_ERR_INPUT: another trainer cannot answer it. */
static vp_status change_request(const finder *f, const vp_fit_change *c, const vp_device *card,
                                vp_choose_request *out)
{
    vp_choose_request r   = *f->request;
    vp_err            why = {0};

    r.job.terse = r.only_best = true;
    if (card) {
        r.job.device        = card;
        r.job.profile       = NULL;
        r.job.context_bytes = f->defaults->context_bytes(card);
        r.budget_bytes      = card->usable_bytes;
    }
    if (c->model) {
        r.job.model  = f->smaller;
        r.model_name = c->model;
    }
    if (card || c->model) { /* those known are of the other card or model */
        *f->prices   = (vp_eager_prices){0};
        r.job.prices = f->prices;
    }
    if (c->trainer && (vp_target_named(c->trainer, &r.target, &why) != VP_OK ||
                       vp_language_of(r.target, &r.job.language, &why) != VP_OK))
        return VP_ERR_INPUT;
    if (c->frees_pins) {
        r.micro_batch                  = 0;
        r.pinned[VP_SETTING_RECOMPUTE] = r.pinned[VP_SETTING_ATTENTION] =
            r.pinned[VP_SETTING_LOSS]  = NULL;
    }
    if (c->optimizer)
        r.pinned[VP_SETTING_OPTIMIZER] = c->optimizer;
    if (c->lora || c->qlora) {
        r.pinned[VP_SETTING_TUNING]       = c->qlora ? "qlora" : "lora";
        r.pinned[VP_SETTING_LORA_R]       = vp_arena_printf(f->arena, "%d", VP_FIT_RANK);
        r.pinned[VP_SETTING_LORA_ALPHA]   = vp_arena_printf(f->arena, "%d", 2 * VP_FIT_RANK);
        r.pinned[VP_SETTING_LORA_DROPOUT] = "0";
        r.pinned[VP_SETTING_LORA_TARGETS] = "all-linear";
    }
    if (c->quantises)
        r.pinned[VP_SETTING_TUNING] = "qlora";
    if (f->defaults->precision)
        r.pinned[VP_SETTING_PRECISION] = f->defaults->precision(
            card ? card : r.job.device, r.pinned[VP_SETTING_TUNING], r.job.language);
    if (c->precision)
        r.pinned[VP_SETTING_PRECISION] = c->precision;
    if (c->offload)
        r.pinned[VP_SETTING_OFFLOAD_OPTIMIZER] = "cpu";
    if (c->offload && strcmp(c->offload, "params") == 0)
        r.pinned[VP_SETTING_OFFLOAD_PARAMS] = "cpu";
    if (c->offload && r.world < 2)
        r.pinned[VP_SETTING_PARALLEL] = vp_world_offloads_one(c->offload);
    if (c->world)
        r.world = c->world;
    if (c->seq)
        r.seq = c->seq;
    *out = r;
    return VP_OK;
}

/* Whether it fits with the change, on this card or on another, which is written into it with its bytes and seconds. */
static bool fits_with(finder *f, vp_fit_change *c, const vp_device *card)
{
    vp_choose_request r;
    vp_chosen         chosen = {0};
    vp_err            why    = {0};
    const char       *ignored;
    bool              fits = false;

    f->last = change_request(f, c, card, &r);
    if (f->last == VP_OK)
        f->last = f->defaults->precision && !c->precision
                      ? vp_choose_any_precision(f->arena, &r, &chosen, &ignored, &why)
                      : vp_choose(f->arena, &r, &chosen, &why);
    if (f->last == VP_OK && chosen.best) {
        if (card)
            memcpy(c->device, card->name, sizeof c->device);
        c->high_bytes = chosen.best->bytes.high_bytes;
        c->seconds    = chosen.best->seconds;
        fits          = true;
    }
    vp_chosen_release(&chosen);
    return fits;
}

static void add(finder *f, const vp_fit_change *c)
{
    if (f->found->n < VP_MAX_FIT_CHANGES)
        f->found->changes[f->found->n++] = *c;
}

/* Whether it fits with the change; it is added to what was found then. */
static bool try_change(finder *f, vp_fit_change c, const vp_device *card)
{
    bool fits = f->found->n < VP_MAX_FIT_CHANGES && fits_with(f, &c, card);

    if (fits)
        add(f, &c);
    return fits;
}

static bool is_pinned(const vp_choose_request *r)
{
    return r->micro_batch || r->pinned[VP_SETTING_RECOMPUTE] || r->pinned[VP_SETTING_ATTENTION] ||
           r->pinned[VP_SETTING_LOSS];
}

static bool trains_all(const vp_choose_request *r)
{
    const char *tuning = r->pinned[VP_SETTING_TUNING];

    return !tuning || strcmp(tuning, "full") == 0;
}

static bool trains_lora(const vp_choose_request *r)
{
    const char *tuning = r->pinned[VP_SETTING_TUNING];

    return tuning && strcmp(tuning, "lora") == 0;
}

/* Nothing is learned otherwise. One card has it from DeepSpeed, in the way that plan takes --offload for. */
static void try_host(finder *f)
{
    static const char *const what[] = {"optimizer", "params"};
    const char              *states = f->request->pinned[VP_SETTING_OFFLOAD_OPTIMIZER];

    if ((states && strcmp(states, "none") != 0) ||
        (f->request->world < 2 && f->request->pinned[VP_SETTING_PARALLEL]))
        return;
    for (size_t i = 0; i < sizeof what / sizeof *what; i++)
        if (try_change(f, (vp_fit_change){.offload = what[i]}, NULL))
            return;
}

static void try_recipes(finder *f)
{
    static const char *const eight = "adamw_8bit", *const pure = "bf16";

    if (try_change(f, (vp_fit_change){.optimizer = eight}, NULL))
        return;
    if (f->request->world > 1)
        try_host(f);
    if (f->request->job.device->bf16 && !try_change(f, (vp_fit_change){.precision = pure}, NULL))
        try_change(f, (vp_fit_change){.optimizer = eight, .precision = pure}, NULL);
}

static void try_cards_beside(finder *f)
{
    const vp_choose_request *r    = f->request;
    int64_t                  each = r->micro_batch ? r->micro_batch : 1;

    for (int64_t world = 2 * r->world; world <= MOST_CARDS && r->global_batch % (world * each) == 0;
         world *= 2)
        if (try_change(f, (vp_fit_change){.world = world}, NULL))
            return;
}

/* As it is; then, where the whole model was to be trained, as adapters over weights in NF4. */
static void try_shorter(finder *f)
{
    enum { LEAST = 128 };

    for (int64_t seq = f->request->seq / 2, n = 0; seq >= LEAST && n < 3; seq /= 2, n++)
        if (try_change(f, (vp_fit_change){.seq = seq}, NULL) ||
            (trains_all(f->request) &&
             try_change(f, (vp_fit_change){.seq = seq, .qlora = true}, NULL)))
            return;
}

/* Adapters; in a trainer that can be told of them, where this one cannot. */
static void try_adapters(finder *f)
{
    static const char *const other = "hf";
    bool                     untold;

    if (try_change(f, (vp_fit_change){.lora = true}, NULL))
        return;
    untold = f->last == VP_ERR_INPUT;
    if (try_change(f, (vp_fit_change){.qlora = true}, NULL) || !untold || f->last != VP_ERR_INPUT)
        return;
    if (!try_change(f, (vp_fit_change){.lora = true, .trainer = other}, NULL))
        try_change(f, (vp_fit_change){.qlora = true, .trainer = other}, NULL);
}

static int by_size(const void *a, const void *b)
{
    const vp_device *x = a, *y = b;
    return (x->usable_bytes > y->usable_bytes) - (x->usable_bytes < y->usable_bytes);
}

/* Of cards whose bytes are within ALIKE percent, one: the others hold the same settings. */
static void keep_sizes(finder *f)
{
    enum { ALIKE = 2 };
    int n = 0;

    for (int i = 0; i < f->n_cards; i++)
        if (!n || f->cards[i].usable_bytes >
                      f->cards[n - 1].usable_bytes + f->cards[n - 1].usable_bytes / 100 * ALIKE)
            f->cards[n++] = f->cards[i];
    f->n_cards = n;
}

static vp_status list_cards(finder *f, vp_err *err)
{
    const vp_choose_request *r = f->request;
    vp_device                card;
    int                      n  = 0;
    vp_status                st = VP_OK;

    while (vp_device_at(n, &card))
        n++;
    f->cards = vp_arena_array(f->arena, n ? n : 1, sizeof *f->cards);
    VP_TRY_ALLOC(err, f->cards);
    for (int i = 0; i < n; i++)
        if (vp_device_at(i, &card) && !card.is_cpu && card.usable_bytes > r->budget_bytes &&
            card.bf16 >= r->job.device->bf16)
            f->cards[f->n_cards++] = card;
    qsort(f->cards, (size_t)f->n_cards, sizeof *f->cards, by_size);
    keep_sizes(f);
out:
    return st;
}

/* least_bytes: what the leanest setting needs on this card. */
static void try_other_cards(finder *f, int64_t least_bytes)
{
    enum { TRIES = 3 };
    int tried = 0;

    for (int i = 0; i < f->n_cards && tried < TRIES; i++) {
        if (f->cards[i].usable_bytes < least_bytes)
            continue;
        tried++;
        if (try_change(f, (vp_fit_change){0}, &f->cards[i]))
            break;
    }
}

/* With the change: the smallest card that does, found by halving. A larger one holds what a smaller one does, but for what
 * its own libraries take. */
static bool try_smallest_card(finder *f, vp_fit_change c)
{
    vp_fit_change best = {0};
    int           low = -1, high = f->n_cards - 1;

    if (high < 0 || !fits_with(f, &c, &f->cards[high]))
        return false;
    best = c;
    while (high - low > 1) {
        int           at  = (low + high) / 2;
        vp_fit_change one = c;
        if (fits_with(f, &one, &f->cards[at])) {
            best = one;
            high = at;
        } else {
            low = at;
        }
    }
    add(f, &best);
    return true;
}

static void try_many_larger_cards(finder *f)
{
    const vp_choose_request *r    = f->request;
    int64_t                  each = r->micro_batch ? r->micro_batch : 1;

    for (int64_t world = 2 * r->world; world <= MOST_CARDS && r->global_batch % (world * each) == 0;
         world *= 2)
        if (try_smallest_card(f, (vp_fit_change){.world = world}))
            return;
}

typedef struct relative {
    const vp_zoo_entry *entry;
    vp_model           *model;
    int                 n_alike; /* letters that the names begin with together */
} relative;

/* Of the same name first ("llama-3.1-8b" for "llama-3.1-70b"), then the largest. */
static int by_nearness(const void *a, const void *b)
{
    const relative *x = a, *y = b;
    int             alike = (y->n_alike > x->n_alike) - (y->n_alike < x->n_alike);
    int64_t         m = x->model->n_params, n = y->model->n_params;

    return alike ? alike : (n > m) - (n < m);
}

/* As far as the last '-' that both have. */
static int n_alike(const char *a, const char *b)
{
    int alike = 0;

    for (int i = 0; a[i] && a[i] == b[i]; i++)
        alike = a[i] == '-' ? i + 1 : alike;
    return alike;
}

/* The family's smaller models that have at least a SMALLEST-th of the parameters. The caller frees each. */
static vp_status list_relatives(const finder *f, relative **out, int *n_out, vp_err *err)
{
    enum { SMALLEST = 16 };
    vp_model_opts   opts = {.dropout_from_config = true};
    const vp_model *of   = f->request->job.model;
    int             n    = 0;
    vp_status       st   = VP_OK;

    *n_out = 0;
    while (vp_zoo_at(n))
        n++;
    *out = vp_arena_array(f->arena, n, sizeof **out);
    VP_TRY_ALLOC(err, *out);
    for (int i = 0; i < n; i++) {
        const vp_zoo_entry *z     = vp_zoo_at(i);
        vp_model           *model = NULL;
        vp_err              why   = {0};
        if (z->hub_id && vp_zoo_has_graph(z) &&
            vp_model_open(z->name, &opts, &model, &why) == VP_OK &&
            strcmp(model->family, of->family) == 0 && model->n_params < of->n_params &&
            model->n_params >= of->n_params / SMALLEST && f->request->seq <= model->graph.max_seq)
            (*out)[(*n_out)++] = (relative){z, model, n_alike(z->name, of->name)};
        else
            vp_model_free(model);
    }
    qsort(*out, (size_t)*n_out, sizeof **out, by_nearness);
out:
    return st;
}

/* The nearest smaller model that fits as it is, and a larger one whose adapters do. */
static vp_status try_smaller_models(finder *f, vp_err *err)
{
    enum { TRIES = 3 };
    relative *list = NULL;
    int       n    = 0;
    bool      full = trains_all(f->request), has_adapters = !full;
    vp_status st = VP_OK;

    VP_TRY(list_relatives(f, &list, &n, err));
    for (int i = 0; i < n && i < TRIES; i++) {
        f->smaller = list[i].model;
        if (try_change(f, (vp_fit_change){.model = list[i].entry->name}, NULL))
            break;
        if (!has_adapters)
            has_adapters =
                try_change(f, (vp_fit_change){.model = list[i].entry->name, .qlora = true}, NULL);
    }
out:
    for (int i = 0; i < n; i++)
        vp_model_free(list[i].model);
    return st;
}

/* Two things at once. */
static vp_status try_together(finder *f, vp_err *err)
{
    if (trains_all(f->request)) {
        if (!try_smallest_card(f, (vp_fit_change){.qlora = true}))
            try_smallest_card(f, (vp_fit_change){.lora = true});
    }
    try_many_larger_cards(f);
    return try_smaller_models(f, err);
}

vp_status vp_fit_changes_find(vp_arena *arena, const vp_choose_request *request,
                              const vp_chosen *chosen, const vp_fit_defaults *defaults,
                              vp_fit_changes *out, vp_err *err)
{
    finder    f    = {.arena    = arena,
                      .request  = request,
                      .defaults = defaults,
                      .prices   = vp_arena_array(arena, 1, sizeof *f.prices),
                      .found    = out};
    bool      full = trains_all(request);
    vp_status st   = VP_OK;

    *out = (vp_fit_changes){0};
    VP_TRY_ALLOC(err, f.prices);
    VP_TRY(list_cards(&f, err));
    if (is_pinned(request))
        try_change(&f, (vp_fit_change){.frees_pins = true}, NULL);
    if (full)
        try_recipes(&f);
    try_cards_beside(&f);
    if (full)
        try_adapters(&f);
    if (full && request->world < 2)
        try_host(&f);
    if (trains_lora(request))
        try_change(&f, (vp_fit_change){.quantises = true}, NULL);
    if (!out->n)
        try_shorter(&f);
    try_other_cards(&f, chosen->least ? chosen->least->bytes.high_bytes : 0);
    if (!out->n)
        VP_TRY(try_together(&f, err));
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
out:
    return st;
}
