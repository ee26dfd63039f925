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
mkdir "$work/tmp" "$work/home"
export TMPDIR=$work/tmp HOME=$work/home OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
unset HF_HOME HF_HUB_CACHE XDG_CACHE_HOME PYTHONDONTWRITEBYTECODE
passed=0 failed=0 skipped=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL: $1"; [ -z "${2:-}" ] || sed 's/^/    /' "$2" | tail -20; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $1"; }
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" = 0 ]; exit; }

# expect NAME EXIT_CODE PATTERN COMMAND...: the exit code, and a pattern in stdout or stderr, maybe across lines
expect() {
    local name=$1 code=$2 pattern=$3
    shift 3
    "$@" > "$work/out" 2> "$work/err" < /dev/null
    local got=$?
    cat "$work/out" "$work/err" > "$work/both"
    if [ $got != "$code" ]; then bad "$name: exit $got, expected $code" "$work/both"
    elif [ -n "$pattern" ] && ! grep -q -- "$pattern" "$work/both" && ! tr -s " \n" " " < "$work/both" | grep -q -- "$pattern"; then bad "$name: no '$pattern'" "$work/both"
    else ok; fi
}

[ -f "$null/libvplan-null.so" ] || { skip "$null/libvplan-null.so is not built"; finish; }

# ---- the libraries alone ----
preload=$null/libvplan-null.so
for f in "$null"/lib*.so.*; do preload=$preload:$f; done
${CC:-gcc} -std=c11 -D_GNU_SOURCE -w -o "$work/null_check" tests/dryrun/null_check.c -ldl -lpthread || bad "null_check does not build"
check() { env LD_PRELOAD="$preload" LD_LIBRARY_PATH="$null" VPLAN_NULL_TOTAL_BYTES=134217728 \
              VPLAN_NULL_LIMIT_BYTES=67108864 "$work/null_check" "$1"; }
for c in memory device addresses copies virtual_memory capture program work; do expect "stand-in: $c" 0 "" check $c; done
grep -v '^#\|^rows' tests/golden/solver/svd_workspaces.csv | check svd > "$work/both" 2>&1 && ok || bad "stand-in: an SVD's workspace is what cuSOLVER told" "$work/both"
for c in messages order watchdog; do
    VPLAN_NULL_CC=90 VPLAN_NULL_LIMIT_BYTES=3221225472 expect "stand-in: NCCL: $c" 0 "" env LD_PRELOAD="$preload" LD_LIBRARY_PATH="$null" \
        VPLAN_NULL_TOTAL_BYTES=4294967296 "$work/null_check" $c
done
expect "stand-in: an unmodelled function names itself" 4 "libcusolver: cusolverDnSgetrf is not modelled" check stub
expect "stand-in: a runtime linked into a library names the library" 4 \
    "null_check: cuGetExportTable.*a CUDA runtime of its own" check own_runtime
printf 'MemTotal: 102400 kB\nMemAvailable: 2048 kB\n' > "$work/meminfo"
VPLAN_NULL_MEMINFO=$work/meminfo expect "stand-in: a host that is nearly full ends the process" 5 \
    "host memory is full" check guard
printf 'MemTotal: 102400 kB\nMemAvailable: 51200 kB\n' > "$work/meminfo"
VPLAN_NULL_MEMINFO=$work/meminfo VPLAN_NULL_CGROUP=$work expect "stand-in: a host with room does not" 0 "" check guard
mkdir "$work/group"
echo 104857600 > "$work/group/memory.max"
echo 103000000 > "$work/group/memory.current"
printf 'anon 100000000\nfile 1000000\n' > "$work/group/memory.stat"
VPLAN_NULL_CGROUP=$work/group expect "stand-in: nor a container that is nearly full" 5 "host memory is full" check guard
(check touch) > "$work/both" 2>&1
[ $? = 139 ] && ok || bad "device memory touched by the host does not fault" "$work/both"

# ---- the command, with programs that are not PyTorch ----
if ! "$vplan" --help 2>&1 | grep -q '^ *dryrun '; then skip "this vplan has no dryrun command"; finish; fi
dry() { "$vplan" dryrun "$@"; }
expect "no command" 2 "nothing to run" dry --json
expect "a card that is none" 2 "CUDA card" dry --device cpu -- true
expect "a budget above the card" 2 "more than" dry --device t4 --budget 20GiB -- true
expect "a budget below the context" 2 "context" dry --device t4 --budget 1MiB -- true
# 140.875 MiB, as measured on a T4; a card nobody has measured keeps the device table's figure
context() { "$vplan" dryrun --device "$1" --json -- true 2> /dev/null | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["outside_least_bytes"], d["outside_bytes"], d["outside_class"])'; }
expect "the context of a T4 is as measured" 0 "^147718144 147718144 measured$" context t4
expect "the context of an A100 is an interval" 0 "^516947968 552599552 derived$" context a100-sxm-80gb
expect "the context of a V100 is not known" 0 "^147718144 536870912 assumed$" context v100-sxm2-16gb
for card in $(sed -n 's/^    {"\([a-z0-9-]*\)", [0-9].*/\1/p' dryrun/context.c); do
    "$vplan" devices "$card" > /dev/null 2>&1 && ok || bad "dryrun/context.c names a card that is none: $card"
done
"$vplan" --help 2>&1 | grep '^ *dryrun ' | grep -q exact && bad "the help calls a dry run exact" || ok
expect "cuDNN neither auto nor off" 2 "auto, off" dry --cudnn on -- true
expect "an unknown option" 2 "unknown option" dry --bugdet 1GiB -- true
expect "a command that is not there" 2 "no-such-program" dry -- ./no-such-program
expect "a command without PyTorch" 5 "no PyTorch ran" dry -- true
expect "a launcher's rank that is not 0" 5 "only ranks other than 0 were started" env RANK=1 WORLD_SIZE=2 MASTER_PORT=9 \
    "$vplan" dryrun -- python3 -c 'raise SystemExit(7)'
expect "a RANK that no launcher set" 4 "exit code 7" env RANK=1 WORLD_SIZE=1 "$vplan" dryrun -- python3 -c 'raise SystemExit(7)'
expect "a command that fails" 4 "exit code 7" dry -- sh -c 'exit 7'
expect "variables before a command, as in a shell" 4 "got 3 4" dry -- FOO=3 BAR=4 sh -c 'echo "got $FOO $BAR" >&2; exit 7'
expect "the same for several ranks" 4 "got 3" dry --world 2 --rank all -- FOO=3 sh -c 'echo "got $FOO" >&2; exit 7'
# what scripts and loggers ask of the card, and of this run's processes on it
cat > "$work/asks.py" <<'P'
import ctypes, os, subprocess, sys
lib, nvml = ctypes.CDLL("libvplan-null.so"), ctypes.CDLL("libnvidia-ml.so.1")
lib.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
ask = lambda *words: subprocess.run(("nvidia-smi",) + words, stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
print("before", ask("--query-gpu=memory.used,memory.total,memory.free", "--format=csv,noheader,nounits"), file=sys.stderr)
lib.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 64 << 20)
used = ask("--query-gpu=memory.used,name", "--format=csv").replace("\n", " / ")
apps = ask("--query-compute-apps=pid,used_memory", "--format=csv,noheader")
print("after", used, "mine", apps == "%d, 315 MiB" % os.getpid(), ask("-L")[:16], ask("-i", "1"), file=sys.stderr)
u = (ctypes.c_uint * 2)(7, 7)
print("nvml", nvml.nvmlDeviceGetUtilizationRates(None, u), list(u), file=sys.stderr)
print(ask(), file=sys.stderr)
sys.exit(subprocess.run(["nvidia-smi", "-q"]).returncode + 5)
P
expect "nvidia-smi: the card before it is used" 4 "before 0, 22563, 4096" dry --device l4 --budget 4GiB -- python3 "$work/asks.py"
grep -q "^after memory.used \[MiB\], name / 315 MiB, NVIDIA L4 mine True GPU 0: NVIDIA L4 No devices were found" "$work/both" && ok || bad "nvidia-smi: what a process has of it" "$work/both"
grep -q "^nvml 0 \[0, 0\]" "$work/both" && ok || bad "NVML: an idle card" "$work/both"
grep -q "NVIDIA L4 .* 315MiB /   22563MiB" "$work/both" && ok || bad "nvidia-smi: the table" "$work/both"
grep -q "this nvidia-smi knows .*, not -q" "$work/both" && grep -q "exit code 7" "$work/both" && ok || bad "nvidia-smi: what it does not know" "$work/both"
# the message of transformers, which goes over several lines
cat > "$work/hub.sh" <<'P'
printf '{"cuda":false,"final":true,"torch":"2.11.0","phases":[],"error":{"type":"OSError","message":"We could not connect to the Hub, and could not find them in the cached files.\\nCheck your connection"}}' > "$VPLAN_NULL_REPORT/report.1.json"
exit 1
P
expect "a model that is not on this machine" 4 "OSError (that model is not on this machine: vplan dryrun --fake-weights MODEL -o DIR" dry -- sh "$work/hub.sh"
sed 's/OSError/ValueError/; s/We could not.*connection/\\\\n  rank must be 8\\\\n  or 16/' "$work/hub.sh" > "$work/value.sh"
expect "an error's own words, their first line" 4 "exit code 1: ValueError: rank must be 8$" dry -- sh "$work/value.sh"
sed "s/OSError/NameError/; s/We could not.*connection/name \\\\u0027get_ipython\\\\u0027 is not defined/" "$work/hub.sh" > "$work/notebook.sh"
expect "a notebook's own commands" 4 "NameError: name 'get_ipython' is not defined (what only a notebook runs" dry -- sh "$work/notebook.sh"
# what PyTorch's allocator cannot read ends it as it is imported, or where the device is first used
mkdir -p "$work/aborts/torch"
echo "__version__ = '2.11.0'" > "$work/aborts/torch/version.py"
printf 'import os\nos.abort()\n' > "$work/aborts/torch/__init__.py"
export PYTHONPATH=$work/aborts
expect "an allocator setting that aborts PyTorch" 134 "signal 6 (Aborted) (PYTORCH_CUDA_ALLOC_CONF=max_split=8; PyTorch takes NAME:VALUE pairs joined by commas, as in expandable_segments:True,max_split_size_mb:512)" \
    dry -- env PYTORCH_CUDA_ALLOC_CONF=max_split=8 python3 -c 'import torch'
expect "an abort that has none" 134 "signal 6 (Aborted)$" dry -- python3 -c 'import torch'
unset PYTHONPATH
sed "s/OSError/ValueError/; s/We could not.*connection/Unrecognized key x in CUDA allocator config./; s/^printf/printf A=x:1 > \"\$VPLAN_NULL_REPORT\/allocator_read.1\"; &/" "$work/hub.sh" > "$work/key.sh"
expect "an allocator setting that PyTorch does not know" 4 "ValueError: Unrecognized key x in CUDA allocator config. (A=x:1; PyTorch takes" dry -- sh "$work/key.sh"
# argparse prints why and exits: no exception tells it
cat > "$work/parsed.py" <<'P'
import argparse
parser = argparse.ArgumentParser(prog="train.py")
parser.add_argument("--batch", type=int)
parser.parse_args()
P
expect "an option that the script has not" 4 "exit code 2: argparse: unrecognized arguments: --btach 4" dry -- python3 "$work/parsed.py" --btach 4
cat > "$work/lazy.py" <<'P'
try:
    import no_such_package
