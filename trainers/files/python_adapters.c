/* trainers/files/python_adapters.c: calls of peft's by their names, each beside the condition that its statement has. */
#include "trainers/files/python_adapters.h"

#include "trainers/files/python_blocks.h"
#include "trainers/files/python_calls.h"
#include "trainers/files/python_trained.h"

#include <ctype.h>
#include <string.h>

static bool has_text(const char *from, const char *end, const char *text)
{
    return memmem(from, (size_t)(end - from), text, strlen(text));
}

const char *vp_python_next_call(const vp_python_reader *r, const char *from, const char **p)
{
    for (; *p < r->at; ++*p) {
        const char *name = *p;
        while (**p == '(' && name > from &&
               (isalnum((unsigned char)name[-1]) || strchr("_.", name[-1])))
            name--;
        if (name < *p) {
            name = vp_arena_printf(r->doc->arena, "%.*s", (int)(*p - name), name);
            ++*p;
            return name ? vp_python_imported(r, name) : NULL;
        }
    }
    return NULL;
}

/* Whether saved adapters that are loaded here are trained: before a trainer is made, and not merged until then. */
static bool is_trained_on(const vp_python_reader *r, const char *from)
{
    const char *trainer = memmem(from, (size_t)(r->end - from), "Trainer(", strlen("Trainer("));

    return !r->trains_line && !has_text(from, trainer ? trainer : r->end, "merge_and_unload");
}

/* `get_peft_model(model, config) if CONDITION else model`: whether the side that the call, behind p, stands on is taken; what one that is not
 * names is handed to nobody there. */
static vp_status is_chosen(vp_python_reader *r, const char *from, const char *p,
                           vp_python_runs *runs)
{
    vp_piece  side[2];
    bool      is_one;
    vp_status st =
        vp_python_choose(r, &(vp_piece){from, r->at, r->line}, &side[0], &side[1], runs, &is_one);

    if (!is_one)
        *runs = VP_PYTHON_RUNS;
    else if (p >= side[1].at && *runs != VP_PYTHON_MAYBE)
        *runs = *runs == VP_PYTHON_RUNS ? VP_PYTHON_NEVER : VP_PYTHON_RUNS;
    if (is_one && *runs == VP_PYTHON_NEVER)
        vp_python_decline(r, &side[p >= side[1].at]);
    return st;
}

/* get_peft_model() of peft's; Unsloth's own says by its arguments what it makes. */
vp_status vp_python_note_adapting(vp_python_reader *r, const char *from, int line)
{
    const char *p  = from, *call;
    vp_status   st = VP_OK;

    /* saved adapters, or a model that has some: the other side of the condition adapts too */
    if (strncmp(from, "from ", 5) != 0 && strncmp(from, "import ", 7) != 0 &&
        has_text(from, r->at, "PeftModel"))
        r->doc->has_adapters = true;
    while (strncmp(from, "def ", 4) != 0 && (call = vp_python_next_call(r, from, &p)))
        if (r->doc->takes_model && vp_python_ends_in(call, "get_peft_config")) {
            r->doc->asks_adapters = true;
        } else if (vp_python_ends_in(call, ".add_adapter")) {
            VP_TRY(vp_python_note_adapters(r, "add_adapter()", line));
        } else if (vp_python_ends_in(call, ".from_pretrained") && strstr(call, "PeftModel") &&
                   is_trained_on(r, from)) {
            VP_TRY(vp_python_note_adapters(r, "PeftModel.from_pretrained()", line));
        } else if (strcmp(call, "get_peft_model") == 0 ||
                   strcmp(call, "peft.get_peft_model") == 0) {
            vp_python_runs runs;
            VP_TRY(is_chosen(r, from, p, &runs));
            if (runs == VP_PYTHON_NEVER)
                continue;
            VP_TRY(vp_python_note_adapters(r, "get_peft_model()", line));
            r->doc->may_adapt = r->doc->may_adapt || r->may_run || runs == VP_PYTHON_MAYBE;
        }
out:
    return st;
}

static bool says_the_same(const vp_value *a, const vp_value *b)
{
    if (!a || !b || a->kind != b->kind || !a->call != !b->call || a->n_children != b->n_children)
        return false;
    if (a->call && (strcmp(a->call, b->call) != 0 || strcmp(a->call, VP_VALUE_UNREAD) == 0))
        return false;
    if (a->kind < VP_VALUE_LIST)
        return a->text && b->text && strcmp(a->text, b->text) == 0;
    const vp_value *m = a->first, *n = b->first;
    for (; m && n; m = m == a->last ? NULL : m->next, n = n == b->last ? NULL : n->next)
        if ((m->key && n->key && strcmp(m->key, n->key) != 0) || !says_the_same(m, n))
            return false;
    return !m && !n;
}

