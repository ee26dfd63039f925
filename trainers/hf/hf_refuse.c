#include "trainers/hf/hf_refuse.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Words of keys as people say them; a value that is not here is said as it is, behind the option. without: a word that is only in
 * some keys, where it is missing. */
static const struct {
    const char *word, *said;
} sayings[] = {
    {"attention=sdpa:flash", "--attention sdpa"},
    {"attention=sdpa:math", "--attention math"},
    {"mask=0", "no padding mask"},
    {"mask=1", "--padding mask"},
    {"gqa=0", "as many key and value heads as heads"},
    {"gqa=1", "fewer key and value heads than heads"},
    {"gqa=2", "one key and value head"},
    {"tied=0", "an output layer of its own"},
    {"tied=1", "an output layer tied to the input's table"},
    {"lora=none", "no adapters"},
    {"lora_dropout=0", "no dropout in adapters"},
    {"lora_dropout=1", "dropout in adapters"},
    {"adapter=bf16", "adapters in bf16"},
    {"dora=1", "DoRA"},
    {"dropout=0", "dropouts that are all zero"},
    {"window=1", "a sequence as long as the model's attention window"},
    {"ragged=1", "a masked sequence (or one beyond the window) whose length is no multiple of 8"},
    {"wide=1", "attention heads of more than 128"},
};

/* Words that are in some keys only. */
static const struct {
    const char *word, *without;
} rare[] = {
    {"adapter=bf16", "adapters in fp32"},
    {"dora=1", "LoRA without DoRA"},
    {"quantised=", "no --load"},
    {"dropout=0", "dropouts as the model's class has them"},
    {"window=1", "a sequence shorter than the model's attention window"},
    {"ragged=1", "a length that is a multiple of 8"},
    {"wide=1", "attention heads of at most 128"},
};

static bool has_word(const char *key, const char *word, size_t n)
{
    for (; *key; key += strcspn(key, " "), key += *key == ' ')
        if (strcspn(key, " ") == n && memcmp(key, word, n) == 0)
            return true;
    return false;
}

static void join(char *buf, size_t size, const char *text)
{
    size_t n = strlen(buf);

    snprintf(buf + n, size - n, "%s%s", n ? ", " : "", text);
}

static void say(const char *word, size_t n, char *buf, size_t size)
{
    char text[240];

    snprintf(text, sizeof text, "%.*s", (int)n, word);
    for (size_t i = 0; i < sizeof sayings / sizeof *sayings; i++)
        if (strcmp(sayings[i].word, text) == 0) {
            join(buf, size, sayings[i].said);
            return;
        }
    if (strncmp(text, "upcast", 6) == 0 || strncmp(text, "one", 3) == 0)
        return;
    const char *value = strchr(text, '=');
    char        said[280];
    snprintf(said, sizeof said, "--%s %s%s",
             strncmp(text, "quantised=", 10) == 0 ? "load"
             : strncmp(text, "lora=", 5) == 0     ? "lora"
                                                  : (text[value ? value - text : 0] = '\0', text),
             strncmp(word, "lora=", 5) == 0 ? "targets=" : "", value ? value + 1 : "");
    join(buf, size, said);
}

/* Words of one key that the other has not, as people say them, and how many. */
static int differences(const char *key, const char *other, char *buf, size_t size)
{
    int n_words = 0;

    buf[0] = '\0';
    for (const char *at = key; *at; at += strcspn(at, " "), at += *at == ' ') {
        size_t n = strcspn(at, " ");
        if (has_word(other, at, n))
            continue;
        n_words++;
        say(at, n, buf, size);
    }
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++)
        if (strstr(other, rare[i].word) && !strstr(key, rare[i].word))
            join(buf, size, rare[i].without);
    return n_words;
}

vp_status vp_hf_refuse(const vp_recording *recording, const char *family, const char *key,
                       vp_err *err)
{
    char        asked[600], nearest[600], text[600];
    const char *best  = "", *have;
    int         least = 1000;

    for (int64_t i = 0; (have = vp_recording_key(recording, i)); i++) {
        int n =
            differences(have, key, text, sizeof text) + differences(key, have, text, sizeof text);
        if (n < least && !strstr(have, " one=1")) {
            least = n;
            best  = have;
        }
    }
    differences(key, best, asked, sizeof asked);
    differences(best, key, nearest, sizeof nearest);
    return VP_FAIL(
        err, VP_ERR_INPUT,
        "%s with %s is not covered: no such training step was recorded. The nearest "
        "that was has %s. For yours: vplan dryrun -- COMMAND, which plays your own script",
        family, asked, nearest);
}
