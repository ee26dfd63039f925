/* Parameters of real models against what transformers builds: tests/golden/families/ (see
 * tests/golden/README.md). */
#include "plan_test.h"

#include <ctype.h>
#include <math.h>

/* Whether the model has the tensor `name` with a shape like "768x2304". */
static bool has_tensor(const vp_model *model, const char *name, const char *shape)
{
    const vp_graph *g = &model->graph;

    for (int64_t i = 0; i < g->n_instances; i++) {
        const vp_template *t = &g->templates[g->instances[i].template_idx];
        for (int64_t k = 0; k < t->n_params; k++) {
            char full[160], text[64] = "";
            vp_param_full_name(&t->params[k], g->instances[i].index, full, sizeof full);
            if (strcmp(full, name) != 0)
                continue;
            for (int d = 0; d < t->params[k].rank; d++)
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", d ? "x" : "",
                         (long long)t->params[k].shape[d]);
            return strcmp(text, shape) == 0;
        }
    }
    return false;
}

/* Every row of the table is a parameter of the model, and the model has no others. */
static void check_tensors(const char *id, const vp_model *model)
{
    FILE   *f = fopen("tests/golden/families/tensors.csv", "r");
    char    line[512];
    int64_t n_rows = 0, n_params = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char *name, *shape, *tied, *brace;
        line[strcspn(line, "\r\n")] = '\0';
        char *p                     = line;
        if (strcmp(strsep(&p, ","), id) != 0)
            continue;
        name  = strsep(&p, ",");
        shape = strsep(&p, ",");
        tied  = p;
        if (*tied)
            continue; /* no memory of its own */
        brace        = strchr(name, '{');
        int64_t last = brace ? strtoll(strstr(brace, "..") + 2, NULL, 10) : 0;
        for (int64_t i = 0; i <= last; i++) {
            char full[300];
            if (brace)
                snprintf(full, sizeof full, "%.*s%lld%s", (int)(brace - name), name, (long long)i,
                         strchr(brace, '}') + 1);
            else
                snprintf(full, sizeof full, "%s", name);
            if (!has_tensor(model, full, shape))
                fail_msg("%s: no %s of shape %s", id, full, shape);
            n_rows++;
        }
    }
    fclose(f);
    for (int64_t i = 0; i < model->graph.n_instances; i++)
        n_params += model->graph.templates[model->graph.instances[i].template_idx].n_params;
    if (n_rows != n_params)
        fail_msg("%s: %lld tensors, transformers has %lld", id, (long long)n_params,
                 (long long)n_rows);
}

/* Of every row, the count and each tensor's name and shape, of the class that was counted. */
static void counts_names_and_shapes_are_those_of_transformers(void **state)
{
    FILE *f = fopen("tests/golden/families/counts.csv", "r");
    char  line[512];
    int   n_exact = 0;

    (void)state;
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f)) {
        char *p                     = line, path[300];
        line[strcspn(line, "\r\n")] = '\0';
        const char *id              = strsep(&p, ",");
        strsep(&p, ",");
        const char *class_name = strsep(&p, ",");
        int64_t     count      = strtoll(strsep(&p, ","), NULL, 10);
        vp_model   *model      = NULL;
        vp_err      refused    = {0};
        snprintf(path, sizeof path, "tests/golden/families/configs/%s", p);
        if (vp_model_open(path, &(vp_model_opts){.class_name = class_name}, &model, &refused) !=
            VP_OK)
            fail_msg("%s: %s (%s)", id, refused.message, refused.field);
        if (model->n_params != count)
            fail_msg("%s: %lld parameters, transformers has %lld", id, (long long)model->n_params,
                     (long long)count);
        check_tensors(id, model);
        n_exact++;
        vp_model_free(model);
    }
    fclose(f);
    assert_int_equal(n_exact, 70);
}

/* A config of this model type and these fields, with the sizes that its class has by default where
 * it does not say them: what vplan asks a file for. */
