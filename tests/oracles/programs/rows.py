#!/usr/bin/env python3
"""Whole training steps of known models, peaks by phase as PyTorch's allocator counts them: rows to hold the estimates against.

    rows.py OUT.csv [--null build/null] [--random N [--seed S] [--adapters] [--trl] [--dpo] [--grpo] [--features] [--dropout] [--beside] [--checkpoints] [--parted] [--reentrant] [--optimizers] [--matrices] [--fused] [--narrow] [--prepared] [--peft] [--frozen] [--allocators] [--windowed] [--again] [--asked] [--classes] [--judged] [--recent] [--padded] [--evaluate] [--liger] [--models MODEL ...] [--answered VPLAN [--unless OLDER]]
        [--attention WORD] [--recompute WORD] [--trainer WORD] [--only COLUMN=VALUE,VALUE ...]]
    rows.py OUT.csv --like ROWS.csv [--every N]: every Nth of another file's settings, with this Python's libraries

Two steps as `vplan estimate --trainer torch` means them, on one card of compute capability 9.0 with 132 multiprocessors that the
stand-in plays, addresses rising, or with VPLAN_NULL_ADDRESSES=falling as a card's driver gives them. cuBLAS's workspaces are part of every number. With --random the rows are drawn: models, precisions,
attention, masks, checkpointing, optimizers and shapes; those of OUT.csv stay, so that it resumes. With
--trl: by TRL's SFTTrainer, with --adapters also with them and with padding; --dpo: by its DPOTrainer, whose batches are pairs; --grpo: by its GRPOTrainer, of completions behind prompts. --features: packed samples, 8-bit weights, DoRA. --dropout: adapters with dropout, flash-attn 2. --beside: whole modules or tokens trained beside adapters. --checkpoints: every second layer, or in host memory. --parted: the first layers alone. --reentrant: by use_reentrant=True. --optimizers: AdEMAMix, schedule-free ones and others (`pip install schedulefree torch-optimi triton`). --matrices: those that project matrices or orthogonalise them (`pip install --no-deps galore-torch apollo-torch`), with --adapters GaLore's Adafactor, its AdamW in 8 bits, and those of adapters. --fused: those that update in the backward pass, or from host memory (and lomo-optim grokadamw). --narrow: adapters over weights of 8 and 4 bits, DoRA. --prepared: over 4 bits, prepared by peft where the trainer does not, and the other way round. --peft: its methods other than LoRA. --frozen: models of which parts are not trained. --allocators: PYTORCH_ALLOC_CONF. --windowed: adapters at and beyond the attention window of --models; --again: adapters of them as most ask for them. --asked: of them, steps as tutorials have them. --configs: of models as these files have them, every option by chance. --classes: LoRA of classifiers and of T5. --judged: decoders with a head of classes or of a reward. --recent: a list of what was recorded last. --padded: every batch has padding. --models: these, with sdpa. --attention: all rows with this one. --targets: adapters of these layers. --answered: only rows that
VPLAN estimates and OLDER does not, quantised weights of any family among them. --evaluate: an evaluation of two batches behind the steps, by Trainer's own
evaluate(). --liger: by Trainer with Liger's kernels (`pip install liger-kernel`). With --adapters: causal models by a plain loop or by Trainer with its clipping, whole or under LoRA or QLoRA, with optimizers of bitsandbytes too.
"""
import argparse
import contextlib
import csv
import gc
import json
import os
import random
import sys

import families
import loops
import play

LLAMA_1B = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=2048, num_attention_heads=32,
                num_key_value_heads=8, head_dim=64, intermediate_size=8192, vocab_size=128256, num_hidden_layers=16,
                max_position_embeddings=131072, tie_word_embeddings=True, rms_norm_eps=1e-5)
LLAMA_7B = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=4096, num_attention_heads=32,
                num_key_value_heads=32, intermediate_size=11008, vocab_size=32000, num_hidden_layers=32,
                max_position_embeddings=4096, tie_word_embeddings=False, rms_norm_eps=1e-5)
TINY = dict(LLAMA_7B, hidden_size=2048, num_key_value_heads=4, intermediate_size=5632, num_hidden_layers=22)
SMOL = dict(LLAMA_1B, hidden_size=576, num_attention_heads=9, num_key_value_heads=3, intermediate_size=1536,
            vocab_size=49152, num_hidden_layers=30, max_position_embeddings=8192)
QWEN = dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"], hidden_size=896, num_attention_heads=14,
            num_key_value_heads=2, intermediate_size=4864, vocab_size=151936, num_hidden_layers=24,
            max_position_embeddings=32768, tie_word_embeddings=True, use_sliding_window=False, sliding_window=None)
MISTRAL = dict(model_type="mistral", architectures=["MistralForCausalLM"], hidden_size=4096, num_attention_heads=32,
               num_key_value_heads=8, head_dim=128, intermediate_size=14336, vocab_size=32768, num_hidden_layers=32,
               max_position_embeddings=32768, sliding_window=None, tie_word_embeddings=False)
GPT2 = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=768, n_head=12, n_layer=12, vocab_size=50257,
            n_positions=1024)
GPT2_L = dict(GPT2, n_embd=1280, n_head=20, n_layer=36)

DECODER = dict(LLAMA_1B, tie_word_embeddings=False)
QWEN3 = dict(QWEN, model_type="qwen3", architectures=["Qwen3ForCausalLM"], hidden_size=1024, num_attention_heads=16, num_key_value_heads=8,
             head_dim=128, intermediate_size=3072, num_hidden_layers=28, max_position_embeddings=40960)
GEMMA2 = dict(model_type="gemma2", architectures=["Gemma2ForCausalLM"], hidden_size=2304, num_attention_heads=8, num_key_value_heads=4,
              head_dim=256, intermediate_size=9216, vocab_size=256000, num_hidden_layers=26, max_position_embeddings=8192,
              sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, query_pre_attn_scalar=256)
PHI3 = dict(model_type="phi3", architectures=["Phi3ForCausalLM"], hidden_size=3072, num_attention_heads=32, num_key_value_heads=32,
            intermediate_size=8192, vocab_size=32064, num_hidden_layers=32, max_position_embeddings=4096,
            original_max_position_embeddings=4096, sliding_window=2047, pad_token_id=32000, tie_word_embeddings=False)
OPT = dict(model_type="opt", architectures=["OPTForCausalLM"], hidden_size=768, ffn_dim=3072, num_hidden_layers=12, num_attention_heads=12,
           vocab_size=50272, word_embed_proj_dim=768, max_position_embeddings=2048, dropout=0.1, attention_dropout=0.0, pad_token_id=1)
NEOX = dict(model_type="gpt_neox", architectures=["GPTNeoXForCausalLM"], hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
            num_attention_heads=12, vocab_size=50304, max_position_embeddings=2048, rotary_pct=0.25, tie_word_embeddings=False,
            hidden_act="gelu")
NEO = dict(model_type="gpt_neo", architectures=["GPTNeoForCausalLM"], hidden_size=768, num_layers=12, num_heads=12, vocab_size=50257,
           max_position_embeddings=2048, window_size=256, attention_types=[[["global", "local"], 6]], activation_function="gelu_new")
BERT = dict(model_type="bert", architectures=["BertForMaskedLM"], hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
            intermediate_size=3072, vocab_size=30522, max_position_embeddings=512, type_vocab_size=2)
ROBERTA = dict(BERT, model_type="roberta", architectures=["RobertaForMaskedLM"], vocab_size=50265, max_position_embeddings=514,
               type_vocab_size=1, pad_token_id=1)
DISTIL = dict(model_type="distilbert", architectures=["DistilBertForMaskedLM"], dim=768, hidden_dim=3072, n_layers=6, n_heads=12,
              vocab_size=30522, max_position_embeddings=512)
VIT = dict(model_type="vit", architectures=["ViTForImageClassification"], hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
           num_attention_heads=12, image_size=224, patch_size=16, id2label={str(i): "label %d" % i for i in range(10)})
LARGE = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)

MODELS = {
    "llama-3.2-1b": LLAMA_1B, "llama-2-7b": LLAMA_7B, "tinyllama-1.1b": TINY, "smollm2-135m": SMOL, "qwen2.5-0.5b": QWEN, "mistral-7b": MISTRAL,
    "smollm2-360m": dict(SMOL, hidden_size=960, num_attention_heads=15, num_key_value_heads=5, intermediate_size=2560, num_hidden_layers=32),
    "llama-3.2-3b": dict(LLAMA_1B, hidden_size=3072, num_attention_heads=24, head_dim=128, num_hidden_layers=28),
    "llama-3.1-8b": dict(DECODER, hidden_size=4096, head_dim=128, intermediate_size=14336, num_hidden_layers=32),
    "qwen2.5-1.5b": dict(QWEN, hidden_size=1536, num_attention_heads=12, intermediate_size=8960, num_hidden_layers=28),
    "qwen2-7b": dict(QWEN, hidden_size=3584, num_attention_heads=28, num_key_value_heads=4, intermediate_size=18944, num_hidden_layers=28,
                     vocab_size=152064, tie_word_embeddings=False),
    "qwen3-0.6b": QWEN3, "qwen3-4b": dict(QWEN3, hidden_size=2560, num_attention_heads=32, intermediate_size=9728, num_hidden_layers=36),
    "qwen3-8b": dict(QWEN3, hidden_size=4096, num_attention_heads=32, intermediate_size=12288, num_hidden_layers=36, tie_word_embeddings=False),
    "gpt2": GPT2, "gpt2-medium": dict(GPT2, n_embd=1024, n_head=16, n_layer=24), "gpt2-large": GPT2_L,
    "gpt2-xl": dict(GPT2, n_embd=1600, n_head=25, n_layer=48), "gemma2-2b": GEMMA2, "phi3-mini": PHI3,
    "opt-125m": OPT, "opt-1.3b": dict(OPT, hidden_size=2048, ffn_dim=8192, num_hidden_layers=24, num_attention_heads=32, word_embed_proj_dim=2048),
    "pythia-160m": NEOX, "pythia-410m": dict(NEOX, **LARGE), "pythia-1.4b": dict(NEOX, hidden_size=2048, intermediate_size=8192,
                                                                              num_hidden_layers=24, num_attention_heads=16),
    "gpt-neo-125m": NEO, "bert-base": BERT, "bert-large": dict(BERT, **LARGE), "roberta-base": ROBERTA,
    "roberta-large": dict(ROBERTA, **LARGE), "distilbert": DISTIL, "vit-base": VIT, "vit-large": dict(VIT, **LARGE),
    "vit-base-384": dict(VIT, image_size=384),
}
# Not among those that are drawn unless they are named.
NAMED = {
    "smollm3-3b": dict(model_type="smollm3", architectures=["SmolLM3ForCausalLM"], hidden_size=2048, num_attention_heads=16, num_key_value_heads=4,
                       intermediate_size=11008, vocab_size=128256, num_hidden_layers=36, max_position_embeddings=65536, tie_word_embeddings=True,
                       pad_token_id=128004),
    "starcoder2-3b": dict(model_type="starcoder2", architectures=["Starcoder2ForCausalLM"], hidden_size=3072, num_attention_heads=24,
                          num_key_value_heads=2, intermediate_size=12288, vocab_size=49152, num_hidden_layers=30, max_position_embeddings=16384,
                          sliding_window=4096, tie_word_embeddings=True, attention_dropout=0.1, residual_dropout=0.1, embedding_dropout=0.1),
    "granite-3.3-2b": dict(model_type="granite", architectures=["GraniteForCausalLM"], hidden_size=2048, num_attention_heads=32, num_key_value_heads=8,
                           intermediate_size=8192, vocab_size=49155, num_hidden_layers=40, max_position_embeddings=131072, tie_word_embeddings=True,
                           attention_dropout=0.0, attention_multiplier=0.015625, embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22),
    "aya-23-8b": dict(model_type="cohere", architectures=["CohereForCausalLM"], hidden_size=4096, num_attention_heads=32, num_key_value_heads=8,
                      intermediate_size=14336, vocab_size=256000, num_hidden_layers=32, max_position_embeddings=8192, tie_word_embeddings=True,
                      logit_scale=0.0625, use_qk_norm=False),
    "bloom-560m": dict(model_type="bloom", architectures=["BloomForCausalLM"], hidden_size=1024, n_head=16, n_layer=24, vocab_size=250880),
    "falcon-7b": dict(model_type="falcon", architectures=["FalconForCausalLM"], hidden_size=4544, num_attention_heads=71, vocab_size=65024,
                      num_hidden_layers=32, multi_query=True, parallel_attn=True, bias=False, alibi=False, new_decoder_architecture=False),
    "olmo-1b": dict(model_type="olmo", architectures=["OlmoForCausalLM"], hidden_size=2048, num_attention_heads=16, num_key_value_heads=16,
                    intermediate_size=8192, vocab_size=50304, num_hidden_layers=16, max_position_embeddings=2048, tie_word_embeddings=False),
    "phi-4": dict(PHI3, hidden_size=5120, num_attention_heads=40, num_key_value_heads=10, intermediate_size=17920, vocab_size=100352,
                  num_hidden_layers=40, max_position_embeddings=16384, original_max_position_embeddings=16384, sliding_window=None),
    "phi-3.5-mini": dict(PHI3, max_position_embeddings=131072, sliding_window=262144, rope_scaling={"type": "longrope", "short_factor": [1.0] * 48,
                                                                                        "long_factor": [1.0] * 48}),
    "stablelm-3b": dict(model_type="stablelm", architectures=["StableLmForCausalLM"], hidden_size=2560, num_attention_heads=32,
                        num_key_value_heads=32, intermediate_size=6912, vocab_size=50304, num_hidden_layers=32, max_position_embeddings=4096,
                        partial_rotary_factor=0.25, tie_word_embeddings=False),
}
T5 = dict(model_type="t5", architectures=["T5ForConditionalGeneration"], d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_decoder_layers=6,
          num_heads=8, vocab_size=32128, relative_attention_num_buckets=32, dropout_rate=0.1, feed_forward_proj="relu", decoder_start_token_id=0,
          pad_token_id=0, eos_token_id=1, tie_word_embeddings=True)
