/* tuner/command_model.c: what the trials so far say of the seconds and bytes of settings that were not tried. */
#include "tuner/command_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether an axis' values are told apart one by one. */
static bool is_plain(vp_axis_kind kind)
{
    return kind == VP_AXIS_PLAIN || kind == VP_AXIS_BETTER;
}

const int *vp_choice_values(const vp_choice *c, int64_t setting)
{
    return c->space->values + setting * c->space->n_axes;
}

double vp_choice_product(const vp_choice *c, int64_t setting, vp_axis_kind kind)
{
    const int *v = vp_choice_values(c, setting);
    double     x = 1;

    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == kind)
            x *= vp_axis_number(&c->space->axes[a], v[a]);
    return x;
}

const vp_command_trial *vp_choice_fits_at(const vp_choice *c, int64_t setting)
{
    const vp_command_trial *t =
        c->state[setting] == VP_SETTING_DONE ? &c->settings[setting].trial : NULL;

    if (!t && setting == c->near)
        t = c->near_trial;
    return t && t->verdict == VP_COMMAND_OK ? t : NULL;
}

static double speed_of(const vp_choice *c, int64_t setting, const vp_command_trial *t)
{
    double z = vp_choice_product(c, setting, VP_AXIS_SIZE);

    if (t->samples_per_s > 0)
        return t->samples_per_s;
    if (t->step_s > 0)
        return z * vp_choice_product(c, setting, VP_AXIS_TIMES) / t->step_s;
    return 1e-9 * z; /* no seconds: the more at once, the better */
}

double vp_choice_speed(const vp_choice *c, int64_t setting)
{
    return speed_of(c, setting, &c->settings[setting].trial);
}

/* ---- least squares that are held to a prior ---- */

/* (A + hold) (w - prior) = b, A = sum x x^T, b = sum x (y - x prior); by elimination. */
static bool fit(vp_linear *m, int n_rows, const double *x, const double *y)
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
        a[i * (n + 1) + i] +=
            i ? m->hold[i] : 1e-4 * m->hold[i]; /* the first: what all have in common */
    for (int i = 0; i < n; i++)                 /* positive definite: no pivots are needed */
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

static double predicted(const vp_linear *m, const double *x)
{
    double y = 0;

    for (int i = 0; i < m->n; i++)
        y += m->weight[i] * x[i];
    return y;
}

/* ---- seconds: what the host and the card have to do for a micro-step, and for the optimizer ---- */

/* Features of a part's logarithm: 1; each axis that saves memory; a value of each plain axis. */
static int part_features(const vp_choice *c, int64_t s, double *x)
{
    const int *v = vp_choice_values(c, s);
    int        n = 1;

    x[0] = 1;
    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_SAVES)
            x[n++] = v[a];
    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        for (int k = 1; is_plain(axis->kind) && k < axis->n && n < VP_MAX_FEATURES; k++)
            x[n++] = v[a] == k;
    }
    return n;
}

static double micro_steps(const vp_choice *c, int64_t s)
{
    double t = vp_choice_product(c, s, VP_AXIS_TIMES);

    return t > 1 ? t : 1;
}

static double step_of(const vp_choice *c, int64_t s, const vp_command_trial *t)
{
    double all = vp_choice_product(c, s, VP_AXIS_SIZE) * micro_steps(c, s);

    return t->step_s > 0 ? t->step_s : (all > 0 ? all : 1) / speed_of(c, s, t);
}

/* A trial's parts. Where nobody parted its seconds they are the host's: nothing is known of how they grow. */
static void parts_of(const vp_choice *c, int64_t s, const vp_command_trial *t,
                     double parts[VP_N_PARTS])
{
    double n = micro_steps(c, s);

    parts[VP_PART_HOST]           = (t->host_s - t->optimizer_host_s) / n;
    parts[VP_PART_CARD]           = (t->card_s - t->optimizer_card_s) / n;
    parts[VP_PART_OPTIMIZER_HOST] = t->optimizer_host_s;
    parts[VP_PART_OPTIMIZER_CARD] = t->optimizer_card_s;
    if (!(t->host_s > 0) && !(t->card_s > 0))
        parts[VP_PART_HOST] = step_of(c, s, t) / n;
}

