#!/bin/bash
# tests/test_allocator_traces.sh: the simulated caching allocator against PyTorch's own counters, recorded after every event
# (tests/golden/allocator), and against an independent model over random events under random settings.
# VPLAN_LONG=1: 2000 random programs instead of 40. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
python3 - "${BUILD:-build}/tests/allocator/allocator_replay" "${VPLAN_LONG:+2000}" <<'P'
import glob, gzip, re, subprocess, sys

sys.path.insert(0, "tests")
from check import count, finish, ok

replay, n_random = sys.argv[1], int(sys.argv[2] or 40)
EQUAL = re.compile(r"-: (\d+) events, equal after each\n$")


def play(trace):
    r = subprocess.run([replay, "-"], input=trace, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return r.returncode, r.stdout.decode() + r.stderr.decode()


# ---- PyTorch's own ----
events, traces = 0, {}
for path in sorted(glob.glob("tests/golden/allocator/*.gz")):
    with gzip.open(path) as f:
        traces[path] = f.read()
    code, said = play(traces[path])
    m = EQUAL.match(said)
    ok(code == 0 and m and int(m[1]) > 500, path, said)
    events += int(m[1]) if m else 0
every = b"".join(traces.values())
ok(len(traces) >= 50 and events > 100000, "how much is compared", "%d traces, %d events" % (len(traces), events))
for setting in "expandable_segments:True", "max_split_size_mb", "max_non_split_rounding_mb", "roundup_power2_divisions:[", "roundup_power2_divisions:4", \
        "garbage_collection_threshold", "large_segment_size_mb":
    ok(re.search(rb"^conf .*" + re.escape(setting).encode(), every, re.M), "a trace with", setting)
for what, pattern in ("a fraction", rb"^device \d+ \d+ [1-9]"), ("retries", rb" T\+1"), ("out of memory", rb" O\+1"), ("several streams", rb"^a \d+ \d+ 3 ="), \
        ("record_stream", rb"^r "), ("an emptied cache", rb"^e ="), ("torch 2.7", rb"^# torch 2\.7\."), ("torch 2.15", rb"^# torch 2\.15\."):
    ok(re.search(pattern, every, re.M), "a trace with", what)

# ---- what differs is seen ----
path, trace = next((p, t) for p, t in traces.items() if "default" in p)
for letter in b"ACRQIND":
    at = [m.start() for m in re.finditer(rb"(?<= )%c\+" % letter, trace)][3]
    code, said = play(trace[:at + 2] + b"1" + trace[at + 2:])
    ok(code == 1 and ": %c: PyTorch has" % letter in said, "a changed %c" % letter, said)
code, said = play(re.sub(rb"(?m)^(peak A)", rb"\g<1>1", trace))
ok(code == 1 and "A: PyTorch has" in said, "a changed peak", said)
code, said = play(b"# vplan allocator trace 1\nS 2097152\na 1 512 empty\n")
ok(code == 0, "a segment by name", said)
for wrong in b"S 20971520\na 1 512 empty\n", b"a 1 512 empty\nS 2097152\na 2 512 empty\n":
    code, said = play(b"# vplan allocator trace 1\n" + wrong)
    ok(code == 1 and "segment" in said, "another segment", said)
for wrong in b"z 1\n", b"a 1\n", b"f x\n", b"conf no_such:1\ndevice 0 0 0\na 1 1\n":
    ok(play(wrong)[0] == 2, "what is no trace", wrong)

# ---- an independent model ----
for seed in range(1, n_random + 1):
    trace = subprocess.run([sys.executable, "tests/allocator/random_events.py", str(seed)], stdout=subprocess.PIPE).stdout
    code, said = play(trace)
    ok(code == 0 and EQUAL.match(said), "random events, seed %d" % seed, said)
finish()
P
