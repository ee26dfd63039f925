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
