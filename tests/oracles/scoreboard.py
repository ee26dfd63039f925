#!/usr/bin/env python3
"""How near the estimates of PyTorch's steps are to all rows that are kept, as the table of trainers/hf/README.md.

    scoreboard.py [--vplan build/vplan]      prints the table
    scoreboard.py --readme FILE              exit 1: the table in FILE is another

A row is a whole run that PyTorch's own allocator counted (tests/golden/trainers/); an error is estimate / row - 1 of the peak of allocated
or of reserved bytes. Rows of several cards are tests/test_worlds.sh's, Unsloth's tests/test_unsloth.sh's.
"""
import argparse
import concurrent.futures
import os
import sys
import tempfile

import estimate_rows

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "trainers")
BEGIN, END = "<!-- scoreboard -->", "<!-- end -->"
# in the order of the table; every file of whole runs on one card is in it
WHAT = {
    "steps.csv": "chosen: precisions, attention, checkpoints, optimizers",
    "drawn_steps.csv": "drawn: 34 models, masks, shapes",
    "challenge_steps.csv": "drawn later, of another seed",
    "family_steps.csv": "families recorded later",
    "class_steps.csv": "classifiers of texts and of tokens",
    "masked_steps.csv": "masked models, and T5, by Trainer",
    "t5_steps.csv": "T5, under masks too",
    "picture_steps.csv": "classifiers of pictures: ViT, DeiT, BEiT, DINOv2",
    "sound_steps.csv": "Whisper",
    "vision_steps.csv": "texts with pictures: Gemma 3, LLaVA 1.5, Qwen2.5-VL, Qwen3-VL, by Trainer and SFTTrainer",
    "encoder_steps.csv": "encoders, and models of two stacks, recorded later",
    "encoder_adapted_steps.csv": "adapters of encoders, with checkpoints too, and of T5",
    "encoder_eval_steps.csv": "evaluations of DeBERTa between steps",
    "neo_steps.csv": "GPT-Neo under Trainer and adapters",
    "efficient_steps.csv": "flash attention turned off",
    "older_steps.csv": "a T4, which has no flash attention",
    "flash2_steps.csv": "flash-attn 2, stood in for",
    "adapted_steps.csv": "Trainer; LoRA, QLoRA; bitsandbytes' optimizers",
    "optimizer_steps.csv": "Trainer's other optimizers",
    "matrix_steps.csv": "GaLore, APOLLO, Muon",
    "fused_steps.csv": "LOMO, AdaLomo, GaLore and APOLLO layerwise, GrokAdamW",
    "wide_steps.csv": "QLoRA over heads of 256 (Gemma 2)",
    "dropout_steps.csv": "dropout in adapters",
    "target_steps.csv": "adapters of q, k, v and o alone",
    "head_steps.csv": "adapters of classifiers, beside their head, and of T5",
    "beside_steps.csv": "whole modules and tokens trained beside adapters",
    "peft_steps.csv": "IA3, prompt and prefix tuning",
    "frozen_steps.csv": "embeddings and first layers frozen",
    "allocator_steps.csv": "the allocator set otherwise",
    "int8_steps.csv": "8-bit weights",
    "narrow_steps.csv": "8-bit weights, DoRA, NF4 without checkpoints",
    "prepared_steps.csv": "NF4 that nobody prepares, and TRL's that peft does",
    "feature_steps.csv": "packing, masks over NF4, DoRA",
    "checkpoint_steps.csv": "checkpoints of some layers, or in host memory",
    "parted_steps.csv": "checkpoints of the first layers alone; addresses as a driver gives them",
    "reentrant_steps.csv": "checkpoints by use_reentrant=True",
    "fallen_steps.csv": "of the rows above some, with addresses as a driver gives them",
    "mixed_steps.csv": "drawn of all options at once, of configs as published; addresses as a driver gives them",
    "later_steps.csv": "adapters and TRL of families recorded later, masks over NF4, longrope",
    "windowed_steps.csv": "adapters at and beyond the attention window",
    "filled_steps.csv": "plain loops and adapters of 18 models in every precision, eager too",
    "gemma4_steps.csv": "Gemma 4: whole and by LoRA, by Trainer and SFTTrainer, beyond the attention window",
    "common_steps.csv": "decoders by Trainer and SFTTrainer: whole, LoRA and NF4, padded, beyond the attention window",
    "again_steps.csv": "steps of families and heads recorded last",
    "older_trl_steps.csv": "TRL's SFTTrainer on a T4",
    "recent_steps.csv": "adapters of experts, towers beside texts, whole models at and beyond the window, OPT 350M",
    "asked_steps.csv": "as tutorials ask: dropout, padding, packing, NF4, DPO",
    "trl_steps.csv": "TRL's SFTTrainer",
    "packed_steps.csv": "TRL's packing",
    "dpo_steps.csv": "TRL's DPOTrainer",
    "grpo_steps.csv": "TRL's GRPOTrainer",
    "judged_steps.csv": "heads of classes, of a regression and of a reward on decoders",
    "decoder_steps.csv": "decoders recorded last: gpt-oss, Seed-OSS, GLM, EXAONE 4, Command R7B, OLMoE, Qwen 1.5 MoE, Granite Code, Qwen 3.5",
    "eval_steps.csv": "evaluations between steps",
    "liger_steps.csv": "Liger's kernels",
    "adapted_liger_steps.csv": "Liger's kernels under adapters: dropout, q and v alone, NF4",
    "versions_steps.csv": "with transformers 4.57 and 5.24, torch 2.9, 2.10, 2.14 and 2.15",
    "residents.csv": "what stays besides: EMA, EWC, MER, a second model",
    "composed_steps.csv": "not recorded: put together, and not among these",
    "composed_versions_steps.csv": "the same, of torch 2.15 and transformers 5.24",
}
COMPOSED = "composed_steps.csv"         # behind those that are summed up


