/* The study: what is on disk survives, what is not a study is refused and left alone, and a
 * tuner that is killed at any moment loses nothing that was finished. */
#include "tests/base_test.h"
#include "tests/study_test.h"

#include "devices/devices.h"
#include "models/model.h"
#include "tuner/correct.h"
#include "tuner/study.h"
#include "tuner/tune.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <time.h>

static void sql(const char *path, const char *text)
{
    sqlite3 *db    = NULL;
    char    *error = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, &error) != SQLITE_OK)
        print_error("%s: %s\n", text, error);
    assert_null(error);
    sqlite3_close(db);
}

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *data;

    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n   = (size_t)ftell(f);
    data = malloc(*n + 1);
    rewind(f);
    assert_int_equal(fread(data, 1, *n, f), *n);
    fclose(f);
    return data;
}

static void what_was_finished_is_read_back_to_the_bit(void **state)
{
    vp_err          err   = {0};
    const char     *path  = in_test_dir("back.db");
    vp_arena       *arena = vp_arena_new();
    vp_study       *study;
    vp_study_trial *trials, running = {.decisions = "{\"b\":1}", .predicted_s = 1};
    vp_profile     *p = vp_profile_new();
    int64_t         request_id, profile_id, n;

    (void)state;
    study = new_study(path, &request_id, &profile_id);
    add_done(study, request_id, profile_id, "{\"a\":1}");
    running.profile_id = profile_id;
    CHECK_OK(vp_study_begin(study, request_id, &running, &err));
    vp_study_close(study);

    CHECK_OK(vp_study_open(path, &study, &err));
    CHECK_OK(vp_study_request_id(study, &any_request, &n, &err));
    assert_int_equal(n, request_id);
    CHECK_OK(vp_study_trials(study, arena, request_id, &trials, &n, &err));
    assert_int_equal(n, 2);
    assert_int_equal(trials[0].state, VP_TRIAL_DONE);
    assert_string_equal(trials[0].decisions, "{\"a\":1}");
    assert_string_equal(trials[0].preset, "p");
    assert_string_equal(trials[0].verdict, "ok");
    assert_true(trials[0].measured_s == 1.0 / 3 && trials[0].predicted_s == 0.7);
    assert_int_equal(trials[0].predicted_bytes, 5);
    assert_int_equal(trials[0].executed_bytes, 6);
    assert_int_equal(trials[0].n_steps, 3);
    assert_true(trials[0].step_s[0] == 0.1 && trials[0].step_s[1] == 1.0 / 3 &&
                trials[0].step_s[2] == 3e-9);
    assert_int_equal(trials[0].n_calls, 1);
    assert_int_equal(trials[0].calls[0].row.kernel, VP_K_ADD);
    assert_int_equal(trials[0].calls[0].row.elements.count, 7);
    assert_int_equal(trials[0].calls[0].n_calls, 2);
    assert_int_equal(trials[0].outside.measured_by, VP_OVERHEAD_BY_DEVICE);
    assert_true(trials[0].outside.bytes == 40 &&
                trials[0].outside.at_bytes[VP_OVERHEAD_CONTEXT] == 10 &&
                !trials[0].outside.has[VP_OVERHEAD_ARENA]);
    assert_int_equal(trials[1].state, VP_TRIAL_INTERRUPTED); /* nobody finished it */
    assert_int_equal(trials[1].outside.measured_by, VP_OVERHEAD_NOT_MEASURED);
    CHECK_OK(vp_study_measured(study, "cpu", "b with another driver", "x", p, &err));
    assert_int_equal(p->outside.measured_by, VP_OVERHEAD_NOT_MEASURED);
    assert_true(vp_link_rates_least(&p->link) == 0 && p->host_update_bytes_per_s == 0);
    CHECK_OK(vp_study_measured(study, "cpu", "b", "x", p, &err));
    assert_int_equal(p->n_rows, 1);
    assert_true(strcmp(p->link.device, "cpu") == 0 && p->link.pinned_bytes == 64 &&
                vp_link_rates_least(&p->link) == 1e9 / 3 && p->host_update_bytes_per_s == 7e9);
    /* of two the later one, and of one that measured neither nothing is taken */
    p->n_rows = 0;
    strcpy(p->device, "cpu");
    strcpy(p->backend, "b");
    p->link.from_device_bytes_per_s = 1e8;
    CHECK_OK(vp_study_add_profile(study, VP_PROFILE_MEASURED, p, "x", &profile_id, &err));
    p->link                    = (vp_link_rates){.pinned_bytes = 0};
    p->host_update_bytes_per_s = 0;
    CHECK_OK(vp_study_add_profile(study, VP_PROFILE_MEASURED, p, "x", &profile_id, &err));
    CHECK_OK(vp_study_measured(study, "cpu", "b", "x", p, &err));
    assert_true(vp_link_rates_least(&p->link) == 1e8 && p->host_update_bytes_per_s == 7e9);
    assert_true(p->rows[0].seconds == 0.25 && p->rows[0].linear.out == 6);
    assert_int_equal(p->outside.bytes, 40); /* the trial's, more than the timed calls' 30 */
    CHECK_OK(vp_study_measured(study, "cpu", "b", "another build", p, &err));
    assert_int_equal(p->n_rows, 1);
    vp_study_close(study);
    vp_profile_free(p);
    vp_arena_free(arena);
}

