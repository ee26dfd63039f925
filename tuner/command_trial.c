#include "tuner/command_internal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const verdict_names[VP_N_COMMAND_VERDICTS] = {
    "ok", "oom-device", "oom-host", "timeout", "crash", "interrupted", "untried"};

const char *vp_command_verdict_name(vp_command_verdict v)
{
    return verdict_names[v];
}

/* ---- the folder ---- */

enum { MAX_ENTRIES = 4000, MAX_DEPTH = 4, MAX_COPY_BYTES = 256 << 10, MAX_COPIED_BYTES = 16 << 20 };

typedef struct mirrored {
    int     n_left;
    int64_t bytes_left;
} mirrored;

/* A small file as a copy: what a trial writes into it stays there. False: it is none, or cannot be read. */
static bool copy_small(const char *source, const char *made, const struct stat *info,
                       mirrored *left)
{
    char   *bytes = NULL;
    int64_t n;
    bool    done = false;

    if (!S_ISREG(info->st_mode) || info->st_size > MAX_COPY_BYTES ||
        info->st_size > left->bytes_left ||
        vp_file_read(source, MAX_COPY_BYTES, &bytes, &n, NULL) != VP_OK)
        return false;
    int fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (info->st_mode & 0777) | 0600);
    if (fd >= 0) {
        done = write(fd, bytes, (size_t)n) == (ssize_t)n;
        close(fd);
        if (!done)
            unlink(made);
    }
    left->bytes_left -= n;
    free(bytes);
    return done;
}

/* Whether a folder's entries are no more than are left, which they then take. */
static bool has_room(const char *path, mirrored *left)
{
    DIR *d = opendir(path);
    int  n = 0;

    while (d && n <= left->n_left && readdir(d))
        n++;
    if (d)
        closedir(d);
    if (!d || n > left->n_left)
        return false;
    left->n_left -= n;
    return true;
}

/* Make in `to` what lies in `from`: folders as folders and small files as copies, so that what a trial puts into them
 * stays here, large ones as links. Folders with too much in them or too deep are links too: a data set of many files. */
static void mirror(const char *from, const char *to, int depth, mirrored *left)
{
    DIR           *d = opendir(from);
    struct dirent *entry;
    char           source[PATH_MAX], made[PATH_MAX];

    while (d && (entry = readdir(d))) {
        struct stat info;

        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            snprintf(source, sizeof source, "%s/%s", from, entry->d_name) >= PATH_MAX ||
            snprintf(made, sizeof made, "%s/%s", to, entry->d_name) >= PATH_MAX ||
            lstat(source, &info) != 0)
            continue;
        bool deeper = S_ISDIR(info.st_mode) && depth < MAX_DEPTH &&
                      strcmp(entry->d_name, ".git") != 0 && has_room(source, left);
        if (deeper && mkdir(made, 0700) == 0)
            mirror(source, made, depth + 1, left);
        else if (!copy_small(source, made, &info, left) && symlink(source, made) != 0)
            continue; /* what is missing will be missed by the command, which says so */
    }
    if (d)
        closedir(d);
}

vp_status vp_trial_folder_make(const char *parent, int64_t number, vp_trial_folder *folder,
                               vp_err *err)
{
    char     cwd[PATH_MAX], path[PATH_MAX];
    mirrored left = {MAX_ENTRIES, MAX_COPIED_BYTES};

    if (!getcwd(cwd, sizeof cwd))
        return VP_FAIL(err, VP_ERR_STORAGE, "the current folder: %s", strerror(errno));
    if (snprintf(folder->path, sizeof folder->path, "%s/%lld", parent, (long long)number) >=
            PATH_MAX - 8 ||
        mkdir(folder->path, 0700) != 0 ||
        snprintf(path, sizeof path, "%.*s/out", PATH_MAX - 8, folder->path) < 0 ||
        mkdir(path, 0700) != 0 ||
        snprintf(path, sizeof path, "%.*s/set", PATH_MAX - 8, folder->path) < 0 ||
        mkdir(path, 0700) != 0 ||
        snprintf(path, sizeof path, "%.*s/cwd", PATH_MAX - 8, folder->path) < 0 ||
        mkdir(path, 0700) != 0)
        return VP_FAIL(err, VP_ERR_STORAGE, "%s: a folder for a trial cannot be made: %s",
                       folder->path, strerror(errno));
    mirror(cwd, path, 0, &left);
    return VP_OK;
}

