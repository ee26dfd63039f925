/* trainers/files/edit.h: what must change in people's own files so that they mean other settings, and
 * the text of a file with that changed: comments, order and all other keys stay.
 *     VP_TRY(vp_edits_list(&checked, &wanted, &edits, &n, err));
 *     VP_TRY(vp_edits_apply(arena, edits, n, file, bytes, n_bytes, &text, err));
 *     VP_TRY(vp_edits_prove(&checked, file, &wanted, edits, n, &text, err));   // then write it
 *
 * Only keys that say a setting which is meant otherwise are among the edits: in every file that says
 * it, or where none does in the first that can. */
#ifndef VP_TRAINERS_FILES_EDIT_H
#define VP_TRAINERS_FILES_EDIT_H

#include "base/text.h"
#include "trainers/files/check.h"

typedef struct vp_edit {
    const vp_checked_file *file; /* NULL: no file says it, the command's environment does */
    vp_setting             setting;
    const vp_key          *key;
    const char            *path;  /* the key's; of the environment its variable */
    const vp_value        *at;    /* NULL: it is not written yet */
    const char            *from;  /* NULL: nothing stands there */
    const char            *to;    /* NULL: it must go */
    bool                   keeps; /* of a list: members that are in both stand as they do */
} vp_edit;

/* In the order of the settings. A setting that is NULL in wanted stays as it is. VP_ERR_INPUT: none of
 * the files can be told a word. */
vp_status vp_edits_list(const vp_checked *c, const vp_settings *wanted, vp_edit **out, int64_t *n,
                        vp_err *err);

/* Whether the files mean this word of a setting, or may. */
bool vp_edit_means(const vp_checked *c, vp_setting s, const char *word);

/* Of a setting that none of the files has a word for: which of those that emit would write anew says it; NULL: none, or it is
 * said already, or is what nobody has to say. trainers/files/edit_elsewhere.c */
struct vp_emitted;
const char *vp_edit_elsewhere(const vp_checked *c, const vp_settings *wanted, const vp_edit *edits,
                              int64_t n, const struct vp_emitted *anew, vp_setting s);

/* Whether an edit is of this file, or of a part of it (vp_checked_file.is_part). */
bool vp_edit_is_of(const vp_edit *x, const vp_checked_file *file);

/* The edits of one file in its text. VP_ERR_INPUT with the line: what stands there cannot be changed
 * in place (a list, an alias, a value over several lines). */
vp_status vp_edits_apply(vp_arena *arena, const vp_edit *edits, int64_t n,
                         const vp_checked_file *file, const char *bytes, int64_t n_bytes,
                         vp_text *out, vp_err *err);

/* The edited text, read as the file itself was: every edit's key has its new value, all others the
 * value that they had, and the settings are the wanted ones. VP_ERR_INPUT with the key and the line
 * that could not be edited: the text must not be written. trainers/files/edit_proof.c */
vp_status vp_edits_prove(const vp_checked *c, const vp_checked_file *file,
                         const vp_settings *wanted, const vp_edit *edits, int64_t n,
                         const vp_text *text, vp_err *err);

/* The lines that differ, "-" and "+" before them, with their numbers in the old text. */
void vp_edits_diff(const char *name, const char *before, const char *after, vp_text *out);

#endif
