/* doctor/wordings.h: how programs say that memory ran out, and what is mistaken for it: data.
 *     for (int i = 0; (w = vp_wording_at(i)); i++) ... w->anchor ...
 *
 * A wording is a fragment of a message, in lower case, and what else stands on its line. Rows are tried from
 * the top: a special wording stands above the general one that it contains, and the last rows take what no
 * row knows by its shape. */
#ifndef VP_DOCTOR_WORDINGS_H
#define VP_DOCTOR_WORDINGS_H

#include <stdbool.h>

/* X(name, word in JSON, in a sentence). */
#define VP_OOM_CLASSES(X) \
    X(DEVICE_SHORTAGE, "device_shortage", "the run needs more memory than the GPU has") \
    X(FRAGMENTATION, "fragmentation", "enough memory is reserved, but in pieces too small") \
    X(OTHER_PROCESS, "other_process", "another process holds the card's memory") \
    X(MEMORY_CAP, "memory_cap", "a limit below the card's memory was reached") \
    X(HOST_OOM, "host_oom", "the host's memory ran out, and a process was killed") \
    X(HOST_ALLOC, "host_alloc", "the host refused memory to the process") \
    X(PINNED_LIMIT, "pinned_limit", "pinned (page-locked) host memory was refused") \
    X(SHM_LIMIT, "shm_limit", "shared memory (/dev/shm) is full") \
    X(DISGUISED, "disguised_device_oom", \
      "a library ran out of GPU memory and reports it as another error") \
    X(NOT_OOM, "not_oom", "not out of memory")

typedef enum vp_oom_class {
#define X(name, word, text) VP_OOM_CLASS_##name,
    VP_OOM_CLASSES(X)
#undef X
        VP_N_OOM_CLASSES
} vp_oom_class;

/* Which of several messages is the reason: the first of the strongest. */
typedef enum vp_tier {
    VP_TIER_CAUSE,     /* memory was asked for and refused; or what else ended the run */
    VP_TIER_DISGUISED, /* a refusal that needs reading */
    VP_TIER_AFTER,     /* follows from a refusal elsewhere */
    VP_TIER_NOTICE     /* no reason for a run to end; words that are only quoted */
} vp_tier;

typedef struct vp_wording {
    const char *anchor;
    /* on the same line: one of these ("a|b"), one of these too, and none of those; NULL: whatever */
    const char  *with, *and_with, *without;
    const char  *framework; /* NULL: by the words around it */
    const char  *since, *until;
    vp_oom_class class_;
    vp_tier      tier;
    bool         any_class;  /* class_ is for want of words that say whose memory it was */
    bool         goes_on;    /* the numbers may stand on the lines behind it */
    bool         whole_line; /* the line is the anchor and nothing else */
    bool         is_likely;  /* it has other reasons too */
    const char  *later;      /* of one that goes on: what must come; else it is no such message */
    const char  *says;       /* what it is, where the class does not say it all */
} vp_wording;

/* NULL past the end. */
const vp_wording *vp_wording_at(int i);

/* A part of a wording that tells versions: "capacty" is PyTorch 2.1's alone. */
typedef struct vp_dated_fragment {
    const char *fragment, *framework, *since,
        *until; /* until: the last that has it; NULL: none yet */
} vp_dated_fragment;
const vp_dated_fragment *vp_dated_fragment_at(int i);

#endif
