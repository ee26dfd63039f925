/* vplan completion: a script that makes a shell complete vplan's commands, options and their words.
 * It is made from the commands' records and knows the names that are built in: no vplan runs when
 * the tab key is pressed. */
#include "cli/cli.h"
#include "cli/rows.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- what may stand in a place ---- */

typedef struct place {
    vp_text words; /* separated by spaces */
    bool    files;
} place;

static void add_word(place *p, const char *word)
{
    if (!strchr(word, ':')) /* "chunked:N" stands for many words */
        vp_text_printf(&p->words, "%s%s", p->words.n_bytes ? " " : "", word);
}

static void add_words(place *p, const char *(*word_at)(int i))
{
    const char *word;

    for (int i = 0; word_at && (word = word_at(i)); i++)
        add_word(p, word);
}

static void place_of_value(const vp_option *o, place *p)
{
    char word[64];

    *p = (place){.files = o->kind == VP_OPTION_INPUT || o->kind == VP_OPTION_OUTPUT ||
                          (o->value && strstr(o->value, "FILE"))};
    for (int i = 0; vp_option_word(o, i, word, sizeof word); i++)
        add_word(p, word);
    add_words(p, o->suggest);
}

static const char *word_of_command(int i)
{
    const vp_command *c = vp_command_at(i);

    return c ? c->name : NULL;
}

static const char *const shells[] = {"bash", "zsh", "fish"};
enum { N_SHELLS = sizeof shells / sizeof *shells };

static const char *word_of_shell(int i)
{
    assert(i >= 0);
    return i < N_SHELLS ? shells[i] : NULL;
}

static void place_of_argument(vp_argument argument, place *p)
{
    *p = (place){.files = argument == VP_TAKES_MODEL || argument == VP_TAKES_FILE ||
                          argument == VP_TAKES_DEVICE};
    add_words(p, argument == VP_TAKES_MODEL     ? vp_word_of_model
                 : argument == VP_TAKES_DEVICE  ? vp_word_of_device
                 : argument == VP_TAKES_TARGET  ? vp_word_of_target
                 : argument == VP_TAKES_COMMAND ? word_of_command
                 : argument == VP_TAKES_SHELL   ? word_of_shell
                                                : NULL);
}

static const char *words_of(const place *p)
{
    return p->words.data ? p->words.data : "";
}

/* What a help text is between the quotes of a shell: none of what that shell would read. */
static void append_plain(const char *text, vp_text *out)
{
    for (; *text; text++)
        if (!strchr("'\"[]\\:`$", *text))
            vp_text_append(out, text, 1);
}

typedef void row_writer(const vp_command *c, const vp_option *o, vp_text *out);

static void each_row(const vp_command *c, row_writer *write, vp_text *out)
{
    const vp_option_set *sets[VP_MAX_SETS];
    int                  n_sets = vp_command_sets(c, sets);

    assert(n_sets > 0 && n_sets <= VP_MAX_SETS);
    for (int s = 0; s < n_sets; s++)
        for (int i = 0; i < sets[s]->n; i++)
            write(c, &sets[s]->rows[i], out);
}

/* ---- bash ---- */

static void bash_value(const vp_command *c, const vp_option *o, vp_text *out)
{
    place p;

    if (o->kind == VP_OPTION_FLAG)
        return;
    place_of_value(o, &p);
    vp_text_printf(out, "    %s/%s) _vplan_offer '%s' %s; return ;;\n", c->name, o->name,
                   words_of(&p), p.files ? "files" : "");
    vp_text_release(&p.words);
}

static void bash_name(const vp_command *c, const vp_option *o, vp_text *out)
{
    (void)c;
    vp_text_printf(out, " %s", o->name);
}

