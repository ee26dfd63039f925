/* trainers/files/check_settings.c: what the files say together: each says a set of words for a setting
 * (one switch of Trainer can mean two precisions); the intersection is what will run, and where it is
 * empty the files contradict each other. */
#include "trainers/files/check_internal.h"
#include "trainers/files/told.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_WORDS = 16 };

/* What one file says for a setting. */
typedef struct statement {
    const char     *words[MAX_WORDS];
    int             n;
    const vp_value *at; /* where it is written; NULL: by default */
    const char     *key;
    const char     *unread; /* a key of it whose value the text does not say; NULL */
} statement;

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_group(const vp_saying *a, const vp_saying *b)
{
    return a->setting == b->setting && same_text(a->word, b->word) &&
           a->read_only == b->read_only && same_text(a->when, b->when) &&
           same_text(a->since, b->since) && same_text(a->until, b->until);
}

/* A global batch over micro-batch and processes, or each process's over micro-batch alone, where all are known; text holds the
 * batch. */
static bool accumulation_of(const vp_checked *c, const vp_checked_file *file, bool is_each,
                            char *text, size_t text_size, const char **argument)
{
    const char *micro = c->settings.value[VP_SETTING_MICRO_BATCH];
    const char *world = is_each ? "1" : c->settings.value[VP_SETTING_WORLD];
    char        buf[64];
    int64_t     global = strtoll(text, NULL, 10), by;

    for (const char *p = file->dialect->shards; p && *p;) {
        size_t n = strcspn(p, " ");
        char   key[64];
        snprintf(key, sizeof key, "%.*s", (int)n, p);
        const char *shard = vp_effective(c, file, key, buf, sizeof buf);
        if (shard && strcmp(shard, "1") != 0)
            return false;
        p += n + (p[n] == ' ');
    }
    if (!micro || !world)
        return false;
    by = strtoll(micro, NULL, 10) * strtoll(world, NULL, 10);
    if (by <= 0 || global < by || (!is_each && global % by != 0))
        return false;
    snprintf(text, text_size, "%lld", (long long)(global / by));
    *argument = text;
    return true;
}

bool vp_is_there(const vp_value *v)
{
    return v && v->kind != VP_VALUE_NULL && !(v->kind == VP_VALUE_BOOL && !v->boolean) &&
           !(v->kind == VP_VALUE_LIST && !v->n_children) &&
           !(v->kind == VP_VALUE_STRING && (!v->text[0] || !strcasecmp(v->text, "false")));
}

/* Whether what a row looks at is written as what the text does not say, or what it stands in is. */
static bool is_unread(const vp_checked_file *file, const vp_saying *row)
{
    const vp_value *v   = vp_value_at(file->doc->root, row->key);
    const char     *dot = v ? NULL : strrchr(row->key, '.');
    char            above[128];

    if (dot) {
        snprintf(above, sizeof above, "%.*s", (int)(dot - row->key), row->key);
        v = vp_value_at(file->doc->root, above);
        return v && v->call && strcmp(v->call, VP_VALUE_UNREAD) == 0;
    }
    /* what a call gives: of a key whose values have no calls */
    const vp_key *k = v && v->call ? vp_dialect_key(file->dialect, row->key, NULL) : NULL;
    if (k && (k->type == VP_KEY_BOOL || k->type == VP_KEY_INT || k->type == VP_KEY_REAL ||
              k->type == VP_KEY_WORD ||
              (k->type == VP_KEY_TEXT && file->dialect == &vp_dialect_model &&
               !(row->value && row->value[0] == '$'))))
        return true;
    return v && !(row->value && strcmp(row->value, "$file:") == 0) &&
           vp_value_is_unknown(file, v, row->value && row->value[0] == '$');
}

/* A setting that is a number of something, in whatever words a row has it. */
static bool is_count(int setting)
{
    const char *words = setting == VP_ALWAYS ? "" : vp_setting_words((vp_setting)setting);

    return words[0] && words[strlen(words) - 1] == 'N';
}

/* A real number that is whole, or such a text where the trainer's reader makes a number of it. */
static bool is_whole_real(const vp_checked_file *file, const vp_value *v, double *out)
{
    char *end = NULL;

    if (v->kind == VP_VALUE_STRING && !v->quoted && file->dialect->exponents)
        *out = strtod(v->text, &end);
    else if (v->kind == VP_VALUE_REAL)
        *out = v->real;
    else
        return false;
    return (!end || (end != v->text && !*end)) && *out == floor(*out) && *out > 0 && *out < 1e12;
}

