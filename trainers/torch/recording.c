#include "trainers/torch/recording.h"

#include "base/arena.h"
#include "base/file.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BYTES       = 64 << 20,
    MAX_PHASES      = 16,
    MAX_SECTIONS    = 7,
    MAX_WORKSPACES  = 8,
    MAX_UNTIED      = 4,
    MAX_LAYERS      = 1 << 20,
    LARGE_WORKSPACE = 8 << 20,
    LARGE_LOOK_UP   = 3072 /* rows; with more of them its gradient is another kernel */
};

typedef struct slot {
    int32_t  size;  /* of the recording's expressions */
    char     large; /* only where this look-up has more than 3072 rows, embedding's large kernel */
    bool     in_body;
    vp_owner owner;
    int      phase, section;
} slot;

/* What a free names: README.md. */
typedef enum rule {
    RULE_ALL,
    RULE_ONE,
    RULE_FIRST,
    RULE_LAST,
    RULE_SAME,
    RULE_BACK,
    RULE_AT,
    RULE_END
} rule;

typedef struct token {
    int32_t slot;
    bool    is_free;
    uint8_t rule; /* of a free */
    int16_t a, b;
} token;

typedef struct section {
    token  *tokens;
    int64_t n, first_slot;
    int     group;     /* of blocks, one repetition each; -1: none, it runs once */
    int64_t irregular; /* blocks that are in the sections beside it */
} section;

typedef struct phase {
    const char *name;
    int         n_sections;
    section     sections[MAX_SECTIONS];
} phase;

typedef struct workspace {
    int     phase;
    int64_t after, bytes; /* allocations of the phase before it */
} workspace;

struct vp_recorded_program {
    const char          *key, *text; /* text: its lines */
    int                  line;
    const char          *same; /* the key of the program that it equals, or NULL */
    const vp_recording  *recording;
    int64_t              every; /* layers in one block */
    phase                phases[MAX_PHASES];
    int                  n_phases, n_workspaces;
    int32_t              untied[MAX_UNTIED]; /* slots that a model with tied tables has not */
    int                  n_untied;
    workspace            workspaces[MAX_WORKSPACES];
    slot                *slots;
    int64_t              n_slots, cap_slots;
    vp_recorded_program *next;
};

struct vp_recording {
    vp_arena    *arena;
    char        *path, *text;
    const char  *versions;
    const char **sizes, **parts, **requirements, **fields;
    int64_t      n_sizes, cap_sizes, n_parts, cap_parts, n_requirements, cap_requirements, n_fields,
        cap_fields;
    vp_recorded_program *programs, **last;
};

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

    if (!p)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    *p = (vp_recorded_program){
        .key = key, .text = line + strlen(line) + 1, .line = number, .recording = r, .every = 1};
    if (same && !other)
        return VP_FAIL_AT(err, VP_ERR_INPUT, r->path, number, NULL, "no line of a recording");
    if (other) {
        *other  = '\0';
        p->same = other + 3;
    }
    *r->last = p;
    r->last  = &p->next;
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
    else if (starts(line, "size", &rest))
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
    r->arena = vp_arena_new();
    VP_TRY_ALLOC(err, r->arena);
    r->last = &r->programs;
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
    vp_arena_free(r->arena);
    free(r->text);
    free(r);
}

const char *vp_recording_versions(const vp_recording *r)
{
    return r->versions;
}

const char *vp_recording_field(const vp_recording *r, int64_t i)
{
    return i < r->n_fields ? r->fields[i] : NULL;
}

const char *vp_recording_requirement(const vp_recording *r, int64_t i)
{
    return i < r->n_requirements ? r->requirements[i] : NULL;
}

const char *vp_recording_key(const vp_recording *r, int64_t i)
{
    const vp_recorded_program *p = r->programs;

    while (p && i-- > 0)
        p = p->next;
    return p ? p->key : NULL;
}

