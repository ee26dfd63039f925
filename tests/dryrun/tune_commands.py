#!/usr/bin/env python3
# tests/dryrun/tune_commands.py: vplan tune -- CMD against dry runs of the whole space, on real PyTorch commands.
#     python3 tests/dryrun/tune_commands.py play FOLDER --vplan build/vplan --python PYTHON [--only NAME] [--cards A,B]
#     python3 tests/dryrun/tune_commands.py tune FOLDER --vplan build/vplan --python PYTHON [--real] [-o results.json]
# play: every setting of every command on every card, in one dry run a command and card (play_space.py), kept in FOLDER.
# tune: the tuner, whose trials are answered from FOLDER (--real: by dry runs of their own). The returned setting fits in the exhaustive search,
# nothing that fits there is predicted to be faster, at most a quarter of the space was tried; and with --real its peaks are those of FOLDER.
import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
scripts = os.path.join(here, "scripts")
loop = [os.path.join(scripts, "tunable.py")]
trainers = [os.path.join(scripts, "tunable_trainer.py")]
batches = {"--batch": [2, 4, 6, 8, 12, 24], "--accum": [12, 6, 4, 3, 2, 1]}
more = dict(batches, **{"--ckpt": [0, 1], "--optim": ["foreach", "fused"]})
start = ["--batch", "4", "--accum", "6", "--ckpt", "0", "--optim", "foreach"]
divisors = [1, 2, 3, 4, 6, 8, 12, 24]
micro, times = "--per_device_train_batch_size", "--gradient_accumulation_steps"
# the axes of transformers' flags, as tune knows them by itself
known = {micro: divisors, times: divisors[::-1], "--gradient_checkpointing": ["False", "True"],
         "--optim": ["adamw_torch", "adamw_torch_fused"]}
flags = [micro, "4", times, "6", "--gradient_checkpointing", "False", "--optim", "adamw_torch"]
# name: words of the command, its axes, whether tune knows them by itself, ranks, what to import once: nothing that asks for a device
COMMANDS = {
    "plain loop": (loop + start, more, False, 1, []),
    "gpt2": (loop + ["--model", "gpt2", "--attention", "eager"] + start[:-2], dict(batches, **{"--ckpt": [0, 1], "--attention": ["eager", "sdpa"]}),
             False, 1, ["transformers.models.gpt2.modeling_gpt2"]),
    "lora loop": (loop + ["--model", "lora"] + start, more, False, 1, ["transformers.models.gpt2.modeling_gpt2", "peft"]),
    "trainer": (trainers + ["trainer"] + flags, known, True, 1, ["accelerate", "transformers.models.llama.modeling_llama"]),
    "trainer lora": (trainers + ["lora", "--bf16", "True"] + flags, known, True, 1,
                     ["accelerate", "transformers.models.llama.modeling_llama"]),
    "trl sft": (trainers + ["sft", "--bf16", "True"] + flags, known, True, 1, ["accelerate", "datasets", "transformers.models.llama.modeling_llama"]),
    "trl dpo": (trainers + ["dpo", "--bf16", "True"] + flags, known, True, 1, ["accelerate", "datasets", "transformers.models.llama.modeling_llama"]),
    "accelerate": (trainers + ["accelerate"] + start, more, False, 1, ["accelerate", "transformers.models.llama.modeling_llama"]),
    "lightning": (trainers + ["lightning"] + start, more, False, 1, ["lightning", "transformers.models.llama.modeling_llama"]),
    "fsdp2": (trainers + ["fsdp2"] + start, more, False, 8, ["transformers.models.llama.modeling_llama"]),
    "zero2": (trainers + ["zero2"] + start, more, False, 8, ["deepspeed", "transformers.models.llama.modeling_llama"]),
    "zero3": (trainers + ["zero3"] + start, more, False, 8, ["deepspeed", "transformers.models.llama.modeling_llama"]),
}
# card: where between the bytes of the smallest and the largest setting its budget lies
CARDS = {"l4-24gb": 0.55, "h100-sxm-80gb": 0.3, "a100-sxm-40gb": 0.8}
STEPS = "2"


def settings_of(space):
    names = list(space)
    for values in itertools.product(*space.values()):
        s = dict(zip(names, map(str, values)))
        if int(s[names[0]]) * int(s[names[1]]) == 24:
            yield s


def replaced(command, setting):
    command = list(command)
    for name, value in setting.items():
        if name in command:
            command[command.index(name) + 1] = value
        else:
            command += [name, value]
    return command


