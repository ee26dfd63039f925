/* base/child.h: run another program with limits, and know how it ended.
 *     vp_child_opts opts = { .argv = argv, .timeout_s = 60, .max_output_bytes = 1 << 20 };
 *     VP_TRY(vp_child_run(&opts, &result, err));
 *
 * The child is an argument vector, never a shell line. It gets its own session and process group,
 * dies with this process (parent-death signal), has no core dump, and an empty standard input
 * unless one is given. Its output is drained all the time; of a stream beyond its limit the first
 * and the last half are kept and what falls between is counted, since the reason for an end stands
 * at the end. On time-out the group gets SIGTERM, after grace_s SIGKILL. What the child leaves
 * behind when it ends, however it ends, is ended too, also what left the group. SIGINT, SIGTERM and
 * SIGHUP that reach us while it runs (and are not ignored) end it; a second one ends it at once.
 * Where this process itself works for another, owner_fd says whether that one is still there.
 *
 * One call at a time, from a thread that lives as long as the child; nothing else in this
 * process may start processes meanwhile, they would be taken for the child's. */
#ifndef VP_BASE_CHILD_H
#define VP_BASE_CHILD_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum vp_child_stream {
    VP_CHILD_CAPTURE,   /* keep up to max_output_bytes        */
    VP_CHILD_INHERIT,   /* the child writes where we do       */
    VP_CHILD_TO_STDERR, /* the child writes to our stderr     */
    VP_CHILD_DISCARD
} vp_child_stream;

typedef struct vp_child_opts {
    char *const    *argv;        /* argv[0] is a path or, with search_path, a name   */
    char *const    *env_add;     /* "NAME=value" added to our environment, or NULL   */
    bool            search_path; /* find argv[0] in PATH: only for the user's commands */
    const char     *stdin_bytes; /* NULL: /dev/null                                  */
    size_t          n_stdin_bytes;
    vp_child_stream out, err;         /* standard output and standard error               */
    size_t          max_output_bytes; /* kept of each captured stream; 0: 1 MiB           */
    double          timeout_s;        /* total; 0: none                                   */
    double          silence_s;        /* longest time without captured output; 0: none    */
    double          grace_s;          /* between SIGTERM and SIGKILL; 0: 10 s             */
    /* called every tick_s while it runs, with tick_arg; or NULL */
    void (*tick)(void *arg);
    void  *tick_arg;
    double tick_s;
    /* a pipe, not blocking, or 0: each byte of it is as good as a signal of that number that
     * reaches us, and its end as SIGTERM */
    int owner_fd;
} vp_child_opts;

typedef enum vp_child_end {
    VP_CHILD_EXITED,     /* exit_code is its code                          */
    VP_CHILD_SIGNALED,   /* term_signal ended it                           */
    VP_CHILD_TIMED_OUT,  /* we ended it: total time                        */
    VP_CHILD_SILENT,     /* we ended it: no output for silence_s           */
    VP_CHILD_INTERRUPTED /* we ended it: term_signal reached us            */
} vp_child_end;

typedef struct vp_child_result {
    vp_child_end end;
    int          exit_code, term_signal;
    char        *out, *err;    /* NUL-terminated, the caller's; vp_child_result_release() */
    size_t       n_out, n_err; /* bytes there                                            */
    int64_t      n_out_lost, n_err_lost; /* left out of the middle, where a line says so        */
    double       seconds;       /* wall, monotonic                                        */
    int64_t      max_rss_bytes; /* of the child or, if more, of us when it was started    */
} vp_child_result;

/* VP_OK means it ran and ended, however badly: *result says how. VP_ERR_USAGE: argv[0] cannot be
 * executed (not found, not executable, a folder); VP_ERR_DEVICE: no process could be made. */
vp_status vp_child_run(const vp_child_opts *opts, vp_child_result *result, vp_err *err);
/* The same VP_ERR_USAGE without running it. */
vp_status vp_child_check(const vp_child_opts *opts, vp_err *err);
void      vp_child_result_release(vp_child_result *result);

/* Environment of children that compute in threads, where the user has not said otherwise: OpenBLAS
 * starts none of its own beside ours, and a thread that waits soon sleeps (two that span took 70
 * times as long as one, on two cores with a load of 7). Here, since libraries read it before
 * main(). */
void vp_child_env_for_threads(void);

/* End every process below this one: where a process that called vp_child_run() for this one was
 * itself ended, and this one, as their subreaper, got what it had started. */
void vp_child_end_all(void);

#endif