static vp_status broken(const vp_recorded_program *p, int line, const char *what, vp_err *err)
{
    return VP_FAIL_AT(err, VP_ERR_INPUT, p->recording->path, line, NULL, "%s", what);
}

static int phase_named(const vp_recorded_program *p, const char *name, size_t n)
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

/* Which look-up: "!" of tokens, "!D" of targets, "!W" and "!Z" of buckets of distances; none. */
static char read_mark(const char **text)
{
    if (**text != '!')
        return '\0';
    ++*text;
    return **text && strchr("DWZ", **text) ? *(*text)++ : '!';
}

/* "A12", "T12!", "T12!D": an owner, an expression, a look-up. */
static bool read_alloc(vp_recorded_program *p, const char **text, int phase_idx, int section_idx,
                       token *t)
{
    vp_owner owner = vp_owner_of_letter(*(*text)++);
    long     size  = isdigit((unsigned char)**text) ? strtol(*text, (char **)text, 10) : -1;
    char     large = read_mark(text);

    if (owner == VP_N_OWNERS || size < 0 || size >= p->recording->n_sizes ||
        !vp_arena_grow(p->recording->arena, (void **)&p->slots, p->n_slots, &p->cap_slots,
                       sizeof *p->slots))
        return false;
    *t = (token){.slot = (int32_t)p->n_slots};
    p->slots[p->n_slots++] =
        (slot){.size    = (int32_t)size,
               .large   = large,
               .in_body = p->phases[phase_idx].sections[section_idx].group >= 0,
               .owner   = owner,
               .phase   = phase_idx,
               .section = section_idx};
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
        if (s->group < 0 || s->group >= VP_RECORDED_GROUPS || **text != '-')
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
    return *text ? broken(p, number, "no events of a recorded phase", err) : VP_OK;
}

static vp_status read_program_line(vp_recorded_program *p, const char *line, int number,
                                   vp_err *err)
{
    const char *rest;

    if (starts(line, "phase", &rest))
        return read_phase(p, rest, number, err);
    if (starts(line, "every", &rest)) {
        p->every = strtoll(rest, NULL, 10);
        if (p->every >= 1)
            return VP_OK;
    }
    return broken(p, number, "no line of a recorded program", err);
}

/* "workspace forward 23 33554432"; phases are known by then. */
static vp_status read_workspace(vp_recorded_program *p, const char *text, int number, vp_err *err)
{
    size_t n     = strcspn(text, " ");
    int    which = phase_named(p, text, n);
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
    int    which = phase_named(p, text, n);

    for (text += n; *text == ' ';)
        text++;
    if (which < 0 || !islower((unsigned char)*text) || p->n_untied == MAX_UNTIED ||
        !read_slot(p, &text, NULL, which, &p->untied[p->n_untied]) || *text ||
        p->untied[p->n_untied++] >= p->n_slots)
        return broken(p, number, "no slot of a recorded program", err);
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
            if (pass == 0 && !is_workspace && !is_tied)
                VP_TRY(read_program_line(p, line, number, err));
            else if (pass == 1 && is_workspace)
                VP_TRY(read_workspace(p, rest, number, err));
            else if (pass == 1 && is_tied)
                VP_TRY(read_tied(p, rest, number, err));
        }
    }
    if (!frees_are_sound(p))
        VP_TRY(broken(p, p->line, "this program frees what it does not allocate", err));
    if (vp_arena_failed(p->recording->arena))
        st = VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
out:
    return st;
}

vp_status vp_recording_find(vp_recording *r, const char *key, const vp_recorded_program **out,
                            vp_err *err)
{
    vp_recorded_program *p  = r->programs;
    vp_status            st = VP_OK;

    *out = NULL;
    while (p && strcmp(p->key, key) != 0)
        p = p->next;
    for (const char *same = p ? p->same : NULL; same && (p = r->programs); same = NULL)
        while (p && (p->same || strcmp(p->key, same) != 0))
            p = p->next;
    if (p && !p->n_phases)
        VP_TRY(read_program(p, err));
    *out = p;
out:
    return st;
}

