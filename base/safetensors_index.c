/* base/safetensors_index.c: a folder of safetensors files: one, or the shards that an index
 * lists. */
#include "base/arena.h"
#include "base/base_internal.h"
#include "base/checked.h"
#include "base/safetensors.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_INDEX_BYTES = 64 << 20, MAX_SHARD_NAME_BYTES = 255, MAX_SHARDS = 10000, MAX_DEPTH = 64 };

typedef struct shard {
    const char     *name;
    int             line; /* of the index where it is first named */
    vp_safetensors *file;
} shard;

typedef struct placed {
    const char           *name;
    shard                *shard;
    int                   line; /* of the index; 0 without one */
    const vp_tensor_info *info;
    vp_safetensors       *file;
} placed;

struct vp_checkpoint {
    vp_arena *arena;
    char     *index_path;
    shard   **shards; /* by name */
    int64_t   n_shards, cap_shards;
    placed   *tensors; /* by name */
    int64_t   n_tensors, cap_tensors;
};

static const char index_name[]  = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

/* Why a file's name from an index is refused; NULL when it names something in the index's
 * folder. */
static const char *bad_shard_name(const char *name)
{
    if (!name[0])
        return "a shard's name is empty";
    if (strlen(name) > MAX_SHARD_NAME_BYTES)
        return "a shard's name is longer than 255 bytes";
    if (strchr(name, '/') || strchr(name, '\\') || !strcmp(name, ".") || !strcmp(name, ".."))
        return "a shard must be a plain file name in the folder of its index";
    return NULL;
}

static vp_status find_shard(vp_checkpoint *ckpt, const vp_lex *lex, shard **out, vp_err *err)
{
    vp_status st  = VP_OK;
    int64_t   low = 0, high = ckpt->n_shards;
    shard    *s = NULL;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int     c      = strcmp(lex->text, ckpt->shards[middle]->name);

        if (c == 0) {
            *out = ckpt->shards[middle];
            goto out;
        }
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    if (ckpt->n_shards == MAX_SHARDS) {
        st = vp_lex_fail(lex, err, "more than %d shards", MAX_SHARDS);
        goto out;
    }
    if (ckpt->n_shards == ckpt->cap_shards) {
        int64_t cap   = ckpt->cap_shards ? ckpt->cap_shards * 2 : 64;
        shard **moved = realloc(ckpt->shards, (size_t)cap * sizeof(shard *));
        VP_TRY_ALLOC(err, moved);
        ckpt->shards     = moved;
        ckpt->cap_shards = cap;
    }
    assert(low >= 0 && low <= ckpt->n_shards && ckpt->n_shards < ckpt->cap_shards);
    s = vp_arena_alloc(ckpt->arena, sizeof *s);
    VP_TRY_ALLOC(err, s);
    s->name = vp_arena_strdup(ckpt->arena, lex->text);
    VP_TRY_ALLOC(err, s->name);
    s->line = lex->line;
    memmove(ckpt->shards + low + 1, ckpt->shards + low,
            (size_t)(ckpt->n_shards - low) * sizeof(shard *));
    ckpt->shards[low] = s;
    ckpt->n_shards++;
    *out = s;
out:
    return st;
}

static vp_status add_placed(vp_checkpoint *ckpt, placed **out, vp_err *err)
{
    vp_status st = VP_OK;

    if (ckpt->n_tensors == ckpt->cap_tensors) {
        int64_t cap   = ckpt->cap_tensors ? ckpt->cap_tensors * 2 : 256;
        placed *moved = realloc(ckpt->tensors, (size_t)cap * sizeof *moved);
        VP_TRY_ALLOC(err, moved);
        ckpt->tensors     = moved;
        ckpt->cap_tensors = cap;
    }
    assert(ckpt->n_tensors < ckpt->cap_tensors);
    *out  = &ckpt->tensors[ckpt->n_tensors++];
    **out = (placed){0};
out:
    return st;
}

