#!/bin/bash
# tests/test_check_options.sh: scripts whose options argparse, typer, click or TRL's parser reads: what a command says, or a default, as
# those make a value of it. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import os, subprocess, sys

sys.path.insert(0, "tests")
from check import asker, finish, ok

vplan, work, root = sys.argv[1:4]
os.chdir(work)
check = asker(vplan, "check")
CARD = ("--device", "4090", "--seq", "512")


def write(name, text):
    with open(name, "w") as f:
        f.write(text)
    return name


HEAD = "import torch, argparse, typer, click\nfrom typing import Annotated, Optional\nfrom transformers import AutoModelForCausalLM, TrainingArguments, Trainer\nfrom peft import LoraConfig, get_peft_model\n"
BODY = """    model = AutoModelForCausalLM.from_pretrained(model_id, dtype=torch.bfloat16)
    if lora:
        model = get_peft_model(model, LoraConfig(r=rank, target_modules='all-linear'))
    args = TrainingArguments('o', per_device_train_batch_size=batch_size, bf16=True, gradient_checkpointing=ckpt)
    Trainer(model, args, train_dataset=ds).train()
"""
M = "'Qwen/Qwen2.5-0.5B'"
PROGRAMS = {
    "typer.Option": HEAD + "app = typer.Typer()\n@app.command()\ndef main(model_id: str = %s, batch_size: int = typer.Option(4, '--batch-size', '--bs', help='x'), lora: bool = typer.Option(False), rank: int = typer.Option(default=8, min=1), ckpt: bool = True):\n" % M + BODY + "if __name__ == '__main__':\n    app()\n",
    "typer, annotated": HEAD + "def main(\n    model_id: Annotated[str, typer.Option(help='x = y')] = %s,\n    batch_size: Annotated[int, typer.Option('-b', '--batch-size')] = 4,\n    lora: Annotated[bool, typer.Option('--lora/--full')] = False,\n    rank: int = 8,\n    ckpt: bool = True,\n):\n" % M + BODY + "typer.run(main)\n",
    "click": HEAD + "@click.command()\n@click.option('--model_id', default=%s, help='m')\n@click.option('--batch-size', '-b', type=int, default=4, show_default=True)\n@click.option('--lora', is_flag=True)\n@click.option('--rank', 'rank', default=8)\n@click.option('--ckpt/--no-ckpt', default=True)\ndef main(model_id, batch_size, lora, rank, ckpt):\n" % M + BODY + "if __name__ == '__main__':\n    main()\n",
    "fire": HEAD + "import fire\ndef main(model_id=%s, batch_size: int = 4, lora=False, rank=8, ckpt=True):\n" % M + BODY + "fire.Fire(main)\n",
}
for name, text in PROGRAMS.items():
    write("t.py", text)
    for words, want in (("", (4, "full", None, "full")), ("--batch-size 2 --lora --rank 16", (2, "lora", 16, "full")), ("--batch-size 2 --no-ckpt", (2, "full", None, "none"))):
        code, j, err = check(*CARD, "--", "python", "t.py", *words.split())
        got = tuple(j.get("common", {}).get(k) for k in ("micro_batch", "tuning", "lora_r", "recompute"))
        ok(code == 0 and got == want and j["fits"] is True and not j["common"].get("missing"), "%s: %s" % (name, words), (code, got, j.get("findings"), j.get("fits_not_answered"), err))
    code, j, err = check(*CARD, "t.py")
    said = sorted(f["key"] for f in j["findings"] if "is the default of" in f["message"] or "by the default of" in f["message"])
    ok("per_device_train_batch_size" in said and "" in said, name + ": defaults are said", (said, j["findings"]))
write("two.py", HEAD + "app = typer.Typer()\n@app.command()\ndef try_out(model_id: str = 'gpt2'):\n    m = AutoModelForCausalLM.from_pretrained(model_id, dtype='float32')\n@app.command()\ndef fine_tune(model_id: str = %s, batch_size: int = 4, lora: bool = True, rank: int = 8, ckpt: bool = False):\n" % M + BODY + "app()\n")
code, j, err = check(*CARD, "--", "python", "two.py", "fine-tune", "--rank", "32")
ok(code == 0 and j["common"]["lora_r"] == 32 and j["model"] == "qwen2.5-0.5b" and j["fits"] is True, "one command of two", (code, j.get("common"), j.get("model"), j.get("findings"), err))
for bad in "@click.option('--batch-size', multiple=True, default=[4])", "@click.option('--batch-size', required=True, type=int)", "@click.option('--batch-size', default=compute())":
    code, j, err = check(*CARD, write("t.py", PROGRAMS["click"].replace("@click.option('--batch-size', '-b', type=int, default=4, show_default=True)", bad)))
    ok("micro_batch" not in j["common"] and j["fits"] is None, bad, (j.get("common"), j.get("fits_not_answered")))

