#include "base/guarded_folder.h"

#include "base/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_LETTERS = 6, MAX_DEPTH = 32 };

static void empty(int fd, int depth)
{
    DIR           *d = fdopendir(fd);
    struct dirent *entry;

    assert(fd >= 0 && depth >= 0 && depth <= MAX_DEPTH);
    if (!d) {
        close(fd);
        return;
    }
    rewinddir(d);
    while ((entry = readdir(d))) {
        int below;

        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            unlinkat(dirfd(d), entry->d_name, 0) == 0 || depth == MAX_DEPTH)
            continue;
        below = openat(dirfd(d), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0) {
            empty(below, depth + 1);
            unlinkat(dirfd(d), entry->d_name, AT_REMOVEDIR);
        }
    }
    closedir(d);
}

void vp_folder_empty(int fd)
{
    empty(fd, 0);
}

/* Remove the folder, if it is ours; processes that end only now may still put something into it. */
static void remove_folder(const char *path)
{
    enum { TRIES = 100, PAUSE_US = 100000 };
    struct stat info;

    for (int i = 0; i < TRIES; i++) {
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return;
        if (fstat(fd, &info) || info.st_uid != geteuid()) {
            close(fd);
            return;
        }
        empty(fd, 0);
        if (rmdir(path) == 0 || errno != ENOTEMPTY)
            return;
        usleep(PAUSE_US);
    }
}

static _Noreturn void guard(const char *path, int owner)
{
    char byte;

    setsid(); /* a signal to the owner's group does not reach it */
    prctl(PR_SET_NAME, "folder-guard");
    close(STDIN_FILENO);
    close(STDOUT_FILENO); /* nobody waits for their end */
    close(STDERR_FILENO);
    if (!vp_read_all(owner, &byte, 1))
        remove_folder(path);
    _exit(0);
}

static void start(const char *path, vp_folder_guard *out)
{
    int   ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC))
        return; /* the folder serves without one */
    assert(ends[0] > STDERR_FILENO);
    pid = fork();
    if (pid == 0) {
        close(ends[1]);
        guard(path, ends[0]);
    }
    close(ends[0]);
    if (pid < 0)
        close(ends[1]);
    else
        out->pid = pid, out->fd = ends[1];
}

void vp_guard_dismiss(vp_folder_guard *g)
{
    if (g->pid <= 0)
        return;
    vp_write_all(g->fd, "", 1);
    close(g->fd);
    while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    g->pid = 0;
}

static bool draw_name(char *letters)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    unsigned char     drawn[N_LETTERS];

    if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn)
        return false;
    for (int i = 0; i < N_LETTERS; i++)
        letters[i] = alphabet[drawn[i] % (sizeof alphabet - 1)];
    return true;
}

bool vp_guarded_folder_make(char *path, vp_folder_guard *g)
{
    enum { TRIES = 100 };
    size_t n = strlen(path);

    assert(n > N_LETTERS);
    *g = (vp_folder_guard){0};
    for (int i = 0; i < TRIES; i++) {
        if (!draw_name(path + n - N_LETTERS))
            return false;
        if (access(path, F_OK) == 0)
            continue; /* somebody's */
        start(path, g);
        if (mkdir(path, 0700) == 0)
            return true;
        int error = errno;
        vp_guard_dismiss(g);
        errno = error;
        if (error != EEXIST)
            return false;
    }
    return false;
}
