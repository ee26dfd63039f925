#!/bin/bash
# tests/test_check_trained.sh: which of a script's models is trained, which of its weights, and which of its adapters are handed to
# anybody: answered where the text is certain, said where it is not. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import os, sys

sys.path.insert(0, "tests")
from check import asker, finish, ok

vplan, work, root = sys.argv[1:4]
os.chdir(work)
check = asker(vplan, "check")
CARD = ("--device", "4090", "--seq", "512")
HEAD = "import torch\nfrom transformers import AutoModelForCausalLM, TrainingArguments, Trainer\nfrom peft import LoraConfig, get_peft_model\nfrom trl import SFTTrainer, SFTConfig, DPOTrainer, DPOConfig\n"
LOAD = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\n"
ADAPT = "model = get_peft_model(model, LoraConfig(r=16, target_modules='all-linear'))\n"
TRAIN = "Trainer(model, args=TrainingArguments('o', per_device_train_batch_size=2, bf16=True), train_dataset=ds).train()\n"


def script(*lines):
    with open("t.py", "w") as f:
        f.write(HEAD + "".join(lines))
    return "t.py"


def asks(what, lines, tuning="full", model="qwen2.5-0.5b", why=None):
    """Answered about that model and tuning; why: not answered, and this is said."""
    code, j, err = check(*CARD, script(*lines))
    said = j.get("fits_not_answered") or ""
    if why:
        ok(code == 0 and j.get("fits") is None and why in said, what, (code, said, j.get("findings"), err))
    else:
        ok(code == 0 and j.get("fits") is True and j["common"].get("tuning") == tuning and j["model"] == model, what, (code, said, j.get("common"), j.get("model"), j.get("findings"), err))
    return j


# ---- requires_grad ----
ALL = "for p in model.parameters():\n    p.requires_grad = %s\n"
NAMED = "for name, p in model.named_parameters():\n    if %s:\n        p.requires_grad = %s\n"
for what, lines, tuning, why in (
        ("all freed is what it was", (LOAD, ALL % "True", TRAIN), "full", None),
        ("frozen, then freed", (LOAD, ALL % "False", ALL % "True", TRAIN), "full", None),
        ("frozen by its method, then freed", (LOAD, "model.requires_grad_(False)\n", "model.requires_grad_(True)\n", TRAIN), "full", None),
        ("frozen, then freed by the method's default", (LOAD, ALL % "False", "model.requires_grad_()\n", TRAIN), "full", None),
        ("frozen", (LOAD, ALL % "False", TRAIN), None, "requires_grad in line 7"),
        ("frozen, before more other names than are told apart", (LOAD, "model.requires_grad_(False)\n", "".join("part%d.requires_grad_(True)\n" % i for i in range(20)), TRAIN),
         None, "requires_grad in line 6"),
        ("a part frozen, all freed before", (LOAD, ALL % "True", "for p in model.model.layers[:4].parameters():\n    p.requires_grad = False\n", TRAIN), None, "requires_grad in line 9"),
        ("all frozen, a part freed", (LOAD, ALL % "False", "for p in model.lm_head.parameters():\n    p.requires_grad = True\n", TRAIN), None, "requires_grad in line 7"),
        ("freed where nobody knows", (LOAD, ALL % "False", "if os.environ.get('F'):\n    for p in model.parameters():\n        p.requires_grad = True\n", TRAIN), None, "requires_grad in line 7"),
        ("frozen, then adapters", (LOAD, ALL % "False", ADAPT, TRAIN), "lora", None),
        ("adapters alone, by their names", (LOAD, ADAPT, NAMED % ("'lora' in name", "True") + "    else:\n        p.requires_grad = False\n", TRAIN), "lora", None),
        ("the same by what they are not", (LOAD, ADAPT, NAMED % ("'lora_' not in name", "False"), TRAIN), "lora", None),
        ("the same by an expression", (LOAD, ADAPT, "for n, p in model.named_parameters():\n    p.requires_grad = \"lora\" in n  # adapters\n", TRAIN), "lora", None),
        ("all frozen, then adapters freed", (LOAD, ADAPT, ALL % "False", NAMED % ("'lora' in name", "True"), TRAIN), "lora", None),
        ("on one line", (LOAD, ADAPT, "for n, p in model.named_parameters(): p.requires_grad = 'lora' in n\n", TRAIN), "lora", None),
        ("another condition", (LOAD, ADAPT, NAMED % ("'norm' in name", "True"), TRAIN), None, "requires_grad in line 9"),
        ("two conditions", (LOAD, ADAPT, NAMED % ("'lora' in name or 'norm' in name", "True"), TRAIN), None, "requires_grad in line 9"),
        ("adapters frozen", (LOAD, ADAPT, NAMED % ("'lora' in name", "False"), TRAIN), None, "requires_grad in line 9"),
        ("all freed beside adapters", (LOAD, ADAPT, ALL % "True", TRAIN), None, "requires_grad in line 8"),
        ("the head freed beside adapters", (LOAD, ADAPT, "model.lm_head.weight.requires_grad = True\n", TRAIN), None, "requires_grad in line 7"),
        ("it is only read", (LOAD, "n = sum(p.numel() for p in model.parameters() if p.requires_grad)\nfor n, p in model.named_parameters():\n    if p.requires_grad == True:\n        print(n, p.requires_grad)\n", TRAIN), "full", None)):
    asks(what, lines, tuning, why=why)

