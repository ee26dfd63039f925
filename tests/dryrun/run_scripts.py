# tests/dryrun/run_scripts.py: every script of scripts/ under vplan dryrun, as one table.
#   python tests/dryrun/run_scripts.py --vplan build/vplan --python PYTHON [--device NAME] [-o FILE] [NAME...]
# PYTHON has torch and what the scripts import; a script whose imports are not there is listed as skipped.
# The table is compared with what the script itself prints ("peak ALLOCATED RESERVED").
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = "{out}"
SCRIPTS = [      # name, script, arguments, ranks, imports
    ("plain_loop", "plain_loop.py", [OUT + "/x.pt"], 1, ()),
    ("cuda_graph", "graphs.py", [], 1, ()),
    ("trainer_fp32", "trainer.py", [OUT], 1, ("transformers", "accelerate")),
    ("trainer_bf16", "trainer.py", [OUT, "--bf16", "true"], 1, ("transformers", "accelerate")),
    ("trainer_fp16_scaler", "trainer.py", [OUT, "--fp16", "true"], 1, ("transformers", "accelerate")),
    ("trainer_accumulation", "trainer.py", [OUT, "--gradient_accumulation_steps", "4"], 1, ("transformers", "accelerate")),
    ("trainer_checkpointing", "trainer.py", [OUT, "--bf16", "true", "--gradient_checkpointing", "true"], 1,
     ("transformers", "accelerate")),
    ("trainer_adafactor", "trainer.py", [OUT, "--optim", "adafactor"], 1, ("transformers", "accelerate")),
    ("trainer_eval_save", "trainer.py", [OUT, "--eval_strategy", "steps", "--eval_steps", "3", "--save_strategy", "steps",
                                         "--save_steps", "3"], 1, ("transformers", "accelerate")),
    ("peft_lora", "lora.py", [], 1, ("transformers", "peft")),
    ("trl_sft", "sft.py", [OUT], 1, ("trl", "datasets")),
    ("trl_dpo", "dpo.py", [OUT], 1, ("trl", "datasets")),
    ("accelerate", "accelerate_loop.py", [], 1, ("transformers", "accelerate")),
    ("lightning", "lightning_fit.py", [OUT], 1, ("lightning", "transformers")),
    ("ddp", "ddp.py", [], 8, ("transformers",)),
    ("fsdp2", "fsdp2.py", [], 8, ("transformers",)),
    ("deepspeed_zero2", "zero.py", ["2"], 8, ("deepspeed", "transformers")),
    ("convnet", "convnet.py", [], 1, ()),
    ("convnet_channels_last", "convnet.py", ["channels_last"], 1, ()),
    ("lstm", "recurrent.py", [], 1, ()),
    ("torch_compile", "compiled.py", [], 1, ("triton",)),
    ("bitsandbytes", "eight_bit.py", [], 1, ("bitsandbytes",)),
    ("xformers", "memory_efficient.py", [], 1, ("xformers",)),
]
WATCHED = ("torch", "transformers", "peft", "trl", "accelerate", "lightning", "deepspeed", "triton",
           "bitsandbytes", "xformers")


def versions(python):
    code = ("import importlib.metadata as m, json\nv = {}\nfor n in %r:\n  try: v[n] = m.version(n)\n"
            "  except m.PackageNotFoundError: pass\nprint(json.dumps(v))" % (WATCHED,))
    return json.loads(subprocess.run([python, "-c", code], stdout=subprocess.PIPE, check=True).stdout)


def has(python, modules):
    code = "import importlib.util as u, sys; print([m for m in sys.argv[1:] if u.find_spec(m) is None])"
    return subprocess.run([python, "-c", code] + list(modules), stdout=subprocess.PIPE, text=True).stdout.strip()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--vplan", required=True)
    p.add_argument("--python", required=True)
    p.add_argument("--device", default="h100-sxm-80gb")
    p.add_argument("-o")
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    rows, bad = [], 0
    for name, script, args, world, imports in SCRIPTS:
        if a.names and name not in a.names:
            continue
        missing = has(a.python, imports)
        if missing != "[]":
            rows.append({"name": name, "verdict": "skipped", "reason": "not installed: " + missing})
            print("%-22s skipped: not installed: %s" % (name, missing))
            continue
        with tempfile.TemporaryDirectory() as out:
            begin = time.time()
            run = subprocess.run(
                [a.vplan, "dryrun", "--device", a.device, "--world", str(world), "--json", "--", a.python,
                 os.path.join(HERE, "scripts", script)] + [x.replace(OUT, out) for x in args],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            seconds = time.time() - begin
        try:
            doc = json.loads(run.stdout)
        except ValueError:
            doc = {"verdict": "no document", "reason": run.stderr[-300:]}
        own = re.search(r"peak (\d+) (\d+)", run.stderr)
        equal = bool(own) and [int(x) for x in own.groups()] == [doc.get("allocated_peak_bytes"),
                                                                doc.get("reserved_peak_bytes")]
        if doc["verdict"] != "fits" or not equal:
            bad += 1
            sys.stderr.write(run.stderr[-1500:])
        rows.append({"name": name, "verdict": doc["verdict"], "reason": doc.get("reason"), "ranks": world,
                     "allocated_peak_bytes": doc.get("allocated_peak_bytes"),
                     "reserved_peak_bytes": doc.get("reserved_peak_bytes"),
                     "requested_peak_bytes": doc.get("requested_peak_bytes"), "peak_phase": doc.get("peak_phase"),
                     "phases": [x["name"] for x in doc.get("phases", [])],
                     "items": {x["name"]: x["bytes"] for x in doc.get("items", [])},
                     "assumptions": len(doc.get("assumptions", [])),
                     "cudnn": next((x for x in doc.get("assumptions", []) if x.startswith("cuDNN ")), None),
                     "equals_what_the_script_prints": equal, "seconds": round(seconds, 1)})
        print("%-22s %-8s %14s %14s %-10s %s  %.1f s" % (
            name, doc["verdict"], doc.get("allocated_peak_bytes"), doc.get("reserved_peak_bytes"),
            doc.get("peak_phase"), "equal" if equal else "DIFFERS", seconds))
        sys.stdout.flush()
    if a.o:
        with open(a.o, "w") as f:
            json.dump({"schema_version": 1, "device": a.device, "versions": versions(a.python), "rows": rows}, f, indent=1)
            f.write("\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
