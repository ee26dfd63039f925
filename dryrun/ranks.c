#include "dryrun/dryrun_internal.h"

#include "base/file.h"
#include "base/text.h"

#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what each rank took ---- */

static json_t *row_of(const vp_json_node *report)
{
    vp_json_node oom, error, counters;
    bool         was_oom   = vp_dryrun_report_object(report, "oom", &oom);
    bool         had_error = vp_dryrun_report_object(report, "error", &error);
    int64_t      reserved  = vp_dryrun_report_int(report, "reserved_peak_bytes");
    int64_t      outside   = vp_dryrun_report_object(report, "counters", &counters)
                                 ? vp_dryrun_report_int(&counters, "outside_bytes")
                                 : 0;
    char         shown[200];

    return json_pack(
        "{s:I,s:s,s:I,s:I,s:I,s:I,s:s,s:I,s:O}", "rank",
        (json_int_t)vp_dryrun_report_int(report, "rank"), "verdict",
        was_oom && had_error ? "oom"
        : had_error          ? "failed"
                             : "fits",
        "allocated_peak_bytes", (json_int_t)vp_dryrun_report_int(report, "allocated_peak_bytes"),
        "reserved_peak_bytes", (json_int_t)reserved, "requested_peak_bytes",
        (json_int_t)vp_dryrun_report_int(report, "requested_peak_bytes"), "communication_bytes",
        (json_int_t)outside, "peak_phase",
        vp_text_escape(vp_dryrun_report_text(report, "peak_phase"), shown, sizeof shown),
        "optimizer_steps", (json_int_t)vp_dryrun_report_int(report, "optimizer_steps"), "phases",
        json_object_get(report->value, "phases"));
}

void vp_dryrun_rank_add(json_t *ranks, const vp_json_node *report)
{
    json_t    *row = row_of(report), *other;
    json_int_t rank, reserved;
    size_t     i;

    if (!row)
        return;
    rank     = json_integer_value(json_object_get(row, "rank"));
    reserved = json_integer_value(json_object_get(row, "reserved_peak_bytes"));
    json_array_foreach (ranks, i, other) {
        json_int_t of = json_integer_value(json_object_get(other, "rank"));

        if (of == rank) { /* two processes of one rank: the larger one */
            if (reserved > json_integer_value(json_object_get(other, "reserved_peak_bytes")))
                json_array_set(ranks, i, row);
            json_decref(row);
            return;
        }
        if (of > rank)
            break;
    }
    json_array_insert_new(ranks, i, row);
}

bool vp_dryrun_same_bytes(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"phases", "reserved_peak_bytes", "allocated_peak_bytes",
                                       "verdict"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i])))
            return false;
    return true;
}

json_t *vp_dryrun_alike(const json_t *ranks)
{
    json_t *out = json_array(), *row, *group, *first;
    size_t  i, k;

    json_array_foreach (ranks, i, row) {
        bool found = false;

        json_array_foreach (out, k, group) {
            first = json_array_get(ranks, (size_t)json_integer_value(json_array_get(group, 0)));
            if (vp_dryrun_same_bytes(first, row)) {
                json_array_append_new(group, json_integer((json_int_t)i));
                found = true;
                break;
            }
        }
        if (!found)
            json_array_append_new(out, json_pack("[I]", (json_int_t)i));
    }
    json_array_foreach (out, k, group)
        for (i = 0; i < json_array_size(group); i++) {
            row = json_array_get(ranks, (size_t)json_integer_value(json_array_get(group, i)));
            json_array_set(group, i, json_object_get(row, "rank"));
        }
    return out;
}

/* ---- their collectives against each other ---- */

enum { MAX_FILE_BYTES = 512 << 20, MAX_MEMBERS = 1024 };

/* A line of collectives.<rank>, as null_nccl.c and the probe write it. */
typedef struct collective {
    uint64_t    comm;
    int         n_ranks, comm_rank, type, other; /* root or peer; -1: none */
    long        rank;                            /* of the world            */
    long long   count;
    char        what[16];
    const char *frame;
    int64_t     order; /* among the lines of its file */
} collective;

typedef struct collectives {
    collective *all;
    int64_t     n, room;
    char       *text[MAX_MEMBERS]; /* of the files, which frames point into */
    int         n_texts;
} collectives;