vp_status vp_trial_write_files(const vp_trial_folder *folder, const vp_file_change *changes, int n,
                               vp_err *err)
{
    vp_status st = VP_OK;

    for (int i = 0; i < n; i++) {
        assert(strncmp(changes[i].to, folder->path, strlen(folder->path)) == 0 &&
               "a changed file goes into the trial's folder");
        VP_TRY(
            vp_file_write(changes[i].to, changes[i].after, strlen(changes[i].after), false, err));
    }
out:
    return st;
}

/* Remove what lies below, links and not what they lead to. fd is closed. */
static void empty(int fd, int depth)
{
    DIR           *d = fdopendir(fd);
    struct dirent *entry;

    if (!d) {
        close(fd);
        return;
    }
    while ((entry = readdir(d))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            unlinkat(dirfd(d), entry->d_name, 0) == 0 || depth == 64)
            continue;
        int below =
            openat(dirfd(d), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0) {
            empty(below, depth + 1);
            unlinkat(dirfd(d), entry->d_name, AT_REMOVEDIR);
        }
    }
    closedir(d);
}

void vp_trial_folder_remove(const vp_trial_folder *folder)
{
    int fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0)
        empty(fd, 0);
    rmdir(folder->path);
}

/* ---- the dry run ---- */

/* Whether a path is to be told from the root, since a trial runs elsewhere: one that leads out of the current folder and is there; of
 * what a command trains on, a file that is too large to be copied into a trial's folder, so that what `datasets` keeps of it
 * by its path, the tokens of a text, is made once, and serves the user's own run too. Any other large file a script may
 * write beside, or replace. */
static bool belongs_to_root(const char *path, bool is_text)
{
    struct stat info;

    if (path[0] == '/' || stat(path, &info) != 0)
        return false;
    return strncmp(path, "../", 3) == 0 ||
           (is_text && S_ISREG(info.st_mode) && info.st_size > MAX_COPY_BYTES);
}

/* Word i of a command, with what it says, or behind its equal sign, told from the root where that belongs there. */
static char *from_the_root(char *const *command, int i, vp_arena *arena)
{
    const char *word = command[i], *equal = strchr(word, '='), *path = equal ? equal + 1 : word;
    bool        is_text = vp_command_is_text(equal || i == 0 ? word : command[i - 1]);
    char        cwd[PATH_MAX];

    if (!belongs_to_root(path, is_text) || !getcwd(cwd, sizeof cwd))
        return vp_arena_strdup(arena, word);
    path += strncmp(path, "./", 2) == 0 ? 2 : 0;
    return vp_arena_printf(arena, "%.*s%s/%s", (int)((equal ? equal + 1 : word) - word), word, cwd,
                           path);
}

/* The folder that a trial writes into in place of the user's: one that is not there yet where that is not either, since a
 * script may refuse one that it finds, or make it itself. */
static const char *output_of(const char *users)
{
    struct stat info;

    return stat(users, &info) == 0 ? "out" : "out/new";
}

/* word i of a command with its output folder, if it names one, replaced by ours. */
static char *redirected(char *const *command, int i, const vp_trial_folder *folder, vp_arena *arena)
{
    const char *equal = strchr(command[i], '=');

    if (i > 0 && !strchr(command[i - 1], '=') && vp_command_is_output(command[i - 1]) &&
        command[i][0] != '-')
        return vp_arena_printf(arena, "%s/%s", folder->path, output_of(command[i]));
    if (equal && vp_command_is_output(command[i]))
        return vp_arena_printf(arena, "%.*s=%s/%s", (int)(equal - command[i]), command[i],
                               folder->path, output_of(equal + 1));
    return from_the_root(command, i, arena);
}

char *const *vp_trial_command(char *const *command, const vp_trial_folder *folder, vp_arena *arena)
{
    int n = 0;

    while (command[n])
        n++;
    char **words = vp_arena_array(arena, n + 1, sizeof *words);
    for (int i = 0; words && i < n; i++)
        words[i] = redirected(command, i, folder, arena);
    return vp_arena_failed(arena) ? NULL : words;
}

