/* Parameters from and to a Hugging Face folder. */
#include "runtime/runtime_internal.h"

#include "core/file.h"
#include "core/json.h"
#include "core/safetensors.h"
#include "core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The Hub's gpt2 files were saved from the inner model: no "transformer." before their names. */
static const char PREFIX[] = "transformer.";

static vp_status check_shape(const vp_runtime_param *p, const vp_tensor_info *t, const char *path, vp_err *err)
{
    bool same = t->rank == p->param->rank;

    for (int d = 0; same && d < t->rank; d++)
        same = t->shape[d] == p->param->shape[d];
    if (!same)
        return VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, p->name, "%s: tensor %s has another shape than the plan's parameter", path, p->name);
    return VP_OK;
}

/* The Hub's attn.bias and attn.masked_bias: a causal mask and a constant, stored but not trained. */
static bool is_stored_buffer(const char *name)
{
    const char *const ends[] = {".attn.bias", ".attn.masked_bias"};

    for (int i = 0; i < 2; i++) {
        size_t n = strlen(name), m = strlen(ends[i]);
        if (n > m && strcmp(name + n - m, ends[i]) == 0)
            return true;
    }
    return false;
}

static bool is_parameter(const vp_runtime *rt, const char *name)
{
    for (int64_t i = 0; i < rt->n_params; i++) {
        const char *known = rt->params[i].name;
        if (strcmp(known, name) == 0
            || (strncmp(known, PREFIX, sizeof PREFIX - 1) == 0 && strcmp(known + sizeof PREFIX - 1, name) == 0))
            return true;
    }
    return false;
}

/* A tied output projection may be stored a second time; it must then hold the same values. */
static vp_status check_tied_copy(const vp_runtime *rt, vp_safetensors *file, const vp_tensor_info *t, vp_err *err)
{
    enum { AT_A_TIME = 4096 };
    const vp_runtime_param *wte = &rt->params[0];
    const char *path = vp_safetensors_path(file);
    float       values[AT_A_TIME];
    vp_status   st = VP_OK;

    VP_TRY(check_shape(wte, t, path, err));
    for (int64_t k = 0; k < t->n_elements; k += AT_A_TIME) {
        int64_t n = t->n_elements - k < AT_A_TIME ? t->n_elements - k : AT_A_TIME;
        VP_TRY(vp_safetensors_read_f32(file, t, k, n, values, err));
        if (memcmp(values, wte->data + k, (size_t)n * sizeof *values) != 0)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, t->name,
                              "%s: lm_head.weight differs from %s, but this model ties them", path, wte->name));
    }
out:
    return st;
}

static vp_status check_strangers(const vp_runtime *rt, const vp_checkpoint *ckpt, vp_err *err)
{
    char      shown[128];
    vp_status st = VP_OK;

    for (int64_t f = 0; f < vp_checkpoint_n_files(ckpt); f++) {
        vp_safetensors *file = vp_checkpoint_file(ckpt, f);
        for (int64_t i = 0; i < vp_safetensors_count(file); i++) {
            const vp_tensor_info *t = vp_safetensors_at(file, i);
            if (is_parameter(rt, t->name) || is_stored_buffer(t->name))
                continue;
            if (strcmp(t->name, "lm_head.weight") == 0 && rt->plan->n_shared == 1) {
                VP_TRY(check_tied_copy(rt, file, t, err));
                continue;
            }
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, vp_safetensors_path(file), 0, t->name, "%s: tensor %s belongs to no parameter of the plan",
                              vp_safetensors_path(file), vp_text_escape(t->name, shown, sizeof shown)));
        }
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
        const vp_tensor_info   *t = vp_checkpoint_find(ckpt, p->name, &file);
        if (!t && strncmp(p->name, PREFIX, sizeof PREFIX - 1) == 0)
            t = vp_checkpoint_find(ckpt, p->name + sizeof PREFIX - 1, &file);
        if (!t)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, dir, 0, p->name, "%s: no tensor %s", dir, p->name));
        VP_TRY(check_shape(p, t, vp_safetensors_path(file), err));
        VP_TRY(vp_safetensors_read_f32(file, t, 0, t->n_elements, p->data, err));
    }
    VP_TRY(check_strangers(rt, ckpt, err));
    vp_runtime_loaded(rt);
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

vp_status vp_runtime_save(const vp_runtime *rt, const char *dir, bool overwrite, vp_err *err)
{
    vp_tensor_data *tensors = calloc((size_t)rt->n_params + 1, sizeof *tensors);
    vp_text         config  = {0};
    char            path[1200];
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, tensors);
    for (int64_t i = 0; i < rt->n_params; i++) {
        const vp_plan_param *p = rt->params[i].param;
        tensors[i] = (vp_tensor_data){.name = rt->params[i].name, .dtype = VP_ST_F32, .rank = p->rank, .data = rt->params[i].data};
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
    free(tensors);
    return st;
}