static void a_request_of_another_budget_shares_its_trials_and_one_of_another_model_does_not(
    void **state)
{
    vp_err           err   = {0};
    vp_arena        *arena = vp_arena_new();
    vp_study        *study;
    vp_study_trial  *trials;
    vp_study_request other = any_request;
    int64_t          request_id, profile_id, id, n;

    (void)state;
    study = new_study(NULL, &request_id, &profile_id);
    add_done(study, request_id, profile_id, "{}");
    other.budget_bytes++;
    CHECK_OK(vp_study_request_id(study, &other, &id, &err));
    assert_int_not_equal(id, request_id);
    CHECK_OK(vp_study_trials(study, arena, id, &trials, &n, &err));
    assert_int_equal(n, 1);
    assert_int_equal(trials[0].request_id, request_id);
    other.model_sha256 = "4567";
    CHECK_OK(vp_study_request_id(study, &other, &id, &err));
    CHECK_OK(vp_study_trials(study, arena, id, &trials, &n, &err));
    assert_int_equal(n, 0);
    vp_study_close(study);
    vp_arena_free(arena);
}

/* Refused with this text, and not a byte of it changed. */
static void refused(const char *path, const char *part, int line)
{
    vp_err    err   = {0};
    vp_study *study = NULL;
    size_t    n_before, n_after;
    char     *before = slurp(path, &n_before), *after;
    vp_status st     = vp_study_open(path, &study, &err);

    check_error(&err, st, VP_ERR_STORAGE, path, 0, "", part, __FILE__, line);
    assert_null(study);
    after = slurp(path, &n_after);
    assert_int_equal(n_before, n_after);
    assert_memory_equal(before, after, n_after);
    free(before);
    free(after);
}

/* A name makes nothing ours, whether the study is refused, made or opened again; a folder that a
 * killed tuner left goes, unless something else is in it. */
static void files_beside_a_study_are_left_alone(void **state)
{
    static const char *const beside[] = {
        "notes.txt.new", "notes.txt.lock",      "notes.txt.new-journal", "made.db.new",
        "made.db.lock",  "made.db.new-journal", "made.db.new-abcdef",
    };
    static const char theirs[] = "a year of notes\n";
    vp_err            err      = {0};
    vp_study         *study;
    int64_t           a, b;

    (void)state;
    refused(put_file("notes.txt", theirs, sizeof theirs), "is not an SQLite database", __LINE__);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        put_file(beside[i], theirs, sizeof theirs);
    refused(in_test_dir("notes.txt"), "is not an SQLite database", __LINE__);
    vp_study_close(new_study(in_test_dir("made.db"), &a, &b));
    mkdir(in_test_dir("made.db.new-killed"), 0700);
    put_file("made.db.new-killed/study.db", "", 0);
    mkdir(in_test_dir("made.db.new-theirs"), 0700);
    put_file("made.db.new-theirs/letter", theirs, sizeof theirs);
    CHECK_OK(vp_study_open(in_test_dir("made.db"), &study, &err));
    vp_study_close(study);
    assert_int_not_equal(access(in_test_dir("made.db.new-killed"), F_OK), 0);
    assert_int_equal(access(in_test_dir("made.db.new-theirs/letter"), F_OK), 0);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        size_t n;
        char  *now = slurp(in_test_dir(beside[i]), &n);
        assert_int_equal(n, sizeof theirs);
        assert_memory_equal(now, theirs, n);
        free(now);
    }
}

