/* trainers/files/emit.c: the sayings of a target's dialects that hold for the settings, as files. */
#include "trainers/files/emit.h"

#include "base/units.h"
#include "trainers/files/check_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    vp_arena          *arena;
    const vp_target   *target;
    const vp_settings *s;
    vp_emitted        *out;
    bool               said[VP_N_SETTINGS];
    json_t            *usual;      /* versions that are written for where nobody names any */
    bool               edited;     /* after the prediction, which is dropped */
    bool               is_written; /* texts too */
    vp_err            *err;
} job;

/* Whether the key can hold the setting's own word, where that is what the row writes. */
static bool takes(const vp_dialect *d, const char *version, const vp_saying *row, const char *value)
{
    const vp_key *key =
        row->value && strcmp(row->word, "W") == 0 ? vp_dialect_key(d, row->key, version) : NULL;

    return !key || key->type != VP_KEY_WORD || !key->words ||
           vp_word_is_among(value, key->words, strlen(key->words));
}

static vp_status say(job *j, vp_document *doc, const vp_dialect *d, const char *version,
                     const vp_saying *row, const char *argument)
{
    const vp_key *key  = vp_dialect_key(d, row->key, version);
    const char   *text = vp_saying_text(j->arena, j->s, row, argument);
    vp_value     *v;
    vp_status     st = VP_OK;

    assert(key && "a saying's key stands in the dialect's keys");
    VP_TRY_ALLOC(j->err, text);
    if (!*text && strcmp(row->value, "$told") == 0)
        goto out;
    v = vp_value_make(doc, row->key);
    VP_TRY_ALLOC(j->err, v);
    assert((!v->text || strcmp(v->text, text) == 0) && "two sayings of one key differ");
    if (!v->text)
        VP_TRY_ALLOC(j->err, vp_value_set(doc, v, key, text));
out:
    return st;
}

static vp_status fill(job *j, vp_document *doc, const vp_dialect *d, const vp_dialect *of)
{
    const char *version = vp_dialect_version(d, of, j->s->versions);
    vp_status   st      = VP_OK;

    if (d->base && d->base_says)
        VP_TRY(fill(j, doc, d->base, of));
    for (int i = 0; i < d->n_says; i++) {
        const vp_saying *row      = &d->says[i];
        const char      *argument = NULL;
        const char      *value    = row->setting != VP_ALWAYS ? j->s->value[row->setting] : NULL;
        if (row->read_only ||
            (row->setting != VP_ALWAYS && (!value || !vp_word_is(value, row->word, &argument))))
            continue; /* most rows: the rest is read as text */
        if (!vp_version_within(version, row->since, row->until) ||
            !vp_when_holds(row->when, j->s, j->target->name))
            continue;
        if (row->setting != VP_ALWAYS) {
            if (!takes(of, d == of ? version : NULL, row, value))
                continue;
            j->said[row->setting] = true;
        }
        if (row->value && row->key[0] && strncmp(row->value, "$without:", 9) != 0)
            VP_TRY(say(j, doc, of, d == of ? version : NULL, row, argument));
    }
out:
    return st;
}

/* ---- what cannot be said ---- */

/* Every word of a setting that the target's files know in these versions; and where the wanted one
 * is known: in which version of what. */
