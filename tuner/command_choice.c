#include "tuner/command_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A setting that the model expects to be slower than the best by more than this is not tried. */
static const double margin = 0.015;
/* A neighbour of the best one that is expected to be slower by more than this is not tried to make sure. */
static const double clear_margin = 0.05;
/* One that it expects to need this many times the budget is not tried once every value was seen. */
static const double far_too_large = 1.25;

enum { MAX_FEATURES = 400 };

static const int *values_of(const vp_choice *c, int64_t setting)
{
    return c->space->values + setting * c->space->n_axes;
}

static const vp_command_trial *trial_of(const vp_choice *c, int64_t setting)
{
    return c->state[setting] == VP_SETTING_DONE ? &c->settings[setting].trial : NULL;
}

/* What is done at once, and how often before an optimizer step. */
static double product_of(const vp_choice *c, int64_t setting, vp_axis_kind kind)
{
    const int *v = values_of(c, setting);
    double     x = 1;

    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == kind)
            x *= vp_axis_number(&c->space->axes[a], v[a]);
    return x;
}

static double speed_of(const vp_choice *c, int64_t setting, const vp_command_trial *t)
{
    double z = product_of(c, setting, VP_AXIS_SIZE);

    if (t->samples_per_s > 0)
        return t->samples_per_s;
    if (t->step_s > 0)
        return z * product_of(c, setting, VP_AXIS_TIMES) / t->step_s;
    return 1e-9 * z; /* no seconds: the more at once, the better */
}

double vp_choice_speed(const vp_choice *c, int64_t setting)
{
    return speed_of(c, setting, &c->settings[setting].trial);
}

/* A trial that fits, for the models: of this setting, or of the command as it is in its place. */
static const vp_command_trial *fits_at(const vp_choice *c, int64_t setting)
{
    const vp_command_trial *t = trial_of(c, setting);

    if (!t && setting == c->near)
        t = c->near_trial;
    return t && t->verdict == VP_COMMAND_OK ? t : NULL;
}

/* ---- what trials say of settings that were not tried ---- */

