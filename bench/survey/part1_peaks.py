"""Part 1: peaks of real training steps, phase by phase, to be held against the stand-in's predictions.

Groups, most valuable first:
  exact      the rows of data/rows.csv as they were predicted: cuDNN off, cuBLAS without workspace
  default    the same rows as torch ships: cuDNN attention first choice, cuBLAS workspace
  trainer    transformers' Trainer: accumulation, clipping, eval, save, fp16 scaler, 8-bit states, LoRA
  trace      every allocator event of a run, against data/traces.json where it is known
  settings   expandable segments, max_split_size, a memory fraction
  blas       the exact rows with the cuBLAS workspace left on, to separate it from cuDNN's share
Every number is bytes. Phases are load, inputs, then forwardN, backwardN, stepN for three steps.
"""
import csv
import gc
import gzip
import hashlib
import json
import os

import models

STEPS = 3                     # the predicted peaks are over steps 1 and 2; the third shows whether it is steady
NUMBERS = ["alloc_load", "alloc_forward1", "alloc_backward1", "alloc_step1", "alloc_forward2", "alloc_backward2", "alloc_step2",
           "alloc_peak", "requested_load", "requested_forward1", "requested_backward1", "requested_step1",
           "requested_forward2", "requested_backward2", "requested_step2", "requested_peak", "reserved_peak",
           "allocations_step2"]
NO_BLAS = {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}       # torch then takes no cuBLAS workspace from its allocator
CONTEXT_BYTES = 2 << 30       # left free beside the allocator when asking whether a row fits; assumed, see part 2


# ---------------------------------------------------------------- rows
def known_rows():
    """data/rows.csv as dicts with integers where the text is one."""
    with open(os.path.join(models.HERE, "data", "rows.csv"), newline="") as f:
        return [{k: int(v) if v.lstrip("-").isdigit() else v for k, v in r.items()} for r in csv.DictReader(f)]


def spec_of(r):
    return {"kind": "plain", "config": r["config"], "task": r["task"], "precision": r["precision"], "attn": r["attn"],
            "kernels": r["sdpa"] if r["sdpa"] != "-" else "flash", "gradient_checkpointing": r["gradient_checkpointing"],
            "optimizer": r["optimizer"], "batch": r["batch"], "seq": r["seq"], "dec_seq": r["dec_seq"] or None,
            "mask": r["mask"], "lora": r["lora"], "lora_dropout": float(r["lora_dropout"] or 0), "cudnn": False,
            "params": r["params"], "trainable": r["trainable"]}


def row(name, group, spec, predicted=None, env=None, limit_s=60, needs_bytes=None, needs=()):
    return {"name": name, "group": group, "spec": spec, "predicted": predicted, "env": env or {}, "limit_s": limit_s,
            "needs_bytes": needs_bytes, "needs": list(needs)}


def with_blas(r):
    return {a: r[a + "_with_cublas"] for a in ("alloc_peak", "reserved_peak") if r[a + "_with_cublas"] != ""}


