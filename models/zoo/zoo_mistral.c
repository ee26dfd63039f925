/* models/zoo/zoo_mistral.c: Mistral 7B (Jiang et al. 2023, arXiv:2310.06825) and Nemo. */
#include "models/zoo/zoo_internal.h"

const vp_zoo_entry vp_zoo_mistral[] = {
    {"mistral-7b-v0.1", JSON({
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": 4096,
        "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "mistralai/Mistral-7B-v0.1", "config.json"},
    {"mistral-7b-v0.3", JSON({
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32768, "max_position_embeddings": 32768, "sliding_window": null,
        "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "attention_dropout": 0.0, "initializer_range": 0.02,
        "tie_word_embeddings": false}),
     "mistralai/Mistral-7B-v0.3", "config.json of -Instruct"},
    {"mistral-nemo-12b", JSON({
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 14336, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072, "max_position_embeddings": 128000,
        "sliding_window": null, "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false}),
     "mistralai/Mistral-Nemo-Base-2407", "config.json"},
    {0},
};
