#!/usr/bin/env python3
"""tests/bad_input/make.py DIR VPLAN: the bad files of cases.tsv, made in DIR.

Each is a good file with one thing wrong, written here as that one change: small files stay readable, huge and binary ones
stay out of the repository. Good plans and good weights come from VPLAN itself."""
import copy
import json
import os
import shutil
import socket
import struct
import subprocess
import sys

out, vplan = sys.argv[1], sys.argv[2]
os.chdir(out)


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def dump(value):
    """One member a line, so that an error has a line to name."""
    return json.dumps(value, indent=1) + "\n"


def edited(text, old, new):
    assert text.count(old) == 1, (old, text.count(old))
    return text.replace(old, new)


# ---- config.json ----

GOOD = """{
  "model_type": "gpt2",
  "architectures": ["GPT2LMHeadModel"],
  "n_embd": 32,
  "n_layer": 2,
  "n_head": 2,
  "n_inner": 64,
  "n_positions": 128,
  "vocab_size": 256,
  "activation_function": "gelu_new",
  "layer_norm_epsilon": 1e-05,
  "initializer_range": 0.02,
  "scale_attn_weights": true,
  "tie_word_embeddings": true
}
"""


def config(name, old=None, new=None):
    write("config/%s.json" % name, edited(GOOD, old, new) if old else GOOD)


def width(name, value):
    config("width-" + name, '"n_embd": 32', '"n_embd": ' + value)


config("good")
write("config/empty.json", "")
write("config/blank.json", " \n\t\n ")
write("config/bom.json", b"\xef\xbb\xbf" + GOOD.encode())
write("config/utf16.json", GOOD.encode("utf-16"))
write("config/latin1.json", edited(GOOD, "gelu_new", "gel\xfc").encode("latin-1"))
write("config/cut-in-string.json", GOOD[:GOOD.index("gelu_new") + 4])
write("config/cut-in-number.json", GOOD[:GOOD.index("1e-05") + 2])
write("config/cut-after-comma.json", GOOD[:GOOD.index('  "n_head"')])
write("config/garbage-behind.json", GOOD + "}\n")
write("config/two-objects.json", GOOD + GOOD)
write("config/array.json", "[" + GOOD + "]")
write("config/string.json", '"gpt2"\n')
write("config/number.json", "42\n")
write("config/brackets.json", "[" * 100000 + "]" * 100000)
write("config/braces.json", '{"a":' * 100000 + "1" + "}" * 100000)
config("nearly-too-deep", '"n_layer": 2', '"other": ' + '{"a":' * 62 + "1" + "}" * 62 + ',\n  "n_layer": 2')
write("config/5mib.json", '{"model_type": "gpt2", "pad": "' + "x" * (5 << 20) + '"}')
config("duplicate", '"n_layer": 2', '"n_embd": 64,\n  "n_layer": 2')
config("duplicate-escaped", '"n_layer": 2', '"n\\u005fembd": 64,\n  "n_layer": 2')
config("width-missing", '  "n_embd": 32,\n', "")
config("layers-missing", '  "n_layer": 2,\n', "")
config("heads-missing", '  "n_head": 2,\n', "")
config("family-missing", '  "model_type": "gpt2",\n', "")
config("class-missing", '  "architectures": ["GPT2LMHeadModel"],\n', "")
for name, value in (("null", "null"), ("text", '"32"'), ("exact-real", "32.0"), ("real", "32.5"), ("negative", "-1"), ("zero", "0"),
                    ("1e400", "1e400"), ("2-63", "9223372036854775808"), ("2-64", "18446744073709551616"), ("infinity", "Infinity"),
                    ("nan", "NaN"), ("array", "[32]"), ("bool", "true"), ("leading-zero", "032"), ("hex", "0x20"), ("plus", "+32")):
    width(name, value)
config("heads-do-not-divide", '"n_head": 2', '"n_head": 5')
config("heads-zero", '"n_head": 2', '"n_head": 0')
config("heads-more-than-width", '"n_head": 2', '"n_head": 64')
config("head-too-wide", '"n_embd": 32', '"n_embd": 1024')
config("layers-1e9", '"n_layer": 2', '"n_layer": 1000000000')
config("layers-4097", '"n_layer": 2', '"n_layer": 4097')
write("config/product-overflows.json", edited(edited(edited(edited(GOOD, '"n_layer": 2', '"n_layer": 4096'), '"n_embd": 32', '"n_embd": 10000000'),
                                                     '"n_inner": 64', '"n_inner": 100000000'), '"n_head": 2', '"n_head": 100000'))
