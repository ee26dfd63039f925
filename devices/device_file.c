/* devices/device_file.c: a device as JSON, docs/device-file.md: read strictly, written so that
 * what is written can be read. */
#include "devices/devices.h"

#include "base/json.h"
#include "base/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const char *vp_figure_class_name(vp_figure_class class_)
{
    static const char *const names[] = {"assumed", "derived", "cited", "measured"};

    assert(class_ <= VP_CLASS_MEASURED);
    return names[class_];
}

static const char *const figure_keys[] = {
#define X(name, key, text) key,
    VP_DEVICE_FIGURES(X)
#undef X
        NULL};

static double *rate_of(vp_device *d, vp_device_figure figure)
{
    switch (figure) {
    case VP_FIGURE_MEMORY:
        return &d->memory_bytes_per_s;
    case VP_FIGURE_FP32:
        return &d->fp32_flop_per_s;
    case VP_FIGURE_TF32:
        return &d->tf32_flop_per_s;
    case VP_FIGURE_BF16:
        return &d->bf16_flop_per_s;
    case VP_FIGURE_FP16:
        return &d->fp16_flop_per_s;
    case VP_FIGURE_FP8:
        return &d->fp8_flop_per_s;
    case VP_FIGURE_INT8:
        return &d->int8_op_per_s;
    case VP_FIGURE_HOST_LINK:
        return &d->host_link_bytes_per_s;
    case VP_FIGURE_PEER_LINK:
        return &d->peer_link_bytes_per_s;
    case VP_FIGURE_HOST_UPDATE:
        return &d->host_update_bytes_per_s;
    default:
        return NULL;
    }
}

/* Words of the file, shown harmlessly; what does not fit ends in "...". */
static vp_status read_text(const vp_json_node *node, const char *key, char *out, size_t out_size,
                           vp_err *err)
{
    const char *text;
    vp_status   st = VP_OK;

    VP_TRY(vp_json_string(node, key, &text, err));
    vp_text_escape(text, out, out_size);
out:
    return st;
}

/* Whether the device has tensor cores for a format that begins with compute capability `least`:
 * as the file says, else by the capability, else (no CUDA device) by whether a rate is given.
 * What contradicts itself is an error. */
static vp_status read_format(const vp_json_node *root, const char *key, const char *rate_key,
                             double rate, int capability, int least, bool *out, vp_err *err)
{
    vp_status st = VP_OK;

    *out = capability ? capability >= least : rate > 0;
    if (vp_json_has(root, key)) {
        VP_TRY(vp_json_bool(root, key, out, err));
        if (*out && capability && capability < least)
            VP_TRY(vp_json_fail(root, key, err,
                                "compute_capability %d has no %s tensor cores; they begin with %d",
                                capability, key, least));
    }
    if (rate > 0 && !*out)
        VP_TRY(vp_json_fail(root, rate_key, err, "is given, but the device has no %s%s", key,
                            vp_json_has(root, key) ? "" : " by its compute_capability"));
out:
    return st;
}

static vp_status read_source(const vp_json_node *sources, vp_device_figure figure,
                             vp_figure_source *out, vp_err *err)
{
    static const char *const keys[] = {"class", "source", NULL};
    vp_json_node             node;
    const char              *word;
    char                     shown[64];
    vp_status                st = VP_OK;

    assert(figure < VP_N_FIGURES);
    VP_TRY(vp_json_object(sources, figure_keys[figure], &node, err));
    VP_TRY(vp_json_only_keys(&node, keys, err));
    VP_TRY(vp_json_string(&node, "class", &word, err));
    for (int c = VP_CLASS_ASSUMED;; c++) {
        if (c > VP_CLASS_MEASURED)
            VP_TRY(vp_json_fail(&node, "class", err,
                                "must be cited, derived, measured or assumed, is \"%s\"",
                                vp_text_escape(word, shown, sizeof shown)));
        out->class_ = (vp_figure_class)c;
        if (strcmp(word, vp_figure_class_name(out->class_)) == 0)
            break;
    }
    VP_TRY(read_text(&node, "source", out->text, sizeof out->text, err));
out:
    return st;
}

