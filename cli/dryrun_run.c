#include "cli/dryrun_run.h"

#include "core/child.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "core/units.h"
#include "models/hub_cache.h"
#include "models/model.h"

#include <arpa/inet.h>
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ENV = 40, MAX_REPORT_BYTES = 4 << 20, MAX_SHOWN_READS = 20 };

/* ---- where things lie ----------------------------------------------------------------------------- */

/* The folder null/ beside this program, or in ../lib/vplan. */
static vp_status find_null(char *dir, size_t dir_size, vp_err *err)
{
    static const char *const below[] = {"null", "../lib/vplan/null"};
    char        self[PATH_MAX], probe[PATH_MAX];
    struct stat info;
    ssize_t     n = readlink("/proc/self/exe", self, sizeof self - 1);
    char       *slash;

    if (n <= 0)
        return VP_FAIL(err, VP_ERR_DEVICE, "cannot tell where this program lies");
    self[n] = '\0';
    slash = strrchr(self, '/');
    if (!slash)
        return VP_FAIL(err, VP_ERR_DEVICE, "cannot tell where this program lies");
    *slash = '\0';
    for (int i = 0; i < 2; i++) {
        int length = snprintf(dir, dir_size, "%s/%s", self, below[i]);

        if (length > 0 && (size_t)length < dir_size &&
            snprintf(probe, sizeof probe, "%s/libvplan-null.so", dir) < (int)sizeof probe &&
            stat(probe, &info) == 0 && S_ISREG(info.st_mode))
            return VP_OK;
    }
    return VP_FAIL(err, VP_ERR_DEVICE, "null/libvplan-null.so is neither in %s nor in ../lib/vplan beside "
                                       "it: build it with make", self);
}

/* Remove a folder of plain files that we and the probe made. */
static void remove_folder(const char *dir)
{
    DIR           *d = opendir(dir);
    struct dirent *entry;
    char           path[PATH_MAX];

    if (!d)
        return;
    while ((entry = readdir(d)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) < (int)sizeof path)
            unlink(path);
    closedir(d);
    rmdir(dir);
}

/* A temporary folder of our own; dir is "" when none was made. */
static vp_status make_folder(char *dir, size_t size, vp_err *err)
{
    const char *tmp = getenv("TMPDIR");
    vp_status   st = VP_OK;

    if (!tmp || !*tmp)
        tmp = "/tmp";
    if (snprintf(dir, size, "%s/vplan-dryrun-XXXXXX", tmp) >= (int)size || !mkdtemp(dir)) {
        dir[0] = '\0';
        st = VP_FAIL(err, VP_ERR_STORAGE, "cannot make a temporary folder in %s: %s", tmp, strerror(errno));
    }
    return st;
}

/* A port that nothing listens on now, for the rendezvous of rank 0 with itself. */
static int free_port(void)
{
    struct sockaddr_in at  = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t          len = sizeof at;
    int                fd  = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 29500;

    if (fd < 0)
        return port;
    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &len) == 0)
        port = ntohs(at.sin_port);
    close(fd);
    return port;
}

/* ---- the child's environment ------------------------------------------------------------------------ */

typedef struct environment {
    char *vars[MAX_ENV + 1];
    int   n;
    bool  failed;
} environment;

