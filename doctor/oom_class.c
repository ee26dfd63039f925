#include "base/units.h"
#include "doctor/oom_internal.h"

#include <stdio.h>
#include <string.h>

/* Words around a message that say whose memory it was, in this order; and whose program. */
static const struct {
    const char  *words; /* "a|b" */
    vp_oom_class class_;
} owners[] = {
    {"pinned|page-locked|page locked|host alloc|hostalloc|mallochost|hostregister|mlock|memlock|locked memory|"
     "register memory|ibv_",
     VP_OOM_CLASS_PINNED_LIMIT},
    {"shared memory|/dev/shm|shmget|shm_open|shm segment", VP_OOM_CLASS_SHM_LIMIT},
    {"oom-kill|oom kill|oom_kill|oom killer|oomkill|cgroup|was killed|been killed|being killed|killed by",
     VP_OOM_CLASS_HOST_OOM},
    {"cuda|gpu|vram|video memory|hip|rocm|xpu|npu|mlu|tpu|hpu|hbm|device|cublas|cudnn|nccl|metal|mps|vulkan|"
     "opencl|sycl|graphics|dml|directml",
     VP_OOM_CLASS_DEVICE_SHORTAGE},
};

static const char *const programs[][2] = {
    {"torch", "pytorch"},
    {"c10::", "pytorch"},
    {"tensorflow", "tensorflow"},
    {"tf_", "tensorflow"},
    {"jax", "jax/xla"},
    {"xla", "jax/xla"},
    {"cupy", "cupy"},
    {"rmm", "rapids rmm"},
    {"numba", "numba"},
    {"mxnet", "mxnet"},
    {"paddle", "paddle"},
    {"onnxruntime", "onnxruntime"},
    {"tensorrt", "tensorrt"},
    {"[trt]", "tensorrt"},
    {"ggml", "llama.cpp"},
    {"llama", "llama.cpp"},
    {"vllm", "vllm"},
    {"sglang", "sglang"},
    {"bitsandbytes", "bitsandbytes"},
    {"deepspeed", "deepspeed"},
    {"nccl", "nccl"},
    {"mindspore", "mindspore"},
    {"faiss", "faiss"},
    {"xgboost", "xgboost"},
    {"opencl", "opencl"},
    {"vulkan", "vulkan"},
    {"sycl", "sycl"},
    {"triton", "triton"},
    {"slurm", "slurm"},
    {"docker", "docker"},
    {"kube", "kubernetes"},
    {"ray.", "ray"},
    {"numpy", "numpy"},
    {"kernel:", "linux"},
    {"cuda error:", "pytorch"},
    {"cuda", "cuda"},
    {"hip", "hip"},
    {"terminate called", "c++"},
    {"java", "java"},
};

static bool has_word(const char *text, const char *words)
{
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, "|");
        for (const char *at = text; (at = strchr(at, *p)); at++)
            if (strncmp(at, p, n) == 0 && (at == text || at[-1] < 'a' || at[-1] > 'z'))
                return true;
        p += n + (p[n] == '|');
    }
    return false;
}

vp_oom_class vp_oom_class_by_words(const vp_wording *w, const char *lower)
{
    if (!w->any_class)
        return w->class_;
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++)
        if (has_word(lower, owners[i].words))
            return owners[i].class_ == VP_OOM_CLASS_DEVICE_SHORTAGE &&
                           has_word(
                               lower,
                               "allocator cpu|device:cpu|host memory|system memory|cpu memory|on cpu|"
                               "device(type='cpu')|device=cpu")
                       ? VP_OOM_CLASS_HOST_ALLOC
                       : owners[i].class_;
    return w->class_;
}

const char *vp_oom_framework_by_words(const char *lower)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strstr(lower, programs[i][0]))
            return programs[i][1];
    return NULL;
}

static const char *size(int64_t bytes, char buf[32])
{
    return vp_size_text(bytes, buf, 32);
}

/* In a container this process stands among the others, under a number it does not know: its size is what the allocator
 * holds and a context (PyTorch 2.1 and later list processes so). */
