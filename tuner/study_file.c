/* tuner/study_file.c: the file of a study: SQLite told in our words, its lock, its schema, opening
 * and making one. */
#include "tuner/study_internal.h"

#include "base/text.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#if SQLITE_VERSION_NUMBER < 3037000
#error "STRICT tables need SQLite 3.37"
#endif

enum { BUSY_MS = 10000, MAX_VALUE_BYTES = 1 << 24 };
static const int64_t max_file_bytes = (int64_t)1 << 30;

/* The whole schema, as SQLite keeps it: a file is compared with these texts. */
static const struct {
    const char *name, *sql;
} tables[] = {
    {"request",
     "CREATE TABLE request(id INTEGER PRIMARY KEY CHECK(id > 0), model TEXT NOT NULL, model_sha256 TEXT NOT NULL, "
     "recipe TEXT NOT NULL, seq INTEGER NOT NULL CHECK(seq > 0), global_batch INTEGER NOT NULL CHECK(global_batch > 0), "
     "budget_bytes INTEGER NOT NULL CHECK(budget_bytes > 0), device TEXT NOT NULL, backend TEXT NOT NULL, build TEXT NOT NULL, "
     "asked TEXT NOT NULL, created_unix_s INTEGER NOT NULL, "
     "UNIQUE(model_sha256, recipe, seq, global_batch, budget_bytes, device, backend, build)) STRICT"},
    {"profile",
     "CREATE TABLE profile(id INTEGER PRIMARY KEY CHECK(id > 0), kind TEXT NOT NULL "
     "CHECK(kind IN ('measured', 'given', 'corrected')), device TEXT NOT NULL, backend TEXT NOT NULL, build TEXT NOT NULL, "
     "outside TEXT NOT NULL, link TEXT NOT NULL, host_update_bytes_per_s REAL NOT NULL CHECK(host_update_bytes_per_s >= 0), "
     "created_unix_s INTEGER NOT NULL) STRICT"},
    {"profile_row",
     "CREATE TABLE profile_row(profile_id INTEGER NOT NULL REFERENCES profile(id), kernel TEXT NOT NULL, shape TEXT NOT NULL, "
     "seconds REAL NOT NULL CHECK(seconds >= 0 AND seconds < 1e9), algorithm TEXT NOT NULL, PRIMARY KEY(profile_id, kernel, shape)) "
     "STRICT, WITHOUT ROWID"},
    {"trial",
     "CREATE TABLE trial(id INTEGER PRIMARY KEY CHECK(id > 0), request_id INTEGER NOT NULL REFERENCES request(id), "
     "profile_id INTEGER NOT NULL REFERENCES profile(id), decisions TEXT NOT NULL, preset TEXT, state TEXT NOT NULL "
     "CHECK(state IN ('running', 'done', 'interrupted', 'cancelled')), verdict TEXT CHECK(state <> 'done' OR verdict IS NOT NULL), "
     "evidence TEXT NOT NULL, predicted_bytes INTEGER NOT NULL CHECK(predicted_bytes >= 0), "
     "executed_bytes INTEGER NOT NULL CHECK(executed_bytes >= 0), predicted_s REAL NOT NULL CHECK(predicted_s >= 0 AND predicted_s < 1e9), "
     "measured_s REAL NOT NULL CHECK(measured_s >= 0 AND measured_s < 1e9), n_runs INTEGER NOT NULL CHECK(n_runs >= 0), "
     "step_seconds TEXT NOT NULL, outside TEXT NOT NULL, started_unix_s INTEGER NOT NULL, ended_unix_s INTEGER) STRICT"},
    {"trial_call",
     "CREATE TABLE trial_call(trial_id INTEGER NOT NULL REFERENCES trial(id), kernel TEXT NOT NULL, shape TEXT NOT NULL, "
     "n_calls INTEGER NOT NULL CHECK(n_calls > 0), seconds REAL NOT NULL CHECK(seconds >= 0 AND seconds < 1e9), "
     "PRIMARY KEY(trial_id, kernel, shape)) STRICT, WITHOUT ROWID"},
    {"command_request",
     "CREATE TABLE command_request(id INTEGER PRIMARY KEY CHECK(id > 0), identity TEXT NOT NULL UNIQUE, device TEXT NOT NULL, "
     "budget_bytes INTEGER NOT NULL CHECK(budget_bytes > 0), asked TEXT NOT NULL, created_unix_s INTEGER NOT NULL) STRICT"},
    {"command_trial",
     "CREATE TABLE command_trial(id INTEGER PRIMARY KEY CHECK(id > 0), request_id INTEGER NOT NULL REFERENCES command_request(id), "
     "words TEXT NOT NULL, state TEXT NOT NULL CHECK(state IN ('running', 'done', 'interrupted', 'cancelled')), "
     "verdict TEXT CHECK(state <> 'done' OR verdict IS NOT NULL), evidence TEXT NOT NULL, arguments TEXT NOT NULL, "
     "allocated_bytes INTEGER NOT NULL CHECK(allocated_bytes >= 0), reserved_bytes INTEGER NOT NULL CHECK(reserved_bytes >= 0), "
     "device_bytes INTEGER NOT NULL CHECK(device_bytes >= 0), needed_bytes INTEGER NOT NULL CHECK(needed_bytes >= 0), "
     "step_s REAL NOT NULL CHECK(step_s >= 0 AND step_s < 1e9), samples_per_s REAL NOT NULL CHECK(samples_per_s >= 0), "
     "tokens_per_s REAL NOT NULL CHECK(tokens_per_s >= 0), "
     "host_s REAL NOT NULL CHECK(host_s >= 0), card_s REAL NOT NULL CHECK(card_s >= 0), "
     "optimizer_host_s REAL NOT NULL CHECK(optimizer_host_s >= 0), optimizer_card_s REAL NOT NULL CHECK(optimizer_card_s >= 0), "
     "held_bytes INTEGER NOT NULL CHECK(held_bytes >= 0), "
     "wall_s REAL NOT NULL CHECK(wall_s >= 0), host_bytes INTEGER NOT NULL CHECK(host_bytes >= 0), started_unix_s INTEGER NOT NULL, "
     "ended_unix_s INTEGER) STRICT"},
};
enum { N_TABLES = sizeof tables / sizeof *tables };