/* ---- playing ---- */

struct vp_recorded {
    const vp_recorded_program *program;
    vp_ledger                 *ledger;
    int64_t           n_blocks[VP_RECORDED_GROUPS], *sizes, *base; /* base: of a slot's blocks */
    vp_ledger_block  *blocks, workspaces[MAX_WORKSPACES];
    const vp_symbols *symbols;
    int64_t           n_allocs; /* of the phase so far */
    int64_t           workspace_bytes;
    bool              taken[MAX_WORKSPACES], is_tied;
    int64_t          *parameters, n_parameters, frozen_bytes, quantised_bytes;
    const vp_recorded_watch *watch; /* or NULL */
    int64_t                  n_gradients;
};

static int64_t repetitions(const vp_recorded *s, int phase_idx, int section_idx)
{
    const section *x = &s->program->phases[phase_idx].sections[section_idx];

    return x->group < 0 ? 1 : s->n_blocks[x->group] - x->irregular;
}

/* Whole blocks of layers, and enough of them for every phase. */
static vp_status count_blocks(vp_recorded *s, const int64_t *n_layers, vp_err *err)
{
    const vp_recorded_program *p = s->program;

    for (int g = 0; g < VP_RECORDED_GROUPS; g++) {
        s->n_blocks[g] = n_layers[g] / p->every;
        if (n_layers[g] % p->every || n_layers[g] > MAX_LAYERS)
            return VP_FAIL(err, VP_ERR_INPUT,
                           "%lld layers: this step was recorded for whole groups of %lld, up to %d",
                           (long long)n_layers[g], (long long)p->every, MAX_LAYERS);
    }
    for (int i = 0; i < p->n_phases; i++)
        for (int j = 0; j < p->phases[i].n_sections; j++)
            if (repetitions(s, i, j) < 1)
                return VP_FAIL(err, VP_ERR_INPUT,
                               "recorded steps are for more than %lld layers of this family",
                               (long long)(p->phases[i].sections[j].irregular * p->every));
    return VP_OK;
}

vp_status vp_recorded_new(const vp_recorded_program *program, const vp_symbols *symbols,
                          const int64_t n_layers[VP_RECORDED_GROUPS], vp_ledger *ledger,
                          vp_recorded **out, vp_err *err)
{
    const vp_recording *r       = program->recording;
    vp_recorded        *s       = calloc(1, sizeof *s);
    int64_t             n_slots = 0, n_parameters = 0;
    vp_status           st = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, s);
    *s = (vp_recorded){
        .program = program, .ledger = ledger, .symbols = symbols, .workspace_bytes = -1};
    VP_TRY(count_blocks(s, n_layers, err));
    s->sizes = calloc((size_t)r->n_sizes + 1, sizeof *s->sizes);
    s->base  = calloc((size_t)program->n_slots + 1, sizeof *s->base);
    VP_TRY_ALLOC(err, s->sizes && s->base);
    for (int64_t i = 0; i < program->n_slots; i++) {
        const slot *x = &program->slots[i];
        int64_t     n = repetitions(s, x->phase, x->section);
        if (!s->sizes[x->size])
            VP_TRY(vp_symbols_evaluate(symbols, r->sizes[x->size], &s->sizes[x->size], err));
        s->base[i] = n_slots;
        n_slots += n;
        n_parameters += x->owner == VP_OWNER_PARAMETER ? n : 0;
    }
    s->base[program->n_slots] = n_slots;
    s->blocks                 = calloc((size_t)n_slots + 1, sizeof *s->blocks);
    s->parameters             = calloc((size_t)n_parameters + 1, sizeof *s->parameters);
    VP_TRY_ALLOC(err, s->blocks && s->parameters);
    *out = s;
    s    = NULL;
out:
    vp_recorded_free(s);
    return st;
}

