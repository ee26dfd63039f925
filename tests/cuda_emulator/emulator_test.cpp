/* tests/cuda_emulator/emulator_test.cpp: the emulator itself: that it runs kernels as a device
 * would, and finds what a device would not forgive.
 *     emulator_test             all cases, in TAP
 *     emulator_test sequence    a fixed list of calls, each checked; what is created is destroyed:
 *                               exit 0, or 3 where a call failed
 *     emulator_test leak        leaves one of everything behind
 * tests/test_cuda_emulator.sh runs it under the environment variables of README.md. */
#include "tests/cuda_emulator/emulator_test.h"

cudaStream_t stream;

/* The launch goes out; running it is the error `want` with this in its sentence, which stays
 * until the device is reset. */
static void expect_fault(cudaError_t launched, cudaError_t want, const char *part)
{
    OK(launched);
    assert_int_equal(cudaStreamSynchronize(stream), want);
    if (!strstr(vp_emulator_said(), part))
        fail_msg("said \"%s\", wanted \"%s\" in it", vp_emulator_said(), part);
    assert_int_equal(cudaGetLastError(), want);
    assert_int_equal(cudaGetLastError(), want);
    assert_int_equal(cudaStreamSynchronize(stream), want);
    OK(cudaDeviceReset());
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaGetLastError());
}

/* ---- threads ---- */

static __global__ void number_threads(unsigned *out)
{
    uint64_t block  = blockIdx.x + gridDim.x * (blockIdx.y + (uint64_t)gridDim.y * blockIdx.z);
    uint64_t thread = threadIdx.x + blockDim.x * (threadIdx.y + (uint64_t)blockDim.y * threadIdx.z);

    out[block * blockDim.x * blockDim.y * blockDim.z + thread] += (unsigned)(1000 * block + thread);
}

static void every_thread_of_every_block_runs_once(void **)
{
    list<unsigned> out(2 * 3 * 2 * 4 * 2 * 5);

    OK(VP_LAUNCH(number_threads, dim3(2, 3, 2), dim3(4, 2, 5), 0, stream, out.device));
    out.get();
    for (unsigned i = 0; i < out.n; i++)
        assert_int_equal(out.host[i], 1000 * (i / 40) + i % 40);
    out.free_both();
}

static void barriers_divide_what_is_before_from_what_is_after(void **)
{
    unsigned sizes[] = {1, 31, 32, 33, 256, 1024};

    for (unsigned n : sizes) {
        list<int> x(3 * n);

        for (unsigned i = 0; i < 3 * n; i++)
            x.host[i] = (int)i;
        x.put();
        OK(VP_LAUNCH(turn_around, 3, n, 0, stream, x.device, 3));
        x.get();
        for (unsigned i = 0; i < 3 * n; i++)
            assert_int_equal(x.host[i], i / n * n + (n - 1 - i % n) + 3);
        x.free_both();
    }
}

static __global__ void sum_blocks(const double *x, double *sums, double *greatest)
{
    __shared__ double scratch[VP_WARP];
    double            mine = x[(size_t)blockIdx.x * blockDim.x + threadIdx.x];
    double            sum = vp_block_sum(mine, scratch), most = vp_block_max(mine, scratch);

    if (threadIdx.x == blockDim.x - 1) {
        sums[blockIdx.x]     = sum;
        greatest[blockIdx.x] = most;
    }
}

static void block_sums_and_maxima_are_those_of_all_threads(void **)
{
    unsigned sizes[] = {32, 64, 256, 1024};

    for (unsigned n : sizes) {
        list<double> x(5 * n), sums(5), most(5);

        for (unsigned i = 0; i < 5 * n; i++)
            x.host[i] = (double)(i * 7919u % 1009u);
        x.put();
        OK(VP_LAUNCH(sum_blocks, 5, n, 0, stream, x.device, sums.device, most.device));
        sums.get();
        most.get();
        for (unsigned b = 0; b < 5; b++) {
            double sum = 0, greatest = 0;

            for (unsigned i = b * n; i < (b + 1) * n; i++)
                sum += x.host[i], greatest = x.host[i] > greatest ? x.host[i] : greatest;
            assert_true(sums.host[b] == sum && most.host[b] == greatest);
        }
        x.free_both(), sums.free_both(), most.free_both();
    }
}

