#include "base/arena.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGN_BYTES = 16, SHORT_TEXT_BYTES = 128 };

typedef struct chunk {
    struct chunk *next;
    size_t        used_bytes, size_bytes;
    _Alignas(ALIGN_BYTES) unsigned char data[];
} chunk;

struct vp_arena {
    chunk *chunks;
    bool   failed;
};

vp_arena *vp_arena_new(void)
{
    return calloc(1, sizeof(vp_arena));
}

void vp_arena_free(vp_arena *arena)
{
    if (!arena)
        return;
    for (chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}

/* A chunk with room for so many bytes; one allocation's alone where it is large, and zeroed where that is asked for:
 * of fresh memory the system has zeroes. NULL: out of memory. */
static chunk *chunk_for(vp_arena *arena, size_t n_bytes, bool zeroed)
{
    const bool   large      = n_bytes > CHUNK_BYTES;
    const size_t size_bytes = large ? n_bytes : CHUNK_BYTES;
    chunk       *first      = arena->chunks, *c;

    if (first && first->size_bytes - first->used_bytes >= n_bytes)
        return first;
    c = large && zeroed ? calloc(1, sizeof *c + size_bytes) : malloc(sizeof *c + size_bytes);
    if (!c)
        return NULL;
    c->used_bytes = 0;
    c->size_bytes = size_bytes;
    if (large && first) { /* which has room for others yet */
        c->next     = first->next;
        first->next = c;
    } else {
        c->next       = first;
        arena->chunks = c;
    }
    return c;
}

static void *take(vp_arena *arena, size_t n_bytes, bool zeroed)
{
    chunk *c = NULL;
    void  *p;

    if (!arena->failed && n_bytes <= SIZE_MAX / 2) {
        n_bytes = (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
        c       = chunk_for(arena, n_bytes, zeroed);
    }
    if (!c) {
        arena->failed = true;
        return NULL;
    }
    p = c->data + c->used_bytes;
    if (zeroed && c->size_bytes == CHUNK_BYTES)
        memset(p, 0, n_bytes);
    c->used_bytes += n_bytes;
    /* what is handed out is aligned and lies in the chunk */
    assert((uintptr_t)p % ALIGN_BYTES == 0 && c->used_bytes <= c->size_bytes);
    return p;
}

void *vp_arena_alloc(vp_arena *arena, size_t n_bytes)
{
    return take(arena, n_bytes, true);
}

static void *take_array(vp_arena *arena, int64_t n, size_t size, bool zeroed)
{
    size_t n_bytes;

    assert(size > 0);
    if (n < 0 || __builtin_mul_overflow((size_t)n, size, &n_bytes)) {
        arena->failed = true;
        return NULL;
    }
    return take(arena, n_bytes, zeroed);
}

void *vp_arena_array(vp_arena *arena, int64_t n, size_t size)
{
    return take_array(arena, n, size, true);
}

void *vp_arena_room(vp_arena *arena, int64_t n, size_t size)
{
    return take_array(arena, n, size, false);
}

char *vp_arena_strdup(vp_arena *arena, const char *text)
{
    if (!text)
        return NULL;
    size_t n    = strlen(text) + 1;
    char  *copy = vp_arena_alloc(arena, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

char *vp_arena_printf(vp_arena *arena, const char *fmt, ...)
{
    char    shorter[SHORT_TEXT_BYTES]; /* most are: then they are formatted once */
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(shorter, sizeof shorter, fmt, ap);
    va_end(ap);
    assert(n >= 0); /* the format is ours; vsnprintf() refuses only one it cannot read */
    char *text = take(arena, (size_t)n + 1, false);
    if (text && (size_t)n < sizeof shorter) {
        memcpy(text, shorter, (size_t)n + 1);
    } else if (text) {
        va_start(ap, fmt);
        vsnprintf(text, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return text;
}

bool vp_arena_grow(vp_arena *arena, void **items, int64_t n, int64_t *cap, size_t size)
{
    assert(n >= 0 && n <= *cap); /* never more in use than there is room */
    if (n < *cap)
        return true;
    int64_t new_cap = *cap ? *cap * 2 : 16;
    void   *moved   = vp_arena_room(arena, new_cap, size);
    if (!moved)
        return false;
    if (n)
        memcpy(moved, *items, (size_t)n * size);
    *items = moved;
    *cap   = new_cap;
    return true;
}

bool vp_arena_failed(const vp_arena *arena)
{
    return arena->failed;
}
