/* trainers/files/settle.c: of the words that files leave open for a setting, the one that others of their settings decide. */
#include "trainers/files/check_internal.h"

#include <ctype.h>
#include <string.h>

static bool says(const char *value, const char *word)
{
    return value && strcmp(value, word) == 0;
}

/* Beside quantised weights what is not quantised keeps the file's type, which is of 16 bits where people quantise: of the
 * precisions that it may be, the one of such weights. */
static void settle_precision(vp_checked *c)
{
    const char *may    = c->may_be[VP_SETTING_PRECISION],
               *tuning = c->settings.value[VP_SETTING_TUNING];

    static const char *const words[] = {"bf16-amp", "fp16-amp"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (may && tuning && strcmp(tuning, "qlora") == 0 && strstr(may, words[i]))
            c->settings.value[VP_SETTING_PRECISION] = words[i];
}

/* Unsloth loads weights that no dtype is named for in bf16 where the card has it, else in fp16, and has SFTConfig follow (loader.py,
 * rl.py): what is_bfloat16_supported() says of such a card is the same. */
static void settle_unsloth(vp_checked *c)
{
    const char *tuning = c->settings.value[VP_SETTING_TUNING],
               *said   = c->settings.value[VP_SETTING_PRECISION];
    bool is_unsaid     = said && c->by_default[VP_SETTING_PRECISION] && says(said, "bf16-amp");

    for (int f = 0; c->no_bf16 && tuning && !says(tuning, "full") && f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        if (!file->doc || file->dialect != &vp_dialect_unsloth || file->doc->has_gap ||
            vp_is_there(vp_value_at(file->doc->root, "dtype")) ||
            !(is_unsaid || (!said && vp_check_holds(c, file, "fp16", "=true") &&
                            vp_check_holds(c, file, "bf16", "=false"))))
            continue;
        c->settings.value[VP_SETTING_PRECISION] = "fp16-amp";
        c->by_default[VP_SETTING_PRECISION]     = is_unsaid;
        c->unread[VP_SETTING_PRECISION]         = NULL;
    }
}

/* DeepSpeed's engine whose file has ZeRO off: none of the ways that there are words for. */
static bool is_without_zero(const vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc && c->files[f].dialect == &vp_dialect_deepspeed &&
            vp_check_holds(c, &c->files[f], "zero_optimization.stage", "=0"))
            return true;
    return false;
}

/* --deepspeed --zero_stage 3: a script that makes DeepSpeed's settings itself (DeepSpeed-Chat) is told the stage by that name. */
static const char *stage_of_script(const vp_checked *c)
{
    static const char *const words[] = {NULL, "zero1", "zero2", "zero3"};

    for (int f = 0; f < c->n_files; f++) {
        const vp_value *v = c->files[f].doc && c->files[f].doc->format == VP_FORMAT_FLAGS
                                ? vp_value_at(c->files[f].doc->root, "zero_stage")
                                : NULL;
        if (v && v->kind == VP_VALUE_INT && v->integer >= 1 && v->integer <= 3)
            return words[v->integer];
    }
    return NULL;
}

static bool reads_deepspeed(const vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc && c->files[f].dialect == &vp_dialect_deepspeed)
            return true;
    return false;
}

/* Cards that share nothing but gradients and a card alone are told alike: the number of processes says which. */
static void settle_parallel(vp_checked *c)
{
    const char *may   = c->may_be[VP_SETTING_PARALLEL],
               *world = c->by_default[VP_SETTING_WORLD] && !c->world
                            ? NULL
                            : c->settings.value[VP_SETTING_WORLD];

    if (may && strncmp(may, "zero", 4) == 0 && is_without_zero(c))
        c->settings.value[VP_SETTING_PARALLEL] = c->may_be[VP_SETTING_PARALLEL] = may = NULL;
    const char *stage = stage_of_script(c);
    if (may && stage && strcmp(may, "zero1 or zero2 or zero3") == 0 && !reads_deepspeed(c)) {
        c->settings.value[VP_SETTING_PARALLEL] = stage;
        c->may_be[VP_SETTING_PARALLEL] = may = NULL;
        if (!c->uncounted)
            c->uncounted = "a script that makes DeepSpeed's settings itself (zero_stage)";
    }
    if (!may || !world || strcmp(may, "none or ddp") != 0)
        return;
    c->settings.value[VP_SETTING_PARALLEL] = strcmp(world, "1") == 0 ? "none" : "ddp";
    c->may_be[VP_SETTING_PARALLEL]         = NULL;
}

