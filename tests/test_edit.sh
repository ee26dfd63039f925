#!/bin/bash
# tests/test_edit.sh: vplan emit --edit in files with lists, maps and switches of Liger's: what must go goes, whatever its shape, and the rest stays as
# it is written. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import json, os, subprocess, sys

sys.path.insert(0, "tests")
from check import caller, finish, ok

vplan, work, root = sys.argv[1:4]
call = caller(vplan)
os.chdir(work)


def write(name, text):
    with open(name, "wb") as f:
        f.write((text if isinstance(text, str) else json.dumps(text)).encode())
    return name


def read(name):
    with open(name, "rb") as f:
        return f.read().decode()


COMMON = dict(micro_batch=4, accumulation=8, world=1, seq=2048, precision="bf16-amp", optimizer="adamw_torch_fused", recompute="none", attention="sdpa", parallel="none")


def edit(what, target, name, text, want, **change):
    """The file as it is wanted; then nothing is left to change, and check reads the loss that was asked for and no error."""
    write("s.json", {"common": dict(COMMON, **change)})
    code, out, err = call("emit", "s.json", "--for", target, "--edit", write(name, text), "--force")
    ok(code == 0 and read(name) == want, what, (code, err, read(name)))
    again = call("emit", "s.json", "--for", target, "--edit", name)
    ok(again[0] == 0 and "nothing is to be changed" in again[1], what + ": again", again)
    c = json.loads(call("check", "--json", "--for", target, name)[1])
    ok(c["common"].get("loss") == change["loss"] and not [f for f in c["findings"] if f["severity"] == "error"], what + ": read back", (c["common"], c["findings"]))


def refused(what, target, name, text, why, **change):
    write("s.json", {"common": dict(COMMON, **change)})
    code, out, err = call("emit", "s.json", "--for", target, "--edit", write(name, text), "--force")
    ok(code == 4 and why in err and read(name) == text, what, (code, err))


# ---- axolotl's plugins: one comes or goes, the user's others stay as they are written ----
L, C = "axolotl.integrations.liger.LigerPlugin", "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
HEAD = "base_model: gpt2\nmicro_batch_size: 4\ngradient_accumulation_steps: 8\nsequence_len: 2048\nbf16: true\n"
ON = "liger_fused_linear_cross_entropy: true\n"
for what, has, gone, come in (
        ("in one line", "plugins: [a.b.C, %s]  # both\n" % L, "plugins: [a.b.C]  # both\n", None),
        ("the first", "plugins: [%s, a.b.C]\n" % L, "plugins: [a.b.C]\n", None),
        ("quoted", "plugins: ['a.b.C', \"%s\", d.e.F]\n" % L, "plugins: ['a.b.C', d.e.F]\n", None),
        ("the only one", "plugins: [%s]\n" % L, "", None),
        ("another loss's plugin", "plugins: [a.b.C, %s]\n" % C, "plugins: [a.b.C]\n", "plugins: [a.b.C, %s]\n" % L),
        ("only another loss's plugin", "plugins:\n  - %s  # why\n" % C, "", "plugins:\n  - %s  # why\n" % L),
        ("over lines", "plugins: [\n  a.b.C,  # mine\n  # next\n  %s,\n]\n" % L, "plugins: [\n  a.b.C,  # mine\n  # next\n]\n", None),
        ("over lines, the first", "plugins: [\n  %s,\n  a.b.C ]\n" % L, "plugins: [\n  a.b.C ]\n", None),
        ("with commas first", "plugins: [\n  %s\n  , a.b.C\n]\n" % L, "plugins: [\n  a.b.C\n]\n", None),
        ("below its key", "plugins:\n  [a.b.C, %s]\n" % L, "plugins:\n  [a.b.C]\n", None),
        ("as a block", "plugins:\n  - a.b.C  # mine\n  # other\n  - %s  # theirs\n" % L, "plugins:\n  - a.b.C  # mine\n  # other\n", None),
        ("as a block without an indent", "plugins:\n- %s\n- a.b.C\n" % L, "plugins:\n- a.b.C\n", None),
        ("as a block of its own", "plugins:   # those\n  - %s\n# after\n" % L, "# after\n", None),
        ("by another way to its module", "plugins: [axolotl.integrations.liger.plugin.LigerPlugin, a.b.C]\n", "plugins: [a.b.C]\n", None),
        ("none of Liger's", "plugins: [a.b.C]\n", "plugins: [a.b.C]\n", "plugins: [a.b.C, %s]\n" % L),
        ("none of Liger's, in quotes", 'plugins: ["a.b.C"]\n', 'plugins: ["a.b.C"]\n', 'plugins: ["a.b.C", "%s"]\n' % L),
        ("none of Liger's, over lines", "plugins: [\n  a.b.C,  # mine\n]\n", "plugins: [\n  a.b.C,  # mine\n]\n", "plugins: [\n  a.b.C,\n  %s,  # mine\n]\n" % L),
        ("none of Liger's, as a block", "plugins:\n  - a.b.C  # mine\n", "plugins:\n  - a.b.C  # mine\n", "plugins:\n  - a.b.C  # mine\n  - %s\n" % L),
        ("empty", "plugins: []\n", "plugins: []\n", "plugins: [%s]\n" % L),
        ("nothing", "plugins:\n", "plugins:\n", "plugins: [%s]\n" % L)):
    for eol in "\n", "\r\n":
        lines = lambda text: text.replace("\n", eol)
        edit("plugins %s: off, %r" % (what, eol), "axolotl", "ax.yaml", lines(has + HEAD + ON), lines(gone + HEAD), loss="full")
        edit("plugins %s: on, %r" % (what, eol), "axolotl", "ax.yaml", lines(has + ON + HEAD), lines((come or has) + ON + HEAD), loss="liger")
