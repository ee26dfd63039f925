#include "tuner/command_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A setting that the model expects to be slower than the best by more than this is not tried. */
static const double margin = 0.015;
/* The same where the trials do not tell apart what one axis does from what another does. */
static const double wide_margin = 0.1;
/* Of the budget: what needs less is not expected to fail by fragments. */
static const double nearly_all = 0.97;
/* A neighbour of the best one that is expected to be slower by more than this is not tried to make sure. */
static const double clear_margin = 0.05;
/* ---- what trials say of settings that were not tried ---- */

/* Trials of two values of an axis with all else equal. */
static bool equal_but(const vp_choice *c, int axis, int64_t t, int64_t u)
{
    const int *x = vp_choice_values(c, t), *y = vp_choice_values(c, u);
    bool       equal = true;

    for (int a = 0; a < c->space->n_axes && equal; a++)
        equal = a == axis || x[a] == y[a];
    return equal;
}

/* Whether a value of an axis was seen to need as much as another one, with all else equal: it needs so elsewhere too. */
static bool needs_as_much(const vp_choice *c, int axis, int one, int than)
{
    for (int64_t i = 0; i < c->n_known; i++)
        for (int64_t k = 0; k < c->n_known; k++) {
            int64_t t = c->known[i], u = c->known[k];
            if (vp_choice_values(c, t)[axis] == one && vp_choice_values(c, u)[axis] == than &&
                equal_but(c, axis, t, u) && vp_choice_fits_at(c, t) && vp_choice_fits_at(c, u) &&
                (double)vp_choice_fits_at(c, t)->device_bytes >
                    0.995 * (double)vp_choice_fits_at(c, u)->device_bytes)
                return true;
        }
    return false;
}

/* One that differs by a value of a plain axis and ran out of memory, where this value needs as much as that; -1: none. */
static int64_t failure_as_large(const vp_choice *c, int64_t s)
{
    for (int64_t i = 0; i < c->n_known; i++) {
        int64_t t = c->known[i];
        if (!vp_choice_trial(c, t) || vp_choice_trial(c, t)->verdict != VP_COMMAND_OOM_DEVICE)
            continue;
        for (int a = 0; a < c->space->n_axes; a++)
            if (c->space->axes[a].kind == VP_AXIS_PLAIN &&
                vp_choice_values(c, t)[a] != vp_choice_values(c, s)[a] &&
                vp_choice_needs_no_more_but(c, t, s, a) &&
                needs_as_much(c, a, vp_choice_values(c, s)[a], vp_choice_values(c, t)[a]))
                return t;
    }
    return -1;
}

/* Whether a setting ran out of memory while enough of it was free, or is taken to do so as its like did. */
static bool fails_scattered(const vp_choice *c, int64_t s)
{
    const vp_command_trial *trial = vp_choice_trial(c, s);
    int64_t                 like  = trial ? -1 : failure_as_large(c, s);

    if (like >= 0)
        trial = vp_choice_trial(c, like);
    return trial && trial->verdict == VP_COMMAND_OOM_DEVICE &&
           trial->needed_bytes <= c->budget_bytes;
}

/* Whether t packs tighter than s. */
static bool packs_tighter(const vp_choice *c, int64_t t, int64_t s)
{
    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_PACKS &&
            vp_choice_values(c, t)[a] > vp_choice_values(c, s)[a])
            return true;
    return false;
}

/* Whether one that needs no more than s ran out of memory. What grows by pieces of 20 MiB may lack one where all that was asked for
 * was less than there is: then that says nothing of what does not grow so. */
static bool fails_as(const vp_choice *c, int64_t s)
{
    for (int64_t i = 0; i < c->n_known; i++) {
        int64_t                 t     = c->known[i];
        const vp_command_trial *trial = vp_choice_trial(c, t);
        if (trial && trial->verdict == VP_COMMAND_OOM_DEVICE && vp_choice_needs_no_more(c, t, s) &&
            (trial->needed_bytes > c->budget_bytes || !packs_tighter(c, t, s)))
            return true;
    }
    return false;
}