bool vp_checked_is_quantised(const vp_checked *c)
{
    return says(c->settings.value[VP_SETTING_TUNING], "qlora");
}

const char *vp_checked_preparation(const vp_checked *c)
{
    const char *shares = c->settings.value[VP_SETTING_PARALLEL], *said = NULL;

    /* a module of settings alone loads no model and adapts none: whoever imports it does */
    if (says(shares, "fsdp") || says(shares, "fsdp2"))
        return NULL;
    for (int f = 0; f < c->n_files; f++) {
        const vp_document *doc = c->files[f].doc;
        if (!doc)
            continue;
        const vp_value *format = vp_value_at(doc->root, "dtype");
        format                 = format ? format : vp_value_at(doc->root, "torch_dtype");
        if (format && says(format->text, "float32"))
            return NULL;
        bool is_script = doc->format == VP_FORMAT_PYTHON && !c->files[f].is_part &&
                         (doc->parts || doc->adapts || doc->prepares);
        if (is_script && !says(said, "on"))
            said = doc->prepares ? "on" : "off";
    }
    return said;
}

/* A file's own key comes before what the script beside it calls, which no edit of keys changes. */
static void settle_preparation(vp_checked *c)
{
    const char *said = vp_checked_is_quantised(c) ? vp_checked_preparation(c) : NULL;

    if (!said || (c->settings.value[VP_SETTING_PREPARE] && !c->by_default[VP_SETTING_PREPARE]))
        return;
    c->settings.value[VP_SETTING_PREPARE] = said;
    c->by_default[VP_SETTING_PREPARE]     = true;
}

/* Words that are what weights of that format are trained by, of "a or b"; NULL: none, or several are. */
static const char *of_format(vp_checked *c, const char *may, const char *format)
{
    static const char *const wide[] = {"fp32", "bf16-mixed", "fp16-mixed"};
    const char              *found  = NULL;
    bool                     is_16 = !says(format, "float32"), both = strstr(may, "-amp") != NULL;

    for (const char *p = may; *p; p += strcspn(p, " "), p += strncmp(p, " or ", 4) == 0 ? 4 : 0) {
        const char *word    = vp_arena_printf(c->arena, "%.*s", (int)strcspn(p, " "), p);
        bool        is_wide = false;
        for (size_t i = 0; word && i < sizeof wide / sizeof *wide; i++)
            is_wide = is_wide || says(word, wide[i]);
        /* without autocast it is the format itself that is computed in */
        bool fits =
            is_wide != is_16 && (both || !is_16 || says(format, "bfloat16") == says(word, "bf16"));
        if (!word || (fits && found))
            return NULL;
        found = fits ? word : found;
    }
    return found;
}

/* Scripts of transformers' own that load a model by what --torch_dtype says, and by nothing where it is not there. */
static bool is_example(const char *program)
{
    static const char *const names[] = {"run_clm.py", "run_mlm.py", "run_plm.py", "run_fim.py"};

    for (size_t i = 0; program && i < sizeof names / sizeof *names; i++)
        if (strstr(program, names[i]))
            return true;
    return false;
}

/* In which format weights are loaded where no word says it: "auto", the file's own, or, before transformers 5, float32
 * (modeling_utils.py, from_pretrained()); NULL: nobody knows, or it is said. *where: by which file and key. */
