#!/bin/sh
# bench/survey without torch and without a GPU: row lists, results files, resuming, the profile converter.
# Needs python3 only; what needs torch is skipped with the reason. Last line: N passed, N failed, N skipped.
survey=$(cd "$(dirname "$0")/../bench/survey" && pwd) || exit 1
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null 2>&1; then
    echo "SKIP survey: no $python"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT INT TERM
passed=0 failed=0 skipped=0
ok()   { passed=$((passed + 1)); echo "ok   $1"; }
bad()  { failed=$((failed + 1)); echo "FAIL $1"; }
expect() { # expect SENTENCE STATUS COMMAND...
    sentence=$1 status=$2; shift 2
    "$@" >"$tmp/out" 2>&1; got=$?
    if [ "$got" = "$status" ]; then ok "$sentence"; else bad "$sentence (exit $got, expected $status)"; tail -5 "$tmp/out"; fi
}

for part in 1 2 3 4; do
    "$survey/run.sh" $part --dry --no-torch --commit test --out "$tmp/dry" >"$tmp/out" 2>&1
    grep -v -e '^[0-9]* passed' "$tmp/out"
    # shellcheck disable=SC2046
    set -- $(tail -1 "$tmp/out" | tr -d ',')
    case "$2 $4 $6" in
    "passed failed skipped") passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + $5)) ;;
    *) bad "dry run of part $part ends with its counts" ;;
    esac
done