/* Whether t is assumed to need no more than s, but for one axis (or -1). */
static bool needs_no_more_but(const vp_choice *c, int64_t t, int64_t s, int but)
{
    const int *x = values_of(c, t), *y = values_of(c, s);

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

/* Whether s only packs tighter what would not fail for that: the same without it is not known to have run out of memory
 * while enough of it was free. */
static bool packs_in_vain(const vp_choice *c, int64_t s)
{
    const int *y = values_of(c, s);

    for (int a = 0; a < c->space->n_axes; a++) {
        if (c->space->axes[a].kind != VP_AXIS_PACKS || !y[a])
            continue;
        for (int64_t t = 0; t < c->space->n; t++) {
            const int              *x     = values_of(c, t);
            const vp_command_trial *trial = trial_of(c, t);
            bool                    same  = trial && trial->verdict == VP_COMMAND_OOM_DEVICE &&
                        trial->needed_bytes <= c->budget_bytes;
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
    const int *x = values_of(c, t), *y = values_of(c, s);
    bool       same_times = true;

    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        if ((axis->kind == VP_AXIS_PLAIN && x[a] != y[a]) ||
            (axis->kind == VP_AXIS_SIZE && x[a] < y[a]) ||
            (axis->kind == VP_AXIS_SAVES && x[a] > y[a]))
            return false;
        same_times = same_times && (axis->kind != VP_AXIS_TIMES || x[a] == y[a]);
    }
    return same_times || product_of(c, t, VP_AXIS_SIZE) * product_of(c, t, VP_AXIS_TIMES) ==
                             product_of(c, s, VP_AXIS_SIZE) * product_of(c, s, VP_AXIS_TIMES);
}

/* Whether a value of a plain axis failed twice for another reason than memory, and never worked. */
static bool never_works(const vp_choice *c, int64_t s)
{
    const int *y = values_of(c, s);

    for (int a = 0; a < c->space->n_axes; a++) {
        int failed = 0, worked = 0;
        for (int64_t t = 0; t < c->space->n; t++)
            if (trial_of(c, t) && values_of(c, t)[a] == y[a]) {
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

/* ---- two additive models, fitted to the trials by least squares that are held to a prior ---- */

typedef struct model {
    int    n;
    double weight[MAX_FEATURES], prior[MAX_FEATURES];
    double hold; /* to the prior */
} model;

/* (A + hold I) (w - prior) = b, A = sum x x^T, b = sum x (y - x prior); by elimination. */
static bool fit(model *m, int n_rows, const double *x, const double *y)
{
    int     n = m->n;
    double *a = calloc((size_t)n * (size_t)(n + 1), sizeof *a);

    if (!a)
        return false;
    for (int r = 0; r < n_rows; r++) {
        const double *row  = x + (size_t)r * (size_t)n;
        double        left = y[r];
        for (int i = 0; i < n; i++)
            left -= row[i] * m->prior[i];
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < n; k++)
                a[i * (n + 1) + k] += row[i] * row[k];
            a[i * (n + 1) + n] += row[i] * left;
        }
    }
    for (int i = 0; i < n; i++)
        a[i * (n + 1) + i] += i ? m->hold : 1e-4 * m->hold; /* the first: what all have in common */
    for (int i = 0; i < n; i++) /* positive definite: no pivots are needed */
        for (int k = i + 1; k < n; k++) {
            double f = a[k * (n + 1) + i] / a[i * (n + 1) + i];
            for (int j = i; j <= n; j++)
                a[k * (n + 1) + j] -= f * a[i * (n + 1) + j];
        }
    for (int i = n - 1; i >= 0; i--) {
        double sum = a[i * (n + 1) + n];
        for (int k = i + 1; k < n; k++)
            sum -= a[i * (n + 1) + k] * (m->weight[k] - m->prior[k]);
        m->weight[i] = m->prior[i] + sum / a[i * (n + 1) + i];
    }
    free(a);
    return true;
}

static double predicted(const model *m, const double *x)
{
    double y = 0;

    for (int i = 0; i < m->n; i++)
        y += m->weight[i] * x[i];
    return y;
}

typedef struct models {
    model  seconds; /* logarithm of seconds a sample */
    model  bytes;   /* in budgets                    */
    double z_least, z_most, t_least;
    bool   have_bytes;
} models;

enum { FIXED = 3 };

/* Features: 1; what a micro-step costs, a sample; what an optimizer step does; each axis that saves memory; a value of each plain axis. */
static int seconds_features(const vp_choice *c, const models *m, int64_t s, double *x)
{
    const int *v = values_of(c, s);
    double     z = product_of(c, s, VP_AXIS_SIZE), t = product_of(c, s, VP_AXIS_TIMES);
    int        n = FIXED;

    x[0] = 1;
    x[1] = z > 0 ? m->z_least / z : 1;
    x[2] = z * t > 0 ? m->z_least * m->t_least / (z * t) : 1;
    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_SAVES)
            x[n++] = v[a];
    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        for (int k = 1; axis->kind == VP_AXIS_PLAIN && k < axis->n && n < MAX_FEATURES; k++)
            x[n++] = v[a] == k;
    }
    return n;
}

/* Features: 1; size; whether there are several micro-steps; each axis that saves memory, and times size; a value of each
 * plain axis, and times size. */
static int bytes_features(const vp_choice *c, const models *m, int64_t s, double *x)
{
    const int *v = values_of(c, s);
    double     z = product_of(c, s, VP_AXIS_SIZE) / m->z_most;
    int        n = FIXED;

    x[0] = 1;
    x[1] = z;
    x[2] = product_of(c, s, VP_AXIS_TIMES) > 1;
    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_SAVES) {
            x[n++] = v[a];
            x[n++] = v[a] * z;
        }
    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        for (int k = 1; axis->kind == VP_AXIS_PLAIN && k < axis->n && n + 1 < MAX_FEATURES; k++) {
            x[n++] = v[a] == k;
            x[n++] = v[a] == k ? z : 0;
        }
    }
    return n;
}

static void ranges(const vp_choice *c, models *m)
{
    m->z_least = m->t_least = INFINITY;
    m->z_most               = 1e-300;
    for (int64_t s = 0; s < c->space->n; s++) {
        double z = product_of(c, s, VP_AXIS_SIZE), t = product_of(c, s, VP_AXIS_TIMES);
        m->z_least = z < m->z_least ? z : m->z_least;
        m->z_most  = z > m->z_most ? z : m->z_most;
        m->t_least = t < m->t_least ? t : m->t_least;
    }
}

