#include "runtime/runtime_internal.h"

#include "core/bf16.h"
#include "core/checked.h"
#include "core/sha256.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- life ---- */

static void *held_at(const vp_runtime *rt, const vp_plan_instance *x, const vp_plan_param *p, vp_holding h)
{
    return rt->arena[0].base + x->holding_base_bytes[h] + p->offset_bytes[h];
}

static vp_status list_params(vp_runtime *rt, vp_err *err)
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
            p->param = &t->params[k];
            p->dtype = vp_precision_dtype(plan->recipe.precision);
            p->data  = held_at(rt, x, p->param, VP_HOLD_PARAM);
            p->grad  = held_at(rt, x, p->param, VP_HOLD_GRAD);
            if (vp_precision_has_master(plan->recipe.precision))
                p->master = held_at(rt, x, p->param, VP_HOLD_MASTER);
            vp_param_full_name(&t->params[k], x->index, p->name, sizeof p->name);
        }
    }
    return VP_OK;
}

static vp_status make_times(vp_runtime *rt, vp_err *err)
{
    int64_t n = 0;

    for (int64_t k = 0; k < rt->bucket->n_programs; k++)
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            n += rt->bucket->programs[k].n_steps[pass];
    n += rt->bucket->n_instances; /* attentions whose window is their instance's: forward and backward, of few widths */
    for (rt->n_time_slots = 16; rt->n_time_slots < 2 * n;)
        rt->n_time_slots *= 2;
    rt->times      = vp_arena_array(rt->scratch, n, sizeof *rt->times);
    rt->time_slots = vp_arena_array(rt->scratch, rt->n_time_slots, sizeof *rt->time_slots);
    return rt->times && rt->time_slots ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
}

static vp_status count_padding(vp_runtime *rt, vp_err *err)
{
    vp_arena    *arena = vp_arena_new();
    vp_expansion x;
    vp_range    *gaps;
    int64_t      n;
    vp_status    st = VP_OK;

    VP_TRY_ALLOC(err, arena);
    VP_TRY(vp_expansion_make(arena, rt->plan, rt->bucket, rt->bucket->n_micro_steps, &x, err));
    VP_TRY(vp_expansion_padding(arena, &x, rt->plan->peak_bytes, &gaps, &n, err));
    for (int64_t i = 0; i < n; i++)
        rt->padding_bytes += gaps[i].end - gaps[i].begin;
    rt->n_buffers = x.n_buffers;
out:
    vp_arena_free(arena);
    return st;
}

vp_status vp_runtime_new(const vp_plan *plan, const vp_backend *backend, const vp_run_opts *opts, vp_runtime **out, vp_err *err)
{
    vp_runtime *rt = calloc(1, sizeof *rt);
    vp_status   st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, rt);
    rt->plan     = plan;
    rt->bucket   = &plan->buckets[0];
    rt->backend  = backend;
    rt->opts     = *opts;
    rt->scratch  = vp_arena_new();
    rt->n_arenas = opts->verify ? VP_N_REPLICAS : 1;
    rt->optimizer = (vp_optimizer_numbers){plan->recipe.beta1, plan->recipe.beta2, plan->recipe.eps, plan->recipe.weight_decay, plan->recipe.momentum};
    VP_TRY_ALLOC(err, rt->scratch);
    for (int r = 0; r < rt->n_arenas; r++)
        VP_TRY(vp_arena_map_new(plan->peak_bytes, &rt->arena[r], err));
    VP_TRY(list_params(rt, err));
    VP_TRY(count_padding(rt, err));
    VP_TRY(make_times(rt, err));
    if (opts->verify) {
        VP_TRY(vp_verifier_new(rt, err));
        vp_verifier_poison_all(rt);
    }
    *out = rt;
    rt   = NULL;
out:
    vp_runtime_free(rt);
    return st;
}