/* One row against the file. *argument: what "$" stands for, in buf; explicit: it is written there. */
static bool row_holds(const vp_checked *c, const vp_checked_file *file, const vp_saying *row,
                      char *buf, size_t buf_size, const char **argument, const vp_value **at)
{
    const vp_value *v = vp_value_at(file->doc->root, row->key);
    const char     *text;
    double          whole;

    if (is_unread(file, row) || (row->of_command && file->doc->format != VP_FORMAT_FLAGS))
        return false;
    if (!row->value)
        return !v || v->kind == VP_VALUE_NULL;
    if (strcmp(row->value, "$set") == 0) {
        *at = v;
        return vp_is_there(v);
    }
    text = vp_effective(c, file, row->key, buf, buf_size);
    if (strcmp(row->value, "$nonzero") == 0) {
        *at = v;
        return vp_is_there(v) && strtod(text ? text : "", NULL) != 0;
    }
    if (strcmp(row->value, "$count") == 0) { /* [0, 1, 2], "0,1,2" */
        int64_t n = v && v->kind == VP_VALUE_LIST ? v->n_children : 0;
        if (v && v->kind == VP_VALUE_STRING && strchr(v->text, ',') &&
            strspn(v->text, "0123456789, ") == strlen(v->text))
            n = 1;
        for (const char *p = n && v->kind == VP_VALUE_STRING ? v->text : ""; *p; p++)
            n += *p == ',' && p[1];
        *at = v;
        snprintf(buf, buf_size, "%lld", (long long)n);
        *argument = buf;
        return n > 0;
    }
    if (strcmp(row->value, "$told") == 0 || strcmp(row->value, "$targets") == 0) {
        bool of_targets = row->value[2] == 'a';
        *argument       = buf;
        return vp_told_read(text ? v : NULL, of_targets, buf, buf_size);
    }
    if (strncmp(row->value, "$tells:", 7) == 0 || strcmp(row->value, "$parts") == 0) {
        if (text && row->value[1] == 'p')
            vp_told_read_parts(buf, buf_size);
        *argument = text ? buf : NULL;
        return text != NULL;
    }
    if (strncmp(row->value, "$with:", 6) == 0) {
        *at = v;
        return text && vp_told_of(text, row->value + 6);
    }
    if (v && v->kind == VP_VALUE_NULL && !text) {
        *at = v;
        return strcmp(row->value, "null") == 0;
    }
    if (!text)
        return strcmp(row->value, "null") == 0;
    if (v && v->kind != VP_VALUE_NULL)
        *at = v;
    if (strcmp(text, "auto") == 0 && strcmp(row->value, "auto") != 0 && strcmp(row->word, "W") != 0)
        return false;
    if (v && v->kind == VP_VALUE_INT && v->integer > 0 && row->value[0] == '$')
        snprintf(buf, buf_size, "%lld", (long long)v->integer); /* 0x10, 4_096 */
    if (v && row->value[0] == '$' && is_count(row->setting) && is_whole_real(file, v, &whole))
        snprintf(buf, buf_size, "%.0f", whole); /* 8.0, 1e1 */
    if (strcmp(row->value, "$") == 0 || strcmp(row->value, "$,") == 0) {
        char *p = buf;
        if (row->value[1] == ',') /* "q_proj, v_proj" */
            for (char *q = buf; *q; q++)
                if (*q != ' ')
                    *p++ = *q == ',' ? '+' : *q;
        if (row->value[1] == ',')
            *p = '\0';
        *argument = buf;
        return true;
    }
    if (strcmp(row->value, "$word") == 0) {
        *argument = buf;
        return vp_word_is(buf, row->word, NULL);
    }
    if (strcmp(row->value, "$global") == 0 || strcmp(row->value, "$each") == 0)
        return accumulation_of(c, file, row->value[1] == 'e', buf, buf_size, argument);
    if (vp_saying_member(row))
        return v && vp_list_has(vp_list_text(c->arena, v), vp_saying_member(row), NULL, NULL);
    if (strncmp(row->value, "$file:", 6) == 0)
        return v && v->kind != VP_VALUE_NULL && !vp_is_literal(file->dialect, row->key, text);
    if (row->value[0] == '$') /* $model, $world, $global: no word of this setting */
        return true;
    return vp_same_value(text, row->value) ||
           (file->dialect->any_case && !strcasecmp(text, row->value));
}

/* The word that a group says, or NULL. */
static const char *group_word(vp_checked *c, const vp_checked_file *file, const vp_saying *rows,
                              int n, vp_setting setting, const vp_value **at, const char **key)
{
    char        buf[512], kept[512] = "", word[600];
    const char *argument = NULL;

    for (int i = 0; i < n; i++) {
        const vp_value *here = NULL;
        const char     *arg  = NULL;
        if (!row_holds(c, file, &rows[i], buf, sizeof buf, &arg, &here))
            return NULL;
        if (arg && strncmp(rows[i].value, "$tells:", 7) == 0) {
            vp_told_add(kept, sizeof kept, rows[i].value + 7, arg);
            argument = kept;
        } else if (arg && (strcmp(rows[i].value, "$targets") == 0 || rows[i].value[1] == 'p')) {
            if (*arg)
                vp_told_add_targets(kept, sizeof kept, arg);
        } else if (arg) {
            snprintf(kept, sizeof kept, "%s", arg);
            argument = kept;
        }
        if (here && !*at) {
            *at  = here;
            *key = rows[i].key;
        }
    }
    if (argument) {
        const char *colon = strchr(argument, ':') ? NULL : strchr(rows[0].word, ':');
        snprintf(word, sizeof word, "%.*s%s",
                 colon ? (int)(colon - rows[0].word) + (*argument != '\0') : 0, rows[0].word,
                 argument);
    } else {
        snprintf(word, sizeof word, "%s", rows[0].word);
    }
    return vp_setting_canonical(c->arena, setting, word);
}

