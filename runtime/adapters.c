/* runtime/adapters.c: adapters from and to a folder of peft's, and folded into the weights they stand
 * beside. */
#include "runtime/runtime_internal.h"

#include "base/bf16.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/fp16.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char PREFIX[] = "base_model.model.", TENSORS[] = "adapter_model.safetensors",
                  CONFIG[] = "adapter_config.json", END[] = ".lora_A.weight";

static const vp_runtime_param *find(const vp_runtime *rt, const char *stem, size_t n,
                                    const char *end)
{
    for (int64_t i = 0; i < rt->n_params; i++)
        if (strncmp(rt->params[i].name, stem, n) == 0 && strcmp(rt->params[i].name + n, end) == 0)
            return &rt->params[i];
    return NULL;
}

bool vp_adapters_are_in(const char *dir)
{
    char path[1200];

    snprintf(path, sizeof path, "%s/%s", dir, TENSORS);
    return access(path, F_OK) == 0;
}

/* ---- loading ---- */

/* What another rank, or other modules, would say shows in the tensors; the scale does not. */
static vp_status check_scale(const vp_runtime *rt, const char *dir, vp_err *err)
{
    const vp_lora *own  = &rt->plan->recipe.lora;
    vp_lora        file = {.rank = 0};
    vp_json_doc   *doc  = NULL;
    char           path[1200];
    vp_status      st = VP_OK;

    snprintf(path, sizeof path, "%s/%s", dir, CONFIG);
    VP_TRY(vp_json_read(path, VP_JSON_MAX_BYTES, &doc, err));
    vp_json_node root = vp_json_root(doc);
    VP_TRY(vp_json_int(&root, "r", 1, VP_LORA_MAX_RANK, &file.rank, err));
    VP_TRY(vp_json_real(&root, "lora_alpha", 0, 1e9, &file.alpha, err));
    if (vp_json_has(&root, "use_rslora"))
        VP_TRY(vp_json_bool(&root, "use_rslora", &file.rslora, err));
    if (vp_lora_scale(&file) != vp_lora_scale(own))
        VP_TRY(vp_json_fail(&root, "lora_alpha", err,
                            "these adapters are scaled by %g, the plan's by %g",
                            vp_lora_scale(&file), vp_lora_scale(own)));
out:
    vp_json_doc_free(doc);
    return st;
}

static vp_status load_adapter(const vp_runtime_param *p, const vp_safetensors *file, vp_err *err)
{
    enum { AT_A_TIME = 16384 };
    float                 values[AT_A_TIME];
    char                  name[300];
    const char           *path = vp_safetensors_path(file);
    const vp_tensor_info *t;
    vp_status             st = VP_OK;

    snprintf(name, sizeof name, "%s%s", PREFIX, p->name);
    t = vp_safetensors_find(file, name);
    if (!t)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, name, "%s: no tensor %s", path, name));
    if (t->rank != 2 || t->shape[0] != p->param->shape[0] || t->shape[1] != p->param->shape[1])
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, name,
                          "%s: tensor %s has another shape than the plan's [%lld, %lld]", path,
                          name, (long long)p->param->shape[0], (long long)p->param->shape[1]));
    for (int64_t k = 0; k < t->n_elements; k += AT_A_TIME) {
        int64_t n = vp_min_i64(AT_A_TIME, t->n_elements - k);
        VP_TRY(vp_safetensors_read_f32(file, t, k, n, values, err));
        VP_TRY(vp_runtime_param_set(p, k, n, values, err));
    }
out:
    return st;
}

vp_status vp_runtime_load_adapters(vp_runtime *rt, const char *dir, vp_err *err)
{
    vp_safetensors *file = NULL;
    char            path[1200], shown[128];
    int64_t         n  = 0;
    vp_status       st = VP_OK;

    snprintf(path, sizeof path, "%s/%s", dir, TENSORS);
    if (!rt->plan->recipe.lora.rank)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL, "%s: the plan has no adapters", path));
    VP_TRY(check_scale(rt, dir, err));
    VP_TRY(vp_safetensors_open(path, &file, err));
    for (int64_t i = 0; i < rt->n_params; i++)
        if (vp_lora_is_adapter(rt->params[i].name)) {
            VP_TRY(load_adapter(&rt->params[i], file, err));
            n++;
        }
    for (int64_t k = 0; n < vp_safetensors_count(file) && k < vp_safetensors_count(file); k++) {
        const char *name = vp_safetensors_at(file, k)->name;
        bool        of   = strncmp(name, PREFIX, strlen(PREFIX)) == 0;
        if (!of || !vp_lora_is_adapter(name) ||
            !find(rt, name + strlen(PREFIX), strlen(name + strlen(PREFIX)), ""))
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, name,
                              "%s: tensor %s belongs to no adapter of the plan", path,
                              vp_text_escape(name, shown, sizeof shown)));
    }
    VP_TRY(vp_runtime_loaded(rt, err));
out:
    vp_safetensors_close(file);
    return st;
}

/* ---- folding in ---- */

