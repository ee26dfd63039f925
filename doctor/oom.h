/* doctor/oom.h: what a log says of the memory that ran out.
 *     vp_oom *oom;
 *     VP_TRY(vp_oom_read(arena, "train.log", &oom, err));
 *     oom->class_, oom->line, oom->numbers.bytes[VP_OOM_REQUESTED], oom->remedies[0].text
 *
 * Any text: one pasted line or a log of several ranks. Nothing in it is executed or opened. */
#ifndef VP_DOCTOR_OOM_H
#define VP_DOCTOR_OOM_H

#include "base/arena.h"
#include "base/err.h"
#include "doctor/amounts.h"
#include "doctor/traceback.h"
#include "doctor/wordings.h"

typedef struct vp_evidence {
    int         line;
    const char *text; /* as it stands there, cut; may hold anything */
} vp_evidence;

typedef struct vp_remedy {
    const char *text;
    int64_t     saves_bytes; /* -1: the text does not say enough to know */
    const char *costs;
} vp_remedy;

enum { VP_MAX_EVIDENCE = 12, VP_MAX_REMEDIES = 12 };

typedef struct vp_oom {
    vp_oom_class    class_;
    bool            is_likely;     /* not proven by the text: it has other reasons too */
    const char     *framework;     /* NULL: not known */
    const char     *since, *until; /* the versions whose wording it is; NULL */
    int             line;          /* of the message that says it; 0: none */
    int             rank;          /* of the process that said it; -1 */
    vp_amounts      numbers;
    const char     *says;    /* what it is, where the class does not say it all; NULL */
    const char     *because; /* the arithmetic behind the class; NULL */
    vp_trace_phase  phase;   /* VP_N_TRACE_PHASES: no traceback shows one */
    const vp_trace *trace;   /* NULL */
    vp_evidence     evidence[VP_MAX_EVIDENCE];
    int             n_evidence;
    vp_remedy       remedies[VP_MAX_REMEDIES];
    int             n_remedies;
    const char     *command; /* the training command as the log shows it; NULL */
    int64_t         n_lines;
} vp_oom;

/* path "-" is standard input. Everything lives in the arena. VP_ERR_INPUT: it cannot be read. */
vp_status vp_oom_read(vp_arena *arena, const char *path, vp_oom **out, vp_err *err);

const char *vp_oom_class_word(vp_oom_class class_);
const char *vp_oom_class_text(vp_oom_class class_);
const char *vp_oom_number_key(vp_oom_number number);
const char *vp_oom_number_text(vp_oom_number number);

#endif