expect "an unknown part is a usage error" 2 "$survey/run.sh" 9 --commit test --out "$tmp/x"
expect "a missing commit is a usage error" 2 "$survey/run.sh" 1 --out "$tmp/x"
expect "a dry run cannot become a profile" 4 "$python" "$survey/to_profile.py" "$tmp"/dry/*-survey-3.json
if "$python" -c 'import torch' 2>/dev/null; then
    skipped=$((skipped + 1)); echo "skip a run without a GPU ends with 5: torch is installed and a GPU may be"
else
    expect "a run without torch and GPU ends with 5" 5 "$survey/run.sh" 3 --commit test --out "$tmp/nogpu"
fi

PYTHONDONTWRITEBYTECODE=1 "$python" - "$survey" "$tmp" >"$tmp/unit" 2>&1 <<'PY'
"""Unit checks. Every number below is made up for the test; expected values are worked in the comments."""
import json, os, subprocess, sys
survey, tmp = sys.argv[1:]
sys.path.insert(0, survey)
import gpu_timing, part1_peaks, part3_rates, results, to_profile, worker
def claim(sentence, true):
    print(("ok   " if true else "FAIL ") + sentence)

def result_row(name, measured, raw=(), error=None):
    return {"name": name, "group": "g", "spec": {}, "environment": {}, "predicted": None, "measured": measured, "raw_seconds": list(raw),
            "compare": None, "error": error, "conditions": None, "wall_s": 1.0}
def file(name, rows, part="survey-3", **change):
    d = {"schema_version": 1, "commit": "c", "part": part, "device": "made-up", "driver": "1", "libraries": {"torch": "0"},
         "conditions": {"samples": [{"power_w": 100.0}, {"power_w": 300.0}]}, "dry": False, "rows": rows}
    d.update(change)
    path = os.path.join(tmp, name)
    results.write_atomic(path, d)
    return path

claim("the median of an even number is the mean of the middle two", gpu_timing.median([4.0, 1.0, 2.0, 3.0]) == 2.5)
# four times 60 MiB of L2 over 48 MiB a call is 5 sets; a gigabyte needs one
claim("inputs rotate until they are four times the cache", (gpu_timing.copies_past_cache(48 << 20, 60 << 20),
                                                             gpu_timing.copies_past_cache(1 << 30, 60 << 20)) == (5, 1))
# 2*2*3*4 = 48 flop; 2*(2*4 + 4*3) + 2*2*3 = 52 bytes
claim("a product's flop and bytes", part3_rates.work({"op": "gemm", "shape": [2, 3, 4], "dtype": "bf16"}) == (48, 52))
# causal, 4 rows: 10 pairs; 4*1*2*10*8 = 640 flop; q and out 2*1*2*4*8 and k, v 2*1*1*4*8 elements of 2 bytes, lse 4*1*2*4
claim("causal attention counts the pairs it sees", part3_rates.work({"op": "attention", "shape": [1, 2, 1, 4, 8], "causal": True}) == (640, 416))
claim("compare counts numbers met to the byte", results.compare({"a": 1, "b": 2, "s": "x"}, {"a": 1, "b": 5, "s": "x"})
      == {"equal": 2, "of": 3, "differs": {"b": 3}})
good = {"schema_version": 1, "commit": "c", "part": "survey-1", "device": "d", "driver": None, "libraries": {}, "conditions": {}, "dry": False,
        "rows": [result_row("a", {}), result_row("b", None, error="x")]}
claim("a good document has no problems", results.check(good) == [])
claim("a name that stands twice is a problem", any("twice" in p for p in results.check(dict(good, rows=good["rows"] * 2))))
claim("a row with neither measurement nor error is a problem", results.check(dict(good, rows=[result_row("a", None)])) != [])
claim("an unknown key is a problem", results.check(dict(good, colour=1)) != [])

folder = os.path.join(tmp, "committed")
os.mkdir(folder)
file("committed/made-up-2000-01-01-survey-3.json", [result_row("a", {}), result_row("b", None, error="e"), result_row("c", None, error="e")])
file("committed/made-up-2000-01-02-survey-3.json", [result_row("c", {})])
file("committed/made-up-2000-01-03-survey-3.json", [result_row("d", {})], driver="2")
file("committed/made-up-2000-01-04-survey-3.json", [result_row("e", {})], dry=True)
claim("measured rows are skipped, failed ones retried, other drivers and dry runs ignored",
      results.finished(folder, "made-up", "1", {"torch": "0"}) == ({"a", "c"}, {"b"}))
claim("a second sitting of a day takes a name of its own",
      results.path_for(tmp, [folder], "made-up", "2000-01-01", "3").endswith("made-up-2000-01-01-survey-3b.json"))

# a link of 2 us and 1e9 B/s: 1000 B take 3 us, 1e6 B take 1002 us
latency, rate = to_profile.fit_line([(1000, 3e-6), (1000000, 1002e-6), (100000000, 0.100002)])
claim("a line through exact points is found", abs(latency - 2e-6) < 1e-9 and abs(rate / 1e9 - 1) < 1e-6)
key = {"op": "gemm", "pass": "fwd", "shape": [2, 3, 4], "dtype": "bf16"}
copies = [result_row(f"copy/{n}", {"key": {"op": "copy", "way": "h2d", "host": "pinned", "bytes": n}, "bytes": n, "seconds": 2e-6 + n / 1e9}, [1.0])
          for n in (1000, 1000000)]
one = file("one.json", [result_row("gemm", {"key": key, "seconds": 2.0, "flop": 48, "bytes": 52, "flop_per_s": 24.0}, [1.0, 2.0, 3.0])] + copies)
two = file("two.json", [result_row("gemm", {"key": key, "seconds": 1.0, "flop": 48, "bytes": 52, "flop_per_s": 48.0}, [1.0])])
def convert(*paths):
    return subprocess.run([sys.executable, os.path.join(survey, "to_profile.py"), *paths], capture_output=True, text=True)
p = json.loads(convert(one).stdout)
claim("the profile keys each row by op, shape and dtype and calls it measured",
      p["ops"] == [dict(key, seconds=2.0, seconds_low=1.0, seconds_high=3.0, repeats=3, flop=48, bytes=52, **{"class": "measured"})])
claim("the profile has rates, links and conditions", p["rates"]["gemm_flop_per_s"] == {"bf16": 24.0} and p["conditions"]["power_w"] == [100.0, 300.0]
      and abs(p["links"][0]["bytes_per_s"] / 1e9 - 1) < 1e-6)
claim("of a row measured twice the later file counts", json.loads(convert(one, two).stdout)["ops"][0]["seconds"] == 1.0)
claim("files of two drivers are refused", convert(one, file("other.json", [], driver="2")).returncode == 4)
claim("a file without a measured row is refused", convert(file("none.json", [result_row("a", None, error="e")])).returncode == 4)
claim("another part is refused", convert(file("part1.json", copies, part="survey-1")).returncode == 4)

trace = [{"action": "alloc", "addr": 1, "size": 5}, {"action": "segment_alloc", "addr": 9, "size": 8}, {"action": "free_requested", "addr": 1, "size": 5},
         {"action": "free_completed", "addr": 1, "size": 5}, {"action": "alloc", "addr": 1, "size": 6}]
claim("a trace names allocations in order and frees once", part1_peaks.events(trace) == ["a 1 5", "S 8", "f 1", "a 2 6"])
# five rows in one process: the second dies by a signal, the fourth sleeps past its limit; the other three must be measured
with open(os.path.join(tmp, "frail_part.py"), "w") as f:
    f.write("import os, signal, time\ndef run(r):\n    if r['name'] == 'r2': os.kill(os.getpid(), signal.SIGSEGV)\n"
            "    if r['name'] == 'r4': time.sleep(60)\n    if r['name'] == 'r5': raise ValueError('no')\n    return {'name': r['name']}, [1.0]\n")
sys.path.insert(0, tmp)
worker.PARTS["x"] = "frail_part"
read, write = os.pipe()
worker.serve([json.dumps({"part": "x", "rows": [{"name": f"r{i}", "limit_s": 0.5} for i in range(1, 7)]})], write, False)
answers = [json.loads(line) for line in os.read(read, 1 << 16).decode().splitlines()]
claim("a crash, a time limit and an exception cost one row each",
      [(a.get("name"), a.get("error")) for a in answers] == [("r1", None), ("r2", "ended by signal 11"), ("r3", None), ("r4", "time limit of 0.5 s"),
                                                             ("r5", "ValueError: no"), ("r6", None), (None, None)])
print("end")
PY
[ "$(tail -1 "$tmp/unit")" = end ] || { bad "unit checks run to their end"; tail -5 "$tmp/unit"; }
grep -v '^end$' "$tmp/unit"
passed=$((passed + $(grep -c '^ok ' "$tmp/unit")))
failed=$((failed + $(grep -c '^FAIL ' "$tmp/unit")))

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