static const char *sized(const char *fields, char *text, size_t text_size)
{
    static const char *const sizes[][8] = {
        {"\"gpt2\"", "\"vocab_size\": 50257", "\"n_positions\": 1024"},
        {"\"llama\"", "\"hidden_size\": 4096", "\"intermediate_size\": 11008",
         "\"num_hidden_layers\": 32", "\"num_attention_heads\": 32", "\"vocab_size\": 32000"},
        {"\"qwen3\"", "\"intermediate_size\": 22016", "\"num_attention_heads\": 32",
         "\"vocab_size\": 151936"},
        {"\"phi3\"", "\"hidden_size\": 3072", "\"intermediate_size\": 8192",
         "\"num_hidden_layers\": 32", "\"num_attention_heads\": 32", "\"vocab_size\": 32064"},
        {"\"gpt_neox\"", "\"hidden_size\": 6144", "\"intermediate_size\": 24576",
         "\"num_hidden_layers\": 44", "\"num_attention_heads\": 64", "\"vocab_size\": 50432"},
        {"\"opt\"", "\"ffn_dim\": 3072", "\"num_attention_heads\": 12", "\"vocab_size\": 50272",
         "\"max_position_embeddings\": 2048"},
        {"\"bert\"", "\"hidden_size\": 768", "\"intermediate_size\": 3072",
         "\"num_hidden_layers\": 12", "\"num_attention_heads\": 12", "\"vocab_size\": 30522",
         "\"max_position_embeddings\": 512", "\"type_vocab_size\": 2"},
        {"\"roberta\"", "\"hidden_size\": 768", "\"intermediate_size\": 3072",
         "\"num_hidden_layers\": 12", "\"num_attention_heads\": 12", "\"vocab_size\": 50265",
         "\"max_position_embeddings\": 512", "\"type_vocab_size\": 2"},
    };
    size_t n = (size_t)snprintf(text, text_size, "{\"model_type\": %s", fields);

    for (size_t f = 0; f < sizeof sizes / sizeof *sizes; f++)
        for (int k = 1; k < 8 && strncmp(fields, sizes[f][0], strlen(sizes[f][0])) == 0; k++) {
            const char *size = sizes[f][k];
            char        key[64];
            if (!size)
                break;
            snprintf(key, sizeof key, "%.*s:", (int)(strchr(size, ':') - size), size);
            if (!strstr(fields, key))
                n += (size_t)snprintf(text + n, text_size - n, ", %s", size);
        }
    snprintf(text + n, text_size - n, "}");
    return text;
}

/* The tensors of heads and fields that no row has, as transformers 5.17 names them. */
static void heads_have_the_tensors_of_their_classes(void **state)
{
    static const struct {
        const char *config, *name, *shape;
        int64_t     n_tensors; /* outside the one block of each model */
    } cases[] = {
        {"\"gpt2\", \"architectures\": [\"GPT2ForSequenceClassification\"], \"num_labels\": 5, \"n_embd\": 8, \"n_head\": 2, \"n_layer\": 1",
         "score.weight", "5x8", 5},
        {"\"gpt2\", \"architectures\": [\"GPT2ForTokenClassification\"], \"n_embd\": 8, \"n_head\": 2, \"n_layer\": 1",
         "classifier.bias", "2", 6},
        {"\"gpt2\", \"architectures\": [\"GPT2ForTokenClassification\"], \"num_labels\": 3, \"id2label\": {\"0\": \"a\", \"1\": \"b\"}, \"n_embd\": 8, \"n_head\": 2, "
         "\"n_layer\": 1",
         "classifier.weight", "3x8", 6},
        {"\"gpt2\", \"hidden_size\": 8, \"num_attention_heads\": 2, \"num_hidden_layers\": 1, \"max_position_embeddings\": 30",
         "transformer.wpe.weight", "30x8", 4},
        {"\"gpt2\", \"n_embd\": 6, \"hidden_size\": 8, \"n_head\": 2, \"n_layer\": 1, \"n_positions\": 20, \"max_position_embeddings\": null",
         "transformer.wpe.weight", "20x8", 4},
        {"\"qwen3\", \"architectures\": [\"Qwen3ForTokenClassification\"], \"num_labels\": 9, \"hidden_size\": 8, \"num_hidden_layers\": 1",
         "score.bias", "9", 4},
        {"\"gpt_neox\", \"architectures\": [\"GPTNeoXForTokenClassification\"], \"hidden_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 1",
         "classifier.weight", "2x64", 5},
        {"\"opt\", \"architectures\": [\"OPTForSequenceClassification\"], \"word_embed_proj_dim\": 20, \"hidden_size\": 48, \"num_hidden_layers\": 1",
         "score.weight", "2x20", 7},
        {"\"bert\", \"architectures\": [\"BertForTokenClassification\"], \"num_hidden_layers\": 1",
         "classifier.weight", "2x768", 7},
        {"\"roberta\", \"architectures\": [\"RobertaForTokenClassification\"], \"num_hidden_layers\": 1",
         "classifier.bias", "2", 7},
        {"\"roberta\", \"architectures\": [\"RobertaForCausalLM\"], \"is_decoder\": true, \"num_hidden_layers\": 1",
         "lm_head.bias", "50265", 10},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char            text[800];
        vp_model       *model = model_of(sized(cases[i].config, text, sizeof text), 0);
        const vp_graph *g     = &model->graph;
        if (!has_tensor(model, cases[i].name, cases[i].shape))
            fail_msg("%s: no %s of shape %s", text, cases[i].name, cases[i].shape);
        assert_int_equal(g->templates[0].n_params + g->templates[2].n_params, cases[i].n_tensors);
        vp_model_free(model);
    }
}

