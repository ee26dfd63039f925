/* vplan check: what the files of a trainer will really do. */
#include "cli/check_fit.h"
#include "cli/cli.h"
#include "cli/names.h"
#include "cli/rows.h"

#include "base/text.h"
#include "devices/devices.h"
#include "trainers/files/check.h"

#include <stdio.h>
#include <string.h>

typedef struct check_options {
    const char          *target, *versions;
    int64_t              world; /* 0: not said */
    vp_check_fit_options fit;
} check_options;

static const vp_option rows[] = {
    {.name      = "--for",
     .kind      = VP_OPTION_TEXT,
     .at        = offsetof(check_options, target),
     .value     = "TARGET",
     .suggest   = vp_word_of_target,
     .help      = "The trainer whose files these are",
     .otherwise = "by the keys in them",
     .example   = "axolotl"},
    {VP_ROW_VERSIONS(check_options, versions), .help = "The libraries that will read the files"},
    {.name      = "--model",
     .kind      = VP_OPTION_INPUT,
     .at        = offsetof(check_options, fit.model),
     .value     = "MODEL",
     .suggest   = vp_word_of_model,
     .help      = "The model that is trained, to say whether it fits",
     .otherwise = "the one that the files name, where it is built in",
     .example   = "gpt2"},
    VP_ROW_CLASS(check_options, fit.class_name),
    {VP_ROW_DEVICE(check_options, fit.device), .help = "The card it shall fit on",
     .otherwise = "fit is not answered"},
    {VP_ROW_BUDGET(check_options, fit.budget),
     .help      = "The device memory there is, context and libraries included",
     .otherwise = "what is usable on the card"},
    {VP_ROW_CALIBRATION(check_options, fit.calibration),
     .help = "Where estimate --measured keeps what it found out about a card, which the answer "
             "counts with and names; none: not used"},
    {VP_ROW_SEQ(check_options, fit.seq),
     .help      = "Tokens of a sample, where the files do not say it",
     .otherwise = "what the files say"},
    {VP_ROW_PADDING(check_options, fit.padding),
     .help = "Whether the trainer passes a mask that holds padding to the model"},
    {.name      = "--world",
     .kind      = VP_OPTION_COUNT,
     .at        = offsetof(check_options, world),
     .value     = "N",
     .unit      = "cards",
     .min       = 1,
     .max       = 65536,
     .help      = "Processes that are started, one a card, where neither files nor command say it",
     .otherwise = "what they say",
     .example   = "8"},
};
static const vp_option_set check_rows = {VP_ROWS(rows)};

static const char *const severities[] = {
    [VP_NOTE] = "note", [VP_WARNING] = "warning", [VP_ERROR] = "error"};

/* Behind `indent` spaces, folded at 80 columns. */
static void print_folded(const char *text, int indent)
{
    vp_text t = {0};

    vp_text_wrap(text, 0, indent, &t);
    fputs(vp_text_string(&t), stdout);
    vp_text_release(&t);
}

static void print_finding(const vp_finding *f)
{
    char text[2000], shown[1000], line[24] = "";

    if (f->line)
        snprintf(line, sizeof line, ":%d", f->line);
    snprintf(text, sizeof text, "%s%s: %s%s%s", f->file, line, severities[f->severity],
             f->key[0] ? ": " : "", f->key);
    print_folded(text, 0);
    snprintf(text, sizeof text, "%s%s%s", vp_text_escape(f->message, shown, sizeof shown),
             f->instead ? "; instead: " : "", f->instead ? f->instead : "");
    print_folded(text, 4);
}

/* What most people do, and did not write. */
static bool goes_without_saying(const vp_checked *c, vp_setting s)
{
    return (s == VP_SETTING_METHOD || s == VP_SETTING_EVAL_BATCH || s == VP_SETTING_GRADIENT_SYNC ||
            s == VP_SETTING_PREPARE) &&
           c->settings.value[s] && strcmp(c->settings.value[s], vp_setting_otherwise(s)) == 0;
}

