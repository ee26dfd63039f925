#include "trainers/hf/hf_adapters.h"

#include "base/options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LLAMA_LINEARS   "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
#define ENCODER_LINEARS "query", "key", "value", "dense"

#define DELTA_LINEARS "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"

enum { MAX_LINEARS = 13 };

/* Linear layers of a block by name; what peft takes unasked (peft/utils/constants.py). */
static const struct {
    const char *family, *linears[MAX_LINEARS], *unasked;
} families[] = {
    {"gpt2", {"c_attn", "c_proj", "c_fc"}, "c_attn"},
    {"llama", {LLAMA_LINEARS}, "q_proj+v_proj"},
    {"llama_biased", {LLAMA_LINEARS}, "q_proj+v_proj"},
    {"llama_qkvo", {LLAMA_LINEARS}, "q_proj+v_proj"},
    {"mistral", {LLAMA_LINEARS}, "q_proj+v_proj"},
    {"qwen2", {LLAMA_LINEARS}, "q_proj+v_proj"},
    {"qwen3", {LLAMA_LINEARS}, "q_proj+v_proj"},
    /* of a mixture of experts peft's all-linear adapts the router's and the experts' parameters too */
    {"qwen3_moe", {"q_proj", "k_proj", "v_proj", "o_proj", "gate", "experts"}, NULL},
    {"qwen2_moe", {"q_proj", "k_proj", "v_proj", "o_proj", "gate", "experts"}, NULL},
    {"olmoe", {"q_proj", "k_proj", "v_proj", "o_proj", "gate", "experts"}, NULL},
    {"gemma", {LLAMA_LINEARS}, "q_proj+v_proj"},
    {"gemma2", {LLAMA_LINEARS}, "q_proj+v_proj"},
    {"gemma3_text", {LLAMA_LINEARS}, "q_proj+v_proj"},
    /* of its tower of images peft takes those of the same names, and three of other names */
    {"gemma3", {LLAMA_LINEARS, "out_proj", "fc1", "fc2"}, NULL},
    {"qwen3_5", {LLAMA_LINEARS, DELTA_LINEARS}, NULL},
    {"qwen3_5_even", {LLAMA_LINEARS, DELTA_LINEARS}, NULL},
    /* whose router and experts are no linear layers, nor adapted by all-linear */
    {"qwen3_5_moe", {LLAMA_LINEARS, DELTA_LINEARS, "shared_expert_gate"}, NULL},
    /* all-linear takes those of the towers too; what peft takes unasked is the language model's alone, and names by themselves end in its
     * ValueError, for the towers' layers of these names are of a class of Gemma 4's own */
    {"gemma4", {LLAMA_LINEARS}, "q_proj+v_proj"},
    {"gemma4_e4b",
     {LLAMA_LINEARS, "per_layer_input_gate", "per_layer_projection"},
     "q_proj+v_proj"},
    {"gemma4_e2b",
     {LLAMA_LINEARS, "per_layer_input_gate", "per_layer_projection"},
     "q_proj+v_proj"},
    {"llava", {LLAMA_LINEARS, "out_proj", "fc1", "fc2", "linear_1", "linear_2"}, NULL},
    {"qwen2_5_vl", {LLAMA_LINEARS, "qkv", "proj", "mlp.0", "mlp.2"}, NULL},
    {"qwen3_vl", {LLAMA_LINEARS, "qkv", "proj", "linear_fc1", "linear_fc2"}, NULL},
    {"qwen3_vl_8b", {LLAMA_LINEARS, "qkv", "proj", "linear_fc1", "linear_fc2"}, NULL},
    {"cohere", {LLAMA_LINEARS}, NULL},
    {"cohere2", {LLAMA_LINEARS}, NULL},
    {"seed_oss", {LLAMA_LINEARS}, NULL},
    {"exaone4", {LLAMA_LINEARS}, NULL},
    {"exaone4_full", {LLAMA_LINEARS}, NULL},
    {"olmo", {LLAMA_LINEARS}, NULL},
    {"olmo2", {LLAMA_LINEARS}, NULL},
    {"olmo3", {LLAMA_LINEARS}, NULL},
    {"ernie4_5", {LLAMA_LINEARS}, NULL},
    {"glm", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "down_proj"}, NULL},
    {"glm4", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "down_proj"}, NULL},
    {"mixtral", {"q_proj", "k_proj", "v_proj", "o_proj", "gate", "experts"}, "q_proj+v_proj"},
    /* whose router and experts are no linear layers, nor adapted by all-linear */
    {"gpt_oss", {"q_proj", "k_proj", "v_proj", "o_proj"}, NULL},
    {"starcoder2", {"q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj"}, NULL},
    {"falcon", {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}, "query_key_value"},
    {"bloom", {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}, "query_key_value"},
    {"gptj", {"q_proj", "k_proj", "v_proj", "out_proj", "fc_in", "fc_out"}, "q_proj+v_proj"},
    {"smollm3", {LLAMA_LINEARS}, NULL},
    {"granite", {LLAMA_LINEARS}, NULL},
    {"stablelm", {LLAMA_LINEARS}, "q_proj+v_proj"},
    {"phi", {"q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2"}, "q_proj+v_proj+fc1+fc2"},
    {"gpt_neo", {"q_proj", "k_proj", "v_proj", "out_proj", "c_fc", "c_proj"}, "q_proj+v_proj"},
    {"phi3", {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}, NULL},
    {"opt", {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}, "q_proj+v_proj"},
    {"opt_post", {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}, "q_proj+v_proj"},
    {"gpt_neox", {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}, "query_key_value"},
    {"gpt_neox_fast",
     {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"},
     "query_key_value"},
    {"bert", {ENCODER_LINEARS}, "query+value"},
    {"roberta", {ENCODER_LINEARS}, "query+value"},
    {"xlm-roberta", {ENCODER_LINEARS}, "query+value"},
    {"distilbert", {"q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"}, NULL},
    {"modernbert", {"Wqkv", "Wo", "Wi", "dense"}, NULL},
    {"vit", {"q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"}, NULL},
    {"deit", {"q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"}, NULL},
    {"beit", {"q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2"}, NULL},
    {"dinov2", {"query", "key", "value", "dense", "fc1", "fc2"}, NULL},
    {"electra", {ENCODER_LINEARS}, "query+value"},
    {"electra_narrow", {ENCODER_LINEARS, "embeddings_project"}, "query+value"},
    {"bart", {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}, "q_proj+v_proj"},
    {"whisper", {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}, NULL},
    {"t5", {"q", "k", "v", "o", "wi", "wo"}, "q+v"},
    {"t5_gated", {"q", "k", "v", "o", "wi_0", "wi_1", "wo"}, "q+v"},
    {"deberta-v2", {"query_proj", "key_proj", "value_proj", "dense"}, "query_proj+value_proj"},
};

