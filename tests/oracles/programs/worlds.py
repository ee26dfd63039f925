#!/usr/bin/env python3
"""Training steps of rank 0 of several, peaks by phase, for tests/golden/trainers/worlds.csv: rows to hold `estimate --world` against.

    worlds.py OUT.csv --vplan build/vplan --python PYTHON [--deepspeed-python PYTHON] [--only PARALLEL ...]

Each row is one `vplan dryrun --world N --rank 0` of world_step.py, which plays PyTorch, Accelerate and DeepSpeed themselves; rows that OUT.csv
has stay, so that it resumes. A setting that fails is said on standard error and left out.
"""
import argparse
import csv
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import rows  # noqa: E402

# model, precision, recompute, optimizer, micro-batch, sequence, accumulation
STEPS = [
    ("smollm2-360m", "bf16-mixed", "none", "adamw_torch", 4, 512, 1),
    ("gpt2", "bf16-mixed", "none", "adamw_torch_fused", 4, 512, 1),
    ("qwen2.5-0.5b", "bf16-mixed", "full", "adamw_torch", 2, 1024, 1),
    ("tinyllama-1.1b", "bf16-mixed", "full", "adamw_torch_fused", 1, 1024, 1),
    ("gpt2-medium", "fp32", "full", "adamw_torch", 2, 256, 1),
    ("pythia-410m", "bf16-mixed", "none", "sgd_momentum", 2, 256, 1),
    ("qwen3-0.6b", "fp32", "none", "adamw_torch_fused", 1, 256, 1),
]
# Tables larger than a bucket of 5e8 elements, which many models of 7B and more have.
rows.MODELS["llama-3.1-8b-4"] = dict(rows.MODELS["llama-3.1-8b"], num_hidden_layers=4)
# Some layers of models whose adapters were recorded later: rows of FSDP2.
SHORT = {"%s-%d" % (name, n): dict(dict(rows.NAMED, **rows.MODELS)[name], num_hidden_layers=n)
         for name, n in (("gemma-2b", 4), ("gemma2-2b", 4), ("phi3-mini", 4), ("olmo2-1b", 6), ("granite-3.3-2b", 6), ("starcoder2-3b", 4), ("falcon-7b", 2), ("falcon3-1b", 4))}
rows.MODELS.update(SHORT)
# Layers that differ in blocks of six, two beside them, and of four.
rows.MODELS["smollm3-8"] = dict(rows.NAMED["smollm3-3b"], num_hidden_layers=8)
LARGE_TABLES = ("llama-3.1-8b-4", "bf16-mixed", "none", "adamw_torch", 1, 512, 1)
PHASES = ["load"] + ["%s%d" % (n, i) for i in (1, 2) for n in ("forward", "backward", "step")]
SETTINGS = ["model", "config", "parallel", "world", "offload", "precision", "attention", "recompute", "optimizer", "micro_batch", "seq", "accumulation"]
ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}     # as a launcher has it
ADAPTERS = "all-linear", 16          # targets and rank, with --adapters


def synced():
    """Accumulated over micro-batches each of which is reduced: Accelerate's sync_each_batch."""
    def step_of(i, accumulation):
        return STEPS[i][:6] + (accumulation,)
    return ([("fsdp2", world, offload, step_of(i, n)) for world, offload, i, n in
             ((2, "none", 0, 2), (4, "none", 3, 3), (8, "none", 2, 2), (4, "none", 6, 2), (8, "none", 5, 4), (4, "params", 0, 2), (2, "params", 3, 3), (8, "params", 1, 2))] +
            [("fsdp", world, "none", step_of(i, n)) for world, i, n in ((2, 0, 2), (4, 3, 3), (8, 2, 2), (4, 6, 2))] +
            [("ddp", 2, "none", step_of(0, 3)), ("ddp", 4, "none", step_of(3, 2))])


