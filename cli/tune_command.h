/* cli/tune_command.h: `vplan tune [options] -- CMD...`: what cmd_tune.c's options ask for, done and printed. */
#ifndef VP_CLI_TUNE_COMMAND_H
#define VP_CLI_TUNE_COMMAND_H

#include "cli/cli.h"

typedef struct vp_tune_command_options {
    const char *device, *study, *folder;
    const char *last_try, *last_keep; /* all of them are in the command line's given[] */
    vp_amount   budget;
    int64_t     max_trials, steps, world, jobs;
    int64_t     on_card; /* -1: as the card says */
    double      timeout_s;
    bool        force;
} vp_tune_command_options;

/* line->rest is the command. Sets cli->exit_code: 3 where nothing fits. */
vp_status vp_tune_command(const vp_tune_command_options *options, const vp_command_line *line,
                          vp_cli *cli, vp_err *err);

#endif
