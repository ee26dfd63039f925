#include "runtime/runtime_internal.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/units.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static vp_status make_times(vp_runtime *rt, vp_err *err)
{
    int64_t n = 0;

    for (int64_t k = 0; k < rt->bucket->n_programs; k++)
        for (int pass = 0; pass < VP_N_PASSES; pass++)
            n += rt->bucket->programs[k].n_steps[pass];
    /* attentions whose window is their instance's: forward and backward, of few widths */
    n += rt->bucket->n_instances;
    for (rt->n_time_slots = 16; rt->n_time_slots < 2 * n;)
        rt->n_time_slots *= 2;
    assert(n > 0 && n <= INT32_MAX); /* a slot holds an entry's number */
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
    VP_TRY(vp_expansion_padding(arena, &x, VP_MEMORY_DEVICE, rt->plan->peak_bytes, &gaps, &n, err));
    for (int64_t i = 0; i < n; i++)
        rt->padding_bytes += gaps[i].end - gaps[i].begin;
    assert(rt->padding_bytes >= 0 && rt->padding_bytes <= rt->plan->peak_bytes);
    rt->n_buffers = x.n_buffers;
out:
    vp_arena_free(arena);
    return st;
}

static int64_t fixed_bytes(const vp_runtime *rt, int64_t fixed_idx)
{
    const vp_plan_fixed *f = &rt->plan->fixed[fixed_idx];

    assert(fixed_idx >= 0 && fixed_idx < rt->plan->n_fixed);

    if (fixed_idx == rt->plan->control_idx)
        return vp_precision_control_bytes(rt->plan->recipe.precision);
    return vp_plan_fixed_total_bytes(rt->bucket, f);
}

/* As long as the control block and the batch, each at a multiple of VP_ALIGN_BYTES. */
static vp_status make_block(vp_runtime *rt, vp_err *err)
{
    const vp_plan *plan     = rt->plan;
    const int64_t  inputs[] = {plan->control_idx, plan->tokens_idx, plan->labels_idx,
                               plan->types_idx, plan->lengths_idx};
    vp_host_block *b        = &rt->block;
    void          *base     = NULL;
    vp_status      st       = VP_OK;

    if (rt->backend->host_memory)
        return VP_OK;
    b->at = vp_arena_array(rt->scratch, plan->n_fixed, sizeof *b->at);
    VP_TRY_ALLOC(err, b->at);
    for (int64_t i = 0; i < plan->n_fixed; i++)
        b->at[i] = -1;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i] >= 0) {
            assert(inputs[i] < plan->n_fixed && b->at[inputs[i]] == -1); /* each has its own */
            b->at[inputs[i]] = b->n_bytes;
            b->n_bytes =
                vp_round_up(vp_add(b->n_bytes, fixed_bytes(rt, inputs[i])), VP_ALIGN_BYTES);
        }
    assert(b->n_bytes > 0 && b->at[plan->control_idx] >= 0); /* which run_all() fetches */
    double start_s = vp_now_s();
    VP_TRY(rt->backend->host_alloc(b->n_bytes, &base, err));
    rt->pinning_s += vp_now_s() - start_s;
    assert(base && (uintptr_t)base % VP_ALIGN_BYTES == 0);
    b->base = base;
out:
    return st;
}

static vp_status check_memories(const vp_plan *plan, vp_err *err)
{
    int64_t drive_bytes = vp_plan_memory_bytes(plan, VP_MEMORY_NVME);
    char    text[32];

    if (drive_bytes == 0)
        return VP_OK;
    return VP_FAIL(err, VP_ERR_USAGE,
                   "the plan leaves %s on a local drive (memory nvme), which vplan sizes and does "
                   "not execute; plan without --nvme, with more --host-memory",
                   vp_size_text(drive_bytes, text, sizeof text));
}