static __global__ void shuffle_all_ways(int *out)
{
    int      lane = (int)threadIdx.x % 32, *mine = out + 8 * threadIdx.x;
    unsigned odd = lane % 2 ? 0xaaaaaaaau : 0x55555555u;

    mine[0] = __shfl_sync(0xffffffffu, 100 + lane, lane / 2);
    mine[1] = __shfl_up_sync(0xffffffffu, 100 + lane, 3);
    mine[2] = __shfl_down_sync(0xffffffffu, 100 + lane, 3);
    mine[3] = __shfl_xor_sync(0xffffffffu, 100 + lane, 5);
    mine[4] = __shfl_down_sync(0xffffffffu, 100 + lane, 1, 8);
    mine[5] = __shfl_sync(0xffffffffu, 100 + lane, 9, 8);
    mine[6] = (int)__ballot_sync(0xffffffffu, lane < 7);
    mine[7] = __shfl_xor_sync(odd, 100 + lane, 2);
}

/* One warp: d += a[0] b, or + a[1] b too; a 16 x 8, b 8 x 16, d 16 x 16, fragments as the PTX ISA lays out those of
 * mma.m16n8k8. */
static __global__ void multiply_tiles(const float *a, const float *b, float *d, int n_parts)
{
    int   g = (int)threadIdx.x / 4, t = (int)threadIdx.x % 4;
    float of_a[8], of_b[4], of_d[2][4];

    for (int i = 0; i < 4 * n_parts; i++)
        of_a[i] = a[i / 4 * 128 + (g + i % 2 * 8) * 8 + t + i % 4 / 2 * 4];
    for (int i = 0; i < 4; i++)
        of_b[i] = b[(t + i % 2 * 4) * 16 + i / 2 * 8 + g];
    for (int i = 0; i < 8; i++)
        of_d[i / 4][i % 4] = d[(g + i / 4 * 8) * 16 + i % 4 / 2 * 8 + 2 * t + i % 2];
    vp_emulator_mma_tf32(2, n_parts, of_d[0], of_d[1], of_a, of_b);
    for (int i = 0; i < 8; i++)
        d[(g + i / 4 * 8) * 16 + i % 4 / 2 * 8 + 2 * t + i % 2] = of_d[i / 4][i % 4];
}

static void tensor_cores_multiply_tiles_and_cut_13_bits(void **)
{
    for (int n_parts = 1; n_parts <= 2; n_parts++) {
        list<float> a(256), b(128), d(256);

        for (int i = 0; i < 256; i++) {
            int whole = i * 37 % 101 - 50;

            /* 11 bits behind the point, of which 10 are seen at most */
            a.host[i] = (float)whole + (whole < 0 ? -0x1p-11f : whole > 0 ? 0x1p-11f : 0.0f);
            d.host[i] = (float)i;
            if (i < 128)
                b.host[i] = (float)(i * 61 % 89 - 44);
        }
        a.put(), b.put(), d.put();
        OK(VP_LAUNCH(multiply_tiles, 1, 32, 0, stream, a.device, b.device, d.device, n_parts));
        d.get();
        for (int i = 0; i < 256; i++) {
            float sum = (float)i;

            for (int k = 0; k < 8 * n_parts; k++)
                sum +=
                    truncf(a.host[k / 8 * 128 + i / 16 * 8 + k % 8]) * b.host[k % 8 * 16 + i % 16];
            assert_true(d.host[i] == sum);
        }
        a.free_both(), b.free_both(), d.free_both();
    }
}

static void shuffles_bring_what_the_guide_says(void **)
{
    list<int> out(8 * 64);

    OK(VP_LAUNCH(shuffle_all_ways, 1, 64, 0, stream, out.device));
    out.get();
    for (int t = 0; t < 64; t++) {
        int lane = t % 32, *x = out.host + 8 * t;

        assert_int_equal(x[0], 100 + lane / 2);
        assert_int_equal(x[1], 100 + (lane < 3 ? lane : lane - 3));
        assert_int_equal(x[2], 100 + (lane > 28 ? lane : lane + 3));
        assert_int_equal(x[3], 100 + (lane ^ 5));
        assert_int_equal(x[4], 100 + (lane % 8 == 7 ? lane : lane + 1));
        assert_int_equal(x[5], 100 + lane / 8 * 8 + 1);
        assert_int_equal(x[6], 0x7f);
        assert_int_equal(x[7], 100 + (lane ^ 2));
    }
    out.free_both();
}

static __global__ void count_up(int *count, int *least, int *most, unsigned long long *sum)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    atomicAdd(count, 1);
    atomicMin(least, i - 50);
    atomicMax(most, i);
    atomicAdd(sum, (unsigned long long)i);
}

