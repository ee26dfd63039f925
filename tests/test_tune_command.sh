#!/bin/bash
# tests/test_tune_command.sh: vplan tune -- CMD, with a training command that is no PyTorch: it allocates from the stand-in CUDA
# runtime and reports as the probe would (tests/dryrun/scripts/no_torch.py). Real ones: tests/dryrun/tune_commands.py. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
top=$PWD
build=$(realpath "${BUILD:-build}")
vplan=$build/vplan
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp" "$work/home" "$work/cwd"
export TMPDIR=$work/tmp HOME=$work/home
. tests/check.sh
[ -f "$build/null/libvplan-null.so" ] || { skip "$build/null/libvplan-null.so is not built"; finish; }
cp tests/dryrun/scripts/no_torch.py "$work/cwd/training.py"
cd "$work/cwd" || exit 1
tune() { "$vplan" tune --device l4 --json "$@"; }
cmd=(python3 training.py)
space=(--try --batch=1,2,4,8,16,32,64 --try --accum=64,32,16,8,4,2,1 --keep 'batch*accum=64' --try --ckpt=0,1 --try --optim=a,b)

# ---- usage ----
ok "no command" exits 2 "$vplan" tune --
ok "no axis that is known" exits 2 "$vplan" tune --device l4 -- python3 training.py
ok "it says how to name one" says "--try --batch-size=1,2,4,8"
ok "a place that the command has not" exits 2 "$vplan" tune --device l4 --try batch=1,2 -- python3 training.py
ok "it says what an option looks like" says "--try --batch=..."
ok "a value is missing" exits 2 "$vplan" tune --device l4 --try --batch=1,,2 -- python3 training.py
ok "a value twice" exits 2 "$vplan" tune --device l4 --try --batch=1,1 -- python3 training.py
ok "an axis twice" exits 2 "$vplan" tune --device l4 --try --batch=1 --try --batch=2 -- python3 training.py
ok "a product of no axis" exits 2 "$vplan" tune --device l4 --try --batch=1,2 --keep 'b*accum=4' -- python3 training.py
ok "a product that no setting has" exits 2 "$vplan" tune --device l4 --try --batch=1,2 --keep batch=3 -- python3 training.py
ok "options of the other way to tune" exits 2 "$vplan" tune --device l4 --seq 64 --try --batch=1,2 -- python3 training.py
ok "a model and a command" exits 2 "$vplan" tune gpt2 --try --batch=1,2 -- python3 training.py
ok "--try without a command" exits 2 "$vplan" tune gpt2 --try --batch=1,2
ok "a card that is none" exits 2 "$vplan" tune --device cpu --try --batch=1,2 -- python3 training.py
ok "a command that is not there, as dryrun says it" exits 2 "$vplan" tune --device l4 --try --batch=1,2 -- ./no-such
ok "its reason" says "no-such"
printf 'import argparse, runpy, sys\np = argparse.ArgumentParser()\np.add_argument("--batch")\np.parse_args()\nrunpy.run_path("training.py", run_name="__main__")\n' > parsed.py
ok "an option that the command does not know" exits 2 "$vplan" tune --device l4 --try --batchsize=1,2,4,8 -- python3 parsed.py
ok "it says which" says "--try --batchsize: the command knows no such option"
ok "after one trial of it" test "$(grep -c 'batchsize [0-9]*: crash' "$work/err")" = 1

# ---- a word that leads out of the current folder ----
printf '#!/bin/sh\n[ -f "$2" ] || exit 9\nshift 2\nexec python3 training.py "$@"\n' > "$work/above.sh"
chmod +x "$work/above.sh"
ok "a program and a file above the current folder" exits 0 tune --try --batch=1,2 -- ../above.sh --data ../above.sh --batch 1

# ---- a folder of many files is a link, and what comes behind it is there too ----
mkdir many
(cd many && seq 5000 | xargs touch)
printf '#!/bin/sh\n[ "$(ls many | wc -l)" = 5000 ] && [ -L many ] && [ -f zzz.txt ] && [ ! -L training.py ] || exit 9\nexec python3 training.py "$@"\n' > zzz.sh
echo > zzz.txt
ok "a folder of 5,000 files" exits 0 tune --try --batch=1,2 -- sh zzz.sh --batch 1
rm -r many zzz.sh zzz.txt

# ---- a large text that is trained on is told from the root, so that what is kept by its path is kept once; any other file is a trial's own ----
head -c 300000 /dev/zero > large.txt
echo small > small.txt
printf '#!/bin/sh\n[ "$2" = "%s/large.txt" ] && [ "$3" = "--validation_file=%s/large.txt" ] && [ "$4" = --cache ] && [ "$5" = large.txt ] && [ "$7" = small.txt ] || exit 9\nrm large.txt\nshift 7\nexec python3 training.py "$@"\n' "$PWD" "$PWD" > large.sh
ok "a large text, a large file and a small text" exits 0 tune --try --batch=1,2 -- sh large.sh --train_file large.txt --validation_file=./large.txt --cache large.txt --test_file small.txt --batch 1
ok "are what the command is told of in its own words" json 'd["best"]["command"][3:5] == ["large.txt", "--validation_file=./large.txt"]'
ok "what a trial removes is its own link" test -s large.txt
rm large.txt small.txt large.sh

