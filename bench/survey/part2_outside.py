"""Part 2: device memory that torch's allocator does not see, and workspaces that it does.

Groups:
  context      bytes on the card after each first use, in a fresh process: context, first kernel, cuBLAS, cuBLASLt, cuDNN, the
               attention kernels, a training step, torch.compile, NCCL; each alone and all in one; lazy and eager module loading
  processes    what a second process adds
  granularity  what one cudaMalloc of n bytes takes from the card
  pinned       what n bytes of pinned host memory take: torch's own rounding, and the driver's
  cudnn_device the card as cuDNN's JSON describes it, to be kept as data for asking without a device
  attention    cuDNN attention's workspace, forward and backward, deterministic and not, over forty shapes, beside cuDNN's
               own answer without a device (cudnn_deviceless.py)
Bytes throughout. `outside` is what the card has in use more than before the process touched it, less what torch's
allocator holds. It is only as good as the card is idle: a second tenant would be counted, so each row records the
use of the card before it begins.
"""
import os

# stage -> libraries it needs
STAGES = {"context": (), "first_kernel": (), "elementwise": (), "cublas": (), "cublaslt": (), "cudnn_conv": (), "cudnn_attention": (),
          "flash_attention": (), "efficient_attention": (), "training_step": (), "compile": ("triton",), "nccl": (), "nccl_second": ()}
LOADING = {"lazy": {"CUDA_MODULE_LOADING": "LAZY"}, "eager": {"CUDA_MODULE_LOADING": "EAGER"}}
MALLOC_BYTES = (1, 512 << 10, 1 << 20, (1 << 20) + 1, 2 << 20, (2 << 20) + 1, 3 << 20, 20 << 20, (20 << 20) + 1, 63 << 20, 1 << 30, (1 << 30) + 1)
PINNED_BYTES = (1, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1, 3 << 20, 1 << 24, (1 << 24) + 1, 100 << 20, 1 << 28, (1 << 28) + 1, 1 << 30)
# (batch, query heads, kv heads, sequence, head size, causal)
ATTENTION = ([(b, a, k, s, d, True) for a, k, d in ((12, 12, 64), (25, 25, 64), (32, 8, 64), (24, 8, 128), (28, 4, 128), (32, 8, 128))
              for b, s in ((8, 512), (4, 1024), (2, 2048), (1, 4096))]
             + [(b, a, a, s, d, False) for a, d in ((12, 64), (16, 64), (32, 128)) for b, s in ((32, 128), (8, 512), (2, 2048))]
             + [(1, 32, 8, 8192, 128, True), (1, 12, 12, 8192, 64, True), (3, 12, 12, 1000, 64, True), (2, 8, 2, 777, 128, True),
                (1, 64, 8, 2048, 128, True), (2, 16, 1, 1024, 256, True), (32, 12, 12, 197, 64, False)])


def row(name, group, spec, env=None, predicted=None, needs=(), limit_s=60):
    return {"name": name, "group": group, "spec": spec, "predicted": predicted, "env": env or {}, "limit_s": limit_s,
            "needs": list(needs), "needs_bytes": 8 << 30}


def shape_name(b, a, k, s, d, causal):
    return f"b{b}a{a}k{k}s{s}d{d}{'c' if causal else 'f'}"


def power_of_two(n):
    """torch's pinned allocator rounds a request up to a power of two (c10 CachingHostAllocator); measured here."""
    return 1 << (n - 1).bit_length()


