#include "core/safetensors.h"
#include "core/arena.h"
#include "core/checked.h"
#include "core/core_internal.h"
#include "core/file.h"
#include "core/text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are read as they are stored");

enum {
    LENGTH_BYTES        = 8,
    MAX_HEADER_BYTES    = 100000000,
    MAX_NAME_BYTES      = 4096,
    MAX_TENSORS         = 1000000,
    MAX_INDEX_BYTES     = 64 << 20,
    MAX_SHARD_NAME_BYTES = 255,
    MAX_SHARDS          = 10000,
    MAX_DEPTH           = 64,
    CONVERT_ELEMENTS    = 8192
};

static const char metadata_name[] = "__metadata__";

static const struct {
    const char *name;
    int64_t     bytes;
} dtypes[] = {
    [VP_ST_F64] = {"F64", 8},   [VP_ST_F32] = {"F32", 4},         [VP_ST_F16] = {"F16", 2},
    [VP_ST_BF16] = {"BF16", 2}, [VP_ST_I64] = {"I64", 8},         [VP_ST_I32] = {"I32", 4},
    [VP_ST_I16] = {"I16", 2},   [VP_ST_I8] = {"I8", 1},           [VP_ST_U8] = {"U8", 1},
    [VP_ST_BOOL] = {"BOOL", 1}, [VP_ST_F8_E4M3] = {"F8_E4M3", 1}, [VP_ST_F8_E5M2] = {"F8_E5M2", 1},
    [VP_ST_U16] = {"U16", 2},   [VP_ST_U32] = {"U32", 4},         [VP_ST_U64] = {"U64", 8},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

int64_t vp_st_dtype_bytes(vp_st_dtype dtype)
{
    assert((unsigned)dtype < N_DTYPES);
    return dtypes[dtype].bytes;
}

const char *vp_st_dtype_name(vp_st_dtype dtype)
{
    assert((unsigned)dtype < N_DTYPES);
    return dtypes[dtype].name;
}

/* ---- one file ---- */

typedef struct entry {
    vp_tensor_info info;
    int64_t        name_byte;  /* where its name stands in the file */
} entry;

struct vp_safetensors {
    char     *path;
    int       fd;
    int64_t   data_byte;   /* where the data section begins in the file */
    int64_t   n_data_bytes;
    vp_arena *arena;       /* entries and names */
    entry   **by_offset;   /* in the order of the data */
    entry   **by_name;
    int64_t   n, cap;
};

typedef struct header_parser {
    vp_lex          lex;
    vp_safetensors *file;
    char            name[MAX_NAME_BYTES + 1];
    char            field[240];    /* what errors name: the tensor, and then its part */
    size_t          n_field_name;
} header_parser;

static void set_field_name(header_parser *p)
{
    vp_text_escape(p->name, p->field, 200);
    p->n_field_name = strlen(p->field);
}

static void set_field_part(header_parser *p, const char *part)
{
    p->field[p->n_field_name] = '.';
    strcpy(p->field + p->n_field_name + 1, part);
}

/* A whole number >= 0 below 2^63, from the current token. */
static vp_status read_size(header_parser *p, const char *what, int64_t *out, vp_err *err)
{
    const char *at = p->lex.text;
    int64_t     v  = 0;

    if (p->lex.kind != VP_LEX_INTEGER)
        return vp_lex_unexpected(&p->lex, what, err);
    if (*at == '-')
        return vp_lex_fail(&p->lex, err, "%s must not be negative, is %.40s", what, at);
    for (; *at; at++)
        v = vp_add(vp_mul(v, 10), *at - '0');
    if (vp_overflowed(v))
        return vp_lex_fail(&p->lex, err, "%s %.40s is too large (2^63 or more)", what, p->lex.text);
    *out = v;
    return VP_OK;
}

static vp_status read_dtype(header_parser *p, vp_st_dtype *out, vp_err *err)
{
    vp_status st = VP_OK;
    char      shown[80];

    VP_TRY(vp_lex_want(&p->lex, VP_LEX_STRING, "the name of a dtype", err));
    for (int i = 0; i < N_DTYPES; i++)
        if (!strcmp(p->lex.text, dtypes[i].name)) {
            *out = (vp_st_dtype)i;
            goto out;
        }
    st = vp_lex_fail(&p->lex, err, "dtype \"%s\" is not supported",
                     vp_text_escape(p->lex.text, shown, sizeof shown));
out:
    return st;
}

/* An array of sizes, at most n_max. */
static vp_status read_sizes(header_parser *p, const char *what, int n_max, int64_t *sizes, int *n,
                            vp_err *err)
{
    vp_status st = VP_OK;

    *n = 0;
    VP_TRY(vp_lex_want(&p->lex, VP_LEX_ARRAY, "an array", err));
    VP_TRY(vp_lex_next(&p->lex, err));
    while (p->lex.kind != VP_LEX_ARRAY_END) {
        if (*n == n_max) {
            st = vp_lex_fail(&p->lex, err, "more than %d numbers stand here", n_max);
            goto out;
        }
        VP_TRY(read_size(p, what, &sizes[*n], err));
        ++*n;
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_ARRAY_END)
            break;
        if (p->lex.kind != VP_LEX_COMMA) {
            st = vp_lex_unexpected(&p->lex, "\",\" or \"]\"", err);
            goto out;
        }
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_ARRAY_END) {
            st = vp_lex_unexpected(&p->lex, "a number after the comma", err);
            goto out;
        }
    }
