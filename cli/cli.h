/* cli/cli.h: what the subcommands of vplan share. A subcommand is one file cmd_NAME.c with one vp_command; main.c lists
 * them. Only cli/ prints and exits.
 *
 *     static vp_status run(int argc, char **argv, vp_cli *cli, vp_err *err) { ... }
 *     const vp_command vp_cmd_models = { "models", "[NAME] [--json]", "what is built in", run };
 *
 * run() gets the words behind the subcommand's name. It prints its answer to stdout, notes to stderr, and may set
 * cli->exit_code (3: does not fit) where the answer is complete; an error is returned and main.c tells it, as JSON
 * too when cli->json. */
#ifndef VP_CLI_CLI_H
#define VP_CLI_CLI_H

#include "core/err.h"
#include "core/json.h"
#include "core/profile.h"
#include "models/devices.h"
#include "models/model.h"
#include "planner/itemise.h"
#include "planner/planner.h"

#include <stdbool.h>

typedef struct vp_cli {
    bool json;        /* --json was given anywhere before "--" */
    int  exit_code;
} vp_cli;

typedef struct vp_command {
    const char *name, *synopsis, *summary;
    vp_status (*run)(int argc, char **argv, vp_cli *cli, vp_err *err);
} vp_command;

/* ---- options ---- */

typedef enum vp_option_kind {
    VP_OPTION_FLAG,   /* bool *, no value                          */
    VP_OPTION_TEXT,   /* const char **                             */
    VP_OPTION_SIZE,   /* int64_t *, core/units.h                   */
    VP_OPTION_COUNT,  /* int64_t *, a whole number from 1          */
    VP_OPTION_SEED,   /* int64_t *, a whole number from 0          */
    VP_OPTION_REAL    /* double *, >= 0                            */
} vp_option_kind;

typedef struct vp_option {
    const char    *name;   /* "--budget" or "-o" */
    vp_option_kind kind;
    void          *value;  /* the caller's default stays where the option is not given */
} vp_option;

/* Options in any place before "--"; "--name value" and "--name=value". Every command takes --json. The other words go
 * to positional[0 .. max_positional). What is behind "--" is *rest, NULL-terminated as argv is, NULL if there is no
 * "--" (rest NULL: "--" only ends the options). VP_ERR_USAGE: unknown option (with the nearest known
 * one), missing or malformed value, the same option twice, too many words. */
vp_status vp_options_parse(int argc, char **argv, const vp_option *options, int n_options, const char **positional,
                           int max_positional, int *n_positional, char ***rest, vp_err *err);

/* ---- shared by commands ---- */

/* Print a JSON document to stdout; takes the reference, NULL counts as out of memory. */
vp_status vp_print_json(json_t *j, vp_err *err);

/* Before any work: whether path can be written. VP_ERR_USAGE where it exists and overwrite is false, or where it is one
 * of the inputs (NULL: none), also by another name; VP_ERR_STORAGE where its folder takes no file. */
vp_status vp_output_check(const char *path, bool overwrite, const char *const *inputs, int n_inputs, vp_err *err);

/* The options that choose a plan, as plan and tune take them. */
typedef struct vp_plan_options {
    const char *device, *recipe, *profile, *precision, *optimizer, *recompute, *offload, *loss, *attention, *class_name;
    int64_t     budget_bytes, seq, global_batch, micro_batch;
} vp_plan_options;

enum { VP_N_PLAN_OPTIONS = 14 };

/* Append them to options[]; returns how many. */
int vp_plan_options_list(vp_plan_options *o, vp_option *options);

/* What they ask for. model_name is opened; all of it lives until vp_plan_job_release(). */
typedef struct vp_plan_job {
    vp_plan_request request;
    vp_model       *model;
    vp_profile     *profile;
    vp_device       device;
} vp_plan_job;
vp_status vp_plan_job_open(const char *model_name, const vp_plan_options *o, vp_plan_job *job, vp_err *err);
void      vp_plan_job_release(vp_plan_job *job);

/* The words of --precision, --optimizer, --attention, --recompute and --loss; any: the word "any" is one too, and gives the
 * count (VP_N_PRECISIONS, ...). A device without the precision's number format refuses it with the reason.
 * device_name, or NULL: which one is asked about a format that no precision has. */
vp_status vp_parse_precision(const char *text, bool any, const char *device_name, vp_precision *out, vp_err *err);
vp_status vp_parse_optimizer(const char *text, bool any, vp_optimizer *out, vp_err *err);
vp_status vp_parse_attention(const char *text, bool any, vp_attention_kind *out, vp_err *err);
vp_status vp_check_precision(const vp_device *device, vp_precision precision, vp_err *err);
vp_status vp_parse_recompute(const char *text, vp_recompute *out, vp_err *err);
vp_status vp_parse_loss(const char *text, int64_t *chunk, vp_err *err);

/* A device, and the budget that goes with it: given, else what is usable. NULL: the card here, with what is free on it now, else the CPU. */
vp_status vp_parse_budget(const char *device_name, int64_t given_bytes, vp_device *device, int64_t *budget_bytes, vp_err *err);

/* "micro-batch 4 x 2, recompute none, loss in chunks of 1,024 tokens"; mixed blocks are listed in chain order, "9 blocks recompute
 * ln_1 + mlp.act; 3 blocks recompute nothing". Returns buf. */
const char *vp_scenario_text(const vp_model *model, const vp_scenario *s, char *buf, size_t buf_size);

/* On whose authority the plan says what lies outside its arena: "assumed", or "measured: " and with what. Returns buf. */
const char *vp_outside_class_text(const vp_plan *plan, char *buf, size_t buf_size);

/* Options that today have one value: taken when they name it (or are not given), refused otherwise, never ignored. */
vp_status vp_only_value(const char *option, const char *given, const char *value, vp_err *err);

/* Pieces of answers that several commands give. */
void    vp_outside_to_answer(const vp_plan *plan, json_t *answer); /* adds outside_bytes and outside_class; answer may be NULL */
json_t *vp_items_json(const vp_itemised *itemised);
json_t *vp_phases_json(const vp_itemised *itemised);
json_t *vp_proof_json(const vp_plan *plan);
json_t *vp_presets_json(const vp_plan_answer *answer);

/* ---- the commands ---- */

extern const vp_command vp_cmd_estimate, vp_cmd_plan, vp_cmd_explain, vp_cmd_run, vp_cmd_tune, vp_cmd_dryrun, vp_cmd_models, vp_cmd_devices;

#endif