/* Whether trials say that a setting does not fit. */
static bool ruled_by_memory(const vp_choice *c, int64_t s)
{
    if (fails_as(c, s) || vp_choice_least_bytes(c, s) > (double)c->budget_bytes)
        return true;
    for (int a = 0; a < c->space->n_axes; a++) /* what asked for more than there is does not pack */
        for (int64_t i = 0; i < c->n_known && c->space->axes[a].kind == VP_AXIS_PACKS; i++) {
            int64_t t = c->known[i];
            if (vp_choice_trial(c, t) && vp_choice_trial(c, t)->verdict == VP_COMMAND_OOM_DEVICE &&
                vp_choice_trial(c, t)->needed_bytes > c->budget_bytes &&
                vp_choice_needs_no_more_but(c, t, s, a))
                return true;
        }
    return false;
}

/* Whether s only packs tighter what would not fail for that: the same without it is not known to run out of memory. One that
 * asks for more than there is does so however it is packed, which ruled_by_memory() says. */
static bool packs_in_vain(const vp_choice *c, int64_t s)
{
    const int *y = vp_choice_values(c, s);

    for (int a = 0; a < c->space->n_axes; a++) {
        if (c->space->axes[a].kind != VP_AXIS_PACKS || !y[a])
            continue;
        for (int64_t t = 0; t < c->space->n; t++) {
            const int *x    = vp_choice_values(c, t);
            bool       same = true;

            for (int b = 0; b < c->space->n_axes && same; b++)
                same = b == a ? x[b] < y[b] : x[b] == y[b];
            if (same && (fails_scattered(c, t) || fails_as(c, t)))
                return false;
        }
        return true;
    }
    return false;
}

/* Whether a value of a plain axis failed twice for another reason than memory, and never worked. */
static bool never_works(const vp_choice *c, int64_t s)
{
    const int *y = vp_choice_values(c, s);

    for (int a = 0; a < c->space->n_axes; a++) {
        int failed = 0, worked = 0;
        for (int64_t i = 0; i < c->n_known; i++) {
            int64_t t = c->known[i];
            if (vp_choice_trial(c, t) && vp_choice_values(c, t)[a] == y[a]) {
                vp_command_verdict v = vp_choice_trial(c, t)->verdict;
                worked += v == VP_COMMAND_OK || v == VP_COMMAND_OOM_DEVICE;
                failed += v == VP_COMMAND_CRASH || v == VP_COMMAND_TIMEOUT;
            }
        }
        if (failed > 1 && !worked)
            return true;
    }
    return false;
}

static vp_ruling ruled_by_trials(const vp_choice *c, int64_t s)
{
    if (ruled_by_memory(c, s) || never_works(c, s))
        return VP_RULED_MEMORY;
    for (int64_t i = 0; i < c->n_known; i++) {
        int64_t t = c->known[i];
        if (vp_choice_trial(c, t) && vp_choice_trial(c, t)->verdict == VP_COMMAND_OK &&
            vp_choice_no_slower(c, t, s))
            return VP_RULED_SPEED;
    }
    return packs_in_vain(c, s) ? VP_RULED_NO_USE : VP_RULED_NOT;
}

/* ---- what to try next ---- */

/* Whether every value of the setting's plain and saving axes was seen to work. */
static bool all_seen(const vp_choice *c, int64_t s, bool saves_too)
{
    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        bool           seen = axis->kind != VP_AXIS_PLAIN && axis->kind != VP_AXIS_BETTER &&
                    !(saves_too && axis->kind == VP_AXIS_SAVES);
        for (int64_t i = 0; i < c->n_known && !seen; i++) {
            int64_t t = c->known[i];
            seen      = vp_choice_fits_at(c, t) &&
                   (vp_choice_values(c, t)[a] == vp_choice_values(c, s)[a] ||
                    (axis->kind == VP_AXIS_BETTER &&
                     vp_choice_values(c, t)[a] > vp_choice_values(c, s)[a]));
        }
        if (!seen)
            return false;
    }
    return true;
}

/* Whether a running trial may soon say something of this setting. */
static bool waits_for_running(const vp_choice *c, int64_t s)
{
    for (int64_t t = 0; t < c->space->n; t++)
        if (c->state[t] == VP_SETTING_RUNNING &&
            (vp_choice_needs_no_more(c, t, s) || vp_choice_no_slower(c, t, s)))
            return true;
    return false;
}

/* Whether two values of an axis were tried with all else equal. */
static bool compared(const vp_choice *c, int axis, int one, int other)
{
    for (int64_t i = 0; i < c->n_known; i++)
        for (int64_t k = 0; k < c->n_known; k++) {
            int64_t t = c->known[i], u = c->known[k];
            if (vp_choice_values(c, t)[axis] == one && vp_choice_values(c, u)[axis] == other &&
                equal_but(c, axis, t, u) && vp_choice_fits_at(c, t) && vp_choice_fits_at(c, u))
                return true;
        }
    return false;
}

