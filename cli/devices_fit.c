#include "cli/devices_fit.h"

#include "base/text.h"
#include "base/units.h"
#include "cli/estimate.h"
#include "cli/names.h"
#include "cli/paint.h"
#include "cli/screen.h"
#include "cli/words.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct card_row {
    vp_device device;
    int64_t   needs_bytes; /* of the leanest plan there; 0: it has not the number format */
} card_row;

enum { MAX_CARDS = 128 };

typedef struct fitting {
    card_row *cards; /* of the table, smallest first once all are known */
    int       n, n_fit;
    vp_recipe recipe;      /* of the last that was asked about */
    int64_t   least_bytes; /* that any card would have to have */
} fitting;

static int by_size(const void *a, const void *b)
{
    const card_row *x = a, *y = b;

    return (x->device.usable_bytes > y->device.usable_bytes) -
           (x->device.usable_bytes < y->device.usable_bytes);
}

/* The least that a plan needs on a card; 0: the card has not the number format. */
static vp_status least_on(const vp_device *card, const char *model, const vp_plan_options *asked,
                          fitting *f, int64_t *needs_bytes, vp_err *err)
{
    vp_plan_options o      = *asked;
    vp_plan_job     job    = {0};
    vp_err          lacks  = {0};
    vp_precision    wanted = VP_PREC_FP32;
    vp_status       st     = VP_OK;

    *needs_bytes = 0;
    o.device     = card->name;
    if (o.precision)
        VP_TRY(vp_parse_precision(o.precision, false, NULL, &wanted, err));
    if (vp_check_precision(card, wanted, &lacks) != VP_OK)
        return VP_OK;
    VP_TRY(vp_plan_job_open(model, &o, &job, err));
    VP_TRY(vp_planner_least(&job.request, NULL, needs_bytes, err));
    f->recipe = job.request.recipe;
out:
    vp_plan_job_release(&job);
    return st;
}

/* Bytes depend on a card by its workspaces, by what lies outside the arena, and by its number formats. */
static bool is_same_to_a_plan(const vp_device *a, const vp_device *b)
{
    return a->compute_capability == b->compute_capability && a->outside_bytes == b->outside_bytes &&
           a->granule_bytes == b->granule_bytes && a->bf16 == b->bf16 && a->fp8 == b->fp8;
}

static bool does_fit(const card_row *card)
{
    return card->needs_bytes && card->needs_bytes <= card->device.usable_bytes;
}

static vp_status ask_all(const char *model, const vp_plan_options *asked, fitting *f, vp_err *err)
{
    vp_device card;
    vp_status st = VP_OK;

    for (; vp_device_at(f->n, &card); f->n++) {
        int64_t needs;
        int     like = 0;
        assert(f->n < MAX_CARDS);
        while (like < f->n && !is_same_to_a_plan(&f->cards[like].device, &card))
            like++;
        if (like < f->n)
            needs = f->cards[like].needs_bytes;
        else
            VP_TRY(least_on(&card, model, asked, f, &needs, err));
        f->cards[f->n] = (card_row){card, needs};
        f->n_fit += does_fit(&f->cards[f->n]);
        if (needs && (!f->least_bytes || needs < f->least_bytes))
            f->least_bytes = needs;
    }
    qsort(f->cards, (size_t)f->n, sizeof *f->cards, by_size);
out:
    return st;
}

static json_t *fit_json(const vp_devices_options *o, const vp_plan_options *asked, const fitting *f)
{
    json_t *list = json_array();

    for (int i = 0; i < f->n; i++)
        if (does_fit(&f->cards[i]))
            json_array_append_new(
                list, json_pack("{s:s, s:I, s:I}", "device", f->cards[i].device.name,
                                "usable_bytes", (json_int_t)f->cards[i].device.usable_bytes,
                                "needs_bytes", (json_int_t)f->cards[i].needs_bytes));
    return json_pack("{s:i, s:s, s:I, s:I, s:I, s:o}", "schema_version", 1, "model", o->model,
                     "seq", (json_int_t)asked->seq, "global_batch", (json_int_t)asked->global_batch,
                     "least_bytes", (json_int_t)f->least_bytes, "fits", list);
}

