#!/usr/bin/env python3
"""How near `vplan estimate --trainer torch` is to rows of real peaks: answered, how far off, refused and why.

    estimate_rows.py ROWS.csv [--vplan build/vplan] [--worst 10] [--each] [--only WORD ...]

ROWS.csv has the columns of `vplan`'s own rows (tests/golden/trainers/) or of a fake_peaks.csv, whose configs lie relative to it. Bytes of the
latter leave out cuBLAS's workspaces, so those are taken off the estimate; where a row also has its peak with workspaces that is `peak_w`,
and reserved bytes are compared with workspaces. An error is estimate / row - 1.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import zlib

PHASES = ["load"] + ["%s%d" % (n, i) for i in (1, 2) for n in ("forward", "backward", "step")]
PRECISIONS = {"amp": "bf16-mixed", "bf16amp": "bf16-amp"}
OPTIMIZERS = {"adamw_foreach": "adamw_torch", "adamw_fused": "adamw_torch_fused", "adamw_forloop": "adamw_torch_forloop",
              "sgdm": "sgd_momentum"}
METHODS = ("dpo", "reward", "grpo")                # of TRL
PEFT = {"ia3": "ia3", "prompt": "prompt:tokens=%(tokens)s", "prefix": "prefix:tokens=%(tokens)s"}
LORAS = {"qv8": "r=8,alpha=16,targets=q_proj+v_proj", "all16": "r=16,alpha=16,targets=all-linear"}


def of_fake_peaks(r, folder):
    options = ["--precision", PRECISIONS.get(r["precision"], r["precision"]),
               "--attention", "eager" if r["attn"] == "eager" else "sdpa:" + r["sdpa"],
               "--recompute", "full" if r["gradient_checkpointing"] == "1" else "none",
               "--optimizer", OPTIMIZERS.get(r["optimizer"], r["optimizer"]), "--micro-batch", r["batch"]]
    if r["task"] != "clm":
        options += ["--task", r["task"]]
    if r["task"] != "imgcls":
        options += ["--seq", r["seq"]]
    if r["dec_seq"] and r["dec_seq"] != r["seq"]:
        options += ["--target-seq", r["dec_seq"]]
    if r["mask"] == "padded":
        options += ["--padding", "mask"]
    if r["lora"] != "none":
        options += ["--lora", LORAS[r["lora"]] + (",dropout=" + r["lora_dropout"] if float(r["lora_dropout"] or 0) else "")]
    if r["output_kept"] == "1":
        options.append("--keep-output")
    whole = int(r["alloc_peak_with_cublas"] or 0)
    return dict(name="%s %s" % (r["run_id"], r["model"]), model=os.path.join(folder, r["config"]), options=options, workspaces=False,
                with_workspaces=whole, phases={p: int(r["alloc_" + p]) for p in PHASES}, peak=int(r["alloc_peak"]),
                reserved=int(r["reserved_peak_with_cublas"] or 0))


def beside(r):
    """What is trained beside adapters, as --lora has it."""
    return "".join(",%s=%s" % (k, r[k]) for k in ("save", "tokens") if r.get(k, "0") not in ("", "0", "none"))


def of_ours(r, scratch):
    path = os.path.join(scratch, "%s-%08x.json" % (r["model"], zlib.crc32(r["config"].encode())))         # a name may stand for two configs
    if not os.path.exists(path):
        with open(path, "w") as f:
            f.write(r["config"])
    recompute = {"full": "full:non-reentrant"}.get(r["recompute"], r["recompute"]) if r.get("versions") else r["recompute"]         # as rows.py tells all libraries
    options = ["--precision", r["precision"], "--attention", r.get("attention", "sdpa:flash"), "--recompute", recompute, "--optimizer",
               r["optimizer"], "--micro-batch", r["micro_batch"]]
    for column, option in (("task", "--task"), ("seq", "--seq"), ("target_seq", "--target-seq"), ("padding", "--padding"),
                           ("eval_batch", "--eval-batch"), ("packing", "--packing"), ("images", "--images"), ("image_size", "--image-size"), ("device", "--device")):
        if r.get(column, "0") not in ("", "0") and not (column == "padding" and r.get("packing", "0") != "0"):
            options += [option, r[column]]
    if r.get("lora") in PEFT:
        options += ["--peft", PEFT[r["lora"]] % r]
    elif r.get("lora", "none") != "none":
        options += ["--lora", "r=%s,targets=%s" % (r["rank"], r["lora"]) + ",dora" * (r.get("dora") == "1") + ",dropout=0.1" * (r.get("lora_dropout") == "1") + beside(r), "--load", r["load"]]
    if r.get("second"):
        other = os.path.join(scratch, "second of %s-%08x.json" % (r["model"], zlib.crc32(r["second"].encode())))
        with open(other, "w") as f:
            f.write(r["second"])
        options += ["--resident", "%s=%s" % (r["resident"], other)]
    elif r.get("resident"):
        options += ["--resident", r["resident"]]
    options += ["--freeze", r.get("freeze")] * (r.get("freeze", "none") not in ("", "none"))
    options += ["--prepare", r.get("prepare")] * bool(r.get("prepare"))
    options += ["--alloc-conf", r.get("alloc_conf")] * bool(r.get("alloc_conf"))
    options += ["--offload", "activations"] * (r.get("offload") == "1")
    options += ["--versions", r.get("versions")] * bool(r.get("versions"))
    options += ["--method", r["trainer"]] if r.get("trainer") in METHODS else []
    options += ["--resident", "reference"] * (r.get("beta") == "1")
    options += ["--vllm"] * (r.get("trainer") == "grpo")         # completions are there, as an engine makes them
    options += {"all": ["--liger"], "loss": ["--loss", "liger"]}.get(r.get("liger"), [])
    phases = {p: int(r["allocated_" + p]) for p in PHASES + ["evaluate"] if r.get("allocated_" + p)}
    return dict(trainer="trl" if r.get("trainer") in METHODS else r.get("trainer", "torch"), name=r["model"], model=path, options=options, workspaces=True, phases=phases, peak=max(phases.values()),
                reserved=int(r["reserved"]))


def read(path, scratch):
    with open(path) as f:
        lines = list(f)
    order = {"order": "falling" if lines[0].startswith("#") and "addresses fall" in lines[0] else "rising"}         # of addresses, as they were played
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    if "alloc_peak" in rows[0]:
        return [dict(of_fake_peaks(r, os.path.dirname(os.path.abspath(path))), **order) for r in rows]
    return [dict(of_ours(r, scratch), **order) for r in rows]


def allocated(part, with_workspaces):
    return sum(i["bytes"] for i in part["items"] if with_workspaces or i["name"] != "cublas_workspace")


def answer(vplan, row):
    command = [vplan, "estimate", row["model"], "--trainer", row.get("trainer", "torch"), "--json"] + row["options"]
    p = subprocess.run(command, stdout=subprocess.PIPE, env=dict(os.environ, VPLAN_NULL_ADDRESSES=row.get("order", "rising")))
    return p.returncode, json.loads(p.stdout)


def is_recorded(vplan, row):
    """Answered, and not put together from other steps."""
    code, j = answer(vplan, row)
    return code in (0, 3) and not any("put together" in x for x in j["assumptions"])


def estimate(vplan, row):
    """Errors of one row: {"peak": .., "reserved": .., phase: ..}, or the refusal's text."""
    code, j = answer(vplan, row)
    if code not in (0, 3):
        return j["error"]["message"]
    phases = {x["name"]: x for x in j["phases"]}
    here = {p: allocated(phases[p], row["workspaces"]) for p in row["phases"]}
    out = {p: here[p] / row["phases"][p] - 1 for p in here}
    free = j.get("without_limit", j)         # rows are of a card that never fills
    out["peak"] = (max(here.values()) if free is j else free["allocated_peak_bytes"]) / row["peak"] - 1
    if row.get("with_workspaces"):
        out["peak_w"] = j["allocated_peak_bytes"] / row["with_workspaces"] - 1
    out["reserved"] = free["reserved_peak_bytes"] / row["reserved"] - 1 if row["reserved"] else 0
    return out


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("rows")
    p.add_argument("--vplan", default="build/vplan")
    p.add_argument("--worst", type=int, default=10)
    p.add_argument("--each", action="store_true")
    p.add_argument("--only", nargs="*", default=[], help="words that the name or an option of a row must hold")
    a = p.parse_args()
    answers, refused = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        for row in read(a.rows, scratch):
            text = " ".join([row["name"], row.get("trainer", "torch")] + row["options"])
            if not all(w in text for w in a.only):
                continue
            got = estimate(a.vplan, row)
            if isinstance(got, str):
                refused.setdefault(got, []).append(text)
            else:
                answers.append((got, text))
    print("%d rows, %d answered" % (len(answers) + sum(map(len, refused.values())), len(answers)))
    for reason, names in sorted(refused.items(), key=lambda x: -len(x[1])):
        print("refused %d: %s\n    %s" % (len(names), reason, "\n    ".join(names[:3] if not a.each else names)))
    if not answers:
        sys.exit(1)
    print("%-10s %9s %9s %9s %9s %6s" % ("error", "median", "95 %", "worst", "lowest", "0"))
    for key in ["peak", "peak_w", "reserved"] + PHASES + ["evaluate"]:
        e = [x[0][key] for x in answers if key in x[0]]
        if not e:
            continue
        m = [abs(x) for x in e]
        print("%-10s %8.4f%% %8.4f%% %8.4f%% %8.4f%% %6d" % (key, 100 * percentile(m, 0.5), 100 * percentile(m, 0.95), 100 * max(m),
                                                        100 * min(e), sum(x == 0 for x in e)))
    shown = sorted(answers, key=lambda x: -max(abs(x[0]["peak"]), abs(x[0]["reserved"])))
    for got, text in shown[:len(shown) if a.each else a.worst]:
        print("peak %+.4f%% reserved %+.4f%% %s | %s" % (100 * got["peak"], 100 * got["reserved"], text,
              " ".join("%s %+.3f%%" % (k, 100 * got[k]) for k in PHASES + ["evaluate"] if got.get(k))))


if __name__ == "__main__":
    main()