/* ---- SQLite, told in our words ---- */

static vp_status file_fails(const vp_study *s, vp_err *err, const char *text)
{
    return VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "%s", text);
}

static vp_status sql_fails(const vp_study *s, const char *doing, vp_err *err)
{
    char shown[300];

    switch (sqlite3_errcode(s->db) & 0xff) {
    case SQLITE_NOMEM:
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL,
                          "another program has kept this study locked for %d s: cannot %s",
                          BUSY_MS / 1000, doing);
    case SQLITE_NOTADB:
        return file_fails(s, err, "is not an SQLite database");
    case SQLITE_FULL:
        return VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "cannot %s: the disk is full",
                          doing);
    case SQLITE_READONLY:
        return VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL,
                          "cannot %s: the study is read-only", doing);
    default:
        return VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "cannot %s: %s", doing,
                          vp_text_escape(sqlite3_errmsg(s->db), shown, sizeof shown));
    }
}

/* Parameters by a letter each: i int64_t, r double, t text (NULL: null). */
static bool bind_all(sqlite3_stmt *stmt, const char *types, va_list args)
{
    bool ok = true;

    for (int k = 1; types[k - 1]; k++)
        switch (types[k - 1]) {
        case 'i':
            ok = ok && sqlite3_bind_int64(stmt, k, va_arg(args, int64_t)) == SQLITE_OK;
            break;
        case 'r':
            ok = ok && sqlite3_bind_double(stmt, k, va_arg(args, double)) == SQLITE_OK;
            break;
        default:
            assert(types[k - 1] == 't');
            ok = ok && sqlite3_bind_text(stmt, k, va_arg(args, const char *), -1,
                                         SQLITE_TRANSIENT) == SQLITE_OK;
            break;
        }
    return ok;
}

vp_status vp_study_query(vp_study *s, sqlite3_stmt **stmt, vp_err *err, const char *sql,
                         const char *types, ...)
{
    va_list   args;
    vp_status st = VP_OK;

    va_start(args, types);
    if (sqlite3_prepare_v2(s->db, sql, -1, stmt, NULL) != SQLITE_OK ||
        !bind_all(*stmt, types, args))
        st = sql_fails(s, "ask it", err);
    va_end(args);
    return st;
}

