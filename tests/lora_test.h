/* tests/lora_test.h: models with adapters.
 *     vp_lora   l;
 *     vp_model *model = random_adapted(&r, which, &l);     its recipe's lora is l
 * Whatever fails stops the test. */
#ifndef VP_TESTS_LORA_TEST_H
#define VP_TESTS_LORA_TEST_H

#include "plan_test.h"

#include "models/lora.h"

static inline vp_lora lora_of(int64_t rank, double alpha, const char *targets)
{
    vp_lora l = {.rank = rank, .alpha = alpha};

    snprintf(l.targets, sizeof l.targets, "%s", targets);
    return l;
}

static inline vp_status try_model(const char *text, const vp_lora *lora, vp_model **model,
                                  vp_err *err)
{
    vp_json_doc *doc;
    vp_status    st = VP_OK;

    VP_TRY(vp_json_parse("config", text, (int64_t)strlen(text), &doc, err));
    vp_json_node root = vp_json_root(doc);
    st = vp_model_from_config("config", &root, &(vp_model_opts){.lora = lora}, model, err);
    vp_json_doc_free(doc);
out:
    return st;
}

/* A model of any family with a language model's head, and what its linear layers are called. */
static inline vp_model *random_adapted(rng *r, int which, vp_lora *l)
{
    char      config[800], *at;
    vp_model *model = NULL;

    do {
        random_config(r, which, config, sizeof config);
        at = strstr(config, "ForSequence");
    } while (at || strstr(config, "ForToken"));
    *l         = lora_of(1 + pick(r, 9), (double)(1 + pick(r, 30)), "all-linear");
    l->rslora  = pick(r, 2);
    l->dropout = pick(r, 2) ? 0.25 : 0;
    OK(try_model(config, l, &model, err));
    return model;
}

static inline bool is_decoder(int which)
{
    return which != FAMILY_bert && which != FAMILY_roberta;
}

#endif
