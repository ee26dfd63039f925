#include "base/file.h"
#include "base/base_internal.h"
#include "base/text.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *vp_file_kind(unsigned st_mode)
{
    switch (st_mode & S_IFMT) {
    case S_IFREG:
        return "a regular file";
    case S_IFDIR:
        return "a directory";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    case S_IFCHR:
        return "a character device";
    case S_IFBLK:
        return "a block device";
    case S_IFLNK:
        return "a link";
    default:
        return "no regular file";
    }
}

/* The error of a call that was meant to read `shown`. */
static vp_status read_failed(const char *shown, const char *doing, int error, vp_err *err)
{
    if (error == ENOMEM)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (error == EMFILE || error == ENFILE)
        return VP_FAIL_AT(err, VP_ERR_DEVICE, shown, 0, NULL, "cannot %s: %s", doing,
                          strerror(error));
    if (error == ENOENT)
        return VP_FAIL_AT(err, VP_ERR_INPUT, shown, 0, NULL, "there is no such file");
    if (error == ELOOP)
        return VP_FAIL_AT(err, VP_ERR_INPUT, shown, 0, NULL, "is a link that leads in a circle");
    return VP_FAIL_AT(err, VP_ERR_INPUT, shown, 0, NULL, "cannot %s: %s", doing, strerror(error));
}

vp_status vp_file_open(int dir_fd, const char *name, const char *shown, int *fd, int64_t *n_bytes,
                       vp_err *err)
{
    struct stat info;

    /* Looked at before it is opened, since opening alone makes some devices act and a FIFO wait;
     * looked at again afterwards, since the name may lead elsewhere by then. */
    *fd = -1;
    if (fstatat(dir_fd, name, &info, 0)) {
        if (errno == ENOENT && !fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW))
            return VP_FAIL_AT(err, VP_ERR_INPUT, shown, 0, NULL,
                              "is a link to a file that is not there");
        return read_failed(shown, "open it", errno, err);
    }
    if (S_ISREG(info.st_mode)) {
        do
            *fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        while (*fd < 0 && errno == EINTR);
        if (*fd < 0)
            return read_failed(shown, "open it", errno, err);
        if (fstat(*fd, &info)) {
            int error = errno;
            close(*fd);
            *fd = -1;
            return read_failed(shown, "look at it", error, err);
        }
    }
    if (!S_ISREG(info.st_mode)) {
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return VP_FAIL_AT(err, VP_ERR_INPUT, shown, 0, NULL, "is %s, not a regular file",
                          vp_file_kind(info.st_mode));
    }
    *n_bytes = info.st_size;
    return VP_OK;
}

vp_status vp_file_read(const char *path, int64_t max_bytes, char **out, int64_t *n_bytes,
                       vp_err *err)
{
    vp_status   st        = VP_OK;
    bool        is_stdin  = !strcmp(path, "-");
    const char *shown     = is_stdin ? "standard input" : path;
    int         fd        = -1;
    int64_t     size      = 0;
    size_t      cap_bytes = 0, used_bytes = 0;
    char       *data = NULL;

    assert(max_bytes >= 0);
    *out     = NULL;
    *n_bytes = 0;
    if (is_stdin)
        fd = STDIN_FILENO;
    else
        VP_TRY(vp_file_open(AT_FDCWD, path, shown, &fd, &size, err));
    if (size > max_bytes) {
        st = VP_FAIL_AT(err, VP_ERR_INPUT, shown, 0, NULL,
                        "is %lld bytes long; at most %lld are read", (long long)size,
                        (long long)max_bytes);
        goto out;
    }
    /* Its size is only a hint: the file may grow meanwhile, and some tell none. */
    cap_bytes = (size_t)size + 4096;
    data      = malloc(cap_bytes);
    VP_TRY_ALLOC(err, data);
    for (;;) {
        ssize_t n;

        if (cap_bytes - used_bytes < 2) {
            char *moved = realloc(data, cap_bytes * 2);
            VP_TRY_ALLOC(err, moved);
            data = moved;
            cap_bytes *= 2;
        }
        assert(cap_bytes - used_bytes >= 2); /* a byte to read into, and the NUL */
        n = read(fd, data + used_bytes, cap_bytes - used_bytes - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            st = read_failed(shown, "read it", errno, err);
            goto out;
        }
        if (n == 0)
            break;
        used_bytes += (size_t)n;
        if ((int64_t)used_bytes > max_bytes) {
            st = VP_FAIL_AT(err, VP_ERR_INPUT, shown, 0, NULL,
                            "is longer than the %lld bytes read "
                            "at most",
                            (long long)max_bytes);
            goto out;
        }
    }
    data[used_bytes] = '\0';
    *out             = data;
    *n_bytes         = (int64_t)used_bytes;
    data             = NULL;
out:
    free(data);
    if (fd >= 0 && !is_stdin)
        close(fd);
    return st;
}

