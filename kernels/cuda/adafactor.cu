/* kernels/cuda/adafactor.cu: Adafactor (Shazeer, Stern 2018, arXiv:1804.04235), the formulas of
 * kernels/cpu/adafactor.c:
 *
 *     b = 1 - t^-0.8
 *     a matrix:  row_i = b row_i + (1 - b) (mean_j g_ij^2 + eps),  col_j = b col_j + (1 - b)
 *                (mean_i g_ij^2 + eps)
 *                u_ij  = g_ij / sqrt(row_i / mean(row)) / sqrt(col_j)
 *     else:      v_i   = b v_i + (1 - b) (g_i^2 + eps),  u_i = g_i / sqrt(v_i)
 *     p -= lr wd p,  p -= lr u / max(1, rms(u))
 *
 * row and col are fp32, g fp32 or bf16, p and master in the forms of optimizer_state.h. u is not kept: the
 * passes over g compute it again. A matrix takes three passes: sums of columns over tiles of
 * VP_ADAFACTOR_TILE rows, and from them col; sums of rows with those of (g_ij / sqrt(col_j))^2,
 * from which rms(u) follows once mean(row) is known; the update. 20 bytes an element of an fp32
 * parameter. What is not factored takes two passes, 28 bytes.
 *
 * Sums of squares are double. Their order is the shape's: a thread its own elements, the threads
 * of a block, then the blocks' sums, which lie in the workspace between the passes, by one
 * thread a column or by one block. */
#include "kernels/cuda/optimizer_state.h"

extern "C" {
#include "plan/workspace.h"
}

enum {
    WARPS = VP_BLOCK / VP_WARP,
    /* of a tile of the sums of columns: 4 of each lane */
    COLUMNS  = VP_WARP * VP_QUAD,
    ROW_COLS = 4096 /* a row of no more is summed by one warp, a longer one by one block */
};

static constexpr double eps = 1e-30;

/* What one kernel leaves to the next. */
struct adafactor_scalars {
    double b, row_mean, step_size; /* step_size: lr / max(1, rms(u)) */
};

static_assert(sizeof(adafactor_scalars) <= VP_ADAFACTOR_SCALARS * sizeof(double),
              "their place in the workspace");

struct adafactor {
    vp_gradient       g;
    float            *row, *col; /* row: v where it is not factored */
    const vp_control *control;
    int64_t           rows, cols;
    bool              aligned;
    /* in the workspace */
    adafactor_scalars *s;
    /* of the columns in each tile of rows; afterwards two of each block of the row pass */
    double *sums;
    /* (cols) 1 / sqrt(col) */
    float *by;
    /* (rows) 1 / sqrt(row / mean(row)) */
    float *of_row;
};

/* b old + (1 - b) (mean + eps) */
static __device__ inline float averaged(double b, float old, double mean)
{
    return (float)(b * (double)old + (1.0 - b) * (mean + eps));
}

/* b, for every thread of the block. */
static __device__ inline double decay_rate(const vp_control *control)
{
    __shared__ double b;

    if (threadIdx.x == 0)
        b = 1.0 - pow(VP_UPDATE_NUMBER(control), -0.8);
    __syncthreads();
    return b;
}

/* Four elements of g at c .. c + 3 of a row that begins at element `row`, those beyond its end zero.
 * VECTOR: rows begin at multiples of 16 bytes. */
template <bool VECTOR>
static __device__ inline void load_four(const vp_gradient &g, int64_t row, int64_t c, int64_t cols,
                                        float *x)
{
    if (VECTOR && c < cols) { /* cols is a multiple of 4 */
        vp_load_quad(g, row + c, x);
    } else {
#pragma unroll
        for (int j = 0; j < VP_QUAD; j++)
            x[j] = !VECTOR && c + j < cols ? vp_load(g, row + c + j) : 0.0f;
    }
}

/* ---- a matrix ---- */

/* sums[tile][col] = the sum of (g scale)^2 over the rows of a tile. A block takes COLUMNS of one
 * tile, its warps every eighth row. */
