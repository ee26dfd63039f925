/* models/zoo/zoo_dtypes.c: in which format a built-in model's weights are published, torch_dtype of its config.json. No family reads it; who
 * loads weights "in the file's format" does. Models that stand in no row: not known here. */
#include "models/model.h"

#include <string.h>

/* Names by spaces. With a star a model trained further from it is published in another format. */
static const struct {
    const char *dtype, *names;
} rows[] = {
    {"bfloat16",
     "llama-3-8b llama-3-70b llama-3.1-8b llama-3.1-70b llama-3.1-405b llama-3.2-1b llama-3.2-3b "
     "llama-3.3-70b smollm2-135m smollm2-360m smollm2-1.7b tinyllama-1.1b* yi-6b yi-34b yi-1.5-9b "
     "mistral-7b-v0.1 mistral-7b-v0.2 mistral-7b-v0.3 mistral-nemo-12b mistral-small-24b "
     "mistral-large-123b ministral-8b openhermes-2.5-7b mixtral-8x7b mixtral-8x22b "
     "qwen1.5-0.5b qwen1.5-1.8b qwen1.5-4b qwen1.5-7b qwen1.5-14b qwen1.5-32b qwen1.5-72b "
     "qwen1.5-110b qwen2-0.5b qwen2-1.5b qwen2-7b qwen2-72b qwen2.5-0.5b qwen2.5-1.5b qwen2.5-3b "
     "qwen2.5-7b qwen2.5-14b qwen2.5-32b qwen2.5-72b qwen3-0.6b qwen3-1.7b qwen3-4b qwen3-8b "
     "qwen3-14b qwen3-32b qwen3-30b-a3b qwen3.5-0.8b qwen3.5-2b qwen3.5-4b qwen3.5-9b qwen3.5-27b gemma-2b gemma-7b gemma-3-270m gemma-3-1b gemma-3-4b "
     "gemma-3-12b gemma-3-27b gemma-4-31b gemma-4-e4b gemma-4-e2b phi-3-mini-4k phi-3.5-mini phi-4-mini phi-4 falcon-7b "
     "glm-4-9b ernie-4.5-0.3b qwen2.5-vl-3b qwen2.5-vl-7b "
     "qwen3-vl-2b qwen3-vl-4b"},
    {"float16",
     "llama-2-7b llama-2-13b llama-2-70b llama-7b llama-13b llama-30b llama-65b open-llama-3b "
     "opt-125m opt-350m opt-1.3b opt-2.7b opt-6.7b opt-13b opt-30b opt-66b pythia-70m "
     "pythia-160m pythia-410m pythia-1b pythia-1.4b pythia-2.8b pythia-6.9b pythia-12b "
     "gpt-neox-20b llava-1.5-7b llava-1.5-13b"},
    /* gemma-2-9b-it is bfloat16; gpt2's config says nothing, and its file holds float32 */
    {"float32", "gemma-2-2b* gemma-2-9b* gemma-2-27b* gpt2 gpt2-medium gpt2-large gpt2-xl "
                "modernbert-base modernbert-large"},
};

const char *vp_zoo_dtype(const char *name, bool trained_further)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (const char *p = rows[i].names; *p; p += strcspn(p, " "), p += *p == ' ')
            if (strncmp(p, name, n) == 0 && (!p[n] || p[n] == ' ' || p[n] == '*'))
                return p[n] == '*' && trained_further ? NULL : rows[i].dtype;
    return NULL;
}