MODERN = dict(model_type="modernbert", architectures=["ModernBertForMaskedLM"], hidden_size=768, num_attention_heads=12, intermediate_size=1152,
              vocab_size=50368, num_hidden_layers=22, max_position_embeddings=8192, global_attn_every_n_layers=3, local_attention=128,
              classifier_pooling="mean", tie_word_embeddings=True, pad_token_id=50283)
GATED = dict(T5, d_ff=1024, num_layers=8, num_decoder_layers=8, num_heads=6, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
DEBERTA = dict(model_type="deberta-v2", architectures=["DebertaV2ForSequenceClassification"], hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
               intermediate_size=3072, vocab_size=128100, max_position_embeddings=512, type_vocab_size=0, relative_attention=True, max_relative_positions=-1,
               position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p", position_biased_input=False, hidden_act="gelu",
               pooler_dropout=0, pooler_hidden_act="gelu", pooler_hidden_size=768, pad_token_id=0, id2label={str(i): "label %d" % i for i in range(3)})
ELECTRA = dict(BERT, model_type="electra", architectures=["ElectraForSequenceClassification"], embedding_size=768, id2label={str(i): "label %d" % i for i in range(4)})
BART = dict(model_type="bart", architectures=["BartForConditionalGeneration"], d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12,
            decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=50265, max_position_embeddings=1024, dropout=0.1,
            attention_dropout=0.1, activation_dropout=0.1, activation_function="gelu", scale_embedding=False, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
            pad_token_id=1, decoder_start_token_id=2)
LARGE_STACKS = dict(d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16, decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096)
NAMED.update({
    "electra-base": ELECTRA, "electra-large": dict(ELECTRA, embedding_size=1024, **LARGE),
    "electra-small": dict(ELECTRA, embedding_size=128, hidden_size=256, num_attention_heads=4, intermediate_size=1024),
    "electra-names": dict(ELECTRA, architectures=["ElectraForTokenClassification"]),
    "albert-base-v2": dict(ELECTRA, model_type="albert", architectures=["AlbertForSequenceClassification"], embedding_size=128, vocab_size=30000, hidden_act="gelu_new",
                           hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_hidden_groups=1, inner_group_num=1, classifier_dropout_prob=0.1),
    "mpnet-base": dict(model_type="mpnet", architectures=["MPNetForMaskedLM"], hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
                       vocab_size=30527, max_position_embeddings=514, relative_attention_num_buckets=32, pad_token_id=1),
    "xlm-roberta-classes": dict(ROBERTA, model_type="xlm-roberta", architectures=["XLMRobertaForSequenceClassification"], vocab_size=250002,
                                id2label={str(i): "label %d" % i for i in range(3)}),
    "xlm-roberta-names": dict(ROBERTA, model_type="xlm-roberta", architectures=["XLMRobertaForTokenClassification"], vocab_size=250002,
                              id2label={str(i): "label %d" % i for i in range(9)}),
    "bart-base": BART, "bart-large-cnn": dict(BART, vocab_size=50264, attention_dropout=0.0, activation_dropout=0.0, **LARGE_STACKS),
    "opus-mt-en-de": dict(BART, model_type="marian", architectures=["MarianMTModel"], d_model=512, encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048,
                          decoder_ffn_dim=2048, vocab_size=58101, decoder_vocab_size=58101, max_position_embeddings=512, attention_dropout=0.0, activation_dropout=0.0,
                          activation_function="swish", scale_embedding=True, pad_token_id=58100, decoder_start_token_id=58100),
    "nllb-200-distilled-600m": dict(BART, model_type="m2m_100", architectures=["M2M100ForConditionalGeneration"], vocab_size=256206, activation_dropout=0.0,
                                    activation_function="relu", scale_embedding=True, **LARGE_STACKS),
    "mbart-large-50": dict(BART, model_type="mbart", architectures=["MBartForConditionalGeneration"], vocab_size=250054, attention_dropout=0.0, activation_dropout=0.0,
                           scale_embedding=True, **LARGE_STACKS),
    "pegasus-xsum": dict(BART, model_type="pegasus", architectures=["PegasusForConditionalGeneration"], vocab_size=96103, max_position_embeddings=512,
                         activation_function="relu", scale_embedding=True, pad_token_id=0, decoder_start_token_id=0, **dict(LARGE_STACKS, encoder_layers=16, decoder_layers=16)),
    "flan-t5-small": GATED, "flan-t5-base": dict(GATED, d_model=768, d_ff=2048, num_layers=12, num_decoder_layers=12, num_heads=12),
    "mt5-small": dict(GATED, model_type="mt5", vocab_size=250112),
    "deberta-v3-base": DEBERTA, "deberta-v3-small": dict(DEBERTA, num_hidden_layers=6),
    "deberta-v3-large": dict(DEBERTA, pooler_hidden_size=1024, **LARGE),
    "mdeberta-v3-base": dict(DEBERTA, vocab_size=251000, architectures=["DebertaV2ForTokenClassification"], id2label={str(i): "label %d" % i for i in range(9)}),
    "deberta-v3-mlm": dict(DEBERTA, architectures=["DebertaV2ForMaskedLM"]),
    "t5-small": T5, "t5-base": dict(T5, d_model=768, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12),
    "bert-classes": dict(BERT, architectures=["BertForSequenceClassification"], id2label={str(i): "label %d" % i for i in range(5)}),
    "bert-large-classes": dict(BERT, **LARGE, architectures=["BertForSequenceClassification"], id2label={str(i): "label %d" % i for i in range(3)}),
    "bert-names": dict(BERT, architectures=["BertForTokenClassification"], id2label={str(i): "label %d" % i for i in range(9)}),
    "roberta-classes": dict(ROBERTA, architectures=["RobertaForSequenceClassification"], id2label={"0": "no", "1": "yes"}),
    "roberta-large-classes": dict(ROBERTA, **LARGE, architectures=["RobertaForSequenceClassification"], id2label={"0": "no", "1": "yes", "2": "maybe"}),
    "roberta-names": dict(ROBERTA, architectures=["RobertaForTokenClassification"], id2label={str(i): "label %d" % i for i in range(17)}),
    "distilbert-classes": dict(DISTIL, architectures=["DistilBertForSequenceClassification"], id2label={"0": "no", "1": "yes"}),
    "distilbert-names": dict(DISTIL, architectures=["DistilBertForTokenClassification"], id2label={str(i): "label %d" % i for i in range(9)}),
    "xlm-roberta-classes": dict(ROBERTA, model_type="xlm-roberta", architectures=["XLMRobertaForSequenceClassification"], vocab_size=250002,
                                id2label={str(i): "label %d" % i for i in range(20)}),
    "gemma-2b": dict(model_type="gemma", architectures=["GemmaForCausalLM"], hidden_size=2048, num_attention_heads=8, num_key_value_heads=1, head_dim=256,
                     intermediate_size=16384, vocab_size=256000, num_hidden_layers=18, max_position_embeddings=8192, tie_word_embeddings=True, pad_token_id=0),
    "olmo2-1b": dict(model_type="olmo2", architectures=["Olmo2ForCausalLM"], hidden_size=2048, num_attention_heads=16, num_key_value_heads=16,
                     intermediate_size=8192, vocab_size=100352, num_hidden_layers=16, max_position_embeddings=4096, tie_word_embeddings=False),
    "gemma3-1b": dict(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], hidden_size=1152, num_attention_heads=4, num_key_value_heads=1,
                      head_dim=256, intermediate_size=6912, vocab_size=262144, num_hidden_layers=26, max_position_embeddings=32768,
                      sliding_window=512, query_pre_attn_scalar=256, tie_word_embeddings=True, pad_token_id=0),
    "gemma3-4b-text": dict(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], hidden_size=2560, num_attention_heads=8, num_key_value_heads=4,
                           head_dim=256, intermediate_size=10240, vocab_size=262208, num_hidden_layers=34, max_position_embeddings=131072,
                           sliding_window=1024, query_pre_attn_scalar=256, tie_word_embeddings=True, pad_token_id=0),
    "qwen3-30b-a3b": dict(QWEN3, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], hidden_size=2048, num_attention_heads=32,
                          num_key_value_heads=4, intermediate_size=6144, moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8,
                          num_hidden_layers=48, tie_word_embeddings=False, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True),
    "modernbert-base": MODERN, "modernbert-classes": dict(MODERN, architectures=["ModernBertForSequenceClassification"], id2label={"0": "no", "1": "yes"}),
    "modernbert-names": dict(MODERN, architectures=["ModernBertForTokenClassification"], id2label={str(i): "label %d" % i for i in range(9)}),
    "modernbert-large": dict(MODERN, hidden_size=1024, intermediate_size=2624, num_hidden_layers=28, num_attention_heads=16),
    "olmo-3-7b": dict(model_type="olmo3", architectures=["Olmo3ForCausalLM"], hidden_size=4096, num_attention_heads=32, num_key_value_heads=32,
                      intermediate_size=11008, vocab_size=100278, num_hidden_layers=32, max_position_embeddings=65536, sliding_window=4096,
                      tie_word_embeddings=False),
    "glm-4-9b": dict(model_type="glm4", architectures=["Glm4ForCausalLM"], hidden_size=4096, num_attention_heads=32, num_key_value_heads=2, head_dim=128,
                     partial_rotary_factor=0.5, attention_bias=True, intermediate_size=13696, vocab_size=151552, num_hidden_layers=40,
                     max_position_embeddings=32768, tie_word_embeddings=False, pad_token_id=151329),
    "ernie4.5-0.3b": dict(model_type="ernie4_5", architectures=["Ernie4_5ForCausalLM"], hidden_size=1024, num_attention_heads=16, num_key_value_heads=2,
                          head_dim=128, intermediate_size=3072, vocab_size=103424, num_hidden_layers=18, max_position_embeddings=131072,
                          tie_word_embeddings=True, use_bias=False),
})
BLOOM = dict(model_type="bloom", architectures=["BloomForCausalLM"], hidden_size=1024, n_layer=24, n_head=16, vocab_size=250880, hidden_dropout=0.0, attention_dropout=0.0)
NAMED.update({
    "mistral-7b-v0.1": dict(MISTRAL, vocab_size=32000, sliding_window=4096),
    "gemma2-9b": dict(GEMMA2, hidden_size=3584, num_attention_heads=16, num_key_value_heads=8, intermediate_size=14336, num_hidden_layers=42),
    "gemma2-27b": dict(GEMMA2, hidden_size=4608, num_attention_heads=32, num_key_value_heads=16, head_dim=128, intermediate_size=36864, num_hidden_layers=46,
                       query_pre_attn_scalar=144),
    "phi-4-mini": dict(PHI3, num_attention_heads=24, num_key_value_heads=8, vocab_size=200064, max_position_embeddings=131072, sliding_window=262144,
                       tie_word_embeddings=True, partial_rotary_factor=0.75,
                       rope_scaling={"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.0] * 48}, pad_token_id=199999),
    "phi-2": dict(model_type="phi", architectures=["PhiForCausalLM"], hidden_size=2560, num_attention_heads=32, num_key_value_heads=32,
                  intermediate_size=10240, vocab_size=51200, num_hidden_layers=32, max_position_embeddings=2048, partial_rotary_factor=0.4,
                  resid_pdrop=0.1, hidden_act="gelu_new", qk_layernorm=False, tie_word_embeddings=False),
    "gemma-7b": dict(model_type="gemma", architectures=["GemmaForCausalLM"], hidden_size=3072, num_attention_heads=16, num_key_value_heads=16,
                     head_dim=256, intermediate_size=24576, vocab_size=256000, num_hidden_layers=28, max_position_embeddings=8192,
                     tie_word_embeddings=True, pad_token_id=0),
    "mixtral-8x7b": dict(model_type="mixtral", architectures=["MixtralForCausalLM"], hidden_size=4096, num_attention_heads=32, num_key_value_heads=8,
                         intermediate_size=14336, vocab_size=32000, num_hidden_layers=32, max_position_embeddings=32768, num_local_experts=8,
                         num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=False),
    "smollm2-1.7b": dict(LLAMA_1B, num_key_value_heads=32, num_hidden_layers=24, vocab_size=49152, max_position_embeddings=8192),
    "qwen1.5-0.5b": dict(QWEN, hidden_size=1024, num_attention_heads=16, num_key_value_heads=16, intermediate_size=2816),
    "qwen1.5-1.8b": dict(QWEN, hidden_size=2048, num_attention_heads=16, num_key_value_heads=16, intermediate_size=5504, tie_word_embeddings=False),
    "falcon3-1b": dict(DECODER, num_attention_heads=8, num_key_value_heads=4, head_dim=256, vocab_size=131072, num_hidden_layers=18,
                       max_position_embeddings=4096, rms_norm_eps=1e-6),
    "olmo2-32b": dict(model_type="olmo2", architectures=["Olmo2ForCausalLM"], hidden_size=5120, num_attention_heads=40, num_key_value_heads=8, intermediate_size=27648,
                      vocab_size=100352, num_hidden_layers=64, max_position_embeddings=4096, tie_word_embeddings=False, pad_token_id=100277),
    "phi-1.5": dict(model_type="phi", architectures=["PhiForCausalLM"], hidden_size=2048, num_attention_heads=32, num_key_value_heads=32, intermediate_size=8192,
                    vocab_size=51200, num_hidden_layers=24, max_position_embeddings=2048, partial_rotary_factor=0.5, resid_pdrop=0.0, hidden_act="gelu_new",
                    qk_layernorm=False, tie_word_embeddings=False),
    "bloom-560m": BLOOM, "bloom-1b1": dict(BLOOM, hidden_size=1536), "bloom-3b": dict(BLOOM, hidden_size=2560, n_layer=30, n_head=32),
    "bloom-7b1": dict(BLOOM, hidden_size=4096, n_layer=30, n_head=32),
    "gpt-j-6b": dict(model_type="gptj", architectures=["GPTJForCausalLM"], n_embd=4096, n_head=16, n_inner=None, n_layer=28, n_positions=2048, rotary_dim=64, vocab_size=50400,
                     activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=False),
    "gpt-neo-1.3b": dict(NEO, hidden_size=2048, num_layers=24, num_heads=16, attention_types=[[["global", "local"], 12]]),
    "xlm-roberta-base": dict(ROBERTA, model_type="xlm-roberta", architectures=["XLMRobertaForMaskedLM"], vocab_size=250002),
    "gpt-neox-20b": dict(NEOX, hidden_size=6144, intermediate_size=24576, num_hidden_layers=44, num_attention_heads=64, vocab_size=50432, hidden_act="gelu_fast"),
    "pythia-1b": dict(NEOX, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=8),
    "gemma3-270m": dict(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], hidden_size=640, num_attention_heads=4, num_key_value_heads=1,
                        head_dim=256, intermediate_size=2048, vocab_size=262144, num_hidden_layers=18, max_position_embeddings=32768,
                        sliding_window=512, query_pre_attn_scalar=256, tie_word_embeddings=True, pad_token_id=0),
})
# Llamas with biases in all linear layers, and in those of attention
GRANITE_CODE = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=2560, num_attention_heads=32, num_key_value_heads=32, intermediate_size=10240, vocab_size=49152,
                    num_hidden_layers=32, max_position_embeddings=2048, attention_bias=True, mlp_bias=True, attention_dropout=0.1, tie_word_embeddings=True)