template <bool VECTOR> static __global__ void __launch_bounds__(VP_BLOCK) sum_columns(adafactor a)
{
    __shared__ double part[WARPS][COLUMNS];
    int               lane = (int)threadIdx.x % VP_WARP, warp = (int)threadIdx.x / VP_WARP;
    float             grad_scale = (float)a.control->grad_scale;
    int64_t           n_across   = (a.cols + COLUMNS - 1) / COLUMNS;
    int64_t           n_blocks = n_across * ((a.rows + VP_ADAFACTOR_TILE - 1) / VP_ADAFACTOR_TILE);

    for (int64_t block = blockIdx.x; block < n_blocks; block += gridDim.x) {
        int64_t tile = block / n_across, c = block % n_across * COLUMNS,
                r            = tile * VP_ADAFACTOR_TILE;
        int64_t end          = r + VP_ADAFACTOR_TILE < a.rows ? r + VP_ADAFACTOR_TILE : a.rows;
        double  sum[VP_QUAD] = {0.0, 0.0, 0.0, 0.0};

#pragma unroll 4
        for (r += warp; r < end; r += WARPS) {
            float x[VP_QUAD];

            load_four<VECTOR>(a.g, r * a.cols, c + lane * VP_QUAD, a.cols, x);
#pragma unroll
            for (int j = 0; j < VP_QUAD; j++) {
                double d = (double)(x[j] * grad_scale);
                sum[j] += d * d;
            }
        }
#pragma unroll
        for (int j = 0; j < VP_QUAD; j++)
            part[warp][lane * VP_QUAD + j] = sum[j];
        __syncthreads();
        if (threadIdx.x < COLUMNS && c + threadIdx.x < a.cols) {
            double total = 0.0;

            for (int w = 0; w < WARPS; w++)
                total += part[w][threadIdx.x];
            a.sums[tile * a.cols + c + threadIdx.x] = total;
        }
        __syncthreads(); /* part is free again */
    }
}

static __global__ void __launch_bounds__(VP_BLOCK) update_columns(adafactor a)
{
    double  b       = decay_rate(a.control);
    int64_t n_tiles = (a.rows + VP_ADAFACTOR_TILE - 1) / VP_ADAFACTOR_TILE;

    if (VP_SKIPS(a.control)) /* what follows works on whatever its workspace holds */
        return;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        a.s->b = b;
    for (int64_t c = (int64_t)blockIdx.x * VP_BLOCK + threadIdx.x; c < a.cols;
         c += (int64_t)gridDim.x * VP_BLOCK) {
        double sum = 0.0;
        float  col;

        for (int64_t tile = 0; tile < n_tiles; tile++)
            sum += a.sums[tile * a.cols + c];
        col      = averaged(b, a.col[c], sum / (double)a.rows);
        a.col[c] = col;
        a.by[c]  = 1.0f / sqrtf(col);
    }
}

/* The averages of rows; sums[2 block] = the sum of (g_ij / sqrt(col_j))^2 / row_i over a block's
 * rows, sums[2 block + 1] = that of row_i / rows. A block takes one row with all its threads, or
 * one with each warp. */