static void find_own_process(vp_amounts *n)
{
    int64_t held = n->bytes[VP_OOM_ALLOCATED] >= 0 && n->bytes[VP_OOM_UNALLOCATED] >= 0
                       ? n->bytes[VP_OOM_ALLOCATED] + n->bytes[VP_OOM_UNALLOCATED]
                       : -1;
    int     own  = -1;

    if (held < 0 || n->bytes[VP_OOM_PROCESS] >= 0)
        return;
    for (int i = 0; i < n->n_others; i++) {
        int64_t more = n->others[i].bytes - held;
        if (more >= -16 * VP_MIB && more <= 3 * VP_GIB &&
            (own < 0 || more < n->others[own].bytes - held))
            own = i;
    }
    if (own < 0)
        return;
    n->bytes[VP_OOM_PROCESS] = n->others[own].bytes;
    memmove(&n->others[own], &n->others[own + 1],
            sizeof *n->others * (size_t)(n->n_others - own - 1));
    n->n_others--;
}

static void largest_first(vp_amounts *n)
{
    for (int i = 1; i < n->n_others; i++)
        for (int k = i; k > 0 && n->others[k].bytes > n->others[k - 1].bytes; k--) {
            int64_t bytes = n->others[k].bytes, pid = n->others[k].pid;
            n->others[k]           = n->others[k - 1];
            n->others[k - 1].bytes = bytes;
            n->others[k - 1].pid   = pid;
        }
}

/* The class that the numbers of a framework's allocator show, and the sum that shows it.
 *
 *     fragmentation    unallocated >= requested > free: what is reserved could hold it, were it in one piece
 *     memory_cap       reserved + requested > allowed
 *     other_process    free + what other processes hold >= requested */
static const char *by_numbers(vp_arena *arena, vp_oom *oom)
{
    const int64_t *b  = oom->numbers.bytes;
    int64_t requested = b[VP_OOM_REQUESTED], free = b[VP_OOM_FREE], spare = b[VP_OOM_UNALLOCATED],
            cap = b[VP_OOM_CAP], reserved = b[VP_OOM_RESERVED], others = 0;
    char x[32], y[32], z[32];

    for (int i = 0; i < oom->numbers.n_others; i++)
        others += oom->numbers.others[i].bytes;
    if (reserved < 0 && b[VP_OOM_ALLOCATED] >= 0 && spare >= 0)
        reserved = b[VP_OOM_ALLOCATED] + spare;
    if (requested < 0)
        return NULL;
    if (spare >= requested && free < requested) {
        oom->class_ = VP_OOM_CLASS_FRAGMENTATION;
        return vp_arena_printf(
            arena,
            "%s are reserved but not allocated, which is more than the %s asked for; they lie "
            "in pieces that are each too small",
            size(spare, x), size(requested, y));
    }
    if (cap >= 0 && (reserved < 0 || reserved + requested > cap)) {
        oom->class_ = VP_OOM_CLASS_MEMORY_CAP;
        return reserved < 0
                   ? vp_arena_printf(arena, "the limit is %s", size(cap, x))
                   : vp_arena_printf(arena,
                                     "%s reserved and %s asked for are more than the %s allowed",
                                     size(reserved, x), size(requested, y), size(cap, z));
    }
    if (free >= requested)
        return vp_arena_printf(
            arena,
            "%s are free by the driver's count, more than the %s asked for: a limit that PyTorch "
            "does not see (a container's GPU limiter, MIG, Windows), or memory that another process "
            "gave back since",
            size(free, x), size(requested, y));
    if (others > 0 && free >= 0 && free + others >= requested) {
        oom->class_ = VP_OOM_CLASS_OTHER_PROCESS;
        return vp_arena_printf(
            arena, "%s free and %s that other processes hold are enough for the %s asked for",
            size(free, x), size(others, y), size(requested, z));
    }
    if (free >= 0)
        return spare >= 0
                   ? vp_arena_printf(
                         arena,
                         "%s asked for, %s free; the %s reserved but not allocated are not enough either",
                         size(requested, x), size(free, y), size(spare, z))
                   : vp_arena_printf(arena, "%s asked for, %s free", size(requested, x),
                                     size(free, y));
    return NULL;
}

