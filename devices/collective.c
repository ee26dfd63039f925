#include "devices/collective.h"

#include "devices/efficiency.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- the link ---- */

/* What NCCL takes a link of NVLink to carry, of its rate one way (NVIDIA/nccl, src/graph/topo.h): 18 of 20 GB/s up to
 * Pascal, 20 of 25 on Volta and Ampere, 12 of 14.06 on the bridges of 8.6, 20.6 of 25 on Hopper, 40.1 of 50 on
 * Blackwell. On 8 H100 all but all-reduces were measured at 370 GB/s of 450 (NVIDIA/nccl-tests#212), on 8 A100
 * all-reduces at 230 to 250 of 300. */
static const struct {
    int    below; /* compute capability */
    double share;
} nvlink_shares[] = {{70, 18 / 20.0}, {86, 20 / 25.0},  {87, 12 / 14.0625},
                     {90, 20 / 25.0}, {100, 20.6 / 25}, {1000, 40.1 / 50}};

/* What all-reduces of gigabytes reached between two cards that a bridge joins, of the bridge's rate one way: 208 of 300
 * GB/s on two A100 (NVIDIA/nccl-tests#178), 116 of 300 on two H100 PCIe, where NCCL opens too few channels
 * (NVIDIA/nccl#1161). Nobody published another pair: those are taken at the rates above. */
static const struct {
    int    compute_capability;
    double share;
} bridge_shares[] = {{80, 208 / 300.0}, {90, 116 / 300.0}};

/* Without NVLink a ring goes through the host, to which each card sends and from which it receives at once. Of PCIe
 * 5.0's 63 GB/s 35 to 45 were measured on 8 H100, 35 on 4 and 28 on 8 RTX 5090 (NVIDIA/nccl#1639). */
static const double PCIE_SHARE = 0.5;

/* Where nobody knows the link to the host. */
static const double SLOW_LINK = 8e9;

/* Cards on a board with a switch see all others, those with a bridge one other; bridges carry less than a switch's
 * NVLink 4, and an A100's as much as its board's. */
static bool bridged(const vp_device *d)
{
    return d->peer_link_bytes_per_s < 450e9 && !strstr(d->name, "sxm");
}

/* A link from a device file is taken to lead to all. */
static bool linked(const vp_device *d, int64_t n_ranks)
{
    return d->peer_link_bytes_per_s > 0 &&
           (n_ranks <= 2 || !bridged(d) ||
            d->sources[VP_FIGURE_PEER_LINK].class_ == VP_CLASS_MEASURED);
}

static double nvlink_share(const vp_device *d)
{
    size_t i;

    if (d->sources[VP_FIGURE_PEER_LINK].class_ == VP_CLASS_MEASURED)
        return 1;
    for (i = 0; bridged(d) && i < sizeof bridge_shares / sizeof *bridge_shares; i++)
        if (bridge_shares[i].compute_capability == d->compute_capability)
            return bridge_shares[i].share;
    for (i = 0; nvlink_shares[i].below <= d->compute_capability;)
        i++;
    return nvlink_shares[i].share;
}

vp_ring_link vp_ring_link_of(const vp_device *d, int64_t n_ranks)
{
    if (linked(d, n_ranks))
        return (vp_ring_link){d->peer_link_bytes_per_s * nvlink_share(d), true, "NVLink"};
    if (d->host_link_bytes_per_s > 0)
        return (vp_ring_link){d->host_link_bytes_per_s * PCIE_SHARE, false, "the host"};
    return (vp_ring_link){SLOW_LINK, false, "the host"};
}

/* ---- the protocols ---- */

/* NCCL's rings (src/graph/tuning.cc): microseconds to begin, and for a step over NVLink and over PCIe; what a
 * protocol leaves of the bandwidth, where it reduces and where it does not. */
static const struct {
    double begin_us, nvlink_us, pcie_us, reducing, moving;
    bool   nvlink_only;
} protocols[] = {
    {3.6, 0.47, 1.0, 1 / 4.0, 1 / 3.0, false},
    {10.0, 1.9, 2.5, 0.92, 0.92, true},
    {8.4, 3.4, 5.7, 1, 1, false},
};

/* What a card sends in all, of what one rank has. */
static double wire_bytes(vp_collective what, double n, double bytes)
{
    switch (what) {
    case VP_ALL_REDUCE:
        return 2 * (n - 1) / n * bytes;
    case VP_ALL_GATHER:
    case VP_REDUCE_SCATTER:
    case VP_ALL_TO_ALL:
        return (n - 1) * bytes;
    default:
        return bytes;
    }
}

static double ring_seconds(const vp_device *d, vp_collective what, int64_t n_ranks, double bytes)
{
    vp_ring_link link = vp_ring_link_of(d, n_ranks);
    double       n = (double)n_ranks, best = INFINITY;
    double       wire     = wire_bytes(what, n, bytes);
    double       steps    = what == VP_ALL_REDUCE                ? 2 * (n - 1)
                            : what == VP_SEND || what == VP_RECV ? 1
                                                                 : n - 1;
    bool         reducing = what == VP_ALL_REDUCE || what == VP_REDUCE;

    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
        double hop_us = link.nvlink ? protocols[i].nvlink_us : protocols[i].pcie_us;
        double share  = reducing ? protocols[i].reducing : protocols[i].moving;

        if (!protocols[i].nvlink_only || link.nvlink)
            best = fmin(best, 1e-6 * (protocols[i].begin_us + steps * hop_us) +
                                  wire / (share * link.bytes_per_s));
    }
    return best;
}

/* From Hopper on a switch of NVLink sums: each card sends its bytes once and gets the sum once. 480 GB/s by the
 * measure of a ring (2 x 7/8 of the bytes) on 8 H100 (NVIDIA/nccl-tests#212), so bytes at 0.61 of 450. Its latency is not
 * published: two steps of a ring's. */
static const double SWITCH_SHARE = 480 / 1.75 / 450;

static double switch_seconds(const vp_device *d, int64_t n_ranks, double bytes)
{
    if (d->compute_capability < 90 || n_ranks <= 2 || d->peer_link_bytes_per_s < 450e9)
        return INFINITY;
    return 1e-6 * (protocols[2].begin_us + 2 * protocols[2].nvlink_us) +
           bytes / (SWITCH_SHARE * d->peer_link_bytes_per_s);
}

double vp_collective_seconds(const vp_device *d, vp_collective what, int64_t n_ranks, double bytes)
{
    double seconds;

    assert(what < VP_N_COLLECTIVES && bytes >= 0);
    if (n_ranks < 2)
        return VP_LAUNCH_S + vp_moved_seconds(d, 2 * bytes);
    seconds = ring_seconds(d, what, n_ranks, bytes);
    if (what == VP_ALL_REDUCE)
        seconds = fmin(seconds, switch_seconds(d, n_ranks, bytes));
    return VP_LAUNCH_S + seconds;
}

bool vp_collective_named(const char *name, vp_collective *out)
{
    static const char *const names[] = {
#define X(upper, text) text,
        VP_COLLECTIVE_TABLE(X)
#undef X
    };

    for (int i = 0; i < VP_N_COLLECTIVES; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (vp_collective)i;
            return true;
        }
    return false;
}
