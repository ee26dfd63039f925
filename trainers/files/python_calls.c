/* trainers/files/python_calls.c: what calls in a script of Python are about, by their names, and what is left of a script once
 * all of it was read. */
#include "trainers/files/python_calls.h"

#include <ctype.h>
#include <string.h>

bool vp_python_ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whether a call makes the arguments of a trainer, of which a script has one as a rule. */
bool vp_python_makes_arguments(const char *call)
{
    static const char *const ends[] = {"Arguments",
                                       "SFTConfig",
                                       "DPOConfig",
                                       "GRPOConfig",
                                       "RewardConfig",
                                       "KTOConfig",
                                       "ORPOConfig",
                                       "CPOConfig",
                                       "PPOConfig",
                                       "RLOOConfig",
                                       "GKDConfig",
                                       "NashMDConfig",
                                       "XPOConfig",
                                       "PRMConfig",
                                       "LoraConfig",
                                       "BitsAndBytesConfig",
                                       NULL};

    for (int i = 0; call && ends[i]; i++)
        if (vp_python_ends_in(call, ends[i]))
            return true;
    return false;
}

bool vp_python_trains(const char *call)
{
    bool is_scripts =
        vp_python_ends_in(call, "Arguments") && !vp_python_ends_in(call, "TrainingArguments");

    return vp_python_makes_arguments(call) && !is_scripts &&
           !vp_python_ends_in(call, "LoraConfig") && !vp_python_ends_in(call, "BitsAndBytesConfig");
}

bool vp_python_is_unsloths(const char *call)
{
    static const char *const classes[] = {"Language", "Vision",  "Text",   "Base",   "",
                                          "Llama",    "Mistral", "Gemma",  "Gemma2", "Qwen2",
                                          "Qwen3",    "Cohere",  "Granite"};

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        size_t n = strlen(classes[i]);
        if (strncmp(call, "Fast", 4) == 0 && strncmp(call + 4, classes[i], n) == 0 &&
            strncmp(call + 4 + n, "Model", 5) == 0 && !isalnum((unsigned char)call[4 + n + 5]))
            return true;
    }
    return false;
}

bool vp_python_tells_settings(const char *call)
{
    return vp_python_is_unsloths(call) || vp_python_makes_arguments(call) ||
           vp_python_ends_in(call, ".Config") || vp_python_ends_in(call, "Trainer");
}

/* A call that loads a model of transformers; tokenizers and images' processors are loaded alike. */
bool vp_python_loads_model(const char *call)
{
    static const char *const classes[] = {"AutoModel",
                                          "ForCausalLM",
                                          "LMHeadModel",
                                          "ForMaskedLM",
                                          "ForConditionalGeneration",
                                          "ForSequenceClassification",
                                          "ForTokenClassification",
                                          "ForQuestionAnswering",
                                          "ForMultipleChoice",
                                          "ForImageClassification",
                                          NULL};

    for (int i = 0; vp_python_ends_in(call, ".from_pretrained") && classes[i]; i++)
        if (strstr(call, classes[i]))
            return true;
    return false;
}

/* torch.bfloat16 is bfloat16 in a file, TaskType.CAUSAL_LM is CAUSAL_LM. */
void vp_python_name_as_files_do(vp_value *v)
{
    const char *at;

    if (v->kind == VP_VALUE_STRING && !v->quoted && strncmp(v->text, "torch.", 6) == 0)
        v->text += 6;
    else if (v->kind == VP_VALUE_STRING && !v->quoted &&
             (at = strstr(v->text, "TaskType.")) != NULL)
        v->text = at + strlen("TaskType.");
    for (vp_value *m = v->kind == VP_VALUE_MAP ? v->first : NULL; m; m = m->next)
        vp_python_name_as_files_do(m);
}

/* LoraConfig, and none of AdaLoraConfig, RandLoraConfig and the other methods of peft's. */
static bool is_of_lora(const char *call)
{
    const char *dot = strrchr(call, '.');

    return strcmp(dot ? dot + 1 : call, "LoraConfig") == 0;
}

/* Whether a call is given what stands in a file of its own elsewhere. */
bool vp_python_is_part(const vp_value *v)
{
    return v->kind == VP_VALUE_MAP && v->call &&
           (is_of_lora(v->call) || vp_python_loads_model(v->call));
}

bool vp_python_is_quantisation(const vp_value *v)
{
    return v->kind == VP_VALUE_MAP && v->call && vp_python_ends_in(v->call, "BitsAndBytesConfig");
}

/* ds_config = {"zero_optimization": {...}}: a file of DeepSpeed's in place of one. */
bool vp_python_is_of_deepspeed(const vp_value *v)
{
    static const char *const sections[] = {"zero_optimization", "bf16", "fp16"};

    for (size_t i = 0; v->kind == VP_VALUE_MAP && !v->call && i < 3; i++) {
        const vp_value *section = vp_value_member(v, sections[i]);
        if (section && section->kind == VP_VALUE_MAP && !section->call)
            return true;
    }
    return false;
}

/* LoraConfig(**json.loads(...)) of a script that reads a file of adapters: what they are stands there. */
static void drop_what_is_read(vp_document *doc)
{
    bool reads = false;

    for (const vp_value *v = doc->files ? doc->files->first : NULL; v; v = v->next)
        reads = reads || strstr(v->text, "lora") || strstr(v->text, "adapter");
    for (vp_document **part = &doc->parts; reads && *part;)
        if (vp_python_ends_in((*part)->call, "LoraConfig") &&
            (*part)->root->n_children == 1) /* peft_type */
            *part = (*part)->next;
        else
            part = &(*part)->next;
}