static void print_settings(const vp_checked *c)
{
    char line[600] = "";

    for (int i = 0; i < VP_N_SETTINGS; i++)
        if (c->settings.value[i] && !goes_without_saying(c, (vp_setting)i))
            snprintf(line + strlen(line), sizeof line - strlen(line), "%s%s %s%s",
                     line[0] ? ", " : "", vp_setting_key(i),
                     c->may_be[i] ? c->may_be[i] : c->settings.value[i],
                     !c->by_default[i]                   ? ""
                     : i == VP_SETTING_PREPARE           ? " (by the script's calls)"
                     : i == VP_SETTING_WORLD && c->world ? " (--world)"
                                                         : " (default)");
    if (line[0]) {
        printf("these files mean\n");
        print_folded(line, 4);
    }
}

static json_t *findings_json(const vp_checked *c)
{
    json_t *list = json_array();
    char    shown[1000];

    for (int64_t i = 0; list && i < c->n_findings; i++) {
        const vp_finding *f = &c->findings[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:s, s:s, s:s?}", "severity",
                                              severities[f->severity], "file", f->file, "line",
                                              f->line ? json_integer(f->line) : json_null(), "key",
                                              f->key, "message",
                                              vp_text_escape(f->message, shown, sizeof shown),
                                              "instead", f->instead));
    }
    return list;
}

/* The value of a key in a file that was given; NULL: it is not written. */
static const vp_value *written_in(const vp_checked *c, const char *file, const char *path)
{
    const vp_value *v = NULL;

    for (int i = 0; i < c->n_files && !v; i++)
        if (c->files[i].doc && strcmp(c->files[i].name, file) == 0)
            v = vp_value_at(c->files[i].doc->root, path);
    return v;
}

/* What a list has already stays in it: "[a, b]" of a and "[b]". */
static const char *with_members(const vp_checked *c, const vp_value *list, const char *more)
{
    vp_text     text = {0};
    const char *both;

    if (!list || list->kind != VP_VALUE_LIST || !list->n_children || more[0] != '[')
        return more;
    for (const vp_value *m = list->first; m; m = m->next)
        vp_text_printf(&text, "%s%s", m == list->first ? "[" : ", ", m->text ? m->text : "");
    both = vp_arena_printf(c->arena, "%s, %s", vp_text_string(&text), more + 1);
    vp_text_release(&text);
    return both ? both : more;
}

static const char key_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_.";

/* How many letters of a text are one "key: value" of several, "bf16: false, fp16: true"; all of it where it is one or in words. */
static size_t length_of_first(const char *instead)
{
    const char *comma = strstr(instead, ", ");

    for (const char *p = instead; comma && p; p = strstr(p, ", ") ? strstr(p, ", ") + 2 : NULL) {
        size_t n = strspn(p, key_letters);
        if (!n || p[n] != ':' || p[n + 1] != ' ' || strcspn(p + n + 2, " ,") == 0 ||
            (p[n + 2 + strcspn(p + n + 2, " ,")] == ' '))
            return strlen(instead);
    }
    return comma ? (size_t)(comma - instead) : strlen(instead);
}

/* "key: value" is of that key, in its line or not written yet, also where another one was found to lack it. */
static json_t *change_json(const vp_checked *c, const vp_finding *f, const char *instead)
{
    const char *colon = strstr(instead, ": "), *dot = strrchr(f->key, '.'), *to = instead;
    const char *from = f->from;
    char        key[128], text[512];
    int         line = f->line;

    snprintf(key, sizeof key, "%s", f->key);
    if (colon && strspn(instead, key_letters) == (size_t)(colon - instead) &&
        !strstr(colon, " and ")) {
        to = colon + 2;
        snprintf(key, sizeof key, "%.*s", (int)(colon - instead), instead);
        if (strcmp(key, f->key) == 0 || (dot && strcmp(key, dot + 1) == 0)) {
            snprintf(key, sizeof key, "%s", f->key);
        } else {
            const vp_value *v = written_in(c, f->file, key);
            from              = v ? vp_value_text(v, text, sizeof text) : NULL;
            line              = v ? v->line : 0;
            to                = with_members(c, v, to);
        }
    }
    return json_pack("{s:s, s:o, s:s, s:s?, s:s, s:n, s:n}", "file", f->file, "line",
                     line ? json_integer(line) : json_null(), "key", key, "from", from, "to", to,
                     "saves_bytes", "costs_seconds");
}

