/* trainers/files/document_notebook.c: a Jupyter notebook (nbformat 4) as a script of Python: its code cells, each line where it stands
 * in the notebook's own file, which has one line of JSON for it. Beside it the commands that it runs (!, %run, %%bash) as a script of
 * the shell's, on the same lines, and the files that its cells write (%%writefile). */
#include "trainers/files/document.h"

#include "base/text.h"

#include <string.h>

/* Has the words that follow read as a script of the shell's. */
#define SHELL "#!/bin/bash\n"

typedef struct script {
    vp_text text, commands;
    int     line;         /* that is written next */
    bool    goes_on;      /* the line before is a command that ends in a backslash */
    bool    has_commands; /* not only variables of theirs */
} script;

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t");
}

/* Behind a magic's name; NULL: the line begins with another word. */
static const char *behind(const char *line, const char *magic)
{
    size_t n = strlen(magic);

    line = skip_blanks(line);
    return strncmp(line, magic, n) == 0 && (!line[n] || strchr(" \t\n", line[n]))
               ? skip_blanks(line + n)
               : NULL;
}

/* Commands and magics of IPython. */
static bool is_magic(const char *line)
{
    line = skip_blanks(line);
    return *line == '!' || *line == '%' || *line == '?';
}

/* os.environ["A"] = "1": what the commands behind it are started with. */
static void put_environ(script *c, const char *line)
{
    static const char environ[] = "os.environ[";
    const char       *name      = skip_blanks(line);

    if (strncmp(name, environ, sizeof environ - 1) != 0)
        return;
    name += sizeof environ;
    size_t      n     = strcspn(name, "\"'\n");
    const char *value = name + n;
    value += *value && *value != '\n';
    value += *value == ']';
    value = skip_blanks(value);
    if (*value != '=' || value[1] == '=')
        return;
    value = skip_blanks(value + 1);
    if (*value == '"' || *value == '\'')
        vp_text_printf(&c->commands, "export %.*s=%.*s", (int)n, name,
                       (int)strcspn(value + 1, "\"'\n") + 2, value);
}

/* What the shell has of a line. */
static void put_command(script *c, const char *line, size_t n)
{
    const char *end = line + n, *p = skip_blanks(line), *env = behind(line, "%env");
    bool        begins = *p == '!' || behind(line, "%run");

    env = env ? env : behind(line, "%set_env");
    if (c->goes_on) {
        vp_text_append(&c->commands, line, n);
    } else if (*p == '!') {
        p += strspn(p, "!");
        vp_text_append(&c->commands, p, (size_t)(end - p));
    } else if (behind(line, "%run")) {
        p = behind(line, "%run");
        vp_text_printf(&c->commands, "python %.*s", (int)(end - p), p);
    } else if (env && env < end) {
        size_t m = strcspn(env, "= \t\n");
        if (env + m < end)
            vp_text_printf(&c->commands, "export %.*s=%.*s", (int)m, env,
                           (int)(end - env - (ptrdiff_t)m - 1), env + m + 1);
    } else {
        put_environ(c, line);
    }
    vp_text_printf(&c->commands, "\n");
    c->has_commands = c->has_commands || begins;
    c->goes_on      = (c->goes_on || begins) && n > 0 && end[-1] == '\\';
}

static void put_line(script *c, const char *line, size_t n, bool is_shell)
{
    bool is_python = !is_shell && !c->goes_on && !is_magic(line);

    vp_text_printf(&c->text, "%.*s\n", is_python ? (int)n : 0, line);
    if (is_shell)
        vp_text_printf(&c->commands, "%.*s\n", (int)n, line);
    else
        put_command(c, line, n);
    c->line++;
}

/* An element of a cell's source: a line, or several; an empty one goes up to where it stands. *first: it is the cell's, whose magic is
 * none of the shell's words. */
static void put_source(script *c, const vp_value *v, bool is_shell, bool *first)
{
    if (v->kind != VP_VALUE_STRING)
        return;
    for (; c->line < v->line; c->line++) {
        vp_text_printf(&c->text, "\n");
        vp_text_printf(&c->commands, "\n");
    }
    for (const char *p = v->text; *p; p += strcspn(p, "\n"), p += *p == '\n', *first = false)
        put_line(c, p, is_shell && *first ? 0 : strcspn(p, "\n"), is_shell);
}

static const vp_value *first_source(const vp_value *source)
{
    return source->kind == VP_VALUE_LIST ? source->first : source;
}

static const vp_value *next_source(const vp_value *source, const vp_value *v)
{
    return source->kind == VP_VALUE_LIST ? v->next : NULL;
}

