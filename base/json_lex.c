#include "base/base_internal.h"
#include "base/text.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW_BYTES = 64 * 1024, MAX_NUMBER_BYTES = 1024, NO_BYTE = -1 };

static void start(vp_lex *lex, const char *name, int64_t begin_byte)
{
    memset(lex, 0, sizeof *lex);
    lex->name           = name;
    lex->fd             = -1;
    lex->max_text_bytes = 64 * 1024;
    lex->window_byte    = begin_byte;
    lex->now_line       = 1;
    lex->now_line_byte  = begin_byte;
    lex->line           = 1;
    lex->column         = 1;
    lex->at_byte        = begin_byte;
}

void vp_lex_from_memory(vp_lex *lex, const char *name, const char *bytes, int64_t n_bytes,
                        int64_t begin_byte)
{
    assert(n_bytes >= 0);
    start(lex, name, begin_byte);
    lex->window = (const unsigned char *)bytes;
    lex->at     = lex->window;
    lex->end    = lex->window + n_bytes;
}

vp_status vp_lex_from_fd(vp_lex *lex, const char *name, int fd, int64_t begin_byte,
                         int64_t end_byte, vp_err *err)
{
    vp_status st = VP_OK;

    assert(begin_byte <= end_byte);
    start(lex, name, begin_byte);
    lex->fd           = fd;
    lex->fd_next_byte = begin_byte;
    lex->fd_end_byte  = end_byte;
    lex->window_buf   = malloc(WINDOW_BYTES);
    VP_TRY_ALLOC(err, lex->window_buf);
    lex->window = lex->at = lex->end = lex->window_buf;
out:
    return st;
}

void vp_lex_release(vp_lex *lex)
{
    free(lex->window_buf);
    free(lex->text);
    lex->window_buf = NULL;
    lex->text       = NULL;
}

/* The next piece of the file. NO_BYTE at its end, when it is shorter than it was, or unreadable. */
static int refill(vp_lex *lex)
{
    size_t  n_wanted = WINDOW_BYTES;
    ssize_t n;

    if (lex->fd < 0 || lex->fd_next_byte >= lex->fd_end_byte || lex->shrank || lex->read_errno)
        return NO_BYTE;
    if (lex->fd_end_byte - lex->fd_next_byte < (int64_t)n_wanted)
        n_wanted = (size_t)(lex->fd_end_byte - lex->fd_next_byte);
    assert(n_wanted > 0 && lex->window_buf);
    do
        n = pread(lex->fd, lex->window_buf, n_wanted, (off_t)lex->fd_next_byte);
    while (n < 0 && errno == EINTR);
    if (n <= 0) {
        lex->shrank     = n == 0;
        lex->read_errno = n < 0 ? errno : 0;
        return NO_BYTE;
    }
    lex->window_byte = lex->fd_next_byte;
    lex->fd_next_byte += n;
    lex->at  = lex->window_buf;
    lex->end = lex->window_buf + n;
    assert(lex->fd_next_byte <= lex->fd_end_byte);
    return *lex->at;
}

static inline int peek(vp_lex *lex)
{
    return lex->at < lex->end ? *lex->at : refill(lex);
}

static int64_t now_byte(const vp_lex *lex)
{
    return lex->window_byte + (lex->at - lex->window);
}

/* The current token is where the tokenizer now stands. */
static void mark(vp_lex *lex)
{
    int64_t column = now_byte(lex) - lex->now_line_byte + 1;

    lex->at_byte = now_byte(lex);
    assert(column >= 1); /* a line begins at or before what stands on it */
    lex->line   = lex->now_line;
    lex->column = column < INT32_MAX ? (int)column : INT32_MAX;
}

static vp_status fail_at_token(const vp_lex *lex, vp_err *err, const char *message)
{
    if (lex->by_byte)
        return VP_FAIL_AT(err, VP_ERR_INPUT, lex->name, 0, lex->field, "%s (byte %lld)", message,
                          (long long)lex->at_byte);
    return VP_FAIL_AT(err, VP_ERR_INPUT, lex->name, lex->line, lex->field, "%s (column %d)",
                      message, lex->column);
}

