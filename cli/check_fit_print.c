/* cli/check_fit_print.c: whether what the files mean fits, said as JSON and for people, and what to type next. */
#include "cli/check_fit.h"

#include "cli/check_class.h"
#include "cli/check_instead.h"
#include "cli/check_lines.h"
#include "cli/check_own.h"
#include "cli/check_played.h"
#include "cli/cmd_plan_trainer.h"
#include "cli/devices_fit.h"
#include "cli/loader_text.h"
#include "cli/padding.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/text.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool says(const char *value, const char *word)
{
    return value && strcmp(value, word) == 0;
}

/* Files cannot say which allocator PyTorch takes, the command's environment does. "" where it was said. */
static const char *allocator_text(const vp_mended *m, char *buf, size_t size)
{
    char bytes[32];

    buf[0] = '\0';
    if (m->expandable_bytes >= 0)
        snprintf(buf, size,
                 "no PYTORCH_ALLOC_CONF; with expandable_segments:True before the command %s",
                 vp_size_text(m->expandable_bytes, bytes, sizeof bytes));
    return buf;
}

/* How long samples are no file says either. */
static const char *padding_text(const vp_mended *m, char *buf, size_t size)
{
    return vp_padding_text_if_seen(m->now.high_bytes, m->padded_bytes, buf, size);
}

/* What was taken where the files say nothing. */
static json_t *assumptions_json(const vp_check_fit *x)
{
    const vp_settings *s    = &x->mended.settings;
    json_t            *list = json_array();
    char               text[160];

    if (list && *x->mended.now.versions)
        json_array_append_new(list, json_sprintf("libraries: %s", x->mended.now.versions));
    for (int i = 0; list && i < s->n_assumed; i++)
        json_array_append_new(list, json_string(s->assumed[i]));
    if (list && allocator_text(&x->mended, text, sizeof text)[0])
        json_array_append_new(list, json_string(text));
    if (list && padding_text(&x->mended, text, sizeof text)[0])
        json_array_append_new(list, json_string(text));
    if (list && x->mended.now.why)
        json_array_append_new(list, json_string(x->mended.now.why));
    for (int i = 0; list && i < x->mended.now.n_assumptions; i++)
        json_array_append_new(list, json_string(x->mended.now.assumptions[i]));
    if (list && x->engine)
        json_array_append_new(list, json_string(x->engine));
    for (int i = 0; list && i < x->zero.n_lines; i++)
        json_array_append_new(list, json_string(x->zero.lines[i]));
    if (list && x->loader.workers)
        json_array_append_new(list, json_string(vp_loader_assumed));
    if (list && *x->calibration.card)
        json_array_append_new(list,
                              vp_calibration_said(&x->calibration, x->calibration_path, false));
    return list;
}

/* By what DeepSpeed's file has smaller than was recorded. */
static bool fits_with_less(const vp_check_fit *x)
{
    return !x->mended.fits &&
           x->mended.now.high_bytes - x->zero.less_bytes <= x->request.budget_bytes;
}

void vp_check_fit_json(const vp_check_fit *x, json_t *answer)
{
    const vp_mended *m = &x->mended;

    if (x->why) {
        json_object_update_new(answer, json_pack("{s:n, s:n, s:n, s:s}", "fits", "device_bytes",
                                                 "peak_phase", "fits_not_answered", x->why));
        vp_check_instead_json(x, answer);
        return;
    }
    json_object_update_new(
        answer,
        json_pack("{s:b, s:b, s:I, s:s, s:I, s:{s:I, s:I, s:f}, s:I, s:I, s:f}", "fits",
                  (int)m->fits, "tight", (int)(m->is_tight || fits_with_less(x)), "device_bytes",
                  (json_int_t)m->now.device_bytes, "peak_phase", m->now.peak_phase, "budget_bytes",
                  (json_int_t)x->request.budget_bytes, "interval", "low_bytes",
                  (json_int_t)m->now.low_bytes, "high_bytes", (json_int_t)m->now.high_bytes,
                  "probability", VP_LANGUAGE_PROBABILITY, "allocated_peak_bytes",
                  (json_int_t)m->now.allocated_bytes, "reserved_peak_bytes",
                  (json_int_t)m->now.reserved_bytes, "step_time_s", m->now_s));
    if (m->now_s <= 0)
        json_object_set_new(answer, "step_time_s", json_null());
    json_object_set_new(answer, "assumptions", assumptions_json(x));
    if (x->loader.workers)
        json_object_set_new(answer, "loader", vp_loader_json(&m->now.batch, &x->loader));
    if (*x->calibration.card)
        json_object_set_new(answer, "calibration",
                            vp_calibration_json(&x->calibration, x->calibration_path, false));
    json_object_set_new(answer, "fits_on",
                        m->cards ? json_pack("{s:I, s:s, s:I}", "world", (json_int_t)m->cards,
                                             "parallel", m->cards_parallel, "device_bytes",
                                             (json_int_t)m->cards_bytes)
                                 : json_null());
    if (m->other)
        json_object_set_new(answer, "or",
                            json_pack("{s:s, s:I}", "precision", m->other, "device_bytes",
                                      (json_int_t)m->other_bytes));
    vp_check_lines_json(m, json_object_get(answer, "changes"));
    vp_check_instead_json(x, answer);
}