/* Lines to change: what has a successor and stands in a line. */
static json_t *changes_json(const vp_checked *c)
{
    json_t *list = json_array(), *one, *other;
    size_t  k, n;

    for (int64_t i = 0; list && i < c->n_findings; i++) {
        const vp_finding *f    = &c->findings[i];
        const char       *rest = f->instead;
        if (f->severity == VP_NOTE || !f->instead || !f->line)
            continue;
        for (; *rest; rest += n + (rest[n] ? 2 : 0)) {
            n                = length_of_first(rest);
            const char *part = vp_arena_printf(c->arena, "%.*s", (int)n, rest);
            if (!part)
                break;
            one = change_json(c, f, part);
            json_array_foreach (list, k, other) /* two findings may ask for one */
                if (json_equal(one, other))
                    break;
            if (k == json_array_size(list))
                json_array_append_new(list, one);
            else
                json_decref(one);
        }
    }
    return list;
}

static json_t *files_json(const vp_checked *c)
{
    json_t *list = json_array();

    for (int i = 0; list && i < c->n_files; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s?, s:b}", "path", c->files[i].name, "kind",
                                        c->files[i].dialect ? c->files[i].dialect->name : NULL,
                                        "read", c->files[i].doc != NULL));
    return list;
}

/* What a file says, by the trainer's own names: only keys the tables know. */
static json_t *settings_json(const vp_checked *c)
{
    json_t *all = json_object();
    char    text[256];

    for (int i = 0; all && i < c->n_files; i++) {
        const vp_checked_file *file = &c->files[i];
        json_t                *one  = file->doc && file->dialect ? json_object() : NULL;
        if (!one)
            continue;
        for (const vp_dialect *d = file->dialect; d; d = d->base)
            for (int k = 0; k < d->n_keys; k++) {
                const vp_value *v = vp_value_at(file->doc->root, d->keys[k].path);
                if (!v || v->kind == VP_VALUE_MAP)
                    continue;
                json_t *value = v->kind == VP_VALUE_BOOL   ? json_boolean(v->boolean)
                                : v->kind == VP_VALUE_INT  ? json_integer(v->integer)
                                : v->kind == VP_VALUE_REAL ? json_real(v->real)
                                : v->kind == VP_VALUE_NULL
                                    ? json_null()
                                    : json_string(v->text && v->kind == VP_VALUE_STRING
                                                      ? v->text
                                                      : vp_value_text(v, text, sizeof text));
                if (value)
                    json_object_set_new(one, d->keys[k].path, value);
            }
        json_t *whole = json_object_get(all, file->name); /* of a part: what it stands in */
        if (whole)
            json_object_update_missing(whole, one);
        else
            json_object_set(all, file->name, one);
        json_decref(one);
    }
    return all;
}

static json_t *may_be_json(const vp_checked *c)
{
    json_t *j = json_object();

    for (int i = 0; j && i < VP_N_SETTINGS; i++)
        if (c->may_be[i])
            json_object_set_new(j, vp_setting_key(i), json_string(c->may_be[i]));
    return j;
}

static vp_status print_json(const vp_checked *c, const vp_check_fit *fit, vp_err *err)
{
    json_t *j =
        json_pack("{s:i, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:s?}", "schema_version", 1, "target",
                  c->target ? c->target->name : NULL, "files", files_json(c), "settings",
                  settings_json(c), "common", vp_settings_common_json(&c->settings), "may_be",
                  may_be_json(c), "findings", findings_json(c), "changes", changes_json(c), "model",
                  fit->model ? fit->request.model_name : NULL);

    if (j)
        vp_check_fit_json(fit, j);
    return vp_print_json(j, err);
}

/* Whether a file could be read; where none could there is nothing to ask about. */
static bool is_any_read(const vp_checked *c)
{
    for (int i = 0; i < c->n_files; i++)
        if (c->files[i].doc)
            return true;
    return false;
}