vp_status vp_lex_fail(const vp_lex *lex, vp_err *err, const char *fmt, ...)
{
    char    message[768];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return fail_at_token(lex, err, message);
}

/* An error where the tokenizer now stands; a failed read is the better reason if there was one. */
static vp_status fail_here(vp_lex *lex, vp_err *err, const char *message)
{
    char text[160];

    mark(lex);
    if (lex->read_errno) {
        snprintf(text, sizeof text, "cannot read on: %s", strerror(lex->read_errno));
        message = text;
    } else if (lex->shrank) {
        message = "the file became shorter while it was read";
    }
    return fail_at_token(lex, err, message);
}

static vp_status put(vp_lex *lex, const void *bytes, size_t n, size_t max_bytes, const char *what,
                     vp_err *err)
{
    if (n > max_bytes || lex->n_text_bytes > max_bytes - n)
        return vp_lex_fail(lex, err, "this %s is longer than %zu bytes", what, max_bytes);
    if (lex->n_text_bytes + n >= lex->text_cap_bytes) {
        size_t cap_bytes = lex->text_cap_bytes ? lex->text_cap_bytes : 256;
        char  *moved;

        while (cap_bytes <= lex->n_text_bytes + n)
            cap_bytes *= 2;
        moved = realloc(lex->text, cap_bytes);
        if (!moved)
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        lex->text           = moved;
        lex->text_cap_bytes = cap_bytes;
    }
    assert(lex->n_text_bytes + n < lex->text_cap_bytes); /* the NUL's room */
    memcpy(lex->text + lex->n_text_bytes, bytes, n);
    lex->n_text_bytes += n;
    lex->text[lex->n_text_bytes] = '\0';
    return VP_OK;
}

static vp_status put_string(vp_lex *lex, const void *bytes, size_t n, vp_err *err)
{
    return lex->skip_text ? VP_OK : put(lex, bytes, n, lex->max_text_bytes, "string", err);
}

/* Four hexadecimal digits. */
static vp_status read_hex4(vp_lex *lex, uint32_t *code, vp_err *err)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        int      c = peek(lex);
        uint32_t digit;

        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            digit = (uint32_t)(c - 'A' + 10);
        else
            return fail_here(lex, err, "four hexadecimal digits must follow \\u");
        *code = *code << 4 | digit;
        lex->at++;
    }
    return VP_OK;
}

/* What follows a backslash. */
static vp_status read_escape(vp_lex *lex, vp_err *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    vp_status         st = VP_OK;
    int               c  = peek(lex);
    uint32_t          code, low;
    char              utf8[4];
    size_t            n;

    if (c != 'u') {
        const char *known = c > 0 ? strchr(from, c) : NULL;
        if (!known)
            return fail_here(lex, err,
                             c == NO_BYTE ? "the text ends inside a string"
                                          : "no such escape after a backslash");
        lex->at++;
        return put_string(lex, to + (known - from), 1, err);
    }
    lex->at++;
    VP_TRY(read_hex4(lex, &code, err));
    if (code == 0) {
        st = fail_here(lex, err, "a string may not hold the character NUL (\\u0000)");
        goto out;
    }
    if (code >= 0xd800 && code <= 0xdfff) {
        low = 0;
        if (code <= 0xdbff && peek(lex) == '\\') {
            lex->at++;
            if (peek(lex) == 'u') {
                lex->at++;
                VP_TRY(read_hex4(lex, &low, err));
            }
        }
        if (low < 0xdc00 || low > 0xdfff) {
            st = fail_here(lex, err, "half of a surrogate pair stands alone");
            goto out;
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code < 0x80) {
        utf8[0] = (char)code, n = 1;
    } else if (code < 0x800) {
        utf8[0] = (char)(0xc0 | code >> 6), n = 2;
    } else if (code < 0x10000) {
        utf8[0] = (char)(0xe0 | code >> 12), n = 3;
    } else {
        utf8[0] = (char)(0xf0 | code >> 18), n = 4;
    }
    assert(code != 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff));
    for (size_t i = 1; i < n; i++)
        utf8[i] = (char)(0x80 | (code >> 6 * (n - 1 - i) & 0x3f));
    VP_TRY(put_string(lex, utf8, n, err));
out:
    return st;
}

