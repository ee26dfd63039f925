/* trainers/files/python_trainers.c: calls of a trainer's class in a script. Lightning's has the settings itself; those of
 * transformers and TRL are given arguments that another call makes, and refuse what they had in older versions. */
#include "trainers/files/python_calls.h"
#include "trainers/files/python_reader.h"

#include <ctype.h>
#include <string.h>

static const char *const transformers_classes[] = {"Trainer", "Seq2SeqTrainer", NULL};
static const char *const trl_classes[]          = {"SFTTrainer",  "DPOTrainer", "KTOTrainer",
                                                   "ORPOTrainer", "CPOTrainer", "RewardTrainer",
                                                   "GRPOTrainer", NULL};

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

static const char *class_of(const char *call)
{
    const char *dot = strrchr(call, '.');

    return dot ? dot + 1 : call;
}

bool vp_python_trains_model(const char *call)
{
    return call && vp_python_ends_in(call, "Trainer");
}

/* Whether a word stands in the text as a name of its own. */
static bool has_word(const char *from, const char *end, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = from; (p = memmem(p, (size_t)(end - p), word, n)); p++) {
        bool begins = p == from || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
        bool ends   = p + n == end || !(isalnum((unsigned char)p[n]) || p[n] == '_');
        if (begins && ends)
            return true;
    }
    return false;
}

static bool begins_with(const char *from, const char *end, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(end - from) > n && memcmp(from, word, n) == 0 &&
           !isalnum((unsigned char)from[n]) && from[n] != '_';
}

vp_status vp_python_add_alias(vp_python_reader *r, const char *name, const char *alias)
{
    vp_value *v;
    vp_status st = VP_OK;

    if (!r->aliases)
        r->aliases = vp_arena_alloc(r->doc->arena, sizeof *r->aliases);
    VP_TRY_ALLOC(r->err, r->aliases && name && alias);
    r->aliases->kind = VP_VALUE_MAP;
    v                = vp_value_member(r->aliases, alias);
    if (!v)
        VP_TRY(vp_python_add(r, r->aliases, alias, &v));
    v->kind = VP_VALUE_STRING, v->text = name;
out:
    return st;
}

/* "A as B" of an import's text, which ends where the reader is. */
static vp_status read_aliases(vp_python_reader *r, const char *from)
{
    vp_python_reader words    = *r;
    const char      *name     = NULL, *word;
    bool             is_alias = false;
    vp_status        st       = VP_OK;

    for (words.at = from, words.end = r->at; words.at < words.end;) {
        if (*words.at == '#')
            vp_python_skip(&words, true);
        else if (!isalnum((unsigned char)*words.at) && *words.at != '_')
            words.at++;
        else {
            word = vp_python_take_name(&words);
            VP_TRY_ALLOC(r->err, word);
            if (is_alias && name)
                VP_TRY(vp_python_add_alias(r, name, word));
            is_alias = strcmp(word, "as") == 0;
            name     = is_alias ? name : word;
        }
    }
out:
    return st;
}

const char *vp_python_imported(const vp_python_reader *r, const char *name)
{
    size_t n          = strcspn(name, ".");
    char  *first      = r->aliases ? vp_arena_printf(r->doc->arena, "%.*s", (int)n, name) : NULL;
    const vp_value *m = first ? vp_value_member(r->aliases, first) : NULL;

    if (r->aliases && !first)
        return NULL;
    return m ? vp_arena_printf(r->doc->arena, "%s%s", m->text, name + n) : name;
}