static void print_text(const vp_checked *c, const vp_check_fit *fit, const vp_command_line *line)
{
    int64_t n[3]    = {0};
    int     n_files = 0;
    bool    answers = !c->n_errors && !fit->why; /* whether it fits: then that is what was asked */

    for (int i = 0; i < c->n_files; i++)
        n_files += !c->files[i].is_part && !c->files[i].is_commands;

    for (int64_t i = 0; i < c->n_findings; i++)
        n[c->findings[i].severity]++;
    if (c->n_errors && c->n_errors == c->n_unjudged)
        printf("NOT CHECKED: %d of %d file%s %s of no training that vplan reads\n", c->n_unjudged,
               n_files, n_files == 1 ? "" : "s", c->n_unjudged == 1 ? "is" : "are");
    else if (c->n_errors)
        printf("WRONG: %lld error%s, %lld warning%s in %d file%s%s%s\n", (long long)n[VP_ERROR],
               n[VP_ERROR] == 1 ? "" : "s", (long long)n[VP_WARNING], n[VP_WARNING] == 1 ? "" : "s",
               n_files, n_files == 1 ? "" : "s", c->target ? ", read as " : "",
               c->target ? c->target->name : "");
    else if (answers)
        vp_check_fit_answer(fit);
    if (!c->n_errors)
        printf("no errors in %d file%s%s%s; %lld warning%s\n", n_files, n_files == 1 ? "" : "s",
               c->target ? ", read as " : "", c->target ? c->target->name : "",
               (long long)n[VP_WARNING], n[VP_WARNING] == 1 ? "" : "s");
    for (int severity = VP_ERROR; severity >= VP_NOTE; severity--)
        for (int64_t i = 0; i < c->n_findings; i++)
            if ((int)c->findings[i].severity == severity)
                print_finding(&c->findings[i]);
    print_settings(c);
    if (is_any_read(c) || !c->n_errors)
        vp_check_fit_print(fit, c, line);
}

/* The reason why the card of these files has no bf16 (NULL: it has, or there is none), and what scripts ask it for. */
static vp_status find_no_bf16(vp_arena *arena, const char *name, const char **out, int *capability,
                              vp_err *err)
{
    vp_device device;
    vp_err    why = {0};
    vp_status st  = VP_OK;

    *out = NULL;
    if (!name)
        return VP_OK;
    VP_TRY(vp_device_open(name, &device, err));
    *capability = device.is_cpu ? 0 : device.compute_capability;
    if (!device.is_cpu && vp_device_supports(&device, VP_NEEDS_BF16, &why) != VP_OK) {
        *out = vp_arena_strdup(arena, why.message);
        VP_TRY_ALLOC(err, *out);
    }
out:
    return st;
}

/* The built-in model that the files name, where the command names none: no file is opened for it. */
static void take_files_model(const vp_cli *cli, const vp_checked *c, vp_check_fit_options *fit)
{
    char shown[128];

    fit->named = vp_checked_model(c);
    fit->model = fit->named ? vp_built_in_name(fit->named) : NULL;
    if (fit->model && fit->device)
        vp_cli_note(cli, "%s, which the files train, is taken as the built-in %s",
                    vp_text_escape(fit->named, shown, sizeof shown), fit->model);
    if (!fit->model && fit->named && vp_checked_is_quantised(c)) {
        fit->model = vp_built_in_of_packed(fit->named);
        if (fit->model && fit->device)
            vp_cli_note(cli,
                        "%s, which the files train, is taken as the built-in %s, whose weights "
                        "are packed so while they are loaded",
                        vp_text_escape(fit->named, shown, sizeof shown), fit->model);
    }
}

/* "org/name", no path. */
static bool is_hub_id(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash && slash != name && name[0] != '.' && name[0] != '~' && !strchr(slash + 1, '/') &&
           slash[1];
}

