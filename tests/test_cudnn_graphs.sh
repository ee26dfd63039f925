#!/bin/bash
# tests/test_cudnn_graphs.sh: attention's cuDNN graphs. With a C compiler alone: their mathematics, interpreted, against float64. Where
# cuDNN is installed (VPLAN_CUDNN names its library, else the loader finds it), and no GPU needed: that it has an engine for every
# attention of every family on six architectures, that plan/workspace.c gives it what it asks for, and that its choice of a kernel
# does not depend on how many samples there are. VPLAN_LONG asks about ten times as many random shapes. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${BUILD:-build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL: $1"; [ -z "${2:-}" ] || sed 's/^/    /' "$2" | tail -20; }
skip() { skipped=$((skipped + 1)); echo "SKIP: $1"; }
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" = 0 ]; exit; }

cc() { ${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -ffp-contract=off -fno-strict-aliasing -I. -Itests "$@"; }
graph="kernels/cuda/attention_cudnn_graph.c kernels/cuda/cudnn_api.c"

# ---- the numbers of cudnn_api.h ----
header=""
for dir in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include /usr/include/x86_64-linux-gnu; do
    [ -n "$header" ] || { [ -f "$dir/cudnn_graph.h" ] && header=$dir; }
done
if [ -n "$header" ]; then
    if cc -isystem "$header" -isystem "${CUDA_HOME:-/usr/local/cuda}/include" -fsyntax-only tests/cuda_emulator/cudnn_values.c > "$work/out" 2>&1; then ok
    else bad "cudnn_api.h has other numbers than $header/cudnn_graph.h" "$work/out"; fi
else
    skip "cudnn_graph.h is not installed: the numbers of cudnn_api.h are not compared"
fi

# ---- the graphs, interpreted ----
if cc -fPIC -shared -o "$work/libcudnn_stand_in.so" tests/cuda_emulator/cudnn_stand_in*.c -lm > "$work/out" 2>&1 &&
   cc -fopenmp -isystem tests/cuda_emulator/include -o "$work/check" tests/cuda_emulator/cudnn_check.c kernels/cuda/attention_cudnn.c $graph \
       "$build/reference.a" "$build/kernels.a" "$build/plan.a" "$build/base.a" -lopenblas -ljansson -lcmocka -ldl -lm > "$work/out" 2>&1; then
    VPLAN_CUDNN=$work/libcudnn_stand_in.so CMOCKA_MESSAGE_OUTPUT=TAP "$work/check" > "$work/out" 2>&1 ||
        [ "$(grep -c '^not ok' "$work/out")" != 0 ] || bad "the interpreted graphs: exit without a failed case" "$work/out"
    passed=$((passed + $(grep -c '^ok' "$work/out")))
    n=$(grep -c '^not ok' "$work/out")
    [ "$n" = 0 ] || { bad "interpreted graphs" "$work/out"; failed=$((failed + n - 1)); }
else
    bad "cudnn_check does not build" "$work/out"
fi

# ---- cuDNN itself ----
query=$work/vplan-cudnn-query
if ! cc -o "$query" kernels/cuda/cudnn_query.c $graph "$build/plan.a" "$build/base.a" -ljansson -ldl -lm > "$work/out" 2>&1; then
    bad "cudnn_query.c does not build" "$work/out"
    finish
fi
expect_exit() { # NAME CODE INPUT ARGUMENTS...: and something said
    local name=$1 code=$2 input=$3
    shift 3
    printf '%s' "$input" | "$query" "$@" > "$work/out" 2>&1
    local got=$?
    if [ $got = "$code" ] && [ -s "$work/out" ]; then ok; else bad "$name: exit $got, expected $code" "$work/out"; fi
}
VPLAN_CUDNN=$work/none.so expect_exit "without cuDNN" 5 ""
VPLAN_CUDNN=$build/vplan expect_exit "a file that is no library" 5 ""
expect_exit "an unknown card" 2 "" --sm 75
expect_exit "no card" 2 "" --card
"$query" < /dev/null > "$work/out" 2>&1
case $? in
0) ;;
5) skip "$(head -c 300 "$work/out" | tr '\n' ' ')"; finish ;;
*) bad "vplan-cudnn-query: exit $?" "$work/out"; finish ;;
esac
expect_exit "a call of another kernel" 2 "linear_fwd 1 2 3 1"
expect_exit "too few numbers" 2 "attention_fwd 1 128 4"
expect_exit "heads that are no multiple" 2 "attention_fwd 1 128 4 3 64 0 1 0"

python3 - "$query" "${VPLAN_LONG:-}" > "$work/out" <<'P'
import glob, json, random, re, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

query, long = sys.argv[1], sys.argv[2] != ""
PACKED, PER_HEAD, APART = 0, 1, 2
FAMILIES = {  # model_type: layout, causal
    "gpt2": (PACKED, 1), "phi3": (PACKED, 1), "gpt_neox": (PER_HEAD, 1), "bert": (APART, 0), "roberta": (APART, 0), "opt": (APART, 1), "llama": (APART, 1),
    "mistral": (APART, 1), "qwen2": (APART, 1), "qwen3": (APART, 1), "gemma": (APART, 1), "gemma2": (APART, 1), "olmo2": (APART, 1),
}


