#include "dryrun/dryrun_run.h"

#include "base/units.h"
#include "cli/dryrun_print.h"

#include <string.h>

static long long number(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));

    return s ? s : "";
}

/* Where a step goes. */
static void print_time(const json_t *time, FILE *out)
{
    char    a[64], b[64];
    size_t  i;
    json_t *row;
    double  step_s = json_number_value(json_object_get(time, "step_time_s"));

    fprintf(out, "\n  a step takes %s (assumed, by what such cards reach), bound by %s\n",
            vp_time_text(step_s, a, sizeof a),
            strcmp(text(time, "bound_by"), "launches") == 0 ? "what the host launches"
                                                            : "the card");
    if (number(time, "samples"))
        fprintf(out, "  %s samples a step, %.4g a second; %.1f %% MFU\n",
                vp_count_text(number(time, "samples"), a, sizeof a),
                json_number_value(json_object_get(time, "samples_per_s")),
                100 * json_number_value(json_object_get(time, "mfu")));
    fprintf(out, "  the card works for %s, the host issues for %s\n\n",
            vp_time_text(json_number_value(json_object_get(time, "device_s")), a, sizeof a),
            vp_time_text(json_number_value(json_object_get(time, "host_s")), b, sizeof b));
    fprintf(out, "  %-14s %11s %9s %9s %12s %10s\n", "class of work", "on the card", "operators",
            "launches", "bytes", "GFLOP");
    json_array_foreach (json_object_get(time, "classes"), i, row)
        fprintf(out, "  %-14s %11s %9lld %9lld %12s %10.4g\n", text(row, "name"),
                vp_time_text(json_number_value(json_object_get(row, "seconds")), a, sizeof a),
                number(row, "operators"), number(row, "launches"),
                vp_size_text(number(row, "bytes"), b, sizeof b),
                (double)number(row, "flop") * 1e-9);
}

/* What grows from step to step. */
static void print_growth(const json_t *growth, FILE *out)
{
    char    a[64], b[64];
    size_t  i;
    json_t *row;

    if (json_is_true(json_object_get(growth, "longer_batches"))) {
        fprintf(
            out,
            "\n  more is allocated after each step, but nothing of an earlier step is kept: longer "
            "batches\n");
        return;
    }
    if (json_array_size(json_object_get(growth, "kept")) == 0)
        return;
    fprintf(out, "\n  it grows: %s a step are kept for later steps\n",
            vp_size_text(number(growth, "kept_bytes_per_step"), a, sizeof a));
    json_array_foreach (json_object_get(growth, "kept"), i, row)
        fprintf(out, "  %14s  in %lld steps, %s tensors: %s\n",
                vp_size_text(number(row, "bytes"), a, sizeof a), number(row, "steps"),
                vp_count_text(number(row, "tensors"), b, sizeof b), text(row, "frame"));
}

/* Several runs of the command. */
static void print_repeats(const json_t *repeats, FILE *out)
{
    char a[64], b[64];

    if (!repeats)
        return;
    fprintf(out, "\n  of %lld runs, this one reserved most\n", number(repeats, "runs"));
    fprintf(out, "  %-10s %14s to %14s\n", "allocated",
            vp_size_text(number(repeats, "allocated_least_bytes"), a, sizeof a),
            vp_size_text(number(repeats, "allocated_most_bytes"), b, sizeof b));
    fprintf(out, "  %-10s %14s to %14s\n", "reserved",
            vp_size_text(number(repeats, "reserved_least_bytes"), a, sizeof a),
            vp_size_text(number(repeats, "reserved_most_bytes"), b, sizeof b));
}

/* What each rank took; of ranks that are alike the first. */
static void print_ranks(const json_t *doc, FILE *out)
{
    char    a[64], b[64];
    size_t  i, k;
    json_t *group, *row;

    fprintf(out, "\n  all the above is of rank %lld, the worst\n", number(doc, "worst_rank"));
    fprintf(out, "  %-12s %14s %14s  %s\n", "rank", "allocated", "reserved", "verdict");
    json_array_foreach (json_object_get(doc, "alike"), k, group) {
        json_int_t first = json_integer_value(json_array_get(group, 0));
        char       name[40];

        snprintf(name, sizeof name, "%lld", (long long)first);
        if (json_array_size(group) > 1)
            snprintf(name, sizeof name, "%lld and %zu more", (long long)first,
                     json_array_size(group) - 1);
        json_array_foreach (json_object_get(doc, "ranks"), i, row)
            if (number(row, "rank") == first)
                fprintf(out, "  %-12s %14s %14s  %s\n", name,
                        vp_size_text(number(row, "allocated_peak_bytes"), a, sizeof a),
                        vp_size_text(number(row, "reserved_peak_bytes"), b, sizeof b),
                        text(row, "verdict"));
    }
}

