/* trainers/files/check_internal.h: what the parts of the check share. */
#ifndef VP_TRAINERS_FILES_CHECK_INTERNAL_H
#define VP_TRAINERS_FILES_CHECK_INTERNAL_H

#include "trainers/files/check.h"

typedef struct vp_judged {
    vp_checked      *c;
    vp_checked_file *file;
} vp_judged;

/* Adds a finding at a key of the file; v may be NULL (then line 0). message is formatted. */
void vp_find(vp_checked *c, const vp_checked_file *file, vp_severity severity, const vp_value *v,
             const char *key, const char *instead, const char *fmt, ...)
    __attribute__((format(printf, 7, 8)));

/* The version that counts for d, the file's dialect or one of its bases. */
const char *vp_file_version(const vp_checked *c, const vp_checked_file *file, const vp_dialect *d);

/* The key's row in the file's dialect or its bases, and the version that counts for it. */
const vp_key *vp_file_key(const vp_checked *c, const vp_checked_file *file, const char *path,
                          const char **version);

/* Whether a key of the file's dialect is none of the call that this script's arguments are. */
bool vp_key_is_elsewhere(const vp_checked_file *file, const vp_key *k);

/* What counts for a key: what is written, else the default. NULL: neither. */
const char *vp_effective(const vp_checked *c, const vp_checked_file *file, const char *path,
                         char *buf, size_t buf_size);

/* Whether something is written that the text does not say the value of: a call, a shell's variable; is_name: a name of Python's
 * too, where the value may be any. */
bool vp_value_is_unknown(const vp_checked_file *file, const vp_value *v, bool is_name);

/* Whether two texts are the same value: 1e9 and 1000000000, True and true. */
bool vp_same_value(const char *a, const char *b);

/* Something is there that is not switched off: a text, a list with members, true. */
bool vp_is_there(const vp_value *v);

/* Where a name stands in a list of "name" and "name:type"; NULL: it is none of them. */
const char *vp_listed(const char *list, const char *name);

/* Whether the file is surely read by its library's own parser, not by a script's that has some of the
 * same names. */
bool vp_check_is_own(const vp_checked_file *file);

/* Whether it is surely an argument of a library's class, in a version that the tables were read from: one that they do not know
 * is a TypeError there. */
bool vp_check_is_argument(const vp_checked *c, const vp_checked_file *file, const vp_value *v);

/* The first of n names that has a key's words, or words that begin so, in their order; NULL: none. */
const char *vp_check_by_words(const char *key, const char *const *names, int n);

/* check_strangers.c: where a name stands among what its section may have besides keys; NULL: nowhere. */
const char *vp_check_known_at(const vp_checked_file *file, const char *section, const char *name);
/* The one other section, or "" of the root, in which a name is a key; NULL: none is, or several are, or the name is
 * one that anybody may have. */
const char *vp_check_home_of(vp_checked *c, const vp_checked_file *file, const char *section,
                             const char *name);
/* Whether the file is a call of a script's, and its keys are arguments. */
bool vp_check_is_call(const vp_checked_file *file);
/* A key of a section's that is not known; own: the names that somebody's own script may have. */
void vp_check_stranger(vp_checked *c, const vp_checked_file *file, const vp_section *s,
                       const char *path, const vp_value *v, vp_text *own);

/* Options of a program's own command that are cut short, as argparse completes them. */
void vp_check_complete_options(vp_checked *c, const vp_checked_file *file);

/* Whether nothing is trained by it. */
bool vp_check_is_idle(const vp_document *doc);
/* Whether a trainer that no table is of trains by it. */
bool vp_check_is_of_others(const vp_document *doc);

/* check_others.c: whose a file is, of trainers that no table is of; NULL: none of theirs. *at: the key that says so; NULL: its command. */
const char *vp_check_others(const vp_document *doc, const vp_value **at);
void        vp_check_find_others(vp_checked *c, const vp_checked_file *file, const vp_value *at,
                                 const char *whose);

/* Whether the command's program, its script or its subcommand is one of these. */
bool vp_check_is_program(const char *programs, const vp_document *doc);

/* Whether any file, or the command, is of a trainer that is known. */
bool vp_check_knows_any(const vp_checked *c);

/* Whether it is a command of the trainer's own program. */
bool vp_check_is_run(const vp_checked_file *file);
bool vp_check_is_run_by(const vp_dialect *d, const vp_document *doc);

/* Reads one file more. kind: the dialect that it is surely of; NULL: the one it looks like. */
vp_status vp_check_open(vp_checked *c, const vp_check_input *in, const vp_check_opts *opts,
                        const vp_dialect *kind, vp_err *err);

/* check_configs.c: of whom a script is read, which may read settings files of its own. */
typedef struct vp_check_source {
    vp_checked        *c;
    const char        *script;
    const vp_document *command; /* that runs it; NULL */
    bool               follows; /* files that are not given are read too */
} vp_check_source;

