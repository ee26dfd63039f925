/* bench/bench_allocator.c: events a second of the simulated caching allocator.
 *     bench_allocator TRACE...        the allocations and frees of traces (tests/allocator/README.md),
 *                                     over and over for a second each
 *     bench_allocator --random N      random sizes with N blocks in use
 * An event is an allocation or a free. Prints the best of five rounds; nothing is compared. */
#include "trainers/torch/caching_allocator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct event {
    int64_t  bytes; /* 0: a free */
    uint32_t id;
} event;

typedef struct program {
    event            *events;
    int64_t           n, cap;
    vp_caching_block *blocks;
    int64_t           n_ids;
} program;

static void *need(void *p)
{
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static void add(program *p, uint32_t id, int64_t bytes)
{
    if (p->n == p->cap) {
        p->cap    = p->cap ? 2 * p->cap : 4096;
        p->events = need(realloc(p->events, (size_t)p->cap * sizeof *p->events));
    }
    p->events[p->n++] = (event){bytes, id};
    if (id >= p->n_ids)
        p->n_ids = id + 1;
}

/* What is still in use at the end is freed, so that the events can be played again. */
static void finish(program *p)
{
    int64_t n    = p->n;
    char   *live = need(calloc((size_t)p->n_ids + 1, 1));

    for (int64_t i = 0; i < n; i++)
        live[p->events[i].id] = p->events[i].bytes > 0;
    for (int64_t i = 0; i < p->n_ids; i++)
        if (live[i])
            add(p, (uint32_t)i, 0);
    free(live);
    p->blocks = need(calloc((size_t)p->n_ids + 1, sizeof *p->blocks));
}

static void read_trace(program *p, const char *path)
{
    FILE     *f = fopen(path, "r");
    char      line[512];
    unsigned  id;
    long long bytes;

    if (!f) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "a %u %lld", &id, &bytes) == 2 && bytes > 0)
            add(p, id, bytes);
        else if (sscanf(line, "f %u", &id) == 1)
            add(p, id, 0);
    }
    fclose(f);
}

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void random_events(program *p, uint32_t n_live)
{
    uint64_t state = 88172645463325252u;

    for (uint32_t i = 0; i < n_live; i++)
        add(p, i, (int64_t)(draw(&state) % ((uint64_t)1 << (10 + draw(&state) % 16))) + 1);
    for (uint32_t i = 0; i < 10 * n_live; i++) {
        uint32_t id = (uint32_t)(draw(&state) % n_live);

        add(p, id, 0);
        add(p, id, (int64_t)(draw(&state) % ((uint64_t)1 << (10 + draw(&state) % 16))) + 1);
    }
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void play(vp_caching_allocator *a, program *p)
{
    vp_err err = {0};

    for (int64_t i = 0; i < p->n; i++) {
        const event *e = &p->events[i];

        if (!e->bytes) {
            vp_caching_allocator_free(a, p->blocks[e->id]);
        } else if (vp_caching_allocator_alloc(a, 0, e->bytes, &p->blocks[e->id], &err) != VP_OK) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
    }
}

static void measure(program *p, const char *name, const char *conf)
{
    vp_caching_allocator_opts opts = {0};
    vp_caching_allocator     *a    = NULL;
    vp_err                    err  = {0};
    double                    best = 0;

    if (vp_caching_allocator_conf(conf, &opts, &err) != VP_OK ||
        vp_caching_allocator_new(&opts, &a, &err) != VP_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    for (int round = 0; round < 5; round++) {
        double  start = now_s();
        int64_t n     = 0;

        do {
            play(a, p);
            n += p->n;
        } while (now_s() - start < 0.2);
        if ((double)n / (now_s() - start) > best)
            best = (double)n / (now_s() - start);
    }
    printf("%-44s %-26s %9lld events %7.1f M/s  reserved %lld MiB\n", name, conf, (long long)p->n,
           1e-6 * best, (long long)(vp_caching_allocator_figures(a)->reserved_bytes.peak >> 20));
    vp_caching_allocator_destroy(a);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        program     p    = {0};
        const char *name = strrchr(argv[i], '/') ? strrchr(argv[i], '/') + 1 : argv[i];
        char        text[32];

        if (strcmp(argv[i], "--random") == 0 && i + 1 < argc) {
            snprintf(text, sizeof text, "random, %s in use", argv[++i]);
            name = text;
            random_events(&p, (uint32_t)strtoul(argv[i], NULL, 10));
        } else {
            read_trace(&p, argv[i]);
        }
        finish(&p);
        measure(&p, name, "");
        measure(&p, name, "expandable_segments:True");
        free(p.events);
        free(p.blocks);
    }
    return 0;
}
