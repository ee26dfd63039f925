#include "tuner/command_internal.h"

#include "base/file.h"
#include "base/text.h"
#include "trainers/files/edit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILES = 8, MAX_FOLDED = 64 };

/* Who names a file: a word of the command, or a key of another of the files. */
typedef struct named_file {
    const char *path; /* as it is named */
    char       *bytes;
    int64_t     n_bytes;
    int         word; /* -1: by_file does */
    int         by_file;
    const char *by_key;
    char
        *on_disk; /* its bytes there, where words of the command say otherwise (bytes); else NULL */
} named_file;

/* A word key=value of the command that says what a file's key is, whatever the file says: it stands in `bytes`. */
typedef struct folded_word {
    int         file;
    const char *key;
} folded_word;

struct vp_command_files {
    vp_arena   *arena;
    named_file  named[MAX_FILES];
    int         n;
    vp_checked  checked; /* of the files, and last of the command itself */
    folded_word folded[MAX_FOLDED];
    int         n_folded;
};

static const vp_key any_value = {.type = VP_KEY_ANY}, a_text = {.type = VP_KEY_TEXT};

/* ---- which files ---- */

bool vp_command_is_settings_file(const char *path)
{
    static const char *const tails[] = {".yaml", ".yml", ".json", ".toml"};
    const char              *dot     = strrchr(path, '.');
    struct stat              info;

    for (size_t i = 0; dot && i < sizeof tails / sizeof *tails; i++)
        if (strcmp(dot, tails[i]) == 0)
            return stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
                   info.st_size <= VP_DOCUMENT_MAX_BYTES;
    return false;
}

static bool is_known(const vp_command_files *f, const char *path)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->named[i].path, path) == 0)
            return true;
    return false;
}

static void add_file(vp_command_files *f, const char *path, int word, int by_file,
                     const char *by_key)
{
    named_file *to = &f->named[f->n];

    if (f->n == MAX_FILES || !vp_command_is_settings_file(path) || is_known(f, path))
        return;
    *to = (named_file){.word = word, .by_file = by_file, .by_key = by_key};
    if (vp_file_read(path, VP_DOCUMENT_MAX_BYTES, &to->bytes, &to->n_bytes, NULL) != VP_OK)
        return;
    to->path = vp_arena_strdup(f->arena, path);
    f->n++;
}

/* Files that a file of settings names: a DeepSpeed JSON. */
static void add_named_by(vp_command_files *f, int file)
{
    static const char *const keys[] = {"deepspeed", "deepspeed_config",
                                       "deepspeed_config.deepspeed_config_file"};
    vp_document             *doc    = NULL;
    vp_err                   why    = {0};

    if (vp_document_parse(f->arena, f->named[file].path, f->named[file].bytes,
                          f->named[file].n_bytes, VP_FORMAT_BY_NAME, &doc, &why) != VP_OK)
        return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const vp_value *v = vp_value_at(doc->root, keys[i]);
        if (v && v->kind == VP_VALUE_STRING)
            add_file(f, v->text, -1, file, keys[i]);
    }
}

static vp_status check_all(vp_command_files *f, char *const *command, int n_words, int64_t world,
                           vp_err *err)
{
    vp_check_input inputs[MAX_FILES + 1];

    for (int i = 0; i < f->n; i++)
        inputs[i] = (vp_check_input){
            .path = f->named[i].path, .bytes = f->named[i].bytes, .n_bytes = f->named[i].n_bytes};
    inputs[f->n] =
        (vp_check_input){.words = (const char *const *)(const void *)command, .n_words = n_words};
    return vp_check(f->arena, inputs, f->n + 1,
                    &(vp_check_opts){.world = vp_arena_printf(f->arena, "%lld", (long long)world)},
                    &f->checked, err);
}

/* The file of a trainer's that a word key=value is about: one that has the key, else of a key without dots the last one named before the
 * word, which it is added to; -1: none. */
