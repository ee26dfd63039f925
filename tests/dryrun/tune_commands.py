#!/usr/bin/env python3
# tests/dryrun/tune_commands.py: vplan tune -- CMD against dry runs of the whole space, on real PyTorch commands.
#     python3 tests/dryrun/tune_commands.py play FOLDER --vplan build/vplan --python PYTHON [--only NAME] [--cards A,B]
#     python3 tests/dryrun/tune_commands.py tune FOLDER --vplan build/vplan --python PYTHON [--real] [--again] [-o results.json]
#     python3 tests/dryrun/tune_commands.py sweep FOLDER --vplan build/vplan
# play: every setting of every command without a limit on each kind of card, in one dry run a command (play_space.py), kept in FOLDER. A run that never
# held more than the budget is the run that the budget gives: nothing was ever refused. The others are played again at the budget, and with segments
# that grow where the tuner may try these. Two cards with the same capability and multiprocessors are told apart by PyTorch by name and memory alone (all that
# dryrun/environment.c tells the stand-in), so they share the runs without a limit.
# tune: the tuner, whose trials are answered from FOLDER (--real: by dry runs of their own). The returned setting fits in the exhaustive search,
# nothing that fits there is predicted to be faster, at most a quarter of the space was tried; with --again (or --real) its peaks are those of
# the returned command line in a dry run of its own.
# sweep: the same at ten budgets a space, where what reserves more than the budget is taken to run out of memory: a check of the search alone.
import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

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
    "lora loop": (loop + ["--model", "lora"] + start, more, False, 1, ["transformers.models.gpt2.modeling_gpt2"]),
    "plain loop three": (loop + start[:-1] + ["forloop"], dict(more, **{"--optim": ["forloop", "foreach", "fused"]}), False, 1, []),
    "lora eager": (loop + ["--model", "lora", "--attention", "eager"] + start[:-2], dict(batches, **{"--ckpt": [0, 1], "--attention": ["eager", "sdpa"]}),
                   False, 1, ["transformers.models.gpt2.modeling_gpt2"]),
    "gpt2 three": (loop + ["--model", "gpt2"] + start[:-1] + ["forloop"], dict(more, **{"--optim": ["forloop", "foreach", "fused"]}), False, 1,
                   ["transformers.models.gpt2.modeling_gpt2"]),
    "trainer": (trainers + ["trainer"] + flags, known, True, 1, ["accelerate", "transformers.models.llama.modeling_llama"]),
    "trainer lora": (trainers + ["lora", "--bf16", "True"] + flags, known, True, 1,
                     ["accelerate", "transformers.models.llama.modeling_llama"]),
    "trainer bert": (trainers + ["bert", "--bf16", "True"] + flags, known, True, 1, ["accelerate", "transformers.models.bert.modeling_bert"]),
    "trl sft": (trainers + ["sft", "--bf16", "True"] + flags, known, True, 1, ["accelerate", "datasets", "transformers.models.llama.modeling_llama"]),
    "trl dpo": (trainers + ["dpo", "--bf16", "True"] + flags, known, True, 1, ["accelerate", "datasets", "transformers.models.llama.modeling_llama"]),
    "accelerate": (trainers + ["accelerate"] + start, more, False, 1, ["accelerate", "transformers.models.llama.modeling_llama"]),
    "lightning": (trainers + ["lightning"] + start, more, False, 1, ["lightning", "transformers.models.llama.modeling_llama"]),
    "fsdp2": (trainers + ["fsdp2"] + start, more, False, 8, ["transformers.models.llama.modeling_llama"]),
    "zero2": (trainers + ["zero2"] + start, more, False, 8, ["deepspeed", "transformers.models.llama.modeling_llama"]),
    "zero3": (trainers + ["zero3"] + start, more, False, 8, ["deepspeed", "transformers.models.llama.modeling_llama"]),
}
# card: where between the bytes of the smallest and the largest setting its budget lies
CARDS = {"l4-24gb": 0.55, "h100-sxm-80gb": 0.3, "a100-sxm-40gb": 0.8, "h200-sxm-141gb": 0.65}
STEPS = "2"
# what dryrun tells the stand-in of the card and of its limit (dryrun/environment.c)
TOLD = ["VPLAN_NULL_" + n for n in ("NAME", "CC", "SM_COUNT", "TOTAL_BYTES", "LIMIT_BYTES", "CONTEXT_BYTES")]
ALLOCATOR, GROWING = "PYTORCH_ALLOC_CONF", "expandable_segments:True"


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
        elif name != ALLOCATOR:
            command += [name, value]
    return command


def key(setting):
    return "_".join("%s-%s" % (n.strip("-"), v.replace(":", "-")) for n, v in sorted(setting.items()) if v != "default")


