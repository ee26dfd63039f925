/* trainers/files/document_notebook.c: a Jupyter notebook (nbformat 4) as a script of Python: its code cells, each line where it stands
 * in the notebook's own file, which has one line of JSON for it. */
#include "trainers/files/document.h"

#include "base/text.h"

#include <string.h>

typedef struct script {
    vp_text text;
    int     line; /* that is written next */
} script;

/* Commands and magics of IPython: of no matter to what a trainer is told. */
static bool is_magic(const char *line)
{
    line += strspn(line, " \t");
    return *line == '!' || *line == '%' || *line == '?';
}

static void put_line(script *c, const char *line, size_t n)
{
    if (is_magic(line))
        vp_text_printf(&c->text, "\n");
    else
        vp_text_printf(&c->text, "%.*s\n", (int)n, line);
    c->line++;
}

/* An element of a cell's source: a line, or several; an empty one goes up to where it stands. */
static void put_source(script *c, const vp_value *v)
{
    if (v->kind != VP_VALUE_STRING)
        return;
    for (; c->line < v->line; c->line++)
        vp_text_printf(&c->text, "\n");
    for (const char *p = v->text; *p; p += strcspn(p, "\n"), p += *p == '\n')
        put_line(c, p, strcspn(p, "\n"));
}

/* %%bash: all of the cell is another language's. */
static bool is_foreign(const vp_value *source)
{
    const vp_value *first = source->kind == VP_VALUE_LIST ? source->first : source;
    const char     *text  = first && first->kind == VP_VALUE_STRING ? first->text : "";

    return strncmp(text, "%%", 2) == 0 && strncmp(text, "%%time", 6) != 0 &&
           strncmp(text, "%%capture", 9) != 0;
}

static void put_cell(script *c, const vp_value *cell)
{
    const vp_value *type   = vp_value_member(cell, "cell_type");
    const vp_value *source = vp_value_member(cell, "source");

    if (!type || !type->text || strcmp(type->text, "code") != 0 || !source || is_foreign(source))
        return;
    if (source->kind != VP_VALUE_LIST)
        put_source(c, source);
    for (const vp_value *v = source->kind == VP_VALUE_LIST ? source->first : NULL; v; v = v->next)
        put_source(c, v);
}

vp_status vp_document_parse_notebook(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    vp_document    *json  = vp_document_new(doc->arena, doc->name, VP_FORMAT_JSON);
    script          c     = {.line = 1};
    const vp_value *cells = NULL;
    vp_status       st    = VP_OK;

    VP_TRY_ALLOC(err, json);
    VP_TRY(vp_document_parse_json(json, bytes, n, err));
    if (json->root->kind == VP_VALUE_MAP)
        cells = vp_value_member(json->root, "cells");
    if (!cells || cells->kind != VP_VALUE_LIST)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, doc->name, 1, "cells",
                          "no notebook of nbformat 4: it has no list of cells"));
    for (const vp_value *cell = cells->first; cell; cell = cell->next)
        if (cell->kind == VP_VALUE_MAP)
            put_cell(&c, cell);
    doc->format      = VP_FORMAT_PYTHON;
    doc->is_notebook = true;
    VP_TRY(vp_document_parse_python(doc, vp_text_string(&c.text), (int64_t)c.text.n_bytes, err));
out:
    vp_text_release(&c.text);
    return st;
}