# the last line without an end
edit("a block at the file's end", "axolotl", "ax.yaml", HEAD + ON + "plugins:\n  - a.b.C", HEAD + ON + "plugins:\n  - a.b.C\n  - %s" % L, loss="liger")
refused("a list that is another's", "axolotl", "ax.yaml", "x: &p [a.b.C, %s]\nplugins: *p\n" % L + HEAD + ON, "does not stand there itself", loss="full")
refused("a dash in another line", "axolotl", "ax.yaml", "plugins:\n  - a.b.C\n  -\n    %s\n" % L + HEAD + ON, "dash", loss="full")

# ---- what Liger is asked for goes with it; a neighbour that is edited as well, and a comment, stay ----
KEYS = "liger_rope: true\nliger_rms_norm: true\nliger_glu_activation: true\n# mine\nliger_layer_norm: true\n"
LIST = "plugins: [a.b.C, %s]\n" % L
TWO = HEAD.replace("size: 4", "size: 2")
for loss, new in (("full", ""), ("chunked", "chunked_cross_entropy: true\n")):
    edit("kernels go: " + loss, "axolotl", "ax.yaml", LIST + KEYS + ON + TWO, "plugins: [a.b.C]\n# mine\n" + HEAD + new, loss=loss)
    edit("a kernel and no loss goes: " + loss, "axolotl", "ax.yaml", LIST + "liger_rms_norm: true\n" + TWO, "plugins: [a.b.C]\n" + HEAD + new, loss=loss)
    edit("Liger's other loss goes: " + loss, "axolotl", "ax.yaml", TWO + LIST + "liger_cross_entropy: true\nliger_use_token_scaling: true\nliger_swiglu: true\n", HEAD + "plugins: [a.b.C]\n" + new, loss=loss)
    edit("another's loss goes: " + loss, "axolotl", "ax.yaml", TWO + LIST.replace(L, C) + "cut_cross_entropy: true\n", HEAD + "plugins: [a.b.C]\n" + new, loss=loss)
    edit("what is off stays: " + loss, "axolotl", "ax.yaml", "plugins: [a.b.C]\n" + KEYS.replace("true", "false") + HEAD, "plugins: [a.b.C]\n" + KEYS.replace("true", "false") + HEAD + new, loss=loss)
edit("all kernels, of which one has its old name", "axolotl", "ax.yaml", HEAD + LIST + "liger_swiglu: true\nliger_rope: true\nliger_rms_norm: true\n" + ON, HEAD + LIST + "liger_rope: true\nliger_rms_norm: true\n" + ON + "liger_glu_activation: true\n", loss="liger-all")
# what is not switched on is no mistake
findings = json.loads(call("check", "--json", write("off.yaml", HEAD + "liger_rope: false\nliger_cross_entropy: false\ncut_cross_entropy: false\nliger_rms_norm: true\n"))[1])["findings"]
ok({f["key"]: f["severity"] for f in findings if "plugin" in f["message"]} == {"liger_rope": "note", "liger_cross_entropy": "note", "cut_cross_entropy": "note", "liger_rms_norm": "error"}, "false without its plugin", findings)