def trainer_rows():
    """Forty runs of Trainer around two small models; each changes a thing or two from a plain run."""
    gpt2 = {"config": "openai-community__gpt2.json", "batch": 4, "seq": 512}
    llama = {"config": "meta-llama__Llama-3.2-1B-Instruct.json", "batch": 2, "seq": 1024}
    runs = []
    for tag, base in (("gpt2", gpt2), ("llama1b", llama)):
        changes = [
            ("plain-bf16", {}), ("accumulate4", {"gradient_accumulation_steps": 4}),
            ("accumulate8-no-clip", {"gradient_accumulation_steps": 8, "max_grad_norm": 0.0}),
            ("no-clip", {"max_grad_norm": 0.0}), ("eval-to-host", {"eval_batch": 16, "eval_accumulation_steps": 1}),
            ("eval", {"eval_batch": 4}), ("eval-big-batch", {"eval_batch": 16}),
            ("eval-loss-only", {"eval_batch": 16, "prediction_loss_only": True}),
            ("save", {"save": True}), ("save-eval-accumulate", {"save": True, "eval_batch": 4, "gradient_accumulation_steps": 2}),
            ("fp16-scaler", {"precision": "fp16-mixed"}),
            ("fp16-scaler-accumulate4", {"precision": "fp16-mixed", "gradient_accumulation_steps": 4}),
            ("fused", {"optim": "adamw_torch_fused"}), ("adafactor", {"optim": "adafactor"}),
            ("adamw-8bit", {"optim": "adamw_8bit"}), ("paged-adamw-8bit", {"optim": "paged_adamw_8bit"}),
            ("lora16", {"lora": "all16"}), ("lora16-dropout-accumulate4", {"lora": "all16", "lora_dropout": 0.05, "gradient_accumulation_steps": 4}),
            ("checkpointing", {"gradient_checkpointing": 1}),
            ("checkpointing-lora16-pure-bf16", {"gradient_checkpointing": 1, "lora": "all16", "precision": "bf16"}),
        ]
        for name, change in changes:
            spec = {"kind": "trainer", "precision": "amp", "attn": "sdpa", "kernels": "default", "cudnn": True, "lora": "none",
                    "optim": "adamw_torch", **base, **change}
            spec["save_only_model"] = tag == "llama1b"      # its states would be 10 GB of disk and half a minute
            needs = ["bitsandbytes"] if "8bit" in spec["optim"] else []
            runs.append(row(f"trainer/{tag}/{name}", "trainer", spec, needs=needs, limit_s=120, needs_bytes=48 << 30))
    return runs


