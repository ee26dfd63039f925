#include "dryrun/dryrun_internal.h"

#include "base/text.h"
#include "base/units.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHOWN_READS = 20 };

static json_t *escaped(const char *text)
{
    char shown[1024];

    return json_string(vp_text_escape(text, shown, sizeof shown));
}

/* An object's members that are text. */
static json_t *texts_of(const vp_json_node *object)
{
    json_t     *out = json_object(), *value;
    const char *key;

    json_object_foreach (object->value, key, value)
        if (json_is_string(value))
            json_object_set_new(out, key, escaped(json_string_value(value)));
    return out;
}

static json_t *phases_of(const vp_json_node *root)
{
    json_t      *out = json_array();
    vp_json_node array, at;
    int64_t      n = 0;

    if (!vp_json_has(root, "phases") || vp_json_array(root, "phases", &array, &n, NULL) != VP_OK)
        return out;
    for (int64_t i = 0; i < n && vp_json_element(&array, i, &at, NULL) == VP_OK; i++)
        json_array_append_new(
            out,
            json_pack("{s:o,s:I,s:I,s:I,s:I,s:I}", "name",
                      escaped(vp_dryrun_report_text(&at, "name")), "allocated_bytes",
                      (json_int_t)vp_dryrun_report_int(&at, "allocated_bytes"), "reserved_bytes",
                      (json_int_t)vp_dryrun_report_int(&at, "reserved_bytes"), "requested_bytes",
                      (json_int_t)vp_dryrun_report_int(&at, "requested_bytes"),
                      "allocated_after_bytes",
                      (json_int_t)vp_dryrun_report_int(&at, "allocated_after_bytes"),
                      "reserved_after_bytes",
                      (json_int_t)vp_dryrun_report_int(&at, "reserved_after_bytes")));
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
        json_array_append_new(out,
                              json_pack("{s:o,s:o,s:o,s:I,s:I}", "kind",
                                        escaped(vp_dryrun_report_text(&at, "kind")), "frame",
                                        escaped(vp_dryrun_report_text(&at, "frame")), "phase",
                                        escaped(vp_dryrun_report_text(&at, "phase")), "bytes",
                                        (json_int_t)vp_dryrun_report_int(&at, "bytes"), "tensors",
                                        (json_int_t)vp_dryrun_report_int(&at, "n_tensors")));
    return out;
}

/* Bytes at the allocated peak by kind of tensor, as an estimate lists its items: they sum to the
 * peak. What the allocator rounds up, and what the history did not show, are items of their own. */
static json_t *items_of(const vp_json_node *root)
{
    json_t      *out = json_array();
    vp_json_node kinds;
    const char  *name;
    json_t      *value;
    int64_t      peak = vp_dryrun_report_int(root, "allocated_peak_bytes"), sum = 0;
    int64_t      requested = vp_dryrun_report_int(root, "requested_peak_bytes");

    if (vp_dryrun_report_object(root, "kinds", &kinds))
        json_object_foreach (kinds.value, name, value)
            if (json_is_integer(value) && json_integer_value(value) > 0) {
                json_array_append_new(out,
                                      json_pack("{s:o,s:I,s:s}", "name", escaped(name), "bytes",
                                                json_integer_value(value), "class", "exact"));
                sum += json_integer_value(value);
            }
    if (sum > 0 && requested > sum && requested <= peak) {
        json_array_append_new(out, json_pack("{s:s,s:I,s:s}", "name", "unattributed", "bytes",
                                             (json_int_t)(requested - sum), "class", "exact"));
        sum = requested;
    }
    assert(sum >= 0);
    if (peak > sum)
        json_array_append_new(out, json_pack("{s:s,s:I,s:s}", "name",
                                             sum ? "allocator_slack" : "unattributed", "bytes",
                                             (json_int_t)(peak - sum), "class", "exact"));
    return out;
}

