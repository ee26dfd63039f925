/* Mutations of JSON by its tokens, beside libFuzzer's by bytes: a number moved a little or to an
 * edge, a value doubled, removed or replaced by another of the same text. Most of what a reader
 * checks lies behind the syntax, where bytes changed at random do not come. A safetensors file
 * is mutated in its header, and its length kept right. */
#include "fuzz.h"

#include <inttypes.h>

int64_t fuzz_n_accepted;

enum { MAX_SPANS = 20000, MAX_DEPTH = 64 };

/* A value, from its first byte to behind its last; of a member, key_begin is where its key
 * begins, else begin. */
typedef struct span {
    size_t key_begin, begin, end;
    bool   number;
} span;

static span   spans[MAX_SPANS];
static size_t n_spans;

static uint32_t draw(uint32_t *state, size_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(*state >> 8) * n) >> 24);
}

static size_t token_end(const uint8_t *text, size_t size, size_t at)
{
    if (text[at] == '"') {
        for (at++; at < size && text[at] != '"'; at++)
            if (text[at] == '\\')
                at++;
        return at < size ? at + 1 : size;
    }
    while (at < size && !strchr(" \t\r\n,:[]{}\"", text[at]))
        at++;
    return at;
}

/* Every value of the text, closed or not. */
static void find_spans(const uint8_t *text, size_t size)
{
    size_t open[MAX_DEPTH], depth = 0, key = SIZE_MAX, last = SIZE_MAX;

    n_spans = 0;
    for (size_t at = 0; at < size && n_spans < MAX_SPANS;) {
        uint8_t c = text[at];
        if (c == ':') {
            key = last;
        } else if (c == ']' || c == '}') {
            if (depth)
                spans[open[--depth]].end = at + 1;
        } else if (c && !strchr(" \t\r\n,", c)) {
            span *s = &spans[n_spans++];
            *s      = (span){.key_begin = key == SIZE_MAX ? at : key,
                             .begin     = at,
                             .number    = c == '-' || (c >= '0' && c <= '9')};
            key     = SIZE_MAX;
            last    = at;
            if (c == '[' || c == '{') {
                if (depth < MAX_DEPTH)
                    open[depth++] = n_spans - 1;
                s->end = at + 1;
            } else {
                s->end = token_end(text, size, at);
                at     = s->end > at ? s->end - 1 : at;
            }
        }
        at++;
    }
}

/* text[begin, end) becomes n bytes of with, which may lie in text itself. 0: it does not fit. */
static size_t replace(uint8_t *text, size_t size, size_t max_size, size_t begin, size_t end,
                      const uint8_t *with, size_t n)
{
    uint8_t *copy;

    if (size - (end - begin) + n > max_size)
        return 0;
    copy = malloc(n + 1);
    MUST(copy);
    memcpy(copy, with, n);
    memmove(text + begin + n, text + end, size - end);
    memcpy(text + begin, copy, n);
    free(copy);
    return size - (end - begin) + n;
}

static size_t change_number(uint8_t *text, size_t size, size_t max_size, const span *s,
                            uint32_t *state)
{
    static const char *const edges[] = {"0",
                                        "-1",
                                        "1",
                                        "2",
                                        "3",
                                        "63",
                                        "64",
                                        "255",
                                        "256",
                                        "4096",
                                        "2147483648",
                                        "4294967296",
                                        "9007199254740993",
                                        "4611686018427387904",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "1e308",
                                        "1e-320",
                                        "1e400",
                                        "0.5",
                                        "-0.0"};
    static const int64_t     steps[] = {-64, -4, -1, 1, 4, 64, 256};
    char                     number[32], *end;
    size_t  n = s->end - s->begin < sizeof number ? s->end - s->begin : sizeof number - 1;
    int64_t value;

    memcpy(number, text + s->begin, n);
    number[n] = '\0';
    value     = strtoll(number, &end, 10);
    if (draw(state, 3) == 0 || *end || value > INT64_MAX / 4 || value < INT64_MIN / 4)
        strcpy(number, edges[draw(state, sizeof edges / sizeof *edges)]);
    else
        snprintf(number, sizeof number, "%" PRId64,
                 draw(state, 4) == 0 ? 2 * value
                                     : value + steps[draw(state, sizeof steps / sizeof *steps)]);
    return replace(text, size, max_size, s->begin, s->end, (const uint8_t *)number, strlen(number));
}

/* One change; 0: none was possible. */
static size_t change_token(uint8_t *text, size_t size, size_t max_size, uint32_t *state)
{
    static const char *const words[] = {"null", "true", "false", "\"\"", "[]",
                                        "{}",   "NaN",  "\"x\"", "[[]]", "-"};
    const span              *s, *other;
    size_t                   end, n;

    find_spans(text, size);
    if (!n_spans)
        return 0;
    s     = &spans[draw(state, n_spans)];
    other = &spans[draw(state, n_spans)];
    for (int i = 0; i < 4 && !s->number; i++)
        s = &spans[draw(state, n_spans)];
    switch (draw(state, 8)) {
    case 0: /* removed, with a comma beside it */
        for (end = s->end; end < size && strchr(" \t\r\n", text[end]);)
            end++;
        return replace(text, size, max_size, s->key_begin,
                       end < size && text[end] == ',' ? end + 1 : s->end, text, 0);
    case 1: /* doubled */
        n = replace(text, size, max_size, s->key_begin, s->key_begin, text + s->key_begin,
                    s->end - s->key_begin);
        return n ? replace(text, n, max_size, s->end, s->end, (const uint8_t *)",", 1) : 0;
    case 2: /* another value of the text in its place */
        return replace(text, size, max_size, s->begin, s->end, text + other->begin,
                       other->end - other->begin);
    case 3: {
        const char *word = words[draw(state, sizeof words / sizeof *words)];
        return replace(text, size, max_size, s->begin, s->end, (const uint8_t *)word, strlen(word));
    }
    default:
        return s->number ? change_number(text, size, max_size, s, state)
                         : LLVMFuzzerMutate(text, size, max_size);
    }
}

/* Bytes before the JSON text, and its size: of a safetensors file 8 and the header's, of others
 * 0 and all. */
static size_t json_part(const uint8_t *data, size_t size, size_t *n)
{
    uint64_t length;

    *n = size;
    if (size < 10)
        return 0;
    memcpy(&length, data, 8);
    if (length > size - 8)
        return 0;
    *n = (size_t)length;
    return 8;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    uint32_t state = seed;
    size_t   n, before = json_part(data, size, &n);

    if (draw(&state, 4) == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    for (int left = 1 + (int)draw(&state, 3); left > 0; left--) {
        size_t   behind = size - before - n, changed;
        uint8_t *text   = malloc(max_size);
        MUST(text);
        memcpy(text, data + before, n);
        changed = change_token(text, n, max_size - before - behind, &state);
        if (changed) {
            uint64_t length = changed;
            memmove(data + before + changed, data + before + n, behind);
            memcpy(data + before, text, changed);
            n    = changed;
            size = before + n + behind;
            if (before)
                memcpy(data, &length, 8);
        }
        free(text);
    }
    return size;
}
