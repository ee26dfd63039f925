/* trainers/files/document_yaml.c: YAML as PyYAML's safe loader reads it, over libyaml. The only file
 * that knows libyaml. An alias is expanded where it stands, and counts: a file of nine lines that
 * means a billion values ends at the limit. */
#include "trainers/files/document.h"

#include "base/text.h"

#include <ctype.h>
#include <string.h>
#include <yaml.h>

typedef struct anchor {
    const char     *name;
    const vp_value *value;
    struct anchor  *next;
} anchor;

typedef struct reader {
    vp_document  *doc;
    yaml_parser_t parser;
    yaml_event_t  event;
    bool          has_event;
    anchor       *anchors;
    vp_err       *err;
} reader;

static vp_status fail(reader *r, int line, const char *text)
{
    return VP_FAIL_AT(r->err, VP_ERR_INPUT, r->doc->name, line, NULL, "%s", text);
}

static vp_status next(reader *r)
{
    char shown[256], text[600];

    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = yaml_parser_parse(&r->parser, &r->event) != 0;
    if (r->has_event)
        return VP_OK;
    if (r->parser.error == YAML_MEMORY_ERROR)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    const yaml_mark_t *mark = &r->parser.problem_mark;
    vp_text_escape(r->parser.problem ? r->parser.problem : "not YAML", shown, sizeof shown);
    snprintf(text, sizeof text, "%s%s%s, column %d", shown, r->parser.context ? " " : "",
             r->parser.context ? r->parser.context : "", (int)mark->column + 1);
    int line = (int)mark->line + 1;
    if (r->parser.error == YAML_READER_ERROR) { /* it has no line: count them */
        line = 0;
        snprintf(text, sizeof text, "%s at byte %zu", shown, r->parser.problem_offset);
    }
    return fail(r, line, text);
}

static int line_of(const reader *r)
{
    return (int)r->event.start_mark.line + 1;
}

static vp_status keep_anchor(reader *r, const yaml_char_t *name, const vp_value *value)
{
    anchor *a = name ? vp_arena_alloc(r->doc->arena, sizeof *a) : NULL;

    if (!name)
        return VP_OK;
    if (a)
        *a = (anchor){vp_arena_strdup(r->doc->arena, (const char *)name), value, r->anchors};
    if (!a || !a->name)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    r->anchors = a;
    return VP_OK;
}

static vp_status too_many(reader *r, int line)
{
    if (vp_arena_failed(r->doc->arena))
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    return fail(r, line, "more than 100,000 values, aliases expanded");
}

/* A copy of from below parent; the copy says where the alias stands. */
static vp_status copy(reader *r, vp_value *to, const vp_value *from, int line, int depth)
{
    vp_status st = VP_OK;

    to->kind = from->kind, to->text = from->text, to->quoted = from->quoted;
    to->boolean = from->boolean, to->integer = from->integer, to->real = from->real;
    to->line = line, to->column = from->column;
    if (depth > VP_DOCUMENT_MAX_DEPTH)
        VP_TRY(fail(r, line, "nested deeper than 64"));
    for (const vp_value *v = from->first; v; v = v->next) {
        vp_value *child = vp_value_add(r->doc, to, v->key);
        if (!child)
            VP_TRY(too_many(r, line));
        VP_TRY(copy(r, child, v, line, depth + 1));
    }
out:
    return st;
}

static vp_status check_tag(reader *r, const yaml_char_t *tag, bool scalar)
{
    static const char *const known[] = {"str", "int", "float", "bool", "null", "map", "seq"};
    char                     shown[128];

    if (!tag || strcmp((const char *)tag, "!") == 0)
        return VP_OK;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char full[64];
        snprintf(full, sizeof full, "tag:yaml.org,2002:%s", known[i]);
        if (strcmp((const char *)tag, full) == 0 && scalar == (i < 5))
            return VP_OK;
    }
    return VP_FAIL_AT(r->err, VP_ERR_INPUT, r->doc->name, line_of(r), NULL,
                      "the tag %s is refused by a safe loader",
                      vp_text_escape((const char *)tag, shown, sizeof shown));
}

/* 1:30 is 90 to YAML 1.1: digits to the base 60, the first of them not 0. */
static vp_status take_sixties(reader *r, vp_value *v)
{
    const char *t     = v->text + (v->text[0] == '-' || v->text[0] == '+');
    bool        is_it = v->kind == VP_VALUE_STRING && !v->quoted && *t >= '1' && *t <= '9';
    int64_t     n = 0, part = 0;
    int         digits = 0, n_parts = 1;
    char        shown[64];
    vp_status   st = VP_OK;

    for (; is_it && *t; t++) {
        if (*t == ':') {
            is_it = digits > 0 && n < INT64_MAX / 100 && (n_parts == 1 || part < 60);
            n = n * 60 + part, part = 0, digits = 0, n_parts++;
        } else if (isdigit((unsigned char)*t)) {
            part  = part * 10 + (*t - '0'), digits++;
            is_it = digits <= (n_parts == 1 ? 12 : 2);
        } else {
            is_it = false;
        }
    }
    if (!is_it || n_parts < 2 || !digits || part >= 60 || n >= INT64_MAX / 100)
        return VP_OK;
    n = (n * 60 + part) * (v->text[0] == '-' ? -1 : 1);
    VP_TRY(vp_document_remark(r->doc, line_of(r), v->key, false, r->err,
                              "%s is %lld to YAML 1.1, which takes it for digits to the base 60",
                              vp_text_escape(v->text, shown, sizeof shown), (long long)n));
    v->kind = VP_VALUE_INT, v->integer = n, v->real = (double)n;
    VP_TRY_ALLOC(r->err, v->text = vp_arena_printf(r->doc->arena, "%lld", (long long)n));
out:
    return st;
}

