"""Families whose training step is recorded: the fields of a config that are sizes, and the config of given sizes.

Symbols: h hidden, a heads, s of a layer beside experts, c bands of a spectrum, k key/value heads, d head size, q of which are rotated, e of an embedding where it is not the hidden one, v the head size and w the key/value heads of layers that are otherwise than the rest, i the width of an input of each layer's own, f intermediate, V vocabulary, P positions, T token types; L layers.
A row's `fields` say which key of a config.json holds a size: "k=num_key_value_heads|a", where the part behind | is what a null, or a key
that the class gives no value, means; key+2 is two more than the key's value, key*d that share of d, rounded down. (h) is read, but no allocation depends on it.
"""
import random
from math import lcm

import sizes

HEAD_SIZES = [80, 128, 104, 64, 96, 112, 72]
WIDE_HEADS = [256, 160, 192, 224, 136, 248, 176]
MANY_SAMPLES = 43                        # in a batch of few rows, where a narrow sum over them takes scratch
TILES = 6                                # of Liger's loss there would be so many
WORKSPACES = {1048576, 33554432}         # sizes that must mean nothing else

DECODER = "h=hidden_size a=num_attention_heads k=num_key_value_heads|a d=head_dim|h/a f=intermediate_size V=vocab_size (P)=max_position_embeddings"
NARROW = DECODER.replace("d=head_dim|h/a", "d=|h/a")
PART_ROTATED = NARROW + " q=partial_rotary_factor*d|"         # and what the class takes
WITHOUT_GROUPS = "h=hidden_size a=num_attention_heads k=|a d=|h/a f=intermediate_size V=vocab_size (P)=max_position_embeddings"
LEARNED = WITHOUT_GROUPS.replace("(P)", "P")
CLASSES = " C=id2label|2"
ENCODER = LEARNED + " T=type_vocab_size" + CLASSES
IMAGE = "h=hidden_size a=num_attention_heads k=|a d=|h/a f=intermediate_size I=image_size p=patch_size C=id2label"
STACKS = ("h=d_model a=encoder_attention_heads a=decoder_attention_heads k=|a d=|h/a f=encoder_ffn_dim f=decoder_ffn_dim V=vocab_size "
          "P=max_position_embeddings+2")
# what is heard is so many frames of a spectrum in twice S steps, which two convolutions make S tokens of; D tokens are written
HEARD = STACKS.replace("P=max_position_embeddings+2", "P=max_target_positions S=max_source_positions c=num_mel_bins")
UNDROPPED = dict(encoder_layerdrop=0.0, decoder_layerdrop=0.0)         # no layer is left out by chance
OF_IMAGES = (("it", "tokens"), ("iv", "rows"), ("ia", "heads"), ("id", "width"), ("ip", "pixels"), ("ir", "rows_of_token"), ("iw", "window"))
GROUPED, EVEN, MQA = 1, 0, 2             # key and value heads: fewer than heads, as many, one


