#include "base/child.h"
#include "base/base_internal.h"
#include "base/clock.h"
#include "base/text.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_OUTPUT_BYTES = 1 << 20,
    PIECE_BYTES          = 64 * 1024,
    MARK_BYTES           = 64,      /* room for the line that stands for what is left out    */
    LAST_BYTES           = 4 << 20, /* read at most this after the end; no pipe holds more */
    TICK_MS              = 1000,    /* the loop wakes at least this often                    */
    NO_PIDFD_TICK_MS     = 20       /* where the kernel cannot announce the child's end      */
};
static const double default_grace_s = 10;
static const double stopped_s       = 1;  /* a wait late by more than this: we were stopped   */
static const double unkillable_s    = 10; /* after SIGKILL; then it hangs in the kernel        */

/* One captured stream: its first half and its last half; what falls between is counted. */
typedef struct capture {
    int     fd;         /* our end, or -1                  */
    size_t  half_bytes; /* of the first and the last part  */
    vp_text first;
    char   *ring;    /* the last part, half_bytes long  */
    int64_t n_later; /* bytes that came after the first */
} capture;

typedef struct child {
    pid_t         pid;
    int           pid_fd;    /* -1 where there is none */
    int           signal_fd; /* one byte for each signal that reached us */
    capture       out, err;
    double        start_s, last_output_s, ticked_s, kill_s;
    bool          ended;
    int           wait_status;
    struct rusage usage;
} child;

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static vp_status no_process(const char *doing, int error, vp_err *err)
{
    if (error == ENOMEM)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    return VP_FAIL(err, VP_ERR_DEVICE, "cannot start another process: %s: %s", doing,
                   strerror(error));
}

/* ---- what the child prints ---- */

static vp_status keep(capture *c, const char *bytes, size_t n, vp_err *err)
{
    vp_status st     = VP_OK;
    size_t    n_more = c->half_bytes - c->first.n_bytes;

    assert(c->first.n_bytes <= c->half_bytes);
    if (n_more > n)
        n_more = n;
    if (n_more) {
        vp_text_append(&c->first, bytes, n_more);
        VP_TRY_ALLOC(err, c->first.data);
    }
    bytes += n_more;
    n -= n_more;
    if (n && !c->ring) {
        c->ring = malloc(c->half_bytes);
        VP_TRY_ALLOC(err, c->ring);
    }
    if (n > c->half_bytes) { /* only its last part can stay */
        c->n_later += (int64_t)(n - c->half_bytes);
        bytes += n - c->half_bytes;
        n = c->half_bytes;
    }
    while (n) {
        size_t at   = (size_t)(c->n_later % (int64_t)c->half_bytes);
        size_t part = c->half_bytes - at < n ? c->half_bytes - at : n;

        assert(part > 0 && at + part <= c->half_bytes);
        memcpy(c->ring + at, bytes, part);
        c->n_later += (int64_t)part;
        bytes += part;
        n -= part;
    }
out:
    return st;
}

/* Read what is there. *got says whether anything was. */
static vp_status drain(capture *c, size_t max_bytes, bool *got, vp_err *err)
{
    char      piece[PIECE_BYTES];
    vp_status st     = VP_OK;
    size_t    n_read = 0;

    while (c->fd >= 0 && n_read < max_bytes) {
        ssize_t n = read(c->fd, piece, sizeof piece);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            close_fd(&c->fd);
            break;
        }
        *got = true;
        n_read += (size_t)n;
        VP_TRY(keep(c, piece, (size_t)n, err));
    }
out:
    return st;
}

