/* vplan: what a user types. */
#include "cli/cli.h"
#include "cli/meant.h"

#include "base/output.h"
#include "base/text.h"

#include <assert.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define VP_VERSION "0.1.0"

static const vp_command *const commands[] = {
    &vp_cmd_estimate, &vp_cmd_plan,    &vp_cmd_explain, &vp_cmd_run,    &vp_cmd_tune,
    &vp_cmd_study,    &vp_cmd_emit,    &vp_cmd_check,   &vp_cmd_dryrun, &vp_cmd_doctor,
    &vp_cmd_models,   &vp_cmd_devices, &vp_cmd_targets, &vp_cmd_help,   &vp_cmd_completion,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

const vp_command *vp_command_at(int i)
{
    assert(i >= 0);
    return i < N_COMMANDS ? commands[i] : NULL;
}

/* --json counts for errors too, wherever it stands before "--". */
static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

static int report(const vp_err *err, vp_status st, bool json)
{
    char message[4096];

    assert(st != VP_OK && err->message[0]); /* a failure says why */
    vp_err_text(err, message, sizeof message);
    vp_output_say("vplan: ", message);
    if (json) {
        vp_err ignored = {0};
        vp_print_json(json_pack("{s:i, s:{s:s, s:o, s:o, s:o, s:o}}", "schema_version", 1, "error",
                                "code", vp_status_id(st), "message",
                                vp_json_text_or_null(err->message), "file",
                                vp_json_text_or_null(err->file), "line",
                                err->line ? json_integer(err->line) : json_null(), "field",
                                vp_json_text_or_null(err->field)),
                      &ignored);
    }
    return vp_status_exit_code(st);
}

vp_status vp_command_named(const char *word, const vp_command **out, vp_err *err)
{
    const char *names[N_COMMANDS];
    char        shown[128], hint[200];
    int         nearest;

    for (int i = 0; i < N_COMMANDS; i++) {
        *out = commands[i];
        if (strcmp(commands[i]->name, word) == 0)
            return VP_OK;
        names[i] = commands[i]->name;
    }
    *out = NULL;
    if (vp_command_meant(word, hint, sizeof hint))
        return VP_FAIL(err, VP_ERR_USAGE, "no command %s; %s",
                       vp_text_escape(word, shown, sizeof shown), hint);
    nearest = vp_word_nearest(word, names, N_COMMANDS);
    vp_text_escape(word, shown, sizeof shown);
    if (nearest >= 0)
        return VP_FAIL(err, VP_ERR_USAGE, "no command %s; did you mean %s?", shown, names[nearest]);
    return VP_FAIL(err, VP_ERR_USAGE, "no command %s; vplan --help lists them", shown);
}

/* The words behind the program's name, up to the command's answer on stdout. */
static vp_status answer(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    const vp_command *command;
    vp_status         st = VP_OK;

    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        VP_TRY(vp_help_print(NULL, err));
        goto out;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("vplan " VP_VERSION "\n");
        goto out;
    }
    VP_TRY(vp_command_named(argv[1], &command, err));
    if (has_word(argc - 1, argv + 1, "--help"))
        VP_TRY(vp_help_print(command, err));
    else
        VP_TRY(command->run(argc - 2, argv + 2, cli, err));
out:
    return st;
}

/* Planning makes and drops thousands of arenas: memory that was dropped is kept for the next one
 * instead of being given back to the system and asked for again, page by page. */
static void keep_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

int main(int argc, char **argv)
{
    vp_cli    cli   = {.json = has_word(argc, argv, "--json")};
    vp_err    err   = {0};
    vp_text   usage = {0};
    vp_status st;

    keep_memory();
    vp_output_begin();
    if (argc < 2) {
        vp_help_text(NULL, &usage);
        fputs(vp_text_string(&usage), stderr);
        vp_text_release(&usage);
        return 2;
    }
    st = answer(argc, argv, &cli, &err);
    if (st != VP_OK)
        return report(&err, st, cli.json);
    if (cli.exit_code == 0 && (st = vp_output_end(&err)) != VP_OK)
        return report(&err, st, false);
    return cli.exit_code;
}