# ---- Trainer's map of Liger's kernels, as people write it ----
hf = dict(precision="bf16-mixed")
T = "per_device_train_batch_size: 4\ngradient_accumulation_steps: 8\nbf16: true\nuse_liger_kernel: true\n"
SOME = "rope: false, rms_norm: false, swiglu: false, cross_entropy: false"
for what, has, left in (("block", "liger_kernel_config:\n  rope: false  # no\n  # why\n  rms_norm: false\n# after\n", "# after\n"), ("flow", "liger_kernel_config: {rope: false}  # x\n", ""), ("flow over lines", "liger_kernel_config: {\n  rope: false, # }\n}\n", ""),
                        ("flow below its key", "liger_kernel_config:\n  {rope: false}\n", ""), ("empty", "liger_kernel_config: {}\n", ""), ("anchor", "liger_kernel_config: &l\n  rope: false\n", ""), ("text", "liger_kernel_config: '{\"rope\": false}'\n", "")):
    for loss in "full", "liger-all":
        new = T.replace("kernel: true", "kernel: " + ("false" if loss == "full" else "true"))
        edit("%s in YAML: %s" % (what, loss), "hf", "hf.yaml", T + has + "seed: 1\n", new + left + "seed: 1\n", loss=loss, **hf)
        edit("%s at the end: %s" % (what, loss), "hf", "hf.yaml", T + has, new + left, loss=loss, **hf)
edit("a map that is null gets members", "hf", "hf.yaml", T + "liger_kernel_config: null  # x\n", T + "liger_kernel_config: {%s}  # x\n" % SOME, loss="liger", **hf)
edit("a map that is empty gets members", "hf", "hf.yaml", T + "liger_kernel_config: {}\n", T + "liger_kernel_config: {%s}\n" % SOME, loss="liger", **hf)
refused("a map that is text", "hf", "hf.yaml", T + "liger_kernel_config: '{\"rope\": false}'\n", "no map there", loss="liger", **hf)
J = '"per_device_train_batch_size": 4, "gradient_accumulation_steps": 8, "bf16": true, "use_liger_kernel": '
M = '"liger_kernel_config": {"rope": false, "rms_norm": false}'
for what, has, want in (("the last", "{%strue, %s}\n" % (J, M), "{%sfalse}\n" % J), ("the first", "{%s, %strue}\n" % (M, J), "{%sfalse}\n" % J),
                        ("the last in lines", '{\n  %strue,\n  "liger_kernel_config": {\n    "rope": false\n  }\n}\n' % J, "{\n  %sfalse\n}\n" % J), ("the first in lines", '{\n  "liger_kernel_config": {\n    "rope": false\n  },\n  %strue\n}\n' % J, "{\n  %sfalse\n}\n" % J)):
    edit(what + " in JSON", "hf", "hf.json", has, want, loss="full", **hf)
A = "args = TrainingArguments('o', per_device_train_batch_size=4, gradient_accumulation_steps=8, bf16=True, use_liger_kernel=True%s)\n"
for what, has, left in (("in a line", ", liger_kernel_config={'rope': False}", ""), ("in lines", ",\n    liger_kernel_config={\n        'rope': False,\n    },  # c\n    seed=1,\n", ",\n    seed=1,\n"), ("by dict()", ", liger_kernel_config=dict(rope=False), seed=1", ", seed=1")):
    edit(what + " in Python", "hf", "hf.py", A % has, A.replace("kernel=True", "kernel=False") % left, loss="full", **hf)
edit("members beside one in Python's quotes", "hf", "hf.py", A % ", liger_kernel_config={'rope': False}", A % (", liger_kernel_config={\"rms_norm\": False, \"swiglu\": False, \"cross_entropy\": False, 'rope': False}"), loss="liger", **hf)
RUN = "python train.py --per_device_train_batch_size 4 --gradient_accumulation_steps 8 \\\n    --bf16 True --use_liger_kernel %s%s\n"
for what, has, left in (("among options", " --liger_kernel_config '{\"rope\": false}' --seed 1", " --seed 1"), ("at a command's end", " --liger_kernel_config '{\"rope\": false}'", ""), ("in a line", " \\\n    --liger_kernel_config '{\"rope\": false}' \\\n    --seed 1", " \\\n    --seed 1"),
                        ("in the last line", " \\\n    --liger_kernel_config '{\"rope\": false}'", "")):
    edit(what, "hf", "hf.sh", RUN % ("True", has), RUN % ("false", left), loss="full", **hf)
