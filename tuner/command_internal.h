/* tuner/command_internal.h: what the files of tuning a command share.
 *
 *     command_space.c    axes, settings, command lines
 *     command_known.c    the axes of commands whose arguments are known
 *     command_choice.c   which setting to try next, and when to stop
 *     command_trial.c    a trial: its folder, its dry run, its verdict
 *     command_study.c    trials in the study
 *     command_tune.c     the loop */
#ifndef VP_TUNER_COMMAND_INTERNAL_H
#define VP_TUNER_COMMAND_INTERNAL_H

#include "tuner/command_tune.h"
#include "tuner/side_by_side.h"
#include "tuner/study.h"

#include <limits.h>

/* ---- command_space.c ---- */

typedef struct vp_space {
    vp_arena *arena;
    vp_axis  *axes;
    int       n_axes;
    int      *values; /* of setting i: values + i * n_axes */
    int64_t   n;
} vp_space;

/* The settings of all --try. space has its arena. */
vp_status vp_space_tries(const vp_command_opts *opts, vp_space *space, vp_err *err);

/* Add an axis; its values are put in order. */
vp_status vp_space_add_axis(vp_space *space, const char *name, const char *values, bool option,
                            char *const *command, vp_err *err);

/* The value of an option in a command: that behind it or behind its '=', "on" where it has none; NULL: the option
 * is not there. at, if not NULL: where. */
const char *vp_command_value(char *const *command, const char *option, int *at);

/* The value of an axis as a number; 0 where it is none. */
double vp_axis_number(const vp_axis *axis, int value);

/* Leave only the settings of which the product of terms is number. */
vp_status vp_space_keep(vp_space *space, const char *expression, vp_err *err);

/* All settings of the axes. */
vp_status vp_space_settings(vp_space *space, vp_err *err);

/* ---- command_known.c ---- */

/* The axes of a command whose arguments are known: VP_ERR_USAGE where they are not. */
vp_status vp_space_known(char *const *command, vp_space *space, vp_err *err);

/* The words of an option that names a folder to write into. */
bool vp_command_is_output(const char *word);

/* ---- command_choice.c ---- */

typedef enum vp_setting_state {
    VP_SETTING_UNTRIED,
    VP_SETTING_RUNNING,
    VP_SETTING_DONE,
} vp_setting_state;

typedef struct vp_choice {
    const vp_space *space;
    vp_setting     *settings;
    char           *state; /* vp_setting_state of each */
    int64_t         budget_bytes;
    int64_t         best; /* of the settings, or -1 */
    /* the setting that the command as it is comes nearest to, and its trial: known to the model until
     * that setting is tried; -1 and NULL: none */
    int64_t                 near;
    const vp_command_trial *near_trial;
} vp_choice;

/* Why a setting is not tried. */
typedef enum vp_ruling {
    VP_RULED_NOT,
    VP_RULED_MEMORY,          /* one that needs no more was out of memory      */
    VP_RULED_SPEED,           /* one that is no slower fits                    */
    VP_RULED_EXPECTED_SLOWER, /* the model of the trials expects it to be      */
    VP_RULED_EXPECTED_LARGE,  /* the model expects it to need far too much     */
} vp_ruling;

/* The next setting to try, or -1: nothing is left that is expected to be faster, or nothing can be said before a
 * running trial ends. rulings, if not NULL, gets why each of the others is not tried. */
int64_t vp_choice_next(vp_choice *choice, char *rulings);

/* The best setting's next untried neighbour: along an axis of which something is assumed, or with another value of a
 * plain one where the two were never compared with all else equal. -1: all were tried, or are ruled out by trials. */
int64_t vp_choice_neighbour(vp_choice *choice);

/* What counts: samples a second, or steps where nobody counted samples. */
double vp_choice_speed(const vp_choice *choice, int64_t setting);

/* ---- command_trial.c ---- */

typedef struct vp_trial_folder {
    char path[PATH_MAX]; /* holds cwd/ and out/ */
} vp_trial_folder;

/* A folder whose cwd/ links what lies in the current one. */
vp_status vp_trial_folder_make(const char *parent, int64_t number, vp_trial_folder *folder,
                               vp_err *err);
void      vp_trial_folder_remove(const vp_trial_folder *folder);

/* The words of the dry run: vplan dryrun ... -- command, its output folders replaced. */
char *const *vp_trial_words(const vp_command_opts *opts, const char *program, char *const *command,
                            const vp_trial_folder *folder, vp_arena *arena);

/* What the dry run said. notes: array that gets its assumptions, each once; or NULL. */
void vp_trial_read(const vp_child_result *child, vp_arena *arena, vp_command_trial *trial,
                   json_t *notes);

/* ---- command_study.c ---- */

vp_status vp_command_request(vp_study *study, const vp_command_opts *opts, const char *build,
                             int64_t *id, vp_err *err);

/* What is known of this command line under a request: VP_COMMAND_UNTRIED where nothing, or where its tuner died
 * while it ran, which says nothing of it. */
vp_status vp_command_find(vp_study *study, vp_arena *arena, int64_t request, const char *words,
                          vp_command_trial *trial, vp_err *err);
vp_status vp_command_begin(vp_study *study, int64_t request, const char *words, int64_t *id,
                           vp_err *err);
vp_status vp_command_finish(vp_study *study, const vp_command_trial *trial, vp_err *err);
vp_status vp_command_cancel(vp_study *study, int64_t id, vp_err *err);

#endif