/* What is written beats what is by default. */
static void add_word(statement *s, const char *word, const vp_value *at, const char *key)
{
    if ((s->n && s->at && !at) || s->n == MAX_WORDS)
        return;
    if (s->n && !s->at && at)
        s->n = 0;
    for (int i = 0; i < s->n && word; i++)
        if (strcmp(s->words[i], word) == 0)
            word = NULL;
    if (word)
        s->words[s->n++] = word;
    if (at && !s->at)
        s->at = at, s->key = key;
}

/* What a file says by the keys of one dialect alone, d or what that is based on. */
static void read_layer(vp_checked *c, const vp_checked_file *file, const vp_dialect *d,
                       vp_setting setting, statement *out)
{
    const char *target = c->target ? c->target->name : NULL, *version = vp_file_version(c, file, d);

    for (int i = 0; i < d->n_says;) {
        const vp_saying *row = &d->says[i];
        int              n   = 1;
        if (row->setting != (int)setting) {
            i++;
            continue;
        }
        while (i + n < d->n_says && d->says[i + n].setting == row->setting &&
               same_group(row, &d->says[i + n]))
            n++;
        i += n;
        const vp_value *at  = NULL;
        const char     *key = row->key, *word;
        if (!vp_version_within(version, row->since, row->until) ||
            !vp_when_holds(row->when, &c->settings, target))
            continue;
        for (int k = 0; k < n && !out->unread; k++)
            if (is_unread(file, &row[k]))
                out->unread = row[k].key;
        if (strcmp(row->word, "W") == 0 && out->n && out->at)
            continue;
        word = group_word(c, file, row, n, setting, &at, &key);
        if (word && (at || !row->of_command)) /* a default there is the trainer's, which says it */
            add_word(out, word, at, key);
    }
}

/* The words of a that b says too. */
static statement words_of_both(const statement *a, const statement *b)
{
    statement both = {.at = a->at, .key = a->key};

    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if (strcmp(a->words[i], b->words[k]) == 0)
                both.words[both.n++] = a->words[i];
    return both;
}

static const char *joined(vp_arena *arena, const statement *s)
{
    char text[300] = "";

    for (int i = 0; i < s->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " or " : "",
                 s->words[i]);
    return vp_arena_strdup(arena, text);
}

static bool may_be(const statement *s, const char *word)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->words[i], word) == 0)
            return true;
    return false;
}

/* ", line 3"; "" of a command's words, which have none. */
static const char *line_of(vp_arena *arena, const vp_value *v)
{
    return v->line ? vp_arena_printf(arena, ", line %d", v->line) : "";
}

/* Weights are loaded as what autocast does not compute in. It runs, but for the whole model under fp16's: GradScaler unscales
 * gradients in fp32 alone (torch 2.11, torch/amp/grad_scaler.py); adapters are in fp32. */
static void find_mixture(vp_checked *c, const vp_checked_file *file, const statement *loaded,
                         const statement *computed)
{
    const statement *at = loaded->at ? loaded : computed, *other = loaded->at ? computed : loaded;
    char             by[128] = "by default";

    if (other->at)
        snprintf(by, sizeof by, "by %s%s", other->key, line_of(c->arena, other->at));
    const char *tuning = c->settings.value[VP_SETTING_TUNING];
    bool        ends   = may_be(computed, "fp16-mixed") && (!tuning || strcmp(tuning, "full") == 0);

    vp_find(c, file, ends ? VP_ERROR : VP_WARNING, at->at, at->key, NULL,
            "precision is %s here and %s %s: such weights do not go with that autocast%s",
            joined(c->arena, at), joined(c->arena, other), by,
            ends ? ", whose GradScaler takes gradients in fp32 alone" : "");
    if (!ends && !c->uncounted)
        c->uncounted = "weights in one 16-bit format under autocast in the other";
}

