#!/bin/bash
# tests/sanitize.sh [FOLDER...]: the programs under address and undefined-behaviour sanitizers, over plans with something changed in
# them, the inputs of tests/fuzz/corpus, every built-in model, and the model configs and trainers' files of the folders given. They
# are silent, and answer or refuse. `make sanitize` builds $BUILD/asan and runs it all; the last line counts.
#     SHARE=3/40         the third of 40 parts, each with its part of the plans (1/1: all)
#     VPLAN_MUTATIONS    plans changed, all parts together (1000; 0: none)
set -u
cd "$(dirname "$0")/.." || exit 1
asan=${BUILD:-build}/asan
[ -x "$asan/vplan" ] || { echo "SKIP: $asan is not built; make sanitize does"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
share=${SHARE:-1/1}
part=${share%/*} parts=${share#*/}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

echo "0 passed, 0 failed" > "$work/plans"
[ "${VPLAN_MUTATIONS:-1000}" = 0 ] || BUILD=$asan VPLAN_MUTATIONS=$(((${VPLAN_MUTATIONS:-1000} + parts - 1) / parts)) VPLAN_MUTATIONS_SEED=$((100 + part)) \
    VPLAN_MUTATIONS_ALONE=1 bash tests/test_plan_mutations.sh > "$work/plans"
head -n -1 "$work/plans"
python3 - "$(realpath "$asan/vplan")" "$work" "$part" "$parts" "$(tail -n 1 "$work/plans")" "$@" <<'P'
import glob, json, os, re, subprocess, sys

sys.path.insert(0, "tests")
from check import count, finish, ok

vplan, work, part, parts, plans = sys.argv[1:6]
count(*(int(n) for n in re.findall(r"\d+", plans)[:2]))
NOISE = re.compile(r"Sanitizer|runtime error:|Assertion")
CARD = ["--device", "4090", "--seq", "512"]


def estimates_of(model):
    yield ["estimate", model]
    yield ["estimate", model, *CARD, "--ladder"]
    yield ["estimate", model, *CARD, "--trainer", "hf", "--lora", "r=8,targets=all-linear"]


def calls_of_model(model):
    yield from estimates_of(model)
    yield ["plan", model, *CARD, "--global-batch", "4", "--recompute", "full"]


def calls_of_plan(plan):
    for table in [], ["--buffers"], ["--program"], ["--roofline"]:
        yield ["explain", plan, *table]
    yield ["run", plan, "--steps", "1", "--unsigned"]


def calls():
    for name in json.loads(subprocess.run([vplan, "models", "--json"], stdout=subprocess.PIPE, check=True).stdout)["models"]:
        yield from calls_of_model(name["name"])
    for f in sorted(glob.glob("tests/fuzz/corpus/config/*")):
        yield from calls_of_model(f)
    for f in sorted(glob.glob("tests/fuzz/corpus/plan/*")):
        yield from calls_of_plan(f)
    for f in sorted(glob.glob("tests/fuzz/corpus/device/*")):
        yield ["estimate", "gpt2", "--device", f]
    for f in sorted(glob.glob("tests/fuzz/corpus/recipe/*")):
        yield ["plan", "gpt2-tiny", "--seq", "8", "--global-batch", "2", "--recipe", f]
    for f in sorted(glob.glob("tests/fuzz/corpus/profile/*")):
        yield ["plan", "gpt2-tiny", "--seq", "8", "--global-batch", "2", "--profile", f]
    for folder in sys.argv[6:]:
        for at, _, names in sorted(os.walk(folder)):
            for f in sorted(os.path.join(at, n) for n in names):
                yield from estimates_of(f) if f.endswith(".json") and '"model_type"' in open(f, errors="replace").read() else [["check", f]]


n = 0
for i, call in enumerate(calls()):
    if i % int(parts) != int(part) - 1:
        continue
    n += 1
    try:
        p = subprocess.run([vplan, *call], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        said = p.stderr.decode("utf-8", "replace")
        ok(p.returncode in (0, 2, 3, 4, 5) and not NOISE.search(said), " ".join(call), "exit %d: %s" % (p.returncode, said[-3000:]))
    except subprocess.TimeoutExpired:
        ok(False, " ".join(call), "more than 300 s")
print("%d calls" % n)
finish()
P
