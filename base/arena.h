/* base/arena.h: host memory with one lifetime, freed in one piece.
 *     vp_arena *arena = vp_arena_new();
 *     vp_step *steps = vp_arena_alloc(arena, n * sizeof *steps);
 *     vp_arena_free(arena);
 *
 * A function whose first argument is `vp_arena *arena` returns memory that lives there. Memory
 * is zeroed, but where it is said not to be, and aligned to 16 bytes. When the host has none left the call returns NULL and so
 * does every later one, so a builder may test once at its end with vp_arena_failed(). Not
 * thread-safe. */
#ifndef VP_BASE_ARENA_H
#define VP_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vp_arena vp_arena;

/* NULL when the host is out of memory. Free with vp_arena_free(), which takes NULL. */
vp_arena *vp_arena_new(void);
void      vp_arena_free(vp_arena *arena);

/* Zeroed memory of n_bytes (0 gives a valid pointer to nothing). */
void *vp_arena_alloc(vp_arena *arena, size_t n_bytes);

/* n elements of size bytes each, checked for overflow. */
void *vp_arena_array(vp_arena *arena, int64_t n, size_t size);

/* The same, not zeroed: for what is written whole before it is read. */
void *vp_arena_room(vp_arena *arena, int64_t n, size_t size);

/* A copy of text; NULL text gives NULL. */
char *vp_arena_strdup(vp_arena *arena, const char *text);

/* Formatted text. */
char *vp_arena_printf(vp_arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Grow an array held in an arena: makes room for one more element at *items (n in use, *cap there),
 * copying when it moves. What is added is not zeroed. Returns false when memory ran out. */
bool vp_arena_grow(vp_arena *arena, void **items, int64_t n, int64_t *cap, size_t size);

bool vp_arena_failed(const vp_arena *arena);

#endif
