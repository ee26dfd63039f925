#!/bin/bash
# tests/test_determinism.sh: same input, same output, byte for byte: twice in a row, on one core, in three locales (one writes 1,5), from
# two compilers; and the same trained parameters from any number of threads. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL: $1"; [ -z "${2:-}" ] || head -c 2000 "$2" | sed 's/^/    /'; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $1"; }

printf '{"schema_version": 1, "optimizer": {"name": "sgd", "lr": 0.125, "weight_decay": 0.015625}, "dropout": 0.1}\n' > "$work/recipe.json"
cat > "$work/odd.json" <<'J'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 40, "n_layer": 3, "n_head": 4, "n_positions": 600,
 "vocab_size": 101, "tie_word_embeddings": false, "layer_norm_epsilon": 1.5e-5, "unknown": 1.5}
J

# document FILE: all but what may depend on the clock. plan -o writes no clock at all.
document() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); d.pop("timing", None); print(json.dumps(d, indent=1))' "$1" > "$1.x" && mv "$1.x" "$1"; }

# outputs VPLAN DIR: everything that estimate, plan and explain say about a dozen inputs, each in a file of DIR.
outputs() {
    local vplan dir=$2 i=0 j words
    vplan=$(realpath "$1")
    mkdir -p "$dir"
    while read -r words; do
        i=$((i + 1))
        # shellcheck disable=SC2086
        "$vplan" $words > "$dir/estimate$i" 2>&1 || echo "exit $?" >> "$dir/estimate$i"
        "$vplan" ${words/ / --json } > "$dir/estimate$i.json" 2>&1 || echo "exit $?" >> "$dir/estimate$i.json"
    done <<E
estimate gpt2
estimate gpt2-xl --device h200 --micro-batch 3 --recompute full
estimate gpt2 --device 4090 --budget 7.5GiB --max micro-batch --loss chunked
estimate $work/odd.json --seq 300 --optimizer sgd
estimate gpt2-medium --device t4 --budget 1.25GB
estimate gpt2-tiny --max seq --budget 1.5MB
models
devices h200
E
    i=0
    while read -r words; do
        i=$((i + 1))
        # shellcheck disable=SC2086
        "$vplan" plan $words -o "$dir/plan$i.json" > "$dir/plan$i" 2>&1 || echo "exit $?" >> "$dir/plan$i"
        sed -i "s|$dir|DIR|" "$dir/plan$i"
        # shellcheck disable=SC2086
        "$vplan" plan $words --json > "$dir/plan$i.answer" 2> "$dir/plan$i.err" || echo "exit $?" >> "$dir/plan$i.err"
        document "$dir/plan$i.answer"
        [ -f "$dir/plan$i.json" ] || continue
        for j in "" --buffers --program --json "--buffers --json" "--program --json"; do
            # shellcheck disable=SC2086
            (cd "$dir" && "$vplan" explain "plan$i.json" $j) > "$dir/explain$i${j// /}" 2>&1 || echo "exit $?" >> "$dir/explain$i${j// /}"
        done
    done <<E
gpt2-tiny --device cpu --budget 100MB --seq 64 --global-batch 4
gpt2-tiny --device cpu --budget 2.5MiB --seq 128 --global-batch 8
gpt2-tiny --device cpu --budget 1.5MB --seq 128 --global-batch 8
$work/odd.json --device cpu --budget 12.5MB --seq 600 --global-batch 6 --recipe $work/recipe.json --loss chunked:256
gpt2 --device t4 --budget 7.5GiB --seq 512 --global-batch 16
gpt2-xl --device h200 --seq 1024 --global-batch 8 --recompute mlp
gpt2 --device t4 --budget 1.2GiB --seq 512 --global-batch 16 --host-memory 8GiB --within 0
gpt2-medium --device t4 --budget 500MiB --seq 512 --global-batch 16 --host-memory 8GiB
E
}

