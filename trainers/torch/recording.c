#include "trainers/torch/recording_internal.h"

#include "base/file.h"
#include "base/hash.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading: lines, then tokens of the one program that is asked for ---- */

static bool starts(const char *line, const char *word, const char **rest)
{
    size_t n = strlen(word);

    if (strncmp(line, word, n) != 0 || line[n] != ' ')
        return false;
    *rest = line + n + 1;
    return true;
}

static bool keep_line(vp_recording *r, const char ***list, int64_t *n, int64_t *cap,
                      const char *text)
{
    if (!vp_arena_grow(r->arena, (void **)list, *n, cap, sizeof **list))
        return false;
    (*list)[(*n)++] = text;
    return true;
}

/* "program KEY", and its lines below it; "same KEY = KEY". */
static vp_status add_program(vp_recording *r, const char *key, char *line, int number, bool same,
                             vp_err *err)
{
    vp_recorded_program *p     = vp_arena_alloc(r->arena, sizeof *p);
    char                *other = same ? strstr(line, " = ") : NULL;

    if (!p || !vp_arena_grow(r->arena, (void **)&r->programs, r->n_programs, &r->cap_programs,
                             sizeof *r->programs))
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    *p = (vp_recorded_program){
        .key = key, .text = line + strlen(line) + 1, .line = number, .recording = r, .every = 1};
    if (same && !other)
        return VP_FAIL_AT(err, VP_ERR_INPUT, r->path, number, NULL, "no line of a recording");
    if (other) {
        *other  = '\0';
        p->same = other + 3;
    }
    p->hash                      = vp_hash(key, strlen(key));
    r->programs[r->n_programs++] = p;
    return VP_OK;
}

/* One line of the file, NUL-terminated. Lines of programs are left for later. */
static vp_status read_line(vp_recording *r, char *line, int number, bool *inside, vp_err *err)
{
    const char *rest;
    bool        kept = true;

    if (starts(line, "program", &rest) || starts(line, "same", &rest)) {
        *inside = line[0] == 'p';
        return add_program(r, rest, line, number, !*inside, err);
    }
    if (strcmp(line, "end") == 0)
        *inside = false;
    else if (*inside || !*line || *line == '#' || strcmp(line, "vplan-recording 2") == 0 ||
             starts(line, "family", &rest) || starts(line, "device", &rest))
        return VP_OK;
    else if (starts(line, "versions", &rest))
        r->versions = rest;
    else if (starts(line, "requires", &rest))
        kept = keep_line(r, &r->requirements, &r->n_requirements, &r->cap_requirements, rest);
    else if (starts(line, "field", &rest))
        kept = keep_line(r, &r->fields, &r->n_fields, &r->cap_fields, rest);
    else if (starts(line, "also", &rest)) {
        char *versions;
        if (strtoll(rest, &versions, 10) != r->n_also || *versions != ' ')
            return VP_FAIL_AT(err, VP_ERR_INPUT, r->path, number, NULL, "no line of a recording");
        kept = keep_line(r, &r->also, &r->n_also, &r->cap_also, versions + 1);
    } else if (starts(line, "size", &rest))
        kept = keep_line(r, &r->sizes, &r->n_sizes, &r->cap_sizes, rest);
    else if (starts(line, "part", &rest))
        kept = keep_line(r, &r->parts, &r->n_parts, &r->cap_parts, rest);
    else
        return VP_FAIL_AT(err, VP_ERR_INPUT, r->path, number, NULL, "no line of a recording");
    return kept ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
}

vp_status vp_recording_open(const char *path, vp_recording **out, vp_err *err)
{
    vp_recording *r = calloc(1, sizeof *r);
    int64_t       n_bytes;
    int           number = 1;
    bool          inside = false;
    vp_status     st     = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, r);
    pthread_mutex_init(&r->lock, NULL); /* of default attributes: it cannot fail */
    r->arena = vp_arena_new();
    VP_TRY_ALLOC(err, r->arena);
    r->path = vp_arena_strdup(r->arena, path);
    VP_TRY_ALLOC(err, r->path);
    VP_TRY(vp_file_read(path, MAX_BYTES, &r->text, &n_bytes, err));
    if (n_bytes == 0 || r->text[n_bytes - 1] != '\n' || strlen(r->text) != (size_t)n_bytes)
        VP_TRY(
            VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL, "not a recording: it ends within a line"));
    for (char *line = r->text, *end; (end = strchr(line, '\n')); line = end + 1, number++) {
        *end = '\0';
        VP_TRY(read_line(r, line, number, &inside, err));
    }
    if (!r->versions || inside)
        VP_TRY(VP_FAIL_AT(err, VP_ERR_INPUT, path, 0, NULL, "not a recording, or not all of one"));
    *out = r;
    r    = NULL;