/* NCCL says "unhandled cuda error" of anything; its last line says of what. */
static void read_last_error(const vp_oom_message *m, vp_oom *oom)
{
    const char *last = strstr(m->whole, "last error:");

    if (!last)
        return;
    oom->is_likely = false;
    if (strstr(last, "out of memory") || strstr(last, "failed to cuda") || strstr(last, "alloc"))
        return;
    oom->class_ = VP_OOM_CLASS_NOT_OOM;
    oom->says   = "NCCL's last line names another error of CUDA than memory";
}

/* What the kernel says of whose limit it was. */
static const char *limit_of(const char *whole)
{
    return strstr(whole, "memory cgroup") || strstr(whole, "constraint_memcg") ||
                   strstr(whole, "cgroup out-of-memory")
               ? "the container's or the job's own limit (cgroup) was reached, not the machine's memory"
           : strstr(whole, "constraint_none") || strstr(whole, "global_oom")
               ? "the whole machine had no memory left"
               : NULL;
}

vp_status vp_oom_classify(vp_arena *arena, const vp_oom_message *m, vp_oom *oom, vp_err *err)
{
    vp_amounts *n  = &oom->numbers;
    vp_status   st = VP_OK;

    oom->class_    = vp_oom_class_by_words(m->wording, m->whole);
    oom->is_likely = m->wording->is_likely;
    oom->says      = m->wording->says;
    if (m->is_quoted) {
        oom->class_ = VP_OOM_CLASS_NOT_OOM;
        oom->says =
            "the words stand there, but as a text that is quoted, not as an error of this program";
        goto out;
    }
    if (n->bytes[VP_OOM_UNALLOCATED] < 0 &&
        n->bytes[VP_OOM_RESERVED] >= n->bytes[VP_OOM_ALLOCATED] && n->bytes[VP_OOM_ALLOCATED] >= 0)
        n->bytes[VP_OOM_UNALLOCATED] = n->bytes[VP_OOM_RESERVED] - n->bytes[VP_OOM_ALLOCATED];
    find_own_process(n);
    largest_first(n);
    if (oom->class_ == VP_OOM_CLASS_DEVICE_SHORTAGE && oom->trace &&
        oom->trace->phases & 1u << VP_TRACE_PIN) {
        oom->class_ = VP_OOM_CLASS_PINNED_LIMIT;
        oom->says =
            "it was refused while batches were pinned: cudaHostAlloc's memory is the host's";
    }
    if (oom->class_ == VP_OOM_CLASS_OTHER_PROCESS && oom->framework &&
        strcmp(oom->framework, "pytorch") == 0 && !n->n_others)
        oom->class_ = VP_OOM_CLASS_DEVICE_SHORTAGE; /* a part of a message, and it says 2^64 */
    if (strstr(m->whole, "last error:") || strstr(m->whole, "unhandled"))
        read_last_error(m, oom);
    if (oom->class_ == VP_OOM_CLASS_DEVICE_SHORTAGE && oom->framework &&
        strncmp(oom->framework, "pytorch", 7) == 0)
        oom->because = by_numbers(arena, oom);
    else if (oom->class_ == VP_OOM_CLASS_HOST_OOM)
        oom->because = limit_of(m->whole);
    else if (oom->class_ == VP_OOM_CLASS_OTHER_PROCESS && n->bytes[VP_OOM_REQUESTED] >= 0 &&
             n->bytes[VP_OOM_FREE] >= 0) {
        char x[32], y[32];
        oom->because =
            vp_arena_printf(arena, "%s wanted, %s free before the program began",
                            size(n->bytes[VP_OOM_REQUESTED], x), size(n->bytes[VP_OOM_FREE], y));
    }
    if (vp_arena_failed(arena))
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (oom->class_ != VP_OOM_CLASS_HOST_OOM && oom->class_ != VP_OOM_CLASS_SHM_LIMIT)
        n->pid = -1;
out:
    return st;
}
