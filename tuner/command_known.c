#include "tuner/command_internal.h"

#include "base/file.h"
#include "base/text.h"
#include "trainers/files/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options whose meaning is known. transformers: its TrainingArguments as they stand on command lines (HfArgumentParser), which
 * TRL's configs extend; their defaults are those of transformers 5, training_args.py. diffusers: its example scripts and those
 * made of them (kohya's), which are known by their import of it; a batch is what each script says, so it has to stand in the
 * command, and what a script's text does not have is no option of it. */
typedef struct known_options {
    const char *trainer, *micro_batch, *accumulation, *checkpointing;
    const char *checkpointing_values;
    const char *imports;       /* of the script; NULL: any                          */
    long long   default_batch; /* 0: it has to be said                              */
} known_options;
static const known_options knowns[] = {
    {"transformers", "--per_device_train_batch_size", "--gradient_accumulation_steps",
     "--gradient_checkpointing", "False,True", NULL, 8},
    {"diffusers", "--train_batch_size", "--gradient_accumulation_steps", "--gradient_checkpointing",
     "off,on", "diffusers", 0},
};
static const char optimizer[] = "--optim", attention[] = "--attn_implementation";
enum { MAX_BATCH = 1024, MAX_SCRIPT_BYTES = 4 << 20 };

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

    if (vp_command_is_word(
            word)) { /* trainer.output_dir=DIR, hydra.run.dir=DIR, ultralytics' project=DIR */
        const char *value = strchr(word, '=');
        char        option[80];

        if (strncmp(word, "hydra.run.dir=", 14) == 0 ||
            strncmp(word, "hydra.sweep.dir=", 16) == 0 ||
            (strncmp(word, "project=", 8) == 0 && strchr(value, '/')))
            return true;
        while (value > word && !strchr("./+", value[-1]))
            value--;
        snprintf(option, sizeof option, "--%.70s", value);
        return is_one_of(option, options, sizeof options / sizeof *options);
    }
    return is_one_of(word, options, sizeof options / sizeof *options);
}

/* What a command says of an option, or of the key of a word key=value. */
static const char *value_of(char *const *command, const char *name)
{
    return *name == '-' ? vp_command_value(command, name, NULL)
                        : vp_command_word(command, name, NULL);
}

static long long number(char *const *command, const char *option, long long otherwise)
{
    const char *text = value_of(command, option);
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

/* The script that a command runs: its first word that is a Python file. NULL: none, or it cannot be read. The caller's. */
static char *script_of(char *const *command)
{
    char   *text = NULL;
    int64_t n;

    for (; *command; command++) {
        const char *end = strrchr(*command, '.');
        if (end && strcmp(end, ".py") == 0 &&
            vp_file_read(*command, MAX_SCRIPT_BYTES, &text, &n, NULL) == VP_OK)
            return text;
    }
    return NULL;
}

/* Whether a script imports a package, at the beginning of a line. */
static bool imports(const char *script, const char *package)
{
    size_t n = strlen(package);

    for (const char *line = script; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *name = strncmp(line, "import ", 7) == 0 ? line + 7
                           : strncmp(line, "from ", 5) == 0 ? line + 5
                                                            : "";
        if (strncmp(name, package, n) == 0 && strchr(" .,\r\n", name[n]))
            return true;
    }
    return false;
}

/* Whether an option is one of a script's: of a trainer that any script may have, always. */
static bool has_option(const known_options *known, const char *script, const char *option)
{
    return !known->imports || strstr(script, option + strspn(option, "-")) != NULL;
}

/* Whose options a command has: whose samples a micro-step, or whatever else of them, where nothing says another's. */
static const known_options *options_of(char *const *command, const char *script)
{
    for (size_t i = 0; i < sizeof knowns / sizeof *knowns; i++)
        if ((!knowns[i].imports || (script && imports(script, knowns[i].imports))) &&
            vp_command_value(command, knowns[i].micro_batch, NULL))
            return &knowns[i];
    for (size_t i = sizeof knowns / sizeof *knowns; i-- > 0;)
        if ((!knowns[i].imports || (script && imports(script, knowns[i].imports))) &&
            (vp_command_value(command, knowns[i].accumulation, NULL) ||
             vp_command_value(command, knowns[i].checkpointing, NULL)))
            return &knowns[i];
    return NULL;
}

/* The key of a word key=value behind the program, or an option that is none of those that are known, for which is() says yes; NULL: none. */
static const char *find_other(char *const *command, bool (*is)(const char *name, size_t n),
                              vp_arena    *arena)
{
    for (char *const *word = command; *word; word++) {
        const char *name = *word + strspn(*word, "+");
        size_t      n    = strcspn(name, "=");
        const char *key  = vp_arena_printf(arena, "%.*s", (int)n, name);

        if (!key || !is(name + strspn(name, "-"), n - strspn(name, "-")))
            continue;
        if (*name == '-' || (vp_command_is_word(*word) && vp_command_word(command, key, NULL)))
            return key;
    }
    return NULL;
}

/* A name that counts samples: what ends in batch_size, batch-size, batch or bs as a word of its own. */
static bool counts_samples(const char *name, size_t n)
{
    static const char *const names[] = {"batch_size", "batch-size", "batchsize", "batch", "bs"};
    char                     text[100];

    snprintf(text, sizeof text, "%.*s", (int)n, name);
    if (strstr(text, "eval") || strstr(text, "val_"))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t m = strlen(names[i]);
        if (n >= m && strncmp(name + n - m, names[i], m) == 0 &&
            (n == m || strchr("-_./", name[n - m - 1])))
            return true;
    }
    return false;
}

