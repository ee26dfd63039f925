#!/bin/bash
# tests/test_tune.sh: vplan tune on gpt2-tiny from end to end. Nothing is judged by the clock: how near the
# chosen plan is to the fastest is measured by bench/tune_regret.py. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
export OMP_NUM_THREADS=1
work=$(mktemp -d)
mkdir "$work/tmp"
export TMPDIR=$work/tmp
trap 'rm -rf "$work"' EXIT
. tests/check.sh
tune="$BUILD/vplan tune gpt2-tiny --device cpu --seq 64 --global-batch 4"

# ---- end to end, and again ----

ok "tune ends with a plan" exits 0 $tune --budget 5MB --study "$work/s.db" --max-trials 4 -o "$work/best.json" --json
cp "$work/out" "$work/first.json"
ok "its JSON has the shape" json_of "$work/first.json" 'list(d) == ["schema_version", "best", "trials", "presets", "regret_vs_best_preset", "stopped_because", "study", "threads"]' \
    'd["schema_version"] == 1' 'd["study"].endswith("/s.db")' 'set(d["best"]) >= {"plan", "peak_bytes", "step_time_s"}' \
    'all(set(t) >= {"id", "verdict", "plan", "predicted_bytes", "executed_bytes", "predicted_s", "measured_s"} for t in d["trials"])' \
    'all(set(p) == {"name", "verdict", "measured_s"} for p in d["presets"])' 'len(d["presets"]) >= 5' 'isinstance(d["stopped_because"], str)'
ok "every trial ran, to the byte" json_of "$work/first.json" 'all(t["verdict"] == "ok" and t["executed_bytes"] == t["predicted_bytes"] and t["measured_s"] > 0 for t in d["trials"])'
best='any(t["plan"] == d["best"]["decisions"] and t["measured_s"] == d["best"]["step_time_s"] and t["runs"] >= 2 for t in d["trials"])'
ok "the best has raced" json_of "$work/first.json" "$best" 'd["best"]["peak_bytes"] <= 5000000' 'd["best"]["decisions"] in [t["plan"] for t in d["trials"]]'
ok "at most 4 plans beside the presets" json_of "$work/first.json" 'len(d["trials"]) <= 4 + len(d["presets"])'
ok "the best was in the race, and whoever is expected near it too" json_of "$work/first.json" \
    'd["best"]["step_time_s"] == min(t["raced"]["seconds"] for t in d["trials"] if t["raced"])' 'sum(t["raced"] is not None for t in d["trials"]) >= 2' \
    'all(t["alone"]["seconds"] > 0 and 0 <= t["alone"]["error"] < 10 for t in d["trials"])' \
    'all(t["measured_s"] == (t["raced"] or t["alone"])["seconds"] for t in d["trials"])'
ok "OMP_NUM_THREADS says how many threads" json_of "$work/first.json" 'd["threads"] == {"chosen": 1, "tried": []}'
ok "progress is on stderr" says "timing "
ok "a trial is alone once; a second race is set beside the first" awk '/in the race:.*alone$/ && seen[$2]++ { exit 1 }' "$work/err"
ok "the plan runs" exits 0 "$BUILD/vplan" run "$work/best.json" --steps 2 --json
ok "and says what each kernel took" json 'abs(sum(k["seconds"] for k in d["kernels"]) - sum(k["seconds"] for k in d["kernel_calls"])) < 1e-6' \
    '0 < sum(k["seconds"] for k in d["kernels"]) <= d["steps"][-1]["seconds"]' 'all(set(k) == {"name", "calls", "seconds"} for k in d["kernels"])'
