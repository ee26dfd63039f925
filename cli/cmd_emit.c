/* vplan emit: settings as the files of the trainer that people use. */
#include "cli/cli.h"
#include "cli/names.h"
#include "cli/priced_model.h"
#include "cli/rows.h"
#include "cli/screen.h"
#include "cli/words.h"

#include "base/file.h"
#include "base/text.h"
#include "trainers/files/edit.h"
#include "trainers/files/emit.h"
#include "trainers/fit/language.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct emit_options {
    const char *target, *folder, *versions, *edit;
    json_t     *named; /* versions that somebody named */
    bool        force;
} emit_options;

const char *vp_word_of_target(int i)
{
    const vp_target *t = vp_target_at(i);

    return t ? t->name : NULL;
}

static const vp_option rows[] = {
    {.name    = "--for",
     .kind    = VP_OPTION_TEXT,
     .at      = offsetof(emit_options, target),
     .value   = "TARGET",
     .suggest = vp_word_of_target,
     .help    = "The trainer whose files are written; required",
     .example = "trl"},
    {VP_ROW_VERSIONS(emit_options, versions),
     .help = "The libraries that the files are for; a setting that one does not know yet, or no "
             "more, is an error"},
    {.name  = "--edit",
     .kind  = VP_OPTION_INPUT,
     .at    = offsetof(emit_options, edit),
     .value = "FILE",
     .help  = "Change a file that you have instead: only the keys that must, with its comments and "
              "its order; the change is shown, and written where -o or --force says so",
     .otherwise = "new files",
     .example   = "training_args.yaml"},
    {VP_ROW_OUT(emit_options, folder, "run"), .value = "DIR",
     .help      = "The folder to write into; it is made if its parent exists",
     .otherwise = "the files are printed, one after the other"},
    VP_ROW_FORCE(emit_options, force),
};
static const vp_option_set emit_rows = {VP_ROWS(rows)};

static vp_status begin_file(const emit_options *o, const vp_emitted_file *file, const char *input,
                            vp_file_writer *w, vp_err *err)
{
    char      path[1024];
    vp_status st = VP_OK;

    if (snprintf(path, sizeof path, "%s/%s", o->folder, file->name) >= (int)sizeof path)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "the folder's name is too long"));
    VP_TRY(vp_output_check(path, o->force, (const char *[]){input}, 1, err));
    VP_TRY(vp_file_begin(path, o->force, w, err));
    VP_TRY(vp_file_put(w, file->text, strlen(file->text), err));
    VP_TRY(vp_file_settle(w, err));
out:
    return st;
}

/* All of them or none: each is on disk under a temporary name before the first gets its own. */
static vp_status write_files(const emit_options *o, const vp_emitted *e, const char *input,
                             vp_err *err)
{
    vp_file_writer *w    = calloc(VP_EMIT_MAX_FILES, sizeof *w);
    bool            made = access(o->folder, F_OK) != 0, is_new[VP_EMIT_MAX_FILES] = {0};
    char            path[sizeof w->path];
    int             n  = 0;
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, w);
    VP_TRY(vp_file_make_dir(o->folder, err));
    for (int i = 0; i < e->n_files; i++)
        VP_TRY(begin_file(o, &e->files[i], input, &w[i], err));
    for (; n < e->n_files; n++) {
        is_new[n] = access(w[n].path, F_OK) != 0;
        VP_TRY(vp_file_commit(&w[n], err));
    }
out:
    for (int i = 0; w && i < e->n_files; i++) {
        snprintf(path, sizeof path, "%s", w[i].path);
        vp_file_abort(&w[i]);
        if (st != VP_OK && i < n && is_new[i])
            unlink(path);
    }
    if (st != VP_OK && made)
        rmdir(o->folder);
    free(w);
    return st;
}

