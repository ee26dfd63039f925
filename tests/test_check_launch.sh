#!/bin/bash
# tests/test_check_launch.sh: what commands and launchers change of what files say, as `vplan check` reads it: overrides behind a file,
# how many processes start, who fills a batch. The last line counts.
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


check = asker(vplan, "check")


def shown(*words):
    return subprocess.run((vplan, "check") + words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=60).stdout.decode()


def write(name, text):
    with open(name, "w") as f:
        f.write(text)
    return name


def findings(j, severity=None):
    return [(f["severity"], f["file"], f["line"], f["key"]) for f in j.get("findings", []) if severity in (None, f["severity"])]


# ---- LLaMA-Factory merges NAME=VALUE behind its file into it, and refuses --NAME there ----
FACTORY = "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: qwen\ncutoff_len: 2048\nper_device_train_batch_size: 2\nbf16: true\ndataset: a\noutput_dir: o\n"
write("lf.yaml", FACTORY)
for words in ("llamafactory-cli train lf.yaml per_device_train_batch_size=16 cutoff_len=8192", "lmf train lf.yaml cutoff_len=8192 per_device_train_batch_size=16", "env NPROC_PER_NODE=1 llamafactory-cli train lf.yaml per_device_train_batch_size=16 cutoff_len=8192"):
    for given in ("--",) + tuple(words.split()), (write("lf.sh", "#!/bin/bash\n" + words + "\n"),):
        code, j, err = check(*given)
        ok(code == 0 and (j["common"]["micro_batch"], j["common"]["seq"]) == (16, 8192) and j["target"] == "llamafactory", words, (code, j.get("common"), j.get("findings"), err))
for word, key in (("accelerator_config.gradient_accumulation_kwargs.sync_each_batch=true", "gradient_sync"), ("lora_rank=32", "lora_r"), ("bf16=false", "precision")):
    plain, changed = check("--", "llamafactory-cli", "train", "lf.yaml")[1], check("--", "llamafactory-cli", "train", "lf.yaml", word)[1]
    ok(plain["common"].get(key) != changed["common"].get(key), word, (plain["common"], changed["common"], changed["findings"]))
code, j, err = check("--", "llamafactory-cli", "train", "lf.yaml", "cutof_len=8192")
ok(code == 4 and ("error", "the command", None, "cutof_len") in findings(j), "an override of no key", (code, j["findings"]))
code, j, err = check("--", "llamafactory-cli", "train", "lf.yaml", "--cutoff_len", "512")
said = [f for f in j["findings"] if f["severity"] == "error"]
ok(code == 4 and [(f["key"], f["instead"]) for f in said] == [("cutoff_len", "cutoff_len=512")], "an option behind LLaMA-Factory's file", (code, j["findings"]))
code, j, err = check("--", "llamafactory-cli", "train", "--cutoff_len", "512", "--stage", "sft", "--finetuning_type", "full", "--bf16")
ok(code == 0 and j["common"]["seq"] == 512, "options alone", (code, j.get("common"), j["findings"]))
# of others nobody knows what they do with it
for words in ("python train.py lf.yaml cutoff_len=512", "torchrun --nproc_per_node 2 src/train.py lf.yaml cutoff_len=512"):
    code, j, err = check("--device", "4090", "--", *words.split())
    ok(code == 0 and j["fits"] is None and "cutoff_len=512" in j["fits_not_answered"] and any("cutoff_len=512" in f["message"] for f in j["findings"]), words, (code, j.get("fits_not_answered"), j.get("findings")))

