#!/usr/bin/env python3
"""What torch.compile changes of a training step's peaks, without a card: the same loop with and without it, played by `vplan dryrun`.

    compiled.py VPLAN PYTHON OUT.csv [--rows N]

PYTHON has torch with triton, transformers and accelerate. The rows of OUT.csv stay, so that it resumes; one takes one to ten minutes, for Inductor
compiles it. `share` is the compiled step's peak of reserved bytes over the eager one's, -1: what the interval of `estimate --compile` rests on.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "programs"))
import rows

CASES = [  # model, trainer, precision, recompute, micro-batch, sequence
    ("gpt2", "torch", "bf16-mixed", "none", 8, 512), ("gpt2", "torch", "bf16-mixed", "none", 4, 1024), ("gpt2", "torch", "fp32", "none", 4, 512),
    ("gpt2", "torch", "bf16", "none", 8, 1024), ("gpt2", "hf", "bf16-mixed", "none", 8, 512), ("gpt2", "torch", "bf16-mixed", "full", 8, 512),
    ("opt-125m", "torch", "bf16-mixed", "none", 4, 1024), ("pythia-160m", "torch", "bf16", "none", 8, 512), ("bert-base", "torch", "bf16-mixed", "none", 16, 256),
    ("llama-3.2-1b", "torch", "bf16", "none", 2, 1024), ("llama-3.2-1b", "torch", "bf16-mixed", "none", 2, 1024), ("llama-3.2-1b", "torch", "bf16", "full", 4, 1024),
    ("tinyllama-1.1b", "torch", "bf16", "none", 4, 1024), ("tinyllama-1.1b", "hf", "bf16-mixed", "none", 2, 1024), ("qwen2.5-0.5b", "torch", "bf16-mixed", "none", 4, 512),
    ("qwen2.5-0.5b", "hf", "bf16-mixed", "full", 4, 512), ("smollm2-135m", "torch", "bf16-mixed", "none", 1, 128), ("smollm2-135m", "hf", "bf16", "none", 8, 1024),
]
FIELDS = ["model", "trainer", "precision", "recompute", "micro_batch", "seq", "eager_allocated", "eager_reserved", "compiled_allocated", "compiled_reserved", "share"]


def play(a, case, config, compiled):
    command = [a.vplan, "dryrun", "--device", "h200", "--steps", "3", "--padding", "none", "--no-owners", "--json", "--", a.python,
               os.path.join(HERE, "programs", "compiled_loop.py"), config] + [str(x) for x in case[1:]] + [str(int(compiled))]
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1"))
    j = json.loads(p.stdout) if p.stdout else {}
    if j.get("verdict") != "fits":
        sys.stderr.write("%s: %s\n%s\n" % (" ".join(map(str, case)), j.get("reason"), p.stderr.decode()[-1500:]))
        return None
    return j["allocated_peak_bytes"], j["reserved_peak_bytes"]


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("vplan", type=os.path.abspath)
    p.add_argument("python")
    p.add_argument("out")
    p.add_argument("--rows", type=int, default=len(CASES))
    a = p.parse_args()
    kept = [r for r in csv.DictReader(line for line in open(a.out) if line[0] != "#")] if os.path.exists(a.out) else []
    done = {tuple(r[f] for f in FIELDS[:6]) for r in kept}
    with tempfile.TemporaryDirectory() as folder:
        for case in [c for c in CASES if tuple(map(str, c)) not in done][:a.rows]:
            config = os.path.join(folder, case[0] + ".json")
            json.dump(rows.MODELS[case[0]], open(config, "w"))
            eager, compiled = play(a, case, config, False), play(a, case, config, True)
            if not eager or not compiled:
                continue
            kept.append(dict(zip(FIELDS, case + eager + compiled + ("%+.4f" % (compiled[1] / eager[1] - 1),))))
            print(kept[-1], flush=True)
            with open(a.out, "w", newline="") as f:
                f.write("# made by tests/oracles/compiled.py\n")
                out = csv.DictWriter(f, FIELDS, lineterminator="\n")
                out.writeheader()
                out.writerows(kept)


if __name__ == "__main__":
    main()
