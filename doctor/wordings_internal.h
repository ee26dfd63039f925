/* doctor/wordings_internal.h: the tables of wordings.c, which the files of doctor/ share and nobody else includes. */
#ifndef VP_DOCTOR_WORDINGS_INTERNAL_H
#define VP_DOCTOR_WORDINGS_INTERNAL_H

#include "doctor/wordings.h"

/* Each ends with a row without an anchor. */
extern const vp_wording vp_wordings_device[], vp_wordings_host[], vp_wordings_not_oom[],
    vp_wordings_any[];

#endif