vp_status vp_study_next_row(vp_study *s, sqlite3_stmt *stmt, bool *any, vp_err *err)
{
    int rc = sqlite3_step(stmt);

    *any = rc == SQLITE_ROW;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? VP_OK : sql_fails(s, "read it", err);
}

vp_status vp_study_change(vp_study *s, vp_err *err, const char *sql, const char *types, ...)
{
    sqlite3_stmt *stmt = NULL;
    va_list       args;
    vp_status     st = VP_OK;

    va_start(args, types);
    if (sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL) != SQLITE_OK ||
        !bind_all(stmt, types, args) || sqlite3_step(stmt) != SQLITE_DONE)
        st = sql_fails(s, "write to it", err);
    va_end(args);
    sqlite3_finalize(stmt);
    return st;
}

/* A file that was deleted or replaced would take our writes and nobody would ever see them. */
vp_status vp_study_begin_change(vp_study *s, vp_err *err)
{
    int moved = 0;

    if (sqlite3_file_control(s->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved)
        return file_fails(s, err, "was deleted or replaced while it was in use");
    return vp_study_change(s, err, "BEGIN IMMEDIATE", "");
}

vp_status vp_study_end_change(vp_study *s, vp_status st, vp_err *err)
{
    if (st == VP_OK)
        st = vp_study_change(s, err, "COMMIT", "");
    assert(st != VP_OK || sqlite3_get_autocommit(s->db)); /* it is over */
    if (st != VP_OK && !sqlite3_get_autocommit(s->db))
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

const char *vp_study_text_at(sqlite3_stmt *stmt, int column)
{
    return (const char *)sqlite3_column_text(stmt, column);
}

/* ---- one tuner a study ---- */

static void read_line(const char *path, char *line, size_t line_size)
{
    FILE *f = fopen(path, "re");

    line[0] = '\0';
    if (f && fgets(line, (int)line_size, f))
        line[strcspn(line, "\n")] = '\0';
    if (f)
        fclose(f);
}

/* The kernel's start time of this process, in ticks since boot: with the pid and the boot, no
 * other process's. */
static void start_time(char *ticks, size_t ticks_size)
{
    char        stat[1024];
    const char *p;

    read_line("/proc/self/stat", stat, sizeof stat);
    p = strrchr(stat, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    snprintf(ticks, ticks_size, "%.*s", p ? (int)strcspn(p + 1, " ") : 1, p ? p + 1 : "0");
}

/* A tuner killed between fork and exec of a trial leaves a child that holds the lock until it
 * has seen its parent's death: milliseconds. A live owner holds it longer than this. */
static int lock_patiently(int fd)
{
    enum { TRIES = 50 };
    const struct timespec pause = {0, 20 * 1000000};

    for (int i = 0; i < TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK)
            return -1;
        nanosleep(&pause, NULL);
    }
    errno = EWOULDBLOCK;
    return -1;
}

/* Our own, made now or left by a tuner that was killed; *owns false: somebody else's file of that
 * name, which is locked, never written or removed. -1: as open() */
static int open_lock(const char *path, bool *owns)
{
    char    left[300] = "";
    ssize_t n;
    int     fd;

    do {
        fd    = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        *owns = fd >= 0;
        if (fd < 0 && errno == EEXIST)
            fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    } while (fd < 0 && errno == ENOENT && access(path, F_OK) == 0);
    if (fd < 0 || *owns)
        return fd;
    n     = pread(fd, left, sizeof left - 1, 0);
    *owns = n > 0 && strncmp(left, "pid ", 4) == 0 && strstr(left, " ticks after boot ");
    return fd;
}

static vp_status lock(vp_study *s, vp_err *err)
{
    char        owner[300] = "", shown[400], boot[64], ticks[32];
    struct stat mine, there;
    vp_status   st = VP_OK;

    assert(s->lock_fd < 0 && s->lock_path[0]);
    for (;;) {
        s->lock_fd = open_lock(s->lock_path, &s->owns_lock);
        if (s->lock_fd < 0)
            return VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL,
                              "cannot make its lock file %s: %s",
                              vp_text_escape(s->lock_path, shown, sizeof shown), strerror(errno));
        if (lock_patiently(s->lock_fd) != 0) {
            ssize_t n = errno == EWOULDBLOCK ? pread(s->lock_fd, owner, sizeof owner - 1, 0) : -1;
            if (n < 0)
                st = VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "cannot be locked: %s",
                                strerror(errno));
            else
                st = VP_FAIL_AT(
                    err, VP_ERR_STORAGE, s->path, 0, NULL, "another tuner is using this study: %s",
                    vp_text_escape(n ? owner : "it has just started", shown, sizeof shown));
            close(s->lock_fd);
            s->lock_fd = -1;
            return st;
        }
        /* Its last owner may have removed the file between our open and our lock. */
        if (fstat(s->lock_fd, &mine) == 0 && stat(s->lock_path, &there) == 0 &&
            mine.st_ino == there.st_ino && mine.st_dev == there.st_dev)
            break;
        close(s->lock_fd);
    }
    if (!s->owns_lock)
        return VP_OK;
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    start_time(ticks, sizeof ticks);
    int n = snprintf(owner, sizeof owner, "pid %lld, started %s ticks after boot %s",
                     (long long)getpid(), ticks, boot);
    assert(n > 0 && n < (int)sizeof owner);
    if (ftruncate(s->lock_fd, 0) != 0 || pwrite(s->lock_fd, owner, (size_t)n, 0) != n)
        st = VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "cannot write its lock file: %s",
                        strerror(errno));
    return st;
}

