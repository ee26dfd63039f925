#include "trainers/torch/recording_internal.h"

#include "base/checked.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MASK_BYTES = 8 }; /* an int64 a token, as tokenizers make it */
enum { BESIDE = 1 };     /* the stream of what is brought back from host memory */

int64_t vp_recorded_repetitions(const vp_recorded *s, int phase_idx, int section_idx)
{
    const section *x = &s->program->phases[phase_idx].sections[section_idx];

    return x->group < 0 ? 1 : s->n_blocks[x->group] - x->irregular;
}

bool vp_recorded_repeats(const vp_recorded_program *p, int64_t n_layers)
{
    return n_layers >= p->rest && (n_layers - p->rest) % p->every == 0;
}

/* Whole blocks of layers, and enough of them for every phase. */
static vp_status count_blocks(vp_recorded *s, const int64_t *n_layers, vp_err *err)
{
    const vp_recorded_program *p = s->program;

    for (int g = 0; g < VP_RECORDED_GROUPS; g++) {
        s->n_blocks[g] = n_layers[g] / p->every; /* what is beside blocks is less than one */
        if (n_layers[g] > MAX_LAYERS)
            return VP_FAIL(err, VP_ERR_INPUT, "%lld layers: a recorded step has at most %d",
                           (long long)n_layers[g], MAX_LAYERS);
        if (n_layers[g] && !vp_recorded_repeats(p, n_layers[g]))
            return VP_FAIL(err, VP_ERR_INPUT,
                           "%lld layers: this step was recorded for whole groups of %lld layers, "
                           "with %lld beside them. For yours: vplan dryrun -- COMMAND",
                           (long long)n_layers[g], (long long)p->every, (long long)p->rest);
    }
    if (s->symbols->at[VP_SYM_YC])
        s->n_blocks[VP_RECORDED_TILES] =
            vp_ceil_div(s->symbols->at[VP_SYM_N], s->symbols->at[VP_SYM_YC]);
    for (int i = 0; i < p->n_phases; i++)
        for (int j = 0; j < p->phases[i].n_sections; j++)
            if (vp_recorded_repetitions(s, i, j) < 1 &&
                p->phases[i].sections[j].group == VP_RECORDED_TILES)
                return VP_FAIL(err, VP_ERR_INPUT,
                               "Liger's loss was recorded in several tiles, and this one is one: "
                               "the model's vocabulary is no larger than its width");
            else if (vp_recorded_repetitions(s, i, j) < 1)
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
    vp_symbols          of_last = *symbols;
    vp_status           st      = VP_OK;

    *out = NULL;
    VP_TRY_ALLOC(err, s);
    *s = (vp_recorded){
        .program = program, .ledger = ledger, .symbols = symbols, .workspace_bytes = -1};
    VP_TRY(count_blocks(s, n_layers, err));
    s->sizes         = calloc((size_t)r->n_sizes + 1, sizeof *s->sizes);
    s->sizes_of_last = calloc((size_t)r->n_sizes + 1, sizeof *s->sizes_of_last);
    s->base          = calloc((size_t)program->n_slots + 1, sizeof *s->base);
    VP_TRY_ALLOC(err, s->sizes && s->sizes_of_last && s->base);
    of_last.at[VP_SYM_YC] =
        symbols->at[VP_SYM_N] - (s->n_blocks[VP_RECORDED_TILES] - 1) * symbols->at[VP_SYM_YC];
    for (int64_t i = 0; i < program->n_slots; i++) {
        const slot *x = &program->slots[i];
        int64_t     n = x->in_body ? vp_recorded_repetitions(s, x->phase, x->section) : 1;
        if (!s->sizes[x->size])
            VP_TRY(vp_symbols_evaluate(symbols, r->sizes[x->size], &s->sizes[x->size], err));
        if (x->tile == 't')
            VP_TRY(
                vp_symbols_evaluate(&of_last, r->sizes[x->size], &s->sizes_of_last[x->size], err));
        s->base[i] = n_slots;
        n_slots += n;
        n_parameters += x->owner == VP_OWNER_PARAMETER ? n : 0;
    }
    s->base[program->n_slots] = n_slots;
    s->blocks                 = malloc(((size_t)n_slots + 1) * sizeof *s->blocks);
    s->parameters             = calloc((size_t)n_parameters + 1, sizeof *s->parameters);
    s->rows_of_parameter      = calloc((size_t)n_parameters + 1, sizeof *s->rows_of_parameter);
    s->is_vector              = calloc((size_t)n_parameters + 1, sizeof *s->is_vector);
    s->has_rank               = calloc((size_t)n_parameters + 1, sizeof *s->has_rank);
    VP_TRY_ALLOC(err,
                 s->blocks && s->parameters && s->rows_of_parameter && s->is_vector && s->has_rank);
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
    for (int64_t i = 0; s->ledger->allocator && i < s->n_clear; i++)
        vp_ledger_free(s->ledger, &s->blocks[i]);
    for (int i = 0; i < MAX_WORKSPACES; i++)
        vp_ledger_free(s->ledger, &s->workspaces[i]);
    for (int64_t i = 0; i < s->n_more; i++)
        vp_ledger_free(s->ledger, &s->more[i].block);
    free(s->more);
    vp_ledger_free(s->ledger, &s->rows);
    vp_ledger_free(s->ledger, &s->part);
    vp_ledger_free(s->ledger, &s->ones);
    for (int64_t i = 0; i < s->n_kept; i++)
        vp_ledger_free(s->ledger, &s->kept[i]);
    free(s->kept);
    free(s->sizes);
    free(s->sizes_of_last);
    free(s->base);
    free(s->blocks);
    free(s->parameters);
    free(s->rows_of_parameter);
    free(s->is_vector);
    free(s->has_rank);
    free(s->bytes);
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

static const also *also_of(const vp_recorded_program *p, int64_t line)
{
    for (int i = 0; i < p->n_also; i++)
        if (p->also[i].line == line)
            return &p->also[i];
    return NULL;
}

bool vp_recorded_is_known(const vp_recorded_program *p, int64_t line)
{
    return also_of(p, line) != NULL;
}

bool vp_recorded_has_ones(const vp_recorded_program *p, int64_t line)
{
    const also *x = also_of(p, line);

    return x && x->has_ones;
}

void vp_recorded_as(vp_recorded *s, int64_t line)
{
    s->as = also_of(s->program, line);
}

const char *vp_recorded_phase(const vp_recorded *s, int i)
{
    return i < s->program->n_phases ? s->program->phases[i].name : NULL;
}

/* Before which allocation of the phase take_workspaces() has nothing to do. */
static void find_next_workspace(vp_recorded *s, int phase_idx)
{
    const vp_recorded_program *p = s->program;

    s->next_workspace = INT64_MAX;
    for (int i = 0; i < p->n_workspaces; i++)
        if (p->workspaces[i].phase == phase_idx && !s->taken[i] &&
            p->workspaces[i].after < s->next_workspace)
            s->next_workspace = p->workspaces[i].after;
}

static vp_status take_workspaces(vp_recorded *s, int phase_idx, vp_err *err)
{
    const vp_recorded_program *p  = s->program;
    vp_status                  st = VP_OK;

    if (s->n_allocs < s->next_workspace)
        return VP_OK;
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
    find_next_workspace(s, phase_idx);
out:
    return st;
}

vp_status vp_recorded_multiplies(vp_recorded *s, const char *phase_name, vp_err *err)
{
    int phase_idx = vp_recorded_phase_named(s->program, phase_name, strlen(phase_name));

    find_next_workspace(s, phase_idx);
    s->n_allocs = s->next_workspace;
    return s->n_allocs == INT64_MAX ? VP_OK : take_workspaces(s, phase_idx, err);
}

/* Not there at these sizes, in a model that ties its tables, or with these libraries. */
bool vp_recorded_is_absent(const vp_recorded *s, int32_t which)
{
    for (int i = 0; s->as && i < s->as->n_absent; i++)
        if (s->as->absent[i] == which)
            return true;
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

/* Where a tile's allocations are played, and how many of the recording's come to that: its workspace is
 * taken at the first tile's product. */
typedef struct tile_place {
    int     phase_idx;
    int64_t n_allocs;
} tile_place;

/* One of what each tile makes, in place of the one before it. */
static vp_status play_tile(vp_recorded *s, const slot *x, int64_t bytes, tile_place at, vp_err *err)
{
    vp_ledger_block *before = x->tile == 'h' ? &s->rows : &s->part, now = {0};
    int64_t          n_allocs = s->n_allocs;
    vp_status        st       = VP_OK;

    VP_TRY(vp_ledger_alloc(s->ledger, x->owner, bytes, &now, err));
    vp_ledger_free(s->ledger, before);
    *before     = now;
    s->n_allocs = at.n_allocs;
    st          = take_workspaces(s, at.phase_idx, err);
    s->n_allocs = n_allocs;
    if (x->tile == 'f')
        vp_ledger_free(s->ledger, before);
out:
    return st;
}

/* So many whole parts of the table, one after the other. */
static vp_status play_parts(vp_recorded *s, const slot *x, int64_t n, tile_place at, vp_err *err)
{
    int64_t   bytes = s->sizes[x->size] / s->symbols->at[VP_SYM_VL] * VP_TILE_COLUMNS;
    vp_status st    = VP_OK;

    for (int64_t i = 0; i < n; i++)
        VP_TRY(play_tile(s, x, bytes, at, err));
out:
    return st;
}

/* What TRL's head makes before the last tile's: of its loop over rows, and in it over the table. */
static vp_status play_tiles(vp_recorded *s, int32_t which, int phase_idx, vp_err *err)
{
    const slot *x = &s->program->slots[which], *part = x + 1;
    bool        has_parts = which + 1 < s->program->n_slots && part->tile;
    int64_t     rows      = vp_symbols_learnt(s->symbols);
    int64_t     n_parts   = (s->symbols->at[VP_SYM_V] - 1) / VP_TILE_COLUMNS;
    tile_place  first = {phase_idx, s->n_allocs + 1}, second = {phase_idx, s->n_allocs + 2};
    vp_status   st = VP_OK;

    if (x->tile != 'h')
        return play_parts(s, x, n_parts, first, err);
    for (int64_t i = 0; i < (rows - 1) / VP_TILE_ROWS; i++) {
        VP_TRY(play_tile(s, x, s->sizes[x->size] / s->symbols->at[VP_SYM_YL] * VP_TILE_ROWS, first,
                         err));
        if (!has_parts)
            continue;
        VP_TRY(play_parts(s, part, n_parts, second, err));
        VP_TRY(play_tile(s, part, s->sizes[part->size], second, err));
    }
out:
    return st;
}

/* Blocks of a slot: in a body that keeps what it allocates one for each repetition. */
static int64_t count_of(const vp_recorded *s, int32_t which)
{
    return s->base[which + 1] - s->base[which];
}

/* In a body of tiles its last repetition makes the last tile. */
static int64_t bytes_of(const vp_recorded *s, int32_t which, int64_t repetition)
{
    const slot *x = &s->program->slots[which];

    if (x->tile == 't' && s->bytes[which] && (!x->in_body || repetition == count_of(s, which) - 1))
        return s->sizes_of_last[x->size];
    return s->bytes[which];
}

/* Once it is known whether tables are tied. */
vp_status vp_recorded_ready(vp_recorded *s, vp_err *err)
{
    vp_status st = VP_OK;

    if (s->bytes)
        return VP_OK;
    s->bytes = calloc((size_t)s->program->n_slots + 1, sizeof *s->bytes);
    VP_TRY_ALLOC(err, s->bytes);
    for (int64_t i = 0; i < s->program->n_slots; i++)
        s->bytes[i] =
            vp_recorded_is_absent(s, (int32_t)i) ? 0 : s->sizes[s->program->slots[i].size];
out:
    return st;
}

static bool is_of_trl(const slot *x)
{
    return x->tile && strchr("hfg", x->tile);
}

/* The first of these symbols that a size is made of; '\0': none. */
static char first_of(const char *size, const char *symbols)
{
    for (const char *at = size; *at; at += strcspn(at, "*/+"), at += *at != '\0')
        if (strchr(symbols, *at) && strcspn(at, "*/+") == 1)
            return *at;
    return '\0';
}

/* The rows of a look-up table of this size: as many as a vocabulary (V), positions (P) or types (T); '\0':
 * no table. */
static char table_symbol(const char *size)
{
    return first_of(size, "VPT");
}

int64_t vp_recorded_rows_of(const vp_recorded *s, const char *size)
{
    char of = table_symbol(size);

    return !of ? 0 : s->symbols->at[of == 'V' ? VP_SYM_V : of == 'P' ? VP_SYM_P : VP_SYM_T];
}

static bool is_backward(const phase *p)
{
    return strncmp(p->name, "backward", strlen("backward")) == 0;
}

bool vp_recorded_is_of_rank(const char *size)
{
    return first_of(size, "r") != '\0';
}

/* autocast's copy of a weight, of an adapter also where backward keeps it: as large as ranks and widths say, whatever the batch. */
static bool is_cast(const vp_recorded *s, const slot *x)
{
    const char *size = s->program->recording->sizes[x->size];

    return x->owner == VP_OWNER_CAST || (x->owner == VP_OWNER_ACTIVATION &&
                                         vp_recorded_is_of_rank(size) && !first_of(size, "BSN"));
}

static bool is_held_by_watch(const vp_recorded *s, const slot *x)
{
    return s->watch && ((s->watch->holds_weights && x->owner == VP_OWNER_PARAMETER) ||
                        (s->watch->holds_frozen && x->owner == VP_OWNER_FROZEN) ||
                        (s->watch->holds_casts && is_cast(s, x)));
}

/* Backward begins with the loss's own, which ends with the gradient of the logits; what is made next is of what made them. */
static vp_status watch_loss(vp_recorded *s, const slot *x, int64_t bytes, vp_err *err)
{
    if (!s->watch->logits || !s->is_backward || !bytes)
        return VP_OK;
    s->is_in_loss |= x->owner == VP_OWNER_LOGITS;
    if (x->owner == VP_OWNER_LOGITS || !s->is_in_loss || s->is_behind_loss)
        return VP_OK;
    s->is_behind_loss = true;
    return s->watch->logits(s->watch->user, err);
}

enum {
    LEAST_WIDTH = 32
}; /* of a number in front: a tower's width; below it an element's bytes, or so many times */

/* Whether a parameter of this size has one dimension: in none of its terms there are two widths. Heads times their
 * size are one. */
static bool is_vector(const char *size)
{
    for (const char *at = size; *at; at += *at != '\0') {
        int widths = 0, heads = 0, head_sizes = 0;
        for (; *at && *at != '+'; at++) {
            widths += isalpha((unsigned char)*at) != 0;
            if (isdigit((unsigned char)*at) && (at == size || !isdigit((unsigned char)at[-1])))
                widths += (at != size && at[-1] == '*') || strtoll(at, NULL, 10) >= LEAST_WIDTH;
            heads += *at == 'a' || *at == 'k';
            head_sizes += *at == 'd';
        }
        if (widths - (heads < head_sizes ? heads : head_sizes) > 1)
            return false;
    }
    return true;
}

static vp_status settle(vp_recorded *s, vp_owner next, vp_err *err)
{
    if (!s->is_unsettled || next == VP_OWNER_GRADIENT)
        return VP_OK;
    s->is_unsettled = false;
    return s->watch->settled(s->watch->user, err);
}

/* Most of a step. */
static inline vp_status play_plain(vp_recorded *s, const slot *x, int64_t bytes,
                                   vp_ledger_block *block, int phase_idx, vp_err *err)
{
    vp_status st = VP_OK;

    if (s->watch && s->is_backward && !s->is_behind_loss)
        VP_TRY(watch_loss(s, x, bytes, err));
    VP_TRY(settle(s, x->owner, err));
    VP_TRY(vp_ledger_alloc(s->ledger, x->owner, bytes, block, err));
    if (++s->n_allocs >= s->next_workspace)
        VP_TRY(take_workspaces(s, phase_idx, err));
out:
    return st;
}

/* Liger's loss makes the gradient of the head in its forward pass; autograd has it first of all in backward, where the watch hears of
 * it. */
static bool is_before_backward(const char *name)
{
    return strcmp(name, "forward") == 0 || strcmp(name, "output") == 0;
}

/* The watch hears of gradients that are whole: what makes one may take scratch behind it, and gives back what it had no further use
 * for before anybody is told. So those that were made are whole when something was freed and something else is asked for. */
static vp_status tell_whole(vp_recorded *s, vp_err *err)
{
    vp_status st = VP_OK;

    s->is_freed = false;
    while (!s->is_early && s->n_told < s->n_gradients) {
        int64_t i = s->n_told++;
        VP_TRY(s->watch->gradient(s->watch->user, i, s->made[i % MAX_MADE], err));
    }
out:
    return st;
}

static vp_status note_gradient(vp_recorded *s, vp_ledger_block *block, vp_err *err)
{
    vp_status st = VP_OK;

    s->is_unsettled = s->watch->settled != NULL && !s->is_early;
    if (s->n_gradients - s->n_told == MAX_MADE)
        VP_TRY(tell_whole(s, err));
    s->made[s->n_gradients++ % MAX_MADE] = block;
    if (s->is_unsettled) /* who waits for that is told at once */
        VP_TRY(tell_whole(s, err));
out:
    return st;
}

/* Of the step before, where it outlived that; and what stands beside it. */
static inline void let_go(vp_recorded *s, int64_t place)
{
    if (s->n_more)
        vp_recorded_let_go(s, place);
    else
        vp_ledger_free(s->ledger, &s->blocks[place]);
}

static vp_status play_alloc(vp_recorded *s, int32_t which, int phase_idx, int64_t repetition,
                            vp_err *err)
{
    const slot      *x     = &s->program->slots[which];
    vp_ledger_block *block = &s->blocks[s->base[which] + (x->in_body ? repetition : 0)];
    int64_t          bytes = s->bytes[which];
    vp_status        st    = VP_OK;

    let_go(s, block - s->blocks);
    if (x->is_plain && !is_held_by_watch(s, x))
        return play_plain(s, x, bytes, block, phase_idx, err);
    bytes = bytes_of(s, which, repetition);
    if (s->watch)
        VP_TRY(watch_loss(s, x, bytes, err));
    VP_TRY(settle(s, x->owner, err));
    if (is_of_trl(x))
        VP_TRY(play_tiles(s, which, phase_idx, err));
    s->ledger->stream = x->beside ? BESIDE : 0;
    int64_t each      = bytes;
    bytes             = vp_recorded_first_bytes(s, x, each);
    if (!is_held_by_watch(s, x))
        VP_TRY(vp_ledger_alloc(
            s->ledger, s->stays && x->owner == VP_OWNER_PARAMETER ? VP_OWNER_RESIDENT : x->owner,
            bytes, block, err));
    if (is_of_trl(x))
        vp_ledger_free(s->ledger, x->tile == 'h' ? &s->rows : &s->part);
    if (x->tile == 'w' || x->tile == 'j')
        VP_TRY(vp_recorded_take_more(s, x, each, block - s->blocks, err));
    s->n_allocs++;
    if (x->owner == VP_OWNER_PARAMETER) {
        const char *size                      = s->program->recording->sizes[x->size];
        s->is_vector[s->n_parameters]         = is_vector(size);
        s->rows_of_parameter[s->n_parameters] = vp_recorded_rows_of(s, size);
        s->has_rank[s->n_parameters]          = vp_recorded_is_of_rank(size);
        s->parameters[s->n_parameters++]      = bytes;
    } else if (x->owner == VP_OWNER_FROZEN)
        *(first_of(s->program->recording->sizes[x->size], "r") ? &s->idle_bytes
                                                               : &s->frozen_bytes) += bytes;
    else if (x->owner == VP_OWNER_QUANTISED)
        s->quantised_bytes += bytes;
    if (s->n_allocs >= s->next_workspace)
        VP_TRY(take_workspaces(s, phase_idx, err));
    if (s->watch && x->owner == VP_OWNER_GRADIENT && bytes)
        VP_TRY(note_gradient(s, block, err));
out:
    s->ledger->stream = 0;
    return st;
}

/* Blocks of this phase and those before it: of a phase that is never played nothing is touched. */
static void clear_blocks(vp_recorded *s, int phase_idx)
{
    int64_t n_slots = s->program->phases[phase_idx].end_slot, n = s->base[n_slots];

    if (n <= s->n_clear)
        return;
    memset(s->blocks + s->n_clear, 0, (size_t)(n - s->n_clear) * sizeof *s->blocks);
    s->n_clear = n;
}

static void play_free(vp_recorded *s, const token *t, int64_t i, int64_t n_running)
{
    int64_t n = count_of(s, t->slot), base = s->base[t->slot], from, to;

    if (base >= s->n_clear)
        return; /* of a phase that was not played yet */
    switch ((rule)t->rule) {
    case RULE_ONE:
        let_go(s, base);
        return;
    case RULE_SAME:
        from = i + t->a;
        if (from >= 0 && from < n)
            let_go(s, base + from);
        return;
    case RULE_ALL:
        from = t->a;
        to   = n - t->b;
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
        from = t->rule == RULE_BACK ? n - 1 - i - t->a : t->rule == RULE_AT ? t->a : n - 1 - t->a;
        to   = from >= 0 && from < n ? from + 1 : from;
        break;
    }
    for (int64_t j = from; j < to; j++)
        let_go(s, base + j);
}

static void give_back(vp_recorded *s, const token *t, int64_t i, int64_t n_running)
{
    int64_t before = s->ledger->needed_bytes;

    play_free(s, t, i, n_running);
    s->is_freed |= s->n_told < s->n_gradients && s->ledger->needed_bytes < before;
}

/* What each layer keeps besides: it comes as the layer begins, in backward where that runs it again, and goes as the next one of backward
 * does, whose layers come the other way round; behind the last of either there is one told of more. */
static vp_status keep(vp_recorded *s, const char *name, int64_t i, vp_err *err)
{
    bool is_forward = strncmp(name, "forward", strlen("forward")) == 0;

    if (s->is_backward && i > 0 && i <= s->n_kept)
        vp_ledger_free(s->ledger, &s->kept[s->n_kept - i]);
    if (i >= s->n_kept || !(s->keeps_again ? s->is_backward : is_forward))
        return VP_OK;
    return vp_ledger_alloc(s->ledger, VP_OWNER_ACTIVATION, s->kept_bytes,
                           &s->kept[is_forward ? i : s->n_kept - 1 - i], err);
}

static bool tells_of_layers(const vp_recorded *s)
{
    return s->watch || s->kept;
}

/* The watch is told of layer *untold, if any, and there is none untold. */
static vp_status tell(vp_recorded *s, const char *name, int64_t *untold, vp_err *err)
{
    int64_t   i  = *untold;
    vp_status st = VP_OK;

    *untold = -1;
    if (i >= 0 && s->kept)
        VP_TRY(keep(s, name, i, err));
    if (i >= 0 && s->watch)
        VP_TRY(s->watch->layer(s->watch->user, name, i, err));
out:
    return st;
}

/* Where layers repeat in blocks of several, each is taken to be as long as the others; more: those beside the blocks, in the section behind. */
typedef struct layers_beside {
    int64_t first, n, length; /* length: tokens of one */
} layers_beside;

/* The layer of a block of so many that begins with a token of n, or -1. */
static int64_t layer_at(int64_t j, int64_t n, int64_t n_layers)
{
    int64_t i = n_layers > 1 ? j * n_layers / n : 0;

    return i > 0 && (j - 1) * n_layers / n < i ? i : -1;
}

/* A section, where nobody is told of layers or gradients: most of what is played. */
static vp_status play_untold(vp_recorded *s, const section *x, int64_t n, int phase_idx,
                             vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t i = 0; i < n; i++)
        for (const token *t = x->tokens, *end = t + x->n; t < end; t++) {
            const slot *of    = &s->program->slots[t->slot];
            int64_t     place = s->base[t->slot];
            if (t->is_free && t->rule != RULE_ONE) {
                play_free(s, t, i, n);
            } else if (t->is_free) {
                if (place < s->n_clear)
                    let_go(s, place);
            } else if (of->is_plain) {
                place += of->in_body ? i : 0;
                let_go(s, place);
                VP_TRY(vp_ledger_alloc(s->ledger, of->owner, s->bytes[t->slot], &s->blocks[place],
                                       err));
                if (++s->n_allocs >= s->next_workspace)
                    VP_TRY(take_workspaces(s, phase_idx, err));
            } else {
                VP_TRY(play_alloc(s, t->slot, phase_idx, i, err));
            }
        }
out:
    return st;
}

/* In backward what a layer frees before it allocates anything is of the one before it: the parts of the gradient that it begins
 * with, which have been added up. */
vp_status vp_recorded_play(vp_recorded *s, const char *name, vp_err *err)
{
    int     phase_idx = vp_recorded_phase_named(s->program, name, strlen(name));
    int64_t untold = -1, before = 0,
            behind = -1; /* layers of the groups so far; the one behind what repeats of them */
    layers_beside beside = {0};
    vp_status     st     = VP_OK;

    if (phase_idx < 0)
        return VP_FAIL(err, VP_ERR_INPUT, "the recording has no phase \"%s\"", name);
    const phase *p = &s->program->phases[phase_idx];
    s->n_allocs = s->n_told = 0;
    if (strcmp(name, "output") != 0 && strcmp(name, "backward") != 0)
        s->n_gradients = 0;
    s->is_early = is_before_backward(name);
    s->is_freed = s->is_unsettled = false;
    s->is_backward                = is_backward(p);
    s->is_in_loss = s->is_behind_loss = false;
    VP_TRY(vp_recorded_ready(s, err));
    find_next_workspace(s, phase_idx);
    clear_blocks(s, phase_idx);
    for (int k = 0; k < p->n_sections; k++) {
        int64_t n    = vp_recorded_repetitions(s, phase_idx, k);
        bool    told = tells_of_layers(s) && p->sections[k].group >= 0 &&
                    p->sections[k].group != VP_RECORDED_TILES;
        if (!tells_of_layers(s)) {
            VP_TRY(play_untold(s, &p->sections[k], n, phase_idx, err));
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            if (told) {
                VP_TRY(tell(s, name, &untold, err));
                untold = before + i * s->program->every;
                if (untold == behind)
                    untold = -1; /* the layer behind those of another group, of which it was told */
            }
            for (int64_t j = 0; j < p->sections[k].n; j++) {
                const token *t     = &p->sections[k].tokens[j];
                int64_t      inner = told ? layer_at(j, p->sections[k].n, s->program->every) : -1;
                if (inner > 0)
                    untold = before + i * s->program->every + inner;
                if (j && beside.n && j % beside.length == 0 && j / beside.length <= beside.n)
                    untold = beside.first + j / beside.length;
                if (s->is_freed && !t->is_free)
                    VP_TRY(tell_whole(s, err));
                if (untold >= 0 && (!t->is_free || !s->is_backward))
                    VP_TRY(tell(s, name, &untold, err));
                if (t->is_free)
                    give_back(s, t, i, n);
                else
                    VP_TRY(play_alloc(s, t->slot, phase_idx, i, err));
            }
        }
        VP_TRY(tell(s, name, &untold, err));
        untold = told ? before + n * s->program->every : -1;
        behind = told ? untold : behind;
        beside = (layers_beside){0};
        if (told && s->program->every > 1)
            beside = (layers_beside){
                untold, p->sections[k].irregular * s->program->every + s->program->rest,
                vp_max_i64(1, p->sections[k].n / s->program->every)};
        before += told ? (n + p->sections[k].irregular) * s->program->every : 0;
    }
    VP_TRY(tell_whole(s, err));
    VP_TRY(tell(s, name, &untold, err));
    if (s->as && s->as->has_ones && strcmp(name, "inputs") == 0)
        VP_TRY(vp_ledger_alloc(s->ledger, VP_OWNER_INPUT,
                               vp_mul(MASK_BYTES, s->symbols->at[VP_SYM_N]), &s->ones, err));
out:
    return st;
}

void vp_recorded_stays(vp_recorded *s)
{
    s->stays = true;
}

void vp_recorded_watched(vp_recorded *s, const vp_recorded_watch *watch)
{
    s->watch = watch;
}

vp_status vp_recorded_keeps(vp_recorded *s, int64_t n_layers, int64_t bytes, bool again,
                            vp_err *err)
{
    s->keeps_again = again;
    s->kept        = calloc((size_t)n_layers + 1, sizeof *s->kept);
    s->n_kept      = s->kept ? n_layers : 0;
    s->kept_bytes  = bytes;
    return s->kept ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
}

const int64_t *vp_recorded_parameters(const vp_recorded *s, int64_t *n)
{
    *n = s->n_parameters;
    return s->parameters;
}

int64_t vp_recorded_rows(const vp_recorded *s, int64_t i)
{
    return s->rows_of_parameter[i];
}

bool vp_recorded_is_vector(const vp_recorded *s, int64_t i)
{
    return s->is_vector[i];
}

bool vp_recorded_has_rank(const vp_recorded *s, int64_t i)
{
    return s->has_rank[i];
}

/* Those that are made in this phase, in its order. */
static void list_gradients(const vp_recorded *s, int phase_idx, int64_t *out, int64_t *n)
{
    const phase *p = phase_idx < 0 ? NULL : &s->program->phases[phase_idx];

    for (int k = 0; p && k < p->n_sections; k++) {
        int64_t first = *n, n_times = vp_recorded_repetitions(s, phase_idx, k), of_one;
        for (int64_t j = 0; n_times && j < p->sections[k].n; j++) {
            const token *t = &p->sections[k].tokens[j];
            const slot  *x = &s->program->slots[t->slot];
            if (!t->is_free && x->owner == VP_OWNER_GRADIENT &&
                !vp_recorded_is_absent(s, t->slot) && s->sizes[x->size])
                out[(*n)++] = s->sizes[x->size];
        }
        of_one = *n - first;
        for (int64_t i = 1; i < n_times; i++, *n += of_one)
            memcpy(out + *n, out + first, (size_t)of_one * sizeof *out);
    }
}

int64_t vp_recorded_count_slots(const vp_recorded *s, vp_owner owner)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->program->n_slots; i++)
        if (s->program->slots[i].owner == owner)
            n += s->base[i + 1] - s->base[i];
    return n;
}

