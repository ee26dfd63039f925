/* cli/cli.h: what the subcommands of vplan share. A subcommand is one file cmd_NAME.c with one
 * vp_command; main.c lists them. Only cli/ prints and exits.
 *
 *     static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err)
 *     {
 *         values          v = {0};
 *         vp_command_line line;
 *         VP_TRY(vp_cli_parse(&vp_cmd_models, argc, argv, cli, (void *[]){&v}, &line, err));
 *         ...
 *     const vp_command vp_cmd_models = {.name = "models", .sets = {&my_rows}, .run = run, ...};
 *
 * run() gets the words behind the subcommand's name. It prints its answer to stdout, notes to
 * stderr, and may set cli->exit_code (3: does not fit) where the answer is complete; an error is
 * returned and main.c tells it, as JSON too when cli->json. */
#ifndef VP_CLI_CLI_H
#define VP_CLI_CLI_H

#include "base/err.h"
#include "base/json.h"
#include "base/options.h"
#include "base/text.h"
#include "base/units.h"
#include "devices/devices.h"
#include "models/model.h"
#include "plan/profile.h"
#include "planner/itemise.h"
#include "planner/planner.h"

#include <stdbool.h>

typedef struct vp_cli {
    bool json;    /* --json was given anywhere before "--" */
    bool help;    /* --help; main.c answers it */
    bool quiet;   /* -q: no notes */
    bool verbose; /* -v: notes of what the answer was made from */
    int  exit_code;
} vp_cli;

/* What the words of a subcommand are, for a shell that completes them. */
typedef enum vp_argument {
    VP_TAKES_NOTHING,
    VP_TAKES_MODEL, /* built-in names, files                 */
    VP_TAKES_FILE,
    VP_TAKES_DEVICE,  /* names of cards, files                */
    VP_TAKES_TARGET,  /* names of trainers whose files are written */
    VP_TAKES_COMMAND, /* subcommands of vplan                 */
    VP_TAKES_SHELL    /* shells that vplan completion knows   */
} vp_argument;

/* A subcommand as a record: help, completion and the man page come from it. Lists end with NULL. */
typedef struct vp_command {
    const char          *name, *summary;
    const char          *usage[4];    /* what may stand behind the name */
    const char          *about[6];    /* paragraphs */
    const char          *examples[5]; /* whole command lines */
    const vp_option_set *sets[6];     /* its own; those of every command are added */
    vp_argument          argument;
    int                  max_words;
    bool                 takes_rest; /* "-- CMD..." */
    bool                 no_json;
    vp_status (*run)(int argc, char **argv, vp_cli *cli, vp_err *err);
} vp_command;

/* Command i of vplan; NULL past the end. */
const vp_command *vp_command_at(int i);

/* The one of this name; VP_ERR_USAGE, with the nearest name: there is none. */
vp_status vp_command_named(const char *word, const vp_command **out, vp_err *err);

/* ---- options: cli/command_line.c ---- */

enum { VP_MAX_SETS = 7 };

/* The sets of a command, those of every command last; returns how many. */
int vp_command_sets(const vp_command *command, const vp_option_set *sets[VP_MAX_SETS]);

/* Read a command's words. values[i] is what the rows of command->sets[i] fill; a set of vp_cli's
 * own rows gets cli there. Prints what a right but strange value calls for. */
vp_status vp_cli_parse(const vp_command *command, int argc, char **argv, vp_cli *cli,
                       void *const *values, vp_command_line *line, vp_err *err);

/* VP_ERR_USAGE: what stands behind the command's name is missing. what asks for it: "which model?"; an example follows. */
vp_status vp_cli_lacks(const vp_command *command, const char *what, vp_err *err);

/* ---- help: cli/cmd_help.c ---- */

/* What --help says of a command, or of vplan where it is NULL. */
void      vp_help_text(const vp_command *command, vp_text *out);
vp_status vp_help_print(const vp_command *command, vp_err *err);

