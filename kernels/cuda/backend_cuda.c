/* kernels/cuda/backend_cuda.c: the CUDA backend: its device, memory, table of kernels, recorded
 * steps. One device; its streams for copies are in streams_cuda.c.
 *
 * The plugin exports vp_backend_open() and nothing else. Its state is one static vp_cuda, as a
 * process has one device. */
#include "kernels/call_check.h"
#include "kernels/cuda/cuda_internal.h"

#include "base/checked.h"
#include "base/nvml.h"
#include "base/units.h"
#include "plan/workspace.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static vp_cuda         here;
static vp_cuda_updates updates; /* calls that wait to be launched together */
static vp_cuda_squares squares; /* the same; one of both is empty */
static vp_err          unsaid;  /* why such a launch failed where nobody could be told */
static bool            is_open;
static char            product[64];
/* a profile keeps it whole: it says for which library and device an algorithm is */
static char description[200];

/* A recorded step. */
struct vp_backend_graph {
    cudaGraphExec_t exec;
};

vp_status vp_cuda_check(cudaError_t e, const char *what, vp_err *err)
{
    if (e == cudaSuccess)
        return VP_OK;
    cudaGetLastError(); /* the next call begins without it, unless it is one that stays */
    return VP_FAIL(err, VP_ERR_DEVICE, "CUDA, %s: %s (%s)", what, cudaGetErrorString(e),
                   cudaGetErrorName(e));
}

/* What the device does not take back holds up nothing: the next call begins without its error. */
static void give_back(cudaError_t e)
{
    if (e != cudaSuccess)
        cudaGetLastError();
}

/* What was collected is launched, under its own name: before any other work, and before anything
 * is waited for, asked or freed. */
static vp_status launch_collected(vp_err *err)
{
    const char *name = vp_kernel_info_of(updates.kernel)->name;
    vp_err      was  = unsaid;

    assert(updates.n == 0 || squares.n == 0);
    unsaid = (vp_err){0};
    if (was.code != VP_OK)
        return VP_FAIL(err, was.code, "%s", was.message);
    if (updates.n > 0)
        return vp_cuda_check(vp_cuda_updates_launch(&updates, here.stream), name, err);
    if (squares.n > 0)
        return vp_cuda_check(vp_cuda_squares_launch(&squares, here.stream),
                             vp_kernel_info_of(VP_K_GRAD_SUMSQ)->name, err);
    return VP_OK;
}

/* ---- memory ---- */

static vp_status alloc(int64_t n_bytes, void **out, vp_err *err)
{
    char        text[2][32];
    size_t      free_bytes = 0, total = 0;
    cudaError_t e = cudaMalloc(out, (size_t)n_bytes);

    if (e == cudaSuccess)
        return VP_OK;
    *out = NULL;
    if (e != cudaErrorMemoryAllocation || cudaGetLastError() != e ||
        cudaMemGetInfo(&free_bytes, &total) != cudaSuccess)
        return vp_cuda_check(e, "allocation", err);
    return VP_FAIL(err, VP_ERR_DEVICE, "the device has no %s in one piece: %s are free",
                   vp_size_text(n_bytes, text[0], sizeof text[0]),
                   vp_size_text((int64_t)free_bytes, text[1], sizeof text[1]));
}

static void release(void *p, int64_t n_bytes)
{
    vp_err err = {0};

    (void)n_bytes;
    if (!p)
        return;
    if (launch_collected(&err) != VP_OK)
        unsaid = err;
    give_back(cudaFree(p));
}

static vp_status memory(vp_backend_memory *out, vp_err *err)
{
    size_t         free_bytes = 0, total = 0;
    vp_nvml_answer told;
    vp_status      st = VP_OK;

    VP_TRY(launch_collected(err));
    VP_CUDA(cudaMemGetInfo(&free_bytes, &total), "asking for free memory");
    told = vp_nvml_ask(here.bus);
    *out = (vp_backend_memory){.total_bytes           = (int64_t)total,
                               .free_bytes            = (int64_t)free_bytes,
                               .used_bytes            = told.process_bytes,
                               .all_used_bytes        = told.all_bytes,
                               .all_used_before_bytes = here.used_before_bytes};
out:
    return st;
}

