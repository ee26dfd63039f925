#include "trainers/torch/symbols.h"

#include "base/checked.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The last part of n that is cut in parts of a size. */
static int64_t last_of(int64_t n, int64_t size)
{
    return n > 0 ? n - (n - 1) / size * size : 0;
}

static int64_t last_power(int64_t n)
{
    int64_t p = 1;

    while (p <= n / 2)
        p *= 2;
    return p;
}

/* The rule of ATen/native/cuda/Reduce.cuh (setReduceConfig), torch 2.7 to 2.15: columns go to lanes, four
 * at a time where they divide; rows to warps, and to several thread blocks where a thread would have
 * 256 rows or more and the card is not full. */
vp_sum_scratch vp_scratch_of_sum(int64_t outputs, int64_t inputs, const vp_symbol_card *card)
{
    int64_t vec    = outputs % 4 == 0 ? 4 : outputs % 2 == 0 ? 2 : 1;
    int64_t top    = 512 / vec;
    int64_t width  = least(last_power(most(outputs / vec, 1)), top);
    int64_t height = least(last_power(inputs), top / least(width, 32));

    width = least(width, top / height);
    if (inputs < least(height * 16, 256))
        return (vp_sum_scratch){0};
    int64_t values = vp_ceil_div(inputs, height);
    int64_t grid   = vp_ceil_div(outputs / vec, width);
    int64_t target = card->processors * (card->threads / (width * height));
    if (values < 256 || grid > target || grid == 0)
        return (vp_sum_scratch){0};
    int64_t blocks =
        most(least(vp_ceil_div(target, grid), vp_ceil_div(values, 16)), vp_ceil_div(values, 256));
    if (blocks <= 1)
        return (vp_sum_scratch){0};
    return (vp_sum_scratch){vp_mul(vp_mul(4, vp_mul(outputs, blocks)), width * vec), 4 * grid};
}

/* any() over all of so many booleans: a byte a thread block, by the same rule with one output, whose inputs go to the 512
 * threads of a block. */
static int64_t scratch_of_any(int64_t inputs, const vp_symbol_card *card)
{
    int64_t values = vp_ceil_div(inputs, 512);
    int64_t blocks = most(least(card->processors * (card->threads / 512), vp_ceil_div(values, 16)),
                          vp_ceil_div(values, 256));

    return values >= 256 && blocks > 1 ? blocks : 0;
}

/* Into how many parts flash attention 2 cuts the keys in its forward kernel, 0 for one
 * (num_splits_heuristic): only where the card is not full, and without dropout. */
static int64_t splits_of(const vp_symbols *s, int64_t heads, int64_t d, int64_t queries,
                         int64_t keys)
{
    int64_t blocks = vp_mul(heads, vp_ceil_div(queries, 64));
    int64_t n      = vp_ceil_div(keys, d <= 64 ? 256 : d <= 128 ? 128 : 64);
    int64_t slots = 2 * s->card.processors, top = least(128, least(slots, n));
    float   best = 0;

    if (vp_overflowed(blocks) || (float)blocks >= 0.8F * (float)slots)
        return 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 1; i <= top; i++) {
            float waves = (float)(blocks * i) / (float)slots;
            float eff   = waves / (float)vp_ceil_div(blocks * i, slots);
            if (i > 1 && vp_ceil_div(n, i) == vp_ceil_div(n, i - 1))
                continue;
            if (pass == 0)
                best = eff > best ? eff : best;
            else if (eff >= 0.85F * best)
                return i > 1 ? i : 0;
        }
    return 0;
}

/* The same of a batch's own heads. */
static int64_t flash_splits(const vp_symbols *s, int64_t queries, int64_t keys)
{
    return splits_of(s, vp_mul(s->at[VP_SYM_B], s->at[VP_SYM_a]), s->at[VP_SYM_d], queries, keys);
}

/* Columns of the partial sums of a look-up's gradient, n look-ups in a table of so many rows: two where
 * rows are few enough for blocks of their own and each is looked up often, which is another kernel. Found
 * by trying torch 2.11's with 66, 132 and 66,000 multiprocessors. */
static int64_t partial_width(int64_t n, int64_t rows, int64_t width, const vp_symbol_card *card)
{
    int64_t blocks = vp_ceil_div(width, 1024);

    return rows * blocks < 4 * card->processors && n > rows * (40 * blocks - 10) ? 2 : width;
}