static bool add_line(collectives *c, char *line, long rank, int64_t order)
{
    collective x   = {.rank = rank, .order = order};
    char      *tab = strchr(line, '\t');

    if (!tab || sscanf(line, "%" SCNx64 " %d %d %15s %lld %d %d", &x.comm, &x.n_ranks, &x.comm_rank,
                       x.what, &x.count, &x.type, &x.other) != 7)
        return true; /* cut off in the middle, by a process that was killed */
    x.frame = tab + 1;
    if (c->n == c->room) {
        int64_t     room  = c->room ? 2 * c->room : 4096;
        collective *grown = realloc(c->all, (size_t)room * sizeof *grown);
        if (!grown)
            return false;
        c->all  = grown;
        c->room = room;
    }
    c->all[c->n++] = x;
    return true;
}

/* data: the collectives' from here on. */
static vp_status read_lines(char *data, long rank, collectives *c, vp_err *err)
{
    char     *line, *rest;
    int64_t   order = 0;
    vp_status st    = VP_OK;

    c->text[c->n_texts++] = data;
    for (line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        VP_TRY_ALLOC(err, add_line(c, line, rank, order++));
out:
    return st;
}

static vp_status read_rank(const char *path, long rank, collectives *c, vp_err *err)
{
    char     *data = NULL;
    int64_t   n;
    vp_status st = VP_OK;

    VP_TRY(vp_file_read(path, MAX_FILE_BYTES, &data, &n, err));
    st = read_lines(data, rank, c, err);
out:
    return st;
}

static int by_communicator(const void *a, const void *b)
{
    const collective *x = a, *y = b;

    if (x->comm != y->comm)
        return x->comm < y->comm ? -1 : 1;
    if (x->comm_rank != y->comm_rank)
        return x->comm_rank < y->comm_rank ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static bool is_pair(const collective *x)
{
    return strcmp(x->what, "send") == 0 || strcmp(x->what, "recv") == 0;
}

/* "rank 2: all_reduce of 1024 x float32 at train.py:30 (step)". */
static const char *said(const collective *x, char *buf, size_t size)
{
    static const char *const types[] = {"int8",    "uint8",    "int32",   "uint32",
                                        "int64",   "uint64",   "float16", "float32",
                                        "float64", "bfloat16", "float8",  "float8"};
    char                     frame[300];

    snprintf(buf, size, "rank %ld: %s of %lld x %s at %s", x->rank, x->what, x->count,
             x->type >= 0 && x->type < 12 ? types[x->type] : "?",
             vp_text_escape(x->frame, frame, sizeof frame));
    return buf;
}

/* The next line of one member of a communicator from at on that is a collective of all, or, with peer >= 0, a
 * send (or recv) to (or from) it; NULL: none. */
static const collective *next_of(const collective *at, const collective *end, const char *pair,
                                 int peer)
{
    for (; at < end; at++)
        if (pair ? is_pair(at) && at->other == peer && strcmp(at->what, pair) == 0 : !is_pair(at))
            return at;
    return NULL;
}

static bool differ(const collective *x, const collective *y, bool pair)
{
    return x->count != y->count || x->type != y->type ||
           (!pair && (strcmp(x->what, y->what) != 0 || x->other != y->other));
}

typedef struct member {
    const collective *begin, *end;
} member;

static const char *missing(const member *m, char *buf, size_t size)
{
    snprintf(buf, size, "rank %ld: none", m->begin->rank);
    return buf;
}

/* What one member does, in order, beside what another does; "" where they agree. pair: the first sends to the
 * second. */
static void compare(const member *a, const member *b, bool pair, char *out, size_t size)
{
    const collective *x = a->begin, *y = b->begin;
    int               to = b->begin->comm_rank, from = a->begin->comm_rank;
    char              one[700], other[700];

    for (int64_t n = 1;; n++, x++, y++) {
        x = next_of(x, a->end, pair ? "send" : NULL, to);
        y = next_of(y, b->end, pair ? "recv" : NULL, from);
        if (!x && !y)
            return;
        if (x && y && !differ(x, y, pair))
            continue;
        snprintf(out, size,
                 "the ranks would wait for each other for ever: in %s %lld of a communicator of %d "
                 "ranks, %s; %s",
                 pair ? "message" : "collective", (long long)n, a->begin->n_ranks,
                 x ? said(x, one, sizeof one) : missing(a, one, sizeof one),
                 y ? said(y, other, sizeof other) : missing(b, other, sizeof other));
        return;
    }
}

/* One communicator: its lines lie together, each member's in order. */
static void check_communicator(const collective *begin, const collective *end, char *out,
                               size_t size)
{
    member members[MAX_MEMBERS];
    int    n = 0;

    for (const collective *at = begin; at < end && n < MAX_MEMBERS; n++) {
        members[n].begin = at;
        while (at < end && at->comm_rank == members[n].begin->comm_rank)
            at++;
        members[n].end = at;
    }
    assert(n > 0);
    if (n != begin->n_ranks && n < MAX_MEMBERS) {
        char one[700];
        snprintf(out, size,
                 "the ranks would wait for each other for ever: of a communicator of %d ranks only "
                 "%d did anything, first %s",
                 begin->n_ranks, n, said(begin, one, sizeof one));
    }
    for (int i = 1; i < n && !out[0]; i++)
        compare(&members[0], &members[i], false, out, size);
    for (int i = 0; i < n && !out[0]; i++)
        for (int k = 0; k < n && !out[0]; k++)
            compare(&members[i], &members[k], true, out, size);
}

vp_status vp_dryrun_compare_ranks(const char *folder, char *out, size_t size, vp_err *err)
{
    DIR           *d = opendir(folder);
    struct dirent *entry;
    collectives    c  = {0};
    vp_status      st = VP_OK;
    char           path[PATH_MAX];

    out[0] = '\0';
    while (d && (entry = readdir(d)))
        if (strncmp(entry->d_name, "collectives.", 12) == 0 && c.n_texts < MAX_MEMBERS &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path)
            VP_TRY(read_rank(path, strtol(entry->d_name + 12, NULL, 10), &c, err));
    if (c.n)
        qsort(c.all, (size_t)c.n, sizeof *c.all, by_communicator);
    for (int64_t i = 0, k; i < c.n && !out[0]; i = k) {
        for (k = i; k < c.n && c.all[k].comm == c.all[i].comm;)
            k++;
        check_communicator(c.all + i, c.all + k, out, size);
    }
out:
    for (int i = 0; i < c.n_texts; i++)
        free(c.text[i]);
    free(c.all);
    if (d)
        closedir(d);
    return st;
}

/* Of communicators of all ranks alone; what is known of a rank by itself does not tell the others apart. */
static void keep_worldwide(collectives *c, int64_t world)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c->n; i++)
        if (c->all[i].n_ranks == world && !is_pair(&c->all[i])) {
            c->all[n]             = c->all[i];
            c->all[n].comm        = 0;
            c->all[n++].comm_rank = (int)c->all[i].rank;
        }
    c->n = n;
}