static bool fit_models(const vp_choice *c, models *m)
{
    double *x = calloc((size_t)c->space->n + 1, MAX_FEATURES * sizeof *x);
    double *y = calloc((size_t)c->space->n + 1, sizeof *y);
    double  probe[MAX_FEATURES], first = 0, first_z = 1;
    int     n = 0, n_saves = 0;

    memset(m, 0, sizeof *m);
    ranges(c, m);
    if (!x || !y)
        goto out;
    m->seconds.n        = seconds_features(c, m, 0, probe);
    m->seconds.hold     = 1e-4;
    m->seconds.prior[1] = 0.1;
    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_SAVES) /* a forward again: a third more products */
            m->seconds.prior[FIXED + n_saves++] = 0.25;
    for (int64_t s = 0; s < c->space->n; s++)
        if (fits_at(c, s)) {
            seconds_features(c, m, s, x + (size_t)n * (size_t)m->seconds.n);
            y[n++] = -log(speed_of(c, s, fits_at(c, s)));
        }
    fit(&m->seconds, n, x, y);
    for (int i = 1; i < FIXED + n_saves; i++) /* as is assumed of the axes */
        if (m->seconds.weight[i] < 0)
            m->seconds.weight[i] = 0;
    n             = 0;
    m->bytes.n    = bytes_features(c, m, 0, probe);
    m->bytes.hold = 1e-4;
    for (int64_t s = 0; s < c->space->n; s++)
        if (fits_at(c, s)) {
            bytes_features(c, m, s, x + (size_t)n * (size_t)m->bytes.n);
            y[n] = (double)fits_at(c, s)->device_bytes / (double)c->budget_bytes;
            if (!n) {
                first   = y[n];
                first_z = x[(size_t)n * (size_t)m->bytes.n + 1];
            }
            n++;
        }
    m->bytes.prior[0] = n ? 0.4 * first : 0.3;
    m->bytes.prior[1] = n && first_z > 0 ? 0.6 * first / first_z : 1;
    for (int a = 0, i = FIXED + 1; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_SAVES) {
            m->bytes.prior[i] = -0.5 * m->bytes.prior[1];
            i += 2;
        }
    m->have_bytes = fit(&m->bytes, n, x, y);
    /* out of memory: more than the budget, at least; said again where the model expects less */
    for (int64_t s = 0; s < c->space->n && m->have_bytes; s++)
        if (trial_of(c, s) && trial_of(c, s)->verdict == VP_COMMAND_OOM_DEVICE) {
            double *row   = x + (size_t)n * (size_t)m->bytes.n;
            double  least = (double)trial_of(c, s)->needed_bytes / (double)c->budget_bytes;
            least         = least > 1.02 ? least : 1.02;
            bytes_features(c, m, s, row);
            if (predicted(&m->bytes, row) < least)
                y[n++] = least;
        }
    m->have_bytes = m->have_bytes && fit(&m->bytes, n, x, y);
out:
    free(x);
    free(y);
    return m->have_bytes;
}

/* Whether every value of the setting's plain and saving axes was seen to work. */
static bool all_seen(const vp_choice *c, int64_t s, bool saves_too)
{
    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        bool seen = axis->kind != VP_AXIS_PLAIN && !(saves_too && axis->kind == VP_AXIS_SAVES);
        for (int64_t t = 0; t < c->space->n && !seen; t++)
            seen = fits_at(c, t) && values_of(c, t)[a] == values_of(c, s)[a];
        if (!seen)
            return false;
    }
    return true;
}

/* Whether a running trial may soon say something of this setting. */
static bool waits_for_running(const vp_choice *c, int64_t s)
{
    for (int64_t t = 0; t < c->space->n; t++)
        if (c->state[t] == VP_SETTING_RUNNING && (needs_no_more(c, t, s) || no_slower(c, t, s)))
            return true;
    return false;
}

/* Trials of two values of an axis with all else equal. */
static bool equal_but(const vp_choice *c, int axis, int64_t t, int64_t u)
{
    const int *x = values_of(c, t), *y = values_of(c, u);
    bool       equal = true;

    for (int a = 0; a < c->space->n_axes && equal; a++)
        equal = a == axis || x[a] == y[a];
    return equal;
}

/* Whether a value of an axis was seen to need as much as another one, with all else equal: it needs so elsewhere too. */
static bool needs_as_much(const vp_choice *c, int axis, int one, int than)
{
    for (int64_t t = 0; t < c->space->n; t++)
        for (int64_t u = 0; u < c->space->n && values_of(c, t)[axis] == one; u++)
            if (values_of(c, u)[axis] == than && equal_but(c, axis, t, u) && fits_at(c, t) &&
                fits_at(c, u) &&
                (double)fits_at(c, t)->device_bytes > 0.995 * (double)fits_at(c, u)->device_bytes)
                return true;
    return false;
}