/* Whether both make one and the same, and a condition says which of them does. */
static bool is_alternative(const vp_document *a, const vp_document *b)
{
    bool adapts = a->call && b->call && vp_python_ends_in(a->call, "LoraConfig") &&
                  strcmp(a->call, b->call) == 0,
         loads =
             a->call && b->call && vp_python_loads_model(a->call) && vp_python_loads_model(b->call);

    if (!(adapts || loads) || !a->variable || !b->variable ||
        strcmp(a->variable, b->variable) != 0 || a->root->line == b->root->line)
        return false;
    return adapts ? a->may_run && b->may_run : a->may_run || b->may_run;
}

/* if CONDITION: config = LoraConfig(r=8), else: config = LoraConfig(r=64), and so of a model that is loaded in one way or another: where
 * they differ nobody knows, and one of them is left. */
static vp_status join_branches(vp_python_reader *r)
{
    vp_status st = VP_OK;

    for (vp_document *first = r->doc->parts; first; first = first->next) {
        int n = 0;
        for (vp_document **end = &first->next; *end;) {
            const vp_document *other = *end;
            if (!is_alternative(first, other)) {
                end = &(*end)->next;
                continue;
            }
            for (vp_value *m = first->root->first; m; m = m->next)
                if (!says_the_same(m, vp_value_member(other->root, m->key)))
                    vp_python_be_unread(m);
            for (const vp_value *m = other->root->first; m; m = m->next) {
                vp_value *own = vp_value_member(first->root, m->key);
                if (own)
                    continue;
                VP_TRY_ALLOC(r->err, own = vp_value_add(first, first->root, m->key));
                own->line = m->line;
                vp_python_be_unread(own);
            }
            *end = other->next;
            n++;
            VP_TRY(vp_document_remark(r->doc, other->root->line, NULL, false, r->err,
                                      "%s() here or in line %d: a condition says which that the "
                                      "text does not decide; where they differ nothing is known",
                                      other->call, first->root->line));
        }
        first->may_run = first->may_run && !n; /* one of them is made */
    }
out:
    return st;
}

/* config = None, if CONDITION: config = LoraConfig(...), where a trainer is given config in any case: its line; 0: that is not so. */
static int maybe_made(const vp_python_reader *r)
{
    int n = 0, line = 0;

    if ((r->doc->adapts && strncmp(r->doc->adapts, "peft_config ", 12) != 0) || r->doc->may_adapt ||
        !r->trains_line)
        return 0;
    for (const vp_document *part = r->doc->parts; part; part = part->next)
        if (part->call && vp_python_ends_in(part->call, "LoraConfig")) {
            n++;
            line = part->may_run && part->variable && strcmp(part->variable, "return") != 0
                       ? part->root->line
                       : 0;
        }
    return n == 1 ? line : 0;
}

/* Adapters of other methods than LoRA are not all that is trained, nor what LoRA's take. */
vp_status vp_python_say_adapters(vp_python_reader *r)
{
    int       line;
    vp_status st = VP_OK;

    if (r->doc->may_adapt && !r->doc->has_adapters && !r->doc->files) {
        VP_TRY(vp_document_remark(r->doc, r->doc->adapts_line, NULL, false, r->err,
                                  "%s: whether it is called a condition says that the text does "
                                  "not decide; with adapters the memory is another",
                                  r->doc->adapts));
        r->doc->last_remark->is_gap = true;
    }
    VP_TRY(join_branches(r));
    line = maybe_made(r);
    if (line) {
        VP_TRY(vp_document_remark(r->doc, line, NULL, false, r->err,
                                  "LoraConfig() in line %d: whether it is made a condition says "
                                  "that the text does not decide; without adapters the memory is "
                                  "another",
                                  line));
        r->doc->last_remark->is_gap = true;
    }
    if (!vp_python_adapts_otherwise(r->doc))
        return VP_OK;
    VP_TRY(vp_document_remark(r->doc, r->doc->adapts_line, NULL, false, r->err,
                              "%s: no LoraConfig() of this script makes these adapters; what they "
                              "are and take is missing from this answer",
                              r->doc->adapts));
    r->doc->last_remark->is_gap = r->doc->has_gap = true;
out:
    return st;
}
