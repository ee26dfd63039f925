/* trainers/files/python_blocks.c: conditions of names, options, literals, not, and, or, comparisons; all others may be either. */
#include "trainers/files/python_blocks.h"

#include "trainers/files/python_calls.h"
#include "trainers/files/python_scan.h"
#include "trainers/files/script_values.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTED = 16 };

/* What a condition came to, and by which option of the script's own. */
typedef struct verdict {
    vp_python_runs runs;
    const char    *by; /* "--lora"; NULL: by none */
    int            by_line;
} verdict;

static verdict not_of(verdict v)
{
    v.runs = v.runs == VP_PYTHON_RUNS    ? VP_PYTHON_NEVER
             : v.runs == VP_PYTHON_NEVER ? VP_PYTHON_RUNS
                                         : VP_PYTHON_MAYBE;
    return v;
}

/* A value that is certain: of an option what the command says, else its default. */
static vp_status value_of(vp_python_reader *r, vp_piece p, vp_value *v, verdict *by, bool *ok)
{
    vp_python_reader inner = *r;
    vp_err           err   = {0};
    vp_status        st;

    *ok      = false;
    *v       = (vp_value){.key = "", .line = r->line};
    p        = vp_piece_trim(p);
    inner.at = inner.line_start = p.at;
    inner.end = p.end, inner.unread = false, inner.err = &err;
    if (p.at >= p.end || r->doc->n_values > VP_DOCUMENT_MAX_VALUES / 2)
        return VP_OK;
    st = vp_python_read_value(&inner, v, 1);
    if (st == VP_ERR_NOMEM)
        return VP_FAIL(r->err, VP_ERR_NOMEM, "out of host memory");
    if (st == VP_OK && v->asks_bf16 && r->doc->capability) {
        v->boolean   = v->boolean == (r->doc->capability >= 80);
        v->asks_bf16 = false;
    }
    if (st != VP_OK || inner.unread || inner.at < inner.end || v->call || v->asks_bf16 ||
        (v->kind == VP_VALUE_STRING && !v->quoted))
        return VP_OK;
    if (v->option) {
        if (strcmp(v->option_type, VP_OPTION_PARAMETER) == 0)
            return VP_OK;
        by->by = v->option, by->by_line = v->option_line;
        if (r->doc->command)
            vp_script_value_given(r->doc->command, v);
        if (v->call)
            return VP_OK;
    }
    *ok = true;
    return VP_OK;
}

static bool is_number(const vp_value *v)
{
    return v->kind == VP_VALUE_INT || v->kind == VP_VALUE_REAL;
}

static bool is_true(const vp_value *v)
{
    switch (v->kind) {
    case VP_VALUE_NULL:
        return false;
    case VP_VALUE_BOOL:
        return v->boolean;
    case VP_VALUE_INT:
    case VP_VALUE_REAL:
        return v->real != 0;
    case VP_VALUE_STRING:
        return v->text && v->text[0];
    default:
        return v->n_children > 0;
    }
}

static bool is_same(const vp_value *a, const vp_value *b)
{
    if (is_number(a) && is_number(b))
        return a->real == b->real;
    if (a->kind != b->kind)
        return false;
    return a->kind == VP_VALUE_NULL ||
           (a->kind == VP_VALUE_BOOL ? a->boolean == b->boolean
                                     : a->text && b->text && strcmp(a->text, b->text) == 0);
}

/* "70B" in name, name in ["a", "b"]: of texts and lists; *ok: both are known. */
static bool is_within(const vp_value *a, const vp_value *b, bool *ok)
{
    *ok = false;
    if (b->kind == VP_VALUE_STRING && a->kind == VP_VALUE_STRING && a->text && b->text) {
        *ok = true;
        return strstr(b->text, a->text) != NULL;
    }
    if (b->kind != VP_VALUE_LIST || a->kind >= VP_VALUE_LIST)
        return false;
    for (const vp_value *m = b->first; m; m = m->next)
        if (m->call || m->kind >= VP_VALUE_LIST || (m->kind == VP_VALUE_STRING && !m->quoted))
            return false;
    *ok = true;
    for (const vp_value *m = b->first; m; m = m->next)
        if (is_same(a, m))
            return true;
    return false;
}

/* BitsAndBytesConfig(...): what it makes is there. */
static bool is_object(const vp_value *v)
{
    return v->call && vp_python_ends_in(v->call, "Config");
}