static int file_of_word(const vp_command_files *f, int word, const char *key, const vp_value **at)
{
    int named = -1;

    for (int i = 0; i < f->n; i++) {
        const vp_checked_file *of = &f->checked.files[i];
        if (!of->doc || !of->dialect || f->named[i].word < 0)
            continue;
        *at = vp_value_at(of->doc->root, key);
        if (*at)
            return (*at)->kind == VP_VALUE_MAP || (*at)->kind == VP_VALUE_LIST ? -1 : i;
        named = f->named[i].word < word && !strchr(key, '.') ? i : named;
    }
    *at = NULL;
    return named;
}

/* OmegaConf's dot lists, as those of torchtune and LLaMA-Factory behind their file: they beat what stands in it. The files are then read as
 * if they said so, and who changes one takes its words out of the command. */
static vp_status fold_words(vp_command_files *f, char *const *command, vp_err *err)
{
    vp_edit   edits[MAX_FOLDED];
    vp_status st = VP_OK;

    for (int i = 0; command[i] && f->n_folded < MAX_FOLDED; i++) {
        const char     *word = command[i] + strspn(command[i], "+"), *value = strchr(word, '=');
        const vp_value *at;
        int             said;
        if (!value || !vp_command_is_word(command[i]) || vp_command_is_settings_file(value + 1))
            continue;
        const char *key = vp_arena_printf(f->arena, "%.*s", (int)(value - word), word);
        VP_TRY_ALLOC(err, key);
        if (!vp_command_word(command, key, &said) || said != i) /* a variable, or said twice */
            continue;
        int file = file_of_word(f, i, key, &at);
        if (file < 0)
            continue;
        edits[f->n_folded] =
            (vp_edit){.file = &f->checked.files[file],
                      .key  = at && at->kind == VP_VALUE_STRING ? &a_text : &any_value,
                      .path = key,
                      .at   = at,
                      .from = "",
                      .to   = value + 1};
        f->folded[f->n_folded++] = (folded_word){.file = file, .key = key};
    }
    for (int i = 0; i < f->n; i++) {
        named_file *n    = &f->named[i];
        vp_text     text = {0};
        bool        any  = false;
        for (int k = 0; k < f->n_folded; k++)
            any = any || f->folded[k].file == i;
        if (!any)
            continue;
        VP_TRY(vp_edits_apply(f->arena, edits, f->n_folded, &f->checked.files[i], n->bytes,
                              n->n_bytes, &text, err));
        n->on_disk = n->bytes;
        n->bytes   = text.data;
        n->n_bytes = (int64_t)text.n_bytes;
        VP_TRY_ALLOC(err, n->bytes && !text.failed);
    }
out:
    return st;
}

vp_status vp_command_files_open(vp_arena *arena, char *const *command, int64_t world,
                                vp_command_files **out, vp_err *err)
{
    vp_command_files *f       = vp_arena_array(arena, 1, sizeof *f);
    int               n_words = 0;
    vp_status         st      = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, f);
    *f = (vp_command_files){.arena = arena};
    for (; command[n_words]; n_words++) {
        const char *equal = strchr(command[n_words], '=');
        add_file(f, equal ? equal + 1 : command[n_words], n_words, -1, NULL);
    }
    for (int i = 0; i < f->n; i++)
        add_named_by(f, i);
    if (!f->n)
        goto out;
    VP_TRY(check_all(f, command, n_words, world, err));
    if (vp_command_has_words(command)) {
        VP_TRY(fold_words(f, command, err));
        if (f->n_folded)
            VP_TRY(check_all(f, command, n_words, world, err));
    }
    *out = f;
out:
    if (st != VP_OK)
        vp_command_files_close(f);
    return st;
}

void vp_command_files_close(vp_command_files *f)
{
    for (int i = 0; f && i < f->n; i++) {
        free(f->named[i].bytes);
        free(f->named[i].on_disk);
    }
}

const char *vp_command_file_at(const vp_command_files *f, int i)
{
    return f && i < f->n ? f->named[i].path : NULL;
}

/* ---- a setting's values in the files ---- */

typedef struct changer {
    const vp_command_files *f;
    vp_arena               *arena;
    vp_settings             wanted;
    vp_edit                *edits;
    int64_t                 n, cap;
    const char             *folder; /* where changed files go; NULL: they keep their names */
    vp_err                 *err;
} changer;