# ---- the model that the trainer is given ----
TEACHER = "teacher = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', dtype=torch.float16)\nteacher.eval()\n"
for what, lines in (
        ("a teacher before", (TEACHER, LOAD, TRAIN)), ("and after", (LOAD, TEACHER, TRAIN)), ("whose weights are frozen", (TEACHER, LOAD, "for p in teacher.parameters():\n    p.requires_grad = False\n", TRAIN)),
        ("by another name", (TEACHER.replace("teacher", "big"), LOAD, "for p in big.parameters():\n    p.requires_grad = False\n", TRAIN))):
    j = asks(what, lines, why="takes is not counted")
    ok(not any(f["severity"] == "error" for f in j["findings"]) and j["model"] == "qwen2.5-0.5b", what + ": no contradiction", (j["model"], j["findings"]))
asks("a model that goes before", (TEACHER, "labels = [teacher(x) for x in ds]\ndel teacher\ntorch.cuda.empty_cache()\n", LOAD, TRAIN))
asks("the one with another name", ("base = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\n", ADAPT.replace("(model,", "(base,"), TRAIN), "lora")
FUNCTIONS = "def load(name, dtype):\n    m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\n    m.config.use_cache = False\n    return m, None\ndef reference():\n    return AutoModelForCausalLM.from_pretrained('gpt2')\ndef main():\n    %s\n    trained, tok = load('a', 1)\n    wrapped = trained\n    " + TRAIN.replace("(model", "(model=wrapped") + "main()\n"
asks("through functions and names", (FUNCTIONS % "pass",))
asks("through functions, beside another", (FUNCTIONS % "other = reference()",), why="takes is not counted")
asks("a function that is given it", (LOAD, "def fit(net):\n    " + TRAIN.replace("(model", "(net") + "fit(model)\n"))
asks("who is trained nobody sees", ("a = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\nb = AutoModelForCausalLM.from_pretrained('gpt2')\nmodels = {}\nfill(models)\n", TRAIN.replace("(model", "(models['x']")), why="a in line 5 beside b in line 6 takes is not counted")
j = asks("checkpoints of the trained one", (LOAD, TEACHER, "model.gradient_checkpointing_enable()\n", "del teacher\n", TRAIN))
ok(j["common"]["recompute"] == "full", "they are on", j["common"])
j = check(*CARD, script(LOAD, "ref_model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype=torch.bfloat16)\nDPOTrainer(model, ref_model, args=DPOConfig('o', per_device_train_batch_size=1, bf16=True, max_length=512), train_dataset=ds).train()\n"))[1]
ok(j["common"].get("method") == "dpo" and not any("beside the one" in f["message"] for f in j["findings"]), "a reference is its method's", (j["common"], j["findings"]))