/* What --model says against what the files say; of a config.json nobody knows whose it is. */
static vp_status judge_model(vp_checked *c, const vp_check_fit_options *fit, vp_err *err)
{
    const char *named = vp_checked_model(c), *own = named ? vp_built_in_name(named) : NULL;
    const char *counted = vp_built_in_name(fit->model);

    if (named && !own && vp_checked_is_quantised(c))
        own = vp_built_in_of_packed(named);
    if (!named || !counted || !fit->device || (own ? strcmp(own, counted) == 0 : !is_hub_id(named)))
        return VP_OK;
    return vp_check_other_model(c, counted, own != NULL, err);
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    check_options   o        = {0};
    vp_check_opts   opts     = {0};
    vp_arena       *arena    = vp_arena_new();
    json_t         *versions = NULL;
    vp_check_input  inputs[VP_MAX_WORDS + 1];
    vp_checked      c = {0};
    vp_command_line line;
    vp_check_fit    fit = {0};
    int             n   = 0;
    vp_status       st  = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(vp_cli_parse(&vp_cmd_check, argc, argv, cli, (void *[]){&o}, &line, err));
    if (o.target)
        VP_TRY(vp_target_named(o.target, &opts.target, err));
    VP_TRY(vp_parse_versions(o.versions, &versions, err));
    opts.versions  = versions;
    opts.follows   = true;
    opts.has_model = o.fit.model && !vp_built_in_name(o.fit.model);
    if (o.world) {
        opts.world = vp_arena_printf(arena, "%lld", (long long)o.world);
        VP_TRY_ALLOC(err, opts.world);
    }
    for (int i = 0; i < line.n_words; i++)
        inputs[n++] = (vp_check_input){.path = line.words[i]};
    if (line.rest) {
        int64_t words = 0;
        while (line.rest[words])
            words++;
        inputs[n++] = (vp_check_input){.words = (const char *const *)line.rest, .n_words = words};
    }
    if (!n)
        VP_TRY(vp_cli_lacks(&vp_cmd_check,
                            "vplan check FILE... or -- CMD...: which files or command?", err));
    if (o.fit.device)
        VP_TRY(vp_device_named(cli, &o.fit.device, err));
    VP_TRY(find_no_bf16(arena, o.fit.device, &opts.no_bf16, &opts.capability, err));
    VP_TRY(vp_check(arena, inputs, n, &opts, &c, err));
    if (o.fit.model) {
        VP_TRY(vp_model_named(cli, &o.fit.model, err));
        VP_TRY(judge_model(&c, &o.fit, err));
    } else {
        take_files_model(cli, &c, &o.fit);
    }
    VP_TRY(vp_check_fit_find(arena, &c, &o.fit, &fit, err));
    if (cli->json)
        VP_TRY(print_json(&c, &fit, err));
    else
        print_text(&c, &fit, &line);
    cli->exit_code = c.n_errors ? 4 : !fit.why && !fit.mended.fits ? 3 : 0;
out:
    vp_check_fit_release(&fit);
    json_decref(versions);
    vp_arena_free(arena);
    return st;
}

const vp_command vp_cmd_check = {
    .name    = "check",
    .summary = "what your trainer's config files really do, and whether it fits",
    .usage   = {"FILE... [--for TARGET] [options]", "[FILE...] [options] -- CMD..."},
    .about =
        {"Reads what you have, any of the targets' files, several at once, or the command line "
         "itself, and answers like a good compiler: keys that the trainer drops without a word, "
         "values that are not what they look like (2e-5 is text in YAML), keys that are gone with "
         "their successor, files that disagree about one switch, defaults that cost memory. Exit 4 "
         "where something is wrong, 0 where nothing is.",
         "With --device, and --model where the files name none that is built in, whether what the files mean fits, where it peaks, and where it "
         "does not fit the lines to change, with what each saves and costs: only what converges "
         "alike. Exit 3 where it does not fit.",
         "Files that yours name are read too (deepspeed: ds.json, --config_file accelerate.yaml, "
         "llamafactory-cli train FILE; python train.py, where the command has no options of its own), "
         "from here, from beside the file that names them or from a folder above it. Nothing is executed. Of Python, and of "
         "the code cells of a notebook, the literals are read."},
    .examples   = {"vplan check train.yaml --model gpt2 --device 4090 --seq 1024",
                   "vplan check training_args.yaml ds_config.json accelerate.yaml",
                   "vplan check --versions transformers=5.17 -- python train.py --bf16 True"},
    .sets       = {&check_rows},
    .argument   = VP_TAKES_FILE,
    .max_words  = VP_MAX_WORDS,
    .takes_rest = true,
    .run        = run,
};