/* A plan's workspaces are made for one kind of device. */
static vp_status check_backend(const vp_runtime *rt, vp_err *err)
{
    int64_t planned = rt->plan->compute_capability, here = rt->backend->compute_capability;

    assert(here >= 0 && (here == 0 || !rt->backend->host_memory));
    if (planned == here && (here > 0 || strcmp(rt->plan->device, "cpu") == 0)) {
        if (rt->opts.verify && !rt->backend->host_memory)
            return VP_FAIL(
                err, VP_ERR_USAGE,
                "--verify looks at every byte of the arena: it works on the CPU backend only");
        return VP_OK;
    }
    if (here == 0)
        return VP_FAIL(err, VP_ERR_DEVICE,
                       "the plan is for %s and the backend is the CPU (plan with --device cpu)",
                       rt->plan->device);
    if (planned == 0)
        return VP_FAIL(
            err, VP_ERR_DEVICE,
            "the plan is for %s and the backend is CUDA on a device of compute capability %d.%d",
            rt->plan->device, (int)here / 10, (int)here % 10);
    return VP_FAIL(
        err, VP_ERR_DEVICE,
        "the plan is for %s, compute capability %d.%d, and the device here has %d.%d: its kernels need other workspaces",
        rt->plan->device, (int)planned / 10, (int)planned % 10, (int)here / 10, (int)here % 10);
}

/* Room for the updates of a step that the host makes. */
static vp_status make_host_calls(vp_runtime *rt, vp_err *err)
{
    int64_t n = 0;

    for (int64_t k = 0; k < rt->bucket->n_instances; k++) {
        const vp_program *p = &rt->bucket->programs[rt->bucket->instances[k].program_idx];
        for (int64_t i = 0; i < p->n_steps[VP_PASS_UPDATE]; i++)
            n += p->steps[VP_PASS_UPDATE][i].stream == VP_STREAM_HOST ? rt->n_arenas : 0;
    }
    if (n == 0)
        return VP_OK;
    rt->cap_host_calls = n;
    rt->host_calls     = vp_arena_array(rt->scratch, n, sizeof *rt->host_calls);
    return rt->host_calls ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
}

/* Whether a card has room for the arena and for what the plan expects beside it and is not there
 * yet: kernels are loaded and a step is recorded when it first runs, and that must not be where
 * memory ends. */
static vp_status check_room(const vp_runtime *rt, vp_err *err)
{
    char              text[3][32];
    vp_backend_memory m;
    int64_t           here, to_come;
    vp_status         st = VP_OK;

    if (rt->backend->host_memory)
        return VP_OK;
    VP_TRY(rt->backend->memory(&m, err));
    here    = m.used_bytes >= 0 ? m.used_bytes
              : m.all_used_bytes >= 0 && m.all_used_before_bytes >= 0
                  ? m.all_used_bytes - m.all_used_before_bytes
                  : m.total_bytes - m.free_bytes;
    to_come = rt->plan->outside_bytes > here ? rt->plan->outside_bytes - here : 0;
    if (rt->plan->peak_bytes <= m.free_bytes - to_come)
        return VP_OK;
    VP_TRY(VP_FAIL(
        err, VP_ERR_DEVICE,
        "the arena takes %s, context and libraries %s more than now, and the device has %s free: a budget of %lld bytes would fit",
        vp_size_text(rt->plan->peak_bytes, text[0], sizeof text[0]),
        vp_size_text(to_come, text[1], sizeof text[1]),
        vp_size_text(m.free_bytes, text[2], sizeof text[2]), (long long)(m.free_bytes + here)));
out:
    return st;
}