static void a_file_that_is_no_study_is_refused_and_left_alone(void **state)
{
    vp_err    err = {0};
    vp_study *study;
    char      page[5000] = "SQLite format 3";
    int64_t   a, b;
    size_t    n;
    char     *good;

    (void)state;
    refused(put_file("text.db", "hello, I am text\n", 17), "is not an SQLite database", __LINE__);
    refused(put_file("empty.db", "", 0), "is empty", __LINE__);
    refused(put_file("zeros.db", page + 100, 4096), "is not an SQLite database", __LINE__);
    sql(in_test_dir("other.db"), "PRAGMA application_id = 77; CREATE TABLE t(x)");
    refused(in_test_dir("other.db"), "another program (application id 0x0000004d", __LINE__);

    vp_study_close(new_study(in_test_dir("good.db"), &a, &b));
    good = slurp(in_test_dir("good.db"), &n);
    refused(put_file("short.db", good, 3000), "is ", __LINE__);
    refused(put_file("header.db", good, 100), "is ", __LINE__);
    sql(put_file("newer.db", good, n), "PRAGMA user_version = 9");
    refused(in_test_dir("newer.db"), "schema 9, from a newer vplan", __LINE__);
    sql(put_file("view.db", good, n), "CREATE VIEW v AS SELECT * FROM trial");
    refused(in_test_dir("view.db"), "a view v that does not belong", __LINE__);
    sql(put_file("trigger.db", good, n),
        "CREATE TRIGGER g AFTER INSERT ON trial BEGIN DELETE FROM trial; END");
    refused(in_test_dir("trigger.db"), "a trigger g that does not belong", __LINE__);
    sql(put_file("more.db", good, n), "CREATE TABLE more(x)");
    refused(in_test_dir("more.db"), "a table more that does not belong", __LINE__);
    sql(put_file("less.db", good, n), "DROP TABLE trial_call");
    refused(in_test_dir("less.db"), "a table is missing", __LINE__);
    sql(put_file("column.db", good, n), "ALTER TABLE trial ADD COLUMN y TEXT");
    refused(in_test_dir("column.db"), "a table trial that does not belong", __LINE__);
    sql(put_file("generated.db", good, n),
        "DROP TABLE trial_call; CREATE TABLE trial_call(trial_id INTEGER, kernel TEXT AS (trial_id))");
    refused(in_test_dir("generated.db"), "a table trial_call that does not belong", __LINE__);

    assert_int_equal(mkdir(in_test_dir("dir.db"), 0777), 0);
    CHECK_FAILS(vp_study_open(in_test_dir("dir.db"), &study, &err), VP_ERR_STORAGE,
                in_test_dir("dir.db"), 0, "", "is not a regular file");
    assert_int_equal(mkfifo(in_test_dir("fifo.db"), 0666), 0);
    CHECK_FAILS(vp_study_open(in_test_dir("fifo.db"), &study, &err), VP_ERR_STORAGE,
                in_test_dir("fifo.db"), 0, "", "is not a regular file");
    put_file("alone.db-journal", "x", 1);
    CHECK_FAILS(vp_study_open(in_test_dir("alone.db"), &study, &err), VP_ERR_STORAGE,
                in_test_dir("alone.db"), 0, "", "but its journal is");
    put_file("alone2.db-wal", "x", 1);
    CHECK_FAILS(vp_study_open(in_test_dir("alone2.db"), &study, &err), VP_ERR_STORAGE,
                in_test_dir("alone2.db"), 0, "", "but its wal is");
    CHECK_FAILS(vp_study_open("/nowhere/at/all.db", &study, &err), VP_ERR_STORAGE,
                "/nowhere/at/all.db", 0, "", "its folder cannot be found");
    CHECK_FAILS(vp_study_open("/proc/study.db", &study, &err), VP_ERR_STORAGE, "/proc/study.db", 0,
                "", "cannot make its lock file");
    assert_int_equal(chmod(put_file("read_only.db", good, n), 0444), 0);
    if (geteuid() != 0)
        refused(in_test_dir("read_only.db"), "cannot be written", __LINE__);
    free(good);
}

/* Values that our own constraints would have refused, put there by others. */
static void rows_that_make_no_sense_are_refused(void **state)
{
    static const char *const changes[] = {
        "UPDATE trial SET state = 'lost'", "UPDATE trial SET predicted_bytes = -1",
        "UPDATE trial SET measured_s = 1e300", "UPDATE profile_row SET seconds = -1",
        "UPDATE trial SET verdict = NULL"};
    static const char *const texts[] = {
        "UPDATE trial SET step_seconds = 'x'", "UPDATE trial SET step_seconds = '[1, \"a\"]'",
        "UPDATE trial_call SET kernel = 'no such'", "UPDATE trial_call SET shape = 'count=-4'",
        "UPDATE trial_call SET shape = 'count=99999999999999999999'"};
    vp_err    err = {0};
    vp_study *study;
    int64_t   a, b, n;
    size_t    n_bytes;
    char      text[300];

    (void)state;
    study = new_study(in_test_dir("rows.db"), &a, &b);
    add_done(study, a, b, "{}");
    vp_study_close(study);
    char *good = slurp(in_test_dir("rows.db"), &n_bytes);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        snprintf(text, sizeof text, "PRAGMA ignore_check_constraints = ON; %s", changes[i]);
        sql(put_file("row.db", good, n_bytes), text);
        refused(in_test_dir("row.db"), "is damaged", __LINE__);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        vp_arena       *arena = vp_arena_new();
        vp_study_trial *trials;
        sql(put_file("row.db", good, n_bytes), texts[i]);
        CHECK_OK(vp_study_open(in_test_dir("row.db"), &study, &err));
        assert_int_equal(vp_study_trials(study, arena, a, &trials, &n, &err), VP_ERR_STORAGE);
        assert_string_equal(err.file, in_test_dir("row.db"));
        err = (vp_err){0};
        vp_study_close(study);
        vp_arena_free(arena);
    }
    free(good);
}

/* 300 seeds of one to eight flipped bytes: an error of ours, or a study that can be read and
 * written. */
