/* tests/cuda_emulator/emulator_test.h: what the emulator's tests share: a stream, lists in device
 * memory, the cases of the runtime. C++17. */
#ifndef VP_EMULATOR_TEST_H
#define VP_EMULATOR_TEST_H

#include "kernels/cuda/cuda_kernel.h"
#include "tests/cuda_emulator/emulator_internal.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

extern "C" { /* the header does not say so itself */
#include <cmocka.h>
}

/* Of all cases; a fault's case makes it anew. */
extern cudaStream_t stream;

#define OK(call) assert_int_equal((call), cudaSuccess)

/* Device memory as a list of T, and its copy here. */
template <typename T> struct list {
    T     *device;
    T     *host;
    size_t n;

    explicit list(size_t n_) : n(n_)
    {
        host = (T *)calloc(n, sizeof(T));
        assert_non_null(host);
        OK(cudaMalloc((void **)&device, n * sizeof(T)));
        put();
    }
    void put()
    {
        OK(cudaMemcpyAsync(device, host, n * sizeof(T), cudaMemcpyHostToDevice, stream));
    }
    void get()
    {
        OK(cudaMemcpyAsync(host, device, n * sizeof(T), cudaMemcpyDeviceToHost, stream));
        OK(cudaStreamSynchronize(stream));
    }
    void free_both()
    {
        free(host);
        OK(cudaFree(device));
    }
};

/* ---- kernels that both files launch ---- */

/* Each barrier divides a round of turning a row around in shared memory, twice over, from one
 * loop. */
static __global__ void turn_around(int *x, int rounds)
{
    __shared__ int row[1024];
    int            t = (int)threadIdx.x, n = (int)blockDim.x;

    for (int i = 0; i < rounds; i++) {
        row[t] = x[blockIdx.x * blockDim.x + t];
        __syncthreads();
        x[blockIdx.x * blockDim.x + t] = row[n - 1 - t] + 1;
        __syncthreads();
    }
}

static __global__ void nothing(int *)
{
}

/* ---- emulator_runtime_test.cpp ---- */

void memory_ends_where_the_device_does(void **);
void copies_go_where_they_say_or_nowhere(void **);
void events_tell_the_time_between_them(void **);
void a_captured_stream_is_replayed_in_order(void **);
void what_capture_does_not_allow_spoils_it(void **);
void streams_run_in_any_order_that_their_waits_allow(void **);
void a_fork_and_a_join_are_edges_of_one_graph(void **);
void borders_of_a_capture_cannot_be_crossed(void **);

/* A fixed list of calls, each checked; leaves: nothing is destroyed. The exit code. */
int sequence(bool leaves);

#endif
