#!/usr/bin/env python3
"""A training step, vplan beside PyTorch, in turns on this machine.

    bench/step_vs_torch.py [--python PY] [--pairs N] [--threads N] [--optimizer fused|foreach|forloop] [--model NAME] [--batch N] [--seq N]
                           [--device NAME] [--precision fp32|bf16-mixed] [--calls FILE] [--compile] [--commit SHA]

GPT-2 124M unless another is named, 4 samples of 256 tokens, on the CPU unless a card is named (vplan's CUDA backend and torch's cuda then), AdamW, clipping, as in the default recipe. Both processes live through the whole
measurement and do one step for each line they read; the pairs alternate vplan-torch, torch-vplan. Time is this process's
clock from the line written to the line read. First it is checked that both compute the same thing: the same initial
weights (those that vplan saves), the same tokens, the losses of the first steps equal within 1e-4 (in bf16, where torch's
autocast keeps sums and norms in fp32 and vplan rounds them, within 5e-2). bf16-mixed stands beside autocast to bfloat16. Then torch is timed
at 1, 2, 4, ... threads; the pairs run at its best number, the same for both. On a card there is nothing to choose.

The Python with torch is --python, else $PYTHON_TORCH, else python3; without one: exit 77. Fewer than 15 pairs
are a rehearsal, and the results file is called so. --profile prints torch's operators of one more step, for a look at where the
time goes."""
import array
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import bench_common as common

MODEL, SEQ, BATCH = "gpt2", 256, 4
LEAST_PAIRS = 15
N_CHECKED, TOLERANCE = 3, {"fp32": 1e-4, "bf16-mixed": 5e-2}
CALIBRATION_STEPS = 3            # at each thread count: one to warm up, the others timed
RECIPE = {"schema_version": 1, "optimizer": {"name": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1},
          "clip_norm": 1.0, "schedule": {"type": "constant", "warmup_steps": 0, "total_steps": 0, "min_lr_ratio": 0.0},
          "seed": 1, "precision": "fp32", "dropout": 0.0, "data": {"kind": "tokens-u16", "order": "sequential"}}


def write_tokens(path, n, vocab):
    """Log-uniform ids: as often as words are (Zipf), the whole vocabulary, and something to learn."""
    draw = random.Random(1)
    with open(path, "wb") as f:
        array.array("H", (min(vocab, 1 << 16, int(vocab ** draw.random())) - 1 for _ in range(n))).tofile(f)


class Stepper:
    """A child process that does a step for each line, and the seconds it took by our clock."""

    def __init__(self, command, replies, log, **options):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        if replies == "stderr":
            pipes["stderr"] = subprocess.PIPE
        self.child = subprocess.Popen(command, text=True, bufsize=1, **dict(pipes, **options))
        self.replies = getattr(self.child, replies)
        self.name = os.path.basename(command[0])

    def read(self, wanted):
        for line in self.replies:
            if wanted(line):
                return line
        common.fail(f"{self.name} ended with {self.child.wait()}")

    def ask(self, line, wanted):
        start_s = time.perf_counter()
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            common.fail(f"{self.name} ended with {self.child.wait()}")
        answer = self.read(wanted)
        return answer, time.perf_counter() - start_s

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()


class Torch(Stepper):
    def __init__(self, args, dir, log):
        worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_step_worker.py")
        env = dict(os.environ, HF_HUB_OFFLINE="1", PYTHONDONTWRITEBYTECODE="1")
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            env.pop(name, None)   # the worker sets its threads itself
        super().__init__([args.python, worker, "--weights", f"{dir}/initial", "--tokens", f"{dir}/tokens", "--recipe", f"{dir}/recipe.json",
                          "--seq", str(args.seq), "--batch", str(args.batch), "--optimizer", args.optimizer]
                         + ["--compile"] * args.compile + ["--cuda"] * (args.torch_device == "cuda"),
                         "stdout", log, env=env)
        self.losses = []
        self.libraries = json.loads(self.read(lambda _: True))["libraries"]
        self.process_peak_bytes = None

    def set_threads(self, n):
        assert json.loads(self.ask(f"threads {n}", lambda _: True)[0])["threads"] == n

    def step(self, word="step"):
        line, seconds = self.ask(word, lambda _: True)
        answer = json.loads(line)
        self.losses.append(answer["loss"])
        self.process_peak_bytes, self.device_bytes = answer["process_peak_bytes"], answer.get("device_bytes")
        return answer if word == "profile" else seconds

    def best_threads(self, candidates):
        """The number of threads with the shortest step, and the seconds at each."""
        seconds = {}
        for n in candidates:
            self.set_threads(n)
            seconds[n] = [self.step() for _ in range(CALIBRATION_STEPS)][1:]
            print(f"torch at {n} thread{'s' if n > 1 else ''}: {min(seconds[n]):.3f} s", flush=True)
        best = min(candidates, key=lambda n: min(seconds[n]))
        self.set_threads(best)
        return best, seconds


