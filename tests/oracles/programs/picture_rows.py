#!/usr/bin/env python3
"""Whole runs of models of pictures and of sounds, as their tutorials train them: tests/golden/trainers/picture_steps.csv and sound_steps.csv.

    picture_rows.py OUT.csv [--null build/null] [--random N] [--seed S] [--models MODEL ...] [--t4] [--dropout] [--whole]

Like rows.py, of configs as they are published. --t4: on a card without flash attention, in fp16. --dropout: adapters, with dropout; --whole: none. A run that fails is said and has no line.
"""
import argparse
import os
import random

import play
import rows

def labels(n):
    return {str(i): "label %d" % i for i in range(n)}


VIT = dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=224, patch_size=16, num_channels=3)
LARGE = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16)
DEIT = dict(VIT, model_type="deit", architectures=["DeiTForImageClassification"])
DINO = dict({k: x for k, x in VIT.items() if k != "intermediate_size"}, model_type="dinov2", architectures=["Dinov2ForImageClassification"], image_size=518,
            patch_size=14, mlp_ratio=4, drop_path_rate=0.0, layerscale_value=1.0, use_swiglu_ffn=False)
BEIT = dict(VIT, model_type="beit", architectures=["BeitForImageClassification"], drop_path_rate=0.1, layer_scale_init_value=0.1, use_relative_position_bias=True,
            use_absolute_position_embeddings=False, use_shared_relative_position_bias=False, use_mean_pooling=True, use_mask_token=False)
MODELS = {
    "vit-base": dict(VIT, model_type="vit", architectures=["ViTForImageClassification"], id2label=labels(10)),
    "deit-tiny": dict(DEIT, hidden_size=192, intermediate_size=768, num_attention_heads=3, id2label=labels(5)),
    "deit-small": dict(DEIT, hidden_size=384, intermediate_size=1536, num_attention_heads=6, id2label=labels(1000)),
    "deit-base": dict(DEIT, id2label=labels(10)), "deit-base-384": dict(DEIT, image_size=384, id2label=labels(37)),
    "dinov2-small": dict(DINO, hidden_size=384, num_attention_heads=6, id2label=labels(101)), "dinov2-base": dict(DINO, id2label=labels(10)),
    "beit-base": dict(BEIT, id2label=labels(1000)), "beit-base-384": dict(BEIT, image_size=384, id2label=labels(4)), "beit-large": dict(BEIT, **LARGE, id2label=labels(10)),
    "dinov2-large": dict(DINO, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, id2label=labels(3)),
}
WHISPER = dict(model_type="whisper", architectures=["WhisperForConditionalGeneration"], d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
               decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536, vocab_size=51865, num_mel_bins=80, max_source_positions=1500,
               max_target_positions=448, activation_function="gelu", dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, encoder_layerdrop=0.0,
               decoder_layerdrop=0.0, scale_embedding=False, apply_spec_augment=False, pad_token_id=50257, decoder_start_token_id=50258)
OF_32 = dict(d_model=1280, encoder_layers=32, decoder_layers=32, encoder_attention_heads=20, decoder_attention_heads=20, encoder_ffn_dim=5120, decoder_ffn_dim=5120)
OF_12 = dict(d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072)
SOUNDS = {
    "whisper-tiny": WHISPER, "whisper-small": dict(WHISPER, **OF_12), "whisper-small.en": dict(WHISPER, **dict(OF_12, vocab_size=51864)),
    "whisper-base": dict(WHISPER, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048,
                         decoder_ffn_dim=2048),
    "whisper-large-v2": dict(WHISPER, **OF_32), "whisper-large-v3": dict(WHISPER, **OF_32) | {"vocab_size": 51866, "num_mel_bins": 128},
    "whisper-large-v3-turbo": dict(WHISPER, **OF_32) | {"vocab_size": 51866, "num_mel_bins": 128, "decoder_layers": 4},
    "distil-small.en": dict(WHISPER, **OF_12) | {"vocab_size": 51864, "decoder_layers": 4},
}
MODELS.update(SOUNDS)
# A family's few and many targets of adapters.
TARGETS = {"vit": ("q_proj+v_proj", "all-linear"), "deit": ("q_proj+v_proj", "all-linear"), "beit": ("q_proj+v_proj", "all-linear"), "dinov2": ("query+value", "all-linear"), "whisper": ("q_proj+v_proj", "all-linear")}
PRECISIONS = {"fp32": "fp32", "bf16-mixed": "fp16-mixed"}         # on a T4


def sequence(c, rng):
    """0: what the config's picture makes; of a sound the tokens that are written."""
    if c["model_type"] == "whisper":
        return rng.choice([24, 32, 61, 100, 128, 200, 225, 256, 448])
    return rng.choice([0, 257, 257, 257, 1025]) if c["model_type"] == "dinov2" else 0


def drawn(n, seed, models, is_older, drops):
    rng, out = random.Random(seed), []
    while len(out) < n:
        name = rng.choice(models or sorted(set(MODELS) - set(SOUNDS)))
        c, trainer = MODELS[name], rng.choice(["torch", "hf", "hf"])
        few, many = TARGETS.get(c["model_type"], (None, None))
        lora = rng.choice([few, few, many] if drops else ["none", "none", few, many]) if few else "none"
        precision = rng.choice(["fp32", "bf16-mixed", "bf16-mixed"] + ["bf16-amp"] * (not is_older) + ["bf16"] * (lora == "none" and not is_older))
        if name in SOUNDS and trainer == "hf" and rng.random() < 0.4:         # as their tutorial has it
            precision = "fp16-mixed"
        optimizer = rng.choice(["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "sgd"] + ["adamw_8bit"] * (trainer == "hf"))
        evaluates = trainer == "hf" and lora == "none" and precision in ("fp32", "bf16-mixed", "fp16-mixed") and rng.random() < 0.4 and not is_older
        out.append((name, c, PRECISIONS.get(precision, precision) if is_older else precision, "sdpa:flash", rng.choice(["none", "none", "full"]),
                    optimizer, rng.choice([1, 2, 4, 8, 16, 32]), sequence(c, rng), rows.task_of(c), "none", trainer, lora, rng.choice([8, 16, 32]) if lora != "none" else 0, "none",
                    rng.choice([4, 8, 16]) if evaluates else 0, "none", 0, 0, int(drops and lora != "none")))
    return out


COLUMNS = rows.COLUMNS + ["eval_batch", "lora_dropout", "device", "reserved"] + ["allocated_" + x for x in rows.PHASES + ["evaluate"]]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    p.add_argument("--random", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--models", nargs="+")
    p.add_argument("--t4", action="store_true")
    p.add_argument("--dropout", action="store_true")
    p.add_argument("--whole", action="store_true")
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null), **(dict(processors=40, capability=75) if a.t4 else dict(processors=132)))
    rows.add_played(a.out, "picture_rows.py", COLUMNS, [row for row in drawn(a.random, a.seed, a.models, a.t4, a.dropout) if not a.whole or row[11] == "none"],
                    lambda row, got: [*row[2:7], row[7] or "", *row[8:len(rows.COLUMNS) + 1], row[-1], "t4" if a.t4 else "", got["reserved"]] +
                    [got.get("allocated_" + x, "") for x in rows.PHASES + ["evaluate"]])


if __name__ == "__main__":
    main()