def workspace_law(b, a, k, s, d):
    """Workspace of cuDNN 9.19 attention on sm_90, 16 bit, as its engines answer without a device. Bytes.

        forward                 256
        backward                256 + 4 b a s d [fp32 dQ] + 4 b a s [row sums] + (4 b a s d if a != k) [full-head dK and dV]
        deterministic backward  256 + 2 b a up(s, 64) up(s, 128) [dP] + 4 b a s + (4 b a s d if a != k); dQ needs none

    b batch, a heads, k kv heads, s sequence, d head size; up(s, n) is s rounded up to a multiple of n. Equal to
    cudnn_deviceless.py to the byte on the forty shapes here; whether a card says the same is what this part measures."""
    heads = 4 * b * a * s * d if a != k else 0
    up = lambda n: -(-s // n) * n       # noqa: E731
    return {"forward_workspace": 256, "backward_workspace": 256 + 4 * b * a * s * d + 4 * b * a * s + heads,
            "backward_workspace_deterministic": 256 + 2 * b * a * up(64) * up(128) + 4 * b * a * s + heads}


def rows():
    out = []
    for loading, env in LOADING.items():
        out.append(row(f"context/{loading}/all", "context", {"stages": list(STAGES), "loading": loading}, env, limit_s=180))
    for loading, env in LOADING.items():
        for stage, needs in STAGES.items():
            before = ["context"] if stage != "nccl_second" else ["context", "nccl"]
            out.append(row(f"context/{loading}/{stage}", "context", {"stages": before + [stage] * (stage != "context"), "loading": loading}, env,
                           needs=needs, limit_s=120 if stage == "compile" else 60))
    out += [row(f"attention/{shape_name(*x)}", "attention", {"shape": list(x[:5]), "causal": x[5], "dtype": "bf16"},
                predicted=workspace_law(*x[:5])) for x in ATTENTION]
    out.append(row("cudnn/device", "cudnn_device", {"what": "the card as cuDNN describes it"}))
    out.append(row("processes/two", "processes", {"processes": 2}))
    out.append(row("granularity/cudaMalloc", "granularity", {"bytes": list(MALLOC_BYTES)}))
    out += [row(f"pinned/torch/{n}", "pinned", {"bytes": n, "by": "torch"}, predicted={"allocator_bytes": power_of_two(n)}) for n in PINNED_BYTES]
    out += [row(f"pinned/cudaHostAlloc/{n}", "pinned", {"bytes": n, "by": "cudaHostAlloc"}) for n in PINNED_BYTES]
    return out


def checks(rows):
    """(sentence, true or false) for what needs neither torch nor a GPU."""
    n = {g: sum(r["group"] == g for r in rows) for g in ("context", "attention", "pinned")}
    yield f"{n['attention']} attention shapes (40), all different", n["attention"] == len(set(ATTENTION)) == 40
    yield f"{n['context']} context rows: {len(STAGES)} stages alone and all together, {len(LOADING)} ways of loading", \
        n["context"] == (len(STAGES) + 1) * len(LOADING)
    yield "row names are unique", len({r["name"] for r in rows}) == len(rows)
    # 8 sequences of 1024 in 12 heads of 64: 256 + 4*8*12*1024*64 + 4*8*12*1024; 256 + 2*8*12*1024*1024 + 4*8*12*1024
    law = workspace_law(8, 12, 12, 1024, 64)
    yield "the workspace law gives what was worked by hand", (law["backward_workspace"], law["backward_workspace_deterministic"]) == (25559296, 201720064)
    yield "pinned requests round to powers of two", [power_of_two(x) for x in (1, 4096, 4097)] == [1, 4096, 8192]


def unfit(r, card, stand_in):
    if stand_in:
        return "a stand-in has no context, no cuDNN and no pinned memory of its own"
    for library in r["needs"]:
        if not card["libraries"].get(library):
            return f"{library} is not installed"
    if r["group"] == "attention" and card["capability"] < [8, 0]:
        return "no cuDNN attention on this card"
    return None


# ---------------------------------------------------------------- first uses
def do_stage(stage, device="cuda"):
    """The first use of one thing; results are kept alive by nobody."""
    import torch
    import torch.nn.functional as F
    if stage == "context":
        torch.cuda.init()
        torch.cuda.mem_get_info()
    elif stage == "first_kernel":
        torch.empty(1, device=device).fill_(1.0)
    elif stage == "elementwise":
        x = torch.ones(64, 64, device=device)
        for f in (torch.exp, torch.sin, torch.relu, torch.sigmoid, torch.cumsum, torch.sort, torch.sum, torch.mean, torch.std,
                  torch.argmax, torch.softmax, torch.flip, torch.tril, torch.isnan, torch.sign):
            f(x, 0) if f in (torch.cumsum, torch.softmax) else f(x, [0]) if f is torch.flip else f(x)
        torch.where(x > 0, x, -x).half().bfloat16().double().index_select(0, torch.arange(4, device=device))
    elif stage == "cublas":
        torch.mm(torch.ones(256, 256, device=device), torch.ones(256, 256, device=device))
    elif stage == "cublaslt":
        x = torch.ones(256, 256, device=device, dtype=torch.bfloat16)
        F.linear(x, x, x[0])
    elif stage == "cudnn_conv":
        F.conv2d(torch.ones(4, 16, 32, 32, device=device), torch.ones(16, 16, 3, 3, device=device), padding=1)
    elif stage.endswith("_attention"):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        which = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
        q = torch.ones(1, 4, 128, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
        with sdpa_kernel(which[stage.split("_")[0]] if device == "cuda" else SDPBackend.MATH):
            F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    elif stage == "training_step":
        import models
        spec = {"config": "openai-community__gpt2.json", "precision": "amp", "batch": 1, "seq": 128}
        if device == "cpu":
            spec["seq"] = 16
        model, config, task = models.build(spec, device, tiny=device == "cpu")
        opt = models.optimizer("adamw_foreach", list(model.parameters()))
        with models.autocast("amp" if device == "cuda" else "fp32"):
            loss = model(**models.inputs(spec, config, task, device)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    elif stage == "compile":
        f = torch.compile(lambda x: torch.softmax(x * 2 + 1, -1).sum(), backend="inductor" if device == "cuda" else "eager")
        f(torch.ones(64, 64, device=device, requires_grad=True)).backward()
    elif stage in ("nccl", "nccl_second"):
        import torch.distributed as dist
        if stage == "nccl":
            import tempfile
            store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
            dist.init_process_group("nccl" if device == "cuda" else "gloo", store=store, rank=0, world_size=1)
            dist.all_reduce(torch.ones(1 << 20, device=device))
        else:
            group = dist.new_group([0])
            dist.all_reduce(torch.ones(1 << 20, device=device), group=group)
    else:
        raise ValueError(stage)


def host_memory():
    """VmRSS, VmLck, VmPin, VmSize of this process, bytes."""
    got = {}
    with open("/proc/self/status") as f:
        for line in f:
            k, _, v = line.partition(":")
            if k in ("VmRSS", "VmLck", "VmPin", "VmSize"):
                got[k] = int(v.split()[0]) * 1024
    return got


class Card:
    """What the card has in use, by NVML (also before there is a context) and by cudaMemGetInfo (after)."""

    def __init__(self):
        import device
        self.nvml = device.Nvml()
        self.before = self.nvml.device_used_bytes()

    def now(self, context):
        import torch
        device_used = self.nvml.device_used_bytes()
        got = {"nvml_device": device_used, "nvml_process": self.nvml.process_used_bytes(), **host_memory()}
        if context:
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            reserved = torch.cuda.memory_reserved()
            got.update(memgetinfo_used=total - free, reserved=reserved,
                       outside=device_used - self.before - reserved if device_used is not None and self.before is not None else None)
        return got


def run_context(spec):
    import gc
    import torch
    card, stages, failed = Card(), {}, {}
    stages["before"] = card.now(False)
    for stage in spec["stages"]:
        try:
            do_stage(stage)
        except Exception as e:                          # one stage that is not to be had does not cost the others
            if "CUDA error" in str(e) or len(spec["stages"]) <= 2:
                raise
            failed[stage] = f"{type(e).__name__}: {str(e)[:200]}"
            continue
        torch.cuda.synchronize()
        gc.collect()
        stages[stage] = card.now(True)
    last = stages[[s for s in stages][-1]]
    return {"outside": last.get("outside"), "stages": stages, "failed": failed, "module_loading": os.environ.get("CUDA_MODULE_LOADING")}, []


def run_processes(spec):
    """The card's use with this process's context, then with a second process that holds one."""
    import subprocess
    import sys
    card = Card()
    do_stage("first_kernel")
    one = card.now(True)
    program = "import torch; torch.empty(1, device='cuda').fill_(1); torch.cuda.synchronize(); print('up', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
        second.stdout.readline()
        two = card.now(True)
        second.communicate("\n")
    used = lambda x: x["nvml_device"] if x["nvml_device"] is not None else x["memgetinfo_used"]      # noqa: E731
    return {"one": one, "two": two, "second_adds": used(two) - used(one)}, []


def cudart():
    """The CUDA runtime torch has loaded, through ctypes."""
    import ctypes
    import torch
    torch.cuda.init()
    with open("/proc/self/maps") as f:
        path = next((l.split()[-1] for l in f if "libcudart.so" in l), None)
    if path is None:
        raise RuntimeError("no libcudart.so among this process's libraries")
    return ctypes.CDLL(path)


def run_granularity(spec):
    """cudaMalloc of each size, sixteen times (four above 256 MiB): the mean use of the card a call."""
    import ctypes
    import torch
    lib, out = cudart(), {}
    torch.cuda.mem_get_info()
    for n in spec["bytes"]:
        times = 16 if n <= 1 << 28 else 4
        before, held = torch.cuda.mem_get_info()[0], []
        for _ in range(times):
            p = ctypes.c_void_p()
            code = lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n))
            if code:
                raise RuntimeError(f"cudaMalloc({n}) returned {code}")
            held.append(p)
        out[str(n)] = (before - torch.cuda.mem_get_info()[0]) / times
        for p in held:
            lib.cudaFree(p)
    return {"bytes_a_call": out}, []


def run_pinned(spec):
    """One pinned request: torch's count, the process's memory and the card's, before and after."""
    import ctypes
    import torch
    n = spec["bytes"]
    lib = cudart()
    card = Card()
    torch.empty(1, device="cuda").fill_(1)
    before = card.now(True)
    if spec["by"] == "torch":
        keep = torch.empty(n, dtype=torch.uint8, pin_memory=True)
        keep.fill_(1)
    else:
        keep = ctypes.c_void_p()
        code = lib.cudaHostAlloc(ctypes.byref(keep), ctypes.c_size_t(n), ctypes.c_uint(0))
        if code:
            raise RuntimeError(f"cudaHostAlloc({n}) returned {code}")
        ctypes.memset(keep, 1, n)
    after = card.now(True)
    got = {"grew": {k: after[k] - before[k] for k in after if before.get(k) is not None and after[k] is not None}}
    if spec["by"] == "torch":
        stats = torch.cuda.host_memory_stats()
        got["allocator_bytes"] = stats.get("allocated_bytes.current") or stats.get("allocated_bytes.all.current")
        got["host_memory_stats"] = {k: v for k, v in stats.items() if isinstance(v, int) and "bytes" in k}
    return got, []


# ---------------------------------------------------------------- attention workspaces
def run_attention(spec):
    """Requested bytes of cuDNN attention, forward and backward, not deterministic and then deterministic.

    workspace = peak within the call - what is alive after it; outputs (out, log-sum-exp, seeds; dQ, dK, dV) are apart."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    b, a, k, s, d = spec["shape"]

    def requested(which):
        return torch.cuda.memory_stats()[f"requested_bytes.all.{which}"]

    def heads(n):
        return torch.randn(b, s, n, d, device="cuda", dtype=torch.bfloat16).transpose(1, 2).detach().requires_grad_()
    measured = {}
    for tag, deterministic in (("", False), ("_deterministic", True)):
        torch.use_deterministic_algorithms(deterministic)
        q, kk, v = heads(a), heads(k), heads(k)
        grad = torch.randn(b, s, a, d, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
        for turn in range(2):                           # the first turn may hold what is made once a process
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            at = requested("current")
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                out = F.scaled_dot_product_attention(q, kk, v, is_causal=spec["causal"], enable_gqa=a != k)
            torch.cuda.synchronize()
            kept, peak = requested("current") - at, requested("peak") - at
            measured.update({f"forward_kept{tag}": kept, f"forward_workspace{tag}": peak - kept})
            torch.cuda.reset_peak_memory_stats()
            at = requested("current")
            grads = torch.autograd.grad(out, (q, kk, v), grad)
            torch.cuda.synchronize()
            after, peak = requested("current"), requested("peak")
            measured.update({f"backward_workspace{tag}": peak - max(after, at), f"backward_peak{tag}": peak - at,
                             f"backward_after{tag}": after - at})
            del out, grads
        del q, kk, v, grad
    torch.use_deterministic_algorithms(False)
    measured["deviceless"] = deviceless(spec)
    return measured, []


def deviceless(spec):
    """cuDNN's own answer without a device for the same graph, or why there is none."""
    import cudnn_deviceless
    try:
        return cudnn_deviceless.attention_workspaces(*spec["shape"], causal=spec["causal"])
    except cudnn_deviceless.Unavailable as e:
        return {"unavailable": str(e)}


def run_cudnn_device(spec):
    """The card's description by cuDNN, and what differs from the one that stands in cudnn_deviceless.py."""
    import torch
    import cudnn_deviceless
    torch.cuda.init()
    torch.backends.cudnn.version()                      # loads the library
    real = cudnn_deviceless.device_json()
    assumed = cudnn_deviceless.H200
    return {"description": real, "differs": {k: [assumed.get(k), real.get(k)] for k in sorted({*real, *assumed}) if real.get(k) != assumed.get(k)}}, []


def run(r):
    spec = r["spec"]
    return {"context": run_context, "processes": run_processes, "granularity": run_granularity, "pinned": run_pinned,
            "attention": run_attention, "cudnn_device": run_cudnn_device}[r["group"]](spec)


def rehearse(r):
    """Stages on the CPU, attention shapes on the meta device and through cuDNN without a device, host memory as it is here."""
    import torch
    import torch.nn.functional as F
    spec = r["spec"]
    if r["group"] == "context" and len(spec["stages"]) <= 3:
        stage = spec["stages"][-1]
        if stage.startswith("nccl"):
            import torch.distributed as dist
            if not dist.is_initialized():
                do_stage("nccl", "cpu")
        if stage not in ("context", "nccl"):
            do_stage(stage, "cpu")
    elif r["group"] == "attention":
        b, a, k, s, d = spec["shape"]
        q, kk = torch.empty(b, a, s, d, device="meta"), torch.empty(b, k, s, d, device="meta")
        assert F.scaled_dot_product_attention(q, kk, kk, is_causal=spec["causal"], enable_gqa=a != k).shape == q.shape
        got = deviceless(spec)
        law = workspace_law(*spec["shape"])
        if "unavailable" in got:
            return "cuDNN does not answer without a device here: " + got["unavailable"]
        assert all(got[x] == law[x] for x in law), (got, law)
        return "cuDNN's answer without a device is the law's, to the byte"
    elif r["group"] == "pinned":
        assert host_memory()["VmRSS"] > 0 and power_of_two(spec["bytes"]) >= spec["bytes"]


def summary(answers):
    for r in answers:
        if r["group"] == "context" and r["measured"]:
            print(f"{r['name']}: {r['measured']['outside']} bytes outside the allocator")
    got = [r for r in answers if r["group"] == "attention" and r["compare"]]
    if got:
        print(f"attention: {sum(not r['compare']['differs'] for r in got)} of {len(got)} workspaces as the law says, to the byte")
        both = [r["measured"] for r in got if "backward_workspace" in r["measured"]["deviceless"]]
        same = sum(m["backward_workspace"] == m["deviceless"]["backward_workspace"] for m in both)
        print(f"attention: {same} of {len(both)} backward workspaces as cuDNN answers without a device")
