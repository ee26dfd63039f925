#include "cli/estimate_lengths.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/screen.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* RANKS: shorter batches that are looked at */
enum { MAX_SAMPLES = 1000000000, MAX_FILE = 64 << 20, RANKS = 6 };

static int by_tokens(const void *a, const void *b)
{
    const vp_length *x = a, *y = b;

    return (x->tokens > y->tokens) - (x->tokens < y->tokens);
}

static const char *past_blanks(const char *at)
{
    return at + strspn(at, " \t,\r");
}

/* A whole number from 1 on at *at, which moves behind it. */
static bool number(const char **at, int64_t *out)
{
    char *end;

    errno = 0;
    *out  = strtoll(*at, &end, 10);
    if (errno || end == *at || *out < 1 || *out > MAX_SAMPLES)
        return false;
    *at = past_blanks(end);
    return true;
}

/* One line, without its end; false: it is none. A line of nothing has a count of 0. */
static bool read_line(const char *line, vp_length *out)
{
    const char *at = past_blanks(line);

    *out = (vp_length){0};
    if (!*at || *at == '#')
        return true;
    out->count = 1;
    return number(&at, &out->tokens) && (!*at || *at == '#' || number(&at, &out->count)) &&
           (!*at || *at == '#');
}

/* Sorted, those of one length together. */
static void merge(vp_lengths *l)
{
    int64_t n = 0;

    qsort(l->of, (size_t)l->n, sizeof *l->of, by_tokens);
    for (int64_t i = 0; i < l->n; i++)
        if (n && l->of[n - 1].tokens == l->of[i].tokens)
            l->of[n - 1].count += l->of[i].count;
        else
            l->of[n++] = l->of[i];
    l->n = n;
}

vp_status vp_lengths_read(const char *path, vp_lengths *out, vp_err *err)
{
    char     *text = NULL, *rest;
    int64_t   n_bytes, n_lines = 1, line = 0;
    vp_status st = VP_OK;

    *out = (vp_lengths){0};
    VP_TRY(vp_file_read(path, MAX_FILE, &text, &n_bytes, err));
    if (strlen(text) != (size_t)n_bytes)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL, "is no text"));
    for (int64_t i = 0; i < n_bytes; i++)
        n_lines += text[i] == '\n';
    out->of = malloc((size_t)n_lines * sizeof *out->of);
    VP_TRY_ALLOC(err, out->of);
    for (char *at = text; at; at = rest) {
        rest = strchr(at, '\n');
        if (rest)
            *rest++ = '\0';
        line++;
        if (!read_line(at, &out->of[out->n]))
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, (int)line, NULL,
                              "is no length: tokens of a sample, and how many samples have them, "
                              "as \"512\" or \"512 30\""));
        out->n_samples += out->of[out->n].count;
        out->n += out->of[out->n].count > 0;
        if (out->n_samples > MAX_SAMPLES)
            VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, (int)line, NULL, "more than %d samples",
                              MAX_SAMPLES));
    }
    if (!out->n)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL, "holds no length"));
    merge(out);
out:
    free(text);
    if (st != VP_OK)
        vp_lengths_free(out);
    return st;
}

void vp_lengths_free(vp_lengths *lengths)
{
    free(lengths->of);
    *lengths = (vp_lengths){0};
}

/* Tokens of batches of neighbours, each padded to its longest; the last one need not be full. */
static double bucketed_tokens(const vp_lengths *l, int64_t batch, int64_t most)
{
    int64_t open = 0, tokens = 0; /* samples in the batch that is not full yet */
    double  total = 0;

    for (int64_t i = 0; i < l->n; i++) {
        int64_t count = open + l->of[i].count;
        tokens        = l->of[i].tokens < most ? l->of[i].tokens : most;
        total += (double)tokens * (double)(count / batch * batch);
        open = count % batch;
    }
    return total + (double)open * (double)tokens;
}

void vp_lengths_of_batches(const vp_lengths *l, int64_t batch, int64_t most, vp_length_batches *out)
{
    int64_t below = 0;
    double  n = (double)l->n_samples, total = 0, last = 0;

    *out = (vp_length_batches){.shortest = l->of[0].tokens < most ? l->of[0].tokens : most};
    for (int64_t i = 0; i < l->n; i++) {
        int64_t tokens = l->of[i].tokens < most ? l->of[i].tokens : most;
        below += l->of[i].count;
        /* drawn with replacement: a batch's longest is at most this with the share below, to the batch's power */
        double share = pow((double)below / n, (double)batch);
        total += (double)tokens * (double)l->of[i].count;
        out->expected += (double)tokens * (share - last);
        out->share   = tokens > out->longest ? share - last : out->share + share - last;
        out->longest = tokens;
        last         = share;
    }
    out->mean     = total / n;
    out->padding  = 1 - out->mean / out->expected;
    out->bucketed = 1 - total / bucketed_tokens(l, batch, most);
}