/* Keys of TRL's say what weights are loaded as, those of the Trainer's what is computed in: both hold. */
static void read_setting(vp_checked *c, const vp_checked_file *file, vp_setting setting,
                         statement *out)
{
    for (const vp_dialect *d = file->dialect; d; d = vp_dialect_below(file->dialect, d)) {
        statement one = {0};
        read_layer(c, file, d, setting, &one);
        out->unread    = out->unread ? out->unread : one.unread;
        statement both = words_of_both(out, &one);
        if (both.n) {
            both.at     = out->at ? out->at : one.at;
            both.key    = out->at ? out->key : one.key;
            both.unread = out->unread;
            *out        = both;
            continue;
        }
        if (setting == VP_SETTING_PRECISION && out->n && one.n && (out->at || one.at))
            find_mixture(c, file, out, &one);
        for (int i = 0; i < one.n; i++)
            add_word(out, one.words[i], one.at, one.key);
    }
}

/* Devices of one machine, times the machines. */
static void count_nodes(vp_checked *c, const vp_checked_file *file, statement *world)
{
    const char *nodes = NULL;
    char        buf[64];

    if (file->dialect->nodes && world->n)
        nodes = vp_effective(c, file, file->dialect->nodes, buf, sizeof buf);
    if (!nodes || strcmp(nodes, "1") == 0)
        return;
    int64_t n = strtoll(nodes, NULL, 10), each = strtoll(world->words[0], NULL, 10);
    if (n > 0 && n <= 1000000 && each > 0)
        world->words[0] = vp_arena_printf(c->arena, "%lld", (long long)(n * each));
    else
        world->n = 0;
}

typedef struct merged {
    statement         all;
    const char       *first_name, *yields_to; /* as in vp_checked_file */
    const vp_dialect *first;                  /* whose file it is */
} merged;

/* What the card has no hardware for, in the line that asks for it. */
static void check_card(vp_checked *c, const merged *m)
{
    const vp_checked_file at = {.name = m->first_name};

    for (int i = 0; i < m->all.n; i++)
        if (strncmp(m->all.words[i], "bf16", 4) != 0)
            return;
    if (c->no_bf16 && m->all.at)
        vp_find(c, &at, VP_WARNING, m->all.at, m->all.key, NULL,
                "means %s: %s; PyTorch emulates it, which is slow", m->all.words[0], c->no_bf16);
}

/* What does nothing: accelerate's precision, where Trainer is told bf16 or fp16 (transformers/training_args.py: the environment counts,
 * then the arguments); False, where a script's call or FSDP turns checkpoints on, for Trainer only does so too (transformers/trainer.py). */
static bool is_beaten(vp_checked *c, vp_setting setting, const vp_checked_file *file,
                      const statement *one, merged *m)
{
    const vp_checked_file first  = {.name = m->first_name, .dialect = m->first};
    bool                  called = one->at && vp_switches_checkpoints_too(one->key);
    bool                  before = m->all.at && vp_switches_checkpoints_too(m->all.key);
    bool by_call = setting == VP_SETTING_RECOMPUTE && one->at && m->all.at && called != before;
    bool later   = by_call ? before
                           : file->dialect == &vp_dialect_accelerate &&
                               vp_dialect_is_based_on(m->first, &vp_dialect_transformers);
    bool sooner  = by_call ? called
                           : m->first == &vp_dialect_accelerate &&
                                vp_dialect_is_based_on(file->dialect, &vp_dialect_transformers);
    const statement *said = later ? &m->all : one, *beaten = later ? one : &m->all;
    bool by_trainer = setting == VP_SETTING_PRECISION && (later || sooner) && said->at &&
                      beaten->at && said->key &&
                      (strcmp(said->key, "bf16") == 0 || strcmp(said->key, "fp16") == 0) &&
                      said->at->kind == VP_VALUE_BOOL && said->at->boolean;

    if (by_call && strcmp(beaten->words[0], "none") == 0 && strstr(said->key, "fsdp"))
        ; /* FSDP's own switch, beside which Trainer's has to be off */
    else if (by_call && strcmp(beaten->words[0], "none") == 0)
        vp_find(c, later ? file : &first, VP_WARNING, beaten->at, beaten->key, NULL,
                "the script turns checkpoints on%s, and this does not turn them off",
                line_of(c->arena, said->at));
    else if (by_trainer)
        vp_find(c, later ? file : &first, VP_WARNING, beaten->at, beaten->key, NULL,
                "%s here does nothing: Trainer is told %s by %s%s, and that counts",
                joined(c->arena, beaten), joined(c->arena, said), said->key,
                line_of(c->arena, said->at));
    else
        return false;
    if (sooner)
        *m = (merged){*one, file->name, file->yields_to, file->dialect};
    return true;
}

/* Where DeepSpeed's file has an optimizer Trainer makes none (transformers/integrations/deepspeed.py, deepspeed_optim_sched()). */
static bool is_engines(vp_checked *c, vp_setting setting, const vp_checked_file *file,
                       const statement *one, merged *m)
{
    const vp_checked_file first = {.name = m->first_name, .dialect = m->first};
    bool now = file->dialect == &vp_dialect_deepspeed, before = m->first == &vp_dialect_deepspeed;
    const statement *said = now ? one : &m->all, *beaten = now ? &m->all : one;

    if (setting != VP_SETTING_OPTIMIZER || now == before)
        return false;
    vp_find(c, now ? &first : file, VP_WARNING, beaten->at, beaten->key, NULL,
            "%s here does nothing: DeepSpeed's file has an optimizer, %s%s, and that trains",
            joined(c->arena, beaten), said->key, line_of(c->arena, said->at));
    if (now)
        *m = (merged){*one, file->name, file->yields_to, file->dialect};
    return true;
}

