/* doctor/summary.h: the tables that people print when memory is short: torch.cuda.memory_summary()'s, and nvidia-smi's.
 *     vp_summary *s;
 *     VP_TRY(vp_summary_read(arena, "train.log", &s, err));
 *     s->metrics[VP_METRIC_RESERVED].peak_bytes, s->cards[0].used_bytes
 *
 * They may stand anywhere in a log; of several the last counts. nvidia-smi's text is its default table, or
 * --query-compute-apps with pid and used_memory as CSV. */
#ifndef VP_DOCTOR_SUMMARY_H
#define VP_DOCTOR_SUMMARY_H

#include "base/arena.h"
#include "base/err.h"
#include "doctor/oom.h"

/* X(name, the table's row in lower case, key in JSON, what it is). */
#define VP_METRICS(X) \
    X(ALLOCATED, "allocated memory", "allocated", "allocated") \
    X(ACTIVE, "active memory", "active", "allocated, or waiting for another stream") \
    X(REQUESTED, "requested memory", "requested", "asked for, before blocks are rounded") \
    X(RESERVED, "gpu reserved memory", "reserved", "reserved, with PyTorch's cache") \
    X(SPLIT, "non-releasable memory", "split", \
      "free beside live blocks: not given back when memory is short")

typedef enum vp_metric {
#define X(name, row, key, text) VP_METRIC_##name,
    VP_METRICS(X)
#undef X
        VP_N_METRICS
} vp_metric;

typedef struct vp_card_process {
    int         card;       /* -1: not said */
    int64_t     pid, bytes; /* -1: not said */
    const char *name;
} vp_card_process;

enum { VP_MAX_CARDS = 64, VP_MAX_CARD_PROCESSES = 256 };

typedef struct vp_summary {
    bool    has_allocator;
    int     n_tables, device;  /* device -1: not said */
    int64_t n_ooms, n_retries; /* -1: not said */
    struct {
        int64_t now_bytes, peak_bytes; /* -1: no such row; as precise as the table, which rounds */
    } metrics[VP_N_METRICS];

    struct {
        int64_t used_bytes, total_bytes,
            others_bytes; /* others: used, and no listed process has it */
    } cards[VP_MAX_CARDS];
    int             n_cards;
    vp_card_process processes[VP_MAX_CARD_PROCESSES];
    int             n_processes;
    vp_remedy       remedies[VP_MAX_REMEDIES];
    int             n_remedies;
} vp_summary;

/* path "-" is standard input. VP_ERR_INPUT: it holds neither table. */
vp_status vp_summary_read(vp_arena *arena, const char *path, vp_summary **out, vp_err *err);

const char *vp_metric_key(vp_metric metric);
const char *vp_metric_text(vp_metric metric);

#endif
