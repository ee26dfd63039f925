#include "base/safetensors.h"
#include "base/arena.h"
#include "base/base_internal.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are read as they are stored");

/* elements converted at a time */
enum { CONVERT_ELEMENTS = 8192 };

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

int64_t vp_st_elements(const int64_t *shape, int rank)
{
    int64_t n = 1;

    assert(rank >= 0 && rank <= VP_TENSOR_MAX_RANK);

    for (int d = 0; d < rank; d++)
        if (shape[d] == 0)
            return 0;
    for (int d = 0; d < rank; d++)
        n = vp_mul(n, shape[d]);
    return n;
}

/* ---- the header ---- */

typedef struct entry {
    vp_tensor_info info;
    int64_t        name_byte; /* where its name stands in the file */
} entry;

struct vp_safetensors {
    char     *path;
    int       fd;
    int64_t   data_byte; /* where the data section begins in the file */
    int64_t   n_data_bytes;
    vp_arena *arena;     /* entries and names */
    entry   **by_offset; /* in the order of the data */
    entry   **by_name;
    int64_t   n, cap;
};

typedef struct header_parser {
    vp_lex          lex;
    vp_safetensors *file;
    char            name[VP_ST_MAX_NAME_BYTES + 1];
    char            field[240]; /* what errors name: the tensor, and then its part */
    size_t          n_field_name;
} header_parser;

static void set_field_name(header_parser *p)
{
    vp_text_escape(p->name, p->field, 200);
    p->n_field_name = strlen(p->field);
}

static void set_field_part(header_parser *p, const char *part)
{
    assert(p->n_field_name + 1 + strlen(part) < sizeof p->field);
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
    for (bool more = p->lex.kind != VP_LEX_ARRAY_END; more;) {
        if (*n == n_max) {
            st = vp_lex_fail(&p->lex, err, "more than %d numbers stand here", n_max);
            goto out;
        }
        assert(*n < n_max);
        VP_TRY(read_size(p, what, &sizes[*n], err));
        ++*n;
        VP_TRY(vp_lex_more(&p->lex, VP_LEX_ARRAY_END, "\",\" or \"]\"", "a number after the comma",
                           &more, err));
    }
out:
    return st;
}

