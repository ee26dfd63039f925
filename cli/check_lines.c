#include "cli/check_lines.h"

#include "cli/screen.h"

#include "base/file.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *file_of(const vp_edit *e)
{
    return e->file ? e->file->name : "environment";
}

void vp_check_lines_json(const vp_mended *m, json_t *changes)
{
    for (int64_t i = 0; i < m->n_lines; i++) {
        const vp_mended_line *l = &m->lines[i];
        json_array_append_new(
            changes,
            json_pack("{s:s, s:o, s:s, s:s?, s:s?, s:I, s:f}", "file", file_of(&l->edit), "line",
                      l->edit.at ? json_integer(l->edit.at->line) : json_null(), "key",
                      l->edit.path, "from", l->edit.from, "to", l->edit.to, "saves_bytes",
                      (json_int_t)l->saves_bytes, "costs_seconds", l->costs_seconds));
    }
}

/* "saves 8.00 GiB, costs 44.4 ms a step"; where a line takes more, for one that saves as much elsewhere, that is said. */
static void print_worth(const vp_mended_line *l)
{
    int64_t saves = l->saves_bytes;
    double  costs = l->costs_seconds;
    char    bytes[32], time[32];

    vp_size_text(saves < 0 ? -saves : saves, bytes, sizeof bytes);
    vp_time_text(costs < 0 ? -costs : costs, time, sizeof time);
    printf("\n    %s%s%s",
           saves > 0   ? "saves "
           : saves < 0 ? "takes "
                       : "",
           saves ? bytes : "", saves < 0 ? " more" : "");
    if (costs != 0)
        printf("%s%s %s a step", saves ? ", " : "", costs < 0 ? "saves" : "costs", time);
    else if (!saves)
        printf("changes neither bytes nor time");
}

bool vp_check_lines_stand(const vp_checked *c, const vp_checked_file *file,
                          const vp_settings *wanted)
{
    vp_edit *edits = NULL;
    char    *bytes = NULL;
    int64_t  n = 0, n_bytes = 0;
    vp_text  text = {0};
    vp_err   ignored;
    bool     stand =
        vp_edits_list(c, wanted, &edits, &n, &ignored) == VP_OK &&
        vp_file_read(file->name, VP_DOCUMENT_MAX_BYTES, &bytes, &n_bytes, &ignored) == VP_OK &&
        vp_edits_apply(c->arena, edits, n, file, bytes, n_bytes, &text, &ignored) == VP_OK;

    vp_text_release(&text);
    free(bytes);
    return stand;
}

static void print_line(const vp_mended_line *l)
{
    char place[400];

    if (l->edit.at)
        snprintf(place, sizeof place, "%s:%d", file_of(&l->edit), l->edit.at->line);
    else
        snprintf(place, sizeof place, "%s, new", file_of(&l->edit));
    const char *from    = l->edit.from ? l->edit.from : "(not written)";
    const char *to      = l->edit.to ? l->edit.to : "(take it out)";
    bool        is_long = strlen(l->edit.path) + strlen(from) + strlen(to) + 10 > VP_SCREEN_COLUMNS;
    printf("  %s\n    %s:%s%s -> %s", place, l->edit.path, is_long ? "\n        " : " ", from, to);
    if (l->first)
        print_worth(l);
    printf("\n");
}

void vp_check_lines_print(const vp_mended *m)
{
    char bytes[32], time[32];

    if (m->chosen.best) {
        printf("lines to change; with all of them %s, and %s a step\n",
               vp_size_text(m->chosen.best->bytes->high_bytes, bytes, sizeof bytes),
               vp_time_text(m->chosen.best->seconds, time, sizeof time));
        for (int64_t i = 0; i < m->n_lines; i++)
            print_line(&m->lines[i]);
        if (m->takes_liger)
            vp_screen_line("install",
                           "liger-kernel, whose kernels the files switch on then: without "
                           "it nothing that converges alike fits");
    } else if (m->chosen.least) {
        vp_screen_line("nothing", "of what converges alike fits; the least needs %s",
                       vp_size_text(m->chosen.least->bytes->high_bytes, bytes, sizeof bytes));
        if (m->cards)
            vp_screen_line("cards", "%lld of them, sharing by %s, would each need %s",
                           (long long)m->cards, m->cards_parallel,
                           vp_size_text(m->cards_bytes, bytes, sizeof bytes));
    }
}