static const char *format_loaded(const vp_checked *c, const vp_checked_file **where,
                                 const vp_value **at)
{
    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        bool                   loads =
            file->doc && (file->dialect == &vp_dialect_model || file->dialect == &vp_dialect_trl ||
                          file->dialect == &vp_dialect_transformers);
        const vp_value *v = loads ? vp_value_at(file->doc->root, "dtype") : NULL;
        if (!loads)
            continue;
        v      = v ? v : vp_value_at(file->doc->root, "torch_dtype");
        *where = file, *at = v;
        if (v && v->kind != VP_VALUE_NULL)
            return v->kind == VP_VALUE_STRING && says(v->text, "auto") ? "auto" : NULL;
        if (file->dialect == &vp_dialect_model
                ? !file->doc->has_gap
                : file->dialect == &vp_dialect_transformers && is_example(file->doc->program))
            return vp_version_compare(vp_file_version(c, file, &vp_dialect_model), "5.0") < 0
                       ? "float32"
                       : "auto";
    }
    return NULL;
}

void vp_check_published(vp_checked *c, const char *published)
{
    const char            *may = c->may_be[VP_SETTING_PRECISION], *word;
    const char            *way = c->settings.value[VP_SETTING_PARALLEL];
    const vp_checked_file *file;
    const vp_value        *at;
    const char            *format = may ? format_loaded(c, &file, &at) : NULL;

    /* what cuts weights casts them first */
    if (!format || (way && !says(way, "none") && !says(way, "ddp")))
        return;
    bool by_file = says(format, "auto");
    word         = by_file && !published ? NULL : of_format(c, may, by_file ? published : format);
    /* what peft and TRL make of adapters over packed weights without autocast is another question */
    if (!word || (says(word, "fp16") && vp_checked_is_quantised(c)))
        return;
    c->settings.value[VP_SETTING_PRECISION] = word;
    c->may_be[VP_SETTING_PRECISION]         = NULL;
    vp_find(
        c, file, VP_NOTE, at, "dtype", NULL,
        by_file
            ? "weights are loaded in the format of their file, %s as the model is published: precision %s"
            : "is not set: weights are loaded in %s before transformers 5: precision %s",
        by_file ? published : format, word);
}

void vp_check_adapted(vp_checked *c, const char *family, const char *targets)
{
    const char              *tuning = c->settings.value[VP_SETTING_TUNING];
    static const char *const keys[] = {"target_modules", "lora_target_modules"};

    if (!tuning || says(tuning, "full") || c->settings.value[VP_SETTING_LORA_TARGETS] ||
        c->unread[VP_SETTING_LORA_TARGETS])
        return;
    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file    = &c->files[f];
        bool                   is_lora = file->doc && file->dialect == &vp_dialect_lora;
        if (!is_lora && !(file->doc && file->dialect == &vp_dialect_trl &&
                          file->doc->format != VP_FORMAT_PYTHON))
            continue;
        const char *key = keys[!is_lora];
        if (file->doc->has_gap || vp_is_there(vp_value_at(file->doc->root, key)))
            return;
        c->settings.value[VP_SETTING_LORA_TARGETS] = vp_arena_strdup(c->arena, targets);
        c->by_default[VP_SETTING_LORA_TARGETS]     = true;
        vp_find(c, file, VP_NOTE, NULL, key, NULL, "is not set: of %s peft adapts %s", family,
                targets);
        return;
    }
}

/* The value that names the layers, and whose file it is; NULL: they are written nowhere. */
static const vp_value *targets_of(const vp_checked *c, const vp_checked_file **file)
{
    static const char *const keys[] = {"target_modules", "lora_target_modules", "lora_target"};

    for (int f = 0; f < c->n_files; f++)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const vp_value *v = c->files[f].doc && c->files[f].dialect
                                    ? vp_value_at(c->files[f].doc->root, keys[i])
                                    : NULL;
            if (v && v->kind != VP_VALUE_NULL && !v->call) {
                *file = &c->files[f];
                return v;
            }
        }
    return NULL;
}