# ---- the difference: what goes, then what comes in its place, with the numbers of the old lines ----
write("s.json", {"common": dict(COMMON, loss="full")})
out = call("emit", "s.json", "--for", "axolotl", "--edit", write("ax.yaml", "plugins: [a.b.C]\nliger_rms_norm: true\n" + TWO))[1]
ok(out.startswith("ax.yaml\n    2 - liger_rms_norm: true\n") and "    4 - micro_batch_size: 2\n    4 + micro_batch_size: 4\n" in out, "lines that go and lines that change", out)
out = call("emit", "s.json", "--for", "axolotl", "--edit", write("ax.yaml", HEAD.replace("micro_batch_size: 4", "liger_rms_norm: true\nmicro_batch_size: 2")))[1]
ok("ax.yaml\n    2 - liger_rms_norm: true\n    3 - micro_batch_size: 2\n    3 + micro_batch_size: 4\n" in out, "a line that goes before one that changes", out)

# ---- what cuts the weights in another way than is meant goes, with the offload that stands in it; what cuts them is written where nothing does ----
CUTS = "# sharding\nfsdp_version: 2\nfsdp_config:\n  offload_params: true  # host\n  # wrap\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  reshard_after_forward: true\n"
OLD = "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config: {fsdp_offload_params: true,\n  fsdp_state_dict_type: FULL_STATE_DICT}\n"
WITH = "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"
zero, cut = dict(world=4, parallel="zero2", loss="full"), dict(world=4, parallel="fsdp2", loss="full")
for what, has, left, change in (("FSDP2 for one card", CUTS, "# sharding\n", dict(loss="full")), ("FSDP1 for one card", OLD, "", dict(loss="full")), ("a version alone", "fsdp_version: 2\n", "", dict(loss="full")),
                                ("FSDP2 without its offload", CUTS, CUTS.replace("offload_params: true", "offload_params: false"), cut),
                                ("FSDP1 for FSDP2", OLD, OLD[OLD.index("fsdp_config"):].replace("fsdp_offload_params: true,", ""), cut)):
    edit(what, "axolotl", "ax.yaml", has + HEAD, left + HEAD + ("fsdp_version: 2\n" if what == "FSDP1 for FSDP2" else ""), **change)
edit("FSDP2 for ZeRO", "axolotl", "ax.yaml", CUTS + HEAD, "# sharding\n" + HEAD + "deepspeed: ds_config.json\n", **zero)
edit("ZeRO for FSDP2", "axolotl", "ax.yaml", "deepspeed: mine.json  # two\n" + HEAD, HEAD + WITH, **cut)
edit("a version alone for FSDP2", "axolotl", "ax.yaml", "fsdp_version: 2\n" + HEAD, "fsdp_version: 2\n" + HEAD + WITH[WITH.index("fsdp_config"):], **cut)
for text, way in (("fsdp_version: 2\n", None), (WITH, "fsdp2"), ("fsdp_version: 2\nfsdp_config:\n  offload_params: false\n", "fsdp2"), ("fsdp: [full_shard]\nfsdp_version: 2\n", "fsdp2"), (OLD, "fsdp")):
    c = json.loads(call("check", "--json", "--for", "axolotl", "--world", "4", write("ax.yaml", text + HEAD))[1])["common"]
    ok(c["parallel"] == (way or "ddp"), "axolotl cuts weights where fsdp_config or fsdp is written: " + text, c)

# ---- an option's JSON is written anew, with what it had; a word is no truth value; a default that moves with another key is written ----
NEW = "'{\"rope\": false,%s\"rms_norm\": false,\"swiglu\": false,\"cross_entropy\": false}'"
edit("members of an option's map", "hf", "hf.sh", RUN % ("True", " --liger_kernel_config '{\"rope\": false, \"geglu\": true}' --seed 1"), RUN % ("True", " --liger_kernel_config %s --seed 1" % (NEW % '"geglu": true,')), loss="liger", **hf)
edit("an option with a map that is new", "hf", "hf.sh", RUN % ("True", ""), (RUN % ("True", "")).replace("--per", "--liger_kernel_config %s --per" % (NEW % "")), loss="liger", **hf)
EVAL = RUN % ("false", " --eval_strategy steps --per_device_eval_batch_size 2")
edit("no evaluation, on a command line", "hf", "hf.sh", EVAL, EVAL.replace(" steps ", " no "), loss="full", **hf)
edit("as many samples as before, of another micro-batch", "axolotl", "ax.yaml", TWO + "val_set_size: 0.0\n", HEAD + "val_set_size: 0.05\neval_batch_size: 2\n", loss="full", eval_batch=2)
# what only DeepSpeed's file would say, LLaMA-Factory's own says otherwise
for change in dict(precision="bf16-amp"), dict(precision="bf16-mixed", tuning="lora", lora_r=8, lora_alpha=16, lora_dropout=0.0, lora_targets="all-linear"):
    write("s.json", {"common": dict(COMMON, loss="full", parallel="zero2", world=2, **change)})
    code, out, err = call("emit", "s.json", "--for", "llamafactory")
    ok(code == 4 and "cannot be told precision " + change["precision"] in err, "no word of LLaMA-Factory: %s" % change, (code, err))