vp_status vp_runtime_new(const vp_plan *plan, const vp_backend *backend, const vp_run_opts *opts,
                         vp_runtime **out, vp_err *err)
{
    vp_runtime *rt = calloc(1, sizeof *rt);
    vp_status   st = VP_OK;

    *out = NULL;
    assert(plan->n_buckets > 0);
    assert(backend->api_version == VP_BACKEND_API);
    VP_TRY_ALLOC(err, rt);
    rt->plan      = plan;
    rt->bucket    = &plan->buckets[0];
    rt->backend   = backend;
    rt->opts      = *opts;
    rt->scratch   = vp_arena_new();
    rt->n_arenas  = opts->verify ? VP_N_REPLICAS : 1;
    rt->optimizer = (vp_optimizer_numbers){plan->recipe.beta1, plan->recipe.beta2, plan->recipe.eps,
                                           plan->recipe.weight_decay, plan->recipe.momentum};
    VP_TRY_ALLOC(err, rt->scratch);
    VP_TRY(check_memories(plan, err));
    VP_TRY(check_backend(rt, err));
    VP_TRY(check_room(rt, err));
    assert(!opts->verify || backend->host_memory); /* the verifier reads the arenas itself */
    rt->uses_algorithms =
        plan->algorithms_of && strcmp(plan->algorithms_of, backend->describe()) == 0;
    for (int r = 0; r < rt->n_arenas; r++)
        for (int m = 0; m < VP_N_MEMORIES; m++) {
            double start_s = vp_now_s();
            VP_TRY(vp_arena_block_new(backend, (vp_memory)m,
                                      vp_plan_memory_bytes(plan, (vp_memory)m), &rt->arena[r][m],
                                      err));
            if (m == VP_MEMORY_HOST_PINNED)
                rt->pinning_s += vp_now_s() - start_s;
        }
    assert(
        rt->arena[0][VP_MEMORY_DEVICE].base); /* no plan without a byte: it has a control block */
    VP_TRY(make_block(rt, err));
    VP_TRY(vp_runtime_list_params(rt, err));
    VP_TRY(count_padding(rt, err));
    VP_TRY(make_times(rt, err));
    VP_TRY(make_host_calls(rt, err));
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
    if (rt->graph)
        rt->backend->graph_free(rt->graph);
    for (int r = 0; r < VP_N_REPLICAS; r++)
        for (int m = 0; m < VP_N_MEMORIES; m++) /* a device's: when all that is enqueued is done */
            vp_arena_block_free(rt->backend, (vp_memory)m, &rt->arena[r][m]);
    if (rt->block.base)
        rt->backend->host_release(rt->block.base);
    vp_arena_free(rt->scratch);
    free(rt);
}

/* ---- a step ---- */

/* The entry of a step's kernel and shape. */
static vp_kernel_time *time_of(vp_runtime *rt, const vp_step *step, const int64_t *ints)
{
    int      n_ints = vp_kernel_info_of(step->kernel)->n_ints;
    uint32_t lacks  = vp_step_lacks(step);
    uint64_t h      = (uint64_t)step->kernel * VP_N_DTYPES + step->dtype + 1;

    for (int k = 0; k < n_ints; k++)
        h = (h ^ (uint64_t)ints[k]) * UINT64_C(0x9e3779b97f4a7c15);
    for (int64_t slot = (int64_t)(h >> 32) & (rt->n_time_slots - 1);;
         slot         = (slot + 1) & (rt->n_time_slots - 1)) {
        int32_t *idx = &rt->time_slots[slot];
        if (*idx == 0) {
            assert(2 * (rt->n_times + 1) <= rt->n_time_slots); /* or no search would end */
            rt->times[rt->n_times] =
                (vp_kernel_time){.kernel = step->kernel, .dtype = step->dtype, .lacks = lacks};
            memcpy(rt->times[rt->n_times].ints, ints, sizeof rt->times->ints);
            *idx = (int32_t)++rt->n_times;
        }
        assert(*idx > 0 && *idx <= rt->n_times);
        vp_kernel_time *t = &rt->times[*idx - 1];
        if (t->kernel == step->kernel && t->dtype == step->dtype && t->lacks == lacks &&
            memcmp(t->ints, ints, (size_t)n_ints * sizeof *t->ints) == 0)
            return t;
    }
}

