#include "runtime/profile_ops.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/stats.h"
#include "plan/workspace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_CALLS = 3, MAX_CALLS = 9, MAX_ALGORITHMS = 16 };
static const double ENOUGH_S = 0.3;

/* Whether a call timed for these attributes has the operand: all that may be there, but for what
 * the attributes or the row rule out, sample lengths, and in fp32 the master, which is what
 * parameters of a narrower kind have. */
static bool is_there(const vp_profile_row *row, int operand)
{
    const char *name = vp_kernel_info_of(row->kernel)->operands[operand].name;

    if (strcmp(name, "lengths") == 0)
        return false;
    if (vp_kernel_info_of(row->kernel)->operands[operand].if_given)
        return row->dtype != VP_DTYPE_F32 && !(row->lacks >> operand & 1);
    return vp_kernel_presence(row->kernel, row->ints, operand) != VP_NEVER;
}

/* Ids of an operand of integers are below this. */
static int64_t n_ids(const vp_profile_row *row)
{
    if (row->kernel == VP_K_CROSS_ENTROPY)
        return row->cross_entropy.vocab;
    assert(row->kernel == VP_K_EMBEDDING_FWD || row->kernel == VP_K_EMBEDDING_BWD);
    return row->embedding.vocab;
}

/* Ordinary numbers: no denormals, no infinities, ids inside the vocabulary. A pair of equal bf16
 * numbers is an ordinary float too, so a state of any kind is filled with such pairs. */
static void fill(const vp_profile_row *row, int operand, void *data, int64_t n_bytes)
{
    const vp_operand_info *o = &vp_kernel_info_of(row->kernel)->operands[operand];

    assert(n_bytes >= (o->elem == VP_AS_CONTROL ? (int64_t)sizeof(vp_control) : 1));
    if (o->elem == VP_AS_CONTROL) {
        *(vp_control *)data =
            (vp_control){.lr = 1e-4, .step = 1, .inv_n_targets = 1e-3, .grad_scale = 1};
    } else if (o->elem == VP_AS_I32) {
        int64_t n = n_ids(row);
        for (int64_t i = 0; i < n_bytes / 4; i++)
            ((int32_t *)data)[i] = (int32_t)((i * 7919) % n);
    } else if (o->elem == VP_AS_F32 || (o->elem == VP_AS_CALL && row->dtype == VP_DTYPE_F32)) {
        for (int64_t i = 0; i < n_bytes / 4; i++)
            ((float *)data)[i] = 0.5f + (float)(i % 977) / 1954.0f;
    } else { /* bf16: 1/2 to 1 in 128 steps */
        for (int64_t i = 0; i < n_bytes / 2; i++)
            ((uint16_t *)data)[i] = (uint16_t)(0x3f00 + i / 2 % 128);
    }
}

/* Memory of the backend for one operand, filled; *out is released by the caller. */
static vp_status make_operand(const vp_backend *backend, const vp_profile_row *row, int operand,
                              int64_t n_bytes, void **out, vp_err *err)
{
    void     *host = NULL;
    vp_status st   = VP_OK;

    assert(n_bytes > 0 && !*out);
    VP_TRY(backend->alloc(n_bytes, out, err));
    if (backend->host_memory) {
        fill(row, operand, *out, n_bytes);
        goto out;
    }
    host = malloc((size_t)n_bytes);
    VP_TRY_ALLOC(err, host);
    fill(row, operand, host, n_bytes);
    VP_TRY(backend->upload(*out, host, n_bytes, err));
out:
    free(host);
    return st;
}