/* ---- opening ---- */

/* Locks and syncs over a network are what the server makes of them. */
static vp_status refuse_network(const vp_study *s, vp_err *err)
{
    static const struct {
        unsigned    type;
        const char *name;
    } networks[] = {{0x6969, "NFS"},     {0x517b, "SMB"},     {0xff534d42, "CIFS"},
                    {0xfe534d42, "SMB"}, {0x5346414f, "AFS"}, {0x73757245, "Coda"},
                    {0x564c, "NCP"}};
    struct statfs info;
    char          folder[PATH_MAX];

    assert(s->path[0] == '/'); /* resolve() */
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(s->path, '/') - s->path + 1), s->path);
    for (size_t i = 0; statfs(folder, &info) == 0 && i < sizeof networks / sizeof *networks; i++)
        if ((unsigned)info.f_type == networks[i].type)
            return VP_FAIL_AT(
                err, VP_ERR_STORAGE, s->path, 0, NULL,
                "lies on a network file system (%s), where a database may be lost; put the study "
                "on a local disk",
                networks[i].name);
    return VP_OK;
}

/* The first 100 bytes, read before SQLite touches the file: opening another program's database
 * could already change it. */
static vp_status check_header(const vp_study *s, bool to_write, vp_err *err)
{
    unsigned char h[100];
    struct stat   info;
    int           fd = -1;
    ssize_t       n;
    vp_status     st = VP_OK;

    if (stat(s->path, &info) != 0 || !S_ISREG(info.st_mode))
        VP_TRY(file_fails(s, err, "is not a regular file"));
    if (info.st_size > max_file_bytes)
        VP_TRY(file_fails(s, err, "is larger than 1 GiB: no study of vplan"));
    fd = open(s->path, O_RDONLY | O_CLOEXEC);
    n  = fd < 0 ? -1 : pread(fd, h, sizeof h, 0);
    if (n < 0)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "cannot be read: %s",
                          strerror(errno)));
    if (to_write && access(s->path, W_OK) != 0)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "cannot be written: %s",
                          strerror(errno)));
    if (n < (ssize_t)sizeof h || memcmp(h, "SQLite format 3", 16) != 0)
        VP_TRY(file_fails(s, err,
                          n == 0 ? "is empty, not a study of vplan; remove it, or name another file"
                                 : "is not an SQLite database"));
    unsigned version = (unsigned)h[60] << 24 | (unsigned)h[61] << 16 | (unsigned)h[62] << 8 | h[63];
    unsigned application =
        (unsigned)h[68] << 24 | (unsigned)h[69] << 16 | (unsigned)h[70] << 8 | h[71];
    if (application != VP_STUDY_APPLICATION)
        VP_TRY(VP_FAIL_AT(
            err, VP_ERR_STORAGE, s->path, 0, NULL,
            "is a database of another program (application id 0x%08x, a study of vplan has 0x%08x)",
            application, (unsigned)VP_STUDY_APPLICATION));
    if (version != VP_STUDY_SCHEMA)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL,
                          version > VP_STUDY_SCHEMA
                              ? "has schema %u, from a newer vplan; this one knows schema %d"
                              : "has schema %u; this vplan knows schema %d only",
                          version, VP_STUDY_SCHEMA));
