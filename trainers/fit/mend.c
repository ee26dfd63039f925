#include "trainers/fit/mend.h"

#include "trainers/torch/world.h"

#include <stdlib.h>
#include <string.h>

/* What is changed; micro-batch and accumulation are one change. */
static const vp_setting changed[] = {VP_SETTING_ALLOCATOR,   VP_SETTING_GRADIENT_SYNC,
                                     VP_SETTING_RECOMPUTE,   VP_SETTING_LOSS,
                                     VP_SETTING_MICRO_BATCH, VP_SETTING_ACCUMULATION};
enum { N_CHANGED = sizeof changed / sizeof *changed };

/* What a card holds depends on how many there are. */
static bool shares(const char *parallel)
{
    return parallel && strcmp(parallel, "none") != 0 && !vp_world_replicates(parallel);
}

/* Everything that the estimate needs; a sentence in out->why where the files do not say it. */
static vp_status complete(vp_arena *arena, const vp_checked *c, const vp_choose_request *r,
                          vp_mended *out, vp_err *err)
{
    vp_settings *s   = &out->settings;
    vp_err       why = {0};
    vp_status    st  = VP_OK;

    *s = c->settings;
    if (!s->value[VP_SETTING_SEQ] && r->seq)
        s->value[VP_SETTING_SEQ] = vp_arena_printf(arena, "%lld", (long long)r->seq);
    s->allocated_bytes = s->reserved_bytes = s->device_bytes = s->reserved_high_bytes = -1;
    s->step_time_s                                                                    = -1;
    for (int i = 0; i < VP_N_SETTINGS; i++)
        if (!s->value[i] && !vp_setting_otherwise((vp_setting)i) &&
            vp_setting_counts((vp_setting)i, s)) {
            bool is_prompts = i == VP_SETTING_SEQ && s->value[VP_SETTING_METHOD] &&
                              strcmp(s->value[VP_SETTING_METHOD], "grpo") == 0;
            out->why = is_prompts
                           ? "GRPOConfig has no word of how long prompts are; --seq N says "
                             "it, the tokens of prompt and completion together"
                           : vp_arena_printf(arena, "the files do not say %s", vp_setting_key(i));
            VP_TRY_ALLOC(err, out->why);
            goto out;
        }
    if (!s->value[VP_SETTING_WORLD] && shares(s->value[VP_SETTING_PARALLEL])) {
        out->why = vp_arena_printf(arena,
                                   "the files say parallel %s and not over how many cards; --world "
                                   "N does, or the command that starts them: vplan check FILE... "
                                   "-- COMMAND",
                                   s->value[VP_SETTING_PARALLEL]);
        VP_TRY_ALLOC(err, out->why);
        goto out;
    }
    st = vp_settings_complete(arena, s, NULL, &why);
    if (st == VP_ERR_INPUT) {
        out->why = vp_arena_strdup(arena, why.message);
        st       = VP_OK;
    } else if (st != VP_OK) {
        *err = why;
    }
out:
    return st;
}

/* VP_ERR_INPUT is an answer: why. So is VP_ERR_USAGE: what would be an option elsewhere came out of
 * the files here. */
static vp_status size_it(vp_arena *arena, const vp_fit_job *job, const vp_settings *s,
                         vp_fit_bytes *bytes, double *seconds, const char **why_not, int *refused,
                         vp_err *err)
{
    vp_err    why = {0};
    vp_status st  = vp_fit_bytes_of(job, s, bytes, &why);

    *seconds = 0;
    if (st == VP_OK && !job->no_seconds)
        st = vp_fit_seconds_of(job, s, bytes->n_trained, seconds, &why);
    if (st == VP_ERR_INPUT || st == VP_ERR_USAGE) {
        for (int i = 0; refused && i < VP_N_SETTINGS; i++)
            if (strncmp(why.field, VP_HF_REFUSED_BY_CARD, strlen(VP_HF_REFUSED_BY_CARD)) == 0 &&
                strcmp(why.field + strlen(VP_HF_REFUSED_BY_CARD), vp_setting_key(i)) == 0)
                *refused = i;
        *why_not = vp_arena_strdup(arena, why.message);
        return *why_not ? VP_OK : VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
    }
    if (st != VP_OK)
        *err = why;
    return st;
}

static int64_t number(const char *text)
{
    return text ? strtoll(text, NULL, 10) : 1;
}

