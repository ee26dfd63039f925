#include "cli/check_class.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define CLASSIFIES  "AutoModelForSequenceClassification"
#define TAGS        "AutoModelForTokenClassification"
#define ANSWERS     "AutoModelForQuestionAnswering"
#define CHOOSES     "AutoModelForMultipleChoice"
#define FILLS       "AutoModelForMaskedLM"
#define REWRITES    "AutoModelForSeq2SeqLM"
#define TRANSCRIBES "AutoModelForSpeechSeq2Seq"

/* What transformers' example scripts load (examples/pytorch of 5.17; of those that are gone, 4.57). */
static const struct {
    const char *script, *loads;
} scripts[] = {
    {"run_clm", "AutoModelForCausalLM"},
    {"run_glue", CLASSIFIES},
    {"run_xnli", CLASSIFIES},
    {"run_classification", CLASSIFIES},
    {"run_ner", TAGS},
    {"run_qa", ANSWERS},
    {"run_qa_beam_search", ANSWERS},
    {"run_swag", CHOOSES},
    {"run_mlm", FILLS},
    {"run_seq2seq_qa", REWRITES},
    {"run_summarization", REWRITES},
    {"run_translation", REWRITES},
    {"run_speech_recognition_seq2seq", TRANSCRIBES},
};

/* The class of what is called: AutoModelForCausalLM of transformers.AutoModelForCausalLM.from_pretrained. */
static const char *class_in(const char *call, size_t *n)
{
    const char *end = strrchr(call, '.'), *begin;

    end   = end ? end : call + strlen(call);
    begin = memrchr(call, '.', (size_t)(end - call));
    begin = begin ? begin + 1 : call;
    *n    = (size_t)(end - begin);
    return begin;
}

/* What is behind the family's name in a class's: "ForMaskedLM", up to the class's end; n 0: nothing that says a task. */
static const char *task_of(const char *name, size_t *n)
{
    static const char *const begins[] = {"LMHeadModel", "For"};
    size_t                   length;

    name = class_in(name, &length);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        const char *at = memmem(name, length, begins[i], strlen(begins[i]));
        if (at) {
            *n = (size_t)(name + length - at);
            return at;
        }
    }
    *n = 0;
    return name;
}

/* Causal models of TRL's and of Liger's have names that go on behind ForCausalLM. */
static bool is_causal(const char *task)
{
    return strncmp(task, "ForCausalLM", 11) == 0 || strncmp(task, "LMHeadModel", 11) == 0;
}

/* A model of texts and images has the name of one that writes sequences from sequences, and is causal. */
static bool is_counted(const char *loads, const vp_model *model)
{
    size_t      n, m;
    const char *task = task_of(loads, &n), *counted = task_of(model->class_name, &m);
    bool        sees  = vp_model_field(model, "vision_config") != NULL;
    bool        hears = vp_model_field(model, "num_mel_bins") != NULL;

    if (!n)
        return !strstr(loads, "AutoModel");
    if (is_causal(task))
        return model->head == VP_HEAD_NEXT_TOKEN && (sees || !m || is_causal(counted));
    if ((strncmp(task, "ForSeq2SeqLM", n) == 0 && !sees && !hears) ||
        (strncmp(task, "ForSpeechSeq2Seq", n) == 0 && hears))
        return m == strlen("ForConditionalGeneration") &&
               strncmp(counted, "ForConditionalGeneration", m) == 0;
    return n == m && strncmp(task, counted, n) == 0;
}

/* Of which class the files say the model is; loads NULL: of that which is counted, or nothing says it. */
typedef struct said {
    const char     *loads, *where;
    const vp_value *given; /* what the class is told, its number of labels */
    const char     *why;   /* in place of a class: what no step was recorded of */
} said;

static said of_class(const char *loads, const char *where, const vp_value *given,
                     const vp_model *model)
{
    return is_counted(loads, model) ? (said){0}
                                    : (said){.loads = loads, .where = where, .given = given};
}

/* The program's script, without folder and ending. */
static void script_of(const char *program, char *name, size_t size)
{
    *name = '\0';
    for (const char *p = program; p && *p;) {
        size_t n = strcspn(p, " ");
        if (n > 3 && strncmp(p + n - 3, ".py", 3) == 0) {
            const char *from = p + n;
            while (from > p && from[-1] != '/')
                from--;
            snprintf(name, size, "%.*s", (int)(p + n - 3 - from), from);
        }
        p += n + (p[n] == ' ');
    }
}

static said by_script(vp_arena *arena, const vp_checked_file *file, const vp_model *model)
{
    static const char loop[] = "_no_trainer";
    char              name[128], shown[200];
    size_t            n;

    script_of(file->doc->program, name, sizeof name);
    n = strlen(name);
    if (n > sizeof loop - 1 && strcmp(name + n - (sizeof loop - 1), loop) == 0)
        return (said){.why = vp_arena_printf(
                          arena,
                          "not answered: %s.py has a training loop of its own around Accelerate; "
                          "vplan dryrun -- COMMAND runs it without a GPU",
                          vp_text_escape(name, shown, sizeof shown))};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strcmp(scripts[i].script, name) == 0)
            return of_class(scripts[i].loads, vp_arena_printf(arena, "%s.py", name), NULL, model);
    return (said){0};
}

