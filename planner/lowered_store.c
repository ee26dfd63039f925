#include "planner/lowered_store.h"

#include <assert.h>
#include <stdlib.h>

/* Programs kept: some hundred kilobytes each at most. */
enum { MOST_KEPT = 128 };

typedef struct entry {
    vp_lowered_key key;
    vp_lowered     lowered;
    bool           unlike;
} entry;

struct vp_lowered_store {
    vp_arena *arena;
    entry     kept[MOST_KEPT];
    int       n;
};

vp_lowered_store *vp_lowered_store_new(void)
{
    vp_lowered_store *s = calloc(1, sizeof *s);

    if (s && !(s->arena = vp_arena_new())) {
        free(s);
        s = NULL;
    }
    return s;
}

void vp_lowered_store_free(vp_lowered_store *s)
{
    if (s)
        vp_arena_free(s->arena);
    free(s);
}

static bool is_key(const vp_lowered_key *a, const vp_lowered_key *b)
{
    return a->template_idx == b->template_idx && a->micro_batch == b->micro_batch &&
           a->last_batch == b->last_batch && a->seq == b->seq && a->chunk_rows == b->chunk_rows &&
           a->recompute == b->recompute && a->offload == b->offload && a->semantics == b->semantics;
}

const vp_lowered *vp_lowered_store_find(const vp_lowered_store *s, const vp_lowered_key *key,
                                        bool *unlike)
{
    for (int i = s ? s->n - 1 : -1; i >= 0; i--) /* the latest are asked for most */
        if (is_key(&s->kept[i].key, key)) {
            *unlike = s->kept[i].unlike;
            return &s->kept[i].lowered;
        }
    return NULL;
}

vp_arena *vp_lowered_store_arena(vp_lowered_store *s)
{
    return s && s->n < MOST_KEPT ? s->arena : NULL;
}

bool vp_lowered_store_put(vp_lowered_store *s, const vp_lowered_key *key, const vp_lowered *lowered,
                          bool unlike)
{
    assert(s->n < MOST_KEPT);
    if (vp_arena_failed(s->arena))
        return false;
    s->kept[s->n++] = (entry){.key = *key, .lowered = *lowered, .unlike = unlike};
    return true;
}