# ---- `trl` hands what its script's parser does not have, of its words and of its file, on to accelerate launch ----
TRL = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: x\noutput_dir: o\nper_device_train_batch_size: 1\nmax_length: 512\n"
write("plain.yaml", TRL)
write("c8.yaml", TRL + "accelerate_config: zero3\nnum_processes: 4\n")
write("n8.yaml", TRL + "num_processes: 8\n")
write("acc.yaml", "distributed_type: FSDP\nnum_processes: 6\nmixed_precision: bf16\nfsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_reshard_after_forward: true}\n")
write("own.yaml", TRL + "accelerate_config: acc.yaml\n")
for words, means in (("trl sft --config plain.yaml", {"parallel": "none", "world": 1}), ("trl sft --config plain.yaml --num_processes 2", {"world": 2}), ("trl sft --config plain.yaml --accelerate_config zero2 --num_processes 2", {"parallel": "zero2", "world": 2}),
                     ("trl sft --num_processes 2 --config plain.yaml --accelerate_config zero2", {"parallel": "zero2", "world": 2}), ("trl sft --config plain.yaml --accelerate_config zero2", {"parallel": "zero2", "world": 8}),
                     ("trl sft --config c8.yaml", {"parallel": "zero3", "world": 4}), ("trl sft --config c8.yaml --num_processes 2", {"parallel": "zero3", "world": 2}), ("trl sft --config n8.yaml", {"world": 8}), ("trl sft --config own.yaml", {"parallel": "fsdp2", "world": 6}),
                     ("trl sft --config own.yaml --num_processes 3", {"parallel": "fsdp2", "world": 3}), ("trl dpo --config plain.yaml --use_deepspeed --zero_stage 3 --num_processes 2", {"parallel": "zero3", "world": 2, "method": "dpo"}),
                     ("CUDA_VISIBLE_DEVICES=0,1 trl sft --config plain.yaml", {"world": 2}), ("CUDA_VISIBLE_DEVICES=0,1 trl sft --config plain.yaml --num_processes 1", {"world": 1})):
    for given in ("--",) + tuple(words.split()), (write("trl.sh", "#!/bin/bash\n" + words + "\n"),):
        code, j, err = check(*given)
        ok(code == 0 and j["target"] == "trl" and all(j["common"].get(k, 1 if k == "world" else "none") == v for k, v in means.items()), words, (code, j.get("common"), j.get("findings"), err))
        ok(not any("num_processes" in f["message"] + f["key"] or "config" == f["key"] and "not judged" in f["message"] for f in j["findings"]), words + ": nobody else's keys", j["findings"])
for given, means in ((("c8.yaml",), ("zero3", 4)), (("n8.yaml",), (None, 8))):
    code, j, err = check(*given)
    ok(code == 0 and (j["common"].get("parallel"), j["common"]["world"]) == means, "TRL's file alone: %s" % given, (code, j.get("common"), j["findings"]))
code, j, err = check("--", "accelerate", "launch", "--num_processes", "2", "trl/scripts/sft.py", "--config", "c8.yaml")
said = [f["key"] for f in j["findings"] if "drops it" in f["message"]]
ok(code == 0 and j["common"]["world"] == 2 and j["common"].get("parallel") != "zero3" and "num_processes" in said and "accelerate_config" in said, "TRL's file, and another launcher", (code, j["common"], j["findings"]))
code, j, err = check("--device", "4090", "--", "trl", "sft", "--config", "c8.yaml")
ok(code in (0, 3) and j["fits"] is not None and j["common"]["world"] == 4, "four cards are counted", (code, j.get("fits_not_answered")))

# ---- a command whose script or whose keys load the model for something else than what is counted has no verdict ----
write("classes.json", json.dumps(dict(model_type="bert", architectures=["BertForSequenceClassification"], hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=30522, max_position_embeddings=512, type_vocab_size=2)))
ARGS = "--model_name_or_path x --output_dir o --per_device_train_batch_size 4 --learning_rate 2e-5 --do_train"
for words, model, why in (("python run_glue.py " + ARGS, "qwen2.5-0.5b", None), ("python run_glue.py " + ARGS, "gpt2", "ForSequenceClassification in run_glue.py"), ("torchrun examples/run_xnli.py " + ARGS, "gpt2", "ForSequenceClassification"), ("python run_glue.py " + ARGS, "bert-base-uncased", None), ("torchrun --nproc_per_node 1 examples/run_xnli.py " + ARGS, "bert-base-uncased", None), ("python run_ner.py " + ARGS, "gpt2", "ForTokenClassification"), ("python run_ner.py " + ARGS, "bert-base-uncased", None),
                          ("python run_qa.py " + ARGS, "bert-base-uncased", "ForQuestionAnswering"), ("python run_swag.py " + ARGS, "bert-base-uncased", "ForMultipleChoice"), ("python run_mlm.py " + ARGS, "gpt2", "ForMaskedLM"),
                          ("python run_glue.py " + ARGS, "classes.json", None), ("python run_mlm.py " + ARGS, "bert-base-uncased", None), ("python run_clm.py " + ARGS, "gpt2", None), ("python run_clm.py " + ARGS, "bert-base-uncased", "ForCausalLM"),
                          ("accelerate launch --num_processes 1 run_clm_no_trainer.py " + ARGS, "gpt2", "loop of its own"), ("python examples/scripts/reward_modeling.py " + ARGS, "gpt2", "reward"),
                          ("swift sft --model x --task_type seq_cls --num_labels 1 --torch_dtype bfloat16 --tuner_type full --max_length 128", "qwen2.5-0.5b", "task_type"), ("swift sft --model x --num_labels 2 --torch_dtype bfloat16 --tuner_type full --max_length 128", "qwen2.5-0.5b", "num_labels"),
                          ("swift sft --model x --task_type embedding --torch_dtype bfloat16 --tuner_type full --max_length 128", "qwen2.5-0.5b", "task_type embedding"), ("swift sft --model x --task_type causal_lm --torch_dtype bfloat16 --tuner_type full --max_length 128", "qwen2.5-0.5b", None)):
    code, j, err = check("--model", model, "--device", "h100", "--seq", "128", "--versions", "transformers=4.57", "--", *words.split())
    if why:
        ok(code == 0 and j["fits"] is None and why in j["fits_not_answered"], words, (code, j.get("fits_not_answered"), j.get("findings"), err))
    else:
        ok("For" not in (j["fits_not_answered"] if j["fits"] is None else ""), words + " of " + model, (code, j.get("fits_not_answered"), err))