template <bool VECTOR, bool WHOLE_BLOCK>
static __global__ void __launch_bounds__(VP_BLOCK) update_rows(adafactor a)
{
    enum { AT_ONCE = WHOLE_BLOCK ? 1 : WARPS, THREADS = VP_BLOCK / AT_ONCE };
    __shared__ double scratch[VP_WARP], of_rows[AT_ONCE][2];
    int               thread = (int)threadIdx.x % THREADS, mine = (int)threadIdx.x / THREADS;
    float             grad_scale = (float)a.control->grad_scale;
    int64_t           n_blocks   = (a.rows + AT_ONCE - 1) / AT_ONCE;

    if (VP_SKIPS(a.control))
        return;
    for (int64_t block = blockIdx.x; block < n_blocks; block += gridDim.x) {
        const vp_gradient by_col  = {a.by, nullptr};
        int64_t           r       = block * AT_ONCE + mine;
        double            squares = 0.0, scaled = 0.0;

#pragma unroll 4
        for (int64_t c = thread * VP_QUAD; r < a.rows && c < a.cols; c += THREADS * VP_QUAD) {
            float x[VP_QUAD], by[VP_QUAD];

            load_four<VECTOR>(a.g, r * a.cols, c, a.cols, x);
            load_four<VECTOR>(by_col, 0, c, a.cols, by);
#pragma unroll
            for (int j = 0; j < VP_QUAD; j++) {
                float  y = x[j] * grad_scale;
                double d = (double)y, e = (double)(y * by[j]);
                squares += d * d;
                scaled += e * e;
            }
        }
        squares = WHOLE_BLOCK ? vp_block_sum(squares, scratch) : vp_warp_sum(squares);
        scaled  = WHOLE_BLOCK ? vp_block_sum(scaled, scratch) : vp_warp_sum(scaled);
        if (thread == 0) {
            of_rows[mine][0] = of_rows[mine][1] = 0.0;
            if (r < a.rows) {
                float row        = averaged(a.s->b, a.row[r], squares / (double)a.cols);
                a.row[r]         = row;
                of_rows[mine][0] = scaled / (double)row;
                of_rows[mine][1] = (double)row / (double)a.rows;
            }
        }
        __syncthreads();
        if (threadIdx.x < 2) {
            double total = 0.0;

            for (int i = 0; i < AT_ONCE; i++)
                total += of_rows[i][threadIdx.x];
            a.sums[2 * block + threadIdx.x] = total;
        }
        __syncthreads(); /* of_rows is free again */
    }
}

/* 1 / sqrt(row / mean(row)) */
static __global__ void __launch_bounds__(VP_BLOCK) row_factors(adafactor a)
{
    for (int64_t r = (int64_t)blockIdx.x * VP_BLOCK + threadIdx.x; r < a.rows;
         r += (int64_t)gridDim.x * VP_BLOCK)
        a.of_row[r] = (float)(1.0 / sqrt((double)a.row[r] / a.s->row_mean));
}

/* ---- what is not factored ---- */

/* v, and of each block's elements the sum of u^2 as sums[2 block]. */
static __global__ void __launch_bounds__(VP_BLOCK) update_vector_state(adafactor a)
{
    __shared__ double scratch[VP_WARP];
    double            b          = decay_rate(a.control);
    float             grad_scale = (float)a.control->grad_scale;
    int64_t count = a.rows * a.cols, n_blocks = (count + VP_NORM_PIECE - 1) / VP_NORM_PIECE;

    if (VP_SKIPS(a.control))
        return;
    for (int64_t block = blockIdx.x; block < n_blocks; block += gridDim.x) {
        double sum = 0.0;

#pragma unroll 4
        for (int j = (int)threadIdx.x; j < VP_NORM_PIECE; j += VP_BLOCK) {
            int64_t i = block * VP_NORM_PIECE + j;

            if (i < count) {
                float x  = vp_load(a.g, i) * grad_scale,
                      v  = averaged(b, a.row[i], (double)x * (double)x);
                double e = (double)(x * (1.0f / sqrtf(v)));
                a.row[i] = v;
                sum += e * e;
            }
        }
        sum = vp_block_sum(sum, scratch);
        if (threadIdx.x == 0) {
            a.sums[2 * block]     = sum;
            a.sums[2 * block + 1] = 0.0;
        }
    }
}

/* ---- both ---- */

/* One block: mean(row), and lr / max(1, rms(u)), written so that a NaN reaches the parameter. */
static __global__ void __launch_bounds__(VP_BLOCK)
    finish_sums(adafactor a, int64_t n_sums, bool factored)
{
    __shared__ double scratch[VP_WARP];
    double            squares = 0.0, mean = 0.0;

#pragma unroll 4
    for (int64_t i = threadIdx.x; i < n_sums; i += VP_BLOCK) {
        squares += a.sums[2 * i];
        mean += a.sums[2 * i + 1];
    }
    squares = vp_block_sum(squares, scratch);
    mean    = vp_block_sum(mean, scratch);
    if (threadIdx.x == 0) {
        double lr  = a.control->lr,
               rms = sqrt((factored ? mean * squares : squares) / (double)(a.rows * a.cols));

        a.s->row_mean  = mean;
        a.s->step_size = rms <= 1.0 ? lr : lr / rms;
    }
}

