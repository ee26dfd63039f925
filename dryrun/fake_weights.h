/* dryrun/fake_weights.h: a checkpoint folder of the right names, shapes and dtypes whose data takes
 * no disk.
 *     vp_fake_weights_opts opts = { .config_path = "config.json", .out_dir = "w", .python = argv };
 *     VP_TRY(vp_fake_weights_make(&opts, &exit_code, err)); */
#ifndef VP_DRYRUN_FAKE_WEIGHTS_H
#define VP_DRYRUN_FAKE_WEIGHTS_H

#include "base/err.h"

#include <stdbool.h>

typedef struct vp_fake_weights_opts {
    const char  *config_path; /* a config.json or a folder with one, or NULL          */
    const char  *config_text; /* used where config_path is NULL: the config itself    */
    const char  *out_dir;
    const char  *dtype;  /* a torch name, or NULL: as the config says                 */
    bool         force;  /* write into a folder that is not empty                     */
    char *const *python; /* command of a Python with transformers; one or more words  */
} vp_fake_weights_opts;

/* VP_OK: our script was run, and *exit_code says how it ended. VP_ERR_DEVICE, VP_ERR_USAGE and
 * VP_ERR_STORAGE as vp_dryrun_run() has them. */
vp_status vp_fake_weights_make(const vp_fake_weights_opts *opts, int *exit_code, vp_err *err);

#endif
