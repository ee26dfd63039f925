#include "runtime/profile_ops.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/stats.h"
#include "plan/workspace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_CALLS = 3, MAX_CALLS = 9, MAX_ALGORITHMS = 16, MAX_SETS = 64, MAX_TOGETHER = 256 };
static const double ENOUGH_S = 0.3, LONG_S = 2e-3;

/* Whether a call timed for these attributes has the operand: all that may be there, but for what
 * the attributes or the row rule out, sample lengths, and in fp32 the master, which is what
 * parameters of a narrower kind have. */
static bool is_there(const vp_profile_row *row, int operand)
{
    const char *name = vp_kernel_info_of(row->kernel)->operands[operand].name;

    if (strcmp(name, "lengths") == 0)
        return false;
    if (vp_kernel_info_of(row->kernel)->operands[operand].if_given)
        return vp_kernel_lacks(row->kernel, row->dtype, 1u << operand) &&
               !(row->lacks >> operand & 1);
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

/* The bits of a float of either sign, 1/2 to 1, drawn (Marsaglia 2003, Xorshift RNGs, 32 bits): on numbers that are alike a
 * card's products heat it less, and run faster than in a step. */
static uint32_t drawn(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return 0x3f000000u | (*state & 0x807fffffu);
}

/* Ordinary numbers: no denormals, no infinities, ids inside the vocabulary; what is always fp32, statistics and
 * states, is positive. A pair of equal bf16 numbers is an ordinary float too, so a state of any kind is filled with such
 * pairs. */
static void fill(const vp_profile_row *row, int operand, void *data, int64_t n_bytes)
{
    const vp_operand_info *o     = &vp_kernel_info_of(row->kernel)->operands[operand];
    uint32_t               state = 0x9e3779b9u + (uint32_t)operand;

    assert(n_bytes >= (o->elem == VP_AS_CONTROL ? (int64_t)sizeof(vp_control) : 1));
    if (o->elem == VP_AS_CONTROL) {
        *(vp_control *)data =
            (vp_control){.lr = 1e-4, .step = 1, .inv_n_targets = 1e-3, .grad_scale = 1};
    } else if (o->elem == VP_AS_I32) {
        int64_t n = n_ids(row);
        for (int64_t i = 0; i < n_bytes / 4; i++)
            ((int32_t *)data)[i] = (int32_t)((i * 7919) % n);
    } else if (o->elem == VP_AS_F32) {
        for (int64_t i = 0; i < n_bytes / 4; i++)
            ((float *)data)[i] = 0.5f + (float)(i % 977) / 1954.0f;
    } else if ((o->elem == VP_AS_CALL && vp_dtype_of_operands(row->dtype) == VP_DTYPE_F32) ||
               (o->elem == VP_AS_GRAD && row->dtype != VP_DTYPE_BF16_GRADS)) {
        for (int64_t i = 0; i < n_bytes / 4; i++)
            ((uint32_t *)data)[i] = drawn(&state);
    } else if (o->elem == VP_AS_CALL || o->elem == VP_AS_GRAD) { /* of 16 bits */
        for (int64_t i = 0; i < n_bytes / 2; i++)
            ((uint16_t *)data)[i] = (uint16_t)(drawn(&state) >> 16);
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

/* A call of a row with several sets of operands: calls that follow each other in a step find their
 * operands in memory, not in the cache where the call before left them. */
typedef struct timed_row {
    const vp_backend    *backend;
    vp_kernel_call       call; /* without operands */
    vp_optimizer_numbers numbers;
    int64_t              operand_bytes[VP_MAX_OPERANDS]; /* 0: it has none */
    int                  n_sets;
    vp_kernel_call      *set; /* (n_sets) the call on operands of its own */
} timed_row;

/* Sets enough to fill the cache twice, and for updates that a step launches together, in a quarter
 * of the memory that nobody has. A backend of the host has one: so were its profiles ever made. */
static vp_status count_sets(timed_row *t, vp_err *err)
{
    vp_backend_memory memory;
    int64_t           of_operands = 0, of_set, n;
    vp_status         st          = VP_OK;

    t->n_sets = 1;
    if (t->backend->host_memory)
        return VP_OK;
    VP_TRY(t->backend->memory(&memory, err));
    for (int k = 0; k < VP_MAX_OPERANDS; k++)
        of_operands += t->operand_bytes[k];
    assert(of_operands > 0);
    of_set = of_operands + t->call.workspace_bytes;
    n      = 2 * t->backend->cache_bytes / of_operands + 1;
    n      = n < memory.free_bytes / 4 / of_set ? n : memory.free_bytes / 4 / of_set;
    if (n > 1)
        t->n_sets = n < MAX_SETS ? (int)n : MAX_SETS;
out:
    return st;
}

static bool is_control(const timed_row *t, int operand)
{
    const vp_kernel_info *info = vp_kernel_info_of(t->call.kernel);

    return operand < info->n_operands && info->operands[operand].elem == VP_AS_CONTROL;
}

/* The first set is filled by the host, the others are its copies; the control block is one, as a
 * step has one. */
static vp_status make_set(timed_row *t, const vp_profile_row *row, int i, vp_err *err)
{
    vp_kernel_call *call = &t->set[i];
    vp_status       st   = VP_OK;

    *call = t->call;
    for (int k = 0; k < VP_MAX_OPERANDS; k++) {
        int64_t n_bytes = t->operand_bytes[k];
        if (n_bytes == 0)
            continue;
        if (i == 0) {
            VP_TRY(make_operand(t->backend, row, k, n_bytes, &call->operand[k], err));
        } else if (is_control(t, k)) {
            call->operand[k] = t->set[0].operand[k];
        } else {
            VP_TRY(t->backend->alloc(n_bytes, &call->operand[k], err));
            VP_TRY(t->backend->upload(call->operand[k], t->set[0].operand[k], n_bytes, err));
        }
    }
    if (call->workspace_bytes > 0)
        VP_TRY(t->backend->alloc(call->workspace_bytes, &call->workspace, err));
out:
    return st;
}

static vp_status make_sets(timed_row *t, const vp_profile_row *row, vp_err *err)
{
    vp_status st = VP_OK;

    t->set = calloc((size_t)t->n_sets, sizeof *t->set);
    VP_TRY_ALLOC(err, t->set);
    for (int i = 0; i < t->n_sets; i++)
        VP_TRY(make_set(t, row, i, err));
out:
    return st;
}

static void release_sets(timed_row *t)
{
    for (int i = 0; t->set && i < t->n_sets; i++) {
        for (int k = 0; k < VP_MAX_OPERANDS; k++)
            if (i == 0 || !is_control(t, k))
                t->backend->release(t->set[i].operand[k], t->operand_bytes[k]);
        t->backend->release(t->set[i].workspace, t->call.workspace_bytes);
    }
    free(t->set);
}

/* Calls that are timed together, one after the other through the sets: as many as take LONG_S. On
 * the host one. */
static vp_status count_together(const timed_row *t, const vp_kernel_call *calls, int *n,
                                vp_err *err)
{
    double    call_s;
    vp_status st = VP_OK;

    *n = t->n_sets;
    if (t->backend->host_memory)
        return VP_OK;
    VP_TRY(t->backend->time(calls, t->n_sets, &call_s, err));
    if (call_s * t->n_sets < LONG_S)
        *n = call_s * MAX_TOGETHER > LONG_S ? (int)(LONG_S / call_s) : MAX_TOGETHER;
out:
    assert(*n > 0 && *n <= MAX_TOGETHER);
    return st;
}

/* Median seconds of a call with this algorithm. */
static vp_status time_calls(const timed_row *t, const vp_algorithm *algorithm, double *median,
                            vp_err *err)
{
    vp_kernel_call *calls = calloc(MAX_TOGETHER, sizeof *calls);
    double          seconds[MAX_CALLS];
    int             n  = 0, together;
    vp_status       st = VP_OK;

    VP_TRY_ALLOC(err, calls);
    for (int i = 0; i < MAX_TOGETHER; i++) {
        calls[i]           = t->set[i % t->n_sets];
        calls[i].algorithm = *algorithm;
    }
    VP_TRY(t->backend->run(&calls[0], err));
    VP_TRY(t->backend->wait(err));
    VP_TRY(count_together(t, calls, &together, err));
    for (double total = 0; n < MAX_CALLS && (n < MIN_CALLS || total < ENOUGH_S); n++) {
        VP_TRY(t->backend->time(calls, together, &seconds[n], err));
        total += seconds[n] * together;
    }
    *median = vp_median(seconds, n);
out:
    free(calls);
    return st;
}

/* With the fastest of the backend's algorithms, where it has several. One that fails is left out;
 * if all do, the first one's reason is the row's. */
static vp_status time_best(const timed_row *t, vp_profile_row *row, vp_profile_timed *out,
                           vp_err *err)
{
    vp_algorithm candidates[MAX_ALGORITHMS] = {{{0}}};
    vp_err       first                      = {0};
    int          n = 0, n_failed = 0;
    double       seconds = 0;
    vp_status    st      = VP_OK;

    if (t->backend->algorithms)
        VP_TRY(t->backend->algorithms(&t->set[0], MAX_ALGORITHMS, candidates, &n, err));
    assert(n >= 0 && n <= MAX_ALGORITHMS);
    n = n > 0 ? n : 1; /* a backend without any: its default */
    for (int i = 0; i < n; i++) {
        vp_err why = {0};
        if (time_calls(t, &candidates[i], &seconds, &why) != VP_OK) {
            if (n_failed++ == 0)
                first = why;
            continue;
        }
        if (row->seconds > 0 && seconds >= row->seconds)
            continue;
        row->seconds   = seconds;
        row->algorithm = candidates[i];
    }
    if (n_failed == n)
        VP_TRY(VP_FAIL(err, first.code, "%s", first.message));
    if (n_failed > 0 && out->n_failed == 0)
        out->first_failure = first;
    out->n_failed += n_failed;
out:
    return st;
}

/* The sizes of a row's operands. */
static vp_status measure_operands(timed_row *t, const vp_profile_row *row, vp_err *err)
{
    const vp_kernel_info *info = vp_kernel_info_of(row->kernel);

    for (int k = 0; k < info->n_operands; k++) {
        if (!is_there(row, k))
            continue;
        t->operand_bytes[k] = vp_kernel_operand_bytes(row->kernel, row->dtype, row->ints, k);
        if (vp_overflowed(t->operand_bytes[k]) || t->operand_bytes[k] == 0)
            return VP_FAIL(err, VP_ERR_DEVICE, "no memory to time %s", info->name);
    }
    return VP_OK;
}

static vp_status time_row(const vp_backend *backend, vp_profile_row *row, vp_profile_timed *out,
                          vp_err *err)
{
    timed_row t = {
        .backend = backend,
        .call    = {.kernel = row->kernel, .dtype = row->dtype, .accumulate = true},
        .numbers = {
            .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0.9}};
    vp_status st = VP_OK;

    t.call.optimizer = &t.numbers;
    memcpy(t.call.ints, row->ints, sizeof t.call.ints);
    if (row->kernel == VP_K_ATTENTION_FWD || row->kernel == VP_K_ATTENTION_BWD)
        t.call.attention_reals.scale = 0.125;
    if (row->kernel == VP_K_EMBEDDING_FWD || row->kernel == VP_K_EMBEDDING_BWD)
        t.call.embedding_reals.scale = 1;
    VP_TRY(measure_operands(&t, row, err));
    vp_call_shape shape    = {.compute_capability = backend->compute_capability,
                              .kernel             = t.call.kernel,
                              .dtype              = t.call.dtype,
                              .ints               = t.call.ints,
                              .reals              = t.call.reals};
    t.call.workspace_bytes = vp_workspace_bytes(&shape);
    VP_TRY(count_sets(&t, err));
    VP_TRY(make_sets(&t, row, err));
    row->seconds = 0;
    VP_TRY(time_best(&t, row, out, err));
out:
    release_sets(&t);
    return st;
}

vp_status vp_profile_rows(const vp_backend *backend, vp_profile *profile, double total_s,
                          vp_profile_timed *out, void (*progress)(int64_t done, int64_t n),
                          vp_err           *err)
{
    double    start_s = vp_now_s();
    vp_status st      = VP_OK;

    for (*out = (vp_profile_timed){0};
         out->n_rows < profile->n_rows && vp_now_s() - start_s < total_s; out->n_rows++) {
        VP_TRY(time_row(backend, &profile->rows[out->n_rows], out, err));
        if (progress)
            progress(out->n_rows + 1, profile->n_rows);
    }
out:
    return st;
}

/* ---- updates by the host ---- */

static double bytes_of(const vp_profile_row *row)
{
    return vp_kernel_bytes_moved(row->kernel, row->dtype, row->ints, row->lacks);
}

vp_status vp_profile_host_update(const vp_profile *profile, bool is_host, double *bytes_per_s,
                                 vp_err *err)
{
    const vp_profile_row *largest = NULL;
    vp_profile           *own     = NULL;
    vp_profile_timed      timed;
    double                seconds;
    vp_status             st = VP_OK;

    *bytes_per_s = 0;
    for (int64_t i = 0; i < profile->n_rows; i++)
        if (vp_kernel_info_of(profile->rows[i].kernel)->kind == VP_KERNEL_UPDATE &&
            (!largest || bytes_of(&profile->rows[i]) > bytes_of(largest)))
            largest = &profile->rows[i];
    if (!largest)
        return VP_OK;
    seconds = largest->seconds;
    if (!is_host) {
        own = vp_profile_new();
        VP_TRY_ALLOC(err, own && vp_profile_add(own, largest));
        VP_TRY(vp_profile_rows(vp_backend_cpu(), own, ENOUGH_S, &timed, NULL, err));
        seconds = timed.n_rows > 0 ? own->rows[0].seconds : 0;
    }
    if (seconds > 0)
        *bytes_per_s = bytes_of(largest) / seconds;
out:
    vp_profile_free(own);
    return st;
}