out:
    return st;
}

/* A size of 0 anywhere makes 0, however large the other sizes are. */
static int64_t product(const int64_t *sizes, int n)
{
    int64_t v = 1;

    for (int i = 0; i < n; i++)
        if (sizes[i] == 0)
            return 0;
    for (int i = 0; i < n; i++)
        v = vp_mul(v, sizes[i]);
    return v;
}

/* {"dtype": .., "shape": [..], "data_offsets": [begin, end]}, its brace the current token. */
static vp_status read_tensor(header_parser *p, vp_tensor_info *info, vp_err *err)
{
    static const char *const keys[3] = {"dtype", "shape", "data_offsets"};
    vp_status                st = VP_OK;
    bool                     have[3] = {false, false, false};
    int64_t                  offsets[2], n_bytes;
    int                      n_offsets, which;
    char                     shown[80];

    if (p->lex.kind != VP_LEX_OBJECT) {
        st = vp_lex_unexpected(&p->lex, "an object with dtype, shape and data_offsets", err);
        goto out;
    }
    VP_TRY(vp_lex_next(&p->lex, err));
    while (p->lex.kind != VP_LEX_OBJECT_END) {
        if (p->lex.kind != VP_LEX_STRING) {
            st = vp_lex_unexpected(&p->lex, "dtype, shape or data_offsets in double quotes", err);
            goto out;
        }
        for (which = 0; which < 3 && strcmp(p->lex.text, keys[which]); which++)
            ;
        if (which == 3) {
            st = vp_lex_fail(&p->lex, err, "\"%s\" is no field of a tensor",
                             vp_text_escape(p->lex.text, shown, sizeof shown));
            goto out;
        }
        set_field_part(p, keys[which]);
        if (have[which]) {
            st = vp_lex_fail(&p->lex, err, "%s stands twice", keys[which]);
            goto out;
        }
        have[which] = true;
        VP_TRY(vp_lex_want(&p->lex, VP_LEX_COLON, "\":\" after the key", err));
        if (which == 0) {
            VP_TRY(read_dtype(p, &info->dtype, err));
        } else if (which == 1) {
            VP_TRY(read_sizes(p, "a dimension", VP_TENSOR_MAX_RANK, info->shape, &info->rank, err));
        } else {
            VP_TRY(read_sizes(p, "an offset", 2, offsets, &n_offsets, err));
            if (n_offsets != 2) {
                st = vp_lex_fail(&p->lex, err, "two offsets must stand here, begin and end; found %d",
                                 n_offsets);
                goto out;
            }
        }
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_OBJECT_END)
            break;
        if (p->lex.kind != VP_LEX_COMMA) {
            st = vp_lex_unexpected(&p->lex, "\",\" or \"}\"", err);
            goto out;
        }
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_OBJECT_END) {
            st = vp_lex_unexpected(&p->lex, "a key after the comma", err);
            goto out;
        }
    }
    for (which = 0; which < 3; which++)
        if (!have[which]) {
            set_field_part(p, keys[which]);
            st = vp_lex_fail(&p->lex, err, "%s is missing", keys[which]);
            goto out;
        }
    set_field_part(p, "data_offsets");
    if (offsets[0] > offsets[1] || offsets[1] > p->file->n_data_bytes) {
        st = vp_lex_fail(&p->lex, err, "data [%lld, %lld) does not lie within the %lld bytes that the "
                                       "file holds", (long long)offsets[0], (long long)offsets[1],
                         (long long)p->file->n_data_bytes);
        goto out;
    }
    set_field_part(p, "shape");
    info->begin_byte = offsets[0];
    info->n_bytes    = offsets[1] - offsets[0];
    info->n_elements = product(info->shape, info->rank);
    n_bytes          = vp_mul(info->n_elements, dtypes[info->dtype].bytes);
    if (vp_overflowed(n_bytes)) {
        st = vp_lex_fail(&p->lex, err, "the product of the dimensions is too large (2^63 bytes or more)");
        goto out;
    }
    if (n_bytes != info->n_bytes) {
        st = vp_lex_fail(&p->lex, err, "shape and dtype make %lld bytes, data_offsets %lld",
                         (long long)n_bytes, (long long)info->n_bytes);
        goto out;
    }
