#include "tests/base_test.h"

#include "base/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static vp_err          err;
static vp_child_result result;

static int empty_err(void **state)
{
    (void)state;
    err    = (vp_err){0};
    result = (vp_child_result){0};
    return 0;
}

static int release(void **state)
{
    (void)state;
    vp_child_result_release(&result);
    return 0;
}

/* Run a script; the options besides its argv are as given. */
static void run_script(const char *script, vp_child_opts opts)
{
    char *const argv[] = {"/bin/sh", "-c", (char *)(uintptr_t)script, NULL};

    vp_child_result_release(&result);
    opts.argv = argv;
    CHECK_OK(vp_child_run(&opts, &result, &err));
}

/* Whether a process with this number is there and no zombie. */
static bool is_alive(long pid)
{
    char  path[64], state = 'Z';
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    f = fopen(path, "r");
    if (!f)
        return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    fclose(f);
    return state != 'Z';
}

static long read_pid(const char *name)
{
    FILE *f   = fopen(in_test_dir(name), "r");
    long  pid = 0;

    if (f) {
        if (fscanf(f, "%ld", &pid) != 1)
            pid = 0;
        fclose(f);
    }
    return pid;
}

static void no_child_is_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static int n_open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int  n   = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void both_streams_are_kept_apart(void **state)
{
    (void)state;
    run_script("echo out; echo err >&2; exit 3", (vp_child_opts){0});
    assert_int_equal(result.end, VP_CHILD_EXITED);
    assert_int_equal(result.exit_code, 3);
    assert_string_equal(result.out, "out\n");
    assert_string_equal(result.err, "err\n");
    assert_int_equal(result.n_out, 4);
    assert_int_equal(result.n_out_lost, 0);
    assert_true(result.seconds >= 0 && result.seconds < 60);
    assert_true(result.max_rss_bytes > 0);
    no_child_is_left();
}

static void a_signal_is_told_from_an_exit_code(void **state)
{
    (void)state;
    run_script("kill -9 $$", (vp_child_opts){0});
    assert_int_equal(result.end, VP_CHILD_SIGNALED);
    assert_int_equal(result.term_signal, SIGKILL);
    run_script("exit 137", (vp_child_opts){0});
    assert_int_equal(result.end, VP_CHILD_EXITED);
    assert_int_equal(result.exit_code, 137);
    assert_int_equal(result.term_signal, 0);
}

static void arguments_arrive_as_they_are(void **state)
{
    char *const   argv[] = {"/bin/sh", "-c", "printf '%s|' \"$@\"", "x", "a b", "$(id)", "", "`id`",
                            "*",       "-n", "q\"'\\\n;",           NULL};
    vp_child_opts opts   = {.argv = argv};

    (void)state;
    CHECK_OK(vp_child_run(&opts, &result, &err));
    assert_string_equal(result.out, "a b|$(id)||`id`|*|-n|q\"'\\\n;|");
}

static void standard_input_is_what_was_given_or_nothing(void **state)
{
    char *big = malloc(1 << 20);

    (void)state;
    run_script("cat", (vp_child_opts){0});
    assert_string_equal(result.out, "");
    run_script("cat", (vp_child_opts){.stdin_bytes = "a\0b", .n_stdin_bytes = 3});
    assert_int_equal(result.n_out, 3);
    assert_memory_equal(result.out, "a\0b", 4);
    memset(big, 'x', 1 << 20);
    run_script("wc -c", (vp_child_opts){.stdin_bytes = big, .n_stdin_bytes = 1 << 20});
    assert_int_equal(atoi(result.out), 1 << 20);
    /* A child that does not read it does not hurt us by SIGPIPE. */
    run_script("exec <&-; exit 0", (vp_child_opts){.stdin_bytes = big, .n_stdin_bytes = 1 << 20});
    assert_int_equal(result.exit_code, 0);
    free(big);
}