NAMED.update({
    "granite-3b-code": GRANITE_CODE,
    "granite-8b-code": dict(GRANITE_CODE, hidden_size=4096, num_key_value_heads=8, intermediate_size=14336, num_hidden_layers=36, max_position_embeddings=4096),
    "qwen1.5-moe-a2.7b": dict(model_type="qwen2_moe", architectures=["Qwen2MoeForCausalLM"], hidden_size=2048, num_attention_heads=16, num_key_value_heads=16, intermediate_size=5632,
                              moe_intermediate_size=1408, shared_expert_intermediate_size=5632, num_experts=60, num_experts_per_tok=4, vocab_size=151936, num_hidden_layers=24,
                              max_position_embeddings=8192, decoder_sparse_step=1, norm_topk_prob=False, mlp_only_layers=[], tie_word_embeddings=False),
    "internlm-7b-as-llama": dict(GRANITE_CODE, hidden_size=4096, intermediate_size=11008, vocab_size=103168, mlp_bias=False, attention_dropout=0.0, tie_word_embeddings=False),
})
NAMED["opt-350m"] = dict(OPT, hidden_size=1024, ffn_dim=4096, num_hidden_layers=24, num_attention_heads=16, word_embed_proj_dim=512, do_layer_norm_before=False)
TOWER = dict(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], mm_tokens_per_image=256, image_token_index=262144,
             vision_config=dict(families.SIGLIP, model_type="siglip_vision_model"))
GEMMA3 = dict(model_type="gemma3_text", sliding_window=1024, rope_scaling={"factor": 8.0, "rope_type": "linear"})
NAMED.update({         # what they do not say is the class's
    "gemma-3-4b": dict(TOWER, text_config=dict(GEMMA3, hidden_size=2560, intermediate_size=10240, num_hidden_layers=34)),
    "gemma-3-12b": dict(TOWER, text_config=dict(GEMMA3, hidden_size=3840, intermediate_size=15360, num_hidden_layers=48, num_attention_heads=16,
                                                num_key_value_heads=8)),
    "gemma-3-27b": dict(TOWER, text_config=dict(GEMMA3, hidden_size=5376, intermediate_size=21504, num_hidden_layers=62, num_attention_heads=32,
                                                num_key_value_heads=16, head_dim=128, query_pre_attn_scalar=168)),
})
def qwen3_5(layers, value_heads, tied, **sizes):
    """As published but for what no class of texts reads."""
    return dict(model_type="qwen3_5", architectures=["Qwen3_5ForConditionalGeneration"], tie_word_embeddings=tied, vision_config={"model_type": "qwen3_5"},
                text_config=dict(sizes, model_type="qwen3_5_text", attention_bias=False, attention_dropout=0.0, attn_output_gate=True, full_attention_interval=4, head_dim=256,
                                 hidden_act="silu", layer_types=(["linear_attention"] * 3 + ["full_attention"]) * (layers // 4), linear_conv_kernel_dim=4,
                                 linear_key_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=value_heads, linear_value_head_dim=128,
                                 max_position_embeddings=262144, mlp_only_layers=[], num_hidden_layers=layers, tie_word_embeddings=tied, vocab_size=248320,
                                 rope_parameters={"mrope_interleaved": True, "mrope_section": [11, 11, 10], "rope_type": "default", "rope_theta": 10000000,
                                                  "partial_rotary_factor": 0.25}))


NAMED.update({
    "qwen3.5-0.8b": qwen3_5(24, 16, True, hidden_size=1024, intermediate_size=3584, num_attention_heads=8, num_key_value_heads=2),
    "qwen3.5-2b": qwen3_5(24, 16, True, hidden_size=2048, intermediate_size=6144, num_attention_heads=8, num_key_value_heads=2),
    "qwen3.5-4b": qwen3_5(32, 32, True, hidden_size=2560, intermediate_size=9216, num_attention_heads=16, num_key_value_heads=4),
    "qwen3.5-9b": qwen3_5(32, 32, False, hidden_size=4096, intermediate_size=12288, num_attention_heads=16, num_key_value_heads=4),
    "qwen3.5-27b": qwen3_5(64, 48, False, hidden_size=5120, intermediate_size=17408, num_attention_heads=24, num_key_value_heads=4),
})
GEMMA4 = dict(model_type="gemma4_text", head_dim=256, global_head_dim=512, vocab_size=262144, final_logit_softcapping=30.0)
GEMMA4_TOWER = dict(model_type="gemma4", architectures=["Gemma4ForConditionalGeneration"], vision_config=dict(families.GEMMA4_TOWER, model_type="gemma4_vision"))
GEMMA4_E = dict(GEMMA4_TOWER, **{part: dict({k.partition(".")[2]: x for k, x in families.GEMMA4_TOWERS.items() if k.startswith(part)}, model_type=kind)
                                 for part, kind in (("vision_config", "gemma4_vision"), ("audio_config", "gemma4_audio"))})
NAMED.update({
    "gemma-4-31b": dict(GEMMA4_TOWER, text_config=dict(GEMMA4, hidden_size=5376, intermediate_size=21504, num_hidden_layers=60, num_attention_heads=32, num_key_value_heads=16,
                                                       num_global_key_value_heads=4, attention_k_eq_v=True, hidden_size_per_layer_input=0, sliding_window=1024, use_bidirectional_attention="vision")),
    "gemma-4-e4b": dict(GEMMA4_E, text_config=dict(GEMMA4, hidden_size=2560, intermediate_size=10240, num_hidden_layers=42, num_attention_heads=8, num_key_value_heads=2, num_kv_shared_layers=18)),
    "gemma-4-e2b": dict(GEMMA4_E, text_config=dict(GEMMA4, hidden_size=1536, intermediate_size=6144, num_hidden_layers=35, num_attention_heads=8, num_key_value_heads=1, num_kv_shared_layers=20,
                                                   use_double_wide_mlp=True, layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 7)),
})
OF_35B = qwen3_5(40, 32, False, hidden_size=2048, moe_intermediate_size=512, shared_expert_intermediate_size=512, num_experts=256, num_experts_per_tok=8,
                 num_attention_heads=16, num_key_value_heads=2)
NAMED["qwen3.5-35b-a3b"] = dict(OF_35B, model_type="qwen3_5_moe", architectures=["Qwen3_5MoeForConditionalGeneration"], vision_config={"model_type": "qwen3_5_moe"},
                                text_config=dict(OF_35B["text_config"], model_type="qwen3_5_moe_text"))
GPT_OSS = dict(model_type="gpt_oss", architectures=["GptOssForCausalLM"], attention_bias=True, attention_dropout=0.0, head_dim=64, hidden_size=2880,
               intermediate_size=2880, layer_types=["sliding_attention", "full_attention"] * 12, max_position_embeddings=131072, num_attention_heads=64,
               num_experts_per_tok=4, num_hidden_layers=24, num_key_value_heads=8, num_local_experts=32, output_router_logits=False, pad_token_id=199999,
               rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": False},
               rope_theta=150000, router_aux_loss_coef=0.9, sliding_window=128, tie_word_embeddings=False, vocab_size=201088)
NAMED.update({
    "gpt-oss-20b": GPT_OSS, "gpt-oss-120b": dict(GPT_OSS, num_hidden_layers=36, num_local_experts=128, layer_types=["sliding_attention", "full_attention"] * 18),
    "seed-oss-36b": dict(model_type="seed_oss", architectures=["SeedOssForCausalLM"], attention_bias=True, attention_out_bias=False, attention_dropout=0.1,
                         residual_dropout=0.1, head_dim=128, hidden_size=5120, intermediate_size=27648, max_position_embeddings=524288, mlp_bias=False,
                         num_attention_heads=80, num_hidden_layers=64, num_key_value_heads=8, tie_word_embeddings=False, vocab_size=155136),
    "glm-4-9b-chat-hf": dict(model_type="glm", architectures=["GlmForCausalLM"], attention_bias=True, head_dim=128, hidden_size=4096, intermediate_size=13696,
                             max_position_embeddings=131072, num_attention_heads=32, num_hidden_layers=40, num_key_value_heads=2, pad_token_id=151329,
                             tie_word_embeddings=False, vocab_size=151552),
    "exaone-4-32b": dict(model_type="exaone4", architectures=["Exaone4ForCausalLM"], hidden_size=5120, intermediate_size=27392, max_position_embeddings=131072,
                         num_attention_heads=40, num_hidden_layers=64, num_key_value_heads=8, sliding_window=4096,
                         layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 16, tie_word_embeddings=False, vocab_size=102400),
    "exaone-4-1.2b": dict(model_type="exaone4", architectures=["Exaone4ForCausalLM"], hidden_size=2048, intermediate_size=4096, max_position_embeddings=65536,
                          num_attention_heads=32, num_hidden_layers=30, num_key_value_heads=8, sliding_window=None, sliding_window_pattern=None,
                          layer_types=["full_attention"] * 30, tie_word_embeddings=True, vocab_size=102400),
    "olmoe-1b-7b": dict(model_type="olmoe", architectures=["OlmoeForCausalLM"], attention_bias=False, clip_qkv=None, hidden_size=2048, intermediate_size=1024,
                        max_position_embeddings=4096, norm_topk_prob=False, num_attention_heads=16, num_experts=64, num_experts_per_tok=8,
                        num_hidden_layers=16, num_key_value_heads=16, output_router_logits=False, router_aux_loss_coef=0.01, tie_word_embeddings=False,
                        vocab_size=50304),
    "granite-3.0-1b-a400m": dict(model_type="granitemoe", architectures=["GraniteMoeForCausalLM"], attention_bias=False, attention_multiplier=0.015625,
                                 embedding_multiplier=12.0, hidden_size=1024, intermediate_size=512, logits_scaling=6.0, max_position_embeddings=4096,
                                 num_attention_heads=16, num_experts_per_tok=8, num_hidden_layers=24, num_key_value_heads=8, num_local_experts=32,
                                 output_router_logits=False, residual_multiplier=0.22, router_aux_loss_coef=0.0, tie_word_embeddings=True, vocab_size=49155),
    "command-r7b": dict(model_type="cohere2", architectures=["Cohere2ForCausalLM"], attention_bias=False, head_dim=128, hidden_size=4096,
                        intermediate_size=14336, layer_norm_eps=1e-5, logit_scale=0.25, max_position_embeddings=132096, num_attention_heads=32,
                        num_hidden_layers=32, num_key_value_heads=8, sliding_window=4096, tie_word_embeddings=True, vocab_size=256000),
})
CLASS_OF = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral", "gemma2": "Gemma2"}


def with_classes(name, n):
    """A decoder with a head of classes; one: a reward, or a regression."""
    c = dict(NAMED, **MODELS)[name]
    return dict(c, architectures=[CLASS_OF[c["model_type"]] + "ForSequenceClassification"], id2label={str(i): "label %d" % i for i in range(n)},
                pad_token_id=0)


NAMED.update({"%s-%d" % (name, n): with_classes(name, n) for name in ("smollm2-135m", "llama-3.2-1b", "llama-3.1-8b", "tinyllama-1.1b", "qwen2.5-0.5b", "qwen2.5-1.5b",
                                                                      "qwen3-0.6b", "qwen3-4b", "mistral-7b", "gemma2-2b", "gemma2-9b") for n in (1, 2, 6)})
LENGTHS = [64, 100, 128, 197, 250, 256, 384, 500, 512, 640, 777, 1000, 1024, 1536, 2047, 2048]
TASKS = {"ForMaskedLM": "mlm", "MTModel": "seq2seq", "ForConditionalGeneration": "seq2seq", "ForImageClassification": "imgcls", "ForSequenceClassification": "seqcls", "ForTokenClassification": "tokcls"}


def task_of(config):
    return "clm" if "text_config" in config else next((task for word, task in TASKS.items() if config["architectures"][0].endswith(word)), "clm")


def drawn(n, seed, models=None):
    """Settings that a model takes, by chance."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or sorted(MODELS))
        c = dict(NAMED, **MODELS)[name]
        task = task_of(c)
        most = min(c.get(k, 1 << 20) for k in ("max_position_embeddings", "n_positions")) - 2 * c["model_type"].endswith(("roberta", "mpnet"))
        window = c.get("sliding_window") or 1 << 20
        seq = rng.choice([s for s in LENGTHS if s <= most and s < window])
        padded = task != "imgcls" and rng.random() < 0.25
        if padded and seq % 8 or task == "imgcls" and seq != 197:
            continue
        attention = "sdpa:flash" if models else rng.choice(["sdpa:flash", "sdpa:flash", "eager"])
        out.append((name, c, rng.choice(["fp32", "bf16-mixed", "bf16", "bf16-amp"]), attention,
                    rng.choice(["none", "full"]), rng.choice(["adamw_torch", "adamw_torch", "adamw_torch_fused", "sgd", "sgd_momentum",
                                                              "adamw_torch_forloop"]),
                    rng.choice([1, 2, 3, 4, 8]), 0 if task == "imgcls" else seq, task, "mask" if padded else "none"))
    return out


ADAPTED = ("smollm2-135m", "qwen2.5-0.5b", "llama-3.2-1b", "tinyllama-1.1b", "gpt2", "opt-125m", "pythia-160m", "pythia-410m", "qwen3-0.6b", "gemma2-2b",
           "mistral-7b", "qwen2.5-1.5b", "phi3-mini")
OF_LOOPS = ("adamw_torch_forloop", "sgd_momentum")         # no names of Trainer's
OPTIMIZERS = ["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adamw_8bit", "paged_adamw_8bit", "adamw_bnb_8bit", "paged_adamw_32bit",
              "lion_8bit", "rmsprop", "adagrad", "adafactor", "sgd"]


QUANTISED = ("llama", "qwen2", "mistral")
ALL_QUANTISED = QUANTISED + ("qwen3", "gemma2", "phi3", "gemma")


def drawn_with_adapters(n, seed, models, wide=False):
    """wide: more families' weights quantised, more targets."""
    quantised = ALL_QUANTISED if wide else QUANTISED
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or ADAPTED)
        c = dict(NAMED, **MODELS)[name]
        adapters = rng.choice(["none", "all-linear", "all-linear"] if c["model_type"] in ("gpt2", "gpt_neox", "phi3")
                              else ["none", "all-linear", "q_proj+v_proj"])
        if wide and adapters == "all-linear" and rng.random() < 0.5:
            adapters = {"gpt2": "c_attn", "qwen2": "q_proj+k_proj+v_proj+o_proj", "mistral": "q_proj+k_proj+v_proj+o_proj"}.get(c["model_type"], adapters)
        load = rng.choice(["none", "nf4", "nf4-dq"]) if adapters == "all-linear" and c["model_type"] in quantised else "none"
        precision = rng.choice(["bf16", "bf16-amp"] if load != "none" else ["fp32", "bf16-mixed", "bf16", "bf16-amp"])
        row = (name, c, precision, rng.choice(["sdpa:flash", "sdpa:flash", "eager"]) if load == "none" else "sdpa:flash",
               "full" if load != "none" else rng.choice(["none", "full"]), rng.choice(OPTIMIZERS), rng.choice([1, 2, 4, 8]),
               rng.choice([64, 128, 250, 256, 512, 777, 1000, 1024]), "clm", "none", rng.choice(["torch", "hf"]), adapters,
               rng.choice([4, 8, 16, 32]) if adapters != "none" else 0, load)
        if row[5] not in ("adamw_torch", "adamw_torch_fused", "sgd") and row[10] == "torch":
            continue
        out.append(row)
    return out