static vp_status values_of(const vp_runtime_param *p, float **out, vp_err *err)
{
    vp_status st = VP_OK;

    *out = malloc((size_t)p->param->n_elements * sizeof **out);
    VP_TRY_ALLOC(err, *out);
    VP_TRY(vp_runtime_param_get(p, 0, p->param->n_elements, *out, err));
out:
    return st;
}

/* W + s B A, each element summed in double; a weight that lies (in, out) has its transpose. */
static void fold(const vp_param *w, int64_t rank, double scale, const float *a, const float *b,
                 float *out)
{
    int64_t n_in = w->shape[w->in_out ? 0 : 1], n_out = w->shape[w->in_out ? 1 : 0];

    for (int64_t o = 0; o < n_out; o++)
        for (int64_t i = 0; i < n_in; i++) {
            float *at  = &out[w->in_out ? i * n_out + o : o * n_in + i];
            double sum = 0;
            for (int64_t r = 0; r < rank; r++)
                sum += (double)b[o * rank + r] * (double)a[r * n_in + i];
            *at = (float)((double)*at + scale * sum);
        }
}

static void round_to(vp_dtype dtype, float *values, int64_t n)
{
    unsigned char *at = (unsigned char *)values; /* written behind what is read */

    for (int64_t k = 0; dtype != VP_DTYPE_F32 && k < n; k++) {
        uint16_t half =
            dtype == VP_DTYPE_F16 ? vp_fp16_from_f32(values[k]) : vp_bf16_from_f32(values[k]);
        memcpy(at + 2 * k, &half, sizeof half);
    }
}

vp_status vp_adapters_merged(const vp_runtime *rt, const vp_runtime_param *w, void **out,
                             vp_err *err)
{
    size_t                  n = strlen(w->name), m = strlen(".weight");
    size_t                  stem = n > m && strcmp(w->name + n - m, ".weight") == 0 ? n - m : 0;
    const vp_runtime_param *pa   = stem ? find(rt, w->name, stem, END) : NULL;
    const vp_runtime_param *pb   = stem ? find(rt, w->name, stem, ".lora_B.weight") : NULL;
    float                  *a = NULL, *b = NULL, *values = NULL;
    vp_status               st = VP_OK;

    *out = NULL;
    if (!pa || !pb)
        return VP_OK;
    VP_TRY(values_of(w, &values, err));
    VP_TRY(values_of(pa, &a, err));
    VP_TRY(values_of(pb, &b, err));
    fold(w->param, rt->plan->recipe.lora.rank, vp_lora_scale(&rt->plan->recipe.lora), a, b, values);
    round_to(w->dtype, values, w->param->n_elements);
    *out   = values;
    values = NULL;
out:
    free(values);
    free(a);
    free(b);
    return st;
}

/* ---- peft's config ---- */

/* The modules by name, each once. */
static json_t *modules_json(const vp_runtime *rt)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < rt->n_params; i++) {
        const char *name = rt->params[i].name;
        size_t      end = strlen(name), first, k = 0;
        bool        known = false;
        json_t     *entry;
        if (end <= strlen(END) || strcmp(name + end - strlen(END), END) != 0)
            continue;
        end -= strlen(END);
        for (first = end; first > 0 && name[first - 1] != '.';)
            first--;
        json_array_foreach (list, k, entry)
            known |= json_string_length(entry) == end - first &&
                     memcmp(json_string_value(entry), name + first, end - first) == 0;
        if (!known)
            json_array_append_new(list, json_stringn(name + first, end - first));
    }
    return list;
}

static bool any_lies_in_out(const vp_runtime *rt)
{
    for (int64_t i = 0; i < rt->n_params; i++)
        if (rt->params[i].param->in_out)
            return true;
    return false;
}

vp_status vp_adapters_write_config(const vp_runtime *rt, const char *dir, bool overwrite,
                                   vp_err *err)
{
    const vp_lora *l    = &rt->plan->recipe.lora;
    vp_text        text = {0};
    json_t *alpha  = l->alpha == (double)(json_int_t)l->alpha ? json_integer((json_int_t)l->alpha)
                                                              : json_real(l->alpha);
    json_t *config = json_pack(
        "{s:s, s:s, s:s, s:I, s:o, s:f, s:b, s:b, s:b, s:b, s:o}", "peft_type", "LORA", "task_type",
        "CAUSAL_LM", "bias", "none", "r", (json_int_t)l->rank, "lora_alpha", alpha, "lora_dropout",
        l->dropout, "use_rslora", (int)l->rslora, "use_dora", 0, "fan_in_fan_out",
        (int)any_lies_in_out(rt), "inference_mode", 1, "target_modules", modules_json(rt));
    char      path[1200];
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, config && vp_json_dump(config, &text));
    snprintf(path, sizeof path, "%s/%s", dir, CONFIG);
    VP_TRY(vp_file_write(path, text.data, text.n_bytes, overwrite, err));
out:
    vp_text_release(&text);
    json_decref(config);
    return st;
}
