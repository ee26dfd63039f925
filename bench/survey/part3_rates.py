"""Part 3: rates. What the first measured device profile is made of.

Groups: launch, gemm, attention, elementwise, optimizer, copy, overlap, host_optimizer. Rows of one group and dtype
share a process, because a kernel's time does not depend on the process it runs in and starting one costs longer
than the row; a crash still costs one row, since the next process goes on behind it.
`measured` holds seconds (median), flop, bytes, flop_per_s, bytes_per_s where they mean something; raw_seconds are
the repeats. `key` {op, shape, dtype, ...} is what to_profile.py files the row under. flop counts 2 m n k for a
product and, for attention, the pairs a causal mask leaves; bytes count each input read and each output written once.
"""
import os

from gpu_timing import copies_past_cache, measure, median

BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "fp8": 1}
L2_BYTES = 60 << 20           # an H200's L2 as the driver reports it; the card's own value is used where it runs

# Layers of published models: hidden, heads, kv heads, head size, mlp width, vocabulary (data/configs).
MODELS = {
    "gpt2": (768, 12, 12, 64, 3072, 50257, False),
    "gpt2-xl": (1600, 25, 25, 64, 6400, 50257, False),
    "llama-3.2-1b": (2048, 32, 8, 64, 8192, 128256, True),
    "llama-3.2-3b": (3072, 24, 8, 128, 8192, 128256, True),
    "qwen2.5-7b": (3584, 28, 4, 128, 18944, 152064, True),
    "llama-3.1-8b": (4096, 32, 8, 128, 14336, 128256, True),
}
TOKENS = (2048, 8192)
HEAD_TOKENS = 2048            # the loss head runs in chunks: at 8192 tokens fp32 logits alone would be 5 GB


def linears():
    """(name, tokens, in, out) of every distinct linear layer of the models, at each number of tokens."""
    out = []
    for model, (h, a, k, d, f, v, gated) in MODELS.items():
        layers = {"qkv": (h, (a + 2 * k) * d), "o": (a * d, h), "up": (h, f), "down": (f, h)}
        if gated:
            layers["gate_up"] = (h, 2 * f)
        for name, (i, o) in layers.items():
            out += [(f"{model}.{name}", n, i, o) for n in TOKENS]
        out.append((f"{model}.head", HEAD_TOKENS, h, v))
    return out


def products():
    """(name, pass, m, n, k): y = x Wᵀ forward (tokens, out, in), dX = dY W (tokens, in, out), dW = dYᵀ X (out, in, tokens)."""
    for name, n, i, o in linears():
        yield name, "fwd", n, o, i
        yield name, "dx", n, i, o
        yield name, "dw", o, i, n


# (batch, query heads, kv heads, sequence, head size, causal): sixty attention shapes around the same models.
ATTENTION = ([(b, a, k, s, d, True) for a, k, d in ((12, 12, 64), (25, 25, 64), (32, 8, 64), (24, 8, 128), (28, 4, 128), (32, 8, 128))
              for b, s in ((16, 512), (8, 1024), (4, 2048), (2, 4096), (1, 8192))]
             + [(b, a, k, s, d, False) for a, k, d in ((12, 12, 64), (16, 16, 64), (32, 32, 128))
                for b, s in ((32, 197), (64, 128), (16, 512), (8, 1024), (4, 2048))]
             + [(b, a, k, s, 128, True) for a, k in ((32, 32), (64, 8), (16, 1)) for b, s in ((1, 1024), (1, 2048), (1, 4096), (1, 16384), (8, 2048))])
KERNELS = ("cudnn", "flash", "efficient")
ELEMENTWISE = ("device_copy", "add", "mul", "gelu", "silu_mul", "cast_fp32", "cast_bf16", "layer_norm", "rms_norm", "layer_norm_bwd", "softmax",
               "gelu_bwd", "dropout", "sum_rows", "norm", "cross_entropy", "embedding", "add_fp32", "fill")
ELEMENT_SHAPES = ((2048, 2048), (8192, 4096), (16384, 8192))
OPTIMIZERS = ("adamw_fused", "adamw_foreach", "adamw_forloop", "sgd", "sgdm", "adafactor")
COPY_BYTES = tuple(1 << e for e in (12, 14, 16, 18, 20, 22, 24, 26, 28, 30))


def row(name, group, key, share, limit_s=30, memory_bytes=0):
    return {"name": name, "group": group, "spec": key, "predicted": None, "env": {}, "limit_s": limit_s, "share": share,
            "needs_bytes": memory_bytes, "needs": []}


