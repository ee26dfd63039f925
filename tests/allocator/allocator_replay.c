/* Traces of an allocator's events (README.md has the format) against trainers/torch's simulation.
 *     allocator_replay FILE|- ...     every counter after every event; says where they first differ
 * Exits 1 when one differs, 2 when a file is not a trace. */
#include "trainers/torch/caching_allocator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 10, DUE = 4096 };

static const char letters[LETTERS + 1] = "ACRQINDFTO";

typedef struct event {
    char    kind; /* a f r d e */
    int64_t id, bytes;
    int     stream;
} event;

typedef struct replay {
    const char           *path;
    int                   line;
    vp_caching_allocator *allocator;
    vp_caching_block     *blocks; /* by id */
    int64_t               n_ids;
    int64_t               want[LETTERS];
    int64_t               segments[DUE], due[DUE]; /* obtained (+) and returned (-) */
    int                   n_segments, n_due;
    int64_t               n_events;
} replay;

static void segment(void *context, int64_t bytes)
{
    replay *r = context;

    if (r->n_segments < DUE)
        r->segments[r->n_segments++] = bytes;
}

static void broken(const replay *r, const char *what)
{
    fprintf(stderr, "%s:%d: %s\n", r->path, r->line, what);
    exit(2);
}

static void counters(const vp_caching_figures *f, int64_t out[LETTERS], int64_t peak[6])
{
    const vp_caching_figure *figures[] = {&f->allocated_bytes,      &f->active_bytes,
                                          &f->reserved_bytes,       &f->requested_bytes,
                                          &f->inactive_split_bytes, &f->n_segments};

    for (int i = 0; i < 6; i++) {
        out[i]  = figures[i]->now;
        peak[i] = figures[i]->peak;
    }
    out[6] = f->n_device_allocs;
    out[7] = f->n_device_frees;
    out[8] = f->n_retries;
    out[9] = f->n_ooms;
}

static void differ(const replay *r, const char *line, const char *what, int64_t want, int64_t have)
{
    printf("%s:%d: %.*s: %s: PyTorch has %lld, the simulation %lld\n", r->path, r->line,
           (int)strcspn(line, "\n"), line, what, (long long)want, (long long)have);
}

static vp_caching_block *block_of(replay *r, int64_t id)
{
    if (id < 0 || id > 1 << 28)
        broken(r, "no such id");
    if (id >= r->n_ids) {
        int64_t n = 2 * id + 64;

        r->blocks = realloc(r->blocks, (size_t)n * sizeof *r->blocks);
        if (!r->blocks)
            broken(r, "out of memory");
        memset(r->blocks + r->n_ids, 0, (size_t)(n - r->n_ids) * sizeof *r->blocks);
        r->n_ids = n;
    }
    return &r->blocks[id];
}

static void play(replay *r, const event *e)
{
    vp_err            err = {0};
    vp_status         st  = VP_OK;
    vp_caching_block *b =
        e->kind == 'a' || e->kind == 'f' || e->kind == 'r' ? block_of(r, e->id) : NULL;

    switch (e->kind) {
    case 'a':
        st = vp_caching_allocator_alloc(r->allocator, e->stream, e->bytes, b, &err);
        if (st == VP_ERR_NO_FIT)
            st = VP_OK;
        break;
    case 'f':
        vp_caching_allocator_free(r->allocator, *b);
        *b = 0;
        break;
    case 'r':
        st = vp_caching_allocator_record_stream(r->allocator, *b, e->stream, &err);
        break;
    case 'd':
        vp_caching_allocator_stream_done(r->allocator, e->stream);
        break;
    case 'e':
        st = vp_caching_allocator_empty_cache(r->allocator, &err);
        break;
    }
    if (st != VP_OK)
        broken(r, err.message);
}

/* An event line; what follows its numbers in *rest. False when the line is none. */
static bool event_read(replay *r, const char *line, event *e, const char **rest)
{
    long long id = 0, bytes = 0;
    int       stream = 0, n = 0;

    if (!strchr("afrde", *line) || (line[1] != ' ' && line[1] != '\n' && line[1]))
        return false;
    if (*line == 'a' && sscanf(line, "a %lld %lld%n %d%n", &id, &bytes, &n, &stream, &n) < 2)
        broken(r, "a ID BYTES [STREAM]");
    if (*line == 'f' && sscanf(line, "f %lld%n", &id, &n) < 1)
        broken(r, "f ID");
    if (*line == 'r' && sscanf(line, "r %lld %d%n", &id, &stream, &n) < 2)
        broken(r, "r ID STREAM");
    if (*line == 'd' && sscanf(line, "d %d%n", &stream, &n) < 1)
        broken(r, "d STREAM");
    *e    = (event){.kind = *line, .id = id, .bytes = bytes, .stream = stream};
    *rest = line + (n ? n : 1);
    return true;
}

