#include "cli/dryrun_print.h"

#include "base/options.h"
#include "base/units.h"
#include "cli/paint.h"
#include "cli/screen.h"

#include <stdio.h>
#include <string.h>

enum {
    N_OWNERS_SHOWN  = 12,
    SIZE_COLUMN     = 14,
    N_ALIKE_SHOWN   = 3,
    N_MODULES_SHOWN = 10,
    MODULE_COLUMN   = 47
};

static long long number(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));

    return s ? s : "";
}

static const char *size_of(const json_t *object, const char *key, char *buf, size_t buf_size)
{
    return vp_size_text(number(object, key), buf, buf_size);
}

/* The head of a table: the words above the first column and those behind it, then NULL. */
static void print_head(const char *first, const char *const *words)
{
    printf("\n%s%-*s", vp_paint(VP_PAINT_HEAD), words[0] ? 32 : 0, first);
    for (int i = 0; words[i]; i++)
        printf(" %14s", words[i]);
    printf("%s\n", vp_paint_end());
}

/* Bytes, and what they are: as long as it may be, below itself. */
static void print_sized(int64_t bytes, const char *what)
{
    char size[64], head[80];

    snprintf(head, sizeof head, "%12s", vp_size_text(bytes, size, sizeof size));
    vp_screen_entry(SIZE_COLUMN, head, what);
}

/* The same by module, as much as takes most of the time; layers that are alike are one. */
static void print_modules(const json_t *modules)
{
    char    a[64], b[64], cells[80];
    size_t  i;
    json_t *row;

    if (json_array_size(modules) == 0)
        return;
    printf("\n%s%11s %9s %12s %10s  %s%s\n", vp_paint(VP_PAINT_HEAD), "on the card", "operators",
           "bytes", "GFLOP", "module", vp_paint_end());
    json_array_foreach (modules, i, row) {
        if (i == N_MODULES_SHOWN) {
            printf("  %zu more with --json\n", json_array_size(modules) - i);
            break;
        }
        snprintf(cells, sizeof cells, "%11s %9lld %12s %10.4g",
                 vp_time_text(json_number_value(json_object_get(row, "seconds")), a, sizeof a),
                 number(row, "operators"), size_of(row, "bytes", b, sizeof b),
                 (double)number(row, "flop") * 1e-9);
        vp_screen_entry(MODULE_COLUMN, cells, text(row, "name"));
    }
}

/* Where a step goes. */
static void print_time(const json_t *time)
{
    char        a[64], b[64];
    size_t      i;
    json_t     *row;
    const char *bound = text(time, "bound_by");
    double      talk  = json_number_value(json_object_get(time, "collectives_s"));

    printf("\n");
    vp_screen_line(
        "time", "%s a step (assumed, by what such cards reach), bound by %s",
        vp_time_text(json_number_value(json_object_get(time, "step_time_s")), a, sizeof a),
        strcmp(bound, "launches") == 0 ? "what the host launches"
        : strcmp(bound, "links") == 0  ? "the links to other cards"
                                       : "the card");
    vp_screen_line(
        "", "%s to %s, by what 48 published steps of an A100 and an L40S took beside this model",
        vp_time_text(json_number_value(json_object_get(time, "step_time_least_s")), a, sizeof a),
        vp_time_text(json_number_value(json_object_get(time, "step_time_most_s")), b, sizeof b));
    if (number(time, "samples"))
        vp_screen_line(
            "", "%s samples a step, %s a second; %.1f %% MFU",
            vp_count_text(number(time, "samples"), a, sizeof a),
            vp_rate_text(json_number_value(json_object_get(time, "samples_per_s")), b, sizeof b),
            100 * json_number_value(json_object_get(time, "mfu")));
    if (number(time, "tokens"))
        vp_screen_line(
            "", "%s tokens a step, %s a second", vp_count_text(number(time, "tokens"), a, sizeof a),
            vp_rate_text(json_number_value(json_object_get(time, "tokens_per_s")), b, sizeof b));
    vp_screen_line("", "the card works for %s, the host issues for %s",
                   vp_time_text(json_number_value(json_object_get(time, "device_s")), a, sizeof a),
                   vp_time_text(json_number_value(json_object_get(time, "host_s")), b, sizeof b));
    if (talk > 0)
        vp_screen_line(
            "", "collectives take %s over %s, %s of it while nothing else runs",
            vp_time_text(talk, a, sizeof a), text(time, "link"),
            vp_time_text(json_number_value(json_object_get(time, "collectives_exposed_s")), b,
                         sizeof b));
    printf("\n%s%-16s %11s %9s %9s %12s %10s%s\n", vp_paint(VP_PAINT_HEAD), "class of work",
           "on the card", "operators", "launches", "bytes", "GFLOP", vp_paint_end());
    json_array_foreach (json_object_get(time, "classes"), i, row)
        printf("  %-14s %11s %9lld %9lld %12s %10.4g\n", text(row, "name"),
               vp_time_text(json_number_value(json_object_get(row, "seconds")), a, sizeof a),
               number(row, "operators"), number(row, "launches"),
               size_of(row, "bytes", b, sizeof b), (double)number(row, "flop") * 1e-9);
    print_modules(json_object_get(time, "modules"));
}

