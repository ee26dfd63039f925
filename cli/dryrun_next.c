/* cli/dryrun_next.c: what to type after a dry run. */
#include "cli/dryrun_print.h"

#include "base/text.h"
#include "cli/screen.h"
#include "cli/words.h"
#include "tuner/command_tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct number_option {
    char      name[64];
    long long n; /* 0: the command has no such option */
} number_option;

/* An option of a training script that is its batch: --batch, --batch_size, --bs, --train-batch-size... */
static bool is_batch(const char *name)
{
    return (strstr(name, "batch") || strcmp(name, "bs") == 0 || strcmp(name, "bsz") == 0) &&
           !strstr(name, "eval") && !strstr(name, "test") && !strstr(name, "val_");
}

/* --accum, --grad_accum, --gradient-accumulation-steps... */
static bool is_accumulation(const char *name)
{
    return strstr(name, "accum") != NULL;
}

/* The first option of the command that is such a one and has a number. */
static number_option find_number(char *const *command, bool (*is)(const char *name))
{
    for (int i = 0; command[i]; i++) {
        const char   *equal = strchr(command[i], '='), *value = equal ? equal + 1 : command[i + 1];
        size_t        n     = strcspn(command[i], "=");
        number_option found = {.n = 0};
        char         *end, plain[sizeof found.name];

        if (strncmp(command[i], "--", 2) != 0 || n >= sizeof plain || !value)
            continue;
        snprintf(found.name, sizeof found.name, "%.*s", (int)n, command[i]);
        memcpy(plain, found.name + 2, sizeof plain - 2);
        for (char *c = plain; *c; c++)
            *c = *c == '-' ? '_' : *c;
        found.n = strtoll(value, &end, 10);
        if (is(plain) && end != value && !*end && found.n > 0 && found.n <= 100000)
            return found;
    }
    return (number_option){.n = 0};
}

/* Ways to have as many samples a step, those that halve or double: "--try --batch=8,4,2,1 --try --accum=1,2,4,8 --keep
 * batch*accum=8"; without accumulation the same batch and smaller ones, which train otherwise. */
static void add_tries(vp_text *out, const number_option *batch, const number_option *accum)
{
    vp_text   values[2] = {{0}, {0}};
    long long all       = batch->n * (accum->n ? accum->n : 1);

    for (long long b = all; b >= 1; b--) {
        bool near = b % batch->n == 0 || batch->n % b == 0;
        if (all % b || !near)
            continue;
        vp_text_printf(&values[0], "%s%lld", b < all ? "," : "", b);
        vp_text_printf(&values[1], "%s%lld", b < all ? "," : "", all / b);
    }
    vp_text_printf(out, " --try %s=%s", batch->name, vp_text_string(&values[0]));
    if (accum->n)
        vp_text_printf(out, " --try %s=%s --keep '%s*%s=%lld'", accum->name,
                       vp_text_string(&values[1]), batch->name + 2, accum->name + 2, all);
    vp_text_release(&values[0]);
    vp_text_release(&values[1]);
}

static void add_command(vp_text *out, char *const *command)
{
    for (int i = 0; command[i]; i++) {
        vp_text_printf(out, " ");
        vp_text_quoted(out, command[i]);
    }
}

/* The options of the card and the ranks, which other commands have too. */
static void add_card(vp_text *out, const json_t *doc, const vp_dryrun_asked *asked)
{
    vp_text_printf(out, " --device ");
    vp_text_quoted(out, asked->device ? asked->device
                                      : json_string_value(json_object_get(doc, "device")));
    if (asked->budget) {
        vp_text_printf(out, " --budget ");
        vp_text_quoted(out, asked->budget);
    }
    if (asked->world > 1)
        vp_text_printf(out, " --world %lld", (long long)asked->world);
}

void vp_dryrun_print_next(const json_t *doc, const vp_dryrun_asked *asked)
{
    const char   *verdict = json_string_value(json_object_get(doc, "verdict"));
    bool          fits    = strcmp(verdict, "fits") == 0, known;
    number_option batch   = find_number(asked->command, is_batch),
                  accum   = find_number(asked->command, is_accumulation);
    vp_text line          = {0};

    if (strcmp(verdict, "failed") == 0 ||
        !json_integer_value(json_object_get(doc, "allocated_peak_bytes")))
        return;
    known = vp_command_is_known(asked->command, asked->world > 1 ? asked->world : 1);
    if (known || (batch.n && (!fits || accum.n) && batch.n * (accum.n ? accum.n : 1) > 1)) {
        vp_text_printf(&line, "vplan tune");
        add_card(&line, doc, asked);
        if (!known)
            add_tries(&line, &batch, &accum);
    } else if (fits && !asked->time && !json_object_get(doc, "time")) {
        vp_text_printf(&line, "vplan dryrun");
        add_card(&line, doc, asked);
        vp_text_printf(&line, " --steps 3 --time");
    } else if (!fits && asked->snapshot) {
        vp_text_printf(&line, "vplan doctor --snapshot ");
        vp_text_quoted(&line, asked->snapshot);
        vp_screen_command("next", vp_text_string(&line));
        goto out;
    } else if (!fits) {
        vp_text_printf(&line, "vplan dryrun");
        add_card(&line, doc, asked);
        vp_text_printf(&line, " --snapshot snapshot.pickle");
    }
    if (line.n_bytes)
        vp_text_printf(&line, " --");
    add_command(&line, asked->command);
    vp_screen_command("next", vp_text_string(&line) + strspn(vp_text_string(&line), " "));
out:
    vp_text_release(&line);
}
