/* models/zoo/zoo_variants.c: models that were trained further from a built-in one, or anew at its
 * sizes, and whose name does not say so. Every width, depth, head count and the vocabulary are the
 * built-in model's; positions and the base of rotary angles may differ, which change no byte. */
#include "models/zoo/zoo_internal.h"

#include <stddef.h>

#define LITGPT "LitGPT's config.py"
#define DISTIL "arXiv:2501.12948, table 6: the models that were distilled into"
#define CARD   "its card names the model it was trained from"

static const vp_zoo_variant variants[] = {
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen2.5-7b", DISTIL},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "qwen2.5-14b", DISTIL},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b", DISTIL},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b", LITGPT},
    {"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama-3.3-70b", LITGPT},
    {"agentica-org/DeepCoder-14B-Preview", "qwen2.5-14b", CARD},
    {"Qwen/Qwen2.5-Coder-0.5B", "qwen2.5-0.5b", LITGPT},
    {"Qwen/Qwen2.5-Coder-1.5B", "qwen2.5-1.5b", LITGPT},
    {"Qwen/Qwen2.5-Coder-3B", "qwen2.5-3b", LITGPT},
    {"Qwen/Qwen2.5-Coder-7B", "qwen2.5-7b", LITGPT},
    {"Qwen/Qwen2.5-Coder-14B", "qwen2.5-14b", LITGPT},
    {"Qwen/Qwen2.5-Coder-32B", "qwen2.5-32b", LITGPT},
    {"Qwen/Qwen2.5-Math-1.5B", "qwen2.5-1.5b", LITGPT},
    {"Qwen/Qwen2.5-Math-7B", "qwen2.5-7b", LITGPT},
    {"Qwen/Qwen2.5-Math-72B", "qwen2.5-72b", LITGPT},
    {"Qwen/Qwen2.5-7B-Instruct-1M", "qwen2.5-7b", LITGPT},
    {"Qwen/Qwen2.5-14B-Instruct-1M", "qwen2.5-14b", LITGPT},
    {"Qwen/QwQ-32B", "qwen2.5-32b", LITGPT},
    {"nvidia/Llama-3.1-Nemotron-70B-Instruct-HF", "llama-3.1-70b", LITGPT},
    {"TinyLlama/TinyLlama_v1.1", "tinyllama-1.1b", CARD},
    {"lmsys/vicuna-7b-v1.5", "llama-2-7b", CARD},
    {"lmsys/vicuna-13b-v1.5", "llama-2-13b", CARD},
    {"lmsys/vicuna-7b-v1.3", "llama-7b", CARD},
    {"lmsys/vicuna-13b-v1.3", "llama-13b", CARD},
    {"openlm-research/open_llama_7b", "llama-7b", LITGPT},
    {"openlm-research/open_llama_13b", "llama-13b", LITGPT},
    {"openlm-research/open_llama_3b_v2", "open-llama-3b", CARD},
    {"openlm-research/open_llama_7b_v2", "llama-7b", CARD},
    {"HuggingFaceH4/zephyr-7b-beta", "mistral-7b-v0.1", CARD},
    {"HuggingFaceH4/zephyr-7b-alpha", "mistral-7b-v0.1", CARD},
    {"alignment-handbook/zephyr-7b-sft-full", "mistral-7b-v0.1", CARD},
    {"mistralai/Mathstral-7B-v0.1", "mistral-7b-v0.3", LITGPT},
    {"mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b", CARD},
    {"mistralai/Mistral-Large-Instruct-2411", "mistral-large-123b", LITGPT},
    {"microsoft/Phi-4-reasoning", "phi-4", LITGPT},
    {"microsoft/Phi-4-reasoning-plus", "phi-4", LITGPT},
    {"microsoft/Phi-4-mini-reasoning", "phi-4-mini", LITGPT},
    {"microsoft/Phi-3-mini-128k-instruct", "phi-3.5-mini", LITGPT},
    {"google/codegemma-7b", "gemma-7b", LITGPT},
    {"01-ai/Yi-1.5-6B", "yi-6b", CARD},
    {"01-ai/Yi-1.5-34B", "yi-34b", CARD},
    {"allenai/OLMo-2-1124-7B-SFT", "olmo-2-7b", LITGPT},
    {"allenai/OLMo-2-1124-7B-DPO", "olmo-2-7b", LITGPT},
    {"allenai/OLMo-2-1124-13B-SFT", "olmo-2-13b", LITGPT},
    {"allenai/OLMo-2-1124-13B-DPO", "olmo-2-13b", LITGPT},
    {"codellama/CodeLlama-7b-Python-hf", "llama-2-7b", LITGPT},
    {"codellama/CodeLlama-13b-Python-hf", "llama-2-13b", LITGPT},
    {"codellama/CodeLlama-34b-Python-hf", "codellama-34b", LITGPT},
    {"stabilityai/FreeWilly2", "llama-2-70b", LITGPT},
    {"garage-bAInd/Platypus-30B", "llama-30b", LITGPT},
    {"garage-bAInd/Platypus2-7B", "llama-2-7b", LITGPT},
    {"garage-bAInd/Platypus2-13B", "llama-2-13b", LITGPT},
    {"garage-bAInd/Platypus2-70B-instruct", "llama-2-70b", LITGPT},
    {"togethercomputer/LLaMA-2-7B-32K", "llama-2-7b", LITGPT},
    {"TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T", "tinyllama-1.1b", LITGPT},
    {"Qwen/QwQ-32B-Preview", "qwen2.5-32b", LITGPT},
};

const vp_zoo_variant *vp_zoo_variant_at(int idx)
{
    return idx >= 0 && (size_t)idx < sizeof variants / sizeof *variants ? &variants[idx] : NULL;
}