static vp_status write_failed(const char *path, const char *doing, int error, vp_err *err)
{
    if (error == ENOMEM)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    return VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "cannot %s: %s", doing, strerror(error));
}

static vp_status already_there(const char *path, vp_err *err)
{
    return VP_FAIL_AT(err, VP_ERR_USAGE, path, 0, NULL, "already exists; --force replaces it");
}

static uint64_t random_number(void)
{
    uint64_t        r;
    struct timespec now;

    if (getrandom(&r, sizeof r, GRND_NONBLOCK) != (ssize_t)sizeof r) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        r = (uint64_t)now.tv_nsec * 6364136223846793005u ^ (uint64_t)now.tv_sec ^
            (uint64_t)(uintptr_t)&r;
    }
    return r;
}

/* Length of the folder part of path, the slash included; 0 when there is none. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static void folder_of(const char *path, char *folder, size_t folder_size)
{
    size_t n = folder_length(path);
    snprintf(folder, folder_size, "%.*s", n ? (int)n : 1, n ? path : ".");
}

static const char tmp_mark[] = ".vplan-tmp-";

/* Whether name is base + tmp_mark + 16 hexadecimal digits. */
static bool is_temporary_of(const char *name, const char *base)
{
    size_t n_base = strlen(base), n_mark = sizeof tmp_mark - 1;

    return !strncmp(name, base, n_base) && !strncmp(name + n_base, tmp_mark, n_mark) &&
           strlen(name + n_base + n_mark) == 16 &&
           strspn(name + n_base + n_mark, "0123456789abcdef") == 16;
}

/* Remove what writers of this path that were killed have left. A living writer holds a lock on
 * its temporary; that lock, and not a pid, is also right between containers. Failures do no harm
 * here. */
static void remove_orphans(const char *path)
{
    char           folder[PATH_MAX];
    const char    *base = path + folder_length(path);
    DIR           *dir;
    struct dirent *entry;

    folder_of(path, folder, sizeof folder);
    dir = opendir(folder);
    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        if (!is_temporary_of(entry->d_name, base))
            continue;
        int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (!flock(fd, LOCK_EX | LOCK_NB))
            unlinkat(dirfd(dir), entry->d_name, 0);
        close(fd);
    }
    closedir(dir);
}

/* Create w->tmp_path, locked. */
static int open_temporary(vp_file_writer *w)
{
    /* vp_file_begin() refuses a longer path, so that path, mark and digits fit */
    assert(strlen(w->path) + sizeof tmp_mark + 16 <= sizeof w->tmp_path);
    for (int attempt = 0; attempt < 100; attempt++) {
        struct stat info;
        int         fd;

        snprintf(w->tmp_path, sizeof w->tmp_path, "%s%s%016llx", w->path, tmp_mark,
                 (unsigned long long)random_number());
        fd = open(w->tmp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0 && (errno == EEXIST || errno == EINTR))
            continue;
        if (fd < 0)
            return -1;
        /* File systems without locks leave orphans alone; those with them may have swept this one
         * between its creation and its lock. */
        if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
            close(fd);
            continue;
        }
        if (!fstat(fd, &info) && info.st_nlink > 0)
            return fd;
        close(fd);
    }
    errno = EAGAIN;
    return -1;
}