/* The text of a stream, its middle replaced by one line where it was too long. */
static vp_status give(capture *c, char **text, size_t *n, int64_t *n_lost, vp_err *err)
{
    vp_status st     = VP_OK;
    int64_t   n_last = c->n_later;
    size_t    at;

    *n_lost = 0;
    if (n_last > (int64_t)c->half_bytes) {
        *n_lost = n_last - (int64_t)c->half_bytes;
        n_last  = (int64_t)c->half_bytes;
        vp_text_printf(&c->first, "\n[%lld bytes left out here]\n", (long long)*n_lost);
    }
    at = *n_lost ? (size_t)(c->n_later % (int64_t)c->half_bytes) : 0;
    if (n_last) {
        assert(c->ring && at <= (size_t)n_last);
        vp_text_append(&c->first, c->ring + at, (size_t)n_last - at);
        vp_text_append(&c->first, c->ring, at);
    }
    vp_text_append(&c->first, "", 0);
    VP_TRY_ALLOC(err, c->first.data);
    *text    = c->first.data;
    *n       = c->first.n_bytes;
    c->first = (vp_text){0};
out:
    return st;
}

static void capture_release(capture *c)
{
    close_fd(&c->fd);
    vp_text_release(&c->first);
    free(c->ring);
    c->ring = NULL;
}

/* ---- starting ---- */

/* The child's environment: ours without what env_add names, then env_add. The strings are
 * borrowed. */
static char **make_env(char *const *env_add)
{
    size_t n = 0, n_add = 0, used = 0;
    char **env;

    while (environ && environ[n])
        n++;
    while (env_add && env_add[n_add])
        n_add++;
    env = malloc((n + n_add + 1) * sizeof *env);
    if (!env)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t name   = strcspn(environ[i], "=");
        bool   hidden = false;
        for (size_t k = 0; k < n_add; k++)
            hidden = hidden || (!strncmp(env_add[k], environ[i], name) && env_add[k][name] == '=');
        if (!hidden)
            env[used++] = environ[i];
    }
    for (size_t k = 0; k < n_add; k++)
        env[used++] = env_add[k];
    assert(used <= n + n_add);
    env[used] = NULL;
    return env;
}

/* What stands in the way of executing path; 0 when nothing does. */
static int exec_obstacle(const char *path, const char **why)
{
    struct stat info;

    *why = NULL;
    if (stat(path, &info)) {
        *why = errno == ENOENT ? "there is no such program" : strerror(errno);
        return errno;
    }
    if (!S_ISREG(info.st_mode)) {
        *why = vp_file_kind(info.st_mode);
        return EACCES;
    }
    if (access(path, X_OK)) {
        *why = "it is not marked as executable";
        return EACCES;
    }
    return 0;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n > m && !strcmp(name + n - m, end);
}

/* What somebody who typed this may have meant, to be said behind why it cannot be executed; "": nothing is known. name
 * is argv[0], shown what of it is printed. */
static const char *what_is_meant(char *const *argv, const char *shown, char *text, size_t size)
{
    const char *name  = argv[0];
    size_t      upper = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    struct stat info;

    text[0] = '\0';
    if (upper && name[upper] == '=')
        snprintf(text, size, "; variables are set by env: env %s%s", shown, argv[1] ? " ..." : "");
    else if (strchr(name, ' ') && !argv[1])
        snprintf(text, size, "; it is one word: leave the quotes out, or use sh -c");
    else if (stat(name, &info) || !S_ISREG(info.st_mode) || !access(name, X_OK))
        return text;
    else if (ends_with(name, ".ipynb"))
        snprintf(text, size, "; a notebook becomes a script by: jupyter nbconvert --to script");
    else if (ends_with(name, ".py"))
        snprintf(text, size, "; a script is run by: python3 %s", shown);
    else if (ends_with(name, ".sh"))
        snprintf(text, size, "; a script is run by: bash %s", shown);
    return text;
}

