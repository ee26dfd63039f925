/* trainers/files/python_scan.c: one pass over a script's statements by their indentation, then one over its names. */
#include "trainers/files/python_scan.h"

#include <ctype.h>
#include <string.h>

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

const char *vp_piece_behind_string(const char *at, const char *end, int *line)
{
    char quote = *at;
    bool three = end - at >= 3 && at[1] == quote && at[2] == quote;

    for (at += three ? 3 : 1; at < end; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
        else if (three && end - at >= 3 && at[0] == quote && at[1] == quote && at[2] == quote)
            return at + 3;
        else if (!three && (*at == quote || *at == '\n'))
            return *at == quote ? at + 1 : at;
        *line += *at == '\n';
    }
    return end;
}

static const char *behind_comment(const char *at, const char *end)
{
    while (at < end && *at != '\n')
        at++;
    return at;
}

/* Whether the sign here is an assignment's: not ==, <=, !=; of += it is the second letter. */
static bool is_assignment(const char *at, const char *from, const char *end)
{
    return *at == '=' && !(at + 1 < end && at[1] == '=') && !(at > from && strchr("=<>!:", at[-1]));
}

/* From *at on to the first of the letters outside strings, comments and brackets; end: none. */
static const char *find(const char *from, const char *end, const char *letters, int *line)
{
    int depth = 0;

    for (const char *at = from; at < end;) {
        if (*at == '"' || *at == '\'') {
            at = vp_piece_behind_string(at, end, line);
            continue;
        }
        if (*at == '#') {
            at = behind_comment(at, end);
            continue;
        }
        if (depth <= 0 && strchr(letters, *at) && (*at != '=' || is_assignment(at, from, end)))
            return at;
        if (*at == '\\' && at + 1 < end && at[1] == '\n')
            at++;
        depth += strchr("([{", *at) ? 1 : strchr(")]}", *at) ? -1 : 0;
        *line += *at == '\n';
        at++;
    }
    return end;
}

const char *vp_piece_find(const vp_piece *p, const char *letters)
{
    int         line  = 0;
    const char *found = find(p->at, p->end, letters, &line);

    return found == p->end ? NULL : found;
}

static bool word_here(const char *at, const vp_piece *p, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(p->end - at) < n || memcmp(at, word, n) != 0)
        return false;
    if (!is_letter(*word))
        return true;
    return (at == p->at || !is_letter(at[-1])) && (at + n == p->end || !is_letter(at[n]));
}

const char *vp_piece_word(const vp_piece *p, const char *word)
{
    int depth = 0, line = 0;

    for (const char *at = p->at; at < p->end;) {
        if (*at == '"' || *at == '\'') {
            at = vp_piece_behind_string(at, p->end, &line);
            continue;
        }
        if (depth == 0 && word_here(at, p, word))
            return at;
        depth += strchr("([{", *at) ? 1 : strchr(")]}", *at) ? -1 : 0;
        at++;
    }
    return NULL;
}

bool vp_piece_is(const vp_piece *p, const char *word)
{
    size_t n = strlen(word);

    return p->at && (size_t)(p->end - p->at) == n && memcmp(p->at, word, n) == 0;
}

bool vp_piece_same(const vp_piece *a, const vp_piece *b)
{
    return a->at && b->at && a->end - a->at == b->end - b->at &&
           memcmp(a->at, b->at, (size_t)(a->end - a->at)) == 0;
}

vp_piece vp_piece_trim(vp_piece p)
{
    while (p.at < p.end && (isspace((unsigned char)*p.at) || *p.at == '#' || *p.at == '\\')) {
        if (*p.at == '#')
            p.at = behind_comment(p.at, p.end);
        else
            p.line += *p.at == '\n', p.at++;
    }
    while (p.end > p.at && isspace((unsigned char)p.end[-1]))
        p.end--;
    return p;
}

bool vp_piece_next(vp_piece *rest, vp_piece *out)
{
    int line = rest->line;

    *rest = vp_piece_trim(*rest);
    if (!rest->at || rest->at >= rest->end)
        return false;
    line     = rest->line;
    *out     = *rest;
    out->end = find(rest->at, rest->end, ",", &line);
    rest->at = out->end < rest->end ? out->end + 1 : rest->end, rest->line = line;
    while (out->end > out->at && isspace((unsigned char)out->end[-1]))
        out->end--;
    return true;
}

/* ---- statements ---- */