/* x = g_ij becomes u_ij, in the quad that begins `offset` elements after (r, c) in the matrix,
 * row after row; c < cols, offset < VP_SPAN. */
template <bool WHOLE>
static __device__ inline void matrix_update(const adafactor &a, int64_t r, int64_t c, int offset,
                                            float *x)
{
    int64_t rows_on =
        a.cols >= VP_SPAN ? (c + offset >= a.cols ? 1 : 0) : ((int)c + offset) / (int)a.cols;

    c += offset - rows_on * a.cols;
    r += rows_on;
    if (WHOLE && a.cols % VP_QUAD == 0) {
        float of_row = a.of_row[r], by[VP_QUAD];

        vp_load_quad(a.by + c, by);
#pragma unroll
        for (int j = 0; j < VP_QUAD; j++)
            x[j] = x[j] * of_row * by[j];
        return;
    }
#pragma unroll
    for (int j = 0; j < VP_QUAD; j++) {
        if (r < a.rows)
            x[j] = x[j] * a.of_row[r] * a.by[c];
        if (++c == a.cols)
            c = 0, r++;
    }
}

template <typename P, bool FACTORED> struct span_update {
    const adafactor   &a;
    const vp_param<P> &param;
    const uint32_t    *key;
    float              grad_scale, keep, step_size;

    template <bool WHOLE> __device__ inline void operator()(const vp_span<WHOLE> &at) const
    {
        float p[VP_LANE_N], u[VP_LANE_N];

        vp_param_load(param, at, p);
        vp_span_load(a.g, at, u);
#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++)
            u[j] *= grad_scale;
        if (FACTORED) {
            int64_t r = at.first / a.cols, c = at.first - r * a.cols;

#pragma unroll
            for (int half = 0; half < 2; half++)
                matrix_update<WHOLE>(a, r, c, vp_quad_offset(half), u + VP_QUAD * half);
        } else {
            float v[VP_LANE_N];

            vp_span_load(a.row, at, v);
#pragma unroll
            for (int j = 0; j < VP_LANE_N; j++)
                u[j] *= 1.0f / sqrtf(v[j]);
        }
#pragma unroll
        for (int j = 0; j < VP_LANE_N; j++)
            p[j] = vp_product_sum(keep, p[j], -step_size, u[j]);
        vp_param_store(param, key, at, p);
    }
};

template <typename P, bool FACTORED>
static __global__ void __launch_bounds__(VP_BLOCK)
    update(adafactor a, vp_param<P> param, vp_rng_stream rng, double decay)
{
    __shared__ vp_device_rng now;

    if (VP_SKIPS(a.control))
        return;
    if (threadIdx.x == 0)
        now = vp_rng_now(rng, a.control);
    __syncthreads();
    vp_each_span(a.rows * a.cols, a.aligned,
                 span_update<P, FACTORED>{a, param, now.key, (float)a.control->grad_scale,
                                          (float)(1.0 - a.control->lr * decay),
                                          (float)a.s->step_size});
}

template <typename P, bool FACTORED>
static cudaError_t launch_update(const vp_kernel_call *call, const adafactor &a,
                                 cudaStream_t stream)
{
    return VP_LAUNCH(
        (update<P, FACTORED>), vp_span_blocks(a.rows * a.cols), VP_BLOCK, 0, stream, a,
        vp_param_of<P>(call->operand[VP_ADAFACTOR_P], call->operand[VP_ADAFACTOR_MASTER]),
        call->rng, call->adafactor.decay ? call->optimizer->weight_decay : 0.0);
}

