/* trainers/files/python_names.c: a name is followed through the script's blocks from inside out, as Python does; its value is read
 * where it stands, when it is asked for. Two values that differ, or one under a condition, are none. */
#include "trainers/files/python_names_internal.h"

#include "trainers/files/python_blocks.h"
#include "trainers/files/python_calls.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = VP_NAMES_MAX_DEPTH };

/* HfArgumentParser(ScriptArguments) of classes that are all the script's own, fire.Fire(train): its options are no trainer's. */
static bool has_own_options(const vp_scan *s)
{
    bool is_own = false;

    for (int i = 0; i < s->n_blocks; i++)
        is_own = is_own || s->blocks[i].is_command;
    for (int i = 0; i < s->n_calls; i++) {
        vp_piece rest, one;
        if (!vp_names_parses_classes(&s->calls[i], &rest))
            continue;
        while (vp_piece_next(&rest, &one)) {
            int k = vp_names_block_named(s, &one, true);
            if (k < 0 || s->blocks[k].brackets.at)
                return false; /* another's, or built on one */
            is_own = true;
        }
    }
    return is_own;
}

/* Whether TRL's own ModelConfig is among several classes, in brackets or not. */
static bool has_model_config(const vp_scan *s, vp_piece classes)
{
    vp_piece one;

    classes = vp_piece_trim(classes);
    if (classes.end - classes.at > 2 && strchr("([", *classes.at))
        classes.at++, classes.end--;
    while (vp_piece_next(&classes, &one))
        if ((vp_piece_is(&one, "ModelConfig") || vp_piece_is(&one, "trl.ModelConfig")) &&
            vp_names_block_named(s, &one, true) < 0)
            return true;
    return false;
}

/* TrlParser((ScriptArguments, SFTConfig, ModelConfig)), or TrlParser(types) of such a tuple. */
static bool takes_model(const vp_scan *s)
{
    for (int i = 0; i < s->n_calls; i++) {
        vp_piece rest, one;
        if (!vp_names_parses_classes(&s->calls[i], &rest))
            continue;
        if (has_model_config(s, rest))
            return true;
        while (vp_piece_next(&rest, &one))
            for (int k = 0; k < s->n_values; k++)
                if (vp_piece_same(&s->values[k].name, &one) && s->values[k].value.at &&
                    has_model_config(s, s->values[k].value))
                    return true;
    }
    return false;
}

vp_status vp_python_names_find(vp_python_reader *r)
{
    vp_python_names *x = vp_arena_alloc(r->doc->arena, sizeof *x);

    if (x)
        x->scan = vp_python_scan(r->doc->arena, r->at, r->end);
    if (!x || !x->scan)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    for (int i = 0; i < x->scan->n_calls; i++) {
        const vp_piece *name = &x->scan->calls[i].name;
        const char     *call =
            vp_arena_printf(r->doc->arena, "%.*s", (int)(name->end - name->at), name->at);
        if (!call)
            return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
        if (vp_python_ends_in(call, "ArgumentParser") &&
            !vp_python_ends_in(call, "HfArgumentParser"))
            x->parsers++;
        if (vp_python_ends_in(call, "add_subparsers") || vp_python_ends_in(call, "set_defaults"))
            x->parsers = 2;
    }
    static const char *const reads[] = {"yaml", "OmegaConf", "json.load", "toml", "hydra"};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        x->reads_configs =
            x->reads_configs || memmem(r->at, (size_t)(r->end - r->at), reads[i], strlen(reads[i]));
    r->names       = x->scan->is_cut ? NULL : x;
    r->doc->parses = x->parsers > 0 || has_own_options(x->scan);

    r->doc->takes_model = takes_model(x->scan);
    return VP_OK;
}

/* ---- blocks ---- */

static bool is_in(const vp_scan *s, int block, int line)
{
    return line > s->blocks[block].header_end && line <= s->blocks[block].end;
}

/* The innermost function that the line stands in; -1: none. */
int vp_names_function_at(const vp_scan *s, int line)
{
    int found = -1;

    for (int i = 0; i < s->n_blocks; i++)
        if (!s->blocks[i].is_class && is_in(s, i, line))
            found = i; /* those within come later */
    return found;
}

