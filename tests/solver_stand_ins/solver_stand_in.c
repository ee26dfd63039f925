/* A program in place of vplan-solve that does one thing wrong.
 *     VPLAN_STAND_IN=missing-corner VPLAN_REAL_SOLVER=build/vplan-solve build/tests/solver_stand_in
 *     < problem > solution
 *
 * VPLAN_STAND_IN names the fault; without it, or with one that is not known, it exits 64.
 * VPLAN_REAL_SOLVER is the solver whose answer the lying modes change. VPLAN_STAND_IN_BYTE:
 * after how many bytes of the true answer "dies-at" is killed and "hangs-at" stops.
 * `solver_stand_in --list` prints the modes, one a line. */
#include <jansson.h>

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct text {
    char  *data;
    size_t n;
} text;

static json_t *problem, *solution;
static text    answer; /* of the real solver, as it came */

/* ---- the real solver ---- */

static void die(const char *why)
{
    fprintf(stderr, "solver_stand_in: %s\n", why);
    exit(64);
}

static text read_all(int fd)
{
    text    t = {0};
    ssize_t n;

    for (;;) {
        t.data = realloc(t.data, t.n + 65536);
        if (!t.data)
            die("out of memory");
        n = read(fd, t.data + t.n, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return t;
        t.n += (size_t)n;
    }
}

static void put(const char *bytes, size_t n)
{
    while (n) {
        ssize_t k = write(STDOUT_FILENO, bytes, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            _exit(65);
        bytes += k;
        n -= (size_t)k;
    }
}

static void put_json(json_t *root)
{
    char *out = json_dumps(root, JSON_COMPACT);

    if (!out)
        die("no answer to write");
    put(out, strlen(out));
    free(out);
}

/* Every program with its own items: of the same ones only the first was written with them. */
static void share_items(void)
{
    static const char *const columns[] = {"k_bytes", "beta_bytes", "cost_ns", "n_more"};
    json_t                  *programs  = json_object_get(problem, "programs"), *g, *of;
    size_t                   i;

    json_array_foreach (programs, i, g) {
        if (!(of = json_object_get(g, "items_of")))
            continue;
        of = json_array_get(programs, (size_t)json_integer_value(of));
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
            if (json_object_get(of, columns[c]))
                json_object_set(g, columns[c], json_object_get(of, columns[c]));
    }
}

/* Ask the real solver; through files, so that nothing can block. */
static void ask(void)
{
    const char *path = getenv("VPLAN_REAL_SOLVER");
    FILE       *in = tmpfile(), *out = tmpfile();
    text        question = read_all(STDIN_FILENO);
    pid_t       pid;

    if (!path || !in || !out)
        die("VPLAN_REAL_SOLVER is not set");
    if (fwrite(question.data, 1, question.n, in) != question.n || fflush(in))
        die("no temporary file");
    rewind(in);
    pid = fork();
    if (pid == 0) {
        dup2(fileno(in), STDIN_FILENO);
        dup2(fileno(out), STDOUT_FILENO);
        execl(path, path, (char *)NULL);
        _exit(127);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (lseek(fileno(out), 0, SEEK_SET))
        die("no temporary file");
    answer   = read_all(fileno(out));
    problem  = json_loadb(question.data, question.n, 0, NULL);
    solution = json_loadb(answer.data, answer.n, 0, NULL);
    if (!problem || !solution)
        die("the real solver gave no answer");
    share_items();
    free(question.data);
}

/* ---- faults in the answer ---- */

static json_t *program_of_solution(void)
{
    return json_array_get(json_object_get(problem, "programs"),
                          (size_t)json_integer_value(json_object_get(solution, "program_idx")));
}

static void set(const char *key, json_t *value)
{
    json_object_set_new(solution, key, value);
}

static void raise_cutoff(int64_t ns)
{
    set("cutoff_ns", json_integer(json_integer_value(json_object_get(solution, "cutoff_ns")) + ns));
}

/* What an item is for, blocks beside the first; a document says nothing where all are for one. */
static bool is_segment(const json_t *g, size_t item)
{
    return json_integer_value(json_array_get(json_object_get(g, "n_more"), item)) > 0;
}

/* Every block by the item that needs least: it fits if anything does, and is called optimal. */
static void worse(void)
{
    json_t *g = program_of_solution(), *k = json_object_get(g, "k_bytes"),
           *beta     = json_object_get(g, "beta_bytes");
    json_t *counts   = json_array();
    int64_t n_blocks = json_integer_value(json_object_get(g, "n_blocks")), least = INT64_MAX, ns;
    size_t  best = 0, n = json_array_size(k);

    for (size_t s = 0; s < n; s++) {
        int64_t need = n_blocks * json_integer_value(json_array_get(k, s)) +
                       json_integer_value(json_array_get(beta, s));

        if (need < least && !is_segment(g, s))
            least = need, best = s;
    }
    for (size_t s = 0; s < n; s++)
        json_array_append_new(counts, json_integer(s == best ? n_blocks : 0));
    ns = json_integer_value(json_object_get(g, "const_ns")) +
         n_blocks * json_integer_value(json_array_get(json_object_get(g, "cost_ns"), best));
    set("counts", counts);
    set("cutoff_ns", json_integer(ns));
}

/* All blocks by the cheapest item, whatever it needs. */
static void too_large(void)
{
    json_t *g = program_of_solution(), *cost = json_object_get(g, "cost_ns"),
           *counts = json_array();
    size_t best = 0, n = json_array_size(cost);

    while (is_segment(g, best))
        best++;
    for (size_t s = 0; s < n; s++)
        if (!is_segment(g, s) && json_integer_value(json_array_get(cost, s)) <
                                     json_integer_value(json_array_get(cost, best)))
            best = s;
    for (size_t s = 0; s < n; s++)
        json_array_append_new(
            counts,
            json_integer(s == best ? json_integer_value(json_object_get(g, "n_blocks")) : 0));
    set("counts", counts);
}

static void change_count(int64_t by)
{
    json_t *counts = json_object_get(solution, "counts");

    for (size_t s = 0; s < json_array_size(counts); s++) {
        int64_t n = json_integer_value(json_array_get(counts, s));

        if (n) {
            json_array_set_new(counts, s, json_integer(n + by));
            return;
        }
    }
}

typedef enum change {
    DOUBLE,
    NEGATE,
    OTHER_ROW,
    AS_REAL,
    HUGE_NUMBER,
    DROP_LEAF,
    EMPTY_LEAF,
    MORE_LEAVES,
    CROSS
} change;

/* Change every leaf's multipliers, or the first tree that splits. */
static void change_certificate(change what)
{
    json_t *trees = json_object_get(solution, "certificate"), *tree, *node, *pair;
    size_t  i, j, k;
    bool    done = false;

    json_array_foreach (trees, i, tree)
        json_array_foreach (tree, j, node) {
            int64_t kind = json_integer_value(json_array_get(node, 0));

            if (kind)
                continue;
            for (k = 1; k < json_array_size(node) && what <= HUGE_NUMBER; k++) {
                int64_t r, u;

                pair = json_array_get(node, k);
                r    = json_integer_value(json_array_get(pair, 0));
                u    = json_integer_value(json_array_get(pair, 1));
                if (what == OTHER_ROW)
                    json_array_set_new(pair, 0, json_integer(r + 1));
                else
                    json_array_set_new(pair, 1,
                                       what == DOUBLE    ? json_integer(2 * u)
                                       : what == NEGATE  ? json_integer(-u)
                                       : what == AS_REAL ? json_real((double)u + 0.5)
                                                         : json_integer(INT64_MAX));
            }
        }
    json_array_foreach (trees, i, tree) {
        size_t n = json_array_size(tree);

        if (done || (what < CROSS && n < 3))
            continue;
        if (what == DROP_LEAF)
            done = !json_array_remove(tree, n - 1);
        if (what == EMPTY_LEAF)
            done = !json_array_set_new(tree, n - 1, json_pack("[i]", 3));
        if (what == MORE_LEAVES)
            done = !json_array_append_new(tree, json_pack("[i]", 3));
    }
    if (what == CROSS) { /* each program gets its neighbour's proof */
        json_t *first = json_incref(json_array_get(trees, 0));

        json_array_remove(trees, 0);
        json_array_append_new(trees, first);
    }
}

/* Write the answer with one member's value replaced by text that JSON may not even have. */
static void put_with(const char *key, const char *value)
{
    char *out, *at, mark[64];

    set(key, json_string("@@"));
    out = json_dumps(solution, JSON_COMPACT);
    snprintf(mark, sizeof mark, "\"%s\":\"@@\"", key);
    at = out ? strstr(out, mark) : NULL;
    if (!at)
        die("no answer to write");
    at += strlen(key) + 3;
    put(out, (size_t)(at - out));
    put(value, strlen(value));
    put(at + 4, strlen(at + 4));
    free(out);
}

static size_t byte_number(void)
{
    const char *n = getenv("VPLAN_STAND_IN_BYTE");

    return n ? (size_t)strtoul(n, NULL, 10) : answer.n / 2;
}

static void wait_for_ever(void)
{
    for (;;)
        pause();
}

static void repeat(const char *bytes, int64_t n_times)
{
    for (int64_t i = 0; n_times < 0 || i < n_times; i++)
        put(bytes, strlen(bytes));
}

/* ---- the modes ---- */

static void mode_worse_answer(void)
{
    ask();
    worse();
    put_json(solution);
}
static void mode_too_large_answer(void)
{
    ask();
    too_large();
    put_json(solution);
}
static void mode_block_missing(void)
{
    ask();
    change_count(-1);
    put_json(solution);
}
static void mode_block_too_many(void)
{
    ask();
    change_count(1);
    put_json(solution);
}
static void mode_negative_count(void)
{
    ask();
    change_count(-1000);
    put_json(solution);
}
static void mode_huge_count(void)
{
    ask();
    change_count(INT64_MAX / 2);
    put_json(solution);
}
static void mode_no_such_program(void)
{
    ask();
    set("program_idx", json_integer(4095));
    put_json(solution);
}
static void mode_raised_cutoff(void)
{
    ask();
    raise_cutoff(1000000);
    put_json(solution);
}
/* Nothing wrong with it: it proves a hundredth less. */
static void mode_lowered_cutoff(void)
{
    ask();
    raise_cutoff(-json_integer_value(json_object_get(solution, "cutoff_ns")) / 100);
    put_json(solution);
}
static void mode_cutoff_of_all_time(void)
{
    ask();
    set("cutoff_ns", json_integer(INT64_MAX));
    put_json(solution);
}
static void mode_doubled_duals(void)
{
    ask();
    change_certificate(DOUBLE);
    raise_cutoff(1);
    put_json(solution);
}
static void mode_negated_duals(void)
{
    ask();
    change_certificate(NEGATE);
    put_json(solution);
}
static void mode_duals_of_other_rows(void)
{
    ask();
    change_certificate(OTHER_ROW);
    put_json(solution);
}
static void mode_fractional_duals(void)
{
    ask();
    change_certificate(AS_REAL);
    put_json(solution);
}
static void mode_huge_duals(void)
{
    ask();
    change_certificate(HUGE_NUMBER);
    put_json(solution);
}
static void mode_missing_corner(void)
{
    ask();
    change_certificate(DROP_LEAF);
    put_json(solution);
}
static void mode_corner_called_empty(void)
{
    ask();
    change_certificate(EMPTY_LEAF);
    raise_cutoff(1);
    put_json(solution);
}
static void mode_leaf_left_over(void)
{
    ask();
    change_certificate(MORE_LEAVES);
    put_json(solution);
}
static void mode_crossed_proofs(void)
{
    ask();
    change_certificate(CROSS);
    raise_cutoff(1);
    put_json(solution);
}
static void mode_no_certificate(void)
{
    ask();
    set("certificate", json_array());
    put_json(solution);
}
static void mode_nan(void)
{
    ask();
    put_with("cutoff_ns", "NaN");
}
static void mode_infinity(void)
{
    ask();
    put_with("cutoff_ns", "Infinity");
}
static void mode_nan_duals(void)
{
    ask();
    put_with("certificate", "[[[0,[0,NaN],[1,NaN]]]]");
}
static void mode_number_beyond_64_bits(void)
{
    ask();
    put_with("cutoff_ns", "99999999999999999999999");
}
static void mode_deep_nesting(void)
{
    repeat("{\"certificate\":", 1);
    repeat("[", 1000000);
}
static void mode_unknown_member(void)
{
    ask();
    set("signed_by", json_string("the solver"));
    put_json(solution);
}
static void mode_twice(void)
{
    ask();
    put(answer.data, answer.n);
    put(answer.data, answer.n);
}
static void mode_exits_1(void)
{
    ask();
    put(answer.data, answer.n);
    exit(1);
}
static void mode_silent(void)
{
    read_all(STDIN_FILENO);
}
static void mode_refuses(void)
{
    fputs("vplan-solve: out of host memory\n", stderr);
    exit(1);
}
static void mode_garbage(void)
{
    read_all(STDIN_FILENO);
    for (int i = 0; i < 4096; i++)
        putchar(i * 167 % 256);
}
static void mode_endless(void)
{
    repeat("{\"found\":true,", -1);
}
static void mode_endless_stderr(void)
{
    dup2(STDERR_FILENO, STDOUT_FILENO);
    repeat("still solving\n", -1);
}
static void mode_huge_output(void)
{
    repeat("{\"certificate\":[", 1);
    repeat("[[0]],", 8 << 20);
    repeat("[[0]]]}", 1);
}
static void mode_hangs(void)
{
    read_all(STDIN_FILENO);
    wait_for_ever();
}
static void mode_never_reads(void)
{
    wait_for_ever();
}
static void mode_hangs_after_answer(void)
{
    ask();
    put(answer.data, answer.n);
    wait_for_ever();
}
static void mode_ignores_sigterm(void)
{
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}
static void mode_dies(void)
{
    abort();
}
static void mode_killed_after_answer(void)
{
    ask();
    put(answer.data, answer.n);
    raise(SIGKILL);
}

static void mode_none_found(void)
{
    ask();
    set("found", json_false());
    set("program_idx", json_integer(0));
    set("counts", json_array());
    set("cutoff_ns", json_integer(INT64_MAX));
    put_json(solution);
}

static void mode_dies_at(void)
{
    ask();
    put(answer.data, byte_number() < answer.n ? byte_number() : answer.n);
    raise(SIGKILL);
}

static void mode_ends_at(void)
{
    ask();
    put(answer.data, byte_number() < answer.n ? byte_number() : answer.n);
}

static void mode_hangs_at(void)
{
    ask();
    put(answer.data, byte_number() < answer.n ? byte_number() : answer.n);
    wait_for_ever();
}

/* Someone else keeps the pipe open. */
static void mode_leaves_a_child(void)
{
    ask();
    if (fork() == 0)
        wait_for_ever();
    put(answer.data, answer.n / 2);
}

static void mode_honest(void)
{
    ask();
    put(answer.data, answer.n);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"honest", mode_honest},
    {"worse-answer", mode_worse_answer},
    {"too-large-answer", mode_too_large_answer},
    {"block-missing", mode_block_missing},
    {"block-too-many", mode_block_too_many},
    {"negative-count", mode_negative_count},
    {"huge-count", mode_huge_count},
    {"no-such-program", mode_no_such_program},
    {"none-found", mode_none_found},
    {"raised-cutoff", mode_raised_cutoff},
    {"lowered-cutoff", mode_lowered_cutoff},
    {"cutoff-of-all-time", mode_cutoff_of_all_time},
    {"doubled-duals", mode_doubled_duals},
    {"negated-duals", mode_negated_duals},
    {"duals-of-other-rows", mode_duals_of_other_rows},
    {"fractional-duals", mode_fractional_duals},
    {"huge-duals", mode_huge_duals},
    {"missing-corner", mode_missing_corner},
    {"corner-called-empty", mode_corner_called_empty},
    {"leaf-left-over", mode_leaf_left_over},
    {"crossed-proofs", mode_crossed_proofs},
    {"no-certificate", mode_no_certificate},
    {"nan", mode_nan},
    {"infinity", mode_infinity},
    {"nan-duals", mode_nan_duals},
    {"number-beyond-64-bits", mode_number_beyond_64_bits},
    {"deep-nesting", mode_deep_nesting},
    {"unknown-member", mode_unknown_member},
    {"twice", mode_twice},
    {"exits-1", mode_exits_1},
    {"silent", mode_silent},
    {"refuses", mode_refuses},
    {"garbage", mode_garbage},
    {"endless", mode_endless},
    {"endless-stderr", mode_endless_stderr},
    {"huge-output", mode_huge_output},
    {"hangs", mode_hangs},
    {"never-reads", mode_never_reads},
    {"hangs-after-answer", mode_hangs_after_answer},
    {"ignores-sigterm", mode_ignores_sigterm},
    {"dies", mode_dies},
    {"killed-after-answer", mode_killed_after_answer},
    {"dies-at", mode_dies_at},
    {"ends-at", mode_ends_at},
    {"hangs-at", mode_hangs_at},
    {"leaves-a-child", mode_leaves_a_child},
};

int main(int argc, char **argv)
{
    const char *name = getenv("VPLAN_STAND_IN");
    const bool  list = argc == 2 && !strcmp(argv[1], "--list");

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (list) {
            puts(modes[i].name);
        } else if (name && !strcmp(name, modes[i].name)) {
            modes[i].run();
            return 0;
        }
    }
    if (!list)
        die("VPLAN_STAND_IN names no mode; --list prints them");
    return 0;
}