static void env_set(environment *env, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void env_set(environment *env, const char *fmt, ...)
{
    va_list args;

    assert(env->n < MAX_ENV);
    va_start(args, fmt);
    if (vasprintf(&env->vars[env->n], fmt, args) < 0) {
        env->vars[env->n] = NULL;
        env->failed = true;
    } else {
        env->n++;
    }
    va_end(args);
}

static void env_release(environment *env)
{
    for (int i = 0; i < env->n; i++)
        free(env->vars[i]);
}

/* ours, then what was there, joined by ':'. */
static void env_prepend(environment *env, const char *name, const char *ours)
{
    const char *was = getenv(name);

    env_set(env, "%s=%s%s%s", name, ours, was && *was ? ":" : "", was && *was ? was : "");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* libvplan-null.so and every stand-in with a name of its own, separated by ':'. */
static vp_status preload_list(const char *dir, vp_text *out, vp_err *err)
{
    DIR           *d = opendir(dir);
    struct dirent *entry;
    char          *names[64];
    size_t         n = 0;
    vp_status      st = VP_OK;

    if (!d || strchr(dir, ':') || strchr(dir, ' ')) {
        st = VP_FAIL(err, VP_ERR_DEVICE, "%s: %s", dir,
                     d ? "the dynamic loader cannot preload from a folder with a colon or space in its name"
                       : strerror(errno));
        goto out;
    }
    vp_text_printf(out, "%s/libvplan-null.so", dir);
    while ((entry = readdir(d)))
        if (strncmp(entry->d_name, "lib", 3) == 0 && strstr(entry->d_name, ".so.") && n < 64) {
            names[n] = strdup(entry->d_name);
            VP_TRY_ALLOC(err, names[n]);
            n++;
        }
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++)
        vp_text_printf(out, ":%s/%s", dir, names[i]);
    if (out->failed)
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    if (d)
        closedir(d);
    return st;
}

static vp_status make_environment(const vp_dryrun_opts *opts, const char *null_dir, const char *folder,
                                  environment *env, vp_err *err)
{
    const vp_device *dev     = opts->device;
    vp_text          preload = {0};
    char             probe[PATH_MAX];
    vp_status        st = VP_OK;

    VP_TRY(preload_list(null_dir, &preload, err));
    snprintf(probe, sizeof probe, "%.*s/probe", (int)sizeof probe - 8, null_dir);
    env_prepend(env, "LD_PRELOAD", preload.data);
    env_prepend(env, "LD_LIBRARY_PATH", null_dir);
    env_prepend(env, "PYTHONPATH", probe);
    env_set(env, "CUDA_VISIBLE_DEVICES=0");
    if (!getenv("PYTHONDONTWRITEBYTECODE")) {       /* no cache beside the probe; the script's own is as ever */
        env_set(env, "PYTHONDONTWRITEBYTECODE=1");
        env_set(env, "VPLAN_NULL_BYTECODE=1");
    }
    env_set(env, "VPLAN_NULL_REPORT=%s", folder);
    env_set(env, "VPLAN_NULL_NAME=%s", dev->product[0] ? dev->product : dev->name);
    env_set(env, "VPLAN_NULL_CC=%d", dev->compute_capability);
    env_set(env, "VPLAN_NULL_SM_COUNT=%d", dev->multiprocessors);
    env_set(env, "VPLAN_NULL_TOTAL_BYTES=%lld", (long long)dev->usable_bytes);
    env_set(env, "VPLAN_NULL_LIMIT_BYTES=%lld", (long long)(opts->budget_bytes - dev->outside_bytes));
    env_set(env, "VPLAN_NULL_CONTEXT_BYTES=%lld", (long long)dev->outside_bytes);
    env_set(env, "VPLAN_NULL_PADDING=%s", opts->padding ? opts->padding : "mask");
    env_set(env, "VPLAN_NULL_VALUE=%s", opts->value ? opts->value : "");
    env_set(env, "VPLAN_NULL_CUDNN=%s", opts->cudnn ? opts->cudnn : "auto");
    env_set(env, "VPLAN_NULL_SELECT=%.17g", opts->select_frac);
    env_set(env, "VPLAN_NULL_HOST_BYTES=%lld", (long long)opts->host_bytes);
    env_set(env, "VPLAN_NULL_SNAPSHOT=%s", opts->snapshot_path ? "1" : "");
    env_set(env, "VPLAN_NULL_WORLD=%lld", (long long)opts->world);
    if (opts->world > 1) {
        env_set(env, "RANK=0");
        env_set(env, "LOCAL_RANK=0");
        env_set(env, "WORLD_SIZE=%lld", (long long)opts->world);
        env_set(env, "LOCAL_WORLD_SIZE=%lld", (long long)opts->world);
        env_set(env, "MASTER_ADDR=127.0.0.1");
        env_set(env, "MASTER_PORT=%d", free_port());
    }
    if (env->failed)
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    vp_text_release(&preload);
    return st;
}

/* ---- what came back ------------------------------------------------------------------------------------ */

typedef struct findings {
    vp_json_doc *report;            /* of the process that used the device most          */
    int          n_reports, n_cuda; /* Python processes, and those that used the device  */
    json_t      *unsupported;       /* array of {library, function, why}                 */
    char         host_full[256];    /* how host memory ran out; "" if it did not         */
    char         snapshot[PATH_MAX];
} findings;

static void text_add(json_t *array, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void text_add(json_t *array, const char *fmt, ...)
{
    va_list args;
    char   *text = NULL, shown[2048];

    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) >= 0) {
        json_array_append_new(array, json_string(vp_text_escape(text, shown, sizeof shown)));
        free(text);
    }
    va_end(args);
}

