/* trainers/files/python_trained.c: names are followed from the trainer's call back to what loads a model, through assignments, functions
 * and what they return; requires_grad is kept by the model that it is said of. */
#include "trainers/files/python_trained.h"

#include "trainers/files/python_adapters.h"
#include "trainers/files/python_blocks.h"
#include "trainers/files/python_calls.h"
#include "trainers/files/python_names_internal.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { MAX_OWNERS = 16, MAX_SEEN = 64, MAX_PARTS = 64, MAX_LINES = 500, MAX_DECLINED = 16 };

/* What is said of one model's weights. */
typedef struct owner {
    vp_piece name; /* at NULL: of some, nobody sees whose */
    int      before,
        after; /* lines that leave weights untrained, before there are adapters and with them; 0: none does */
} owner;

typedef struct vp_python_trained {
    vp_piece model; /* what a trainer is given; at NULL: nothing is seen */
    int      line;  /* of its call */
    vp_piece declined[MAX_DECLINED];
    int      n_declined;
    owner owners[MAX_OWNERS]; /* the first one is nobody's: what more names than these say is its */
    int   n_owners;
} vp_python_trained;

vp_status vp_python_trained_begin(vp_python_reader *r)
{
    r->trained = vp_arena_alloc(r->doc->arena, sizeof *r->trained);
    if (!r->trained)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    *r->trained = (vp_python_trained){.n_owners = 1};
    return VP_OK;
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_dotted(char c)
{
    return is_letter(c) || c == '.';
}

static const char *find_text(const char *from, const char *end, const char *text)
{
    return end > from ? memmem(from, (size_t)(end - from), text, strlen(text)) : NULL;
}

static bool begins(const char *p, const char *end, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(end - p) > n && memcmp(p, word, n) == 0 && !is_letter(p[n]);
}

/* ---- the model that is trained ---- */

void vp_python_decline(vp_python_reader *r, const vp_piece *p)
{
    if (r->trained->n_declined < MAX_DECLINED)
        r->trained->declined[r->trained->n_declined++] = *p;
}

/* peft_config=config if CONDITION else None: whether a trainer is given adapters, the condition says. */
static vp_status note_choice(vp_python_reader *r, const vp_piece *brackets)
{
    static const char name[] = "peft_config";
    vp_piece          given, side[2];
    vp_python_runs    runs;
    bool              is_one;
    vp_status         st = VP_OK;

    if (!vp_names_argument(brackets, &(vp_piece){name, name + sizeof name - 1, 0}, -1, &given) ||
        !given.at)
        return VP_OK;
    const char *close =
        *given.at == '(' ? vp_piece_find(&(vp_piece){given.at + 1, given.end, 0}, ")") : NULL;
    vp_piece inner = {given.at + 1, close, given.line};
    VP_TRY(vp_python_choose(r, close && close + 1 == given.end ? &inner : &given, &side[0],
                            &side[1], &runs, &is_one));
    if (!is_one)
        goto out;
    if (runs != VP_PYTHON_MAYBE) {
        if (vp_piece_is(&side[runs == VP_PYTHON_NEVER], "None"))
            vp_python_decline(r, &given);
    } else if (vp_piece_is(&side[0], "None") != vp_piece_is(&side[1], "None")) {
        VP_TRY(
            vp_document_remark(r->doc, given.line, NULL, false, r->err,
                               "peft_config in line %d: whether it is None a condition says that "
                               "the text does not decide; with adapters the memory is another",
                               given.line));
        r->doc->last_remark->is_gap = true;
    }
out:
    return st;
}

vp_status vp_python_note_trained(vp_python_reader *r, const char *from, int line)
{
    static const char model[] = "model";
    const char       *open = from, *call = NULL;
    vp_piece          given;

    if (strncmp(from, "class ", 6) == 0 || strncmp(from, "def ", 4) == 0)
        return VP_OK;
    while ((call = vp_python_next_call(r, from, &open)) && !vp_python_trains_model(call))
        ;
    if (!call)
        return VP_OK;
    vp_piece    brackets = {open, r->at, line};
    const char *close    = vp_piece_find(&brackets, ")");
    brackets.end         = close ? close : r->at;
    r->trained->model.at = NULL, r->trained->line = line;
    if (vp_names_argument(&brackets, &(vp_piece){model, model + 5, 0}, 0, &given) && given.at)
        r->trained->model = given, r->trained->model.line = line;
    return note_choice(r, &brackets);
}

/* What is followed, and which of the parts that was met on the way. */
typedef struct search {
    const vp_python_reader *r;
    vp_piece                seen[MAX_SEEN];
    int                     seen_in[MAX_SEEN], n_seen;
    bool returned[VP_SCAN_BLOCKS]; /* functions whose values were followed: one may call itself */
    const vp_document *met[MAX_PARTS];
    int                n_met;
} search;

static bool is_met(const search *x, const vp_document *part)
{
    for (int i = 0; i < x->n_met; i++)
        if (x->met[i] == part)
            return true;
    return false;
}

static int last_line(const vp_piece *p)
{
    int line = p->line;

    for (const char *at = p->at; at < p->end; at++)
        line += *at == '\n';
    return line;
}

static void follow_name(search *x, const vp_piece *name, int block);

/* Models that a piece of the text loads, and what the names in it are. place: of what a function returns as several; -1: all. */
static void follow_piece(search *x, const vp_piece *p, int block, int place)
{
    const vp_scan *s    = x->r->names->scan;
    int            line = p->line, last = last_line(p);

    for (const vp_document *part = x->r->doc->parts; part; part = part->next)
        if (part->call && vp_python_loads_model(part->call) && part->root->line >= p->line &&
            part->root->line <= last && !is_met(x, part) && x->n_met < MAX_PARTS)
            x->met[x->n_met++] = part;
    for (const char *at = p->at; at < p->end;) {
        if (*at == '"' || *at == '\'') {
            at = vp_piece_behind_string(at, p->end, &line);
            continue;
        }
        if (!is_letter(*at)) {
            at++;
            continue;
        }
        vp_piece    name = {at, at, p->line};
        const char *next;
        while (name.end < p->end && is_dotted(*name.end))
            name.end++;
        at = next = name.end;
        while (next < p->end && *next == ' ')
            next++;
        int  f      = next < p->end && *next == '(' ? vp_names_block_named(s, &name, false) : -1;
        bool is_new = f >= 0 && !x->returned[f];
        if (f >= 0)
            x->returned[f] = true;
        for (int i = 0; is_new && i < s->n_values; i++) {
            vp_piece one = s->values[i].value, rest = one, each;
            if (s->values[i].block != f || !vp_piece_is(&s->values[i].name, "return") || !one.at)
                continue;
            for (int k = 0; place >= 0 && vp_piece_next(&rest, &each); k++)
                one = k == place ? each : one;
            follow_piece(x, &one, f, -1);
        }
        bool is_keyword = next < p->end && *next == '=' && next + 1 < p->end && next[1] != '=';
        if (f < 0 && !is_keyword && !isdigit((unsigned char)*name.at))
            follow_name(x, &name, block);
    }
}

static void follow_name(search *x, const vp_piece *name, int block)
{
    const vp_scan *s    = x->r->names->scan;
    const char    *dot  = memchr(name->at, '.', (size_t)(name->end - name->at));
    bool           self = dot && dot - name->at == 4 && memcmp(name->at, "self", 4) == 0;
    vp_piece       own  = {name->at, dot && !self ? dot : name->end, name->line}, given;
    bool           of_method;

    for (int i = 0; i < x->n_seen; i++)
        if (x->seen_in[i] == block && vp_piece_same(&x->seen[i], &own))
            return;
    if (x->n_seen == MAX_SEEN)
        return;
    x->seen[x->n_seen] = own, x->seen_in[x->n_seen++] = block;
    for (;; block = vp_names_function_around(s, block)) {
        bool found = false;
        for (int i = 0; i < s->n_values; i++) {
            const vp_scanned_value *v = &s->values[i];
            if ((v->block != block && !self) || !vp_piece_same(&v->name, &own))
                continue;
            found = true;
            if (v->value.at)
                follow_piece(x, &v->value, v->block, v->place);
        }
        int place = block < 0 ? -1 : vp_names_parameter(s, block, &own, &of_method);
        for (int i = 0; place >= 0 && i < s->n_calls; i++)
            if (vp_names_is_call_of(s, block, &s->calls[i]) &&
                vp_names_argument(&s->calls[i].brackets, &own, place - of_method, &given) &&
                given.at)
                follow_piece(x, &given, vp_names_function_at(s, given.line), -1);
        if (found || place >= 0 || block < 0)
            return;
    }
}

static bool is_model(const vp_document *part)
{
    return part->call && vp_python_loads_model(part->call);
}

/* `del teacher` and its like. */
static bool is_freed(const vp_python_reader *r, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = r->begin; (p = find_text(p, r->end, "del ")) != NULL; p++) {
        const char *word = p + 4;
        if ((p == r->begin || !is_letter(p[-1])) && r->end - word > (ptrdiff_t)n &&
            strncmp(word, name, n) == 0 && !is_letter(word[n]))
            return true;
    }
    return false;
}

