/* models/zoo/: the built-in models have the parameters that others count, and the fields that
 * were published. */
#include "tests/base_test.h"

#include "base/json.h"
#include "models/hub_cache.h"
#include "models/model.h"

static vp_model *built_in(const char *name)
{
    vp_err    err = {0};
    vp_model *model;

    if (vp_model_open(name, &(vp_model_opts){0}, &model, &err) != VP_OK)
        fail_msg("%s: %s (%s)", name, err.message, err.field);
    return model;
}

/* KERAS: published with keras-hub's preset of the model
 * (keras_hub/src/models/FAMILY/FAMILY_presets.py). HEADER: published with
 * huggingface/safetensors, docs/source/metadata_parsing.mdx. META: what transformers 5.17.0
 * builds from the entry's config on the meta device, which gave the published number for all
 * others. */
enum { KERAS, HEADER, META };
static const struct {
    const char *name;
    int64_t     n;
    int         source;
} counts[] = {{"gpt2", 124439808, KERAS},
              {"gpt2-medium", 354823168, KERAS},
              {"gpt2-large", 774030080, KERAS},
              {"gpt2-xl", 1557611200, KERAS},
              {"gpt2-tiny", 124672, META},
              {"llama-2-7b", 6738415616, KERAS},
              {"llama-2-13b", 13015864320, META},
              {"llama-2-70b", 68976648192, META},
              {"llama-3-8b", 8030261248, KERAS},
              {"llama-3-70b", 70553706496, META},
              {"llama-3.1-8b", 8030261248, KERAS},
              {"llama-3.1-70b", 70553706496, META},
              {"llama-3.1-405b", 405853388800, META},
              {"llama-3.2-1b", 1235814400, META},
              {"llama-3.2-3b", 3212749824, META},
              {"llama-3.3-70b", 70553706496, META},
              {"tinyllama-1.1b", 1100048384, META},
              {"smollm2-135m", 134515008, META},
              {"smollm2-360m", 361821120, META},
              {"smollm2-1.7b", 1711376384, META},
              {"llama-tiny", 131392, META},
              {"llama-7b", 6738415616, META},
              {"llama-13b", 13015864320, META},
              {"llama-30b", 32528943616, META},
              {"llama-65b", 65285660672, META},
              {"open-llama-3b", 3426473600, META},
              {"codellama-7b", 6738546688, META},
              {"codellama-13b", 13016028160, META},
              {"codellama-34b", 33743970304, META},
              {"yi-6b", 6061035520, META},
              {"yi-34b", 34388917248, META},
              {"yi-1.5-9b", 8829407232, META},
              {"deepseek-coder-1.3b", 1346471936, META},
              {"deepseek-coder-6.7b", 6740512768, META},
              {"deepseek-llm-7b", 6910365696, META},
              {"smollm-135m", 134515008, META},
              {"smollm-360m", 361821120, META},
              {"smollm-1.7b", 1711376384, META},
              {"falcon3-1b", 1669408768, META},
              {"falcon3-3b", 3227655168, META},
              {"falcon3-7b", 7455550464, META},
              {"falcon3-10b", 10305653760, META},
              {"mistral-7b-v0.1", 7241732096, KERAS},
              {"mistral-7b-v0.3", 7248023552, KERAS},
              {"mistral-nemo-12b", 12247782400, META},
              {"mistral-7b-v0.2", 7241732096, META},
              {"openhermes-2.5-7b", 7241748480, META},
              {"ministral-8b", 8019808256, META},
              {"mistral-small-24b", 23572403200, META},
              {"mistral-large-123b", 122610069504, META},
              {"qwen1.5-0.5b", 463987712, META},
              {"qwen1.5-1.8b", 1836828672, META},
              {"qwen1.5-4b", 3950369280, META},
              {"qwen1.5-7b", 7721324544, META},
              {"qwen1.5-14b", 14167290880, META},
              {"qwen1.5-32b", 32512218112, META},
              {"qwen1.5-72b", 72287920128, META},
              {"qwen1.5-110b", 111209914368, META},
              {"qwen2-0.5b", 494032768, META},
              {"qwen2-1.5b", 1543714304, META},
              {"qwen2-7b", 7615616512, META},
              {"qwen2-72b", 72706203648, META},
              {"qwen2.5-0.5b", 494032768, KERAS},
              {"qwen2.5-1.5b", 1543714304, META},
              {"qwen2.5-3b", 3085938688, KERAS},
              {"qwen2.5-7b", 7615616512, META},
              {"qwen2.5-14b", 14770033664, META},
              {"qwen2.5-32b", 32763876352, KERAS},
              {"qwen2.5-72b", 72706203648, KERAS},
              {"qwen3-0.6b", 596049920, KERAS},
              {"qwen3-1.7b", 1720574976, KERAS},
              {"qwen3-4b", 4022468096, KERAS},
              {"qwen3-8b", 8190735360, KERAS},
              {"qwen3-14b", 14768307200, KERAS},
              {"qwen3-32b", 32762123264, KERAS},
              {"r1-qwen-1.5b", 1777088000, META},
              {"gemma-2b", 2506172416, KERAS},
              {"gemma-7b", 8537680896, KERAS},
              {"gemma-2-2b", 2614341888, KERAS},
              {"gemma-2-9b", 9241705984, KERAS},
              {"gemma-2-27b", 27227128320, KERAS},
              {"phi-3-mini-4k", 3821079552, KERAS},
              {"phi-3.5-mini", 3821079552, META},
              {"phi-4-mini", 3836021760, META},
              {"phi-4", 14659507200, META},
              {"olmo-2-1b", 1484916736, META},
              {"olmo-2-7b", 7298617344, META},
              {"olmo-2-13b", 13716198400, META},
              {"olmo-2-32b", 32234279936, META},
              {"opt-125m", 125239296, META},
              {"opt-350m", 331196416, META},
              {"opt-1.3b", 1315758080, META},
              {"opt-2.7b", 2651596800, META},
              {"opt-6.7b", 6658473984, META},
              {"opt-13b", 12853473280, META},
              {"opt-30b", 29974540288, META},
              {"opt-66b", 65719701504, META},
              {"pythia-70m", 70426624, META},
              {"pythia-160m", 162322944, META},
              {"pythia-410m", 405334016, META},
              {"pythia-1b", 1011781632, META},
              {"pythia-1.4b", 1414647808, META},
              {"pythia-2.8b", 2775208960, META},
              {"pythia-6.9b", 6857302016, META},
              {"pythia-12b", 11846072320, META},
              {"gpt-neox-20b", 20554567680, META},
              {"bert-base-uncased", 109514298, META},
              {"bert-large-uncased", 335174458, META},
              {"roberta-base", 124697433, HEADER},
              {"roberta-large", 355412057, META},
              {"bert-base-cased", 108340804, META},
              {"bert-large-cased", 333610308, META},
              {"bert-multilingual", 177974523, META}};

