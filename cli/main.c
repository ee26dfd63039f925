/* vplan: what a user types. */
#include "cli/cli.h"

#include "core/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define VP_VERSION "0.1.0"

static const vp_command *const commands[] = {
    &vp_cmd_estimate, &vp_cmd_plan, &vp_cmd_explain, &vp_cmd_run, &vp_cmd_tune, &vp_cmd_dryrun, &vp_cmd_models,
    &vp_cmd_devices,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_usage(FILE *to)
{
    fprintf(to, "usage: vplan COMMAND ...\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\nvplan COMMAND --help shows a command's options. Exit codes: 0 done or fits, 1 internal error, 2 usage,\n"
                "3 does not fit, 4 invalid input, 5 device or environment, 6 no trial succeeded, 7 storage, 8 not proved.\n");
}

/* --json counts for errors too, wherever it stands before "--". */
static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

/* A text that may hold bytes that are no UTF-8, like a file's name; null for "". */
static json_t *text_or_null(const char *text)
{
    char    shown[4096];
    json_t *j = text[0] ? json_string(text) : json_null();

    return j ? j : json_string(vp_text_escape(text, shown, sizeof shown));
}

static int report(const vp_err *err, vp_status st, bool json)
{
    char message[4096];

    fprintf(stderr, "vplan: %s\n", vp_err_text(err, message, sizeof message));
    if (json) {
        vp_err ignored = {0};
        vp_print_json(json_pack("{s:i, s:{s:s, s:o, s:o, s:o, s:o}}", "schema_version", 1, "error", "code", vp_status_id(st), "message",
                                text_or_null(err->message), "file", text_or_null(err->file), "line",
                                err->line ? json_integer(err->line) : json_null(), "field", text_or_null(err->field)), &ignored);
    }
    return vp_status_exit_code(st);
}

int main(int argc, char **argv)
{
    vp_cli            cli     = {.json = has_word(argc, argv, "--json")};
    vp_err            err     = {0};
    const vp_command *command = NULL;

    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("vplan " VP_VERSION "\n");
        return 0;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, argv[1]) == 0)
            command = commands[i];
    if (!command) {
        char shown[128];
        vp_status st = VP_FAIL(&err, VP_ERR_USAGE, "no command %s; vplan --help lists them", vp_text_escape(argv[1], shown, sizeof shown));
        return report(&err, st, cli.json);
    }
    if (has_word(argc - 1, argv + 1, "--help")) {
        printf("usage: vplan %s %s\n\n%s\n", command->name, command->synopsis, command->summary);
        return 0;
    }
    vp_status st = command->run(argc - 2, argv + 2, &cli, &err);
    if (st != VP_OK)
        return report(&err, st, cli.json);
    errno = 0;
    if (fflush(stdout) != 0 && errno != EPIPE && cli.exit_code == 0) { /* a reader that has seen enough is no fault */
        st = VP_FAIL(&err, VP_ERR_STORAGE, "standard output cannot be written");
        return report(&err, st, false);
    }
    return cli.exit_code;
}
