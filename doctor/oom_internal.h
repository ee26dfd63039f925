/* doctor/oom_internal.h: what the steps of reading a log share and nobody else includes: messages are found
 * (oom.c), one is chosen, its class is worked out (oom_class.c), and what helps (oom_remedies.c). */
#ifndef VP_DOCTOR_OOM_INTERNAL_H
#define VP_DOCTOR_OOM_INTERNAL_H

#include "doctor/oom.h"

/* A message that a wording fits. */
typedef struct vp_oom_message {
    const vp_wording *wording;
    int               line, rank;
    bool            is_quoted; /* a sample, a comment: the words stand there, and nothing failed */
    const char     *text;      /* its line, cut */
    const char     *whole;     /* in lower case, with the lines that go on; cut */
    vp_amounts      numbers;
    const vp_trace *trace; /* NULL */
} vp_oom_message;

/* The class of a message by its words alone, for a wording that leaves it open. */
vp_oom_class vp_oom_class_by_words(const vp_wording *wording, const char *lower);

/* The framework, where the wording does not say it; NULL: nothing does. */
const char *vp_oom_framework_by_words(const char *lower);

/* From the chosen message and its numbers: oom's class, says, because. */
vp_status vp_oom_classify(vp_arena *arena, const vp_oom_message *m, vp_oom *oom, vp_err *err);

/* oom's remedies, by what they save. */
vp_status vp_oom_find_remedies(vp_arena *arena, const vp_oom_message *m, vp_oom *oom, vp_err *err);

#endif
