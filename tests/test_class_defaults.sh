#!/bin/bash
# tests/test_class_defaults.sh: what a config.json leaves out is what transformers' own class says. tests/golden/families/configs/default__*.json are the
# classes written out by transformers; a config with sizes only must become the same plan, windows, norms and dropouts included. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
BUILD=${BUILD:-build} WORK=$work python3 - <<'P'
import glob, json, os, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = os.environ["BUILD"] + "/vplan", os.environ["WORK"]
N_FAMILIES, N_BLOCKS = 13, 2
SEQ = 8192  # longer than any class's window


def longest(full):
    """A sequence that the class has positions for; roberta's begin behind the padding's."""
    n = min(SEQ, full.get("n_positions") or full.get("max_position_embeddings") or SEQ)
    return n - n % 64 - 64 * (full["model_type"] == "roberta")


def plan(config, seq):
    """(the plan but for its copy of the config, None) or (None, the error)"""
    with open(work + "/config.json", "w") as f:
        json.dump(config, f)
    r = subprocess.run([vplan, "plan", work + "/config.json", "--device", "h200", "--seq", str(seq), "--global-batch", "1", "--recompute", "none", "--loss", "full", "--precision", "fp32",
                        "--within", "0", "-o", work + "/plan.json", "--force", "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if r.returncode != 0:
        return None, json.loads(r.stdout).get("error", {"field": None, "message": r.stdout})
    with open(work + "/plan.json") as f:
        document = json.load(f)
    for member in ("digest", "assumptions"):  # the second lists what was left out
        document.pop(member, None)
    document["model"].pop("config")
    return document, None


def sizes_only(full, seq):
    """The least config that is taken: what is missing is asked for by name."""
    config = {key: full[key] for key in ("model_type", "architectures") if key in full}
    for _ in range(len(full)):
        document, error = plan(config, seq)
        if document or error["field"] not in full or error["field"] in config:
            return config, document, error
        config[error["field"]] = full[error["field"]]
    return config, None, "every key is asked for"


def differences(a, b, at=""):
    if isinstance(a, dict) and isinstance(b, dict):
        return [d for key in sorted(set(a) | set(b)) for d in differences(a.get(key), b.get(key), at + "." + key)]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, (x, y) in enumerate(zip(a, b)) for d in differences(x, y, "%s[%d]" % (at, i))]
    return [] if a == b else [(at, a, b)]


paths = sorted(glob.glob("tests/golden/families/configs/default__*.json"))
ok(len(paths) == N_FAMILIES, "a written class of each family", paths)
for path in paths:
    with open(path) as f:
        full = json.load(f)
    family = full["model_type"]
    full["n_layer" if "n_layer" in full else "num_hidden_layers"] = N_BLOCKS
    if full.get("layer_types"):
        full["layer_types"] = full["layer_types"][:N_BLOCKS]
    seq = longest(full)
    whole, error = plan(full, seq)
    ok(whole, family + ": the class written out", error)
    config, least, error = sizes_only(full, seq)
    ok(least, family + ": its sizes alone", error)
    ok(len(config) <= 9, family + ": few keys are sizes", sorted(config))
    if whole and least:
        wrong = differences(whole, least)
        ok(not wrong, family + ": what is left out is the class's own", wrong[:3])
    # the comparison sees what it is for: a window, an epsilon, a rotary base
    for key, other in ("sliding_window", 64), ("rms_norm_eps", 3e-3), ("layer_norm_eps", 3e-3), ("layer_norm_epsilon", 3e-3), ("rope_theta", 77.0):
        if key in full and full[key] and whole and not (family == "qwen2" or family == "qwen3"):  # theirs is off by use_sliding_window
            changed, error = plan(dict(full, **{key: other}), seq)
            ok(not changed or differences(whole, changed), family + ": another %s is another plan" % key, error)
    # what a plan says of choices that a class's default does not make
    for key, other in {"gpt2": [("scale_attn_weights", False)], "opt": [("_remove_final_layer_norm", True)]}.get(family, ()):
        changed, error = plan(dict(full, **{key: other}), seq)
        ok(changed and differences(whole, changed), family + ": another %s is another plan" % key, error)
    weights = [p for t in (whole or {"templates": []})["templates"] for p in t["parameters"] if p["name"].endswith("norm.weight")]
    if family in ("gemma", "llama"):  # gemma's norms multiply by 1 + weight
        ok(weights and all(p["init"] == {"gemma": "zeros", "llama": "ones"}[family] for p in weights), family + ": how norms begin", weights[:2])
    if family == "bert":  # [MASK] is token 103 of its vocabulary, the last one of a smaller
        masks = [plan(dict(full, vocab_size=n), seq)[0]["model"]["mask_token"] for n in (30522, 104, 64)]
        ok(masks == [103, 103, 63], "bert: the token that masks", masks)
finish()
P
