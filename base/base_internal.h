/* base/base_internal.h: what the files of base/ share and nobody else includes.
 *     vp_lex lex;
 *     VP_TRY(vp_lex_from_fd(&lex, "model.safetensors", fd, 8, 8 + n_header_bytes, err));
 *     VP_TRY(vp_lex_next(&lex, err));
 *     if (lex.kind != VP_LEX_OBJECT) ...
 *     vp_lex_release(&lex);
 *
 * One strict JSON tokenizer serves documents in memory (json.c) and headers read in pieces
 * (safetensors.c, safetensors_index.c), so a rule about bytes, escapes or numbers stands in one
 * place. */
#ifndef VP_BASE_INTERNAL_H
#define VP_BASE_INTERNAL_H

#include "base/err.h"
#include "base/safetensors.h"

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The "C" locale, whatever the program set; (locale_t)0 when memory ran out. Free with
 * freelocale(). */
locale_t vp_c_locale(void);

/* The double nearest to a decimal number already known to be spelled as one ("-1.5e3"), read with
 * '.' in any locale. false when it is too large for a double, not zero yet too small for one, or
 * memory ran out. */
bool vp_decimal_to_double(const char *digits, double *out);

/* Bytes of the UTF-8 sequence at text (its character in *code), 0 when it is not valid UTF-8. n > 0
 * bytes are there. Overlong forms, surrogates and characters beyond U+10FFFF are not valid. */
size_t vp_utf8_at(const char *text, size_t n, uint32_t *code);

/* SHA-256's compression of n_blocks of 64 bytes (FIPS 180-4, 6.2.2): in C, by the processor's own
 * instructions where it has them, and the faster of both. All leave the same state. */
void vp_sha256_blocks_c(uint32_t state[8], const unsigned char *p, size_t n_blocks);
bool vp_sha256_has_x86(void);
void vp_sha256_blocks_x86(uint32_t state[8], const unsigned char *p, size_t n_blocks);
void vp_sha256_blocks(uint32_t state[8], const unsigned char *p, size_t n_blocks);

typedef enum vp_lex_kind {
    VP_LEX_END,
    VP_LEX_OBJECT,
    VP_LEX_OBJECT_END,
    VP_LEX_ARRAY,
    VP_LEX_ARRAY_END,
    VP_LEX_COLON,
    VP_LEX_COMMA,
    VP_LEX_STRING,  /* text: decoded, valid UTF-8, no NUL */
    VP_LEX_INTEGER, /* text: as spelled                   */
    VP_LEX_REAL,    /* text: as spelled                   */
    VP_LEX_TRUE,
    VP_LEX_FALSE,
    VP_LEX_NULL,
    VP_LEX_NAN,
    VP_LEX_INFINITY,
    VP_LEX_MINUS_INFINITY
} vp_lex_kind;

typedef struct vp_lex {
    /* the token, set by vp_lex_next() */
    vp_lex_kind kind;
    char       *text; /* of a string or number; NUL-terminated                 */
    size_t      n_text_bytes;
    int64_t     at_byte;      /* where the token begins in the file                    */
    int         line, column; /* the same, 1-based                                     */

    /* what the user of the tokenizer may change between tokens */
    const char *field;          /* path named in errors; borrowed, may be NULL           */
    size_t      max_text_bytes; /* a longer string is an error                           */
    bool        skip_text;      /* strings are checked, not kept, and may have any length */
    bool        by_byte;        /* errors give the byte in the file, not line and column */

    /* its own */
    const char          *name;
    int                  fd; /* -1: nothing lies beyond the window    */
    int                  read_errno;
    bool                 shrank;
    int64_t              fd_next_byte, fd_end_byte;
    unsigned char       *window_buf;
    const unsigned char *window, *at, *end;
    int64_t              window_byte; /* where the window begins in the file   */
    int                  now_line;
    int64_t              now_line_byte; /* where the current line begins         */
    size_t               text_cap_bytes;
} vp_lex;

/* name and bytes are borrowed. begin_byte is where bytes[0] stands in the file. */
void vp_lex_from_memory(vp_lex *lex, const char *name, const char *bytes, int64_t n_bytes,
                        int64_t begin_byte);

/* Bytes [begin_byte, end_byte) of a regular file, read in pieces by pread(). fd is borrowed. */
vp_status vp_lex_from_fd(vp_lex *lex, const char *name, int fd, int64_t begin_byte,
                         int64_t end_byte, vp_err *err);
void      vp_lex_release(vp_lex *lex);

/* The next token. VP_ERR_INPUT with its position for anything that is not JSON. */
vp_status vp_lex_next(vp_lex *lex, vp_err *err);

/* The same, and VP_ERR_INPUT that says `what` was expected unless it is of that kind. */
vp_status vp_lex_want(vp_lex *lex, vp_lex_kind kind, const char *what, vp_err *err);

/* VP_ERR_INPUT located at the current token. */
vp_status vp_lex_fail(const vp_lex *lex, vp_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* VP_ERR_INPUT: `what` was expected where the current token stands. */
vp_status vp_lex_unexpected(const vp_lex *lex, const char *what, vp_err *err);

/* Behind a value inside an object (end is VP_LEX_OBJECT_END) or array: whether another member or
 * element follows, whose first token is then the current one. In errors `either` says what may
 * stand behind a value and `after_comma` what must stand there.
 *     VP_TRY(vp_lex_next(lex, err));
 *     for (bool more = lex->kind != VP_LEX_ARRAY_END; more;) {
 *         ... read the value, up to its last token ...
 *         VP_TRY(vp_lex_more(lex, VP_LEX_ARRAY_END, "\",\" or \"]\"", "a value", &more, err));
 *     } */
vp_status vp_lex_more(vp_lex *lex, vp_lex_kind end, const char *either, const char *after_comma,
                      bool *more, vp_err *err);

/* Skip the value whose first token is the current one, nested at most max_depth deep. */
vp_status vp_lex_skip_value(vp_lex *lex, int max_depth, vp_err *err);

/* What kind of file mode st_mode describes, like "a directory". Static storage. */
const char *vp_file_kind(unsigned st_mode);

/* Open a regular file for reading, name below the folder dir_fd (AT_FDCWD: the current one), links
 * followed. Nothing but a regular file is opened at all. shown is the path for messages. */
vp_status vp_file_open(int dir_fd, const char *name, const char *shown, int *fd, int64_t *n_bytes,
                       vp_err *err);

/* ---- safetensors: reading a file, the index of a folder, writing ---- */

enum {
    VP_ST_LENGTH_BYTES     = 8,
    VP_ST_MAX_HEADER_BYTES = 100000000,
    VP_ST_MAX_NAME_BYTES   = 4096,
    VP_ST_MAX_TENSORS      = 1000000
};

/* The one name in a header that is no tensor's. */
#define VP_ST_METADATA "__metadata__"

/* Elements of a shape; a size of 0 anywhere makes 0, however large the others are. VP_OVERFLOW
 * beyond 64 bits. */
int64_t vp_st_elements(const int64_t *shape, int rank);

/* Open name below the folder dir_fd, called path in messages. */
vp_status vp_safetensors_open_at(int dir_fd, const char *name, const char *path,
                                 vp_safetensors **out, vp_err *err);

/* In the order of their names. */
const vp_tensor_info *vp_safetensors_by_name(const vp_safetensors *file, int64_t idx);

#endif
