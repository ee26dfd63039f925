#!/bin/bash
# tests/test_check_notebooks.sh: what a notebook's cells run and write: commands (!, %run, %%bash) as commands, %%writefile as the file
# that it is. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import json, os, sys

sys.path.insert(0, "tests")
from check import asker, finish, ok

vplan, work, root = sys.argv[1:4]
os.chdir(work)
check = asker(vplan, "check")
CARD = ("--device", "4090", "--seq", "512")


def book(*cells, name="nb.ipynb", indent=1):
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": c.splitlines(True)} for c in cells]
    with open(name, "w") as f:
        json.dump({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, f, indent=indent)
    return name


def line_of(text, name="nb.ipynb"):
    return 1 + [i for i, l in enumerate(open(name).read().split("\n")) if text in l][0]


# ---- commands ----
ARGS = "--model_name_or_path {m} --output_dir o --bf16 --per_device_train_batch_size {b} --gradient_checkpointing"
PIP = "!pip install -U trl\n!git clone --depth 1 https://example.org/a\n%cd a\n!nvidia-smi"
for before, how in (("m = 'Qwen/Qwen2.5-0.5B'\nb = 4", "!accelerate launch --num_processes 1 train.py " + ARGS), ("m = 'Qwen/Qwen2.5-0.5B'\nb = 4", "if True:\n    !python train.py \\\n    " + ARGS.replace(" --bf16", " \\\n  --bf16")),
                    ("", "!python train.py " + ARGS.format(m="Qwen/Qwen2.5-0.5B", b=4)), ("", "%run train.py " + ARGS.format(m="Qwen/Qwen2.5-0.5B", b=4)), ("", "%%bash\nM=Qwen/Qwen2.5-0.5B\npython train.py \\\n  " + ARGS.format(m="$M", b=4)),
                    ("m = 'Qwen/Qwen2.5-0.5B'\nb = 4", "!python train.py " + ARGS.replace("{m}", "$m").replace("{b}", "$b"))):
    code, j, err = check(*CARD, book(PIP, before, how))
    ok(code == 0 and j["common"]["micro_batch"] == 4 and j["common"]["recompute"] == "full" and j["fits"] is True, how, (code, j.get("common"), j.get("findings"), j.get("fits_not_answered"), err))
code, j, err = check(*CARD, book("b = len(os.listdir('x'))\nm = 'Qwen/Qwen2.5-0.5B'", "!python train.py " + ARGS))
ok(code == 0 and "micro_batch" not in j["common"] and j["fits"] is None, "a variable that nobody knows", (code, j.get("common"), j.get("fits_not_answered"), err))
code, j, err = check(*CARD, book("x = 1", "y = 2\n!python train.py " + ARGS.format(m="gpt2", b=4).replace("--output_dir", "--learning_rat 1 --output_dir")))
ok(("learning_rat", line_of("learning_rat")) in [(f["key"], f["line"]) for f in j["findings"]], "a finding stands on the notebook's line", j.get("findings"))
for set_it in "%env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "%env PYTORCH_ALLOC_CONF expandable_segments:True", "import os\nos.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"expandable_segments:True\"", "os.environ['PYTORCH_ALLOC_CONF']='expandable_segments:True'  # more":
    code, j, err = check(*CARD, book(set_it, "!python train.py " + ARGS.format(m="Qwen/Qwen2.5-0.5B", b=4)))
    ok(j["common"].get("allocator") == "expandable", set_it, (j.get("common"), j.get("findings"), err))
code, j, err = check(*CARD, book("!CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train.py --lora_r 8 " + ARGS.format(m="Qwen/Qwen2.5-0.5B", b=4)))
ok(j["common"].get("world") == 2 and j["fits"] is None and "lora_r" in j["fits_not_answered"], "judged as any command", (j.get("common"), j.get("fits_not_answered")))
code, j, err = check(*CARD, book(PIP, "!python train.py --lr 1"))
ok(code == 4 and len(j["findings"]) == 1 and "no option of a trainer" in j["findings"][0]["message"], "a script that is not here", (code, j.get("findings")))

# ---- files that cells write ----
SCRIPT = "%%writefile train.py\nimport argparse, torch\nfrom transformers import AutoModelForCausalLM, TrainingArguments, Trainer\nfrom peft import LoraConfig, get_peft_model\np = argparse.ArgumentParser()\np.add_argument('--lora', action='store_true')\np.add_argument('--batch', type=int, default=2)\na = p.parse_args()\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\nif a.lora:\n    model = get_peft_model(model, LoraConfig(r=8, target_modules='all-linear'))\nTrainer(model, TrainingArguments('o', per_device_train_batch_size=a.batch, bf16=True), train_dataset=ds).train()\n"
for words, want in (("!python train.py", (2, "full")), ("!python ./train.py --batch 3 --lora", (3, "lora")), ("%run train.py --lora", (2, "lora")), ("!accelerate launch train.py --batch {n}", (5, "full")), ("import train", (2, "full"))):
    code, j, err = check(*CARD, book(PIP, "n = 5", SCRIPT, words))
    got = tuple(j["common"].get(k) for k in ("micro_batch", "tuning"))
    ok(code == 0 and got == want and j["fits"] is True, "a script that a cell writes, " + words, (code, got, j.get("findings"), j.get("fits_not_answered"), err))
YAML = "%%writefile cfg/c.yaml\nbase_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 3\nsequence_len: 512\nbf16: true\noptimizer: adamw_torch_fused\nlora_rr: 8\n"
for words in "!axolotl train cfg/c.yaml", "!accelerate launch -m axolotl.cli.train /content/cfg/c.yaml", "pass":
    code, j, err = check(*CARD, book(PIP, YAML, words))
    ok(j["common"]["micro_batch"] == 3 and ("cfg/c.yaml", 6, "lora_rr") in [(f["file"], f["line"], f["key"]) for f in j["findings"]], "a file of axolotl's, " + words, (code, j.get("common"), j.get("findings"), err))
code, j, err = check(*CARD, book("%%writefile ds.json\n{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}, \"train_micro_batch_size_per_gpu\": \"auto\", \"bf16\": {\"enabled\": true}}", "!deepspeed --num_gpus 1 train.py --deepspeed ds.json " + ARGS.format(m="Qwen/Qwen2.5-0.5B", b=4)))
ok(j["common"]["parallel"] == "zero2" and j["common"]["offload"] == "optimizer", "DeepSpeed's file", (code, j.get("common"), j.get("findings"), err))
code, j, err = check(*CARD, book("%%writefile -a c.yaml\nbase_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 3\n", "%%writefile -a c.yaml\nsequence_len: 512\n", "!axolotl train c.yaml"))
ok((j["common"]["micro_batch"], j["common"]["seq"]) == (3, 512), "one cell goes on with another's file", (j.get("common"), err))
code, j, err = check(*CARD, book("%%writefile notes.txt\nhello: world\n", "%%writefile requirements.yaml\n: : :\n", "x = 1"))
ok(code == 4 and [f["file"] for f in j["findings"]] == ["nb.ipynb"], "files of nobody's", j.get("findings"))

# ---- the notebook's own Python comes first ----
OWN = "import torch\nfrom transformers import AutoModelForCausalLM, TrainingArguments, Trainer\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\nTrainer(model, TrainingArguments('o', per_device_train_batch_size=7, bf16=True), train_dataset=ds).train()\n"
code, j, err = check(*CARD, book(OWN, "!python train.py " + ARGS.format(m="Qwen/Qwen2.5-0.5B", b=4)))
ok(j["common"]["micro_batch"] == 7 and [f["line"] for f in j["findings"] if "a command that trains" in f["message"]] == [line_of("!python")], "the other is named", j.get("findings"))
code, j, err = check(*CARD, book("!python train.py " + ARGS.format(m="Qwen/Qwen2.5-0.5B", b=4), "from transformers import AutoModelForCausalLM\nm = AutoModelForCausalLM.from_pretrained('o', dtype='float32')"))
ok(j["common"]["micro_batch"] == 4 and j["fits"] is True, "what was trained is tried", (j.get("common"), j.get("findings")))
for n in range(0, 200, 7):  # cut anywhere: an answer, or an error with its place
    text = open(book(PIP, SCRIPT, "!python train.py \\")).read()
    with open("cut.ipynb", "w") as f:
        f.write(text[:len(text) * n // 200])
    code, j, err = check(*CARD, "cut.ipynb")
    ok(code in (0, 3, 4), "cut at %d" % n, (code, err))
# ---- LLaMA-Factory's notebook: the dictionary is what its command reads ----
code, j, err = check(*CARD, book("import json\nargs = dict(stage='sft', model_name_or_path='Qwen/Qwen2.5-0.5B', dataset='x', template='qwen', finetuning_type='lora', lora_target='all', output_dir='o', per_device_train_batch_size=2, bf16=True, cutoff_len=512)\njson.dump(args, open('a.json', 'w'))", "!llamafactory-cli train a.json"))
ok(j["fits"] is True and not any("not judged" in f["message"] for f in j["findings"]), "its command is no other training", (j.get("fits_not_answered"), j["findings"], err))

# ---- files that here-documents write, of a cell or of a script ----
AX = "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 3\nsequence_len: 512\nbf16: true\noptimizer: adamw_torch_fused\n"
for how, known in (("cat > c.yml <<'EOF'\n%sEOF\naxolotl train c.yml\n", True), ("cat <<EOF > c.yml\n%sEOF\naxolotl train c.yml\n", True), ("tee c.yml <<EOF >/dev/null\n%sEOF\naxolotl train c.yml\n", False), ("cat <<\"E O F\" | tee c.yml\n%sE O F\naxolotl train ./c.yml\n", True), ("mkdir -p x; cat >x/c.yml <<-EOF\n%sEOF\ncd x\naxolotl train c.yml\n", True),
                   ("cat > c.yml <<EOF\n%snum_epochs: $N\nEOF\naxolotl train c.yml\n", False), ("cat > c.yml <<'EOF'\n%s#: $N\nEOF\naxolotl train c.yml\n", True), ("cat > $D/c.yml <<EOF\n%sEOF\naxolotl train c.yml\n", False), ("cat > c.yml <<EOF\n%s", True)):
    text = how % AX
    with open("w.sh", "w") as f:
        f.write(text)
    for name in "w.sh", book("%%bash\n" + text):
        code, j, err = check("--device", "4090", name)
        ok(code in (0, 4) and (j["fits"] is True and j["common"]["micro_batch"] == 3 if known else j.get("fits") is None), "%s: %s" % (name, text), (code, j.get("common"), j.get("fits_not_answered"), j.get("findings"), err))
finish()
P
