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

int64_t vp_dryrun_report_int(const vp_json_node *node, const char *key)
{
    int64_t value = 0;

    if (!vp_json_has(node, key) || vp_json_int(node, key, 0, INT64_MAX, &value, NULL) != VP_OK)
        return 0;
    return value;
}

const char *vp_dryrun_report_text(const vp_json_node *node, const char *key)
{
    const char *text = "";

    if (!vp_json_has(node, key) || vp_json_string(node, key, &text, NULL) != VP_OK)
        return "";
    return text;
}

bool vp_dryrun_report_bool(const vp_json_node *node, const char *key)
{
    bool value = false;

    return vp_json_has(node, key) && vp_json_bool(node, key, &value, NULL) == VP_OK && value;
}

bool vp_dryrun_report_object(const vp_json_node *node, const char *key, vp_json_node *out)
{
    return vp_json_has(node, key) && vp_json_object(node, key, out, NULL) == VP_OK;
}

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

/* The report that says most: one of a process that used the device, by reserved bytes; else one
 * that names an error; else any. */
static int64_t report_rank(const vp_json_doc *doc)
{
    vp_json_node root = vp_json_root(doc), error;

    if (vp_dryrun_report_bool(&root, "cuda"))
        return 2 + vp_dryrun_report_int(&root, "reserved_peak_bytes");
    return vp_dryrun_report_object(&root, "error", &error) ? 1 : 0;
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
        } else if (strncmp(entry->d_name, "rank.", 5) == 0) {
            found->n_ranks++;
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
            if (vp_dryrun_report_bool(&root, "cuda"))
                found->n_cuda++;
            if (!found->report || report_rank(doc) > report_rank(found->report)) {
                vp_json_doc_free(found->report);
                found->report = doc;
                doc           = NULL;
                best_pid      = strtol(entry->d_name + 7, NULL, 10);
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