static vp_status print_json(const emit_options *o, const vp_target *target, const vp_settings *s,
                            const vp_emitted *e, vp_err *err)
{
    json_t   *files = json_array(), *script = json_array(), *assumed = json_array();
    char      path[1100];
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, files && script && assumed);
    for (int i = 0; i < e->n_files; i++) {
        snprintf(path, sizeof path, "%s%s%s", o->folder ? o->folder : "", o->folder ? "/" : "",
                 e->files[i].name);
        json_array_append_new(files, json_pack("{s:s, s:I, s:s*}", "path", path, "bytes",
                                               (json_int_t)strlen(e->files[i].text), "text",
                                               o->folder ? NULL : e->files[i].text));
    }
    for (int i = 0; i < e->n_script; i++)
        json_array_append_new(script, json_string(e->script[i]));
    for (int i = 0; i < s->n_assumed; i++)
        json_array_append_new(assumed, json_string(s->assumed[i]));
    VP_TRY(vp_print_json(json_pack("{s:i, s:s, s:O, s:O, s:s, s:O, s:o, s:O, s:O}",
                                   "schema_version", 1, "target", target->name, "versions",
                                   e->versions, "files", files, "launch", e->launch, "settings",
                                   e->settings, "common", vp_settings_common_json(s), "script",
                                   script, "assumptions", assumed),
                         err));
out:
    json_decref(files);
    json_decref(script);
    json_decref(assumed);
    return st;
}

/* In the folder of the files; NULL: in this one. */
static void print_launch(const char *folder, const char *launch)
{
    vp_text command = {0};

    if (folder) {
        vp_text_printf(&command, "cd ");
        vp_text_quoted(&command, folder);
        vp_text_printf(&command, " && ");
    }
    vp_text_printf(&command, "%s", launch);
    vp_screen_command("run", vp_text_string(&command));
    vp_text_release(&command);
}

static void put_option(const char *name, const char *value, vp_text *out)
{
    if (!value)
        return;
    vp_text_printf(out, " %s ", name);
    vp_text_quoted(out, value);
}

/* Files by which their trainer cannot train the settings' model are not written; what it is nobody knows where its config is not here. */
static vp_status check_trains(const vp_target *target, const vp_settings *s, vp_err *err)
{
    const char        *own   = s->model ? vp_built_in_name(s->model) : NULL;
    vp_model          *model = NULL;
    const vp_language *language;
    vp_err             why = {0};
    vp_status          st  = VP_OK;

    if (s->model && vp_language_of(target, &language, &why) == VP_OK &&
        vp_model_to_price(own ? own : s->model, &(vp_model_opts){.class_name = s->model_class},
                          NULL, &model, NULL, &why) == VP_OK)
        st = vp_language_trains(language, model, "--for", err);
    vp_model_free(model);
    return st;
}

/* The class of the settings' model; NULL: its config names it. */
static const char *class_to_say(const vp_settings *s)
{
    const char *own    = s->model ? vp_built_in_name(s->model) : NULL;
    vp_model   *config = NULL;
    vp_err      why    = {0};
    bool        is_own = !s->model_class || !s->model;

    if (!is_own && vp_model_open(own ? own : s->model, &(vp_model_opts){.config_only = true},
                                 &config, &why) == VP_OK)
        is_own = strcmp(config->class_name, s->model_class) == 0;
    vp_model_free(config);
    return is_own ? NULL : s->model_class;
}

/* What check has to be told to say whether they fit, and files may not say. */
static void put_fit(const vp_settings *s, vp_text *out)
{
    put_option("--model", s->model, out);
    put_option("--class", class_to_say(s), out);
    put_option("--device", s->device, out);
    put_option("--seq", s->value[VP_SETTING_SEQ], out);
    put_option("--padding", s->padded ? "mask" : NULL, out);
}

