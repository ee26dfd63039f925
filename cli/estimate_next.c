/* What to type behind an answer of vplan estimate --trainer. */
#include "cli/estimate_next.h"

#include "cli/cmd_plan_trainer.h"
#include "cli/devices_fit.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

static bool is_named(const char *options, const char *option)
{
    const char *at = strstr(options, option);

    return at && (at[strlen(option)] == ' ' || at[strlen(option)] == '\0');
}

static const char *const LARGEST_BATCH = " --max micro-batch";

static const char *options_to_add(const vp_estimate_next *f)
{
    if (!f->has_budget)
        return " --device 4090";
    return f->fits && !f->has_max && f->free_batch ? LARGEST_BATCH : f->fitting;
}

static void add_estimate(const vp_command_line *line, const char *more, vp_text *command)
{
    bool is_largest = strcmp(more, LARGEST_BATCH) == 0;

    vp_text_printf(command, "vplan estimate ");
    vp_text_quoted(command, line->words[0]);
    for (int i = 0; i < line->n_given; i++) {
        const vp_option *o = line->given[i].option;
        if (is_named(more, o->name) || (is_largest && strcmp(o->name, "--micro-batch") == 0) ||
            vp_is_of_printing(o->name))
            continue;
        vp_text_printf(command, " %s", o->name);
        if (o->kind != VP_OPTION_FLAG) {
            vp_text_printf(command, " ");
            vp_text_quoted(command, line->given[i].text);
        }
    }
    vp_text_printf(command, "%s", more);
}

/* The fastest settings of as many samples a step. Nothing where plan would not answer it, or an option means there another
 * thing. */
static void add_plan(const vp_estimate_next *f, const vp_command_line *line, vp_text *command)
{
    char             seq[32], batch[32];
    vp_words         words;
    vp_option_change set[] = {
        {"--trainer", f->trainer, false, false},
        {"--seq", seq, false, false},
        {"--global-batch", batch, false, false},
        {"-o", "settings.json", false, false},
        {"--micro-batch", NULL, false, true},
        {"--accumulation", NULL, false, true},
        {"--sync-each-batch", NULL, false, true},
        {"--recompute", NULL, false, true},
        {"--max", NULL, false, true},
        {"--all", NULL, false, true},
        {"--alloc-conf", NULL, false, true}, /* plan tries it */
    };

    snprintf(seq, sizeof seq, "%lld", (long long)f->seq);
    snprintf(batch, sizeof batch, "%lld", (long long)f->global_batch);
    vp_changed_words(line, NULL, set, sizeof set / sizeof *set, &words);
    if (!vp_is_given(line, "--class") && vp_plan_answers(words.n, (char **)words.words))
        vp_quote_words("plan", &words, command);
}

static void add_card(const vp_estimate_next *f, const vp_command_line *line, vp_text *command)
{
    vp_device        card;
    vp_option_change set[] = {
        {"--device", NULL, false, false},
        {"--budget", NULL, false, true},
        {"--measured", NULL, false, true}, /* on this card */
        {"--all", NULL, false, true},
    };

    if (!vp_devices_larger(f->needs_bytes, f->budget_bytes, f->capability, &card)) {
        vp_text_printf(command, "vplan models");
        return;
    }
    set[0].value = card.name;
    vp_changed_command("estimate", line, NULL, set, sizeof set / sizeof *set, command);
}

void vp_print_estimate_next(const vp_estimate_next *found, const vp_command_line *line)
{
    const char *more    = options_to_add(found);
    vp_text     command = {0};

    if (*more)
        add_estimate(line, more, &command);
    else if (found->fits)
        add_plan(found, line, &command);
    else
        add_card(found, line, &command);
    if (!command.n_bytes && found->fits && !found->has_max)
        add_estimate(line, LARGEST_BATCH, &command);
    if (command.n_bytes)
        vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}
