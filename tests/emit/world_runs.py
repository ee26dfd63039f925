#!/usr/bin/env python3
"""What `vplan plan --trainer hf --world N` says of rank 0, beside the emitted files' own run as that rank: accelerate launch under `vplan dryrun`.

    world_runs.py OUT.csv --python PYTHON [--deepspeed-python PYTHON] [--vplan build/vplan] [--only WAY ...]

PYTHON has torch, transformers and accelerate; the other one DeepSpeed too. A minute a row.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "programs"))
import rows  # noqa: E402

HEAD = ["model", "parallel", "world", "micro_batch", "seq", "predicted_allocated", "played_allocated", "predicted_reserved", "played_reserved"]


def run(a, way):
    python = a.deepspeed_python if way.startswith("zero") else a.python
    with tempfile.TemporaryDirectory() as folder:
        config, plan, files = (os.path.join(folder, x) for x in ("gpt2.json", "plan.json", "files"))
        with open(config, "w") as f:
            json.dump(rows.MODELS["gpt2"], f)
        subprocess.run([a.vplan, "plan", config, "--trainer", "hf", "--device", "4090", "--seq", "512", "--global-batch", "16", "--world", "4", "--micro-batch", "4",
                        "--recompute", "none", "--parallel", way, "-o", plan], stdout=subprocess.DEVNULL, check=True)
        subprocess.run([a.vplan, "emit", plan, "--for", "hf", "-o", files], stdout=subprocess.DEVNULL, check=True)
        done = subprocess.run([a.vplan, "dryrun", "--device", "4090", "--rank", "0", "--steps", "3", "--json", "--no-owners", "--", python, "-m", "accelerate.commands.launch",
                               "--config_file", "accelerate.yaml", "train.py"], cwd=files, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said, played = json.load(open(plan)), json.loads(done.stdout)
    if played.get("verdict") != "fits":
        sys.exit("%s: %s\n%s" % (way, played.get("reason"), done.stderr.decode()[-1500:]))
    return ["gpt2", way, 4, 4, 512, said["allocated_peak_bytes"], played["allocated_peak_bytes"], said["reserved_peak_bytes"], played["reserved_peak_bytes"]]


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("out")
    p.add_argument("--python", default="python3")
    p.add_argument("--deepspeed-python")
    p.add_argument("--vplan", default="build/vplan")
    p.add_argument("--only", nargs="*", default=["ddp", "fsdp2", "zero2", "zero3"])
    a = p.parse_args()
    a.vplan = os.path.abspath(a.vplan)
    with open(a.out, "w", newline="") as f:
        f.write("# made by tests/emit/world_runs.py\n")
        out = csv.writer(f, lineterminator="\n")
        out.writerow(HEAD)
        for way in a.only:
            if a.deepspeed_python or not way.startswith("zero"):
                out.writerow(run(a, way))
                f.flush()


if __name__ == "__main__":
    main()
