#!/bin/bash
# tests/test_plan_mutations.sh: plan files with something changed in them. With their digest none is run. With --unsigned one is refused, or trains
# the very bits that it trained before; a recipe may be changed by hand, as long as the whole plan says the same. The last line counts.
#     VPLAN_MUTATIONS=3000    that many (240; make check-long 3000)
#     VPLAN_MUTATIONS_SEED=2  others
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "${VPLAN_MUTATIONS:-${VPLAN_LONG:+3000}}" "${VPLAN_MUTATIONS_SEED:-1}" <<'P'
import collections, copy, json, os, random, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = sys.argv[1:3]
n_mutations, rng = int(sys.argv[3] or 240), random.Random(int(sys.argv[4]))

CORPUS = "tests/fuzz/corpus/config/%s.json"

# What a plan is made of that may train otherwise: families, recipes, micro-steps, copies.
PLANS = {
    "gpt2": ("good-gpt2", ["--global-batch", "4", "--micro-batch", "2", "--recompute", "attention"], {"dropout": 0.1}),
    "llama": ("llama-scaled", ["--global-batch", "4", "--micro-batch", "2"], {"precision": "bf16-mixed", "optimizer": {"name": "muon"}}),
    "bert": ("bert", ["--global-batch", "3"], {"optimizer": {"name": "adafactor"}, "clip_norm": 0.1}),
    "gemma2": ("gemma2", ["--global-batch", "2", "--recompute", "full"], {"precision": "bf16", "optimizer": {"name": "lion"}}),
    "gpt_neox": ("gpt_neox", ["--global-batch", "2", "--loss", "chunked:256"], {"optimizer": {"name": "adamw-8bit"}}),
    "offload": ("qwen3", ["--global-batch", "3", "--micro-batch", "1", "--host-memory", "64MiB", "--offload", "params+activations"], {"optimizer": {"name": "sgd-momentum"}}),
    "host-step": ("good-gpt2", ["--global-batch", "3", "--micro-batch", "1", "--host-memory", "64MiB", "--offload", "host-step"], {"precision": "bf16-mixed"}),
}


