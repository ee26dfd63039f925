/* vplan run: hand the plan to vplan-run, which replaces this process. */
#include "cli/cli.h"
#include "runtime/run_options.h"

#include "base/child.h"
#include "base/file.h"
#include "models/hub_cache.h"
#include "planner/remake.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What vplan-run takes: the words as they were typed, but a path never like an option. */
typedef struct words {
    char *argv[2 * VP_MAX_GIVEN + VP_MAX_WORDS + 4];
    int   n, n_paths;
    char  paths[VP_MAX_GIVEN + VP_MAX_WORDS][4200];
} words;

static void add(words *w, const char *word)
{
    assert(w->n + 1 < (int)(sizeof w->argv / sizeof *w->argv));
    w->argv[w->n++] = (char *)(uintptr_t)word;
}

static void add_path(words *w, const char *path)
{
    char *to = w->paths[w->n_paths++];

    assert(w->n_paths <= (int)(sizeof w->paths / sizeof *w->paths));
    snprintf(to, sizeof w->paths[0], "%s%s", path[0] == '-' && path[1] ? "./" : "", path);
    add(w, to);
}

/* --init takes a Hub id too, where no folder has that name. ORG/NAME must be in the cache; a
 * NAME that is not there is left to vplan-run, which says what is wrong with the folder. */
static vp_status find_init(const char **init, char *folder, size_t folder_size, vp_err *err)
{
    vp_err      missing = {0};
    struct stat info;
    vp_status   st = VP_OK;

    if (!*init || lstat(*init, &info) == 0 || !vp_hub_is_id(*init))
        return VP_OK;
    st = vp_hub_find(*init, VP_HUB_WEIGHTS, folder, folder_size, &missing);
    if (st == VP_OK)
        *init = folder;
    else if (missing.file[0] || strchr(*init, '/'))
        return vp_fail(err, st, missing.file[0] ? missing.file : *init, missing.line, missing.field,
                       "%s", missing.message);
    return VP_OK;
}

/* What vplan-run takes of an edited plan has passed every check that needs no model. This one is of
 * its model. Standard input is read here and put back. */
static vp_status check_edited(const char *path, vp_err *err)
{
    vp_json_doc *doc   = NULL;
    vp_plan     *plan  = NULL;
    char        *bytes = NULL;
    int64_t      n_bytes;
    int          fd = -1;
    vp_status    st = VP_OK;

    VP_TRY(vp_file_read(path, VP_PLAN_MAX_BYTES, &bytes, &n_bytes, err));
    VP_TRY(vp_json_parse(strcmp(path, "-") ? path : "standard input", bytes, n_bytes, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_plan_from_json(&root, &plan, err));
    if (!plan->is_signed)
        VP_TRY(vp_plan_check_remade(plan, &root, err));
    if (strcmp(path, "-") == 0) {
        fd = memfd_create("plan", MFD_CLOEXEC);
        if (fd < 0 || write(fd, bytes, (size_t)n_bytes) != n_bytes || lseek(fd, 0, SEEK_SET) != 0 ||
            dup2(fd, STDIN_FILENO) != STDIN_FILENO)
            st = VP_FAIL(err, VP_ERR_DEVICE, "standard input cannot be kept: %s", strerror(errno));
    }
out:
    if (fd >= 0)
        close(fd);
    free(bytes);
    vp_plan_free(plan);
    vp_json_doc_free(doc);
    return st;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    vp_run_args     a = {.seed = -1};
    vp_command_line line;
    const char     *init;
    char            program[1100], folder[PATH_MAX];
    words          *w  = calloc(1, sizeof *w);
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, w);
    VP_TRY(vp_cli_parse(&vp_cmd_run, argc, argv, cli, (void *[]){&a}, &line, err));
    if (line.n_words == 0)
        VP_TRY(vp_cli_lacks(&vp_cmd_run, "vplan run PLAN: which plan?", err));
    const char *inputs[] = {line.words[0], a.data, a.init};
    if (a.save_profile)
        VP_TRY(vp_output_check(a.save_profile, a.force, inputs, 3, err));
    init = a.init;
    VP_TRY(find_init(&init, folder, sizeof folder, err));
    for (int i = 0; a.unsigned_too && i < line.n_words; i++)
        VP_TRY(check_edited(line.words[i], err));
    VP_TRY(vp_file_find_program("vplan-run", program, sizeof program, err));
    add(w, program);
    for (int i = 0; i < line.n_words; i++)
        add_path(w, line.words[i]);
    if (line.n_words > 1)
        add(w, "--compare");
    for (int i = 0; i < line.n_given; i++) {
        const vp_option *o    = line.given[i].option;
        const char      *text = line.given[i].text;
        assert((text == NULL) == (o->kind == VP_OPTION_FLAG));
        add(w, o->name);
        if (text)
            add_path(w, strcmp(o->name, "--init") == 0 ? init : text);
    }
    assert(!w->argv[w->n]); /* where the words end */
    fflush(stdout);
    vp_child_env_for_threads();
    execv(program, w->argv);
    st = VP_FAIL(err, VP_ERR_DEVICE, "%s cannot be executed: %s", program, strerror(errno));
out:
    free(w);
    return st;
}

const vp_command vp_cmd_run = {
    .name     = "run",
    .summary  = "train by a plan; memory predicted and measured, side by side",
    .usage    = {"PLAN... [options]"},
    .about    = {"Train a plan here, on the device it is for; print predicted and executed bytes. "
                    "Several plans take turns, a step of each, all alive at once on random tokens: "
                    "printed is how much slower each is than the first.",
                 "A plan is complete: running it needs neither the model nor the planner. The "
                    "program vplan-run does it."},
    .examples = {"vplan run plan.json --steps 3", "vplan run plan.json --init gpt2 --save trained"},
    .sets     = {&vp_run_options},
    .argument = VP_TAKES_FILE,
    .max_words = VP_MAX_WORDS,
    .run       = run,
};