vp_status vp_file_begin(const char *path, bool overwrite, vp_file_writer *w, vp_err *err)
{
    vp_status   st = VP_OK;
    struct stat info, link_info;
    char       *real = NULL;
    bool        exists, link_exists;
    int         fd = -1, error;

    memset(w, 0, sizeof *w);
    w->overwrite = overwrite;
    if (!path[0] || path[strlen(path) - 1] == '/') {
        st = VP_FAIL_AT(err, VP_ERR_USAGE, path, 0, NULL, "is not the name of a file to write");
        goto out;
    }
    exists      = !stat(path, &info);
    link_exists = !lstat(path, &link_info);
    if (exists && !S_ISREG(info.st_mode)) {
        st = VP_FAIL_AT(err, VP_ERR_USAGE, path, 0, NULL,
                        "is %s; only a regular file can be replaced", vp_file_kind(info.st_mode));
        goto out;
    }
    if (link_exists && !overwrite) {
        st = already_there(path, err);
        goto out;
    }
    if (exists && S_ISLNK(link_info.st_mode)) {
        /* The link stays, what it leads to is replaced. */
        real = realpath(path, NULL);
        if (!real) {
            st = write_failed(path, "follow this link", errno, err);
            goto out;
        }
    }
    if (strlen(real ? real : path) >= sizeof w->path) {
        st = VP_FAIL_AT(err, VP_ERR_USAGE, path, 0, NULL,
                        "is longer than a path to write may be "
                        "(%zu bytes)",
                        sizeof w->path - 1);
        goto out;
    }
    strcpy(w->path, real ? real : path);
    remove_orphans(w->path);
    fd = open_temporary(w);
    if (fd < 0) {
        error          = errno;
        w->tmp_path[0] = '\0';
        st             = write_failed(path, "create a file in its folder", error, err);
        goto out;
    }
    if (exists && fchmod(fd, info.st_mode & 0777)) {
        st = write_failed(path, "set the file's mode", errno, err);
        goto out;
    }
    w->stream = fdopen(fd, "w");
    assert(w->path[0] && w->tmp_path[0]);
    VP_TRY_ALLOC(err, w->stream);
    fd = -1;
out:
    if (st != VP_OK)
        vp_file_abort(w);
    if (fd >= 0)
        close(fd);
    free(real);
    return st;
}

/* Give the temporary its name. Without overwrite a file that appeared meanwhile stays. */
static int rename_temporary(const vp_file_writer *w)
{
    assert(w->path[0] && w->tmp_path[0]);
    if (w->overwrite)
        return rename(w->tmp_path, w->path);
#ifdef RENAME_NOREPLACE
    if (!renameat2(AT_FDCWD, w->tmp_path, AT_FDCWD, w->path, RENAME_NOREPLACE))
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
#endif
    /* A file system that cannot: a hard link does not replace either. */
    if (!link(w->tmp_path, w->path)) {
        unlink(w->tmp_path);
        return 0;
    }
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
        return -1;
    if (!access(w->path, F_OK)) {
        errno = EEXIST;
        return -1;
    }
    return rename(w->tmp_path, w->path);
}

/* Make a rename last. Not every file system lets a folder be synced; those say EINVAL. */
static int sync_folder(const char *path)
{
    char folder[PATH_MAX];
    int  fd, error = 0;

    folder_of(path, folder, sizeof folder);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? 0 : errno;
    if (fsync(fd) && errno != EINVAL && errno != EROFS)
        error = errno;
    close(fd);
    return error;
}

vp_status vp_file_commit(vp_file_writer *w, vp_err *err)
{
    vp_status st = VP_OK;
    int       lock_fd, error = 0;

    assert(w->stream);
    /* The lock lives with the open file, and so must outlive the stream until the rename. */
    lock_fd = fcntl(fileno(w->stream), F_DUPFD_CLOEXEC, 0);
    errno   = 0;
    if (fflush(w->stream) || fsync(fileno(w->stream)))
        error = errno ? errno : EIO;
    else if (ferror(w->stream))
        error = EIO;
    errno = 0;
    if (fclose(w->stream) && !error)
        error = errno ? errno : EIO;
    w->stream = NULL;
    if (error) {
        st = write_failed(w->path, "write it", error, err);
        goto out;
    }
    if (rename_temporary(w)) {
        st = errno == EEXIST ? already_there(w->path, err)
                             : write_failed(w->path, "put the new file in place", errno, err);
        goto out;
    }
    w->tmp_path[0] = '\0';
    error          = sync_folder(w->path);
    if (error)
        st = write_failed(w->path, "make sure that it is on disk", error, err);
out:
    vp_file_abort(w);
    if (lock_fd >= 0)
        close(lock_fd);
    return st;
}

