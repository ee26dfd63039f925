#include "tuner/command_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A setting that the model expects to be slower than the best by more than this is not tried. */
static const double margin = 0.015;
/* A neighbour of the best one that is expected to be slower by more than this is not tried to make sure. */
static const double clear_margin = 0.05;
/* One that it expects to need this many times the budget is not tried once every value was seen, and two sizes. */
static const double far_too_large = 1.15;

static const vp_command_trial *trial_of(const vp_choice *c, int64_t setting)
{
    return c->state[setting] == VP_SETTING_DONE ? &c->settings[setting].trial : NULL;
}

/* ---- what trials say of settings that were not tried ---- */

/* Whether t is assumed to need no more than s, but for one axis (or -1). */
static bool needs_no_more_but(const vp_choice *c, int64_t t, int64_t s, int but)
{
    const int *x = vp_choice_values(c, t), *y = vp_choice_values(c, s);

    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        if (a == but)
            continue;
        if ((axis->kind == VP_AXIS_PLAIN && x[a] != y[a]) ||
            (axis->kind == VP_AXIS_SIZE && x[a] > y[a]) ||
            (axis->kind == VP_AXIS_SAVES && x[a] < y[a]) ||
            (axis->kind == VP_AXIS_PACKS && x[a] < y[a]) ||
            (axis->kind == VP_AXIS_TIMES && vp_axis_number(axis, x[a]) > 1 &&
             vp_axis_number(axis, y[a]) <= 1))
            return false;
    }
    return true;
}

static bool needs_no_more(const vp_choice *c, int64_t t, int64_t s)
{
    return needs_no_more_but(c, t, s, -1);
}

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
    for (int64_t t = 0; t < c->space->n; t++)
        for (int64_t u = 0; u < c->space->n && vp_choice_values(c, t)[axis] == one; u++)
            if (vp_choice_values(c, u)[axis] == than && equal_but(c, axis, t, u) &&
                vp_choice_fits_at(c, t) && vp_choice_fits_at(c, u) &&
                (double)vp_choice_fits_at(c, t)->device_bytes >
                    0.995 * (double)vp_choice_fits_at(c, u)->device_bytes)
                return true;
    return false;
}

/* One that differs by a value of a plain axis and ran out of memory, where this value needs as much as that; -1: none. */
static int64_t failure_as_large(const vp_choice *c, int64_t s)
{
    for (int64_t t = 0; t < c->space->n; t++) {
        if (!trial_of(c, t) || trial_of(c, t)->verdict != VP_COMMAND_OOM_DEVICE)
            continue;
        for (int a = 0; a < c->space->n_axes; a++)
            if (c->space->axes[a].kind == VP_AXIS_PLAIN &&
                vp_choice_values(c, t)[a] != vp_choice_values(c, s)[a] &&
                needs_no_more_but(c, t, s, a) &&
                needs_as_much(c, a, vp_choice_values(c, s)[a], vp_choice_values(c, t)[a]))
                return t;
    }
    return -1;
}

/* Whether a setting ran out of memory while enough of it was free, or is taken to do so as its like did. */
static bool fails_scattered(const vp_choice *c, int64_t s)
{
    const vp_command_trial *trial = trial_of(c, s);
    int64_t                 like  = trial ? -1 : failure_as_large(c, s);

    if (like >= 0)
        trial = trial_of(c, like);
    return trial && trial->verdict == VP_COMMAND_OOM_DEVICE &&
           trial->needed_bytes <= c->budget_bytes;
}

/* Whether s only packs tighter what would not fail for that: the same without it is not known to have run out of memory
 * while enough of it was free. */
static bool packs_in_vain(const vp_choice *c, int64_t s)
{
    const int *y = vp_choice_values(c, s);

    for (int a = 0; a < c->space->n_axes; a++) {
        if (c->space->axes[a].kind != VP_AXIS_PACKS || !y[a])
            continue;
        for (int64_t t = 0; t < c->space->n; t++) {
            const int *x    = vp_choice_values(c, t);
            bool       same = fails_scattered(c, t);

            for (int b = 0; b < c->space->n_axes && same; b++)
                same = b == a ? x[b] < y[b] : x[b] == y[b];
            if (same)
                return false;
        }
        return true;
    }
    return false;
}

