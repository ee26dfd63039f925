/* doctor/snapshot.h: what a snapshot of PyTorch's allocator says: torch.cuda.memory._dump_snapshot()'s pickle, or that of
 * vplan dryrun --snapshot.
 *     vp_snapshot *s;
 *     VP_TRY(vp_snapshot_read(arena, "snapshot.pickle", &s, err));
 *     s->peak_bytes, s->at_peak.owners[0].frame, s->largest_free_bytes
 *
 * Segments and blocks are those of the moment it was written. The history is the recorder's, which may begin in the middle of the
 * run: what was there before is counted, by when it was freed or that it still lives, and has no owner. */
#ifndef VP_DOCTOR_SNAPSHOT_H
#define VP_DOCTOR_SNAPSHOT_H

#include "base/arena.h"
#include "base/err.h"
#include "doctor/oom.h"

typedef struct vp_owner {
    const char *frame; /* "train.py:41 step"; what there is instead of a frame */
    int64_t     bytes, n_blocks;
} vp_owner;

/* Who holds how much at a moment, the largest first. */
typedef struct vp_owners {
    vp_owner *owners;
    int64_t   n, bytes; /* in all */
} vp_owners;

typedef struct vp_snapshot {
    int device, n_devices; /* the one that ran out, else the one with the most; how many have any */
    int64_t allocated_bytes, reserved_bytes; /* now; blocks rounded, as PyTorch counts them */
    int64_t requested_bytes; /* the same as it was asked for; -1: the file does not say */
    int64_t pending_bytes;   /* freed, and waiting for another stream */
    int64_t n_segments, n_expandable;
    int64_t
        free_segment_bytes; /* whole segments without a block: given back when memory is short */
    int64_t   split_bytes;  /* free blocks beside live ones, which cannot be given back */
    int64_t   largest_free_bytes; /* of one block */
    vp_owners now;

    int64_t   n_events;
    bool      is_partial; /* something was there before the history begins */
    int64_t   peak_bytes; /* by requests, over the history; -1: there is none */
    int64_t   peak_event; /* its number */
    vp_owners at_peak;

    int64_t     n_ooms; /* the last of them: */
    int64_t     oom_requested_bytes, oom_device_free_bytes, oom_allocated_bytes, oom_reserved_bytes;
    int64_t     oom_largest_free_bytes; /* -1: something changed since */
    const char *oom_frame;
    vp_oom_class class_; /* NOT_OOM without one */
    const char  *because;
    vp_remedy    remedies[VP_MAX_REMEDIES];
    int          n_remedies;
} vp_snapshot;

/* VP_ERR_INPUT: no such pickle, or one that holds more than data. */
vp_status vp_snapshot_read(vp_arena *arena, const char *path, vp_snapshot **out, vp_err *err);

#endif
