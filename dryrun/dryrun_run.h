/* dryrun/dryrun_run.h: run a command over the stand-in CUDA libraries and say what PyTorch asked
 * for.
 *     vp_dryrun_opts opts = { .device = &device, .budget_bytes = budget, .command = argv };
 *     VP_TRY(vp_dryrun_run(&opts, &result, err));
 * The child gets the libraries of dryrun/stand_in and the probe through its environment and
 * nothing else; what it prints goes to our standard error. All it leaves behind is removed,
 * except the snapshot. */
#ifndef VP_DRYRUN_DRYRUN_RUN_H
#define VP_DRYRUN_DRYRUN_RUN_H

#include "base/err.h"
#include "devices/devices.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum vp_dryrun_chosen {
    VP_DRYRUN_NAMED,
    VP_DRYRUN_HERE,
    VP_DRYRUN_DEFAULT
} vp_dryrun_chosen;

typedef struct vp_dryrun_opts {
    const vp_device *device;       /* a CUDA card                                              */
    int64_t          budget_bytes; /* of device memory, context included                       */
    vp_dryrun_chosen chosen_by;    /* what was not named is listed in the answer               */
    int64_t          world;        /* ranks; 1: none, or as a launcher starts them             */
    const char      *ranks;    /* to be played: "all", "kinds", or "0" or "0,7", each by itself */
    bool             of_kinds; /* one of those that "kinds" plays: the others are said by it */
    const char      *snapshot_path; /* for PyTorch's memory viewer, or NULL                     */
    bool             force;         /* replace snapshot_path                                    */
    const char      *padding;       /* "mask" or "none": what attention masks hold              */
    const char      *value;         /* what device values read as, or NULL for zero             */
    const char      *cudnn;         /* "auto": asked where it can answer; "off"                 */
    double           select_frac;   /* of a boolean mask that is taken to be true               */
    /* end the command above this; 0: when the host is nearly full */
    int64_t      host_bytes;
    double       timeout_s; /* 0: none                                                  */
    int64_t      steps;     /* of the optimizer, then its data is over; 0: as many as CMD does */
    int64_t      repeat;    /* runs, of which the one that reserved most is told; 0: 1    */
    bool         time;      /* record a step's program, and price it                   */
    bool         no_owners; /* do not record who holds what at the peak: it costs time */
    const char  *forks_at;  /* socket of a process that the command may be forked from, or NULL */
    char *const *command;   /* NULL-terminated                                          */
} vp_dryrun_opts;

typedef struct vp_dryrun_result {
    json_t *document; /* what `vplan dryrun --json` prints; json_decref() it      */
    /* of vplan: 0 fits, 3 oom, 4 failed or unsupported, 5, 128+n */
    int exit_code;
} vp_dryrun_result;

/* What a PyTorch process takes of a card outside its caching allocator: context, kernels, handles. */
typedef struct vp_dryrun_context {
    int64_t         least_bytes, bytes; /* it lies between these; bytes is what is counted with */
    vp_figure_class class_;
    const char     *source; /* of the table, or of the device: as long as it lives      */
} vp_dryrun_context;

vp_dryrun_context vp_dryrun_context_of(const vp_device *device);

/* VP_OK: the command was started and the document says how it went. VP_ERR_DEVICE: the stand-in
 * is not installed beside this program, or no process could be made. VP_ERR_USAGE: the command
 * cannot be executed. VP_ERR_STORAGE: the temporary folder or the snapshot could not be written. */
vp_status vp_dryrun_run(const vp_dryrun_opts *opts, vp_dryrun_result *result, vp_err *err);

#endif