vp_status vp_recorded_gradients(const vp_recorded *s, int64_t **out, int64_t *n, vp_err *err)
{
    *n   = 0;
    *out = calloc((size_t)vp_recorded_count_slots(s, VP_OWNER_GRADIENT) + 1, sizeof **out);
    if (!*out)
        return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    list_gradients(s, vp_recorded_phase_named(s->program, "forward", strlen("forward")), *out, n);
    list_gradients(s, vp_recorded_phase_named(s->program, "backward", strlen("backward")), *out, n);
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

int64_t vp_recorded_input(const vp_recorded *s, int64_t i)
{
    const vp_recorded_program *p      = s->program;
    int                        inputs = vp_recorded_phase_named(p, "inputs", strlen("inputs"));

    for (int64_t k = 0; k < p->n_slots && s->bytes; k++)
        if (p->slots[k].phase == inputs && p->slots[k].owner == VP_OWNER_INPUT && s->bytes[k] &&
            i-- == 0)
            return s->bytes[k];
    return s->as && s->as->has_ones && i == 0 ? vp_mul(MASK_BYTES, s->symbols->at[VP_SYM_N]) : 0;
}

int64_t vp_recorded_frozen_bytes(const vp_recorded *s)
{
    return s->frozen_bytes;
}

int64_t vp_recorded_idle_bytes(const vp_recorded *s)
{
    return s->idle_bytes;
}

int64_t vp_recorded_quantised_bytes(const vp_recorded *s)
{
    return s->quantised_bytes;
}

static void drop(vp_recorded *s, vp_owner owner)
{
    for (int64_t i = 0; i < s->program->n_slots; i++)
        if (s->program->slots[i].owner == owner)
            for (int64_t j = s->base[i]; j < s->base[i + 1] && j < s->n_clear; j++)
                vp_ledger_free(s->ledger, &s->blocks[j]);
}

void vp_recorded_drop_gradients(vp_recorded *s)
{
    drop(s, VP_OWNER_GRADIENT);
}

vp_ledger_block *vp_recorded_weight_block(vp_recorded *s, const vp_recorded_weight *weight)
{
    return &s->blocks[weight->place];
}

void vp_recorded_drop_weight(vp_recorded *s, const vp_recorded_weight *weight)
{
    vp_ledger_free(s->ledger, vp_recorded_weight_block(s, weight));
}

void vp_recorded_drop_inputs(vp_recorded *s)
{
    drop(s, VP_OWNER_INPUT);
    vp_ledger_free(s->ledger, &s->ones);
}