# ---- adapters that nobody is given ----
CONFIG = "config = LoraConfig(r=16, target_modules='all-linear')\n"
SFT = "SFTTrainer(model, args=SFTConfig('o', per_device_train_batch_size=2, bf16=True, max_length=512), train_dataset=ds%s).train()\n"
for what, lines, tuning in (
        ("of Trainer", (LOAD, CONFIG, TRAIN), "full"), ("of SFTTrainer", (LOAD, CONFIG, SFT % ""), "full"), ("handed to SFTTrainer", (LOAD, CONFIG, SFT % ", peft_config=config"), "lora"), ("handed to peft", (LOAD, CONFIG, "model = get_peft_model(model, config)\n", TRAIN), "lora"),
        ("by the model's own method", (LOAD, CONFIG, "model.add_adapter(config)\n", TRAIN), "lora"), ("only in a comment", (LOAD, CONFIG, "# model = get_peft_model(model, config)\n", TRAIN), "full"), ("one of two", (LOAD, CONFIG.replace("16", "64").replace("config", "other"), CONFIG, "model = get_peft_model(model, config)\n", TRAIN), "lora")):
    j = asks("adapters, " + what, lines, tuning)
    ok(any("is handed to nobody" in f["message"] for f in j["findings"]) == (tuning == "full" or what == "one of two"), what + ": said", j["findings"])
    ok(tuning == "full" or j["common"]["lora_r"] == 16, what + ": the rank", j["common"])
# ---- adapters that a choice hands on ----
GIVES = ", peft_config=%s"
for what, lines, tuning, why in (
        ("a constant that is False", (LOAD, CONFIG, "USE = False\n", SFT % GIVES % "config if USE else None"), "full", None), ("a constant that is True", (LOAD, CONFIG, "USE = True\n", SFT % GIVES % "config if USE else None"), "lora", None),
        ("the other way round, in brackets", (LOAD, CONFIG, "USE = True\n", SFT % GIVES % "(None if USE else config)"), "full", None), ("what nobody knows", (LOAD, CONFIG, SFT % GIVES % "config if f() else None"), None, "peft_config in line 7"),
        ("of two configs", (LOAD, CONFIG, SFT % GIVES % "config if f() else config"), "lora", None), ("peft's function on the other side", (LOAD, CONFIG, "USE = False\nmodel = get_peft_model(model, config) if USE else model\n", TRAIN), "full", None),
        ("on this one", (LOAD, CONFIG, "USE = False\nmodel = model if USE else get_peft_model(model, config)\n", TRAIN), "lora", None), ("peft's function, where nobody knows", (LOAD, CONFIG, "model = get_peft_model(model, config) if f() else model\n", TRAIN), None, "get_peft_model() in line 7")):
    asks("adapters by " + what, lines, tuning, why=why)
PARSER = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lora', action='store_true')\na = p.parse_args()\n"
OPTION = (LOAD, CONFIG, PARSER, SFT % GIVES % "config if a.lora else None")
j = asks("adapters by an option's default", OPTION)
ok(any("is chosen by the default of --lora in line 9" in f["message"] for f in j["findings"]), "the default is said", j["findings"])
code, j, err = check(*CARD, "--", "python", script(*OPTION), "--lora")
ok(j["fits"] and j["common"]["tuning"] == "lora", "what the command says", (j.get("common"), j.get("fits_not_answered"), err))
asks("a module is called as the adapters are", (LOAD, CONFIG.replace("config =", "peft ="), TRAIN))

code, j, err = check(script(LOAD, CONFIG, "args = TrainingArguments('o', per_device_train_batch_size=2, bf16=True)\n"))
ok(j["common"]["tuning"] != "full", "a piece of a script, whose rest is not here", j["common"])
# ---- adapters that no LoraConfig() of the script is handed for ----
asks("a config within add_adapter()", (LOAD, "model.add_adapter(LoraConfig(r=16, target_modules='all-linear'))\n", TRAIN), "lora")
PEFT = "from peft import PeftModel\n"
asks("saved adapters, trained on", (PEFT, LOAD, "model = PeftModel.from_pretrained(model, 'a/b', is_trainable=True)\n", TRAIN), why="PeftModel.from_pretrained() in line 7")
asks("merged before", (PEFT, LOAD, "model = PeftModel.from_pretrained(model, 'a/b').merge_and_unload()\n", TRAIN))
asks("merged behind", (PEFT, LOAD, TRAIN, "model = PeftModel.from_pretrained(model, 'o').merge_and_unload()\n"))

