/* trainers/torch/symbols.h: the sizes that a recorded step is told in, and what follows from them.
 *     vp_symbols s = {.at = {[VP_SYM_B] = 4, [VP_SYM_S] = 2048, [VP_SYM_h] = 4096, ...}};
 *     VP_TRY(vp_symbols_complete(&s, &(vp_symbol_card){.processors = 132, .threads = 2048}, err));
 *     VP_TRY(vp_symbols_evaluate(&s, "2*B*S*h", &bytes, err));
 *
 * An expression is a sum of products, over factors where it has some: "4097*B*S128*a/8". A
 * factor is a number, a symbol, R(outputs) or Q(outputs): the scratch of a sum over B S rows into
 * that many columns, and of its semaphores; RD, QD: over B D rows; RG, QG: of each picture's patches; RV, QV: over the rows of a tower; RI, QI: over the tokens that they make; R(outputs,heads): over B S heads rows; J(n) or K(n): the
 * scales of n weights in NF4, and the scales of those; A(columns): the scratch of any() over B S rows of so many booleans. tests/oracles/programs/sizes.py has the same in
 * Python, and finds the expressions. */
#ifndef VP_TRAINERS_TORCH_SYMBOLS_H
#define VP_TRAINERS_TORCH_SYMBOLS_H

#include "base/err.h"

#include <stdint.h>

/* B batch, S sequence, l tokens of it that are a completion, which are learnt from (0: all but the last), h hidden, a heads, k key and value heads, d head size, q of which are rotated, f intermediate, e a token's
 * width where it is not the hidden one (0), V vocabulary, P positions, T token types, I pixels of an image's side, p of a patch's, c bands of a sound's spectrum, C classes, D sequence of targets (0: none), W buckets of distances, r
 * rank of an adapter, E experts, s the width of a layer beside them, t of them for each token, z value heads and j key heads of Gated DeltaNet (0: as many), SC its chunks of 64 tokens, jz heads that its convolution mixes, v the head size and w the key and value heads of layers that are otherwise than the rest (0: none), i the width of an input of each layer's own, o documents that are packed behind each other, x rows of the table that are trained beside adapters, or virtual tokens before a sequence: of prompt tuning S counts them and u does not, of prefix tuning u is the keys of a sequence, S without them; im pictures in front of a batch's texts, of each of which a tower with ia heads of id makes iv rows and the text has it tokens; where pictures differ, ip pixels of a token's side, of ir rows each, ih tokens high and ix wide, windows of iw tokens' side, in of them in a picture; L layers; below them what follows: NV the rows of a tower, NI the tokens that they make, XJ the scratch of the sort in the gradient of these as they are put in another order, NVJ and NVW the rows that flash-attn 2 rounds each picture, or each window, up to, NVS the parts that flash attention cuts them in, NVO those of one picture, V128 its rows rounded up, YMP, YMR and YMS the scratch of a mask over all hidden states, which says where pictures are, YNR and YNS of one over all tokens, XQ of the sort in the gradient of those that are taken by it; m is D - 1; g patches of a picture of the config's size, GB their distances, G those and three of the token before them, XG the scratch of the sort of all pairs; behind another name, D is of look-ups of targets (XDP: the sort of those in the table of positions), W and Z of those of buckets, for
 * the distances in S and in D. NS are the parts that flash attention cuts its keys in, NSD and NSC of D targets that look at each other and at S; HTe and HPe are HT and HP of tables of width e, HLi is HV of the inputs of all layers; WV is WQ of heads of v, vr these rounded up to 128. YR, YS, YP and YG are the scratch of a mask's rows, YI of the sort of all rows, YR2 and YS2 of half as many, YB, YL and VL tiles of a head, YC
 * rows of one of Liger's, YM multiprocessors, YW cuBLAS's workspace where each product takes its own, XB and XC the
 * scratch of a look-up in torch 2.15, XE of the sort of what is routed by expert: symbols.c. */
