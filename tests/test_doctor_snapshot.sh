#!/bin/bash
# tests/test_doctor_snapshot.sh: vplan doctor --snapshot: PyTorch's own counters, owners worked out apart from the same pickles, and pickles
# that are cut off, would run code, or never end. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import collections, datetime, json, os, pickle, resource, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work, root = sys.argv[1:4]
os.chdir(work)


def call(*words):
    p = subprocess.run((vplan, "doctor") + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)))
    return p.returncode, p.stdout.decode(), p.stderr.decode("utf-8", "replace")


def read(data):
    with open("s.pickle", "wb") as f:
        f.write(data)
    code, out, err = call("--snapshot", "s.pickle", "--json")
    return code, json.loads(out), err


# ---- recorded snapshots: what PyTorch counted, and the owners by another way ----
LIBRARY = ("site-packages/", "probe/vplan_", "/torch/", "/lib/python", "??")


def owner_of(frames):
    if frames is None:
        return "(before the history begins)"
    own = [f for f in frames if not any(part in f["filename"] for part in LIBRARY)]
    if not own + frames:
        return "(no Python frame: PyTorch's autograd thread)"
    f = (own + frames)[0]
    return "%s:%d %s" % (f["filename"], f["line"], f["name"])


def by_owner(live):
    held = collections.Counter()
    for size, frames in live.values():
        held[owner_of(frames)] += size
    return sorted(held.items(), key=lambda x: (-x[1], x[0]))