out:
    if (fd >= 0)
        close(fd);
    return st;
}

static vp_status pragma(vp_study *s, const char *sql, vp_err *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? VP_OK
                                                                   : sql_fails(s, "set it up", err);
}

/* flags: SQLite's, of how it is opened. */
static vp_status connect_db(vp_study *s, const char *path, int flags, vp_err *err)
{
    vp_status st = VP_OK;

    if (sqlite3_open_v2(path, &s->db, SQLITE_OPEN_NOFOLLOW | flags, NULL) != SQLITE_OK) {
        if (!s->db)
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        return sql_fails(s, "open it", err);
    }
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, BUSY_MS);
    sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES);
    sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(s->db, SQLITE_LIMIT_TRIGGER_DEPTH, 1);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_FKEY, 1, NULL);
    VP_TRY(pragma(s, "PRAGMA mmap_size = 0", err));
    VP_TRY(pragma(s, "PRAGMA cell_size_check = ON", err));
    if (!(flags & SQLITE_OPEN_READONLY) && sqlite3_db_readonly(s->db, "main") == 1)
        VP_TRY(file_fails(s, err, "is read-only"));
out:
    return st;
}

/* FULL syncs the file, EXTRA also the folder after the journal is gone. */
static vp_status set_durable(vp_study *s, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(pragma(s, "PRAGMA journal_mode = DELETE", err));
    VP_TRY(pragma(s, "PRAGMA synchronous = EXTRA", err));
out:
    return st;
}

static vp_status check_schema(vp_study *s, vp_err *err)
{
    sqlite3_stmt *stmt = NULL;
    bool          any;
    int           n_found = 0, i;
    char          type[40], name[200];
    vp_status     st = VP_OK;

    VP_TRY(vp_study_query(s, &stmt, err, "SELECT type, name, sql FROM sqlite_master", ""));
    for (;;) {
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        if (!any)
            break;
        const char *t = vp_study_text_at(stmt, 0), *what = vp_study_text_at(stmt, 1),
                   *sql = vp_study_text_at(stmt, 2);
        bool is_table   = t && what && sql && strcmp(t, "table") == 0,
             is_auto    = t && what && !sql && strcmp(t, "index") == 0;
        for (i = 0; is_table && i < N_TABLES; i++)
            if (strcmp(tables[i].name, what) == 0 && strcmp(tables[i].sql, sql) == 0)
                break;
        if (!is_auto && (!is_table || i == N_TABLES))
            VP_TRY(VP_FAIL_AT(
                err, VP_ERR_STORAGE, s->path, 0, NULL,
                "is no study of vplan: its schema has a %s %s that does not belong there",
                vp_text_escape(t ? t : "thing", type, sizeof type),
                vp_text_escape(what ? what : "without a name", name, sizeof name)));
        n_found += is_table;
    }
    if (n_found != N_TABLES)
        VP_TRY(file_fails(s, err, "is no study of vplan: a table is missing from its schema"));
out:
    sqlite3_finalize(stmt);
    return st;
}

static vp_status quick_check(vp_study *s, vp_err *err)
{
    sqlite3_stmt *stmt = NULL;
    bool          any;
    char          shown[300];
    vp_status     st = VP_OK;

    VP_TRY(vp_study_query(s, &stmt, err, "PRAGMA quick_check(1)", ""));
    VP_TRY(vp_study_next_row(s, stmt, &any, err));
    const char *text = any ? vp_study_text_at(stmt, 0) : NULL;
    if (!text || strcmp(text, "ok") != 0)
        VP_TRY(VP_FAIL_AT(
            err, VP_ERR_STORAGE, s->path, 0, NULL, "is damaged: %s",
            vp_text_escape(text ? text : "SQLite could not check it", shown, sizeof shown)));
out:
    sqlite3_finalize(stmt);
    return st;
}