REWARD = "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 512\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\noptimizer: adamw_torch\nlearning_rate: 0.0001\nbf16: true\ndatasets:\n- {path: x, type: alpaca}\n"
for line, why in (("", None), ("reward_model: true\n", "reward_model says reward"), ("process_reward_model: true\n", "process_reward_model says prm"), ("reward_model: false\n", None)):
    code, j, err = check(write("reward.yaml", REWARD + line), "--device", "h100")
    ok(why in j["fits_not_answered"] if why else j["fits"] is not None, "axolotl's " + line, (code, j.get("fits_not_answered"), err))
for line, open_ in (("xformers_attention: true\n", True), ("sage_attention: true\n", True), ("attn_implementation: xformers\n", True), ("xformers_attention: false\n", False), ("attn_implementation: sdpa\n", False)):
    code, j, err = check(write("attends.yaml", REWARD + line), "--device", "h100")
    ok((j["fits"] is None) == open_ and (not open_ or line.split(":")[0] + " in attends.yaml takes" in j["fits_not_answered"]), "axolotl's " + line, (code, j.get("fits_not_answered"), err))

# ---- layers that device_map lays out over several cards are no DataParallel ----
SEES = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '%s'\nfrom transformers import AutoModelForCausalLM, TrainingArguments, Trainer\nm = AutoModelForCausalLM.from_pretrained('gpt2'%s)\nTrainer(model=m, args=TrainingArguments('o', per_device_train_batch_size=2), train_dataset=d).train()\n"
for cards, more, said, fits in (("0,1", ", device_map='auto'", "device_map lays the model's layers out", None), ("0", ", device_map='auto'", None, True), ("0,1", "", "trains by DataParallel", True), ("0,1", ", device_map={'': 0}", "trains by DataParallel", True)):
    code, j, err = check(write("sees.py", SEES % (cards, more)), "--device", "4090", "--seq", "128")
    found = [f["message"] for f in j["findings"] if f["key"] == "CUDA_VISIBLE_DEVICES"]
    ok(code == 0 and j["fits"] is fits and (len(found) == 1 and said in found[0] if said else not found), "cards %s%s" % (cards, more), (code, found, j.get("fits_not_answered"), err))