static void words_of(const job *j, vp_setting setting, char *words, size_t n_words, char *where,
                     size_t n_where)
{
    words[0] = where[0] = '\0';
    for (int f = 0; f < j->target->n_files; f++) {
        if (!vp_target_file_holds(j->target, &j->target->files[f], j->s))
            continue;
        for (const vp_dialect *of = j->target->files[f].dialect, *d = of; d;
             d = d->base_says ? d->base : NULL) {
            const char *version = vp_dialect_version(d, of, j->s->versions);
            for (int i = 0; i < d->n_says; i++) {
                const vp_saying *row = &d->says[i];
                char             one[80];
                if (row->setting != (int)setting || row->read_only)
                    continue;
                if (strcmp(row->word, "W") == 0) { /* any word but this one: no list */
                    if (!where[0])
                        snprintf(where, n_where, "no word of %s in %s %s", row->key, d->library,
                                 version);
                    words[0] = '\0';
                    return;
                }
                bool now   = vp_version_within(version, row->since, row->until);
                bool holds = vp_when_holds(row->when, j->s, j->target->name);
                if (holds && !now && vp_word_is(j->s->value[setting], row->word, NULL) &&
                    (row->since || row->until) && !where[0])
                    snprintf(where, n_where, "%s %s%s has it, this is for %s", d->library,
                             row->since && vp_version_compare(version, row->since) < 0 ? ""
                                                                                       : "before ",
                             row->since && vp_version_compare(version, row->since) < 0 ? row->since
                                                                                       : row->until,
                             version);
                const char *word =
                    strcmp(row->word, "*") == 0 ? vp_setting_words(setting) : row->word;
                snprintf(one, sizeof one, "%s", word);
                if (now && holds && !strstr(words, one))
                    snprintf(words + strlen(words), n_words - strlen(words), "%s%s",
                             words[0] ? ", " : "", one);
            }
        }
    }
}

/* The targets whose files have the word, newest versions; "" where none has. */
static void targets_with(vp_setting setting, const char *value, char *names, size_t n_names)
{
    const vp_target *t;

    names[0] = '\0';
    for (int i = 0; (t = vp_target_at(i)) != NULL; i++) {
        bool has = false;
        for (int f = 0; f < t->n_files; f++)
            for (const vp_dialect *d = t->files[f].dialect; d; d = d->base_says ? d->base : NULL)
                for (int k = 0; k < d->n_says; k++)
                    has = has || (d->says[k].setting == (int)setting && !d->says[k].read_only &&
                                  vp_word_is(value, d->says[k].word, NULL));
        if (has)
            snprintf(names + strlen(names), n_names - strlen(names), "%s%s", names[0] ? ", " : "",
                     t->name);
    }
}

/* " beside precision bf16-mixed, parallel none": what of the others keeps a row that has the word from being said; "": none does. */
static void put_in_the_way(const job *j, const vp_saying *row, char *text, size_t size)
{
    const char *when = row->when;
    char        one[96];

    while (when && *when) {
        size_t n = strcspn(when, ","), name = strcspn(when, "=!");
        char   alone[128];
        snprintf(alone, sizeof alone, "%.*s", (int)n, when);
        for (int i = 0; i < VP_N_SETTINGS; i++) {
            bool is_it = strncmp(when, vp_setting_key(i), name) == 0 && !vp_setting_key(i)[name];
            if (!is_it || !j->s->value[i] || vp_when_holds(alone, j->s, j->target->name))
                continue;
            snprintf(one, sizeof one, "%s %s", vp_setting_key(i), j->s->value[i]);
            if (!strstr(text, one))
                snprintf(text + strlen(text), size - strlen(text), "%s%s",
                         text[0] ? ", " : " beside ", one);
        }
        when += n + (when[n] == ',');
    }
}

static void beside_of(const job *j, vp_setting setting, char *text, size_t size)
{
    text[0] = '\0';
    for (int f = 0; f < j->target->n_files; f++) {
        const vp_dialect *of = j->target->files[f].dialect;
        for (const vp_dialect *d = of; d; d = d->base_says ? d->base : NULL)
            for (int i = 0; i < d->n_says; i++) {
                const vp_saying *row = &d->says[i];
                if (row->setting == (int)setting && !row->read_only &&
                    vp_word_is(j->s->value[setting], row->word, NULL) &&
                    vp_version_within(vp_dialect_version(d, of, j->s->versions), row->since,
                                      row->until))
                    put_in_the_way(j, row, text, size);
            }
    }
}