# ---- what a script asks the card that is named ----
ASKS = "import torch\nif torch.cuda.get_device_capability()[0] >= 8:\n    kind = torch.bfloat16\nelse:\n    kind = torch.float16\n"
MAJOR = "import torch\nmajor, minor = torch.cuda.get_device_capability()\nif major >= 8:\n    kind = torch.bfloat16\n    bf16, fp16 = True, False\nelse:\n    kind = torch.float16\n    bf16, fp16 = False, True\n"
BY_KIND = LOAD.replace("torch.bfloat16", "kind")
TRAINS = TRAIN.replace("bf16=True", "bf16=%s, fp16=%s")
for what, lines in (("by its capability", (ASKS, BY_KIND, TRAINS % ("kind == torch.bfloat16", "kind == torch.float16"))), ("by a part of it", (MAJOR, BY_KIND, TRAINS % ("bf16", "fp16"))),
                    ("whether it has bf16", (ASKS.replace("torch.cuda.get_device_capability()[0] >= 8", "torch.cuda.is_bf16_supported(including_emulation=False)"), BY_KIND, TRAINS % ("kind != torch.float16", "False")))):
    j = asks("a script that asks " + what, lines)
    ok(j["common"]["precision"] == "bf16-amp", "on a card with bf16, " + what, j["common"])
    code, j, err = check("--device", "t4", "--seq", "512", script(*lines))
    said = [f["message"] for f in j["findings"] if f["key"] == "dtype" and f["severity"] == "error"]
    ok(code == 4 and "GradScaler takes gradients in fp32 alone" in said[0] if "part" in what or "its capability" in what else code == 0, "on one without, " + what, (code, j["findings"]))
    code, j, err = check("--seq", "512", script(*lines))
    ok(code == 0 and "precision" not in j["common"], "on nobody's, " + what, (code, j["common"]))

# ---- weights in a format that autocast does not go with ----
HALF = LOAD.replace("bfloat16", "float16")
for what, lines, wanted, said in (("fp16 under fp16's", (HALF, TRAINS % ("False", "True")), 4, "GradScaler takes gradients in fp32 alone"), ("bf16 under fp16's", (LOAD, TRAINS % ("False", "True")), 4, "GradScaler takes gradients in fp32 alone"), ("fp16 under bf16's", (HALF, TRAIN), 0, "do not go with that autocast"),
                                  ("adapters, fp16 under fp16's", (HALF, ADAPT, TRAINS % ("False", "True")), 0, None), ("adapters, fp16 under bf16's", (HALF, ADAPT, TRAIN), 0, "do not go with that autocast")):
    code, j, err = check(*CARD, script(*lines))
    found = [f["message"] for f in j["findings"] if f["key"] == "dtype" and f["severity"] != "note"]
    ok(code == wanted and (len(found) == 1 and said in found[0] if said else not found), "weights, " + what, (code, j["findings"], err))
    ok(wanted or (j["fits"] is None) == (said is not None), "weights, whether it fits, " + what, (j["fits"], j.get("fits_not_answered")))

# ---- layers that a model does not have ----
for targets, model, severity, said, instead in (
        ("['q_porj']", "Qwen/Qwen2.5-0.5B", "error", "qwen2 has no module named q_porj: peft ends with an error", "q_proj"), ("['query_key_value']", "Qwen/Qwen2.5-0.5B", "error", "no module named query_key_value", None),
        ("['q_proj', 'v_porj']", "Qwen/Qwen2.5-0.5B", "warning", "no module named v_porj: peft goes on without a word", "v_proj"), ("['c_attn', 'q_proj', 'v_proj']", "openai-community/gpt2", "warning", "no module named q_proj or v_proj", None),
        ("'q_proj'", "Qwen/Qwen2.5-0.5B", "error", "q_proj is text, a regular expression", "[q_proj]"), ("'all_linear'", "Qwen/Qwen2.5-0.5B", "error", "is text", "all-linear"), ("['qkv_proj', 'q_proj']", "microsoft/Phi-3-mini-4k-instruct", "warning", "no module named q_proj", None),
        ("['q_proj', 'v_proj']", "Qwen/Qwen2.5-0.5B", None, None, None), ("['lm_head', 'q_proj']", "Qwen/Qwen2.5-0.5B", None, None, None), ("['self_attn.q_proj']", "Qwen/Qwen2.5-0.5B", None, None, None), ("r'.*q_porj'", "Qwen/Qwen2.5-0.5B", None, None, None), ("'all-linear'", "Qwen/Qwen2.5-0.5B", None, None, None)):
    code, j, err = check(*CARD, script(LOAD.replace("Qwen/Qwen2.5-0.5B", model), ADAPT.replace("'all-linear'", targets), TRAIN))
    found = [(f["severity"], f["message"], f["instead"]) for f in j["findings"] if f["key"] == "target_modules" and f["severity"] != "note"]
    ok(code == (4 if severity == "error" else 0) and (not found if not severity else len(found) == 1 and found[0][0] == severity and said in found[0][1] and found[0][2] == instead), "adapters on " + targets, (code, found, j.get("fits_not_answered"), err))