# same NAME DIR: the files of DIR against the first ones
same() {
    local f
    [ "$(ls "$work/first")" = "$(ls "$2")" ] && ok || bad "$1: other files were written"
    for f in "$work/first"/*; do
        cmp -s "$f" "$2/$(basename "$f")" && ok || { diff "$f" "$2/$(basename "$f")" > "$work/diff"; bad "$1: $(basename "$f") differs" "$work/diff"; }
    done
}

unset LC_ALL LANG LC_NUMERIC LOCPATH LANGUAGE
LC_ALL=C outputs "$build/vplan" "$work/first"
n=$(ls "$work/first" | wc -l)
[ "$n" -ge 60 ] && ok || bad "only $n outputs were made"
grep -l "^exit" "$work/first"/* | grep -v 'estimate\(3\|5\|6\)\|plan[38]' > "$work/bad" && bad "commands failed that should not" "$work/bad" || ok
grep -q '"timing"' "$work/first"/plan1.answer && bad "timing was not taken out" || ok
LC_ALL=C outputs "$build/vplan" "$work/again"
same "a second time" "$work/again"

# ---- cores: what a second one may do is the same ----
if [ "$(nproc)" -gt 1 ] && command -v taskset > /dev/null; then
    core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
    LC_ALL=C taskset -c "$core" bash -c "$(declare -f outputs document); work='$work'; outputs '$build/vplan' '$work/core'"
    same "on one core" "$work/core"
else
    skip "one core, or no taskset to take the others away"
fi

# ---- locales ----
if LC_ALL=C.UTF-8 locale charmap 2> /dev/null | grep -q UTF-8; then
    LC_ALL=C.UTF-8 LANGUAGE=de outputs "$build/vplan" "$work/utf8"
    same "in C.UTF-8" "$work/utf8"
else
    skip "no locale C.UTF-8"
fi
comma=$(locale -a 2> /dev/null | while read -r l; do [ "$(LC_ALL=$l locale decimal_point 2> /dev/null)" = , ] && echo "$l" && break; done)
if [ -z "$comma" ] && mkdir "$work/locales" && localedef -i de_DE -f UTF-8 "$work/locales/de_DE.UTF-8" > /dev/null 2>&1; then
    export LOCPATH=$work/locales
    comma=de_DE.UTF-8
fi
if [ -n "$comma" ] && [ "$(LC_ALL=$comma locale decimal_point 2> /dev/null)" = , ]; then
    LC_ALL=$comma LANGUAGE=de outputs "$build/vplan" "$work/comma"
    same "in $comma, which writes 1,5" "$work/comma"
    LC_ALL=$comma "$build/vplan" run "$work/first/plan1.json" --steps 1 --json > "$work/run.json" 2> "$work/err"
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["steps"][0]["loss"] > 1' "$work/run.json" 2> "$work/err" && ok || bad "run in $comma" "$work/err"
else
    skip "no locale with a decimal comma, and localedef could not make one"
fi
unset LOCPATH

# ---- the other compiler, which does not optimise: faster to build, and further away ----
case $(basename "${CC:-gcc}") in *clang*) other=gcc ;; *) other=clang ;; esac
if ! command -v "$other" > /dev/null; then
    skip "no $other here to build vplan with"
else
    targets=$work/other/vplan
    [ -e "$build/vplan-solve" ] && targets="$targets $work/other/vplan-solve"
    # shellcheck disable=SC2086
    if env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s BUILD="$work/other" CC=$other OPT=-O0 SANITIZE= $targets > "$work/log" 2>&1; then
        cp -R "$build/recordings" "$work/other/" # data beside the program
        LC_ALL=C outputs "$work/other/vplan" "$work/compiler"
        same "built by $other" "$work/compiler"
    else
        bad "$other does not build vplan" "$work/log"
    fi
fi

# ---- threads, which do not spin: on a busy machine spinning ones wait for each other through whole time slices ----
export OMP_WAIT_POLICY=passive
sha() { "$build/vplan" run "$1" --steps 2 --hash --json "${@:2}" 2> "$work/err" | python3 -c 'import json, sys; print(json.load(sys.stdin)["parameters_sha256"])'; }
for plan in 1 2 4; do
    one=$(sha "$work/first/plan$plan.json" --threads 1)
    [ ${#one} = 64 ] && ok || bad "plan $plan does not run" "$work/err"
    for threads in 2 3; do
        [ "$(sha "$work/first/plan$plan.json" --threads $threads)" = "$one" ] && ok || bad "plan $plan: other parameters with $threads threads"
    done
    [ "$(sha "$work/first/plan$plan.json")" = "$one" ] && ok || bad "plan $plan: other parameters with the default threads"
    [ "$(sha "$work/first/plan$plan.json" --threads 2 --seed 99)" != "$one" ] && ok || bad "plan $plan: another seed gives the same parameters"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