/* Checkpoints that a script switches on by a call of its model's no key switches off. */
static bool calls_checkpoints(const vp_checked *c)
{
    for (int f = 0; f < c->n_files; f++) {
        const vp_value *v =
            c->files[f].doc ? vp_value_at(c->files[f].doc->root, "gradient_checkpointing_enable")
                            : NULL;
        if (v && v->kind == VP_VALUE_BOOL && v->boolean)
            return true;
    }
    return false;
}

/* All that would converge otherwise stays as the files say it, and what no line of theirs changes. */
static void pin(const vp_checked *c, const vp_settings *s, vp_choose_request *r)
{
    for (int i = 0; i < VP_N_SETTINGS; i++)
        r->pinned[i] = s->value[i];
    for (int i = 0; i < N_CHANGED; i++)
        r->pinned[changed[i]] = NULL;
    r->pinned[VP_SETTING_LOSS] = s->value[VP_SETTING_LOSS]; /* another one is the last resort */
    if (calls_checkpoints(c))
        r->pinned[VP_SETTING_RECOMPUTE] = s->value[VP_SETTING_RECOMPUTE];
    /* somebody chose it, and a line to take it out would be in nobody's file */
    if (strcmp(s->value[VP_SETTING_ALLOCATOR], "expandable") == 0)
        r->pinned[VP_SETTING_ALLOCATOR] = s->value[VP_SETTING_ALLOCATOR];
    r->seq          = number(s->value[VP_SETTING_SEQ]);
    r->world        = number(s->value[VP_SETTING_WORLD]);
    r->global_batch = number(s->value[VP_SETTING_MICRO_BATCH]) *
                      number(s->value[VP_SETTING_ACCUMULATION]) * r->world;
    r->micro_batch = 0;
}

static bool differs(const vp_settings *a, const vp_settings *b, vp_setting s)
{
    const char *p = a->value[s] ? a->value[s] : "", *q = b->value[s] ? b->value[s] : "";

    return strcmp(p, q) != 0;
}

/* Micro-batch and accumulation are one change. */
static vp_setting other_half(vp_setting s)
{
    return s == VP_SETTING_MICRO_BATCH ? VP_SETTING_ACCUMULATION : s;
}

/* The lines of these changes, the first with what they are worth together. */
static void add_lines(vp_mended *m, const vp_edit *edits, int64_t n, const bool of[N_CHANGED],
                      int64_t saves, double costs)
{
    bool first = true;

    for (int k = 0; k < N_CHANGED - 1; k++)
        for (int64_t i = 0; of[k] && i < n; i++) {
            if (edits[i].setting != changed[k] && edits[i].setting != other_half(changed[k]))
                continue;
            m->lines[m->n_lines++] = (vp_mended_line){.edit          = edits[i],
                                                      .first         = first,
                                                      .saves_bytes   = first ? saves : 0,
                                                      .costs_seconds = first ? costs : 0};
            first                  = false;
        }
}

static void make(vp_settings *at, const vp_settings *wanted, int change)
{
    vp_setting s = changed[change], other = other_half(s);

    at->value[s]     = wanted->value[s];
    at->value[other] = wanted->value[other];
}

/* Of the changes that are left the one after which least is needed, from `at` on; -1: of none of them a step was recorded. */
static vp_status find_next(vp_arena *arena, const vp_fit_job *job, const vp_settings *at,
                           const vp_settings *wanted, const bool left[N_CHANGED], int *next,
                           vp_fit_bytes *bytes, double *s, vp_err *err)
{
    vp_status st = VP_OK;

    *next = -1;
    for (int i = 0; i < N_CHANGED - 1; i++) {
        vp_settings  one = *at;
        vp_fit_bytes one_bytes;
        double       one_s;
        const char  *why = NULL;
        if (!left[i])
            continue;
        make(&one, wanted, i);
        VP_TRY(size_it(arena, job, &one, &one_bytes, &one_s, &why, NULL, err));
        if (why || (*next >= 0 && one_bytes.device_bytes >= bytes->device_bytes))
            continue;
        *next  = i;
        *bytes = one_bytes;
        *s     = one_s;
    }
out:
    return st;
}

/* From what is to what is wanted, one change after the other, what saves most first. Those between which no step was recorded are one
 * change; what is wanted was sized. */
