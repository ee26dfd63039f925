/* models/zoo/zoo_opt.c: OPT (Zhang et al. 2022, arXiv:2205.01068). The 350M model alone has its norms behind attention and MLP, and tokens
 * narrower than its blocks. */
#include "models/zoo/zoo_internal.h"

const vp_zoo_entry vp_zoo_opt[] = {
    {"opt-125m", JSON({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "word_embed_proj_dim": 768, "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": true,
        "activation_function": "relu", "dropout": 0.1, "attention_dropout": 0.0, "layerdrop": 0.0, "init_std": 0.02, "pad_token_id": 1}),
     "facebook/opt-125m", "arXiv:2205.01068, table 1"},
    {"opt-350m", JSON({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "word_embed_proj_dim": 512, "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": false,
        "activation_function": "relu", "dropout": 0.1, "attention_dropout": 0.0, "layerdrop": 0.0, "init_std": 0.02, "pad_token_id": 1}),
     "facebook/opt-350m", "arXiv:2205.01068, table 1"},
    {"opt-1.3b", JSON({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 2048, "ffn_dim": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 32, "word_embed_proj_dim": 2048, "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": true,
        "activation_function": "relu", "dropout": 0.1, "attention_dropout": 0.0, "layerdrop": 0.0, "init_std": 0.02, "pad_token_id": 1}),
     "facebook/opt-1.3b", "arXiv:2205.01068, table 1"},
    {"opt-2.7b", JSON({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 2560, "ffn_dim": 10240, "num_hidden_layers": 32,
        "num_attention_heads": 32, "word_embed_proj_dim": 2560, "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": true,
        "activation_function": "relu", "dropout": 0.1, "attention_dropout": 0.0, "layerdrop": 0.0, "init_std": 0.02, "pad_token_id": 1}),
     "facebook/opt-2.7b", "arXiv:2205.01068, table 1"},
    {"opt-6.7b", JSON({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384, "num_hidden_layers": 32,
        "num_attention_heads": 32, "word_embed_proj_dim": 4096, "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": true,
        "activation_function": "relu", "dropout": 0.1, "attention_dropout": 0.0, "layerdrop": 0.0, "init_std": 0.02, "pad_token_id": 1}),
     "facebook/opt-6.7b", "arXiv:2205.01068, table 1"},
    {"opt-13b", JSON({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 5120, "ffn_dim": 20480, "num_hidden_layers": 40,
        "num_attention_heads": 40, "word_embed_proj_dim": 5120, "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": true,
        "activation_function": "relu", "dropout": 0.1, "attention_dropout": 0.0, "layerdrop": 0.0, "init_std": 0.02, "pad_token_id": 1}),
     "facebook/opt-13b", "arXiv:2205.01068, table 1"},
    {"opt-30b", JSON({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 7168, "ffn_dim": 28672, "num_hidden_layers": 48,
        "num_attention_heads": 56, "word_embed_proj_dim": 7168, "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": true,
        "activation_function": "relu", "dropout": 0.1, "attention_dropout": 0.0, "layerdrop": 0.0, "init_std": 0.02, "pad_token_id": 1}),
     "facebook/opt-30b", "arXiv:2205.01068, table 1"},
    {"opt-66b", JSON({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 9216, "ffn_dim": 36864, "num_hidden_layers": 64,
        "num_attention_heads": 72, "word_embed_proj_dim": 9216, "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": true,
        "activation_function": "relu", "dropout": 0.1, "attention_dropout": 0.0, "layerdrop": 0.0, "init_std": 0.02, "pad_token_id": 1}),
     "facebook/opt-66b", "arXiv:2205.01068, table 1"},
    {0},
};
