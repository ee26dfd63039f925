#!/bin/bash
# tests/test_emit.sh: vplan emit, check and targets from outside: exit codes, JSON, what is refused and why. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import json, os, re, shlex, subprocess, sys

sys.path.insert(0, "tests")
from check import caller, finish, ok

vplan, work, root = sys.argv[1:4]
call = caller(vplan)
os.chdir(work)


def write(name, text):
    with open(name, "w") as f:
        f.write(text if isinstance(text, str) else json.dumps(text))
    return name


COMMON = {"micro_batch": 4, "accumulation": 8, "world": 2, "seq": 2048, "precision": "bf16-mixed", "optimizer": "adamw_torch_fused",
          "recompute": "full", "loss": "full", "attention": "sdpa", "offload": "optimizer", "parallel": "zero2"}
settings = {"schema_version": 1, "kind": "settings", "model": {"name": "gpt2"}, "common": COMMON}
s = write("s.json", settings)

# ---- emit: the documented document ----
code, out, err = call("emit", s, "--for", "hf", "-o", "hf", "--json")
j = json.loads(out)
ok(code == 0 and j["schema_version"] == 1 and j["target"] == "hf" and j["versions"]["transformers"], "emit --json", (code, err))
for f in j["files"]:
    ok(os.path.getsize(f["path"]) == f["bytes"], "emit: bytes of " + f["path"], os.path.getsize(f["path"]))
