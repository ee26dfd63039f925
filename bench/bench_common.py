"""What the programs of bench/ share: the results file, this machine in words, the programs of the build.

A results file is {schema_version, commit, part, device, driver, libraries{}, rows[{name, predicted, measured,
raw_seconds[]}]}; added here are `conditions` (machine, load before and after) and `settings` (what was asked for)."""
import argparse
import collections
import json
import math
import os
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def skip(why):
    print(f"SKIP {why}", flush=True)
    sys.exit(SKIPPED)


def fail(why):
    print(f"bench: {why}", file=sys.stderr)
    sys.exit(1)


def parser(description):
    p = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    p.add_argument("--build", default=os.environ.get("BUILD", os.path.join(ROOT, "build")), help="folder of vplan and vplan-run")
    p.add_argument("--out", help="folder of the results (BUILD/bench)")
    p.add_argument("--commit", default="unknown", help="what is measured; goes into the results")
    return p


def program(args, name):
    path = os.path.join(args.build, name)
    if not os.access(path, os.X_OK):
        fail(f"{path} is not there; run make first")
    return path


def output(command, **options):
    """Standard output of a command that must succeed."""
    r = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if r.returncode != 0:
        fail(f"{' '.join(command)}: exit {r.returncode}: {r.stderr.strip()[-2000:]}")
    return r.stdout


# ---- figures ----

def quantile(values, q):
    """Linear between the neighbours: q 0.5 is the median."""
    v = sorted(values)
    at = q * (len(v) - 1)
    low = int(at)
    return v[low] + (at - low) * (v[min(low + 1, len(v) - 1)] - v[low])


def median(values):
    return quantile(values, 0.5)


# ---- this machine ----

def cpuinfo():
    """(model name, instruction set) of the first processor."""
    fields = {}
    with open("/proc/cpuinfo") as f:
        for line in f:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    isa = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "baseline")
    return fields.get("model name", "unknown"), isa


def machine():
    """Nothing here names the machine itself."""
    model, isa = cpuinfo()
    return {"cpu": model, "instruction_set": isa, "n_cpus": n_cpus(), "kernel": f"{os.uname().sysname} {os.uname().release.split('-')[0]}",
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def n_cpus():
    return len(os.sched_getaffinity(0))


def load():
    return os.getloadavg()[0]


# ---- results ----

def part_name(name, args, **recorded):
    """name, with -rehearsal behind it where an option differs from what is recorded, so that neither replaces the other."""
    return name if all(getattr(args, option) == value for option, value in recorded.items()) else f"{name}-rehearsal"


def write_results(args, part, device, libraries, conditions, settings, rows, driver=None):
    """DEVICE-YYYY-MM-DD-PART.json, whole or not at all. Returns its path."""
    folder = args.out or os.path.join(args.build, "bench")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{device}-{time.strftime('%Y-%m-%d', time.gmtime())}-{part}.json")
    head = {"schema_version": 1, "commit": args.commit, "part": part, "device": device, "driver": driver, "libraries": libraries,
            "conditions": conditions, "settings": settings}
    fd, tmp = tempfile.mkstemp(dir=folder, prefix=".bench-")
    with os.fdopen(fd, "w") as f:
        f.write(json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n')
        f.write(",\n".join("  " + json.dumps(r) for r in rows))
        f.write("\n ]\n}\n")
    os.chmod(tmp, 0o644)
    os.replace(tmp, path)
    return path


# ---- plans on this machine ----

RECOMPUTE = ("none", "attention", "mlp", "full")


def answer(command, allowed=(0,)):
    """What a program of ours prints as JSON; {} where it prints nothing."""
    r = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if r.returncode not in allowed:
        fail(f"{' '.join(command)}: exit {r.returncode}: {r.stderr.strip()[-2000:]}")
    return json.loads(r.stdout) if r.stdout.strip() else {}


def job(args):
    """The words for a model on the CPU, of args.model, seq and global_batch."""
    return [args.model, "--device", "cpu", "--seq", str(args.seq), "--global-batch", str(args.global_batch)]


def plan(args, path, budget, *options):
    """What plan answers; its file at path unless it does not fit."""
    return answer([program(args, "vplan"), "plan", *job(args), "--budget", str(budget), "-o", path, "--force", "--within", "0", "--json", *options], (0, 3))


def most_bytes(args):
    """All that any plan could use."""
    return answer([program(args, "vplan"), "plan", *job(args), "--recompute", "none", "--loss", "full", "--micro-batch", str(args.global_batch), "--json"])["device_bytes"]


def middle(values):
    """The mean without the least and the greatest quarter."""
    v = sorted(values)
    v = v[len(v) // 4:len(v) - len(v) // 4]
    return sum(v) / len(v)


Lane = collections.namedtuple("Lane", "off error seconds rounds")


def race(args, paths, rounds):
    """{path: Lane} of plans that are all alive in one process and do a step each in turns: the middle of ln(its step over the round's), its standard error, the
    seconds and that logarithm of each round."""
    steps = [p["step_s"] for p in answer([program(args, "vplan-run"), "--compare", *paths, "--steps", str(rounds), "--json"])["plans"]]
    of_round = [middle([math.log(s[r]) for s in steps]) for r in range(rounds)]
    result = {}
    for path, s in zip(paths, steps):
        off = [math.log(x) - m for x, m in zip(s, of_round)]
        deviation = (quantile(off, 0.75) - quantile(off, 0.25)) / 1.349
        result[path] = Lane(middle(off), 1.25 * deviation / math.sqrt(rounds), s, off)
    return result


def prediction_of(path):
    with open(path) as f:
        return json.load(f)["prediction"]["step_time_s"]