out:
    return st;
}

/* Text to text; nothing of it is kept, so its strings may be as long as the header allows. */
static vp_status read_metadata(header_parser *p, vp_err *err)
{
    vp_status st = VP_OK;

    if (p->lex.kind != VP_LEX_OBJECT) {
        st = vp_lex_unexpected(&p->lex, "an object of strings", err);
        goto out;
    }
    p->lex.skip_text = true;
    VP_TRY(vp_lex_next(&p->lex, err));
    while (p->lex.kind != VP_LEX_OBJECT_END) {
        if (p->lex.kind != VP_LEX_STRING) {
            st = vp_lex_unexpected(&p->lex, "a key in double quotes", err);
            goto out;
        }
        VP_TRY(vp_lex_want(&p->lex, VP_LEX_COLON, "\":\" after the key", err));
        VP_TRY(vp_lex_want(&p->lex, VP_LEX_STRING, "a string, as all metadata are", err));
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_OBJECT_END)
            break;
        if (p->lex.kind != VP_LEX_COMMA) {
            st = vp_lex_unexpected(&p->lex, "\",\" or \"}\"", err);
            goto out;
        }
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_OBJECT_END) {
            st = vp_lex_unexpected(&p->lex, "a key after the comma", err);
            goto out;
        }
    }
out:
    p->lex.skip_text = false;
    return st;
}

static vp_status add_entry(vp_safetensors *file, entry **out, vp_err *err)
{
    vp_status st = VP_OK;

    if (file->n == file->cap) {
        int64_t cap   = file->cap ? file->cap * 2 : 256;
        entry **moved = realloc(file->by_offset, (size_t)cap * sizeof *moved);
        VP_TRY_ALLOC(err, moved);
        file->by_offset = moved;
        file->cap       = cap;
    }
    *out = vp_arena_alloc(file->arena, sizeof **out);
    VP_TRY_ALLOC(err, *out);
    file->by_offset[file->n++] = *out;
out:
    return st;
}

static vp_status read_header(header_parser *p, vp_err *err)
{
    vp_status st           = VP_OK;
    bool      had_metadata = false;
    entry    *e            = NULL;

    VP_TRY(vp_lex_want(&p->lex, VP_LEX_OBJECT, "\"{\" at the beginning of the header", err));
    if (p->lex.at_byte != LENGTH_BYTES) {
        st = vp_lex_fail(&p->lex, err, "the header must begin with \"{\", not with white space");
        goto out;
    }
    VP_TRY(vp_lex_next(&p->lex, err));
    while (p->lex.kind != VP_LEX_OBJECT_END) {
        int64_t name_byte = p->lex.at_byte;

        if (p->lex.kind != VP_LEX_STRING) {
            st = vp_lex_unexpected(&p->lex, "the name of a tensor in double quotes", err);
            goto out;
        }
        memcpy(p->name, p->lex.text, p->lex.n_text_bytes + 1);
        set_field_name(p);
        if (strcmp(p->name, metadata_name)) {
            if (p->file->n == MAX_TENSORS) {
                st = vp_lex_fail(&p->lex, err, "more than %d tensors", MAX_TENSORS);
                goto out;
            }
            VP_TRY(add_entry(p->file, &e, err));
            e->name_byte = name_byte;
            e->info.name = vp_arena_strdup(p->file->arena, p->name);
            VP_TRY_ALLOC(err, e->info.name);
            VP_TRY(vp_lex_want(&p->lex, VP_LEX_COLON, "\":\" after the name", err));
            VP_TRY(vp_lex_next(&p->lex, err));
            VP_TRY(read_tensor(p, &e->info, err));
        } else {
            if (had_metadata) {
                st = vp_lex_fail(&p->lex, err, "stands twice");
                goto out;
            }
            had_metadata = true;
            VP_TRY(vp_lex_want(&p->lex, VP_LEX_COLON, "\":\" after the name", err));
            VP_TRY(vp_lex_next(&p->lex, err));
            VP_TRY(read_metadata(p, err));
        }
        p->name[0] = p->field[0] = '\0';
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_OBJECT_END)
            break;
        if (p->lex.kind != VP_LEX_COMMA) {
            st = vp_lex_unexpected(&p->lex, "\",\" or \"}\" after a tensor", err);
            goto out;
        }
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_OBJECT_END) {
            st = vp_lex_unexpected(&p->lex, "a name after the comma", err);
            goto out;
        }
    }
    VP_TRY(vp_lex_want(&p->lex, VP_LEX_END, "only white space behind the header", err));