names = [os.path.basename(f["path"]) for f in j["files"]]
ok({"training_args.yaml", "training_args.json", "training_args.flags", "accelerate.yaml", "ds_config.json", "README.md"} <= set(names), "emit: files", names)
ok(j["launch"].startswith("accelerate launch"), "emit: launch", j["launch"])
ds = json.load(open("hf/ds_config.json"))
ok(ds["train_micro_batch_size_per_gpu"] == 4 and ds["gradient_accumulation_steps"] == 8 and ds["zero_optimization"]["stage"] == 2, "emit: DeepSpeed", ds)
ok("train_batch_size" not in ds, "emit: no product that the world could contradict", ds)
head = open("hf/training_args.yaml").read().split("\n")[:4]
ok("transformers" in head[0] and head[1].startswith("# predicted") and "vplan emit" in head[2] and "launch" in head[3], "emit: the first comment", head)
# nothing is overwritten unasked
code, _, err = call("emit", s, "--for", "hf", "-o", "hf")
ok(code == 2 and "--force" in err, "emit again", (code, err))
ok(call("emit", s, "--for", "hf", "-o", "hf", "--force")[0] == 0, "emit --force", "refused")
code, out, err = call("emit", s, "--for", "hf", "-o", "my first run of all that there will be")
typed = out[out.index("check "):out.index("\nrun ")].split(None, 1)[1]
p = subprocess.run(["bash", "-c", typed], env=dict(os.environ, PATH=os.path.dirname(vplan) + ":" + os.environ["PATH"]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
ok(code == 0 and p.returncode == 0 and "my first run of all that there will be" in typed and "\\\n" in typed, "what is printed to be typed is broken between words alone", (typed, p.stdout))
paths = ["hf/" + n for n in names if n.endswith((".yaml", ".json", ".flags"))]
code, out, err = call("check", "--json", *paths)
c = json.loads(out)
ok(code == 0 and not [f for f in c["findings"] if f["severity"] == "error"], "check of what was emitted", (code, out))
ok({k: c["common"].get(k) for k in COMMON} == COMMON, "check reads the same settings", c["common"])
ok(set(c) >= {"schema_version", "target", "files", "settings", "common", "findings", "fits", "device_bytes", "peak_phase", "changes"}, "check --json", sorted(c))

# ---- the order in which the files are given decides nothing ----
for target, change in (("trl", {"precision": "bf16-amp"}), ("trl", {"precision": "bf16-mixed"}), ("hf", {"precision": "bf16-amp"}), ("llamafactory", {}), ("axolotl", {"precision": "bf16-amp"})):
    name = write("order.json", dict(settings, common=dict(COMMON, parallel="none", world=1, offload="none", loss="chunked" if target == "trl" else "full", **change)))
    code, out, err = call("emit", name, "--for", target, "-o", "order-" + target, "--json", "--force")
    files = [f["path"] for f in json.loads(out)["files"] if f["path"].endswith((".yaml", ".json"))]
    read = [json.loads(call("check", "--json", *given)[1]) for given in (files, files[::-1])]
    ok(read[0]["common"] == read[1]["common"] and json.dumps(read[0]["findings"]) == json.dumps(read[1]["findings"]), "files in either order: %s %s" % (target, change), [r["common"] for r in read])
    if target == "trl":
        ok(read[0]["common"]["precision"] == change["precision"], "TRL's dtype decides between autocast's two", read[0]["common"])

# ---- SGD's momentum is an argument of the Trainer's sgd, not an optimizer of its own ----
for target, key in (("hf", "optim"), ("trl", "optim"), ("llamafactory", "optim"), ("axolotl", "optimizer")):
    name = write("sgd.json", dict(settings, common=dict(COMMON, parallel="none", world=1, offload="none", loss="chunked" if target == "trl" else "full", optimizer="sgd_momentum")))
    code, out, err = call("emit", name, "--for", target, "-o", "sgd-" + target, "--json")
    ok(code == 0, "sgd_momentum for " + target, (code, err))
    path = [f["path"] for f in json.loads(out)["files"] if f["path"].endswith(".yaml")][0]
    text = open(path).read()
    ok(key + ": sgd\n" in text and 'optim_args: "momentum=0.9"' in text, "sgd_momentum in words of " + target, text)
    for args, want in (("momentum=0.9", "sgd_momentum"), ("dampening=0,momentum=0.5", "sgd_momentum"), ("momentum=0", "sgd"), ("dampening=0.1", "sgd")):
        write(path, text.replace("momentum=0.9", args))
        ok(json.loads(call("check", "--json", path)[1])["common"]["optimizer"] == want, "%s of %s is %s" % (args, target, want), "not so")

# ---- optimizers that project matrices: of which layers, and what optim_args says, in one word ----
for target in ("hf", "trl"):
    for word, keys in (("apollo_adamw:rank=256,targets=attn+mlp", {"optim": "apollo_adamw", "optim_args": "rank=256", "optim_target_modules": ["attn", "mlp"]}),
                       ("galore_adamw:targets=q_proj+v_proj", {"optim": "galore_adamw", "optim_target_modules": ["q_proj", "v_proj"]}),
                       ("galore_adamw:targets=self_attn.q_proj+mlp+h.0", {"optim": "galore_adamw", "optim_target_modules": ["self_attn.q_proj", "mlp", "h.0"]}),
                       ("galore_adamw_layerwise:targets=mlp", {"optim": "galore_adamw_layerwise", "optim_target_modules": ["mlp"]}),
                       ("apollo_adamw_layerwise:targets=.*[.](up|down)_proj+attn", {"optim": "apollo_adamw_layerwise", "optim_target_modules": [".*[.](up|down)_proj", "attn"]}),
                       ("galore_adamw_layerwise:targets=all-linear", {"optim": "galore_adamw_layerwise", "optim_target_modules": "all-linear"})):
        name = write("projects.json", dict(settings, common=dict(COMMON, parallel="none", world=1, accumulation=1, offload="none", loss="chunked" if target == "trl" else "full", optimizer=word)))
        code, out, err = call("emit", name, "--for", target, "-o", "projects-" + target, "--json", "--force")
        ok(code == 0, word + " for " + target, (code, err))
        paths = [f["path"] for f in json.loads(out)["files"]]
        if target == "hf":
            said = json.load(open([p for p in paths if p.endswith("training_args.json")][0]))
            ok({k: v for k, v in said.items() if k.startswith("optim")} == keys, word + " in words of " + target, said)
        read = [json.loads(call("check", "--json", p)[1])["common"].get("optimizer") for p in paths if p.endswith(".yaml")]
        ok(word in read, word + " is read back of " + target, read)
        code, out, _ = call("check", "--json", *paths)
        j = json.loads(out)
        ok(code == 0 and j["common"].get("optimizer") == word, "all files of %s say %s" % (target, word), j)
        for path in [p for p in paths if p.endswith(".flags")]: # one text is all that the parser takes, and it takes the modules of the list
            said = [l.split() for l in open(path) if l.startswith("--optim_target_modules ")]
            ok(len(said) == 1 and len(said[0]) == 2, word + " is one word in " + path, said)
            pattern, listed = shlex.split(said[0][1])[0], word.split("targets=")[1].split("+")
            for module in "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj", "model.layers.1.self_attn.v_proj", "model.layers.0.mlp.up_proj", "transformer.h.0.attn.c_attn", "h.10.fc", "lm_head", "hx0.fc":
                want = listed != ["all-linear"] and any(m in module or re.fullmatch(m, module) for m in listed)
                ok(bool(re.fullmatch(pattern, module)) == want, "%s takes %s as %s does" % (pattern, module, word), want)
# Trainer's own keys are theirs too: LLaMA-Factory's and ms-swift's arguments are TrainingArguments, axolotl hands optimizer, optim_args and optim_target_modules on
for target, key, every in (("llamafactory", "optim", "all-linear"), ("axolotl", "optimizer", "all_linear"), ("ms-swift", "optim", "all-linear")):
    for word, keys in (("apollo_adamw:rank=256,targets=attn+mlp", ("apollo_adamw", "rank=256", ["attn", "mlp"])), ("galore_adamw_8bit:targets=all-linear", ("galore_adamw_8bit", None, every)),
                       ("galore_adafactor:rank=8,targets=q_proj", ("galore_adafactor", "rank=8", ["q_proj"])), ("galore_adamw_layerwise:targets=mlp", ("galore_adamw_layerwise", None, ["mlp"]))):
        name = write("projects.json", dict(settings, common=dict(COMMON, parallel="none", world=1, accumulation=1, offload="none", loss="full", optimizer=word)))
        code, out, err = call("emit", name, "--for", target, "-o", "projects-" + target, "--json", "--force")
        ok(code == 0, word + " for " + target, (code, err))
        paths = [f["path"] for f in json.loads(out)["files"] if f["path"].endswith((".yaml", ".args", ".json", ".sh"))]
        text = open(paths[0]).read()
        for line in (key, keys[0]), ("optim_args", keys[1]), ("optim_target_modules", keys[2]):
            ok((line[1] is None) != bool(re.search(r"(?m)^(--)?%s\b" % line[0], text)), "%s of %s is written for %s" % (line[0], word, target), text)
        ok(keys[2] != every or every in text, every + " for " + target, text)
        code, out, _ = call("check", "--json", *paths)
        ok(code == 0 and json.loads(out)["common"].get("optimizer") == word, "%s of %s is read back" % (word, target), (code, json.loads(out)))
for text, want in (('optim: apollo_adamw\noptim_args: "scale=1.0, rank=8"\noptim_target_modules: [mlp]\n', "apollo_adamw:scale=1.0,rank=8,targets=mlp"),
                   ("optim: galore_adamw\noptim_target_modules: all_linear\n", "galore_adamw:targets=all-linear"),
                   ("optim: galore_adamw\noptim_target_modules: '.*attn.*'\n", "galore_adamw:targets=attn"), # a list's "attn" takes the same
                   ("optim: galore_adamw\noptim_target_modules: '.*attn.*|.*h[.]0[.].*'\n", "galore_adamw:targets=attn+.*h[.]0[.].*"),
                   ("optim: galore_adamw\noptim_target_modules: '.*(q|v)_proj'\n", "galore_adamw:targets=.*(q|v)_proj"),
                   ("optim: galore_adamw\noptim_target_modules: 'h|.*attn.*'\n", "galore_adamw:targets=h|.*attn.*"), # the module h, not all that have the letter
                   ("optim: galore_adamw\noptim_target_modules: attn\n", "galore_adamw")):
    path = write("told.yaml", "per_device_train_batch_size: 2\ngradient_checkpointing: true\n" + text)
    ok(json.loads(call("check", "--json", path)[1])["common"]["optimizer"] == want, "is read as " + want, text)
for value, want in (("attn", "whole name"), ("'.*[.]\\d+[.]mlp.*'", "not counted"), ("'.*(?:q|v)_proj'", "not counted"), ("['.*q.{1,3}j']", "not counted"), ("[attn]", None), ("'.*attn.*'", None), ("all-linear", None)):
    path = write("told.yaml", "per_device_train_batch_size: 2\ngradient_checkpointing: true\noptim: galore_adamw\noptim_target_modules: %s\n" % value)
    found = [(f["line"], f["message"]) for f in json.loads(call("check", "--json", path)[1])["findings"] if f["key"] == "optim_target_modules"]
    ok([f[0] for f in found] == [4] * (want is not None) and all(want in f[1] for f in found), "targets %s: a finding says %s" % (value, want), found)
for words, severity in (("q_proj v_proj", "error"), ("attn", "warning"), ("'.*q_proj.*|.*v_proj.*'", None), ('"$MODULES"', None)):
    path = write("told.sh", "torchrun train.py --output_dir o --per_device_train_batch_size 2 --optim galore_adamw --optim_target_modules %s --bf16 true\n" % words)
    code, out, _ = call("check", "--json", path)
    found = [(f["severity"], f["instead"]) for f in json.loads(out)["findings"] if f["key"] == "optim_target_modules"]
    ok([f[0] for f in found] == [severity] * (severity is not None) and (code == 4) == (severity == "error"), "a command's targets %s: %s" % (words, severity), (code, found))
    ok(severity != "error" or found[0][1] == ".*q_proj.*|.*v_proj.*", "and what to write", found)
path = write("told.py", "from transformers import TrainingArguments\na = TrainingArguments('o', optim='apollo_adamw', optim_target_modules=[r'.*.attn.*', R\"mlp\"])\n")
ok(json.loads(call("check", "--json", path)[1])["common"]["optimizer"] == "apollo_adamw:targets=.*.attn.*+mlp", "a script's raw strings are read", path)

# ---- a model that the trainer of the files does not train ----
for name, trained in (("bert-base-uncased", False), ("modernbert-base", False), ("t5-small", False), ("gpt2", True)):
    for target in ("axolotl", "llamafactory", "ms-swift", "litgpt", "hf"):
        masked = dict(settings, model={"name": name}, common=dict(COMMON, parallel="none", world=1, offload="none", recompute="none", loss="full", clip_norm=0.0 if target == "litgpt" else 1.0))
        code, out, err = call("emit", write("masked.json", masked), "--for", target)
        ok((code == 0) == (trained or target == "hf") and (code == 0 or code == 4 and "predict the next token" in err and "--for hf" in err), "%s for %s" % (name, target), (code, err))

# ---- litgpt's optimizer: a class with what it is told, so that a file's own is changed member by member ----
for word, path, member in (("adamw_torch", "torch.optim.AdamW", ("foreach", True)), ("adamw_torch_fused", "torch.optim.AdamW", ("fused", True)), ("adamw_torch_forloop", "torch.optim.AdamW", ("foreach", False)),
                           ("sgd", "torch.optim.SGD", ("foreach", True)), ("sgd_momentum", "torch.optim.SGD", ("momentum", 0.9)), ("rmsprop", "torch.optim.RMSprop", ("foreach", True)), ("adagrad", "torch.optim.Adagrad", ("foreach", True)),
                           ("adamw_8bit", "bitsandbytes.optim.AdamW8bit", ("min_8bit_size", 4096)), ("paged_adamw_8bit", "bitsandbytes.optim.PagedAdamW8bit", ("min_8bit_size", 4096)), ("paged_adamw_32bit", "bitsandbytes.optim.PagedAdamW", ("optim_bits", 32)),
                           ("lion_8bit", "bitsandbytes.optim.Lion8bit", ("min_8bit_size", 4096)), ("adamw_torch_8bit", "torchao.optim.AdamW8bit", ("block_size", 256))):
    name = write("class.json", dict(settings, common=dict(COMMON, parallel="none", world=1, offload="none", recompute="none", loss="full", optimizer=word, clip_norm=0.0)))
    code, out, err = call("emit", name, "--for", "litgpt", "-o", "class", "--json", "--force")
    ok(code == 0, word + " for litgpt", (code, err))
    text = open("class/litgpt.yaml").read()
    value = str(member[1]).lower() if isinstance(member[1], bool) else str(member[1])
    ok(re.search(r"(?m)^optimizer:\n  class_path: \"?%s\"?\n  init_args:\n(    \w+: .*\n)*    %s: %s$" % (path, member[0], value), text), word + " as a class", text)
    code, out, _ = call("check", "--json", "class/litgpt.yaml")
    ok(code == 0 and json.loads(out)["common"].get("optimizer") == word and "optimizer" not in json.loads(out)["may_be"], word + " of litgpt is read back", out)
code, out, err = call("emit", write("class.json", dict(settings, common=dict(COMMON, parallel="none", world=1, offload="none", recompute="none", loss="full", optimizer="sgd"))), "--for", "litgpt")
ok(code == 4 and "litgpt cannot be told clip_norm 1.0" in err, "litgpt's fine-tuning refuses a norm to clip to", (code, err))
code, out, err = call("emit", write("class.json", dict(settings, common=dict(COMMON, parallel="none", world=1, offload="none", recompute="none", loss="full", optimizer="adafactor", clip_norm=0.0))), "--for", "litgpt", "-o", "class", "--force")
ok(code != 0 and "adafactor" in err and "adamw_torch" in err, "what litgpt has no class for", (code, err))

# ---- what cannot be said is an error that names the version or the words there are ----
for change, target, more, want in (
        ({"optimizer": "adamw_torch_forloop"}, "hf", [], "no word of optim in transformers"),
        ({"optimizer": "adamw_torch_forloop", "parallel": "ddp", "offload": "none"}, "axolotl", [], "no word of optimizer in axolotl"),
        ({"optimizer": "sgd_momentum"}, "hf", ["--versions", "transformers=5.5"], "transformers 5.6 has it"),
        ({"recompute": "every:2"}, "hf", ["--versions", "transformers=5.16"], "transformers 5.17 has it"),
        ({"recompute": "every:2"}, "llamafactory", [], "its words here: none, full"),
        ({"recompute": "every:2"}, "axolotl", ["--versions", "axolotl=0.19"], "axolotl 0.21 has it"),
        ({"loss": "full"}, "trl", [], "trl before 1.16 has it"),
        ({"precision": "bf16"}, "deepspeed", ["--versions", "deepspeed=0.16"], "deepspeed 0.19 has it"),
        ({"recompute": "blocks:0+1"}, "hf", [], "its words here"),
        ({"attention": "sdpa:math", "loss": "chunked"}, "trl", [], "cannot be told attention"),
        ({"parallel": "fsdp2", "offload": "params"}, "axolotl", [], "cannot be told"),
        ({"parallel": "none", "world": 1, "offload": "none", "recompute": "none", "loss": "full", "optimizer": "adamw_torch_fused", "precision": "bf16-mixed", "clip_norm": 1.0}, "lightning", [],
         "clip_norm 1.0 beside optimizer adamw_torch_fused, precision bf16-mixed, parallel none; its words here: 0.0"),
        ({"parallel": "fsdp2", "offload": "none", "optimizer": "adamw_8bit"}, "axolotl", [], "FSDP2")):
    name = write("x.json", dict(settings, common=dict(COMMON, **change)))
    code, out, err = call("emit", name, "--for", target, *more)
    ok(code == 4 and want in err and not out, "%s for %s" % (change, target), (code, err))

# ---- settings that are wrong: file, line and field ----
for change, want in (({"micro_batch": 0}, "micro_batch"), ({"micro_batch": "four"}, "micro_batch"), ({"recompute": "some"}, "none|full"), ({"recompute": "every:0"}, "every"),
                     ({"offload": "weights"}, "offload"), ({"precision": "fp8"}, "precision"), ({"colour": 1}, "colour"), ({"clip_norm": -1}, "clip_norm"), ({"lora_r": 8}, "lora_r"), ({"optimizer": "a b"}, "optimizer")):
    name = write("x.json", dict(settings, common=dict(COMMON, **change)))
    code, _, err = call("emit", name, "--for", "hf", "--json")
    ok(code == 4 and want in err and "x.json" in err, "settings %s" % change, (code, err))
for name, text, want in (("a.json", "{", "a.json:1"), ("b.json", "{}", "common"), ("c.json", "[]", "object"), ("d.json", '{"common": {"micro_batch": 1}}', "seq")):
    code, _, err = call("emit", write(name, text), "--for", "hf")
    ok(code == 4 and want in err, "settings " + text, (code, err))
code, _, err = call("emit", write("x.json", dict(settings, schema_version=99)), "--for", "hf")
ok(code == 4 and "schema_version" in err, "settings of another version", (code, err))
for versions, key in ((3, "versions"), (["5.17"], "versions"), ({"transformers": 5.17}, "versions.transformers")):
    code, _, err = call("emit", write("x.json", dict(settings, versions=versions)), "--for", "hf")
    ok(code == 4 and "x.json:1: %s: must be" % key in err, "versions that are no texts: %s" % versions, (code, err))
# with the model and the card that they were planned for, check is told both
code, out, err = call("emit", write("x.json", dict(settings, device="rtx-4090-24gb")), "--for", "hf", "-o", "told", "--force")
ok(code == 0 and " --model gpt2 --device rtx-4090-24gb --seq %d" % COMMON["seq"] in " ".join(out.replace("\\\n", " ").split()), "check's command", out)
for words in ((s,), (s, "--for", "hg"), ("--for", "hf"), (s, "--for", "hf", "--versions", "x"), (s, "--for", "hf", "--versions", "a=b")):
    ok(call("emit", *words)[0] == 2, "emit " + " ".join(words), "no usage error")

# ---- a plan of vplan's own ----
code, _, err = call("plan", "gpt2-tiny", "--device", "cpu", "--budget", "20MB", "--seq", "128", "--global-batch", "8", "--attention", "flash", "--loss", "full", "--recompute", "none", "-o", "plan.json")
ok(code == 0, "plan", err)
code, out, err = call("emit", "plan.json", "--for", "hf", "-o", "from_plan", "--json")
j = json.loads(out or "{}")
ok(code == 0 and j["common"]["seq"] == 128 and j["common"]["micro_batch"] * j["common"]["accumulation"] == 8 and j["common"]["recompute"] == "none", "emit of a plan", (code, err, j.get("common")))

# ---- adapters: the module carries them as data, and check judges by them ----
code, _, err = call("plan", "gpt2", "--trainer", "torch", "--lora", "r=8,targets=all-linear", "--device", "4090", "--seq", "512", "--global-batch", "8", "-o", "lora.json")
ok(code == 0, "plan --lora", err)
planned = json.load(open("lora.json"))
ok(call("emit", "lora.json", "--for", "torch", "-o", "lora")[0] == 0, "emit of adapters", "fails")
code, out, err = call("check", "lora/vplan_settings.py", "--model", "gpt2", "--device", "4090", "--json")
j = json.loads(out or "{}")
ok(code == 0 and all(j["common"].get(k) == v for k, v in planned["common"].items() if k.startswith(("lora", "tuning"))) and j["common"]["tuning"] == "lora"
   and j["device_bytes"] == planned["device_bytes"], "check judges adapters", (code, j.get("common"), planned["common"], j.get("device_bytes"), planned["device_bytes"], err))
one = dict(settings, common=dict(COMMON, world=1, parallel="none", offload="none", recompute="none"))
ok("predicted: allocated" in open("lora/vplan_settings.py").read(), "emit says what was predicted", open("lora/vplan_settings.py").read()[:400])
planned["common"]["micro_batch"] = 4
# ---- several cards of a plain loop: the module says how many it is for, and how they share; check reads both ----
for way in "ddp", "fsdp2", "zero2":
    code, out, err = call("emit", write("four.json", {"common": {**COMMON, "world": 4, "parallel": way, "offload": "none"}}), "--for", "torch", "-o", "four", "--force")
    code, out, err = call("check", "--json", "four/vplan_settings.py")
    c = json.loads(out)
    ok(code == 0 and c["common"]["world"] == 4 and c["common"]["parallel"] == way and not c["may_be"], "torch, %s on four cards" % way, (err, c.get("common")))
ok("torchrun --nproc_per_node 4 " in open("four/vplan_settings.py").read(), "its launch starts four", "it does not")

code, out, err = call("emit", write("lora2.json", planned), "--for", "torch", "-o", "lora2")
text = open("lora2/vplan_settings.py").read()
ok(code == 0 and "changed after they were predicted" in text and "allocated" not in text.split('"""')[0] and '"reserved_peak_bytes": None' in text, "a prediction of other settings is dropped", (code, err, text[:900]))
code, out, err = call("emit", write("one.json", one), "--for", "lightning", "-o", "lightning")
ok(code == 4 and "clip_norm" in err, "Lightning clips no gradients that a fused optimizer unscales", (code, err))
one["common"]["optimizer"] = "adamw_torch"
call("emit", write("one.json", one), "--for", "lightning", "-o", "lightning")
code, out, err = call("check", "lightning/lightning.yaml", "--for", "lightning", "--json")
ok(code == 0 and [f["severity"] for f in json.loads(out)["findings"] if f["key"] == "tuning"] == ["note"], "check says what the user's code decides", out)

# ---- targets ----
code, out, _ = call("targets", "--json")
targets = [t["name"] for t in json.loads(out)["targets"]]
ok(code == 0 and {"hf", "trl", "accelerate", "deepspeed", "axolotl", "llamafactory"} <= set(targets), "targets", targets)
for t in targets:
    ok(call("targets", t)[0] == 0, "targets " + t, "fails")
ok(call("targets", "hg")[0] == 2, "targets hg", "no usage error")
# ---- the words of a command ----
code, out, _ = call("check", "--json", "--versions", "transformers=5.17", "--", "python", "train.py", "--per_device_train_batch_size", "2", "--evaluation_strategy", "no", "--bf16", "--optim=adamw_torch")
c = json.loads(out)
ok(code == 4 and c["common"]["micro_batch"] == 2 and c["common"]["optimizer"] == "adamw_torch", "check of a command", c["common"])
ok([f["instead"] for f in c["findings"] if f["key"] == "evaluation_strategy"] == ["eval_strategy"], "check: a name that is gone", c["findings"])
ok(call("check")[0] == 2, "check of nothing", "no usage error")
# ---- the command that asks about them is told for which libraries they are, where those are not the usual ones ----
for said, more, words in ((None, [], None), ({"transformers": "5.22"}, [], None), ({"transformers": "5.17.0"}, [], None), ({"transformers": "5.16"}, [], "transformers=5.16"), (None, ["--versions", "torch=2.11"], "torch=2.11"), ({"transformers": "4.57"}, [], "transformers=4.57"), (None, ["--versions", "transformers=4.57"], "transformers=4.57"),
                          ({"transformers": "4.57"}, ["--versions", "transformers=5.22.0"], "transformers=5.22.0"), ({"transformers": "4.57", "accelerate": "1.10"}, [], "transformers=4.57,accelerate=1.10")):
    of = write("of.json", dict(settings, versions=said or {}, common=dict(COMMON, world=1, parallel="none", offload="none")))
    code, out, err = call("emit", of, "--for", "hf", "-o", "of", "--force", *more)
    for where, text in (("on the screen", out.replace("\\\n", " ")), ("in README.md", open("of/README.md").read().partition("Ask before")[2])):
        typed = next((line.split() for line in text.split("\n") if "vplan check" in line), [])
        ok(code == 0 and typed and (typed[typed.index("--versions") + 1] if "--versions" in typed else None) == words, "versions %s, %s: %s" % (said, more, where), (code, err, text))
# ---- emit --edit: what emit wrote for one set of settings becomes another, in place; check reads the second ----
mine = write("mine.yaml", "# my run\noutput_dir: out   # where\nper_device_train_batch_size: 16  # as much as fits\ngradient_accumulation_steps: 1\nbf16: true\n\noptim: \"adamw_torch\"\n"
             "gradient_checkpointing: true\nmy_own: [1, 2]\n")
one = write("one.json", dict(settings, common=dict(COMMON, world=1, parallel="none", offload="none", micro_batch=2, accumulation=8, recompute="none")))
code, out, err = call("emit", one, "--for", "hf", "--edit", mine)
ok(code == 0 and "    3 + per_device_train_batch_size: 2  # as much as fits" in out and ": 16 " in open(mine).read(), "--edit shows and does not write", (code, out, err))
before = open(mine).read()
code, out, err = call("emit", one, "--for", "hf", "--edit", mine, "--force", "--json")
after = open(mine).read()
ok(code == 0 and json.loads(out)["written"] and len(json.loads(out)["changes"]) == 4, "--edit --force", (code, out, err))
ok(after == before.replace(": 16 ", ": 2 ").replace("steps: 1", "steps: 8").replace('"adamw_torch"', "adamw_torch_fused").replace("checkpointing: true", "checkpointing: false"), "comments, order and strangers stay", after)
code, out, err = call("emit", one, "--for", "hf", "--edit", mine)
ok(code == 0 and "nothing is to be changed" in out, "a second time nothing changes", out)
for name, text in ("alias.yaml", "x: &n 4\nper_device_train_batch_size: *n\noptim: sgd\n"), ("block.yaml", "optim: >\n  sgd\nper_device_train_batch_size: 1\n"):
    code, _, err = call("emit", one, "--for", "hf", "--edit", write(name, text))
    ok(code == 4 and "by hand" in err and name + ":" in err, "--edit of " + name, (code, err))
# ---- an option without a value gets one ----
BARE = "python train.py --output_dir o --per_device_train_batch_size=2 \\\n    --bf16 --gradient_checkpointing \\\n    --gradient_accumulation_steps 8 --optim adamw_torch_fused\n"
code, out, err = call("emit", one, "--for", "hf", "--edit", write("bare.sh", BARE), "--force")
ok(code == 0 and open("bare.sh").read() == BARE.replace("--gradient_checkpointing", "--gradient_checkpointing false"), "--edit of an option without a value", (code, open("bare.sh").read(), err))
# ---- what stands in calls of a script beside its trainer's arguments is edited where it stands ----
QLORA = """import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer
base = {"output_dir": "o", "bf16": True}
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
model = AutoModelForCausalLM.from_pretrained("gpt2", quantization_config=bnb, attn_implementation="eager")
lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")  # small
args = SFTConfig(**base, per_device_train_batch_size=4, max_length=1024)
trainer = SFTTrainer(model=model, args=args, peft_config=lora)
"""
wants = dict(micro_batch=2, seq=512, world=1, precision="bf16-amp", optimizer="adamw_torch_fused", recompute="full", loss="chunked", tuning="qlora", quant="nf4-dq", lora_r=16, lora_alpha=16, lora_dropout=0.1, lora_targets="q_proj+v_proj")
code, out, err = call("emit", write("calls.json", {"common": wants}), "--for", "trl", "--edit", write("calls.py", QLORA), "--force")
want = (QLORA.replace("r=8", "r=16").replace('target_modules="all-linear"', 'target_modules=["q_proj", "v_proj"]').replace("LoraConfig(r", "LoraConfig(lora_dropout=0.1, r").replace("size=4", "size=2").replace("=1024", "=512")
        .replace("Config(load_in_4bit", "Config(bnb_4bit_use_double_quant=True, load_in_4bit").replace('"eager"', '"sdpa"'))
ok(code == 0 and open("calls.py").read() == want, "--edit of adapters and a model in a script", (code, err, open("calls.py").read()))
code, out, err = call("check", "--json", "calls.py")
read = json.loads(out)["common"]
ok(all(str(read.get(k)) == str(v) for k, v in wants.items() if k not in ("world",)), "and read back it is what was wanted", (read, wants))
# what a command's launcher does is not changed in its file; an option of a script's own may be
RUN = "torchrun --nproc_per_node 2 run_clm.py \\\n    --output_dir o --per_device_train_batch_size 4 \\\n    --block_size 1024 --bf16 --fsdp full_shard\n"
whole = dict(micro_batch=2, seq=512, world=2, parallel="fsdp2", precision="bf16-mixed", optimizer="adamw_torch", recompute="none")
code, out, err = call("emit", write("calls.json", {"common": whole}), "--for", "hf", "--edit", write("run.sh", RUN), "--force")
ok(code == 0 and open("run.sh").read() == RUN.replace("size 4", "size 2").replace("size 1024", "size 512").replace("    --output_dir", "    --optim adamw_torch --output_dir"), "--edit of a command's options", (code, err, open("run.sh").read()))
for change, what in ((dict(world=1), "world 1"), (dict(parallel="none"), "parallel none")):
    code, out, err = call("emit", write("calls.json", {"common": dict(whole, **change)}), "--for", "hf", "--edit", write("run.sh", RUN), "--force")
    ok(code == 4 and "no word for %s" % what in err and open("run.sh").read() == RUN, "--edit does not pass over " + what, (code, err))
# what a call switches on no key turns off; a variable that the script sets stays its own
ENABLES = "import os\nos.environ['PYTORCH_ALLOC_CONF'] = 'expandable_segments:True'\nfrom transformers import AutoModelForCausalLM, TrainingArguments\nm = AutoModelForCausalLM.from_pretrained('gpt2')\nm.gradient_checkpointing_enable()\na = TrainingArguments('o', per_device_train_batch_size=2)\n"
enabled = dict(micro_batch=4, seq=512, world=1, precision="fp32", optimizer="adamw_torch_fused")
code, out, err = call("emit", write("calls.json", {"common": dict(enabled, recompute="none")}), "--for", "hf", "--edit", write("enables.py", ENABLES), "--force")
ok(code == 4 and "recompute full" in err and "by hand" in err and open("enables.py").read() == ENABLES, "--edit of what a call says", (code, out, err))
code, out, err = call("emit", write("calls.json", {"common": dict(enabled, recompute="full")}), "--for", "hf", "--edit", "enables.py", "--force")
ok(code == 0 and open("enables.py").read() == ENABLES.replace("size=2", "size=4") and "by hand    PYTORCH_ALLOC_CONF" in out, "--edit beside the environment", (code, out, err))
code, out, err = call("emit", "calls.json", "--for", "hf", "--edit", "enables.py")
ok(code == 0 and "nothing is to be changed" in out and "PYTORCH_ALLOC_CONF" in out, "and again", (code, out, err))
# ---- a script loads the class that is trained; a class that is none is refused ----
for name, loads, labels, answers in (("BertForSequenceClassification", "AutoModelForSequenceClassification", 3, "i % model.config.num_labels"), ("GPT2ForTokenClassification", "AutoModelForTokenClassification", 5, "ids % model.config.num_labels"),
                                     ("BertForMaskedLM", "AutoModelForMaskedLM", None, "ids"), ("LlamaForCausalLM", "AutoModelForCausalLM", None, "ids"), (None, "AutoModelForCausalLM", None, "ids")):
    code, out, err = call("emit", write("class.json", dict(settings, common=COMMON, model={"name": "x", "class": name, "labels": labels})), "--for", "hf", "--json")
    script = next(f["text"] for f in json.loads(out)["files"] if f["path"] == "train.py")
    ok(code == 0 and "%s.from_pretrained(name%s, **loading)" % (loads, ", num_labels=%d" % labels if labels else "") in script and '"labels": %s}' % answers in script and "@" not in script and script.count("AutoModel") == 3,
       "train.py loads %s" % name, (code, err, script))
    compile(script, "train.py", "exec")
for model in ({"class": "x; import os"}, {"class": 3}, {"class": "A", "labels": 0}, {"labels": "two"}):
    code, out, err = call("emit", write("class.json", dict(settings, common=COMMON, model=dict(model, name="x"))), "--for", "hf")
    ok(code == 4 and "model." in err, "no class: %s" % model, (code, err))
bert = write("bert.json", dict(model_type="bert", architectures=["BertForSequenceClassification"], hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512, vocab_size=30522, max_position_embeddings=512,
                               type_vocab_size=2, id2label={"0": "a", "1": "b", "2": "c"}))
code, out, err = call("plan", bert, "--trainer", "hf", "--device", "4090", "--seq", "128", "--global-batch", "16", "--json")
ok(code == 0 and (json.loads(out)["model"]["class"], json.loads(out)["model"]["labels"]) == ("BertForSequenceClassification", 3), "plan says which", (code, err))
# ---- a disk that is full: all files are written, or none ----
import resource, signal


def small():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))  # train.py is larger, the files before it are not