/* A fitting trial's twin with another value of one axis, that was not tried; -1: there is none. The best one's first. */
static int64_t untried_twin(const vp_choice *c, int axis, int of, int wanted)
{
    for (int64_t i = -1; i < c->space->n; i++) {
        int64_t t = i < 0 ? c->best : i;
        if (!vp_choice_fits_at(c, t) || vp_choice_values(c, t)[axis] != of)
            continue;
        for (int64_t u = 0; u < c->space->n; u++)
            if (c->state[u] == VP_SETTING_UNTRIED && vp_choice_values(c, u)[axis] == wanted &&
                equal_but(c, axis, t, u) && !waits_for_running(c, u) &&
                ruled_by_trials(c, u) == VP_RULED_NOT)
                return u;
    }
    return -1;
}

/* What to try in the place of s: where another value of a plain axis ran out of memory in its place, first how much the two
 * need where one fits, since it may say that this one fails too. */
static int64_t comparison_first(const vp_choice *c, int64_t s)
{
    const int *y = vp_choice_values(c, s);

    for (int64_t i = 0; i < c->n_known && c->best >= 0; i++) {
        int64_t    t = c->known[i];
        const int *x = vp_choice_values(c, t);
        if (!vp_choice_trial(c, t) || vp_choice_trial(c, t)->verdict != VP_COMMAND_OOM_DEVICE)
            continue;
        for (int a = 0; a < c->space->n_axes; a++) {
            if (c->space->axes[a].kind != VP_AXIS_PLAIN || x[a] == y[a] ||
                !vp_choice_needs_no_more_but(c, t, s, a) || compared(c, a, x[a], y[a]))
                continue;
            int64_t twin = untried_twin(c, a, x[a], y[a]);
            if (twin < 0)
                twin = untried_twin(c, a, y[a], x[a]);
            if (twin >= 0)
                return twin;
        }
    }
    return s;
}

/* Whether two settings differ in one axis, and in sizes, how often and how tight, at most. */
static bool alike_but(const vp_choice *c, int axis, int64_t t, int64_t u)
{
    for (int a = 0; a < c->space->n_axes; a++) {
        vp_axis_kind kind = c->space->axes[a].kind;
        if (a != axis && kind != VP_AXIS_SIZE && kind != VP_AXIS_TIMES && kind != VP_AXIS_PACKS &&
            vp_choice_values(c, t)[a] != vp_choice_values(c, u)[a])
            return false;
    }
    return true;
}

/* Whether two values of an axis were seen to have the host issue the same micro-step, whatever its size: what they change is the
 * optimizer's step, which is known of both. */
static bool same_micro_step(const vp_choice *c, int axis, int one, int other)
{
    for (int64_t i = 0; i < c->n_known; i++)
        for (int64_t k = 0; k < c->n_known; k++) {
            int64_t t = c->known[i], u = c->known[k];
            if (vp_choice_values(c, t)[axis] != one || vp_choice_values(c, u)[axis] != other ||
                !vp_choice_fits_at(c, t) || !vp_choice_fits_at(c, u) || !alike_but(c, axis, t, u))
                continue;
            double x = vp_models_micro_host(c, t), y = vp_models_micro_host(c, u);
            if (x > 0 && fabs(x - y) < 1e-6 * x)
                return true;
        }
    return false;
}

/* What a setting is expected to need, in budgets: of one that packs tighter than one that failed, while enough was free, what
 * that asked for; by how bytes grew in its like where two sizes of it were seen; else by the model. */
static double expected_bytes(const vp_choice *c, const vp_models *m, int64_t s)
{
    double bytes = 0;

    for (int64_t i = 0; i < c->n_known && !(bytes > 0); i++) {
        int64_t                 t     = c->known[i];
        const vp_command_trial *trial = vp_choice_trial(c, t);
        for (int a = 0; a < c->space->n_axes && trial; a++)
            if (c->space->axes[a].kind == VP_AXIS_PACKS && equal_but(c, a, t, s) &&
                packs_tighter(c, s, t) && trial->verdict == VP_COMMAND_OOM_DEVICE)
                bytes = (double)trial->needed_bytes;
    }
    bytes = bytes > 0 ? bytes : vp_choice_grown_bytes(c, s);
    return bytes > 0 ? bytes / (double)c->budget_bytes : vp_models_bytes(c, m, s);
}

