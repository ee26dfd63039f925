/* kernels/cuda/attention_cudnn.c: attention on the device by cuDNN: the library, plans kept by
 * shape, calls.
 *
 * The plan of a shape is built at its first call and kept; a call makes a variant pack (pointers of
 * that call), executes, and frees it. cuDNN allocates nothing on the device for an execution: what
 * it needs is the call's workspace, divided by vp_cuda_attention_workspace(). Executions only
 * enqueue on the handle's stream and can be recorded; building a plan loads kernels, so the first
 * call of a shape belongs before a recording, or into one that was begun as relaxed.
 *
 * A backward call is made in chunks, samples or groups of heads, one after the other on the same
 * workspace: the same graph at other places of the operands. */
#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/cuda_internal.h"

#include "base/checked.h"
#include "plan/workspace.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vp_cudnn {
    vp_cudnn_api    api;
    vp_cudnn_target target;
    vp_cudnn_plan **plans;
    int64_t         n_plans, cap_plans;
    char            version[32];
};

struct vp_cudnn *vp_cudnn_open(cudaStream_t stream, vp_err *err)
{
    vp_status        st = VP_OK;
    struct vp_cudnn *c  = calloc(1, sizeof *c);
    size_t           version;

    VP_TRY_ALLOC(err, c);
    VP_TRY(vp_cudnn_api_open(&c->api, err));
    VP_TRY(vp_cudnn_check(&c->api, c->api.handle_create(&c->target.handle), "cudnnCreate", err));
    VP_TRY(vp_cudnn_check(&c->api, c->api.set_stream(c->target.handle, stream), "cudnnSetStream",
                          err));
    version = c->api.version();
    snprintf(c->version, sizeof c->version, "%zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    return c;
out:
    assert(st != VP_OK);
    vp_cudnn_close(c);
    return NULL;
}

void vp_cudnn_close(struct vp_cudnn *c)
{
    if (!c)
        return;
    for (int64_t i = 0; i < c->n_plans; i++)
        vp_cudnn_plan_free(&c->api, c->plans[i]);
    free(c->plans);
    if (c->target.handle)
        c->api.handle_destroy(c->target.handle);
    vp_cudnn_api_close(&c->api);
    free(c);
}

const char *vp_cudnn_version(const struct vp_cudnn *c)
{
    return c->version;
}

/* The plan of a shape, built if it is the first of its kind. */
static vp_status plan_of(struct vp_cudnn *c, int compute_capability, const vp_cudnn_shape *shape,
                         int64_t max_workspace_bytes, const vp_cudnn_plan **out, vp_err *err)
{
    vp_status      st   = VP_OK;
    vp_cudnn_plan *plan = NULL;

    for (int64_t i = 0; i < c->n_plans; i++)
        if (memcmp(&c->plans[i]->shape, shape, sizeof *shape) == 0) {
            *out = c->plans[i];
            return VP_OK;
        }
    if (c->n_plans == c->cap_plans) {
        int64_t         cap   = c->cap_plans ? 2 * c->cap_plans : 8;
        vp_cudnn_plan **plans = realloc(c->plans, (size_t)cap * sizeof *plans);

        VP_TRY_ALLOC(err, plans);
        c->plans     = plans;
        c->cap_plans = cap;
    }
    c->target.compute_capability = compute_capability;
    VP_TRY(vp_cudnn_plan_new(&c->api, &c->target, shape, max_workspace_bytes, &plan, err));
    assert(plan && c->n_plans < c->cap_plans);
    *out = c->plans[c->n_plans++] = plan;
out:
    return st;
}

/* Pointers of one execution, by tensor. */
typedef struct pack {
    int64_t ids[VP_CUDNN_N_IDS];
    void   *pointers[VP_CUDNN_N_IDS];
    int64_t n;
} pack;

static void pack_add(pack *p, const vp_cudnn_plan *plan, int id, void *pointer)
{
    assert(id >= 0 && id < VP_CUDNN_N_IDS);
    if (!plan->uses[id])
        return;
    assert(p->n < VP_CUDNN_N_IDS && pointer);
    p->ids[p->n]        = id;
    p->pointers[p->n++] = pointer;
}

static vp_status execute(struct vp_cudnn *c, const vp_cudnn_plan *plan, const pack *p,
                         void *workspace, vp_err *err)
{
    vp_status           st   = VP_OK;
    vp_cudnn_descriptor d    = NULL;
    const char         *what = "attention";

    VP_TRY(vp_cudnn_check(&c->api, c->api.create(VP_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &d),
                          what, err));
    VP_TRY(vp_cudnn_check(
        &c->api,
        c->api.set(d, VP_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, VP_CUDNN_TYPE_INT64, p->n, p->ids),
        what, err));
    VP_TRY(vp_cudnn_check(&c->api,
                          c->api.set(d, VP_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                     VP_CUDNN_TYPE_VOID_PTR, p->n, p->pointers),
                          what, err));
    VP_TRY(vp_cudnn_check(
        &c->api,
        c->api.set(d, VP_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, VP_CUDNN_TYPE_VOID_PTR, 1, &workspace),
        what, err));
    VP_TRY(vp_cudnn_check(&c->api, c->api.finalize(d), what, err));
    VP_TRY(
        vp_cudnn_check(&c->api, c->api.execute(c->target.handle, plan->descriptor, d), what, err));
out:
    if (d)
        c->api.destroy(d);
    return st;
}

enum { BF16_BYTES = 2 };

/* Where a part's head `head` of sample `sample` begins: in its own operand, or, where that is
 * absent, in the first of the three. */
static void *place(void *own, void *first, const vp_cudnn_shape *s, const vp_cudnn_part *part,
                   int64_t sample, int64_t head)
{
    assert(sample >= 0 && head >= 0 && (own || first));
    return (char *)(own ? own : first) +
           BF16_BYTES * (part->first + sample * s->seq * part->row + head * part->head);
}

vp_status vp_cudnn_attention(struct vp_cudnn *c, int compute_capability, const vp_kernel_call *call,
                             int64_t n_chunks, vp_err *err)
{
    bool                   backward = call->kernel == VP_K_ATTENTION_BWD;
    void                  *q        = VP_ATTENTION_OPERAND(call, Q);
    void                  *dq       = backward ? call->operand[VP_ATTENTION_BWD_DQ] : NULL;
    const vp_call_shape    asked    = {.compute_capability = compute_capability,
                                       .kernel             = call->kernel,
                                       .dtype              = call->dtype,
                                       .ints               = call->ints,
                                       .reals              = call->reals,
                                       .lengths = VP_ATTENTION_OPERAND(call, LENGTHS) != NULL};
    vp_attention_workspace division = vp_cuda_attention_workspace(&asked, n_chunks);
    vp_cudnn_shape         shape    = vp_cudnn_shape_of(call->kernel, &call->attention, n_chunks);
    int64_t heads = call->attention.heads, group = call->attention.heads / call->attention.kv_heads;
    /* chunks of one sample; 1 where chunks are whole samples */
    int64_t              per_sample = call->attention.kv_heads / shape.kv_heads;
    const vp_cudnn_plan *plan       = NULL;
    float                scale = (float)call->attention_reals.scale, masked = -INFINITY, one = 1.0f,
          before       = (float)shape.window;
    int32_t   after    = (int32_t)(shape.window - 1);
    char     *row_sums = call->workspace, *library = row_sums + division.row_sum_bytes;
    vp_status st = VP_OK;

    assert(n_chunks > 0 && shape.kv_heads > 0 && per_sample > 0 && shape.batch > 0);
    if (vp_overflowed(division.bytes) || call->workspace_bytes < division.bytes)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "cuDNN's attention needs a workspace of %lld bytes, the call has %lld",
                       (long long)division.bytes, (long long)call->workspace_bytes);
    VP_TRY(plan_of(c, compute_capability, &shape, division.library_bytes, &plan, err));