void vp_runtime_free(vp_runtime *rt)
{
    if (!rt)
        return;
    for (int r = 0; r < VP_N_REPLICAS; r++)
        vp_arena_map_free(&rt->arena[r]);
    vp_arena_free(rt->scratch);
    free(rt);
}

/* ---- parameters ---- */

void vp_runtime_put(vp_runtime *rt, int64_t offset, const void *data, int64_t n_bytes)
{
    assert(offset >= 0 && n_bytes >= 0 && offset <= rt->arena[0].n_bytes - n_bytes);
    for (int r = 0; r < rt->n_arenas; r++)
        if (rt->arena[r].base + offset != data)
            memcpy(rt->arena[r].base + offset, data, (size_t)n_bytes);
}

/* ---- what lies there before the first step ---- */

/* Optimizer states begin at zero. A bf16 or 8-bit zero is zero bytes too. */
static void zero_states(vp_runtime *rt)
{
    const vp_bucket *b = rt->bucket;

    for (int64_t i = 0; i < b->n_instances; i++) {
        const vp_plan_template *t = &rt->plan->templates[b->programs[b->instances[i].program_idx].template_idx];
        for (int h = VP_HOLD_STATE0; h <= VP_HOLD_STATE1; h++)
            for (int64_t k = 0; k < t->n_params; k++)
                for (int r = 0; r < rt->n_arenas; r++)
                    memset(rt->arena[r].base + b->instances[i].holding_base_bytes[h] + t->params[k].offset_bytes[h], 0,
                           (size_t)vp_plan_param_bytes(&rt->plan->recipe, &t->params[k], (vp_holding)h));
    }
}

/* Cosines and sines of every position, each rounded once from double. */
static void fill_angles(vp_runtime *rt)
{
    for (int64_t f = 0; f < rt->plan->n_fixed; f++) {
        const vp_plan_fixed  *fixed = &rt->plan->fixed[f];
        const vp_plan_angles *a     = &fixed->angles;
        if (fixed->component != VP_COMP_CONSTANTS)
            continue;
        float *cosine = (float *)(void *)(rt->arena[0].base + fixed->offset_bytes), *sine = cosine + rt->bucket->seq * a->n;
        for (int64_t p = 0; p < rt->bucket->seq; p++)
            for (int64_t i = 0; i < a->n; i++) {
                double angle = (double)p * a->inv_freq[i];
                cosine[p * a->n + i] = (float)(cos(angle) * a->scale);
                sine[p * a->n + i]   = (float)(sin(angle) * a->scale);
            }
        vp_runtime_put(rt, fixed->offset_bytes, rt->arena[0].base + fixed->offset_bytes, fixed->bytes);
    }
}

/* A parameter was filled in the first arena: give it to the second. */
static void replicate(vp_runtime *rt, const vp_runtime_param *p)
{
    vp_runtime_put(rt, (unsigned char *)p->data - rt->arena[0].base, p->data, p->param->n_elements * vp_dtype_bytes(p->dtype));
    if (p->master)
        vp_runtime_put(rt, (unsigned char *)p->master - rt->arena[0].base, p->master, p->param->n_elements * (int64_t)sizeof(float));
}