/* The function around a block, for names: a class's own are not seen from within. */
int vp_names_function_around(const vp_scan *s, int block)
{
    do
        block = s->blocks[block].above;
    while (block >= 0 && s->blocks[block].is_class);
    return block;
}

int vp_names_class_of(const vp_scan *s, int function)
{
    int above = function < 0 ? -1 : s->blocks[function].above;

    return above >= 0 && s->blocks[above].is_class ? above : -1;
}

/* The only class or function of that name; -1: there is none, or two. */
int vp_names_block_named(const vp_scan *s, const vp_piece *name, bool is_class)
{
    int found = -1;

    for (int i = 0; i < s->n_blocks; i++)
        if (s->blocks[i].is_class == is_class && vp_piece_same(&s->blocks[i].name, name)) {
            if (found >= 0)
                return -1;
            found = i;
        }
    return found;
}

vp_status vp_python_names_class(vp_python_reader *r, int line)
{
    const vp_scan *s  = r->names ? r->names->scan : NULL;
    vp_status      st = VP_OK;

    for (int i = 0; s && i < s->n_blocks; i++) {
        const vp_scanned_block *b    = &s->blocks[i];
        vp_piece                rest = b->brackets, base;
        while (b->is_class && b->line == line && rest.at && vp_piece_next(&rest, &base)) {
            const char *own =
                vp_arena_printf(r->doc->arena, "%.*s", (int)(b->name.end - b->name.at), b->name.at);
            const char *name =
                vp_arena_printf(r->doc->arena, "%.*s", (int)(base.end - base.at), base.at);
            VP_TRY_ALLOC(r->err, own && name && (name = vp_python_imported(r, name)));
            if (vp_python_trains_model(name) && !vp_python_trains_model(own))
                VP_TRY(
                    vp_python_add_alias(r, vp_arena_printf(r->doc->arena, "%sTrainer", own), own));
        }
    }
out:
    return st;
}

bool vp_python_names_own(const vp_python_reader *r, const char *call)
{
    vp_piece name = {call, call + strlen(call), 0};
    int      k    = r->names ? vp_names_block_named(r->names->scan, &name, true) : -1;

    /* of TrainingArguments it is one of them */
    return k >= 0 && !(r->names->scan->blocks[k].brackets.at &&
                       memmem(r->names->scan->blocks[k].brackets.at,
                              (size_t)(r->names->scan->blocks[k].brackets.end -
                                       r->names->scan->blocks[k].brackets.at),
                              "Arguments", 9));
}

bool vp_python_names_in_class(const vp_python_reader *r, int line, int indent)
{
    const vp_scan *s     = r->names ? r->names->scan : NULL;
    int            found = -1;

    for (int i = 0; s && i < s->n_blocks; i++)
        if (line >= s->blocks[i].line && line <= s->blocks[i].end && indent > s->blocks[i].indent)
            found = i;
    return found >= 0 && s->blocks[found].is_class;
}

int vp_python_names_head(const vp_python_reader *r, int line)
{
    const vp_scan *s = r->names ? r->names->scan : NULL;

    for (int i = 0; s && i < s->n_blocks; i++)
        if (s->blocks[i].line == line)
            return s->blocks[i].header_end;
    return 0;
}

/* ---- values ---- */

static bool is_plain(const vp_value *v)
{
    if (v->call || v->kind == VP_VALUE_MAP)
        return v->call && vp_python_is_quantisation(v);
    if (v->kind == VP_VALUE_STRING && !v->quoted)
        return strncmp(v->text, "torch.", 6) == 0;
    for (const vp_value *m = v->kind == VP_VALUE_LIST ? v->first : NULL; m; m = m->next)
        if (m->call || m->kind >= VP_VALUE_LIST || (m->kind == VP_VALUE_STRING && !m->quoted))
            return false;
    return true;
}