static void write_bash(vp_text *out)
{
    const vp_command *c;
    place             p;

    vp_text_printf(out,
                   "# bash completion for vplan: source <(vplan completion bash)\n"
                   "_vplan_offer() {  # WORDS [files]\n"
                   "    COMPREPLY=($(compgen -W \"$1\" -- \"$cur\"))\n"
                   "    [ \"$2\" = files ] || return\n"
                   "    local file IFS=$'\\n'\n"
                   "    compopt -o filenames 2> /dev/null\n"
                   "    for file in $(compgen -f -- \"$cur\"); do COMPREPLY+=(\"$file\"); done\n"
                   "}\n"
                   "_vplan() {\n"
                   "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} i\n"
                   "    COMPREPLY=()\n"
                   "    if [ \"$cur\" = '=' ]; then\n"
                   "        cur=\n"
                   "    elif [ \"$prev\" = '=' ] && [ \"$COMP_CWORD\" -gt 2 ]; then\n"
                   "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
                   "    fi\n"
                   "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
                   "        _vplan_offer '--help --version");
    for (int i = 0; (c = vp_command_at(i)); i++)
        vp_text_printf(out, " %s", c->name);
    vp_text_printf(out,
                   "'\n"
                   "        return\n"
                   "    fi\n"
                   "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
                   "        [ \"${COMP_WORDS[i]}\" != -- ] || { _vplan_offer '' files; return; }\n"
                   "    done\n"
                   "    case ${COMP_WORDS[1]}/$prev in\n");
    for (int i = 0; (c = vp_command_at(i)); i++)
        each_row(c, bash_value, out);
    vp_text_printf(out, "    esac\n"
                        "    case ${COMP_WORDS[1]}/$cur in\n");
    for (int i = 0; (c = vp_command_at(i)); i++) {
        vp_text_printf(out, "    %s/-*) _vplan_offer '", c->name);
        each_row(c, bash_name, out);
        vp_text_printf(out, "' ;;\n");
        place_of_argument(c->argument, &p);
        vp_text_printf(out, "    %s/*) _vplan_offer '%s' %s ;;\n", c->name, words_of(&p),
                       p.files ? "files" : "");
        vp_text_release(&p.words);
    }
    vp_text_printf(out, "    esac\n"
                        "}\n"
                        "complete -F _vplan vplan\n");
}

/* ---- zsh ---- */

static void zsh_action(const char *what, const place *p, vp_text *out)
{
    vp_text_printf(out, ":");
    append_plain(what, out);
    if (p->files && p->words.n_bytes)
        vp_text_printf(out, ":{compadd - %s; _files}'", words_of(p));
    else if (p->files)
        vp_text_printf(out, ":_files'");
    else
        vp_text_printf(out, ":(%s)'", words_of(p));
}

static void zsh_row(const vp_command *c, const vp_option *o, vp_text *out)
{
    bool  is_long = strncmp(o->name, "--", 2) == 0;
    char  value[256];
    place p;

    (void)c;
    vp_text_printf(out, " \\\n            '%s%s[", o->name,
                   o->kind != VP_OPTION_FLAG && is_long ? "=" : "");
    append_plain(o->help, out);
    vp_text_printf(out, "]");
    if (o->kind == VP_OPTION_FLAG) {
        vp_text_printf(out, "'");
        return;
    }
    place_of_value(o, &p);
    zsh_action(vp_option_value_text(o, value, sizeof value), &p, out);
    vp_text_release(&p.words);
}

static void write_zsh(vp_text *out)
{
    const vp_command *c;
    place             p;

    vp_text_printf(out,
                   "#compdef vplan\n"
                   "# zsh completion for vplan: source <(vplan completion zsh), or a file _vplan\n"
                   "# in a folder of $fpath\n"
                   "_vplan() {\n"
                   "    local -a commands\n"
                   "    if (( CURRENT == 2 )); then\n"
                   "        commands=(");
    for (int i = 0; (c = vp_command_at(i)); i++) {
        vp_text_printf(out, "\n            '%s:", c->name);
        append_plain(c->summary, out);
        vp_text_printf(out, "'");
    }
    vp_text_printf(out, ")\n"
                        "        _describe command commands\n"
                        "        return\n"
                        "    fi\n"
                        "    shift words\n"
                        "    (( CURRENT-- ))\n"
                        "    case $words[1] in\n");
    for (int i = 0; (c = vp_command_at(i)); i++) {
        vp_text_printf(out, "    %s)\n        _arguments", c->name);
        each_row(c, zsh_row, out);
        place_of_argument(c->argument, &p);
        if (c->argument != VP_TAKES_NOTHING) {
            vp_text_printf(out, " \\\n            '*");
            zsh_action(c->name, &p, out);
        }
        if (c->takes_rest)
            vp_text_printf(out, " \\\n            '*::command:_normal'");
        vp_text_printf(out, " ;;\n");
        vp_text_release(&p.words);
    }
    vp_text_printf(
        out,
        "    esac\n"
        "}\n"
        "if [[ $funcstack[1] = _vplan ]]; then _vplan \"$@\"; else compdef _vplan vplan; fi\n");
}