class Family:
    """kind: transformers' model_type. combos: (heads' kind, tables tied). dropouts: that the class has some unless told otherwise.
    window: the field of a sliding window. period: layers that repeat where the window is shorter than the sequence, or always. wide:
    which head sizes there are. partial: whether heads are rotated as a whole. inside: the part of a config that has the layers' fields; alone: of which the model is made, the rest left out.
    joined: how many of an intermediate width are one linear layer. few: samples in a batch of few rows, where narrow sums over them take scratch. injects: that peft adapts the parameters of experts
    where all linear layers are asked for. images: of a tower in front of the layers, its heads and their width; of pictures of one size their side, the rows that the
    tower makes of one, the tokens that these are in the sequence, and whether its masks tell these from a text's (typed); of others the pixels of a token's side, its rows, the elements of one, and the tokens of a
    window's side. shares: the field of how many layers, the last, have no keys and values of their own. extra: fields that are as they are."""

    def __init__(self, kind, fields=DECODER, task="clm", combos=((EVEN, 0), (GROUPED, 0), (GROUPED, 1)), layers="num_hidden_layers",
                 layer_norm=False, window=None, period=1, always=False, wide=(0,), partial=(0,), rows=None, few=11, injects=True, inside="", alone=False, joined=0, shares="", images=None, **extra):
        self.kind, self.task, self.combos, self.period = kind, task, combos, period
        self.always, self.wide, self.partial, self.inside, self.alone, self.extra = always, wide, partial, inside, alone, extra
        self.layers, self.window = " ".join(x if "." in x else inside + x for x in layers.split()), window and inside + window
        self.fields = [(symbol, inside + keys if keys[0] != "|" and "." not in keys else keys) for symbol, keys in (f.split("=") for f in fields.split())]
        self.images = images
        if images:
            self.fields += [(s, "|%d" % images[key]) for s, key in OF_IMAGES if key in images]
        self.joined, self.few, self.injects = joined, few, injects
        self.shares = shares and inside + shares
        self.most_rows = rows or (60000 if layer_norm else 79000)
        self.free_width = any(s == "d" and key.split("|")[0] for s, key in self.fields)

    def config(self, s, blocks, tied, v):
        c = dict(self.extra)
        for symbol, keys in self.fields:
            key = keys.split("|")[0]
            key, _, more = key.partition("+")
            key, _, of = key.partition("*")
            if of and symbol in s:
                c[key] = (s[symbol] + 0.25) / s[of]
            elif key and symbol in s:
                c[key] = {i: "label %d" % i for i in range(s[symbol])} if key == "id2label" else s[symbol] - int(more or 0)
        if self.shares:
            c[self.shares], blocks = blocks[1], [sum(blocks)]
        for layers, n in zip(self.layers.split(), blocks):
            c[layers] = n
        c[self.inside * self.alone + "tie_word_embeddings"] = bool(tied)
        if v["task"] == "seqcls" and "C" not in s:         # one value a sequence, as a reward model has it
            c["num_labels"] = 1
        if v["task"] == "seqcls":         # a decoder's head takes what is behind the last token that is no padding
            c.setdefault("pad_token_id", 0)
        if self.kind == "gpt_neo":
            c["attention_types"] = [[["global", "local"][i % 2:i % 2 + 1], 1] for i in range(blocks[0])]
        if self.period == 6 and self.repeats(v) == 1:
            c[self.inside + "layer_types"] = ["full_attention" if i == 1 else "sliding_attention" for i in range(blocks[0])]
        if self.kind == "gemma4":
            c[self.inside + "layer_types"] = ["sliding_attention" if (i + 1) % self.period else "full_attention" for i in range(blocks[0])]
        if self.kind == "exaone4" and not self.window:
            c.update(sliding_window=None, layer_types=["full_attention"] * blocks[0])
        if "vl" in self.kind.split("_"):         # a head's angles are those of three positions
            c["text_config.rope_parameters"] = dict(rope_type="default", rope_theta=1e6, mrope_section=[s["d"] // 2 - 2 * (3 * s["d"] // 16)] + 2 * [3 * s["d"] // 16])
        if self.window:
            c[self.window] = 40 if v.get("window") else c.get(self.window, 4096)
        return self.kind, nested(c)

    def repeats(self, v):
        """Layers in one block."""
        every = int(v["recompute"].partition("every:")[2] or 1)
        return lcm(self.period if v["window"] or self.always or self.is_cached(v) or self.is_told_apart(v) else 1, every)

    def is_told_apart(self, v):
        """Whether what layers with a window share, and those without, goes in backward when the first of either has run, whatever the window: OLMo 3's
        kinds of layers have rotary positions of their own, in fp32 over NF4."""
        return self.kind == "olmo3" and v["quantised"] != "none" and v["recompute"] == "none" and v["trainer"] != "trl"

    def is_cached(self, v):
        """Whether there is a cache of keys and values, which tells the kinds of layers apart whatever the window: of a prefix; or as use_cache, which
        loops turn off, is still on in the config of the layers (TRL hands it to the forward pass, checkpoints have none)."""
        return v["lora"] == "prefix" or bool(self.inside) and not self.alone and v["recompute"] == "none" and v["trainer"] not in ("trl", "dpo")

    def symbols(self):
        return {s for s, _ in self.fields if not s.startswith("(")}


def has_one_label(v):
    """Whether a sequence has one value: a regression's, a reward, a second model's."""
    return bool(v.get("regression")) or v.get("trainer") == "reward" or v.get("eval") == 2


def nested(c):
    """A config's fields of which PART.KEY is that of a part."""
    out = {}
    for key, x in c.items():
        part, _, inner = key.rpartition(".")
        (out.setdefault(part, {}) if part else out)[inner] = x
    return out


# The tower of all published models of Gemma 3, which a text never runs; sizes of its parameters are numbers in the recording.
SIGLIP = dict(hidden_size=1152, image_size=896, intermediate_size=4304, num_attention_heads=16, num_channels=3, num_hidden_layers=27, patch_size=14,
              vision_use_head=False)

HYBRID = DECODER + " q=partial_rotary_factor*d|d/4 z=linear_num_value_heads"
# Gated DeltaNet's heads have 128 numbers, as fla's kernels were recorded with.
DELTA_HEADS = dict(linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4)
OF_TEXTS = dict(period=4, always=True, wide=(1,), partial=(1,), inside="text_config.", alone=True, **{"text_config." + k: x for k, x in DELTA_HEADS.items()})
# Gemma 4: layers that attend to all have heads of v elements, w of them for keys and values. That tower of images of its larger models.
GEMMA4 = DECODER + " v=global_head_dim|512"
WIDER_HEADS = [512, 384, 320, 272, 352, 448, 496]          # above what flash attention takes
GEMMA4_TOWER = dict(attention_bias=False, head_dim=72, hidden_size=1152, intermediate_size=4304, num_attention_heads=16, num_hidden_layers=27,
                    num_key_value_heads=16, patch_size=16, position_embedding_size=10240, standardize=True, use_clipped_linears=False)

GEMMA4_E = GEMMA4 + " i=hidden_size_per_layer_input V=vocab_size_per_layer_input"
GEMMA4_TOWERS = dict({"vision_config." + k: x for k, x in dict(head_dim=64, hidden_size=768, intermediate_size=3072, num_attention_heads=12, num_hidden_layers=16,
                      num_key_value_heads=12, patch_size=16, position_embedding_size=10240, standardize=False, use_clipped_linears=True).items()},
                     **{"audio_config." + k: x for k, x in dict(hidden_size=1024, num_hidden_layers=12, num_attention_heads=8, conv_kernel_size=5, output_proj_dims=1536,
                        attention_chunk_size=12, attention_context_left=13, attention_context_right=0, use_clipped_linears=True).items()},
                     **{"text_config.attention_k_eq_v": False, "text_config.final_logit_softcapping": 30.0})
# The tower of LLaVA 1.5: CLIP's, of which the last layer but one is taken.
CLIP = dict(hidden_size=1024, image_size=336, intermediate_size=4096, num_attention_heads=16, patch_size=14, projection_dim=768, model_type="clip_vision_model")


# Qwen 3-VL: pictures of any size, a token for 32 x 32 pixels.
SEEING = DECODER + " h=vision_config.out_hidden_size"
QWEN3_PICTURES = dict(pixels=32, rows_of_token=4, elements=1536)
QWEN3_TOWER = dict(num_heads=16, patch_size=16, spatial_merge_size=2, temporal_patch_size=2, in_channels=3, num_position_embeddings=2304, hidden_act="gelu_pytorch_tanh")


def of_tower(fields):
    return {"vision_config." + k: x for k, x in fields.items()}


FAMILIES = {
    "gpt2": Family("gpt2", "h=n_embd a=n_head k=|a d=|h/a f=n_inner|4*h V=vocab_size P=n_positions", combos=((EVEN, 1), (EVEN, 0)),
                   layers="n_layer", layer_norm=True),
    "llama": Family("llama", DECODER + CLASSES, combos=((EVEN, 0), (EVEN, 1), (GROUPED, 0), (GROUPED, 1))),
    # with biases in all linear layers (Granite Code), and in those of attention alone
    "llama_biased": Family("llama", DECODER, combos=((EVEN, 1), (GROUPED, 1)), attention_bias=True, mlp_bias=True),
    "llama_qkvo": Family("llama", DECODER, combos=((EVEN, 0), (GROUPED, 0)), attention_bias=True),
    "mistral": Family("mistral", DECODER + CLASSES, window="sliding_window", combos=((EVEN, 0), (GROUPED, 0))),
    "qwen2": Family("qwen2", NARROW + CLASSES, combos=((EVEN, 0), (EVEN, 1), (GROUPED, 0), (GROUPED, 1))),
    "qwen3": Family("qwen3", DECODER + CLASSES, combos=((GROUPED, 0), (GROUPED, 1))),
    "gemma": Family("gemma", DECODER + CLASSES, combos=((EVEN, 1), (MQA, 1)), wide=(1,)),
    "gemma2": Family("gemma2", DECODER + CLASSES, combos=((GROUPED, 1),), window="sliding_window", period=2, wide=(0, 1)),
    "gemma3_text": Family("gemma3_text", combos=((GROUPED, 1), (MQA, 1)), window="sliding_window", period=6, wide=(1,), pad_token_id=0),
    "gemma3": Family("gemma3", combos=((GROUPED, 1),), window="sliding_window", period=6, wide=(0, 1), inside="text_config.", image_token_index=1,
                     mm_tokens_per_image=256, images=dict(side=896, rows=4096, tokens=256, heads=16, width=72, typed=1), **{"vision_config." + k: x for k, x in SIGLIP.items()}),
    # keys are values in layers that attend to all (31B)
    "gemma4": Family("gemma4", GEMMA4 + " w=num_global_key_value_heads|k", combos=((GROUPED, 1),), window="sliding_window", period=6, always=True, wide=(1,),
                     inside="text_config.", **{"text_config.attention_k_eq_v": True, "text_config.final_logit_softcapping": 30.0,
                                               "text_config.hidden_size_per_layer_input": 0, "text_config.use_bidirectional_attention": "vision"},
                     **{"vision_config." + k: x for k, x in GEMMA4_TOWER.items()}),
    # E4B and E2B: an input of each layer's own, and of the last layers keys and values are those of others; a tower of sounds besides
    "gemma4_e4b": Family("gemma4", GEMMA4_E, combos=((GROUPED, 1),), window="sliding_window", period=6, always=True, wide=(1,), inside="text_config.",
                         shares="num_kv_shared_layers", **GEMMA4_TOWERS),
    "gemma4_e2b": Family("gemma4", GEMMA4_E, combos=((MQA, 1),), window="sliding_window", period=5, always=True, wide=(1,), inside="text_config.",
                         shares="num_kv_shared_layers", **dict(GEMMA4_TOWERS, **{"text_config.use_double_wide_mlp": True})),
    "llava": Family("llava", combos=((EVEN, 0),), layers="num_hidden_layers vision_config.num_hidden_layers", layer_norm=True, inside="text_config.",
                    images=dict(side=336, rows=577, tokens=576, heads=16, width=64), **of_tower(CLIP), **{"text_config.model_type": "llama"}),
    "qwen2_5_vl": Family("qwen2_5_vl", NARROW + " h=vision_config.out_hidden_size", combos=((GROUPED, 0), (GROUPED, 1)), inside="text_config.",
                         images=dict(heads=16, width=80, pixels=28, rows_of_token=4, elements=1176, window=4), image_token_id=1, video_token_id=2,
                         **of_tower(dict(depth=32, hidden_size=1280, intermediate_size=3420, num_heads=16, patch_size=14, window_size=112, spatial_merge_size=2,
                                         temporal_patch_size=2, in_channels=3, fullatt_block_indexes=[7, 15, 23, 31], hidden_act="silu"))),
    # 2B and 4B; what three layers of the tower make is added to the first layers' output
    "qwen3_vl": Family("qwen3_vl", SEEING, combos=((GROUPED, 1), (GROUPED, 0)), inside="text_config.", images=dict(heads=16, width=64, **QWEN3_PICTURES),
                       image_token_id=1, video_token_id=2, **of_tower(dict(QWEN3_TOWER, depth=24, hidden_size=1024, intermediate_size=4096, deepstack_visual_indexes=[5, 11, 17]))),
    "qwen3_vl_8b": Family("qwen3_vl", SEEING, combos=((GROUPED, 0),), inside="text_config.", images=dict(heads=16, width=72, **QWEN3_PICTURES),
                          image_token_id=1, video_token_id=2, **of_tower(dict(QWEN3_TOWER, depth=27, hidden_size=1152, intermediate_size=4304, deepstack_visual_indexes=[8, 16, 24]))),
    "phi3": Family("phi3", PART_ROTATED + "d" + CLASSES, combos=((EVEN, 0), (GROUPED, 0), (GROUPED, 1)), window="sliding_window", partial=(0, 1), pad_token_id=0),
    "phi": Family("phi", PART_ROTATED + "d/2", combos=((EVEN, 0),), layer_norm=True, partial=(1,)),
    "opt": Family("opt", LEARNED.replace("intermediate_size", "ffn_dim").replace("position_embeddings", "position_embeddings+2") +
                  " h=word_embed_proj_dim|h", combos=((EVEN, 1),), layer_norm=True),
    # opt-350m: norms behind the sums, none at the end, and a narrower embedding that two layers without a bias widen and narrow
    "opt_post": Family("opt", LEARNED.replace("intermediate_size", "ffn_dim").replace("position_embeddings", "position_embeddings+2") +
                       " e=word_embed_proj_dim|h", combos=((EVEN, 1),), layer_norm=True, do_layer_norm_before=False),
    "gpt_neox": Family("gpt_neox", WITHOUT_GROUPS, combos=((EVEN, 0),), layer_norm=True),
    # GPT-NeoX 20B: an activation of products and sums, each a kernel
    "gpt_neox_fast": Family("gpt_neox", WITHOUT_GROUPS, combos=((EVEN, 0),), layer_norm=True, hidden_act="gelu_fast"),
    "gpt_neo": Family("gpt_neo", "h=hidden_size a=num_heads k=|a d=|h/a f=intermediate_size|4*h V=vocab_size P=max_position_embeddings",
                      combos=((EVEN, 1),), layers="num_layers", layer_norm=True),
    # positions are in the scores: a slope for each head, whose number is a power of two
    "bloom": Family("bloom", "h=hidden_size a=n_head k=|a d=|h/a f=|4*h V=vocab_size", combos=((EVEN, 1),), layers="n_layer", layer_norm=True),
    "mixtral": Family("mixtral", DECODER + " E=num_local_experts t=num_experts_per_tok", combos=((GROUPED, 0),), window="sliding_window"),
    "qwen3_moe": Family("qwen3_moe", DECODER.replace("f=intermediate_size", "f=moe_intermediate_size") +
                        " E=num_experts t=num_experts_per_tok", combos=((GROUPED, 0),), decoder_sparse_step=1, mlp_only_layers=[]),
    # Qwen 1.5 MoE: a gated layer beside the experts, of a width of its own
    "qwen2_moe": Family("qwen2_moe", NARROW.replace("f=intermediate_size", "f=moe_intermediate_size") + " s=shared_expert_intermediate_size E=num_experts t=num_experts_per_tok",
                        combos=((EVEN, 0),), decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=False),
    "gpt_oss": Family("gpt_oss", DECODER + " E=num_local_experts t=num_experts_per_tok", combos=((GROUPED, 0),), window="sliding_window", period=2, few=MANY_SAMPLES, injects=False),
    "olmoe": Family("olmoe", NARROW + " E=num_experts t=num_experts_per_tok", combos=((EVEN, 0),)),
    "granitemoe": Family("granitemoe", NARROW + " E=num_local_experts t=num_experts_per_tok", combos=((GROUPED, 0), (GROUPED, 1))),
    "olmo2": Family("olmo2", NARROW, combos=((EVEN, 0), (GROUPED, 0))),
    "bert": Family("bert", ENCODER, "mlm", ((EVEN, 1),), layer_norm=True),
    "roberta": Family("roberta", ENCODER, "mlm", ((EVEN, 1),), layer_norm=True, pad_token_id=1),
    "xlm-roberta": Family("xlm-roberta", ENCODER, "mlm", ((EVEN, 1),), layer_norm=True, pad_token_id=1),
    "distilbert": Family("distilbert", "h=dim a=n_heads k=|a d=|h/a f=hidden_dim V=vocab_size P=max_position_embeddings C=id2label|2", "mlm",
                         ((EVEN, 1),), layers="n_layers", layer_norm=True),
    "vit": Family("vit", IMAGE + " "
                  "S=|I*I+p*p/p/p", "imgcls", ((EVEN, 1),), layer_norm=True, num_channels=3),
    "deit": Family("deit", IMAGE + " S=|I*I+2*p*p/p/p", "imgcls", ((EVEN, 1),), layer_norm=True, num_channels=3,
                   architectures=["DeiTForImageClassification"]),
    # whose pictures may have another size than the config says: its positions are made larger or smaller, in each pass
    "dinov2": Family("dinov2", IMAGE.replace("f=intermediate_size", "f=|4*h"), "imgcls", ((EVEN, 1),), layer_norm=True, num_channels=3, mlp_ratio=4),
    # as it was fine-tuned: a table of distances in each layer, positions nowhere
    "beit": Family("beit", IMAGE + " S=|I*I+p*p/p/p", "imgcls", ((EVEN, 1),), layer_norm=True, num_channels=3, use_relative_position_bias=True),
    "t5": Family("t5", "h=d_model a=num_heads k=|a d=d_kv f=d_ff V=vocab_size W=relative_attention_num_buckets", "seq2seq", ((EVEN, 1),),
                 layers="num_layers num_decoder_layers", decoder_start_token_id=0),
    # T5 1.1, Flan-T5 and mT5, whose head is no table of their tokens (transformers 5 ties only what is equal) and whose decoder's output is not scaled
    "t5_gated": Family("t5", "h=d_model a=num_heads k=|a d=d_kv f=d_ff V=vocab_size W=relative_attention_num_buckets", "seq2seq", ((EVEN, 0),),
                       layers="num_layers num_decoder_layers", decoder_start_token_id=0, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "stablelm": Family("stablelm", PART_ROTATED + "d/4", combos=((EVEN, 0), (GROUPED, 0)), layer_norm=True, partial=(1,)),
    "falcon": Family("falcon", "h=hidden_size a=num_attention_heads k=|1 d=|h/a f=|4*h V=vocab_size", combos=((MQA, 1),), layer_norm=True),
    "gptj": Family("gptj", "h=n_embd a=n_head k=|a d=|h/a f=n_inner|4*h V=vocab_size P=n_positions q=rotary_dim|64", combos=((EVEN, 0),), layers="n_layer",
                   layer_norm=True, wide=(1,), partial=(1,), joined=1),
    "olmo": Family("olmo", NARROW, combos=((EVEN, 0), (GROUPED, 0)), layer_norm=True),
    "olmo3": Family("olmo3", NARROW, combos=((EVEN, 0), (GROUPED, 0)), window="sliding_window", period=4),
    "cohere": Family("cohere", NARROW, combos=((EVEN, 1), (GROUPED, 1)), layer_norm=True),
    "electra": Family("electra", ENCODER + " h=embedding_size", "seqcls", ((EVEN, 1),), layer_norm=True),
    # Electra small: tables narrower than the layers, and a layer that widens what is looked up
    "electra_narrow": Family("electra", ENCODER + " e=embedding_size", "seqcls", ((EVEN, 1),), layer_norm=True),
    "mpnet": Family("mpnet", LEARNED + " W=relative_attention_num_buckets C=id2label|2", "mlm", ((EVEN, 1),), layer_norm=True),
    "albert": Family("albert", ENCODER + " e=embedding_size", "seqcls", ((EVEN, 1),), layer_norm=True, num_hidden_groups=1, inner_group_num=1,
                     classifier_dropout_prob=0.1),
    "bart": Family("bart", STACKS, "seq2seq", ((EVEN, 1),), layers="encoder_layers decoder_layers", layer_norm=True, **UNDROPPED),
    "mbart": Family("mbart", STACKS, "seq2seq", ((EVEN, 1),), layers="encoder_layers decoder_layers", layer_norm=True, scale_embedding=True,
                    **UNDROPPED),
    "pegasus": Family("pegasus", STACKS.replace("+2", ""), "seq2seq", ((EVEN, 1),), layers="encoder_layers decoder_layers", layer_norm=True,
                      scale_embedding=True, activation_function="relu", **UNDROPPED),
    "marian": Family("marian", STACKS.replace("+2", "") + " V=decoder_vocab_size|V", "seq2seq", ((EVEN, 1),), layers="encoder_layers decoder_layers",
                     layer_norm=True, scale_embedding=True, activation_function="swish", pad_token_id=0, decoder_start_token_id=0, **UNDROPPED),
    "whisper": Family("whisper", HEARD, "seq2seq", ((EVEN, 1),), layers="encoder_layers decoder_layers", layer_norm=True, pad_token_id=0, decoder_start_token_id=0,
                      **UNDROPPED),
    "m2m_100": Family("m2m_100", STACKS, "seq2seq", ((EVEN, 1),), layers="encoder_layers decoder_layers", layer_norm=True, **UNDROPPED),
    # DeBERTa-v3: no table of positions, none of token types, distances in buckets
    "deberta-v2": Family("deberta-v2", LEARNED + " W=position_buckets C=id2label|2 h=pooler_hidden_size|h h=embedding_size|h", "mlm", ((EVEN, 1),), layer_norm=True,
                         type_vocab_size=0, relative_attention=True, position_biased_input=False, pos_att_type="p2c|c2p", share_att_key=True, norm_rel_ebd="layer_norm",
                         conv_kernel_size=0, pooler_dropout=0, cls_dropout=None, problem_type=None),
    "starcoder2": Family("starcoder2", NARROW, combos=((GROUPED, 1),), layer_norm=True, window="sliding_window"),
    "ernie4_5": Family("ernie4_5", combos=((GROUPED, 1), (GROUPED, 0))),
    "granite": Family("granite", NARROW, combos=((GROUPED, 0), (GROUPED, 1))),
    "glm4": Family("glm4", DECODER + " q=partial_rotary_factor*d|d/2", combos=((GROUPED, 0),), partial=(1,), joined=2, attention_bias=True, pad_token_id=0),
    "modernbert": Family("modernbert", LEARNED.replace("P=", "(P)=") + " C=id2label|2", "mlm", ((EVEN, 1),), layer_norm=True, period=3, always=True, pad_token_id=0,
                         classifier_pooling="mean"),
    "seed_oss": Family("seed_oss", combos=((GROUPED, 0),)),
    "exaone4": Family("exaone4", NARROW, combos=((GROUPED, 0), (GROUPED, 1)), window="sliding_window", period=4, always=True),
    # without windows (EXAONE 4.0 1.2B): each layer is rotated
    "exaone4_full": Family("exaone4", NARROW, combos=((GROUPED, 0), (GROUPED, 1))),
    "cohere2": Family("cohere2", combos=((GROUPED, 1),), layer_norm=True, window="sliding_window", period=4, always=True),
    "glm": Family("glm", DECODER + " q=partial_rotary_factor*d|d/2", combos=((GROUPED, 0),), partial=(1,), joined=2, attention_bias=True, pad_token_id=0),
    # text alone, as AutoModelForCausalLM loads it: every fourth layer attends, the others are Gated DeltaNet's; z of their heads are values', j queries' and keys'
    "qwen3_5": Family("qwen3_5", HYBRID + " j=linear_num_key_heads", combos=((GROUPED, 0), (GROUPED, 1)), **OF_TEXTS),
    # as many of both (0.8B, 2B): none is repeated
    "qwen3_5_even": Family("qwen3_5", HYBRID + " z=linear_num_key_heads", combos=((GROUPED, 1),), **OF_TEXTS),
    # with experts, and a gated layer beside them, in place of each feed-forward layer
    "qwen3_5_moe": Family("qwen3_5_moe", HYBRID.replace("f=intermediate_size", "f=moe_intermediate_size") + " j=linear_num_key_heads s=shared_expert_intermediate_size "
                          "E=num_experts t=num_experts_per_tok", combos=((GROUPED, 0),), injects=False, **OF_TEXTS),
    "smollm3": Family("smollm3", NARROW, combos=((GROUPED, 1),), period=4, always=True, pad_token_id=0, bos_token_id=1, eos_token_id=2),
}


def pictures_of(config, size=""):
    """Of a config with a tower: what a batch of pictures is made of."""
    width = config["vision_config"]["hidden_size"]
    of = next(f.images for f in FAMILIES.values() if f.images and f.kind == config["model_type"] and f.extra["vision_config.hidden_size"] == width)
    wide, high = [int(x) // of["pixels"] for x in size.split("x")] if size else (0, 0)
    return of_pictures(of, high, wide)


def of_pictures(of, high, wide):
    """Symbols of pictures; high, wide: their tokens, where these are not always the same."""
    if "tokens" in of:
        return dict(I=of["side"], it=of["tokens"], iv=of["rows"], ia=of["heads"], id=of["width"], typed=of.get("typed", 0))
    window = of.get("window", 1)
    return dict(it=high * wide, iv=high * wide * of["rows_of_token"], ia=of["heads"], id=of["width"], ih=high, ix=wide, ie=of["elements"],
                **{"in": -(-high // window) * -(-wide // window) if "window" in of else 1})


def prime_above(n):
    n += 1
    while any(n % p == 0 for p in range(2, int(n ** 0.5) + 1)):
        n += 1
    return n


def draw(rng, family, v, index):
    """One shape: sizes that share no accidental relation. Three kinds take turns: some 6,000 rows, a small table of tokens and a larger one of positions; 80,000
    rows (60,000 with layer norms, whose backward is another kernel above 65,536); 18,000 rows and a larger table. No tensor that is summed over its rows has 2^31 bytes (PyTorch cuts those). With one sample a batch, or samples packed to one, 3,200 to 6,400 rows."""
    kind, grouped = index % 3, v["gqa"] != EVEN
    few = MANY_SAMPLES if "E" in family.symbols() and v.get("trainer") == "trl" else family.few         # the loss on routers sums over the rows of each
    while True:
        k = 1 if v["gqa"] == MQA else rng.choice([2, 3, 5])
        a = k * rng.choice([2, 3, 4]) if grouped and k > 1 else rng.choice([6, 7, 9, 10, 11, 13])
        if kind == 1:
            a, k = (6, 3) if v["gqa"] == GROUPED else (7, k)
        if family.kind == "bloom":
            a = rng.choice([4, 8])
        if not grouped:
            k = a
        d = (WIDE_HEADS if v.get("wide") else HEAD_SIZES)[index % len(HEAD_SIZES)]
        d = {128: 88, 64: 56}.get(d, d) if family.kind == "bloom" else d         # whose weights would be as large as workspaces
        h = a * 8 * prime_above(rng.randrange(6, 20)) if family.free_width else a * d
        f = 8 * prime_above(rng.randrange(150, 400))
        f = 4 * h if family.kind == "bloom" else f
        vocab = prime_above(rng.randrange(*[(3000, 9000), (3000, 5000), (19000, 24000)][kind]))
        alone = v.get("one") or v.get("packed")
        s = prime_above(rng.randrange(*((400, 800) if alone else (40, 80))))
        if s % 4 != (1 if index % 2 else 3):        # so that 8 and 16 and 32 are told apart
            continue
        s = 8 * s + (rng.choice([1, 2, 3, 4, 5, 6, 7]) if v.get("ragged") else 0)
        b = 1 if alone else [rng.choice([few, few + 2]), family.most_rows // s, 18000 // s][kind]
        if v.get("trainer") in ("dpo", "reward", "grpo"):         # pairs; each half is beyond what a scan takes without scratch
            b = 2 * b if kind == 0 else b - b % 2
        b -= b % TILES if v.get("liger") else 0
        if index == 0 and v.get("wide") and (v.get("window") or v.get("mask") or "v" in family.symbols()) and b * a > 100:       # so that keys of wide heads are cut in parts (KS) once
            continue
        if b * s < (3100 if v.get("liger") else 4100):                  # fewer rows are summed without scratch
            continue
        wider = {}
        if "v" in family.symbols():
            wider["v"] = WIDER_HEADS[index % len(WIDER_HEADS)]
        if "w" in family.symbols():
            wider["w"] = rng.choice([w for w in range(2, a) if a % w == 0 and w != k] or [a])
        if "i" in family.symbols():         # of all layers' inputs, as many as are run with many rows
            wider["i"] = 8 * rng.choice([23, 29, 31, 37])
        if 4 * b * s * wider.get("i", 0) * 5 * family.period >= 2**31:
            continue
        if wider.get("w") == a or 4 * b * s * a * wider.get("v", 0) >= 2**31:
            continue
        joint = {"gpt_neox": 3 * a * d, "phi3": max((a + 2 * k) * d, 2 * f)}.get(family.kind, 0)         # queries, keys and values in one layer
        if v.get("quantised") == "nf4-dq" and max(a * max(d, wider.get("v", 0)), joint, family.joined * f, 8 * family.period * wider.get("i", 0)) * h > 2**23:      # the mean of that many scales takes scratch
            continue
        bytes_of = {c * x * y for c in (1, 2, 4) for x in (h, f, vocab, a * d, k * d) for y in (h, f, a * d, k * d)}
        if 4 * b * s * max(3 * h, f, vocab) < 2**31 and not bytes_of & WORKSPACES:
            positions = prime_above(rng.randrange(*[(6600, 7900), (2100, 2900), (700, 1500)][0 if alone else kind]))
            shape = dict(h=h, a=a, k=k, d=d, f=f, V=vocab, P=positions, T=rng.choice([2, 3]),
                         E=rng.choice([8, 10, 12, 14, 18, 20]), t=rng.choice([2, 3, 4]), W=prime_above(rng.randrange(100, 300)), c=rng.choice([76, 84, 92, 100, 116]), s=8 * prime_above(rng.randrange(100, 300)))
            if v["task"] in ("seqcls", "tokcls") and not has_one_label(v):
                # of tokens the sum over so many columns takes scratch at every shape, as it does not below 32 with few rows
                shape["C"] = prime_above(rng.randrange(33 if v["task"] == "tokcls" else 10, 100))
            shape.update(draw_linear(rng, family) if "z" in family.symbols() else {})
            if v.get("quantised") == "nf4-dq" and "z" in family.symbols() and h * max(2 * a * d, 128 * (2 * shape.get("j", shape["z"]) + shape["z"])) > 2**23:
                continue
            narrow = shape["z"] if "z" in family.symbols() else shape["E"] if few > 11 else 0
            if narrow and not sizes.sum_scratch(narrow, b * s)[0]:
                continue
            shape = {x: n for x, n in shape.items() if x in family.symbols()}
            shape.update(wider)
            shape.update({"q": 4 * rng.randrange(5, d // 4 - 1)} if v.get("partial") else {})
            shape.update({"e": 8 * prime_above(rng.randrange(20, 60))} if "e" in family.symbols() else {})
            shape.update(B=b, S=s, r=rng.choice([8, 10, 12, 14, 22]))
            shape.update({"o": rng.choice([3, 5, 7, 11, 13, 17])} if v.get("packed") else {})
            shape.update({"l": 8 * rng.randrange(s // 32, s // 10) + rng.choice([1, 3, 5, 7])} if v.get("trainer") == "grpo" else {})
            shape.update({"x": rng.choice([3, 5, 7, 9, 13, 19])} if v.get("tokens") or v["lora"] == "prompt" else {})
            shape.update({"u": s - shape["x"]} if v["lora"] == "prompt" else {})         # S has the virtual tokens too
            if v["lora"] == "prefix":         # u is the keys of a sequence; B x is no more than 3072, beyond which a look-up's gradient is another kernel
                x = rng.choice([3, 5, 7, 9])
                shape.update(x=x, u=s, S=s - x)
            return dict(shape, M=rng.randrange(100, 180)) if v.get("liger") else shape


def draw_linear(rng, family):
    """Heads of Gated DeltaNet's layers, of which a sum over few rows takes scratch where they are 32 or more."""
    j = rng.choice([11, 13, 17])
    return dict(j=j, z=j * rng.choice([2, 3])) if "j" in family.symbols() else {"z": rng.choice([33, 37, 41, 47])}


def with_images(rng, family, v, shape, index, small):
    """The same with the sequence that images of some patches make, and labels; small: few images. resized: the config has another size."""
    n, p = rng.choice([17, 18, 19, 20, 21, 22, 23]), rng.choice([10, 12, 14, 15, 18, 20])
    if family.kind == "dinov2":         # a mean of so many patches takes scratch
        n, p = rng.choice([33, 34, 35, 36, 37, 38, 39]), rng.choice([6, 7, 8, 9, 10])
    more = 2 if family.kind == "deit" else 1
    rows = rng.choice([1500, 2500]) if small else [6000, 60000, 18000][index % 3]
    of_config = rng.choice([x for x in range(11, 40) if x != n]) if v["resized"] else n
    if ("f", "|4*h") in family.fields:
        shape["f"] = 4 * shape["h"]
    shape.update(p=p, I=of_config * p, S=n * n + more, B=max(2, rows // (n * n + more)), C=prime_above(rng.randrange(10, 300)))
    return shape


def with_pictures(rng, family, shape, index, small):
    """The same with so many pictures in all, and sequences that are long enough for them."""
    made = of_pictures(family.images, rng.randrange(11, 19), rng.randrange(11, 19))
    s = shape["S"] % 8 + 8 * prime_above(rng.randrange(90, 180))
    rows = rng.choice([1500, 2500]) if small else [9000, 58000, 18000][index % 3]
    b = max(2, rows // s)
    most = min(b * s // made["it"], 60000 // made["iv"])
    return dict(shape, S=s, B=b, im=rng.randrange(max(1, most // 2), most) if most > 2 else 1, **made)


def shapes(name, v, n, seed=1):
    rng = random.Random("%s %s %d" % (name, bool(v["gqa"]), seed))
    out = [draw(rng, FAMILIES[name], v, i) for i in range(n)]
    while v["gqa"] == GROUPED and seed == 1 and any(len({f(s, x) for s in out[:-1]}) == 1 for f in (lambda s, x: s[x], lambda s, x: s["a"] // s[x]) for x in "kw" if x in out[0]):         # heads would be a number, or a multiple of others
        out = [draw(rng, FAMILIES[name], v, i) for i in range(n)]
    while seed == 1 and all(-s["S"] % 32 == -s["S"] % (64 if s["d"] <= 64 else 128) for s in out[:-1]):         # S32 would be 64 SQ
        out = [draw(rng, FAMILIES[name], v, i) for i in range(n)]
    while "t" in out[0] and seed == 1 and all(s["B"] * s["S"] >= 1 << 16 or s["B"] * s["S"] * s["t"] < 1 << 16 for s in out[:-1]):         # XN would be XI
        out = [draw(rng, FAMILIES[name], v, i) for i in range(n)]
    if v["task"] == "seq2seq":
        return [with_targets(rng, s, i) for i, s in enumerate(out)]
    if v.get("images"):
        return [with_pictures(rng, FAMILIES[name], s, i, seed > 1) for i, s in enumerate(out)]
    return [with_images(rng, FAMILIES[name], v, s, i, seed > 1) for i, s in enumerate(out)] if v["task"] == "imgcls" else out


def with_targets(rng, shape, index):
    """The same with a sequence of targets and buckets of distances; the same rows at most, more than 3072."""
    most = shape["S"] // 8
    d = prime_above(rng.randrange(most * 2 // 3, most - 6))
    return dict(shape, D=8 * (d if 8 * d != shape["S"] else prime_above(d)), W=rng.choice([24, 26, 30, 34, 36]))


# Of small shapes with targets: (B, S, D) where only one of the look-ups has 3072 rows or fewer, by the mark of what it takes.
FEW_ROWS = {"!": (30, 72, 136), "!D": (30, 136, 72), "!W": (100, 48, 72), "!Z": (100, 72, 48)}


def small_shapes(name, v, n):
    """[(mark, shape)] in which a look-up's gradient takes another kernel."""
    out = shapes(name, v, n, seed=2)
    if v["task"] == "seq2seq":
        return [(mark, dict(out[0], B=few[0], S=few[1], D=few[2])) for mark, few in FEW_ROWS.items()]
    for s in out if v["task"] != "imgcls" and not v.get("images") else []:
        if v["one"] or v.get("packed"):
            s["S"] = 8 * (s["S"] // 64) + s["S"] % 8
        else:
            s["B"], s["S"] = (TILES, 8 * (s["S"] // 24)) if v["liger"] else (2, s["S"]) if s["S"] * 2 < 3072 else (1, 8 * (s["S"] // 16) + s["S"] % 8)
        if "l" in s:
            s["l"] = s["S"] // 2 - 3
        if "u" in s:
            s["u"] = s["S"] + (s["x"] if v["lora"] == "prefix" else -s["x"])
        if "t" in s:                      # what is routed is many rows still, whose sort is the one that was seen
            s["t"] = max(s["t"], -(-4200 // (s["B"] * s["S"])))
    return [("!", s) for s in out]
