#include "trainers/fit/what_fits.h"

#include <stdlib.h>
#include <string.h>

typedef struct finder {
    vp_arena                *arena;
    const vp_choose_request *request;
    const vp_fit_defaults   *defaults;
    vp_eager_prices         *prices;
    vp_fit_changes          *found;
} finder;

/* r with the change, on this card or on another. */
static vp_choose_request changed(const finder *f, const vp_fit_change *c, const vp_device *card)
{
    vp_choose_request r = *f->request;

    r.job.terse = r.only_best = true;
    if (card) {
        r.job.device        = card;
        r.job.profile       = NULL;
        r.job.context_bytes = f->defaults->context_bytes(card);
        r.budget_bytes      = card->usable_bytes;
        *f->prices          = (vp_eager_prices){0}; /* those known are of the other card */
        r.job.prices        = f->prices;
    }
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
    if (c->world)
        r.world = c->world;
    if (c->seq)
        r.seq = c->seq;
    return r;
}

/* Whether it fits with the change, on this card or on another; it is added to what was found then. */
static bool try_change(finder *f, vp_fit_change c, const vp_device *card)
{
    vp_choose_request r      = changed(f, &c, card);
    vp_chosen         chosen = {0};
    vp_err            why    = {0};
    bool              fits;

    if (f->found->n == VP_MAX_FIT_CHANGES)
        return false;
    if (card)
        memcpy(c.device, card->name, sizeof c.device);
    fits = vp_choose(f->arena, &r, &chosen, &why) == VP_OK && chosen.best;
    if (fits) {
        c.high_bytes                     = chosen.best->bytes.high_bytes;
        c.seconds                        = chosen.best->seconds;
        f->found->changes[f->found->n++] = c;
    }
    vp_chosen_release(&chosen);
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

static bool try_recipes(finder *f)
{
    static const char *const eight = "adamw_8bit", *const pure = "bf16";
    bool has_bf16 = f->request->job.device->bf16;

    return try_change(f, (vp_fit_change){.optimizer = eight}, NULL) ||
           (has_bf16 &&
            (try_change(f, (vp_fit_change){.precision = pure}, NULL) ||
             try_change(f, (vp_fit_change){.optimizer = eight, .precision = pure}, NULL)));
}

static void try_cards_beside(finder *f)
{
    enum { MOST = 64 };
    const vp_choose_request *r    = f->request;
    int64_t                  each = r->micro_batch ? r->micro_batch : 1;

    for (int64_t world = 2 * r->world; world <= MOST && r->global_batch % (world * each) == 0;
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

static int by_size(const void *a, const void *b)
{
    const vp_device *x = a, *y = b;
    return (x->usable_bytes > y->usable_bytes) - (x->usable_bytes < y->usable_bytes);
}

/* least_bytes: what the leanest setting needs on this card. */
static vp_status try_other_cards(finder *f, int64_t least_bytes, vp_err *err)
{
    enum { MAX_CARDS = 256, TRIES = 3 };
    vp_device *cards = calloc(MAX_CARDS, sizeof *cards);
    int        n = 0, tried = 0;
    vp_status  st = VP_OK;

    VP_TRY_ALLOC(err, cards);
    while (n < MAX_CARDS && vp_device_at(n, &cards[n]))
        n++;
    qsort(cards, (size_t)n, sizeof *cards, by_size);
    for (int i = 0; i < n && tried < TRIES; i++) {
        if (cards[i].is_cpu || cards[i].usable_bytes <= f->request->budget_bytes ||
            cards[i].usable_bytes < least_bytes || cards[i].bf16 < f->request->job.device->bf16)
            continue;
        tried++;
        if (try_change(f, (vp_fit_change){0}, &cards[i]))
            break;
    }
out:
    free(cards);
    return st;
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
    if (is_pinned(request))
        try_change(&f, (vp_fit_change){.frees_pins = true}, NULL);
    if (full)
        try_recipes(&f);
    try_cards_beside(&f);
    if (full && !try_change(&f, (vp_fit_change){.lora = true}, NULL))
        try_change(&f, (vp_fit_change){.qlora = true}, NULL);
    if (trains_lora(request))
        try_change(&f, (vp_fit_change){.quantises = true}, NULL);
    if (!out->n)
        try_shorter(&f);
    VP_TRY(try_other_cards(&f, chosen->least ? chosen->least->bytes.high_bytes : 0, err));
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
out:
    return st;
}
