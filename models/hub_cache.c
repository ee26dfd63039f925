#include "models/hub_cache.h"

#include "base/file.h"
#include "base/text.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_PART          = 96,
    MAX_REVISION      = 128,
    COMMIT_DIGITS     = 40,
    MAX_COMMITS       = 1000,
    MAX_SHOWN_COMMITS = 4,
    MAX_REF_BYTES     = 1024
};

typedef struct hub_id {
    char repo[2 * MAX_PART + 2];     /* "meta-llama/Llama-3.2-1B"                  */
    char revision[MAX_REVISION + 1]; /* "": none given                             */
} hub_id;

/* ---- what an id is ---- */

static bool is_letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* One part of an id or of a revision: n characters. */
static bool is_part(const char *part, size_t n, size_t max)
{
    if (n < 1 || n > max || !is_letter_or_digit(part[0]) || !is_letter_or_digit(part[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_letter_or_digit(part[i]) &&
            ((part[i] != '.' && part[i] != '-') || part[i] == part[i - 1]))
            return false;
    return true;
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    size_t m = strlen(end);
    return n >= m && memcmp(text + n - m, end, m) == 0;
}

static bool split(const char *text, hub_id *id)
{
    const char *at     = strchr(text, '@');
    size_t      n      = at ? (size_t)(at - text) : strlen(text);
    const char *slash  = memchr(text, '/', n);
    size_t      n_org  = slash ? (size_t)(slash - text) : 0;
    const char *name   = slash ? slash + 1 : text;
    size_t      n_name = n - (size_t)(name - text);

    if ((slash && !is_part(text, n_org, MAX_PART)) || !is_part(name, n_name, MAX_PART) ||
        ends_with(name, n_name, ".json") || ends_with(name, n_name, ".safetensors"))
        return false;
    assert(n < sizeof id->repo); /* is_part() bounds either part */
    snprintf(id->repo, sizeof id->repo, "%.*s", (int)n, text);
    id->revision[0] = '\0';
    if (!at)
        return true;
    for (const char *part = at + 1;; part++) {
        size_t n_part = strcspn(part, "/");
        if (!is_part(part, n_part, MAX_REVISION))
            return false;
        part += n_part;
        if (!*part)
            break;
    }
    return (size_t)snprintf(id->revision, sizeof id->revision, "%s", at + 1) < sizeof id->revision;
}

bool vp_hub_is_id(const char *text)
{
    hub_id id;
    return split(text, &id);
}

static bool is_commit(const char *text)
{
    return strlen(text) == COMMIT_DIGITS && strspn(text, "0123456789abcdef") == COMMIT_DIGITS;
}

/* ---- where it lies ---- */

/* The variable's value, NULL where it is not set or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* root + tail, a leading "~" of root being home. False when it does not fit. */
static bool put_path(char *path, size_t size, const char *root, const char *tail)
{
    const char *home   = variable("HOME");
    bool        expand = home && root[0] == '~' && (root[1] == '/' || root[1] == '\0');

    return (size_t)snprintf(path, size, "%s%s%s", expand ? home : "", expand ? root + 1 : root,
                            tail) < size;
}

static vp_status cache_folder(char *path, size_t size, vp_err *err)
{
    const char *value;
    bool        fits;

    if ((value = variable("HF_HUB_CACHE")))
        fits = put_path(path, size, value, "");
    else if ((value = variable("HF_HOME")))
        fits = put_path(path, size, value, "/hub");
    else if ((value = variable("XDG_CACHE_HOME")))
        fits = put_path(path, size, value, "/huggingface/hub");
    else if ((value = variable("HOME")))
        fits = put_path(path, size, value, "/.cache/huggingface/hub");
    else
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "there is no Hugging Face cache: neither HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME nor HOME is set");
    return fits ? VP_OK
                : VP_FAIL(err, VP_ERR_INPUT, "the path of the Hugging Face cache is too long");
}

/* What the cache lacks, and the command that would put it there. */
static vp_status not_held(const hub_id *id, vp_hub_want want, const char *cache, vp_err *err)
{
    /* the last: tokenizers too, and no weights; of two --include an old hf takes the second */
    static const struct {
        const char *what, *them, *words;
    } of[] = {[VP_HUB_CONFIG]  = {"config.json", "it", " config.json"},
              [VP_HUB_WEIGHTS] = {"the weights", "them", " --include \"model*.safetensors*\""},
              [VP_HUB_FOLDER]  = {"config.json or model_index.json", "what is no weights",
                                  " --include \"*.txt\" --include \"*.json\""}};
    char shown[200];

    return VP_FAIL(
        err, VP_ERR_INPUT,
        "the Hugging Face cache %s does not hold %s of %s%s%s; to download %s: hf download %s%s%s%s",
        vp_text_escape(cache, shown, sizeof shown), of[want].what, id->repo,
        id->revision[0] ? " at revision " : "", id->revision, of[want].them, id->repo,
        of[want].words, id->revision[0] ? " --revision " : "", id->revision);
}

/* The commit that a ref's file holds. *found is false where there is no such file. */
static vp_status read_ref(const char *repo_dir, const char *ref, char *commit, bool *found,
                          vp_err *err)
{
    char        path[PATH_MAX], *text = NULL;
    struct stat info;
    int64_t     n;
    vp_status   st = VP_OK;

    *found = false;
    if ((size_t)snprintf(path, sizeof path, "%s/refs/%s", repo_dir, ref) >= sizeof path ||
        stat(path, &info) != 0)
        return VP_OK;
    VP_TRY(vp_file_read(path, MAX_REF_BYTES, &text, &n, err));
    text[strcspn(text, " \t\r\n")] = '\0';
    if (!is_commit(text))
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 1, NULL,
                          "holds no commit: %d hex digits must stand here", COMMIT_DIGITS));
    memcpy(commit, text, COMMIT_DIGITS + 1);
    *found = true;