# ---- the best of them really train on the card here, which the stand-in's NVML describes ----
cp "$top/tests/dryrun/scripts/on_card.py" .
cp -r "$top/tests/dryrun/scripts/fake_torch" .
here() {
    env LD_LIBRARY_PATH="$build/null" VPLAN_NULL_NAME="NVIDIA L4" VPLAN_NULL_TOTAL_BYTES=24000000000 VPLAN_NULL_LIMIT_BYTES=20000000000 \
        STEPS_LOG="$work/steps" "$vplan" tune --json --try --batch=1,2,4,8 --try --accum=8,4,2,1 --keep 'batch*accum=8' "$@" -- python3 on_card.py --batch 2 --accum 4
}
ok "the card here, by default" exits 0 here
ok "what was the fastest on it is the best, whatever the dry runs say" json 'd["best"]["settings"] == {"--batch": "4", "--accum": "2"}' \
    'd["best"]["on_card"]["verdict"] == "ok" and 0.02 <= d["best"]["on_card"]["timing"]["step_time_s"] < 0.1' \
    'd["best"]["on_card"]["timing"]["timed_steps"] == 7 and d["best"]["on_card"]["allocated_peak_bytes"] == 4000' \
    'd["best"]["on_card"]["reserved_peak_bytes"] == 8000 and d["best"]["on_card"]["card_bytes"] == 12000' \
    'abs(d["best"]["on_card"]["timing"]["samples_per_s"] * d["best"]["on_card"]["timing"]["step_time_s"] - 8) < 1e-9' \
    'd["had"]["on_card"]["verdict"] == "ok" and sum(t["on_card"] is not None for t in d["trials"]) in (3, 4)' \
    'max(d["trials"], key=lambda t: t["samples_per_s"] or 0)["settings"] != d["best"]["settings"]'
ok "ten steps each, and nothing saved" python3 -c 'import sys
rows = [l.split() for l in open(sys.argv[1])]
assert all(r[2] == "False" for r in rows), rows
assert {k for b, k, _ in rows} == {str(k) for k in range(10 - 1)}, rows     # the tenth step ends it' "$work/steps"
ok "and the folder is as it was" test ! -e steps.txt -a ! -e model.pt
ok "none of them, where it is said so" exits 0 here --on-card 0
ok "and then nothing trained" json 'all(t["on_card"] is None for t in d["trials"])'
ok "as many as it is told" exits 0 here --on-card 1
ok "that is one, and the command as it is" json 'sum(t["on_card"] is not None for t in d["trials"]) == 2'
for how in oom:oom-device crash:crash nothing:crash; do
    CARD=${how%:*} ok "all that train end by $how" exits 0 here
    ok "and the dry runs' answer is given: $how" json 'd["best"] and all(not t["on_card"] or t["on_card"]["verdict"] == "'"${how#*:}"'" for t in d["trials"])' \
        'any("no setting that trained on the card" in a for a in d["assumptions"])'
done
CARD=after ok "one that fails once its data is over, after its steps" exits 0 here
ok "was timed all the same" json 'd["best"]["settings"] == {"--batch": "4", "--accum": "2"}' 'd["best"]["on_card"]["verdict"] == "ok" and d["best"]["on_card"]["timing"]["timed_steps"] == 7'
CARD=crash ok "what it died of" exits 0 here
ok "is said" json 'd["best"]["on_card"]["evidence"] == "the card is on fire"'
CARD=oom-8 ok "the fastest of the dry runs runs out of memory on the card" exits 0 here --on-card 1
ok "so the next one trains, and is the answer" json 'd["best"]["settings"] == {"--batch": "4", "--accum": "2"} and d["best"]["on_card"]["verdict"] == "ok"' \
    '[t["on_card"]["verdict"] for t in d["trials"] if t["settings"] == {"--batch": "8", "--accum": "1"}] == ["oom-device"]'
ok "no cache is left beside the probe" test ! -e "$build/null/probe/__pycache__"
CARD=hang ok "one that never ends" exits 0 here --on-card 1 --timeout 3
ok "is ended" json 'd["best"]["on_card"]["verdict"] == "timeout"'
ok "another card than the one here" exits 2 tune --on-card 2 --try --batch=1,2 -- "${cmd[@]}"
ok "has nothing that could train" says "--device names no other"
ok "no trial's folder is left" test -z "$(ls "$TMPDIR")"
rm -r on_card.py fake_torch

