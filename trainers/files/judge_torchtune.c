/* trainers/files/judge_torchtune.c: what torchtune's recipes end with an error for: keys that all of them read, components that are not
 * where a file looks for them, arguments that a component has not. Read in 0.6.1, whose file says more names than older ones. */
#include "base/options.h"
#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <string.h>

/* Modules with all that a file can name of them. */
static const struct {
    const char *module, *names;
} modules[] = {
    {"torchtune.models.code_llama2",
     "code_llama2_13b code_llama2_70b code_llama2_7b lora_code_llama2_13b lora_code_llama2_70b "
     "lora_code_llama2_7b qlora_code_llama2_13b qlora_code_llama2_70b qlora_code_llama2_7b"},
    {"torchtune.models.gemma", "gemma_2b gemma_7b gemma_tokenizer lora_gemma_2b lora_gemma_7b "
                               "qlora_gemma_2b qlora_gemma_7b"},
    {"torchtune.models.gemma2",
     "gemma2_2b gemma2_9b gemma2_27b gemma_tokenizer lora_gemma2_2b lora_gemma2_9b "
     "lora_gemma2_27b qlora_gemma2_2b qlora_gemma2_9b qlora_gemma2_27b"},
    {"torchtune.models.llama2",
     "llama2_13b llama2_70b llama2_7b llama2_tokenizer llama2_reward_7b lora_llama2_13b "
     "lora_llama2_70b lora_llama2_7b lora_llama2_reward_7b qlora_llama2_13b qlora_llama2_70b "
     "qlora_llama2_7b qlora_llama2_reward_7b"},
    {"torchtune.models.llama3", "llama3_8b llama3_70b llama3_tokenizer lora_llama3_8b "
                                "lora_llama3_70b qlora_llama3_8b qlora_llama3_70b"},
    {"torchtune.models.llama3_1",
     "llama3_1_8b llama3_1_70b llama3_1_405b lora_llama3_1_8b lora_llama3_1_70b "
     "lora_llama3_1_405b qlora_llama3_1_8b qlora_llama3_1_70b qlora_llama3_1_405b"},
    {"torchtune.models.llama3_2", "llama3_2_1b llama3_2_3b lora_llama3_2_1b lora_llama3_2_3b "
                                  "qlora_llama3_2_1b qlora_llama3_2_3b"},
    {"torchtune.models.llama3_3", "llama3_3_70b lora_llama3_3_70b qlora_llama3_3_70b"},
    {"torchtune.models.mistral",
     "mistral_7b mistral_tokenizer mistral_reward_7b lora_mistral_7b lora_mistral_reward_7b "
     "qlora_mistral_7b qlora_mistral_reward_7b"},
    {"torchtune.models.phi3", "phi3_mini phi3_mini_tokenizer lora_phi3_mini qlora_phi3_mini"},
    {"torchtune.models.phi4", "phi4_14b phi4_tokenizer lora_phi4_14b qlora_phi4_14b"},
    {"torchtune.models.qwen2", "qwen2_0_5b qwen2_1_5b qwen2_7b qwen2_tokenizer lora_qwen2_0_5b "
                               "lora_qwen2_1_5b lora_qwen2_7b"},
    {"torchtune.models.qwen2_5",
     "qwen2_5_0_5b qwen2_5_1_5b_base qwen2_5_1_5b_instruct qwen2_5_3b qwen2_5_7b_base "
     "qwen2_5_7b_instruct qwen2_5_14b_base qwen2_5_14b_instruct qwen2_5_32b_base "
     "qwen2_5_32b_instruct qwen2_5_72b_base qwen2_5_72b_instruct qwen2_5_tokenizer "
     "lora_qwen2_5_0_5b lora_qwen2_5_1_5b_base lora_qwen2_5_1_5b_instruct lora_qwen2_5_3b "
     "lora_qwen2_5_7b_base lora_qwen2_5_7b_instruct lora_qwen2_5_14b_base "
     "lora_qwen2_5_14b_instruct lora_qwen2_5_32b_base lora_qwen2_5_32b_instruct "
     "lora_qwen2_5_72b_base lora_qwen2_5_72b_instruct"},
    {"torchtune.datasets",
     "alpaca_dataset alpaca_cleaned_dataset grammar_dataset samsum_dataset "
     "stack_exchange_paired_dataset slimorca_dataset instruct_dataset preference_dataset "
     "chat_dataset text_completion_dataset cnn_dailymail_articles_dataset wikitext_dataset "
     "hh_rlhf_helpful_dataset"},
    {"torchtune.training.metric_logging",
     "CometLogger DiskLogger StdoutLogger TensorBoardLogger WandBLogger"},
};

/* What they have besides, with arguments of its own. */
static const char builders[] =
    "gemma lora_gemma gemma2 lora_gemma2 llama2 llama2_classifier lora_llama2 "
    "lora_llama2_classifier llama3 lora_llama3 llama3_1 lora_llama3_1 llama3_2 lora_llama3_2 "
    "mistral mistral_classifier lora_mistral lora_mistral_classifier phi3 lora_phi3 qwen2 "
    "lora_qwen2 GemmaTokenizer Llama2Tokenizer Llama3Tokenizer MistralTokenizer Phi3MiniTokenizer "
    "Qwen2Tokenizer TextCompletionDataset PackedDataset ConcatDataset PreferenceDataset "
    "SFTDataset";

