#include "dryrun/dryrun_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void vp_dryrun_hold_signals(vp_dryrun_folder *folder)
{
    sigset_t ending;

    assert(!folder->holds_signals);
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGHUP);
    sigprocmask(SIG_BLOCK, &ending, &folder->was);
    folder->holds_signals = true;
}

vp_status vp_dryrun_folder_make(vp_dryrun_folder *folder, vp_err *err)
{
    const char *tmp = getenv("TMPDIR");
    struct stat info;
    vp_status   st = VP_OK;
    int         length;

    *folder = (vp_dryrun_folder){.fd = -1, .keeper_fd = -1};
    vp_dryrun_hold_signals(folder);
    if (!tmp || !*tmp)
        tmp = "/tmp";
    length = snprintf(folder->path, sizeof folder->path, "%s/vplan-dryrun-XXXXXX", tmp);
    if (length >= (int)sizeof folder->path ||
        !vp_guarded_folder_make(folder->path, &folder->guard)) {
        folder->path[0] = '\0';
        VP_TRY(VP_FAIL(err, VP_ERR_STORAGE, "cannot make a temporary folder in %s: %s", tmp,
                       strerror(errno)));
    }
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->fd < 0 || fstat(folder->fd, &info))
        VP_TRY(VP_FAIL(err, VP_ERR_STORAGE, "%s: %s", folder->path, strerror(errno)));
    folder->device = info.st_dev;
    folder->inode  = info.st_ino;
out:
    return st;
}

void vp_dryrun_folder_release(vp_dryrun_folder *folder)
{
    struct stat info;

    assert(folder->fd < 0 || folder->path[0]);
    assert(!folder->keeper || folder->keeper_fd >= 0);
    if (folder->fd >= 0)
        vp_folder_empty(folder->fd);
    folder->fd = -1;
    /* The command knows its name and may have put something else there: only our own folder goes,
     * or a link that stands in its place, not what that leads to. */
    if (folder->path[0] && lstat(folder->path, &info) == 0) {
        if (S_ISDIR(info.st_mode) && info.st_dev == folder->device && info.st_ino == folder->inode)
            rmdir(folder->path);
        else if (S_ISLNK(info.st_mode))
            unlink(folder->path);
    }
    folder->path[0] = '\0';
    vp_guard_dismiss(&folder->guard);
    if (folder->keeper > 0) {
        close(folder->keeper_fd);
        while (waitpid(folder->keeper, NULL, 0) < 0 && errno == EINTR)
            ;
        folder->keeper = 0;
    }
    if (folder->holds_signals)
        sigprocmask(SIG_SETMASK, &folder->was, NULL);
    folder->holds_signals = false;
}