static void print_text(const emit_options *o, const vp_settings *s, const vp_emitted *e)
{
    vp_text check = {0};

    for (int i = 0; i < e->n_files && !o->folder; i++)
        printf("---- %s\n%s", e->files[i].name, e->files[i].text);
    for (int i = 0; i < e->n_files && o->folder; i++)
        vp_screen_line(i ? "" : "written", "%s/%s, %zu bytes", o->folder, e->files[i].name,
                       strlen(e->files[i].text));
    for (int i = 0; i < e->n_script; i++)
        vp_screen_line(i ? "" : "by hand", "%s", e->script[i]);
    for (int i = 0; i < s->n_assumed; i++)
        vp_screen_line(i ? "" : "assumed", "%s", s->assumed[i]);
    if (!o->folder)
        return;
    vp_text_printf(&check, "vplan check");
    for (int i = 0; i < e->n_files; i++)
        if (e->files[i].dialect) {
            vp_text_printf(&check, " ");
            vp_text_quoted(&check, o->folder);
            vp_text_printf(&check, "/%s", e->files[i].name);
        }
    put_fit(s, &check);
    vp_emitted_check_options(e, &check);
    vp_screen_command("check", vp_text_string(&check));
    print_launch(o->folder, e->launch);
    vp_text_release(&check);
}

/* ---- a file that is there ---- */

typedef struct edited {
    vp_checked  checked;
    vp_edit    *edits;
    int64_t     n_edits;
    const char *path; /* where it is written; NULL: nowhere */
    vp_text     text, diff;
} edited;

/* By the versions that are written for, or, where the file has keys of newer ones and nobody named any, by the newest. */
static vp_status check_base(const emit_options *o, const vp_target *target, const vp_settings *s,
                            vp_arena *arena, edited *x, vp_err *err)
{
    vp_check_input input = {.path = o->edit};
    vp_checked     newest;
    vp_status      st = VP_OK;

    VP_TRY(vp_check(arena, &input, 1, &(vp_check_opts){target, s->versions}, &x->checked, err));
    if (!x->checked.n_errors)
        return VP_OK;
    VP_TRY(vp_check(arena, &input, 1, &(vp_check_opts){target, o->named}, &newest, err));
    if (newest.n_errors < x->checked.n_errors)
        x->checked = newest;
out:
    return st;
}

/* What plan wrote, or may have. */
static bool is_of_settings(const vp_checked_file *file)
{
    const vp_value *kind   = file->doc ? vp_value_member(file->doc->root, "kind") : NULL;
    const vp_value *common = file->doc ? vp_value_member(file->doc->root, "common") : NULL;

    return kind && common && common->kind == VP_VALUE_MAP && kind->kind == VP_VALUE_STRING &&
           strcmp(kind->text, "settings") == 0;
}

static vp_status read_base(const emit_options *o, const vp_target *target, const vp_settings *s,
                           vp_arena *arena, edited *x, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(check_base(o, target, s, arena, x, err));
    if (is_of_settings(&x->checked.files[0]))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                       "%s: a file of settings, which no trainer reads; --edit "
                       "wants one of yours that %s reads",
                       o->edit, target->name));
    if (!x->checked.files[0].doc || !x->checked.files[0].dialect) {
        const vp_finding *f = x->checked.n_findings ? &x->checked.findings[0] : NULL;
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, o->edit, f ? f->line : 0, NULL, "%s",
                          f ? f->message : "no file of this trainer"));
    }
    VP_TRY(vp_edits_list(&x->checked, s, &x->edits, &x->n_edits, err));
out:
    return st;
}

/* A file is replaced, not written into: its other names would keep the old text. */
static vp_status check_names(const char *path, vp_err *err)
{
    struct stat info;

    if (!stat(path, &info) && info.st_nlink > 1)
        return VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL,
                          "has %llu names (hard links): the others would keep the old text; -o DIR "
                          "writes the edited file elsewhere",
                          (unsigned long long)info.st_nlink);
    return VP_OK;
}

/* A plan of another model than the file trains. */
static vp_status check_model(const emit_options *o, const vp_settings *s, const edited *x,
                             vp_err *err)
{
    const char *named   = vp_checked_model(&x->checked),
               *own     = named ? vp_built_in_name(named) : NULL;
    const char *planned = s->model ? vp_built_in_name(s->model) : NULL;
    char        shown[128];

    if (!own || !planned || strcmp(own, planned) == 0)
        return VP_OK;
    return VP_FAIL_AT(err, VP_ERR_INPUT, o->edit, 0, NULL,
                      "trains %s, and the settings are those of %s: vplan plan %s --trainer %s "
                      "--device CARD plans it",
                      vp_text_escape(named, shown, sizeof shown), planned, own, o->target);
}