class Vplan(Stepper):
    def __init__(self, args, dir, threads, n_steps, log):
        super().__init__([common.program(args, "vplan-run"), f"{dir}/plan.json", "--data", f"{dir}/tokens", "--init", f"{dir}/initial",
                          *(("--threads", str(threads)) if args.device == "cpu" else ()), "--steps", str(n_steps), "--step-on-input", "--json"], "stderr", log)

    def step(self):
        return self.ask("step", lambda line: line.startswith("step "))[1]

    def finish(self):
        """The results of all steps, once the input has ended."""
        out, _ = self.child.communicate()
        if self.child.returncode != 0:
            common.fail(f"vplan-run ended with {self.child.returncode}")
        return json.loads(out)


def check_losses(ours, theirs, tolerance):
    """Greatest difference over the first steps and over all; stops at two different computations."""
    differences = [abs(a - b) for a, b in zip(ours, theirs)]
    for i, d in enumerate(differences[:N_CHECKED]):
        if not d <= tolerance:
            common.fail(f"step {i + 1}: loss {ours[i]:.6f} by vplan, {theirs[i]:.6f} by torch: not the same computation; nothing is recorded")
    return max(differences[:N_CHECKED]), max(differences)


def parse_args():
    p = common.parser(__doc__)
    p.add_argument("--python", default=os.environ.get("PYTHON_TORCH") or "python3", help="a Python with torch and transformers")
    p.add_argument("--pairs", type=int, default=LEAST_PAIRS)
    p.add_argument("--threads", type=int, help="of both, instead of torch's best")
    p.add_argument("--optimizer", choices=["fused", "foreach", "forloop"], default="fused", help="form of torch's AdamW; fused is its fastest")
    p.add_argument("--model", default=MODEL, help="a causal model by its built-in name")
    p.add_argument("--batch", type=int, default=BATCH)
    p.add_argument("--seq", type=int, help="256, or as many positions as gpt2-tiny has")
    p.add_argument("--device", default="cpu", help="the card here by its name in vplan devices")
    p.add_argument("--precision", choices=sorted(TOLERANCE), default="fp32")
    p.add_argument("--torch-device", choices=["cpu", "cuda"], help="where torch's half runs, for a rehearsal (cuda beside a card)")
    p.add_argument("--calls", help="a profile of vplan's calls on this card: plan with it")
    p.add_argument("--compile", action="store_true", help="torch.compile the model")
    p.add_argument("--profile", action="store_true", help="print torch's operators of one more step")
    args = p.parse_args()
    args.torch_device = args.torch_device or ("cpu" if args.device == "cpu" else "cuda")
    args.seq = args.seq or (SEQ if args.model != "gpt2-tiny" else 128)
    if args.pairs < 1:
        p.error("--pairs: at least 1")
    probe = "import torch, transformers, safetensors"
    if not shutil.which(args.python) or subprocess.run([args.python, "-c", probe], stderr=subprocess.DEVNULL).returncode != 0:
        common.skip(f"step: {args.python} does not import torch, transformers and safetensors (set PYTHON_TORCH)")
    return args


def prepare(args, dir, n_steps):
    with open(f"{dir}/recipe.json", "w") as f:
        json.dump(dict(RECIPE, precision=args.precision), f)
    plan = json.loads(common.output([common.program(args, "vplan"), "plan", args.model, "--device", args.device, "--seq", str(args.seq), "--global-batch",
                                     str(args.batch), "--micro-batch", str(args.batch), "--recompute", "none", "--recipe", f"{dir}/recipe.json",
                                     "-o", f"{dir}/plan.json", "--json", *(["--profile", args.calls] if args.calls else [])]))
    with open(f"{dir}/plan.json") as f:
        vocab = json.load(f)["model"]["vocab_size"]
    write_tokens(f"{dir}/tokens", (n_steps + args.profile) * args.seq * args.batch + 1, vocab)
    common.output([common.program(args, "vplan-run"), f"{dir}/plan.json", "--data", f"{dir}/tokens", "--steps", "1",
                   "--save-initial", f"{dir}/initial", "--json"])
    return plan


