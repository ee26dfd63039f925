/* trainers/files/check_method.c: by which method the files train, where that is not supervised
 * fine-tuning: a second model beside the first, pairs or values of its own take other bytes. */
#include "trainers/files/check.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* TRL's words, and those that others have for them. */
static const struct {
    const char *method, *words;
} methods[] = {
    {"sft", "sft"},      {"dpo", "dpo ipo"},     {"kto", "kto"},
    {"orpo", "orpo"},    {"cpo", "cpo simpo"},   {"reward", "rm reward reward_modeling"},
    {"ppo", "ppo"},      {"grpo", "grpo gdpo"},  {"rloo", "rloo"},
    {"gkd", "gkd gold"}, {"nash_md", "nash_md"}, {"online_dpo", "online_dpo xpo"},
    {"prm", "prm"},      {"bco", "bco"},
};

/* Keys whose value is the method: axolotl's, LLaMA-Factory's, ms-swift's. */
static const char *const says[] = {"rl", "stage", "rlhf_type"};

/* Switches of axolotl's that train one, whatever its rl says (core/builders/causal.py of 0.19). */
static const struct {
    const char *key, *method;
} switches[] = {{"reward_model", "reward"}, {"process_reward_model", "prm"}};

/* Keys that only the file of one of TRL's trainers has, or RLOO's, which is told by a key of its own (check_others.c); those that DPO
 * shares stand last. */
static const struct {
    const char *method, *keys;
} keys_of[] = {
    {"kto", "desirable_weight undesirable_weight"},
    {"reward", "center_rewards_coefficient"},
    {"grpo", "num_generations steps_per_generation generation_batch_size num_iterations use_vllm "
             "vllm_mode epsilon_high scale_rewards mask_truncated_completions reward_funcs"},
    {"dpo", "beta precompute_ref_log_probs precompute_ref_batch_size max_prompt_length "
            "ref_model_init_kwargs ld_alpha f_divergence_type"},
};

/* Losses over pairs that have no reference, by whatever name their method goes. */
static const char *const losses[] = {"pref_loss", "loss_type", "dpo_loss_type"};

static bool holds(const char *words, const char *word, size_t n)
{
    for (; *words; words += strcspn(words, " "), words += *words == ' ')
        if (strcspn(words, " ") == n && strncmp(words, word, n) == 0)
            return true;
    return false;
}

static const char *method_named(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (holds(methods[i].words, word, n))
            return methods[i].method;
    return NULL;
}

/* Of a script that is called so: train_dpo.py. */
static const char *method_within(const char *word, size_t n)
{
    const char *found = NULL;

    if (strncmp(word + n, ".py", 3) != 0)
        return NULL;
    for (size_t i = 0, m; i < n; i += m + 1) {
        const char *method;
        for (m = 0; i + m < n && !strchr("_-", word[i + m]);)
            m++;
        method = m ? method_named(word + i, m) : NULL;
        found  = method ? method : found;
    }
    return found;
}

/* Of "trl dpo", "trl.scripts.dpo" and "scripts/dpo.py"; of "DPOConfig" in a script of Python. */
static const char *method_of_program(const char *program)
{
    static const char suffix[] = "Config";
    const char       *found    = NULL;
    char              word[32];

    for (const char *p = program; p && *p; p += strcspn(p, " ./"), p += *p != '\0') {
        size_t n = strcspn(p, " ./"), m = strlen(suffix);
        bool   is = n > m && n < sizeof word && strncmp(p + n - m, suffix, m) == 0;
        for (size_t i = 0; is && i < n - m; i++)
            word[i] = (char)tolower((unsigned char)p[i]);
        const char *method = is ? method_named(word, n - m) : method_named(p, n);
        if (!method && !is)
            method = method_within(p, n);
        found = method ? method : found;
    }
    return found;
}

static const char *method_of_keys(const vp_value *root, const char **key)
{
    for (size_t i = 0; i < sizeof keys_of / sizeof *keys_of; i++)
        for (const char *p = keys_of[i].keys; *p; p += strcspn(p, " "), p += *p == ' ') {
            char            path[64];
            const vp_value *v;
            snprintf(path, sizeof path, "%.*s", (int)strcspn(p, " "), p);
            v = vp_value_at(root, path);
            if (v) {
                *key = v->key;
                return keys_of[i].method;
            }
        }
    return NULL;
}

/* Beside dpo as the method: what its loss is of, if that is another. */
static const char *method_of_loss(const vp_value *root, const char **said)
{
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        const vp_value *v      = vp_value_at(root, losses[i]);
        const char     *method = v && v->text ? method_named(v->text, strlen(v->text)) : NULL;
        if (method && strcmp(method, "dpo") != 0) {
            *said = losses[i];
            return method;
        }
    }
    return NULL;
}

/* Of a recipe of torchtune's, by what it has keys for. */
static const char *method_of_recipe(const vp_value *root, const char **said)
{
    static const char *const rows[][2] = {{"grpo_samples", "grpo"}, {"ppo_epochs", "ppo"}};
    const vp_value          *loss      = vp_value_at(root, "loss._component_");

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (vp_value_at(root, rows[i][0])) {
            *said = rows[i][0];
            return rows[i][1];
        }
    if (!loss || !loss->text || !strstr(loss->text, "DPOLoss"))
        return NULL;
    *said = "loss._component_";
    return "dpo";
}

const char *vp_checked_method(const vp_checked *c, const char **said)
{
    const char *method = NULL;

    for (int f = 0; f < c->n_files && !method; f++) {
        const vp_document *doc = c->files[f].doc;
        if (!doc)
            continue;
        method = method_of_program(doc->program);
        *said  = doc->program;
        if (!method && doc->call && doc->format == VP_FORMAT_PYTHON)
            method = method_of_program(doc->call), *said = doc->call;
        for (size_t i = 0; i < sizeof says / sizeof *says && !method; i++) {
            const vp_value *v = vp_value_at(doc->root, says[i]);
            if (v && v->text)
                method = method_named(v->text, strlen(v->text));
            *said = says[i];
        }
        if (!method && c->files[f].dialect == &vp_dialect_torchtune)
            method = method_of_recipe(doc->root, said);
        for (size_t i = 0; i < sizeof switches / sizeof *switches && !method; i++) {
            const vp_value *v = vp_value_at(doc->root, switches[i].key);
            if (v && v->kind == VP_VALUE_BOOL && v->boolean) /* a text is a model's name */
                method = switches[i].method, *said = switches[i].key;
        }
        const char *other =
            method && strcmp(method, "dpo") == 0 ? method_of_loss(doc->root, said) : NULL;
        method = other ? other : method;
    }
    for (int f = 0; f < c->n_files && !method; f++)
        if (c->files[f].doc && c->files[f].dialect &&
            strcmp(c->files[f].dialect->library, "trl") == 0)
            method = method_of_keys(c->files[f].doc->root, said);
    return method && strcmp(method, "sft") == 0 ? NULL : method;
}
