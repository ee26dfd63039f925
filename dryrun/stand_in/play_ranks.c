/* dryrun/stand_in/play_ranks.c: start the ranks of a command, each a process, and wait for them.
 *     play-ranks 0,1,2,3 COMMAND...
 * Each gets RANK; LOCAL_RANK is 0 for all, as each has a card of its own. Where one ends badly, the others get GRACE_S
 * more seconds. When one has ended, `ended.<rank>` lies in $VPLAN_NULL_REPORT, so that nobody waits for it. The
 * exit code is that of the first that ended badly; 128 + n for signal n. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 256, GRACE_S = 20 };

typedef struct player {
    pid_t pid; /* 0: has ended */
    long  rank;
} player;

static player players[MAX_RANKS];
static int    n_players;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Unless it has said so itself. */
static void say_ended(long rank, int code)
{
    const char *folder = getenv("VPLAN_NULL_REPORT");
    char        path[4200];
    int         fd;

    if (!folder || snprintf(path, sizeof path, "%s/ended.%ld", folder, rank) >= (int)sizeof path)
        return;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (code)
            dprintf(fd, "exit code %d", code);
        close(fd);
    }
}

static pid_t start(long rank, char **command)
{
    char  text[24];
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(text, sizeof text, "%ld", rank);
    setenv("RANK", text, 1);
    setenv("LOCAL_RANK", "0", 1);
    execvp(command[0], command);
    fprintf(stderr, "vplan dryrun: %s: %s\n", command[0], strerror(errno));
    _exit(127);
}

static void end_all(int number)
{
    for (int i = 0; i < n_players; i++)
        if (players[i].pid > 0)
            kill(players[i].pid, number);
}

static int code_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* One has ended, or a little time has passed. */
static int wait_a_little(int *n_left)
{
    struct timespec pause = {.tv_nsec = 20000000};
    int             status;
    pid_t           pid = waitpid(-1, &status, WNOHANG);

    if (pid <= 0) {
        nanosleep(&pause, NULL);
        return 0;
    }
    for (int i = 0; i < n_players; i++)
        if (players[i].pid == pid) {
            players[i].pid = 0;
            say_ended(players[i].rank, code_of(status));
            (*n_left)--;
            return code_of(status);
        }
    return 0;
}

int main(int argc, char **argv)
{
    char  *list = argc > 2 ? argv[1] : NULL, *end;
    int    n_left, code = 0, ended = 0;
    double failed_s = 0;

    if (!list)
        return 2;
    for (; *list && n_players < MAX_RANKS; list = *end ? end + 1 : end) {
        players[n_players].rank = strtol(list, &end, 10);
        players[n_players].pid  = start(players[n_players].rank, argv + 2);
        if (end == list || players[n_players].pid < 0) {
            fprintf(stderr, "vplan dryrun: a rank could not be started: %s\n", strerror(errno));
            end_all(SIGKILL);
            return 5;
        }
        n_players++;
    }
    n_left = n_players;
    while (n_left > 0) {
        int this = wait_a_little(&n_left);

        if (this && !code) {
            code     = this;
            failed_s = now_s();
        }
        if (code && !ended && now_s() > failed_s + GRACE_S) {
            end_all(SIGKILL);
            ended = 1;
        }
    }
    return code;
}
