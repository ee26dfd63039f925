#include "trainers/hf/hf_shelf.h"

#include <stdlib.h>
#include <string.h>

typedef struct place {
    struct place *next;
    vp_recording *recording;
    char          path[];
} place;

struct vp_hf_shelf {
    place *places;
};

vp_hf_shelf *vp_hf_shelf_new(void)
{
    return calloc(1, sizeof(vp_hf_shelf));
}

void vp_hf_shelf_free(vp_hf_shelf *shelf)
{
    for (place *p = shelf ? shelf->places : NULL, *next; p; p = next) {
        next = p->next;
        vp_recording_free(p->recording);
        free(p);
    }
    free(shelf);
}

vp_status vp_hf_shelf_open(vp_hf_shelf *shelf, const char *path, vp_recording **out, vp_err *err)
{
    size_t    n  = strlen(path) + 1;
    place    *p  = shelf->places;
    vp_status st = VP_OK;

    *out = NULL;
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
    return st;
}