/* The value that a piece of the text is; false: it is none that is known. */
vp_status vp_names_read_piece(vp_python_reader *r, const vp_piece *p, vp_value *v, bool any,
                              bool *ok)
{
    vp_python_names *x     = r->names;
    vp_piece         piece = p->at ? vp_piece_trim(*p) : *p;
    vp_python_reader inner = *r;
    vp_value         own   = *v;
    vp_err           err   = {0};
    vp_status        st;

    *ok = false;
    if (!piece.at || piece.at >= piece.end || x->depth >= MAX_DEPTH ||
        r->doc->n_values > VP_DOCUMENT_MAX_VALUES / 2 || (x->depth && strchr("[{(", *piece.at)))
        return VP_OK;
    inner.at = inner.line_start = piece.at;
    inner.end = piece.end, inner.line = piece.line, inner.unread = false, inner.err = &err;
    x->depth++;
    st = vp_python_read_value(&inner, v, 1);
    x->depth--;
    v->key = own.key, v->next = own.next, v->line = own.line, v->column = own.column;
    if (st == VP_ERR_NOMEM)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    vp_python_skip(&inner, true);
    *ok = st == VP_OK && !inner.unread && inner.at >= inner.end && (any || is_plain(v));
    return VP_OK;
}

static bool same_scalar(const vp_value *a, const vp_value *b)
{
    return a->kind == b->kind && a->kind < VP_VALUE_LIST && !a->call && !b->call &&
           (a->kind == VP_VALUE_NULL || (a->text && b->text && strcmp(a->text, b->text) == 0));
}

/* dict(train_dataset=data, data_collator=collator): its keys are known. */
static bool is_dictionary(const vp_value *v)
{
    return v->kind == VP_VALUE_MAP && !v->call && v->first &&
           !vp_value_member(v, VP_PYTHON_UNKNOWN);
}

/* The text of a function, head and all. */
static vp_piece text_of(const vp_python_reader *r, int function)
{
    const vp_scanned_block *b    = &r->names->scan->blocks[function];
    vp_piece                text = {b->name.at, b->name.end, b->line};

    for (int line = b->line; text.end < r->end && line <= b->end; text.end++)
        line += *text.end == '\n';
    return text;
}

/* for name, module in model.named_modules(): if isinstance(module, torch.nn.Linear): ..., and lm_head left out: what peft calls
 * all-linear, as scripts wrote it before it had that word (https://github.com/artidoro/qlora, qlora.py). */
static bool lists_linear_layers(const vp_python_reader *r, int function)
{
    static const char *const        signs[]   = {".named_modules(", "isinstance(", "lm_head"},
                             *const classes[] = {"nn.Linear", "Linear4bit", "Linear8bitLt"};
    vp_piece                        text      = text_of(r, function);
    bool                            all = true, any = false;

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        all = all &&
              memmem(text.at, (size_t)(text.end - text.at), signs[i], strlen(signs[i])) != NULL;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        any = any || memmem(text.at, (size_t)(text.end - text.at), classes[i], strlen(classes[i]));
    return all && any;
}

/* Whether what stands right within `if x:` of a function's body runs; not *ok: it stands elsewhere. */
static vp_status decide_around(vp_python_reader *r, int function, const vp_scanned_value *value,
                               vp_python_runs *runs, bool *ok)
{
    const vp_scanned_block *b     = &r->names->scan->blocks[function];
    vp_python_reader        inner = *r;
    const char             *line  = value->value.at, *first;
    vp_status               st    = VP_OK;

    *ok        = false;
    inner.line = value->name.line;
    while (line > r->begin && line[-1] != '\n')
        line--;
    do {
        if (line <= r->begin || inner.line <= b->header_end)
            return VP_OK;
        inner.line--;
        for (line--; line > r->begin && line[-1] != '\n';)
            line--;
        first = line + strspn(line, " \t");
    } while (first - line > b->body || *first == '\n' || *first == '#');
    if (first - line != b->body || strncmp(first, "if ", 3) != 0)
        return VP_OK;
    const char *colon = vp_piece_find(&(vp_piece){first + 3, r->end, inner.line}, ":\n");
    if (!colon || *colon != ':')
        return VP_OK;
    r->names->depth++;
    st = vp_python_decide(&inner, first + 3, colon, runs);
    r->names->depth--;
    *ok = st == VP_OK;
    return st;
}