static vp_status add_edit(changer *c, int file, const char *path, const char *to)
{
    const vp_checked_file *of = &c->f->checked.files[file];
    const vp_value        *v  = of->doc ? vp_value_at(of->doc->root, path) : NULL;
    char                   has[512];
    vp_status              st = VP_OK;

    assert(v && "only what stands in a file is an axis of its own");
    if (strcmp(vp_value_text(v, has, sizeof has), to) == 0)
        goto out;
    VP_TRY_ALLOC(c->err,
                 vp_arena_grow(c->arena, (void **)&c->edits, c->n, &c->cap, sizeof *c->edits));
    c->edits[c->n++] = (vp_edit){.file = of,
                                 .key  = v->kind == VP_VALUE_STRING ? &a_text : &any_value,
                                 .path = path,
                                 .at   = v,
                                 .from = vp_arena_strdup(c->arena, has),
                                 .to   = to};
out:
    return st;
}

static bool is_changed(const changer *c, int file)
{
    for (int64_t i = 0; i < c->n; i++)
        if (c->edits[i].file == &c->f->checked.files[file])
            return true;
    return false;
}

/* Keys that name a folder to write into. */
static const char *const output_keys[] = {"output_dir",
                                          "logging_dir",
                                          "default_root_dir",
                                          "trainer.default_root_dir",
                                          "job.dump_folder",
                                          "checkpoint_dir",
                                          "save_dir",
                                          "out_dir",
                                          "run_dir",
                                          "project_dir",
                                          "dataset_prepared_path",
                                          "trainer.logger.init_args.save_dir",
                                          "trainer.output_dir",
                                          "training.output_dir"};

static vp_status edit_outputs(changer *c, const char *outputs)
{
    vp_status st = VP_OK;

    for (int f = 0; outputs && f < c->f->n; f++)
        for (size_t i = 0; i < sizeof output_keys / sizeof *output_keys; i++) {
            const vp_document *doc = c->f->checked.files[f].doc;
            const vp_value    *v   = doc ? vp_value_at(doc->root, output_keys[i]) : NULL;
            if (v && v->kind == VP_VALUE_STRING)
                VP_TRY(add_edit(c, f, output_keys[i], outputs));
        }
out:
    return st;
}