/* The file to execute. Like a shell, but a name is never taken for a script without a `#!` line. */
static vp_status find_executable(const vp_child_opts *opts, char *path, size_t path_size,
                                 vp_err *err)
{
    const char *name = opts->argv[0], *list = NULL, *why;
    char        shown[256], meant[400];

    vp_text_escape(name, shown, sizeof shown);
    if (!name[0])
        return VP_FAIL(err, VP_ERR_USAGE, "the command is empty");
    what_is_meant(opts->argv, shown, meant, sizeof meant);
    if (!opts->search_path || strchr(name, '/')) {
        if ((size_t)snprintf(path, path_size, "%s", name) >= path_size)
            return VP_FAIL(err, VP_ERR_USAGE, "cannot execute %s: its path is too long", shown);
        if (exec_obstacle(path, &why))
            return VP_FAIL(err, VP_ERR_USAGE, "cannot execute %s: %s%s%s", shown,
                           strncmp(why, "a ", 2) ? "" : "it is ", why, meant);
        return VP_OK;
    }
    for (int i = 0; opts->env_add && opts->env_add[i]; i++)
        if (!strncmp(opts->env_add[i], "PATH=", 5))
            list = opts->env_add[i] + 5;
    if (!list)
        list = getenv("PATH");
    if (!list)
        list = "/usr/local/bin:/usr/bin:/bin";
    for (;;) {
        size_t n      = strcspn(list, ":");
        int    length = snprintf(path, path_size, "%.*s%s%s", (int)n, list, n ? "/" : "./", name);

        if (length > 0 && (size_t)length < path_size && !exec_obstacle(path, &why))
            return VP_OK;
        if (!list[n])
            break;
        list += n + 1;
    }
    return VP_FAIL(err, VP_ERR_USAGE, "cannot execute %s: no folder of PATH holds such a program%s",
                   shown, meant);
}

vp_status vp_child_check(const vp_child_opts *opts, vp_err *err)
{
    char path[PATH_MAX];

    return find_executable(opts, path, sizeof path, err);
}

/* A file in memory that holds standard input: nothing to pump, and no SIGPIPE. */
static vp_status open_stdin(const vp_child_opts *opts, int *fd, vp_err *err)
{
    size_t n_done = 0;

    *fd = opts->stdin_bytes ? memfd_create("vplan-stdin", MFD_CLOEXEC)
                            : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (*fd < 0)
        return no_process("its standard input", errno, err);
    while (opts->stdin_bytes && n_done < opts->n_stdin_bytes) {
        ssize_t n = write(*fd, opts->stdin_bytes + n_done, opts->n_stdin_bytes - n_done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return no_process("its standard input", n < 0 ? errno : EIO, err);
        n_done += (size_t)n;
    }
    if (opts->stdin_bytes && lseek(*fd, 0, SEEK_SET))
        return no_process("its standard input", errno, err);
    return VP_OK;
}

static vp_status open_stream(vp_child_stream how, capture *c, int inherited_fd, int *child_fd,
                             vp_err *err)
{
    int ends[2];

    *child_fd = -1;
    switch (how) {
    case VP_CHILD_CAPTURE:
        if (pipe2(ends, O_CLOEXEC))
            return no_process("a pipe", errno, err);
        c->fd     = ends[0];
        *child_fd = ends[1];
        if (fcntl(ends[0], F_SETFL, O_NONBLOCK))
            return no_process("a pipe", errno, err);
        return VP_OK;
    case VP_CHILD_INHERIT:
        *child_fd = fcntl(inherited_fd, F_DUPFD_CLOEXEC, 3);
        break;
    case VP_CHILD_TO_STDERR:
        *child_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        break;
    case VP_CHILD_DISCARD:
        break;
    }
    if (*child_fd < 0) /* also where our own stream is closed */
        *child_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return *child_fd < 0 ? no_process("its output", errno, err) : VP_OK;
}

/* Lift fd above 2, so that placing 0, 1 and 2 in the child overwrites none of the three. */
static bool lift(int *fd)
{
    int lifted;

    if (*fd > STDERR_FILENO)
        return true;
    lifted = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
    if (lifted < 0)
        return false;
    close(*fd);
    *fd = lifted;
    return true;
}

/* ---- signals that ask this process to end ---- */

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_ENDING_SIGNALS = sizeof ending_signals / sizeof ending_signals[0] };

typedef struct signal_watch {
    struct sigaction was[N_ENDING_SIGNALS], was_chld;
    int              read_fd;
} signal_watch;

/* Where the handler writes. A handler sees nothing but globals; there is one watch at a time. */
static volatile sig_atomic_t signal_write_fd = -1;

static void note_signal(int number)
{
    unsigned char byte  = (unsigned char)number;
    int           error = errno;

    if (write(signal_write_fd, &byte, 1) < 0)
        errno = error; /* the pipe is full of signals already */
    errno = error;
}