typedef struct scanner {
    vp_scan    *scan;
    const char *at, *end;
    int         line;
    int         open[64], n_open; /* blocks that the statement stands in */
    bool decorates, commands; /* what is defined next; that is a command of typer's or click's */
    int  decorated;           /* the line of the first of it; 0: nothing does */
} scanner;

static vp_piece word_at(const char *at, const char *end, int line, bool dots)
{
    vp_piece p = {at, at, line};

    while (p.end < end && (is_letter(*p.end) || (dots && *p.end == '.')))
        p.end++;
    return p;
}

static void add_value(scanner *x, vp_piece name, vp_piece value, int place, int indent)
{
    vp_scan *s = x->scan;

    if (s->n_values == VP_SCAN_VALUES) {
        s->is_cut = true;
        return;
    }
    s->values[s->n_values++] =
        (vp_scanned_value){name, value, place, x->n_open ? x->open[x->n_open - 1] : -1, indent};
}

/* What is given names in a piece of text: `a, b` of a loop, what stands behind `as`. */
static void add_names(scanner *x, vp_piece p, int indent)
{
    for (const char *at = p.at; at < p.end;) {
        vp_piece name = word_at(at, p.end, p.line, true);
        if (name.end > at && !isdigit((unsigned char)*at))
            add_value(x, name, (vp_piece){0}, -1, indent);
        at = name.end > at ? name.end : at + 1;
    }
}

static bool begins(const vp_piece *p, const char *word)
{
    vp_piece first = word_at(p->at, p->end, p->line, false);

    return vp_piece_is(&first, word);
}

static vp_piece behind_word(vp_piece p)
{
    p.at = word_at(p.at, p.end, p.line, false).end;
    return vp_piece_trim(p);
}

/* a = b = value, a: int = value, a, b = value, a += 1. */
static void take_assignment(scanner *x, vp_piece s, int indent)
{
    vp_piece target = s, value = s, name;
    int      line    = s.line;
    bool     changes = false;

    for (;;) {
        const char *sign = find(value.at, s.end, "=", &line);
        if (sign == s.end)
            break;
        changes    = changes || (sign > value.at && strchr("+-*/%@&|^<>", sign[-1]));
        target.end = sign;
        value.at = sign + 1, value.line = line;
    }
    if (value.at == s.at)
        return;
    value = vp_piece_trim(value);
    for (vp_piece rest = target, one; vp_piece_next(&rest, &one);) {
        /* of a chain each, of names in brackets each */
        const char *several = memchr(target.at, ',', (size_t)(target.end - target.at));
        name                = word_at(one.at, one.end, one.line, true);
        vp_piece after      = vp_piece_trim((vp_piece){name.end, one.end, one.line});
        bool     is_one     = name.end > name.at && (after.at >= after.end || *after.at == ':') &&
                      !memchr(one.at, '=', (size_t)(one.end - one.at));
        if (!is_one || changes || several) {
            vp_piece inner = target;
            int      place = 0;
            inner          = vp_piece_trim(inner);
            if (inner.at < inner.end && *inner.at == '(' && inner.end[-1] == ')')
                inner.at++, inner.end--;
            for (vp_piece each; vp_piece_next(&inner, &each);) {
                name   = word_at(each.at, each.end, each.line, true);
                is_one = name.end == each.end && name.end > name.at;
                if (is_one && !changes)
                    add_value(x, name, value, place++, indent);
                else
                    add_names(x, each, indent), place++;
            }
            return;
        }
        add_value(x, name, value, -1, indent);
    }
}

static void open_block(scanner *x, vp_piece s, bool is_class, int indent)
{
    vp_scan          *scan = x->scan;
    vp_scanned_block *b;
    vp_piece          rest = behind_word(s);

    if (scan->n_blocks == VP_SCAN_BLOCKS || x->n_open == 64) {
        scan->is_cut = true;
        return;
    }
    b    = &scan->blocks[scan->n_blocks];
    *b   = (vp_scanned_block){.name         = word_at(rest.at, rest.end, rest.line, false),
                              .is_class     = is_class,
                              .line         = s.line,
                              .header_end   = x->line,
                              .end          = x->line,
                              .indent       = indent,
                              .body         = -1,
                              .above        = x->n_open ? x->open[x->n_open - 1] : -1,
                              .is_decorated = x->decorates && !x->commands,
                              .is_command   = x->commands,
                              .decorated    = x->decorated};
    rest = vp_piece_trim((vp_piece){b->name.end, s.end, rest.line});
    if (rest.at < rest.end && *rest.at == '(') {
        int         line  = rest.line;
        const char *close = find(rest.at + 1, rest.end, ")", &line);
        b->brackets       = (vp_piece){rest.at + 1, close, rest.line};
    }
    add_value(x, b->name, (vp_piece){0}, -1,
              indent); /* def f: the name has another value no more */
    x->open[x->n_open++] = scan->n_blocks++;
}