static vp_status wait(vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(launch_collected(err));
    VP_CUDA(cudaStreamSynchronize(here.stream), "waiting for the device");
    VP_TRY(vp_cuda_streams_wait(err));
out:
    return st;
}

static vp_status host_alloc(int64_t n_bytes, void **out, vp_err *err)
{
    char        text[32];
    cudaError_t e = cudaHostAlloc(out, (size_t)n_bytes, cudaHostAllocDefault);

    if (e == cudaSuccess)
        return VP_OK;
    *out = NULL;
    if (e != cudaErrorMemoryAllocation)
        return vp_cuda_check(e, "allocation of pinned memory of the host", err);
    cudaGetLastError();
    return VP_FAIL(err, VP_ERR_DEVICE, "the host gives no %s of pinned memory",
                   vp_size_text(n_bytes, text, sizeof text));
}

static void host_release(void *p)
{
    if (p)
        give_back(cudaFreeHost(p));
}

static vp_status enqueue_copy(void *to, const void *from, int64_t n_bytes, enum cudaMemcpyKind kind,
                              const char *what, vp_err *err)
{
    vp_status st = VP_OK;

    assert(n_bytes > 0 && to && from);
    VP_TRY(launch_collected(err));
    VP_CUDA(cudaMemcpyAsync(to, from, (size_t)n_bytes, kind, here.stream), what);
out:
    return st;
}

static vp_status send(void *to, const void *from, int64_t n_bytes, vp_err *err)
{
    return enqueue_copy(to, from, n_bytes, cudaMemcpyHostToDevice, "copy to the device", err);
}

static vp_status fetch(void *to, const void *from, int64_t n_bytes, vp_err *err)
{
    return enqueue_copy(to, from, n_bytes, cudaMemcpyDeviceToHost, "copy from the device", err);
}

/* Behind all streams; either side may be memory of the device or of the host. */
static vp_status copy_now(void *to, const void *from, int64_t n_bytes, const char *what,
                          vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(vp_cuda_streams_join(&here, err));
    VP_TRY(enqueue_copy(to, from, n_bytes, cudaMemcpyDefault, what, err));
    VP_TRY(wait(err));
out:
    return st;
}

static vp_status upload(void *to, const void *from, int64_t n_bytes, vp_err *err)
{
    return copy_now(to, from, n_bytes, "copy to the device", err);
}

static vp_status download(void *to, const void *from, int64_t n_bytes, vp_err *err)
{
    return copy_now(to, from, n_bytes, "copy from the device", err);
}

static vp_status fill(void *to, int byte, int64_t n_bytes, vp_err *err)
{
    vp_status st = VP_OK;

    assert(n_bytes > 0 && to);
    VP_TRY(launch_collected(err));
    VP_TRY(vp_cuda_streams_join(&here, err));
    VP_CUDA(cudaMemsetAsync(to, byte, (size_t)n_bytes, here.stream), "filling memory");
out:
    return st;
}

/* ---- kernels ---- */

typedef vp_status (*kernel_fn)(vp_cuda *cuda, const vp_kernel_call *call, vp_err *err);

/* A kernel is a launcher of its own, a function that makes several calls, or collected to be
 * launched with others, as updates are. */