def quantised():
    """Adapters over NF4 weights that are packed as bf16, so that cards cut them; under FSDP1, as Trainer wraps them, over others too."""
    def step_of(i, accumulation=1, recompute=None):
        return STEPS[i][:1] + ("bf16-amp", recompute or STEPS[i][2], "adamw_torch") + STEPS[i][4:6] + (accumulation,)
    of_8b = LARGE_TABLES[:1] + ("bf16-amp",) + LARGE_TABLES[2:]
    return ([("fsdp2", world, offload, step, load) for world, offload, step, load in
             ((2, "none", step_of(3), "nf4-dq"), (4, "none", step_of(0), "nf4-dq"), (8, "none", step_of(3), "nf4"), (4, "none", step_of(2), "nf4-dq"),
              (2, "none", of_8b, "nf4-dq"), (8, "none", step_of(6), "nf4-dq"), (2, "none", step_of(2, 1, "none"), "nf4"), (4, "none", step_of(6, 1, "full"), "nf4"),
              (8, "none", of_8b[:2] + ("full",) + of_8b[3:], "nf4"), (4, "none", step_of(3, 2), "nf4"), (2, "params", step_of(3), "nf4-dq"),
              (8, "params", step_of(2), "nf4"))] +
            [("fsdp", world, "none", step, load) for world, step, load in
             ((2, step_of(3), "nf4-dq"), (4, step_of(0), "nf4"), (8, of_8b, "nf4-dq"), (4, step_of(2), "nf4-dq"), (2, step_of(3, 2), "nf4"), (4, step_of(3), "none"),
              (8, step_of(0), "none"), (2, step_of(2), "none"))] +
            [("fsdp", world, "params", step, load) for world, step, load in
             ((2, step_of(3), "nf4-dq"), (4, of_8b, "nf4"), (8, step_of(2), "nf4-dq"), (2, step_of(6, 2, "full"), "nf4"), (4, step_of(0), "none"))])


def asked():
    """As Trainer's users ask for them: Liger's kernels where FSDP cuts the weights, dropout in adapters over packed ones. DeepSpeed's are in launched.py."""
    rows.MODELS.update({"mistral-7b-4": dict(rows.MODELS["mistral-7b"], num_hidden_layers=4)})
    none, most = ("none", 0), ADAPTERS

    def step_of(model, precision, recompute, batch, seq, accumulation=1):
        return model, precision, recompute, "adamw_torch", batch, seq, accumulation
    return [("ddp", 4, "none", step_of("tinyllama-1.1b", "bf16-mixed", "full", 2, 1024), "none", none, 0, "all"),
            ("ddp", 2, "none", step_of("qwen2.5-0.5b", "bf16-mixed", "none", 2, 512, 2), "none", none, 0, "all"),
            ("fsdp", 4, "none", step_of("tinyllama-1.1b", "bf16-mixed", "full", 2, 1024), "none", none, 0, "all"),
            ("fsdp2", 2, "none", step_of("tinyllama-1.1b", "bf16-mixed", "full", 2, 1024, 2), "none", none, 0, "all"),
            ("fsdp2", 4, "none", step_of("smollm2-360m", "bf16-mixed", "full", 4, 1024), "none", none, 0, "all"),
            ("fsdp2", 8, "none", step_of("qwen2.5-0.5b", "bf16-mixed", "none", 2, 512), "none", none, 0, "all"),
            ("fsdp2", 4, "none", step_of("qwen3-0.6b", "bf16-mixed", "full", 4, 1024), "none", none, 0, "all"),
            ("fsdp2", 2, "none", step_of("mistral-7b-4", "bf16-mixed", "none", 2, 512), "none", none, 0, "all"),
            ("fsdp2", 2, "none", step_of("qwen3-0.6b", "bf16-amp", "none", 2, 1024), "none", most, 0, "all"),
            ("fsdp2", 4, "none", step_of("tinyllama-1.1b", "bf16-amp", "full", 2, 1024), "nf4-dq", most, 1, "none"),
            ("fsdp2", 2, "none", step_of("qwen2.5-0.5b", "bf16-amp", "full", 4, 512), "nf4", most, 1, "none"),
            ("fsdp2", 8, "none", step_of("mistral-7b-4", "bf16-amp", "full", 2, 768), "nf4-dq", most, 1, "none"),
            ("fsdp2", 4, "none", step_of("qwen3-0.6b", "bf16-amp", "none", 2, 512, 2), "nf4", most, 1, "none"),
            ("fsdp", 2, "none", step_of("tinyllama-1.1b", "bf16-amp", "full", 4, 512), "nf4", most, 1, "none"),
            ("fsdp", 4, "none", step_of("qwen3-0.6b", "bf16-amp", "full", 2, 1024), "nf4-dq", most, 1, "none"),
            ("fsdp", 4, "none", step_of("tinyllama-1.1b", "bf16-amp", "full", 2, 1024), "none", most, 0, "all"),
            ("fsdp", 2, "none", step_of("qwen3-0.6b", "bf16-amp", "none", 2, 512), "none", most, 0, "all")]