/* Of what a function returns in one place or another that which it does; NULL: nobody knows. */
static vp_status value_returned(vp_python_reader *r, int f, const vp_scanned_value **out)
{
    const vp_scan *s    = r->names->scan;
    vp_python_runs runs = VP_PYTHON_RUNS;
    bool           ok   = true;
    vp_status      st   = VP_OK;

    *out = NULL;
    for (int i = 0; i < s->n_values; i++) {
        const vp_scanned_value *one = &s->values[i];
        if (one->block != f || !vp_piece_is(&one->name, "return"))
            continue;
        if (!one->value.at || one->place >= 0)
            goto out;
        if (one->indent != s->blocks[f].body)
            VP_TRY(decide_around(r, f, one, &runs, &ok));
        if (!ok || runs == VP_PYTHON_MAYBE)
            goto out;
        if (one->indent == s->blocks[f].body || runs == VP_PYTHON_RUNS) {
            *out = one;
            goto out;
        }
    }
out:
    return st;
}

vp_status vp_python_names_returned(vp_python_reader *r, vp_value *v)
{
    vp_python_names        *x     = r->names;
    const vp_scan          *s     = x ? x->scan : NULL;
    const vp_scanned_value *only  = NULL;
    vp_piece                name  = {v->call, v->call + strlen(v->call), r->line};
    int                     f     = s ? vp_names_block_named(s, &name, false) : -1;
    vp_value                found = {.key = v->key, .line = v->line, .column = v->column};
    bool                    ok    = false;
    vp_status               st    = VP_OK;

    if (f < 0 || s->blocks[f].is_decorated || x->depth >= MAX_DEPTH)
        goto out;
    VP_TRY(value_returned(r, f, &only));
    if (!only)
        goto out;
    if (lists_linear_layers(r, f)) {
        v->kind = VP_VALUE_STRING, v->text = "all-linear", v->quoted = true;
        v->call = NULL, v->first = v->last = NULL, v->n_children = 0, v->index = NULL;
        goto out;
    }
    VP_TRY(vp_names_read_piece(r, &only->value, &found, true, &ok));
    if (ok && (is_plain(&found) || is_dictionary(&found)))
        found.next = v->next, *v = found;
out:
    return st;
}

/* What else may give the value: an option of this name, or whoever calls a function that has it. */
vp_status vp_names_be_default(vp_python_reader *r, vp_value *v, const vp_piece *name,
                              const char *type, int line)
{
    bool has_dashes = name->at < name->end && *name->at == '-';

    v->option = vp_arena_printf(
        r->doc->arena, "%s%.*s",
        has_dashes || name->at == name->end || strcmp(type, VP_OPTION_PARAMETER) == 0 ? "" : "--",
        (int)(name->end - name->at), name->at);
    if (!v->option)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    v->option_type = type, v->option_line = line;
    return VP_OK;
}

/* ---- functions ---- */

/* The parameter of that name, by its place; -1: none. *otherwise: its default. *annotation: what it is said to be. *is_self: it is a
 * method's first. */
int vp_names_parameter_of(const vp_scan *s, int function, const vp_piece *name, vp_piece *otherwise,
                          vp_piece *annotation, bool *is_self)
{
    vp_piece rest  = s->blocks[function].brackets, one;
    int      place = 0;

    for (; rest.at && vp_piece_next(&rest, &one); place++) {
        const char *colon = vp_piece_find(&one, ":="), *equals = vp_piece_find(&one, "=");
        vp_piece    own = vp_piece_trim((vp_piece){one.at, colon ? colon : one.end, one.line});
        while (own.at < own.end && *own.at == '*')
            own.at++;
        if (!vp_piece_same(&own, name))
            continue;
        *is_self    = place == 0 && vp_names_class_of(s, function) >= 0;
        *otherwise  = (vp_piece){equals ? equals + 1 : NULL, one.end, one.line};
        *annotation = (vp_piece){colon && *colon == ':' ? colon + 1 : NULL,
                                 equals ? equals : one.end, one.line};
        return *one.at == '*' ? 1 << 16 : place;
    }
    return -1;
}

int vp_names_parameter(const vp_scan *s, int function, const vp_piece *name, bool *of_method)
{
    vp_piece otherwise, annotation;
    bool     is_self;

    *of_method = vp_names_class_of(s, function) >= 0;
    return vp_names_parameter_of(s, function, name, &otherwise, &annotation, &is_self);
}