static void add_word(vp_words *w, const char *option, const char *value)
{
    w->words[w->n++] = option;
    if (value)
        w->words[w->n++] = value;
}

/* The adapters that the files train, as plan --lora has them. */
const char *vp_check_lora_text(vp_arena *arena, const char *const *v)
{
    bool saves = v[VP_SETTING_LORA_SAVE] && !says(v[VP_SETTING_LORA_SAVE], "none");

    return vp_arena_printf(arena, "r=%s,alpha=%s,dropout=%s,targets=%s%s%s", v[VP_SETTING_LORA_R],
                           v[VP_SETTING_LORA_ALPHA], v[VP_SETTING_LORA_DROPOUT],
                           v[VP_SETTING_LORA_TARGETS], saves ? ",save=" : "",
                           saves ? v[VP_SETTING_LORA_SAVE] : "");
}

/* The plan of what the files mean: all that converges otherwise as they say it. */
static void plan_words(const vp_check_fit *x, const vp_command_line *line, vp_arena *arena,
                       vp_words *w)
{
    const vp_choose_request *r      = &x->request;
    const char *const       *v      = x->mended.settings.value;
    bool                     adapts = v[VP_SETTING_TUNING] && !says(v[VP_SETTING_TUNING], "full");

    *w = (vp_words){0};
    add_word(w, r->model_name, NULL);
    add_word(w, "--trainer", r->target->name);
    if (x->class_name)
        add_word(w, "--class", x->class_name);
    add_word(w, "--device", x->device.name);
    for (int i = 0; i < line->n_given; i++)
        if (strcmp(line->given[i].option->name, "--budget") == 0 ||
            strcmp(line->given[i].option->name, "--calibration") == 0 ||
            strcmp(line->given[i].option->name, "--versions") == 0)
            add_word(w, line->given[i].option->name, line->given[i].text);
    add_word(w, "--seq", vp_arena_printf(arena, "%lld", (long long)r->seq));
    add_word(w, "--global-batch", vp_arena_printf(arena, "%lld", (long long)r->global_batch));
    add_word(w, "--precision", v[VP_SETTING_PRECISION]);
    add_word(w, "--optimizer", v[VP_SETTING_OPTIMIZER]);
    if (r->pinned[VP_SETTING_RECOMPUTE])
        add_word(w, "--recompute", r->pinned[VP_SETTING_RECOMPUTE]);
    if (!says(v[VP_SETTING_ATTENTION], "sdpa"))
        add_word(w, "--attention", v[VP_SETTING_ATTENTION]);
    if (x->mended.takes_liger)
        add_word(w, "--liger", NULL);
    else if (vp_language_is_liger(v[VP_SETTING_LOSS]))
        add_word(w, "--loss", v[VP_SETTING_LOSS]);
    if (r->world > 1) {
        add_word(w, "--world", v[VP_SETTING_WORLD]);
        add_word(w, "--parallel",
                 says(v[VP_SETTING_PARALLEL], "none") ? "ddp" : v[VP_SETTING_PARALLEL]);
    }
    if (says(v[VP_SETTING_OFFLOAD_ACTIVATIONS], "cpu"))
        add_word(w, "--offload", "activations");
    if (!says(v[VP_SETTING_METHOD], "sft"))
        add_word(w, "--method", v[VP_SETTING_METHOD]);
    if (says(v[VP_SETTING_METHOD], "grpo"))
        add_word(w, "--target-seq", v[VP_SETTING_COMPLETION]);
    if (says(v[VP_SETTING_GENERATOR], "vllm"))
        add_word(w, "--vllm", NULL);
    if (x->engine)
        add_word(w, "--reserve", x->engine_share);
    if (v[VP_SETTING_EVAL_BATCH] && !says(v[VP_SETTING_EVAL_BATCH], "none"))
        add_word(w, "--eval-batch", v[VP_SETTING_EVAL_BATCH]);
    if (r->job.padded && says(v[VP_SETTING_METHOD], "sft"))
        add_word(w, "--padding", "mask");
    if (says(v[VP_SETTING_TUNING], "qlora"))
        add_word(w, "--qlora", NULL);
    if (v[VP_SETTING_PREPARE] && !says(v[VP_SETTING_PREPARE], "trainer"))
        add_word(w, "--prepare", v[VP_SETTING_PREPARE]);
    if (adapts)
        add_word(w, "--lora", vp_check_lora_text(arena, v));
    add_word(w, "-o", "settings.json");
}

