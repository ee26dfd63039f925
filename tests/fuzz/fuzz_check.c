/* Trainers' files: the first line is the file's name, whose end says the reader; the rest is judged. Whatever
 * stands there, every finding is a line that can be printed, and what is accepted says settings in words
 * that are known. */
#include "fuzz.h"

#include "trainers/files/check.h"

static void look_at(const vp_checked *c, int64_t n_lines)
{
    for (int64_t i = 0; i < c->n_findings; i++) {
        const vp_finding *f = &c->findings[i];
        MUST(f->message && f->message[0] && f->file[0] && f->key);
        MUST(f->line >= 0 && f->line <= n_lines + 1);
    }
    for (int i = 0; i < VP_N_SETTINGS; i++)
        if (c->settings.value[i])
            MUST(vp_setting_canonical(c->arena, (vp_setting)i, c->settings.value[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end   = memchr(data, '\n', size);
    size_t         n     = end ? (size_t)(end - data) : 0;
    vp_arena      *arena = vp_arena_new();
    vp_checked     c     = {0};
    vp_err         err   = {0};
    int64_t        lines = 1;
    char           name[64], *text;

    MUST(arena);
    if (n && n < sizeof name && !memchr(data, '\0', n)) {
        memcpy(name, data, n);
        name[n] = '\0';
        text    = malloc(size - n); /* of its own length: reads past the end are seen */
        MUST(text);
        memcpy(text, end + 1, size - n - 1);
        for (size_t i = n + 1; i < size; i++)
            lines += data[i] == '\n';
        vp_check_input in = {.path = name, .bytes = text, .n_bytes = (int64_t)(size - n - 1)};
        MUST_OK(vp_check(arena, &in, 1, &(vp_check_opts){0}, &c, &err));
        look_at(&c, lines);
        fuzz_n_accepted += !c.n_errors;
        free(text);
    }
    vp_arena_free(arena);
    return 0;
}
