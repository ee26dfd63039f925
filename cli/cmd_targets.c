/* vplan targets: which trainers emit writes for, and what each can be told. */
#include "cli/cli.h"
#include "cli/screen.h"

#include "base/text.h"
#include "trainers/files/target.h"

#include <stdio.h>
#include <string.h>

/* The words of a setting that some file of the target has in its newest version. */
static void words_of(const vp_target *t, vp_setting s, char *out, size_t n_out)
{
    out[0] = '\0';
    for (int f = 0; f < t->n_files; f++)
        for (const vp_dialect *of = t->files[f].dialect, *d = of; d;
             d = d->base_says ? d->base : NULL)
            for (int i = 0; i < d->n_says; i++) {
                const vp_saying *say = &d->says[i];
                char             one[80], padded[700];
                if (say->setting != (int)s || say->read_only ||
                    !vp_version_within(vp_dialect_version(d, of, NULL), say->since, say->until) ||
                    !vp_when_holds(say->when, &(vp_settings){0}, t->name))
                    continue;
                snprintf(one, sizeof one, " %s ", strcmp(say->word, "*") ? say->word : "N");
                snprintf(padded, sizeof padded, " %s ", out);
                if (!strstr(padded, one))
                    snprintf(out + strlen(out), n_out - strlen(out), "%s%.*s", out[0] ? " " : "",
                             (int)strlen(one) - 2, one + 1);
            }
}

static json_t *target_json(const vp_target *t)
{
    json_t *files = json_array(), *can = json_object(), *versions = json_object();
    char    words[600];

    for (int f = 0; f < t->n_files; f++) {
        json_array_append_new(files, json_string(t->files[f].name));
        for (const vp_dialect *of = t->files[f].dialect, *d = of; d; d = d->base)
            json_object_set_new(versions, d->library, json_string(vp_dialect_version(d, of, NULL)));
    }
    for (int s = 0; s < VP_N_SETTINGS; s++) {
        words_of(t, (vp_setting)s, words, sizeof words);
        if (words[0])
            json_object_set_new(can, vp_setting_key(s), json_string(words));
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:s, s:b}", "name", t->name, "summary", t->summary,
                     "files", files, "versions", versions, "settings", can, "launch", t->launch,
                     "legacy", t->legacy);
}

enum { COLUMN = 23 }; /* where the text of a setting begins */

static void print_target(const vp_target *t)
{
    char words[600], head[64];

    vp_screen_line(t->name, "%s", t->summary);
    for (int f = 0; f < t->n_files; f++) {
        snprintf(words, sizeof words, "%s%s%s", t->files[f].name,
                 t->files[f].when ? "  where " : "", t->files[f].when ? t->files[f].when : "");
        vp_screen_entry(COLUMN, f ? "" : "  files", words);
    }
    for (int s = 0; s < VP_N_SETTINGS; s++) {
        words_of(t, (vp_setting)s, words, sizeof words);
        snprintf(head, sizeof head, "  %s", vp_setting_key(s));
        if (words[0])
            vp_screen_entry(COLUMN, head, words);
    }
    for (const vp_told *row = t->script; row && row->setting; row++) {
        snprintf(head, sizeof head, "  %s", row->setting);
        snprintf(words, sizeof words, "yours: %s", row->where);
        vp_screen_entry(COLUMN, head, words);
    }
    vp_screen_entry(COLUMN, "  run", t->launch);
    vp_screen_line("letters",
                   "N a whole number, R a number, W a word of the trainer's own, L module names, T "
                   "rank and targets");
    snprintf(words, sizeof words,
             "vplan plan MODEL --trainer %s --device CARD --seq N --global-batch N", t->name);
    vp_screen_command("next", words);
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    json_t          *list = json_array();
    vp_command_line  line;
    const vp_target *one = NULL, *t;
    char             text[300];
    vp_status        st = VP_OK;

    VP_TRY_ALLOC(err, list);
    VP_TRY(vp_cli_parse(&vp_cmd_targets, argc, argv, cli, NULL, &line, err));
    if (line.n_words)
        VP_TRY(vp_target_named(line.words[0], &one, err));
    for (int i = 0; (t = vp_target_at(i)); i++) {
        if (one && t != one)
            continue;
        json_array_append_new(list, target_json(t));
        if (!cli->json && one)
            print_target(t);
        else if (!cli->json) {
            snprintf(text, sizeof text, "%s%s", t->summary, t->legacy ? " (legacy)" : "");
            vp_screen_entry(15, t->name, text);
        }
    }
    if (!cli->json && !one)
        vp_screen_command("next", "vplan targets NAME");
    if (cli->json) {
        st   = vp_print_json(json_pack("{s:i, s:o}", "schema_version", 1, "targets", list), err);
        list = NULL;
    }
out:
    json_decref(list);
    return st;
}

const vp_command vp_cmd_targets = {
    .name      = "targets",
    .summary   = "the trainers that emit and check know, and the settings of each",
    .usage     = {"[NAME] [--json]"},
    .about     = {"Of one target: its files, the words that it has for each setting in the newest "
                      "version that is known, what your own code must say, and the command that runs it."},
    .examples  = {"vplan targets", "vplan targets trl"},
    .argument  = VP_TAKES_TARGET,
    .max_words = 1,
    .run       = run,
};
