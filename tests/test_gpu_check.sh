#!/bin/bash
# tests/test_gpu_check.sh: what will run on a GPU, without one: every part of bench/gpu_check.py on the emulated plugin (tests/cuda_emulator), its results
# files, rows that fail, hang and are known already. It measures nothing. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=$(realpath "${BUILD:-build}")
[ -e "$BUILD/tests/vplan-cuda-emulated.so" ] || { echo "SKIP: $BUILD/tests/vplan-cuda-emulated.so is not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BUILD OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
WORK=$work python3 - <<'P'
import glob, json, os, shutil, signal, subprocess, sys, time

sys.path.insert(0, "tests")
from check import count, finish, ok

build, work = os.environ["BUILD"], os.environ["WORK"]


def call(*command, **env):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ, **env), timeout=600)


def rehearse(*words, **env):
    return call("tests/gpu_check.sh", "--rehearse", "--commit", "test", *words, **env)


def results(out, part):
    paths = glob.glob("%s/emulated-h100-sxm-80gb-*-gpu-%s-rehearsal.json" % (out, part))
    return json.load(open(paths[0])) if len(paths) == 1 else {"rows": []}


# ---- every part ----
parts = ("first", "ops", "memory", "speed", "offload", "budgets", "prediction")
out = work + "/out"
r = rehearse("--out", out, *parts)
ok(r.returncode == 0, "a rehearsal of all parts passes", r.stdout[-3000:])
ok(len(os.listdir(out)) == len(parts), "each leaves one file, named a rehearsal", os.listdir(out))
for part in parts:
    d = results(out, part)
    ok(sorted(d) == sorted(["schema_version", "commit", "part", "device", "driver", "libraries", "conditions", "settings", "rows"]) and d["schema_version"] == 1
       and d["commit"] == "test" and d["settings"]["rehearsal"] and "Emulated" in d["libraries"]["backend"], "%s: the head of its file" % part, list(d))
    rows = d["rows"]
    ok(len(rows) > 1 and len({r["name"] for r in rows}) == len(rows), "%s: its rows" % part, [r["name"] for r in rows])
    for row in rows:
        ok({"name", "predicted", "measured", "raw_seconds"} <= set(row) and "error" not in row, "%s: %s" % (part, row["name"]), row)
        # What this machine may lack, and nothing else.
        excused = row["name"].startswith("compute-sanitizer") or part == "speed" and "where the time goes" not in row["name"]
        ok((row["measured"] is not None) != ("skipped" in row) and (excused or "skipped" not in row), "%s: %s is measured, or says why not" % (part, row["name"]), row)
        count(skipped="skipped" in row)
    ok(all(r.get("verdict", "pass") == "pass" for r in rows), "%s: verdicts" % part, rows)
order = [row["name"] for row in results(out, "ops")["rows"]]
ok("the same plan twice" in order[1], "behind the kernel tests a plan is run twice", order)
near = [row for row in results(out, "budgets")["rows"] if row["name"].startswith("near")]
ok(len(near) == 3 and all(0.9 < row["measured"]["share_of_limit"] <= 1 for row in near), "plans near the limit are near it", [row["measured"] for row in near])

# ---- rows that are known are not measured again; those of another commit are ----
r = rehearse("--out", work + "/resumed", "--resume", out, "memory")
rows = results(work + "/resumed", "memory")["rows"]
ok(r.returncode == 0 and len(rows) == 4 and all(row.get("resumed") or row.get("total") for row in rows), "known rows are taken over", rows)
r = rehearse("--out", work + "/resumed", "--commit", "other", "memory")
ok(r.returncode == 0 and not any(row.get("resumed") for row in results(work + "/resumed", "memory")["rows"]), "not those of another commit", r.stdout[-500:])
r = rehearse("--out", work + "/late", "--resume", out, "--seconds", "0", "memory")
ok(r.returncode == 0 and len(results(work + "/late", "memory")["rows"]) == 4, "rows that are known need no time", r.stdout[-500:])
os.mkdir(work + "/none")
r = rehearse("--out", work + "/none", "--seconds", "0", "memory")
ok(r.returncode == 0 and "2 not begun" in r.stdout, "without time no row is begun", r.stdout[-500:])

# ---- rows that fail ----
r = rehearse("--out", work + "/failed", "memory", VPLAN_EMULATOR_FAIL="cudaMalloc:1")
rows = [row for row in results(work + "/failed", "memory")["rows"] if "total" not in row]
ok(r.returncode == 1 and rows and all("exit 5" in row.get("error", "") for row in rows), "an allocation that fails is its row's error, and exit code 1", (r.returncode, rows))
r = rehearse("--out", work + "/failed", "memory")
ok(r.returncode == 0 and not any(row.get("resumed") for row in results(work + "/failed", "memory")["rows"]), "rows that failed are measured again", r.stdout[-500:])
r = rehearse("--out", "bench/results", "memory")
ok(r.returncode == 1 and not glob.glob("bench/results/emulated*"), "a rehearsal is never a result", r.stdout[-500:])

# ---- a row that hangs ends; a part that is told to stop keeps what it has ----
os.makedirs(work + "/build/tests")
for name in ("vplan", "vplan-solve"):
    shutil.copy2("%s/%s" % (build, name), work + "/build")
os.symlink(build + "/tests/vplan-cuda-emulated.so", work + "/build/tests/vplan-cuda-emulated.so")
with open(work + "/build/vplan-run", "w") as f:   # hangs in every run but the first
    f.write("#!/bin/sh\ncase \"$*\" in *--describe*) ;; *) if [ -e '%s/ran' ]; then exec sleep 1000; fi; : > '%s/ran' ;; esac\n"
            "for a; do shift; if [ \"$a\" = cuda ]; then a='%s/tests/vplan-cuda-emulated.so'; fi; set -- \"$@\" \"$a\"; done\n"
            "case \"$*\" in *' --backend '*) ;; *) set -- \"$@\" --backend '%s/tests/vplan-cuda-emulated.so' ;; esac\n"
            "exec '%s/vplan-run' \"$@\"\n" % (work, work, build, build, build))
os.chmod(work + "/build/vplan-run", 0o755)
command = ("bench/gpu_check.py", "memory", "--rehearse", "--device", "h100-sxm-80gb", "--build", work + "/build", "--out", work + "/hangs", "--commit", "test")
child = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
child.stdout.readline()   # of the first row
child.send_signal(signal.SIGTERM)
said = child.communicate(timeout=60)[0]
rows = results(work + "/hangs", "memory")["rows"]
ok(child.returncode == 1 and "stopped by SIGTERM" in said and len(rows) == 1 and rows[0]["measured"], "a part that is stopped keeps its rows", (said, rows))
r = call(sys.executable, *command, "--seconds", "3")
rows = results(work + "/hangs", "memory")["rows"]
ok(r.returncode == 1 and rows[0].get("resumed") and "ended after" in rows[1].get("error", ""), "a row that hangs is ended, and the others are kept", (r.stdout, rows))

# ---- the script ----
ok(call("tests/gpu_check.sh", "speeds").returncode == 2 and call("tests/gpu_check.sh", "--out").returncode == 2, "what is no part or has no value is refused")
nothing = work + "/bin"
os.mkdir(nothing)
for name in ("bash", "dirname", "head"):
    os.symlink(shutil.which(name), "%s/%s" % (nothing, name))
r = call("tests/gpu_check.sh", "ops", PATH=nothing)
ok(r.returncode == 77 and "SKIP" in r.stdout, "without nvidia-smi it is skipped", (r.returncode, r.stdout))
finish()
P
