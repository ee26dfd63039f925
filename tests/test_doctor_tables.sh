#!/bin/bash
# tests/test_doctor_tables.sh: vplan doctor --summary: memory_summary()'s table of a run whose counters are known, nvidia-smi's, and what is
# neither; and vplan doctor alone, beside what this machine says of itself. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}")" "$work" "$PWD" <<'P'
import json, os, resource, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok, skip

build, work, root = sys.argv[1:4]
tables = root + "/tests/doctor/tables/"
os.chdir(work)
MIB = 1 << 20


def call(*words, data=None, before=None, **env):
    p = subprocess.run((build + "/vplan", "doctor") + words, input=data, stdin=subprocess.DEVNULL if data is None else None, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=300, preexec_fn=before, env=dict(os.environ, **env))
    return p.returncode, p.stdout.decode(), p.stderr.decode("utf-8", "replace")


def summary(name):
    code, out, err = call("--summary", tables + name, "--json")
    ok(code == 0 and not err, name, (code, err))
    screen = call("--summary", tables + name)[1]
    ok(max(map(len, screen.split("\n"))) <= 80, name + ": 80 columns", screen)
    return json.loads(out)


# ---- PyTorch's table: of the run of tests/doctor/snapshots/pieces.json, so that its counters are known ----
stats = json.load(open(root + "/tests/doctor/snapshots/pieces.json"))["stats"]
a = summary("memory_summary.txt")["allocator"]
for key, name in ("allocated_bytes", "allocated_bytes.all.current"), ("allocated_peak_bytes", "allocated_bytes.all.peak"), ("requested_peak_bytes", "requested_bytes.all.peak"), \
        ("reserved_bytes", "reserved_bytes.all.current"), ("split_bytes", "inactive_split_bytes.all.current"), ("ooms", "num_ooms"):
    ok(a[key] == stats[name], "%s is PyTorch's %s" % (key, name), (a[key], stats[name]))
ok(a["device"] == 0 and a["tables"] == 1 and a["retries"] == 1, "the head of the table", a)
text = open(tables + "memory_summary.txt").read()
code, out, err = call("--summary", "-", "--json", data=(text.replace(" MiB", " KiB") + "\r\n".join("\x1b[32m[rank1]: " + l for l in text.replace("device ID 0", "device ID 3").split("\n"))).encode())
b = json.loads(out)["allocator"]
ok(code == 0 and b == dict(a, device=3, tables=2), "the last of two tables, with colours and a rank before each line", b)
ok(json.loads(call("--summary", tables + "memory_summary.txt", "--json")[1])["remedies"][0]["saves_bytes"] == stats["inactive_split_bytes.all.current"], "what it saves", "")

# ---- nvidia-smi's, by hand: 39002 - 38500 - 40 = 462 MiB that nobody listed holds; the second card's process says N/A ----
d = summary("nvidia_smi.txt")
ok(d["allocator"] is None and [(c["gpu"], c["used_bytes"], c["total_bytes"], c["unlisted_bytes"]) for c in d["cards"]] ==
   [(0, 39002 * MIB, 40960 * MIB, 462 * MIB), (1, 12500 * MIB, 40960 * MIB, 12500 * MIB)], "the cards", d["cards"])
ok(d["processes"] == [{"gpu": 0, "pid": 31337, "name": "python3 train.py", "bytes": 38500 * MIB}, {"gpu": 0, "pid": 2100, "name": "/usr/lib/xorg/Xorg", "bytes": 40 * MIB},
                      {"gpu": 1, "pid": 31338, "name": "...nda3/envs/a/bin/python", "bytes": None}], "the processes", d["processes"])
ok(call("--summary", tables + "nvidia_smi.txt")[1].startswith("CARDS: GPU 0 has 1.91 GiB free of 40.00 GiB, the least of all\n"), "the answer first", "")  # 1958 MiB
d = summary("nvidia_smi_old.txt")
ok(d["processes"] == [{"gpu": 0, "pid": 4021, "name": "python", "bytes": 15789 * MIB}] and d["cards"][0]["unlisted_bytes"] == 11 * MIB, "an older table", d)
d = summary("query.csv")
ok(d["processes"] == [{"gpu": None, "pid": 4021, "name": "/usr/bin/python3", "bytes": 15789 * MIB}, {"gpu": None, "pid": 4022, "name": "[Not Found]", "bytes": None}], "a query", d["processes"])
code, out, err = call("--summary", "-", "--json", data=b"pid, used_gpu_memory [MiB]\n17, 5\nloss, 3\n18, 6\n")
ok([p["pid"] for p in json.loads(out)["processes"]] == [17], "a query without units ends where its rows do", out)
for name, data in ("nothing", b""), ("a log", b"loss 1.0, step 3\n| a | b |\n"), ("noise", bytes(range(256)) * 999), ("half a head", b"NVIDIA-SMI\nProcesses:\n|  x y z C |\n| 0 1 C |\n"):
    code, out, err = call("--summary", "-", "--json", data=data)
    ok(code == 4 and json.loads(out)["error"]["code"] == "input", "neither table: " + name, (code, out[:200]))
for cut in range(0, len(text), 41):
    ok(call("--summary", "-", data=text[:cut].encode())[0] in (0, 4), "cut off at %d" % cut, "")
ok(call("--summary", "none.txt")[0] == 4 and call("--summary", "a", "--oom", "b")[0] == 2, "what cannot be read", "")

# ---- this machine ----
code, out, err = call("--json")
d = json.loads(out)
meminfo = {l.split(":")[0]: int(l.split()[1]) * 1024 for l in open("/proc/meminfo") if l.split()[-1] == "kB"}
ok(code == 0 and not err and d["host"]["total_bytes"] == meminfo["MemTotal"], "this machine's memory", (code, err, d["host"]))
ok(abs(d["host"]["available_bytes"] - meminfo["MemAvailable"]) < meminfo["MemTotal"] // 2, "and what of it is available", d["host"])
shm = os.statvfs("/dev/shm")
ok(d["host"]["shm_bytes"] == shm.f_blocks * shm.f_frsize, "shared memory", d["host"])
code, out, err = call("--json", before=lambda: (resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)), resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))))
d = json.loads(out)
ok(d["host"]["address_limit_bytes"] == 8 << 30 and d["host"]["locked_limit_bytes"] == 64 << 10 and any("ulimit -v" in o["text"] for o in d["odd"]), "limits", d)
code, out, err = call(CUDA_VISIBLE_DEVICES="-1")
ok(code == 0 and "hides every card" in out and max(map(len, out.split("\n"))) <= 80, "no card is an answer", out)
if os.path.exists(build + "/null/libnvidia-ml.so.1"):
    card = dict(LD_LIBRARY_PATH=build + "/null", VPLAN_NULL_NAME="NVIDIA A100-SXM4-80GB", VPLAN_NULL_TOTAL_BYTES=str(80 << 30), VPLAN_NULL_CONTEXT_BYTES=str(1 << 30))
    code, out, err = call("--json", **card)
    d = json.loads(out)
    ok(code == 0 and [(c["product"], c["total_bytes"], c["used_bytes"]) for c in d["cards"]] == [("NVIDIA A100-SXM4-80GB", 80 << 30, 1 << 30)], "a card by NVML", d["cards"])
    ok(d["processes"] == [], "vplan itself is no holder", d["processes"])
    ok(call(**card)[1].startswith("MACHINE: GPU 0 (NVIDIA A100-SXM4-80GB) has "), "the answer first", "")
else:
    skip("no stand-in for NVML is built")
finish()
P
