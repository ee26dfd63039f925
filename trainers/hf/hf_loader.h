/* trainers/hf/hf_loader.h: what a DataLoader takes of host memory: batches in shared memory, pinned copies of them, and its worker
 * processes.
 *     vp_hf_loader loader = vp_hf_loader_of(&estimate.batch, &(vp_hf_loader_setting){.workers = 4, .pins = true});
 *
 * By rule, from torch 2.11 (utils/data/dataloader.py, ATen/core/CachingHostAllocator.h) and Accelerate 1.15 (data_loader.py); held
 * against runs of Trainer (tests/golden/loaders/runs.csv). */
#ifndef VP_TRAINERS_HF_HF_LOADER_H
#define VP_TRAINERS_HF_HF_LOADER_H

#include "trainers/hf/hf_estimate.h"
#include "trainers/torch/recording.h"

/* As dataloader_num_workers, dataloader_prefetch_factor and dataloader_pin_memory; prefetch 0: torch's own, 2. */
typedef struct vp_hf_loader_setting {
    int64_t workers, prefetch;
    bool    pins;
} vp_hf_loader_setting;

/* Of one training process. */
typedef struct vp_hf_loader {
    int64_t
        n_batches; /* that are there at once at most: asked of the workers, and one that is used */
    int64_t pinned_bytes;                     /* in powers of two, which PyTorch keeps */
    int64_t shared_least_bytes, shared_bytes; /* when all waits for the card; at most */
    int64_t workers_low_bytes,
        workers_high_bytes; /* their own: forked; with modules imported anew */
} vp_hf_loader;

/* The tensors of a batch as the recorded step has them on the card, which the host has in the same formats. */
vp_hf_batch  vp_hf_batch_of(const vp_recorded *step);
vp_hf_loader vp_hf_loader_of(const vp_hf_batch *batch, const vp_hf_loader_setting *setting);

#endif