/* ms-swift, model/model_meta.py: a number of labels alone is that of classes, too. Its trainer of these is none of TRL's. */
static said by_task(vp_arena *arena, const vp_checked_file *file)
{
    const vp_value *task   = vp_value_at(file->doc->root, "task_type"),
                   *labels = vp_value_at(file->doc->root, "num_labels");
    const char *kind       = task ? task->text : NULL;
    char        shown[128];

    if ((kind && strcmp(kind, "causal_lm") == 0) ||
        (!task && (!labels || labels->kind == VP_VALUE_NULL)))
        return (said){0};
    return (said){.why = vp_arena_printf(
                      arena, "not answered: %s%s in %s: no such training step was recorded",
                      task ? "task_type " : "num_labels",
                      kind ? vp_text_escape(kind, shown, sizeof shown) : "", file->name)};
}

static said find(vp_arena *arena, const vp_checked *c, const vp_model *model)
{
    said x = {0};

    for (int f = 0; f < c->n_files && !x.loads && !x.why; f++) {
        const vp_checked_file *file = &c->files[f];
        if (!file->doc)
            continue;
        if (file->dialect == &vp_dialect_model && file->doc->call)
            x = of_class(file->doc->call, file->name, file->doc->root, model);
        else if (file->doc->format == VP_FORMAT_FLAGS)
            x = by_script(arena, file, model);
        if (!x.loads && !x.why && file->dialect == &vp_dialect_swift)
            x = by_task(arena, file);
    }
    return x;
}

/* AutoModelForX of a family whose own class is BertForMaskedLM: BertForX. A class of a library that is none of transformers' has no such. */
static const char *own_name(vp_arena *arena, const char *loads, const vp_model *model)
{
    static const char automatic[] = "AutoModel";
    size_t            n, m, length;
    const char       *task = task_of(loads, &n), *counted = task_of(model->class_name, &m);
    const char       *name = class_in(loads, &length);

    if (!n || !m)
        return NULL;
    if (strncmp(name, automatic, sizeof automatic - 1) != 0)
        return vp_arena_printf(arena, "%.*s", (int)length, name);
    return vp_arena_printf(arena, "%.*s%.*s", (int)(counted - model->class_name), model->class_name,
                           (int)n, task);
}

/* How many labels a call says: 0: it does not, or not as a literal. */
static int64_t labels_of(const vp_value *given)
{
    const vp_value *number = given ? vp_value_at(given, "num_labels") : NULL,
                   *names  = given ? vp_value_at(given, "id2label") : NULL;

    if (names && names->kind == VP_VALUE_MAP && !names->call && names->n_children)
        return names->n_children;
    return number && number->kind == VP_VALUE_INT && number->integer > 0 ? number->integer : 0;
}

const char *vp_check_class(vp_arena *arena, const vp_checked *c, const vp_model *model,
                           int64_t *n_labels)
{
    said x = find(arena, c, model);

    *n_labels = labels_of(x.given);
    return x.loads ? own_name(arena, x.loads, model) : NULL;
}

const char *vp_check_other_class(vp_arena *arena, const vp_checked *c, const vp_model *model)
{
    static const char one[] = "single_label_classification";
    said              x     = find(arena, c, model);
    size_t            n     = 0;
    const char       *name  = x.loads ? class_in(x.loads, &n) : NULL;

    if (x.loads && labels_of(x.given) == 1)
        return vp_arena_printf(arena,
                               "not answered: num_labels 1 in %s: one is a regression, whose loss "
                               "was not recorded of %s",
                               x.where, model->family);
    if (x.loads)
        return vp_arena_printf(arena,
                               "not answered: %.*s in %s: of %s no such training step was "
                               "recorded; vplan dryrun -- COMMAND runs it without a GPU",
                               (int)n, name, x.where, model->family);
    for (int f = 0; f < c->n_files && !x.why; f++) {
        const vp_document *doc  = c->files[f].dialect == &vp_dialect_model ? c->files[f].doc : NULL;
        const vp_value    *kind = doc ? vp_value_at(doc->root, "problem_type") : NULL;
        if (doc && model->head == VP_HEAD_SEQUENCE && labels_of(doc->root) == 1 &&
            model->n_labels != 1)
            return vp_arena_printf(arena,
                                   "not answered: num_labels 1 in %s: one is a regression, whose "
                                   "loss was not recorded of %s",
                                   c->files[f].name, model->family);
        if (kind && kind->kind != VP_VALUE_NULL && !(kind->text && strcmp(kind->text, one) == 0))
            return vp_arena_printf(arena,
                                   "not answered: problem_type in %s: a classifier was recorded "
                                   "with one label a sample",
                                   c->files[f].name);
    }
    return x.why;
}