# ---- the best of all, from few trials, at several budgets and with every start ----
cat > "$work/best.py" <<'PY'
# The same formula as training.py, priced as operators reach of what such cards state (devices/efficiency.c): 70 % of the bandwidth, 96.2 %
# of the products' rate at best, 4 us a launch, 25 us an operator on the host. Who is best, of all that fit.
import json, sys
d, budget = json.load(open(sys.argv[1])), int(sys.argv[2])
MIB, par = 1 << 20, 300
outside, per_s, bytes_per_s, launch_s, operator_s = 251 * MIB, 0.962 * 121e12, 0.7 * 300e9, 4e-6, 25e-6
best = None
for batch in (1, 2, 4, 8, 16, 32, 64):
    for ckpt in (0, 1):
        for optim in "ab":
            accum = 64 // batch
            held = (par + (2 if optim == "a" else 1) * par + (par if accum > 1 else 4) + batch * (40 if ckpt else 100)) * MIB
            if held + outside > budget:
                continue
            host, card = 0, 0
            for _ in range(accum):
                host += operator_s + 4e-6
                card = max(card, host) + par * MIB / bytes_per_s + launch_s
                host += operator_s + 50 * 4e-6
                card = max(card, host) + int(batch * (4 if ckpt else 3) * 1e11) / per_s + 50 * launch_s
            host += operator_s + (10 if optim == "a" else 2) * 4e-6
            card = max(card, host) + int((9 if optim == "a" else 7) * par * MIB) / bytes_per_s + (10 if optim == "a" else 2) * launch_s
            key = (-64 / max(card, host), held)
            if best is None or key < best[0]:
                best = (key, {"--batch": str(batch), "--accum": str(accum), "--ckpt": str(ckpt), "--optim": optim}, held)
ran = len(d["trials"])
assert best is not None and d["best"]["settings"] == best[1], (best, d["best"])
assert d["best"]["allocated_peak_bytes"] == best[2]
assert abs(d["best"]["samples_per_s"] + best[0][0]) < 1e-6 * -best[0][0], (d["best"], best)
assert ran <= 28 // 4 + 4, ran
print(ran)
PY
for budget in 1900 2500 3300 4300 6000 9000; do
    ok "budget $budget MiB" exits 0 tune --budget ${budget}MiB "${space[@]}" -- "${cmd[@]}" --batch 4 --accum 16
    ok "budget $budget MiB: the best of all 28" python3 "$work/best.py" "$work/out" $((budget << 20))
done
ok "it says what it assumed" json 'any("--ckpt: on needs less" in a for a in d["assumptions"])' \
    'any("--batch: more of it needs more" in a for a in d["assumptions"])' \
    'sum("plans were checked" in a for a in d["assumptions"]) == 1' 'd["had"]["settings"] == {}' \
    'd["stopped_because"] == "nothing left is expected to be faster"' \
    'd["space"]["settings"] == 28 and d["space"]["tried"] == len(d["trials"])' \
    'd["best"]["command"][:2] == ["python3", "training.py"] and d["best"]["command"].count("--batch") == 1' \
    'sum(d["space"][k] for k in ("ruled_out_by_memory", "ruled_out_by_speed", "expected_slower", "expected_too_large")) >= 28 - len(d["trials"])'
ok "nothing fits" exits 3 tune --budget 600MiB "${space[@]}" -- "${cmd[@]}"
ok "and nothing is best" json 'd["best"] is None' 'all(t["verdict"] == "oom-device" and t["needed_bytes"] > 0 for t in d["trials"])'
ok "none because a model expects so" json 'd["space"]["expected_too_large"] == 0'
for batch in 1 2 8; do # one value, and a command that does not name it
    ok "batch $batch alone" exits 0 tune --budget 4300MiB --try --batch=$batch -- "${cmd[@]}"
    ok "batch $batch is played" json "d['best']['settings'] == {'--batch': '$batch'}" 'len(d["trials"]) == 2'