static void flipped_bytes_are_an_error_or_harmless(void **state)
{
    int64_t   a, b;
    size_t    n_bytes;
    vp_study *study;
    int       n_refused = 0;

    (void)state;
    study = new_study(in_test_dir("flip.db"), &a, &b);
    for (int i = 0; i < 5; i++)
        add_done(study, a, b, "{}");
    vp_study_close(study);
    char *good = slurp(in_test_dir("flip.db"), &n_bytes);
    for (unsigned seed = 0; seed < 300; seed++) {
        vp_err    err = {0};
        vp_status st;
        char     *bad = malloc(n_bytes);
        uint64_t  x   = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
        memcpy(bad, good, n_bytes);
        for (unsigned k = 0; k <= seed % 8; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            bad[(x >> 8) % n_bytes] ^= (char)(1 + x % 255);
        }
        put_file("flipped.db", bad, n_bytes);
        free(bad);
        st = vp_study_open(in_test_dir("flipped.db"), &study, &err);
        if (st == VP_OK) {
            vp_arena       *arena = vp_arena_new();
            vp_profile     *p     = vp_profile_new();
            vp_study_trial *trials, t = {.profile_id = b, .decisions = "{}"};
            int64_t         n;
            st = vp_study_trials(study, arena, a, &trials, &n, &err);
            if (st == VP_OK)
                st = vp_study_measured(study, "cpu", "b", "x", p, &err);
            if (st == VP_OK)
                st = vp_study_begin(study, a, &t, &err);
            vp_profile_free(p);
            vp_arena_free(arena);
            vp_study_close(study);
        }
        n_refused += st != VP_OK;
        assert_true(st == VP_OK || (st == VP_ERR_STORAGE && err.file[0]));
    }
    assert_true(n_refused > 50);
    free(good);
}

static void a_second_tuner_is_told_who_the_first_is_and_a_dead_one_is_followed(void **state)
{
    vp_err      err = {0};
    vp_study   *study, *second;
    const char *path = in_test_dir("lock.db");
    char        pid[80];
    int         ready[2];

    (void)state;
    CHECK_OK(vp_study_open(path, &study, &err));
    snprintf(pid, sizeof pid, "another tuner is using this study: pid %d", (int)getpid());
    CHECK_FAILS(vp_study_open(path, &second, &err), VP_ERR_STORAGE, path, 0, "", pid);
    assert_int_equal(symlink(path, in_test_dir("lock_too.db")), 0); /* another name of it */
    CHECK_FAILS(vp_study_open(in_test_dir("lock_too.db"), &second, &err), VP_ERR_STORAGE, path, 0,
                "", pid);
    vp_study_close(study);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        char c = 'x';
        if (vp_study_open(path, &study, &err) != VP_OK || write(ready[1], &c, 1) != 1)
            _exit(1);
        pause();
    }
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    snprintf(pid, sizeof pid, "another tuner is using this study: pid %d", (int)child);
    CHECK_FAILS(vp_study_open(path, &second, &err), VP_ERR_STORAGE, path, 0, "", pid);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    /* its lock file is still there */
    assert_int_equal(access(in_test_dir("lock.db.lock"), F_OK), 0);
    CHECK_OK(vp_study_open(path, &study, &err));
    vp_study_close(study);
    close(ready[0]);
    close(ready[1]);
}

static void a_study_deleted_under_us_is_an_error_at_the_next_write(void **state)
{
    vp_err         err = {0};
    int64_t        a, b;
    const char    *path  = in_test_dir("gone.db");
    vp_study      *study = new_study(path, &a, &b);
    vp_study_trial t     = {.profile_id = b, .decisions = "{}"};

    (void)state;
    assert_int_equal(unlink(path), 0);
    CHECK_FAILS(vp_study_begin(study, a, &t, &err), VP_ERR_STORAGE, path, 0, "",
                "was deleted or replaced");
    vp_study_close(study);
}

/* ---- corrections ---- */

