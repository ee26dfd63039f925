/* trainers/files/named.c: files that files name. `deepspeed: ds.json`, `--config_file accelerate.yaml`,
 * `llamafactory-cli train x.yaml`, a script's parse_json_file("args.json"): what stands there counts as if
 * it had been given too. */
#include "trainers/files/check_internal.h"

#include "base/text.h"
#include "trainers/files/launch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the trainer would look, which is the folder it is started in: this one, else the file's own, else one above that. */
const char *vp_check_find(vp_arena *arena, const char *beside, const char *path)
{
    size_t n = beside ? strlen(beside) : 0;

    if (access(path, F_OK) == 0)
        return vp_arena_strdup(arena, path);
    if (path[0] == '/')
        return NULL;
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    for (;;) {
        while (n && beside[n - 1] != '/')
            n--;
        if (n < 2)
            return NULL;
        const char *own = vp_arena_printf(arena, "%.*s%s", (int)n, beside, path);
        if (!own || access(own, F_OK) == 0)
            return own;
        n--;
    }
}

static bool is_same_file(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    bool  same = x && y && strcmp(x, y) == 0;

    free(x);
    free(y);
    return same;
}

/* The one of the files read that path is; NULL: none of them. written: what a cell writes by that path; NULL. */
static vp_checked_file *already(vp_checked *c, const char *path, const vp_written *written)
{
    for (int i = 0; i < c->n_files; i++) {
        vp_checked_file *file = &c->files[i];
        if (written ? file->is_written && strcmp(file->name, path) == 0
                    : file->is_file && is_same_file(file->name, path))
            return file;
    }
    return NULL;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The only file that was given from elsewhere and is called so; NULL: there is none, or there are several. */
static vp_checked_file *given_as(vp_checked *c, const char *path)
{
    vp_checked_file *only = NULL;

    for (int i = 0; i < c->n_files; i++) {
        vp_checked_file *file = &c->files[i];
        if (!file->is_file || file->is_named || file->is_part ||
            strcmp(last_part(file->name), last_part(path)) != 0)
            continue;
        if (only)
            return NULL;
        only = file;
    }
    return only;
}

typedef struct namer {
    vp_checked          *c;
    int                  i;     /* of the file that names; the array may move as others come */
    bool                 reads; /* it is a script that reads some of them itself */
    const vp_check_opts *opts;
    vp_err              *err;
} namer;

/* A file that is given too, and what its calls are given. */
static void yield_to(vp_checked *c, const vp_checked_file *of, const char *name)
{
    for (int f = 0; f < c->n_files; f++)
        if (strcmp(c->files[f].name, of->name) == 0)
            c->files[f].yields_to = name;
}

/* kind: the dialect that the file is surely of; NULL: the one it looks like. beaten: what names it has
 * options beside it, and those win. */
static vp_status open_named(namer *x, const vp_value *at, const char *key, const char *path,
                            const vp_dialect *kind, bool beaten)
{
    vp_checked       *c       = x->c;
    vp_checked_file  *file    = &c->files[x->i];
    const vp_written *written = vp_check_written(c, path);
    const char       *beside  = file->is_file || file->is_commands ? file->name : NULL;
    const char       *found   = written ? written->path : vp_check_find(c->arena, beside, path);
    char              shown[256], given[256];
    vp_checked_file  *other = found ? already(c, found, written) : NULL;

    if (other) {
        if (beaten)
            yield_to(c, other, file->name);
        if (!file->dialect && other->dialect && file->doc->format == VP_FORMAT_FLAGS)
            file->is_spoken_for = true;
        return VP_OK;
    }
    other = found ? NULL : given_as(c, path);
    if (other && other != file) {
        vp_find(c, file, VP_WARNING, at, key, NULL,
                "%s is neither here nor beside this file: %s, which was given, is taken for it",
                vp_text_escape(path, shown, sizeof shown),
                vp_text_escape(other->name, given, sizeof given));
        if (beaten)
            yield_to(c, other, file->name);
        return VP_OK;
    }
    if (!found) {
        vp_find(c, file, VP_WARNING, at, key, NULL,
                "%s is neither here nor beside this file: it is not read, and what it says is "
                "missing from this answer",
                vp_text_escape(path, shown, sizeof shown));
        c->missing = vp_arena_strdup(c->arena, path);
        if (beaten)
            file->doc->has_gap = true; /* no default is one: the file may say it */
        return VP_OK;
    }
    if (c->n_files == VP_CHECK_MAX_FILES)
        return VP_FAIL(x->err, VP_ERR_USAGE, "more than %d files at once, with those they name",
                       VP_CHECK_MAX_FILES);
    vp_find(c, file, VP_NOTE, at, key, NULL,
            written ? "%s is read too, as it is written here" : "%s is read too",
            vp_text_escape(found, shown, sizeof shown));
    c->files[c->n_files].is_named   = true;
    c->files[c->n_files].is_written = written != NULL;
    c->files[c->n_files].yields_to  = beaten ? file->name : NULL;
    return vp_check_open(c,
                         &(vp_check_input){.path    = found,
                                           .bytes   = written ? written->bytes : NULL,
                                           .n_bytes = written ? written->n_bytes : 0},
                         x->opts, kind, x->err);
}

const vp_dialect *vp_dialect_named(const char *name)
{
    const vp_dialect *d;

    for (int i = 0; (d = vp_dialect_at(i)); i++)
        if (strcmp(d->name, name) == 0)
            return d;
    return NULL;
}

/* What stands in place of a path: a variable, an address, a name of another ending. Settings in quotes are judged where they stand. */
static void note_unread(namer *x, const vp_value *at, const char *key)
{
    char shown[256];

    for (int i = x->i + 1; i < x->c->n_files && x->c->files[i].is_part; i++)
        if (x->c->files[i].dialect == vp_dialect_named("deepspeed") &&
            strcmp(key, "deepspeed") == 0)
            return; /* a variable, whose value the script says */
    if (at->text[strspn(at->text, " \n")] != '{' && at->text[0])
        vp_find(x->c, &x->c->files[x->i], VP_NOTE, at, key, NULL,
                "%s is no path of a .json, .yaml or .toml: it is not read, and what it says is "
                "missing from this answer",
                vp_text_escape(at->text, shown, sizeof shown));
}

/* The keys of dialect d, or of one that it has the keys of. */
static vp_status open_of_keys(namer *x, const vp_document *doc, const vp_dialect *of)
{
    for (const vp_dialect *d = of; d; d = d->base)
        for (int i = 0; i < d->n_keys; i++) {
            const vp_key   *k = &d->keys[i];
            const vp_value *v = k->opens ? vp_value_at(doc->root, k->path) : NULL;
            vp_status       st;
            if (!v || v->kind != VP_VALUE_STRING ||
                (k->opens_with && !vp_is_there(vp_value_at(doc->root, k->opens_with))))
                continue;
            if (!vp_launch_is_path(v->text, strlen(v->text))) {
                if (!vp_is_literal(d, k->path, v->text) && !vp_is_literal(of, k->path, v->text))
                    note_unread(x, v, k->path);
                continue;
            }
            st = open_named(x, v, k->path, v->text, vp_dialect_named(k->opens),
                            of == &vp_dialect_launch);
            if (st != VP_OK)
                return st;
        }
    return VP_OK;
}

/* Options by which programs of all kinds are told their settings file. */
static vp_status open_of_options(namer *x, const vp_document *doc, const vp_dialect *d)
{
    static const char *const own[] = {"config", "config_file", "config-file", "job.config_file"};

    for (size_t i = 0; doc->format == VP_FORMAT_FLAGS && i < sizeof own / sizeof *own; i++) {
        const vp_value *v = vp_value_at(doc->root, own[i]);
        vp_status       st;
        if (v && v->kind == VP_VALUE_STRING && d == &vp_dialect_torchtune &&
            !vp_launch_is_path(v->text, strlen(v->text)) && !strchr(v->text, '$')) {
            vp_find(x->c, &x->c->files[x->i], VP_WARNING, v, own[i], NULL,
                    "torchtune brings it: it is not read here, and what it says is missing from "
                    "this answer; tune cp writes it to a file");
            x->c->missing = v->text;
        }
        if (!v || v->kind != VP_VALUE_STRING || !vp_launch_is_path(v->text, strlen(v->text)))
            continue;
        st = open_named(x, v, own[i], v->text, d, true);
        if (st != VP_OK)
            return st;
    }
    return VP_OK;
}

/* --deepspeed_config of a script with a parser of its own. */
static vp_status open_of_engine(namer *x, const vp_document *doc)
{
    static const char *const own[] = {"deepspeed_config", "deepspeed"};
    vp_status                st    = VP_OK;

    for (size_t i = 0; doc->format == VP_FORMAT_FLAGS && i < sizeof own / sizeof *own; i++) {
        const vp_value *v = vp_value_member(doc->root, own[i]);
        if (v && v->kind == VP_VALUE_STRING && vp_launch_is_path(v->text, strlen(v->text)) &&
            st == VP_OK)
            st = open_named(x, v, own[i], v->text, &vp_dialect_deepspeed, true);
    }
    return st;
}

/* The command that reads the file; NULL: nobody gave one. */
static const vp_document *reader_of(const vp_checked *c, const vp_checked_file *file)
{
    for (int f = 0; f < c->n_files && file->yields_to; f++)
        if (strcmp(c->files[f].name, file->yields_to) == 0 && c->files[f].doc &&
            c->files[f].doc->format == VP_FORMAT_FLAGS)
            return c->files[f].doc;
    return NULL;
}

/* Whether a file of TRL's is read by its command, which knows what the launcher's are among its keys. */
static bool hands_on(const vp_checked *c, const vp_checked_file *file)
{
    static const char *const trl[] = {"trl", NULL};
    const vp_document       *reader;

    if (!file->doc || file->dialect != &vp_dialect_trl || file->doc->format != VP_FORMAT_YAML)
        return false;
    reader = reader_of(c, file);
    return !reader || vp_launch_is_begun_by(reader->program, trl);
}

/* What the files mean that TRL brings with it (trl/accelerate_configs of 1.16). */
static const struct {
    const char *name, *file, *text;
} brought[] = {
#define ALL "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
#define ZERO(stage, more) \
    "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: " stage more "}\n" ALL
#define FSDP(version, shards, more) \
    "distributed_type: FSDP\nfsdp_config: {fsdp_version: " version \
    ", fsdp_reshard_after_forward: " shards \
    ", fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_activation_checkpointing: false, " \
    "fsdp_offload_params: false, fsdp_cpu_ram_efficient_loading: true, " \
    "fsdp_state_dict_type: FULL_STATE_DICT" more "}\n" ALL
    {"single_gpu", "TRL's single_gpu.yaml", "distributed_type: 'NO'\nmixed_precision: bf16\n"},
    {"multi_gpu", "TRL's multi_gpu.yaml", "distributed_type: MULTI_GPU\n" ALL},
    {"zero1", "TRL's zero1.yaml",
     ZERO("1", ", gradient_accumulation_steps: 1, zero3_init_flag: false")},
    {"zero2", "TRL's zero2.yaml",
     ZERO("2",
          ", offload_optimizer_device: none, offload_param_device: none, zero3_init_flag: false")},
    {"zero3", "TRL's zero3.yaml",
     ZERO(
         "3",
         ", offload_optimizer_device: none, offload_param_device: none, zero3_init_flag: true, zero3_save_16bit_model: true")},
    {"fsdp1", "TRL's fsdp1.yaml",
     FSDP(
         "1", "FULL_SHARD",
         ", fsdp_backward_prefetch: BACKWARD_PRE, fsdp_forward_prefetch: true, fsdp_sync_module_states: true, fsdp_use_orig_params: true")},
    {"fsdp2", "TRL's fsdp2.yaml", FSDP("2", "true", "")},
};

/* `trl sft --accelerate_config zero2`: a file, or a name of one that TRL has. */
static vp_status open_of_trl(namer *x, const vp_document *doc)
{
    vp_checked     *c = x->c;
    const vp_value *v = doc->format == VP_FORMAT_FLAGS || hands_on(c, &c->files[x->i])
                            ? vp_value_member(doc->root, "accelerate_config")
                            : NULL;
    size_t          n = sizeof brought / sizeof *brought;

    if (!v || v->kind != VP_VALUE_STRING || strchr(v->text, '$'))
        return VP_OK;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(brought[i].name, v->text) != 0 || access(v->text, F_OK) == 0)
            continue;
        if (c->n_files == VP_CHECK_MAX_FILES)
            return VP_FAIL(x->err, VP_ERR_USAGE, "more than %d files at once, with those they name",
                           VP_CHECK_MAX_FILES);
        c->files[c->n_files].is_named  = true;
        c->files[c->n_files].yields_to = c->files[x->i].name;
        return vp_check_open(c,
                             &(vp_check_input){.path    = brought[i].file,
                                               .bytes   = brought[i].text,
                                               .n_bytes = (int64_t)strlen(brought[i].text)},
                             x->opts, &vp_dialect_accelerate, x->err);
    }
    if (vp_launch_is_path(v->text, strlen(v->text)))
        return open_named(x, v, v->key, v->text, &vp_dialect_accelerate, true);
    vp_find(c, &c->files[x->i], VP_ERROR, v, v->key, NULL,
            "is neither a file nor one that TRL has: single_gpu, multi_gpu, zero1, zero2, zero3, "
            "fsdp1, fsdp2");
    return VP_OK;
}

