/* Parameters from and to a Hugging Face folder. */
#include "runtime/runtime_internal.h"

#include "base/bf16.h"
#include "base/file.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names that files have for the same tensor ---- */

/* What transformers puts before the names of the inner model (base_model_prefix). A file saved
 * from the inner model lacks it. */
static const char *const prefixes[] = {"transformer.", "model.", "bert.", "roberta.", "gpt_neox."};

/* Ends that older files write otherwise: ours, theirs. */
static const char *const spellings[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                           {"LayerNorm.bias", "LayerNorm.beta"},
                                           {"lm_head.weight", "embed_out.weight"}};

/* Masks, constants and positions that are stored but not trained. */
static const char *const buffers[] = {".attn.bias",           ".attn.masked_bias",
                                      ".attention.bias",      ".attention.masked_bias",
                                      ".rotary_emb.inv_freq", ".position_ids"};

/* Output projections, which a model may tie to its token table. */
static const char *const projections[] = {"lm_head.weight", "embed_out.weight",
                                          "cls.predictions.decoder.weight",
                                          "lm_head.decoder.weight"};

#define COUNT(list) ((int)(sizeof list / sizeof *list))

static bool begins_with(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool is_one_of(const char *name, const char *const *list, int n,
                      bool (*match)(const char *name, const char *entry))
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

/* ---- a folder beside a plan ---- */

/* Parts of a model that a checkpoint may lack: each is there whole or not at all. */
typedef enum part { INNER, POOLER, HEAD, N_PARTS } part;

typedef struct folder {
    const char    *dir;
    vp_runtime    *rt;
    vp_checkpoint *ckpt;
    /* of the inner model's tensors: in the plan, in the files */
    const char            *prefix, *stored_prefix;
    const vp_tensor_info **found;             /* of each parameter; NULL: missing */
    const vp_tensor_info **used;              /* the same, by address */
    const char            *first_of[N_PARTS]; /* a tensor found of each part; NULL: none */
    vp_load_report        *report;
} folder;

static bool is_pooler(const char *name)
{
    return strstr(name, "pooler.") != NULL;
}

static part part_of(const folder *f, const char *param)
{
    return !begins_with(param, f->prefix) ? HEAD : is_pooler(param) ? POOLER : INNER;
}

static const char *prefix_of(const char *name)
{
    for (int i = 0; i < COUNT(prefixes); i++)
        if (begins_with(name, prefixes[i]))
            return prefixes[i];
    return "";
}

/* Both prefixes, by the token table, which is the first parameter. As in transformers the files'
 * holds for all their tensors. A plan of the inner model alone takes the prefix that the files
 * have. */
static void find_prefixes(folder *f)
{
    const char *table = f->rt->params[0].name;
    char        name[256];

    assert(f->rt->n_params > 0);
    f->prefix        = prefix_of(table);
    f->stored_prefix = vp_checkpoint_find(f->ckpt, table, NULL) ? f->prefix : "";
    for (int i = 0;
         !f->prefix[0] && !vp_checkpoint_find(f->ckpt, table, NULL) && i < COUNT(prefixes); i++) {
        snprintf(name, sizeof name, "%s%s", prefixes[i], table);
        if (vp_checkpoint_find(f->ckpt, name, NULL))
            f->stored_prefix = prefixes[i];
    }
}

/* The stored tensor of a parameter: under the files' prefix, in today's spelling or another. */
static const vp_tensor_info *find_stored(const folder *f, const char *param, vp_safetensors **file)
{
    char                  name[256], other[300];
    const vp_tensor_info *t;

    assert(f->prefix && f->stored_prefix); /* find_prefixes() */
    if (part_of(f, param) == HEAD)
        snprintf(name, sizeof name, "%s", param);
    else
        snprintf(name, sizeof name, "%s%s", f->stored_prefix, param + strlen(f->prefix));
    t = vp_checkpoint_find(f->ckpt, name, file);
    for (int i = 0; !t && i < COUNT(spellings); i++)
        if (ends_with(name, spellings[i][0])) {
            snprintf(other, sizeof other, "%.*s%s", (int)(strlen(name) - strlen(spellings[i][0])),
                     name, spellings[i][1]);
            t = vp_checkpoint_find(f->ckpt, other, file);
        }
    return t;
}

static void shape_text(const int64_t *shape, int rank, char *buf, size_t buf_size)
{
    size_t n = (size_t)snprintf(buf, buf_size, "[");

    for (int d = 0; d < rank && n < buf_size; d++)
        n += (size_t)snprintf(buf + n, buf_size - n, "%s%lld", d ? ", " : "", (long long)shape[d]);
    if (n < buf_size)
        snprintf(buf + n, buf_size - n, "]");
}

static vp_status check_shape(const vp_runtime_param *p, const vp_tensor_info *t, const char *path,
                             vp_err *err)
{
    char stored[400], own[400];
    bool same = t->rank == p->param->rank;

    for (int d = 0; same && d < t->rank; d++)
        same = t->shape[d] == p->param->shape[d];
    if (same)
        return VP_OK;
    shape_text(t->shape, t->rank, stored, sizeof stored);
    shape_text(p->param->shape, p->param->rank, own, sizeof own);
    return VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, p->name,
                      "%s: tensor %s has another shape than the plan's parameter: %s, not %s", path,
                      p->name, stored, own);
}

