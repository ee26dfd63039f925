/* tuner/command_tune.h: the fastest arguments of somebody's own training command that fit a card, found without
 * the card: each trial is a `vplan dryrun` of the command in a process of its own.
 *     vp_command_opts opts = {.command = argv, .n_tries = 1, .tries = (const char *[]){"--batch=1,2,4,8"},
 *                             .device = &device, .budget_bytes = budget};
 *     VP_TRY(vp_command_tune(&opts, &result, err));
 *     vp_command_result_release(&result);
 *
 * The space. Each --try is an axis: `name=V1,V2` for every {name} in the command, `--option=V1,V2` for an option of
 * it; `on` and `off` stand for an option without a value. --keep `batch*accum=64` leaves of their product what
 * gives this. A name may also be a key of a settings file that the command names (YAML, JSON, TOML), `data.batch_size`, or
 * a setting in words that are no trainer's (trainers/files/settings.h), `recompute`: then a trial runs with an edited
 * copy of the file. Without --try, the axes of a command whose arguments or files are known are those that do not
 * change what is trained.
 *
 * The search. What is assumed of an axis, by its name: of more samples or tokens at once, that they need more and
 * take no longer a sample; of checkpointing, that it needs less and takes longer; of accumulation, that how often
 * does not matter, only whether; of expandable segments, that they let fit what failed by fragments alone. Of other axes nothing. With that an out-of-memory failure rules out whatever needs
 * more, and a setting that fits rules out whatever is slower; what is left is tried in the order in which an
 * additive model of the trials so far expects it to be fast and to fit, until nothing is left that is expected to be
 * faster than the best. Then the best one's neighbours along the assumed axes are tried.
 *
 * A trial goes through a few optimizer steps (dryrun --steps), without writing checkpoints, in a folder of its own
 * that mirrors the current one; options that name an output folder get one in there. Everything goes to the study as it
 * happens: a finished trial of the same command, files, card and budget is not run again. The search asks for one verdict
 * after another and knows of those alone: what it asks for next follows from the space and from what it was told, wherever
 * a verdict comes from. Idle cores play ahead, as far as host memory allows, what it is expected to ask for.
 *
 * Seconds are those of `dryrun --time`: the planner's time model (devices/efficiency.h), assumed. Where the card is here, the best
 * settings and the command as it is can really train for a few steps at the end, one after the other, and the fastest of those is
 * the answer (opts.n_on_card). What they took is not kept in the study. */
#ifndef VP_TUNER_COMMAND_TUNE_H
#define VP_TUNER_COMMAND_TUNE_H

#include "base/arena.h"
#include "base/err.h"
#include "devices/devices.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum vp_command_verdict {
    VP_COMMAND_OK,
    VP_COMMAND_OOM_DEVICE,
    VP_COMMAND_OOM_HOST,
    VP_COMMAND_TIMEOUT,
    VP_COMMAND_CRASH, /* the command failed, or is not supported: evidence says how */
    VP_COMMAND_INTERRUPTED,
    VP_COMMAND_UNTRIED,
    VP_N_COMMAND_VERDICTS
} vp_command_verdict;

const char *vp_command_verdict_name(vp_command_verdict v);

/* What is assumed of an axis. */
typedef enum vp_axis_kind {
    VP_AXIS_PLAIN,  /* nothing                                          */
    VP_AXIS_SIZE,   /* a larger number needs more and is no slower      */
    VP_AXIS_SAVES,  /* the later value needs less and is slower         */
    VP_AXIS_TIMES,  /* micro-steps: one, or several                     */
    VP_AXIS_BETTER, /* the later value needs no more and is no slower */
    VP_AXIS_PACKS,  /* the later value reserves less for what is allocated, and is as fast; for what
                      runs out of memory though enough of it is free */
    VP_N_AXIS_KINDS
} vp_axis_kind;

/* Where an axis' value goes. */
typedef enum vp_axis_place {
    VP_AXIS_BRACES,   /* {name} in the command             */
    VP_AXIS_OPTION,   /* the command's option of that name */
    VP_AXIS_WORD,     /* its word name=value               */
    VP_AXIS_VARIABLE, /* of its environment; "default": not set */
    VP_AXIS_KEY,      /* of a file that the command names  */
    VP_AXIS_SETTING,  /* a vp_command_setting, in its words, wherever files and options say it */
} vp_axis_place;

typedef struct vp_axis {
    const char *name; /* without braces; with dashes where it is an option's */
    const char *
        *values; /* ascending where kind is VP_AXIS_SIZE, off before on where VP_AXIS_SAVES */
    int  n;
    vp_axis_kind  kind;
    vp_axis_place place;
    int           setting; /* of VP_AXIS_SETTING */
    int           file;    /* of VP_AXIS_KEY     */
    int           had;     /* the value that the command has; -1: none of these */
} vp_axis;