enum { N_MODULES = sizeof modules / sizeof *modules, MOST_NAMES = 64 };

static const char adapters[] = "lora_attn_modules apply_lora_to_mlp apply_lora_to_output lora_rank "
                               "lora_alpha lora_dropout use_dora quantize_base";

static const vp_value *at(const vp_judged *x, const char *path)
{
    return vp_value_at(x->file->doc->root, path);
}

static bool is_written(const vp_checked *c, const char *key)
{
    bool is = false;

    for (int f = 0; f < c->n_files && !is; f++)
        is = c->files[f].doc && vp_value_at(c->files[f].doc->root, key);
    return is;
}

/* Of a path the name behind its last dot, and which of the modules stands before it; -1: none of them. */
static const char *leaf_of(const char *path, int *module)
{
    const char *dot = strrchr(path, '.');

    *module = -1;
    for (int i = 0; dot && i < N_MODULES; i++)
        if (strlen(modules[i].module) == (size_t)(dot - path) &&
            strncmp(modules[i].module, path, (size_t)(dot - path)) == 0)
            *module = i;
    return dot ? dot + 1 : path;
}

static const char *nearest_in(vp_arena *arena, int module, const char *leaf)
{
    const char *names[MOST_NAMES];
    int         n = 0, near;

    for (const char *p = modules[module].names; *p && n < MOST_NAMES; p += *p == ' ') {
        size_t m = strcspn(p, " ");
        names[n] = vp_arena_printf(arena, "%.*s", (int)m, p);
        if (!names[n])
            return NULL;
        if (strlen(leaf) >= 5 && strncmp(names[n], leaf, strlen(leaf)) == 0)
            return names[n]; /* its end is cut */
        n++, p += m;
    }
    near = vp_word_nearest(leaf, names, n);
    return near >= 0 && vp_word_distance(leaf, names[near]) <= 2 ? names[near] : NULL;
}

static void judge_component(vp_judged *x, const char *section)
{
    vp_arena       *arena = x->c->arena;
    const char     *key   = vp_arena_printf(arena, "%s._component_", section);
    const vp_value *v     = key ? at(x, key) : NULL;
    int             module, other = -1;

    if (!v || v->kind != VP_VALUE_STRING || strchr(v->text, '$'))
        return;
    const char *leaf = leaf_of(v->text, &module);
    if (leaf == v->text) {
        vp_find(x->c, x->file, VP_ERROR, v, key,
                strcmp(section, "optimizer") == 0 ? vp_arena_printf(arena, "torch.optim.%s", leaf)
                                                  : NULL,
                "%.60s is no path: torchtune imports a component by its module's name and its own",
                v->text);
        return;
    }
    if (module < 0 || vp_listed(modules[module].names, leaf) || vp_listed(builders, leaf))
        return;
    for (int i = 0; i < N_MODULES; i++)
        if (vp_listed(modules[i].names, leaf))
            other = i;
    const char *near = other >= 0 ? leaf : nearest_in(arena, module, leaf);
    if (near)
        vp_find(x->c, x->file, VP_ERROR, v, key,
                vp_arena_printf(arena, "%s.%s", modules[other >= 0 ? other : module].module, near),
                "there is no %.60s in %s", leaf, modules[module].module);
}

/* Arguments of a section's component that it has not; known: those that it has. */
static void judge_arguments(vp_judged *x, const char *section, const char *known,
                            const char *component)
{
    const vp_value *map = at(x, section);
    const char     *names[MOST_NAMES];
    int             n = 0;

    for (const char *p = known; *p && n < MOST_NAMES; p += *p == ' ') {
        names[n] = vp_arena_printf(x->c->arena, "%.*s", (int)strcspn(p, " "), p);
        if (!names[n])
            return;
        n++, p += strcspn(p, " ");
    }
    for (const vp_value *v = map && map->kind == VP_VALUE_MAP ? map->first : NULL; v; v = v->next) {
        if (strcmp(v->key, "_component_") == 0 || vp_listed(known, v->key))
            continue;
        int         near = vp_word_nearest(v->key, names, n);
        const char *said = vp_check_by_words(v->key, names, n);
        vp_find(x->c, x->file, VP_ERROR, v, vp_arena_printf(x->c->arena, "%s.%s", section, v->key),
                near >= 0 ? names[near] : said, "%s has no such argument: torchtune refuses it",
                component);
    }
}

/* Keys that all of its recipes read by their names alone (OmegaConf's ConfigKeyError). */
static const char *const needed[] = {
    "tokenizer",    "dataset",    "optimizer",  "loss",
    "checkpointer", "batch_size", "output_dir", "gradient_accumulation_steps"};
enum { N_NEEDED = sizeof needed / sizeof *needed };

