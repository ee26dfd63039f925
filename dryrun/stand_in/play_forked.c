/* dryrun/stand_in/play_forked.c: one of several runs of a Python script, forked from a process that has imported what the script imports first
 * (probe/vplan_zygote.py).
 *     play-forked SOCKET COMMAND...
 * asks that process for it, and ends as the run does. Where that process refuses, or is not there, COMMAND is executed.
 *     play-forked --wait FD PID
 * is what the run's parent becomes: it ends the run and all that this started once FD, whose other end is the first's, is closed; says there how
 * the run ended; and writes into $VPLAN_NULL_REPORT what of the host's memory it took. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 10, CONNECT_S = 10 };

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* ---- the run's parent ---- */

/* End every child of this process, as often as ending one leaves more: as subreaper it gets what these have started. */
static void end_children(void)
{
    for (int round = 0; round < 500; round++) {
        DIR           *proc = opendir("/proc");
        struct dirent *entry;
        int            n = 0;

        while (proc && (entry = readdir(proc))) {
            char  path[300], line[600], *after_name;
            int   parent = 0;
            FILE *f;

            if (!isdigit((unsigned char)entry->d_name[0]) ||
                snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name) >= (int)sizeof path ||
                !(f = fopen(path, "re")))
                continue;
            after_name = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
            fclose(f);
            if (!after_name || sscanf(after_name + 1, " %*c %d", &parent) != 1 ||
                parent != getpid())
                continue;
            kill((pid_t)atoi(entry->d_name), SIGKILL);
            waitpid((pid_t)atoi(entry->d_name), NULL, WNOHANG);
            n++;
        }
        if (proc)
            closedir(proc);
        if (!n)
            return;
        pause_ms(WAIT_MS);
    }
}

static void say_host_bytes(pid_t pid, const struct rusage *usage)
{
    const char *folder = getenv("VPLAN_NULL_REPORT");
    char        path[4200];
    FILE       *f;

    if (!folder ||
        snprintf(path, sizeof path, "%s/host.%d", folder, (int)pid) >= (int)sizeof path ||
        !(f = fopen(path, "we")))
        return;
    fprintf(f, "%lld", (long long)usage->ru_maxrss * 1024);
    fclose(f);
}

static int wait_for(int fd, pid_t pid)
{
    struct pollfd asks = {.fd = fd, .events = POLLIN};
    struct rusage usage;
    int           status;
    char          byte;

    prctl(PR_SET_NAME, "dryrun-forked");
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        pid_t ended = wait4(pid, &status, WNOHANG, &usage);
        if (ended < 0 && errno != EINTR)
            return 1;
        if (ended == pid)
            break;
        if (poll(&asks, 1, WAIT_MS) > 0 && read(fd, &byte, 1) == 0) {
            end_children(); /* nobody waits for it any more */
            return 0;
        }
    }
    say_host_bytes(pid, &usage);
    end_children();
    return write(fd, &status, sizeof status) == sizeof status ? 0 : 1;
}

/* ---- who asks for a run ---- */

/* The socket, or -1: nobody listens there. The listener may still be starting. */
static int connected(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int                fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (strlen(path) >= sizeof at.sun_path)
        return -1;
    memcpy(at.sun_path, path, strlen(path) + 1);
    for (int i = 0; i < CONNECT_S * 1000 / WAIT_MS; i++) {
        if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
            return fd;
        if (errno != ENOENT) /* a listener that is gone refuses */
            break;
        pause_ms(WAIT_MS);
    }
    close(fd);
    return -1;
}

static size_t put(char *to, size_t at, const char *text)
{
    size_t n = strlen(text) + 1;

    if (to)
        memcpy(to + at, text, n);
    return at + n;
}

/* What is asked for: the current folder, the number of words, the words, the environment, each with its NUL. The length of it. */
static size_t request(char *to, const char *cwd, char **words)
{
    char   number[24];
    size_t at = put(to, 0, cwd);
    int    n  = 0;

    while (words[n])
        n++;
    snprintf(number, sizeof number, "%d", n);
    at = put(to, at, number);
    for (int i = 0; i < n; i++)
        at = put(to, at, words[i]);
    for (char **v = environ; *v; v++)
        at = put(to, at, *v);
    return at;
}

/* The length, and with it standard input, output and errors; then the request. */
static int asked(int fd, char **words)
{
    char    *cwd = getcwd(NULL, 0), *text;
    uint64_t n;
    int      fds[3] = {0, 1, 2};
    union {
        char           room[CMSG_SPACE(sizeof fds)];
        struct cmsghdr align;
    } control;
    struct iovec    piece   = {.iov_base = &n, .iov_len = sizeof n};
    struct msghdr   message = {.msg_iov        = &piece,
                               .msg_iovlen     = 1,
                               .msg_control    = control.room,
                               .msg_controllen = sizeof control.room};
    struct cmsghdr *head    = CMSG_FIRSTHDR(&message);

    if (!cwd)
        return 0;
    n    = request(NULL, cwd, words);
    text = malloc(n);
    if (!text)
        return 0;
    request(text, cwd, words);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type  = SCM_RIGHTS;
    head->cmsg_len   = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(head), fds, sizeof fds);
    if (sendmsg(fd, &message, MSG_NOSIGNAL) != (ssize_t)sizeof n)
        return 0;
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, text + at, n - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return 0;
        at += (size_t)sent;
    }
    free(text);
    free(cwd);
    return 1;
}

static int got(int fd, void *to, size_t n)
{
    ssize_t k;

    do
        k = recv(fd, to, n, MSG_WAITALL);
    while (k < 0 && errno == EINTR);
    return k == (ssize_t)n;
}

int main(int argc, char **argv)
{
    char answer;
    int  fd, status;

    if (argc == 4 && strcmp(argv[1], "--wait") == 0)
        return wait_for(atoi(argv[2]), (pid_t)atoi(argv[3]));
    if (argc < 3)
        return 2;
    fd = connected(argv[1]);
    if (fd >= 0 && asked(fd, argv + 2) && got(fd, &answer, 1) && answer == 'y') {
        if (!got(fd, &status, sizeof status)) {
            fprintf(stderr, "vplan dryrun: the process that the run was forked from was ended\n");
            return 5;
        }
        if (WIFSIGNALED(status)) {
            signal(WTERMSIG(status), SIG_DFL);
            kill(getpid(), WTERMSIG(status));
        }
        return WEXITSTATUS(status);
    }
    if (fd >= 0)
        close(fd);
    execvp(argv[2], argv + 2);
    fprintf(stderr, "vplan dryrun: %s: %s\n", argv[2], strerror(errno));
    return 127;
}