/* To what plan clips, for which it has no option. */
static const char *plans_norm(const vp_language *l)
{
    for (int i = 0; i < l->n_axes; i++)
        if (l->axes[i].setting == VP_SETTING_CLIP_NORM)
            return l->axes[i].words;
    return vp_setting_otherwise(VP_SETTING_CLIP_NORM);
}

/* Whether plan has no option for something that the files say. */
static bool is_beyond_plan(const vp_check_fit *x)
{
    const char *const *v = x->mended.settings.value;

    return x->request.job.in_bytes || x->request.job.liger || x->request.job.liger_least ||
           x->request.job.compiles || x->request.job.has_reference ||
           says(v[VP_SETTING_QUANT], "nf4") || says(v[VP_SETTING_OFFLOAD_OPTIMIZER], "cpu") ||
           says(v[VP_SETTING_OFFLOAD_PARAMS], "cpu") ||
           !says(v[VP_SETTING_CLIP_NORM], plans_norm(x->request.job.language));
}

/* No file says what the environment is to hold, a command behind -- does: the same question with it. */
static void print_environment(const vp_check_fit *x, const vp_command_line *line, const char *label)
{
    vp_text  command = {0};
    vp_words words;
    char   **rest = line->rest;

    for (int64_t i = 0; i < x->mended.n_lines; i++) {
        const vp_edit *e = &x->mended.lines[i].edit;
        if (e->file || !e->to)
            continue;
        vp_changed_words(line, NULL, NULL, 0, &words);
        vp_quote_words("check", &words, &command);
        vp_text_printf(&command, " -- %s=%s", e->path, e->to);
        for (; rest && *rest; rest++)
            if (strncmp(*rest, e->path, strlen(e->path)) != 0) {
                vp_text_printf(&command, " ");
                vp_text_quoted(&command, *rest);
            }
        vp_screen_command(label, vp_text_string(&command));
        break;
    }
    vp_text_release(&command);
}

/* Beside the one that is changed. */
static bool has_other_errors(const vp_check_fit *x, const vp_checked *c)
{
    return c->n_errors > (x->instead ? 1 : 0);
}

/* What to type to have the lines changed, or what is faster; nothing where plan would refuse it, or plan something else. */
static void print_next(const vp_check_fit *x, const vp_checked *c, const vp_command_line *line)
{
    vp_text  command = {0};
    vp_words words;
    bool     writes_beside = false;

    plan_words(x, line, c->arena, &words);
    if (has_other_errors(x, c) || is_beyond_plan(x) || vp_arena_failed(c->arena) ||
        !vp_plan_answers(words.n, (char **)words.words)) {
        print_environment(x, line, "next");
        return;
    }
    vp_quote_words("plan", &words, &command);
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
    for (int i = 0; i < c->n_files; i++) {
        const vp_checked_file *file = &c->files[i];
        if (!file->doc || !file->dialect || !file->is_file || file->doc->given)
            continue; /* what its command says no file has */
        vp_text_printf(&command, "vplan emit settings.json --for %s ", x->request.target->name);
        if (vp_check_lines_stand(c, file, &x->mended.chosen.best->settings)) {
            vp_text_printf(&command, "--edit ");
            vp_text_quoted(&command, file->name);
        } else if (!writes_beside) {
            vp_text_printf(&command, "-o FOLDER");
            writes_beside = true;
        } else {
            vp_text_release(&command);
            continue;
        }
        vp_screen_command("", vp_text_string(&command));
        vp_text_release(&command);
    }
    print_environment(x, line, "");
}

