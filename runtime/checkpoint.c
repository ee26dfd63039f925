/* Parameters from and to a Hugging Face folder. */
#include "runtime/runtime_internal.h"

#include "core/bf16.h"
#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names that files have for the same tensor ---- */

/* Many files of the Hub were saved from the inner model, without its prefix. */
static const char *const prefixes[] = {"transformer.", "model.", "bert.", "roberta.", "gpt_neox."};

/* Ends that older files write otherwise: ours, theirs. */
static const char *const spellings[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}, {"lm_head.weight", "embed_out.weight"}};

/* Masks, constants and positions that are stored but not trained. */
static const char *const buffers[] = {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq",
                                      ".position_ids"};

/* Output projections that a tied table may be stored as once more. */
static const char *const projections[] = {"lm_head.weight", "embed_out.weight", "cls.predictions.decoder.weight", "lm_head.decoder.weight"};

/* Heads of other tasks, which transformers leaves out with a warning. */
static const char *const other_heads[] = {"cls.seq_relationship.", "pooler."};

#define COUNT(list) ((int)(sizeof list / sizeof *list))

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static const char *without_prefix(const char *name)
{
    for (int i = 0; i < COUNT(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return name + strlen(prefixes[i]);
    return name;
}

/* Whether a file may call the parameter so: with the prefix or without, in today's spelling or another. */
static bool names_parameter(const char *param, const char *stored)
{
    char        other[256];
    const char *a = without_prefix(param), *b = without_prefix(stored);

    if (strcmp(param, stored) == 0 || strcmp(a, stored) == 0 || (a != param && strcmp(a, b) == 0))
        return true;
    for (int i = 0; i < COUNT(spellings); i++)
        if (ends_with(stored, spellings[i][1])) {
            snprintf(other, sizeof other, "%.*s%s", (int)(strlen(stored) - strlen(spellings[i][1])), stored, spellings[i][0]);
            if (strcmp(param, other) == 0 || strcmp(a, other) == 0)
                return true;
        }
    return false;
}

static bool is_one_of(const char *name, const char *const *list, int n, bool (*match)(const char *name, const char *entry))
{
    int i = 0;
    while (i < n && !match(name, list[i]))
        i++;
    return i < n;
}

static bool equals(const char *name, const char *entry)
{
    return strcmp(name, entry) == 0;
}

static bool contains(const char *name, const char *entry)
{
    return strstr(name, entry) != NULL;
}

static vp_status check_shape(const vp_runtime_param *p, const vp_tensor_info *t, const char *path, vp_err *err)
{
    bool same = t->rank == p->param->rank;

    for (int d = 0; same && d < t->rank; d++)
        same = t->shape[d] == p->param->shape[d];
    if (!same)
        return VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, p->name, "%s: tensor %s has another shape than the plan's parameter", path, p->name);
    return VP_OK;
}

static const vp_runtime_param *parameter_of(const vp_runtime *rt, const char *stored)
{
    for (int64_t i = 0; i < rt->n_params; i++)
        if (names_parameter(rt->params[i].name, stored))
            return &rt->params[i];
    return NULL;
}

/* A tensor stored a second time: it must hold the parameter's values. */
static vp_status check_copy(const vp_runtime_param *p, vp_safetensors *file, const vp_tensor_info *t, vp_err *err)
{
    enum { AT_A_TIME = 4096 };
    const char *path = vp_safetensors_path(file);
    float       stored[AT_A_TIME], own[AT_A_TIME];
    vp_status   st = VP_OK;

    VP_TRY(check_shape(p, t, path, err));
    for (int64_t k = 0; k < t->n_elements; k += AT_A_TIME) {
        int64_t n = t->n_elements - k < AT_A_TIME ? t->n_elements - k : AT_A_TIME;
        VP_TRY(vp_safetensors_read_f32(file, t, k, n, stored, err));
        VP_TRY(vp_runtime_param_get(p, k, n, own, err));
        for (int64_t i = 0; i < n && !p->master && p->dtype == VP_DTYPE_BF16; i++)
            stored[i] = vp_bf16_to_f32(vp_bf16_from_f32(stored[i]));
        if (memcmp(stored, own, (size_t)n * sizeof *own) != 0)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, t->name, "%s: %s differs from %s, but this model ties them", path, t->name, p->name));
    }
out:
    return st;
}

/* The parameter a stored tensor is tied to, NULL: none. */
static const vp_runtime_param *tied_to(const vp_runtime *rt, const char *stored)
{
    static const char bias[] = "decoder.bias";
    char              own[256];

    if (rt->plan->n_shared == 1 && is_one_of(stored, projections, COUNT(projections), equals))
        return &rt->params[0];
    if (!ends_with(stored, bias))
        return NULL;
    snprintf(own, sizeof own, "%.*sbias", (int)(strlen(stored) - strlen(bias)), stored);
    return parameter_of(rt, own);
}

static vp_status check_strangers(const vp_runtime *rt, const vp_checkpoint *ckpt, vp_err *err)
{
    char      shown[128];
    vp_status st = VP_OK;

    for (int64_t f = 0; f < vp_checkpoint_n_files(ckpt); f++) {
        vp_safetensors *file = vp_checkpoint_file(ckpt, f);
        for (int64_t i = 0; i < vp_safetensors_count(file); i++) {
            const vp_tensor_info *t = vp_safetensors_at(file, i);
            const vp_runtime_param *tied = tied_to(rt, t->name);
            if (parameter_of(rt, t->name) || is_one_of(t->name, buffers, COUNT(buffers), ends_with)
                || is_one_of(t->name, other_heads, COUNT(other_heads), contains))
                continue;
            if (tied) {
                VP_TRY(check_copy(tied, file, t, err));
                continue;
            }
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, vp_safetensors_path(file), 0, t->name, "%s: tensor %s belongs to no parameter of the plan",
                              vp_safetensors_path(file), vp_text_escape(t->name, shown, sizeof shown)));
        }
    }