done
ok "batch 64 alone" exits 3 tune --budget 4300MiB --try --batch=64 -- "${cmd[@]}"
ok "was played before that is said" json '[(value(t, "--batch"), t["verdict"]) for t in d["trials"]] == [(None, "ok"), ("64", "oom-device")]'
ok "one trial, of one that does not fit" exits 6 "$vplan" tune --device l4 --budget 4300MiB --max-trials 1 --try --batch=64,1 -- "${cmd[@]}" --batch 64
ok "does not say that none would" says "NO ANSWER"
ok "one value, for people" exits 0 "$vplan" tune --device l4 --try --batch=1 -- "${cmd[@]}"
ok "is one setting, beside the command" says "1 of 1 settings were tried and the command as it is"
ok "a command that has the best" exits 0 tune --budget 4300MiB --try --batch=8,16,32 -- "${cmd[@]}" --batch=16 --optim b
ok "is told so" json 'd["had"]["settings"] == {"--batch": "16"}' 'd["best"]["command"][2] == "--batch=32"'
ok "a command that writes no equal sign" exits 0 tune --budget 4300MiB --try --batch=8,16 -- "${cmd[@]}" --optim b
ok "is told without one" json 'd["best"]["command"][2:] == ["--optim", "b", "--batch", "16"]' 'd["best"]["settings"] == {"--batch": "16"}'
ok "one that writes them" exits 0 tune --budget 4300MiB --try --batch=8,16 -- "${cmd[@]}" --optim=b
ok "is told with one" json 'd["best"]["command"][2:] == ["--optim=b", "--batch=16"]'
ok "for people" exits 0 "$vplan" tune --device l4 --budget 4300MiB --try b=8,16,32 -- "${cmd[@]}" --batch={b} --optim b
ok "whether it fits first" sh -c "head -1 $work/out | grep -q '^FITS: [0-9.]* of 4.20 GiB, '"
ok "the command line last" sh -c "tail -1 $work/out | grep -q '^next       python3 training.py --batch=32 --optim b$'"
ok "in 80 columns" sh -c "! grep -q '.\{81\}' $work/out"
ok "progress" says "best so far"
ok "and what was not played" says "settings were tried"
ok "the peak to the byte" sh -c "grep -q '^memory .* allocated, [0-9,]* bytes; .* reserved' $work/out"
ok "nothing that fits, for people" exits 3 "$vplan" tune --device l4 --budget 1100MiB --try --batch=64,128 -- "${cmd[@]}" --batch 64
ok "says which needs the least" says "least      batch 64: at least "
ok "and how to see what takes it" sh -c "tail -2 $work/out | grep -q '^next       vplan dryrun --device l4 --budget 1100MiB'"
next_of() { sed -n '/^next /,$p' "$work/out" | sed 's/^next *//; s/\\$//' | tr -d '\n' | sed 's/  */ /g'; }
ok "a dry run of a command with batch and accumulation" exits 0 "$vplan" dryrun --device l4 -- "${cmd[@]}" --batch 4 --accum 2
ok "is followed by the tuner" [ "$(next_of)" = "vplan tune --device l4 --try --batch=8,4,2,1 --try --accum=1,2,4,8 --keep 'batch*accum=8' -- ${cmd[*]} --batch 4 --accum 2" ]
ok "that runs" exits 0 sh -c "$(next_of | sed "s#^vplan#$vplan#")"
ok "a dry run out of memory" exits 3 "$vplan" dryrun --device l4 --budget 4300MiB -- "${cmd[@]}" --batch 64
ok "is followed by smaller batches" [ "$(next_of)" = "vplan tune --device l4 --budget 4300MiB --try --batch=64,32,16,8,4,2,1 -- ${cmd[*]} --batch 64" ]
ok "one without options" exits 0 "$vplan" dryrun --device l4 -- "${cmd[@]}" --output_dir out
ok "whose seconds are known is followed by itself" [ "$(next_of)" = "${cmd[*]} --output_dir out" ]
cat > "$work/interrupt.py" <<'PY'
import signal, subprocess, sys, time
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
for line in p.stderr:
    if "best so far" in line:
        break
p.send_signal(signal.SIGINT)
out = p.communicate(timeout=60)[0]
assert out.startswith("INTERRUPTED: "), out
assert "best so far " in out.splitlines()[0] and "python3 training.py" in out, out
next_at = out.index("next       vplan tune --device l4")
assert "-- python3 training.py" in out[next_at:].replace("\\\n", " ").replace("  ", ""), out
print(out)
PY
ok "Ctrl-C: the best so far, and how to go on" python3 "$work/interrupt.py" "$vplan" tune --device l4 --budget 4300MiB --study "$work/i.db" "${space[@]}" -- "${cmd[@]}" --sleep 1
ok "an option without a value" exits 0 tune --try --flag=off,on --try --batch=1,2 -- "${cmd[@]}" --flag --batch 2
ok "is there or not" json 'd["had"]["settings"] == {"--flag": "on", "--batch": "2"}'

# ---- faults ----
ok "what is as fast as it was" exits 0 "$vplan" tune --device l4 --try --optim=a -- "${cmd[@]}" --batch 2
ok "is said to be no faster" says "nothing that fits is faster than what you have"
cat > only_message.sh <<'P'
printf '{"cuda":false,"final":true,"torch":"2.11.0","phases":[],"error":{"type":"ValueError","message":"first line\\nsecond line"}}' > "$VPLAN_NULL_REPORT/report.1.json"
exit 1
P
ok "a command that fails as it is" exits 6 tune --try --batch=1,2 -- sh only_message.sh
ok "its error's first line" says "ValueError: first line"
"$vplan" tune --device l4 --try --batch=1,2 -- sh only_message.sh > "$work/said" 2>&1
ok "and no more of it" sh -c '! grep -q "x0a\|second line" "$1"' _ "$work/said"
ok "a value that crashes and one that hangs" exits 0 tune --timeout 3 --try --batch=1,2,4,8 -- "${cmd[@]}" --crash 4 --hang 8
ok "are verdicts" json '{value(t, "--batch"): t["verdict"] for t in d["trials"]}.get("8") == "timeout"' \
    '{value(t, "--batch"): t["verdict"] for t in d["trials"]}.get("4") == "crash"' 'd["best"]["settings"]["--batch"] == "2"'
