#include "cli/doctor_print.h"

#include "base/json.h"
#include "base/options.h"
#include "base/units.h"
#include "cli/paint.h"
#include "cli/screen.h"

#include <stdio.h>
#include <string.h>

enum { SIZE_COLUMN = 14, SHOWN_BYTES = 600 };

void vp_doctor_print_sized(int64_t bytes, const char *what)
{
    char size[64], head[80];

    snprintf(head, sizeof head, "%12s", bytes >= 0 ? vp_size_text(bytes, size, sizeof size) : "");
    vp_screen_entry(SIZE_COLUMN, head, what);
}

void vp_doctor_print_next(const vp_doctor_next *next)
{
    for (int i = 0; i < next->n; i++)
        vp_screen_command(i ? "" : "next", vp_text_string(&next->commands[i]));
}

void vp_doctor_print_answer(const char *word, const char *what, bool good)
{
    vp_text lines = {0};
    char    head[64];
    int     n;

    snprintf(head, sizeof head, "%s", word);
    for (char *c = head; *c; c++)
        *c = *c == '_' ? ' ' : *c >= 'a' && *c <= 'z' ? (char)(*c - 32) : *c;
    n = (int)strlen(head) + 2;
    vp_text_wrap(what, n, n, &lines);
    printf("%s%s%s: %s", vp_paint(good ? VP_PAINT_GOOD : VP_PAINT_BAD), head, vp_paint_end(),
           vp_text_string(&lines));
    vp_text_release(&lines);
}

static void print_answer(const vp_oom *oom)
{
    bool is_none = oom->class_ == VP_OOM_CLASS_NOT_OOM;
    char word[64];

    snprintf(word, sizeof word, "%s%s", oom->is_likely ? "likely " : "",
             vp_oom_class_word(oom->class_));
    vp_doctor_print_answer(word, is_none && oom->says ? oom->says : vp_oom_class_text(oom->class_),
                           is_none);
    if (is_none && !oom->line)
        vp_screen_line("perhaps", "the kernel killed the process, for want of the host's memory: "
                                  "then the kernel's own log says so, not this one");
}

/* Who said it, and where. */
static void print_place(const vp_oom *oom)
{
    char text[300] = "", part[160], shown[64];

    if (oom->framework)
        snprintf(text, sizeof text, "%s", oom->framework);
    if (oom->since && oom->until)
        snprintf(part, sizeof part, " %s to %s", oom->since, oom->until);
    else
        snprintf(part, sizeof part, "%s%s%s", oom->since || oom->until ? " " : "",
                 oom->since   ? oom->since
                 : oom->until ? oom->until
                              : "",
                 oom->since   ? " or later"
                 : oom->until ? " or earlier"
                              : "");
    if (oom->framework)
        strncat(text, part, sizeof text - strlen(text) - 1);
    if (oom->numbers.gpu >= 0) {
        snprintf(part, sizeof part, "%sGPU %d", text[0] ? ", " : "", oom->numbers.gpu);
        strncat(text, part, sizeof text - strlen(text) - 1);
    }
    if (oom->rank >= 0) {
        snprintf(part, sizeof part, "%srank %d", text[0] ? ", " : "", oom->rank);
        strncat(text, part, sizeof text - strlen(text) - 1);
    }
    if (oom->line) {
        snprintf(part, sizeof part, "%sline %s", text[0] ? ", " : "",
                 vp_count_text(oom->line, shown, sizeof shown));
        strncat(text, part, sizeof text - strlen(text) - 1);
    }
    if (text[0])
        vp_screen_line("said by", "%s", text);
}

static void print_trace(const vp_oom *oom)
{
    const vp_trace_frame *f;
    char                  shown[SHOWN_BYTES], source[SHOWN_BYTES], function[300];

    if (oom->phase < VP_N_TRACE_PHASES)
        vp_screen_line("phase", "%s: %s", vp_trace_phase_word(oom->phase),
                       vp_trace_phase_text(oom->phase));
    if (!oom->trace)
        return;
    f = oom->trace->own.line ? &oom->trace->own : &oom->trace->inner;
    vp_screen_line("at", "%s:%d%s%s%s%s", vp_text_escape(f->file, shown, sizeof shown), f->line,
                   f->function[0] ? " in " : "",
                   vp_text_escape(f->function, function, sizeof function), f->source[0] ? ": " : "",
                   vp_text_escape(f->source, source, sizeof source));
}

static void print_numbers(const vp_oom *oom)
{
    const vp_amounts *n   = &oom->numbers;
    bool              any = n->n_others > 0;
    char              what[200];

    for (int i = 0; i < VP_N_OOM_NUMBERS; i++)
        any |= n->bytes[i] >= 0;
    if (!any)
        return;
    printf("\n%sby the text%s\n", vp_paint(VP_PAINT_HEAD), vp_paint_end());
    for (int i = 0; i < VP_N_OOM_NUMBERS; i++)
        if (n->bytes[i] >= 0)
            vp_doctor_print_sized(n->bytes[i], vp_oom_number_text((vp_oom_number)i));
    for (int i = 0; i < n->n_others; i++) {
        if (n->others[i].pid > 0)
            snprintf(what, sizeof what, "held by process %lld", (long long)n->others[i].pid);
        else
            snprintf(what, sizeof what, "held by another process");
        vp_doctor_print_sized(n->others[i].bytes, what);
    }
}