# With as many trials as it made: what all of them taught together may promise something that none promised alone.
made=$(python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(max(1, len(d["trials"]) - len(d["presets"])))' "$work/first.json")
ok "a finished study is not run again" exits 0 $tune --budget 5MB --study "$work/s.db" --max-trials "$made" --json
ok "nor are its calls timed again" bash -c "! grep -q 'timing\|trial [0-9]*:' '$work/err'"
ok "its trials are told as such" json 'all(t["from_study"] for t in d["trials"])' \
    "d['best']['step_time_s'] == json.load(open('$work/first.json'))['best']['step_time_s']"
ok "of a plan file too" exits 0 "$BUILD/vplan" tune "$work/best.json" --study "$work/s.db" --json
ok "whose budget is the plan's" json 'all(t["predicted_bytes"] <= 5000000 for t in d["trials"])' 'any(t["from_study"] for t in d["trials"])'
ok "what was measured can be kept" exits 0 $tune --budget 5MB --study "$work/s.db" --save-profile "$work/kept.json" --json
ok "the best is the fastest of those that raced" json 'any(t["raced"] for t in d["trials"])' 'd["best"]["step_time_s"] == min(t["raced"]["seconds"] for t in d["trials"] if t["raced"])'
ok "and planned with" exits 0 "$BUILD/vplan" plan gpt2-tiny --device cpu --seq 64 --global-batch 4 --budget 5MB --profile "$work/kept.json" --json
ok "as measured" json 'd["time_class"] == "measured"'
ok "not in the study's place: 2" exits 2 $tune --budget 5MB --study "$work/s.db" --save-profile "$work/s.db" --force
ok "a pin is kept" exits 0 $tune --budget 5MB --study "$work/s.db" --recompute full --max-trials 1 --json
ok "also by the best" json '"recompute full" in d["best"]["decisions"]'
if [ "$(nproc)" -gt 1 ]; then
    ok "threads are tried where nobody says them" exits 0 env -u OMP_NUM_THREADS $tune --budget 3MB --max-trials 1 --study "$work/threads.db" --json
    cp "$work/out" "$work/threads.json"
    ok "and one count is chosen" json_of "$work/threads.json" 'len(d["threads"]["tried"]) >= 2' 'd["threads"]["chosen"] in [t["threads"] for t in d["threads"]["tried"]]' \
        'min(t["step"]["seconds"] for t in d["threads"]["tried"]) >= 0.98 * min(t["step"]["seconds"] for t in d["threads"]["tried"] if t["threads"] == d["threads"]["chosen"]) - 1e-9'
    ok "a study knows them" exits 0 env -u OMP_NUM_THREADS $tune --budget 3MB --max-trials 1 --study "$work/threads.db" --json
    ok "from then on" json "d['threads']['chosen'] == json.load(open('$work/threads.json'))['threads']['chosen']" 'd["threads"]["tried"] == []' 'all(t["from_study"] for t in d["trials"][:3])'
fi
ok "without a study" exits 0 $tune --budget 3MB --max-trials 1
ok "nothing is left behind" bash -c "[ -z \"\$(ls '$work/tmp')\" ]"

# ---- killed and resumed ----

for delay in 0.1 0.5 0.9; do
    $tune --budget 5MB --study "$work/k.db" --json > /dev/null 2>&1 &
    sleep $delay
    kill -9 $! 2> /dev/null
    wait $! 2> /dev/null
done
python3 - "$work/k.db" > "$work/done" <<'PY'
import os, sqlite3, sys
if os.path.exists(sys.argv[1]):
    for row in sqlite3.connect(sys.argv[1]).execute("SELECT id FROM trial WHERE state = 'done' ORDER BY id"):
        print(row[0])
PY
ok "after three kills it goes on" exits 0 $tune --budget 5MB --study "$work/k.db" --json
ok "with all that was finished" json "{int(l) for l in open('$work/done')} == {t['id'] for t in d['trials'] if t['from_study']}" 'd["best"] is not None'

# ---- a profile that is wrong ----

python3 - "$work/s.db" "$work/wrong.json" <<'PY'
import json, random, sqlite3, sys
random.seed(7)
db = sqlite3.connect(sys.argv[1])
rows = []
for kernel, shape, seconds in db.execute("SELECT kernel, shape, seconds FROM profile_row r JOIN profile p ON p.id = r.profile_id WHERE p.kind = 'measured'"):
    row = {"kernel": kernel}
    for key, value in (pair.split("=") for pair in shape.split(",") if pair):
        row[key] = [value] if key == "without" else int(value)
    row["seconds"] = seconds * 2 ** random.uniform(-1, 1)
    rows.append(row)
json.dump({"schema_version": 1, "device": "cpu", "backend": "scaled", "rows": rows}, open(sys.argv[2], "w"))
PY
ok "tune starts from a wrong profile" exits 0 $tune --budget 5MB --study "$work/w.db" --profile "$work/wrong.json" -o "$work/wrong_best.json" --json
ok "which the first trial contradicts" says "the given profile is off by a factor of"
cp "$work/out" "$work/wrong.json"
ok "it ends with one that has raced" json_of "$work/wrong.json" "$best" 'len(d["trials"]) > 1'
ok "and the given profile gave way to what was measured" python3 - "$work/w.db" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
kinds = [k for k, in db.execute("SELECT kind FROM profile")]
rows, = db.execute("SELECT count(*) FROM profile_row r JOIN profile p ON p.id = r.profile_id WHERE p.kind <> 'given'").fetchone()
if not {"given", "measured"} <= set(kinds) or rows == 0:
    sys.exit(f"{kinds}, {rows} rows that were not given")
PY

# ---- plans side by side ----

compare="$BUILD/vplan-run --compare"
for kind in none full; do
    "$BUILD/vplan" plan gpt2-tiny --device cpu --seq 64 --global-batch 4 --recompute $kind -o "$work/$kind.json" > /dev/null 2>&1
done
ok "plans take turns" exits 0 $compare "$work/none.json" "$work/full.json" "$work/none.json" --steps 5 --json
ok "each with its steps and bytes" json 'd["rounds"] == 5 and len(d["plans"]) == 3' 'all(len(p["step_s"]) == 5 and min(p["step_s"]) > 0 for p in d["plans"])' \
    "[p['executed_bytes'] for p in d['plans']] == [json.load(open(f'$work/{k}.json'))['prediction']['peak_bytes'] for k in ('none', 'full', 'none')]" \
    'd["plans"][0]["over_first"] == 1' 'all(p["low"] <= p["over_first"] <= p["high"] for p in d["plans"])'
python3 -c "import json; print(json.dumps([json.load(open(f'$work/{k}.json')) for k in ('none', 'full')]))" > "$work/both.json"
ok "from one array too" bash -c "$compare - --steps 1 --json < '$work/both.json' > '$work/out'"
ok "of two" json 'len(d["plans"]) == 2'
ok "for people" exits 0 $compare "$work/both.json" --steps 2
ok "in lines" grep -q '^plan 2  .* x [0-9.]* of the first' "$work/out"
ok "also by vplan run" exits 0 "$BUILD/vplan" run "$work/none.json" "$work/full.json" --steps 2 --json
ok "with the same answer" json 'len(d["plans"]) == 2 and d["rounds"] == 2'
ok "without --compare one plan: 2" exits 2 "$BUILD/vplan-run" "$work/none.json" "$work/full.json"
ok "nothing is saved: 2" exits 2 $compare "$work/both.json" --save "$work/saved"
ok "16 plans at most: 4" bash -c "python3 -c \"import json; print(json.dumps(json.load(open('$work/both.json')) * 9))\" | $compare - 2> '$work/err'; [ \$? = 4 ]"
ok "says so" says "18 plans: 16 at most can be taken here"
python3 -c "import json; print(json.dumps(json.load(open('$work/both.json')) * 8))" > "$work/sixteen.json"
ok "nor one more from another file: 4" exits 4 $compare "$work/sixteen.json" "$work/none.json" --steps 1
ok "says which" says "none.json:1: 1 plans: 0 at most"
ok "nor none: 4" bash -c "echo '[]' | $compare - 2> '$work/err'; [ \$? = 4 ]"
python3 -c "import json; d = json.load(open('$work/both.json')); d[1]['prediction']['peak_bytes'] += 64; print(json.dumps(d))" > "$work/bad.json"
ok "a plan that is wrong: 4" exits 4 $compare "$work/bad.json"
ok "located" says "plan 2: "
"$BUILD/vplan" plan gpt2-tiny --device t4-16gb --seq 64 --global-batch 4 -o "$work/t4.json" > /dev/null 2>&1
ok "a plan for another device: 5" exits 5 $compare "$work/none.json" "$work/t4.json"
ok "says which" says "plan 2: the plan is for t4-16gb"

# ---- plans that offload, gradients in bf16 ----

moving="$BUILD/vplan tune llama-tiny --device cpu --seq 128 --global-batch 8 --precision bf16-mixed --gradients bf16 --host-memory 20MB --budget 1500KB --study $work/moving.db --max-trials 1 --json"
ok "host memory: the space is tuned" exits 0 $moving -o "$work/moving.json"
ok "what moves is kept" json '"host memory" in d["best"]["decisions"]' 'd["best"]["gradients"] == "bf16"'
ok "and the gradients' format" json_of "$work/moving.json" 'd["recipe"]["gradients"] == "bf16"'
ok "the plan runs to the byte" bash -c "'$BUILD/vplan' run '$work/moving.json' --steps 1 --json > '$work/out' 2>&- && grep -q host-pinned '$work/out'"
ok "a listed trial says what it kept where" bash -c "'$BUILD/vplan' study '$work/moving.db' | tr -s ' \\n' ' ' | grep -q 'gradients bf16, states of [0-9]* parts in host memory'"
ok "the study has the link" python3 -c "import json, sqlite3; [(link, host)] = sqlite3.connect('$work/moving.db').execute(\"SELECT link, host_update_bytes_per_s FROM profile WHERE kind = 'measured'\"); assert json.loads(link)['device'] == 'cpu' and host > 0"
ok "tuned again, nothing is measured again" exits 0 $moving --save-profile "$work/again.json"
ok "and its link counts" python3 -c "import json, sqlite3; [(link,)] = sqlite3.connect('$work/moving.db').execute(\"SELECT link FROM profile WHERE kind = 'measured'\"); assert json.load(open('$work/again.json'))['link'] == json.loads(link)"
ok "a profile of this machine has its link, and prices copies by it" bash -c "'$BUILD/vplan' run '$work/moving.json' --steps 2 --save-profile '$work/moved.json' > '$work/out' && '$BUILD/vplan' explain '$work/moving.json' --profile '$work/moved.json' | head -1 | grep 'a step (measured)'"
python3 - "$work/moved.json" "$work/unlinked.json" "$work/slower.json" <<'PY'
import json, sys
p = json.load(open(sys.argv[1]))
link = p.pop("link")
json.dump(p, open(sys.argv[2], "w"))
json.dump(dict(p, link=dict(link, together_bytes_per_s=1e5)), open(sys.argv[3], "w"))
json.dump(dict(p, link=dict(link, kernels_lost_s_per_byte=1e-8)), open(sys.argv[3].replace("slower", "losing"), "w"))
PY
# what kernels lose beside copies is more than all that stands outside the blocks: no bound is below 0
ok "kernels that lose much beside copies" exits 0 "$BUILD/vplan" plan llama-tiny --device cpu --seq 128 --global-batch 8 --precision bf16-mixed --gradients bf16 --host-memory 20MB --budget 1500KB --profile "$work/losing.json" --json
ok "and a proof" json 'd["proof"]["status"] == "optimal"'
ok "without a link copies stay the plan's, assumed" bash -c "'$BUILD/vplan' explain '$work/moving.json' --profile '$work/unlinked.json' | head -1 | grep 'a step (assumed)'"
# all that the plan moves, 260 kB where the host makes some of the steps, else 2 MB and more, crosses it at 100 kB/s
ok "behind a slow one a plan is slow" bash -c "'$BUILD/vplan' explain '$work/moving.json' --profile '$work/slower.json' --json > '$work/out'"
ok "by what it carries" json 'd["step_time_s"] > 1'
ok "a file that may not grow is told as one" bash -c "ulimit -f 1; '$BUILD/vplan-run' '$work/moving.json' --steps 2 --save-profile '$work/swollen.json' > /dev/null 2> '$work/err.full'; grep -q 'File too large' '$work/err.full'"
ok "a plan that offloads brings its host memory" exits 0 "$BUILD/vplan" tune "$work/moving.json" --max-trials 1 --json
ok "and none of it may be said away" json '"host memory" in d["best"]["decisions"]'
ok "offload is a pin of a plan too: 3" exits 3 "$BUILD/vplan" tune "$work/moving.json" --offload none --json
ok "the gradients' format is the plan's: 2" exits 2 "$BUILD/vplan" tune "$work/moving.json" --gradients fp32

# ---- a plan that is not as it was written, and more memory than there is now ----

"$BUILD/vplan" plan gpt2-tiny --device cpu --seq 32 --global-batch 2 --budget 5MB -o "$work/small.json" > /dev/null 2>&1
python3 -c "
import json
d = json.load(open('$work/small.json'))
d['budget_bytes'] = 1 << 49
json.dump(d, open('$work/edited.json', 'w'))"
ok "a plan that was edited: 4" exits 4 "$BUILD/vplan" tune "$work/edited.json" --max-trials 1
ok "says how it is taken" says "tune what it says with --unsigned"
ok "taken as it is" exits 0 "$BUILD/vplan" tune "$work/edited.json" --unsigned --max-trials 1
ok "with the memory that is there" says "note: the plan's budget is 512.00 TiB, and "
ok "the study goes on" exits 0 $moving
ok "and times no call again" bash -c "! grep -q timing '$work/err'"
echo '{"schema_version": 1, "device": "cpu", "backend": "b", "rows": [{"kernel": "copy_start", "count": 64, "copy": 0, "seconds": 1}]}' > "$work/copy.json"
ok "a profile that times a copy: 4" exits 4 "$BUILD/vplan-run" --profile "$work/copy.json"
ok "located" says "rows[0].kernel: copies go by the link's rate"

# ---- what cannot be ----

ok "nothing fits: 3" exits 3 $tune --budget 1MB --json
ok "with the whole document" json 'd["best"] is None and d["trials"] == []' '"fits" in d["stopped_because"]'
echo "not a database, but text of some length" > "$work/text.db"
ok "a text file for a study: 7" exits 7 $tune --budget 5MB --study "$work/text.db" --json
ok "located" json 'd["error"]["code"] == "storage" and d["error"]["file"].endswith("text.db") and "not an SQLite database" in d["error"]["message"]'
python3 -c "import sqlite3; sqlite3.connect('$work/other.db').execute('CREATE TABLE t(x)')"
ok "another program's database: 7" exits 7 $tune --budget 5MB --study "$work/other.db"
ok "says so" says "another program"
ok "a folder that is not there: 7" exits 7 $tune --budget 5MB --study "$work/no/s.db"
ok "the study is no place for the plan: 2" exits 2 $tune --budget 5MB --study "$work/n.db" -o "$work/n.db"
ok "a profile that is none: 4" exits 4 $tune --budget 5MB --profile "$work/text.db"
exec 9> "$work/l.db.lock"
python3 -c "import fcntl; fcntl.flock(9, fcntl.LOCK_EX)"
ok "a study in use: 7" exits 7 $tune --budget 5MB --study "$work/l.db"
ok "says by whom" says "another tuner is using this study"
exec 9>&-
finish