def gemm_rows(dtype):
    seen = set()
    for name, way, m, n, k in products():
        if dtype == "fp8" and (n % 16 or k % 16 or m % 16):     # torch._scaled_mm takes multiples of 16 only
            continue
        if (way, m, n, k) in seen:
            continue
        seen.add((way, m, n, k))
        need = (m * k + n * k) * BYTES[dtype] + m * n * max(2, BYTES[dtype])
        yield row(f"gemm/{dtype}/{way}/{m}x{n}x{k}", "gemm",
                  {"op": "gemm", "pass": way, "shape": [m, n, k], "dtype": dtype, "layer": name}, f"gemm-{dtype}", memory_bytes=need * 8)


def attention_rows(kernel):
    for b, a, k, s, d, causal in ATTENTION:
        if kernel == "efficient" and a != k:                    # refuses grouped heads
            continue
        tag = f"b{b}a{a}k{k}s{s}d{d}{'c' if causal else 'f'}"
        yield row(f"attention/{kernel}/{tag}", "attention",
                  {"op": "attention", "kernel": kernel, "shape": [b, a, k, s, d], "causal": causal, "dtype": "bf16"},
                  f"attention-{kernel}", memory_bytes=40 * b * a * s * d)


def rows():
    out = [row(f"launch/{what}", "launch", {"op": "launch", "what": what}, "launch") for what in ("eager", "graph_node", "empty_sync")]
    out += gemm_rows("bf16")
    out += attention_rows("cudnn")
    out += [row(f"copy/{way}/{kind}/{n}", "copy", {"op": "copy", "way": way, "host": kind, "bytes": n}, "copy", memory_bytes=2 * n)
            for kind in ("pinned", "pageable") for way in ("h2d", "d2h", "both") for n in COPY_BYTES
            if not (kind == "pageable" and way == "both")]
    out += [row(f"overlap/{way}/{'x'.join(map(str, shape))}", "overlap", {"op": "overlap", "way": way, "shape": list(shape), "dtype": "bf16",
                "bytes": 256 << 20}, "overlap", memory_bytes=2 << 30)
            for way in ("h2d", "d2h", "both") for shape in ((2048, 2048, 2048), (8192, 4096, 4096), (8192, 8192, 8192))]
    out += [row(f"elementwise/{op}/{r}x{c}", "elementwise", {"op": op, "shape": [r, c], "dtype": "bf16"}, "elementwise",
                memory_bytes=64 * r * c) for op in ELEMENTWISE for r, c in ELEMENT_SHAPES]
    out += [row(f"optimizer/{kind}/{dtype}/{tensors}", "optimizer", {"op": "optimizer_step", "kind": kind, "dtype": dtype, "tensors": tensors},
                "optimizer", memory_bytes=24 << 30) for tensors in ("gpt2", "llama-3.2-1b") for dtype in ("fp32", "bf16") for kind in OPTIMIZERS]
    out += attention_rows("flash")
    out += attention_rows("efficient")
    for dtype in ("fp8", "fp16", "tf32", "fp32"):
        out += gemm_rows(dtype)
    out += [row(f"host_optimizer/{kind}/threads{n}", "host_optimizer", {"op": "host_optimizer_step", "kind": kind, "threads": n,
                "parameters": 1 << 27}, None, limit_s=60) for kind in ("adamw_fused", "adamw_foreach") for n in (1, 2, 4, 8, 16)]
    return out


def checks(rows):
    """(sentence, true or false) for what needs neither torch nor a GPU."""
    count = lambda prefix: sum(r["name"].startswith(prefix) for r in rows)      # noqa: E731
    for dtype in ("bf16", "fp16", "tf32", "fp32"):
        yield f"{count('gemm/' + dtype)} shapes of GEMM in {dtype} (at least 150)", count("gemm/" + dtype) >= 150
    yield f"{count('gemm/fp8')} shapes of GEMM in fp8 (those in multiples of 16)", count("gemm/fp8") >= 120
    yield f"{len(ATTENTION)} shapes of attention (at least 60)", len(set(ATTENTION)) == len(ATTENTION) >= 60
    yield "row names are unique", len({r["name"] for r in rows}) == len(rows)
    yield "every key counts positive work", all(v > 0 for r in rows for v in work(r["spec"]) if v is not None)
    yield "no row needs more than 64 GiB", max(r["needs_bytes"] for r in rows) <= 64 << 30
    yield "gpt2's up projection backward dW is 3072 x 768 x tokens", any(r["name"] == "gemm/bf16/dw/3072x768x8192" for r in rows)


