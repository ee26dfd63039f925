/* base/json.h: strict JSON with located errors, over jansson.
 *     vp_json_doc *doc;
 *     VP_TRY(vp_json_read("config.json", VP_JSON_MAX_BYTES, &doc, err));
 *     vp_json_node root = vp_json_root(doc);
 *     VP_TRY(vp_json_int(&root, "n_layer", 1, 100000, &n_layer, err));
 *
 * A document keeps its text, so that every error names file, line, field and what was expected.
 * Limits: bytes as given, nesting 64, a string 64 KiB, 200,000 values. Duplicate keys, invalid
 * UTF-8, NUL escapes and anything after the value are errors; a byte-order mark is skipped and
 * noted. NaN, Infinity and -Infinity are not JSON but stand in published files: they are read,
 * and only using such a field is an error; the same holds for numbers no double holds, like
 * 1e400 (in node.value they are strings: use the calls below, which know). An integer beyond 64
 * bits is read as a real. Nothing here depends on the locale. */
#ifndef VP_BASE_JSON_H
#define VP_BASE_JSON_H

#include "base/err.h"
#include "base/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define VP_JSON_MAX_BYTES ((int64_t)4 << 20)

typedef struct vp_json_doc vp_json_doc;

/* Read a document from a regular file; "-" is standard input. VP_ERR_INPUT for what the file holds
 * or is (directory, FIFO, device, too large), VP_ERR_NOMEM. Free with vp_json_doc_free(). */
vp_status vp_json_read(const char *path, int64_t max_bytes, vp_json_doc **out, vp_err *err);

/* The same from memory; name stands for the file in messages. bytes are copied. */
vp_status vp_json_parse(const char *name, const char *bytes, int64_t n_bytes, vp_json_doc **out,
                        vp_err *err);
void      vp_json_doc_free(vp_json_doc *doc);

const char *vp_json_name(const vp_json_doc *doc);
bool        vp_json_had_bom(const vp_json_doc *doc);
/* The text it was read from. */
const char *vp_json_text(const vp_json_doc *doc, int64_t *n_bytes);

/* A value inside a document: plain data, borrowed from it. */
typedef struct vp_json_node {
    const vp_json_doc *doc;
    json_t            *value;
    char               path[200]; /* "optimizer.betas[0]"; "" for the root */
} vp_json_node;

vp_json_node vp_json_root(const vp_json_doc *doc);

/* VP_FAIL located at a node, or at the member `key` of it (key NULL: the node itself). */
vp_status vp_json_fail(const vp_json_node *node, const char *key, vp_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Whether object node has key with a value that is not null. */
bool vp_json_has(const vp_json_node *node, const char *key);

/* Members of an object and elements of an array; a missing or mistyped one is VP_ERR_INPUT. key
 * NULL means the node itself, so that an element is read by vp_json_real(&element, NULL, ...).
 * Integers come from integer tokens or from reals that are exact integers below 2^53. Strings
 * are borrowed from the document and hold no NUL. */
vp_status vp_json_object(const vp_json_node *node, const char *key, vp_json_node *out, vp_err *err);
vp_status vp_json_array(const vp_json_node *node, const char *key, vp_json_node *out, int64_t *n,
                        vp_err *err);
vp_status vp_json_element(const vp_json_node *array, int64_t idx, vp_json_node *out, vp_err *err);
vp_status vp_json_int(const vp_json_node *node, const char *key, int64_t min, int64_t max,
                      int64_t *out, vp_err *err);
vp_status vp_json_real(const vp_json_node *node, const char *key, double min, double max,
                       double *out, vp_err *err);
vp_status vp_json_bool(const vp_json_node *node, const char *key, bool *out, vp_err *err);
vp_status vp_json_string(const vp_json_node *node, const char *key, const char **out, vp_err *err);

/* The node's own value, for array elements. */
vp_status vp_json_as_int(const vp_json_node *node, int64_t min, int64_t max, int64_t *out,
                         vp_err *err);
vp_status vp_json_as_real(const vp_json_node *node, double min, double max, double *out,
                          vp_err *err);
vp_status vp_json_as_string(const vp_json_node *node, const char **out, vp_err *err);

/* VP_ERR_INPUT, naming the first stranger, unless every key of object node is in the
 * NULL-terminated list. For files that vplan owns. */
vp_status vp_json_only_keys(const vp_json_node *node, const char *const *keys, vp_err *err);

/* A quantity that is never negative, or null where it is: not known. */
json_t *vp_json_real_or_null(double x);
json_t *vp_json_int_or_null(int64_t x);

/* A text that may hold bytes that are no UTF-8, like a file's name: escaped then; null for "". */
json_t *vp_json_text_or_null(const char *text);

/* Serialise with keys in insertion order, two-space indent, reals with 17 significant digits, and a
 * final line feed. Returns false when memory ran out. */
bool vp_json_dump(const json_t *value, vp_text *out);

#endif
