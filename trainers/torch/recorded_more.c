/* What a recorded allocation stands for where a tower looks at one window or picture after the other: as many of it as there are. */
#include "trainers/torch/recording_internal.h"

#include "base/checked.h"

#include <stdlib.h>

enum { LEAST_ROWS = 512 }; /* bytes; smaller ones are no rows but seeds, the same of each window */

/* Recorded are whole windows; those at the right and lower sides of a picture may be smaller. */
static int64_t bytes_of_window(const vp_symbols *s, int64_t bytes, int64_t y, int64_t x)
{
    int64_t side = s->at[VP_SYM_iw], whole = side * side;
    int64_t tokens =
        vp_min_i64(side, s->at[VP_SYM_ih] - y) * vp_min_i64(side, s->at[VP_SYM_ix] - x);

    return bytes < LEAST_ROWS || !whole ? bytes : bytes / whole * tokens;
}

int64_t vp_recorded_first_bytes(const vp_recorded *s, const slot *x, int64_t bytes)
{
    return x->tile == 'w' ? bytes_of_window(s->symbols, bytes, 0, 0) : bytes;
}

static vp_status take(vp_recorded *s, const slot *x, int64_t bytes, int64_t place, vp_err *err)
{
    if (s->n_more == s->cap_more) {
        int64_t           cap  = s->cap_more ? 2 * s->cap_more : 256;
        vp_recorded_more *more = realloc(s->more, (size_t)cap * sizeof *more);
        if (!more)
            return VP_FAIL(err, VP_ERR_NOMEM, "out of host memory");
        s->more     = more;
        s->cap_more = cap;
    }
    s->more[s->n_more] = (vp_recorded_more){.place = place};
    return vp_ledger_alloc(s->ledger, x->owner, bytes, &s->more[s->n_more++].block, err);
}

static vp_status take_windows(vp_recorded *s, const slot *x, int64_t bytes, int64_t place,
                              int64_t picture, vp_err *err)
{
    const int64_t *at   = s->symbols->at;
    int64_t        side = at[VP_SYM_iw];
    vp_status      st   = VP_OK;

    for (int64_t high = 0; side && high < at[VP_SYM_ih]; high += side)
        for (int64_t wide = 0; wide < at[VP_SYM_ix]; wide += side)
            if (picture || high || wide)
                VP_TRY(take(s, x, bytes_of_window(s->symbols, bytes, high, wide), place, err));
out:
    return st;
}

vp_status vp_recorded_take_more(vp_recorded *s, const slot *x, int64_t bytes, int64_t place,
                                vp_err *err)
{
    vp_status st = VP_OK;

    for (int64_t picture = 0; picture < s->symbols->at[VP_SYM_im]; picture++)
        if (x->tile == 'w')
            VP_TRY(take_windows(s, x, bytes, place, picture, err));
        else if (picture)
            VP_TRY(take(s, x, bytes, place, err));
out:
    return st;
}

void vp_recorded_let_go(vp_recorded *s, int64_t place)
{
    int64_t kept = 0;

    vp_ledger_free(s->ledger, &s->blocks[place]);
    for (int64_t i = 0; i < s->n_more; i++)
        if (s->more[i].place == place)
            vp_ledger_free(s->ledger, &s->more[i].block);
        else
            s->more[kept++] = s->more[i];
    s->n_more = kept;
}