static void print_evidence(const vp_oom *oom)
{
    char head[40], shown[260], number[32]; /* as much as tells; --json has more */

    if (!oom->n_evidence)
        return;
    printf("\n%sthe lines that say it%s\n", vp_paint(VP_PAINT_HEAD), vp_paint_end());
    for (int i = 0; i < oom->n_evidence; i++) {
        snprintf(head, sizeof head, "%12s",
                 vp_count_text(oom->evidence[i].line, number, sizeof number));
        vp_screen_entry(SIZE_COLUMN, head,
                        vp_text_escape(oom->evidence[i].text, shown, sizeof shown));
    }
}

void vp_doctor_print_remedies(const vp_remedy *remedies, int n)
{
    char text[1200];
    bool any = false;

    for (int i = 0; i < n; i++)
        any |= remedies[i].saves_bytes >= 0;
    if (n)
        printf("\n%s%s%s\n", vp_paint(VP_PAINT_HEAD),
               any ? "       saves  what helps" : "              what helps", vp_paint_end());
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s; costs %s", remedies[i].text, remedies[i].costs);
        vp_doctor_print_sized(remedies[i].saves_bytes, text);
    }
}

void vp_doctor_print_oom(const vp_oom *oom, const vp_doctor_next *next)
{
    print_answer(oom);
    if (oom->because)
        vp_screen_line("because", "%s", oom->because);
    if (oom->says && oom->class_ != VP_OOM_CLASS_NOT_OOM)
        vp_screen_line("it means", "%s", oom->says);
    print_place(oom);
    if (oom->numbers.pid > 0)
        vp_screen_line("killed", "process %lld", (long long)oom->numbers.pid);
    print_trace(oom);
    print_numbers(oom);
    print_evidence(oom);
    vp_doctor_print_remedies(oom->remedies, oom->n_remedies);
    if (next->n)
        printf("\n");
    vp_doctor_print_next(next);
}

static json_t *numbers_json(const vp_amounts *n)
{
    json_t *o = json_object(), *others = json_array();

    for (int i = 0; i < VP_N_OOM_NUMBERS; i++)
        if (n->bytes[i] >= 0)
            json_object_set_new(o, vp_oom_number_key((vp_oom_number)i), json_integer(n->bytes[i]));
    for (int i = 0; i < n->n_others; i++)
        json_array_append_new(others, json_integer(n->others[i].bytes));
    if (n->n_others)
        json_object_set(o, "other_process_bytes", others);
    json_decref(others);
    if (n->pid > 0)
        json_object_set_new(o, "killed_pid", json_integer(n->pid));
    return o;
}

static json_t *frame_json(const vp_trace_frame *f)
{
    return json_pack("{s:o, s:i, s:o, s:o}", "file", vp_json_text_or_null(f->file), "line", f->line,
                     "function", vp_json_text_or_null(f->function), "source",
                     vp_json_text_or_null(f->source));
}

json_t *vp_doctor_remedies_json(const vp_remedy *remedies, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:o, s:s}", "text", remedies[i].text, "saves_bytes",
                                        vp_json_int_or_null(remedies[i].saves_bytes), "costs",
                                        remedies[i].costs));
    return list;
}

json_t *vp_doctor_oom_json(const vp_oom *oom, const vp_doctor_next *next)
{
    json_t         *evidence = json_array(), *commands = json_array();
    const vp_trace *t = oom->trace;

    for (int i = 0; i < oom->n_evidence; i++)
        json_array_append_new(evidence,
                              json_pack("{s:i, s:o}", "line", oom->evidence[i].line, "text",
                                        vp_json_text_or_null(oom->evidence[i].text)));
    for (int i = 0; i < next->n; i++)
        json_array_append_new(commands, json_string(vp_text_string(&next->commands[i])));
    return json_pack(
        "{s:i, s:s, s:b, s:s?, s:s?, s:s?, s:o, s:o, s:o, s:o, s:s?, s:s?, s:s?, s:o, s:o, s:o, s:o, s:o}",
        "schema_version", 1, "class", vp_oom_class_word(oom->class_), "likely", oom->is_likely,
        "framework", oom->framework, "since", oom->since, "until", oom->until, "line",
        oom->line ? json_integer(oom->line) : json_null(), "gpu",
        vp_json_int_or_null(oom->numbers.gpu), "rank", vp_json_int_or_null(oom->rank), "numbers",
        numbers_json(&oom->numbers), "because", oom->because, "says", oom->says, "phase",
        vp_trace_phase_word(oom->phase), "frame",
        t ? frame_json(t->own.line ? &t->own : &t->inner) : json_null(), "evidence", evidence,
        "remedies", vp_doctor_remedies_json(oom->remedies, oom->n_remedies), "command",
        vp_json_text_or_null(oom->command ? oom->command : ""), "next", commands);
}
