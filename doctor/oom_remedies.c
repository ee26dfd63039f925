#include "base/units.h"
#include "doctor/oom_internal.h"

#include <stdlib.h>
#include <string.h>

/* The remedies of classes whose texts say no numbers that decide between them, in the order in which to try them. */
static const struct {
    vp_oom_class class_;
    const char  *text, *costs;
} plain[] = {
    {VP_OOM_CLASS_SHM_LIMIT, "give the container more: docker run --shm-size=16g, or --ipc=host",
     "nothing; it is taken from host memory as it is used"},
    {VP_OOM_CLASS_SHM_LIMIT,
     "fewer DataLoader workers, or a smaller prefetch_factor: each batch that waits lies there",
     "time, where loading is slow"},
    {VP_OOM_CLASS_SHM_LIMIT,
     "torch.multiprocessing.set_sharing_strategy('file_system'), where it is the number of files",
     "files that a killed run leaves behind"},
    {VP_OOM_CLASS_PINNED_LIMIT,
     "raise the limit on locked memory: ulimit -l unlimited, or docker run --ulimit memlock=-1",
     "nothing"},
    {VP_OOM_CLASS_PINNED_LIMIT,
     "pin less: DataLoader(pin_memory=False), or less offloaded to pinned host memory",
     "slower copies to the card"},
    {VP_OOM_CLASS_HOST_OOM,
     "fewer DataLoader workers: each is a process with its own copy of what it reads",
     "time, where loading is slow"},
    {VP_OOM_CLASS_HOST_OOM,
     "one process that loads the checkpoint instead of every rank (low_cpu_mem_usage, meta device)",
     "nothing"},
    {VP_OOM_CLASS_HOST_ALLOC,
     "load in pieces: memory-mapped files (safetensors, np.load(mmap_mode='r')), smaller shards",
     "time"},
    {VP_OOM_CLASS_HOST_ALLOC, "fewer processes and DataLoader workers on this machine",
     "time, where loading is slow"},
    {VP_OOM_CLASS_DISGUISED,
     "leave the library room: what the framework's cache holds is not the library's. A smaller "
     "micro-batch, or set_per_process_memory_fraction(0.9)",
     "time"},
    {VP_OOM_CLASS_DISGUISED,
     "to be sure: CUDA_LAUNCH_BLOCKING=1 before the command, and nvidia-smi beside it. A card "
     "that is not full, or an assertion before this message, means another fault",
     "time of one run"},
};

typedef struct list {
    vp_arena *arena;
    vp_oom   *oom;
} list;

static void add(list *l, int64_t saves_bytes, const char *costs, const char *text)
{
    if (l->oom->n_remedies < VP_MAX_REMEDIES)
        l->oom->remedies[l->oom->n_remedies++] =
            (vp_remedy){.text = text, .saves_bytes = saves_bytes, .costs = costs};
}

static const char *size(int64_t bytes, char buf[32])
{
    return vp_size_text(bytes, buf, 32);
}

/* Whether the allocator's settings exist in the version whose wording it is. */
static bool is_before(const vp_oom *oom, const char *version)
{
    return oom->until && strverscmp(oom->until, version) < 0;
}

/* Pages of segments that expand are given back and mapped anew where they are asked for, so what is free on the device
 * and what lies unused in segments count together (c10/cuda/CUDACachingAllocator.cpp: release_cached_blocks). */
static bool would_do_together(const vp_oom *oom)
{
    const int64_t *b         = oom->numbers.bytes;
    int64_t        requested = b[VP_OOM_REQUESTED], free = b[VP_OOM_FREE];

    return oom->class_ == VP_OOM_CLASS_DEVICE_SHORTAGE && !is_before(oom, "2.1") &&
           requested > free && free >= 0 && b[VP_OOM_UNALLOCATED] >= requested - free;
}

