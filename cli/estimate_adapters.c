/* --lora r=16,targets=all-linear,...: the adapters of peft's LoraConfig. */
#include "cli/estimate.h"

#include "trainers/hf/hf_adapters.h"
#include "trainers/hf/hf_sizes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PEFT_RANK   = 8,
    PEFT_ALPHA  = 8,
    MAX_RANK    = VP_LORA_MAX_RANK,
    MAX_TOKENS  = 1000000,
    MOST_PIXELS = 65536
};

static bool is_word(const char *at, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(at, word, n) == 0;
}

static vp_status bad(const char *what, const char *at, size_t n, vp_err *err)
{
    return VP_FAIL(err, VP_ERR_USAGE,
                   "--lora: \"%.*s\" %s; it is r=16,alpha=32,targets=all-linear|q_proj+v_proj,"
                   "dropout=0.05,dtype=fp32|bf16,dora,rslora,save=embed_tokens+lm_head,tokens=N",
                   (int)n, at, what);
}

static vp_status read_number(const char *at, size_t n, const char *value, double low, double high,
                             double *out, vp_err *err)
{
    char *end;

    errno = 0;
    *out  = strtod(value, &end);
    if (errno || end == value || end != at + n || !(*out >= low && *out <= high))
        return bad("is no such number", at, n, err);
    return VP_OK;
}

/* Names of modules joined by '+'. */
static vp_status read_names(char *out, size_t size, const char *at, size_t n, const char *value,
                            vp_err *err)
{
    size_t length = n - (size_t)(value - at);

    if (length == 0 || length >= size)
        return bad("names no modules", at, n, err);
    memcpy(out, value, length);
    out[length] = '\0';
    return VP_OK;
}

static vp_status read_count(const char *at, size_t n, const char *value, int64_t most, int64_t *out,
                            vp_err *err)
{
    double    number;
    vp_status st = VP_OK;

    VP_TRY(read_number(at, n, value, 1, (double)most, &number, err));
    if (number != (double)(int64_t)number)
        VP_TRY(bad("is no whole number", at, n, err));
    *out = (int64_t)number;
out:
    return st;
}

enum word { R, ALPHA, TARGETS, DROPOUT, DTYPE, DORA, RSLORA, SAVE, TOKENS, N_WORDS };
static const char *const words[N_WORDS] = {
    "r=", "alpha=", "targets=", "dropout=", "dtype=", "dora", "rslora", "save=", "tokens="};

/* Which word the n characters at `at` are; N_WORDS: none. */
static enum word word_at(const char *at, size_t n)
{
    int i = 0;

    for (; i < N_WORDS; i++) {
        size_t length = strlen(words[i]);
        bool   valued = words[i][length - 1] == '=';
        if (n >= length && memcmp(at, words[i], length) == 0 && (valued || n == length))
            break;
    }
    return (enum word)i;
}

/* One word of the list, n characters at `at`. *seen: a bit for each word that stood before. */
static vp_status read_word(vp_estimate_lora *o, unsigned *seen, const char *at, size_t n,
                           vp_err *err)
{
    enum word   word  = word_at(at, n);
    const char *value = at + (word < N_WORDS ? strlen(words[word]) : n);
    size_t      rest  = n - (size_t)(value - at);
    vp_status   st    = VP_OK;

    if (*seen & 1U << word)
        VP_TRY(bad("is the second of its name", at, n, err));
    *seen |= 1U << word;
    switch (word) {
    case R:
        VP_TRY(read_count(at, n, value, MAX_RANK, &o->lora.rank, err));
        break;
    case ALPHA:
        VP_TRY(read_number(at, n, value, 1e-9, 1e9, &o->alpha, err));
        break;
    case DROPOUT:
        VP_TRY(read_number(at, n, value, 0, 1, &o->lora.dropout, err));
        break;
    case TARGETS:
        VP_TRY(read_names(o->targets, sizeof o->targets, at, n, value, err));
        o->has_targets = true;
        break;
    case DTYPE:
        if (!is_word(value, rest, "fp32") && !is_word(value, rest, "bf16"))
            VP_TRY(bad("is none of its words", at, n, err));
        o->lora.is_bf16 = is_word(value, rest, "bf16");
        o->has_dtype    = true;
        break;
    case DORA:
        o->lora.is_dora = true;
        break;
    case SAVE:
        VP_TRY(read_names(o->save, sizeof o->save, at, n, value, err));
        break;
    case TOKENS:
        VP_TRY(read_count(at, n, value, MAX_TOKENS, &o->lora.tokens, err));
        break;
    case RSLORA:
        o->rslora = true;
        break;
    case N_WORDS:
        VP_TRY(bad("is none of its words", at, n, err));
    }
out:
    return st;
}

/* Where none are given and peft has none, what to type ends the message, if all may be taken. */
static vp_status choose_targets(const char *text, const char *family, vp_estimate_lora *o,
                                vp_err *err)
{
    const char *asked = o->has_targets ? o->targets : NULL;
    vp_err      why = {0}, ignored = {0};
    vp_status   st = vp_hf_lora_targets(family, asked, o->canonical, sizeof o->canonical, &why);

    if (st == VP_OK)
        return VP_OK;
    if (!asked && vp_hf_lora_targets(family, "all-linear", o->canonical, sizeof o->canonical,
                                     &ignored) == VP_OK)
        return VP_FAIL(err, st,
                       "peft has no targets of its own for %s; all its linear layers: --lora "
                       "%s,targets=all-linear",
                       family, text);
    return VP_FAIL(err, st, "%s", why.message);
}