static void read_unsupported(const char *path, json_t *out)
{
    char  *data = NULL, *line, *rest;
    int64_t n;

    if (vp_file_read(path, 1 << 20, &data, &n, NULL) != VP_OK)
        return;
    for (line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *function = strchr(line, '\t'), *why, shown[3][400];

        if (!function)
            continue;
        *function++ = '\0';
        why = strchr(function, '\t');
        if (why)
            *why++ = '\0';
        json_array_append_new(out, json_pack("{s:s,s:s,s:s}",
            "library", vp_text_escape(line, shown[0], sizeof shown[0]),
            "function", vp_text_escape(function, shown[1], sizeof shown[1]),
            "why", vp_text_escape(why ? why : "", shown[2], sizeof shown[2])));
    }
    free(data);
}

static int64_t report_int(const vp_json_node *node, const char *key)
{
    int64_t value = 0;

    if (!vp_json_has(node, key) || vp_json_int(node, key, 0, INT64_MAX, &value, NULL) != VP_OK)
        return 0;
    return value;
}

static const char *report_text(const vp_json_node *node, const char *key)
{
    const char *text = "";

    if (!vp_json_has(node, key) || vp_json_string(node, key, &text, NULL) != VP_OK)
        return "";
    return text;
}

static bool report_bool(const vp_json_node *node, const char *key)
{
    bool value = false;

    return vp_json_has(node, key) && vp_json_bool(node, key, &value, NULL) == VP_OK && value;
}

static bool report_object(const vp_json_node *node, const char *key, vp_json_node *out)
{
    return vp_json_has(node, key) && vp_json_object(node, key, out, NULL) == VP_OK;
}

/* The report that says most: one of a process that used the device, by reserved bytes; else one that
 * names an error; else any. */
static int64_t report_rank(const vp_json_doc *doc)
{
    vp_json_node root = vp_json_root(doc), error;

    if (report_bool(&root, "cuda"))
        return 2 + report_int(&root, "reserved_peak_bytes");
    return report_object(&root, "error", &error) ? 1 : 0;
}

static vp_status collect(const char *folder, findings *found, vp_err *err)
{
    DIR           *d = opendir(folder);
    struct dirent *entry;
    vp_json_doc   *doc = NULL;
    vp_status      st  = VP_OK;
    char           path[PATH_MAX], *data = NULL;
    int64_t        n;
    long           best_pid = 0;

    if (!d) {
        st = VP_FAIL(err, VP_ERR_STORAGE, "%s: %s", folder, strerror(errno));
        goto out;
    }
    while ((entry = readdir(d))) {
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            continue;
        if (strncmp(entry->d_name, "unsupported.", 12) == 0) {
            read_unsupported(path, found->unsupported);
        } else if (strncmp(entry->d_name, "hostfull.", 9) == 0 &&
                   vp_file_read(path, 4096, &data, &n, NULL) == VP_OK) {
            vp_text_escape(data, found->host_full, sizeof found->host_full);
            free(data);
            data = NULL;
        } else if (strncmp(entry->d_name, "report.", 7) == 0 && strstr(entry->d_name, ".json") &&
                   !strstr(entry->d_name, ".tmp")) {
            VP_TRY(vp_json_read(path, MAX_REPORT_BYTES, &doc, err));
            vp_json_node root = vp_json_root(doc);

            found->n_reports++;
            if (report_bool(&root, "cuda"))
                found->n_cuda++;
            if (!found->report || report_rank(doc) > report_rank(found->report)) {
                vp_json_doc_free(found->report);
                found->report = doc;
                doc = NULL;
                best_pid = strtol(entry->d_name + 7, NULL, 10);
            }
            vp_json_doc_free(doc);
            doc = NULL;
        }
    }
    if (best_pid &&
        snprintf(path, sizeof path, "%s/snapshot.%ld", folder, best_pid) < (int)sizeof path &&
        access(path, R_OK) == 0)
        memcpy(found->snapshot, path, sizeof path);
out:
    free(data);
    vp_json_doc_free(doc);
    if (d)
        closedir(d);
    return st;
}

