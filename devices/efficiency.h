/* devices/efficiency.h: what a kernel call takes on a device on which nobody has timed it.
 *     vp_roofline r = vp_roofline_of(&device, VP_K_LINEAR_FWD, VP_DTYPE_BF16, ints, lacks);
 *     seconds = r.seconds;                    // where it is bound: r.compute_s, r.memory_s, r.launch_s
 *
 * Data sheets state what no program reaches. The table in efficiency.c says what share of the stated
 * rate published measurements have reached, by what the call does, its dtype and the card's
 * generation, each row with its source. Seconds from it are marked assumed: they are those of good
 * kernels, not of ours, which no card has timed.
 *
 *     product     flop / (share x peak x waves) + bytes / (share x bandwidth), and never faster than
 *                 the best product of any shape that anybody has found on such a card
 *                 waves: how full the last round of output tiles leaves the multiprocessors
 *     attention   flop / (share x peak x short), at least its bytes; short: few keys keep it from its
 *                 rate, and the tiles on the diagonal of a causal mask are half wasted
 *     all else    bytes / (share x bandwidth), or its operations where these take longer; the share is less of PyTorch's
 *                 operators, each a kernel of its own
 *     cached      of the bytes those that the second-level cache holds, at its rate, where the caller knows them
 *     copies      bytes / (share x link), within one memory read and written
 * and a launch each. A rate that was measured on the device itself is not derated, nor are the
 * round figures of the CPU. */
#ifndef VP_DEVICES_EFFICIENCY_H
#define VP_DEVICES_EFFICIENCY_H

#include "devices/devices.h"
#include "plan/op.h"

/* A launch, on the card and on the host. Assumed. */
#define VP_LAUNCH_S 4e-6

/* What PyTorch's host side takes besides for an operator that runs eagerly: Python, autograd, dispatcher. Derived from steps of
 * transformers' modules that take as long for a larger batch, since the host issues no faster: 23 and 17 ms of BERT with eager
 * and with fused attention (780 and 585 operators, an A100's host), 45 and 37 ms of OPT 350M (1478 and 1217, an L40S's):
 * tests/dryrun/measured/side_by_side.csv. 24 to 28 us; another host is another figure. */
#define VP_OPERATOR_S 25e-6

/* The same for a kernel that code of torch.compile launches, which passes neither autograd nor dispatcher. 6.8 us (no argument) to
 * 9.1 us (19 of them) were measured with the launch, of which 3 us are the driver's, on a GB200's host (meta-pytorch/tritonbench#1017). */
#define VP_FUSED_KERNEL_S 4e-6

/* What a kernel does, as far as its speed goes. X(NAME, text). */
#define VP_WORK_TABLE(X) \
    X(PRODUCT, "matrix products") \
    X(ATTENTION_FWD, "attention, forward") \
    X(ATTENTION_BWD, "attention, backward") \
    X(ELEMENTWISE, "norms, activations, loss") \
    X(OPERATOR, "PyTorch's operators") \
    X(UPDATE, "optimizer") \
    X(COPY, "copies")

typedef enum vp_work {
#define X(name, text) VP_WORK_##name,
    VP_WORK_TABLE(X) VP_N_WORKS
#undef X
} vp_work;

vp_work     vp_work_of(vp_kernel kernel);
const char *vp_work_name(vp_work work); /* "matrix products" */

typedef struct vp_roofline {
    double flop, bytes;
    /* the three parts; products: their sum, all else: launch and the larger of the two others */
    double compute_s, memory_s, launch_s;
    double seconds;
} vp_roofline;

/* ints: the call's attributes; lacks: vp_kernel_lacks(). */
vp_roofline vp_roofline_of(const vp_device *device, vp_kernel kernel, vp_dtype dtype,
                           const int64_t *ints, uint32_t lacks);

/* A call as far as its speed goes, of whoever's kernel. */
typedef struct vp_work_call {
    vp_work        work;
    vp_device_rate rate; /* of its operations             */
    double         flop, bytes;
    double         cached; /* of the bytes, those that the second-level cache holds */
    /* a product: of its output, and how many elements are summed; 0: not known */
    int64_t rows, cols, depth;
    int64_t n_alike; /* products of that shape side by side; 0 is one */
    /* attention */
    double  keys; /* that a query sees, on average */
    int64_t head_dim;
    bool    masked; /* causal, or within a window */
} vp_work_call;

vp_roofline vp_roofline_of_work(const vp_device *device, const vp_work_call *call);

/* Bytes read and written in the device's memory, by kernels that are bound by it; and by PyTorch's own, an operator each. */
double vp_moved_seconds(const vp_device *device, double bytes);
double vp_operator_seconds(const vp_device *device, double bytes);

/* Of bytes that were last used this long ago, counted in bytes moved since, from the first of them to the last: the share that
 * the second-level cache still holds. 0 where nobody knows the card's cache. */
double vp_cache_share(const vp_device *device, double first, double last);

/* Over the link to the host, or within the one memory where there is no link. */
double vp_copy_seconds(const vp_device *device, int64_t bytes);

/* An update that a card's host makes, by the bytes that it reads and writes in its memory. Where neither
 * device nor profile says at what rate: two channels of DDR4-3200 carry 51.2e9, of which 4/5 are usual.
 * Assumed: a server's host has more. */
#define VP_HOST_BYTES_PER_S 40e9
double vp_host_bytes_per_s(const vp_device *device);
double vp_host_update_seconds(const vp_device *device, double bytes);

/* A row of the table, for whoever prints or checks it; false past the end. */
/* Between what a step of a recorded program lies that is said to take one second: 48 steps that others published of an A100 and
 * an L40S took 0.890 to 1.186 times what this model says of them (tests/dryrun/results/side-by-side.json, which
 * tests/test_dryrun.sh holds against these), and GPT-2 124M on an H200 (dryrun/README.md) 1.32 times eager and 1.10 compiled. What was
 * seen, and no bound; other cards were not. */
#define VP_STEP_LEAST_FRAC 0.89
#define VP_STEP_MOST_FRAC  1.33

typedef struct vp_efficiency {
    vp_work     work;
    vp_dtype    dtype;    /* VP_DTYPE_NONE: any                             */
    int         from, to; /* compute capabilities, both included            */
    double      share;    /* of the stated rate                             */
    double      best;     /* products: the most that any shape has reached */
    double      share_64; /* attention with heads of 64 elements and fewer  */
    double      half;     /* attention: keys at which half of it is reached */
    double      half_64;
    const char *source;
} vp_efficiency;

bool vp_efficiency_at(int idx, vp_efficiency *out);

#endif