# ---- argparse converts a default that is text ----
ARGS = HEAD + "def str2bool(v):\n    return v.lower() in ('yes', 'true')\np = argparse.ArgumentParser()\np.add_argument('--lora', %s)\np.add_argument('--batch', %s)\na = p.parse_args()\nmodel_id, lora, rank, batch_size, ckpt = %s, a.lora, 8, a.batch, False\nif True:\n" % ("%s", "%s", M) + BODY.replace("if lora", "if a.lora").replace("=batch_size", "=a.batch").replace("(model_id", "(" + M).replace("=rank", "=8").replace("=ckpt", "=False")
for how, words, want in (("type=str2bool, default='false'", "", "full"), ("type=str2bool, default='yes'", "", "lora"), ("type=str2bool, default=False", "--lora 1", "lora"), ("type=str2bool, default='true'", "--lora no", "full"), ("type=str2bool, nargs='?', const=True, default=False", "--lora", "lora"),
                         ("type=bool, default='False'", "", "lora"), ("type=bool, default=''", "", "full"), ("type=bool, default=False", "--lora False", "lora"), ("action=argparse.BooleanOptionalAction, default=True", "--no-lora", "full"), ("action=argparse.BooleanOptionalAction, default=False", "--lora", "lora"),
                         ("action='store_true', default=False", "--lora", "lora"), ("type=int, default='0'", "", "full"), ("type=int, default='0'", "--lora 1", "lora"), ("type=lambda x: x == 'on', default='on'", "", None), ("type=lambda x: x == 'on', default=False", "--lora on", None), ("type=lambda x: x == 'on', default=False", "", "full"), ("type=str2bool, default='maybe'", "", None)):
    code, j, err = check(*CARD, "--", "python", write("a.py", ARGS % (how, "type=int, default='8'")), *words.split())
    got = j.get("common", {}).get("tuning") if j.get("fits") else None
    ok(code in (0, 3) and got == want, "--lora of %s: %s" % (how, words), (code, got, j.get("common"), j.get("fits_not_answered"), j.get("findings"), err))
    ok(j["common"]["micro_batch"] == 8, "type=int, default='8'", j["common"])
for how, words, want in (("type=int, default='2'", "", 2), ("default=2", "--batch 3", 3), ("type=float, default='2'", "", 2), ("type=eval, default='2'", "", None)):
    code, j, err = check(*CARD, "--", "python", write("a.py", ARGS % ("action='store_true'", how)), *words.split())
    got = j.get("common", {}).get("micro_batch") if j.get("fits") else None
    ok(("is text, not a number" in str(j["findings"])) == (how == "default=2"), "text stays text: " + how, j["findings"])
    ok(got == want, "--batch of %s: %s" % (how, words), (code, got, j.get("findings"), err))

# ---- TRL's parser: its ModelConfig says how a model is loaded and adapted, in a command of a script's own too ----
TRL = """from trl import ModelConfig, ScriptArguments, %(c)s, %(t)s, TrlParser, get_kbit_device_map, get_peft_config, get_quantization_config
from transformers import AutoModelForCausalLM
def main(script_args, training_args, model_args):
    quantization_config = get_quantization_config(model_args)
    kwargs = dict(revision=model_args.model_revision, torch_dtype=model_args.dtype, attn_implementation=model_args.attn_implementation, quantization_config=quantization_config)
    model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, **kwargs)
    %(t)s(model, args=training_args, train_dataset=ds, peft_config=get_peft_config(model_args)).train()
%(p)s
script_args, training_args, model_args = parser.parse_args_and_config()
main(script_args, training_args, model_args)
"""
WORDS = "--model_name_or_path Qwen/Qwen2.5-0.5B --output_dir o --per_device_train_batch_size 2 --bf16 --gradient_checkpointing --max_length 512"
LORA = " --use_peft --lora_r 16 --lora_target_modules all-linear --dtype bfloat16"
for parser in "parser = TrlParser((ScriptArguments, %(c)s, ModelConfig))", "types = (ScriptArguments, %(c)s, ModelConfig)\nparser = TrlParser(types)", "parser = HfArgumentParser((ScriptArguments, %(c)s, ModelConfig))":
    for more, want in (("", ("full", None, "bf16-mixed", True)), (LORA, ("lora", 16, "bf16-amp", True)), (LORA + " --load_in_4bit", ("qlora", 16, "bf16-amp", True))):
        names = {"c": "SFTConfig", "t": "SFTTrainer"}
        write("own.py", TRL % dict(names, p=parser % names))
        code, j, err = check(*CARD, "--", "python", "own.py", *(WORDS + more).split())
        got = tuple(j["common"].get(k) for k in ("tuning", "lora_r", "precision")) + (j["fits"],)
        ok(code == 0 and got == want, "%s%s" % (parser, more), (code, got, j.get("fits_not_answered"), j.get("findings"), err))
        ok(not any("not read: no literal" in f["message"] for f in j["findings"]), "what the command says is no gap", j["findings"])
    names = {"c": "DPOConfig", "t": "DPOTrainer"}
    code, j, err = check(*CARD, "--", "python", write("own.py", TRL % dict(names, p=parser % names)), *(WORDS + LORA).split())
    ok(j["common"].get("method") == "dpo", "a command's method is that of its script, which is there", (j.get("common"), err))