void vp_dryrun_print(const json_t *doc, FILE *out)
{
    char    a[64], b[64], c[64];
    size_t  i;
    json_t *row;

    fprintf(out, "%s on %s, budget %s", text(doc, "verdict"), text(doc, "device"),
            vp_size_text(number(doc, "budget_bytes"), a, sizeof a));
    fprintf(out, "%s%s\n", text(doc, "reason")[0] ? ": " : "", text(doc, "reason"));
    if (number(doc, "allocated_peak_bytes")) {
        fprintf(out, "  allocated peak %12s   %s, in %s\n",
                vp_size_text(number(doc, "allocated_peak_bytes"), a, sizeof a),
                vp_count_text(number(doc, "allocated_peak_bytes"), b, sizeof b),
                text(doc, "peak_phase"));
        fprintf(out, "  reserved peak  %12s   %s\n",
                vp_size_text(number(doc, "reserved_peak_bytes"), a, sizeof a),
                vp_count_text(number(doc, "reserved_peak_bytes"), b, sizeof b));
        fprintf(out, "  on the device  %12s   with %s outside PyTorch's allocator (%s)\n",
                vp_size_text(number(doc, "device_bytes"), a, sizeof a),
                vp_size_text(number(doc, "outside_bytes"), b, sizeof b),
                text(doc, "outside_class"));
        fprintf(out, "\n  %-12s %14s %14s\n", "phase", "allocated", "reserved");
        json_array_foreach (json_object_get(doc, "phases"), i, row)
            fprintf(out, "  %-12s %14s %14s\n", text(row, "name"),
                    vp_size_text(number(row, "allocated_bytes"), a, sizeof a),
                    vp_size_text(number(row, "reserved_bytes"), b, sizeof b));
        fprintf(out, "\n  at the allocated peak\n");
        json_array_foreach (json_object_get(doc, "items"), i, row)
            fprintf(out, "  %14s  %s\n", vp_size_text(number(row, "bytes"), a, sizeof a),
                    text(row, "name"));
        fprintf(out, "\n  owners\n");
        json_array_foreach (json_object_get(doc, "owners"), i, row) {
            if (i == 12) {
                fprintf(out, "  %zu more with --json\n",
                        json_array_size(json_object_get(doc, "owners")) - i);
                break;
            }
            fprintf(out, "  %14s  %s, %s tensors, %s: %s\n",
                    vp_size_text(number(row, "bytes"), a, sizeof a), text(row, "kind"),
                    vp_count_text(number(row, "tensors"), c, sizeof c), text(row, "phase"),
                    text(row, "frame"));
        }
    }
    print_growth(json_object_get(doc, "growth"), out);
    print_repeats(json_object_get(doc, "repeats"), out);
    if (json_object_get(doc, "ranks"))
        print_ranks(doc, out);
    if (json_object_get(doc, "time"))
        print_time(json_object_get(doc, "time"), out);
    if (json_object_get(doc, "oom")) {
        row = json_object_get(doc, "oom");
        fprintf(out, "\n  out of memory in %s, asking for %s with %s reserved, at %s\n",
                text(row, "phase"), vp_size_text(number(row, "requested_bytes"), a, sizeof a),
                vp_size_text(number(row, "reserved_bytes"), b, sizeof b), text(row, "where"));
        json_array_foreach (json_object_get(doc, "remedies"), i, row)
            fprintf(out, "  %s%s\n", i ? "         " : "may help ", json_string_value(row));
    }
    json_array_foreach (json_object_get(doc, "unsupported"), i, row)
        fprintf(out, "\n  not modelled: %s %s (%s)\n", text(row, "library"), text(row, "function"),
                text(row, "why"));
    if (json_array_size(json_object_get(doc, "assumptions")))
        fprintf(out, "\n  assumed\n");
    json_array_foreach (json_object_get(doc, "assumptions"), i, row)
        fprintf(out, "  - %s\n", json_string_value(row));
}