/* A default says nothing beside what is written. */
static void merge_file(vp_checked *c, vp_setting setting, const vp_checked_file *file, merged *m)
{
    statement             one = {0}, *all = &m->all;
    const vp_checked_file first = {.name = m->first_name, .dialect = m->first};

    read_setting(c, file, setting, &one);
    if (setting == VP_SETTING_WORLD)
        count_nodes(c, file, &one);
    if (one.unread && !c->unread[setting])
        c->unread[setting] = vp_arena_printf(c->arena, "%s in %s", one.unread, file->name);
    if (!one.n || (all->at && !one.at))
        return;
    /* what the launcher says beats a file, and any option the file that is named beside it */
    bool beats = file->dialect == &vp_dialect_launch && one.at &&
                 (setting != VP_SETTING_PRECISION || same_text(m->yields_to, file->name));
    if (!all->n || (!all->at && one.at) || beats) {
        *all          = one;
        m->first_name = file->name;
        m->yields_to  = file->yields_to;
        m->first      = file->dialect;
        return;
    }
    statement both = words_of_both(all, &one);
    if (both.n)
        *all = both;
    else if (is_beaten(c, setting, file, &one, m) ||
             (one.at && is_engines(c, setting, file, &one, m)))
        return;
    else if (one.at && setting == VP_SETTING_PRECISION &&
             (file->dialect == &vp_dialect_model) != (m->first == &vp_dialect_model))
        find_mixture(c, file->dialect == &vp_dialect_model ? file : &first,
                     file->dialect == &vp_dialect_model ? &one : all,
                     file->dialect == &vp_dialect_model ? all : &one);
    else if (one.at && !same_text(file->yields_to, m->first_name)) /* else two defaults */
        vp_find(c, file, VP_ERROR, one.at, one.key, NULL,
                "%s is %s here and %s by %s in %s%s: one switch in two files",
                vp_setting_key(setting), joined(c->arena, &one), joined(c->arena, all), all->key,
                m->first_name, line_of(c->arena, all->at));
}

/* Programs say it too, and so do keys that only one method has. Of methods that no setting has a word for: nothing. */
static void merge_method(vp_checked *c)
{
    const char *said, *method = vp_checked_method(c, &said);
    bool        is_known = false;

    for (int f = 0; f < c->n_files; f++)
        is_known = is_known || (c->files[f].doc && c->files[f].dialect);
    if (!is_known)
        return;
    c->settings.value[VP_SETTING_METHOD] =
        method ? vp_setting_canonical(c->arena, VP_SETTING_METHOD, method)
               : vp_setting_otherwise(VP_SETTING_METHOD);
    c->by_default[VP_SETTING_METHOD] = !method;
}

/* A script adapts its model as TRL's ModelConfig says, and no command is there that says it. */
static bool is_tuning_open(const vp_checked *c)
{
    bool asks = false;

    for (int f = 0; f < c->n_files; f++) {
        const vp_document *doc = c->files[f].doc;
        if (doc && doc->asks_adapters)
            asks = true;
        else if (doc && c->files[f].dialect == &vp_dialect_trl)
            return false;
    }
    return asks;
}

static void merge_setting(vp_checked *c, vp_setting setting)
{
    merged           m   = {0};
    const statement *all = &m.all;

    /* how 4 bits are held, of weights that nobody holds in 4 bits; how long it is what nobody writes */
    if ((setting == VP_SETTING_QUANT || setting == VP_SETTING_PREPARE ||
         setting == VP_SETTING_COMPLETION || setting == VP_SETTING_GENERATOR) &&
        !vp_setting_counts(setting, &c->settings))
        return;
    for (int f = 0; f < 2 * c->n_files;
         f++) { /* a command before the file that it names, in whatever order they are given */
        const vp_checked_file *file = &c->files[f % c->n_files];
        if (file->doc && file->dialect && (f < c->n_files) == (file->yields_to == NULL))
            merge_file(c, setting, file, &m);
    }
    for (int f = 0; f < 2 * c->n_files; f++) { /* what a command names first: its options win */
        const vp_checked_file *file = &c->files[f % c->n_files];
        if (file->doc && file->doc->launch && (f < c->n_files) == (file->yields_to != NULL))
            merge_file(c, setting,
                       &(vp_checked_file){.doc     = file->doc->launch,
                                          .name    = file->name,
                                          .dialect = &vp_dialect_launch},
                       &m);
    }
    const char *unread  = c->unread[setting];
    bool        besides = unread && strncmp(unread, "gradient_checkpointing_enable ", 30) == 0;
    if (!all->n ||
        (unread && !besides && !all->at)) /* what is written and not read is no default */
        return;
    if (setting == VP_SETTING_TUNING && !all->at && is_tuning_open(c))
        return;
    /* which of several it is, what is not read may say */
    bool is_open = setting == VP_SETTING_PRECISION && all->n > 1;
    if (besides && strcmp(all->words[0], "none") == 0)
        c->may_be[setting] = "none or full";
    else if (!is_open)
        c->unread[setting] = NULL;
    if (setting == VP_SETTING_PRECISION)
        check_card(c, &m);
    /* of adapters that nobody makes there is no default */
    if (!all->at && !c->settings.value[VP_SETTING_TUNING] && setting != VP_SETTING_TUNING &&
        !vp_setting_counts(setting, &c->settings))
        return;
    c->settings.value[setting] = all->words[0];
    if (all->n > 1 && setting != VP_SETTING_RECOMPUTE) /* of those the first one runs */
        c->may_be[setting] = joined(c->arena, all);
    c->by_default[setting] = !all->at;
}