/* {"dtype": .., "shape": [..], "data_offsets": [begin, end]}, its brace the current token. */
static vp_status read_tensor(header_parser *p, vp_tensor_info *info, vp_err *err)
{
    static const char *const keys[3] = {"dtype", "shape", "data_offsets"};
    vp_status                st      = VP_OK;
    bool                     have[3] = {false, false, false};
    int64_t                  offsets[2], n_bytes;
    int                      n_offsets, which;
    char                     shown[80];

    if (p->lex.kind != VP_LEX_OBJECT) {
        st = vp_lex_unexpected(&p->lex, "an object with dtype, shape and data_offsets", err);
        goto out;
    }
    VP_TRY(vp_lex_next(&p->lex, err));
    for (bool more = p->lex.kind != VP_LEX_OBJECT_END; more;) {
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
                st = vp_lex_fail(&p->lex, err,
                                 "two offsets must stand here, begin and end; found %d", n_offsets);
                goto out;
            }
        }
        VP_TRY(vp_lex_more(&p->lex, VP_LEX_OBJECT_END, "\",\" or \"}\"", "a key after the comma",
                           &more, err));
    }
    for (which = 0; which < 3; which++)
        if (!have[which]) {
            set_field_part(p, keys[which]);
            st = vp_lex_fail(&p->lex, err, "%s is missing", keys[which]);
            goto out;
        }
    set_field_part(p, "data_offsets");
    if (offsets[0] > offsets[1] || offsets[1] > p->file->n_data_bytes) {
        st = vp_lex_fail(&p->lex, err,
                         "data [%lld, %lld) does not lie within the %lld bytes that the "
                         "file holds",
                         (long long)offsets[0], (long long)offsets[1],
                         (long long)p->file->n_data_bytes);
        goto out;
    }
    set_field_part(p, "shape");
    info->begin_byte = offsets[0];
    info->n_bytes    = offsets[1] - offsets[0];
    info->n_elements = vp_st_elements(info->shape, info->rank);
    n_bytes          = vp_mul(info->n_elements, vp_st_dtype_bytes(info->dtype));
    if (vp_overflowed(n_bytes)) {
        st = vp_lex_fail(&p->lex, err,
                         "the product of the dimensions is too large (2^63 bytes or more)");
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
    for (bool more = p->lex.kind != VP_LEX_OBJECT_END; more;) {
        if (p->lex.kind != VP_LEX_STRING) {
            st = vp_lex_unexpected(&p->lex, "a key in double quotes", err);
            goto out;
        }
        VP_TRY(vp_lex_want(&p->lex, VP_LEX_COLON, "\":\" after the key", err));
        VP_TRY(vp_lex_want(&p->lex, VP_LEX_STRING, "a string, as all metadata are", err));
        VP_TRY(vp_lex_more(&p->lex, VP_LEX_OBJECT_END, "\",\" or \"}\"", "a key after the comma",
                           &more, err));
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
    assert(file->n < file->cap);
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
    if (p->lex.at_byte != VP_ST_LENGTH_BYTES) {
        st = vp_lex_fail(&p->lex, err, "the header must begin with \"{\", not with white space");
        goto out;
    }
    VP_TRY(vp_lex_next(&p->lex, err));
    for (bool more = p->lex.kind != VP_LEX_OBJECT_END; more;) {
        int64_t name_byte = p->lex.at_byte;

        if (p->lex.kind != VP_LEX_STRING) {
            st = vp_lex_unexpected(&p->lex, "the name of a tensor in double quotes", err);
            goto out;
        }
        /* the tokenizer refuses longer strings: lex.max_text_bytes is VP_ST_MAX_NAME_BYTES */
        assert(p->lex.n_text_bytes < sizeof p->name);
        memcpy(p->name, p->lex.text, p->lex.n_text_bytes + 1);
        set_field_name(p);
        if (strcmp(p->name, VP_ST_METADATA)) {
            if (p->file->n == VP_ST_MAX_TENSORS) {
                st = vp_lex_fail(&p->lex, err, "more than %d tensors", VP_ST_MAX_TENSORS);
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
        VP_TRY(vp_lex_more(&p->lex, VP_LEX_OBJECT_END, "\",\" or \"}\" after a tensor",
                           "a name after the comma", &more, err));
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

static vp_status fail_entry(const vp_safetensors *file, const entry *e, vp_err *err,
                            const char *message)
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
            st = fail_entry(file, file->by_name[i], err,
                            "a tensor of this name stands in the header "
                            "twice");
            goto out;
        }
    for (int64_t i = 0; i < file->n; i++) {
        const vp_tensor_info *t = &file->by_offset[i]->info;

        if (t->begin_byte != end_byte) {
            snprintf(
                message, sizeof message,
                t->begin_byte < end_byte
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

/* ---- the file ---- */

/* What a file that is no safetensors file is instead, from its first bytes; NULL when unknown. */
static const char *other_kind(const unsigned char *b, size_t n)
{
    static const struct {
        const char *magic;
        size_t      n;
        const char *kind;
    } kinds[] = {
        {"PK\x03\x04", 4,
         "a zip archive, as torch.save writes it (pickle inside, which is never opened)"},
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
    size_t                   n      = strlen(path);

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (n > strlen(ends[i]) && !strcmp(path + n - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

/* Read n bytes at a byte of the file. */
static vp_status read_at(const vp_safetensors *file, int64_t at_byte, int64_t n, void *buf,
                         vp_err *err)
{
    char *to = buf;

    assert(at_byte >= 0 && n >= 0);
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

/* The header's length, with everything that can be said about the file before its header is
 * read. */
static vp_status read_length(vp_safetensors *file, int64_t n_file_bytes, int64_t *n_header_bytes,
                             vp_err *err)
{
    vp_status     st     = VP_OK;
    unsigned char b[16]  = {0};
    int64_t       n      = vp_min_i64(n_file_bytes, sizeof b);
    uint64_t      length = 0;
    const char   *kind;

    VP_TRY(read_at(file, 0, n, b, err));
    for (int i = VP_ST_LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | b[i];
    kind = other_kind(b, (size_t)n);
    if (kind && (n < VP_ST_LENGTH_BYTES || length > VP_ST_MAX_HEADER_BYTES ||
                 (int64_t)length > n_file_bytes - VP_ST_LENGTH_BYTES)) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL, "is no safetensors file but %s",
                        kind);
        goto out;
    }
    if (n < VP_ST_LENGTH_BYTES) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL,
                        "is no safetensors file: %lld bytes long, where the header's length alone "
                        "takes 8",
                        (long long)n);
        goto out;
    }
    if (length > VP_ST_MAX_HEADER_BYTES) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, file->path, 0, NULL,
                        "is no safetensors file: its header's length would be %llu, more than %d "
                        "(byte 0)",
                        (unsigned long long)length, VP_ST_MAX_HEADER_BYTES);
        goto out;
    }
    if ((int64_t)length > n_file_bytes - VP_ST_LENGTH_BYTES) {
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

vp_status vp_safetensors_open_at(int dir_fd, const char *name, const char *path,
                                 vp_safetensors **out, vp_err *err)
{
    vp_status       st           = VP_OK;
    vp_safetensors *file         = calloc(1, sizeof *file);
    header_parser  *p            = NULL;
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
    file->data_byte    = VP_ST_LENGTH_BYTES + n_header_bytes;
    file->n_data_bytes = n_file_bytes - file->data_byte;
    assert(file->n_data_bytes >= 0); /* read_length() refuses a header beyond the file's end */
    p->file = file;
    VP_TRY(vp_lex_from_fd(&p->lex, file->path, file->fd, VP_ST_LENGTH_BYTES, file->data_byte, err));
    p->lex.field          = p->field;
    p->lex.by_byte        = true;
    p->lex.max_text_bytes = VP_ST_MAX_NAME_BYTES;
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
    return vp_safetensors_open_at(AT_FDCWD, path, path, out, err);
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

const vp_tensor_info *vp_safetensors_by_name(const vp_safetensors *file, int64_t idx)
{
    assert(idx >= 0 && idx < file->n);
    return &file->by_name[idx]->info;
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
    int64_t size = vp_st_dtype_bytes(tensor->dtype);

    assert(first >= 0 && n >= 0 && first <= tensor->n_elements && n <= tensor->n_elements - first);
    /* check_whole() has seen that the tensor lies in the data section */
    assert(tensor->begin_byte >= 0 && tensor->begin_byte <= file->n_data_bytes - tensor->n_bytes);
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

    assert(first >= 0 && n >= 0 && first <= tensor->n_elements && n <= tensor->n_elements - first);
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
