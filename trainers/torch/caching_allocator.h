/* trainers/torch/caching_allocator.h: PyTorch's CUDA caching allocator, simulated.
 *     vp_caching_allocator_opts opts = {.device_total_bytes = 80 * VP_GIB};
 *     VP_TRY(vp_caching_allocator_conf("expandable_segments:True", &opts, err));
 *     VP_TRY(vp_caching_allocator_new(&opts, &allocator, err));
 *     VP_TRY(vp_caching_allocator_alloc(allocator, 0, bytes, &block, err));   every allocation
 *     vp_caching_allocator_free(allocator, block);                           and every free, in order
 *     reserved_bytes = vp_caching_allocator_figures(allocator)->reserved_bytes.peak;
 *     vp_caching_allocator_destroy(allocator);
 *
 * Told what a program asks for and gives back, it does what PyTorch's allocator does on one device
 * and keeps the counters that torch.cuda.memory_stats() reports, to the byte after every event. No
 * device is touched. One instance is one device; it is not thread-safe. README.md has the rules.
 *
 * The rules are those of torch 2.7 and newer, checked against 2.7, 2.9, 2.10, 2.11 and 2.15. What differs
 * between versions is an option here, or a sentence beside one. */
#ifndef VP_TRAINERS_TORCH_CACHING_ALLOCATOR_H
#define VP_TRAINERS_TORCH_CACHING_ALLOCATOR_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct vp_caching_allocator vp_caching_allocator;

/* Names a block that is in use; 0 is none: what an allocation of 0 bytes gives. A number is used
 * again once its block is free. */
typedef uint32_t vp_caching_block;

enum {
    VP_CACHING_STREAMS            = 64, /* streams are numbered from 0, below this */
    VP_CACHING_ROUNDUP_INTERVALS  = 16, /* sizes by power of two, 1 MiB (and less) to 32 GiB */
    VP_CACHING_REQUEST_BITS       = 46, /* one request is below 2^46 bytes, a card too */
    VP_CACHING_DEVICE_UNLIMITED   = 0,
    VP_CACHING_SEGMENT_DEFAULT_MB = 20
};

/* All zero: PyTorch's defaults, on a device that never fills. */
typedef struct vp_caching_allocator_opts {
    int torch_minor; /* whose rules: N of torch 2.N; 0: of the newest that is known */

    /* What the card says it has; 0: no end. Expandable segments reserve 9/8 of it as addresses. */
    int64_t device_total_bytes;
    /* Of that, what PyTorch's allocator cannot have: the context, other libraries, other processes.
     * vp_caching_allocator_others() changes it on the way. */
    int64_t device_others_bytes;
    /* No more segments than this: set_per_process_memory_fraction(f) is f x the card's total,
     * rounded down; 0: no such limit. A fraction of 1.0 is no limit since 2.10, before that the
     * whole card. */
    int64_t allowed_bytes;

    /* max_split_size_mb: blocks of that size and more are not split; 0: all are. */
    int64_t max_split_bytes;
    /* max_non_split_rounding_mb: how much larger than asked a block of max_split_size
     * or more may be; 0: as large_segment_bytes. */
    int64_t max_non_split_rounding_bytes;
    /* large_segment_size_mb, since 2.11: the segment for requests above 1 MiB and below 10 MiB, and the
     * piece in which large expandable segments grow; 0: 20 MiB. */
    int64_t large_segment_bytes;
    /* roundup_power2_divisions: into how many steps the way from one power of two to the next is
     * cut; 0 and 1: none, sizes round to 512 B. Entry i is for sizes of 2^(20 + i) bytes and more,
     * the first for all smaller, the last for all larger ones. */
    int64_t roundup_power2_divisions[VP_CACHING_ROUNDUP_INTERVALS];
    /* garbage_collection_threshold, in (0, 1), as a part of allowed_bytes; 0: off. Without
     * allowed_bytes it does nothing, in PyTorch too. */
    double garbage_collection_threshold;
    bool   expandable_segments;

    /* Segments of 32 MiB and more lie below those that are there, from the top of the addresses on, and smaller ones above those that
     * are there, as the driver gives them (dryrun/stand_in/README.md says on which cards that was confirmed). false: all rise. Of equal
     * free blocks the lowest is taken, so it decides between them. */
    bool addresses_fall;

    /* A block used on another stream (record_stream) is free once that stream is past its use.
     * false: it is by the next allocation, as where the host waits for the device, and in a dry
     * run. true: not before vp_caching_allocator_stream_done(). */
    bool streams_lag;

    /* Called where PyTorch obtains (+) or returns (-) device memory: a segment, or pieces of an
     * expandable one. Must not call the allocator. May be NULL. */
    void (*on_segment)(void *context, int64_t bytes);
    void *on_segment_context;
} vp_caching_allocator_opts;

typedef struct vp_caching_figure {
    int64_t now, peak;
} vp_caching_figure;

/* The "all" rows of torch.cuda.memory_stats(). */
typedef struct vp_caching_figures {
    vp_caching_figure allocated_bytes;      /* blocks in use, rounding included */
    vp_caching_figure active_bytes;         /* and those whose last use another stream may yet do */
    vp_caching_figure reserved_bytes;       /* segments: what the device is short of */
    vp_caching_figure requested_bytes;      /* active blocks as they were asked for */
    vp_caching_figure inactive_split_bytes; /* free, and stuck in a segment that is partly in use;
                                               none of expandable segments' */
    vp_caching_figure n_segments;           /* PyTorch does not count expandable ones, nor do we */
    int64_t           n_device_allocs;      /* calls for device memory that succeeded */
    int64_t           n_device_frees;
    int64_t           n_retries; /* everything cached was given back for a request */
    int64_t           n_ooms;
} vp_caching_figures;

