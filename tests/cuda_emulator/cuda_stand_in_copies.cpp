/* tests/cuda_emulator/cuda_stand_in_copies.cpp: copies and fills. */
#include "tests/cuda_emulator/cuda_stand_in.h"

#include <cstring>

using namespace stand_in;

namespace
{

/* A copy on a stream may have written anything of its destination as soon as it may begin. */
cudaError_t enqueue_copy(cudaStream_t s, void *dst, size_t count, work w)
{
    cudaError_t e = cudaSuccess;

    if (here().set.streams && count > 0)
        e = enqueue(s, [=]() { memset(dst, VP_EMULATOR_POISON, count); });
    return e == cudaSuccess ? enqueue(s, std::move(w)) : e;
}

/* What the host asks for and waits for. */
cudaError_t perform_now(const work &w)
{
    cudaError_t e = enqueue(cudaStreamLegacy, w);

    return e == cudaSuccess ? wait_for(cudaStreamLegacy) : e;
}

/* The direction is the caller's promise; both ends must keep it, whole. */
cudaError_t check_copy(const void *dst, const void *src, size_t n, cudaMemcpyKind kind,
                       bool *to_device, bool *from_device)
{
    if (kind == cudaMemcpyDefault) {
        *to_device   = lies_in(dst, 0, true);
        *from_device = lies_in(src, 0, true);
    } else if (kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDeviceToDevice) {
        *to_device   = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        *from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    } else {
        return cudaErrorInvalidMemcpyDirection;
    }
    if (n == 0)
        return cudaSuccess;
    if (!dst || !src || (*to_device && !lies_in(dst, n, false)) ||
        (*from_device && !lies_in(src, n, false)) || (!*to_device && lies_in(dst, 1, true)) ||
        (!*from_device && lies_in(src, 1, true))) {
        vp_emulator_say(
            "a copy of %zu bytes from %p to %p, direction %d: not the memory it says, or not all of it",
            n, src, dst, (int)kind);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

} // namespace

extern "C" {

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    bool to_device, from_device;

    BEGIN("cudaMemcpy", "%zu, %d", count, (int)kind);
    SAFE_ONLY();
    cudaError_t e = check_copy(dst, src, count, kind, &to_device, &from_device);
    if (e != cudaSuccess)
        return result(e);
    return perform_now([=]() { memmove(dst, src, count); });
}

/* Pageable host memory is read before the call returns, and written before it returns; pinned
 * memory at the copy's turn. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    bool to_device, from_device;

    BEGIN("cudaMemcpyAsync", "%zu, %d", count, (int)kind);
    cudaError_t e = check_copy(dst, src, count, kind, &to_device, &from_device);
    if (e != cudaSuccess)
        return result(e);
    if (!is_stream(stream))
        return result(cudaErrorInvalidResourceHandle);
    if (capturing(stream) || count == 0)
        return enqueue_copy(stream, dst, count, [=]() { memmove(dst, src, count); });
    if (to_device && !from_device && !lies_in(src, count, false)) {
        std::vector<char> staged((const char *)src, (const char *)src + count);
        return enqueue_copy(stream, dst, count,
                            [dst, staged]() { memcpy(dst, staged.data(), staged.size()); });
    }
    e = enqueue_copy(stream, dst, count, [=]() { memmove(dst, src, count); });
    if (e == cudaSuccess && !to_device && !lies_in(dst, count, false))
        e = wait_for(stream);
    return e;
}

cudaError_t cudaMemset(void *p, int value, size_t count)
{
    BEGIN("cudaMemset", "%d, %zu", value, count);
    SAFE_ONLY();
    if (count && !lies_in(p, count, false))
        return result(cudaErrorInvalidValue);
    return perform_now([=]() { memset(p, value, count); });
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t count, cudaStream_t stream)
{
    BEGIN("cudaMemsetAsync", "%d, %zu", value, count);
    if (count && !lies_in(p, count, false))
        return result(cudaErrorInvalidValue);
    return enqueue(stream, [=]() { memset(p, value, count); });
}
}
