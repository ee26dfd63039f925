#!/bin/bash
# tests/test_limits.sh: a machine that gives little or ends the program early: an answer or a clear error with its exit code, in time, and nothing left behind.
# The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
python3 - "$BUILD" <<'P'
import glob, os, resource, signal, struct, subprocess, sys, tempfile, time

sys.path.insert(0, "tests")
from check import finish, ok as check, skip

build = os.path.abspath(sys.argv[1])
sanitized = "asan" in build
vplan, runner = build + "/vplan", build + "/vplan-run"
home = tempfile.TemporaryDirectory()
os.chdir(home.name)
os.mkdir("tmp")
base = dict(os.environ, TMPDIR=home.name + "/tmp")
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
    base.pop(name, None)
shape = ["gpt2-tiny", "--device", "cpu", "--seq", "128", "--global-batch", "8", "--budget", "8MB"]


def ran(*argv, limits=(), **env):
    def limit():
        for what, n in limits:
            resource.setrlimit(what, (n, n))
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, preexec_fn=limit, env=dict(base, **env))
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, "hangs", "", "")


def said(p):
    return f"exit {p.returncode}: {p.stdout[-300:]}{p.stderr[-300:]}"


p = ran(vplan, "plan", *shape, "-o", "plan.json")
check(p.returncode == 0, "a plan to run: " + said(p))

# ---- address space (OpenBLAS maps 128 MiB for each thread, and asks for ever) ----
for mib in [] if sanitized else [60, 100, 180, 240, 300, 390, 390, 390, 420, 480]:
    for threads in "1", "2":
        for program in [vplan, "run", "plan.json"], [runner, "plan.json"]:  # more than once: threads raced
            p = ran(*program, "--steps", "1", limits=[(resource.RLIMIT_AS, mib << 20)], OMP_NUM_THREADS=threads)
            good = p.returncode == 0 and "0 bytes off" in p.stdout
            bad = p.returncode == 5 and ("OpenBLAS needs" in p.stderr and "ulimit -v" in p.stderr or "cannot be mapped" in p.stderr)
            check(good or bad, f"{mib} MiB of address space, {threads} threads, {program[0][-9:]}: {said(p)}")
if not sanitized:
    p = ran(vplan, "run", "plan.json", "--steps", "1", "--json", limits=[(resource.RLIMIT_AS, 100 << 20)], OMP_NUM_THREADS="2")
    check('"code": "device"' in p.stdout and p.returncode == 5, "an error object under --json: " + said(p))
    p = ran(runner, "plan.json", "--json", limits=[(resource.RLIMIT_AS, 100 << 20)], OPENBLAS_NUM_THREADS="2")
    check('"code": "device"' in p.stdout and p.returncode == 5 or os.cpu_count() == 1, "an error object before main(): " + said(p))

# ---- the longest file ----
for argv in [vplan, "plan", *shape, "-o", "new.json"], [vplan, "run", "plan.json", "--steps", "1", "--save", "saved"]:
    p = ran(*argv, limits=[(resource.RLIMIT_FSIZE, 4096)])
    left = glob.glob("new.json*") + glob.glob("saved/*")
    check(p.returncode == 7 and "File too large" in p.stderr and not left, f"a file that may not be so long: {said(p)}, left {left}")

# ---- ended early ----
for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL:
    for seconds in 0.004, 0.02, 0.2, 1:
        p = subprocess.Popen([vplan, "tune", *shape, "--max-trials", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=base)
        time.sleep(seconds)
        p.send_signal(number)
        code = p.wait(60)
        check(not os.listdir("tmp"), f"tune ended by {number.name} after {seconds} s leaves {os.listdir('tmp')}")
        check(code in (6, -number), f"tune ended by {number.name} after {seconds} s: exit {code}")

# ---- without /proc ----
hidden = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
if not sanitized and ran(*hidden, "true").returncode == 0:
    p = ran(*hidden, vplan, "plan", *shape[:-2])
    check(p.returncode == 0 and p.stdout.startswith("FITS: "), "a plan without /proc: " + said(p))
    p = ran(*hidden, vplan, "devices", "cpu")
    check(" 0 B  derived 80" not in p.stdout and "sysinfo" in p.stdout, "where the memory is from: " + said(p))
    p = ran(*hidden, vplan, "run", "plan.json", "--steps", "1")
    check(p.returncode == 0 and "-1 B" not in p.stdout, "a run without /proc: " + said(p))
else:
    skip("/proc cannot be hidden here")

# ---- threads, data, names ----
p = ran(vplan, "run", "plan.json", "--steps", "1", OMP_NUM_THREADS="100000")
check(p.returncode == 0, "100,000 threads asked for: " + said(p))
open("u16.json", "w").write("""{"schema_version": 1, "optimizer": {"name": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
    "weight_decay": 0.1}, "clip_norm": 1.0, "schedule": {"type": "constant", "warmup_steps": 0, "total_steps": 0, "min_lr_ratio": 0.0},
    "seed": 1, "precision": "fp32", "dropout": 0.0, "data": {"kind": "tokens-u16", "order": "sequential"}}""")
p = ran(vplan, "plan", *shape, "--recipe", "u16.json", "-o", "u16.plan.json")
check(p.returncode == 0, "a plan for 16-bit tokens: " + said(p))
for tail, code in (b"", 0), (b"x", 4):
    open("data.bin", "wb").write(struct.pack("<2000H", *[5] * 2000) + tail)
    p = ran(vplan, "run", "u16.plan.json", "--steps", "1", "--data", "data.bin")
    check(p.returncode == code and (not tail or "4001 bytes are no whole number of tokens of 2 bytes" in p.stderr), f"{len(tail)} bytes too many: {said(p)}")
finish()
P