/* Whether the target's files say anything of the setting. */
static bool has_words(const vp_target *t, vp_setting setting)
{
    for (int f = 0; f < t->n_files; f++)
        for (const vp_dialect *d = t->files[f].dialect; d; d = d->base_says ? d->base : NULL)
            for (int k = 0; k < d->n_says; k++)
                if (d->says[k].setting == (int)setting && !d->says[k].read_only)
                    return true;
    return false;
}

static const vp_told *told_by_script(const vp_target *t, vp_setting setting, const char *value)
{
    const char *key = vp_setting_key(setting);
    size_t      n   = strlen(key);

    for (const vp_told *row = t->script; row && row->setting; row++) {
        const char *words = row->setting + n;
        if (strncmp(row->setting, key, n) == 0 &&
            (!*words ||
             (*words == '=' && value && vp_word_is_among(value, words + 1, strlen(words + 1)))))
            return row;
    }
    return NULL;
}

/* A loss that nobody said is the target's own, where it has one alone, as TRL does: its words compute the same. */
static vp_status take_own_loss(job *j, vp_settings *s)
{
    const vp_setting setting = VP_SETTING_LOSS;
    char             words[256], where[160];
    const char      *own;

    words_of(j, setting, words, sizeof words, where, sizeof where);
    if (!words[0] || strchr(words, ',') || vp_word_is(s->value[setting], words, NULL) ||
        told_by_script(j->target, setting, s->value[setting]))
        return VP_OK;
    own = vp_setting_canonical(j->arena, setting, words);
    for (int i = 0; own && i < s->n_assumed; i++) {
        size_t n = strlen(vp_setting_key(setting));
        if (strncmp(s->assumed[i], vp_setting_key(setting), n) != 0 || s->assumed[i][n] != ' ')
            continue;
        s->value[setting] = own;
        s->assumed[i] =
            vp_arena_printf(j->arena, "%s is not given: %s, which is all that %s can be told",
                            vp_setting_key(setting), own, j->target->name);
        if (!s->assumed[i])
            return VP_FAIL(j->err, VP_ERR_NOMEM, "out of host memory");
    }
    return VP_OK;
}

vp_status vp_emit_complete(vp_arena *arena, const vp_target *target, vp_settings *s,
                           const char *file, vp_err *err)
{
    job       j  = {.arena = arena, .target = target, .s = s, .err = err};
    vp_status st = VP_OK;

    VP_TRY(vp_settings_complete(arena, s, file, err));
    VP_TRY(take_own_loss(&j, s));
out:
    return st;
}

static vp_status check_said(job *j)
{
    char      words[256], where[160], beside[200];
    vp_status st = VP_OK;

    for (int i = 0; i < VP_N_SETTINGS; i++) {
        const char    *value     = j->s->value[i];
        const vp_told *script    = told_by_script(j->target, i, value);
        const char    *otherwise = vp_setting_otherwise(i);
        if (!value || (j->said[i] && !(script && script->beside)))
            continue;
        if (script) {
            if (i == VP_SETTING_WORLD && strcmp(value, "1") != 0)
                j->out->world = value;
            if (i == VP_SETTING_WORLD && strstr(j->target->launch, "$world"))
                continue; /* the line that runs it says so */
            j->out->script[j->out->n_script] =
                vp_arena_printf(j->arena, "%s %s: %s", vp_setting_key(i), value, script->where);
            VP_TRY_ALLOC(j->err, j->out->script[j->out->n_script]);
            j->out->n_script++;
            continue;
        }
        words_of(j, i, words, sizeof words, where, sizeof where);
        /* what a trainer cannot do at all it does not do */
        if (otherwise && strcmp(value, otherwise) == 0 && !words[0] &&
            strcmp(otherwise, "1.0") != 0)
            continue;
        beside_of(j, (vp_setting)i, beside, sizeof beside);
        if (words[0] || where[0])
            VP_TRY(VP_FAIL_AT(j->err, VP_ERR_INPUT, NULL, 0, vp_setting_key(i),
                              "%s cannot be told %s %s%s%s%s%s%s", j->target->name,
                              vp_setting_key(i), value, where[0] ? "" : beside,
                              where[0] ? ": " : "", where, words[0] ? "; its words here: " : "",
                              words));
        if (!has_words(j->target, (vp_setting)i)) {
            targets_with((vp_setting)i, value, words, sizeof words);
            VP_TRY(VP_FAIL_AT(j->err, VP_ERR_INPUT, NULL, 0, vp_setting_key(i),
                              "%s cannot be told %s %s%s%s", j->target->name, vp_setting_key(i),
                              value, words[0] ? "; these can: " : "", words));
        }
        VP_TRY(VP_FAIL_AT(j->err, VP_ERR_INPUT, NULL, 0, vp_setting_key(i),
                          "%s cannot be told %s %s%s; vplan targets %s lists its words",
                          j->target->name, vp_setting_key(i), value,
                          beside[0] ? beside : " with these settings", j->target->name));
    }
out:
    return st;
}