/* ---- pairs that are no setting ---- */

static const struct {
    const char *a, *key_a, *is_a, *b, *key_b, *is_b,
        *message; /* is NULL: the two must be the same */
} pairs[] = {
    {"training_args", "learning_rate", NULL, "deepspeed", "optimizer.params.lr", NULL,
     "the Trainer refuses two learning rates"},
    {"training_args", "bf16", NULL, "deepspeed", "bf16.enabled", NULL,
     "the Trainer refuses two precisions"},
    {"training_args", "fp16", NULL, "deepspeed", "fp16.enabled", NULL,
     "the Trainer refuses two precisions"},
    {"training_args", "weight_decay", NULL, "deepspeed", "optimizer.params.weight_decay", NULL,
     "the Trainer refuses two weight decays"},
    {"training_args", "gradient_checkpointing", "true", "accelerate",
     "fsdp_config.fsdp_activation_checkpointing", "true",
     "both switch checkpointing on, which the Trainer refuses"},
    {"training_args", "activation_checkpointing", "true", "accelerate",
     "fsdp_config.fsdp_activation_checkpointing", "true",
     "both switch checkpointing on, which the Trainer refuses"},
    {"training_args", "gradient_checkpointing", "true", "fsdp_config",
     "fsdp_activation_checkpointing", "true",
     "both switch checkpointing on, which the Trainer refuses"},
    {"training_args", "activation_checkpointing", "true", "fsdp_config",
     "fsdp_activation_checkpointing", "true",
     "both switch checkpointing on, which the Trainer refuses"},
};

static bool is_or_has(const vp_checked_file *file, const char *name)
{
    for (const vp_dialect *d = file->doc ? file->dialect : NULL; d; d = d->base)
        if (strcmp(d->name, name) == 0)
            return true;
    return false;
}

static void check_pairs(vp_checked *c)
{
    char x[256], y[256], by[32];

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int a = 0; a < c->n_files; a++)
            for (int b = 0; b < c->n_files; b++) {
                if (!is_or_has(&c->files[a], pairs[i].a) || !is_or_has(&c->files[b], pairs[i].b))
                    continue;
                const vp_value *v    = vp_value_at(c->files[a].doc->root, pairs[i].key_a);
                const vp_value *w    = vp_value_at(c->files[b].doc->root, pairs[i].key_b);
                const char     *said = NULL;
                if (v && v->kind != VP_VALUE_NULL)
                    said = vp_value_text(v, x, sizeof x);
                else if (pairs[i].is_a) /* a default switches on, too */
                    said = vp_effective(c, &c->files[a], pairs[i].key_a, x, sizeof x);
                if (!said || !w || w->kind == VP_VALUE_NULL)
                    continue;
                vp_value_text(w, y, sizeof y);
                if (strcmp(said, "auto") == 0 || strcmp(y, "auto") == 0)
                    continue;
                if (pairs[i].is_a
                        ? !vp_same_value(said, pairs[i].is_a) || !vp_same_value(y, pairs[i].is_b)
                        : vp_same_value(said, y))
                    continue;
                if (v)
                    snprintf(by, sizeof by, "%s", line_of(c->arena, v));
                vp_find(c, &c->files[b], VP_ERROR, w, pairs[i].key_b, NULL,
                        "%s here, %s is %s in %s%s: %s", y, pairs[i].key_a, said, c->files[a].name,
                        v ? by : ", by default", pairs[i].message);
            }
}

/* A global batch that micro-batches of all processes do not come to: Megatron (core/num_microbatches_calculator.py) and
 * torchtitan (train.py) refuse one that is no multiple, litgpt (args.py) one that is less. */