/* ---- the document ------------------------------------------------------------------------------------ */

static json_t *number_or_zero(int64_t n)
{
    return json_integer(n);
}

static json_t *escaped(const char *text)
{
    char shown[1024];

    return json_string(vp_text_escape(text, shown, sizeof shown));
}

static json_t *phases_of(const vp_json_node *root)
{
    json_t      *out = json_array();
    vp_json_node array, at;
    int64_t      n = 0;

    if (!vp_json_has(root, "phases") || vp_json_array(root, "phases", &array, &n, NULL) != VP_OK)
        return out;
    for (int64_t i = 0; i < n && vp_json_element(&array, i, &at, NULL) == VP_OK; i++)
        json_array_append_new(out, json_pack("{s:o,s:I,s:I,s:I,s:I,s:I}", "name", escaped(report_text(&at, "name")),
            "allocated_bytes", (json_int_t)report_int(&at, "allocated_bytes"),
            "reserved_bytes", (json_int_t)report_int(&at, "reserved_bytes"),
            "requested_bytes", (json_int_t)report_int(&at, "requested_bytes"),
            "allocated_after_bytes", (json_int_t)report_int(&at, "allocated_after_bytes"),
            "reserved_after_bytes", (json_int_t)report_int(&at, "reserved_after_bytes")));
    return out;
}

static json_t *owners_of(const vp_json_node *root)
{
    json_t      *out = json_array();
    vp_json_node array, at;
    int64_t      n = 0;

    if (!vp_json_has(root, "owners") || vp_json_array(root, "owners", &array, &n, NULL) != VP_OK)
        return out;
    for (int64_t i = 0; i < n && vp_json_element(&array, i, &at, NULL) == VP_OK; i++)
        json_array_append_new(out, json_pack("{s:o,s:o,s:o,s:I,s:I}", "kind", escaped(report_text(&at, "kind")),
            "frame", escaped(report_text(&at, "frame")), "phase", escaped(report_text(&at, "phase")),
            "bytes", (json_int_t)report_int(&at, "bytes"),
            "tensors", (json_int_t)report_int(&at, "n_tensors")));
    return out;
}

/* Bytes at the allocated peak by kind of tensor, as an estimate lists its items: they sum to the peak.
 * What the allocator rounds up, and what the history did not show, are items of their own. */
static json_t *items_of(const vp_json_node *root)
{
    json_t      *out = json_array();
    vp_json_node kinds;
    const char  *name;
    json_t      *value;
    int64_t      peak = report_int(root, "allocated_peak_bytes"), sum = 0;
    int64_t      requested = report_int(root, "requested_peak_bytes");

    if (report_object(root, "kinds", &kinds))
        json_object_foreach(kinds.value, name, value)
            if (json_is_integer(value) && json_integer_value(value) > 0) {
                json_array_append_new(out, json_pack("{s:o,s:I,s:s}", "name", escaped(name), "bytes",
                                                     json_integer_value(value), "class", "exact"));
                sum += json_integer_value(value);
            }
    if (sum > 0 && requested > sum && requested <= peak) {
        json_array_append_new(out, json_pack("{s:s,s:I,s:s}", "name", "unattributed", "bytes",
                                             (json_int_t)(requested - sum), "class", "exact"));
        sum = requested;
    }
    if (peak > sum)
        json_array_append_new(out, json_pack("{s:s,s:I,s:s}", "name", sum ? "allocator_slack" : "unattributed",
                                             "bytes", (json_int_t)(peak - sum), "class", "exact"));
    return out;
}

static int64_t item_bytes(const json_t *items, const char *name)
{
    size_t  i;
    json_t *item;

    json_array_foreach(items, i, item)
        if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0)
            return (int64_t)json_integer_value(json_object_get(item, "bytes"));
    return 0;
}

