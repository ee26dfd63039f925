/* vplan run: hand the plan to vplan-run, which replaces this process. */
#include "cli/cli.h"

#include "core/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    const char *plan = NULL, *text[5] = {NULL}, *backend = "cpu";
    int64_t     count;
    bool        flag = false;
    const vp_option options[] = { /* checked here, so that a wrong word is vplan's own error */
        {"--steps", VP_OPTION_COUNT, &count}, {"--seed", VP_OPTION_SEED, &count}, {"--threads", VP_OPTION_COUNT, &count},
        {"--data", VP_OPTION_TEXT, &text[0]}, {"--init", VP_OPTION_TEXT, &text[1]}, {"--save-initial", VP_OPTION_TEXT, &text[2]},
        {"--save", VP_OPTION_TEXT, &text[3]}, {"--backend", VP_OPTION_TEXT, &backend}, {"--verify", VP_OPTION_FLAG, &flag},
        {"--force", VP_OPTION_FLAG, &flag},
    };
    char        program[1100];
    char      **child = NULL;
    int         n;
    vp_status   st = VP_OK;

    (void)cli;
    VP_TRY(vp_options_parse(argc, argv, options, sizeof options / sizeof *options, &plan, 1, &n, NULL, err));
    if (!plan)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "vplan run PLAN: which plan?"));
    if (strcmp(backend, "cpu") != 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--backend %s: this version has only cpu", backend));
    VP_TRY(vp_file_find_program("vplan-run", program, sizeof program, err));
    child = calloc((size_t)argc + 2, sizeof *child);
    VP_TRY_ALLOC(err, child);
    child[0] = program;
    memcpy(child + 1, argv, (size_t)argc * sizeof *argv);
    fflush(stdout);
    execv(program, child);
    st = VP_FAIL(err, VP_ERR_DEVICE, "%s cannot be executed: %s", program, strerror(errno));
out:
    free(child);
    return st;
}

const vp_command vp_cmd_run = {"run",
    "PLAN [--steps N] [--data FILE] [--init DIR] [--save-initial DIR] [--save DIR] [--seed N]\n"
    "                 [--backend cpu] [--threads N] [--verify] [--force] [--json]",
    "train a plan here: predicted and measured, side by side", run};