def environment(a):
    return dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", PYTHONPATH=scripts)


def words_of(a, card, budget, world):
    words = [a.vplan, "dryrun", "--json", "--no-owners", "--time", "--steps", STEPS, "--device", card]
    words += ["--budget", str(budget)] if budget else []
    return words + (["--world", str(world)] if world > 1 else [])


def dryrun(a, card, budget, world, command, cwd):
    out = subprocess.run(words_of(a, card, budget, world) + ["--"] + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=environment(a))
    return json.loads(out.stdout), out


def variables_of(a, card, budget):
    """What dryrun tells the stand-in of a card and a budget."""
    with tempfile.TemporaryDirectory() as cwd:
        dryrun(a, card, budget, 1, ["sh", "-c", "env >told"], cwd)
        with open(os.path.join(cwd, "told")) as f:
            told = dict(line.rstrip("\n").split("=", 1) for line in f if line.startswith("VPLAN_NULL_"))
    return {n: told[n] for n in TOLD}


class Player:
    """One dry run of play_space.py for a command, started when the first report is asked for."""
    def __init__(self, a, name, card, folder):
        self.a, self.name, self.card, self.folder, self.run = a, name, card, folder, None

    def start(self):
        _, _, _, world, imports = COMMANDS[self.name]
        pipe = os.path.join(self.folder, "jobs")
        if os.path.exists(pipe):
            os.unlink(pipe)
        os.mkfifo(pipe)
        with open(os.path.join(self.folder, "said"), "wb") as said:
            self.run = subprocess.Popen(words_of(self.a, self.card, 0, world) +
                                        ["--", self.a.python, os.path.join(here, "play_space.py"), pipe, self.folder] + imports,
                                        stdout=subprocess.DEVNULL, stderr=said, cwd=self.folder, env=environment(self.a))
        self.jobs = open(os.open(pipe, os.O_RDWR), "w", buffering=1)    # read and write: does not wait for the other side

    def reports(self, card, budget, settings, folder):
        """Reports of these settings as the probe wrote them, in folder."""
        os.makedirs(folder, exist_ok=True)
        missing = [s for s in settings if not os.path.exists(os.path.join(folder, key(s) + ".json"))]
        if missing and not self.run:
            self.start()
        told = variables_of(self.a, card, budget) if missing else {}
        for s in missing:
            done = os.path.join(folder, key(s) + ".json")
            more = {k: v for k, v in s.items() if k == ALLOCATOR}
            self.jobs.write(json.dumps([done, replaced(COMMANDS[self.name][0], s), dict(told, **more)]) + "\n")
            while not os.path.exists(done):
                if self.run.poll() is not None:
                    sys.exit("%s: the dry run ended: see %s" % (done, os.path.join(self.folder, "said")))
                time.sleep(0.05)

    def end(self):
        if self.run:
            self.jobs.close()
            self.run.wait()


def document_of(a, card, budget, report):
    """What dryrun says of a report at a budget."""
    d, _ = dryrun(a, card, budget, 1, ["python3", "-S", os.path.join(here, "play_again.py"), report], "/tmp")
    if d["verdict"] == "failed":
        sys.exit("%s: %s\n%s" % (report, d.get("reason"), d.get("error")))
    return d


def kind_of(a, card):
    """Cards of which PyTorch is told the same, but for name and memory."""
    out = subprocess.run([a.vplan, "devices", "--json"], stdout=subprocess.PIPE, check=True)
    d = next(d for d in json.loads(out.stdout)["devices"] if d["name"] == card)
    return "%dx%d" % (d["compute_capability"], d["multiprocessors"])


def ends_of(space):
    """The settings that need least and most."""
    def size(s):
        return int(list(s.values())[0]), s.get("--ckpt", s.get("--gradient_checkpointing")) in ("0", "False")
    return [min(settings_of(space), key=size), max(settings_of(space), key=size)]


def chosen(a):
    for card in CARDS:
        for name in COMMANDS:
            if (not a.only or name in a.only.split(",")) and (not a.cards or card in a.cards.split(",")):
                yield card, name, os.path.join(a.folder, name.replace(" ", "_"))