/* Whether two trials that fit differ in nothing but a size: what that does is known. */
static bool sizes_told_apart(const vp_choice *c)
{
    for (int64_t i = 0; i < c->n_known; i++)
        for (int64_t k = 0; k < i; k++)
            if (vp_choice_fits_at(c, c->known[i]) && vp_choice_fits_at(c, c->known[k]) &&
                alike_but(c, -1, c->known[i], c->known[k]) &&
                vp_choice_product(c, c->known[i], VP_AXIS_SIZE) !=
                    vp_choice_product(c, c->known[k], VP_AXIS_SIZE))
                return true;
    return false;
}

/* Whether, for each axis but sizes in which s differs from the best one, the two values were tried with all other such axes equal. */
static bool told_apart(const vp_choice *c, int64_t s)
{
    bool size_told = sizes_told_apart(c);

    for (int a = 0; a < c->space->n_axes; a++) {
        vp_axis_kind kind = c->space->axes[a].kind;
        int          one = vp_choice_values(c, s)[a], other = vp_choice_values(c, c->best)[a];
        bool         told =
            one == other || kind == VP_AXIS_SIZE || kind == VP_AXIS_TIMES || kind == VP_AXIS_PACKS;
        for (int64_t i = 0; i < c->n_known && !told; i++)
            for (int64_t k = 0; k < c->n_known && !told; k++) {
                int64_t t = c->known[i], u = c->known[k];
                told = vp_choice_values(c, t)[a] == one && vp_choice_values(c, u)[a] == other &&
                       vp_choice_fits_at(c, t) && vp_choice_fits_at(c, u) &&
                       alike_but(c, a, t, u) &&
                       (size_told || vp_choice_product(c, t, VP_AXIS_SIZE) ==
                                         vp_choice_product(c, u, VP_AXIS_SIZE));
            }
        if (!told)
            return false;
    }
    return true;
}

/* Whether t is s with a better value, and packs no tighter. */
static bool is_better(const vp_choice *c, int64_t t, int64_t s)
{
    const int *x = vp_choice_values(c, t), *y = vp_choice_values(c, s);
    int        better = 0;

    for (int a = 0; a < c->space->n_axes; a++) {
        vp_axis_kind kind = c->space->axes[a].kind;
        if (kind == VP_AXIS_BETTER || kind == VP_AXIS_PACKS) {
            if (kind == VP_AXIS_BETTER ? x[a] < y[a] : x[a] > y[a])
                return false;
            better += kind == VP_AXIS_BETTER && x[a] > y[a];
        } else if (x[a] != y[a]) {
            return false;
        }
    }
    return better;
}

/* Whether there is one to try before s: the same with a better value, of which it is assumed that it needs no more and is no
 * slower; no tighter. */
static bool comes_after(const vp_choice *c, int64_t s)
{
    int packs = -1, better = 0;

    for (int a = 0; a < c->space->n_axes; a++) {
        packs = c->space->axes[a].kind == VP_AXIS_PACKS ? a : packs;
        better += c->space->axes[a].kind == VP_AXIS_BETTER && !vp_choice_values(c, s)[a];
    }
    for (int64_t t = 0; t < c->space->n && better; t++)
        if (c->state[t] == VP_SETTING_UNTRIED && is_better(c, t, s) &&
            vp_choice_needs_no_more_but(c, t, s, packs) && vp_choice_no_slower(c, t, s) &&
            ruled_by_trials(c, t) == VP_RULED_NOT)
            return true;
    return false;
}

int64_t vp_choice_next(vp_choice *c, char *rulings)
{
    vp_models m;
    double    best_seconds = INFINITY, chosen_seconds = INFINITY, chosen_bytes = INFINITY;
    int64_t   chosen = -1;

    if (!vp_models_fit(c, &m))
        return -1;
    if (c->best >= 0)
        best_seconds = -log(vp_choice_speed(c, c->best));
    for (int64_t s = 0; s < c->space->n; s++) {
        if (c->state[s] != VP_SETTING_UNTRIED)
            continue;
        vp_ruling ruling = ruled_by_trials(c, s);
        double    seconds, bytes;

        seconds   = vp_models_seconds(c, &m, s);
        bytes     = expected_bytes(c, &m, s);
        bool seen = all_seen(c, s, false);
        if (ruling == VP_RULED_NOT && seen && c->best >= 0 &&
            seconds > best_seconds + (told_apart(c, s) ? margin : wide_margin))
            ruling = VP_RULED_EXPECTED_SLOWER;
        /* an expectation does not show that nothing fits: until something does, play it */
        if (ruling == VP_RULED_NOT && c->best >= 0 && failure_as_large(c, s) >= 0)
            ruling = VP_RULED_EXPECTED_LARGE;
        if (rulings)
            rulings[s] = (char)ruling;
        if (ruling != VP_RULED_NOT || waits_for_running(c, s) || comes_after(c, s))
            continue;
        if (!seen)
            seconds -= 1; /* a value nobody has seen: soon */
        bool fits = bytes <= 1, chosen_fits = chosen_bytes <= 1;
        if (chosen < 0 || (fits && !chosen_fits) ||
            (fits && chosen_fits && seconds < chosen_seconds) ||
            (!fits && !chosen_fits && bytes < chosen_bytes)) {
            chosen         = s;
            chosen_seconds = seconds;
            chosen_bytes   = bytes;
        }
    }
    return chosen < 0 ? -1 : comparison_first(c, chosen);
}