void vp_recorded_free(vp_recorded *s)
{
    if (!s)
        return;
    for (int64_t i = 0; s->blocks && i < s->base[s->program->n_slots]; i++)
        vp_ledger_free(s->ledger, &s->blocks[i]);
    for (int i = 0; i < MAX_WORKSPACES; i++)
        vp_ledger_free(s->ledger, &s->workspaces[i]);
    free(s->sizes);
    free(s->base);
    free(s->blocks);
    free(s->parameters);
    free(s);
}

void vp_recorded_workspace(vp_recorded *s, int64_t bytes)
{
    s->workspace_bytes = bytes;
}

bool vp_recorded_tie(vp_recorded *s)
{
    s->is_tied = s->program->n_untied > 0;
    return s->is_tied;
}

const char *vp_recorded_phase(const vp_recorded *s, int i)
{
    return i < s->program->n_phases ? s->program->phases[i].name : NULL;
}

static vp_status take_workspaces(vp_recorded *s, int phase_idx, vp_err *err)
{
    const vp_recorded_program *p  = s->program;
    vp_status                  st = VP_OK;

    for (int i = 0; i < p->n_workspaces; i++) {
        const workspace *w = &p->workspaces[i];
        if (w->phase != phase_idx || s->taken[i] || s->n_allocs < w->after)
            continue;
        s->taken[i] = true;
        VP_TRY(vp_ledger_alloc(
            s->ledger, VP_OWNER_WORKSPACE,
            s->workspace_bytes < 0 || w->bytes < LARGE_WORKSPACE ? w->bytes : s->workspace_bytes,
            &s->workspaces[i], err));
    }
out:
    return st;
}

/* Not there at these sizes, or in a model that ties its tables. */
static bool is_absent(const vp_recorded *s, int32_t which)
{
    for (int i = 0; s->is_tied && i < s->program->n_untied; i++)
        if (s->program->untied[i] == which)
            return true;
    switch (s->program->slots[which].large) {
    case '\0':
        return false;
    case 'D':
        return s->symbols->at[VP_SYM_ND] <= LARGE_LOOK_UP;
    case 'W':
        return s->symbols->at[VP_SYM_NW] <= LARGE_LOOK_UP;
    case 'Z':
        return s->symbols->at[VP_SYM_NZ] <= LARGE_LOOK_UP;
    default:
        return s->symbols->at[VP_SYM_N] <= LARGE_LOOK_UP;
    }
}

static vp_status play_alloc(vp_recorded *s, int32_t which, int phase_idx, int64_t repetition,
                            vp_err *err)
{
    const slot      *x     = &s->program->slots[which];
    vp_ledger_block *block = &s->blocks[s->base[which] + (x->in_body ? repetition : 0)];
    int64_t          bytes = is_absent(s, which) ? 0 : s->sizes[x->size];
    vp_status        st    = VP_OK;

    vp_ledger_free(s->ledger, block); /* of the step before, where it outlived that */
    if (!(s->watch && s->watch->holds_weights && x->owner == VP_OWNER_PARAMETER))
        VP_TRY(vp_ledger_alloc(s->ledger, x->owner, bytes, block, err));
    s->n_allocs++;
    if (x->owner == VP_OWNER_PARAMETER)
        s->parameters[s->n_parameters++] = bytes;
    else if (x->owner == VP_OWNER_FROZEN)
        s->frozen_bytes += bytes;
    else if (x->owner == VP_OWNER_QUANTISED)
        s->quantised_bytes += bytes;
    VP_TRY(take_workspaces(s, phase_idx, err));
    if (s->watch && x->owner == VP_OWNER_GRADIENT && bytes)
        VP_TRY(s->watch->gradient(s->watch->user, s->n_gradients++, block, err));
out:
    return st;
}