/* What the trainer itself would refuse is refused here: the rules that check judges files by. */
static vp_status check_rules(job *j)
{
    vp_checked c = {
        .arena = j->arena, .target = j->target, .versions = j->s->versions, .settings = *j->s};
    vp_status st = VP_OK;

    for (int i = 0; i < j->out->n_files; i++) {
        vp_checked_file file = {.doc     = j->out->files[i].document,
                                .name    = j->out->files[i].name,
                                .dialect = j->out->files[i].dialect};
        if (file.dialect)
            vp_check_rules(&c, &file);
        if (file.dialect && c.n_files < VP_CHECK_MAX_FILES)
            c.files[c.n_files++] = file;
    }
    vp_judge_storage(&c);
    vp_judge_axolotl(&c);
    for (int64_t i = 0; i < c.n_findings; i++)
        if (c.findings[i].severity == VP_ERROR)
            VP_TRY(VP_FAIL_AT(j->err, VP_ERR_INPUT, NULL, 0, c.findings[i].key,
                              "%s cannot be told this: %s %s", j->target->name, c.findings[i].key,
                              c.findings[i].message));
out:
    return st;
}

/* ---- what stands above every file ---- */

static const char *environment(const job *j)
{
    const char *a = j->s->value[VP_SETTING_ALLOCATOR];

    return a && strcmp(a, "expandable") == 0 ? "PYTORCH_ALLOC_CONF=expandable_segments:True" : NULL;
}

static const char *launch_of(const job *j)
{
    const char *from = j->target->launch, *at;
    vp_text     text = {0};
    const char *kept;

    for (int f = 0; f < j->target->n_files; f++)
        if (j->target->files[f].launch &&
            vp_target_file_holds(j->target, &j->target->files[f], j->s))
            from = j->target->files[f].launch;
    if (environment(j))
        vp_text_printf(&text, "%s ", environment(j));
    while ((at = strstr(from, "$world"))) {
        vp_text_append(&text, from, (size_t)(at - from));
        vp_text_printf(&text, "%s", j->s->value[VP_SETTING_WORLD]);
        from = at + strlen("$world");
    }
    vp_text_printf(&text, "%s", from);
    kept = text.data ? vp_arena_strdup(j->arena, text.data) : NULL;
    vp_text_release(&text);
    return kept;
}

/* Libraries that were predicted with and that the files are not keyed to. */
static void put_libraries(const job *j, vp_text *out)
{
    json_t     *predicted = json_object_get(j->s->document, "versions"), *value;
    const char *library;
    int         n = 0;

    json_object_foreach (predicted, library, value) {
        const char *of    = json_string_value(value),
                   *keyed = json_string_value(json_object_get(j->out->versions, library));
        if (!(keyed && vp_version_is_of_release(of, keyed)))
            vp_text_printf(out, "%s %s %s", n++ ? "," : ", with", library, of);
    }
}

