#include "models/model.h"

#include "base/checked.h"
#include "base/text.h"
#include "models/family.h"
#include "models/hub_cache.h"
#include "models/lora.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const vp_family *const families[] = {
#define X(name) &vp_family_##name,
    VP_FAMILY_TABLE(X)
#undef X
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Weights of 4 or 8 bits in the files are another step than that of the model they were made from; but those of MXFP4, which
 * transformers trains only as 16 bits. */
static vp_status refuse_quantised(const vp_json_node *config, vp_err *err)
{
    if (!vp_json_has(config, "quantization_config") || vp_model_is_mxfp4(config->value))
        return VP_OK;
    return vp_json_fail(config, "quantization_config", err,
                        "weights that were quantised beforehand are not supported; give the config "
                        "of the model they were made from, with --qlora for weights of 4 bits");
}

bool vp_model_is_mxfp4(const json_t *config)
{
    const json_t *quantised = json_object_get(config, "quantization_config");
    const char   *method    = json_string_value(json_object_get(quantised, "quant_method"));

    return method && strcmp(method, "mxfp4") == 0;
}

/* Both are files that people have at hand. */
static vp_status refuse_plan(const vp_json_node *config, vp_err *err)
{
    if (vp_json_has(config, "model_type") || !vp_json_has(config, "schema_version"))
        return VP_OK;
    return vp_json_fail(
        config, "model_type", err,
        "is missing: this is no model's config, but a file of vplan's; vplan explain "
        "reads a plan, vplan emit settings");
}

/* Fields whose meaning is the same in every family. */
static vp_status check_common(vp_model *model, const vp_json_node *config, vp_err *err)
{
    static const char *const dtypes[] = {"float32", "float16", "bfloat16", "float64", NULL};
    const char              *dtype[2] = {NULL, NULL};
    vp_status                st       = VP_OK;

    for (int i = 0; i < 2; i++) {
        const char *key = i ? "torch_dtype" : "dtype";
        int         k   = 0;
        if (!vp_json_has(config, key))
            continue;
        VP_TRY(vp_json_string(config, key, &dtype[i], err));
        while (dtypes[k] && strcmp(dtypes[k], dtype[i]) != 0)
            k++;
        if (!dtypes[k])
            VP_TRY(vp_json_fail(
                config, key, err,
                "is not a dtype of model weights (float32, float16, bfloat16, float64)"));
    }
    if (dtype[0] && dtype[1] && strcmp(dtype[0], dtype[1]) != 0)
        VP_TRY(vp_json_fail(config, "torch_dtype", err, "disagrees with dtype"));
    VP_TRY(refuse_quantised(config, err));
    if (vp_json_has(config, "auto_map"))
        vp_model_assume(model, "auto_map (remote code) is ignored: vplan runs no code of a model");
out:
    return st;
}

static bool is_one_of(const char *const *keys, const char *key)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

/* A config is its author's: fields that nothing here reads are no errors, but the answer lists
 * them. */
static vp_status list_unused(vp_model *model, const vp_json_node *config, const char *const *keys,
                             vp_err *err)
{
    static const char *const common[]    = {"model_type",  "architectures",       "dtype",
                                            "torch_dtype", "quantization_config", "auto_map",
                                            NULL};
    static const char *const of_labels[] = {"id2label", "num_labels", "problem_type",
                                            "classifier_dropout", NULL};
    enum { MAX_SHOWN = 40 };
    vp_text     list = {0};
    const char *key;
    json_t     *value;
    char        shown[64];
    int64_t     n  = 0;
    vp_status   st = VP_OK;

    json_object_foreach (config->value, key, value)
        if (!is_one_of(common, key) && !is_one_of(keys, key) &&
            !(model->n_labels && is_one_of(of_labels, key)) && ++n <= MAX_SHOWN)
            vp_text_printf(&list, "%s%s", n > 1 ? ", " : "",
                           vp_text_escape(key, shown, sizeof shown));
    if (n > MAX_SHOWN)
        vp_text_printf(&list, " and %lld more", (long long)(n - MAX_SHOWN));
    VP_TRY_ALLOC(err, !list.failed);
    if (n && vp_arena_grow(model->arena, (void **)&model->assumptions, model->n_assumptions,
                           &model->cap_assumptions, sizeof *model->assumptions))
        model->assumptions[model->n_assumptions++] =
            vp_arena_printf(model->arena, "fields of the config that are not used: %s", list.data);
out:
    vp_text_release(&list);
    return st;
}

