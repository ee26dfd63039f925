#include "tuner/command_internal.h"

#include "base/text.h"
#include "trainers/files/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* transformers' TrainingArguments as they stand on command lines (HfArgumentParser), which TRL's
 * configs extend. Their defaults: transformers 5, training_args.py. */
static const char micro_batch[]   = "--per_device_train_batch_size",
                  accumulation[]  = "--gradient_accumulation_steps",
                  checkpointing[] = "--gradient_checkpointing", optimizer[] = "--optim",
                  attention[] = "--attn_implementation";
enum { DEFAULT_BATCH = 8, MAX_BATCH = 1024 };

static bool is_one_of(const char *word, const char *const *options, size_t n_options)
{
    size_t n = strcspn(word, "=");

    for (size_t i = 0; i < n_options; i++)
        if (strlen(options[i]) == n && strncmp(options[i], word, n) == 0)
            return true;
    return false;
}

bool vp_command_is_text(const char *word)
{
    static const char *const options[] = {"--train_file", "--validation_file", "--test_file"};

    return is_one_of(word, options, sizeof options / sizeof *options);
}

bool vp_command_is_output(const char *word)
{
    static const char *const options[] = {
        "--output_dir",     "--output-dir",     "--out_dir",    "--out-dir",
        "--outdir",         "--output",         "--save_dir",   "--save-dir",
        "--logging_dir",    "--logging-dir",    "--log_dir",    "--log-dir",
        "--checkpoint_dir", "--checkpoint-dir", "--ckpt_dir",   "--default_root_dir",
        "--project_dir",    "--save_path",      "--save-path",  "--output_path",
        "--output-path",    "--run_dir",        "--results_dir"};

    return is_one_of(word, options, sizeof options / sizeof *options);
}

static long long number(char *const *command, const char *option, long long otherwise)
{
    const char *text = vp_command_value(command, option, NULL);
    char       *end;
    long long   n = text ? strtoll(text, &end, 10) : otherwise;

    return text && (*end || n < 1) ? otherwise : n;
}

static vp_status add_option(vp_command_space *space, const char *option, const char *values,
                            char *const *command, vp_err *err)
{
    return vp_space_add_axis(space, (vp_axis){.name = option, .place = VP_AXIS_OPTION}, values,
                             NULL, command, err);
}

/* Every way to do so many samples a step: two axes, and what must be kept of them. */
static vp_status add_batches(vp_command_space *space, const vp_axis axes[2],
                             const char *const had[2], long long all, char *const *command,
                             char keep[300], vp_err *err)
{
    vp_text   values[2] = {{0}, {0}};
    vp_status st        = VP_OK;

    for (long long b = 1; b <= all && b <= MAX_BATCH; b++)
        if (all % b == 0) {
            vp_text_printf(&values[0], "%s%lld", b > 1 ? "," : "", b);
            vp_text_printf(&values[1], "%s%lld", b > 1 ? "," : "", all / b);
        }
    VP_TRY_ALLOC(err, !values[0].failed && !values[1].failed);
    for (int i = 0; i < 2; i++)
        VP_TRY(vp_space_add_axis(space, axes[i], values[i].data, had[i], command, err));
    snprintf(keep, 300, "%s*%s=%lld", axes[0].name, axes[1].name, all);
out:
    vp_text_release(&values[0]);
    vp_text_release(&values[1]);
    return st;
}

/* Segments that grow: what is allocated at a time is the same, what is reserved is less. Where nobody has said how. */
static vp_status add_allocator(vp_command_space *space, char *const *command, vp_err *err)
{
    static const char *const names[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};

    for (int i = 0; i < 2; i++) {
        if (getenv(names[i]))
            return VP_OK;
        for (char *const *word = command; *word; word++)
            if (strncmp(*word, names[i], strlen(names[i])) == 0)
                return VP_OK;
    }
    return vp_space_add_axis(
        space, (vp_axis){.name = names[0], .place = VP_AXIS_VARIABLE, .kind = VP_AXIS_PACKS},
        "default,expandable_segments:True", "default", command, err);
}

static vp_status add_options(char *const *command, vp_command_space *space, char keep[300],
                             vp_err *err)
{
    const char *optim        = vp_command_value(command, optimizer, NULL),
               *attends      = vp_command_value(command, attention, NULL);
    const vp_axis batches[2] = {{.name = micro_batch, .place = VP_AXIS_OPTION},
                                {.name = accumulation, .place = VP_AXIS_OPTION}};
    vp_status     st         = VP_OK;

    if (!vp_command_value(command, micro_batch, NULL) &&
        !vp_command_value(command, accumulation, NULL) &&
        !vp_command_value(command, checkpointing, NULL))
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "no --try, and the command has none of transformers' options that say what may change (%s, %s), nor "
            "names a trainer's file of settings: name an option and its values, as in --try --batch-size=1,2,4,8",
            micro_batch, accumulation));
    VP_TRY(
        add_batches(space, batches, (const char *const[2]){NULL, NULL},
                    number(command, micro_batch, DEFAULT_BATCH) * number(command, accumulation, 1),
                    command, keep, err));
    VP_TRY(add_option(space, checkpointing, "False,True", command, err));
    if (!optim || strcmp(optim, "adamw_torch") == 0 || strcmp(optim, "adamw_torch_fused") == 0)
        VP_TRY(add_option(space, optimizer, "adamw_torch,adamw_torch_fused", command, err));
    if (attends && (strcmp(attends, "eager") == 0 || strcmp(attends, "sdpa") == 0))
        VP_TRY(add_option(space, attention, "sdpa,eager", command, err));
out:
    return st;
}

/* ---- settings that stand in files ---- */

/* What may be moved between these words, since the same is trained; `to` is the word that saves memory where saves. Of a setting with
 * two rows the first that can be counts. */