vp_status vp_python_read_import(vp_python_reader *r, bool *is_one)
{
    const char *from  = r->at, *module;
    bool        opens = false;

    *is_one = vp_python_at_word(r, "import") || vp_python_at_word(r, "from");
    if (!*is_one)
        return VP_OK;
    for (; r->at < r->end && (opens || *r->at != '\n'); r->at++) {
        opens = *r->at == '(' || (opens && *r->at != ')');
        if (*r->at == '\\' && r->at + 1 < r->end && r->at[1] == '\n')
            r->at++;
        if (*r->at == '\n')
            r->line++, r->line_start = r->at + 1;
    }
    for (module = from; module < r->at && *module != ' ';)
        module++;
    while (module < r->at && *module == ' ')
        module++;
    if (begins_with(module, r->at, "lightning") || begins_with(module, r->at, "pytorch_lightning"))
        r->imports |= VP_PYTHON_LIGHTNING |
                      (has_word(from, r->at, "Trainer") ? VP_PYTHON_LIGHTNINGS_TRAINER : 0);
    for (int i = 0; begins_with(module, r->at, "transformers") && transformers_classes[i]; i++)
        if (has_word(module, r->at, transformers_classes[i]))
            r->imports |= VP_PYTHON_TRANSFORMERS;
    for (int i = 0; begins_with(module, r->at, "trl") && trl_classes[i]; i++)
        if (has_word(module, r->at, trl_classes[i]))
            r->imports |= VP_PYTHON_TRL;
    for (int i = 0; strncmp(from, "from", 4) == 0 && trl_classes[i]; i++)
        if (!begins_with(module, r->at, "trl") && !begins_with(module, r->at, "unsloth") &&
            has_word(module, r->at, trl_classes[i]))
            r->imports |= VP_PYTHON_OTHERS_TRLS;
    if (strncmp(from, "from", 4) == 0 && !begins_with(module, r->at, "peft") &&
        has_word(module, r->at, "LoraConfig"))
        r->imports |= VP_PYTHON_OTHERS_LORA;
    if (begins_with(module, r->at, "transformers") && has_word(module, r->at, "TrainingArguments"))
        r->imports |= VP_PYTHON_ARGUMENTS;
    if (begins_with(module, r->at, "transformers") &&
        has_word(module, r->at, "Seq2SeqTrainingArguments"))
        r->imports |= VP_PYTHON_SEQ2SEQ_ARGUMENTS;
    if (begins_with(module, r->at, "trl") && has_word(module, r->at, "SFTConfig"))
        r->imports |= VP_PYTHON_TRLS_ARGUMENTS;
    if (begins_with(module, r->at, "unsloth"))
        r->imports |= VP_PYTHON_UNSLOTH;
    if (strncmp(from, "from", 4) == 0 && has_word(module, r->at, "Trainer") &&
        !(r->imports & (VP_PYTHON_LIGHTNINGS_TRAINER | VP_PYTHON_TRANSFORMERS)))
        r->imports |= VP_PYTHON_OTHERS_TRAINER;
    return read_aliases(r, from);
}

/* Trainer(...) of Lightning, which other libraries have by that name too. */
static bool is_lightnings(const vp_python_reader *r, const vp_value *v)
{
    static const char *const own[] = {"accelerator", "devices",    "strategy",
                                      "precision",   "max_epochs", "gpus"};
    bool                     dots  = strchr(v->call, '.') != NULL;

    if (strcmp(class_of(v->call), "Trainer") != 0 || strncmp(v->call, "transformers.", 13) == 0)
        return false;
    if ((r->imports & VP_PYTHON_OTHERS_TRAINER) && !dots)
        return false;
    if (dots || (r->imports & (VP_PYTHON_LIGHTNINGS_TRAINER | VP_PYTHON_TRANSFORMERS)))
        return r->imports & (dots ? VP_PYTHON_LIGHTNING : VP_PYTHON_LIGHTNINGS_TRAINER);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (vp_value_member(v, own[i]) && !vp_value_member(v, "args"))
            return true;
    return false;
}

/* Whether the class is surely that of the library, whose arguments are known. */
static bool is_imported(const vp_python_reader *r, const char *call)
{
    bool dots = strchr(call, '.') != NULL;

    if (is_one_of(class_of(call), trl_classes))
        return dots ? strncmp(call, "trl.", 4) == 0 : r->imports & VP_PYTHON_TRL;
    return dots ? strncmp(call, "transformers.", 13) == 0 : r->imports & VP_PYTHON_TRANSFORMERS;
}

/* A script's own class may be called so, too, and Unsloth gives TRL's more arguments. */
const char *vp_python_arguments_class(const vp_python_reader *r, const char *call)
{
    static const struct {
        const char *name, *library;
        unsigned    import;
    } classes[] = {{"TrainingArguments", "transformers.", VP_PYTHON_ARGUMENTS},
                   {"Seq2SeqTrainingArguments", "transformers.", VP_PYTHON_SEQ2SEQ_ARGUMENTS},
                   {"SFTConfig", "trl.", VP_PYTHON_TRLS_ARGUMENTS}};

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        size_t n = strlen(classes[i].library);
        if (call && !(r->imports & VP_PYTHON_UNSLOTH) &&
            ((strncmp(call, classes[i].library, n) == 0 &&
              strcmp(call + n, classes[i].name) == 0) ||
             (strcmp(call, classes[i].name) == 0 && (r->imports & classes[i].import))))
            return classes[i].name;
    }
    return NULL;
}

