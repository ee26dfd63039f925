#include "cli/doctor_print.h"

#include "base/json.h"
#include "base/units.h"
#include "cli/paint.h"
#include "cli/screen.h"

#include <stdio.h>

enum { N_OWNERS_SHOWN = 10, N_OWNERS_JSON = 200 };

static void print_owners(const char *head, const vp_owners *o)
{
    char what[900], shown[800], count[32];

    printf("\n%s%s%s\n", vp_paint(VP_PAINT_HEAD), head, vp_paint_end());
    for (int64_t i = 0; i < o->n && i < N_OWNERS_SHOWN; i++) {
        snprintf(what, sizeof what, "%s %s: %s",
                 vp_count_text(o->owners[i].n_blocks, count, sizeof count),
                 o->owners[i].n_blocks == 1 ? "block" : "blocks",
                 vp_text_escape(o->owners[i].frame, shown, sizeof shown));
        vp_doctor_print_sized(o->owners[i].bytes, what);
    }
    if (o->n > N_OWNERS_SHOWN)
        printf("  %lld more with --json\n", (long long)(o->n - N_OWNERS_SHOWN));
}

static void print_segments(const vp_snapshot *s)
{
    char a[32];

    printf("\n%sof what is reserved now%s\n", vp_paint(VP_PAINT_HEAD), vp_paint_end());
    vp_doctor_print_sized(s->allocated_bytes, "allocated");
    if (s->pending_bytes)
        vp_doctor_print_sized(s->pending_bytes, "freed, and waiting for another stream");
    vp_doctor_print_sized(s->split_bytes,
                          "free beside live blocks: not given back when memory is short");
    vp_doctor_print_sized(s->free_segment_bytes, "in segments without a live block: given back");
    vp_doctor_print_sized(s->largest_free_bytes, "the largest free block");
    vp_screen_line("segments", "%s, %lld of them expandable",
                   vp_count_text(s->n_segments, a, sizeof a), (long long)s->n_expandable);
}

void vp_doctor_print_snapshot(const vp_snapshot *s)
{
    char a[32], b[32], text[200], shown[800];

    if (s->n_ooms) {
        vp_doctor_print_answer(vp_oom_class_word(s->class_), vp_oom_class_text(s->class_), false);
        vp_screen_line("because", "%s", s->because);
        vp_screen_line("when", "%lld in this history; the last asked for %s at %s",
                       (long long)s->n_ooms, vp_size_text(s->oom_requested_bytes, a, sizeof a),
                       s->oom_frame ? vp_text_escape(s->oom_frame, shown, sizeof shown)
                                    : "no recorded frame");
        if (s->oom_largest_free_bytes >= 0)
            vp_screen_line("", "the largest free block was %s",
                           vp_size_text(s->oom_largest_free_bytes, a, sizeof a));
    } else {
        snprintf(text, sizeof text, "%s allocated of %s reserved, and no shortage recorded",
                 vp_size_text(s->allocated_bytes, a, sizeof a),
                 vp_size_text(s->reserved_bytes, b, sizeof b));
        vp_doctor_print_answer("snapshot", text, true);
    }
    vp_screen_line("device", "%d%s", s->device, s->n_devices > 1 ? "; the file has others" : "");
    if (s->peak_bytes >= 0)
        vp_screen_line("peak", "%s by requests, after event %s of %s%s",
                       vp_size_text(s->peak_bytes, a, sizeof a),
                       vp_count_text(s->peak_event, b, sizeof b),
                       vp_count_text(s->n_events, text, sizeof text),
                       s->is_partial ? "; the history begins in the middle of the run" : "");
    else
        vp_screen_line("peak", "not known: no history was recorded "
                               "(torch.cuda.memory._record_memory_history())");
    print_segments(s);
    if (s->peak_bytes >= 0)
        print_owners("who held it at the peak", &s->at_peak);
    print_owners("who holds it at the end", &s->now);
    vp_doctor_print_remedies(s->remedies, s->n_remedies);
    printf("\n");
    vp_screen_command("next", "vplan dryrun --device CARD -- python TRAIN.PY");
}

static json_t *owners_json(const vp_owners *o)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < o->n && i < N_OWNERS_JSON; i++)
        json_array_append_new(list, json_pack("{s:o, s:I, s:I}", "frame",
                                              vp_json_text_or_null(o->owners[i].frame), "bytes",
                                              (json_int_t)o->owners[i].bytes, "blocks",
                                              (json_int_t)o->owners[i].n_blocks));
    return list;
}

static json_t *oom_json(const vp_snapshot *s)
{
    return s->n_ooms
               ? json_pack("{s:I, s:o, s:o, s:I, s:I, s:o, s:o}", "times", (json_int_t)s->n_ooms,
                           "requested_bytes", vp_json_int_or_null(s->oom_requested_bytes),
                           "device_free_bytes", vp_json_int_or_null(s->oom_device_free_bytes),
                           "allocated_bytes", (json_int_t)s->oom_allocated_bytes, "reserved_bytes",
                           (json_int_t)s->oom_reserved_bytes, "largest_free_bytes",
                           vp_json_int_or_null(s->oom_largest_free_bytes), "frame",
                           vp_json_text_or_null(s->oom_frame ? s->oom_frame : ""))
               : json_null();
}

json_t *vp_doctor_snapshot_json(const vp_snapshot *s)
{
    return json_pack(
        "{s:i, s:s, s:o, s:s?, s:i, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:o, s:o, "
        "s:o, s:o}",
        "schema_version", 1, "kind", "snapshot", "class",
        s->n_ooms ? json_string(vp_oom_class_word(s->class_)) : json_null(), "because", s->because,
        "device", s->device, "allocated_bytes", (json_int_t)s->allocated_bytes, "requested_bytes",
        vp_json_int_or_null(s->requested_bytes), "reserved_bytes", (json_int_t)s->reserved_bytes,
        "pending_bytes", (json_int_t)s->pending_bytes, "split_bytes", (json_int_t)s->split_bytes,
        "free_segment_bytes", (json_int_t)s->free_segment_bytes, "largest_free_bytes",
        (json_int_t)s->largest_free_bytes, "segments", (json_int_t)s->n_segments,
        "expandable_segments", (json_int_t)s->n_expandable, "events", (json_int_t)s->n_events,
        "partial_history", s->is_partial, "requested_peak_bytes",
        vp_json_int_or_null(s->peak_bytes), "oom", oom_json(s), "owners_at_peak",
        owners_json(&s->at_peak), "owners_at_end", owners_json(&s->now), "remedies",
        vp_doctor_remedies_json(s->remedies, s->n_remedies));
}