/* Look-ups in a table, their gradient by the kernel for many: CUB's sort of them, equal rows' runs, a
 * prefix sum over those; kernels of compute capability 9.0. */
typedef struct look_up {
    int64_t rows, runs, width, sort, unique, sums;
} look_up;

static look_up scratch_of_look_up(int64_t n, int64_t table, int64_t width,
                                  const vp_symbol_card *card)
{
    int64_t rows = least(n, table);

    return (look_up){.rows  = rows,
                     .runs  = n / 10 + rows,
                     .width = partial_width(n, table, width, card),
                     .sort =
                         255 + 2 * vp_round_up(8 * n, 256) + 16640 + 1024 * vp_ceil_div(n, 4608),
                     .unique = 511 + vp_round_up(16 * (32 + vp_ceil_div(n, 4480)), 256),
                     .sums   = 511 + vp_round_up(16 * (32 + vp_ceil_div(rows, 896)), 256)};
}

/* What follows from the sequence of targets and the buckets of distances. */
static void complete_targets(vp_symbols *s)
{
    int64_t *at = s->at, d = at[VP_SYM_D], seq = at[VP_SYM_S];

    at[VP_SYM_m]    = d - 1;
    at[VP_SYM_S16]  = vp_round_up(seq, 16);
    at[VP_SYM_D16]  = vp_round_up(d, 16);
    at[VP_SYM_D32]  = vp_round_up(d, 32);
    at[VP_SYM_D128] = vp_round_up(d, 128);
    at[VP_SYM_DK]   = vp_round_up(d, at[VP_SYM_dk]);
    at[VP_SYM_DQ]   = at[VP_SYM_DK] / 64;
    at[VP_SYM_DH]   = at[VP_SYM_DK] / at[VP_SYM_dk];
    at[VP_SYM_NSD]  = flash_splits(s, d, d);
    at[VP_SYM_NSC]  = flash_splits(s, d, seq);
    at[VP_SYM_ND]   = at[VP_SYM_B] * d;
    at[VP_SYM_NW]   = seq * seq;
    at[VP_SYM_NZ]   = d * d;
    for (int i = 0; i < 3; i++) {
        look_up x          = scratch_of_look_up(at[VP_SYM_ND + i], at[i == 0 ? VP_SYM_V : VP_SYM_W],
                                                at[i == 0 ? VP_SYM_h : VP_SYM_a], &s->card);
        at[VP_SYM_MD + i]  = x.rows;
        at[VP_SYM_ED + i]  = x.runs;
        at[VP_SYM_HD + i]  = x.width;
        at[VP_SYM_XD + i]  = x.sums;
        at[VP_SYM_XSD + i] = x.sort;
        at[VP_SYM_XUD + i] = x.unique;
    }
}

/* Of the sort in the gradient of n rows taken from a table: CUB's, the passes of eight bits that a row's
 * number needs, above 4,096 rows; with one pass nothing is kept between them. Compute capability 9.0. */
static int64_t scratch_of_index(int64_t n, int64_t bits)
{
    int64_t passes = vp_ceil_div(bits, 8), kept = passes > 1 ? 2 * vp_round_up(8 * n, 256) : 0;

    return 511 + kept + 2048 * passes + 1024 * vp_ceil_div(n, 4608);
}

static int64_t bits_of(int64_t n)
{
    int64_t bits = 0;

    for (; n; n /= 2)
        bits++;
    return bits;
}

/* Tokens that are sorted by their experts; rows taken in that order, and back. */
static void complete_experts(vp_symbols *s)
{
    int64_t *at = s->at, n = at[VP_SYM_N] * at[VP_SYM_t];

    at[VP_SYM_XR] = scratch_of_index(n, 64);
    at[VP_SYM_XN] = scratch_of_index(n, bits_of(at[VP_SYM_N]));
    at[VP_SYM_XI] = scratch_of_index(n, bits_of(n));
    at[VP_SYM_XE] = scratch_of_index(n, bits_of(at[VP_SYM_E]));
}

/* Targets' positions that index their table; a sort of few rows is one kernel. */
static void complete_written(vp_symbols *s)
{
    int64_t *at = s->at, n = at[VP_SYM_ND];

    at[VP_SYM_XDP] = n > 2304 ? scratch_of_index(n, bits_of(at[VP_SYM_P] - 1)) : 1;
}

