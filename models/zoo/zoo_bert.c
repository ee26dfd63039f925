/* models/zoo/zoo_bert.c: BERT (Devlin et al. 2018, arXiv:1810.04805) and RoBERTa (Liu et al. 2019, arXiv:1907.11692), with the head that predicts
 * masked tokens and without the pooler. */
#include "models/zoo/zoo_internal.h"

const vp_zoo_entry vp_zoo_bert[] = {
    {"bert-base-uncased", JSON({
        "architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
        "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "pad_token_id": 0}),
     "google-bert/bert-base-uncased", "config.json; arXiv:1810.04805, section 3"},
    {"bert-large-uncased", JSON({
        "architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
        "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "pad_token_id": 0}),
     "google-bert/bert-large-uncased", "arXiv:1810.04805, section 3"},
    {"roberta-base", JSON({
        "architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "hidden_act": "gelu",
        "layer_norm_eps": 1e-05, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "pad_token_id": 1}),
     "FacebookAI/roberta-base", "config.json"},
    {"roberta-large", JSON({
        "architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "hidden_act": "gelu",
        "layer_norm_eps": 1e-05, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "pad_token_id": 1}),
     "FacebookAI/roberta-large", "arXiv:1907.11692, table 9"},
    {0},
};