char *const *vp_trial_words(const vp_command_opts *opts, const char *program, char *const *command,
                            const vp_trial_folder *folder, vp_arena *arena)
{
    int n = 0, n_command = 0, n_pass = 0;

    while (command[n_command])
        n_command++;
    while (opts->pass && opts->pass[n_pass])
        n_pass++;
    char **words = vp_arena_array(arena, n_command + n_pass + 24, sizeof *words);
    if (!words)
        return NULL;
    words[n++] = vp_arena_strdup(arena, program);
    words[n++] = vp_arena_strdup(arena, "dryrun");
    words[n++] = vp_arena_strdup(arena, "--json");
    words[n++] = vp_arena_strdup(arena, "--time");
    words[n++] = vp_arena_strdup(arena, "--no-owners");
    words[n++] = vp_arena_printf(arena, "--steps=%lld", (long long)opts->steps);
    words[n++] = vp_arena_printf(arena, "--timeout=%g", opts->timeout_s);
    words[n++] = vp_arena_printf(arena, "--budget=%lld", (long long)opts->budget_bytes);
    if (opts->device_name)
        words[n++] = vp_arena_printf(arena, "--device=%s", opts->device_name);
    if (opts->world > 1)
        words[n++] = vp_arena_printf(arena, "--world=%lld", (long long)opts->world);
    for (int i = 0; i < n_pass; i++)
        words[n++] = opts->pass[i];
    words[n++]         = vp_arena_strdup(arena, "--");
    char *const *there = vp_trial_command(command, folder, arena);
    for (int i = 0; there && i < n_command; i++)
        words[n++] = there[i];
    return vp_arena_failed(arena) ? NULL : words;
}

/* ---- what it said ---- */

static int64_t integer(const json_t *doc, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(doc, key));
}

static double real(const json_t *doc, const char *key)
{
    return json_number_value(json_object_get(doc, key));
}

const char *vp_trial_last_line(const char *text, vp_arena *arena)
{
    const char *end = text + strlen(text), *start;
    char        shown[400];

    while (end > text && strchr(" \t\r\n", end[-1]))
        end--;
    for (start = end; start > text && start[-1] != '\n';)
        start--;
    char *line =
        vp_arena_printf(arena, "%.*s", (int)(end - start < 300 ? end - start : 300), start);
    return line ? vp_arena_strdup(arena, vp_text_escape(line, shown, sizeof shown)) : "";
}

/* How much of an escaped text is shown: its first line, shortened. */
static int shown_of(const char *text)
{
    const char *end = strstr(text, "\\x0a");
    size_t      n   = end ? (size_t)(end - text) : strlen(text);

    return n < 300 ? (int)n : 300;
}

static bool begins(const char *reason, const char *with)
{
    return strncmp(reason, with, strlen(with)) == 0;
}

/* Whether a reason already holds the beginning of a message. */
static bool is_said(const char *reason, const char *what)
{
    char start[100];

    snprintf(start, sizeof start, "%.*s", shown_of(what), what);
    return strstr(reason, start) != NULL;
}

static void judge(const json_t *doc, const vp_child_result *child, vp_arena *arena,
                  vp_command_trial *t)
{
    const char *verdict = json_string_value(json_object_get(doc, "verdict"));
    const char *reason  = json_string_value(json_object_get(doc, "reason"));
    json_t     *oom = json_object_get(doc, "oom"), *time = json_object_get(doc, "time"), *error;

    verdict            = verdict ? verdict : "failed";
    reason             = reason ? reason : "";
    t->allocated_bytes = integer(doc, "allocated_peak_bytes");
    t->reserved_bytes  = integer(doc, "reserved_peak_bytes");
    t->device_bytes    = integer(doc, "device_bytes");
    if (oom) {
        t->verdict      = VP_COMMAND_OOM_DEVICE;
        t->needed_bytes = integer(oom, "allocated_bytes") + integer(oom, "requested_bytes") +
                          integer(doc, "outside_bytes");
        t->evidence = vp_arena_printf(arena, "asked for %lld bytes in %s with %lld allocated",
                                      (long long)integer(oom, "requested_bytes"),
                                      json_string_value(json_object_get(oom, "phase")),
                                      (long long)integer(oom, "allocated_bytes"));
    } else if (strcmp(verdict, "fits") == 0 && t->allocated_bytes > 0 &&
               integer(doc, "optimizer_steps") > 0) {
        const json_t *after = json_object_get(json_object_get(doc, "growth"), "after_step_bytes");
        t->verdict          = VP_COMMAND_OK;
        t->held_bytes =
            (int64_t)json_integer_value(json_array_get(after, json_array_size(after) - 1));
        t->step_s           = real(time, "step_time_s");
        t->samples_per_s    = real(time, "samples_per_s");
        t->tokens_per_s     = real(time, "tokens_per_s");
        t->host_s           = real(time, "host_s");
        t->card_s           = real(time, "device_s");
        t->optimizer_host_s = real(time, "optimizer_host_s");
        t->optimizer_card_s = real(time, "optimizer_device_s");
    } else if (strcmp(verdict, "fits") == 0) {
        t->evidence =
            t->allocated_bytes > 0 ? "no optimizer step was seen" : "it never used the device";
    } else {
        error      = json_object_get(doc, "error");
        t->verdict = begins(reason, "the command ran longer than --timeout") ? VP_COMMAND_TIMEOUT
                     : begins(reason, "host memory ran out")                 ? VP_COMMAND_OOM_HOST
                     : begins(reason, "interrupted") ? VP_COMMAND_INTERRUPTED
                                                     : VP_COMMAND_CRASH;
        const char *what = json_string_value(json_object_get(error, "message"));
        t->evidence      = what && is_said(reason, what) ? vp_arena_strdup(arena, reason)
                           : what ? vp_arena_printf(arena, "%s: %.*s", reason, shown_of(what), what)
                                  : vp_arena_printf(arena, "%s%s%s", reason, child->n_err ? ": " : "",
                                                    vp_trial_last_line(child->err, arena));
    }
}