/* SFTTrainer("gpt2"): of a model that is named TRL's trainers load what they train. */
static vp_status take_model(vp_python_reader *r, const vp_value *v)
{
    const vp_value *by_name = vp_value_member(v, "model"), *by_place = vp_value_member(v, "0"),
                   *model = by_name ? by_name : by_place;
    vp_value *own;
    vp_status st = VP_OK;

    if (!model || model->kind != VP_VALUE_STRING || !model->quoted ||
        !is_one_of(class_of(v->call), trl_classes))
        return VP_OK;
    VP_TRY(vp_python_add(r, r->doc->root, "model_name_or_path", &own));
    vp_python_be_same(own, model);
    own->line = model->line;
    VP_TRY(vp_python_add(r, r->doc->root, "dtype", &own)); /* unless model_init_kwargs says else */
    own->kind = VP_VALUE_STRING, own->text = "float32", own->quoted = true;
    own->line = model->line;
out:
    return st;
}

/* GRPOTrainer(reward_funcs="OpenAssistant/reward-model-deberta-v3-large-v2"): a model that judges, which TRL loads. */
static vp_status take_judge(vp_python_reader *r, const vp_value *v)
{
    const vp_value *judge = vp_value_member(v, "reward_funcs");
    vp_status       st    = VP_OK;

    if (!judge || judge->kind != VP_VALUE_STRING || !judge->quoted ||
        strcmp(class_of(v->call), "GRPOTrainer") != 0)
        return VP_OK;
    VP_TRY(vp_document_remark(r->doc, judge->line, NULL, false, r->err,
                              "reward_funcs in line %d: a model beside the one that is trained; "
                              "what it takes on the card is missing from this answer",
                              judge->line));
    r->doc->last_remark->is_uncounted = true;
out:
    return st;
}

/* Trainer(args=training_args) of a script whose arguments its command gives. */
static vp_status note_given(vp_python_reader *r, const vp_value *v)
{
    const vp_value *by_name = vp_value_member(v, "args"), *by_place = vp_value_member(v, "1"),
                   *args = by_name ? by_name : by_place;

    if (!args || args->kind == VP_VALUE_NULL ||
        (args->kind == VP_VALUE_MAP && args->call && vp_python_trains(args->call)))
        return VP_OK;
    r->doc->given = vp_arena_printf(r->doc->arena, "args=%.80s", args->text ? args->text : "...");
    return r->doc->given ? VP_OK : VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
}

vp_status vp_python_note_adapters(vp_python_reader *r, const char *by, int line)
{
    if (r->doc->adapts)
        return VP_OK;
    r->doc->adapts_line = line;
    r->doc->adapts      = vp_arena_printf(r->doc->arena, "%s in line %d", by, line);
    return r->doc->adapts ? VP_OK : VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
}

/* Optimizers whose class and arguments say what Trainer's optim would; NULL: another, or with arguments that change its states. */
static const char *optim_of(const vp_value *made)
{
    static const struct {
        const char *call, *optim;
    } rows[] = {{"PagedAdamW8bit", "paged_adamw_8bit"}, {"AdamW8bit", "adamw_8bit"},
                {"PagedAdamW", "paged_adamw_32bit"},    {"Lion8bit", "lion_8bit"},
                {"optim.AdamW", "adamw_torch"},         {"optim.SGD", "sgd"}};
    static const char *const same[] = {"0",   "params",       "lr",    "betas",
                                       "eps", "weight_decay", "fused", NULL};
    const vp_value          *fused  = vp_value_member(made, "fused");

    for (const vp_value *m = made->first; m; m = m->next)
        if (!is_one_of(m->key, same))
            return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (vp_python_ends_in(made->call, rows[i].call))
            return !fused ? rows[i].optim
                   : fused->kind == VP_VALUE_BOOL && fused->boolean &&
                           strcmp(rows[i].optim, "adamw_torch") == 0
                       ? "adamw_torch_fused"
                       : NULL;
    return NULL;
}

/* Trainer(optimizers=(optimizer, None)): that one trains, and not what optim says (transformers/trainer.py, create_optimizer()). */
static vp_status take_optimizer(vp_python_reader *r, const vp_value *v)
{
    const vp_value *given = vp_value_member(v, "optimizers"), *made, *known;
    const char     *optim = NULL;
    vp_value       *own;
    vp_status       st = VP_OK;

    if (!given || given->kind == VP_VALUE_NULL)
        return VP_OK;
    made = given->kind == VP_VALUE_LIST ? given->first : NULL;
    if (made && made->kind == VP_VALUE_NULL)
        return VP_OK; /* a schedule alone */
    known = made && made->text ? vp_python_value_of(r, made->text, NULL) : NULL;
    if (made && made->call)
        optim = optim_of(known && known->call ? known : made);
    if (!optim) {
        VP_TRY(vp_document_remark(r->doc, given->line, NULL, false, r->err,
                                  "optimizers in line %d: the script's own optimizer trains, not "
                                  "what optim says, and which states it keeps is missing from this "
                                  "answer",
                                  given->line));
        r->doc->last_remark->is_gap = true;
        goto out;
    }
    VP_TRY(vp_python_add(r, r->doc->root, "optim", &own));
    own->kind = VP_VALUE_STRING, own->text = optim, own->quoted = true, own->line = given->line;
out:
    return st;
}

