/* trainers/files/edit_option.c: members of a map that an option of a command has as JSON, in one word. */
#include "trainers/files/edit_internal.h"
#include "trainers/files/emit.h"

#include <stdio.h>
#include <string.h>

static const vp_edit *edit_at(const vp_editor *e, const char *path)
{
    for (int64_t i = 0; i < e->n_edits; i++)
        if (e->edits[i].file == e->file && strcmp(e->edits[i].path, path) == 0)
            return &e->edits[i];
    return NULL;
}

/* The members that stay as they are; the others come with the edits. */
static vp_status copy_members(vp_editor *e, vp_document *doc, vp_value *to, const vp_value *from,
                              const char *path)
{
    char      at[256];
    vp_status st = VP_OK;

    for (const vp_value *m = from ? from->first : NULL; m; m = m->next) {
        snprintf(at, sizeof at, "%s.%s", path, m->key ? m->key : "");
        if (edit_at(e, at))
            continue;
        vp_value *child = vp_value_add(doc, to, m->key);
        VP_TRY_ALLOC(e->err, child);
        vp_value *next = child->next;
        *child         = *m;
        child->next    = next;
        child->first = child->last = NULL;
        child->index               = NULL;
        child->n_children          = 0;
        VP_TRY(copy_members(e, doc, child, m, at));
    }
out:
    return st;
}

/* "--name JSON", with all that is meant below this option. */
static vp_status write_option(vp_editor *e, const char *name, const vp_value *has, vp_text *out)
{
    vp_document *doc    = vp_document_new(e->arena, e->file->name, VP_FORMAT_FLAGS);
    size_t       length = strlen(name);
    vp_value    *map    = doc ? vp_value_add(doc, doc->root, name) : NULL;
    vp_status    st     = VP_OK;

    VP_TRY_ALLOC(e->err, map);
    map->kind = VP_VALUE_MAP;
    VP_TRY(copy_members(e, doc, map, has, name));
    for (int64_t i = 0; i < e->n_edits; i++) {
        const vp_edit *x = &e->edits[i];
        if (x->file != e->file || !x->to || strncmp(x->path, name, length) != 0 ||
            x->path[length] != '.')
            continue;
        vp_value *v = vp_value_make(doc, x->path);
        VP_TRY_ALLOC(e->err, v && vp_value_set(doc, v, x->key, x->to));
    }
    vp_document_write(doc, e->file->dialect, NULL, out);
    VP_TRY_ALLOC(e->err, !out->failed);
out:
    return st;
}

vp_status vp_edit_option(vp_editor *e, const vp_edit *x)
{
    const char     *name = vp_arena_printf(e->arena, "%.*s", (int)strcspn(x->path, "."), x->path);
    const vp_value *has, *first = e->file->doc->root->first;
    size_t          at, stop, end;
    vp_text         text = {0};
    vp_status       st   = VP_OK;

    VP_TRY_ALLOC(e->err, name);
    for (const vp_edit *y = e->edits; y < x; y++)
        if (y->file == e->file && strncmp(y->path, name, strlen(name)) == 0 &&
            y->path[strlen(name)] == '.')
            goto out; /* with the first of them */
    has = vp_value_at(e->file->doc->root, name);
    at = stop = vp_edit_place(e, has ? has : first ? first : e->file->doc->root);
    end       = vp_edit_line_end(e, at);
    if ((has &&
         (has->kind != VP_VALUE_MAP || !vp_edit_skip_key(e, name, &stop, end) ||
          !strchr("'\"{", e->bytes[stop]) || !vp_edit_value_end(e, stop, end, false, &stop))) ||
        (!has && !first))
        VP_TRY(vp_edit_by_hand(e, x->at ? x->at->line : 0, x->path,
                               "it stands inside an option's value"));
    VP_TRY(write_option(e, name, has, &text));
    text.data[text.n_bytes - 1] = has ? '\0' : ' '; /* its line's end */
    VP_TRY(vp_edit_put(e, at, stop - at, vp_arena_strdup(e->arena, text.data)));
out:
    vp_text_release(&text);
    return st;
}