/* A handler, not a blocked signal, since other threads may run that do not block it. */
static vp_status watch_signals(signal_watch *watch, vp_err *err)
{
    struct sigaction note              = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    struct sigaction wait_for_children = {.sa_handler = SIG_DFL};
    int              ends[2];

    assert(signal_write_fd < 0); /* one watch at a time: handlers see one pipe */
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return no_process("a pipe", errno, err);
    watch->read_fd  = ends[0];
    signal_write_fd = ends[1];
    /* ignored, it would reap by itself */
    sigaction(SIGCHLD, &wait_for_children, &watch->was_chld);
    for (int i = 0; i < N_ENDING_SIGNALS; i++) {
        sigaction(ending_signals[i], NULL, &watch->was[i]);
        if (watch->was[i].sa_handler != SIG_IGN)
            sigaction(ending_signals[i], &note, NULL);
    }
    return VP_OK;
}

/* Signals that nobody has answered yet reach those who watched before. */
static void unwatch_signals(signal_watch *watch)
{
    unsigned char byte;
    int           write_fd = signal_write_fd;

    for (int i = 0; i < N_ENDING_SIGNALS; i++)
        sigaction(ending_signals[i], &watch->was[i], NULL);
    sigaction(SIGCHLD, &watch->was_chld, NULL);
    signal_write_fd = -1;
    while (read(watch->read_fd, &byte, 1) == 1)
        raise(byte);
    close_fd(&watch->read_fd);
    close_fd(&write_fd);
}

/* In the child, until exec: only calls that are safe after fork. Tells its errno through status_fd.
 * All signals are blocked here: a handler of ours would act on pipes shared with the parent. */
static _Noreturn void become(const char *path, char *const *argv, char *const *env,
                             const int fds[3], int status_fd, pid_t parent, const sigset_t *mask)
{
    static const struct rlimit no_core = {0, 0};
    struct sigaction           normal  = {.sa_handler = SIG_DFL}, was;
    int                        error;

    assert(fds[0] > STDERR_FILENO && fds[1] > STDERR_FILENO && fds[2] > STDERR_FILENO);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127); /* the parent died before the signal was asked for */
    setrlimit(RLIMIT_CORE, &no_core);
    sigaction(SIGPIPE, &normal, NULL);
    sigaction(SIGXFSZ, &normal, NULL);
    sigaction(SIGCHLD, &normal, NULL);
    for (int i = 0; i < N_ENDING_SIGNALS; i++)
        if (!sigaction(ending_signals[i], NULL, &was) && was.sa_handler != SIG_IGN)
            sigaction(ending_signals[i], &normal, NULL);
    for (int i = 0; i < 3; i++)
        if (dup2(fds[i], i) < 0)
            goto fail;
#ifdef SYS_close_range
    syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
#endif
    sigprocmask(SIG_SETMASK, mask, NULL);
    execve(path, argv, env);
fail:
    error = errno;
    while (write(status_fd, &error, sizeof error) < 0 && errno == EINTR)
        ;
    _exit(127);
}