ok "for people" exits 0 "$vplan" tune --device l4 --timeout 3 --try --batch=1,2,4,8 -- "${cmd[@]}" --crash 4 --hang 8
ok "each failure has its line" sh -c "grep -q '^failed     as it is: .*batch 4' $work/out && grep -q '^           batch 8: .*--timeout' $work/out"
ok "and progress says how much is left" says "; up to "
ok "a value that never works" exits 0 tune --try --optim=broken,a,b --try --batch=1,2,4,8 -- "${cmd[@]}"
ok "is left alone after two" json 'sum(t["settings"].get("--optim") == "broken" for t in d["trials"]) <= 2' 'd["best"]["settings"]["--optim"] in "ab"'
ok "a command that always fails" exits 6 tune --try --batch=1,2,4,8 -- "${cmd[@]}" --optim broken
ok "says why" says "does not work"
ok "one that prints much" exits 0 tune --try --batch=1,2 -- "${cmd[@]}" --print 300000000
mkdir -p outputs out && echo mine > outputs/log.txt && echo mine > out/log.txt && chmod 444 out/log.txt
before=$(find . -type f | sort | xargs cat | sha256sum)
ok "an output folder" exits 0 tune --try --batch=1,2 -- "${cmd[@]}" --output_dir outputs
ok "is not touched, nor is anything else" [ "$(find . -type f | sort | xargs cat | sha256sum)" = "$before" ]
printf 'import os, sys\nos.mkdir(sys.argv[sys.argv.index("--output_dir") + 1])\nexec(open("training.py").read())\n' > makes.py
ok "one that is not there is not there for the command either" exits 0 tune --try --batch=1,2 -- python3 makes.py --output_dir fresh
ok "which makes it elsewhere" [ ! -e fresh ]
rm makes.py
chmod 644 out/log.txt
cat > wipe.sh <<'SH'
cat > /dev/null
read -r line < /dev/tty
setsid sleep 298.25 &
python3 training.py "$@" || exit
rm -rf "$PWD"
SH
kept=$(find . -type f | sort | xargs cat | sha256sum)
ok "one that reads, leaves a daemon and deletes the folder it is in" exits 0 tune --try --batch=1,2 -- sh wipe.sh --batch 1
ok "is played, twice" json '[t["verdict"] for t in d["trials"]] == ["ok", "ok"]'
ok "deletes nothing" [ "$(find . -type f | sort | xargs cat | sha256sum)" = "$kept" ]
ok "and its daemon has ended" sh -c '! ps -eo args | grep -q "^sleep 298[.]25"'
rm wipe.sh
ok "an output folder that no option names" exits 0 tune --try --batch=1,2 -- "${cmd[@]}"
ok "is not touched" [ "$(find . -type f | sort | xargs cat | sha256sum)" = "$before" ]
ok "nothing is left" [ -z "$(ls -A "$work/tmp")" ]
rm -r outputs out

# ---- the study ----
export COUNT_RUNS=$work/runs
: > "$COUNT_RUNS"
ok "with a study" exits 0 tune --budget 4300MiB --study "$work/s.db" "${space[@]}" -- "${cmd[@]}" --batch 4 --accum 16
n=$(wc -l < "$COUNT_RUNS")
cp "$work/out" "$work/first"
ok "again" exits 0 tune --budget 4300MiB --study "$work/s.db" "${space[@]}" -- "${cmd[@]}" --batch 4 --accum 16
ok "runs nothing" [ "$(wc -l < "$COUNT_RUNS")" = "$n" ]
ok "and says the same" python3 -c "
import json
a, b = (json.load(open(f)) for f in ('$work/first', '$work/out'))
assert a['best']['settings'] == b['best']['settings'] and all(t['from_study'] for t in b['trials'])"
# What is asked for follows from the verdicts alone: in the same order by one core and by four, and from any part of a study.
order() { python3 -c 'import json, sys; print([(t["settings"], t["verdict"], t["device_bytes"]) for t in json.load(open(sys.argv[1]))["trials"]])' "$1"; }
order "$work/first" > "$work/order"
ok "by one core" exits 0 tune --budget 4300MiB --jobs 1 "${space[@]}" -- "${cmd[@]}" --batch 4 --accum 16
ok "asks for the same, in the same order" [ "$(order "$work/out")" = "$(cat "$work/order")" ]
ok "and plays nothing ahead" json 'd["timing"]["played_ahead"] == 0'
ok "by four, slowly" exits 0 tune --budget 4300MiB --jobs 4 "${space[@]}" -- "${cmd[@]}" --batch 4 --accum 16 --sleep 0.3
ok "asks for the same" [ "$(order "$work/out")" = "$(cat "$work/order")" ]
ok "and plays little in vain" json 'd["timing"]["played_ahead"] <= len(d["trials"])'
for left in 1 2 3 4 5; do # of a study, trials chosen by chance
    cp "$work/s.db" "$work/part.db"
    python3 - "$work/part.db" $left <<'PY'