/* Whether all-linear is more than the linear layers of blocks, in a model that those alone are named of too: the vocabulary's
 * transform of a masked model. */
static bool takes_more(const char *family)
{
    return strcmp(family, "distilbert") == 0;
}

static bool names(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (; *list; list += strcspn(list, "+"), list += *list == '+')
        if (strcspn(list, "+") == n && memcmp(list, name, n) == 0)
            return true;
    return false;
}

/* "q_lin, k_lin, v_lin" */
static void list_linears(const char *const *linears, char *buf, size_t size)
{
    size_t n = 0;

    buf[0] = '\0';
    for (int i = 0; i < MAX_LINEARS && linears[i] && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? ", " : "", linears[i]);
}

static vp_status check_names(const char *family, const char *const *linears, const char *asked,
                             vp_err *err)
{
    char have[200];

    list_linears(linears, have, sizeof have);
    for (const char *name = asked; *name; name += strcspn(name, "+"), name += *name == '+') {
        size_t n     = strcspn(name, "+");
        bool   known = n == strlen("all-linear") && memcmp(name, "all-linear", n) == 0;
        for (int i = 0; i < MAX_LINEARS && linears[i]; i++)
            known |= strlen(linears[i]) == n && memcmp(linears[i], name, n) == 0;
        if (!known)
            return VP_FAIL(
                err, VP_ERR_INPUT,
                "no step of %s with adapters on \"%.*s\" was recorded; the linear layers of its "
                "blocks are %s, and all-linear means all of them",
                family, (int)n, name, have);
    }
    return VP_OK;
}

/* peft's mapping has no row of the family: get_peft_model() ends with a ValueError. */
static vp_status refuse_unasked(const char *family, const char *const *linears, vp_err *err)
{
    char have[200];

    list_linears(linears, have, sizeof have);
    return VP_FAIL(err, VP_ERR_INPUT,
                   "peft has no targets of its own for %s: name some of its linear layers (%s), "
                   "joined by +, or take all of them: targets=all-linear",
                   family, have);
}

