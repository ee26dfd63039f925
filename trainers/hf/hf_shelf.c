#include "trainers/hf/hf_shelf.h"

#include "base/file.h"
#include "base/hash.h"

#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    struct place *next;
    vp_recording *recording;
    char          path[];
} place;

typedef struct sought {
    struct sought *next;
    char          *path; /* NULL: not there */
    char           name[];
} sought;

/* Its key is behind its bytes. */
typedef struct note {
    struct note *next;
    const char  *key;
    size_t       key_bytes;
    _Alignas(max_align_t) char bytes[];
} note;

enum { MOST_LOADED = 64, NOTE_CHAINS = 64 };

typedef struct loaded {
    vp_recorded_loaded *model;
    char               *alloc_conf; /* or NULL */
    int64_t             limit_bytes;
} loaded;

struct vp_hf_shelf {
    pthread_mutex_t lock;
    place          *places;
    sought         *sought;
    loaded          loaded[MOST_LOADED];
    int             n_loaded;
    note           *notes[NOTE_CHAINS];
};

vp_hf_shelf *vp_hf_shelf_new(void)
{
    vp_hf_shelf *shelf = calloc(1, sizeof *shelf);

    if (shelf)
        pthread_mutex_init(&shelf->lock, NULL); /* of default attributes: it cannot fail */
    return shelf;
}

void vp_hf_shelf_free(vp_hf_shelf *shelf)
{
    if (!shelf)
        return;
    for (place *p = shelf->places, *next; p; p = next) {
        next = p->next;
        vp_recording_free(p->recording);
        free(p);
    }
    for (sought *f = shelf->sought, *next; f; f = next) {
        next = f->next;
        free(f->path);
        free(f);
    }
    for (int i = 0; i < NOTE_CHAINS; i++)
        for (note *n = shelf->notes[i], *next; n; n = next) {
            next = n->next;
            free(n);
        }
    for (int i = 0; i < shelf->n_loaded; i++) {
        vp_recorded_loaded_free(shelf->loaded[i].model);
        free(shelf->loaded[i].alloc_conf);
    }
    pthread_mutex_destroy(&shelf->lock);
    free(shelf);
}

/* NULL: out of memory. */
static sought *seek(const char *name)
{
    size_t  n = strlen(name) + 1;
    char    path[PATH_MAX];
    vp_err  why = {0};
    sought *f   = calloc(1, sizeof *f + n);

    if (!f)
        return NULL;
    memcpy(f->name, name, n);
    if (vp_file_find_program(name, path, sizeof path, &why) == VP_OK && !(f->path = strdup(path))) {
        free(f);
        return NULL;
    }
    return f;
}

bool vp_hf_shelf_find(vp_hf_shelf *shelf, const char *name, char *path, size_t path_size)
{
    vp_err  why      = {0};
    bool    is_there = false;
    sought *f;

    pthread_mutex_lock(&shelf->lock);
    f = shelf->sought;
    while (f && strcmp(f->name, name) != 0)
        f = f->next;
    if (!f && (f = seek(name))) {
        f->next       = shelf->sought;
        shelf->sought = f;
    }
    if (!f)
        is_there = vp_file_find_program(name, path, path_size, &why) == VP_OK;
    else if (f->path)
        is_there = snprintf(path, path_size, "%s", f->path) < (int)path_size;
    pthread_mutex_unlock(&shelf->lock);
    return is_there;
}

vp_status vp_hf_shelf_open(vp_hf_shelf *shelf, const char *path, vp_recording **out, vp_err *err)
{
    size_t    n = strlen(path) + 1;
    place    *p;
    vp_status st = VP_OK;

    *out = NULL;
    pthread_mutex_lock(&shelf->lock);
    p = shelf->places;
    while (p && strcmp(p->path, path) != 0)
        p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p + n);
        VP_TRY_ALLOC(err, p);
        memcpy(p->path, path, n);
        st = vp_recording_open(path, &p->recording, err);
        if (st != VP_OK) {
            free(p);
            goto out;
        }
        p->next       = shelf->places;
        shelf->places = p;
    }
    *out = p->recording;