out:
    return st;
}

static int compare_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_names(const void *a, const void *b)
{
    const entry *x = *(entry *const *)a, *y = *(entry *const *)b;
    int          c = strcmp(x->info.name, y->info.name);

    return c ? c : compare_i64(x->name_byte, y->name_byte);
}

/* Empty tensors go before one that begins at the same byte; then by name. */
static int compare_offsets(const void *a, const void *b)
{
    const entry *x = *(entry *const *)a, *y = *(entry *const *)b;
    int          c = compare_i64(x->info.begin_byte, y->info.begin_byte);

    if (!c)
        c = compare_i64(x->info.n_bytes, y->info.n_bytes);
    return c ? c : compare_names(a, b);
}

static vp_status fail_entry(const vp_safetensors *file, const entry *e, vp_err *err, const char *message)
{
    char shown[200];

    return VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0,
                      vp_text_escape(e->info.name, shown, sizeof shown), "%s (byte %lld)", message,
                      (long long)e->name_byte);
}

/* Headers often list their tensors in one of the two orders already. */
static void sort_entries(entry **entries, int64_t n, int (*compare)(const void *, const void *))
{
    int64_t i = 1;

    while (i < n && compare(&entries[i - 1], &entries[i]) <= 0)
        i++;
    if (i < n)
        qsort(entries, (size_t)n, sizeof *entries, compare);
}

/* No name twice; the data contiguous, without holes or overlap, from 0 to the end of the file. */
static vp_status check_whole(vp_safetensors *file, vp_err *err)
{
    vp_status st       = VP_OK;
    int64_t   end_byte = 0;
    char      message[160];

    file->by_name = malloc((size_t)(file->n ? file->n : 1) * sizeof *file->by_name);
    VP_TRY_ALLOC(err, file->by_name);
    if (file->n) {
        memcpy(file->by_name, file->by_offset, (size_t)file->n * sizeof *file->by_name);
        sort_entries(file->by_name, file->n, compare_names);
        sort_entries(file->by_offset, file->n, compare_offsets);
    }
    for (int64_t i = 1; i < file->n; i++)
        if (!strcmp(file->by_name[i - 1]->info.name, file->by_name[i]->info.name)) {
            st = fail_entry(file, file->by_name[i], err, "a tensor of this name stands in the header "
                                                         "twice");
            goto out;
        }
    for (int64_t i = 0; i < file->n; i++) {
        const vp_tensor_info *t = &file->by_offset[i]->info;

        if (t->begin_byte != end_byte) {
            snprintf(message, sizeof message, t->begin_byte < end_byte
                         ? "its data begin at %lld, inside those of another tensor, which end at %lld"
                         : "its data begin at %lld, but nothing holds the bytes from %lld on",
                     (long long)t->begin_byte, (long long)end_byte);
            st = fail_entry(file, file->by_offset[i], err, message);
            goto out;
        }
        end_byte = t->begin_byte + t->n_bytes;
    }
    if (end_byte != file->n_data_bytes)
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL,
                        "%lld bytes from byte %lld on belong to no tensor",
                        (long long)(file->n_data_bytes - end_byte),
                        (long long)(file->data_byte + end_byte));
out:
    return st;
}