static void put_prediction(const job *j, vp_text *out)
{
    const vp_settings *s = j->s;
    char               size[48];

    if (j->edited) {
        vp_text_printf(out, "predicted: nothing; these settings were changed after they were "
                            "predicted: vplan check says what they need\n");
        return;
    }
    if (s->device_bytes < 0 && s->reserved_bytes < 0 && s->allocated_bytes < 0) {
        vp_text_printf(out,
                       "predicted: nothing; the settings that this was made from give no bytes\n");
        return;
    }
    vp_text_printf(out, "predicted:");
    if (s->allocated_bytes >= 0)
        vp_text_printf(out, " allocated %s,", vp_size_text(s->allocated_bytes, size, sizeof size));
    if (s->reserved_bytes >= 0)
        vp_text_printf(out, " reserved %s,", vp_size_text(s->reserved_bytes, size, sizeof size));
    if (s->device_bytes >= 0)
        vp_text_printf(out, " on the device %s,", vp_size_text(s->device_bytes, size, sizeof size));
    if (s->step_time_s >= 0)
        vp_text_printf(out, " %.4g s a step,", s->step_time_s);
    vp_text_printf(out, " by %s%s%s%s", s->trainer ? s->trainer : "the settings",
                   s->device ? ", on " : "", s->device ? s->device : "",
                   s->padded ? ", with a mask over padding" : "");
    put_libraries(j, out);
    vp_text_printf(out, "\n");
}

/* Whether one of a dialect's rows says in `settings`, the planner's own, what `common` does not. */
static bool row_differs(const job *j, const vp_saying *row, const char *target)
{
    const json_t *has = json_object_get(json_object_get(j->s->document, "settings"), row->key);
    const char   *argument, *text;
    char          number[32];

    if (!has || row->setting == VP_ALWAYS || row->read_only || !row->value ||
        (strcmp(row->value, "$") != 0 && strcmp(row->value, "$word") != 0) ||
        !j->s->value[row->setting] || !vp_when_holds(row->when, j->s, target) ||
        !vp_word_is(j->s->value[row->setting], row->word, &argument))
        return false;
    text = vp_saying_text(j->arena, j->s, row, argument);
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(has));
    if (json_is_integer(has))
        return text && strcmp(text, number) != 0;
    return json_is_string(has) && text && strcmp(text, json_string_value(has)) != 0;
}

/* Whether `common` was changed by hand after its bytes were predicted. */
static bool is_edited(const job *j)
{
    const vp_target *t      = NULL;
    vp_err           ignore = {0};

    if (!json_object_get(j->s->document, "settings") || !j->s->trainer ||
        vp_target_named(j->s->trainer, &t, &ignore) != VP_OK)
        return false;
    for (int f = 0; f < t->n_files; f++)
        for (const vp_dialect *d = t->files[f].dialect; d; d = d->base_says ? d->base : NULL)
            for (int i = 0; i < d->n_says; i++)
                if (row_differs(j, &d->says[i], t->name))
                    return true;
    return false;
}

/* Lines: versions, prediction, the command that made it, the command that runs it. */
static const char *comment_of(const job *j, const char *made_by)
{
    vp_text     text = {0};
    const char *key, *kept;
    json_t     *value;
    int         n = 0;

    vp_text_printf(&text, "for");
    json_object_foreach (j->out->versions, key, value)
        vp_text_printf(&text, "%s %s %s", n++ ? "," : "", key, json_string_value(value));
    vp_text_printf(&text, "; other versions: emit again\n");
    put_prediction(j, &text);
    vp_text_printf(&text, "made by: %s\nrun with: %s\n", made_by, j->out->launch);
    for (int i = 0; i < j->out->n_script; i++)
        vp_text_printf(&text, "your own code says %s\n", j->out->script[i]);
    kept = text.data && !text.failed ? vp_arena_strdup(j->arena, text.data) : NULL;
    vp_text_release(&text);
    return kept;
}