static const struct {
    vp_cuda_launch_fn launch;
    kernel_fn         function;
    bool              collected;
} kernels[VP_N_KERNELS] = {
    [VP_K_EMBEDDING_FWD]     = {.launch = vp_cuda_embedding_fwd},
    [VP_K_EMBEDDING_BWD]     = {.launch = vp_cuda_embedding_bwd},
    [VP_K_LAYERNORM_FWD]     = {.launch = vp_cuda_layernorm_fwd},
    [VP_K_LAYERNORM_BWD]     = {.launch = vp_cuda_layernorm_bwd},
    [VP_K_RMSNORM_FWD]       = {.launch = vp_cuda_rmsnorm_fwd},
    [VP_K_RMSNORM_BWD]       = {.launch = vp_cuda_rmsnorm_bwd},
    [VP_K_LINEAR_FWD]        = {.function = vp_cuda_linear},
    [VP_K_LINEAR_ADD_FWD]    = {.function = vp_cuda_linear},
    [VP_K_LINEAR_BWD_INPUT]  = {.function = vp_cuda_linear},
    [VP_K_LINEAR_BWD_WEIGHT] = {.function = vp_cuda_linear},
    [VP_K_ROPE_FWD]          = {.launch = vp_cuda_rope_fwd},
    [VP_K_ROPE_BWD]          = {.launch = vp_cuda_rope_bwd},
    [VP_K_ATTENTION_FWD]  = {.launch = vp_cuda_attention_fwd, .function = vp_cuda_attention_cudnn},
    [VP_K_ATTENTION_BWD]  = {.launch = vp_cuda_attention_bwd, .function = vp_cuda_attention_cudnn},
    [VP_K_ACTIVATION_FWD] = {.launch = vp_cuda_activation_fwd},
    [VP_K_ACTIVATION_BWD] = {.launch = vp_cuda_activation_bwd},
    [VP_K_GLU_FWD]        = {.launch = vp_cuda_glu_fwd},
    [VP_K_GLU_BWD]        = {.launch = vp_cuda_glu_bwd},
    [VP_K_ADD]            = {.launch = vp_cuda_add},
    [VP_K_DROPOUT]        = {.launch = vp_cuda_dropout},
    [VP_K_CROSS_ENTROPY]  = {.launch = vp_cuda_cross_entropy},
    [VP_K_LOSS_SUM]       = {.launch = vp_cuda_loss_sum},
    [VP_K_COPY]           = {.launch = vp_cuda_copy},
    [VP_K_ZERO]           = {.launch = vp_cuda_zero},
    [VP_K_GRAD_ADD]       = {.launch = vp_cuda_grad_add},
    [VP_K_SCALE]          = {.launch = vp_cuda_scale},
    [VP_K_GRAD_SUMSQ]     = {.collected = true},
    [VP_K_CLIP_SCALE]     = {.launch = vp_cuda_clip_scale},
    [VP_K_ADAFACTOR]      = {.launch = vp_cuda_adafactor},
    [VP_K_MUON]           = {.function = vp_cuda_muon_update},
#define VP_EACH_UPDATE(NAME, name) [VP_K_##NAME] = {.collected = true},
#include "plan/kernels.def"
};

static vp_call_shape shape_of(const vp_kernel_call *call)
{
    int lengths = vp_kernel_operand(call->kernel, "lengths");

    return (vp_call_shape){.compute_capability = here.compute_capability,
                           .kernel             = call->kernel,
                           .dtype              = call->dtype,
                           .ints               = call->ints,
                           .reals              = call->reals,
                           .lengths            = lengths >= 0 && call->operand[lengths]};
}

static bool take(const vp_kernel_call *call)
{
    if (call->kernel == VP_K_GRAD_SUMSQ)
        return updates.n == 0 && vp_cuda_squares_take(&squares, call);
    return squares.n == 0 && vp_cuda_updates_take(&updates, call);
}

static vp_status collect(const vp_kernel_call *call, vp_err *err)
{
    bool      taken = take(call);
    vp_status st    = VP_OK;

    if (!taken) {
        VP_TRY(launch_collected(err));
        taken = take(call);
        assert(taken);
    }
out:
    return st;
}

static vp_status run(const vp_kernel_call *call, vp_err *err)
{
    vp_call_shape shape = shape_of(call);
    int64_t       need  = vp_workspace_bytes(&shape);
    bool attention      = call->kernel == VP_K_ATTENTION_FWD || call->kernel == VP_K_ATTENTION_BWD;
    bool own = attention && (!here.cudnn || vp_cuda_attention_engine(&shape) == VP_ATTENTION_OWN);
    vp_status st = VP_OK;

    if (vp_overflowed(need) || call->workspace_bytes < need || (need > 0 && !call->workspace))
        return VP_FAIL(err, VP_ERR_INPUT,
                       "%s has a workspace of %lld bytes; on this device it needs %lld",
                       vp_kernel_info_of(call->kernel)->name, (long long)call->workspace_bytes,
                       (long long)need);
    if (call->dtype == VP_DTYPE_TF32 && here.compute_capability < VP_TF32_CAPABILITY)
        return VP_FAIL(err, VP_ERR_INPUT, "%s: no tf32 below compute capability 8.0",
                       vp_kernel_info_of(call->kernel)->name);
    vp_kernel_call_check(call);
    if (kernels[call->kernel].collected)
        return collect(call, err);
    assert(kernels[call->kernel].launch || kernels[call->kernel].function);
    VP_TRY(launch_collected(err));
    if (kernels[call->kernel].function && !own)
        VP_TRY(kernels[call->kernel].function(&here, call, err));
    else
        VP_CUDA(kernels[call->kernel].launch(call, here.stream),
                vp_kernel_info_of(call->kernel)->name);
out:
    return st;
}