/* `axolotl train FILE`: settings of the program's own. */
static vp_status open_of_program(namer *x, const vp_document *doc, const vp_dialect *d)
{
    for (const char *p = doc->program; p && *p;) {
        size_t   n  = strcspn(p, " ");
        vp_value at = {.kind = VP_VALUE_NULL, .line = doc->root->line};
        char     path[PATH_MAX];
        snprintf(path, sizeof path, "%.*s", (int)n, p);
        if (vp_launch_is_argument(path, strlen(path))) {
            vp_status st = open_named(x, &at, path, path, d, true);
            if (st != VP_OK)
                return st;
        }
        p += n + (p[n] == ' ');
    }
    return VP_OK;
}

/* Whether the options behind a script are those of its own parser. */
static bool parses(vp_arena *arena, const char *path, const vp_written *written)
{
    vp_document *doc    = NULL;
    vp_err       ignore = {0};
    vp_status    st     = written ? vp_document_parse(arena, path, written->bytes, written->n_bytes,
                                                      VP_FORMAT_BY_NAME, &doc, &ignore)
                                  : vp_document_read(arena, path, VP_FORMAT_BY_NAME, &doc, &ignore);

    return st == VP_OK && doc->parses;
}

/* A script that is not here, of a command that says nothing else: then nothing is known of what trains. */
static void note_absent(namer *x, const vp_document *doc, const char *path)
{
    vp_checked_file *file = &x->c->files[x->i];
    vp_value         at   = {.kind = VP_VALUE_NULL, .line = doc->root->line};
    char             shown[256];

    if (doc->root->first || x->c->missing || vp_check_knows_any(x->c) || given_as(x->c, path))
        return;
    vp_find(x->c, file, VP_ERROR, &at, path, NULL,
            "%s is not here, and the command says nothing else of what trains",
            vp_text_escape(path, shown, sizeof shown));
    file->is_spoken_for = true;
    x->c->missing       = vp_arena_strdup(x->c->arena, path);
}

