#include "trainers/hf/hf_shelf.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    struct place *next;
    vp_recording *recording;
    char          path[];
} place;

struct vp_hf_shelf {
    pthread_mutex_t lock;
    place          *places;
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
    pthread_mutex_destroy(&shelf->lock);
    free(shelf);
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
