#!/bin/bash
# tests/test_dryrun.sh: vplan dryrun. The stand-in libraries and all faults are tested without PyTorch; real
# scripts and rows of known peaks where a Python with a known torch is found (VPLAN_TORCH_PYTHON, else
# python3). Nothing is installed. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${BUILD:-build}")
vplan=$build/vplan
null=$build/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp"
export TMPDIR=$work/tmp OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
passed=0 failed=0 skipped=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL: $1"; [ -z "${2:-}" ] || sed 's/^/    /' "$2" | tail -20; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $1"; }
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" = 0 ]; exit; }

# expect NAME EXIT_CODE PATTERN COMMAND...: the exit code, and a pattern in stdout or stderr
expect() {
    local name=$1 code=$2 pattern=$3
    shift 3
    "$@" > "$work/out" 2> "$work/err" < /dev/null
    local got=$?
    cat "$work/out" "$work/err" > "$work/both"
    if [ $got != "$code" ]; then bad "$name: exit $got, expected $code" "$work/both"
    elif [ -n "$pattern" ] && ! grep -q -- "$pattern" "$work/both"; then bad "$name: no '$pattern'" "$work/both"
    else ok; fi
}

[ -f "$null/libvplan-null.so" ] || { skip "$null/libvplan-null.so is not built"; finish; }

# ---- the libraries alone ----
preload=$null/libvplan-null.so
for f in "$null"/lib*.so.*; do preload=$preload:$f; done
${CC:-gcc} -std=c11 -w -o "$work/null_check" tests/dryrun/null_check.c -ldl || bad "null_check does not build"
check() { env LD_PRELOAD="$preload" LD_LIBRARY_PATH="$null" VPLAN_NULL_TOTAL_BYTES=134217728 \
              VPLAN_NULL_LIMIT_BYTES=67108864 "$work/null_check" "$1"; }
for c in memory copies virtual_memory capture; do expect "stand-in: $c" 0 "" check $c; done
expect "stand-in: an unmodelled function names itself" 4 "libcusolver: cusolverDnSgetrf is not modelled" check stub
(check touch) > "$work/both" 2>&1
[ $? = 139 ] && ok || bad "device memory touched by the host does not fault" "$work/both"

# ---- the command, with programs that are not PyTorch ----
if ! "$vplan" --help 2>&1 | grep -q '^ *dryrun '; then skip "this vplan has no dryrun command"; finish; fi
dry() { "$vplan" dryrun "$@"; }
expect "no command" 2 "nothing to run" dry --json
expect "a card that is none" 2 "CUDA card" dry --device cpu -- true
expect "a budget above the card" 2 "more than" dry --device t4 --budget 20GiB -- true
expect "a budget below the context" 2 "context" dry --device t4 --budget 1MiB -- true
expect "an unknown option" 2 "unknown option" dry --bugdet 1GiB -- true
expect "a command that is not there" 2 "no-such-program" dry -- ./no-such-program
expect "a command without PyTorch" 5 "no PyTorch ran" dry -- true
expect "a command that fails" 4 "exit code 7" dry -- sh -c 'exit 7'
expect "a command that dies" 139 "signal 11" dry -- sh -c 'kill -SEGV $$'
expect "a command that hangs" 4 "longer than --timeout" dry --timeout 1 -- sleep 60
echo old > "$work/snap"
expect "an existing snapshot" 2 "exists" dry --snapshot "$work/snap" -- true
dry -- sh -c 'head -c 300000000 /dev/zero' > "$work/out" 2> /dev/null
[ $? = 5 ] && [ "$(stat -c %s "$work/out")" -lt 10000 ] && ok || bad "much output" "$work/out"
dry --json -- sh -c 'echo on stdout' > "$work/out" 2> "$work/err"
python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["verdict"] == "failed" and d["schema_version"] == 1' \
    "$work/out" && grep -q "on stdout" "$work/err" && ok || bad "stdout is not the answer alone" "$work/out"
python3 - "$vplan" <<'P' > "$work/out" 2>&1    # a shell would start it with SIGINT ignored
import signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "dryrun", "--", "sh", "-c", "sleep 61 & sleep 62"])
time.sleep(1)
p.send_signal(signal.SIGINT)
sys.exit(p.wait(20))
P
[ $? = 130 ] && ok || bad "interrupted: not exit 130" "$work/out"
pgrep -f 'sleep 6[12]' > /dev/null && bad "a process was left behind" || ok

