#include "trainers/hf/hf_shelf.h"

#include "base/file.h"

#include <limits.h>
#include <pthread.h>
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

struct vp_hf_shelf {
    pthread_mutex_t lock;
    place          *places;
    sought         *sought;
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