/* a == b and its like; *is_one: it is one. */
static vp_status compare(vp_python_reader *r, const vp_piece *p, verdict *out, bool *is_one)
{
    static const char *const signs[] = {"==", "!=", "not in", "in", "is not",
                                        "is", ">=", "<=",     ">",  "<"};
    const char              *at      = NULL;
    size_t                   which   = 0;
    vp_value                 a, b;
    bool                     ok;
    vp_status                st = VP_OK;

    for (; which < sizeof signs / sizeof *signs; which++)
        if ((at = vp_piece_word(p, signs[which])))
            break;
    *is_one = at != NULL;
    if (!at)
        return VP_OK;
    const char *sign = signs[which];
    VP_TRY(value_of(r, (vp_piece){p->at, at, p->line}, &a, out, &ok));
    vp_piece behind = vp_piece_trim((vp_piece){at + strlen(sign), p->end, p->line});
    if (!ok && is_object(&a) && vp_piece_is(&behind, "None"))
        out->runs = strstr(sign, "not") || *sign == '!' ? VP_PYTHON_RUNS : VP_PYTHON_NEVER;
    if (!ok)
        goto out;
    VP_TRY(value_of(r, (vp_piece){at + strlen(sign), p->end, p->line}, &b, out, &ok));
    bool holds = false, is_in = strcmp(sign, "in") == 0 || strcmp(sign, "not in") == 0;
    if (ok && is_in)
        holds = is_within(&a, &b, &ok) == (sign[0] == 'i');
    if (!ok || (!is_in && (a.kind >= VP_VALUE_LIST || b.kind >= VP_VALUE_LIST)))
        goto out;
    if (is_in) {
        /* it is told */
    } else if (sign[0] == '<' || sign[0] == '>') {
        if (!is_number(&a) || !is_number(&b))
            goto out;
        holds = sign[0] == '<' ? (sign[1] ? a.real <= b.real : a.real < b.real)
                               : (sign[1] ? a.real >= b.real : a.real > b.real);
    } else {
        holds = is_same(&a, &b) == (sign[0] == '=' || strcmp(sign, "is") == 0);
    }
    out->runs = holds ? VP_PYTHON_RUNS : VP_PYTHON_NEVER;
out:
    return st;
}

/* hasattr(model, "enable_input_require_grads"): every model of transformers has it. */
static bool has_method(const vp_piece *p)
{
    static const char *const methods[] = {"enable_input_require_grads",
                                          "gradient_checkpointing_enable", "config"};
    size_t                   n         = (size_t)(p->end - p->at);
    const char *comma = n > 8 && memcmp(p->at, "hasattr(", 8) == 0 ? memchr(p->at, ',', n) : NULL;
    vp_piece    name  = {comma ? comma + 1 : p->end, p->end - 1, p->line};

    if (!comma || p->end[-1] != ')')
        return false;
    name = vp_piece_trim(name);
    if (name.end - name.at < 3 || !strchr("\"'", *name.at))
        return false;
    name.at++, name.end--;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (vp_piece_is(&name, methods[i]))
            return true;
    return false;
}

static vp_status judge(vp_python_reader *r, vp_piece p, int depth, verdict *out)
{
    static const char *const words[] = {"or", "and"};
    vp_value                 v;
    bool                     ok;
    vp_status                st = VP_OK;

    *out = (verdict){.runs = VP_PYTHON_MAYBE};
    p    = vp_piece_trim(p);
    if (p.at >= p.end || depth > MAX_NESTED || vp_piece_word(&p, "lambda") ||
        vp_piece_word(&p, "if") || vp_piece_word(&p, ":="))
        goto out;
    for (size_t i = 0; i < 2; i++) {
        const char *at = vp_piece_word(&p, words[i]);
        if (!at)
            continue;
        verdict        a, b;
        vp_python_runs decides = i == 0 ? VP_PYTHON_RUNS : VP_PYTHON_NEVER;
        VP_TRY(judge(r, (vp_piece){p.at, at, p.line}, depth + 1, &a));
        VP_TRY(judge(r, (vp_piece){at + strlen(words[i]), p.end, p.line}, depth + 1, &b));
        *out = a.runs == decides ? a : b;
        if (a.runs != decides && b.runs != decides && a.runs != b.runs)
            out->runs = VP_PYTHON_MAYBE;
        goto out;
    }
    if (vp_piece_word(&p, "not") == p.at) {
        VP_TRY(judge(r, (vp_piece){p.at + 3, p.end, p.line}, depth + 1, out));
        *out = not_of(*out);
        goto out;
    }
    if (*p.at == '(' && p.end[-1] == ')') {
        vp_piece    inner = {p.at + 1, p.end, p.line};
        const char *close = vp_piece_find(&inner, ")");
        if (close == p.end - 1) {
            VP_TRY(judge(r, (vp_piece){p.at + 1, p.end - 1, p.line}, depth + 1, out));
            goto out;
        }
    }
    if (has_method(&p)) {
        out->runs = VP_PYTHON_RUNS;
        goto out;
    }
    VP_TRY(compare(r, &p, out, &ok));
    if (ok)
        goto out;
    VP_TRY(value_of(r, p, &v, out, &ok));
    if (ok)
        out->runs = is_true(&v) ? VP_PYTHON_RUNS : VP_PYTHON_NEVER;
    else if (is_object(&v))
        out->runs = VP_PYTHON_RUNS;
out:
    return st;
}

