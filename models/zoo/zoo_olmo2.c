/* models/zoo/zoo_olmo2.c: OLMo 2 (OLMo Team 2024, arXiv:2501.00656). */
#include "models/zoo/zoo_internal.h"

const vp_zoo_entry vp_zoo_olmo2[] = {
    {"olmo-2-1b", JSON({
        "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 100352, "max_position_embeddings": 4096, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "rope_theta": 500000, "rope_scaling": null, "attention_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false, "pad_token_id": 100277}),
     "allenai/OLMo-2-0425-1B", "model card"},
    {"olmo-2-7b", JSON({
        "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352, "max_position_embeddings": 4096, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "rope_theta": 500000, "rope_scaling": null, "attention_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false, "pad_token_id": 100277}),
     "allenai/OLMo-2-1124-7B", "config.json of -Instruct"},
    {"olmo-2-13b", JSON({
        "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 40, "vocab_size": 100352, "max_position_embeddings": 4096, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "rope_theta": 500000, "rope_scaling": null, "attention_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false, "pad_token_id": 100277}),
     "allenai/OLMo-2-1124-13B", "config.json of -Instruct"},
    {"olmo-2-32b", JSON({
        "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64,
        "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 100352, "max_position_embeddings": 4096, "hidden_act": "silu",
        "rms_norm_eps": 1e-06, "rope_theta": 500000, "rope_scaling": null, "attention_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": false, "pad_token_id": 100277}),
     "allenai/OLMo-2-0325-32B", "config.json of -Instruct"},
    {0},
};