static const char *name_of(const vp_command_files *f, int file)
{
    const char *path = f->named[file].path, *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* In the folder by its own name; a second one of a name, as of a file that is named in two ways, with its number. */
static const char *new_path(const changer *c, int file)
{
    const char *name = name_of(c->f, file);
    int         same = 1;

    for (int i = 0; i < file; i++)
        same += strcmp(name_of(c->f, i), name) == 0;
    if (!c->folder)
        return c->f->named[file].path;
    return same > 1 ? vp_arena_printf(c->arena, "%s/%d-%s", c->folder, same, name)
                    : vp_arena_printf(c->arena, "%s/%s", c->folder, name);
}

/* Files that name a changed one name it anew, and are changed by that. */
static vp_status edit_names(changer *c)
{
    vp_status st = VP_OK;

    for (int i = c->f->n - 1; c->folder && i >= 0; i--) {
        const named_file *n = &c->f->named[i];
        if (n->by_file >= 0 && is_changed(c, i)) {
            const char *to = new_path(c, i);
            VP_TRY_ALLOC(c->err, to);
            VP_TRY(add_edit(c, n->by_file, n->by_key, to));
        }
    }
out:
    return st;
}

static vp_status list_edits(changer *c, const vp_axis *axes, int n_axes, const int *values,
                            const char *outputs)
{
    vp_edit  *edits;
    int64_t   n;
    vp_status st = VP_OK;

    c->wanted = c->f->checked.settings;
    for (int s = 0; s < VP_N_SETTINGS;
         s++) /* what nobody says: its default, on which rows' conditions stand */
        if (!c->wanted.value[s])
            c->wanted.value[s] = vp_setting_otherwise((vp_setting)s);
    for (int a = 0; a < n_axes; a++)
        if (axes[a].place == VP_AXIS_SETTING)
            c->wanted.value[axes[a].setting] = axes[a].values[values[a]];
    VP_TRY(vp_edits_list(&c->f->checked, &c->wanted, &edits, &n, c->err));
    for (int64_t i = 0; i < n; i++) {
        VP_TRY_ALLOC(c->err,
                     vp_arena_grow(c->arena, (void **)&c->edits, c->n, &c->cap, sizeof *c->edits));
        c->edits[c->n++] = edits[i];
    }
    for (int a = 0; a < n_axes; a++)
        if (axes[a].place == VP_AXIS_KEY)
            VP_TRY(add_edit(c, axes[a].file, axes[a].name, axes[a].values[values[a]]));
    VP_TRY(edit_outputs(c, outputs));
    VP_TRY(edit_names(c));
out:
    return st;
}

/* The option of a command that stands for a key: with underscores, as it is there with dashes. */
static const char *option_of(const changer *c, char *const *words, const char *key)
{
    char *option = vp_arena_printf(c->arena, "--%s", key);
    char *dashed = option ? vp_arena_strdup(c->arena, option) : NULL;

    for (char *p = dashed; p && *p; p++)
        *p = *p == '_' ? '-' : *p;
    return dashed && !vp_command_value(words, option, NULL) && vp_command_value(words, dashed, NULL)
               ? dashed
               : option;
}

/* What the command's own words and its environment say of the edits. Words inside an option's value stay. */
static vp_status edit_words(changer *c, char **words, int *n_words)
{
    const vp_checked_file *own = &c->f->checked.files[c->f->n];
    vp_status              st  = VP_OK;

    for (int64_t i = 0; i < c->n; i++) {
        const vp_edit *x = &c->edits[i];
        if (!x->file) {
            VP_TRY(vp_command_set_variable(c->arena, words, n_words, x->path, x->to, c->err));
        } else if (x->file == own && !strchr(x->path, '.')) {
            const char *option = option_of(c, words, x->path), *had, *to = x->to ? x->to : "off";
            VP_TRY_ALLOC(c->err, option);
            had = vp_command_value(words, option, NULL);
            if (had && strcmp(had, "on") == 0) /* a switch without a value */
                to = strcmp(to, "false") == 0 ? "off" : strcmp(to, "true") == 0 ? "on" : to;
            vp_command_set_option(c->arena, words, n_words, option, to);
        }
    }
    for (int i = 0; i < c->f->n_folded; i++) { /* what a changed file says now */
        int at;
        if (is_changed(c, c->f->folded[i].file) &&
            vp_command_word(words, c->f->folded[i].key, &at)) {
            memmove(words + at, words + at + 1, (size_t)(*n_words - at) * sizeof *words);
            --*n_words;
        }
    }
    for (int i = 0; i < c->f->n && c->folder; i++) {
        int word = c->f->named[i].word;
        if (word < 0 || !is_changed(c, i))
            continue;
        const char *to = new_path(c, i);
        for (int w = 0; to && w < *n_words; w++) {
            const char *equal = strchr(words[w], '='), *is = equal ? equal + 1 : words[w];
            if (strcmp(is, c->f->named[i].path) == 0)
                words[w] = vp_arena_printf(c->arena, "%.*s%s", (int)(is - words[w]), words[w], to);
        }
    }
    if (vp_arena_failed(c->arena))
        st = VP_FAIL(c->err, VP_ERR_NOMEM, "out of host memory");
out:
    return st;
}

static vp_status changed_text(changer *c, int file, vp_file_change *out)
{
    const named_file      *n    = &c->f->named[file];
    const vp_checked_file *of   = &c->f->checked.files[file];
    vp_text                text = {0};
    vp_status              st   = VP_OK;

    VP_TRY(vp_edits_apply(c->arena, c->edits, c->n, of, n->bytes, n->n_bytes, &text, c->err));
    VP_TRY(vp_edits_prove(&c->f->checked, of, &c->wanted, c->edits, c->n, &text, c->err));
    *out = (vp_file_change){.path   = n->path,
                            .to     = new_path(c, file),
                            .before = n->on_disk ? n->on_disk : n->bytes,
                            .after  = vp_arena_strdup(c->arena, vp_text_string(&text))};
    VP_TRY_ALLOC(c->err, out->to && out->after);
out:
    vp_text_release(&text);
    return st;
}

vp_status vp_command_files_change(const vp_command_files *f, const vp_axis *axes, int n_axes,
                                  const int *values, const vp_file_places *places, vp_arena *arena,
                                  char **words, int *n_words, vp_file_change **changes,
                                  int *n_changes, vp_err *err)
{
    changer   c  = {.f = f, .arena = arena, .folder = places->folder, .err = err};
    vp_status st = VP_OK;

    *n_changes = 0;
    *changes   = vp_arena_array(arena, MAX_FILES, sizeof **changes);
    VP_TRY_ALLOC(err, *changes);
    VP_TRY(list_edits(&c, axes, n_axes, values, places->outputs));
    for (int i = 0; i < f->n; i++)
        if (is_changed(&c, i))
            VP_TRY(changed_text(&c, i, &(*changes)[(*n_changes)++]));
    VP_TRY(edit_words(&c, words, n_words));
out:
    return st;
}

/* ---- the axes that files have ---- */

int vp_command_files_key(const vp_command_files *f, const char *path, const char **value)
{
    for (int i = 0; f && i < f->n; i++) {
        const vp_document *doc = f->checked.files[i].doc;
        const vp_value    *v   = doc ? vp_value_at(doc->root, path) : NULL;
        char               text[512];
        if (!v || v->kind == VP_VALUE_MAP || v->kind == VP_VALUE_LIST)
            continue;
        *value = vp_arena_strdup(f->arena, vp_value_text(v, text, sizeof text));
        return i;
    }
    return -1;
}

const char *vp_command_files_says(const vp_command_files *f, int setting, bool *by_default)
{
    *by_default = f->checked.by_default[setting];
    return f->checked.settings.value[setting];
}

bool vp_command_files_are_known(const vp_command_files *f)
{
    for (int i = 0; f && i < f->n; i++)
        if (f->checked.files[i].doc && f->checked.files[i].dialect)
            return true;
    return false;
}

/* Whether the files can be told this word: by doing it. */
bool vp_command_files_can(const vp_command_files *f, int setting, const char *word,
                          char *const *command)
{
    const char     *values[] = {word};
    const vp_axis   axis     = {.name    = vp_setting_key((vp_setting)setting),
                                .values  = values,
                                .n       = 1,
                                .place   = VP_AXIS_SETTING,
                                .setting = setting};
    vp_arena       *arena    = vp_arena_new();
    vp_err          why      = {0};
    int             n = 0, first = 0, n_changes = 0;
    vp_file_change *changes;
    char          **words;
    bool            can;

    while (command[n])
        n++;
    words =
        arena ? vp_arena_array(arena, n + 1 + VP_COMMAND_MAX_EDITED_WORDS, sizeof *words) : NULL;
    int n_was = n;
    for (int i = 0; words && i < n; i++)
        words[i] = command[i];
    can = words && vp_command_files_change(f, &axis, 1, &first, &(vp_file_places){0}, arena, words,
                                           &n, &changes, &n_changes, &why) == VP_OK;
    bool differs = n_changes > 0 || n != n_was;
    for (int i = 0; can && !differs && i < n; i++)
        differs = strcmp(words[i], command[i]) != 0;
    vp_arena_free(arena);
    return can && differs;
}

/* A number that is how many samples a step has at once, under a key that no trainer's table knows: "data.batch_size" of
 * Lightning's command line. */
static const char *find_batch(vp_arena *arena, const vp_value *map, const char *prefix)
{
    static const char *const names[] = {"batch_size", "train_batch_size", "micro_batch_size",
                                        "per_device_batch_size", "batch"};

    for (const vp_value *v = map->first; v; v = v->next) {
        const char *path =
            v->key ? vp_arena_printf(arena, "%s%s%s", prefix, *prefix ? "." : "", v->key) : NULL;
        if (!path)
            continue;
        if (v->kind == VP_VALUE_MAP && (path = find_batch(arena, v, path)))
            return path;
        for (size_t i = 0; v->kind == VP_VALUE_INT && v->integer > 0 && i < 5; i++)
            if (strcmp(v->key, names[i]) == 0)
                return path;
    }
    return NULL;
}

const char *vp_command_files_batch(const vp_command_files *f)
{
    for (int i = 0; i < f->n; i++) {
        const vp_document *doc  = f->checked.files[i].doc;
        const char        *path = doc ? find_batch(f->arena, doc->root, "") : NULL;
        if (path)
            return path;
    }
    return NULL;
}