static void a_profile_takes_what_calls_cost_in_a_step(void **state)
{
    /* Base: add(10) 1 s, add(30) 3 s, zero(10) 5 s. The trial's last step had two add(10) in 8 s
     * and one copy(10) in 2 s; its median step took 20 s, so that each second of the last step
     * counts 2: add(10) 8 s, copy(10) 4 s. The factor of add is 8 * 1 / 1^2 = 8: add(30) 24 s.
     * Zero was not seen; of all calls seen only add(10) is in base, so it takes 8 too: 40 s. */
    vp_err       err  = {0};
    vp_profile  *base = vp_profile_new(), *p = NULL;
    bool         measured;
    vp_call_time calls[] = {
        {{.kernel = VP_K_ADD, .dtype = VP_DTYPE_F32, .elements = {.count = 10}, .seconds = 8}, 2},
        {{.kernel = VP_K_COPY, .dtype = VP_DTYPE_F32, .elements = {.count = 10}, .seconds = 2}, 1}};
    vp_study_trial trial = {.measured_s = 20, .calls = calls, .n_calls = 2};

    (void)state;
    vp_profile_add(base, &(vp_profile_row){.kernel   = VP_K_ADD,
                                           .dtype    = VP_DTYPE_F32,
                                           .elements = {.count = 10},
                                           .seconds  = 1});
    vp_profile_add(base, &(vp_profile_row){.kernel   = VP_K_ADD,
                                           .dtype    = VP_DTYPE_F32,
                                           .elements = {.count = 30},
                                           .seconds  = 3});
    vp_profile_add(base, &(vp_profile_row){.kernel   = VP_K_ZERO,
                                           .dtype    = VP_DTYPE_F32,
                                           .elements = {.count = 10},
                                           .seconds  = 5});
    base->link = (vp_link_rates){"cpu", 3e9, 2e9, 1e9, 2e-10, 64, 0.5};
    CHECK_OK(vp_correct_profile(base, &trial, 1, &p, &err));
    assert_true(vp_link_rates_least(&p->link) == 1e9); /* no trial contradicts it */
    assert_true(fabs(vp_profile_seconds(p, VP_K_ADD, VP_DTYPE_F32, (int64_t[VP_MAX_INTS]){10}, 0,
                                        &measured) -
                     8) < 1e-12 &&
                measured);
    assert_true(fabs(vp_profile_seconds(p, VP_K_ADD, VP_DTYPE_F32, (int64_t[VP_MAX_INTS]){30}, 0,
                                        &measured) -
                     24) < 1e-12 &&
                measured);
    assert_true(fabs(vp_profile_seconds(p, VP_K_COPY, VP_DTYPE_F32, (int64_t[VP_MAX_INTS]){10}, 0,
                                        &measured) -
                     4) < 1e-12 &&
                measured);
    assert_true(fabs(vp_profile_seconds(p, VP_K_ZERO, VP_DTYPE_F32, (int64_t[VP_MAX_INTS]){10}, 0,
                                        &measured) -
                     40) < 1e-12 &&
                measured);
    /* ln 8 for add; copy is not in base and says nothing */
    assert_true(fabs(vp_profile_distance(base, &trial, 1) - log(8)) < 1e-12);
    vp_profile_free(p);

    /* Contradicting trials: 8, 2 and 3 s for one call; the median. None: base itself. */
    vp_call_time one[3] = {
        {{.kernel = VP_K_ADD, .dtype = VP_DTYPE_F32, .elements = {.count = 10}, .seconds = 8}, 1},
        {{.kernel = VP_K_ADD, .dtype = VP_DTYPE_F32, .elements = {.count = 10}, .seconds = 2}, 1},
        {{.kernel = VP_K_ADD, .dtype = VP_DTYPE_F32, .elements = {.count = 10}, .seconds = 3}, 1}};
    vp_study_trial three[] = {{.measured_s = 8, .calls = &one[0], .n_calls = 1},
                              {.measured_s = 2, .calls = &one[1], .n_calls = 1},
                              {.measured_s = 3, .calls = &one[2], .n_calls = 1}};
    CHECK_OK(vp_correct_profile(base, three, 3, &p, &err));
    assert_true(fabs(vp_profile_seconds(p, VP_K_ADD, VP_DTYPE_F32, (int64_t[VP_MAX_INTS]){10}, 0,
                                        &measured) -
                     3) < 1e-12);
    vp_profile_free(p);
    CHECK_OK(vp_correct_profile(base, three, 2, &p, &err)); /* of 8 and 2 s the middle */
    assert_true(fabs(vp_profile_seconds(p, VP_K_ADD, VP_DTYPE_F32, (int64_t[VP_MAX_INTS]){10}, 0,
                                        &measured) -
                     5) < 1e-12);
    vp_profile_free(p);
    CHECK_OK(vp_correct_profile(base, three, 0, &p, &err));
    assert_true(vp_profile_seconds(p, VP_K_ADD, VP_DTYPE_F32, (int64_t[VP_MAX_INTS]){30}, 0,
                                   &measured) == 3);
    vp_profile_free(p);
    vp_profile_free(base);
}

/* ---- tuning with a runner that only says it trained ---- */

static const char fake_runner[] =
    "#!/bin/bash\n"
    "if [ \"$1\" = --describe ]; then echo '{\"description\": \"fake\", \"free_bytes\": 1000000000}'; exit; fi\n"
    "if [ \"$1\" = --profile ]; then sed -E 's/\"seconds\": [^,]*/\"seconds\": 0.001/'; exit; fi\n"
    "if [ \"$1\" = --compare ]; then\n"
    "    lanes= k=0\n"
    "    for bytes in $(tr -d '\\n' | grep -o '\"prediction\": *{ *\"peak_bytes\": [0-9]*' | grep -o '[0-9]*$'); do\n"
    "        steps=$(for ((i = 0; i < $4; i++)); do echo \"1.0$((9 - k))\"; done | paste -sd,)\n" /* each a little faster than the one before it */
    "        lanes=\"$lanes${lanes:+, }{\\\"executed_bytes\\\": $bytes, \\\"step_s\\\": [$steps]}\" k=$((k + 1))\n"
    "    done\n"
    "    echo \"{\\\"plans\\\": [$lanes]}\"\n"
    "    exit\n"
    "fi\n"
    "plan=$(cat)\n"
    "[[ $plan =~ \\\"peak_bytes\\\":\\ ([0-9]+) ]]; bytes=${BASH_REMATCH[1]}\n"
    "[[ $plan =~ \\\"step_time_s\\\":\\ ([0-9.e-]+) ]]; s=1${BASH_REMATCH[1]}\n" /* far from what is predicted: there is always a plan worth a trial */
    "sleep 0.0$((RANDOM % 4))\n"
    "steps=\"{\\\"seconds\\\": $s}\"\n"
    "for ((i = 1; i < $3; i++)); do steps=\"$steps, {\\\"seconds\\\": $s}\"; done\n"
    "echo \"{\\\"memories\\\": [{\\\"executed_bytes\\\": $bytes}], \\\"steps\\\": [$steps], \\\"outside\\\": ${outside:-null}}\"\n";

