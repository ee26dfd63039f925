#include "cli/names.h"

#include "base/text.h"
#include "models/hub_cache.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MAX_NAME = 96, MAX_LIST = 256 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_separator(char c)
{
    return c == '-' || c == '_' || c == ' ';
}

/* A name without what people write in many ways: lower case, no separators but the one between two
 * numbers, which tells llama-3-8b from llama-38b. */
static void plain(const char *name, char *buf, size_t buf_size)
{
    size_t n = 0;

    assert(buf_size > 2);
    for (; *name && n + 2 < buf_size; name++) {
        if (!is_separator(*name)) {
            if (n && is_separator(name[-1]) && is_digit(buf[n - 1]) && is_digit(*name))
                buf[n++] = '-';
            buf[n++] = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
        }
    }
    buf[n] = '\0';
}

/* ---- models ---- */

static bool same_name(const char *a, const char *b)
{
    char x[MAX_NAME], y[MAX_NAME];

    plain(a, x, sizeof x);
    plain(b, y, sizeof y);
    return strcmp(x, y) == 0;
}

/* Words of variants: models that were trained further, which have the sizes of what they were trained from; then copies in
 * formats that are loaded otherwise. */
static const char *const variant_words[] = {
    "instruct", "it",   "chat", "base", "hf",   "meta", "2507", "thinking", "deduped",
    "bnb",      "4bit", "awq",  "gptq", "gguf", "fp8",  "int4", "int8",     "unsloth"};
enum { N_TRAINED_FURTHER = 9, N_VARIANT_WORDS = sizeof variant_words / sizeof *variant_words };

/* What is behind the organisation of a Hub id. */
static const char *after_slash(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash ? slash + 1 : name;
}

static bool is_variant_word(const char *word, size_t n, int n_words)
{
    for (int i = 0; i < n_words; i++)
        if (strlen(variant_words[i]) == n && strncasecmp(word, variant_words[i], n) == 0)
            return true;
    return false;
}

/* A Hub id or name without its organisation and the first n_words of variant_words. */
static void without_words(const char *name, int n_words, char *buf, size_t buf_size)
{
    size_t n = 0;

    buf[0] = '\0';
    for (name = after_slash(name); *name;
         name += strcspn(name, "-_ "), name += strspn(name, "-_ ")) {
        size_t length = strcspn(name, "-_ ");
        if (!is_variant_word(name, length, n_words) && n + length + 2 < buf_size)
            n += (size_t)snprintf(buf + n, buf_size - n, "%s%.*s", n ? "-" : "", (int)length, name);
    }
}

/* The built-in model of this name or Hub id, with its organisation or without; NULL: none. */
static const vp_zoo_entry *find_exact(const char *name)
{
    const vp_zoo_entry *z;

    for (int i = 0; (z = vp_zoo_at(i)); i++)
        if (same_name(z->name, name) ||
            (z->hub_id && (same_name(z->hub_id, name) || same_name(after_slash(z->hub_id), name))))
            return z;
    return NULL;
}

/* The same where the names differ by the first n_words of variant_words only, and by who made the copy; also of the models
 * of other names that have a built-in one's sizes. */
static const vp_zoo_entry *find_without(const char *name, int n_words)
{
    const vp_zoo_variant *v;
    const vp_zoo_entry   *z;
    char                  asked[MAX_NAME], own[MAX_NAME];

    if (!vp_hub_is_id(name)) /* a path is meant as it stands */
        return NULL;
    without_words(name, n_words, asked, sizeof asked);
    for (int i = 0; (v = vp_zoo_variant_at(i)); i++) {
        without_words(v->hub_id, n_words, own, sizeof own);
        if (same_name(asked, own))
            return vp_zoo_find(v->built_in);
    }
    if (!asked[0] || same_name(asked, name))
        return NULL; /* no word of a variant in it: a slip of the finger gets a suggestion */
    for (int i = 0; (z = vp_zoo_at(i)); i++) {
        without_words(z->hub_id ? z->hub_id : z->name, n_words, own, sizeof own);
        if (same_name(asked, z->name) || same_name(asked, own))
            return z;
    }
    return NULL;
}

/* Of a Hub id: a model of the same name and of another architecture. The GLM-4 9B of 2024 is of ChatGLM's class, or of transformers' GLM, whose
 * layers have two norms less than those of 2025, THUDM/GLM-4-9B-0414. */
static bool is_namesake(const char *name, const vp_zoo_entry *z)
{
    return strcmp(z->name, "glm-4-9b") == 0 && strchr(name, '/') && !strstr(name, "0414");
}

