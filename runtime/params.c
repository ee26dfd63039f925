/* runtime/params.c: what lies in the arena before the first step: parameters, states of zero,
 * constants. */
#include "runtime/runtime_internal.h"

#include "base/bf16.h"
#include "base/checked.h"
#include "base/fp16.h"
#include "base/sha256.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements that pass through the host's stack at a time. */
enum { AT_A_TIME = 16384 };

/* ---- a parameter's values ---- */

static void *held_at(const vp_runtime *rt, const vp_plan_instance *x, const vp_plan_param *p,
                     vp_region h)
{
    const vp_arena_block *m     = &rt->arena[0][x->region_memory[h]];
    int64_t               at    = x->region_base_bytes[h] + p->offset_bytes[h];
    int64_t               bytes = vp_plan_param_bytes(&rt->plan->recipe, &p->param, h);

    assert(bytes > 0 && at >= 0 && at <= m->n_bytes - bytes);
    return m->base + at;
}

vp_status vp_runtime_list_params(vp_runtime *rt, vp_err *err)
{
    const vp_plan   *plan = rt->plan;
    const vp_bucket *b    = rt->bucket;
    int64_t          n    = 0;

    for (int64_t i = 0; i < b->n_instances; i++)
        n += plan->templates[b->programs[b->instances[i].program_idx].template_idx].n_params;
    rt->params = vp_arena_array(rt->scratch, n, sizeof *rt->params);
    if (!rt->params)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int64_t i = 0; i < b->n_instances; i++) {
        const vp_plan_instance *x = &b->instances[i];
        const vp_plan_template *t = &plan->templates[b->programs[x->program_idx].template_idx];
        for (int64_t k = 0; k < t->n_params; k++) {
            vp_runtime_param *p = &rt->params[rt->n_params++];
            p->backend          = rt->backend;
            p->param            = &t->params[k].param;
            p->dtype            = vp_precision_dtype(plan->recipe.precision);
            p->data             = held_at(rt, x, &t->params[k], VP_REGION_PARAM);
            p->grad_dtype       = vp_gradients_dtype(plan->recipe.gradients);
            if (!p->param->frozen)
                p->grad = held_at(rt, x, &t->params[k], VP_REGION_GRAD);
            if (!p->param->frozen && vp_precision_has_master(plan->recipe.precision))
                p->master = held_at(rt, x, &t->params[k], VP_REGION_MASTER);
            vp_param_full_name(p->param, x->index, p->name, sizeof p->name);
        }
    }
    assert(rt->n_params == n);
    return VP_OK;
}

int64_t vp_runtime_n_params(const vp_runtime *rt)
{
    return rt->n_params;
}

void vp_runtime_param_at(const vp_runtime *rt, int64_t idx, vp_runtime_param *out)
{
    assert(idx >= 0 && idx < rt->n_params);
    *out = rt->params[idx];
}

static vp_status get_bf16(const vp_backend *backend, const uint16_t *from, int64_t n, float *out,
                          vp_err *err)
{
    uint16_t  bits[AT_A_TIME];
    vp_status st = VP_OK;

    for (int64_t k = 0; k < n; k += AT_A_TIME) {
        int64_t len = vp_min_i64(AT_A_TIME, n - k);
        VP_TRY(backend->download(bits, from + k, len * (int64_t)sizeof *bits, err));
        for (int64_t i = 0; i < len; i++)
            out[k + i] = vp_bf16_to_f32(bits[i]);
    }
out:
    return st;
}

static vp_status set_half(const vp_runtime_param *p, int64_t first, int64_t n, const float *values,
                          vp_err *err)
{
    uint16_t  bits[AT_A_TIME];
    vp_status st = VP_OK;

    assert(vp_dtype_bytes(p->dtype) == (int64_t)sizeof *bits);
    for (int64_t k = 0; k < n; k += AT_A_TIME) {
        int64_t len = vp_min_i64(AT_A_TIME, n - k);
        for (int64_t i = 0; i < len; i++)
            bits[i] = p->dtype == VP_DTYPE_F16 ? vp_fp16_from_f32(values[k + i])
                                               : vp_bf16_from_f32(values[k + i]);
        VP_TRY(p->backend->upload((uint16_t *)p->data + first + k, bits,
                                  len * (int64_t)sizeof *bits, err));
    }
out:
    return st;
}

vp_status vp_runtime_param_get(const vp_runtime_param *p, int64_t first, int64_t n, float *out,
                               vp_err *err)
{
    assert(first >= 0 && n >= 0 && first <= p->param->n_elements - n);
    if (p->master || p->dtype == VP_DTYPE_F32)
        return p->backend->download(out, (p->master ? p->master : (const float *)p->data) + first,
                                    n * (int64_t)sizeof *out, err);
    return get_bf16(p->backend, (const uint16_t *)p->data + first, n, out, err);
}