/* What a file that is no safetensors file is instead, from its first bytes; NULL when unknown. */
static const char *other_kind(const unsigned char *b, size_t n)
{
    static const struct {
        const char *magic;
        size_t      n;
        const char *kind;
    } kinds[] = {
        {"PK\x03\x04", 4, "a zip archive, as torch.save writes it (pickle inside, which is never opened)"},
        {"GGUF", 4, "a GGUF file"},
        {"version https://", 16, "a git LFS pointer: the file itself has not been fetched"},
        {"\x89HDF", 4, "an HDF5 file"},
        {"\x93NUMPY", 6, "a NumPy file"},
        {"<!DOCTYPE", 9, "a web page"},
        {"<html", 5, "a web page"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (n >= kinds[i].n && !memcmp(b, kinds[i].magic, kinds[i].n))
            return kinds[i].kind;
    if (n >= 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5)
        return "a pickle, which is never opened";
    return NULL;
}

/* Names under which pickles are stored: never opened, whatever they hold. */
static bool is_pickle_name(const char *path)
{
    static const char *const ends[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".npz"};
    size_t                   n = strlen(path);

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (n > strlen(ends[i]) && !strcmp(path + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

/* Read n bytes at a byte of the file. */
static vp_status read_at(const vp_safetensors *file, int64_t at_byte, int64_t n, void *buf, vp_err *err)
{
    char *to = buf;

    while (n > 0) {
        size_t  n_wanted = n < (1 << 30) ? (size_t)n : (size_t)1 << 30;
        ssize_t got      = pread(file->fd, to, n_wanted, (off_t)at_byte);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL, "cannot read it: %s",
                              strerror(errno));
        if (got == 0)
            return VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL,
                              "became shorter while it was read: byte %lld is gone",
                              (long long)at_byte);
        to += got;
        at_byte += got;
        n -= got;
    }
    return VP_OK;
}

/* The header's length, with everything that can be said about the file before its header is read. */
static vp_status read_length(vp_safetensors *file, int64_t n_file_bytes, int64_t *n_header_bytes,
                             vp_err *err)
{
    vp_status     st = VP_OK;
    unsigned char b[16] = {0};
    int64_t       n = vp_min_i64(n_file_bytes, sizeof b);
    uint64_t      length = 0;
    const char   *kind;

    VP_TRY(read_at(file, 0, n, b, err));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | b[i];
    kind = other_kind(b, (size_t)n);
    if (kind && (n < LENGTH_BYTES || length > MAX_HEADER_BYTES ||
                 (int64_t)length > n_file_bytes - LENGTH_BYTES)) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL, "is no safetensors file but %s", kind);
        goto out;
    }
    if (n < LENGTH_BYTES) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL,
                        "is no safetensors file: %lld bytes long, where the header's length alone "
                        "takes 8", (long long)n);
        goto out;
    }
    if (length > MAX_HEADER_BYTES) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL,
                        "is no safetensors file: its header's length would be %llu, more than %d "
                        "(byte 0)", (unsigned long long)length, MAX_HEADER_BYTES);
        goto out;
    }
    if ((int64_t)length > n_file_bytes - LENGTH_BYTES) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL,
                        "is cut short: its header is %llu bytes long, the file only %lld (byte 0)",
                        (unsigned long long)length, (long long)n_file_bytes);
        goto out;
    }
    if (length < 2) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL,
                        "has a header of %llu bytes; the shortest is \"{}\" (byte 0)",
                        (unsigned long long)length);
        goto out;
    }
    *n_header_bytes = (int64_t)length;
out:
    return st;
}

/* Open name below the folder dir_fd, called path in messages. */
static vp_status open_at(int dir_fd, const char *name, const char *path, vp_safetensors **out,
                         vp_err *err)
{
    vp_status       st   = VP_OK;
    vp_safetensors *file = calloc(1, sizeof *file);
    header_parser  *p    = NULL;
    int64_t         n_file_bytes = 0, n_header_bytes = 0;

    *out = NULL;
    VP_TRY_ALLOC(err, file);
    file->fd    = -1;
    file->arena = vp_arena_new();
    VP_TRY_ALLOC(err, file->arena);
    file->path = vp_arena_strdup(file->arena, path);
    VP_TRY_ALLOC(err, file->path);
    p = calloc(1, sizeof *p);
    VP_TRY_ALLOC(err, p);
    if (is_pickle_name(name)) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL,
                        "files of this name hold pickles and are never opened; convert it to "
                        "safetensors");
        goto out;
    }
    VP_TRY(vp_file_open(dir_fd, name, path, &file->fd, &n_file_bytes, err));
    VP_TRY(read_length(file, n_file_bytes, &n_header_bytes, err));
    file->data_byte    = LENGTH_BYTES + n_header_bytes;
    file->n_data_bytes = n_file_bytes - file->data_byte;
    p->file            = file;
    VP_TRY(vp_lex_from_fd(&p->lex, file->path, file->fd, LENGTH_BYTES, file->data_byte, err));
    p->lex.field          = p->field;
    p->lex.by_byte        = true;
    p->lex.max_text_bytes = MAX_NAME_BYTES;
    VP_TRY(read_header(p, err));
    VP_TRY(check_whole(file, err));
    *out = file;
    file = NULL;
out:
    if (p)
        vp_lex_release(&p->lex);
    free(p);
    vp_safetensors_close(file);
    return st;
}