def run(path, *words):
    """Exit code, and the digest of what was trained or what it says."""
    p = subprocess.run([vplan, "run", path, "--steps", "2", "--hash", "--json", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    try:
        said = json.loads(p.stdout)
    except ValueError:
        return p.returncode, p.stderr.decode("utf-8", "replace")
    return p.returncode, said["error"]["message"] if "error" in said else said["parameters_sha256"]


def plan(name, model, *words, recipe=None):
    """Its path; None: it could not be planned."""
    path = work + "/" + name
    if recipe is not None:
        with open(work + "/recipe", "w") as f:
            json.dump(dict(recipe, schema_version=1), f)
        words += "--recipe", work + "/recipe"
    p = subprocess.run([vplan, "plan", model, "-o", path, "--force", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return path if ok(p.returncode == 0, "%s is planned" % name, p.stderr) else None


def write(doc):
    with open(work + "/changed", "w") as f:
        json.dump(doc, f)
    return work + "/changed"


def places(value, path=()):
    """Every value of a document but the whole, with where it lies."""
    for k, v in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield path + (k,)
        yield from places(v, path + (k,))


def at(doc, path):
    for k in path:
        doc = doc[k]
    return doc


def kind_of(path):
    return ".".join(str(k) for k in path if not isinstance(k, int))


def changed(value, others):
    """Another value in place of this; others: the values that stand under the same keys elsewhere."""
    if others and rng.random() < 0.3:
        return rng.choice(others)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, 2 * value, value // 2, 0, 1, value + 256, value - 256, -value])
    if isinstance(value, float):
        return rng.choice([value * 1.5, value / 3, 0.0, 1.0, -value, value + 1e-3])
    if isinstance(value, str):
        if value[:1] in "bpgwmvPGf" and value[1:2].isdigit():  # an argument of a step
            n = int("".join(c for c in value[1:] if c.isdigit()) or 0)
            return rng.choice([value[0] + str(n + 1), value[0] + str(max(0, n - 1)), "-", value + "+256", rng.choice("bpgwmvPGf") + value[1:]])
        return value + "x"
    if isinstance(value, list) and value:
        new = list(value)
        i = rng.randrange(len(new))
        j = rng.randrange(len(new))
        what = rng.randrange(3)
        if what == 0:
            del new[i]
        elif what == 1:
            new.insert(j, new[i])
        else:
            new[i], new[j] = new[j], new[i]
        return new
    return None


def mutate(doc, by_kind):
    """A copy with one to three changes, and what they are. Where values stand is drawn first by their kind, so that rare ones come as often."""
    doc, said = copy.deepcopy(doc), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind = rng.choice(sorted(by_kind))
        path = rng.choice(by_kind[kind])
        try:
            old, home = at(doc, path), at(doc, path[:-1])
        except (KeyError, IndexError, TypeError):  # an earlier change took it away
            continue
        if rng.random() < 0.06:
            del home[path[-1]]
            said.append("%s removed" % (path,))
            continue
        new = changed(old, [at(original, p) for p in by_kind[kind]])
        if new is not None and new != old:
            home[path[-1]] = new
            said.append("%s: %s -> %s" % (path, str(old)[:80], str(new)[:80]))
    return doc, said


holes, verdicts = [], collections.Counter()
for name, (config, words, recipe) in PLANS.items():
    path = plan(name, CORPUS % config, "--device", "cpu", "--budget", "64MiB", "--seq", "8", *words, recipe=recipe)
    if not path:
        continue
    code, bits = run(path)
    ok(code == 0 and len(bits) == 64, name + " runs", bits)
    original = json.load(open(path))
    original.pop("digest")
    got = run(write(original), "--unsigned")
    ok(got == (0, bits), name + " runs without its digest, with --unsigned", got)
    by_kind = collections.defaultdict(list)
    for where in places(original):
        if where[0] not in ("recipe",):  # what is trained, which people may change
            by_kind[kind_of(where)].append(where)
    n_signed, n_done = 0, 0
    while n_done < n_mutations // len(PLANS):
        doc, said = mutate(original, by_kind)
        if not said or doc == original:
            continue
        n_done += 1
        code, got = run(write(doc), "--unsigned")
        verdicts["the same bits" if code == 0 and got == bits else "other bits" if code == 0 else "exit %d" % code] += 1
        if code == 0 and got != bits:
            holes.append("%s: %s" % (name, "; ".join(said)))
        ok(code in (0, 4, 5), "%s: %s" % (name, said), (code, got[:200]))  # 5: for another device than this
        if n_signed < 4:  # with the digest it had, and with none
            n_signed += 1
            for digest in (json.load(open(path))["digest"], None):
                code, got = run(write(dict(doc, **({"digest": digest} if digest else {}))))
                ok(code == 4, "%s, signed: %s" % (name, said), (code, got[:200]))
ok(not holes, "none trains other bits", "\n".join(["%d do:" % len(holes)] + holes))
if os.environ.get("VPLAN_MUTATIONS_ALONE"):  # tests/sanitize.sh
    print("%d mutations, seed %s: %s" % (sum(verdicts.values()), sys.argv[4], dict(verdicts)))
    finish()
print("%d mutations of %d plans: %s" % (sum(verdicts.values()), len(PLANS), ", ".join("%d %s" % (n, v) for v, n in verdicts.most_common())))

# ---- a recipe changed by hand, with all that says the same ----
path = plan("by-hand", CORPUS % "good-gpt2", "--device", "cpu", "--budget", "64MiB", "--seq", "8", "--global-batch", "2", recipe={"dropout": 0.1, "clip_norm": 1.0})
code, bits = run(path)
original = json.load(open(path))


def by_hand(what, change, follows=True):
    doc = copy.deepcopy(original)
    change(doc)
    code, got = run(write(doc), "--unsigned")
    ok(code == (0 if follows else 4) and got != bits, what, (code, got))


def all_steps(doc, change):
    for program in doc["buckets"][0]["programs"]:
        for phase in ("forward", "backward", "norm"):
            for step in program[phase]:
                change(step)


def drop(doc):
    doc["recipe"]["dropout"] = doc["settings"]["dropout"] = 0.25
    all_steps(doc, lambda step: step.update(p=0.25) if step.get("p") else None)


def clip(doc):
    doc["recipe"]["clip_norm"] = 0.01
    all_steps(doc, lambda step: step.update(clip_norm=0.01) if "clip_norm" in step else None)


def forget(doc):
    for program in doc["buckets"][0]["programs"]:
        for step in program["backward"]:
            step.pop("accumulate", None)


by_hand("another learning rate", lambda doc: doc["recipe"]["optimizer"].update(lr=0.5))
by_hand("another seed", lambda doc: doc["recipe"].update(seed=7))
by_hand("another clip norm, in its step too", clip)
by_hand("another dropout, in every step too", drop)
by_hand("another dropout, in the recipe alone", lambda doc: doc["recipe"].update(dropout=0.25), follows=False)
by_hand("gradients that no micro-step adds to", forget, follows=False)
by_hand("another epsilon, in every step but not in the config", lambda doc: all_steps(doc, lambda step: step.update(eps=0.1) if "eps" in step else None), follows=False)

# ---- a slot that no step uses: of two blocks a third one ----
path = plan("streamed", CORPUS % "good-gpt2", "--device", "cpu", "--budget", "64MiB", "--seq", "8", "--global-batch", "2", "--host-memory", "1GiB", "--offload", "params")
doc = json.load(open(path))
doc.pop("digest")
ok({b["name"].split()[1] for b in doc["fixed"] if b["name"].startswith("slot ")} == {"1", "2"}, "two blocks have two slots", doc["fixed"])
doc["fixed"].append(dict(doc["fixed"][-1], name="slot 3 parameters 1", offset_bytes=0, bytes=4))
code, got = run(write(doc), "--unsigned")
ok(code == 4 and "is not what the plan's own model and recipe make" in got, "a slot that no step uses", (code, got))

# ---- whatever vplan plans, it would make again; a card's plan is refused here for want of the card, and not before ----
WIDE = [(CORPUS % name, "--seq", "8", "--global-batch", "2") for name in ("bert", "gemma", "gemma2", "good-bert-decoder", "good-bert-sequence", "good-gpt2-untied", "good-roberta-model", "gpt_neox",
                                                                         "llama-dynamic", "llama-linear", "llama-yarn", "mistral", "olmo2", "opt", "phi3", "qwen2", "qwen3", "roberta")]
WIDE += [("gpt2-tiny", "--seq", "64", "--global-batch", "7"), ("gpt2-tiny", "--seq", "64", "--global-batch", "8", "--micro-batch", "2", "--attention", "math", "--recompute", "mlp"),
         ("gpt2", "--device", "t4", "--seq", "1024", "--global-batch", "12", "--recompute", "segments:4"), ("gpt2", "--device", "h100", "--seq", "1024", "--global-batch", "32", "--budget", "6GiB", "--loss", "chunked:1024"),
         ("qwen2.5-0.5b", "--device", "4090", "--seq", "1024", "--global-batch", "15", "--optimizer", "muon"), ("gpt2-xl", "--device", "4090", "--seq", "1024", "--global-batch", "8", "--host-memory", "40GiB"),
         ("llama-3.1-8b", "--device", "4090", "--seq", "1024", "--global-batch", "8", "--host-memory", "200GiB", "--precision", "bf16-mixed"), ("gpt2", "--device", "h200", "--seq", "512", "--global-batch", "16", "--precision", "bf16", "--optimizer", "adafactor")]
for i, words in enumerate(WIDE):
    path = plan("wide", *words, *(() if "--device" in words else ("--device", "cpu", "--budget", "64MiB")))
    if not path:
        continue
    doc = json.load(open(path))
    doc.pop("digest")
    p = subprocess.run([vplan, "run", write(doc), "--steps", "1", "--unsigned", "--backend", "/none.so" if "--device" in words else "cpu"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    ok(p.returncode == (5 if "--device" in words else 0), "made again: " + " ".join(words), (p.returncode, p.stderr[-300:]))
finish()
P
