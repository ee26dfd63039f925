/* dryrun/kinds.c: the ranks of a world of which those that are alike are played once. Each is played by itself: the first, the last, and
 * wherever two differ one between them, until no two neighbours do or nobody is left between them. Ranks between two that took the
 * same bytes in every phase, by the same collectives, are taken to be like these. */
#include "dryrun/dryrun_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct played {
    int64_t          rank;
    vp_dryrun_result result;
    vp_dryrun_alone  alone;
} played;

typedef struct world {
    const vp_dryrun_opts *opts;
    played               *ranks; /* in the order they were played */
    int64_t               n;
    bool    ended; /* one did not fit, or failed: it is the last, and nobody else is played */
    vp_err *err;
} world;

/* Rank r, played now unless it was. NULL: see w->ended, or err. */
static played *play(world *w, int64_t r, vp_status *st)
{
    char           list[32];
    vp_dryrun_opts one = *w->opts;
    played        *p;

    for (int64_t i = 0; i < w->n; i++)
        if (w->ranks[i].rank == r)
            return &w->ranks[i];
    snprintf(list, sizeof list, "%lld", (long long)r);
    one.ranks    = list;
    one.of_kinds = true;
    p            = &w->ranks[w->n];
    *p           = (played){.rank = r};
    *st          = vp_dryrun_run_once(&one, 0, &p->result, &p->alone, w->err);
    if (*st != VP_OK)
        return NULL;
    w->n++;
    w->ended = p->result.exit_code != 0;
    return w->ended ? NULL : p;
}

/* Play what is between two ranks, as far as they differ. */
static vp_status between(world *w, int64_t a, int64_t b)
{
    vp_status st = VP_OK;
    played   *x, *y;

    if ((x = play(w, a, &st)) && (y = play(w, b, &st)) && b - a > 1 &&
        !vp_dryrun_same_bytes(x->alone.row, y->alone.row)) {
        int64_t middle = a + (b - a) / 2;

        st = between(w, a, middle);
        if (st == VP_OK && !w->ended)
            st = between(w, middle, b);
    }
    return st;
}

static int by_rank(const void *a, const void *b)
{
    const played *x = a, *y = b;

    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The rank that was played of which r is taken to be: itself, or the nearest below. */
static const played *stands_for(const world *w, int64_t r)
{
    const played *out = &w->ranks[0];

    for (int64_t i = 0; i < w->n && w->ranks[i].rank <= r; i++)
        out = &w->ranks[i];
    return out;
}

static json_t *groups_of(const world *w)
{
    json_t *out = json_array(), *group;
    size_t  k;

    for (int64_t r = 0; r < w->opts->world; r++) {
        const json_t *row   = stands_for(w, r)->alone.row;
        bool          found = false;

        json_array_foreach (out, k, group) {
            int64_t first = json_integer_value(json_array_get(group, 0));

            found = vp_dryrun_same_bytes(stands_for(w, first)->alone.row, row);
            if (found) {
                json_array_append_new(group, json_integer(r));
                break;
            }
        }
        if (!found)
            json_array_append_new(out, json_pack("[I]", (json_int_t)r));
    }
    return out;
}

static const played *worst_of(const world *w)
{
    const played *out = &w->ranks[0];

    for (int64_t i = 1; i < w->n; i++)
        if (json_integer_value(json_object_get(w->ranks[i].alone.row, "reserved_peak_bytes")) >
            json_integer_value(json_object_get(out->alone.row, "reserved_peak_bytes")))
            out = &w->ranks[i];
    return out;
}

/* What was played, and what was taken to be like it. */
static void say(const world *w, const played *of, json_t *doc)
{
    json_t *rows = json_array(), *ranks = json_array(), *row;

    for (int64_t i = 0; i < w->n; i++) {
        if (w->ranks[i].alone.row) {
            row = json_copy(w->ranks[i].alone.row);
            json_object_del(row, "phases");
            json_array_append_new(rows, row);
        }
        json_array_append_new(ranks, json_integer(w->ranks[i].rank));
    }
    json_object_set_new(doc, "ranks", rows);
    json_object_set_new(doc, "played_ranks", ranks);
    json_object_set_new(doc, "worst_rank", json_integer(of->rank));
    if (w->ended) {
        json_object_set_new(doc, "alike", json_pack("[[I]]", (json_int_t)of->rank));
        vp_dryrun_text_add(json_object_get(doc, "assumptions"),
                           "this is rank %lld of %lld; after it no other rank was run",
                           (long long)of->rank, (long long)w->opts->world);
        return;
    }
    json_object_set_new(doc, "alike", groups_of(w));
    if (w->n < w->opts->world)
        vp_dryrun_text_add(
            json_object_get(doc, "assumptions"),
            "%lld of %lld ranks were run, each by itself; the others lie between two that took the "
            "same bytes in every phase, and are taken to be like these",
            (long long)w->n, (long long)w->opts->world);
}

/* The collectives of all ranks together, of those that were played. */
static vp_status compare(const world *w, json_t *doc, int *exit_code)
{
    char        why[1700];
    const char *calls[VP_DRYRUN_MAX_KINDS];
    int64_t     ranks[VP_DRYRUN_MAX_KINDS];
    vp_status   st = VP_OK;

    for (int64_t i = 0; i < w->n; i++) {
        calls[i] = w->ranks[i].alone.calls;
        ranks[i] = w->ranks[i].rank;
    }
    VP_TRY(vp_dryrun_compare_calls(calls, ranks, w->n, w->opts->world, why, sizeof why, w->err));
    if (why[0]) {
        json_object_set_new(doc, "verdict", json_string("failed"));
        json_object_set_new(doc, "reason", json_string(why));
        *exit_code = vp_status_exit_code(VP_ERR_INPUT);
    }
out:
    return st;
}

vp_status vp_dryrun_run_kinds(const vp_dryrun_opts *opts, vp_dryrun_result *result, vp_err *err)
{
    world         w  = {.opts = opts, .err = err};
    vp_status     st = VP_OK;
    const played *of;

    assert(opts->world >= 1 && opts->world <= VP_DRYRUN_MAX_KINDS);
    w.ranks = calloc((size_t)opts->world, sizeof *w.ranks);
    VP_TRY_ALLOC(err, w.ranks);
    VP_TRY(between(&w, 0, opts->world - 1));
    of                = w.ended ? &w.ranks[w.n - 1] : NULL;
    result->exit_code = of ? of->result.exit_code : 0;
    if (!of) {
        qsort(w.ranks, (size_t)w.n, sizeof *w.ranks, by_rank);
        of = worst_of(&w);
    }
    result->document = json_incref(of->result.document);
    say(&w, of, result->document);
    if (!w.ended)
        VP_TRY(compare(&w, result->document, &result->exit_code));
out:
    for (int64_t i = 0; i < w.n; i++) {
        json_decref(w.ranks[i].result.document);
        json_decref(w.ranks[i].alone.row);
        free(w.ranks[i].alone.calls);
    }
    free(w.ranks);
    if (st != VP_OK && result->document) {
        json_decref(result->document);
        result->document = NULL;
    }
    return st;
}