/* A new study is made in a folder beside its place, which is nobody else's, and given its name
 * when it is whole: a kill leaves no half of one. */
#define NEW_FOLDER ".new-"
#define NEW_FILE   "study.db"

/* Such a folder: gone with the files that SQLite makes in it; with anything else in it, it stays
 * and so do they. */
static void remove_folder(const char *folder)
{
    static const char *const files[] = {NEW_FILE, NEW_FILE "-journal"};
    char                     path[PATH_MAX + 64];
    DIR                     *dir   = opendir(folder);
    bool                     other = !dir;

    for (struct dirent *e; dir && (e = readdir(dir));)
        other |= strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                 strcmp(e->d_name, files[0]) != 0 && strcmp(e->d_name, files[1]) != 0;
    if (dir)
        closedir(dir);
    for (int i = 0; i < 2 && !other; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    if (!other)
        rmdir(folder);
}

/* Folders of tuners that were killed while they made this study. */
static void remove_left(const vp_study *s)
{
    const char *base = strrchr(s->path, '/') + 1;
    char        folder[PATH_MAX], path[PATH_MAX + 300];
    size_t      n = strlen(base), n_tail = strlen(NEW_FOLDER);
    struct stat info;
    DIR        *dir;

    snprintf(folder, sizeof folder, "%.*s", (int)(base - s->path), s->path);
    dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s%s", folder, e->d_name);
        if (strncmp(e->d_name, base, n) == 0 && strncmp(e->d_name + n, NEW_FOLDER, n_tail) == 0 &&
            strlen(e->d_name + n) == n_tail + 6 && lstat(path, &info) == 0 &&
            S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 0777) == 0700)
            remove_folder(path);
    }
    if (dir)
        closedir(dir);
}

static vp_status make_tables(vp_study *s, vp_err *err)
{
    char      sql[80];
    vp_status st = VP_OK;

    VP_TRY(vp_study_change(s, err, "BEGIN IMMEDIATE", ""));
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d", VP_STUDY_APPLICATION);
    VP_TRY(pragma(s, sql, err));
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d", VP_STUDY_SCHEMA);
    VP_TRY(pragma(s, sql, err));
    for (int i = 0; i < N_TABLES; i++)
        VP_TRY(pragma(s, tables[i].sql, err));
    VP_TRY(vp_study_end_change(s, VP_OK, err));
out:
    return st;
}

/* A study that nobody asked to keep leaves nothing behind, however the tuner ends. */
static vp_status create_in_memory(vp_study *s, vp_err *err)
{
    vp_status st = VP_OK;

    snprintf(s->path, sizeof s->path, ":memory:");
    VP_TRY(connect_db(s, s->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err));
    VP_TRY(make_tables(s, err));
out:
    return st;
}

static vp_status create(vp_study *s, vp_err *err)
{
    static const char *const tails[] = {"-journal", "-wal", "-shm"};
    char      folder[PATH_MAX + 16]  = "", temporary[PATH_MAX + 32], other[PATH_MAX + 32];
    vp_status st                     = VP_OK;

    assert(s->lock_fd >= 0 && !s->db);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        snprintf(other, sizeof other, "%s%s", s->path, tails[i]);
        if (access(other, F_OK) == 0)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL,
                              "is not there, but its %s is: a database was moved away without it",
                              tails[i] + 1));
    }
    snprintf(folder, sizeof folder, "%s" NEW_FOLDER "XXXXXX", s->path);
    if (!mkdtemp(folder))
        return VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "cannot be made: %s",
                          strerror(errno));
    snprintf(temporary, sizeof temporary, "%s/" NEW_FILE, folder);
    VP_TRY(connect_db(s, temporary, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err));
    VP_TRY(set_durable(s, err));
    VP_TRY(make_tables(s, err));
    if (sqlite3_close(s->db) != SQLITE_OK)
        VP_TRY(sql_fails(s, "close it", err));
    s->db = NULL;
    /* link: replaces nothing */
    if (link(temporary, s->path) != 0 && (errno == EEXIST || rename(temporary, s->path) != 0))
        VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, s->path, 0, NULL, "cannot be made: %s",
                          strerror(errno)));