code, j, err = check(*CARD, "--model", "gpt2", "own.py")
ok(j["fits"] is None and "tuning" not in j["common"], "without its command nobody knows whether it adapts", (j.get("common"), j.get("fits_not_answered")))
p = subprocess.run((vplan, "check") + CARD + ("--", "python", "own.py") + tuple(WORDS.split()), stdout=subprocess.PIPE)
ok(b"--edit own.py" not in p.stdout, "the script has no line to edit", p.stdout)
for script, method in (("train_dpo.py", "dpo"), ("run-kto.py", "kto"), ("reward_modeling.py", "reward"), ("dpo_sft.py", "sft"), ("adopt.py", "sft"), ("train_rm.py", "reward")):
    code, j, err = check(*CARD, "--", "python", script, *WORDS.split())
    ok(j["common"].get("method") == method or (method in ("kto", "reward") and j["fits"] is None and method in j["fits_not_answered"]), script, (j.get("common"), j.get("fits_not_answered"), err))
# ---- sums and products of what is known ----
SUM = HEAD + "import fire\ndef main(batch: int = 64, micro: int = 4, world=1):\n    steps = %s\n    model = AutoModelForCausalLM.from_pretrained(" + M + ", dtype=torch.bfloat16)\n    Trainer(model, TrainingArguments('o', per_device_train_batch_size=micro, gradient_accumulation_steps=steps, bf16=True), train_dataset=ds).train()\nfire.Fire(main)\n"
for text, words, want in (("batch // micro", "", 16), ("batch // micro", "--batch 32", 8), ("batch // micro", "--micro 8 --batch 32", 4), ("batch // micro // world", "--world 2", 8), ("2 * 3", "", 6), ("(batch + 64) // micro", "", 32), ("micro * 2 + 1", "", None), ("batch // 0", "", None), ("2 ** 3", "", None), ("batch // len(ds)", "", None), ("-micro", "", None), ("9 - 3 - 2", "", 4), ("batch / micro", "", 16)):
    code, j, err = check(*CARD, "--", "python", write("sum.py", SUM % text), *words.split())
    got = j["common"].get("accumulation")
    ok(got == want or (want is None and j["fits"] is None), "%s: %s" % (text, words), (code, got, j.get("fits_not_answered"), j.get("findings"), err))
code, j, err = check(*CARD, write("sum.py", SUM % "batch // micro"))
ok(any("16 is by the default of --batch in line" in f["message"] for f in j["findings"]), "by which default", j["findings"])
# ---- a class of arguments that a script makes of Trainer's has other defaults ----
OWN = """from dataclasses import dataclass, field
from typing import Optional
import transformers
@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default="facebook/opt-125m")
@dataclass
class TrainingArguments(transformers.TrainingArguments):
    cache_dir: Optional[str] = field(default=None)
    optim: str = field(default="adamw_torch")
    gradient_checkpointing: bool = True
    model_max_length: int = field(default=256, metadata={"help": "tokens"})
    bits: int = field(default_factory=four)
parser = transformers.HfArgumentParser((ModelArguments, TrainingArguments))
model_args, training_args = parser.parse_args_into_dataclasses()
model = transformers.AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, dtype='float32')
transformers.Trainer(model=model, args=training_args, train_dataset=ds).train()
"""
GIVEN = "--per_device_train_batch_size 2 --bf16 True --output_dir o"
for words, wanted in (("", ("adamw_torch", "full", 256)), (" --optim adafactor", ("adafactor", "full", 256)), (" --gradient_checkpointing False --model_max_length 512", ("adamw_torch", "none", 512))):
    code, j, err = check("--device", "4090", "--", "python", write("own.py", OWN), *(GIVEN + words).split())
    got = tuple(j["common"].get(k) for k in ("optimizer", "recompute", "seq"))
    said = [f["key"] for f in j["findings"] if "of the script's own arguments" in f["message"]]
    ok(code == 0 and j["fits"] is True and j["model"] == "opt-125m" and got == wanted, "a class of arguments of one's own," + words, (code, got, j.get("fits_not_answered"), j["findings"], err))
    ok(said == [k for k in ("optim", "gradient_checkpointing", "model_max_length") if "--" + k not in words], "its defaults are said," + words, said)