/* An object as text; "": none. */
static const char *text_of(const json_t *object, vp_arena *arena)
{
    char       *text = json_object_size(object) ? json_dumps(object, JSON_COMPACT) : NULL;
    const char *kept = text ? vp_arena_strdup(arena, text) : NULL;

    free(text);
    return kept ? kept : "";
}

/* Places in a script: dryrun names them, a tuner has too many. */
static bool of_one_trial(const char *note)
{
    return !note || strncmp(note, "device values read", 18) == 0 ||
           strncmp(note, "device values were read", 23) == 0 ||
           strncmp(note, "boolean masks select", 20) == 0;
}

/* The same but for numbers, such as a count of plans: said of one trial, as it is of each. */
static bool same_note(const char *a, const char *b)
{
    assert(a && b);
    for (;;) {
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        if (*a != *b || !*a)
            return *a == *b;
        a++;
        b++;
    }
}

void vp_trial_read(const vp_child_result *child, vp_arena *arena, vp_command_trial *t,
                   json_t *notes)
{
    vp_json_doc *doc = NULL;
    vp_err       why = {0};
    json_t      *note, *other;
    size_t       i, k;

    t->verdict    = VP_COMMAND_CRASH;
    t->evidence   = "";
    t->arguments  = "";
    t->wall_s     = child->seconds;
    t->host_bytes = child->max_rss_bytes;
    if (child->end == VP_CHILD_TIMED_OUT) {
        t->verdict  = VP_COMMAND_TIMEOUT;
        t->evidence = "the dry run did not end";
    } else if (child->end == VP_CHILD_INTERRUPTED) {
        t->verdict = VP_COMMAND_INTERRUPTED;
    } else if (vp_json_parse("vplan dryrun", child->out, (int64_t)child->n_out, &doc, &why) !=
               VP_OK) {
        t->evidence = vp_trial_last_line(child->err, arena);
    } else {
        const json_t *root = vp_json_root(doc).value;

        t->arguments = text_of(json_object_get(root, "arguments"), arena);
        /* of a fork: it is no child of the dry run's */
        if (integer(root, "host_bytes") > t->host_bytes)
            t->host_bytes = integer(root, "host_bytes");
        if (json_object_get(root, "verdict"))
            judge(root, child, arena, t);
        else
            t->evidence = vp_arena_printf(
                arena, "%.300s",
                json_string_value(json_object_get(json_object_get(root, "error"), "message")));
        if (notes && t->verdict == VP_COMMAND_OK)
            json_array_foreach (json_object_get(root, "assumptions"), i, note) {
                bool known = of_one_trial(json_string_value(note));
                json_array_foreach (notes, k, other)
                    known = known || same_note(json_string_value(note), json_string_value(other));
                if (!known && json_array_size(notes) < 40)
                    json_array_append(notes, note);
            }
    }
    t->evidence = t->evidence ? t->evidence : "";
    vp_json_doc_free(doc);
}
