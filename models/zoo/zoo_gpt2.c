/* models/zoo/zoo_gpt2.c: GPT-2 (Radford et al. 2019), and vplan's own small one. */
#include "models/zoo/zoo_internal.h"

const vp_zoo_entry vp_zoo_gpt2[] = {
    {"gpt2", JSON({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02, "tie_word_embeddings": true,
        "scale_attn_weights": true}),
     "openai-community/gpt2", "config.json"},
    {"gpt2-medium", JSON({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 1024, "n_layer": 24, "n_head": 16,
        "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02, "tie_word_embeddings": true,
        "scale_attn_weights": true}),
     "openai-community/gpt2-medium", "config.json"},
    {"gpt2-large", JSON({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 1280, "n_layer": 36, "n_head": 20,
        "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02, "tie_word_embeddings": true,
        "scale_attn_weights": true}),
     "openai-community/gpt2-large", "config.json"},
    {"gpt2-xl", JSON({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 1600, "n_layer": 48, "n_head": 25,
        "n_positions": 1024, "vocab_size": 50257, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02, "tie_word_embeddings": true,
        "scale_attn_weights": true}),
     "openai-community/gpt2-xl", "config.json"},
    {"gpt2-tiny", JSON({
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 64, "n_layer": 2, "n_head": 4,
        "n_positions": 128, "vocab_size": 256, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02, "tie_word_embeddings": true,
        "scale_attn_weights": true}),
     NULL, "vplan's own: bytes as tokens, trains in milliseconds"},
    {0},
};