static vp_status list_lines(vp_arena *arena, const vp_checked *c, const vp_fit_job *job,
                            vp_mended *m, vp_err *err)
{
    const vp_choice   *best            = m->chosen.best;
    const vp_settings *wanted          = &best->settings;
    vp_settings        at              = m->settings;
    vp_fit_bytes       bytes           = m->now, next_bytes;
    double             s               = m->now_s, next_s;
    bool               left[N_CHANGED] = {false};
    int                n_left          = 0, next;
    vp_edit           *edits;
    int64_t            n;
    vp_status          st = VP_OK;

    VP_TRY(vp_edits_list(c, wanted, &edits, &n, err));
    m->lines = vp_arena_array(arena, n + 1, sizeof *m->lines);
    VP_TRY_ALLOC(err, m->lines);
    for (int i = 0; i < N_CHANGED - 1; i++)
        n_left += left[i] = differs(&at, wanted, changed[i]);
    for (; n_left > 1; n_left--) {
        bool one[N_CHANGED] = {false};
        VP_TRY(find_next(arena, job, &at, wanted, left, &next, &next_bytes, &next_s, err));
        if (next < 0)
            break;
        one[next]  = true;
        left[next] = false;
        make(&at, wanted, next);
        add_lines(m, edits, n, one, bytes.device_bytes - next_bytes.device_bytes, next_s - s);
        bytes = next_bytes;
        s     = next_s;
    }
    add_lines(m, edits, n, left, bytes.device_bytes - best->bytes->device_bytes, best->seconds - s);
out:
    return st;
}

/* Nobody said which allocator: what the other one would need. */
static vp_status size_expandable(vp_arena *arena, const vp_checked *c, const vp_fit_job *job,
                                 vp_mended *m, vp_err *err)
{
    vp_settings  s = m->settings;
    vp_fit_bytes bytes;
    double       seconds;
    const char  *why = NULL;
    vp_status    st  = VP_OK;

    m->expandable_bytes = -1;
    if (c->settings.value[VP_SETTING_ALLOCATOR])
        goto out;
    s.value[VP_SETTING_ALLOCATOR] = "expandable";
    VP_TRY(size_it(arena, job, &s, &bytes, &seconds, &why, NULL, err));
    if (!why)
        m->expandable_bytes = bytes.high_bytes;
out:
    return st;
}

/* Of the precisions that the files leave open the verdict is of the first: what the next one would need. */
static vp_status size_other(vp_arena *arena, const vp_checked *c, const vp_fit_job *job,
                            vp_mended *m, vp_err *err)
{
    const char  *may = c->may_be[VP_SETTING_PRECISION], *why = NULL;
    vp_settings  s = m->settings;
    vp_fit_bytes bytes;
    double       seconds;
    vp_status    st = VP_OK;

    for (const char *p = may; p && *p && !m->other;) {
        size_t      n    = strcspn(p, " ");
        const char *word = vp_arena_printf(arena, "%.*s", (int)n, p);
        VP_TRY_ALLOC(err, word);
        p += n + (strncmp(p + n, " or ", 4) == 0 ? 4 : 0);
        s.value[VP_SETTING_PRECISION] = word;
        why                           = NULL;
        if (strcmp(word, m->settings.value[VP_SETTING_PRECISION]) == 0)
            continue;
        VP_TRY(size_it(arena, job, &s, &bytes, &seconds, &why, NULL, err));
        if (!why)
            m->other = word, m->other_bytes = bytes.high_bytes;
    }
out:
    return st;
}

/* Nothing fits: the settings that need least, shared over more cards, which each have fewer of the samples. */
enum { MOST_CARDS = 64 };

static vp_status find_cards(vp_arena *arena, const vp_fit_job *job, int64_t budget, vp_mended *m,
                            vp_err *err)
{
    vp_settings  s     = m->chosen.least->settings;
    int64_t      world = number(s.value[VP_SETTING_WORLD]);
    int64_t      each  = world * number(s.value[VP_SETTING_ACCUMULATION]);
    const char  *why   = NULL;
    vp_fit_bytes bytes;
    double       seconds;
    vp_status    st = VP_OK;

    if (strcmp(s.value[VP_SETTING_PARALLEL], "none") == 0 ||
        vp_world_replicates(s.value[VP_SETTING_PARALLEL]))
        s.value[VP_SETTING_PARALLEL] = "fsdp2";
    for (int64_t n = 2 * world; n <= MOST_CARDS && !m->cards && !why; n *= 2) {
        s.value[VP_SETTING_WORLD] = vp_arena_printf(arena, "%lld", (long long)n);
        s.value[VP_SETTING_ACCUMULATION] =
            vp_arena_printf(arena, "%lld", (long long)(each > n ? each / n : 1));
        VP_TRY_ALLOC(err, s.value[VP_SETTING_WORLD] && s.value[VP_SETTING_ACCUMULATION]);
        VP_TRY(size_it(arena, job, &s, &bytes, &seconds, &why, NULL, err));
        if (why || bytes.high_bytes > budget)
            continue;
        m->cards          = n;
        m->cards_parallel = s.value[VP_SETTING_PARALLEL];
        m->cards_bytes    = bytes.high_bytes;
    }
out:
    return st;
}

