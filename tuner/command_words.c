/* tuner/command_words.c: options and variables in the words of a command. */
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