/* A plan on the smallest that would do, or on the largest there is: it says what else would. */
static void print_next(const vp_devices_options *o, const vp_plan_options *asked, const char *card)
{
    vp_text command = {0};

    vp_text_printf(&command, "vplan plan ");
    vp_text_quoted(&command, o->model);
    vp_text_printf(&command, " --device %s --seq %lld --global-batch %lld", card,
                   (long long)asked->seq, (long long)asked->global_batch);
    if (o->micro_batch)
        vp_text_printf(&command, " --micro-batch %lld", (long long)o->micro_batch);
    if (o->precision)
        vp_text_printf(&command, " --precision %s", o->precision);
    if (o->optimizer)
        vp_text_printf(&command, " --optimizer %s", o->optimizer);
    if (!command.failed)
        vp_screen_command("next", command.data);
    vp_text_release(&command);
}

static void print_card(const card_row *c)
{
    char needs[32], usable[32], left[32];

    printf("  %-19s %11s %11s %11s\n", c->device.name,
           vp_size_text(c->device.usable_bytes, usable, sizeof usable),
           vp_size_text(c->needs_bytes, needs, sizeof needs),
           vp_size_text(c->device.usable_bytes - c->needs_bytes, left, sizeof left));
}

static void print_fit(const vp_devices_options *o, const vp_plan_options *asked, const fitting *f)
{
    const card_row *first = NULL;
    char            needs[32], micro[40] = "";

    printf("%s%s%s: %s and more; %d of %d cards would do\n",
           vp_paint(f->n_fit ? VP_PAINT_GOOD : VP_PAINT_BAD), f->n_fit ? "FITS" : "DOES NOT FIT",
           vp_paint_end(), vp_size_text(f->least_bytes, needs, sizeof needs), f->n_fit, f->n);
    if (o->micro_batch)
        snprintf(micro, sizeof micro, ", micro-batch %lld", (long long)o->micro_batch);
    vp_screen_line("model", "%s, sequence %lld, global batch %lld%s", o->model,
                   (long long)asked->seq, (long long)asked->global_batch, micro);
    vp_screen_recipe(&f->recipe, VP_ATTENTION_FLASH);
    if (f->n_fit)
        printf("\n%s%-21s %11s %11s %11s%s\n", vp_paint(VP_PAINT_HEAD), "cards, smallest first",
               "usable", "needs", "free", vp_paint_end());
    for (int i = 0; i < f->n; i++)
        if (does_fit(&f->cards[i])) {
            print_card(&f->cards[i]);
            first = first ? first : &f->cards[i];
        }
    print_next(o, asked, first ? first->device.name : f->cards[f->n - 1].device.name);
}

vp_status vp_devices_fit(const vp_devices_options *o, vp_cli *cli, vp_err *err)
{
    const char     *name  = o->model;
    vp_model       *model = NULL;
    fitting         f     = {.cards = calloc(MAX_CARDS, sizeof *f.cards)};
    vp_plan_options asked = {.precision    = o->precision,
                             .optimizer    = o->optimizer,
                             .seq          = o->seq,
                             .global_batch = o->global_batch,
                             .micro_batch  = o->micro_batch};
    vp_status       st    = VP_OK;

    VP_TRY_ALLOC(err, f.cards);
    VP_TRY(vp_model_named(cli, &name, err));
    VP_TRY(vp_model_with_graph(name, &(vp_model_opts){0}, &model, NULL, err));
    if (!asked.seq)
        asked.seq = model->graph.max_seq < VP_ESTIMATE_SEQ ? model->graph.max_seq : VP_ESTIMATE_SEQ;
    VP_TRY(ask_all(name, &asked, &f, err));
    if (cli->json)
        VP_TRY(vp_print_json(fit_json(o, &asked, &f), err));
    else
        print_fit(o, &asked, &f);
    cli->exit_code = f.n_fit ? 0 : 3;
out:
    vp_model_free(model);
    free(f.cards);
    return st;
}

enum {
    BF16_FROM = 80
}; /* and flash attention: of what came later a step takes nothing more for granted */

bool vp_devices_larger(int64_t needs_bytes, int64_t than_bytes, int capability, vp_device *out)
{
    vp_device card, largest = {0};
    bool      holds = false;
    int       least = capability < BF16_FROM ? capability : BF16_FROM;

    for (int i = 0; vp_device_at(i, &card); i++) {
        if (card.is_cpu || card.compute_capability < least || card.usable_bytes <= than_bytes)
            continue;
        if (card.usable_bytes > largest.usable_bytes)
            largest = card;
        if (card.usable_bytes >= needs_bytes && (!holds || card.usable_bytes < out->usable_bytes))
            *out = card, holds = true;
    }
    if (!holds)
        *out = largest;
    return out->usable_bytes > 0;
}