typedef struct vp_command_trial {
    int64_t            id; /* of the study; 0: none              */
    vp_command_verdict verdict;
    bool               from_study;
    int64_t            allocated_bytes, reserved_bytes, device_bytes; /* 0: not known            */
    int64_t            held_bytes;   /* allocated after the last step; 0: not known */
    int64_t            needed_bytes; /* of an out-of-memory failure: at least this */
    double             step_s, samples_per_s, tokens_per_s; /* 0: not known            */
    double             host_s, card_s;                      /* of step_s: what each has to do   */
    double             optimizer_host_s, optimizer_card_s;  /* and of that, once a step */
    double             wall_s;
    int64_t            host_bytes;
    const char        *evidence; /* why it failed, else ""            */
    /* those of transformers' TrainingArguments that tuning knows, as the command had them, as a JSON object of
       strings; "": it has none */
    const char *arguments;
} vp_command_trial;

/* What a setting took that really trained, on the card here. */
typedef struct vp_command_run {
    vp_command_verdict verdict;              /* VP_COMMAND_UNTRIED: it did not */
    int64_t allocated_bytes, reserved_bytes; /* PyTorch's peaks, of the rank that has the most */
    int64_t card_bytes; /* in use on the card when it ended, by whomever; 0: not known */
    double  step_s;     /* median; 0: too few steps */
    int64_t n_timed;
    const char *evidence; /* why it failed, else "" */
} vp_command_run;

typedef struct vp_command_setting {
    const int       *value; /* of each axis; NULL: the command as it is, outside the space */
    vp_command_trial trial;
    vp_command_run   on_card;
} vp_command_setting;

typedef struct vp_command_opts {
    char *const       *command;
    const char *const *tries;
    int                n_tries;
    const char *const *keeps;
    int                n_keeps;
    const vp_device   *device;
    const char        *device_name; /* as dryrun --device takes it; NULL: its default      */
    int64_t            budget_bytes;
    const char        *study; /* NULL: of this run only                             */
    const char        *asked; /* the command, for who reads the study; or NULL      */
    int64_t            max_trials, steps, world;
    int64_t            n_on_card;   /* of the best settings, how many then train on the card here */
    int64_t            jobs;        /* side by side; 0: by cores and host memory          */
    double             timeout_s;   /* of a trial                                         */
    char *const       *pass;        /* further options of dryrun, or NULL                 */
    const char        *program;     /* in place of this vplan, for tests; or NULL         */
    void (*note)(const char *text); /* progress, or NULL                                 */
} vp_command_opts;

/* What a setting changes in a file. */
typedef struct vp_file_change {
    const char *path, *to; /* as the command names it, and where the changed one goes */
    const char *before, *after;
} vp_file_change;

typedef struct vp_command_files vp_command_files;

enum { VP_COMMAND_MAX_AXES = 12 };

typedef struct vp_command_result {
    vp_arena         *arena;
    vp_command_files *files; /* NULL: the command names none */
    const vp_axis    *axes;
    int               n_axes;
    /* of each axis: trials spoke against what is assumed of its bytes, and of its seconds */
    char                bytes_against[VP_COMMAND_MAX_AXES], seconds_against[VP_COMMAND_MAX_AXES];
    vp_command_setting *settings; /* the space                                             */
    int64_t             n_settings;
    const vp_command_setting  *had;  /* the command as it is; NULL: it has no such thing          */
    const vp_command_setting  *best; /* NULL: none fits                                           */
    const vp_command_setting **tried; /* in the order in which they were asked for               */
    int64_t                    n_tried;
    json_t                    *assumptions; /* array of strings                                   */
    const char                *stopped_because;
    int64_t                    n_ruled_out_memory, n_ruled_out_speed, n_no_use, n_expected_slower,
        n_expected_too_large;
    int64_t n_ahead;   /* played while others ran, and never asked for */
    int64_t n_on_card; /* settings that trained on the card; best is the fastest of them */
    double  wall_s;
} vp_command_result;

/* The command with a setting's values; NULL-terminated, in arena. */
char *const *vp_command_line_of(const vp_command_result *result, char *const *command,
                                const vp_command_setting *setting, vp_arena *arena);

/* Where edited files go, and what is written in place of the folders they name. */
typedef struct vp_file_places {
    const char         *
        folder; /* of the changed files; the command and other files then name them there. NULL: they keep their names */
    const char *outputs; /* of output folders that files name; NULL: as they are */
} vp_file_places;

/* The same, and the files that it needs changed. VP_ERR_INPUT: a file cannot be told. */
vp_status vp_command_with(const vp_command_result *result, char *const *command,
                          const vp_command_setting *setting, const vp_file_places *places,
                          vp_arena *arena, char *const **words, vp_file_change **changes,
                          int *n_changes, vp_err *err);

/* VP_OK: trials were run; best is NULL where none fits. VP_ERR_USAGE: tries, keeps or the command. VP_ERR_NO_TRIAL:
 * no trial succeeded for another reason than memory, which the message has. VP_ERR_STORAGE: the study. Release
 * the result in any case. */
vp_status vp_command_tune(const vp_command_opts *opts, vp_command_result *result, vp_err *err);
void      vp_command_result_release(vp_command_result *result);

/* Whether axes of a command are known by themselves, so that it can be tuned without opts.tries. */
bool vp_command_is_known(char *const *command, int64_t world);

/* A regular file that is read where a command names it: YAML, JSON or TOML by its name, and not too large. */
bool vp_command_is_settings_file(const char *path);

#endif