/* The saved folder and whoever opens the plan's config again see the class that was asked for. */
static void the_class_that_was_asked_for_stands_in_the_config(void **state)
{
    vp_model *model, *again;

    (void)state;
    OK(vp_model_open("tests/golden/families/configs/FacebookAI__roberta-base.json",
                     &(vp_model_opts){.class_name = "RobertaModel"}, &model, err));
    assert_string_equal(json_string_value(json_object_get(model->config, "model_type")), "roberta");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(model->config, "architectures"), 0)),
        "RobertaModel");
    char *text = json_dumps(model->config, 0);
    again      = model_of(text, 0);
    assert_int_equal(again->n_params, model->n_params);
    free(text);
    vp_model_free(model);
    vp_model_free(again);
}

/* nn.Embedding(padding_idx) begins with a row of zeros: of tokens everywhere, of positions in
 * RoBERTa only. */
static void rows_of_padding_begin_as_zeros(void **state)
{
    static const struct {
        const char *config;
        int64_t     of_tokens, of_positions; /* 1 + the row, 0: none */
    } cases[] = {
        {"\"roberta\", \"pad_token_id\": 3", 4, 4},
        {"\"bert\", \"pad_token_id\": 3", 4, 0},
        {"\"opt\", \"hidden_size\": 768, \"num_hidden_layers\": 12", 2, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char            text[800];
        vp_model       *model  = model_of(sized(cases[i].config, text, sizeof text), 0);
        const vp_param *params = model->graph.templates[0].params;
        assert_int_equal(params[0].zero_row, cases[i].of_tokens);
        assert_int_equal(params[1].zero_row, cases[i].of_positions);
        assert_non_null(strstr(params[1].name, "position"));
        vp_model_free(model);
    }
}

/* From -vocabulary to vocabulary - 1, from the end where negative; another holds back no row. */
static void a_token_of_padding_is_one_of_the_vocabulary(void **state)
{
    static const struct {
        int pad, row; /* 1 + the row; 0: none */
    } cases[] = {{0, 1}, {99, 100}, {100, 0}, {-1, 100}, {-100, 1}, {-101, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[80], text[800];
        snprintf(more, sizeof more, "\"bert\", \"vocab_size\": 100, \"pad_token_id\": %d",
                 cases[i].pad);
        vp_model *model = model_of(sized(more, text, sizeof text), 0);
        assert_int_equal(model->graph.templates[0].params[0].zero_row, cases[i].row);
        vp_model_free(model);
    }
}

/* LongRoPE's short factors up to the length that the model was trained at, the long ones beyond. */
static void long_factors_begin_behind_the_original_length(void **state)
{
    vp_rope rope = {.type               = VP_ROPE_LONGROPE,
                    .dim                = 4,
                    .theta              = 10000,
                    .factor             = 1,
                    .attention_factor   = -1,
                    .original_positions = 64,
                    .max_positions      = 256,
                    .short_factor       = {1, 2},
                    .long_factor        = {4, 8}};
    double  inv_freq[2], scale;

    (void)state;
    /* 1 and 10000^-(2/4) = 0.01, over the factors */
    vp_rope_frequencies(&rope, 64, inv_freq, &scale);
    assert_float_equal(inv_freq[0], 1, 1e-6);
    assert_float_equal(inv_freq[1], 0.005, 1e-8);
    vp_rope_frequencies(&rope, 65, inv_freq, &scale);
    assert_float_equal(inv_freq[0], 0.25, 1e-6);
    assert_float_equal(inv_freq[1], 0.00125, 1e-8);
    assert_true(scale == 1.0);
}

/* GPT-2 divides the spread of every projection into the residual stream, also of the one that no
 * encoder feeds. */
static void cross_attention_is_drawn_like_attention(void **state)
{
    char      text[400];
    vp_model *model = model_of(
        sized(
            "\"gpt2\", \"n_embd\": 8, \"n_head\": 2, \"n_layer\": 8, \"add_cross_attention\": true",
            text, sizeof text),
        0);
    const vp_template *block = &model->graph.templates[1];
    int                n     = 0;

    (void)state;
    for (int64_t k = 0; k < block->n_params; k++)
        if (strstr(block->params[k].name, "c_proj.weight")) {
            assert_true(fabs(block->params[k].init_std - 0.02 / 4) <= 1e-12);
            n++;
        }
    assert_int_equal(n, 3);
    vp_model_free(model);
}

static void an_untied_head_is_one_more_table(void **state)
{
    vp_model *tied = tiny_model(&(tiny){.n_embd = 8, .n_layer = 1, .n_head = 2, .vocab = 30}, 0);
    vp_model *own =
        tiny_model(&(tiny){.n_embd = 8, .n_layer = 1, .n_head = 2, .vocab = 30, .untied = true}, 0);

    (void)state;
    assert_int_equal(own->n_params - tied->n_params, 8 * 30);
    vp_model_free(tied);
    vp_model_free(own);
}

/* What is no size; what follows from other fields is none of them, nor is a size taken from
 * the class. */
static void defaults_taken_are_listed_and_sizes_are_asked_for(void **state)
{
    static const struct {
        const char *fields, *needed[8];
    } families[] = {
        {"\"gpt2\"", {"n_embd", "n_layer", "n_head", "vocab_size", "n_positions"}},
        {"\"llama\"",
         {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
          "vocab_size"}},
        {"\"gpt_neox\"",
         {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
          "vocab_size"}},
        {"\"opt\"",
         {"hidden_size", "ffn_dim", "num_hidden_layers", "num_attention_heads", "vocab_size",
          "max_position_embeddings"}},
        {"\"bert\"",
         {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
          "vocab_size", "max_position_embeddings", "type_vocab_size"}},
    };

    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (int left_out = 0; left_out < 8; left_out++) {
            char   text[400];
            size_t n =
                (size_t)snprintf(text, sizeof text, "{\"model_type\": %s", families[f].fields);
            vp_json_doc *doc;
            vp_model    *model;
            vp_err       refused = {0};
            bool         eps = false, derived = false;
            const char  *without = families[f].needed[left_out];
            for (int k = 0; k < 8 && families[f].needed[k]; k++)
                if (k != left_out)
                    n += (size_t)snprintf(text + n, sizeof text - n, ", \"%s\": %d",
                                          families[f].needed[k],
                                          strstr(families[f].needed[k], "head") ? 4 : 64);
            snprintf(text + n, sizeof text - n, "}");
            OK(vp_json_parse("small", text, (int64_t)strlen(text), &doc, err));
            vp_json_node root = vp_json_root(doc);
            vp_status    st =
                vp_model_from_config("small", &root, &(vp_model_opts){0}, &model, &refused);
            assert_int_equal(st, without ? VP_ERR_INPUT : VP_OK);
            if (without)
                assert_string_equal(refused.field, without);
            for (int64_t i = 0; st == VP_OK && i < model->n_assumptions; i++) {
                eps |= strstr(model->assumptions[i], "eps") != NULL;
                derived |= strstr(model->assumptions[i], "head_dim") ||
                           strstr(model->assumptions[i], "num_key_value_heads") ||
                           strstr(model->assumptions[i], "n_inner");
            }
            assert_true(without || !derived);
            if (!without && f == 1)
                assert_true(eps);
            vp_model_free(model);
            vp_json_doc_free(doc);
        }
}

static void other_families_are_refused_by_name(void **state)
{
    vp_json_doc *doc;
    vp_model    *model;
    vp_err       refused = {0};
    const char   text[]  = "{\"model_type\": \"mamba\", \"hidden_size\": 8}";

    (void)state;
    OK(vp_json_parse("other", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    assert_int_equal(vp_model_from_config("other", &root, &(vp_model_opts){0}, &model, &refused),
                     VP_ERR_INPUT);
    assert_non_null(strstr(refused.message, "mamba"));
    assert_string_equal(refused.field, "model_type");
    vp_json_doc_free(doc);
}

/* Rotary fields that transformers 5.17 reads otherwise than their names say; each was found by a
 * run against it. */
static void rotary_fields_are_read_as_the_class_reads_them(void **state)
{
    static const struct {
        const char *config;
        int64_t     dim, original;
        double      theta; /* 0: refused */
    } cases[] = {
        {"\"llama\", \"hidden_size\": 40, \"num_attention_heads\": 2, \"partial_rotary_factor\": 0.5",
         20, 2048, 1e4},
        {"\"llama\", \"hidden_size\": 40, \"num_attention_heads\": 2, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, "
         "\"partial_rotary_factor\": 0.5}",
         0, 0, 0},
        {"\"llama\", \"rope_scaling\": {}, \"rope_parameters\": {\"rope_theta\": 500.0}", 128, 2048,
         500},
        {"\"gpt_neox\", \"rope_theta\": 5e5, \"partial_rotary_factor\": 0.5", 24, 2048, 1e4},
        {"\"gpt_neox\", \"rotary_emb_base\": 700, \"rotary_pct\": 1.0", 96, 2048, 700},
        {"\"gpt_neox\", \"rope_parameters\": {\"rope_theta\": 600.0, \"partial_rotary_factor\": 0.5}, \"rotary_pct\": 1.0",
         48, 2048, 600},
        {"\"phi3\", \"partial_rotary_factor\": 0.5", 48, 4096, 1e4},
        {"\"phi3\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", 0, 0, 0},
        {"\"phi3\", \"hidden_size\": 8, \"num_attention_heads\": 2, \"rope_scaling\": {\"type\": \"su\", \"original_max_position_embeddings\": 64, "
         "\"short_factor\": [1, 1], \"long_factor\": [2, 2]}",
         4, 4096, 1e4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char         text[800];
        vp_json_doc *doc;
        vp_model    *model;
        vp_err       refused = {0};

        sized(cases[i].config, text, sizeof text);
        OK(vp_json_parse("rotary", text, (int64_t)strlen(text), &doc, err));
        vp_json_node root = vp_json_root(doc);
        vp_status st = vp_model_from_config("rotary", &root, &(vp_model_opts){0}, &model, &refused);
        assert_int_equal(st, cases[i].theta == 0 ? VP_ERR_INPUT : VP_OK);
        if (st == VP_OK) {
            assert_int_equal(model->graph.ropes[0].dim, cases[i].dim);
            assert_int_equal(model->graph.ropes[0].original_positions, cases[i].original);
            assert_true(model->graph.ropes[0].theta == cases[i].theta);
        }
        vp_model_free(model);
        vp_json_doc_free(doc);
    }
}

/* The middle of YaRN's ramp, where a bound that is no whole number is rounded to fp32 before the
 * subtraction: transformers 5.17's frequencies. */
static void yarn_ramps_in_single_precision(void **state)
{
    const double want[] = {1, 0.000486439763, 4.96062694e-06};
    double       inv_freq[VP_ROPE_MAX_PAIRS], scale;
    char         text[800];
    vp_model    *model = model_of(
           sized(
               "\"llama\", \"hidden_size\": 6, \"num_attention_heads\": 1, \"max_position_embeddings\": 4096, \"rope_theta\": 500000.0, "
                  "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32.0, \"original_max_position_embeddings\": 512, \"truncate\": false}",
               text, sizeof text),
           0);

    (void)state;
    assert_int_equal(model->graph.ropes[0].dim, 6);
    vp_rope_frequencies(&model->graph.ropes[0], 64, inv_freq, &scale);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(inv_freq[i] - want[i]) <= 3e-7 * want[i]);
    assert_true(fabs(scale - 1.3465735902799727) <= 1e-15);
    vp_model_free(model);
}

/* Llama 3's scaling of a head of 16, base 1e4: waves of 2 pi 10^(i / 2) positions, 6.3, 19.9, 62.8 and
 * longer. 64 positions before, factors 2 and 8: kept below 64 / 8, a quarter above 64 / 2, and between, at
 * 19.9, a share of s = (64 sqrt(0.1) / 2 pi - 2) / 6 kept: (1 - s) / 4 + s of sqrt(0.1). */
static void llama3_scales_long_waves_and_keeps_short_ones(void **state)
{
    const double middle = sqrt(0.1), s = (64 * middle / (2 * 3.14159265358979323846) - 2) / 6;
    const double want[] = {1, middle * ((1 - s) / 4 + s), 0.1 / 4, 0.1 * middle / 4, 0.01 / 4};
    double       inv_freq[VP_ROPE_MAX_PAIRS], scale;
    char         text[800];
    vp_model    *model = model_of(
           sized(
               "\"llama\", \"hidden_size\": 16, \"num_attention_heads\": 1, \"max_position_embeddings\": 256, \"rope_theta\": 10000.0, "
                  "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 4.0, \"low_freq_factor\": 2.0, \"high_freq_factor\": 8.0, "
                  "\"original_max_position_embeddings\": 64}",
               text, sizeof text),
           0);

    (void)state;
    vp_rope_frequencies(&model->graph.ropes[0], 64, inv_freq, &scale);
    for (int i = 0; i < 5; i++)
        assert_true(fabs(inv_freq[i] - want[i]) <= 3e-7 * want[i]);
    assert_true(scale == 1);
    vp_model_free(model);
}

static void a_dimension_is_a_product_of_symbols(void **state)
{
    vp_dim  d = vp_dim_times(vp_dim_times(vp_dim_symbol(VP_SYM_BATCH), vp_dim_symbol(VP_SYM_SEQ)),
                             vp_dim_const(12));
    int64_t symbols[]   = {3, 100, 1, 1};
    int64_t too_large[] = {INT64_C(1) << 40, INT64_C(1) << 40, 1, 1};

    (void)state;
    assert_int_equal(vp_dim_eval(&d, symbols), 3600);
    assert_true(vp_overflowed(vp_dim_eval(&d, too_large)));
}

/* Each by the name of its model_type, between two characters that no name has. */
static void every_family_stands_in_the_documents(void **state)
{
    static const char *const documents[] = {"README.md", "docs/vplan.1.in", "docs/vplan.1"};
    static const char *const families[]  = {
#define X(name) #name,
        VP_FAMILY_TABLE(X)
#undef X
    };

    (void)state;
    for (size_t d = 0; d < sizeof documents / sizeof *documents; d++) {
        FILE  *f = fopen(documents[d], "r");
        char   text[200000];
        size_t n;

        assert_non_null(f);
        n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        assert_true(n > 0 && n < sizeof text - 1);
        text[n]          = '\0';
        const char *list = strstr(text, "Families: ");
        assert_non_null(list);
        for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
            size_t      length = strlen(families[i]);
            const char *at     = list;
            while ((at = strstr(at, families[i])) &&
                   (!strchr(" \n", at[-1]) || !strchr(",; \n", at[length])))
                at++;
            if (!at || at > list + 400)
                fail_msg("%s does not name the family %s", documents[d], families[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_stands_in_the_documents),
        cmocka_unit_test(counts_names_and_shapes_are_those_of_transformers),
        cmocka_unit_test(heads_have_the_tensors_of_their_classes),
        cmocka_unit_test(the_class_that_was_asked_for_stands_in_the_config),
        cmocka_unit_test(rows_of_padding_begin_as_zeros),
        cmocka_unit_test(a_token_of_padding_is_one_of_the_vocabulary),
        cmocka_unit_test(long_factors_begin_behind_the_original_length),
        cmocka_unit_test(cross_attention_is_drawn_like_attention),
        cmocka_unit_test(an_untied_head_is_one_more_table),
        cmocka_unit_test(defaults_taken_are_listed_and_sizes_are_asked_for),
        cmocka_unit_test(other_families_are_refused_by_name),
        cmocka_unit_test(rotary_fields_are_read_as_the_class_reads_them),
        cmocka_unit_test(yarn_ramps_in_single_precision),
        cmocka_unit_test(llama3_scales_long_waves_and_keeps_short_ones),
        cmocka_unit_test(a_dimension_is_a_product_of_symbols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
