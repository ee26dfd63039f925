/* tuner/command_internal.h: what the files of tuning a command share.
 *
 *     command_words.c    options and variables in the words of a command
 *     command_space.c    axes, settings, command lines
 *     command_known.c    the axes of commands whose arguments or files are known
 *     command_files.c    the settings files that a command names, and edited copies of them
 *     command_model.c    what trials say of the seconds and bytes of other settings
 *     command_order.c    which of two settings needs no more or is no slower, and what speaks against it
 *     command_choice.c   which setting to try next, and when to stop
 *     command_trial.c    a trial: its folder, its dry run, its verdict
 *     command_forks.c    the process that trials are forked from, so that their packages are imported once
 *     command_card.c     a setting that really trains, on the card here
 *     command_study.c    trials in the study
 *     command_tune.c     the loop */
#ifndef VP_TUNER_COMMAND_INTERNAL_H
#define VP_TUNER_COMMAND_INTERNAL_H

#include "tuner/command_tune.h"
#include "tuner/side_by_side.h"
#include "tuner/study.h"

#include <limits.h>

/* ---- command_words.c ---- */

/* The value of an option in a command: that behind it or behind its '=', "on" where it has none; NULL: the option
 * is not there. at, if not NULL: where. */
const char *vp_command_value(char *const *command, const char *option, int *at);

/* The same of a word key=value behind the program (Hydra's overrides, OmegaConf's dot lists, ultralytics' arguments), maybe with one or two
 * '+' before it; put in place, or added at the end. vp_command_is_word: whether a word is of that form; vp_command_has_words: whether a
 * command has any that is no option's value. */
const char *vp_command_word(char *const *command, const char *key, int *at);
void vp_command_set_word(vp_arena *arena, char **words, int *n, const char *key, const char *value);
bool vp_command_is_word(const char *word);
bool vp_command_has_words(char *const *command);

/* Put an option's value, or a variable of its environment, into a command of *n words, which has room for two more. "off": out with it. */
void      vp_command_set_option(vp_arena *arena, char **words, int *n, const char *option,
                                const char *value);
vp_status vp_command_set_variable(vp_arena *arena, char **words, int *n, const char *name,
                                  const char *value, vp_err *err);

/* ---- command_space.c ---- */

typedef struct vp_command_space {
    vp_arena               *arena;
    vp_axis                *axes;
    int                     n_axes;
    int                    *values; /* of setting i: values + i * n_axes */
    int64_t                 n;
    const vp_command_files *files;   /* or NULL */
    const char             *assumed; /* of a known command, to be said; NULL: nothing */
} vp_command_space;

/* The settings of all --try. space has its arena. */
vp_status vp_space_tries(const vp_command_opts *opts, vp_command_space *space, vp_err *err);

/* Add an axis: name, place and what belongs to it; its values, parted by commas, are put in order. had: the value that
 * the command has, of a place where it cannot be seen; or NULL. */
vp_status vp_space_add_axis(vp_command_space *space, vp_axis axis, const char *values,
                            const char *had, char *const *command, vp_err *err);

/* The value of an axis as a number; 0 where it is none. */
double vp_axis_number(const vp_axis *axis, int value);

/* Options that the command leaves out have the values of arguments (vp_command_trial's). */
void vp_space_learn(vp_command_space *space, const char *arguments);

/* Leave only the settings of which the product of terms is number. */
vp_status vp_space_keep(vp_command_space *space, const char *expression, vp_err *err);

/* All settings of the axes. */
vp_status vp_space_settings(vp_command_space *space, vp_err *err);

/* ---- command_files.c ---- */

enum { VP_COMMAND_MAX_EDITED_WORDS = 64 }; /* by which edits may lengthen a command */

/* The settings files that a command names, read and judged; *out NULL: it names none. Close them. */
vp_status   vp_command_files_open(vp_arena *arena, char *const *command, int64_t world,
                                  vp_command_files **out, vp_err *err);
void        vp_command_files_close(vp_command_files *files);
const char *vp_command_file_at(const vp_command_files *files, int i); /* NULL past the end */

/* The files and words with the values of those axes that are a setting's or a key's. words has room for
 * VP_COMMAND_MAX_EDITED_WORDS more. VP_ERR_INPUT: a file cannot be told. */
vp_status vp_command_files_change(const vp_command_files *files, const vp_axis *axes, int n_axes,
                                  const int *values, const vp_file_places *places, vp_arena *arena,
                                  char **words, int *n_words, vp_file_change **changes,
                                  int *n_changes, vp_err *err);

/* Whether any of them is a trainer's; which of them has a key, and its value (-1: none); what all say of a setting (NULL:
 * nothing); whether they can be told otherwise; the key of the samples that a step has at once (NULL: none). */