static void the_first_and_the_last_part_of_a_long_output_are_kept(void **state)
{
    (void)state;
    /* 588895 bytes: 9 * 2 + 90 * 3 + 900 * 4 + 9000 * 5 + 90000 * 6 + 7 */
    run_script("seq 1 100000; seq 1 3 >&2", (vp_child_opts){.max_output_bytes = 1064});
    /* Two halves of (1064 - 64) / 2 = 500 bytes. */
    assert_int_equal(result.n_out_lost, 588895 - 1000);
    assert_true(result.n_out <= 1064);
    assert_int_equal(strlen(result.out), result.n_out);
    assert_memory_equal(result.out, "1\n2\n3\n", 6);
    assert_non_null(strstr(result.out, "\n[587895 bytes left out here]\n"));
    assert_string_equal(result.out + result.n_out - 13, "99999\n100000\n");
    assert_string_equal(result.err, "1\n2\n3\n");
    assert_int_equal(result.n_err_lost, 0);
}

static void an_output_of_exactly_the_limit_loses_nothing(void **state)
{
    char script[128];

    (void)state;
    for (int n = 998; n <= 1002; n++) {
        snprintf(script, sizeof script, "head -c %d /dev/zero | tr '\\0' x; printf ''", n);
        run_script(script, (vp_child_opts){.max_output_bytes = 1064});
        assert_int_equal(result.n_out_lost, n > 1000 ? n - 1000 : 0);
        if (n <= 1000)
            assert_int_equal(result.n_out, n);
    }
}

static void a_gigabyte_without_a_line_end_is_drained_in_constant_memory(void **state)
{
    struct rusage before, after;

    (void)state;
    getrusage(RUSAGE_SELF, &before);
    run_script("head -c 1073741824 /dev/zero", (vp_child_opts){.max_output_bytes = 1 << 20});
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(result.exit_code, 0);
    assert_int_equal(result.n_out_lost, 1073741824 - ((1 << 20) - 64));
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024); /* KiB */
}

static void an_unwanted_stream_is_discarded(void **state)
{
    (void)state;
    run_script(
        "echo out; echo err >&2; sleep 0.1",
        (vp_child_opts){.out = VP_CHILD_DISCARD, .err = VP_CHILD_DISCARD, .silence_s = 0.01});
    assert_int_equal(result.end, VP_CHILD_EXITED); /* what is not heard cannot be silent */
    assert_string_equal(result.out, "");
    assert_string_equal(result.err, "");
}

static void a_stream_can_go_where_ours_goes(void **state)
{
    const char *path     = in_test_dir("streams");
    int         keep_out = dup(STDOUT_FILENO), keep_err = dup(STDERR_FILENO);
    int         fd       = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
    char        text[64] = "";

    (void)state;
    fflush(NULL);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    run_script("echo a; echo b >&2",
               (vp_child_opts){.out = VP_CHILD_INHERIT, .err = VP_CHILD_INHERIT});
    run_script("echo c", (vp_child_opts){.out = VP_CHILD_TO_STDERR});
    dup2(keep_out, STDOUT_FILENO);
    dup2(keep_err, STDERR_FILENO);
    close(keep_out);
    close(keep_err);
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    close(fd);
    assert_string_equal(text, "a\nb\nc\n");
}

static void closed_standard_streams_of_ours_do_not_confuse(void **state)
{
    int keep[3];

    (void)state;
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        keep[i] = fcntl(i, F_DUPFD, 10);
        close(i);
    }
    char *const   argv[] = {"/bin/sh", "-c", "cat; echo out; echo err >&2", NULL};
    vp_child_opts opts   = {.argv = argv, .stdin_bytes = "in\n", .n_stdin_bytes = 3};
    vp_status     st     = vp_child_run(&opts, &result, &err);
    for (int i = 0; i < 3; i++) {
        dup2(keep[i], i);
        close(keep[i]);
    }
    CHECK_OK(st);
    assert_string_equal(result.out, "in\nout\n");
    assert_string_equal(result.err, "err\n");
}