static vp_status read_sources(const vp_json_node *root, vp_device *d, vp_err *err)
{
    vp_json_node sources;
    bool         some = vp_json_has(root, "sources");
    vp_status    st   = VP_OK;

    if (some) {
        VP_TRY(vp_json_object(root, "sources", &sources, err));
        VP_TRY(vp_json_only_keys(&sources, figure_keys, err));
    }
    for (int i = 0; i < VP_N_FIGURES; i++) {
        if (some && vp_json_has(&sources, figure_keys[i])) {
            if (!vp_json_has(root, figure_keys[i]))
                VP_TRY(vp_json_fail(&sources, figure_keys[i], err,
                                    "is the source of a figure that the file does not give"));
            VP_TRY(read_source(&sources, i, &d->sources[i], err));
        } else if (vp_json_has(root, figure_keys[i])) {
            d->sources[i].class_ = VP_CLASS_ASSUMED;
            snprintf(d->sources[i].text, sizeof d->sources[i].text,
                     "the device file, which names no source");
        }
    }
out:
    return st;
}

static vp_status from_json(const vp_json_doc *doc, vp_device *d, vp_err *err)
{
    static const char *const keys[] = {"schema_version",
                                       "name",
                                       "alias",
                                       "product",
                                       "bf16",
                                       "fp8",
                                       "unified_memory",
                                       "sources",
#define X(name, key, text) key,
                                       VP_DEVICE_FIGURES(X)
#undef X
                                           NULL};
    vp_json_node root = vp_json_root(doc);
    int64_t      version, capability = 0, multiprocessors = 0;
    vp_status    st = VP_OK;

    *d = (vp_device){0};
    VP_TRY(vp_json_only_keys(&root, keys, err));
    VP_TRY(vp_json_int(&root, "schema_version", 1, 1, &version, err));
    VP_TRY(read_text(&root, "name", d->name, sizeof d->name, err));
    if (!d->name[0] || strcmp(d->name, "cpu") == 0)
        VP_TRY(vp_json_fail(&root, "name", err,
                            d->name[0]
                                ? "\"cpu\" is this machine's own; give the device another name"
                                : "is empty"));
    if (vp_json_has(&root, "alias"))
        VP_TRY(read_text(&root, "alias", d->alias, sizeof d->alias, err));
    if (vp_json_has(&root, "product"))
        VP_TRY(read_text(&root, "product", d->product, sizeof d->product, err));
    VP_TRY(vp_json_int(&root, "usable_bytes", 1, (int64_t)1 << 50, &d->usable_bytes, err));
    if (vp_json_has(&root, "outside_bytes"))
        VP_TRY(vp_json_int(&root, "outside_bytes", 0, d->usable_bytes, &d->outside_bytes, err));
    for (int i = 0; i < VP_N_FIGURES; i++) {
        double *rate = rate_of(d, i);
        if (rate &&
            (i == VP_FIGURE_FP32 || i == VP_FIGURE_MEMORY || vp_json_has(&root, figure_keys[i])))
            VP_TRY(vp_json_real(&root, figure_keys[i], 1, 1e18, rate, err));
    }
    if (vp_json_has(&root, "compute_capability"))
        VP_TRY(vp_json_int(&root, "compute_capability", 0, 999, &capability, err));
    if (vp_json_has(&root, "multiprocessors"))
        VP_TRY(vp_json_int(&root, "multiprocessors", 0, 100000, &multiprocessors, err));
    if (vp_json_has(&root, "l2_bytes"))
        VP_TRY(vp_json_int(&root, "l2_bytes", 0, d->usable_bytes, &d->l2_bytes, err));
    d->compute_capability = (int)capability;
    d->multiprocessors    = (int)multiprocessors;
    VP_TRY(read_format(&root, "bf16", "bf16_flop_per_s", d->bf16_flop_per_s, d->compute_capability,
                       80, &d->bf16, err));
    VP_TRY(read_format(&root, "fp8", "fp8_flop_per_s", d->fp8_flop_per_s, d->compute_capability, 89,
                       &d->fp8, err));
    if (vp_json_has(&root, "unified_memory"))
        VP_TRY(vp_json_bool(&root, "unified_memory", &d->unified, err));
    if (d->unified && d->host_link_bytes_per_s > 0)
        VP_TRY(vp_json_fail(&root, "host_link_bytes_per_s", err,
                            "is given, but unified_memory says that there is no link to cross"));
    if (d->unified && d->host_update_bytes_per_s > 0)
        VP_TRY(vp_json_fail(&root, "host_update_bytes_per_s", err,
                            "is given, but unified_memory says that nothing can be offloaded"));
    VP_TRY(read_sources(&root, d, err));
out:
    return st;
}

