#include "dryrun/dryrun_internal.h"

#include "base/child.h"
#include "base/file.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Words that start ranks themselves. */
static const char *launcher_of(char *const *command)
{
    static const char *const names[] = {"torchrun",
                                        "accelerate",
                                        "deepspeed",
                                        "torch.distributed.run",
                                        "torch.distributed.launch",
                                        "accelerate.commands.launch"};

    for (; *command; command++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const char *slash = strrchr(*command, '/');
            if (strcmp(slash ? slash + 1 : *command, names[i]) == 0)
                return names[i];
        }
    return NULL;
}

/* As typed in a shell, before a command: NAME=VALUE. */
static bool is_assignment(const char *word)
{
    size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

    return n && word[n] == '=' && strspn(word, "0123456789") == 0;
}

/* Put a program of ours with an argument before words. */
static void put_before(char **words, char *program, const char *null_dir, const char *name,
                       char *argument)
{
    size_t n = 0;

    while (words[n])
        n++;
    memmove(words + 2, words, (n + 1) * sizeof *words);
    snprintf(program, PATH_MAX + 16, "%s/%s", null_dir, name);
    words[0] = program;
    words[1] = argument;
}

/* The command; behind `env` where it begins with variables; behind the program that starts its ranks where several are played,
 * `play-ranks 0,1,2 CMD...`, or the one that asks for a fork, `play-forked SOCKET CMD...`, which gets the variables too. */
static vp_status with_ranks(const vp_dryrun_opts *opts, const char *null_dir, char *program,
                            char *list, size_t list_size, char ***out, vp_err *err)
{
    static char env_word[] = "env";
    size_t      n = 0, at = 0, before = 0, first = 0;
    bool        all      = vp_dryrun_all_ranks(opts);
    bool        several  = opts->world > 1 && opts->ranks && (all || strchr(opts->ranks, ','));
    const char *launcher = several || opts->of_kinds ? launcher_of(opts->command) : NULL;
    vp_status   st       = VP_OK;

    if (launcher)
        VP_TRY(
            VP_FAIL(err, VP_ERR_USAGE, "%s starts the ranks itself: leave out --world", launcher));
    while (opts->command[n])
        n++;
    *out = calloc(n + 4, sizeof **out);
    VP_TRY_ALLOC(err, *out);
    if (n && is_assignment(opts->command[0]))
        (*out)[before++] = env_word;
    memcpy(*out + before, opts->command, n * sizeof **out);
    if (several) {
        snprintf(list, list_size, "%s", all ? "" : opts->ranks);
        for (int64_t r = 0; all && r < opts->world; r++)
            at += (size_t)snprintf(list + at, list_size - at, "%s%lld", r ? "," : "", (long long)r);
        put_before(*out, program, null_dir, "play-ranks", list);
    } else if (opts->forks_at) {
        first = strcmp((*out)[0], env_word) == 0;
        while ((*out)[first] && first && is_assignment((*out)[first]))
            first++;
        snprintf(list, list_size, "%s", opts->forks_at);
        put_before(*out + first, program, null_dir, "play-forked", list);
    }
out:
    return st;
}

/* What is known of the one rank that was played. */
static vp_status keep_alone(const char *folder, const char *rank, const vp_dryrun_findings *found,
                            vp_dryrun_alone *alone, vp_err *err)
{
    vp_status st = VP_OK;
    char      path[PATH_MAX];
    int64_t   n;

    alone->row = json_incref(json_array_get(found->ranks, 0));
    if (snprintf(path, sizeof path, "%s/collectives.%s", folder, rank) < (int)sizeof path &&
        access(path, R_OK) == 0)
        VP_TRY(vp_file_read(path, (int64_t)512 << 20, &alone->calls, &n, err));
out:
    return st;
}

vp_status vp_dryrun_run_once(const vp_dryrun_opts *opts, int64_t number, vp_dryrun_result *result,
                             vp_dryrun_alone *alone, vp_err *err)
{
    vp_status           st    = VP_OK;
    vp_dryrun_env       env   = {0};
    vp_dryrun_findings  found = {0};
    vp_child_result     child = {0};
    vp_dryrun_judgement judged;
    vp_dryrun_folder    folder = {.fd = -1};
    char                null_dir[PATH_MAX], program[PATH_MAX + 16];
    char               *data = NULL, **command = NULL, list[4096];
    int64_t             n_data;

    result->document  = NULL;
    result->exit_code = 1;
    found.unsupported = json_array();
    found.ranks       = json_array();
    VP_TRY_ALLOC(err, found.unsupported && found.ranks);
    if (opts->snapshot_path && !opts->force && access(opts->snapshot_path, F_OK) == 0) {
        st =
            VP_FAIL(err, VP_ERR_USAGE, "%s exists: say --force to replace it", opts->snapshot_path);
        goto out;
    }
    VP_TRY(vp_dryrun_find_libraries(null_dir, PATH_MAX, err));
    VP_TRY(vp_dryrun_folder_make(&folder, err));
    VP_TRY(vp_dryrun_env_make(opts, null_dir, folder.path, &env, err));
    VP_TRY(with_ranks(opts, null_dir, program, list, sizeof list, &command, err));
    vp_child_opts child_opts = {.argv        = command,
                                .env_add     = env.vars,
                                .search_path = true,
                                .out         = VP_CHILD_TO_STDERR,
                                .err         = VP_CHILD_INHERIT,
                                .timeout_s   = opts->timeout_s,
                                .grace_s     = 5};
    if (number)
        vp_dryrun_env_set(&env, "VPLAN_NULL_JITTER=%lld", (long long)number);
    assert(env.n > 0 && !env.vars[env.n]);
    VP_TRY(vp_dryrun_keep(&child_opts, &folder, &child, err));
    VP_TRY(vp_dryrun_collect(folder.path, &found, err));
    if (alone)
        VP_TRY(keep_alone(folder.path, opts->ranks, &found, alone, err));
    vp_dryrun_judge(opts, &child, &found, &judged);
    result->document = vp_dryrun_document(
        opts, &found, judged.verdict,
        child.end == VP_CHILD_EXITED ? child.exit_code : 128 + child.term_signal, judged.reason);
    result->exit_code = judged.exit_code;
    if (opts->snapshot_path && found.snapshot[0]) {
        VP_TRY(vp_file_read(found.snapshot, (int64_t)2 << 30, &data, &n_data, err));
        VP_TRY(vp_file_write(opts->snapshot_path, data, (size_t)n_data, opts->force, err));
    }
out:
    if (st != VP_OK && result->document) {
        json_decref(result->document);
        result->document = NULL;
    }
    free(data);
    vp_json_doc_free(found.report);
    json_decref(found.unsupported);
    json_decref(found.ranks);
    free(command);
    vp_dryrun_env_release(&env);
    vp_dryrun_folder_release(&folder);
    return st;
}
