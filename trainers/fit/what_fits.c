#include "trainers/fit/what_fits.h"

#include "base/beside.h"
#include "trainers/hf/hf_priced.h"
#include "trainers/torch/world.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CARDS = 64 };

typedef struct listed_card {
    vp_device device;
    int64_t
        room; /* for what PyTorch's allocator takes: not for the process's own, nor for the reserve */
    int at;   /* in the table */
} listed_card;

/* Cards that have flash attention, or that have none, from the one with the least room on. */
typedef struct card_class {
    listed_card *cards;
    int          n;
} card_class;

/* What one piece of the search works with, on whichever thread. */
typedef struct finder {
    vp_arena                *arena;
    const vp_choose_request *request;
    const vp_fit_defaults   *defaults;
    vp_eager_prices         *as_asked, *prices; /* of the request's card and model; of another */
    const card_class *classes; /* by has_flash(): what may hold what the card asked for does not */
    int64_t least_bytes;     /* what the leanest setting needs on this card; later stages know it */
    int     n_before;        /* changes that were found in the stages before */
    const vp_model *smaller; /* the model that a change names */
    vp_status       last;    /* what the last search said */
    vp_fit_changes  found;
} finder;

/* What is used of a card where the reserve that was asked for stays free. */
static int64_t budget_of(const vp_fit_defaults *defaults, const vp_device *card)
{
    return card->usable_bytes - vp_amount_of(&defaults->reserve, card->usable_bytes);
}

/* Flash attention in 16 bits (trainers/hf/hf_request.h); without it a longer sequence takes more bytes. */
static bool has_flash(const vp_device *card)
{
    return card->compute_capability >= 80;
}