# A torch that is not known, and one without CUDA, both made of two lines of Python.
for case in "2.99.0+cu130 '13.0' 4 not.known" "2.11.0+cpu None 5 not.a.CUDA.build"; do
    set -- $case
    mkdir -p "$work/fake/torch"
    printf '__version__ = "%s"\nclass version:\n    cuda = %s\n' "$1" "$2" > "$work/fake/torch/__init__.py"
    PYTHONPATH=$work/fake expect "torch $1 is refused by name" "$3" "torch ${1//+/.}.*$4" dry -- python3 -c 'import torch'
    rm -rf "$work/fake"
done
mkdir -p "$work/fake/torch"
echo 'raise ImportError("libtorch_cuda.so: undefined symbol: cudaNextYear, version libcudart.so.14")' \
    > "$work/fake/torch/__init__.py"
PYTHONPATH=$work/fake expect "a function of the future is named" 4 "cudaNextYear, version libcudart.so.14" \
    dry -- python3 -c 'import torch'
printf '__version__ = "9.1.0"\n' > "$work/fake/torch/version.py"
PYTHONPATH=$work/fake expect "an unknown torch is refused before it loads" 4 "torch 9.1.0 is not known" \
    dry -- python3 -c 'import torch'
rm -rf "$work/fake"
mkdir "$work/site"
echo 'print("the other sitecustomize ran")' > "$work/site/sitecustomize.py"
PYTHONPATH=$work/site expect "an existing sitecustomize still runs" 5 "the other sitecustomize ran" dry -- python3 -c pass
python3 -c 'import torch' 2> /dev/null || expect "no torch there" 5 "no torch" dry -- python3 -c 'import torch'
[ -z "$(ls "$TMPDIR")" ] && ok || bad "temporary files were left behind"

# ---- PyTorch ----
python=${VPLAN_TORCH_PYTHON:-python3}
if ! "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2> /dev/null; then
    skip "no Python with torch (set VPLAN_TORCH_PYTHON): real scripts, known peaks"
    finish
fi
version=$("$python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2> /dev/null)
if ! grep -q "\"${version%%+*}\"" kernels/null/probe/vplan_probe.py; then
    skip "torch $version is not one the dry run knows: real scripts, known peaks"
    finish
fi
cat > "$work/own.py" <<'P'
import json, re, subprocess, sys
run = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
doc = json.loads(run.stdout)
assert sum(i["bytes"] for i in doc["items"]) == doc["allocated_peak_bytes"], "items do not sum to the peak"
assert max(p["allocated_bytes"] for p in doc["phases"]) == doc["allocated_peak_bytes"]
names = [p["name"] for p in doc["phases"]]
for name in ("load", "forward1", "backward1", "step1", "forward2", "backward2", "step2", "steady", "eval", "save"):
    assert name in names, name + " not found"
allocated, reserved = map(int, re.search(r"^peak (\d+) (\d+)$", run.stderr, re.M).groups())
assert allocated == doc["allocated_peak_bytes"] and reserved == doc["reserved_peak_bytes"], "the script saw others"
print("document holds")
P
expect "the document, and what the script itself reads" 0 "document holds" python3 "$work/own.py" "$vplan" dryrun \
    --json -- "$python" tests/dryrun/scripts/plain_loop.py "$work/x.pt"
expect "out of memory" 3 "CUDA out of memory. Tried to allocate" dry --device 4090 --budget 1GiB -- "$python" \
    tests/dryrun/scripts/plain_loop.py "$work/x.pt"
expect "a second device" 4 "exit code 1" dry -- "$python" -c 'import torch; torch.zeros(1, device="cuda:1")'
expect "an unmodelled library call" 4 "cusolver.*is not modelled" dry -- "$python" -c \
    'import torch; torch.linalg.svd(torch.zeros(4, 4, device="cuda"))'
expect "host memory" 5 "host memory ran out" dry --host-memory 1GiB -- "$python" -c \
    'import torch, time; x = torch.ones(400 << 20); time.sleep(5)'
expect "worker processes" 0 "8 batches" dry -- "$python" -c '
import torch
from torch.utils.data import DataLoader
net = torch.nn.Linear(8, 8).cuda()
print(sum(1 for b in DataLoader(torch.zeros(16, 8), 2, num_workers=2, pin_memory=True) if net(b.cuda()) is not None), "batches")'
expect "a snapshot" 0 "fits" dry --snapshot "$work/s.pickle" -- "$python" tests/dryrun/scripts/graphs.py
[ -s "$work/s.pickle" ] && ok || bad "no snapshot was written"
if "$python" -c 'import transformers' 2> /dev/null; then
    expect "known peaks" 0 " 0 different" dry --device tests/dryrun/huge.json -- "$python" \
        tests/dryrun/play_row.py --configs tests/dryrun/golden --rows tests/dryrun/golden/peaks.csv
else
    skip "no transformers beside torch: known peaks"
fi
[ -z "$(ls "$TMPDIR" | grep vplan)" ] && ok || bad "temporary files were left behind"
finish