/* ---- fish ---- */

static void fish_place(const place *p, vp_text *out)
{
    vp_text_printf(out, "%s", p->files ? " -F" : " -f");
    if (p->words.n_bytes)
        vp_text_printf(out, " -a '%s'", words_of(p));
}

static void fish_row(const vp_command *c, const vp_option *o, vp_text *out)
{
    bool  is_long = strncmp(o->name, "--", 2) == 0;
    place p;

    vp_text_printf(out, "complete -c vplan -n '__vplan_command %s' %s %s", c->name,
                   is_long ? "-l" : "-s", o->name + 1 + is_long);
    if (o->kind != VP_OPTION_FLAG) {
        place_of_value(o, &p);
        vp_text_printf(out, " -r");
        fish_place(&p, out);
        vp_text_release(&p.words);
    }
    vp_text_printf(out, " -d '");
    append_plain(o->help, out);
    vp_text_printf(out, "'\n");
}

static void write_fish(vp_text *out)
{
    const vp_command *c;
    place             p;

    vp_text_printf(out,
                   "# fish completion for vplan: vplan completion fish | source\n"
                   "function __vplan_command\n"
                   "    set -l words (commandline -opc)\n"
                   "    test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
                   "end\n"
                   "function __vplan_no_command\n"
                   "    test (count (commandline -opc)) -eq 1\n"
                   "end\n"
                   "complete -c vplan -n __vplan_no_command -f\n"
                   "complete -c vplan -n __vplan_no_command -l help -d 'list the commands'\n"
                   "complete -c vplan -n __vplan_no_command -l version -d 'say the version'\n");
    for (int i = 0; (c = vp_command_at(i)); i++) {
        vp_text_printf(out, "complete -c vplan -n __vplan_no_command -f -a %s -d '", c->name);
        append_plain(c->summary, out);
        vp_text_printf(out, "'\n");
    }
    for (int i = 0; (c = vp_command_at(i)); i++) {
        place_of_argument(c->argument, &p);
        p.files |= c->takes_rest;
        vp_text_printf(out, "complete -c vplan -n '__vplan_command %s'", c->name);
        fish_place(&p, out);
        vp_text_printf(out, "\n");
        each_row(c, fish_row, out);
        vp_text_release(&p.words);
    }
}

/* ---- the command ---- */

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    static void (*const writers[N_SHELLS])(vp_text * out) = {write_bash, write_zsh, write_fish};
    vp_text         script                                = {0};
    vp_command_line line;
    char            shown[64];
    int             shell = 0;
    vp_status       st    = VP_OK;

    VP_TRY(vp_cli_parse(&vp_cmd_completion, argc, argv, cli, NULL, &line, err));
    if (line.n_words == 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "vplan completion SHELL: bash, zsh or fish?"));
    while (shell < N_SHELLS && strcmp(shells[shell], line.words[0]) != 0)
        shell++;
    if (shell == N_SHELLS)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "no completion for %s: bash, zsh or fish",
                       vp_text_escape(line.words[0], shown, sizeof shown)));
    writers[shell](&script);
    VP_TRY_ALLOC(err, !script.failed);
    fputs(script.data, stdout);
out:
    vp_text_release(&script);
    return st;
}

const vp_command vp_cmd_completion = {
    .name      = "completion",
    .summary   = "shell completion for bash, zsh and fish",
    .usage     = {"bash|zsh|fish"},
    .about     = {"The script completes commands, options, their words, built-in models and cards. "
                      "bash: put the line of the first example into ~/.bashrc; zsh: the second into "
                      "~/.zshrc, behind compinit; fish: the third into ~/.config/fish/config.fish."},
    .examples  = {"source <(vplan completion bash)", "source <(vplan completion zsh)",
                  "vplan completion fish | source"},
    .argument  = VP_TAKES_SHELL,
    .max_words = 1,
    .no_json   = true,
    .run       = run,
};