vp_status vp_safetensors_open(const char *path, vp_safetensors **out, vp_err *err)
{
    return open_at(AT_FDCWD, path, path, out, err);
}

void vp_safetensors_close(vp_safetensors *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->by_offset);
    free(file->by_name);
    vp_arena_free(file->arena);
    free(file);
}

int64_t vp_safetensors_count(const vp_safetensors *file)
{
    return file->n;
}

const vp_tensor_info *vp_safetensors_at(const vp_safetensors *file, int64_t idx)
{
    assert(idx >= 0 && idx < file->n);
    return &file->by_offset[idx]->info;
}

const vp_tensor_info *vp_safetensors_find(const vp_safetensors *file, const char *name)
{
    int64_t low = 0, high = file->n;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int     c      = strcmp(name, file->by_name[middle]->info.name);

        if (c == 0)
            return &file->by_name[middle]->info;
        if (c < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *vp_safetensors_path(const vp_safetensors *file)
{
    return file->path;
}

vp_status vp_safetensors_read(const vp_safetensors *file, const vp_tensor_info *tensor,
                              int64_t first, int64_t n, void *buf, vp_err *err)
{
    int64_t size = dtypes[tensor->dtype].bytes;

    assert(first >= 0 && n >= 0 && first <= tensor->n_elements && n <= tensor->n_elements - first);
    return read_at(file, file->data_byte + tensor->begin_byte + first * size, n * size, buf, err);
}

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. Every value is a float. */
static float float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
    float    small;

    if (exponent == 0x1f)
        return float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return float_of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
    small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}

vp_status vp_safetensors_read_f32(const vp_safetensors *file, const vp_tensor_info *tensor,
                                  int64_t first, int64_t n, float *buf, vp_err *err)
{
    vp_status st    = VP_OK;
    void     *piece = NULL;
    char      shown[200];

    if (tensor->dtype == VP_ST_F32)
        return vp_safetensors_read(file, tensor, first, n, buf, err);
    if (tensor->dtype != VP_ST_F64 && tensor->dtype != VP_ST_F16 && tensor->dtype != VP_ST_BF16) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0,
                        vp_text_escape(tensor->name, shown, sizeof shown),
                        "a tensor of dtype %s cannot be read as float", dtypes[tensor->dtype].name);
        goto out;
    }
    piece = malloc(CONVERT_ELEMENTS * sizeof(double));
    VP_TRY_ALLOC(err, piece);
    while (n > 0) {
        int64_t         n_now = vp_min_i64(n, CONVERT_ELEMENTS);
        const uint16_t *half  = piece;
        const double   *wide  = piece;

        VP_TRY(vp_safetensors_read(file, tensor, first, n_now, piece, err));
        for (int64_t i = 0; i < n_now; i++)
            buf[i] = tensor->dtype == VP_ST_BF16  ? float_of_bits((uint32_t)half[i] << 16)
                     : tensor->dtype == VP_ST_F16 ? float_of_f16(half[i])
                                                  : (float)wide[i];
        buf += n_now;
        first += n_now;
        n -= n_now;
    }
out:
    free(piece);
    return st;
}

/* ---- a folder of files ---- */

typedef struct shard {
    const char     *name;
    int             line;  /* of the index where it is first named */
    vp_safetensors *file;
} shard;

typedef struct placed {
    const char           *name;
    shard                *shard;
    int                   line;  /* of the index; 0 without one */
    const vp_tensor_info *info;
    vp_safetensors       *file;
} placed;

struct vp_checkpoint {
    vp_arena *arena;
    char     *index_path;
    shard   **shards;  /* by name */
    int64_t   n_shards, cap_shards;
    placed   *tensors; /* by name */
    int64_t   n_tensors, cap_tensors;
};

static const char index_name[]  = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

/* Why a file's name from an index is refused; NULL when it names something in the index's folder. */
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
    shard    *s   = NULL;

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
    *out  = &ckpt->tensors[ckpt->n_tensors++];
    **out = (placed){0};
out:
    return st;
}

typedef struct index_parser {
    vp_lex         lex;
    vp_checkpoint *ckpt;
    bool           has_map, has_total;
    int64_t        total_bytes;
    int            total_line;
    char           key[MAX_NAME_BYTES + 1];
    char           field[240];
    int            key_line;
} index_parser;

/* The members of an object whose brace is the current token: calls member(), which reads the value,
 * behind each colon, with the key in p->key. */