/* The user's own evaluation, which the settings have none of. */
static void print_evaluation(const vp_settings *s, const edited *x)
{
    const char *had = x->checked.settings.value[VP_SETTING_EVAL_BATCH],
               *has = s->value[VP_SETTING_EVAL_BATCH];

    if (had && has && strcmp(had, "none") != 0 && strcmp(has, "none") == 0)
        vp_screen_line(
            "off",
            "the file's evaluation: the settings count none; plan --eval-batch %s counts "
            "one of that many samples",
            had);
}

/* What the trainer's other files say. */
static void print_elsewhere(const vp_settings *s, const vp_emitted *e, const edited *x)
{
    for (int i = 0; i < VP_N_SETTINGS; i++) {
        const char *name =
            vp_edit_elsewhere(&x->checked, s, x->edits, x->n_edits, e, (vp_setting)i);
        if (name)
            vp_screen_line("elsewhere", "%s %s: %s says it, which emit -o writes",
                           vp_setting_key((vp_setting)i), s->value[i], name);
    }
}

static vp_status edit_base(const emit_options *o, const vp_target *target, const vp_settings *s,
                           vp_arena *arena, edited *x, vp_err *err)
{
    char       *bytes = NULL;
    int64_t     n;
    const char *name = strrchr(o->edit, '/');
    vp_status   st   = VP_OK;

    VP_TRY(read_base(o, target, s, arena, x, err));
    VP_TRY(check_model(o, s, x, err));
    VP_TRY(vp_file_read(o->edit, VP_DOCUMENT_MAX_BYTES, &bytes, &n, err));
    VP_TRY(
        vp_edits_apply(arena, x->edits, x->n_edits, &x->checked.files[0], bytes, n, &x->text, err));
    VP_TRY(
        vp_edits_prove(&x->checked, &x->checked.files[0], s, x->edits, x->n_edits, &x->text, err));
    if (o->force && !o->folder)
        VP_TRY(check_names(o->edit, err));
    vp_edits_diff(o->edit, bytes, x->text.data ? x->text.data : "", &x->diff);
    VP_TRY_ALLOC(err, !x->diff.failed);
    x->path = o->folder  ? vp_arena_printf(arena, "%s/%s", o->folder, name ? name + 1 : o->edit)
              : o->force ? o->edit
                         : NULL;
    if (o->folder)
        VP_TRY(vp_file_make_dir(o->folder, err));
    if (x->path)
        VP_TRY(vp_file_write(x->path, x->text.data ? x->text.data : "", x->text.n_bytes, o->force,
                             err));
out:
    free(bytes);
    return st;
}

static json_t *edits_json(const edited *x)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < x->n_edits; i++)
        json_array_append_new(
            list,
            json_pack("{s:o, s:o, s:s, s:s?, s:s?}", "file",
                      vp_json_text_or_null(x->edits[i].file ? x->edits[i].file->name : ""), "line",
                      x->edits[i].at ? json_integer(x->edits[i].at->line) : json_null(), "key",
                      x->edits[i].path, "from", x->edits[i].from, "to", x->edits[i].to));
    return list;
}

static json_t *elsewhere_json(const vp_settings *s, const vp_emitted *e, const edited *x)
{
    json_t *list = json_array();

    for (int i = 0; i < VP_N_SETTINGS; i++) {
        const char *name =
            vp_edit_elsewhere(&x->checked, s, x->edits, x->n_edits, e, (vp_setting)i);
        if (name)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "setting",
                                                  vp_setting_key((vp_setting)i), "value",
                                                  s->value[i], "file", name));
    }
    return list;
}

