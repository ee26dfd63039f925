#!/usr/bin/env python3
# tests/dryrun/check_program.py: the recorded program of `dryrun --time` against what others count in the same step (count_program.py), to the unit:
# products, bytes copied between host and device, work given to the card.
#     python3 tests/dryrun/check_program.py --vplan build/vplan --python PYTHON [--only NAME] [-o results.json]
import argparse
import json
import os
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser()
p.add_argument("--vplan", default="build/vplan")
p.add_argument("--python", default="python3")
p.add_argument("--only")
p.add_argument("-o", dest="out")
a = p.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
scripts = os.path.join(here, "scripts")
loop, trainers = os.path.join(scripts, "tunable.py"), os.path.join(scripts, "tunable_trainer.py")
own = ["--batch", "4", "--accum", "2"]
flags = ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2"]
COMMANDS = {
    "plain loop": ([loop] + own + ["--ckpt", "1"], 1), "gpt2 eager": ([loop, "--model", "gpt2", "--attention", "eager"] + own, 1),
    "gpt2 sdpa": ([loop, "--model", "gpt2", "--ckpt", "1"] + own, 1), "lora loop": ([loop, "--model", "lora"] + own, 1),
    "trainer": ([trainers, "trainer"] + flags, 1), "trainer lora": ([trainers, "lora", "--bf16", "True"] + flags, 1),
    "trl sft": ([trainers, "sft", "--bf16", "True"] + flags, 1), "trl dpo": ([trainers, "dpo", "--bf16", "True"] + flags, 1),
    "accelerate": ([trainers, "accelerate"] + own, 1), "lightning": ([trainers, "lightning"] + own, 1),
    "fsdp2": ([trainers, "fsdp2"] + own, 8), "zero2": ([trainers, "zero2"] + own, 8), "zero3": ([trainers, "zero3"] + own, 8)}
# products; bytes that copy operators move, each way, as a dispatch mode sees them; work; all bytes copied, each way, as CUDA is asked
FIGURES = "flop", "copies_to_bytes", "copies_from_bytes", "work", "all_to_bytes", "all_from_bytes"
rows = json.load(open(a.out))["rows"] if a.out and a.only and os.path.exists(a.out) else []      # of the others
with tempfile.TemporaryDirectory() as cwd:
    library = os.path.join(cwd, "count.so")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-O2", "-o", library, os.path.join(here, "count_launches.c"), "-ldl"], check=True)
    env = dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", COUNT_LAUNCHES=library)
    for name, (command, world) in COMMANDS.items():
        if a.only and name not in a.only.split(","):
            continue
        words = [os.path.abspath(a.vplan), "dryrun", "--device", "l4", "--no-owners"] + (["--world", str(world)] if world > 1 else [])
        said = subprocess.run(words + ["--", a.python, os.path.join(here, "count_program.py"), "4"] + command, cwd=cwd, env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
        counted = next((list(map(int, line.split()[1:])) for line in said.splitlines() if line.startswith("COUNTED ")), None)
        out = subprocess.run(words + ["--steps", "3", "--time", "--json", "--", a.python] + command, cwd=cwd, env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        t = json.loads(out)["time"]
        mine = [t["flop"], t["copies_to_bytes"] - t["copies_inside_to_bytes"], t["copies_from_bytes"] - t["copies_inside_from_bytes"], t["launches"],
                t["copies_to_bytes"], t["copies_from_bytes"]]
        rows = [r for r in rows if r["command"] != name]
        rows.append({"command": name, "recorded": dict(zip(FIGURES, mine)), "counted": counted and dict(zip(FIGURES, counted)), "equal": counted == mine})
        print("%-12s recorded %s, counted %s: %s" % (name, mine, counted, "equal" if counted == mine else "DIFFERS"), flush=True)
        if counted is None:
            print(said[-1500:])
        if a.out:
            with open(a.out, "w") as f:
                json.dump({"schema_version": 2, "rows": rows}, f, indent=1)
                f.write("\n")
sys.exit(not rows or not all(r["equal"] for r in rows))