static void take_statement(scanner *x, vp_piece s, int indent);

/* `if x: y = 1`: what stands behind the colon is a statement within. */
static void take_rest(scanner *x, const char *colon, const vp_piece *s, int line, int indent)
{
    vp_piece rest = vp_piece_trim((vp_piece){colon + 1, s->end, line});

    if (rest.at < rest.end)
        take_statement(x, rest, indent + 1);
}

static void close_blocks(scanner *x, int indent)
{
    while (x->n_open && x->scan->blocks[x->open[x->n_open - 1]].indent >= indent)
        x->n_open--;
}

static void take_statement(scanner *x, vp_piece s, int indent)
{
    static const char *const heads[] = {"if",  "elif",   "else",    "for",   "while", "with",
                                        "try", "except", "finally", "match", "case",  "async"};
    int                      line    = s.line;

    close_blocks(x, indent);
    for (int i = 0; i < x->n_open; i++) {
        vp_scanned_block *b = &x->scan->blocks[x->open[i]];
        b->end              = x->line;
        if (b->body < 0)
            b->body = indent;
    }
    if (begins(&s, "async"))
        s = behind_word(s);
    if (*s.at == '@') {
        vp_piece name = word_at(s.at + 1, s.end, s.line, true);
        x->decorates  = true;
        x->decorated  = x->decorated ? x->decorated : s.line;
        x->commands   = x->commands || vp_piece_is(&name, "command") ||
                      (name.end - name.at > 8 && memcmp(name.end - 8, ".command", 8) == 0);
        return;
    }
    const char *colon = find(s.at, s.end, ":", &line);
    if (begins(&s, "def") || begins(&s, "class")) {
        bool is_class = begins(&s, "class");
        open_block(x, (vp_piece){s.at, colon, s.line}, is_class, indent);
        x->decorates = x->commands = false, x->decorated = 0;
        if (colon < s.end)
            take_rest(x, colon, &s, line, indent);
        return;
    }
    x->decorates = x->commands = false, x->decorated = 0;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (!begins(&s, heads[i]) || colon == s.end)
            continue;
        vp_piece head = behind_word((vp_piece){s.at, colon, s.line});
        if (begins(&s, "for")) {
            const char *in = memmem(head.at, (size_t)(head.end - head.at), " in ", 4);
            add_names(x, (vp_piece){head.at, in ? in : head.end, s.line}, indent);
        }
        for (const char *as = head.at;
             (as = memmem(as, (size_t)(head.end - as), " as ", 4)) != NULL; as += 4) {
            vp_piece behind = vp_piece_trim((vp_piece){as + 4, head.end, s.line});
            if (*behind.at == '(')
                add_names(x, behind, indent);
            else
                add_names(x, word_at(behind.at, behind.end, s.line, true), indent);
        }
        take_rest(x, colon, &s, line, indent);
        return;
    }
    if (begins(&s, "return")) {
        add_value(x, word_at(s.at, s.end, s.line, false), behind_word(s), -1, indent);
        return;
    }
    if (begins(&s, "import") || begins(&s, "from") || begins(&s, "global") ||
        begins(&s, "nonlocal") || begins(&s, "del")) {
        if (begins(&s, "from")) {
            const char *import = memmem(s.at, (size_t)(s.end - s.at), " import ", 8);
            s.at               = import ? import + 8 : s.end;
        }
        add_names(x, s, indent);
        return;
    }
    take_assignment(x, s, indent);
}

static void scan_statements(scanner *x)
{
    const char *line_start = x->at;
    int         indent     = 0;
    bool        after      = false; /* a semicolon */

    while (x->at < x->end && !x->scan->is_cut) {
        if (*x->at == '\n') {
            x->at++, x->line++, line_start = x->at, after = false;
            continue;
        }
        if (isspace((unsigned char)*x->at) || *x->at == ';' || *x->at == '#') {
            if (*x->at == '#')
                x->at = behind_comment(x->at, x->end);
            else
                x->at++;
            continue;
        }
        vp_piece s = {x->at, NULL, x->line};
        if (!after)
            indent = (int)(x->at - line_start);
        const char *stop = find(x->at, x->end, "\n;", &x->line);
        s.end            = stop;
        if (stop == x->at) { /* a bracket that nothing opened */
            x->at++;
            continue;
        }
        /* class A: x = 1; y = 2 */
        bool in_line = after && x->n_open &&
                       x->scan->blocks[x->open[x->n_open - 1]].line == s.line &&
                       x->scan->blocks[x->open[x->n_open - 1]].indent == indent;
        take_statement(x, s, in_line ? indent + 1 : indent);
        after      = stop < x->end && *stop == ';';
        line_start = after ? line_start : stop;
        x->at      = stop;
    }
}