def key(setting):
    return "_".join("%s-%s" % (n.strip("-"), v) for n, v in sorted(setting.items()))


def environment(a):
    return dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", PYTHONPATH=scripts)


def dryrun(a, card, budget, world, command, cwd):
    words = [a.vplan, "dryrun", "--json", "--no-owners", "--time", "--steps", STEPS, "--device", card]
    words += ["--budget", str(budget)] if budget else []
    words += ["--world", str(world)] if world > 1 else []
    out = subprocess.run(words + ["--"] + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=environment(a))
    return json.loads(out.stdout), out


def play_some(a, name, card, budget, jobs, folder):
    """Reports of these settings, then each as a document of its own: what dryrun says of such a report."""
    command, _, _, world, imports = COMMANDS[name]
    os.makedirs(folder, exist_ok=True)
    reports = os.path.join(folder, "reports")
    os.makedirs(reports, exist_ok=True)
    missing = [(key(s), replaced(command, s)) for s in jobs if not os.path.exists(os.path.join(folder, key(s) + ".json"))]
    if not missing:
        return
    with open(os.path.join(folder, "jobs"), "w") as f:
        json.dump({"imports": imports, "jobs": missing}, f)
    _, out = dryrun(a, card, budget, world, [a.python, os.path.join(here, "play_space.py"), os.path.join(folder, "jobs"), reports], folder)
    for k, _ in missing:
        report = os.path.join(reports, k + ".json")
        d, _ = dryrun(a, card, budget, 1, ["python3", "-S", os.path.join(here, "play_again.py"), report], folder)
        if d["verdict"] == "failed":
            sys.exit("%s on %s, %s: %s\n%s" % (name, card, k, d.get("reason"), out.stderr.decode()[-3000:]))
        with open(os.path.join(folder, k + ".json"), "w") as f:
            json.dump(d, f)


def play(a):
    for card, share in CARDS.items():
        for name, (command, space, _, _, _) in COMMANDS.items():
            if (a.only and name not in a.only.split(",")) or (a.cards and card not in a.cards.split(",")):
                continue
            folder = os.path.join(a.folder, name.replace(" ", "_"), card)
            ends = [min(settings_of(space), key=lambda s: (int(list(s.values())[0]), s.get("--ckpt", s.get("--gradient_checkpointing")) in ("0", "False"))),
                    max(settings_of(space), key=lambda s: (int(list(s.values())[0]), s.get("--ckpt", s.get("--gradient_checkpointing")) in ("0", "False")))]
            play_some(a, name, card, 0, ends, os.path.join(folder, "whole"))
            least, most = [json.load(open(os.path.join(folder, "whole", key(s) + ".json")))["device_bytes"] for s in ends]
            budget = int(least + share * (most - least)) >> 20 << 20
            with open(os.path.join(folder, "budget"), "w") as f:
                f.write(str(budget))
            play_some(a, name, card, budget, list(settings_of(space)), os.path.join(folder, "all"))
            print(name, card, budget, "played", flush=True)


# ---- the tuner ----

ANSWERS = """#!%s
import json, os, sys
words = sys.argv[1:]
command = words[words.index("--") + 1:]
name = os.environ["ANSWERS"]
space = json.loads(os.environ["SPACE"])
setting = {n: command[command.index(n) + 1] for n in space}
path = os.path.join(name, "_".join("%%s-%%s" %% (n.strip("-"), v) for n, v in sorted(setting.items())) + ".json")
d = json.load(open(path))
print(json.dumps(d))
sys.exit(d["exit_code"])
"""