/* What adapters fit on is said by their plan; of what plan has no option for, by the same question of a card that holds the least. */
static void print_for_adapters(const vp_check_fit *x, const vp_checked *c,
                               const vp_command_line *line)
{
    const vp_mended *m       = &x->mended;
    vp_text          command = {0};
    vp_words         words;
    vp_device        card;
    vp_option_change set[] = {{"--device", card.name, false, false},
                              {"--budget", NULL, false, true}};

    plan_words(x, line, c->arena, &words);
    words.n -= 2; /* nothing is there to write yet */
    if (!has_other_errors(x, c) && !is_beyond_plan(x) &&
        vp_plan_answers(words.n, (char **)words.words)) {
        vp_quote_words("plan", &words, &command);
    } else if (vp_devices_larger(m->chosen.least ? m->chosen.least->bytes->high_bytes
                                                 : m->now.high_bytes,
                                 x->request.budget_bytes, x->device.compute_capability, &card)) {
        vp_changed_words(line, NULL, set, sizeof set / sizeof *set, &words);
        vp_quote_words("check", &words, &command);
        for (char **rest = line->rest; rest && *rest; rest++) {
            vp_text_printf(&command, rest == line->rest ? " -- " : " ");
            vp_text_quoted(&command, *rest);
        }
    }
    if (command.n_bytes)
        vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}

/* What to type where nothing of what the files mean fits: it tries what trains otherwise, adapters above
 * all. */
static void print_otherwise(const vp_check_fit *x, const vp_checked *c, const vp_command_line *line)
{
    const vp_choose_request *r       = &x->request;
    const char *const       *v       = x->mended.settings.value;
    vp_text                  command = {0};

    if (v[VP_SETTING_TUNING] && !says(v[VP_SETTING_TUNING], "full")) {
        print_for_adapters(x, c, line);
        return;
    }
    /* SFTTrainer's own step is not known under ZeRO */
    bool is_own = r->job.language->own && !(r->world > 1 && v[VP_SETTING_PARALLEL] &&
                                            strncmp(v[VP_SETTING_PARALLEL], "zero", 4) == 0);
    vp_text_printf(
        &command, "vplan estimate %s --trainer %s --device %s --seq %lld --micro-batch 1",
        r->model_name, is_own ? r->job.language->own : "hf", x->device.name, (long long)r->seq);
    if (x->class_name)
        vp_text_printf(&command, " --class %s", x->class_name);
    if (r->world > 1)
        vp_text_printf(&command, " --world %lld --parallel %s", (long long)r->world,
                       says(v[VP_SETTING_PARALLEL], "none") ? "ddp" : v[VP_SETTING_PARALLEL]);
    vp_screen_command("next", vp_text_string(&command));
    vp_text_release(&command);
}

static void print_tight(const vp_mended *m, int64_t budget_bytes)
{
    if (m->now.device_bytes <= budget_bytes)
        vp_screen_line("tight", "it may fit all the same, if nothing takes more than is predicted");
    else if (m->n_returns)
        vp_screen_line("tight",
                       "it may fit all the same: PyTorch finds room by giving back its cache, "
                       "%lld times a step, which takes time",
                       (long long)m->n_returns);
    else
        vp_screen_line("tight", "it may fit all the same: PyTorch finds room by giving back its "
                                "cache in the first step");
}

static bool is_faster(const vp_mended *m)
{
    return m->chosen.best && m->chosen.best->seconds < 0.98 * m->now_s;
}

void vp_check_fit_answer(const vp_check_fit *x)
{
    const vp_mended *m = &x->mended;
    char             speed[64], time[32];

    snprintf(speed, sizeof speed, "%s a step (assumed)", vp_time_text(m->now_s, time, sizeof time));
    vp_screen_answer(m->now.high_bytes, x->request.budget_bytes,
                     m->fits && m->now_s > 0 ? speed : NULL);
}