def play_on(a, player, card, folder):
    _, space, knows, _, _ = COMMANDS[player.name]
    settings = list(settings_of(space))
    whole, own = os.path.join(folder, kind_of(a, card)), os.path.join(folder, card)
    player.reports(card, 0, settings, whole)
    ends = [os.path.join(whole, key(s) + ".json") for s in ends_of(space)]
    least, most = [document_of(a, card, 0, e)["device_bytes"] for e in ends]
    budget = int(least + CARDS[card] * (most - least)) >> 20 << 20
    again, answers = [], os.path.join(own, "answers")
    os.makedirs(answers, exist_ok=True)
    for s in settings:
        d = document_of(a, card, budget, os.path.join(whole, key(s) + ".json"))
        if d["device_bytes"] > budget:
            again += [s] + ([dict(s, **{ALLOCATOR: GROWING})] if knows else [])
            continue
        with open(os.path.join(answers, key(s) + ".json"), "w") as f:
            json.dump(d, f)
    at_budget = os.path.join(own, "at-budget")
    player.reports(card, budget, again, at_budget)
    for s in again:
        with open(os.path.join(answers, key(s) + ".json"), "w") as f:
            json.dump(document_of(a, card, budget, os.path.join(at_budget, key(s) + ".json")), f)
    with open(os.path.join(own, "budget"), "w") as f:
        f.write(str(budget))
    print(player.name, card, budget, "played, %d again at the budget" % len(again), flush=True)


def play(a):
    for name, cards in itertools.groupby(sorted(chosen(a), key=lambda c: list(COMMANDS).index(c[1])), key=lambda c: c[1]):
        player = None
        for card, _, folder in cards:
            os.makedirs(folder, exist_ok=True)
            player = player or Player(a, name, card, folder)
            play_on(a, player, card, folder)
        player.end()


# ---- the tuner ----

ANSWERS = """#!%s
import json, os, sys
words = sys.argv[1:]
command = words[words.index("--") + 1:]
setting = {n: command[command.index(n) + 1] for n in json.loads(os.environ["SPACE"])}
if command[0] == "env":
    setting.update(w.split("=", 1) for w in command if w.startswith("PYTORCH_ALLOC_CONF="))
name = "_".join("%%s-%%s" %% (n.strip("-"), v.replace(":", "-")) for n, v in sorted(setting.items()))
d = json.load(open(os.path.join(os.environ["ANSWERS"], name + ".json")))
print(json.dumps(d))
sys.exit(d["exit_code"])
"""


def tuned(a, name, card, budget, answers):
    command, space, knows, world, _ = COMMANDS[name]
    with tempfile.TemporaryDirectory() as cwd:
        program = a.vplan
        if not a.real:      # a vplan whose dry runs are looked up
            program = os.path.join(cwd, "bin", "tuner")
            os.makedirs(os.path.join(cwd, "bin", "null"))
            os.link(a.vplan, program) if os.stat(a.vplan).st_dev == os.stat(cwd).st_dev else shutil.copy(a.vplan, program)
            shutil.copy(os.path.join(os.path.dirname(a.vplan), "null", "libvplan-null.so"), os.path.join(cwd, "bin", "null"))
            with open(os.path.join(cwd, "bin", "vplan"), "w") as f:
                f.write(ANSWERS % sys.executable)
            os.chmod(os.path.join(cwd, "bin", "vplan"), 0o755)
        os.mkdir(os.path.join(cwd, "cwd"))
        words = [program, "tune", "--json", "--device", card, "--budget", str(budget), "--steps", STEPS, "--max-trials", "1000", "--jobs", "1"]
        words += ["--world", str(world)] if world > 1 else []
        for axis, values in ({} if knows else space).items():
            words += ["--try", "%s=%s" % (axis, ",".join(str(v) for v in values))]
        words += [] if knows else ["--keep", "batch*accum=24"]
        env = dict(environment(a), ANSWERS=answers, SPACE=json.dumps(list(space)))
        out = subprocess.run(words + ["--", a.python] + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             cwd=os.path.join(cwd, "cwd"), env=env)
    return json.loads(out.stdout) if out.stdout else {"error": out.stderr.decode()[-2000:]}


def judged(d, runs, n_settings):
    """What is wrong with an answer, and how much slower than the fastest that fits."""
    fits = {k: r for k, r in runs.items() if r["verdict"] == "fits" and not r.get("oom") and r.get("time")}
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
        wrong.append("other peaks than the exhaustive search")
    n = sum(bool(t["settings"]) for t in d["trials"])
    if n > n_settings / 4 + 1e-9:
        wrong.append("%d of %d were played" % (n, n_settings))
    return wrong, behind, len(fits)


def answers_in(folder):
    return {n[:-5]: json.load(open(os.path.join(folder, n))) for n in sorted(os.listdir(folder)) if n.endswith(".json")}


def again(a, name, card, budget, best):
    """The returned command line in a dry run of its own: what differs from what was returned."""
    with tempfile.TemporaryDirectory() as cwd:
        d, _ = dryrun(a, card, budget, COMMANDS[name][3], best["command"], cwd)
    return ["dry run again: %s %d, not %d" % (k, d[k], best[k]) for k in ("allocated_peak_bytes", "reserved_peak_bytes") if d[k] != best[k]]


