/* tuner/command_words.c: options, key=value words and variables in the words of a command. */
#include "tuner/command_internal.h"

#include <ctype.h>
#include <string.h>

const char *vp_command_value(char *const *command, const char *option, int *at)
{
    size_t n = strlen(option);

    for (int i = 0; command[i]; i++) {
        if (strncmp(command[i], option, n) != 0 || (command[i][n] && command[i][n] != '='))
            continue;
        if (at)
            *at = i;
        if (command[i][n] == '=')
            return command[i] + n + 1;
        if (command[i + 1] &&
            (command[i + 1][0] != '-' || isdigit((unsigned char)command[i + 1][1])))
            return command[i + 1];
        return "on";
    }
    return NULL;
}

/* The first word of the program's own: behind `env` and variables. */
static int first_argument(char *const *command)
{
    int i = 0;

    while (command[i] && (strcmp(command[i], "env") == 0 || strchr(command[i], '=')))
        i++;
    return command[i] ? i + 1 : i;
}

/* Where a word's key begins: Hydra's +key=value adds one, ++key=value adds or changes it. */
static const char *key_of(const char *word)
{
    return word + strspn(word, "+");
}

const char *vp_command_word(char *const *command, const char *key, int *at)
{
    size_t n = strlen(key);

    for (int i = first_argument(command); command[i]; i++) {
        const char *word = key_of(command[i]);
        if (strncmp(word, key, n) == 0 && word[n] == '=') {
            if (at)
                *at = i;
            return word + n + 1;
        }
    }
    return NULL;
}

bool vp_command_is_word(const char *word)
{
    const char *key = key_of(word);
    size_t      n   = strcspn(key, "=");

    if (!n || !key[n] || (!isalpha((unsigned char)*key) && *key != '_'))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)key[i]) && !strchr("_.-/@", key[i]))
            return false;
    return true;
}

bool vp_command_has_words(char *const *command)
{
    for (int i = first_argument(command); command[i]; i++)
        if (vp_command_is_word(command[i]) && command[i - 1][0] != '-')
            return true;
    return false;
}

void vp_command_set_word(vp_arena *arena, char **words, int *n, const char *key, const char *value)
{
    int at = *n;

    if (vp_command_word(words, key, &at)) {
        words[at] = vp_arena_printf(arena, "%.*s%s=%s", (int)(key_of(words[at]) - words[at]),
                                    words[at], key, value);
        return;
    }
    words[(*n)++] = vp_arena_printf(arena, "%s=%s", key, value);
    words[*n]     = NULL;
}

/* Whether the command writes --option=value: some parsers take nothing else (nanoGPT's), and most take both. */
static bool joins_values(char *const *words)
{
    for (; *words; words++)
        if (strncmp(*words, "--", 2) == 0 && strchr(*words, '='))
            return true;
    return false;
}

void vp_command_set_option(vp_arena *arena, char **words, int *n, const char *option,
                           const char *value)
{
    int         at  = *n;
    const char *had = vp_command_value(words, option, &at);
    bool        off = strcmp(value, "off") == 0, on = strcmp(value, "on") == 0;

    if (had && strchr(words[at], '=')) {
        words[at] = vp_arena_printf(arena, "%s=%s", option, value);
        return;
    }
    if (had) { /* out with it and its value */
        int gone = had == words[at + 1] ? 2 : 1;
        if (!off && !on && gone == 2) {
            words[at + 1] = vp_arena_strdup(arena, value);
            return;
        }
        memmove(words + at, words + at + gone, (size_t)(*n - at - gone + 1) * sizeof *words);
        *n -= gone;
    }
    if (off)
        return;
    bool joined = !on && !had && strncmp(option, "--", 2) == 0 && joins_values(words);
    int  more   = on || joined ? 1 : 2;
    memmove(words + at + more, words + at, (size_t)(*n - at + 1) * sizeof *words);
    words[at] =
        joined ? vp_arena_printf(arena, "%s=%s", option, value) : vp_arena_strdup(arena, option);
    if (more == 2)
        words[at + 1] = vp_arena_strdup(arena, value);
    *n += more;
}

/* A variable stands behind `env`, before the command. value NULL: it stays as it is. */
vp_status vp_command_set_variable(vp_arena *arena, char **words, int *n, const char *name,
                                  const char *value, vp_err *err)
{
    int more = strcmp(words[0], "env") == 0 ? 1 : 2;

    if (!value)
        return VP_OK;
    memmove(words + 2, words + 2 - more, (size_t)(*n + 1 - 2 + more) * sizeof *words);
    words[0] = vp_arena_strdup(arena, "env");
    words[1] = vp_arena_printf(arena, "%s=%s", name, value);
    *n += more;
    return words[0] && words[1] ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
}
