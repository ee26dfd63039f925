#include "tuner/command_internal.h"

#include "base/sha256.h"
#include "tuner/study_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HASHED_BYTES = 64 << 20, MAX_ANSWER_BYTES = 4 << 20 };

/* The contents of a file that the command names: an edited script is another command. Empty where it is no file, or
 * so large that it is data. */
static void hash_named(const char *path, char text[65])
{
    struct stat   info;
    unsigned char piece[1 << 14];
    size_t        n;
    FILE         *f;

    text[0] = '\0';
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MAX_HASHED_BYTES ||
        !(f = fopen(path, "rbe")))
        return;
    vp_sha256 h = vp_sha256_begin();
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        vp_sha256_add(&h, piece, n);
    fclose(f);
    vp_sha256_hex(&h, text);
}

static void add_file(json_t *files, const char *path)
{
    char hash[65];

    hash_named(path, hash);
    if (hash[0])
        json_object_set_new(files, path, json_string(hash));
}

/* A file that an answer of this program goes to, or holds one of an earlier run (tune's, dryrun's): not the command's. */
static bool is_our_output(const char *path)
{
    struct stat file, ours;
    json_t     *doc;
    bool        is = false;

    if (stat(path, &file) != 0 || !S_ISREG(file.st_mode))
        return false;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        is = is ||
             (fstat(fd, &ours) == 0 && file.st_dev == ours.st_dev && file.st_ino == ours.st_ino);
    if (is || file.st_size > MAX_ANSWER_BYTES)
        return is;
    doc = json_load_file(path, 0, NULL);
    is  = json_is_integer(json_object_get(doc, "schema_version")) &&
         ((json_object_get(doc, "trials") && json_object_get(doc, "stopped_because")) ||
          (json_object_get(doc, "verdict") && json_object_get(doc, "optimizer_steps")));
    json_decref(doc);
    return is;
}

/* What trials must share to be comparable, as JSON: also the files that the command names, and the programs and
 * settings that lie in the current folder. The caller's; NULL: out of memory. */
static char *identity_of(const vp_command_opts *opts, const vp_command_files *named,
                         const char *build)
{
    static const char *const tails[] = {".py", ".json", ".yaml", ".yml", ".toml", ".sh"};
    json_t                  *files = json_object(), *pass = json_array(), *all;
    DIR                     *d = opendir(".");
    struct dirent           *entry;
    char                     cwd[PATH_MAX];

    for (char *const *word = opts->command; *word; word++)
        add_file(files, *word);
    for (int i = 0; vp_command_file_at(named, i); i++)
        add_file(files, vp_command_file_at(named, i));
    while (d && (entry = readdir(d)) && json_object_size(files) < 500) {
        const char *dot = strrchr(entry->d_name, '.');
        for (size_t i = 0; dot && i < sizeof tails / sizeof *tails; i++)
            if (strcmp(dot, tails[i]) == 0 && !is_our_output(entry->d_name))
                add_file(files, entry->d_name);
    }
    if (d)
        closedir(d);
    for (char *const *word = opts->pass; word && *word; word++)
        json_array_append_new(pass, json_string(*word));
    all        = json_pack("{s:s, s:o, s:o, s:s, s:I, s:I, s:I, s:s}", "folder",
                    getcwd(cwd, sizeof cwd) ? cwd : "", "files", files, "options", pass, "device",
                           opts->device->name, "budget_bytes", (json_int_t)opts->budget_bytes, "steps",
                           (json_int_t)opts->steps, "ranks", (json_int_t)opts->world, "build", build);
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(all);
    return text;
}

vp_status vp_command_request(vp_study *s, const vp_command_opts *opts,
                             const vp_command_files *files, const char *build, int64_t *id,
                             vp_err *err)
{
    sqlite3_stmt *stmt     = NULL;
    char         *identity = identity_of(opts, files, build);
    bool          any;
    vp_status     st = VP_OK;

    VP_TRY_ALLOC(err, identity);
    VP_TRY(vp_study_query(s, &stmt, err, "SELECT id FROM command_request WHERE identity = ?", "t",
                          identity));
    VP_TRY(vp_study_next_row(s, stmt, &any, err));
    if (any) {
        *id = sqlite3_column_int64(stmt, 0);
        goto out;
    }
    sqlite3_finalize(stmt);
    stmt = NULL;
    VP_TRY(vp_study_begin_change(s, err));
    VP_TRY(vp_study_end_change(
        s,
        vp_study_change(
            s, err,
            "INSERT INTO command_request(identity, device, budget_bytes, asked, created_unix_s) VALUES(?, ?, ?, ?, ?)",
            "ttiti", identity, opts->device->name, opts->budget_bytes,
            opts->asked ? opts->asked : "", (int64_t)time(NULL)),
        err));
    *id = sqlite3_last_insert_rowid(s->db);
out:
    sqlite3_finalize(stmt);
    free(identity);
    return st;
}