static void integer_atomics_count_every_thread(void **)
{
    list<int>                count(3);
    list<unsigned long long> sum(1);

    OK(VP_LAUNCH(count_up, 7, 100, 0, stream, count.device, count.device + 1, count.device + 2,
                 sum.device));
    count.get();
    sum.get();
    assert_int_equal(count.host[0], 700);
    assert_int_equal(count.host[1], -50);
    assert_int_equal(count.host[2], 699);
    assert_int_equal(sum.host[0], 699 * 700 / 2);
    count.free_both(), sum.free_both();
}

/* ---- shared memory ---- */

static __global__ void show_unwritten(float *out)
{
    __shared__ float x[64];
    VP_DYNAMIC_SHARED(float, y);

    if (threadIdx.x % 2)
        x[threadIdx.x] = y[threadIdx.x] = 1;
    __syncthreads();
    out[2 * threadIdx.x]     = x[threadIdx.x];
    out[2 * threadIdx.x + 1] = y[threadIdx.x];
}

static void shared_memory_begins_as_nan_in_every_block(void **)
{
    list<float> out(128);

    OK(VP_LAUNCH(show_unwritten, 3, 64, 64 * sizeof(float), stream, out.device));
    out.get();
    for (int i = 0; i < 128; i++)
        assert_true(i / 2 % 2 ? out.host[i] == 1 : out.host[i] != out.host[i]);
    out.free_both();
}

static __global__ void fill_dynamic(int *out, int n)
{
    VP_DYNAMIC_SHARED(int, x);

    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        x[i] = i;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        out[i] = x[n - 1 - i];
}

static __global__ void fill_both(int *out)
{
    __shared__ int here[1024];
    VP_DYNAMIC_SHARED(int, x);

    here[threadIdx.x] = (int)threadIdx.x;
    x[threadIdx.x]    = 0;
    __syncthreads();
    out[threadIdx.x] = here[1023 - threadIdx.x];
}

static void shared_memory_beyond_48_kib_must_be_asked_for(void **)
{
    enum { N = 20000 }; /* 80,000 bytes */
    list<int> out(N);

    assert_int_equal(VP_LAUNCH(fill_dynamic, 1, 128, N * sizeof(int), stream, out.device, (int)N),
                     cudaErrorInvalidValue);
    OK(cudaGetLastError()); /* the launch took it */
    assert_int_equal(
        cudaFuncSetAttribute(fill_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20),
        cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(fill_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            N * (int)sizeof(int)));
    OK(VP_LAUNCH(fill_dynamic, 1, 128, N * sizeof(int), stream, out.device, (int)N));
    out.get();
    for (int i = 0; i < N; i++)
        assert_int_equal(out.host[i], N - 1 - i);
    expect_fault(VP_LAUNCH(fill_both, 1, 1024, 46 << 10, stream, out.device), cudaErrorInvalidValue,
                 "of static and");
    free(out.host);
}

static __global__ void beyond_dynamic(int n)
{
    VP_DYNAMIC_SHARED(int, x);
    x[n] = 1;
}

static __global__ void beyond_static(int *out, int n)
{
    __shared__ int x[32];
    *out = x[n];
}

static void an_index_beyond_shared_memory_is_found(void **)
{
    expect_fault(VP_LAUNCH(beyond_dynamic, 1, 1, 32 * sizeof(int), stream, 32),
                 cudaErrorIllegalAddress, "byte 128 of 128 of dynamic shared memory");
    expect_fault(VP_LAUNCH(beyond_static, 1, 1, 0, stream, nullptr, 32), cudaErrorMisalignedAddress,
                 "an index beyond an array");
}

/* ---- what a device would not forgive ---- */

static __global__ void one_leaves()
{
    if (threadIdx.x == 5)
        return;
    __syncthreads();
}

static __global__ void two_barriers()
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

static __global__ void barrier_and_shuffle(int *out)
{
    if (threadIdx.x < 31)
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
    else
        __syncthreads();
}

static __global__ void lane_has_left(int *out)
{
    if (threadIdx.x != 3)
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
}

static __global__ void half_a_warp(int *out)
{
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
}

static __global__ void lane_outside(int *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1, 16);
}