whole = write("whole.json", dict(settings, common=dict(COMMON, micro_batch=2, accumulation=4)))
other = write("other.json", dict(settings, common=dict(COMMON, micro_batch=1, accumulation=8)))
ok(call("emit", whole, "--for", "hf", "-o", "full")[0] == 0, "written", "not")
kept = {name: open("full/" + name).read() for name in os.listdir("full")}
for folder, force in (("full", ["--force"]), ("new", [])):
    p = subprocess.run([vplan, "emit", other, "--for", "hf", "-o", folder] + force, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=small)
    ok(p.returncode == 7 and b"train.py" in p.stderr, "a file that does not fit: " + folder, (p.returncode, p.stderr))
ok(kept == {name: open("full/" + name).read() for name in os.listdir("full")} and not os.path.exists("new"), "all or none", (sorted(os.listdir("full")), os.path.exists("new")))
# what cannot be edited as it is meant is refused with the line, and the file stays to the byte
args = "args = TrainingArguments(\n    output_dir=\"out\",\n    per_device_train_batch_size=16,\n)\n"
REFUSED = {
    "two.py": ("one = TrainingArguments(output_dir=\"a\", per_device_train_batch_size=16)\ntwo = TrainingArguments(output_dir=\"b\", per_device_train_batch_size=4)\n", "two.py:2: per_device_train_batch_size cannot be changed in place: no literal, or one of two values"),
    "unread.py": ("def main(lr):\n    return TrainingArguments(learning_rate=lr * 2, per_device_train_batch_size=16, optim=pick(lr))\n", "unread.py:2: optim cannot be changed in place"),
    "merge.yaml": ("base: &b\n  per_device_train_batch_size: 16\n<<: *b\noptim: sgd\n", "merge.yaml:"),
}
for name, (text, want) in REFUSED.items():
    write(name, text)
    code, out, err = call("emit", one, "--for", "hf", "--edit", name, "--force")
    ok(code == 4 and want in err and open(name).read() == text, "--edit refuses " + name, (code, out, err, open(name).read()))