static void added_variables_replace_inherited_ones(void **state)
{
    char *const add[] = {"VPLAN_A=new", "VPLAN_C=", NULL};

    (void)state;
    setenv("VPLAN_A", "old", 1);
    setenv("VPLAN_AB", "kept", 1);
    run_script(
        "echo $VPLAN_A $VPLAN_AB ${VPLAN_C-unset}; tr '\\0' '\\n' < /proc/$$/environ | grep -c '^VPLAN_A='",
        (vp_child_opts){.env_add = add});
    assert_string_equal(result.out, "new kept\n1\n");
    unsetenv("VPLAN_A");
    unsetenv("VPLAN_AB");
}

static void a_command_that_cannot_be_executed_says_why(void **state)
{
    static const struct {
        const char *name, *content;
        mode_t      mode;
        const char *part;
    } cases[] = {
        {"missing", NULL, 0, "there is no such program"},
        {"plain", "#!/bin/sh\n", 0600, "it is not marked as executable"},
        {"folder", NULL, 0700, "it is a directory"},
        {"no-interpreter", "#!/not/there\n", 0700, "the interpreter that it names is not there"},
        {"no-program", "just text\n", 0700, "it is no program for this machine"},
    };
    int n_files = n_open_files();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = in_test_dir(cases[i].name);

        if (cases[i].content) {
            put_file(cases[i].name, cases[i].content, strlen(cases[i].content));
            chmod(path, cases[i].mode);
        } else if (cases[i].mode) {
            mkdir(path, cases[i].mode);
        }
        char *const   argv[] = {(char *)(uintptr_t)path, NULL};
        vp_child_opts opts   = {.argv = argv};
        CHECK_FAILS(vp_child_run(&opts, &result, &err), VP_ERR_USAGE, "", 0, "", cases[i].part);
        assert_null(result.out);
    }
    char *const empty[] = {"", NULL}, *const missing[] = {"vplan-not-there\x1b", NULL};
    vp_child_opts opts = {.argv = empty};
    CHECK_FAILS(vp_child_run(&opts, &result, &err), VP_ERR_USAGE, "", 0, "",
                "the command is empty");
    opts = (vp_child_opts){.argv = missing, .search_path = true};
    CHECK_FAILS(vp_child_run(&opts, &result, &err), VP_ERR_USAGE, "", 0, "",
                "cannot execute vplan-not-there\\x1b: no folder of PATH");
    assert_int_equal(n_open_files(), n_files);
    no_child_is_left();
}

static void a_name_is_looked_for_in_path_only_when_asked(void **state)
{
    char *const argv[] = {"true", NULL}, *const add[] = {"PATH=/nowhere", NULL};
    vp_child_opts opts = {.argv = argv, .search_path = true};

    (void)state;
    CHECK_OK(vp_child_run(&opts, &result, &err));
    assert_int_equal(result.exit_code, 0);
    vp_child_result_release(&result);
    opts.search_path = false;
    CHECK_FAILS(vp_child_run(&opts, &result, &err), VP_ERR_USAGE, "", 0, "", "no such program");
    opts.search_path = true;
    opts.env_add     = add;
    CHECK_FAILS(vp_child_run(&opts, &result, &err), VP_ERR_USAGE, "", 0, "", "no folder of PATH");
    err = (vp_err){0};
    CHECK_FAILS(vp_child_check(&opts, &err), VP_ERR_USAGE, "", 0, "", "no folder of PATH");
}

