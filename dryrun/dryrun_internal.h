/* dryrun/dryrun_internal.h: what the files of a dry run share.
 *
 *     environment.c     what the child gets: the libraries to preload, the card, the ranks
 *     context.c         what lies on a card outside PyTorch's allocator, by card
 *     scratch_folder.c  the folder that the probe and the libraries write their reports into
 *     keeper.c          the process that runs the command and outlives us where we are killed
 *     collect.c         those reports, read back
 *     probe_report.c    what a member of a report holds
 *     one_run.c         one run, from the environment to the document
 *     kinds.c           ranks of which those that are alike are played once
 *     ranks.c           several ranks: what each took, and whether their collectives agree
 *     verdict.c         fits, oom or failed, and why
 *     document.c        the answer as one document; remedies.c: what would help after an oom
 *     price.c           seconds of the step whose program was recorded */
#ifndef VP_DRYRUN_DRYRUN_INTERNAL_H
#define VP_DRYRUN_DRYRUN_INTERNAL_H

#include "base/child.h"
#include "base/guarded_folder.h"
#include "base/json.h"
#include "dryrun/dryrun_run.h"

#include <limits.h>
#include <signal.h>
#include <sys/types.h>

/* ---- environment.c ---- */

enum { VP_DRYRUN_MAX_ENV = 40 };

/* Variables to add to our own, as vp_child_opts.env_add takes them: vars[n] is NULL. */
typedef struct vp_dryrun_env {
    char *vars[VP_DRYRUN_MAX_ENV + 1];
    int   n;
    bool  failed; /* out of host memory: something is missing */
} vp_dryrun_env;

/* The folder null/ beside this program, or in ../lib/vplan: VP_ERR_DEVICE when it is in neither. */
vp_status vp_dryrun_find_libraries(char *dir, size_t dir_size, vp_err *err);

/* What every Python under the stand-in libraries of null_dir needs: that they are preloaded. */
vp_status vp_dryrun_env_add_libraries(vp_dryrun_env *env, const char *null_dir, vp_err *err);

/* The whole environment of a dry run whose reports go into folder. */
vp_status vp_dryrun_env_make(const vp_dryrun_opts *opts, const char *null_dir, const char *folder,
                             vp_dryrun_env *env, vp_err *err);

/* Whether all ranks are played, together. */
bool vp_dryrun_all_ranks(const vp_dryrun_opts *opts);