/* Of counting what a mask of n elements holds. */
static int64_t scratch_of_count(int64_t n, int64_t processors)
{
    return n > 4096 ? 255 + vp_round_up(160 * processors, 256) : 1;
}

int64_t vp_symbols_learnt(const vp_symbols *s)
{
    return s->at[VP_SYM_B] * (s->at[VP_SYM_l] ? s->at[VP_SYM_l] : s->at[VP_SYM_n]);
}

/* Rows that are learnt from, all but a sequence's last or a completion's, taken by a mask of all but the last: the scratch of counting them, of finding where they are, of
 * the prefix sum that puts them back, and of the sort in their gradient, and in that of all rows where none is left out. CUB's, compute capability 9.0, where eight blocks of its sum
 * are on a multiprocessor, five times over. TRL's head has them in tiles. */
static void complete_learnt(vp_symbols *s)
{
    int64_t *at = s->at, n = at[VP_SYM_B] * at[VP_SYM_n];
    int64_t  learnt = vp_symbols_learnt(s);

    at[VP_SYM_y]   = at[VP_SYM_S] - at[VP_SYM_l];
    at[VP_SYM_YR]  = scratch_of_count(n, s->card.processors);
    at[VP_SYM_YR2] = scratch_of_count(n / 2, s->card.processors);
    at[VP_SYM_YS]  = 511 + vp_round_up(8 * (32 + vp_ceil_div(n, 4224)), 256);
    at[VP_SYM_YS2] = 511 + vp_round_up(8 * (32 + vp_ceil_div(n / 2, 4224)), 256);
    at[VP_SYM_YP]  = 511 + vp_round_up(16 * (32 + vp_ceil_div(n, 896)), 256);
    at[VP_SYM_YG]  = learnt > 2304 ? scratch_of_index(learnt, bits_of(at[VP_SYM_N])) : 1;
    at[VP_SYM_YI] = at[VP_SYM_N] > 2304 ? scratch_of_index(at[VP_SYM_N], bits_of(at[VP_SYM_N])) : 1;
    at[VP_SYM_YB] = least(learnt, VP_TILE_ROWS);
    at[VP_SYM_YL] = last_of(learnt, VP_TILE_ROWS);
    at[VP_SYM_VL] = last_of(at[VP_SYM_V], VP_TILE_COLUMNS);
}

/* Pictures: the rows of their tower, and where their tokens are put among the hidden states of all others. */
static void complete_tower(vp_symbols *s)
{
    int64_t *at = s->at, rows = at[VP_SYM_iv], n = vp_mul(at[VP_SYM_N], at[VP_SYM_h]);

    at[VP_SYM_NV] = vp_mul(at[VP_SYM_im], rows);
    at[VP_SYM_NI] = vp_mul(at[VP_SYM_im], at[VP_SYM_it]);
    at[VP_SYM_XJ] =
        at[VP_SYM_NI] > 2304 ? scratch_of_index(at[VP_SYM_NI], bits_of(at[VP_SYM_NI])) : 1;
    at[VP_SYM_NVO]  = splits_of(s, at[VP_SYM_ia], at[VP_SYM_id], rows, rows);
    at[VP_SYM_V128] = vp_round_up(rows, 128);
    at[VP_SYM_NVJ]  = vp_add(at[VP_SYM_NV], 128 * at[VP_SYM_im]);
    at[VP_SYM_NVW]  = vp_add(at[VP_SYM_NV], vp_mul(128 * at[VP_SYM_im], most(1, at[VP_SYM_in])));
    at[VP_SYM_NVS]  = splits_of(s, vp_mul(at[VP_SYM_im], at[VP_SYM_ia]), at[VP_SYM_id], rows, rows);
    at[VP_SYM_YMP]  = 511 + vp_round_up(16 * (32 + vp_ceil_div(n, 896)), 256);
    at[VP_SYM_YMR]  = scratch_of_count(n, s->card.processors);
    at[VP_SYM_YMS]  = 511 + vp_round_up(8 * (32 + vp_ceil_div(n, 4224)), 256);
    at[VP_SYM_YNR]  = scratch_of_count(at[VP_SYM_N], s->card.processors);
    at[VP_SYM_YNS]  = 511 + vp_round_up(8 * (32 + vp_ceil_div(at[VP_SYM_N], 4224)), 256);
    at[VP_SYM_XQ] =
        at[VP_SYM_NI] > 2304 ? scratch_of_index(at[VP_SYM_NI], bits_of(at[VP_SYM_N])) : 1;
}