/* What people type in the place of a program: the message says what they may have meant. */
static void what_is_no_program_is_told_how_to_run(void **state)
{
    static const char *const made[] = {"vplan-a.py", "vplan-a.ipynb", "vplan-a.sh"};
    const struct {
        const char *argv[3], *part;
    } cases[] = {
        {{"CUDA_VISIBLE_DEVICES=0,1", "python"}, "by env: env CUDA_VISIBLE_DEVICES=0,1 ..."},
        {{"A=1"}, "by env: env A=1"},
        {{"python3 train.py --lr 1"}, "it is one word: leave the quotes out, or use sh -c"},
        {{"vplan-a.py", "--lr"},
         "PATH holds such a program; a script is run by: python3 vplan-a.py"},
        {{"./vplan-a.py"}, "not marked as executable; a script is run by: python3 ./vplan-a.py"},
        {{"vplan-a.sh"}, "a script is run by: bash vplan-a.sh"},
        {{"vplan-a.ipynb"}, "a notebook becomes a script by: jupyter nbconvert --to script"},
        {{"vplan-b.py"}, "no folder of PATH holds such a program"},
    };
    char folder[] = "/tmp/vplan-meant-XXXXXX", was[4096];

    (void)state;
    assert_non_null(getcwd(was, sizeof was));
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        FILE *f = fopen(made[i], "w");
        assert_non_null(f);
        fclose(f);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vp_child_opts opts = {.argv = (char *const *)(uintptr_t)cases[i].argv, .search_path = true};
        CHECK_FAILS(vp_child_run(&opts, &result, &err), VP_ERR_USAGE, "", 0, "", cases[i].part);
    }
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        unlink(made[i]);
    assert_int_equal(chdir(was), 0);
    rmdir(folder);
}

static void a_child_beyond_its_time_is_ended(void **state)
{
    (void)state;
    run_script("echo started; exec sleep 100", (vp_child_opts){.timeout_s = 0.3, .grace_s = 5});
    assert_int_equal(result.end, VP_CHILD_TIMED_OUT);
    assert_int_equal(result.term_signal, SIGTERM);
    assert_string_equal(result.out, "started\n");
    assert_true(result.seconds >= 0.3 && result.seconds < 5);
    no_child_is_left();
}

static void a_hung_child_that_still_prints_is_ended(void **state)
{
    (void)state;
    run_script("while :; do echo x; sleep 0.05; done",
               (vp_child_opts){.timeout_s = 0.5, .silence_s = 0.45, .grace_s = 5});
    assert_int_equal(result.end, VP_CHILD_TIMED_OUT);
}

static void a_silent_child_is_ended_and_told_apart(void **state)
{
    (void)state;
    run_script("for i in 1 2 3 4 5 6; do echo x; sleep 0.1; done; exec sleep 100",
               (vp_child_opts){.timeout_s = 50, .silence_s = 1.5, .grace_s = 5});
    assert_int_equal(result.end, VP_CHILD_SILENT);
    assert_string_equal(result.out, "x\nx\nx\nx\nx\nx\n");
    assert_true(result.seconds > 0.6 && result.seconds < 20);
}

static void a_child_that_ignores_sigterm_is_killed_after_the_grace(void **state)
{
    (void)state;
    run_script("trap '' TERM; while :; do sleep 0.1; done",
               (vp_child_opts){.timeout_s = 0.2, .grace_s = 0.4});
    assert_int_equal(result.end, VP_CHILD_TIMED_OUT);
    assert_int_equal(result.term_signal, SIGKILL);
    assert_true(result.seconds >= 0.6);
    no_child_is_left();
}

static void a_stopped_child_is_ended_too(void **state)
{
    (void)state;
    run_script("kill -STOP $$; sleep 100", (vp_child_opts){.timeout_s = 0.3, .grace_s = 5});
    assert_int_equal(result.end, VP_CHILD_TIMED_OUT);
    assert_int_equal(result.term_signal, SIGTERM);
}

static void a_child_may_use_its_grace_to_say_goodbye(void **state)
{
    (void)state;
    run_script("trap 'echo bye; exit 5' TERM; while :; do sleep 0.05; done",
               (vp_child_opts){.timeout_s = 0.3, .grace_s = 10});
    assert_int_equal(result.end, VP_CHILD_TIMED_OUT);
    assert_int_equal(result.exit_code, 5);
    assert_string_equal(result.out, "bye\n");
}

static void what_a_child_leaves_in_its_group_is_ended(void **state)
{
    char script[256];

    (void)state;
    snprintf(script, sizeof script, "sleep 100 & echo $! > %s", in_test_dir("group-pid"));
    run_script(script, (vp_child_opts){.timeout_s = 60});
    assert_int_equal(result.end, VP_CHILD_EXITED);
    assert_int_equal(result.exit_code, 0);
    assert_true(result.seconds < 50); /* the pipe that sleep still held did not make us wait */
    assert_true(read_pid("group-pid") > 1);
    assert_false(is_alive(read_pid("group-pid")));
    no_child_is_left();
}