/* A model beside the trained one. That of a method which has a reference is counted by its method. */
static vp_status say_beside(vp_python_reader *r, const vp_document *part)
{
    vp_status st = VP_OK;

    if (part->root->line > r->trained->line || (part->variable && is_freed(r, part->variable)) ||
        (r->trainer && strcmp(r->trainer, "SFTTrainer") != 0 &&
         strcmp(r->trainer, "Trainer") != 0 && strcmp(r->trainer, "Seq2SeqTrainer") != 0 &&
         part->variable && strstr(part->variable, "ref")))
        goto out;
    VP_TRY(vp_document_remark(
        r->doc, part->root->line, NULL, false, r->err,
        "%s in line %d: a model beside the one that is trained; what it takes "
        "on the card is missing from this answer",
        part->variable && strcmp(part->variable, "return") != 0 ? part->variable
                                                                : "from_pretrained()",
        part->root->line));
    r->doc->last_remark->is_uncounted = true;
out:
    return st;
}

/* Two models by names of their own, and no way to tell which is trained. */
static vp_status say_either(vp_python_reader *r)
{
    const vp_document *first = NULL, *other = NULL;
    vp_status          st = VP_OK;

    for (vp_document **end = &r->doc->parts; *end;) {
        vp_document *part      = *end;
        bool         is_second = is_model(part) && first && part->variable && first->variable &&
                         strcmp(part->variable, first->variable) != 0;
        if (is_model(part) && !first)
            first = part;
        other = is_second && !other ? part : other;
        if (is_second)
            *end = part->next;
        else
            end = &part->next;
    }
    if (!other)
        goto out;
    VP_TRY(vp_document_remark(
        r->doc, first->root->line, NULL, false, r->err,
        "%s in line %d beside %s in line %d: which of these models is trained the text does not "
        "say",
        first->variable, first->root->line, other->variable, other->root->line));
    r->doc->last_remark->is_uncounted = true;
out:
    return st;
}