/* Rows of tokens that Liger's loss takes at once (fused_linear_cross_entropy_forward of 0.8.5): as many as make logits of the
 * hidden states' size, rounded up to a power of two. */
static int64_t tile_of_liger(int64_t n, int64_t rows, int64_t width)
{
    int64_t at_least = vp_ceil_div(n, most(1, vp_ceil_div(rows, width))), tile = 1;

    while (tile < at_least)
        tile *= 2;
    return most(1, least(tile, n));
}

int64_t vp_patches_of(const vp_symbols *s)
{
    int64_t side = s->at[VP_SYM_p] > 0 ? s->at[VP_SYM_I] / s->at[VP_SYM_p] : 0;

    return vp_mul(side, side);
}

/* A table of distances between patches, which all pairs of tokens look up. */
static void complete_picture(vp_symbols *s)
{
    int64_t *at = s->at, side = at[VP_SYM_p] > 0 ? at[VP_SYM_I] / at[VP_SYM_p] : 0;

    at[VP_SYM_g]  = vp_patches_of(s);
    at[VP_SYM_GB] = vp_mul(2 * side - 1, 2 * side - 1);
    at[VP_SYM_G]  = vp_add(at[VP_SYM_GB], 3);
    at[VP_SYM_XG] = scratch_of_index(vp_mul(at[VP_SYM_S], at[VP_SYM_S]), bits_of(at[VP_SYM_G]));
}

/* Memory-efficient attention's backward with heads above 128: what the queries' gradients are summed in, of so many rows, rounded
 * up; KS are the parts that keys are cut in while batch and heads are few. Found by trying. */
static int64_t sums_of_queries(int64_t rows, int64_t head)
{
    int64_t wide = vp_round_up(head, 64);

    return 4 * rows * wide + 8 * (rows / 64) * (wide / 64);
}