/* Where an operand lies in one replica's memories; what is bound is noted. */
static unsigned char *bind_operand(vp_runtime *rt, const vp_expanded_step *x, int k,
                                   const vp_arena_block *memories)
{
    const vp_expanded_operand *a     = &x->operands[k];
    const vp_arena_block      *m     = &memories[a->memory];
    int64_t                    bytes = vp_expanded_operand_bytes(x, k);

    /* the plan's own promise */
    assert(a->offset_bytes >= 0 && bytes > 0 && a->offset_bytes <= m->n_bytes - bytes);
    assert(a->offset_bytes % VP_ALIGN_BYTES == 0 ||
           k < vp_kernel_info_of(x->step->kernel)->n_operands); /* a workspace begins aligned */
    rt->executed_bytes[a->memory] =
        vp_max_i64(rt->executed_bytes[a->memory], a->offset_bytes + bytes);
    return m->base + a->offset_bytes;
}

/* The call of an expanded step on one replica. */
static vp_kernel_call bind(vp_runtime *rt, const vp_expanded_step *x,
                           const vp_arena_block *memories)
{
    const vp_step *step  = x->step;
    int64_t        batch = rt->plan->global_batch;
    vp_kernel_call call  = {
         .kernel          = step->kernel,
         .dtype           = step->dtype,
         .accumulate      = x->accumulate,
         .optimizer       = &rt->optimizer,
         .workspace_bytes = step->workspace_bytes,
         .control =
             (const vp_control *)(const void *)(memories[VP_MEMORY_DEVICE].base +
                                               rt->plan->fixed[rt->plan->control_idx].offset_bytes),
         .rng = {.seed         = (uint64_t)rt->plan->recipe.seed,
                 .step         = (uint32_t)rt->step,
                 .op           = x->rng_op,
                 .step_samples = batch,
                 .first_sample =
                     rt->step * batch + vp_max_i64(0, x->micro_step) * rt->bucket->micro_batch}};

    memcpy(call.ints, x->ints, sizeof call.ints);
    memcpy(call.reals, step->reals, sizeof call.reals);
    assert(x->n_operands <=
           vp_kernel_info_of(step->kernel)->n_operands + (step->workspace_bytes > 0));
    assert(x->micro_step >= -1 && x->micro_step < rt->bucket->n_micro_steps);
    if (rt->uses_algorithms)
        call.algorithm = step->algorithm;
    for (int k = 0; k < x->n_operands; k++) {
        if (x->operands[k].buffer >= 0)
            *(k < vp_kernel_info_of(step->kernel)->n_operands ? &call.operand[k]
                                                              : &call.workspace) =
                bind_operand(rt, x, k, memories);
    }
    return call;
}

/* A copy begins behind the kernels so far and what the host was given, and kernels, or the host, wait for it
 * where the plan says. Each has two events: the kernels so far, and its end. */
static vp_status run_copy(vp_runtime *rt, const vp_expanded_step *x, vp_err *err)
{
    const vp_backend *b      = rt->backend;
    vp_stream         stream = x->step->stream;
    vp_status         st     = VP_OK;

    if (x->step->kernel == VP_K_COPY_DONE) {
        assert(x->started >= 0 && x->started < x->idx); /* it waits for a copy that is under way */
        assert(x->step->copy_done.copy >= 0 && x->step->copy_done.copy < VP_MAX_COPIES);
        VP_TRY(b->after(stream, 2 * (int)x->step->copy_done.copy + 1, err));
        goto out;
    }
    assert(x->step->kernel == VP_K_COPY_START && stream != VP_STREAM_COMPUTE);
    assert(x->step->copy_start.copy >= 0 && x->step->copy_start.copy < VP_MAX_COPIES);
    assert(x->operands[VP_COPY_START_X].memory != x->operands[VP_COPY_START_Y].memory);
    VP_TRY(b->mark(VP_STREAM_COMPUTE, 2 * (int)x->step->copy_start.copy, err));
    VP_TRY(b->after(stream, 2 * (int)x->step->copy_start.copy, err));
    if (rt->n_host_calls > 0) {
        VP_TRY(b->mark(VP_STREAM_HOST, VP_EVENT_HOST, err));
        VP_TRY(b->after(stream, VP_EVENT_HOST, err));
    }
    for (int r = 0; r < rt->n_arenas; r++)
        VP_TRY(b->copy(stream, bind_operand(rt, x, VP_COPY_START_Y, rt->arena[r]),
                       bind_operand(rt, x, VP_COPY_START_X, rt->arena[r]),
                       x->step->copy_start.count, err));
    VP_TRY(b->mark(stream, 2 * (int)x->step->copy_start.copy + 1, err));
out:
    return st;
}