static vp_status algorithms(const vp_kernel_call *call, int max, vp_algorithm *out, int *n,
                            vp_err *err)
{
    assert(call->kernel < VP_N_KERNELS && max > 0);
    *n = 0;
    if (kernels[call->kernel].function != vp_cuda_linear)
        return VP_OK;
    return vp_cuda_linear_algorithms(&here, call, max, out, n, err);
}

static vp_status host(void (*f)(void *ctx), void *ctx, vp_err *err)
{
    return vp_cuda_streams_host(&here, f, ctx, err);
}

/* ---- copies beside the kernels ----
 *
 * What is collected belongs to the compute stream: it is launched before that stream is marked or
 * waits. Copies go on beside it. */

static vp_status copy(vp_stream stream, void *to, const void *from, int64_t n_bytes, vp_err *err)
{
    return vp_cuda_streams_copy(&here, stream, to, from, n_bytes, err);
}

static vp_status mark(vp_stream stream, int event, vp_err *err)
{
    vp_status st = VP_OK;

    if (stream == VP_STREAM_COMPUTE)
        VP_TRY(launch_collected(err));
    VP_TRY(vp_cuda_streams_mark(&here, stream, event, err));
out:
    return st;
}

static vp_status after(vp_stream stream, int event, vp_err *err)
{
    vp_status st = VP_OK;

    if (stream == VP_STREAM_COMPUTE)
        VP_TRY(launch_collected(err));
    VP_TRY(vp_cuda_streams_after(&here, stream, event, err));
out:
    return st;
}

/* ---- recorded steps ---- */

static vp_status record_begin(vp_err *err)
{
    vp_status st = VP_OK;

    VP_TRY(wait(err));
    vp_cuda_streams_border();
    VP_CUDA(cudaStreamBeginCapture(here.stream, cudaStreamCaptureModeThreadLocal), "recording");
out:
    return st;
}

static void graph_free(vp_backend_graph *graph)
{
    if (!graph)
        return;
    if (graph->exec)
        give_back(cudaGraphExecDestroy(graph->exec));
    free(graph);
}

/* The stream must not stay captured, or nothing could be freed: where ending it fails it is
 * tried once more, for no graph. */
static cudaError_t end_capture(cudaGraph_t *out)
{
    cudaGraph_t nobodys = NULL;
    cudaError_t e       = cudaStreamEndCapture(here.stream, out);

    if (e != cudaSuccess && cudaStreamEndCapture(here.stream, &nobodys) == cudaSuccess && nobodys)
        cudaGraphDestroy(nobodys);
    if (e != cudaSuccess)
        cudaGetLastError();
    return e;
}

static vp_status record_end(vp_backend_graph **out, vp_err *err)
{
    vp_backend_graph *graph    = calloc(1, sizeof *graph);
    cudaGraph_t       recorded = NULL;
    vp_status         joined   = launch_collected(err);
    vp_status         st       = VP_OK;
    cudaError_t       ended;

    *out = NULL;
    if (joined == VP_OK)
        joined = vp_cuda_streams_join(&here, err);
    ended = end_capture(&recorded); /* also after a failure: nothing may stay half recorded */
    vp_cuda_streams_border();
    VP_TRY(joined);
    VP_CUDA(ended, "recording");
    VP_TRY_ALLOC(err, graph);
    VP_CUDA(cudaGraphInstantiate(&graph->exec, recorded, 0), "recording");
    *out  = graph;
    graph = NULL;
out:
    if (recorded)
        give_back(cudaGraphDestroy(recorded));
    graph_free(graph);
    return st;
}