void vp_runtime_param_get(const vp_runtime_param *p, int64_t first, int64_t n, float *out)
{
    if (p->master || p->dtype == VP_DTYPE_F32) {
        memcpy(out, (p->master ? p->master : (const float *)p->data) + first, (size_t)n * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = vp_bf16_to_f32(((const uint16_t *)p->data)[first + i]);
}

void vp_runtime_param_set(const vp_runtime_param *p, int64_t first, int64_t n, const float *values)
{
    if (p->master)
        memcpy(p->master + first, values, (size_t)n * sizeof *values);
    if (p->dtype == VP_DTYPE_F32)
        memmove((float *)p->data + first, values, (size_t)n * sizeof *values);
    for (int64_t i = 0; p->dtype == VP_DTYPE_BF16 && i < n; i++)
        ((uint16_t *)p->data)[first + i] = vp_bf16_from_f32(values[i]);
}

/* Drawn where fp32 values have a place of their own: the parameter, its master, else its gradient, which is free until the
 * first step. */
static void draw_param(const vp_runtime_param *p, uint64_t seed)
{
    int64_t n      = p->param->n_elements;
    float  *values = p->master ? p->master : p->dtype == VP_DTYPE_F32 ? p->data : p->grad;

    if (p->param->init == VP_INIT_NORMAL)
        vp_draw_normal(seed, p->name, p->param->init_std, values, n);
    else
        for (int64_t k = 0; k < n; k++)
            values[k] = p->param->init == VP_INIT_ONES ? 1.0f : 0.0f;
    if (p->param->zero_row)
        memset(values + (p->param->zero_row - 1) * (n / p->param->shape[0]), 0, (size_t)(n / p->param->shape[0]) * sizeof *values);
    if (p->dtype != VP_DTYPE_F32)
        for (int64_t k = 0; k < n; k++)
            ((uint16_t *)p->data)[k] = vp_bf16_from_f32(values[k]);
}

vp_status vp_runtime_draw(vp_runtime *rt, vp_err *err)
{
    int64_t seed = rt->opts.seed >= 0 ? rt->opts.seed : rt->plan->recipe.seed;

    (void)err;
    for (int64_t i = 0; i < rt->n_params; i++)
        draw_param(&rt->params[i], (uint64_t)seed);
    vp_runtime_loaded(rt);
    return VP_OK;
}

void vp_runtime_loaded(vp_runtime *rt)
{
    for (int64_t i = 0; i < rt->n_params; i++)
        replicate(rt, &rt->params[i]);
    if (rt->verifier)
        vp_verifier_poison_gradients(rt);
    zero_states(rt);
    fill_angles(rt);
}

int64_t vp_runtime_n_params(const vp_runtime *rt)
{
    return rt->n_params;
}

void vp_runtime_param_at(const vp_runtime *rt, int64_t idx, vp_runtime_param *out)
{
    *out = rt->params[idx];
}

/* ---- a step ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The entry of a step's kernel and shape. */
static vp_kernel_time *time_of(vp_runtime *rt, const vp_step *step, const int64_t *ints)
{
    int      n_ints = vp_kernel_info_of(step->kernel)->n_ints;
    uint64_t h      = (uint64_t)step->kernel * VP_N_DTYPES + step->dtype + 1;

    for (int k = 0; k < n_ints; k++)
        h = (h ^ (uint64_t)ints[k]) * UINT64_C(0x9e3779b97f4a7c15);
    for (int64_t slot = (int64_t)(h >> 32) & (rt->n_time_slots - 1);; slot = (slot + 1) & (rt->n_time_slots - 1)) {
        int32_t *idx = &rt->time_slots[slot];
        if (*idx == 0) {
            rt->times[rt->n_times] = (vp_kernel_time){.kernel = step->kernel, .dtype = step->dtype};
            memcpy(rt->times[rt->n_times].ints, ints, sizeof rt->times->ints);
            *idx                   = (int32_t)++rt->n_times;
        }
        vp_kernel_time *t = &rt->times[*idx - 1];
        if (t->kernel == step->kernel && t->dtype == step->dtype && memcmp(t->ints, ints, (size_t)n_ints * sizeof *t->ints) == 0)
            return t;
    }
}

static vp_status run_kernel(const vp_expanded_step *x, void *ctx, vp_err *err)
{
    vp_runtime     *rt   = ctx;
    const vp_step  *step = x->step;
    vp_kernel_time *time = time_of(rt, step, x->ints);
    vp_status       st   = VP_OK;

    vp_kernel_call call = {.kernel = step->kernel, .dtype = step->dtype, .accumulate = x->accumulate, .optimizer = &rt->optimizer,
                           .rng = {.seed = (uint64_t)rt->plan->recipe.seed, .step = (uint32_t)rt->step, .op = x->rng_op,
                                   .first_sample = rt->step * rt->plan->global_batch + vp_max_i64(0, x->micro_step) * rt->bucket->micro_batch}};
    memcpy(call.ints, x->ints, sizeof call.ints);
    memcpy(call.reals, step->reals, sizeof call.reals);
    if (rt->verifier)
        VP_TRY(vp_verifier_before(rt, x->idx, err));
    for (int r = 0; r < rt->n_arenas; r++) {
        for (int k = 0; k < x->n_operands; k++) {
            if (x->operands[k].buffer < 0)
                continue;
            int64_t offset = x->operands[k].offset_bytes, bytes = vp_kernel_operand_bytes(step->kernel, step->dtype, x->ints, k);
            assert(offset >= 0 && bytes > 0 && offset <= rt->arena[r].n_bytes - bytes); /* the plan's own promise */
            rt->executed_bytes = vp_max_i64(rt->executed_bytes, offset + bytes);
            call.operand[k]    = rt->arena[r].base + offset;
        }
        double start_s = now_s();
        VP_TRY(rt->backend->run(&call, err));
        time->seconds += now_s() - start_s;
        time->n_calls++;
    }
    if (rt->verifier)
        VP_TRY(vp_verifier_after(rt, x->idx, err));
out:
    return st;
}

static vp_status check_ids(const vp_runtime *rt, const char *what, const int32_t *ids, int64_t n, int64_t least, int64_t count, vp_err *err)
{
    for (int64_t i = 0; ids && i < n; i++)
        if (ids[i] < least || ids[i] >= count)
            return VP_FAIL(err, VP_ERR_INPUT, "%s %lld of step %lld is %d; there are %lld", what, (long long)i, (long long)rt->step, (int)ids[i],
                           (long long)count);
    return VP_OK;
}

static vp_status check_batch(const vp_runtime *rt, const vp_batch *b, int64_t *n_targets, vp_err *err)
{
    int64_t   n  = vp_plan_tokens(rt->plan);
    vp_status st = VP_OK;

    *n_targets = 0;
    for (int64_t i = 0; i < n; i++) {
        if (b->tokens[i] < 0 || b->tokens[i] >= rt->plan->vocab_size)
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "token %lld of step %lld is %d; the vocabulary has %lld", (long long)i, (long long)rt->step,
                           (int)b->tokens[i], (long long)rt->plan->vocab_size));
        if (b->labels[i] != VP_IGNORE_LABEL && (b->labels[i] < 0 || b->labels[i] >= rt->plan->vocab_size))
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "label %lld of step %lld is %d; the vocabulary has %lld", (long long)i, (long long)rt->step,
                           (int)b->labels[i], (long long)rt->plan->vocab_size));
        *n_targets += b->labels[i] != VP_IGNORE_LABEL;
    }
    if (*n_targets == 0)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "step %lld has no target: every label is %d", (long long)rt->step, VP_IGNORE_LABEL));
    VP_TRY(check_ids(rt, "token type", b->token_types, n, 0, rt->plan->n_token_types, err));
    VP_TRY(check_ids(rt, "length", b->lengths, rt->plan->global_batch, 1, rt->bucket->seq + 1, err));