static vp_status keep_trained(vp_python_reader *r, const search *x)
{
    vp_status st = VP_OK;

    if (!r->trained->line)
        return VP_OK;
    if (!x->n_met) {
        VP_TRY(say_either(r));
        goto out;
    }
    for (vp_document **end = &r->doc->parts; *end;) {
        if (is_model(*end) && !is_met(x, *end)) {
            VP_TRY(say_beside(r, *end));
            *end = (*end)->next;
        } else {
            end = &(*end)->next;
        }
    }
out:
    return st;
}

/* ---- adapters that nobody is given ---- */

/* Whether the name is used: a word outside strings and comments that is no target of an assignment and no argument's own name. */
static bool is_used(const vp_python_reader *r, const char *name)
{
    size_t n    = strlen(name);
    int    line = 0;

    for (const char *p = r->begin; p < r->end;) {
        const vp_piece *declined = NULL;
        for (int i = 0; i < r->trained->n_declined && !declined; i++)
            declined = r->trained->declined[i].at == p ? &r->trained->declined[i] : NULL;
        if (declined && declined->end > p) {
            p = declined->end;
        } else if (*p == '"' || *p == '\'') {
            p = vp_piece_behind_string(p, r->end, &line);
        } else if (*p == '#') {
            while (p < r->end && *p != '\n')
                p++;
        } else if (is_dotted(*p)) {
            const char *from = p, *next;
            while (p < r->end && is_letter(*p))
                p++;
            for (next = p; next < r->end && strchr(" \t", *next);)
                next++;
            bool is_target =
                next < r->end && *next == '=' && !(next + 1 < r->end && next[1] == '=');
            if ((from == r->begin || from[-1] == '\n') &&
                (begins(from, r->end, "from") || begins(from, r->end, "import"))) {
                while (p < r->end && *p != '\n')
                    p++; /* a module's name is none of these */
                continue;
            }
            if ((size_t)(p - from) == n && memcmp(from, name, n) == 0 && !is_target &&
                !(next < r->end && *next == ':'))
                return true;
            p += p == from; /* a dot */
        } else {
            p++;
        }
    }
    return false;
}