/* Whether t is assumed to be no slower than s, a sample. */
static bool no_slower(const vp_choice *c, int64_t t, int64_t s)
{
    const int *x = vp_choice_values(c, t), *y = vp_choice_values(c, s);
    bool       same_times = true;

    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        if ((axis->kind == VP_AXIS_PLAIN && x[a] != y[a]) ||
            (axis->kind == VP_AXIS_SIZE && x[a] < y[a]) ||
            (axis->kind == VP_AXIS_SAVES && x[a] > y[a]))
            return false;
        same_times = same_times && (axis->kind != VP_AXIS_TIMES || x[a] == y[a]);
    }
    return same_times ||
           vp_choice_product(c, t, VP_AXIS_SIZE) * vp_choice_product(c, t, VP_AXIS_TIMES) ==
               vp_choice_product(c, s, VP_AXIS_SIZE) * vp_choice_product(c, s, VP_AXIS_TIMES);
}

/* Whether a value of a plain axis failed twice for another reason than memory, and never worked. */
static bool never_works(const vp_choice *c, int64_t s)
{
    const int *y = vp_choice_values(c, s);

    for (int a = 0; a < c->space->n_axes; a++) {
        int failed = 0, worked = 0;
        for (int64_t t = 0; t < c->space->n; t++)
            if (trial_of(c, t) && vp_choice_values(c, t)[a] == y[a]) {
                vp_command_verdict v = trial_of(c, t)->verdict;
                worked += v == VP_COMMAND_OK || v == VP_COMMAND_OOM_DEVICE;
                failed += v == VP_COMMAND_CRASH || v == VP_COMMAND_TIMEOUT;
            }
        if (failed > 1 && !worked)
            return true;
    }
    return false;
}

static vp_ruling ruled_by_trials(const vp_choice *c, int64_t s)
{
    for (int64_t t = 0; t < c->space->n; t++) {
        const vp_command_trial *trial = trial_of(c, t);
        if (!trial)
            continue;
        if (trial->verdict == VP_COMMAND_OOM_DEVICE && needs_no_more(c, t, s))
            return VP_RULED_MEMORY;
        if (trial->verdict == VP_COMMAND_OK && no_slower(c, t, s))
            return VP_RULED_SPEED;
    }
    return never_works(c, s)     ? VP_RULED_MEMORY
           : packs_in_vain(c, s) ? VP_RULED_NO_USE
                                 : VP_RULED_NOT;
}

/* ---- what to try next ---- */

/* Whether trials of two sizes fit: how bytes grow was seen. */
static bool growth_seen(const vp_choice *c)
{
    double size = 0;

    for (int64_t s = 0; s < c->space->n; s++) {
        double z = vp_choice_product(c, s, VP_AXIS_SIZE);
        if (!vp_choice_fits_at(c, s))
            continue;
        if (size > 0 && z != size)
            return true;
        size = z;
    }
    return false;
}

/* Whether every value of the setting's plain and saving axes was seen to work. */
static bool all_seen(const vp_choice *c, int64_t s, bool saves_too)
{
    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        bool seen = axis->kind != VP_AXIS_PLAIN && !(saves_too && axis->kind == VP_AXIS_SAVES);
        for (int64_t t = 0; t < c->space->n && !seen; t++)
            seen =
                vp_choice_fits_at(c, t) && vp_choice_values(c, t)[a] == vp_choice_values(c, s)[a];
        if (!seen)
            return false;
    }
    return true;
}

/* Whether the trials leave little doubt that a setting does not fit. bytes: what they expect it to need, in budgets. */
static bool expected_too_large(const vp_choice *c, int64_t s, double bytes, bool grows)
{
    return (all_seen(c, s, true) && grows && bytes > far_too_large) || failure_as_large(c, s) >= 0;
}

/* Whether a running trial may soon say something of this setting. */
static bool waits_for_running(const vp_choice *c, int64_t s)
{
    for (int64_t t = 0; t < c->space->n; t++)
        if (c->state[t] == VP_SETTING_RUNNING && (needs_no_more(c, t, s) || no_slower(c, t, s)))
            return true;
    return false;
}