static vp_status start(const vp_child_opts *opts, child *c, vp_err *err)
{
    vp_status st = VP_OK;
    char      path[PATH_MAX], shown[256];
    char    **env    = NULL;
    int       fds[3] = {-1, -1, -1}, status[2] = {-1, -1}, error = 0;
    pid_t     parent = getpid();
    sigset_t  all, mask;
    ssize_t   n;

    VP_TRY(find_executable(opts, path, sizeof path, err));
    env = make_env(opts->env_add);
    VP_TRY_ALLOC(err, env);
    VP_TRY(open_stdin(opts, &fds[0], err));
    VP_TRY(open_stream(opts->out, &c->out, STDOUT_FILENO, &fds[1], err));
    VP_TRY(open_stream(opts->err, &c->err, STDERR_FILENO, &fds[2], err));
    if (pipe2(status, O_CLOEXEC)) {
        st = no_process("a pipe", errno, err);
        goto out;
    }
    for (int i = 0; i < 3; i++)
        if (!lift(&fds[i]) || !lift(&status[1])) {
            st = no_process("its streams", errno, err);
            goto out;
        }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    c->pid = fork();
    if (c->pid < 0 && errno == EAGAIN) { /* processes may just be ending */
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        c->pid = fork();
    }
    if (c->pid == 0)
        become(path, opts->argv, env, fds, status[1], parent, &mask);
    error = errno;
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (c->pid < 0) {
        st = no_process("fork", error, err);
        goto out;
    }
    error = 0;
    close_fd(&status[1]);
    do
        n = read(status[0], &error, sizeof error);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof error) {
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        c->pid = 0;
        vp_text_escape(path, shown, sizeof shown);
        if (error == ENOMEM || error == EAGAIN)
            st = no_process("exec", error, err);
        else
            st = VP_FAIL(err, VP_ERR_USAGE, "cannot execute %s: %s", shown,
                         error == ENOENT    ? "the interpreter that it names is not there"
                         : error == ENOEXEC ? "it is no program for this machine, and names no "
                                              "interpreter"
                                            : strerror(error));
        goto out;
    }
#ifdef SYS_pidfd_open
    c->pid_fd = (int)syscall(SYS_pidfd_open, c->pid, 0u);
#endif
out:
    for (int i = 0; i < 3; i++)
        close_fd(&fds[i]);
    close_fd(&status[0]);
    close_fd(&status[1]);
    free(env);
    return st;
}

/* ---- ending ---- */

/* Signal the child's group. The leader is not reaped before the last call, so its number is its
 * own; the group is the child's own since before exec. */
static void signal_group(const child *c, int signal)
{
    assert(c->pid > 1 && c->pid != getpgrp());
    kill(-c->pid, signal);
    if (signal != SIGKILL)
        kill(-c->pid, SIGCONT); /* a stopped process would not see it */
}

/* Children of this process. Returns how many of them stand in pids (at most n_max), or -1. */
static int list_children(pid_t *pids, int n_max)
{
    DIR           *proc = opendir("/proc");
    struct dirent *entry;
    int            n = 0;

    if (!proc)
        return -1;
    while (n < n_max && (entry = readdir(proc))) {
        char    path[64], stat_line[512], *after_name;
        int     fd, parent;
        ssize_t n_read;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        snprintf(path, sizeof path, "/proc/%.20s/stat", entry->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        n_read = read(fd, stat_line, sizeof stat_line - 1);
        close(fd);
        if (n_read <= 0)
            continue;
        stat_line[n_read] = '\0';
        after_name        = strrchr(stat_line, ')'); /* a program's name may hold anything */
        if (after_name && sscanf(after_name + 1, " %*c %d", &parent) == 1 && parent == getpid())
            pids[n++] = (pid_t)atoi(entry->d_name);
    }
    closedir(proc);
    return n;
}

enum { MAX_CHILDREN = 4096 };

typedef struct family {
    int   n;
    pid_t pids[MAX_CHILDREN]; /* children of this process that are not ours to end  */
    pid_t now[MAX_CHILDREN];  /* room to list them again, when no memory may be left */
} family;

/* End every process that the child left behind. As subreaper this process becomes the parent of
 * those whose own parent is gone; only direct children are signalled, whose numbers cannot be
 * reused before they are reaped here. What hangs in the kernel is left after a while. */
static void sweep(family *before)
{
    static const int rounds = 500;
    pid_t           *pids   = before->now;

    if (before->n < 0 || before->n == MAX_CHILDREN)
        return; /* then none can be told apart */
    for (int round = 0; round < rounds; round++) {
        int n = list_children(pids, MAX_CHILDREN), n_left = 0;

        for (int i = 0; i < n; i++) {
            bool known = false;
            for (int k = 0; k < before->n && !known; k++)
                known = before->pids[k] == pids[i];
            if (known)
                continue;
            kill(pids[i], SIGKILL);
            n_left++;
            waitpid(pids[i], NULL, WNOHANG);
        }
        if (n_left == 0)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 2000000 + 1000000L * (round < 18 ? round : 18)},
                  NULL);
    }
}

