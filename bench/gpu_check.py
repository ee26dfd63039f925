#!/usr/bin/env python3
"""One part of what only a GPU can show; a results file of its own. Started by tests/gpu_check.sh.

    bench/gpu_check.py ops|memory|speed|offload|budgets|prediction --device NAME [--build DIR] [--out DIR] [--resume DIR] [--commit SHA] [--seconds N] [--rehearse]

first       three minutes: tiny models and GPT-2 call by call and recorded, the same bits twice, what copies, products and attention reach, a plan's calls timed,
            compute-sanitizer
ops         the kernel, golden and plan tests on the card; bits of a plan run twice, and of plans that differ in recompute; losses of whole
            models beside the CPU's; compute-sanitizer over a small run
memory      what the driver counts for the process, beside the plan's prediction, which needs no card
speed       a step beside PyTorch's, eager and compiled (bench/step_vs_torch.py), with the algorithms that were fastest when its calls were timed
offload     plans that keep some of it in host memory: the same bits, host memory as predicted, seconds beside the predicted
budgets     plans at shrinking budgets: measured time and memory; random plans that fill 97 % of the card
prediction  a tuned profile's predicted seconds beside measured ones; the chosen plan beside others, in turns

The file is written anew after each row. A row that fails keeps its error, one that cannot run here its reason as `skipped`; where something is
promised the row has a `verdict`, pass or fail. Exit code 1: an error or a failed verdict. Rows that a file in --resume or --out has, of the same card,
commit and libraries, are not measured again, unless they failed. After --seconds no further row is begun; one that is running ends a tenth later.

--rehearse takes all the same ways on a machine without a GPU: small models, on the plugin that the tests emulate. It measures nothing, and its file
says so by name: emulated-NAME-DATE-gpu-PART-rehearsal.json."""
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import bench_common as common

MIB = 1 << 20
LIMIT_FRAC = 0.97   # of the card's usable memory, for plans near the limit
N_BEFORE_LARGE = 40  # of them run before the large model's shrinking budgets

# What each part runs. Shapes are (sequence, samples a step). Largest last where the order is free.
REAL = {
    "eager": [("gpt2-tiny", 128, 8, "fp32"), ("llama-tiny", 128, 8, "bf16-mixed"), ("gpt2", 1024, 4, "bf16-mixed"),
              ("llama-tiny", 128, 8, "fp16-mixed"), ("llama-tiny", 128, 8, "tf32")], "profiled": ("gpt2", 1024, 4, "bf16-mixed"),
    # floats copied, rows of a square product, batch, seq, heads and head_dim of attentions
    "ceilings": (1 << 28, 8192, (8, 2048, 16, 64)),
    # the longest first
    "tests": ["test_kernels_attention", "test_plans", "test_kernels_optimizer", "test_kernels", "test_kernels_rounding", "test_golden", "test_kernels_passes",
              "test_kernels_rope", "test_kernels_random", "test_kernels_embedding", "test_kernels_tf32"], "test_every": "1",
    "twice": [("gpt2", 1024, 4, "bf16"), ("qwen2.5-0.5b", 2048, 2, "bf16")],
    # with the greatest difference of a loss
    "whole": [("gpt2-tiny", 128, 8, "fp32", 1e-4), ("llama-tiny", 128, 8, "fp32", 1e-4), ("gpt2-tiny", 128, 8, "bf16-mixed", 3e-2),
              ("llama-tiny", 128, 8, "bf16-mixed", 3e-2), ("llama-tiny", 128, 8, "fp16-mixed", 1e-2), ("llama-tiny", 128, 8, "tf32", 1e-2)],
    "bits": [("llama-tiny", 128, 8, "fp32"), ("llama-tiny", 128, 8, "fp16-mixed"), ("llama-tiny", 128, 8, "tf32"), ("gpt2", 1024, 4, "bf16-mixed"), ("qwen2.5-0.5b", 512, 2, "bf16")],
    "recompute": ["none", "full", "attention", "mlp"],
    "micro_batches": [("llama-tiny", 128, 8, "bf16-mixed", 3e-2)],
    "sanitizer": ("llama-tiny", 64, 2, "bf16-mixed"),
    "memory": [("gpt2", 1024, 8, "bf16-mixed"), ("gpt2", 1024, 8, "fp32"), ("gpt2", 1024, 8, "tf32"), ("qwen2.5-0.5b", 2048, 4, "bf16-mixed"), ("gpt2-medium", 1024, 8, "bf16-mixed"),
               ("bert-base-uncased", 512, 16, "bf16-mixed"), ("pythia-410m", 2048, 4, "bf16-mixed"), ("qwen3-0.6b", 2048, 4, "bf16"),
               ("llama-3.2-1b", 4096, 2, "bf16-mixed"), ("gpt2-xl", 1024, 4, "bf16-mixed"), ("gemma-2-2b", 2048, 1, "bf16"), ("llama-3.2-3b", 4096, 1, "bf16")],
    # compiled or not
    "speed": [("gpt2", 1024, 16, "bf16-mixed", False), ("gpt2", 1024, 16, "bf16-mixed", True), ("gpt2", 1024, 8, "fp32", False),
              ("llama-3.2-1b", 4096, 2, "bf16-mixed", False), ("llama-3.2-1b", 4096, 2, "bf16-mixed", True)],
    "torch": [],
    "offload": [("qwen2.5-0.5b", 1024, 4, [0.36, 0.2]), ("gpt2", 1024, 8, [0.5]), ("llama-3.2-1b", 2048, 2, [0.5])],
    "shrinking": [("gpt2", 1024, 32), ("llama-3.2-1b", 4096, 4)], "shares": [1.0, 0.75, 0.5, 0.35, 0.25],
    # few parameters: drawing and hashing them takes seconds
    "near": [("pythia-70m", 2048), ("pythia-70m", 512), ("gpt2", 1024), ("smollm2-135m", 2048), ("opt-125m", 1024), ("bert-base-uncased", 512)], "n_near": 200,
    "tune": [("gpt2", 1024, 8), ("qwen2.5-0.5b", 2048, 4)], "tune_options": ["--max-trials", "12"], "rounds": 20,
}
REHEARSAL = {
    "eager": [("gpt2-tiny", 16, 2, "fp32"), ("gpt2-tiny", 16, 2, "fp16-mixed"), ("gpt2-tiny", 16, 2, "tf32")], "profiled": ("gpt2-tiny", 16, 2, "bf16-mixed"),
    "ceilings": (1 << 10, 16, (1, 16, 1, 8)),
    "tests": ["test_kernels_attention"], "test_every": "400",
    "twice": [("llama-tiny", 16, 2, "bf16")], "whole": [("gpt2-tiny", 16, 2, "fp32", 1e-4), ("gpt2-tiny", 16, 2, "tf32", 1e-2)],
    "bits": [("llama-tiny", 16, 2, "bf16-mixed"), ("llama-tiny", 16, 2, "fp16-mixed"), ("llama-tiny", 16, 2, "tf32")], "recompute": ["none", "full"], "micro_batches": [("gpt2-tiny", 16, 2, "bf16", 5e-2)],
    "sanitizer": ("llama-tiny", 16, 1, "bf16-mixed"),
    "memory": [("gpt2-tiny", 16, 2, "bf16-mixed"), ("llama-tiny", 16, 2, "fp32")],
    "speed": [("gpt2-tiny", 16, 2, "bf16-mixed", False)], "torch": ["--pairs", "1", "--torch-device", "cpu"],
    "offload": [("gpt2-tiny", 16, 2, [0.97])],
    "shrinking": [("gpt2-tiny", 16, 2), ("llama-tiny", 16, 2)], "shares": [1.0, 0.9], "near": [("gpt2-tiny", 16), ("llama-tiny", 16)], "n_near": 3,
    "tune": [("llama-tiny", 16, 2)], "tune_options": ["--max-trials", "1"], "rounds": 2,
}
EMULATED_BYTES = 566 * MIB   # 512 of them are the context's, 32 cuBLASLt's: a plan near the limit is small, and the emulator slow