/* Nothing fits: whether something does with Liger's kernels, which are to be installed. Those that the files switch on themselves
 * stay. */
static vp_status try_liger(vp_arena *arena, const vp_choose_request *r, vp_mended *m, vp_err *err)
{
    vp_chosen with;
    vp_status st = VP_OK;

    if (r->job.liger || r->job.liger_least || vp_language_is_liger(r->pinned[VP_SETTING_LOSS]))
        return VP_OK;
    VP_TRY(vp_choose_with_liger(arena, r, &with, err));
    m->takes_liger = with.best != NULL;
    vp_chosen_release(m->takes_liger ? &m->chosen : &with);
    if (m->takes_liger)
        m->chosen = with;
out:
    return st;
}

/* Checkpoints of all layers stay as the files have them made, where that fits too: the search knows them by use_reentrant=False. */
static vp_status keep_reentrant(vp_arena *arena, const vp_choose_request *r, vp_mended *m,
                                vp_err *err)
{
    const char   *said = m->settings.value[VP_SETTING_RECOMPUTE], *why = NULL;
    vp_choice    *kept  = vp_arena_alloc(arena, sizeof *kept);
    vp_fit_bytes *bytes = vp_arena_alloc(arena, sizeof *bytes);
    vp_status     st    = VP_OK;

    VP_TRY_ALLOC(err, kept && bytes);
    *kept = *m->chosen.best;
    if (strcmp(said, "full:reentrant") != 0 ||
        strcmp(kept->settings.value[VP_SETTING_RECOMPUTE], "full") != 0)
        goto out;
    kept->settings.value[VP_SETTING_RECOMPUTE] = said;
    kept->bytes                                = bytes;
    VP_TRY(size_it(arena, &r->job, &kept->settings, bytes, &kept->seconds, &why, NULL, err));
    if (!why && bytes->high_bytes <= r->budget_bytes)
        m->chosen.best = kept;
out:
    return st;
}

vp_status vp_mend(vp_arena *arena, const vp_checked *c, vp_choose_request *r, vp_mended *out,
                  vp_err *err)
{
    vp_err    why = {0};
    vp_status st  = VP_OK;

    *out = (vp_mended){.refused = VP_N_SETTINGS};
    VP_TRY(complete(arena, c, r, out, err));
    if (out->why)
        goto out;
    VP_TRY(size_it(arena, &r->job, &out->settings, &out->now, &out->now_s, &out->why, &out->refused,
                   err));
    if (out->why)
        goto out;
    out->fits = out->now.high_bytes <= r->budget_bytes;
    if (!out->fits)
        VP_TRY(vp_fit_tightly(&r->job, &out->settings, &out->now, r->budget_bytes, &out->is_tight,
                              &out->n_returns, err));
    VP_TRY(size_expandable(arena, c, &r->job, out, err));
    VP_TRY(size_other(arena, c, &r->job, out, err));
    out->padded_bytes = vp_fit_padded_bytes(&r->job, &out->settings);
    if (r->job.no_seconds)
        goto out;
    pin(c, &out->settings, r);
    st = vp_choose(arena, r, &out->chosen, &why);
    if (st == VP_ERR_INPUT) { /* nothing else can be told or sized: there is nothing to propose */
        st = VP_OK;
        goto out;
    }
    if (st != VP_OK) {
        *err = why;
        goto out;
    }
    if (!out->fits && !out->chosen.best)
        VP_TRY(try_liger(arena, r, out, err));
    if (out->chosen.best)
        VP_TRY(keep_reentrant(arena, r, out, err));
    if (!out->fits && out->chosen.best)
        VP_TRY(list_lines(arena, c, &r->job, out, err));
    if (!out->fits && !out->chosen.best && out->chosen.least)
        VP_TRY(find_cards(arena, &r->job, r->budget_bytes, out, err));
out:
    return st;
}

void vp_mended_release(vp_mended *mended)
{
    vp_chosen_release(&mended->chosen);
}
