/* trainers/files/edit_internal.h: what the parts of an edit share: the text of one file, and the patches that are made to it. */
#ifndef VP_TRAINERS_FILES_EDIT_INTERNAL_H
#define VP_TRAINERS_FILES_EDIT_INTERNAL_H

#include "trainers/files/edit.h"

typedef struct vp_patch {
    size_t      at, n_removed;
    const char *text;
    int         order; /* among patches of one place */
} vp_patch;

typedef struct vp_editor {
    vp_arena              *arena;
    const vp_checked_file *file;
    const char            *bytes;
    size_t                 n_bytes;
    vp_patch              *patches;
    int64_t                n, cap;
    const vp_edit         *edits;
    int64_t                n_edits;
    const char            *eol; /* as the file has it */
    vp_err                *err;
} vp_editor;

/* Refuses: VP_ERR_INPUT with key and line. */
vp_status vp_edit_by_hand(vp_editor *e, int line, const char *key, const char *why);

/* Some bytes at some place become text. */
vp_status vp_edit_put(vp_editor *e, size_t at, size_t n_removed, const char *text);

size_t vp_edit_line_start(const vp_editor *e, int line);
size_t vp_edit_line_end(const vp_editor *e, size_t at);
/* Where a pair's key, or an element, begins. */
size_t vp_edit_place(const vp_editor *e, const vp_value *v);
bool   vp_edit_is_first(const vp_editor *e, size_t at);

/* Where the comment begins that the line has before `at`; `at`: none. JSON has none. */
size_t vp_edit_before_comment(const vp_editor *e, size_t at);

/* Whether a key stands in braces: what is before it, spaces, lines and comments apart, is one or a
 * comma. */
bool vp_edit_is_in_flow(const vp_editor *e, size_t at);

size_t vp_edit_skip_spaces(const vp_editor *e, size_t at, size_t end);

/* Behind the quoted text that begins at `at`; end where it does not end. */
size_t vp_edit_skip_quoted(const vp_editor *e, size_t at, size_t end);

/* Behind the key and what parts it from its value. False: another text stands there. */
bool vp_edit_skip_key(const vp_editor *e, const char *path, size_t *at, size_t end);

/* Where a value begins that may stand below its key: spaces, lines and comments apart. */
size_t vp_edit_value_start(const vp_editor *e, size_t at);

/* The end of a value that begins at `at`. False: it goes on in another line, or is no plain one. */
bool vp_edit_value_end(const vp_editor *e, size_t at, size_t end, bool flow, size_t *out);

/* Members that go make room for those that come; the others stay as they are written. flow: in brackets. edit_list.c */
vp_status vp_edit_list(vp_editor *e, const vp_edit *x, bool flow);

/* What an option of a command has as JSON: the first edit of it writes it anew, with all others. edit_option.c */
vp_status vp_edit_option(vp_editor *e, const vp_edit *x);

#endif
