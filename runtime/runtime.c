#include "runtime/runtime_internal.h"

#include "core/checked.h"
#include "core/sha256.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- life ---- */

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
            p->data  = (float *)(void *)(rt->arena[0].base + x->param_base_bytes + t->params[k].offset_bytes);
            p->grad  = (float *)(void *)(rt->arena[0].base + x->grad_base_bytes + t->params[k].offset_bytes);
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
    rt->optimizer = (vp_optimizer_numbers){plan->recipe.beta1, plan->recipe.beta2, plan->recipe.eps, plan->recipe.weight_decay};
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

/* Optimizer states begin at zero, in place. */
static void zero_states(vp_runtime *rt)
{
    const vp_bucket *b = rt->bucket;

    for (int64_t i = 0; i < b->n_instances; i++) {
        const vp_plan_template *t = &rt->plan->templates[b->programs[b->instances[i].program_idx].template_idx];
        for (int s = 0; s < vp_optimizer_n_states(rt->plan->recipe.optimizer); s++)
            for (int64_t k = 0; k < t->n_params; k++)
                for (int r = 0; r < rt->n_arenas; r++)
                    memset(rt->arena[r].base + b->instances[i].state_base_bytes[s] + t->params[k].offset_bytes, 0,
                           (size_t)t->params[k].n_elements * sizeof(float));
    }
}

/* A parameter was filled in the first arena: give it to the second. */
static void replicate(vp_runtime *rt, const vp_runtime_param *p)
{
    vp_runtime_put(rt, (unsigned char *)p->data - rt->arena[0].base, p->data, p->param->n_elements * (int64_t)sizeof(float));
}

vp_status vp_runtime_draw(vp_runtime *rt, vp_err *err)
{
    int64_t seed = rt->opts.seed >= 0 ? rt->opts.seed : rt->plan->recipe.seed;

    (void)err;
    for (int64_t i = 0; i < rt->n_params; i++) {
        vp_runtime_param *p = &rt->params[i];
        switch (p->param->init) {
        case VP_INIT_ZEROS:
        case VP_INIT_ONES:
            for (int64_t k = 0; k < p->param->n_elements; k++)
                p->data[k] = p->param->init == VP_INIT_ONES ? 1.0f : 0.0f;
            break;
        default:
            vp_draw_normal((uint64_t)seed, p->name, p->param->init_std, p->data, p->param->n_elements);
            break;
        }
        replicate(rt, p);
    }
    zero_states(rt);
    return VP_OK;
}

void vp_runtime_loaded(vp_runtime *rt)
{
    for (int64_t i = 0; i < rt->n_params; i++)
        replicate(rt, &rt->params[i]);
    zero_states(rt);
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
static vp_kernel_time *time_of(vp_runtime *rt, const vp_step *step)
{
    int      n_ints = vp_kernel_info_of(step->kernel)->n_ints;
    uint64_t h      = (uint64_t)step->kernel + 1;

    for (int k = 0; k < n_ints; k++)
        h = (h ^ (uint64_t)step->ints[k]) * UINT64_C(0x9e3779b97f4a7c15);
    for (int64_t slot = (int64_t)(h >> 32) & (rt->n_time_slots - 1);; slot = (slot + 1) & (rt->n_time_slots - 1)) {
        int32_t *idx = &rt->time_slots[slot];
        if (*idx == 0) {
            rt->times[rt->n_times] = (vp_kernel_time){.kernel = step->kernel, .ints = step->ints};
            *idx                   = (int32_t)++rt->n_times;
        }
        vp_kernel_time *t = &rt->times[*idx - 1];
        if (t->kernel == step->kernel && memcmp(t->ints, step->ints, (size_t)n_ints * sizeof *t->ints) == 0)
            return t;
    }
}

static vp_status run_kernel(const vp_expanded_step *x, void *ctx, vp_err *err)
{
    vp_runtime     *rt   = ctx;
    const vp_step  *step = x->step;
    vp_kernel_time *time = time_of(rt, step);
    vp_status       st   = VP_OK;

    vp_kernel_call call = {.kernel = step->kernel, .accumulate = x->accumulate, .optimizer = &rt->optimizer,
                           .rng = {.seed = (uint64_t)rt->plan->recipe.seed, .step = (uint32_t)rt->step, .op = x->rng_op,
                                   .first_sample = rt->step * rt->plan->global_batch + vp_max_i64(0, x->micro_step) * rt->bucket->micro_batch}};
    memcpy(call.ints, step->ints, sizeof call.ints);
    memcpy(call.reals, step->reals, sizeof call.reals);
    if (rt->verifier)
        VP_TRY(vp_verifier_before(rt, x->idx, err));
    for (int r = 0; r < rt->n_arenas; r++) {
        for (int k = 0; k < x->n_operands; k++) {
            if (x->operands[k].buffer < 0)
                continue;
            int64_t offset = x->operands[k].offset_bytes, bytes = vp_kernel_operand_bytes(step->kernel, step->ints, k);
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

static vp_status check_batch(const vp_runtime *rt, const int32_t *tokens, const int32_t *labels, int64_t *n_targets, vp_err *err)
{
    int64_t n = vp_plan_tokens(rt->plan);

    *n_targets = 0;
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= rt->plan->vocab_size)
            return VP_FAIL(err, VP_ERR_INPUT, "token %lld of step %lld is %d; the vocabulary has %lld", (long long)i, (long long)rt->step,
                           (int)tokens[i], (long long)rt->plan->vocab_size);
        if (labels[i] != VP_IGNORE_LABEL && (labels[i] < 0 || labels[i] >= rt->plan->vocab_size))
            return VP_FAIL(err, VP_ERR_INPUT, "label %lld of step %lld is %d; the vocabulary has %lld", (long long)i, (long long)rt->step,
                           (int)labels[i], (long long)rt->plan->vocab_size);
        *n_targets += labels[i] != VP_IGNORE_LABEL;
    }
    if (*n_targets == 0)
        return VP_FAIL(err, VP_ERR_INPUT, "step %lld has no target: every label is %d", (long long)rt->step, VP_IGNORE_LABEL);
    return VP_OK;
}

vp_status vp_runtime_step(vp_runtime *rt, const int32_t *tokens, const int32_t *labels, vp_step_result *result, vp_err *err)
{
    const vp_plan *plan      = rt->plan;
    int64_t        id_bytes  = vp_plan_tokens(plan) * (int64_t)sizeof(int32_t), n_targets;
    int64_t        at        = plan->fixed[plan->control_idx].offset_bytes;
    vp_control     control   = {0};
    double         start_s   = now_s();
    vp_status      st        = VP_OK;

    VP_TRY(check_batch(rt, tokens, labels, &n_targets, err));
    control.lr            = vp_recipe_lr(&plan->recipe, rt->step, rt->opts.n_total_steps);
    control.step          = (double)(rt->step + 1);
    control.inv_n_targets = 1.0 / (double)n_targets;
    vp_runtime_put(rt, at, &control, sizeof control);
    vp_runtime_put(rt, plan->fixed[plan->tokens_idx].offset_bytes, tokens, id_bytes);
    vp_runtime_put(rt, plan->fixed[plan->labels_idx].offset_bytes, labels, id_bytes);
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
    vp_sha256 h = vp_sha256_begin();

    for (int64_t i = 0; i < rt->n_params; i++)
        vp_sha256_add(&h, rt->params[i].data, (size_t)rt->params[i].param->n_elements * sizeof(float));
    vp_sha256_hex(&h, text);
}
