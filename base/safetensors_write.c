/* base/safetensors_write.c: writing a safetensors file. */
#include "base/base_internal.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    int64_t                x_bytes = vp_st_dtype_bytes((*x)->tensor->dtype);
    int64_t                y_bytes = vp_st_dtype_bytes((*y)->tensor->dtype);

    return x_bytes != y_bytes ? (x_bytes < y_bytes) - (x_bytes > y_bytes)
                              : strcmp((*x)->tensor->name, (*y)->tensor->name);
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

        if (!is_utf8(name) || strlen(name) > VP_ST_MAX_NAME_BYTES ||
            !strcmp(name, VP_ST_METADATA) || (i && !strcmp(name, items[i - 1].tensor->name)))
            return VP_FAIL(
                err, VP_ERR_INTERNAL,
                "\"%s\" cannot be a tensor's name here: not UTF-8, too long, reserved, or "
                "there twice",
                vp_text_escape(name, shown, sizeof shown));
    }
    return VP_OK;
}

vp_status vp_safetensors_write(const char *path, const vp_tensor_data *tensors, int64_t n,
                               bool overwrite, vp_err *err)
{
    vp_status      st       = VP_OK;
    to_write      *items    = calloc((size_t)n + 1, sizeof *items);
    to_write     **order    = calloc((size_t)n + 1, sizeof(to_write *));
    vp_text        header   = {0};
    vp_file_writer w        = {0};
    int64_t        end_byte = 0;
    unsigned char  length[VP_ST_LENGTH_BYTES];
    bool           written;

    assert(n >= 0);
    VP_TRY_ALLOC(err, items);
    VP_TRY_ALLOC(err, order);
    for (int64_t i = 0; i < n; i++) {
        assert(tensors[i].rank >= 0 && tensors[i].rank <= VP_TENSOR_MAX_RANK);
        for (int d = 0; d < tensors[i].rank; d++)
            assert(tensors[i].shape[d] >= 0);
        items[i].tensor  = &tensors[i];
        items[i].n_bytes = vp_mul(vp_st_elements(tensors[i].shape, tensors[i].rank),
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
        st = VP_FAIL_AT(err, VP_ERR_INTERNAL, path, 0, NULL,
                        "the tensors to write are 2^63 bytes or "
                        "more");
        goto out;
    }
    vp_text_printf(&header, "{\"%s\":{\"format\":\"pt\"}", VP_ST_METADATA);
    for (int64_t i = 0; i < n; i++) {
        const vp_tensor_data *t = items[i].tensor;

        vp_text_append(&header, ",", 1);
        put_json_string(&header, t->name);
        vp_text_printf(&header, ":{\"dtype\":\"%s\",\"shape\":[", vp_st_dtype_name(t->dtype));
        for (int d = 0; d < t->rank; d++)
            vp_text_printf(&header, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        vp_text_printf(&header, "],\"data_offsets\":[%lld,%lld]}", (long long)items[i].begin_byte,
                       (long long)(items[i].begin_byte + items[i].n_bytes));
    }
    vp_text_append(&header, "}", 1);
    while (!header.failed && header.n_bytes % 8)
        vp_text_append(&header, " ", 1); /* the data section begins at a multiple of 8 */
    VP_TRY_ALLOC(err, header.data);
    if (header.n_bytes > VP_ST_MAX_HEADER_BYTES || n > VP_ST_MAX_TENSORS) {
        st = VP_FAIL_AT(err, VP_ERR_INTERNAL, path, 0, NULL, "too many tensors for one file");
        goto out;
    }
    assert(header.n_bytes % 8 == 0); /* or the data's elements are not aligned in the file */
    for (int i = 0; i < VP_ST_LENGTH_BYTES; i++)
        length[i] = (unsigned char)(header.n_bytes >> 8 * i);
    VP_TRY(vp_file_begin(path, overwrite, &w, err));
    assert(w.stream);
    errno   = 0;
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