/* For a card on a thread of the driver's: the CPU backend's kernel. */
static void make_host_call(void *ctx)
{
    const vp_host_call *h       = ctx;
    vp_kernel_call      call    = h->call;
    double              start_s = vp_now_s();
    vp_err              err     = {0};
    vp_status           st;

    call.rng.step = (uint32_t)h->rt->step; /* it may have been recorded in another one */
    st            = vp_backend_cpu()->run(&call, &err);
    assert(st == VP_OK); /* the checker lets updates through, which need no workspace */
    (void)st;
    if (h->time) {
        h->time->seconds += vp_now_s() - start_s;
        h->time->n_calls++;
    }
}

/* An update that the host makes: enqueued, or recorded, with the copies around it. */
static vp_status run_on_host(vp_runtime *rt, const vp_expanded_step *x, vp_err *err)
{
    const vp_backend *b  = rt->backend;
    vp_status         st = VP_OK;

    VP_TRY(b->mark(VP_STREAM_COMPUTE, VP_EVENT_FOR_HOST, err));
    VP_TRY(b->after(VP_STREAM_HOST, VP_EVENT_FOR_HOST, err));
    for (int r = 0; r < rt->n_arenas; r++) {
        assert(rt->n_host_calls < rt->cap_host_calls);
        vp_host_call *h = &rt->host_calls[rt->n_host_calls++];
        *h              = (vp_host_call){.rt   = rt,
                                         .call = bind(rt, x, rt->arena[r]),
                                         .time = b->host_memory ? time_of(rt, x->step, x->ints) : NULL};
        h->call.control = NULL; /* its own operand is the host's copy */
        VP_TRY(b->host(make_host_call, h, err));
    }
    if (rt->opts.eager)
        VP_TRY(b->wait(err));
out:
    return st;
}

static vp_status run_kernel(vp_runtime *rt, const vp_expanded_step *x, vp_err *err)
{
    vp_kernel_time *time    = time_of(rt, x->step, x->ints);
    bool            clocked = rt->backend->host_memory || rt->opts.eager;
    vp_status       st      = VP_OK;

    assert(x->step->kernel < VP_N_KERNELS);
    assert(x->step->stream == VP_STREAM_COMPUTE);
    for (int r = 0; r < rt->n_arenas; r++) {
        vp_kernel_call call    = bind(rt, x, rt->arena[r]);
        double         start_s = vp_now_s();
        VP_TRY(rt->backend->run(&call, err));
        if (rt->opts.eager)
            VP_TRY(rt->backend->wait(err));
        time->seconds += clocked ? vp_now_s() - start_s : 0;
        time->n_calls++;
    }
out:
    return st;
}

static vp_status run_expanded(const vp_expanded_step *x, void *ctx, vp_err *err)
{
    vp_runtime *rt   = ctx;
    bool        copy = x->step->kernel == VP_K_COPY_START || x->step->kernel == VP_K_COPY_DONE;
    bool        host = x->step->stream == VP_STREAM_HOST;
    vp_status   st   = VP_OK;

    if (rt->verifier)
        VP_TRY(vp_verifier_before(rt, x->idx, err));
    VP_TRY(copy ? run_copy(rt, x, err) : host ? run_on_host(rt, x, err) : run_kernel(rt, x, err));
    if (rt->verifier && host) /* which may not have come to it */
        VP_TRY(rt->backend->wait(err));
    if (rt->verifier)
        VP_TRY(vp_verifier_after(rt, x->idx, err));
out:
    return st;
}

