#!/usr/bin/env python3
"""Whole runs of models that see, with pictures, as people fine-tune them: tests/golden/trainers/vision_steps.csv.

    vision_rows.py OUT.csv [--null build/null] [--random N] [--seed S] [--models MODEL ...] [--trainer hf] [--recompute WORD] [--layers N] [--answered VPLAN]

Like picture_rows.py, of configs as they are published but for the number of layers. A run that fails is said and has no line.
"""
import argparse
import os
import random

import families
import play
import rows

CLIP = dict(model_type="clip_vision_model", hidden_size=1024, intermediate_size=4096, num_attention_heads=16, image_size=336, patch_size=14, projection_dim=768,
            vocab_size=32000)
LLAVA = dict(model_type="llava", image_token_index=32000, projector_hidden_act="gelu", vision_feature_layer=-2, vision_feature_select_strategy="default",
             vision_config=CLIP, text_config=dict(model_type="llama", max_position_embeddings=4096, vocab_size=32064, hidden_size=4096, intermediate_size=11008,
                                                  num_attention_heads=32, num_key_value_heads=32))
OF_13B = dict(LLAVA["text_config"], hidden_size=5120, intermediate_size=13824, num_attention_heads=40, num_key_value_heads=40)
QWEN = dict(model_type="qwen2_5_vl", image_token_id=151655, video_token_id=151656, vision_start_token_id=151652, vision_end_token_id=151653, hidden_act="silu",
            max_position_embeddings=128000, use_sliding_window=False, max_window_layers=28, rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]), rope_theta=1000000.0)
TOWER = dict(depth=32, hidden_act="silu", hidden_size=1280, intermediate_size=3420, num_heads=16, in_chans=3, patch_size=14, spatial_merge_size=2, spatial_patch_size=14,
             window_size=112, fullatt_block_indexes=[7, 15, 23, 31], tokens_per_second=2, temporal_patch_size=2)
QWEN_3B = dict(QWEN, hidden_size=2048, intermediate_size=11008, num_attention_heads=16, num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True,
               vision_config=dict(TOWER, out_hidden_size=2048))
QWEN_7B = dict(QWEN, hidden_size=3584, intermediate_size=18944, num_attention_heads=28, num_key_value_heads=4, vocab_size=152064, tie_word_embeddings=False,
               vision_config=dict(TOWER, out_hidden_size=3584))
SIGLIP = dict(families.SIGLIP, model_type="siglip_vision_model")
GEMMA = dict(model_type="gemma3", image_token_index=262144, mm_tokens_per_image=256, vision_config=SIGLIP)
OF_GEMMA = dict(model_type="gemma3_text", head_dim=256, vocab_size=262208, max_position_embeddings=131072, sliding_window=1024, query_pre_attn_scalar=256)
GEMMA_4B = dict(GEMMA, text_config=dict(OF_GEMMA, hidden_size=2560, intermediate_size=10240, num_attention_heads=8, num_key_value_heads=4))
GEMMA_12B = dict(GEMMA, text_config=dict(OF_GEMMA, hidden_size=3840, intermediate_size=15360, num_attention_heads=16, num_key_value_heads=8))
GEMMA_27B = dict(GEMMA, text_config=dict(OF_GEMMA, hidden_size=5376, intermediate_size=21504, num_attention_heads=32, num_key_value_heads=16, head_dim=128,
                                         query_pre_attn_scalar=168))
OF_QWEN3 = dict(model_type="qwen3_vl_text", head_dim=128, vocab_size=151936, max_position_embeddings=262144)
NARROW = dict(families.QWEN3_TOWER, depth=24, hidden_size=1024, intermediate_size=4096, deepstack_visual_indexes=[5, 11, 17])
WIDE = dict(families.QWEN3_TOWER, depth=27, hidden_size=1152, intermediate_size=4304, deepstack_visual_indexes=[8, 16, 24])


def qwen3(tower, hidden, intermediate, heads, tied):
    text = dict(OF_QWEN3, hidden_size=hidden, intermediate_size=intermediate, num_attention_heads=heads, num_key_value_heads=8, tie_word_embeddings=tied)
    return dict(model_type="qwen3_vl", image_token_id=151655, video_token_id=151656, tie_word_embeddings=tied, vision_config=dict(tower, out_hidden_size=hidden), text_config=text)