def trained():
    """DDP as transformers' Trainer calls it: whole models, adapters, and those over quantised weights."""
    def step_of(i, accumulation, **more):
        return tuple(more.get(k, x) for k, x in zip(("model", "precision", "recompute", "optimizer"), STEPS[i])) + STEPS[i][4:6] + (accumulation,)
    whole = [("ddp", world, "none", step_of(i, n, **more)) for world, i, n, more in
             ((2, 0, 1, {}), (4, 1, 2, {}), (8, 2, 1, {}), (2, 4, 2, {}), (4, 5, 1, {"optimizer": "sgd"}), (2, 6, 1, {}))]
    adapted = [("ddp", world, "none", step_of(i, n, precision="bf16-amp", recompute=recompute, optimizer="adamw_torch_fused"), load)
               for world, i, n, recompute, load in ((2, 3, 1, "full", "none"), (4, 2, 1, "none", "none"), (2, 0, 2, "none", "none"), (2, 3, 1, "full", "nf4-dq"), (4, 6, 1, "full", "nf4"))]
    towers = [("ddp", world, "none", ("gemma-3-4b", "bf16-amp", "full", "adamw_torch_fused", batch, 512, 1), load) for world, batch, load in ((2, 1, "none"), (4, 2, "nf4-dq"))]
    return whole + adapted + towers


def parted():
    """Checkpoints of the first layers alone."""
    def step_of(i, first, accumulation=1):
        return STEPS[i][:2] + ("first:%d" % first,) + STEPS[i][3:6] + (accumulation,)
    return [(way, world, offload, step_of(*step)) for way, world, offload, step in
            (("ddp", 2, "none", (0, 20)), ("ddp", 4, "none", (2, 6, 2)), ("fsdp2", 4, "none", (3, 8)), ("fsdp2", 2, "none", (2, 20)), ("fsdp2", 8, "none", (0, 4, 2)),
             ("fsdp2", 2, "params", (3, 15)), ("fsdp", 4, "none", (3, 8)), ("fsdp", 2, "none", (2, 20)), ("fsdp", 8, "none", (0, 5)),
             ("zero2", 4, "none", (0, 12)), ("zero2", 2, "optimizer", (2, 20)), ("zero3", 4, "none", (2, 10)), ("zero3", 2, "none", (3, 18)), ("zero3", 8, "params", (0, 9)))]


def single():
    """One card, whose part is all of it: what DeepSpeed keeps in host memory."""
    def step_of(i, accumulation):
        return STEPS[i][:3] + ("adamw_torch",) + STEPS[i][4:6] + (accumulation,)
    return [(way, 1, offload, step_of(i, n)) for way, offload, i, n in
            (("zero2", "optimizer", 0, 1), ("zero3", "params", 2, 1), ("zero2", "none", 1, 1), ("zero2", "optimizer", 2, 1))]