static void threads_that_do_not_meet_are_a_launch_failure(void **)
{
    int *out;

    expect_fault(VP_LAUNCH(one_leaves, 2, 64, 0, stream), cudaErrorLaunchFailure,
                 "thread (5,0,0) never comes: it has returned");
    expect_fault(VP_LAUNCH(two_barriers, 1, 64, 0, stream), cudaErrorLaunchFailure,
                 "waits at __syncthreads");
    OK(cudaMalloc((void **)&out, 256));
    expect_fault(VP_LAUNCH(barrier_and_shuffle, 1, 32, 0, stream, out), cudaErrorLaunchFailure,
                 "waits at a shuffle");
    OK(cudaMalloc((void **)&out, 256));
    expect_fault(VP_LAUNCH(lane_has_left, 1, 32, 0, stream, out), cudaErrorLaunchFailure,
                 "thread (3,0,0), which has returned");
    OK(cudaMalloc((void **)&out, 256));
    expect_fault(VP_LAUNCH(half_a_warp, 1, 16, 0, stream, out), cudaErrorLaunchFailure,
                 "lane 16 of its warp, which the block does not have");
    OK(cudaMalloc((void **)&out, 256));
    expect_fault(VP_LAUNCH(lane_outside, 1, 32, 0, stream, out), cudaErrorLaunchFailure,
                 "reads lane 16, which takes no part");
}

