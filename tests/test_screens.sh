#!/bin/bash
# tests/test_screens.sh: what people see. Each screen says what was asked, and what was chosen for them, in 80 columns. The last line
# counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" <<'P'
import json, os, re, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = sys.argv[1:3]
os.chdir(work)
env = dict(os.environ, LC_ALL="C", OMP_NUM_THREADS="1")


def call(line, code=0):
    """What a command prints on standard output; nothing it prints is wider than a screen."""
    p = subprocess.run([vplan] + line.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=300, env=env)
    out, err = p.stdout.decode(), p.stderr.decode()
    ok(p.returncode == code, line, "exit %d: %s%s" % (p.returncode, err, out[-300:]))
    return out


def one(pattern, text, what):
    found = re.search(pattern, text, re.M)
    ok(found, what, text[:400])
    return found


# ---- the recipe stands at the head of every screen, with what was left free ----

T4 = "gpt2-large --device t4 --seq 1024 --global-batch 32"
out = call("plan %s --precision any --optimizer any" % T4)
one(r"^recipe     fp32, adamw(-bf16|-8bit)?, gradients fp32, attention flash$", out, "a T4 has no bf16, and SGD is asked for by name only")
one(r"^free       --precision, among fp32$", out, "what was free: the precision")
one(r"^           --optimizer, among adamw, adamw-bf16, adamw-8bit$", out, "what was free: the optimizer")
one(r"^    with fp32, adamw", out, "presets say their recipe where it is free")
answer = json.loads(call("plan %s --precision any --optimizer any --json" % T4.replace("t4", "h100")))
ok(answer["settings"]["precision"] == "bf16-mixed" and answer["settings"]["optimizer"].startswith("adamw"), "on an H100", answer["settings"])
ok(all(p["optimizer"].startswith("adamw") and p["precision"] != "bf16" for p in answer["presets"]), "presets are freed alike", answer["presets"])
out = call("plan %s --optimizer sgd" % T4)
one(r"^recipe     fp32, sgd, gradients fp32", out, "SGD by name")
ok("free  " not in out, "nothing was free", out)
TINY = "gpt2-tiny --device cpu --seq 128 --global-batch 8 --budget 8MB"
call("plan %s --optimizer any -o plan.json" % TINY)
for line, code in (("estimate gpt2-tiny --optimizer lion", 0), ("explain plan.json", 0), ("run plan.json --steps 1 -q", 0), ("tune plan.json --max-trials 1 -q", 0),
                   ("plan gpt2-xl --device 4090 --seq 1024 --global-batch 32", 3)):
    one(r"^recipe     (fp32|bf16-mixed), \S+, gradients fp32", call(line, code), "recipe: " + line)

finish()
P
