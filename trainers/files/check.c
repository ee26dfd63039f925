/* trainers/files/check.c: which trainer's a file is, then its keys, its rules, and what all say
 * together. */
#include "trainers/files/check.h"

#include "base/text.h"
#include "trainers/files/check_internal.h"
#include "trainers/files/python_calls.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void vp_find(vp_checked *c, const vp_checked_file *file, vp_severity severity, const vp_value *v,
             const char *key, const char *instead, const char *fmt, ...)
{
    char    text[900], was[200], shown[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (v && v->source)
        snprintf(text + strlen(text), sizeof text - strlen(text), " (%s, line %d)",
                 vp_text_escape(v->source, was, sizeof was), v->source_line);
    if (!vp_arena_grow(c->arena, (void **)&c->findings, c->n_findings, &c->cap_findings,
                       sizeof *c->findings))
        return; /* the arena stays failed: vp_check() says so */
    c->findings[c->n_findings++] = (vp_finding){
        .severity = severity,
        .file     = file->name,
        .line     = v ? v->line : 0,
        .key      = vp_arena_strdup(c->arena, vp_text_escape(key ? key : "", shown, sizeof shown)),
        .message  = vp_arena_strdup(c->arena, text),
        .instead  = instead ? vp_arena_strdup(c->arena, instead) : NULL,
        .from     = v ? vp_arena_strdup(c->arena, vp_text_escape(vp_value_text(v, was, sizeof was),
                                                                 shown, sizeof shown))
                      : NULL,
    };
    c->n_errors += severity == VP_ERROR;
}

/* ---- whose file it is ---- */

static const char *signs_of(const vp_dialect *d, const vp_document *doc)
{
    return doc->format == VP_FORMAT_FLAGS && d->flag_signs ? d->flag_signs : d->signs;
}

/* Whether the command's program, its script or its subcommand is one of these. */
bool vp_check_is_program(const char *programs, const vp_document *doc)
{
    for (const char *p = programs ? doc->program : NULL; p && *p;) {
        size_t n = strcspn(p, " ");
        char   word[256];
        snprintf(word, sizeof word, "%.*s", (int)n, p);
        for (const char *tail = word; tail; tail = strchr(tail, '/'), tail += tail != NULL)
            if (vp_listed(programs, tail))
                return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

bool vp_check_is_run_by(const vp_dialect *d, const vp_document *doc)
{
    return d && vp_check_is_program(d->programs, doc);
}

static bool is_named_in(const vp_dialect *of, const char *key)
{
    for (const vp_dialect *d = of; d; d = d->base) {
        for (int i = 0; i < d->n_keys; i++)
            if (strcmp(d->keys[i].path, key) == 0)
                return true;
        for (int i = 0; i < d->n_sections; i++)
            if (!d->sections[i].path[0] && vp_listed(d->sections[i].known, key))
                return true;
    }
    return false;
}

typedef struct class_of_file {
    const vp_checked      *checked;
    const vp_checked_file *file;
} class_of_file;

static bool is_lacking(const vp_value *v, const void *user)
{
    const class_of_file *c = user;
    const char          *version;
    const vp_key *k = v->is_offered ? vp_file_key(c->checked, c->file, v->key, &version) : NULL;

    return v->is_offered && (k ? (k->until && vp_version_compare(version, k->until) >= 0) ||
                                     (k->since && vp_version_compare(version, k->since) < 0)
                               : !is_named_in(c->file->dialect, v->key));
}

/* SFTConfig(**{k: v for k, v in kwargs.items() if k in known}): what the class lacks in the version that counts is not handed to it. */
static void drop_lacking(const vp_checked *c, const vp_checked_file *file)
{
    vp_value_drop(file->doc->root, is_lacking, &(class_of_file){.checked = c, .file = file});
}

bool vp_check_is_run(const vp_checked_file *file)
{
    return vp_check_is_run_by(file->dialect, file->doc);
}

enum { FEW_STRANGERS = 3 };

/* Whether each word of a key begins a word of the name, in order: gradient_acc_steps, per_device_batch_size. */
static bool has_words(const char *name, const char *key)
{
    while (*key) {
        size_t n = strcspn(key, "_");
        while (*name && strncmp(name, key, n) != 0) {
            name += strcspn(name, "_");
            name += *name == '_';
        }
        if (!*name)
            return false;
        name += strcspn(name, "_");
        name += *name == '_';
        key += n + (key[n] == '_');
    }
    return true;
}

const char *vp_check_by_words(const char *key, const char *const *names, int n)
{
    for (int i = 0; i < n && strchr(key, '_'); i++)
        if (has_words(names[i], key))
            return names[i];
    return NULL;
}

bool vp_check_is_argument(const vp_checked *c, const vp_checked_file *file, const vp_value *v)
{
    for (const vp_dialect *d = v->given_to ? file->dialect : NULL; d; d = d->base)
        if (d->oldest && vp_version_compare(vp_file_version(c, file, d), d->oldest) < 0)
            return false;
    return v->given_to != NULL;
}

bool vp_check_is_own(const vp_checked_file *file)
{
    int strangers = 0;

    if (!file->dialect->own || vp_check_is_run_by(file->dialect, file->doc))
        return true;
    for (const vp_value *v = file->doc->root->first; v; v = v->next) {
        if (vp_listed(file->dialect->own, v->key))
            return true;
        strangers += !is_named_in(file->dialect, v->key);
    }
    return strangers <= FEW_STRANGERS;
}

/* Whether a key may have members: a map is no sign where the trainer has a text or a number ("dataset:"). */
static bool takes_map(const vp_dialect *d, const char *key)
{
    size_t n = strlen(key);

    for (int i = 0; i < d->n_keys; i++)
        if (strncmp(d->keys[i].path, key, n) == 0 &&
            (d->keys[i].path[n] == '.' || (!d->keys[i].path[n] && (d->keys[i].type == VP_KEY_MAP ||
                                                                   d->keys[i].type == VP_KEY_ANY))))
            return true;
    for (int i = 0; i < d->n_sections; i++)
        if (strncmp(d->sections[i].path, key, n) == 0 &&
            (!d->sections[i].path[n] || d->sections[i].path[n] == '.'))
            return true;
    for (const char *p = d->signs; p && *p; p += strcspn(p, " "), p += *p == ' ')
        if (strncmp(p, key, n) == 0 && p[n] == '.')
            return true;
    return d->base && takes_map(d->base, key);
}

static bool is_sign(const vp_dialect *d, const vp_document *doc, const vp_value *v)
{
    return vp_listed(signs_of(d, doc), v->key) &&
           !(v->kind == VP_VALUE_MAP && !v->call && !takes_map(d, v->key));
}

/* Signs weigh 16, a dialect's own keys 8, those of its base 7; a stranger costs 4, or 1 where files are
 * expected to have keys of others. Its own program decides. */
static int score_of(const vp_dialect *of, const vp_document *doc)
{
    if ((of->no_scripts && doc->format == VP_FORMAT_PYTHON &&
         !(of->but_with && vp_value_member(doc->root, of->but_with))) ||
        (of->flags && doc->format != VP_FORMAT_FLAGS) || /* options stand on a command line */
        (of->only && doc->format != of->only))
        return -1;
    bool open  = of->n_sections && of->sections[0].strangers == VP_STRANGERS_KEPT;
    int  score = vp_check_is_run_by(of, doc) ? 1000 : 0;

    for (const vp_value *v = doc->root->first; v; v = v->next) {
        int best = is_sign(of, doc, v) ? 16 : open ? -1 : -4;
        for (const vp_dialect *d = of; d; d = d->base) {
            int worth = d == of ? 8 : 7;
            for (int i = 0; i < d->n_keys && best < worth; i++)
                if (strcmp(d->keys[i].path, v->key) == 0)
                    best = worth;
            for (int i = 0; i < d->n_sections && best < worth; i++)
                if (!d->sections[i].path[0] && vp_listed(d->sections[i].known, v->key))
                    best = worth;
        }
        score += best < 0 && v->call && strcmp(v->call, VP_VALUE_UNREAD) == 0 ? 0 : best;
    }
    for (const char *p = signs_of(of, doc); p && *p;) { /* signs that lie deeper: bf16.enabled */
        size_t n = strcspn(p, " ");
        char   path[128];
        snprintf(path, sizeof path, "%.*s", (int)n, p);
        if (strchr(path, '.') && vp_value_at(doc->root, path))
            score += 16;
        p += n + (p[n] == ' ');
    }
    return score;
}

static bool has_sign(const vp_dialect *d, const vp_document *doc)
{
    if (vp_check_is_run_by(d, doc))
        return true;
    for (const vp_value *v = doc->root->first; v; v = v->next)
        if (is_sign(d, doc, v))
            return true;
    for (const char *p = signs_of(d, doc); p && *p;) {
        size_t n = strcspn(p, " ");
        char   path[128];
        snprintf(path, sizeof path, "%.*s", (int)n, p);
        if (strchr(path, '.') && vp_value_at(doc->root, path))
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

/* In a script of Python a word or two of a file that has no others are anybody's names. */
enum { ANYBODYS = 32 };
/* A script that makes no arguments of a trainer's: names that it gives values are a loop's own, and the trainer's defaults are none of it. */
static bool is_own_loop(const vp_dialect *d, const vp_document *doc)
{
    return doc->format == VP_FORMAT_PYTHON && !doc->program && !doc->files &&
           !(d == &vp_dialect_unsloth && vp_value_member(doc->root, "SETTINGS")) && /* emit's */
           vp_dialect_is_based_on(d, &vp_dialect_transformers) &&
           d->sections[0].strangers == VP_STRANGERS_KEPT;
}

static bool is_closed_to(const vp_dialect *d, const vp_document *doc)
{
    return doc->format == VP_FORMAT_PYTHON && d->n_sections &&
           d->sections[0].strangers == VP_STRANGERS_REFUSED;
}

/* Whether half of its keys or more are no trainer's. */
static bool is_mostly_strange(const vp_dialect *d, const vp_document *doc)
{
    int named = 0, strangers = 0;

    for (const vp_value *v = doc->root->first; v; v = v->next)
        is_named_in(d, v->key) ? named++ : strangers++;
    return strangers >= named;
}

/* A file that scripts share with a trainer, half of whose keys are no trainer's, its batch among them: settings of somebody's own, whose
 * defaults are not the trainer's either. */
static bool is_somebodys(const vp_dialect *d, const vp_document *doc)
{
    bool is_shared = vp_dialect_is_based_on(d, &vp_dialect_transformers) &&
                     d->sections[0].strangers == VP_STRANGERS_KEPT;

    if (d == &vp_dialect_megatron && !vp_check_is_run_by(d, doc))
        return is_mostly_strange(d, doc);
    if ((!is_shared && d != &vp_dialect_axolotl) ||
        (doc->format != VP_FORMAT_YAML && doc->format != VP_FORMAT_JSON &&
         doc->format != VP_FORMAT_TOML) ||
        vp_value_member(doc->root, is_shared ? "per_device_train_batch_size" : "micro_batch_size"))
        return false;
    return is_mostly_strange(d, doc);
}

/* Whether any key of Trainer's or TRL's stands in it. */
static bool is_shared(const vp_document *doc)
{
    for (const vp_value *v = doc->root->first; v; v = v->next)
        if (is_named_in(&vp_dialect_trl, v->key))
            return true;
    return false;
}

static const vp_dialect *dialect_of(const vp_document *doc, const vp_target *target, int *best)
{
    const vp_dialect *found = NULL;

    *best = 0;
    for (int i = 0; target && i < target->n_files; i++) {
        const vp_dialect *d     = target->files[i].dialect;
        int               score = d ? score_of(d, doc) : 0;
        if (d && (!found || score > *best))
            found = d, *best = score;
    }
    const vp_dialect *d;
    const vp_value   *at;
    if (!target && vp_check_others(doc, &at))
        return NULL;
    for (int i = 0; !target && (d = vp_dialect_at(i)); i++) {
        int score = has_sign(d, doc) && !is_own_loop(d, doc) ? score_of(d, doc) : 0;
        if (score > *best && (score > ANYBODYS || !is_closed_to(d, doc)))
            found = d, *best = score;
    }
    if (found && !target && is_somebodys(found, doc))
        return NULL;
    return found;
}

/* A file for a version that is newer than the tables: its keys say so. For one that is older nobody knows its names. */
static void find_version(vp_checked *c, vp_checked_file *file)
{
    const vp_dialect *d  = file->dialect;
    const vp_value   *at = NULL;
    const char *named    = d ? json_string_value(json_object_get(c->versions, d->library)) : NULL;

    for (int64_t i = 0; named && i < c->n_findings; i++)
        if (c->findings[i].severity == VP_NOTE && strcmp(c->findings[i].key, d->library) == 0)
            return; /* of another file of the library's, or part of this one */
    if (named && d->oldest && vp_version_compare(named, d->oldest) < 0)
        vp_find(
            c, file, VP_NOTE, NULL, d->library, NULL,
            "%s is older than %s, from which on its keys were read: names that have changed since "
            "are judged as if they had not",
            named, d->oldest);
    if (!d || named)
        return;
    for (int i = 0; i < d->n_keys; i++) {
        const vp_key   *k = &d->keys[i];
        const vp_value *v = k->since ? vp_value_at(file->doc->root, k->path) : NULL;
        if (v && vp_version_compare(k->since, file->version ? file->version : d->version) > 0)
            file->version = k->since, at = v;
    }
    if (at)
        vp_find(c, file, VP_WARNING, at, at->key, NULL,
                "%s has it from %s on, and the file is read as one for that version; %s refuses it",
                d->library, file->version, d->version);
}

/* Of a script's commands the one that is most a trainer's; the others that are one are named. */
static void choose_command(vp_checked *c, vp_checked_file *file, const vp_target *target)
{
    vp_document      *chosen = NULL;
    const vp_dialect *d;
    int               best = 0, score;

    for (vp_document *doc = file->doc; doc; doc = doc->next) {
        d = dialect_of(doc, target, &score);
        score += vp_check_runs_written(c, doc) + (!d && vp_check_is_called_training(doc)) +
                 (!d && !target && vp_check_is_of_others(doc) ? 2 : 0);
        if (!chosen || score > best)
            chosen = doc, file->dialect = d, best = score;
    }
    for (vp_document *doc = file->doc; doc; doc = doc->next) {
        vp_value at = {.kind = VP_VALUE_NULL, .line = doc->root->line};
        d           = doc == chosen ? NULL : dialect_of(doc, target, &score);
        if (!d)
            continue;
        vp_find(c, file, VP_NOTE, &at, "", NULL,
                "another command that trains, not judged beside that of line %d; behind -- it is",
                chosen->root->line);
        c->findings[c->n_findings - 1].from = NULL;
    }
    file->doc = chosen;
}

/* Whether it is the target's own, of one version or another; the others go with every trainer. */
static bool is_own(const vp_target *t, const vp_dialect *d)
{
    for (int f = 0; d && f < t->n_files; f++)
        if (t->files[f].dialect == d && (f == 0 || t->files[f].until))
            return true;
    return false;
}

/* The target whose own file is among those read; files that go with every trainer count last. */
static const vp_target *target_of(const vp_checked *c)
{
    const vp_target *t;

    for (int i = 0; (t = vp_target_at(i)); i++)
        for (int f = 0; f < c->n_files; f++)
            if (is_own(t, c->files[f].dialect))
                return t;
    return NULL;
}

/* ---- reading ---- */

/* bf16=is_bf16_supported() on a card that has none. */
static void answer_without_bf16(vp_value *v)
{
    if (v->asks_bf16)
        v->boolean = !v->boolean, v->text = v->boolean ? "True" : "False";
    for (vp_value *m = v->kind >= VP_VALUE_LIST ? v->first : NULL; m; m = m->next)
        answer_without_bf16(m);
}

/* The README.md beside what emit writes, which a shell's star names too. */
static bool is_for_people(const char *path)
{
    size_t n = strlen(path);

    return n > 3 && strcmp(path + n - 3, ".md") == 0;
}

/* --no_NAME of a command: HfArgumentParser has it for fields that are true by default, and takes no value. */
static void complete_switches(const vp_checked *c, const vp_checked_file *file)
{
    static const char on[] =
        "average_tokens_across_devices dataloader_in_order dataloader_pin_memory disable_dropout "
        "eval_do_concat_batches log_on_each_node logging_nan_inf_filter remove_unused_columns "
        "skip_memory_metrics";
    const vp_dialect *d = file->dialect;

    while (d && d != &vp_dialect_transformers)
        d = d->base;
    for (vp_value *v = d && file->doc->format == VP_FORMAT_FLAGS ? file->doc->root->first : NULL; v;
         v           = v->next) {
        const char   *name = strncmp(v->key, "no_", 3) == 0 ? v->key + 3 : NULL;
        const vp_key *k    = name ? vp_file_key(c, file, name, NULL) : NULL;
        bool is_on = name && (vp_listed(on, name) || (k && k->type == VP_KEY_BOOL && k->otherwise &&
                                                      strcmp(k->otherwise, "true") == 0));
        if (!is_on || v->kind != VP_VALUE_BOOL || v->text[0])
            continue;
        v->key = name, v->boolean = false, v->text = "false";
        file->doc->root->index = NULL; /* by the names of before */
    }
}

/* Names as the trainer's own reader completes them. */
static void complete_names(const vp_checked_file *file)
{
    for (const vp_dialect *d = file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_sections; i++) {
            const char *path = d->sections[i].path;
            vp_value   *map  = path[0] ? vp_value_at(file->doc->root, path) : file->doc->root;
            if (d->sections[i].prefix && map && map->kind == VP_VALUE_MAP)
                vp_value_prefix(file->doc, map, d->sections[i].prefix);
        }
}

/* TRL's own script loads the model in float32 where nothing else is said; SFTTrainer in a script of Python is given one that
 * is there already. */
static void take_dtype(vp_document *script, const vp_document *model)
{
    const vp_value *said = vp_value_member(model->root, "dtype");
    vp_value       *own  = NULL;

    if (!vp_value_member(script->root, "dtype") && !(script->takes_model && !said))
        own = vp_value_add(script, script->root, "dtype");
    if (!own)
        return;
    own->kind = VP_VALUE_STRING, own->text = said && said->text ? said->text : "auto";
    own->line = said ? said->line : model->root->line;
}

/* Whose a part is says what is called; NULL: its keys do. */
static const vp_dialect *dialect_of_call(const char *call)
{
    return !call                                         ? NULL
           : vp_python_ends_in(call, ".from_pretrained") ? &vp_dialect_model
           : vp_python_ends_in(call, "LoraConfig")       ? &vp_dialect_lora
           : vp_python_ends_in(call, "SFTTrainer")       ? &vp_dialect_sft_call
           : vp_python_ends_in(call, "DPOTrainer")       ? &vp_dialect_dpo_call
           : vp_python_ends_in(call, "Trainer")          ? &vp_dialect_trainer_call
                                                         : NULL;
}

/* What TRL loads the model with by model_init_kwargs beats what its own keys say (trl/scripts/sft.py of 1.16). */
static void take_init_kwargs(vp_checked *c, const vp_checked_file *file)
{
    static const char *const keys[][2] = {{"dtype", "dtype"},
                                          {"torch_dtype", "dtype"},
                                          {"attn_implementation", "attn_implementation"}};
    vp_value                *map       = file->dialect == &vp_dialect_trl
                                             ? vp_value_member(file->doc->root, "model_init_kwargs")
                                             : NULL;
    bool                     is_unread = map && map->call;

    if (is_unread && !c->gap)
        c->gap = map->key;
    for (size_t i = 0; map && map->kind == VP_VALUE_MAP && i < sizeof keys / sizeof *keys; i++) {
        vp_value *v = is_unread ? map : vp_value_member(map, keys[i][0]), *own;
        if (!v || (is_unread && i == 1))
            continue;
        own = vp_value_add(file->doc, file->doc->root, keys[i][1]);
        if (!own)
            return; /* the arena stays failed, or the file has 100,000 others */
        const char *key = own->key;
        *own            = *v;
        own->key = key, own->next = NULL;
        vp_python_name_as_files_do(own);
    }
}

/* What a call of a script is given, judged as a file of its own. */
static void open_part(vp_checked *c, const vp_checked_file *script, vp_document *part,
                      const vp_target *target)
{
    vp_checked_file *file = &c->files[c->n_files++];
    int              score;

    *file         = *script;
    file->doc     = part;
    file->version = NULL;
    file->is_part = true;
    file->is_file = false; /* the script is */
    file->dialect = dialect_of_call(part->call);
    if (!file->dialect)
        file->dialect = dialect_of(part, target, &score);
    find_version(c, file);
    if (file->dialect == &vp_dialect_model && script->dialect == &vp_dialect_trl)
        take_dtype(script->doc, part);
}

static bool has_section(const vp_dialect *d, const char *path)
{
    for (int i = 0; i < d->n_sections; i++)
        if (strcmp(d->sections[i].path, path) == 0)
            return true;
    return false;
}

/* deepspeed: {...}: what a file may hold stands in place of its path, and is judged as that file would be. */
static vp_status open_inline(vp_checked *c, int i, const vp_check_opts *opts, vp_err *err)
{
    const vp_document *doc = c->files[i].doc;

    for (const vp_dialect *d = c->files[i].dialect; d; d = d->base)
        for (int k = 0; k < d->n_keys && c->n_files < VP_CHECK_MAX_FILES; k++) {
            const vp_key   *key = &d->keys[k];
            const vp_value *v   = key->opens ? vp_value_at(doc->root, key->path) : NULL;
            if (!v || v->kind != VP_VALUE_MAP || v->call || has_section(d, key->path))
                continue;
            vp_document *part = vp_document_new(c->arena, doc->name, doc->format);
            if (!part)
                return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
            *part->root     = *v;
            part->root->key = NULL, part->root->next = NULL;
            open_part(c, &c->files[i], part, opts->target);
            c->files[c->n_files - 1].dialect = vp_dialect_named(key->opens);
        }
    return VP_OK;
}

static bool is_folder(const char *path)
{
    struct stat info;

    return path && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

vp_status vp_check_open(vp_checked *c, const vp_check_input *in, const vp_check_opts *opts,
                        const vp_dialect *kind, vp_err *err)
{
    vp_checked_file *file  = &c->files[c->n_files++];
    vp_err           inner = {0};
    vp_status        st    = VP_OK;
    vp_value         at    = {.kind = VP_VALUE_NULL};

    file->name    = in->path ? in->path : "the command";
    file->is_file = in->path && !in->bytes;
    if (in->path && is_for_people(in->path)) {
        vp_find(c, file, VP_NOTE, NULL, "", NULL, "not read: text for people, no settings");
        return VP_OK;
    }
    vp_document_run  run    = {in->path ? vp_check_command_of(c, in->path) : NULL, opts->capability,
                           vp_check_config_of, NULL};
    vp_check_source *source = vp_arena_alloc(c->arena, sizeof *source);
    if (!source)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    *source       = (vp_check_source){c, file->name, run.command, opts->follows};
    run.config_of = source;
    if (in->bytes)
        st = vp_document_parse_run(c->arena, in->path, in->bytes, in->n_bytes, in->format, &run,
                                   &file->doc, &inner);
    else if (in->path)
        st = vp_document_read_run(c->arena, in->path, VP_FORMAT_BY_NAME, &run, &file->doc, &inner);
    else
        st = vp_document_of_words(c->arena, file->name, in->words, in->n_words, &file->doc, &inner);
    if (st == VP_ERR_INPUT) {
        file->doc = NULL;
        at.line   = inner.line;
        vp_find(c, file, VP_ERROR, &at, "", is_folder(in->path) ? "the files in it" : NULL,
                "not read: %s", inner.message);
        c->findings[c->n_findings - 1].from = NULL;
        return VP_OK;
    }
    if (st != VP_OK)
        return vp_fail(err, st, inner.file, inner.line, NULL, "%s", inner.message);
    if (opts->no_bf16)
        answer_without_bf16(file->doc->root);
    for (vp_document *part = opts->no_bf16 ? file->doc->parts : NULL; part; part = part->next)
        answer_without_bf16(part->root);
    if (kind && !file->doc->next)
        file->dialect = kind;
    else
        choose_command(c, file, opts->target);
    complete_names(file);
    complete_switches(c, file);
    take_init_kwargs(c, file);
    find_version(c, file);
    vp_check_complete_options(c, file);
    for (vp_document *part = file->doc->parts; part && c->n_files < VP_CHECK_MAX_FILES;
         part              = part->next)
        open_part(c, file, part, opts->target);
    return open_inline(c, (int)(file - c->files), opts, err);
}

/* 1e-4 and 0.0001. */
static bool is_same_number(const char *a, const char *b)
{
    char  *ends[2];
    double x = strtod(a, &ends[0]), y = strtod(b, &ends[1]);

    return *a && *b && !*ends[0] && !*ends[1] && x == y;
}

/* Whether an option that stands twice on a command line has one value all the same. */
static bool says_the_same(const vp_document *doc, const char *key)
{
    const vp_value *first = NULL;
    char            a[256], b[256];

    for (const vp_value *v = doc->root->first; v; v = v->next) {
        if (strcmp(v->key, key) != 0)
            continue;
        if (first &&
            strcmp(vp_value_text(first, a, sizeof a), vp_value_text(v, b, sizeof b)) != 0 &&
            !is_same_number(a, b))
            return false;
        first = v;
    }
    return first && (doc->format == VP_FORMAT_FLAGS ||
                     (doc->format == VP_FORMAT_YAML && first->kind != VP_VALUE_MAP));
}

static void check_remarks(vp_checked *c, const vp_checked_file *file)
{
    bool told = false;

    for (const vp_remark *r = file->doc->remarks; r; r = r->next) {
        vp_value at = {.kind = VP_VALUE_NULL, .line = r->line};
        /* comments in JSON: once, and only where the reader is a plain one */
        if (!r->key && file->doc->format == VP_FORMAT_JSON && (told || file->dialect->hjson))
            continue;
        told = told || !r->key;
        /* the last of several values is what a script's own, behind those that it passes on, is for */
        bool is_last = r->key && file->doc->format == VP_FORMAT_FLAGS && !r->is_torn;
        /* of a key that nobody knows each may count: action="append" */
        bool harmless = r->key && (says_the_same(file->doc, r->key) ||
                                   (file->doc->format == VP_FORMAT_FLAGS && !r->is_torn &&
                                    !vp_file_key(c, file, r->key, NULL)));
        vp_find(c, file,
                (r->is_error && !harmless) || (!r->key && file->doc->format == VP_FORMAT_JSON)
                    ? is_last ? VP_WARNING : VP_ERROR
                : r->is_gap || r->is_uncounted ? VP_WARNING
                                               : VP_NOTE,
                &at, r->key, NULL, "%s", r->text);
        c->findings[c->n_findings - 1].from = NULL;
        const char *said                    = strstr(r->text, ": the text does not say");
        if (r->is_gap && !c->gap)
            c->gap =
                vp_arena_printf(c->arena, "%.*s",
                                said ? (int)(said - r->text) : (int)strcspn(r->text, ":"), r->text);
        if (r->is_uncounted && !c->uncounted && !(r->of_model && c->has_model))
            c->uncounted = vp_arena_printf(c->arena, "%.*s", (int)strcspn(r->text, ":"), r->text);
    }
}

/* --accelerator_config.split_batches true: argparse, which reads the arguments of transformers, knows no members. */
static void check_dots(vp_checked *c, const vp_checked_file *file)
{
    const vp_dialect *d = file->dialect;

    while (d && d != &vp_dialect_transformers)
        d = d->base;
    for (const vp_value *v = d && file->doc->format == VP_FORMAT_FLAGS ? file->doc->root->first
                                                                       : NULL;
         v; v              = v->next) {
        if (v->kind != VP_VALUE_MAP || v->text || !v->first || !is_named_in(file->dialect, v->key))
            continue; /* what stands in braces has its text */
        vp_find(c, file, vp_check_is_own(file) ? VP_ERROR : VP_WARNING, v->first, v->key,
                vp_arena_printf(c->arena, "--%s '{...}'", v->key),
                "--%s.%s: the parser of transformers' arguments knows no members and refuses it",
                v->key, v->first->key);
    }
}

/* peft has methods besides LoRA, with keys and bytes of their own. */
static bool is_of_another_method(vp_checked *c, const vp_checked_file *file)
{
    const vp_value *v =
        file->dialect == &vp_dialect_lora ? vp_value_at(file->doc->root, "peft_type") : NULL;
    char shown[128];

    if (!v || v->kind != VP_VALUE_STRING || strcmp(v->text, "LORA") == 0)
        return false;
    vp_find(c, file, VP_ERROR, v, "peft_type", NULL,
            "not judged: %s is a method of peft's whose weights, and keys, are not LoRA's; of "
            "peft's methods LORA is known here",
            vp_text_escape(v->text, shown, sizeof shown));
    return true;
}

/* The place of a finding: by file as given, then line; those of a whole file last. */
static int by_place(const void *a, const void *b)
{
    const vp_finding *x = a, *y = b;
    int               m = strcmp(x->file, y->file);

    if (m)
        return m;
    if ((x->line == 0) != (y->line == 0))
        return x->line == 0 ? 1 : -1;
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    m = strcmp(x->key, y->key);
    return m ? m : strcmp(x->message, y->message);
}

/* A command of a script's own that names a file of SFTConfig's: its parser has those arguments; so has that of a script that says it. */
static void take_kind(vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++)
        for (int g = 0; g < c->n_files; g++) {
            const vp_checked_file *named = &c->files[g];
            if (c->files[f].dialect == &vp_dialect_transformers &&
                c->files[f].doc->format == VP_FORMAT_FLAGS && named->dialect == &vp_dialect_trl &&
                named->yields_to && strcmp(named->yields_to, c->files[f].name) == 0 &&
                (named->doc->format != VP_FORMAT_PYTHON ||
                 (named->doc->parsed && vp_python_ends_in(named->doc->parsed, "Config")))) {
                c->files[f].dialect = &vp_dialect_trl;
                for (int m = g + 1; m < c->n_files && c->files[m].is_part; m++)
                    if (c->files[m].dialect == &vp_dialect_model && !named->doc->takes_model)
                        take_dtype(c->files[f].doc, c->files[m].doc);
            }
        }
}

/* Trainer(args=training_args): the command gives them, or a file that is given too does. */
static void check_given(vp_checked *c, const vp_checked_file *file)
{
    vp_document *doc = file->doc;

    if (!doc->given)
        return;
    doc->has_gap = true;
    for (int f = (int)(file - c->files) + 1;
         doc->takes_model && f < c->n_files && c->files[f].is_part; f++)
        c->files[f].doc->has_gap = true; /* the command says how the model is loaded and adapted */
    for (int f = 0; f < c->n_files; f++)
        for (const vp_dialect *d =
                 c->files[f].doc && c->files[f].doc->root->first ? c->files[f].dialect : NULL;
             d; d = d->base)
            if (&c->files[f] != file && d == &vp_dialect_transformers && !c->files[f].is_part)
                return;
    vp_find(c, file, VP_NOTE, NULL, "", NULL,
            "%s: nothing in the text makes them; what the script's command says is missing from "
            "this answer",
            doc->given);
    if (!c->gap)
        c->gap = doc->given;
}

bool vp_check_knows_any(const vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc && c->files[f].dialect)
            return true;
    return false;
}

/* A file in which no trainer is seen. Of one that another names that is no mistake, where anything else is of a trainer. */
static void find_nobodys(vp_checked *c, const vp_checked_file *file)
{
    bool        is_command = file->doc->format == VP_FORMAT_FLAGS;
    vp_severity severity   = (file->is_named && vp_check_knows_any(c)) || (c->missing && is_command)
                                 ? VP_NOTE
                                 : VP_ERROR;

    vp_find(
        c, file, severity, NULL, "", NULL,
        is_command ? "no option of a trainer that vplan knows stands in it; name the trainer with "
                     "--for, or find the peak of any command by vplan dryrun -- COMMAND"
        : file->doc->format == VP_FORMAT_PYTHON
            ? "no trainer that vplan knows is called in it: what a loop of its own keeps stands "
              "in its statements, not in settings; vplan dryrun -- COMMAND runs it without a GPU"
        : is_somebodys(&vp_dialect_trl, file->doc) && is_shared(file->doc)
            ? "most of its keys are no trainer's: settings of a script's own, and what they do the "
              "script says; given beside it they are read: vplan check SCRIPT FILE"
            : "whose file is it? No key of a trainer that vplan knows stands in it; name the trainer "
              "with --for");
    c->n_unjudged += severity == VP_ERROR;
    if (severity == VP_ERROR && !c->others && file->doc->parts)
        c->others = vp_arena_printf(c->arena, "%s:%d is of a training loop of the script's own",
                                    file->name, file->doc->parts->root->line);
}

vp_status vp_check(vp_arena *arena, const vp_check_input *inputs, int n, const vp_check_opts *opts,
                   vp_checked *out, vp_err *err)
{
    vp_status st = VP_OK;

    *out                       = (vp_checked){.arena     = arena,
                                              .versions  = opts->versions,
                                              .no_bf16   = opts->no_bf16,
                                              .world     = opts->world,
                                              .inputs    = inputs,
                                              .n_inputs  = n,
                                              .has_model = opts->has_model};
    out->settings.device_bytes = out->settings.allocated_bytes = out->settings.reserved_bytes = -1;
    out->settings.step_time_s                                                                 = -1;
    if (n > VP_CHECK_MAX_FILES)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "more than %d files at once", VP_CHECK_MAX_FILES));
    for (int i = 0; i < n; i++)
        VP_TRY(vp_check_take_command(out, &inputs[i], inputs, n, err));
    for (int i = 0; i < n; i++)
        VP_TRY(vp_check_open(out, &inputs[i], opts, NULL, err));
    out->command = NULL;
    for (int i = 0; opts->follows && i < out->n_files; i++) {
        VP_TRY(vp_check_open_commands(out, i, opts, err));
        VP_TRY(vp_check_open_named(out, i, opts, err));
        if (i + 1 == out->n_files)
            VP_TRY(vp_check_open_written(out, opts, err));
    }
    vp_check_say_configs(out);
    take_kind(out);
    VP_TRY(vp_check_take_handed(out, err));
    vp_check_options(out);
    out->target = opts->target ? opts->target : target_of(out);
    for (int f = 0; f < out->n_files; f++) {
        vp_checked_file *file = &out->files[f];
        if (!file->doc)
            continue;
        const vp_value *at;
        const char     *whose = file->dialect ? NULL : vp_check_others(file->doc, &at);
        if (whose) {
            vp_check_find_others(out, file, at, whose);
            continue;
        }
        if (is_of_another_method(out, file)) {
            file->dialect = NULL;
            continue;
        }
        if (!file->dialect &&
            (file->is_spoken_for || (!file->doc->root->first && file->doc->launch))) {
            if (file->doc->has_gap) /* a launcher and a script without options that are known */
                check_remarks(out, file);
            continue;
        }
        if (!file->dialect) {
            find_nobodys(out, file);
            continue;
        }
        drop_lacking(out, file);
        check_remarks(out, file);
        check_given(out, file);
        check_dots(out, file);
        vp_check_keys(out, file);
        vp_check_rules(out, file);
        vp_judge_uncounted(&(vp_judged){out, file});
        vp_judge_auto(out, file);
    }
    vp_check_settings(out);
    vp_check_packed(out);
    VP_TRY_ALLOC(err, !vp_arena_failed(arena));
    if (out->n_findings)
        qsort(out->findings, (size_t)out->n_findings, sizeof *out->findings, by_place);
out:
    return st;
}

vp_status vp_check_sort(vp_checked *c, vp_err *err)
{
    if (vp_arena_failed(c->arena))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (c->n_findings)
        qsort(c->findings, (size_t)c->n_findings, sizeof *c->findings, by_place);
    return VP_OK;
}

vp_status vp_check_positions(vp_checked *c, int64_t positions, bool learns_positions, vp_err *err)
{
    vp_check_lengths(c, positions, learns_positions);
    return vp_check_sort(c, err);
}