/* One character beyond ASCII. It may straddle two windows. */
static vp_status read_utf8(vp_lex *lex, vp_err *err)
{
    unsigned char bytes[4];
    size_t        n      = 0;
    int           c      = peek(lex);
    size_t        length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    uint32_t      code;

    mark(lex);
    while (n < length && c >= 0x80 && (n == 0 || (c & 0xc0) == 0x80)) {
        bytes[n++] = (unsigned char)c;
        lex->at++;
        if (n < length)
            c = peek(lex);
    }
    assert(n > 0); /* called where a byte beyond ASCII stands */
    if (vp_utf8_at((const char *)bytes, n, &code) != length) {
        if (lex->read_errno || lex->shrank)
            return fail_here(lex, err, "");
        return vp_lex_fail(lex, err, "byte 0x%02x here is not valid UTF-8", bytes[0]);
    }
    return put_string(lex, bytes, length, err);
}

static vp_status read_string(vp_lex *lex, vp_err *err)
{
    vp_status st     = VP_OK;
    int64_t   byte   = lex->at_byte;
    int       line   = lex->line;
    int       column = lex->column;

    lex->at++;
    VP_TRY(put_string(lex, "", 0, err));
    for (;;) {
        const unsigned char *run = lex->at;
        int                  c;

        while (lex->at < lex->end && *lex->at >= 0x20 && *lex->at < 0x80 && *lex->at != '"' &&
               *lex->at != '\\')
            lex->at++;
        if (lex->at > run)
            VP_TRY(put_string(lex, run, (size_t)(lex->at - run), err));
        c = peek(lex);
        if (c == NO_BYTE) {
            st = fail_here(lex, err, "the text ends inside a string");
            goto out;
        }
        if (c == '"') {
            lex->at++;
            break;
        }
        if (c == '\\') {
            lex->at++;
            VP_TRY(read_escape(lex, err));
        } else if (c >= 0x80) {
            VP_TRY(read_utf8(lex, err));
        } else if (c < 0x20) {
            st = fail_here(lex, err,
                           c == '\n' || c == '\r'
                               ? "the line ends inside a string"
                               : "a control character stands unescaped in a string");
            goto out;
        }
    }
    lex->at_byte = byte;
    lex->line    = line;
    lex->column  = column;
    lex->kind    = VP_LEX_STRING;
out:
    return st;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

/* Take one byte into text. */
static vp_status take(vp_lex *lex, const char *what, vp_err *err)
{
    assert(lex->at < lex->end); /* after a peek() that found a byte */
    vp_status st = put(lex, lex->at, 1, MAX_NUMBER_BYTES, what, err);
    if (st == VP_OK)
        lex->at++;
    return st;
}

static vp_status take_digits(vp_lex *lex, const char *missing, vp_err *err)
{
    vp_status st = VP_OK;

    if (!is_digit(peek(lex))) {
        st = fail_here(lex, err, peek(lex) == NO_BYTE ? "the text ends inside a number" : missing);
        goto out;
    }
    do { /* those of the window at once; a number may straddle two */
        const unsigned char *run = lex->at;
        while (lex->at < lex->end && is_digit(*lex->at))
            lex->at++;
        VP_TRY(put(lex, run, (size_t)(lex->at - run), MAX_NUMBER_BYTES, "number", err));
    } while (is_digit(peek(lex)));
out:
    return st;
}

/* A literal name. Whole words are compared, so that `nulls` or `True` is told as it stands. */
static vp_status read_word(vp_lex *lex, vp_err *err)
{
    static const struct {
        const char *text;
        vp_lex_kind kind;
    } words[] = {
        {"true", VP_LEX_TRUE}, {"false", VP_LEX_FALSE},       {"null", VP_LEX_NULL},
        {"NaN", VP_LEX_NAN},   {"Infinity", VP_LEX_INFINITY}, {"-Infinity", VP_LEX_MINUS_INFINITY},
    };
    vp_status st = VP_OK;
    char      shown[40];

    while (is_word(peek(lex)))
        VP_TRY(take(lex, "word", err));
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(lex->text, words[i].text)) {
            lex->kind = words[i].kind;
            goto out;
        }
    st = vp_lex_fail(lex, err, "\"%s\" is no JSON value",
                     vp_text_escape(lex->text, shown, sizeof shown));
out:
    return st;
}