/* Whether the child has ended. It is not reaped yet: its number still names its group. */
static bool has_ended(const child *c)
{
    siginfo_t info = {.si_pid = 0};

    assert(c->pid > 0 && !c->ended);
    return !waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) &&
           info.si_pid == c->pid;
}

static void reap(child *c)
{
    assert(!c->ended); /* afterwards its number may be another's */
    signal_group(c, SIGKILL);
    while (wait4(c->pid, &c->wait_status, 0, &c->usage) < 0 && errno == EINTR)
        ;
    c->ended = true;
}

/* Drain, watch the clock and the signals until the child has ended. */
static vp_status supervise(const vp_child_opts *opts, child *c, vp_child_result *result,
                           vp_err *err)
{
    vp_status st          = VP_OK;
    double    grace_s     = opts->grace_s > 0 ? opts->grace_s : default_grace_s;
    double    total_end_s = opts->timeout_s > 0 ? c->start_s + opts->timeout_s : INFINITY;
    double    kill_end_s  = INFINITY; /* SIGKILL is due                */
    double    give_up_s   = INFINITY; /* nothing more can be done then */
    bool      ending      = false;
    int       owner_fd    = opts->owner_fd > 0 ? opts->owner_fd : -1;
    bool      hears       = opts->out == VP_CHILD_CAPTURE || opts->err == VP_CHILD_CAPTURE;
    double    silence_s   = opts->silence_s > 0 && hears ? opts->silence_s : INFINITY;

    c->last_output_s = c->start_s;
    c->ticked_s      = c->start_s;
    while (!has_ended(c)) {
        struct pollfd fds[] = {
            {.fd = c->out.fd, .events = POLLIN}, {.fd = c->err.fd, .events = POLLIN},
            {.fd = c->pid_fd, .events = POLLIN}, {.fd = c->signal_fd, .events = POLLIN},
            {.fd = owner_fd, .events = POLLIN},
        };
        int           tick_ms  = c->pid_fd >= 0 ? TICK_MS : NO_PIDFD_TICK_MS, n_ready;
        double        before_s = vp_now_s(), due_s, wait_s, late_s, t;
        bool          got      = false;
        unsigned char number   = 0;

        due_s =
            ending ? fmin(kill_end_s, give_up_s) : fmin(total_end_s, c->last_output_s + silence_s);
        wait_s  = fmax(0, fmin(due_s - before_s, tick_ms * 1e-3));
        n_ready = poll(fds, sizeof fds / sizeof fds[0], (int)ceil(wait_s * 1e3));
        if (n_ready < 0 && errno != EINTR) {
            st = no_process("poll", errno, err);
            goto out;
        }
        t      = vp_now_s();
        late_s = t - before_s - wait_s;
        if (late_s > stopped_s) {
            /* This process was stopped, or the machine slept: the child is not to blame. */
            total_end_s += late_s;
            kill_end_s += late_s;
            give_up_s += late_s;
            c->last_output_s += late_s;
        }
        VP_TRY(drain(&c->out, PIECE_BYTES, &got, err));
        VP_TRY(drain(&c->err, PIECE_BYTES, &got, err));
        if (got)
            c->last_output_s = t;
        if (opts->tick && t >= c->ticked_s + opts->tick_s) {
            c->ticked_s = t;
            opts->tick(opts->tick_arg);
        }
        if (owner_fd >= 0 && read(owner_fd, &number, 1) == 0) {
            number   = SIGTERM; /* the owner is gone */
            owner_fd = -1;
        }
        if (number || read(c->signal_fd, &number, 1) == 1) {
            if (ending && result->end == VP_CHILD_INTERRUPTED) {
                kill_end_s = fmin(kill_end_s, t); /* asked twice: at once */
            } else {
                signal_group(c, SIGTERM);
                result->end         = VP_CHILD_INTERRUPTED;
                result->term_signal = number;
                kill_end_s          = fmin(kill_end_s, t + grace_s);
                ending              = true;
            }
        }
        if (!ending && (t >= total_end_s || t >= c->last_output_s + silence_s)) {
            result->end = t >= total_end_s ? VP_CHILD_TIMED_OUT : VP_CHILD_SILENT;
            ending      = true;
            kill_end_s  = t + grace_s;
            signal_group(c, SIGTERM);
        }
        if (ending && t >= kill_end_s) {
            signal_group(c, SIGKILL);
            kill_end_s = INFINITY;
            give_up_s  = t + unkillable_s;
        }
        if (t >= give_up_s && !has_ended(c)) {
            st = VP_FAIL(err, VP_ERR_DEVICE,
                         "process %ld does not end even after SIGKILL: it hangs "
                         "inside the kernel or a driver",
                         (long)c->pid);
            goto out;
        }
    }
out:
    return st;
}