code, j, err = check("--device", "4090", "--seq", "256", "--", "python", write("own.py", OWN.replace("(transformers.TrainingArguments)", "")), *GIVEN.split())
ok("adamw_torch" not in j["common"].get("optimizer", "").split() , "a class that is none of Trainer's", j["common"])

# ---- a shell's script and the script that it runs, each beside the other: by whatever way both are named ----
os.makedirs("there/train", exist_ok=True)
SFT = "from dataclasses import dataclass, field\nimport transformers, trl\n@dataclass\nclass Own:\n    model_name: str = field(default='gpt2')\n    use_lora: bool = field(default=False)\nparser = transformers.HfArgumentParser((Own, %s))\nconfig, args = parser.parse_args_into_dataclasses()\nmodel = transformers.AutoModelForCausalLM.from_pretrained(config.model_name, dtype='float32')\nif config.use_lora:\n    from peft import LoraConfig, get_peft_model\n    model = get_peft_model(model, LoraConfig(r=8, target_modules='all-linear'))\ntrl.SFTTrainer(model, train_dataset=d, args=args).train()\n"
write("there/run.sh", "base=Qwen/Qwen2.5-0.5B\ntorchrun --nproc_per_node 1 train/sft.py --model_name=$base --use_lora True --per_device_train_batch_size=2 --bf16=True --output_dir o\n")
for parsed, recompute in ("trl.SFTConfig", "full"), ("transformers.TrainingArguments", "none"):
    write("there/train/sft.py", SFT % parsed)
    for files in ("there/run.sh",), ("there/run.sh", "there/train/sft.py"), ("there/train/sft.py", "there/run.sh"):
        code, j, err = check("--device", "h100", "--seq", "512", *files)
        ok(code == 0 and j["model"] == "qwen2.5-0.5b" and j["common"].get("tuning") == "lora" and j["common"].get("lora_r") == 8 and j["common"].get("recompute") == recompute and j["fits"] is True, "%s of %s" % (files, parsed), (code, j.get("model"), j.get("common"), j.get("fits_not_answered"), j["findings"], err))

# ---- the environment: what a command sets, else what the script falls back on ----
ENVIRON = HEAD + "import os\nBATCH = int(os.environ.get('BATCH', '4'))\nmodel = AutoModelForCausalLM.from_pretrained(os.getenv('BASE', 'Qwen/Qwen2.5-0.5B'), dtype='float32')\nif os.environ.get('LORA', '0') == '1':\n    model = get_peft_model(model, LoraConfig(r=8, target_modules='all-linear'))\nargs = TrainingArguments('o', per_device_train_batch_size=BATCH, bf16=True, gradient_checkpointing=bool(int(os.environ.get('GC', default=0))))\nTrainer(model, args, train_dataset=ds).train()\n"
write("env.py", ENVIRON)
write("env.sh", "export BATCH=2 GC=1\nLORA=1 python env.py\n")
write("unset.sh", "BATCH=2\nexport GC=$(date)\npython env.py\n")
for how, want in ((("env.py",), (4, "full", "none", "qwen2.5-0.5b", True)), (("--", "python", "env.py"), (4, "full", "none", "qwen2.5-0.5b", True)), (("--", *"env BATCH=2 LORA=1 GC=1 BASE=gpt2 python env.py".split()), (2, "lora", "full", "gpt2", True)),
                  (("--", *"BATCH=2 GC=0 torchrun --nproc_per_node 1 env.py".split()), (2, "full", "none", "qwen2.5-0.5b", True)), (("env.sh",), (2, "lora", "full", "qwen2.5-0.5b", True)), (("env.py", "env.sh"), (2, "lora", "full", "qwen2.5-0.5b", True)), (("unset.sh",), (4, "full", None, "qwen2.5-0.5b", None))):
    code, j, err = check(*CARD, *how)
    got = (*(j["common"].get(k) for k in ("micro_batch", "tuning", "recompute")), j["model"], j["fits"])
    ok(code == 0 and got == want, "the environment of %s" % (how,), (code, got, j.get("fits_not_answered"), j["findings"], err))
