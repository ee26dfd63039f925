#include "base/text.h"
#include "base/base_internal.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

locale_t vp_c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Room for n_more bytes and a NUL behind what is there. */
static bool reserve(vp_text *t, size_t n_more)
{
    size_t need_bytes, cap_bytes = t->cap_bytes ? t->cap_bytes : 64;
    char  *moved;

    if (t->failed)
        return false;
    assert(t->n_bytes < t->cap_bytes ||
           (t->n_bytes == 0 && t->cap_bytes == 0)); /* the NUL's room */
    if (__builtin_add_overflow(t->n_bytes, n_more, &need_bytes) || need_bytes >= SIZE_MAX / 4)
        goto fail;
    need_bytes++;
    if (need_bytes <= t->cap_bytes)
        return true;
    while (cap_bytes < need_bytes)
        cap_bytes *= 2;
    moved = realloc(t->data, cap_bytes);
    if (!moved)
        goto fail;
    t->data      = moved;
    t->cap_bytes = cap_bytes;
    return true;
fail:
    free(t->data);
    *t = (vp_text){.failed = true};
    return false;
}

void vp_text_append(vp_text *t, const char *bytes, size_t n_bytes)
{
    if (!reserve(t, n_bytes))
        return;
    if (n_bytes)
        memcpy(t->data + t->n_bytes, bytes, n_bytes);
    t->n_bytes += n_bytes;
    t->data[t->n_bytes] = '\0';
}

const char *vp_text_string(const vp_text *t)
{
    return t->data ? t->data : "";
}

void vp_text_printf(vp_text *t, const char *fmt, ...)
{
    va_list  ap;
    locale_t c_locale, before;
    int      n = -1;

    if (t->failed)
        return;
    c_locale = vp_c_locale();
    if (c_locale) {
        before = uselocale(c_locale);
        va_start(ap, fmt);
        n = vsnprintf(NULL, 0, fmt, ap);
        va_end(ap);
        if (n >= 0 && reserve(t, (size_t)n)) {
            va_start(ap, fmt);
            vsnprintf(t->data + t->n_bytes, (size_t)n + 1, fmt, ap);
            va_end(ap);
            t->n_bytes += (size_t)n;
        }
        uselocale(before);
        freelocale(c_locale);
    }
    if (n < 0) {
        free(t->data);
        *t = (vp_text){.failed = true};
    }
}

void vp_text_release(vp_text *t)
{
    free(t->data);
    *t = (vp_text){0};
}

size_t vp_utf8_at(const char *text, size_t n, uint32_t *code)
{
    const unsigned char *b = (const unsigned char *)text;
    size_t               length;
    uint32_t             c, least;

    assert(n > 0);
    if (b[0] < 0x80) {
        *code = b[0];
        return 1;
    }
    if (b[0] >= 0xc2 && b[0] <= 0xdf) {
        length = 2, c = b[0] & 0x1fu, least = 0x80;
    } else if (b[0] >= 0xe0 && b[0] <= 0xef) {
        length = 3, c = b[0] & 0x0fu, least = 0x800;
    } else if (b[0] >= 0xf0 && b[0] <= 0xf4) {
        length = 4, c = b[0] & 0x07u, least = 0x10000;
    } else {
        return 0;
    }
    if (n < length)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (b[i] & 0x3fu);
    }
    if (c < least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *code = c;
    return length;
}

/* Controls that act on a terminal, and the characters that reorder text (CVE-2021-42574). */
static bool is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069) || c == 0x200e || c == 0x200f || c == 0x061c;
}

const char *vp_text_escape(const char *text, char *buf, size_t buf_size)
{
    size_t n_left = strlen(text);
    size_t used   = 0; /* bytes in buf                                              */
    size_t keep   = 0; /* bytes after which "..." and the NUL still have their room */

    if (!buf_size)
        return buf;
    /* what is nothing but printable ASCII, as nearly all is, in one go */
    size_t n_plain = 0;
    while (n_plain < n_left && text[n_plain] >= 0x20 && text[n_plain] < 0x7f)
        n_plain++;
    if (n_plain == n_left && n_left < buf_size)
        return memcpy(buf, text, n_left + 1);
    while (n_left) {
        char     piece[8];
        uint32_t c;
        size_t   n_piece, length = vp_utf8_at(text, n_left, &c);

        if (!length) {
            length = 1;
            n_piece =
                (size_t)snprintf(piece, sizeof piece, "\\x%02x", (unsigned)(unsigned char)text[0]);
        } else if (!is_unsafe(c)) {
            memcpy(piece, text, length);
            n_piece = length;
        } else if (c < 0x80) {
            n_piece = (size_t)snprintf(piece, sizeof piece, "\\x%02x", (unsigned)c);
        } else {
            n_piece = (size_t)snprintf(piece, sizeof piece, "\\u%04x", (unsigned)c & 0xffffu);
        }
        if (used + n_piece >= buf_size) {
            used = keep;
            for (int i = 0; i < 3 && used + 1 < buf_size; i++)
                buf[used++] = '.';
            break;
        }
        assert(n_piece < sizeof piece);
        memcpy(buf + used, piece, n_piece);
        used += n_piece;
        if (used + 4 <= buf_size)
            keep = used;
        text += length;
        n_left -= length;
    }
    assert(used < buf_size);
    buf[used] = '\0';
    return buf;
}

void vp_text_append_escaped(vp_text *t, const char *text)
{
    size_t most = 4 * strlen(text); /* an escape is four times as long at most */

    if (!reserve(t, most))
        return;
    vp_text_escape(text, t->data + t->n_bytes, t->cap_bytes - t->n_bytes);
    t->n_bytes += strlen(t->data + t->n_bytes);
}

const char *vp_err_text(const vp_err *err, char *buf, size_t buf_size)
{
    char line[sizeof err->message + sizeof err->file + sizeof err->field + 32];
    bool has_file  = err->file[0] && !strstr(err->message, err->file);
    bool has_field = err->field[0] && !strstr(err->message, err->field);
    int  n         = 0;

    if (has_file && err->line)
        n = snprintf(line, sizeof line, "%s:%d: ", err->file, err->line);
    else if (has_file)
        n = snprintf(line, sizeof line, "%s: ", err->file);
    if (has_field)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s: ", err->field);
    assert(n >= 0 && (size_t)n < sizeof line); /* file and field fit: see its size */
    snprintf(line + n, sizeof line - (size_t)n, "%s",
             err->message[0] ? err->message : "internal error");
    return vp_text_escape(line, buf, buf_size);
}