vp_status vp_child_run(const vp_child_opts *opts, vp_child_result *result, vp_err *err)
{
    vp_status    st        = VP_OK;
    child        c         = {.pid_fd = -1, .signal_fd = -1, .out = {.fd = -1}, .err = {.fd = -1}};
    size_t       max_bytes = opts->max_output_bytes ? opts->max_output_bytes : DEFAULT_OUTPUT_BYTES;
    family      *before    = NULL;
    signal_watch watch     = {.read_fd = -1};
    int          was_subreaper = 0;
    bool         got;

    assert(opts->argv && opts->argv[0]);
    memset(result, 0, sizeof *result);
    if (max_bytes < 4 * MARK_BYTES)
        max_bytes = 4 * MARK_BYTES;
    c.out.half_bytes = c.err.half_bytes = (max_bytes - MARK_BYTES) / 2;
    before                              = malloc(sizeof *before);
    VP_TRY_ALLOC(err, before);
    before->n = list_children(before->pids, MAX_CHILDREN);
    VP_TRY(watch_signals(&watch, err));
    c.signal_fd = watch.read_fd;
    prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    c.start_s = vp_now_s();
    VP_TRY(start(opts, &c, err));
    VP_TRY(supervise(opts, &c, result, err));
    reap(&c);
    result->seconds = vp_now_s() - c.start_s;
    sweep(before);
    VP_TRY(drain(&c.out, LAST_BYTES, &got, err));
    VP_TRY(drain(&c.err, LAST_BYTES, &got, err));
    if (result->end == VP_CHILD_EXITED && WIFSIGNALED(c.wait_status))
        result->end = VP_CHILD_SIGNALED;
    if (WIFEXITED(c.wait_status))
        result->exit_code = WEXITSTATUS(c.wait_status);
    if (WIFSIGNALED(c.wait_status) && result->end != VP_CHILD_INTERRUPTED)
        result->term_signal = WTERMSIG(c.wait_status);
    result->max_rss_bytes = (int64_t)c.usage.ru_maxrss * 1024;
    VP_TRY(give(&c.out, &result->out, &result->n_out, &result->n_out_lost, err));
    VP_TRY(give(&c.err, &result->err, &result->n_err, &result->n_err_lost, err));
out:
    if (c.pid > 0 && !c.ended) {
        signal_group(&c, SIGKILL);
        if (has_ended(&c) || st != VP_ERR_DEVICE)
            reap(&c);
        sweep(before);
    }
    close_fd(&c.pid_fd);
    if (watch.read_fd >= 0) {
        prctl(PR_SET_CHILD_SUBREAPER, was_subreaper);
        unwatch_signals(&watch);
    }
    capture_release(&c.out);
    capture_release(&c.err);
    if (st != VP_OK)
        vp_child_result_release(result);
    free(before);
    return st;
}

void vp_child_env_for_threads(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    if (!getenv("OMP_WAIT_POLICY"))
        setenv("GOMP_SPINCOUNT", "1000", 0);
}

void vp_child_end_all(void)
{
    family *none = calloc(1, sizeof *none);

    if (none)
        sweep(none);
    free(none);
}

void vp_child_result_release(vp_child_result *result)
{
    free(result->out);
    free(result->err);
    result->out   = NULL;
    result->err   = NULL;
    result->n_out = result->n_err = 0;
}
