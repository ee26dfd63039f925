/* cli/check_instead.c: another precision or attention, where the card does not run the files' own or emulates it. */
#include "cli/check_instead.h"

#include "cli/check_lines.h"
#include "cli/cmd_plan_trainer.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/text.h"
#include "base/units.h"
#include "trainers/hf/hf_trl.h"

#include <stdlib.h>
#include <string.h>

const char *vp_check_in_their_keys(vp_checked *c, vp_setting setting, const char *word)
{
    vp_settings wanted = {0};
    vp_edit    *edits;
    int64_t     n;
    vp_text     text = {0};
    vp_err      none = {0};
    const char *said = NULL;

    wanted.value[setting] = word;
    if (!word || vp_edits_list(c, &wanted, &edits, &n, &none) != VP_OK)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        if (edits[i].file && edits[i].setting == setting)
            vp_text_printf(&text, "%s%s: %s", text.n_bytes ? ", " : "", edits[i].path,
                           edits[i].to ? edits[i].to : "(take it out)");
    said = text.n_bytes && !text.failed ? vp_arena_strdup(c->arena, text.data) : NULL;
    vp_text_release(&text);
    return said;
}

/* The files as if they said this word. */
static vp_checked with_word(const vp_checked *c, vp_setting setting, const char *word)
{
    vp_checked with = *c;

    with.settings.value[setting] = word;
    with.may_be[setting]         = NULL;
    return with;
}

/* A card may be too old for flash attention's package, a family's class without sdpa. */
static const char *instead_of(const char *attention)
{
    return attention && strcmp(attention, "flash2") == 0 ? "sdpa" : "eager";
}

vp_status vp_check_instead_find(vp_arena *arena, vp_checked *c, vp_check_fit *x, vp_err *err)
{
    const vp_mended         *m       = &x->mended;
    vp_setting               refused = (vp_setting)m->refused;
    const char *const       *v       = m->settings.value;
    const vp_hf_trl_question q       = {.precision    = v[VP_SETTING_PRECISION],
                                        .capability   = x->device.compute_capability,
                                        .is_quantised = v[VP_SETTING_TUNING] &&
                                                        strcmp(v[VP_SETTING_TUNING], "qlora") == 0};
    const char              *word, *keys;
    vp_mended                other = {0};
    vp_status                st    = VP_OK;

    if (m->refused == VP_N_SETTINGS)
        goto out;
    word = refused == VP_SETTING_PRECISION   ? vp_hf_trl_instead(&q)
           : refused == VP_SETTING_ATTENTION ? instead_of(v[VP_SETTING_ATTENTION])
                                             : NULL;
    keys = vp_check_in_their_keys(c, refused, word);
    VP_TRY(vp_check_refused(c, refused, m->why, keys, err));
    if (!keys)
        goto out;
    vp_checked with = with_word(c, refused, word);
    VP_TRY(vp_mend(arena, &with, &x->request, &other, err));
    if (!other.why) {
        vp_mended_release(&x->mended);
        x->mended  = other;
        x->instead = keys;
        other      = (vp_mended){0};
    }
out:
    vp_mended_release(&other);
    return st;
}

/* fp16 with a scaler trains weights of fp32 alone. */
vp_status vp_check_quicker_find(vp_checked *c, vp_check_fit *x, vp_err *err)
{
    const vp_mended *m  = &x->mended;
    vp_settings      s  = m->settings;
    vp_err           no = {0};
    vp_status        st = VP_OK;

    if (!c->no_bf16 || c->n_errors || x->request.job.no_seconds ||
        c->may_be[VP_SETTING_PRECISION] || !s.value[VP_SETTING_PRECISION] ||
        strcmp(s.value[VP_SETTING_PRECISION], "bf16-mixed") != 0)
        goto out;
    s.value[VP_SETTING_PRECISION] = "fp16-mixed";
    const char *keys              = vp_check_in_their_keys(c, VP_SETTING_PRECISION, "fp16-mixed");
    if (!keys || vp_fit_bytes_of(&x->request.job, &s, &x->quicker_bytes, &no) != VP_OK ||
        vp_fit_seconds_of(&x->request.job, &s, x->quicker_bytes.n_trained, &x->quicker_s, &no) !=
            VP_OK) {
        if (no.code == VP_ERR_NOMEM) {
            *err = no;
            st   = no.code;
        }
        goto out;
    }
    if (x->quicker_s < m->now_s)
        x->quicker = keys;
out:
    return st;
}

void vp_check_instead_print(const vp_check_fit *x)
{
    vp_screen_line("fit", "not as the files are (see the error). With %s", x->instead);
}

bool vp_check_by_trainer_print(const vp_check_fit *x, const vp_checked *c)
{
    const char *const *v       = x->mended.settings.value;
    vp_text            command = {0};
    vp_words           words   = {0};
    bool               answers;

    if (x->mended.refused != VP_SETTING_PRECISION || c->n_errors != 1 || !v[VP_SETTING_TUNING] ||
        strcmp(v[VP_SETTING_TUNING], "qlora") != 0)
        return false;
    int64_t micro       = strtoll(v[VP_SETTING_MICRO_BATCH], NULL, 10),
            batch       = micro * strtoll(v[VP_SETTING_ACCUMULATION], NULL, 10);
    const char *given[] = {x->request.model_name,
                           "--trainer",
                           "hf",
                           "--device",
                           x->device.name,
                           "--seq",
                           v[VP_SETTING_SEQ],
                           "--global-batch",
                           vp_arena_printf(c->arena, "%lld", (long long)batch),
                           "--optimizer",
                           v[VP_SETTING_OPTIMIZER],
                           "--qlora",
                           "--lora",
                           vp_check_lora_text(c->arena, v)};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        words.words[words.n++] = given[i];
    answers = !vp_arena_failed(c->arena) && vp_plan_answers(words.n, (char **)words.words);
    if (answers) {
        vp_quote_words("plan", &words, &command);
        vp_screen_line("but", "transformers' own Trainer trains these adapters here, in fp16");
        vp_screen_command("next", vp_text_string(&command));
    }
    vp_text_release(&command);
    return answers;
}

void vp_check_quicker_print(const vp_check_fit *x)
{
    char bytes[32], time[32];

    if (x->quicker)
        vp_screen_line("faster", "%s: %s a step and %s; this card computes fp16, not bf16",
                       x->quicker, vp_time_text(x->quicker_s, time, sizeof time),
                       vp_size_text(x->quicker_bytes.high_bytes, bytes, sizeof bytes));
}

void vp_check_instead_json(const vp_check_fit *x, json_t *answer)
{
    const vp_mended *m = &x->mended;

    if (x->instead) {
        json_object_set_new(answer, "changed",
                            json_pack("{s:s, s:b, s:I, s:I, s:f}", "to", x->instead, "fits",
                                      (int)m->fits, "device_bytes", (json_int_t)m->now.device_bytes,
                                      "high_bytes", (json_int_t)m->now.high_bytes, "step_time_s",
                                      m->now_s));
        vp_check_lines_json(m, json_object_get(answer, "changes"));
    }
    if (x->quicker)
        json_object_set_new(answer, "quicker",
                            json_pack("{s:s, s:I, s:I, s:f}", "to", x->quicker, "device_bytes",
                                      (json_int_t)x->quicker_bytes.device_bytes, "high_bytes",
                                      (json_int_t)x->quicker_bytes.high_bytes, "step_time_s",
                                      x->quicker_s));
}