out:
    free(text);
    return st;
}

static int by_text(const void *a, const void *b)
{
    return memcmp(a, b, COMMIT_DIGITS + 1);
}

/* Without refs/main: the only snapshot. */
static vp_status only_snapshot(const hub_id *id, const char *repo_dir, char *commit, bool *found,
                               vp_err *err)
{
    char           path[PATH_MAX], commits[MAX_COMMITS][COMMIT_DIGITS + 1];
    DIR           *dir = NULL;
    struct dirent *entry;
    vp_text        list = {0};
    int            n    = 0;
    vp_status      st   = VP_OK;

    *found = false;
    if ((size_t)snprintf(path, sizeof path, "%s/snapshots", repo_dir) < sizeof path)
        dir = opendir(path);
    while (dir && n < MAX_COMMITS && (entry = readdir(dir)))
        if (is_commit(entry->d_name))
            memcpy(commits[n++], entry->d_name, COMMIT_DIGITS + 1);
    if (n == 1) {
        memcpy(commit, commits[0], COMMIT_DIGITS + 1);
        *found = true;
    } else if (n > 1) {
        int n_shown = n < MAX_SHOWN_COMMITS ? n : MAX_SHOWN_COMMITS;
        qsort(commits, (size_t)n, sizeof *commits, by_text);
        for (int i = 0; i < n_shown; i++)
            vp_text_printf(&list, "%s%s@%s", i ? ", " : "", id->repo, commits[i]);
        VP_TRY_ALLOC(err, !list.failed);
        VP_TRY(VP_FAIL(
            err, VP_ERR_INPUT,
            "the Hugging Face cache holds %d snapshots of %s and no refs/main; say which is meant: %s%s",
            n, id->repo, list.data, n > n_shown ? ", ..." : ""));
    }
out:
    vp_text_release(&list);
    if (dir)
        closedir(dir);
    return st;
}

static bool holds(const char *folder, const char *name)
{
    char        path[PATH_MAX];
    struct stat info;

    return (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path &&
           stat(path, &info) == 0;
}

static bool holds_what(const char *folder, vp_hub_want want)
{
    if (want == VP_HUB_WEIGHTS)
        return holds(folder, "model.safetensors") || holds(folder, "model.safetensors.index.json");
    return holds(folder, "config.json") ||
           (want == VP_HUB_FOLDER && holds(folder, "model_index.json"));
}

vp_status vp_hub_find(const char *text, vp_hub_want want, char *folder, size_t folder_size,
                      vp_err *err)
{
    hub_id    id;
    char      cache[PATH_MAX], repo_dir[PATH_MAX], commit[COMMIT_DIGITS + 1], shown[256];
    bool      found = true;
    vp_status st    = VP_OK;

    if (!split(text, &id))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%s is no id of the Hugging Face Hub",
                       vp_text_escape(text, shown, sizeof shown)));
    VP_TRY(cache_folder(cache, sizeof cache, err));
    const char *slash = strchr(id.repo, '/');
    if ((size_t)snprintf(repo_dir, sizeof repo_dir, "%s/models--%.*s%s%s", cache,
                         slash ? (int)(slash - id.repo) : 0, id.repo, slash ? "--" : "",
                         slash ? slash + 1 : id.repo) >= sizeof repo_dir)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "the path of the Hugging Face cache is too long"));
    if (is_commit(id.revision))
        memcpy(commit, id.revision, sizeof commit);
    else
        VP_TRY(read_ref(repo_dir, id.revision[0] ? id.revision : "main", commit, &found, err));
    if (!found && !id.revision[0])
        VP_TRY(only_snapshot(&id, repo_dir, commit, &found, err));
    if (!found ||
        (size_t)snprintf(folder, folder_size, "%s/snapshots/%s", repo_dir, commit) >= folder_size ||
        !holds_what(folder, want))
        VP_TRY(not_held(&id, want, cache, err));
out:
    return st;
}