/* How a script loads the settings' model, what its random samples are, and what they are answered with. */
typedef struct sample {
    const char *data, *makes, *inputs;
} sample;
static const sample texts  = {"tokens of the planned length",
                              "ids = torch.randint(model.config.vocab_size, (length,)",
                              "\"input_ids\": ids"},
                    images = {"pixels",
                              "side = int(length**0.5) * model.config.patch_size\n        "
                              "pixels = torch.rand(model.config.num_channels, side, side",
                              "\"pixel_values\": pixels"},
                    sounds = {"noise and tokens of the planned length",
                              "heard = torch.rand(model.config.num_mel_bins, "
                              "2 * model.config.max_source_positions)\n        "
                              "ids = torch.randint(model.config.vocab_size, (length,)",
                              "\"input_features\": heard"};
static const struct {
    const char   *ends, *loads, *answers;
    const char   *padding; /* of one that finds a sample's last token by what fills it up */
    const sample *sample;
} classes[] = {
    {"ForSequenceClassification", "AutoModelForSequenceClassification",
     "i % model.config.num_labels",
     "if model.config.pad_token_id is None:\n"
     "    model.config.pad_token_id = 0  # yours: the tokenizer's\n",
     &texts},
    {"ForTokenClassification", "AutoModelForTokenClassification", "ids % model.config.num_labels",
     NULL, &texts},
    {"ForImageClassification", "AutoModelForImageClassification", "i % model.config.num_labels",
     NULL, &images},
    {"ForMaskedLM", "AutoModelForMaskedLM", "ids", NULL, &texts},
    {"WhisperForConditionalGeneration", "AutoModelForSpeechSeq2Seq", "ids", NULL, &sounds},
    {"T5ForConditionalGeneration", "AutoModelForSeq2SeqLM", "ids", NULL, &texts},
    {"BartForConditionalGeneration", "AutoModelForSeq2SeqLM", "ids", NULL, &texts},
    {"PegasusForConditionalGeneration", "AutoModelForSeq2SeqLM", "ids", NULL, &texts},
    {"M2M100ForConditionalGeneration", "AutoModelForSeq2SeqLM", "ids", NULL, &texts},
    {"MarianMTModel", "AutoModelForSeq2SeqLM", "ids", NULL, &texts},
    {"", "AutoModelForCausalLM", "ids", NULL, &texts},
};

/* The template, with the model's class in it; "@SETTINGS@" stays. */
static void put_template(const job *j, const char *text, size_t n, vp_text *out)
{
    enum { N_WORDS = 7 };
    const char *name = j->s->model_class ? j->s->model_class : "";
    size_t      i = 0, letters = strlen(name);
    char        labels[64] = "";

    while (letters < strlen(classes[i].ends) ||
           strcmp(name + letters - strlen(classes[i].ends), classes[i].ends) != 0)
        i++;
    if (j->s->n_labels && strstr(classes[i].answers, "num_labels"))
        snprintf(labels, sizeof labels, ", num_labels=%lld", (long long)j->s->n_labels);
    const char *const words[][2] = {{"@CLASS@", classes[i].loads},
                                    {"@CLASSES@", labels},
                                    {"@ANSWERS@", classes[i].answers},
                                    {"@PADDING@", classes[i].padding ? classes[i].padding : ""},
                                    {"@DATA@", classes[i].sample->data},
                                    {"@SAMPLE@", classes[i].sample->makes},
                                    {"@INPUTS@", classes[i].sample->inputs}};
    for (const char *p = text; p < text + n;) {
        size_t k = 0;
        while (k < N_WORDS && strncmp(p, words[k][0], strlen(words[k][0])) != 0)
            k++;
        bool is_one = k < N_WORDS;
        vp_text_append(out, is_one ? words[k][1] : p, is_one ? strlen(words[k][1]) : 1);
        p += is_one ? strlen(words[k][0]) : 1;
    }
}