def wanted(adapters):
    """(parallel, world, offload, step): every way with every world, models in turn."""
    ways = [("ddp", "none"), ("fsdp2", "none"), ("fsdp2", "params"), ("zero1", "none"), ("zero2", "none"), ("zero2", "optimizer"),
            ("zero3", "none"), ("zero3", "optimizer"), ("zero3", "params")]
    out = []
    for k, ((parallel, offload), world) in enumerate(itertools.product(ways, (2, 4, 8))):
        for i in (0, 3):
            step = STEPS[(k + i) % len(STEPS)]
            if not (parallel.startswith("zero") and step[1] == "fp32" and offload != "none"):
                out.append((parallel, world, offload, step))
    if adapters:
        def step_of(i, precision="bf16-mixed"):
            return STEPS[i][:1] + (precision,) + STEPS[i][2:3] + ("adamw_torch",) + STEPS[i][4:]
        kept = [("ddp", 2, 0), ("zero2", 4, 2), ("ddp", 8, 3), ("zero1", 4, 0), ("zero2", 8, 3), ("zero1", 2, 2)]
        cut = [(way, world, i) for way in ("fsdp2", "zero3") for world, i in ((4, 0), (2, 2), (8, 3))]
        return ([(way, world, "none", step_of(i)) for way, world, i in kept + cut] +
                [(way, world, offload, step_of(i, precision)) for way, world, offload, i, precision in
                 (("fsdp2", 2, "none", 0, "bf16-amp"), ("fsdp2", 8, "none", 2, "bf16-amp"), ("fsdp2", 4, "params", 3, "bf16-amp"), ("fsdp2", 4, "none", 3, "bf16"),
                  ("fsdp2", 2, "params", 2, "bf16-mixed"), ("zero3", 4, "optimizer", 2, "bf16-mixed"), ("zero3", 2, "params", 0, "bf16-mixed"))] +
                [("ddp", world, "none", step_of(i, "bf16-amp"), "nf4-dq") for world, i in ((2, 3), (4, 2))] +
                [("fsdp2", 2 + 2 * (k % 2), "none", (name, "bf16-amp", "full" if k % 3 and name[:5] != "olmo2" else "none", "adamw_torch", 2, 512, 1))
                 for k, name in enumerate(sorted(SHORT, key=lambda name: (name[:7] == "falcon3", name)) + ["pythia-410m"])])
    added_up = ("smollm2-360m", "bf16-mixed", "full", "adamw_torch", 1, 512, 2)
    out += [("zero2", 4, "none", STEPS[0][:3] + ("adamw_8bit",) + STEPS[0][4:])]
    out += [(parallel, world, "none", LARGE_TABLES) for parallel, world in (("zero3", 4), ("zero3", 8), ("zero2", 4), ("fsdp2", 4))]
    out += [("fsdp", world, "none", STEPS[i]) for world, i in ((2, 0), (4, 1), (8, 2), (2, 3), (8, 5), (4, 6), (4, 2))]
    out += [("fsdp", 4, "none", x) for x in (LARGE_TABLES, added_up)]
    out += [("fsdp", world, "params", STEPS[i]) for world, i in ((2, 0), (4, 3), (8, 2), (4, 6), (2, 4), (8, 1))] + [("fsdp", 4, "params", added_up)]
    def in_blocks(model, recompute, batch, seq, accumulation=1):
        return model, "bf16-mixed", recompute, "adamw_torch", batch, seq, accumulation
    out += [(way, world, "none", in_blocks("gemma3-1b", *step)) for way, world, step in
            (("fsdp2", 4, ("full", 2, 1024)), ("zero3", 4, ("full", 2, 1024)), ("ddp", 2, ("none", 1, 1024)), ("zero2", 2, ("full", 2, 1024)), ("fsdp2", 2, ("none", 1, 1024)),
             ("fsdp2", 2, ("full", 2, 256)), ("zero3", 2, ("none", 2, 256)), ("fsdp2", 8, ("full", 1, 2048, 2)))]
    out += [(way, world, "none", in_blocks("smollm3-8", *step)) for way, world, step in
            (("fsdp2", 4, ("full", 2, 1024)), ("zero3", 4, ("full", 1, 1024)), ("fsdp2", 2, ("none", 1, 1024)), ("fsdp", 2, ("none", 1, 1024)))]
    return out + [(parallel, 4, "none", added_up) for parallel in ("ddp", "fsdp2", "zero1", "zero2", "zero3")]


DRAWN = ["smollm2-135m", "llama-3.2-1b", "qwen2.5-1.5b", "qwen1.5-0.5b", "gpt2-large", "pythia-160m", "opt-125m", "gemma3-270m", "pythia-1b"]         # in no other rows
PACKED = DRAWN[:4]         # whose NF4 weights FSDP was seen to cut


def drawn(n, seed):
    """Whole models, adapters and adapters over NF4 by every way with every world, the rest by chance. gpt2 and gpt_neox have one name more or less for targets."""
    rng = random.Random(seed)
    ways = {"none": ["ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3"], "lora": ["ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3"], "nf4": ["ddp", "fsdp", "fsdp2"]}
    offloads = {"fsdp2": ["none", "none", "params"], "zero2": ["none", "optimizer"], "zero3": ["none", "optimizer", "params"]}
    out, turn = [], 0
    while len(out) < n:
        kind = ["none", "lora", "none", "lora", "nf4"][turn % 5]
        way, world = rng.choice(ways[kind]), [2, 4, 8][turn % 3]
        offload = rng.choice(offloads.get(way, ["none"]))
        model = rng.choice(PACKED if kind == "nf4" else DRAWN)
        precision = rng.choice({"none": ["bf16-mixed", "bf16-mixed", "fp32"], "lora": ["bf16-mixed", "bf16-amp"], "nf4": ["bf16-amp"]}[kind])
        if way == "fsdp" and kind != "none":
            precision = "bf16-amp"
        elif way.startswith("zero") and (kind != "none" or offload != "none"):
            precision = "bf16-mixed"
        optimizer = rng.choice(["adamw_torch", "adamw_torch_fused", "sgd_momentum"]) if offload == "none" else "adamw_torch"
        targets = rng.choice(["all-linear", "all-linear", "q_proj+v_proj"]) if model not in ("gpt2-large", "pythia-160m", "pythia-1b") else "all-linear"
        step = (model, precision, rng.choice(["none", "full"]), optimizer, rng.choice([1, 2, 3, 4]), rng.choice([128, 256, 384, 512, 768]), rng.choice([1, 1, 2, 3]))
        out.append((way, world, offload, step, "nf4-dq" if kind == "nf4" and rng.random() < 0.5 else "nf4" if kind == "nf4" else "none",
                    (targets, rng.choice([8, 16, 32])) if kind != "none" else ("none", 0)))
        turn += 1
    return out