out:
    vp_recording_free(r);
    return st;
}

void vp_recording_free(vp_recording *r)
{
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    vp_arena_free(r->arena);
    free(r->text);
    free(r);
}

const char *vp_recording_versions(const vp_recording *r)
{
    return r->versions;
}

const char *vp_recording_also(const vp_recording *r, int64_t i)
{
    return i < r->n_also ? r->also[i] : NULL;
}

const char *vp_recording_field(const vp_recording *r, int64_t i)
{
    return i < r->n_fields ? r->fields[i] : NULL;
}

/* Whether an expression has P as a factor: not MP, nor YP. */
static bool has_positions(const char *size)
{
    for (const char *c = size; (c = strchr(c, 'P')) != NULL; c++)
        if ((c == size || !isalpha((unsigned char)c[-1])) && !isalnum((unsigned char)c[1]))
            return true;
    return false;
}

bool vp_recording_learns_positions(const vp_recording *r)
{
    bool learns = false;

    for (int64_t i = 0; i < r->n_sizes && !learns; i++)
        learns = has_positions(r->sizes[i]);
    return learns;
}

const char *vp_recording_requirement(const vp_recording *r, int64_t i)
{
    return i < r->n_requirements ? r->requirements[i] : NULL;
}

const char *vp_recording_key(const vp_recording *r, int64_t i)
{
    return i < r->n_programs ? r->programs[i]->key : NULL;
}

static vp_status broken(const vp_recorded_program *p, int line, const char *what, vp_err *err)
{
    return VP_FAIL_AT(err, VP_ERR_INPUT, p->recording->path, line, NULL, "%s", what);
}

int vp_recorded_phase_named(const vp_recorded_program *p, const char *name, size_t n)
{
    for (int i = 0; i < p->n_phases; i++)
        if (strlen(p->phases[i].name) == n && memcmp(p->phases[i].name, name, n) == 0)
            return i;
    return -1;
}

/* "<", "<<": so many phases before; "b": that section of it, else the same; then the allocation's number in
 * the section. */
static bool read_slot(const vp_recorded_program *p, const char **text, const section *here,
                      int phase_idx, int32_t *slot_idx)
{
    const section *s    = here;
    const phase   *from = &p->phases[phase_idx];

    for (; **text == '<'; ++*text)
        if (--phase_idx < 0)
            return false;
    if (islower((unsigned char)**text)) {
        int which = *(*text)++ - 'a';
        from      = &p->phases[phase_idx];
        if (which >= from->n_sections)
            return false;
        s = &from->sections[which];
    }
    if (!isdigit((unsigned char)**text))
        return false;
    long n    = strtol(*text, (char **)text, 10);
    *slot_idx = (int32_t)(s->first_slot + n);
    return n < INT32_MAX / 2;
}

/* "-12", "-<b12i-1", "-12*0:1", ...: behind the '-'. */
static bool read_free(const vp_recorded_program *p, const char **text, const section *here,
                      int phase_idx, token *t)
{
    static const char letters[] = "^$irse";
    static const rule rules[]   = {RULE_FIRST, RULE_LAST, RULE_SAME, RULE_BACK, RULE_AT, RULE_END};
    const char       *at;
    long              a = 0, b = 0;

    t->is_free = true;
    t->rule    = RULE_ONE;
    if (!read_slot(p, text, here, phase_idx, &t->slot))
        return false;
    if (**text == '*') {
        a = strtol(*text + 1, (char **)text, 10);
        if (**text != ':')
            return false;
        b       = strtol(*text + 1, (char **)text, 10);
        t->rule = RULE_ALL;
    } else if (**text && (at = strchr(letters, **text))) {
        t->rule = (uint8_t)rules[at - letters];
        ++*text;
        if (t->rule >= RULE_SAME)
            a = strtol(*text, (char **)text, 10);
    }
    t->a = (int16_t)a;
    t->b = (int16_t)b;
    return labs(a) <= 100 && labs(b) <= 100;
}

