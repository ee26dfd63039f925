/* models/zoo/zoo_llama.c: Llama 2 and 3.x (Touvron et al. 2023, arXiv:2307.09288; Grattafiori et al. 2024, arXiv:2407.21783), models
 * that are Llamas in their config.json, and vplan's own small one. The first files of Llama 2 say 2048
 * positions, later ones 4096. */
#include "models/zoo/zoo_internal.h"

const vp_zoo_entry vp_zoo_llama[] = {
    {"llama-2-7b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "meta-llama/Llama-2-7b-hf", "config.json, positions as corrected"},
    {"llama-2-13b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 40, "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "meta-llama/Llama-2-13b-hf", "config.json, positions as corrected"},
    {"llama-2-70b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "meta-llama/Llama-2-70b-hf", "config.json, positions as corrected"},
    {"llama-3-8b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": null, "attention_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false}),
     "meta-llama/Meta-Llama-3-8B", "sizes as in LitGPT's config.py"},
    {"llama-3-70b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": null, "attention_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false}),
     "meta-llama/Meta-Llama-3-70B", "sizes as in LitGPT's config.py"},
    {"llama-3.1-8b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false}),
     "meta-llama/Llama-3.1-8B", "config.json"},
    {"llama-3.1-70b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false}),
     "meta-llama/Llama-3.1-70B", "config.json"},
    {"llama-3.1-405b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
        "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false}),
     "meta-llama/Llama-3.1-405B", "config.json"},
    {"llama-3.2-1b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "max_position_embeddings": 131072,
        "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "attention_bias": false, "mlp_bias": false,
        "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": true}),
     "meta-llama/Llama-3.2-1B", "config.json"},
    {"llama-3.2-3b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
        "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 131072,
        "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "attention_bias": false, "mlp_bias": false,
        "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": true}),
     "meta-llama/Llama-3.2-3B", "config.json"},
    {"llama-3.3-70b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false}),
     "meta-llama/Llama-3.3-70B-Instruct", "model card: the architecture of Llama 3.1 70B"},
    {"tinyllama-1.1b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "rope_scaling": null, "attention_bias": false, "initializer_range": 0.02,
        "tie_word_embeddings": false}),
     "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "config.json"},
    {"smollm2-135m", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 100000, "rope_scaling": null, "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.041666666666666664, "tie_word_embeddings": true, "pad_token_id": 2}),
     "HuggingFaceTB/SmolLM2-135M", "config.json of -Instruct"},
    {"smollm2-360m", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32,
        "num_attention_heads": 15, "num_key_value_heads": 5, "vocab_size": 49152, "max_position_embeddings": 8192, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 100000, "rope_scaling": null, "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": true, "pad_token_id": 2}),
     "HuggingFaceTB/SmolLM2-360M", "config.json of -Instruct"},
    {"smollm2-1.7b", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 49152, "max_position_embeddings": 8192, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "rope_theta": 130000, "rope_scaling": null, "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": true, "pad_token_id": 2}),
     "HuggingFaceTB/SmolLM2-1.7B", "sizes as in LitGPT's config.py"},
    {"llama-tiny", JSON({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 128,
        "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "attention_bias": false, "mlp_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false}),
     NULL, "vplan's own: bytes as tokens, trains in milliseconds"},
    {0},
};