static int64_t bytes_with(const vp_model *model, vp_hf_request q, int64_t seq, bool padded,
                          int64_t context_bytes)
{
    vp_hf_estimate e   = {0};
    vp_err         why = {0};

    q.seq    = seq;
    q.padded = padded;
    return vp_hf_estimate_run(model, &q, &e, &why) == VP_OK ? e.reserved_bytes + context_bytes : -1;
}

/* The batch whose longest sample is of rank i of n, shortest first; a masked step was recorded in eights. */
static int64_t length_of_rank(const vp_lengths *l, int64_t i, int64_t n, int64_t most)
{
    int64_t at = 0, left = (int64_t)((double)l->n_samples * (double)i / (double)n);

    while (at + 1 < l->n && left > l->of[at].count)
        left -= l->of[at++].count;
    return vp_round_up(l->of[at].tokens < most ? l->of[at].tokens : most, VP_MASKED_BY);
}

int64_t vp_lengths_worst(const vp_lengths *lengths, const vp_model *model,
                         const vp_hf_request *request, int64_t most)
{
    int64_t worst      = request->seq, seq, bytes,
            most_bytes = bytes_with(model, *request, worst, request->padded, 0);

    for (int64_t i = 1; i <= RANKS && most_bytes >= 0; i++) {
        seq        = length_of_rank(lengths, i, RANKS, most);
        bytes      = seq == worst ? -1 : bytes_with(model, *request, seq, request->padded, 0);
        worst      = bytes > most_bytes ? seq : worst;
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
    }
    return worst;
}

void vp_lengths_compare(const vp_lengths *lengths, const vp_model *model,
                        const vp_hf_request *request, int64_t most, int64_t context_bytes,
                        vp_length_answer *out)
{
    *out = (vp_length_answer){.n_samples = lengths->n_samples, .batch = request->batch};
    vp_lengths_of_batches(lengths, request->batch, most, &out->batches);
    out->typical_seq = vp_round_up((int64_t)ceil(out->batches.expected), VP_MASKED_BY);
    out->packed_seq  = vp_round_up(out->batches.longest, VP_MASKED_BY);
    out->typical_bytes =
        bytes_with(model, *request, out->typical_seq, request->padded, context_bytes);
    out->deciding_seq = request->seq;
    out->packed_bytes = bytes_with(model, *request, out->packed_seq, false, context_bytes);
}

static json_t *one_json(int64_t seq, int64_t bytes)
{
    return json_pack("{s:I, s:o, s:s}", "seq", (json_int_t)seq, "device_bytes",
                     bytes < 0 ? json_null() : json_integer((json_int_t)bytes), "class", "derived");
}

json_t *vp_lengths_json(const vp_length_answer *a)
{
    const vp_length_batches *b = &a->batches;

    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "samples",
                     (json_int_t)a->n_samples, "shortest", (json_int_t)b->shortest, "longest",
                     (json_int_t)b->longest, "deciding", (json_int_t)a->deciding_seq, "mean",
                     b->mean, "longest_of_batch", b->expected, "share_of_longest", b->share,
                     "padding", b->padding, "padding_bucketed", b->bucketed, "typical",
                     one_json(a->typical_seq, a->typical_bytes), "packed",
                     one_json(a->packed_seq, a->packed_bytes));
}

void vp_lengths_print(const vp_length_answer *a)
{
    const vp_length_batches *b = &a->batches;
    char                     x[64], y[64];

    vp_screen_line("lengths",
                   "%s samples of %lld to %lld tokens, %.0f on average; batches of %lld are padded "
                   "to %.0f on average, %.0f %% of it padding",
                   vp_count_text(a->n_samples, x, sizeof x), (long long)b->shortest,
                   (long long)b->longest, b->mean, (long long)a->batch, b->expected,
                   100 * b->padding);
    char average[96] = "";
    if (a->typical_bytes >= 0)
        snprintf(average, sizeof average, "; an average one takes %s",
                 vp_size_text(a->typical_bytes, x, sizeof x));
    if (a->deciding_seq < b->longest)
        vp_screen_line("decides",
                       "a batch padded to %lld tokens, which PyTorch's cache holds worse than the "
                       "longest, of %lld%s",
                       (long long)a->deciding_seq, (long long)b->longest, average);
    else
        vp_screen_line("decides", "a batch with a sample of %lld tokens, one of %.0f batches%s",
                       (long long)b->longest, 1 / b->share, average);
    vp_screen_line("instead",
                   "grouped by length the peak is the same and %.0f %% padding; packed to %lld "
                   "tokens none, and every batch takes %s",
                   100 * b->bucketed, (long long)a->packed_seq,
                   a->packed_bytes < 0 ? "what was not recorded"
                                       : vp_size_text(a->packed_bytes, y, sizeof y));
}