/* ---- reading the index ---- */

typedef struct index_parser {
    vp_lex         lex;
    vp_checkpoint *ckpt;
    bool           has_map, has_total;
    int64_t        total_bytes;
    int            total_line;
    char           key[VP_ST_MAX_NAME_BYTES + 1];
    char           field[240];
    int            key_line;
} index_parser;

/* The members of an object whose brace is the current token: calls member(), which reads the value,
 * behind each colon, with the key in p->key. */
static vp_status each_member(index_parser *p, vp_status (*member)(index_parser *, vp_err *),
                             vp_err       *err)
{
    vp_status st = VP_OK;

    if (p->lex.kind != VP_LEX_OBJECT) {
        st = vp_lex_unexpected(&p->lex, "an object", err);
        goto out;
    }
    VP_TRY(vp_lex_next(&p->lex, err));
    for (bool more = p->lex.kind != VP_LEX_OBJECT_END; more;) {
        if (p->lex.kind != VP_LEX_STRING) {
            st = vp_lex_unexpected(&p->lex, "a key in double quotes", err);
            goto out;
        }
        assert(p->lex.n_text_bytes < sizeof p->key); /* as long as lex.max_text_bytes */
        memcpy(p->key, p->lex.text, p->lex.n_text_bytes + 1);
        p->key_line = p->lex.line;
        VP_TRY(vp_lex_want(&p->lex, VP_LEX_COLON, "\":\" after the key", err));
        VP_TRY(member(p, err));
        VP_TRY(vp_lex_more(&p->lex, VP_LEX_OBJECT_END, "\",\" or \"}\"", "a key after the comma",
                           &more, err));
    }
out:
    return st;
}

static vp_status skip_member(index_parser *p, vp_err *err)
{
    vp_status st = VP_OK;

    p->lex.skip_text = true;
    VP_TRY(vp_lex_next(&p->lex, err));
    VP_TRY(vp_lex_skip_value(&p->lex, MAX_DEPTH, err));
out:
    p->lex.skip_text = false;
    return st;
}

static vp_status metadata_member(index_parser *p, vp_err *err)
{
    vp_status st = VP_OK;
    double    total;

    if (strcmp(p->key, "total_size"))
        return skip_member(p, err);
    p->lex.field = "metadata.total_size";
    if (p->has_total) {
        st = vp_lex_fail(&p->lex, err, "total_size stands twice");
        goto out;
    }
    VP_TRY(vp_lex_next(&p->lex, err));
    if ((p->lex.kind != VP_LEX_INTEGER && p->lex.kind != VP_LEX_REAL) ||
        !vp_decimal_to_double(p->lex.text, &total) || !(total >= 0 && total < 0x1p53) ||
        (double)(int64_t)total != total) {
        st = vp_lex_unexpected(&p->lex, "a whole number of bytes", err);
        goto out;
    }
    p->has_total   = true;
    p->total_bytes = (int64_t)total;
    p->total_line  = p->lex.line;
    p->lex.field   = "metadata";
out:
    return st;
}

static vp_status map_member(index_parser *p, vp_err *err)
{
    vp_status   st = VP_OK;
    placed     *t;
    const char *bad;
    char        shown[200];

    snprintf(p->field, sizeof p->field, "weight_map.%s",
             vp_text_escape(p->key, shown, sizeof shown));
    p->lex.field = p->field;
    if (p->ckpt->n_tensors == VP_ST_MAX_TENSORS) {
        st = vp_lex_fail(&p->lex, err, "more than %d tensors", VP_ST_MAX_TENSORS);
        goto out;
    }
    VP_TRY(vp_lex_want(&p->lex, VP_LEX_STRING, "the name of a shard", err));
    bad = bad_shard_name(p->lex.text);
    if (bad) {
        st = vp_lex_fail(&p->lex, err, "%s: \"%s\"", bad, vp_text_escape(p->lex.text, shown, 80));
        goto out;
    }
    VP_TRY(add_placed(p->ckpt, &t, err));
    t->line = p->key_line;
    t->name = vp_arena_strdup(p->ckpt->arena, p->key);
    VP_TRY_ALLOC(err, t->name);
    VP_TRY(find_shard(p->ckpt, &p->lex, &t->shard, err));
    p->lex.field = "weight_map";
out:
    return st;
}