static bool accumulates(const char *name, size_t n)
{
    char text[100];

    snprintf(text, sizeof text, "%.*s", (int)n, name);
    return strstr(text, "accum") != NULL;
}

static const char *without_dashes(const char *name)
{
    return name + strspn(name, "-");
}

/* What to say for a command of which nothing is known. */
static vp_status name_them(char *const *command, const vp_command_space *space, vp_err *err)
{
    const char *batch     = find_other(command, counts_samples, space->arena),
               *other     = find_other(command, accumulates, space->arena);
    const char *micro     = other ? other : knowns[0].accumulation;
    long long   had       = batch ? number(command, batch, 0) : 0;
    long long   all       = had * number(command, micro, 1);
    vp_text     values[2] = {{0}, {0}};
    vp_status   st        = VP_OK;

    for (long long b = 1; b <= all && b <= MAX_BATCH; b++)
        if (all % b == 0 && (b % had == 0 || had % b == 0)) {
            vp_text_printf(&values[0], "%s%lld", b > 1 ? "," : "", b);
            vp_text_printf(&values[1], "%s%lld", b > 1 ? "," : "", all / b);
        }
    VP_TRY_ALLOC(err, !values[0].failed && !values[1].failed);
    if (all > 1 && value_of(command, micro))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "no --try, and %s is no option of a trainer that is known: where it is the "
                       "samples of a micro-step, "
                       "--try %s=%s --try %s=%s --keep '%s*%s=%lld'",
                       batch, batch, values[0].data, micro, values[1].data, without_dashes(batch),
                       without_dashes(micro), all));
    if (all > 1 && *batch != '-')
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "no --try, and what %s=%lld is to the command is not known: where it is the samples of a step, "
            "--try %s=%s, of which each trains otherwise; with a key that accumulates gradients, --try that too "
            "and --keep their product",
            batch, had, batch, values[0].data));
    VP_TRY(VP_FAIL(
        err, VP_ERR_USAGE,
        "no --try, and the command has none of transformers' options that say what may change (%s, %s), nor "
        "names a trainer's file of settings: name an option and its values, as in --try %s=1,2,4,8",
        knowns[0].micro_batch, knowns[0].accumulation,
        batch                           ? batch
        : vp_command_has_words(command) ? "train.batch_size"
                                        : "--batch-size"));
out:
    vp_text_release(&values[0]);
    vp_text_release(&values[1]);
    return st;
}

/* ---- ultralytics: yolo [TASK] train key=value ... ---- */