static json_t *edited_json(const emit_options *o, const vp_target *target, const vp_settings *s,
                           const vp_emitted *e, const edited *x)
{
    json_t *file = json_pack("{s:s, s:I, s:s*}", "path", x->path ? x->path : o->edit, "bytes",
                             (json_int_t)x->text.n_bytes, "text", x->path ? NULL : x->text.data);

    return json_pack("{s:i, s:s, s:O, s:[o], s:s, s:O, s:o, s:b, s:o, s:o, s:s}", "schema_version",
                     1, "target", target->name, "versions", e->versions, "files", file, "launch",
                     e->launch, "settings", e->settings, "common", vp_settings_common_json(s),
                     "written", x->path != NULL, "changes", edits_json(x), "elsewhere",
                     elsewhere_json(s, e, x), "diff", x->diff.data ? x->diff.data : "");
}

/* How the file is run its owner knows; whether it is right now, check does. */
static void print_recheck(const char *path, const char *target, const vp_settings *s,
                          const vp_emitted *e, const edited *x)
{
    const vp_checked *c     = &x->checked;
    const char       *world = s->value[VP_SETTING_WORLD];
    bool    said    = c->settings.value[VP_SETTING_WORLD] && !c->by_default[VP_SETTING_WORLD];
    vp_text command = {0};

    vp_text_printf(&command, "vplan check ");
    vp_text_quoted(&command, path);
    put_option("--for", target, &command);
    put_fit(s, &command);
    put_option("--versions", e->other, &command);
    put_option("--world", said || strcmp(world, "1") == 0 ? NULL : world, &command);
    for (int64_t i = 0; i < x->n_edits; i++)
        if (!x->edits[i].file && x->edits[i].to)
            vp_text_printf(&command, " -- %s=%s", x->edits[i].path, x->edits[i].to);
    vp_screen_command("check", vp_text_string(&command));
    vp_text_release(&command);
}

/* emitted: what new files would say, for its launch line and its refusals. */
static vp_status edit_and_print(const emit_options *o, const vp_target *target,
                                const vp_settings *s, const vp_emitted *e, vp_arena *arena,
                                vp_cli *cli, vp_err *err)
{
    edited    x  = {0};
    vp_status st = VP_OK;

    VP_TRY(edit_base(o, target, s, arena, &x, err));
    if (cli->json) {
        VP_TRY(vp_print_json(edited_json(o, target, s, e, &x), err));
    } else {
        bool changes =
            x.diff.n_bytes && strchr(x.diff.data, '\n') != x.diff.data + x.diff.n_bytes - 1;
        fputs(changes ? x.diff.data : "nothing is to be changed\n", stdout);
        for (int64_t i = 0; i < x.n_edits; i++)
            if (!x.edits[i].file)
                vp_screen_line("by hand",
                               x.edits[i].to ? "%s=%s before the command"
                                             : "%s is to go from the command's environment",
                               x.edits[i].path, x.edits[i].to);
        print_evaluation(s, &x);
        print_elsewhere(s, e, &x);
        for (int i = 0; i < e->n_script; i++) /* which a file of settings cannot ask for */
            if (strncmp(e->script[i], "recompute first:", strlen("recompute first:")) == 0)
                vp_screen_line("by hand", "%s", e->script[i]);
        vp_screen_line(x.path ? "written" : "next", "%s",
                       x.path ? x.path : "--force writes it, -o DIR elsewhere");
        print_recheck(x.path ? x.path : o->edit, target->name, s, e, &x);
    }
out:
    vp_text_release(&x.text);
    vp_text_release(&x.diff);
    return st;
}