except ImportError as e:
    raise RuntimeError("Could not import module 'AutoModel'. Are its requirements there?") from e
P
expect "an import for whose want another failed" 4 "RuntimeError: Could not import module 'AutoModel'. Are its requirements there? (No module named 'no_such_package')" dry -- python3 "$work/lazy.py"
# others print and exit too: click, Hydra (what a script under it raises, as well), Fire
mkdir -p "$work/parsers/click" "$work/parsers/hydra/_internal" "$work/parsers/fire"
touch "$work"/parsers/{click,hydra,hydra/_internal,fire}/__init__.py
cat > "$work/parsers/click/exceptions.py" <<'P'
import sys
class ClickException(Exception):
    def show(self, file=None): print("Error: " + self.args[0], file=sys.stderr)
class UsageError(ClickException):
    def show(self, file=None): print("Usage. " + self.args[0], file=sys.stderr)
P
cat > "$work/parsers/hydra/_internal/utils.py" <<'P'
import sys
def run_and_report(func):
    try:
        return func()
    except Exception as e:
        print(e, file=sys.stderr)
        sys.exit(1)
P
cat > "$work/parsers/fire/core.py" <<'P'
class Trace:
    elements = [type("E", (), {"ErrorAsStr": lambda self: "Could not consume arg: --btach"})()]
def _DisplayError(component_trace): pass
P
cat > "$work/parsers/click.py.run" <<'P'
import sys
from click.exceptions import UsageError
try:
    raise UsageError("No such option '--btach'.")
except UsageError as e:
    e.show()
    sys.exit(2)
P
cat > "$work/parsers/hydra.py.run" <<'P'
from hydra._internal.utils import run_and_report
def main():
    raise KeyError("train.bs")
run_and_report(main)
P
cat > "$work/parsers/fire.py.run" <<'P'
import sys
from fire.core import _DisplayError, Trace
_DisplayError(Trace())
sys.exit(2)
P
parsers() { dry -- env PYTHONPATH="$null/probe:$work/parsers" python3 "$work/parsers/$1.py.run"; }
expect "what click refuses" 4 "exit code 2: click: No such option '--btach'" parsers click
expect "what is raised under Hydra" 4 "exit code 1: KeyError: 'train.bs'" parsers hydra
expect "what Fire refuses" 4 "exit code 2: fire: Could not consume arg: --btach" parsers fire
expect "a value that is none" 4 "exit code 2: argparse: argument --batch: invalid int value: 'x'" dry -- python3 "$work/parsed.py" --batch x
expect "deepspeed's own option" 4 "unrecognized arguments: --local_rank=0 (deepspeed and torch.distributed.launch give --local_rank to the script" dry -- python3 "$work/parsed.py" --local_rank=0
cat > "$work/goes_on.py" <<'P'
try:
    exec(open(__file__.replace("goes_on", "parsed")).read())
except SystemExit:
    raise ValueError("what went wrong then")
P
expect "a refusal that the script caught is not the reason" 4 "exit code 1: ValueError: what went wrong then" dry -- python3 "$work/goes_on.py" --btach 4
# torch.multiprocessing: the process that started the others quotes the one that failed; the report is of one that used the device
cat > "$work/spawned.sh" <<'P'
printf '{"cuda":true,"final":true,"torch":"2.11.0","phases":[]}' > "$VPLAN_NULL_REPORT/report.2.json"
printf '{"cuda":false,"final":true,"torch":"2.11.0","phases":[],"error":{"type":"ProcessRaisedException","message":"\\n\\n-- Process 1:\\nTraceback (most recent call last):\\n  File x\\nRuntimeError: CUDA error: invalid device ordinal\\n"}}' > "$VPLAN_NULL_REPORT/report.1.json"
exit 1
P
expect "a second card in one process" 4 "exit code 1: ProcessRaisedException: RuntimeError: CUDA error: invalid device ordinal (a dry run has one card" dry -- sh "$work/spawned.sh"
# a launcher tells that what it started failed, whichever report is read first
cat > "$work/launched.sh" <<'P'
printf '{"cuda":false,"final":true,"torch":"2.11.0","phases":[],"error":{"type":"%s","message":"Command python3 train.py returned non-zero exit status 2."}}' "$1" > "$VPLAN_NULL_REPORT/report.1.json"
printf '{"cuda":%s,"final":true,"torch":"2.11.0","phases":[]%s}' "$2" "$3" > "$VPLAN_NULL_REPORT/report.2.json"
printf '{"cuda":false,"final":true,"torch":"2.11.0","phases":[],"error":{"type":"argparse","message":"unrecognized arguments: --btach 4"}}' > "$VPLAN_NULL_REPORT/report.3.json"
printf '{"cuda":false,"final":true,"torch":"2.11.0","phases":[],"error":{"type":"%s","message":"and so on"}}' "$1" > "$VPLAN_NULL_REPORT/report.4.json"
exit 1
P
for launcher in CalledProcessError ChildFailedError; do
    expect "the error below $launcher" 4 "exit code 1: argparse: unrecognized arguments: --btach 4" dry -- sh "$work/launched.sh" $launcher false ""
    expect "the error below $launcher, of a process beside it" 4 "exit code 1: argparse: unrecognized arguments: --btach 4" dry -- sh "$work/launched.sh" $launcher true ""
    expect "the error below $launcher, of the one that used the device" 4 "exit code 1: ValueError: no such layer" dry -- sh "$work/launched.sh" $launcher true \
        ',"error":{"type":"ValueError","message":"no such layer"}'
done
expect "a command that dies" 139 "signal 11" dry -- sh -c 'kill -SEGV $$'
expect "a command that hangs" 4 "longer than --timeout" dry --timeout 1 -- sleep 60
expect "a training that takes too long is told of --steps" 4 "was ended (with --steps 3 it runs three" dry --timeout 1 -- sh -c \
    'printf "{\"cuda\":true,\"torch\":\"2.11.0\",\"phases\":[]}" > "$VPLAN_NULL_REPORT/report.1.json"; sleep 60'
dry --timeout 1 -- sh -c 'sleep 63 & sleep 64' > /dev/null 2>&1
pgrep -f 'sleep 6[34]' > /dev/null && bad "a process was left behind at --timeout" || ok
echo old > "$work/snap"
expect "a snapshot where there is no folder, before any work" 7 "none/snap" dry --snapshot "$work/none/snap" -- sh -c 'echo it ran > "$0"' "$work/ran"
[ ! -e "$work/ran" ] && ok || bad "the command ran before its snapshot was known to fail"
expect "a rank named twice" 2 "0 is given twice" dry --world 2 --rank 0,1,0 -- true
expect "an existing snapshot" 2 "exists" dry --snapshot "$work/snap" -- true
dry -- sh -c 'head -c 300000000 /dev/zero' > "$work/out" 2> /dev/null
[ $? = 5 ] && [ "$(stat -c %s "$work/out")" -lt 10000 ] && ok || bad "much output" "$work/out"
dry --json -- sh -c 'echo on stdout' > "$work/out" 2> "$work/err"
python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); assert d["verdict"] == "failed" and d["schema_version"] == 1' \
    "$work/out" && grep -q "on stdout" "$work/err" && ok || bad "stdout is not the answer alone" "$work/out"
python3 - "$vplan" <<'P' > "$work/out" 2>&1    # a shell would start it with SIGINT ignored
import signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "dryrun", "--", "sh", "-c", "sleep 61 & sleep 62"],
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
time.sleep(1)
p.send_signal(signal.SIGINT)
sys.exit(p.wait(20))
P
[ $? = 130 ] && ok || bad "interrupted: not exit 130" "$work/out"
pgrep -f 'sleep 6[12]' > /dev/null && bad "a process was left behind" || ok