static vp_status replay(const vp_backend_graph *graph, vp_err *err)
{
    vp_status st = VP_OK;

    assert(graph->exec);
    VP_TRY(launch_collected(err));
    VP_TRY(vp_cuda_streams_join(&here, err));
    VP_CUDA(cudaGraphLaunch(graph->exec, here.stream), "replaying a step");
    vp_cuda_streams_fork();
out:
    return st;
}

/* ---- time ---- */

static vp_status record_calls(const vp_kernel_call *calls, int n_calls, vp_backend_graph **out,
                              vp_err *err)
{
    vp_status ran = VP_OK, st = VP_OK;

    VP_TRY(record_begin(err));
    for (int i = 0; i < n_calls && ran == VP_OK; i++)
        ran = run(&calls[i], err);
    st = record_end(out, err); /* also after a failure: nothing may stay half recorded */
    if (ran != VP_OK) {
        graph_free(*out);
        *out = NULL;
        st   = ran;
    }
out:
    return st;
}

static vp_status time_calls(const vp_kernel_call *calls, int n_calls, double *seconds, vp_err *err)
{
    vp_backend_graph *graph = NULL;
    cudaEvent_t       begin = NULL, end = NULL;
    float             ms = 0;
    vp_status         st = VP_OK;

    assert(n_calls > 0);
    VP_TRY(record_calls(calls, n_calls, &graph, err));
    VP_TRY(replay(graph, err)); /* warms up */
    VP_CUDA(cudaEventCreate(&begin), "an event");
    VP_CUDA(cudaEventCreate(&end), "an event");
    VP_CUDA(cudaEventRecord(begin, here.stream), "an event");
    VP_TRY(replay(graph, err));
    VP_CUDA(cudaEventRecord(end, here.stream), "an event");
    VP_TRY(wait(err));
    VP_CUDA(cudaEventElapsedTime(&ms, begin, end), "the time between two events");
    *seconds = 1e-3 * (double)ms / n_calls;
out:
    if (begin)
        give_back(cudaEventDestroy(begin));
    if (end)
        give_back(cudaEventDestroy(end));
    graph_free(graph);
    return st;
}

/* ---- the device ---- */

static const char *describe(void)
{
    return description;
}

/* The host enqueues from one thread. */
static void set_threads(int n_threads)
{
    (void)n_threads;
}

static int threads(void)
{
    return 1;
}

static int64_t close_and_count(void);

static vp_backend backend = {
    .api_version  = VP_BACKEND_API,
    .name         = "cuda",
    .device       = product,
    .describe     = describe,
    .set_threads  = set_threads,
    .threads      = threads,
    .alloc        = alloc,
    .release      = release,
    .memory       = memory,
    .close        = close_and_count,
    .host_alloc   = host_alloc,
    .host_release = host_release,
    .send         = send,
    .fetch        = fetch,
    .upload       = upload,
    .download     = download,
    .fill         = fill,
    .run          = run,
    .host         = host,
    .wait         = wait,
    .copy         = copy,
    .mark         = mark,
    .after        = after,
    .record_begin = record_begin,
    .record_end   = record_end,
    .replay       = replay,
    .graph_free   = graph_free,
    .time         = time_calls,
    .algorithms   = algorithms,
};

static void close_device(void)
{
    vp_cuda_gemm_forget();
    vp_cudnn_close(here.cudnn);
    vp_cuda_streams_close();
    if (here.lt)
        cublasLtDestroy(here.lt);
    if (here.stream)
        cudaStreamDestroy(here.stream);
    here      = (vp_cuda){0};
    updates.n = 0;
    squares.n = 0;
}

/* The context goes too: what is in use then is others'. */
static int64_t close_and_count(void)
{
    char bus[sizeof here.bus];

    memcpy(bus, here.bus, sizeof bus);
    close_device();
    is_open = false;
    return cudaDeviceReset() == cudaSuccess ? vp_nvml_ask(bus).all_bytes : -1;
}

/* What the versions of CUDA write as 13000. */
static void version_text(int version, char *buf, size_t buf_size)
{
    snprintf(buf, buf_size, "%d.%d", version / 1000, version % 1000 / 10);
}

