"""Part 4: step times and peaks of the peers' way of training, for later comparison.

Models: GPT-2 124M and 1558M at 1024 tokens, Llama-3.2-1B and 3B at 4096, Qwen2.5-7B at 1024 (its linear layers, heads
and vocabulary are those of the Qwen2-7B config used here). transformers' modules in a plain loop, AdamW fused.
  precision      amp: fp32 weights and states, bf16 autocast ("fp32 master"); bf16: all in bf16, states too
  mode           eager, or compiled (torch.compile, default options)
  recompute      none; full: every layer; selective: every layer, products and attention kept; save_on_cpu: every
                 saved tensor goes to pinned host memory (eager only: hooks and compile do not mix)
Each at three micro-batches. One micro-step is a forward, a backward and, as every step has one, an optimizer step; tokens/s is
micro_batch * sequence / median step seconds. A row that does not fit is a result: verdict "oom".
"""
import models

# config, sequence, three micro-batches (the largest first runs last)
MODELS = {
    "gpt2-124m": ("openai-community__gpt2.json", 1024, (4, 16, 64)),
    "gpt2-1558m": ("openai-community__gpt2-xl.json", 1024, (2, 8, 24)),
    "llama-3.2-1b": ("meta-llama__Llama-3.2-1B-Instruct.json", 4096, (1, 2, 8)),
    "llama-3.2-3b": ("meta-llama__Llama-3.2-3B-Instruct.json", 4096, (1, 2, 4)),
    "qwen2.5-7b": ("Qwen__Qwen2-7B.json", 1024, (1, 4, 16)),
}
PRECISIONS = ("amp", "bf16")
MODES = ("eager", "compiled")
RECOMPUTE = ("none", "full", "selective", "save_on_cpu")
STATE_BYTES = {"amp": 16, "bf16": 8}      # parameter, gradient and two moments, bytes a parameter
PARAMETERS = {"gpt2-124m": 124439808, "gpt2-1558m": 1557611200, "llama-3.2-1b": 1235814400, "llama-3.2-3b": 3212749824,
              "qwen2.5-7b": 7615616512}   # counted by transformers 5.17; rehearse() counts them again
WARM_UPS, REPEATS = 3, 8
# The keys of the spec that are flags of the run, reported with the result.
FLAGS = ("precision", "mode", "recompute", "micro_batch", "seq", "optimizer")


def rows():
    """All rows, in waves: what most comparisons need first (middle micro-batch, then small, then large)."""
    out = []
    order = [("eager", "none"), ("compiled", "none"), ("eager", "full"), ("compiled", "full"), ("eager", "selective"),
             ("compiled", "selective"), ("eager", "save_on_cpu")]
    for which in (1, 0, 2):
        for mode, recompute in order:
            for model, (config, seq, batches) in MODELS.items():
                for precision in PRECISIONS:
                    spec = {"model": model, "config": config, "precision": precision, "mode": mode, "recompute": recompute,
                            "micro_batch": batches[which], "batch": batches[which], "seq": seq, "optimizer": "adamw_fused",
                            "attn": "sdpa", "mask": "none", "lora": "none"}
                    out.append({"name": f"peers/{model}/{precision}/{mode}/{recompute}/b{batches[which]}", "group": "peers", "spec": spec,
                                "predicted": None, "env": {}, "limit_s": 240 if mode == "compiled" else 90, "needs": [],
                                "needs_bytes": PARAMETERS[model] * STATE_BYTES[precision]})
    return out


def checks(rows):
    """(sentence, true or false) for what needs neither torch nor a GPU."""
    full = {(m, p, b) for m, (_, _, bs) in MODELS.items() for p in PRECISIONS for b in bs}
    ways = {(r["spec"]["mode"], r["spec"]["recompute"]) for r in rows}
    yield f"{len(rows)} rows: {len(full)} of model, precision and micro-batch, {len(ways)} ways to run each", len(rows) == len(full) * len(ways) == 210
    yield "row names are unique", len({r["name"] for r in rows}) == len(rows)
    yield "every way has every model at every micro-batch", all(sum((r["spec"]["mode"], r["spec"]["recompute"]) == w for r in rows) == len(full) for w in ways)


def unfit(r, card, stand_in):
    if stand_in:
        return "nothing can be timed on a stand-in"
    if r["spec"]["mode"] == "compiled" and not card["libraries"].get("triton"):
        return "triton is not installed"
    # states alone over the card: the answer is known, though not where the peak would have been
    return "its states alone exceed the card" if r["needs_bytes"] > card["total_bytes"] else None