static bool is_yolo_training(char *const *command)
{
    char *const *program = command;

    while (*program && (strcmp(*program, "env") == 0 || strchr(*program, '=')))
        program++;
    const char *name = *program ? strrchr(*program, '/') : NULL;
    name             = name ? name + 1 : *program;
    if (!name || (strcmp(name, "yolo") != 0 && strcmp(name, "ultralytics") != 0))
        return false;
    for (char *const *word = program + 1; *word; word++)
        if (strcmp(*word, "train") == 0 || strcmp(*word, "mode=train") == 0)
            return true;
    return false;
}

/* Its batch: gradients are accumulated until a step has nbs samples, whatever the batch is that divides them, so weights are updated
 * as often. Defaults: ultralytics/cfg/default.yaml. Image size, precision (amp) and all else is another training. */
static vp_status add_yolo(char *const *command, vp_command_space *space, vp_err *err)
{
    const char *said    = vp_command_word(command, "batch", NULL);
    long long   nominal = number(command, "nbs", 64), batch = number(command, "batch", 0);
    vp_text     values = {0};
    vp_status   st     = VP_OK;

    if (vp_command_word(command, "cfg", NULL))
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "ultralytics' batch may stand in the file that cfg names: write batch=N behind it and "
            "name its values, as in --try batch=4,8,16,32,64"));
    batch = said ? batch : 16;
    if (!batch || nominal % batch)
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "ultralytics accumulates gradients to nbs=%lld samples a step, of which batch=%s is no divisor: "
            "write one that is, or name the values that may change what is trained, as in --try batch=4,8,16,32,64",
            nominal, said ? said : "16"));
    for (long long b = 1; b <= nominal && b <= MAX_BATCH; b++)
        if (nominal % b == 0)
            vp_text_printf(&values, "%s%lld", b > 1 ? "," : "", b);
    VP_TRY_ALLOC(err, !values.failed);
    VP_TRY(vp_space_add_axis(space, (vp_axis){.name = "batch", .place = VP_AXIS_WORD}, values.data,
                             said ? said : "16", command, err));
    space->assumed = vp_arena_printf(
        space->arena,
        "of batch: ultralytics accumulates gradients to nbs=%lld samples a step, so that each value "
        "updates the weights as often; batch norm's averages are those of a batch. Left as they are: "
        "imgsz, amp (--try amp=True,False)",
        nominal);
out:
    vp_text_release(&values);
    return st;
}

static vp_status add_options(char *const *command, vp_command_space *space, char keep[300],
                             vp_err *err)
{
    char                *script = script_of(command);
    const known_options *known  = options_of(command, script);
    const char          *optim  = vp_command_value(command, optimizer, NULL),
               *attends         = vp_command_value(command, attention, NULL);
    vp_status st                = VP_OK;

    if (is_yolo_training(command)) {
        VP_TRY(add_yolo(command, space, err));
        goto out;
    }
    if (!known ||
        (!vp_command_value(command, known->micro_batch, NULL) && !known->imports &&
         find_other(command, counts_samples, space->arena)) ||
        (!has_option(known, script, known->accumulation) &&
         !has_option(known, script, known->checkpointing)))
        VP_TRY(name_them(command, space, err));
    if (!known->default_batch && !number(command, known->micro_batch, 0))
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "how many samples the script takes where %s does not stand in the command "
                       "is not known: write it there",
                       known->micro_batch));
    const vp_axis batches[2] = {{.name = known->micro_batch, .place = VP_AXIS_OPTION},
                                {.name = known->accumulation, .place = VP_AXIS_OPTION}};
    if (has_option(known, script, known->accumulation))
        VP_TRY(add_batches(space, batches, (const char *const[2]){NULL, NULL},
                           number(command, known->micro_batch, known->default_batch) *
                               number(command, known->accumulation, 1),
                           command, keep, err));
    if (has_option(known, script, known->checkpointing))
        VP_TRY(add_option(space, known->checkpointing, known->checkpointing_values, command, err));
    if (known->imports)
        goto out;
    if (!optim || strcmp(optim, "adamw_torch") == 0 || strcmp(optim, "adamw_torch_fused") == 0)
        VP_TRY(add_option(space, optimizer, "adamw_torch,adamw_torch_fused", command, err));
    if (attends && (strcmp(attends, "eager") == 0 || strcmp(attends, "sdpa") == 0))
        VP_TRY(add_option(space, attention, "sdpa,eager", command, err));
out:
    free(script);
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