/* What stands between the word and the colon. */
static vp_status judge_header(vp_python_reader *r, size_t word, verdict *out)
{
    vp_piece    rest  = {r->at + word, r->end, r->line};
    const char *colon = vp_piece_find(&rest, ":\n");

    *out = (verdict){.runs = VP_PYTHON_MAYBE};
    if (!colon || *colon != ':')
        return VP_OK;
    return judge(r, (vp_piece){rest.at, colon, r->line}, 0, out);
}

bool vp_python_is_dead(const vp_python_blocks *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->open[i].is_dead)
            return true;
    return false;
}

bool vp_python_is_switched(const vp_python_blocks *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->open[i].is_switch)
            return true;
    return false;
}

bool vp_python_is_maybe(const vp_python_blocks *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->open[i].is_condition)
            return true;
    return false;
}

bool vp_python_is_open(const vp_python_blocks *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->open[i].is_chain && b->open[i].is_condition)
            return true;
    return false;
}

vp_status vp_python_decide(vp_python_reader *r, const char *from, const char *end,
                           vp_python_runs *runs)
{
    verdict   v;
    vp_status st = judge(r, (vp_piece){from, end, r->line}, 0, &v);

    *runs = v.runs;
    return st;
}

vp_status vp_python_choose(vp_python_reader *r, const vp_piece *p, vp_piece *first,
                           vp_piece *second, vp_python_runs *runs, bool *is_one)
{
    const char *condition = vp_piece_word(p, "if"), *otherwise = NULL;
    verdict     v;
    vp_status   st = VP_OK;

    if (condition && condition > p->at)
        otherwise = vp_piece_word(&(vp_piece){condition, p->end, p->line}, "else");
    *is_one = otherwise != NULL;
    if (!otherwise)
        return VP_OK;
    *first  = vp_piece_trim((vp_piece){p->at, condition, p->line});
    *second = vp_piece_trim((vp_piece){otherwise + strlen("else"), p->end, p->line});
    VP_TRY(judge(r, (vp_piece){condition + strlen("if"), otherwise, p->line}, 0, &v));
    *runs = v.runs;
    if (v.runs != VP_PYTHON_MAYBE && v.by && *v.by && !r->doc->command)
        VP_TRY(vp_document_remark(r->doc, p->line, NULL, false, r->err,
                                  "is chosen by the default of %s in line %d, which a command may "
                                  "change: vplan check -- COMMAND",
                                  v.by, v.by_line));
out:
    return st;
}

static bool has(const char *from, const char *end, const char *text)
{
    return memmem(from, (size_t)(end - from), text, strlen(text));
}

/* training_args.gradient_checkpointing: the trainer's switch; that of a script's own settings is another. */
static bool asks_trainer(const char *from, const char *end)
{
    static const char sign[] = ".gradient_checkpointing";

    for (const char *p = from; (p = memmem(p, (size_t)(end - p), sign, sizeof sign - 1)); p++) {
        const char *owner = p;
        while (owner > from && (isalnum((unsigned char)owner[-1]) || owner[-1] == '_'))
            owner--;
        if (memmem(owner, (size_t)(p - owner), "arg", 3))
            return true;
    }
    return has(from, end, "gradient_checkpointing_layers"); /* of train.py that emit writes */
}

/* Of `if`, `elif`, `else`: what is taken of a chain is taken once. */
static vp_status enter_chain(vp_python_blocks *b, vp_python_reader *r, int before, bool in_loop)
{
    bool           is_if = vp_python_at_word(r, "if"), is_else = vp_python_at_word(r, "else");
    vp_python_runs taken = is_if ? VP_PYTHON_NEVER : b->open[before].taken;
    verdict        v     = {.runs = VP_PYTHON_MAYBE};
    vp_status      st    = VP_OK;

    if (!is_if)
        v.by = b->open[before].by, v.by_line = b->open[before].by_line;
    if (taken == VP_PYTHON_RUNS)
        v.runs = VP_PYTHON_NEVER;
    else if (is_else)
        v.runs = taken == VP_PYTHON_NEVER ? VP_PYTHON_RUNS : VP_PYTHON_MAYBE;
    else if (!in_loop)
        VP_TRY(judge_header(r, is_if ? 2 : 4, &v));
    if (taken == VP_PYTHON_MAYBE && v.runs == VP_PYTHON_RUNS)
        v.runs = VP_PYTHON_MAYBE;
    b->open[b->n].is_chain     = true;
    b->open[b->n].is_condition = v.runs == VP_PYTHON_MAYBE;
    b->open[b->n].is_dead      = v.runs == VP_PYTHON_NEVER;
    b->open[b->n].by = v.by, b->open[b->n].by_line = v.by_line;
    b->open[b->n].taken = taken == VP_PYTHON_RUNS || v.runs == VP_PYTHON_RUNS ? VP_PYTHON_RUNS
                          : taken == VP_PYTHON_NEVER                          ? v.runs
                                                                              : VP_PYTHON_MAYBE;
out:
    return st;
}