def unfit(r, card, stand_in):
    if stand_in:
        return "nothing can be timed on a stand-in"
    if r["spec"].get("threads", 0) > len(os.sched_getaffinity(0)):
        return "more threads than cores"
    if r["needs_bytes"] + (2 << 30) > card["total_bytes"]:
        return "does not fit the card"
    if r["spec"].get("dtype") == "fp8" and card["capability"] < [8, 9]:
        return "no fp8 on this card"
    return None


def work(key):
    """(flop, bytes moved at least) of a key; None where the word has no meaning. Bytes: inputs once, outputs once."""
    op = key["op"]
    if op == "gemm":
        m, n, k = key["shape"]
        e = BYTES[key["dtype"]]
        return 2 * m * n * k, e * (m * k + k * n) + max(2, e) * m * n
    if op == "attention":
        b, a, k, s, d = key["shape"]
        pairs = s * (s + 1) // 2 if key["causal"] else s * s
        return 4 * b * a * pairs * d, 2 * (2 * b * a * s * d + 2 * b * k * s * d) + 4 * b * a * s     # q, k, v, out; lse fp32
    if op in ("copy", "overlap"):
        return None, key["bytes"] * (2 if key["way"] == "both" else 1)
    if op in ELEMENTWISE:
        r, c = key["shape"]
        e = {"device_copy": 4, "add": 6, "mul": 6, "gelu": 4, "silu_mul": 6, "cast_fp32": 6, "cast_bf16": 6, "layer_norm": 4, "rms_norm": 4,
             "layer_norm_bwd": 6, "softmax": 4, "gelu_bwd": 6, "dropout": 5, "sum_rows": 2, "norm": 2, "cross_entropy": 2,
             "embedding": 4, "add_fp32": 12, "fill": 2}[op]
        return None, e * r * c
    return None, None