/* What would help after an out-of-memory failure, largest first by what is there to be saved. */
static json_t *remedies_of(const vp_json_node *root, const json_t *items)
{
    json_t *out    = json_array();
    int64_t acts   = item_bytes(items, "activations"), states = item_bytes(items, "optimizer_state");
    int64_t params = item_bytes(items, "parameters"), temps = item_bytes(items, "temporaries");
    int64_t slack  = report_int(root, "reserved_peak_bytes") - report_int(root, "allocated_peak_bytes");
    char    size[64];

    if (acts + temps > 0)
        text_add(out, "a smaller micro-batch or shorter sequences: activations and temporaries are %s at the peak",
                 vp_size_text(acts + temps, size, sizeof size));
    if (acts > 0)
        text_add(out, "gradient checkpointing: %s of activations at the peak",
                 vp_size_text(acts, size, sizeof size));
    if (states > 0)
        text_add(out, "a smaller optimizer state (8-bit AdamW, Adafactor, or sharding it): %s at the peak",
                 vp_size_text(states, size, sizeof size));
    if (params > 0)
        text_add(out, "16-bit or quantised weights, or LoRA: parameters are %s at the peak",
                 vp_size_text(params, size, sizeof size));
    if (slack > 64 * VP_MIB)
        text_add(out, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: up to %s reserved and not allocated",
                 vp_size_text(slack, size, sizeof size));
    return out;
}

static json_t *assumptions_of(const vp_dryrun_opts *opts, const findings *found, const vp_json_node *root)
{
    json_t      *out = json_array();
    vp_json_node array, at, counters;
    int64_t      n = 0;
    char         size[64];

    if (opts->chosen_by == VP_DRYRUN_DEFAULT)
        text_add(out, "no --device, and no GPU here: %s", opts->device->name);
    if (opts->chosen_by == VP_DRYRUN_HERE)
        text_add(out, "no --device: the GPU here, %s; it was not used", opts->device->name);
    text_add(out, "context and libraries outside PyTorch's allocator: %s, not measured",
             vp_size_text(opts->device->outside_bytes, size, sizeof size));
    if (!root)
        return out;
    if (report_object(root, "counters", &counters)) {
        if (report_int(&counters, "outside_bytes"))
            text_add(out, "communication buffers: %s for the first communicator, not measured",
                     vp_size_text(report_int(&counters, "outside_bytes"), size, sizeof size));
        if (report_int(&counters, "managed_bytes_peak"))
            text_add(out, "unified memory (%s) was counted as host memory",
                     vp_size_text(report_int(&counters, "managed_bytes_peak"), size, sizeof size));
    }
    if (opts->world > 1)
        text_add(out, "rank 0 of %lld; the other ranks were not run", (long long)opts->world);
    if (found->n_cuda > 1)
        text_add(out, "%d processes used the device; this is the largest", found->n_cuda);
    if (vp_json_has(root, "notes") && vp_json_array(root, "notes", &array, &n, NULL) == VP_OK)
        for (int64_t i = 0; i < n && vp_json_element(&array, i, &at, NULL) == VP_OK; i++) {
            const char *text;

            if (vp_json_as_string(&at, &text, NULL) == VP_OK)
                text_add(out, "%s", text);
        }
    if (vp_json_has(root, "selections") && vp_json_array(root, "selections", &array, &n, NULL) == VP_OK)
        for (int64_t i = 0; i < n && i < MAX_SHOWN_READS && vp_json_element(&array, i, &at, NULL) == VP_OK; i++)
            text_add(out, "boolean masks select %g %% of their elements (--select): %s, %lld times",
                     100 * opts->select_frac, report_text(&at, "where"), (long long)report_int(&at, "n"));
    if (vp_json_has(root, "reads") && vp_json_array(root, "reads", &array, &n, NULL) == VP_OK)
        for (int64_t i = 0; i < n && vp_json_element(&array, i, &at, NULL) == VP_OK; i++) {
            if (i == MAX_SHOWN_READS) {
                text_add(out, "device values were read at %lld further places", (long long)(n - i));
                break;
            }
            text_add(out, "device values read as %s: %s, %lld times, %lld bytes in all",
                     opts->value ? opts->value : "zero", report_text(&at, "where"),
                     (long long)report_int(&at, "n"), (long long)report_int(&at, "bytes"));
        }
    return out;
}