def columns(a):
    return SETTINGS + ["lora", "r", "load"] * bool(a.adapters or a.quantised or a.trained or a.drawn or a.asked) + ["lora_dropout", "liger"] * a.asked


def play(a, row):
    (parallel, world, offload, (model, precision, recompute, optimizer, batch, seq, accumulation)) = row[:4]
    targets, rank = row[5] if len(row) > 5 else ADAPTERS if a.adapters or a.quantised or len(row) > 4 else ("none", 0)
    dropout, liger = row[6:] or (0, "none")
    setting = dict(lora_dropout=dropout, liger=liger, lora=targets, r=rank, load=(row + ("none",))[4], config=dict(rows.NAMED, **rows.MODELS)[model], parallel=parallel, offload=offload, precision=precision, attention="sdpa:flash",
                   recompute=recompute, optimizer=optimizer, micro_batch=batch, seq=seq, accumulation=accumulation, sync_each_batch=a.synced, trainer="hf" if a.trained or a.asked else "torch")
    python = a.deepspeed_python if parallel.startswith("zero") else a.python
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "peaks.json")
        p = subprocess.run([a.vplan, "dryrun", "--device", "h100-sxm-80gb", "--json", "--no-owners", "--world", str(world), "--rank", "0", "--",
                            python, os.path.join(HERE, "world_step.py"), json.dumps(setting), out], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env=dict(os.environ, **(ONE_RANK if world == 1 else {})))
        if not os.path.exists(out):
            sys.stderr.write("%s\n%s\n" % (row, p.stderr.decode()[-1500:]))
            return None
        peaks = json.load(open(out))
    head = dict(setting, model=model, config=json.dumps(setting["config"]), world=world)
    return [head[k] for k in columns(a)] + [peaks["reserved"]] + [peaks[n] for n in PHASES]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--vplan", default="build/vplan")
    p.add_argument("--python", default="python3")
    p.add_argument("--deepspeed-python")
    p.add_argument("--only", nargs="*")
    p.add_argument("--adapters", action="store_true", help="rows of LoRA, with two columns more")
    p.add_argument("--quantised", action="store_true", help="the same of quantised weights that are cut")
    p.add_argument("--single", action="store_true", help="rows of one card")
    p.add_argument("--trained", action="store_true", help="rows of DDP by transformers' Trainer")
    p.add_argument("--parted", action="store_true", help="rows whose first layers alone have checkpoints")
    p.add_argument("--asked", action="store_true", help="rows of Liger's kernels and of dropout in adapters over quantised weights")
    p.add_argument("--drawn", type=int, default=0, help="so many rows by chance, of models that the others have not")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--synced", action="store_true", help="rows whose micro-batches are each reduced")
    a = p.parse_args()
    had = set()
    if os.path.exists(a.out):
        had = {(r["parallel"], r["world"], r["offload"], r["model"], r["precision"], r["accumulation"], r["optimizer"], r.get("load", "none")) for r in csv.DictReader(x for x in open(a.out) if x[0] != "#")}
    with open(a.out, "a", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        if not had:
            versions = "import importlib.metadata as m; print(', '.join(n + ' ' + m.version(n).split('+')[0] for n in ('torch', 'transformers', 'accelerate', 'deepspeed')[:%d]))" % (4 if a.deepspeed_python else 3)
            said = subprocess.run([a.deepspeed_python or a.python, "-c", versions], stdout=subprocess.PIPE).stdout.decode().strip()
            f.write("# made by tests/oracles/programs/worlds.py: %s\n" % said)
            out.writerow(columns(a) + ["reserved"] + ["allocated_" + n for n in PHASES])
        for row in drawn(a.drawn, a.seed) if a.drawn else asked() if a.asked else synced() if a.synced else parted() if a.parted else trained() if a.trained else single() if a.single else quantised() if a.quantised else wanted(a.adapters):
            if (row[0], str(row[1]), row[2], row[3][0], row[3][1], str(row[3][6]), row[3][3], (row + ("none",))[4]) in had or (a.only and row[0] not in a.only):
                continue
            if row[0].startswith("zero") and not a.deepspeed_python:
                continue
            got = play(a, row)
            if got:
                out.writerow(got)
                f.flush()


if __name__ == "__main__":
    main()