vp_status vp_device_read(const char *path, vp_device *out, vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_status    st  = VP_OK;

    VP_TRY(vp_json_read(path, VP_JSON_MAX_BYTES, &doc, err));
    VP_TRY(from_json(doc, out, err));
out:
    vp_json_doc_free(doc);
    return st;
}

vp_status vp_device_parse(const char *name, const char *bytes, int64_t n_bytes, vp_device *out,
                          vp_err *err)
{
    vp_json_doc *doc = NULL;
    vp_status    st  = VP_OK;

    VP_TRY(vp_json_parse(name, bytes, n_bytes, &doc, err));
    VP_TRY(from_json(doc, out, err));
out:
    vp_json_doc_free(doc);
    return st;
}

static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static json_t *figure_json(const vp_device *d, vp_device_figure figure)
{
    vp_device copy = *d;
    double   *rate = rate_of(&copy, figure);

    if (figure == VP_FIGURE_USABLE)
        return json_integer(d->usable_bytes);
    if (figure == VP_FIGURE_OUTSIDE)
        return json_integer(d->outside_bytes);
    if (rate)
        return *rate > 0 ? json_real(*rate) : json_null();
    if (figure == VP_FIGURE_CAPABILITY)
        return d->compute_capability ? json_integer(d->compute_capability) : json_null();
    if (figure == VP_FIGURE_CACHE)
        return d->l2_bytes ? json_integer(d->l2_bytes) : json_null();
    return d->multiprocessors ? json_integer(d->multiprocessors) : json_null();
}

json_t *vp_device_json(const vp_device *d)
{
    json_t *j = json_pack("{s:i, s:s, s:o, s:o}", "schema_version", 1, "name", d->name, "alias",
                          text_or_null(d->alias), "product", text_or_null(d->product));
    json_t *sources = json_object();
    bool    failed  = !j || !sources;

    for (int i = 0; !failed && i < VP_N_FIGURES; i++) {
        json_t *value = figure_json(d, i);
        if (value && !json_is_null(value) && d->sources[i].text[0])
            failed |= json_object_set_new(sources, figure_keys[i],
                                          json_pack("{s:s, s:s}", "class",
                                                    vp_figure_class_name(d->sources[i].class_),
                                                    "source", d->sources[i].text)) != 0;
        failed |= json_object_set_new(j, figure_keys[i], value) != 0;
    }
    failed = failed || json_object_set_new(j, "bf16", json_boolean(d->bf16)) ||
             json_object_set_new(j, "fp8", json_boolean(d->fp8)) ||
             (d->unified && json_object_set_new(j, "unified_memory", json_true())) ||
             json_object_set(j, "sources", sources);
    json_decref(sources);
    if (failed) {
        json_decref(j);
        return NULL;
    }
    return j;
}