/* What the figure for the context rests on. */
static void context_added(json_t *out, const vp_device *device)
{
    vp_dryrun_context context = vp_dryrun_context_of(device);
    char              a[64], b[64];

    vp_size_text(context.least_bytes, a, sizeof a);
    vp_size_text(context.bytes, b, sizeof b);
    if (context.class_ == VP_CLASS_ASSUMED)
        vp_dryrun_text_add(out,
                           "context and libraries outside PyTorch's allocator: %s, not measured on "
                           "this card; others take %s and more",
                           b, a);
    else
        vp_dryrun_text_add(out, "context and libraries outside PyTorch's allocator: %s%s%s, %s: %s",
                           context.least_bytes < context.bytes ? a : "",
                           context.least_bytes < context.bytes ? " to " : "", b,
                           vp_figure_class_name(context.class_), context.source);
}

/* Which ranks were not run. */
static void ranks_added(json_t *out, const vp_dryrun_opts *opts, const vp_dryrun_findings *found)
{
    const char *played = opts->ranks ? opts->ranks : "0";
    const char *plural = strchr(played, ',') ? "s" : "";

    if (vp_dryrun_all_ranks(opts) || opts->of_kinds)
        return;
    if (opts->world > 1)
        vp_dryrun_text_add(out, "rank%s %s of %lld%s; the other ranks were not run", plural, played,
                           (long long)opts->world, plural[0] ? ", each by itself" : "");
    if (found->n_ranks)
        vp_dryrun_text_add(out,
                           "rank%s %s of the %d that the launcher started; the others were not run",
                           plural, played, found->n_ranks + (int)json_array_size(found->ranks));
}

/* Among the assumptions once collectives have been priced. */
static void links_added(json_t *doc)
{
    json_t *time = json_object_get(doc, "time");

    if (json_number_value(json_object_get(time, "collectives_s")) > 0)
        vp_dryrun_text_add(json_object_get(doc, "assumptions"),
                           "collectives take what NCCL's model of itself says of this card's links "
                           "(%s): all ranks are in one machine, and there when one begins",
                           json_string_value(json_object_get(time, "link")));
}

static json_t *assumptions_of(const vp_dryrun_opts *opts, const vp_dryrun_findings *found,
                              const vp_json_node *root)
{
    json_t      *out = json_array();
    vp_json_node array, at, counters;
    int64_t      n = 0;
    char         size[64];

    if (opts->chosen_by == VP_DRYRUN_DEFAULT)
        vp_dryrun_text_add(out, "no --device, and no GPU here: %s", opts->device->name);
    if (opts->chosen_by == VP_DRYRUN_HERE)
        vp_dryrun_text_add(out, "no --device: the GPU here, %s; dry runs do not use it",
                           opts->device->name);
    context_added(out, opts->device);
    if (!root)
        return out;
    if (vp_dryrun_report_object(root, "counters", &counters)) {
        if (vp_dryrun_report_int(&counters, "outside_bytes"))
            vp_dryrun_text_add(
                out, "communication buffers: %s, as NCCL was seen to take on other machines",
                vp_size_text(vp_dryrun_report_int(&counters, "outside_bytes"), size, sizeof size));
        if (vp_dryrun_report_int(&counters, "managed_bytes_peak"))
            vp_dryrun_text_add(out, "unified memory (%s) was counted as host memory",
                               vp_size_text(vp_dryrun_report_int(&counters, "managed_bytes_peak"),
                                            size, sizeof size));
    }
    ranks_added(out, opts, found);
    if (found->n_cuda > 1 && found->n_cuda > (int)json_array_size(found->ranks))
        vp_dryrun_text_add(out, "%d processes used the device; this is the largest", found->n_cuda);
    if (vp_json_has(root, "notes") && vp_json_array(root, "notes", &array, &n, NULL) == VP_OK)
        for (int64_t i = 0; i < n && vp_json_element(&array, i, &at, NULL) == VP_OK; i++) {
            const char *text;

            if (vp_json_as_string(&at, &text, NULL) == VP_OK)
                vp_dryrun_text_add(out, "%s", text);
        }
    if (vp_json_has(root, "selections") &&
        vp_json_array(root, "selections", &array, &n, NULL) == VP_OK)
        for (int64_t i = 0;
             i < n && i < MAX_SHOWN_READS && vp_json_element(&array, i, &at, NULL) == VP_OK; i++)
            vp_dryrun_text_add(
                out, "boolean masks select %g %% of their elements (--select): %s, %lld times",
                100 * opts->select_frac, vp_dryrun_report_text(&at, "where"),
                (long long)vp_dryrun_report_int(&at, "n"));
    if (vp_json_has(root, "reads") && vp_json_array(root, "reads", &array, &n, NULL) == VP_OK)
        for (int64_t i = 0; i < n && vp_json_element(&array, i, &at, NULL) == VP_OK; i++) {
            if (i == MAX_SHOWN_READS) {
                vp_dryrun_text_add(out, "device values were read at %lld further places",
                                   (long long)(n - i));
                break;
            }
            vp_dryrun_text_add(out, "device values read as %s: %s, %lld times, %lld bytes in all",
                               opts->value ? opts->value : "zero",
                               vp_dryrun_report_text(&at, "where"),
                               (long long)vp_dryrun_report_int(&at, "n"),
                               (long long)vp_dryrun_report_int(&at, "bytes"));
        }
    return out;
}