/* %%writefile train.py: the rest of the cell is that file, behind what another cell wrote of it with -a. */
static vp_status keep_file(vp_document *doc, const vp_value *source, const char *path, vp_err *err)
{
    vp_written **end  = &doc->written, *one;
    bool         adds = strncmp(path, "-a ", 3) == 0, first = true;
    vp_text      text = {0};
    vp_status    st   = VP_OK;

    path = skip_blanks(path + (adds ? 3 : 0));
    path += *path == '"' || *path == '\'';
    const char *name = vp_arena_printf(doc->arena, "%.*s", (int)strcspn(path, " \t\r\n\"'"), path);
    VP_TRY_ALLOC(err, name);
    while (*end && strcmp((*end)->path, name) != 0)
        end = &(*end)->next;
    if (*end && adds)
        vp_text_append(&text, (*end)->bytes, (size_t)(*end)->n_bytes);
    for (const vp_value *v = first_source(source); v; v = next_source(source, v)) {
        const char *from = v->kind == VP_VALUE_STRING ? v->text : "";
        if (first)
            from += strcspn(from, "\n"), from += *from == '\n';
        first = false;
        vp_text_append(&text, from, strlen(from));
    }
    if (!*end) {
        *end = one = vp_arena_alloc(doc->arena, sizeof *one);
        VP_TRY_ALLOC(err, one);
        *one = (vp_written){.path = name};
    }
    (*end)->n_bytes = (int64_t)text.n_bytes;
    (*end)->bytes   = vp_arena_strdup(doc->arena, vp_text_string(&text));
    VP_TRY_ALLOC(err, (*end)->bytes && !text.failed);
out:
    vp_text_release(&text);
    return st;
}

/* What a cell is whose first line names a magic of cells: Python of its own, another's, commands, a file. */
static vp_status put_cell(vp_document *doc, script *c, const vp_value *cell, vp_err *err)
{
    static const char *const shells[]  = {"%%bash", "%%sh",          "%%shell",    "%%system",
                                          "%%!",    "%%script bash", "%%script sh"};
    static const char *const pythons[] = {"%%time", "%%timeit", "%%capture",
                                          "%%prun", "%%python", "%%python3"};
    static const char *const writes[]  = {"%%writefile", "%%file"};
    const vp_value          *type      = vp_value_member(cell, "cell_type");
    const vp_value          *source    = vp_value_member(cell, "source");
    bool                     is_shell = false, is_python, first = true;

    if (!type || !type->text || strcmp(type->text, "code") != 0 || !source)
        return VP_OK;
    const vp_value *at   = first_source(source);
    const char     *line = at && at->kind == VP_VALUE_STRING ? at->text : "";
    is_python            = strncmp(line, "%%", 2) != 0;
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++)
        if (behind(line, writes[i]))
            return keep_file(doc, source, behind(line, writes[i]), err);
    for (size_t i = 0; i < sizeof pythons / sizeof *pythons; i++)
        is_python = is_python || behind(line, pythons[i]);
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        is_shell = is_shell || behind(line, shells[i]);
    if (!is_python && !is_shell)
        return VP_OK;
    for (; at; at = next_source(source, at))
        put_source(c, at, is_shell, &first);
    c->goes_on      = false;
    c->has_commands = c->has_commands || is_shell;
    return VP_OK;
}

vp_status vp_document_parse_notebook(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    vp_document    *json  = vp_document_new(doc->arena, doc->name, VP_FORMAT_JSON);
    script          c     = {.line = 2};
    const vp_value *cells = NULL;
    vp_status       st    = VP_OK;

    VP_TRY_ALLOC(err, json);
    VP_TRY(vp_document_parse_json(json, bytes, n, err));
    if (json->root->kind == VP_VALUE_MAP)
        cells = vp_value_member(json->root, "cells");
    if (!cells || cells->kind != VP_VALUE_LIST)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, doc->name, 1, "cells",
                          "no notebook of nbformat 4: it has no list of cells"));
    vp_text_printf(&c.text, "\n");
    vp_text_printf(&c.commands, SHELL);
    for (const vp_value *cell = cells->first; cell; cell = cell->next)
        if (cell->kind == VP_VALUE_MAP)
            VP_TRY(put_cell(doc, &c, cell, err));
    doc->format      = VP_FORMAT_PYTHON;
    doc->is_notebook = true;
    if (c.has_commands)
        VP_TRY_ALLOC(err, doc->commands = vp_arena_strdup(doc->arena, vp_text_string(&c.commands)));
    VP_TRY(vp_document_parse_python(doc, vp_text_string(&c.text), (int64_t)c.text.n_bytes, err));
out:
    vp_text_release(&c.text);
    vp_text_release(&c.commands);
    return st;
}