/* ---- what is there ---- */

static vp_status load_param(const vp_runtime_param *p, vp_safetensors *file,
                            const vp_tensor_info *t, vp_err *err)
{
    enum { AT_A_TIME = 16384 };
    float     values[AT_A_TIME];
    vp_status st = VP_OK;

    assert(t->n_elements == p->param->n_elements); /* check_shape() */
    for (int64_t k = 0; k < t->n_elements; k += AT_A_TIME) {
        int64_t n = t->n_elements - k < AT_A_TIME ? t->n_elements - k : AT_A_TIME;
        VP_TRY(vp_safetensors_read_f32(file, t, k, n, values, err));
        VP_TRY(vp_runtime_param_set(p, k, n, values, err));
    }
out:
    return st;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const vp_tensor_info *const *)a,
              y = (uintptr_t) * (const vp_tensor_info *const *)b;
    return x < y ? -1 : x > y;
}

static vp_status load_found(folder *f, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < f->rt->n_params; i++) {
        const vp_runtime_param *p = &f->rt->params[i];
        vp_safetensors         *file;
        if (vp_lora_is_adapter(p->name))
            continue;
        const vp_tensor_info *t = find_stored(f, p->name, &file);
        f->found[i] = f->used[i] = t;
        if (t) {
            f->first_of[part_of(f, p->name)] = t->name;
            VP_TRY(check_shape(p, t, vp_safetensors_path(file), err));
            VP_TRY(load_param(p, file, t, err));
        } else if (part_of(f, p->name) == INNER) {
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, f->dir, 0, p->name, "%s: no tensor %s", f->dir,
                              p->name));
        }
    }
    qsort(f->used, (size_t)f->rt->n_params, sizeof *f->used, by_address);
out:
    return st;
}

/* ---- what is not ---- */

/* Whether the files hold the inner model alone, but by its name in a language model: then that
 * model's projection is tied. */
static bool is_tied_model(const folder *f)
{
    if (!f->stored_prefix[0])
        return false;
    for (int64_t k = 0; k < vp_checkpoint_n_files(f->ckpt); k++)
        for (int64_t i = 0; i < vp_safetensors_count(vp_checkpoint_file(f->ckpt, k)); i++)
            if (!begins_with(vp_safetensors_at(vp_checkpoint_file(f->ckpt, k), i)->name,
                             f->stored_prefix))
                return false;
    return true;
}

/* A pooler or a head that the files do not hold is drawn and reported. One that they hold in
 * part, or tied, is not this plan's. */
static vp_status draw_missing(folder *f, vp_err *err)
{
    char      shown[128];
    vp_status st = VP_OK;

    for (int64_t i = 0; i < f->rt->n_params; i++) {
        const vp_runtime_param *p     = &f->rt->params[i];
        const char             *other = f->first_of[part_of(f, p->name)];
        bool projection               = is_one_of(p->name, projections, COUNT(projections), equals);
        if (f->found[i])
            continue;
        if (vp_lora_is_adapter(p->name)) {
            VP_TRY(vp_runtime_draw_param(f->rt, p, err));
            continue;
        }
        if (other)
            VP_TRY(VP_FAIL_AT(
                err, VP_ERR_INPUT, f->dir, 0, p->name,
                "%s: no tensor %s, though %s of the same head is there%s", f->dir, p->name,
                vp_text_escape(other, shown, sizeof shown),
                projection ? "; is it tied there? The plan's is not (tie_word_embeddings)" : ""));
        if (projection && is_tied_model(f))
            VP_TRY(VP_FAIL_AT(
                err, VP_ERR_INPUT, f->dir, 0, p->name,
                "%s: no tensor %s and no other head: there it is tied to the token table, the plan's is not (tie_word_embeddings)",
                f->dir, p->name));
        assert(part_of(f, p->name) != INNER && f->report->n_drawn < f->rt->n_params);
        VP_TRY(vp_runtime_draw_param(f->rt, p, err));
        f->report->drawn[f->report->n_drawn++] = p->name;
    }
out:
    return st;
}