bool vp_command_files_are_known(const vp_command_files *files);
int  vp_command_files_key(const vp_command_files *files, const char *path, const char **value);
const char *vp_command_files_says(const vp_command_files *files, int setting, bool *by_default);
bool        vp_command_files_can(const vp_command_files *files, int setting, const char *word,
                                 char *const *command);
const char *vp_command_files_batch(const vp_command_files *files);

/* ---- command_known.c ---- */

/* The axes of a command whose arguments or files are known: VP_ERR_USAGE where they are not. */
vp_status vp_space_known(char *const *command, vp_command_space *space, vp_err *err);

/* The words of an option that names a folder to write into. */
bool vp_command_is_output(const char *word);
/* That of transformers' examples for a text that they read by `datasets`. */
bool vp_command_is_text(const char *word);

/* ---- command_choice.c ---- */

typedef enum vp_setting_state {
    VP_SETTING_UNTRIED,
    VP_SETTING_RUNNING,
    VP_SETTING_DONE,
} vp_setting_state;

typedef struct vp_choice {
    const vp_command_space *space;
    vp_command_setting     *settings;
    char                   *state; /* vp_setting_state of each */
    int64_t                 budget_bytes;
    int64_t                 best; /* of the settings, or -1 */
    /* the setting that the command as it is comes nearest to, and its trial: known to the model until
     * that setting is tried; -1 and NULL: none */
    int64_t                 near;
    const vp_command_trial *near_trial;
    int64_t *known; /* room for the space; vp_choice_doubt() lists there what was tried, and near */
    int64_t  n_known;
    /* of each axis: trials were seen that speak against what is assumed of its bytes, and of its seconds */
    char memory_against[VP_COMMAND_MAX_AXES], speed_against[VP_COMMAND_MAX_AXES];
} vp_choice;

/* ---- command_model.c ---- */

enum { VP_MAX_FEATURES = 400 };

typedef struct vp_linear {
    int    n;
    double weight[VP_MAX_FEATURES], prior[VP_MAX_FEATURES];
    double hold[VP_MAX_FEATURES]; /* to the prior */
} vp_linear;

/* Of a step: what the host does to issue a micro-step and the optimizer, and what the card does. */
enum { VP_PART_HOST, VP_PART_CARD, VP_PART_OPTIMIZER_HOST, VP_PART_OPTIMIZER_CARD, VP_N_PARTS };

/* Fitted to the trials: the logarithm of each part, additive in the axes, and bytes. */
typedef struct vp_models {
    vp_linear parts[VP_N_PARTS];
    bool      has[VP_N_PARTS];
    double    rest;  /* the card's micro-step goes with its size and this */
    vp_linear bytes; /* in budgets */
    double    z_least, z_most;
} vp_models;

bool   vp_models_fit(const vp_choice *choice, vp_models *models);
double vp_models_seconds(const vp_choice *choice, const vp_models *models,
                         int64_t setting); /* logarithm, a sample */
double vp_models_bytes(const vp_choice *choice, const vp_models *models, int64_t setting);

/* Seconds in which the host issued a micro-step of a trial that fits; 0: not known. */
double vp_models_micro_host(const vp_choice *choice, int64_t setting);

const int *vp_choice_values(const vp_choice *choice, int64_t setting);

/* What is done at once (VP_AXIS_SIZE), and how often before an optimizer step (VP_AXIS_TIMES). */
double vp_choice_product(const vp_choice *choice, int64_t setting, vp_axis_kind kind);

/* A trial that fits, for the models: of this setting, or of the command as it is in its place. */
const vp_command_trial *vp_choice_fits_at(const vp_choice *choice, int64_t setting);

/* ---- command_order.c ---- */

/* A setting's trial; NULL: it was not tried. */
const vp_command_trial *vp_choice_trial(const vp_choice *choice, int64_t setting);

/* Whether t is assumed to need no more than s (but for what one axis does); whether to be no slower, a sample. */
bool vp_choice_needs_no_more(const vp_choice *choice, int64_t t, int64_t s);
bool vp_choice_needs_no_more_but(const vp_choice *choice, int64_t t, int64_t s, int but);
bool vp_choice_no_slower(const vp_choice *choice, int64_t t, int64_t s);

/* List what is known, and find the axes of which the trials say otherwise: of these nothing is assumed from then on, of bytes or of seconds. */
void vp_choice_doubt(vp_choice *choice);

/* Bytes that a setting needs at least, by trials that fit and need no more, and by how bytes were seen to grow with a size; with
 * those outside the allocator. 0: not known. */
double vp_choice_least_bytes(const vp_choice *choice, int64_t setting);

/* Bytes that it is expected to need, by a line through two trials that differ from it in one size alone. 0: there are none. */
double vp_choice_grown_bytes(const vp_choice *choice, int64_t setting);

/* ---- command_choice.c ---- */