static void allocator_remedies(list *l, const vp_oom_message *m)
{
    const vp_oom *oom   = l->oom;
    int64_t       spare = oom->numbers.bytes[VP_OOM_UNALLOCATED];
    bool          hip   = strcmp(oom->framework, "pytorch-rocm") == 0;
    const char   *name =
        strstr(m->whole, "pytorch_alloc_conf") || (oom->since && strverscmp(oom->since, "2.9") >= 0)
              ? "PYTORCH_ALLOC_CONF"
          : hip ? "PYTORCH_HIP_ALLOC_CONF"
                : "PYTORCH_CUDA_ALLOC_CONF";

    if (oom->framework && strcmp(oom->framework, "pytorch") == 0 && would_do_together(oom)) {
        char x[32], y[32];
        add(l, spare, "nothing known; not on Windows or WSL",
            vp_arena_printf(l->arena,
                            "%s=expandable_segments:True before the command: %s free and %s unused "
                            "in segments are then enough, if little else grows",
                            name, size(oom->numbers.bytes[VP_OOM_FREE], x), size(spare, y)));
    }
    if (oom->class_ != VP_OOM_CLASS_FRAGMENTATION)
        return;
    if (strcmp(oom->framework, "pytorch") != 0 && !hip) {
        add(l, spare, "time of a few steps",
            "empty_cache() of the device's module before the large phase begins");
        return;
    }
    if (is_before(oom, "1.10"))
        add(l, spare, "an upgrade",
            "PyTorch 2.1 or newer, whose allocator grows its segments in place "
            "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)");
    else if (is_before(oom, "2.1"))
        add(l, spare, "some time in allocating",
            vp_arena_printf(
                l->arena,
                "%s=max_split_size_mb:128 before the command (expandable_segments:True from "
                "PyTorch 2.1 on)",
                name));
    else
        add(l, spare, "nothing known; not on Windows or WSL",
            vp_arena_printf(l->arena, "%s=expandable_segments:True before the command", name));
}

/* Others on the card: who, and what it looks like when all ranks of a job use the first card. */
static void process_remedies(list *l)
{
    const vp_amounts *n = &l->oom->numbers;
    char              x[32], y[32];
    int               alike = 1;

    for (int i = 0; i < n->n_others && i < 4; i++)
        add(l, n->others[i].bytes, "that process",
            n->others[i].pid > 0
                ? vp_arena_printf(l->arena, "end process %lld, which holds %s, or use another card",
                                  (long long)n->others[i].pid, size(n->others[i].bytes, x))
                : vp_arena_printf(l->arena, "end the process that holds %s, or use another card",
                                  size(n->others[i].bytes, x)));
    for (int i = 1; i < n->n_others; i++)
        alike += n->others[i].bytes > 0 &&
                 llabs(n->others[i].bytes - n->others[0].bytes) < n->others[0].bytes / 10;
    if (n->n_others >= 2 && alike == n->n_others)
        add(l, n->others[0].bytes * n->n_others, "nothing",
            vp_arena_printf(
                l->arena,
                "%d processes hold about %s each: ranks that all use this card. "
                "torch.cuda.set_device(LOCAL_RANK), and map_location='cpu' in torch.load()",
                n->n_others, size(n->others[0].bytes, y)));
    if (l->oom->class_ == VP_OOM_CLASS_OTHER_PROCESS && !n->n_others)
        add(l, -1, "that process",
            "find who holds the card (vplan doctor here, or nvidia-smi), and end it or use another");
}