vp_status vp_symbols_complete(vp_symbols *s, const vp_symbol_card *card, vp_err *err)
{
    static const vp_size_symbol tables[] = {VP_SYM_V, VP_SYM_T, VP_SYM_P};
    static const vp_size_symbol rows[]   = {VP_SYM_MV, VP_SYM_MT, VP_SYM_MP},
                                runs[]   = {VP_SYM_EV, VP_SYM_ET, VP_SYM_EP},
                                sums[]   = {VP_SYM_XV, VP_SYM_XT, VP_SYM_XP},
                                widths[] = {VP_SYM_HV, VP_SYM_HT, VP_SYM_HP};
    int64_t *at = s->at, seq = at[VP_SYM_S], n;

    at[VP_SYM_h] = most(at[VP_SYM_h], 1);
    for (int i = 0; i <= VP_SYM_L; i++)
        if (at[i] < 0 || at[i] >= INT32_MAX)
            return VP_FAIL(err, VP_ERR_INPUT, "a size of the model is beyond 32 bits");
    if (vp_overflowed(vp_mul(vp_mul(at[VP_SYM_B], seq), most(1024, 64 * at[VP_SYM_t]))))
        return VP_FAIL(err, VP_ERR_INPUT, "a batch of so many tokens is beyond 64 bits");
    s->card         = *card;
    at[VP_SYM_u8]   = vp_round_up(at[VP_SYM_u], 8);
    at[VP_SYM_S8]   = vp_round_up(seq, 8);
    at[VP_SYM_S32]  = vp_round_up(seq, 32);
    at[VP_SYM_S128] = vp_round_up(seq, 128);
    at[VP_SYM_dr]   = vp_round_up(at[VP_SYM_d], at[VP_SYM_d] <= 128 ? 32 : 64);
    at[VP_SYM_dk]   = at[VP_SYM_d] <= 64 ? 64 : 128;
    at[VP_SYM_dq]   = at[VP_SYM_q] ? at[VP_SYM_d] - at[VP_SYM_q] : 0;
    at[VP_SYM_SK]   = vp_round_up(seq, at[VP_SYM_dk]);
    at[VP_SYM_SQ]   = at[VP_SYM_SK] / 64;
    at[VP_SYM_SH]   = at[VP_SYM_SK] / at[VP_SYM_dk];
    /* memory-efficient attention's backward with heads above 128 */
    at[VP_SYM_WQ] = sums_of_queries(at[VP_SYM_S128], at[VP_SYM_d]);
    at[VP_SYM_WV] = sums_of_queries(at[VP_SYM_S128], at[VP_SYM_v]);
    at[VP_SYM_vr] = vp_round_up(at[VP_SYM_v], 128);
    at[VP_SYM_KS] =
        most(1, least(200 / most(1, at[VP_SYM_B] * at[VP_SYM_a]), vp_ceil_div(seq, 64)));
    at[VP_SYM_n] = seq - 1;
    complete_picture(s);
    at[VP_SYM_N] = n = at[VP_SYM_B] * seq;
    at[VP_SYM_NS]    = flash_splits(s, seq, seq);
    at[VP_SYM_HLi]   = partial_width(n, at[VP_SYM_V], vp_mul(at[VP_SYM_L], at[VP_SYM_i]), card);
    at[VP_SYM_HPe]   = partial_width(n, at[VP_SYM_P], at[VP_SYM_e], card);
    at[VP_SYM_HTe]   = partial_width(n, at[VP_SYM_T], at[VP_SYM_e], card);
    for (int i = 0; i < 3; i++) {
        look_up x     = scratch_of_look_up(n, at[tables[i]],
                                       i == 0 && at[VP_SYM_e] ? at[VP_SYM_e] : at[VP_SYM_h], card);
        at[rows[i]]   = x.rows;
        at[runs[i]]   = x.runs;
        at[widths[i]] = x.width;
        at[sums[i]]   = x.sums;
        at[VP_SYM_XS] = x.sort;
        at[VP_SYM_XU] = x.unique;
    }
    at[VP_SYM_XB] = n > 2304 ? scratch_of_index(n, bits_of(at[VP_SYM_V])) : 1;
    at[VP_SYM_XC] = 511 + vp_round_up(16 * (32 + vp_ceil_div(n, 4928)), 256);
    at[VP_SYM_YW] = card->workspace;
    complete_targets(s);
    complete_written(s);
    complete_experts(s);
    complete_learnt(s);
    at[VP_SYM_SC] = vp_ceil_div(seq, 64);
    at[VP_SYM_jz] = 2 * (at[VP_SYM_j] ? at[VP_SYM_j] : at[VP_SYM_z]) + at[VP_SYM_z];
    if (at[VP_SYM_im])
        complete_tower(s);
    at[VP_SYM_YC] = tile_of_liger(n, at[VP_SYM_V], at[VP_SYM_h]);
    at[VP_SYM_YM] = card->processors;
    return VP_OK;
}

/* ---- expressions ---- */

/* bitsandbytes' NF4: a scale for so many weights, and one for so many of those where they are quantised too */
enum { NF4_BLOCK = 64, NF4_BLOCK_OF_BLOCKS = 256 };

static const char *const names[] = {
#define X(name) #name,
    VP_SYMBOL_TABLE(X)
#undef X
};

static int symbol_named(const char *text, size_t n)
{
    for (int i = 0; i < VP_N_SIZE_SYMBOLS; i++)
        if (strlen(names[i]) == n && memcmp(names[i], text, n) == 0)
            return i;
    return -1;
}

int64_t *vp_symbol_named(vp_symbols *s, const char *name)
{
    int i = symbol_named(name, strlen(name));

    return i < 0 || i > VP_SYM_L ? NULL : &s->at[i];
}

/* "3h", "ad", "adh+2kdh": numbers, then symbols of one letter, up to a comma or the end. */
static bool columns(const vp_symbols *s, const char **text, int64_t *out)
{
    *out = 0;
    do {
        int64_t n = 1;
        *text += **text == '+';
        if (isdigit((unsigned char)**text))
            n = strtoll(*text, (char **)text, 10);
        for (; **text && !strchr("+,)", **text); ++*text) {
            int i = symbol_named(*text, 1);
            if (i < 0)
                return false;
            n = vp_mul(n, s->at[i]);
        }
        *out = vp_add(*out, n);
    } while (**text == '+');
    return **text != '\0' && !vp_overflowed(*out);
}

