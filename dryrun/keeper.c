#include "dryrun/dryrun_internal.h"

#include "base/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the keeper says when the command has ended: the strings of result are not part of it. */
typedef struct message {
    vp_status       st;
    vp_err          err;
    vp_child_result result;
} message;

static const int passed_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_PASSED = sizeof passed_signals / sizeof *passed_signals };

/* Where the handler writes the signals that reach us: the keeper reads them there. */
static volatile sig_atomic_t order_fd = -1;

static void pass_signal(int number)
{
    unsigned char byte  = (unsigned char)number;
    int           error = errno;

    if (write(order_fd, &byte, 1) < 0)
        errno = error; /* the keeper is gone, or full of signals already */
    errno = error;
}

static void pay_no_heed(int number)
{
    (void)number; /* orders come through the pipe */
}

/* Let handler have the signals that are not ignored; was, if not NULL, gets what was there. */
static void handle(void (*handler)(int), struct sigaction *was)
{
    struct sigaction now = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;

    for (int i = 0; i < N_PASSED; i++) {
        sigaction(passed_signals[i], NULL, &before);
        if (was)
            was[i] = before;
        if (before.sa_handler != SIG_IGN)
            sigaction(passed_signals[i], &now, NULL);
    }
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The keeper: run the command, say how it ended, and when the owner is done, or is no more, remove
 * the folder. In a session of its own, so that a signal to the owner's group does not reach it. */
static _Noreturn void keep(const vp_child_opts *opts, vp_dryrun_folder *folder, int orders,
                           int answers)
{
    vp_child_opts mine = *opts;
    message       m    = {0};
    char          byte;

    assert(orders > STDERR_FILENO && answers > STDERR_FILENO && opts->out != VP_CHILD_CAPTURE &&
           opts->err != VP_CHILD_CAPTURE); /* its memory is not ours: nothing comes back but m */
    setsid();
    prctl(PR_SET_NAME, "dryrun-keeper");
    signal(SIGPIPE, SIG_IGN);
    fcntl(orders, F_SETFL, O_NONBLOCK);
    mine.owner_fd = orders;
    m.st          = vp_child_run(&mine, &m.result, &m.err);
    m.result.out = m.result.err = NULL; /* of this process, and nothing was captured */
    fcntl(orders, F_SETFL, 0);
    if (vp_write_all(answers, &m, sizeof m))
        while (vp_read_all(orders, &byte, 1))
            ; /* until the owner closes it or is gone */
    vp_dryrun_folder_release(folder);
    _exit(0);
}

/* Fork the keeper. No signal can come between its start and its readiness for orders. */
static pid_t start(const vp_child_opts *opts, vp_dryrun_folder *folder, int orders[2],
                   int answers[2], struct sigaction *was)
{
    sigset_t all, mask = folder->was;
    pid_t    pid;
    int      error;

    assert(order_fd < 0); /* one keeper at a time */
    assert(folder->holds_signals);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    order_fd = orders[1];
    handle(pass_signal, was);
    pid   = fork();
    error = errno;
    if (pid == 0) {
        close(orders[1]);
        close(answers[0]);
        if (folder->guard.pid > 0)
            close(folder->guard.fd); /* it is the owner's to send home */
        folder->guard.pid = 0;
        handle(pay_no_heed, NULL);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        keep(opts, folder, orders[0], answers[1]);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    folder->holds_signals = false;
    errno                 = error;
    return pid;
}

vp_status vp_dryrun_keep(const vp_child_opts *opts, vp_dryrun_folder *folder,
                         vp_child_result *result, vp_err *err)
{
    vp_status        st        = VP_OK;
    int              orders[2] = {-1, -1}, answers[2] = {-1, -1}, was_subreaper = 0;
    struct sigaction was[N_PASSED];
    message          m;
    pid_t            keeper;

    assert(opts->argv && opts->argv[0] && !folder->keeper);
    memset(result, 0, sizeof *result);
    if (pipe2(orders, O_CLOEXEC) || pipe2(answers, O_CLOEXEC) ||
        fcntl(orders[1], F_SETFL, O_NONBLOCK)) { /* a handler may not wait */
        st = VP_FAIL(err, VP_ERR_DEVICE, "cannot make a pipe: %s", strerror(errno));
        goto out;
    }
    prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* of what a killed keeper leaves */
    keeper = start(opts, folder, orders, answers, was);
    if (keeper > 0)
        vp_guard_dismiss(&folder->guard);
    close_fd(&answers[1]);
    if (keeper < 0) {
        st = VP_FAIL(err, VP_ERR_DEVICE, "cannot start another process: %s", strerror(errno));
    } else if (vp_read_all(answers[0], &m, sizeof m)) {
        st      = m.st;
        *result = m.result;
        if (st != VP_OK && err)
            *err = m.err;
    } else {
        st = VP_FAIL(err, VP_ERR_DEVICE, "the process that watched over the command was ended");
        vp_child_end_all();
    }
    vp_dryrun_hold_signals(folder);
    for (int i = 0; i < N_PASSED; i++)
        sigaction(passed_signals[i], &was[i], NULL);
    order_fd = -1;
    prctl(PR_SET_CHILD_SUBREAPER, was_subreaper);
    assert(st != VP_OK || keeper > 0);
    if (st == VP_OK) { /* it ends when the folder is released */
        folder->keeper    = keeper;
        folder->keeper_fd = orders[1];
        orders[1]         = -1;
    } else if (keeper > 0) {
        close_fd(&orders[1]);
        while (waitpid(keeper, NULL, 0) < 0 && errno == EINTR)
            ;
    }
out:
    for (int i = 0; i < 2; i++) {
        close_fd(&orders[i]);
        close_fd(&answers[i]);
    }
    return st;
}