/* Whether one that differs by a value of a plain axis ran out of memory, and this value needs as much as that. */
static bool as_large_as_a_failure(const vp_choice *c, int64_t s)
{
    for (int64_t t = 0; t < c->space->n; t++) {
        if (!trial_of(c, t) || trial_of(c, t)->verdict != VP_COMMAND_OOM_DEVICE)
            continue;
        for (int a = 0; a < c->space->n_axes; a++)
            if (c->space->axes[a].kind == VP_AXIS_PLAIN &&
                values_of(c, t)[a] != values_of(c, s)[a] && needs_no_more_but(c, t, s, a) &&
                needs_as_much(c, a, values_of(c, s)[a], values_of(c, t)[a]))
                return true;
    }
    return false;
}

int64_t vp_choice_next(vp_choice *c, char *rulings)
{
    models m;
    double x[MAX_FEATURES], best_seconds = INFINITY, chosen_seconds = INFINITY,
                            chosen_bytes = INFINITY;
    int64_t chosen                       = -1;

    if (!fit_models(c, &m))
        return -1;
    if (c->best >= 0)
        best_seconds = -log(vp_choice_speed(c, c->best));
    for (int64_t s = 0; s < c->space->n; s++) {
        if (c->state[s] != VP_SETTING_UNTRIED)
            continue;
        vp_ruling ruling = ruled_by_trials(c, s);
        double    seconds, bytes;

        seconds_features(c, &m, s, x);
        seconds = predicted(&m.seconds, x);
        bytes_features(c, &m, s, x);
        bytes     = predicted(&m.bytes, x);
        bool seen = all_seen(c, s, false);
        if (ruling == VP_RULED_NOT && seen && c->best >= 0 && seconds > best_seconds + margin)
            ruling = VP_RULED_EXPECTED_SLOWER;
        /* an expectation does not show that nothing fits: until something does, play it */
        if (ruling == VP_RULED_NOT && c->best >= 0 &&
            ((all_seen(c, s, true) && bytes > far_too_large) || as_large_as_a_failure(c, s)))
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
    return chosen;
}

/* Whether two values of an axis were tried with all else equal. */
static bool compared(const vp_choice *c, int axis, int one, int other)
{
    for (int64_t t = 0; t < c->space->n; t++)
        for (int64_t u = 0; u < c->space->n && values_of(c, t)[axis] == one; u++)
            if (values_of(c, u)[axis] == other && equal_but(c, axis, t, u) && fits_at(c, t) &&
                fits_at(c, u))
                return true;
    return false;
}

/* Whether the trials leave no doubt that a neighbour is slower: all its values were seen, and they expect it clearly so. */
static bool clearly_slower(const vp_choice *c, const models *m, int64_t s)
{
    double x[MAX_FEATURES];

    seconds_features(c, m, s, x);
    return all_seen(c, s, true) &&
           predicted(&m->seconds, x) > -log(vp_choice_speed(c, c->best)) + clear_margin;
}

/* Whether s is a neighbour of the best one: one step along the axes of which something is assumed, or another value of a plain
 * one that was never compared with its own. */
static bool is_neighbour(const vp_choice *c, int64_t s, const models *m)
{
    const int *v = values_of(c, s), *b = values_of(c, c->best);
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
    double all_s = product_of(c, s, VP_AXIS_SIZE) * product_of(c, s, VP_AXIS_TIMES);
    double all_b = product_of(c, c->best, VP_AXIS_SIZE) * product_of(c, c->best, VP_AXIS_TIMES);
    bool   same_times = product_of(c, s, VP_AXIS_TIMES) == product_of(c, c->best, VP_AXIS_TIMES);

    if (steps == 1)
        return !others && (all_s == all_b || same_times) && !clearly_slower(c, m, s);
    return !steps && others == 1 && same_times && !compared(c, other, v[other], b[other]);
}

int64_t vp_choice_neighbour(vp_choice *c)
{
    models m;

    if (c->best < 0 || !fit_models(c, &m))
        return -1;
    for (int64_t s = 0; s < c->space->n; s++) {
        if (c->state[s] != VP_SETTING_UNTRIED || !is_neighbour(c, s, &m) ||
            as_large_as_a_failure(c, s))
            continue;
        vp_ruling ruling = ruled_by_trials(c, s);
        if (ruling != VP_RULED_MEMORY && ruling != VP_RULED_NO_USE)
            return s;
    }
    return -1;
}