/* vp_document_run.config of such a one. */
const vp_document *vp_check_config_of(void *of, const char *path, int line);

/* Files that scripts read so are none of a trainer's, and are told. */
void vp_check_say_configs(vp_checked *c);

/* named.c: where a trainer would look for a file that one beside it names: this folder, its own, one above that. NULL: nowhere. */
const char *vp_check_find(vp_arena *arena, const char *beside, const char *path);

/* named.c: reads the files that file i names. */
vp_status vp_check_open_named(vp_checked *c, int i, const vp_check_opts *opts, vp_err *err);

/* cells.c: of file i, a notebook that trains nothing by itself, the commands that it runs. */
vp_status vp_check_open_commands(vp_checked *c, int i, const vp_check_opts *opts, vp_err *err);

/* The files that cells write, where nothing that is read so far trains. */
vp_status vp_check_open_written(vp_checked *c, const vp_check_opts *opts, vp_err *err);

/* Whether a command runs or names a file that a cell writes. */
bool vp_check_runs_written(const vp_checked *c, const vp_document *command);

/* The file of that path which a cell of a notebook writes; NULL: none does. */
const vp_written *vp_check_written(const vp_checked *c, const char *path);

/* named.c: of files of TRL's that its command reads, the launcher's keys count as its options. */
vp_status vp_check_take_handed(vp_checked *c, vp_err *err);

/* script_options.c: what commands say beats the defaults of the options in their scripts' own parsers. */
void vp_check_options(vp_checked *c);

/* The commands among n inputs, one of which in is, are known before the scripts that they run; an error in them is none here. */
vp_status vp_check_take_command(vp_checked *c, const vp_check_input *in, const vp_check_input *all,
                                int n, vp_err *err);

/* The command that runs the script at this path; NULL: none is known. */
const vp_document *vp_check_command_of(const vp_checked *c, const char *path);

/* Whether a command without options is by its script's name a training, beside one that prepares data. */
bool vp_check_is_called_training(const vp_document *command);

/* The dialect that a key's `opens` means; NULL: none. */
const vp_dialect *vp_dialect_named(const char *name);

/* check_keys.c: one file by its dialect's keys and rules. */
void vp_check_keys(vp_checked *c, vp_checked_file *file);
void vp_check_rules(vp_checked *c, vp_checked_file *file);

/* judge_*.c: what no rule of a dialect's can say. */
void vp_judge_trl(vp_judged *x);
void vp_judge_groups(vp_checked *c); /* once settings are known */
void vp_judge_trainer(vp_judged *x);
void vp_judge_llamafactory(vp_judged *x);
void vp_judge_swift(vp_judged *x);
void vp_judge_torchtune(vp_judged *x);
void vp_judge_megatron(vp_judged *x);
void vp_judge_uncounted(vp_judged *x); /* of every dialect; notes alone */
void vp_judge_yaml(vp_judged *x);      /* of what PyYAML refuses and libyaml takes */
void vp_judge_own(vp_judged *x);       /* of the options of people's own scripts */

void vp_judge_launch(vp_checked *c); /* of all files together */
void vp_judge_batch(vp_checked *c);  /* the same, of what fills a batch of DeepSpeed's */
void vp_judge_auto(vp_checked *c, const vp_checked_file *file); /* of one file of DeepSpeed's */
void vp_judge_unasked(vp_checked *c); /* the same, of LLaMA-Factory's precision */
void vp_judge_wrap(vp_checked *c);    /* the same, of FSDP's policy */
void vp_judge_axolotl(vp_checked *c); /* the same, of what axolotl refuses of several keys */
void vp_judge_storage(vp_checked *c); /* the same, of packed weights beside FSDP */

/* What a launcher is told by this option, and in which file's command; f may be NULL. NULL: nothing. */
const vp_value *vp_launch_option(const vp_checked *c, const char *key, int *f);

/* Whether checkpoints that this key turns on are not turned off by Trainer's switch. */
bool vp_switches_checkpoints_too(const char *key);

/* Whether what counts for a key is "=a|b", "!=3", "<3", ">1", "set", "unset", "~part", "!~part". */
bool vp_check_holds(const vp_checked *c, const vp_checked_file *file, const char *path,
                    const char *is);

/* check_model.c: weights that are published in fewer bits, by the model's name, which no setting of the files says. */
void vp_check_packed(vp_checked *c);

/* settle.c: what the settings that are read decide of each other. */
void vp_settle(vp_checked *c);

/* check_settings.c: what the files say together, and where they disagree. */
void vp_check_settings(vp_checked *c);
void vp_check_lengths(vp_checked *c, int64_t positions, bool learns_positions);

/* Findings in their places again, where some came late. */
vp_status vp_check_sort(vp_checked *c, vp_err *err);

#endif