# Killed, it leaves nothing: neither what the command started, in a session of its own, nor the folder.
nap=$((100000 + $$))     # seconds that nobody else sleeps
napping() { pgrep -fx "sleep $nap"; }
killed() {   # NAME WHO: kill -9 it, once the command's descendants are there
    "$vplan" dryrun -- sh -c "setsid sleep $nap & sleep $nap & sleep $nap" > /dev/null 2>&1 &
    local vplan_pid=$! tries=0
    until [ "$(napping | wc -l)" = 3 ] || [ $((tries += 1)) = 100 ]; do sleep 0.1; done
    [ "$tries" -lt 100 ] || bad "$1: the command did not start"
    if [ "$2" = vplan ]; then kill -9 $vplan_pid; else kill -9 $(pgrep -P $vplan_pid); fi
    wait $vplan_pid 2> /dev/null
    tries=0
    while { napping > /dev/null || [ -n "$(ls "$TMPDIR")" ]; } && [ $((tries += 1)) -le 100 ]; do sleep 0.1; done
    if napping > /dev/null || [ -n "$(ls "$TMPDIR")" ]; then
        bad "$1: left behind: processes $(napping | tr '\n' ' ')$(ls "$TMPDIR")"
        kill -9 $(napping)
        rm -rf "$TMPDIR"/*
    else
        ok
    fi
}
killed "kill -9 of vplan dryrun" vplan
killed "kill -9 of the process that watches over the command" keeper
# at whatever moment it is ended, before its keeper is there too: a millisecond or two, hit some four times of 400
for how in TERM KILL; do
    [ "$(python3 - "$vplan" $how <<'P'
import os, random, signal, subprocess, sys, tempfile, time
random.seed(1)
left = 0
for _ in range(400):
    folder = tempfile.mkdtemp()
    p = subprocess.Popen([sys.argv[1], "dryrun", "--device", "l4", "--", "sh", "-c", "sleep 0.03"], env=dict(os.environ, TMPDIR=folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(random.uniform(0.0005, 0.03 if sys.argv[2] == "KILL" else 0.05))
    p.send_signal(getattr(signal, "SIG" + sys.argv[2]))
    p.wait()
    until = time.time() + 10  # of what is killed others clear up
    while os.listdir(folder) and sys.argv[2] == "KILL" and time.time() < until:
        time.sleep(0.01)
    left += bool(os.listdir(folder))
    subprocess.run(["rm", "-rf", folder])
print(left)
P
)" = 0 ] && ok || bad "SIG$how at some moment leaves its folder"
done

# What the command puts into the folder, or in its place, leads nowhere.
mkdir "$work/precious"
echo kept > "$work/precious/file"
expect "a folder that the command fills" 5 "no PyTorch ran" dry -- sh -c \
    'mkdir -p "$VPLAN_NULL_REPORT/a/b"; ln -s "$1" "$VPLAN_NULL_REPORT/a/b/link"; ln -s "$1" "$VPLAN_NULL_REPORT/link"' _ "$work/precious"
[ -f "$work/precious/file" ] && [ -z "$(ls "$TMPDIR")" ] && ok || bad "a full folder: $(ls "$TMPDIR" "$work/precious")"
rm -rf "$TMPDIR"/*
expect "a folder that the command replaces by a link" 5 "no PyTorch ran" dry -- sh -c \
    'rm -r "$VPLAN_NULL_REPORT"; ln -s "$1" "$VPLAN_NULL_REPORT"' _ "$work/precious"
[ -f "$work/precious/file" ] && [ -z "$(ls "$TMPDIR")" ] && ok || bad "a link was followed: $(ls "$TMPDIR" "$work/precious")"
rm -rf "$TMPDIR"/*

# Ranks side by side, and their collectives against each other, by a command that writes what the probe would:
# each argument is the collectives of one rank, after the communicator, its ranks and the rank's own number.
cat > "$work/ranks.sh" <<'P'
printf '{"cuda":true,"final":true,"torch":"2.11.0","rank":%d,"reserved_peak_bytes":%d,"phases":[]}' "$RANK" $((4096 + RANK / 2)) \
    > "$VPLAN_NULL_REPORT/report.$$.json"
i=0
for lines in "$@"; do
    if [ "$i" = "$RANK" ]; then
        IFS=';'
        for line in $lines; do
            printf 'ab %d %d %s\tfile.py:%d (f)\n' $# "$RANK" "$line" "$RANK" >> "$VPLAN_NULL_REPORT/collectives.$RANK"
        done
    fi
    i=$((i + 1))
done
P
play() { "$vplan" dryrun --world $# --rank all -- sh "$work/ranks.sh" "$@"; }
reduce='all_reduce 8 7 -1' gather='all_gather 8 7 -1'
expect "ranks that agree" 0 "0 and 1 more" play "$reduce;$gather" "$reduce;$gather" "$reduce;$gather"
expect "the worst of them" 0 "all the above is of rank 2, the worst" play "$reduce" "$reduce" "$reduce"
expect "another size" 4 "collective 2 of a communicator of 2 ranks, rank 0: all_reduce of 8 x float32 at file.py:0 (f); rank 1: all_reduce of 9 x float32 at file.py:1 (f)" \
    play "$reduce;$reduce" "$reduce;all_reduce 9 7 -1"
expect "another order" 4 "rank 0: all_reduce of 8 x float32 at file.py:0 (f); rank 1: all_gather of 8" play "$reduce;$gather" "$gather;$reduce"
expect "another type" 4 "rank 1: all_reduce of 8 x bfloat16" play "$reduce" "all_reduce 8 9 -1"
expect "another root" 4 "broadcast of 8 x int8" play "broadcast 8 0 0" "broadcast 8 0 1"
expect "one fewer" 4 "rank 1: none" play "$reduce;$reduce" "$reduce"
expect "a member that never comes" 4 "of a communicator of 3 ranks only 2 did anything" play "$reduce" "$reduce" ""
expect "messages" 0 "FITS" play "send 5 7 1;recv 6 7 1" "recv 5 7 0;send 6 7 0"
expect "a message of another size" 4 "message 1 .*send of 5 x float32.*recv of 6" play "send 5 7 1" "recv 6 7 0"
expect "a message that nobody takes" 4 "message 1 .*send of 5.*rank 1: none" play "$reduce;send 5 7 1" "$reduce"
expect "a rank that is not there" 2 "they count from 0" dry --world 2 --rank 2 -- true
expect "a rank that is none" 2 "numbers from 0, all or kinds" dry --world 2 --rank first -- true
expect "all ranks of none" 4 "started no ranks: say how many with --world" dry --rank all -- sh -c \
    'printf "{\"cuda\":true,\"torch\":\"2.11.0\",\"phases\":[]}" > "$VPLAN_NULL_REPORT/report.1.json"'
expect "a launcher, and --world" 2 "torchrun starts the ranks itself" dry --world 2 --rank all -- torchrun x.py
expect "one rank breaks" 4 "exit code 7" dry --world 3 --rank all -- sh -c 'exit $((RANK == 1 ? 7 : 0))'
expect "one of several is not there to be run" 4 "exit code 127" dry --world 2 --rank all -- ./no-such-program
dry --timeout 1 --world 3 --rank all -- sh -c 'sleep 65 & sleep 66' > /dev/null 2>&1
pgrep -f 'sleep 6[56]' > /dev/null && bad "a rank was left behind at --timeout" || ok

# Ranks that are alike are played once: the first, the last, and what lies between two that differ. ranks.sh takes a byte more from
# every second rank on; the first argument of kinds.sh is the rank from which on one takes more.
cat > "$work/kinds.sh" <<'P'
echo "$RANK" >> "$VPLAN_KINDS"
printf '{"cuda":true,"final":true,"torch":"2.11.0","rank":%d,"reserved_peak_bytes":%d,"phases":[]}' "$RANK" $((4096 + (RANK >= $1) + (RANK >= $2))) \
    > "$VPLAN_NULL_REPORT/report.$$.json"
[ "$RANK" != "$3" ] || count=9
printf 'ab %d %d all_reduce %d 7 -1\tfile.py:1 (f)\n' 64 "$RANK" ${count:-8} >> "$VPLAN_NULL_REPORT/collectives.$RANK"
[ "$RANK" != "$4" ] || exit 7
P
kinds() { rm -f "$work/kinds"; VPLAN_KINDS=$work/kinds dry --world 64 --rank kinds -- sh "$work/kinds.sh" "$@"; }
played() { [ "$(sort -n "$work/kinds" | tr '\n' ' ')" = "$2 " ] && ok || bad "$1: played $(sort -n "$work/kinds" | tr '\n' ' ')"; }
expect "64 ranks that are alike" 0 "0 and 63 more" kinds 99 99 none none
played "64 ranks that are alike" "0 63"
expect "what was not played is said" 0 "2 of 64 ranks were run, each by itself; the others lie between two" kinds 99 99 none none
expect "the last that is smaller than the others" 0 "63 " kinds 63 99 none none
played "the last that is smaller" "0 31 47 55 59 61 62 63"
expect "three kinds" 0 "all the above is of rank 40, the worst" kinds 20 40 none none
expect "three kinds: how many of each" 0 "20 and 19 more" kinds 20 40 none none
expect "a collective of another size on the last" 4 "rank 0: all_reduce of 8 x float32.*rank 63: all_reduce of 9" kinds 99 99 63 none
expect "a rank that fails ends it" 4 "exit code 7" kinds 99 99 none 0
played "a rank that fails ends it" "0"
expect "kinds of no world" 2 "say --world N" dry --rank kinds -- true
expect "kinds under a launcher" 2 "torchrun starts the ranks itself" dry --world 4 --rank kinds -- torchrun x.py

# Seconds of a program with a collective, as the probe would write it: on the stream of the rest, and on one of its own that
# begins when half of the rest is done. What it hides is what the step gets shorter by; two ranks of a card with NVLink talk faster.
cat > "$work/talk.sh" <<'P'
work='["add",1,3350000000,0,0,"",0,0,0,[],0]'
talk='["nccl:all_reduce",1,450000000,0,0,"",0,0,0,[8],'$1']'
printf '{"cuda":true,"final":true,"torch":"2.11.0","optimizer_steps":3,"allocated_peak_bytes":1,"phases":[],"program":{"complete":true,"samples":1,"launches":3,"optimizer":[],
"rows":[%s,%s,["(record)",0,0,0,0,"",0,0,0,[0],0],["(await)",0,0,0,0,"",0,0,0,[0],1],["(record)",0,0,0,0,"",0,0,0,[1],1],["(await)",0,0,0,0,"",0,0,0,[1],0]],
"sequence":[0,2,3,1,4,0,5]}}' "$work" "$talk" > "$VPLAN_NULL_REPORT/report.1.json"
P
for card in h100-sxm-80gb 4090; do
    for stream in 0 1; do
        dry --device $card --time --json -- sh "$work/talk.sh" $stream > "$work/talk.$stream" 2> /dev/null
    done
    python3 - "$work/talk.0" "$work/talk.1" "$card" <<'P' > "$work/out" 2>&1 && ok || bad "a collective beside other work: $card" "$work/out"
import json, sys
one, two = (json.load(open(p))["time"] for p in sys.argv[1:3])
near = lambda a, b: abs(a - b) < 1e-9
assert one["link"] == ("NVLink" if "h100" in sys.argv[3] else "the host"), one
assert near(one["collectives_s"], one["collectives_exposed_s"]) and near(one["collectives_s"], two["collectives_s"]), (one, two)
assert near(one["step_time_s"] - two["step_time_s"], two["collectives_s"] - two["collectives_exposed_s"]) and two["step_time_s"] < one["step_time_s"], (one, two)
assert near(two["device_s"], one["device_s"] - two["collectives_s"] + two["collectives_exposed_s"]), (one, two)
assert one["operators"] == two["operators"] == 3
assert (two["bound_by"] == "links") == ("4090" in sys.argv[3]), two
P
done

# Of a program's bytes those that the card's cache still holds: 40 MB written 10 MB ago are held by the L40S, 400 MB ago by nobody, and nobody knows the
# T4's cache. 4.45 TB/s against 0.60 (devices/efficiency.c).
cat > "$work/near.sh" <<'P'
printf '{"cuda":true,"final":true,"torch":"2.11.0","optimizer_steps":3,"allocated_peak_bytes":1,"phases":[],"program":{"complete":true,"samples":1,"launches":1,"optimizer":[],
"rows":[["add",1,100000000,0,0,"",0,0,0,[],0,0%s]],"sequence":[0]}}' "$1" > "$VPLAN_NULL_REPORT/report.1.json"
P
for card in l40s t4; do
    for near in "" ",[[40000000,10000000,10000000]]" ",[[40000000,400000000,400000000]]"; do
        dry --device $card --time --json -- sh "$work/near.sh" "$near" 2> /dev/null
    done > "$work/near.json"
    python3 - "$work/near.json" $card <<'P' > "$work/out" 2>&1 && ok || bad "bytes in the cache: $card" "$work/out"
import json, sys
text, runs = open(sys.argv[1]).read(), []
while text.strip():
    d, n = json.JSONDecoder().raw_decode(text.strip())
    runs.append(d["time"]["device_s"])
    text = text.strip()[n:]
none, held, lost = runs
assert none == lost, runs
saved = 40e6 / (864e9 * 0.7) - 40e6 / (0.0486 * 91.6e12)
assert abs(none - held - (saved if sys.argv[2] == "l40s" else 0)) < 1e-9, (runs, saved)
P
done

# How long ago bytes were last used, against a list of every byte: what an operator reads counts from when it was last used, what it writes from when it was
# last written, and a byte's place in an operator from how far into it it lies.
python3 -B - "$null/probe" <<'P' > "$work/out" 2>&1 && ok || bad "how long ago bytes were last used" "$work/out"
import random
import sys
sys.path.insert(0, sys.argv[1])
from vplan_reuse import Ranges, Reuse
random.seed(1)
for _ in range(200):
    ranges, cells = Ranges(), [None] * 60
    for k in range(40):
        start, size = random.randrange(50), random.randrange(1, 10)
        if random.random() < 0.5:
            ranges.put(start, size, k, 2 * k)
            cells[start:start + size] = [k] * size
        got, want = {}, {}
        for n, at, moved in ranges.of(start, size):
            assert moved == 2 * at
            got[at] = got.get(at, 0) + n
        for at in cells[start:start + size]:
            if at is not None:
                want[at] = want.get(at, 0) + 1
        assert got == want, (got, want)
MB = 1000000
reuse, here, there, far = Reuse(), 1000 * MB, 1100 * MB, 1500 * MB
assert reuse.operator([], [(here, 10 * MB)], 10 * MB) == ()                           # never seen
# read right after: the first byte 10 MB after it was written, the last one, written 10 MB in and read 30 MB in, 30
assert reuse.operator([(here, 10 * MB)], [(there, 20 * MB)], 30 * MB) == ((10 * MB, 10 * MB, 30 * MB),)
# read 30 MB after that; and written: 40 MB after they were written, not after they were read
assert reuse.operator([(here, 10 * MB)], [], 10 * MB) == ((10 * MB, 30 * MB, 10 * MB),)
assert reuse.operator([], [(here, 10 * MB)], 10 * MB) == ((10 * MB, 50 * MB, 50 * MB),)
assert reuse.operator([], [(far, 300 * MB)], 300 * MB) == ()
assert reuse.operator([(here, 10 * MB)], [], 10 * MB) == ()                              # longer ago than any cache
assert reuse.operator([(0, 10 * MB)], [(0, 10 * MB)], 20 * MB) == reuse.operator([(0, 10 * MB)], [], 10 * MB) == ()   # nobody says where
P

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

# Without --device: the GPU here, which NVML describes. The stand-in has an NVML too, and no GPU.
here() { env LD_LIBRARY_PATH="$null" VPLAN_NULL_NAME="$1" VPLAN_NULL_TOTAL_BYTES=24000000000 \
             VPLAN_NULL_LIMIT_BYTES=20000000000 "$vplan" dryrun --json -- true; }
expect "the GPU here is the default, with what is free on it" 5 '"budget_bytes": 20000000000' here "NVIDIA L4"
grep -q '"device": "l4-24gb"' "$work/out" && grep -q "the GPU here, l4-24gb; dry runs do not use it" "$work/out" && ok ||
    bad "the GPU here is not named" "$work/out"
expect "a GPU that the table does not have" 5 "the GPU here, NVIDIA NEXT, is not in our table" here "NVIDIA NEXT"
CUDA_VISIBLE_DEVICES= expect "a GPU that is hidden" 5 "h100-sxm-80gb" here "NVIDIA L4"

# Fake weights: what a model is, without a Python that has torch.
expect "weights of a built-in model" 0 '"n_embd": 768' dry --fake-weights gpt2 -o "$work/w" -- sh -c 'cat "$1"'
expect "weights with a Python command of forty words" 0 "words 40, then .*fake_weights.py" dry --fake-weights gpt2 -o "$work/w" -- \
    sh -c 'echo "words $(($# - 5 + 4)), then ${37}"' sh $(seq 36)
expect "weights of a Hub id that is not here" 4 "hf download some-org/some-model --include" \
    dry --fake-weights some-org/some-model -o "$work/w" -- true
held=$HOME/.cache/huggingface/hub/models--some-org--some-model
mkdir -p "$held/refs" "$held/snapshots/0123456789abcdef0123456789abcdef01234567"
echo 0123456789abcdef0123456789abcdef01234567 > "$held/refs/main"
echo '{"model_type": "of the cache"}' > "$held/snapshots/0123456789abcdef0123456789abcdef01234567/config.json"
expect "weights of a Hub id in the cache" 0 "of the cache" \
    dry --fake-weights some-org/some-model -o "$work/w" -- sh -c 'cat "$1/config.json"'
rm -rf "$HOME/.cache"

# A library with CUDA code of its own, as flash-attn's wheels are: named, whether it lacks a function of the
# stand-in or links a runtime of its own into itself.
cat > "$work/own.c" <<'C'
#include <dlfcn.h>
int run(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *table;
    int (*f)(void **, const void *) = dlsym(driver, "cuGetExportTable");
    return f(&table, "0123456789abcdef");
}
C
${CC:-gcc} -w -shared -fPIC -o "$work/flash_attn_2_cuda.so" "$work/own.c" -ldl || bad "own.c does not build"
expect "a library with its own CUDA runtime is named" 4 "cuGetExportTable of flash_attn_2_cuda.so is not modelled" \
    dry -- python3 -c "import ctypes; ctypes.CDLL('$work/flash_attn_2_cuda.so').run()"
archive=$(ls /usr/local/cuda*/lib64/libcudart_static.a 2> /dev/null | head -1)
if [ -n "$archive" ]; then
    echo 'int cudaMalloc(void **, unsigned long); int run(void) { void *p; return cudaMalloc(&p, 1024); }' > "$work/own.c"
    ${CC:-gcc} -w -shared -fPIC -o "$work/fused_adam_cuda.so" "$work/own.c" -Wl,-Bsymbolic -Wl,--exclude-libs,ALL "$archive" \
        -lpthread -ldl -lrt || bad "a library with the static runtime does not build"
    expect "NVIDIA's static runtime is named by its library" 4 "cuGetExportTable of fused_adam_cuda.so" \
        dry -- python3 -c "import ctypes; ctypes.CDLL('$work/fused_adam_cuda.so').run()"
