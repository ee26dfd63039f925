/* trainers/fit/sayable.h: which settings a target's files have words for, for searches that ask for the same ones again, from several
 * threads if they like.
 *     vp_sayable *sayable = vp_sayable_new();
 *     if (vp_sayable_holds(sayable, target, &settings, &why)) ... they are written, without their texts, the first time
 *     vp_sayable_free(sayable); */
#ifndef VP_TRAINERS_FIT_SAYABLE_H
#define VP_TRAINERS_FIT_SAYABLE_H

#include "trainers/files/emit.h"

typedef struct vp_sayable vp_sayable;

/* NULL: out of memory. */
vp_sayable *vp_sayable_new(void);
/* Takes NULL. */
void vp_sayable_free(vp_sayable *sayable);

/* Whether vp_emit() can write them. why (NULL: nobody reads it) gets its reason where it cannot, for which it is asked again. sayable
 * NULL: every time. */
bool vp_sayable_holds(vp_sayable *sayable, const vp_target *target, const vp_settings *settings,
                      vp_err *why);

#endif