# what can be edited is, whatever its shape: a key that must be added stands where its reader finds it
HEAD = "per_device_train_batch_size: 16\n"
NEW = "gradient_accumulation_steps: 8\nbf16: true\n"
EDITED = {
    "call.py": ("import x\n" + args + "t = Trainer(model=model, args=args)\n",
                "import x\nargs = TrainingArguments(\n    output_dir=\"out\",\n    per_device_train_batch_size=2,\n)\nt = Trainer(model=model, args=args)\n",
                "    output_dir", "    gradient_accumulation_steps=8,\n    bf16=True,\n    output_dir"),
    "line.py": ("args = TrainingArguments(output_dir=\"out\", per_device_train_batch_size=16)\n", "args = TrainingArguments(output_dir=\"out\", per_device_train_batch_size=2)\n",
                "(output", "(gradient_accumulation_steps=8, bf16=True, output"),
    # a name of the script's own is no key, whatever it is called
    "names.py": ("def main(lr):\n    return TrainingArguments(learning_rate=lr * 2, per_device_train_batch_size=16)\ndataloader_drop_last = True\noptim = \"sgd\"\n",
                 "def main(lr):\n    return TrainingArguments(learning_rate=lr * 2, per_device_train_batch_size=2)\ndataloader_drop_last = True\noptim = \"sgd\"\n",
                 "(learning", "(gradient_accumulation_steps=8, bf16=True, learning"),
    "end.yaml": (HEAD + "...\n", HEAD.replace("16", "2") + "...\n", "...", NEW + "..."),
    "indent.yaml": ("  " + HEAD + "  optim: adamw_torch_fused", "  " + HEAD.replace("16", "2") + "  optim: adamw_torch_fused", "fused", "fused\n  gradient_accumulation_steps: 8\n  bf16: true"),
    "comma.yaml": ("# a, b,\n" + HEAD, "# a, b,\n" + HEAD.replace("16", "2"), "size: 2\n", "size: 2\n" + NEW),
    "mark.yaml": ("\ufeff" + HEAD.replace("\n", "\r\n"), "\ufeff" + HEAD.replace("16\n", "2\r\n"), "2\r\n", "2\r\n" + NEW.replace("\n", "\r\n")),
}
TABLES = "\n[parallelism]\ndata_parallel_shard_degree = 1\n\n[activation_checkpoint]\nmode = \"none\"\n"
EDITED_TOML = {
    "plain.toml": ("[training]\nlocal_batch_size = 64\n", "[training]\nglobal_batch_size = 16\nlocal_batch_size = 2\n" + TABLES),
    "dotted.toml": ("training.local_batch_size = 64\n", "training.global_batch_size = 16\ntraining.local_batch_size = 2\n" + TABLES),
    "inline.toml": ("training = {local_batch_size = 64}\n", "training = {global_batch_size = 16, local_batch_size = 2}\n" + TABLES),
    "empty.toml": ("[training]\n[activation_checkpoint.x]\nfoo = 1\n[parallelism]\n# c\n",
                   "[training]\nlocal_batch_size = 2\nglobal_batch_size = 16\n[activation_checkpoint.x]\nfoo = 1\n[parallelism]\ndata_parallel_shard_degree = 1\n# c\n\n[activation_checkpoint]\nmode = \"none\"\n"),
}