static vp_status index_member(index_parser *p, vp_err *err)
{
    vp_status st = VP_OK;

    if (!strcmp(p->key, "weight_map")) {
        p->lex.field = "weight_map";
        if (p->has_map) {
            st = vp_lex_fail(&p->lex, err, "weight_map stands twice");
            goto out;
        }
        p->has_map = true;
        VP_TRY(vp_lex_next(&p->lex, err));
        VP_TRY(each_member(p, map_member, err));
    } else if (!strcmp(p->key, "metadata")) {
        p->lex.field = "metadata";
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind != VP_LEX_NULL)
            VP_TRY(each_member(p, metadata_member, err));
    } else {
        VP_TRY(skip_member(p, err));
    }
    p->lex.field = NULL;
out:
    return st;
}

static int compare_placed(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    int           c = strcmp(x->name, y->name);

    return c ? c : (x->line > y->line) - (x->line < y->line);
}

static placed *find_placed(const vp_checkpoint *ckpt, const char *name)
{
    int64_t low = 0, high = ckpt->n_tensors;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int     c      = strcmp(name, ckpt->tensors[middle].name);

        if (c == 0)
            return &ckpt->tensors[middle];
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static vp_status fail_index(const vp_checkpoint *ckpt, int line, const char *name, vp_err *err,
                            const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* An error of the index at the entry of one tensor. */
static vp_status fail_index(const vp_checkpoint *ckpt, int line, const char *name, vp_err *err,
                            const char *fmt, ...)
{
    char    message[768], field[240], shown[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    snprintf(field, sizeof field, "weight_map.%s", vp_text_escape(name, shown, sizeof shown));
    return VP_FAIL_AT(err, VP_ERR_INPUT, ckpt->index_path, line, field, "%s", message);
}

static vp_status read_index(vp_checkpoint *ckpt, int dir_fd, index_parser *p, vp_err *err)
{
    vp_status st = VP_OK;
    int       fd = -1;
    int64_t   n_bytes;

    VP_TRY(vp_file_open(dir_fd, index_name, ckpt->index_path, &fd, &n_bytes, err));
    if (n_bytes > MAX_INDEX_BYTES) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, ckpt->index_path, 0, NULL,
                        "is %lld bytes long; at most %d are read", (long long)n_bytes,
                        MAX_INDEX_BYTES);
        goto out;
    }
    p->ckpt = ckpt;
    VP_TRY(vp_lex_from_fd(&p->lex, ckpt->index_path, fd, 0, n_bytes, err));
    p->lex.max_text_bytes = VP_ST_MAX_NAME_BYTES;
    VP_TRY(vp_lex_next(&p->lex, err));
    VP_TRY(each_member(p, index_member, err));
    VP_TRY(vp_lex_want(&p->lex, VP_LEX_END, "nothing more after the index", err));
    if (!ckpt->n_tensors) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, ckpt->index_path, p->lex.line, "weight_map",
                        p->has_map ? "lists no tensor" : "is missing");
        goto out;
    }
    qsort(ckpt->tensors, (size_t)ckpt->n_tensors, sizeof *ckpt->tensors, compare_placed);
    for (int64_t i = 1; i < ckpt->n_tensors; i++)
        if (!strcmp(ckpt->tensors[i - 1].name, ckpt->tensors[i].name)) {
            st = fail_index(ckpt, ckpt->tensors[i].line, ckpt->tensors[i].name, err,
                            "stands twice, first in line %d", ckpt->tensors[i - 1].line);
            goto out;
        }