def cells(errors):
    size = sorted(abs(e) for e in errors)
    at95 = size[min(len(size) - 1, int(0.95 * len(size)))]
    return ["%d" % sum(e == 0 for e in size), "%.2f %%" % (100 * at95), "%.2f %%" % (100 * size[-1])]


def table(vplan):
    lines = ["| rows | | models | peak exact | 95 % within | worst | reserved exact | 95 % within | worst |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    kept = {n for n in os.listdir(FOLDER) if n.endswith(".csv") and "worlds" not in n and not n.startswith(("unsloth", "generated"))}
    unknown = kept - set(WHAT)
    if unknown:
        sys.exit("scoreboard.py: no line for %s" % ", ".join(sorted(unknown)))
    every = [[], []]
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, what in WHAT.items():
            if name not in kept:
                continue
            configs = os.path.join(scratch, name)       # a model's name may mean another config in another file
            os.mkdir(configs)
            rows = estimate_rows.read(os.path.join(FOLDER, name), configs)
            got = list(pool.map(lambda row: estimate_rows.estimate(vplan, row), rows))
            refused = [g for g in got if isinstance(g, str)]
            if refused:
                sys.exit("%s: %s" % (name, refused[0]))
            if name == COMPOSED:
                lines.append("| **all** | %d | | %s |" % (len(every[0]), " | ".join(cells(every[0]) + cells(every[1]))))
            for all_of, key in zip(every, ("peak", "reserved")):
                all_of.extend(g[key] for g in got)
            models = len({r["name"] for r in rows})
            lines.append("| %s | %d | %d | %s |" % (what, len(rows), models, " | ".join(cells([g["peak"] for g in got]) + cells([g["reserved"] for g in got]))))
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("--vplan", default="build/vplan")
    p.add_argument("--readme")
    a = p.parse_args()
    now = table(os.path.abspath(a.vplan))
    if not a.readme:
        print(now)
        return
    text = open(a.readme).read()
    there = text.partition(BEGIN)[2].partition(END)[0].strip()
    for x, y in zip(there.split("\n"), now.split("\n")):
        if x != y:
            print("there: %s\nnow:   %s" % (x, y))
    sys.exit(there != now)


if __name__ == "__main__":
    main()