static vp_status read_value(reader *r, vp_value *v, int depth);

static vp_status read_scalar(reader *r, vp_value *v)
{
    vp_status st = VP_OK;

    VP_TRY(check_tag(r, r->event.data.scalar.tag, true));
    const char *tag = (const char *)r->event.data.scalar.tag;
    v->text         = vp_arena_strdup(r->doc->arena, (const char *)r->event.data.scalar.value);
    VP_TRY_ALLOC(r->err, v->text);
    v->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
                (tag && strstr(tag, ":str") != NULL);
    vp_value_resolve(v);
    VP_TRY(take_sixties(r, v));
    VP_TRY(keep_anchor(r, r->event.data.scalar.anchor, v));
out:
    return st;
}

/* "<<": the members of what stands there, or of each of a list, that the map does not have. */
static vp_status merge(reader *r, vp_value *map, const vp_value *from, int line)
{
    vp_status st = VP_OK;

    if (from->kind == VP_VALUE_LIST) {
        for (const vp_value *v = from->first; v; v = v->next)
            VP_TRY(merge(r, map, v, line));
        goto out;
    }
    if (from->kind != VP_VALUE_MAP)
        VP_TRY(fail(r, line, "<< wants a map, or a list of maps"));
    for (const vp_value *v = from->first; v; v = v->next) {
        if (vp_value_member(map, v->key))
            continue;
        vp_value *child = vp_value_add(r->doc, map, v->key);
        if (!child)
            VP_TRY(too_many(r, line));
        VP_TRY(copy(r, child, v, line, 1));
    }
out:
    return st;
}

static vp_status read_map(reader *r, vp_value *map, int depth)
{
    vp_value *merges[16];
    int       n_merges = 0;
    char      shown[128];
    vp_status st = VP_OK;

    VP_TRY(check_tag(r, r->event.data.mapping_start.tag, false));
    map->kind = VP_VALUE_MAP;
    VP_TRY(keep_anchor(r, r->event.data.mapping_start.anchor, map));
    VP_TRY(next(r));
    while (r->event.type != YAML_MAPPING_END_EVENT) {
        int line = line_of(r), column = (int)r->event.start_mark.column + 1;
        if (r->event.type != YAML_SCALAR_EVENT)
            VP_TRY(fail(r, line, "a key that is no word"));
        const char *key = vp_arena_strdup(r->doc->arena, (const char *)r->event.data.scalar.value);
        VP_TRY_ALLOC(r->err, key);
        bool is_merge =
            strcmp(key, "<<") == 0 && r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        const vp_value *before = is_merge ? NULL : vp_value_member(map, key);
        if (before)
            VP_TRY(vp_document_remark(r->doc, line, key, true, r->err,
                                      "%s stands here and in line %d: the reader takes the last "
                                      "without a word",
                                      vp_text_escape(key, shown, sizeof shown), before->line));
        vp_value *v =
            is_merge ? vp_arena_alloc(r->doc->arena, sizeof *v) : vp_value_add(r->doc, map, key);
        if (!v)
            VP_TRY(too_many(r, line));
        if (is_merge && n_merges == 16)
            VP_TRY(fail(r, line, "more than 16 << in one map"));
        if (is_merge)
            merges[n_merges++] = v;
        VP_TRY(next(r));
        VP_TRY(read_value(r, v, depth + 1));
        v->line = line, v->column = column;
    }
    for (int i = 0; i < n_merges; i++)
        VP_TRY(merge(r, map, merges[i], merges[i]->line));
out:
    return st;
}