/* What a call gives a parameter. false: the call gives more than the text says. */
bool vp_names_argument(const vp_piece *brackets, const vp_piece *name, int place, vp_piece *out)
{
    vp_piece rest = *brackets, one;
    int      n    = 0;

    out->at = NULL;
    while (vp_piece_next(&rest, &one)) {
        const char *equals = vp_piece_find(&one, "=");
        vp_piece    key    = {one.at, equals ? equals : one.at, one.line};
        if (*one.at == '*')
            return false;
        while (key.end > key.at && key.end[-1] == ' ')
            key.end--;
        if (equals ? vp_piece_same(&key, name) : n == place)
            *out = vp_piece_trim((vp_piece){equals ? equals + 1 : one.at, one.end, one.line});
        n += !equals;
    }
    return true;
}

/* Whether a call is of this function: by its name, of a method by the last of it, of __init__ by its class's. */
bool vp_names_is_call_of(const vp_scan *s, int function, const vp_scanned_call *call)
{
    const vp_scanned_block *f = &s->blocks[function];
    int class                 = vp_names_class_of(s, function);
    const char *dot  = memrchr(call->name.at, '.', (size_t)(call->name.end - call->name.at));
    vp_piece    last = {dot ? dot + 1 : call->name.at, call->name.end, call->name.line};

    if (call->name.line >= f->line && call->name.line <= f->header_end)
        return false; /* def f( */
    if (class >= 0 && vp_piece_is(&f->name, "__init__"))
        return vp_piece_same(&s->blocks[class].name, &last) &&
               call->name.line != s->blocks[class].line;
    return vp_piece_same(&f->name, &last) && (class >= 0 || !dot);
}

/* What all calls of a function give a parameter. *same: one does by a name that is its own. */
static vp_status parameter_value(vp_python_reader *r, int function, const vp_piece *name, int place,
                                 const vp_piece *otherwise, vp_value *v, bool *ok, bool *same)
{
    const vp_scan          *s = r->names->scan;
    const vp_scanned_block *f = &s->blocks[function];
    vp_value                other;
    vp_piece                given;
    int                     n = 0, skipped = vp_names_class_of(s, function) >= 0;
    bool                    all = true;
    vp_status               st  = VP_OK;

    *ok = *same = false;
    for (int i = 0; i < s->n_calls && all; i++) {
        if (!vp_names_is_call_of(s, function, &s->calls[i]))
            continue;
        all = vp_names_argument(&s->calls[i].brackets, name, place - skipped, &given);
        if (!all)
            goto out;
        *same = given.at && vp_piece_same(&given, name) &&
                vp_names_function_at(s, given.line) != function;
        if (!given.at)
            given = *otherwise;
        other = *v;
        VP_TRY(vp_names_read_piece(r, &given, &other, false, &all));
        all = all && (n == 0 || same_scalar(v, &other));
        if (n++ == 0)
            *v = other;
    }
    if (n == 0 && !f->is_mentioned && !f->is_decorated) {
        VP_TRY(vp_names_read_piece(r, otherwise, v, false, &all));
        if (all && !v->option)
            VP_TRY(vp_names_be_default(r, v, name, VP_OPTION_PARAMETER, otherwise->line));
        n = all;
    }
    *ok = n > 0 && all && !f->is_mentioned && !f->is_decorated;
out:
    return st;
}

/* ---- what runs ---- */

vp_python_reached *vp_python_reached_new(const vp_python_reader *r)
{
    vp_python_reached *x = vp_arena_alloc(r->doc->arena, sizeof *x);

    if (!x)
        return NULL;
    x->n_lines = 2;
    for (const char *p = r->at; p < r->end; p++)
        x->n_lines += *p == '\n';
    x->lines  = vp_arena_array(r->doc->arena, x->n_lines, 1);
    x->blocks = vp_arena_array(r->doc->arena, VP_SCAN_BLOCKS, 1);
    return x->lines && x->blocks ? x : NULL;
}

