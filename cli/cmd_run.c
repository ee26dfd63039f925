/* vplan run: hand the plan to vplan-run, which replaces this process. */
#include "cli/cli.h"

#include "core/file.h"
#include "models/hub_cache.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PLANS = 16 };

/* What vplan-run takes, said its way: options as two words each, a plan never like an option. */
typedef struct words {
    char *argv[32 + MAX_PLANS];
    int   n;
    char  numbers[3][24], plans[MAX_PLANS][4200];
} words;

static void add_text(words *w, const char *option, const char *value)
{
    if (!value)
        return;
    w->argv[w->n++] = (char *)(uintptr_t)option;
    w->argv[w->n++] = (char *)(uintptr_t)value;
}

static void add_number(words *w, int slot, const char *option, int64_t value)
{
    if (value < 0)
        return;
    snprintf(w->numbers[slot], sizeof w->numbers[slot], "%lld", (long long)value);
    add_text(w, option, w->numbers[slot]);
}

static void add_flag(words *w, const char *option, bool given)
{
    if (given)
        w->argv[w->n++] = (char *)(uintptr_t)option;
}

/* --init takes a Hub id too, where no folder has that name. ORG/NAME must be in the cache; a NAME that is not there is left
 * to vplan-run, which says what is wrong with the folder. */
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
        return vp_fail(err, st, missing.file[0] ? missing.file : *init, missing.line, missing.field, "%s", missing.message);
    return VP_OK;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    const char *plans[MAX_PLANS] = {NULL}, *data = NULL, *init = NULL, *save_initial = NULL, *save = NULL, *save_profile = NULL, *backend = NULL;
    int64_t     steps = -1, seed = -1, threads = -1;
    bool        verify = false, eager = false, force = false;
    const vp_option options[] = {
        {"--steps", VP_OPTION_COUNT, &steps}, {"--seed", VP_OPTION_SEED, &seed}, {"--threads", VP_OPTION_COUNT, &threads},
        {"--data", VP_OPTION_TEXT, &data}, {"--init", VP_OPTION_TEXT, &init}, {"--save-initial", VP_OPTION_TEXT, &save_initial},
        {"--save", VP_OPTION_TEXT, &save}, {"--save-profile", VP_OPTION_TEXT, &save_profile}, {"--backend", VP_OPTION_TEXT, &backend},
        {"--verify", VP_OPTION_FLAG, &verify}, {"--eager", VP_OPTION_FLAG, &eager}, {"--force", VP_OPTION_FLAG, &force},
    };
    char        program[1100], folder[PATH_MAX];
    words       w = {0};
    int         n;
    vp_status   st = VP_OK;

    VP_TRY(vp_options_parse(argc, argv, options, sizeof options / sizeof *options, plans, MAX_PLANS, &n, NULL, err));
    if (n == 0)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "vplan run PLAN: which plan?"));
    const char *inputs[] = {plans[0], data, init};
    if (save_profile)
        VP_TRY(vp_output_check(save_profile, force, inputs, 3, err));
    VP_TRY(find_init(&init, folder, sizeof folder, err));
    VP_TRY(vp_file_find_program("vplan-run", program, sizeof program, err));
    w.argv[w.n++] = program;
    for (int i = 0; i < n; i++) {
        snprintf(w.plans[i], sizeof w.plans[i], "%s%s", plans[i][0] == '-' && plans[i][1] ? "./" : "", plans[i]);
        w.argv[w.n++] = w.plans[i];
    }
    add_flag(&w, "--compare", n > 1);
    add_number(&w, 0, "--steps", steps);
    add_number(&w, 1, "--seed", seed);
    add_number(&w, 2, "--threads", threads);
    add_text(&w, "--data", data);
    add_text(&w, "--init", init);
    add_text(&w, "--save-initial", save_initial);
    add_text(&w, "--save", save);
    add_text(&w, "--save-profile", save_profile);
    add_text(&w, "--backend", backend);
    add_flag(&w, "--verify", verify);
    add_flag(&w, "--eager", eager);
    add_flag(&w, "--force", force);
    add_flag(&w, "--json", cli->json);
    fflush(stdout);
    execv(program, w.argv);
    st = VP_FAIL(err, VP_ERR_DEVICE, "%s cannot be executed: %s", program, strerror(errno));
out:
    return st;
}

const vp_command vp_cmd_run = {"run",
    "PLAN... [--steps N] [--data FILE] [--init DIR|ID] [--save-initial DIR] [--save DIR] [--save-profile FILE]\n"
    "                 [--seed N] [--backend cpu|cuda|FILE.so] [--threads N] [--verify] [--eager] [--force] [--json]",
    "train a plan here: predicted and measured, side by side; several plans: in turns, which is faster", run};
