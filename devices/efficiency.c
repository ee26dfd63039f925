#include "devices/efficiency.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

/* A kernel launch on a GPU, or an OpenMP region on the CPU: ocannl#488 measured 2.6 to 6.4 us for a
 * CUDA launch and 0.58 us for a node of a recorded graph, to which a kernel's own start and end come. */
static const double LAUNCH_S = VP_LAUNCH_S;

/* What a link carries of its stated rate: 24 to 28 bytes of headers for each 256 of a PCIe packet, and
 * what flow control costs; 25 to 26 GB/s of 31.5 are usual on PCIe 4.0 x16. */
static const double LINK_SHARE = 0.8;

/* What memory carries of its stated rate: a copy on an H200 4.3 TB/s of 4.8; cub's sum on an H100
 * 3193 GB/s of 3352 (pranjalssh/fast.cu, README.md), which only reads. Taken for every card. */
static const double MEMORY_SHARE = 0.9;

/* The same of PyTorch's own kernels, each an operator: PyTorch 2.9 on an H200 3.37 TB/s of 4.8 (maximum of two fp16 arrays of 42 MB)
 * and 3.53 (where, 33 MB), other operators 2.5 to 3.0 (tile-ai/TileOPs#500, #512, #537); the forward and backward of an unfused
 * attention on an A100, its products among them, 40.3 GB in 41.7 ms, 0.62 of 1555 GB/s (arXiv:2205.14135, figure 2); norms,
 * activations and losses of ours on an H200 3.4 TB/s, updates 3.5 (bench/README.md). Taken for every card. */
static const double OPERATOR_MEMORY_SHARE = 0.7;

/* Output of one block of threads of a product: the largest that cuBLAS uses on these cards. */
enum { TILE_ROWS = 128, TILE_COLS = 256, MIN_SPLIT_DEPTH = 1024 };

/* Keys that the tiles on a causal mask's diagonal compute in vain, for each query. */
static const double DIAGONAL_KEYS = 64;

#define VP_DTYPE_NONE VP_DTYPE_NONE
#define F32           VP_DTYPE_F32
#define BF16          VP_DTYPE_BF16
#define TF32          VP_DTYPE_TF32

/* Of several rows that fit, the first counts. Shares of products are what the law above gives for the
 * measured product; what is bound by memory shows in its bytes. */
/* clang-format off */
#define PRODUCT(of, low, high, typical, most, where) \
    {.work = VP_WORK_PRODUCT, .dtype = of, .from = low, .to = high, .share = typical, .best = most, .source = where},
#define ATTENTION(pass, of, low, high, s128, h128, s64, h64, where) \
    {.work = VP_WORK_ATTENTION_##pass, .dtype = of, .from = low, .to = high, .share = s128, .half = h128, \
     .share_64 = s64, .half_64 = h64, .source = where},