vp_status vp_hf_lora_targets(const char *family, const char *asked, char *buf, size_t size,
                             vp_err *err)
{
    const char *const *linears = NULL;
    size_t             length = 0, n_linears = 0, n_found = 0;
    vp_status          st = VP_OK;

    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].family, family) == 0) {
            linears = families[i].linears;
            asked   = asked ? asked : families[i].unasked;
        }
    if (linears && !asked)
        VP_TRY(refuse_unasked(family, linears, err));
    if (!linears)
        VP_TRY(VP_FAIL(err, VP_ERR_INPUT, "no training step of %s with adapters was recorded",
                       family));
    if (strcmp(asked, "all-linear") != 0)
        VP_TRY(check_names(family, linears, asked, err));
    for (; n_linears < MAX_LINEARS && linears[n_linears]; n_linears++)
        if (names(asked, "all-linear") || names(asked, linears[n_linears]))
            length += (size_t)snprintf(buf + length, length < size ? size - length : 0, "%s%s",
                                       n_found++ ? "+" : "", linears[n_linears]);
    if (names(asked, "all-linear") || (n_found == n_linears && !takes_more(family)))
        snprintf(buf, size, "all-linear");
out:
    return st;
}

bool vp_hf_lora_lacks(const char *family, const char *name, const char **nearest)
{
    /* families whose versions, towers or experts have other names too */
    static const char other_names[] =
        "mixtral+qwen2_moe+qwen3_moe+olmoe+gemma3+llava+qwen2_5_vl+qwen3_vl+qwen3_vl_8b+vit+deit+beit+t5+t5_gated+distilbert";
    /* what is no linear layer of a block: embeddings, heads, what is made of several */
    static const char others[] =
        "lm_head+embed_out+embed_in+embed_tokens+embed_positions+wte+wpe+"
        "word_embeddings+position_embeddings+token_type_embeddings+score+"
        "classifier+pooler+project_in+project_out+decoder+cls+self_attn+"
        "attn+attention+self+output+intermediate+mlp+model+transformer+all";
    const char        *dot     = strrchr(name, '.');
    const char *const *linears = NULL;
    int                n       = 0, near;

    *nearest = NULL;
    name     = dot ? dot + 1 : name;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].family, family) == 0 && !names(other_names, family))
            linears = families[i].linears;
    if (!linears || !*name ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") !=
            strlen(name) ||
        names(others, name) || (strspn(name, "0123456789") == strlen(name)))
        return false;
    for (; n < MAX_LINEARS && linears[n]; n++)
        if (strcmp(linears[n], name) == 0)
            return false;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (int k = 0; k < MAX_LINEARS && families[i].linears[k]; k++)
            if (strcmp(families[i].linears[k], name) == 0)
                return true; /* another family's, and no slip of the finger */
    near = vp_word_nearest(name, linears, n);
    if (near >= 0 && vp_word_distance(name, linears[near]) <= 2)
        *nearest = linears[near];
    return true;
}

vp_status vp_hf_lora_saved(const char *family, const char *asked, char *buf, size_t size,
                           vp_err *err)
{
    static const char *const known[]   = {"embed_tokens", "lm_head"};
    size_t                   length    = 0;
    bool                     has_names = false;

    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        has_names |=
            strcmp(families[i].family, family) == 0 && names("q_proj", *families[i].linears);
    if (!has_names)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "%s with whole modules trained beside adapters was not recorded", family);
    buf[0] = '\0';
    for (const char *name = asked; *name; name += strcspn(name, "+"), name += *name == '+') {
        size_t n = strcspn(name, "+");
        if (!(strlen(known[0]) == n && memcmp(name, known[0], n) == 0) &&
            !(strlen(known[1]) == n && memcmp(name, known[1], n) == 0))
            return VP_FAIL(err, VP_ERR_INPUT,
                           "a step that trains the whole of \"%.*s\" beside adapters was not "
                           "recorded; embed_tokens and lm_head were",
                           (int)n, name);
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (names(asked, known[i]))
            length += (size_t)snprintf(buf + length, length < size ? size - length : 0, "%s%s",
                                       length ? "+" : "", known[i]);
    return VP_OK;
}