/* A note for people, a line on stderr; none with -q. */
void vp_cli_note(const vp_cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line of what goes on, which may be set in by two spaces. */
void vp_cli_progress(const char *text);

/* One for those who ask how an answer came about: with -v only. */
void vp_cli_detail(const vp_cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* -q and -v, for commands that print notes; fills the vp_cli. */
extern const vp_option_set vp_note_options;

/* Words of choices, for rows; NULL past the end. */
const char *vp_word_of_precision(int i);
const char *vp_word_of_gradients(int i);
const char *vp_word_of_optimizer(int i);
const char *vp_word_of_attention(int i);
const char *vp_word_of_device(int i);
const char *vp_word_of_model(int i);
const char *vp_word_of_target(int i);

/* Before any work: whether path can be written. VP_ERR_USAGE where it exists and overwrite is
 * false, or where it is one of the inputs (NULL: none), also by another name; VP_ERR_STORAGE
 * where its folder takes no file. */
vp_status vp_output_check(const char *path, bool overwrite, const char *const *inputs, int n_inputs,
                          vp_err *err);

/* ---- what to plan: cli/plan_options.c ---- */

/* The options that choose a plan, as plan and tune take them. */
typedef struct vp_plan_options {
    const char *device, *recipe, *profile, *precision, *gradients, *optimizer, *recompute, *offload,
        *updates, *loss, *attention, *class_name, *lora;
    vp_amount budget, reserve;
    int64_t   host_bytes, pinned_bytes, seq, global_batch, micro_batch;
} vp_plan_options;

/* What is planned, and its pins; both fill a vp_plan_options. */
extern const vp_option_set vp_plan_options_set, vp_pin_options_set;

/* What they ask for. model_name is opened; all of it lives until vp_plan_job_release(). */
typedef struct vp_plan_job {
    int64_t         reserve_bytes; /* kept free, not in the request's budget */
    vp_plan_request request;
    vp_model       *model;
    vp_profile     *profile;
    vp_device       device;
} vp_plan_job;
vp_status vp_plan_job_open(const char *model_name, const vp_plan_options *o, vp_plan_job *job,
                           vp_err *err);
void      vp_plan_job_release(vp_plan_job *job);

/* The words of --precision, --gradients, --optimizer, --attention, --recompute and --loss; any: the word
 * "any" is one too, and gives the count (VP_N_PRECISIONS, ...). A device without the precision's
 * number format refuses it with the reason. device_name, or NULL: which one is asked about a
 * format that no precision has. */
vp_status vp_parse_precision(const char *text, bool any, const char *device_name, vp_precision *out,
                             vp_err *err);
vp_status vp_parse_gradients(const char *text, bool any, vp_gradients *out, vp_err *err);
vp_status vp_parse_optimizer(const char *text, bool any, vp_optimizer *out, vp_err *err);
vp_status vp_parse_attention(const char *text, bool any, vp_attention_kind *out, vp_err *err);
/* VP_ERR_USAGE: gradients that cannot stand beside the recipe's precision. */
vp_status vp_check_gradients(const vp_recipe *recipe, vp_err *err);
vp_status vp_check_precision(const vp_device *device, vp_precision precision, vp_err *err);
/* segments:N gives VP_RECOMPUTE_FULL and the number, anything else 0. */
vp_status vp_parse_recompute(const char *text, vp_recompute *out, int64_t *n_segments, vp_err *err);
vp_status vp_parse_loss(const char *text, int64_t *chunk, vp_err *err);

/* "transformers=5.17,trl=1.16" as an object of texts, the caller's; NULL is an empty one. Without "=" it is a path, of a Python
 * environment or of a list of requirements: trainers/files/installed.h. VP_ERR_USAGE; VP_ERR_INPUT: of a path. */
vp_status vp_parse_versions(const char *text, json_t **out, vp_err *err);
/* Whether they are said and not looked up: NULL, or NAME=VERSION that is no path. */
bool vp_names_versions(const char *text);

/* The number format of a recipe that nobody said anything of: bf16-mixed on a card that has bf16,
 * else fp32. */
vp_precision vp_default_precision(const vp_device *device);

/* A device, and the budget that goes with it: given, else what is usable. NULL: the card here,
 * with what is free on it now, else the CPU. */
vp_status vp_parse_budget(const char *device_name, const vp_amount *given, vp_device *device,
                          int64_t *budget_bytes, vp_err *err);

/* What is kept free of a budget: a size, or a share of what is usable. VP_ERR_USAGE where nothing is
 * left. */
vp_status vp_parse_reserve(const vp_amount *reserve, const vp_device *device, int64_t *budget_bytes,
                           vp_err *err);

/* --offload, beside r's host memory and segments. VP_ERR_USAGE where they, or the device, exclude each
 * other. */
vp_status vp_parse_host(const vp_plan_options *o, const vp_device *device, vp_plan_request *r,
                        vp_err *err);

/* --updates, beside r's recipe, batch and offload. VP_ERR_USAGE where these exclude updates in backward. */
vp_status vp_parse_updates(const vp_plan_options *o, const vp_device *device, vp_plan_request *r,
                           vp_err *err);

/* ---- scenarios in words: cli/scenario_words.c ---- */

/* Appends "micro-batch 4, gradient accumulation 2, recompute none, loss in chunks of 1,024 tokens"; mixed
 * blocks are listed in chain order, "9 blocks recompute ln_1 + mlp.act; 3 blocks recompute nothing". */
void vp_scenario_text(vp_text *t, const vp_model *model, const vp_scenario *s);

/* The same on a screen: one line for the whole, and a row of "blocks" for each run of blocks where
 * they differ: "0 to 17: recompute mlp.act". */
void vp_print_scenario(const char *label, const vp_model *model, const vp_scenario *s);

/* ---- answers as JSON: cli/answer_json.c ---- */

/* Print a JSON document to stdout; takes the reference, NULL counts as out of memory. */
vp_status vp_print_json(json_t *j, vp_err *err);

/* On whose authority the plan says what lies outside its arena: "assumed", or "measured: " and
 * with what. Returns buf. */
const char *vp_overhead_class_text(const vp_plan *plan, char *buf, size_t buf_size);

/* Pieces of answers that several commands give. */
/* adds outside_bytes and outside_class; answer may be NULL */
void    vp_overhead_to_answer(const vp_plan *plan, json_t *answer);
json_t *vp_items_json(const vp_itemised *itemised);
json_t *vp_phases_json(const vp_itemised *itemised);
json_t *vp_proof_json(const vp_plan *plan);
json_t *vp_presets_json(const vp_plan_answer *answer);

/* ---- the commands ---- */

extern const vp_command vp_cmd_estimate, vp_cmd_plan, vp_cmd_explain, vp_cmd_run, vp_cmd_tune,
    vp_cmd_emit, vp_cmd_check, vp_cmd_dryrun, vp_cmd_models, vp_cmd_devices, vp_cmd_targets,
    vp_cmd_help, vp_cmd_completion, vp_cmd_study, vp_cmd_doctor;

#endif