static json_t *document_of(const vp_dryrun_opts *opts, const findings *found, const char *verdict,
                           int child_exit_code, const char *reason)
{
    json_t      *doc = json_object();
    vp_json_node root, oom, counters, error;
    bool         have = found->report != NULL;
    int64_t      reserved, outside = opts->device->outside_bytes;

    if (have)
        root = vp_json_root(found->report);
    if (have && report_object(&root, "counters", &counters))
        outside += report_int(&counters, "outside_bytes");
    reserved = have ? report_int(&root, "reserved_peak_bytes") : 0;
    json_object_set_new(doc, "schema_version", json_integer(1));
    json_object_set_new(doc, "device", json_string(opts->device->name));
    json_object_set_new(doc, "verdict", json_string(verdict));
    json_object_set_new(doc, "exit_code", json_integer(child_exit_code));
    json_object_set_new(doc, "budget_bytes", json_integer(opts->budget_bytes));
    json_object_set_new(doc, "allocated_peak_bytes",
                        number_or_zero(have ? report_int(&root, "allocated_peak_bytes") : 0));
    json_object_set_new(doc, "reserved_peak_bytes", number_or_zero(reserved));
    json_object_set_new(doc, "requested_peak_bytes",
                        number_or_zero(have ? report_int(&root, "requested_peak_bytes") : 0));
    json_object_set_new(doc, "device_bytes", number_or_zero(reserved ? reserved + outside : 0));
    json_object_set_new(doc, "outside_bytes", number_or_zero(outside));
    json_object_set_new(doc, "peak_phase", have ? escaped(report_text(&root, "peak_phase")) : json_null());
    json_object_set_new(doc, "phases", have ? phases_of(&root) : json_array());
    json_object_set_new(doc, "items", have ? items_of(&root) : json_array());
    json_object_set_new(doc, "owners", have ? owners_of(&root) : json_array());
    json_object_set_new(doc, "unsupported", json_incref(found->unsupported));
    json_object_set_new(doc, "assumptions", assumptions_of(opts, found, have ? &root : NULL));
    if (have && report_object(&root, "oom", &oom)) {
        json_object_set_new(doc, "oom", json_pack("{s:I,s:I,s:I,s:o,s:o}",
            "requested_bytes", (json_int_t)report_int(&oom, "requested_bytes"),
            "allocated_bytes", (json_int_t)report_int(&oom, "allocated_bytes"),
            "reserved_bytes", (json_int_t)report_int(&oom, "reserved_bytes"),
            "phase", escaped(report_text(&oom, "phase")), "where", escaped(report_text(&oom, "where"))));
        json_object_set_new(doc, "remedies", remedies_of(&root, json_object_get(doc, "items")));
    }
    if (have && report_object(&root, "error", &error))
        json_object_set_new(doc, "error", json_pack("{s:o,s:o}", "type", escaped(report_text(&error, "type")),
                                                    "message", escaped(report_text(&error, "message"))));
    json_object_set_new(doc, "reason", reason[0] ? json_string(reason) : json_null());
    if (have)
        json_object_set_new(doc, "versions", json_pack("{s:o,s:o}", "torch", escaped(report_text(&root, "torch")),
                                                       "python", escaped(report_text(&root, "python"))));
    json_object_set_new(doc, "optimizer_steps",
                        json_integer(have ? (json_int_t)report_int(&root, "optimizer_steps") : 0));
    return doc;
}

/* ---- the verdict ---------------------------------------------------------------------------------------- */

typedef struct judgement {
    const char *verdict;       /* fits | oom | failed */
    int         exit_code;     /* of vplan */
    char        reason[600];   /* "" when there is nothing to add */
} judgement;