/* State and step size of a matrix. VECTOR: see load_four(). */
template <bool VECTOR> static cudaError_t launch_matrix(const adafactor &a, cudaStream_t stream)
{
    int64_t n_tiles    = (a.rows + VP_ADAFACTOR_TILE - 1) / VP_ADAFACTOR_TILE,
            n_across   = (a.cols + COLUMNS - 1) / COLUMNS;
    int64_t     n_sums = a.cols > ROW_COLS ? a.rows : (a.rows + WARPS - 1) / WARPS;
    cudaError_t e =
        VP_LAUNCH(sum_columns<VECTOR>, vp_blocks(n_tiles * n_across, 1), VP_BLOCK, 0, stream, a);

    if (e == cudaSuccess)
        e = VP_LAUNCH(update_columns, vp_blocks(a.cols, VP_BLOCK), VP_BLOCK, 0, stream, a);
    if (e == cudaSuccess && a.cols > ROW_COLS)
        e = VP_LAUNCH((update_rows<VECTOR, true>), vp_blocks(n_sums, 1), VP_BLOCK, 0, stream, a);
    else if (e == cudaSuccess)
        e = VP_LAUNCH((update_rows<VECTOR, false>), vp_blocks(n_sums, 1), VP_BLOCK, 0, stream, a);
    if (e == cudaSuccess)
        e = VP_LAUNCH(finish_sums, 1, VP_BLOCK, 0, stream, a, n_sums, true);
    if (e == cudaSuccess)
        e = VP_LAUNCH(row_factors, vp_blocks(a.rows, VP_BLOCK), VP_BLOCK, 0, stream, a);
    return e;
}

static cudaError_t launch_vector(const adafactor &a, cudaStream_t stream)
{
    int64_t     n_sums = (a.rows * a.cols + VP_NORM_PIECE - 1) / VP_NORM_PIECE;
    cudaError_t e = VP_LAUNCH(update_vector_state, vp_blocks(n_sums, 1), VP_BLOCK, 0, stream, a);

    if (e == cudaSuccess)
        e = VP_LAUNCH(finish_sums, 1, VP_BLOCK, 0, stream, a, n_sums, false);
    return e;
}

extern "C" cudaError_t vp_cuda_adafactor(const vp_kernel_call *call, cudaStream_t stream)
{
    adafactor   a;
    int64_t     n_sums;
    cudaError_t e;

    a.g       = vp_gradient_of(call, call->operand[VP_ADAFACTOR_G]);
    a.row     = static_cast<float *>(call->operand[VP_ADAFACTOR_ROW]);
    a.col     = static_cast<float *>(call->operand[VP_ADAFACTOR_COL]);
    a.control = static_cast<const vp_control *>(call->operand[VP_ADAFACTOR_CONTROL]);
    a.rows    = call->adafactor.rows;
    a.cols    = call->adafactor.cols;
    a.aligned = vp_operands_are_aligned16(call);
    /* as vp_workspace_bytes() counts it; `by` is at a multiple of 16 bytes, the sums being an
     * even number */
    n_sums   = vp_cuda_adafactor_sums(a.rows, a.cols, call->adafactor.factored != 0);
    a.s      = static_cast<adafactor_scalars *>(call->workspace);
    a.sums   = static_cast<double *>(call->workspace) + VP_ADAFACTOR_SCALARS;
    a.by     = reinterpret_cast<float *>(a.sums + n_sums);
    a.of_row = a.by + a.cols;
    if (!call->adafactor.factored)
        e = launch_vector(a, stream);
    else if (a.aligned && a.cols % VP_QUAD == 0)
        e = launch_matrix<true>(a, stream);
    else
        e = launch_matrix<false>(a, stream);
    if (e != cudaSuccess)
        return e;
    if (call->adafactor.factored)
        VP_BY_DTYPE(call->dtype, P, return (launch_update<P, true>(call, a, stream)));
    VP_BY_DTYPE(call->dtype, P, return (launch_update<P, false>(call, a, stream)));
}