/* The last "CUDA out of memory": what PyTorch's message says. */
typedef struct vp_caching_oom {
    int64_t requested_bytes;   /* what the program asked for; not in the message */
    int64_t tried_bytes;       /* "Tried to allocate": the segment it would have taken */
    int64_t total_bytes;       /* "total capacity"; 0 where it has no end */
    int64_t free_bytes;        /* "is free" */
    int64_t allowed_bytes;     /* "allowed"; 0: no limit, and not in the message */
    int64_t allocated_bytes;   /* "is allocated by PyTorch" */
    int64_t unallocated_bytes; /* "is reserved by PyTorch but unallocated" */
} vp_caching_oom;

/* Settings as in PYTORCH_ALLOC_CONF (PYTORCH_CUDA_ALLOC_CONF before 2.9), "key:value,...", into
 * *opts; keys that do not change bytes are passed over. A fraction is taken of
 * opts->device_total_bytes. VP_ERR_INPUT, the key in err->field: a key that is not known, a value
 * that PyTorch refuses, backend:cudaMallocAsync (another allocator). *opts is then unchanged. */
vp_status vp_caching_allocator_conf(const char *text, vp_caching_allocator_opts *opts, vp_err *err);

/* An allocator that holds nothing. VP_ERR_INPUT: options that PyTorch would refuse, err->field
 * says which. VP_ERR_NOMEM. Free it with vp_caching_allocator_destroy(), which takes NULL. */
vp_status vp_caching_allocator_new(const vp_caching_allocator_opts *opts,
                                   vp_caching_allocator **out, vp_err *err);
void      vp_caching_allocator_destroy(vp_caching_allocator *a);

/* Another one that holds the same, in blocks of the same numbers. VP_ERR_NOMEM. */
vp_status vp_caching_allocator_copy(const vp_caching_allocator *a, vp_caching_allocator **out,
                                    vp_err *err);

/* What it holds, so that a program which does the same over and over can end where nothing changes any more: blocks by address,
 * those in use with the number of the allocation since `since` that made them, or as older ones. Two of them that are the same
 * (vp_caching_state_is_same()), each taken behind one round of the same events, mean that every round after is like the last. */
typedef struct vp_caching_state {
    int64_t *words, n; /* NULL: it cannot be told */
    int64_t  n_allocs; /* since */
} vp_caching_state;

int64_t   vp_caching_allocator_n_allocs(const vp_caching_allocator *a);
vp_status vp_caching_allocator_state(const vp_caching_allocator *a, int64_t since,
                                     vp_caching_state *out, vp_err *err);
bool      vp_caching_state_is_same(const vp_caching_state *x, const vp_caching_state *y);
void      vp_caching_state_release(vp_caching_state *state);

/* A round of events begins, which the program may do again. */
void vp_caching_allocator_begin_round(vp_caching_allocator *a);
/* The events since then once more, without the program: true where they would take the same blocks and leave what is there now, so that
 * nothing changes but the number of allocations; no figure exceeds those of now and of the round. False: they have to be done. */
bool vp_caching_allocator_repeat(vp_caching_allocator *a);

/* A block for bytes on a stream. VP_ERR_NO_FIT: PyTorch raises OutOfMemoryError here;
 * vp_caching_allocator_oom() has the numbers, the allocator can be used on. VP_ERR_INPUT: bytes
 * negative or 2^46 and more, or no such stream. VP_ERR_NOMEM: of the host. *block is 0 unless
 * VP_OK. */
vp_status vp_caching_allocator_alloc(vp_caching_allocator *a, int stream, int64_t bytes,
                                     vp_caching_block *block, vp_err *err);

/* Give back a block that is in use, or 0. */
void vp_caching_allocator_free(vp_caching_allocator *a, vp_caching_block block);

/* Tensor.record_stream(): the block is used on this stream too. VP_ERR_INPUT, VP_ERR_NOMEM. */
vp_status vp_caching_allocator_record_stream(vp_caching_allocator *a, vp_caching_block block,
                                             int stream, vp_err *err);

/* The device has done all that was queued on this stream (with opts.streams_lag). */
void vp_caching_allocator_stream_done(vp_caching_allocator *a, int stream);

/* torch.cuda.empty_cache(). VP_ERR_NOMEM as in vp_caching_allocator_alloc(). */
vp_status vp_caching_allocator_empty_cache(vp_caching_allocator *a, vp_err *err);

/* What others hold of the device from now on. */
void vp_caching_allocator_others(vp_caching_allocator *a, int64_t bytes);

/* torch.cuda.reset_peak_memory_stats(). */
void vp_caching_allocator_reset_peaks(vp_caching_allocator *a);

/* Valid as long as the allocator, current after each call; they are what an allocator begins with. */
static inline const vp_caching_figures *vp_caching_allocator_figures(const vp_caching_allocator *a)
{
    return (const vp_caching_figures *)a;
}
const vp_caching_oom *vp_caching_allocator_oom(const vp_caching_allocator *a);

/* Where a block in use lies and how large it is. */
void vp_caching_allocator_place(const vp_caching_allocator *a, vp_caching_block block,
                                int64_t *address, int64_t *bytes);

#endif
