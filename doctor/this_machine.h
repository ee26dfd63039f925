/* doctor/this_machine.h: what of this machine's memory a training would find, who holds its cards, and what is odd.
 *     vp_machine *m;
 *     VP_TRY(vp_machine_read(arena, "", &m, err));
 *     m->n_cards, m->holders[0].pid, m->odd[0].text
 *
 * Asks NVML where the driver has it, and /proc; changes and ends nothing. No GPU is an answer. */
#ifndef VP_DOCTOR_THIS_MACHINE_H
#define VP_DOCTOR_THIS_MACHINE_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { VP_MAX_MACHINE_CARDS = 32, VP_MAX_HOLDERS = 64, VP_MAX_ODD = 16 };

/* A process that has a card open. */
typedef struct vp_holder {
    int         card;       /* -1: not known */
    int64_t     pid, bytes; /* bytes -1: not told */
    const char *name;       /* "" where it is another's to see */
} vp_holder;

typedef struct vp_machine {
    struct {
        const char *product;
        int64_t     total_bytes, free_bytes, used_bytes;
        int64_t     unseen_bytes; /* used, and no process that can be seen holds it */
    } cards[VP_MAX_MACHINE_CARDS];
    int       n_cards;
    vp_holder holders[VP_MAX_HOLDERS];
    int       n_holders;
    int64_t   n_hidden; /* processes whose open files may not be looked at */

    /* -1: not known, or no limit */
    int64_t host_total_bytes, host_available_bytes;
    int64_t group_limit_bytes, group_used_bytes;     /* of the container or job (cgroup) */
    int64_t shm_bytes, shm_free_bytes;               /* /dev/shm */
    int64_t locked_limit_bytes, address_limit_bytes; /* ulimit -l, -v */

    struct {
        const char *text, *instead;
    } odd[VP_MAX_ODD];
    int n_odd;
} vp_machine;

/* root stands before every path that is looked at: "" for this machine. */
vp_status vp_machine_read(vp_arena *arena, const char *root, vp_machine **out, vp_err *err);

#endif