def write_bytes(name, text):
    with open(name, "wb") as f:
        f.write(text.encode())


for name, (text, new, at, to) in EDITED.items():
    write_bytes(name, text)
    code, out, err = call("emit", one, "--for", "hf", "--edit", name, "--force")
    got = open(name, "rb").read().decode()
    ok(code == 0 and got == new.replace(at, to, 1), "--edit of " + name, (code, err, got))
    code, out, err = call("emit", one, "--for", "hf", "--edit", name)
    ok(code == 0 and "nothing is to be changed" in out, "--edit of %s again" % name, (code, out, err))
for name, (text, new) in EDITED_TOML.items():
    write_bytes(name, text)
    code, out, err = call("emit", one, "--for", "torchtitan", "--edit", name, "--force")
    ok(code == 0 and open(name).read() == new, "--edit of " + name, (code, err, open(name).read()))
# what the plan counts none of is turned off, also where what the file says is no word of a setting; names that all versions take are written where nobody named one
ZERO = "compute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  offload_optimizer_device: cpu\n  zero_stage: 2\n  gradient_accumulation_steps: 4\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 4\n"
ADAPTERS = dict(tuning="lora", lora_r=8, lora_alpha=16, lora_dropout=0.0, lora_targets="q_proj+v_proj")
for name, target, also, text, wanted in (
        ("reentrant.yaml", "hf", {}, "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\ntorch_compile: true\nauto_find_batch_size: true\n", {"gradient_checkpointing": False, "torch_compile": False, "auto_find_batch_size": False}),
        ("newer.yaml", "hf", {"recompute": "full"}, "activation_checkpointing: false\n", {"activation_checkpointing": True}),
        ("either.yaml", "hf", {"recompute": "full"}, "optim: adamw_torch\n", {"gradient_checkpointing": True}),
        ("older.yaml", "hf", {"recompute": "full"}, "gradient_checkpointing: false\n", {"gradient_checkpointing": True}),
        ("packed.yaml", "trl", {"loss": "chunked"}, "model_name_or_path: x\nuse_peft: false\nload_in_4bit: true\nmax_length: 512\n", {"load_in_4bit": False}),
        ("bits.yaml", "llamafactory", {}, "stage: sft\nmodel_name_or_path: x\ntemplate: x\nfinetuning_type: full\nquantization_bit: 4\n", {"quantization_bit": None}),
        ("linear.yaml", "axolotl", ADAPTERS, "base_model: x\ndatasets: []\nadapter: lora\nload_in_8bit: true\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nsequence_len: 512\n", {"load_in_8bit": False, "lora_target_linear": False}),
        ("zero.yaml", "hf", {"parallel": "zero3", "world": 2}, ZERO, {"deepspeed_config.zero_stage": 3, "deepspeed_config.offload_optimizer_device": "none", "deepspeed_config.gradient_accumulation_steps": 8, "num_processes": 2})):
    wants = write("wants.json", {"schema_version": 1, "kind": "settings", "common": dict(COMMON, **dict({"world": 1, "parallel": "none", "offload": "none", "micro_batch": 2, "accumulation": 8, "recompute": "none", "seq": 512}, **also))})
    write(name, text)
    code, out, err = call("emit", wants, "--for", target, "--edit", name, "--force", "--json")
    changed = {c["key"]: c["to"] for c in json.loads(out)["changes"]} if code == 0 else {}
    ok(code == 0 and all(changed.get(k) == ("null" if v is None else str(v).lower()) for k, v in wanted.items()) and not any("ds_config" in str(v) or "fsdp" in k for k, v in changed.items()), "--edit of " + name, (code, err, changed))
    code, out, err = call("check", "--json", "--for", target, name)
    ok(not any(f["severity"] == "error" for f in json.loads(out)["findings"]), "and nothing contradicts: " + name, json.loads(out)["findings"])