QWEN3 = {"qwen3-vl-2b": qwen3(NARROW, 2048, 6144, 16, True), "qwen3-vl-4b": qwen3(NARROW, 2560, 9728, 32, True), "qwen3-vl-8b": qwen3(WIDE, 4096, 12288, 32, False)}
# Of Gemma 3 as many layers as are left of whole rounds of six in the published ones.
LAYERS = {"qwen3-vl-2b": [5, 8], "qwen3-vl-4b": [5, 8], "qwen3-vl-8b": [4, 6], "gemma-3-4b": [4, 10], "gemma-3-12b": [6, 12], "gemma-3-27b": [8]}
MODELS = {**QWEN3, "gemma-3-4b": GEMMA_4B, "gemma-3-12b": GEMMA_12B, "gemma-3-27b": GEMMA_27B, "qwen2.5-vl-3b": QWEN_3B, "qwen2.5-vl-7b": QWEN_7B, "llava-1.5-7b": LLAVA, "llava-1.5-13b": dict(LLAVA, text_config=OF_13B)}
TARGETS = ("q_proj+v_proj", "all-linear", "all-linear")


def cut(name, c, rng):
    """The config with so many layers; a tower of which some layers are of another kind, or whose number was recorded, has all."""
    if name in LAYERS:
        return dict(c, text_config=dict(c["text_config"], num_hidden_layers=rng.choice(LAYERS[name])))
    if "text_config" not in c:
        return dict(c, num_hidden_layers=rng.choice([4, 5, 6, 8]))
    return dict(c, text_config=dict(c["text_config"], num_hidden_layers=rng.choice([3, 5, 6, 8])), vision_config=dict(c["vision_config"], num_hidden_layers=rng.choice([4, 5, 7])))


def drawn(n, seed, models, trainer):
    rng, out = random.Random(seed), []
    for _ in range(n):
        name = rng.choice(models or sorted(MODELS))
        c = cut(name, MODELS[name], rng)
        lora = rng.choice(("none",) + TARGETS)
        frozen = rng.choice(["none", "vision"])
        precision = rng.choice(["bf16-amp", "bf16-amp", "bf16-mixed"] if lora == "none" else ["bf16-amp", "bf16-mixed"] if trainer == "trl" else ["bf16-amp"])
        optimizer = rng.choice(["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "sgd"])
        images, batch, padding = rng.choice([1, 1, 1, 2, 3]), rng.choice([1, 2, 4, 8]), rng.choice(["none", "mask"])
        sizes = ["448x448", "512x384", "640x416", "1024x768"] if name in QWEN3 else ["448x448", "476x364", "616x420", "840x560"]
        size = rng.choice(sizes) if "qwen" in name else ""
        of_picture = families.pictures_of(c, size)["it"]
        attention = rng.choice(["flash_attention_2", "sdpa:flash"]) if "qwen" in name and name not in QWEN3 else "sdpa:flash"
        precision = "bf16-amp" if "qwen" in name and trainer == "hf" else precision
        load = rng.choice(["none", "nf4-dq"]) if lora == "all-linear" and (frozen == "vision" or name in LAYERS) else "none"
        seq = images * of_picture + rng.choice([48, 64, 128, 200, 256, 448, 512, 1000, 1472]) + rng.choice([0, 0, 0, 3])
        out.append((name, c, precision, attention, rng.choice(["none", "full"]), optimizer, batch, seq, "clm", padding, trainer, lora,
                    rng.choice([8, 16, 32]) if lora != "none" else 0, load, 0, "none", 0, 0, 0, "none", 0, 0, frozen, "", "", 0, 0, images, size))
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    p.add_argument("--random", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--models", nargs="+")
    p.add_argument("--trainer", default="hf")
    p.add_argument("--recompute", help="all rows so")
    p.add_argument("--layers", type=int, help="all rows with so many: of Gemma 3 without checkpoints 16, of which 12 are two whole rounds")
    p.add_argument("--answered")
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null), processors=132)
    drawn_rows = drawn(a.random * (20 if a.answered else 1), a.seed, a.models, a.trainer)
    drawn_rows = [r[:4] + (a.recompute,) + r[5:] for r in drawn_rows] if a.recompute else drawn_rows
    drawn_rows = [r[:1] + (dict(r[1], text_config=dict(r[1]["text_config"], num_hidden_layers=a.layers)),) + r[2:] for r in drawn_rows] if a.layers else drawn_rows
    drawn_rows = rows.answered(a.answered, drawn_rows, a.random) if a.answered else drawn_rows
    rows.add_played(a.out, "vision_rows.py", rows.columns_of(drawn_rows[0]) + ["reserved"] + ["allocated_" + x for x in rows.PHASES], drawn_rows,
                    lambda row, got: [*row[2:], got["reserved"]] + [got["allocated_" + x] for x in rows.PHASES])


if __name__ == "__main__":
    main()
