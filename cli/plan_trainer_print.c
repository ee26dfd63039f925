/* cli/plan_trainer_print.c: a trainer's plan for people. */
#include "cli/plan_trainer_answer.h"

#include "cli/padding.h"
#include "cli/plan_trainer_changes.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/text.h"
#include "base/units.h"
#include "trainers/torch/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef vp_plan_trainer_answer answer;

static bool syncs_each(const vp_settings *s)
{
    return strcmp(s->value[VP_SETTING_GRADIENT_SYNC], "each") == 0;
}

/* What of a step lies in host memory. */
static const char *offload_text(const vp_settings *s)
{
    static const struct {
        vp_setting  setting;
        const char *text;
    } kept[] = {{VP_SETTING_OFFLOAD_PARAMS, ", weights and optimizer in host memory"},
                {VP_SETTING_OFFLOAD_OPTIMIZER, ", optimizer in host memory"},
                {VP_SETTING_OFFLOAD_ACTIVATIONS, ", checkpoints in host memory"}};

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (s->value[kept[i].setting] && strcmp(s->value[kept[i].setting], "cpu") == 0)
            return kept[i].text;
    return "";
}

static const char *text_of(const vp_settings *s, char *buf, size_t size)
{
    const char *parallel  = s->value[VP_SETTING_PARALLEL];
    const char *allocator = s->value[VP_SETTING_ALLOCATOR];
    const char *tuning = s->value[VP_SETTING_TUNING], *quant = s->value[VP_SETTING_QUANT];
    const char *loss   = s->value[VP_SETTING_LOSS];
    bool        full   = !tuning || strcmp(tuning, "full") == 0;
    bool        ligers = vp_language_is_liger(loss), shares = strcmp(parallel, "none") != 0;
    bool        set = strcmp(allocator, "default") != 0;

    snprintf(buf, size,
             "micro-batch %s, accumulation %s%s, recompute %s%s%s%s%s%s%s%s, %s, %s%s%s%s%s",
             s->value[VP_SETTING_MICRO_BATCH], s->value[VP_SETTING_ACCUMULATION],
             syncs_each(s) ? " (each is reduced)" : "", s->value[VP_SETTING_RECOMPUTE],
             set ? ", allocator " : "", set ? allocator : "", ligers ? ", loss " : "",
             ligers ? loss : "", shares ? ", " : "", shares ? parallel : "", offload_text(s),
             s->value[VP_SETTING_PRECISION], s->value[VP_SETTING_OPTIMIZER], full ? "" : ", ",
             full ? "" : tuning, !full && quant ? " in " : "", !full && quant ? quant : "");
    return buf;
}

/* What is said otherwise than in the answer. */
static const char *difference_text(const vp_settings *s, const vp_settings *than, char *buf,
                                   size_t size)
{
    int n = snprintf(buf, size, "%s x %s", s->value[VP_SETTING_MICRO_BATCH],
                     s->value[VP_SETTING_ACCUMULATION]);

    for (int i = 0; i < VP_N_SETTINGS && n < (int)size; i++)
        if (i != VP_SETTING_MICRO_BATCH && i != VP_SETTING_ACCUMULATION && s->value[i] &&
            than->value[i] && strcmp(s->value[i], than->value[i]) != 0 &&
            (i != VP_SETTING_GRADIENT_SYNC ||
             vp_world_syncs_each(s->value[VP_SETTING_PARALLEL],
                                 s->value[VP_SETTING_OFFLOAD_PARAMS])))
            n += snprintf(buf + n, size - (size_t)n, ", %s %s", vp_setting_key(i), s->value[i]);
    return buf;
}

enum { WIDTH_OF_SETTINGS = 44 };

static void print_alternatives(const answer *a)
{
    const vp_choice *than = a->chosen.best ? a->chosen.best : a->chosen.least;
    char             text[300], bytes[32], time[32];
    bool             any_tight = a->chosen.least && a->chosen.least->is_tight;

    if (a->chosen.n_alternatives)
        printf("%-46s %12s %9s\n", "nearest: micro-batch x accumulation", "needs", "step");
    for (int i = 0; i < a->chosen.n_alternatives; i++) {
        const vp_choice *c = a->chosen.alternatives[i];
        difference_text(&c->settings, &than->settings, text, sizeof text);
        printf("  %-*s %12s %9s%s\n", WIDTH_OF_SETTINGS, vp_screen_head(text, WIDTH_OF_SETTINGS),
               vp_size_text(c->bytes->high_bytes, bytes, sizeof bytes),
               vp_time_text(c->seconds, time, sizeof time),
               c->fits       ? ""
               : c->is_tight ? " tight"
                             : " too large");
        any_tight |= c->is_tight;
    }
    if (any_tight)
        vp_screen_line("tight",
                       "may fit: by the estimate itself, not at the upper end of its interval, or "
                       "once PyTorch gives cached memory back, which takes time");
}

static void print_next_gib(const answer *a)
{
    const vp_choice *r = a->chosen.richer;
    char             text[300], time[32];

    if (!r)
        vp_screen_line("1 GiB more", "would not be faster");
    else
        vp_screen_line("1 GiB more", "would save %s a step: %s",
                       vp_time_text(a->chosen.best->seconds - r->seconds, time, sizeof time),
                       text_of(&r->settings, text, sizeof text));
}