import random, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
ids = [r[0] for r in db.execute("SELECT id FROM command_trial")]
random.seed(int(sys.argv[2]))
for i in random.sample(ids, len(ids) * int(sys.argv[2]) // 6):
    db.execute("DELETE FROM command_trial WHERE id = ?", (i,))
db.commit()
PY
    ok "from a study without $left sixths of its trials" exits 0 tune --budget 4300MiB --study "$work/part.db" "${space[@]}" -- "${cmd[@]}" --batch 4 --accum 16
    ok "asks for the same" [ "$(order "$work/out")" = "$(cat "$work/order")" ]
done
n=$(wc -l < "$COUNT_RUNS")
ok "another budget is another request" exits 0 tune --budget 4400MiB --study "$work/s.db" --try --batch=1 -- "${cmd[@]}" --batch 1
ok "which ran" [ "$(wc -l < "$COUNT_RUNS")" = "$((n + 1))" ]
echo "# edited" >> training.py
ok "an edited script" exits 0 tune --budget 4400MiB --study "$work/s.db" --try --batch=1 -- "${cmd[@]}" --batch 1
ok "is another command" [ "$(wc -l < "$COUNT_RUNS")" = "$((n + 2))" ]
: > "$COUNT_RUNS"
ok "at most so many" exits 0 tune --budget 4300MiB --max-trials 3 "${space[@]}" -- "${cmd[@]}" --batch 4 --accum 16
ok "trials" json 'len(d["trials"]) == 3' 'd["stopped_because"] == "as many trials as were allowed"'

# Killed at random moments: what had ended is not done again, and nothing stays behind.
cat > "$work/kill.py" <<'PY'
import json, os, random, sqlite3, subprocess, sys, time
words, study, times = sys.argv[3:], sys.argv[1], int(sys.argv[2])
random.seed(7)
finished = {}
for i in range(times):
    p = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(random.uniform(0.05, 1.0))
    p.kill()
    p.wait()
    if os.path.exists(study):
        rows = []
        for attempt in range(50):
            try:
                rows = sqlite3.connect(study, timeout=5).execute("SELECT id, words, verdict, device_bytes FROM command_trial WHERE state = 'done'").fetchall()
                break
            except sqlite3.Error:
                time.sleep(0.1)
        for row in rows:
            assert finished.setdefault(row[0], row) == row, row
        assert {r[0] for r in rows} >= set(finished), "a finished trial is lost"
        assert len({r[1] for r in rows}) == len(rows), "a finished trial was done again"
out = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
assert out.returncode == 0, (out.returncode, out.stderr[-2000:])
d = json.loads(out.stdout)
asked = [(t["settings"], t["verdict"], t["device_bytes"], t["step_time_s"]) for t in d["trials"]]
at = words.index("--study")
fresh = json.loads(subprocess.run(words[:at] + ["--jobs", "1"] + words[at + 2:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
assert asked == [(t["settings"], t["verdict"], t["device_bytes"], t["step_time_s"]) for t in fresh["trials"]], (asked, fresh["trials"])
assert d["best"]["command"] == fresh["best"]["command"]
kept = sum(t["id"] in finished for t in d["trials"])
assert kept == sum(t["from_study"] for t in d["trials"]) or kept == len(d["trials"]), (kept, d["trials"])
print(len(finished), "trials finished under", times, "kills")
PY
# By turns a script whose trials are processes of their own, and one whose trials are forks of one that has imported its package.
mkdir -p "$work/site-packages"
echo > "$work/site-packages/datasets.py"
sed '1,/^import/s/^import/import datasets\nimport/' training.py > forked.py
for script in training.py forked.py; do
    ok "$script killed 40 times: nothing finished is lost, and the same is asked for as by one that was not" env VPLAN_TUNE_TEST="$work" PYTHONPATH="$work/site-packages" \
        python3 "$work/kill.py" "$work/$script.db" 40 "$vplan" tune --device l4 --json --budget 4300MiB --study "$work/$script.db" "${space[@]}" -- python3 $script \
        --batch 4 --accum 16 --sleep 0.2
    sleep 1
    ok "$script: and no process is left" sh -c "! grep -lzx 'VPLAN_TUNE_TEST=$work' /proc/[0-9]*/environ 2> /dev/null | grep -q ."
done
rm forked.py

# ---- transformers' options are known ----
printf 'import sys\nw = {a: b for a, b in zip(sys.argv[1:], sys.argv[2:])}\nsys.argv = ["x", "--batch", w.get("--per_device_train_batch_size", "8"), "--accum", w.get("--gradient_accumulation_steps", "1"), "--ckpt", "1" if w.get("--gradient_checkpointing") == "True" else "0", "--optim", "b" if w.get("--optim", "adamw_torch_fused") == "adamw_torch_fused" else "a", "--output_dir", w.get("--output_dir", "trainer_output")]\nexec(open("training.py").read())\n' > trainer.py
ok "transformers' options" exits 0 tune --budget 3300MiB -- python3 trainer.py --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --output_dir results
ok "at the same global batch" json 'all(int(value(t, "--per_device_train_batch_size")) * int(value(t, "--gradient_accumulation_steps")) == 32 for t in d["trials"] if t["settings"])' \
    'd["space"]["settings"] == 6 * 2 * 2 * 2' 'd["best"]["settings"]["--optim"] == "adamw_torch_fused"' '"results" in d["best"]["command"]'
ok "what nobody named does not move" json 'set(d["best"]["settings"]) == {"--per_device_train_batch_size", "--gradient_accumulation_steps", "--gradient_checkpointing", "--optim", "PYTORCH_ALLOC_CONF"}'
ok "segments do not grow where nothing is short by fragments" json 'all(t["settings"].get("PYTORCH_ALLOC_CONF", "default") == "default" for t in d["trials"])' \
    'd["space"]["packed_to_no_use"] > 0'
ok "whoever has set the allocator" exits 0 env PYTORCH_ALLOC_CONF=expandable_segments:True "$vplan" tune --device l4 --json --budget 3300MiB -- python3 trainer.py --per_device_train_batch_size 4
ok "keeps it" json '"PYTORCH_ALLOC_CONF" not in d["best"]["settings"]'
ok "another optimizer stays" exits 0 tune --budget 3300MiB -- python3 trainer.py --per_device_train_batch_size 4 --optim adafactor
ok "as it is" json '"--optim" not in d["best"]["settings"]'
# What the command leaves out is as its trainer has it: one trial, not one of the command and one of its defaults.
export ARGUMENTS='{"per_device_train_batch_size": "4", "gradient_accumulation_steps": "1", "gradient_checkpointing": "False", "optim": "adamw_torch_fused"}'
COUNT_RUNS=$work/left ok "a command that leaves options out" exits 0 tune --budget 3300MiB --jobs 1 --study "$work/left.db" -- python3 trainer.py --per_device_train_batch_size 4
ok "is a setting of the space" json 'd["had"]["settings"]["--optim"] == "adamw_torch_fused" and d["had"]["settings"]["--gradient_checkpointing"] == "False"' \
    'all(t["settings"] for t in d["trials"])' '[t["settings"] for t in d["trials"]].count(d["had"]["settings"]) == 1'
ok "and played once" sh -c 'test "$(grep -cx "4 1 0 b" "$1")" = 1' sh "$work/left"
before=$(wc -l < "$work/left")
COUNT_RUNS=$work/left ok "a second time" exits 0 tune --budget 3300MiB --jobs 1 --study "$work/left.db" -- python3 trainer.py --per_device_train_batch_size 4
ok "nothing is played again" test "$before" = "$(wc -l < "$work/left")"
unset ARGUMENTS

# ---- options of diffusers' example scripts are known, by the script's import ----
mkdir -p "$work/site"
echo > "$work/site/diffusers.py"
export PYTHONPATH=$work/site
cat > pictures.py <<'PY'
import sys
from diffusers import __name__ as _
w = dict(x.split("=") if "=" in x else (x, "on") for x in sys.argv[1:])   # its parser has --gradient_accumulation_steps, --gradient_checkpointing
assert not {"--per_device_train_batch_size", "--optim"} & set(w) and w.get("--gradient_checkpointing", "on") == "on", w
sys.argv = ["x", "--batch", w["--train_batch_size"], "--accum", w.get("--gradient_accumulation_steps", "1"), "--ckpt", "1" if "--gradient_checkpointing" in w else "0"]
exec(open("training.py").read())
PY
sed 's/"--gradient_accumulation_steps"/"--" + "steps"/; s/"--gradient_checkpointing"/"--ckpt"/g; s/ #.*//' pictures.py > fewer.py
ok "diffusers' options" exits 0 tune --budget 3300MiB -- python3 pictures.py --train_batch_size=4 --gradient_accumulation_steps=8
ok "at the same global batch" json 'all(int(value(t, "--train_batch_size")) * int(value(t, "--gradient_accumulation_steps")) == 32 for t in d["trials"])' \
    'd["space"]["settings"] == 6 * 2 * 2' 'set(d["best"]["settings"]) == {"--train_batch_size", "--gradient_accumulation_steps", "--gradient_checkpointing", "PYTORCH_ALLOC_CONF"}'
ok "its flag is there or not" exits 0 tune --budget 3300MiB --try --gradient_checkpointing=off,on -- python3 pictures.py --train_batch_size=16 --gradient_checkpointing
ok "and is known without the samples" exits 2 tune --budget 3300MiB -- python3 pictures.py --gradient_checkpointing
ok "which have to be said" says "--train_batch_size does not stand in the command is not known: write it there"
ok "a script that has only the samples" exits 2 tune --budget 3300MiB -- python3 fewer.py --train_batch_size=4
ok "has nothing to choose" says "as in --try --train_batch_size=1,2,4,8"
ok "transformers' come first, whatever is imported" exits 0 tune --budget 3300MiB -- python3 trainer.py --per_device_train_batch_size 4
unset PYTHONPATH
ok "a script that does not import it" exits 2 "$vplan" tune --device l4 -- python3 training.py --train_batch_size=4 --gradient_accumulation_steps=6
ok "is told how to name both" says "--try --train_batch_size=1,2,4,8,12,24 --try --gradient_accumulation_steps=24,12,6,3,2,1 --keep 'train_batch_size*gradient_accumulation_steps=24'"
ok "the samples of another trainer" exits 2 "$vplan" tune --device l4 -- python3 training.py --bs=4 --gradient_checkpointing
ok "are not taken for transformers'" says "as in --try --bs=1,2,4,8"
ok "-o writes the command" exits 0 tune --budget 3300MiB -o best -- python3 trainer.py --per_device_train_batch_size 4
ok "as a script" sh -c 'test -x best/run.sh && grep -q "^exec python3 trainer.py --per_device_train_batch_size 8 --gradient_accumulation_steps 1 \|^exec python3 trainer.py --per_device_train_batch_size 4" best/run.sh'
ok "and does not replace one" exits 2 tune --budget 3300MiB -o best -- python3 trainer.py --per_device_train_batch_size 4
# ---- words key=value: Hydra's overrides, OmegaConf's dot lists, ultralytics' arguments ----
cat > words.py <<'P'
import sys
w = dict(a.lstrip("+").split("=", 1) for a in sys.argv[1:])
unknown = set(w) - {"train.batch", "train.accum", "hydra.run.dir", "model.output_dir"}
if unknown:
    sys.exit("Could not override '%s'." % unknown.pop())
out = w.get("hydra.run.dir", w.get("model.output_dir", "outputs"))
sys.argv = ["x", "--batch", w.get("train.batch", "4"), "--accum", w.get("train.accum", "1"), "--output_dir", out]
exec(open("training.py").read())
P
ok "a word key=value" exits 0 tune --budget 4300MiB --try train.batch=4,8,16 -- python3 words.py train.batch=4 train.accum=1
ok "is told in its place" json 'd["best"]["command"] == ["python3", "words.py", "train.batch=16", "train.accum=1"]' 'd["had"]["settings"] == {"train.batch": "4"}'
ok "one that is added" exits 0 tune --budget 4300MiB --try train.batch=8,16 -- python3 words.py +train.batch=4
ok "stays so" json 'd["best"]["command"] == ["python3", "words.py", "+train.batch=16"]'
ok "one that the command leaves out" exits 0 tune --budget 4300MiB --try train.batch=8,16 -- python3 words.py train.accum=1
ok "is put at its end" json 'd["best"]["command"] == ["python3", "words.py", "train.accum=1", "train.batch=16"]'
ok "two whose product stays" exits 0 tune --budget 4300MiB --try train.batch=1,2,4,8 --try train.accum=8,4,2,1 --keep 'train.batch*train.accum=8' -- python3 words.py train.batch=2 train.accum=4
ok "move together" json 'd["best"]["command"] == ["python3", "words.py", "train.batch=8", "train.accum=1"]'
ok "a variable of the environment is no such word" exits 2 tune --try batch=1,2 -- env batch=3 python3 words.py
ok "nor is an option's value" exits 2 tune --try batch=1,2 -- python3 training.py --set a=b
ok "nothing to try" exits 2 "$vplan" tune --device l4 -- python3 words.py train.batch=8
ok "is said in its words" says "--try train.batch=1,2,4,8,"
ok "nothing to try of two" exits 2 "$vplan" tune --device l4 -- python3 words.py train.batch=2 train.accum=4
ok "is said with what stays" says "--try train.batch=1,2,4,8 --try train.accum=8,4,2,1 --keep 'train.batch*train.accum=8'"
mkdir -p outputs && echo mine > outputs/log.txt
for word in hydra.run.dir="$PWD/outputs" model.output_dir="$PWD/outputs"; do
    ok "an output folder of a word ${word%%=*}" exits 0 tune --try train.batch=1,2 -- python3 words.py train.batch=1 "$word"
    ok "is not touched" [ "$(cat outputs/log.txt)" = mine ]
done
rm -r outputs
printf '#!/usr/bin/env python3\nimport sys\nw = dict(a.split("=", 1) for a in sys.argv[1:] if "=" in a)\nb = int(w.get("batch", 16))\nsys.argv = ["x", "--batch", str(b), "--accum", str(max(round(64 / b), 1))]\nexec(open("training.py").read())\n' > yolo
chmod +x yolo
ok "ultralytics' command" exits 0 tune --budget 4300MiB -- ./yolo detect train model=yolo11n.yaml batch=8
ok "moves its batch" json 'd["best"]["settings"]["batch"] == "16" and d["best"]["command"][4] == "batch=16"' 'd["had"]["settings"]["batch"] == "8"' \
    '[a["values"] for a in d["space"]["axes"] if a["name"] == "batch"] == [["1", "2", "4", "8", "16", "32", "64"]]' \
    'any("to nbs=64 samples a step" in a and "--try amp=True,False" in a for a in d["assumptions"])'
ok "its default" exits 0 tune --budget 6000MiB -- ./yolo train model=yolo11n.yaml
ok "is 16" json 'd["had"]["settings"]["batch"] == "16"' 'd["best"]["command"][-1] == "batch=32"'
ok "a batch that a step is no number of" exits 2 tune -- ./yolo train batch=48
ok "has to be named" says "of which batch=48 is no divisor"
ok "one that ultralytics chooses" exits 2 tune -- ./yolo train batch=-1
ok "a validation" exits 2 tune -- ./yolo val batch=8
finish