static bool is_identifier(const char *text)
{
    for (const char *p = text; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_')
            return false;
    return *text != '\0';
}

vp_status vp_check_targets(vp_checked *c, const char *family, vp_lacks_module *lacks, vp_err *err)
{
    const char            *said = c->settings.value[VP_SETTING_LORA_TARGETS], *near = NULL, *one;
    const vp_checked_file *file;
    const vp_value        *v         = targets_of(c, &file);
    const char            *missing[] = {NULL, NULL};
    int                    n = 0, n_missing = 0;
    vp_status              st = VP_OK;

    if (!v)
        return VP_OK;
    if (file->dialect == &vp_dialect_lora && v->kind == VP_VALUE_STRING && v->text &&
        !(file->doc->format == VP_FORMAT_PYTHON &&
          !v->quoted) && /* a name, whose value nobody knows */
        !says(v->text, "all-linear") &&
        is_identifier(v->text)) {
        vp_find(c, file, VP_ERROR, v, v->key,
                says(v->text, "all_linear") ? "all-linear"
                                            : vp_arena_printf(c->arena, "[%s]", v->text),
                "%s is text, a regular expression that the whole name of a module must match: none "
                "does, and peft ends with an error",
                v->text);
        goto out;
    }
    if (!said || c->by_default[VP_SETTING_LORA_TARGETS] || says(said, "all-linear"))
        return VP_OK;
    for (const char *p = said; *p; p += *p == '+') {
        size_t length = strcspn(p, "+");
        VP_TRY_ALLOC(err, one = vp_arena_printf(c->arena, "%.*s", (int)length, p));
        p += length;
        n++;
        const char *nearest = NULL;
        if (!lacks(family, one, &nearest))
            continue;
        missing[n_missing > 0] = one;
        near                   = near ? near : nearest;
        n_missing++;
    }
    if (n_missing)
        vp_find(c, file, n_missing == n ? VP_ERROR : VP_WARNING, v, v->key,
                n_missing == 1 ? near : NULL, "%s has no module named %s%s%s%s: %s", family,
                missing[0],
                n_missing > 2    ? ", ..., "
                : n_missing == 2 ? " or "
                                 : "",
                n_missing > 1 ? missing[1] : "", n_missing > 2 ? " and others" : "",
                n_missing == n ? "peft ends with an error" : "peft goes on without a word");
out:
    return st;
}

vp_status vp_check_order(vp_checked *c, vp_err *err)
{
    return vp_check_sort(c, err);
}

static void say(vp_checked *c, const vp_checked_file *file, int setting, const char *key)
{
    const vp_value *v = key ? vp_value_at(file->doc->root, key) : NULL;
    char            text[64];

    if (!v || c->settings.value[setting] || (v->kind != VP_VALUE_INT && v->kind != VP_VALUE_REAL))
        return;
    c->settings.value[setting] = vp_arena_strdup(c->arena, vp_value_text(v, text, sizeof text));
}

/* Adapters of torchtune's and litgpt's, whose steps nothing here counts: what they are stands in the files. */
static void settle_adapters(vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file         = &c->files[f];
        bool                   is_torchtune = file->doc && file->dialect == &vp_dialect_torchtune;
        bool                   is_litgpt    = file->doc && file->dialect == &vp_dialect_litgpt;
        const vp_value *model = is_torchtune ? vp_value_at(file->doc->root, "model._component_")
                                : is_litgpt  ? vp_value_at(file->doc->root, "lora_r")
                                             : NULL;
        const vp_value *quant = is_litgpt ? vp_value_at(file->doc->root, "quantize") : NULL;
        if (!model || !model->text || c->settings.value[VP_SETTING_TUNING] ||
            (is_torchtune && !strstr(model->text, "lora_")))
            continue;
        c->settings.value[VP_SETTING_TUNING] =
            (quant && quant->kind == VP_VALUE_STRING) || strstr(model->text, ".qlora_") ? "qlora"
                                                                                        : "lora";
        say(c, file, VP_SETTING_LORA_R, is_torchtune ? "model.lora_rank" : "lora_r");
        say(c, file, VP_SETTING_LORA_ALPHA, is_torchtune ? "model.lora_alpha" : "lora_alpha");
        say(c, file, VP_SETTING_LORA_DROPOUT, is_torchtune ? "model.lora_dropout" : "lora_dropout");
    }
}

void vp_settle(vp_checked *c)
{
    settle_precision(c);
    settle_unsloth(c);
    settle_parallel(c);
    settle_adapters(c);
    settle_preparation(c);
}