# ---- the command that asks whether it is right now means the same run: whose files, how many processes, what the environment holds ----
FOUR = dict(COMMON, world=4, parallel="ddp", loss="full")
CONF = "PYTORCH_ALLOC_CONF=expandable_segments:True"
SAYS = "base_model: gpt2\n" + HEAD[HEAD.index("micro"):]


def typed(out):
    """The command behind "check", as it is typed."""
    lines = out[out.index("\ncheck ") + 1:].split("\n")
    n = next(i for i, line in enumerate(lines) if not line.endswith("\\")) + 1
    return "\n".join(lines[:n]).split(None, 1)[1]


def run(command):
    p = subprocess.run(["bash", "-c", command.replace("vplan check", "vplan check --json", 1)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, PATH=os.path.dirname(vplan) + ":" + os.environ["PATH"]))
    return json.loads(p.stdout or b"{}")


for target, name, text, says in (("axolotl", "ax.yaml", SAYS, False), ("hf", "hf.yaml", T, False), ("hf", "acc.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 2\n", True)):
    for allocator in "default", "expandable":
        write("s.json", {"common": dict(FOUR, allocator=allocator, precision="bf16-amp" if target == "axolotl" else "bf16-mixed")})
        code, out, err = call("emit", "s.json", "--for", target, "--edit", write(name, text), "--force")
        command = typed(out)
        c = run(command)
        ok(code == 0 and ("--world 4" in command) == (not says) and "--for " + target in command and (CONF in command) == (allocator == "expandable"), "check after --edit of %s, %s" % (name, allocator), (command, err))
        ok(c["common"]["world"] == 4 and c["common"].get("allocator", "default") == allocator and (says or target == "hf" or c["common"]["parallel"] == "ddp"), "and it judges that run: %s, %s" % (name, allocator), c["common"])
        code, out, err = call("emit", "s.json", "--for", target, "-o", "new", "--force")
        command = typed(out)
        c = run(command)
        ok(code == 0 and ("--world 4" in command) == (target == "axolotl") and (CONF in command) == (allocator == "expandable") and c["common"]["world"] == 4 and c["common"].get("allocator", "default") == allocator
           and command.split("--world")[0].count("yaml") >= 1 and not [f for f in c["findings"] if f["severity"] == "error"], "check of new files for %s, %s" % (target, allocator), (command, c["common"]))
        ok(("--world 4" in open("new/README.md").read()) == (target == "axolotl"), "and in their README", open("new/README.md").read())
# ---- the first layers' checkpoints: another word takes all their keys along ----
def recomputes(what, target, name, text, want, word):
    write("s.json", {"common": dict(COMMON, recompute=word, attention="flash2" if target == "megatron" else "sdpa", precision="bf16-mixed")})
    code, out, err = call("emit", "s.json", "--for", target, "--edit", write(name, text), "--force")
    ok(code == 0 and read(name) == want, what, (code, err, read(name)))
    c = json.loads(call("check", "--json", "--for", target, name)[1])
    ok(c["common"].get("recompute", "none") == word and not [f for f in c["findings"] if f["severity"] == "error"], what + ": read back", (c["common"], c["findings"]))


MODEL = '{\n  "pretrained_model_name_or_path": "gpt2",\n  "dtype": "float32",%s\n  "attn_implementation": "sdpa",\n  "sequence_length": 2048\n}\n'
LAYERS = MODEL % '\n  "gradient_checkpointing_layers": %s,'
recomputes("fewer first layers", "hf", "model_args.json", LAYERS % 5, LAYERS % 3, "first:3")
recomputes("no first layers", "hf", "model_args.json", LAYERS % 5, MODEL % "", "none")
for word in ("full", "every:2"):  # which training_args.json says
    write("s.json", {"common": dict(COMMON, recompute=word, precision="bf16-mixed")})
    code, out, err = call("emit", "s.json", "--for", "hf", "--edit", write("model_args.json", LAYERS % 5), "--force")
    ok(code == 0 and read("model_args.json") == MODEL % "", "first layers, then " + word, (code, err, read("model_args.json")))
ARGS = ("--nproc_per_node 1 pretrain_gpt.py --use-mcore-models\n--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --context-parallel-size 1\n--micro-batch-size 4 --global-batch-size 32 "
        "--seq-length 2048 --clip-grad 1.0 --bf16 --optimizer adam --attention-backend flash\n%s")
