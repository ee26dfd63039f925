/* cli/dryrun_run.h: run a command over the stand-in CUDA libraries and say what PyTorch asked for.
 *     vp_dryrun_opts opts = { .device = &device, .budget_bytes = budget, .command = argv };
 *     VP_TRY(vp_dryrun_run(&opts, &result, err));
 * The child gets the libraries of kernels/null and the probe through its environment and nothing else;
 * what it prints goes to our standard error. All it leaves behind is removed, except the snapshot. */
#ifndef VP_CLI_DRYRUN_RUN_H
#define VP_CLI_DRYRUN_RUN_H

#include "core/err.h"
#include "models/devices.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum vp_dryrun_chosen { VP_DRYRUN_NAMED, VP_DRYRUN_HERE, VP_DRYRUN_DEFAULT } vp_dryrun_chosen;

typedef struct vp_dryrun_opts {
    const vp_device *device;         /* a CUDA card                                              */
    int64_t          budget_bytes;   /* of device memory, context included                       */
    vp_dryrun_chosen chosen_by;      /* what was not named is listed in the answer               */
    int64_t          world;          /* ranks; this process is rank 0. 1: no communication       */
    const char      *snapshot_path;  /* for PyTorch's memory viewer, or NULL                     */
    bool             force;          /* replace snapshot_path                                    */
    const char      *padding;        /* "mask" or "none": what attention masks hold              */
    const char      *value;          /* what device values read as, or NULL for zero             */
    const char      *cudnn;          /* "auto": asked where it can answer; "off"                 */
    double           select_frac;    /* of a boolean mask that is taken to be true               */
    int64_t          host_bytes;     /* end the command above this; 0: when the host is nearly full */
    double           timeout_s;      /* 0: none                                                  */
    char *const     *command;        /* NULL-terminated                                          */
} vp_dryrun_opts;

typedef struct vp_dryrun_result {
    json_t *document;                /* INTERFACE's dryrun object; json_decref() it              */
    int     exit_code;               /* of vplan: 0 fits, 3 oom, 4 failed or unsupported, 5, 128+n */
} vp_dryrun_result;

/* VP_OK: the command was started and the document says how it went. VP_ERR_DEVICE: the stand-in is not
 * installed beside this program, or no process could be made. VP_ERR_USAGE: the command cannot be
 * executed. VP_ERR_STORAGE: the temporary folder or the snapshot could not be written. */
vp_status vp_dryrun_run(const vp_dryrun_opts *opts, vp_dryrun_result *result, vp_err *err);

/* Make a checkpoint folder without contents by running `python` (a command of one or more words) with
 * our script: model is a built-in name, a config.json, a folder with one, or a Hub id in the local cache
 * (VP_ERR_INPUT with the command that downloads it, where it is not); dtype a torch name or NULL. */
vp_status vp_dryrun_fake_weights(const char *model, const char *out_dir, const char *dtype, bool force,
                                 char *const *python, int *exit_code, vp_err *err);

#endif