static const char *write_file(const job *j, const vp_target_file *f, const vp_document *doc,
                              const char *comment)
{
    vp_text     text = {0};
    const char *at   = f->template ? strstr(f->template, "@SETTINGS@") : NULL, *kept;

    if (!f->template) {
        vp_document_write(doc, f->dialect, comment, &text);
    } else {
        for (const char *p = comment; *p; p += strcspn(p, "\n") + 1)
            vp_text_printf(&text, "# %.*s\n", (int)strcspn(p, "\n"), p);
        put_template(j, f->template, at ? (size_t)(at - f->template) : strlen(f->template), &text);
        if (at) {
            vp_document_write(doc, f->dialect, NULL, &text);
            vp_text_printf(&text, "%s", at + strlen("@SETTINGS@"));
        }
    }
    kept = text.data && !text.failed ? vp_arena_strdup(j->arena, text.data) : NULL;
    vp_text_release(&text);
    return kept;
}

void vp_emitted_check_options(const vp_emitted *e, vp_text *out)
{
    if (e->other)
        vp_text_printf(out, " --versions %s", e->other);
    if (e->world)
        vp_text_printf(out, " --world %s", e->world);
    if (e->environment)
        vp_text_printf(out, " -- %s", e->environment);
}

/* For formats that take no comment, and for people. */
static const char *readme(const job *j, const char *comment)
{
    vp_text     text = {0};
    const char *kept;

    vp_text_printf(&text, "# Settings for %s\n\n", j->target->name);
    for (const char *p = comment; *p; p += strcspn(p, "\n") + 1)
        vp_text_printf(&text, "- %.*s\n", (int)strcspn(p, "\n"), p);
    vp_text_printf(&text, "\nThe files belong together: change one and the others no longer agree. "
                          "Ask before you run:\n\n    vplan check");
    for (int i = 0; i < j->out->n_files; i++)
        if (j->out->files[i].dialect && j->out->files[i].document->root->first)
            vp_text_printf(&text, " %s", j->out->files[i].name);
    vp_emitted_check_options(j->out, &text);
    vp_text_printf(&text, "\n");
    kept = text.data && !text.failed ? vp_arena_strdup(j->arena, text.data) : NULL;
    vp_text_release(&text);
    return kept;
}

/* ---- the answer's settings ---- */

static json_t *value_json(const vp_value *v)
{
    json_t *j;

    if (v->kind == VP_VALUE_MAP) {
        j = json_object();
        for (const vp_value *m = v->first; j && m; m = m->next)
            json_object_set_new(j, m->key, value_json(m));
        return j;
    }
    if (v->kind == VP_VALUE_LIST) {
        j = json_array();
        for (const vp_value *m = v->first; j && m; m = m->next)
            json_array_append_new(j, value_json(m));
        return j;
    }
    return v->kind == VP_VALUE_NULL   ? json_null()
           : v->kind == VP_VALUE_BOOL ? json_boolean(v->boolean)
           : v->kind == VP_VALUE_INT  ? json_integer(v->integer)
           : v->kind == VP_VALUE_REAL ? json_real(v->real)
                                      : json_string(v->text);
}

static vp_status add_other(job *j, const char *library, const char *version)
{
    vp_emitted *out = j->out;
    vp_status   st  = VP_OK;

    out->other = vp_arena_printf(j->arena, "%s%s%s=%s", out->other ? out->other : "",
                                 out->other ? "," : "", library, version);
    VP_TRY_ALLOC(j->err, out->other && !json_object_set_new(j->usual, library,
                                                            json_string(version))); /* once */
out:
    return st;
}