/* ---- what is there besides ---- */

/* A tensor stored a second time: it must hold the parameter's values. */
static vp_status check_copy(const vp_runtime_param *p, vp_safetensors *file,
                            const vp_tensor_info *t, vp_err *err)
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
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, t->name,
                              "%s: %s differs from %s, but this model ties them", path, t->name,
                              p->name));
    }
out:
    return st;
}

/* The parameter a stored tensor is tied to, NULL: none. */
static const vp_runtime_param *tied_to(const vp_runtime *rt, const char *stored)
{
    static const char bias[] = "decoder.bias";
    size_t            n;

    assert(rt->n_params > 0);
    if (rt->plan->n_shared == 1 && is_one_of(stored, projections, COUNT(projections), equals))
        return &rt->params[0];
    if (!ends_with(stored, bias))
        return NULL;
    n = strlen(stored) - strlen(bias);
    for (int64_t i = 0; i < rt->n_params; i++)
        if (strncmp(rt->params[i].name, stored, n) == 0 &&
            strcmp(rt->params[i].name + n, "bias") == 0)
            return &rt->params[i];
    return NULL;
}

static bool same_first_word(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");
    return strncmp(a, b, n + 1) == 0;
}

/* Whether a tensor says by its name that it belongs to the inner model: under the files' prefix;
 * without one, by its first word. */
static bool is_of_inner_model(const folder *f, const char *stored)
{
    const char *before = NULL;

    if (is_one_of(stored, buffers, COUNT(buffers), ends_with) || is_pooler(stored))
        return false;
    if (f->stored_prefix[0])
        return begins_with(stored, f->stored_prefix);
    for (int64_t i = 0; i < f->rt->n_params; i++) {
        const char *own = f->rt->params[i].name + strlen(f->prefix);
        if (part_of(f, f->rt->params[i].name) == HEAD || (before && same_first_word(before, own)))
            continue;
        if (same_first_word(own, stored))
            return true;
        before = own;
    }
    return false;
}

/* Buffers and other heads are reported. More of the inner model than the plan has is another
 * model. */
static vp_status check_strangers(folder *f, vp_err *err)
{
    char      shown[128];
    vp_status st = VP_OK;

    for (int64_t k = 0; k < vp_checkpoint_n_files(f->ckpt); k++) {
        vp_safetensors *file = vp_checkpoint_file(f->ckpt, k);
        for (int64_t i = 0; i < vp_safetensors_count(file); i++) {
            const vp_tensor_info   *t    = vp_safetensors_at(file, i);
            const vp_runtime_param *tied = tied_to(f->rt, t->name);
            if (bsearch(&t, f->used, (size_t)f->rt->n_params, sizeof *f->used, by_address))
                continue;
            if (tied)
                VP_TRY(check_copy(tied, file, t, err));
            else if (is_of_inner_model(f, t->name))
                VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, vp_safetensors_path(file), 0, t->name,
                                  "%s: tensor %s belongs to no parameter of the plan",
                                  vp_safetensors_path(file),
                                  vp_text_escape(t->name, shown, sizeof shown)));
            else
                f->report->unused[f->report->n_unused++] = vp_arena_strdup(f->rt->scratch, t->name);
        }
    }
    if (vp_arena_failed(f->rt->scratch))
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    return st;
}

vp_status vp_runtime_load(vp_runtime *rt, const char *dir, vp_load_report *report, vp_err *err)
{
    folder    f        = {.dir = dir, .rt = rt, .report = report};
    int64_t   n_stored = 0;
    vp_status st       = VP_OK;

    *report = (vp_load_report){0};
    VP_TRY(vp_checkpoint_open(dir, &f.ckpt, err));
    for (int64_t k = 0; k < vp_checkpoint_n_files(f.ckpt); k++)
        n_stored += vp_safetensors_count(vp_checkpoint_file(f.ckpt, k));
    f.found        = vp_arena_array(rt->scratch, rt->n_params, sizeof *f.found);
    f.used         = vp_arena_array(rt->scratch, rt->n_params, sizeof *f.used);
    report->drawn  = vp_arena_array(rt->scratch, rt->n_params, sizeof *report->drawn);
    report->unused = vp_arena_array(rt->scratch, n_stored, sizeof *report->unused);
    VP_TRY_ALLOC(err, !vp_arena_failed(rt->scratch));
    find_prefixes(&f);
    VP_TRY(load_found(&f, err));
    VP_TRY(draw_missing(&f, err));
    VP_TRY(check_strangers(&f, err));
    if (rt->plan->recipe.lora.rank && vp_adapters_are_in(dir))
        VP_TRY(vp_runtime_load_adapters(rt, dir, err));
    else
        VP_TRY(vp_runtime_loaded(rt, err));
out:
    vp_checkpoint_close(f.ckpt);
    return st;
}