/* Blanks say nothing: a long list is folded over lines within its quotes. */
static char *without_blanks(const char *text)
{
    char *plain = strdup(text), *to = plain;

    for (const char *at = text; plain && *at; at++)
        if (*at != ' ')
            *to++ = *at;
    if (plain)
        *to = '\0';
    return plain;
}

vp_status vp_estimate_read_lora(const char *given, const char *family, vp_estimate_lora *out,
                                vp_err *err)
{
    unsigned  seen = 0;
    char     *text = without_blanks(given);
    vp_status st   = VP_OK;

    *out = (vp_estimate_lora){.lora.rank = PEFT_RANK, .alpha = PEFT_ALPHA};
    VP_TRY_ALLOC(err, text);
    for (const char *at = text; *at; at += strcspn(at, ","), at += *at == ',')
        VP_TRY(read_word(out, &seen, at, strcspn(at, ","), err));
    VP_TRY(choose_targets(text, family, out, err));
    out->lora.targets = out->canonical;
    if (out->save[0]) {
        VP_TRY(vp_hf_lora_saved(family, out->save, out->saved, sizeof out->saved, err));
        out->lora.save = out->saved;
    }
out:
    free(text);
    return st;
}

vp_status vp_estimate_read_peft(const char *text, vp_hf_lora *out, vp_err *err)
{
    static const struct {
        const char *name;
        int         least; /* virtual tokens; of one in a prefix fewer copies are made than of several, which were recorded */
    } methods[]      = {{"ia3", 0}, {"prompt", 1}, {"prefix", 2}};
    const char *rest = text + strcspn(text, ":");
    char       *end;
    size_t      i = 0, n = sizeof methods / sizeof *methods;

    while (i < n && !is_word(text, (size_t)(rest - text), methods[i].name))
        i++;
    if (i == n || (!methods[i].least && *rest))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--peft %s: it is ia3, prompt:tokens=20 or prefix:tokens=20; LoRA is --lora",
                       text);
    *out = (vp_hf_lora){.targets = methods[i].name};
    if (!methods[i].least)
        return VP_OK;
    if (strncmp(rest, ":tokens=", strlen(":tokens=")) != 0)
        return VP_FAIL(err, VP_ERR_USAGE, "--peft %s: how many virtual tokens? --peft %s:tokens=20",
                       text, methods[i].name);
    rest += strlen(":tokens=");
    out->virtual_tokens = strtoll(rest, &end, 10);
    if (*rest < '0' || *rest > '9' || *end || out->virtual_tokens < methods[i].least ||
        out->virtual_tokens > VP_HF_MOST_LOOK_UPS)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--peft %s: recorded were %d to %d virtual tokens, \"%s\" is none of them",
                       text, methods[i].least, VP_HF_MOST_LOOK_UPS, rest);
    return VP_OK;
}

vp_status vp_estimate_read_freeze(const char *text, vp_hf_request *out, vp_err *err)
{
    const char *n    = strchr(text, ':');
    char       *end  = NULL;
    bool        some = n && is_word(text, (size_t)(n - text), "layers");

    if (strcmp(text, "none") == 0)
        return VP_OK;
    out->frozen_layers = some && n[1] >= '0' && n[1] <= '9' ? strtoll(n + 1, &end, 10) : 0;
    out->freeze        = some ? "layers" : strcmp(text, "vision") == 0 ? "vision" : "embeddings";
    if (some ? out->frozen_layers < 1 || *end : strcmp(text, out->freeze) != 0)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--freeze %s: it is none, embeddings, layers:N, these and the first N "
                       "layers, or vision, a tower that sees pictures",
                       text);
    return VP_OK;
}

vp_status vp_estimate_read_image(const char *text, vp_hf_request *out, vp_err *err)
{
    char *end = NULL;

    out->image_width = *text >= '1' && *text <= '9' ? strtoll(text, &end, 10) : 0;
    out->image_height =
        end && *end == 'x' && end[1] >= '1' && end[1] <= '9' ? strtoll(end + 1, &end, 10) : 0;
    if (!out->image_height || *end || out->image_width > MOST_PIXELS ||
        out->image_height > MOST_PIXELS)
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--image-size %s: it is WIDTHxHEIGHT in pixels, as in 1024x768", text);
    return VP_OK;
}

vp_status vp_read_own_lora(const char *text, const char *model_name, vp_lora *out, vp_err *err)
{
    vp_model        *model = NULL;
    vp_estimate_lora read;
    vp_status        st = VP_OK;

    VP_TRY(vp_model_open(model_name, &(vp_model_opts){.config_only = true}, &model, err));
    VP_TRY(vp_estimate_read_lora(text, vp_hf_recorded_family(model), &read, err));
    if (read.lora.save || read.lora.tokens)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--lora %s: not in vplan's own step; --trainer hf has it",
                       read.lora.save ? "save=" : "tokens="));
    if (read.lora.is_dora || read.has_dtype)
        VP_TRY(VP_FAIL(
            err, VP_ERR_USAGE, "--lora %s: not in vplan's own step%s; --trainer hf has it",
            read.lora.is_dora ? "dora" : "dtype=",
            read.lora.is_dora ? ""
                              : ", where --precision says it: adapters have fp32 master weights in "
                                "bf16-mixed, none in bf16"));
    *out = (vp_lora){.rank    = read.lora.rank,
                     .alpha   = read.alpha,
                     .dropout = read.lora.dropout,
                     .rslora  = read.rslora};
    if (read.lora.dropout > 0.99 || strlen(read.canonical) >= sizeof out->targets)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE, "--lora: dropout above 0.99, or too many targets"));
    snprintf(out->targets, sizeof out->targets, "%s", read.canonical);
out:
    vp_model_free(model);
    return st;
}