double vp_models_micro_host(const vp_choice *c, int64_t setting)
{
    const vp_command_trial *t = vp_choice_fits_at(c, setting);
    double                  parts[VP_N_PARTS];

    if (!t || !(t->host_s > 0))
        return 0;
    parts_of(c, setting, t, parts);
    return parts[VP_PART_HOST];
}

/* The card's part of a micro-step of size z is taken to be (z + rest): products are more than their size by what each
 * launch and each reading of the weights takes. */
static double size_of(const vp_choice *c, const vp_models *m, int64_t s, int part)
{
    return part == VP_PART_CARD ? vp_choice_product(c, s, VP_AXIS_SIZE) + m->rest : 1;
}

/* A value that is assumed to be no slower is not expected to be. Whether one was. */
static bool hold_in_order(const vp_choice *c, vp_linear *l)
{
    bool held = false;
    int  i    = 1;

    for (int a = 0; a < c->space->n_axes; a++)
        i += c->space->axes[a].kind == VP_AXIS_SAVES;
    for (int a = 0; a < c->space->n_axes; a++)
        for (int k = 1; is_plain(c->space->axes[a].kind) && k < c->space->axes[a].n && i < l->n;
             k++, i++)
            if (c->space->axes[a].kind == VP_AXIS_BETTER && !c->speed_against[a] &&
                l->weight[i] > 0) {
                l->hold[i] = 1e9;
                held       = true;
            }
    return held;
}

/* Fit a part with m->rest; the sum of squares that is left, with what its weights are off their priors. */
static double fit_part(const vp_choice *c, vp_models *m, int part, double *x, double *y)
{
    vp_linear *l    = &m->parts[part];
    double     left = 0, probe[VP_MAX_FEATURES], parts[VP_N_PARTS];
    int        n = 0, i = 1;

    memset(l, 0, sizeof *l);
    l->n = part_features(c, 0, probe);
    for (int k = 0; k < l->n; k++)
        l->hold[k] = 1e-3;
    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_SAVES) { /* a forward again: a third more */
            l->prior[i]  = part == VP_PART_HOST || part == VP_PART_CARD ? 0.25 : 0;
            l->hold[i++] = 0.05;
        }
    for (int64_t s = 0; s < c->space->n; s++) {
        const vp_command_trial *t = vp_choice_fits_at(c, s);
        if (!t)
            continue;
        parts_of(c, s, t, parts);
        if (!(parts[part] > 0) || !(size_of(c, m, s, part) > 0))
            continue;
        part_features(c, s, x + (size_t)n * (size_t)l->n);
        y[n++] = log(parts[part] / size_of(c, m, s, part));
    }
    m->has[part] = n > 0 && fit(l, n, x, y);
    if (m->has[part] && hold_in_order(c, l))
        m->has[part] = fit(l, n, x, y);
    for (int r = 0; m->has[part] && r < n; r++) {
        double off = y[r] - predicted(l, x + (size_t)r * (size_t)l->n);
        left += off * off;
    }
    for (int k = 1; m->has[part] && k < l->n; k++)
        left += l->hold[k] * (l->weight[k] - l->prior[k]) * (l->weight[k] - l->prior[k]);
    return left;
}

/* What is left of the card's part with this rest. */
static double left_with(const vp_choice *c, vp_models *m, double rest, double *x, double *y)
{
    const double usual_rest = 4; /* where one size alone was seen: more at once is worth a trial */

    m->rest = rest * m->z_least;
    return fit_part(c, m, VP_PART_CARD, x, y) + 1e-7 * fabs(rest - usual_rest);
}

static void fit_seconds(const vp_choice *c, vp_models *m, double *x, double *y)
{
    static const double rests[] = {0, 0.125, 0.25, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24};
    const size_t        n       = sizeof rests / sizeof *rests;
    double              least   = INFINITY;
    size_t              best    = 0;

    for (int part = 0; part < VP_N_PARTS; part++)
        if (part != VP_PART_CARD)
            fit_part(c, m, part, x, y);
    for (size_t i = 0; i < n; i++) {
        double left = left_with(c, m, rests[i], x, y);
        if (left < least) {
            least = left;
            best  = i;
        }
    }
    double low = rests[best ? best - 1 : 0], high = rests[best + 1 < n ? best + 1 : best];
    for (int i = 0; i < 20; i++) { /* thirds: 20 leave 3e-4 of what lay between */
        double one = low + (high - low) / 3, other = high - (high - low) / 3;
        if (left_with(c, m, one, x, y) < left_with(c, m, other, x, y))
            high = other;
        else
            low = one;
    }
    left_with(c, m, (low + high) / 2, x, y);
}