static void check_global(vp_checked *c, const vp_checked_file *file, const vp_dialect *d)
{
    const vp_settings *s     = &c->settings;
    const char        *micro = s->value[VP_SETTING_MICRO_BATCH],
               *world        = c->by_default[VP_SETTING_WORLD] ? NULL : s->value[VP_SETTING_WORLD];
    bool    rounds           = d == &vp_dialect_litgpt;
    int64_t by               = micro && world ? strtoll(world, NULL, 10) : 0;

    if (vp_value_at(file->doc->root, "rampup_batch_size") ||
        vp_value_at(file->doc->root, "decrease_batch_size_if_needed") || file->doc->has_gap)
        return;
    for (const char *p = d->shards; p && *p;) {
        size_t n = strcspn(p, " ");
        char   key[64], buf[64];
        snprintf(key, sizeof key, "%.*s", (int)n, p);
        const char *shard = vp_effective(c, file, key, buf, sizeof buf);
        int64_t     cuts  = shard ? strtoll(shard, NULL, 10) : 1;
        by                = cuts > 0 && by % cuts == 0 ? by / cuts : 0;
        p += n + (p[n] == ' ');
    }
    for (int i = 0; by > 0 && i < d->n_says; i++) {
        const vp_value *v   = d->says[i].value && strcmp(d->says[i].value, "$global") == 0
                                  ? vp_value_at(file->doc->root, d->says[i].key)
                                  : NULL;
        int64_t         all = by * strtoll(micro, NULL, 10);
        if (!v || v->kind != VP_VALUE_INT || v->integer <= 0 || all <= 0 ||
            (rounds ? v->integer >= all : v->integer % all == 0))
            continue;
        vp_find(c, file, VP_ERROR, v, d->says[i].key, NULL,
                rounds ? "%lld is less than micro-batch x processes, %s x %lld: it is refused"
                       : "%lld is no multiple of micro-batch x data-parallel processes, %s x %lld: "
                         "it is refused",
                (long long)v->integer, micro, (long long)by);
        return;
    }
}

/* ---- defaults that cost ---- */

/* Whether the setting that a key says is written in the file, by whatever key; of checkpointing in any, for whoever switches it
 * on has it. */
static bool is_said_otherwise(vp_checked *c, const vp_checked_file *file, const char *path)
{
    for (const vp_dialect *d = file->dialect; d; d = d->base)
        for (int i = 0; i < d->n_says; i++)
            if (d->says[i].setting != VP_ALWAYS && strcmp(d->says[i].key, path) == 0) {
                statement s = {0};
                read_setting(c, file, d->says[i].setting, &s);
                if (s.at || (d->says[i].setting == VP_SETTING_RECOMPUTE &&
                             !c->by_default[VP_SETTING_RECOMPUTE]))
                    return true;
            }
    return false;
}

/* Whether the key is written in another file of the kind: the command's options, or the file it names. */
static bool is_said_elsewhere(const vp_checked *c, const vp_checked_file *file, const char *path)
{
    for (int f = 0; f < c->n_files; f++)
        if (c->files[f].doc && &c->files[f] != file && c->files[f].dialect == file->dialect &&
            vp_value_at(c->files[f].doc->root, path))
            return true;
    return false;
}

/* How weights are held in 4 bits, where they are not. */
static bool is_of_no_use(const vp_checked_file *file, const char *path)
{
    const vp_value *on = vp_value_at(file->doc->root, "quantization_config.load_in_4bit");

    return strncmp(path, "quantization_config.bnb_4bit", 28) == 0 &&
           !(on && on->kind == VP_VALUE_BOOL && on->boolean);
}

static bool costs_unsaid(vp_checked *c, const vp_checked_file *file, const vp_key *k)
{
    const char *version;

    return k->costs && k->otherwise && !file->doc->has_gap &&
           !vp_value_at(file->doc->root, k->path) && !is_of_no_use(file, k->path) &&
           vp_file_key(c, file, k->path, &version) == k &&
           !(k->was && vp_version_compare(version, k->changed) < 0) &&
           !is_said_otherwise(c, file, k->path) && !is_said_elsewhere(c, file, k->path);
}

/* Whether the method that trains has such a key: one that stands for a setting by no row of this method's is another's. */
static bool is_of_method(const vp_checked *c, const vp_dialect *d, const char *key)
{
    const vp_settings only = {
        .value = {[VP_SETTING_METHOD] = c->settings.value[VP_SETTING_METHOD]}};
    bool found = false;

    for (int i = 0; i < d->n_says; i++) {
        if (strcmp(d->says[i].key, key) != 0)
            continue;
        if (vp_when_holds(d->says[i].when, &only, NULL))
            return true;
        found = true;
    }
    return !found;
}

