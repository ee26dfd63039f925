/* tuner/side_by_side.h: several programs at once, each watched over by a process of its own.
 *     VP_TRY(vp_job_start(&opts, folder, &jobs[0], err));
 *     VP_TRY(vp_jobs_wait(jobs, n, timeout_s, &ended, err));     // one that ended, or -1
 *     vp_job_end(&jobs[ended], &result)                          // what vp_child_run() said of it
 *
 *     this process --- fork ---> watcher --- vp_child_run ---> the program
 *         end of file -- orders ---->
 *                <----- answers ----- result and output
 *
 * When this process ends, however it ends, each watcher ends its program. A watcher holds no file of this
 * process open, so that a study's lock goes with its tuner. */
#ifndef VP_TUNER_SIDE_BY_SIDE_H
#define VP_TUNER_SIDE_BY_SIDE_H

#include "base/child.h"
#include "base/text.h"

#include <sys/types.h>

typedef struct vp_job {
    pid_t   watcher; /* 0: none */
    int     orders, answers;
    vp_text said;
} vp_job;

/* Captured output only. folder: where it runs, or NULL. VP_ERR_DEVICE: no process could be made. */
vp_status vp_job_start(const vp_child_opts *opts, const char *folder, vp_job *job, vp_err *err);

/* Read what jobs say until one has ended: its number, or -1 after timeout_s or at a signal. */
int vp_jobs_wait(vp_job *jobs, int n, double timeout_s);

/* How it ended, once vp_jobs_wait() has named it; release the result. VP_ERR_DEVICE: its watcher was ended. */
vp_status vp_job_end(vp_job *job, vp_child_result *result, vp_err *err);

/* End it now. */
void vp_job_stop(vp_job *job);

#endif