void vp_check_fit_print(const vp_check_fit *x, const vp_checked *c, const vp_command_line *line)
{
    const vp_mended *m = &x->mended;
    char             bytes[2][32], time[32], text[160], phase[48];

    if (x->why && x->instead) {
        vp_check_instead_print(x);
    } else if (x->why) {
        vp_screen_line("fit", "%s",
                       x->mended.why && x->mended.refused != VP_N_SETTINGS
                           ? "not as the files are: see the error"
                           : x->why);
        if (c->missing)
            vp_check_missing_print(c, line);
        else if (c->own && x->model)
            vp_check_own_print(x, c, line);
        else if (!vp_check_by_trainer_print(x, c) && !vp_check_whose_print(c, line) &&
                 (!c->n_unjudged || !vp_check_played_print(c, line, "next")) &&
                 !vp_check_again_print(x->why, line) && !c->n_unjudged &&
                 !vp_check_played_print(c, line, "next"))
            vp_check_any_print(line);
        return;
    }
    if (c->n_errors) /* which come first */
        vp_check_fit_answer(x);
    vp_screen_line("peak", "%s allocated, in %s; %s reserved by PyTorch",
                   vp_size_text(m->now.allocated_bytes, bytes[0], sizeof bytes[0]),
                   vp_screen_phase(m->now.peak_phase, phase, sizeof phase),
                   vp_size_text(m->now.reserved_bytes, bytes[1], sizeof bytes[1]));
    vp_loader_print(&m->now.batch, &x->loader, x->request.world > 1);
    /* what is shown as the same number is no other answer */
    if (m->other && strcmp(vp_size_text(m->other_bytes, bytes[0], sizeof bytes[0]),
                           vp_size_text(m->now.high_bytes, bytes[1], sizeof bytes[1])) != 0)
        vp_screen_line(
            "or",
            "%s as %s: the files do not say in which format weights are loaded, and %s is "
            "counted",
            vp_size_text(m->other_bytes, bytes[0], sizeof bytes[0]), m->other,
            m->settings.value[VP_SETTING_PRECISION]);
    vp_padding_print(m->now.high_bytes, m->padded_bytes, x->request.budget_bytes);
    if (m->is_tight)
        print_tight(m, x->request.budget_bytes);
    else if (fits_with_less(x))
        vp_screen_line("tight",
                       "it may fit all the same: DeepSpeed's file has smaller buckets than "
                       "are counted");
    if (!m->fits)
        vp_check_lines_print(m);
    else if (is_faster(m))
        vp_screen_line("faster", "%s a step fits too: micro-batch %s x %s, recompute %s",
                       vp_time_text(m->chosen.best->seconds, time, sizeof time),
                       m->chosen.best->settings.value[VP_SETTING_MICRO_BATCH],
                       m->chosen.best->settings.value[VP_SETTING_ACCUMULATION],
                       m->chosen.best->settings.value[VP_SETTING_RECOMPUTE]);
    vp_check_quicker_print(x);
    if (*m->now.versions)
        vp_screen_line("assumed", "libraries: %s", m->now.versions);
    if (m->now.why)
        vp_screen_line("assumed", "%s", m->now.why);
    for (int i = 0; i < m->now.n_assumptions; i++)
        vp_screen_line("assumed", "%s", m->now.assumptions[i]);
    if (x->engine)
        vp_screen_line("assumed", "%s", x->engine);
    for (int i = 0; i < x->zero.n_lines; i++)
        vp_screen_line("assumed", "%s", x->zero.lines[i]);
    if (padding_text(m, text, sizeof text)[0])
        vp_screen_line("assumed", "%s", text);
    if (allocator_text(m, text, sizeof text)[0])
        vp_screen_line("assumed", "%s", text);
    if (x->loader.workers)
        vp_screen_line("assumed", "%s", vp_loader_assumed);
    if (m->chosen.best && (!m->fits || x->instead || is_faster(m)))
        print_next(x, c, line);
    else if (!m->fits)
        print_otherwise(x, c, line);
    else
        vp_check_played_print(c, line, "next");
}