vp_status vp_command_find(vp_study *s, vp_arena *arena, int64_t request, const char *words,
                          vp_command_trial *t, vp_err *err)
{
    sqlite3_stmt *stmt = NULL;
    bool          any;
    vp_status     st = VP_OK;

    *t = (vp_command_trial){.verdict = VP_COMMAND_UNTRIED, .evidence = "", .arguments = ""};
    VP_TRY(vp_study_query(
        s, &stmt, err,
        "SELECT id, state, verdict, evidence, allocated_bytes, reserved_bytes, device_bytes, needed_bytes, step_s, "
        "samples_per_s, wall_s, host_bytes, host_s, card_s, optimizer_host_s, optimizer_card_s, held_bytes, arguments, tokens_per_s FROM command_trial WHERE request_id = ? AND words = ? ORDER BY id",
        "it", request, words));
    for (;;) {
        VP_TRY(vp_study_next_row(s, stmt, &any, err));
        if (!any)
            break;
        const char *state = vp_study_text_at(stmt, 1), *verdict = vp_study_text_at(stmt, 2);
        if (strcmp(state, "done") != 0)
            continue;
        *t = (vp_command_trial){.id         = sqlite3_column_int64(stmt, 0),
                                .verdict    = VP_COMMAND_CRASH,
                                .from_study = true,
                                .evidence   = vp_arena_strdup(arena, vp_study_text_at(stmt, 3)),
                                .allocated_bytes  = sqlite3_column_int64(stmt, 4),
                                .reserved_bytes   = sqlite3_column_int64(stmt, 5),
                                .device_bytes     = sqlite3_column_int64(stmt, 6),
                                .needed_bytes     = sqlite3_column_int64(stmt, 7),
                                .step_s           = sqlite3_column_double(stmt, 8),
                                .samples_per_s    = sqlite3_column_double(stmt, 9),
                                .wall_s           = sqlite3_column_double(stmt, 10),
                                .host_bytes       = sqlite3_column_int64(stmt, 11),
                                .host_s           = sqlite3_column_double(stmt, 12),
                                .card_s           = sqlite3_column_double(stmt, 13),
                                .optimizer_host_s = sqlite3_column_double(stmt, 14),
                                .optimizer_card_s = sqlite3_column_double(stmt, 15),
                                .held_bytes       = sqlite3_column_int64(stmt, 16),
                                .arguments    = vp_arena_strdup(arena, vp_study_text_at(stmt, 17)),
                                .tokens_per_s = sqlite3_column_double(stmt, 18)};
        VP_TRY_ALLOC(err, t->evidence && t->arguments);
        for (int v = 0; v < VP_COMMAND_UNTRIED; v++)
            if (strcmp(verdict, vp_command_verdict_name((vp_command_verdict)v)) == 0)
                t->verdict = (vp_command_verdict)v;
    }
out:
    sqlite3_finalize(stmt);
    return st;
}

vp_status vp_command_begin(vp_study *s, int64_t request, const char *words, int64_t *id,
                           vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_study_begin_change(s, err));
    VP_TRY(vp_study_end_change(
        s,
        vp_study_change(
            s, err,
            "INSERT INTO command_trial(request_id, words, state, evidence, arguments, allocated_bytes, reserved_bytes, device_bytes, "
            "needed_bytes, step_s, samples_per_s, tokens_per_s, host_s, card_s, optimizer_host_s, optimizer_card_s, held_bytes, wall_s, "
            "host_bytes, started_unix_s) VALUES(?, ?, 'running', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ?)",
            "iti", request, words, (int64_t)time(NULL)),
        err));
    *id = sqlite3_last_insert_rowid(s->db);
out:
    return st;
}

vp_status vp_command_finish(vp_study *s, const vp_command_trial *t, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_study_begin_change(s, err));
    VP_TRY(vp_study_end_change(
        s,
        vp_study_change(
            s, err,
            "UPDATE command_trial SET state = 'done', verdict = ?, evidence = ?, arguments = ?, allocated_bytes = ?, reserved_bytes = ?, "
            "device_bytes = ?, needed_bytes = ?, step_s = ?, samples_per_s = ?, tokens_per_s = ?, host_s = ?, card_s = ?, optimizer_host_s = ?, "
            "optimizer_card_s = ?, held_bytes = ?, wall_s = ?, host_bytes = ?, ended_unix_s = ? WHERE id = ?",
            "tttiiiirrrrrrririii", vp_command_verdict_name(t->verdict), t->evidence, t->arguments,
            t->allocated_bytes, t->reserved_bytes, t->device_bytes, t->needed_bytes, t->step_s,
            t->samples_per_s, t->tokens_per_s, t->host_s, t->card_s, t->optimizer_host_s,
            t->optimizer_card_s, t->held_bytes, t->wall_s, t->host_bytes, (int64_t)time(NULL),
            t->id),
        err));
out:
    return st;
}

vp_status vp_command_cancel(vp_study *s, int64_t id, vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_study_begin_change(s, err));
    VP_TRY(vp_study_end_change(
        s,
        vp_study_change(
            s, err,
            "UPDATE command_trial SET state = 'cancelled', ended_unix_s = ? WHERE id = ? AND state = 'running'",
            "ii", (int64_t)time(NULL), id),
        err));
out:
    return st;
}
