/* tests/cuda_emulator/emulator_internal.h: between the runtime's stand-in and what runs blocks.
 * C++17. */
#ifndef VP_EMULATOR_INTERNAL_H
#define VP_EMULATOR_INTERNAL_H

#include "tests/cuda_emulator/emulator.h"

#include <cuda_runtime.h>

/* ---- block_emulator.cpp ---- */

enum vp_emulator_order { VP_ORDER_FORWARD, VP_ORDER_REVERSE, VP_ORDER_SHUFFLE };

/* Every thread of every block of the grid, block after block. shared_limit: bytes of static and
 * dynamic shared memory together that the launch may use. Where the device would fail,
 * vp_emulator_fault() has been called and the rest is not run. */
void vp_emulator_run_grid(const vp_emulator_kernel *kernel, const std::function<void()> &thread,
                          size_t shared_limit);

/* From the environment, once. */
void vp_emulator_set_order(vp_emulator_order order, uint64_t seed);

/* of shared and fresh device memory: a NaN wherever it is read as a number */
enum { VP_EMULATOR_POISON = 0xff };

/* ---- cuda_stand_in_work.cpp ---- */

/* For tests: as VPLAN_EMULATOR_STREAMS has it, from now on. */
void vp_emulator_set_streams(uint64_t seed);

/* ---- cuda_stand_in_memory.cpp ---- */

/* What is known of an address, for the message of a kernel that touched it: "4 bytes behind
 * device memory of 1024 bytes". */
void vp_emulator_describe_address(const void *p, char *text, size_t n_bytes);

#endif
