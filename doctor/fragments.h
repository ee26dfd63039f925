/* doctor/fragments.h: many short texts looked for at once, in one pass over a long one, whatever their
 * case (Aho and Corasick 1975).
 *     vp_fragments *f = vp_fragments_new(arena, texts, n);
 *     vp_fragments_find(f, line, n_bytes, found, &n_found);      found[i]: an index of texts
 * What is looked for is in lower case. */
#ifndef VP_DOCTOR_FRAGMENTS_H
#define VP_DOCTOR_FRAGMENTS_H

#include "base/arena.h"

#include <stddef.h>
#include <stdint.h>

enum { VP_MAX_FOUND = 64 };

typedef struct vp_fragments vp_fragments;

/* NULL: no memory. texts is borrowed, none of them empty. */
vp_fragments *vp_fragments_new(vp_arena *arena, const char *const *texts, int n);

/* The first VP_MAX_FOUND different ones that stand in text; returns how many. */
int vp_fragments_find(const vp_fragments *f, const char *text, size_t n_bytes,
                      int found[VP_MAX_FOUND]);

#endif