/* Else it is none of a recipe that fine-tunes, or a part of one. */
static bool is_whole(const vp_judged *x)
{
    int n = 0;

    for (int i = 0; i < N_NEEDED; i++)
        n += is_written(x->c, needed[i]);
    return n >= N_NEEDED - 2 && !is_written(x->c, "grpo_samples") && is_written(x->c, "model") &&
           x->file->doc->format == VP_FORMAT_YAML;
}

static void judge_missing(vp_judged *x)
{
    if (!is_whole(x))
        return;
    for (int i = 0; i < N_NEEDED; i++)
        if (!is_written(x->c, needed[i]) &&
            !(strcmp(needed[i], "dataset") == 0 && is_written(x->c, "datasets")))
            vp_find(x->c, x->file, VP_ERROR, NULL, needed[i], NULL,
                    "is missing: torchtune's recipes end with an error without it");
    if (!is_written(x->c, "enable_activation_checkpointing"))
        vp_find(x->c, x->file, VP_ERROR, NULL, "enable_activation_checkpointing",
                "enable_activation_checkpointing: true",
                "is missing: torchtune's recipes end with an error without it");
}

static void judge_tokenizer(vp_judged *x)
{
    const vp_value *v = at(x, "tokenizer._component_");
    const char     *leaf;
    int             module;

    if (!v || v->kind != VP_VALUE_STRING)
        return;
    leaf = leaf_of(v->text, &module);
    if (module >= 0 && vp_listed(modules[module].names, leaf))
        judge_arguments(x, "tokenizer",
                        "path max_seq_len prompt_template special_tokens_path merges_file "
                        "truncation_type truncate vocab_path merges_path",
                        leaf);
}

static void judge_model(vp_judged *x)
{
    const vp_value *v = at(x, "model._component_");
    const char     *leaf;
    int             module;

    if (!v || v->kind != VP_VALUE_STRING)
        return;
    leaf = leaf_of(v->text, &module);
    if (module < 0 || !vp_listed(modules[module].names, leaf))
        return;
    if (!strstr(leaf, "lora_")) {
        judge_arguments(x, "model", "", leaf);
        return;
    }
    judge_arguments(x, "model", adapters, leaf);
    if (!is_written(x->c, "model.lora_attn_modules"))
        vp_find(x->c, x->file, is_whole(x) ? VP_ERROR : VP_WARNING, v, "model._component_",
                "model.lora_attn_modules: [q_proj, v_proj, output_proj]",
                "%s wants lora_attn_modules: torchtune ends with an error", leaf);
}

/* ${name} of a key that there is none of. */
static void judge_references(vp_judged *x, const vp_value *v, const char *path)
{
    char name[128];

    if (!path)
        return;
    for (const vp_value *m = v->kind == VP_VALUE_MAP ? v->first : NULL; m; m = m->next)
        judge_references(x, m,
                         *path ? vp_arena_printf(x->c->arena, "%s.%s", path, m->key) : m->key);
    if (v->kind != VP_VALUE_STRING || x->file->doc->format != VP_FORMAT_YAML)
        return;
    for (const char *p = strstr(v->text, "${"); p; p = strstr(p + 2, "${")) {
        size_t n = strcspn(p + 2, "}");
        snprintf(name, sizeof name, "%.*s", (int)n, p + 2);
        if (n < sizeof name && p[2 + n] == '}' && !strpbrk(name, ":.$[ ") &&
            !is_written(x->c, name))
            vp_find(x->c, x->file, VP_WARNING, v, path, NULL,
                    "${%s} is of a key that is not there: OmegaConf ends with an error unless the "
                    "command says it",
                    name);
    }
}

void vp_judge_torchtune(vp_judged *x)
{
    static const char *const sections[] = {"model",        "tokenizer", "dataset",
                                           "lr_scheduler", "optimizer", "metric_logger"};
    const vp_value          *optim      = at(x, "optimizer._component_"),
                   *schedule            = at(x, "lr_scheduler._component_");

    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        judge_component(x, sections[i]);
    judge_model(x);
    judge_tokenizer(x);
    judge_missing(x);
    judge_references(x, x->file->doc->root, "");
    if (at(x, "optimizer.learning_rate") && optim && optim->kind == VP_VALUE_STRING)
        vp_find(x->c, x->file, VP_ERROR, at(x, "optimizer.learning_rate"),
                "optimizer.learning_rate", "lr", "%.60s has no such argument: torchtune refuses it",
                optim->text);
    if (at(x, "optimizer.fused") && optim && optim->kind == VP_VALUE_STRING &&
        strncmp(optim->text, "bitsandbytes.", 13) == 0)
        vp_find(x->c, x->file, VP_ERROR, at(x, "optimizer.fused"), "optimizer.fused", NULL,
                "%.60s has no such argument: torchtune refuses it", optim->text);
    if (schedule && schedule->kind == VP_VALUE_STRING &&
        strstr(schedule->text, ".get_cosine_schedule_with_warmup"))
        judge_arguments(x, "lr_scheduler", "num_warmup_steps num_training_steps num_cycles",
                        "get_cosine_schedule_with_warmup()");
}