void vp_file_abort(vp_file_writer *w)
{
    if (w->tmp_path[0])
        unlink(w->tmp_path);
    if (w->stream)
        fclose(w->stream);
    w->stream      = NULL;
    w->tmp_path[0] = '\0';
}

vp_status vp_file_put(vp_file_writer *w, const void *data, size_t n_bytes, vp_err *err)
{
    assert(w->stream);
    errno = 0;
    if (n_bytes && fwrite(data, 1, n_bytes, w->stream) != n_bytes)
        return write_failed(w->path, "write it", errno ? errno : EIO, err);
    return VP_OK;
}

vp_status vp_file_settle(vp_file_writer *w, vp_err *err)
{
    assert(w->stream);
    errno = 0;
    if (fflush(w->stream) || fsync(fileno(w->stream)) || ferror(w->stream))
        return write_failed(w->path, "write it", errno ? errno : EIO, err);
    return VP_OK;
}

vp_status vp_file_write(const char *path, const void *data, size_t n_bytes, bool overwrite,
                        vp_err *err)
{
    vp_status      st = VP_OK;
    vp_file_writer w  = {0};

    VP_TRY(vp_file_begin(path, overwrite, &w, err));
    VP_TRY(vp_file_put(&w, data, n_bytes, err));
    VP_TRY(vp_file_commit(&w, err));
out:
    vp_file_abort(&w);
    return st;
}

bool vp_read_all(int fd, void *to, size_t n)
{
    char *at = to;

    while (n) {
        ssize_t got = read(fd, at, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

bool vp_write_all(int fd, const void *from, size_t n)
{
    const char *at = from;

    while (n) {
        ssize_t put = write(fd, at, n);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        n -= (size_t)put;
    }
    return true;
}

vp_status vp_file_make_dir(const char *path, vp_err *err)
{
    struct stat info;

    if (!mkdir(path, 0777))
        return VP_OK;
    if (errno != EEXIST)
        return write_failed(path, "make this folder", errno, err);
    if (!stat(path, &info) && !S_ISDIR(info.st_mode))
        return VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "is %s, not a folder",
                          vp_file_kind(info.st_mode));
    return VP_OK;
}

/* Without /proc: the name by which it was started, where that is a path still. */
static bool own_path(char self[PATH_MAX])
{
    ssize_t     n       = readlink("/proc/self/exe", self, PATH_MAX - 1);
    const char *started = (const char *)getauxval(AT_EXECFN);

    if (n > 0)
        self[n] = '\0';
    return n > 0 || (started && realpath(started, self));
}

vp_status vp_file_own_folder(char *folder, size_t folder_size, vp_err *err)
{
    char self[PATH_MAX];
    int  length;

    if (!own_path(self))
        return VP_FAIL(err, VP_ERR_DEVICE, "cannot tell where this program lies: %s",
                       strerror(errno));
    length = snprintf(folder, folder_size, "%.*s", (int)folder_length(self), self);
    if (length < 0 || (size_t)length >= folder_size)
        return VP_FAIL(err, VP_ERR_DEVICE, "cannot tell where this program lies: %s",
                       strerror(ENAMETOOLONG));
    return VP_OK;
}

vp_status vp_file_find_program(const char *name, char *path, size_t path_size, vp_err *err)
{
    static const char *const below[] = {"", "../lib/vplan/"};
    char                     folder[PATH_MAX];
    struct stat              info;
    vp_status                st = VP_OK;

    assert(name[0] && name[0] != '/');
    VP_TRY(vp_file_own_folder(folder, sizeof folder, err));
    for (int i = 0; i < 2; i++) {
        int length = snprintf(path, path_size, "%s%s%s", folder, below[i], name);
        if (length > 0 && (size_t)length < path_size && !stat(path, &info) && S_ISREG(info.st_mode))
            return VP_OK;
    }
    VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "%s is neither in %s nor in ../lib/vplan beside it", name,
                   folder));
out:
    return st;
}