/* clang-format off */
#define VP_SYMBOL_TABLE(X) \
    X(B) X(S) X(l) X(h) X(a) X(k) X(d) X(f) X(V) X(P) X(T) X(I) X(p) X(C) X(D) X(W) X(E) X(t) X(o) X(r) X(x) X(u) X(q) X(e) X(c) X(s) X(z) X(j) X(v) X(w) X(i) X(im) X(it) X(iv) X(ia) X(id) X(ip) X(ir) X(iw) X(ih) X(ix) X(in) X(L) \
    X(u8) X(S8) X(S32) X(S128) X(dr) X(dk) X(dq) X(SK) X(SQ) X(SH) X(N) X(NS) X(MV) X(MT) X(MP) X(EV) X(ET) X(EP) \
    X(HV) X(HT) X(HP) X(HTe) X(HPe) X(NSD) X(NSC) X(WQ) X(KS) X(vr) X(WV) X(HLi) X(n) X(g) X(G) X(GB) X(XG) X(XS) X(XU) X(XV) X(XT) X(XP) \
    X(m) X(y) X(S16) X(D16) X(D32) X(D128) X(DK) X(DQ) X(DH) X(ND) X(NW) X(NZ) X(MD) X(MW) X(MZ) X(ED) X(EW) X(EZ) \
    X(HD) X(HW) X(HZ) X(XD) X(XW) X(XZ) X(XSD) X(XSW) X(XSZ) X(XUD) X(XUW) X(XUZ) X(XDP) \
    X(XR) X(XN) X(XI) X(XE) X(XB) X(XC) X(YR) X(YS) X(YR2) X(YS2) X(YP) X(YG) X(YI) X(YB) X(YL) X(VL) X(YC) X(YM) X(YW) X(SC) X(jz) \
    X(NV) X(NVS) X(NVO) X(V128) X(NVJ) X(NVW) X(NI) X(XJ) X(YMP) X(YMR) X(YMS) \
    X(XQ) X(YNR) X(YNS)
/* clang-format on */

typedef enum vp_size_symbol {
#define X(name) VP_SYM_##name,
    VP_SYMBOL_TABLE(X)
#undef X
        VP_N_SIZE_SYMBOLS
} vp_size_symbol;

/* TRL's head and loss (trl/kernels/chunked_logprob.py of 1.16): so many rows of tokens and of the table at once. */
enum { VP_TILE_ROWS = 4096, VP_TILE_COLUMNS = 32768 };

typedef struct vp_symbol_card {
    int64_t processors; /* multiprocessors */
    int64_t threads;    /* that fit on one of them */
    int64_t workspace;  /* bytes, of cuBLAS */
} vp_symbol_card;

/* What summing the rows of a row-major (rows, columns) tensor of floats takes while it runs: R and Q. */
typedef struct vp_sum_scratch {
    int64_t bytes, semaphore_bytes;
} vp_sum_scratch;

vp_sum_scratch vp_scratch_of_sum(int64_t columns, int64_t rows, const vp_symbol_card *card);

typedef struct vp_symbols {
    int64_t        at[VP_N_SIZE_SYMBOLS];
    vp_symbol_card card;
} vp_symbols;

/* Rows that are learnt from: of each sequence the completion, else all but the last. */
int64_t vp_symbols_learnt(const vp_symbols *symbols);

/* Patches of a picture of the size that the config has; 0: there are none. */
int64_t vp_patches_of(const vp_symbols *s);

/* From B to r to all. VP_ERR_INPUT: one does not fit in 32 bits. */
vp_status vp_symbols_complete(vp_symbols *s, const vp_symbol_card *card, vp_err *err);

/* Where the size of a model, of a batch or of an adapter is; NULL: no such symbol. */
int64_t *vp_symbol_named(vp_symbols *s, const char *name);

/* VP_ERR_INPUT: no expression; a product beyond 64 bits. */
vp_status vp_symbols_evaluate(const vp_symbols *s, const char *text, int64_t *out, vp_err *err);

#endif