/* A body frees what a later line of it, or the repetition before, allocates: looked at when all is read. */
static bool frees_are_sound(const vp_recorded_program *p)
{
    for (int i = 0; i < p->n_phases; i++)
        for (int j = 0; j < p->phases[i].n_sections; j++)
            for (int64_t k = 0; k < p->phases[i].sections[j].n; k++) {
                const token *t = &p->phases[i].sections[j].tokens[k];
                if (t->is_free &&
                    (t->slot >= p->n_slots ||
                     p->slots[t->slot].in_body != (t->rule == RULE_ALL || t->rule >= RULE_SAME)))
                    return false;
            }
    return true;
}

/* One block does for what each repetition of a body frees again before its end: the slot is as one outside of bodies. */
static bool find_brief(vp_recorded_program *p)
{
    int64_t *n_frees = vp_arena_array(p->recording->arena, p->n_slots + 1, sizeof *n_frees);
    int64_t *n_brief = vp_arena_array(p->recording->arena, p->n_slots + 1, sizeof *n_brief);

    if (!n_frees || !n_brief)
        return false;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < p->n_phases; i++)
            for (int j = 0; j < p->phases[i].n_sections; j++) {
                section *x    = &p->phases[i].sections[j];
                int64_t  seen = x->first_slot; /* behind what it has allocated so far */
                for (int64_t k = 0; k < x->n; k++) {
                    token *t        = &x->tokens[k];
                    bool   is_brief = t->is_free && t->rule == RULE_SAME && t->a == 0 &&
                                    t->slot >= x->first_slot && t->slot < seen &&
                                    p->slots[t->slot].is_plain;
                    seen += !t->is_free;
                    if (pass == 0) {
                        n_frees[t->slot] += t->is_free;
                        n_brief[t->slot] += is_brief;
                    } else if (is_brief && n_brief[t->slot] == n_frees[t->slot]) {
                        p->slots[t->slot].in_body = false;
                        t->rule                   = RULE_ONE;
                    }
                }
            }
    return true;
}

/* Which look-up: "!" of tokens, "!D" of targets, "!W" and "!Z" of buckets of distances; none. */
static char read_mark(const char **text)
{
    if (**text != '!')
        return '\0';
    ++*text;
    return **text && strchr("DWZ", **text) ? *(*text)++ : '!';
}

/* "%h": rows of a tile; "%f", "%g": its part of the table, gone before the next one is there, or after; "%t": of a tile that may be
 * the last, smaller one. */
static char read_tile(const char **text)
{
    if (**text != '%' || !(*text)[1] || !strchr("hfgtwj", (*text)[1]))
        return '\0';
    *text += 2;
    return (*text)[-1];
}

/* "A12", "T12!", "T12!D", "T12%h", "T12~": an owner, an expression, a look-up, a tile, a stream of its own. */
/* Nobody counts them or is told of them. */
static bool is_working_memory(vp_owner owner)
{
    return owner != VP_OWNER_PARAMETER && owner != VP_OWNER_FROZEN && owner != VP_OWNER_QUANTISED &&
           owner != VP_OWNER_GRADIENT;
}

static bool read_alloc(vp_recorded_program *p, const char **text, int phase_idx, int section_idx,
                       token *t)
{
    vp_owner owner  = vp_owner_of_letter(*(*text)++);
    long     size   = isdigit((unsigned char)**text) ? strtol(*text, (char **)text, 10) : -1;
    char     large  = read_mark(text);
    char     tile   = read_tile(text);
    bool     beside = **text == '~';

    *text += beside;
    if (owner == VP_N_OWNERS || size < 0 || size >= p->recording->n_sizes ||
        !vp_arena_grow(p->recording->arena, (void **)&p->slots, p->n_slots, &p->cap_slots,
                       sizeof *p->slots))
        return false;
    *t = (token){.slot = (int32_t)p->n_slots};
    p->slots[p->n_slots++] =
        (slot){.size     = (int32_t)size,
               .large    = large,
               .tile     = tile,
               .beside   = beside,
               .in_body  = p->phases[phase_idx].sections[section_idx].group >= 0,
               .is_plain = !tile && !beside && is_working_memory(owner),
               .owner    = owner,
               .phase    = phase_idx,
               .section  = section_idx};
    return true;
}