/* What was allocated after each optimizer step, and what earlier steps have left there. */
static void growth_set(json_t *doc, const vp_json_node *root)
{
    vp_json_node growth;
    json_t      *out, *row, *frame;
    size_t       i;

    if (!vp_dryrun_report_object(root, "growth", &growth))
        return;
    out = json_deep_copy(growth.value);
    json_array_foreach (json_object_get(out, "kept"), i, row) {
        frame = json_object_get(row, "frame");
        json_object_set_new(row, "frame",
                            escaped(json_is_string(frame) ? json_string_value(frame) : ""));
    }
    json_object_set_new(doc, "growth", out);
}

/* What each rank took, which of them are alike, and whose figures the others of the document are. */
static void ranks_set(json_t *doc, const json_t *ranks, int64_t worst)
{
    json_t *rows = json_array(), *row, *copy;
    size_t  i;

    json_array_foreach (ranks, i, row) {
        copy = json_copy(row);
        json_object_del(copy, "phases");
        json_array_append_new(rows, copy);
    }
    json_object_set_new(doc, "ranks", rows);
    json_object_set_new(doc, "alike", vp_dryrun_alike(ranks));
    json_object_set_new(doc, "worst_rank", json_integer((json_int_t)worst));
}

json_t *vp_dryrun_document(const vp_dryrun_opts *opts, const vp_dryrun_findings *found,
                           const char *verdict, int child_exit_code, const char *reason)
{
    json_t           *doc = json_object();
    vp_json_node      root, oom, counters, error, program, cut, arguments;
    bool              have    = found->report != NULL;
    vp_dryrun_context context = vp_dryrun_context_of(opts->device);
    int64_t           reserved, outside = context.bytes;

    if (have)
        root = vp_json_root(found->report);
    if (have && vp_dryrun_report_object(&root, "counters", &counters))
        outside += vp_dryrun_report_int(&counters, "outside_bytes");
    reserved = have ? vp_dryrun_report_int(&root, "reserved_peak_bytes") : 0;
    json_object_set_new(doc, "schema_version", json_integer(1));
    json_object_set_new(doc, "device", json_string(opts->device->name));
    json_object_set_new(doc, "verdict", json_string(verdict));
    json_object_set_new(doc, "exit_code", json_integer(child_exit_code));
    json_object_set_new(doc, "budget_bytes", json_integer(opts->budget_bytes));
    json_object_set_new(
        doc, "allocated_peak_bytes",
        json_integer(have ? vp_dryrun_report_int(&root, "allocated_peak_bytes") : 0));
    json_object_set_new(doc, "reserved_peak_bytes", json_integer(reserved));
    json_object_set_new(
        doc, "requested_peak_bytes",
        json_integer(have ? vp_dryrun_report_int(&root, "requested_peak_bytes") : 0));
    json_object_set_new(doc, "device_bytes", json_integer(reserved ? reserved + outside : 0));
    json_object_set_new(doc, "outside_bytes", json_integer(outside));
    json_object_set_new(doc, "outside_least_bytes",
                        json_integer(outside - context.bytes + context.least_bytes));
    json_object_set_new(doc, "outside_class", json_string(vp_figure_class_name(context.class_)));
    json_object_set_new(doc, "peak_phase",
                        have ? escaped(vp_dryrun_report_text(&root, "peak_phase")) : json_null());
    json_object_set_new(doc, "phases", have ? phases_of(&root) : json_array());
    json_object_set_new(doc, "items", have ? items_of(&root) : json_array());
    json_object_set_new(doc, "owners", have ? owners_of(&root) : json_array());
    if (have)
        growth_set(doc, &root);
    if (json_array_size(found->ranks) > 1)
        ranks_set(doc, found->ranks, have ? vp_dryrun_report_int(&root, "rank") : 0);
    json_object_set_new(doc, "unsupported", json_incref(found->unsupported));
    json_object_set_new(doc, "assumptions", assumptions_of(opts, found, have ? &root : NULL));
    if (have && vp_dryrun_report_object(&root, "oom", &oom)) {
        json_object_set_new(
            doc, "oom",
            json_pack("{s:I,s:I,s:I,s:o,s:o}", "requested_bytes",
                      (json_int_t)vp_dryrun_report_int(&oom, "requested_bytes"), "allocated_bytes",
                      (json_int_t)vp_dryrun_report_int(&oom, "allocated_bytes"), "reserved_bytes",
                      (json_int_t)vp_dryrun_report_int(&oom, "reserved_bytes"), "phase",
                      escaped(vp_dryrun_report_text(&oom, "phase")), "where",
                      escaped(vp_dryrun_report_text(&oom, "where"))));
        json_object_set_new(doc, "remedies",
                            vp_dryrun_remedies(&root, json_object_get(doc, "items")));
    }
    if (have && vp_dryrun_report_object(&root, "error", &error))
        json_object_set_new(doc, "error",
                            json_pack("{s:o,s:o}", "type",
                                      escaped(vp_dryrun_report_text(&error, "type")), "message",
                                      escaped(vp_dryrun_report_text(&error, "message"))));
    json_object_set_new(doc, "reason", reason[0] ? json_string(reason) : json_null());
    if (have)
        json_object_set_new(doc, "versions",
                            json_pack("{s:o,s:o}", "torch",
                                      escaped(vp_dryrun_report_text(&root, "torch")), "python",
                                      escaped(vp_dryrun_report_text(&root, "python"))));
    if (have && vp_dryrun_report_object(&root, "arguments", &arguments))
        json_object_set_new(doc, "arguments", texts_of(&arguments));
    if (have && vp_dryrun_report_object(&root, "program", &program))
        json_object_set_new(doc, "time", vp_dryrun_price(opts->device, &program));
    links_added(doc);
    if (have && opts->steps)
        json_object_set_new(doc, "ended_by",
                            vp_dryrun_report_object(&root, "cut", &cut)
                                ? escaped(vp_dryrun_report_text(&cut, "how"))
                                : json_null());
    if (found->host_bytes)
        json_object_set_new(doc, "host_bytes", json_integer((json_int_t)found->host_bytes));
    json_object_set_new(
        doc, "optimizer_steps",
        json_integer(have ? (json_int_t)vp_dryrun_report_int(&root, "optimizer_steps") : 0));
    return doc;
}
