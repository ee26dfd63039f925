/* vplan help: what a command does and takes, for people, as a man page, as JSON; all of it from the
 * commands' records. */
#include "cli/cli.h"
#include "cli/rows.h"

#include <stdio.h>
#include <string.h>

/* ---- for people ---- */

static void overview(vp_text *out)
{
    const vp_command *c;

    vp_text_printf(out,
                   "usage: vplan COMMAND ...\n\n"
                   "Training in limited GPU memory: will it fit, what is the fastest setting that\n"
                   "does, and how to run it.\n\n");
    for (int i = 0; (c = vp_command_at(i)); i++) {
        vp_text_printf(out, "  %-11s", c->name);
        vp_text_wrap(c->summary, 13, 13, out);
    }
    vp_text_printf(out,
                   "\nto begin with\n"
                   "  vplan estimate qwen2.5-7b --qlora --device 4090    will it fit?\n"
                   "  vplan check train.yaml --model gpt2 --device 4090  does this config fit?\n"
                   "  vplan dryrun --device 4090 -- python train.py      does this script fit?\n"
                   "  vplan doctor --oom train.log                       why did it run out?\n"
                   "\nvplan help COMMAND, or vplan COMMAND --help, describes every option.\n\n"
                   "Exit codes: 0 done or fits, 1 internal error, 2 usage, 3 does not fit,\n"
                   "4 invalid input, 5 device or environment, 6 no trial succeeded, 7 storage,\n"
                   "8 not proved, 128+n ended by signal n.\n");
}

void vp_help_text(const vp_command *c, vp_text *out)
{
    const vp_option_set *sets[VP_MAX_SETS];

    if (!c) {
        overview(out);
        return;
    }
    for (int i = 0; c->usage[i]; i++)
        vp_text_printf(out, "%s vplan %s %s\n", i ? "      " : "usage:", c->name, c->usage[i]);
    vp_text_printf(out, "\n%s\n", c->summary);
    for (int i = 0; c->about[i]; i++) {
        vp_text_printf(out, "\n");
        vp_text_wrap(c->about[i], 0, 0, out);
    }
    vp_options_help(sets, vp_command_sets(c, sets), out);
    vp_text_printf(out, "\nexamples\n");
    for (int i = 0; c->examples[i]; i++)
        vp_text_printf(out, "  %s\n", c->examples[i]);
}

static vp_status print_text(vp_text *text, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, !text->failed && text->data);
    fputs(text->data, stdout);
out:
    vp_text_release(text);
    return st;
}

vp_status vp_help_print(const vp_command *command, vp_err *err)
{
    vp_text text = {0};

    vp_help_text(command, &text);
    return print_text(&text, err);
}

/* ---- as the middle of a man page: mdoc ---- */

/* Plain text as mdoc's: no line begins like a macro, no letter is an escape. */
static void man_text(const char *plain, vp_text *out)
{
    vp_text wrapped = {0};
    bool    begins = true, word = true;

    vp_text_wrap(plain, 0, 0, &wrapped);
    for (const char *p = vp_text_string(&wrapped); *p; p++) {
        if (begins && (*p == '.' || *p == '\''))
            vp_text_printf(out, "\\&");
        if (*p == '\\')
            vp_text_printf(out, "\\e");
        else if (*p == '-' && word) /* an option's, not a hyphen */
            vp_text_printf(out, "\\-");
        else
            vp_text_append(out, p, 1);
        begins = *p == '\n';
        word   = *p == '\n' || *p == ' ' || (word && *p == '-');
    }
    out->failed |= wrapped.failed;
    vp_text_release(&wrapped);
}

static void man_option(const vp_option *o, vp_text *out)
{
    vp_text said = {0};
    char    value[256];

    vp_option_value_text(o, value, sizeof value);
    if (strncmp(o->name, "--", 2) == 0)
        vp_text_printf(out, ".It Fl Fl %s", o->name + 2);
    else
        vp_text_printf(out, ".It Fl %s", o->name + 1);
    if (value[0])
        vp_text_printf(out, o->value ? " Ar " : " Cm ");
    for (const char *p = value; *p; p++) /* mdoc sets a bar between words, and may break there */
        vp_text_printf(out, *p == '|' ? " | " : "%c", *p);
    vp_text_printf(out, "\n");
    vp_option_describe(o, &said);
    if (o->example)
        vp_text_printf(&said, " Example: %s %s", o->name, o->example);
    man_text(vp_text_string(&said), out);
    out->failed |= said.failed;
    vp_text_release(&said);
}

static void man_set(const vp_option_set *set, vp_text *out)
{
    if (set->title) {
        vp_text_printf(out, ".Pp\n");
        man_text(set->title, out);
    }
    vp_text_printf(out, ".Bl -tag -width Ds\n");
    for (int i = 0; i < set->n; i++)
        man_option(&set->rows[i], out);
    vp_text_printf(out, ".El\n");
}