static void a_descendant_that_left_the_group_is_swept(void **state)
{
    char script[400];

    (void)state;
    /* A session of its own, its parent gone, deaf to everything but SIGKILL; and a child below
     * it. */
    snprintf(
        script, sizeof script,
        "(setsid sh -c 'trap \"\" TERM HUP; echo $$ > %s; sleep 100 & echo $! > %s; wait' &) ; "
        "while [ ! -s %s ]; do sleep 0.01; done",
        in_test_dir("escaped"), in_test_dir("below"), in_test_dir("below"));
    run_script(script, (vp_child_opts){.timeout_s = 60});
    assert_int_equal(result.exit_code, 0);
    assert_true(read_pid("escaped") > 1 && read_pid("below") > 1);
    assert_false(is_alive(read_pid("escaped")));
    assert_false(is_alive(read_pid("below")));
    no_child_is_left();
}

static void our_other_children_are_left_alone(void **state)
{
    pid_t other = fork();

    (void)state;
    if (other == 0) {
        pause();
        _exit(0);
    }
    run_script("sleep 100 &", (vp_child_opts){.timeout_s = 60});
    assert_int_equal(waitpid(other, NULL, WNOHANG), 0);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
}

/* Send a signal to this process after a while, from a process that is not its child. */
static void signal_us_later(int signal_1, int delay_1_ms, int signal_2, int delay_2_ms)
{
    pid_t us = getpid(), middle = fork();

    if (middle == 0) {
        if (fork() == 0) {
            usleep((useconds_t)delay_1_ms * 1000);
            kill(us, signal_1);
            if (signal_2) {
                usleep((useconds_t)delay_2_ms * 1000);
                kill(us, signal_2);
            }
            _exit(0);
        }
        _exit(0);
    }
    waitpid(middle, NULL, 0);
}

static void a_signal_to_us_ends_the_child_and_is_reported(void **state)
{
    struct sigaction was;
    int              subreaper = -1;

    (void)state;
    signal_us_later(SIGINT, 300, 0, 0);
    run_script("exec sleep 100", (vp_child_opts){.timeout_s = 60, .grace_s = 5});
    assert_int_equal(result.end, VP_CHILD_INTERRUPTED);
    assert_int_equal(result.term_signal, SIGINT);
    assert_true(result.seconds < 50);
    sigaction(SIGINT, NULL, &was);
    assert_true(was.sa_handler == SIG_DFL); /* as it was */
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    assert_int_equal(subreaper, 0);
    signal_us_later(SIGTERM, 300, 0, 0);
    run_script("exec sleep 100", (vp_child_opts){.timeout_s = 60, .grace_s = 5});
    assert_int_equal(result.end, VP_CHILD_INTERRUPTED);
    assert_int_equal(result.term_signal, SIGTERM);
}

static void a_second_signal_to_us_ends_the_child_at_once(void **state)
{
    (void)state;
    signal_us_later(SIGINT, 300, SIGINT, 300);
    run_script("trap '' TERM INT; while :; do sleep 0.1; done",
               (vp_child_opts){.timeout_s = 60, .grace_s = 30});
    assert_int_equal(result.end, VP_CHILD_INTERRUPTED);
    assert_true(result.seconds < 20);
}

static void a_signal_that_we_ignore_is_ignored(void **state)
{
    (void)state;
    signal(SIGHUP, SIG_IGN);
    signal_us_later(SIGHUP, 100, 0, 0);
    run_script("sleep 0.5; echo done", (vp_child_opts){.timeout_s = 60});
    signal(SIGHUP, SIG_DFL);
    assert_int_equal(result.end, VP_CHILD_EXITED);
    assert_string_equal(result.out, "done\n");
}

