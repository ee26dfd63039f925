#include "cli/doctor_print.h"

#include "base/json.h"
#include "base/units.h"
#include "cli/paint.h"
#include "cli/screen.h"

#include <stdio.h>

static const char *times(int64_t n)
{
    return n == 1 ? "time" : "times";
}

static void print_allocator(const vp_summary *s)
{
    char a[32], b[32], c[32], text[300];

    snprintf(text, sizeof text, "%s allocated at the peak, %s reserved%s",
             vp_size_text(s->metrics[VP_METRIC_ALLOCATED].peak_bytes, a, sizeof a),
             vp_size_text(s->metrics[VP_METRIC_RESERVED].peak_bytes, b, sizeof b),
             s->n_ooms > 0 ? ", and it ran out of memory" : "");
    vp_doctor_print_answer("summary", text, s->n_ooms <= 0);
    if (s->device >= 0)
        vp_screen_line("device", "%d%s", s->device,
                       s->n_tables > 1 ? "; the last of several tables" : "");
    if (s->n_ooms > 0)
        vp_screen_line("refused", "%s %s, an error each", vp_count_text(s->n_ooms, a, sizeof a),
                       times(s->n_ooms));
    if (s->n_retries > 0)
        vp_screen_line(
            "retried",
            "%s times the card was full, and the cache was given back first, which takes time",
            vp_count_text(s->n_retries, a, sizeof a));
    printf("\n%s%12s  %12s%s\n", vp_paint(VP_PAINT_HEAD), "now", "peak", vp_paint_end());
    for (int i = 0; i < VP_N_METRICS; i++) {
        char head[64];
        if (s->metrics[i].now_bytes < 0)
            continue;
        snprintf(
            head, sizeof head, "%12s  %12s", vp_size_text(s->metrics[i].now_bytes, a, sizeof a),
            s->metrics[i].peak_bytes < 0 ? ""
                                         : vp_size_text(s->metrics[i].peak_bytes, c, sizeof c));
        vp_screen_entry(28, head, vp_metric_text((vp_metric)i));
    }
}

/* The card with the least free, in one line; then each with who holds it. */
static void print_cards(const vp_summary *s)
{
    char a[32], b[32], text[400], shown[300];
    int  worst = 0;

    for (int c = 1; c < s->n_cards; c++)
        if (s->cards[c].total_bytes - s->cards[c].used_bytes <
            s->cards[worst].total_bytes - s->cards[worst].used_bytes)
            worst = c;
    if (s->n_cards) {
        int64_t free = s->cards[worst].total_bytes - s->cards[worst].used_bytes;
        snprintf(text, sizeof text, "GPU %d has %s free of %s%s", worst,
                 vp_size_text(free, a, sizeof a),
                 vp_size_text(s->cards[worst].total_bytes, b, sizeof b),
                 s->n_cards > 1 ? ", the least of all" : "");
        vp_doctor_print_answer("cards", text, true);
    } else {
        vp_doctor_print_answer("cards", "who holds how much, whatever the card", true);
    }
    printf("\n%sheld by%s\n", vp_paint(VP_PAINT_HEAD), vp_paint_end());
    for (int i = 0; i < s->n_processes; i++) {
        const vp_card_process *p = &s->processes[i];
        if (p->card >= 0)
            snprintf(text, sizeof text, "process %lld on GPU %d: %s", (long long)p->pid, p->card,
                     vp_text_escape(p->name, shown, sizeof shown));
        else
            snprintf(text, sizeof text, "process %lld: %s", (long long)p->pid,
                     vp_text_escape(p->name, shown, sizeof shown));
        vp_doctor_print_sized(p->bytes, text);
    }
    for (int c = 0; c < s->n_cards; c++)
        if (s->cards[c].others_bytes >= 64 * VP_MIB) {
            snprintf(
                text, sizeof text,
                "nobody who is listed, on GPU %d: the driver, another container, or a process that "
                "ended badly",
                c);
            vp_doctor_print_sized(s->cards[c].others_bytes, text);
        }
}

void vp_doctor_print_summary(const vp_summary *s)
{
    if (s->has_allocator)
        print_allocator(s);
    if (s->has_allocator && (s->n_cards || s->n_processes))
        printf("\n");
    if (s->n_cards || s->n_processes)
        print_cards(s);
    vp_doctor_print_remedies(s->remedies, s->n_remedies);
    printf("\n");
    vp_screen_command("next", s->has_allocator ? "vplan dryrun --device CARD -- python TRAIN.PY"
                                               : "vplan doctor");
}

static json_t *allocator_json(const vp_summary *s)
{
    json_t *o = s->has_allocator
                    ? json_pack("{s:o, s:i, s:o, s:o}", "device", vp_json_int_or_null(s->device),
                                "tables", s->n_tables, "ooms", vp_json_int_or_null(s->n_ooms),
                                "retries", vp_json_int_or_null(s->n_retries))
                    : json_null();
    char    key[64];

    for (int i = 0; s->has_allocator && i < VP_N_METRICS; i++) {
        snprintf(key, sizeof key, "%s_bytes", vp_metric_key((vp_metric)i));
        json_object_set_new(o, key, vp_json_int_or_null(s->metrics[i].now_bytes));
        snprintf(key, sizeof key, "%s_peak_bytes", vp_metric_key((vp_metric)i));
        json_object_set_new(o, key, vp_json_int_or_null(s->metrics[i].peak_bytes));
    }
    return o;
}

json_t *vp_doctor_summary_json(const vp_summary *s)
{
    json_t *cards = json_array(), *processes = json_array();

    for (int c = 0; c < s->n_cards; c++)
        json_array_append_new(cards,
                              json_pack("{s:i, s:I, s:I, s:I}", "gpu", c, "used_bytes",
                                        (json_int_t)s->cards[c].used_bytes, "total_bytes",
                                        (json_int_t)s->cards[c].total_bytes, "unlisted_bytes",
                                        (json_int_t)s->cards[c].others_bytes));
    for (int i = 0; i < s->n_processes; i++)
        json_array_append_new(processes,
                              json_pack("{s:o, s:o, s:o, s:o}", "gpu",
                                        vp_json_int_or_null(s->processes[i].card), "pid",
                                        vp_json_int_or_null(s->processes[i].pid), "name",
                                        vp_json_text_or_null(s->processes[i].name), "bytes",
                                        vp_json_int_or_null(s->processes[i].bytes)));
    return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o}", "schema_version", 1, "kind", "summary",
                     "allocator", allocator_json(s), "cards", cards, "processes", processes,
                     "remedies", vp_doctor_remedies_json(s->remedies, s->n_remedies));
}