static bool is_followed(const vp_scan *s, int f)
{
    const vp_scanned_block *b = &s->blocks[f];

    return !b->is_class && !b->is_mentioned && !b->is_decorated && !b->is_command &&
           vp_names_class_of(s, f) < 0;
}

/* In a function that nothing calls here: for people to try, or for other modules. */
static bool is_spare(const vp_scan *s, int line)
{
    int f = vp_names_function_at(s, line);

    if (f < 0 || !is_followed(s, f))
        return false;
    for (int i = 0; i < s->n_calls; i++)
        if (vp_names_is_call_of(s, f, &s->calls[i]))
            return false;
    return true;
}

/* Whether a program, "python train.py tune", says the name of a function that is a command of its own. */
static bool is_said(const char *program, const vp_piece *name)
{
    for (const char *p = program; p && *p; p += strcspn(p, " "), p += *p == ' ') {
        size_t n = strcspn(p, " "), i = 0;
        while (i < n && (ptrdiff_t)i < name->end - name->at &&
               (p[i] == name->at[i] || (p[i] == '-' && name->at[i] == '_')))
            i++;
        if (n && i == n && (ptrdiff_t)n == name->end - name->at)
            return true;
    }
    return false;
}

/* Of several commands that a script has (typer's, click's) the one that its words say. */
static bool is_other_command(const vp_python_reader *r, int f)
{
    const vp_scan *s       = r->names->scan;
    const char    *program = r->doc->command ? r->doc->command->program : NULL;

    if (!s->blocks[f].is_command || !program || is_said(program, &s->blocks[f].name))
        return false;
    for (int i = 0; i < s->n_blocks; i++)
        if (s->blocks[i].is_command && is_said(program, &s->blocks[i].name))
            return true;
    return false;
}

bool vp_python_reach_functions(const vp_python_reader *r, vp_python_reached *x)
{
    const vp_scan *s       = r->names ? r->names->scan : NULL;
    bool           changed = false;
    /* a trainer is made where the script itself comes: it is run as it stands, and not another module's to call into */
    bool is_run = s && r->trains_line && !is_spare(s, r->trains_line);

    for (int f = 0; s && f < s->n_blocks; f++) {
        int best = VP_REACH_NEVER, n = 0;
        if (is_other_command(r, f)) {
            changed      = changed || x->blocks[f] != VP_REACH_NEVER;
            x->blocks[f] = VP_REACH_NEVER;
        }
        if (!is_followed(s, f))
            continue;
        for (int i = 0; i < s->n_calls; i++) {
            int line = s->calls[i].name.line;
            if (!vp_names_is_call_of(s, f, &s->calls[i]) || line >= x->n_lines || is_spare(s, line))
                continue;
            int by = vp_python_reach_of(r, x, line);
            by     = by > x->lines[line] ? by : x->lines[line];
            best   = by < best ? by : best;
            n++;
        }
        best         = n ? best : is_run ? VP_REACH_NEVER : VP_REACH_RUNS;
        changed      = changed || x->blocks[f] != best;
        x->blocks[f] = (unsigned char)best;
    }
    return changed;
}

vp_python_reach vp_python_reach_of(const vp_python_reader *r, const vp_python_reached *x, int line)
{
    const vp_scan *s     = r->names ? r->names->scan : NULL;
    int            least = VP_REACH_RUNS;

    for (int f = 0; s && f < s->n_blocks; f++)
        if (line >= s->blocks[f].line && line <= s->blocks[f].end && x->blocks[f] > least &&
            !(line <= s->blocks[f].header_end))
            least = x->blocks[f];
    return (vp_python_reach)least;
}

/* ---- attributes of classes ---- */

