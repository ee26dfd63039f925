#include "tuner/command_internal.h"

#include "base/file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

/* Whether a word is a Python: its last part is python, with a version or none; in PATH, or from the root, so that it is the same
 * one in every folder. */
static bool is_python(const char *word)
{
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;

    if ((slash && word[0] != '/') || strncmp(name, "python", 6) != 0)
        return false;
    for (name += 6; *name; name++)
        if (!isdigit((unsigned char)*name) && *name != '.')
            return false;
    return true;
}

/* Where the words of a Python that runs a script begin, behind `env` and variables; -1: it is another kind of command. */
static int python_at(char *const *command)
{
    int         at = strcmp(command[0], "env") == 0;
    const char *end;

    while (command[at] && strchr(command[at], '=') && command[at][0] != '-' &&
           !strchr(command[at], '/'))
        at++;
    if (!command[at] || !is_python(command[at]) || !command[at + 1])
        return -1;
    end = strrchr(command[at + 1], '.');
    return command[at + 1][0] != '-' && end && strcmp(end, ".py") == 0 ? at : -1;
}

/* Whether a script imports, at the beginning of a line, a package that takes seconds: for others a fork saves less than the
 * process takes that is forked. */
static bool imports_much(const char *script)
{
    static const char *const packages[] = {"torch",      "transformers", "datasets",
                                           "lightning",  "trl",          "pytorch_lightning",
                                           "accelerate", "diffusers",    "sentence_transformers"};
    char                    *text       = NULL, *rest, *line;
    int64_t                  n;
    bool                     found = false;

    if (vp_file_read(script, 1 << 20, &text, &n, NULL) != VP_OK)
        return false;
    for (line = strtok_r(text, "\n", &rest); line && !found; line = strtok_r(NULL, "\n", &rest)) {
        const char *name = strncmp(line, "import ", 7) == 0 ? line + 7
                           : strncmp(line, "from ", 5) == 0 ? line + 5
                                                            : "";
        size_t      end  = strcspn(name, " .,\r");
        for (size_t i = 0; i < sizeof packages / sizeof *packages; i++)
            found = found || (end == strlen(packages[i]) && strncmp(name, packages[i], end) == 0);
    }
    free(text);
    return found;
}

vp_status vp_trial_forks_start(const vp_command_opts *opts, const char *program, const char *parent,
                               vp_trial_forks *forks, vp_err *err)
{
    char          script[PATH_MAX], at[PATH_MAX + 16], cwd[PATH_MAX + 8], *command[64];
    int           python = python_at(opts->command), n = 0;
    vp_arena     *arena = NULL;
    vp_child_opts child = {
        .out = VP_CHILD_CAPTURE, .err = VP_CHILD_CAPTURE, .max_output_bytes = 1 << 16};
    vp_command_opts endless = *opts;
    vp_status       st      = VP_OK;

    snprintf(at, sizeof at, "%s/forks", parent);
    if (python < 0 || python > 32 || opts->world > 1 || !imports_much(opts->command[python + 1]) ||
        strlen(at) + strlen(".new") >= sizeof((struct sockaddr_un *)0)->sun_path ||
        vp_file_find_program("null/probe/vplan_zygote.py", script, sizeof script, NULL) != VP_OK)
        goto out;
    arena = vp_arena_new();
    VP_TRY_ALLOC(err, arena);
    for (int i = 0; i <= python; i++) /* its variables, and the Python */
        command[n++] = opts->command[i];
    command[n++] = script;
    command[n++] = at;
    command[n++] = opts->command[python];
    command[n++] = opts->command[python + 1];
    command[n]   = NULL;
    VP_TRY(vp_trial_folder_make(parent, 0, &forks->folder, err));
    endless.timeout_s = 0;
    child.argv        = vp_trial_words(&endless, program, command, &forks->folder, arena);
    VP_TRY_ALLOC(err, child.argv);
    snprintf(forks->variable, sizeof forks->variable, "VPLAN_FORKS_AT=%s", at);
    snprintf(cwd, sizeof cwd, "%s/cwd", forks->folder.path);
    VP_TRY(vp_job_start(&child, cwd, &forks->job, err));
out:
    vp_arena_free(arena);
    return st;
}

void vp_trial_forks_stop(vp_trial_forks *forks)
{
    const char *at = strchr(forks->variable, '=');

    vp_job_stop(&forks->job);
    if (at)
        unlink(at + 1);
    if (forks->folder.path[0])
        vp_trial_folder_remove(&forks->folder);
}
