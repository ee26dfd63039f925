#include "cli/check_class.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define CLASSIFIES "AutoModelForSequenceClassification"
#define TAGS       "AutoModelForTokenClassification"
#define ANSWERS    "AutoModelForQuestionAnswering"
#define CHOOSES    "AutoModelForMultipleChoice"
#define FILLS      "AutoModelForMaskedLM"
#define REWRITES   "AutoModelForSeq2SeqLM"

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
};

static bool is_head(const char *loads, vp_head head)
{
    static const struct {
        const char *word;
        vp_head     head;
    } classes[] = {{"ForCausalLM", VP_HEAD_NEXT_TOKEN},
                   {"LMHeadModel", VP_HEAD_NEXT_TOKEN},
                   {"ForSequenceClassification", VP_HEAD_SEQUENCE},
                   {"ForTokenClassification", VP_HEAD_TOKEN},
                   {"ForMaskedLM", VP_HEAD_MASKED}};

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strstr(loads, classes[i].word))
            return classes[i].head == head;
    return !strstr(loads, "AutoModel");
}

static const char *of_class(vp_arena *arena, const char *loads, const char *where,
                            const vp_model *model)
{
    if (is_head(loads, model->head))
        return NULL;
    return vp_arena_printf(arena,
                           "not answered: %.*s in %s, and %s is what is counted; --model with a "
                           "config.json whose architectures name the class asks",
                           (int)strcspn(loads, "."), loads, where, model->class_name);
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

static const char *by_script(vp_arena *arena, const vp_checked_file *file, const vp_model *model)
{
    static const char loop[] = "_no_trainer";
    char              name[128], shown[200];
    size_t            n;

    script_of(file->doc->program, name, sizeof name);
    n = strlen(name);
    if (n > sizeof loop - 1 && strcmp(name + n - (sizeof loop - 1), loop) == 0)
        return vp_arena_printf(arena,
                               "not answered: %s.py has a training loop of its own around "
                               "Accelerate; vplan dryrun -- COMMAND runs it without a GPU",
                               vp_text_escape(name, shown, sizeof shown));
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strcmp(scripts[i].script, name) == 0)
            return of_class(arena, scripts[i].loads, vp_arena_printf(arena, "%s.py", name), model);
    return NULL;
}

/* ms-swift, model/model_meta.py: a number of labels alone is that of classes, too. */
static const char *by_task(vp_arena *arena, const vp_checked_file *file, const vp_model *model)
{
    const vp_value *task   = vp_value_at(file->doc->root, "task_type"),
                   *labels = vp_value_at(file->doc->root, "num_labels");
    char shown[128];

    if (task && task->text && strcmp(task->text, "causal_lm") == 0)
        return NULL;
    if (task && task->text && strcmp(task->text, "seq_cls") != 0)
        return vp_arena_printf(arena,
                               "not answered: task_type %s in %s: no such training step was "
                               "recorded",
                               vp_text_escape(task->text, shown, sizeof shown), file->name);
    return task || (labels && labels->kind != VP_VALUE_NULL)
               ? of_class(arena, CLASSIFIES,
                          vp_arena_printf(arena, "%s, by %s", file->name,
                                          task ? "task_type" : "num_labels"),
                          model)
               : NULL;
}

const char *vp_check_other_class(vp_arena *arena, const vp_checked *c, const vp_model *model)
{
    const char *why = NULL;

    for (int f = 0; f < c->n_files && !why; f++) {
        const vp_checked_file *file = &c->files[f];
        if (!file->doc)
            continue;
        if (file->dialect == &vp_dialect_model && file->doc->call)
            why = of_class(arena, file->doc->call, file->name, model);
        else if (file->doc->format == VP_FORMAT_FLAGS)
            why = by_script(arena, file, model);
        if (!why && file->dialect == &vp_dialect_swift)
            why = by_task(arena, file, model);
    }
    return why;
}