vp_status vp_runtime_check_save(const char *dir, bool adapters, bool overwrite, vp_err *err)
{
    const char *const files[] = {adapters ? "adapter_model.safetensors" : "model.safetensors",
                                 adapters ? "adapter_config.json" : "config.json"};
    char      path[1200];
    vp_status st = VP_OK;

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

/* What a parameter's file holds, in this process's memory: where it lies, or, off a device, a
 * copy that the caller frees. */
static vp_status saved_values(const vp_runtime_param *p, const void **values, void **copy,
                              vp_err *err)
{
    const void *at    = p->master ? p->master : p->data;
    int64_t   n_bytes = p->param->n_elements * vp_dtype_bytes(p->master ? VP_DTYPE_F32 : p->dtype);
    vp_status st      = VP_OK;

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

static vp_st_dtype saved_dtype(const vp_runtime_param *p)
{
    return p->master || p->dtype == VP_DTYPE_F32 ? VP_ST_F32
           : p->dtype == VP_DTYPE_F16            ? VP_ST_F16
                                                 : VP_ST_BF16;
}

/* The tensors of the adapters alone, or of all the rest with these folded in. */
static vp_status write_tensors(const vp_runtime *rt, bool adapters, const char *path,
                               bool overwrite, vp_err *err)
{
    vp_tensor_data *tensors = calloc((size_t)rt->n_params + 1, sizeof *tensors);
    void          **copies  = calloc((size_t)rt->n_params + 1, sizeof *copies);
    int64_t         n       = 0;
    vp_status       st      = VP_OK;

    VP_TRY_ALLOC(err, tensors && copies);
    for (int64_t i = 0; i < rt->n_params; i++) {
        const vp_param         *p = rt->params[i].param;
        const vp_runtime_param *r = &rt->params[i];
        if (vp_lora_is_adapter(r->name) != adapters)
            continue;
        vp_tensor_data *t = &tensors[n];
        *t                = (vp_tensor_data){.dtype = saved_dtype(r), .rank = p->rank};
        t->name = adapters ? vp_arena_printf(rt->scratch, "base_model.model.%s", r->name) : r->name;
        VP_TRY_ALLOC(err, t->name);
        if (!adapters)
            VP_TRY(vp_adapters_merged(rt, r, &copies[n], err));
        t->data = copies[n];
        if (!t->data)
            VP_TRY(saved_values(r, &t->data, &copies[n], err));
        assert(t->data && p->rank <= VP_PARAM_MAX_RANK);
        for (int d = 0; d < p->rank; d++)
            t->shape[d] = p->shape[d];
        n++;
    }
    VP_TRY(vp_safetensors_write(path, tensors, n, overwrite, err));
out:
    for (int64_t i = 0; copies && i < rt->n_params; i++)
        free(copies[i]);
    free(copies);
    free(tensors);
    return st;
}

vp_status vp_runtime_save_merged(const vp_runtime *rt, const char *dir, bool overwrite, vp_err *err)
{
    vp_text   config = {0};
    char      path[1200];
    vp_status st = VP_OK;

    VP_TRY(vp_file_make_dir(dir, err));
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    VP_TRY(write_tensors(rt, false, path, overwrite, err));
    VP_TRY_ALLOC(err, vp_json_dump(rt->plan->model_config, &config));
    snprintf(path, sizeof path, "%s/config.json", dir);
    VP_TRY(vp_file_write(path, config.data, config.n_bytes, overwrite, err));
out:
    vp_text_release(&config);
    return st;
}

vp_status vp_runtime_save(const vp_runtime *rt, const char *dir, bool overwrite, vp_err *err)
{
    char      path[1200];
    vp_status st = VP_OK;

    if (!rt->plan->recipe.lora.rank)
        return vp_runtime_save_merged(rt, dir, overwrite, err);
    VP_TRY(vp_file_make_dir(dir, err));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    VP_TRY(write_tensors(rt, true, path, overwrite, err));
    VP_TRY(vp_adapters_write_config(rt, dir, overwrite, err));
out:
    return st;
}
