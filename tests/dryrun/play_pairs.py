#!/usr/bin/env python3
# tests/dryrun/play_pairs.py: what a switch does to a step's time (eager or fused attention, twice the micro-batch), as others measured it side by side on
# cards, beside `dryrun --time` of the same steps. measured/side_by_side.csv has the pairs and their sources.
# Played with transformers 4.46.3 (and its tokenizers, huggingface_hub below 1), one of the releases whose documents have these steps.
#     python3 tests/dryrun/play_pairs.py --vplan build/vplan --python PYTHON [--only MODEL] [--seq N] [--reports FOLDER] [-o results.json]
# The ratio of samples a second, b to a. Wrong: another direction than published, where the published ratio is 5 % or more from 1.
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser()
p.add_argument("--vplan", default="build/vplan")
p.add_argument("--python", default="python3")
p.add_argument("--only")
p.add_argument("--seq")
p.add_argument("--reports", help="keep what the probes wrote here, and price what is there")
p.add_argument("-o", dest="out")
a = p.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
folder = os.path.abspath(a.reports) if a.reports else tempfile.mkdtemp()
pairs = [r for r in csv.DictReader(open(os.path.join(here, "measured", "side_by_side.csv")))
         if (not a.only or r["model"] == a.only) and (not a.seq or r["seq"] == a.seq)]


def dryrun(card, command):
    out = subprocess.run([os.path.abspath(a.vplan), "dryrun", "--json", "--no-owners", "--time", "--steps", "2", "--device", card, "--"] + command,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1"))
    return json.loads(out.stdout), out.stderr.decode()


def key(r, side):
    return "%s_%s_%s_%s" % (r["model"], r["batch_" + side], r["seq"], r["attention_" + side])


seconds = {}
for card in sorted({r["card"] for r in pairs}):
    wanted = {key(r, side): (r, side) for r in pairs if r["card"] == card for side in "ab"}
    reports = os.path.join(folder, card)
    os.makedirs(reports, exist_ok=True)
    jobs = [(k + ".json", [os.path.join(here, "scripts", "published_step.py"), r["model"], "--batch", r["batch_" + side], "--seq", r["seq"],
                 "--attention", r["attention_" + side]], {}) for k, (r, side) in wanted.items() if not os.path.exists(os.path.join(reports, k + ".json"))]
    with open(os.path.join(reports, "jobs"), "w") as f:
        f.writelines(json.dumps(j) + "\n" for j in jobs)
    said = dryrun(card, [a.python, os.path.join(here, "play_space.py"), os.path.join(reports, "jobs"), reports,
                         "transformers.models.bert.modeling_bert", "transformers.models.opt.modeling_opt"])[1] if jobs else ""
    for k in wanted:
        d, _ = dryrun(card, ["python3", "-S", os.path.join(here, "play_again.py"), os.path.join(reports, k + ".json")])
        if not d.get("time"):
            sys.exit("%s: %s %s\n%s" % (k, d["verdict"], d.get("reason"), said[-2000:]))
        seconds[k] = d["time"]
rows, wrong, near = [], 0, 0
for r in pairs:
    x, y = seconds[key(r, "a")], seconds[key(r, "b")]
    published = float(r["seconds_a"]) / float(r["seconds_b"]) * int(r["batch_b"]) / int(r["batch_a"])
    ours = y["samples_per_s"] / x["samples_per_s"]
    against = abs(published - 1) >= 0.05 and (ours - 1) * (published - 1) < 0
    wrong += against
    near += abs(ours / published - 1) <= 0.15
    rows.append({"a": key(r, "a"), "b": key(r, "b"), "card": r["card"], "switch": r["switch"], "published": round(published, 3), "predicted": round(ours, 3),
                 "published_s": [float(r["seconds_a"]), float(r["seconds_b"])], "predicted_s": [round(x["step_time_s"], 5), round(y["step_time_s"], 5)],
                 "bound_by": [x["bound_by"], y["bound_by"]], "wrong": against})
    print("%-11s %-20s %-20s published %5.2f, predicted %5.2f%s  (%.3f %.3f s, predicted %.3f %.3f)" % (
        r["switch"], key(r, "a"), key(r, "b"), published, ours, " WRONG" if against else "", float(r["seconds_a"]), float(r["seconds_b"]),
        x["step_time_s"], y["step_time_s"]))
off = [abs(x["predicted"] / x["published"] - 1) for x in rows]
print("%d pairs, %d in the wrong direction, %d within 15 %%, median off by %.1f %%" % (len(rows), wrong, near, 100 * statistics.median(off)))
if a.out:
    with open(a.out, "w") as f:
        json.dump({"schema_version": 1, "within_15_percent": near, "wrong": wrong, "rows": rows}, f, indent=1)
        f.write("\n")
sys.exit(wrong != 0)
