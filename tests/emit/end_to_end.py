#!/usr/bin/env python3
"""What `vplan plan --trainer` chose and `vplan emit` wrote, played by `vplan dryrun` with the real libraries: PyTorch's own peak
against the stated interval and the card, and the next larger micro-batch, which the plan called too large.

    end_to_end.py VPLAN PYTHON OUT.csv [--only TRAINER ...] [--models MODEL ...] [--trl-python PYTHON] [--deepspeed-python PYTHON] [--rows N] [--replay]

PYTHON has torch, transformers and accelerate; --trl-python's trl and datasets too, --deepspeed-python's DeepSpeed, Lightning and jsonargparse.
Every case is planned again; a row of OUT.csv whose plan is what it was is not played again, what is predicted of it is today's. At most N are played; each play takes ten
seconds to a minute. --replay plays rows whose plan is what it was too.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "programs"))
import rows

MODELS = {"gpt2": rows.GPT2, "gpt2-large": rows.GPT2_L, "smol-135m": rows.SMOL, "qwen-0.5b": rows.QWEN, "llama-1b": rows.LLAMA_1B, "tiny-1b": rows.TINY,
          "llama-7b": rows.LLAMA_7B, "mistral-7b": rows.MISTRAL}
CASES = [  # model, card, sequence, global batch, pins
    ("gpt2", "4090", 1024, 16, ""), ("smol-135m", "l4", 2048, 16, ""), ("qwen-0.5b", "4090", 1024, 16, ""), ("llama-1b", "a100-sxm-40gb", 1024, 16, ""),
    ("gpt2", "l4", 512, 64, "--precision bf16"), ("llama-1b", "4090", 1024, 16, "--precision bf16"), ("qwen-0.5b", "h100", 2048, 32, ""),
    ("gpt2-large", "a100-sxm-40gb", 1024, 16, ""), ("tiny-1b", "4090", 1024, 8, "--precision bf16"), ("smol-135m", "h100", 2048, 64, ""),
    ("gpt2-large", "4090", 1024, 16, "--recompute full"), ("tiny-1b", "a100-sxm-40gb", 2048, 8, "--recompute full"), ("gpt2", "4090", 1024, 16, "--precision fp32"),
    ("smol-135m", "4090", 1024, 64, "--precision bf16 --optimizer adamw_torch"), ("qwen-0.5b", "l4", 1024, 8, "--precision bf16"),
    ("llama-1b", "h100", 2048, 16, "--recompute none"), ("gpt2", "l4", 1024, 16, "--attention eager"), ("qwen-0.5b", "4090", 512, 32, "--recompute full"),
    ("gpt2-large", "h100", 1024, 64, "--optimizer adamw_torch"), ("smol-135m", "l4", 1024, 32, "--precision fp32"),
    ("llama-7b", "h100", 2048, 8, "--precision bf16"), ("mistral-7b", "h100", 2048, 8, "--precision bf16"),
    ("llama-1b", "4090", 1024, 16, "--lora r=16,alpha=32,targets=all-linear"), ("qwen-0.5b", "l4", 1024, 16, "--lora r=8,targets=q_proj+v_proj --precision bf16-amp"),
]
WORLDS = [  # trainer, the case; --world is among the pins
    ("accelerate", "gpt2", "4090", 1024, 64, "--world 4 --parallel ddp"), ("accelerate", "qwen-0.5b", "4090", 1024, 32, "--world 4 --parallel fsdp2"),
    ("accelerate", "smol-135m", "l4", 2048, 32, "--world 2 --parallel fsdp2"), ("accelerate", "gpt2", "l4", 1024, 64, "--world 4 --parallel zero2"),
    ("accelerate", "tiny-1b", "a100-sxm-40gb", 1024, 64, "--world 8 --parallel fsdp2"), ("trl", "smol-135m", "4090", 1024, 64, "--world 4 --parallel ddp"),
    ("trl", "qwen-0.5b", "4090", 1024, 64, "--world 4 --parallel fsdp2"), ("hf", "gpt2", "4090", 1024, 64, "--world 4 --parallel zero1"),
    ("hf", "qwen-0.5b", "l4", 1024, 32, "--world 4 --parallel fsdp2"), ("deepspeed", "gpt2", "4090", 1024, 64, "--world 4 --parallel zero1"),
    ("deepspeed", "qwen-0.5b", "4090", 1024, 64, "--world 4 --parallel zero2"), ("deepspeed", "gpt2", "l4", 1024, 64, "--world 4 --parallel zero3"),
]
LIGER = [("hf", "qwen-0.5b", "4090", 1024, 32, "--liger"), ("hf", "llama-1b", "a100-sxm-40gb", 2048, 16, "--liger"), ("hf", "smol-135m", "l4", 2048, 16, "--liger"),
         ("hf", "llama-1b", "4090", 1024, 16, "--lora r=16,alpha=32,targets=all-linear --liger")]
FIRST = [("hf", "qwen-0.5b", "4090", 1024, 32, "--recompute first:8"), ("hf", "llama-1b", "a100-sxm-40gb", 2048, 16, "--recompute first:4"),
         ("hf", "tiny-1b", "4090", 1024, 8, "--precision bf16 --recompute first:9"), ("torch", "tiny-1b", "4090", 2048, 16, "--precision bf16"),
         ("torch", "llama-1b", "4090", 2048, 16, "--precision bf16"), ("torch", "qwen-0.5b", "4090", 2048, 16, ""), ("torch", "smol-135m", "l4", 2048, 64, "")]
# families that vplan has no graph of: built-in models with fewer layers
CUT = {"granite-4": ("granite-3.3-2b", 4), "gemma3-6": ("gemma-3-1b", 6), "starcoder2-4": ("starcoder2-3b", 4), "phi2-4": ("phi-2", 4), "smollm3-4": ("smollm3-3b", 4), "mixtral-1": ("mixtral-8x7b", 1),
       "xlmr-4": ("xlm-roberta-base", 4), "falcon-2": ("falcon-7b", 2)}
RECORDED = [("hf", "granite-4", "4090", 512, 8, ""), ("hf", "gemma3-6", "4090", 512, 8, ""), ("hf", "starcoder2-4", "4090", 512, 8, ""), ("hf", "phi2-4", "4090", 512, 8, ""),
            ("hf", "smollm3-4", "4090", 512, 16, "--recompute full"), ("hf", "mixtral-1", "a100-sxm-80gb", 512, 8, ""), ("hf", "xlmr-4", "4090", 512, 8, ""), ("hf", "falcon-2", "a100-sxm-40gb", 512, 8, ""),
            ("torch", "granite-4", "4090", 1024, 8, "--precision bf16")]
METHODS = [("trl", "qwen-0.5b", "4090", 512, 16, "--method reward"), ("trl", "llama-1b", "4090", 512, 16, "--method reward --lora r=16,alpha=32,targets=all-linear"),
           ("trl", "qwen-0.5b", "4090", 320, 16, "--method grpo --target-seq 64 --lora r=16,alpha=32,targets=all-linear"), ("trl", "qwen-0.5b", "a100-sxm-40gb", 320, 16, "--method grpo --target-seq 64")]
# what the cases above are played as; the others by their share of them, since they are slow
PLAYED = {"torch": range(len(CASES)), "hf": range(len(CASES)), "trl": (0, 1, 2, 3, 5, 8, 9, 11, 17, 22), "accelerate": (0, 1, 2, 7, 10, 12, 16),
          "lightning": (0, 1, 2, 10), "deepspeed": (0, 2, 10, 12)}
LARGE = {"llama-7b", "mistral-7b"}  # drawn on the host by the emitted script: more memory than a small machine has
FIELDS = ["trainer", "model", "card", "seq", "global_batch", "pins", "micro_batch", "accumulation", "recompute", "allocator", "predicted_reserved", "low", "high", "played_allocated",
          "played_reserved", "miss", "in_interval", "in_card", "next_micro_batch", "next_said", "next_verdict"]
CASE = FIELDS[:6]
WORDS = ("micro_batch", "accumulation", "recompute", "allocator")
HERE = os.path.dirname(os.path.abspath(__file__))
LAUNCH = ["-m", "accelerate.commands.launch", "--config_file", "accelerate.yaml"]
TOKENIZER = """
import sys, tokenizers, transformers
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "<eos>": 1}, unk_token="a"))
words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<eos>", unk_token="a").save_pretrained(sys.argv[1])
"""
REWARDS = "def length(completions, **more):\n    return [float(len(c)) for c in completions]\n"


def run(words, **more):
    p = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def samples(method, seq, common):
    """What is full of tokens: a text; of a pair both sequences; a prompt, behind which a completion has its place."""
    return {"sft": {"input_ids": [0] * seq}, "reward": {"chosen_ids": [0] * seq, "rejected_ids": [0] * seq}, "grpo": {"prompt": "a " * (seq - common.get("completion", 0))}}[method]


def checkpoint(a, config, seq, common):
    """A folder that trl's own script can train: weights that take no disk, a tokenizer, full samples."""
    folder = config + "." + common["method"]
    if not os.path.exists(folder):
        for words in ([a.vplan, "dryrun", "--fake-weights", config, "-o", folder, "--", a.trl_python], [a.trl_python, "-c", TOKENIZER, folder]):
            code, _, err = run(words)
            if code:
                sys.exit("checkpoint of %s: %s" % (config, err))
        os.mkdir(os.path.join(folder, "data"))
        with open(os.path.join(folder, "data", "train.jsonl"), "w") as f:
            f.write("".join(json.dumps(samples(common["method"], seq, common)) + "\n" for _ in range(1024)))
    return folder


