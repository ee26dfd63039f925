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

void *vp_arena_alloc(vp_arena *arena, size_t n_bytes)
{
    chunk *c = arena->chunks;

    if (arena->failed || n_bytes > SIZE_MAX / 2) {
        arena->failed = true;
        return NULL;
    }
    n_bytes = (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (!c || c->size_bytes - c->used_bytes < n_bytes) {
        size_t size_bytes = n_bytes > CHUNK_BYTES ? n_bytes : CHUNK_BYTES;
        /* of a large one the system has zeroes; of others what is used alone is zeroed, below */
        c = size_bytes > CHUNK_BYTES ? calloc(1, sizeof *c + size_bytes)
                                     : malloc(sizeof *c + size_bytes);
        if (!c) {
            arena->failed = true;
            return NULL;
        }
        c->used_bytes = 0;
        c->size_bytes = size_bytes;
        c->next       = arena->chunks;
        arena->chunks = c;
    }
    void *p = c->data + c->used_bytes;
    if (c->size_bytes == CHUNK_BYTES)
        memset(p, 0, n_bytes);
    c->used_bytes += n_bytes;
    /* what is handed out is aligned and lies in the chunk */
    assert((uintptr_t)p % ALIGN_BYTES == 0 && c->used_bytes <= c->size_bytes);
    return p;
}

void *vp_arena_array(vp_arena *arena, int64_t n, size_t size)
{
    size_t n_bytes;

    assert(size > 0);
    if (n < 0 || __builtin_mul_overflow((size_t)n, size, &n_bytes)) {
        arena->failed = true;
        return NULL;
    }
    return vp_arena_alloc(arena, n_bytes);
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
    char *text = vp_arena_alloc(arena, (size_t)n + 1);
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
    void   *moved   = vp_arena_array(arena, new_cap, size);
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
