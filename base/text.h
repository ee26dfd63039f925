/* base/text.h: growing text, and text from outside made safe to show.
 *     vp_text t = {0};
 *     vp_text_printf(&t, "%s\n", name);
 *     vp_text_release(&t);
 * A vp_text that ran out of memory stays failed and empty; test once at the end. */
#ifndef VP_BASE_TEXT_H
#define VP_BASE_TEXT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct vp_text {
    char  *data; /* NUL-terminated, or NULL while empty */
    size_t n_bytes, cap_bytes;
    bool   failed;
} vp_text;

void vp_text_printf(vp_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void vp_text_append(vp_text *t, const char *bytes, size_t n_bytes);
void vp_text_release(vp_text *t);

/* What t holds, "" while that is nothing; t's own, until t changes. */
const char *vp_text_string(const vp_text *t);

/* Append text so that a terminal shows it harmlessly, as vp_text_escape() does, whole. */
void vp_text_append_escaped(vp_text *t, const char *text);

/* Copy text into buf so that a terminal shows it harmlessly: C0, C1 and DEL controls, invalid
 * UTF-8 and bidirectional controls (U+202A..202E, U+2066..2069, U+200E, U+200F, U+061C) become
 * visible escapes such as \x1b and \u202e; cut with "..." where buf ends. Returns buf. */
const char *vp_text_escape(const char *text, char *buf, size_t buf_size);

/* An error as one line for people, escaped: "config.json:7: n_embd: must be ...". Returns buf. */
const char *vp_err_text(const vp_err *err, char *buf, size_t buf_size);

#endif
