/* trainers/files/python_given.c: what a script gave each name, the last first: a script of a hundred thousand lines asks for names as
 * often. Values join the document's root at its end, and go from there. */
#include "trainers/files/python_reader.h"

#include "base/hash.h"

#include <ctype.h>
#include <string.h>

typedef struct vp_python_given {
    vp_python_name **slots; /* by the hash of their names, of each the last */
    int64_t          n_slots, n_names;
    vp_python_name  *newest; /* of all of them */
} vp_python_given;

static vp_python_name **slot_of(const vp_python_given *g, const char *key, size_t n)
{
    for (int64_t at = (int64_t)(vp_hash(key, n) & (uint64_t)(g->n_slots - 1));;
         at         = (at + 1) & (g->n_slots - 1)) {
        const vp_python_name *x = g->slots[at];
        if (!x || (strncmp(x->key, key, n) == 0 && !x->key[n]))
            return &g->slots[at];
    }
}

static bool grow(vp_arena *arena, vp_python_given *g)
{
    vp_python_given larger = *g;

    larger.n_slots = g->n_slots ? 4 * g->n_slots : 256;
    larger.slots   = vp_arena_array(arena, larger.n_slots, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    memset(larger.slots, 0, (size_t)larger.n_slots * sizeof *larger.slots);
    for (int64_t i = 0; i < g->n_slots; i++)
        if (g->slots[i])
            *slot_of(&larger, g->slots[i]->key, strlen(g->slots[i]->key)) = g->slots[i];
    *g = larger;
    return true;
}

static bool take(vp_arena *arena, vp_python_given *g, vp_value *v)
{
    vp_python_name *x = vp_arena_alloc(arena, sizeof *x);

    if (!x || (2 * g->n_names >= g->n_slots && !grow(arena, g)))
        return false;
    vp_python_name **slot = slot_of(g, v->key, strlen(v->key));
    g->n_names += *slot == NULL;
    *x = (vp_python_name){
        .key = v->key, .v = v, .before = *slot && (*slot)->v ? *slot : NULL, .older = g->newest};
    *slot     = x;
    g->newest = x;
    return true;
}

const vp_python_name *vp_python_name_last(vp_python_reader *r, const char *name, size_t n)
{
    vp_python_given *g = r->given;

    if (!g) {
        g = r->given = vp_arena_alloc(r->doc->arena, sizeof *g);
        if (!g)
            return NULL;
        *g = (vp_python_given){.n_slots = 0};
    }
    for (vp_value *v = g->newest ? g->newest->v->next : r->doc->root->first; v; v = v->next)
        if (!take(r->doc->arena, g, v))
            return NULL; /* the arena stays failed: the next value that is added says so */
    const vp_python_name *x = g->n_slots ? *slot_of(g, name, n) : NULL;
    return x && x->v ? x : NULL;
}

void vp_python_drop_last(vp_python_reader *r, const vp_value *v)
{
    vp_python_given *g = r->given;

    if (g && g->newest && g->newest->v == v) {
        vp_python_name **slot = slot_of(g, v->key, strlen(v->key));
        vp_python_name  *gone = *slot;
        g->newest             = gone->older;
        if (gone->before)
            *slot = gone->before;
        else
            gone->v = NULL; /* its place stays taken */
    }
    vp_value_drop_last(r->doc->root, v);
}

/* A member is taken out; where that is not certain, nobody knows it any more. */
static void take_out(vp_value *map, const char *key, bool certain)
{
    vp_value *before = NULL;

    for (vp_value *m = map->first; m; m = m->next) {
        if (strcmp(m->key, key) == 0 && !certain) {
            vp_python_be_unread(m);
            m->is_offered = true; /* it may be what the class lacks */
        } else if (strcmp(m->key, key) == 0) {
            if (before)
                before->next = m->next;
            else
                map->first = m->next;
            map->last = map->last == m ? before : map->last;
            map->n_children--;
            map->index = NULL;
            continue;
        }
        before = m;
    }
}

vp_status vp_python_note_taken(vp_python_reader *r, const char *from)
{
    static const char *const ways[] = {".pop(", "["};

    for (const char *p = from; p < r->at; p++) {
        bool   deletes = *p == '[' && r->at - from > 4 && memcmp(from, "del ", 4) == 0;
        size_t n       = strlen(ways[deletes]);
        if (!deletes && ((size_t)(r->at - p) <= n || memcmp(p, ways[0], n) != 0))
            continue;
        const char *name = p, *key = p + n, *end;
        while (name > from && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
            name--;
        if (name == p || (name > from && name[-1] == '.') || key >= r->at || !strchr("\"'", *key) ||
            !(end = memchr(key + 1, *key, (size_t)(r->at - key - 1))))
            continue;
        const char *own  = vp_arena_printf(r->doc->arena, "%.*s", (int)(p - name), name);
        const char *text = vp_arena_printf(r->doc->arena, "%.*s", (int)(end - key - 1), key + 1);
        if (!own || !text)
            return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
        vp_value *map = vp_python_value_of(r, own, NULL);
        if (map && map->kind == VP_VALUE_MAP && !map->call)
            take_out(map, text, !r->conditional || r->indent + 1 <= map->column);
    }
    return VP_OK;
}