out:
    if (fd >= 0)
        close(fd);
    return st;
}

/* The shards hold what the index lists, all of it and nothing else. */
static vp_status check_against_index(vp_checkpoint *ckpt, const index_parser *p, vp_err *err)
{
    vp_status st          = VP_OK;
    int64_t   total_bytes = 0;
    char      shown[MAX_SHARD_NAME_BYTES * 4 + 1], other[MAX_SHARD_NAME_BYTES * 4 + 1];

    for (int64_t i = 0; i < ckpt->n_tensors; i++) {
        placed *t = &ckpt->tensors[i];

        t->file = t->shard->file;
        assert(t->file); /* open_shards() has opened every one that is named */
        t->info = vp_safetensors_find(t->file, t->name);
        if (!t->info) {
            st = fail_index(ckpt, t->line, t->name, err, "%s holds no tensor of this name",
                            vp_text_escape(t->shard->name, shown, 256));
            goto out;
        }
        total_bytes = vp_add(total_bytes, t->info->n_bytes);
    }
    for (int64_t s = 0; s < ckpt->n_shards; s++)
        for (int64_t i = 0; i < vp_safetensors_count(ckpt->shards[s]->file); i++) {
            const char   *name = vp_safetensors_at(ckpt->shards[s]->file, i)->name;
            const placed *t    = find_placed(ckpt, name);

            if (!t)
                st = fail_index(ckpt, 0, name, err,
                                "%s holds this tensor, the index does not list it",
                                vp_text_escape(ckpt->shards[s]->name, shown, 256));
            else if (t->shard != ckpt->shards[s])
                st = fail_index(ckpt, t->line, name, err, "both %s and %s hold this tensor",
                                vp_text_escape(t->shard->name, other, 256),
                                vp_text_escape(ckpt->shards[s]->name, shown, 256));
            if (st != VP_OK)
                goto out;
        }
    if (p->has_total && p->total_bytes != total_bytes)
        st = VP_FAIL_AT(err, VP_ERR_INPUT, ckpt->index_path, p->total_line, "metadata.total_size",
                        "is %lld, the tensors listed hold %lld bytes", (long long)p->total_bytes,
                        (long long)total_bytes);
out:
    return st;
}

/* ---- the folder ---- */

static vp_status open_shards(vp_checkpoint *ckpt, const char *dir, int dir_fd, vp_err *err)
{
    vp_status     st = VP_OK;
    index_parser *p  = calloc(1, sizeof *p);

    VP_TRY_ALLOC(err, p);
    VP_TRY(read_index(ckpt, dir_fd, p, err));
    for (int64_t i = 0; i < ckpt->n_shards; i++) {
        char *path = vp_arena_printf(ckpt->arena, "%s/%s", dir, ckpt->shards[i]->name);
        VP_TRY_ALLOC(err, path);
        VP_TRY(vp_safetensors_open_at(dir_fd, ckpt->shards[i]->name, path, &ckpt->shards[i]->file,
                                      err));
    }
    VP_TRY(check_against_index(ckpt, p, err));
out:
    if (p)
        vp_lex_release(&p->lex);
    free(p);
    return st;
}

static vp_status open_single(vp_checkpoint *ckpt, const char *dir, int dir_fd, vp_err *err)
{
    vp_status st = VP_OK;
    char     *path;
    shard    *s;
    placed   *t;

    path         = vp_arena_printf(ckpt->arena, "%s/%s", dir, single_name);
    s            = vp_arena_alloc(ckpt->arena, sizeof *s);
    ckpt->shards = malloc(sizeof *ckpt->shards);
    if (!path || !ckpt->shards)
        s = NULL;
    VP_TRY_ALLOC(err, s);
    s->name         = single_name;
    ckpt->shards[0] = s;
    ckpt->n_shards  = 1;
    VP_TRY(vp_safetensors_open_at(dir_fd, single_name, path, &s->file, err));
    for (int64_t i = 0; i < vp_safetensors_count(s->file); i++) {
        VP_TRY(add_placed(ckpt, &t, err));
        t->info  = vp_safetensors_by_name(s->file, i);
        t->name  = t->info->name;
        t->shard = s;
        t->file  = s->file;
    }
out:
    return st;
}