static void an_end_is_seen_even_where_ends_of_children_are_ignored(void **state)
{
    struct sigaction now;

    (void)state;
    signal(SIGCHLD, SIG_IGN);
    run_script("exit 9", (vp_child_opts){.timeout_s = 60});
    sigaction(SIGCHLD, NULL, &now);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(result.exit_code, 9);
    assert_true(now.sa_handler == SIG_IGN);
}

static void a_child_starts_with_plain_signals_and_no_core_dump(void **state)
{
    void (*was)(int) = signal(SIGPIPE, SIG_IGN);

    (void)state;
    /* a shell starts background tests with these two ignored, and a child keeps that */
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    run_script("ulimit -c; grep -E 'SigBlk|SigIgn' /proc/self/status; yes | head -n 1; "
               "read p n s f g i x < /proc/$$/stat; echo group $((p - g)) session $((p - i))",
               (vp_child_opts){0});
    signal(SIGPIPE, was);
    assert_memory_equal(result.out, "0\n", 2);
    assert_non_null(strstr(result.out, "SigBlk:\t0000000000000000"));
    /* signals 1 to 31: the C library keeps 32 and 33 for itself, and make's children have them
     * ignored */
    assert_non_null(strstr(result.out, "SigIgn:\t"));
    assert_int_equal(strtoull(strstr(result.out, "SigIgn:\t") + 8, NULL, 16) & 0x7fffffff, 0);
    assert_non_null(strstr(result.out, "group 0 session 0\n"));
    assert_null(strstr(result.err, "yes:"));
}

static void a_child_does_not_inherit_our_other_files(void **state)
{
    int fd = dup(STDERR_FILENO); /* without close-on-exec */

    (void)state;
    run_script("ls /proc/self/fd | tr '\\n' ' '", (vp_child_opts){0});
    close(fd);
    assert_string_equal(result.out, "0 1 2 3 "); /* 3 is the folder that ls reads */
}

static void a_child_dies_with_us(void **state)
{
    char  script[256];
    long  pid;
    pid_t us;

    (void)state;
    snprintf(script, sizeof script, "echo $$ > %s; exec sleep 100", in_test_dir("orphan"));
    us = fork();
    if (us == 0) {
        char *const   argv[] = {"/bin/sh", "-c", script, NULL};
        vp_child_opts opts   = {.argv = argv};
        vp_child_run(&opts, &result, NULL);
        _exit(0);
    }
    for (int i = 0; i < 500 && !read_pid("orphan"); i++)
        usleep(10000);
    pid = read_pid("orphan");
    assert_true(pid > 1);
    assert_true(is_alive(pid));
    kill(us, SIGKILL);
    waitpid(us, NULL, 0);
    for (int i = 0; i < 500 && is_alive(pid); i++)
        usleep(10000);
    assert_false(is_alive(pid));
}

static void being_stopped_ourselves_is_no_time_of_the_child(void **state)
{
    (void)state;
    /* Stopped for 3 s of a limit of 2.5 s, while the child needs 1 s after that. */
    signal_us_later(SIGSTOP, 200, SIGCONT, 3000);
    run_script("sleep 3.8; echo done", (vp_child_opts){.timeout_s = 2.5, .grace_s = 1});
    assert_int_equal(result.end, VP_CHILD_EXITED);
    assert_string_equal(result.out, "done\n");
}

static void no_files_are_left_open(void **state)
{
    int n = n_open_files();

    (void)state;
    for (int i = 0; i < 20; i++)
        run_script("echo x; echo y >&2", (vp_child_opts){.stdin_bytes = "x", .n_stdin_bytes = 1});
    run_script("sleep 10", (vp_child_opts){.timeout_s = 0.05});
    assert_int_equal(n_open_files(), n);
}

static void running_out_of_descriptors_is_the_environments_fault(void **state)
{
    struct rlimit was, few;
    char *const   argv[] = {"/bin/true", NULL};
    vp_child_opts opts   = {.argv = argv};
    int           n      = n_open_files();

    (void)state;
    getrlimit(RLIMIT_NOFILE, &was);
    for (rlim_t k = 3; k < 16; k++) {
        few          = was;
        few.rlim_cur = k;
        setrlimit(RLIMIT_NOFILE, &few);
        vp_status st = vp_child_run(&opts, &result, &err);
        setrlimit(RLIMIT_NOFILE, &was);
        assert_true(st == VP_OK || st == VP_ERR_DEVICE);
        vp_child_result_release(&result);
        err = (vp_err){0};
        no_child_is_left();
    }
    assert_int_equal(n_open_files(), n);
}

