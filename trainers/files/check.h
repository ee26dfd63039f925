/* trainers/files/check.h: what people's files will really do.
 *     vp_checked c;
 *     VP_TRY(vp_check(arena, inputs, n, &(vp_check_opts){0}, &c, err));
 *     for (int i = 0; i < c.n_findings; i++) puts(c.findings[i].message);
 *
 * A file that cannot be read is a finding too, not an error of the call. Nothing is executed; no file
 * is opened but those given and, where that is asked for, those that these name. */
#ifndef VP_TRAINERS_FILES_CHECK_H
#define VP_TRAINERS_FILES_CHECK_H

#include "trainers/files/target.h"

typedef struct vp_finding {
    vp_severity severity;
    const char *file;
    int         line; /* 0: no line of the file says it */
    const char *key;  /* "" of the file as a whole */
    const char *message;
    const char *instead; /* NULL: nothing is named */
    const char *from;    /* what stands there; NULL: nothing */
} vp_finding;

enum { VP_CHECK_MAX_FILES = 32 };

typedef struct vp_checked_file {
    vp_document      *doc; /* NULL: it was not read */
    const char       *name;
    const vp_dialect *dialect; /* NULL: nobody's */
    /* of the dialect's library, where none was asked for and the file's keys are of a newer one than
     * the tables'; NULL */
    const char *version;
    bool        is_file;       /* name is a path */
    bool        is_named;      /* by another of the files */
    bool        is_part;       /* of the script before it: vp_document.parts */
    bool        is_commands;   /* of a notebook's cells: name is the notebook's path */
    bool        is_written;    /* by a cell of a notebook: name is the path that it writes */
    const char *yields_to;     /* name of the command whose options beat what it says; NULL */
    bool        is_spoken_for; /* a command or script whose settings stand in files that it names */
} vp_checked_file;

typedef struct vp_checked {
    vp_arena        *arena;
    vp_checked_file  files[VP_CHECK_MAX_FILES];
    int              n_files;
    const vp_target *target; /* NULL: not known */
    const json_t    *versions;
    const char      *no_bf16, *world; /* as in vp_check_opts */
    bool             has_model;       /* the same */
    vp_finding      *findings;
    int64_t          n_findings, cap_findings;
    int              n_errors;
    int              n_unjudged; /* of them: files of no trainer that is known here */
    vp_settings      settings;   /* what the files say together */
    bool             by_default[VP_N_SETTINGS]; /* nobody wrote it */
    /* "none or ddp": the files alone do not tell which, the launch or the model does; else NULL */
    const char *may_be[VP_N_SETTINGS];
    /* where it is written as what the text does not say, "optim in train.py"; NULL: nowhere */
    const char                  *unread[VP_N_SETTINGS];
    const struct vp_check_input *inputs; /* as they were given */
    int                          n_inputs;
    struct vp_check_config
                *configs; /* check_configs.c: settings files that scripts read by themselves */
    vp_document *command; /* that run the scripts which are read next, by next; NULL */
    const char  *missing; /* a file that was named and is not there; NULL */
    const char  *gap;     /* options or arguments that the text does not say, "${ARGS[@]}"; NULL */
    const char  *uncounted; /* a key whose bytes no estimate counts, and its file; NULL */
    const char
        *own; /* an option of a script's own that nothing that is read explains, in words; NULL */
    bool own_adapts, own_quantises, own_pictures; /* by its name, which is all that is known */
    const char *
        others; /* "l.py:5 is of a training loop of the script's own": a script no table judges; NULL */
} vp_checked;

typedef struct vp_check_input {
    const char        *path;  /* a file; NULL: words */
    const char *const *words; /* of a command line */
    int64_t            n_words;
    const char        *bytes; /* what the file shall be taken to hold; NULL: it is read */
    int64_t            n_bytes;
    vp_format          format; /* of them; VP_FORMAT_BY_NAME: by the path */
} vp_check_input;

typedef struct vp_check_opts {
    const vp_target *target;   /* whose files these are; NULL: by their keys */
    const json_t    *versions; /* {library: version}; NULL: the tables' */
    const char *no_bf16; /* why the card they are for has no bf16; NULL: it has, or none is named */
    int         capability; /* its compute capability, 86; 0: none is named */
    const char *
        world; /* how many processes there are where neither files nor launcher say; NULL: not known */
    bool follows; /* the files that the given ones name are read too */
    bool
        has_model; /* what is counted is a config of one's own, with the sizes that the files set */
} vp_check_opts;

/* VP_ERR_NOMEM; VP_ERR_USAGE: too many files. */
vp_status vp_check(vp_arena *arena, const vp_check_input *inputs, int n, const vp_check_opts *opts,
                   vp_checked *out, vp_err *err);

/* The model that the files train, as they name it; NULL: none does. Lives as long as c. */
const char *vp_checked_model(const vp_checked *c);

/* Adds a finding at the model that they name: another one is counted. is_known: surely another, so it is a warning, else a note. */
vp_status vp_check_other_model(vp_checked *c, const char *counted, bool is_known, vp_err *err);

/* Whether adapters are trained beside weights in 4 bits. */
bool vp_checked_is_quantised(const vp_checked *c);

/* Whether a script calls peft's prepare_model_for_kbit_training(): "on" or "off". NULL: there is none, or weights are loaded in fp32 or cut
 * by FSDP, of which there is one way only. */
const char *vp_checked_preparation(const vp_checked *c);

/* The method by which the files train, as TRL calls it ("dpo"), where it is not supervised fine-tuning; NULL: it is. *said: the
 * key or the program that says so. */
const char *vp_checked_method(const vp_checked *c, const char **said);

/* Where the files leave to the weights' own format which precision it is: the one of that format, "bfloat16"; NULL: it is not known. */
void vp_check_published(vp_checked *c, const char *published);

/* Where LoRA by peft is told no layers to adapt: those that it takes of such a family, joined by '+'. */
void vp_check_adapted(vp_checked *c, const char *family, const char *targets);

/* Of layers that are to be adapted those that a family surely lacks: lacks says so, and a name that was meant. peft ends with an error where
 * it finds none of them, and goes on without a word where it finds some (peft/tuners/tuners_utils.py of 0.21.2). */
typedef bool vp_lacks_module(const char *family, const char *name, const char **nearest);
vp_status vp_check_targets(vp_checked *c, const char *family, vp_lacks_module *lacks, vp_err *err);

/* Puts findings that came late in their places. VP_ERR_NOMEM. */
vp_status vp_check_order(vp_checked *c, vp_err *err);

/* Adds a finding at each place where the files say longer samples than the positions the model was made for: an error where it
 * learns them, for then no longer sample runs. */
vp_status vp_check_positions(vp_checked *c, int64_t positions, bool learns_positions, vp_err *err);

/* Adds an error where the files say this setting: the card does not run it, and why. instead: what to write there; NULL. */
vp_status vp_check_refused(vp_checked *c, vp_setting setting, const char *why, const char *instead,
                           vp_err *err);

/* A value as text, in buf; lists joined by "+". */
const char *vp_value_text(const vp_value *v, char *buf, size_t buf_size);

#endif
