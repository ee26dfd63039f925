/* What to type after an out-of-memory text. */
#include "cli/doctor_print.h"
#include "cli/names.h"
#include "cli/words.h"

#include "base/units.h"
#include "trainers/files/check.h"
#include "trainers/files/shell.h"

#include <string.h>

/* What trainers call the model on their command lines. */
static const char *const model_options[] = {"--model_name_or_path",
                                            "--model-name-or-path",
                                            "--model",
                                            "--model_id",
                                            "--base_model",
                                            "--model_name",
                                            "--pretrained_model_name_or_path",
                                            "--hf_path"};

/* And the length of a sample, where no table of a trainer's says it. */
static const char *const seq_options[] = {"--max_length", "--max_seq_length", "--max_seq_len",
                                          "--cutoff_len", "--sequence_len",   "--block_size",
                                          "--seq_length", "--seq-length",     "--model_max_length"};

/* A training command as words, with what its options say. */
typedef struct training {
    const char **words;
    int64_t      n_words;
    const char  *model;       /* NULL: no option names it */
    const char  *seq, *batch; /* NULL: not said */
} training;

static bool is_option_of(const char *word, const char *option, const char **value)
{
    size_t n = strlen(option);

    *value = strncmp(word, option, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
    return *value || strcmp(word, option) == 0;
}

/* The value of the first of some options that the command has; NULL: none. */
static const char *value_of(const training *t, const char *const *options, size_t n)
{
    const char *value;

    for (int64_t i = 0; i < t->n_words; i++)
        for (size_t k = 0; k < n; k++)
            if (is_option_of(t->words[i], options[k], &value))
                return value ? value : i + 1 < t->n_words ? t->words[i + 1] : NULL;
    return NULL;
}

static bool is_count(const char *text)
{
    return text && text[0] && strlen(text) < 10 && !text[strspn(text, "0123456789")];
}

/* The words of oom's command; none where it is no shell's line. */
static vp_status read_training(vp_arena *arena, const char *text, training *t, vp_err *err)
{
    vp_shell_command command = {0};
    vp_check_input   input;
    vp_checked      *checked = vp_arena_alloc(arena, sizeof *checked);
    vp_err           ignored = {0};
    vp_status        st      = VP_OK;

    VP_TRY_ALLOC(err, checked);
    if (vp_shell_words(arena, "the command", text, (int64_t)strlen(text), &command, &ignored) !=
        VP_OK)
        goto out;
    t->words = vp_arena_array(arena, command.n_words + 1, sizeof *t->words);
    VP_TRY_ALLOC(err, t->words);
    for (int64_t i = 0; i < command.n_words; i++)
        t->words[t->n_words++] = command.words[i].text;
    t->model = value_of(t, model_options, sizeof model_options / sizeof *model_options);
    input    = (vp_check_input){.words = t->words, .n_words = t->n_words};
    VP_TRY(vp_check(arena, &input, 1, &(vp_check_opts){0}, checked, err));
    if (!t->model)
        t->model = vp_checked_model(checked);
    if (!checked->by_default[VP_SETTING_SEQ])
        t->seq = checked->settings.value[VP_SETTING_SEQ];
    if (!t->seq)
        t->seq = value_of(t, seq_options, sizeof seq_options / sizeof *seq_options);
    if (!is_count(t->seq))
        t->seq = NULL;
    if (!checked->by_default[VP_SETTING_MICRO_BATCH])
        t->batch = checked->settings.value[VP_SETTING_MICRO_BATCH];
    if (!is_count(t->batch))
        t->batch = NULL;
out:
    return st;
}

/* What of the card there was for this program; -1: not said. */
static int64_t budget_of(const vp_oom *oom)
{
    const int64_t *b = oom->numbers.bytes;

    if (oom->class_ == VP_OOM_CLASS_MEMORY_CAP)
        return b[VP_OOM_CAP];
    if (oom->class_ == VP_OOM_CLASS_OTHER_PROCESS && b[VP_OOM_FREE] >= 0 && b[VP_OOM_PROCESS] >= 0)
        return b[VP_OOM_FREE] + b[VP_OOM_PROCESS];
    return b[VP_OOM_TOTAL];
}

static vp_text *add(vp_doctor_next *next)
{
    return &next->commands[next->n++];
}

static const char *model_of(const training *t)
{
    const char *built_in = t->model ? vp_built_in_name(t->model) : NULL;

    return built_in ? built_in : t->model ? t->model : "MODEL";
}

/* Where every byte goes, of as much as there was; the user's own command, played without a card. */
static void device_commands(const vp_oom *oom, const training *t, vp_doctor_next *next)
{
    int64_t  budget = budget_of(oom);
    vp_text *to     = add(next);

    vp_text_printf(to, "vplan estimate ");
    vp_text_quoted(to, model_of(t));
    vp_text_printf(to, " --trainer hf ");
    if (budget > 0)
        vp_text_printf(to, "--budget %.2fGiB", (double)budget / (double)VP_GIB);
    else
        vp_text_printf(to, "--device CARD");
    vp_text_printf(to, " --seq %s --micro-batch %s", t->seq ? t->seq : "TOKENS",
                   t->batch ? t->batch : "SAMPLES");
    to = add(next);
    vp_text_printf(to, "vplan dryrun --device CARD --");
    for (int64_t i = 0; i < t->n_words; i++) {
        vp_text_printf(to, " ");
        vp_text_quoted(to, t->words[i]);
    }
    if (!t->n_words)
        vp_text_printf(to, " python TRAIN.PY");
    if (t->n_words) {
        to = add(next);
        vp_text_printf(to, "vplan check --device CARD --model ");
        vp_text_quoted(to, model_of(t));
        vp_text_printf(to, " --");
        for (int64_t i = 0; i < t->n_words; i++) {
            vp_text_printf(to, " ");
            vp_text_quoted(to, t->words[i]);
        }
    }
}

vp_status vp_doctor_next_of(vp_arena *arena, const vp_oom *oom, vp_doctor_next *out, vp_err *err)
{
    training  t  = {0};
    vp_status st = VP_OK;

    *out = (vp_doctor_next){0};
    if (oom->class_ == VP_OOM_CLASS_NOT_OOM &&
        !oom->line) /* a process that the kernel ended says nothing */
        vp_text_printf(add(out), "sudo dmesg -T | vplan doctor --oom -");
    if (oom->class_ == VP_OOM_CLASS_NOT_OOM)
        goto out;
    if (oom->command)
        VP_TRY(read_training(arena, oom->command, &t, err));
    if (oom->class_ <= VP_OOM_CLASS_MEMORY_CAP || oom->class_ == VP_OOM_CLASS_DISGUISED)
        device_commands(oom, &t, out);
    else
        vp_text_printf(add(out), "vplan doctor");
    for (int i = 0; i < out->n; i++)
        if (out->commands[i].failed)
            st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    return st;
}

void vp_doctor_next_release(vp_doctor_next *next)
{
    for (int i = 0; i < next->n; i++)
        vp_text_release(&next->commands[i]);
    next->n = 0;
}
