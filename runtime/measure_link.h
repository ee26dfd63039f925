/* runtime/measure_link.h: what the link between host and device carries: to the device, from it, and both at once.
 *     VP_TRY(vp_link_measure(backend, &link, err));
 *
 * By the backend's own copies on its two streams of copies, from and to memory that host_alloc() pins once. */
#ifndef VP_RUNTIME_MEASURE_LINK_H
#define VP_RUNTIME_MEASURE_LINK_H

#include "kernels/backend.h"
#include "plan/link_rates.h"

/* Takes 64 MiB on each side meanwhile and some tenths of a second. On the CPU, whose two memories are parts of one,
 * what its threads of copies carry between them, and what kernels lose to them, as the shortest of some times that a
 * product and an update take with copies beside them and without; half a second more. VP_ERR_DEVICE: no memory, or a copy fails. */
vp_status vp_link_measure(const vp_backend *backend, vp_link_rates *out, vp_err *err);

#endif