/* What grows from step to step. */
static void print_growth(const json_t *growth)
{
    char    a[64], what[1024];
    size_t  i;
    json_t *row;

    if (json_is_true(json_object_get(growth, "longer_batches"))) {
        vp_screen_line("grows", "more is allocated after each step, but nothing of an earlier step "
                                "is kept: longer batches");
        return;
    }
    if (json_array_size(json_object_get(growth, "kept")) == 0)
        return;
    printf("\n");
    vp_screen_line("grows", "%s a step are kept for later steps",
                   size_of(growth, "kept_bytes_per_step", a, sizeof a));
    json_array_foreach (json_object_get(growth, "kept"), i, row) {
        snprintf(what, sizeof what, "in %lld steps, %s tensors: %s", number(row, "steps"),
                 vp_count_text(number(row, "tensors"), a, sizeof a), text(row, "frame"));
        print_sized(number(row, "bytes"), what);
    }
}

/* Several runs of the command. */
static void print_repeats(const json_t *repeats)
{
    char a[64], b[64];

    if (!repeats)
        return;
    printf("\n");
    vp_screen_line("runs", "%lld; this one reserved most", number(repeats, "runs"));
    vp_screen_line("", "allocated %s to %s", size_of(repeats, "allocated_least_bytes", a, sizeof a),
                   size_of(repeats, "allocated_most_bytes", b, sizeof b));
    vp_screen_line("", "reserved %s to %s", size_of(repeats, "reserved_least_bytes", a, sizeof a),
                   size_of(repeats, "reserved_most_bytes", b, sizeof b));
}

/* What each rank took; of ranks that are alike the first. */
static void print_ranks(const json_t *doc)
{
    char    a[64], b[64];
    size_t  i, k;
    json_t *group, *row;

    printf("\n");
    vp_screen_line("ranks", "all the above is of rank %lld, the worst", number(doc, "worst_rank"));
    print_head("rank", (const char *const[]){"allocated", "reserved", "verdict", NULL});
    json_array_foreach (json_object_get(doc, "alike"), k, group) {
        json_int_t first = json_integer_value(json_array_get(group, 0));
        char       name[40];

        snprintf(name, sizeof name, "%lld", (long long)first);
        if (json_array_size(group) > 1)
            snprintf(name, sizeof name, "%lld and %zu more", (long long)first,
                     json_array_size(group) - 1);
        json_array_foreach (json_object_get(doc, "ranks"), i, row)
            if (number(row, "rank") == first)
                printf("  %-30s %14s %14s %14s\n", name,
                       size_of(row, "allocated_peak_bytes", a, sizeof a),
                       size_of(row, "reserved_peak_bytes", b, sizeof b), text(row, "verdict"));
    }
}

/* "353,714,176 bytes, in step1" behind the size. */
static void print_peaks(const json_t *doc)
{
    char    a[64], b[64], phase[48];
    size_t  i;
    json_t *row;

    vp_screen_line("allocated", "%s at the peak, in %s: %s bytes",
                   size_of(doc, "allocated_peak_bytes", a, sizeof a),
                   vp_screen_phase(text(doc, "peak_phase"), phase, sizeof phase),
                   vp_count_text(number(doc, "allocated_peak_bytes"), b, sizeof b));
    vp_screen_line("reserved", "%s, with PyTorch's cache: %s bytes",
                   size_of(doc, "reserved_peak_bytes", a, sizeof a),
                   vp_count_text(number(doc, "reserved_peak_bytes"), b, sizeof b));
    vp_screen_line("device", "%s, with %s outside PyTorch's allocator (%s)",
                   size_of(doc, "device_bytes", a, sizeof a),
                   size_of(doc, "outside_bytes", b, sizeof b), text(doc, "outside_class"));
    print_head("phase", (const char *const[]){"allocated", "reserved", NULL});
    json_array_foreach (json_object_get(doc, "phases"), i, row)
        printf("  %-30s %14s %14s\n", vp_screen_phase(text(row, "name"), phase, sizeof phase),
               size_of(row, "allocated_bytes", a, sizeof a),
               size_of(row, "reserved_bytes", b, sizeof b));
    print_head("at the allocated peak", (const char *const[]){"bytes", NULL});
    json_array_foreach (json_object_get(doc, "items"), i, row)
        printf("  %-30s %14s\n", text(row, "name"), size_of(row, "bytes", a, sizeof a));
}