/* `python train.py` without options: all that is said stands in the script. With those of a parser of its own they stand in
 * for its defaults, and are no trainer's. */
static vp_status open_of_script(namer *x, const vp_document *doc)
{
    bool      has_parser = false;
    vp_status st         = VP_OK;

    for (const char *p = doc->program; p && *p && st == VP_OK;) {
        size_t      n  = strcspn(p, " ");
        vp_value    at = {.kind = VP_VALUE_NULL, .line = doc->root->line};
        char        path[PATH_MAX];
        const char *found = NULL, *beside = NULL;
        snprintf(path, sizeof path, "%.*s", (int)n, p);
        const vp_written *written = vp_check_written(x->c, path);
        if (x->c->files[x->i].is_commands || x->c->files[x->i].is_file)
            beside = x->c->files[x->i].name;
        if (n > 3 && strncmp(p + n - 3, ".py", 3) == 0)
            found = written ? written->path : vp_check_find(x->c->arena, beside, path);
        if (found && doc->root->first && !has_parser)
            has_parser = parses(x->c->arena, found, written);
        if (found) {
            vp_document *only = vp_arena_alloc(x->c->arena, sizeof *only);
            if (!only)
                return VP_FAIL(x->err, VP_ERR_NOMEM, "out of host memory");
            *only         = *doc;
            only->next    = NULL; /* of a shell's script the other commands are none of its */
            x->c->command = only;
            st            = open_named(x, &at, path, path, NULL, true);
            x->c->command = NULL;
        }
        if (found && (!doc->root->first || has_parser))
            x->c->files[x->i].dialect = NULL, x->c->files[x->i].is_spoken_for = true;
        if (!found && n > 3 && strncmp(p + n - 3, ".py", 3) == 0)
            note_absent(x, doc, path);
        p += n + (p[n] == ' ');
    }
    return st;
}