/* r with the change, on this card or on another. VP_ERR_INPUT: another trainer cannot answer it. */
static vp_status change_request(const finder *f, const vp_fit_change *c, const vp_device *card,
                                vp_choose_wanted wanted, vp_choose_request *out)
{
    vp_choose_request r   = *f->request;
    vp_err            why = {0};

    r.job.terse = true;
    r.wanted    = wanted;
    if (card) {
        r.job.device        = card;
        r.job.profile       = NULL;
        r.job.context_bytes = f->defaults->context_bytes(card);
        r.budget_bytes      = budget_of(f->defaults, card);
    }
    if (c->model) {
        r.job.model  = f->smaller;
        r.model_name = c->model;
    }
    r.job.prices = f->as_asked;
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
    if (c->loss)
        r.pinned[VP_SETTING_LOSS] = c->loss;
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

/* Whether it fits with the change, on this card or on another, which is written into it with the bytes and seconds of what was found. */
static bool choose_with(finder *f, vp_fit_change *c, const vp_device *card, vp_choose_wanted wanted)
{
    vp_choose_request r;
    vp_chosen         chosen = {0};
    vp_err            why    = {0};
    const char       *ignored;
    bool              fits = false;

    f->last = change_request(f, c, card, wanted, &r);
    if (f->last == VP_OK)
        f->last = f->defaults->precision && !c->precision
                      ? vp_choose_any_precision(f->arena, &r, &chosen, &ignored, &why)
                      : vp_choose(f->arena, &r, &chosen, &why);
    if (f->last == VP_OK && chosen.best) {
        if (card)
            memcpy(c->device, card->name, sizeof c->device);
        c->high_bytes = chosen.best->bytes->high_bytes;
        c->seconds    = chosen.best->seconds;
        fits          = true;
    }
    vp_chosen_release(&chosen);
    return fits;
}

static bool fits_with(finder *f, vp_fit_change *c, const vp_device *card)
{
    return choose_with(f, c, card, VP_CHOOSE_BEST);
}

static void add(vp_fit_changes *found, const vp_fit_change *c)
{
    if (found->n < VP_MAX_FIT_CHANGES)
        found->changes[found->n++] = *c;
}

/* Whether it fits with the change; it is added to what was found then. */
static bool try_change(finder *f, vp_fit_change c, const vp_device *card)
{
    bool fits = fits_with(f, &c, card);

    if (fits)
        add(&f->found, &c);
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

static void try_free_pins(finder *f)
{
    if (is_pinned(f->request))
        try_change(f, (vp_fit_change){.frees_pins = true}, NULL);
}

/* The word for Liger's kernels, where nobody said a loss and they are of the family; NULL: not so. */
static const char *liger_of(const vp_choose_request *r)
{
    return r->pinned[VP_SETTING_LOSS] ? NULL
                                      : vp_language_liger(r->job.language, r->job.model->family);
}

static void try_liger(finder *f)
{
    if (liger_of(f->request))
        try_change(f, (vp_fit_change){.loss = liger_of(f->request)}, NULL);
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

    if (!trains_all(f->request) || try_change(f, (vp_fit_change){.optimizer = eight}, NULL))
        return;
    if (f->request->world > 1)
        try_host(f);
    if (f->request->job.device->bf16 && !try_change(f, (vp_fit_change){.precision = pure}, NULL))
        try_change(f, (vp_fit_change){.optimizer = eight, .precision = pure}, NULL);
}

/* Behind the adapters; of several cards it is one of the recipes. */
static void try_host_of_one(finder *f)
{
    if (trains_all(f->request) && f->request->world < 2)
        try_host(f);
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

    if (f->n_before)
        return;
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

    if (!trains_all(f->request) || try_change(f, (vp_fit_change){.lora = true}, NULL))
        return;
    untold = f->last == VP_ERR_INPUT;
    if (try_change(f, (vp_fit_change){.qlora = true}, NULL))
        return;
    if (!untold || f->last != VP_ERR_INPUT) {
        if (liger_of(f->request))
            try_change(f, (vp_fit_change){.qlora = true, .loss = liger_of(f->request)}, NULL);
        return;
    }
    if (!try_change(f, (vp_fit_change){.lora = true, .trainer = other}, NULL))
        try_change(f, (vp_fit_change){.qlora = true, .trainer = other}, NULL);
}

static void try_quantised(finder *f)
{
    if (trains_lora(f->request) && !try_change(f, (vp_fit_change){.quantises = true}, NULL) &&
        liger_of(f->request))
        try_change(f, (vp_fit_change){.quantises = true, .loss = liger_of(f->request)}, NULL);
}

static int first_with(const card_class *class, int64_t room)
{
    int i = 0;

    while (i < class->n && class->cards[i].room < room)
        i++;
    return i;
}

/* Of one class, the smallest card that does with the change, among those with at least least_room. The least room that does is
 * that which what was found on another says, or is found by halving; with more of it a card holds the same, but for what its own
 * libraries take. NULL: none. */
static const listed_card *smallest_of(finder *f, vp_fit_change c, const card_class *class,
                                      int64_t least_room)
{
    int     low = first_with(class, least_room) - 1, high = class->n - 1, at = high;
    int64_t needed = INT64_MAX;

    if (high <= low)
        return NULL;
    for (high++; high - low > 1; at = first_with(class, needed)) {
        if (at <= low || at >= high)
            at = (low + high) / 2;
        if (choose_with(f, &c, &class->cards[at].device, VP_CHOOSE_ANY)) {
            high   = at;
            needed = c.high_bytes - f->defaults->context_bytes(&class->cards[at].device);
        } else if (at == class->n - 1) {
            return NULL;
        } else {
            low = at;
        }
    }
    for (at = high; high < class->n; high++)
        if (class->cards[high].device.usable_bytes < class->cards[at].device.usable_bytes)
            at = high;
    return &class->cards[at];
}

/* With the change: the smallest card that does, with flash attention or without. Of the class that the card asked for is of none
 * does with less than least_room. */
static bool try_smallest_card(finder *f, vp_fit_change c, int64_t least_room)
{
    const vp_device   *asked = f->request->job.device;
    const listed_card *best  = NULL;

    for (int flash = 0; flash < 2; flash++) {
        const listed_card *one =
            smallest_of(f, c, &f->classes[flash], has_flash(asked) == (bool)flash ? least_room : 0);
        if (one && (!best || one->device.usable_bytes < best->device.usable_bytes))
            best = one;
    }
    return best && try_change(f, c, &best->device);
}

/* Libraries of another card take a little less or more than those of the one whose least is known. */
static void try_other_cards(finder *f)
{
    enum { NEARLY = 32 };
    int64_t least = f->least_bytes - f->defaults->context_bytes(f->request->job.device);

    try_smallest_card(f, (vp_fit_change){0}, least - least / NEARLY);
}

/* Adapters there. */
static void try_larger_card(finder *f)
{
    if (trains_all(f->request) && !try_smallest_card(f, (vp_fit_change){.qlora = true}, 0))
        try_smallest_card(f, (vp_fit_change){.lora = true}, 0);
}

static void try_many_larger_cards(finder *f)
{
    const vp_choose_request *r    = f->request;
    int64_t                  each = r->micro_batch ? r->micro_batch : 1;

    for (int64_t world = 2 * r->world; world <= MOST_CARDS && r->global_batch % (world * each) == 0;
         world *= 2)
        if (try_smallest_card(f, (vp_fit_change){.world = world}, 0))
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

/* A built-in model, if it is of this family. NULL: another, or none whose steps are priced. */
static vp_model *open_of_family(const finder *f, const vp_zoo_entry *z, const char *family)
{
    vp_model_opts opts = {.dropout_from_config = true, .config_only = !vp_zoo_has_graph(z)};
    vp_model     *model;
    vp_err        why = {0};

    if (vp_model_open(z->name, &opts, &model, &why) != VP_OK)
        return NULL;
    if (strcmp(model->family, family) == 0 &&
        (vp_zoo_has_graph(z) ||
         vp_hf_add_priced_graph(model, f->request->job.shelf, &why) == VP_OK))
        return model;
    vp_model_free(model);
    return NULL;
}

/* The family's smaller models that have at least a SMALLEST-th of the parameters. The caller frees each. */
static int list_relatives(const finder *f, relative **out)
{
    enum { SMALLEST = 16 };
    const vp_model *of = f->request->job.model;
    int             n = 0, n_out = 0;

    while (vp_zoo_at(n))
        n++;
    *out = vp_arena_array(f->arena, n, sizeof **out);
    for (int i = 0; *out && i < n; i++) {
        const vp_zoo_entry *z     = vp_zoo_at(i);
        vp_model           *model = z->hub_id ? open_of_family(f, z, of->family) : NULL;
        if (model && model->n_params < of->n_params && model->n_params >= of->n_params / SMALLEST &&
            f->request->seq <= vp_graph_longest(&model->graph))
            (*out)[n_out++] = (relative){z, model, n_alike(z->name, of->name)};
        else
            vp_model_free(model);
    }
    if (*out)
        qsort(*out, (size_t)n_out, sizeof **out, by_nearness);
    return n_out;
}

/* The nearest smaller model that fits as it is, and a larger one whose adapters do. */
static void try_smaller_models(finder *f)
{
    enum { TRIES = 3 };
    relative *list         = NULL;
    int       n            = list_relatives(f, &list);
    bool      has_adapters = !trains_all(f->request);

    for (int i = 0; i < n && i < TRIES; i++) {
        f->smaller = list[i].model;
        if (try_change(f, (vp_fit_change){.model = list[i].entry->name}, NULL))
            break;
        if (!has_adapters)
            has_adapters =
                try_change(f, (vp_fit_change){.model = list[i].entry->name, .qlora = true}, NULL);
    }
    for (int i = 0; i < n; i++)
        vp_model_free(list[i].model);
}

/* ---- the pieces, on two cores ---- */

/* One begins when those before it have ended. */
typedef enum stage { AT_ONCE, LEAST_IS_KNOWN, NOTHING_FITS_YET } stage;

/* In the order of the changes. */
static const struct {
    void (*look)(finder *f);
    stage stage;
} pieces[] = {
    {try_free_pins, AT_ONCE},
    {try_liger, AT_ONCE},
    {try_recipes, AT_ONCE},
    {try_cards_beside, AT_ONCE},
    {try_adapters, AT_ONCE},
    {try_host_of_one, AT_ONCE},
    {try_quantised, AT_ONCE},
    {try_shorter, LEAST_IS_KNOWN},
    {try_other_cards, LEAST_IS_KNOWN},
    {try_larger_card, NOTHING_FITS_YET},
    {try_many_larger_cards, NOTHING_FITS_YET},
    {try_smaller_models, NOTHING_FITS_YET},
};
enum { N_PIECES = sizeof pieces / sizeof *pieces };

struct vp_fit_search {
    vp_arena         *arena;
    vp_choose_request request;
    vp_fit_defaults   defaults;
    card_class        classes[2]; /* by has_flash() */
    finder            finders[N_PIECES];
    stage             stage;
    atomic_int        n_taken; /* pieces, whoever looks at them */
    vp_beside         beside;
};

static int by_room(const void *a, const void *b)
{
    const listed_card *x = a, *y = b;

    if (x->room != y->room)
        return x->room < y->room ? -1 : 1;
    if (x->device.usable_bytes != y->device.usable_bytes)
        return x->device.usable_bytes < y->device.usable_bytes ? -1 : 1;
    return x->at - y->at;
}

/* Of cards with as much room, the smallest, or the first of the table. */
static void keep_rooms(card_class *class)
{
    int n = 0;

    qsort(class->cards, (size_t) class->n, sizeof *class->cards, by_room);
    for (int i = 0; i < class->n; i++)
        if (!n || class->cards[i].room > class->cards[n - 1].room)
            class->cards[n++] = class->cards[i];
    class->n = n;
}

/* With more room, or with flash attention where the one asked for has none. */
static bool may_hold_more(const vp_fit_search *s, const listed_card *c)
{
    const vp_device *asked = s->request.job.device;

    return !c->device.is_cpu && c->device.bf16 >= asked->bf16 &&
           (c->room > s->request.budget_bytes - s->defaults.context_bytes(asked) ||
            (has_flash(&c->device) && !has_flash(asked)));
}

static vp_status list_cards(vp_fit_search *s, vp_err *err)
{
    vp_device ignored;
    int       n  = 0;
    vp_status st = VP_OK;

    while (vp_device_at(n, &ignored))
        n++;
    for (int i = 0; i < 2; i++) {
        s->classes[i].cards = vp_arena_array(s->arena, n ? n : 1, sizeof(listed_card));
        VP_TRY_ALLOC(err, s->classes[i].cards);
    }
    for (int i = 0; i < n; i++) {
        listed_card c = {.at = i};
        if (!vp_device_at(i, &c.device))
            continue;
        card_class *class = &s->classes[has_flash(&c.device)];
        c.room = budget_of(&s->defaults, &c.device) - s->defaults.context_bytes(&c.device);
        if (may_hold_more(s, &c))
            class->cards[class->n++] = c;
    }
    for (int i = 0; i < 2; i++)
        keep_rooms(&s->classes[i]);
out:
    return st;
}

/* One piece of the stage after the other, until all are taken; the last first, which take longest where the least is known. */
static void look(void *search)
{
    vp_fit_search *s = search;

    for (int i; (i = atomic_fetch_add(&s->n_taken, 1)) < N_PIECES;)
        if (pieces[N_PIECES - 1 - i].stage == s->stage)
            pieces[N_PIECES - 1 - i].look(&s->finders[N_PIECES - 1 - i]);
}

static void begin_stage(vp_fit_search *s, stage next)
{
    s->stage = next;
    atomic_store(&s->n_taken, 0);
    vp_beside_offer(&s->beside, look, s);
}

static void end_stage(vp_fit_search *s)
{
    look(s);
    vp_beside_finish(&s->beside);
}

static int n_found(const vp_fit_search *s)
{
    int n = 0;

    for (int i = 0; i < N_PIECES; i++)
        n += s->finders[i].found.n;
    return n;
}

static vp_status begin_finder(vp_fit_search *s, finder *f, vp_err *err)
{
    vp_status st = VP_OK;

    *f = (finder){.arena    = vp_arena_new(), /* of its own: a thread's */
                  .request  = &s->request,
                  .defaults = &s->defaults,
                  .classes  = s->classes};
    VP_TRY_ALLOC(err, f->arena);
    f->as_asked = vp_arena_array(f->arena, 1, sizeof *f->as_asked);
    f->prices   = vp_arena_array(f->arena, 1, sizeof *f->prices);
    VP_TRY_ALLOC(err, f->as_asked && f->prices);
    if (s->request.job.prices)
        *f->as_asked = *s->request.job.prices;
out:
    return st;
}

vp_status vp_fit_search_begin(const vp_choose_request *request, const vp_fit_defaults *defaults,
                              vp_fit_search **out, vp_err *err)
{
    vp_fit_search *s  = calloc(1, sizeof *s);
    vp_status      st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, s);
    s->request  = *request;
    s->defaults = *defaults;
    s->arena    = vp_arena_new();
    VP_TRY_ALLOC(err, s->arena);
    VP_TRY(list_cards(s, err));
    for (int i = 0; i < N_PIECES; i++)
        VP_TRY(begin_finder(s, &s->finders[i], err));
    begin_stage(s, AT_ONCE);
    *out = s;
    s    = NULL;
out:
    vp_fit_search_free(s);
    return st;
}

void vp_fit_search_least(vp_fit_search *s, int64_t least_bytes)
{
    end_stage(s);
    for (int i = 0; i < N_PIECES; i++) {
        s->finders[i].least_bytes = least_bytes;
        s->finders[i].n_before    = n_found(s);
    }
    begin_stage(s, LEAST_IS_KNOWN);
}

vp_status vp_fit_search_end(vp_fit_search *s, vp_fit_changes *out, vp_err *err)
{
    vp_status st = VP_OK;

    *out = (vp_fit_changes){0};
    end_stage(s);
    if (!n_found(s)) {
        begin_stage(s, NOTHING_FITS_YET);
        end_stage(s);
    }
    for (int i = 0; i < N_PIECES; i++) {
        for (int k = 0; k < s->finders[i].found.n; k++)
            add(out, &s->finders[i].found.changes[k]);
        VP_TRY_ALLOC(err, !vp_arena_failed(s->finders[i].arena));
    }
out:
    return st;
}

void vp_fit_search_free(vp_fit_search *s)
{
    if (!s)
        return;
    if (!vp_beside_take_back(&s->beside))
        vp_beside_finish(&s->beside);
    for (int i = 0; i < N_PIECES; i++)
        vp_arena_free(s->finders[i].arena);
    vp_arena_free(s->arena);
    free(s);
}