out:
    return st;
}

/* A batch input, or the same number everywhere. */
static void put_ids(vp_runtime *rt, int64_t fixed_idx, const int32_t *ids, int64_t n, int32_t otherwise)
{
    int64_t at = rt->plan->fixed[fixed_idx].offset_bytes;

    if (ids) {
        vp_runtime_put(rt, at, ids, n * (int64_t)sizeof *ids);
        return;
    }
    for (int r = 0; r < rt->n_arenas; r++)
        for (int64_t i = 0; i < n; i++)
            memcpy(rt->arena[r].base + at + i * (int64_t)sizeof otherwise, &otherwise, sizeof otherwise);
}

static void put_batch(vp_runtime *rt, const vp_batch *b)
{
    const vp_plan *plan = rt->plan;
    int64_t        n    = vp_plan_tokens(plan);

    put_ids(rt, plan->tokens_idx, b->tokens, n, 0);
    put_ids(rt, plan->labels_idx, b->labels, n, 0);
    if (plan->types_idx >= 0)
        put_ids(rt, plan->types_idx, b->token_types, n, 0);
    if (plan->lengths_idx >= 0)
        put_ids(rt, plan->lengths_idx, b->lengths, plan->global_batch, (int32_t)rt->bucket->seq);
}

vp_status vp_runtime_step(vp_runtime *rt, const vp_batch *batch, vp_step_result *result, vp_err *err)
{
    const vp_plan *plan    = rt->plan;
    int64_t        at      = plan->fixed[plan->control_idx].offset_bytes, n_targets;
    vp_control     control = {0};
    double         start_s = now_s();
    vp_status      st      = VP_OK;

    VP_TRY(check_batch(rt, batch, &n_targets, err));
    control.lr            = vp_recipe_lr(&plan->recipe, rt->step, rt->opts.n_total_steps);
    control.step          = (double)(rt->step + 1);
    control.inv_n_targets = 1.0 / (double)n_targets;
    vp_runtime_put(rt, at, &control, sizeof control);
    put_batch(rt, batch);
    for (int64_t i = 0; i < rt->n_times; i++) {
        rt->times[i].n_calls = 0;
        rt->times[i].seconds = 0;
    }
    VP_TRY(vp_expand(plan, rt->bucket, rt->bucket->n_micro_steps, run_kernel, rt, err));
    memcpy(&control, rt->arena[0].base + at, sizeof control);
    rt->step++;
    if (rt->verifier)
        VP_TRY(vp_verifier_finish(rt, err));
    *result = (vp_step_result){.loss = control.loss_sum * control.inv_n_targets, .grad_norm = control.grad_norm, .seconds = now_s() - start_s};
    if (!isfinite(result->loss) || !isfinite(result->grad_norm))
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "step %lld: the loss is %g and the gradient norm %g; training diverged", (long long)(rt->step - 1),
                       result->loss, result->grad_norm));