for name, wanted in (("'CAUSAL_LM'", 0), ("TaskType.CAUSAL_LM", 0), ("peft.TaskType.CAUSAL_LM", 0), ("'CAUSAL'", 4), ("TaskType.CAUSAL", 0), ("None", 0), ("kind()", 0)):
    code, j, err = check(*CARD, script(LOAD, ADAPT.replace("r=16", "r=16, task_type=" + name), TRAIN))
    ok(code == wanted and not any(f["key"] == "task_type" and f["severity"] == "note" for f in j["findings"]) == ("M" in name or name[0] in "N'"), "task_type " + name, (code, j["findings"], err))
for key, why in (("label_smoothing_factor=0.1", "label_smoothing_factor in t.py"), ("label_smoothing_factor=0.0", None), ("use_cpu=True", "use_cpu in t.py")):
    asks("what Trainer does besides: " + key, (LOAD, TRAIN.replace("bf16=True", "bf16=True, " + key)), why=why)

# ---- packed weights, by whatever name the model is told of them ----
BNB = "from transformers import BitsAndBytesConfig, GPTQConfig\n"
PACK = "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)"
MAKES = BNB + "def make():\n    return %s\n" % PACK
LOADS = LOAD.replace("dtype=", "quantization_config=%s, dtype=")
SFTS = "SFTTrainer(model, args=SFTConfig('o', per_device_train_batch_size=2, bf16=True, max_length=512), train_dataset=ds, peft_config=LoraConfig(r=16, target_modules='all-linear')).train()\n"
for what, lines, known in (
        ("by a function", (MAKES, LOADS % "make()", SFTS), True), ("by a name of what a function makes", (MAKES, "bnb = make()\n", LOADS % "bnb", SFTS), True), ("by a parameter", (BNB, "def load(b):\n    " + (LOADS % "b").replace("model =", "return"), "model = load(%s)\n" % PACK, SFTS), True),
        ("by a parameter that a function makes", (MAKES, "def load(b):\n    " + (LOADS % "b") + "    return model, 1\nmodel, tok = load(make())\n", SFTS), True), ("by nothing", (BNB, LOADS % "None", SFTS), None),
        ("by a function with two ends", (BNB, "def make():\n    if f():\n        return None\n    return %s\n" % PACK, LOADS % "make()", SFTS), False), ("by a function that a condition ends", (BNB, "def make():\n    if f():\n        return %s\n" % PACK, LOADS % "make()", SFTS), False),
        ("by a condition", (BNB, "bnb = None\nif f():\n    bnb = %s\n" % PACK, LOADS % "bnb", SFTS), False), ("by a choice", (BNB, "bnb = %s\n" % PACK, LOADS % "bnb if f() else None", SFTS), False), ("by another module", ("from mine import bnb\n", LOADS % "bnb", SFTS), False),
        ("by another module's function", ("import mine\n", LOADS % "mine.make()", SFTS), False), ("of another kind", (BNB, LOADS % "GPTQConfig(bits=4)", SFTS), False)):
    if known is False:
        j = asks("packed " + what, lines, why="what quantization_config in t.py says is not known")
    else:
        j = asks("packed " + what, lines, tuning="qlora" if known else "lora")
    ok(not any("double_quant" in f["message"] or f["severity"] == "error" for f in j["findings"]), "packed, no key at its root, " + what, j["findings"])
for more, code_, said in (("use_auth_token=True", 4, "is gone since transformers 5.0"), ("max_memory={0: '6GiB', 'cpu': '30GiB'}", 0, "layers beyond it go to other cards or the host")):
    code, j, err = check(*CARD, script(LOAD.replace("dtype=", more + ", dtype="), TRAIN))
    ok(code == code_ and any(said in f["message"] for f in j["findings"]), "loaded with " + more, (code, j["findings"], err))
