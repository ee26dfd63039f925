#include "cli/plan_trainer_changes.h"

#include "cli/screen.h"
#include "cli/words.h"

#include "base/text.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

static void add_words(const vp_fit_change *c, vp_text *out)
{
    if (c->frees_pins)
        vp_text_printf(out, "micro-batch, recompute, attention and loss left free");
    if (c->seq)
        vp_text_printf(out, "samples of %lld tokens", (long long)c->seq);
    if (c->optimizer)
        vp_text_printf(out, "optimizer states in 8 bits");
    if (c->precision)
        vp_text_printf(out, "%sweights in bf16 without fp32 master weights",
                       c->optimizer ? ", " : "");
    if (c->offload)
        vp_text_printf(out, "optimizer states%s in host memory, updated by its processors",
                       strcmp(c->offload, "params") == 0 ? " and weights" : "");
    if (c->lora || c->qlora)
        vp_text_printf(out, "%sadapters of rank %d in place of the whole model%s",
                       c->seq ? ", " : "", VP_FIT_RANK, c->qlora ? ", over weights in NF4" : "");
    if (c->quantises)
        vp_text_printf(out, "the same adapters, over weights in NF4");
    if (c->loss)
        vp_text_printf(
            out, "%sLiger's kernels (package liger-kernel): the logits are never whole in memory",
            out->n_bytes ? ", and " : "");
    if (c->trainer)
        vp_text_printf(out, ", in transformers' Trainer");
    if (c->model)
        vp_text_printf(out, "%s%s", c->qlora ? ", of " : "the smaller model ", c->model);
    if (c->world || c->device[0])
        vp_text_printf(out, "%son ", c->lora || c->qlora ? ", " : "");
    if (c->world && c->device[0])
        vp_text_printf(out, "each of %lld %s, the smallest that do", (long long)c->world,
                       c->device);
    else if (c->world)
        vp_text_printf(out, "each of %lld cards", (long long)c->world);
    else if (c->device[0])
        vp_text_printf(out, "%s, the smallest card that does", c->device);
}

static void add_command(const vp_fit_change *c, const vp_command_line *line, vp_text *out)
{
    char world[32], seq[32], lora[64];
    bool another_card = c->device[0] != '\0';

    vp_option_change set[] = {
        {"--trainer", c->trainer, false, false},
        {"--device", another_card ? c->device : NULL, false, false},
        {"--seq", c->seq ? seq : NULL, false, false},
        {"--precision", c->precision, false, false},
        {"--offload", c->offload, false, false},
        {"--optimizer", c->optimizer, false, false},
        {"--lora", c->lora ? lora : NULL, false, false},
        {"--qlora", NULL, c->qlora || c->quantises, false},
        {"--world", c->world ? world : NULL, false, false},
        {"--budget", NULL, false, another_card},
        {"--profile", NULL, false, another_card},
        {"--micro-batch", NULL, false, c->frees_pins},
        {"--recompute", NULL, false, c->frees_pins},
        {"--attention", NULL, false, c->frees_pins},
        {"--loss", NULL, false, c->frees_pins},
        {"--liger", NULL, c->loss != NULL, c->frees_pins},
    };
    snprintf(world, sizeof world, "%lld", (long long)c->world);
    snprintf(seq, sizeof seq, "%lld", (long long)c->seq);
    snprintf(lora, sizeof lora, "r=%d,alpha=%d,targets=all-linear", VP_FIT_RANK, 2 * VP_FIT_RANK);
    vp_changed_command("plan", line, c->model, set, sizeof set / sizeof *set, out);
}

void vp_print_fit_changes(const vp_fit_changes *changes, const vp_command_line *line)
{
    char bytes[32], time[32];

    for (int i = 0; i < changes->n; i++) {
        const vp_fit_change *c     = &changes->changes[i];
        vp_text              words = {0}, command = {0};
        add_words(c, &words);
        add_command(c, line, &command);
        vp_screen_line(i ? "" : "what fits", "%s, %s a step: %s",
                       vp_size_text(c->high_bytes, bytes, sizeof bytes),
                       vp_time_text(c->seconds, time, sizeof time), vp_text_string(&words));
        vp_screen_command("", vp_text_string(&command));
        vp_text_release(&words);
        vp_text_release(&command);
    }
}

json_t *vp_fit_changes_json(const vp_fit_changes *changes, const vp_command_line *line)
{
    json_t *list = json_array();

    for (int i = 0; i < changes->n; i++) {
        const vp_fit_change *c     = &changes->changes[i];
        vp_text              words = {0}, command = {0};
        add_words(c, &words);
        add_command(c, line, &command);
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:f, s:s}", "change", vp_text_string(&words),
                                        "needs_bytes", (json_int_t)c->high_bytes, "step_time_s",
                                        c->seconds, "command", vp_text_string(&command)));
        vp_text_release(&words);
        vp_text_release(&command);
    }
    return list;
}