/* `if not args.lora: return model`, where that is so: what stands behind it in the function does not run. */
static void note_return(vp_python_blocks *b, const vp_python_reader *r)
{
    for (int i = b->n - 1; i >= 0 && b->open[i].indent < r->indent; i--) {
        if (b->open[i].is_condition || b->open[i].is_loop || b->open[i].is_dead ||
            b->open[i].is_function)
            return;
        if (b->open[i].is_chain) {
            b->open[i].returns = true;
            return;
        }
    }
}

vp_status vp_python_enter_line(vp_python_blocks *b, vp_python_reader *r)
{
    static const char *const loops[]  = {"for", "while"};
    static const char *const others[] = {"except", "case", "elif", "else"};
    const char              *end      = memchr(r->at, '\n', (size_t)(r->end - r->at));
    bool                     in_loop = false, is_loop = false, is_other = false;
    int                      before = -1;
    vp_status                st     = VP_OK;

    bool returned = false;
    while (b->n && b->open[b->n - 1].indent >= r->indent) {
        b->n--;
        before   = b->open[b->n].indent == r->indent ? b->n : -1;
        returned = returned || b->open[b->n].returns;
    }
    if (vp_python_at_word(r, "return"))
        note_return(b, r);
    if (returned && r->indent > 0 && b->n + 1 < VP_DOCUMENT_MAX_DEPTH) { /* up to the end of def */
        memset(&b->open[b->n], 0, sizeof b->open[b->n]);
        b->open[b->n].indent  = r->indent - 1;
        b->open[b->n].is_dead = true;
        b->n++;
        before = -1;
    }
    r->conditional = vp_python_is_maybe(b);
    end            = end ? end : r->end;
    if (b->n == VP_DOCUMENT_MAX_DEPTH)
        return VP_OK;
    for (int i = 0; i < b->n; i++)
        in_loop = in_loop || b->open[i].is_loop;
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        is_loop = is_loop || vp_python_at_word(r, loops[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        is_other = is_other || vp_python_at_word(r, others[i]);
    bool is_if      = vp_python_at_word(r, "if") && !has(r->at, end, "__name__");
    bool is_further = before >= 0 && b->open[before].is_chain && is_other &&
                      (vp_python_at_word(r, "elif") || vp_python_at_word(r, "else"));
    bool is_about = asks_trainer(r->at, end);
    /* of a chain the one before lies where this one goes */
    if (is_if || is_further)
        VP_TRY(enter_chain(b, r, before, in_loop));
    else
        memset(&b->open[b->n], 0, sizeof b->open[b->n]);
    b->open[b->n].indent      = r->indent;
    b->open[b->n].is_loop     = is_loop;
    b->open[b->n].is_told     = false;
    b->open[b->n].returns     = false;
    b->open[b->n].is_function = vp_python_at_word(r, "def") || vp_python_at_word(r, "async") ||
                                vp_python_at_word(r, "class");
    if (!is_if && !is_further)
        b->open[b->n].is_condition = is_loop || is_other;
    b->open[b->n].is_dead =
        b->open[b->n].is_dead ||
        (is_loop && (has(r->at, end, "while False:") || has(r->at, end, "while 0:")));
    b->open[b->n].is_switch = b->open[b->n].is_condition && is_about;
    b->n++;
out:
    return st;
}

vp_status vp_python_say_dead(vp_python_blocks *b, vp_python_reader *r, const char *from, int line)
{
    static const char *const words[]  = {"LoraConfig(",         "get_peft_model(",
                                         "BitsAndBytesConfig(", "TrainingArguments(",
                                         "SFTConfig(",          "from_pretrained("};
    bool                     is_about = false;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        is_about = is_about || has(from, r->at, words[i]);
    for (int i = 0; is_about && !r->doc->command && i < b->n; i++) {
        if (!b->open[i].is_dead)
            continue;
        if (b->open[i].is_told || !b->open[i].by || !*b->open[i].by)
            break;
        b->open[i].is_told = true;
        return vp_document_remark(
            r->doc, line, NULL, false, r->err,
            "does not run by the default of %s in line %d, which a command may change: vplan "
            "check -- COMMAND",
            b->open[i].by, b->open[i].by_line);
    }
    return VP_OK;
}