code, out, err = call("emit", one, "--for", "hf", "--versions", "transformers=4.40")
ok(code == 2 and "known from 4.57 on" in err, "versions whose keys nobody read", (code, err))
write("linked.yaml", before)
os.link("linked.yaml", "other.yaml")
code, out, err = call("emit", one, "--for", "hf", "--edit", "linked.yaml", "--force")
ok(code == 4 and "2 names" in err and open("other.yaml").read() == before == open("linked.yaml").read(), "--edit of a file with two names", (code, err))
first = dict(COMMON, world=1, parallel="none", offload="none")
PAIRS = [(first, dict(first, **change)) for change in ({"micro_batch": 1, "seq": 512, "recompute": "none"}, {"precision": "bf16", "attention": "eager"},
                                                         {"recompute": "every:2", "clip_norm": 0.5, "optimizer": "adafactor"})]
PAIRS += [(b, a) for a, b in PAIRS]
n = 0
for target in "hf", "trl", "axolotl", "llamafactory", "ms-swift", "lightning", "litgpt", "megatron", "torch", "deepspeed", "accelerate", "torchtune":
    for a, b in PAIRS:
        if target == "trl":
            a, b = dict(a, loss="chunked"), dict(b, loss="chunked")
        if target == "litgpt":
            a, b = dict(a, clip_norm=0.0), dict(b, clip_norm=0.0)
        if target == "torch":
            a, b = dict(a, attention="sdpa"), dict(b, attention="sdpa")
        code, out, err = call("emit", write("a.json", dict(settings, common=a)), "--for", target, "-o", "edited", "--force", "--json")
        want = call("emit", write("b.json", dict(settings, common=b)), "--for", target, "-o", "wanted", "--force", "--json")
        if code or want[0]:
            continue
        want = json.loads(want[1])
        names = [f["path"].split("/")[1] for f in json.loads(out)["files"] if f["path"].split("/")[1] not in ("README.md", "train.py")]
        if sorted(names) != sorted(f["path"].split("/")[1] for f in want["files"] if f["path"].split("/")[1] not in ("README.md", "train.py")):
            continue
        for name in names:
            code, out, err = call("emit", "b.json", "--for", target, "--edit", "edited/" + name, "--force")
            if name.endswith((".flags", ".args")) and code == 4 and "inside an option's value" in err:
                os.replace("wanted/" + name, "edited/" + name)  # by hand
                call("emit", "b.json", "--for", target, "-o", "wanted", "--force")
                continue
            ok(code == 0, "%s: --edit %s" % (target, name), (a, b, err))
        got = json.loads(call("check", "--json", "--for", target, *["edited/" + x for x in names])[1])
        read = json.loads(call("check", "--json", "--for", target, *["wanted/" + x for x in names])[1])
        ok(got["common"] == read["common"] and not [f for f in got["findings"] if f["severity"] == "error"], "%s: edited is as written anew" % target, (a, b, got["common"], read["common"], [f for f in got["findings"] if f["severity"] == "error"]))
        n += 1