def settings_rows(known):
    """Ten runs each of expandable segments, a split limit and a memory fraction: rows of several shapes."""
    picked = [r for r in known if r["run_id"] in ("s001", "s005", "s014", "s024", "s032", "s046", "s056", "s068", "s083", "s099")]
    out = []
    for tag, env, fraction in (("expandable", {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, None),
                               ("split128", {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128"}, None),
                               ("fraction", {}, 1.03)):
        for r in picked:
            spec = dict(spec_of(r), setting=tag)
            if fraction:
                # a cap of the predicted allocated peak plus 3 %: the allocator must give back what it caches, or fail
                spec["cap_bytes"] = int(r["alloc_peak"] * fraction)
            # what is requested depends on no setting; what is allocated does, where blocks are split otherwise
            predicted = {k: r[k] for k in (["requested_peak"] if env else ["requested_peak", "alloc_peak"])}
            out.append(row(f"settings/{tag}/{r['run_id']}", "settings", spec, predicted, dict(NO_BLAS, **env), needs_bytes=r["reserved_peak"]))
    return out


def rows():
    known = known_rows()
    exact, default, blas, trace = [], [], [], []
    for r in known:
        predicted = {k: r[k] for k in NUMBERS if r[k] != ""}
        need = r["reserved_peak_with_cublas"] or r["reserved_peak"]
        exact.append(row(f"exact/{r['run_id']}", "exact", spec_of(r), predicted, NO_BLAS, needs_bytes=need))
        default.append(row(f"default/{r['run_id']}", "default", dict(spec_of(r), kernels="default" if r["sdpa"] == "flash"
                           else spec_of(r)["kernels"], cudnn=True), with_blas(r), {}, needs_bytes=need))
        blas.append(row(f"blas/{r['run_id']}", "blas", spec_of(r), with_blas(r), {}, needs_bytes=need))
    with open(os.path.join(models.HERE, "data", "traces.json")) as f:
        traces = json.load(f)
    for t in traces:
        trace.append(row(f"trace/{t['name']}", "trace", dict(t["spec"], kind="trace", cudnn=False), t["predicted"],
                         {} if t["spec"]["workspace"] else NO_BLAS, needs_bytes=1 << 30))
    for r in [r for r in known if r["run_id"] in ("s003", "s009", "s005", "s056", "s053", "s063", "s069", "s078", "s083",
                                                  "s089", "s097", "s107")]:
        trace.append(row(f"trace/{r['run_id']}", "trace", dict(spec_of(r), kind="trace"),
                         {k: r[k] for k in NUMBERS if "load" not in k}, NO_BLAS, needs_bytes=r["reserved_peak"]))
    return exact + default + trainer_rows() + trace + settings_rows(known) + blas


def checks(rows):
    """(sentence, true or false) for what needs neither torch nor a GPU."""
    n = {g: sum(r["group"] == g for r in rows) for g in ("exact", "default", "trainer", "trace", "settings", "blas")}
    h200 = sum(r["group"] == "exact" and r["needs_bytes"] + CONTEXT_BYTES <= 143771 << 20 for r in rows)   # nvidia-smi's MiB of an H200
    yield f"{h200} of {n['exact']} exact rows fit a card of 143771 MiB (at least 100)", h200 >= 100
    yield f"{n['trainer']} rows with Trainer (40)", n["trainer"] == 40
    yield f"{n['trace']} rows with the allocator's trace (20)", n["trace"] == 20
    yield f"{n['settings']} rows with allocator settings (30)", n["settings"] == 30
    yield "row names are unique", len({r["name"] for r in rows}) == len(rows)
    yield "every config exists and is JSON with a model_type", all("model_type" in json.load(open(
        os.path.join(models.CONFIGS, r["spec"]["config"]))) for r in rows)
    yield "every predicted number is a positive integer", all(isinstance(v, int) and v > 0 for r in rows
                                                             for k, v in (r["predicted"] or {}).items() if k != "allocations_sha256")


def unfit(r, card, stand_in):
    """In words why a row cannot run on this card, or None."""
    if r["needs_bytes"] and r["needs_bytes"] + CONTEXT_BYTES > card["total_bytes"]:
        return "does not fit the card"
    for library in r["needs"]:
        if not card["libraries"].get(library):
            return f"{library} is not installed"
    if stand_in and r["group"] == "default":
        return "cuDNN cannot run on a stand-in"
    if stand_in and r["spec"].get("setting") == "expandable":
        return "the stand-in has no virtual memory calls"
    return None


# ---------------------------------------------------------------- one run
class Phases:
    """Peaks per phase from torch.cuda.memory_stats(), and what the card has in use at each phase's end."""

    def __init__(self):
        import torch
        import device
        self.torch, self.nvml, self.got, self.order = torch, device.Nvml(), {}, []
        torch.cuda.init()

    def stats(self):
        return self.torch.cuda.memory_stats()

    def begin(self, name):
        self.torch.cuda.synchronize()
        self.torch.cuda.reset_peak_memory_stats()
        self.calls = self.stats().get("allocation.all.allocated", 0)

    def end(self, name):
        self.torch.cuda.synchronize()
        s, t = self.stats(), self.torch.cuda
        free, total = t.mem_get_info()
        first = name not in self.got
        p = {"alloc": s.get("allocated_bytes.all.peak", 0), "requested": s.get("requested_bytes.all.peak", 0),
             "reserved": s.get("reserved_bytes.all.peak", 0), "alloc_after": s.get("allocated_bytes.all.current", 0),
             "reserved_after": s.get("reserved_bytes.all.current", 0),
             "allocations": s.get("allocation.all.allocated", 0) - self.calls,
             "device_used_after": total - free, "nvml_device_after": self.nvml.device_used_bytes(),
             "nvml_process_after": self.nvml.process_used_bytes()}
        if first:
            self.order.append(name)
            self.got[name] = p
        else:                                       # accumulation and eval repeat a phase: the largest counts
            for k, v in p.items():
                self.got[name][k] = max(self.got[name][k], v) if v is not None else None

    def table(self):
        """Flat numbers under the names the predictions use, and all of it by phase."""
        g, flat = self.got, {}
        steps = [p for p in g if p[:-1] in ("forward", "backward", "step")]
        if "load" in g:
            flat.update(alloc_load=g["load"]["alloc_after"], requested_load=g["load"]["requested"])
        for p in steps:
            flat.update({f"alloc_{p}": g[p]["alloc"], f"requested_{p}": g[p]["requested"]})
        two = [p for p in steps if p[-1] in "12"]
        if two:
            flat["alloc_peak"] = max(g[p]["alloc"] for p in two)
            flat["requested_peak"] = max(g[p]["requested"] for p in two)
            flat["reserved_peak"] = max(g[p]["reserved"] for p in g if p in two or p in ("load", "inputs"))
            flat["allocations_step2"] = sum(g[p]["allocations"] for p in two if p[-1] == "2")
        flat["device_used_peak"] = max(g[p]["device_used_after"] for p in g)
        flat["device_used_beside_reserved"] = max(g[p]["device_used_after"] - g[p]["reserved_after"] for p in g)
        flat["steady"] = all(g[a]["alloc"] == g[b]["alloc"] for a, b in (("forward2", "forward3"), ("backward2", "backward3"),
                                                                         ("step2", "step3")) if a in g and b in g)
        return dict(flat, phases={p: g[p] for p in self.order})


def plain_steps(spec, phases):
    """forward with labels, output dropped, loss.backward(), optimizer.step(), zero_grad(set_to_none=True), three times."""
    import torch
    torch.manual_seed(1)
    models.choose_attention(spec["kernels"])
    torch.backends.cudnn.enabled = spec["cudnn"]
    if models.STAND_IN:
        models.answer_for_absent_values()
    phases.begin("load")
    model, config, task = models.build(spec)
    gc.collect()
    phases.end("load")
    params = [p for p in model.parameters() if p.requires_grad]
    counts = {"params": sum(p.numel() for p in model.parameters()), "trainable": sum(p.numel() for p in params)}
    for k in counts:
        if k in spec and spec[k] != counts[k]:
            raise ValueError(f"{counts[k]} {k}, the row says {spec[k]}")
    opt = models.optimizer(spec["optimizer"], params)
    phases.begin("inputs")
    batch = models.inputs(spec, config, task)
    phases.end("inputs")
    for n in range(1, STEPS + 1):
        phases.begin(f"forward{n}")
        with models.autocast(spec["precision"]):
            out = model(**batch)
        loss = out.loss
        out = None
        phases.end(f"forward{n}")
        phases.begin(f"backward{n}")
        loss.backward()
        loss = None
        phases.end(f"backward{n}")
        phases.begin(f"step{n}")
        opt.step()
        phases.end(f"step{n}")
        opt.zero_grad(set_to_none=True)
    return counts


def run_plain(spec):
    import torch
    if spec.get("cap_bytes"):
        torch.cuda.set_per_process_memory_fraction(spec["cap_bytes"] / torch.cuda.mem_get_info()[1])
    phases = Phases()
    try:
        counts = plain_steps(spec, phases)
    except torch.OutOfMemoryError as e:
        if not spec.get("cap_bytes"):
            raise
        return {"verdict": "oom", "message": str(e).splitlines()[0], "cap_bytes": spec["cap_bytes"], "phases": phases.got}, []
    return dict(phases.table(), verdict="ok", cap_bytes=spec.get("cap_bytes"), retries=phases.stats().get("num_alloc_retries"),
                kernels_allowed=spec["kernels"], **counts), []


# ---------------------------------------------------------------- traces
def events(snapshot_trace):
    """torch's trace of one device as lines: a ID BYTES, f ID, S BYTES (segment obtained), s BYTES (returned).

    IDs count allocations from 1; bytes are those requested. A freed block appears once, when it is complete."""
    ids, lines, count = {}, [], 0
    for e in snapshot_trace:
        kind, address, size = e["action"], e["addr"], e["size"]
        if kind == "alloc":
            count += 1
            ids[address] = count
            lines.append(f"a {count} {size}")
        elif kind == "free_completed":
            lines.append(f"f {ids.pop(address, 0)}")
        elif kind in ("segment_alloc", "segment_map"):
            lines.append(f"S {size}")
        elif kind in ("segment_free", "segment_unmap"):
            lines.append(f"s {size}")
    return lines


def run_trace(spec):
    """A plain run with every allocator event recorded; the events go compressed into the row."""
    import base64
    import torch
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=4_000_000)
    marks, phases = [], Phases()
    begin = phases.begin

    def marked(name):
        begin(name)
        marks.append((len(torch.cuda.memory._snapshot()["device_traces"][0]), name))
    phases.begin = marked
    counts = plain_steps(spec, phases)
    raw = torch.cuda.memory._snapshot()["device_traces"][0]
    lines, at = [], 0
    ids_whole = events(raw)
    # phase marks count raw events; some raw events give no line, so the marks are placed by walking both
    kept = [e["action"] in ("alloc", "free_completed", "segment_alloc", "segment_map", "segment_free", "segment_unmap") for e in raw]
    place = dict()
    for position, name in marks:
        place.setdefault(sum(kept[:position]), []).append(name)
    for line in ids_whole:
        lines += [f"p {p}" for p in place.pop(at, [])]
        lines.append(line)
        at += 1
    text = "\n".join(lines) + "\n"
    two = text.split("p forward3\n")[0]             # known traces end after step 2, before or after freeing the gradients
    measured = dict(phases.table(), events=len(ids_whole), **counts,
                    allocations_sha256=digest(two), trace_gzip_base64=base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode())
    return measured, []


def digest(text):
    """SHA-256 of a trace's phases, allocations and segments from `p forward1` to the end of step 2.

    What comes before is loading, where a real run copies buffers. Frees are left out: their order between two
    allocations follows the addresses of Python and C++ objects; where it matters, segments and peaks show it.
    A phase in which nothing is allocated leaves no line."""
    kept = [line for line in text.split("p forward1\n", 1)[1].splitlines() if line[:1] in "paSs"]
    kept = [line for line, after in zip(kept, kept[1:] + ["p"]) if not (line[0] == "p" and after[0] == "p")]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


# ---------------------------------------------------------------- Trainer
def make_trainer(spec, model, vocab, folder, phases, steps=STEPS, cpu=False):
    """A transformers.Trainer whose phases are split at compute_loss, the end of backward and the optimizer's hooks."""
    import torch
    import transformers as T

    class Tokens(torch.utils.data.Dataset):
        def __init__(self, n):
            g = torch.Generator().manual_seed(1)
            self.ids = torch.randint(3, vocab, (n, spec["seq"]), generator=g)

        def __len__(self):
            return len(self.ids)

        def __getitem__(self, i):
            return {"input_ids": self.ids[i], "labels": self.ids[i]}

    class Split(T.Trainer):
        def compute_loss(self, *args, **kwargs):
            if not self.model.training:
                return super().compute_loss(*args, **kwargs)
            phases.begin("forward")
            got = super().compute_loss(*args, **kwargs)
            phases.end(f"forward{self.state.global_step + 1}")
            phases.begin("backward")
            return got

        def training_step(self, *args, **kwargs):
            got = super().training_step(*args, **kwargs)
            phases.end(f"backward{self.state.global_step + 1}")
            phases.begin("clip")
            return got

        def evaluate(self, *args, **kwargs):
            phases.begin("eval")
            got = super().evaluate(*args, **kwargs)
            phases.end("eval")
            return got

        def _save_checkpoint(self, *args, **kwargs):
            phases.begin("save")
            got = super()._save_checkpoint(*args, **kwargs)
            phases.end("save")
            return got

    class Hooks(T.TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **_):
            phases.end(f"clip{state.global_step + 1}")
            phases.begin("step")

        def on_optimizer_step(self, args, state, control, **_):
            phases.end(f"step{state.global_step + 1}")

    accumulate = spec.get("gradient_accumulation_steps", 1)
    args = T.TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=spec["batch"], gradient_accumulation_steps=accumulate,
        per_device_eval_batch_size=spec.get("eval_batch", 8), eval_strategy="steps" if spec.get("eval_batch") else "no",
        eval_steps=2, save_strategy="steps" if spec.get("save") else "no", save_steps=2,
        save_only_model=spec.get("save_only_model", False), eval_accumulation_steps=spec.get("eval_accumulation_steps"),
        prediction_loss_only=spec.get("prediction_loss_only", False), max_grad_norm=spec.get("max_grad_norm", 1.0),
        optim=spec["optim"], bf16=spec["precision"] == "amp", fp16=spec["precision"] == "fp16-mixed" and not cpu,
        logging_strategy="no", report_to=[], seed=1, dataloader_pin_memory=not (cpu or models.STAND_IN), use_cpu=cpu,
        disable_tqdm=True)
    data = Tokens(spec["batch"] * accumulate * steps)
    test = Tokens(2 * spec["eval_batch"]) if spec.get("eval_batch") else None
    return Split(model=model, args=args, train_dataset=data, eval_dataset=test, callbacks=[Hooks()])


def run_trainer(spec):
    import tempfile
    import torch
    torch.manual_seed(1)
    models.choose_attention("flash" if models.STAND_IN else spec["kernels"])
    torch.backends.cudnn.enabled = not models.STAND_IN
    if models.STAND_IN:
        models.answer_for_absent_values()
    phases = Phases()
    phases.begin("load")
    model, config, _ = models.build(spec)
    gc.collect()
    phases.end("load")
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(spec, model, config.vocab_size, folder, phases)
        trainer.train()
    table = phases.table()
    table["alloc_peak_run"] = max(p["alloc"] for p in phases.got.values())
    table["reserved_peak_run"] = max(p["reserved"] for p in phases.got.values())
    return table, []


def run(r):
    return {"plain": run_plain, "trace": run_trace, "trainer": run_trainer}[r["spec"]["kind"]](r["spec"])


# ---------------------------------------------------------------- rehearsal without a GPU
class NoPhases:
    """Phases of a rehearsal: the calls are made, nothing is measured."""
    def begin(self, name): pass
    def end(self, name): pass


def rehearse(r):
    """Build the row's model whole on the meta device (its parameter count must be the row's) and step a tiny one on the CPU."""
    import tempfile
    spec = r["spec"]
    model, config, task = models.build(spec, device="meta")
    if "params" in spec:
        n = sum(p.numel() for p in model.parameters())
        if n != spec["params"]:
            raise ValueError(f"{n} parameters, the row says {spec['params']}")
    small = dict(spec, batch=2, seq=32, dec_seq=16 if spec.get("dec_seq") else None, overrides=None)
    model, config, task = models.build(small, device="cpu", tiny=True)
    if spec["kind"] == "trainer":
        if r["needs"]:
            return                                   # a library that is not installed where rehearsals run
        with tempfile.TemporaryDirectory() as folder:
            make_trainer(dict(small, eval_batch=2 if spec.get("eval_batch") else None), model, config.vocab_size, folder,
                         NoPhases(), steps=2, cpu=True).train()
        return
    opt = models.optimizer("adamw_foreach" if "fused" in spec["optimizer"] else spec["optimizer"],
                           [p for p in model.parameters() if p.requires_grad])
    loss = model(**models.inputs(small, config, task, "cpu")).loss
    loss.backward()
    opt.step()


def summary(answers):
    """What a person reads at the end of a sitting."""
    for group in ("exact", "blas", "trace", "default", "settings"):
        got = [r for r in answers if r["group"] == group and r["compare"]]
        if got:
            whole = sum(r["compare"]["equal"] == r["compare"]["of"] for r in got)
            numbers = sum(r["compare"]["equal"] for r in got), sum(r["compare"]["of"] for r in got)
            print(f"{group}: {whole} of {len(got)} rows equal to the byte, {numbers[0]} of {numbers[1]} numbers")
            for r in [r for r in got if r["compare"]["differs"]][:12]:
                print(f"  {r['name']}: {r['compare']['differs']}")