static vp_status check_ids(const vp_runtime *rt, const char *what, const int32_t *ids, int64_t n,
                           int64_t least, int64_t count, vp_err *err)
{
    for (int64_t i = 0; ids && i < n; i++)
        if (ids[i] < least || ids[i] >= count)
            return VP_FAIL(err, VP_ERR_INPUT, "%s %lld of step %lld is %d; there are %lld", what,
                           (long long)i, (long long)rt->step, (int)ids[i], (long long)count);
    return VP_OK;
}

static vp_status check_batch(const vp_runtime *rt, const vp_batch *b, int64_t *n_targets,
                             vp_err *err)
{
    int64_t   n  = vp_plan_tokens(rt->plan);
    vp_status st = VP_OK;

    assert(b->tokens && b->labels && n > 0);
    *n_targets = 0;
    for (int64_t i = 0; i < n; i++) {
        if (b->tokens[i] < 0 || b->tokens[i] >= rt->plan->vocab_size)
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT,
                           "token %lld of step %lld is %d; the vocabulary has %lld", (long long)i,
                           (long long)rt->step, (int)b->tokens[i],
                           (long long)rt->plan->vocab_size));
        if (b->labels[i] != VP_IGNORE_LABEL &&
            (b->labels[i] < 0 || b->labels[i] >= vp_plan_n_labels(rt->plan)))
            VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "label %lld of step %lld is %d; there are %lld",
                           (long long)i, (long long)rt->step, (int)b->labels[i],
                           (long long)vp_plan_n_labels(rt->plan)));
        *n_targets += b->labels[i] != VP_IGNORE_LABEL;
    }
    if (*n_targets == 0)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "step %lld has no target: every label is %d",
                       (long long)rt->step, VP_IGNORE_LABEL));
    VP_TRY(check_ids(rt, "token type", b->token_types, n, 0, rt->plan->n_token_types, err));
    VP_TRY(
        check_ids(rt, "length", b->lengths, rt->plan->global_batch, 1, rt->bucket->seq + 1, err));
out:
    return st;
}

static unsigned char *arena_at(const vp_runtime *rt, int64_t fixed_idx)
{
    const vp_plan_fixed *f = &rt->plan->fixed[fixed_idx];

    assert(fixed_idx >= 0 && fixed_idx < rt->plan->n_fixed && f->memory == VP_MEMORY_DEVICE);
    assert(f->offset_bytes >= 0 &&
           f->offset_bytes <= rt->arena[0][VP_MEMORY_DEVICE].n_bytes - fixed_bytes(rt, fixed_idx));
    return rt->arena[0][VP_MEMORY_DEVICE].base + f->offset_bytes;
}

/* Into the block that waits to be sent, or the arena. */
static vp_status put_input(vp_runtime *rt, int64_t fixed_idx, int64_t offset, const void *data,
                           int64_t n_bytes, vp_err *err)
{
    assert(offset >= 0 && n_bytes >= 0 && offset <= fixed_bytes(rt, fixed_idx) - n_bytes);
    if (!rt->block.base)
        return vp_runtime_put(rt, arena_at(rt, fixed_idx) + offset, data, n_bytes, err);
    assert(rt->block.at[fixed_idx] >= 0 && !rt->block.under_way); /* the device may be reading it */
    memcpy(rt->block.base + rt->block.at[fixed_idx] + offset, data, (size_t)n_bytes);
    return VP_OK;
}

/* A batch input, or the same number everywhere. */
static vp_status put_ids(vp_runtime *rt, int64_t fixed_idx, const int32_t *ids, int64_t n,
                         int32_t otherwise, vp_err *err)
{
    enum { AT_A_TIME = 1024 };
    int32_t   same[AT_A_TIME];
    vp_status st = VP_OK;

    assert(n * (int64_t)sizeof *ids <= fixed_bytes(rt, fixed_idx));
    if (ids)
        return put_input(rt, fixed_idx, 0, ids, n * (int64_t)sizeof *ids, err);
    for (int i = 0; i < AT_A_TIME; i++)
        same[i] = otherwise;
    for (int64_t k = 0; k < n; k += AT_A_TIME)
        VP_TRY(put_input(rt, fixed_idx, k * (int64_t)sizeof *same, same,
                         vp_min_i64(AT_A_TIME, n - k) * (int64_t)sizeof *same, err));
out:
    return st;
}

