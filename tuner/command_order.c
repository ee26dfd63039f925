/* tuner/command_order.c: which of two settings needs no more, and which is no slower, by what is assumed of axes; what trials
 * say against it; and what follows for bytes. */
#include "tuner/command_internal.h"

#include <math.h>
#include <stdlib.h>

/* Two that a trial's clock tells apart. */
static const double same_s = 1e-6;
/* Peaks that are taken to be the same: what an allocator rounds. */
static const double same_bytes = 1e-3;

const vp_command_trial *vp_choice_trial(const vp_choice *c, int64_t setting)
{
    return c->state[setting] == VP_SETTING_DONE ? &c->settings[setting].trial : NULL;
}

/* ---- the two orders ---- */

/* The kind of an axis, of an order that trials have spoken against: nothing is assumed. */
static vp_axis_kind kind_in(const vp_choice *c, int axis, const char *against)
{
    return against[axis] ? VP_AXIS_PLAIN : c->space->axes[axis].kind;
}

bool vp_choice_needs_no_more_but(const vp_choice *c, int64_t t, int64_t s, int but)
{
    const int *x = vp_choice_values(c, t), *y = vp_choice_values(c, s);

    for (int a = 0; a < c->space->n_axes; a++) {
        const vp_axis *axis = &c->space->axes[a];
        vp_axis_kind   kind = kind_in(c, a, c->memory_against);
        if (a == but)
            continue;
        if ((kind == VP_AXIS_PLAIN && x[a] != y[a]) || (kind == VP_AXIS_SIZE && x[a] > y[a]) ||
            ((kind == VP_AXIS_SAVES || kind == VP_AXIS_PACKS || kind == VP_AXIS_BETTER) &&
             x[a] < y[a]) ||
            (kind == VP_AXIS_TIMES && vp_axis_number(axis, x[a]) > 1 &&
             vp_axis_number(axis, y[a]) <= 1))
            return false;
    }
    return true;
}

bool vp_choice_needs_no_more(const vp_choice *c, int64_t t, int64_t s)
{
    return vp_choice_needs_no_more_but(c, t, s, -1);
}

bool vp_choice_no_slower(const vp_choice *c, int64_t t, int64_t s)
{
    const int *x = vp_choice_values(c, t), *y = vp_choice_values(c, s);
    bool       same_times = true;

    for (int a = 0; a < c->space->n_axes; a++) {
        vp_axis_kind kind = kind_in(c, a, c->speed_against);
        if ((kind == VP_AXIS_PLAIN && x[a] != y[a]) ||
            ((kind == VP_AXIS_SIZE || kind == VP_AXIS_BETTER) && x[a] < y[a]) ||
            (kind == VP_AXIS_SAVES && x[a] > y[a]))
            return false;
        same_times = same_times && (kind != VP_AXIS_TIMES || x[a] == y[a]);
    }
    return same_times ||
           vp_choice_product(c, t, VP_AXIS_SIZE) * vp_choice_product(c, t, VP_AXIS_TIMES) ==
               vp_choice_product(c, s, VP_AXIS_SIZE) * vp_choice_product(c, s, VP_AXIS_TIMES);
}

/* ---- what speaks against them ---- */

/* Whether t, of which it is assumed that it needs no more than u, was seen to need more. */
static bool needs_more_after_all(const vp_command_trial *t, const vp_command_trial *u)
{
    if (u->verdict != VP_COMMAND_OK)
        return false;
    return t->verdict == VP_COMMAND_OOM_DEVICE ||
           (t->verdict == VP_COMMAND_OK && t->allocated_bytes > 0 && u->allocated_bytes > 0 &&
            (double)t->allocated_bytes > (1 + same_bytes) * (double)u->allocated_bytes);
}

/* Nothing is assumed any more of the axes in which two differ, of which something was. Whether there was one that had not been
 * spoken against. */
static bool speak_against(const vp_choice *c, char *against, int64_t t, int64_t u)
{
    const int *x = vp_choice_values(c, t), *y = vp_choice_values(c, u);
    bool new = false;

    for (int a = 0; a < c->space->n_axes; a++) {
        vp_axis_kind kind = kind_in(c, a, against);
        if (x[a] != y[a] && kind != VP_AXIS_PLAIN && kind != VP_AXIS_TIMES) {
            against[a] = 1;
            new        = true;
        }
    }
    return new;
}

void vp_choice_doubt(vp_choice *c)
{
    bool again = true;

    c->n_known = 0;
    for (int64_t t = 0; t < c->space->n; t++)
        if (vp_choice_trial(c, t) || vp_choice_fits_at(c, t))
            c->known[c->n_known++] = t;
    for (int a = 0; a < c->space->n_axes; a++)
        c->memory_against[a] = c->speed_against[a] = 0;
    while (again) { /* each time one axis at least */
        again = false;
        for (int64_t i = 0; i < c->n_known && !again; i++)
            for (int64_t k = 0; k < c->n_known && !again; k++) {
                int64_t                 t = c->known[i], u = c->known[k];
                const vp_command_trial *one = vp_choice_trial(c, t), *other = vp_choice_trial(c, u);
                if (t == u || !one || !other)
                    continue;
                if (vp_choice_needs_no_more(c, t, u) && needs_more_after_all(one, other))
                    again = speak_against(c, c->memory_against, t, u);
                if (!again && one->verdict == VP_COMMAND_OK && other->verdict == VP_COMMAND_OK &&
                    vp_choice_no_slower(c, t, u) &&
                    vp_choice_speed(c, t) < (1 - same_s) * vp_choice_speed(c, u))
                    again = speak_against(c, c->speed_against, t, u);
            }
    }
}

/* ---- how bytes grow ---- */