typedef struct tiny {
    vp_model       *model;
    vp_device       device;
    vp_plan_request request;
    char            runner[200];
} tiny;

static void open_tiny(tiny *t)
{
    vp_err err = {0};

    CHECK_OK(vp_model_open("gpt2-tiny", &(vp_model_opts){0}, &t->model, &err));
    CHECK_OK(vp_device_open("cpu", &t->device, &err));
    t->request = (vp_plan_request){.model        = t->model,
                                   .device       = &t->device,
                                   .recipe       = vp_recipe_default(),
                                   .seq          = 64,
                                   .global_batch = 4,
                                   .budget_bytes = 3200000,
                                   .loss_chunk   = VP_CHUNK_ANY,
                                   .recompute    = VP_RECOMPUTE_ANY,
                                   .gap          = 1e-5,
                                   .no_proof     = true};
    strcpy(t->runner, put_file("runner", fake_runner, sizeof fake_runner - 1));
    assert_int_equal(chmod(t->runner, 0755), 0);
}

/* Finished trials as lines; the caller's. */
static char *finished(const char *path, int *n)
{
    static const char text[] =
        "SELECT coalesce(group_concat(line, char(10)), ''), count(*) FROM (SELECT id || ' ' || decisions || ' ' || verdict || ' ' || "
        "executed_bytes || ' ' || started_unix_s AS line FROM trial WHERE state = 'done' ORDER BY id)";
    sqlite3      *db;
    sqlite3_stmt *stmt;
    char         *out;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    assert_int_equal(sqlite3_prepare_v2(db, text, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    out = strdup((const char *)sqlite3_column_text(stmt, 0));
    *n  = sqlite3_column_int(stmt, 1);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return out;
}

/* 40 tuners, each killed after 0 to 150 ms, or longer where nothing gets done in that; a new
 * study when one is done: what was finished stays as it was, a plan is finished once, and the
 * next tuner goes on from there. The last one is let end. */
static void a_kill_at_any_moment_loses_no_finished_trial(void **state)
{
    tiny   t;
    vp_err err = {0};
    char   path[200];
    char  *before = strdup("");
    int    n, n_before = 0, n_useful = 0, n_idle = 0, n_all = 0, n_studies = 0;
    long   window_ms = 150;

    (void)state;
    open_tiny(&t);
    srand(20260101);
    snprintf(path, sizeof path, "%s", in_test_dir("killed-0.db"));
    for (int i = 0; i < 40; i++) {
        vp_tune_opts   opts = {.max_trials = 40, .study = path, .runner = t.runner};
        vp_tune_result result;
        pid_t          child = fork();
        if (child == 0) {
            vp_status st = vp_tune(&t.request, &opts, &result, &err);
            vp_tune_result_release(&result);
            if (st != VP_OK)
                fprintf(stderr, "the tuner failed: %s\n", err.message);
            _exit(st == VP_OK ? 0 : 1);
        }
        long            wait_ms = rand() % window_ms;
        struct timespec wait    = {wait_ms / 1000, wait_ms % 1000 * 1000000};
        nanosleep(&wait, NULL);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) != 0);
        if (++n_idle % 4 == 0 && window_ms < 1000)
            window_ms *= 2;
        if (access(path, F_OK) != 0)
            continue;
        char *after = finished(path, &n);
        assert_true(n >= n_before);
        assert_memory_equal(after, before, strlen(before));
        if (n > n_before) {
            n_useful++;
            n_all += n - n_before;
            n_idle = 0;
        }
        /* it was faster than the kill: there is nothing more to do in this study */
        if (WIFEXITED(status)) {
            snprintf(path, sizeof path, "%s/killed-%d.db", test_dir, ++n_studies);
            after[0] = '\0';
            n        = 0;
        }
        free(before);
        before   = after;
        n_before = n;
    }
    print_message("%d finished in %d studies, by %d of 40 tuners that were killed\n", n_all,
                  n_studies + 1, n_useful);
    assert_true(n_useful >= 2);
    vp_tune_opts   opts = {.max_trials = 40, .study = path, .runner = t.runner};
    vp_tune_result result;
    CHECK_OK(vp_tune(&t.request, &opts, &result, &err));
    assert_non_null(result.best);
    int64_t n_old = 0;
    for (int64_t i = 0; i < result.n_trials; i++)
        n_old += result.trials[i].from_study && result.trials[i].verdict == VP_VERDICT_OK;
    assert_int_equal(n_old, n_before);
    vp_tune_result_release(&result);
    char *after = finished(path, &n);
    assert_memory_equal(after, before, strlen(before));
    free(after);
    free(before);
    vp_model_free(t.model);
}