static vp_status describe_device(const char *driver_version, vp_err *err)
{
    struct cudaDeviceProp p;
    int                   driver = 0, runtime = 0;
    char      driver_text[16], runtime_text[16], lt_text[24], version_of[24] = "a driver";
    size_t    lt = cublasLtGetVersion();
    vp_status st = VP_OK;

    VP_CUDA(cudaGetDeviceProperties(&p, here.device), "asking for the device's properties");
    VP_CUDA(cudaDriverGetVersion(&driver), "asking for the driver's version");
    VP_CUDA(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
    here.compute_capability = 10 * p.major + p.minor;
    here.n_multiprocessors  = p.multiProcessorCount;
    here.cache_bytes        = p.l2CacheSize;
    version_text(driver, driver_text, sizeof driver_text);
    version_text(runtime, runtime_text, sizeof runtime_text);
    snprintf(lt_text, sizeof lt_text, "%zu.%zu.%zu", lt / 10000, lt / 100 % 100, lt % 100);
    if (driver_version[0])
        snprintf(version_of, sizeof version_of, "driver %.16s", driver_version);
    snprintf(product, sizeof product, "%.60s", p.name);
    snprintf(description, sizeof description,
             "%.60s, compute capability %d.%d, CUDA %.8s on %s for %.8s, cuBLASLt %.12s, ", p.name,
             p.major, p.minor, runtime_text, version_of, driver_text, lt_text);
out:
    return st;
}

/* cuDNN may be missing: then every attention is our own. */
static void open_cudnn(void)
{
    vp_err why = {0};
    size_t at  = strlen(description);

    here.cudnn = vp_cudnn_open(here.stream, &why);
    assert(at < sizeof description);
    if (here.cudnn)
        snprintf(description + at, sizeof description - at, "cuDNN %s",
                 vp_cudnn_version(here.cudnn));
    else
        snprintf(description + at, sizeof description - at, "no cuDNN (%.60s)", why.message);
}

static vp_status open_device(vp_err *err)
{
    int            n = 0;
    vp_nvml_answer before;
    cudaError_t    e  = cudaGetDeviceCount(&n);
    vp_status      st = VP_OK;

    if (e == cudaErrorInsufficientDriver)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "no NVIDIA driver, or one too old for CUDA %d.%d",
                       CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10));
    if (e == cudaErrorNoDevice || (e == cudaSuccess && n == 0))
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE,
                       "the NVIDIA driver finds no device (CUDA_VISIBLE_DEVICES may hide it)"));
    VP_CUDA(e, "counting devices");
    if (cudaDeviceGetPCIBusId(here.bus, sizeof here.bus, here.device) != cudaSuccess) {
        here.bus[0] = '\0';
        cudaGetLastError();
    }
    before                 = vp_nvml_ask(here.bus); /* while this process has no context there */
    here.used_before_bytes = before.all_bytes;
    VP_CUDA(cudaSetDevice(here.device), "opening the device");
    VP_CUDA(cudaStreamCreateWithFlags(&here.stream, cudaStreamNonBlocking), "a stream");
    VP_TRY(describe_device(before.driver, err));
    if (here.compute_capability < 75)
        VP_TRY(VP_FAIL(
            err, VP_ERR_DEVICE,
            "compute capability %d.%d: this backend needs 7.5 (Turing: T4, RTX 20), the oldest that CUDA 13 builds for",
            here.compute_capability / 10, here.compute_capability % 10));
    if (cublasLtCreate(&here.lt) != CUBLAS_STATUS_SUCCESS)
        VP_TRY(VP_FAIL(err, VP_ERR_DEVICE, "cuBLASLt cannot be opened"));
    open_cudnn();
out:
    return st;
}

__attribute__((visibility("default"))) vp_status vp_backend_open(int                api_version,
                                                                 const vp_backend **out,
                                                                 vp_err            *err)
{
    vp_status st = VP_OK;

    *out = NULL;
    if (api_version != VP_BACKEND_API)
        return VP_FAIL(
            err, VP_ERR_DEVICE,
            "the CUDA backend is of version %d and the program of version %d: install both together",
            VP_BACKEND_API, api_version);
    if (!is_open) {
        st = open_device(err);
        if (st != VP_OK) {
            close_device();
            return st;
        }
        atexit(close_device);
        is_open                    = true;
        backend.compute_capability = here.compute_capability;
        backend.cache_bytes        = here.cache_bytes;
    }
    *out = &backend;
    return VP_OK;
}