/* Whether two settings differ in one size alone, and in how often: not in whether there are several. *axis: which. */
static bool differ_in_size(const vp_choice *c, int64_t t, int64_t u, int *axis)
{
    const int *x = vp_choice_values(c, t), *y = vp_choice_values(c, u);
    int        n = 0;

    for (int a = 0; a < c->space->n_axes; a++) {
        vp_axis_kind kind = kind_in(c, a, c->memory_against);
        if (x[a] == y[a])
            continue;
        if (kind == VP_AXIS_SIZE)
            n++, *axis = a;
        else if (kind != VP_AXIS_TIMES || (vp_axis_number(&c->space->axes[a], x[a]) > 1) !=
                                              (vp_axis_number(&c->space->axes[a], y[a]) > 1))
            return false;
    }
    return n == 1;
}

static double size_at(const vp_choice *c, int axis, int64_t setting)
{
    return vp_axis_number(&c->space->axes[axis], vp_choice_values(c, setting)[axis]);
}

/* What a trial needs at once of the card: all of it where it fits, as much at least where it ran out of memory. 0: not known. */
static double needed_at(const vp_choice *c, int64_t setting)
{
    const vp_command_trial *fits = vp_choice_fits_at(c, setting), *t = vp_choice_trial(c, setting);

    if (fits && fits->allocated_bytes > 0)
        return (double)(fits->device_bytes - fits->reserved_bytes + fits->allocated_bytes);
    return t && t->verdict == VP_COMMAND_OOM_DEVICE ? (double)t->needed_bytes : 0;
}

/* Bytes that a sample more was seen to take at least, along a size, in settings that need no more than t: what is allocated
 * at the peak is the most of several moments, of which each goes with the size, so it grows by no less where there is more. */
static double growth_at(const vp_choice *c, int axis, int64_t t)
{
    double most  = 0;
    int    along = -1;

    for (int64_t i = 0; i < c->n_known; i++) {
        int64_t p   = c->known[i];
        double  one = needed_at(c, p);
        if (!(one > 0) || !vp_choice_needs_no_more(c, p, t))
            continue;
        for (int64_t k = 0; k < c->n_known; k++) {
            int64_t                 q     = c->known[k];
            const vp_command_trial *other = vp_choice_fits_at(c, q);
            if (!other || other->allocated_bytes <= 0 || !differ_in_size(c, p, q, &along) ||
                along != axis || size_at(c, axis, q) >= size_at(c, axis, p))
                continue;
            double grows = (one - needed_at(c, q)) / (size_at(c, axis, p) - size_at(c, axis, q));
            most         = grows > most ? grows : most;
        }
    }
    return most;
}

/* What t holds between its steps, or one that fits and differs from it in a size alone; 0: not known. */
static double held_at(const vp_choice *c, int64_t t)
{
    const vp_command_trial *trial = vp_choice_fits_at(c, t);
    double                  held  = trial ? (double)trial->held_bytes : 0;
    int                     along;

    for (int64_t i = 0; i < c->n_known && !trial; i++) {
        const vp_command_trial *like = vp_choice_fits_at(c, c->known[i]);
        if (like && differ_in_size(c, t, c->known[i], &along) && (double)like->held_bytes > held)
            held = (double)like->held_bytes;
    }
    return held;
}

/* The axis that says how often, where t does so several times and s once, and t needs no more but for that; -1: it does not. */
static int several_for_one(const vp_choice *c, int64_t t, int64_t s)
{
    for (int a = 0; a < c->space->n_axes; a++)
        if (c->space->axes[a].kind == VP_AXIS_TIMES && !vp_choice_needs_no_more(c, t, s) &&
            vp_choice_needs_no_more_but(c, t, s, a))
            return a;
    return -1;
}

/* Several micro-steps hold gradients beside what one does: these are no more than what is held between steps. */
double vp_choice_least_bytes(const vp_choice *c, int64_t s)
{
    double most = 0;

    for (int64_t i = 0; i < c->n_known; i++) {
        int64_t t     = c->known[i];
        double  bytes = needed_at(c, t), held = held_at(c, t);
        bool    fewer = several_for_one(c, t, s) >= 0 && held > 0;
        if (!(bytes > 0) || (!fewer && !vp_choice_needs_no_more(c, t, s)))
            continue;
        bytes -= fewer ? held : 0;
        for (int a = 0; a < c->space->n_axes; a++)
            if (kind_in(c, a, c->memory_against) == VP_AXIS_SIZE &&
                size_at(c, a, s) > size_at(c, a, t))
                bytes += growth_at(c, a, t) * (size_at(c, a, s) - size_at(c, a, t));
        most = bytes > most ? bytes : most;
    }
    return most;
}

double vp_choice_grown_bytes(const vp_choice *c, int64_t s)
{
    double bytes = 0, nearest = INFINITY;
    int    along = -1, other = -1;

    for (int64_t i = 0; i < c->n_known; i++)
        for (int64_t k = 0; k < c->n_known; k++) {
            int64_t t = c->known[i], u = c->known[k];
            if (t == s || u == t || u == s || !vp_choice_fits_at(c, t) ||
                !vp_choice_fits_at(c, u) || !differ_in_size(c, t, s, &along) ||
                !differ_in_size(c, t, u, &other) || along != other)
                continue;
            double z = size_at(c, along, s), x = size_at(c, along, t), y = size_at(c, along, u);
            double far = fabs(z - x) + 0.5 * fabs(z - y);
            double one = (double)vp_choice_fits_at(c, t)->device_bytes,
                   two = (double)vp_choice_fits_at(c, u)->device_bytes;
            if (far < nearest) {
                nearest = far;
                bytes   = one + (one - two) / (x - y) * (z - x);
            }
        }
    return bytes;
}