static vp_status drop_unused(vp_python_reader *r)
{
    vp_status st = VP_OK;

    if (!r->trained->line)
        return VP_OK; /* a piece of a script, whose rest hands them on */
    for (vp_document **end = &r->doc->parts; *end;) {
        const vp_document *part = *end;
        if (!part->call || !vp_python_ends_in(part->call, "LoraConfig") || !part->variable ||
            strcmp(part->variable, "return") == 0 || is_used(r, part->variable)) {
            end = &(*end)->next;
            continue;
        }
        VP_TRY(vp_document_remark(
            r->doc, part->root->line, NULL, false, r->err,
            "%s is handed to nobody: LoraConfig() alone makes no adapters, and none are counted",
            part->variable));
        *end = part->next;
    }
out:
    return st;
}

/* ---- requires_grad ---- */

typedef enum sets { SETS_TRUE, SETS_FALSE, SETS_LORA, SETS_OTHER } sets;
typedef enum where { WHERE_ALL, WHERE_LORA, WHERE_NOT_LORA, WHERE_SOME } where;

/* Whether a text asks for "lora" in a name. */
static bool asks_lora(const char *from, const char *end, bool *is_not)
{
    const char *quote = NULL;

    for (const char *p = from; p + 5 < end && !quote; p++)
        if ((*p == '"' || *p == '\'') && strncasecmp(p + 1, "lora", 4) == 0)
            quote = p;
    if (!quote)
        return false;
    const char *behind = memchr(quote + 1, *quote, (size_t)(end - quote - 1));
    if (!behind || find_text(from, end, " and ") || find_text(from, end, " or "))
        return false;
    for (behind++; behind < end && *behind == ' ';)
        behind++;
    *is_not = strncmp(behind, "not in ", 7) == 0 || find_text(from, quote, "not ");
    return *is_not ? find_text(behind, end, "in ") != NULL : strncmp(behind, "in ", 3) == 0;
}

/* The line before at, its letters from..end; false: there is none. */
static bool line_before(const vp_python_reader *r, const char *at, const char **from,
                        const char **end)
{
    if (at <= r->begin)
        return false;
    *end  = at - 1;
    *from = *end;
    while (*from > r->begin && (*from)[-1] != '\n')
        --*from;
    return true;
}

