#!/bin/bash
# tests/test_tune_faults.sh: vplan tune -- CMD where the command misbehaves: it leaves a process behind, asks its user, opens the terminal,
# does not hear SIGTERM, prints a gigabyte. Each is a verdict within its time, and no process is left. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp" "$work/home" "$work/cwd"
export TMPDIR=$work/tmp HOME=$work/home VPLAN_FAULT_TEST=$work
[ -f "$build/null/libvplan-null.so" ] || { echo "SKIP: $build/null/libvplan-null.so is not built"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
cp tests/dryrun/scripts/no_torch.py "$work/cwd/training.py"
# the same behind a package, whose trials are forks of one process that has imported it; it says how often
mkdir -p "$work/site-packages"
printf 'import os\nwith open(os.environ["VPLAN_FAULT_TEST"] + "/imported", "a") as f:\n    f.write("once\\n")\n' > "$work/site-packages/datasets.py"
export PYTHONPATH=$work/site-packages
sed '1,/^import/s/^import/import datasets\nimport/' tests/dryrun/scripts/no_torch.py > "$work/cwd/forked.py"
cd "$work/cwd" || exit 1
cat > "$work/faults.py" <<'PY'
import json, os, pty, subprocess, sys, time
vplan, work = sys.argv[1:]
passed = failed = 0


def check(name, right, why=""):
    global passed, failed
    passed, failed = passed + bool(right), failed + (not right)
    if not right:
        print("FAIL: %s: %s" % (name, why))


def left_over():
    """Processes that carry our variable, but for this one and the shell."""
    mine, found = {os.getpid(), os.getppid()}, []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as f:
                if ("VPLAN_FAULT_TEST=" + work).encode() in f.read() and int(pid) not in mine:
                    found.append(pid)
        except OSError:
            pass
    return found


def imported():
    path = os.path.join(work, "imported")
    n = len(open(path).readlines()) if os.path.exists(path) else 0
    if n:
        os.unlink(path)
    return n


def words(script, fault):
    limit = "8" if "deaf" in fault else "90"
    return [vplan, "tune", "--device", "l4", "--json", "--timeout", limit, "--try", "--batch=2", "--", "python3", script, "--batch", "1"] + fault


def tune(script, fault, terminal=False):
    start = time.monotonic()
    if terminal:        # with a terminal of its own, as a user has: nobody types
        out = os.path.join(work, "out")
        pid, fd = pty.fork()
        if pid == 0:
            os.dup2(os.open(out, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 1)
            os.execv(vplan, words(script, fault))
        while True:
            try:
                if not os.read(fd, 4096):
                    break
            except OSError:
                break
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        text = open(out).read()
    else:               # a pipe that stays open: whoever reads it waits for ever
        read, write = os.pipe()
        run = subprocess.run(words(script, fault), stdin=read, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(write)
        code, text = run.returncode, run.stdout
    d = json.loads(text) if text else {}
    return code, d, time.monotonic() - start


FAULTS = (
    ("one that leaves a process behind", ["--fault", "fork"], False, "ok"),
    ("one that asks its user", ["--fault", "stdin"], False, "crash"),
    ("one that asks its user, at a terminal", ["--fault", "stdin"], True, "crash"),
    ("one that opens the terminal", ["--fault", "terminal"], True, "crash"),
    ("one that does not hear SIGTERM", ["--fault", "deaf"], False, "timeout"),
    ("one that prints a gigabyte", ["--print", str(1 << 30)], False, "ok"))
for script in ("training.py", "forked.py"):
    for name, fault, terminal, wanted in FAULTS:
        name = script + ": " + name
        code, d, seconds = tune(script, fault, terminal)
        verdicts = [t["verdict"] for t in d.get("trials", [])]
        check(name, code == (0 if wanted == "ok" else 6) and set(verdicts or [wanted]) == {wanted} and (verdicts or code == 6), (code, verdicts, d.get("error")))
        check(name + ": in its time", seconds < 85, seconds)
        for _ in range(50):
            if not left_over():
                break
            time.sleep(0.1)
        check(name + ": no process is left", not left_over(), left_over())
        check(name + ": no file is left", not os.listdir(os.path.join(work, "tmp")) and sorted(os.listdir(".")) == ["forked.py", "training.py"], os.listdir("."))
        n = imported()
        check(name + ": its package is imported once, or never", n == (script == "forked.py"), n)
# killed at some moment of its trials, it leaves neither processes nor its folder
import signal
for script, moment in ((s, m) for s in ("training.py", "forked.py") for m in (0.05, 0.3, 1.0)):
    run = subprocess.Popen([vplan, "tune", "--device", "l4", "--try", "--batch=2", "--", "python3", script, "--batch", "1", "--fault", "deaf"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(moment)
    run.send_signal(signal.SIGKILL)
    run.wait()
    for _ in range(150):
        left = left_over(), os.listdir(os.path.join(work, "tmp"))
        if not any(left):
            break
        time.sleep(0.1)
    check("%s: kill -9 of the tuner after %.2f s" % (script, moment), not any(left), left)
print("%d passed, %d failed" % (passed, failed))
sys.exit(failed != 0)
PY
python3 "$work/faults.py" "$build/vplan" "$work"