/* What else a folder without safetensors holds, for the error message. */
static const char *other_weights(int dir_fd)
{
    static const char *const names[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                        "consolidated.00.pth", "tf_model.h5", "flax_model.msgpack"};
    struct stat              info;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!fstatat(dir_fd, names[i], &info, 0))
            return names[i];
    return NULL;
}

vp_status vp_checkpoint_open(const char *dir, vp_checkpoint **out, vp_err *err)
{
    vp_status      st     = VP_OK;
    vp_checkpoint *ckpt   = calloc(1, sizeof *ckpt);
    int            dir_fd = -1;
    struct stat    info;
    const char    *other;

    *out = NULL;
    VP_TRY_ALLOC(err, ckpt);
    ckpt->arena = vp_arena_new();
    VP_TRY_ALLOC(err, ckpt->arena);
    ckpt->index_path = vp_arena_printf(ckpt->arena, "%s/%s", dir, index_name);
    VP_TRY_ALLOC(err, ckpt->index_path);
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        int error = errno;
        if (error == ENOTDIR && !stat(dir, &info))
            st = VP_FAIL_AT(err, VP_ERR_INPUT, dir, 0, NULL, "is %s, not a folder",
                            vp_file_kind(info.st_mode));
        else
            st = VP_FAIL_AT(err, VP_ERR_INPUT, dir, 0, NULL, "cannot open this folder: %s",
                            strerror(error));
        goto out;
    }
    /* A link that leads nowhere counts as there, so that the error is about it. */
    if (!fstatat(dir_fd, single_name, &info, AT_SYMLINK_NOFOLLOW)) {
        VP_TRY(open_single(ckpt, dir, dir_fd, err));
    } else if (!fstatat(dir_fd, index_name, &info, AT_SYMLINK_NOFOLLOW)) {
        VP_TRY(open_shards(ckpt, dir, dir_fd, err));
    } else {
        other = other_weights(dir_fd);
        st    = VP_FAIL_AT(err, VP_ERR_INPUT, dir, 0, NULL, "holds neither %s nor %s%s%s%s",
                           single_name, index_name, other ? "; " : "", other ? other : "",
                        other ? " is never opened: convert it to safetensors" : "");
        goto out;
    }
    *out = ckpt;
    ckpt = NULL;
out:
    if (dir_fd >= 0)
        close(dir_fd);
    vp_checkpoint_close(ckpt);
    return st;
}

void vp_checkpoint_close(vp_checkpoint *ckpt)
{
    if (!ckpt)
        return;
    for (int64_t i = 0; i < ckpt->n_shards; i++)
        vp_safetensors_close(ckpt->shards[i]->file);
    free(ckpt->shards);
    free(ckpt->tensors);
    vp_arena_free(ckpt->arena);
    free(ckpt);
}

int64_t vp_checkpoint_n_files(const vp_checkpoint *ckpt)
{
    return ckpt->n_shards;
}

vp_safetensors *vp_checkpoint_file(const vp_checkpoint *ckpt, int64_t idx)
{
    assert(idx >= 0 && idx < ckpt->n_shards);
    return ckpt->shards[idx]->file;
}

const vp_tensor_info *vp_checkpoint_find(const vp_checkpoint *ckpt, const char *name,
                                         vp_safetensors **file)
{
    const placed *t = find_placed(ckpt, name);

    assert(!t || (t->file && t->info)); /* no checkpoint is given out before its check */

    if (file)
        *file = t ? t->file : NULL;
    return t ? t->info : NULL;
}