static void judge(const vp_child_result *child, const findings *found, judgement *out)
{
    vp_json_node root, oom, error = {0};
    bool         have   = found->report != NULL;
    bool         was_oom = false, had_error = false;
    const char  *type   = "";
    char         shown[400];

    out->verdict   = "failed";
    out->exit_code = vp_status_exit_code(VP_ERR_INPUT);
    out->reason[0] = '\0';
    if (have) {
        root      = vp_json_root(found->report);
        was_oom   = report_object(&root, "oom", &oom);
        had_error = report_object(&root, "error", &error);
        type      = had_error ? report_text(&error, "type") : "";
    }
    if (child->end == VP_CHILD_INTERRUPTED) {
        out->exit_code = 128 + (child->term_signal ? child->term_signal : SIGINT);
        snprintf(out->reason, sizeof out->reason, "interrupted");
    } else if (child->end == VP_CHILD_TIMED_OUT) {
        snprintf(out->reason, sizeof out->reason, "the command ran longer than --timeout and was ended");
    } else if (json_array_size(found->unsupported) > 0) {
        const json_t *first = json_array_get(found->unsupported, 0);

        snprintf(out->reason, sizeof out->reason, "%s of %s is not modelled",
                 json_string_value(json_object_get(first, "function")),
                 json_string_value(json_object_get(first, "library")));
    } else if (strcmp(type, "version") == 0 || strcmp(type, "unsupported") == 0) {
        snprintf(out->reason, sizeof out->reason, "%s",
                 vp_text_escape(report_text(&error, "message"), shown, sizeof shown));
    } else if (strcmp(type, "environment") == 0) {
        out->exit_code = vp_status_exit_code(VP_ERR_DEVICE);
        snprintf(out->reason, sizeof out->reason, "%s",
                 vp_text_escape(report_text(&error, "message"), shown, sizeof shown));
    } else if (found->host_full[0]) {
        out->exit_code = vp_status_exit_code(VP_ERR_DEVICE);
        snprintf(out->reason, sizeof out->reason,
                 "host memory ran out (%s): weights were made on the CPU. Make them on the device "
                 "(torch.device(\"cuda\")), or load them with --fake-weights and device_map or "
                 "low_cpu_mem_usage", found->host_full);
    } else if (child->end == VP_CHILD_SIGNALED) {
        out->exit_code = 128 + child->term_signal;
        snprintf(out->reason, sizeof out->reason, "the command was ended by signal %d (%s)%s",
                 child->term_signal, strsignal(child->term_signal),
                 child->term_signal == SIGKILL ? "; the kernel does this when host memory runs out"
                 : child->term_signal == SIGSEGV ? "; host code that touches device memory ends like this" : "");
    } else if (child->exit_code != 0 && was_oom) {
        out->verdict   = "oom";
        out->exit_code = vp_status_exit_code(VP_ERR_NO_FIT);
    } else if (strcmp(type, "ModuleNotFoundError") == 0 &&
               strstr(report_text(&error, "message"), "'torch'")) {
        out->exit_code = vp_status_exit_code(VP_ERR_DEVICE);
        snprintf(out->reason, sizeof out->reason, "the command's Python has no torch");
    } else if (strcmp(type, "ImportError") == 0 &&
               (strstr(report_text(&error, "message"), "undefined symbol") ||
                strstr(report_text(&error, "message"), "cannot open shared object"))) {
        snprintf(out->reason, sizeof out->reason, "a library asks for what the stand-in does not have: %s",
                 vp_text_escape(report_text(&error, "message"), shown, sizeof shown));
    } else if (child->exit_code != 0) {
        snprintf(out->reason, sizeof out->reason, "the command ended with exit code %d%s%s", child->exit_code,
                 type[0] ? ": " : "", vp_text_escape(type, shown, sizeof shown));
    } else if (!have || !report_text(&root, "torch")[0]) {
        out->exit_code = vp_status_exit_code(VP_ERR_DEVICE);
        snprintf(out->reason, sizeof out->reason, "the command ended well, but no PyTorch ran under the probe "
                 "(is PYTHONPATH cleared, or python started with -I or -E?)");
    } else {
        out->verdict   = "fits";
        out->exit_code = 0;
        if (was_oom)
            snprintf(out->reason, sizeof out->reason,
                     "an out-of-memory error was raised and caught by the command");
        else if (!report_bool(&root, "cuda"))
            snprintf(out->reason, sizeof out->reason, "the command never used the device");
    }
}

