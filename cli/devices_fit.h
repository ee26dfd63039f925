/* cli/devices_fit.h: vplan devices --fits MODEL: the cards that would do. */
#ifndef VP_CLI_DEVICES_FIT_H
#define VP_CLI_DEVICES_FIT_H

#include "cli/cli.h"
#include "devices/devices.h"

/* What `vplan devices` is told. */
typedef struct vp_devices_options {
    const char *model, *precision, *optimizer;
    int64_t     seq, global_batch, micro_batch; /* micro_batch 0: free */
} vp_devices_options;

/* The whole answer: every card of the table on which some plan of the request fits, with the least
 * that a plan needs there. Exit code 3 where there is none. */
vp_status vp_devices_fit(const vp_devices_options *o, vp_cli *cli, vp_err *err);

/* Of the table's cards with more usable bytes than these and a compute capability not below this one (80: 8.0), of which none
 * from that on is told from another, the smallest that holds what is needed; where none does the largest. False: there is none larger. */
bool vp_devices_larger(int64_t needs_bytes, int64_t than_bytes, int capability, vp_device *out);

#endif