static void parameter_counts_are_those_of_others(void **state)
{
    enum { N = sizeof counts / sizeof *counts };

    (void)state;
    assert_false(vp_zoo_has_graph(vp_zoo_at(N))); /* behind them those that are only recorded */
    for (int i = 0; i < N; i++) {
        vp_model *model = built_in(counts[i].name);
        assert_string_equal(vp_zoo_at(i)->name, counts[i].name);
        if (model->n_params != counts[i].n)
            fail_msg("%s: %lld parameters, %lld by others", counts[i].name,
                     (long long)model->n_params, (long long)counts[i].n);
        vp_model_free(model);
    }
}

/* Published files that are in tests/golden/families/configs in full. They may lack, or a sibling
 * that was trained further may change, what `but` names. */
static void fields_are_those_of_the_published_files(void **state)
{
    static const struct {
        const char *name, *file, *but;
    } files[] = {
        {"gpt2", "openai-community__gpt2", "tie_word_embeddings"},
        {"gpt2-large", "openai-community__gpt2-large", "tie_word_embeddings scale_attn_weights"},
        {"llama-3.1-8b", "meta-llama__Meta-Llama-3.1-8B", ""},
        {"llama-3.1-70b", "meta-llama__Meta-Llama-3.1-70B", ""},
        {"llama-3.1-405b", "meta-llama__Meta-Llama-3.1-405B", ""},
        {"llama-3.2-1b", "meta-llama__Llama-3.2-1B-Instruct", ""},
        {"llama-3.2-3b", "meta-llama__Llama-3.2-3B-Instruct", ""},
        {"mistral-7b-v0.3", "mistralai__Mistral-7B-Instruct-v0.3", ""},
        {"qwen2-7b", "Qwen__Qwen2-7B", ""},
        {"qwen2.5-32b", "Qwen__Qwen2.5-32B-Instruct", "rms_norm_eps max_window_layers"},
        {"qwen3-0.6b", "Qwen__Qwen3-0.6B", ""},
        {"qwen3-32b", "Qwen__Qwen3-32B", ""},
        {"gemma-2-9b", "google__gemma-2-9b-it", "query_pre_attn_scalar"},
        {"phi-4", "microsoft__phi-4", ""},
        {"bert-base-uncased", "google-bert__bert-base-uncased", "architectures"},
        {"roberta-base", "FacebookAI__roberta-base", "architectures model_type pad_token_id"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const vp_zoo_entry *z = vp_zoo_find(files[i].name);
        char                path[200];
        const char         *key;
        json_t             *value;
        snprintf(path, sizeof path, "tests/golden/families/configs/%s.json", files[i].file);
        json_t *published = json_load_file(path, 0, NULL), *ours = json_loads(z->config, 0, NULL);
        assert_non_null(published);
        json_object_foreach (ours, key, value) {
            json_t *theirs = json_object_get(published, key);
            bool    equal  = json_is_number(value)
                                 ? json_is_number(theirs) &&
                                   json_number_value(value) == json_number_value(theirs)
                                 : json_equal(value, theirs);
            if (!equal && !strstr(files[i].but, key))
                fail_msg("%s: %s is not what %s says", z->name, key, path);
        }
        json_decref(published);
        json_decref(ours);
    }
}

static void no_field_is_there_that_nothing_reads(void **state)
{
    const vp_zoo_entry *z;

    (void)state;
    for (int i = 0; vp_zoo_has_graph(z = vp_zoo_at(i)); i++) {
        vp_model *model = built_in(z->name);
        for (int64_t k = 0; k < model->n_assumptions; k++)
            if (strncmp(model->assumptions[k], "fields of the config", 20) == 0)
                fail_msg("%s: %s", z->name, model->assumptions[k]);
        vp_model_free(model);
    }
}

/* The counts of these are tests/test_trainer_estimate.sh's, for they come from the recorded steps. */
static void what_is_only_recorded_opens_as_a_config(void **state)
{
    const vp_zoo_entry *z;
    vp_model           *model;
    vp_err              err;
    int                 n = 0;

    (void)state;
    for (int i = 0; (z = vp_zoo_at(i)); i++) {
        if (vp_zoo_has_graph(z))
            continue;
        n++;
        assert_int_equal(vp_model_open(z->name, &(vp_model_opts){0}, &model, &err), VP_ERR_INPUT);
        assert_string_equal(err.field, "model_type");
        assert_int_equal(
            vp_model_open(z->name, &(vp_model_opts){.config_only = true}, &model, &err), VP_OK);
        assert_string_equal(model->name, z->name);
        vp_model_free(model);
    }
    assert_int_not_equal(n, 0);
}

static void names_are_lower_case_and_stand_once(void **state)
{
    const vp_zoo_entry *z;

    (void)state;
    for (int i = 0; (z = vp_zoo_at(i)); i++) {
        assert_int_equal(strspn(z->name, "abcdefghijklmnopqrstuvwxyz0123456789.-"),
                         strlen(z->name));
        assert_ptr_equal(vp_zoo_find(z->name), z);
        assert_true(z->source[0]);
        if (z->hub_id) {
            assert_true(vp_hub_is_id(z->hub_id));
            assert_ptr_equal(vp_zoo_find_hub_id(z->hub_id), z);
        }
    }
    assert_null(vp_zoo_find("gpt5"));
    assert_null(vp_zoo_find_hub_id("gpt2"));
}

/* The LLaMA paper's table 2 (arXiv:2302.13971), in tenths of a billion, cut or rounded. */
static void llama_1_has_the_billions_of_its_paper(void **state)
{
    static const struct {
        const char *name;
        int64_t     tenths;
    } rows[] = {{"llama-7b", 67}, {"llama-13b", 130}, {"llama-30b", 325}, {"llama-65b", 652}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        vp_model *model = built_in(rows[i].name);
        assert_int_equal(model->n_params / 100000000, rows[i].tenths);
        vp_model_free(model);
    }
}

static void a_variant_stands_once_and_names_a_built_in_model(void **state)
{
    const vp_zoo_variant *v, *other;

    (void)state;
    for (int i = 0; (v = vp_zoo_variant_at(i)); i++) {
        assert_true(vp_hub_is_id(v->hub_id));
        assert_non_null(vp_zoo_find(v->built_in));
        assert_null(vp_zoo_find_hub_id(v->hub_id));
        assert_true(v->source[0]);
        for (int k = 0; (other = vp_zoo_variant_at(k)) && k < i; k++)
            assert_string_not_equal(other->hub_id, v->hub_id);
    }
    assert_null(vp_zoo_variant_at(-1));
}

static void a_hub_id_that_is_not_cached_names_the_built_in_model(void **state)
{
    vp_model *model;
    vp_err    err = {0};

    (void)state;
    setenv("HF_HUB_CACHE", in_test_dir("no-cache"), 1);
    assert_int_equal(vp_model_open("meta-llama/Llama-3.2-1B", &(vp_model_opts){0}, &model, &err),
                     VP_ERR_INPUT);
    assert_non_null(strstr(err.message, "hf download meta-llama/Llama-3.2-1B config.json"));
    assert_non_null(strstr(err.message, "built in: llama-3.2-1b"));
    err = (vp_err){0};
    assert_int_equal(vp_model_open("meta-llama/Llama-3.2-1B@v1", &(vp_model_opts){0}, &model, &err),
                     VP_ERR_INPUT);
    assert_null(strstr(err.message, "built in:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameter_counts_are_those_of_others),
        cmocka_unit_test(fields_are_those_of_the_published_files),
        cmocka_unit_test(no_field_is_there_that_nothing_reads),
        cmocka_unit_test(what_is_only_recorded_opens_as_a_config),
        cmocka_unit_test(names_are_lower_case_and_stand_once),
        cmocka_unit_test(llama_1_has_the_billions_of_its_paper),
        cmocka_unit_test(a_variant_stands_once_and_names_a_built_in_model),
        cmocka_unit_test(a_hub_id_that_is_not_cached_names_the_built_in_model),
    };

    return cmocka_run_group_tests(tests, make_test_dir, remove_test_dir);
}
