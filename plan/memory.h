/* plan/memory.h: where a plan's buffers lie and what executes its steps.
 *
 * A *memory* is a range of addresses with a peak of its own. A *stream* executes its steps in order,
 * one after the other, beside the other streams. Kernels run on the compute stream and read and write
 * device memory only. Copies between the device and another memory run on the stream of their direction.
 * An update may run on stream "host": the host's processor makes it, in host memory only, when the compute
 * stream has come to it and what the host was given before is done. The compute stream goes on meanwhile:
 * nothing of its lies in host memory. A copy begins behind all that the host was given before it, and may be
 * waited for by the host alone. */
#ifndef VP_PLAN_MEMORY_H
#define VP_PLAN_MEMORY_H

#include <stdbool.h>

/* X(NAME, text). host-pinned: page-locked memory of the host, which a device reads and writes by itself.
 * host: other memory of the host, which its processor alone works in. nvme: a local drive, which copies
 * read and write; plans count its bytes, and nothing executes them. */
#define VP_MEMORY_TABLE(X) \
    X(DEVICE, "device") X(HOST_PINNED, "host-pinned") X(HOST, "host") X(NVME, "nvme")

typedef enum vp_memory {
#define X(name, text) VP_MEMORY_##name,
    VP_MEMORY_TABLE(X) VP_N_MEMORIES
} vp_memory;
#undef X

/* X(NAME, text). */
#define VP_STREAM_TABLE(X) \
    X(COMPUTE, "compute") X(TO_HOST, "to_host") X(TO_DEVICE, "to_device") X(HOST, "host")

typedef enum vp_stream {
#define X(name, text) VP_STREAM_##name,
    VP_STREAM_TABLE(X) VP_N_STREAMS
} vp_stream;
#undef X

/* Copies of a plan that may be under way at once. */
enum { VP_MAX_COPIES = 192 };

/* Whether the host's processor reaches a memory, and whether copies to and from the device do. */
static inline bool vp_memory_is_host(vp_memory m)
{
    return m == VP_MEMORY_HOST || m == VP_MEMORY_HOST_PINNED;
}

static inline bool vp_memory_is_copied(vp_memory m)
{
    return m == VP_MEMORY_HOST_PINNED || m == VP_MEMORY_NVME;
}

const char *vp_memory_name(vp_memory m);
vp_memory   vp_memory_by_name(const char *name); /* VP_N_MEMORIES if none */
const char *vp_stream_name(vp_stream s);
vp_stream   vp_stream_by_name(const char *name); /* VP_N_STREAMS if none */

#endif