FIRST = ARGS % "--recompute-granularity full\n--recompute-method block\n--recompute-num-layers %s\n"
recomputes("Megatron's first layers", "megatron", "m.args", FIRST % 5, FIRST % 7, "first:7")
recomputes("Megatron's none", "megatron", "m.args", FIRST % 5, ARGS % "", "none")
recomputes("Megatron's selective", "megatron", "m.args", FIRST % 5, ARGS % "--recompute-granularity selective\n", "selective")
for target, name, key in (("torch", "vplan_settings.py", "recompute"), ("torchtitan", "vplan_recipe.py", "activation_checkpoint")):
    write("s.json", {"common": dict(COMMON, accumulation=1, recompute="first:5", precision="bf16-mixed")})
    call("emit", "s.json", "--for", target, "-o", "x", "--force")
    good = read("x/" + name)
    for word in ("first:0", "first:-1", "first:x", "every:0", "first:"):
        code, out, err = call("check", "--json", "--for", target, write(name, good.replace("first:5", word)))
        found = [f for f in json.loads(out)["findings"] if f["severity"] == "error"]
        ok(code == 4 and len(found) == 1 and found[0]["line"] and word + " is no " + word.split(":")[0] + ":" in found[0]["message"], "%s of %s is refused" % (word, target), (code, found))
    for word in ("first:1", "first:16", "every:3", "blocks:0+4"):
        ok(call("check", "--for", target, write(name, good.replace("first:5", word)))[0] == 0, "%s of %s is not" % (word, target))

# ---- ways to share the model that one card, or copies of it, have not ----
for way, has in (("FSDP", "fsdp: full_shard auto_wrap  # why\nfsdp_config:\n  fsdp_version: 2\n"), ("FSDP1 in a list", "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config: {xla: false}\n"), ("DeepSpeed", "deepspeed: ds.json\n")):
    for parallel, world in (("none", 1), ("ddp", 4)):
        edit("%s goes for %s" % (way, parallel), "hf", "hf.yaml", T + has + "seed: 1\n", T + "seed: 1\n", loss="liger-all", parallel=parallel, world=world, **hf)

# ---- GaLore by LLaMA-Factory's own keys stays said by them, and is switched off where another optimizer is wanted ----
FULL = "model_name_or_path: gpt2\nstage: sft\nfinetuning_type: full\ncutoff_len: 2048\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 8\npure_bf16: true\ndisable_gradient_checkpointing: true\nflash_attn: sdpa\n"
OWN = "use_galore: true  # why\ngalore_target: all\ngalore_rank: 128\noptim: adamw_torch\n"
for word, then in (("galore_adamw:rank=8,targets=mlp", OWN.replace("all", "mlp").replace("128", "8")), ("galore_adamw_8bit:targets=.*[.].*", OWN.replace("adamw_torch", "adamw_8bit")),
                   ("adamw_torch_fused", OWN.replace("galore: true", "galore: false").replace("adamw_torch", "adamw_torch_fused")),
                   ("apollo_adamw:targets=attn", OWN.replace("galore: true", "galore: false").replace("adamw_torch", "apollo_adamw") + "optim_target_modules: [attn]\n")):
    edit("GaLore becomes " + word, "llamafactory", "lf.yaml", FULL + OWN, FULL + then, loss="full", tuning="full", precision="bf16", optimizer=word)
refused("the head's projection, which LLaMA-Factory's own GaLore has not", "llamafactory", "lf.yaml", FULL + OWN, "optimizer", loss="full", tuning="full", precision="bf16", optimizer="galore_adamw:targets=all-linear")

# ---- an older spelling beside the one that is written: it goes, or is written anew where it says something else too ----
OLDER = "base_model: gpt2\nmicro_batch_size: 4\ngradient_accumulation_steps: 8\nsequence_len: 2048\nbf16: true\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_dropout: 0.0\nlora_target_linear: true\nval_set_size: 0.0\nmax_grad_norm: 1.0\noptimizer: adamw_torch_fused\n"
LORA = dict(loss="full", tuning="lora", lora_r=16, lora_alpha=32, lora_dropout=0.0, lora_targets="all-linear", eval_batch="none")
for key in "flash_attention", "sdp_attention", "eager_attention", "flex_attention":
    for word, written in (("sdpa", "sdpa"), ("eager", "eager"), ("flash2", "flash_attention_2")):
        same = key == {"sdpa": "sdp", "eager": "eager", "flash2": "flash"}[word] + "_attention"
        edit("%s: true becomes %s" % (key, word), "axolotl", "a.yml", OLDER + "%s: true\n" % key, OLDER + ("%s: true\n" % key if same else "attn_implementation: %s\n" % written), attention=word, **LORA)