# ---- an optimizer of DeepSpeed's file trains, whatever the trainer's arguments say ----
ENGINE = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,\n"optimizer": {"type": "%s", "params": {"lr": 0.0001%s}},\n"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}\n'
for kind, more, word in (("AdamW", "", "adamw_torch_fused"), ("Adam", "", "adamw_torch_fused"), ("adam", "", "adamw_torch_fused"), ("AdamW", ', "torch_adam": true', "adamw_torch"), ("AdamW", ', "torch_adam": false', "adamw_torch_fused"), ("Lamb", "", None)):
    write("engine.json", ENGINE % (kind, more))
    code, j, err = check("engine.json", "--model", "gpt2", "--device", "4090", "--seq", "512", "--world", "2")
    ok(j["common"].get("optimizer") == word and (j["fits"] is not None if word else "optimizer.type" in j["fits_not_answered"]), "%s%s" % (kind, more), (code, j.get("common"), j.get("fits_not_answered"), j.get("findings"), err))
    for optim, beaten in (("adamw_8bit", True), (None, False), ("adamw_torch_fused", word == "adamw_torch")):
        if not word:
            continue
        write("args.yaml", "output_dir: o\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 2\nlearning_rate: 0.0001\nbf16: true\ndeepspeed: engine.json\n" + ("optim: %s\n" % optim if optim else ""))
        for given in ("args.yaml",), ("engine.json", "args.yaml"), ("--", "torchrun", "--nproc_per_node", "2", "train.py", "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2", "--learning_rate", "0.0001", "--output_dir", "o", "--bf16", "--deepspeed", "engine.json") + (("--optim", optim) if optim else ()):
            code, j, err = check(*given)
            said = [f for f in j["findings"] if f["key"] == "optim"]
            ok(code == 0 and j["common"]["optimizer"] == word and [f["severity"] for f in said] == ["warning"] * beaten and all("that trains" in f["message"] for f in said), "%s beside DeepSpeed's %s%s" % (optim, kind, more), (code, given, j["common"], j["findings"], err))

# ---- --model that is another than the files' own is said; a plan of another model is not written into them ----
for named, model, said in (("meta-llama/Llama-3.1-70B", "llama-3.1-8b", ["warning"]), ("meta-llama/Llama-3.1-8B", "llama-3.1-8b", []), ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", []), ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-7b", ["warning"]), ("Qwen/Qwen2-VL-7B-Instruct", "qwen2.5-7b", ["note"]), ("x/y", "qwen2.5-7b", ["note"]),
                           ("./models/mine", "qwen2.5-7b", []), ("/models/mine", "qwen2.5-7b", []), ("x", "qwen2.5-7b", [])):
    write("named.yaml", FACTORY.replace("Qwen/Qwen2.5-0.5B", named))
    code, j, err = check("named.yaml", "--model", model, "--device", "h200")
    found = [(f["severity"], f["line"]) for f in j["findings"] if f["key"] == "model_name_or_path"]
    ok(found == [(s, 1) for s in said] and j["model"] == model and all(named in f["message"] and model in f["message"] for f in j["findings"] if f["key"] == "model_name_or_path"), "%s, counted as %s" % (named, model), (code, j["findings"], j.get("model"), err))
ok(check("named.yaml", "--model", "gpt2")[1]["findings"] == [] and check("named.yaml")[1]["model"] is None, "nothing is counted", "")
AXOLOTL = "base_model: %s\nmicro_batch_size: 1\ngradient_accumulation_steps: 8\nsequence_len: 2048\nbf16: true\noptimizer: adamw_torch_fused\nval_set_size: %s\ndatasets:\n- {path: x, type: alpaca}\n"