out:
    pthread_mutex_unlock(&shelf->lock);
    return st;
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Under the lock. */
static const loaded *loaded_of(const vp_hf_shelf *shelf, const char *alloc_conf,
                               int64_t limit_bytes, const vp_recorded *step,
                               const vp_world_opts *opts)
{
    for (int i = 0; i < shelf->n_loaded; i++) {
        const loaded *l = &shelf->loaded[i];
        if (l->limit_bytes == limit_bytes && is_same_text(l->alloc_conf, alloc_conf) &&
            vp_recorded_loaded_suits(l->model, step, opts))
            return l;
    }
    return NULL;
}

const vp_recorded_loaded *vp_hf_shelf_loaded(vp_hf_shelf *shelf, const char *alloc_conf,
                                             int64_t limit_bytes, const vp_recorded *step,
                                             const vp_world_opts *opts)
{
    const loaded *l;

    pthread_mutex_lock(&shelf->lock);
    l = loaded_of(shelf, alloc_conf, limit_bytes, step, opts);
    pthread_mutex_unlock(&shelf->lock);
    return l ? l->model : NULL;
}

vp_status vp_hf_shelf_keep(vp_hf_shelf *shelf, const char *alloc_conf, int64_t limit_bytes,
                           const vp_recorded *step, const vp_world *world,
                           const vp_world_opts *opts, vp_err *err)
{
    loaded    l  = {.limit_bytes = limit_bytes};
    vp_status st = VP_OK;

    VP_TRY(vp_recorded_loaded_new(step, world, opts, &l.model, err));
    if (!l.model)
        goto out;
    l.alloc_conf = alloc_conf ? strdup(alloc_conf) : NULL;
    VP_TRY_ALLOC(err, l.alloc_conf || !alloc_conf);
    pthread_mutex_lock(&shelf->lock);
    if (shelf->n_loaded < MOST_LOADED) {
        shelf->loaded[shelf->n_loaded++] = l;
        l                                = (loaded){0};
    }
    pthread_mutex_unlock(&shelf->lock);
out:
    vp_recorded_loaded_free(l.model);
    free(l.alloc_conf);
    return st;
}

/* ---- notes ---- */

/* Under the lock. NULL: there is none. */
static const note *note_of(const vp_hf_shelf *shelf, const char *key, size_t key_bytes)
{
    const note *n = shelf->notes[vp_hash(key, key_bytes) % NOTE_CHAINS];

    while (n && (n->key_bytes != key_bytes || memcmp(n->key, key, key_bytes) != 0))
        n = n->next;
    return n;
}

const void *vp_hf_shelf_noted(vp_hf_shelf *shelf, const char *key, size_t key_bytes)
{
    const note *n;

    pthread_mutex_lock(&shelf->lock);
    n = note_of(shelf, key, key_bytes);
    pthread_mutex_unlock(&shelf->lock);
    return n ? n->bytes : NULL;
}

void vp_hf_shelf_note(vp_hf_shelf *shelf, const char *key, size_t key_bytes, const void *bytes,
                      size_t n_bytes)
{
    note **chain = &shelf->notes[vp_hash(key, key_bytes) % NOTE_CHAINS];
    note  *n     = malloc(sizeof *n + n_bytes + key_bytes);

    if (!n)
        return;
    if (n_bytes)
        memcpy(n->bytes, bytes, n_bytes);
    n->key       = memcpy(n->bytes + n_bytes, key, key_bytes);
    n->key_bytes = key_bytes;
    pthread_mutex_lock(&shelf->lock);
    if (!note_of(shelf, key, key_bytes)) {
        n->next = *chain;
        *chain  = n;
        n       = NULL;
    }
    pthread_mutex_unlock(&shelf->lock);
    free(n);
}