ok(n >= 30, "edits in place", "only %d" % n)
# ---- a loss that nobody said is TRL's own of the version that is written for, which is said; one that was said is not replaced ----
for versions, loss in (((), "chunked"), (("--versions", "trl=1.16"), "chunked"), (("--versions", "trl=1.12"), "full")):
    code, out, err = call("emit", write("unsaid.json", {"common": {"micro_batch": 2, "accumulation": 4, "seq": 1024, "precision": "bf16-amp", "optimizer": "adamw_torch_fused"}}), "--for", "trl", "-o", "unsaid", "--force", *versions)
    ok(code == 0 and "loss is not given: " + loss in out, "a loss that is not said, by TRL %s" % (versions,), (code, out, err))
    read = json.loads(call("check", "unsaid/sft.yaml", "unsaid/accelerate.yaml", "--json", *versions)[1])
    ok(read["common"]["loss"] == loss, "and read back", read["common"])
code, out, err = call("emit", write("said.json", {"common": {"micro_batch": 2, "accumulation": 4, "seq": 1024, "precision": "bf16-amp", "optimizer": "adamw_torch_fused", "loss": "full"}}), "--for", "trl")
ok(code == 4 and "cannot be told loss full" in err, "a loss that is said", (code, err))

# ---- what FSDP casts with all it gathers: packed weights are stored in the format it computes in ----
ADAPTERS = {"micro_batch": 2, "accumulation": 4, "world": 2, "seq": 1024, "optimizer": "adamw_torch_fused", "tuning": "qlora", "quant": "nf4", "lora_r": 16, "lora_alpha": 32,
            "lora_dropout": 0.0, "lora_targets": "q_proj+v_proj"}
for target, file, main in ("hf", "model_args.json", "training_args.yaml"), ("trl", "sft.yaml", "sft.yaml"):
    for parallel, precision, stored in (("fsdp2", "bf16-mixed", "bfloat16"), ("fsdp2", "bf16-amp", "bfloat16"), ("fsdp2", "fp32", "float32"), ("fsdp2", "fp16-mixed", "float16"), ("fsdp", "fp32", "float32"),
                                        ("fsdp", "bf16-mixed", None), ("fsdp", "fp16-mixed", None), ("ddp", "bf16-mixed", "")):
        if target == "trl" and precision.startswith("fp16"):
            continue  # it refuses GradScaler over its bf16 adapters
        name = write("packed.json", {"common": dict(ADAPTERS, parallel=parallel, precision=precision, loss="chunked" if target == "trl" else "full")})
        code, out, err = call("emit", name, "--for", target, "-o", "packed", "--force")
        if stored is None:
            ok(code == 4 and "FSDP1 joins weights of one format alone" in err, "%s: FSDP1 joins one format alone" % target, (code, err))
            continue
        text = open("packed/" + file).read()
        found = re.search(r'quant_storage"?: "?(\w+)', text)
        ok(code == 0 and (found[1] if found else "") == stored, "%s: %s by %s is stored as %s" % (target, precision, parallel, stored), (code, err, text))
        files = ["packed/" + f for f in sorted({file, main, "accelerate.yaml"} | ({"lora_config.json"} if target == "hf" else set()))]
        c = json.loads(call("check", "--json", "--for", target, *files)[1])
        ok(not [f for f in c["findings"] if "packed" in f["message"]], "and read without a finding", c["findings"])
        if parallel == "fsdp2" and precision == "bf16-mixed":
            for other, severity, what in ("float32", "error", "what was packed is lost"), ("uint8", "warning", "leaves them whole"):
                write("packed/" + file, re.sub(r'(quant_storage"?: "?)bfloat16', r"\g<1>" + other, text))
                found = [f for f in json.loads(call("check", "--json", "--for", target, *files)[1])["findings"] if what in f["message"]]
                ok(len(found) == 1 and found[0]["severity"] == severity and "bfloat16" in found[0]["instead"], "%s: stored as %s" % (target, other), found)