asks("dropout of one's own", (LOAD.replace("dtype=", "attention_dropout=0.1, dtype="), TRAIN), why="attention_dropout in line 5")

# ---- adapters that a condition makes ----
MADE = "config = LoraConfig(r=%d, target_modules='all-linear')\n"
for what, lines, tuning, why in (
        ("or none, where nobody knows", ("config = None\nif f():\n    " + MADE % 16, SFT % GIVES % "config"), None, "LoraConfig() in line 8"), ("or none, by a constant", ("USE = True\nconfig = None\nif USE:\n    " + MADE % 16, SFT % GIVES % "config"), "lora", None),
        ("of two ranks, where nobody knows", ("if f():\n    " + MADE % 8 + "else:\n    " + MADE % 64, SFT % GIVES % "config"), None, "what r in t.py"), ("of one rank, either way", ("if f():\n    " + MADE % 8 + "else:\n    " + MADE % 8, SFT % GIVES % "config"), "lora", None),
        ("by a function", ("def make():\n    return LoraConfig(r=16, target_modules='all-linear')\n", SFT % GIVES % "make()"), "lora", None)):
    j = asks("adapters " + what, (LOAD,) + lines, tuning, why=why)
    ok(not any(f["severity"] == "error" for f in j["findings"]), "no contradiction, adapters " + what, j["findings"])
# ---- attention of a package whose step was not recorded ----
for word, why in (("'kernels-community/flash-attn2'", "attn_implementation in t.py takes is not counted"), ("'sage'", "attn_implementation in t.py takes is not counted"), ("'sdpa'", None), ("None", None), ("'flash_attention_2'", None), ("pick()", "attn_implementation in t.py says is not known")):
    asks("attention by " + word, (LOAD.replace("dtype=", "attn_implementation=" + word + ", dtype="), TRAIN), why=why)
# ---- what nobody reads is no default ----
for what, lines, why in (("attention", (LOAD.replace("dtype=", "attn_implementation=pick(), dtype="), TRAIN), "attn_implementation in t.py"), ("packing", (LOAD, SFT.replace("max_length=512", "max_length=512, packing=pick()") % ""), "packing in t.py"),
                         ("torch_compile", (LOAD, TRAIN.replace("bf16=True", "bf16=True, torch_compile=pick()")), "torch_compile in t.py"), ("two trainers of two batches", (LOAD, SFT % "", (SFT % "").replace("batch_size=2", "batch_size=8")), "per_device_train_batch_size in t.py")):
    asks("not read: " + what, lines, why=why)
asks("two trainers that differ in what no memory depends on", (LOAD, TRAIN.replace("'o'", "'a', learning_rate=1e-5"), TRAIN.replace("'o'", "'b', learning_rate=2e-5")))

code, j, err = check(*CARD, script(LOAD.replace("'Qwen/Qwen2.5-0.5B'", "cfg['name']"), TRAIN))
ok(code == 0 and "which model line 5 of t.py loads the text does not say; add --model MODEL" in j["fits_not_answered"], "a name that nobody reads, and where", (code, j.get("fits_not_answered"), err))
# ---- what Python's own functions make of what is known ----
for what, lines, why in (("a format by its name", (LOAD.replace("torch.bfloat16", "getattr(torch, kind)").replace("model =", "kind = 'bfloat16'\nmodel ="), TRAIN), None), ("a format that nobody knows", (LOAD.replace("torch.bfloat16", "getattr(torch, f())"), TRAIN), "dtype in t.py"),
                         ("a number of a text", (LOAD, TRAIN.replace("batch_size=2", "batch_size=int('2')")), None), ("a number of a number", (LOAD, "b = 2\n", TRAIN.replace("batch_size=2", "batch_size=int(b)")), None), ("a number of what nobody knows", (LOAD, TRAIN.replace("batch_size=2", "batch_size=int(f())")), "per_device_train_batch_size in t.py")):
    j = asks("made of " + what, lines, why=why)
    ok(why or (j["common"]["precision"] == "bf16-amp" and j["common"]["micro_batch"] == 2), "its value, " + what, j["common"])