def command(a, folder, trainer, config, seq, settings):
    """The one that the emitted README.md says, with what it leaves to the user."""
    s = json.load(open(settings))["common"]
    loop = [os.path.join(HERE, "user_loops.py"), trainer, folder, config, settings]
    if trainer == "trl":
        model, method = checkpoint(a, config, seq, s), s["method"]
        if method == "grpo":
            with open(os.path.join(folder, "rewards.py"), "w") as f:
                f.write(REWARDS)
        return [a.trl_python] + LAUNCH + ["--module", "trl.scripts." + method, "--config", method + ".yaml"] + ["--reward_funcs", "rewards.length"] * (method == "grpo") + ["--dataset_name", os.path.join(model, "data"), "--model_name_or_path", model,
                                          "--output_dir", "out", "--report_to", "none"]
    python = a.deepspeed_python if trainer in ("deepspeed", "lightning") or s["parallel"].startswith("zero") else a.python
    if trainer == "deepspeed":
        return [python, "-m", "torch.distributed.run", "--nproc-per-node", str(s["world"])] + loop
    if trainer == "accelerate":
        return [python] + LAUNCH + loop
    if trainer == "hf":
        return [python] + (LAUNCH if s["world"] > 1 else []) + ["train.py"]
    return [python] + loop


def play(a, folder, trainer, card, config, seq, settings):
    env = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
    launch = open(os.path.join(folder, "README.md")).read()
    if "PYTORCH_ALLOC_CONF=expandable_segments:True" in launch:
        env["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    padding = "none" if json.load(open(settings))["common"]["method"] == "sft" else "mask"       # of pairs, and of completions, few are alike
    code, out, err = run([a.vplan, "dryrun", "--device", card, "--steps", "3", "--padding", padding, "--no-owners", "--json", "--"] +
                         command(a, folder, trainer, config, seq, settings), cwd=folder, env=env)
    answer = json.loads(out) if out else {"verdict": "failed"}
    if answer["verdict"] == "failed":
        sys.exit("%s: %s\n%s" % (trainer, answer.get("reason"), err[-2000:]))
    return answer


def emit(a, settings, trainer, folder):
    code, _, err = run([a.vplan, "emit", settings, "--for", trainer, "-o", folder, "--force"])
    if code:
        sys.exit("emit %s: %s" % (trainer, err))


def planned(a, trainer, model, card, seq, batch, pins, work):
    """The plan and what it predicts as a row; the row alone where there is none."""
    config = os.path.join(work, model + ".json")
    json.dump(MODELS[model], open(config, "w"))
    code, out, err = run([a.vplan, "plan", config, "--trainer", trainer, "--device", card, "--seq", str(seq), "--global-batch", str(batch), "--json",
                          "-o", os.path.join(work, "s.json"), "--force"] + pins.split())
    row = {k: str(v) for k, v in dict(trainer=trainer, model=model, card=card, seq=seq, global_batch=batch, pins=pins).items()}
    if code:
        return None, dict(row, next_verdict="plan: exit %d %s" % (code, err.strip()[:120]))
    j = json.loads(out)
    outside = j["device_bytes"] - j["reserved_peak_bytes"]
    row.update({k: str(j["common"][k]) for k in WORDS}, next_said=said(a, row, j, work), predicted_reserved=j["reserved_peak_bytes"], low=j["interval"]["low_bytes"] - outside,
               high=j["interval"]["high_bytes"] - outside)
    return j, row


def larger(j):
    """The next micro-batch of the same global batch; None: there is none."""
    m, each = j["common"]["micro_batch"], j["common"]["micro_batch"] * j["common"]["accumulation"]
    return next((n for n in range(m + 1, each + 1) if each % n == 0), None)


def said(a, row, j, work):
    """What the plan says of the next larger micro-batch with all else as it is: fits, tight or too large; "": there is none."""
    common = dict(j["common"], micro_batch=larger(j))
    if not common["micro_batch"]:
        return ""
    pins = row["pins"].split() + ["--micro-batch", str(common["micro_batch"])] + (["--recompute", common["recompute"]] if "--recompute" not in row["pins"] else [])
    code, out, err = run([a.vplan, "plan", os.path.join(work, row["model"] + ".json"), "--trainer", row["trainer"], "--device", row["card"], "--seq", row["seq"], "--global-batch",
                          row["global_batch"], "--json"] + pins)
    if code not in (0, 3):
        sys.exit("plan %s: %s" % (pins, err))
    answer = json.loads(out)
    listed = answer["alternatives"] + [answer["least"] or dict(answer, fits=True)]
    alike = [x for x in listed if all(x["common"][k] == common[k] for k in ("micro_batch", "recompute"))]
    exact = [x for x in alike if x["common"]["allocator"] == common["allocator"]]
    if not exact:  # of those that take as long the one that needs least is listed
        return "too large" if alike and not alike[0]["fits"] and not alike[0]["tight"] else "not said"
    return "fits" if exact[0]["fits"] else "tight" if exact[0]["tight"] else "too large"


def judge(row, played):
    """The row with what was played held against what is predicted."""
    reserved = int(played["played_reserved"])
    return dict(row, played_allocated=played["played_allocated"], played_reserved=reserved, miss="%+.4f" % (reserved / row["predicted_reserved"] - 1),
                in_interval=int(row["low"] <= reserved <= row["high"]), **{k: played[k] for k in ("in_card", "next_micro_batch", "next_verdict")})


def played(a, row, j, work):
    trainer, model, card, seq, batch = row["trainer"], row["model"], row["card"], int(row["seq"]), int(row["global_batch"])
    config, settings, folder = os.path.join(work, model + ".json"), os.path.join(work, "s.json"), os.path.join(work, "run")
    emit(a, settings, trainer, folder)
    d = play(a, folder, trainer, card, config, seq, settings)
    found = dict(played_allocated=d.get("allocated_peak_bytes"), played_reserved=d.get("reserved_peak_bytes") or 0, in_card=int(d["verdict"] == "fits"), next_micro_batch="",
                 next_verdict="none larger")
    more, each = larger(j), batch // j["common"]["world"]
    if more:
        # the settings as they are but for the micro-batch, and without bytes: nothing caps the allocator but the card
        j["common"].update(micro_batch=more, accumulation=each // more)
        for key in ("allocated_peak_bytes", "reserved_peak_bytes", "device_bytes", "interval"):
            j.pop(key)
        json.dump(j, open(settings, "w"))
        emit(a, settings, trainer, folder)
        found.update(next_micro_batch=more, next_verdict=play(a, folder, trainer, card, config, seq, settings)["verdict"])
    return judge(row, found)


def cases():
    for i, case in enumerate(CASES):
        for trainer, those in PLAYED.items():
            if i in those and not (trainer == "hf" and case[0] in LARGE):
                yield (trainer,) + case
    yield from WORLDS + LIGER + FIRST + RECORDED + METHODS


def add_cut_models(a):
    built_in = {m["name"]: m["config"] for m in json.loads(run([a.vplan, "models", "--json"])[1])["models"]}
    for name, (of, layers) in CUT.items():
        MODELS[name] = dict(built_in[of], num_hidden_layers=layers)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("vplan", type=os.path.abspath)
    p.add_argument("python")
    p.add_argument("out")
    p.add_argument("--only", nargs="*")
    p.add_argument("--models", nargs="*")
    p.add_argument("--trl-python")
    p.add_argument("--deepspeed-python")
    p.add_argument("--rows", type=int, default=1 << 30)
    p.add_argument("--replay", action="store_true")
    a = p.parse_args()
    add_cut_models(a)
    kept = list(csv.DictReader(line for line in open(a.out) if line[0] != "#")) if os.path.exists(a.out) else []
    for trainer, *case in cases():
        if (a.only and trainer not in a.only) or (a.models and case[0] not in a.models):
            continue
        name = [str(x) for x in [trainer] + case]
        at = [i for i, r in enumerate(kept) if [r[k] for k in CASE] == name]
        with tempfile.TemporaryDirectory() as work:
            plan, row = planned(a, trainer, *case, work)
            old = kept[at[0]] if at else None
            if plan and old and old["micro_batch"] and not a.replay and all(str(row[k]) == old[k] for k in WORDS + ("predicted_reserved",)):
                row = judge(row, old)
            elif plan and a.rows > 0:
                a.rows -= 1
                row = played(a, row, plan, work)
                print(row, flush=True)
            elif plan:
                continue
        kept[at[0] if at else len(kept):at[0] + 1 if at else len(kept)] = [row]
        with open(a.out, "w", newline="") as f:
            f.write("# made by tests/emit/end_to_end.py\n")
            out = csv.DictWriter(f, FIELDS, lineterminator="\n")
            out.writeheader()
            out.writerows(kept)


if __name__ == "__main__":
    main()