    for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
        int64_t sample = chunk / per_sample * shape.batch, kv = chunk % per_sample * shape.kv_heads,
                head = kv * group;
        pack p       = {.n = 0};

        assert(sample + shape.batch <= call->attention.batch &&
               kv + shape.kv_heads <= call->attention.kv_heads);

        pack_add(&p, plan, VP_CUDNN_Q, place(q, q, &shape, &shape.q, sample, head));
        pack_add(&p, plan, VP_CUDNN_K,
                 place(VP_ATTENTION_OPERAND(call, K), q, &shape, &shape.k, sample, kv));
        pack_add(&p, plan, VP_CUDNN_V,
                 place(VP_ATTENTION_OPERAND(call, V), q, &shape, &shape.v, sample, kv));
        pack_add(&p, plan, VP_CUDNN_Y,
                 place(VP_ATTENTION_OPERAND(call, Y), NULL, &shape, &shape.y, sample, head));
        pack_add(&p, plan, VP_CUDNN_LSE,
                 (float *)VP_ATTENTION_OPERAND(call, LSE) + (sample * heads + head) * shape.seq);
        pack_add(&p, plan, VP_CUDNN_SCALE, &scale);
        pack_add(&p, plan, VP_CUDNN_MASKED, &masked);
        pack_add(&p, plan, VP_CUDNN_ONE, &one);
        pack_add(&p, plan, VP_CUDNN_BEFORE, &before);
        pack_add(&p, plan, VP_CUDNN_AFTER, &after);
        if (backward) {
            pack_add(
                &p, plan, VP_CUDNN_DY,
                place(call->operand[VP_ATTENTION_BWD_DY], NULL, &shape, &shape.y, sample, head));
            pack_add(&p, plan, VP_CUDNN_DQ, place(dq, dq, &shape, &shape.q, sample, head));
            pack_add(&p, plan, VP_CUDNN_DK,
                     place(call->operand[VP_ATTENTION_BWD_DK], dq, &shape, &shape.k, sample, kv));
            pack_add(&p, plan, VP_CUDNN_DV,
                     place(call->operand[VP_ATTENTION_BWD_DV], dq, &shape, &shape.v, sample, kv));
            pack_add(&p, plan, VP_CUDNN_ROW_SUM, row_sums);
        }
        VP_TRY(execute(c, plan, &p, library, err));
    }