static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
{
    emit_options     o        = {0};
    vp_arena        *arena    = vp_arena_new();
    vp_emitted       e        = {0};
    vp_settings      s        = {0};
    json_t          *versions = NULL, *asked = NULL;
    const vp_target *target;
    vp_command_line  line;
    const char      *made_by;
    vp_status        st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(vp_cli_parse(&vp_cmd_emit, argc, argv, cli, (void *[]){&o}, &line, err));
    if (!line.n_words)
        VP_TRY(vp_cli_lacks(&vp_cmd_emit,
                            "vplan emit SETTINGS|PLAN: which? vplan plan -o FILE writes either.",
                            err));
    if (!o.target)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--for TARGET is required; vplan targets lists them"));
    VP_TRY(vp_target_named(o.target, &target, err));
    VP_TRY(vp_parse_versions(o.versions, &versions, err));
    VP_TRY(vp_settings_read(arena, line.words[0], &s, err));
    asked = json_copy(versions);
    VP_TRY_ALLOC(err, asked && (!s.asked || !json_object_update_missing(asked, s.asked)));
    s.asked = asked;
    if (s.versions && json_object_update_missing(versions, s.versions))
        VP_TRY(VP_FAIL(err, VP_ERR_NOMEM, "out of host memory"));
    o.named = json_copy(versions);
    VP_TRY_ALLOC(err, o.named);
    VP_TRY(vp_target_writes_for(target, versions, err));
    s.versions = versions;
    VP_TRY(check_trains(target, &s, err));
    VP_TRY(vp_emit_complete(arena, target, &s, line.words[0], err));
    made_by = vp_arena_printf(arena, "vplan emit %s --for %s%s%s", line.words[0], target->name,
                              o.versions ? " --versions " : "", o.versions ? o.versions : "");
    VP_TRY_ALLOC(err, made_by);
    if (!o.edit && strcmp(s.value[VP_SETTING_METHOD], "grpo") == 0 && !vp_group_of(&s))
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, line.words[0], 0, "micro_batch",
                          "micro_batch %s x accumulation %s x world %s: " VP_NO_GROUP,
                          s.value[VP_SETTING_MICRO_BATCH], s.value[VP_SETTING_ACCUMULATION],
                          s.value[VP_SETTING_WORLD]));
    VP_TRY(vp_emit(arena, target, &s, made_by, &e, err));
    if (o.edit) {
        VP_TRY(edit_and_print(&o, target, &s, &e, arena, cli, err));
        goto out;
    }
    if (o.folder)
        VP_TRY(write_files(&o, &e, line.words[0], err));
    if (cli->json)
        VP_TRY(print_json(&o, target, &s, &e, err));
    else
        print_text(&o, &s, &e);
out:
    if (st != VP_OK && err->code == VP_ERR_INPUT && !err->file[0] && line.n_words)
        snprintf(err->file, sizeof err->file, "%s", line.words[0]);
    vp_emitted_release(&e);
    vp_settings_release(&s);
    json_decref(versions);
    json_decref(asked);
    json_decref(o.named);
    vp_arena_free(arena);
    return st;
}

const vp_command vp_cmd_emit = {
    .name    = "emit",
    .summary = "a plan written as your trainer's config files",
    .usage   = {"SETTINGS|PLAN --for TARGET [-o DIR] [options]",
                "SETTINGS|PLAN --for TARGET --edit FILE [--force] [options]"},
    .about =
        {"Writes settings (the file of vplan plan --trainer, or an object `common` of your own) or "
         "what a plan decided as the files that a trainer reads. Every key that memory depends on "
         "is written, also where it equals the default; files that must agree are written "
         "together; each says which versions it is for, what was predicted, and the commands that "
         "made it and that run it. What the trainer cannot be told is an error, never dropped.",
         "Keys of `common`: method, completion and generator of grpo, micro_batch, accumulation, world, seq, precision, optimizer, recompute, "
         "loss, attention, offload, parallel, clip_norm, tuning, quant, lora_r, lora_alpha, lora_dropout, "
         "lora_targets, lora_save, eval_batch, gradient_sync, allocator. vplan targets lists the targets and what each can be told."},
    .examples  = {"vplan emit settings.json --for trl -o run",
                  "vplan emit plan.json --for hf --versions transformers=5.17 -o run"},
    .sets      = {&emit_rows},
    .argument  = VP_TAKES_FILE,
    .max_words = 1,
    .run       = run,
};