#define OTHER(name, typical, where) \
    {.work = VP_WORK_##name, .dtype = VP_DTYPE_NONE, .to = 999, .share = typical, .source = where},
static const vp_efficiency table[] = {
    PRODUCT(BF16, 80, 80, 1.0, 0.869,
            "cuBLAS on an A100, CUDA 11 Features Revealed (NVIDIA blog), figure 6: 236, 260 and 291 "
            "TFLOP/s at 3072, 4096 and 8192 cubed, of 312; best of many shapes, random data: 271.2 at "
            "1024 x 10240 x 5120 (stas00/ml-engineering, MAMF table)")
    PRODUCT(BF16, 90, 90, 0.9, 0.803,
            "cuBLAS on an H100: 716 and 795 TFLOP/s at 4096 and 8192 cubed, of 989 (pranjalssh/fast.cu, "
            "README.md); on an H200 769 to 798 at 8192 cubed; best of many shapes: 794.5 (MAMF table)")
    PRODUCT(BF16, 100, 103, 1.0, 0.776,
            "B200, best of many shapes: 1745 TFLOP/s of 2250, at 1792 x 16128 x 3072 (MAMF table)")
    PRODUCT(BF16, 0, 999, 1.0, 0.962,
            "cuBLAS on an L20 (8.9): 105 to 115 TFLOP/s of 119.5 (DefTruth/CUDA-Learn-Notes, hgemm). "
            "Taken for 7.5, 8.6, 8.7 and 12.0 too, where nothing was found")
    PRODUCT(F32, 75, 80, 1.0, 0.974,
            "cuBLAS on an A100, figure 6 again: 19 TFLOP/s of 19.5; multiprocessors of 64 lanes")
    PRODUCT(F32, 90, 90, 0.84, 0.84,
            "cuBLASLt on an H200 (bench/results/h200-sxm-141gb-2026-11-26-gpu-speed.json): the 150 products of "
            "GPT-2's step of 8 x 1024 tokens, each timed: 47.4 TFLOP/s together")
    PRODUCT(F32, 0, 999, 0.65, 0.65,
            "cuBLAS on an RTX A6000 (8.6): 23.27 TFLOP/s of 38.7 at 4096 cubed (siboehm.com, CUDA-MMM); "
            "taken for all multiprocessors of 128 lanes")
    /* rate x keys / (keys + half) */
    ATTENTION(FWD, BF16, 80, 80, 0.657, 185, 0.57, 165,
              "FlashAttention-2 on an A100, forward and backward together (flash-attention, "
              "flash2_a100_fwd_bwd_benchmark.png): 187 and 162 TFLOP/s at 2k for heads of 128 and 64")
    ATTENTION(BWD, BF16, 80, 80, 0.657, 185, 0.57, 165, "the same, both passes together")
    ATTENTION(FWD, BF16, 90, 90, 0.625, 128, 0.42, 128,
              "cuDNN on an H100 (arXiv:2407.08608, figure 5): heads of 128: 497, 574, 617 TFLOP/s at "
              "512, 1k, 2k; of 64: 335, 373, 395")
    ATTENTION(BWD, BF16, 90, 90, 0.545, 370, 0.465, 350,
              "cuDNN on an H100 (arXiv:2407.08608, figure 6): heads of 128: 305, 408, 465 TFLOP/s at "
              "512, 1k, 2k; of 64: 266, 348, 395")
    ATTENTION(FWD, BF16, 0, 999, 0.657, 185, 0.57, 165,
              "nothing found for this generation: as FlashAttention-2 on an A100")
    ATTENTION(BWD, BF16, 0, 999, 0.657, 185, 0.57, 165,
              "nothing found for this generation: as FlashAttention-2 on an A100")
    ATTENTION(FWD, TF32, 0, 999, 0.09, 128, 0.09, 128,
              "ours on an H200 (bench/results/h200-sxm-141gb-2026-11-26-gpu-first.json): 39.6 TFLOP/s at 2k, heads "
              "of 64, causal")
    ATTENTION(BWD, TF32, 0, 999, 0.076, 128, 0.076, 128, "the same: 33.3 TFLOP/s")
    ATTENTION(FWD, F32, 0, 999, 0.37, 128, 0.37, 128, "the same, by ordinary cores: 22.0 TFLOP/s")
    ATTENTION(BWD, F32, 0, 999, 0.30, 128, 0.30, 128, "the same: 18.0 TFLOP/s")
    /* the operations of all else: Muon's products, the few of element-wise kernels */
    OTHER(ELEMENTWISE, 0.9, "bound by memory: MEMORY_SHARE")
    OTHER(OPERATOR, 0.9, "bound by memory: OPERATOR_MEMORY_SHARE")
    OTHER(UPDATE, 0.65, "bound by memory: MEMORY_SHARE; Muon's are fp32 products")
    OTHER(COPY, 1.0, "bound by its link: LINK_SHARE")
};
/* clang-format on */

/* Second-level caches, of kernels that read one array and write another over and over (te42kyfo/gpu-benches, gpu-small-kernels):
 * the rate while both are in the cache, in bytes for each fp32 operation of the sheet, as both grow with multiprocessors and clock;
 * and up to how many bytes together, by the cache's size, they run at that rate, and from how many on at the memory's. */
static const struct {
    int         from, to;
    double      bytes_per_flop;
    double      full, lost;
    const char *source;
} caches[] = {
    {80, 80, 0.156, 0.65, 0.98,
     "a100_80_graph.txt, 40 MB: 3042 GB/s at 20 MB, 2864 at 27, 2193 at 37, memory's 1600 at 40"},
    {89, 89, 0.0486, 0.80, 1.60,
     "l40_graph.txt, 96 MB: 4387 GB/s at 68 MB, 3929 at 80, 1620 at 100, 1272 at 127, memory's 759 at 160"},
    {90, 90, 0.0637, 0.80, 1.15,
     "h200_graph.txt, 50 MB: 4258 GB/s at 29 MB, 4105 at 40, 3217 at 50, memory's 2928 at 58"},
    {120, 120, 0.0486, 0.80, 1.60, "nothing found for this generation: as an L40"},
};

bool vp_efficiency_at(int idx, vp_efficiency *out)
{
    if (idx < 0 || idx >= (int)(sizeof table / sizeof *table))
        return false;
    *out = table[idx];
    return true;
}

static const vp_efficiency *row_of(vp_work work, vp_dtype dtype, int capability)
{
    const vp_efficiency *row = NULL;

    for (size_t i = 0; !row && i < sizeof table / sizeof *table; i++)
        if (table[i].work == work && (table[i].dtype == VP_DTYPE_NONE || table[i].dtype == dtype) &&
            table[i].from <= capability && capability <= table[i].to)
            row = &table[i];
    assert(row); /* each work and dtype ends in a row for every capability */
    return row;
}

vp_work vp_work_of(vp_kernel kernel)
{
    switch (kernel) {
    case VP_K_ATTENTION_FWD:
        return VP_WORK_ATTENTION_FWD;
    case VP_K_ATTENTION_BWD:
        return VP_WORK_ATTENTION_BWD;
    case VP_K_COPY_START:
    case VP_K_COPY_DONE:
        return VP_WORK_COPY;
    case VP_K_ADAFACTOR:
    case VP_K_MUON:
    case VP_K_GRAD_SUMSQ:
    case VP_K_CLIP_SCALE:
        return VP_WORK_UPDATE;
    default:
        return vp_kernel_is_product(kernel)                          ? VP_WORK_PRODUCT
               : vp_kernel_info_of(kernel)->kind == VP_KERNEL_UPDATE ? VP_WORK_UPDATE
                                                                     : VP_WORK_ELEMENTWISE;
    }
}

const char *vp_work_name(vp_work work)
{
    static const char *const names[] = {
#define X(name, text) text,
        VP_WORK_TABLE(X)
#undef X
    };

    assert(work < VP_N_WORKS);
    return names[work];
}

/* ---- how full the multiprocessors are ---- */

/* Share of the rounds of tiles that have work, where the product may also be cut along its depth. */
static double filled(double tiles, int64_t depth, int multiprocessors)
{
    double best = 0;

    for (int64_t split = 1; split == 1 || (split <= 16 && depth / split >= MIN_SPLIT_DEPTH);
         split *= 2) {
        double rounds = tiles * (double)split / multiprocessors;
        best          = fmax(best, rounds / ceil(rounds));
    }
    return best;
}

static double waves(const vp_device *d, const vp_work_call *call)
{
    double alike   = call->n_alike > 1 ? (double)call->n_alike : 1;
    double lying   = ceil((double)call->rows / TILE_ROWS) * ceil((double)call->cols / TILE_COLS),
           upright = ceil((double)call->rows / TILE_COLS) * ceil((double)call->cols / TILE_ROWS);

    if (d->multiprocessors <= 0 || call->rows <= 0)
        return 1;
    return fmax(filled(alike * lying, call->depth, d->multiprocessors),
                filled(alike * upright, call->depth, d->multiprocessors));
}

/* Share of its rate that an attention of this length reaches. */
static double attention_share(const vp_efficiency *e, const vp_work_call *call)
{
    double wide    = fmin(fmax(((double)call->head_dim - 64) / 64, 0), 1),
           thin    = fmin((double)call->head_dim / 64, 1);
    double in_vain = call->masked ? DIAGONAL_KEYS : 0;
    double half    = e->half_64 + wide * (e->half - e->half_64),
           share   = e->share_64 + wide * (e->share - e->share_64);

    return thin * share * call->keys / (call->keys + half) * call->keys / (call->keys + in_vain);
}

/* ---- seconds ---- */

static bool is_measured(const vp_device *d, vp_device_figure figure)
{
    return d->is_cpu || d->sources[figure].class_ == VP_CLASS_MEASURED;
}

/* The figure and the row of a rate. Narrow products are taken to reach the share that those of 16 bits do;
 * attention in TF32 has rows of its own. */
static const struct {
    vp_device_figure figure;
    vp_dtype         dtype;
} rates[] = {
    [VP_RATE_FP32] = {VP_FIGURE_FP32, VP_DTYPE_F32},
    [VP_RATE_TF32] = {VP_FIGURE_TF32, VP_DTYPE_BF16},
    [VP_RATE_BF16] = {VP_FIGURE_BF16, VP_DTYPE_BF16},
    [VP_RATE_FP16] = {VP_FIGURE_FP16, VP_DTYPE_BF16},
    [VP_RATE_FP8]  = {VP_FIGURE_FP8, VP_DTYPE_BF16},
    [VP_RATE_INT8] = {VP_FIGURE_INT8, VP_DTYPE_BF16},
};

static vp_dtype dtype_of(const vp_work_call *call)
{
    bool attention = call->work == VP_WORK_ATTENTION_FWD || call->work == VP_WORK_ATTENTION_BWD;

    return attention && call->rate == VP_RATE_TF32 ? VP_DTYPE_TF32 : rates[call->rate].dtype;
}

static double compute_share(const vp_device *d, const vp_work_call *call, const vp_efficiency *e)
{
    if (is_measured(d, rates[call->rate].figure))
        return 1;
    if (call->work == VP_WORK_PRODUCT)
        return e->share * waves(d, call);
    if (call->work == VP_WORK_ATTENTION_FWD || call->work == VP_WORK_ATTENTION_BWD)
        return attention_share(e, call);
    return e->share;
}

double vp_moved_seconds(const vp_device *d, double bytes)
{
    return bytes / (d->memory_bytes_per_s * (is_measured(d, VP_FIGURE_MEMORY) ? 1 : MEMORY_SHARE));
}

double vp_operator_seconds(const vp_device *d, double bytes)
{
    return vp_moved_seconds(d, bytes) * (d->is_cpu ? 1 : MEMORY_SHARE / OPERATOR_MEMORY_SHARE);
}

/* Products side by side are an unfused attention's: each reads or writes its matrix, and is bound by that. */
static double memory_seconds(const vp_device *d, const vp_work_call *call, double bytes)
{
    return call->work == VP_WORK_OPERATOR || (call->work == VP_WORK_PRODUCT && call->n_alike > 1)
               ? vp_operator_seconds(d, bytes)
               : vp_moved_seconds(d, bytes);
}

/* The row of a card's cache, or -1. */
static int cache_of(const vp_device *d)
{
    for (int i = 0; d->l2_bytes > 0 && i < (int)(sizeof caches / sizeof *caches); i++)
        if (caches[i].from <= d->compute_capability && d->compute_capability <= caches[i].to)
            return i;
    return -1;
}

/* Of bytes last used 0 to `distance` bytes ago, how many are found: all below `full`, none from `lost` on, fewer and fewer between. */
static double found_within(double full, double lost, double distance)
{
    double rest = lost - fmin(fmax(distance, full), lost);

    return fmin(distance, full) +
           ((lost - full) * (lost - full) - rest * rest) / (2 * (lost - full));
}

double vp_cache_share(const vp_device *d, double first, double last)
{
    double near = fmin(first, last), far = fmax(fmax(first, last), near + 1), full, lost;
    int    row = cache_of(d);

    assert(near >= 0);
    if (row < 0)
        return 0;
    full = caches[row].full * (double)d->l2_bytes;
    lost = caches[row].lost * (double)d->l2_bytes;
    return (found_within(full, lost, far) - found_within(full, lost, near)) / (far - near);
}

/* Bytes that the cache holds; no slower than from memory, where another sheet states more of it than was measured beside the cache. */
static double cached_seconds(const vp_device *d, double bytes)
{
    int row = cache_of(d);

    return row < 0 ? vp_moved_seconds(d, bytes)
                   : fmin(bytes / (caches[row].bytes_per_flop * d->fp32_flop_per_s),
                          vp_moved_seconds(d, bytes));
}

/* Seconds of operations and of bytes; products take one after the other, and are never faster than the best that
 * anybody found. */
vp_roofline vp_roofline_of_work(const vp_device *d, const vp_work_call *call)
{
    const vp_efficiency *e    = row_of(call->work, dtype_of(call), d->compute_capability);
    double               peak = vp_device_flop_per_s(d, call->rate);
    vp_roofline          r    = {.flop = call->flop, .bytes = call->bytes, .launch_s = LAUNCH_S};

    assert(peak > 0 && d->memory_bytes_per_s > 0);
    if (r.flop > 0)
        r.compute_s = r.flop / (peak * compute_share(d, call, e));
    r.memory_s = memory_seconds(d, call, r.bytes - call->cached) + cached_seconds(d, call->cached);
    if (call->work == VP_WORK_PRODUCT && !d->is_cpu) {
        double best = is_measured(d, rates[call->rate].figure) ? 1 : e->best;
        r.seconds   = fmax(r.compute_s + r.memory_s, r.flop / (peak * best)) + r.launch_s;
    } else {
        r.seconds = fmax(r.compute_s, r.memory_s) + r.launch_s;
    }
    return r;
}

static vp_roofline copy_of(const vp_device *d, int64_t bytes)
{
    /* within one memory a copy reads and writes */
    double share  = is_measured(d, VP_FIGURE_HOST_LINK) ? 1 : LINK_SHARE,
           rate   = d->host_link_bytes_per_s > 0 ? share * d->host_link_bytes_per_s
                                                 : d->memory_bytes_per_s / 2;
    vp_roofline r = {
        .bytes = (double)bytes, .memory_s = (double)bytes / rate, .launch_s = LAUNCH_S};

    r.seconds = r.memory_s + r.launch_s;
    return r;
}

/* The shape of a product of vplan's own, and what its attention's queries see. */
static void add_shape(vp_work_call *call, vp_kernel kernel, const int64_t *ints)
{
    if (call->work == VP_WORK_PRODUCT) {
        const vp_linear_ints *n = vp_linear_ints_of(ints);
        call->rows              = kernel == VP_K_LINEAR_BWD_WEIGHT ? n->in : n->rows;
        call->cols              = kernel == VP_K_LINEAR_BWD_INPUT ? n->in : n->out;
        call->depth             = kernel == VP_K_LINEAR_BWD_WEIGHT  ? n->rows
                                  : kernel == VP_K_LINEAR_BWD_INPUT ? n->out
                                                                    : n->in;
    } else if (call->work == VP_WORK_ATTENTION_FWD || call->work == VP_WORK_ATTENTION_BWD) {
        const vp_attention_ints *n    = vp_attention_ints_of(ints);
        double                   each = call->work == VP_WORK_ATTENTION_FWD ? 4.0 : 10.0;
        call->keys     = call->flop / (each * (double)n->batch * (double)n->heads * (double)n->seq *
                                   (double)n->head_dim);
        call->head_dim = n->head_dim;
        call->masked   = n->causal || n->window;
    }
}

/* What vplan's own attention multiplies by in 16 bits: kernels/cuda/README.md. */
static vp_device_rate own_rate(const vp_device *d)
{
    return vp_device_flop_per_s(d, VP_RATE_TF32) > 0 ? VP_RATE_TF32 : VP_RATE_FP32;
}

vp_roofline vp_roofline_of(const vp_device *d, vp_kernel kernel, vp_dtype dtype,
                           const int64_t *ints, uint32_t lacks)
{
    if (kernel == VP_K_COPY_DONE)
        return (vp_roofline){0};
    if (kernel == VP_K_COPY_START)
        return copy_of(d, vp_copy_start_ints_of(ints)->count);

    vp_work_call call = {.work  = vp_work_of(kernel),
                         .rate  = lacks & VP_LACKS_LIBRARY && !d->is_cpu         ? own_rate(d)
                                  : dtype == VP_DTYPE_F16                        ? VP_RATE_FP16
                                  : dtype == VP_DTYPE_TF32                       ? VP_RATE_TF32
                                  : vp_dtype_of_operands(dtype) == VP_DTYPE_BF16 ? VP_RATE_BF16
                                                                                 : VP_RATE_FP32,
                         .flop  = vp_kernel_flop(kernel, ints),
                         .bytes = vp_kernel_bytes_moved(kernel, dtype, ints, lacks)};

    add_shape(&call, kernel, ints);
    return vp_roofline_of_work(d, &call);
}

double vp_host_bytes_per_s(const vp_device *d)
{
    return d->host_update_bytes_per_s > 0 ? d->host_update_bytes_per_s : VP_HOST_BYTES_PER_S;
}

double vp_host_update_seconds(const vp_device *d, double bytes)
{
    return bytes / vp_host_bytes_per_s(d) + LAUNCH_S;
}

double vp_copy_seconds(const vp_device *d, int64_t bytes)
{
    return copy_of(d, bytes).seconds;
}
