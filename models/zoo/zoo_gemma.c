/* models/zoo/zoo_gemma.c: Gemma (Gemma Team 2024, arXiv:2403.08295) and Gemma 2 (arXiv:2408.00118). The first files of Gemma say hidden_act gelu,
 * which was an error: the models were trained with the tanh form. Early files of the 9B model say query_pre_attn_scalar 224, later 256. */
#include "models/zoo/zoo_internal.h"

const vp_zoo_entry vp_zoo_gemma[] = {
    {"gemma-2b", JSON({
        "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
        "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "rope_scaling": null, "attention_bias": false,
        "attention_dropout": 0.0, "initializer_range": 0.02, "pad_token_id": 0}),
     "google/gemma-2b", "config.json, hidden_act as corrected"},
    {"gemma-7b", JSON({
        "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
        "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "rope_scaling": null, "attention_bias": false,
        "attention_dropout": 0.0, "initializer_range": 0.02, "pad_token_id": 0}),
     "google/gemma-7b", "sizes as in LitGPT's config.py, hidden_act as corrected"},
    {"gemma-2-2b", JSON({
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
        "sliding_window": 4096, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "attention_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "pad_token_id": 0}),
     "google/gemma-2-2b", "config.json of -it"},
    {"gemma-2-9b", JSON({
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
        "sliding_window": 4096, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "attention_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "pad_token_id": 0}),
     "google/gemma-2-9b", "config.json of -it, query_pre_attn_scalar as corrected"},
    {"gemma-2-27b", JSON({
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_size": 4608, "intermediate_size": 36864, "num_hidden_layers": 46,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 256000, "max_position_embeddings": 8192,
        "sliding_window": 4096, "query_pre_attn_scalar": 144, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "attention_bias": false, "attention_dropout": 0.0,
        "initializer_range": 0.02, "pad_token_id": 0}),
     "google/gemma-2-27b", "config.json of -it"},
    {0},
};