out:
    if (st != VP_OK) {
        sqlite3_close(s->db);
        s->db = NULL;
    }
    if (folder[0])
        remove_folder(folder);
    return st;
}

/* path without links and relative parts, also where the file is not there yet. */
static vp_status resolve(const char *path, vp_study *s, vp_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *base  = slash ? slash + 1 : path;
    char        folder[PATH_MAX], real[PATH_MAX];
    struct stat info;
    vp_status   st = VP_OK;

    if (!base[0] || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "is not the name of a file");
    if (strlen(path) >= PATH_MAX - 16)
        return VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "is too long a path");
    if (lstat(path, &info) == 0) {
        if (!realpath(path, real))
            return VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "cannot be found: %s",
                              strerror(errno));
        snprintf(s->path, sizeof s->path, "%s", real);
    } else {
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
                 slash ? path : ".");
        if (!realpath(folder, real))
            return VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "its folder cannot be found: %s",
                              strerror(errno));
        if (strlen(real) + strlen(base) + 2 >= sizeof s->path - 16)
            return VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "is too long a path");
        snprintf(s->path, sizeof s->path, "%.*s/%s", (int)(sizeof s->path - strlen(base) - 2),
                 strcmp(real, "/") == 0 ? "" : real, base);
    }
    snprintf(s->lock_path, sizeof s->lock_path, "%s.lock", s->path);
    return st;
}

/* Who made these trials is dead: whoever lives holds the lock. */
static vp_status interrupt_running(vp_study *s, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_study_begin_change(s, err));
    st = vp_study_change(
        s, err,
        "UPDATE trial SET state = 'interrupted', evidence = 'the tuner ended while it ran' WHERE state = 'running'",
        "");
    if (st == VP_OK)
        st = vp_study_change(
            s, err,
            "UPDATE command_trial SET state = 'interrupted', evidence = 'the tuner ended while it ran' WHERE state = 'running'",
            "");
    VP_TRY(vp_study_end_change(s, st, err));
out:
    return st;
}

static vp_status open_file(const char *path, vp_study *s, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(resolve(path, s, err));
    VP_TRY(refuse_network(s, err));
    if (access(s->path, F_OK) == 0) /* what is no study is left alone, and what lies beside it */
        VP_TRY(check_header(s, true, err));
    VP_TRY(lock(s, err));
    remove_left(s);
    if (access(s->path, F_OK) != 0)
        VP_TRY(create(s, err));
    VP_TRY(check_header(s, true, err));
    VP_TRY(connect_db(s, s->path, SQLITE_OPEN_READWRITE, err));
    VP_TRY(check_schema(s, err));
    VP_TRY(quick_check(s, err));
    VP_TRY(set_durable(s, err));
    VP_TRY(interrupt_running(s, err));
out:
    return st;
}

vp_status vp_study_open(const char *path, vp_study **out, vp_err *err)
{
    vp_study *s  = calloc(1, sizeof *s);
    vp_status st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, s);
    s->lock_fd = -1;
    VP_TRY(path ? open_file(path, s, err) : create_in_memory(s, err));
    *out = s;
    s    = NULL;
out:
    vp_study_close(s);
    return st;
}

vp_status vp_study_open_to_read(const char *path, vp_study **out, vp_err *err)
{
    vp_study *s  = calloc(1, sizeof *s);
    vp_status st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, s);
    s->lock_fd = -1;
    VP_TRY(resolve(path, s, err));
    if (access(s->path, F_OK) != 0)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_STORAGE, path, 0, NULL, "there is no such file"));
    VP_TRY(check_header(s, false, err));
    VP_TRY(connect_db(s, s->path, SQLITE_OPEN_READONLY, err));
    VP_TRY(check_schema(s, err));
    VP_TRY(quick_check(s, err));
    *out = s;
    s    = NULL;
out:
    vp_study_close(s);
    return st;
}

void vp_study_close(vp_study *s)
{
    if (!s)
        return;
    sqlite3_close(s->db);
    if (s->lock_fd >= 0) {
        if (s->owns_lock)
            unlink(s->lock_path); /* while it is ours */
        close(s->lock_fd);
    }
    free(s);
}