/* Run a script that sleeps, with a pipe whose other end gets n bytes and is then closed. */
static void run_owned(const char *bytes, size_t n)
{
    int           ends[2];
    vp_child_opts opts = {.grace_s = 5};

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(write(ends[1], bytes, n), (ssize_t)n);
    close(ends[1]);
    opts.owner_fd = ends[0];
    run_script("exec sleep 60", opts);
    close(ends[0]);
}

static void an_owner_that_is_gone_ends_the_child(void **state)
{
    (void)state;
    run_owned("", 0);
    assert_int_equal(result.end, VP_CHILD_INTERRUPTED);
    assert_int_equal(result.term_signal, SIGTERM);
    assert_true(result.seconds < 5);
    no_child_is_left();
}

static void a_signal_that_reached_the_owner_is_reported(void **state)
{
    static const char byte = SIGINT;

    (void)state;
    run_owned(&byte, 1);
    assert_int_equal(result.end, VP_CHILD_INTERRUPTED);
    assert_int_equal(result.term_signal, SIGINT);
    no_child_is_left();
}

static void all_that_is_below_us_can_be_ended(void **state)
{
    long  pid;
    pid_t child;

    (void)state;
    child = fork();
    if (child == 0) {
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(127);
    }
    pid = child;
    assert_true(is_alive(pid));
    vp_child_end_all();
    assert_false(is_alive(pid));
    no_child_is_left();
}

#define T(name) cmocka_unit_test_setup_teardown(name, empty_err, release)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(both_streams_are_kept_apart),
        T(a_signal_is_told_from_an_exit_code),
        T(arguments_arrive_as_they_are),
        T(standard_input_is_what_was_given_or_nothing),
        T(the_first_and_the_last_part_of_a_long_output_are_kept),
        T(an_output_of_exactly_the_limit_loses_nothing),
        T(a_gigabyte_without_a_line_end_is_drained_in_constant_memory),
        T(an_unwanted_stream_is_discarded),
        T(a_stream_can_go_where_ours_goes),
        T(closed_standard_streams_of_ours_do_not_confuse),
        T(added_variables_replace_inherited_ones),
        T(a_command_that_cannot_be_executed_says_why),
        T(a_name_is_looked_for_in_path_only_when_asked),
        T(what_is_no_program_is_told_how_to_run),
        T(a_child_beyond_its_time_is_ended),
        T(a_hung_child_that_still_prints_is_ended),
        T(a_silent_child_is_ended_and_told_apart),
        T(a_child_that_ignores_sigterm_is_killed_after_the_grace),
        T(a_stopped_child_is_ended_too),
        T(a_child_may_use_its_grace_to_say_goodbye),
        T(what_a_child_leaves_in_its_group_is_ended),
        T(a_descendant_that_left_the_group_is_swept),
        T(our_other_children_are_left_alone),
        T(a_signal_to_us_ends_the_child_and_is_reported),
        T(a_second_signal_to_us_ends_the_child_at_once),
        T(a_signal_that_we_ignore_is_ignored),
        T(an_end_is_seen_even_where_ends_of_children_are_ignored),
        T(a_child_starts_with_plain_signals_and_no_core_dump),
        T(a_child_does_not_inherit_our_other_files),
        T(a_child_dies_with_us),
        T(an_owner_that_is_gone_ends_the_child),
        T(a_signal_that_reached_the_owner_is_reported),
        T(all_that_is_below_us_can_be_ended),
        T(being_stopped_ourselves_is_no_time_of_the_child),
        T(no_files_are_left_open),
        T(running_out_of_descriptors_is_the_environments_fault),
    };
    /* Who started the tests may ignore or block what they are about. */
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD};
    sigset_t         none;

    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