config("unused-infinity", '"n_layer": 2', '"rope_theta": Infinity,\n  "n_layer": 2')
config("unused-nan", '"n_layer": 2', '"rope_theta": -Infinity,\n  "other": NaN,\n  "n_layer": 2')
config("epsilon-infinity", "1e-05", "Infinity")
config("epsilon-nan", "1e-05", "NaN")
config("epsilon-minus-infinity", "1e-05", "-Infinity")
config("epsilon-negative", "1e-05", "-1e-05")
config("epsilon-text", "1e-05", '"1e-05"')
config("unknown-fields", '"n_layer": 2', '"rope_theta": 10000.0,\n  "text_config": {"n_embd": 64},\n  "num_key_value_heads": 1,\n  "n_layer": 2')
config("family-unknown", '"gpt2"', '"mamba3"')
config("family-number", '"gpt2"', "2")
config("family-case", '"gpt2"', '"GPT2"')
config("class-other", "GPT2LMHeadModel", "GPT2DoubleHeadsModel")
config("class-sequence", '"GPT2LMHeadModel"],', '"GPT2ForSequenceClassification"],\n  "id2label": {"0": "a", "1": "b", "2": "c"},')
config("class-one-label", '"GPT2LMHeadModel"],', '"GPT2ForSequenceClassification"],\n  "num_labels": 1,')
config("class-no-label", '"GPT2LMHeadModel"],', '"GPT2ForTokenClassification"],\n  "id2label": {},')
config("class-several-labels", '"GPT2LMHeadModel"],', '"GPT2ForSequenceClassification"],\n  "problem_type": "multi_label_classification",')
config("class-labels-differ", '"GPT2LMHeadModel"],', '"GPT2ForTokenClassification"],\n  "num_labels": 4,\n  "id2label": {"0": "a", "1": "b", "2": "c"},')
config("class-two", '["GPT2LMHeadModel"]', '["GPT2LMHeadModel", "GPT2LMHeadModel"]')
config("class-none", '["GPT2LMHeadModel"]', "[]")
config("class-text", '["GPT2LMHeadModel"]', '"GPT2LMHeadModel"')
config("tied-text", '"tie_word_embeddings": true', '"tie_word_embeddings": "false"')
config("tied-number", '"tie_word_embeddings": true', '"tie_word_embeddings": 0')
config("dtype-unknown", '"n_layer": 2', '"dtype": "float13",\n  "n_layer": 2')
config("dtype-disagrees", '"n_layer": 2', '"dtype": "float32",\n  "torch_dtype": "bfloat16",\n  "n_layer": 2')
config("dtype-agrees", '"n_layer": 2', '"dtype": "float32",\n  "torch_dtype": "float32",\n  "n_layer": 2')
config("auto-map", '"n_layer": 2', '"auto_map": {"AutoModel": "evil.Model"},\n  "n_layer": 2')
config("quantised", '"n_layer": 2', '"quantization_config": {"bits": 3},\n  "n_layer": 2')
config("activation-unknown", "gelu_new", "swiglu")
config("activation-escapes", "gelu_new", "\\u001b[31mred\\u202e")
config("activation-1mib", "gelu_new", "x" * (1 << 20))
config("family-escapes", '"gpt2"', '"\\u001b]0;title\\u0007\\u202egpt2"')
config("nul-in-value", "gelu_new", "gelu\\u0000new")
config("nul-in-key", '"n_layer": 2', '"n\\u0000x": 2,\n  "n_layer": 2')
config("raw-nul", "gelu_new", "gelu\x00new")
config("raw-control", "gelu_new", "gelu\nnew")
config("lone-surrogate", "gelu_new", "gelu\\ud800")
config("comment", '"n_layer": 2', '// two\n  "n_layer": 2')
config("trailing-comma", '"tie_word_embeddings": true', '"tie_word_embeddings": true,')
config("single-quotes", '"gelu_new"', "'gelu_new'")
config("cross-attention", '"n_layer": 2', '"add_cross_attention": true,\n  "n_layer": 2')
config("inverse-layer", '"n_layer": 2', '"scale_attn_by_inverse_layer_idx": true,\n  "n_layer": 2')
config("upcast", '"n_layer": 2', '"reorder_and_upcast_attn": true,\n  "n_layer": 2')
config("vocabulary-zero", '"vocab_size": 256', '"vocab_size": 0')
config("positions-zero", '"n_positions": 128', '"n_positions": 0')
config("inner-zero", '"n_inner": 64', '"n_inner": 0')
config("inner-null", '"n_inner": 64', '"n_inner": null')
config("vocabulary-300", '"vocab_size": 256', '"vocab_size": 300')
config("vocabulary-200", '"vocab_size": 256', '"vocab_size": 200')
os.makedirs("config/folder-without-config")
os.mkfifo("config/fifo")
s = socket.socket(socket.AF_UNIX)
s.bind("config/socket")
s.close()
os.symlink("self", "config/self")
os.symlink("nowhere", "config/dangling")
os.symlink("/dev/zero", "config/zero")
write("-dash.json", GOOD)

# families whose sizes are checked in one place
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128,
        "max_position_embeddings": 64, "type_vocab_size": 2, "vocab_size": 100}