static const vp_zoo_entry *find_model(const char *name)
{
    const vp_zoo_entry *z;

    if (strlen(name) >= MAX_NAME || !*name)
        return NULL;
    z = find_exact(name);
    z = z ? z : find_without(name, N_TRAINED_FURTHER);
    return z && is_namesake(name, z) ? NULL : z;
}

vp_status vp_model_with_graph(const char *name, const vp_model_opts *opts, vp_model **out,
                              bool *no_graph, vp_err *err)
{
    vp_model_opts alone  = {.class_name = opts->class_name, .config_only = true};
    vp_model     *config = NULL;
    vp_err        why = {0}, ignored = {0};
    vp_status     st    = vp_model_open(name, opts, out, &why);
    bool          lacks = st == VP_ERR_INPUT && strcmp(why.field, "model_type") == 0 &&
                 vp_model_open(name, &alone, &config, &ignored) == VP_OK;

    vp_model_free(config);
    if (no_graph)
        *no_graph = lacks;
    if (st == VP_ERR_INPUT && strcmp(why.field, "model_type") == 0 && !lacks && ignored.message[0])
        why =
            ignored; /* what else is wrong in it, weights in fewer bits say, counts for every trainer */
    if (lacks)
        return VP_FAIL_AT(err, st, why.file, why.line, why.field,
                          "%s. Of other trainers, whose families are more: vplan estimate %s "
                          "--trainer hf, vplan plan %s --trainer hf",
                          why.message, vp_zoo_find(name) ? name : "MODEL",
                          vp_zoo_find(name) ? name : "MODEL");
    if (st != VP_OK)
        *err = why;
    return st;
}

const char *vp_built_in_name(const char *name)
{
    const vp_zoo_entry *z = find_model(name);

    return z ? z->name : NULL;
}

const char *vp_built_in_of_packed(const char *name)
{
    static const char   packed[] = "-bnb-4bit";
    size_t              n = strlen(name), m = sizeof packed - 1;
    const vp_zoo_entry *z = NULL;

    if (n > m && n < MAX_NAME && strcmp(name + n - m, packed) == 0 && !strstr(name, "-unsloth-"))
        z = find_without(name, N_VARIANT_WORDS);
    return z ? z->name : NULL;
}

static const char *nearest_model(const char *name)
{
    const char         *names[MAX_LIST];
    const vp_zoo_entry *z;
    int                 n = 0, nearest;

    for (; n < MAX_LIST && (z = vp_zoo_at(n)); n++)
        names[n] = z->name;
    assert(!vp_zoo_at(n)); /* the list is whole */
    nearest = vp_word_nearest(name, names, n);
    assert(nearest < n);
    return nearest < 0 ? NULL : names[nearest];
}

/* The next word of a name, without what separates it: "qwen2.5-7b" has qwen, 2.5 and 7b. NULL behind the last. */
static const char *next_word(const char *at, size_t *length)
{
    size_t n = 1;

    while (is_separator(*at))
        at++;
    if (!*at)
        return NULL;
    while (at[n] && !is_separator(at[n]) &&
           (!is_digit(at[n]) || is_digit(at[n - 1]) || at[n - 1] == '.'))
        n++;
    *length = n;
    return at;
}

static bool has_word(const char *name, const char *word, size_t length)
{
    size_t n = 0;

    for (const char *at = name; (at = next_word(at, &n)); at += n)
        if (n == length && strncasecmp(at, word, n) == 0)
            return true;
    return false;
}

static bool has_words_of(const char *name, const char *asked)
{
    size_t n = 0;

    for (const char *at = asked; (at = next_word(at, &n)); at += n)
        if (!has_word(name, at, n))
            return false;
    return n > 0;
}

/* Built-in models with all words of a name, which are fewer than theirs: "bert-base" may be cased or not. */
static void list_models_with(const char *asked, vp_text *out)
{
    enum { MOST = 6 };
    const vp_zoo_entry *z;
    int                 n = 0;

    for (int i = 0; (z = vp_zoo_at(i)); i++) {
        if (!has_words_of(z->name, asked))
            continue;
        if (n++ < MOST)
            vp_text_printf(out, "%s%s", n > 1 ? ", " : "", z->name);
    }
    if (n > MOST)
        vp_text_printf(out, ", or %d more", n - MOST);
}

/* Whether two names differ only in what is neither a letter nor a digit: "qwen25-7b" and "qwen2.5-7b". */
static bool same_letters(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a && !isalnum((unsigned char)*a))
            a++;
        while (*b && !isalnum((unsigned char)*b))
            b++;
        if (!*a || !*b || tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return !*a && !*b;
    }
}