static vp_status each_member(index_parser *p, vp_status (*member)(index_parser *, vp_err *), vp_err *err)
{
    vp_status st = VP_OK;

    if (p->lex.kind != VP_LEX_OBJECT) {
        st = vp_lex_unexpected(&p->lex, "an object", err);
        goto out;
    }
    VP_TRY(vp_lex_next(&p->lex, err));
    while (p->lex.kind != VP_LEX_OBJECT_END) {
        if (p->lex.kind != VP_LEX_STRING) {
            st = vp_lex_unexpected(&p->lex, "a key in double quotes", err);
            goto out;
        }
        memcpy(p->key, p->lex.text, p->lex.n_text_bytes + 1);
        p->key_line = p->lex.line;
        VP_TRY(vp_lex_want(&p->lex, VP_LEX_COLON, "\":\" after the key", err));
        VP_TRY(member(p, err));
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_OBJECT_END)
            break;
        if (p->lex.kind != VP_LEX_COMMA) {
            st = vp_lex_unexpected(&p->lex, "\",\" or \"}\"", err);
            goto out;
        }
        VP_TRY(vp_lex_next(&p->lex, err));
        if (p->lex.kind == VP_LEX_OBJECT_END) {
            st = vp_lex_unexpected(&p->lex, "a key after the comma", err);
            goto out;
        }
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
    if (p->ckpt->n_tensors == MAX_TENSORS) {
        st = vp_lex_fail(&p->lex, err, "more than %d tensors", MAX_TENSORS);
        goto out;
    }
    VP_TRY(vp_lex_want(&p->lex, VP_LEX_STRING, "the name of a shard", err));
    bad = bad_shard_name(p->lex.text);
    if (bad) {
        st = vp_lex_fail(&p->lex, err, "%s: \"%s\"", bad,
                         vp_text_escape(p->lex.text, shown, 80));
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

    return c ? c : compare_i64(x->line, y->line);
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
    p->lex.max_text_bytes = MAX_NAME_BYTES;
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
                st = fail_index(ckpt, 0, name, err, "%s holds this tensor, the index does not list it",
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

static vp_status open_shards(vp_checkpoint *ckpt, const char *dir, int dir_fd, vp_err *err)
{
    vp_status    st = VP_OK;
    index_parser *p = calloc(1, sizeof *p);

    VP_TRY_ALLOC(err, p);
    VP_TRY(read_index(ckpt, dir_fd, p, err));
    for (int64_t i = 0; i < ckpt->n_shards; i++) {
        char *path = vp_arena_printf(ckpt->arena, "%s/%s", dir, ckpt->shards[i]->name);
        VP_TRY_ALLOC(err, path);
        VP_TRY(open_at(dir_fd, ckpt->shards[i]->name, path, &ckpt->shards[i]->file, err));
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
    VP_TRY(open_at(dir_fd, single_name, path, &s->file, err));
    for (int64_t i = 0; i < s->file->n; i++) {
        VP_TRY(add_placed(ckpt, &t, err));
        t->info  = &s->file->by_name[i]->info;
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

    if (file)
        *file = t ? t->file : NULL;
    return t ? t->info : NULL;
}

/* ---- writing ---- */

typedef struct to_write {
    const vp_tensor_data *tensor;
    int64_t               begin_byte, n_bytes;
} to_write;

static int compare_written_names(const void *a, const void *b)
{
    const to_write *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

static int compare_written_data(const void *a, const void *b)
{
    const to_write *const *x = a, *const *y = b;
    int c = compare_i64(dtypes[(*y)->tensor->dtype].bytes, dtypes[(*x)->tensor->dtype].bytes);

    return c ? c : strcmp((*x)->tensor->name, (*y)->tensor->name);
}

static void put_json_string(vp_text *t, const char *text)
{
    vp_text_append(t, "\"", 1);
    for (const char *at = text; *at; at++) {
        if (*at == '"' || *at == '\\')
            vp_text_printf(t, "\\%c", *at);
        else if ((unsigned char)*at < 0x20)
            vp_text_printf(t, "\\u%04x", (unsigned)*at);
        else
            vp_text_append(t, at, 1);
    }
    vp_text_append(t, "\"", 1);
}

static bool is_utf8(const char *text)
{
    size_t n = strlen(text);

    while (n) {
        uint32_t code;
        size_t   length = vp_utf8_at(text, n, &code);
        if (!length)
            return false;
        text += length;
        n -= length;
    }
    return true;
}

/* Names that the format cannot hold, or that a reader would refuse. */
static vp_status check_names(const to_write *items, int64_t n, vp_err *err)
{
    char shown[200];

    for (int64_t i = 0; i < n; i++) {
        const char *name = items[i].tensor->name;

        if (!is_utf8(name) || strlen(name) > MAX_NAME_BYTES || !strcmp(name, metadata_name) ||
            (i && !strcmp(name, items[i - 1].tensor->name)))
            return VP_FAIL(err, VP_ERR_INTERNAL,
                           "\"%s\" cannot be a tensor's name here: not UTF-8, too long, reserved, or "
                           "there twice", vp_text_escape(name, shown, sizeof shown));
    }
    return VP_OK;
}

vp_status vp_safetensors_write(const char *path, const vp_tensor_data *tensors, int64_t n,
                               bool overwrite, vp_err *err)
{
    vp_status      st     = VP_OK;
    to_write      *items  = calloc((size_t)n + 1, sizeof *items);
    to_write     **order  = calloc((size_t)n + 1, sizeof(to_write *));
    vp_text        header = {0};
    vp_file_writer w      = {0};
    int64_t        end_byte = 0;
    unsigned char  length[LENGTH_BYTES];
    bool           written;

    assert(n >= 0);
    VP_TRY_ALLOC(err, items);
    VP_TRY_ALLOC(err, order);
    for (int64_t i = 0; i < n; i++) {
        assert(tensors[i].rank >= 0 && tensors[i].rank <= VP_TENSOR_MAX_RANK);
        for (int d = 0; d < tensors[i].rank; d++)
            assert(tensors[i].shape[d] >= 0);
        items[i].tensor  = &tensors[i];
        items[i].n_bytes = vp_mul(product(tensors[i].shape, tensors[i].rank),
                                  vp_st_dtype_bytes(tensors[i].dtype));
    }
    qsort(items, (size_t)n, sizeof *items, compare_written_names);
    VP_TRY(check_names(items, n, err));
    /* Wide elements first: then every tensor is aligned to its element in the data section, which
     * readers that view the file's bytes as elements ask for. */
    for (int64_t i = 0; i < n; i++)
        order[i] = &items[i];
    qsort(order, (size_t)n, sizeof(to_write *), compare_written_data);
    for (int64_t i = 0; i < n; i++) {
        order[i]->begin_byte = end_byte;
        end_byte             = vp_add(end_byte, order[i]->n_bytes);
    }
    if (vp_overflowed(end_byte)) {
        st = VP_FAIL_AT(err, VP_ERR_INTERNAL, path, 0, NULL, "the tensors to write are 2^63 bytes or "
                                                            "more");
        goto out;
    }
    vp_text_printf(&header, "{\"%s\":{\"format\":\"pt\"}", metadata_name);
    for (int64_t i = 0; i < n; i++) {
        const vp_tensor_data *t = items[i].tensor;

        vp_text_append(&header, ",", 1);
        put_json_string(&header, t->name);
        vp_text_printf(&header, ":{\"dtype\":\"%s\",\"shape\":[", dtypes[t->dtype].name);
        for (int d = 0; d < t->rank; d++)
            vp_text_printf(&header, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        vp_text_printf(&header, "],\"data_offsets\":[%lld,%lld]}", (long long)items[i].begin_byte,
                       (long long)(items[i].begin_byte + items[i].n_bytes));
    }
    vp_text_append(&header, "}", 1);
    while (!header.failed && header.n_bytes % 8)
        vp_text_append(&header, " ", 1);  /* the data section begins at a multiple of 8 */
    VP_TRY_ALLOC(err, header.data);
    if (header.n_bytes > MAX_HEADER_BYTES || n > MAX_TENSORS) {
        st = VP_FAIL_AT(err, VP_ERR_INTERNAL, path, 0, NULL, "too many tensors for one file");
        goto out;
    }
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (unsigned char)(header.n_bytes >> 8 * i);
    VP_TRY(vp_file_begin(path, overwrite, &w, err));
    errno = 0;
    written = fwrite(length, 1, sizeof length, w.stream) == sizeof length &&
              fwrite(header.data, 1, header.n_bytes, w.stream) == header.n_bytes;
    for (int64_t i = 0; i < n && written; i++) {
        size_t n_bytes = (size_t)order[i]->n_bytes;
        written = !n_bytes || fwrite(order[i]->tensor->data, 1, n_bytes, w.stream) == n_bytes;
    }
    if (!written) {
        st = VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "cannot write it: %s",
                        strerror(errno ? errno : EIO));
        goto out;
    }
    VP_TRY(vp_file_commit(&w, err));
out:
    vp_file_abort(&w);
    vp_text_release(&header);
    free(order);
    free(items);
    return st;
}