/* Whether two values of an axis were tried with all else equal. */
static bool compared(const vp_choice *c, int axis, int one, int other)
{
    for (int64_t t = 0; t < c->space->n; t++)
        for (int64_t u = 0; u < c->space->n && vp_choice_values(c, t)[axis] == one; u++)
            if (vp_choice_values(c, u)[axis] == other && equal_but(c, axis, t, u) &&
                vp_choice_fits_at(c, t) && vp_choice_fits_at(c, u))
                return true;
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

    for (int64_t t = 0; t < c->space->n && c->best >= 0; t++) {
        const int *x = vp_choice_values(c, t);
        if (!trial_of(c, t) || trial_of(c, t)->verdict != VP_COMMAND_OOM_DEVICE)
            continue;
        for (int a = 0; a < c->space->n_axes; a++) {
            if (c->space->axes[a].kind != VP_AXIS_PLAIN || x[a] == y[a] ||
                !needs_no_more_but(c, t, s, a) || compared(c, a, x[a], y[a]))
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

/* Whether two values of an axis were seen to have the host issue the same micro-step, whatever its size: what they change is the
 * optimizer's step, which is known of both. */
static bool same_micro_step(const vp_choice *c, int axis, int one, int other)
{
    for (int64_t t = 0; t < c->space->n; t++)
        for (int64_t u = 0; u < c->space->n && vp_choice_values(c, t)[axis] == one; u++) {
            bool alike = vp_choice_values(c, u)[axis] == other && vp_choice_fits_at(c, t) &&
                         vp_choice_fits_at(c, u);
            for (int a = 0; a < c->space->n_axes && alike; a++)
                alike = a == axis || c->space->axes[a].kind == VP_AXIS_SIZE ||
                        c->space->axes[a].kind == VP_AXIS_TIMES ||
                        vp_choice_values(c, t)[a] == vp_choice_values(c, u)[a];
            if (!alike)
                continue;
            double x = vp_models_micro_host(c, t), y = vp_models_micro_host(c, u);
            if (x > 0 && fabs(x - y) < 1e-6 * x)
                return true;
        }
    return false;
}

int64_t vp_choice_next(vp_choice *c, char *rulings)
{
    vp_models m;
    double    best_seconds = INFINITY, chosen_seconds = INFINITY, chosen_bytes = INFINITY;
    int64_t   chosen = -1;

    if (!vp_models_fit(c, &m))
        return -1;
    bool grows = growth_seen(c);
    if (c->best >= 0)
        best_seconds = -log(vp_choice_speed(c, c->best));
    for (int64_t s = 0; s < c->space->n; s++) {
        if (c->state[s] != VP_SETTING_UNTRIED)
            continue;
        vp_ruling ruling = ruled_by_trials(c, s);
        double    seconds, bytes;

        seconds   = vp_models_seconds(c, &m, s);
        bytes     = vp_models_bytes(c, &m, s);
        bool seen = all_seen(c, s, false);
        if (ruling == VP_RULED_NOT && seen && c->best >= 0 && seconds > best_seconds + margin)
            ruling = VP_RULED_EXPECTED_SLOWER;
        /* an expectation does not show that nothing fits: until something does, play it */
        if (ruling == VP_RULED_NOT && c->best >= 0 && expected_too_large(c, s, bytes, grows))
            ruling = VP_RULED_EXPECTED_LARGE;
        if (rulings)
            rulings[s] = (char)ruling;
        if (ruling != VP_RULED_NOT || waits_for_running(c, s))
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
        if (kind == VP_AXIS_PACKS && v[a] != b[a])
            return false; /* as fast, by what is known of it */
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

int64_t vp_choice_neighbour(vp_choice *c)
{
    vp_models m;

    if (c->best < 0 || !vp_models_fit(c, &m))
        return -1;
    bool grows = growth_seen(c);
    for (int64_t s = 0; s < c->space->n; s++) {
        if (c->state[s] != VP_SETTING_UNTRIED || !is_neighbour(c, s, &m) ||
            expected_too_large(c, s, vp_models_bytes(c, &m, s), grows))
            continue;
        vp_ruling ruling = ruled_by_trials(c, s);
        if (ruling != VP_RULED_MEMORY && ruling != VP_RULED_NO_USE)
            return s;
    }
    return -1;
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