static void play_free(vp_recorded *s, const token *t, int64_t i, int64_t n_running)
{
    const slot *x    = &s->program->slots[t->slot];
    int64_t     n    = repetitions(s, x->phase, x->section), from, to;
    int64_t     base = s->base[t->slot];

    switch ((rule)t->rule) {
    case RULE_ALL:
        from = t->a;
        to   = n - t->b;
        break;
    case RULE_ONE:
        from = 0;
        to   = 1;
        break;
    case RULE_FIRST:
        from = 0;
        to   = i == 0;
        break;
    case RULE_LAST:
        from = 0;
        to   = i == n_running - 1;
        break;
    default:
        from = t->rule == RULE_SAME   ? i + t->a
               : t->rule == RULE_BACK ? n - 1 - i - t->a
               : t->rule == RULE_AT   ? t->a
                                      : n - 1 - t->a;
        to   = from >= 0 && from < n ? from + 1 : from;
        break;
    }
    for (int64_t j = from; j < to; j++)
        vp_ledger_free(s->ledger, &s->blocks[base + j]);
}

vp_status vp_recorded_play(vp_recorded *s, const char *name, vp_err *err)
{
    int       phase_idx = phase_named(s->program, name, strlen(name));
    vp_status st        = VP_OK;

    if (phase_idx < 0)
        return VP_FAIL(err, VP_ERR_INPUT, "the recording has no phase \"%s\"", name);
    const phase *p = &s->program->phases[phase_idx];
    s->n_allocs    = 0;
    s->n_gradients = 0;
    for (int k = 0; k < p->n_sections; k++) {
        int64_t n    = repetitions(s, phase_idx, k);
        bool    told = s->watch && p->sections[k].group >= 0;
        for (int64_t i = 0; i < n; i++) {
            if (told)
                VP_TRY(s->watch->layer(s->watch->user, name, i * s->program->every, err));
            for (int64_t j = 0; j < p->sections[k].n; j++) {
                const token *t = &p->sections[k].tokens[j];
                if (t->is_free)
                    play_free(s, t, i, n);
                else
                    VP_TRY(play_alloc(s, t->slot, phase_idx, i, err));
            }
        }
        if (told)
            VP_TRY(s->watch->layer(s->watch->user, name, n * s->program->every, err));
    }
out:
    return st;
}

void vp_recorded_watched(vp_recorded *s, const vp_recorded_watch *watch)
{
    s->watch = watch;
}

const int64_t *vp_recorded_parameters(const vp_recorded *s, int64_t *n)
{
    *n = s->n_parameters;
    return s->parameters;
}

/* The rows of a look-up table of this size: as many as a vocabulary (V), positions (P) or types (T); '\0':
 * no table. */
static char table_symbol(const char *size)
{
    for (const char *at = size; *at; at += strcspn(at, "*/+"), at += *at != '\0')
        if (strchr("VPT", *at) && strcspn(at, "*/+") == 1)
            return *at;
    return '\0';
}

static int64_t rows_of(const vp_recorded *s, const char *size)
{
    char of = table_symbol(size);

    return !of ? 0 : s->symbols->at[of == 'V' ? VP_SYM_V : of == 'P' ? VP_SYM_P : VP_SYM_T];
}

static vp_status list_weights(const vp_recorded *s, int phase_idx, int section_idx, int64_t layer,
                              vp_recorded_weight *out, int64_t *n, vp_err *err)
{
    const section *x       = &s->program->phases[phase_idx].sections[section_idx];
    int64_t        n_times = repetitions(s, phase_idx, section_idx), here = 0;

    if (x->irregular)
        return VP_FAIL(err, VP_ERR_INPUT,
                       "several cards: layers of this recorded step are not all alike");
    for (int64_t j = 0; j < x->n; j++)
        here += !x->tokens[j].is_free &&
                s->program->slots[x->tokens[j].slot].owner == VP_OWNER_PARAMETER;
    for (int64_t i = 0; i < n_times; i++)
        for (int64_t j = 0, seen = 0; j < x->n; j++) {
            const slot *weight = &s->program->slots[x->tokens[j].slot];
            if (x->tokens[j].is_free || weight->owner != VP_OWNER_PARAMETER)
                continue;
            int64_t each = s->program->every;
            int64_t of   = x->group < 0 ? layer : layer + i * each + seen++ * each / here;
            if (!is_absent(s, x->tokens[j].slot) && s->sizes[weight->size])
                out[(*n)++] =
                    (vp_recorded_weight){s->sizes[weight->size], of,
                                         rows_of(s, s->program->recording->sizes[weight->size])};
        }
    return VP_OK;
}

