#include "tuner/side_by_side.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a watcher says; behind it the program's two outputs. */
typedef struct message {
    vp_status       st;
    vp_err          err;
    vp_child_result result; /* its strings are not part of it */
} message;

/* Everything but standard input, output, errors and two more. */
static void close_others(int a, int b)
{
    DIR           *d = opendir("/proc/self/fd");
    struct dirent *entry;
    int            fds[1024], n = 0;

    while (d && n < 1024 && (entry = readdir(d))) {
        int fd = atoi(entry->d_name);

        if (fd > 2 && fd != a && fd != b && fd != dirfd(d))
            fds[n++] = fd;
    }
    if (d)
        closedir(d);
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

static _Noreturn void watch(const vp_child_opts *opts, const char *folder, int orders, int answers)
{
    vp_child_opts mine = *opts;
    message       m    = {0};

    setpgid(0, 0); /* a signal from the terminal is the tuner's to pass on */
    prctl(PR_SET_NAME, "tune-watcher");
    signal(SIGPIPE, SIG_IGN);
    close_others(orders, answers);
    fcntl(orders, F_SETFL, O_NONBLOCK);
    mine.owner_fd = orders;
    if (folder && chdir(folder) != 0)
        m.st = VP_FAIL(&m.err, VP_ERR_STORAGE, "%s: %s", folder, strerror(errno));
    else
        m.st = vp_child_run(&mine, &m.result, &m.err);
    char  *out = m.result.out, *errors = m.result.err;
    size_t n_out = m.result.n_out, n_err = m.result.n_err;
    m.result.out = m.result.err = NULL;
    bool said                   = vp_write_all(answers, &m, sizeof m) &&
                (!out || vp_write_all(answers, out, n_out)) &&
                (!errors || vp_write_all(answers, errors, n_err));
    _exit(said ? 0 : 1);
}

vp_status vp_job_start(const vp_child_opts *opts, const char *folder, vp_job *job, vp_err *err)
{
    int       orders[2] = {-1, -1}, answers[2] = {-1, -1};
    vp_status st = VP_OK;

    *job = (vp_job){.orders = -1, .answers = -1};
    if (pipe2(orders, O_CLOEXEC) || pipe2(answers, O_CLOEXEC)) {
        st = VP_FAIL(err, VP_ERR_DEVICE, "cannot make a pipe: %s", strerror(errno));
        goto out;
    }
    pid_t pid = fork();
    if (pid == 0)
        watch(opts, folder, orders[0], answers[1]);
    if (pid < 0) {
        st = VP_FAIL(err, VP_ERR_DEVICE, "cannot start another process: %s", strerror(errno));
        goto out;
    }
    *job       = (vp_job){.watcher = pid, .orders = orders[1], .answers = answers[0]};
    orders[1]  = -1;
    answers[0] = -1;
out:
    for (int i = 0; i < 2; i++) {
        if (orders[i] >= 0)
            close(orders[i]);
        if (answers[i] >= 0)
            close(answers[i]);
    }
    return st;
}

int vp_jobs_wait(vp_job *jobs, int n, double timeout_s)
{
    struct pollfd fds[64];
    char          piece[1 << 14];

    for (;;) {
        int any = 0;
        for (int i = 0; i < n && i < 64; i++) {
            fds[i] =
                (struct pollfd){.fd = jobs[i].watcher > 0 ? jobs[i].answers : -1, .events = POLLIN};
            any += jobs[i].watcher > 0;
        }
        if (!any || poll(fds, (nfds_t)(n < 64 ? n : 64), (int)(timeout_s * 1000)) <= 0)
            return -1;
        for (int i = 0; i < n && i < 64; i++) {
            if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR)))
                continue;
            ssize_t got = read(jobs[i].answers, piece, sizeof piece);
            if (got > 0)
                vp_text_append(&jobs[i].said, piece, (size_t)got);
            else if (got == 0 || errno != EINTR)
                return i;
        }
    }
}

static void reap(vp_job *job)
{
    if (job->orders >= 0)
        close(job->orders);
    if (job->answers >= 0)
        close(job->answers);
    job->orders = job->answers = -1;
    while (job->watcher > 0 && waitpid(job->watcher, NULL, 0) < 0 && errno == EINTR)
        ;
    job->watcher = 0;
}

/* n bytes of what was said, with a NUL behind them; NULL where they are missing. */
static char *piece_of(const vp_text *said, size_t at, size_t n)
{
    char *out = n <= said->n_bytes && at <= said->n_bytes - n ? malloc(n + 1) : NULL;

    if (out) {
        memcpy(out, said->data + at, n);
        out[n] = '\0';
    }
    return out;
}

vp_status vp_job_end(vp_job *job, vp_child_result *result, vp_err *err)
{
    message   m;
    vp_status st = VP_OK;

    *result = (vp_child_result){0};
    reap(job);
    if (job->said.failed)
        VP_TRY(VP_FAIL(err, VP_ERR_NOMEM, "out of host memory"));
    if (job->said.n_bytes < sizeof m)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "the process that watched over a trial was ended"));
    memcpy(&m, job->said.data, sizeof m);
    if (m.st != VP_OK) {
        if (err)
            *err = m.err;
        st = m.st;
        goto out;
    }
    *result     = m.result;
    result->out = piece_of(&job->said, sizeof m, m.result.n_out);
    result->err = piece_of(&job->said, sizeof m + m.result.n_out, m.result.n_err);
    if (!result->out || !result->err) {
        vp_child_result_release(result);
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "the process that watched over a trial was ended"));
    }
out:
    vp_text_release(&job->said);
    return st;
}

void vp_job_stop(vp_job *job)
{
    char    piece[1 << 14];
    ssize_t got;

    if (job->watcher <= 0)
        return;
    close(job->orders); /* it ends its program, and says so */
    job->orders = -1;
    do
        got = read(job->answers, piece, sizeof piece);
    while (got > 0 || (got < 0 && errno == EINTR));
    reap(job);
    vp_text_release(&job->said);
}