# ---- functions whose names other objects' methods have; chains over lines ----
NAMED_SO = "def load(name):\n    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)\ndef train(model, size, epochs):\n    args = TrainingArguments('o', num_train_epochs=epochs, per_device_train_batch_size=size, bf16=True)\n    Trainer(model, args, None, ds.train).train()\nif __name__ == '__main__':\n    m = load('Qwen/Qwen2.5-0.5B')\n    train(m, 4, 3)\n"
j = asks("a function called as a method is", (NAMED_SO,))
ok(j["common"]["micro_batch"] == 4, "its arguments by place", j["common"])
asks("a chain in brackets over lines", ("model = (AutoModelForCausalLM\n    .from_pretrained('Qwen/Qwen2.5-0.5B')  # the base\n    .to(torch.bfloat16)\n    .cuda())\n", TRAIN))

# ---- a model's name that several texts make ----
FROM = "model = AutoModelForCausalLM.from_pretrained(%s, dtype=torch.bfloat16)\n"
PARTS = "org = 'Qwen'\nsize = 0.5\nwhich = f()\n"
for what, name, known in (("formatted", "f'{org}/Qwen2.5-{size}B'", True), ("of braces alone", "f'{org}' f\"/Qwen2.5-0.5B\"", True), ("side by side", "'Qwen/' 'Qwen2.5-0.5B'", True), ("over two lines", "(f'{org}/'\n    'Qwen2.5-0.5B')", True),
                          ("joined by signs", "org + '/' + f'Qwen2.5-{size}B'", True), ("three quotes", "f'''Qwen/Qwen2.5-0.5B'''", True), ("what nobody knows", "f'{org}/{which}'", False), ("a format of its own", "f'{org}/Qwen2.5-{size:.1f}B'", False),
                          ("joined by what nobody knows", "org + '/' + which", False), ("a call", "f'{org}/{name(1)}'", False), ("braces of the text's own", "f'{org}/{{x}}'", False), ("an escape", "f'{org}\\x2fQwen2.5-0.5B'", False)):
    code, j, err = check(*CARD, script(PARTS, FROM % name, TRAIN))
    ok(code == 0 and (j["fits"] is True and j["model"] == "qwen2.5-0.5b" if known else j["fits"] is None and j["model"] is None), "a name, " + what, (code, j.get("model"), j.get("fits_not_answered"), j.get("findings"), err))
OPTION = ("import argparse\np = argparse.ArgumentParser()\np.add_argument('-s', '--size', default='0.5B')\na = p.parse_args()\n", FROM % "f'Qwen/Qwen2.5-{a.size}'", TRAIN)
j = asks("a name by an option's default", OPTION)
ok(any("is by the default of --size in line 7" in f["message"] for f in j["findings"]), "which is said", j["findings"])
for words, model in ((("--size", "1.5B"), "qwen2.5-1.5b"), (("-s", "3B"), "qwen2.5-3b"), ((), "qwen2.5-0.5b")):
    code, j, err = check(*CARD, "--", "python", script(*OPTION), *words)
    ok(j["model"] == model and not any("default of" in f["message"] for f in j["findings"]), "a name by the command, " + model, (code, j.get("model"), j.get("findings"), err))
code, j, err = check(*CARD, script(LOAD, TRAIN.replace("'o'", "f'{which}-tuned', logging_steps=len(ds) // 4, save_steps=len(ds) // 2, learning_rate=r() / 2")))
ok([f["key"] for f in j["findings"] if "not read" in f["message"]] == ["learning_rate"], "what no memory depends on needs no word", j["findings"])

# ---- other sizes than the published model's ----
for what, lines, why in (("a layer's number", (LOAD.replace("dtype=", "num_hidden_layers=4, dtype="), TRAIN), "num_hidden_layers in line 5"), ("of a config", ("from transformers import AutoConfig\nc = AutoConfig.from_pretrained('Qwen/Qwen2.5-0.5B')\nc.num_hidden_layers = 4\n", LOAD.replace("dtype=", "config=c, dtype="), TRAIN), "num_hidden_layers in line 7"),
                         ("another vocabulary", (LOAD, "model.resize_token_embeddings(200000)\n", TRAIN), "resize_token_embeddings() in line 6"), ("the tokenizer's", (LOAD, "model.resize_token_embeddings(len(tok))\n", TRAIN), None), ("that is only read", (LOAD, "hidden_size = model.config.hidden_size\nif model.config.hidden_size == 3:\n    pass\nn = net(hidden_size=hidden_size)\n", TRAIN), None)):
    j = asks(what, lines, why=why)
    ok(why or ("the tokenizer's" in str(j["findings"])) == (what == "the tokenizer's"), what + ": said", j["findings"])