/* The only value of an attribute of the class's, and the number of all that it may have. */
static const vp_scanned_value *attribute_of(const vp_scan *s, int class, const vp_piece *name,
                                            int *n)
{
    const vp_scanned_value *only = NULL;

    *n = 0;
    for (int i = 0; i < s->n_values; i++) {
        const vp_scanned_value *a    = &s->values[i];
        const char             *dot  = memrchr(a->name.at, '.', (size_t)(a->name.end - a->name.at));
        vp_piece                last = {dot ? dot + 1 : a->name.at, a->name.end, a->name.line};
        vp_piece                self = {a->name.at, dot, a->name.line};
        bool is_selfs = dot && (vp_piece_is(&self, "self") || vp_piece_is(&self, "cls"));
        if (!vp_piece_same(&last, name) || (!dot && a->block != class) ||
            (is_selfs && vp_names_class_of(s, a->block) != class))
            continue;
        int body = a->block >= 0 ? s->blocks[a->block].body : -1;
        *n += 1 + (a->indent != body); /* in a branch, or of whatever object: none */
        if (!dot || (is_selfs && vp_piece_is(&s->blocks[a->block].name, "__init__")))
            only = a;
        else
            *n += 1;
    }
    return only;
}

/* Of a base whose attributes nobody sees here an object may have others. */
static int base_of(const vp_scan *s, int class, bool *is_known)
{
    static const char *const plain[] = {"object",
                                        "BaseModel",
                                        "pydantic.BaseModel",
                                        "ABC",
                                        "NamedTuple",
                                        "SimpleNamespace",
                                        "LightningDataModule",
                                        "LightningModule",
                                        "nn.Module",
                                        "torch.nn.Module",
                                        "L.LightningDataModule",
                                        "L.LightningModule",
                                        "pl.LightningDataModule",
                                        "pl.LightningModule"};
    vp_piece                 rest    = s->blocks[class].brackets, one;
    int                      base    = -1;

    *is_known = true;
    while (rest.at && vp_piece_next(&rest, &one)) {
        bool known = false;
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
            known = known || vp_piece_is(&one, plain[i]);
        if (known)
            continue;
        *is_known = base < 0 && vp_names_block_named(s, &one, true) >= 0;
        base      = vp_names_block_named(s, &one, true);
        if (!*is_known)
            return -1;
    }
    return base;
}

/* field(default=4): 4. */
static bool take_field(vp_value *v)
{
    const vp_value *own = v->call && vp_python_ends_in(v->call, "field")
                              ? vp_value_member(v, "default")
                          : v->call && vp_python_ends_in(v->call, "Field")
                              ? (vp_value_member(v, "default") ? vp_value_member(v, "default")
                                                               : vp_value_member(v, "0"))
                              : NULL;

    if (own)
        vp_python_be_same(v, own);
    return is_plain(v);
}

static bool has_init(const vp_scan *s, int class)
{
    for (int i = 0; i < s->n_blocks; i++)
        if (s->blocks[i].above == class && vp_piece_is(&s->blocks[i].name, "__init__"))
            return true;
    return false;
}

static vp_status attribute_value(vp_python_reader *r, const vp_owner *of, const vp_piece *name,
                                 vp_value *v, vp_python_meant *meant)
{
    const vp_scan          *s     = r->names->scan;
    const vp_scanned_value *a     = NULL;
    vp_piece                given = {0};
    bool                    ok = false, is_known = true;
    int                     n  = 0;
    vp_status               st = VP_OK;

    *meant = VP_PYTHON_HIDDEN;
    if (s->sets_by_name)
        goto out;
    for (int class = of->class, depth = 0; class >= 0 && depth < MAX_DEPTH && is_known; depth++) {
        int base = base_of(s, class, &is_known);
        if (!is_known &&
            !of->options) /* of a dataclass the class's own fields count, whatever it is built on */
            goto out;
        a = attribute_of(s, class, name, &n);
        if (n == 0 && !is_known)
            goto out;
        if (n == 0) {
            class = base;
            continue;
        }
        if (n > 1)
            goto out;
        break;
    }
    if (of->called.at && of->called.at < of->called.end && !has_init(s, of->class)) {
        vp_piece first = {0};
        if (!vp_names_argument(&of->called, name, -1, &given) ||
            (vp_names_argument(&of->called, &(vp_piece){0}, 0, &first) && first.at))
            goto out; /* by place: which field that is depends on all before it */
    }
    if (!given.at && (n != 1 || !a))
        goto out;
    VP_TRY(vp_names_read_piece(r, given.at ? &given : &a->value, v, true, &ok));
    if (!ok || !take_field(v))
        goto out;
    if (of->options && !v->option) {
        VP_TRY(vp_names_be_default(r, v, name, "", a ? a->name.line : 0));
        v->option_letters = "";
    }
    *meant = VP_PYTHON_MEANT;
out:
    return st;
}