else
    skip "no libcudart_static.a: a library with NVIDIA's static runtime"
fi
echo 'int cudaNextYear(void); int run(void) { return cudaNextYear(); }' > "$work/own.c"
${CC:-gcc} -w -shared -fPIC -o "$work/xformers_C.so" "$work/own.c"
cat > "$work/needs.py" <<'P'
import ctypes
import sys
try:
    ctypes.CDLL(sys.argv[1], mode=2)         # RTLD_NOW, as Python loads its modules
except OSError as e:
    raise ImportError(str(e))
P
expect "a library that needs a function of the future" 4 "xformers_C.so: undefined symbol: cudaNextYear" \
    dry -- python3 "$work/needs.py" "$work/xformers_C.so"

# Nothing is written outside the given paths.
mkdir "$work/cwd"
(cd "$work/cwd" && "$vplan" dryrun -- python3 -c 'import json' > /dev/null 2>&1)
[ -z "$(ls -A "$work/cwd" "$HOME" | grep -v :)" ] && [ ! -e "$null/probe/__pycache__" ] && ok ||
    bad "files were written outside the given paths"

# ---- PyTorch ----
python=${VPLAN_TORCH_PYTHON:-python3}
if ! "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2> /dev/null; then
    skip "no Python with torch (set VPLAN_TORCH_PYTHON): real scripts, known peaks"
    finish
fi
version=$("$python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2> /dev/null)
if ! grep -q "\"${version%%+*}\"" dryrun/probe/vplan_probe.py; then
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
expect "a card chosen by its number on the user's machine" 0 "one card, True" dry -- "$python" -c '
import os; os.environ["CUDA_VISIBLE_DEVICES"] = "3"
import torch; print(["no", "one"][torch.cuda.device_count()], "card,", torch.cuda.get_device_properties(0).total_memory > 0)'
expect "a script that hides the card" 0 "never used the device.*none, False" dry -- "$python" -c '
import os; os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch; print(["none", "one"][torch.cuda.device_count()] + ",", torch.cuda.is_available())'
expect "torch that was looked for before it is imported" 0 "^FITS" dry -- "$python" -c \
    'import importlib.util; importlib.util.find_spec("torch"); import torch; torch.zeros(1, device="cuda")'
expect "an unmodelled library call" 4 "cusolver.*is not modelled" dry -- "$python" -c \
    'import torch; torch.linalg.svd(torch.zeros(4, 4, device="cuda"))'
expect "host memory" 5 "host memory ran out" dry --host-memory 1GiB -- "$python" -c \
    'import torch, time; x = torch.ones(400 << 20); time.sleep(5)'
expect "a module that calls something of its own buffers" 0 " parameters  *2,048 B" dry -- "$python" -c '
import torch
net = torch.nn.Linear(32, 16, bias=False, device="cuda")
net.buffers = []
net(torch.zeros(1, 32, device="cuda")).sum().backward()'
expect "worker processes" 0 "8 batches" dry -- "$python" -c '
import torch
from torch.utils.data import DataLoader
net = torch.nn.Linear(8, 8).cuda()
print(sum(1 for b in DataLoader(torch.zeros(16, 8), 2, num_workers=2, pin_memory=True) if net(b.cuda()) is not None), "batches")'
expect "a fork that uses the device" 0 "Cannot re-initialize CUDA in forked subprocess" dry -- "$python" -c '
import os, sys, torch
torch.zeros(1, device="cuda")
if os.fork() == 0:
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as e:
        print(e, file=sys.stderr)
    os._exit(0)
os.wait()'
printf 'MemTotal: 1024000 kB\nMemAvailable: 20480 kB\n' > "$work/meminfo"
VPLAN_NULL_MEMINFO=$work/meminfo expect "a host that is nearly full" 5 "host memory ran out.*weights were made on the CPU" \
    dry -- "$python" -c 'import torch, time; x = torch.ones(200 << 20); time.sleep(5)'

# Every CUDA function that this torch imports is one the stand-in has, or names itself.
libraries=$("$python" -c 'import importlib.util as u, os; print(os.path.join(u.find_spec("torch").submodule_search_locations[0], "lib"))')
sh dryrun/stand_in/list_symbols.sh "$libraries" > "$work/imported"
grep -v '^#' dryrun/stand_in/symbols.txt | LC_ALL=C sort -u | LC_ALL=C comm -13 - "$work/imported" > "$work/lacking"
[ "$(wc -l < "$work/imported")" -gt 500 ] && [ ! -s "$work/lacking" ] && ok || bad "the stand-in lacks functions of torch $version" "$work/lacking"

# torch.compile: what it compiles is gone with the run (a card that is not there must not serve a real one), and the
# values it folds are real: x + 2 is another tensor than x, 4 MiB each.
if "$python" -c 'import triton' 2> /dev/null; then
    cat > "$work/fold.py" <<'P'
import torch
add = torch.compile(lambda x: x + torch.full((1 << 20,), 2.0, device="cuda") * 1.0)
x = torch.zeros(1 << 20, device="cuda")
y = add(x)
print("apart", y.data_ptr() != x.data_ptr(), torch.cuda.memory_allocated())
P
    TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton expect "torch.compile folds constants as a card does" 0 \
        "apart True 8388608" dry --device l4 -- "$python" "$work/fold.py"
    [ ! -e "$work/inductor" ] && [ ! -e "$work/triton" ] && ok || bad "what was compiled for a card that is not there is kept"
    # Fused: of 2^20 floats three kernels that read and write 4 MiB each become one; of 64 rows of 256 floats, taken from a table
    # by 8 bytes each, two become one that reads rows, not the table. 5 operators of 25 + 4 us are 2 kernels of 4 + 4 us.
    cat > "$work/fused.py" <<'P'
import sys
import torch
def work(x, table, rows):
    return torch.tanh(x) * 2 + 1, torch.nn.functional.embedding(rows, table) + 1
work = torch.compile(work) if sys.argv[1] == "compiled" else work
net = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters())
x, table, rows = torch.zeros(1 << 20, device="cuda"), torch.zeros(50000, 256, device="cuda"), torch.zeros(64, dtype=torch.long, device="cuda")
for _ in range(4):
    work(x, table, rows)
    net(torch.zeros(4, 8, device="cuda")).sum().backward()
    optimizer.step()