def measure(args, dir, log):
    candidates = [args.threads] if args.threads else [1] if args.device != "cpu" else [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= common.n_cpus()]
    n_steps = CALIBRATION_STEPS * len(candidates) + args.pairs
    plan = prepare(args, dir, n_steps)
    children = []
    try:
        torch = Torch(args, dir, log)
        children.append(torch)
        threads, calibration = torch.best_threads(candidates)
        vplan = Vplan(args, dir, threads, n_steps, log)
        children.append(vplan)
        while n_steps - args.pairs > 0:   # the steps that torch has behind it
            n_steps -= 1
            vplan.step()
        raw = {"vplan": [], "torch": []}
        for i in range(args.pairs):
            for name, child in [("vplan", vplan), ("torch", torch)][::1 if i % 2 == 0 else -1]:
                raw[name].append(child.step())
            print(f"pair {i + 1:2d} of {args.pairs}: vplan {raw['vplan'][-1]:.3f} s, torch {raw['torch'][-1]:.3f} s", flush=True)
        run = vplan.finish()
        first, all_steps = check_losses([s["loss"] for s in run["steps"]], torch.losses, TOLERANCE[args.precision])
        if args.profile:
            for name, count, seconds in torch.step("profile")["ops"]:
                print(f"  torch {name:45s} {count:5d} calls {seconds:8.3f} s")
    finally:
        for child in children:
            child.close()
    return plan, run, torch, threads, calibration, raw, first, all_steps


def summary(raw, **more):
    return dict({"seconds_median": common.median(raw), "seconds_min": min(raw), "seconds_quartiles": [common.quantile(raw, 0.25), common.quantile(raw, 0.75)]}, **more)


def part_name(args):
    """"step", with what differs from the default in words behind it."""
    size  = [f"{args.batch}x{args.seq}"] * (args.device != "cpu")
    words = ["step"] + [args.model] * (args.model != MODEL) + size + [args.precision] * (args.precision != "fp32") + ["compiled"] * args.compile
    return "-".join(words + ["rehearsal"] * (args.pairs < LEAST_PAIRS))


def main():
    args = parse_args()
    load_before = common.load()
    with tempfile.TemporaryDirectory() as dir, open(f"{dir}/log", "w+") as log:
        try:
            plan, run, torch, threads, calibration, raw, first, all_steps = measure(args, dir, log)
        except SystemExit:
            log.seek(0)
            sys.stderr.write(log.read()[-3000:])
            raise
    ratio = common.median(raw["vplan"]) / common.median(raw["torch"])
    of_pairs = [a / b for a, b in zip(raw["vplan"], raw["torch"])]
    rows = [
        {"name": "vplan step", "predicted": {"seconds": plan["step_time_s"], "time_class": plan.get("time_class"), "process_bytes": plan["process_predicted_bytes"]},
         "measured": summary(raw["vplan"], process_peak_bytes=run["process_peak_bytes"], device_memory=run.get("device_memory"), decisions=plan["decisions"]), "raw_seconds": raw["vplan"]},
        {"name": "torch step", "predicted": None, "measured": summary(raw["torch"], process_peak_bytes=torch.process_peak_bytes, device_bytes=torch.device_bytes), "raw_seconds": raw["torch"]},
        {"name": "ratio vplan / torch", "predicted": None, "raw_seconds": [], "measured": {
            "ratio_of_medians": ratio, "pair_ratio_median": common.median(of_pairs),
            "pair_ratio_quartiles": [common.quantile(of_pairs, 0.25), common.quantile(of_pairs, 0.75)], "n_pairs": args.pairs,
            "loss_difference_first_steps": first, "loss_difference_all_steps": all_steps}},
    ] + [{"name": f"torch step, choosing threads: {n}", "predicted": None, "measured": {"seconds_min": min(s)}, "raw_seconds": s} for n, s in calibration.items()]
    path = common.write_results(
        args, part_name(args), args.device, dict(torch.libraries, **{"vplan backend": run.get("backend_description")}),
        dict(common.machine(), load_before=load_before, load_after=common.load()),
        {"model": args.model, "seq": args.seq, "global_batch": args.batch, "precision": args.precision, "threads": threads, "recipe": RECIPE, "calls timed": bool(args.calls),
         "torch": ("compiled" if args.compile else "eager") + ", attention sdpa, dropout 0, clip_grad_norm_"}, rows)
    print(f"""
{args.model}, {args.batch} x {args.seq} tokens, {args.precision}, AdamW, clipping; {threads} thread{'s' if threads > 1 else ''} each; {args.pairs} pairs in turns
vplan   {common.median(raw['vplan']):.3f} s median, {min(raw['vplan']):.3f} s least; process peak {run['process_peak_bytes']} bytes
torch   {common.median(raw['torch']):.3f} s median, {min(raw['torch']):.3f} s least; process peak {torch.process_peak_bytes} bytes
        torch {torch.libraries['torch']}, transformers {torch.libraries['transformers']}, AdamW {args.optimizer}
losses  differ by {first:.1e} at most over the first {N_CHECKED} steps, {all_steps:.1e} over all {len(run['steps'])}
ratio   {ratio:.3f} of medians, vplan / torch (pairs: median {common.median(of_pairs):.3f}, quartiles {common.quantile(of_pairs, 0.25):.3f} to {common.quantile(of_pairs, 0.75):.3f})
written to {path}""")


main()
