/* tests/plan_test.h: models, plans and training runs for tests, in a few words.
 *     vp_model *model = tiny_model(&(tiny){.n_embd = 24, .n_layer = 3, .n_head = 3, .vocab = 61},
 *     0.0);
 *     vp_plan  *plan  = plan_of(model, (vp_scenario){.seq = 16, .global_batch = 4, .micro_batch =
 *              2}, VP_RECOMPUTE_MLP);
 *     trained   t     = train(plan, 3, 1, false);
 * Whatever fails stops the test with the error's text. */
#ifndef VP_TESTS_PLAN_TEST_H
#define VP_TESTS_PLAN_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checked.h"
#include "base/units.h"
#include "models/family.h"
#include "planner/planner.h"
#include "runtime/runtime.h"
#include "tests/backend_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) \
    do { \
        vp_err  err_ = {0}; \
        vp_err *err  = &err_; \
        if ((call) != VP_OK) \
            fail_msg("%s: %s (%s %s)", #call, err->message, err->file, err->field); \
    } while (0)

typedef struct tiny {
    int64_t n_embd, n_layer, n_head, vocab, n_inner, n_positions;
    bool    untied;
} tiny;

static inline vp_model *tiny_model(const tiny *t, double dropout)
{
    vp_json_doc *doc;
    vp_model    *model = NULL;
    char         text[512], inner[64] = "";

    if (t->n_inner)
        snprintf(inner, sizeof inner, "\"n_inner\": %lld,", (long long)t->n_inner);
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], %s \"n_embd\": %lld, \"n_layer\": %lld, \"n_head\": %lld, "
        "\"vocab_size\": %lld, \"n_positions\": %lld, \"tie_word_embeddings\": %s}",
        inner, (long long)t->n_embd, (long long)t->n_layer, (long long)t->n_head,
        (long long)t->vocab, (long long)(t->n_positions ? t->n_positions : 512),
        t->untied ? "false" : "true");
    OK(vp_json_parse("tiny", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    OK(vp_model_from_config("tiny", &root, &(vp_model_opts){.dropout = dropout}, &model, err));
    vp_json_doc_free(doc);
    return model;
}

/* A model from the text of its config. */
static inline vp_model *model_of(const char *text, double dropout)
{
    vp_json_doc *doc;
    vp_model    *model = NULL;

    OK(vp_json_parse("config", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    vp_err       bad  = {0};
    if (vp_model_from_config("config", &root, &(vp_model_opts){.dropout = dropout}, &model, &bad) !=
        VP_OK)
        fail_msg("%s: %s (%s)", text, bad.message, bad.field);
    vp_json_doc_free(doc);
    return model;
}

/* Precisions that this backend trains in; TF32 is the last of them. */
static inline int n_precisions(void)
{
    return test_backend()->compute_capability >= VP_TF32_CAPABILITY ? VP_N_PRECISIONS
                                                                    : VP_PREC_TF32;
}

/* Every block recomputes the ops of `set`. */
static inline vp_plan *plan_with(const vp_model *model, vp_scenario s, uint64_t set)
{
    int       compute_capability = test_backend()->compute_capability;
    vp_device device             = {.name               = "cpu",
                                    .is_cpu             = true,
                                    .fp32_flop_per_s    = 1e11,
                                    .memory_bytes_per_s = 1e10,
                                    .usable_bytes       = INT64_MAX};
    vp_cost   cost               = {.device = &device};
    vp_plan  *plan               = NULL;

    if (compute_capability) {
        strcpy(device.name, "card");
        device.is_cpu             = false;
        device.compute_capability = compute_capability;
    }
    if (!s.n_runs)
        vp_scenario_set_all(&s, model, set);
    OK(vp_assemble(model, &s, &cost, &plan, err));
    return plan;
}

static inline vp_plan *plan_of(const vp_model *model, vp_scenario s, vp_recompute kind)
{
    return plan_with(model, s, vp_recompute_set(model, kind));
}

/* What training left. */
typedef struct trained {
    float           *params;
    int64_t          n_params;
    vp_step_result   last;
    vp_memory_report memory;
} trained;

/* Of text most tokens, of classes those whose place it is. */
static inline bool has_label(const vp_plan *plan, int64_t at, uint64_t drawn)
{
    int64_t seq = plan->buckets[0].seq;

    if (plan->n_classes && plan->label_place != VP_LABEL_AT_EACH)
        return at == (plan->label_place == VP_LABEL_AT_FIRST ? 0 : seq - 1);
    return drawn % 11 != 0;
}

/* n_steps on random tokens, token types and lengths: the same for every plan of one model,
 * sequence and global batch. */
static inline trained train_with(const vp_plan *plan, int64_t n_steps, int threads,
                                 vp_run_opts opts)
{
    const vp_backend *backend = test_backend();
    int64_t           n = vp_plan_tokens(plan), seq = plan->buckets[0].seq;
    int32_t          *tokens = malloc((size_t)n * 4), *labels = malloc((size_t)n * 4),
            *types      = malloc((size_t)n * 4);
    int32_t    *lengths = malloc((size_t)plan->global_batch * 4);
    vp_batch    batch   = {.tokens      = tokens,
                           .labels      = labels,
                           .token_types = plan->types_idx >= 0 ? types : NULL,
                           .lengths     = plan->lengths_idx >= 0 ? lengths : NULL};
    trained     t       = {.params = malloc((size_t)plan->n_params * sizeof(float))};
    vp_runtime *rt;

    opts.n_total_steps = n_steps;
    opts.seed          = -1;
    backend->set_threads(threads);
    OK(vp_runtime_new(plan, backend, &opts, &rt, err));
    OK(vp_runtime_draw(rt, err));
    for (int64_t s = 0; s < n_steps; s++) {
        for (int64_t i = 0; i < n; i++) {
            uint64_t x = (uint64_t)(s * n + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
            tokens[i]  = (int32_t)((x >> 33) % (uint64_t)plan->vocab_size);
            labels[i]  = has_label(plan, i % seq, x >> 20)
                             ? (int32_t)((x >> 7) % (uint64_t)vp_plan_n_labels(plan))
                             : VP_IGNORE_LABEL;
            types[i] =
                (int32_t)((x >> 41) % (uint64_t)(plan->n_token_types ? plan->n_token_types : 1));
            lengths[i / seq] = (int32_t)(seq - (x >> 50) % (uint64_t)(seq / 2 + 1));
        }
        OK(vp_runtime_step(rt, &batch, &t.last, err));
    }
    for (int64_t i = 0; i < vp_runtime_n_params(rt); i++) {
        vp_runtime_param p;
        vp_runtime_param_at(rt, i, &p);
        OK(vp_runtime_param_get(&p, 0, p.param->n_elements, t.params + t.n_params, err));
        t.n_params += p.param->n_elements;
    }
    vp_runtime_memory(rt, &t.memory);
    vp_runtime_free(rt);
    free(tokens);
    free(labels);
    free(types);
    free(lengths);
    return t;
}

static inline trained train(const vp_plan *plan, int64_t n_steps, int threads, bool verify)
{
    return train_with(plan, n_steps, threads,
                      (vp_run_opts){.verify = verify && test_backend()->host_memory});
}

/* A small generator with a seed that a failure can print. */
typedef struct rng {
    uint64_t state;
} rng;

static inline int64_t pick(rng *r, int64_t n)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((r->state >> 33) % (uint64_t)n);
}

/* Blocks in one to three runs, each recomputing any ops: one of the 2^n sets of a library, or a
 * kind. */
static inline vp_plan *random_plan(rng *r, const vp_model *model, vp_scenario s)
{
    int64_t left = model->graph.n_instances - 2;

    while (left > 0) {
        int64_t n          = s.n_runs == 2 ? left : 1 + pick(r, left);
        s.runs[s.n_runs++] = (vp_block_run){
            vp_recompute_set(model, VP_RECOMPUTE_FULL) & (uint64_t)pick(r, 1 << 20), n, 1, 0};
        for (int64_t m = 2 + pick(r, 3); pick(r, 4) == 0 && m <= n && m <= vp_max_segment(model);) {
            n -= n % m; /* some of them as segments */
            s.runs[s.n_runs - 1] = (vp_block_run){UINT64_MAX, n, m, 0};
            break;
        }
        left -= n;
    }
    return plan_with(model, s, 0);
}

/* A small config of family `which` (of N_FAMILIES), its switches drawn: grouped heads, ties,
 * biases, windows, odd widths. */
enum {
#define X(name) FAMILY_##name,
    VP_FAMILY_TABLE(X) N_FAMILIES
#undef X
};

static inline const vp_family *family_of(int which)
{
    static const vp_family *const families[N_FAMILIES] = {
#define X(name) &vp_family_##name,
        VP_FAMILY_TABLE(X)
#undef X
    };
    return families[which];
}

/* One of its classes: half the time the language model, which is the first. */
static inline void random_class(rng *r, int which, char *buf, size_t buf_size)
{
    const vp_class *classes = family_of(which)->classes;
    const char     *first = classes[0].name, *name = strstr(first, "LMHeadModel");
    bool            encoder, tokens                = false;

    for (const vp_class *c = classes; c->name; c++)
        tokens |= c->head == VP_HEAD_TOKEN;
    name         = name ? name : strstr(first, "ForCausalLM");
    encoder      = !name;
    name         = name ? name : strstr(first, "ForMaskedLM");
    int     n    = (int)(name - first);
    int64_t kind = pick(r, encoder ? 8 : 4);

    if (kind == 0)
        name = "ForSequenceClassification";
    if (kind == 1 && tokens)
        name = "ForTokenClassification";
    if (encoder && kind == 2)
        name = "Model";
    if (encoder && kind == 3)
        name = which == FAMILY_bert ? "LMHeadModel" : "ForCausalLM";
    snprintf(buf, buf_size, "%.*s%s", n, first, name);
}

static inline const char *random_config(rng *r, int which, char *buf, size_t buf_size)
{
    int64_t kv = 1 + pick(r, 3), heads = kv * (1 + pick(r, 3)), d = 2 * (2 + pick(r, 7)),
            layers = 1 + pick(r, 4), hidden = heads * d;
    int64_t     inner = 8 + pick(r, 60), vocab = 17 + pick(r, 200), window = 2 + pick(r, 30);
    const char *yes[2]  = {"false", "true"};
    const char *name    = family_of(which)->model_type;
    bool        encoder = which == FAMILY_bert || which == FAMILY_roberta;
    char        class_name[80];
    int         n = snprintf(buf, buf_size, "{\"model_type\": \"%s\", \"vocab_size\": %lld, ", name,
                             (long long)vocab);

#define MORE(...) (n += snprintf(buf + n, buf_size - (size_t)n, __VA_ARGS__))
    if (which == FAMILY_gpt2) {
        MORE(
            "\"n_embd\": %lld, \"n_layer\": %lld, \"n_head\": %lld, \"n_inner\": %lld, \"n_positions\": 512",
            (long long)hidden, (long long)layers, (long long)heads, (long long)inner);
    } else {
        MORE(
            "\"hidden_size\": %lld, \"num_hidden_layers\": %lld, \"num_attention_heads\": %lld, \"%s\": %lld, \"max_position_embeddings\": 520, "
            "\"tie_word_embeddings\": %s",
            (long long)hidden, (long long)layers, (long long)heads,
            which == FAMILY_opt ? "ffn_dim" : "intermediate_size", (long long)inner,
            yes[pick(r, 2)]);
        if (which != FAMILY_opt && which != FAMILY_gpt_neox && !encoder)
            MORE(", \"num_key_value_heads\": %lld, \"head_dim\": %lld", (long long)kv,
                 (long long)d);
        if (which == FAMILY_llama)
            MORE(", \"attention_bias\": %s, \"mlp_bias\": %s", yes[pick(r, 2)], yes[pick(r, 2)]);
        if (which == FAMILY_mistral || which == FAMILY_gemma2 || which == FAMILY_phi3)
            MORE(", \"sliding_window\": %lld", (long long)window);
        if (which == FAMILY_qwen2 || which == FAMILY_qwen3)
            MORE(
                ", \"use_sliding_window\": %s, \"sliding_window\": %lld, \"max_window_layers\": %lld",
                yes[pick(r, 2)], (long long)window, (long long)pick(r, 4));
        if (which == FAMILY_gemma2)
            MORE(
                ", \"attn_logit_softcapping\": 2.0, \"final_logit_softcapping\": 3.0, \"query_pre_attn_scalar\": 20");
        if (which == FAMILY_opt)
            MORE(
                ", \"do_layer_norm_before\": %s, \"enable_bias\": %s, \"layer_norm_elementwise_affine\": %s, \"word_embed_proj_dim\": %lld",
                yes[pick(r, 2)], yes[pick(r, 2)], yes[pick(r, 2)],
                (long long)(pick(r, 2) ? hidden : 2 * d));
        if (which == FAMILY_gpt_neox)
            MORE(", \"use_parallel_residual\": %s, \"rotary_pct\": %s", yes[pick(r, 2)],
                 d % 4 ? "1.0" : "0.5");
        if (which == FAMILY_gemma2 || which == FAMILY_gemma)
            MORE(", \"pad_token_id\": 0");
        if (encoder)
            MORE(", \"type_vocab_size\": 2");
    }
    random_class(r, which, class_name, sizeof class_name);
    MORE(", \"architectures\": [\"%s\"], \"num_labels\": %lld", class_name,
         (long long)(2 + pick(r, 7)));
    if (strstr(class_name, "BertLMHead") || strstr(class_name, "RobertaForCausal"))
        MORE(", \"is_decoder\": true");
    if (which == FAMILY_gpt2 || strstr(class_name, "BertLMHead") ||
        strstr(class_name, "RobertaForCausal"))
        MORE(", \"add_cross_attention\": %s", yes[pick(r, 2)]);
    MORE("}");
#undef MORE
    return buf;
}

/* Of an answer's list, where it may not be copied whole. */
static inline vp_scenario listed_scenario(const vp_candidate *listed)
{
    vp_candidate c;

    vp_candidate_copy(&c, listed);
    return c.scenario;
}

static inline bool long_run(void)
{
    return getenv("VPLAN_LONG") != NULL;
}

/* Of another plan's file, or of this one's: the same steps, whichever lists stand there once. */
static inline void same_steps(const vp_plan *a, const vp_plan *b)
{
    for (int64_t u = 0; u < a->n_buckets; u++)
        for (int64_t p = 0; p < a->buckets[u].n_programs; p++)
            for (int pass = 0; pass < VP_N_PASSES; pass++) {
                const vp_program *x = &a->buckets[u].programs[p], *y = &b->buckets[u].programs[p];
                assert_int_equal(x->n_steps[pass], y->n_steps[pass]);
                for (int64_t i = 0; i < x->n_steps[pass]; i++) {
                    const vp_step *s = &x->steps[pass][i], *t = &y->steps[pass][i];
                    assert_int_equal(s->kernel, t->kernel);
                    assert_string_equal(s->name, t->name);
                    assert_memory_equal(s->ints, t->ints, sizeof s->ints);
                    assert_true(s->seconds == t->seconds && s->stream == t->stream &&
                                s->accumulate == t->accumulate && s->first_only == t->first_only &&
                                s->later_only == t->later_only);
                    if (vp_kernel_info_of(s->kernel)->random)
                        assert_int_equal(s->rng_id, t->rng_id);
                    for (int k = 0; k < vp_step_n_operands(s); k++)
                        assert_true(s->args[k].space == t->args[k].space &&
                                    (s->args[k].space == VP_SPACE_NONE ||
                                     (s->args[k].idx == t->args[k].idx &&
                                      s->args[k].ahead == t->args[k].ahead &&
                                      s->args[k].offset_bytes == t->args[k].offset_bytes)));
                }
            }
}

#endif