static void print_one_faster(const vp_choice *f, const char *option, const char *why)
{
    char bytes[32], time[32], text[300];

    vp_screen_line("faster", "%s: %s a step, %s at most; %s; %s", option,
                   vp_time_text(f->seconds, time, sizeof time),
                   vp_size_text(f->bytes->high_bytes, bytes, sizeof bytes),
                   text_of(&f->settings, text, sizeof text), why);
}

static void print_faster(const answer *a)
{
    const vp_choice *first = a->with_first.best;
    char             option[64];

    if (a->with_liger.best)
        print_one_faster(a->with_liger.best, "--liger", "Liger's kernels (package liger-kernel)");
    if (!first)
        return;
    snprintf(option, sizeof option, "--recompute %s", first->settings.value[VP_SETTING_RECOMPUTE]);
    print_one_faster(first, option, "checkpoints of the first layers alone, by your own code");
}

static void print_own(const json_t *own)
{
    vp_text     text = {0};
    const char *key;
    json_t     *value;

    json_object_foreach ((json_t *)own, key, value) {
        char *shown =
            json_is_object(value) || json_is_null(value)
                ? NULL
                : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        if (shown)
            vp_text_printf(&text, "%s%s %s", text.data ? ", " : "", key, shown);
        free(shown);
    }
    if (text.data)
        vp_screen_line("settings", "%s", text.data);
    vp_text_release(&text);
}

static void print_best(const answer *a)
{
    const vp_choice    *b = a->chosen.best;
    const vp_fit_bytes *x = b->bytes;
    char                s[4][32], text[300], likely[16], phase[48];
    double              tokens = (double)(a->request.global_batch * a->request.seq);

    snprintf(likely, sizeof likely, "%.0f %%", 100 * VP_LANGUAGE_PROBABILITY);
    vp_screen_line("plan", "%s", text_of(&b->settings, text, sizeof text));
    vp_screen_line("memory",
                   "%s allocated, in %s; %s reserved; %s with context and libraries; %s "
                   "at most (%s)",
                   vp_size_text(x->allocated_bytes, s[0], sizeof s[0]),
                   vp_screen_phase(x->peak_phase, phase, sizeof phase),
                   vp_size_text(x->reserved_bytes, s[1], sizeof s[1]),
                   vp_size_text(x->device_bytes, s[2], sizeof s[2]),
                   vp_size_text(x->high_bytes, s[3], sizeof s[3]),
                   a->request.job.language->is_foreign ? "assumed" : likely);
    vp_screen_line("time", "%s a step, %s tokens/s (assumed)",
                   vp_time_text(b->seconds, s[0], sizeof s[0]),
                   vp_count_text((int64_t)(tokens / b->seconds), s[1], sizeof s[1]));
}

/* The files of the settings; without -o first the settings themselves. */
static void print_next(const answer *a)
{
    vp_text                command = {0};
    const vp_option_change written = {"-o", "settings.json", false, false};

    if (a->path) {
        printf("written to %s\n", a->path);
        vp_text_printf(&command, "vplan emit ");
        vp_text_quoted(&command, a->path);
        vp_text_printf(&command, " --for %s -o run", a->request.target->name);
    } else {
        vp_changed_command("plan", a->line, NULL, &written, 1, &command);
    }
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}

/* Seconds of a number of first layers lie between those of fewer and of more; bytes are played until one fits. */
static void print_compared(const answer *a)
{
    const vp_chosen *c = &a->chosen;
    char             space[32], priced[32] = "all", played[32];

    if (c->n_priced < c->n_space)
        vp_count_text(c->n_priced, priced, sizeof priced);
    vp_screen_line("compared", "%s settings that %s has here: the time of %s, the memory of %s%s",
                   vp_count_text(c->n_space, space, sizeof space), a->request.target->name, priced,
                   vp_count_text(c->n_played, played, sizeof played),
                   c->best ? ", from the fastest on until one fitted" : ", none of which fits");
}

void vp_plan_trainer_print(const answer *a, const json_t *doc)
{
    const vp_chosen         *c = &a->chosen;
    const vp_choose_request *r = &a->request;
    const vp_choice         *b = c->best ? c->best : c->least;
    char                     speed[64], count[32], text[300];
    size_t                   i;
    json_t                  *line;

    snprintf(speed, sizeof speed, "%s tokens/s (assumed)",
             vp_count_text((int64_t)((double)(r->global_batch * r->seq) / b->seconds), count,
                           sizeof count));
    vp_screen_answer(b->bytes->high_bytes, r->budget_bytes, c->best ? speed : NULL);
    vp_padding_print(b->bytes->high_bytes, a->padded_bytes, r->budget_bytes);
    vp_screen_line("model", "%s on %s, trainer %s, sequence %lld, global batch %lld",
                   a->model->name, a->device.name, r->target->name, (long long)r->seq,
                   (long long)r->global_batch);
    if (c->best)
        print_best(a);
    else
        vp_screen_line("least", "%s%s", text_of(&b->settings, text, sizeof text),
                       b->is_tight ? "; tight" : "");
    if (c->best)
        print_own(json_object_get(doc, "settings"));
    print_compared(a);
    if (c->best)
        print_next_gib(a);
    print_faster(a);
    print_alternatives(a);
    json_array_foreach (json_object_get(doc, "assumptions"), i, line)
        vp_screen_line("assumed", "%s", json_string_value(line));
    vp_print_fit_changes(&a->changes, a->line);
    if (!c->best && !a->changes.n)
        vp_screen_line("what fits", "none of the changes that plan tries: it takes more or larger "
                                    "cards, a smaller model, or fewer tokens");
    if (c->best)
        print_next(a);
}