/* "R(3h)", "Q(d,a)", behind the "(": columns, and what multiplies the rows, of which there are n; each is there so many times. */
static bool sum(const vp_symbols *s, int64_t n, int64_t times, const char **text,
                vp_sum_scratch *out)
{
    int64_t outputs, rows = 1;

    if (!columns(s, text, &outputs))
        return false;
    outputs = vp_mul(outputs, times);
    if (**text == ',' && (++*text, !columns(s, text, &rows)))
        return false;
    rows = vp_mul(rows, most(n, 1));
    if (*(*text)++ != ')' || vp_overflowed(rows) || vp_overflowed(outputs))
        return false;
    *out = outputs && rows ? vp_scratch_of_sum(outputs, rows, &s->card) : (vp_sum_scratch){0};
    return true;
}

/* "J(hf)", "K(hf)", behind the "(". */
static bool scales(const vp_symbols *s, char letter, const char **text, int64_t *out)
{
    int64_t n;

    if (!columns(s, text, &n) || *(*text)++ != ')')
        return false;
    n    = vp_ceil_div(n, NF4_BLOCK);
    *out = letter == 'J' ? n : vp_ceil_div(n, NF4_BLOCK_OF_BLOCKS);
    return true;
}

static bool factor(const vp_symbols *s, const char **text, int64_t *out)
{
    const char *t = *text;
    size_t      n = 0;
    int         i;

    if (isdigit((unsigned char)*t)) {
        errno = 0;
        *out  = strtoll(t, (char **)text, 10);
        return !errno;
    }
    if (*t == 'A' && t[1] == '(') {
        int64_t width;
        *text = t + 2;
        if (!columns(s, text, &width) || *(*text)++ != ')')
            return false;
        width = vp_mul(width, s->at[VP_SYM_N]);
        *out  = vp_overflowed(width) ? width : scratch_of_any(width, &s->card);
        return true;
    }
    if ((*t == 'J' || *t == 'K') && t[1] == '(') {
        *text = t + 2;
        return scales(s, *t, text, out);
    }
    if ((*t == 'R' || *t == 'Q') &&
        (t[1] == '(' || (t[1] && strchr("DGVI", t[1]) && t[2] == '('))) {
        bool           of_picture = t[1] == 'G';
        int64_t        rows       = s->at[of_picture    ? VP_SYM_n
                                          : t[1] == 'D' ? VP_SYM_ND
                                          : t[1] == 'V' ? VP_SYM_NV
                                          : t[1] == 'I' ? VP_SYM_NI
                                                        : VP_SYM_N];
        vp_sum_scratch x;
        *text = t + (t[1] == '(' ? 2 : 3);
        if (!sum(s, rows, of_picture ? s->at[VP_SYM_B] : 1, text, &x))
            return false;
        *out = *t == 'R' ? x.bytes : x.semaphore_bytes;
        return true;
    }
    while (isalnum((unsigned char)t[n]))
        n++;
    i = symbol_named(t, n);
    if (i < 0)
        return false;
    *out  = s->at[i];
    *text = t + n;
    return true;
}

vp_status vp_symbols_evaluate(const vp_symbols *s, const char *text, int64_t *out, vp_err *err)
{
    const char *t   = text;
    int64_t     sum = 0, x;

    for (;;) {
        int64_t product = 1;
        do {
            if (!factor(s, &t, &x))
                return VP_FAIL(err, VP_ERR_INPUT, "\"%s\" is no size of a recorded step", text);
            product = vp_mul(product, x);
        } while (*t == '*' && t++);
        sum = vp_add(sum, product);
        if (*t != '+')
            break;
        t++;
    }
    while (*t == '/') {
        t++;
        if (!factor(s, &t, &x) || x < 1 || (!vp_overflowed(sum) && sum % x))
            return VP_FAIL(err, VP_ERR_INPUT, "\"%s\" is no whole number here", text);
        sum = vp_overflowed(sum) ? sum : sum / x;
    }
    if (*t)
        return VP_FAIL(err, VP_ERR_INPUT, "\"%s\" is no size of a recorded step", text);
    if (vp_overflowed(sum))
        return VP_FAIL(err, VP_ERR_INPUT, "\"%s\" is beyond 64 bits here", text);
    *out = sum;
    return VP_OK;
}