write("ddp.yaml", "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 1024\nper_device_train_batch_size: 2\nuse_peft: true\nload_in_4bit: true\nbf16: true\nbnb_4bit_quant_storage: float32\n")
write("ddp_cards.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: bf16\n")
c = json.loads(call("check", "--json", "ddp.yaml", "ddp_cards.yaml")[1])
ok(not [f for f in c["findings"] if f["severity"] == "error"], "cards that keep packed weights whole take any storage", c["findings"])

# ---- fp16 weights in autocast beside ZeRO: DeepSpeed's file says it too ----
for target in "hf", "axolotl", "llamafactory", "ms-swift":
    name = write("half.json", {"common": dict({k: v for k, v in ADAPTERS.items() if k != "quant"}, tuning="lora", parallel="zero2", precision="fp16-amp")})
    code, out, err = call("emit", name, "--for", target, "-o", "half", "--force")
    d = json.load(open("half/ds_config.json"))
    ok(code == 0 and d.get("fp16") == {"enabled": True} and d.get("bf16") == {"enabled": False}, target + ": fp16-amp in DeepSpeed's file", (code, err, d))

# ---- how cards share, where the user's own command says it: only what the trainer has ----
for target, parallel, want in (("torchtune", "fsdp2", 0), ("torchtune", "zero3", 4), ("torchtune", "ddp", 4), ("torchtune", "fsdp", 4), ("unsloth", "ddp", 0), ("unsloth", "zero2", 4), ("unsloth", "fsdp2", 4)):
    name = write("shared.json", {"common": {"micro_batch": 1, "accumulation": 1, "world": 2, "seq": 512, "parallel": parallel, "precision": "fp32", "optimizer": "adamw_torch_fused", "recompute": "full"}})
    code, out, err = call("emit", name, "--for", target)
    ok(code == want and (not want or "cannot be told parallel" in err), "%s by %s" % (target, parallel), (code, err))

# ---- torchtitan: one shard and one replica are one card ----
name = write("one.json", {"common": {"micro_batch": 1, "accumulation": 1, "seq": 512, "precision": "bf16-mixed", "optimizer": "adamw_torch_fused", "recompute": "full"}})
for versions in (), ("--versions", "torchtitan=0.2.2"):
    call("emit", name, "--for", "torchtitan", "-o", "one", "--force", *versions)
    c = json.loads(call("check", "--json", "one/" + ("torchtitan.toml" if versions else "vplan_recipe.py"), "--world", "1", *versions)[1])
    ok(c["common"]["parallel"] == "none", "torchtitan on one card", c["common"])

# ---- completions are of a method that makes some ----
for common, why in (({"completion": 64}, "common.completion is given, and common.method is sft"), ({"method": "dpo", "generator": "vllm"}, "common.generator is given, and common.method is dpo"), ({"method": "grpo", "completion": 64}, None),
                    ({"method": "grpo"}, "completions of 512 tokens leave no prompt in sequences of 512"), ({"method": "grpo", "completion": 64, "micro_batch": 11}, "whole groups of completions"),
                    ({"method": "grpo", "completion": 64, "micro_batch": 9}, None)):
    code, out, err = call("emit", write("grpo.json", {"common": dict({"micro_batch": 8, "accumulation": 1, "seq": 512, "precision": "bf16-mixed", "optimizer": "adamw_torch_fused", "recompute": "full"}, **common)}), "--for", "trl", "-o", "grpo", "--force")
    ok(code == (4 if why else 0) and (why or "") in err, "%s" % common, (code, err))
out = call("emit", write("grpo.json", {"common": {"method": "grpo", "micro_batch": 4, "accumulation": 1, "seq": 512, "completion": 300, "generator": "model", "precision": "bf16-mixed", "optimizer": "adamw_torch_fused", "recompute": "full"}}),
           "--for", "trl", "--edit", write("mine.yaml", "model_name_or_path: a/b\nper_device_train_batch_size: 8\nnum_generations: 4\nbeta: 0.04\nuse_vllm: true\nmax_completion_length: 256\noutput_dir: o\n"))[1]
ok("+ per_device_train_batch_size: 4" in out and "+ max_completion_length: 300" in out and "+ use_vllm: false" in out and "beta" not in out.split("written")[0] and "num_generations" not in out.split("written")[0], "of people's own files only what must change does", out)

# ---- axolotl: what its own validation refuses of three keys ----
PAIRS_OF = dict(ADAPTERS, method="dpo", precision="bf16-amp")
for change, why in (({"parallel": "fsdp2"}, "pairs over quantised weights under FSDP2"), ({"parallel": "ddp", "recompute": "full:reentrant"}, "for pairs beside qlora on several cards"),
                    ({"parallel": "fsdp2", "method": "sft"}, None), ({"parallel": "none", "world": 1, "recompute": "full:reentrant"}, None), ({"parallel": "ddp", "recompute": "full"}, None)):
    code, out, err = call("emit", write("pairs.json", {"common": dict(PAIRS_OF, **change)}), "--for", "axolotl", "-o", "pairs", "--force")
    ok(code == (4 if why else 0) and (why or "") in err, "axolotl: %s" % change, (code, err))
write("pairs.yaml", "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\nsequence_len: 512\nrl: dpo\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nbf16: true\n"
      "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n")
found = [f for f in json.loads(call("check", "--json", "pairs.yaml")[1])["findings"] if f["severity"] == "error"]
ok([(f["key"], f["line"]) for f in found] == [("load_in_4bit", 6)], "and check says it at its line", found)

# ---- --edit of one of several files: what the others say is named ----
write("one_of.yaml", "output_dir: out\nper_device_train_batch_size: 4\n")
name = write("one_of.json", {"common": {"micro_batch": 1, "accumulation": 1, "world": 2, "seq": 512, "parallel": "zero2", "offload": "optimizer", "precision": "bf16-amp", "optimizer": "adamw_torch_fused", "attention": "flash2"}})
elsewhere = json.loads(call("emit", name, "--for", "hf", "--edit", "one_of.yaml", "--json")[1])["elsewhere"]
ok({e["setting"]: e["file"] for e in elsewhere} == {"parallel": "accelerate.yaml", "world": "accelerate.yaml", "offload_optimizer": "ds_config.json", "attention": "model_args.json"}, "settings of the other files", elsewhere)
out = call("emit", name, "--for", "hf", "--edit", "one_of.yaml")[1]
ok("elsewhere  offload_optimizer cpu: ds_config.json says it" in out, "and on the screen", out)
call("emit", name, "--for", "hf", "-o", "one_of", "--force")
for file in "training_args.yaml", "accelerate.yaml", "ds_config.json":
    elsewhere = json.loads(call("emit", name, "--for", "hf", "--edit", "one_of/" + file, "--json")[1])["elsewhere"]
    ok(all(e["file"] != file for e in elsewhere), file + ": what it says itself is not elsewhere", elsewhere)

finish()
P