/* "= A+512 R+2097152": what changed. Every counter named in fields is compared, changed or not. */
static bool compare(replay *r, const char *line, const char *rest, const char *fields)
{
    int64_t have[LETTERS], peak[6];

    for (const char *p = strchr(rest, '='); p && *p; p++) {
        const char *letter = *p != ' ' ? strchr(letters, *p) : NULL;

        if (letter && (p[1] == '+' || p[1] == '-'))
            r->want[letter - letters] += strtoll(p + 1, (char **)&p, 10);
        if (!*p)
            break;
    }
    counters(vp_caching_allocator_figures(r->allocator), have, peak);
    for (int i = 0; i < LETTERS; i++)
        if (strchr(fields, letters[i]) && have[i] != r->want[i]) {
            differ(r, line, (char[]){letters[i], '\0'}, r->want[i], have[i]);
            return false;
        }
    return true;
}

static bool compare_peaks(replay *r, const char *line)
{
    int64_t have[LETTERS], peak[6];

    counters(vp_caching_allocator_figures(r->allocator), have, peak);
    for (int i = 0; i < 6; i++) {
        const char *p = strchr(line + 4, letters[i]); /* behind "peak" */

        if (p && strtoll(p + 1, NULL, 10) != peak[i]) {
            differ(r, line, (char[]){letters[i], '\0'}, strtoll(p + 1, NULL, 10), peak[i]);
            return false;
        }
    }
    return true;
}

static bool compare_segments(replay *r, const char *line)
{
    if (r->n_segments != r->n_due) {
        differ(r, line, "segments", r->n_due, r->n_segments);
        return false;
    }
    for (int i = 0; i < r->n_due; i++)
        if (r->segments[i] != r->due[i]) {
            differ(r, line, "a segment", r->due[i], r->segments[i]);
            return false;
        }
    r->n_due = 0;
    return true;
}

static void start(replay *r, vp_caching_allocator_opts *opts)
{
    vp_err err = {0};

    opts->on_segment         = segment;
    opts->on_segment_context = r;
    if (vp_caching_allocator_new(opts, &r->allocator, &err) != VP_OK)
        broken(r, err.message);
}

/* One trace from start to end. conf comes before device, or there is neither. */
static bool check(replay *r, FILE *f)
{
    vp_caching_allocator_opts opts = {0};
    vp_err                    err  = {0};
    char                     *line = NULL, fields[LETTERS + 1], conf[512] = "";
    size_t                    cap  = 0;
    bool                      same = true, named = false;
    const char               *rest;
    event                     e;

    strcpy(fields, letters);
    while (same && getline(&line, &cap, f) > 0) {
        long long total, others, allowed, bytes;
        int       lag = 0;

        r->line++;
        if (sscanf(line, "# torch 2.%d", &opts.torch_minor) == 1)
            continue;
        if (sscanf(line, "conf %511[^\n]", conf) == 1 || sscanf(line, "fields %10s", fields) == 1)
            continue;
        if (sscanf(line, "device %lld %lld %lld %d", &total, &others, &allowed, &lag) >= 3) {
            opts.device_total_bytes  = total;
            opts.device_others_bytes = others;
            opts.allowed_bytes       = allowed;
            opts.streams_lag         = lag;
            if (vp_caching_allocator_conf(conf, &opts, &err) != VP_OK)
                broken(r, err.message);
        } else if (strncmp(line, "peak ", 5) == 0) {
            same = compare_peaks(r, line);
        } else if ((*line == 'S' || *line == 's') && sscanf(line + 1, "%lld", &bytes) == 1) {
            if (r->n_due == DUE)
                broken(r, "too many segments at once");
            r->due[r->n_due++] = *line == 'S' ? bytes : -bytes;
            named              = true;
        } else if (event_read(r, line, &e, &rest)) {
            if (!r->allocator)
                start(r, &opts);
            r->n_segments = 0;
            play(r, &e);
            r->n_events++;
            if (strchr(rest, '='))
                same = compare(r, line, rest, fields);
            if (named && e.kind != 'f')
                same = same && compare_segments(r, line);
        } else if (*line != '#' && *line != 'p' && *line != '\n' && strncmp(line, "conf", 4) != 0) {
            broken(r, "not a line of a trace");
        }
    }
    free(line);
    return same;
}

int main(int argc, char **argv)
{
    bool same = true;

    for (int i = 1; i < argc; i++) {
        replay r = {.path = argv[i]};
        FILE  *f = strcmp(argv[i], "-") == 0 ? stdin : fopen(argv[i], "r");

        if (!f)
            broken(&r, "cannot be read");
        if (check(&r, f))
            printf("%s: %lld events, equal after each\n", r.path, (long long)r.n_events);
        else
            same = false;
        if (f != stdin)
            fclose(f);
        vp_caching_allocator_destroy(r.allocator);
        free(r.blocks);
    }
    return same ? 0 : 1;
}
