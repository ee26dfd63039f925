#!/bin/bash
# tests/test_init.sh: `vplan run --init` of checkpoints that hold more or less than the plan: what is there is read bit for bit, under a prefix or
# without; a head that is not there is drawn as without --init, and named; what is not used is named; anything else is refused. The checkpoints
# are those of tests/golden, cut and renamed. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
python3 - "${BUILD:-build}/vplan" "$work" <<'P'
import json, os, struct, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = sys.argv[1:]
PREFIX = {"bert": "bert.", "roberta": "roberta.", "llama": "model.", "gpt2": "transformer.", "gpt_neox": "gpt_neox."}


def read(folder):
    """Each tensor: dtype, shape, bytes."""
    data = open(folder + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items() if k != "__metadata__"}


def write(name, tensors):
    folder, at, header = "%s/%s" % (work, name), 0, {}
    os.makedirs(folder)
    for k, (dtype, shape, data) in tensors.items():
        header[k] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
    return folder


def run(plan, *words):
    p = subprocess.run([vplan, "run", plan, "--steps", "1", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return p.returncode, p.stdout, p.stderr


def plan_of(golden, name=None, options=(), **changed):
    """A plan of a golden's model, and what is drawn for it without --init."""
    name = name or golden
    config, path = "%s/%s-config.json" % (work, name), "%s/%s-plan.json" % (work, name)
    with open(config, "w") as f:
        json.dump(dict(json.load(open("tests/golden/%s/config.json" % golden)), **changed), f)
    words = [vplan, "plan", config, "--device", "cpu", "--seq", "16", "--global-batch", "2", "--budget", "100MB", "-o", path, *options]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    code, _, err = run(path, "--save-initial", "%s/%s-drawn" % (work, name))
    ok(code == 0, name + " runs", err)
    return path, read("%s/%s-drawn" % (work, name))


def without(tensors, *parts):
    return {k: v for k, v in tensors.items() if not any(p in k for p in parts)}


def stripped(tensors, prefix):
    return {k[len(prefix):]: v for k, v in tensors.items() if k.startswith(prefix)}


def vector(n):
    return ("F32", [n], struct.pack("<%df" % n, *range(n)))


def loads(name, plan, tensors, want, drawn=(), unused=(), said=()):
    """The folder gives exactly the parameters `want`; drawn and unused are named in JSON, and `said` for people."""
    folder, saved = write(name, tensors), "%s/%s-saved" % (work, name)
    code, out, err = run(plan, "--init", folder, "--save-initial", saved, "--json")
    if not ok(code == 0, name, err):
        return
    got = read(saved)
    wrong = sorted(k for k in set(got) | set(want) if got.get(k) != want.get(k))
    ok(not wrong, name + ": every parameter has its bits", wrong)
    init = json.loads(out)["init"]
    ok(sorted(init["drawn"]) == sorted(drawn) and sorted(init["unused"]) == sorted(unused), name + ": what was drawn and what not used", init)
    code, out, err = run(plan, "--init", folder)
    lines = [line for line in err.splitlines() if line.startswith("--init: ")]
    told = list(said) or ["--init: not there, drawn by the family's rule: " + k for k in sorted(drawn)] + ["--init: not used: " + k for k in sorted(unused)]
    ok(code == 0 and lines == told, name + ": the same for people", lines)


def refused(name, plan, tensors, field, text):
    code, out, err = run(plan, "--init", write(name, tensors), "--json")
    e = json.loads(out).get("error", {})
    ok(code == 4 and e.get("field") == field and text in e.get("message", "") and text in err, name, (code, out[:500]))


code, out, err = run(plan_of("gpt2", "drawn-only")[0], "--json")
ok(code == 0 and json.loads(out)["init"] is None and "--init" not in err, "without --init there is nothing to tell", (out[-200:], err))

# ---- what is saved are the fp32 masters, not the bf16 that the kernels read; a learning rate of almost nothing moves neither ----
with open(work + "/still.json", "w") as f:
    json.dump({"schema_version": 1, "optimizer": {"name": "sgd", "lr": 1e-30, "weight_decay": 0.0}, "precision": "bf16-mixed"}, f)
plan, drawn = plan_of("llama", "mixed", ["--recipe", work + "/still.json"])
full = read("tests/golden/llama")
ok(any(data[at:at + 2] != b"\0\0" for dtype, _, data in full.values() if dtype == "F32" for at in range(0, len(data), 4)), "the checkpoint holds what bf16 cannot")
loads("mixed-init", plan, full, full)
code, out, err = run(plan, "--init", work + "/mixed-init", "--save", work + "/mixed-saved")
got = read(work + "/mixed-saved") if code == 0 else {}
ok(sorted(got) == sorted(full) and all(got[k] == full[k] for k in full), "after training the masters are saved, to the bit", (code, err[-300:], [k for k in full if got.get(k) != full[k]][:3]))

plan, drawn = plan_of("gpt2", "mixed-tied", ["--recipe", work + "/still.json"])
full = read("tests/golden/gpt2")
loads("mixed-copy", plan, {**full, "lm_head.weight": full["transformer.wte.weight"]}, full)  # a copy of what is tied is that of the masters

# ---- a classifier of samples, from the model alone, from a language model, from itself ----
plan, drawn = plan_of("bert_sequence")
full = read("tests/golden/bert_sequence")
head, pooler = ["classifier.bias", "classifier.weight"], ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]
masked = {k: v for k, v in read("tests/golden/bert").items() if k.startswith("cls.")}
base = without(full, "classifier.")
loads("all-there", plan, full, full)
loads("no-head", plan, base, {**full, **{k: drawn[k] for k in head}}, head)
loads("no-head-no-prefix", plan, stripped(base, "bert."), {**full, **{k: drawn[k] for k in head}}, head)
loads("another-head", plan, {**base, **masked, "cls.seq_relationship.bias": vector(2), "bert.embeddings.position_ids": vector(8)},
      {**full, **{k: drawn[k] for k in head}}, head, [*masked, "cls.seq_relationship.bias", "bert.embeddings.position_ids"])
loads("no-pooler", plan, {**without(base, "pooler."), **masked}, {**full, **{k: drawn[k] for k in head + pooler}}, head + pooler, masked)
code, out, err = run(plan, "--init", work + "/no-head", "--seed", "5", "--save-initial", work + "/seed-5")
again = read(work + "/seed-5")
ok(code == 0 and again["classifier.weight"] != drawn["classifier.weight"] and again["bert.pooler.dense.weight"] == full["bert.pooler.dense.weight"],
   "--seed draws another head", err)
refused("half-a-head", plan, without(full, "classifier.bias"), "classifier.bias", "no tensor classifier.bias, though classifier.weight of the same head is there")
refused("half-a-pooler", plan, without(full, "pooler.dense.bias"), "bert.pooler.dense.bias", "though bert.pooler.dense.weight of the same head is there")
refused("inner-missing", plan, without(full, "word_embeddings"), "bert.embeddings.word_embeddings.weight", "no tensor bert.embeddings.word_embeddings.weight")
refused("inner-besides", plan, {**full, "bert.encoder.layer.7.output.dense.bias": vector(4)}, "bert.encoder.layer.7.output.dense.bias", "belongs to no parameter of the plan")
refused("inner-besides-no-prefix", plan, {**stripped(base, "bert."), "encoder.layer.7.output.dense.bias": vector(4)}, "encoder.layer.7.output.dense.bias", "belongs to no parameter of the plan")
refused("inner-twice", plan, {**full, "bert.embeddings.LayerNorm.gamma": full["bert.embeddings.LayerNorm.weight"]}, "bert.embeddings.LayerNorm.gamma", "belongs to no parameter of the plan")
labels = len(full["classifier.bias"][2]) // 4
refused("other-labels", plan, {**full, "classifier.bias": vector(labels + 1)}, "classifier.bias", "another shape than the plan's parameter: [%d], not [%d]" % (labels + 1, labels))
refused("another-family", plan, read("tests/golden/gpt2"), "bert.embeddings.word_embeddings.weight", "no tensor bert.embeddings.word_embeddings.weight")

# ---- the model alone, from a model with a head ----
plan, _ = plan_of("bert_sequence", "bert-alone", architectures=["BertModel"])
loads("prefix-too-many", plan, full, stripped(full, "bert."), [], head)

# ---- language models: a head is drawn only where the files say nothing about it ----
for golden, file_head in ("llama", "lm_head.weight"), ("gpt_neox", "embed_out.weight"):
    plan, drawn = plan_of(golden)
    full = read("tests/golden/" + golden)
    base = without(full, file_head)
    want = {**base, "lm_head.weight": drawn["lm_head.weight"]}
    loads(golden + "-no-head-no-prefix", plan, stripped(base, PREFIX[golden]), want, ["lm_head.weight"])
    loads(golden + "-of-a-classifier", plan, {**base, "score.weight": vector(3)}, want, ["lm_head.weight"], ["score.weight"])
    refused(golden + "-tied", plan, base, "lm_head.weight", "no other head: there it is tied to the token table, the plan's is not (tie_word_embeddings)")
plan, _ = plan_of("llama_tied_rope3")
full = read("tests/golden/llama_tied_rope3")
loads("tied", plan, full, full)
loads("tied-no-prefix", plan, stripped(full, "model."), full)
loads("tied-stored-twice", plan, {**full, "lm_head.weight": full["model.embed_tokens.weight"]}, full)
plan, _ = plan_of("bert", "bert-untied", tie_word_embeddings=False)
refused("bert-tied", plan, read("tests/golden/bert"), "cls.predictions.decoder.weight", "is it tied there? The plan's is not (tie_word_embeddings)")

# ---- the masks of old GPT-2 files: one line for all blocks ----
plan, _ = plan_of("gpt2")
full = read("tests/golden/gpt2")
masks = {"h.%d.attn.%s" % (i, k): vector(4) for i in (0, 1) for k in ("bias", "masked_bias")}
loads("masks", plan, {**stripped(full, "transformer."), **masks}, full, [], masks,
      ["--init: not used: h.{}.attn.bias (x2)", "--init: not used: h.{}.attn.masked_bias (x2)"])
code, out, err = run(plan, "--init", write("many", {**full, **{"score.x%d" % i: vector(1) for i in range(40)}, "esc\x1b[31m": vector(1)}))
ok(code == 0 and "--init: not used: 9 more, named with --json\n" in err and "\x1b" not in err and "not used: esc\\x1b[31m\n" in err, "41 names, one of them strange", err)
finish()
P
