#include "dryrun/dryrun_internal.h"

#include "base/child.h"
#include "base/file.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

vp_status vp_dryrun_run(const vp_dryrun_opts *opts, vp_dryrun_result *result, vp_err *err)
{
    vp_status           st    = VP_OK;
    vp_dryrun_env       env   = {0};
    vp_dryrun_findings  found = {0};
    vp_child_result     child = {0};
    vp_dryrun_judgement judged;
    vp_dryrun_folder    folder = {.fd = -1};
    char                null_dir[PATH_MAX];
    char               *data = NULL;
    int64_t             n_data;

    result->document  = NULL;
    result->exit_code = 1;
    found.unsupported = json_array();
    VP_TRY_ALLOC(err, found.unsupported);
    if (opts->snapshot_path && !opts->force && access(opts->snapshot_path, F_OK) == 0) {
        st =
            VP_FAIL(err, VP_ERR_USAGE, "%s exists: say --force to replace it", opts->snapshot_path);
        goto out;
    }
    VP_TRY(vp_dryrun_find_libraries(null_dir, sizeof null_dir, err));
    VP_TRY(vp_dryrun_folder_make(&folder, err));
    VP_TRY(vp_dryrun_env_make(opts, null_dir, folder.path, &env, err));
    vp_child_opts child_opts = {.argv        = opts->command,
                                .env_add     = env.vars,
                                .search_path = true,
                                .out         = VP_CHILD_TO_STDERR,
                                .err         = VP_CHILD_INHERIT,
                                .timeout_s   = opts->timeout_s,
                                .grace_s     = 5};
    assert(env.n > 0 && !env.vars[env.n]);
    VP_TRY(vp_dryrun_keep(&child_opts, &folder, &child, err));
    VP_TRY(vp_dryrun_collect(folder.path, &found, err));
    vp_dryrun_judge(&child, &found, &judged);
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
    vp_dryrun_env_release(&env);
    vp_dryrun_folder_release(&folder);
    return st;
}