out:
    return st;
}

/* The stored tensor of a parameter, under whatever name it has there. */
static const vp_tensor_info *find_stored(const vp_checkpoint *ckpt, const char *param, vp_safetensors **file)
{
    const vp_tensor_info *t = vp_checkpoint_find(ckpt, param, file);

    for (int64_t f = 0; !t && f < vp_checkpoint_n_files(ckpt); f++) {
        *file = vp_checkpoint_file(ckpt, f);
        for (int64_t i = 0; !t && i < vp_safetensors_count(*file); i++)
            if (names_parameter(param, vp_safetensors_at(*file, i)->name))
                t = vp_safetensors_at(*file, i);
    }
    return t;
}

static vp_status load_param(const vp_runtime_param *p, vp_safetensors *file, const vp_tensor_info *t, vp_err *err)
{
    enum { AT_A_TIME = 16384 };
    float     values[AT_A_TIME];
    vp_status st = VP_OK;

    for (int64_t k = 0; k < t->n_elements; k += AT_A_TIME) {
        int64_t n = t->n_elements - k < AT_A_TIME ? t->n_elements - k : AT_A_TIME;
        VP_TRY(vp_safetensors_read_f32(file, t, k, n, values, err));
        VP_TRY(vp_runtime_param_set(p, k, n, values, err));
    }
out:
    return st;
}

vp_status vp_runtime_load(vp_runtime *rt, const char *dir, vp_err *err)
{
    vp_checkpoint *ckpt = NULL;
    vp_status      st   = VP_OK;

    VP_TRY(vp_checkpoint_open(dir, &ckpt, err));
    for (int64_t i = 0; i < rt->n_params; i++) {
        const vp_runtime_param *p = &rt->params[i];
        vp_safetensors         *file;
        const vp_tensor_info   *t = find_stored(ckpt, p->name, &file);
        if (!t)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, dir, 0, p->name, "%s: no tensor %s", dir, p->name));
        VP_TRY(check_shape(p, t, vp_safetensors_path(file), err));
        VP_TRY(load_param(p, file, t, err));
    }
    VP_TRY(check_strangers(rt, ckpt, err));
    VP_TRY(vp_runtime_loaded(rt, err));
out:
    vp_checkpoint_close(ckpt);
    return st;
}

vp_status vp_runtime_check_save(const char *dir, bool overwrite, vp_err *err)
{
    const char *const files[] = {"model.safetensors", "config.json"};
    char              path[1200];
    vp_status         st = VP_OK;

    VP_TRY(vp_file_make_dir(dir, err));
    for (int i = 0; i < 2; i++) {
        vp_file_writer w = {0};
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        st = vp_file_begin(path, overwrite, &w, err);
        vp_file_abort(&w);
        VP_TRY(st);
    }
out:
    return st;
}

/* What a parameter's file holds, in this process's memory: where it lies, or, off a device, a copy that the caller frees. */
static vp_status saved_values(const vp_runtime_param *p, const void **values, void **copy, vp_err *err)
{
    const void *at      = p->master ? p->master : p->data;
    int64_t     n_bytes = p->param->n_elements * vp_dtype_bytes(p->master ? VP_DTYPE_F32 : p->dtype);
    vp_status   st      = VP_OK;

    *copy   = NULL;
    *values = at;
    if (p->backend->host_memory)
        return VP_OK;
    *values = *copy = malloc((size_t)n_bytes);
    VP_TRY_ALLOC(err, *copy);
    VP_TRY(p->backend->download(*copy, at, n_bytes, err));
out:
    return st;
}

vp_status vp_runtime_save(const vp_runtime *rt, const char *dir, bool overwrite, vp_err *err)
{
    vp_tensor_data *tensors = calloc((size_t)rt->n_params + 1, sizeof *tensors);
    void          **copies  = calloc((size_t)rt->n_params + 1, sizeof *copies);
    vp_text         config  = {0};
    char            path[1200];
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, tensors && copies);
    for (int64_t i = 0; i < rt->n_params; i++) {
        const vp_plan_param *p = rt->params[i].param;
        const vp_runtime_param *r = &rt->params[i];
        tensors[i] = (vp_tensor_data){.name = r->name, .dtype = r->master || r->dtype == VP_DTYPE_F32 ? VP_ST_F32 : VP_ST_BF16, .rank = p->rank};
        VP_TRY(saved_values(r, &tensors[i].data, &copies[i], err));
        for (int d = 0; d < p->rank; d++)
            tensors[i].shape[d] = p->shape[d];
    }
    VP_TRY(vp_file_make_dir(dir, err));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    VP_TRY(vp_safetensors_write(path, tensors, rt->n_params, overwrite, err));
    VP_TRY_ALLOC(err, vp_json_dump(rt->plan->model_config, &config));
    snprintf(path, sizeof path, "%s/config.json", dir);
    VP_TRY(vp_file_write(path, config.data, config.n_bytes, overwrite, err));
out:
    vp_text_release(&config);
    for (int64_t i = 0; copies && i < rt->n_params; i++)
        free(copies[i]);
    free(copies);
    free(tensors);
    return st;
}
