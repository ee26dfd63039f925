/* base/beside.h: work that a second core may do, where there is one.
 *     vp_beside other;
 *     vp_beside_offer(&other, count, &halves[1]);
 *     count(&halves[0]);
 *     vp_beside_finish(&other);
 *
 * What comes out must not depend on who does it, nor when: the two share nothing that either writes. Work may offer
 * work itself. Two threads do all that is offered: one of its own, which takes the oldest offer and is there as long
 * as there are any, and whoever waits for it, who takes the latest. */
#ifndef VP_BASE_BESIDE_H
#define VP_BASE_BESIDE_H

#include <stdbool.h>

typedef struct vp_beside {
    void (*work)(void *);
    void             *with;
    struct vp_beside *older, *newer; /* that nobody has begun */
    enum { VP_BESIDE_OWN, VP_BESIDE_OFFERED, VP_BESIDE_BEGUN, VP_BESIDE_DONE } state;
} vp_beside;

/* From now on work(with) may be begun beside; never, where the process may use one core, or can have no thread. No signal
 * is handled there. It stays where it is until it is finished, or taken back. */
void vp_beside_offer(vp_beside *beside, void (*work)(void *), void *with);

/* True: nobody has begun it, nor will. False: vp_beside_finish() it. */
bool vp_beside_take_back(vp_beside *beside);

/* Returns when it is done: what nobody has begun is done here. */
void vp_beside_finish(vp_beside *beside);

#endif