static void list_models_of_letters(const char *asked, vp_text *out)
{
    const vp_zoo_entry *z;

    for (int i = 0; (z = vp_zoo_at(i)); i++)
        if (same_letters(z->name, asked))
            vp_text_printf(out, "%s%s", out->n_bytes ? ", " : "", z->name);
}

/* Those that a name which is none may mean: without its dots, not given in full, or with a slip of
 * the finger. */
static void list_meant(const char *name, vp_text *out)
{
    const char *nearest = nearest_model(name);

    list_models_of_letters(name, out);
    if (!out->n_bytes)
        list_models_with(name, out);
    if (!out->n_bytes && nearest)
        vp_text_printf(out, "%s", nearest);
}

vp_status vp_built_in_missing(const char *name, vp_err *err)
{
    char      shown[96];
    vp_text   meant = {0};
    vp_status st    = VP_OK;

    list_meant(name, &meant);
    VP_TRY_ALLOC(err, !meant.failed);
    st = VP_FAIL(err, VP_ERR_USAGE, "no built-in model %s; %s%s%s",
                 vp_text_escape(name, shown, sizeof shown), meant.n_bytes ? "did you mean " : "",
                 meant.n_bytes ? meant.data : "vplan models lists them", meant.n_bytes ? "?" : "");
out:
    vp_text_release(&meant);
    return st;
}

/* A path is meant as it stands. */
static vp_status suggest_model(const char *name, vp_err *err)
{
    char      shown[128];
    vp_text   meant = {0};
    vp_status st    = VP_OK;

    if (strchr(name, '/') || (strlen(name) > 5 && strcmp(name + strlen(name) - 5, ".json") == 0))
        return VP_OK;
    list_meant(name, &meant);
    VP_TRY_ALLOC(err, !meant.failed);
    if (meant.n_bytes)
        VP_TRY(VP_FAIL_AT(
            err, VP_ERR_INPUT, name, 0, NULL,
            "%s: neither a built-in model (see vplan models) nor a file or folder; did you "
            "mean %s?",
            vp_text_escape(name, shown, sizeof shown), vp_text_string(&meant)));
out:
    vp_text_release(&meant);
    return st;
}

/* Weights that were quantised beforehand are no model of their own. */
static vp_status refuse_quantised(const char *name, vp_err *err)
{
    const vp_zoo_entry *z = strlen(name) < MAX_NAME ? find_without(name, N_VARIANT_WORDS) : NULL;
    char                shown[128];

    if (!z || is_namesake(name, z))
        return VP_OK;
    return VP_FAIL_AT(
        err, VP_ERR_INPUT, name, 0, NULL,
        "%s: weights that were quantised beforehand are not read; name the model, %s, "
        "and add --qlora to have its weights in 4 bits",
        vp_text_escape(name, shown, sizeof shown), z->name);
}

static vp_status resolve_model(const vp_cli *cli, const char **name, vp_err *err)
{
    const vp_zoo_entry *z;
    struct stat         info;
    char                folder[4096], shown[128], why[1100] = "";
    vp_err              missing = {0};
    bool                is_here;

    if (!*name || strcmp(*name, "-") == 0)
        return VP_OK;
    is_here = lstat(*name, &info) == 0;
    if (vp_zoo_find(*name)) {
        if (is_here)
            vp_cli_note(cli, "%s is the built-in model; the %s of this name is ./%s", *name,
                        S_ISDIR(info.st_mode) ? "folder" : "file", *name);
        return VP_OK;
    }
    if (is_here)
        return VP_OK;
    if (vp_hub_is_id(*name)) {
        if (vp_hub_find(*name, VP_HUB_CONFIG, folder, sizeof folder, &missing) == VP_OK ||
            missing.file[0]) /* a cache that is broken is no cache without it */
            return VP_OK;
        if (strchr(*name, '/'))
            snprintf(why, sizeof why, ": %s", missing.message);
    }
    z = find_model(*name);
    if (!z) {
        if (refuse_quantised(*name, err) != VP_OK)
            return err->code;
        return vp_hub_is_id(*name) && strchr(*name, '/') ? VP_OK : suggest_model(*name, err);
    }
    vp_cli_note(cli, "%s is taken as the built-in %s%s%s",
                vp_text_escape(*name, shown, sizeof shown), z->name,
                find_exact(*name) ? "" : ", whose sizes such a variant has", why);
    *name = z->name;
    return VP_OK;
}