/* Two ranks that were played by themselves; one may have taken part in nothing. */
static void compare_alone(const member *a, long rank_a, const member *b, long rank_b, char *out,
                          size_t size)
{
    bool none_a = a->begin == a->end, none_b = b->begin == b->end;
    char one[700];

    if (!none_a && !none_b)
        compare(a, b, false, out, size);
    else if (none_a != none_b)
        snprintf(out, size,
                 "the ranks would wait for each other for ever: rank %ld takes part in no "
                 "collective of all ranks; %s",
                 none_a ? rank_a : rank_b, said(none_a ? b->begin : a->begin, one, sizeof one));
}

vp_status vp_dryrun_compare_calls(const char *const *calls, const int64_t *ranks, int64_t n,
                                  int64_t world, char *out, size_t size, vp_err *err)
{
    member      members[MAX_MEMBERS];
    collectives c  = {0};
    vp_status   st = VP_OK;

    out[0] = '\0';
    assert(n <= MAX_MEMBERS);
    for (int64_t i = 0; i < n; i++)
        if (calls[i]) {
            char *copy = strdup(calls[i]);

            VP_TRY_ALLOC(err, copy);
            VP_TRY(read_lines(copy, (long)ranks[i], &c, err));
        }
    keep_worldwide(&c, world);
    if (c.n == 0)
        goto out;
    qsort(c.all, (size_t)c.n, sizeof *c.all, by_communicator);
    for (int64_t i = 0, at = 0; i < n && !out[0]; i++) {
        members[i].begin = c.all + at;
        while (at < c.n && c.all[at].rank == ranks[i])
            at++;
        members[i].end = c.all + at;
        if (i)
            compare_alone(&members[0], (long)ranks[0], &members[i], (long)ranks[i], out, size);
    }
out:
    for (int i = 0; i < c.n_texts; i++)
        free(c.text[i]);
    free(c.all);
    return st;
}