P
    if "$python" -c 'import torch; torch._C._dynamo.guards.set_is_in_mode_without_ignore_compile_internals' 2> /dev/null; then
        for how in eager compiled; do
            dry --device l4 --steps 2 --time --json -- "$python" "$work/fused.py" $how > "$work/$how.json" 2> "$work/err" || bad "a $how step is timed" "$work/err"
        done
        expect "torch.compile: its kernels, their bytes, and what the host has to do" 0 "^3 16908288 129$" python3 -c 'import json, sys
a, b = (json.load(open(f))["time"] for f in sys.argv[1:])
moved = lambda t: sum(c["bytes"] for c in t["classes"])
print(a["launches"] - b["launches"], moved(a) - moved(b), round((a["host_s"] - b["host_s"]) * 1e6))' "$work/eager.json" "$work/compiled.json"
    else
        expect "torch.compile: an older torch is told of" 0 "would be compiled anew by torch" dry --device l4 --steps 2 --time -- "$python" "$work/fused.py" compiled
    fi
else
    skip "no triton beside torch: torch.compile"
fi

# Launchers are followed to the rank that is played: the same bytes as that rank by itself.
peaks() { "$vplan" dryrun --device l4 --json "$@" 2> "$work/err" | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["verdict"], d["allocated_peak_bytes"] > 0 and d["allocated_peak_bytes"])'; }
cat > "$work/ranks.py" <<'P'
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    net(torch.zeros(64, 512, device="cuda")).sum().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
print("rank", dist.get_rank(), "of", dist.get_world_size())
P
alone=$(peaks --world 4 -- "$python" "$work/ranks.py")
for launcher in "torch.distributed.run --standalone --nproc-per-node 4" \
    "accelerate.commands.launch --multi_gpu --num_processes 4 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0"; do
    "$python" -c "import ${launcher%% *}" 2> /dev/null || { skip "no ${launcher%% *}"; continue; }
    launched=$(peaks -- "$python" -m $launcher "$work/ranks.py")
    [ "$alone" = "$launched" ] && [ "${alone%% *}" = fits ] && grep -q "rank 0 of 4" "$work/err" && ok ||
        bad "${launcher%% *}: $launched, alone $alone" "$work/err"
done
if "$python" -c 'import accelerate.commands.launch' 2> /dev/null; then   # as a module, and as the script that pip installs
    printf 'from accelerate.commands.accelerate_cli import main\nmain()\n' > "$work/accelerate_cli.py"
    for launcher in "-m accelerate.commands.launch" "$work/accelerate_cli.py launch"; do
        launched=$(peaks -- "$python" $launcher --num_processes 4 "$work/ranks.py")
        [ "$alone" = "$launched" ] && grep -q "rank 0 of 4" "$work/err" && ok || bad "${launcher##*/} --num_processes 4 alone: $launched" "$work/err"
    done
fi
expect "a group on host tensors beside the device's" 0 "sum 1.0" dry --world 4 -- "$python" -c '
import torch, torch.distributed as dist
dist.init_process_group("cpu:gloo,cuda:nccl")
group, x = dist.new_group([0, 1], backend="gloo"), torch.ones(1)
dist.all_reduce(x, group=group)
print("sum", x.item(), torch.zeros(1, device="cuda").shape)'
expect "torchrun: what was not run is said" 0 "rank 0 of the 4 that the launcher started" dry -- "$python" \
    -m torch.distributed.run --standalone --nproc-per-node 4 "$work/ranks.py"
printf '#!/bin/sh\ncd "$(dirname "$1")" && %s -m ranks\n' "$python" > "$work/run.sh"
launched=$(peaks --world 4 -- sh "$work/run.sh" "$work/ranks.py")
[ "$alone" = "$launched" ] && ok || bad "a shell script with python -m: $launched, alone $alone" "$work/err"

# All ranks together: they meet, and what would hang is found; ranks alone have the same bytes.
loop=tests/dryrun/scripts/rank_loop.py
together() { dry --device l4 --world 4 --rank all -- "$python" $loop "$1"; }
expect "four ranks meet" 0 "rank 3 of 4 met \[0, 1, 2, 3\] and 1" together even
expect "a list that a rank broadcasts" 0 "rank 3 of 4 met" together values
expect "uneven ranks" 0 "0 and 2 more" together uneven
expect "communicators split off others" 0 "0 and 3 more" dry --device h100 --world 4 --rank all -- "$python" tests/dryrun/scripts/split_groups.py
expect "collectives in another order, with both frames" 4 \
    "collective 5 of a communicator of 4 ranks, rank 0: all_reduce of 10 x float32 at .*rank_loop.py.*; rank 2: all_gather of 10 x float32 at .*rank_loop.py" \
    together order
expect "a rank that breaks is the reason" 4 "exit code 1: ValueError" together breaks
expect "a loss that is asked whether it is finite is" 0 "^skipped 0 times, True False$" dry -- "$python" -c '
import torch
net, skipped = torch.nn.Linear(8, 8).cuda(), 0
optimizer = torch.optim.SGD(net.parameters())
for _ in range(2):
    loss = net(torch.zeros(4, 8, device="cuda")).sum()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if not torch.isfinite(loss) or not norm.isfinite().all().item() or not torch.all(torch.isfinite(net.weight)) or torch.isnan(loss).any():
        skipped += 1
        continue
    optimizer.step()
one = torch.ones(1, device="cuda")
asked = torch.isfinite(one)
asked &= one > 2
print("skipped", skipped, "times,", bool(torch.isfinite(one)), bool(asked))'
expect "a step that a value kept the script from is said" 0 "gradients were computed and no optimizer stepped" dry -- "$python" -c '
import torch
net = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(net.parameters())
loss = net(torch.zeros(4, 8, device="cuda")).sum()
loss.backward()
if loss < 1e9:
    optimizer.step()'
if "$python" -c 'import transformers' 2> /dev/null; then
    for padding in none mask; do
        [ $padding = none ] && seen=True || seen=False
        expect "--padding $padding: an answer that asks for another" 0 "skipped $seen" dry --padding $padding -- "$python" -c '
import torch, transformers.masking_utils as m
print("skipped", m._ignore_causal_mask_sdpa(torch.ones(2, 8, dtype=torch.bool, device="cuda"), 8, 8, 0, 0))'
    done
    # A mask that was made of ones, or a part of it, holds no padding; one that was written since may.
    expect "masks of ones hold no padding" 0 "dropped \[True, True, False, False\]" dry -- "$python" -c '
import torch, transformers
from transformers.masking_utils import create_causal_mask
config = transformers.LlamaConfig(hidden_size=64, num_attention_heads=2, num_hidden_layers=1)
config._attn_implementation = "sdpa"
x = torch.zeros(2, 8, 64, device="cuda")
long, padded, other = torch.ones(2, 12, device="cuda"), torch.ones(2, 8, dtype=torch.long, device="cuda"), torch.ones_like(x[..., 0])
padded[:, 6:] = 0
other.mul_(x[..., 0])
print("dropped", [create_causal_mask(config, x, mask, None) is None for mask in (torch.ones_like(x[..., 0]), long[:, :8], padded, other)])'
    mkdir "$work/forks" # where the script makes its folder "out", which is a file of expect's above
    for kind in trainer sft; do
        expect "a run of $kind that is a fork says what a fresh one says" 0 "^right: fits" env -C "$work/forks" python3 "$PWD/tests/dryrun/check_forks.py" --vplan "$vplan" --python "$python" -- \
            "$PWD/tests/dryrun/scripts/forked_trainer.py" $kind --per_device_train_batch_size 2 --bf16 True
    done
    expect "FSDP2 of 4: shards sum to the model, ranks alone are the same" 0 "right$" python3 tests/dryrun/play_ranks.py --vplan "$vplan" \
        --python "$python" --only "fsdp2 of 4"
else
    skip "no transformers beside torch: FSDP2 of 4 ranks"
fi

# What grows from step to step, by frame: 65536 floats a step kept at line 28 of the script, whatever the lengths of the batches;
# a cache filled once, longer batches and a queue of batches keep nothing. A loss is 4 bytes in a block of 512.
grows() { dry --device l4 -- "$python" tests/dryrun/scripts/grows.py "$1"; }
expect "a metric that stays on the device" 0 "512.0 KiB *in 2 steps, 2 tensors: .*grows.py:28" grows metric
expect "the same with batches of all lengths" 0 "512.0 KiB *in 2 steps, 2 tensors: .*grows.py:28" grows lengths
expect "losses kept with their graphs" 0 "640.5 KiB a step are kept for later steps" grows graph
expect "longer batches" 0 "nothing of an earlier step is kept: longer batches" grows longer
for how in nothing cache ahead; do
    grows $how > "$work/out" 2> /dev/null && ! grep -q "are kept for later steps\|longer batches" "$work/out" && ok || bad "growth: $how" "$work/out"
done
# The peak comes after the history was ended and begun anew: what older blocks are is known by then. Six steps of two Linear(256, 1024): the optimizer's states of
# 2 x 2 MiB and a bit are made in step1, the gradients of a steady step are no activations, nor is what its backward takes for itself.
cat > "$work/late.py" <<'P'
import torch
net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for n in (1024, 1024, 1024, 1024, 1024, 8192, 8192, 8192):
    net(torch.zeros(n, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
P
"$vplan" dryrun --device l4 --json -- "$python" "$work/late.py" 2> /dev/null > "$work/out"
python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); o = d["owners"]
assert d["peak_phase"] == "steady", d["peak_phase"]
assert {x["phase"] for x in o if x["kind"] == "optimizer_state"} == {"step1"}, o
assert {x["phase"] for x in o if x["kind"] == "parameters"} == {"load"}, o
assert {x["phase"] for x in o if x["kind"] == "cublas_workspace"} == {"forward1", "backward1"}, o
assert [x["bytes"] for x in o if x["kind"] == "temporaries" and x["phase"] == "steady" and "autograd" in x["frame"]][0] >= 8192 * 1024 * 4, o
' "$work/out" 2> "$work/err" && ok || bad "who holds what after a late peak" "$work/err"
# Threads that allocate at once: eight blocks of 12 MiB and eight of 14 MiB, in one order or another.
cat > "$work/threads.py" <<'P'
import threading, torch
torch.zeros(1, device="cuda")
def work(n):
    for i in range(8):
        held.append(torch.empty(n << 20, dtype=torch.uint8, device="cuda"))
        if i % 2:
            del held[0]
held = []
threads = [threading.Thread(target=work, args=(n,)) for n in (3, 5, 12, 14)]
[t.start() for t in threads]
[t.join() for t in threads]
P
"$vplan" dryrun --device l4 --repeat 4 --json -- "$python" "$work/threads.py" 2> /dev/null > "$work/out"
python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); r = d["repeats"]
assert r["runs"] == 4 and r["reserved_least_bytes"] < r["reserved_most_bytes"] == d["reserved_peak_bytes"], r' "$work/out" 2> "$work/err" &&
    ok || bad "four orders of threads" "$work/err"
