#!/bin/bash
# tests/test_check_scripts.sh: what people's own scripts and their options say of what is trained: read where it is certain, named and
# not answered where it is not, never taken for full training in silence. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import json, os, subprocess, sys

sys.path.insert(0, "tests")
from check import asker, finish, ok

vplan, work, root = sys.argv[1:4]
os.chdir(work)


def run(*words):
    p = subprocess.run((vplan, "check") + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
    return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")


check = asker(vplan, "check")


def write(name, data):
    with open(name, "w") as f:
        f.write(data)
    return name


CARD = ("--device", "h100", "--seq", "512")
TRAIN = "--model_name_or_path Qwen/Qwen2.5-0.5B --output_dir o --bf16 --per_device_train_batch_size 1 --gradient_checkpointing"

# ---- options of a script's own that by their names train something else ----
for script, words, key in (
        ("qlora.py", "--lora_r 64 --lora_modules all --bits 4 --quant_type nf4", "lora_r"),  # github.com/artidoro/qlora, scripts/finetune.sh
        ("train.py", "--use_peft_lora True --lora_r 8 --use_4bit_quantization True", "use_peft_lora"),  # peft, examples/sft
        ("fastchat/train/train_lora.py", "--lora_r 8 --lora_alpha 16 --q_lora False", "lora_r"),  # FastChat
        ("llava/train/train_mem.py", "--lora_enable True --vision_tower openai/clip-vit-large-patch14-336", "vision_tower"),  # LLaVA
        ("train.py", "--load_in_8bit", "load_in_8bit"), ("train.py", "--bits 4", "bits"), ("finetune_lora.py", "", "finetune_lora.py"),
        ("train.py", "--low_rank_training True --trainable_params embed,norm", "low_rank_training"),  # LongLoRA
        ("train.py", "--freeze_backbone True", "freeze_backbone"), ("train.py", "--use_unsloth True", "use_unsloth")):
    code, j, err = check(*CARD, "--", "python", script, *TRAIN.split(), *words.split())
    why = j.get("fits_not_answered") or ""
    ok(code == 0 and j["fits"] is None and "what %s in" % key in why and key in [f["key"] for f in j["findings"]], "%s %s" % (script, words), (code, why, j.get("findings"), err))
for script, words in (("train.py", "--use_lora False --lora_r 8"), ("train.py", "--bits 16"), ("train.py", "--load_in_4bit False --bnb_4bit_quant_type nf4"), ("train.py", "--lora_r 0 --freeze_backbone no"), ("explore.py", "")):
    code, j, err = check(*CARD, "--", "python", script, *TRAIN.split(), *words.split())
    ok(j.get("fits") is True, "what is off changes nothing: " + words, (code, j.get("fits_not_answered"), err))
code, out, err = run("--device", "4090", "--seq", "528", "--", "python", "qlora.py", *TRAIN.split(), "--lora_r", "64", "--bits", "4")
flat = " ".join(out.replace("\\\n", " ").split())
ok("vplan estimate qwen2.5-0.5b --trainer hf --device rtx-4090-24gb --qlora" in flat and "--lora r=64" in out and "vplan dryrun" in out, "two commands that answer", out)
command = out[out.index("vplan estimate"):].split("vplan dryrun")[0].replace("\\\n", " ").split()[1:]
p = subprocess.run([vplan] + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
ok(p.returncode == 0 and b"LoRA of rank 64" in p.stdout, "the first of them answers", (command, p.stdout, p.stderr))
# where the script is read and uses them, it says what they do
write("own.py", """import argparse
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, TrainingArguments, Trainer
p = argparse.ArgumentParser()
p.add_argument("--lora_r", type=int, default=8)
p.add_argument("--lora_b", type=int, default=8)
a = p.parse_args()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", dtype="bfloat16")
model = get_peft_model(model, LoraConfig(r=a.lora_r, target_modules="all-linear"))
Trainer(model, TrainingArguments("o", per_device_train_batch_size=1, bf16=True)).train()
""")
code, j, err = check(*CARD, "--", "python", "own.py", "--lora_r", "32")
ok(code == 0 and j["common"]["lora_r"] == 32 and j["fits"] is True, "a script that is read says what its option does", (j.get("common"), j.get("fits_not_answered"), err))

# ---- conditions: one side of what the text, or the command, decides is not there ----
HEAD = "import torch, argparse, os\nfrom transformers import AutoModelForCausalLM, TrainingArguments, Trainer, BitsAndBytesConfig\nfrom peft import LoraConfig, get_peft_model\n"
PARSER = "p = argparse.ArgumentParser()\np.add_argument('--lora', action='store_true')\np.add_argument('--rank', type=int, default=0)\np.add_argument('--how', default='full')\na = p.parse_args()\n"
LOAD = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\n"
ADAPT = "model = get_peft_model(model, LoraConfig(r=16, target_modules='all-linear'))\n"
TAIL = "Trainer(model, TrainingArguments('o', per_device_train_batch_size=1, bf16=True), train_dataset=ds).train()\n"
for before, condition, is_lora in (
        ("USE = False\n", "USE", False), ("USE = True\n", "USE", True), ("USE = False\n", "not USE", True), ("USE = 0\n", "USE == 0", True), ("USE = 'full'\n", "USE == 'lora'", False),
        ("USE = 'lora'\n", "USE != 'full' and (USE)", True), ("USE = None\n", "USE is not None", False), ("RANK = 8\n", "RANK > 0", True), ("A = False\nB = True\n", "A or B", True),
        ("class C:\n    lora = False\n", "C.lora", False), (PARSER, "a.lora", False), (PARSER, "not a.lora", True), (PARSER, "a.rank > 0", False), (PARSER, "a.how == 'lora'", False)):
    code, j, err = check(*CARD, write("if.py", HEAD + before + LOAD + "if %s:\n    " % condition + ADAPT + TAIL))
    ok(j["common"]["tuning"] == ("lora" if is_lora else "full") and j["fits"] is True, "%sif %s" % (before, condition), (j.get("common"), j.get("findings"), j.get("fits_not_answered"), err))
    code, j, err = check(*CARD, write("if.py", HEAD + before + LOAD + "if %s:\n    pass\nelse:\n    " % condition + ADAPT + TAIL))
    ok(j["common"]["tuning"] == ("full" if is_lora else "lora"), "%selse of %s" % (before, condition), (j.get("common"), j.get("findings"), err))
write("if.py", HEAD + PARSER + LOAD + "if a.lora:\n    " + ADAPT + "elif a.rank > 4:\n    " + ADAPT.replace("16", "a.rank") + TAIL)
for given in (), ("if.py",):
    for words, tuning, rank in (("", "full", None), ("--lora", "lora", 16), ("--rank 32", "lora", 32), ("--rank 2", "full", None), ("--lora --rank 32", "lora", 16)):
        code, j, err = check(*CARD, *given, "--", "python", "if.py", *words.split())
        ok(code == 0 and (j["common"]["tuning"], j["common"].get("lora_r")) == (tuning, rank) and j["fits"] is True, "python if.py " + words, (j.get("common"), j.get("findings"), j.get("fits_not_answered"), err))
        ok(not any("does not run" in f["message"] for f in j["findings"]), "the command is known: " + words, j["findings"])
code, j, err = check(*CARD, "if.py")
ok([f["line"] for f in j["findings"] if "does not run by the default of --lora in line 5" in f["message"]] == [11], "a default that decides is said, once", j["findings"])
for condition in "os.environ.get('LORA')", "len(ds) > 4", "hasattr(model, 'x')":
    code, j, err = check(*CARD, write("may.py", HEAD + LOAD + "if %s:\n    " % condition + ADAPT + TAIL))
    ok(j["fits"] is None and "get_peft_model() in line 6" in (j["fits_not_answered"] or ""), "nobody knows whether: " + condition, (j.get("fits_not_answered"), j.get("findings"), err))

# a function that only lines call which do not run does not, either; `a if CONDITION else b` is one of both
FUNCTION = HEAD + PARSER + "def wrap(model):\n    config = LoraConfig(r=16, target_modules='all-linear')\n    return get_peft_model(model, config)\ndef outer(model):\n    return wrap(model)\ndef main():\n    model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\n    if %s:\n        model = %s(model)\n    " + TAIL + "main()\n"
for condition, calls, words, want in (("a.lora", "wrap", "", "full"), ("a.lora", "wrap", "--lora", "lora"), ("a.lora", "outer", "", "full"), ("a.lora", "outer", "--lora", "lora"), ("os.environ.get('L')", "wrap", "", None), ("os.environ.get('L')", "outer", "", None)):
    write("def.py", FUNCTION % (condition, calls))
    code, j, err = check(*CARD, "--", "python", "def.py", *words.split())
    ok(j["common"].get("tuning") == want and j["fits"] is True if want else j["fits"] is None and "get_peft_model()" in j["fits_not_answered"], "if %s: %s(model), %s" % (condition, calls, words), (j.get("common"), j.get("fits_not_answered"), j.get("findings"), err))
code, j, err = check(*CARD, write("def.py", FUNCTION % ("a.lora", "wrap")))
ok(any("what calls its function" in f["message"] for f in j["findings"]), "that is said", j["findings"])
CHOICE = HEAD + PARSER + "from trl import SFTTrainer, SFTConfig\nbnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', bnb_4bit_use_double_quant=True) if a.how == 'four' else None\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16, quantization_config=bnb)\nconfig = LoraConfig(r=16 if a.rank < 4 else 64, target_modules='all-linear') if a.lora else None\nSFTTrainer(model, args=SFTConfig('o', per_device_train_batch_size=4 if a.lora else 1, bf16=True, max_length=512), train_dataset=ds, peft_config=config).train()\n"
for words, want in (("", ("full", None, 1)), ("--lora", ("lora", 16, 4)), ("--lora --rank 8", ("lora", 64, 4)), ("--lora --how four", ("qlora", 16, 4))):
    write("one.py", CHOICE)
    code, j, err = check(*CARD, "--", "python", "one.py", *words.split())
    got = tuple(j["common"].get(k) for k in ("tuning", "lora_r", "micro_batch"))
    ok(code == 0 and got == want and j["fits"] is True, "a if b else c, " + words, (got, j.get("fits_not_answered"), j.get("findings"), err))

# ---- in which format weights are loaded ----
for script, words, want in (
        ("train.py", "--torch_dtype bfloat16", "bf16-amp"), ("train.py", "--dtype float32", "bf16-mixed"), ("train.py", "--dtype bfloat16", "bf16-amp"),
        ("train.py", "--torch_dtype auto", "bf16-amp"),  # Qwen/Qwen2.5-0.5B, config.json: "torch_dtype": "bfloat16"
        ("run_clm.py", "", "bf16-amp"), ("run_clm.py", "--versions4", "bf16-mixed"),  # from_pretrained(torch_dtype=None): float32 before 5.0
        ("train.py", "", "bf16-mixed or bf16-amp")):
    old = ("--versions", "transformers=4.57") if "--versions4" in words else ()
    code, j, err = check(*CARD, *old, "--", "python", script, *TRAIN.split(), *words.replace("--versions4", "").split())
    got = j["may_be"].get("precision", j["common"].get("precision"))
    ok(code == 0 and got == want and j["fits"] is True and ("or" in j) == (" or " in want), "%s %s" % (script, words), (code, got, j.get("or"), j.get("fits_not_answered"), err))
    ok(not any("torch_dtype" in f["message"] and "not judged" in f["message"] for f in j["findings"]), "it is judged: " + words, j["findings"])
code, j, err = check(*CARD, "--", "python", "train.py", *TRAIN.split(), "--attn_implementation", "flash_attention_2")
ok(j["common"]["attention"] == "flash2", "attn_implementation of a script's own", (j.get("common"), err))
code, j, err = check(*CARD, "--", "python", "train.py", *TRAIN.split())
amp = check(*CARD, "--", "python", "train.py", *TRAIN.split(), "--torch_dtype", "bfloat16")[1]["device_bytes"]
ok(j["or"]["precision"] == "bf16-amp" and j["or"]["device_bytes"] < j["device_bytes"] and amp <= j["or"]["device_bytes"], "what the other word needs stands beside the verdict", (j.get("or"), j["device_bytes"], amp))
ok("as bf16-amp: the files do not say in which format weights are loaded, and bf16-mixed is counted" in " ".join(run(*CARD, "--", "python", "train.py", *TRAIN.split())[1].split()), "in words too", "")
SCRIPT = "import torch\nfrom transformers import AutoModelForCausalLM, TrainingArguments, Trainer\nmodel = AutoModelForCausalLM.from_pretrained('%s'%s)\nTrainer(model, TrainingArguments('o', per_device_train_batch_size=1%s), train_dataset=ds).train()\n"
for model, load, flags, version, want in (
        ("Qwen/Qwen2.5-0.5B", "", ", bf16=True", None, "bf16-amp"), ("Qwen/Qwen2.5-0.5B", "", ", bf16=True", "4.57", "bf16-mixed"), ("Qwen/Qwen2.5-0.5B", ", torch_dtype='auto'", ", bf16=True", "4.57", "bf16-amp"),
        ("Qwen/Qwen2.5-0.5B", "", "", None, "bf16"), ("Qwen/Qwen2.5-0.5B", "", "", "4.57", "fp32"), ("Qwen/Qwen2.5-0.5B", ", dtype=torch.float32", ", bf16=True", None, "bf16-mixed"),
        ("google/gemma-2-2b", "", ", bf16=True", None, "bf16-mixed"), ("google/gemma-2-2b-it", "", ", bf16=True", None, "bf16-mixed or bf16-amp"),  # config.json: float32; bfloat16
        ("openai-community/gpt2", "", ", bf16=True", None, "bf16-mixed"), ("facebook/opt-125m", "", ", bf16=True", None, "bf16-amp")):
    code, j, err = check(*CARD, *(("--versions", "transformers=" + version) if version else ()), write("load.py", SCRIPT % (model, load, flags)), *(("--model", "gemma-2-2b") if model.endswith("-it") else ()))
    got = j["may_be"].get("precision", j["common"].get("precision"))
    ok(got == want, "%s%s%s of transformers %s" % (model, load, flags, version or "5"), (got, j.get("findings"), j.get("fits_not_answered"), err))
    ok(version != "4.57" or not any("stay in the file" in f["message"] for f in j["findings"]), "4.57 loads in fp32", j["findings"])
write("config.json", json.dumps(dict(json.loads(subprocess.run([vplan, "models", "--json"], stdout=subprocess.PIPE).stdout)["models"][0]["config"], torch_dtype="bfloat16")))
code, j, err = check(*CARD, "load.py", "--model", "config.json")
ok(j["common"]["precision"] == "bf16-amp", "a config at hand says it", (j.get("common"), j.get("findings"), err))

# a model that is cast after it was loaded, and one of two ways of loading it
for after, want in (("model = model.half()\n", None), ("model.to(torch.bfloat16)\n", "bf16-amp"), ("model = model.bfloat16()\n", "bf16-amp"), ("model.to('cuda')\n", "bf16-mixed"), ("model = model.to(torch.bfloat16).float()\n", "bf16-mixed"),
                    ("if os.environ.get('B'):\n    model = model.bfloat16()\n", None), ("head.to(torch.bfloat16)\n", "bf16-mixed"), ("B = False\nif B:\n    model = model.bfloat16()\n", "bf16-mixed")):
    code, j, err = check(*CARD, write("cast.py", HEAD + "model = AutoModelForCausalLM.from_pretrained('openai-community/gpt2')\n" + after + TAIL))
    got = j["may_be"].get("precision", j["common"].get("precision"))
    ok(got == want and j["fits"] is True if want else j["fits"] is None or any("precision is fp16 here" in f["message"] for f in j["findings"]), "cast: " + after, (got, j.get("fits_not_answered"), j.get("findings"), err))
for text in "bnb = None\nif os.environ.get('F'):\n    bnb = BitsAndBytesConfig(load_in_4bit=True)\n", "if os.environ.get('F'):\n    bnb = BitsAndBytesConfig(load_in_4bit=True)\nelse:\n    bnb = None\n":
    code, j, err = check(*CARD, write("or.py", HEAD + text + LOAD.replace("dtype=torch.bfloat16", "dtype=torch.bfloat16, quantization_config=bnb") + TAIL))
    ok(j["fits"] is None and "quantization_config" in (j["fits_not_answered"] or ""), "packed or not: nobody knows", (j.get("common"), j.get("fits_not_answered"), j.get("findings"), err))

# ---- what trains, and what trains it, a script may say by itself ----
for what, before, after, answered in (
        ("a body that is frozen", "for p in model.model.parameters():\n    p.requires_grad = False\n", "", False), ("a model that is frozen", "model.model.requires_grad_(False)\n", "", False),
        ("by its name", "for n, p in model.named_parameters():\n    p.requires_grad = 'mlp' in n\n", "", False), ("all of it", "for p in model.parameters():\n    p.requires_grad = True\n", "", True),
        ("frozen before adapters", "for p in model.parameters():\n    p.requires_grad = False\n" + ADAPT, "", True), ("norms beside adapters", ADAPT + "for n, p in model.named_parameters():\n    if 'norm' in n: p.requires_grad = True\n", "", False),
        ("a reference", "ref_model.requires_grad_(False)\n", "", True)):
    code, j, err = check(*CARD, write("fr.py", HEAD + LOAD + before + TAIL))
    ok((j["fits"] is True) == answered and (answered or "requires_grad in line" in j["fits_not_answered"]), what, (j.get("fits_not_answered"), j.get("findings"), err))
for made, optim in (("(torch.optim.SGD(model.parameters(), lr=1e-3), None)", "sgd"), ("(opt, None)", "adamw_torch"), ("(None, schedule)", "adamw_torch_fused"), ("None", "adamw_torch_fused"), ("(bnb.optim.AdamW8bit(model.parameters()), s)", "adamw_8bit"),
                    ("(torch.optim.AdamW(model.parameters(), fused=True), None)", "adamw_torch_fused"), ("(torch.optim.SGD(model.parameters(), momentum=0.9), None)", None), ("(Muon(ps), None)", None), ("make()", None)):
    code, j, err = check(*CARD, write("opt.py", HEAD + LOAD + "opt = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1)\n" + TAIL.replace("train_dataset=ds", "train_dataset=ds, optimizers=" + made)))
    ok(j["common"].get("optimizer") == optim and j["fits"] is True if optim else j["fits"] is None and "optimizers in line" in j["fits_not_answered"], "optimizers=" + made, (j.get("common"), j.get("fits_not_answered"), err))

# ---- a name of the script's own that is called as an argument is none ----
SFT = "from trl import SFTTrainer\nfrom transformers import TrainingArguments, AutoModelForCausalLM\n" + LOAD.replace("torch.bfloat16", "'bfloat16'") + "t = TrainingArguments('o', per_device_train_batch_size=1%s)\nSFTTrainer(model=model, args=t, train_dataset=ds).train()\n"
for name in "gradient_checkpointing", "bf16", "activation_checkpointing":
    flags = "" if name == "bf16" else ", bf16=True"
    plain = check(*CARD, write("name.py", SFT % flags))[1]
    with_it = check(*CARD, write("name.py", name + " = True\n" + SFT % flags))[1]
    ok(plain["common"] == with_it["common"] and plain["fits"] is True and plain["device_bytes"] == with_it["device_bytes"], "%s = True and nothing else" % name, (plain.get("common"), with_it.get("common")))

# ---- SFTTrainer("model"): TRL loads it in float32 (trl/trainer/utils.py, create_model_from_path()) and trains all of it ----
QUICK = "from trl import SFTTrainer, SFTConfig\nfrom peft import LoraConfig\nfrom datasets import load_dataset\nSFTTrainer(model='Qwen/Qwen3-0.6B', train_dataset=load_dataset('trl-lib/Capybara', split='train')%s).train()\n"
for more, want, tuning in (("", "bf16-mixed", None), (", args=SFTConfig(bf16=False)", "fp32", None), (", args=SFTConfig(model_init_kwargs={'dtype': 'bfloat16'})", "bf16-amp", None), (", peft_config=LoraConfig(r=4)", "bf16-mixed", "lora"), (", args=SFTConfig(model_init_kwargs={'dtype': 'auto'})", "bf16-amp", None)):
    code, j, err = check("--device", "h100", write("quick.py", QUICK % more))
    got = j["may_be"].get("precision", j["common"].get("precision"))
    ok(code == 0 and got == want and j["common"].get("tuning") == tuning and "common." not in (j.get("fits_not_answered") or ""), "SFTTrainer('model'%s)" % more, (got, j.get("common"), j.get("fits_not_answered"), j.get("findings"), err))
    ok(j["fits"] is True, "answered: " + more, (j.get("fits_not_answered"), err))

# ---- LoRA that is told no layers: peft's own choice of the family (peft/utils/constants.py) ----
for files, words, want in (
        ({}, "-- trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --use_peft --lora_r 32 --output_dir o", "q_proj+v_proj"), ({}, "-- trl sft --model_name_or_path gpt2 --use_peft --output_dir o", "c_attn"),
        ({"s.yaml": "model_name_or_path: EleutherAI/pythia-160m\nuse_peft: true\noutput_dir: o\nmax_length: 512\n"}, "s.yaml", "query_key_value"), ({"l.py": HEAD + LOAD + ADAPT.replace(", target_modules='all-linear'", "") + TAIL}, "l.py", "q_proj+v_proj")):
    for name, text in files.items():
        write(name, text)
    code, j, err = check(*CARD, *words.split())
    ok(code == 0 and j["common"].get("lora_targets") == want and any("peft adapts " + want in f["message"] for f in j["findings"]), "no target modules: " + words, (j.get("common"), j.get("fits_not_answered"), err))
code, j, err = check(*CARD, write("l.py", HEAD + LOAD + "mods = find_all(model)\n" + ADAPT.replace("'all-linear'", "mods") + TAIL))
ok(j["fits"] is None and j["common"].get("lora_targets") is None, "layers that the text does not say are none of peft's choice", (j.get("common"), j.get("fits_not_answered")))
code, j, err = check("--device", "h100", write("ax.yaml", "base_model: Qwen/Qwen2.5-0.5B\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nsequence_len: 512\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\nbf16: true\noptimizer: adamw_torch\ndatasets:\n- {path: x, type: alpaca}\n"))
ok("lora_target_linear: true says it" in (j.get("fits_not_answered") or ""), "of others the key that says it is named", (j.get("fits_not_answered"), err))

# ---- Unsloth on a card without bf16 (unsloth/models/loader.py, rl.py): fp16, said by the card or by nobody ----
UNSLOTH = """from unsloth import FastLanguageModel, is_bfloat16_supported
from trl import SFTTrainer
from transformers import TrainingArguments
model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/Meta-Llama-3.1-8B", max_seq_length=2048, dtype=%s, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], lora_alpha=16)
trainer = SFTTrainer(model=model, tokenizer=tokenizer, train_dataset=dataset, max_seq_length=2048, args=TrainingArguments(%sper_device_train_batch_size=2, optim="adamw_8bit", output_dir="o"))
"""
ASKS = "fp16=not is_bfloat16_supported(), bf16=is_bfloat16_supported(), "
for card, dtype, flags, want in (("t4", "None", ASKS, "fp16-amp"), ("t4", "None", "", "fp16-amp"), ("4090", "None", ASKS, "bf16-amp"), ("4090", "None", "", "bf16-amp"), ("t4", "torch.float16", ASKS, "fp16-amp"), ("t4", "torch.bfloat16", "", "bf16-amp")):
    code, j, err = check("--device", card, write("u.py", UNSLOTH % (dtype, flags)))
    ok(j["common"].get("precision") == want and "do not say precision" not in (j.get("fits_not_answered") or ""), "Unsloth on a %s, dtype=%s %s" % (card, dtype, flags), (j.get("common"), j.get("fits_not_answered"), err))
    ok("precision" not in j["may_be"], "one word", j["may_be"])

# ---- a script of Python is no settings file of LLaMA-Factory's ----
code, j, err = check(write("data.py", "from datasets import load_dataset\nstage = 'train'\ntemplate = 'a'\ncutoff_len = 1\ndataset = load_dataset('x')\n"))
ok(j.get("target") is None and not any("refuses" in f["message"] or "none of" in f["message"] for f in j.get("findings", [])), "a script that makes a data set", (j.get("target"), j.get("findings"), err))

# ---- what a script does behind its trainer, in functions that nothing calls and behind a return that is taken, trains nothing ----
HEAD = "import argparse\nimport torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nfrom peft import LoraConfig, get_peft_model\n"
LOADS = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-1.5B', torch_dtype=torch.float32)\n"
TRAINS = "args_ = TrainingArguments('o', per_device_train_batch_size=4, bf16=True)\ntrainer = Trainer(model=model, args=args_, train_dataset=d)\ntrainer.train()\n"
ADAPTS = "    return get_peft_model(model, LoraConfig(r=16, target_modules='all-linear'))\n"


def means(name, text, *command):
    code, j, err = check(write(name, HEAD + text), "--device", "h100", "--seq", "512") if not command else check("--device", "h100", "--seq", "512", "--", *command)
    return code, j.get("common", {}), j.get("fits"), [f for f in j.get("findings", []) if f["severity"] == "error"], j.get("fits_not_answered")


for name, behind in (("to", "model = model.to(torch.bfloat16)\nmodel.save_pretrained('x')\n"), ("half", "model.half().save_pretrained('x')\n"),
                     ("merge", "from peft import PeftModel\nbase = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-1.5B', torch_dtype=torch.float16)\nPeftModel.from_pretrained(base, 'x').merge_and_unload()\n")):
    code, common, fits, errors, why = means("behind.py", LOADS + TRAINS + behind)
    ok(code == 0 and common["precision"] == "bf16-mixed" and fits is True and not errors, "behind the trainer: " + name, (code, common, errors, why))
for cast, precision in (("model.to(dtype=torch.bfloat16)", "bf16-amp"), ("model.to('cuda', dtype=torch.bfloat16)", "bf16-amp"), ("model = model.to('cuda', torch.bfloat16).eval()", "bf16-amp"),
                        ("model.to('cuda')", "bf16-mixed"), ("model = model.bfloat16().float()", "bf16-mixed")):
    code, common, fits, errors, why = means("cast.py", LOADS + cast + "\n" + TRAINS)
    ok(code == 0 and common["precision"] == precision, "before the trainer: " + cast, (code, common, errors, why))
code, common, fits, errors, why = means("spare.py", "def wrap(model):\n" + ADAPTS + "def freeze(model):\n    for p in model.parameters():\n        p.requires_grad = False\n" + LOADS + TRAINS)
ok(code == 0 and common["tuning"] == "full" and fits is True, "functions that nothing calls", (code, common, why))
GUARD = "def wrap(model, args):\n    if not args.use_lora:\n        return model\n" + ADAPTS + "p = argparse.ArgumentParser()\np.add_argument('--use_lora', action='store_true')\nargs = p.parse_args()\n" + LOADS + "model = wrap(model, args)\n" + TRAINS
write("guard.py", HEAD + GUARD)
for words, tuning in (((), "full"), (("--use_lora",), "lora")):
    code, common, fits, errors, why = means("guard.py", GUARD, "python", "guard.py", *words)
    ok(code == 0 and common["tuning"].startswith(tuning), "behind a return: %s" % (words,), (code, common, why))
NESTED = "def wrap(model, on=True):\n    if on:\n        def one(x):\n            return x\n        model = one(model)\n" + ADAPTS + LOADS + "model = wrap(model)\n" + TRAINS
code, common, fits, errors, why = means("nested.py", NESTED)
ok(code == 0 and common["tuning"].startswith("lora"), "a return of a function within", (code, common, why))
code, j, err = check(write("colab.py", "import json\nargs = dict(stage='sft', model_name_or_path='Qwen/Qwen2.5-7B', dataset='identity', template='qwen', finetuning_type='lora', lora_target='all', output_dir='o', per_device_train_batch_size=2, fp16=True)\njson.dump(args, open('a.json', 'w'))\n"))
ok(j.get("target") == "llamafactory" and j["common"]["tuning"] == "lora" and not any(f["severity"] == "error" for f in j["findings"]), "LLaMA-Factory's notebook", (j.get("target"), j.get("common"), j.get("findings"), err))
# ---- DeepSpeed without ZeRO cuts nothing ----
for text in ('{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 0}}', '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}'):
    write("ds.json", text)
    code, j, err = check("--device", "h100", "--seq", "512", "--", *"deepspeed --num_gpus 4 t.py --model_name_or_path Qwen/Qwen2.5-1.5B --deepspeed ds.json --bf16 --per_device_train_batch_size 2 --output_dir o".split())
    ok(j["fits"] is None and "DeepSpeed without ZeRO" in j["fits_not_answered"], "DeepSpeed's stage 0", (code, j.get("fits"), j.get("fits_not_answered")))

# ---- Lightning: the batch of the loader that is trained by, and the optimizer of its module ----
LIT = "import lightning as L, torch\nfrom torch.utils.data import DataLoader\nfrom transformers import AutoModelForCausalLM\nclass Lit(L.LightningModule):\n    def __init__(self):\n        super().__init__()\n        self.model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.float32)\n    def training_step(self, batch, i):\n        return self.model(**batch).loss\n    def configure_optimizers(self):\n        return %s\n%s\nL.Trainer(precision='bf16-mixed', accumulate_grad_batches=4, devices=1).fit(Lit(), loader)\n"
ADAM = "torch.optim.AdamW(self.parameters(), lr=1e-5)"
MODULE = "class DM(L.LightningDataModule):\n    def __init__(self, batch_size=16):\n        super().__init__()\n        self.batch_size = batch_size\n    def train_dataloader(self):\n        return DataLoader(self.ds, batch_size=self.batch_size)\n    def val_dataloader(self):\n        return DataLoader(self.dv, batch_size=64)\nloader = DM(%s)\n"
for text, want in (("loader = DataLoader(ds, batch_size=8, shuffle=True)", 8), ("loader = DataLoader(ds, 8)", 8), ("loader = DataLoader(ds)", 1), ("BS = 6\nloader = DataLoader(\n    ds,\n    batch_size=BS,\n)", 6), ("loader = DataLoader(ds, batch_size=2)\nval_loader = DataLoader(dv, batch_size=32)", 2), ("loader = DataLoader(ds, batch_size=len(ds))", None),
                   ("loader = DataLoader(ds, batch_sampler=s)", None), ("loader = [DataLoader(ds, batch_size=2), 1]\nother = DataLoader(ds, batch_size=4)", None), (MODULE % "batch_size=4", 4), (MODULE % "", 16)):
    code, j, err = check("--device", "h100", "--seq", "512", write("lit.py", LIT % (ADAM, text)))
    ok(j["common"].get("micro_batch") == want and j["fits"] is (True if want else None) and j["common"]["optimizer"] == "adamw_torch", "Lightning: " + text, (code, j.get("common"), j.get("fits_not_answered"), err))
    ok(any("a loader to validate with" in f["message"] for f in j["findings"]) == ("val_" in text), "what validates: " + text, j["findings"])
for made in ADAM.replace("lr=", "fused=True, lr="), "bnb.optim.AdamW8bit(self.parameters())", "build(self)":
    code, j, err = check("--device", "h100", "--seq", "512", write("lit.py", LIT % (made, "loader = DataLoader(ds, batch_size=8)")))
    ok("optimizer" not in j["common"] and j["fits"] is None, "an optimizer that nobody knows: " + made, (j.get("common"), j.get("fits_not_answered")))
code, j, err = check("--device", "h100", "--seq", "512", "--model", "gpt2", "--", *"python main.py fit --trainer.precision bf16-mixed --data.batch_size 8 --trainer.devices 1 --optimizer AdamW".split())
ok(j["common"]["micro_batch"] == 8 and j["fits"] is True, "a data module of LightningCLI", (j.get("common"), j.get("fits_not_answered"), err))

# ---- a trainer of nobody's that has Lightning's name, or its variable's ----
for text in ("from transformers import AutoModelForCausalLM\nfrom mine.trainer import Trainer\nmodel = AutoModelForCausalLM.from_pretrained('gpt2')\ntrainer = Trainer(accelerator=acc, vl_model=model, config=config)\n",
             "import transformers, trainers\nmodel = transformers.AutoModelForCausalLM.from_pretrained('gpt2')\nTrainerClass = getattr(trainers, config.trainer)\ntrainer = TrainerClass(model, config, rank=rank, world_size=world_size)\n"):
    code, j, err = check("--device", "h100", "--seq", "512", write("mine.py", text))
    ok(j.get("target") is None and not j.get("fits") and "micro_batch" not in j["common"] and not any("refuses it" in f["message"] for f in j["findings"]), "a trainer of nobody's", (code, j.get("target"), j.get("common"), j.get("findings"), err))

# ---- a trainer's data, which a function makes ----
DATA = "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n%s\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')\nargs = TrainingArguments('o', per_device_train_batch_size=2, bf16=True%s)\nTrainer(model=model, args=args, **%s\n ).train()\n"
MAKES = "def make_data(tokenizer, path):\n    train_dataset = Data(path)\n    return dict(train_dataset=train_dataset, %s=collator)\ndata_module = make_data(t, 'x')"
for text, fits, gap in ((DATA % (MAKES % "data_collator", "", "data_module"), True, False), (DATA % ("from mine import make_data\ndata_module = make_data(t, 'x')", "", "data_module"), True, False),
                        (DATA % ("from mine import more\nkwargs = more()", "", "kwargs"), None, True), (DATA % ("from mine import data_args", ", **data_args", "data_args"), None, True)):
    code, j, err = check("--device", "h100", "--seq", "512", write("data.py", text))
    ok(code == 0 and j["fits"] is fits and (" says is not known" in str(j.get("fits_not_answered"))) is gap and "\\n" not in str(j["findings"]) and "x0a" not in str(j), "a trainer's data", (code, j.get("fits_not_answered"), j["findings"], err))
code, j, err = check("--device", "h100", "--seq", "512", write("data.py", DATA % (MAKES % "tokenizer", "", "data_module")))
ok(code == 4 and any(f["key"] == "tokenizer" and f["severity"] == "error" for f in j["findings"]), "an argument that is gone, in what a function makes", (code, j["findings"]))
code, j, err = check("--device", "h100", "--seq", "512", write("data.py", DATA % ("def more():\n    return dict(gradient_checkpointing=True)", ", **more()", "data_module")))
ok(j["common"].get("recompute") == "full", "arguments that a function makes", (code, j["common"], j["findings"]))

# ---- a model that is loaded in one of two ways ----
WAYS = HEAD + "from transformers import BitsAndBytesConfig\nimport sys\nname = 'Qwen/Qwen2.5-0.5B'\n%s\nargs = TrainingArguments('o', per_device_train_batch_size=2, bf16=True)\nTrainer(model=model, args=args, train_dataset=d).train()\n"
FLASH, PLAIN = "AutoModelForCausalLM.from_pretrained(name, dtype='float32', attn_implementation='flash_attention_2')", "AutoModelForCausalLM.from_pretrained(name, dtype='float32')"
EITHER = "if %s:\n    model = " + FLASH + "\nelse:\n    model = " + PLAIN
for text, attention, fits in ((EITHER % "len(sys.argv) > 3", None, None), (EITHER % "'70B' in name", None, True), (EITHER % "'0.5B' in name", "flash2", True), (EITHER % "name not in ['Qwen/Qwen2.5-0.5B', 'gpt2']", None, True), (EITHER % "name in NAMES", None, None),
                              ("model = " + PLAIN + "\nif len(sys.argv) > 3:\n    model = " + FLASH, None, None), ("def load():\n    if len(sys.argv) > 3:\n        return " + FLASH + "\n    return " + PLAIN + "\nmodel = load()", None, None),
                              ("if len(sys.argv) > 3:\n    model = " + FLASH + "\nelse:\n    model = " + FLASH, "flash2", True)):
    code, j, err = check("--device", "h100", "--seq", "512", write("ways.py", text if text.startswith("import") else WAYS % text))
    ok(code == 0 and j["common"].get("attention") == attention and j["fits"] is fits, "two ways: " + text, (code, j.get("common"), j.get("fits"), j.get("fits_not_answered"), j["findings"], err))

# ---- what Seq2SeqTrainingArguments() has beside TrainingArguments() ----
SEQ2SEQ = "from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Trainer, TrainingArguments, Seq2SeqTrainingArguments\nmodel = AutoModelForSeq2SeqLM.from_pretrained('google-t5/t5-small', dtype='float32')\nargs = %s(output_dir='o', per_device_train_batch_size=2, bf16=True, %s)\n%s(model=model, args=args, train_dataset=d).train()\n"
EXTRA = "predict_with_generate=True, generation_max_length=140, generation_num_beams=4, sortish_sampler=True, generation_config=None"
code, j, err = check("--device", "h100", "--seq", "512", write("s2s.py", SEQ2SEQ % ("Seq2SeqTrainingArguments", EXTRA, "Seq2SeqTrainer")))
ok(code == 0 and j["fits"] is True and "of the script's own" not in str(j["findings"]), "Seq2SeqTrainingArguments' own keys are Trainer's", (code, j["findings"], j.get("fits_not_answered"), err))
for made, extra, wrong in (("Seq2SeqTrainingArguments", "predict_with_generat=True", "predict_with_generat"), ("TrainingArguments", "predict_with_generate=True", "predict_with_generate")):
    code, j, err = check("--device", "h100", "--seq", "512", write("s2s.py", SEQ2SEQ % (made, extra, "Trainer")))
    ok(code == 4 and [f["key"] for f in j["findings"] if f["severity"] == "error"] == [wrong], "%s(%s)" % (made, extra), (code, j["findings"], err))
code, j, err = check("--device", "h100", "--seq", "512", "--model", "t5-small", "--", *"python run_summarization.py --model_name_or_path google-t5/t5-small --output_dir o --per_device_train_batch_size 2 --predict_with_generate --generation_max_length 64".split())
ok(code == 0 and "predict_with_generate" not in str(j["findings"]), "Seq2SeqTrainingArguments' options", (code, j["findings"], err))

# ---- what turns checkpoints on in the model, behind a condition of the script's own ----
ON = HEAD + "import json\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='float32')\nif %s:\n    model.gradient_checkpointing_enable()\nargs = TrainingArguments('o', per_device_train_batch_size=2, bf16=True)\nTrainer(model=model, args=args, train_dataset=d).train()\n"
for condition, fits in (("own['gradient_checkpointing'] == 'true'", None), ("own.gradient_checkpointing", None), ("training_args.gradient_checkpointing", True), ("True", True)):
    code, j, err = check("--device", "h100", "--seq", "512", write("on.py", ON % condition))
    ok(code == 0 and j["fits"] is fits, "checkpoints if " + condition, (code, j["common"], j.get("fits_not_answered"), j["findings"], err))

# ---- a loop of one's own: names as a trainer has them are none of its keys ----
LOOP = "import torch\nfrom transformers import AutoModelForCausalLM\ngradient_accumulation_steps = 4\nlearning_rate = 1e-5\nmax_length = 512\nbatch_size = 32\nbf16 = True\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\noptimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)\nfor i, batch in enumerate(loader):\n    (model(**batch).loss / gradient_accumulation_steps).backward()\n    optimizer.step()\n"
code, j, err = check("--device", "h100", "--seq", "512", write("loop.py", LOOP))
ok(code == 4 and j.get("target") is None and j["fits"] is None and "micro_batch" not in j["common"] and "loop of the script's own" in j["fits_not_answered"], "a loop of one's own", (code, j.get("target"), j["common"], j.get("fits_not_answered"), j["findings"], err))
code, j, err = check("--device", "h100", "--seq", "512", "--model", "gpt2", write("serve.py", "from fastapi import FastAPI\napp = FastAPI()\nmax_length = 512\n"))
ok(code == 4 and j.get("target") is None and j["fits"] is None, "FastAPI is none of Unsloth's", (code, j.get("target"), j["common"], j["findings"], err))

# ---- the linear layers, as scripts list them themselves ----
LIST = HEAD + "import torch.nn as nn\ndef find_all_linear_names(model):\n    names = set()\n    for name, module in model.named_modules():\n        if isinstance(module, %s):\n            names.add(name.split('.')[-1])\n    %s\n    return list(names)\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='float32')\nmodel = get_peft_model(model, LoraConfig(r=8, target_modules=find_all_linear_names(model)))\nargs = TrainingArguments('o', per_device_train_batch_size=2, bf16=True)\nTrainer(model=model, args=args, train_dataset=d).train()\n"
for made, without, want in (("nn.Linear", "names.discard('lm_head')", "all-linear"), ("cls", "names.remove('lm_head')", None), ("nn.Linear", "pass", None), ("nn.Embedding", "names.remove('lm_head')", None)):
    code, j, err = check("--device", "h100", "--seq", "512", write("list.py", LIST % (made, without)))
    ok(code == 0 and j["common"].get("lora_targets") == want and j["fits"] is (True if want else None), "a list of layers: %s, %s" % (made, without), (code, j["common"], j.get("fits_not_answered"), j["findings"], err))

# ---- cells of marimo's, and a trainer of embeddings ----
CELLS = "import marimo\napp = marimo.App()\n@app.cell\ndef _():\n    import torch\n    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n    batch = 2\n    model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='float32')\n    return batch, model\n@app.cell\ndef _(batch, model):\n    args = TrainingArguments('o', per_device_train_batch_size=batch, bf16=True)\n    Trainer(model=model, args=args, train_dataset=d).train()\n    return\n"
code, j, err = check("--device", "h100", "--seq", "512", write("cells.py", CELLS))
ok(code == 0 and j["common"].get("micro_batch") == 2 and j["fits"] is True, "cells of marimo's", (code, j["common"], j.get("fits_not_answered"), j["findings"], err))
code, j, err = check("--device", "h100", "--model", "gpt2", "--seq", "512", write("embed.py", "from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments\nmodel = SentenceTransformer('BAAI/bge-base-en-v1.5')\nargs = SentenceTransformerTrainingArguments(output_dir='o', per_device_train_batch_size=32, bf16=True)\nSentenceTransformerTrainer(model=model, args=args, train_dataset=d, loss=loss).train()\n"))
ok(code == 4 and j["fits"] is None and "sentence-transformers" in str(j["findings"]), "a trainer of embeddings is named", (code, j.get("fits"), j["findings"], err))

# ---- arguments without those that are None, and what every model and every card has ----
NOTNONE = HEAD + "kwargs = dict(output_dir='o', per_device_train_batch_size=2, gradient_checkpointing=True, optim=None, bf16=bool(torch.cuda.is_available()), note='x')\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='float32')\nif hasattr(model, 'enable_input_require_grads'):\n    model.enable_input_require_grads()\nargs = TrainingArguments(**%s)\nTrainer(model=model, args=args, train_dataset=d).train()\n"
for text, optimizer, wrong in (("{k: v for k, v in kwargs.items() if v is not None}", "adamw_torch_fused", ["note"]), ("{key: value for key, value in kwargs.items() if key != 'note'}", "adamw_torch_fused", []), ("{k: v for k, v in kwargs.items() if k in known}", None, []), ("{k: v for k, v in kwargs.items() if k in inspect.signature(TrainingArguments.__init__).parameters}", "adamw_torch_fused", []), ("{k: str(v) for k, v in kwargs.items()}", None, [])):
    code, j, err = check("--device", "h100", "--seq", "512", write("notnone.py", NOTNONE % text))
    known = optimizer is not None
    ok([f["key"] for f in j["findings"] if f["severity"] == "error"] == wrong and (j["fits"] is True) == known and j["common"].get("micro_batch") == (2 if known else None) and (not known or j["common"]["precision"] == "bf16-mixed"), text, (code, j["common"], j.get("fits_not_answered"), j["findings"], err))

# ---- packed weights that a function returns, or None ----
PACKED = HEAD + "from transformers import BitsAndBytesConfig\nfrom peft import prepare_model_for_kbit_training\nPACK = %s\ndef bits(on):\n    # packed or not\n    if not on:\n        return None\n    kind = 'nf4'\n    return BitsAndBytesConfig(\n        load_in_4bit=True,\n        bnb_4bit_quant_type=kind,\n        bnb_4bit_compute_dtype=torch.bfloat16,\n    )\npacked = bits(PACK)\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16, quantization_config=packed)\nif packed is not None:\n    model = prepare_model_for_kbit_training(model)\nmodel = get_peft_model(model, LoraConfig(r=8, target_modules='all-linear'))\nargs = TrainingArguments('o', per_device_train_batch_size=2, bf16=True)\nTrainer(model=model, args=args, train_dataset=d).train()\n"
for on, tuning, quant in (("True", "qlora", "nf4"), ("False", "lora", None), ("ask()", None, None)):
    code, j, err = check("--device", "h100", "--seq", "512", write("packed.py", PACKED % on))
    known = on != "ask()"
    ok(code == 0 and j["fits"] is (True if known else None) and (not known or (j["common"]["tuning"] == tuning and j["common"].get("quant") == quant)), "packed weights of a function: " + on, (code, j["common"], j.get("fits_not_answered"), j["findings"], err))
code, j, err = check("--device", "h100", "--seq", "512", write("itself.py", HEAD + "def f(x):\n    if f(x):\n        return 1\n    return 2\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='float32')\nTrainer(model, TrainingArguments('o', per_device_train_batch_size=f(2)), train_dataset=d).train()\n"))
ok(code == 0 and j["fits"] is None and "micro_batch" not in j["common"], "a function that asks itself", (code, j["common"], j["findings"], err))

code, j, err = check("--device", "h100", "--seq", "512", write("either.py", HEAD + "import inspect\nfrom trl import SFTConfig, SFTTrainer\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='float32')\nkwargs = dict(output_dir='o', per_device_train_batch_size=2)\nkwargs['max_seq_length'] = 256\nkwargs['max_length'] = 512\nvalid = set(inspect.signature(SFTConfig.__init__).parameters)\nargs = SFTConfig(**{k: v for k, v in kwargs.items() if k in valid})\nmore = {'model': model, 'args': args, 'train_dataset': d, 'tokenizer': t, 'processing_class': t}\nSFTTrainer(**{k: v for k, v in more.items() if k in inspect.signature(SFTTrainer.__init__).parameters}).train()\n"))
ok(code == 0 and j["common"].get("seq") == 512 and j["common"].get("micro_batch") == 2 and not any(f["severity"] == "error" for f in j["findings"]), "what a class lacks is left out", (code, j["common"], j.get("fits_not_answered"), j["findings"], err))

# ---- what is taken out of a dictionary is not handed on ----
TAKEN = HEAD + "import sys\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='float32')\nkw = dict(per_device_train_batch_size=2, bf16=True, mine=3, gradient_checkpointing=True)\n%s\nargs = TrainingArguments('o', **kw)\nTrainer(model=model, args=args, train_dataset=d).train()\n"
for text, recompute, wrong, fits in (("mine = kw.pop('mine')\nkw.pop('gradient_checkpointing', None)", "none", [], True), ("del kw['mine']", "full", [], True), ("kw.pop('other', None)", "full", ["mine"], True), ("if len(sys.argv) > 2:\n    kw.pop('mine')\n    kw.pop('gradient_checkpointing')", None, [], None), ("batch = kw.pop('per_device_train_batch_size')\nkw['per_device_train_batch_size'] = batch\nkw.pop('mine')", "full", [], True)):
    code, j, err = check("--device", "h100", "--seq", "512", write("taken.py", TAKEN % text))
    ok([f["key"] for f in j["findings"] if f["severity"] == "error"] == wrong and j["fits"] is fits and (recompute is None or j["common"].get("recompute") == recompute) and j["common"].get("micro_batch") == 2, "taken out: " + text, (code, j["common"], j.get("fits_not_answered"), j["findings"], err))

# ---- layers to adapt by a name whose value nobody knows ----
LAYERS = HEAD + "def main(layers=('q_proj', 'v_proj')):\n    if isinstance(layers, str):\n        layers = [n.strip() for n in layers.split(',')]\n    model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='float32')\n    model = get_peft_model(model, LoraConfig(r=8, target_modules=%s))\n    Trainer(model=model, args=TrainingArguments('o', per_device_train_batch_size=2), train_dataset=d).train()\nmain()\n"
for text, wrong in (("layers", 0), ("'q_proj'", 1)):
    code, j, err = check("--device", "h100", "--seq", "512", write("layers.py", LAYERS % text))
    ok(sum(f["severity"] == "error" for f in j["findings"]) == wrong and j["fits"] is not True, "layers by name: " + text, (code, j["common"], j["findings"], err))

# ---- torchtune names its model by what builds it ----
for built, model in (("llama3_1.llama3_1_8b", "llama-3.1-8b"), ("llama3_2.lora_llama3_2_1b", "llama-3.2-1b"), ("qwen2_5.lora_qwen2_5_0_5b", "qwen2.5-0.5b"), ("qwen2_5.qwen2_5_7b_instruct", "qwen2.5-7b"), ("qwen3.lora_qwen3_1_7b_instruct", "qwen3-1.7b"), ("llama2.qlora_llama2_7b", "llama-2-7b"), ("mistral.mistral_7b", "mistral-7b-v0.1"), ("gemma2.gemma2_9b", "gemma-2-9b"), ("llama3_2_vision.llama3_2_vision_11b", None), ("llama2.llama2", None), ("phi3.phi3_mini", None)):
    code, j, err = check("--device", "h100", "--seq", "512", write("tune.yaml", "model:\n  _component_: torchtune.models.%s\ncheckpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: /tmp/x\noptimizer:\n  _component_: torch.optim.AdamW\n  fused: true\nbatch_size: 1\ngradient_accumulation_steps: 1\ndtype: bf16\nenable_activation_checkpointing: true\n" % built))
    ok(code in (0, 3) and j.get("target") == "torchtune" and j["model"] == model, "torchtune: " + built, (code, j.get("target"), j.get("model"), j.get("fits"), j.get("fits_not_answered"), err))

# ---- litgpt names its model by place ----
for words, model in (("finetune_full Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"), ("finetune_full checkpoints/Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"), ("finetune full Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"), ("finetune_full --checkpoint_dir checkpoints/Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"), ("finetune_full", None)):
    code, j, err = check("--device", "h100", "--", "litgpt", *words.split(), *"--train.global_batch_size 8 --train.micro_batch_size 2 --precision bf16-true --train.max_seq_length 512".split())
    ok(j["model"] == model and j["fits"] is (True if model else None), "litgpt " + words, (code, j.get("model"), j.get("fits_not_answered"), err))

# ---- weights that are published in fewer bits than the files say ----
for name, how, want in (("unsloth/llama-3-8b-Instruct-bnb-4bit", "finetuning_type: lora\nlora_target: all", None), ("unsloth/llama-3-8b-Instruct-bnb-4bit", "finetuning_type: lora\nlora_target: all\nquantization_bit: 4", True), ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "finetuning_type: lora\nlora_target: all", None),
                        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "finetuning_type: lora\nlora_target: all\nquantization_bit: 4", None), ("Qwen/Qwen2.5-7B-Instruct", "finetuning_type: lora\nlora_target: all", True)):
    for model in (), ("--model", "llama-3-8b" if "llama" in name else "qwen2.5-7b"):
        code, j, err = check("--device", "h100", *model, write("packed.yaml", "model_name_or_path: %s\nstage: sft\n%s\ntemplate: x\noutput_dir: o\nper_device_train_batch_size: 1\nbf16: true\ncutoff_len: 512\n" % (name, how)))
        ok(j["fits"] is want and (want or not model or name in j["fits_not_answered"]), "%s, %s, %s" % (name, how, model), (code, j.get("fits"), j.get("fits_not_answered"), err))

finish()
P