/* Adapters that are no LoraConfig()'s of this script, nor those of a file that it reads. */
bool vp_python_adapts_otherwise(const vp_document *doc)
{
    for (const vp_document *part = doc->parts; part; part = part->next)
        if (part->call && is_of_lora(part->call))
            return false;
    return doc->adapts && !doc->files && !doc->asks_adapters;
}

/* Of several dictionaries for DeepSpeed the one that is given to a trainer counts, and none where nobody sees which. */
static void drop_other_engines(vp_document *doc)
{
    const vp_value *used = vp_value_at(doc->root, "deepspeed");
    int             n    = 0;

    for (const vp_document *p = doc->parts; p; p = p->next)
        n += p->program != NULL;
    for (vp_document **p = &doc->parts; n > 1 && *p;)
        if ((*p)->program &&
            !(used && used->kind == VP_VALUE_STRING && strcmp(used->text, (*p)->call) == 0))
            *p = (*p)->next;
        else
            p = &(*p)->next;
}

/* Whose scripts give TRL's and transformers' arguments to a model that its own class loads. */
static bool is_of_unsloth(const vp_document *doc)
{
    for (const vp_value *v = doc->root->first; v; v = v->next)
        if (v->call && vp_python_is_unsloths(v->call))
            return true;
    return false;
}

/* What a call made of a name stays where it stands. */
static bool is_own_name(const vp_value *v, const void *user)
{
    (void)user;
    return v->is_variable &&
           !(v->call && strcmp(v->call, VP_VALUE_UNREAD) != 0 &&
             (vp_python_tells_settings(v->call) || vp_python_ends_in(v->call, "Accelerator")));
}

/* Beside a trainer's arguments a name of the script's own is no key: its value stands where the name is used. */
static void drop_variables(vp_document *doc)
{
    vp_value_drop(doc->root, is_own_name, NULL);
}

static bool has_own_loop(const vp_document *doc)
{
    for (const vp_value *v = doc->root->first; v; v = v->next)
        if (v->call && vp_python_ends_in(v->call, "Accelerator"))
            return true;
    return false;
}

/* The class of arguments that a trainer is given, or makes where it is given none. One that nobody here knows and that is given
 * some is made of transformers'. */
static const char *default_of(const vp_document *doc, const char *trainer)
{
    static const char *const of[][2] = {
        {"SFTTrainer", "SFTConfig"},       {"DPOTrainer", "DPOConfig"},
        {"KTOTrainer", "KTOConfig"},       {"ORPOTrainer", "ORPOConfig"},
        {"CPOTrainer", "CPOConfig"},       {"RewardTrainer", "RewardConfig"},
        {"GKDTrainer", "GKDConfig"},       {"PRMTrainer", "PRMConfig"},
        {"GRPOTrainer", "GRPOConfig"},     {"RLOOTrainer", "RLOOConfig"},
        {"PPOTrainer", "PPOConfig"},       {"OnlineDPOTrainer", "OnlineDPOConfig"},
        {"NashMDTrainer", "NashMDConfig"}, {"XPOTrainer", "XPOConfig"},
        {"Trainer", "TrainingArguments"},  {"Seq2SeqTrainer", "Seq2SeqTrainingArguments"}};

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strcmp(trainer, of[i][0]) == 0)
            return of[i][1];
    return doc->given ? "TrainingArguments" : NULL;
}

/* A name of the script's own that is called so is none. */
static bool is_given(const vp_document *doc, const char *key)
{
    for (const vp_value *v = doc->root->first; v; v = v->next)
        if (!v->is_variable && strcmp(v->key, key) == 0)
            return true;
    return false;
}

static void add_false(vp_document *doc, const char *key)
{
    vp_value *v = is_given(doc, key) ? NULL : vp_value_add(doc, doc->root, key);

    if (v)
        v->kind = VP_VALUE_BOOL, v->text = "false";
}

/* SFTTrainer makes its own arguments of TrainingArguments, whose defaults are no defaults any more (trl/trainer/sft_trainer.py of
 * 0.11 to 1.16). */
static const char *as_trainer_takes(vp_document *doc, const char *arguments, const char *trainer)
{
    if (!arguments)
        return doc->files ? NULL : default_of(doc, trainer);
    if (strcmp(arguments, "TrainingArguments") != 0 || strcmp(trainer, "SFTTrainer") != 0)
        return arguments;
    if (!is_given(doc, "activation_checkpointing"))
        add_false(doc, "gradient_checkpointing");
    add_false(doc, "bf16");
    return "SFTConfig";
}

/* Unsloth's loader alone trains nothing: a trainer does, or what makes adapters or all weights ready for one. */
static bool is_trained(const vp_document *doc)
{
    return doc->has_trainer || is_given(doc, "r") || is_given(doc, "full_finetuning");
}

void vp_python_settle(vp_document *doc, const char *arguments, const char *trainer)
{
    drop_what_is_read(doc);
    drop_other_engines(doc);
    bool is_made = arguments || doc->files;
    if (trainer && !is_of_unsloth(doc))
        arguments = as_trainer_takes(doc, arguments, trainer);
    if (is_made)
        doc->given = NULL;
    if (doc->takes_model && !doc->given)
        doc->given = "ModelConfig";
    doc->call    = arguments;
    doc->program = is_of_unsloth(doc) && (arguments || is_trained(doc)) ? "unsloth" : arguments;
    if (!doc->program && has_own_loop(doc))
        doc->program = "Accelerator";
    for (vp_value *v = doc->root->first; v; v = v->next)
        if (v->is_variable && v->call && strcmp(v->key, "trainer") == 0 &&
            !vp_python_tells_settings(v->call))
            v->key           = v->call,
            doc->root->index = NULL; /* TrainerClass(model, rank=0): nobody knows */
    if (doc->program)
        drop_variables(doc);
}