# ---------------------------------------------------------------- the operations; device "cpu" and tiny shapes rehearse them
def gemm(key, device, copies=1):
    """(call, sets): operands stored as a training step stores them, x and dY row-major by tokens, W as (out, in)."""
    import torch
    m, n, k = key["shape"]
    way, name = key["pass"], key["dtype"]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}.get(name, torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    make = lambda *shape: torch.randn(*shape, device=device, dtype=dtype)       # noqa: E731
    if name == "fp8":
        # row-major A times column-major B, both e4m3 (dY in e5m2), one scale each, bf16 result
        one = torch.ones((), device=device)
        grad = torch.float8_e5m2 if way != "fwd" else torch.float8_e4m3fn
        sets = [(make(m, k).to(grad), make(n, k).to(torch.float8_e4m3fn).t(), one) for _ in range(copies)]
        return (lambda s: torch._scaled_mm(s[0], s[1], scale_a=s[2], scale_b=s[2], out_dtype=torch.bfloat16, use_fast_accum=way == "fwd")), sets
    out = torch.empty(m, n, device=device, dtype=dtype)
    if way == "fwd":
        sets = [(make(m, k), make(n, k)) for _ in range(copies)]
        return (lambda s: torch.mm(s[0], s[1].t(), out=out)), sets
    if way == "dx":
        sets = [(make(m, k), make(k, n)) for _ in range(copies)]
        return (lambda s: torch.mm(s[0], s[1], out=out)), sets
    sets = [(make(k, m), make(k, n)) for _ in range(copies)]
    return (lambda s: torch.mm(s[0].t(), s[1], out=out)), sets


def attention(key, device, copies=1):
    """(forward call, backward call, sets). Heads lie as a projection leaves them: (batch, sequence, heads, size) transposed."""
    import torch
    import torch.nn.functional as F
    b, a, k, s, d = key["shape"]
    dtype = torch.bfloat16

    def heads(n):
        return torch.randn(b, s, n, d, device=device, dtype=dtype).transpose(1, 2).detach().requires_grad_()
    sets = []
    for _ in range(copies):
        q, kk, v = heads(a), heads(k), heads(k)
        sets.append((q, kk, v, torch.randn(b, s, a, d, device=device, dtype=dtype).transpose(1, 2)))

    def forward(x):
        return F.scaled_dot_product_attention(x[0], x[1], x[2], is_causal=key["causal"], enable_gqa=a != k)

    def backward(x):
        return torch.autograd.grad(x[4], x[:3], x[3], retain_graph=True)
    return forward, backward, sets


def elementwise(key, device, copies=1):
    """(call, sets) of one bandwidth-bound operation on (rows, columns)."""
    import torch
    import torch.nn.functional as F
    r, c = key["shape"]
    op, dtype = key["op"], torch.bfloat16
    x = [torch.randn(r, c, device=device, dtype=dtype) for _ in range(copies)]
    y = [torch.randn(r, c, device=device, dtype=dtype) for _ in range(copies)]
    w, bias = torch.ones(c, device=device, dtype=dtype), torch.zeros(c, device=device, dtype=dtype)
    out = torch.empty(r, c, device=device, dtype=dtype)
    pairs = list(zip(x, y))
    aten = torch.ops.aten
    if op == "layer_norm_bwd":
        stats = [aten.native_layer_norm(i, [c], w, bias, 1e-5)[1:] for i in x]
        return (lambda s: aten.native_layer_norm_backward(s[1], s[0], [c], s[2][0], s[2][1], w, bias, [True, True, True])), \
               [(i, j, t) for (i, j), t in zip(pairs, stats)]
    if op == "cross_entropy":
        target = torch.randint(0, c, (r,), device=device)
        return (lambda s: F.cross_entropy(s[0], target)), pairs
    if op == "embedding":
        ids = torch.randint(0, r, (r,), device=device)
        return (lambda s: F.embedding(ids, s[0])), pairs
    if op in ("cast_bf16", "add_fp32"):
        x32 = [i.float() for i in x]
        out32 = torch.empty(r, c, device=device)
        return ((lambda s: out.copy_(s[0])) if op == "cast_bf16" else (lambda s: torch.add(s[0], s[0], out=out32))), [(i,) for i in x32]
    if op == "cast_fp32":
        out32 = torch.empty(r, c, device=device)
        return (lambda s: out32.copy_(s[0])), pairs
    call = {"device_copy": lambda s: out.copy_(s[0]), "add": lambda s: torch.add(s[0], s[1], out=out),
            "mul": lambda s: torch.mul(s[0], s[1], out=out), "gelu": lambda s: F.gelu(s[0], approximate="tanh"),
            "silu_mul": lambda s: F.silu(s[0]).mul_(s[1]), "layer_norm": lambda s: F.layer_norm(s[0], (c,), w, bias),
            "rms_norm": lambda s: F.rms_norm(s[0], (c,), w), "softmax": lambda s: torch.softmax(s[0], -1),
            "gelu_bwd": lambda s: aten.gelu_backward(s[1], s[0], approximate="tanh"), "dropout": lambda s: F.dropout(s[0], 0.1),
            "sum_rows": lambda s: s[0].sum(0), "norm": lambda s: torch.linalg.vector_norm(s[0], dtype=torch.float32),
            "fill": lambda s: out.fill_(1.0)}[op]
    return call, pairs


def parameters(kind, device, dtype, scale=1):
    """A model's list of parameter shapes as tensors with gradients; scale divides every dimension (rehearsal)."""
    import torch
    h, a, k, d, f, v, gated = MODELS[kind]
    layers = {"gpt2": 12, "llama-3.2-1b": 16}[kind]
    shapes = [(v, h)]
    for _ in range(layers):
        shapes += [((a + 2 * k) * d, h), (h, a * d), (f, h), (h, f)] + ([(f, h)] if gated else []) + [(h,), (h,)]
    out = []
    for s in shapes:
        p = torch.nn.Parameter(torch.randn([max(1, x // scale) for x in s], device=device, dtype=dtype))
        p.grad = torch.randn_like(p)
        out.append(p)
    return out


def host_step(kind, count, threads):
    """One optimizer on `count` fp32 parameters in host memory."""
    import torch
    torch.set_num_threads(threads)
    p = [torch.nn.Parameter(torch.randn(count // 8)) for _ in range(8)]
    for x in p:
        x.grad = torch.randn_like(x)
    return torch.optim.AdamW(p, lr=1e-4, fused=kind == "adamw_fused", foreach=kind == "adamw_foreach")


# ---------------------------------------------------------------- running
def timed(key, seconds, **more):
    flop, moved = work(key)
    s = median(seconds)
    return dict({"seconds": s, "flop": flop, "bytes": moved, "flop_per_s": flop / s if flop else None,
                 "bytes_per_s": moved / s if moved else None, "key": key}, **more), seconds


def run(r):
    import torch
    key = r["spec"]
    torch.manual_seed(1)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size or L2_BYTES
    op = key["op"]
    if op == "gemm":
        call, sets = gemm(key, "cuda", copies_past_cache(work(key)[1], l2))
        return timed(key, measure(call, sets))
    if op == "attention":
        return run_attention(key, l2)
    if op == "copy":
        return run_copy(key)
    if op == "overlap":
        return run_overlap(key)
    if op == "launch":
        return run_launch(key)
    if op == "optimizer_step":
        return run_optimizer(key)
    if op == "host_optimizer_step":
        return run_host_optimizer(key)
    call, sets = elementwise(key, "cuda", copies_past_cache(work(key)[1], l2))
    return timed(key, measure(call, sets))


def run_attention(key, l2):
    """Forward and backward apart; backward counts 2.5 times the forward's flop (five products instead of two)."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
               "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}[key["kernel"]]
    forward, backward, sets = attention(key, "cuda", min(4, copies_past_cache(work(key)[1], l2)))
    with sdpa_kernel(backend):
        with torch.no_grad():
            fwd = measure(forward, sets)
        saved = [(*x, forward(x)) for x in sets]
        bwd = measure(backward, saved)
    flop = work(key)[0]
    measured, _ = timed(key, fwd, backward_seconds=median(bwd), backward_flop=flop * 5 // 2,
                        backward_flop_per_s=flop * 2.5 / median(bwd), backward_raw_seconds=bwd)
    return measured, fwd


def host_buffer(count, kind):
    import torch
    t = torch.empty(count, dtype=torch.uint8, pin_memory=kind == "pinned")
    t.fill_(1)                                          # touch every page before timing
    return t


def run_copy(key):
    """One way, or both ways at once on two streams; seconds is the time until both are done."""
    import torch
    n, way = key["bytes"], key["way"]
    there, back = host_buffer(n, key["host"]), host_buffer(n, key["host"])
    a, b = (torch.empty(n, dtype=torch.uint8, device="cuda") for _ in range(2))
    if way != "both":
        call = (lambda s: a.copy_(there, non_blocking=True)) if way == "h2d" else (lambda s: back.copy_(b, non_blocking=True))
        return timed(key, measure(call, [()], target_s=0.1))
    up, down = torch.cuda.Stream(), torch.cuda.Stream()
    main = torch.cuda.current_stream()

    def both(_):
        up.wait_stream(main)
        down.wait_stream(main)
        with torch.cuda.stream(up):
            a.copy_(there, non_blocking=True)
        with torch.cuda.stream(down):
            back.copy_(b, non_blocking=True)
        main.wait_stream(up)
        main.wait_stream(down)
    return timed(key, measure(both, [()], target_s=0.1))


def run_overlap(key):
    """GEMMs on one stream while copies run on others: how much each slows the other.

    Both run for the same stretch: the copies loop as often as fills the GEMMs' time, and each side's own events time it."""
    import torch
    n, way = key["bytes"], key["way"]
    call, sets = gemm({"op": "gemm", "pass": "fwd", "shape": key["shape"], "dtype": "bf16"}, "cuda", 2)
    up_h, down_h = host_buffer(n, "pinned"), host_buffer(n, "pinned")
    up_d, down_d = (torch.empty(n, dtype=torch.uint8, device="cuda") for _ in range(2))
    streams = {w: torch.cuda.Stream() for w in (["h2d", "d2h"] if way == "both" else [way])}
    copy = {"h2d": lambda: up_d.copy_(up_h, non_blocking=True), "d2h": lambda: down_h.copy_(down_d, non_blocking=True)}
    event = lambda: torch.cuda.Event(enable_timing=True)       # noqa: E731

    def play(gemms, copies):
        """Enqueue both sides together; returns (seconds per GEMM, seconds per copy)."""
        torch.cuda.synchronize()
        marks = {}
        for w, s in streams.items():
            if copies:
                with torch.cuda.stream(s):
                    marks[w] = (event(), event())
                    marks[w][0].record()
                    for _ in range(copies):
                        copy[w]()
                    marks[w][1].record()
        begin, end = event(), event()
        begin.record()
        for i in range(gemms):
            call(sets[i % 2])
        end.record()
        torch.cuda.synchronize()
        return (begin.elapsed_time(end) / 1e3 / gemms if gemms else None,
                max(x.elapsed_time(y) for x, y in marks.values()) / 1e3 / copies if copies else None)
    play(5, 1)
    copy_alone = median([play(0, 2)[1] for _ in range(5)])
    gemm_alone = median([play(20, 0)[0] for _ in range(5)])
    gemms = max(20, int(8 * copy_alone / gemm_alone))           # about eight copies long
    copies = max(1, round(gemms * gemm_alone / copy_alone))
    together = [play(gemms, copies) for _ in range(5)]
    raw = [t[0] for t in together]
    return {"seconds": median(raw), "key": key, "gemm_alone_s": gemm_alone, "copy_alone_s": copy_alone,
            "gemm_together_s": median(raw), "copy_together_s": median([t[1] for t in together]),
            "gemm_slowdown": median(raw) / gemm_alone, "copy_slowdown": median([t[1] for t in together]) / copy_alone,
            "gemms": gemms, "copies": copies, "copy_raw_seconds": [t[1] for t in together]}, raw


def run_launch(key):
    """Seconds per kernel: launched eagerly, as a node of a graph, and a launch with a wait for it."""
    import time
    import torch
    x = torch.zeros(256, device="cuda")
    n = 1000
    if key["what"] == "graph_node":
        graph = torch.cuda.CUDAGraph()
        x.add_(1)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(n):
                x.add_(1)
        call = graph.replay
    elif key["what"] == "eager":
        def call():
            for _ in range(n):
                x.add_(1)
    else:
        def call():
            for _ in range(n):
                x.add_(1)
                torch.cuda.synchronize()
    raw = []
    for _ in range(12):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        raw.append((time.perf_counter() - begun) / n)
    return timed(key, raw[2:])


def run_optimizer(key):
    import torch
    import models
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[key["dtype"]]
    params = parameters(key["tensors"], "cuda", dtype)
    opt = models.optimizer(key["kind"], params)
    opt.step()
    count = sum(p.numel() for p in params)
    raw = measure(lambda s: opt.step(), [()], target_s=0.2)
    return timed(key, raw, parameters=count, parameters_per_s=count / median(raw))


def run_host_optimizer(key):
    import time
    opt = host_step(key["kind"], key["parameters"], key["threads"])
    opt.step()
    raw = []
    for _ in range(5):
        begun = time.perf_counter()
        opt.step()
        raw.append(time.perf_counter() - begun)
    return timed(key, raw, parameters=key["parameters"], parameters_per_s=key["parameters"] / median(raw))


# ---------------------------------------------------------------- rehearsal without a GPU
def rehearse(r):
    """Shapes on the meta device at full size, the same call on the CPU at a small one."""
    import torch
    import models
    key = r["spec"]
    op = key["op"]
    if op == "gemm":
        m, n, k = key["shape"]
        for device, shape in (("meta", [m, n, k]), ("cpu", [32, 16, 48])):
            call, sets = gemm(dict(key, shape=shape), device)
            if key["dtype"] == "fp8" and device == "cpu":
                continue                                # no fp8 product on every CPU; the meta device checks layout rules
            got = call(sets[0])
            assert list(got.shape) == shape[:2], (got.shape, shape)
    elif op == "attention":
        b, a, k, s, d = key["shape"]
        forward, _, sets = attention(key, "meta")
        assert list(forward(sets[0]).shape) == [b, a, s, d]
        g = a // k if a % k == 0 else 1
        forward, backward, sets = attention(dict(key, shape=[1, 2 * g, 2, 16, 8]), "cpu")
        x = (*sets[0], forward(sets[0]))
        assert [list(t.shape) for t in backward(x)] == [list(t.shape) for t in x[:3]]
    elif op in ELEMENTWISE:
        call, sets = elementwise(key, "meta")
        call(sets[0])
        call, sets = elementwise(dict(key, shape=[8, 16]), "cpu")
        call(sets[0])
    elif op == "optimizer_step":
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[key["dtype"]]
        parameters(key["tensors"], "meta", dtype)
        models.optimizer(key["kind"], parameters(key["tensors"], "cpu", dtype, scale=64)).step()
    elif op == "host_optimizer_step":
        host_step(key["kind"], 1024, 1).step()
    elif op == "copy":
        host_buffer(min(key["bytes"], 1 << 20), "pageable")


def summary(answers):
    best = {}
    for r in answers:
        m = r["measured"]
        if m and m.get("flop_per_s"):
            tag = "/".join(r["name"].split("/")[:2])
            best[tag] = max(best.get(tag, 0), m["flop_per_s"])
        elif m and m.get("bytes_per_s"):
            tag = "/".join(r["name"].split("/")[:3 if r["group"] == "copy" else 1])
            best[tag] = max(best.get(tag, 0), m["bytes_per_s"])
    for tag, v in best.items():
        print(f"best {tag}: {v / 1e12:.3f} T per second")