def shown(rows):
    return "\n    ".join(["%d rows" % len(rows), *map(json.dumps, rows[:10])])


def ask(calls):
    out = subprocess.run([query], input="".join("%s %s\n" % (k, " ".join(map(str, c))) for c in calls for k in ("attention_fwd", "attention_bwd")),
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def look(name, calls):
    rows = ask(calls)
    ok(len(rows) == 12 * len(calls), name + ": a row for each call and card", shown(rows))
    cudnn = [r for r in rows if r["planned"] == "cudnn"]
    ok(all(r["supported"] for r in cudnn), name + ": what is planned for cuDNN is refused by it", shown([r for r in cudnn if not r["supported"]]))
    small = [r for r in cudnn if r["supported"] and r["workspace_bytes"] > r["planned_bytes"]]
    ok(not small, name + ": cuDNN asks for more than plan/workspace.c gives", shown(small))
    exact = sum(r["supported"] and r["workspace_bytes"] == r["planned_bytes"] for r in cudnn)
    print("# %s: %d rows, %d for cuDNN, %d of them to the byte" % (name, len(rows), len(cudnn), exact))
    return rows


# every model of the zoo that vplan runs; some at an odd and at a long sequence
shapes = set()
for path in sorted(set(glob.glob("models/zoo/*.c")) - {"models/zoo/zoo_recorded.c", "models/zoo/zoo_seeing.c", "models/zoo/zoo_encoders.c"}):
    for text in re.findall(r'\{[^{}]*"model_type"[^{}]*\}', open(path).read().replace('\\"', '"')):
        value = lambda *keys: next((m[1] for m in (re.search(r'"%s"\s*:\s*([\w.]+)' % k, text) for k in keys) if m), None)
        family = re.search(r'"model_type"\s*:\s*"(\w+)"', text)[1]
        heads, kv, d = value("num_attention_heads", "n_head"), value("num_key_value_heads"), value("head_dim")
        if family not in FAMILIES or heads is None:
            ok(False, "%s: nobody says how %s lays out its heads" % (path, family))
            continue
        heads, window = int(heads), value("sliding_window") or "null"
        shapes.add((heads, int(kv or heads), int(d or int(value("hidden_size", "n_embd")) // heads), *FAMILIES[family], 0 if window == "null" else int(window)))
ok(len(shapes) > 25, "only %d shapes in the zoo" % len(shapes))
zoo = look("models", [(b, s, h, kv, d, layout, causal, w) for i, (h, kv, d, layout, causal, w) in enumerate(sorted(shapes))
                      for b, s in (((8, 1024), (1, 4096), (3, 197)) if long or i % 5 == 0 else ((8, 1024),))])
ok(all(r["planned"] == "cudnn" for r in zoo if r["head_dim"] <= 128 and r["head_dim"] % 8 == 0), "a model of heads up to 128, in eights, is not planned for cuDNN",
   shown([r for r in zoo if r["planned"] != "cudnn" and r["head_dim"] <= 128 and r["head_dim"] % 8 == 0]))

# masks, sharing and head dims by chance; the seed is printed with a failure's rows
seed = 20261121
chance = random.Random(seed)
calls = []
for _ in range(600 if long else 40):
    group = chance.choice([1, 1, 2, 3, 4, 7, 8])
    kv, s = chance.choice([1, 2, 3, 5, 8, 12]), chance.randint(2, chance.choice([20, 300, 3000, 40000]))
    calls.append((chance.choice([1, 2, 3, 8, 33, 128]), s, kv * group, kv, 8 * chance.randint(1, chance.choice([8, 16, 32])), chance.choice([PACKED, APART] if group > 1 else [PACKED, PER_HEAD, APART]),
                  chance.randint(0, 1), chance.choice([0, 0, 1, 2, s // 2, s - 1, s, 128, 4096])))
look("chance, seed %d" % seed, calls)

# one kernel, whatever the number of samples and heads: chunks and micro-batches change no bit
rows = ask([(b, s, h, h, d, PACKED, causal, 0) for s in (64, 1024, 4096) for d in (64, 128) for causal in (0, 1) for b, h in ((1, 1), (64, 12))])
kernels = {}
for r in rows:
    kernels.setdefault((r["sm"], r["kernel"], r["seq"], r["head_dim"], r["causal"]), set()).add((r.get("engine"), r.get("engine_kernel")))
vary = [k for k in kernels if len(kernels[k]) > 1]
ok(kernels and not vary, "the kernel depends on the number of samples: %s" % vary[:5])

finish()
P
grep -v '^[0-9]* passed, ' "$work/out"
read -r p _ f _ <<< "$(tail -n 1 "$work/out" | grep '^[0-9]* passed, ')"
passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0}))
[ -n "${p:-}" ] || bad "the questions to cuDNN ended early"
finish