out:
    return st;
}

/* ---- reports ---- */

void vp_runtime_memory(const vp_runtime *rt, vp_memory_report *out)
{
    *out = (vp_memory_report){.predicted_bytes = rt->plan->peak_bytes, .executed_bytes = rt->executed_bytes,
                              .resident_bytes = vp_arena_map_resident(&rt->arena[0]), .padding_bytes = rt->padding_bytes,
                              .n_buffers = rt->n_buffers};
    out->touched_bytes = vp_min_i64(out->resident_bytes, rt->arena[0].n_bytes);
    if (rt->verifier) {
        out->never_written_bytes = rt->verifier->never_written_bytes;
        out->touched_bytes       = 0;
        for (int64_t k = 0; k < rt->arena[0].n_bytes; k++)
            out->touched_bytes += rt->verifier->touched[k];
    }
}

const vp_kernel_time *vp_runtime_kernel_times(const vp_runtime *rt, int64_t *n)
{
    *n = rt->n_times;
    return rt->times;
}

void vp_runtime_sha256(const vp_runtime *rt, char text[65])
{
    enum { AT_A_TIME = 16384 };
    vp_sha256 h = vp_sha256_begin();
    float     values[AT_A_TIME];

    for (int64_t i = 0; i < rt->n_params; i++)
        for (int64_t k = 0; k < rt->params[i].param->n_elements; k += AT_A_TIME) {
            int64_t n = vp_min_i64(AT_A_TIME, rt->params[i].param->n_elements - k);
            vp_runtime_param_get(&rt->params[i], k, n, values);
            vp_sha256_add(&h, values, (size_t)n * sizeof *values);
        }
    vp_sha256_hex(&h, text);
}