static void a_finished_study_runs_nothing_again(void **state)
{
    tiny           t;
    vp_err         err = {0};
    vp_tune_result one, two;
    int            n, n_again;

    (void)state;
    open_tiny(&t);
    vp_tune_opts opts = {.max_trials = 3, .study = in_test_dir("twice.db"), .runner = t.runner};
    CHECK_OK(vp_tune(&t.request, &opts, &one, &err));
    free(finished(opts.study, &n));
    CHECK_OK(vp_tune(&t.request, &opts, &two, &err));
    free(finished(opts.study, &n_again));
    assert_int_equal(n, n_again);
    assert_non_null(one.best);
    assert_non_null(two.best);
    assert_int_equal(one.best->id, two.best->id);
    for (int64_t i = 0; i < two.n_trials; i++)
        assert_true(two.trials[i].from_study || two.trials[i].id == 0);
    vp_tune_result_release(&one);
    vp_tune_result_release(&two);
    vp_model_free(t.model);
}

/* A trial that dies is a verdict: here every plan of micro-batch 4, by a signal, garbage or a
 * wrong size. */
static void trials_that_die_are_verdicts_and_the_rest_goes_on(void **state)
{
    static const struct {
        const char *line, *part;
        vp_verdict  verdict;
    } ways[] = {{"kill -SEGV $$", "signal 11", VP_VERDICT_CRASH},
                {"kill -KILL $$", "signal 9", VP_VERDICT_CRASH},
                {"echo nothing; exit 0", "vplan-run:1", VP_VERDICT_CRASH},
                {"echo 'training diverged' >&2; exit 4", "diverged", VP_VERDICT_NAN},
                {"echo 'no memory' >&2; exit 5", "no memory", VP_VERDICT_OOM_HOST},
                {"bytes=7", "executed 7 bytes", VP_VERDICT_WRONG_RESULT}};
    tiny t;
    char text[4000];

    (void)state;
    open_tiny(&t);
    t.request.budget_bytes = 6000000;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        vp_err         err = {0};
        vp_tune_result result;
        int            n_bad = 0, n_good = 0;
        const char    *before_sleep = strstr(fake_runner, "sleep");
        snprintf(text, sizeof text, "%.*sif [[ $plan == *'\"micro_batch\": 4'* ]]; then %s; fi\n%s",
                 (int)(before_sleep - fake_runner), fake_runner, ways[i].line, before_sleep);
        put_file("runner", text, strlen(text));
        vp_tune_opts opts = {.max_trials = 3, .runner = t.runner};
        CHECK_OK(vp_tune(&t.request, &opts, &result, &err));
        for (int64_t k = 0; k < result.n_trials; k++) {
            const vp_trial *x = &result.trials[k];
            if (x->candidate.scenario.micro_batch == 4 && x->id) {
                n_bad++;
                assert_int_equal(x->verdict, ways[i].verdict);
                assert_non_null(strstr(x->evidence, ways[i].part));
                assert_ptr_not_equal(result.best, x);
            } else
                n_good += x->verdict == VP_VERDICT_OK;
        }
        assert_true(n_bad > 0);
        assert_true((result.best != NULL) == (n_good > 0));
        vp_tune_result_release(&result);
    }
    vp_model_free(t.model);
}

/* The runner with from, which stands in it once, replaced by to. */
static void put_runner(const char *from, const char *to)
{
    char        text[4000];
    const char *at = strstr(fake_runner, from);

    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - fake_runner), fake_runner, to,
             at + strlen(from));
    put_file("runner", text, strlen(text));
}

/* All trials take one second: whoever is near the best by the profile races, and the race
 * decides. */
static void the_race_decides_between_plans_that_were_equal(void **state)
{
    tiny           t;
    vp_err         err = {0};
    vp_tune_result result;
    int            n_raced = 0;
    double         least   = INFINITY;

    (void)state;
    open_tiny(&t);
    put_runner("s=1${BASH_REMATCH[1]}", "s=1");
    vp_tune_opts opts = {.max_trials = 3, .runner = t.runner};
    CHECK_OK(vp_tune(&t.request, &opts, &result, &err));
    for (int64_t i = 0; i < result.n_trials; i++)
        if (result.trials[i].n_runs == 2) {
            n_raced++;
            assert_true(result.trials[i].measured_s > 1.03 && result.trials[i].measured_s < 1.1);
            least = fmin(least, result.trials[i].measured_s);
        } else
            assert_true(result.trials[i].n_runs == 0 || result.trials[i].measured_s == 1);
    assert_true(n_raced >= 2 && n_raced <= 6);
    assert_int_equal(result.best->n_runs, 2);
    assert_true(result.best->measured_s == least);
    vp_tune_result_release(&result);
    vp_model_free(t.model);
}

/* Plans of micro-batch 4 take 410,000,003 bytes outside the arena, all others 400,000,000; what
 * a plan needs is the arena in pieces of 2 MiB and the larger of the two. */
