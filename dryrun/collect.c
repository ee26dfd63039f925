#include "dryrun/dryrun_internal.h"

#include "base/file.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_REPORT_BYTES = 4 << 20 };

static void read_unsupported(const char *path, json_t *out)
{
    char   *data = NULL, *line, *rest;
    int64_t n;

    if (vp_file_read(path, 1 << 20, &data, &n, NULL) != VP_OK)
        return;
    for (line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *function = strchr(line, '\t'), *why, shown[3][400];

        if (!function)
            continue;
        *function++ = '\0';
        why         = strchr(function, '\t');
        if (why)
            *why++ = '\0';
        json_array_append_new(out,
                              json_pack("{s:s,s:s,s:s}", "library",
                                        vp_text_escape(line, shown[0], sizeof shown[0]), "function",
                                        vp_text_escape(function, shown[1], sizeof shown[1]), "why",
                                        vp_text_escape(why ? why : "", shown[2], sizeof shown[2])));
    }
    free(data);
}

/* How much an error says: one of ranks that wait for each other most; one that follows from the end of another rank, or of
 * the process that a launcher started (accelerate, torchrun), least. 0: none. */
static int64_t error_rank(const vp_json_node *root)
{
    static const char *const followers[] = {"other_rank",       "DistNetworkError",
                                            "DistStoreError",   "DistBackendError",
                                            "ChildFailedError", "CalledProcessError"};
    vp_json_node             error;
    const char              *type;

    if (!vp_dryrun_report_object(root, "error", &error))
        return 0;
    type = vp_dryrun_report_text(&error, "type");
    for (size_t i = 0; i < sizeof followers / sizeof *followers; i++)
        if (strcmp(type, followers[i]) == 0)
            return 1;
    return strcmp(type, "ranks") == 0 ? 3 : 2;
}

/* Whether a report says more than another: of a process that used the device, by its error, by what it reserved and
 * allocated; the lower rank of equal ones. */
static bool says_more(const vp_json_doc *doc, const vp_json_doc *than)
{
    vp_json_node a = vp_json_root(doc), b = vp_json_root(than);
    int64_t      by[][2] = {{vp_dryrun_report_bool(&a, "cuda"), vp_dryrun_report_bool(&b, "cuda")},
                            {error_rank(&a), error_rank(&b)},
                            {vp_dryrun_report_int(&a, "reserved_peak_bytes"),
                             vp_dryrun_report_int(&b, "reserved_peak_bytes")},
                            {vp_dryrun_report_int(&a, "allocated_peak_bytes"),
                             vp_dryrun_report_int(&b, "allocated_peak_bytes")},
                            {vp_dryrun_report_int(&b, "rank"), vp_dryrun_report_int(&a, "rank")}};

    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (by[i][0] != by[i][1])
            return by[i][0] > by[i][1];
    return false;
}

/* What the allocator was told; where several processes were, one that did not get over its import of torch. */
static void read_allocator(const char *path, bool unread, vp_dryrun_findings *found)
{
    char   *data = NULL;
    int64_t n;

    if ((found->allocator[0] && !unread) || vp_file_read(path, 4096, &data, &n, NULL) != VP_OK)
        return;
    vp_text_escape(data, found->allocator, sizeof found->allocator);
    found->allocator_unread = unread;
    free(data);
}

/* The error of a process that may not be the one whose report is taken: the one that says most. */
static void keep_error(const vp_json_node *root, vp_dryrun_findings *found)
{
    vp_json_node error;

    if (!vp_dryrun_report_object(root, "error", &error) || error_rank(root) < found->error_rank)
        return;
    found->error_rank = error_rank(root);
    snprintf(found->type, sizeof found->type, "%s", vp_dryrun_report_text(&error, "type"));
    snprintf(found->message, sizeof found->message, "%s", vp_dryrun_report_text(&error, "message"));
}

vp_status vp_dryrun_collect(const char *folder, vp_dryrun_findings *found, vp_err *err)
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
        } else if (strncmp(entry->d_name, "allocator.", 10) == 0 ||
                   strncmp(entry->d_name, "allocator_read.", 15) == 0) {
            read_allocator(path, entry->d_name[9] == '.', found);
        } else if (strncmp(entry->d_name, "rank.", 5) == 0) {
            found->n_ranks++;
        } else if (strncmp(entry->d_name, "host.", 5) == 0 &&
                   vp_file_read(path, 64, &data, &n, NULL) == VP_OK) {
            found->host_bytes = strtoll(data, NULL, 10);
            free(data);
            data = NULL;
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
            if (vp_dryrun_report_bool(&root, "cuda")) {
                found->n_cuda++;
                vp_dryrun_rank_add(found->ranks, &root);
            } else {
                keep_error(&root, found);
            }
            if (!found->report || says_more(doc, found->report)) {
                vp_json_doc_free(found->report);
                found->report = doc;
                doc           = NULL;
                best_pid      = strtol(entry->d_name + 7, NULL, 10);
            }
            vp_json_doc_free(doc);
            doc = NULL;
        }
    }
    if (json_array_size(found->ranks) > 1)
        VP_TRY(vp_dryrun_compare_ranks(folder, found->mismatch, sizeof found->mismatch, err));
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