vp_status vp_dryrun_run(const vp_dryrun_opts *opts, vp_dryrun_result *result, vp_err *err)
{
    vp_status       st = VP_OK;
    environment     env = {0};
    findings        found = {0};
    vp_child_result child = {0};
    judgement       judged;
    char            null_dir[PATH_MAX], folder[PATH_MAX] = "";
    char           *data = NULL;
    int64_t         n_data;

    result->document  = NULL;
    result->exit_code = 1;
    found.unsupported = json_array();
    VP_TRY_ALLOC(err, found.unsupported);
    if (opts->snapshot_path && !opts->force && access(opts->snapshot_path, F_OK) == 0) {
        st = VP_FAIL(err, VP_ERR_USAGE, "%s exists: say --force to replace it", opts->snapshot_path);
        goto out;
    }
    VP_TRY(find_null(null_dir, sizeof null_dir, err));
    VP_TRY(make_folder(folder, sizeof folder, err));
    VP_TRY(make_environment(opts, null_dir, folder, &env, err));
    vp_child_opts child_opts = {.argv = opts->command, .env_add = env.vars, .search_path = true,
                                .out = VP_CHILD_TO_STDERR, .err = VP_CHILD_INHERIT,
                                .timeout_s = opts->timeout_s, .grace_s = 5};
    VP_TRY(vp_child_run(&child_opts, &child, err));
    VP_TRY(collect(folder, &found, err));
    judge(&child, &found, &judged);
    result->document  = document_of(opts, &found, judged.verdict,
                                    child.end == VP_CHILD_EXITED ? child.exit_code : 128 + child.term_signal,
                                    judged.reason);
    result->exit_code = judged.exit_code;
    if (opts->snapshot_path && found.snapshot[0]) {
        VP_TRY(vp_file_read(found.snapshot, (int64_t)2 << 30, &data, &n_data, err));
        VP_TRY(vp_file_write(opts->snapshot_path, data, (size_t)n_data, opts->force, err));
    }
out:
    if (st != VP_OK && result->document) {
        json_decref(result->document);
        result->document = NULL;
    }
    free(data);
    vp_child_result_release(&child);
    vp_json_doc_free(found.report);
    json_decref(found.unsupported);
    env_release(&env);
    if (folder[0])
        remove_folder(folder);
    return st;
}

/* Where the config of a model lies: its path, or a file in folder that holds a built-in one. */
static vp_status config_of(const char *model, const char *folder, char *path, size_t size, vp_err *err)
{
    vp_status st = VP_OK;

    if ((size_t)snprintf(path, size, "%s", model) >= size)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "%.40s...: a path that is too long", model));
    for (int i = 0; vp_zoo_at(i); i++)
        if (strcmp(vp_zoo_at(i)->name, model) == 0) {
            const char *text = vp_zoo_at(i)->config;

            if ((size_t)snprintf(path, size, "%s/config.json", folder) >= size)
                VP_TRY(VP_FAIL(err, VP_ERR_STORAGE, "the path of the temporary folder is too long"));
            VP_TRY(vp_file_write(path, text, strlen(text), true, err));
            goto out;
        }
    if (access(model, F_OK) != 0 && vp_hub_is_id(model))
        VP_TRY(vp_hub_find(model, VP_HUB_CONFIG, path, size, err));
out:
    return st;
}

vp_status vp_dryrun_fake_weights(const char *model, const char *out_dir, const char *dtype, bool force,
                                 char *const *python, int *exit_code, vp_err *err)
{
    vp_status       st = VP_OK;
    vp_child_result child = {0};
    environment     env = {0};
    vp_text         preload = {0};
    char            null_dir[PATH_MAX], script[PATH_MAX + 32], folder[PATH_MAX] = "", config[PATH_MAX];
    char           *argv[32];
    int             n = 0;

    VP_TRY(find_null(null_dir, sizeof null_dir, err));
    VP_TRY(make_folder(folder, sizeof folder, err));
    VP_TRY(config_of(model, folder, config, sizeof config, err));
    snprintf(script, sizeof script, "%s/probe/fake_weights.py", null_dir);
    VP_TRY(preload_list(null_dir, &preload, err));
    env_prepend(&env, "LD_PRELOAD", preload.data);      /* a torch without NVIDIA's libraries will do */
    env_prepend(&env, "LD_LIBRARY_PATH", null_dir);
    env_set(&env, "CUDA_VISIBLE_DEVICES=");
    env_set(&env, "HF_HUB_OFFLINE=1");
    VP_TRY_ALLOC(err, !env.failed);
    for (; python[n] && n < 20; n++)
        argv[n] = python[n];
    argv[n++] = script;
    argv[n++] = config;
    argv[n++] = (char *)out_dir;
    argv[n++] = (char *)(dtype ? dtype : "");
    argv[n++] = force ? "force" : "";
    argv[n]   = NULL;
    vp_child_opts opts = {.argv = argv, .env_add = env.vars, .search_path = true, .out = VP_CHILD_TO_STDERR,
                          .err = VP_CHILD_INHERIT, .grace_s = 5};
    VP_TRY(vp_child_run(&opts, &child, err));
    *exit_code = child.end == VP_CHILD_EXITED ? child.exit_code : 128 + child.term_signal;
out:
    vp_child_result_release(&child);
    vp_text_release(&preload);
    env_release(&env);
    if (folder[0])
        remove_folder(folder);
    return st;
}