def tuned(a, name, card, budget, folder):
    command, space, knows, world, _ = COMMANDS[name]
    with tempfile.TemporaryDirectory() as cwd:
        program = a.vplan
        if not a.real:      # a vplan whose dry runs are looked up
            program = os.path.join(cwd, "bin", "tuner")
            shutil.copytree(os.path.dirname(a.vplan), os.path.join(cwd, "bin"), symlinks=True,
                            ignore=lambda d, names: [n for n in names if n not in ("vplan", "null", "libvplan-null.so")])
            os.rename(os.path.join(cwd, "bin", "vplan"), program)
            with open(os.path.join(cwd, "bin", "vplan"), "w") as f:
                f.write(ANSWERS % sys.executable)
            os.chmod(os.path.join(cwd, "bin", "vplan"), 0o755)
        os.mkdir(os.path.join(cwd, "cwd"))
        words = [program, "tune", "--json", "--device", card, "--budget", str(budget), "--steps", STEPS, "--max-trials", "1000", "--jobs", "1"]
        words += ["--world", str(world)] if world > 1 else []
        for axis, values in ({} if knows else space).items():
            words += ["--try", "%s=%s" % (axis, ",".join(str(v) for v in values))]
        words += [] if knows else ["--keep", "batch*accum=24"]
        env = dict(environment(a), ANSWERS=os.path.join(folder, "all"), SPACE=json.dumps(list(space)))
        out = subprocess.run(words + ["--", a.python] + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             cwd=os.path.join(cwd, "cwd"), env=env)
    return json.loads(out.stdout) if out.stdout else {"error": out.stderr.decode()[-2000:]}


def judged(d, runs, n_settings):
    """What is wrong with an answer, and how much slower than the fastest that fits."""
    fits = {key(s): r for s, r in runs if r["verdict"] == "fits" and not r.get("oom") and r.get("time")}
    if not d.get("best"):
        return (["nothing was returned: %s" % d.get("error")] if fits else []), None, len(fits)
    mine = fits.get(key(d["best"]["settings"]))
    if not mine:
        return ["the returned setting does not fit in the exhaustive search"], None, len(fits)
    wrong = []
    fastest = max(r["time"]["samples_per_s"] for r in fits.values())
    behind = fastest / mine["time"]["samples_per_s"] - 1
    if behind > 1e-9:
        wrong.append("%.3g %% slower than the fastest that fits" % (100 * behind))
    if any(d["best"][k] != mine[k] for k in ("allocated_peak_bytes", "reserved_peak_bytes")):
        wrong.append("other peaks than an independent dry run")
    n = sum(bool(t["settings"]) for t in d["trials"])
    if n > n_settings / 4 + 1e-9:
        wrong.append("%d of %d were played" % (n, n_settings))
    return wrong, behind, len(fits)


def tune(a):
    rows, failed = [], 0
    for card in CARDS:
        for name, (_, space, _, _, _) in COMMANDS.items():
            folder = os.path.join(a.folder, name.replace(" ", "_"), card)
            settings = list(settings_of(space))
            if (a.only and name not in a.only.split(",")) or (a.cards and card not in a.cards.split(",")) or not all(
                    os.path.exists(os.path.join(folder, "all", key(s) + ".json")) for s in settings):
                continue
            budget = int(open(os.path.join(folder, "budget")).read())
            runs = [(s, json.load(open(os.path.join(folder, "all", key(s) + ".json")))) for s in settings]
            d = tuned(a, name, card, budget, folder)
            wrong, behind, n_fit = judged(d, runs, len(settings))
            best = d.get("best") or {}
            rows.append({"command": name, "card": card, "budget_bytes": budget, "space": len(settings), "fit": n_fit,
                         "trials": len(d.get("trials", [])), "best": best.get("settings"), "allocated_peak_bytes": best.get("allocated_peak_bytes"),
                         "reserved_peak_bytes": best.get("reserved_peak_bytes"), "samples_per_s": best.get("samples_per_s"),
                         "had_samples_per_s": (d.get("had") or {}).get("samples_per_s"), "behind": behind, "real": a.real, "wrong": wrong})
            failed += bool(wrong)
            print("%-12s %-14s %6d MiB %2d of %2d fit, %2d trials: %s %s" % (
                name, card, budget >> 20, n_fit, len(settings), rows[-1]["trials"], " ".join((best.get("settings") or {}).values()),
                "; ".join(wrong) or "right"), flush=True)
            if a.out:
                with open(a.out, "w") as f:
                    json.dump({"schema_version": 1, "rows": rows}, f, indent=1)
                    f.write("\n")
    print("%d commands and cards, %d wrong" % (len(rows), failed))
    return failed != 0


p = argparse.ArgumentParser()
p.add_argument("what", choices=("play", "tune"))
p.add_argument("folder")
p.add_argument("--vplan", default="build/vplan")
p.add_argument("--python", default="python3")
p.add_argument("--only")
p.add_argument("--cards")
p.add_argument("--real", action="store_true")
p.add_argument("-o", dest="out")
a = p.parse_args()
a.vplan, a.folder = os.path.abspath(a.vplan), os.path.abspath(a.folder)
sys.exit(play(a) if a.what == "play" else tune(a))