static vp_status read_number(vp_lex *lex, vp_err *err)
{
    vp_status st = VP_OK;

    lex->kind = VP_LEX_INTEGER;
    if (peek(lex) == '-') {
        VP_TRY(take(lex, "number", err));
        if (peek(lex) == 'I')
            return read_word(lex, err);
    }
    if (peek(lex) == '0') {
        VP_TRY(take(lex, "number", err));
        if (is_digit(peek(lex))) {
            st = fail_here(lex, err, "a number may not begin with a zero");
            goto out;
        }
    } else {
        VP_TRY(take_digits(lex, "a digit must follow the sign", err));
    }
    if (peek(lex) == '.') {
        lex->kind = VP_LEX_REAL;
        VP_TRY(take(lex, "number", err));
        VP_TRY(take_digits(lex, "a digit must follow the point", err));
    }
    if (peek(lex) == 'e' || peek(lex) == 'E') {
        lex->kind = VP_LEX_REAL;
        VP_TRY(take(lex, "number", err));
        if (peek(lex) == '+' || peek(lex) == '-')
            VP_TRY(take(lex, "number", err));
        VP_TRY(take_digits(lex, "a digit must follow the exponent sign", err));
    }
    if (is_word(peek(lex)))
        st = fail_here(lex, err, "letters follow a number");
out:
    return st;
}

vp_status vp_lex_next(vp_lex *lex, vp_err *err)
{
    static const vp_lex_kind marks[128] = {
        ['{'] = VP_LEX_OBJECT,    ['}'] = VP_LEX_OBJECT_END, ['['] = VP_LEX_ARRAY,
        [']'] = VP_LEX_ARRAY_END, [':'] = VP_LEX_COLON,      [','] = VP_LEX_COMMA,
    };
    int c;

    for (;;) {
        while (lex->at < lex->end && *lex->at == ' ') /* most of a file that is indented */
            lex->at++;
        c = peek(lex);
        if (c == '\n') {
            lex->now_line++;
            lex->now_line_byte = now_byte(lex) + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            break;
        }
        lex->at++;
    }
    mark(lex);
    lex->n_text_bytes = 0;
    if (lex->text)
        lex->text[0] = '\0';
    if (c > 0 && c < 128 && marks[c]) {
        lex->kind = marks[c];
        lex->at++;
        return VP_OK;
    }
    if (c == NO_BYTE) {
        lex->kind = VP_LEX_END;
        return lex->read_errno || lex->shrank ? fail_here(lex, err, "") : VP_OK;
    }
    if (c == '"')
        return read_string(lex, err);
    if (c == '-' || is_digit(c))
        return read_number(lex, err);
    if (is_word(c))
        return read_word(lex, err);
    if (c == '\'')
        return vp_lex_fail(lex, err, "strings stand in double quotes");
    if (c == '/' || c == '#')
        return vp_lex_fail(lex, err, "JSON has no comments");
    if (c > 0x20 && c < 0x7f)
        return vp_lex_fail(lex, err, "unexpected character \"%c\"", c);
    return vp_lex_fail(lex, err, "unexpected byte 0x%02x", (unsigned)c);
}