static vp_status put_batch(vp_runtime *rt, const vp_batch *b, vp_err *err)
{
    const vp_plan *plan = rt->plan;
    int64_t        n    = vp_plan_tokens(plan);
    vp_status      st   = VP_OK;

    VP_TRY(put_ids(rt, plan->tokens_idx, b->tokens, n, 0, err));
    VP_TRY(put_ids(rt, plan->labels_idx, b->labels, n, 0, err));
    if (plan->types_idx >= 0)
        VP_TRY(put_ids(rt, plan->types_idx, b->token_types, n, 0, err));
    if (plan->lengths_idx >= 0)
        VP_TRY(put_ids(rt, plan->lengths_idx, b->lengths, plan->global_batch,
                       (int32_t)rt->bucket->seq, err));
out:
    return st;
}

static vp_status run_calls(vp_runtime *rt, vp_err *err)
{
    rt->n_host_calls = 0; /* those of the step before are done: whoever runs a step waits for it */
    for (int64_t i = 0; i < rt->n_times; i++) {
        rt->times[i].n_calls = 0;
        rt->times[i].seconds = 0;
    }
    return vp_expand(rt->plan, rt->bucket, rt->bucket->n_micro_steps, run_expanded, rt, err);
}

/* The step's calls, behind what they are given and before what they give. */
static vp_status run_all(vp_runtime *rt, vp_err *err)
{
    vp_host_block *b       = &rt->block;
    int64_t        control = rt->plan->control_idx;
    vp_status      st      = VP_OK;

    for (int64_t i = 0; b->base && i < rt->plan->n_fixed; i++)
        if (b->at[i] >= 0) /* what scales the loss stays on the device */
            VP_TRY(rt->backend->send(
                arena_at(rt, i), b->base + b->at[i],
                i == control ? (int64_t)sizeof(vp_control) : fixed_bytes(rt, i), err));
    VP_TRY(run_calls(rt, err));
    if (b->base)
        VP_TRY(rt->backend->fetch(b->base + b->at[control], arena_at(rt, control),
                                  fixed_bytes(rt, control), err));
out:
    return st;
}

/* The first step is enqueued call by call, so that libraries load what they need; the second is
 * recorded, and from then on a step is one replay, its copies included. */
static vp_status run_step(vp_runtime *rt, vp_err *err)
{
    bool      records = rt->backend->record_begin && !rt->opts.eager;
    vp_status st      = VP_OK;

    assert(!rt->block.under_way);
    rt->block.under_way = true;
    if (!records || rt->steps_here == 0) {
        VP_TRY(run_all(rt, err));
    } else {
        if (!rt->graph) {
            VP_TRY(rt->backend->record_begin(err));
            st = run_all(rt, err);
            /* also after a failure: nothing may stay half recorded */
            vp_status ended = rt->backend->record_end(&rt->graph, err);
            VP_TRY(st);
            VP_TRY(ended);
            assert(rt->graph); /* of a backend that records */
        }
        VP_TRY(rt->backend->replay(rt->graph, err));
    }
    VP_TRY(rt->backend->wait(err));
    rt->block.under_way = false;
    rt->steps_here++;
out:
    return st;
}

/* A skipped step's gradient is not finite; where none of a scale this small is, it never will be. */
static vp_status check_result(const vp_runtime *rt, const vp_step_result *r, vp_err *err)
{
    const double least_scale = 0x1p-24; /* the least fp16 above zero */

    if (!isfinite(r->loss) || (!isfinite(r->grad_norm) && !r->skipped))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "step %lld: the loss is %g and the gradient norm %g; training diverged",
                       (long long)(rt->step - 1), r->loss, r->grad_norm);
    if (r->skipped && r->loss_scale < least_scale)
        return VP_FAIL(
            err, VP_ERR_INPUT,
            "step %lld: at a loss scale of %g gradients are still not finite; training diverged",
            (long long)(rt->step - 1), 2 * r->loss_scale);
    return VP_OK;
}