static void what_cannot_be_launched_is_refused(void **)
{
    int here = 0;

    assert_int_equal(VP_LAUNCH(nothing, 1, 1025, 0, stream, nullptr),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(VP_LAUNCH(nothing, 1, dim3(32, 33), 0, stream, nullptr),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(VP_LAUNCH(nothing, 1, dim3(1, 1, 65), 0, stream, nullptr),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(VP_LAUNCH(nothing, 0, 1, 0, stream, nullptr), cudaErrorInvalidConfiguration);
    assert_int_equal(VP_LAUNCH(nothing, dim3(1, 65536), 1, 0, stream, nullptr),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(VP_LAUNCH(nothing, 0x80000000u, 1, 0, stream, nullptr),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(VP_LAUNCH(nothing, 1, 1, 0, stream, &here), cudaErrorInvalidValue);
    assert_non_null(strstr(vp_emulator_said(), "argument 1 is"));
    OK(cudaGetLastError());
    OK(VP_LAUNCH(nothing, 1, 1024, 0, stream, nullptr));
}

static __global__ void write_at(char *p, int64_t i)
{
    p[i] = 1;
}

#ifndef __clang__ /* whose check of alignment leaves out copies of structs */
static __global__ void read_four(const float *p, float *out)
{
    *out = vp_load16(p).x[1];
}
#endif

static __attribute__((noinline)) int deep(int n, volatile char *caller)
{
    volatile char mine[4096];

    mine[0] = caller ? caller[0] : 0;
    return n == 0 ? mine[0] : deep(n - 1, mine) + mine[0];
}

static __global__ void overflow_stack(int *out)
{
    *out = deep(1000, nullptr);
}

static void addresses_of_nothing_are_found(void **)
{
    char  *p;
    float *x;

    OK(cudaMalloc((void **)&p, 1024));
    expect_fault(VP_LAUNCH(write_at, 1, 1, 0, stream, p, 1024), cudaErrorIllegalAddress,
                 "byte 1024 of device memory of 1024 bytes");
    OK(cudaMalloc((void **)&p, 8192));
    expect_fault(VP_LAUNCH(write_at, 1, 1, 0, stream, p, -1), cudaErrorIllegalAddress,
                 "byte -1 of device memory of 8192 bytes");
    expect_fault(VP_LAUNCH(write_at, 3, 32, 0, stream, (char *)nullptr, 8), cudaErrorIllegalAddress,
                 "thread (");
#ifndef __clang__
    OK(cudaMalloc((void **)&x, 64));
    expect_fault(VP_LAUNCH(read_four, 1, 1, 0, stream, x + 1, x), cudaErrorMisalignedAddress,
                 "a misaligned access");
#endif
    OK(cudaMalloc((void **)&x, 64));
    expect_fault(VP_LAUNCH(overflow_stack, 1, 1, 0, stream, (int *)x), cudaErrorIllegalAddress,
                 "its stack of");
}

static void a_write_between_the_end_and_the_page_is_found_when_it_is_freed(void **)
{
    char *p;

    OK(cudaMalloc((void **)&p, 1000)); /* 24 bytes to the page */
    OK(VP_LAUNCH(write_at, 1, 1, 0, stream, p, 1003));
    OK(cudaFree(p));
    assert_non_null(
        strstr(vp_emulator_said(), "device memory of 1000 bytes was written at byte 1003"));
}

/* Right only where thread 0 runs before the others. */
static __global__ void no_barrier(float *out)
{
    __shared__ float x;

    if (threadIdx.x == 0)
        x = 1;
    out[threadIdx.x] = x;
}

/* The second value of a warp may lie where another still reads its first. */
static __global__ void no_barrier_behind(int *out)
{
    __shared__ int of_warp[32];
    int            warp = (int)threadIdx.x / 32, n_warps = (int)blockDim.x / 32, sum = 0;

    for (int round = 0; round < 2; round++) {
        if (threadIdx.x % 32 == 0)
            of_warp[warp] = 1 + round;
        __syncthreads();
        for (int w = 0; w < n_warps; w++)
            sum += of_warp[w];
    }
    out[threadIdx.x] = sum;
}

/* Right only where blocks run upwards. */
static __global__ void takes_turns(int *turn, int *out)
{
    out[blockIdx.x] = (*turn)++;
}

static void another_order_shows_races(void **)
{
    const vp_emulator_order orders[] = {VP_ORDER_FORWARD, VP_ORDER_REVERSE, VP_ORDER_SHUFFLE};

    for (vp_emulator_order order : orders) {
        list<float>  x(256);
        list<int>    turn(1), out(100), behind(256);
        list<double> numbers(10 * 256), sums(10), most(10);
        bool         x_right = true, turns_right = true, behind_right = true;
        double       sum = 0;

        vp_emulator_set_order(order, 7);
        for (unsigned i = 0; i < numbers.n; i++)
            numbers.host[i] = 1.0 / (1 + i);
        numbers.put();
        OK(VP_LAUNCH(no_barrier, 1, 256, 0, stream, x.device));
        OK(VP_LAUNCH(takes_turns, 100, 1, 0, stream, turn.device, out.device));
        OK(VP_LAUNCH(sum_blocks, 10, 256, 0, stream, numbers.device, sums.device, most.device));
        OK(VP_LAUNCH(no_barrier_behind, 1, 256, 0, stream, behind.device));
        x.get(), out.get(), sums.get(), behind.get();
        for (int i = 0; i < 256; i++)
            x_right &= x.host[i] == 1;
        for (int i = 0; i < 100; i++)
            turns_right &= out.host[i] == i;
        for (int i = 0; i < 256; i++)
            behind_right &= behind.host[i] == 8 + 16;
        for (int i = 0; i < 10; i++)
            sum += i * sums.host[i];
        assert_false(behind_right);
        assert_true(x_right == (order == VP_ORDER_FORWARD) &&
                    turns_right == (order == VP_ORDER_FORWARD));
        static double first_sum;
        if (order == VP_ORDER_FORWARD)
            first_sum = sum;
        assert_true(sum == first_sum);
        x.free_both(), turn.free_both(), out.free_both(), behind.free_both(), numbers.free_both(),
            sums.free_both(), most.free_both();
    }
    vp_emulator_set_order(VP_ORDER_FORWARD, 1);
}

static int open_stream(void **)
{
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
}

static int close_stream(void **)
{
    return cudaStreamDestroy(stream);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_of_every_block_runs_once),
        cmocka_unit_test(barriers_divide_what_is_before_from_what_is_after),
        cmocka_unit_test(block_sums_and_maxima_are_those_of_all_threads),
        cmocka_unit_test(shuffles_bring_what_the_guide_says),
        cmocka_unit_test(tensor_cores_multiply_tiles_and_cut_13_bits),
        cmocka_unit_test(integer_atomics_count_every_thread),
        cmocka_unit_test(shared_memory_begins_as_nan_in_every_block),
        cmocka_unit_test(shared_memory_beyond_48_kib_must_be_asked_for),
        cmocka_unit_test(an_index_beyond_shared_memory_is_found),
        cmocka_unit_test(threads_that_do_not_meet_are_a_launch_failure),
        cmocka_unit_test(what_cannot_be_launched_is_refused),
        cmocka_unit_test(addresses_of_nothing_are_found),
        cmocka_unit_test(a_write_between_the_end_and_the_page_is_found_when_it_is_freed),
        cmocka_unit_test(another_order_shows_races),
        cmocka_unit_test(memory_ends_where_the_device_does),
        cmocka_unit_test(copies_go_where_they_say_or_nowhere),
        cmocka_unit_test(events_tell_the_time_between_them),
        cmocka_unit_test(a_captured_stream_is_replayed_in_order),
        cmocka_unit_test(what_capture_does_not_allow_spoils_it),
        cmocka_unit_test(streams_run_in_any_order_that_their_waits_allow),
        cmocka_unit_test(a_fork_and_a_join_are_edges_of_one_graph),
        cmocka_unit_test(borders_of_a_capture_cannot_be_crossed),
    };

    if (argc == 2 && strcmp(argv[1], "sequence") == 0)
        return sequence(false);
    if (argc == 2 && strcmp(argv[1], "leak") == 0)
        return sequence(true);
    return cmocka_run_group_tests(tests, open_stream, close_stream);
}
