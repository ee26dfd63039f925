#include "cli/check_own.h"

#include "cli/check_played.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/text.h"

#include <string.h>

/* A number that an option of this name is given; NULL: none is. */
static const char *number_of(const vp_checked *c, const char *key)
{
    for (int f = 0; f < c->n_files; f++) {
        const vp_value *v = c->files[f].doc ? vp_value_at(c->files[f].doc->root, key) : NULL;
        if (v && v->kind == VP_VALUE_INT && v->integer > 0 && v->integer <= 4096)
            return v->text;
    }
    return NULL;
}

static void add_setting(vp_text *command, const vp_checked *c, const char *option, vp_setting s)
{
    const char *value = c->settings.value[s];

    if (value && !c->by_default[s] && !c->may_be[s])
        vp_text_printf(command, " %s %s", option, value);
}

void vp_check_own_print(const vp_check_fit *x, const vp_checked *c, const vp_command_line *line)
{
    vp_text     command = {0};
    const char *rank    = number_of(c, "lora_r");
    const char *world   = c->settings.value[VP_SETTING_WORLD];

    rank = rank ? rank : number_of(c, "lora_rank");
    if (!c->own_adapts || c->own_pictures) {
        if (!vp_check_played_print(c, line, "next"))
            vp_check_any_print(line);
        return;
    }
    vp_text_printf(&command, "vplan estimate ");
    vp_text_quoted(&command, x->request.model_name);
    vp_text_printf(&command, " --trainer hf --device %s", x->device.name);
    for (int i = 0; i < line->n_given; i++)
        if (strcmp(line->given[i].option->name, "--budget") == 0)
            vp_text_printf(&command, " --budget %s", line->given[i].text);
    if (c->own_quantises)
        vp_text_printf(&command, " --qlora");
    if (rank || !c->own_quantises)
        vp_text_printf(&command, " --lora r=%s,targets=all-linear", rank ? rank : "16");
    if (x->request.seq)
        vp_text_printf(&command, " --seq %lld", (long long)x->request.seq);
    else
        add_setting(&command, c, "--seq", VP_SETTING_SEQ);
    add_setting(&command, c, "--micro-batch", VP_SETTING_MICRO_BATCH);
    add_setting(&command, c, "--accumulation", VP_SETTING_ACCUMULATION);
    add_setting(&command, c, "--recompute", VP_SETTING_RECOMPUTE);
    if (world && strcmp(world, "1") != 0) {
        vp_text_printf(&command, " --world %s", world);
        add_setting(&command, c, "--parallel", VP_SETTING_PARALLEL);
    }
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
    vp_check_played_print(c, line, "");
}