def tune(a):
    rows, failed = [], 0
    if a.out and os.path.exists(a.out):
        rows = json.load(open(a.out))["rows"]
    for card, name, folder in chosen(a):
        answers = os.path.join(folder, card, "answers")
        if not os.path.exists(os.path.join(folder, card, "budget")):
            continue
        n_settings = len(list(settings_of(COMMANDS[name][1])))
        budget = int(open(os.path.join(folder, card, "budget")).read())
        d = tuned(a, name, card, budget, answers)
        wrong, behind, n_fit = judged(d, answers_in(answers), n_settings)
        best = d.get("best") or {}
        wrong += again(a, name, card, budget, best) if best and a.again else []
        rows = [r for r in rows if (r["command"], r["card"]) != (name, card)]
        rows.append({"command": name, "card": card, "budget_bytes": budget, "space": n_settings, "fit": n_fit,
                     "trials": len(d.get("trials", [])), "best": best.get("settings"), "allocated_peak_bytes": best.get("allocated_peak_bytes"),
                     "reserved_peak_bytes": best.get("reserved_peak_bytes"), "samples_per_s": best.get("samples_per_s"),
                     "had_samples_per_s": (d.get("had") or {}).get("samples_per_s"), "behind": behind,
                     "peaks_again": bool(best and (a.again or a.real)), "wrong": wrong})
        failed += bool(wrong)
        print("%-12s %-14s %6d MiB %2d of %2d fit, %2d trials: %s %s" % (
            name, card, budget >> 20, n_fit, n_settings, rows[-1]["trials"], " ".join((best.get("settings") or {}).values()),
            "; ".join(wrong) or "right"), flush=True)
        if a.out:
            with open(a.out, "w") as f:
                json.dump({"schema_version": 2, "rows": rows}, f, indent=1)
                f.write("\n")
    print("%d commands and cards, %d wrong" % (len(rows), failed))
    return failed != 0


def at_most(d, budget, growing):
    """A run without a limit as it is taken to be at a budget: what it held, or, with segments that grow, what it had allocated."""
    need = d["device_bytes"] if not growing else d["outside_bytes"] + (d["allocated_peak_bytes"] + (20 << 20) - 1) // (20 << 20) * (20 << 20)
    if need <= budget:
        return dict(d, device_bytes=need, reserved_peak_bytes=need - d["outside_bytes"])
    room, least = budget - d["outside_bytes"], d["allocated_peak_bytes"]      # a request that failed: for the cache, or not
    asked = 2 << 20
    return dict(d, verdict="oom", exit_code=3, time=None,
                oom={"phase": "forward1", "requested_bytes": asked, "allocated_bytes": min(room, least) - (asked if least <= room else 0)})


def sweep(a):
    n = failed = 0
    for card, name, folder in chosen(a):
        _, space, knows, _, _ = COMMANDS[name]
        whole, settings = os.path.join(folder, kind_of(a, card)), list(settings_of(space))
        if not all(os.path.exists(os.path.join(whole, key(s) + ".json")) for s in settings):
            continue
        runs = {key(s): (s, document_of(a, card, 0, os.path.join(whole, key(s) + ".json"))) for s in settings}
        sizes = sorted(d["device_bytes"] for _, d in runs.values())
        for i in range(10):
            budget = int(sizes[0] + (i + 0.5) / 10 * (sizes[-1] - sizes[0])) >> 20 << 20
            with tempfile.TemporaryDirectory() as answers:
                for s, d in runs.values():
                    for growing in (False, True) if knows else (False,):
                        k = key(dict(s, **({ALLOCATOR: GROWING} if growing else {})))
                        with open(os.path.join(answers, k + ".json"), "w") as f:
                            json.dump(at_most(d, budget, growing), f)
                d = tuned(a, name, card, budget, answers)
                wrong, _, n_fit = judged(d, answers_in(answers), len(settings))
            n, failed = n + 1, failed + bool(wrong)
            print("%-12s %-14s %6d MiB %2d fit, %2d trials: %s" % (name, card, budget >> 20, n_fit, len(d.get("trials", [])), "; ".join(wrong) or "right"), flush=True)
    print("%d searches, %d wrong" % (n, failed))
    return failed != 0


p = argparse.ArgumentParser()
p.add_argument("what", choices=("play", "tune", "sweep"))
p.add_argument("folder")
p.add_argument("--vplan", default="build/vplan")
p.add_argument("--python", default="python3")
p.add_argument("--only")
p.add_argument("--cards")
p.add_argument("--real", action="store_true")
p.add_argument("--again", action="store_true")
p.add_argument("-o", dest="out")
a = p.parse_args()
a.vplan, a.folder = os.path.abspath(a.vplan), os.path.abspath(a.folder)
sys.exit({"play": play, "tune": tune, "sweep": sweep}[a.what](a))