def keep_products(*_):
    """Selective recompute: what a matrix product or attention made is kept, all else of the layer is made again."""
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    aten = torch.ops.aten
    kept = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten._scaled_dot_product_flash_attention.default,
            aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_cudnn_attention.default,
            aten._scaled_dot_product_flash_attention_for_cpu.default}
    return create_selective_checkpoint_contexts(
        lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE)


def setup(spec, device, tiny=False):
    """(step, parameter count): one step of the run that spec describes."""
    import contextlib
    import torch
    recompute = spec["recompute"]
    build = dict(spec, gradient_checkpointing=recompute in ("full", "selective"),
                 context_fn=keep_products if recompute == "selective" else None)
    model, config, task = models.build(build, device, tiny)
    count = sum(p.numel() for p in model.parameters())
    if device == "meta":
        return None, count
    opt = models.optimizer("adamw_forloop" if device == "cpu" else spec["optimizer"], list(model.parameters()))
    batch = models.inputs(spec, config, task, device)
    run = model
    if spec["mode"] == "compiled":
        # a rehearsal checks that the model can be captured; the kernels themselves need the card
        run = torch.compile(model, dynamic=False, backend="eager" if device == "cpu" else "inductor")

    def step():
        offload = torch.autograd.graph.save_on_cpu(pin_memory=device == "cuda") if recompute == "save_on_cpu" else contextlib.nullcontext()
        with offload:
            with models.autocast(spec["precision"]) if device == "cuda" else contextlib.nullcontext():
                loss = run(**batch).loss
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss.detach()
    return step, count


def run(r):
    import time
    import torch
    import device
    spec, nvml = r["spec"], device.Nvml()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    flags = {k: spec[k] for k in FLAGS}

    def peaks():
        s = torch.cuda.memory_stats()
        free, total = torch.cuda.mem_get_info()
        return {"allocated_peak_bytes": s["allocated_bytes.all.peak"], "reserved_peak_bytes": s["reserved_bytes.all.peak"],
                "requested_peak_bytes": s["requested_bytes.all.peak"], "device_used_bytes": total - free,
                "nvml_process_bytes": nvml.process_used_bytes(), "host_pinned_bytes": host_peak()}
    try:
        step, count = setup(spec, "cuda")
        begun = time.perf_counter()
        for n in range(WARM_UPS):
            loss = step()
        torch.cuda.synchronize()
        warm_s = time.perf_counter() - begun
        first = peaks()                                 # holds what compiling and the first step needed
        torch.cuda.reset_peak_memory_stats()
        raw, marks = [], [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        for _ in range(REPEATS):
            marks[0].record()
            loss = step()
            marks[1].record()
            marks[1].synchronize()
            raw.append(marks[0].elapsed_time(marks[1]) / 1e3)
    except torch.OutOfMemoryError as e:
        return {"verdict": "oom", "message": str(e).splitlines()[0], "flags": flags}, []
    middle = sorted(raw)[len(raw) // 2]
    return {"verdict": "ok", "seconds": middle, "tokens_per_s": spec["micro_batch"] * spec["seq"] / middle, "parameters": count,
            "warm_up_s": warm_s, "loss": float(loss), "steady": peaks(), "with_warm_up": first, "flags": flags}, raw


def host_peak():
    """Peak bytes of torch's pinned host allocator, or None where this torch does not count them."""
    import torch
    try:
        return torch.cuda.host_memory_stats().get("allocated_bytes.peak")
    except (AttributeError, RuntimeError):
        return None


def rehearse(r):
    """The whole model on the meta device must have the parameters counted; a tiny one takes two steps on the CPU."""
    import torch._dynamo
    spec = r["spec"]
    if spec["micro_batch"] == MODELS[spec["model"]][2][0] and spec["recompute"] == "none" and spec["mode"] == "eager":
        _, count = setup(spec, "meta")
        assert count == PARAMETERS[spec["model"]], (count, PARAMETERS[spec["model"]])
    torch._dynamo.reset()
    step, _ = setup(dict(spec, batch=2, micro_batch=2, seq=16), "cpu", tiny=True)
    first = float(step())
    second = float(step())
    assert first == first and second == second          # not NaN


def summary(answers):
    for r in answers:
        m = r["measured"]
        if m and m["verdict"] == "ok":
            print(f"{r['name']}: {m['tokens_per_s']:.0f} tokens/s, {m['steady']['allocated_peak_bytes'] / 2**30:.2f} GiB allocated")
        elif m:
            print(f"{r['name']}: out of memory")