static bool is_unknown(const vp_value *v, const void *user)
{
    (void)user;
    return strcmp(v->key, VP_PYTHON_UNKNOWN) == 0;
}

/* Lightning's Trainer(...): what its own file has under trainer. */
static vp_status take_lightnings(vp_python_reader *r, const vp_value *v)
{
    vp_value *own;
    vp_status st = VP_OK;

    VP_TRY(vp_python_add(r, r->doc->root, "trainer", &own));
    vp_python_be_same(own, v);
    own->is_variable = false;
    own->line        = v->line;
    r->arguments     = r->arguments ? r->arguments : "Trainer";
    for (const vp_value *m = v->first; m; m = m->next)
        if (is_unknown(m, NULL))
            VP_TRY(vp_python_say_gap(r, r->doc, v, m));
    vp_value_drop(own, is_unknown, NULL);
out:
    return st;
}

/* class SFTTrainer: of the script's own. */
static bool is_defined(const vp_python_reader *r, const char *name)
{
    const char *line = vp_arena_printf(r->doc->arena, "\nclass %s", name);
    size_t      n    = line ? strlen(line) : 0;
    const char *at   = line ? memmem(r->begin, (size_t)(r->end - r->begin), line, n) : NULL;

    return at && at + n < r->end && strchr("(: ", at[n]);
}

/* A class by the name of one of transformers' or TRL's, of the script's own or a library that is neither. */
static bool is_anothers(const vp_python_reader *r, const vp_value *v)
{
    if (is_one_of(v->call, trl_classes) && is_defined(r, v->call))
        return true;
    return ((r->imports & VP_PYTHON_OTHERS_TRAINER) && strcmp(v->call, "Trainer") == 0) ||
           ((r->imports & VP_PYTHON_OTHERS_TRLS) && is_one_of(v->call, trl_classes));
}

vp_status vp_python_take_trainer(vp_python_reader *r, const vp_value *v)
{
    static const char *const judged[] = {"Trainer", "Seq2SeqTrainer", "SFTTrainer", "DPOTrainer",
                                         NULL};
    vp_value                *own;
    vp_status                st = VP_OK;

    r->doc->has_trainer = true;
    if (is_lightnings(r, v)) {
        VP_TRY(take_lightnings(r, v));
        goto out;
    }
    if (is_anothers(r, v) && !vp_value_member(v, "args") && !vp_value_member(v, "1"))
        goto out;                         /* what such a one is given says nothing here */
    if (r->imports & VP_PYTHON_UNSLOTH) { /* it gives TRL's trainers back what they had */
        VP_TRY(vp_python_join_root(r, v));
        goto out;
    }
    r->trainer = class_of(v->call);
    for (const vp_value *m = v->first; m; m = m->next)
        if (vp_python_is_part(m))
            VP_TRY(vp_python_add_part(r, m));
        else if (m->kind == VP_VALUE_MAP && m->call && vp_python_trains(m->call)) {
            const vp_value *before = vp_value_member(r->doc->root, "1");
            VP_TRY(vp_python_join_root(r, m));
            if (before && before->call && strcmp(before->call, m->call) == 0)
                VP_TRY(vp_python_forget_what_differs(r, before, m));
            /* what no key names: the call that more may be written in */
            VP_TRY(vp_python_add(r, r->doc->root, "1", &own));
            vp_python_be_same(own, m);
            own->line = m->line;
        }
    VP_TRY(take_judge(r, v));
    const vp_value *adapters = vp_value_member(v, "peft_config");
    if (adapters && adapters->kind != VP_VALUE_NULL)
        VP_TRY(vp_python_note_adapters(r, "peft_config", adapters->line));
    VP_TRY(take_model(r, v));
    VP_TRY(take_optimizer(r, v));
    VP_TRY(note_given(r, v));
    if (is_imported(r, v->call) && is_one_of(class_of(v->call), judged))
        VP_TRY(vp_python_add_part(r, v));
out:
    return st;
}