def timeline(snapshot):
    """(live blocks at the end, at the peak): backwards, event by event, all states kept."""
    live = {b["address"]: (b["requested_size"], b["frames"]) for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    states, events, made = [dict(live)], snapshot["device_traces"][0], {}
    for e in events:
        if e["action"] == "alloc":
            made[e["addr"], e["time_us"]] = e["frames"]
    last = {}
    frames_at_free = []
    for e in events:  # whose block a free was
        if e["action"] == "alloc":
            last[e["addr"]] = e["frames"]
        elif e["action"] == "free_requested":
            frames_at_free.append(last.pop(e["addr"], None))
    frees = iter(reversed(frames_at_free))
    for e in reversed(events):
        if e["action"] == "alloc":
            live.pop(e["addr"])
        elif e["action"] == "free_requested":
            live[e["addr"]] = (e["size"], next(frees))
        states.append(dict(live))
    states.reverse()
    return states[-1], max(states, key=lambda s: sum(size for size, _ in s.values()))


for case in "training", "middle", "pieces":
    base = root + "/tests/doctor/snapshots/" + case
    snapshot, known = pickle.load(open(base + ".pickle", "rb")), json.load(open(base + ".json"))
    stats = known["stats"]
    code, out, err = call("--snapshot", base + ".pickle", "--json")
    ok(code == 0 and not err, case, (code, err))
    d = json.loads(out)
    for key, name in ("allocated_bytes", "allocated_bytes.all.current"), ("requested_bytes", "requested_bytes.all.current"), \
            ("reserved_bytes", "reserved_bytes.all.current"), ("split_bytes", "inactive_split_bytes.all.current"), ("segments", "segment.all.current"):
        ok(d[key] == stats[name], "%s: %s is PyTorch's %s" % (case, key, name), (d[key], stats[name]))
    end, peak = timeline(snapshot)
    if case != "middle":
        ok(d["requested_peak_bytes"] == stats["requested_bytes.all.peak"], case + ": PyTorch's own peak", d["requested_peak_bytes"])
    ok(d["partial_history"] == (case == "middle"), case + ": where the history begins", d["partial_history"])
    ok(d["requested_peak_bytes"] == sum(size for size, _ in peak.values()), case + ": the peak", d["requested_peak_bytes"])
    for key, live in ("owners_at_end", end), ("owners_at_peak", peak):
        got = [(o["frame"], o["bytes"]) for o in d[key]]
        ok(got == by_owner(live), "%s: %s" % (case, key), (got, by_owner(live)))
        ok(sum(o["blocks"] for o in d[key]) == len(live), "%s: blocks of %s" % (case, key), d[key])
    free = [b["size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "inactive"]
    ok(d["largest_free_bytes"] == max(free), case + ": the largest free block", d["largest_free_bytes"])
    out = call("--snapshot", base + ".pickle")[1]
    ok(max(map(len, out.split("\n"))) <= 80, case + ": 80 columns", out)
    # the same data in every protocol
    for protocol in 2, 3, 4, 5:
        ok(read(pickle.dumps(snapshot, protocol)) == (0, d, ""), "%s in protocol %d" % (case, protocol), "")
# what PyTorch's error said of the same moment is what is found: 400 asked for, 360 allocated, 440 unallocated, 88 free (MiB)
M = 1 << 20
ok(d["class"] == "fragmentation" and d["oom"]["requested_bytes"] == 400 * M and d["oom"]["device_free_bytes"] == 88 * M and d["oom"]["allocated_bytes"] == 360 * M and
   d["oom"]["reserved_bytes"] == 800 * M and d["oom"]["largest_free_bytes"] == 9 * M and d["oom"]["times"] == 1, "the shortage", d["oom"])
with open("error.txt", "w") as f:
    f.write(known["message"])
e = json.loads(call("--oom", "error.txt", "--json")[1])
ok(e["class"] == d["class"] and e["numbers"]["allocated_bytes"] == d["oom"]["allocated_bytes"] and e["remedies"][0]["saves_bytes"] == d["remedies"][0]["saves_bytes"], "as the error itself", e)

# ---- made by hand ----
def block(address, size, state="active_allocated", frames=()):
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": list(frames)}


def segment(total, blocks, **more):
    return dict({"device": 0, "address": blocks[0]["address"], "total_size": total, "blocks": blocks}, **more)


frame = {"filename": "a.py", "line": 3, "name": "f"}
shortage = {"action": "oom", "size": 30, "device_free": 10, "frames": [frame]}
code, d, err = read(pickle.dumps({"segments": [segment(100, [block(1, 60, frames=[frame]), block(61, 40, "inactive")])], "device_traces": [[shortage]]}))
ok(code == 0 and d["class"] == "fragmentation" and d["oom"]["frame"] == "a.py:3 f", "40 spare for 30 asked for", d)
shortage["size"] = 41
ok(read(pickle.dumps({"segments": [segment(100, [block(1, 60), block(61, 40, "inactive")])], "device_traces": [[shortage]]}))[1]["class"] == "device_shortage", "not for 41", "")
code, d, err = read(pickle.dumps({"segments": [segment(100, [block(1, 60)], device=3), segment(50, [block(1, 50)], device=1)], "device_traces": []}))
ok(d["device"] == 3 and d["reserved_bytes"] == 100 and d["requested_peak_bytes"] is None, "the device with the most, and no history", d)
code, d, err = read(pickle.dumps({"segments": [segment(100, [block(1, 60)], device=0), segment(50, [block(1, 50)], device=1)], "device_traces": [[], [shortage]]}))
ok(d["device"] == 1, "the device that ran out", d)
code, d, err = read(pickle.dumps([segment(100, [block(1, 60, "active_awaiting_free"), block(61, 40, "inactive")])]))
ok(code == 0 and d["pending_bytes"] == 60 and d["split_bytes"] == 40, "memory_snapshot() alone", d)
code, d, err = read(pickle.dumps([segment(512, [dict(block(1, 512, frames=[frame]), requested_size=100)])]))
ok(d["allocated_bytes"] == 512 and d["owners_at_end"] == [{"frame": "a.py:3 f", "bytes": 100, "blocks": 1}], "an owner has what it asked for", d)

# ---- what would run code is refused, by its opcode ----
class Evil:
    def __init__(self, how):
        self.how = how

    def __reduce__(self):
        return os.system, ("touch %s/ran" % work,)


class Plain:
    pass


for name, value in ("os.system", Evil(0)), ("an object", Plain()), ("a date", datetime.date(2020, 1, 1)), ("a class", Plain), ("OrderedDict", collections.OrderedDict()):
    for protocol in 2, 3, 4, 5:
        code, d, err = read(pickle.dumps({"segments": [value]}, protocol))
        message = d["error"]["message"]
        ok(code == 4 and any(op in message for op in ("GLOBAL", "STACK_GLOBAL")), "%s in protocol %d" % (name, protocol), d)
ok(not os.path.exists("ran"), "nothing ran", "")
for opcode, name in (b"R", "REDUCE"), (b"i" + b"os\nsystem\n", "INST"), (b"o", "OBJ"), (b"\x81", "NEWOBJ"), (b"\x92", "NEWOBJ_EX"), (b"b", "BUILD"), (b"\x82\x01", "EXT1"), (b"\x83\x01\x00", "EXT2"), \
        (b"\x84\x01\x00\x00\x00", "EXT4"), (b"Px\n", "PERSID"), (b"Q", "BINPERSID"), (b"\x97", "NEXT_BUFFER"), (b"\x98", "READONLY_BUFFER"), (b"cos\nsystem\n", "GLOBAL"), (b"\x93", "STACK_GLOBAL"):
    code, d, err = read(b"\x80\x04NN" + opcode + b".")
    ok(code == 4 and " %s " % name in d["error"]["message"] and "byte 4" in d["error"]["message"], name, d)

# ---- what is no snapshot ----
whole = open(root + "/tests/doctor/snapshots/pieces.pickle", "rb").read()
for n in list(range(0, 300)) + list(range(300, len(whole) - 1, 997)):
    code, d, err = read(whole[:n])
    if not (code == 4 and d["error"]["message"] and d["error"]["file"] == "s.pickle"):
        ok(False, "cut off at %d" % n, d)
ok(True, "cut off anywhere", "")
deep = b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b"."
loop = b"\x80\x02}X\x08\x00\x00\x00segments]q\x00h\x00as."  # a list that holds itself
shared = [segment(1, [block(1, 1)] * 3000)] * 30000  # 90 million blocks in a small file
lists = []
for _ in range(60):
    lists = [lists, lists]
hostile = {
    "nothing": b"", "a log": b"CUDA out of memory", "protocol 0": pickle.dumps({"segments": []}, 0), "protocol 6": b"\x80\x06N.", "a zip": b"PK\x03\x04" + b"\0" * 100,
    "nothing but the head": b"\x80\x04", "an empty stack": b"\x80\x04.", "no mark": b"\x80\x04e.", "a pop too many": b"\x80\x040.", "appends to none": b"\x80\x04NNa.", "sets on a list": b"\x80\x04]NNs.",
    "a key alone": b"\x80\x04}(Nu.", "a length of 2^63": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", "a length of 4 GiB": b"\x80\x04X\xff\xff\xff\xffab.", "memo 2^32 - 1": b"\x80\x04Nr\xff\xff\xff\xff.",
    "no memo": b"\x80\x04h\x05.", "an int of 2 GiB": b"\x80\x04\x8b\xff\xff\xff\x7f.", "marks": b"\x80\x04" + b"(" * 5000 + b".", "no opcode": b"\x80\x04\xff.", "a list": pickle.dumps([1, 2]), "a number": pickle.dumps(5),
    "no blocks": pickle.dumps({"segments": [{"total_size": 1}]}), "a negative size": pickle.dumps({"segments": [segment(-5, [block(1, 1)])]}), "a size of 2^70": pickle.dumps({"segments": [segment(1 << 70, [block(1, 1)])]}),
    "a block without a state": pickle.dumps({"segments": [segment(5, [{"address": 1, "size": 5}])]}), "a list that holds itself": loop, "90 million blocks": pickle.dumps({"segments": shared, "device_traces": []}),
    "device 99999": pickle.dumps({"segments": [segment(5, [block(1, 5)], device=99999)]}), "a number's letters": b"\x80\x04I12x\n.", "a long number": b"\x80\x04L" + b"1" * 500 + b"L\n."}
for name, data in hostile.items():
    code, d, err = read(data)
    ok(code == 4 and d["error"]["message"] and d["error"]["code"] == "input", "hostile: " + name, (code, d, err))
for name, data in {"deep": deep, "doubled 60 times": pickle.dumps({"segments": [], "x": lists}), "odd events": pickle.dumps({"segments": [], "device_traces": [[5, None, {}, {"action": "alloc"}, {"action": "alloc", "addr": -1, "size": 5},
                   {"action": "free_requested", "addr": 9, "size": 2**62}, {"action": "oom"}, {"action": "segment_free", "size": 2**62}, {"action": b"alloc"}]]}), "keys twice": b"\x80\x02}(X\x08\x00\x00\x00segmentsNX\x08\x00\x00\x00segments]u."}.items():
    code, d, err = read(data)
    ok(code in (0, 4), "hostile: " + name, (code, err))
code, d, err = read(pickle.dumps({"segments": [segment(9, [block(1, 9, frames=[{"filename": "\x1b[2J\u202ea.py", "line": 1, "name": "\x07"}])])]}))
ok(code == 0 and "\x1b" not in call("--snapshot", "s.pickle")[1], "no escapes on the screen", d)
for words, code in (("--snapshot", "none.pickle"), 4), (("--snapshot", work), 4), (("--snapshot", "s.pickle", "--oom", "s.pickle"), 2):
    got, out, err = call(*words)
    ok(got == code and err.startswith("vplan: "), "exit %d: %s" % (code, words), (got, err))
finish()
P
