#include "dryrun/fake_weights.h"

#include "base/file.h"
#include "dryrun/dryrun_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

vp_status vp_fake_weights_make(const vp_fake_weights_opts *opts, int *exit_code, vp_err *err)
{
    vp_status        st     = VP_OK;
    vp_child_result  child  = {0};
    vp_dryrun_env    env    = {0};
    const char      *config = opts->config_path;
    vp_dryrun_folder folder = {.fd = -1};
    char             null_dir[PATH_MAX], script[PATH_MAX + 32], written[PATH_MAX + 16];
    char           **argv = NULL;
    size_t           n    = 0;

    VP_TRY(vp_dryrun_find_libraries(null_dir, sizeof null_dir, err));
    VP_TRY(vp_dryrun_folder_make(&folder, err));
    if (!config) {
        snprintf(written, sizeof written, "%s/config.json", folder.path);
        VP_TRY(vp_file_write(written, opts->config_text, strlen(opts->config_text), true, err));
        config = written;
    }
    snprintf(script, sizeof script, "%s/probe/fake_weights.py", null_dir);
    /* a torch without NVIDIA's libraries will do */
    VP_TRY(vp_dryrun_env_add_libraries(&env, null_dir, err));
    vp_dryrun_env_set(&env, "CUDA_VISIBLE_DEVICES=");
    vp_dryrun_env_set(&env, "HF_HUB_OFFLINE=1");
    VP_TRY_ALLOC(err, !env.failed);
    assert(opts->python[0] && (opts->config_path || opts->config_text) && opts->out_dir);
    while (opts->python[n])
        n++;
    argv = malloc((n + 6) * sizeof *argv);
    VP_TRY_ALLOC(err, argv);
    memcpy(argv, opts->python, n * sizeof *argv);
    argv[n++]                = script;
    argv[n++]                = (char *)config;
    argv[n++]                = (char *)opts->out_dir;
    argv[n++]                = (char *)(opts->dtype ? opts->dtype : "");
    argv[n++]                = opts->force ? "force" : "";
    argv[n]                  = NULL;
    vp_child_opts child_opts = {.argv        = argv,
                                .env_add     = env.vars,
                                .search_path = true,
                                .out         = VP_CHILD_TO_STDERR,
                                .err         = VP_CHILD_INHERIT,
                                .grace_s     = 5};
    VP_TRY(vp_dryrun_keep(&child_opts, &folder, &child, err));
    *exit_code = child.end == VP_CHILD_EXITED ? child.exit_code : 128 + child.term_signal;
out:
    free(argv);
    vp_dryrun_env_release(&env);
    vp_dryrun_folder_release(&folder);
    return st;
}