static vp_status note_version(job *j, const vp_dialect *of)
{
    vp_status st = VP_OK;

    for (const vp_dialect *d = of; d; d = d->base) {
        const char *version = vp_dialect_version(d, of, j->s->versions);
        VP_TRY_ALLOC(j->err,
                     !json_object_set_new(j->out->versions, d->library, json_string(version)));
        if (j->is_written && !version[strspn(version, "0123456789.")] && /* an option takes it */
            !vp_dialect_is_alike(d, version, vp_dialect_version(d, of, j->usual)))
            VP_TRY(add_other(j, d->library, version));
    }
out:
    return st;
}

/* Those that somebody asked for, so that bytes are counted with them again. */
static vp_status note_asked(job *j)
{
    const char *library;
    json_t     *version;
    vp_status   st = VP_OK;

    json_object_foreach (j->s->asked, library, version)
        if (!(j->out->other && json_equal(json_object_get(j->usual, library), version)))
            VP_TRY(add_other(j, library, json_string_value(version)));
out:
    return st;
}

vp_status vp_emit(vp_arena *arena, const vp_target *target, const vp_settings *s,
                  const char *made_by, vp_emitted *out, vp_err *err)
{
    job         j = {.arena      = arena,
                     .target     = target,
                     .s          = s,
                     .out        = out,
                     .is_written = made_by != NULL,
                     .err        = err};
    vp_settings own;
    const char *comment;
    vp_status   st = VP_OK;

    j.edited = is_edited(&j);
    if (j.edited) {
        own                 = *s;
        own.allocated_bytes = own.reserved_bytes = own.reserved_high_bytes = own.device_bytes = -1;
        own.step_time_s                                                                       = -1;
        j.s = &own;
        s   = &own;
    }
    *out    = (vp_emitted){.versions = json_object(), .settings = json_object()};
    j.usual = json_object();
    VP_TRY_ALLOC(err, out->versions && out->settings && j.usual);
    VP_TRY(vp_target_writes_for(target, j.usual, err));
    for (int f = 0; f < target->n_files; f++) {
        const vp_target_file *file = &target->files[f];
        if (!vp_target_file_holds(target, file, s))
            continue;
        vp_document *doc = vp_document_new(arena, file->name, file->format);
        VP_TRY_ALLOC(err, doc);
        if (file->dialect) {
            VP_TRY(note_version(&j, file->dialect));
            VP_TRY(fill(&j, doc, file->dialect, file->dialect));
        }
        assert(out->n_files + 1 < VP_EMIT_MAX_FILES);
        out->files[out->n_files++] =
            (vp_emitted_file){.name = file->name, .dialect = file->dialect, .document = doc};
    }
    VP_TRY(note_asked(&j));
    j.said[VP_SETTING_ALLOCATOR] = true; /* the launch line's environment */
    VP_TRY(check_said(&j));
    VP_TRY(check_rules(&j));
    if (!made_by)
        goto out;
    out->environment = environment(&j);
    out->launch      = launch_of(&j);
    VP_TRY_ALLOC(err, out->launch);
    comment = comment_of(&j, made_by);
    VP_TRY_ALLOC(err, comment);
    for (int f = 0, i = 0; f < target->n_files; f++) {
        if (!vp_target_file_holds(target, &target->files[f], s))
            continue;
        out->files[i].text = write_file(&j, &target->files[f], out->files[i].document, comment);
        VP_TRY_ALLOC(err, out->files[i].text);
        if (out->files[i].document->root->first)
            VP_TRY_ALLOC(err, json_object_set_new(out->settings, out->files[i].name,
                                                  value_json(out->files[i].document->root)) == 0);
        i++;
    }
    out->files[out->n_files] = (vp_emitted_file){.name = "README.md", .text = readme(&j, comment)};
    VP_TRY_ALLOC(err, out->files[out->n_files].text);
    out->n_files++;
out:
    json_decref(j.usual);
    if (st != VP_OK)
        vp_emitted_release(out);
    return st;
}

void vp_emitted_release(vp_emitted *out)
{
    json_decref(out->versions);
    json_decref(out->settings);
    out->versions = out->settings = NULL;
}