vp_status vp_lex_unexpected(const vp_lex *lex, const char *what, vp_err *err)
{
    static const char *const names[] = {
        [VP_LEX_END]            = "the end of the text",
        [VP_LEX_OBJECT]         = "\"{\"",
        [VP_LEX_OBJECT_END]     = "\"}\"",
        [VP_LEX_ARRAY]          = "\"[\"",
        [VP_LEX_ARRAY_END]      = "\"]\"",
        [VP_LEX_COLON]          = "\":\"",
        [VP_LEX_COMMA]          = "\",\"",
        [VP_LEX_STRING]         = "the string",
        [VP_LEX_INTEGER]        = "the number",
        [VP_LEX_REAL]           = "the number",
        [VP_LEX_TRUE]           = "true",
        [VP_LEX_FALSE]          = "false",
        [VP_LEX_NULL]           = "null",
        [VP_LEX_NAN]            = "NaN",
        [VP_LEX_INFINITY]       = "Infinity",
        [VP_LEX_MINUS_INFINITY] = "-Infinity",
    };
    char shown[80];

    assert((size_t)lex->kind < sizeof names / sizeof names[0]);
    if (lex->kind == VP_LEX_STRING && lex->skip_text)
        return vp_lex_fail(lex, err, "expected %s, found a string", what);
    if (lex->kind == VP_LEX_STRING)
        return vp_lex_fail(lex, err, "expected %s, found the string \"%s\"", what,
                           vp_text_escape(lex->text, shown, sizeof shown));
    if (lex->kind == VP_LEX_INTEGER || lex->kind == VP_LEX_REAL)
        return vp_lex_fail(lex, err, "expected %s, found the number %s", what,
                           vp_text_escape(lex->text, shown, sizeof shown));
    return vp_lex_fail(lex, err, "expected %s, found %s", what, names[lex->kind]);
}

vp_status vp_lex_want(vp_lex *lex, vp_lex_kind kind, const char *what, vp_err *err)
{
    vp_status st = vp_lex_next(lex, err);
    return st == VP_OK && lex->kind != kind ? vp_lex_unexpected(lex, what, err) : st;
}

vp_status vp_lex_more(vp_lex *lex, vp_lex_kind end, const char *either, const char *after_comma,
                      bool *more, vp_err *err)
{
    vp_status st = VP_OK;

    assert(end == VP_LEX_OBJECT_END || end == VP_LEX_ARRAY_END);
    VP_TRY(vp_lex_next(lex, err));
    *more = lex->kind != end;
    if (*more && lex->kind != VP_LEX_COMMA)
        VP_TRY(vp_lex_unexpected(lex, either, err));
    if (*more)
        VP_TRY(vp_lex_next(lex, err));
    if (*more && lex->kind == end)
        VP_TRY(vp_lex_unexpected(lex, after_comma, err));
out:
    return st;
}

vp_status vp_lex_skip_value(vp_lex *lex, int max_depth, vp_err *err)
{
    vp_status   st   = VP_OK;
    bool        skip = lex->skip_text, is_object;
    vp_lex_kind end;

    lex->skip_text = true;
    switch (lex->kind) {
    case VP_LEX_STRING:
    case VP_LEX_INTEGER:
    case VP_LEX_REAL:
    case VP_LEX_TRUE:
    case VP_LEX_FALSE:
    case VP_LEX_NULL:
        break;
    case VP_LEX_OBJECT:
    case VP_LEX_ARRAY:
        is_object = lex->kind == VP_LEX_OBJECT;
        end       = is_object ? VP_LEX_OBJECT_END : VP_LEX_ARRAY_END;
        if (max_depth <= 0) {
            st = vp_lex_fail(lex, err, "nested too deep");
            goto out;
        }
        VP_TRY(vp_lex_next(lex, err));
        for (bool more = lex->kind != end; more;) {
            if (is_object) {
                if (lex->kind != VP_LEX_STRING) {
                    st = vp_lex_unexpected(lex, "a key in double quotes", err);
                    goto out;
                }
                VP_TRY(vp_lex_want(lex, VP_LEX_COLON, "\":\" after the key", err));
                VP_TRY(vp_lex_next(lex, err));
            }
            VP_TRY(vp_lex_skip_value(lex, max_depth - 1, err));
            VP_TRY(vp_lex_more(lex, end, is_object ? "\",\" or \"}\"" : "\",\" or \"]\"",
                               is_object ? "a key after the comma" : "a value after the comma",
                               &more, err));
        }
        break;
    default:
        st = vp_lex_unexpected(lex, "a value", err);
    }
out:
    lex->skip_text = skip;
    return st;
}