/* Whether the trials leave no doubt that a neighbour is slower: all its values were seen, and they expect it clearly so. */
static bool clearly_slower(const vp_choice *c, const vp_models *m, int64_t s)
{
    return all_seen(c, s, true) &&
           vp_models_seconds(c, m, s) > -log(vp_choice_speed(c, c->best)) + clear_margin;
}

/* Whether s is a neighbour of the best one: one step along the axes of which something is assumed, or another value of a plain
 * one that was never compared with its own. */
static bool is_neighbour(const vp_choice *c, int64_t s, const vp_models *m)
{
    const int *v = vp_choice_values(c, s), *b = vp_choice_values(c, c->best);
    int        steps = 0, others = 0, other = 0;

    for (int a = 0; a < c->space->n_axes; a++) {
        vp_axis_kind kind = c->space->axes[a].kind;
        if ((kind == VP_AXIS_PACKS || kind == VP_AXIS_BETTER) && v[a] != b[a])
            return false; /* as fast, by what is known of it; no faster */
        if (kind == VP_AXIS_SIZE || kind == VP_AXIS_SAVES)
            steps += abs(v[a] - b[a]);
        else if (kind == VP_AXIS_PLAIN)
            others += v[a] != b[a], other = v[a] != b[a] ? a : other;
    }
    double all_s = vp_choice_product(c, s, VP_AXIS_SIZE) * vp_choice_product(c, s, VP_AXIS_TIMES);
    double all_b =
        vp_choice_product(c, c->best, VP_AXIS_SIZE) * vp_choice_product(c, c->best, VP_AXIS_TIMES);
    bool same_times =
        vp_choice_product(c, s, VP_AXIS_TIMES) == vp_choice_product(c, c->best, VP_AXIS_TIMES);

    if (steps == 1)
        return !others && (all_s == all_b || same_times) && !clearly_slower(c, m, s);
    return !steps && others == 1 && same_times && !compared(c, other, v[other], b[other]) &&
           !same_micro_step(c, other, v[other], b[other]);
}

/* Whether two trials fit that differ in a value of an axis, this one and the worse, and in how tight they pack at most. */
static bool asked_of_trials(const vp_choice *c, int axis, int better)
{
    for (int64_t i = 0; i < c->n_known; i++)
        for (int64_t k = 0; k < c->n_known; k++) {
            const int *x = vp_choice_values(c, c->known[i]), *y = vp_choice_values(c, c->known[k]);
            bool pair = x[axis] == better && y[axis] == 0 && vp_choice_fits_at(c, c->known[i]) &&
                        vp_choice_fits_at(c, c->known[k]);
            for (int a = 0; a < c->space->n_axes && pair; a++)
                pair = a == axis || c->space->axes[a].kind == VP_AXIS_PACKS || x[a] == y[a];
            if (pair)
                return true;
        }
    return false;
}

/* The best one with a value of an axis that is assumed to be no better, if it was not tried and is expected to fit; -1: there is none. */
static int64_t twin_of_best(const vp_choice *c, int axis, const vp_models *m)
{
    for (int64_t s = 0; s < c->space->n; s++)
        if (c->state[s] == VP_SETTING_UNTRIED && equal_but(c, axis, s, c->best) &&
            vp_choice_values(c, s)[axis] < vp_choice_values(c, c->best)[axis] &&
            !ruled_by_memory(c, s) && expected_bytes(c, m, s) <= 1)
            return s;
    return -1;
}