/* ---- a name ---- */

/* Whether the function itself gives a parameter another value, and whether in any case. */
static bool is_given_again(const vp_scan *s, int function, const vp_piece *name, bool *always)
{
    bool again = false;

    *always = true;
    for (int i = 0; i < s->n_values; i++) {
        const vp_scanned_value *a = &s->values[i];
        if (a->block != function || !vp_piece_same(&a->name, name))
            continue;
        again   = true;
        *always = *always && a->indent == s->blocks[function].body;
    }
    return again;
}

/* What is not read yet, where a function is called below: the only value that the script gives the name. */
static vp_status only_value(vp_python_reader *r, const vp_piece *name, vp_value *v,
                            vp_python_meant *meant)
{
    const vp_scan          *s    = r->names->scan;
    const vp_scanned_value *only = NULL;
    bool                    ok   = false;
    int                     n    = 0;
    vp_status               st   = VP_OK;

    for (int i = 0; i < s->n_values; i++)
        if (vp_piece_same(&s->values[i].name, name))
            only = &s->values[i], n++;
    if (n == 1 && only->place < 0)
        VP_TRY(vp_names_read_piece(r, &only->value, v, false, &ok));
    if (ok)
        *meant = VP_PYTHON_MEANT;
out:
    return st;
}

vp_status vp_python_names_value(vp_python_reader *r, const char *name, const vp_value *above,
                                vp_value *v, vp_python_meant *meant)
{
    vp_python_names *x   = r->names;
    const char      *dot = strchr(name, '.'), *end = name + strlen(name);
    vp_piece         whole = {name, end, r->line}, otherwise, annotation;
    vp_status        st    = VP_OK;
    bool             ok, same, always, is_self;

    *meant = VP_PYTHON_NOBODYS;
    if (!x || x->depth >= MAX_DEPTH)
        goto out;
    if (dot) {
        vp_piece before = {name, dot, r->line}, behind = {dot + 1, end, r->line};
        vp_owner of = memchr(behind.at, '.', (size_t)(end - behind.at))
                          ? (vp_owner){.kind = VP_OWNER_NOTHING}
                          : vp_names_owner(r, &before, r->line, 0);
        if (of.kind == VP_OWNER_CLASS)
            VP_TRY(attribute_value(r, &of, &behind, v, meant));
        else if (of.kind == VP_OWNER_OPTIONS)
            VP_TRY(vp_names_option(r, &behind, v, meant));
        goto out;
    }
    for (int f = vp_names_function_at(x->scan, r->line); f >= 0;
         f     = vp_names_function_around(x->scan, f)) {
        int place = vp_names_parameter_of(x->scan, f, &whole, &otherwise, &annotation, &is_self);
        /* @app.cell def _(model): a cell of marimo's, which other cells hand what they gave the name */
        if (place >= 0 && x->scan->blocks[f].is_decorated &&
            vp_piece_is(&x->scan->blocks[f].name, "_"))
            break;
        if (place < 0) {
            if (is_given_again(x->scan, f, &whole, &always))
                break; /* a name of the function's own */
            continue;
        }
        if (is_given_again(x->scan, f, &whole, &always)) {
            *meant = always && above && above->line > x->scan->blocks[f].header_end
                         ? VP_PYTHON_NOBODYS
                         : VP_PYTHON_HIDDEN;
            break;
        }
        same = false;
        if (x->scan->blocks[f].is_command)
            VP_TRY(vp_names_command_option(r, &x->scan->blocks[f], &whole, &annotation, &otherwise,
                                           v, &ok));
        else
            VP_TRY(parameter_value(r, f, &whole, place, &otherwise, v, &ok, &same));
        *meant = ok ? VP_PYTHON_MEANT : same ? VP_PYTHON_NOBODYS : VP_PYTHON_HIDDEN;
        break;
    }
    if (*meant == VP_PYTHON_NOBODYS && x->depth && !above)
        VP_TRY(only_value(r, &whole, v, meant));
out:
    return st;
}