static void check_costs(vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++) {
        vp_checked_file  *file  = &c->files[f];
        const vp_dialect *first = file->doc ? file->dialect : NULL;
        for (const vp_dialect *d = first; d; d = d->base_says ? d->base : NULL)
            for (int i = 0; i < d->n_keys; i++)
                if (costs_unsaid(c, file, &d->keys[i]) && is_of_method(c, d, d->keys[i].path))
                    vp_find(c, file, VP_NOTE, NULL, d->keys[i].path, NULL, "is not set: %s, so %s",
                            d->keys[i].otherwise, d->keys[i].costs);
    }
}

/* What no file of the target has a key for and the user's own code decides. */
static void check_tuning(vp_checked *c)
{
    const vp_told *told = c->target ? c->target->script : NULL;
    int            f    = 0;

    while (f + 1 < c->n_files && !(c->files[f].doc && c->files[f].dialect))
        f++;
    for (; told && told->setting; told++)
        if (strcmp(told->setting, "tuning") == 0 && !c->settings.value[VP_SETTING_TUNING])
            vp_find(c, &c->files[f], VP_NOTE, NULL, "tuning", NULL,
                    "is not said by these files but by %s: with LoRA there the memory is another; "
                    "what follows is of full training",
                    told->where);
}

/* A number that is written and too large for any setting: not "not said". */
static void check_sizes(vp_checked *c, const vp_checked_file *file, const vp_dialect *d)
{
    for (int i = 0; i < d->n_says; i++) {
        const vp_saying *row = &d->says[i];
        const vp_value  *v;
        if (row->setting == VP_ALWAYS || !row->value || strcmp(row->value, "$") != 0 ||
            strcmp(vp_setting_words((vp_setting)row->setting), "N") != 0)
            continue;
        v = vp_value_at(file->doc->root, row->key);
        if (v && v->kind == VP_VALUE_INT && v->real >= 1e12)
            vp_find(c, file, VP_ERROR, v, row->key, NULL,
                    "%lld is above 999999999999, the largest that is judged",
                    (long long)v->integer);
    }
}

void vp_check_lengths(vp_checked *c, int64_t positions, bool learns_positions)
{
    for (int f = 0; f < c->n_files; f++) {
        statement one = {0};
        if (c->files[f].doc && c->files[f].dialect)
            read_setting(c, &c->files[f], VP_SETTING_SEQ, &one);
        if (one.n && strtoll(one.words[0], NULL, 10) > positions &&
            (one.at || (c->by_default[VP_SETTING_SEQ] &&
                        strcmp(one.words[0], c->settings.value[VP_SETTING_SEQ]) == 0)))
            vp_find(c, &c->files[f], learns_positions ? VP_ERROR : VP_WARNING, one.at, one.key,
                    NULL, "%s tokens%s are more than the %lld positions this model %s",
                    one.words[0], one.at ? "" : ", the default,", (long long)positions,
                    learns_positions ? "has" : "was made for, and run");
    }
}

/* That a card would be slow at what it does not run. */
static void forget_card(vp_checked *c)
{
    int64_t n = 0;

    for (int64_t i = 0; i < c->n_findings; i++)
        if (!c->no_bf16 || c->findings[i].severity != VP_WARNING ||
            !strstr(c->findings[i].message, c->no_bf16))
            c->findings[n++] = c->findings[i];
    c->n_findings = n;
}

vp_status vp_check_refused(vp_checked *c, vp_setting setting, const char *why, const char *instead,
                           vp_err *err)
{
    for (int f = 0; f < c->n_files; f++) {
        statement one = {0};
        if (c->files[f].doc && c->files[f].dialect)
            read_setting(c, &c->files[f], setting, &one);
        if (!one.n || (!one.at && !c->by_default[setting]))
            continue;
        forget_card(c);
        vp_find(c, &c->files[f], VP_ERROR, one.at, one.at ? one.key : vp_setting_key(setting),
                instead, "%s", why);
        return vp_check_sort(c, err);
    }
    return VP_OK;
}

void vp_check_settings(vp_checked *c)
{
    merge_method(c);
    merge_setting(c, VP_SETTING_TUNING); /* what adapters are beside decides what others mean */
    for (int s = 0; s < VP_N_SETTINGS; s++)
        if (s != VP_SETTING_TUNING && s != VP_SETTING_METHOD) {
            merge_setting(c, (vp_setting)s);
            vp_settle(c);
            if (s == VP_SETTING_WORLD && !c->settings.value[s] && c->world) {
                c->settings.value[s] = c->world; /* before what divides by it */
                c->by_default[s]     = true;
            }
        }
    check_pairs(c);
    vp_judge_storage(c);
    vp_judge_axolotl(c);
    vp_judge_batch(c);
    vp_judge_groups(c);
    vp_judge_unasked(c);
    vp_judge_launch(c);
    for (int f = 0; f < c->n_files; f++)
        for (const vp_dialect *d = c->files[f].doc ? c->files[f].dialect : NULL; d;
             d                   = d->base_says ? d->base : NULL)
            check_sizes(c, &c->files[f], d), check_global(c, &c->files[f], d);
    check_costs(c);
    check_tuning(c);
}