static bool read_part(vp_recorded_program *p, const char *text, int phase_idx, int section_idx)
{
    section *s     = &p->phases[phase_idx].sections[section_idx];
    int64_t  n_cap = 1;

    for (const char *c = text; *c; c++)
        n_cap += *c == ' ';
    s->tokens = vp_arena_array(p->recording->arena, n_cap, sizeof *s->tokens);
    if (!s->tokens)
        return false;
    while (*text) {
        token *t = &s->tokens[s->n++];
        if (*text == '-' ? !(text++, read_free(p, &text, s, phase_idx, t))
                         : !read_alloc(p, &text, phase_idx, section_idx, t))
            return false;
        if (*text == ' ')
            text++;
        else if (*text)
            return false;
    }
    return true;
}

/* "12", "-" for nothing, or of a body "12*0-1": its group and its irregular blocks. */
static bool read_section(vp_recorded_program *p, const char **text, int phase_idx)
{
    phase   *ph = &p->phases[phase_idx];
    section *s  = &ph->sections[ph->n_sections];
    long     part;

    if (ph->n_sections == MAX_SECTIONS)
        return false;
    *s = (section){.group = -1, .first_slot = p->n_slots};
    ph->n_sections++;
    if (**text == '-') {
        ++*text;
        return true;
    }
    part = isdigit((unsigned char)**text) ? strtol(*text, (char **)text, 10) : -1;
    if (part < 0 || part >= p->recording->n_parts)
        return false;
    if (**text == '*') {
        s->group = (int)strtol(*text + 1, (char **)text, 10);
        if (s->group < 0 || s->group > VP_RECORDED_TILES || **text != '-')
            return false;
        s->irregular = strtol(*text + 1, (char **)text, 10);
        if (s->irregular < 0)
            return false;
    }
    return read_part(p, p->recording->parts[part], phase_idx, ph->n_sections - 1);
}

/* "phase forward 4 5*0-0 6" */
static vp_status read_phase(vp_recorded_program *p, const char *text, int number, vp_err *err)
{
    size_t n    = strcspn(text, " ");
    char  *name = vp_arena_printf(p->recording->arena, "%.*s", (int)n, text);

    if (!name)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    if (p->n_phases == MAX_PHASES)
        return broken(p, number, "too many phases", err);
    p->phases[p->n_phases++] = (phase){.name = name};
    for (text += n; *text == ' ';)
        if (text++, !read_section(p, &text, p->n_phases - 1))
            return broken(p, number, "no events of a recorded phase", err);
    p->phases[p->n_phases - 1].end_slot = p->n_slots;
    return *text ? broken(p, number, "no events of a recorded phase", err) : VP_OK;
}

static vp_status read_program_line(vp_recorded_program *p, const char *line, int number,
                                   vp_err *err)
{
    const char *rest;

    if (starts(line, "phase", &rest))
        return read_phase(p, rest, number, err);
    if (starts(line, "every", &rest)) {
        char *more;
        p->every = strtoll(rest, &more, 10);
        p->rest  = strtoll(more, NULL, 10);
        if (p->every >= 1 && p->rest >= 0 && p->rest < p->every)
            return VP_OK;
    }
    return broken(p, number, "no line of a recorded program", err);
}

/* "workspace forward 23 33554432"; phases are known by then. */
static vp_status read_workspace(vp_recorded_program *p, const char *text, int number, vp_err *err)
{
    size_t n     = strcspn(text, " ");
    int    which = vp_recorded_phase_named(p, text, n);
    char  *end;

    if (which < 0 || p->n_workspaces == MAX_WORKSPACES)
        return broken(p, number, "a workspace of no phase", err);
    workspace *w = &p->workspaces[p->n_workspaces++];
    w->phase     = which;
    w->after     = strtoll(text + n, &end, 10);
    w->bytes     = strtoll(end, NULL, 10);
    return VP_OK;
}