static void print_owners(const json_t *owners)
{
    char    count[64], what[1024], phase[48];
    size_t  i;
    json_t *row;

    if (json_array_size(owners) == 0)
        return;
    print_head("who allocated it", (const char *const[]){NULL});
    json_array_foreach (owners, i, row) {
        if (i == N_OWNERS_SHOWN) {
            printf("  %zu more with --json\n", json_array_size(owners) - i);
            break;
        }
        snprintf(what, sizeof what, "%s, %s %s, in %s: %s", text(row, "kind"),
                 vp_count_text(number(row, "tensors"), count, sizeof count),
                 number(row, "tensors") == 1 ? "tensor" : "tensors",
                 vp_screen_phase(text(row, "phase"), phase, sizeof phase), text(row, "frame"));
        print_sized(number(row, "bytes"), what);
    }
}

/* "FAILED: why", as long as it may be. */
static void print_failed(const char *what, const char *why)
{
    vp_text lines = {0};
    int     n     = (int)strlen(what) + 2;

    vp_text_wrap(why, n, n, &lines);
    printf("%s%s%s: %s", vp_paint(VP_PAINT_BAD), what, vp_paint_end(), vp_text_string(&lines));
    vp_text_release(&lines);
}

/* The answer first. What was asked for when memory ran out is not what would do: that is not known. */
static void print_verdict(const json_t *doc)
{
    const json_t *oom = json_object_get(doc, "oom");
    char          asked[64], held[64], phase[48], why[1024];

    if (strcmp(text(doc, "verdict"), "fits") == 0) {
        vp_screen_answer(number(doc, "device_bytes"), number(doc, "budget_bytes"), NULL);
        vp_screen_line("card", "%s", text(doc, "device"));
        if (text(doc, "reason")[0])
            vp_screen_line("but", "%s", text(doc, "reason"));
        return;
    }
    if (oom)
        snprintf(why, sizeof why, "out of memory in %s, %s asked for with %s reserved, at %s",
                 vp_screen_phase(text(oom, "phase"), phase, sizeof phase),
                 size_of(oom, "requested_bytes", asked, sizeof asked),
                 size_of(oom, "reserved_bytes", held, sizeof held), text(oom, "where"));
    print_failed(strcmp(text(doc, "verdict"), "oom") == 0 ? "DOES NOT FIT" : "FAILED",
                 oom ? why : text(doc, "reason"));
    if (oom && text(doc, "reason")[0])
        vp_screen_line("because", "%s", text(doc, "reason"));
    vp_screen_line("card", "%s, budget %s", text(doc, "device"),
                   size_of(doc, "budget_bytes", held, sizeof held));
}

/* How much two lines have in common that begin alike, as "device values read as zero: PLACE" do; else 0. */
static size_t same_kind(const char *a, const char *b)
{
    size_t n = strcspn(a, ":");

    return b && a[n] && strncmp(a, b, n + 1) == 0 ? n : 0;
}

/* Of lines in a row that begin alike, which are one assumption at many places, the first few. */
static void print_lines(const char *label, const json_t *lines)
{
    const char *before  = NULL;
    size_t      n_alike = 0, i;
    json_t     *line;

    json_array_foreach (lines, i, line) {
        const char *now = json_string_value(line), *then;
        size_t      n   = same_kind(now, before);
        n_alike         = n ? n_alike + 1 : 0;
        before          = now;
        if (n_alike < N_ALIKE_SHOWN) {
            vp_screen_line(i ? "" : label, "%s", now);
            continue;
        }
        then = json_string_value(json_array_get(lines, i + 1));
        if (!same_kind(now, then))
            vp_screen_line("", "%.*s: %zu more places with --json", (int)n, now,
                           n_alike - N_ALIKE_SHOWN + 1);
    }
}

void vp_dryrun_print(const json_t *doc)
{
    size_t  i;
    json_t *row;

    print_verdict(doc);
    if (number(doc, "allocated_peak_bytes")) {
        print_peaks(doc);
        print_owners(json_object_get(doc, "owners"));
    }
    print_growth(json_object_get(doc, "growth"));
    print_repeats(json_object_get(doc, "repeats"));
    if (json_object_get(doc, "ranks"))
        print_ranks(doc);
    if (json_object_get(doc, "time"))
        print_time(json_object_get(doc, "time"));
    printf("\n");
    json_array_foreach (json_object_get(doc, "unsupported"), i, row)
        vp_screen_line("not known", "%s %s: %s", text(row, "library"), text(row, "function"),
                       text(row, "why"));
    print_lines("assumed", json_object_get(doc, "assumptions"));
    print_lines("may help", json_object_get(doc, "remedies"));
}