vp_status vp_runtime_grad_get(const vp_runtime_param *p, int64_t first, int64_t n, float *out,
                              vp_err *err)
{
    assert(first >= 0 && n >= 0 && first <= p->param->n_elements - n);
    if (p->grad_dtype == VP_DTYPE_BF16)
        return get_bf16(p->backend, (const uint16_t *)p->grad + first, n, out, err);
    return p->backend->download(out, (const float *)p->grad + first, n * (int64_t)sizeof *out, err);
}

vp_status vp_runtime_param_set(const vp_runtime_param *p, int64_t first, int64_t n,
                               const float *values, vp_err *err)
{
    vp_status st = VP_OK;

    assert(first >= 0 && n >= 0 && first <= p->param->n_elements - n);
    if (p->master)
        VP_TRY(p->backend->upload(p->master + first, values, n * (int64_t)sizeof *values, err));
    if (p->dtype == VP_DTYPE_F32)
        VP_TRY(
            p->backend->upload((float *)p->data + first, values, n * (int64_t)sizeof *values, err));
    else
        VP_TRY(set_half(p, first, n, values, err));
out:
    return st;
}

/* ---- before the first step ---- */

/* A device fills what it reads and writes by itself; the host's other memory the host. */
static vp_status zero(vp_runtime *rt, int replica, vp_memory memory, int64_t offset_bytes,
                      int64_t bytes, vp_err *err)
{
    unsigned char *at = rt->arena[replica][memory].base + offset_bytes;
    vp_status      st = VP_OK;

    assert(offset_bytes >= 0 && bytes <= rt->arena[replica][memory].n_bytes - offset_bytes);
    if (memory != VP_MEMORY_HOST)
        return rt->backend->fill(at, 0, bytes, err);
    VP_TRY(rt->backend->wait(err));
    memset(at, 0, (size_t)bytes);
out:
    return st;
}

/* Optimizer states begin at zero. A bf16 or 8-bit zero is zero bytes too. */
static vp_status zero_states(vp_runtime *rt, vp_err *err)
{
    const vp_bucket *b  = rt->bucket;
    vp_status        st = VP_OK;

    for (int64_t i = 0; i < b->n_instances; i++) {
        const vp_plan_template *t =
            &rt->plan->templates[b->programs[b->instances[i].program_idx].template_idx];
        for (int h = VP_REGION_STATE0; h <= VP_REGION_STATE1; h++)
            for (int64_t k = 0; k < t->n_params; k++) {
                int64_t bytes =
                    vp_plan_param_bytes(&rt->plan->recipe, &t->params[k].param, (vp_region)h);
                assert(bytes >= 0); /* an overflow does not pass the plan's checker */
                for (int r = 0; bytes > 0 && r < rt->n_arenas; r++)
                    VP_TRY(zero(rt, r, b->instances[i].region_memory[h],
                                b->instances[i].region_base_bytes[h] + t->params[k].offset_bytes[h],
                                bytes, err));
            }
    }
out:
    return st;
}

/* Cosines (or sines) of every position, each rounded once from double. */
static vp_status fill_waves(vp_runtime *rt, const vp_rope_table *a, double (*wave)(double),
                            unsigned char *at, vp_err *err)
{
    int64_t   n = rt->bucket->seq * a->n;
    float     values[AT_A_TIME];
    vp_status st = VP_OK;

    assert(a->n > 0 && a->inv_freq);
    for (int64_t k = 0; k < n; k += AT_A_TIME) {
        int64_t len = vp_min_i64(AT_A_TIME, n - k);
        for (int64_t i = 0; i < len; i++)
            values[i] =
                (float)(wave((double)((k + i) / a->n) * a->inv_freq[(k + i) % a->n]) * a->scale);
        VP_TRY(vp_runtime_put(rt, at + k * (int64_t)sizeof *values, values,
                              len * (int64_t)sizeof *values, err));
    }
out:
    return st;
}

static vp_status fill_angles(vp_runtime *rt, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t f = 0; f < rt->plan->n_fixed; f++) {
        const vp_plan_fixed *fixed = &rt->plan->fixed[f];
        if (fixed->component != VP_COMP_CONSTANTS)
            continue;
        unsigned char *at = rt->arena[0][VP_MEMORY_DEVICE].base + fixed->offset_bytes;
        assert(fixed->bytes == 2 * rt->bucket->seq * fixed->angles.n * (int64_t)sizeof(float));
        VP_TRY(fill_waves(rt, &fixed->angles, cos, at, err));
        VP_TRY(fill_waves(rt, &fixed->angles, sin, at + fixed->bytes / 2, err));
    }
out:
    return st;
}

/* A parameter was filled in the first arena: give it to the second, which is there for
 * verification only. */
