/* devices/collective.h: what a collective takes among the cards of one machine.
 *     seconds = vp_collective_seconds(&device, VP_ALL_GATHER, 8, part_bytes);
 *
 *     ring          latency + steps x hop + wire bytes / (share x link)
 *     in a switch   latency + bytes / (share x link), all-reduce only
 * whichever NCCL would find the fastest of its protocols. Latencies and shares are NCCL's own model of itself
 * (src/graph/tuning.cc, src/graph/topo.h), the links those of the device table. Assumed: every rank is there when
 * it begins, all are in one machine, and nobody else uses the links. */
#ifndef VP_DEVICES_COLLECTIVE_H
#define VP_DEVICES_COLLECTIVE_H

#include "devices/devices.h"

/* As the numbers of dryrun/stand_in/null_nccl.c. X(NAME, text) */
#define VP_COLLECTIVE_TABLE(X) \
    X(ALL_REDUCE, "all_reduce") \
    X(ALL_GATHER, "all_gather") \
    X(REDUCE_SCATTER, "reduce_scatter") \
    X(BROADCAST, "broadcast") \
    X(REDUCE, "reduce") \
    X(ALL_TO_ALL, "all_to_all") \
    X(SEND, "send") \
    X(RECV, "recv")

typedef enum vp_collective {
#define X(name, text) VP_##name,
    VP_COLLECTIVE_TABLE(X) VP_N_COLLECTIVES
#undef X
} vp_collective;

/* False: no collective has this name. */
bool vp_collective_named(const char *name, vp_collective *out);

/* bytes: what one rank gives; of a reduce-scatter, what one gets. n_ranks below 2: a copy within the card. */
double vp_collective_seconds(const vp_device *device, vp_collective what, int64_t n_ranks,
                             double bytes);

/* What a ring of so many cards carries each way, in bytes a second, and by what: "NVLink", "PCIe". */
typedef struct vp_ring_link {
    double      bytes_per_s;
    bool        nvlink;
    const char *name;
} vp_ring_link;

vp_ring_link vp_ring_link_of(const vp_device *device, int64_t n_ranks);

#endif
