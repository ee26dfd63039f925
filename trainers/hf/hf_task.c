#include "trainers/hf/hf_task.h"

#include "trainers/hf/hf_request.h"

#include <string.h>

/* The task that a class of transformers has by its name; NULL: another. */
const char *vp_hf_task_of_class(const char *name)
{
    static const char *const known[][2] = {
        {"ForCausalLM", "clm"},
        {"LMHeadModel", "clm"},
        {"ForMaskedLM", "mlm"},
        {"ForConditionalGeneration", "seq2seq"},
        {"MTModel", "seq2seq"}, /* Marian's */
        {"ForImageClassification", "imgcls"},
        {"ForSequenceClassification", "seqcls"},
        {"ForTokenClassification", "tokcls"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *at = strstr(name, known[i][0]);
        if (at && strlen(at) == strlen(known[i][0]))
            return known[i][1];
    }
    return NULL;
}

bool vp_hf_has_classes(const char *task)
{
    static const char *const of_classes[] = {"seqcls", "tokcls", "imgcls"};

    for (size_t i = 0; i < sizeof of_classes / sizeof *of_classes; i++)
        if (strcmp(of_classes[i], task) == 0)
            return true;
    return false;
}

/* peft trains the head of classes whole beside adapters (task_type SEQ_CLS or TOKEN_CLS; modules_to_save where there is no
 * such type). */
bool vp_hf_trains_head(const vp_hf_request *q, const char *task)
{
    return vp_hf_has_classes(task) && vp_hf_has_lora(q);
}

/* Of a classifier what its loss is: of one class of several, or the squared error of one value. */
vp_status vp_hf_check_problem(const vp_model *model, const vp_hf_request *q, bool is_one,
                              vp_err *err)
{
    const char *said      = json_string_value(json_object_get(model->config, "problem_type"));
    const char *precision = vp_hf_computed_precision(q);
    bool        is_half   = strcmp(precision, "bf16") == 0 || strcmp(precision, "fp16") == 0;

    if (said && strcmp(said, is_one ? "regression" : "single_label_classification") != 0)
        return VP_FAIL_AT(err, VP_ERR_INPUT, model->name, 0, "problem_type",
                          "a classifier was recorded with one label a sample, not with %s%s", said,
                          is_one ? " of one class" : "");
    if (is_one && is_half)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "a regression in %s does not run: the error of values in 16 bits and labels "
                       "in fp32 has no backward pass (\"Found dtype Float\" in torch 2.11); in "
                       "bf16-amp it runs",
                       q->precision);
    return VP_OK;
}

vp_status vp_hf_check_head(const vp_model *model, const vp_hf_request *q, const char *task,
                           vp_err *err)
{
    if (strcmp(model->family, "distilbert") != 0 || strcmp(task, "seqcls") != 0 ||
        strcmp(q->lora.targets, "all-linear") != 0)
        return VP_OK;
    return VP_FAIL(err, VP_ERR_INPUT,
                   "targets=all-linear of a distilbert with a head of classes does not run: peft "
                   "puts an adapter on pre_classifier, which it is to train whole (TypeError in "
                   "0.21.2); name them: targets=q_lin+v_lin");
}

bool vp_hf_lacks_padding(const vp_model *model)
{
    static const char *const families[] = {"llama", "mistral", "qwen2", "qwen3"};

    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i], model->family) == 0)
            return !json_is_integer(vp_model_field(model, "pad_token_id"));
    return false;
}

/* Encoders, whose classes are masked models' and classifiers'. */
static bool is_encoder(const vp_model *model)
{
    static const char *const encoders[] = {"albert",     "bert",    "deberta-v2",
                                           "distilbert", "electra", "modernbert",
                                           "mpnet",      "roberta", "xlm-roberta"};

    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++)
        if (strcmp(encoders[i], model->family) == 0)
            return true;
    return false;
}

/* Masked models, those of two stacks and those of images are none of TRL's; of encoders with a head of classes SFTTrainer makes
 * none either. */
vp_status vp_hf_refuse_other_heads(const vp_model *model, const vp_hf_request *q, vp_err *err)
{
    static const char *const others[] = {"mlm", "seq2seq", "imgcls"};
    const char *name = model->class_name, *task = name ? vp_hf_task_of_class(name) : NULL;
    bool        refuses = task && is_encoder(model) && !vp_hf_is_reward(q);

    for (size_t i = 0; task && i < sizeof others / sizeof *others; i++)
        refuses |= strcmp(task, others[i]) == 0 && !vp_model_field(model, "vision_config");
    if (!refuses)
        return VP_OK;
    return VP_FAIL(err, VP_ERR_INPUT,
                   "TRL trains models that predict the next token, and %s does not; "
                   "--trainer hf trains it",
                   name);
}