code, j, err = check(*CARD, "env.py")
ok(any("4 is the default of $BATCH in line 6" in f["message"] for f in j["findings"]), "a default of the environment is said", j["findings"])
for name in "WORLD_SIZE", "LOCAL_RANK": # a launcher sets it
    write("rank.py", ENVIRON.replace("'BATCH', '4'", "'%s', '1'" % name))
    for how, want in (("rank.py",), None), (("--", "python", "rank.py"), 1), (("--", *"torchrun --nproc_per_node 2 rank.py".split()), None):
        code, j, err = check(*CARD, *how)
        ok(j["common"].get("micro_batch") == want, "%s of %s" % (name, how), (code, j["common"], j["findings"], err))

# ---- a shell's script whose training has no options ----
write("train_it.py", ENVIRON)
write("prepare.py", "import datasets\ndatasets.load_dataset('x').save_to_disk('d')\n")
for text in "python train_it.py\n", "python prepare.py\npython3 train_it.py\n", "python prepare.py --n 4 && BATCH=4 python train_it.py\n", "cd .\nCUDA_VISIBLE_DEVICES=0 python -u train_it.py > log 2>&1\n":
    code, j, err = check(*CARD, write("all.sh", text))
    ok(code == 0 and j["fits"] is True and j["common"]["micro_batch"] == 4, "a training without options: " + text, (code, j.get("common"), j.get("findings"), err))

# ---- options that a function hands on with what it does not know, or beside something else ----
TUPLE = HEAD + "def parse():\n    p = argparse.ArgumentParser()\n    p.add_argument('--bs', type=int, default=4)\n    p.add_argument('--gc', type=bool, default=True)\n    %s\ndef train(args):\n    model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B', dtype='float32')\n    Trainer(model, TrainingArguments('o', per_device_train_batch_size=args.bs, gradient_checkpointing=args.gc, bf16=True), train_dataset=ds).train()\ndef main():\n    %s\n    train(args)\nmain()\n"
for returns, takes in (("args = p.parse_known_args()\n    return args", "args, _ = parse()"), ("return p.parse_known_args()", "args, rest = parse()"), ("args, rest = p.parse_known_args()\n    return args, rest", "args, rest = parse()"), ("args = p.parse_args()\n    return args, 1", "args, n = parse()"), ("return p.parse_known_args()[0]", "args = parse()")):
    write("tuple.py", TUPLE % (returns, takes))
    for words, want in ((), 4), (("--bs", "2"), 2):
        code, j, err = check(*CARD, "--", "python", "tuple.py", *words)
        ok(code == 0 and j["common"].get("micro_batch") == want and j["common"].get("recompute") == "full" and j["fits"] is True, "%s, %s" % (returns, takes), (code, j["common"], j.get("fits_not_answered"), j["findings"], err))
code, j, err = check(*CARD, write("tuple.py", TUPLE % ("args = p.parse_args()\n    return 1, args", "args, n = parse()")))
ok("micro_batch" not in j["common"] and j["fits"] is None, "the other of two", (j["common"], j.get("fits_not_answered")))

# ---- fields of a class that is made of a trainer's arguments ----
FIELDS = "from dataclasses import dataclass, field\nimport transformers\nfrom transformers import AutoModelForCausalLM, Trainer\nfrom peft import LoraConfig, get_peft_model\n@dataclass\nclass TrainingArguments(transformers.TrainingArguments):\n    lora_enable: bool = False\n    lora_r: int = 64\n    model_name: str = field(default='Qwen/Qwen2.5-0.5B')\nparser = transformers.HfArgumentParser((TrainingArguments,))\ntraining_args = parser.parse_args_into_dataclasses()[0]\nmodel = AutoModelForCausalLM.from_pretrained(training_args.model_name, dtype='float32')\nif training_args.lora_enable:\n    model = get_peft_model(model, LoraConfig(r=training_args.lora_r, target_modules='all-linear'))\nTrainer(model=model, args=training_args, train_dataset=d).train()\n"
write("fields.py", FIELDS)
for words, want in (("", ("full", None)), ("--lora_enable True", ("lora", 64)), ("--lora_enable True --lora_r 8", ("lora", 8))):
    code, j, err = check(*CARD, "--", "python", "fields.py", *("--output_dir o --bf16 True --per_device_train_batch_size 2 " + words).split())
    got = (j["common"].get("tuning"), j["common"].get("lora_r"))
    ok(code == 0 and got == want and j["fits"] is True, "fields beside a trainer's: " + words, (code, got, j.get("fits_not_answered"), j["findings"], err))

finish()
P