vp_status vp_model_named(const vp_cli *cli, const char **name, vp_err *err)
{
    char      shown[300];
    vp_status st = VP_OK;

    VP_TRY(resolve_model(cli, name, err));
    if (*name)
        vp_cli_detail(cli, "model: %s%s", vp_zoo_find(*name) ? "built in, " : "read from ",
                      vp_text_escape(*name, shown, sizeof shown));
out:
    return st;
}

/* ---- devices ---- */

/* A card's name without its maker's words: "NVIDIA GeForce RTX 4090" and "rtx-4090" are "4090". */
static void plain_card(const char *name, char *buf, size_t buf_size)
{
    static const char *const makers[] = {"nvidia", "geforce", "tesla", "quadro", "rtx"};
    bool                     again    = true;

    plain(name, buf, buf_size);
    while (again) {
        again = false;
        for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
            size_t n = strlen(makers[i]);
            if (strncmp(buf, makers[i], n) == 0) {
                memmove(buf, buf + n, strlen(buf + n) + 1);
                again = true;
            }
        }
    }
}

/* Whether text begins name, up to where a word or a number ends: "h100sxm" of "h100sxm80gb", but
 * "a10" not of "a100pcie40gb". */
static bool begins(const char *name, const char *text)
{
    size_t n = strlen(text);

    return n > 0 && strncmp(name, text, n) == 0 && is_digit(name[n]) != is_digit(name[n - 1]);
}

/* Whether every word of text is one of the words of name, or its maker's: "A100 80GB" of
 * "a100-sxm-80gb". */
static bool has_words(const char *name, const char *text)
{
    char asked[MAX_NAME], word[MAX_NAME];

    for (; *text; text += strcspn(text, " -_"), text += strspn(text, " -_")) {
        const char *at = name;
        snprintf(asked, sizeof asked, "%.*s", (int)strcspn(text, " -_"), text);
        plain_card(asked, word, sizeof word);
        while (word[0] && at &&
               (strncmp(at, word, strlen(word)) != 0 ||
                (at[strlen(word)] && at[strlen(word)] != '-'))) {
            at = strchr(at, '-');
            at += at != NULL;
        }
        if (!at)
            return false;
    }
    return true;
}

/* "8xh100", "h100 x8": how many, and the card's name without it; 0: not written like that. */
static int64_t count_of_cards(const char *name, char *card, size_t card_size)
{
    size_t      digits = strspn(name, "0123456789"), n = strlen(name);
    const char *behind = name + digits + strspn(name + digits, " -*xX"), *count = name;

    if (digits && digits < 4 && strcspn(name + digits, "xX*") <= 1 && behind > name + digits) {
        snprintf(card, card_size, "%s", behind);
    } else {
        for (count = name + n; count > name && is_digit(count[-1]);)
            count--;
        if (!*count || count == name || !strchr("xX*:", count[-1]))
            return 0;
        n = (size_t)(count - 1 - name);
        while (n && is_separator(name[n - 1]))
            n--;
        snprintf(card, card_size, "%.*s", (int)n, name);
    }
    return strtol(count, NULL, 10);
}

/* Whether a name is that of a card, or how those of several begin. */
static bool names_a_card(const char *name)
{
    char        asked[MAX_NAME], own[MAX_NAME];
    const char *word;

    plain_card(name, asked, sizeof asked);
    for (int i = 0; (word = vp_word_of_device(i)); i++) {
        plain_card(word, own, sizeof own);
        if (asked[0] && (strcmp(own, asked) == 0 || begins(own, asked)))
            return true;
    }
    return false;
}

bool vp_names_a_card(const char *name)
{
    char card[MAX_NAME];

    return strlen(name) < MAX_NAME &&
           (names_a_card(name) ||
            (count_of_cards(name, card, sizeof card) > 1 && names_a_card(card)));
}

static vp_status suggest_device(const char *name, vp_err *err)
{
    char        words[MAX_LIST][64], shown[128], card[MAX_NAME];
    const char *list[MAX_LIST], *word;
    int         n     = 0, nearest;
    int64_t     cards = count_of_cards(name, card, sizeof card);

    if (cards > 1 && names_a_card(card))
        return VP_FAIL(err, VP_ERR_USAGE,
                       "--device %s: a device is one card; what each of %lld takes under another "
                       "trainer: --device %s --trainer hf --world %lld --parallel fsdp2",
                       vp_text_escape(name, shown, sizeof shown), (long long)cards,
                       vp_text_escape(card, words[0], sizeof words[0]), (long long)cards);

    for (; n < MAX_LIST && (word = vp_word_of_device(n)); n++) {
        snprintf(words[n], sizeof words[n], "%s", word);
        list[n] = words[n];
    }
    assert(!vp_word_of_device(n));
    nearest = vp_word_nearest(name, list, n);
    assert(nearest < n);
    if (nearest < 0)
        return VP_OK;
    return VP_FAIL(err, VP_ERR_USAGE,
                   "--device %s: no such device; did you mean %s? See vplan devices, or give a "
                   "device file",
                   vp_text_escape(name, shown, sizeof shown), list[nearest]);
}