/* Seconds of a step by its parts: the host's or the card's, whichever is more, and how the two compare. */
static double by_parts(double n, const double parts[VP_N_PARTS], double *card_to_host)
{
    double host = n * parts[VP_PART_HOST] + parts[VP_PART_OPTIMIZER_HOST];
    double card = n * parts[VP_PART_CARD] + parts[VP_PART_OPTIMIZER_CARD];

    *card_to_host = log((card + 1e-12) / (host + 1e-12));
    return host > card ? host : card;
}

/* A step takes more than the longer of the two where the one waits for the other: by as much as in the trial in which
 * they compared most alike. */
static double waits(const vp_choice *c, double card_to_host)
{
    double nearest = INFINITY, factor = 1, parts[VP_N_PARTS], ratio;

    for (int64_t i = 0; i < c->n_known; i++) {
        int64_t                 s = c->known[i];
        const vp_command_trial *t = vp_choice_fits_at(c, s);
        if (!t)
            continue;
        parts_of(c, s, t, parts);
        double longer = by_parts(micro_steps(c, s), parts, &ratio);
        if (longer > 0 && fabs(ratio - card_to_host) < nearest) {
            nearest = fabs(ratio - card_to_host);
            factor  = step_of(c, s, t) / longer;
        }
    }
    return factor;
}

/* Samples in what the axes call a step, as the trial says that is nearest in size. */
static double samples_of(const vp_choice *c, int64_t setting)
{
    const int *v       = vp_choice_values(c, setting);
    double     samples = 1;
    int        nearest = 1 << 30;

    for (int64_t i = 0; i < c->n_known; i++) {
        int64_t                 s   = c->known[i];
        const vp_command_trial *t   = vp_choice_fits_at(c, s);
        int                     far = 0;
        for (int a = 0; a < c->space->n_axes; a++)
            if (c->space->axes[a].kind == VP_AXIS_SIZE)
                far += abs(v[a] - vp_choice_values(c, s)[a]);
        if (t && far < nearest) {
            nearest = far;
            samples = speed_of(c, s, t) * step_of(c, s, t) /
                      (vp_choice_product(c, s, VP_AXIS_SIZE) * micro_steps(c, s));
        }
    }
    return samples * vp_choice_product(c, setting, VP_AXIS_SIZE) * micro_steps(c, setting);
}

double vp_models_seconds(const vp_choice *c, const vp_models *m, int64_t s)
{
    double parts[VP_N_PARTS] = {0}, x[VP_MAX_FEATURES], ratio;

    part_features(c, s, x);
    for (int part = 0; part < VP_N_PARTS; part++)
        if (m->has[part])
            parts[part] = exp(predicted(&m->parts[part], x)) * size_of(c, m, s, part);
    double step = by_parts(micro_steps(c, s), parts, &ratio);
    return log(step * waits(c, ratio) / samples_of(c, s));
}

/* ---- bytes ---- */

enum { FIXED = 3 };

/* Features, of a share of the size: 1; size; whether there are several micro-steps; each axis that saves memory, and times size; a value of each
 * plain axis, and times size. */
static int bytes_features(const vp_choice *c, const vp_models *m, int64_t s, double share,
                          double *x)
{
    const int *v = vp_choice_values(c, s);
    double     z = share * vp_choice_product(c, s, VP_AXIS_SIZE) / m->z_most;
    int        n = FIXED;

    x[0] = 1;
    x[1] = z;
    x[2] = vp_choice_product(c, s, VP_AXIS_TIMES) > 1;
    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_SAVES) {
            x[n++] = v[a];
            x[n++] = v[a] * z;
        }
    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        for (int k = 1; is_plain(axis->kind) && k < axis->n && n + 1 < VP_MAX_FEATURES; k++) {
            x[n++] = v[a] == k;
            x[n++] = v[a] == k ? z : 0;
        }
    }
    return n;
}

double vp_models_bytes(const vp_choice *c, const vp_models *m, int64_t s)
{
    double x[VP_MAX_FEATURES];

    bytes_features(c, m, s, 1, x);
    return predicted(&m->bytes, x);
}