static const struct {
    vp_setting   setting;
    const char  *from, *to;
    vp_axis_kind kind;
    bool         written; /* only where somebody wrote it */
} movable[] = {
    {VP_SETTING_RECOMPUTE, "none", "full", VP_AXIS_SAVES, false},
    {VP_SETTING_RECOMPUTE, "none", "full:reentrant", VP_AXIS_SAVES, false},
    {VP_SETTING_OPTIMIZER, "adamw_torch", "adamw_torch_fused", VP_AXIS_PLAIN, false},
    {VP_SETTING_ATTENTION, "sdpa", "eager", VP_AXIS_PLAIN, true},
    {VP_SETTING_LOSS, "full", "chunked", VP_AXIS_PLAIN, true},
    {VP_SETTING_OFFLOAD_ACTIVATIONS, "none", "cpu", VP_AXIS_SAVES, true},
    {VP_SETTING_OFFLOAD_OPTIMIZER, "none", "cpu", VP_AXIS_SAVES, true},
    {VP_SETTING_OFFLOAD_PARAMS, "none", "cpu", VP_AXIS_SAVES, true},
};

static vp_status add_movable(vp_command_space *space, char *const *command, vp_err *err)
{
    char      values[80];
    int       added = -1;
    vp_status st    = VP_OK;

    for (size_t i = 0; i < sizeof movable / sizeof *movable; i++) {
        bool        by_default, first;
        const char *had = vp_command_files_says(space->files, movable[i].setting, &by_default);
        first           = had && strcmp(had, movable[i].from) == 0;
        if (!had || (int)movable[i].setting == added ||
            (!first && strcmp(had, movable[i].to) != 0) || (movable[i].written && by_default) ||
            !vp_command_files_can(space->files, movable[i].setting,
                                  first ? movable[i].to : movable[i].from, command))
            continue;
        snprintf(values, sizeof values, "%s,%s", movable[i].from, movable[i].to);
        VP_TRY(vp_space_add_axis(space,
                                 (vp_axis){.name    = vp_setting_key(movable[i].setting),
                                           .place   = VP_AXIS_SETTING,
                                           .setting = movable[i].setting,
                                           .kind    = movable[i].kind},
                                 values, had, command, err));
        added = (int)movable[i].setting;
    }
out:
    return st;
}

static long long count_of(const char *text)
{
    char     *end;
    long long n = text ? strtoll(text, &end, 10) : 0;

    return text && !*end && n > 0 ? n : 0;
}

/* The samples of a micro-step under the setting's name, or under the key of a file that counts them; not known: none. */
static vp_status add_file_batches(vp_command_space *space, char *const *command, char keep[300],
                                  vp_err *err)
{
    const vp_command_files *f = space->files;
    bool                    by_default;
    const char             *had[2] = {vp_command_files_says(f, VP_SETTING_MICRO_BATCH, &by_default),
                                      vp_command_files_says(f, VP_SETTING_ACCUMULATION, &by_default)};
    vp_axis                 axes[2] = {{.name    = vp_setting_key(VP_SETTING_MICRO_BATCH),
                                        .place   = VP_AXIS_SETTING,
                                        .setting = VP_SETTING_MICRO_BATCH},
                                       {.name    = vp_setting_key(VP_SETTING_ACCUMULATION),
                                        .place   = VP_AXIS_SETTING,
                                        .setting = VP_SETTING_ACCUMULATION}};
    vp_status               st      = VP_OK;

    if (!count_of(had[0]) && (axes[0].name = vp_command_files_batch(f))) {
        axes[0].place = VP_AXIS_KEY;
        axes[0].kind  = VP_AXIS_SIZE;
        axes[0].file  = vp_command_files_key(f, axes[0].name, &had[0]);
    }
    long long all = count_of(had[0]) * (count_of(had[1]) ? count_of(had[1]) : 1);
    had[1]        = had[1] ? had[1] : "1";
    if (all > 1 &&
        vp_command_files_can(
            f, VP_SETTING_ACCUMULATION,
            count_of(had[1]) == all ? "1" : vp_arena_printf(space->arena, "%lld", all), command))
        VP_TRY(add_batches(space, axes, had, all, command, keep, err));
out:
    return st;
}

static vp_status add_settings(char *const *command, vp_command_space *space, char keep[300],
                              vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(add_file_batches(space, command, keep, err));
    VP_TRY(add_movable(space, command, err));
    if (!space->n_axes)
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "no --try, and nothing of the files that the command names (%s ...) is known to be free: name a "
            "key and its values, as in --try data.batch_size=1,2,4,8",
            vp_command_file_at(space->files, 0)));
out:
    return st;
}

vp_status vp_space_known(char *const *command, vp_command_space *space, vp_err *err)
{
    char      keep[300] = "";
    vp_status st        = VP_OK;

    VP_TRY(vp_command_files_are_known(space->files) ? add_settings(command, space, keep, err)
                                                    : add_options(command, space, keep, err));
    VP_TRY(add_allocator(space, command, err));
    VP_TRY(vp_space_settings(space, err));
    if (keep[0])
        VP_TRY(vp_space_keep(space, keep, err));
out:
    return st;
}

bool vp_command_is_known(char *const *command, int64_t world)
{
    vp_arena         *arena = vp_arena_new();
    vp_command_space  space = {.arena = arena};
    vp_command_files *files = NULL;
    vp_err            why   = {0};
    bool known = arena && vp_command_files_open(arena, command, world, &files, &why) == VP_OK;

    space.files = files;
    known       = known && vp_space_known(command, &space, &why) == VP_OK && space.n > 1;
    vp_command_files_close(files);
    vp_arena_free(arena);
    return known;
}
