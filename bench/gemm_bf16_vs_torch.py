#!/usr/bin/env python3
"""bf16 products of a training step, ours beside PyTorch's, in turns on this machine.

    bench/gemm_bf16_vs_torch.py [--python PY] [--threads N] [--rows 512,1024,2048] [--turns N] [--seconds S] [--classes 4,3]

Shapes are GPT-2 124M's; roles are y = x w + b (bf16), dx = dy w' (bf16), dw = x' dy (ours fp32, torch's bf16, as each trains). w is
(in, out), for the logits (out, in). Both sides are processes of their own; each repeats a product for --seconds, then the
other does, --turns times. The figure is the median of all calls of each. --classes: 4 AMX-BF16, 3 AVX512-BF16, 2 AVX-512,
1 AVX2+FMA, 0 baseline. Without a Python that imports torch our side is timed alone."""
import os
import shutil
import subprocess
import sys

import bench_common as common

SHAPES = [(768, 768, "in_out"), (768, 2304, "in_out"), (768, 3072, "in_out"), (3072, 768, "in_out"), (768, 50257, "out_in")]
ROLES = "fwd", "bwd_input", "bwd_weight"

TORCH = """
import sys, time, torch
for line in sys.stdin:
    _, threads, role, rows, n_in, n_out, layout, seconds = line.split()
    torch.set_num_threads(int(threads))
    rows, n_in, n_out = int(rows), int(n_in), int(n_out)
    draw = lambda *shape: torch.rand(shape, dtype=torch.bfloat16) * 2 - 1
    x, dy, b = draw(rows, n_in), draw(rows, n_out), draw(n_out)
    w = draw(n_in, n_out) if layout == "in_out" else draw(n_out, n_in).t()
    if role == "fwd":
        out = torch.empty(rows, n_out, dtype=torch.bfloat16); f = lambda: torch.addmm(b, x, w, out=out)
    elif role == "bwd_input":
        out = torch.empty(rows, n_in, dtype=torch.bfloat16); f = lambda: torch.mm(dy, w.t(), out=out)
    elif layout == "in_out":
        out = torch.empty(n_in, n_out, dtype=torch.bfloat16); f = lambda: torch.mm(x.t(), dy, out=out)
    else:
        out = torch.empty(n_out, n_in, dtype=torch.bfloat16); f = lambda: torch.mm(dy.t(), x, out=out)
    f()
    taken, start = [], time.perf_counter()
    with torch.no_grad():
        while not taken or time.perf_counter() - start < float(seconds):
            t = time.perf_counter(); f(); taken.append(time.perf_counter() - t)
    print("torch", *("%.9f" % t for t in taken), flush=True)
"""


def build(args):
    """Our side: built from the libraries that `make` leaves."""
    path = os.path.join(args.build, "bench", "bench_gemm_bf16")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    subprocess.run([os.environ.get("CC", "gcc"), "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-I" + common.ROOT, "-fopenmp", "-o", path,
                    os.path.join(common.ROOT, "bench", "bench_gemm_bf16.c")] + (args.objects.split() if args.objects else
                   [os.path.join(args.build, "kernels.a"), os.path.join(args.build, "plan.a"), os.path.join(args.build, "base.a"), "-lopenblas", "-ljansson"]) + ["-lm"], check=True)
    return path


class Side:
    def __init__(self, command):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        name, *seconds = self.child.stdout.readline().split()
        return name, [float(s) for s in seconds]

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def main():
    p = common.parser(__doc__)
    p.add_argument("--python", default=os.environ.get("PYTHON_TORCH") or "python3", help="a Python with torch")
    p.add_argument("--threads", type=int, default=common.n_cpus())
    p.add_argument("--rows", default="512,1024,2048")
    p.add_argument("--roles", default=",".join(ROLES))
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.2, help="of each turn")
    p.add_argument("--classes", default="4", help="the classes of ours, by number")
    p.add_argument("--objects", help="what to link instead of the build's libraries")
    args = p.parse_args()
    ours, torch = Side([build(args)]), None
    if shutil.which(args.python) and subprocess.run([args.python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0:
        torch = Side([args.python, "-c", TORCH])
    worst = {}
    for rows in map(int, args.rows.split(",")):
        for n_in, n_out, layout in SHAPES:
            for role in args.roles.split(","):
                for isa in args.classes.split(","):
                    line = f"{isa} {args.threads} {role} {rows} {n_in} {n_out} {layout} {args.seconds}"
                    raw, name = {"ours": [], "torch": []}, ""
                    for turn in range(args.turns):
                        for side in ("ours", "torch")[::1 if turn % 2 == 0 else -1]:
                            if side == "ours":
                                name, seconds = ours.ask(line)
                                raw[side] += seconds
                            elif torch:
                                raw[side] += torch.ask(line)[1]
                    flop = 2.0 * rows * n_in * n_out
                    us = common.median(raw["ours"])
                    text = f"{name:11s} {rows:5d} x {n_in:4d} x {n_out:5d} {role:10s} {flop / us / 1e9:8.0f} GFLOP/s"
                    if torch:
                        them = common.median(raw["torch"])
                        text += f", torch {flop / them / 1e9:6.0f}, ours {them / us:5.2f} times its speed"
                        worst.setdefault(name, []).append((them / us, f"{rows} x {n_in} x {n_out} {role}"))
                    print(text, flush=True)
    for name, ratios in worst.items():
        print(f"{name}: {common.quantile([r for r, _ in ratios], 0.5):.2f} times torch's speed in the median, {min(ratios)[0]:.2f} at least ({min(ratios)[1]})")
    for side in filter(None, (ours, torch)):
        side.close()


if __name__ == "__main__":
    main()
