/* trainers/files/emit.h: settings become a trainer's files.
 *     vp_emitted out;
 *     VP_TRY(vp_emit(arena, target, &settings, "vplan emit s.json --for trl", &out, err));
 *
 * Every key of the target's tables that memory depends on is written, also where it equals the
 * default. Nothing is dropped: a setting that the target's version has no word for is VP_ERR_INPUT
 * that names the word, and the version that does where one is known. */
#ifndef VP_TRAINERS_FILES_EMIT_H
#define VP_TRAINERS_FILES_EMIT_H

#include "base/text.h"
#include "trainers/files/target.h"

enum { VP_EMIT_MAX_FILES = 12 };

typedef struct vp_emitted_file {
    const char       *name;
    const char       *text;
    const vp_dialect *dialect; /* NULL: README.md */
    vp_document      *document;
} vp_emitted_file;

typedef struct vp_emitted {
    vp_emitted_file files[VP_EMIT_MAX_FILES];
    int             n_files;
    const char     *launch;                /* the command line */
    const char     *script[VP_N_SETTINGS]; /* what the user's own code decides, as sentences */
    int             n_script;
    const char *world; /* the processes, where no file says how many and there are several; NULL */
    const char *environment; /* "NAME=VALUE" that stands before the command; NULL: nothing */
    json_t     *versions;    /* {library: version}: the caller's */
    const char     *
        other; /* "transformers=4.57,...": those of them by which files are read otherwise than by the usual ones; NULL */
    json_t *settings; /* {file: {key: value}}: the caller's */
} vp_emitted;

/* made_by stands in every file as the command that made it; NULL: only whether the files can be written is asked, none has
 * a text. */
vp_status vp_emit(vp_arena *arena, const vp_target *target, const vp_settings *s,
                  const char *made_by, vp_emitted *out, vp_err *err);
void      vp_emitted_release(vp_emitted *out);

/* As vp_settings_complete(); where the target cannot be told the default loss and has one alone, that. */
vp_status vp_emit_complete(vp_arena *arena, const vp_target *target, vp_settings *s,
                           const char *file, vp_err *err);

/* What vplan check is told beside the files, as the end of its command: " --versions trl=1.10 --world 4". */
void vp_emitted_check_options(const vp_emitted *e, vp_text *out);

/* A document as text, with a comment's lines above where its format has comments.
 * trainers/files/write.c */
void vp_document_write(const vp_document *doc, const vp_dialect *dialect, const char *comment,
                       vp_text *out);

/* A value of the key's type from its text. False: out of memory, or too many values. */
bool vp_value_set(vp_document *doc, vp_value *v, const vp_key *key, const char *text);

/* One value on one line, as the format's files have it. */
void vp_value_write(const vp_value *v, vp_format format, vp_text *out);

#endif