/* Bytes that a trial has between steps, with those outside the allocator: what does not go with size, but for gradients. */
static double between_steps(const vp_command_trial *t)
{
    return (double)(t->device_bytes - t->allocated_bytes + t->held_bytes);
}

/* What is taken of them before anything was seen, from the first trial that fits. */
static void bytes_prior(const vp_choice *c, vp_models *m, const vp_command_trial *first, double z)
{
    double all = first ? (double)first->device_bytes / (double)c->budget_bytes : 0.9;
    double held =
        first && first->held_bytes > 0 ? between_steps(first) / (double)c->budget_bytes : 0.4 * all;
    int i = FIXED + 1;

    m->bytes.prior[0] = held;
    m->bytes.prior[1] = first && z > 0 ? (all - held) / z : 1;
    for (int k = 0; k < m->bytes.n; k++) /* most of it goes with size; the rest is a correction */
        m->bytes.hold[k] = k < 2 ? 1e-4 : 1e-2;
    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_SAVES) {
            m->bytes.prior[i] = -0.5 * m->bytes.prior[1];
            m->bytes.hold[i]  = 1e-3;
            i += 2;
        }
}

/* Rows of the trials that fit; of each also one, which counts less, of what it would have with nothing in its batch. */
static int rows_that_fit(const vp_choice *c, const vp_models *m, double *x, double *y)
{
    const double weight = 0.1;
    int          n = 0, n_features = m->bytes.n;

    for (int64_t s = 0; s < c->space->n; s++) {
        const vp_command_trial *t   = vp_choice_fits_at(c, s);
        double                 *row = x + (size_t)n * (size_t)n_features;
        if (!t)
            continue;
        bytes_features(c, m, s, 1, row);
        y[n++] = (double)t->device_bytes / (double)c->budget_bytes;
        if (t->held_bytes <= 0)
            continue;
        row += n_features;
        bytes_features(c, m, s, 0, row);
        for (int k = 0; k < n_features; k++)
            row[k] *= weight;
        y[n++] = weight * between_steps(t) / (double)c->budget_bytes;
    }
    return n;
}

static bool fit_bytes(const vp_choice *c, vp_models *m, double *x, double *y)
{
    const vp_command_trial *first = NULL;
    double                  probe[VP_MAX_FEATURES], z = 0;

    m->bytes.n = bytes_features(c, m, 0, 1, probe);
    for (int64_t s = 0; s < c->space->n && !first; s++) {
        first = vp_choice_fits_at(c, s);
        z     = vp_choice_product(c, s, VP_AXIS_SIZE) / m->z_most;
    }
    bytes_prior(c, m, first, z);
    int  n    = rows_that_fit(c, m, x, y);
    bool done = fit(&m->bytes, n, x, y);
    /* out of memory: more than the budget, at least; said again where the model expects less */
    for (int64_t s = 0; s < c->space->n && done; s++) {
        const vp_command_trial *t = &c->settings[s].trial;
        if (c->state[s] != VP_SETTING_DONE || t->verdict != VP_COMMAND_OOM_DEVICE)
            continue;
        double *row   = x + (size_t)n * (size_t)m->bytes.n;
        double  least = (double)t->needed_bytes / (double)c->budget_bytes;
        least         = least > 1.02 ? least : 1.02;
        bytes_features(c, m, s, 1, row);
        if (predicted(&m->bytes, row) < least)
            y[n++] = least;
    }
    return done && fit(&m->bytes, n, x, y);
}

bool vp_models_fit(const vp_choice *c, vp_models *m)
{
    double *x    = calloc(2 * (size_t)c->space->n + 1, VP_MAX_FEATURES * sizeof *x);
    double *y    = calloc(2 * (size_t)c->space->n + 1, sizeof *y);
    bool    done = x && y;

    memset(m, 0, sizeof *m);
    m->z_least = INFINITY;
    m->z_most  = 1e-300;
    for (int64_t s = 0; s < c->space->n; s++) {
        double z   = vp_choice_product(c, s, VP_AXIS_SIZE);
        m->z_least = z < m->z_least ? z : m->z_least;
        m->z_most  = z > m->z_most ? z : m->z_most;
    }
    if (done) {
        fit_seconds(c, m, x, y);
        done = fit_bytes(c, m, x, y);
    }
    free(x);
    free(y);
    return done;
}
