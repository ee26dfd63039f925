#!/usr/bin/env python3
# tests/dryrun/play_ranks.py: every rank of a world, played together and each by itself.
#     python3 tests/dryrun/play_ranks.py --vplan build/vplan --python PYTHON [--only NAME] [-o results.json]
# Together: each rank's peaks are those that its script reads from PyTorch, and what the shards of the parameters sum to is
# the model. Alone: a rank has the peaks it has among the others.
import argparse
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [      # name, script, its arguments, ranks, imports
    ("ddp of 4", "ddp.py", [], 4, ("transformers",)),
    ("fsdp2 of 4", "fsdp2.py", [], 4, ("transformers",)),
    ("fsdp2 of 8", "fsdp2.py", [], 8, ("transformers",)),
    ("fsdp2 of 3, uneven", "fsdp2.py", [], 3, ("transformers",)),
    ("zero2 of 4", "zero.py", ["2"], 4, ("deepspeed", "transformers")),
    ("zero3 of 4", "zero.py", ["3"], 4, ("deepspeed", "transformers")),
    ("zero3 of 8", "zero.py", ["3"], 8, ("deepspeed", "transformers")),
    ("tensor parallel of 4", "tensor_parallel.py", [], 4, ()),
    ("pipeline of 4", "pipeline.py", [], 4, ()),
    ("pipeline of 4, told its shapes", "pipeline.py", ["shapes"], 4, ()),
]
p = argparse.ArgumentParser()
p.add_argument("--vplan", default="build/vplan")
p.add_argument("--python", default="python3")
p.add_argument("--device", default="h100-sxm-80gb")
p.add_argument("--only")
p.add_argument("--alone", default="some", choices=("some", "all"), help="which ranks are also played alone")
p.add_argument("-o", dest="out")
a = p.parse_args()
rows = json.load(open(a.out))["rows"] if a.out and a.only and os.path.exists(a.out) else []      # of the others
bad = 0


def play(script, words, world, rank):
    run = subprocess.run([a.vplan, "dryrun", "--device", a.device, "--json", "--no-owners", "--world", str(world), "--rank", rank,
                          "--", a.python, os.path.join(HERE, "scripts", script)] + words,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return json.loads(run.stdout), run.stderr


for name, script, words, world, imports in CASES:
    if a.only and a.only not in name:
        continue
    find = "import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))"
    if subprocess.run([a.python, "-c", find] + list(imports)).returncode:
        print("%-22s skipped: %s not installed" % (name, ", ".join(imports)))
        continue
    wrong = []
    together, err = play(script, words, world, "all")
    peaks = {r["rank"]: [r["allocated_peak_bytes"], r["reserved_peak_bytes"]] for r in together.get("ranks", [])}
    printed = {int(r): [int(x), int(y)] for r, x, y in re.findall(r"rank (\d+) of \d+ peak (\d+) (\d+)", err)}
    shards = re.findall(r"shard (\d+) of (\d+)", err)
    if together["verdict"] != "fits" or len(peaks) != world:
        wrong.append("together: %s %s" % (together["verdict"], together.get("reason")))
    if printed != peaks:
        wrong.append("the scripts read other peaks: %s, not %s" % (printed, peaks))
    whole = {int(n) for _, n in shards}
    sum_of = sum(int(n) for n, _ in shards)
    if shards and {sum_of} != whole:
        wrong.append("shards sum to %d of %s" % (sum_of, whole))
    alone = {}
    # a pipeline's stages tell each other their shapes, unless told them
    if not wrong and (words or script != "pipeline.py"):
        groups = [g[0] for g in together["alike"]]
        for rank in range(world) if a.alone == "all" else sorted({0, world - 1} | set(groups)):
            doc, _ = play(script, words, world, str(rank))
            alone[rank] = [doc["allocated_peak_bytes"], doc["reserved_peak_bytes"]]
            if doc["verdict"] != "fits" or alone[rank] != peaks[rank]:
                wrong.append("rank %d alone: %s %s %s, together %s" % (rank, doc["verdict"], doc.get("reason"), alone[rank], peaks[rank]))
    bad += bool(wrong)
    rows = [r for r in rows if r["name"] != name]
    rows.append({"name": name, "ranks": world, "peaks": [peaks[r] for r in sorted(peaks)], "alike": together.get("alike"),
                 "shards_sum_to": sum_of if shards else None, "parameters": max(whole) if shards else None,
                 "played_alone": sorted(alone), "wrong": wrong})
    print("%-22s %d ranks, %d kinds, worst %s, %s" % (name, world, len(together.get("alike", [])), max(peaks.values() or [None]),
                                                    "; ".join(wrong) or "right"), flush=True)
if a.out:
    code = "import importlib.metadata as m, json\nv = {}\nfor n in ('torch', 'transformers', 'deepspeed'):\n  try: v[n] = m.version(n)\n  except m.PackageNotFoundError: pass\nprint(json.dumps(v))"
    versions = json.loads(subprocess.run([a.python, "-c", code], stdout=subprocess.PIPE, check=True).stdout)
    with open(a.out, "w") as f:
        json.dump({"schema_version": 1, "device": a.device, "versions": versions, "rows": rows}, f, indent=1)
        f.write("\n")
sys.exit(bad != 0)