def drawn_by_trl(n, seed, models, adapted):
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models)
        c = dict(NAMED, **MODELS)[name]
        adapters = rng.choice(["none", "none", "all-linear", "q_proj+v_proj"]) if adapted else "none"
        load = rng.choice(["none", "nf4", "nf4-dq"]) if adapters == "all-linear" else "none"
        padded = adapted and rng.random() < 0.3
        seq = rng.choice([s for s in LENGTHS if s % 8 == 0 or not padded])
        out.append((name, c, "bf16-amp" if load != "none" else rng.choice(["bf16-mixed", "bf16-mixed", "bf16-amp"]), "sdpa:flash",
                    rng.choice(["none", "full", "full"]), rng.choice(OPTIMIZERS), rng.choice([1, 2, 3, 4, 8]), seq, "clm",
                    "mask" if padded else "none", "trl", adapters, rng.choice([4, 8, 16, 32]) if adapters != "none" else 0, load))
    return out


def drawn_by_grpo(n, seed, models):
    """By TRL's GRPOTrainer: completions of all lengths behind prompts."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models)
        lora = rng.choice(["none", "all-linear", "all-linear", "q_proj+v_proj"])
        load = rng.choice(["none", "nf4-dq"]) if lora == "all-linear" else "none"
        drops = int(lora != "none" and rng.random() < 0.4)
        seq = rng.choice([s for s in LENGTHS if s >= 100])
        out.append((name, dict(NAMED, **MODELS)[name], "bf16-amp" if load != "none" else rng.choice(["bf16-mixed", "bf16-amp"]), "sdpa:flash", rng.choice(["none", "full", "full"]),
                    rng.choice(["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adamw_8bit", "paged_adamw_8bit"]), rng.choice([2, 4, 6, 8, 16]), seq, "clm", "mask", "grpo", lora,
                    rng.choice([8, 16, 32]) if lora != "none" else 0, load, 0, "none", 0, 0, drops, "none", 0, 0, "none", "", "", rng.choice([seq // 4, seq // 2, seq * 3 // 4, seq - 20]),
                    int(lora == "none" and rng.random() < 0.5)))
    return out


FEATURES = ("packed", "packed", "int8", "dora", "masked")


def drawn_features(n, seed, models):
    """Adapters and TRL's steps in their rarer forms: packed samples, 8-bit weights, DoRA, masks over quantised weights."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or ("llama-3.2-1b", "smollm2-135m", "smollm2-360m", "qwen2.5-0.5b", "qwen2.5-1.5b", "llama-3.1-8b", "qwen2-7b"))
        c, feature = MODELS[name], rng.choice(FEATURES)
        trainer = {"packed": "trl", "masked": "trl", "int8": rng.choice(["torch", "hf"]), "dora": rng.choice(["torch", "hf"])}[feature]
        load = {"packed": rng.choice(["none", "none", "nf4", "nf4-dq"]), "masked": rng.choice(["nf4", "nf4-dq"]), "int8": "int8", "dora": "none"}[feature]
        adapters = "none" if feature == "packed" and load == "none" and rng.random() < 0.7 else "all-linear"
        precision = "bf16-amp" if load != "none" else "bf16-mixed" if feature == "packed" else rng.choice(["bf16", "bf16-amp", "bf16-mixed"])
        if load == "int8" and rng.random() < 0.4:
            precision = "fp16-amp"
        attention = rng.choice(["flash_attention_2", "sdpa:flash"]) if feature == "packed" else "sdpa:flash"
        optimizer = rng.choice(["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "paged_adamw_8bit", "adamw_8bit"])
        if trainer == "torch" and "8bit" in optimizer:
            continue
        recompute = rng.choice(["none", "full"]) if feature == "dora" else "full"
        out.append((name, c, precision, attention, recompute, optimizer, rng.choice([1, 2, 3, 4] if feature == "packed" else [2, 3, 4, 8]),
                    rng.choice([128, 256, 512, 768, 1000, 1024]), "clm", "mask" if feature == "masked" else "none", trainer, adapters,
                    rng.choice([4, 8, 16, 32]) if adapters != "none" else 0, load, 0, "none", rng.choice([1, 2, 3, 5, 9]) if feature == "packed" else 0,
                    int(feature == "dora")))
    return out


def drawn_with_dropout(n, seed, models):
    """Steps as published scripts have them: dropout in adapters, flash-attn 2, or both."""
    rng = random.Random(seed)
    out = []
    for r in drawn_with_adapters(40 * n, seed, models, wide=True):
        dropout, flash = int(r[11] != "none" and rng.random() < 0.7), rng.random() < 0.5
        if (dropout or flash) and not (flash and r[2] == "fp32") and len(out) < n:
            out.append(r[:3] + ("flash_attention_2" if flash else r[3],) + r[4:] + (0, "none", 0, 0, dropout))
    return out


def drawn_narrow(n, seed, models):
    """Adapters over weights of 8 and of 4 bits, and DoRA, by all families that have them, with and without checkpoints."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or ("llama-3.2-1b", "smollm2-360m", "llama-3.1-8b", "qwen2.5-0.5b", "qwen2.5-1.5b", "mistral-7b", "qwen3-0.6b", "qwen3-4b",
                                     "gemma2-2b", "phi3-mini"))
        c, load = MODELS[name], rng.choice(["int8", "int8", "none", "none", "nf4", "nf4-dq"])
        dora = int(load == "none" or load != "int8" and rng.random() < 0.5)
        precision = rng.choice(["bf16-amp", "bf16-amp", "fp16-amp", "bf16"] if load == "int8" else ["bf16-amp", "bf16", "bf16-mixed"] if load == "none" else ["bf16-amp"])
        adapters = "all-linear" if c["model_type"] == "phi3" else rng.choice(["all-linear", "all-linear", "q_proj+v_proj"])
        trainer = rng.choice(["torch", "hf", "hf"])
        optimizer = rng.choice(["adamw_torch_fused", "adamw_torch", "paged_adamw_8bit", "adamw_8bit"] if trainer == "hf" else ["adamw_torch_fused", "adamw_torch"])
        out.append((name, c, precision, "sdpa:flash", rng.choice(["none", "full"]), optimizer, rng.choice([2, 3, 4, 8]),
                    rng.choice([64, 128, 250, 256, 500, 512, 1000, 1024]), "clm", "none", trainer, adapters, rng.choice([4, 8, 16, 32]), load, 0, "none", 0, dora,
                    int(rng.random() < 0.4)))
    return out


PREPARED = ("llama-3.2-1b", "smollm2-360m", "tinyllama-1.1b", "llama-3.2-3b", "qwen2.5-0.5b", "qwen2.5-1.5b", "mistral-7b", "qwen3-0.6b", "qwen3-4b", "gemma2-2b", "phi3-mini")


def drawn_prepared(n, seed, models):
    """Adapters over 4 bits the other way round: by Trainer or a plain loop where nothing prepares the model, by TRL's SFTTrainer where peft does."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or PREPARED)
        c, trainer = dict(NAMED, **MODELS)[name], rng.choice(["torch", "hf", "hf", "trl", "trl"])
        adapters = rng.choice(["all-linear", "all-linear", "q_proj+v_proj", "q_proj+k_proj+v_proj+o_proj"] if c["model_type"] != "phi3" else ["all-linear"])
        optimizer = rng.choice(["adamw_torch_fused", "adamw_torch", "paged_adamw_8bit", "adamw_8bit", "paged_adamw_32bit"] if trainer != "torch" else ["adamw_torch_fused", "adamw_torch"])
        out.append((name, c, rng.choice(["bf16-amp", "bf16-amp", "fp16-amp"]) if trainer == "hf" else "bf16-amp", "sdpa:flash", "full" if trainer == "trl" else rng.choice(["none", "full"]), optimizer,
                    rng.choice([2, 2, 3, 4, 8]), rng.choice([64, 128, 256, 512, 1000, 1024, 2048]), "clm", rng.choice(["none", "none", "mask"]), trainer, adapters, rng.choice([8, 16, 32, 64]),
                    rng.choice(["nf4", "nf4-dq", "nf4-dq"]), 0, "none", 0, 0, int(rng.random() < 0.5), "none", 0, 0, "none", "", "on" if trainer == "trl" else "off"))
    return out


def drawn_beside(n, seed, models):
    """Adapters with what is trained beside them: whole copies of the table and of the head, or some tokens of the table."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or ("llama-3.2-1b", "smollm2-360m", "llama-3.2-3b", "qwen2.5-0.5b", "qwen2.5-1.5b", "tinyllama-1.1b", "mistral-7b", "llama-3.1-8b"))
        c, trainer = MODELS[name], rng.choice(["torch", "hf", "trl", "trl"])
        load = rng.choice(["none", "none", "nf4", "nf4-dq"])
        save = rng.choice(["embed_tokens", "lm_head", "embed_tokens+lm_head", "embed_tokens+lm_head", "none"])
        tokens = rng.choice([1, 4, 17, 64, 300]) if save == "none" else 0
        recompute = "full" if load != "none" or trainer == "trl" else rng.choice(["none", "full"])
        precision = "bf16-amp" if load != "none" or tokens else rng.choice(["bf16-amp", "bf16-mixed"])
        optimizer = rng.choice(OPTIMIZERS if trainer != "torch" else OPTIMIZERS[:3])
        if trainer == "trl" and tokens and c["tie_word_embeddings"]:         # which fails in TRL's head
            continue
        out.append((name, c, precision, "sdpa:flash", recompute, optimizer, rng.choice([2, 3, 4, 8]), rng.choice([128, 256, 512, 768, 1000, 1024]),
                    "clm", "none", trainer, "all-linear", rng.choice([4, 8, 16, 32]), load, 0, "none", 0, 0, 0, save, tokens))
    return out


def drawn_checkpoints(n, seed, models):
    """Gradient checkpointing otherwise than of every layer: of each few the first, or with what is kept in host memory."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or ("llama-3.2-1b", "smollm2-360m", "llama-3.1-8b", "qwen2.5-0.5b", "qwen2.5-1.5b", "tinyllama-1.1b", "mistral-7b"))
        c, lora = MODELS[name], rng.choice(["none", "all-linear"])
        offload, load = rng.choice([0, 1]), rng.choice(["none", "nf4-dq"]) if lora != "none" else "none"
        precision = "bf16-amp" if lora != "none" else rng.choice(["bf16-mixed", "bf16"])
        out.append((name, c, precision, "sdpa:flash", "full" if offload else "every:2", rng.choice(OPTIMIZERS[:3]), rng.choice([2, 3, 4, 8]),
                    rng.choice([128, 256, 512, 768, 1000, 1024]), "clm", "none", rng.choice(["torch", "hf"]), lora, 16 if lora != "none" else 0, load,
                    0, "none", 0, 0, 0, "none", 0, offload))
    return out


def drawn_parted(n, seed, models):
    """Checkpoints of the first layers alone, of all numbers of them."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or ("llama-3.2-1b", "smollm2-360m", "llama-3.1-8b", "qwen2.5-0.5b", "qwen2.5-1.5b", "tinyllama-1.1b", "mistral-7b", "qwen3-0.6b",
                                     "gemma2-2b", "phi3-mini", "gpt2", "gpt2-medium"))
        c, lora = dict(NAMED, **MODELS)[name], rng.choice(["none", "none", "all-linear"])
        layers, load = c.get("num_hidden_layers") or c["n_layer"], rng.choice(["none", "nf4-dq"]) if lora != "none" else "none"
        precision = "bf16-amp" if lora != "none" else rng.choice(["bf16-mixed", "bf16"])
        first = rng.choice([2, layers // 2, layers - 2, rng.randrange(2, layers - 1)])
        out.append((name, c, precision, "sdpa:flash", "first:%d" % first, rng.choice(OPTIMIZERS[:3]), rng.choice([2, 3, 4, 8]),
                    rng.choice([128, 256, 512, 768, 1000, 1024]), "clm", "none", rng.choice(["torch", "hf"]), lora, 16 if lora != "none" else 0, load))
    return out


REENTRANT = ("llama-3.2-1b", "smollm2-360m", "llama-3.1-8b", "tinyllama-1.1b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2-7b", "mistral-7b", "qwen3-0.6b", "gemma2-2b", "phi3-mini", "gpt2",
             "gpt2-medium")


def drawn_reentrant(n, seed, models):
    """Checkpoints by use_reentrant=True: whole models, LoRA and adapters over NF4, by a plain loop, Trainer and TRL."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name, lora = rng.choice(models or REENTRANT), rng.choice(["none", "none", "all-linear", "all-linear", "q_proj+v_proj"])
        c, load = dict(NAMED, **MODELS)[name], rng.choice(["none", "nf4", "nf4-dq"]) if lora == "all-linear" else "none"
        if lora == "q_proj+v_proj" and c["model_type"] in ("gpt2", "phi3"):
            continue
        precision = rng.choice(["bf16-mixed", "bf16-amp"]) if lora == "none" else "bf16-amp"
        out.append((name, c, precision, "sdpa:flash", "full:reentrant", rng.choice(OPTIMIZERS[:3]), rng.choice([2, 3, 4, 8]), rng.choice([128, 250, 256, 512, 777, 1000, 1024]), "clm",
                    "none", rng.choice(["torch", "hf", "trl"]), lora, rng.choice([4, 8, 16, 32]) if lora != "none" else 0, load))
    return out


PEFT = ("llama-3.2-1b", "smollm2-135m", "smollm2-360m", "tinyllama-1.1b", "llama-2-7b", "llama-3.1-8b", "mistral-7b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2-7b",
        "qwen3-0.6b", "gpt2", "gpt2-medium", "gemma2-2b", "phi3-mini")


def drawn_by_peft(n, seed, models):
    """Methods of peft other than LoRA."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or PEFT)
        c, method, trainer = dict(NAMED, **MODELS)[name], rng.choice(("ia3", "prompt", "prefix")), rng.choice(["torch", "hf", "hf"])
        tokens = rng.choice([2, 8, 10, 16, 20, 20, 30, 50, 100]) if method != "ia3" else 0
        padded = rng.random() < 0.3
        most = min(c.get(k, 1 << 20) for k in ("max_position_embeddings", "n_positions"))
        seq = rng.choice([s for s in LENGTHS if s + tokens <= most and s + tokens < (c.get("sliding_window") or 1 << 20)])
        attention, recompute = rng.choice(["sdpa:flash", "sdpa:flash", "sdpa:flash", "eager"] if c["model_type"] in ("llama", "gpt2") else ["sdpa:flash"]), rng.choice(["none", "full"])
        recompute = "none" if method == "prefix" else recompute         # which peft refuses
        if method == "ia3" and c["model_type"] == "phi3" or attention == "eager" and padded:         # of which peft has no targets; which was not recorded
            continue
        out.append((name, c, rng.choice(["fp32", "bf16-mixed", "bf16", "bf16-amp"]), attention, recompute, rng.choice(OPTIMIZERS if trainer == "hf" else OPTIMIZERS[:3]),
                    rng.choice([1, 2, 3, 4, 8]), seq, "clm", "mask" if padded else "none", trainer, method, 0, "none", 0, "none", 0, 0, 0, "none", tokens))
    return out


def drawn_again(n, seed, models, windowed):
    """Adapters as most ask for them, of models named; windowed: over sequences as long as the attention window or longer."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models)
        c, trainer = dict(NAMED, **MODELS)[name], rng.choice(["hf", "hf", "trl"])
        load, lora = rng.choice(["none", "nf4", "nf4-dq"]), rng.choice(["all-linear", "all-linear", "q_proj+v_proj"])
        lora = "none" if load == "none" and trainer == "trl" and rng.random() < 0.3 else lora
        window = -(-c.get("sliding_window", 0) // 8) * 8 if windowed else 0
        lengths = [window, window + 8, window * 5 // 4, window * 3 // 2, 2 * window] if windowed else LENGTHS
        out.append((name, c, "bf16-amp" if load != "none" else rng.choice(["bf16-amp", "bf16-mixed"]), "sdpa:flash",
                    "full" if trainer == "trl" else rng.choice(["none", "full", "full"]), rng.choice(OPTIMIZERS), rng.choice([1, 2, 3, 4, 8]),
                    rng.choice([s for s in lengths if s <= c.get("max_position_embeddings", 2048)]), "clm", "none", trainer, lora,
                    rng.choice([4, 8, 16, 32]) if lora != "none" else 0, load))
    return out


def drawn_commonly(n, seed, models):
    """What most ask of a decoder: whole, LoRA or NF4, by Trainer or SFTTrainer, with padding or without, below its attention window and beyond."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models)
        c = dict(NAMED, **MODELS)[name]
        texts = c.get("text_config", c)
        window = texts.get("sliding_window") or 0
        lora, load = rng.choice([("none", "none"), ("all-linear", "none"), ("all-linear", "none"), ("all-linear", "nf4-dq"), ("all-linear", "nf4-dq")])
        lengths = [256, 512, 640, 1024, 1536] + [-(-window // 8) * 8, -(-window * 5 // 32) * 8] * (0 < window <= 8192)
        out.append((name, c, "bf16-amp" if load != "none" else rng.choice(["bf16-amp", "bf16-mixed", "bf16"]), "sdpa:flash", rng.choice(["none", "full"]),
                    rng.choice(["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "paged_adamw_8bit"]), rng.choice([2, 2, 3, 4, 8]),
                    rng.choice([s for s in lengths if s <= texts.get("max_position_embeddings", 1 << 20)]), "clm", rng.choice(["mask", "none"]), rng.choice(["hf", "trl"]), lora,
                    rng.choice([8, 16, 32]) if lora != "none" else 0, load))
    return out


def drawn_asked(n, seed, models):
    """Steps as tutorials and model cards have them: whole, by LoRA or over NF4, with dropout and padding or packing, by Trainer or TRL, DPO."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models)
        c, trainer = dict(NAMED, **MODELS)[name], rng.choice(["hf", "hf", "trl", "trl", "trl", "dpo"])
        load, packing = rng.choice(["none", "none", "nf4-dq"]), rng.choice([1, 2, 4, 7]) if trainer == "trl" and rng.random() < 0.4 else 0
        lora = rng.choice(["all-linear"] * 3 + ["q_proj+v_proj", "q_proj+k_proj+v_proj+o_proj"] + ["none"] * 2 * (load == "none"))
        seq = rng.choice([s for s in LENGTHS if s % 8 == 0 and s <= c["max_position_embeddings"]])
        optimizer = rng.choice(["adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "paged_adamw_8bit", "adamw_8bit", "paged_adamw_32bit"])
        out.append((name, c, "bf16-amp" if lora != "none" else rng.choice(["bf16-amp", "bf16-mixed"]),
                    rng.choice(["sdpa:flash", "flash_attention_2"] if packing else ["sdpa:flash"] * 3 + ["flash_attention_2"]), "full", optimizer, rng.choice([2, 2, 3, 4, 8]), seq, "clm",
                    "mask" if trainer == "dpo" or not packing and rng.random() < 0.5 else "none", trainer, lora, rng.choice([8, 16, 32, 64]) if lora != "none" else 0, load, 0, "none",
                    packing, 0, int(lora != "none" and rng.random() < 0.7)))
    return out


def drawn_composed(n, seed, models):
    """Settings of decoders of any kind at once, for those that vplan has put together: --answered VPLAN --unless OLDER."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models)
        c, trainer = dict(NAMED, **MODELS)[name], rng.choice(["torch", "hf", "hf", "trl", "trl", "trl", "dpo"])
        load, attention = rng.choice(["none", "none", "nf4-dq"]), rng.choice(["sdpa:flash", "eager", "eager", "flash_attention_2"])
        lora = rng.choice(["all-linear"] * 3 + ["q_proj+v_proj"] * (c["model_type"] not in ("gpt2", "gpt_neox", "phi3", "falcon")) + ["none"] * 2 * (load == "none"))
        seq = rng.choice([s for s in LENGTHS if s % 8 == 0 and s <= c.get("max_position_embeddings", c.get("n_positions", 1024))])
        precision = rng.choice(["bf16-amp"] if load != "none" else ["bf16-amp", "bf16-mixed"] if trainer in ("trl", "dpo") else ["bf16-amp", "bf16-mixed", "bf16", "fp32"])
        batch = rng.choice([1, 2, 3, 4, 8, 16, 32])
        if attention == "flash_attention_2" and (precision == "fp32" or batch == 1):         # of one sample transformers looks at the positions, which are no numbers here
            continue
        out.append((name, c, precision, attention, rng.choice(["full", "full", "none"]), rng.choice(["adamw_torch_fused", "adamw_torch", "paged_adamw_8bit"] if trainer != "torch" else OPTIMIZERS[:2]),
                    batch, seq, "clm", rng.choice(["mask", "none"]) if trainer != "dpo" else "mask", trainer, lora, rng.choice([8, 16, 64]) if lora != "none" else 0,
                    load, 0, "none", 0, 0, int(lora != "none" and rng.random() < 0.4)))
    return out


CLASSES = ("bert-classes", "bert-large-classes", "roberta-classes", "roberta-large-classes", "distilbert-classes", "vit-base", "vit-large", "t5-small", "t5-base")


def drawn_of_classes(n, seed, models):
    """LoRA of models that are no decoders, as tutorials have it: of classes, where peft trains the head whole beside adapters, and T5."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or CLASSES)
        c, trainer = dict(NAMED, **MODELS)[name], rng.choice(["torch", "hf", "hf"])
        task, kind = task_of(c), c["model_type"]
        few, many = {"distilbert": ("q_lin+v_lin", "q_lin+k_lin+v_lin+out_lin+lin1+lin2"), "vit": ("q_proj+v_proj", "all-linear"),
                     "t5": ("q+v", "q+v"), "bart": ("q_proj+v_proj", "all-linear"), "modernbert": ("all-linear", "all-linear"), "deberta-v2": ("query_proj+value_proj", "all-linear")}.get(kind, ("query+value", "all-linear"))
        padded = task != "imgcls" and rng.random() < 0.6
        seq = 0 if task == "imgcls" else rng.choice([s for s in LENGTHS if s <= 512 and (s % 8 == 0 or not padded and kind != "t5")])
        out.append((name, c, rng.choice(["fp32", "bf16-mixed", "bf16-mixed", "bf16-amp"]), "sdpa:flash", "none",
                    rng.choice(OPTIMIZERS if trainer == "hf" else OPTIMIZERS[:3]), rng.choice([1, 2, 4, 8, 16, 32]), seq, task, "mask" if padded else "none", trainer,
                    rng.choice([few, few, many]), rng.choice([4, 8, 16, 32]), "none", 0, "none", 0, 0, 0))
    return out


JUDGES = tuple(name for name in sorted(NAMED) if task_of(NAMED[name]) == "seqcls" and NAMED[name]["model_type"] in CLASS_OF)


def drawn_judged(n, seed, models):
    """Decoders with a head of classes, of a regression or of a reward: whole, LoRA, QLoRA, by a plain loop, Trainer and TRL's RewardTrainer."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or JUDGES)
        c = NAMED[name]
        trainer = rng.choice(["reward"] if len(c["id2label"]) == 1 and rng.random() < 0.6 else ["torch", "hf", "hf"])
        adapters = rng.choice(["none", "all-linear", "q_proj+v_proj"])
        load = "nf4-dq" if adapters != "none" and rng.random() < 0.3 else "none"
        adapted = rng.choice(["bf16-amp", "bf16-mixed"]) if trainer == "reward" and load == "none" else "bf16-amp"       # TRL's own scripts load fp32
        precision = adapted if adapters != "none" else rng.choice(["bf16-mixed", "bf16-amp"] if trainer != "torch" else ["bf16-mixed", "bf16-amp", "bf16", "fp32"])
        if len(c["id2label"]) == 1 and precision == "bf16":
            continue
        out.append((name, c, precision, "sdpa:flash", rng.choice(["none", "full"]), rng.choice(OPTIMIZERS if trainer != "torch" else OPTIMIZERS[:3]), rng.choice([2, 3, 4, 8]),
                    rng.choice([s for s in LENGTHS if s % 8 == 0]), "seqcls", rng.choice(["none", "mask"]), trainer, adapters,
                    rng.choice([4, 8, 16, 32]) if adapters != "none" else 0, load, 0, "none", 0, 0,
                    int(trainer != "reward" and adapters != "none" and rng.random() < 0.3)))
    return out


FROZEN = ("llama-3.2-1b", "smollm2-135m", "smollm2-360m", "tinyllama-1.1b", "qwen2.5-0.5b", "qwen2.5-1.5b", "gpt2", "gpt2-medium", "bert-base", "bert-classes",
          "roberta-base", "roberta-classes", "distilbert", "distilbert-classes")


def drawn_frozen(n, seed, models):
    """Whole models of which the table, or that and the first layers, are not trained."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or FROZEN)
        c, trainer = dict(NAMED, **MODELS)[name], rng.choice(["torch", "hf", "hf"])
        layers = next(c[k] for k in ("num_hidden_layers", "n_layer", "n_layers") if k in c)
        frozen = rng.choice(["embeddings"] + ["layers:%d" % k for k in (1, 2, layers // 2, layers - 2)])
        most = min(c.get(k, 1 << 20) for k in ("max_position_embeddings", "n_positions")) - 2 * c["model_type"].endswith("roberta")
        padded = rng.random() < 0.3
        seq = rng.choice([s for s in LENGTHS if s <= most and (s % 8 == 0 or not padded)])
        out.append((name, c, rng.choice(["fp32", "bf16-mixed", "bf16-mixed", "bf16"]), "sdpa:flash", rng.choice(["none", "none", "full"]),
                    rng.choice(OPTIMIZERS if trainer == "hf" else OPTIMIZERS[:3]), rng.choice([1, 2, 3, 4, 8]), seq, task_of(c), "mask" if padded else "none", trainer,
                    "none", 0, "none", 0, "none", 0, 0, 0, "none", 0, 0, frozen))
    return out


RARE_OPTIMIZERS = ("ademamix", "ademamix_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit", "rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit",
                   "schedule_free_adamw", "schedule_free_sgd", "stable_adamw", "adafactor", "adafactor", "adagrad", "rmsprop")


def drawn_optimizers(n, seed, models):
    """Trainer's and TRL's steps with optimizers that are asked for more rarely."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or ("smollm2-135m", "qwen2.5-0.5b", "llama-3.2-1b", "gpt2", "opt-125m", "pythia-160m", "qwen3-0.6b", "phi3-mini", "mistral-7b"))
        c, optimizer, lora = MODELS[name], rng.choice(RARE_OPTIMIZERS), rng.choice(["none", "none", "all-linear"])
        precision = rng.choice(["fp32", "bf16-mixed", "bf16-mixed", "bf16-amp", "bf16"])
        if optimizer.startswith("rmsprop_bnb") and lora == "none" and precision in ("bf16", "bf16-amp"):         # which has no kernel
            continue
        out.append((name, c, precision, "sdpa:flash", rng.choice(["none", "full"]), optimizer, rng.choice([2, 3, 4]), rng.choice([64, 128, 256, 512]),
                    "clm", "none", "hf", lora, rng.choice([4, 8, 16, 32]) if lora != "none" else 0, "none"))
    return out


MATRIX_OPTIMIZERS = ("muon", "muon", "apollo_adamw:rank=128,targets=all-linear", "apollo_adamw:rank=256,targets=all-linear", "apollo_adamw:targets=attn+mlp",
                     "apollo_adamw:rank=1,scale_type=tensor,targets=all-linear", "galore_adamw:targets=all-linear", "galore_adamw:rank=256,targets=attn+mlp", "galore_adamw:rank=64,proj_type=reverse_std,targets=mlp",
                     "apollo_adamw:rank=64,proj_type=reverse_std,scale_type=tensor,targets=.*mlp.*")


FUSED_OPTIMIZERS = ("lomo", "lomo", "adalomo", "adalomo", "grokadamw", "grokadamw", "apollo_adamw_layerwise:targets=all-linear", "apollo_adamw_layerwise:rank=256,targets=attn+mlp",
                    "galore_adamw_layerwise:rank=256,targets=attn+mlp")


OF_ADAPTERS = ("galore_adamw:targets=all-linear", "apollo_adamw:rank=8,targets=all-linear", "galore_adafactor:rank=4,targets=all-linear", "apollo_adamw:rank=1,scale_type=tensor,targets=all-linear")
LATER_MATRIX_OPTIMIZERS = ("galore_adamw_8bit:targets=all-linear", "galore_adamw_8bit:rank=64,targets=attn+mlp", "galore_adafactor:targets=all-linear", "galore_adafactor:rank=256,targets=attn+mlp", "galore_adafactor:rank=64,proj_type=reverse_std,targets=mlp")


def drawn_adapted_matrices(n, seed, models):
    """Those of whole models that were counted later, and of adapters."""
    rng = random.Random(seed)
    whole = drawn_matrices(n, seed, models, LATER_MATRIX_OPTIMIZERS)
    return [r[:5] + (rng.choice(OF_ADAPTERS),) + r[6:11] + ("all-linear", rng.choice([4, 8, 16])) + r[13:] if i % 2 else r for i, r in enumerate(whole)]


def drawn_matrices(n, seed, models, optimizers):
    """Optimizers that project matrices or orthogonalise them, or that update in the backward pass or from host memory, of whole models."""
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        name = rng.choice(models or ("smollm2-135m", "qwen2.5-0.5b", "llama-3.2-1b", "opt-125m", "pythia-160m", "qwen3-0.6b", "phi3-mini", "gemma2-2b", "mistral-7b"))
        optimizer = rng.choice(optimizers)
        out.append((name, MODELS[name], rng.choice(["fp32", "bf16-mixed", "bf16-amp", "bf16"]), "sdpa:flash", rng.choice(["none", "full"]), optimizer,
                    rng.choice([2, 3, 4]), rng.choice([64, 128, 256, 512]), "clm", "none", "torch" if optimizer == "muon" else "hf", "none", 0, "none"))
    return out


ALLOCATORS = ("expandable_segments:True",) * 4 + ("max_split_size_mb:64", "max_split_size_mb:512", "roundup_power2_divisions:4", "roundup_power2_divisions:[256:1,512:2,>:8]",
                                               "expandable_segments:True,roundup_power2_divisions:8", "max_split_size_mb:128,roundup_power2_divisions:16")


def drawn_allocators(n, seed, models):
    """Steps with PyTorch's allocator set otherwise."""
    rng = random.Random(seed)
    return [r + (0, "none", 0, 0, 0, "none", 0, 0, "none", rng.choice(ALLOCATORS)) for r in drawn_with_adapters(n, seed, models, wide=True)]


TRAINER_OPTIMIZERS = OPTIMIZERS + ["lion_32bit", "ademamix", "paged_lion_8bit", "rmsprop_bnb_8bit"]


def drawn_widely(n, seed, paths):
    """Of models as their configs are published (paths), every option by chance, each rare one beside others."""
    rng = random.Random(seed)
    configs = {os.path.basename(path)[:-len(".json")].rpartition("__")[2]: json.load(open(path)) for path in paths}
    out = []

    def seldom(share, of, otherwise):
        return rng.choice(of) if rng.random() < share else otherwise
    while len(out) < n:
        name = rng.choice(sorted(configs))
        c = {k: x for k, x in configs[name].items() if k not in ("torch_dtype", "dtype", "transformers_version", "_name_or_path", "use_cache", "auto_map", "label2id", "task_specific_params")}
        if "id2label" in c:
            c["id2label"] = {k: k for k in c["id2label"]}
        task, kind = task_of(c), c["model_type"]
        trainer = rng.choice(["torch", "hf", "hf", "trl", "trl", "dpo"] if task == "clm" else ["torch", "hf", "hf"])
        lora = seldom(0.55, ["all-linear", "all-linear", "q_proj+v_proj", "q_proj+k_proj+v_proj+o_proj"] if kind != "gpt2" else ["all-linear", "c_attn"], "none")
        load = seldom(0.5, ["nf4", "nf4-dq", "nf4-dq", "int8"], "none") if lora != "none" else "none"
        precision = "bf16-amp" if load != "none" else rng.choice(["fp32", "bf16-mixed", "bf16-mixed", "bf16-amp", "bf16", "fp16-mixed"])
        layers = next(c[k] for k in ("num_hidden_layers", "n_layer", "num_layers", "n_layers") if k in c)
        recompute = rng.choice(["none", "full", "full", "every:2", "first:%d" % rng.randrange(2, layers - 1)])
        packing = seldom(0.35, [1, 2, 3, 5], 0) if trainer == "trl" else 0
        padding = "mask" if trainer == "dpo" else seldom(0.35, ["mask"], "none") if not packing and task != "imgcls" else "none"
        attention = seldom(0.35, ["eager", "sdpa:efficient", "flash_attention_2", "sdpa:math"], "sdpa:flash")
        most = min(c.get(k) or 1 << 20 for k in ("max_position_embeddings", "n_positions")) - 2 * kind.endswith("roberta")
        seq = 0 if task == "imgcls" else rng.choice([s for s in LENGTHS if s <= most and (s % 8 == 0 or padding == "none")])
        optimizer = rng.choice(OPTIMIZERS[:3] + ["sgd", "sgd_momentum", "adamw_torch_forloop"] if trainer == "torch" else TRAINER_OPTIMIZERS)
        out.append((name, c, precision, attention, recompute, optimizer, rng.choice([1, 2, 2, 3, 4, 8]), seq, task, padding, trainer, lora,
                    rng.choice([4, 8, 16, 32, 64]) if lora != "none" else 0, load, 0, seldom(0.2, ["all", "loss"], "none") if trainer == "hf" else "none", packing,
                    int(lora != "none" and rng.random() < 0.15), int(lora != "none" and rng.random() < 0.4), seldom(0.15, ["embed_tokens", "lm_head"], "none") if lora != "none" else "none", 0,
                    int(recompute == "full" and rng.random() < 0.15), seldom(0.15, ["embeddings", "layers:%d" % rng.randrange(1, layers)], "none") if lora == "none" else "none",
                    seldom(0.2, ALLOCATORS, "")))
    return out


def by_trainer(rows, seed, evaluates, liger):
    """The rows, by Trainer, with samples at once in an evaluation, and Liger's kernels."""
    rng = random.Random(seed)
    return [r[:10] + ("hf" if r[10] == "torch" else r[10],) + r[11:14] +
            (rng.choice([1, 2, 3, 4, 8]) if evaluates else 0, rng.choice(["all", "all", "loss"]) if liger else "none") + r[16:] for r in rows]


ROWS = [  # model, precision, attention, recompute, optimizer, batch, sequence
    ("llama-1b", LLAMA_1B, "bf16", "sdpa:flash", "none", "adamw_torch", 2, 1536),
    ("llama-1b", LLAMA_1B, "bf16-mixed", "sdpa:flash", "full", "adamw_torch_fused", 3, 1024),
    ("llama-1b", LLAMA_1B, "fp32", "sdpa:flash", "none", "adamw_torch_fused", 2, 768),
    ("llama-1b", LLAMA_1B, "bf16-amp", "eager", "none", "sgd", 1, 1024),
    ("llama-7b", LLAMA_7B, "bf16", "sdpa:flash", "full", "adamw_torch", 4, 2048),
    ("llama-7b", LLAMA_7B, "bf16-mixed", "eager", "none", "adamw_torch_fused", 1, 640),
    ("tiny-1b", TINY, "bf16", "eager", "full", "sgd_momentum", 2, 1024),
    ("tiny-1b", TINY, "fp32", "sdpa:flash", "full", "adamw_torch_forloop", 3, 1024),
    ("smol-135m", SMOL, "bf16-mixed", "sdpa:flash", "none", "adamw_torch", 8, 1000),
    ("smol-135m", SMOL, "bf16", "sdpa:flash", "none", "adamw_torch_fused", 4, 512),
    ("qwen-0.5b", QWEN, "bf16-mixed", "sdpa:flash", "none", "adamw_torch", 4, 1024),
    ("qwen-0.5b", QWEN, "bf16", "sdpa:flash", "full", "adamw_torch_fused", 8, 2048),
    ("qwen-0.5b", QWEN, "fp32", "sdpa:flash", "full", "sgd", 2, 512),
    ("mistral-7b", MISTRAL, "bf16", "sdpa:flash", "none", "adamw_torch_fused", 1, 2048),
    ("mistral-7b", MISTRAL, "bf16-mixed", "sdpa:flash", "full", "adamw_torch", 2, 4096),
    ("gpt2", GPT2, "bf16-mixed", "sdpa:flash", "none", "adamw_torch", 8, 1024),
    ("gpt2", GPT2, "fp32", "eager", "full", "adamw_torch_fused", 4, 512),
    ("gpt2", GPT2, "bf16", "sdpa:flash", "full", "sgd_momentum", 3, 1000),
    ("gpt2-large", GPT2_L, "bf16", "sdpa:flash", "none", "adamw_torch", 2, 1024),
    ("gpt2-large", GPT2_L, "bf16-amp", "eager", "none", "adamw_torch_forloop", 1, 768),
]
RECENT = [  # what was recorded last: adapters of experts too, whole models at and beyond their window, towers beside texts; padding, trainer, adapters, rank, load behind
    ("qwen3-30b-a3b", "bf16-amp", "full", "adamw_torch_fused", 4, 1024, "none", "hf", "all-linear", 16, "none"),
    ("qwen3-30b-a3b", "bf16-amp", "none", "adamw_torch", 2, 2048, "none", "torch", "all-linear", 8, "none"),
    ("qwen3-30b-a3b", "bf16", "full", "adamw_torch_fused", 8, 512, "none", "torch", "q_proj+k_proj+v_proj+o_proj", 16, "none"),
    ("mixtral-8x7b", "bf16-amp", "full", "paged_adamw_8bit", 4, 1024, "none", "hf", "all-linear", 16, "none"),
    ("mixtral-8x7b", "bf16-mixed", "none", "adamw_torch_fused", 3, 1536, "none", "torch", "all-linear", 4, "none"),
    ("mixtral-8x7b", "bf16-amp", "full", "adamw_torch_fused", 2, 2048, "none", "hf", "q_proj+k_proj+v_proj+o_proj", 8, "none"),
    ("gemma2-2b", "bf16-mixed", "full", "adamw_torch_fused", 2, 4096, "none", "hf", "none", 0, "none"),
    ("gemma2-2b", "bf16", "none", "adamw_torch", 2, 4352, "mask", "torch", "none", 0, "none"),
    ("gemma2-9b", "bf16-amp", "full", "adamw_8bit", 2, 4096, "mask", "hf", "none", 0, "none"),
    ("starcoder2-3b", "bf16-mixed", "none", "adamw_torch_fused", 2, 4096, "none", "hf", "none", 0, "none"),
    ("starcoder2-3b", "bf16-amp", "full", "adamw_torch_fused", 2, 5120, "none", "hf", "all-linear", 16, "none"),
    ("mistral-7b-v0.1", "fp32", "full", "adamw_torch", 2, 4096, "none", "torch", "none", 0, "none"),
    ("phi3-mini", "bf16-mixed", "full", "adamw_torch_fused", 2, 2048, "mask", "hf", "none", 0, "none"),
    ("mixtral-8x7b", "bf16-amp", "full", "paged_adamw_8bit", 4, 1024, "none", "hf", "all-linear", 8, "nf4-dq"),
    ("qwen3-30b-a3b", "bf16-amp", "full", "adamw_torch_fused", 4, 1024, "none", "hf", "q_proj+k_proj+v_proj+o_proj", 16, "nf4"),
    ("qwen3-30b-a3b", "bf16-amp", "full", "adamw_torch_fused", 8, 768, "none", "hf", "all-linear", 16, "nf4-dq"),
    ("starcoder2-3b", "bf16-amp", "full", "paged_adamw_8bit", 2, 4096, "none", "hf", "all-linear", 16, "nf4-dq"),
    ("gemma-3-4b", "bf16-amp", "full", "adamw_torch_fused", 8, 512, "none", "hf", "all-linear", 16, "nf4-dq"),
    ("gemma-3-4b", "bf16-amp", "full", "paged_adamw_8bit", 2, 2048, "none", "hf", "all-linear", 8, "nf4-dq"),
    ("gemma-3-4b", "bf16-mixed", "none", "adamw_torch", 1, 512, "none", "torch", "none", 0, "none"),
    ("gemma-3-27b", "bf16-amp", "full", "adamw_torch_fused", 4, 640, "none", "hf", "all-linear", 32, "nf4-dq"),
    ("gemma-3-4b", "bf16-amp", "full", "adamw_torch_fused", 4, 1536, "none", "trl", "all-linear", 16, "nf4-dq"),
    ("gemma-3-12b", "bf16-amp", "full", "adamw_torch_fused", 2, 1536, "none", "hf", "all-linear", 16, "nf4-dq"),
    ("gemma-3-4b", "bf16-amp", "full", "adamw_torch_fused", 3, 2048, "none", "hf", "all-linear", 8, "none"),
    ("falcon-7b", "bf16-amp", "none", "adamw_torch_fused", 2, 1024, "none", "hf", "query_key_value", 16, "none"),
    ("falcon-7b", "bf16-mixed", "full", "adamw_8bit", 3, 768, "none", "trl", "query_key_value", 8, "none"),
    ("phi-2", "bf16-mixed", "full", "adamw_torch_fused", 4, 1024, "none", "trl", "q_proj+v_proj+fc1+fc2", 16, "none"),
    ("gpt2", "bf16-mixed", "none", "adamw_torch_fused", 4, 512, "none", "trl", "c_attn", 16, "none"),
    ("qwen1.5-0.5b", "bf16-mixed", "none", "adamw_torch_fused", 4, 512, "none", "hf", "none", 0, "none"),
    ("smollm2-1.7b", "fp32", "full", "adamw_torch", 2, 768, "none", "torch", "none", 0, "none"),
    ("llama-2-7b", "bf16-amp", "none", "paged_adamw_8bit", 2, 1024, "none", "hf", "all-linear", 16, "nf4-dq"),
    ("phi3-mini", "bf16-amp", "none", "paged_adamw_8bit", 2, 2048, "none", "hf", "all-linear", 16, "nf4-dq"),
    ("gemma-2b", "bf16-amp", "none", "adamw_torch_fused", 2, 1024, "none", "hf", "all-linear", 8, "nf4-dq"),
    ("gemma2-2b", "bf16-amp", "none", "adamw_torch_fused", 2, 4096, "none", "hf", "all-linear", 16, "nf4-dq"),
    ("gemma3-1b", "bf16-amp", "none", "adamw_torch_fused", 3, 1024, "none", "hf", "all-linear", 16, "nf4-dq"),
    ("qwen2.5-0.5b", "bf16-amp", "full", "adamw_torch_fused", 4, 768, "none", "trl", "all-linear", 16, "int8"),
    ("llama-3.2-1b", "bf16-amp", "full", "paged_adamw_8bit", 2, 1024, "none", "trl", "all-linear", 8, "int8"),
    ("opt-350m", "fp32", "none", "adamw_torch", 2, 256, "none", "torch", "none", 0, "none"),
    ("opt-350m", "bf16-mixed", "full", "adamw_torch_fused", 4, 512, "mask", "torch", "none", 0, "none"),
    ("opt-350m", "bf16", "none", "sgd_momentum", 3, 777, "none", "torch", "none", 0, "none"),
    ("opt-350m", "bf16-mixed", "none", "adamw_torch_fused", 8, 512, "none", "hf", "none", 0, "none"),
    ("opt-350m", "bf16-mixed", "full", "adamw_8bit", 4, 1024, "none", "hf", "none", 0, "none"),
    ("opt-350m", "fp32", "full", "adamw_torch", 2, 640, "mask", "hf", "none", 0, "none"),
    ("opt-350m", "bf16-mixed", "none", "adamw_torch_fused", 1, 2048, "none", "hf", "none", 0, "none"),
    ("opt-350m", "bf16-amp", "none", "adamw_torch_fused", 4, 512, "none", "hf", "q_proj+v_proj", 8, "none"),
    ("opt-350m", "bf16-amp", "full", "paged_adamw_8bit", 4, 1024, "mask", "hf", "all-linear", 16, "nf4-dq"),
    ("opt-350m", "bf16-mixed", "full", "adamw_torch_fused", 8, 1024, "none", "trl", "none", 0, "none"),
    ("opt-350m", "bf16-mixed", "none", "adamw_torch_fused", 2, 512, "mask", "trl", "none", 0, "none"),
    ("opt-350m", "bf16-amp", "full", "adamw_torch", 4, 768, "none", "trl", "all-linear", 16, "none"),
    ("opt-350m", "bf16-mixed", "none", "adamw_torch_fused", 2, 1024, "mask", "trl", "q_proj+v_proj", 8, "none"),
    ("opt-350m", "bf16-amp", "full", "paged_adamw_8bit", 8, 512, "none", "trl", "all-linear", 32, "nf4-dq"),
    ("opt-350m", "bf16-amp", "full", "adamw_torch_fused", 4, 1024, "mask", "trl", "all-linear", 16, "nf4"),
]
COLUMNS = ["model", "config", "precision", "attention", "recompute", "optimizer", "micro_batch", "seq", "task", "padding", "trainer", "lora", "rank",
           "load"]
MORE = ["eval_batch", "liger", "packing", "dora", "lora_dropout", "save", "tokens", "offload", "freeze", "alloc_conf", "prepare", "target_seq", "beta", "images", "image_size"]
PHASES = ["load"] + ["%s%d" % (n, i) for i in (1, 2) for n in ("forward", "backward", "step")]


def columns_of(row):
    return (COLUMNS + MORE)[:len(row)]


def phases_of(row):
    return PHASES + ["evaluate"] * bool(dict(zip(columns_of(row), row)).get("eval_batch"))


class Several:
    """Optimizers that are stepped one after the other."""

    def __init__(self, *each):
        self.each = each

    def step(self):
        for one in self.each:
            one.step()

    def zero_grad(self, set_to_none):
        for one in self.each:
            one.zero_grad(set_to_none=set_to_none)


def optim_of(word):
    """TrainingArguments of "NAME:KEY=VALUE,...". Every step renews projections, as each update_proj_gap-th does."""
    name, _, told = word.partition(":")
    told = dict(one.split("=") for one in told.split(",")) if told else {}
    targets = told.pop("targets", None)
    if targets:
        told["update_proj_gap"] = "1"
    return dict({"optim": name}, **({"optim_args": ",".join("%s=%s" % one for one in told.items())} if told else {}),
                **({"optim_target_modules": targets if targets == "all-linear" else targets.split("+")} if targets else {}))


def muon(m, params):
    """As its users have it: matrices of the layers, AdamW of the rest."""
    import torch
    of_layers = {id(p) for name, p in m.named_parameters() if p.ndim == 2 and any(part.isdigit() for part in name.split("."))}
    return Several(torch.optim.Muon([p for p in params if id(p) in of_layers], lr=1e-3, weight_decay=0.1),
                   torch.optim.AdamW([p for p in params if id(p) not in of_layers], lr=1e-4, weight_decay=0.1))


def optimizer(name, params, m):
    import torch
    if name == "muon":
        return muon(m, params)
    adam = {"adamw_torch": {"foreach": True}, "adamw_torch_fused": {"fused": True}, "adamw_torch_forloop": {"foreach": False}}
    if name in adam:
        return torch.optim.AdamW(params, lr=1e-4, weight_decay=0.01, **adam[name])
    if not name.startswith("sgd"):
        raise ValueError("a plain loop has no optimizer %s here" % name)
    return torch.optim.SGD(params, lr=1e-4, momentum=0.9 if name == "sgd_momentum" else 0.0)


def answered(vplan, rows, n, older=None, recorded=False):
    """The first n that vplan has an estimate for, and older has none. recorded: none that is put together counts."""
    import tempfile
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    import estimate_rows
    preload = os.environ.pop("LD_PRELOAD", None)
    out = []
    with tempfile.TemporaryDirectory() as scratch:
        for r in rows:
            columns = dict(zip(columns_of(r) + ["reserved"], [r[0], json.dumps(r[1])] + [str(x) for x in r[2:7]] + [str(r[7] or "")] + [str(x) for x in r[8:]] + ["1"]))
            said = estimate_rows.of_ours(dict(columns, **{"allocated_" + p: 1 for p in phases_of(r)}), scratch)
            knows = estimate_rows.is_recorded if recorded else lambda program, row: not isinstance(estimate_rows.estimate(program, row), str)
            if len(out) < n and knows(vplan, said) and not (older and knows(older, said)):
                out.append(r)
    if preload:
        os.environ["LD_PRELOAD"] = preload
    return out


INTEGERS = ("micro_batch", "rank", "eval_batch", "packing", "dora", "lora_dropout", "tokens", "offload", "target_seq", "beta", "images")


def as_in(path, step):
    """Every so many of another file's rows, to be played with other libraries."""
    with open(path) as f:
        rows = list(csv.DictReader(x for x in f if not x.startswith("#")))
    usual = dict(zip(COLUMNS[8:], ("clm", "none", "torch", "none", 0, "none")))
    usual.update({c: {"liger": "none", "save": "none", "freeze": "none", "alloc_conf": "", "prepare": "", "image_size": ""}.get(c, 0) for c in MORE})
    columns, out = COLUMNS + MORE, []
    for r in rows[::step]:
        r = dict(usual, **r)
        out.append(tuple(json.loads(r[c]) if c == "config" else int(r[c] or 0) if c in INTEGERS + ("seq",) else r[c] for c in columns))
    return out


def seq_of_picture(config, seq):
    """(tokens that the config's picture makes, tokens of a sample)"""
    if "image_size" not in config:
        return seq, seq
    made = (config["image_size"] // config["patch_size"]) ** 2 + (2 if config["model_type"] == "deit" else 1)
    return made, seq or made


def measure(row):
    import torch
    name, config, precision, attention, recompute, opt_name, batch, seq, task, padding, trainer, adapters, rank, load = row[:len(COLUMNS)]
    eval_batch, liger, packing, dora, lora_dropout, save, tokens, offload, frozen, alloc_conf, prepare, completion, beta, images, image_size = row[len(COLUMNS):] + (0, "none", 0, 0, 0, "none", 0, 0, "none", "", "", 0, 0, 0, "")[len(row) - len(COLUMNS):]
    if adapters != "none" and task in ("seqcls", "tokcls", "imgcls"):
        save = "classifier"
    if alloc_conf:
        torch.cuda.memory._set_allocator_settings(alloc_conf)
    torch.backends.cudnn.enabled = False
    play.choose_attention(attention)
    peaks = {}

    def end(phase):
        s = torch.cuda.memory_stats()
        peaks["allocated_" + phase] = s["allocated_bytes.all.peak"]
        peaks["reserved"] = max(peaks.get("reserved", 0), s["reserved_bytes.all.peak"])
        torch.cuda.reset_peak_memory_stats()
    fields = {k: v for k, v in config.items() if k != "model_type"}
    of_picture, seq = seq_of_picture(config, seq)
    v = dict(resized=of_picture != seq, task=task, precision=precision, attention=attention, lora=adapters, recompute=recompute, quantised=load, upcast=load != "none" and (prepare == "on" if prepare else trainer not in play.TRL),
             trainer=trainer, mask=padding == "mask", keep_output=0, r=rank, lora_dropout=lora_dropout, packed=packing, dora=dora,
             save=save, tokens=tokens, x=tokens, offload=offload, freeze=frozen.partition(":")[0], n_frozen=int(frozen.partition(":")[2] or 0),
             beta=beta, images=images, liger=liger if liger != "none" else 0, regression=task == "seqcls" and trainer != "reward" and len(config.get("id2label", "two")) == 1)
    if config["model_type"].startswith("qwen3_5"):
        import linear
        linear.install()
    m = play.make_model(v, (config["model_type"], fields))
    of_dpo = {}
    if trainer in ("dpo", "reward"):
        batch *= 2
    if trainer in ("dpo", "grpo"):
        of_dpo = {"reference": play.make_model(dict(v, recompute="none"), (config["model_type"], fields)) if play.has_reference(v) else None}
    of_dpo.update({"completion": completion} if trainer == "grpo" else {})
    loop = loops.LOOPS[trainer](v, m, batch, **of_dpo, **({} if trainer == "torch" else dict(optim_of(opt_name), per_device_eval_batch_size=eval_batch or 8)))
    gc.collect()
    end("load")
    params = [p for p in m.parameters() if p.requires_grad]
    if opt_name == "stable_adamw":         # whose step is Triton's
        loops.silence_triton()
    opt = loop.trainer.create_optimizer() if trainer != "torch" else optimizer(opt_name, params, m)
    if opt_name in ("lomo", "adalomo"):         # Accelerate runs their backward pass, with the rate of a schedule
        opt = loop.trainer.optimizer = loop.trainer.accelerator.prepare(opt)
        loop.trainer.create_scheduler(10, opt)
    of_batch = dict(B=1, S=batch * seq, o=batch * packing) if packing else dict(B=batch, S=seq, l=completion, I=fields.get("image_size"), p=fields.get("patch_size"))
    if images:
        of_batch = dict(of_batch, im=batch * images, **families.pictures_of(config, image_size))
        loop.library = loops.of_pictures(of_batch)
    if "num_mel_bins" in fields:
        of_batch = dict(B=batch, S=fields["max_source_positions"], D=seq, c=fields["num_mel_bins"])
    play.PACKED[:] = [True] * bool(packing)
    inputs = play.batch(v, of_batch)
    # of sounds holes still grow in the third step: so often as an answer has the second one played, the figures are the last one's
    for step in (1, 2) if "num_mel_bins" not in fields else (1,) + (2,) * 5:
        loop.step(inputs, lambda phase: end("forward%d" % step) if phase == "backward" else None)
        end("backward%d" % step)
        if trainer != "torch":
            loop.trainer.accelerator.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        end("step%d" % step)
        opt.zero_grad(set_to_none=True)
        torch.cuda.reset_peak_memory_stats()
    if eval_batch:
        sample = {"input_ids": [1] * seq, "labels": 1 if task == "seqcls" else [1] * seq}
        if task == "imgcls":
            sample = {"pixel_values": inputs["pixel_values"][0].float().cpu(), "labels": 1}
        if "num_mel_bins" in fields:
            sample = {"input_features": inputs["input_features"][0].float().cpu(), "labels": [1] * seq}
        if padding == "mask":
            sample["attention_mask"] = [1] * (seq - 1) + [0]
        loops.evaluate_all(loop, [sample] * (2 * eval_batch))
        end("evaluate")
    return peaks


def add_played(path, script, columns, wanted, line):
    """Whole runs, each in a child of its own, behind what the file has. One that fails is said and has no line. line(row, got): what stands behind name and config."""
    import torch
    import transformers
    play.quiet()
    torch._C._cuda_getDeviceCount = lambda: 1
    torch.cuda._is_in_bad_fork = lambda: False
    is_new = not os.path.exists(path)
    with open(path, "a", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        if is_new:
            f.write("# made by tests/oracles/programs/%s: torch %s, transformers %s\n" % (script, torch.__version__.split("+")[0], transformers.__version__))
            out.writerow(columns)
        for row in wanted:
            got = play.in_child(lambda row=row: measure(row))
            if "failed" in got:
                sys.stderr.write("%s: %s\n" % (row[:1] + row[2:], got["failed"]))
                continue
            out.writerow([row[0], json.dumps(row[1]), *line(row, got)])
            f.flush()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--null", default="build/null")
    p.add_argument("--random", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--adapters", action="store_true")
    p.add_argument("--trl", action="store_true")
    p.add_argument("--evaluate", action="store_true")
    p.add_argument("--liger", action="store_true")
    p.add_argument("--dpo", action="store_true")
    p.add_argument("--grpo", action="store_true")
    p.add_argument("--features", action="store_true")
    p.add_argument("--dropout", action="store_true")
    p.add_argument("--beside", action="store_true")
    p.add_argument("--checkpoints", action="store_true")
    p.add_argument("--parted", action="store_true")
    p.add_argument("--reentrant", action="store_true")
    p.add_argument("--optimizers", action="store_true")
    p.add_argument("--matrices", action="store_true")
    p.add_argument("--fused", action="store_true")
    p.add_argument("--narrow", action="store_true")
    p.add_argument("--prepared", action="store_true")
    p.add_argument("--peft", action="store_true")
    p.add_argument("--frozen", action="store_true")
    p.add_argument("--allocators", action="store_true")
    p.add_argument("--windowed", action="store_true")
    p.add_argument("--again", action="store_true")
    p.add_argument("--asked", action="store_true")
    p.add_argument("--common", action="store_true")
    p.add_argument("--composed", action="store_true")
    p.add_argument("--classes", action="store_true")
    p.add_argument("--judged", action="store_true")
    p.add_argument("--padded", action="store_true")
    p.add_argument("--recent", action="store_true")
    p.add_argument("--configs", nargs="+")
    p.add_argument("--models", nargs="+")
    p.add_argument("--answered")
    p.add_argument("--unless")
    p.add_argument("--attention")
    p.add_argument("--recompute", help="all rows so")
    p.add_argument("--trainer", help="all rows by this one")
    p.add_argument("--targets")
    p.add_argument("--load", help="all adapters over weights in this format")
    p.add_argument("--only", nargs="*")
    p.add_argument("--like")
    p.add_argument("--every", type=int, default=1)
    a = p.parse_args()
    play.prepare(os.path.abspath(a.null), processors=132, **({"total_bytes": 1 << 40} if a.allocators or a.configs else {}))
    import torch
    import transformers
    play.quiet()
    torch._C._cuda_getDeviceCount = lambda: 1
    n = a.random * (40 if a.answered else 1)
    if a.like:
        rows = as_in(a.like, a.every)
    elif a.recent:
        rows = [(name, dict(NAMED, **MODELS)[name], precision, "sdpa:flash", recompute, opt, batch, seq, "clm", padding, trainer, lora, rank, load)
                for name, precision, recompute, opt, batch, seq, padding, trainer, lora, rank, load in RECENT]
    elif a.peft:
        rows = drawn_by_peft(n, a.seed, a.models)
    elif a.windowed or a.again:
        rows = drawn_again(n, a.seed, a.models, a.windowed)
    elif a.common:
        rows = drawn_commonly(n, a.seed, a.models)
    elif a.asked:
        rows = drawn_asked(n, a.seed, a.models)
    elif a.composed:
        rows = drawn_composed(n, a.seed, a.models)
    elif a.classes:
        rows = drawn_of_classes(n, a.seed, a.models)
    elif a.judged:
        rows = drawn_judged(n, a.seed, a.models)
    elif a.frozen:
        rows = drawn_frozen(n, a.seed, a.models)
    elif a.allocators:
        rows = drawn_allocators(n, a.seed, a.models)
    elif a.optimizers:
        rows = drawn_optimizers(n, a.seed, a.models)
    elif a.matrices and a.adapters:
        rows = drawn_adapted_matrices(n, a.seed, a.models)
    elif a.matrices:
        rows = drawn_matrices(n, a.seed, a.models, MATRIX_OPTIMIZERS)
    elif a.fused:
        rows = drawn_matrices(n, a.seed, a.models, FUSED_OPTIMIZERS)
    elif a.narrow:
        rows = drawn_narrow(n, a.seed, a.models)
    elif a.configs:
        rows = drawn_widely(n, a.seed, a.configs)
    elif a.prepared:
        rows = drawn_prepared(n, a.seed, a.models)
    elif a.checkpoints:
        rows = drawn_checkpoints(n, a.seed, a.models)
    elif a.reentrant:
        rows = drawn_reentrant(n, a.seed, a.models)
    elif a.parted:
        rows = drawn_parted(n, a.seed, a.models)
    elif a.beside:
        rows = drawn_beside(n, a.seed, a.models)
    elif a.features:
        rows = drawn_features(n, a.seed, a.models)
    elif a.dropout:
        rows = drawn_with_dropout(n, a.seed, a.models)
    elif a.grpo:
        rows = drawn_by_grpo(n, a.seed, a.models)
    elif a.trl or a.dpo:
        rows = drawn_by_trl(n, a.seed, a.models, a.adapters)
        rows = [r[:9] + ("mask", "dpo") + r[11:] if a.dpo else r for r in rows]
    elif a.adapters:
        rows = drawn_with_adapters(n, a.seed, a.models, bool(a.answered))
    else:
        rows = drawn(n, a.seed, a.models) if a.random else [r + ("clm", "none") for r in ROWS]
    rows = [r + ("torch", "none", 0, "none") * (len(r) == 10) for r in rows]
    rows = by_trainer(rows, a.seed, a.evaluate, a.liger) if a.evaluate or a.liger else rows
    rows = [r[:3] + (a.attention,) + r[4:] for r in rows] if a.attention else rows
    rows = [r[:4] + (a.recompute,) + r[5:] for r in rows] if a.recompute else rows
    rows = [r[:7] + (-(-r[7] // 8) * 8, r[8], "mask") + r[10:] for r in rows] if a.padded else rows
    at = COLUMNS.index("trainer")
    rows = [r[:at] + (a.trainer,) + r[at + 1:] for r in rows if a.trainer == "torch" or r[5] not in OF_LOOPS] if a.trainer else rows
    if a.targets:
        at = COLUMNS.index("lora")
        rows = [r[:at] + (a.targets,) + r[at + 1:] for r in rows if r[at] != "none"]
    if a.load:
        at, load = COLUMNS.index("lora"), COLUMNS.index("load")
        rows = [r[:2] + ("bf16-amp",) + r[3:load] + (a.load,) + r[load + 1:] for r in rows if r[at] != "none"]
    for column, value in [x.split("=", 1) for x in a.only or []]:
        rows = [r for r in rows if str(r[(COLUMNS + MORE).index(column)]) in value.split(",")]
    rows = answered(a.answered, rows, a.random, a.unless, a.common) if a.answered else rows
    played_with = ["torch=%s,transformers=%s" % (torch.__version__.split("+")[0], transformers.__version__)] * bool(a.like)
    done = sum(not x.startswith("#") for x in open(a.out)) - 1 if (a.random or a.like or a.recent) and os.path.exists(a.out) else 0
    with open(a.out, "a" if done > 0 else "w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        if done <= 0:
            f.write("# made by tests/oracles/programs/rows.py: torch %s, transformers %s%s\n"
                    % (torch.__version__.split("+")[0], transformers.__version__, "; addresses fall" * (os.environ["VPLAN_NULL_ADDRESSES"] == "falling")))
            out.writerow((COLUMNS + MORE + ["versions"] if a.like else columns_of(rows[0])) + ["reserved"] + ["allocated_" + p for p in phases_of(rows[0])])
        for row in rows[max(done, 0):]:
            got = play.in_child(lambda: measure(row))
            if "failed" in got:
                sys.stderr.write("%s: %s\n" % (row[0], got["failed"]))       # its line says 0: take it out by hand
                got = {"reserved": 0, **{"allocated_" + p: 0 for p in phases_of(row)}}
            out.writerow([row[0], json.dumps(row[1]), *row[2:7], row[7] or "", *row[8:], *played_with, got["reserved"]] + [got["allocated_" + p] for p in phases_of(row)])
            f.flush()


if __name__ == "__main__":
    main()