/* "24GB". */
static bool is_size(const char *text)
{
    vp_err  ignored = {0};
    int64_t bytes;

    return text[strspn(text, "0123456789.")] && vp_size_parse(text, &bytes, &ignored) == VP_OK;
}

/* Settings fit the one as they fit the other; only seconds differ. */
static bool holds_alike(const vp_device *a, const vp_device *b)
{
    return a->usable_bytes == b->usable_bytes && a->compute_capability == b->compute_capability &&
           a->multiprocessors == b->multiprocessors;
}

static vp_status resolve_device(const vp_cli *cli, const char **name, vp_err *err)
{
    static char found[64];
    vp_device   card, fastest = {0};
    char        meant[64]  = ""; /* the card whose alias stands in a longer name: h100-80gb */
    bool        are_alike  = true;
    vp_text     candidates = {0};
    struct stat info;
    char        asked[MAX_NAME], x[MAX_NAME], alias[MAX_NAME], product[MAX_NAME], shown[128];
    int         n       = 0;
    vp_err      ignored = {0};
    vp_status   st      = VP_OK;

    if (!*name || strcmp(*name, "-") == 0 || strlen(*name) >= MAX_NAME ||
        lstat(*name, &info) == 0 || vp_device_open(*name, &card, &ignored) == VP_OK)
        return VP_OK;
    plain_card(*name, asked, sizeof asked);
    if (strcmp(asked, "cpu") == 0) {
        *name = "cpu";
        return VP_OK;
    }
    for (int i = 0; asked[0] && vp_device_at(i, &card); i++) {
        plain_card(card.name, x, sizeof x);
        plain_card(card.alias, alias, sizeof alias);
        plain_card(card.product, product, sizeof product);
        if (strcmp(asked, x) == 0 || strcmp(asked, alias) == 0 || strcmp(asked, product) == 0) {
            assert(strlen(card.name) < sizeof found); /* a name cut short is another card's */
            snprintf(found, sizeof found, "%s", card.name);
            n = 1;
            break;
        }
        if (begins(x, asked) || has_words(card.name, *name)) {
            are_alike = are_alike && (!n || holds_alike(&card, &fastest));
            if (!n || card.memory_bytes_per_s > fastest.memory_bytes_per_s) {
                fastest = card;
                snprintf(found, sizeof found, "%s", card.name);
            }
            if (alias[0] && begins(asked, alias))
                snprintf(meant, sizeof meant, "%s", card.name);
            vp_text_printf(&candidates, "%s%s", n++ ? ", " : "", card.name);
        }
    }
    VP_TRY_ALLOC(err, !candidates.failed);
    vp_text_escape(*name, shown, sizeof shown);
    if (n > 1 && !are_alike && !*meant)
        VP_TRY(VP_FAIL(err, VP_ERR_USAGE,
                       "--device %s means several cards: %s%s%s; "
                       "nvidia-smi -L says which one a machine has, and --device takes that name",
                       shown, candidates.data,
                       is_size(*name) ? "; for any of that size --budget " : "",
                       is_size(*name) ? shown : ""));
    if (n == 0) {
        st = strchr(*name, '/') ? VP_OK : suggest_device(*name, err);
        goto out;
    }
    if (n > 1 && *meant) {
        snprintf(found, sizeof found, "%s", meant);
        vp_cli_note(cli, "--device %s is taken as %s, the usual one of %s", shown, found,
                    candidates.data);
    } else if (n > 1)
        vp_cli_note(cli, "--device %s is taken as %s, the fastest of those that hold as much: %s",
                    shown, found, candidates.data);
    else
        vp_cli_note(cli, "--device %s is taken as %s", shown, found);
    *name = found;
out:
    vp_text_release(&candidates);
    return st;
}

vp_status vp_device_named(const vp_cli *cli, const char **name, vp_err *err)
{
    char      shown[300];
    vp_status st = VP_OK;

    VP_TRY(resolve_device(cli, name, err));
    if (*name)
        vp_cli_detail(cli, "device: %s", vp_text_escape(*name, shown, sizeof shown));
out:
    return st;
}