for name, more in {"bert-width": {"hidden_size": 65}, "bert-wide-heads": {"hidden_size": 257 * 4}, "bert-pad-outside": {"pad_token_id": 100},
                   "llama-key-heads": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_key_value_heads": 3}}.items():
    write("config/%s.json" % name, dump(dict(BERT, **more)))

# ---- recipes, devices, profiles ----

RECIPE = {"schema_version": 1, "optimizer": {"name": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1},
          "clip_norm": 1.0, "schedule": {"type": "constant", "warmup_steps": 0, "total_steps": 0, "min_lr_ratio": 0.0}, "seed": 1,
          "precision": "fp32", "dropout": 0.0, "data": {"kind": "bytes", "order": "sequential"}}
DEVICE = {"schema_version": 1, "name": "mine", "usable_bytes": 1 << 34, "outside_bytes": 1 << 28, "fp32_flop_per_s": 1e13, "memory_bytes_per_s": 1e12}
PROFILE = {"schema_version": 1, "device": "cpu", "backend": "hand", "rows": [{"kernel": "activation_fwd", "count": 1024, "act": 0, "seconds": 1e-5}]}
GONE = object()


def changed(value, *steps):
    """A copy with value[a][b]... = new for steps (a, b, ..., new); new GONE removes it."""
    value = copy.deepcopy(value)
    at = value
    for key in steps[:-2]:
        at = at[key]
    if steps[-1] is GONE:
        del at[steps[-2]]
    else:
        at[steps[-2]] = steps[-1]
    return value


def family(folder, good):
    def make(name, *steps):
        write("%s/%s.json" % (folder, name), dump(changed(good, *steps)) if steps else dump(good))
    make("good")
    return make


recipe = family("recipe", RECIPE)
write("recipe/empty.json", "")
write("recipe/array.json", "[]\n")
write("recipe/cut.json", dump(RECIPE)[:100])
write("recipe/duplicate.json", dump(RECIPE).replace('"seed": 1', '"seed": 1,\n "seed": 1'))
recipe("version-missing", "schema_version", GONE)
recipe("version-2", "schema_version", 2)
recipe("version-text", "schema_version", "1")
recipe("unknown", "clip", 1.0)
recipe("unknown-nested", "optimizer", "betas", [0.9, 0.95])
recipe("unknown-schedule", "schedule", "warmup", 10)
recipe("unknown-data", "data", "shuffle", True)
recipe("optimizer-unknown", "optimizer", "name", "adan")
recipe("optimizer-text", "optimizer", "adamw")
recipe("sgd-beta", "optimizer", "name", "sgd")
recipe("lr-negative", "optimizer", "lr", -1e-3)
recipe("lr-text", "optimizer", "lr", "1e-3")
recipe("lr-null", "optimizer", "lr", None)
recipe("beta-1", "optimizer", "beta1", 1.0)
recipe("clip-negative", "clip_norm", -1)
recipe("schedule-unknown", "schedule", "type", "step")
recipe("warmup-negative", "schedule", "warmup_steps", -1)
recipe("warmup-real", "schedule", "warmup_steps", 1.5)
recipe("total-below-warmup", "schedule", {"type": "cosine", "warmup_steps": 10, "total_steps": 5})
recipe("ratio-2", "schedule", "min_lr_ratio", 2)
recipe("seed-negative", "seed", -1)
recipe("precision-unknown", "precision", "fp8")
recipe("dropout-1", "dropout", 1.0)
recipe("dropout-negative", "dropout", -0.1)
recipe("data-unknown", "data", "kind", "text")
recipe("order-unknown", "data", "order", "shuffled")
recipe("sgd", "optimizer", {"name": "sgd", "lr": 0.1, "weight_decay": 0.0})
recipe("u16", "data", "kind", "tokens-u16")
recipe("i32", "data", "kind", "tokens-i32")
write("recipe/lr-infinite.json", dump(RECIPE).replace('"lr": 0.001', '"lr": Infinity'))

device = family("device", DEVICE)
write("device/empty.json", "")
device("version-2", "schema_version", 2)
device("unknown", "usable_gib", 16)
device("name-missing", "name", GONE)
device("name-escapes", "name", "\x1b[31mcard\u202e")
device("memory-zero", "usable_bytes", 0)
device("memory-negative", "usable_bytes", -1)
device("memory-2-51", "usable_bytes", 1 << 51)
device("memory-text", "usable_bytes", "16GiB")
device("memory-below-reserve", "outside_bytes", (1 << 34) + 1)
device("bandwidth-zero", "memory_bytes_per_s", 0)
device("bandwidth-missing", "memory_bytes_per_s", GONE)
device("flop-negative", "fp32_flop_per_s", -1.0)
device("flop-1e30", "fp32_flop_per_s", 1e30)
device("capability-text", "compute_capability", "8.9")
device("name-cpu", "name", "cpu")
device("name-empty", "name", "")
device("name-long", "name", "x" * 64)
device("version-missing", "schema_version", GONE)
device("flop-infinite", "fp32_flop_per_s", float("inf"))
device("link-negative", "host_link_bytes_per_s", -1)
device("link-text", "peer_link_bytes_per_s", "900 GB/s")
device("rate-null", "memory_bytes_per_s", None)
device("bf16-text", "bf16", "yes")
device("sources-array", "sources", [])
for name, more in {"bf16-old": {"compute_capability": 75, "bf16": True}, "bf16-rate-old": {"compute_capability": 75, "bf16_flop_per_s": 1e13},
                   "fp8-old": {"compute_capability": 80, "fp8": True}, "fp8-rate-denied": {"fp8": False, "fp8_flop_per_s": 1e13},
                   "all": {"alias": "m", "product": "Mine", "tf32_flop_per_s": 1e13, "bf16_flop_per_s": 2e13, "fp16_flop_per_s": 2e13,
                           "fp8_flop_per_s": 4e13, "int8_op_per_s": 4e13, "host_link_bytes_per_s": 3e10, "peer_link_bytes_per_s": 1e11,
                           "compute_capability": 89, "multiprocessors": 10, "bf16": True, "fp8": True,
                           "sources": {"usable_bytes": {"class": "measured", "source": "read \x1b[31mhere\u202e"}}},
                   "t4-like": {"compute_capability": 75, "multiprocessors": 40}, "unified-link": {"unified_memory": True, "host_link_bytes_per_s": 3e10}}.items():
    write("device/%s.json" % name, dump(dict(DEVICE, **more)))
for name, source in {"source-class": {"class": "exact", "source": "x"}, "source-class-missing": {"source": "x"}, "source-number": {"class": "cited", "source": 1},
                     "source-text": "a datasheet", "source-unknown": {"class": "cited", "source": "x", "page": 1}}.items():
    write("device/%s.json" % name, dump(dict(DEVICE, sources={"usable_bytes": source})))
write("device/source-of-nothing.json", dump(dict(DEVICE, sources={"fp8_flop_per_s": {"class": "cited", "source": "x"}})))
write("device/source-strange.json", dump(dict(DEVICE, sources={"usable": {"class": "cited", "source": "x"}})))

profile = family("profile", PROFILE)
write("profile/empty.json", "")
profile("version-2", "schema_version", 2)
profile("unknown", "cpu", "fast")
profile("unknown-row", "rows", 0, "milliseconds", 1)
profile("kernel-unknown", "rows", 0, "kernel", "conv2d")
profile("kernel-missing", "rows", 0, "kernel", GONE)
profile("count-missing", "rows", 0, "count", GONE)
profile("count-negative", "rows", 0, "count", -1)
profile("seconds-negative", "rows", 0, "seconds", -1e-5)
profile("seconds-missing", "rows", 0, "seconds", GONE)
profile("rows-object", "rows", {})
profile("algorithm-of-norm", "rows", 0, {"kernel": "layernorm_fwd", "rows": 64, "cols": 32, "seconds": 1e-5, "algorithm": "1" * 128})
write("profile/seconds-nan.json", dump(PROFILE).replace("1e-05", "NaN"))
OUTSIDE = {"device": "NVIDIA H200", "measured_by": "process", "bytes": 400000000, "points": {"context": 300000000, "calls": 400000000}}
PROFILE_OUTSIDE = dict(PROFILE, outside=OUTSIDE)
for name, *steps in (("good",), ("array", []), ("text", "400MB"), ("unknown", "total", 1), ("device-missing", "device", GONE), ("device-empty", "device", ""),
                     ("device-long", "device", "x" * 64), ("by-unknown", "measured_by", "guess"), ("by-nobody", "measured_by", "nobody"),
                     ("bytes-negative", "bytes", -1), ("bytes-other", "bytes", 399999999), ("bytes-2-51", "bytes", 1 << 51), ("points-missing", "points", GONE),
                     ("points-array", "points", [300000000]), ("point-unknown", "points", "warm-up", 1), ("point-real", "points", "calls", 0.5),
                     ("point-negative", "points", "context", -1), ("bytes-text", "bytes", "400000000")):
    write("profile/outside-%s.json" % name, dump(changed(PROFILE_OUTSIDE, "outside", *steps) if steps else PROFILE_OUTSIDE))

# ---- plans ----


def plan_with(path, *words):
    subprocess.run([vplan, "plan", "config/good.json", "--seq", "32", "--global-batch", "4", "--micro-batch", "2", "-o", path] + list(words),
                   check=True, stdout=subprocess.DEVNULL)


os.makedirs("plan")
plan_with("plan/good.json")
plan_with("plan/card.json", "--device", "h200")
plan_with("plan/u16.json", "--recipe", "recipe/u16.json")
plan_with("plan/i32.json", "--recipe", "recipe/i32.json")
plan_with("plan/sgd.json", "--recipe", "recipe/sgd.json")
subprocess.run([vplan, "plan", "config/vocabulary-200.json", "--seq", "32", "--global-batch", "4", "-o", "plan/words-200.json"], check=True, stdout=subprocess.DEVNULL)
subprocess.run([vplan, "plan", "config/class-sequence.json", "--seq", "32", "--global-batch", "4", "-o", "plan/classes.json"], check=True, stdout=subprocess.DEVNULL)
CLASSES = json.load(open("plan/classes.json"))
PLAN_TEXT = open("plan/good.json").read()
PLAN = json.loads(PLAN_TEXT)
B = PLAN["buckets"][0]
HEAD = len(B["instances"]) - 1
BLOCK = next(i for i, p in enumerate(B["programs"]) if B["instances"][1]["program"] == i)


def plan(name, *steps):
    write("plan/%s.json" % name, json.dumps(changed(PLAN, *steps), indent=1))


for name, field, value in (("more", "n_classes", 4), ("zero", "n_classes", 0), ("nowhere", "label_place", "last"), ("missing-place", "label_place", GONE),
                           ("hidden", "mask_token", 3)):
    write("plan/classes-%s.json" % name, json.dumps(changed(CLASSES, "model", field, value), indent=1))


def step_at(kernel):
    for p, program in enumerate(B["programs"]):
        for phase in "forward", "backward", "norm", "update":
            for s, step in enumerate(program[phase]):
                if step["kernel"] == kernel:
                    return ("buckets", 0, "programs", p, phase, s)
    raise KeyError(kernel)


def buffer_at(program, test):
    return ("buckets", 0, "programs", program, "buffers", next(i for i, b in enumerate(B["programs"][program]["buffers"]) if test(b)))


unrolled = copy.deepcopy(PLAN)  # half a megabyte that would ask for gigabytes
parameters = unrolled["templates"][B["programs"][BLOCK]["template"]]["parameters"]
parameters += parameters[-1:] * 1000
unrolled["buckets"][0]["instances"][1:1] = B["instances"][1:2] * 400
write("plan/unrolls-to-millions.json", json.dumps(unrolled, indent=1))
listed = copy.deepcopy(PLAN)  # the same with one list of steps that thousands of programs share
listed["buckets"][0]["programs"][BLOCK]["forward"] *= 200
listed["buckets"][0]["programs"] += [dict(B["programs"][BLOCK], buffers=[], forward=BLOCK, backward=[], norm=[], update=[])] * 5000
write("plan/lists-millions.json", json.dumps(listed, indent=1))
plan("steps-of-itself", "buckets", 0, "programs", BLOCK, "update", BLOCK)
plan("steps-of-nobody", "buckets", 0, "programs", BLOCK, "update", -1)
plan("steps-before-the-first", "buckets", 0, "programs", 0, "update", 0)
plan("steps-of-another-template", "buckets", 0, "programs", BLOCK, "update", 0)
idle = copy.deepcopy(PLAN)
for program in idle["buckets"][0]["programs"]:
    program.update(forward=[], backward=[], norm=[], update=[])
write("plan/no-steps.json", json.dumps(idle, indent=1))
write("plan/empty.json", "")
write("plan/blank.json", "\n")
write("plan/array.json", "[]")
write("plan/cut.json", PLAN_TEXT[:PLAN_TEXT.rindex(",", 0, len(PLAN_TEXT) // 2) + 1])
write("plan/cut-last-brace.json", PLAN_TEXT.rstrip()[:-1])
write("plan/garbage-behind.json", PLAN_TEXT + "x")
write("plan/config.json", GOOD)
write("plan/other.json", dump({"learning_rate": 2e-5}))
write("plan/settings.json", dump({"schema_version": 1, "kind": "settings", "trainer": "hf", "common": {}}))
write("plan/duplicate.json", PLAN_TEXT.replace('"device":', '"device": "cpu",\n  "device":', 1))
write("plan/peak-exponent.json", PLAN_TEXT.replace('"peak_bytes": %d' % PLAN["prediction"]["peak_bytes"], '"peak_bytes": %.17e' % (PLAN["prediction"]["peak_bytes"] + 0.5), 1))
write("plan/peak-nan.json", PLAN_TEXT.replace('"peak_bytes": %d' % PLAN["prediction"]["peak_bytes"], '"peak_bytes": NaN', 1))
plan("schema-older", "schema_version", 0)
plan("schema-newer", "schema_version", 2)
plan("schema-text", "schema_version", "1")
plan("schema-missing", "schema_version", GONE)
for key in PLAN:
    if key != "schema_version":
        plan("without-" + key, key, GONE)
plan("unknown", "notes", "mine")
plan("unknown-model", "model", "hash", "abc")
plan("unknown-recipe", "recipe", "betas", [1, 2])
plan("unknown-prediction", "prediction", "host_bytes", 0)
plan("unknown-proof", "proof", "certificate", "trust me")
plan("unknown-preset", "presets", 0, "note", "x")
plan("unknown-fixed", "fixed", 0, "colour", "red")
plan("unknown-template", "templates", 0, "layers", 2)
plan("unknown-parameter", "templates", 0, "parameters", 0, "dtype", "bf16")
plan("unknown-shared", "shared", 0, "offset_bytes", 0)
plan("unknown-bucket", "buckets", 0, "weight", 1)
plan("unknown-phase", "buckets", 0, "phases", 0, "skip", True)
plan("unknown-program", "buckets", 0, "programs", 0, "stream", 1)
plan("unknown-buffer", "buckets", 0, "programs", 0, "buffers", 0, "colour", "red")
plan("memory-unknown", "buckets", 0, "programs", 0, "buffers", 0, "memory", "ssd")
plan("memory-of-input", "buckets", 0, "programs", 1, "buffers", 0, "memory", "host-pinned")
plan("memory-of-batch", "fixed", 1, "memory", "host-pinned")
plan("memory-of-holdings", "buckets", 0, "instances", 0, "region_memory", ["host-pinned"])
plan("host-peak", "prediction", "host_peak_bytes", 64)
plan("stream-unknown", *step_at("linear_fwd"), "stream", "sideways")
plan("stream-of-kernel", *step_at("linear_fwd"), "stream", "to_host")
plan("unknown-step", *step_at("linear_fwd"), "bias", True)
plan("unknown-step-of-another-kernel", *step_at("linear_fwd"), "heads", 2)
plan("unknown-rng", *step_at("linear_fwd"), "rng_id", 2)
plan("unknown-instance", "buckets", 0, "instances", 0, "device", 1)
plan("unknown-decision", "decisions", "pipeline", 2)
plan("nested-decision", "decisions", "offload", {"to": "host"})
plan("unknown-setting", "settings", "cluster", "a")
plan("assumption-number", "assumptions", 0, 1)
# totals that no longer equal their parts
plan("peak-edited", "prediction", "peak_bytes", PLAN["prediction"]["peak_bytes"] - 64)
plan("bucket-peak-edited", "buckets", 0, "peak_bytes", B["peak_bytes"] - 64)
plan("time-edited", "prediction", "step_time_s", PLAN["prediction"]["step_time_s"] * 0.9)
plan("time-class-edited", "prediction", "time_class", "certain")
plan("params-edited", "model", "params_total", PLAN["model"]["params_total"] + 1)
plan("budget-below-peak", "budget_bytes", PLAN["prediction"]["peak_bytes"] - 1)
plan("micro-batch-edited", "buckets", 0, "micro_batch", 4)
plan("global-batch-edited", "global_batch", 5)
plan("decision-edited", "decisions", "micro_batch", 4)
plan("seq-edited", "buckets", 0, "seq", 31)
plan("setting-edited", "settings", "seq", 64)
plan("device-edited", "settings", "device", "h200-sxm-141gb")
plan("micro-steps-edited", "buckets", 0, "n_micro_steps", 3)
plan("phase-edited", "buckets", 0, "phases", 1, "repeat", 7)
plan("phase-renamed", "buckets", 0, "phases", 0, "name", "warmup")
plan("phase-missing", "buckets", 0, "phases", 3, GONE)
plan("frequency-edited", "buckets", 0, "frequency", 0.5)
plan("proof-unknown", "proof", "status", "certain")
plan("proof-negative-gap", "proof", "gap", -0.5)
plan("vocabulary-edited", "model", "vocab_size", 300)
# numbers
plan("budget-negative", "budget_bytes", -1)
plan("peak-negative", "prediction", "peak_bytes", -64)
plan("outside-negative", "prediction", "outside_bytes", -1)
plan("outside-class-unknown", "prediction", "outside_class", "certain")
plan("outside-of-number", "prediction", "outside_of", 580)
plan("budget-text", "budget_bytes", "18GiB")
plan("micro-batch-zero", "buckets", 0, "micro_batch", 0)
plan("kept-negative", "buckets", 0, "programs", BLOCK, "kept_bytes", -64)
plan("kept-2-62", "buckets", 0, "programs", BLOCK, "kept_bytes", 1 << 62)
plan("seconds-negative", *step_at("linear_fwd"), "seconds", -1e-6)
plan("rows-huge", *step_at("linear_fwd"), "rows", 1 << 62)
plan("rows-zero", *step_at("linear_fwd"), "rows", 0)
plan("rows-more", *step_at("linear_fwd"), "rows", 65)
plan("layout-2", *step_at("linear_fwd"), "layout", 2)
plan("heads-zero", *step_at("attention_fwd"), "kv_heads", 0)
plan("heads-odd", *step_at("attention_fwd"), "kv_heads", 3)
plan("head-dim-1000", *step_at("attention_fwd"), "head_dim", 1000)
plan("probability-1", *step_at("attention_fwd"), "p", 1.0)
plan("words-fewer", *step_at("embedding_fwd"), "vocab", 100)
plan("logits-fewer", *step_at("cross_entropy"), "vocab", 100)
# steps
plan("kernel-unknown", *step_at("linear_fwd"), "kernel", "linear_fwd_fp8")
plan("kernel-missing", *step_at("linear_fwd"), "kernel", GONE)
plan("argument-missing", *step_at("linear_fwd"), "args", ["b0", "p0", "p1"])
plan("argument-left-out", *step_at("linear_fwd"), "args", 0, "-")
plan("argument-no-place", *step_at("linear_fwd"), "args", 0, "x0")
plan("argument-empty", *step_at("linear_fwd"), "args", 0, "")
plan("argument-number", *step_at("linear_fwd"), "args", 0, 0)
plan("argument-negative", *step_at("linear_fwd"), "args", 0, "b-1")
plan("argument-huge", *step_at("linear_fwd"), "args", 0, "b99999999999999999999")
plan("argument-offset-huge", *step_at("linear_fwd"), "args", 0, "b0+9223372036854775807")
plan("argument-offset-odd", *step_at("linear_fwd"), "args", 0, "b0+2")
plan("argument-beyond-buffers", *step_at("linear_fwd"), "args", 0, "b1000")
plan("argument-at-the-end-of-buffers", *step_at("linear_fwd"), "args", 0, "b%d" % len(B["programs"][step_at("linear_fwd")[3]]["buffers"]))
plan("argument-beyond-parameters", *step_at("linear_fwd"), "args", 1, "p1000")
plan("argument-beyond-shared", *step_at("linear_fwd"), "args", 1, "P7")
plan("argument-beyond-fixed", *step_at("embedding_fwd"), "args", 0, "f9")
plan("tokens-from-elsewhere", *step_at("embedding_fwd"), "args", 0, "b0")
plan("labels-are-tokens", *step_at("cross_entropy"), "args", 1, B["programs"][0]["forward"][0]["args"][0])
plan("parameter-written", *step_at("linear_fwd"), "args", 3, "p0")
plan("batch-written", *step_at("linear_add_fwd"), "args", 4, "f0")
plan("state-of-sgd", *step_at("adamw"), "kernel", "sgd")
plan("norm-missing", "buckets", 0, "programs", BLOCK, "norm", GONE)
plan("forward-empty", "buckets", 0, "programs", BLOCK, "forward", [])
plan("forward-object", "buckets", 0, "programs", BLOCK, "forward", {})
# what only a plan for a card has
CARD = json.load(open("plan/card.json"))
PRODUCT = next(("buckets", 0, "programs", p, "forward", s) for p, program in enumerate(CARD["buckets"][0]["programs"])
               for s, step in enumerate(program["forward"]) if step["kernel"] == "linear_fwd")
LAYERNORM = next(("buckets", 0, "programs", p, "forward", s) for p, program in enumerate(CARD["buckets"][0]["programs"])
                 for s, step in enumerate(program["forward"]) if step["kernel"] == "layernorm_fwd")
ZERO = next(("buckets", 0, "programs", p, "backward", s) for p, program in enumerate(CARD["buckets"][0]["programs"])
            for s, step in enumerate(program["backward"]) if step["kernel"] == "zero")
NORM = next(("buckets", 0, "programs", p, "norm", s) for p, program in enumerate(CARD["buckets"][0]["programs"])
            for s, step in enumerate(program["norm"]) if "+" in step.get("workspace", ""))


def card(name, *steps):
    write("plan/card-%s.json" % name, json.dumps(changed(CARD, *steps), indent=1))


for name, value in (("number", 3), ("nowhere", "b99"), ("none", "-"), ("parameter", "p0"), ("missing", GONE)):
    card("workspace-" + name, *PRODUCT, "workspace", value)
for name, value in (("text", "32MiB"), ("zero", 0), ("negative", -64), ("small", 64), ("2-63", 1 << 63), ("missing", GONE)):
    card("workspace-bytes-" + name, *PRODUCT, "workspace_bytes", value)
AT = CARD["buckets"][0]["programs"][NORM[3]]["norm"][NORM[5]]["workspace"]
for name, value in (("misaligned", "%s+%d" % (AT.split("+")[0], int(AT.split("+")[1]) - 60)), ("beyond-its-buffer", AT + "000000"), ("of-control", "f0")):
    card("workspace-of-norm-" + name, *NORM, "workspace", value)
card("workspace-of-zero", *ZERO, "workspace_bytes", 64)
plan("workspace-of-cpu", *step_at("linear_fwd"), "workspace_bytes", 64)
for name, value in (("number", 7), ("empty", ""), ("short", "0" * 127), ("long", "0" * 129), ("letters", "g" * 128)):
    card("algorithm-" + name, *PRODUCT, "algorithm", value)
card("algorithm-of-norm", *LAYERNORM, "algorithm", "1" * 128)
card("algorithm-of-nobody", *PRODUCT, "algorithm", "1" * 128)
for name, value in (("number", 7), ("array", [])):
    card("algorithms-of-" + name, "algorithms_of", value)
for name, value in (("text", "9.0"), ("real", 9.5), ("small", 9), ("large", 1001), ("negative", -90), ("other", 80), ("missing", GONE)):
    card("capability-" + name, "compute_capability", value)
# buffers, fixed buffers, parameters
kept = buffer_at(BLOCK, lambda b: b["place"] == "local" and b["kept"])
plan("buffers-overlap", *kept, "offset_bytes", 0)
plan("buffer-negative", *kept, "offset_bytes", -64)
plan("buffer-far", *kept, "offset_bytes", 1 << 40)
plan("buffer-2-63", *kept, "offset_bytes", (1 << 63) - 1)
plan("buffer-unaligned", *kept, "offset_bytes", 2)
plan("buffer-small", *kept, "bytes", 64)
plan("buffer-empty", *kept, "bytes", 0)
plan("buffer-component", *kept, "component", "parameters")
plan("buffer-place", *kept, "place", "host")
plan("buffer-not-input", *kept, "place", "in")
plan("buffers-empty", "buckets", 0, "programs", BLOCK, "buffers", [])
plan("fixed-empty", "fixed", [])
plan("fixed-unknown-name", "fixed", 0, "name", "scratch")
plan("fixed-small", "fixed", next(i for i, f in enumerate(PLAN["fixed"]) if f["name"] == "control"), "bytes", 8)
plan("fixed-far", "fixed", 0, "offset_bytes", 1 << 40)
plan("fixed-component", "fixed", 0, "component", "activations")
plan("tokens-small", "fixed", next(i for i, f in enumerate(PLAN["fixed"]) if f["name"] == "tokens"), "bytes", 4)
plan("shape-edited", "templates", 0, "parameters", 0, "shape", [256, 33])
plan("shape-zero", "templates", 0, "parameters", 0, "shape", [0, 32])
plan("shape-wraps", "templates", 0, "parameters", 0, "shape", [1 << 32, 1 << 32])
plan("shape-rank-5", "templates", 0, "parameters", 0, "shape", [1, 1, 1, 256, 32])
plan("init-unknown", "templates", 0, "parameters", 0, "init", "xavier")
plan("init-without-std", "templates", 0, "parameters", 0, "init_std", GONE)
plan("parameters-far", "templates", 0, "parameters", 0, "offset_bytes", 0, 1 << 40)
plan("parameters-overlap", "templates", 0, "parameters", 1, "offset_bytes", 0, 0)
plan("parameters-empty", "templates", 0, "parameters", [])
plan("templates-empty", "templates", [])
# instances
plan("instances-empty", "buckets", 0, "instances", [])
plan("instances-no-head", "buckets", 0, "instances", HEAD, GONE)
plan("programs-empty", "buckets", 0, "programs", [])
plan("buckets-empty", "buckets", [])
plan("program-out-of-range", "buckets", 0, "instances", 1, "program", 99)
plan("program-other", "buckets", 0, "instances", 1, "program", B["instances"][HEAD]["program"])
plan("list-of-itself", "buckets", 0, "programs", BLOCK, "forward", BLOCK)
plan("list-of-another", "buckets", 0, "programs", BLOCK, "forward", 0)
plan("template-out-of-range", "buckets", 0, "programs", BLOCK, "template", 99)
plan("base-edited", "buckets", 0, "instances", 1, "base_bytes", B["instances"][1]["base_bytes"] + 64)
plan("base-negative", "buckets", 0, "instances", 1, "base_bytes", -64)
plan("base-2-63", "buckets", 0, "instances", 1, "region_base_bytes", 0, (1 << 63) - 256)
plan("parameters-on-gradients", "buckets", 0, "instances", 1, "region_base_bytes", 0, B["instances"][1]["region_base_bytes"][1])
plan("states-missing", "buckets", 0, "instances", 1, "region_base_bytes", [])
plan("shared-out-of-range", "shared", 0, "instance", 99)
plan("shared-parameter-out-of-range", "shared", 0, "parameter", 99)
plan("family-escapes", "model", "name", "\x1b[31mred")
huge = copy.deepcopy(PLAN)
huge["global_batch"], huge["buckets"][0]["micro_batch"], huge["buckets"][0]["n_micro_steps"] = 10 ** 9, 2, 5 * 10 ** 8
huge["decisions"].update(n_micro_steps=5 * 10 ** 8)
huge["settings"].update(global_batch=10 ** 9)
huge["buckets"][0]["phases"][1]["repeat"] = 5 * 10 ** 8 - 2
write("plan/micro-steps-huge.json", json.dumps(huge))

# ---- weights ----

os.makedirs("weights")
subprocess.run([vplan, "run", "plan/good.json", "--steps", "1", "--save-initial", "weights/good"], check=True, stdout=subprocess.DEVNULL,
               stderr=subprocess.DEVNULL)
GOOD_FILE = open("weights/good/model.safetensors", "rb").read()
N = struct.unpack("<Q", GOOD_FILE[:8])[0]
HEADER, DATA = json.loads(GOOD_FILE[8:8 + N]), GOOD_FILE[8 + N:]
WTE, WPE = "transformer.wte.weight", "transformer.wpe.weight"


def pack(header, data=DATA):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def weights(name, *steps, raw=None, data=DATA):
    write("weights/%s/model.safetensors" % name, raw if raw is not None else pack(changed(HEADER, *steps) if steps else HEADER, data))


def with_length(n):
    return struct.pack("<Q", n) + GOOD_FILE[8:]


weights("empty", raw=b"")
weights("7-bytes", raw=GOOD_FILE[:7])
weights("8-bytes", raw=GOOD_FILE[:8])
weights("length-0", raw=with_length(0))
weights("length-1", raw=with_length(1))
weights("length-2-63", raw=with_length(1 << 63))
weights("length-2-64", raw=with_length((1 << 64) - 1))
weights("length-file", raw=with_length(len(GOOD_FILE) + 1))
weights("length-limit", raw=with_length(100000001))
weights("no-brace", raw=pack(b"[]"))
weights("padded-with-zeros", raw=(lambda t: struct.pack("<Q", len(t)) + t + DATA)(json.dumps(HEADER).encode() + b"\0" * 8))
weights("utf8", raw=pack(json.dumps(HEADER).encode().replace(b"wte", b"w\xffe", 1)))
span = HEADER[WTE]["data_offsets"]
weights("begin-after-end", WTE, "data_offsets", [span[1], span[0]])
weights("end-beyond", WTE, "data_offsets", [span[0], len(DATA) + 4])
weights("offset-negative", WTE, "data_offsets", [-4, span[1]])
weights("offset-real", WTE, "data_offsets", [0.5, span[1]])
weights("one-offset", WTE, "data_offsets", [0])
weights("three-offsets", WTE, "data_offsets", [0, 1, 2])
weights("overlap", WPE, "data_offsets", [HEADER[WPE]["data_offsets"][0] - 4, HEADER[WPE]["data_offsets"][1] - 4])
weights("hole", "extra", {"dtype": "F32", "shape": [1], "data_offsets": [len(DATA) + 4, len(DATA) + 8]}, data=DATA + b"\0" * 8)
weights("trailing", data=DATA + b"\0" * 4)
weights("cut-data", data=DATA[:-4])
weights("shape-times-type", WTE, "shape", [256, 31])
weights("shape-wraps-to-0", WTE, "shape", [1 << 32, 1 << 32])
weights("shape-negative", WTE, "shape", [-256, -32])
weights("shape-transposed", WTE, "shape", [32, 256])
weights("rank-1000", WTE, "shape", [1] * 998 + [256, 32])
weights("dtype-unknown", WTE, "dtype", "F31")
weights("dtype-sub-byte", WTE, "dtype", "F4")
weights("dtype-integers", WTE, "dtype", "I32")
weights("duplicate-name", raw=pack(json.dumps(HEADER).encode().replace(b'{"', b'{"%s": %s, "' % (WTE.encode(), json.dumps(HEADER[WTE]).encode()), 1)))
weights("metadata-number", "__metadata__", {"format": 1})
weights("unknown-key", WTE, "scale", 1.0)
weights("tensor-missing", raw=pack({k: v for k, v in HEADER.items() if k != max((k for k in HEADER if k != "__metadata__"), key=lambda k: HEADER[k]["data_offsets"][0])},
                                   DATA[:max(v["data_offsets"][0] for k, v in HEADER.items() if k != "__metadata__")]))
weights("tensor-extra", "transformer.h.9.ln_1.weight", {"dtype": "F32", "shape": [1], "data_offsets": [len(DATA), len(DATA) + 4]}, data=DATA + b"\0" * 4)
weights("scalar", "transformer.ln_f.extra", {"dtype": "F32", "shape": [], "data_offsets": [len(DATA), len(DATA) + 4]}, data=DATA + b"\0" * 4)
weights("lm-head-differs", "lm_head.weight", {"dtype": "F32", "shape": [256, 32], "data_offsets": [len(DATA), len(DATA) + 256 * 32 * 4]}, data=DATA + b"\1" * (256 * 32 * 4))
weights("pickle", raw=b"PK\3\4" + b"\0" * 100)
weights("gguf", raw=b"GGUF\3\0\0\0" + b"\0" * 100)
weights("lfs", raw=b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 548105171\n")
os.makedirs("weights/folder/model.safetensors")
os.makedirs("weights/nothing")
os.makedirs("weights/fifo")
os.mkfifo("weights/fifo/model.safetensors")
os.makedirs("weights/pytorch-bin")
write("weights/pytorch-bin/pytorch_model.bin", b"PK\3\4")


def index(name, shards, files=("a.safetensors",), total=len(DATA), text=None):
    """A folder with an index: files hold all weights; shards maps a name to its shard, or all to one."""
    folder = "weights/index-" + name
    os.makedirs(folder)
    for f in files:
        write("%s/%s" % (folder, f), GOOD_FILE)
    table = {k: shards for k in HEADER if k != "__metadata__"} if isinstance(shards, str) else shards
    doc = {"metadata": {"total_size": total} if total is not None else {}, "weight_map": table}
    write(folder + "/model.safetensors.index.json", text if text is not None else json.dumps(doc, indent=1))


everything = {k: "a.safetensors" for k in HEADER if k != "__metadata__"}
index("good", "a.safetensors")
index("good-no-total", "a.safetensors", total=None)
index("parent", "../good/model.safetensors")
index("absolute", "/etc/passwd")
index("subfolder", "sub/a.safetensors")
index("dot", ".")
index("dotdot", "..")
index("nothing", "")
index("nul", "a\0.safetensors")
index("long", "a" * 5000)
index("missing-shard", "b.safetensors")
index("tensor-elsewhere", dict(everything, **{WTE: "b.safetensors"}), files=("a.safetensors", "b.safetensors"))
index("omits-a-tensor", {k: v for k, v in everything.items() if k != WTE})
index("lists-a-tensor-more", dict(everything, extra="a.safetensors"))
index("number", dict(everything, **{WTE: 1}))
index("total-wrong", "a.safetensors", total=len(DATA) + 4)
index("total-negative", "a.safetensors", total=-1)
index("total-text", "a.safetensors", total="many")
index("cut", "a.safetensors", text='{"weight_map": {')
index("array", "a.safetensors", text="[]")
index("bin", "pytorch_model-00001.bin", files=("pytorch_model-00001.bin",))
for name, target in (("to-folder", "../good"), ("to-device", "/dev/zero"), ("to-itself", "a.safetensors")):
    index("link-" + name, "a.safetensors", files=())
    os.symlink(target, "weights/index-link-%s/a.safetensors" % name)
index("fifo", "a.safetensors", files=())
os.mkfifo("weights/index-fifo/a.safetensors")

# ---- data ----

# 32 x 4 = 128 tokens a step, and one label behind the last
write("data/good", bytes(range(256)) * 2)
write("data/empty", b"")
write("data/1-step", bytes(range(129)))
write("data/128-tokens", bytes(range(128)))
write("data/words-200", bytes([7] * 200 + [200] + [7] * 200))
write("data/u16-good", struct.pack("<300H", *([5] * 300)))
write("data/u16-word-300", struct.pack("<300H", *([5] * 130 + [300] + [5] * 169)))
write("data/i32-negative", struct.pack("<300i", *([5] * 10 + [-1] + [5] * 289)))
write("data/i32-huge", struct.pack("<300i", *([5] * 10 + [2 ** 31 - 1] + [5] * 289)))
os.makedirs("data/folder")
os.mkfifo("data/fifo")

# ---- places to write ----

os.makedirs("out/folder")
write("out/there.json", "mine\n")
os.symlink("/dev/full", "out/full")
shutil.copy("config/good.json", "out/model.json")

# ---- a Hugging Face cache ----

COMMITS = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"


def hub(name, text, commit=COMMITS[0], ref=COMMITS[0]):
    folder = "hub/models--org--" + name
    write("%s/snapshots/%s/config.json" % (folder, commit), text)
    if ref:
        write(folder + "/refs/main", ref)


hub("good", GOOD)
hub("two", GOOD, ref=None)
hub("two", GOOD, commit=COMMITS[1], ref=None)
hub("no-commit", GOOD, ref="../../../../etc")
hub("mamba", edited(GOOD, '"gpt2"', '"mamba3"'))
hub("weights", GOOD)
os.symlink(os.path.abspath("weights/good/model.safetensors"), "hub/models--org--weights/snapshots/%s/model.safetensors" % COMMITS[0])
