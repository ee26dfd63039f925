/* tests/cuda_emulator/emulator.h: what the stand-in libraries share: calls that are counted, work
 * on streams, what is alive.
 *
 *     cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
 *     {
 *         if (vp_emulator_fails("cublasLtCreate", ""))
 *             return CUBLAS_STATUS_INTERNAL_ERROR;
 *         *handle = calloc(1, sizeof **handle);
 *         vp_emulator_born("cublasLt handle", *handle);
 *
 * README.md lists the environment variables. C11 and C++17. */
#ifndef VP_EMULATOR_H
#define VP_EMULATOR_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Count a call of this name and write its line to the log; the format tells of its arguments.
 * true: the environment wants this one to fail, with whatever the library says for an unknown
 * error. */
bool vp_emulator_fails(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What the caller did wrong, on stderr and in the log: the reason that a status has no room for. */
void vp_emulator_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The last of these sentences, for tests. */
const char *vp_emulator_said(void);

/* Something is created and must be destroyed; what is left at the end is reported by its kind. */
void vp_emulator_born(const char *kind, const void *handle);
bool vp_emulator_lives(const char *kind, const void *handle);
void vp_emulator_dies(const void *handle);

/* work(args) at its turn on the stream, args being copied now; or recorded, where the stream is
 * being captured. */
cudaError_t vp_emulator_enqueue(cudaStream_t stream, void (*work)(void *args), const void *args,
                                size_t n_bytes);

/* From inside work: this piece of work has failed on the device. error sticks, as it does on a
 * real one. */
void vp_emulator_fault(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether n_bytes from p lie in one allocation of device memory, or of pinned host memory. */
bool vp_emulator_is_device(const void *p, size_t n_bytes);

/* Bytes of the device's memory in use: by this process, and by others. */
int64_t vp_emulator_own_bytes(void);
int64_t vp_emulator_others_bytes(void);

/* 90 for compute capability 9.0. */
int vp_emulator_sm(void);

#ifdef __cplusplus
}
#endif

#endif
