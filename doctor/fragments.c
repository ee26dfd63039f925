#include "doctor/fragments.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

enum { OTHER = 0, MAX_LETTERS = 64 }; /* letter 0: what stands in no fragment */

struct vp_fragments {
    int            n_letters, n_nodes, n_texts;
    unsigned char  letter[256];
    int           *next; /* [node * n_letters + letter]: with fall-backs worked in */
    int           *ends; /* a text that ends at this node, -1; those of equal spelling: chained */
    int           *ends_of; /* the nearest node on the way back where one ends, 0: none */
    int           *same;    /* [text]: another of the same spelling, -1 */
    unsigned char *hits;    /* [node]: something ends here or on the way back */
};

static unsigned char lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

static void name_letters(vp_fragments *f, const char *const *texts, int n)
{
    f->n_letters = 1;
    for (int i = 0; i < n; i++)
        for (const unsigned char *p = (const unsigned char *)texts[i]; *p; p++)
            if (!f->letter[*p]) {
                assert(f->n_letters < MAX_LETTERS && lower(*p) == *p);
                f->letter[*p] = (unsigned char)f->n_letters++;
            }
    for (int c = 'A'; c <= 'Z'; c++)
        f->letter[c] = f->letter[lower((unsigned char)c)];
}

static void add(vp_fragments *f, const char *text, int idx)
{
    int node = 0;

    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        int *to = &f->next[node * f->n_letters + f->letter[*p]];
        if (!*to)
            *to = f->n_nodes++;
        node = *to;
    }
    f->same[idx]  = f->ends[node];
    f->ends[node] = idx;
}

/* Breadth first: where a text does not go on as a fragment does, it may be inside a shorter one. */
static bool add_fall_backs(vp_fragments *f, vp_arena *arena)
{
    int *queue = vp_arena_array(arena, f->n_nodes, sizeof *queue);
    int *back  = vp_arena_array(arena, f->n_nodes, sizeof *back);
    int  n     = 0;

    if (!queue || !back)
        return false;
    for (int c = 0; c < f->n_letters; c++)
        if (f->next[c])
            queue[n++] = f->next[c];
    for (int i = 0; i < n; i++) {
        int node         = queue[i];
        f->ends_of[node] = f->ends[back[node]] >= 0 ? back[node] : f->ends_of[back[node]];
        f->hits[node]    = f->ends[node] >= 0 || f->ends_of[node];
        for (int c = 0; c < f->n_letters; c++) {
            int *to   = &f->next[node * f->n_letters + c],
                other = f->next[back[node] * f->n_letters + c];
            if (*to) {
                back[*to]  = other;
                queue[n++] = *to;
            } else {
                *to = other;
            }
        }
    }
    return true;
}

vp_fragments *vp_fragments_new(vp_arena *arena, const char *const *texts, int n)
{
    vp_fragments *f       = vp_arena_alloc(arena, sizeof *f);
    int64_t       n_nodes = 1;

    if (!f)
        return NULL;
    for (int i = 0; i < n; i++)
        n_nodes += (int64_t)strlen(texts[i]);
    name_letters(f, texts, n);
    f->n_nodes = 1;
    f->n_texts = n;
    f->next    = vp_arena_array(arena, n_nodes * f->n_letters, sizeof *f->next);
    f->ends    = vp_arena_array(arena, n_nodes, sizeof *f->ends);
    f->ends_of = vp_arena_array(arena, n_nodes, sizeof *f->ends_of);
    f->hits    = vp_arena_array(arena, n_nodes, sizeof *f->hits);
    f->same    = vp_arena_array(arena, n, sizeof *f->same);
    if (vp_arena_failed(arena))
        return NULL;
    memset(f->ends, -1, (size_t)n_nodes * sizeof *f->ends);
    for (int i = 0; i < n; i++)
        add(f, texts[i], i);
    return add_fall_backs(f, arena) ? f : NULL;
}

static int keep(int found[VP_MAX_FOUND], int n, int idx)
{
    for (int i = 0; i < n; i++)
        if (found[i] == idx)
            return n;
    if (n < VP_MAX_FOUND)
        found[n++] = idx;
    return n;
}

int vp_fragments_find(const vp_fragments *f, const char *text, size_t n_bytes,
                      int found[VP_MAX_FOUND])
{
    const int *next = f->next;
    int        node = 0, n = 0, n_letters = f->n_letters;

    for (size_t i = 0; i < n_bytes; i++) {
        node = next[node * n_letters + f->letter[(unsigned char)text[i]]];
        if (!f->hits[node])
            continue;
        for (int at = node; at; at = f->ends_of[at])
            for (int t = f->ends[at]; t >= 0; t = f->same[t])
                n = keep(found, n, t);
    }
    return n;
}