/* Whether the best one was tried with another value of an axis, and ran out of memory. */
static bool is_twin_too_large(const vp_choice *c, int axis)
{
    for (int64_t s = 0; s < c->space->n; s++)
        if (equal_but(c, axis, s, c->best) && s != c->best && vp_choice_trial(c, s) &&
            vp_choice_trial(c, s)->verdict == VP_COMMAND_OOM_DEVICE)
            return true;
    return false;
}

/* Where the best one has a value that is assumed to be better: its twin with another, which may be the faster one there, whatever
 * smaller ones say. Where that does not fit, and no two trials have with all else equal, the twin of the smallest trial that does.
 * What it does may speak against what is assumed. -1: there is none. */
static int64_t unchecked(const vp_choice *c, const vp_models *m)
{
    int64_t twin = -1, smallest = INT64_MAX;

    for (int a = 0; a < c->space->n_axes && twin < 0; a++) {
        int best = vp_choice_values(c, c->best)[a];
        if (c->space->axes[a].kind != VP_AXIS_BETTER || !best)
            continue;
        twin = twin_of_best(c, a, m);
        if (twin >= 0 || asked_of_trials(c, a, best) || is_twin_too_large(c, a))
            continue;
        for (int64_t i = 0; i < c->n_known; i++) {
            const vp_command_trial *t = vp_choice_fits_at(c, c->known[i]);
            for (int64_t s = 0; s < c->space->n && t && t->device_bytes < smallest; s++)
                if (c->state[s] == VP_SETTING_UNTRIED && equal_but(c, a, s, c->known[i]) &&
                    !ruled_by_memory(c, s)) {
                    smallest = t->device_bytes;
                    twin     = s;
                }
        }
    }
    return twin;
}

int64_t vp_choice_neighbour(vp_choice *c)
{
    vp_models m;

    if (c->best < 0 || !vp_models_fit(c, &m))
        return -1;
    for (int64_t s = 0; s < c->space->n; s++) {
        if (c->state[s] != VP_SETTING_UNTRIED || !is_neighbour(c, s, &m) ||
            failure_as_large(c, s) >= 0)
            continue;
        vp_ruling ruling = ruled_by_trials(c, s);
        if (ruling != VP_RULED_MEMORY && ruling != VP_RULED_NO_USE)
            return s;
    }
    return unchecked(c, &m);
}

void vp_choice_better(vp_choice *c, int64_t setting)
{
    const vp_command_trial *trial = &c->settings[setting].trial;
    double                  speed, best;

    if (trial->verdict != VP_COMMAND_OK)
        return;
    speed = vp_choice_speed(c, setting);
    best  = c->best < 0 ? 0 : vp_choice_speed(c, c->best);
    if (c->best < 0 || speed > best ||
        (speed == best && trial->reserved_bytes < c->settings[c->best].trial.reserved_bytes))
        c->best = setting;
}

/* Once one has run out of memory while enough of it was free: what is expected to need nearly all of it, or more, is tried with
 * what packs tighter at once. Where it fits the other is no
 * faster, where it asked for more than there is the other does too. */
static int64_t packed_first(const vp_choice *c, int64_t s)
{
    bool      scattered = false;
    vp_models m;

    for (int64_t i = 0; i < c->n_known && !scattered; i++)
        scattered = vp_choice_trial(c, c->known[i]) && fails_scattered(c, c->known[i]);
    for (int64_t i = 0; i < c->n_known && scattered; i++) /* it is known to fit as it is */
        scattered =
            !vp_choice_fits_at(c, c->known[i]) || !vp_choice_needs_no_more(c, s, c->known[i]);
    if (s < 0 || !scattered || !vp_models_fit(c, &m) || expected_bytes(c, &m, s) < nearly_all)
        return s;
    for (int a = 0; a < c->space->n_axes; a++)
        for (int64_t t = 0; t < c->space->n && c->space->axes[a].kind == VP_AXIS_PACKS; t++)
            if (c->state[t] == VP_SETTING_UNTRIED && equal_but(c, a, t, s) &&
                vp_choice_values(c, t)[a] > vp_choice_values(c, s)[a] && !ruled_by_memory(c, t))
                return t;
    return s;
}

int64_t vp_choice_ask(vp_choice *c, bool *verifying)
{
    vp_choice_doubt(c);
    int64_t next = vp_choice_next(c, NULL);

    if (next < 0) {
        next       = vp_choice_neighbour(c);
        *verifying = *verifying || next >= 0;
    }
    return packed_first(c, next);
}