def run(*words):
    p = subprocess.run((vplan,) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


code, out, err = run("plan", "qwen2.5-0.5b", "--trainer", "axolotl", "--device", "h100", "--seq", "512", "--global-batch", "8", "-o", "settings.json")
ok(code == 0, "a plan", (out, err))
for named, evaluates, says in (("NousResearch/Llama-3.2-1B", "0.0", None), ("Qwen/Qwen2.5-0.5B", "0.0", False), ("Qwen/Qwen2.5-0.5B", "0.1", True), ("x/y", "0.0", False)):
    write("a.yml", AXOLOTL % (named, evaluates))
    code, out, err = run("emit", "settings.json", "--for", "axolotl", "--edit", "a.yml")
    ok(code == 4 and named in err and "vplan plan llama-3.2-1b" in err if says is None else code == 0 and ("\noff " in out) == says, "a plan of qwen2.5-0.5b for %s %s" % (named, evaluates), (code, out, err))

# ---- a batch of DeepSpeed's file: what is not written follows from the rest, and what does not come out ends the run ----
BATCH = '{%s "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}\n'
for said, world, means, errors, notes in (('"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,', "8", (8, 4, 2), [], []), ('"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,', None, (None, 4, None), [], ["train_batch_size"]),
                                          ('"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4,', "8", (8, 4, 4), ["train_batch_size"], []), ('"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4,', "4", (4, 4, 4), [], []),
                                          ('"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4,', None, (4, 4, 4), [], []), ('"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,', "3", (3, 4, None), ["train_batch_size"], []),
                                          ('"train_batch_size": 2, "train_micro_batch_size_per_gpu": 4,', "1", (1, 4, None), ["train_batch_size"], []), ('"train_micro_batch_size_per_gpu": 4,', "8", (8, 4, None), [], ["train_micro_batch_size_per_gpu"]),
                                          ('"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4,', "8", (8, 4, 4), [], None)):
    code, j, err = check(write("batch.json", BATCH % said), *(("--world", world) if world else ()))
    means_ = tuple(j["common"].get(k) for k in ("world", "micro_batch", "accumulation"))
    ok(code == (4 if errors else 0) and (errors or means_ == means) and [f["key"] for f in j["findings"] if f["severity"] == "error"] == errors, "%s on %s" % (said, world), (code, means_, j["findings"], err))
    ok(notes is None or [f["key"] for f in j["findings"] if f["severity"] == "note" and "batch" in f["key"]] == notes, "%s on %s: notes" % (said, world), j["findings"])
code, j, err = check(write("batch.json", BATCH % '"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,'), "--", "deepspeed", "--num_gpus", "4", "train.py", "--deepspeed_config", "batch.json")
ok(code == 0 and (j["common"]["world"], j["common"]["accumulation"]) == (4, 4), "by the launcher's processes", (code, j.get("common"), j["findings"]))
code, j, err = check("batch.json", "--world", "8", "--model", "gpt2", "--device", "4090", "--seq", "512")
ok(code == 0 and j["fits"] is True, "and fit is answered", (code, j.get("fits_not_answered"), err))
for lines, accumulation in (("batch_size: 16\nmicro_batch_size: 2\n", 8), ("batch_size: 5\nmicro_batch_size: 2\n", 2), ("gradient_accumulation_steps: 4\nmicro_batch_size: 2\n", 4), ("micro_batch_size: 2\n", 1)):
    code, j, err = check(write("a.yml", "base_model: x\nsequence_len: 512\nbf16: true\ndatasets: [{path: x, type: alpaca}]\n" + lines), "--world", "2")
    ok(code == 0 and j["common"]["accumulation"] == accumulation, "axolotl's " + lines, (code, j.get("common"), j["findings"]))
for lines, warns in (("lora_r: 8\n", True), ("lora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nadapter: lora\n", False)):
    code, j, err = check(write("a.yml", "base_model: x\nsequence_len: 512\nbf16: true\nmicro_batch_size: 1\ndatasets: [{path: x, type: alpaca}]\n" + lines))
    ok(code == 0 and (("warning", "a.yml", 6, "lora_r") in findings(j)) == warns, "axolotl's " + lines, (code, j["findings"]))

# ---- the files that TRL brings say what its own do: fit is answered as of the same file by its path ----
BROUGHT = {"zero1": "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 1, gradient_accumulation_steps: 1}\n", "zero2": "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\n", "zero3": "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, zero3_init_flag: true}\n",
           "fsdp1": "distributed_type: FSDP\nfsdp_config: {fsdp_version: 1, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_reshard_after_forward: FULL_SHARD, fsdp_use_orig_params: true}\n", "fsdp2": "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_reshard_after_forward: true}\n",
           "multi_gpu": "distributed_type: MULTI_GPU\n"}
for name, text in sorted(BROUGHT.items()):
    write("own-%s.yaml" % name, text + "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n")
    answers = [check("--device", "h100", "--", "trl", "sft", "--config", "plain.yaml", "--accelerate_config", which) for which in (name, "own-%s.yaml" % name)]
    ok(all(code == 0 and j["fits"] is True for code, j, err in answers) and len(set(j["device_bytes"] for code, j, err in answers)) == 1, "TRL's %s.yaml" % name, [(code, j.get("device_bytes"), j.get("fits_not_answered"), j.get("findings")) for code, j, err in answers])

# ---- LLaMA-Factory: all cards of each machine where nobody says how many; a precision that nobody asks for ----
for words, world, warns in (("FORCE_TORCHRUN=1 NNODES=2 llamafactory-cli train lf.yaml", None, True), ("FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train lf.yaml", 8, False), ("NNODES=2 CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train lf.yaml", 4, False),
                            ("torchrun --nnodes 2 train.py --output_dir o --bf16 --optim sgd", 2, False), ("deepspeed --num_nodes 2 train.py --output_dir o --bf16 --optim sgd", None, True)):
    code, j, err = check("--", *words.split())
    ok(code == 0 and j["common"].get("world", 1) == (world or 1) and (("warning", "the command", None, "world") in findings(j)) == warns and all("--world" in f["message"] for f in j["findings"] if f["key"] == "world"), words, (code, j["common"].get("world"), j["findings"]))
    code, j, err = check("--world", "16", "--", *words.split())
    ok(code == 0 and j["common"]["world"] == (world or 16) and not any(f["key"] == "world" for f in j["findings"]), words + " on 16", (code, j["common"].get("world"), j["findings"]))
NO_TYPE = FACTORY.replace("bf16: true\n", "")
for lines, tuning, precision in (("", "lora", None), ("bf16: false\n", "lora", None), ("", "full", "fp32"), ("bf16: true\n", "lora", "bf16-amp"), ("bf16: true\n", "full", "bf16-mixed"), ("bf16: true\npure_bf16: true\n", "full", "bf16-amp"), ("bf16: true\npure_bf16: true\n", "lora", "bf16-amp"),
                                 ("pure_bf16: true\n", "full", "bf16"), ("fp16: true\n", "lora", "fp16-amp")):
    code, j, err = check(write("type.yaml", NO_TYPE.replace("lora", tuning) + lines), "--device", "h100")
    said = [f for f in j["findings"] if f["key"] == "bf16"]
    ok(code in (0, 3) and j["common"].get("precision") == precision and [(f["severity"], f["instead"]) for f in said] == ([] if precision else [("warning", "bf16: true")]), "%r of %s" % (lines, tuning), (code, j.get("common"), j["findings"], err))
    ok((j["fits"] is not None) if precision else "without bf16" in j["fits_not_answered"], "%r of %s: fit" % (lines, tuning), j.get("fits_not_answered"))
code, j, err = check("--", "llamafactory-cli", "train", "type.yaml", "fp16=false", "bf16=true")
ok(code == 0 and j["common"]["precision"] == "bf16-amp", "the command asks", (code, j["common"], j["findings"]))

# ---- buckets of DeepSpeed's file against those that are counted: more is added, what may be less is said ----
ZERO = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": %d%s}}\n'
write("zero.yaml", "output_dir: o\ndeepspeed: zero.json\nbf16: true\nper_device_train_batch_size: 1\ngradient_checkpointing: true\n")


def zero(stage, more):
    write("zero.json", ZERO % (stage, more))
    code, j, err = check("zero.yaml", "--model", "llama-3.2-1b", "--device", "h100", "--seq", "512", "--world", "8", "--versions", "transformers=4.57")
    return j.get("device_bytes", 0), j.get("interval", {}).get("low_bytes"), [a for a in j.get("assumptions", []) if "zero.json" in a]


n = 1235814400
for stage in 2, 3:
    plain, low, said = zero(stage, "")
    ok(plain and not said, "what is counted, at stage %d" % stage, (plain, said))
    for more, bytes_, fewer, lines in ((', "reduce_bucket_size": 5e8', 0, 0, 0), (', "reduce_bucket_size": 4e9', 2 * (4000000000 + n - 1000000000), 0, 1), (', "reduce_bucket_size": 500000000, "overlap_comm": %s' % ("true" if stage == 3 else "false"), 0, 0, 0),
                                       (', "reduce_bucket_size": 2e8', 0, 2 * 600000000, 1), (', "reduce_bucket_size": "auto"', 0, 2 * 2 * (500000000 - 2048 * 2048), 1)):
        took, least, said = zero(stage, more)
        ok((took - plain, low - least, len(said)) == (bytes_, fewer, lines), "stage %d%s" % (stage, more), (took - plain, low - least, said))
took, least, said = zero(2, ', "overlap_comm": true')
ok(took - zero(2, "")[0] == 2 * 2 * 500000000 and len(said) == 1, "a second bucket", (took, said))
took, least, said = zero(3, ', "stage3_prefetch_bucket_size": 4e9')
ok(took - zero(3, "")[0] == 2 * (1000000000 - 50000000) and len(said) == 1, "fetched ahead, as far as weights may be whole", (took, said))
took, least, said = zero(3, ', "stage3_max_live_parameters": 4e9, "stage3_max_reuse_distance": 1e9')
ok(took - zero(3, "")[0] == 2 * (n - 1000000000) and len(said) == 1, "kept whole", (took, said))

finish()
P