/* "tied load c1": a slot by phase, section and number. */
static vp_status read_tied(vp_recorded_program *p, const char *text, int number, vp_err *err)
{
    size_t n     = strcspn(text, " ");
    int    which = vp_recorded_phase_named(p, text, n);

    for (text += n; *text == ' ';)
        text++;
    if (which < 0 || !islower((unsigned char)*text) || p->n_untied == MAX_UNTIED ||
        !read_slot(p, &text, NULL, which, &p->untied[p->n_untied]) || *text ||
        p->untied[p->n_untied++] >= p->n_slots)
        return broken(p, number, "no slot of a recorded program", err);
    return VP_OK;
}

/* "also 0 ones load:c1": of which line of versions, a mask beside the inputs, slots that are not there. */
static vp_status read_also(vp_recorded_program *p, const char *text, int number, vp_err *err)
{
    also *x = &p->also[p->n_also];
    char *word;

    if (p->n_also == MAX_ALSO)
        return broken(p, number, "too many lines of other versions", err);
    *x      = (also){.line = strtoll(text, &word, 10)};
    bool ok = word > text && x->line >= 0 && x->line < p->recording->n_also;
    for (text = word; ok && *text == ' ';) {
        size_t n = strcspn(++text, ": "), whole = strcspn(text, " ");
        int    which = vp_recorded_phase_named(p, text, n);
        if (n == whole) {
            ok          = n == strlen("ones") && memcmp(text, "ones", n) == 0;
            x->has_ones = true;
            text += n;
            continue;
        }
        text += n + 1;
        ok = which >= 0 && islower((unsigned char)*text) && x->n_absent < MAX_UNTIED &&
             read_slot(p, &text, NULL, which, &x->absent[x->n_absent]) &&
             x->absent[x->n_absent++] < p->n_slots;
    }
    if (!ok || *text)
        return broken(p, number, "no line of other versions", err);
    p->n_also++;
    return VP_OK;
}

static vp_status read_program(vp_recorded_program *p, vp_err *err)
{
    const char *rest;
    vp_status   st = VP_OK;

    for (int pass = 0; pass < 2; pass++) { /* others name phases below them */
        int number = p->line + 1;
        for (const char *line = p->text; strcmp(line, "end") != 0;
             line += strlen(line) + 1, number++) {
            bool is_workspace = starts(line, "workspace", &rest);
            bool is_tied      = !is_workspace && starts(line, "tied", &rest);
            bool is_also      = !is_workspace && !is_tied && starts(line, "also", &rest);
            if (pass == 0 && !is_workspace && !is_tied && !is_also)
                VP_TRY(read_program_line(p, line, number, err));
            else if (pass == 1 && is_workspace)
                VP_TRY(read_workspace(p, rest, number, err));
            else if (pass == 1 && is_tied)
                VP_TRY(read_tied(p, rest, number, err));
            else if (pass == 1 && is_also)
                VP_TRY(read_also(p, rest, number, err));
        }
    }
    if (!frees_are_sound(p))
        VP_TRY(broken(p, p->line, "this program frees what it does not allocate", err));
    if (!find_brief(p) || vp_arena_failed(p->recording->arena))
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    return st;
}

/* The first of this key; is_whole: of those that are written out. NULL: there is none. */
static vp_recorded_program *program_of(const vp_recording *r, const char *key, bool is_whole)
{
    uint64_t hash =
        vp_hash(key, strlen(key)); /* keys begin alike, and a search asks for hundreds */

    for (int64_t i = 0; i < r->n_programs; i++) {
        vp_recorded_program *p = r->programs[i];
        if (p->hash == hash && strcmp(p->key, key) == 0 && !(is_whole && p->same))
            return p;
    }
    return NULL;
}

vp_status vp_recording_find(vp_recording *r, const char *key, const vp_recorded_program **out,
                            vp_err *err)
{
    vp_recorded_program *p  = program_of(r, key, false);
    vp_status            st = VP_OK;

    *out = NULL;
    if (p && p->same)
        p = program_of(r, p->same, true);
    pthread_mutex_lock(&r->lock);
    if (p && !p->n_phases)
        st = read_program(p, err);
    pthread_mutex_unlock(&r->lock);
    if (st == VP_OK)
        *out = p;
    return st;
}