/* Median seconds of a call. */
static vp_status time_call(const vp_backend *backend, const vp_kernel_call *call, double *median,
                           vp_err *err)
{
    double    seconds[MAX_CALLS];
    int       n  = 0;
    vp_status st = VP_OK;

    VP_TRY(backend->run(call, err));
    VP_TRY(backend->wait(err));
    for (double total = 0; n < MAX_CALLS && (n < MIN_CALLS || total < ENOUGH_S); n++) {
        VP_TRY(backend->time(call, 1, &seconds[n], err));
        total += seconds[n];
    }
    assert(n >= MIN_CALLS && n <= MAX_CALLS);
    *median = vp_median(seconds, n);
out:
    return st;
}

/* With the fastest of the backend's algorithms, where it has several. */
static vp_status time_best(const vp_backend *backend, vp_kernel_call *call, vp_profile_row *row,
                           vp_err *err)
{
    vp_algorithm candidates[MAX_ALGORITHMS] = {{{0}}};
    int          n                          = 0;
    double       seconds;
    vp_status    st = VP_OK;

    if (backend->algorithms)
        VP_TRY(backend->algorithms(call, MAX_ALGORITHMS, candidates, &n, err));
    assert(n >= 0 && n <= MAX_ALGORITHMS);
    for (int i = 0; i == 0 || i < n; i++) { /* a backend without any: its default, once */
        call->algorithm = candidates[i];
        VP_TRY(time_call(backend, call, &seconds, err));
        if (i > 0 && seconds >= row->seconds)
            continue;
        row->seconds   = seconds;
        row->algorithm = candidates[i];
    }
out:
    return st;
}

static vp_status time_row(const vp_backend *backend, vp_profile_row *row, vp_err *err)
{
    const vp_kernel_info      *info      = vp_kernel_info_of(row->kernel);
    const vp_optimizer_numbers optimizer = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.9};
    vp_kernel_call call = {
        .kernel = row->kernel, .dtype = row->dtype, .accumulate = true, .optimizer = &optimizer};
    int64_t   sizes[VP_MAX_OPERANDS] = {0};
    vp_status st                     = VP_OK;

    memcpy(call.ints, row->ints, sizeof call.ints);
    if (row->kernel == VP_K_ATTENTION_FWD || row->kernel == VP_K_ATTENTION_BWD)
        call.attention_reals.scale = 0.125;
    if (row->kernel == VP_K_EMBEDDING_FWD || row->kernel == VP_K_EMBEDDING_BWD)
        call.embedding_reals.scale = 1;
    for (int k = 0; k < info->n_operands; k++) {
        if (!is_there(row, k))
            continue;
        sizes[k] = vp_kernel_operand_bytes(row->kernel, row->dtype, row->ints, k);
        if (vp_overflowed(sizes[k]) || sizes[k] == 0)
            VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "no memory to time %s", info->name));
        VP_TRY(make_operand(backend, row, k, sizes[k], &call.operand[k], err));
    }
    vp_call_shape shape  = {.compute_capability = backend->compute_capability,
                            .kernel             = call.kernel,
                            .dtype              = call.dtype,
                            .ints               = call.ints,
                            .reals              = call.reals};
    call.workspace_bytes = vp_workspace_bytes(&shape);
    if (call.workspace_bytes > 0)
        VP_TRY(backend->alloc(call.workspace_bytes, &call.workspace, err));
    VP_TRY(time_best(backend, &call, row, err));
out:
    for (int k = 0; k < info->n_operands; k++)
        backend->release(call.operand[k], sizes[k]);
    backend->release(call.workspace, call.workspace_bytes);
    return st;
}

vp_status vp_profile_rows(const vp_backend *backend, vp_profile *profile, double total_s,
                          int64_t *n_timed, void (*progress)(int64_t done, int64_t n), vp_err *err)
{
    double    start_s = vp_now_s();
    vp_status st      = VP_OK;

    for (*n_timed = 0; *n_timed < profile->n_rows && vp_now_s() - start_s < total_s; ++*n_timed) {
        VP_TRY(time_row(backend, &profile->rows[*n_timed], err));
        if (progress)
            progress(*n_timed + 1, profile->n_rows);
    }
out:
    return st;
}