expect "one thread has one order" 0 "reserved .* to " dry --device l4 --repeat 2 -- "$python" tests/dryrun/scripts/grows.py nothing
expect "a snapshot of several runs" 2 "leave out --repeat" dry --repeat 2 --snapshot "$work/none" -- true

printf 'import torch\nx = torch.ones(4, device="cuda")\n' > "$work/reads.py"
for i in 0 1 2 3 0; do echo "x[$i].item()" >> "$work/reads.py"; done
expect "values read at many places" 0 "reads.py:5 (<module>), 1 times, 4 bytes in all device values read as zero: 2 more places with --json next vplan dryrun --device l4 --steps 3 --time" \
    dry --device l4 -- "$python" "$work/reads.py"

printf 'import torch\nx = torch.arange(8, device="cuda")\nprint([0][:x.sum().item()][0])\n' > "$work/by_value.py"
expect "an error that comes of a value" 4 "IndexError: list index out of range (nothing is computed on a card: the values that .*by_value.py:3 (<module>) read there are zeros" \
    dry -- "$python" "$work/by_value.py"

printf 'raise RuntimeError("Failed to import trl because of (look up to see its traceback):\\nNo module named llm_blender\\nand more")\n' > "$work/two_lines.py"
expect "an error whose first line ends in a colon" 4 "exit code 1: RuntimeError: Failed to import trl because of (look up to see its traceback): No module named llm_blender card" \
    dry -- "$python" "$work/two_lines.py"

# CTC whose lengths were counted on the device (wav2vec2's way) takes what it takes where the host knows them.
cat > "$work/ctc.py" <<'P'
import sys, torch
net = torch.nn.Linear(64, 40).cuda()
labels = torch.ones(4, 10, dtype=torch.long).cuda()
n_inputs, n_targets = torch.full((4,), 50), torch.full((4,), 10)
for _ in range(3):
    mask = labels >= 0
    counted = mask.sum(-1)
    if sys.argv[1] == "device":
        n_targets = counted
    out = net(torch.zeros(50, 4, 64, device="cuda")).log_softmax(-1)
    torch.nn.functional.ctc_loss(out, labels.masked_select(mask), n_inputs, n_targets).backward()
torch.optim.SGD(net.parameters(), lr=0.1).step()
P
ctc() { "$vplan" dryrun --device l4 --json -- "$python" "$work/ctc.py" "$1" 2> "$work/err" | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["verdict"], [(p["name"], p["requested_bytes"]) for p in d["phases"] if p["name"] != "load"])'; }
expect "CTC's lengths are a stated assumption" 0 "lengths that were counted on the device are taken to be the longest" dry --device l4 -- "$python" "$work/ctc.py" device
host=$(ctc host) device=$(ctc device)
[ "${host%% *}" = fits ] && [ "$host" = "$device" ] && ok || bad "CTC: host $host, device $device" "$work/err"

# Lightning saves into a buffer and writes that: --steps writes nothing, here with a stand-in of its function.
mkdir -p "$work/light/lightning/fabric/utilities"
touch "$work/light/lightning/__init__.py" "$work/light/lightning/fabric/__init__.py" "$work/light/lightning/fabric/utilities/__init__.py"
printf 'def _atomic_save(checkpoint, filepath):\n    open(filepath, "w").write("saved")\n' > "$work/light/lightning/fabric/utilities/cloud_io.py"
printf 'import torch\nfrom lightning.fabric.utilities.cloud_io import _atomic_save\ntorch.zeros(8, device="cuda")\n_atomic_save({}, "%s")\n' "$work/light/last.ckpt" > "$work/light/fit.py"
expect "Lightning's checkpoints with --steps" 0 "checkpoints were not written" dry --device l4 --steps 1 -- "$python" "$work/light/fit.py"
[ ! -e "$work/light/last.ckpt" ] && ok || bad "--steps writes Lightning's checkpoint"

# Unsloth copies the rows of the head whose tokens nobody trained, which are zeros in the table; here all are. With a stand-in of its function.
mkdir -p "$work/sloth/unsloth_zoo"
touch "$work/sloth/unsloth_zoo/__init__.py"
printf 'import torch\ndef fix_untrained_tokens(table, head):\n    return head[torch.where(table.amax(1) <= 0)[0]].clone()\n' > "$work/sloth/unsloth_zoo/tokenizer_utils.py"
printf 'import sys\nimport torch\nfrom unsloth_zoo.tokenizer_utils import *\ntable, head = [torch.zeros(4096, 512, device="cuda") for _ in "th"]\n%s\n' \
    'torch.cuda.reset_peak_memory_stats(); rows = fix_untrained_tokens(table, head); print(tuple(rows.shape), torch.cuda.max_memory_allocated() < 3 * head.nbytes); print(tuple(head[table.amax(1) <= 0].shape))' > "$work/sloth/fix.py"
expect "Unsloth's untrained tokens" 0 "no token of the vocabulary is untrained" dry --device l4 -- "$python" "$work/sloth/fix.py"
expect "of which there are none, and of other masks all" 0 "(0, 512) True (4096, 512)" dry --device l4 -- "$python" "$work/sloth/fix.py"

# Checkpoints of an earlier run stay: a dry run's are zeros. What the command makes itself is written, and deleted.
cat > "$work/saves.py" <<'P'
import os, shutil, sys, torch
state = {"w": torch.zeros(8, device="cuda")}
os.chdir(sys.argv[1])
torch.save(state, "mine.pt")
torch.save(obj=state, f="new.pt")
torch.save(state, f="new.pt")
for name in ("checkpoint-1/config.json", "checkpoint-1/state.json", "results.json", "new.json"):     # beside weights of before
    with open(name, "w") as f:
        f.write("{}")
for name in ("results.json", "checkpoint-1/state.json"):
    with open("temporary", "w") as f:
        f.write("{}")
    os.replace("temporary", name)
os.replace("best.json", "before.json")      # what a run keeps for the next one, of which both were there
os.system("echo shell > checkpoint-1/by_shell; echo shell > results.json; echo more >> log.txt")
shutil.rmtree("checkpoint-1")
os.mkdir("checkpoint-2")
torch.save(state, "checkpoint-2/w.pt")
shutil.rmtree("checkpoint-2")
os.mkdir("checkpoint-3")
open("checkpoint-3/state.json", "w").close()
torch.save(state, "checkpoint-3/w.pt")
try:
    import safetensors.torch as s
    s.save_file(state, filename="mine.safetensors")
    s.save_file(tensors=state, filename="new.safetensors")
except ImportError:
    shutil.copy("new.pt", "new.safetensors")
P
mkdir -p "$work/saved/checkpoint-1"
for f in mine.pt mine.safetensors checkpoint-1/w.pt checkpoint-1/config.json results.json best.json before.json log.txt; do echo real > "$work/saved/$f"; done
expect "a run beside checkpoints" 0 "checkpoints that were here before were left as they are" dry --device l4 -- "$python" "$work/saves.py" "$work/saved"
[ "$(cat "$work"/saved/mine.* "$work"/saved/checkpoint-1/* "$work"/saved/{results,best,before}.json | sort -u)" = real ] && [ -e "$work/saved/best.json" ] && [ "$(ls "$work/saved/checkpoint-1")" = "config.json
w.pt" ] && [ "$(cat "$work/saved/log.txt")" = "real
more" ] && [ -s "$work/saved/new.json" ] && [ ! -e "$work/saved/temporary" ] && [ -s "$work/saved/new.pt" ] && [ -s "$work/saved/new.safetensors" ] &&
    [ ! -e "$work/saved/checkpoint-2" ] && [ -s "$work/saved/checkpoint-3/w.pt" ] && ok || bad "an earlier run's checkpoints are written over"
rm -r "$work"/saved/new.* "$work/saved/checkpoint-3"
expect "steps that are cut write none, by any name" 0 "checkpoints were not written" dry --device l4 --steps 1 -- "$python" "$work/saves.py" "$work/saved"
[ ! -e "$work/saved/new.pt" ] && [ ! -e "$work/saved/checkpoint-3" ] && [ -e "$work/saved/checkpoint-1/w.pt" ] && ok || bad "--steps writes a checkpoint"
cat > "$work/shards.py" <<'P'
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
net = torch.nn.Linear(64, 64).cuda()
fully_shard(net)
optimizer = torch.optim.AdamW(net.parameters())
for x in torch.utils.data.DataLoader(torch.zeros(64, 64), batch_size=8):
    net(x.cuda()).sum().backward()
    optimizer.step()
dcp.save({"net": net.state_dict()}, checkpoint_id=sys.argv[1])
print("saved")
if len(sys.argv) > 2:
    state = {"net": net.state_dict()}
    dcp.load(state, checkpoint_id=sys.argv[1])
    print("loaded")
dist.destroy_process_group()
P
expect "a rank alone saves its shards" 0 "^saved" dry --device l4 --world 2 -- "$python" "$work/shards.py" "$work/shards"
[ -s "$work/shards/.metadata" ] && ok || bad "no shards were written"
expect "and loads what it has saved" 0 "^loaded" dry --device l4 --world 2 -- "$python" "$work/shards.py" "$work/loaded" load
echo real > "$work/shards/.metadata"
expect "all ranks beside shards of an earlier run" 0 "were left as they are" dry --device l4 --world 2 --rank all -- "$python" "$work/shards.py" "$work/shards"
[ "$(cat "$work/shards/.metadata")" = real ] && ok || bad "shards of an earlier run are written over"
expect "shards of a run that is cut" 0 "^saved" dry --device l4 --world 2 --steps 2 -- "$python" "$work/shards.py" "$work/none"
[ -z "$(ls -A "$work/none" 2> /dev/null)" ] && ok || bad "--steps writes shards"

# Buckets that DDP makes anew in the second step: the first ones are let go of by a thread that looks ten times a second, at works which are done.
# Whether the program dawdles or not, and whether it waits for its card or not, the peak is the same.
cat > "$work/buckets.py" <<'P'
import sys, time, torch
import torch.distributed as dist
dist.init_process_group("nccl")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(40))).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.zeros(8, 1024, device="cuda")).square().mean()
    loss.backward()
    if sys.argv[1] != "ahead":
        loss.item()
    if sys.argv[1] == "slow":
        time.sleep(0.3)
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
P
buckets() { MASTER_ADDR=localhost MASTER_PORT=29517 "$vplan" dryrun --device l4 --world 4 -- "$python" "$work/buckets.py" "$1" 2>&1 | grep '^peak'; }
slow=$(buckets slow)
for how in quick ahead; do
    [ -n "$slow" ] && [ "$(buckets $how)" = "$slow" ] && ok || bad "DDP's buckets, $how: another peak than $slow"
done