/* The family by model_type, or where the config has none by the class that is asked for. */
static vp_status find_family(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                             const vp_family **out, vp_err *err)
{
    const char *type;
    char        known[256] = "", shown[96];
    vp_status   st         = VP_OK;

    *out = NULL;
    if (opts->class_name && !vp_json_has(config, "model_type"))
        for (int f = 0; f < N_FAMILIES; f++)
            if (vp_class_find(families[f]->classes, opts->class_name)) {
                vp_model_assume(model,
                                "model_type is not in the config: %s, the family of the class",
                                families[f]->model_type);
                *out = families[f];
                return VP_OK;
            }
    VP_TRY(refuse_plan(config, err));
    VP_TRY(vp_json_string(config, "model_type", &type, err));
    for (int f = 0; f < N_FAMILIES; f++)
        if (strcmp(families[f]->model_type, type) == 0)
            *out = families[f];
    for (int f = 0; !*out && f < N_FAMILIES; f++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", f ? ", " : "",
                 families[f]->model_type);
    if (!*out)
        VP_TRY(vp_json_fail(config, "model_type", err,
                            "the family \"%s\" is not supported; supported: %s",
                            vp_text_escape(type, shown, sizeof shown), known));
out:
    return st;
}

/* The config as one that names this family and class. */
static json_t *config_of_class(const json_t *config, const char *model_type, const char *class_name)
{
    json_t *copy = json_copy((json_t *)config);

    if (copy && (json_object_set_new(copy, "model_type", json_string(model_type)) != 0 ||
                 json_object_set_new(copy, "architectures", json_pack("[s]", class_name)) != 0)) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

/* What a config says of itself, whatever the family. */
static vp_status keep_config(vp_model *model, const vp_json_node *config, const vp_model_opts *opts,
                             vp_err *err)
{
    const json_t *classes = json_object_get(config->value, "architectures");
    const char   *first   = json_string_value(json_array_get(classes, 0));
    const char   *family  = "";
    vp_status     st      = VP_OK;

    VP_TRY(refuse_plan(config, err));
    VP_TRY(refuse_quantised(config, err));
    VP_TRY(vp_json_string(config, "model_type", &family, err));
    model->family     = vp_arena_strdup(model->arena, family);
    model->class_name = vp_arena_strdup(model->arena, opts->class_name ? opts->class_name
                                                      : first          ? first
                                                                       : "");
    model->config     = json_incref(config->value);
    VP_TRY_ALLOC(err, !vp_arena_failed(model->arena));
out:
    return st;
}

/* The config as one that has so many labels, without names of theirs. */
static json_t *config_of_labels(const json_t *config, int64_t n)
{
    json_t *copy = json_copy((json_t *)config);

    if (copy)
        json_object_del(copy, "id2label");
    if (copy && json_object_set_new(copy, "num_labels", json_integer(n)) != 0) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

vp_status vp_model_from_config(const char *name, const vp_json_node *config,
                               const vp_model_opts *opts, vp_model **out, vp_err *err)
{
    vp_model        *model       = calloc(1, sizeof *model);
    json_t          *with_labels = NULL;
    vp_json_node     own         = *config;
    const vp_family *family;
    vp_status        st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, model);
    model->arena = vp_arena_new();
    VP_TRY_ALLOC(err, model->arena);
    if (!json_is_object(config->value))
        VP_TRY(vp_json_fail(config, NULL, err, "a model's config is an object"));
    if (opts->n_labels) {
        VP_TRY_ALLOC(err, with_labels = config_of_labels(config->value, opts->n_labels));
        own.value = with_labels, config = &own;
    }
    model->name = vp_arena_strdup(model->arena, name);
    if (opts->config_only) {
        VP_TRY(keep_config(model, config, opts, err));
        *out  = model;
        model = NULL;
        goto out;
    }
    VP_TRY(find_family(model, config, opts, &family, err));
    assert(family && family->build);
    model->family = family->model_type;
    VP_TRY(check_common(model, config, err));
    VP_TRY(vp_config_class(model, config, opts, family->classes, err));
    model->config = opts->class_name
                        ? config_of_class(config->value, family->model_type, model->class_name)
                        : json_incref(config->value);
    VP_TRY_ALLOC(err, model->config);
    VP_TRY(family->build(model, config, opts, err));
    VP_TRY(list_unused(model, config, family->keys, err));
    VP_TRY_ALLOC(err, !vp_arena_failed(model->arena));
    assert(model->graph.n_instances >= 3 && model->class_name);
    if (opts->lora && opts->lora->rank)
        VP_TRY(vp_lora_add(model, opts->lora, err));
    model->n_params  = vp_graph_param_count(&model->graph);
    model->n_trained = vp_graph_trained_count(&model->graph);
    if (vp_overflowed(vp_mul(model->n_params, 64)))
        VP_TRY(vp_json_fail(config, NULL, err,
                            "the parameters of this model are more bytes than 64 bits can count"));
    *out  = model;
    model = NULL;
out:
    json_decref(with_labels);
    vp_model_free(model);
    return st;
}

void vp_model_free(vp_model *model)
{
    if (!model)
        return;
    json_decref(model->config);
    vp_arena_free(model->arena);
    free(model);
}

const json_t *vp_model_field(const vp_model *model, const char *key)
{
    const char *name = strchr(key, '.');

    /* what transformers 4 wrote of a model of texts and images has no part of its own for texts */
    if (name && strncmp(key, "text_config.", 12) == 0 &&
        !json_object_get(model->config, "text_config"))
        return json_object_get(model->config, name + 1);
    if (!name)
        return json_object_get(model->config, key);
    if (strcmp(model->family, "qwen3_5_text") == 0 ||
        strcmp(model->family, "qwen3_5_moe_text") == 0) /* that part of its family's by itself */
        return json_object_get(model->config, name + 1);
    return json_object_get(json_object_getn(model->config, key, (size_t)(name - key)), name + 1);
}

const json_t *vp_model_text_field(const vp_model *model, const char *name)
{
    const json_t *text = json_object_get(model->config, "text_config");

    return json_object_get(text ? text : model->config, name);
}

/* "dir/gpt2.json" -> "gpt2"; "dir/gpt2/config.json" and "dir/gpt2" -> "gpt2". */
static void display_name(const char *path, char *name, size_t name_size)
{
    char  copy[1024];
    char *end, *base;

    snprintf(copy, sizeof copy, "%s", path);
    for (end = copy + strlen(copy); end > copy + 1 && end[-1] == '/';)
        *--end = '\0';
    base = strrchr(copy, '/');
    if (base && strcmp(base, "/config.json") == 0 && base > copy) {
        *base = '\0';
        base  = strrchr(copy, '/');
    }
    base = base ? base + 1 : copy;
    end  = base + strlen(base);
    if (end - base > 5 && strcmp(end - 5, ".json") == 0)
        end[-5] = '\0';
    vp_text_escape(*base ? base : "model", name, name_size);
}

/* What is neither built in nor a file may be a Hub id: the config.json of its snapshot. error:
 * why it is no file. */
static vp_status find_in_hub_cache(const char *id, int error, char *file, size_t file_size,
                                   vp_err *err)
{
    const vp_zoo_entry *same = vp_zoo_find_hub_id(id);
    char                folder[PATH_MAX], shown[256];
    struct stat         info;
    vp_err              missing = {0};
    vp_status           st      = VP_OK;

    if (lstat(id, &info) == 0 || !vp_hub_is_id(id))
        VP_TRY(
            VP_FAIL_AT(err, VP_ERR_INPUT, id, 0, NULL,
                       "%s: neither a built-in model (see vplan models) nor a file or folder: %s",
                       vp_text_escape(id, shown, sizeof shown), strerror(error)));
    st = vp_hub_find(id, VP_HUB_CONFIG, folder, sizeof folder, &missing);
    if (st != VP_OK && missing.file[0])
        VP_TRY(vp_fail(err, st, missing.file, missing.line, missing.field, "%s", missing.message));
    if (st != VP_OK)
        VP_TRY(VP_FAIL_AT(
            err, st, id, 0, NULL,
            "%s: neither a built-in model (see vplan models) nor a file or folder: %s; %s%s%s", id,
            strerror(error), missing.message, same ? "; the same model, built in: " : "",
            same ? same->name : ""));
    snprintf(file, file_size, "%s/config.json", folder);
out:
    return st;
}

vp_status vp_model_open(const char *path, const vp_model_opts *opts, vp_model **out, vp_err *err)
{
    const vp_zoo_entry *built_in = vp_zoo_find(path);
    vp_json_doc        *doc      = NULL;
    struct stat         info;
    char                file[PATH_MAX + 16], name[400];
    bool                from_hub = false;
    vp_status           st       = VP_OK;

    *out = NULL;
    if (built_in) {
        VP_TRY(vp_json_parse(path, built_in->config, (int64_t)strlen(built_in->config), &doc, err));
        snprintf(name, sizeof name, "%s", path);
        goto build;
    }
    if (strcmp(path, "-") != 0 && stat(path, &info) != 0) {
        VP_TRY(find_in_hub_cache(path, errno, file, sizeof file, err));
        snprintf(name, sizeof name, "%s", path);
        from_hub = true;
    } else {
        snprintf(file, sizeof file,
                 strcmp(path, "-") != 0 && S_ISDIR(info.st_mode) ? "%s/config.json" : "%s", path);
        display_name(path, name, sizeof name);
    }
    VP_TRY(vp_json_read(file, VP_JSON_MAX_BYTES, &doc, err));
build:;
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_model_from_config(name, &root, opts, out, err));
    if (vp_json_had_bom(doc))
        vp_model_assume(*out, "the file begins with a byte-order mark, which is skipped");
    /* .../snapshots/COMMIT/config.json */
    assert(!from_hub || strrchr(file, '/') - file > 40);
    if (from_hub)
        vp_model_assume(*out, "config.json is that of snapshot %.40s in the Hugging Face cache",
                        strrchr(file, '/') - 40);
out:
    vp_json_doc_free(doc);
    return st;
}
