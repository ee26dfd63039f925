#include "cli/check_played.h"

#include "cli/screen.h"
#include "cli/words.h"

#include "base/text.h"

#include <string.h>

/* The only script among the files given that another program runs: a shell those with a command, before Python; NULL: there is none,
 * or there are several. */
static const char *script_of(const vp_checked *c, vp_format format)
{
    const char *only = NULL;

    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        if (!file->doc || file->doc->format != format || file->is_part || !file->is_file ||
            (format == VP_FORMAT_FLAGS && !file->doc->program))
            continue;
        if (only && strcmp(only, file->name) != 0)
            return NULL;
        only = file->name;
    }
    return only;
}

/* Words behind --, with another one in the place of `from`, which may stand behind an option's "=". */
static void add_rest(vp_text *command, char *const *rest, const char *from, const char *to)
{
    for (char *const *word = rest; word && *word; word++) {
        const char *equals = strchr(*word, '=');
        vp_text_printf(command, word == rest ? " -- " : " ");
        if (from && strcmp(*word, from) == 0) {
            vp_text_quoted(command, to);
        } else if (from && equals && strcmp(equals + 1, from) == 0) {
            vp_text_printf(command, "%.*s=", (int)(equals - *word), *word);
            vp_text_quoted(command, to);
        } else {
            vp_text_quoted(command, *word);
        }
    }
}

/* "vplan dryrun --device 4090"; false: no card was given. */
static bool begin_dryrun(const vp_command_line *line, vp_text *command)
{
    bool has_device = false;

    vp_text_printf(command, "vplan dryrun");
    for (int i = 0; i < line->n_given; i++) {
        bool is_device = strcmp(line->given[i].option->name, "--device") == 0;
        if (!is_device && strcmp(line->given[i].option->name, "--budget") != 0)
            continue;
        has_device = has_device || is_device;
        vp_text_printf(command, " %s ", line->given[i].option->name);
        vp_text_quoted(command, line->given[i].text);
    }
    return has_device;
}

void vp_check_any_print(const vp_command_line *line)
{
    vp_text command = {0};

    if (!begin_dryrun(line, &command))
        vp_text_printf(&command, " --device CARD");
    vp_text_printf(&command, " -- COMMAND");
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}

bool vp_check_played_print(const vp_checked *c, const vp_command_line *line, const char *label)
{
    const char *shell  = script_of(c, VP_FORMAT_FLAGS),
               *script = shell ? shell : script_of(c, VP_FORMAT_PYTHON);
    bool    is_rest    = line->rest && *line->rest;
    vp_text command    = {0};

    if (!is_rest && !script)
        return false;
    const char *runs = shell ? "bash" : "python";
    size_t      n    = is_rest ? 0 : strlen(script);
    if (n > 6 && strcmp(script + n - 6, ".ipynb") == 0) {
        vp_text_printf(&command, "jupyter nbconvert --to script ");
        vp_text_quoted(&command, script);
        vp_screen_command(label, vp_text_string(&command));
        vp_text_release(&command);
        label  = "";
        runs   = "ipython";
        script = vp_arena_printf(c->arena, "%.*s.py", (int)n - 6, script);
    }
    begin_dryrun(line, &command);
    add_rest(&command, line->rest, NULL, NULL);
    if (!is_rest && script) {
        vp_text_printf(&command, " -- %s ", runs);
        vp_text_quoted(&command, script);
    }
    vp_screen_command(label, vp_text_string(&command));
    vp_text_release(&command);
    return true;
}

/* Whether all that was read is settings, of YAML or JSON, and of no trainer that is known. */
static bool are_nobodys(const vp_checked *c)
{
    for (int i = 0; i < c->n_files; i++)
        if (!c->files[i].doc || c->files[i].doc->format == VP_FORMAT_FLAGS ||
            c->files[i].doc->format == VP_FORMAT_PYTHON)
            return false;
    return c->n_files > 0 && c->n_unjudged == c->n_files;
}

bool vp_check_whose_print(const vp_checked *c, const vp_command_line *line)
{
    const vp_option_change whose   = {"--for", "TRAINER", false, false};
    vp_text                command = {0};

    if (!are_nobodys(c))
        return false;
    vp_changed_command("check", line, NULL, &whose, 1, &command);
    add_rest(&command, line->rest, NULL, NULL);
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
    return true;
}

bool vp_check_again_print(const char *why, const vp_command_line *line)
{
    /* what stands for a value; "--model with its config.json" too */
    static const char *const values[][2] = {
        {"--model", "MODEL"}, {"--device", "CARD"}, {"--seq", "N"}, {"--world", "N"}};
    enum { N_VALUES = sizeof values / sizeof *values };
    vp_option_change set[N_VALUES];
    vp_text          command = {0};
    int              n       = 0;

    for (int i = 0; i < N_VALUES; i++)
        if (strstr(why, values[i][0]))
            set[n++] = (vp_option_change){values[i][0], values[i][1], false, false};
    if (!n)
        return false;
    vp_changed_command("check", line, NULL, set, n, &command);
    add_rest(&command, line->rest, NULL, NULL);
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
    return true;
}

void vp_check_missing_print(const vp_checked *c, const vp_command_line *line)
{
    const char *slash = strrchr(c->missing, '/'), *name = slash ? slash + 1 : c->missing;
    bool        brought = !strchr(name, '.'); /* torchtune's own, by a name that is no file's */
    const char *given   = vp_arena_printf(c->arena, brought ? "%s.yaml" : "PATH/TO/%s", name);
    vp_text     command = {0};
    vp_words    words;
    int         k = line->n_words;

    vp_changed_words(line, NULL, NULL, 0, &words);
    if (!given)
        return;
    if (brought) {
        vp_text_printf(&command, "tune cp ");
        vp_text_quoted(&command, c->missing);
        vp_text_printf(&command, " ");
        vp_text_quoted(&command, given);
        vp_screen_command("next", vp_text_string(&command));
        vp_text_release(&command);
    } else {
        memmove(&words.words[k + 1], &words.words[k], (size_t)(words.n - k) * sizeof *words.words);
        words.words[k] = given;
        words.n++;
    }
    vp_quote_words("check", &words, &command);
    add_rest(&command, line->rest, brought ? c->missing : NULL, given);
    vp_screen_command(brought ? "" : "next", vp_text_string(&command));
    vp_text_release(&command);
}