class Skip(Exception):
    """Why a row cannot be measured here."""


class Stopped(BaseException):
    """Somebody ends the part: by SIGTERM or the keyboard."""


def stop(number, frame):
    raise Stopped(signal.Signals(number).name)


class Part:
    def __init__(self, args, sizes, dir):
        self.args, self.sizes, self.dir, self.rows, self.known, self.n_left = args, sizes, dir, [], {}, 0
        self.name = f"gpu-{args.part}" + "-rehearsal" * args.rehearse
        self.label = "emulated-" * args.rehearse + args.device
        self.deadline = time.monotonic() + args.seconds
        self.lock, self.here = threading.RLock(), threading.local()   # here.row_end: of the row that this thread measures
        self.children = set()
        self.described = self.answer([common.program(args, "vplan-run"), "--describe", "--backend", "cuda"])
        self.libraries = {"backend": self.described["description"]}
        self.card = card_now()
        for folder in filter(None, (args.resume, args.out)):
            for path in sorted(glob.glob(os.path.join(folder, f"{self.label}-*-{self.name}.json"))):
                self.remember(path)

    def remember(self, path):
        try:
            with open(path) as f:
                result = json.load(f)
            if (result["commit"], result["libraries"]) == (self.args.commit, self.libraries):
                self.known.update((r["name"], dict(r, resumed=True)) for r in result["rows"] if not {"error", "skipped", "total"} & set(r))
        except (ValueError, KeyError, TypeError) as e:
            print(f"{path} is no results file: {e!r}", flush=True)

    def row(self, name, measure, limit_s=120):
        """measure() gives {predicted, measured, raw_seconds, verdict}; what it raises is the row's error, and so are limit_s seconds."""
        begin = time.monotonic()
        with self.lock:
            if name in self.known:
                self.rows.append(self.known.pop(name))
                return
            if begin > self.deadline:
                self.n_left += 1
                return
        self.here.row_end = min(begin + limit_s, self.deadline + self.args.seconds / 10)
        row = {"name": name, "predicted": None, "measured": None, "raw_seconds": []}
        try:
            row.update(measure())
        except Skip as e:
            row["skipped"] = str(e)
        except Exception as e:   # whatever it is, the other rows are worth having
            row["error"] = f"{'' if isinstance(e, RuntimeError) else type(e).__name__ + ': '}{e}"[-2000:]
        row["took_s"] = round(time.monotonic() - begin, 1)
        said = "FAILED " + row["error"] if "error" in row else "skipped: " + row["skipped"] if "skipped" in row else json.dumps(row["measured"])[:300]
        with self.lock:
            self.rows.append(row)
            self.write()
            print(f"{name}: {'verdict ' + row['verdict'] + ': ' if 'verdict' in row else ''}{said}", flush=True)

    def rows_at_once(self, rows):
        """Rows of (name, measure, limit_s) in which no time is measured: as many at once as there are processors for, two each."""
        with ThreadPoolExecutor(max(1, common.n_cpus() // 2)) as pool:
            try:
                for done in [pool.submit(self.row, *row) for row in rows]:
                    done.result()
            except BaseException:   # stopped: no row begins, and what runs ends
                self.deadline = 0
                for child in list(self.children):
                    os.killpg(child.pid, signal.SIGKILL)
                raise

    def total(self, name, measured):
        """A row worked out from the others; with a verdict where largest_off has a limit."""
        row = {"name": name, "predicted": None, "measured": measured, "raw_seconds": [], "total": True}
        if "largest_off" in measured:
            row["verdict"] = "pass" if measured["largest_off"] <= measured["allowed"] else "fail"
        self.rows.append(row)
        print(f"{name}: {json.dumps(measured)}", flush=True)

    def write(self, **conditions):
        """What earlier files know and this run has not come to yet stays in the file."""
        return common.write_results(self.args, self.name, self.label, self.libraries, dict({"machine": common.machine(), "card": self.described, "card_before": self.card}, **conditions),
                                    {"seconds": self.args.seconds, "rehearsal": self.args.rehearse}, self.rows + list(self.known.values()),
                                    driver=self.card and self.card.get("driver_version"))

    # ---- programs ----

    def call(self, command, ok=(0,), env=None):
        """A program and all that it starts, which end with the row."""
        left_s = max(0.1, getattr(self.here, "row_end", self.deadline) - time.monotonic())
        words = " ".join(str(word).replace(common.ROOT + "/", "") for word in command)   # which goes into results
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                 env=dict(os.environ, **(env or {})), start_new_session=True)
        self.children.add(child)
        try:
            out, err = child.communicate(timeout=left_s)
        except BaseException as e:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            if isinstance(e, subprocess.TimeoutExpired):
                raise RuntimeError(f"{words}: ended after {left_s:.0f} s") from None
            raise
        finally:
            self.children.discard(child)
        if child.returncode == common.SKIPPED and common.SKIPPED not in ok:
            raise Skip(out.strip()[-500:])
        if child.returncode not in ok:
            raise RuntimeError(f"{words}: exit {child.returncode}: {(err.strip() or out.strip())[-1500:]}")
        return subprocess.CompletedProcess(command, child.returncode, out, err)

    def answer(self, command, **options):
        return json.loads(self.call(command, **options).stdout)

    def vplan(self, *words, ok=(0,)):
        return self.answer([common.program(self.args, "vplan"), *map(str, words), "--json"], ok=ok)

    def plan(self, path, model, seq, batch, *options, device=None, may_not_fit=False):
        """None where nothing fits and that may be."""
        if "--precision" not in options:
            options += ("--precision", "fp32")
        planned = self.vplan("plan", model, "--device", device or self.args.device, "--seq", seq, "--global-batch", batch, "-o", path, "--force", *options, ok=(0, 3))
        if planned["peak_bytes"] is None and not may_not_fit:
            raise RuntimeError(f"{model} {batch} x {seq} {' '.join(map(str, options))} does not fit: it needs {planned['proof']['least_budget_bytes']} bytes")
        return planned if planned["peak_bytes"] is not None else None

    def run(self, path, steps, *options):
        result = self.answer([common.program(self.args, "vplan-run"), path, "--steps", str(steps), "--json", *options])
        arena = result["memories"][0]
        if arena["executed_bytes"] != arena["predicted_bytes"]:
            raise RuntimeError(f"the arena is {arena['executed_bytes']} bytes, predicted {arena['predicted_bytes']}")
        return result


def card_now():
    """The card's state by nvidia-smi; None where it does not tell."""
    fields = "name,driver_version,memory.used,memory.total,temperature.gpu,power.draw,clocks.sm,clocks.mem"
    try:
        r = subprocess.run(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return dict(zip(fields.split(","), r.stdout.splitlines()[0].split(", "))) if r.returncode == 0 and r.stdout.strip() else None


def steps_of(result):
    """Seconds of the steps that were replayed: the first loads, the second records."""
    seconds = [s["seconds"] for s in result["steps"]]
    return seconds[2:] or seconds


# ---- first ----

def eager_and_recorded(part, model, seq, batch, precision):
    """Each call waited for, so that one that fails is named; then recorded: the same numbers, and how long a step takes."""
    part.plan(f"{part.dir}/plan.json", model, seq, batch, "--precision", precision, "--micro-batch", batch)
    eager, recorded = part.run(f"{part.dir}/plan.json", 4, "--eager"), part.run(f"{part.dir}/plan.json", 6)
    losses = [[s["loss"] for s in r["steps"][:4]] for r in (eager, recorded)]
    if losses[0] != losses[1]:
        raise RuntimeError(f"losses differ: eager {losses[0]}, recorded {losses[1]}")
    return {"measured": {"eager_step_s": eager["steps"][-1]["seconds"], "recorded_step_s": common.median(steps_of(recorded)), "losses": losses[0],
                         "memory": recorded["device_memory"]}, "raw_seconds": steps_of(recorded), "verdict": "pass"}


# Members of a plan's step that no row of a profile has.
NOT_OF_A_ROW = {"kernel", "name", "args", "workspace", "workspace_bytes", "accumulate", "first_only", "window_of_instance", "rng_id", "seconds", "algorithm"}


def calls_of(path, device):
    """A profile still to be timed: every different call of a plan."""
    with open(path) as f:
        programs = json.load(f)["buckets"][0]["programs"]
    rows = {}
    for step in (step for p in programs for phase in ("forward", "backward", "norm", "update")
                 if isinstance(p[phase], list) for step in p[phase]):  # a number: an earlier program's
        row = {"kernel": step["kernel"], **{k: v for k, v in step.items() if k not in NOT_OF_A_ROW and not isinstance(v, float)}, "seconds": 0}
        if step["kernel"] == "linear_bwd_weight" and step["args"][-1] == "-":
            row["without"] = ["db"]
        rows[json.dumps(row)] = row
    return {"schema_version": 1, "device": device, "backend": "", "rows": list(rows.values())}


def timed(part, request):
    """The request's rows with their seconds, and what was said beside them."""
    path = f"{part.dir}/request.json"
    with open(path, "w") as f:
        json.dump(request, f)
    return part.call([common.program(part.args, "vplan-run"), "--profile", path, "--backend", "cuda", "--seconds", "60"])


def ceilings(part, n_floats, size, attention):
    """What the card gives to a copy, a product, one that adds a residual, a norm's backward and attention, cuDNN's (bf16), by our tensor cores (tf32) and by our ordinary ones (fp32): shares of a data sheet
    are told from these. The operations of a causal attention are half those of the whole matrix."""
    batch, seq, heads, head_dim = attention
    flop = 2.0 * batch * heads * seq * seq * head_dim
    shape = {"batch": batch, "seq": seq, "heads": heads, "kv_heads": heads, "head_dim": head_dim, "layout": 0, "causal": 1, "window": 0, "probs": 0}
    rows = [("copy_bytes_per_s", 8.0 * n_floats, {"kernel": "copy", "count": n_floats})]
    rows += [(f"product_{dtype}_flop_per_s", 2.0 * size ** 3, {"kernel": "linear_fwd", "dtype": dtype, "rows": size, "in": size, "out": size, "layout": 0})
             for dtype in ("bf16", "tf32")]
    rows += [("product_added_bf16_flop_per_s", 2.0 * size ** 3, {"kernel": "linear_add_fwd", "dtype": "bf16", "rows": size, "in": size, "out": size, "layout": 0})]
    norm = {"rows": max(1, n_floats >> 12), "cols": 1024}   # dy, x, what is added, dx
    rows += [("layernorm_bwd_bytes_per_s", 8.0 * norm["rows"] * norm["cols"], {"kernel": "layernorm_bwd", "dtype": "bf16", **norm})]
    rows += [(f"attention_{name}_{dtype}_flop_per_s", work, {"kernel": f"attention_{name}", "dtype": dtype, **shape})
             for dtype in ("bf16", "tf32", "fp32") for name, work in (("fwd", flop), ("bwd", 2.5 * flop))]
    request = [{k: v for k, v in row.items() if (k, v) != ("dtype", "fp32")} for _, _, row in rows]
    profile = json.loads(timed(part, {"schema_version": 1, "device": part.args.device, "backend": "", "rows": [dict(row, seconds=0) for row in request]}).stdout)
    seconds = {json.dumps({k: v for k, v in row.items() if k not in ("seconds", "algorithm")}, sort_keys=True): row["seconds"] for row in profile["rows"]}
    return {"measured": {name: work / seconds[json.dumps(row, sort_keys=True)] for (name, work, _), row in zip(rows, request)},
            "raw_seconds": [seconds[json.dumps(row, sort_keys=True)] for row in request]}


def profile_of(part, model, seq, batch, precision):
    """Where profiled() leaves what it timed."""
    return f"{part.dir}/profile-{model}-{batch}x{seq}-{precision}.json"


def profiled(part, model, seq, batch, precision):
    """Every call of one plan timed: what the step then should take beside what it takes."""
    plan, path = f"{part.dir}/plan.json", profile_of(part, model, seq, batch, precision)
    part.plan(plan, model, seq, batch, "--precision", precision, "--micro-batch", batch)
    r = timed(part, calls_of(plan, part.args.device))
    with open(path, "w") as f:
        f.write(r.stdout)
    profile, story, result = json.loads(r.stdout), part.vplan("explain", plan, "--profile", path), part.run(plan, 8)
    works = part.vplan("explain", plan, "--profile", path, "--roofline")["works"]
    seconds = steps_of(result)
    return {"predicted": {"seconds": story["step_time_s"], "time_class": story["time_class"]}, "raw_seconds": seconds,
            "measured": {"seconds": common.median(seconds), "off": story["step_time_s"] / common.median(seconds) - 1, "calls": len(profile["rows"]), "works": works, "outside": profile.get("outside"),
                         "said": r.stderr[-500:]}}


def first(part):
    """Three minutes that say whether the rest is worth the card's time."""
    for m in part.sizes["eager"]:
        part.row(f"{m[0]} {m[2]} x {m[1]} {m[3]}, eager and recorded", lambda: eager_and_recorded(part, *m))
    m = part.sizes["twice"][0]
    part.row(f"{m[0]} {m[2]} x {m[1]} {m[3]}, the same plan twice", lambda: twice(part, *m))
    part.row("what a copy, a product and attention reach", lambda: ceilings(part, *part.sizes["ceilings"]))
    m = part.sizes["profiled"]
    part.row(f"{m[0]} {m[2]} x {m[1]} {m[3]}, every call timed", lambda: profiled(part, *m))
    part.row("compute-sanitizer, memcheck", lambda: sanitizer(part, "memcheck"))


# ---- ops ----

def test_program(part, name):
    plugin = os.path.abspath(os.path.join(part.args.build, "vplan-cuda.so"))
    r = part.call([common.program(part.args, os.path.join("tests", name))], ok=range(256),
                  env={"VPLAN_TEST_BACKEND": plugin, "CMOCKA_MESSAGE_OUTPUT": "TAP", "VPLAN_TEST_EVERY": part.sizes["test_every"],
                      "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"})   # others run beside it
    lines = [line for line in r.stdout.splitlines() if re.match(r"(not )?ok ", line)]
    skipped = [line for line in lines if re.search(r"# *SKIP", line)]   # what only the CPU's backend has
    bad = [line for line in lines if line.startswith("not ok") and line not in skipped]
    if r.returncode != 0 or bad or len(lines) == len(skipped):
        raise RuntimeError(f"exit {r.returncode}: {bad[:5]} {r.stderr[-1200:]} {r.stdout[-300:]}")
    return {"measured": {"passed": len(lines) - len(skipped), "skipped": len(skipped)}}


def twice(part, model, seq, batch, precision):
    """One plan in two processes: sums whose order changes from run to run would show, cuDNN's backward above all."""
    dir = tempfile.mkdtemp(dir=part.dir)
    part.plan(f"{dir}/plan.json", model, seq, batch, "--precision", precision, "--micro-batch", batch)
    a, b = (part.run(f"{dir}/plan.json", 4, "--hash") for _ in range(2))
    if a["parameters_sha256"] != b["parameters_sha256"]:
        raise RuntimeError(f"parameters differ from run to run: {a['parameters_sha256']} {b['parameters_sha256']}; {a['steps']} and {b['steps']}")
    return {"measured": {"parameters_sha256": a["parameters_sha256"], "backend": a["backend_description"], "steps": a["steps"]}, "verdict": "pass"}


def largest_difference(a, b, tolerance):
    most = max(abs(x["loss"] - y["loss"]) for x, y in zip(a["steps"], b["steps"]))
    if not most <= tolerance:
        raise RuntimeError(f"losses differ by {most}: {a['steps']} and {b['steps']}")
    return most


def whole_model(part, model, seq, batch, precision, tolerance):
    dir = tempfile.mkdtemp(dir=part.dir)
    part.plan(f"{dir}/cpu.json", model, seq, batch, "--precision", "fp32" if precision == "tf32" else precision, device="cpu")
    part.plan(f"{dir}/gpu.json", model, seq, batch, "--precision", precision)
    cpu, gpu = part.run(f"{dir}/cpu.json", 5), part.run(f"{dir}/gpu.json", 5)
    return {"measured": {"largest_loss_difference": largest_difference(cpu, gpu, tolerance), "allowed": tolerance, "arena_bytes": gpu["memories"][0]["executed_bytes"]}, "verdict": "pass"}


def same_bits(part, model, seq, batch, precision):
    """Every recompute recorded, and one of them enqueued call by call."""
    dir = tempfile.mkdtemp(dir=part.dir)
    sums = {}
    for recompute in part.sizes["recompute"]:
        part.plan(f"{dir}/plan.json", model, seq, batch, "--precision", precision, "--micro-batch", batch, "--recompute", recompute, "--loss", "full")
        sums[recompute] = part.run(f"{dir}/plan.json", 4, "--hash")["parameters_sha256"]
    sums[f"{recompute}, eager"] = part.run(f"{dir}/plan.json", 4, "--eager", "--hash")["parameters_sha256"]
    if len(set(sums.values())) != 1:
        raise RuntimeError(f"parameters differ: {sums}")
    return {"measured": {"plans": list(sums), "parameters_sha256": next(iter(sums.values()))}, "verdict": "pass"}


def micro_batches(part, model, seq, batch, precision, tolerance):
    """On a card they change rounding only (kernels/cuda/README.md): equal bits are not promised, and whether they are is told."""
    dir = tempfile.mkdtemp(dir=part.dir)
    results = []
    for micro in (batch, batch // 2):
        part.plan(f"{dir}/plan.json", model, seq, batch, "--precision", precision, "--micro-batch", micro)
        results.append(part.run(f"{dir}/plan.json", 4, "--hash"))
    return {"measured": {"largest_loss_difference": largest_difference(*results, tolerance), "allowed": tolerance,
                         "same_bits": results[0]["parameters_sha256"] == results[1]["parameters_sha256"]}, "verdict": "pass"}


def sanitizer(part, tool):
    """What it says of CUDA's own return codes is not asked: the backend checks each."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    program = shutil.which("compute-sanitizer") or shutil.which(os.path.join(os.path.dirname(nvcc), "compute-sanitizer"))
    if not program:
        raise Skip("no compute-sanitizer in PATH or beside nvcc")
    model, seq, batch, precision = part.sizes["sanitizer"]
    part.plan(f"{part.dir}/plan.json", model, seq, batch, "--precision", precision)
    r = part.call([program, "--tool", tool] + ["--report-api-errors", "no"] * (tool == "memcheck")
                  + ["--error-exitcode", "9", common.program(part.args, "vplan-run"), f"{part.dir}/plan.json", "--backend", "cuda", "--steps", "2", "--eager"], ok=(0, 9))
    summary = (re.findall(r"(?:ERROR|RACECHECK) SUMMARY.*", r.stdout + r.stderr) or ["-"])[-1]
    if r.returncode != 0:
        found = [line for line in (r.stdout + r.stderr).splitlines() if line.startswith("=========")]
        raise RuntimeError(f"{summary}: {' | '.join(found[:14])}")
    return {"measured": {"summary": summary}, "verdict": "pass"}


def ops(part):
    """The test programs wait for the CPU's reference most of the time, the models for the CPU that draws their parameters."""
    tests = [(name, lambda name=name: test_program(part, name), 150) for name in part.sizes["tests"]]
    models = [(f"{m[0]} {m[2]} x {m[1]} {m[3]}, {what}", lambda measure=measure, m=m: measure(part, *m), 120) for key, what, measure in (
        ("twice", "the same plan twice", twice), ("whole", "CPU and GPU", whole_model), ("bits", "same bits", same_bits),
        ("micro_batches", "two micro-batches", micro_batches)) for m in part.sizes[key]]
    part.rows_at_once(tests + models)
    for tool in ("memcheck", "racecheck"):
        part.row(f"compute-sanitizer, {tool}", lambda: sanitizer(part, tool))


# ---- memory, budgets ----

def measured_memory(part, path, planned, steps):
    """The whole process on the card: by the driver where it tells, else what is missing there, which counts others too."""
    result = part.run(path, steps)
    points = result["device_memory"]
    told = points[-1]["used_bytes"] is not None
    used = max(p["used_bytes"] if told else p["total_bytes"] - p["free_bytes"] for p in points if not told or p["used_bytes"] is not None)
    if result["memories"][0]["executed_bytes"] != planned["peak_bytes"]:
        raise RuntimeError(f"the arena is {result['memories'][0]['executed_bytes']} bytes, predicted {planned['peak_bytes']}")
    off, allowed = used - planned["device_bytes"], max(planned["device_bytes"] // 100, 64 * MIB)
    seconds = steps_of(result)
    return {"predicted": {"device_bytes": planned["device_bytes"], "peak_bytes": planned["peak_bytes"], "seconds": planned["step_time_s"], "time_class": planned["time_class"]},
            "measured": {"device_bytes": used, "off_bytes": off, "allowed_bytes": allowed, "outside_bytes": used - planned["peak_bytes"], "seconds": common.median(seconds),
                         "counted_by": "driver, this process" if told else "missing on the card", "decisions": planned["decisions"], "points": points},
            "raw_seconds": seconds, "verdict": "pass" if abs(off) <= allowed else "fail"}


def memory_total(part, rows):
    """What all rows of memory have in common; nothing where there are none."""
    done = [r for r in rows if r["predicted"] and r["measured"]]
    if done:
        return {"plans": len(done), "within": sum(r["verdict"] == "pass" for r in done), "errors": sum("error" in r for r in rows),
                "outside_bytes": [min(r["measured"]["outside_bytes"] for r in done), max(r["measured"]["outside_bytes"] for r in done)],
                "median_off_seconds": common.median([abs(r["predicted"]["seconds"] / r["measured"]["seconds"] - 1) for r in done])}
    return {"plans": 0, "errors": sum("error" in r for r in rows)}


def after_calibration(rows):
    """The first row calibrates what lies outside the arena, in CUDA's pieces of 2 MiB; how far are the others then? Nothing where there are none."""
    done = [(r["predicted"]["peak_bytes"] + -r["predicted"]["peak_bytes"] % (2 * MIB), r["measured"]["device_bytes"]) for r in rows if r["predicted"] and r["measured"]]
    if len(done) < 2:
        return {"plans": 0}
    outside = done[0][1] - done[0][0]
    return {"plans": len(done) - 1, "outside_bytes": outside, "largest_off": max(abs((arena + outside) / used - 1) for arena, used in done[1:]), "allowed": 0.003}


def memory(part):
    def one(model, seq, batch, precision):
        planned = part.plan(f"{part.dir}/plan.json", model, seq, batch, "--micro-batch", batch, "--precision", precision)
        return measured_memory(part, f"{part.dir}/plan.json", planned, 4)
    for m in part.sizes["memory"]:
        part.row(f"{m[0]} {m[2]} x {m[1]} {m[3]}", lambda: one(*m), 240)   # drawing and hashing billions of parameters takes minutes
    measured = list(part.rows)
    part.total("all", memory_total(part, measured))
    part.total("all but the first, calibrated by it", after_calibration(measured))


def shrinking(part, model, seq, batch, share):
    """A share of what keeping everything takes."""
    most = part.vplan("estimate", model, "--device", part.args.device, "--seq", seq, "--micro-batch", batch, "--precision", "bf16-mixed", "--recompute", "none")["device_bytes"]
    planned = part.plan(f"{part.dir}/plan.json", model, seq, batch, "--precision", "bf16-mixed", "--budget", int(most * share), may_not_fit=True)
    return measured_memory(part, f"{part.dir}/plan.json", planned, 5) if planned else {"measured": {"infeasible": True, "budget_bytes": int(most * share)}}


def near_limit(part, limit_bytes, model, seq, precision, recompute, loss, n_micro_steps):
    """The largest micro-batch that an estimate says to fit. Two of them add up gradients, which one does not keep: there it is a sixteenth less."""
    options = ("--precision", precision, "--recompute", recompute, "--loss", loss, "--budget", limit_bytes)
    estimate = part.vplan("estimate", model, "--device", part.args.device, "--seq", seq, "--max", "micro-batch", *options, ok=(0, 3))
    if not estimate["fits"]:
        return {"measured": {"infeasible": True}}
    micro = estimate["settings"]["micro_batch"]
    if n_micro_steps > 1:
        micro -= -(-micro // 16)
    planned = part.plan(f"{part.dir}/plan.json", model, seq, micro * n_micro_steps, "--micro-batch", micro, *options)
    row = measured_memory(part, f"{part.dir}/plan.json", planned, 2)   # the second is recorded, and a recording takes memory
    row["measured"].update(micro_batch=micro, share_of_limit=planned["device_bytes"] / limit_bytes)
    return row


def offloaded(part, model, seq, batch, share):
    """A share of the arena that keeping everything takes, the rest in host memory: the same bits, and the seconds beside the predicted ones."""
    options = ("--precision", "bf16-mixed", "--micro-batch", batch, "--loss", "full")
    whole = part.plan(f"{part.dir}/plan.json", model, seq, batch, *options, "--recompute", "none")
    kept = part.run(f"{part.dir}/plan.json", 5, "--hash")
    budget = whole["device_bytes"] - whole["peak_bytes"] + int(share * whole["peak_bytes"])
    planned = part.plan(f"{part.dir}/plan.json", model, seq, batch, *options, "--budget", budget, "--host-memory", "64GiB")
    result = part.run(f"{part.dir}/plan.json", 5, "--hash")
    if result["parameters_sha256"] != kept["parameters_sha256"]:
        raise RuntimeError(f"parameters differ: {kept['parameters_sha256']} on the card alone, {result['parameters_sha256']} with host memory; {kept['steps']} and {result['steps']}")
    host = result["memories"][-1]
    if host["executed_bytes"] != host["predicted_bytes"]:
        raise RuntimeError(f"host memory is {host['executed_bytes']} bytes, predicted {host['predicted_bytes']}")
    seconds = steps_of(result)
    return {"predicted": {"seconds": planned["step_time_s"], "time_class": planned["time_class"], "device_bytes": planned["device_bytes"], "host_bytes": host["predicted_bytes"]},
            "measured": {"seconds": common.median(seconds), "off": planned["step_time_s"] / common.median(seconds) - 1, "seconds_on_card_alone": common.median(steps_of(kept)),
                         "parameters_sha256": result["parameters_sha256"], "decisions": planned["decisions"]}, "raw_seconds": seconds, "verdict": "pass"}


def offload(part):
    for model, seq, batch, shares in part.sizes["offload"]:
        for share in shares:
            part.row(f"{model} {batch} x {seq} in {share:.0%} of its arena", lambda: offloaded(part, model, seq, batch, share))
    off = [abs(r["measured"]["off"]) for r in part.rows if r["measured"]]
    part.total("all", {"plans": len(off), "median_off_seconds": common.median(off)} if off else {"plans": 0})


def budgets(part):
    def shrink(m):
        for share in part.sizes["shares"]:
            part.row(f"{m[0]} {m[2]} x {m[1]} at {share:.0%}", lambda: shrinking(part, *m, share))

    def near(i, drawn):
        part.row(f"near the limit {i}: " + " ".join(map(str, drawn)), lambda: near_limit(part, limit_bytes, *drawn))

    usable = part.vplan("devices", part.args.device)["devices"][0]["usable_bytes"]
    limit_bytes = int(min(usable, part.described["total_bytes"]) * LIMIT_FRAC)
    draw = random.Random(1)   # all at once: a plan does not depend on which were measured before
    plans = [(*draw.choice(part.sizes["near"]), draw.choice(["bf16-mixed", "bf16"]), draw.choice(["none", "none", "attention", "attention", "mlp", "full"]),
              draw.choice(["full", "chunked:8192"]), draw.choice([1, 1, 1, 2])) for _ in range(part.sizes["n_near"])]
    small, large = part.sizes["shrinking"]
    shrink(small)
    for i, drawn in enumerate(plans):
        if i == N_BEFORE_LARGE:
            shrink(large)
        near(i, drawn)
    if len(plans) <= N_BEFORE_LARGE:
        shrink(large)
    part.total("all at shrinking budgets", memory_total(part, [r for r in part.rows if " at " in r["name"]]))
    part.total("all near the limit", dict(memory_total(part, [r for r in part.rows if r["name"].startswith("near")]), asked=len(plans), limit_bytes=limit_bytes))


# ---- speed, prediction ----

def beside_torch(part, model, seq, batch, precision, compiled):
    out, calls = tempfile.mkdtemp(dir=part.dir), profile_of(part, model, seq, batch, precision)
    here = os.path.dirname(os.path.abspath(__file__))
    part.call([sys.executable, f"{here}/step_vs_torch.py", "--python", part.args.python, "--build", part.args.build, "--out", out, "--commit", part.args.commit,
               "--device", part.args.device, "--model", model, "--seq", str(seq), "--batch", str(batch), "--precision", precision]
              + ["--compile"] * compiled + part.sizes["torch"] + (["--calls", calls] if os.path.exists(calls) else []))
    with open(glob.glob(f"{out}/*.json")[0]) as f:
        result = json.load(f)
    rows = {r["name"]: r for r in result["rows"]}
    vplan, torch, tokens = rows["vplan step"], rows["torch step"], seq * batch
    return {"predicted": vplan["predicted"], "raw_seconds": vplan["raw_seconds"],
            "measured": {"vplan_tokens_per_s": tokens / vplan["measured"]["seconds_median"], "torch_tokens_per_s": tokens / torch["measured"]["seconds_median"],
                         "torch_raw_seconds": torch["raw_seconds"], "libraries": result["libraries"], "vplan_memory": vplan["measured"]["device_memory"],
                         "torch_bytes": torch["measured"]["device_bytes"], **rows["ratio vplan / torch"]["measured"]}}


def kernel_times(part, model, seq, batch, precision):
    part.plan(f"{part.dir}/plan.json", model, seq, batch, "--precision", precision, "--micro-batch", batch, "--recompute", "none")
    result = part.run(f"{part.dir}/plan.json", 3, "--eager")
    return {"measured": {"eager_step_s": result["steps"][-1]["seconds"], "kernels": result["kernels"], "calls": result["kernel_calls"]}}


def speed(part):
    for m in part.sizes["speed"]:
        if not os.path.exists(profile_of(part, *m[:4])):
            part.row(f"{m[0]} {m[2]} x {m[1]} {m[3]}, every call timed", lambda: profiled(part, *m[:4]))
        part.row(f"{m[0]} {m[2]} x {m[1]} {m[3]}{' beside compiled' * m[4]}", lambda: beside_torch(part, *m), 300)
        if not m[4]:
            part.row(f"{m[0]} {m[2]} x {m[1]} {m[3]}: where the time goes, each call waited for", lambda: kernel_times(part, *m[:4]))


def tune_budget(part, model, seq, batch):
    most = part.plan(f"{part.dir}/plan.json", model, seq, batch, "--precision", "bf16-mixed")
    return part.described["total_bytes"] if part.args.rehearse else int(most["device_bytes"] * 0.7)


def tuned(part, model, seq, batch):
    r = part.vplan("tune", model, "--device", part.args.device, "--seq", seq, "--global-batch", batch, "--precision", "bf16-mixed", "--budget",
                   tune_budget(part, model, seq, batch), "--study", f"{part.dir}/{model}.db", "-o", f"{part.dir}/{model}.json", "--save-profile",
                   f"{part.dir}/{model}-profile.json", "--force", *part.sizes["tune_options"], ok=(0, 6))
    trials = [{k: t[k] for k in ("verdict", "predicted_s", "measured_s", "predicted_bytes", "executed_bytes")} for t in r["trials"]]
    return {"measured": {"trials": trials, "stopped_because": r["stopped_because"], "median_off": median_off(trials)}}


def neighbours(part, model, seq, batch):
    """What tune chose beside every pin of recompute and micro-batch within its budget, a step of each in turns."""
    best, profile = f"{part.dir}/{model}.json", f"{part.dir}/{model}-profile.json"
    if not os.path.exists(best):
        raise Skip("tune's plan is of an earlier run")
    room = {"VPLAN_EMULATOR_MEMORY": str(4 * EMULATED_BYTES)}   # a rehearsal's card has room for one plan
    with open(best) as f:
        left_bytes = (3 * EMULATED_BYTES if part.args.rehearse else 0.8 * part.described["free_bytes"]) - json.load(f)["prediction"]["peak_bytes"]
    names, paths = ["chosen"], [best]
    for recompute in part.sizes["recompute"]:
        for micro in (batch, batch // 2):
            path = f"{part.dir}/neighbour-{len(paths)}.json"
            planned = part.plan(path, model, seq, batch, "--precision", "bf16-mixed", "--budget", tune_budget(part, model, seq, batch), "--profile", profile,
                                "--recompute", recompute, "--micro-batch", micro, may_not_fit=True)
            if planned and planned["peak_bytes"] <= left_bytes:
                left_bytes -= planned["peak_bytes"]
                names.append(f"recompute {recompute}, micro-batch {micro}")
                paths.append(path)
    if len(paths) == 1:
        raise Skip("nothing else fits the budget")
    lanes = part.answer([common.program(part.args, "vplan-run"), "--compare", *paths, "--steps", str(part.sizes["rounds"]), "--json"], env=room)["plans"]
    return {"predicted": None, "raw_seconds": lanes[0]["step_s"], "measured": {
        "regret": 1 / min(lane["over_first"] for lane in lanes[1:]) - 1, "over_chosen": {name: lane["over_first"] for name, lane in zip(names, lanes)},
        "seconds": {name: lane["median_s"] for name, lane in zip(names, lanes)}}}


def median_off(trials):
    off = [abs(t["predicted_s"] / t["measured_s"] - 1) for t in trials if t["verdict"] == "ok" and t["measured_s"]]
    return common.median(off) if off else None


def prediction(part):
    for m in part.sizes["tune"]:
        part.row(f"tune {m[0]} {m[2]} x {m[1]}", lambda: tuned(part, *m), 300)
        part.row(f"tune {m[0]} {m[2]} x {m[1]}: what it chose beside others", lambda: neighbours(part, *m))
    trials = [t for r in part.rows for t in (r["measured"] or {}).get("trials", ())]
    part.total("all", {"plans": len(trials), "median_off": median_off(trials)})


PARTS = {f.__name__: f for f in (first, ops, memory, speed, offload, budgets, prediction)}


def stage(args, dir):
    """The programs beside the emulated plugin, so that they find it where they would find the real one."""
    for name in ("vplan", "vplan-run", "vplan-solve"):
        shutil.copy2(common.program(args, name), dir)
    os.symlink(os.path.abspath(os.path.join(args.build, "tests")), f"{dir}/tests")
    os.symlink(os.path.abspath(common.program(args, "tests/vplan-cuda-emulated.so")), f"{dir}/vplan-cuda.so")
    os.environ.setdefault("VPLAN_EMULATOR_MEMORY", str(EMULATED_BYTES))
    return dir


def parse_args():
    p = common.parser(__doc__)
    p.add_argument("part", choices=sorted(PARTS))
    p.add_argument("--device", required=True, help="the card here by its name in vplan devices")
    p.add_argument("--python", default=os.environ.get("PYTHON_TORCH") or sys.executable, help="the Python with torch")
    p.add_argument("--resume", help="folder of earlier results")
    p.add_argument("--seconds", type=float, default=420)
    p.add_argument("--rehearse", action="store_true", help="small models on the emulated plugin, without a GPU")
    args = p.parse_args()
    args.out = args.out or os.path.join(args.build, "bench")
    if args.rehearse and os.path.realpath(args.out).startswith(os.path.join(common.ROOT, "bench", "results")):
        p.error("a rehearsal is no result: another --out")
    return args


def main():
    args = parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    why = ""
    with tempfile.TemporaryDirectory() as dir:
        if args.rehearse:
            os.mkdir(f"{dir}/build")
            args.build = stage(args, f"{dir}/build")
        try:
            part = Part(args, REHEARSAL if args.rehearse else REAL, dir)
        except RuntimeError as e:
            common.fail(str(e))
        try:
            PARTS[args.part](part)
        except Stopped as e:
            why = f"stopped by {e}; "
        path = part.write(card_after=card_now(), load_after=common.load())
    errors, failed, skipped = (sum(test(r) for r in part.rows) for test in (lambda r: "error" in r, lambda r: r.get("verdict") == "fail", lambda r: "skipped" in r))
    print(f"{why}{args.part}: {len(part.rows)} rows, {errors} with an error, {failed} with a failed verdict, {skipped} skipped, {part.n_left} not begun for lack of time; wrote {path}")
    sys.exit(1 if why or errors or failed else 0)


main()
