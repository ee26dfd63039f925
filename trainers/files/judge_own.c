/* trainers/files/judge_own.c: options of a script's own that by their names change what is trained: adapters, weights in fewer bits, a
 * model beside the text's. No trainer's parser has them, so a script does with them what it likes: where nothing that is read says what,
 * fit is not answered, for the answer would be full training's. */
#include "base/text.h"
#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum meaning { PICTURES, SWITCHES, ADAPTS, QUANTISES, PART, UNSLOTHS, N_MEANINGS } meaning;

static const char *const meant[N_MEANINGS] = {
    [ADAPTS]    = "trains adapters",
    [SWITCHES]  = "trains adapters",
    [QUANTISES] = "holds weights or states in fewer bits",
    [PICTURES]  = "puts an encoder of pictures or sounds before the model",
    [PART]      = "trains a part of the weights",
    [UNSLOTHS]  = "puts Unsloth's own code in the model's place"};

/* By what people's scripts call them (qlora.py, FastChat, LLaVA, peft's examples, LongLoRA); with a star, what begins so. SWITCHES that
 * are off turn off what ADAPTS says. */
static const struct {
    const char *names;
    meaning     is;
} rows[] = {
    {"lora use_lora enable_lora lora_enable with_lora use_peft use_peft_* peft enable_peft "
     "q_lora qlora use_qlora use_dora low_rank_training",
     SWITCHES},
    {"lora_* peft_*", ADAPTS},
    {"bits quant_bits load_in_4bit load_in_8bit load_4bit load_8bit use_4bit* use_8bit* "
     "use_int4* use_int8* quantize use_quant* quantization* load_in_kbit*",
     QUANTISES},
    {"vision_tower mm_vision* vision_model* image_encoder* audio_tower speech_encoder*", PICTURES},
    {"freeze freeze_* unfreeze_* tune_mm* train_only_* trainable_*", PART},
    {"use_unsloth", UNSLOTHS},
};

static bool is_listed(const char *names, const char *key)
{
    for (const char *p = names; *p; p += strcspn(p, " "), p += *p == ' ') {
        size_t n    = strcspn(p, " ");
        bool   star = p[n - 1] == '*';
        if (strncmp(p, key, n - star) == 0 && (star || !key[n]))
            return true;
    }
    return false;
}

static meaning meaning_of(const char *key)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_listed(rows[i].names, key))
            return rows[i].is;
    return N_MEANINGS;
}

/* --lora_r 0, --bits 16, --use_lora no are none. */
static bool is_on(const vp_value *v, meaning is)
{
    if (!vp_is_there(v) || (v->kind == VP_VALUE_STRING &&
                            (!strcasecmp(v->text, "none") || !strcasecmp(v->text, "no"))))
        return false;
    if (v->kind == VP_VALUE_INT || v->kind == VP_VALUE_REAL)
        return v->real != 0 && !(is == QUANTISES && v->real >= 16);
    return true;
}

static bool is_key(const vp_judged *x, const char *key)
{
    if (vp_file_key(x->c, x->file, key, NULL))
        return true;
    for (const vp_dialect *d = x->file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_sections; i++)
            if (!d->sections[i].path[0] && vp_listed(d->sections[i].known, key))
                return true;
    return false;
}

static bool is_among(const vp_checked *c, const vp_dialect *d)
{
    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc && c->files[f].dialect == d)
            return true;
    return false;
}

/* Whether the command's script is among what is read. */
static bool has_script(const vp_judged *x)
{
    for (int f = 0; f < x->c->n_files; f++) {
        const vp_checked_file *file = &x->c->files[f];
        if (file->doc && file->doc->format == VP_FORMAT_PYTHON && !file->is_part &&
            file->yields_to && strcmp(file->yields_to, x->file->name) == 0)
            return true;
    }
    return false;
}

static bool is_said(const vp_judged *x, meaning is)
{
    return ((is == ADAPTS || is == SWITCHES) && is_among(x->c, &vp_dialect_lora)) ||
           (is == QUANTISES && is_among(x->c, &vp_dialect_model));
}

/* One note of a kind, at the first of its options; others: those behind it, "lora_alpha, lora_dropout". */
static void say(vp_judged *x, const vp_value *v, const char *key, const char *others, meaning is)
{
    vp_checked *c = x->c;

    vp_find(c, x->file, VP_NOTE, v, key, NULL,
            "by its name %s; no trainer's parser has it%s%s, and nothing that is read says what "
            "%s: fit is not answered",
            meant[is], *others ? ", nor " : "", others, *others ? "they do" : "it does");
    c->own_adapts = c->own_adapts || is == ADAPTS || is == SWITCHES;
    c->own_quantises =
        c->own_quantises || is == QUANTISES || strstr(key, "qlora") || strstr(key, "q_lora");
    c->own_pictures = c->own_pictures || is == PICTURES;
    if (!c->own)
        c->own = vp_arena_printf(c->arena, "what %s in %s does, which by its name %s,", key,
                                 x->file->name, meant[is]);
}

/* python qlora.py, python -m fastchat.train.train_lora: the last of its words that is a script. */
static const char *script_of_adapters(vp_arena *arena, const vp_document *doc)
{
    for (const char *p = doc->program; p && *p; p += strcspn(p, " "), p += *p == ' ') {
        const char *word = vp_arena_printf(arena, "%.*s", (int)strcspn(p, " "), p);
        const char *tail = word ? strrchr(word, '/') : NULL;
        tail             = tail ? tail + 1 : word;
        if (tail && strstr(tail, "lora"))
            return tail;
    }
    return NULL;
}

void vp_judge_own(vp_judged *x)
{
    const vp_document *doc      = x->file->doc;
    bool               switched = false, is_off = false, told = false;

    if (!vp_dialect_is_based_on(x->file->dialect, &vp_dialect_transformers) || x->file->is_part ||
        doc->format == VP_FORMAT_PYTHON || vp_check_is_run(x->file))
        return;
    for (const vp_value *v = doc->root->first; v; v = v->next)
        if (meaning_of(v->key) == SWITCHES && !is_key(x, v->key)) {
            switched = switched || is_on(v, SWITCHES);
            is_off   = is_off || !is_on(v, SWITCHES);
        }
    /* of two spellings of one kind, q_lora is no switch of adapters: train_lora.py --q_lora False */
    const vp_value *q = vp_value_member(doc->root, "q_lora");
    is_off            = is_off && !switched && !q;
    for (int is = 0; is < N_MEANINGS; is++) {
        const vp_value *first  = NULL;
        vp_text         others = {0};
        for (const vp_value *v = doc->root->first; v && !is_said(x, (meaning)is); v = v->next) {
            if ((int)meaning_of(v->key) != is || !is_on(v, (meaning)is) || v->is_taken ||
                (is == ADAPTS && (is_off || told)) || is_key(x, v->key))
                continue;
            if (first)
                vp_text_printf(&others, "%s%s", others.n_bytes ? ", " : "", v->key);
            first = first ? first : v;
        }
        if (first)
            say(x, first, first->key, vp_text_string(&others), (meaning)is);
        told = told || (first && is == SWITCHES);
        vp_text_release(&others);
    }
    const char *script = has_script(x) || is_off || x->c->own || is_said(x, ADAPTS)
                             ? NULL
                             : script_of_adapters(x->c->arena, doc);
    if (script && doc->format == VP_FORMAT_FLAGS) {
        vp_value at = {.kind = VP_VALUE_NULL, .line = doc->root->line};
        say(x, &at, script, "", ADAPTS);
        x->c->findings[x->c->n_findings - 1].from = NULL;
    }
}
