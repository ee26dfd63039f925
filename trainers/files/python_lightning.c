/* trainers/files/python_lightning.c: of a script with Lightning's Trainer what stands outside of its call: the batch of the loader that
 * it trains by, and the optimizer that its module makes. */
#include "trainers/files/python_lightning.h"

#include "trainers/files/python_names_internal.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Kept until it is known whose Trainer the script has. */
typedef struct vp_python_lightning {
    vp_value batch, optimizer; /* key NULL: none is said */
    int      evaluates;        /* the line of a loader for validation; 0: there is none */
} vp_python_lightning;

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Behind the bracket of a call that ends so in its name, "DataLoader(", "optim.AdamW("; NULL: there is none. */
static const char *call_in(const char *from, const char *end, const char *name)
{
    const char *p = from;

    while (end > p && (p = memmem(p, (size_t)(end - p), name, strlen(name))) != NULL) {
        if (p == from || !is_letter(p[-1]))
            return p + strlen(name);
        p++;
    }
    return NULL;
}

/* Whether a name is of data that nothing is learnt from. */
static bool is_of_evaluation(const char *at, const char *end)
{
    static const char *const words[] = {"val", "test", "eval", "pred", "dev_"};

    for (const char *p = at; p < end; p++)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if ((size_t)(end - p) >= strlen(words[i]) &&
                strncasecmp(p, words[i], strlen(words[i])) == 0)
                return true;
    return false;
}

static bool evaluates(const vp_python_reader *r, const char *from, const char *call, int line)
{
    const vp_scan *s = r->names->scan;
    int            f = vp_names_function_at(s, line);

    return is_of_evaluation(from, call) ||
           (f >= 0 && is_of_evaluation(s->blocks[f].name.at, s->blocks[f].name.end));
}

static vp_piece brackets_of(const vp_python_reader *r, const char *open, int line)
{
    vp_piece    p     = {open, r->at, line};
    const char *close = vp_piece_find(&p, ")");

    p.end = close ? close : r->at;
    return p;
}

/* The second of two that differ leaves nothing known. */
static void keep(vp_value *to, const vp_value *v, const char *key)
{
    bool same = to->key && to->kind == v->kind && to->text && v->text && !v->call &&
                strcmp(to->text, v->text) == 0;

    if (!to->key)
        *to = *v, to->key = key;
    else if (!same)
        vp_python_be_unread(to);
}

static vp_status note_loader(vp_python_reader *r, const char *from, int line)
{
    static const char size[] = "batch_size", sampler[] = "batch_sampler";
    const char       *open = call_in(from, r->at, "DataLoader(");
    vp_value  v     = {.kind = VP_VALUE_INT, .integer = 1, .real = 1, .text = "1", .line = line};
    vp_piece  given = {0}, other = {0};
    bool      ok = true;
    vp_status st = VP_OK;

    if (!open)
        return VP_OK;
    if (evaluates(r, from, open, line)) {
        r->lightning->evaluates = line;
        return VP_OK;
    }
    vp_piece brackets = brackets_of(r, open, line);
    bool     all =
        vp_names_argument(&brackets, &(vp_piece){size, size + sizeof size - 1, 0}, 1, &given) &&
        vp_names_argument(&brackets, &(vp_piece){sampler, sampler + sizeof sampler - 1, 0}, -1,
                          &other) &&
        !other.at;
    if (all && given.at)
        VP_TRY(vp_names_read_piece(r, &given, &v, false, &ok));
    v.line = line;
    if (!all || !ok)
        vp_python_be_unread(&v);
    keep(&r->lightning->batch, &v, "data.batch_size");
out:
    return st;
}

/* torch.optim.AdamW(self.parameters(), lr=1e-4); with arguments that choose another implementation: not known. */
static void note_optimizer(vp_python_reader *r, const char *from, int line)
{
    static const char *const names[] = {"AdamW", "Adam", "SGD"};
    static const char *const plain[] = {"params", "lr", "betas", "eps", "weight_decay"};
    vp_value                 v       = {.kind = VP_VALUE_STRING, .quoted = true, .line = line};
    const char              *open    = NULL;

    for (size_t i = 0; !open && i < sizeof names / sizeof *names; i++) {
        char name[32] = "optim.";
        strcat(strcat(name, names[i]), "(");
        open   = call_in(from, r->at, name);
        open   = open ? open : call_in(from, r->at, name + strlen("optim."));
        v.text = names[i];
    }
    if (!open)
        return;
    vp_piece rest = brackets_of(r, open, line), one;
    while (vp_piece_next(&rest, &one)) {
        const char *equals = vp_piece_find(&one, "=");
        bool        known  = !equals && *one.at != '*';
        for (size_t i = 0; equals && i < sizeof plain / sizeof *plain; i++) {
            vp_piece key = vp_piece_trim((vp_piece){one.at, equals, 0});
            known        = known || vp_piece_is(&key, plain[i]);
        }
        if (!known)
            vp_python_be_unread(&v);
    }
    keep(&r->lightning->optimizer, &v, "optimizer");
}

vp_status vp_python_note_lightning(vp_python_reader *r, const char *from, int line)
{
    vp_status st = VP_OK;

    if (!(r->imports & VP_PYTHON_LIGHTNING) || !r->names || strncmp(from, "from ", 5) == 0 ||
        strncmp(from, "import ", 7) == 0 || strncmp(from, "def ", 4) == 0 ||
        strncmp(from, "class ", 6) == 0)
        return VP_OK;
    if (!r->lightning) {
        r->lightning = vp_arena_alloc(r->doc->arena, sizeof *r->lightning);
        VP_TRY_ALLOC(r->err, r->lightning);
        memset(r->lightning, 0, sizeof *r->lightning);
    }
    VP_TRY(note_loader(r, from, line));
    note_optimizer(r, from, line);
out:
    return st;
}

static vp_status add(vp_python_reader *r, const vp_value *v)
{
    vp_value *own;
    vp_status st = VP_OK;

    if (!v->key || vp_value_member(r->doc->root, v->key))
        return VP_OK;
    VP_TRY(vp_python_add(r, r->doc->root, v->key, &own));
    vp_python_be_same(own, v);
    own->line = v->line;
out:
    return st;
}

vp_status vp_python_lightning_end(vp_python_reader *r)
{
    vp_status st = VP_OK;

    if (!r->lightning || !vp_value_member(r->doc->root, "trainer"))
        return VP_OK;
    VP_TRY(add(r, &r->lightning->batch));
    VP_TRY(add(r, &r->lightning->optimizer));
    if (r->lightning->evaluates)
        VP_TRY(vp_document_remark(r->doc, r->lightning->evaluates, NULL, false, r->err,
                                  "a loader to validate with: its batch is not counted, only the "
                                  "training step is"));
out:
    return st;
}