static vp_status print_man(vp_err *err)
{
    const vp_option_set *sets[VP_MAX_SETS];
    const vp_command    *c;
    vp_text              text   = {0};
    int                  n_sets = 0;

    for (int i = 0; (c = vp_command_at(i)); i++) {
        vp_text_printf(&text, ".Ss vplan %s\n", c->name);
        for (int k = 0; c->usage[k]; k++)
            vp_text_printf(&text, ".D1 vplan %s %s\n", c->name, c->usage[k]);
        vp_text_printf(&text, ".Pp\n");
        man_text(c->summary, &text);
        for (int k = 0; c->about[k]; k++) {
            vp_text_printf(&text, ".Pp\n");
            man_text(c->about[k], &text);
        }
        n_sets = vp_command_sets(c, sets);
        for (int k = 0; k + 1 < n_sets; k++)
            man_set(sets[k], &text);
        for (int k = 0; c->examples[k]; k++)
            vp_text_printf(&text, "%s.D1 %s\n", k ? "" : ".Pp\n", c->examples[k]);
    }
    vp_text_printf(&text, ".Ss Options of every command\n");
    n_sets = vp_command_sets(vp_command_at(0), sets);
    man_set(&(vp_option_set){NULL, sets[n_sets - 1]->rows, sets[n_sets - 1]->n}, &text);
    return print_text(&text, err);
}

/* ---- as JSON ---- */

static json_t *option_json(const vp_option *o)
{
    vp_text said  = {0};
    json_t *words = json_array(), *j;
    char    value[256], word[64];

    vp_option_describe(o, &said);
    vp_option_value_text(o, value, sizeof value);
    for (int i = 0; vp_option_word(o, i, word, sizeof word); i++)
        json_array_append_new(words, json_string(word));
    j = json_pack("{s:s, s:s, s:o, s:s?, s:s?, s:s?, s:s?, s:s?}", "name", o->name, "value", value,
                  "words", words, "unit", o->unit, "default", o->preset ? o->preset : o->otherwise,
                  "alone", o->alone, "example", o->example, "text", said.data);
    vp_text_release(&said);
    return j;
}

static json_t *command_json(const vp_command *c)
{
    const vp_option_set *sets[VP_MAX_SETS];
    json_t              *options = json_array(), *examples = json_array();
    int                  n_sets = vp_command_sets(c, sets);

    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s]->n; i++)
            json_array_append_new(options, option_json(&sets[s]->rows[i]));
    for (int i = 0; c->examples[i]; i++)
        json_array_append_new(examples, json_string(c->examples[i]));
    return json_pack("{s:s, s:s, s:o, s:o}", "name", c->name, "summary", c->summary, "options",
                     options, "examples", examples);
}

static vp_status print_records(const vp_command *only, vp_err *err)
{
    const vp_command *c;
    json_t           *list = json_array();

    for (int i = 0; (c = vp_command_at(i)); i++)
        if (!only || c == only)
            json_array_append_new(list, command_json(c));
    return vp_print_json(json_pack("{s:i, s:o}", "schema_version", 1, "commands", list), err);
}

/* ---- the command ---- */

typedef struct help_options {
    bool man;
} help_options;

static const vp_option rows[] = {
    {.name = "--man",
     .kind = VP_OPTION_FLAG,
     .at   = offsetof(help_options, man),
     .help = "Print the man page's sections about commands, as mdoc"},
};
static const vp_option_set options = {VP_ROWS(rows)};

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    help_options      w = {0};
    vp_command_line   line;
    const vp_command *command = NULL;
    vp_status         st      = VP_OK;

    VP_TRY(vp_cli_parse(&vp_cmd_help, argc, argv, cli, (void *[]){&w}, &line, err));
    if (line.n_words)
        VP_TRY(vp_command_named(line.words[0], &command, err));
    if (w.man && (command || cli->json))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--man is the page of all commands, and no JSON"));
    VP_TRY(w.man       ? print_man(err)
           : cli->json ? print_records(command, err)
                       : vp_help_print(command, err));
out:
    return st;
}

const vp_command vp_cmd_help = {
    .name      = "help",
    .summary   = "what a command does and takes",
    .usage     = {"[COMMAND] [options]"},
    .about     = {"The commands, or one of them with every option. With --json the same as one "
                      "document: name, value, words, unit, default, example and text of each option."},
    .examples  = {"vplan help plan", "vplan help estimate --json"},
    .sets      = {&options},
    .argument  = VP_TAKES_COMMAND,
    .max_words = 1,
    .run       = run,
};
