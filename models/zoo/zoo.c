/* models/zoo/zoo.c: the models that need no file. Each is the config.json as published, fields that decide a
 * shape only. Parameter counts are computed from it, never stated here. */
#include "models/model.h"

#define GPT2(embd, layer, head) \
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"activation_function\": \"gelu_new\", " \
    "\"n_embd\": " #embd ", \"n_layer\": " #layer ", \"n_head\": " #head ", \"n_positions\": 1024, " \
    "\"vocab_size\": 50257, \"layer_norm_epsilon\": 1e-05, \"initializer_range\": 0.02, " \
    "\"tie_word_embeddings\": true, \"scale_attn_weights\": true}"

static const vp_zoo_entry entries[] = {
    {"gpt2", GPT2(768, 12, 12), "openai-community/gpt2 config.json"},
    {"gpt2-medium", GPT2(1024, 24, 16), "openai-community/gpt2-medium config.json"},
    {"gpt2-large", GPT2(1280, 36, 20), "openai-community/gpt2-large config.json"},
    {"gpt2-xl", GPT2(1600, 48, 25), "openai-community/gpt2-xl config.json"},
    {"gpt2-tiny",
     "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"activation_function\": \"gelu_new\", "
     "\"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, \"n_positions\": 128, \"vocab_size\": 256, "
     "\"layer_norm_epsilon\": 1e-05, \"initializer_range\": 0.02, \"tie_word_embeddings\": true, "
     "\"scale_attn_weights\": true}",
     "vplan's own: bytes as tokens, trains in milliseconds"},
};

const vp_zoo_entry *vp_zoo_at(int idx)
{
    return idx < (int)(sizeof entries / sizeof *entries) ? &entries[idx] : (const vp_zoo_entry *)0;
}
