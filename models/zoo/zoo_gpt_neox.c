/* models/zoo/zoo_gpt_neox.c: Pythia (Biderman et al. 2023, arXiv:2304.01373) and GPT-NeoX-20B (Black et al. 2022, arXiv:2204.06745). */
#include "models/zoo/zoo_internal.h"

const vp_zoo_entry vp_zoo_gpt_neox[] = {
    {"pythia-70m", JSON({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6,
        "num_attention_heads": 8, "vocab_size": 50304, "max_position_embeddings": 2048, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "EleutherAI/pythia-70m", "training configuration in EleutherAI/pythia"},
    {"pythia-160m", JSON({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "vocab_size": 50304, "max_position_embeddings": 2048, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "EleutherAI/pythia-160m", "training configuration in EleutherAI/pythia"},
    {"pythia-410m", JSON({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "vocab_size": 50304, "max_position_embeddings": 2048, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "EleutherAI/pythia-410m", "training configuration in EleutherAI/pythia"},
    {"pythia-1b", JSON({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 8, "vocab_size": 50304, "max_position_embeddings": 2048, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "EleutherAI/pythia-1b", "training configuration in EleutherAI/pythia"},
    {"pythia-1.4b", JSON({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 16, "vocab_size": 50304, "max_position_embeddings": 2048, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "EleutherAI/pythia-1.4b", "training configuration in EleutherAI/pythia"},
    {"pythia-2.8b", JSON({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 50304, "max_position_embeddings": 2048, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "EleutherAI/pythia-2.8b", "training configuration in EleutherAI/pythia"},
    {"pythia-6.9b", JSON({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 50432, "max_position_embeddings": 2048, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "EleutherAI/pythia-6.9b", "training configuration in EleutherAI/pythia"},
    {"pythia-12b", JSON({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 5120, "intermediate_size": 20480, "num_hidden_layers": 36,
        "num_attention_heads": 40, "vocab_size": 50688, "max_position_embeddings": 2048, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "EleutherAI/pythia-12b", "training configuration in EleutherAI/pythia"},
    {"gpt-neox-20b", JSON({
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 44,
        "num_attention_heads": 64, "vocab_size": 50432, "max_position_embeddings": 2048, "hidden_act": "gelu_fast", "layer_norm_eps": 1e-05,
        "rotary_pct": 0.25, "rotary_emb_base": 10000, "initializer_range": 0.02, "tie_word_embeddings": false}),
     "EleutherAI/gpt-neox-20b", "arXiv:2204.06745, section 2"},
    {0},
};
