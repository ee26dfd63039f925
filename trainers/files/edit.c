/* trainers/files/edit.c: the keys that must change. */
#include "trainers/files/edit.h"

#include "trainers/files/check_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct lister {
    const vp_checked  *c;
    const vp_settings *wanted;
    vp_edit           *edits;
    int64_t            n, cap;
    bool               wordless[VP_N_SETTINGS]; /* no file has a word for what is wanted */
    vp_err            *err;
} lister;

/* The rows of one file that say a setting's wanted word. */
typedef struct file_rows {
    const vp_saying *rows[32];
    const char      *argument[32];
    int              n, n_present; /* rows that have a value, whose keys the file has */
} file_rows;

bool vp_edit_means(const vp_checked *c, vp_setting s, const char *word)
{
    const char *has = c->settings.value[s], *may = c->may_be[s];
    size_t      n = strlen(word);

    if (!may)
        return has && strcmp(has, word) == 0;
    for (const char *p = may; (p = strstr(p, word)) != NULL; p += n) /* "bf16 or bf16-amp" */
        if ((p == may || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
            return true;
    return false;
}

/* The version whose keys a dialect's rows are written for: the one that somebody named, else the one that emit writes
 * for, whose keys newer ones read too; the newest where the file has keys that only that one has. */
static const char *written_version(const lister *l, const vp_checked_file *file,
                                   const vp_dialect *d)
{
    bool named = json_is_string(json_object_get(l->c->versions, d->library)) ||
                 (d != file->dialect && file->dialect->base_version);

    for (int i = 0; !named && d->writes && i < d->n_keys; i++) {
        const vp_key *k = &d->keys[i];
        named           = k->since && vp_version_compare(k->since, d->writes) > 0 &&
                vp_value_at(file->doc->root, k->path);
    }
    return named || !d->writes ? vp_dialect_version(d, file->dialect, l->c->versions) : d->writes;
}

/* Rows of one spelling: those that emit writes, or those that are only read. */
static void collect(const lister *l, const vp_checked_file *file, vp_setting setting,
                    bool read_only, file_rows *out)
{
    const char *target = l->c->target ? l->c->target->name : NULL;

    *out = (file_rows){0};
    for (const vp_dialect *d = file->dialect; d; d = d->base_says ? d->base : NULL) {
        const char *version = written_version(l, file, d);
        for (int i = 0; i < d->n_says; i++) {
            const vp_saying *row = &d->says[i];
            const char      *argument;
            if (row->setting != (int)setting || row->read_only != read_only || !row->key[0] ||
                (row->of_command && file->doc->format != VP_FORMAT_FLAGS) ||
                !vp_version_within(version, row->since, row->until) ||
                !vp_when_holds(row->when, l->wanted, target) ||
                !vp_word_is(l->wanted->value[setting], row->word, &argument) || out->n == 32)
                continue;
            if (vp_key_is_elsewhere(file, vp_file_key(l->c, file, row->key, NULL)))
                continue;
            if (file->is_part && d == &vp_dialect_model &&
                (setting == VP_SETTING_SEQ || setting == VP_SETTING_PREPARE))
                continue; /* of emit's file for it alone: from_pretrained() takes none */
            out->argument[out->n] = argument;
            out->rows[out->n++]   = row;
            out->n_present += row->value && vp_value_at(file->doc->root, row->key);
        }
    }
}

/* Of spellings that are only read, the one of which most is there: rows that stand together. */
static void keep_nearest(const vp_checked_file *file, file_rows *r)
{
    int best = 0, n_best = 0, most = -1;

    for (int i = 0, n; i < r->n; i += n) {
        int present = 0;
        for (n = 0; i + n < r->n && (!n || r->rows[i + n] == r->rows[i + n - 1] + 1); n++)
            present += r->rows[i + n]->value && vp_value_at(file->doc->root, r->rows[i + n]->key);
        if (present > most)
            best = i, n_best = n, most = present;
    }
    memmove(r->rows, r->rows + best, (size_t)n_best * sizeof *r->rows);
    memmove(r->argument, r->argument + best, (size_t)n_best * sizeof *r->argument);
    r->n         = n_best;
    r->n_present = most < 0 ? 0 : most;
}

/* Whether the file has a key that says the setting, in whatever word. */
static bool says_it(const lister *l, const vp_checked_file *file, vp_setting setting)
{
    for (const vp_dialect *d = file->dialect; d; d = d->base_says ? d->base : NULL) {
        const char *version = vp_dialect_version(d, file->dialect, l->c->versions);
        for (int i = 0; i < d->n_says; i++)
            if (d->says[i].setting == (int)setting && d->says[i].key[0] &&
                vp_version_within(version, d->says[i].since, d->says[i].until) &&
                vp_value_at(file->doc->root, d->says[i].key) &&
                !vp_key_is_elsewhere(file, vp_file_key(l->c, file, d->says[i].key, NULL)))
                return true;
    }
    return false;
}

/* Where what they say is no word of the setting, it is not what is otherwise so. */
static bool is_said(const lister *l, vp_setting setting)
{
    for (int f = 0; f < l->c->n_files; f++)
        if (l->c->files[f].doc && l->c->files[f].dialect && says_it(l, &l->c->files[f], setting))
            return true;
    return false;
}

/* What is meant at a key so far; NULL: it stays. */
static vp_edit *edit_of(const lister *l, const vp_checked_file *file, const char *path)
{
    for (int64_t i = 0; i < l->n; i++)
        if (l->edits[i].file == file && strcmp(l->edits[i].path, path) == 0)
            return &l->edits[i];
    return NULL;
}

static vp_status add(lister *l, vp_edit edit)
{
    vp_status st = VP_OK;

    if (edit_of(l, edit.file, edit.path)) /* two settings may say one key */
        goto out;
    VP_TRY_ALLOC(l->err,
                 vp_arena_grow(l->c->arena, (void **)&l->edits, l->n, &l->cap, sizeof *l->edits));
    l->edits[l->n++] = edit;
out:
    return st;
}

/* One member of a list that keeps its others: it comes, or it goes, and the key with the last of them. */
static vp_status edit_member(lister *l, const vp_checked_file *file, const vp_saying *row,
                             vp_edit e)
{
    vp_arena   *arena = l->c->arena;
    const char *name  = vp_saying_member(row), *at, *had, *to;
    vp_edit    *also  = edit_of(l, file, row->key);
    bool        goes  = strcmp(row->value, vp_arena_printf(arena, VP_WITHOUT("%s"), name)) == 0;
    size_t      n;
    vp_status   st = VP_OK;

    had = also                                  ? also->to ? also->to : ""
          : e.at && e.at->kind != VP_VALUE_NULL ? vp_list_text(arena, e.at)
                                                : "";
    VP_TRY_ALLOC(l->err, had);
    if (vp_list_has(had, name, &at, &n) != goes)
        goto out;
    if (!goes)
        to = vp_arena_printf(arena, "%s%s%s", had, *had ? "+" : "", name);
    else if (at == had)
        to = vp_arena_strdup(arena, at + n + (at[n] == '+'));
    else
        to = vp_arena_printf(arena, "%.*s%s", (int)(at - had) - 1, had, at + n);
    VP_TRY_ALLOC(l->err, to);
    e.to    = *to ? to : NULL;
    e.keeps = true;
    if (also)
        also->to = e.to;
    else
        VP_TRY(add(l, e));
out:
    return st;
}

static vp_status edit_row(lister *l, const vp_checked_file *file, const vp_saying *row,
                          const char *argument)
{
    static const vp_key scripts = {"", VP_KEY_ANY}; /* that no table has: run_clm.py's block_size */
    const vp_value     *v       = vp_value_at(file->doc->root, row->key);
    const vp_key *known = vp_file_key(l->c, file, row->key, NULL), *key = known ? known : &scripts;
    char          has[512], now[512];
    vp_edit       e = {
              .file = file, .setting = (vp_setting)row->setting, .key = key, .path = row->key, .at = v};
    vp_status st = VP_OK;

    if (v)
        e.from = vp_arena_strdup(l->c->arena, vp_value_text(v, has, sizeof has));
    if (vp_saying_member(row)) {
        VP_TRY(edit_member(l, file, row, e));
        goto out;
    }
    if (row->value && strcmp(row->value, "$set") == 0)
        goto out; /* whatever stands there stays; where nothing does the proof says so */
    if (row->value) {
        e.to = vp_saying_text(l->c->arena, l->wanted, row, argument);
        if (e.to && !*e.to && strcmp(row->value, "$told") == 0) {
            if (v) {
                e.to = NULL;
                VP_TRY(add(l, e));
            }
            goto out;
        }
        const char *effective = vp_effective(l->c, file, row->key, now, sizeof now);
        if (e.to && strncmp(row->value, "$file:", 6) == 0 && v)
            goto out; /* the user's own file of that name */
        /* a default that is another key's value may be another one when all is edited */
        bool moves = !v && known && known->otherwise &&
                     (strchr(known->otherwise, '*') || known->otherwise[0] == '!');
        if (e.to && effective && !moves && vp_same_value(effective, e.to))
            goto out;
        if (e.to && !effective && strcmp(e.to, "null") == 0)
            goto out;
        VP_TRY_ALLOC(l->err, e.to);
    } else if (!v || v->kind == VP_VALUE_NULL) {
        goto out;
    }
    VP_TRY(add(l, e));
out:
    return st;
}

/* Whether the key says this setting alone, in a spelling that is only read. */
static bool is_older_spelling(const vp_checked_file *file, vp_setting setting, const char *key)
{
    for (const vp_dialect *d = file->dialect; d; d = d->base_says ? d->base : NULL)
        for (int i = 0; i < d->n_says; i++)
            if (strcmp(d->says[i].key, key) == 0 &&
                (d->says[i].setting != (int)setting || !d->says[i].read_only))
                return false;
    return true;
}

/* The key as the settings that it is written for have it. */
static vp_status edit_key(lister *l, const vp_checked_file *file, const char *key)
{
    file_rows written;
    vp_status st = VP_OK;

    for (int s = 0; s < VP_N_SETTINGS; s++) {
        if (!l->wanted->value[s])
            continue;
        collect(l, file, (vp_setting)s, false, &written);
        for (int i = 0; i < written.n; i++)
            if (strcmp(written.rows[i]->key, key) == 0)
                VP_TRY(edit_row(l, file, written.rows[i], written.argument[i]));
    }
out:
    return st;
}

/* Beside the spelling that is written, an older one that says another word is a contradiction: axolotl's flash_attention: true
 * beside attn_implementation. It goes; or is written anew, where it says something else too: gradient_checkpointing: offload. */
static vp_status drop_older(lister *l, const vp_checked_file *file, vp_setting setting)
{
    char      now[512];
    vp_status st = VP_OK;

    for (const vp_dialect *d = file->dialect; d; d = d->base_says ? d->base : NULL)
        for (int i = 0; i < d->n_says; i++) {
            const vp_saying *row = &d->says[i];
            const vp_key    *key = vp_file_key(l->c, file, row->key, NULL);
            const vp_value  *v = key && row->read_only && row->setting == (int)setting && row->value
                                     ? vp_value_at(file->doc->root, row->key)
                                     : NULL;
            if (!v || vp_word_is(l->wanted->value[setting], row->word, NULL) ||
                !vp_same_value(vp_value_text(v, now, sizeof now), row->value))
                continue;
            if (is_older_spelling(file, setting, row->key))
                VP_TRY(add(l, (vp_edit){.file    = file,
                                        .setting = setting,
                                        .key     = key,
                                        .path    = row->key,
                                        .at      = v,
                                        .from    = vp_arena_strdup(l->c->arena, now)}));
            else
                VP_TRY(edit_key(l, file, row->key));
        }
out:
    return st;
}

static vp_status edit_file(lister *l, const vp_checked_file *file, vp_setting setting)
{
    file_rows written, read;
    vp_status st = VP_OK;

    collect(l, file, setting, false, &written);
    collect(l, file, setting, true, &read);
    keep_nearest(file, &read);
    const file_rows *use = !written.n || read.n_present > written.n_present ? &read : &written;
    for (int i = 0; i < use->n; i++)
        VP_TRY(edit_row(l, file, use->rows[i], use->argument[i]));
    if (use == &written)
        VP_TRY(drop_older(l, file, setting));
out:
    return st;
}

static bool can_say(const lister *l, const vp_checked_file *file, vp_setting setting)
{
    file_rows written, read;

    collect(l, file, setting, false, &written);
    collect(l, file, setting, true, &read);
    return written.n || read.n_present;
}

static vp_status edit_environment(lister *l)
{
    bool expandable = strcmp(l->wanted->value[VP_SETTING_ALLOCATOR], "expandable") == 0;

    return add(l, (vp_edit){.setting = VP_SETTING_ALLOCATOR,
                            .path    = "PYTORCH_ALLOC_CONF",
                            .to      = expandable ? "expandable_segments:True" : NULL});
}

/* Settings that the user's own code decides have no key in any file; nothing is said of them. */
static vp_status edit_setting(lister *l, vp_setting setting)
{
    const vp_checked *c     = l->c;
    int               first = -1, n = 0;
    vp_status         st = VP_OK;

    if (setting == VP_SETTING_ALLOCATOR)
        return edit_environment(l);
    for (int f = 0; f < c->n_files; f++) {
        const vp_checked_file *file = &c->files[f];
        if (!file->doc || !file->dialect || !can_say(l, file, setting))
            continue;
        if (first < 0)
            first = f;
        if (says_it(l, file, setting)) {
            VP_TRY(edit_file(l, file, setting));
            n++;
        }
    }
    if (!n && first >= 0)
        VP_TRY(edit_file(l, &c->files[first], setting));
    const char *otherwise = vp_setting_otherwise(setting);
    bool        is_usual  = otherwise && strcmp(otherwise, l->wanted->value[setting]) == 0;
    l->wordless[setting] =
        first < 0 && c->settings.value[setting] && (!is_usual || !c->by_default[setting]);
out:
    return st;
}

/* Whether a key goes, or something that it stands in. */
static bool goes(const lister *l, const vp_checked_file *file, const char *path)
{
    for (int64_t i = 0; i < l->n; i++) {
        size_t n = strlen(l->edits[i].path);
        if (l->edits[i].file == file && !l->edits[i].to &&
            strncmp(l->edits[i].path, path, n) == 0 && (path[n] == '.' || !path[n]))
            return true;
    }
    return false;
}

/* Whether all that says a setting goes with other edits: offload with the map that it stands in. */
static bool goes_unsaid(const lister *l, vp_setting setting)
{
    bool any = false;

    for (int f = 0; f < l->c->n_files; f++) {
        const vp_checked_file *file = &l->c->files[f];
        if (file->doc && file->doc->launch)
            return false;
        for (const vp_dialect *d = file->doc ? file->dialect : NULL; d;
             d                   = d->base_says ? d->base : NULL)
            for (int i = 0; i < d->n_says; i++) {
                                  if (d->says[i].setting != (int)setting || !d->says[i].key[0] ||
                    !vp_value_at(file->doc->root, d->says[i].key))
                    continue;
                if (!goes(l, file, d->says[i].key))
                    return false;
                any = true;
            }
    }
    return any;
}

static vp_status check_wordless(const lister *l)
{
    for (int s = 0; s < VP_N_SETTINGS; s++)
        if (l->wordless[s] && !goes_unsaid(l, (vp_setting)s))
            return VP_FAIL_AT(l->err, VP_ERR_INPUT, l->c->files[0].name, 0,
                              vp_setting_key((vp_setting)s), "these files have no word for %s %s",
                              vp_setting_key((vp_setting)s), l->wanted->value[s]);
    return VP_OK;
}

/* What no plan counts, where a file has it on. */
static vp_status edit_switches(lister *l, const vp_checked_file *file)
{
    const char *target = l->c->target ? l->c->target->name : NULL;
    vp_status   st     = VP_OK;

    for (const vp_dialect *d = file->dialect; d; d = d->base_says ? d->base : NULL) {
        const char *version = written_version(l, file, d);
        for (int i = 0; i < d->n_says; i++)
            if (d->says[i].setting == VP_ALWAYS && d->says[i].word &&
                vp_version_within(version, d->says[i].since, d->says[i].until) &&
                vp_when_holds(d->says[i].when, l->wanted, target) &&
                vp_is_there(vp_value_at(file->doc->root, d->says[i].key)))
                VP_TRY(edit_row(l, file, &d->says[i], NULL));
    }
out:
    return st;
}

vp_status vp_edits_list(const vp_checked *c, const vp_settings *wanted, vp_edit **out, int64_t *n,
                        vp_err *err)
{
    lister    l  = {.c = c, .wanted = wanted, .err = err};
    vp_status st = VP_OK;

    *n = 0;
    for (int s = 0; s < VP_N_SETTINGS; s++) {
        const char *has =
            c->settings.value[s] ? c->settings.value[s] : vp_setting_otherwise((vp_setting)s);
        if (!wanted->value[s] || vp_edit_means(c, (vp_setting)s, wanted->value[s]) ||
            (!c->settings.value[s] && has && strcmp(has, wanted->value[s]) == 0 &&
             !is_said(&l, (vp_setting)s)))
            continue;
        VP_TRY(edit_setting(&l, (vp_setting)s));
    }
    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc && c->files[f].dialect)
            VP_TRY(edit_switches(&l, &c->files[f]));
    VP_TRY(check_wordless(&l));
    *out = l.edits;
    *n   = l.n;
out:
    return st;
}