/* Settings files that a script of Python reads by itself, beside it. One that is not there may be made first. */
static vp_status open_of_reads(namer *x, const vp_document *doc)
{
    vp_status st = VP_OK;

    for (const vp_value *v = doc->files ? doc->files->first : NULL; v && st == VP_OK; v = v->next) {
        const char *script = x->c->files[x->i].is_file ? x->c->files[x->i].name : "";
        const char *slash  = strrchr(script, '/');
        const char *beside = vp_arena_printf(
            x->c->arena, "%.*s%s", slash ? (int)(slash + 1 - script) : 0, script, v->text);
        if (!beside || access(beside, F_OK) != 0)
            continue;
        st       = open_named(x, v, v->text, beside, NULL, false);
        x->reads = true;
    }
    return st;
}

vp_status vp_check_open_named(vp_checked *c, int i, const vp_check_opts *opts, vp_err *err)
{
    namer              x     = {.c = c, .i = i, .opts = opts, .err = err};
    const vp_document *doc   = c->files[i].doc;
    const vp_dialect  *d     = c->files[i].dialect;
    int                first = c->n_files;
    vp_status          st    = VP_OK;

    if (!doc || (!d && vp_check_is_idle(doc)))
        return VP_OK;
    if (d)
        VP_TRY(open_of_keys(&x, doc, d));
    if (doc->launch)
        VP_TRY(open_of_keys(&x, doc->launch, &vp_dialect_launch));
    const vp_dialect *own = vp_check_is_run_by(d, doc) ? d : NULL;
    VP_TRY(open_of_options(&x, doc, own));
    if (d == &vp_dialect_trl)
        VP_TRY(open_of_trl(&x, doc));
    if (!d)
        VP_TRY(open_of_engine(&x, doc));
    VP_TRY(open_of_program(&x, doc, own));
    if (doc->format == VP_FORMAT_FLAGS &&
        (!d || d == &vp_dialect_transformers || d == &vp_dialect_trl))
        VP_TRY(open_of_script(&x, doc));
    VP_TRY(open_of_reads(&x, doc));
    /* a script with a parser of its own, which reads the file */
    for (int f = first; f < c->n_files && !d && doc->format == VP_FORMAT_FLAGS; f++)
        c->files[i].is_spoken_for = c->files[i].is_spoken_for || c->files[f].dialect != NULL;
    /* a command without options of its own says nothing beside its file, nor does a script that makes
     * no arguments but those that it reads */
    if ((c->n_files > first && !doc->root->first) || (x.reads && !doc->program))
        c->files[i].dialect = NULL, c->files[i].is_spoken_for = true;
out:
    return st;
}

vp_status vp_check_take_handed(vp_checked *c, vp_err *err)
{
    vp_status st = VP_OK;

    for (int f = 0; f < c->n_files; f++) {
        vp_checked_file *file = &c->files[f];
        if (!file->doc || file->dialect != &vp_dialect_trl || file->doc->format != VP_FORMAT_YAML ||
            file->doc->launch)
            continue;
        if (hands_on(c, file)) {
            VP_TRY(vp_launch_hand_on(file->doc, err));
            if (file->doc->launch)
                VP_TRY(vp_launch_settle(file->doc, err));
            continue;
        }
        for (const vp_value *v = file->doc->root->first; v; v = v->next)
            if (vp_launch_is_handed(v->key) || strcmp(v->key, "accelerate_config") == 0)
                vp_find(c, file, VP_WARNING, v, v->key, NULL,
                        "is handed to the launcher by the command trl alone: started by another "
                        "one the script drops it");
    }
out:
    return st;
}