/* What stands around a statement: the loop that its name is of, and which of its turns it is for. */
static const char *loop_around(const vp_python_reader *r, const char *from, where *which,
                               const char **loop_end)
{
    const char *at = from, *line, *end;
    int         indent;
    bool        is_else = false, is_not;

    while (at > r->begin && at[-1] != '\n')
        at--;
    indent = (int)(from - at);
    for (int n = 0; indent && line_before(r, at, &line, &end); n++) {
        const char *p = line;
        at            = line;
        if (n == MAX_LINES) {
            *which = WHERE_SOME;
            return NULL;
        }
        while (p < end && strchr(" \t", *p))
            p++;
        if (p == end || *p == '#' || p - line > indent || (p - line == indent && !is_else))
            continue;
        if (p - line == indent && !begins(p, end, "if"))
            continue;
        if (begins(p, end, "for")) {
            *loop_end = end;
            return p;
        }
        if (begins(p, end, "def") || begins(p, end, "class"))
            return NULL;
        if (begins(p, end, "else") || begins(p, end, "else:")) {
            is_else = true, indent = (int)(p - line);
            continue;
        }
        if (begins(p, end, "if")) {
            bool asks = *which == WHERE_ALL && asks_lora(p, end, &is_not);
            *which    = !asks ? WHERE_SOME : is_not != is_else ? WHERE_NOT_LORA : WHERE_LORA;
        } else if (begins(p, end, "elif")) {
            *which = WHERE_SOME;
        }
        is_else = false;
        indent  = (int)(p - line);
    }
    return NULL;
}

/* Of `for n, p in model.named_parameters():` the model; at NULL: it is of something else. */
static vp_piece model_of_loop(const char *from, const char *end, const vp_piece *name)
{
    static const char *const all[]  = {".named_parameters()", ".parameters()"};
    vp_piece                 none   = {NULL, NULL, 0};
    const char              *in     = find_text(from, end, " in ");
    bool                     is_its = false;

    for (const char *p = from; in && p < in; p++)
        is_its = is_its || ((p == from || !is_letter(p[-1])) && in - p >= name->end - name->at &&
                            !is_letter(p[name->end - name->at]) &&
                            memcmp(p, name->at, (size_t)(name->end - name->at)) == 0);
    if (!is_its)
        return none;
    const char *model = in + 4, *behind = model;
    while (behind < end && is_dotted(*behind))
        behind++;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *dot = find_text(model, end, all[i]);
        if (dot && dot > model && dot + strcspn(dot + 1, "(") + 1 == behind)
            return (vp_piece){model, dot, 0};
    }
    return none;
}

static owner *owner_named(vp_python_trained *t, const vp_piece *name)
{
    for (int i = 0; i < t->n_owners; i++)
        if (name->at ? vp_piece_same(&t->owners[i].name, name) : !t->owners[i].name.at)
            return &t->owners[i];
    if (t->n_owners == MAX_OWNERS)
        return &t->owners[0];
    t->owners[t->n_owners] = (owner){.name = *name};
    return &t->owners[t->n_owners++];
}

static sets value_of(const char *from, const char *end)
{
    bool is_not;

    while (from < end && strchr(" =(", *from))
        from++;
    while (end > from && strchr(" )\n\r", end[-1]))
        end--;
    if (from == end || (end - from == 4 && memcmp(from, "True", 4) == 0))
        return SETS_TRUE;
    if (end - from == 5 && memcmp(from, "False", 5) == 0)
        return SETS_FALSE;
    return asks_lora(from, end, &is_not) && !is_not ? SETS_LORA : SETS_OTHER;
}

static void set_some(owner *o, sets value, where which, bool adapts, bool may_run, int line)
{
    bool as_adapters = value == SETS_LORA || (value == SETS_TRUE && which == WHERE_LORA) ||
                       (value == SETS_FALSE && which == WHERE_NOT_LORA);
    bool is_all = which == WHERE_ALL && !may_run;

    if (as_adapters && adapts) { /* as peft has it already */
        if (value != SETS_FALSE)
            o->after = 0;
    } else if (as_adapters) {
        o->before = value == SETS_TRUE ? o->before : line;
    } else if (is_all && value == SETS_TRUE && !adapts) {
        o->before = 0;
    } else if (adapts) {
        o->after = line;
    } else if (value != SETS_TRUE) {
        o->before = o->before ? o->before : line;
    }
}