/* ---- names ---- */

enum { MAX_BRACKETS = 1 << 16 }; /* a call's that is longer is not looked through */

/* The last of a dotted name. */
static vp_piece last_of(vp_piece name)
{
    for (const char *p = name.end; p > name.at; p--)
        if (p[-1] == '.')
            return (vp_piece){p, name.end, name.line};
    return name;
}

static bool is_parsers(const vp_piece *last)
{
    static const char *const words[] = {"add_argument",   "ArgumentParser", "HfArgumentParser",
                                        "add_subparsers", "set_defaults",   "TrlParser",
                                        "option"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (vp_piece_is(last, words[i]))
            return true;
    return false;
}

static void take_name(vp_scan *s, vp_piece name, vp_piece before, const char *end, bool in_import)
{
    vp_piece    last = last_of(name);
    const char *next = name.end;
    int         line = name.line;
    bool        is_mine;

    while (next < end && (*next == ' ' || *next == '\t'))
        next++;
    is_mine = is_parsers(&last);
    if (vp_piece_is(&last, "setattr") || vp_piece_is(&last, "__setattr__") ||
        memmem(name.at, (size_t)(name.end - name.at), ".__dict__", 9))
        s->sets_by_name = true;
    for (int i = 0; i < s->n_blocks; i++) {
        vp_scanned_block *b        = &s->blocks[i];
        bool              in_class = b->above >= 0 && s->blocks[b->above].is_class;
        if (!vp_piece_same(&b->name, &last) || b->name.at == name.at ||
            (last.at != name.at && !b->is_class && !in_class))
            continue;
        is_mine = true;
        if (next < end && *next != '(' && *next != '=' && !in_import && !b->is_class) {
            b->is_mentioned = true;
            vp_piece caller = last_of(before);
            if (vp_piece_is(&caller, "Fire") || vp_piece_is(&before, "typer.run"))
                b->is_command = true, b->is_mentioned = false;
        }
    }
    if (!is_mine || next >= end || *next != '(')
        return;
    if (s->n_calls == VP_SCAN_CALLS) {
        s->is_cut = true;
        return;
    }
    if (end - next > MAX_BRACKETS)
        end = next + MAX_BRACKETS;
    s->calls[s->n_calls++] =
        (vp_scanned_call){name, {next + 1, find(next + 1, end, ")", &line), name.line}};
}

static void scan_names(vp_scan *s, const char *at, const char *end)
{
    const char *begin  = at;
    vp_piece    before = {0}; /* the name in front */
    int         line   = 1;
    bool        import = false, begins_line = true;

    while (at < end && !s->is_cut) {
        if (*at == '"' || *at == '\'') {
            at          = vp_piece_behind_string(at, end, &line);
            begins_line = false;
        } else if (*at == '#') {
            at = behind_comment(at, end);
        } else if (is_letter(*at)) {
            vp_piece name = word_at(at, end, line, true);
            if (begins_line)
                import = vp_piece_is(&name, "import") || vp_piece_is(&name, "from");
            begins_line = false;
            if (!isdigit((unsigned char)*at)) {
                name.at -= at > begin && at[-1] == '.'; /* Trainer(...).train, which is no train */
                take_name(s, name, before, end, import);
            }
            before = name;
            at     = name.end;
        } else {
            if (*at == '\n')
                line++, begins_line = true;
            at++;
        }
    }
}

vp_scan *vp_python_scan(vp_arena *arena, const char *text, const char *end)
{
    vp_scan *s = vp_arena_alloc(arena, sizeof *s);
    scanner  x = {.scan = s, .at = text, .end = end, .line = 1};

    if (!s)
        return NULL;
    s->blocks = vp_arena_array(arena, VP_SCAN_BLOCKS, sizeof *s->blocks);
    s->values = vp_arena_array(arena, VP_SCAN_VALUES, sizeof *s->values);
    s->calls  = vp_arena_array(arena, VP_SCAN_CALLS, sizeof *s->calls);
    if (!s->blocks || !s->values || !s->calls)
        return NULL;
    scan_statements(&x);
    scan_names(s, text, end);
    return s;
}