# A step of DeepSpeed's engine is one update of the weights: of 2 micro-steps, in which ZeRO steps the optimizer once for each of 2 groups.
if "$python" -c 'import deepspeed' 2> /dev/null; then
    cat > "$work/engine.py" <<'P'
import sys, torch, deepspeed
net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).bfloat16()
groups = [{"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.1}, {"params": [p for p in net.parameters() if p.ndim == 1]}]
engine = deepspeed.initialize(model=net, model_parameters=groups, optimizer=torch.optim.AdamW(groups, lr=1e-4), config={
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": int(sys.argv[1])},
    "zero_allow_untested_optimizer": True})[0]
done = 0
for x in torch.utils.data.DataLoader(torch.zeros(64, 64), 2):
    engine.backward(engine(x.cuda().bfloat16()).float().square().mean())
    engine.step()
    done += 1
print("micro-steps", done, "steps", engine.global_steps)
P
    for stage in 2 3; do
        expect "steps of DeepSpeed's engine, ZeRO $stage" 0 "micro-steps 6 steps 3" dry --device l4 --world 2 --steps 3 -- "$python" "$work/engine.py" $stage
    done
else
    skip "no deepspeed beside torch: steps of its engine"
fi

# Seconds by module. 64 rows: Linear(256, 1024) is 2 x 64 x 256 x 1024 FLOP forward and for its weight's gradient, which is 67,108,864; each
# Linear(1024, 1024) 2 x 64 x 1024 x 1024 forward, twice that backward and once more where its block is recomputed: of three blocks 1,610,612,736;
# Linear(1024, 256) three times 33,554,432.
cat > "$work/modules.py" <<'P'
import sys, torch
from torch.utils.checkpoint import checkpoint
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)
        self.blocks = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()) for _ in range(3))
    def forward(self, x):
        x = self.first(x)
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=sys.argv[1] == "reentrant")
        return self.last(x)
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(int(sys.argv[2])):
    net(torch.zeros(64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
P
for how in reentrant other; do
    "$vplan" dryrun --device l4 --time --json -- "$python" "$work/modules.py" $how 4 2> /dev/null > "$work/out"
    python3 -c 'import json, sys
t = json.load(open(sys.argv[1]))["time"]; m = {x["name"]: x for x in t["modules"]}
assert {n: x["flop"] for n, x in m.items() if x["flop"]} == {"first": 67108864, "blocks.*.0": 1610612736, "last": 100663296}, m
assert m["(optimizer)"]["seconds"] == max(x["seconds"] for n, x in m.items() if not x["flop"]), m
for what in ("seconds", "operators", "launches", "bytes", "flop"):
    a, b = (sum(x[what] for x in t[k]) for k in ("modules", "classes"))
    assert abs(a - b) <= 1e-12 * max(a, b), (what, a, b)
assert abs(t["step_time_least_s"] / t["step_time_s"] - 0.89) < 1e-9 and abs(t["step_time_most_s"] / t["step_time_s"] - 1.33) < 1e-9, t' \
        "$work/out" 2> "$work/err" && ok || bad "seconds by module, $how" "$work/err"
done
cat > "$work/tokens.py" <<'P'
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 64)
    def forward(self, ids):
        return self.table(ids).square().mean()
net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    for _ in range(2):
        net(torch.zeros(4, 50, dtype=torch.long, device="cuda")).backward()
    optimizer.step()
P
expect "samples and tokens of a step: two times four rows of 50" 0 "8 samples a step.* 400 tokens a step" dry --device l4 --time -- "$python" "$work/tokens.py"
expect "a command too short to be timed says so" 0 "no seconds: the step that is timed is the one after 3, and the command did 3" dry --device l4 --time -- "$python" "$work/modules.py" other 3
python3 -c 'import json
r = [m / p for x in json.load(open("tests/dryrun/results/side-by-side.json"))["rows"] for m, p in zip(x["published_s"], x["predicted_s"])]
assert 0.89 <= min(r) < 0.90 and 1.18 < max(r) <= 1.19, (min(r), max(r))' 2> "$work/err" && ok || bad "the interval of a step is that of the published ones" "$work/err"

# Settings that train on the card at the end (tune --on-card), which is the stand-in here: PyTorch's peaks are those of the dry runs.
cat > "$work/on_card.py" <<'P'
import argparse, torch
p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=4)
p.add_argument("--accum", type=int, default=4)
o = p.parse_args()
net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for k, x in enumerate(torch.utils.data.DataLoader(torch.zeros(4096, 256), batch_size=o.batch)):
    net(x.cuda()).square().mean().backward()
    if k % o.accum == o.accum - 1:
        optimizer.step()
        optimizer.zero_grad()
P
dry --device l4 -- sh -c 'exec env -u VPLAN_NULL_REPORT -u VPLAN_NULL_STEPS PYTHONPATH= "$0" tune -q --json --try --batch=4,16 --try --accum=4,1 --keep "batch*accum=16" -- "$1" "$2" > "$3"' \
    "$vplan" "$python" "$work/on_card.py" "$work/tuned" > /dev/null 2> "$work/err"
python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); ran = [t for t in d["trials"] if t["on_card"]]
assert ran and all(t["on_card"]["verdict"] == "ok" and t["on_card"]["timing"]["timed_steps"] == 7 for t in ran), ran
assert all(t["on_card"]["allocated_peak_bytes"] == t["allocated_peak_bytes"] > 0 for t in ran), ran
assert d["best"]["on_card"]["timing"]["step_time_s"] == min(t["on_card"]["timing"]["step_time_s"] for t in ran if t["settings"]), ran' \
    "$work/tuned" 2>> "$work/err" && ok || bad "settings that train on the card" "$work/err"

# Steps that are cut: the same peaks as the whole run, evaluation and saving played, nothing written.
figures() { "$vplan" dryrun --device l4 --json "$@" 2> "$work/err" | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["verdict"], d["allocated_peak_bytes"], d["reserved_peak_bytes"], ",".join(sorted({p["name"] for p in d["phases"]} & {"eval", "save"})))'; }
tunable=$PWD/tests/dryrun/scripts/tunable.py
whole=$(cd "$work" && figures -- "$python" "$tunable" --batch 64 --out whole.pt)
cut=$(cd "$work" && figures --steps 3 --time --no-owners -- "$python" "$tunable" --batch 64 --out cut.pt)
[ "$whole" = "$cut" ] && [ "${cut##* }" = "eval,save" ] && ok || bad "cut: $cut, whole: $whole" "$work/err"
[ -f "$work/whole.pt" ] && [ ! -f "$work/cut.pt" ] && ok || bad "a run that is cut writes its checkpoint, or a whole one does not"
rm -f "$work/whole.pt"
# A save that then takes the place of the last one (timm's), is linked to, copied, measured and deleted: a file that was not written
cat > "$work/replaces.py" <<'P'
import os, pathlib, shutil, sys
import torch
net = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
os.chdir(sys.argv[1])
data = torch.zeros(4, 8)
for epoch in range(4):
    for x in torch.utils.data.DataLoader(data, 2):
        net(x.cuda()).sum().backward()
        optimizer.step()
    torch.save(net.state_dict(), "tmp.pt")
    size = os.path.getsize("tmp.pt")
    os.replace("tmp.pt", "last.pt")
    os.link("last.pt", "epoch.pt")
    shutil.copy2("last.pt", "kept")
    pathlib.Path("epoch.pt").unlink()
    shutil.move("kept/last.pt", "best.pt")
    pathlib.Path("best.pt").rename("best-%d.pt" % epoch)
open("mine", "w").close()
os.rename("mine", "yours")
try:
    os.remove("tmp.pt")
except FileNotFoundError:
    print("as ever", size, sorted(os.listdir(".")), file=sys.stderr)
P
for words in "" "--steps 3"; do
    rm -rf "$work/saved" && mkdir -p "$work/saved/kept"
    expect "saves that take another's place $words" 0 "as ever $([ -n "$words" ] && echo "0 \['kept', 'yours'\]" || echo "[1-9][0-9]* \['best-0.pt', .*'best-3.pt', 'kept', 'last.pt', 'yours'\]")" \
        dry --device l4 $words -- "$python" "$work/replaces.py" "$work/saved"
done
expect "a loop without a loader ends at its step" 0 "as its batches come from no DataLoader" dry --steps 2 -- "$python" -c '
import torch
net = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
while True:
    net(torch.zeros(2, 8, device="cuda")).sum().backward()
    optimizer.step()'
expect "a loop that never ends over a loader ends too" 0 "does not end with the data" dry --steps 2 -- "$python" -c '
import torch
net = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.zeros(64, 8)      # one object: of a new one in each turn nobody knows that it is the same data
while True:
    for x in torch.utils.data.DataLoader(data, 2):
        net(x.cuda()).sum().backward()
        optimizer.step()'
# Epochs that are left cost nothing once the data is over: what follows the last of them is played, and counts, though a step was
# still to be timed. 8 MiB after training, where a step has less.
cat > "$work/epochs.py" <<'P'
import sys
import torch
net = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.zeros(8, 8)
for epoch in range(int(sys.argv[1])):
    for x in torch.utils.data.DataLoader(data, 2):
        net(x.cuda()).sum().backward()
        optimizer.step()
last = torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")
print("after training", torch.cuda.max_memory_allocated(), file=sys.stderr)
P
plain=$("$vplan" dryrun --device l4 --json -- "$python" "$work/epochs.py" 1 2> "$work/err" | python3 -c 'import json, sys; print(json.load(sys.stdin)["allocated_peak_bytes"])')
grep -q "^after training $plain$" "$work/err" && [ "$plain" -gt $((8 << 20)) ] && ok || bad "what comes after training is not the peak" "$work/err"
for words in "--steps 2 -- epochs.py 900" "--steps 2 --time -- epochs.py 900" "--time -- epochs.py 1" "--steps 4 --time -- epochs.py 1"; do
    expect "what comes after training, $words" 0 "\"allocated_peak_bytes\": $plain,.*after training $plain" \
        sh -c 'cd "$1" && "$2" dryrun --device l4 --json $3 -- "$4" $5' sh "$work" "$vplan" "${words% -- *}" "$python" "${words#* -- }"