void vp_dryrun_env_set(vp_dryrun_env *env, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void vp_dryrun_env_release(vp_dryrun_env *env);

/* ---- scratch_folder.c ---- */

/* A temporary folder of our own. The command knows its path and may put anything in it, or
 * something else in its place: it is emptied through fd. */
typedef struct vp_dryrun_folder {
    char            path[PATH_MAX]; /* "" when there is none */
    int             fd;
    dev_t           device;
    ino_t           inode;
    pid_t           keeper;    /* that removes it too, should we be ended before; 0: none */
    int             keeper_fd; /* to close when we no longer need it                      */
    vp_folder_guard guard;     /* that removes it until there is a keeper */
    bool            holds_signals;
    sigset_t        was; /* the signals that were blocked before */
} vp_dryrun_folder;

/* SIGINT, SIGTERM and SIGHUP wait from here until the folder is released, but for vp_dryrun_keep(), which passes
 * them on: so that none ends this process while the folder is there and nobody else's. */
vp_status vp_dryrun_folder_make(vp_dryrun_folder *folder, vp_err *err);

/* For keeper.c, which lets them through: they wait again. */
void vp_dryrun_hold_signals(vp_dryrun_folder *folder);

/* Remove it with all that lies in it, let the keeper go, and take the signals that have waited. */
void vp_dryrun_folder_release(vp_dryrun_folder *folder);

/* ---- keeper.c ---- */

/* vp_child_run() in a process of its own, the keeper. When this process ends, however it ends, also
 * by SIGKILL, the keeper ends the command with all its descendants and removes the folder; when
 * the keeper is killed, this process does. Nothing may be captured (out, err of opts).
 *
 *     this process --- fork ---> keeper --- vp_child_run ---> the command ---> its descendants
 *         signals ------ orders ---->
 *                <----- answers ----- result
 *         end of file -- orders ---->   the folder is removed
 */
vp_status vp_dryrun_keep(const vp_child_opts *opts, vp_dryrun_folder *folder,
                         vp_child_result *result, vp_err *err);

/* ---- probe_report.c ---- */

/* A member of a report; 0, "" or false where it is missing or of another type. */
int64_t     vp_dryrun_report_int(const vp_json_node *node, const char *key);
const char *vp_dryrun_report_text(const vp_json_node *node, const char *key);
bool        vp_dryrun_report_bool(const vp_json_node *node, const char *key);
bool        vp_dryrun_report_object(const vp_json_node *node, const char *key, vp_json_node *out);

/* ---- collect.c ---- */

typedef struct vp_dryrun_findings {
    vp_json_doc *report;            /* of the process that used the device most          */
    int          n_reports, n_cuda; /* Python processes, and those that used the device  */
    int          n_ranks;           /* started by a launcher beside rank 0, not played   */
    json_t      *ranks;             /* array, by rank: what each that was played took    */
    char         mismatch[1700];    /* of their collectives: what would hang; "": none   */
    json_t      *unsupported;       /* array of {library, function, why}                 */
    int64_t
        host_bytes; /* most that a forked command held of the host's memory; 0: it was not forked */
    char    host_full[256];   /* how host memory ran out; "" if it did not         */
    char    type[128];        /* of an error of a process that did not use the device, such */
    char    message[4096];    /* as the one that started the others; "": none          */
    int64_t error_rank;       /* how much it says                                       */
    char    allocator[256];   /* NAME=VALUE by which PyTorch's allocator is set; "": none */
    bool    allocator_unread; /* torch was never imported with it */
    char    snapshot[PATH_MAX];
} vp_dryrun_findings;

vp_status vp_dryrun_collect(const char *folder, vp_dryrun_findings *found, vp_err *err);

/* ---- ranks.c ---- */

/* Add what the report of a rank says to the array of all, in order. */
void vp_dryrun_rank_add(json_t *ranks, const vp_json_node *report);

/* Whether two of these took the same bytes in every phase. */
bool vp_dryrun_same_bytes(const json_t *a, const json_t *b);

/* An array of arrays of ranks that took the same bytes in every phase. */
json_t *vp_dryrun_alike(const json_t *ranks);

/* Compare the collectives of the ranks that were played together: the same in the same order on every member of a
 * communicator, and a receive for each send. out: what would hang, or "". */
vp_status vp_dryrun_compare_ranks(const char *folder, char *out, size_t size, vp_err *err);

/* The same of ranks that were played by themselves, each with the text of its calls (NULL: none): of communicators of all
 * ranks, whose calls are taken to be in one order. */
vp_status vp_dryrun_compare_calls(const char *const *calls, const int64_t *ranks, int64_t n,
                                  int64_t world, char *out, size_t size, vp_err *err);

/* ---- one_run.c, kinds.c ---- */

enum { VP_DRYRUN_MAX_KINDS = 1024 };

/* What is known of a rank that was played by itself. The caller's. */
typedef struct vp_dryrun_alone {
    json_t *row;   /* as one of vp_dryrun_findings.ranks; NULL: it never used the device */
    char   *calls; /* its collectives, as lines; NULL: none                              */
} vp_dryrun_alone;

/* One run; the number of it decides where threads are held up. alone: NULL, or to be filled. */
vp_status vp_dryrun_run_once(const vp_dryrun_opts *opts, int64_t number, vp_dryrun_result *result,
                             vp_dryrun_alone *alone, vp_err *err);

/* opts->ranks is "kinds". */
vp_status vp_dryrun_run_kinds(const vp_dryrun_opts *opts, vp_dryrun_result *result, vp_err *err);

/* ---- verdict.c ---- */

typedef struct vp_dryrun_judgement {
    const char *verdict;      /* fits | oom | failed */
    int         exit_code;    /* of vplan */
    char        reason[1800]; /* "" when there is nothing to add */
} vp_dryrun_judgement;

void vp_dryrun_judge(const vp_dryrun_opts *opts, const vp_child_result *child,
                     const vp_dryrun_findings *found, vp_dryrun_judgement *out);

/* ---- document.c, remedies.c ---- */

json_t *vp_dryrun_document(const vp_dryrun_opts *opts, const vp_dryrun_findings *found,
                           const char *verdict, int child_exit_code, const char *reason);

/* Append a sentence, what comes from outside escaped. */
void vp_dryrun_text_add(json_t *array, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What would help after an out-of-memory failure, largest first by what is there to be saved. */
json_t *vp_dryrun_remedies(const vp_json_node *root, const json_t *items);

/* ---- price.c ---- */

/* Seconds of a recorded step on a device, by the time model of devices/efficiency.h: where they go, by class of work. NULL: the
 * program is empty. */
json_t *vp_dryrun_price(const vp_device *device, const vp_json_node *program);

#endif