static int64_t count_slots(const vp_recorded *s, vp_owner owner)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->program->n_slots; i++)
        if (s->program->slots[i].owner == owner)
            n += s->base[i + 1] - s->base[i];
    return n;
}

vp_status vp_recorded_weights(const vp_recorded *s, vp_recorded_weight **out, int64_t *n,
                              vp_err *err)
{
    const vp_recorded_program *p = s->program;
    vp_recorded_weight *list = calloc((size_t)count_slots(s, VP_OWNER_PARAMETER) + 1, sizeof *list);
    int                 inputs = phase_named(p, "inputs", strlen("inputs"));
    vp_status           st     = VP_OK;

    *out = NULL;
    *n   = 0;
    VP_TRY_ALLOC(err, list);
    for (int i = 0; i < inputs; i++) {
        int64_t layer = VP_WEIGHT_BEFORE, n_layers = 0;
        for (int k = 0; k < p->phases[i].n_sections; k++) {
            bool body = p->phases[i].sections[k].group >= 0;
            VP_TRY(list_weights(s, i, k, body ? n_layers : layer, list, n, err));
            n_layers += body ? repetitions(s, i, k) * p->every : 0;
            layer = body ? VP_WEIGHT_BEHIND : layer;
        }
    }
    *out = list;
    list = NULL;
out:
    free(list);
    return st;
}

vp_status vp_recorded_gradients(const vp_recorded *s, int64_t **out, int64_t *n, vp_err *err)
{
    int          backward = phase_named(s->program, "backward", strlen("backward"));
    const phase *p        = &s->program->phases[backward];

    *n   = 0;
    *out = calloc((size_t)count_slots(s, VP_OWNER_GRADIENT) + 1, sizeof **out);
    if (!*out)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    for (int k = 0; k < p->n_sections; k++)
        for (int64_t i = 0; i < repetitions(s, backward, k); i++)
            for (int64_t j = 0; j < p->sections[k].n; j++) {
                const token *t = &p->sections[k].tokens[j];
                const slot  *x = &s->program->slots[t->slot];
                if (!t->is_free && x->owner == VP_OWNER_GRADIENT && !is_absent(s, t->slot) &&
                    s->sizes[x->size])
                    (*out)[(*n)++] = s->sizes[x->size];
            }
    return VP_OK;
}

int64_t vp_recorded_tables(const vp_recorded *s)
{
    const vp_recorded_program *p = s->program;
    int64_t                    n = 0;

    while (n < p->n_slots && p->slots[n].owner == VP_OWNER_PARAMETER &&
           table_symbol(p->recording->sizes[p->slots[n].size]))
        n++;
    return n;
}

int64_t vp_recorded_frozen_bytes(const vp_recorded *s)
{
    return s->frozen_bytes;
}

int64_t vp_recorded_quantised_bytes(const vp_recorded *s)
{
    return s->quantised_bytes;
}

static void drop(vp_recorded *s, vp_owner owner)
{
    for (int64_t i = 0; i < s->program->n_slots; i++)
        if (s->program->slots[i].owner == owner)
            for (int64_t j = s->base[i]; j < s->base[i + 1]; j++)
                vp_ledger_free(s->ledger, &s->blocks[j]);
}

void vp_recorded_drop_gradients(vp_recorded *s)
{
    drop(s, VP_OWNER_GRADIENT);
}

void vp_recorded_drop_inputs(vp_recorded *s)
{
    drop(s, VP_OWNER_INPUT);
}