done
# An evaluation of the data that was trained on is played too: batches of 32 have 2 MiB where those of training have 64 KiB.
cat > "$work/same_data.py" <<'P'
import torch
net = torch.nn.Sequential(torch.nn.Linear(8, 16384), torch.nn.ReLU(), torch.nn.Linear(16384, 8)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.zeros(64, 8)
for x in torch.utils.data.DataLoader(data, 1):
    net(x.cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
net.eval()
with torch.no_grad():
    print(sum(len(net(x.cuda())) for x in torch.utils.data.DataLoader(data, 32)), "evaluated")
P
whole=$(figures -- "$python" "$work/same_data.py")
cut=$(figures --steps 3 -- "$python" "$work/same_data.py")
[ "$whole" = "$cut" ] && [ "${cut##* }" = eval ] && ok || bad "an evaluation of the training's data: cut $cut, whole $whole" "$work/err"
expect "rank 3 of a command that starts none" 4 "rank 3, and the command started no ranks: say how many with --world" dry --rank 3 -- "$python" -c "import torch; torch.zeros(1, device=\"cuda\")"
expect "what fails after the cut is said" 0 "after the last step that was run the command ended with ZeroDivisionError" \
    dry --steps 2 -- "$python" -c '
import torch
net = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.zeros(64, 8), 2):
    net(x.cuda()).sum().backward()
    optimizer.step()
1 / 0'
# The gradient of x[indices] in a recorded step is that of a step that nobody records: written in place, its indices not checked.
cat > "$work/index.py" <<'P'
import torch
x = torch.nn.Parameter(torch.zeros(64, 8, device="cuda"))
optimizer = torch.optim.SGD([x], lr=0.1)
for i in torch.utils.data.DataLoader(torch.zeros(64, dtype=torch.long), 4):
    x[i.cuda()].sum().backward()
    optimizer.step()
P
${CC:-gcc} -D_GNU_SOURCE -shared -fPIC -O2 -o "$work/count.so" tests/dryrun/count_launches.c -ldl
counted=$(COUNT_LAUNCHES=$work/count.so dry -- "$python" tests/dryrun/count_program.py 4 "$work/index.py" 2>&1 | sed -n 's/^COUNTED //p' | cut -d' ' -f4)
recorded=$(dry --steps 3 --time --json -- "$python" "$work/index.py" 2> /dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["time"]["launches"])')
[ -n "$counted" ] && [ "$counted" = "$recorded" ] && ok || bad "the gradient of x[indices]: $recorded recorded, $counted counted"
# A recorded step, to the unit as others count it; and the order of settings as others measured it.
if "$python" -c 'import transformers' 2> /dev/null; then
    expect "a recorded step: products, copies and work are those that others count" 0 "gpt2 sdpa .*: equal" \
        python3 tests/dryrun/check_program.py --vplan "$vplan" --python "$python" --only "plain loop,gpt2 eager,gpt2 sdpa"
    expect "seconds go where published ones go" 0 " 0 in the wrong direction" \
        python3 tests/dryrun/play_pairs.py --vplan "$vplan" --python "$python" --only bert --seq 512
else
    skip "no transformers beside torch: products of a recorded step, seconds beside published ones"
fi

# Allocator settings: the same series as an independent model of the allocator comes to.
series() {   # NAME FRACTION LARGEST_LOG2 SETTING MODEL_OPTION...
    local name=$1 fraction=$2 largest=$3 setting=$4
    shift 4
    PYTORCH_CUDA_ALLOC_CONF=$setting PYTORCH_ALLOC_CONF=$setting "$vplan" dryrun --device l4 -- \
        "$python" tests/dryrun/scripts/allocator.py "$fraction" 1 "$largest" > "$work/out" 2> "$work/series"
    local device
    device=$(sed -n 's/^device //p' "$work/series")
    local allowed=()
    [ "$fraction" = 0 ] || allowed=("allowed=$(python3 -c "print(int($fraction * $device))")")
    expect "allocator: $name" 0 "events, counters equal after each" python3 tests/dryrun/allocator_model.py "$work/series" \
        device="$limit" total="$device" ${allowed[@]+"${allowed[@]}"} "$@"
}
limit=$("$vplan" dryrun --device l4 --json -- true 2> /dev/null | python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["budget_bytes"] - d["outside_bytes"])')
series "the default" 0 28 ""
series "the default, too large for the card" 0 33 ""
series "expandable segments" 0 28 expandable_segments:True expandable
series "expandable segments, too large for the card" 0 33 expandable_segments:True expandable
series "max_split_size_mb" 0 30 max_split_size_mb:64 max_split=67108864
series "max_split_size_mb, too large for the card" 0 33 max_split_size_mb:64 max_split=67108864
series "a per-process fraction" 0.1 30 ""
series "garbage_collection_threshold" 0.2 30 garbage_collection_threshold:0.6 gc=0.6
series "garbage collection with max_split_size_mb" 0.2 30 garbage_collection_threshold:0.5,max_split_size_mb:128 \
    gc=0.5 max_split=134217728
series "expandable segments and a fraction" 0.1 30 expandable_segments:True expandable

# cuDNN: the real one where it is, asked without a device; its answers as it gives them to others.
cudnn=$("$python" - <<'P' 2> /dev/null
import sys
sys.path.insert(0, "dryrun/probe")
import os
os.environ["VPLAN_NULL_REPORT"] = "."
import vplan_probe, torch
print(vplan_probe._cuda_libraries(torch)[0])
P
)
expect "cuDNN off: the report says so" 0 "cuDNN is off, its attention included (--cudnn off)" \
    dry --cudnn off -- "$python" tests/dryrun/scripts/convnet.py
if dry -- "$python" tests/dryrun/scripts/convnet.py 2>&1 | grep -q "cuDNN [0-9.]* checked"; then
    for layout in "" channels_last; do
        expect "cuDNN: a convolutional net $layout" 0 "cuDNN [0-9.]* checked [0-9]* plans" \
            dry -- "$python" tests/dryrun/scripts/convnet.py $layout
        grep -q "batch norms ran PyTorch's own path" "$work/both" && ok || bad "batch norms are not named" "$work/both"
    done
    expect "cuDNN: benchmark mode is named" 0 "cudnn.benchmark times" dry -- "$python" tests/dryrun/scripts/convnet.py benchmark
    expect "cuDNN: recurrent layers are named" 0 "recurrent layers ran PyTorch's own path" \
        dry -- "$python" tests/dryrun/scripts/recurrent.py
    expect "cuDNN: workspaces are those it gives another program" 0 "equal" python3 tests/dryrun/cudnn_compare.py \
        --vplan "$vplan" --python "$python" --cudnn "$cudnn" --work "$work"
else
    skip "no cuDNN that answers without a device beside this torch: $cudnn"
fi
expect "a snapshot" 0 "^FITS" dry --snapshot "$work/s.pickle" -- "$python" tests/dryrun/scripts/graphs.py
[ -s "$work/s.pickle" ] && ok || bad "no snapshot was written"
if "$python" -c 'import transformers' 2> /dev/null; then
    VPLAN_NULL_ADDRESSES=rising expect "known peaks" 0 " 0 different" dry --device tests/dryrun/huge.json -- "$python" \
        tests/dryrun/play_row.py --configs tests/dryrun/golden --rows tests/dryrun/golden/peaks.csv
    expect "weights of a built-in model, written" 0 "148 tensors, 497759232 bytes that take no disk" \
        dry --fake-weights gpt2 -o "$work/w" -- "$python"
    [ "$(du -sk "$work/w" | cut -f1)" -lt 200 ] && ok || bad "fake weights take disk"
    mkdir "$work/has"
    cp "$work/w/config.json" "$work/has"
    echo '{"a": 1}' | tee "$work/has/tokenizer.json" "$work/has/model.safetensors.index.json" > "$work/has/preprocessor_config.json"
    expect "weights of a folder" 0 "148 tensors, 497759232 bytes that take no disk" dry --fake-weights "$work/has" -o "$work/h" -- "$python"
    # a pipeline of diffusers, whose place a package of one model takes
    mkdir -p "$work/site/diffusers" "$work/pipe/unet" "$work/pipe/text" "$work/pipe/tokenizer" "$work/pipe/scheduler"
    cat > "$work/site/diffusers/__init__.py" <<'P'
import torch
__version__ = "0"
class ModelMixin(torch.nn.Module):
    config = {}
class Net(ModelMixin):
    @classmethod
    def from_config(cls, fields):
        made = cls()
        made.layer = torch.nn.Linear(fields["width"], 2, bias=False)
        return made
class Scheduler:
    pass
P
    echo '{"_class_name": "P", "unet": ["diffusers", "Net"], "text": ["transformers", "GPT2Model"], "tokenizer": ["transformers", "CLIPTokenizer"], "scheduler": ["diffusers", "Scheduler"], "none": [null, null], "flag": true}' > "$work/pipe/model_index.json"
    echo '{"_class_name": "Net", "width": 3}' > "$work/pipe/unet/config.json"
    echo '{"model_type": "gpt2", "n_layer": 1, "n_embd": 4, "n_head": 1, "vocab_size": 8, "n_positions": 4, "torch_dtype": "float16"}' > "$work/pipe/text/config.json"
    echo a | tee "$work/pipe/tokenizer/merges.txt" > "$work/pipe/unet/diffusion_pytorch_model.safetensors"
    echo '{}' > "$work/pipe/scheduler/scheduler_config.json"
    PYTHONPATH=$work/site expect "weights of a pipeline" 0 "/unet: 1 tensors, 24 bytes that take no disk, float32" dry --fake-weights "$work/pipe" -o "$work/made" -- "$python"
    grep -q "/text: .* that take no disk, float16" "$work/both" && ok || bad "its text encoder has the dtype of its config" "$work/both"
    [ "$(cd "$work/made" && find . -type f | LC_ALL=C sort | tr '\n' ' ')" = "./model_index.json ./scheduler/scheduler_config.json ./text/config.json ./text/model.safetensors ./tokenizer/merges.txt ./unet/config.json ./unet/diffusion_pytorch_model.safetensors " ] && ok ||
        bad "a pipeline's folder has all of its parts"
    "$python" -c 'import sys
from safetensors import safe_open
f = safe_open(sys.argv[1], "pt")
assert list(f.keys()) == ["layer.weight"] and f.get_tensor("layer.weight").shape == (2, 3)' "$work/made/unet/diffusion_pytorch_model.safetensors" 2> "$work/err" && ok || bad "whose weights can be read" "$work/err"
    PYTHONPATH=$work/site expect "weights of one model of diffusers" 0 "1 tensors, 12 bytes that take no disk, bfloat16" \
        dry --fake-weights "$work/pipe/unet" --dtype bfloat16 -o "$work/one" -- "$python"
    echo '{"_class_name": "Other"}' > "$work/pipe/unet/config.json"
    PYTHONPATH=$work/site expect "a model that diffusers has not" 4 "diffusers 0 has no model Other" dry --fake-weights "$work/pipe" --force -o "$work/made" -- "$python"
    echo '{"../outside": ["diffusers", "Net"]}' > "$work/pipe/model_index.json"
    PYTHONPATH=$work/site expect "a part of a pipeline that lies elsewhere" 4 'model_index.json: "../outside" is no folder of it' dry --fake-weights "$work/pipe" --force -o "$work/made" -- "$python"
    [ "$(cd "$work/h" && echo *)" = "config.json model.safetensors preprocessor_config.json tokenizer.json" ] && ok ||
        bad "a folder's tokenizer lies beside its weights, and no index of others"
else
    skip "no transformers beside torch: known peaks"
fi
if "$python" -c 'import transformers, peft, accelerate' 2> /dev/null; then
    expect "memory measured on a T4" 0 "allocated_equal 1, .*reserved_equal 1$" python3 tests/dryrun/play_measured.py \
        --vplan "$vplan" --python "$python" --only lora --quick
else
    skip "no transformers, peft and accelerate beside torch: memory measured on a T4"
fi
[ -z "$(ls "$TMPDIR" | grep vplan)" ] && ok || bad "temporary files were left behind"
finish
