/* trainers/torch/torch_internal.h: what the files of this folder share with each other only. */
#ifndef VP_TRAINERS_TORCH_TORCH_INTERNAL_H
#define VP_TRAINERS_TORCH_TORCH_INTERNAL_H

#include "trainers/torch/caching_allocator.h"

/* VP_ERR_INPUT: PyTorch would refuse these options; err->field is its name of the setting. */
vp_status vp_caching_allocator_opts_check(const vp_caching_allocator_opts *o, vp_err *err);

#endif