void vp_python_note_frozen(vp_python_reader *r, const char *from, int line)
{
    static const char sign[] = ".requires_grad";
    const char       *at = find_text(from, r->at, sign), *loop_end = NULL;
    where             which = WHERE_ALL;

    /* of a model beside it, which is trained by nobody */
    if (!at || find_text(from, r->at, "ref_model") || find_text(from, r->at, "teacher"))
        return;
    const char *value     = at + sizeof sign - 1;
    bool        is_method = value + 1 < r->at && value[0] == '_' && value[1] == '(';
    const char *equals    = value + strspn(value, " ");
    if (!is_method && !(equals + 1 < r->at && *equals == '=' && equals[1] != '='))
        return; /* it is read */
    const char *end = r->at;
    if (is_method) {
        vp_piece    brackets = {value + 2, r->at, line};
        const char *close    = vp_piece_find(&brackets, ")");
        value += 2, end = close ? close : end;
    }
    const char *hash = memchr(value, '#', (size_t)(end - value));
    end              = hash ? hash : end;
    vp_piece name = {at, at, line}, model = {NULL, NULL, 0};
    while (name.at > from && is_dotted(name.at[-1]))
        name.at--;
    const char *loop = begins(from, at, "for") ? from : loop_around(r, from, &which, &loop_end);
    if (loop && name.at < name.end && !(name.at > from && strchr(")]", name.at[-1])))
        model = model_of_loop(loop, loop == from ? name.at : loop_end, &name);
    if (!model.at && is_method && name.at < name.end && *name.at != '.' &&
        !memchr(name.at, '.', (size_t)(name.end - name.at)))
        model = name;
    const char *dot = model.at ? memchr(model.at, '.', (size_t)(model.end - model.at)) : NULL;
    if (!model.at || (dot && strncmp(model.at, "self.", 5) != 0)) { /* a part of it */
        const char *whole = model.at ? model.at : name.at;
        model             = (vp_piece){whole, whole, line};
        while (model.end < at && is_letter(*model.end))
            model.end++;
        which = which == WHERE_ALL ? WHERE_SOME : which;
    }
    bool is_undecided = r->may_run && which != WHERE_LORA && which != WHERE_NOT_LORA;
    set_some(owner_named(r->trained, &model), value_of(value, end), which, r->doc->adapts != NULL,
             is_undecided, line);
}

/* Whether a name is surely another model than the trained one. */
static bool is_other(vp_python_reader *r, const vp_piece *name, const search *trained)
{
    search own = {.r = r};

    if (!trained->n_met || !name->at)
        return false;
    follow_name(&own, name, vp_names_function_at(r->names->scan, name->line));
    for (int i = 0; i < own.n_met; i++)
        if (is_met(trained, own.met[i]))
            return false;
    return own.n_met > 0;
}

static vp_status say_frozen(vp_python_reader *r, const bool *others)
{
    vp_status st = VP_OK;

    for (int i = 0; i < r->trained->n_owners; i++) {
        const owner *o    = &r->trained->owners[i];
        int          line = o->after ? o->after : r->doc->adapts ? 0 : o->before;
        if (!line || others[i])
            continue;
        VP_TRY(vp_document_remark(r->doc, line, NULL, false, r->err,
                                  "requires_grad in line %d: which weights are trained the script "
                                  "says by itself, and those that are not have no gradients and no "
                                  "states; that is missing from this answer",
                                  line));
        r->doc->last_remark->is_gap = true;
        goto out;
    }
out:
    return st;
}

vp_status vp_python_trained_end(vp_python_reader *r)
{
    search    x                  = {.r = r};
    bool      others[MAX_OWNERS] = {false};
    vp_status st                 = VP_OK;

    if (r->names) {
        if (r->trained->model.at)
            follow_piece(&x, &r->trained->model,
                         vp_names_function_at(r->names->scan, r->trained->line), -1);
        for (int i = 0; i < r->trained->n_owners; i++)
            others[i] = is_other(r, &r->trained->owners[i].name, &x);
        VP_TRY(keep_trained(r, &x));
        VP_TRY(drop_unused(r));
    }
    if (!(r->imports & VP_PYTHON_UNSLOTH))
        VP_TRY(say_frozen(r, others));
out:
    return st;
}