edit("a boolean of no kernel stays", "axolotl", "a.yml", OLDER + "flash_attention: false\n", OLDER + "flash_attention: false\nattn_implementation: eager\n", attention="eager", **LORA)
code, out, err = call("emit", write("s.json", {"common": dict(COMMON, recompute="full", offload="none", **LORA)}), "--for", "axolotl", "--edit", write("a.yml", OLDER + "gradient_checkpointing: offload  # once\n"), "--force")
ok(code == 0 and "gradient_checkpointing: true  # once\n" in read("a.yml"), "checkpoints that are offloaded become checkpoints", (code, err, read("a.yml")))

code, out, err = call("emit", write("s.json", {"common": dict(COMMON, **LORA)}), "--for", "axolotl", "--edit", write("a.yml", OLDER.replace("gradient_accumulation_steps: 8", "batch_size: 8").replace("micro_batch_size: 4", "micro_batch_size: 2")), "--force")
ok(code == 0 and "micro_batch_size: 4\n" in read("a.yml") and "batch_size: 32\n" in read("a.yml"), "batch_size is that of a process: 4 x 8", (code, err, read("a.yml")))

# ---- another way to share: what stands beside it would be refused at launch ----
ZERO = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: zero1.json\nnum_processes: 2\nnum_machines: 1\nmachine_rank: 0\n"
one = dict(micro_batch=4, accumulation=8, world=1, precision="bf16-mixed", optimizer="adamw_torch_fused", recompute="none", attention="sdpa", parallel="none", loss="full")
code, out, err = call("emit", write("s.json", {"common": dict(one, seq=2048)}), "--for", "accelerate", "--edit", write("acc.yaml", ZERO), "--force")
ok(code == 0 and "deepspeed_config" not in read("acc.yaml") and "mixed_precision: bf16" in read("acc.yaml") and call("check", "acc.yaml", "--for", "accelerate")[0] == 0, "one card: a DeepSpeed file goes", (code, err, read("acc.yaml")))
FSDP1 = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_use_orig_params: true\nmixed_precision: bf16\nnum_processes: 4\n"
code, out, err = call("emit", write("s.json", {"common": dict(one, seq=2048, world=4, parallel="fsdp2")}), "--for", "accelerate", "--edit", write("acc.yaml", FSDP1), "--force")
ok(code == 0 and not any(k in read("acc.yaml") for k in ("sharding_strategy", "backward_prefetch", "use_orig_params")) and call("check", "acc.yaml", "--for", "accelerate")[0] == 0, "FSDP2: keys of FSDP1 go", (code, err, read("acc.yaml")))

# ---- what the trainer would refuse then is not written ----
PRO = "model_name_or_path: x\nstage: sft\nfinetuning_type: freeze\nfreeze_trainable_layers: 8\nfreeze_trainable_modules: all\nuse_llama_pro: true\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 8\ncutoff_len: 2048\nbf16: true\n"
refused("LLaMA Pro of full tuning", "llamafactory", "lf.yaml", PRO, "use_llama_pro: with these settings the file would be wrong here", loss="full", tuning="full", precision="bf16-mixed")

# ---- litgpt's optimizer: members change, what a class does not take goes ----
LIT = "checkpoint_dir: x\nprecision: bf16-true\ndevices: 1\ntrain:\n  micro_batch_size: 4\n  global_batch_size: 32\n  max_seq_length: 2048\n"
CLASS = "optimizer:\n  class_path: torch.optim.AdamW  # ours\n  init_args:\n    lr: 0.0002\n    betas: [0.9, 0.95]\n"
for word, then in (("adamw_torch_fused", CLASS.replace("args:\n", "args:\n    fused: true\n")), ("adamw_8bit", CLASS.replace("torch.optim.AdamW", "bitsandbytes.optim.AdamW8bit").replace("args:\n", "args:\n    min_8bit_size: 4096\n")),
                   ("sgd", CLASS.replace("AdamW", "SGD").replace("args:\n", "args:\n    foreach: true\n").replace("    betas: [0.9, 0.95]\n", ""))):
    write("s.json", {"common": dict(COMMON, precision="bf16", optimizer=word, clip_norm=0.0)})
    code, out, err = call("emit", "s.json", "--for", "litgpt", "--edit", write("l.yaml", LIT + CLASS), "--force")
    ok(code == 0 and read("l.yaml") == LIT + then, "litgpt's AdamW becomes " + word, (code, err, read("l.yaml")))
    c = json.loads(call("check", "--json", "--for", "litgpt", "l.yaml")[1])
    ok(c["common"].get("optimizer") == word and not [f for f in c["findings"] if f["severity"] == "error"], "and is read back", c)