vp_status vp_runtime_step(vp_runtime *rt, const vp_batch *batch, vp_step_result *result,
                          vp_err *err)
{
    const vp_plan    *plan = rt->plan;
    int64_t           n_targets;
    bool              scales  = vp_precision_scales_loss(plan->recipe.precision);
    vp_scaled_control given   = {0};
    vp_control       *control = &given.control;
    double            start_s = vp_now_s();
    vp_status         st      = VP_OK;

    assert(rt->step >= rt->steps_here && rt->steps_here >= 0);
    VP_TRY(check_batch(rt, batch, &n_targets, err));
    control->lr              = vp_recipe_lr(&plan->recipe, rt->step, rt->opts.n_total_steps);
    control->step            = (double)(rt->step + 1);
    control->inv_n_targets   = 1.0 / (double)n_targets;
    control->grad_scale      = 1.0; /* of updates in backward; clip_scale writes that of others */
    control->growth_interval = scales ? (double)plan->recipe.growth_interval : 0.0;
    if (rt->block.under_way) { /* a step before this one failed */
        VP_TRY(rt->backend->wait(err));
        rt->block.under_way = false;
    }
    VP_TRY(put_input(rt, plan->control_idx, 0, control, sizeof *control, err));
    VP_TRY(put_batch(rt, batch, err));
    VP_TRY(run_step(rt, err));
    memcpy(&given,
           rt->block.base ? rt->block.base + rt->block.at[plan->control_idx]
                          : arena_at(rt, plan->control_idx),
           (size_t)fixed_bytes(rt, plan->control_idx));
    /* what ran lies inside what was planned, and is all of it but padding at the end */
    for (int m = 0; m < VP_N_MEMORIES; m++)
        assert(rt->executed_bytes[m] <= vp_plan_memory_bytes(plan, (vp_memory)m));
    rt->step++;
    if (rt->verifier)
        VP_TRY(vp_verifier_finish(rt, err));
    *result = (vp_step_result){.loss       = control->loss_sum * control->inv_n_targets,
                               .grad_norm  = control->grad_norm,
                               .loss_scale = scales ? given.loss_scale : 0,
                               .skipped    = scales && given.skips != 0,
                               .seconds    = vp_now_s() - start_s};
    VP_TRY(check_result(rt, result, err));
out:
    return st;
}

/* ---- reports ---- */

/* Bytes of a memory that were ever written, by the verifier's count. */
static int64_t written_bytes(const vp_runtime *rt, vp_memory memory)
{
    int64_t n = 0;

    for (int64_t k = 0; k < rt->arena[0][memory].n_bytes; k++)
        n += rt->verifier->touched[memory][k];
    return n;
}

void vp_runtime_memory(const vp_runtime *rt, vp_memory_report *out)
{
    const vp_arena_block *device = &rt->arena[0][VP_MEMORY_DEVICE];

    *out = (vp_memory_report){.resident_bytes = vp_arena_block_resident(rt->backend, device),
                              .padding_bytes  = rt->padding_bytes,
                              .pinned_bytes   = rt->block.n_bytes,
                              .pinning_s      = rt->pinning_s,
                              .n_buffers      = rt->n_buffers};
    for (int m = 0; m < VP_N_MEMORIES; m++)
        out->of[m] =
            (vp_memory_use){.predicted_bytes = vp_plan_memory_bytes(rt->plan, (vp_memory)m),
                            .executed_bytes  = rt->executed_bytes[m],
                            .touched_bytes   = rt->verifier ? written_bytes(rt, (vp_memory)m)
                                                            : rt->arena[0][m].n_bytes};
    if (rt->verifier)
        out->never_written_bytes = rt->verifier->never_written_bytes;
    else
        out->of[VP_MEMORY_DEVICE].touched_bytes = vp_min_i64(out->resident_bytes, device->n_bytes);
}

const vp_kernel_time *vp_runtime_kernel_times(const vp_runtime *rt, int64_t *n)
{
    *n = rt->n_times;
    return rt->times;
}
