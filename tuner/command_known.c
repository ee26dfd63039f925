#include "tuner/command_internal.h"

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

bool vp_command_is_output(const char *word)
{
    static const char *const options[] = {
        "--output_dir",     "--output-dir",     "--out_dir",    "--out-dir",
        "--outdir",         "--output",         "--save_dir",   "--save-dir",
        "--logging_dir",    "--logging-dir",    "--log_dir",    "--log-dir",
        "--checkpoint_dir", "--checkpoint-dir", "--ckpt_dir",   "--default_root_dir",
        "--project_dir",    "--save_path",      "--save-path",  "--output_path",
        "--output-path",    "--run_dir",        "--results_dir"};
    size_t n = strcspn(word, "=");

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strlen(options[i]) == n && strncmp(options[i], word, n) == 0)
            return true;
    return false;
}

static long long number(char *const *command, const char *option, long long otherwise)
{
    const char *text = vp_command_value(command, option, NULL);
    char       *end;
    long long   n = text ? strtoll(text, &end, 10) : otherwise;

    return text && (*end || n < 1) ? otherwise : n;
}

/* Every way to do the same number of samples a step. */
static vp_status add_batches(char *const *command, vp_space *space, char keep[200], vp_err *err)
{
    long long batch   = number(command, micro_batch, DEFAULT_BATCH),
              times   = number(command, accumulation, 1);
    vp_text   batches = {0}, steps = {0};
    vp_status st = VP_OK;

    for (long long b = 1; b <= batch * times && b <= MAX_BATCH; b++)
        if (batch * times % b == 0) {
            vp_text_printf(&batches, "%s%lld", b > 1 ? "," : "", b);
            vp_text_printf(&steps, "%s%lld", b > 1 ? "," : "", batch * times / b);
        }
    VP_TRY_ALLOC(err, !batches.failed && !steps.failed);
    VP_TRY(vp_space_add_axis(space, micro_batch, batches.data, true, command, err));
    VP_TRY(vp_space_add_axis(space, accumulation, steps.data, true, command, err));
    snprintf(keep, 200, "%s*%s=%lld", micro_batch, accumulation, batch * times);
out:
    vp_text_release(&batches);
    vp_text_release(&steps);
    return st;
}

vp_status vp_space_known(char *const *command, vp_space *space, vp_err *err)
{
    const char *optim   = vp_command_value(command, optimizer, NULL),
               *attends = vp_command_value(command, attention, NULL);
    char      keep[200];
    vp_status st = VP_OK;

    if (!vp_command_value(command, micro_batch, NULL) &&
        !vp_command_value(command, accumulation, NULL) &&
        !vp_command_value(command, checkpointing, NULL))
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE,
            "no --try, and the command has none of transformers' options that say what may change (%s, %s): "
            "name an option and its values, as in --try --batch-size=1,2,4,8",
            micro_batch, accumulation));
    VP_TRY(add_batches(command, space, keep, err));
    VP_TRY(vp_space_add_axis(space, checkpointing, "False,True", true, command, err));
    if (!optim || strcmp(optim, "adamw_torch") == 0 || strcmp(optim, "adamw_torch_fused") == 0)
        VP_TRY(vp_space_add_axis(space, optimizer, "adamw_torch,adamw_torch_fused", true, command,
                                 err));
    if (attends && (strcmp(attends, "eager") == 0 || strcmp(attends, "sdpa") == 0))
        VP_TRY(vp_space_add_axis(space, attention, "sdpa,eager", true, command, err));
    VP_TRY(vp_space_settings(space, err));
    VP_TRY(vp_space_keep(space, keep, err));
out:
    return st;
}