# ---- the settings themselves are no trainer's file ----
refused("a file of settings", "hf", "own.json", json.dumps({"schema_version": 1, "kind": "settings", "common": COMMON}), "no trainer reads", loss="full", **hf)

# ---- arguments that are made where the trainer is given them: Python's own reader finds the new keys in their call ----
import ast
for text in ("Trainer(model=m, args=TrainingArguments('o', per_device_train_batch_size=4)).train()", "t = Trainer(m, TrainingArguments(output_dir='o', per_device_train_batch_size=4))",
             "t = SFTTrainer(\n    model=m,\n    args=SFTConfig(\n        per_device_train_batch_size=4,\n        output_dir='o',\n    ),\n)"):
    write("inner.py", "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nfrom trl import SFTConfig, SFTTrainer\nm = AutoModelForCausalLM.from_pretrained('gpt2', dtype='float32')\n" + text + "\n")
    target = "trl" if "SFT" in text else "hf"
    name = write("inner.json", {"common": dict(COMMON, precision="bf16-mixed", loss="chunked" if target == "trl" else "full", micro_batch=2, accumulation=16, seq=512)})
    code, out, err = call("emit", name, "--for", target, "--edit", "inner.py", "--force")
    made = [c for c in ast.walk(ast.parse(open("inner.py").read())) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name) and c.func.id in ("TrainingArguments", "SFTConfig")]
    has = {k.arg: ast.literal_eval(k.value) for k in made[0].keywords}
    ok(code == 0 and len(made) == 1 and has["per_device_train_batch_size"] == 2 and has["gradient_accumulation_steps"] == 16 and (target == "hf" or has["max_length"] == 512), "an inner call: " + text, (code, err, has))

# ---- a comma too many in JSON goes with the edit: json.load, which reads these files, refuses it ----
for text in ('{\n  "output_dir": "a,}",\n  "per_device_train_batch_size": 16,\n}\n', '{"per_device_train_batch_size": 16, "lr_scheduler_kwargs": {"a": [1, 2, ], }, }', '{\n  "per_device_train_batch_size": 16,\n  "fsdp": "full_shard",\n}\n', '{"fsdp": "full_shard",\n"per_device_train_batch_size": 16\n,\n}'):
    name = write("comma.json", {"common": dict(COMMON, precision="bf16-mixed", micro_batch=2, loss="full")})
    code, out, err = call("emit", name, "--for", "hf", "--edit", write("args.json", text), "--force")
    try:
        has = json.loads(read("args.json"))
    except ValueError:
        has = {}
    ok(code == 0 and has.get("per_device_train_batch_size") == 2 and has.get("output_dir", "a,}") == "a,}", "a comma too many: " + text, (code, err, read("args.json")))
# ---- a key that only commands of people's own scripts count is none of a file's: TRL reads no max_seq_length any more ----
write("s.json", {"common": {"micro_batch": 4, "accumulation": 1, "seq": 4096, "precision": "bf16-amp", "optimizer": "adamw_torch_fused", "recompute": "full", "loss": "chunked"}})
write("old.yaml", "model_name_or_path: Qwen/Qwen2.5-0.5B\nper_device_train_batch_size: 4\nmax_seq_length: 8192\nuse_peft: false\nbf16: true\n")
code, out, err = call("emit", "s.json", "--for", "trl", "--edit", "old.yaml", "--force")
ok(code == 0 and "\nmax_seq_length: 8192\n" in read("old.yaml") and "\nmax_length: 4096\n" in read("old.yaml"), "the length that TRL reads is written", (code, err, read("old.yaml")))
c = json.loads(call("check", "--json", "--for", "trl", "old.yaml")[1])
ok(c["common"]["seq"] == 4096, "and read back", c["common"])
write("s.json", {"common": {"micro_batch": 4, "accumulation": 1, "seq": 4096, "precision": "bf16-amp", "optimizer": "adamw_torch_fused", "recompute": "full"}})
write("run.args", "accelerate launch run.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --max_seq_length 8192 --save_strategy no\n")
code, out, err = call("emit", "s.json", "--for", "hf", "--edit", "run.args", "--force")
ok(code == 0 and "--max_seq_length 4096" in read("run.args"), "a command's is edited", (code, err, read("run.args")))

finish()
P
