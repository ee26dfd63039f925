/* kernels/call_check.h: what every backend relies on before it runs a call, as asserts. A plan's
 * checker has looked at all of it; so has who makes calls by other means. */
#ifndef VP_KERNELS_CALL_CHECK_H
#define VP_KERNELS_CALL_CHECK_H

#include "kernels/backend.h"

#include <assert.h>

static inline void vp_kernel_call_check(const vp_kernel_call *call)
{
    const vp_kernel_info *info = vp_kernel_info_of(call->kernel);

    assert(info->kind != VP_KERNEL_TRANSFER); /* copy() and after() do these */
    assert(vp_dtype_is_of_calls(call->dtype));
    for (int i = 0; i < info->n_ints; i++)
        assert(call->ints[i] >= info->ints[i].min && call->ints[i] <= info->ints[i].max);
    for (int i = 0; i < info->n_operands; i++)
        assert(call->operand[i] || vp_kernel_presence(call->kernel, call->ints, i) != VP_ALWAYS);
    assert(call->workspace_bytes >= 0 && (uintptr_t)call->workspace % VP_ALIGN_BYTES == 0);
}

#endif