static vp_status replicate(vp_runtime *rt, const vp_runtime_param *p, vp_err *err)
{
    vp_status st = VP_OK;

    if (rt->n_arenas == 1)
        return VP_OK;
    VP_TRY(
        vp_runtime_put(rt, p->data, p->data, p->param->n_elements * vp_dtype_bytes(p->dtype), err));
    if (p->master)
        VP_TRY(vp_runtime_put(rt, p->master, p->master,
                              p->param->n_elements * (int64_t)sizeof(float), err));
out:
    return st;
}

/* Elements first .. first + n - 1 of a parameter. */
static void draw_values(const vp_runtime_param *p, uint64_t seed, int64_t first, int64_t n,
                        float *values)
{
    int64_t cols = p->param->n_elements / (p->param->rank > 0 ? p->param->shape[0] : 1);
    int64_t zero = (p->param->zero_row - 1) * cols;

    assert(n > 0 && p->param->init < VP_N_INITS);
    assert(p->param->zero_row >= 0 &&
           (p->param->zero_row == 0 || p->param->zero_row <= p->param->shape[0]));
    if (p->param->init == VP_INIT_NORMAL)
        vp_draw_normal(seed, p->name, p->param->init_std, first, values, n);
    else if (p->param->init == VP_INIT_UNIFORM)
        vp_draw_uniform(seed, p->name, p->param->init_std, first, values, n);
    else
        for (int64_t k = 0; k < n; k++)
            values[k] = p->param->init == VP_INIT_ONES ? 1.0f : 0.0f;
    for (int64_t k = vp_max_i64(zero, first);
         p->param->zero_row && k < vp_min_i64(zero + cols, first + n); k++)
        values[k - first] = 0.0f;
}

/* In the process's own memory drawn where fp32 values have a place: the parameter or its master.
 * Else drawn a piece at a time and sent there. */
vp_status vp_runtime_draw_param(const vp_runtime *rt, const vp_runtime_param *p, vp_err *err)
{
    enum { PIECE = 1 << 18 };
    _Static_assert(PIECE % VP_DRAW_UNIT == 0, "a piece begins where drawing may");
    int64_t   seed   = rt->opts.seed >= 0 ? rt->opts.seed : rt->plan->recipe.seed;
    int64_t   n      = p->param->n_elements;
    float    *place  = p->master ? p->master : p->dtype == VP_DTYPE_F32 ? p->data : NULL;
    bool      here   = p->backend->host_memory && place;
    int64_t   length = here ? n : vp_min_i64(n, PIECE);
    float    *values = here ? place : malloc((size_t)length * sizeof *values);
    vp_status st     = VP_OK;

    VP_TRY_ALLOC(err, values);
    for (int64_t k = 0; k < n; k += length) {
        int64_t len = vp_min_i64(length, n - k);
        draw_values(p, (uint64_t)seed, k, len, values);
        VP_TRY(vp_runtime_param_set(p, k, len, values, err));
    }
out:
    if (!here)
        free(values);
    return st;
}

vp_status vp_runtime_draw(vp_runtime *rt, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < rt->n_params; i++)
        VP_TRY(vp_runtime_draw_param(rt, &rt->params[i], err));
    VP_TRY(vp_runtime_loaded(rt, err));
out:
    return st;
}

/* What scales the loss begins as the recipe says. */
static vp_status put_loss_scale(vp_runtime *rt, vp_err *err)
{
    const vp_plan       *plan  = rt->plan;
    vp_scaled_control    begin = {.loss_scale = plan->recipe.loss_scale};
    const vp_plan_fixed *f     = &plan->fixed[plan->control_idx];

    if (!vp_precision_scales_loss(plan->recipe.precision))
        return VP_OK;
    assert(f->bytes >= (int64_t)sizeof begin);
    return vp_runtime_put(rt, rt->arena[0][VP_MEMORY_DEVICE].base + f->offset_bytes, &begin,
                          sizeof begin, err);
}

vp_status vp_runtime_loaded(vp_runtime *rt, vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < rt->n_params; i++)
        VP_TRY(replicate(rt, &rt->params[i], err));
    VP_TRY(zero_states(rt, err));
    VP_TRY(fill_angles(rt, err));
    VP_TRY(put_loss_scale(rt, err));
out:
    return st;
}

vp_status vp_runtime_sha256(const vp_runtime *rt, char text[65], vp_err *err)
{
    vp_sha256 h = vp_sha256_begin();
    float     values[AT_A_TIME];
    vp_status st = VP_OK;

    text[0] = '\0';
    for (int64_t i = 0; i < rt->n_params; i++)
        for (int64_t k = 0; k < rt->params[i].param->n_elements; k += AT_A_TIME) {
            int64_t n = vp_min_i64(AT_A_TIME, rt->params[i].param->n_elements - k);
            VP_TRY(vp_runtime_param_get(&rt->params[i], k, n, values, err));
            vp_sha256_add(&h, values, (size_t)n * sizeof *values);
        }
    vp_sha256_hex(&h, text);
out:
    return st;
}