static void cap_remedies(list *l, const vp_oom_message *m)
{
    const vp_amounts *n   = &l->oom->numbers;
    int64_t           cap = n->bytes[VP_OOM_CAP], total = n->bytes[VP_OOM_TOTAL];
    const char       *fw = l->oom->framework ? l->oom->framework : "";
    char              x[32], y[32];

    if (l->oom->class_ != VP_OOM_CLASS_MEMORY_CAP)
        return;
    if (strcmp(fw, "pytorch") == 0)
        add(l, cap >= 0 && total > cap ? total - cap : -1, "memory of whoever shares the card",
            cap >= 0 && total > 0
                ? vp_arena_printf(
                      l->arena,
                      "raise set_per_process_memory_fraction: it allows %s of the card's %s",
                      size(cap, x), size(total, y))
                : "raise set_per_process_memory_fraction");
    else if (strcmp(fw, "pytorch-mps") == 0)
        add(l, -1, "the system may have too little left",
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO above its 1.7 before the command, or 0.0 for no limit");
    else if (strcmp(fw, "vllm") == 0)
        add(l, -1, "memory of whoever shares the card",
            "a larger gpu_memory_utilization, or a smaller max_model_len");
    else if (strcmp(fw, "sglang") == 0)
        add(l, -1, "memory of whoever shares the card", "a larger --mem-fraction-static");
    else
        add(l, -1, "memory of whoever shares the card",
            cap >= 0 ? vp_arena_printf(l->arena, "raise the limit, which is %s", size(cap, x))
                     : "raise the limit");
    (void)m;
}

/* What a phase is known for. */
static void phase_remedies(list *l)
{
    int64_t requested = l->oom->numbers.bytes[VP_OOM_REQUESTED];

    switch (l->oom->phase) {
    case VP_TRACE_INIT:
    case VP_TRACE_OPTIMIZER:
        add(l, -1, "rounding of the states",
            "an optimizer with 8-bit states (adamw_8bit): 2 bytes a parameter in place of 8");
        add(l, -1, "copies to the host in each step",
            "optimizer states on the host, or sharded over the cards (ZeRO-1, FSDP)");
        break;
    case VP_TRACE_LOSS:
        add(l, requested, "nothing",
            "a loss that takes the logits in pieces (Liger's fused loss, or chunks of tokens): the "
            "tensor asked for is one of several of tokens x vocabulary");
        break;
    case VP_TRACE_EVALUATION:
        add(l, requested, "time of evaluations",
            "a smaller batch in evaluation (per_device_eval_batch_size), prediction_loss_only, "
            "eval_accumulation_steps");
        break;
    case VP_TRACE_LOAD:
        add(l, -1, "nothing",
            "load to the host first (map_location='cpu'), in the dtype that is trained, and free the copy");
        break;
    case VP_TRACE_SAVE:
        add(l, -1, "time of each save",
            "save sharded, or gather to the host (cpu_offload) instead of the card");
        break;
    case VP_TRACE_BACKWARD:
    case VP_TRACE_FORWARD:
        add(l, -1, "a third more time",
            "recompute blocks in backward (gradient_checkpointing=True)");
        break;
    default:
        break;
    }
}

static void device_remedies(list *l, const vp_oom_message *m)
{
    const int64_t *b       = l->oom->numbers.bytes;
    int64_t        outside = -1, spare = b[VP_OOM_UNALLOCATED];
    char           x[32];

    allocator_remedies(l, m);
    process_remedies(l);
    cap_remedies(l, m);
    phase_remedies(l);
    if (b[VP_OOM_PROCESS] >= 0 && b[VP_OOM_ALLOCATED] >= 0 && spare >= 0)
        outside = b[VP_OOM_PROCESS] - b[VP_OOM_ALLOCATED] - spare;
    if (outside > 3 * VP_GIB / 2)
        add(l, outside, "what that library does",
            vp_arena_printf(
                l->arena,
                "this process holds %s outside PyTorch's allocator, more than a context and libraries take: "
                "another library's pool (JAX, TensorFlow, vLLM, NCCL's buffers)",
                size(outside, x)));
    if (l->oom->class_ == VP_OOM_CLASS_DEVICE_SHORTAGE || l->oom->class_ == VP_OOM_CLASS_MEMORY_CAP)
        add(l, -1, "a little time",
            "a smaller micro-batch with more gradient accumulation: as many samples a step");
    if (l->oom->class_ == VP_OOM_CLASS_DEVICE_SHORTAGE && l->oom->phase == VP_N_TRACE_PHASES)
        add(l, -1, "a third more time",
            "recompute blocks in backward (gradient_checkpointing=True)");
}

static void host_remedies(list *l)
{
    int64_t cap = l->oom->numbers.bytes[VP_OOM_CAP], rss = l->oom->numbers.bytes[VP_OOM_RSS];
    char    x[32], y[32];

    if (l->oom->class_ == VP_OOM_CLASS_HOST_OOM)
        add(l, -1, "memory of the machine",
            cap >= 0
                ? vp_arena_printf(
                      l->arena,
                      "a higher limit than %s (docker --memory, Slurm --mem, the pod's limits.memory)",
                      size(cap, x))
            : rss >= 0
                ? vp_arena_printf(
                      l->arena,
                      "more host memory than the %s that the process held (a higher limit of the "
                      "container or job, where there is one)",
                      size(rss, y))
                : "more host memory: a higher limit of the container or job, where there is one");
    if (l->oom->is_likely && l->oom->class_ == VP_OOM_CLASS_HOST_OOM)
        add(l, -1, "nothing",
            "to be sure: dmesg | grep -i 'killed process', memory.events of the container, sacct -o "
            "State,MaxRSS of the job");
}

/* Those that save most first; the others as they were added. */
static void sort(vp_oom *oom)
{
    for (int i = 1; i < oom->n_remedies; i++)
        for (int k = i; k > 0 && oom->remedies[k].saves_bytes > oom->remedies[k - 1].saves_bytes;
             k--) {
            vp_remedy r          = oom->remedies[k];
            oom->remedies[k]     = oom->remedies[k - 1];
            oom->remedies[k - 1] = r;
        }
}

vp_status vp_oom_find_remedies(vp_arena *arena, const vp_oom_message *m, vp_oom *oom, vp_err *err)
{
    list l = {.arena = arena, .oom = oom};

    if (oom->class_ <= VP_OOM_CLASS_MEMORY_CAP && oom->framework)
        device_remedies(&l, m);
    else if (oom->class_ <= VP_OOM_CLASS_MEMORY_CAP)
        add(&l, -1, "a little time",
            "a smaller micro-batch with more gradient accumulation: as many samples a step");
    host_remedies(&l);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i].class_ == oom->class_)
            add(&l, -1, plain[i].costs, plain[i].text);
    sort(oom);
    return vp_arena_failed(arena) ? VP_FAIL(err, VP_ERR_NOMEM, "out of host memory") : VP_OK;
}