out:
    return st;
}

static bool is_aligned(const vp_kernel_call *call)
{
    const vp_kernel_info *info = vp_kernel_info_of(call->kernel);
    int lse = call->kernel == VP_K_ATTENTION_FWD ? VP_ATTENTION_FWD_LSE : VP_ATTENTION_BWD_LSE;

    for (int i = 0; i < info->n_operands; i++)
        if ((uintptr_t)call->operand[i] % (uintptr_t)(i == lse
                                                          ? vp_cudnn_align_lse(call->attention.seq)
                                                          : VP_CUDNN_ALIGN_TENSOR) !=
            0)
            return false;
    return true;
}

/* Operands of a plan lie at multiples of VP_ALIGN_BYTES. Where someone else's do not suit cuDNN
 * our own kernel runs. */
vp_status vp_cuda_attention_cudnn(vp_cuda *cuda, const vp_kernel_call *call, vp_err *err)
{
    vp_cuda_launch_fn own =
        call->kernel == VP_K_ATTENTION_BWD ? vp_cuda_attention_bwd : vp_cuda_attention_fwd;
    const vp_call_shape asked = {.compute_capability = cuda->compute_capability,
                                 .kernel             = call->kernel,
                                 .dtype              = call->dtype,
                                 .ints               = call->ints,
                                 .reals              = call->reals,
                                 .lengths            = VP_ATTENTION_OPERAND(call, LENGTHS) != NULL};

    if (!cuda->cudnn || vp_cuda_attention_engine(&asked) != VP_ATTENTION_CUDNN)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "cuDNN is not there, or this attention is not one for it");
    if (!is_aligned(call))
        return vp_cuda_check(own(call, cuda->stream), vp_kernel_info_of(call->kernel)->name, err);
    return vp_cudnn_attention(cuda->cudnn, cuda->compute_capability, call,
                              vp_cuda_attention_chunks(&asked), err);
}