/* Why a setting is not tried. */
typedef enum vp_ruling {
    VP_RULED_NOT,
    VP_RULED_MEMORY,          /* one that needs no more was out of memory      */
    VP_RULED_SPEED,           /* one that is no slower fits                    */
    VP_RULED_NO_USE,          /* packs tighter what does not run out by fragments */
    VP_RULED_EXPECTED_SLOWER, /* the model of the trials expects it to be      */
    VP_RULED_EXPECTED_LARGE,  /* the model expects it to need far too much     */
} vp_ruling;

/* The next setting to try, or -1: nothing is left that is expected to be faster, or nothing can be said before a
 * running trial ends. rulings, if not NULL, gets why each of the others is not tried. */
int64_t vp_choice_next(vp_choice *choice, char *rulings);

/* The best setting's next untried neighbour: along an axis of which something is assumed, or with another value of a
 * plain one where the two were never compared with all else equal. -1: all were tried, or are ruled out by trials. */
int64_t vp_choice_neighbour(vp_choice *choice);

/* What the search asks for next: the former, and where that is -1 the latter, of which *verifying says that it began. A
 * function of the space and the trials alone. */
int64_t vp_choice_ask(vp_choice *choice, bool *verifying);

/* Make a setting that was tried the best, where it fits and is faster than that, or as fast and smaller. */
void vp_choice_better(vp_choice *choice, int64_t setting);

/* What counts: samples a second, or steps where nobody counted samples. */
double vp_choice_speed(const vp_choice *choice, int64_t setting);

/* ---- command_card.c ---- */

/* Let a setting train for a few steps on the card here, in a folder of its own below parent: s->on_card says what it took.
 * VP_ERR_DEVICE, VP_ERR_STORAGE: it could not be started. is_over, once true, ends it: s->on_card is VP_COMMAND_INTERRUPTED then. */
vp_status vp_card_run(const vp_command_opts *opts, const vp_command_result *r, const char *parent,
                      int64_t number, bool (*is_over)(void), vp_command_setting *s, vp_err *err);

/* ---- command_trial.c ---- */

typedef struct vp_trial_folder {
    char path[PATH_MAX]; /* holds cwd/, out/ and set/ */
} vp_trial_folder;

/* A folder whose cwd/ mirrors the current one. */
vp_status vp_trial_folder_make(const char *parent, int64_t number, vp_trial_folder *folder,
                               vp_err *err);
void      vp_trial_folder_remove(const vp_trial_folder *folder);

/* Writes the changed files into the folder's set/. */
vp_status vp_trial_write_files(const vp_trial_folder *folder, const vp_file_change *changes, int n,
                               vp_err *err);

/* The command as it runs in the folder: what it writes goes into out/, and paths that lead out of the current folder are told
 * from the root. */
char *const *vp_trial_command(char *const *command, const vp_trial_folder *folder, vp_arena *arena);

/* The last line of a text that is not empty, for people. */
const char *vp_trial_last_line(const char *text, vp_arena *arena);

/* The words of the dry run: vplan dryrun ... -- command, its output folders replaced. */
char *const *vp_trial_words(const vp_command_opts *opts, const char *program, char *const *command,
                            const vp_trial_folder *folder, vp_arena *arena);

/* ---- command_forks.c ---- */

/* A process that imports what the command's script imports first, and of which trials are forks. */
typedef struct vp_trial_forks {
    vp_job          job; /* its watcher is 0 where there is none */
    vp_trial_folder folder;
    char            variable[PATH_MAX + 24]; /* for a trial's environment: where it is */
} vp_trial_forks;

/* Start it where the command is a Python script; trials find it by forks->variable, and are as ever where it refuses or is
 * not there. */
vp_status vp_trial_forks_start(const vp_command_opts *opts, const char *program, const char *parent,
                               vp_trial_forks *forks, vp_err *err);

/* End it, and all trials that it has forked. */
void vp_trial_forks_stop(vp_trial_forks *forks);

/* ---- command_trial.c ---- */

/* What the dry run said. notes: array that gets its assumptions, each once; or NULL. */
void vp_trial_read(const vp_child_result *child, vp_arena *arena, vp_command_trial *trial,
                   json_t *notes);

/* ---- command_study.c ---- */

vp_status vp_command_request(vp_study *study, const vp_command_opts *opts,
                             const vp_command_files *files, const char *build, int64_t *id,
                             vp_err *err);

/* What is known of this command line under a request: VP_COMMAND_UNTRIED where nothing, or where its tuner died
 * while it ran, which says nothing of it. */
vp_status vp_command_find(vp_study *study, vp_arena *arena, int64_t request, const char *words,
                          vp_command_trial *trial, vp_err *err);
vp_status vp_command_begin(vp_study *study, int64_t request, const char *words, int64_t *id,
                           vp_err *err);
vp_status vp_command_finish(vp_study *study, const vp_command_trial *trial, vp_err *err);
vp_status vp_command_cancel(vp_study *study, int64_t id, vp_err *err);

#endif
