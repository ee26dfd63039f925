/* dryrun/stand_in/null_files.c: files of an earlier run stay as they are, whoever writes them (Python, Rust, a shell).
 *
 *     checkpoint-N that was there    nothing is written into it: neither over its files nor beside them
 *     beside weights of before       a file that was there is not written over
 *
 * "Before" is before the command began (VPLAN_NULL_BEGAN). What is spared is written nowhere, the writer is told that all
 * went well, and the probe is told its name. Reading, adding to a file's end and all other files are as ever. */
#undef _FORTIFY_SOURCE
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "dryrun/stand_in/null_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define E VP_NULL_EXPORT

enum { MAX_ENTRIES = 10000, MAX_DEPTH = 4 };

/* ---- what was there before ---- */

static double began(void)
{
    const char *text = getenv("VPLAN_NULL_BEGAN");

    return text ? strtod(text, NULL) : 0;
}

static bool is_older(const struct stat *info)
{
    return S_ISREG(info->st_mode) &&
           (double)info->st_mtim.tv_sec + 1e-9 * (double)info->st_mtim.tv_nsec < began();
}

static bool is_weights(const char *name)
{
    static const char *const ends[] = {".safetensors", ".bin", ".pt",     ".pth",
                                       ".ckpt",        ".tar", ".distcp", ".gguf"};
    size_t                   n      = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* Whether a folder, or one in it down to a depth, holds a file of before. */
static bool holds_older(const char *folder, bool weights, int depth)
{
    DIR           *d     = opendir(folder);
    bool           found = false;
    int            left  = MAX_ENTRIES;
    struct dirent *entry;
    struct stat    info;
    char           path[PATH_MAX];

    while (d && !found && left-- > 0 && (entry = readdir(d))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= PATH_MAX ||
            stat(path, &info) != 0)
            continue;
        found = S_ISDIR(info.st_mode) ? depth > 0 && holds_older(path, weights, depth - 1)
                                      : is_older(&info) && (!weights || is_weights(entry->d_name));
    }
    if (d)
        closedir(d);
    return found;
}

/* How much of a path is a folder of the name checkpoint-N or checkpoint_N; 0: none in it is. */
static size_t rotated(const char *path)
{
    for (const char *at = path; (at = strstr(at, "checkpoint")); at++) {
        const char *digits = at + strlen("checkpoint") + 1, *end = digits;

        while (isdigit((unsigned char)*end))
            end++;
        if ((at == path || at[-1] == '/') && (digits[-1] == '-' || digits[-1] == '_') &&
            end > digits && *end == '/')
            return (size_t)(end - path);
    }
    return 0;
}

/* Whether what is written to this path goes nowhere; over: what it holds would be gone. */
static bool is_spared(const char *path, bool over)
{
    char        folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t      n     = rotated(path);
    struct stat info;

    if (!(began() > 0) || strlen(path) >= sizeof folder)
        return false;
    if (n) {
        snprintf(folder, sizeof folder, "%.*s", (int)n, path);
        if (holds_older(folder, false, MAX_DEPTH))
            return true;
    }
    if (!over || stat(path, &info) != 0 || !is_older(&info))
        return false;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    return holds_older(folder, true, 0);
}

/* ---- the calls ---- */

static int nowhere(const char *path)
{
    vp_null_tell('s', 0, path);
    return memfd_create("nowhere", MFD_CLOEXEC);
}

static bool writes(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH);
}

static bool goes_nowhere(const char *path, int flags)
{
    return path && writes(flags) && is_spared(path, flags & O_TRUNC);
}

#define REAL(type, name) \
    static type real; \
    if (!real) \
    real = (type)(uintptr_t)dlsym(RTLD_NEXT, name)

typedef int (*open_call)(const char *, int, ...);
typedef int (*openat_call)(int, const char *, int, ...);
typedef FILE *(*fopen_call)(const char *, const char *);
typedef int (*rename_call)(const char *, const char *);
typedef int (*renameat_call)(int, const char *, int, const char *);

#define MODE_OF(flags, last) \
    mode_t  mode = 0; \
    va_list more; \
    va_start(more, last); \
    if ((flags) & (O_CREAT | __O_TMPFILE)) \
        mode = (mode_t)va_arg(more, int); \
    va_end(more)

#define OPEN(name) \
    E int name(const char *path, int flags, ...) \
    { \
        REAL(open_call, #name); \
        MODE_OF(flags, flags); \
        return goes_nowhere(path, flags) ? nowhere(path) : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    E int name(int folder, const char *path, int flags, ...) \
    { \
        REAL(openat_call, #name); \
        MODE_OF(flags, flags); \
        return folder == AT_FDCWD && goes_nowhere(path, flags) ? nowhere(path) \
                                                               : real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
    E FILE *name(const char *path, const char *mode) \
    { \
        REAL(fopen_call, #name); \
        int flags = strchr(mode, '+') ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY; \
        int fd    = goes_nowhere(path, flags | (*mode == 'w' ? O_TRUNC : 0)) ? nowhere(path) : -1; \
        return fd >= 0 ? fdopen(fd, mode) : real(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* What was written beside and would now take a spared file's place is dropped; what was there itself stays where it is. */
E int rename(const char *from, const char *to)
{
    struct stat info;

    REAL(rename_call, "rename");
    if (!is_spared(to, true))
        return real(from, to);
    vp_null_tell('s', 0, to);
    if (stat(from, &info) == 0 && is_older(&info))
        return 0;
    return unlink(from) == 0 || rotated(from) ? 0 : -1;
}

E int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    REAL(renameat_call, "renameat");
    return from_folder == AT_FDCWD && to_folder == AT_FDCWD
               ? rename(from, to)
               : real(from_folder, from, to_folder, to);
}