static vp_status read_value(reader *r, vp_value *v, int depth)
{
    vp_status st = VP_OK;
    char      shown[128];

    v->line = line_of(r), v->column = (int)r->event.start_mark.column + 1;
    if (depth > VP_DOCUMENT_MAX_DEPTH)
        VP_TRY(fail(r, v->line, "nested deeper than 64"));
    switch (r->event.type) {
    case YAML_SCALAR_EVENT:
        VP_TRY(read_scalar(r, v));
        break;
    case YAML_ALIAS_EVENT: {
        const char *name = (const char *)r->event.data.alias.anchor;
        anchor     *a    = r->anchors;
        while (a && strcmp(a->name, name) != 0)
            a = a->next;
        if (!a)
            VP_TRY(VP_FAIL_AT(r->err, VP_ERR_INPUT, r->doc->name, v->line, NULL, "no anchor &%s",
                              vp_text_escape(name, shown, sizeof shown)));
        if ((a->value->kind == VP_VALUE_MAP || a->value->kind == VP_VALUE_LIST) &&
            a->value->boolean) /* open: it would hold itself */
            VP_TRY(fail(r, v->line, "an alias inside what it stands for"));
        VP_TRY(copy(r, v, a->value, v->line, depth));
        break;
    }
    case YAML_SEQUENCE_START_EVENT:
        VP_TRY(check_tag(r, r->event.data.sequence_start.tag, false));
        v->kind    = VP_VALUE_LIST;
        v->boolean = true; /* open */
        VP_TRY(keep_anchor(r, r->event.data.sequence_start.anchor, v));
        VP_TRY(next(r));
        while (r->event.type != YAML_SEQUENCE_END_EVENT) {
            vp_value *element = vp_value_add(r->doc, v, NULL);
            if (!element)
                VP_TRY(too_many(r, line_of(r)));
            VP_TRY(read_value(r, element, depth + 1));
        }
        v->boolean = false;
        break;
    case YAML_MAPPING_START_EVENT:
        v->boolean = true;
        VP_TRY(read_map(r, v, depth));
        v->boolean = false;
        break;
    default:
        VP_TRY(fail(r, v->line, "not a value"));
    }
    VP_TRY(next(r));
out:
    return st;
}

/* "# @package _global_" in the comments at the top. */
static vp_status take_package(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    static const char sign[] = "@package ";
    const char       *end    = bytes + n;

    for (const char *p = bytes, *line_end; p < end && (*p == '#' || *p == '\n'); p = line_end + 1) {
        line_end         = memchr(p, '\n', (size_t)(end - p));
        line_end         = line_end ? line_end : end;
        const char *said = memmem(p, (size_t)(line_end - p), sign, sizeof sign - 1);
        if (!said)
            continue;
        said += sizeof sign - 1;
        doc->package = vp_arena_printf(doc->arena, "%.*s",
                                       (int)(line_end - said - (line_end[-1] == '\r')), said);
        return doc->package ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    }
    return VP_OK;
}

/* Tabs between tokens: libyaml skips them; PyYAML's own scanner, which trainers read with, ends there ("found character '\t' that
 * cannot start any token"). */
typedef struct cursor {
    const char *at, *end;
    size_t      letter; /* which it is, as libyaml counts */
    int         line;
} cursor;

/* On to a letter. The line of a tab on the way that no comment holds, or 0. */
static int walk(cursor *c, size_t letter)
{
    bool in_comment = false;
    int  tab        = 0;

    for (; c->at < c->end && c->letter < letter; c->letter++) {
        in_comment = *c->at != '\n' && (in_comment || *c->at == '#');
        if (*c->at == '\t' && !in_comment && !tab)
            tab = c->line;
        c->line += *c->at == '\n';
        do
            c->at++;
        while (c->at < c->end && ((unsigned char)*c->at & 0xC0) == 0x80);
    }
    return tab;
}

static int tab_line(const char *bytes, int64_t n)
{
    yaml_parser_t parser;
    yaml_token_t  token;
    cursor        c    = {bytes, bytes + n, 0, 1};
    int           line = 0;
    bool          more = true;

    if (n >= 3 && (unsigned char)bytes[0] == 0xEF)
        c.at += 3; /* the mark of UTF-8, which libyaml does not count */
    if (!yaml_parser_initialize(&parser))
        return 0;
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, (size_t)n);
    while (more && !line && yaml_parser_scan(&parser, &token)) {
        more = token.type != YAML_STREAM_END_TOKEN && token.type != YAML_NO_TOKEN;
        line = walk(&c, token.start_mark.index);
        walk(&c, token.end_mark.index);
        yaml_token_delete(&token);
    }
    yaml_parser_delete(&parser);
    return line;
}

vp_status vp_document_parse_yaml(vp_document *doc, const char *bytes, int64_t n, vp_err *err)
{
    reader    r  = {.doc = doc, .err = err};
    vp_status st = VP_OK;

    VP_TRY_ALLOC(err, yaml_parser_initialize(&r.parser));
    VP_TRY(take_package(doc, bytes, n, err));
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)bytes, (size_t)n);
    VP_TRY(next(&r)); /* the stream's start */
    VP_TRY(next(&r));
    if (r.event.type == YAML_STREAM_END_EVENT)
        VP_TRY(fail(&r, 1, "the file is empty"));
    VP_TRY(next(&r)); /* behind the document's start */
    VP_TRY(read_value(&r, doc->root, 0));
    VP_TRY(next(&r));
    if (r.event.type != YAML_STREAM_END_EVENT)
        VP_TRY(fail(&r, line_of(&r), "a second document: the reader takes one"));
    doc->tab_line = memchr(bytes, '\t', (size_t)n) ? tab_line(bytes, n) : 0;
out:
    if (r.has_event)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return st;
}
