/* trainers/files/edit_proof.c: an edited text is read again and held against what was meant, before
 * anybody may write it: the edits' keys have their new values, and everything else what it had. */
#include "trainers/files/check_internal.h"
#include "trainers/files/edit.h"
#include "trainers/files/python_calls.h"

#include <stdio.h>
#include <string.h>

typedef struct proof {
    const vp_checked_file *file;
    const vp_edit         *edits;
    int64_t                n;
    char                   key[512]; /* the first that is not as it was meant */
    int                    line;     /* of the old text; 0: none */
} proof;

/* A member of what a Python name stands for is a member of the root too: args.optim is optim. */
static const char *without_name(const proof *p, const char *path)
{
    const char *dot = strchr(path, '.');

    return p->file->doc->format == VP_FORMAT_PYTHON && dot ? dot + 1 : path;
}

static const vp_edit *edit_at(const proof *p, const char *path)
{
    const char *bare = without_name(p, path);

    for (int64_t i = 0; i < p->n; i++)
        if (p->edits[i].file == p->file &&
            (strcmp(p->edits[i].path, path) == 0 || strcmp(p->edits[i].path, bare) == 0))
            return &p->edits[i];
    return NULL;
}

/* Whether a key that is not there yet must be made below this path. */
static bool leads_to_edit(const proof *p, const char *path)
{
    const char *bare = without_name(p, path);
    size_t      n = strlen(path), m = strlen(bare);

    for (int64_t i = 0; i < p->n; i++) {
        const char *to = p->edits[i].path;
        if (p->edits[i].file == p->file && ((strncmp(to, path, n) == 0 && to[n] == '.') ||
                                            (strncmp(to, bare, m) == 0 && to[m] == '.')))
            return true;
    }
    return false;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool says(const proof *p, const vp_value *v, const vp_edit *x)
{
    char text[8192];

    /* a word of a command line is what it is to its option: "no" of eval_strategy */
    if (v && x->to && p->file->doc->format == VP_FORMAT_FLAGS && v->kind == VP_VALUE_BOOL &&
        same_text(v->text, x->to))
        return true;

    return v && x->to && vp_same_value(vp_value_text(v, text, sizeof text), x->to);
}

static bool fail_at(proof *p, const char *path, const vp_value *was)
{
    const vp_edit *x = edit_at(p, path);

    snprintf(p->key, sizeof p->key, "%s", x ? x->path : path);
    p->line = was ? was->line : 0;
    return false;
}

static bool same(proof *p, const vp_value *was, const vp_value *now, const char *path);

/* A member that stands in one text only: *which of the two it is. */
static bool may_stand_alone(proof *p, const vp_value *was, const vp_value *now, const char *path)
{
    static const vp_value nothing = {.kind = VP_VALUE_MAP};
    const vp_edit        *x       = edit_at(p, path);

    if (was)
        return x && !x->to;
    if (x)
        return says(p, now, x);
    return now->kind == VP_VALUE_MAP && !now->call && leads_to_edit(p, path) &&
           same(p, &nothing, now, path);
}

static const char *path_of(const char *map, const vp_value *v, char *buf, size_t buf_size)
{
    snprintf(buf, buf_size, "%s%s%s", map, map[0] ? "." : "", v->key ? v->key : "");
    return buf;
}

/* Members keep their order, and new ones come between: one walk over both. */
static bool same_members(proof *p, const vp_value *was, const vp_value *now, const char *path)
{
    const vp_value *a = was->first, *b = now->first;
    char            at[512];

    while (a || b) {
        if (a && b && same_text(a->key, b->key)) {
            const vp_edit *x = edit_at(p, path_of(path, a, at, sizeof at));
            if (x ? !says(p, b, x) : !same(p, a, b, at))
                return p->key[0] ? false : fail_at(p, at, a);
            a = a->next, b = b->next;
        } else if (a && may_stand_alone(p, a, NULL, path_of(path, a, at, sizeof at))) {
            a = a->next; /* first: b may be the member behind it, which is edited as well */
        } else if (b && may_stand_alone(p, NULL, b, path_of(path, b, at, sizeof at))) {
            b = b->next;
        } else {
            return fail_at(p, path_of(path, a ? a : b, at, sizeof at), a);
        }
    }
    return true;
}

/* A quantisation that has a name stands in the part of the model that is loaded with it, too, where it is edited; so does the type
 * that the model is loaded as. */
static bool is_of_a_part(const proof *p, const vp_value *was)
{
    bool is_copy = !was->column && was->key && strcmp(was->key, "dtype") == 0;

    return !p->file->is_part && p->file->doc->format == VP_FORMAT_PYTHON &&
           (is_copy || (was->call && vp_python_ends_in(was->call, "BitsAndBytesConfig")));
}

/* The arguments that a trainer is given by a call are the script's own, and proven there. */
static bool is_of_the_script(const proof *p, const vp_value *was)
{
    return p->file->is_part && was->call && vp_python_makes_arguments(was->call);
}

static bool same(proof *p, const vp_value *was, const vp_value *now, const char *path)
{
    static const vp_value nothing = {.kind = VP_VALUE_MAP};

    if (was->kind == VP_VALUE_NULL && now->kind == VP_VALUE_MAP && !now->call &&
        leads_to_edit(p, path))
        return same_members(p, &nothing, now, path);
    if ((is_of_a_part(p, was) || is_of_the_script(p, was)) && same_text(was->call, now->call))
        return true;
    if (was->kind != now->kind || !same_text(was->call, now->call))
        return fail_at(p, path, was);
    if (was->kind == VP_VALUE_MAP || was->kind == VP_VALUE_LIST)
        return same_members(p, was, now, path);
    if (was->quoted != now->quoted || !same_text(was->text, now->text) ||
        (was->kind == VP_VALUE_BOOL && was->boolean != now->boolean))
        return fail_at(p, path, was);
    return true;
}

static int n_remarks(const vp_document *doc, bool with_key)
{
    int n = 0;

    for (const vp_remark *r = doc->remarks; r; r = r->next)
        n += (r->key != NULL) == with_key;
    return n;
}

/* What is said of a text stays, but for commas too many in JSON, which an edit takes out. */
static bool same_remarks(const vp_document *was, const vp_document *now)
{
    int less = n_remarks(was, false) - n_remarks(now, false);

    return n_remarks(was, true) == n_remarks(now, true) &&
           (less == 0 || (less > 0 && was->format == VP_FORMAT_JSON));
}

/* The values; then what stands in no value: a key twice, a statement that is no literal any more. */
static bool is_as_meant(proof *p, const vp_document *now)
{
    const vp_document *was = p->file->doc;

    if (!same(p, was->root, now->root, ""))
        return false;
    for (int64_t i = 0; i < p->n; i++) {
        const vp_edit *x = &p->edits[i];
        if (x->file == p->file && x->to && !says(p, vp_value_at(now->root, x->path), x))
            return fail_at(p, x->path, x->at);
    }
    return p->file->is_part || same_remarks(was, now) ||
           fail_at(p, p->edits[0].path, p->edits[0].at);
}

static vp_status refuse(const proof *p, const char *why, vp_err *err)
{
    return VP_FAIL_AT(err, VP_ERR_INPUT, p->file->name, p->line, p->key,
                      "%s cannot be changed in place: %s; change it by hand", p->key, why);
}

static const vp_edit *first_of(const proof *p)
{
    for (int64_t i = 0; i < p->n; i++)
        if (vp_edit_is_of(&p->edits[i], p->file))
            return &p->edits[i];
    return NULL;
}

/* What calls of a script are given, one after the other as before; false: something else is there now. */
static bool parts_are_as_meant(proof *p, const vp_checked *c, const vp_checked *now)
{
    const vp_checked_file *script = p->file;
    bool                   is     = true;

    for (int f = 1; f < c->n_files && is; f++) {
        if (!c->files[f].is_part)
            continue;
        p->file = &c->files[f];
        is      = f < now->n_files && now->files[f].is_part &&
             now->files[f].dialect == c->files[f].dialect && is_as_meant(p, now->files[f].doc);
        if (!is && !p->key[0])
            fail_at(p, "", c->files[f].doc->root);
    }
    p->file = is ? script : p->file;
    return is;
}

static bool is_alone(const vp_checked *c)
{
    for (int f = 1; f < c->n_files; f++)
        if (!c->files[f].is_part)
            return false;
    return true;
}

static bool is_found(const vp_checked *c, const vp_finding *x)
{
    for (int64_t i = 0; i < c->n_findings; i++)
        if (c->findings[i].severity == x->severity && strcmp(c->findings[i].key, x->key) == 0 &&
            strcmp(c->findings[i].message, x->message) == 0)
            return true;
    return false;
}

/* What the trainer would refuse of the edited files, and not of those before. */
static vp_status refuse_errors(const vp_checked *c, const vp_checked *now, vp_err *err)
{
    for (int64_t i = 0; i < now->n_findings; i++) {
        const vp_finding *x = &now->findings[i];
        if (x->severity == VP_ERROR && !is_found(c, x))
            return VP_FAIL_AT(err, VP_ERR_INPUT, x->file, x->line, x->key,
                              "with these settings the file would be wrong here: %s; change it "
                              "by hand",
                              x->message);
    }
    return VP_OK;
}

vp_status vp_edits_prove(const vp_checked *c, const vp_checked_file *file,
                         const vp_settings *wanted, const vp_edit *edits, int64_t n,
                         const vp_text *text, vp_err *err)
{
    proof          p     = {.file = file, .edits = edits, .n = n};
    const vp_edit *first = first_of(&p);
    vp_check_input input = {.path    = file->name,
                            .bytes   = text->data ? text->data : "",
                            .n_bytes = (int64_t)text->n_bytes};
    vp_checked     now;
    vp_edit       *left;
    int64_t        n_left;
    vp_status      st = VP_OK;

    if (!first)
        goto out;
    VP_TRY(vp_check(c->arena, &input, 1, &(vp_check_opts){c->target, c->versions}, &now, err));
    fail_at(&p, first->path, first->at);
    if (!now.files[0].doc)
        VP_TRY(refuse(&p, "the file could not be read any more", err));
    p.key[0] = '\0';
    if (!is_as_meant(&p, now.files[0].doc) || !parts_are_as_meant(&p, c, &now))
        VP_TRY(refuse(&p, "read back, the file would say something else", err));
    if (!is_alone(c)) /* what several files say together is no question of this one */
        goto out;
    VP_TRY(vp_edits_list(&now, wanted, &left, &n_left, err));
    for (int64_t i = 0; i < n_left; i++)
        if (left[i].file) {
            fail_at(&p, left[i].path, left[i].at);
            VP_TRY(refuse(&p, "read back, the settings would be others", err));
        }
    for (int s = 0; s < VP_N_SETTINGS;
         s++) /* what no key says: model.gradient_checkpointing_enable() */
        if (s != VP_SETTING_ALLOCATOR && wanted->value[s] && now.settings.value[s] &&
            !now.by_default[s] && !vp_edit_means(&now, (vp_setting)s, wanted->value[s])) {
            snprintf(p.key, sizeof p.key, "%s %s", vp_setting_key(s), now.settings.value[s]);
            p.line = 0;
            VP_TRY(refuse(&p, "something else than a key says it", err));
        }
    VP_TRY(refuse_errors(c, &now, err));
out:
    return st;
}
