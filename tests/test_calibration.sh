#!/bin/bash
# tests/test_calibration.sh: what `vplan estimate --measured` keeps of a card, and what later estimates make of it; sums by hand. The
# last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" <<'P'
import json, os, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = sys.argv[1:3]
kept, seen = work + "/state/vplan/calibration", work + "/seen.txt"
STEP = ["gpt2", "--trainer", "hf", "--precision", "bf16-mixed", "--seq", "256", "--micro-batch", "2"]


def run(*options, **variables):
    env = dict({k: v for k, v in os.environ.items() if k not in ("XDG_STATE_HOME", "HOME")}, **(variables or {"XDG_STATE_HOME": work + "/state"}))
    p = subprocess.run([vplan, "estimate", *STEP, *options], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def estimate(*options, **variables):
    rc, out, said = run("--json", *options, **variables)
    return dict(json.loads(out), rc=rc)


def saw(**lines):
    with open(seen, "w") as f:
        f.writelines("%s %s\n" % x for x in lines.items())
    return "--measured", seen


def lines():
    return [x.split("\t") for x in open(kept).read().split("\n") if x and x[0] != "#"] if os.path.exists(kept) else []


plain = estimate("--device", "l40s")
reserved, allocated = plain["reserved_peak_bytes"], plain["allocated_peak_bytes"]
ok(plain["rc"] == 0 and "calibration" not in plain and not os.path.exists(kept), "nothing is kept of an estimate", plain.get("calibration"))

# ---- kept ----
first = estimate("--device", "l40s", *saw(driver="550.54", torch="2.13.0", reserved=reserved + 3 * 1000000, process=reserved + 503 * 1000000))
want = dict(file=kept, card="l40s-48gb", driver="550.54", torch="2.13.0", context_bytes=500000000, cache_bytes=3000000, kept=True)
ok(first.get("calibration") == want and first["device_bytes"] == reserved + 500000000, "context and cache by hand", first.get("calibration"))
ok(lines() == [["l40s-48gb", "550.54", "2.13.0", "500000000", "3000000"]], "one line of it", lines())
later = estimate("--device", "l40s")
ok(later["device_bytes"] == reserved + 503000000 and later["reserved_peak_bytes"] == reserved and later["calibration"] == dict(want, kept=False),
   "added to a later estimate, whose reserved bytes stay", (later["device_bytes"] - reserved, later.get("calibration")))
more = estimate("--device", "l40s", "--attention", "eager")
ok(more["device_bytes"] - more["reserved_peak_bytes"] == 503000000, "no factor: as much beside a larger step", more["device_bytes"] - more["reserved_peak_bytes"])
text = run("--device", "l40s")[1]
ok("550.54" in text and kept in "".join(text.split()) and "--calibration none" in " ".join(text.split()), "named on the screen, and how to forget it", text[-700:])
other = estimate("--device", "4090")
ok("calibration" not in other, "another card has none", other.get("calibration"))
ok(estimate("--device", "l40s", "--calibration", "none")["device_bytes"] == plain["device_bytes"], "none: as before")
two = estimate("--device", "l40s", "--world", "2", "--parallel", "ddp")
without = estimate("--device", "l40s", "--world", "2", "--parallel", "ddp", "--calibration", "none")
ok(two["device_bytes"] - without["device_bytes"] == later["device_bytes"] - plain["device_bytes"], "NCCL's bytes come on top of a context", two["device_bytes"])

# ---- one line for a card, a driver and a version ----
estimate("--device", "l40s", *saw(driver="550.54", torch="2.13.0", reserved=reserved, process=reserved + 600000000))
ok(lines() == [["l40s-48gb", "550.54", "2.13.0", "600000000", "0"]], "a second look takes its place", lines())
estimate("--device", "l40s", *saw(driver="570.10", reserved=reserved + 9000000, allocated=allocated + 7000000))
ok(lines()[1:] == [["l40s-48gb", "570.10", "-", "-", "2000000"]], "another driver's is a line of its own; of reserved bytes what is not allocated", lines())
later = estimate("--device", "l40s")
ok(later["device_bytes"] == plain["device_bytes"] + 2000000, "the last line counts; a context that was not measured is as assumed", later["device_bytes"])

# ---- not kept ----
before = lines()
LITTLE = dict(reserved=reserved, process=reserved + 1)
for what, options, found in (("off by more than a cache can be", ["--device", "l40s"], dict(reserved=reserved * 11 // 10, process=reserved * 2)),
                             ("without a card", [], LITTLE), ("reserved bytes not measured", ["--device", "l40s"], dict(allocated=allocated)),
                             ("several cards", ["--device", "l40s", "--world", "2", "--parallel", "ddp"], LITTLE),
                             ("--calibration none", ["--device", "l40s", "--calibration", "none"], LITTLE)):
    rc, out, said = run("--json", *options, *saw(**found))
    ok(rc == 0 and lines() == before and "calibration" not in json.loads(out), "not kept: " + what, (rc, said, lines()))

# ---- where ----
os.makedirs(work + "/home")
rc, out, said = run("--device", "l40s", *saw(reserved=reserved, process=reserved + 1000), HOME=work + "/home")
ok(rc == 0 and os.path.exists(work + "/home/.local/state/vplan/calibration"), "without XDG_STATE_HOME: ~/.local/state", said)
rc, out, said = run("--device", "l40s", "--calibration", work + "/mine", *saw(reserved=reserved, process=reserved + 1000))
ok(rc == 0 and "l40s-48gb\t-\t-\t1000\t0\n" in open(work + "/mine").read(), "--calibration FILE", said)
os.remove(kept)
ok("calibration" not in estimate("--device", "l40s"), "deleted is forgotten")

# ---- plan --trainer and check count with it as well: context 600 MB, of the cache 7 MB more; all three have one interval ----
with open(work + "/mine", "w") as f:
    f.write("l40s-48gb\t550.54\t2.13.0\t600000000\t7000000\n")
with open(work + "/trainer.yaml", "w") as f:
    f.write("model_name_or_path: gpt2\nper_device_train_batch_size: 2\nbf16: true\nmax_length: 256\n")


def asked(*words):
    p = subprocess.run([vplan, *words, "--device", "l40s", "--json", "--calibration"] + [work + "/mine"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    q = subprocess.run([vplan, *words, "--device", "l40s", "--json", "--calibration", "none"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return json.loads(p.stdout), json.loads(q.stdout)


PINS = ["--micro-batch", "2", "--recompute", "none", "--precision", "bf16-mixed"]
pairs = {"plan": asked("plan", "gpt2", "--trainer", "hf", "--seq", "256", "--global-batch", "2", *PINS),
         "check": asked("check", work + "/trainer.yaml", "--for", "hf", "--model", "gpt2", "--seq", "256"),
         "estimate": asked("estimate", "gpt2", "--trainer", "hf", "--seq", "256", *PINS)}
for what, (mine, none) in pairs.items():
    ok(mine["device_bytes"] == mine["reserved_peak_bytes"] + 607000000 and mine["calibration"]["context_bytes"] == 600000000, what + " counts with what was kept", mine.get("calibration"))
    ok("calibration" not in none and any("550.54" in x for x in mine["assumptions"]), what + " says so", mine["assumptions"])
ok([x["interval"] for x in pairs["plan"]] == [x["interval"] for x in pairs["estimate"]], "plan --trainer and estimate have the same interval", [x["interval"] for x in pairs["plan"]])
ok(pairs["plan"][1]["interval"]["low_bytes"] < pairs["plan"][1]["device_bytes"] - pairs["plan"][1]["reserved_peak_bytes"] // 50, "whose low end has the context's least", pairs["plan"][1]["interval"])
p = subprocess.run([vplan, "plan", "gpt2", "--seq", "256", "--global-batch", "2", "--calibration", "none"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
ok(p.returncode == 2 and b"--calibration is for a plan with --trainer" in p.stderr, "of another trainer's plan alone", p.stderr)

# ---- what is no calibration ----
for text, number, word in (("l40s-48gb\t1\t2\t3\n", 1, "five fields"), ("# a remark\nl40s-48gb\t1\t2\tx\t0\n", 2, "no count of bytes"), ("l40s-48gb\t1\t2\t-3\t0\n", 1, "no count of bytes"),
                           ("\t1\t2\t3\t0\n", 1, "empty"), ("a\t1\t2\t3\t0\t5\n", 1, "five fields")):
    open(work + "/mine", "w").write(text)
    rc, out, said = run("--device", "l40s", "--calibration", work + "/mine")
    ok(rc == 4 and "mine:%d: " % number in said and word in said and not out, "refused: %r" % text, (rc, said))
    rc, out, said = run("--device", "l40s", "--calibration", work + "/mine", *saw(reserved=reserved, process=reserved + 1))
    ok(rc == 4 and open(work + "/mine").read() == text, "and not written over: %r" % text, (rc, said))
for line, word in (("driver", "version"), ("torch 2 13", "version"), ("drive 550", "begins with none")):
    open(seen, "w").write(line + "\n")
    rc, out, said = run("--device", "l40s", "--measured", seen)
    ok(rc == 4 and "seen.txt:1: " in said and word in said, "refused: " + line, (rc, said))
p = subprocess.run([vplan, "estimate", "gpt2", "--trainer", "vplan", "--calibration", "none"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
ok(p.returncode == 2 and b"--trainer" in p.stderr, "a PyTorch trainer's", p.stderr)
finish()
P