static void tune_plans_with_the_most_that_a_trial_took_outside_the_arena(void **state)
{
    static const char line[] =
        "o=400000000; if [[ $plan == *'\"micro_batch\": 4'* ]]; then o=410000003; fi\n"
        "outside='{\"device\": \"NVIDIA H200\", \"measured_by\": \"process\", \"bytes\": '$o', \"points\": {\"last step\": '$o'}}'\n";
    const char    *before_sleep = strstr(fake_runner, "sleep"), *study = in_test_dir("outside.db");
    tiny           t;
    vp_err         err = {0};
    vp_tune_result result;
    vp_plan       *plan;
    char           text[4000];

    (void)state;
    open_tiny(&t);
    CHECK_OK(vp_device_open("h200", &t.device, &err));
    t.request.budget_bytes = 600000000;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(before_sleep - fake_runner), fake_runner, line,
             before_sleep);
    put_file("runner", text, strlen(text));
    for (int again = 0; again < 2; again++) { /* the second time from the study alone */
        vp_tune_opts opts = {.max_trials = 3, .study = study, .runner = t.runner};
        CHECK_OK(vp_tune(&t.request, &opts, &result, &err));
        assert_non_null(result.best);
        assert_int_equal(result.profile->outside.bytes, 410000003);
        assert_string_equal(result.profile->outside.device, "h200-sxm-141gb");
        CHECK_OK(vp_tune_best_plan(&t.request, &result, &plan, &err));
        assert_string_equal(plan->outside_class, "measured");
        assert_string_equal(plan->outside_of, "fake");
        assert_int_equal(plan->peak_bytes + plan->outside_bytes,
                         410000003 + (plan->peak_bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20));
        assert_int_equal(result.best->candidate.figures.device_bytes,
                         plan->peak_bytes + plan->outside_bytes);
        vp_plan_free(plan);
        for (int64_t i = 0; again && i < result.n_trials; i++)
            assert_true(result.trials[i].from_study || result.trials[i].id == 0);
        vp_tune_result_release(&result);
    }
    /* the caller's own device stays as it was */
    assert_int_equal(t.device.outside_bytes, 512 << 20);

    /* Another driver: nothing of the study counts. */
    memcpy(strstr(text, "fake"), "new ", 4);
    for (char *at = text; (at = strstr(at, "o=4100")) != NULL; at++)
        at[3] = '3'; /* 430,000,003 */
    put_file("runner", text, strlen(text));
    vp_tune_opts opts = {.max_trials = 3, .study = study, .runner = t.runner};
    CHECK_OK(vp_tune(&t.request, &opts, &result, &err));
    for (int64_t i = 0; i < result.n_trials; i++)
        assert_false(result.trials[i].from_study);
    assert_int_equal(result.profile->outside.bytes, 430000003);
    vp_tune_result_release(&result);
    vp_model_free(t.model);
}

/* What the race is told costs the race, not the answer: the contenders run once more, each by
 * itself. */
static void a_race_that_cannot_be_held_is_none(void **state)
{
    static const char *const ways[][2] = {
        {"    lanes= k=0\n", "    echo no memory >&2; exit 5\n"},
        {"    lanes= k=0\n", "    kill -SEGV $$\n"},
        {"    lanes= k=0\n", "    echo '{\"plans\": []}'; exit\n"},
        {"    lanes= k=0\n", "    echo nothing; exit\n"},
        {"\"1.0$((9 - k))\"", "0"},
        {"\"1.0$((9 - k))\"", "-1"},
        {"i < $4", "i <= $4"},
        {"executed_bytes\\\": $bytes, \\\"step_s", "executed_bytes\\\": 7, \\\"step_s"},
        {"1000000000", "1000"}};
    tiny t;

    (void)state;
    open_tiny(&t);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        vp_err         err = {0};
        vp_tune_result result;
        int            n_again = 0;

        put_runner(ways[i][0], ways[i][1]);
        vp_tune_opts opts = {.max_trials = 1, .runner = t.runner};
        CHECK_OK(vp_tune(&t.request, &opts, &result, &err));
        for (int64_t k = 0; k < result.n_trials; k++) {
            n_again += result.trials[k].n_runs == 2;
            /* as in the race */
            assert_false(result.trials[k].measured_s > 1.03 && result.trials[k].measured_s < 1.1);
        }
        assert_non_null(result.best);
        assert_true(n_again >= 2);
        assert_int_equal(result.best->n_runs, 2);
        vp_tune_result_release(&result);
    }
    vp_model_free(t.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_race_decides_between_plans_that_were_equal),
        cmocka_unit_test(a_race_that_cannot_be_held_is_none),
        cmocka_unit_test(what_was_finished_is_read_back_to_the_bit),
        cmocka_unit_test(tune_plans_with_the_most_that_a_trial_took_outside_the_arena),
        cmocka_unit_test(
            a_request_of_another_budget_shares_its_trials_and_one_of_another_model_does_not),
        cmocka_unit_test(a_file_that_is_no_study_is_refused_and_left_alone),
        cmocka_unit_test(files_beside_a_study_are_left_alone),
        cmocka_unit_test(rows_that_make_no_sense_are_refused),
        cmocka_unit_test(flipped_bytes_are_an_error_or_harmless),
        cmocka_unit_test(a_second_tuner_is_told_who_the_first_is_and_a_dead_one_is_followed),
        cmocka_unit_test(a_study_deleted_under_us_is_an_error_at_the_next_write),
        cmocka_unit_test(a_profile_takes_what_calls_cost_in_a_step),
        cmocka_unit_test(a_kill_at_any_moment_loses_no_finished_trial),
        cmocka_unit_test(a_finished_study_runs_nothing_again),
        cmocka_unit_test(trials_that_die_are_verdicts_and_the_rest_goes_on),
    };
    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