import json, subprocess
config = [m for m in json.loads(subprocess.run([vplan, "models", "--json"], stdout=subprocess.PIPE).stdout)["models"] if m["name"] == "qwen2.5-0.5b"][0]["config"]
with open("config.json", "w") as f:
    json.dump(dict(config, num_hidden_layers=4), f)
code, j, err = check(*CARD, "--model", "config.json", script(LOAD.replace("dtype=", "num_hidden_layers=4, dtype="), TRAIN))
ok(j["fits"] is True, "a config of one's own has the sizes", (j.get("fits_not_answered"), err))
code, j, err = check(*CARD, script(LOAD, "model = torch.compile(model)\n", TRAIN))
ok(any("torch.compile" in a for a in j["assumptions"]), "torch.compile() as torch_compile", (j.get("assumptions"), j.get("fits_not_answered")))
# ---- what a trainer of the script's own does by itself, and copies of the model ----
for what, lines in (("Trainer", "class Weighted(Trainer):\n    pass\n"), ("another name of it", "from transformers import Trainer as T\nclass Base(T):\n    pass\nclass Weighted(Base):\n    pass\n")):
    asks("a class of one's own, made of " + what, (LOAD, lines, TRAIN.replace("Trainer(", "Weighted(", 1)))
    asks("whose model is known beside another, " + what, (TEACHER, LOAD, lines, TRAIN.replace("Trainer(", "Weighted(", 1)), why="teacher in line 5 takes is not counted")
MINE = "class MyTrainer(Trainer):\n    def %s:\n        return f(self)\n"
OWN = "My" + TRAIN
asks("its optimizer", (LOAD, MINE % "create_optimizer(self)", OWN), why="create_optimizer() in line 7")
asks("its step", (LOAD, MINE % "training_step(self, model, inputs)", OWN), why="training_step() in line 7")
for what, before, launch, said in (("its loss", MINE % "compute_loss(self, model, inputs)", OWN, "the script's own loss"), ("processes of a notebook", "def go():\n    " + TRAIN + "from accelerate import notebook_launcher\n", "notebook_launcher(go, num_processes=2)\n", "--world N"), ("one of them", "def go():\n    " + TRAIN, "notebook_launcher(go, num_processes=1)\n", None)):
    j = check(*CARD, script(LOAD, before, launch))[1]
    ok(j["fits"] is True and (any(said in f["message"] for f in j["findings"]) if said else "launcher" not in str(j["findings"])), what, (j.get("fits_not_answered"), j["findings"]))
asks("a copy", (LOAD, "import copy\nema = copy.deepcopy(model)\n", TRAIN), why="a copy of the model in line 7")
# ---- Liger's kernels, put into the model by the script ----
for what, before, load, loss in (("its class's", "from liger_kernel.transformers import AutoLigerKernelForCausalLM\n", LOAD.replace("AutoModelForCausalLM", "AutoLigerKernelForCausalLM"), "liger-all"), ("by a call", "from liger_kernel.transformers import apply_liger_kernel_to_qwen2\napply_liger_kernel_to_qwen2()\n", LOAD, "liger-all"),
                                 ("of which nobody knows", "from liger_kernel.transformers import apply_liger_kernel_to_qwen2\napply_liger_kernel_to_qwen2(rope=False)\n", LOAD, None), ("that are imported alone", "from liger_kernel.transformers import apply_liger_kernel_to_qwen2\n", LOAD, "full")):
    j = check(*CARD, script(before, load, TRAIN))[1]
    ok(j["common"].get("loss") == loss and j["fits"] is (True if loss else None), "Liger's kernels, " + what, (j["common"], j.get("fits_not_answered"), j["findings"]))
# ---- functions that call themselves, and each other ----
for text in ("def f(n):\n    return f(n) if n else model\n", "def f(n):\n    return g(n)\ndef g(n):\n    return f(n), model\n", "def f(a):\n    a = f(a)\n    return a\n"):
    code, j, err = check(*CARD, script(LOAD, text, TRAIN.replace("(model", "(f(model)")))
    ok(code in (0, 4) and j["model"] == "qwen2.5-0.5b", "a circle: " + text, (code, j.get("findings"), err))
finish()
P
